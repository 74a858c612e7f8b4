#!/usr/bin/env python3
"""SQLite's sqllogictest corpus on PostgreSQL 15 and on Lodestone beside each other.

    cargo build --release -p lodestone-cli --bin lodestone
    tools/judge/sql_logic.py --corpus sqllogictest/test [--records 100000] [FILE ...]

The corpus is not in this repository: `--corpus` is the folder `test` of it. A record is a statement that must succeed or
fail, or a query with its result. PostgreSQL passes a record if it does what the file says. The rate is that of the
records which PostgreSQL passes and Lodestone passes as well. Beside it stands the number of records in which the two
servers do not agree, whatever the file says. The exit code is 1 below `--at-least`, after a record without an answer,
and if nothing was compared. Files are taken in an order that the seed gives, from each folder in turn,
until there are enough records. Each file has a schema of its own on both servers.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import sys

from sql_servers import Servers, percent, program_option, stop
from sql_wire import Gone, Hang


class Record:
    def __init__(self, kind, line):
        self.kind, self.line, self.text, self.expected = kind, line, "", []
        self.is_error, self.types, self.sort, self.label = False, "", "nosort", None


def records(path):
    """The records of a file that are for PostgreSQL, and `hash-threshold`."""
    threshold, skipped = 8, False
    lines = path.read_text(errors="replace").split("\n")
    place = 0
    while place < len(lines):
        line = lines[place].split("#")[0].rstrip() if lines[place].startswith("#") else lines[place].rstrip()
        words = line.split()
        place += 1
        if not words:
            continue
        if words[0] == "hash-threshold":
            threshold = int(words[1])
        elif words[0] == "halt":
            if not skipped:
                return
            skipped = False
        elif words[0] == "skipif":
            skipped |= words[1] == "postgresql"
        elif words[0] == "onlyif":
            skipped |= words[1] != "postgresql"
        elif words[0] in ("statement", "query"):
            record = Record(words[0], place)
            if words[0] == "statement":
                record.is_error = words[1] == "error"
            else:
                record.types = words[1]
                record.sort = words[2] if len(words) > 2 else "nosort"
                record.label = words[3] if len(words) > 3 else None
            text = []
            while place < len(lines) and lines[place].strip() and lines[place] != "----":
                text.append(lines[place])
                place += 1
            record.text = "\n".join(text)
            if place < len(lines) and lines[place] == "----":
                place += 1
                while place < len(lines) and lines[place].strip():
                    record.expected.append(lines[place])
                    place += 1
            record.threshold = threshold
            if not skipped:
                yield record
            skipped = False


def cell(value, kind):
    if value is None:
        return "NULL"
    if kind == "I":
        try:
            return str(int(float(value)))
        except (ValueError, OverflowError):
            return {"t": "1", "f": "0"}.get(value, "0")
    if kind == "R":
        try:
            return f"{float(value):.3f}"
        except ValueError:
            return value
    if value == "":
        return "(empty)"
    return "".join(letter if " " <= letter <= "~" else "@" for letter in value)


def values(record, rows):
    shown = [[cell(value, record.types[number % len(record.types)]) for number, value in enumerate(row)] for row in rows]
    if record.sort == "rowsort":
        shown.sort()
    flat = [value for row in shown for value in row]
    if record.sort == "valuesort":
        flat.sort()
    return flat


def answer(client, record, seconds):
    """What a server says: ("error", code) or ("ok", values)."""
    results = client.query(record.text, seconds=seconds)
    failed = next((result.code for result in results if result.code), None)
    if failed:
        return "error", failed
    if record.kind == "statement":
        return "ok", None
    return "ok", values(record, results[-1].rows if results else [])


def passes(record, found):
    kind, shown = found
    if record.kind == "statement":
        return (kind == "error") == record.is_error
    if kind == "error":
        return False
    expected = record.expected
    if len(expected) == 1 and (match := re.match(r"(\d+) values hashing to ([0-9a-f]+)$", expected[0])):
        digest = hashlib.md5("".join(value + "\n" for value in shown).encode()).hexdigest()
        return len(shown) == int(match[1]) and digest == match[2]
    return shown == expected


def order(corpus, seed):
    """Files in turn from each folder, small folders first at the beginning."""
    groups = collections.defaultdict(list)
    for path in sorted(corpus.rglob("*.test")):
        groups[str(path.parent.relative_to(corpus)).split("/")[0:2].__repr__()].append(path)
    choice = random.Random(seed)
    for paths in groups.values():
        choice.shuffle(paths)
    lists = [groups[key] for key in sorted(groups)]
    while any(lists):
        for paths in lists:
            if paths:
                yield paths.pop()


class Judge:
    def __init__(self, servers, arguments):
        self.servers, self.arguments = servers, arguments
        self.total, self.files, self.differences, self.bad = collections.Counter(), {}, [], []

    def file(self, path, limit):
        counts, name = collections.Counter(), str(path.relative_to(self.arguments.corpus))
        clients = [self.servers.postgres(), self.servers.lodestone()]
        for client in clients:
            client.query("create schema judged")
            client.query("set search_path = judged")
        for record in records(path):
            if counts["tried"] >= limit:
                break
            one = self.ask(clients, 0, record)
            if one is None:
                counts["skipped"] += 1
                continue
            counts["tried"] += 1
            counts["postgres"] += passes(record, one)
            two = self.ask(clients, 1, record)
            if two is None:
                counts["hang"] += 1
                self.bad.append({"file": name, "line": record.line, "statement": record.text[:400]})
                continue
            both = passes(record, one) and passes(record, two)
            counts["both"] += both
            if one != two:
                counts["differ"] += 1
            if one != two or passes(record, one) and not both:
                self.differences.append({"file": name, "line": record.line, "statement": record.text[:400],
                                         "postgres": str(one)[:300], "lodestone": str(two)[:300]})
        for client in clients:
            client.query("drop schema judged cascade", seconds=120)
            client.close()
        return name, counts

    def ask(self, clients, side, record):
        try:
            return answer(clients[side], record, self.arguments.seconds)
        except (Hang, Gone):
            clients[side].close()
            if side == 1:
                self.servers.revive()
            clients[side] = self.servers.lodestone() if side == 1 else self.servers.postgres()
            clients[side].query("set search_path = judged")
            return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=pathlib.Path, help="the folder `test` of the sqllogictest corpus")
    parser.add_argument("--records", type=int, default=100_000, help="how many records are tried")
    parser.add_argument("--of-each", type=int, default=10_000, help="most records of a file")
    parser.add_argument("--seed", type=int, default=1, help="the order of the files")
    parser.add_argument("--seconds", type=int, default=20, help="time limit of a record")
    parser.add_argument("--at-least", type=float, default=99.9, help="the share that is needed, in %% (99.9)")
    parser.add_argument("--json", type=pathlib.Path, help="writes counts and differences to this file")
    parser.add_argument("--show", type=int, default=10, help="how many differences are printed")
    program_option(parser)
    parser.add_argument("files", nargs="*", help="files of the corpus")
    arguments = parser.parse_args()
    if arguments.corpus is None or not any(arguments.corpus.rglob("*.test")):
        stop("`--corpus` must be the folder `test` of SQLite's sqllogictest corpus, which its authors publish at "
             "sqlite.org/sqllogictest and others keep copies of as Git repositories")
    paths = [arguments.corpus / name for name in arguments.files] or order(arguments.corpus, arguments.seed)
    with Servers(arguments.program, seconds=arguments.seconds) as servers:
        judge = Judge(servers, arguments)
        for path in paths:
            left = arguments.records - judge.total["tried"]
            if left <= 0:
                break
            name, counts = judge.file(path, min(left, arguments.of_each))
            judge.files[name] = counts
            judge.total.update(counts)
            print(line(name, counts), flush=True)
    print(line("all", judge.total))
    for found in judge.differences[:arguments.show]:
        print(f"{found['file']}:{found['line']}: {found['statement']}\n  PostgreSQL: {found['postgres']}\n"
              f"  Lodestone:  {found['lodestone']}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"files": judge.files, "all": judge.total, "bad": judge.bad,
                                              "differences": judge.differences}, indent=1))
    total = judge.total
    if not total["postgres"]:
        print("nothing was compared: PostgreSQL passed no record")
        return 1
    reached = total["both"] * 100 >= arguments.at_least * max(total["postgres"], 1)
    return 0 if reached and not total["hang"] else 1


def line(name, counts):
    return (f"{name:50} {counts['tried']:7} tried, PostgreSQL passes {counts['postgres']:7}, of these Lodestone "
            f"{counts['both']:7} {percent(counts['both'], counts['postgres'])}, {counts['differ']} differ"
            + (f", {counts['hang']} without an answer" if counts["hang"] else "")
            + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
