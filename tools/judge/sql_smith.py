#!/usr/bin/env python3
"""SQLsmith's random statements on Lodestone, and those that end badly on PostgreSQL 15 as well.

    cargo build --release -p lodestone-cli --bin lodestone
    tools/judge/sql_smith.py [--seed 101] [--seeds 9] [--statements 500]

SQLsmith 1.4 (the package `sqlsmith`) reads the catalog of Lodestone, which has a few tables, and makes statements from
the seed; each runs in a transaction that is rolled back. Counted by kind: crashes of the server, closed connections,
XX000, statements that end by their time limit, forms that are refused (0A000) and other errors. One that ends by its
time limit runs on PostgreSQL too: it is ours if PostgreSQL needs less time. The exit code is 1 after a crash, a closed
connection, a statement without an answer, or XX000.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from sql_servers import Servers, program_option, stop
from sql_wire import Gone, Hang

DATABASE = "shop"

TABLES = """
create table people (id int primary key, name text not null, born date, height numeric(5,2), is_member boolean);
create table orders (id bigint primary key, person int references people (id), at timestamptz, cents bigint not null);
create table items (order_id bigint references orders (id), line smallint, what varchar(40), price numeric(10,2),
    primary key (order_id, line));
create table notes (written timestamp, body text, tags text[], more jsonb);
create index orders_person on orders (person);
create view spent as select p.id, p.name, sum(o.cents) as cents from people p left join orders o on o.person = p.id
    group by p.id, p.name;
insert into people select n, 'name ' || n, date '1970-01-01' + n * 97, 150 + n % 50, n % 3 = 0
    from generate_series(1, 60) as n;
insert into orders select n, n % 60 + 1, timestamptz '2020-01-01 00:00:00+00' + n * interval '7 hours', n * 31 % 1000
    from generate_series(1, 200) as n;
insert into items select n % 200 + 1, n / 200, 'thing ' || n % 17, n % 90 from generate_series(0, 399) as n;
insert into notes select timestamp '2021-01-01' + n * interval '1 day', 'note ' || n, array['a', 'b' || n],
    jsonb_build_object('n', n) from generate_series(1, 30) as n;
"""


def generated(servers, seed, count):
    """The statements of a seed."""
    target = f"host={servers.folder}/socket port=7002 dbname={servers.database} user={servers.user}"
    command = ["sqlsmith", f"--target={target}", f"--seed={seed}", f"--max-queries={count}", "--dry-run"]
    run = subprocess.run(command, text=True, capture_output=True)
    found = [text.strip() for text in re.split(r";\n", run.stdout) if text.strip()]
    if not found:
        stop(f"sqlsmith made no statements for the seed {seed}: {run.stderr[-1000:]}")
    return found[:count]


def kind_of(message):
    """A message without the names and numbers in it."""
    return re.sub(r"\d+", "N", re.sub(r'"[^"]*"|\'[^\']*\'', '".."', message or ""))[:100]


class Judge:
    def __init__(self, servers, seconds):
        self.servers, self.seconds = servers, seconds
        self.client = self.other = None
        self.kinds, self.counts, self.bad, self.slow = collections.Counter(), collections.Counter(), [], []

    def connect(self, new):
        client = new()
        client.query(f"set statement_timeout = {int(self.seconds * 1000)}")
        return client

    def end_of(self, client, text):
        """The code and the message with which a statement ends; and the seconds that it takes."""
        client.query("begin")
        began = time.monotonic()
        results = client.query(text, seconds=self.seconds * 3 + 20)
        taken = time.monotonic() - began
        client.query("rollback")
        failed = next((result for result in results if result.code), None)
        return (failed.code, failed.message, taken) if failed else (None, None, taken)

    def run(self, seed, number, text):
        self.client = self.client or self.connect(self.servers.lodestone)
        self.counts["statements"] += 1
        try:
            code, message, taken = self.end_of(self.client, text)
        except (Gone, Hang) as error:
            self.client = None
            what = "without an answer" if isinstance(error, Hang) else "closed"
            if self.servers.revive():
                what = "crash"
            elif isinstance(error, Hang):
                self.servers.free()
            self.note(what, str(error), seed, number, text)
            return
        if code is None:
            self.counts["done"] += 1
        elif code == "XX000":
            self.note("XX000", message, seed, number, text)
        elif code == "57014":
            self.time_out(seed, number, text)
        else:
            what = "refused" if code == "0A000" else "error"
            self.counts[what] += 1
            self.kinds[what, code, kind_of(message)] += 1

    def note(self, what, message, seed, number, text):
        self.counts[what] += 1
        self.kinds[what, "", kind_of(message)] += 1
        self.bad.append({"what": what, "message": message, "seed": seed, "number": number, "statement": text})

    def time_out(self, seed, number, text):
        self.other = self.other or self.connect(self.servers.postgres)
        try:
            code, _, taken = self.end_of(self.other, text)
        except (Gone, Hang):
            self.other, code, taken = None, "57014", self.seconds
        what = "time-out of both" if code == "57014" else "time-out"
        self.counts[what] += 1
        self.kinds[what, "57014", ""] += 1
        self.slow.append({"what": what, "seed": seed, "number": number, "statement": text,
                          "postgres": {"code": code, "seconds": round(taken, 3)}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=101, help="the first seed (101)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (1)")
    parser.add_argument("--statements", type=int, default=500, help="statements of each seed (500)")
    parser.add_argument("--seconds", type=float, default=5, help="time limit of a statement (5)")
    parser.add_argument("--json", type=pathlib.Path, help="writes counts and the statements that ended badly")
    parser.add_argument("--show", type=int, default=30, help="how many kinds of errors are printed")
    program_option(parser)
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.statements < 1:
        stop("nothing would run: name at least one seed and one statement")
    if not shutil.which("sqlsmith"):
        stop("sqlsmith is missing; install the package `sqlsmith` of the distribution")
    with Servers(arguments.program, database=DATABASE, seconds=int(arguments.seconds) + 20) as servers:
        for client in (servers.postgres(), servers.lodestone()):
            for result in client.query(TABLES, seconds=120):
                if result.code:
                    stop(f"the tables cannot be made: {result.message}")
            client.close()
        judge = Judge(servers, arguments.seconds)
        for seed in range(arguments.seed, arguments.seed + arguments.seeds):
            for number, text in enumerate(generated(servers, seed, arguments.statements)):
                judge.run(seed, number, text)
            print(f"seed {seed}: " + ", ".join(f"{name} {count}" for name, count in judge.counts.items()), flush=True)
    for (what, code, message), count in judge.kinds.most_common(arguments.show):
        print(f"{count:6} {what} {code} {message}")
    for found in judge.bad + judge.slow:
        print(f"{found['what']}: seed {found['seed']}, statement {found['number']}"
              + (f", PostgreSQL {found['postgres']}" if "postgres" in found else f": {found['message']}"))
    if arguments.json:
        arguments.json.write_text(json.dumps({"counts": judge.counts, "bad": judge.bad, "slow": judge.slow,
                                              "kinds": [[*kind, count] for kind, count in judge.kinds.most_common()]},
                                             indent=1))
    return 1 if judge.bad else 0


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
