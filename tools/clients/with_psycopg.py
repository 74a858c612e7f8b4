"""psycopg 3: parameters and results of each type as text and binary, cursors, COPY, pipelines, transactions, errors."""

import asyncio
import datetime
import decimal
import os
import uuid

import psycopg
from checks import Checks, equal, is_refused
from psycopg.rows import class_row, dict_row
from psycopg.types.json import Json, Jsonb

check = Checks()
connection = psycopg.connect(autocommit=True)

VALUES = {
    "boolean": True,
    "smallint": -7,
    "integer": 70_000,
    "bigint": 2**40,
    "real": 1.5,
    "double precision": 0.1,
    "numeric": decimal.Decimal("12345678901234567890.123"),
    "text": "Zürich 'quoted' \\ and\nlines",
    "varchar(20)": "short",
    "bytea": bytes(range(256)),
    "date": datetime.date(2024, 2, 29),
    "time": datetime.time(23, 59, 59, 999999),
    "timestamp": datetime.datetime(1999, 12, 31, 23, 59, 59, 1),
    "timestamptz": datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc),
    "interval": datetime.timedelta(days=3, hours=4, microseconds=5),
    "uuid": uuid.UUID(int=2**100),
    "integer[]": [1, None, 3],
    "text[]": ["a", "b,c", None, 'd"e'],
    "double precision[]": [0.5, 1.5],
    "timestamptz[]": [datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc)],
}


@check
def values_come_back(_):
    for binary in (False, True):
        for type_name, value in VALUES.items():
            for given in (value, None):
                cursor = connection.cursor(binary=binary)
                try:
                    cursor.execute(f"select %s::{type_name}", (given,))
                    found = cursor.fetchone()[0]
                except psycopg.Error as error:
                    raise AssertionError(f"{type_name}, binary={binary}, {given!r}: {error}") from error
                assert found == given, f"{type_name}, binary={binary}: {found!r} is not {given!r}"


@check
def values_are_kept_in_tables(_):
    for number, (type_name, value) in enumerate(VALUES.items()):
        try:
            connection.execute(f"create table v{number} (k int primary key, v {type_name})")
            connection.execute(f"insert into v{number} values (1, %b), (2, null)", (value,))
            connection.execute(f"insert into v{number} values (3, %t)", (value,))
            rows = connection.execute(f"select v from v{number} order by k").fetchall()
            equal(rows, [(value,), (None,), (value,)])
        except psycopg.Error as error:
            raise AssertionError(f"{type_name}: {error}") from error


@check
def json_documents(_):
    document = {"a": [1, 2.5, None, "ü"], "b": {"c": True}}
    connection.execute("create table documents (k serial primary key, j json, b jsonb)")
    connection.execute("insert into documents (j, b) values (%s, %s)", (Json(document), Jsonb(document)))
    equal(connection.execute("select j, b from documents").fetchone(), (document, document))
    equal(connection.execute("select b -> 'b' ->> 'c' from documents").fetchone()[0], "true")


@check
def rows_as_objects(_):
    class Row:
        def __init__(self, a, b):
            self.a, self.b = a, b

    found = connection.cursor(row_factory=class_row(Row)).execute("select 1 as a, 'x' as b").fetchone()
    equal((found.a, found.b), (1, "x"))
    equal(connection.cursor(row_factory=dict_row).execute("select 1 as a").fetchall(), [{"a": 1}])


@check
def prepared_statements(_):
    connection.execute("create table p (k int primary key, v text)")
    for number in range(20):
        connection.execute("insert into p values (%s, %s)", (number, f"v{number}"), prepare=True)
    equal(connection.execute("select v from p where k = %s", (7,), prepare=True).fetchone(), ("v7",))


@check
def many_rows_at_once(_):
    connection.execute("create table m (k int primary key, v text)")
    with connection.cursor() as cursor:
        cursor.executemany("insert into m values (%s, %s)", [(number, str(number)) for number in range(500)])
        equal(cursor.rowcount, 500)
        cursor.executemany("insert into m values (%s, 'r') returning k", [(900,), (901,)], returning=True)
        equal(cursor.fetchone(), (900,))
        assert cursor.nextset()
        equal(cursor.fetchone(), (901,))


@check
def a_cursor_of_the_server(_):
    with connection.transaction(), connection.cursor("numbers") as cursor:
        cursor.itersize = 100
        cursor.execute("select g from generate_series(1, 1000) g")
        equal(sum(row[0] for row in cursor), 500_500)
    with connection.transaction(), connection.cursor("scrolls", scrollable=True) as cursor:
        cursor.execute("select g from generate_series(1, 10) g")
        cursor.scroll(4)
        equal(cursor.fetchone(), (5,))
        cursor.scroll(-3)
        equal(cursor.fetchmany(2), [(3,), (4,)])


@check
def a_stream(_):
    equal(sum(row[0] for row in connection.cursor().stream("select g from generate_series(1, 5000) g")), 12_502_500)


