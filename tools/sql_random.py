#!/usr/bin/env python3
"""Random statements on Lodestone and on PostgreSQL 15, beside each other.

    cargo build --release --bin lodestone
    tools/sql_random.py --seed 1 --statements 2000 --postgres HOST:PORT --lodestone HOST:PORT

Both servers get the same statements: definitions with constraints, changes of rows, joins, groups, subqueries, windows,
transactions. Each answer is compared: rows, tag, and the code of an error. 0A000 of Lodestone (something that is not
built) is counted, and no difference. So is, apart from them, another of two errors of the rows of one statement, which
are tested in another order (`docs/SQL.md`): look at these when there are many. The script prints its seed, and of the
first difference the statement, both answers, and the fewest statements before it that still show it. Its exit code is
1 then.

It makes and drops tables called r0 to r3 in the databases that it is given. Use empty ones, with the locale C. `cargo
xtask judge sql random` runs it.
"""

import argparse
import random
import re
import subprocess
import sys

TYPES = ["int", "bigint", "smallint", "text", "numeric(8,2)", "boolean", "date", "double precision"]


class Column:
    def __init__(self, name, kind):
        self.name, self.kind = name, kind


class Table:
    def __init__(self, name, columns, key, unique):
        self.name, self.columns, self.key, self.unique = name, columns, key, unique


