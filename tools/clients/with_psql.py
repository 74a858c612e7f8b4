"""psql's backslash commands on Lodestone and on PostgreSQL 15, beside each other. The PostgreSQL is started for this on a
folder of its own, and ends with the program. Names of databases and roles, sizes, and numbers of objects are masked.
"""

import difflib
import getpass
import glob
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time

SCHEMA = """
create table author (id serial primary key, name varchar(40) not null unique, born date);
create table book (
  isbn text primary key,
  author int not null references author on delete cascade,
  price numeric(8, 2) default 0 check (price >= 0),
  added timestamptz default now(),
  pages int
);
create index book_by_author on book (author, price);
create view cheap as select isbn, price from book where price < 10;
create sequence tickets start 5;
create schema side;
create table side.other (k bigint generated always as identity primary key, v text);
insert into author (name) values ('ann'), ('bob');
"""

COMMANDS = """
\\d
\\d author
\\d book
\\d+ book
\\d cheap
\\d+ cheap
\\d tickets
\\d book_by_author
\\d side.other
\\d nothing
\\dt
\\dt+
\\dt side.*
\\dt *.other
\\di
\\di+
\\ds
\\dv
\\dm
\\dE
\\dn
\\dn+
\\du
\\dg
\\dT
\\dT side.*
\\df
\\df side.*
\\da side.*
\\dD
\\dO
\\dp
\\z book
\\db
\\dx
\\dy
\\dl
\\dL
\\dF
\\dP
\\dRp
\\dRs
\\des
\\dew
\\det
\\deu
\\dc side.*
\\dC nothing
\\ddp
\\drds
\\dd
\\do side.*
\\dA
\\dAc btree nothing
\\dAf btree nothing
\\dAo btree nothing
\\dAp btree nothing
\\dconfig nothing
\\l
\\sf nothing
\\sv cheap
\\conninfo
\\encoding
\\dX
select * from author order by id \\gdesc
\\x \\\\ select 1 as a
""".strip().splitlines()

# Answers that differ for a reason that docs/SQL.md names.
DIFFERENT = {
    "\\conninfo": "it names the socket",
    "\\dL": "plpgsql is not there",
    "\\d+ cheap": "a view is kept as its text",
    "\\sv cheap": "a view is kept as its text",
    "\\l": "there is one database",
    "\\du": "there is no replication",
    "\\dg": "there is no replication",
    "\\dF": "there is no text search",
    "\\dA": "btree is the only kind of index",
    "\\dx": "plpgsql is not there",
}


class Postgres:
    """A PostgreSQL 15 on a folder of its own."""

    def __init__(self):
        found = glob.glob("/usr/lib/postgresql/15/bin/initdb")
        if not found:
            sys.exit("PostgreSQL 15 is missing; on Debian: apt-get install postgresql-15")
        self.programs = pathlib.Path(found[0]).parent
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="clients-pg-"))
        self.run_as = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self.run_as = ["runuser", "-u", "postgres", "--"]
        data = self.folder / "data"
        user = getpass.getuser()
        self.call("initdb", "-D", data, "-U", user, "--locale=C", "--encoding=UTF8", "-A", "trust", "-N")
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c port=5432 -c fsync=off -c jit=off"
        self.call("pg_ctl", "-D", data, "-w", "-l", self.folder / "log", "-o", options, "start")
        self.environment = {**os.environ, "PGHOST": str(self.folder), "PGPORT": "5432", "PGUSER": user}
        psql(self.environment, "create database shop", "postgres")

    def call(self, program, *arguments):
        command = [*self.run_as, self.programs / program, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def stop(self):
        self.call("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


def psql(environment, text, database="shop"):
    command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=0", database]
    run = subprocess.run(command, input=text, text=True, env=environment, capture_output=True, timeout=60)
    return run.stdout + run.stderr


def masked(text):
    text = re.sub(r"\b(root|postgres|template[01]|shop|tester)\b *", "NAME ", text)
    text = re.sub(r"\b\d+ (bytes|kB|MB)\b *", "SIZE ", text)
    text = re.sub(r"\b(pg_default|pg_global)\b", "SPACE", text)
    # A condition is kept as its text, without the casts that PostgreSQL adds.
    text = re.sub(r"::numeric\b", "", text)
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r"-{2,}(\+-+)*", "--", text)
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and line != "--"]


def main():
    postgres = Postgres()
    try:
        ours = dict(os.environ)
        for environment in (ours, postgres.environment):
            print(psql(environment, SCHEMA), end="")
        failed = 0
        began = time.monotonic()
        for command in COMMANDS:
            found, wanted = masked(psql(ours, command)), masked(psql(postgres.environment, command))
            if found == wanted or command in DIFFERENT:
                continue
            failed += 1
            print(f"  failed: {command}")
            changes = list(difflib.unified_diff(wanted, found, "PostgreSQL", "Lodestone", n=0, lineterm=""))[2:]
            print("\n".join(f"    {line}" for line in changes[:12]))
        print(f"  {len(COMMANDS) - failed} of {len(COMMANDS)} commands ({time.monotonic() - began:.1f} s)")
        sys.exit(1 if failed else 0)
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
