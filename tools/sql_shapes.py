#!/usr/bin/env python3
"""Writes crates/sql/src/pgcatalog/shapes.txt: the tables and views of a PostgreSQL 15, and their columns.

    tools/sql_shapes.py --host DIR --port 5432 --database any_database

A line is a schema, a number, a name, and the columns, each with its type.
"""

import argparse
import pathlib
import subprocess

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/sql/src/pgcatalog/shapes.txt"
QUERY = """
select n.nspname, c.oid, c.relname, string_agg(a.attname || ':' || t.typname, ' ' order by a.attnum)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 join pg_type t on t.oid = a.atttypid
where n.nspname in ('pg_catalog', 'information_schema') and c.relkind in ('r', 'v')
group by n.nspname, c.oid, c.relname order by n.nspname desc, c.relname
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", default="5432")
    parser.add_argument("--database", required=True)
    arguments = parser.parse_args()
    where = ["-h", arguments.host, "-p", arguments.port, arguments.database]
    command = ["psql", "-X", "-A", "-t", "-F", " ", "-c", QUERY, *where]
    OUT.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