class Writer:
    """Writes statements whose types are right, mostly."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.tables = {}
        self.is_open = False
        self.savepoints = 0

    def pick(self, items):
        return self.random.choice(list(items))

    def chance(self, share):
        return self.random.random() < share

    def literal(self, kind, may_be_null=True):
        r = self.random
        if may_be_null and self.chance(0.12):
            return "null"
        if kind in ("int", "bigint"):
            return str(r.choice([0, 1, 2, 3, 5, 7, -1, -4, r.randint(-50, 50), 100000]))
        if kind == "smallint":
            return str(r.choice([0, 1, 2, -3, r.randint(-20, 20), 4]))
        if kind == "text":
            return "'" + r.choice(["", "a", "b", "ab", "abc", "x y", "Z", "a_b", "100%"]) + "'"
        if kind.startswith("numeric"):
            return r.choice(["0", "1.5", "-2.25", "3.10", "99.999", str(r.randint(-9, 9))])
        if kind == "boolean":
            return r.choice(["true", "false"])
        if kind == "date":
            return f"date '2024-0{r.randint(1, 9)}-1{r.randint(0, 9)}'"
        return r.choice(["0.5", "1.25", "-3.75", "2"]) + "::float8"

    def expr(self, kind, columns, depth=0):
        """An expression of the kind over columns, given as (text, kind)."""
        r = self.random
        fitting = [text for text, other in columns if other == kind]
        if fitting and self.chance(0.55):
            return r.choice(fitting)
        if depth > 2 or self.chance(0.3):
            return self.literal(kind)
        inner = lambda other=kind: self.expr(other, columns, depth + 1)
        if kind in ("int", "bigint"):
            return r.choice([
                lambda: f"({inner()} {r.choice('+-*')} {inner()})",
                lambda: f"({inner()} / {r.choice([1, 2, 3, -2])})",
                lambda: f"coalesce({inner()}, {inner()})",
                lambda: f"length({inner('text')})::{kind}",
                lambda: f"case when {self.condition(columns, depth + 1)} then {inner()} else {inner()} end",
                lambda: f"abs({inner()})",
                lambda: f"nullif({inner()}, {inner()})",
                lambda: f"greatest({inner()}, {inner()})",
            ])()
        if kind == "text":
            return r.choice([
                lambda: f"({inner()} || {inner()})",
                lambda: f"upper({inner()})",
                lambda: f"substring({inner()}, {r.randint(-1, 3)}, {r.randint(0, 3)})",
                lambda: f"({inner('int')})::text",
                lambda: f"replace({inner()}, 'a', 'q')",
                lambda: f"coalesce({inner()}, {inner()})",
            ])()
        if kind.startswith("numeric"):
            return r.choice([
                lambda: f"({inner()} {r.choice('+-*')} {inner()})",
                lambda: f"round({inner()}, 1)",
                lambda: f"({inner('int')})::numeric(8,2)",
            ])()
        if kind == "boolean":
            return f"({self.condition(columns, depth + 1)})"
        if kind == "date":
            return f"({inner()} + {r.randint(-40, 40)})"
        return self.literal(kind)

    def condition(self, columns, depth=0):
        r = self.random
        kind = r.choice([other for _, other in columns] or ["int"])
        one, two = self.expr(kind, columns, depth + 1), self.expr(kind, columns, depth + 1)
        forms = [f"{one} {r.choice(['=', '<>', '<', '<=', '>', '>='])} {two}"] * 4
        forms += [f"{one} is null", f"{one} is not null", f"{one} in ({two}, {self.literal(kind)})"]
        forms += [f"{one} between {two} and {self.literal(kind)}", f"{one} is distinct from {two}"]
        if kind == "text":
            forms += [f"{one} like {r.choice(['%a%', 'a_', '%', '_', 'Z'])!r}"]
        if depth < 2:
            forms += [f"({self.condition(columns, depth + 1)} {r.choice(['and', 'or'])} {self.condition(columns, depth + 1)})"]
            forms += [f"not ({self.condition(columns, depth + 1)})"]
            if self.tables and self.chance(0.4):
                inner = self.pick(self.tables.values())
                own = [(f"s.{column.name}", column.kind) for column in inner.columns]
                forms += [f"exists (select 1 from {inner.name} s where {self.condition(own + columns, 2)})"]
                column = self.pick(inner.columns)
                forms += [f"{self.expr(column.kind, columns, 2)} in (select s.{column.name} from {inner.name} s)"]
        return r.choice(forms)

    def statement(self):
        r = self.random
        if len(self.tables) < 2 or (len(self.tables) < 4 and self.chance(0.04)):
            return self.create()
        kinds = [(self.select, 34), (self.insert, 24), (self.update, 12), (self.delete, 6), (self.transaction, 8)]
        kinds += [(self.alter, 4), (self.drop, 1), (self.upsert, 6)]
        return r.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()

    def create(self):
        r = self.random
        name = next(f"r{number}" for number in range(5) if f"r{number}" not in self.tables)
        columns = [Column(f"c{number}", r.choice(TYPES)) for number in range(r.randint(2, 5))]
        parts = []
        for column in columns:
            text = f"{column.name} {column.kind}"
            if self.chance(0.15):
                text += " not null"
            if self.chance(0.2):
                text += f" default {self.literal(column.kind)}"
            if self.chance(0.12) and column.kind in ("int", "bigint"):
                text += f" check ({column.name} < {r.randint(5, 60)})"
            parts.append(text)
        key = None
        if self.chance(0.75):
            key = columns[0].name if columns[0].kind not in ("double precision", "boolean") else None
        if key:
            parts.append(f"primary key ({key})")
        unique = None
        if self.chance(0.25) and columns[-1].kind not in ("double precision", "boolean"):
            unique = columns[-1].name
            parts.append(f"unique ({columns[-1].name})")
        parents = [table for table in self.tables.values() if table.key]
        if parents and self.chance(0.5):
            parent = r.choice(parents)
            kind = next(column.kind for column in parent.columns if column.name == parent.key)
            fitting = [column for column in columns if column.kind == kind]
            if fitting:
                action = r.choice(["", " on delete cascade", " on delete set null", " on update cascade", " on delete restrict"])
                parts.append(f"foreign key ({r.choice(fitting).name}) references {parent.name} ({parent.key}){action}")
        self.tables[name] = Table(name, columns, key, unique)
        return f"create table {name} ({', '.join(parts)})"

    def rows(self, table):
        count = self.random.choice([1, 1, 2, 3, 6])
        row = lambda: "(" + ", ".join(self.literal(column.kind) for column in table.columns) + ")"
        return ", ".join(row() for _ in range(count))

    def returning(self, table):
        return " returning *" if self.chance(0.25) else ""

    def insert(self):
        table = self.pick(self.tables.values())
        if self.chance(0.15):
            other = self.pick(self.tables.values())
            columns = [(f"o.{column.name}", column.kind) for column in other.columns]
            values = ", ".join(self.expr(column.kind, columns) for column in table.columns)
            # Which row is refused first must not depend on the order in which a server keeps them.
            order = ", ".join(text for text, _ in columns)
            source = f"{other.name} o where {self.condition(columns)} order by {order}"
            return f"insert into {table.name} select {values} from {source}"
        return f"insert into {table.name} values {self.rows(table)}"

    def upsert(self):
        table = self.pick(self.tables.values())
        if not table.key or self.chance(0.3):
            return f"insert into {table.name} values {self.rows(table)} on conflict do nothing"
        column = self.pick(table.columns)
        columns = [(f"{table.name}.{c.name}", c.kind) for c in table.columns]
        columns += [(f"excluded.{c.name}", c.kind) for c in table.columns]
        value = self.expr(column.kind, columns)
        return f"insert into {table.name} values {self.rows(table)} on conflict ({table.key}) do update set {column.name} = {value}"

    def update(self):
        table = self.pick(self.tables.values())
        columns = [(column.name, column.kind) for column in table.columns]
        column = self.pick(table.columns)
        where = f" where {self.condition(columns)}" if self.chance(0.85) else ""
        if column.name in (table.key, table.unique):
            # Of several rows that move to each other's keys the order decides, which is another one here.
            where = f" where {column.name} = {self.literal(column.kind, False)}"
        return f"update {table.name} set {column.name} = {self.expr(column.kind, columns)}{where}"

    def delete(self):
        table = self.pick(self.tables.values())
        columns = [(column.name, column.kind) for column in table.columns]
        return f"delete from {table.name} where {self.condition(columns)}"

    def transaction(self):
        if not self.is_open:
            self.is_open = True
            return "begin"
        if self.chance(0.4):
            self.savepoints += 1
            return f"savepoint s{self.savepoints % 3}"
        if self.chance(0.3) and self.savepoints:
            return f"rollback to s{self.savepoints % 3}"
        self.is_open, self.savepoints = False, 0
        return self.pick(["commit", "commit", "rollback"])

    def alter(self):
        table = self.pick(self.tables.values())
        if self.is_open:
            return f"select count(*) from {table.name}"
        if self.chance(0.4) and len(table.columns) < 7:
            column = Column(f"n{self.random.randint(0, 99)}", self.pick(TYPES))
            if column.name not in [other.name for other in table.columns]:
                table.columns.append(column)
                return f"alter table {table.name} add column {column.name} {column.kind} default {self.literal(column.kind)}"
        if self.chance(0.3) and len(table.columns) > 2 and table.columns[-1].name not in (table.key, table.unique):
            column = table.columns.pop()
            return f"alter table {table.name} drop column {column.name} cascade"
        column = self.pick(table.columns)
        return f"create index on {table.name} ({column.name})"

    def drop(self):
        if self.is_open:
            return "select 1"
        table = self.pick(self.tables.values())
        del self.tables[table.name]
        return f"drop table {table.name} cascade"

    def select(self):
        r = self.random
        first = self.pick(self.tables.values())
        source = f"{first.name} a"
        columns = [(f"a.{column.name}", column.kind) for column in first.columns]
        if self.chance(0.45):
            second = self.pick(self.tables.values())
            both = columns + [(f"b.{column.name}", column.kind) for column in second.columns]
            join = r.choice(["join", "left join", "right join", "full join", "cross join"])
            pairs = [(one, two) for one, kind in columns for two, other in both[len(columns):] if kind == other]
            if join == "cross join" or not pairs:
                source += f" cross join {second.name} b"
            else:
                one, two = r.choice(pairs)
                more = f" and {self.condition(both, 1)}" if self.chance(0.2) and join != "full join" else ""
                source += f" {join} {second.name} b on {one} = {two}{more}"
            columns = both
        where = f" where {self.condition(columns)}" if self.chance(0.7) else ""
        form = r.random()
        if form < 0.3:
            keys = r.sample(columns, min(len(columns), r.randint(1, 2)))
            sums = []
            for _ in range(r.randint(1, 3)):
                text, kind = r.choice(columns)
                call = {"int": "sum", "bigint": "sum", "smallint": "avg", "boolean": "bool_or"}.get(kind, "max")
                if kind.startswith("numeric"):
                    call = "sum"
                if kind == "double precision":
                    call = "min"
                sums.append(r.choice([f"{call}({text})", f"count({text})", f"count(distinct {text})", "count(*)"]))
            names = ", ".join(text for text, _ in keys)
            having = f" having count(*) > {r.randint(0, 2)}" if self.chance(0.3) else ""
            items = f"{names}, {', '.join(sums)}"
            return self.ordered(f"select {items} from {source}{where} group by {names}{having}", len(keys) + len(sums))
        if form < 0.4:
            text, _ = r.choice(columns)
            part, _ = r.choice(columns)
            order = ", ".join(text for text, _ in columns)
            call = r.choice(["row_number()", "rank()", "count(*)", f"lag({text})", f"max({text})" if not part else "dense_rank()"])
            items = f"{order}, {call} over (partition by {part} order by {order})"
            return self.ordered(f"select {items} from {source}{where}", len(columns) + 1)
        items = [self.expr(kind, columns) for _, kind in r.sample(columns, min(len(columns), r.randint(1, 4)))]
        distinct = "distinct " if self.chance(0.15) else ""
        return self.ordered(f"select {distinct}{', '.join(items)} from {source}{where}", len(items))

    def ordered(self, text, width):
        text += " order by " + ", ".join(str(number + 1) for number in range(width))
        return text + (f" limit {self.random.randint(0, 9)}" if self.chance(0.2) else "")


class Server:
    """One psql for the whole conversation, or a new one for a replay."""

    def __init__(self, place, user, database):
        host, _, port = place.rpartition(":")
        self.connection = ["-h", host, "-p", port, "-U", user, database]

    def answers(self, statements):
        script = "set client_min_messages = error;\nset default_transaction_isolation = 'read committed';\n"
        for number, text in enumerate(statements):
            script += f"\\echo =={number}==\n{text};\n"
        command = ["psql", "-X", "-A", "-t", "-P", "null=NULL", "-v", "VERBOSITY=sqlstate", *self.connection]
        run = subprocess.run(command, input=script, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        found = re.split(r"^==\d+==\n", run.stdout, flags=re.M)[1:]
        return [self.plain(answer) for answer in found]

    @staticmethod
    def plain(answer):
        lines = []
        for line in answer.splitlines():
            message = re.match(r"(?:psql:.*?: )?(ERROR|WARNING|NOTICE):  (\w{5})", line)
            if not message:
                lines.append(line)
            elif message[1] == "ERROR":
                lines.append(f"ERROR {message[2]}")
        return lines


CLEAN = ["rollback"] + [f"drop table if exists r{number} cascade" for number in range(5)]


def unsupported(answer):
    return answer[:1] == ["ERROR 0A000"]


def other_error(statement, left, right):
    """Whether a statement told another error of its rows, which it computes and tests in another order."""
    is_of_rows = all(re.fullmatch(r"ERROR 2[23]\w{3}", "".join(answer)) for answer in (left, right))
    return is_of_rows and re.match(r"(insert into \w+ select|update|delete) ", statement)


def compare(servers, statements):
    """The number of the first difference, if there is one, and both answers."""
    one, two = [server.answers(CLEAN + statements)[len(CLEAN):] for server in servers]
    refused = others = 0
    for number, (left, right) in enumerate(zip(one, two)):
        if unsupported(right):
            refused += 1
        elif left != right and other_error(statements[number], left, right):
            others += 1
        elif left != right:
            return number, left, right, (refused, others)
    if len(one) != len(two):
        return min(len(one), len(two)), one[len(two):], two[len(one):], (refused, others)
    return None, None, None, (refused, others)


def shrink(servers, statements, wrong):
    """The fewest statements that still end with a difference."""
    kept = statements
    size = max(1, len(kept) // 2)
    while size:
        place = 0
        while place < len(kept):
            shorter = kept[:place] + kept[place + size:]
            number, *_ = compare(servers, shorter + [wrong])
            if number is not None:
                kept, wrong = (shorter + [wrong])[:number], (shorter + [wrong])[number]
            else:
                place += size
        size //= 2
    return kept, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--statements", type=int, default=1000)
    parser.add_argument("--postgres", required=True, help="HOST:PORT of PostgreSQL 15; a folder is a unix socket")
    parser.add_argument("--lodestone", required=True, help="HOST:PORT of `lodestone serve`")
    parser.add_argument("--user", default="postgres", help="the user of PostgreSQL")
    parser.add_argument("--own-user", default="root", help="the user of Lodestone")
    parser.add_argument("--database", default="postgres")
    parser.add_argument("--own-database", default="postgres")
    arguments = parser.parse_args()
    writer = Writer(arguments.seed)
    statements = [writer.statement() for _ in range(arguments.statements)]
    servers = [Server(arguments.postgres, arguments.user, arguments.database)]
    servers.append(Server(arguments.lodestone, arguments.own_user, arguments.own_database))
    number, left, right, (refused, others) = compare(servers, statements)
    if number is None:
        told = f"{refused} not built, {others} with another error of their rows, 0 differences"
        print(f"seed {arguments.seed}: {len(statements)} statements, {told}")
        return 0
    kept, wrong = shrink(servers, statements[:number], statements[number])
    _, left, right, _ = compare(servers, kept + [wrong])
    print(f"seed {arguments.seed}: statement {number} differs. The fewest statements that show it:")
    print("".join(f"{text};\n" for text in kept + [wrong]), end="")
    print(f"PostgreSQL: {left}\nLodestone:  {right}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
