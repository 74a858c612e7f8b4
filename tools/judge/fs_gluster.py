#!/usr/bin/env python3
"""GlusterFS with three replicas and a volume of Lodestone with three replicas, beside each other.

usage: cargo xtask judge fs-gluster [-- OPTIONS]

Both are mounted at the same time, with their bricks and pools in one folder, so on the same medium. They take turns in
each cell, several times; the figure is the median. Lodestone is measured in three ways, one after the other:

- `udp`: the mount process with the metadata, and three processes with replicas, by multicast. Pages have three
  copies, the metadata one: GlusterFS has three of both.
- `machines`: three processes with metadata and replicas each, by multicast, a keeper, and the mount in a fifth
  process: three copies of all, as GlusterFS has.
- `process`: three replicas and a standby in the process of the mount.

An fsync of GlusterFS waits for two of three bricks, one of Lodestone for two of three replicas and for a majority of
the metadata. Everything runs in namespaces of its own (network and mounts), which end with this program. It installs
what it needs by apt-get, as root. No figure depends on another machine: take the ratios, and say the load.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ADDRESS = "10.99.0.1"
PACKAGES = {"fio": "fio", "glusterd": "glusterfs-server", "mount.glusterfs": "glusterfs-client",
            "redis-server": "redis-server", "redis-benchmark": "redis-tools", "ip": "iproute2"}


def stop(text):
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **more)
    if done.returncode != 0:
        stop(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def install():
    missing = [package for program, package in PACKAGES.items() if not shutil.which(program)]
    if missing:
        print(f"installing {' '.join(missing)}", flush=True)
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-y", "-q", "--no-install-recommends", *missing,
            env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))


def enter_namespaces():
    """Runs this program again in namespaces of its own. Mounts and processes in them end with it."""
    if os.environ.get("LODESTONE_GLUSTER_INSIDE"):
        return
    environment = dict(os.environ, LODESTONE_GLUSTER_INSIDE="1")
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.execvpe("unshare", words + [sys.executable, *sys.argv], environment)


def make_network():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", "lo", "multicast", "on")
    # GlusterFS takes no address of the loopback for a brick.
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    run("ip", "route", "add", "239.0.0.0/8", "dev", "lo")


class Gluster:
    """Three bricks, and a mount, with the options that it has when it is made."""

    name = "GlusterFS"

    def __init__(self, folder):
        self.folder = os.path.join(folder, "gluster")
        for name in ("lib", "run", "log", "b1", "b2", "b3", "mnt"):
            os.makedirs(os.path.join(self.folder, name))
        # Its state stays in the folder; the mounts are seen by this program alone.
        for name, place in (("lib", "/var/lib/glusterd"), ("run", "/var/run/gluster"), ("log", "/var/log/glusterfs")):
            os.makedirs(place, exist_ok=True)
            run("mount", "--bind", os.path.join(self.folder, name), place)
        self.mount = os.path.join(self.folder, "mnt")
        # Its children hold outputs open for ever, so it has none.
        log = open(os.path.join(self.folder, "glusterd.out"), "w")
        subprocess.run(["glusterd"], check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.time() + 60
        while subprocess.run(["gluster", "volume", "list"], capture_output=True).returncode != 0:
            if time.time() > until:
                stop("glusterd does not answer")
            time.sleep(0.2)
        bricks = [f"{ADDRESS}:{self.folder}/b{number}" for number in (1, 2, 3)]
        run("gluster", "--mode=script", "volume", "create", "judge", "replica", "3", *bricks, "force")
        run("gluster", "--mode=script", "volume", "start", "judge")
        done = subprocess.run(["mount", "-t", "glusterfs", f"{ADDRESS}:/judge", self.mount],
                              stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if done.returncode != 0 or not os.path.ismount(self.mount):
            stop(f"GlusterFS cannot be mounted; see {self.folder}/log")


class Lodestone:
    """A volume, mounted in one of three ways."""

    def __init__(self, folder, program, kind, domain, size):
        self.name, self.program, self.domain = f"Lodestone {kind}", program, domain
        self.folder = os.path.join(folder, f"lodestone-{kind}")
        self.mount = os.path.join(self.folder, "mnt")
        os.makedirs(self.mount)
        self.processes = []
        getattr(self, kind)(size)

    def start(self, name, text, *words):
        """Starts a process, and waits until it says that it is ready."""
        log = os.path.join(self.folder, f"{name}.log")
        with open(log, "w") as out:
            process = subprocess.Popen([self.program, *map(str, words)], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, cwd=self.folder)
        self.processes.append(process)
        until = time.time() + 60
        while True:
            said = open(log).read()
            if text in said:
                return said
            if process.poll() is not None or time.time() > until:
                stop(f"{name} does not start: {said}")
            time.sleep(0.05)

    def tell(self, *words):
        return run(self.program, *words, cwd=self.folder)

    def process(self, size):
        self.tell("fs", "format", "a.vol", "--size", size, "--domain", self.domain)
        self.start("mount", "is mounted at", "fs", "mount", "a.vol", "mnt", "--domain", self.domain, "--try", "3")

    def udp(self, size):
        self.tell("fs", "format", "a.vol", "--size", size, "--domain", self.domain)
        nodes = []
        for number in (1, 2, 3):
            said = self.start(f"r{number}", " at ", "fs", "serve", "--dir", f"r{number}", "--listen", f"{ADDRESS}:0",
                              "--plain-network", "--domain", self.domain)
            nodes.append(said.split(" at ")[1].split(",")[0].split()[0])
        self.start("mount", "is mounted at", "fs", "mount", "a.vol", "mnt", "--domain", self.domain, "--nodes",
                   ",".join(nodes), "--carrier", "udp", "--listen", ADDRESS, "--plain-network")

    def machines(self, size):
        keepers = f"1={ADDRESS}:7400"
        self.start("keeper", "keeper 1 of 1", "fabric", "keep", "--new", "--plain-network", "--dir", "k1", "--id", "1",
                   "--keepers", keepers)
        machines = ",".join(f"{number}={ADDRESS}:{7410 + 3 * number}" for number in (1, 2, 3))
        self.tell("fs", "format", "a.vol", "--size", size, "--plain-network", "--keepers", keepers, "--carrier", "udp",
                  "--machines", machines)
        for number in (1, 2, 3):
            self.start(f"m{number}", f"machine {number} of volume", "fs", "serve", "a.vol", "--new", "--plain-network",
                       "--dir", f"m{number}", "--machine", number, "--domain", self.domain)
        self.start("mount", "is mounted at", "fs", "mount", "a.vol", "mnt", "--plain-network")

    def end(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def fio(mount, seconds, jobs, *more):
    """Operations a second of 4 KiB random writes."""
    said = run("fio", "--thread", f"--directory={mount}", "--name=judge", "--rw=randwrite", "--bs=4k", "--size=16m",
               f"--numjobs={jobs}", "--group_reporting", "--time_based", f"--runtime={seconds}", "--fallocate=none",
               "--output-format=json", *more, cwd=os.path.dirname(mount))
    found = json.loads(said[said.index("{"):])["jobs"][0]["write"]["iops"]
    for name in os.listdir(mount):
        if name.startswith("judge."):
            os.remove(os.path.join(mount, name))
    return found


def create_and_remove(mount, seconds):
    """Files a second, made and removed in one folder; closed, not synced."""
    folder = os.path.join(mount, "many")
    os.mkdir(folder)
    made, until, began = 0, time.time() + seconds, time.time()
    while time.time() < until:
        os.close(os.open(f"{folder}/{made}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        made += 1
    between = time.time()
    for number in range(made):
        os.unlink(f"{folder}/{number}")
    end = time.time()
    os.rmdir(folder)
    return made / (between - began), made / (end - between)


def redis(mount, seconds, clients):
    """SET a second, with the append-only file always synced."""
    folder = os.path.join(mount, "redis")
    os.mkdir(folder)
    socket = tempfile.mktemp(suffix=".sock")
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder,
                               "--appendonly", "yes", "--appendfsync", "always"], stdout=subprocess.DEVNULL)
    try:
        until = time.time() + 30
        while subprocess.run(["redis-cli", "-s", socket, "ping"], capture_output=True, text=True).stdout != "PONG\n":
            if time.time() > until:
                stop("redis-server does not start")
            time.sleep(0.05)

        def rate(count):
            said = run("redis-benchmark", "-s", socket, "-t", "set", "-n", count, "-c", clients, "-d", "512", "--csv")
            return float(said.splitlines()[-1].split(",")[1].strip('"'))
        return rate(max(100, int(rate(200) * seconds)))
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)


# Plain writes come last: what they left to be written would be in the way of others.
CELLS = {
    "4 KiB write + fsync, 1 job": lambda mount, seconds: [fio(mount, seconds, 1, "--fsync=1")],
    "4 KiB write + fsync, 4 jobs": lambda mount, seconds: [fio(mount, seconds, 4, "--fsync=1")],
    "create; unlink": create_and_remove,
    "Redis SET, AOF always, 1 client": lambda mount, seconds: [redis(mount, seconds, 1)],
    "Redis SET, AOF always, 4 clients": lambda mount, seconds: [redis(mount, seconds, 4)],
    "4 KiB write, 1 job": lambda mount, seconds: [fio(mount, seconds, 1)],
    "4 KiB write, 4 jobs": lambda mount, seconds: [fio(mount, seconds, 4)],
}


def measure(systems, options):
    """Median figures by cell and system: each round goes once through all cells."""
    found = {}
    for number in range(options.rounds):
        for cell, work in CELLS.items():
            if options.only and not any(word in cell for word in options.only):
                continue
            for system in systems:
                figures = work(system.mount, options.seconds)
                for name, figure in zip(cell.split("; "), figures):
                    found.setdefault(name, {}).setdefault(system.name, []).append(figure)
            print(f"{systems[1].name}, round {number + 1} of {options.rounds}: {cell}; load {os.getloadavg()[0]:.1f}",
                  file=sys.stderr, flush=True)
    return {cell: {name: statistics.median(figures) for name, figures in by.items()} for cell, by in found.items()}


def tell(found, ours, options):
    machine = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    print(f"\n{ours}, bricks and pools in {options.folder}, domain {options.domain}; a second, medians of "
          f"{options.rounds} rounds of {options.seconds} s; {machine}")
    for cell, by in found.items():
        peer, figure = by[Gluster.name], by[ours]
        print(f"{cell}: {figure:,.0f}, {Gluster.name} {peer:,.0f}: {figure / peer:.1f}x", flush=True)


def main():
    parser = argparse.ArgumentParser(description="GlusterFS and Lodestone beside each other, three replicas each.")
    parser.add_argument("--program", required=True, help="lodestone")
    parser.add_argument("--folder", default="/dev/shm", help="where bricks and pools are: one medium for all")
    parser.add_argument("--domain", default="block", help="persistence domain of Lodestone's pools")
    parser.add_argument("--kinds", default="udp,machines,process", help="how Lodestone is mounted")
    parser.add_argument("--size", default="512MiB", help="size of Lodestone's volumes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=4, help="of each cell")
    parser.add_argument("--only", action="append", help="cells whose name has this text")
    parser.add_argument("--json", action="store_true", help="print an object for each way, too")
    options = parser.parse_args()
    if os.geteuid() != 0:
        stop("run it as root: it mounts, and makes namespaces")
    install()
    enter_namespaces()
    make_network()
    kinds = options.kinds.split(",")
    for kind in kinds:
        if kind not in ("udp", "machines", "process"):
            stop(f"there is no way `{kind}` to mount; there are udp, machines and process")
    folder = tempfile.mkdtemp(prefix="lodestone-gluster-", dir=options.folder)
    try:
        gluster = Gluster(folder)
        for kind in kinds:
            volume = Lodestone(folder, os.path.abspath(options.program), kind, options.domain, options.size)
            try:
                found = measure([gluster, volume], options)
            finally:
                volume.end()
            tell(found, volume.name, options)
            if options.json:
                print(json.dumps({"kind": kind, "domain": options.domain, "a_second": found}))
    finally:
        # GlusterFS ends with the namespace of its processes; its mount goes first.
        subprocess.run(["umount", "-l", os.path.join(folder, "gluster", "mnt")], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


main()
