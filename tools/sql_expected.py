#!/usr/bin/env python3
"""Records what PostgreSQL answers to the statements of crates/sql/tests/expected/*.sql.

    tools/sql_expected.py --host DIR --port 5432 --database empty_database [NAME ...]

Each statement ends with a `;` at the end of a line. The answers go to NAME.out beside NAME.sql: rows with `|` between
their values, tags, and errors as `ERROR CODE: MESSAGE`. The tests of the crate compare Lodestone with these files, so
they need no PostgreSQL. Run it on PostgreSQL 15 with the locale C, in an empty database, after a change of a .sql file.
"""

import argparse
import pathlib
import re
import subprocess

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "crates/sql/tests/expected"


def statements(text):
    """The statements of a file, without comments."""
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part.strip() for part in re.split(r";\n", "\n".join(lines) + "\n") if part.strip()]


def record(path, connection):
    found = statements(path.read_text())
    script = "".join(f"\\echo =={number}==\n{text};\n" for number, text in enumerate(found))
    command = ["psql", "-X", "-A", "-t", "-P", "null=NULL", "-v", "VERBOSITY=verbose", *connection]
    run = subprocess.run(command, input=script, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    answers = re.split(r"^==\d+==\n", run.stdout, flags=re.M)[1:]
    out = []
    for text, answer in zip(found, answers):
        # The lines of a statement after its first one.
        out.append("> " + text.replace("\n", "\n>> "))
        for line in answer.splitlines():
            error = re.match(r"(?:psql:.*?: )?(ERROR|WARNING|NOTICE):  (\w{5}): (.*)", line)
            if error and error[1] == "ERROR":
                out.append(f"ERROR {error[2]}: {error[3]}")
            elif not error and not re.match(r"(DETAIL|HINT|LOCATION|LINE \d+|CONTEXT|QUERY|\w+ NAME): ", line) and line.strip(" ^"):
                out.append(line)
    path.with_suffix(".out").write_text("\n".join(out) + "\n")
    print(f"{path.name}: {len(found)} statements")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", default="5432")
    parser.add_argument("--database", required=True)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    connection = ["-h", arguments.host, "-p", arguments.port, arguments.database]
    for path in sorted(FOLDER.glob("*.sql")):
        if not arguments.names or path.stem in arguments.names:
            record(path, connection)


if __name__ == "__main__":
    main()
