#!/usr/bin/env python3
"""Compares servers by pgbench: transactions a second, and processor time of the server for a transaction.

    tools/sql_bench.py --server ours=/tmp/a:5432:shop:PID --server pg=/tmp/b:5499:shop:PID [--rounds 3] [--seconds 5]

The servers run already, and `pgbench -i` was done on both. Runs alternate, and medians are printed. PID is the process
of the server, or the first of its processes: the time of its children counts. Both run at the same level of isolation.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import time

RUNS = {
    "select, prepared, 8 clients": ["-S", "-M", "prepared", "-c", "8", "-j", "2"],
    "select, simple, 8 clients": ["-S", "-M", "simple", "-c", "8", "-j", "2"],
    "select, prepared, 1 client": ["-S", "-M", "prepared", "-c", "1"],
    "TPC-B, prepared, 8 clients": ["-M", "prepared", "-c", "8", "-j", "2"],
    "TPC-B, simple, 8 clients": ["-M", "simple", "-c", "8", "-j", "2"],
}


def fields(pid):
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def processor_seconds(pid):
    """Time of the process, of its children that ended, and of those that live."""
    total = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            found = fields(entry)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(entry) == pid:
            total += sum(int(found[place]) for place in (11, 12, 13, 14))
        elif int(found[1]) == pid:
            total += int(found[11]) + int(found[12])
    return total / os.sysconf("SC_CLK_TCK")


def run(server, arguments, seconds, level):
    host, port, database, pid = server
    setting = level.replace(" ", "\\ ")
    environment = dict(os.environ, PGOPTIONS=f"-c default_transaction_isolation={setting}" if level else "")
    before = processor_seconds(pid)
    command = ["pgbench", "-n", "-h", host, "-p", port, "-T", str(seconds), *arguments, database]
    out = subprocess.run(command, env=environment, capture_output=True, text=True)
    # Children that ended are counted by their parent a moment later.
    time.sleep(0.3)
    used = processor_seconds(pid) - before
    count = int(re.search(r"actually processed: (\d+)", out.stdout)[1])
    failed = int(re.search(r"failed transactions: (\d+)", out.stdout)[1])
    tps = float(re.search(r"tps = ([\d.]+)", out.stdout)[1])
    return tps, used * 1e6 / max(count, 1), failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--level", default="serializable", help="level of all transactions; empty: the default of each server")
    arguments = parser.parse_args()
    servers = {}
    for text in arguments.server:
        name, place = text.split("=", 1)
        host, port, database, pid = place.split(":")
        servers[name] = (host, port, database, int(pid))
    print(f"level {arguments.level}, medians of {arguments.rounds} runs of {arguments.seconds} s, alternating")
    for title, options in RUNS.items():
        found = {name: [] for name in servers}
        for _ in range(arguments.rounds):
            for name, server in servers.items():
                found[name].append(run(server, options, arguments.seconds, arguments.level))
        for name, results in found.items():
            tps, micros, failed = (statistics.median(column) for column in zip(*results))
            print(f"{title:30} {name:6} {tps:10.0f} tps  {micros:7.1f} us of server  {failed:.0f} failed")


if __name__ == "__main__":
    main()
