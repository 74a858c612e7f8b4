#!/usr/bin/env python3
"""Writes crates/sql/src/pgcatalog/operators.txt: the operators of a PostgreSQL 15 that Lodestone has as well.

    tools/sql_operators.py --postgres DIR:PORT --lodestone DIR:PORT [--database any_database]

Each operator of PostgreSQL is tried on Lodestone, with nulls of its types. It is there if its result has the same type.
A line is a number, a name, a kind, the numbers of the left, the right and the result's type, of the commutator and the
negator, and whether it can be used for merges and for hashes.
"""

import argparse
import pathlib
import subprocess

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/sql/src/pgcatalog/operators.txt"
QUERY = """
select o.oid, oprname, oprkind, oprleft, oprright, oprresult, oprcom, oprnegate, oprcanmerge, oprcanhash,
  case when oprleft = 0 then '' else format_type(oprleft, null) end, format_type(oprright, null),
  format_type(oprresult, null)
from pg_operator o join pg_namespace n on n.oid = oprnamespace where nspname = 'pg_catalog' order by o.oid
"""
POLYMORPHIC = {"anyarray": "integer[]", "anyelement": "integer", "anycompatible": "integer",
               "anycompatiblearray": "integer[]", "anyenum": None, "anyrange": None, "record": "record"}


def ask(place, database, text):
    host, port = place.rsplit(":", 1)
    command = ["psql", "-X", "-A", "-t", "-F", " | ", "-h", host, "-p", port, database]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def value(name):
    name = POLYMORPHIC.get(name, name)
    return "row(null, 1)" if name == "record" else f"null::{name}" if name else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", required=True)
    parser.add_argument("--lodestone", required=True)
    parser.add_argument("--database", default="postgres")
    parser.add_argument("--own-database", default="shop")
    arguments = parser.parse_args()
    lines = ask(arguments.postgres, arguments.database, QUERY + ";").splitlines()
    rows = [line.split(" | ") for line in lines if line]
    script, tried = [], []
    for row in rows:
        left, right = value(row[10]) if row[10] else "", value(row[11])
        if left is None or right is None:
            continue
        tried.append(row)
        script.append(f"\\echo =={row[0]}\nselect pg_typeof({left} {row[1]} {right});")
    found = {}
    for part in ask(arguments.lodestone, arguments.own_database, "\n".join(script)).split("==")[1:]:
        number, _, answer = part.partition("\n")
        found[number] = answer.strip()
    kept = []
    for row in tried:
        wanted = POLYMORPHIC.get(row[12], row[12])
        if found.get(row[0]) == wanted:
            kept.append(row)
    numbers = {row[0] for row in kept}
    for row in kept:
        # One that is not there is named by no other one.
        row[6:8] = [number if number in numbers else "0" for number in row[6:8]]
    OUT.write_text("".join(" ".join(row[:10]) + "\n" for row in kept))
    print(f"{len(kept)} of {len(rows)} operators")


if __name__ == "__main__":
    main()
