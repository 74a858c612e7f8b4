#!/usr/bin/env python3
"""Records what PostgreSQL answers to sessions that wait for each other: crates/serve/tests/sessions/*.steps.

    tools/sql_sessions.py --place DIR:5432 --user NAME --database empty_database [NAME ...]

A line `2> statement` gives the statement to session 2, and `*> statement` gives it to all of the file, which are 1 to 3.
The answers go to NAME.out beside NAME.steps: rows with `|` between their values, tags, and errors as `ERROR CODE:
MESSAGE`. A statement that is not answered in time has the line `waits`. A line `2 goes on` is before the answer of one
that waited, after the step that has let it go on. The tests of the crate `serve` compare Lodestone with these files, so
they need no PostgreSQL. Run it on PostgreSQL 15 with the locale C, in an empty database, after a change of a .steps file.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/judge"))

from sql_wire import Client, Hang  # noqa: E402

FOLDER = ROOT / "crates/serve/tests/sessions"
# Longer than any time limit of a file, and than PostgreSQL needs.
SECONDS = 0.25


class Session:
    def __init__(self, arguments):
        self.client = Client(arguments.place, arguments.user, arguments.database)
        self.waits = False

    def answers(self):
        """The lines of the answer. None: there is none yet."""
        self.client.socket.settimeout(SECONDS)
        try:
            # The server sends nothing before the end of the last statement of a message.
            results = self.client.answers()
        except Hang:
            self.waits = True
            return None
        self.waits = False
        lines = []
        for result in results:
            lines += ["|".join("NULL" if value is None else str(value) for value in row) for row in result.rows]
            if result.code:
                lines.append(f"ERROR {result.code}: {result.message}")
            elif not result.columns:
                lines.append(result.tag)
        return lines


def record(path, arguments):
    sessions = {name: Session(arguments) for name in "123"}
    out = []
    for step in path.read_text().splitlines():
        if not step or step.startswith("--"):
            continue
        who, statement = step.split("> ", 1)
        out.append(step)
        for name in (sessions if who == "*" else who):
            sessions[name].client.send(statement)
            lines = sessions[name].answers()
            if who != "*":
                out += ["waits"] if lines is None else lines
        for name, session in sessions.items():
            if session.waits and name != who:
                lines = session.answers()
                if lines is not None:
                    out += [f"{name} goes on", *lines]
    path.with_suffix(".out").write_text("\n".join(out) + "\n")
    print(f"{path.name}: {len(out)} lines")
    for session in sessions.values():
        session.client.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", required=True, help="HOST:PORT, or the folder of a unix socket and a port")
    parser.add_argument("--user", required=True)
    parser.add_argument("--database", required=True)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    for path in sorted(FOLDER.glob("*.steps")):
        if not arguments.names or path.stem in arguments.names:
            record(path, arguments)


if __name__ == "__main__":
    main()
