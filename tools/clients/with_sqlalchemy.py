"""SQLAlchemy: tables made and reflected, the object mapper, expressions, transactions."""

import datetime
import decimal
import enum
import os
import uuid

import sqlalchemy as sa
from checks import Checks, equal, is_refused
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql as pg

check = Checks()
where = f"postgresql+psycopg://{os.environ['PGUSER']}@/shop?host={os.environ['PGHOST']}&port={os.environ['PGPORT']}"
engine = sa.create_engine(where)


class Base(orm.DeclarativeBase):
    pass


class Colour(enum.Enum):
    red = 1
    green = 2


class Customer(Base):
    __tablename__ = "customer"
    __table_args__ = (sa.UniqueConstraint("email", name="one_email"), sa.Index("by_name", "name", "born"))
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(50))
    email: orm.Mapped[str | None]
    born: orm.Mapped[datetime.date | None]
    balance: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(12, 2), server_default="0")
    is_good: orm.Mapped[bool] = orm.mapped_column(default=True)
    orders: orm.Mapped[list["Order"]] = orm.relationship(back_populates="customer", cascade="all, delete-orphan")


class Order(Base):
    __tablename__ = "order"
    __table_args__ = (sa.CheckConstraint("amount > 0", name="some_amount"),)
    id: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, sa.Identity(), primary_key=True)
    customer_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("customer.id", ondelete="CASCADE"), index=True)
    amount: orm.Mapped[int]
    made: orm.Mapped[datetime.datetime] = orm.mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    customer: orm.Mapped[Customer] = orm.relationship(back_populates="orders")


class Everything(Base):
    __tablename__ = "everything"
    id: orm.Mapped[uuid.UUID] = orm.mapped_column(primary_key=True)
    small: orm.Mapped[int] = orm.mapped_column(sa.SmallInteger)
    real: orm.Mapped[float]
    text: orm.Mapped[str] = orm.mapped_column(sa.Text)
    raw: orm.Mapped[bytes]
    time: orm.Mapped[datetime.time]
    moment: orm.Mapped[datetime.datetime]
    span: orm.Mapped[datetime.timedelta] = orm.mapped_column(sa.Interval)
    document: orm.Mapped[dict] = orm.mapped_column(pg.JSONB)
    plain: orm.Mapped[dict] = orm.mapped_column(sa.JSON)
    # CREATE TYPE .. AS ENUM is not there.
    colour: orm.Mapped[Colour] = orm.mapped_column(sa.Enum(Colour, native_enum=False, length=10))
    tags: orm.Mapped[list[str]] = orm.mapped_column(pg.ARRAY(sa.Text))


@check
def tables_are_made(_):
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)


@check
def objects_are_kept(_):
    with orm.Session(engine) as session:
        ann = Customer(name="Ann", email="ann@x", born=datetime.date(1990, 1, 1))
        ann.orders = [Order(amount=number) for number in (1, 2, 3)]
        session.add_all([ann, Customer(name="Bob")])
        session.commit()
        equal(ann.balance, decimal.Decimal("0.00"))
        ann.name = "Anna"
        ann.orders.pop()
        session.commit()
    with orm.Session(engine) as session:
        found = session.scalars(sa.select(Customer).options(orm.selectinload(Customer.orders)).order_by(Customer.id)).all()
        equal([(one.name, len(one.orders)) for one in found], [("Anna", 2), ("Bob", 0)])
        joined = sa.select(Customer.name, sa.func.sum(Order.amount)).join(Order).group_by(Customer.id)
        equal(session.execute(joined).all(), [("Anna", 3)])
        session.delete(found[0])
        session.commit()
        equal(session.scalar(sa.select(sa.func.count()).select_from(Order)), 0)


@check
def many_objects(_):
    with orm.Session(engine) as session:
        session.add_all([Customer(name=f"c{number}") for number in range(2000)])
        session.commit()
        equal(session.scalar(sa.select(sa.func.count(Customer.id)).where(Customer.name.like("c1%"))), 1111)
        session.execute(sa.update(Customer).where(Customer.name.startswith("c2")).values(is_good=False))
        session.execute(sa.delete(Customer).where(Customer.is_good.is_(False)))
        session.commit()


