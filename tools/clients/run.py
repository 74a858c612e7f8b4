#!/usr/bin/env python3
"""Clients of PostgreSQL, unchanged, on Lodestone.

    tools/clients/run.py [--lodestone PROGRAM] [--folder DIR] [NAME ...]

For each client: its packages are installed from its registry into DIR (kept, so the next run is quick), a server is
started on a pool of its own, the client's program runs, and one line says `ok` or the number of checks that failed.
The lines above that name them. The exit code is 1 if any failed, 2 if a client could not be run.
"""

import argparse
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIMIT_SECONDS = 600

PYTHON = ["psycopg", "asyncpg", "sqlalchemy", "django"]
PYTHON_PACKAGES = ["psycopg[binary]==3.2.*", "asyncpg==0.30.*", "sqlalchemy>=2.0.40,<2.2", "django==5.2.*"]
NODE_PACKAGES = ["pg@8", "pg-cursor@2"]
JDBC = "org.postgresql:postgresql:42.7.4"


class CannotRun(Exception):
    """A client that could not be run: a program or package is missing."""


def call(command, **options):
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if run.returncode != 0:
        raise CannotRun(f"{' '.join(map(str, command))}\n{run.stdout}")
    return run.stdout


def need(program, package):
    if shutil.which(program) is None:
        raise CannotRun(f"`{program}` is missing; install it, on Debian by `apt-get install {package}`")


def python_client(name, folder):
    """The command of the program, in a virtual environment with the packages of all clients in Python."""
    place = folder / "python"
    python, done, wanted = place / "bin/python", place / "packages", "\n".join(PYTHON_PACKAGES)
    if not done.exists() or done.read_text() != wanted:
        call([sys.executable, "-m", "venv", place])
        call([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON_PACKAGES])
        done.write_text(wanted)
    return [python, HERE / f"with_{name}.py"], {}


def node_client(folder):
    need("npm", "npm")
    place = folder / "node"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / "node_modules/pg").exists():
        call(["npm", "install", "--silent", "--no-fund", "--no-audit", *NODE_PACKAGES], cwd=place)
    shutil.copy(HERE / "with_node.mjs", place)
    return ["node", place / "with_node.mjs"], {}


def go_client(folder):
    need("go", "golang")
    place = folder / "pgx"
    place.mkdir(parents=True, exist_ok=True)
    program = place / "check"
    source = HERE / "with_pgx.go"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        shutil.copy(source, place / "main.go")
        if not (place / "go.mod").exists():
            call(["go", "mod", "init", "check"], cwd=place)
            call(["go", "get", "github.com/jackc/pgx/v5@v5.7.2"], cwd=place)
        call(["go", "mod", "tidy"], cwd=place)
        call(["go", "build", "-o", program, "."], cwd=place)
    return [program], {}


def java_client(folder):
    need("mvn", "maven")
    need("java", "default-jdk")
    place = folder / "jdbc"
    place.mkdir(parents=True, exist_ok=True)
    if not list(place.glob("postgresql-*.jar")):
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        call(["mvn", "-q", copy, f"-Dartifact={JDBC}", f"-DoutputDirectory={place}"], cwd=place)
    jar = next(place.glob("postgresql-*.jar"))
    return ["java", "-cp", jar, HERE / "WithJdbc.java"], {}


def psql_client(_folder):
    need("psql", "postgresql-client-15")
    return [sys.executable, HERE / "with_psql.py"], {}


def pg_dump_client(_folder):
    for program in ("psql", "pg_dump"):
        need(program, "postgresql-client-15")
    return [sys.executable, HERE / "with_pg_dump.py"], {}


def idle_client(_folder):
    return [sys.executable, HERE / "with_idle.py"], {}


