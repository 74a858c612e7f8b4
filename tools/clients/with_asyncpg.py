"""asyncpg: all in binary, its queries about types, cursors, COPY of records, transactions."""

import asyncio
import datetime
import decimal
import io
import os
import uuid

import asyncpg
from checks import Checks, equal

check = Checks()
loop = asyncio.new_event_loop()
where = {"host": os.environ["PGHOST"], "port": int(os.environ["PGPORT"])}
connection = loop.run_until_complete(asyncpg.connect(**where))


def each(function):
    """A check that is a coroutine."""

    def run(_):
        loop.run_until_complete(function())

    run.__name__ = function.__name__
    return check(run)


@each
async def values_come_back():
    utc = datetime.timezone.utc
    for type_name, value in {
        "bool": True,
        "int2": -1,
        "int4": 7,
        "int8": 2**50,
        "float4": 0.5,
        "float8": 0.1,
        "numeric": decimal.Decimal("-1234.5678"),
        "text": "Zürich",
        "varchar": "v",
        "bytea": b"\0\1",
        "date": datetime.date(2000, 2, 29),
        "time": datetime.time(1, 2, 3, 4),
        "timestamp": datetime.datetime(2001, 1, 1, 1, 1, 1, 5),
        "timestamptz": datetime.datetime(2001, 1, 1, tzinfo=utc),
        "interval": datetime.timedelta(days=400, seconds=5),
        "uuid": uuid.UUID(int=5),
        "int4[]": [1, None, 2],
        "text[]": ["a", None],
        "uuid[]": [uuid.UUID(int=5)],
        "json": '{"a": 1}',
        "jsonb": '{"a": 1}',
        "oid": 16384,
    }.items():
        try:
            equal(await connection.fetchval(f"select $1::{type_name}", value), value)
        except Exception as error:
            raise AssertionError(f"{type_name}: {error}") from error


@each
async def rows_and_records():
    await connection.execute("create table r (k int primary key, v text); insert into r values (1, 'a'), (2, 'b')")
    row = await connection.fetchrow("select * from r where k = $1", 2)
    equal(dict(row), {"k": 2, "v": "b"})
    equal(await connection.execute("update r set v = 'c' where k = $1", 1), "UPDATE 1")
    await connection.executemany("insert into r values ($1, $2)", [(number, str(number)) for number in range(10, 300)])
    equal(await connection.fetchval("select count(*) from r"), 292)
    equal(await connection.fetch("select k from r where k = any($1::int[]) order by k", [1, 2, 5]), [(1,), (2,)])


@each
async def cursors():
    async with connection.transaction():
        total = 0
        async for row in connection.cursor("select g from generate_series(1, 1000) g", prefetch=50):
            total += row[0]
        equal(total, 500_500)
        cursor = await connection.cursor("select g from generate_series(1, 10) g")
        equal([row[0] for row in await cursor.fetch(3)], [1, 2, 3])


@each
async def transactions():
    await connection.execute("create table t (k int primary key)")
    for level in ("serializable", "repeatable_read", "read_committed"):
        async with connection.transaction(isolation=level):
            await connection.execute("insert into t values (1)")
            try:
                async with connection.transaction():
                    await connection.execute("insert into t values (1)")
            except asyncpg.UniqueViolationError as error:
                equal(error.constraint_name, "t_pkey")
            await connection.execute("delete from t")


@each
async def copies_of_records():
    await connection.execute("create table c (k int primary key, v text, t timestamptz, n numeric)")
    now = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    records = [(number, f"v{number}", now, decimal.Decimal("1.5")) for number in range(3000)]
    equal(await connection.copy_records_to_table("c", records=records), "COPY 3000")
    out = io.BytesIO()
    equal(await connection.copy_from_query("select k from c where k < 3 order by k", output=out), "COPY 3")
    equal(out.getvalue(), b"0\n1\n2\n")
    out = io.BytesIO()
    await connection.copy_from_table("c", output=out, format="csv", columns=["k", "v"])
    await connection.execute("truncate c")
    out.seek(0)
    equal(await connection.copy_to_table("c", source=out, format="csv", columns=["k", "v"]), "COPY 3000")


@each
async def statements_and_their_types():
    statement = await connection.prepare("select $1::int + 1 as a, 'x'::text as b")
    equal([attribute.type.name for attribute in statement.get_attributes()], ["int4", "text"])
    equal([parameter.name for parameter in statement.get_parameters()], ["int4"])
    equal(await statement.fetchval(4), 5)


@each
async def codecs():
    await connection.set_type_codec("jsonb", encoder=str, decoder=len, schema="pg_catalog")
    equal(await connection.fetchval("""select '{"a": 1}'::jsonb"""), 8)


@each
async def a_pool():
    async with asyncpg.create_pool(**where, min_size=2, max_size=4) as pool:
        found = await asyncio.gather(*(pool.fetchval("select $1::int", number) for number in range(20)))
        equal(found, list(range(20)))


@each
async def listeners_and_reset():
    await connection.reset()
    equal(connection.get_server_version().major, 15)


@each
async def by_tcp_encrypted():
    if "LODESTONE_TLS_CERT" not in os.environ:
        return
    import ssl

    context = ssl.create_default_context(cafile=os.environ["LODESTONE_TLS_CERT"])
    other = await asyncpg.connect(
        host="localhost",
        port=where["port"],
        user=os.environ["LODESTONE_TCP_USER"],
        password=os.environ["LODESTONE_TCP_PASSWORD"],
        ssl=context,
    )
    equal(await other.fetchval("select current_user"), "tester")
    await other.close()


check.run(None)
