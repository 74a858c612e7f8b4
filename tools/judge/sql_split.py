"""Scripts of psql as a list of steps: statements, the lines of a COPY, and the commands with a backslash.

`steps` yields `Statement`, `Command`. Variables (`:name`, `:'name'`, `:"name"`) are put in by `Variables` when a
statement runs, because commands before it may set them.
"""

import re


class Statement:
    def __init__(self, text, line, command=None):
        self.text, self.line, self.command, self.copy = text, line, command, None


class Command:
    def __init__(self, name, rest, line):
        self.name, self.rest, self.line = name, rest, line


COPY_IN = re.compile(r"\s*copy\s+(?!\().*\bfrom\s+stdin\b", re.I | re.S)
# Commands that send the statement before them, and say how its answer is shown.
SENDERS = {"g", "gx", "gset", "gdesc", "gexec", "crosstabview", "watch", "bind", ";"}


def steps(text):
    place, start, depth, line, blocks = 0, 0, 0, 1, 0
    buffer, first = [], None
    found = []
    length = len(text)

    def flush(command=None):
        nonlocal buffer, first, blocks, depth
        statement = "".join(buffer).strip()
        buffer = []
        blocks = depth = 0
        if statement or command:
            found.append(Statement(statement, first or line, command))
        first = None

    while place < length:
        letter = text[place]
        if letter == "\n":
            line += 1
        if letter == "-" and text.startswith("--", place):
            end = text.find("\n", place)
            place = length if end < 0 else end
            continue
        if letter == "/" and text.startswith("/*", place):
            end = comment_end(text, place)
            line += text.count("\n", place, end)
            buffer.append(" ")
            place = end
            continue
        if letter in "'\"":
            escapes = letter == "'" and place > 0 and text[place - 1] in "eE" and not (place > 1 and word(text[place - 2]))
            end = quote_end(text, place, escapes)
        elif letter == "$" and (match := re.compile(r"\$([A-Za-z_\x80-\uffff][\w\x80-\uffff]*)?\$").match(text, place)) \
                and not (place > 0 and word(text[place - 1])):
            end = text.find(match.group(), match.end())
            end = length if end < 0 else end + len(match.group())
        else:
            end = place + 1
        if end > place + 1:
            first = first or line
            buffer.append(text[place:end])
            line += text.count("\n", place, end)
            place = end
            continue
        if letter == "\\":
            end = text.find("\n", place)
            end = length if end < 0 else end
            rest = text[place + 1:end]
            name = re.match(r"[A-Za-z_?!]+|;|\\|", rest).group()
            arguments = rest[len(name):].strip()
            if name == ";":
                buffer.append(";")
                place += 2
                continue
            if name == "\\":
                place += 3
                continue
            if name in SENDERS:
                flush((name, arguments))
            else:
                if buffer and "".join(buffer).strip() and name == "r":
                    buffer, first = [], None
                found.append(Command(name, arguments, line))
            place = end
            continue
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth = max(0, depth - 1)
        if letter.isalpha() and not (place > 0 and word(text[place - 1])):
            match = re.compile(r"\w+").match(text, place).group()
            lower = match.lower()
            before = "".join(buffer).lower()
            if re.match(r"\s*create\b", before) and re.search(r"\b(function|procedure)\b", before):
                if lower in ("begin", "case"):
                    blocks += 1
                elif lower == "end" and blocks:
                    blocks -= 1
            first = first or line
            buffer.append(match)
            place += len(match)
            continue
        if letter == ";" and depth == 0 and blocks == 0:
            buffer.append("")
            flush()
            place += 1
            statement = found[-1] if found else None
            if isinstance(statement, Statement) and COPY_IN.match(statement.text):
                end = text.find("\n", place)
                data_end = text.find("\n\\.", end)
                data_end = length if data_end < 0 else data_end + 1
                statement.copy = text[end + 1:data_end]
                line += text.count("\n", place, data_end)
                place = text.find("\n", data_end)
                place = length if place < 0 else place
            continue
        if not letter.isspace():
            first = first or line
        buffer.append(letter)
        place += 1
    if "".join(buffer).strip():
        flush()
    return [step for step in found if not isinstance(step, Statement) or step.text]


def word(letter):
    return letter.isalnum() or letter in "_$"


def comment_end(text, place):
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, place):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)


def quote_end(text, place, escapes):
    quote, at = text[place], place + 1
    while at < len(text):
        if escapes and text[at] == "\\":
            at += 2
        elif text[at] == quote:
            if text.startswith(quote * 2, at):
                at += 2
            else:
                return at + 1
        else:
            at += 1
    return len(text)


class Variables:
    """Variables of psql."""

    def __init__(self, values):
        self.values = dict(values)

    def set(self, rest):
        parts = self.words(rest)
        if parts:
            self.values[parts[0]] = "".join(parts[1:])

    def words(self, rest):
        """The words of a command, with variables put in."""
        found = []
        for match in re.finditer(r"""(?:'(?:[^']|'')*'|:'\w+'|:"\w+"|:\w+|[^\s'])+""", rest):
            text = self.put_into(match.group())
            found.append(re.sub(r"'((?:[^']|'')*)'", lambda m: m.group(1).replace("''", "'"), text))
        return found

    def put_into(self, text):
        pattern = re.compile(r"""'(?:[^'\\]|''|\\.)*'|"[^"]*"|\$(\w*)\$.*?\$\1\$|(?<![:\w]):(?:'(\w+)'|"(\w+)"|([A-Za-z_]\w*))""",
                             re.S)

        def value(match):
            name = match.group(2) or match.group(3) or match.group(4)
            if name is None or name not in self.values:
                return match.group()
            found = self.values[name]
            if match.group(2):
                return "'" + found.replace("'", "''") + "'"
            return '"' + found.replace('"', '""') + '"' if match.group(3) else found

        return pattern.sub(value, text)
