#!/usr/bin/env python3
"""PostgreSQL's isolation specs by its own isolationtester, and the anomalies of Hermitage, on both servers.

    cargo build --release -p lodestone-cli --bin lodestone
    tools/judge/sql_isolation.py specs --corpus postgresql-15.18/src/test/isolation [SPEC ...]
    tools/judge/sql_isolation.py hermitage --corpus hermitage

The specs are not in this repository: `--corpus` is the folder `src/test/isolation` of PostgreSQL's source, or a clone of
Hermitage (github.com/ept/hermitage). A permutation of a spec is equal if isolationtester prints the same for it on both
servers, byte by byte but for numbers of processes. A step of Hermitage is equal if it has the same rows, code or wait.
The exit code is 1 below `--at-least`, after a crash, and if nothing was compared.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from sql_servers import Servers, percent, program_option, stop
from sql_wire import Gone, Hang

# Specs of locks and conflicts of rows, which need neither partitions, triggers nor plpgsql.
LOCKS = """deadlock-simple deadlock-hard deadlock-soft deadlock-soft-2 fk-contention fk-deadlock fk-deadlock2 fk-snapshot
eval-plan-qual lock-update-delete lock-update-traversal insert-conflict-do-nothing insert-conflict-do-nothing-2
insert-conflict-do-update insert-conflict-do-update-2 insert-conflict-do-update-3 insert-conflict-do-update-4
delete-abort-savept delete-abort-savept-2 aborted-keyrevoke multixact-no-deadlock multixact-no-forget
lock-committed-update lock-committed-keyupdate update-locked-tuple propagate-lock-delete tuplelock-conflict
tuplelock-update tuplelock-upgrade-no-deadlock nowait nowait-2 nowait-3 nowait-4 nowait-5 skip-locked skip-locked-2
skip-locked-3 skip-locked-4 alter-table-1 alter-table-2 alter-table-3 sequence-ddl timeouts truncate-conflict
vacuum-conflict create-trigger""".split()
SERIALIZABLE = """read-only-anomaly read-only-anomaly-2 read-only-anomaly-3 read-write-unique read-write-unique-2
read-write-unique-3 read-write-unique-4 simple-write-skew receipt-report temporal-range-integrity project-manager
classroom-scheduling total-cash referential-integrity ri-trigger partial-index two-ids multiple-row-versions
index-only-scan predicate-lock-hot-tuple update-conflict-out predicate-hash predicate-gist predicate-gin""".split()


def permutations(text):
    """What isolationtester printed, by permutation."""
    parts = re.split(r"^starting permutation: (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def masked(text):
    text = re.sub(r"(process|Process|transaction) \d+", r"\1 N", text)
    # Lodestone has details of its own; the tester prints errors as they are.
    return "\n".join(line for line in text.splitlines() if not re.match(r"(DETAIL|HINT|CONTEXT):", line)).strip()


class Specs:
    def __init__(self, servers, arguments):
        self.servers, self.arguments = servers, arguments
        found = pathlib.Path(os.environ.get("LODESTONE_ISOLATIONTESTER",
                                            "/usr/lib/postgresql/15/lib/pgxs/src/test/isolation/isolationtester"))
        if not found.exists():
            stop(f"{found} is missing; it comes with PostgreSQL's development files, or name it in "
                 "LODESTONE_ISOLATIONTESTER")
        self.tester, self.differences = found, []

    def run(self, port, spec, seconds):
        connection = f"host={self.servers.folder}/socket port={port} dbname={self.servers.database} user={self.servers.user}"
        environment = dict(os.environ, PGISOLATIONTIMEOUT="20")
        with spec.open() as source:
            try:
                run = subprocess.run([self.tester, connection], stdin=source, capture_output=True, timeout=seconds,
                                     env=environment, check=False)
            except subprocess.TimeoutExpired as error:
                return (error.stdout or b"").decode(errors="replace"), "no end in time"
        return run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace")

    def spec(self, name):
        path = self.arguments.corpus / f"specs/{name}.spec"
        counts = collections.Counter()
        expected, _ = self.run(7001, path, self.arguments.seconds)
        found, errors = self.run(7002, path, self.arguments.seconds)
        if self.servers.revive():
            counts["crash"] += 1
        wanted, had = permutations(expected), permutations(found)
        for permutation, text in wanted.items():
            counts["permutations"] += 1
            if masked(text) == masked(had.get(permutation, "")):
                counts["equal"] += 1
            else:
                self.differences.append({"spec": name, "permutation": permutation, "postgres": masked(text)[:1500],
                                         "lodestone": masked(had.get(permutation, errors))[:1500]})
        return counts


def hermitage(corpus):
    """The tests of postgres.md: name, level, and steps (session, statement)."""
    text = (corpus / "postgres.md").read_text()
    found = []
    level = ""
    for heading, block in re.findall(r"^(#+ .*|.*?:?)\n+```sql\n(.*?)```", text, flags=re.M | re.S):
        steps = []
        for line in block.splitlines():
            match = re.match(r"\s*(.*?;)\s*--\s*(T\d|either)\b(.*)", line)
            if match:
                for statement in re.split(r"(?<=;)\s+", match[1]):
                    steps.append(("T1" if match[2] == "either" else match[2], statement.rstrip("; ")))
            elif line.strip() and not line.strip().startswith("--"):
                steps.append(("T0", line.strip().rstrip(";")))
        match = re.search(r"isolation level ([a-z ]+)", block)
        level = match[1].strip() if match else level
        last = [line for line in heading.splitlines() if line.strip("-# ")][-1]
        found.append((last.strip("# ").replace("Postgres ", "").strip()[:70], level, steps))
    return [test for test in found if any(session != "T0" for session, _ in test[2])]


class Sessions:
    """Connections of one server, some of which may wait."""

    def __init__(self, connect, watcher):
        self.connect, self.watcher, self.clients, self.waiting, self.pids = connect, watcher, {}, {}, {}

    def client(self, session):
        if session not in self.clients:
            self.clients[session] = self.connect()
            self.pids[session] = self.clients[session].query("select pg_backend_pid()")[0].rows[0][0]
        return self.clients[session]

    def step(self, session, statement):
        client = self.client(session)
        if session in self.waiting:
            return ["it still waits"]
        client.send(statement)
        self.waiting[session] = statement
        return self.settle(session)

    def settle(self, latest):
        """Answers that have come; a session is asked for until it answers or waits for another one."""
        shown = []
        for session in list(self.waiting):
            answer = self.answer(session, 30 if session == latest else 2)
            if answer is not None:
                shown.append(f"{session}: {answer}")
                del self.waiting[session]
        if latest in self.waiting:
            shown.append(f"{latest}: waits")
        return shown

    def answer(self, session, seconds):
        client, end = self.clients[session], time.monotonic() + seconds
        while time.monotonic() < end:
            client.socket.settimeout(0.05)
            try:
                client.fill(5)
                client.socket.settimeout(30)
                return [(result.tag, result.code, sorted(map(str, result.rows))) for result in client.answers()]
            except Hang:
                others = ",".join(pid for other, pid in self.pids.items() if other != session) or "0"
                query = f"select pg_isolation_test_session_is_blocked({self.pids[session]}, '{{{others}}}')"
                if self.watcher.query(query)[0].rows == [("t",)]:
                    return None
        return None

    def close(self):
        for client in self.clients.values():
            client.close()


def run_hermitage(servers, arguments):
    counts, table, differences = collections.Counter(), [], []
    watchers = [servers.postgres(), servers.lodestone()]
    for name, level, steps in hermitage(arguments.corpus):
        sides = [Sessions(servers.postgres, watchers[0]), Sessions(servers.lodestone, watchers[1])]
        for watcher in watchers:
            watcher.query("drop table if exists test")
            watcher.query("create table test (id int primary key, value int)")
            watcher.query("insert into test (id, value) values (1, 10), (2, 20)")
        equal, total = 0, 0
        for session, statement in steps:
            if session == "T0" and re.match(r"(create|insert|drop|delete)", statement, re.I):
                continue
            one, two = (side.step(session, statement) for side in sides)
            total += 1
            equal += one == two
            if one != two:
                differences.append({"test": name, "level": level, "session": session, "statement": statement,
                                    "postgres": one, "lodestone": two})
        for side in sides:
            side.close()
        counts["tests"] += 1
        # A test of which no step was compared shows nothing.
        counts["equal"] += equal == total > 0
        table.append((name, level, total, equal))
        print(f"{level:18} {equal:3} of {total:3} steps equal: {name}", flush=True)
    print(f"hermitage: {counts['equal']} of {counts['tests']} tests equal")
    return counts, table, differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["specs", "hermitage"])
    parser.add_argument("--corpus", type=pathlib.Path, help="src/test/isolation of PostgreSQL's source, or Hermitage")
    parser.add_argument("--set", choices=["locks", "serializable", "all"], default="locks", help="the specs")
    parser.add_argument("--seconds", type=int, default=120, help="time limit of a spec")
    parser.add_argument("--at-least", type=float, default=100, help="the share that is needed, in %% (100)")
    parser.add_argument("--json", type=pathlib.Path, help="writes counts and differences to this file")
    program_option(parser)
    parser.add_argument("files", nargs="*", help="names of specs")
    arguments = parser.parse_args()
    needed = "postgres.md" if arguments.what == "hermitage" else "isolation_schedule"
    if arguments.corpus is None or not (arguments.corpus / needed).exists():
        stop(f"`--corpus` must be a folder with {needed}: src/test/isolation of the source of PostgreSQL 15 (`apt-get "
             "source postgresql-15` of Debian), or a clone of Hermitage")
    with Servers(arguments.program, database="isolation") as servers:
        if arguments.what == "hermitage":
            total, table, differences = run_hermitage(servers, arguments)
            part, whole = total["equal"], total["tests"]
        else:
            judge, total, table = Specs(servers, arguments), collections.Counter(), {}
            for name in arguments.files or chosen(arguments):
                counts = judge.spec(name)
                table[name] = counts
                total.update(counts)
                print(f"{name:32} {counts['equal']:4} of {counts['permutations']:4} permutations equal"
                      + (" CRASH" if counts["crash"] else ""), flush=True)
            part, whole, differences = total["equal"], total["permutations"], judge.differences
            print(f"all: {part} of {whole} permutations equal, {percent(part, whole)}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"all": total, "each": table, "differences": differences}, indent=1))
    if not whole:
        print("nothing was compared")
        return 1
    return 0 if part * 100 >= arguments.at_least * whole and not total["crash"] else 1


def chosen(arguments):
    if arguments.set == "locks":
        return LOCKS
    if arguments.set == "serializable":
        return SERIALIZABLE
    text = (arguments.corpus / "isolation_schedule").read_text()
    return re.findall(r"^test: (\S+)", text, flags=re.M)


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
