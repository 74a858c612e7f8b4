#!/usr/bin/env python3
"""PostgreSQL's regression files, statement by statement, on PostgreSQL 15 and on Lodestone beside each other.

    cargo build --release -p lodestone-cli --bin lodestone
    tools/judge/sql_regress.py --corpus postgresql-15.18/src/test/regress [FILE ...]

The files are not in this repository: `--corpus` is the folder `src/test/regress` of PostgreSQL's source. The expected
answers are those of the server beside us, not those of the files. A statement is equal if its rows, its tag and the code
of its error are. Rows may come in another order where the statement has no ORDER BY. Files run one after another in one
database, as PostgreSQL's schedule has them, after its `test_setup`; that one's tables are loaded from its files here.
Each statement has a time limit. The exit code is 1 after a crash, a hang, an error XX000, below `--at-least`, and
if nothing was compared.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import sys

from sql_servers import Servers, percent, program_option, stop
from sql_split import Command, Statement, Variables, steps
from sql_wire import Gone, Hang

# The first set: what an OLTP database is asked for. The others are only survived.
FIRST = """boolean char name varchar text int2 int4 int8 float4 float8 numeric uuid strings numerology date time timetz
timestamp timestamptz interval enum horology expressions insert insert_conflict create_view create_table_like constraints
foreign_key alter_table domain select select_into select_distinct subselect union case join aggregates transactions arrays
update delete namespace identity generated window limit temp sequence returning with json jsonb""".split()


class Side:
    """One of the servers: its connection and its variables."""

    def __init__(self, connect, variables):
        self.connect, self.variables, self.client = connect, Variables(variables), None

    def run(self, statement, seconds):
        if self.client is None:
            try:
                self.client = self.connect()
            except (Hang, Gone):
                return "hang", []
            except OSError as error:
                return f"gone: {error}", []
        text = self.variables.put_into(statement.text)
        try:
            results = self.client.query(text, statement.copy, seconds)
        except Hang:
            self.client.close()
            self.client = None
            return "hang", []
        except Gone as error:
            self.client = None
            return f"gone: {error}", []
        if statement.command and statement.command[0] == "gset" and results and len(results[-1].rows) == 1:
            prefix = statement.command[1]
            for name, value in zip(results[-1].columns, results[-1].rows[0]):
                self.variables.values[prefix + name] = value or ""
        return None, results


def is_equal(text, one, two, masks=()):
    if [(r.tag, r.code) for r in one] != [(r.tag, r.code) for r in two]:
        return False
    has_order = re.search(r"\border\s+by\b", text, re.I)
    for left, right in zip(one, two):
        if left.rows == right.rows:
            continue
        if has_order and not re.search(r"\bover\s*\(", text, re.I):
            return False
        if sorted(map(repr, left.rows)) != sorted(map(repr, right.rows)):
            return False
    return True


def first_words(text):
    return " ".join(re.findall(r"[a-z_]+", text.lower())[:2])


def shown(results):
    parts = []
    for result in results:
        if result.code:
            parts.append(f"{result.code} {result.message}")
        else:
            parts.append(f"{result.tag} {result.rows[:3]}" if result.rows else f"{result.tag}")
    return "; ".join(parts)[:400]


class Judge:
    def __init__(self, servers, arguments):
        self.servers, self.arguments = servers, arguments
        self.differences, self.reasons, self.bad = [], collections.Counter(), []

    def file(self, name, path):
        counts = collections.Counter()
        variables = {"abs_srcdir": str(self.arguments.corpus), "libdir": "/nowhere", "dlsuffix": ".so",
                     "DBNAME": self.servers.database, "VERBOSITY": "default"}
        sides = [Side(self.servers.postgres, variables), Side(self.servers.lodestone, variables)]
        skipping = []
        for step in steps(path.read_text(errors="surrogateescape")):
            if isinstance(step, Command):
                self.command(step, sides, skipping)
            elif not any(skipping):
                self.statement(name, step, sides, counts)
        for side in sides:
            if side.client:
                side.client.close()
        return counts

    def command(self, step, sides, skipping):
        if step.name == "if":
            value = sides[0].variables.put_into(step.rest).strip().lower()
            skipping.append(value not in ("t", "true", "on", "1", "yes"))
        elif step.name in ("else", "elif") and skipping:
            skipping[-1] = not skipping[-1]
        elif step.name == "endif" and skipping:
            skipping.pop()
        elif any(skipping):
            return
        for side in sides:
            if step.name == "set":
                side.variables.set(step.rest)
            elif step.name == "unset":
                side.variables.values.pop(step.rest.strip(), None)
            elif step.name == "getenv":
                parts = step.rest.split()
                known = {"PG_ABS_SRCDIR": str(self.arguments.corpus), "PG_LIBDIR": "/nowhere", "PG_DLSUFFIX": ".so",
                         "PG_ABS_BUILDDIR": str(self.servers.folder)}
                if len(parts) == 2:
                    side.variables.values[parts[0]] = known.get(parts[1], "")
            elif step.name in ("c", "connect") and side.client:
                side.client.close()
                side.client = None

    def statement(self, name, step, sides, counts):
        limit = self.arguments.seconds
        failed, expected = sides[0].run(step, limit + 10)
        if failed:
            counts["skipped"] += 1
            return
        if any(result.code == "57014" for result in expected):
            # PostgreSQL itself takes longer than the limit: nothing is compared.
            counts["skipped"] += 1
            return
        counts["tried"] += 1
        failed, found = sides[1].run(step, limit)
        if failed:
            kind = "hang" if failed == "hang" else "gone"
            if kind == "gone" and self.servers.revive():
                kind = "crash"
            if kind == "hang":
                self.servers.free()
            counts[kind] += 1
            self.bad.append({"file": name, "line": step.line, "kind": kind, "statement": step.text[:500]})
            return
        if any(result.code == "XX000" for result in found) and not any(result.code == "XX000" for result in expected):
            counts["internal"] += 1
            self.bad.append({"file": name, "line": step.line, "kind": "XX000", "statement": step.text[:500],
                             "message": shown(found)})
        if is_equal(step.text, expected, found):
            counts["equal"] += 1
            return
        if any(result.code == "0A000" for result in found):
            self.copy_instead(step, sides)
            counts["refused"] += 1
        else:
            counts["different"] += 1
        code = next((result.code for result in found if result.code), None)
        message = next((result.message for result in found if result.code), "") or ""
        wanted = next((result.code for result in expected if result.code), None)
        self.reasons[f"{wanted or 'answer'} -> {code or 'answer'} {message[:90]}"] += 1
        self.differences.append({"file": name, "line": step.line, "statement": step.text[:600],
                                 "postgres": shown(expected), "lodestone": shown(found)})

    def copy_instead(self, step, sides):
        """Loads the rows of a file of the server, which is refused, so that later statements find them."""
        text = sides[1].variables.put_into(step.text)
        match = re.match(r"\s*copy\s+(\w+)(\s*\([^)]*\))?\s+from\s+'(/[^']*)'\s*$", text, re.I)
        if match and pathlib.Path(match[3]).exists():
            rows = pathlib.Path(match[3]).read_text(errors="surrogateescape")
            sides[1].client.query(f"copy {match[1]}{match[2] or ''} from stdin", rows, 300)

    def set_up(self):
        """The tables of test_setup, with the rows of its files."""
        path = self.arguments.corpus / "sql/test_setup.sql"
        counts = self.file("test_setup", path)
        postgres, lodestone = self.servers.postgres(), self.servers.lodestone()
        names = postgres.query("select relname from pg_class where relkind = 'r' and relnamespace = 2200 order by 1")
        for (table,) in names[-1].rows:
            rows = postgres.query(f"copy {table} to stdout")[-1].rows
            there = lodestone.query(f"select count(*) from {table}")[-1]
            if rows and there.rows == [("0",)]:
                lodestone.query(f"copy {table} from stdin", "".join(row[0] for row in rows), 300)
            elif rows and there.code:
                columns = postgres.query(
                    "select string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod), ', ' order by "
                    f"attnum) from pg_attribute where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped")
                lodestone.query(f"create table {table} ({columns[-1].rows[0][0]})")
                lodestone.query(f"copy {table} from stdin", "".join(row[0] for row in rows), 300)
        postgres.close()
        lodestone.close()
        return counts


def schedule(corpus):
    names = []
    for line in (corpus / "parallel_schedule").read_text().splitlines():
        if line.startswith("test:"):
            names += line[5:].split()
    return [name for name in names if name != "test_setup"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=pathlib.Path, help="the folder src/test/regress of PostgreSQL 15's source")
    parser.add_argument("--set", choices=["first", "all"], default="first", help="the files that are run")
    parser.add_argument("--seconds", type=int, default=10, help="time limit of a statement")
    parser.add_argument("--at-least", type=float, default=75,
                        help="the share of equal statements that is needed, in %% (75)")
    parser.add_argument("--json", type=pathlib.Path, help="writes counts and differences to this file")
    parser.add_argument("--show", type=int, default=20, help="how many differences are printed")
    program_option(parser)
    parser.add_argument("files", nargs="*", help="names of files without .sql")
    arguments = parser.parse_args()
    corpus = arguments.corpus
    if corpus is None or not (corpus / "sql/test_setup.sql").exists():
        stop("`--corpus` must be the folder src/test/regress of the source of PostgreSQL 15: `apt-get source "
             "postgresql-15` of Debian unpacks it, or a clone of PostgreSQL's repository at the branch REL_15_STABLE")
    arguments.corpus = corpus = corpus.resolve()
    order = schedule(corpus)
    chosen = arguments.files or ([name for name in order if name in FIRST] if arguments.set == "first" else order)
    total, table = collections.Counter(), {}
    with Servers(arguments.program, seconds=arguments.seconds) as servers:
        judge = Judge(servers, arguments)
        judge.set_up()
        judge.differences.clear()
        judge.reasons.clear()
        for name in chosen:
            table[name] = counts = judge.file(name, corpus / f"sql/{name}.sql")
            total.update(counts)
            print(line(name, counts), flush=True)
            write(arguments, table, total, judge)
    print(line("all", total))
    for reason, count in judge.reasons.most_common(arguments.show):
        print(f"{count:6} {reason}")
    for found in judge.bad:
        print(f"{found['kind']}: {found['file']}:{found['line']}: {found['statement'][:200]}")
    if not total["tried"]:
        print("nothing was compared: no statement was tried")
        return 1
    is_alive = not any(total[kind] for kind in ("crash", "hang", "gone", "internal"))
    reached = total["equal"] * 100 >= arguments.at_least * max(total["tried"], 1)
    return 0 if is_alive and reached else 1


def write(arguments, table, total, judge):
    """Counts and differences so far, for programs."""
    if arguments.json:
        arguments.json.write_text(json.dumps({"files": table, "all": total, "bad": judge.bad,
                                              "reasons": judge.reasons.most_common(),
                                              "differences": judge.differences}, indent=1))


def line(name, counts):
    text = f"{name:20} {counts['tried']:6} tried {counts['equal']:6} equal {percent(counts['equal'], counts['tried']):>9}"
    for kind in ("refused", "different", "skipped", "hang", "gone", "crash", "internal"):
        if counts[kind]:
            text += f" {counts[kind]:5} {kind}"
    return text


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
