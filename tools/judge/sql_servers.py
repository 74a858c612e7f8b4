"""The two servers of the judges of SQL: PostgreSQL 15 with a new cluster, and `lodestone serve` with a new pool.

Both are in one temporary folder, on unix sockets, and are ended with it. PostgreSQL runs without syncs (it is only
asked, never killed), as the user `postgres` if the judge is root.
"""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from sql_wire import Client, Gone, Hang

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def stop(message):
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


class Process:
    """A server process, with its log beside it."""

    def __init__(self, command, log, prefix=()):
        self.log = log
        self.process = subprocess.Popen([*prefix, *command], stdout=log.open("ab"), stderr=subprocess.STDOUT)

    def is_alive(self):
        return self.process.poll() is None

    def end(self, how=signal.SIGINT):
        if self.is_alive():
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Servers:
    """Both servers. `with Servers(..) as servers: servers.postgres(), servers.lodestone()` are new connections."""

    def __init__(self, program, isolation="read committed", database="regression", seconds=20, domain="process"):
        self.program, self.isolation, self.database, self.seconds = program, isolation, database, seconds
        self.domain, self.running, self.restarts = domain, {}, 0

    def __enter__(self):
        bins = pathlib.Path(os.environ.get("LODESTONE_POSTGRES_BIN", "/usr/lib/postgresql/15/bin"))
        if not (bins / "initdb").exists():
            stop("PostgreSQL 15 is missing; install the package `postgresql-15`, or name the folder of its programs "
                 "in LODESTONE_POSTGRES_BIN")
        if not self.program.exists():
            stop(f"{self.program} is missing; build it by `cargo build --release -p lodestone-cli --bin lodestone`")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="judge-", dir=os.environ.get("TMPDIR")))
        try:
            self.start(bins)
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, bins):
        self.prefix, data = [], self.folder / "postgres"
        data.mkdir()
        (self.folder / "socket").mkdir()
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.postgres_user = self.user
        os.chmod(self.folder, 0o755)
        if os.getuid() == 0:
            self.prefix, self.postgres_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"], "postgres"
            shutil.chown(data, "postgres", "postgres")
        os.chmod(self.folder / "socket", 0o777)
        init = [str(bins / "initdb"), "-D", str(data), "--no-sync", "--locale=C", "--encoding=UTF8", "-A", "trust",
                "-U", self.user]
        subprocess.run([*self.prefix, *init], check=True, stdout=subprocess.DEVNULL, cwd=data)
        # The port is a part of the socket's name only.
        options = {"fsync": "off", "listen_addresses": "", "unix_socket_directories": str(self.folder / "socket"),
                   "port": "7001", "autovacuum": "off", "timezone": "UTC", "datestyle": "ISO, MDY",
                   "statement_timeout": f"{self.seconds}s", "max_prepared_transactions": "2",
                   "default_transaction_isolation": self.isolation}
        command = [str(bins / "postgres"), "-D", str(data)]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        self.running["postgres"] = Process(command, self.folder / "postgres.log", self.prefix)
        self.wait(lambda: Client(f"{self.folder}/socket:7001", self.user, "postgres"), "postgres").query(
            f"create database {self.database} template template0")
        self.start_lodestone()

    def start_lodestone(self):
        pool = self.folder / f"{self.database}.pool"
        if not pool.exists():
            create = [str(self.program), "pool", "create", str(pool), "--size", "4GiB", "--domain", self.domain]
            subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        command = [str(self.program), "serve", str(pool), "--socket", str(self.folder / "socket"), "--port", "7002",
                   "--isolation", self.isolation, "--domain", self.domain]
        self.running["lodestone"] = Process(command, self.folder / "lodestone.log")
        self.wait(self.lodestone, "lodestone").close()

    def wait(self, connect, name):
        last = None
        for _ in range(300):
            try:
                return connect()
            except (OSError, Gone) as error:
                last = error
            if not self.running[name].is_alive():
                break
            time.sleep(0.1)
        print(self.running[name].log.read_text(errors="replace")[-2000:], file=sys.stderr)
        stop(f"the server {name} does not answer: {last}")

    def postgres(self):
        return Client(f"{self.folder}/socket:7001", self.user, self.database, self.seconds + 20)

    def lodestone(self):
        return Client(f"{self.folder}/socket:7002", self.user, self.database, self.seconds)

    def revive(self):
        """Starts Lodestone again if it has ended. Whether it had."""
        if self.running["lodestone"].is_alive():
            return False
        self.restarts += 1
        self.start_lodestone()
        return True

    def free(self):
        """Kills a Lodestone that answers no new client, and starts it again."""
        try:
            Client(f"{self.folder}/socket:7002", self.user, self.database, 10).close()
        except (Hang, Gone, OSError):
            self.running["lodestone"].end(signal.SIGKILL)
            self.revive()

    def __exit__(self, *_):
        for process in self.running.values():
            process.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def program_option(parser):
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "target/release/lodestone",
                        help="`lodestone` [default: target/release/lodestone]")


def percent(part, whole):
    """A share that is never rounded up."""
    return "0.00 %" if not whole else f"{part * 10000 // whole / 100:.2f} %"