@check
def copy_in_and_out(_):
    connection.execute("create table c (k int primary key, v text, d date)")
    rows = [(1, "a\tb", datetime.date(2024, 1, 1)), (2, None, None), (3, "\\N", datetime.date(1, 1, 1))]
    with connection.cursor() as cursor:
        with cursor.copy("copy c (k, v, d) from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        with cursor.copy("copy (select * from c order by k) to stdout") as copy:
            copy.set_types(["int4", "text", "date"])
            equal(list(copy.rows()), rows)
        with cursor.copy("copy c to stdout (format csv, header)") as copy:
            assert b"".join(copy).startswith(b"k,v,d\n")


@check
def copy_as_binary(_):
    connection.execute("create table cb (k int primary key, v text, n numeric, t timestamptz)")
    now = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    rows = [(1, "a", decimal.Decimal("1.50"), now), (2, None, None, None)]
    with connection.cursor() as cursor:
        with cursor.copy("copy cb from stdin (format binary)") as copy:
            copy.set_types(["int4", "text", "numeric", "timestamptz"])
            for row in rows:
                copy.write_row(row)
        with cursor.copy("copy (select * from cb order by k) to stdout (format binary)") as copy:
            copy.set_types(["int4", "text", "numeric", "timestamptz"])
            equal(list(copy.rows()), rows)


@check
def a_pipeline(_):
    connection.execute("create table pl (k int primary key)")
    with connection.pipeline() as pipeline:
        cursors = [connection.execute("insert into pl values (%s) returning k", (number,)) for number in range(50)]
        pipeline.sync()
        equal([cursor.fetchone()[0] for cursor in cursors], list(range(50)))
    with connection.pipeline():
        refused = connection.cursor()
        is_refused(psycopg.errors.UniqueViolation, lambda: (refused.execute("insert into pl values (1)"), refused.fetchone()))
    equal(connection.execute("select count(*) from pl").fetchone(), (50,))


@check
def transactions_and_savepoints(_):
    connection.execute("create table s (k int primary key)")
    with connection.transaction():
        connection.execute("insert into s values (1)")
        try:
            with connection.transaction():
                connection.execute("insert into s values (2)")
                connection.execute("insert into s values (1)")
        except psycopg.errors.UniqueViolation as error:
            equal(error.diag.constraint_name, "s_pkey")
            equal(error.diag.table_name, "s")
        connection.execute("insert into s values (3)")
    equal(connection.execute("select k from s order by k").fetchall(), [(1,), (3,)])
    with psycopg.connect() as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        equal(other.execute("show transaction_isolation").fetchone(), ("repeatable read",))
        other.rollback()
        other.read_only = True
        is_refused(psycopg.errors.ReadOnlySqlTransaction, other.execute, "insert into s values (9)")


@check
def errors_have_their_classes(_):
    for text, kind in {
        "select": None,
        "selec 1": psycopg.errors.SyntaxError,
        "select * from nothing": psycopg.errors.UndefinedTable,
        "select x": psycopg.errors.UndefinedColumn,
        "select 1 / 0": psycopg.errors.DivisionByZero,
        "select 'x'::int": psycopg.errors.InvalidTextRepresentation,
        "select 100000::smallint": psycopg.errors.NumericValueOutOfRange,
    }.items():
        if kind:
            is_refused(kind, connection.execute, text)


@check
def a_statement_is_cancelled(_):
    connection.execute("set statement_timeout = '100ms'")
    try:
        is_refused(psycopg.errors.QueryCanceled, connection.execute, "select count(*) from generate_series(1, 2000000000)")
    finally:
        connection.execute("reset statement_timeout")


@check
def notices_arrive(_):
    found = []
    connection.add_notice_handler(lambda notice: found.append(notice.message_primary))
    connection.execute("drop table if exists is_not_there")
    equal(found, ['table "is_not_there" does not exist, skipping'])


@check
def types_are_found_by_name(_):
    found = psycopg.types.TypeInfo.fetch(connection, "timestamptz")
    equal((found.oid, found.array_oid), (1184, 1185))
    equal(psycopg.types.TypeInfo.fetch(connection, "is_not_there"), None)


@check
def asynchronous(_):
    async def work():
        async with await psycopg.AsyncConnection.connect() as other:
            cursor = await other.execute("select %s::int + 1", (1,))
            equal(await cursor.fetchone(), (2,))

    asyncio.run(work())


@check
def by_tcp_with_a_password(_):
    where = {
        "host": "127.0.0.1",
        "user": os.environ["LODESTONE_TCP_USER"],
        "password": os.environ["LODESTONE_TCP_PASSWORD"],
    }
    with psycopg.connect(**where) as other:
        equal(other.execute("select current_user").fetchone(), ("tester",))
    is_refused(psycopg.OperationalError, lambda: psycopg.connect(**{**where, "password": "wrong"}))


@check
def encrypted(_):
    if "LODESTONE_TLS_CERT" not in os.environ:
        return
    where = {
        "host": "127.0.0.1",
        "user": os.environ["LODESTONE_TCP_USER"],
        "password": os.environ["LODESTONE_TCP_PASSWORD"],
        "sslmode": "verify-full",
        "sslrootcert": os.environ["LODESTONE_TLS_CERT"],
    }
    with psycopg.connect(**where) as other:
        assert other.pgconn.ssl_in_use
        equal(other.execute("select repeat('x', 1000000)").fetchone(), ("x" * 1_000_000,))
        rows = sum(1 for _ in other.execute("select repeat('x', 100) from generate_series(1, 50000)"))
        equal(rows, 50_000)
        other.execute("create table tls (k int primary key, v text)")
        with other.cursor().copy("copy tls from stdin") as copy:
            for number in range(5000):
                copy.write_row((number, "y" * 100))
        equal(other.execute("select count(*) from tls").fetchone(), (5000,))


check.run(None, before=lambda: connection.execute("select 1"))