CLIENTS = {
    **{name: (lambda folder, name=name: python_client(name, folder)) for name in PYTHON},
    "node": node_client,
    "pgx": go_client,
    "jdbc": java_client,
    "psql": psql_client,
    "pg_dump": pg_dump_client,
    "idle": idle_client,
}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """`lodestone serve` on a new pool. Clients come by the unix socket, or by TCP with a password, encrypted or not."""

    def __init__(self, program, folder, *more):
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.pool = self.folder / "shop.pool"
        call([program, "pool", "create", self.pool, "--size", "512M"])
        role = "create role tester login password 'secret'"
        call([program, "sql", self.pool, "-c", role])
        self.program, self.more = program, more
        self.start()

    def start(self):
        self.log = open(self.folder / "serve.log", "ab")
        command = [self.program, "serve", self.pool, "--socket", self.folder, "--port", str(self.port)]
        command += ["--listen", f"127.0.0.1:{self.port}", *self.more]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        path = self.folder / f".s.PGSQL.{self.port}"
        for _ in range(600):
            if self.process.poll() is not None:
                raise CannotRun((self.folder / "serve.log").read_text())
            try:
                with socket.socket(socket.AF_UNIX) as found:
                    found.connect(str(path))
                return
            except OSError:
                time.sleep(0.05)
        raise CannotRun("the server does not come up")

    def environment(self):
        import getpass

        return {
            "PGHOST": str(self.folder),
            "PGPORT": str(self.port),
            "PGUSER": getpass.getuser(),
            "PGDATABASE": "shop",
            "LODESTONE_TCP_USER": "tester",
            "LODESTONE_TCP_PASSWORD": "secret",
            "LODESTONE_SERVER": str(self.process.pid),
            "LODESTONE_PROGRAM": str(self.program),
        }

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        self.log.close()


def certificate(folder):
    """A certificate that signs itself."""
    if shutil.which("openssl") is None:
        raise CannotRun("`openssl` is missing, so encryption cannot be checked; install it, or leave it out by `--plain`")
    cert, key = folder / "server.crt", folder / "server.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    call([*command, "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert])
    return ["--tls-cert", cert, "--tls-key", key]


def run_client(name, program, folder, keep, plain):
    command, more = CLIENTS[name](folder)
    place = pathlib.Path(tempfile.mkdtemp(prefix=f"clients-{name}-"))
    began = time.monotonic()
    server = None
    try:
        tls = [] if plain else certificate(place)
        server = Server(program, place, *tls)
        environment = {**os.environ, **server.environment(), **more}
        if tls:
            environment["LODESTONE_TLS_CERT"] = str(tls[1])
        run = subprocess.run(list(map(str, command)), env=environment, cwd=place, timeout=LIMIT_SECONDS)
        is_alive = server.process.poll() is None
        passed = run.returncode == 0 and is_alive
        word = "ok" if passed else "FAILED" if is_alive else "FAILED: the server is gone"
        print(f"{name}: {word} ({time.monotonic() - began:.1f} s)", flush=True)
        return passed
    finally:
        if server:
            server.stop()
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lodestone", default=ROOT / "target/debug/lodestone", type=pathlib.Path)
    default = pathlib.Path(tempfile.gettempdir()) / "lodestone-clients"
    parser.add_argument("--folder", default=default, type=pathlib.Path, help="where packages are installed")
    parser.add_argument("--keep", action="store_true", help="leave pools and logs of the server")
    parser.add_argument("--plain", action="store_true", help="no checks of encryption")
    parser.add_argument("names", nargs="*", choices=[*CLIENTS, []], metavar="NAME")
    arguments = parser.parse_args()
    worst = 0
    for name in arguments.names or CLIENTS:
        try:
            if not run_client(name, arguments.lodestone, arguments.folder, arguments.keep, arguments.plain):
                worst = max(worst, 1)
        except (CannotRun, subprocess.TimeoutExpired) as error:
            print(f"{name}: could not be run: {error}", flush=True)
            worst = 2
    sys.exit(worst)


if __name__ == "__main__":
    main()