@check
def every_type(_):
    values = {
        "id": uuid.uuid4(),
        "small": 3,
        "real": 0.25,
        "text": "x",
        "raw": b"\0\xff",
        "time": datetime.time(12, 30),
        "moment": datetime.datetime(2024, 5, 6, 7, 8, 9),
        "span": datetime.timedelta(days=1, seconds=2),
        "document": {"a": [1, 2]},
        "plain": {"b": None},
        "colour": Colour.green,
        "tags": ["a", "b"],
    }
    with orm.Session(engine) as session:
        session.add(Everything(**values))
        session.commit()
        found = session.scalars(sa.select(Everything)).one()
        for name, value in values.items():
            equal(getattr(found, name), value)
        by_tag = sa.select(Everything.text).where(Everything.tags.any("a"), Everything.document["a"][0].as_integer() == 1)
        equal(session.scalar(by_tag), "x")


@check
def tables_are_reflected(_):
    found = sa.MetaData()
    found.reflect(engine)
    assert {"customer", "order"} <= set(found.tables)
    customer, order = found.tables["customer"], found.tables["order"]
    equal([column.name for column in customer.primary_key], ["id"])
    equal(customer.c.name.type.length, 50)
    equal((customer.c.balance.type.precision, customer.c.balance.type.scale), (12, 2))
    equal(customer.c.name.nullable, False)
    equal(list(order.c.customer_id.foreign_keys)[0].target_fullname, "customer.id")
    equal(order.c.made.type.timezone, True)


@check
def the_inspector(_):
    inspector = sa.inspect(engine)
    equal(inspector.get_schema_names(), ["information_schema", "public"])
    assert "order" in inspector.get_table_names()
    equal(inspector.get_pk_constraint("order")["constrained_columns"], ["id"])
    equal([one["name"] for one in inspector.get_indexes("customer")], ["by_name", "one_email"])
    equal(inspector.get_unique_constraints("customer")[0]["column_names"], ["email"])
    key = inspector.get_foreign_keys("order")[0]
    equal((key["referred_table"], key["options"].get("ondelete")), ("customer", "CASCADE"))
    equal([one["name"] for one in inspector.get_check_constraints("order")], ["some_amount"])
    identity = [one for one in inspector.get_columns("order") if one["name"] == "id"][0]["identity"]
    equal(identity["always"], False)
    equal(inspector.get_view_names(), [])
    equal(inspector.get_sequence_names(), ["customer_id_seq", "order_id_seq"])
    equal(inspector.get_table_comment("customer"), {"text": None})
    equal(inspector.get_enums(), [])


@check
def expressions(_):
    with engine.connect() as connection:
        series = sa.select(sa.func.generate_series(1, 5).column_valued("g"))
        equal(connection.scalars(series).all(), [1, 2, 3, 4, 5])
        numbers = sa.select(sa.literal(1).label("n")).cte("numbers", recursive=True)
        numbers = numbers.union_all(sa.select(numbers.c.n + 1).where(numbers.c.n < 4))
        equal(connection.scalar(sa.select(sa.func.sum(numbers.c.n))), 10)
        over = sa.func.row_number().over(order_by=Customer.id.desc())
        equal(connection.execute(sa.select(over).select_from(Customer).limit(1)).scalar(), 1)
        insert = pg.insert(Customer).values(id=1, name="One", is_good=True)
        insert = insert.on_conflict_do_update(index_elements=["id"], set_={"name": insert.excluded.name})
        equal(connection.execute(insert.returning(Customer.name)).scalar(), "One")
        case = sa.case((sa.literal(1) == 1, "yes"), else_="no")
        equal(connection.scalar(sa.select(case)), "yes")
        parts = sa.extract("year", sa.cast("2024-05-06", sa.Date))
        equal(int(connection.scalar(sa.select(parts))), 2024)
        connection.rollback()


@check
def transactions(_):
    with engine.begin() as connection:
        connection.execute(sa.text("create table tx (k int primary key)"))
    with engine.connect() as connection:
        with connection.begin():
            connection.execute(sa.text("insert into tx values (1)"))
            nested = connection.begin_nested()
            is_refused(sa.exc.IntegrityError, connection.execute, sa.text("insert into tx values (1)"))
            nested.rollback()
        equal(connection.scalar(sa.text("select count(*) from tx")), 1)
    for level in ("SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED", "AUTOCOMMIT"):
        with engine.connect().execution_options(isolation_level=level) as connection:
            equal(connection.scalar(sa.select(1)), 1)


@check
def everything_is_dropped(_):
    Base.metadata.drop_all(engine)
    equal([name for name in sa.inspect(engine).get_table_names() if name in ("customer", "order")], [])


check.run(None)
