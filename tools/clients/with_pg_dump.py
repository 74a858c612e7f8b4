"""pg_dump on Lodestone: what it writes is restored by psql into PostgreSQL 15 and into another Lodestone.

The objects of dump.sql are made on Lodestone and on PostgreSQL. PostgreSQL's own dump of them is the measure: that of a
PostgreSQL which was restored from Lodestone's dump must be the same, with all rows. A Lodestone that was restored from
either dump must give the dump that it was restored from, or the first one.
"""

import difflib
import os
import pathlib
import re
import subprocess
import tempfile

from checks import Checks
from run import Server
from with_psql import Postgres

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA = (HERE / "dump.sql").read_text()
check = Checks()


def run(environment, command, text=None):
    done = subprocess.run(command, input=text, text=True, env=environment, capture_output=True, timeout=120)
    # pg_dump warns of tables that name each other, and psql says nothing when all is well.
    is_well = done.returncode == 0 and (command[0] == "pg_dump" or not done.stderr)
    assert is_well, f"{command}: {done.stderr.strip()[:800]}"
    return done.stdout


def restore(environment, text, database="shop"):
    run(environment, ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, database], text)


def dump(environment, *options, database="shop"):
    """The lines of a dump without those that differ each time. Rows of a table have no order, so they are sorted."""
    text = run(environment, ["pg_dump", *options, database])
    lines, rows = [], None
    for line in text.splitlines():
        if re.match(r"(\\(un)?restrict |-- Dumped )", line):
            continue
        if rows is None:
            lines.append(line)
            rows = [] if line.startswith("COPY ") else None
        elif line == "\\.":
            lines += [*sorted(rows), line]
            rows = None
        else:
            rows.append(line)
    return lines


def same(found, wanted):
    changes = list(difflib.unified_diff(wanted, found, "wanted", "found", n=0, lineterm=""))
    assert found == wanted, "\n    ".join(changes[:30])


class Place:
    """The first Lodestone and PostgreSQL, with the objects. `fresh()` is another Lodestone."""

    def __init__(self):
        self.ours, self.folders, self.servers = dict(os.environ), [], []
        self.postgres = Postgres()
        self.theirs = self.postgres.environment
        for environment in (self.ours, self.theirs):
            restore(environment, SCHEMA)

    def fresh(self):
        folder = tempfile.TemporaryDirectory(prefix="clients-dump-")
        server = Server(os.environ["LODESTONE_PROGRAM"], folder.name)
        self.folders.append(folder)
        self.servers.append(server)
        return {**os.environ, **server.environment()}

    def database(self, name):
        run(self.theirs, ["createdb", name])
        return name

    def stop(self):
        for server in self.servers:
            server.stop()
        for folder in self.folders:
            folder.cleanup()
        self.postgres.stop()


def written(environment, *options, database="shop"):
    return run(environment, ["pg_dump", *options, database])


@check
def a_dump_restores_into_postgresql(place):
    name = place.database("whole")
    restore(place.theirs, written(place.ours), name)
    same(dump(place.theirs, database=name), dump(place.theirs))


@check
def a_dump_restores_into_another_lodestone(place):
    other = place.fresh()
    restore(other, written(place.ours))
    same(dump(other), dump(place.ours))


@check
def a_dump_of_postgresql_restores_into_lodestone(place):
    other, name = place.fresh(), place.database("theirs")
    restore(other, written(place.theirs))
    restore(place.theirs, written(other), name)
    same(dump(place.theirs, database=name), dump(place.theirs))


@check
def definitions_and_rows_can_be_dumped_alone(place):
    other, name = place.fresh(), place.database("parts")
    for option in ("--section=pre-data", "--data-only", "--section=post-data"):
        restore(other, written(place.ours, option))
    same(dump(other), dump(place.ours))
    restore(place.theirs, written(place.ours, "-s"), name)
    same(dump(place.theirs, "-s", database=name), dump(place.theirs, "-s"))


@check
def one_table_and_one_schema_can_be_dumped(place):
    other, name = place.fresh(), place.database("one")
    for environment, database in ((other, "shop"), (place.theirs, name)):
        # Types are no parts of a table, so a user makes them first.
        restore(environment, "create type mood as enum ('ok')", database)
        restore(environment, written(place.ours, "-t", "author", "-T", "nothing"), database)
    same(dump(other, "-t", "author", "--data-only"), dump(place.ours, "-t", "author", "--data-only"))
    found = dump(place.ours, "-n", "side", "-s")
    assert any("CREATE TABLE side.other" in line for line in found)
    assert not any("CREATE TABLE public." in line for line in found)


@check
def rows_can_be_dumped_as_statements(place):
    other = place.fresh()
    restore(other, written(place.ours, "--column-inserts", "--rows-per-insert=2"))
    same(dump(other), dump(place.ours))


@check
def an_archive_restores_by_pg_restore(place):
    other = place.fresh()
    with tempfile.TemporaryDirectory() as folder:
        archive = str(pathlib.Path(folder) / "shop.dump")
        run(place.ours, ["pg_dump", "-Fc", "-f", archive, "shop"])
        run(other, ["pg_restore", "--exit-on-error", "-d", "shop", archive])
    same(dump(other), dump(place.ours))


@check
def a_dump_can_remove_what_is_there(place):
    other = place.fresh()
    # PostgreSQL too cannot drop the key of a partition, which such a dump asks for.
    others = ("-T", "parted*", "-T", "listed*")
    text = written(place.ours, "--clean", "--if-exists", *others)
    restore(other, text)
    restore(other, text)
    same(dump(other), dump(place.ours, *others))


if __name__ == "__main__":
    PLACE = Place()
    try:
        check.run(PLACE)
    finally:
        PLACE.stop()
