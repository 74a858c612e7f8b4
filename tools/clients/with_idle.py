"""The memory of 200 idle clients: at most 24 KiB each. And peers that say nothing take no room from clients."""

import os
import pathlib
import select
import socket
import struct
import sys
import time

CLIENTS = 200
BYTES_MAX = 24 << 10
SILENT = 150


def resident():
    text = pathlib.Path(f"/proc/{os.environ['LODESTONE_SERVER']}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) << 10


def plain():
    found = socket.socket(socket.AF_UNIX)
    found.connect(f"{os.environ['PGHOST']}/.s.PGSQL.{os.environ['PGPORT']}")
    return found


def answers(found):
    """Reads up to ReadyForQuery."""
    data = b""
    while data[-6:-5] != b"Z":
        part = found.recv(65536)
        if not part:
            raise EOFError(data)
        data += part
    return data


def client():
    found = plain()
    body = f"user\0{os.environ['PGUSER']}\0database\0shop\0application_name\0idle\0\0".encode()
    found.sendall(struct.pack("!ii", len(body) + 8, 3 << 16) + body)
    answers(found)
    return found


def query(found, text):
    body = text.encode() + b"\0"
    found.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
    return answers(found)


def main():
    # Memory that the server takes once is not that of a client.
    warm = [client() for _ in range(20)]
    for one in warm:
        query(one, "select g, repeat('x', 100) from generate_series(1, 2000) g")
        query(one, "select relname from pg_class where relname = 'pg_class'")
        one.close()
    time.sleep(0.5)
    all_clients, counted = [], 0
    for number in range(CLIENTS - 5):
        # The first ones take memory that the others before have left.
        if number == 60:
            time.sleep(0.5)
            before, counted = resident(), number
        one = client()
        query(one, "select g, repeat('x', 100) from generate_series(1, 1000) g")
        query(one, "begin; select 1; commit")
        all_clients.append(one)
    time.sleep(0.5)
    each = (resident() - before) / (len(all_clients) - counted)
    print(f"  {each / 1024:.1f} KiB for each of {len(all_clients)} idle clients")
    # Peers that say nothing: clients still come in, and they go after ten seconds.
    silent = [plain() for _ in range(SILENT)]
    client().close()
    until = time.monotonic() + 30
    gone = 0
    while gone < len(silent) and time.monotonic() < until:
        ready, _, _ = select.select(silent, [], [], 1)
        gone = len(ready)
    print(f"  {gone} of {len(silent)} peers that said nothing were sent away")
    client().close()
    sys.exit(0 if each <= BYTES_MAX and gone == len(silent) else 1)


if __name__ == "__main__":
    main()
