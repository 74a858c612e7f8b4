"""A client of PostgreSQL's protocol 3.0, for the judges of SQL: simple queries, one at a time, with a time limit.

It needs nothing but the standard library, and shows rows, tags and codes as the server sent them.
"""

import socket
import struct
import time


class Gone(Exception):
    """The server has closed the connection."""


class Hang(Exception):
    """No answer came in time."""


class Result:
    """The answer to one statement of a message."""

    def __init__(self):
        self.columns, self.types, self.rows, self.tag, self.code, self.message = [], [], [], None, None, None

    def key(self):
        """Everything that is compared: rows, tag and code."""
        return (self.rows, self.tag, self.code)


class Client:
    """One connection. `place` is HOST:PORT; a HOST that is a folder is a unix socket."""

    def __init__(self, place, user, database, seconds=20):
        host, _, port = place.rpartition(":")
        if host.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(seconds)
            self.socket.connect(f"{host}/.s.PGSQL.{port}")
        else:
            self.socket = socket.create_connection((host, int(port)), seconds)
        self.buffer, self.place, self.user, self.database, self.seconds = b"", place, user, database, seconds
        parts = ["user", user, "database", database, "client_encoding", "UTF8"]
        body = struct.pack(">i", 196608) + b"".join(part.encode() + b"\0" for part in parts) + b"\0"
        self.socket.sendall(struct.pack(">i", len(body) + 4) + body)
        self.notices, self.status = [], "I"
        while True:
            kind, body = self.message()
            if kind == b"E":
                raise Gone(fields(body).get("M", "refused"))
            if kind == b"R" and struct.unpack(">i", body[:4])[0] != 0:
                raise Gone("a password is asked for; use a server that trusts this client")
            if kind == b"Z":
                return

    def close(self):
        try:
            self.socket.sendall(b"X\0\0\0\4")
        except OSError:
            pass
        self.socket.close()

    def fill(self, count):
        while len(self.buffer) < count:
            try:
                more = self.socket.recv(1 << 16)
            except (TimeoutError, socket.timeout) as error:
                raise Hang() from error
            except OSError as error:
                raise Gone(str(error)) from error
            if not more:
                raise Gone("the connection was closed")
            self.buffer += more

    def message(self):
        self.fill(5)
        length = struct.unpack(">i", self.buffer[1:5])[0] + 1
        self.fill(length)
        kind, body, self.buffer = self.buffer[:1], self.buffer[5:length], self.buffer[length:]
        return kind, body

    def send(self, text):
        body = text.encode(errors="surrogateescape") + b"\0"
        try:
            self.socket.sendall(b"Q" + struct.pack(">i", len(body) + 4) + body)
        except OSError as error:
            raise Gone(str(error)) from error

    def query(self, text, copy=None, seconds=None):
        """The results of the statements of `text`. `copy`: the lines that a COPY FROM STDIN gets."""
        self.socket.settimeout(seconds or self.seconds)
        self.send(text)
        return self.answers(copy, time.monotonic() + (seconds or self.seconds))

    def answers(self, copy=None, until=None):
        """`until`: an answer that has not ended by then is a hang, also one whose rows come without end."""
        self.notices = []
        results, current = [], Result()
        while True:
            kind, body = self.message()
            if until is not None and time.monotonic() > until:
                raise Hang()
            if kind == b"T":
                current.columns, current.types = columns(body)
            elif kind == b"D":
                current.rows.append(row(body))
            elif kind == b"C":
                current.tag = body[:-1].decode()
                results.append(current)
                current = Result()
            elif kind == b"I":
                current.tag = ""
                results.append(current)
                current = Result()
            elif kind == b"E":
                found = fields(body)
                current.rows, current.code, current.message = [], found.get("C"), found.get("M")
                results.append(current)
                current = Result()
            elif kind == b"G":
                self.copy_in(copy)
            elif kind == b"d":
                current.rows.append((body.decode(errors="replace"),))
            elif kind == b"N":
                self.notices.append(fields(body))
            elif kind == b"Z":
                self.status = body.decode()
                return results

    def copy_in(self, copy):
        if copy is None:
            reason = b"no lines follow\0"
            self.socket.sendall(b"f" + struct.pack(">i", len(reason) + 4) + reason)
            return
        data = copy.encode(errors="surrogateescape")
        for start in range(0, len(data), 1 << 16):
            part = data[start:start + (1 << 16)]
            self.socket.sendall(b"d" + struct.pack(">i", len(part) + 4) + part)
        self.socket.sendall(b"c\0\0\0\4")


def fields(body):
    found = {}
    for part in body.split(b"\0"):
        if part:
            found[chr(part[0])] = part[1:].decode(errors="replace")
    return found


def columns(body):
    count, rest, names, types = struct.unpack(">h", body[:2])[0], body[2:], [], []
    for _ in range(count):
        name, _, rest = rest.partition(b"\0")
        names.append(name.decode(errors="replace"))
        types.append(struct.unpack(">i", rest[6:10])[0])
        rest = rest[18:]
    return names, types


def row(body):
    count, place, values = struct.unpack(">h", body[:2])[0], 2, []
    for _ in range(count):
        length = struct.unpack(">i", body[place:place + 4])[0]
        place += 4
        if length < 0:
            values.append(None)
        else:
            values.append(body[place:place + length].decode(errors="replace"))
            place += length
    return tuple(values)
