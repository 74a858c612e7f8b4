//! `pg_operator`: the operators of PostgreSQL 15 that statements can use here.
//!
//! `operators.txt` has a line for each: its number, name and kind, the types of its sides and of its result, its
//! commutator and negator, and whether merges and hashes use it. `tools/sql_operators.py` writes it, and tries each.
//! The functions of operators have no numbers, so `oprcode` is empty.

use lodestone_sql_types::func::Session;
use lodestone_sql_types::{Datum, Type};

use super::{OWNER, PG_CATALOG, int, row, text};
use crate::catalog::Catalog;
use crate::run::Row;

pub const OPERATOR: &[(&str, Type)] = &[
    ("oid", Type::Oid),
    ("oprname", Type::Name),
    ("oprnamespace", Type::Oid),
    ("oprowner", Type::Oid),
    ("oprkind", Type::Char),
    ("oprcanmerge", Type::Bool),
    ("oprcanhash", Type::Bool),
    ("oprleft", Type::Oid),
    ("oprright", Type::Oid),
    ("oprresult", Type::Oid),
    ("oprcom", Type::Oid),
    ("oprnegate", Type::Oid),
    ("oprcode", Type::Regproc),
    ("oprrest", Type::Regproc),
    ("oprjoin", Type::Regproc),
];

pub fn operators(_: &Catalog, _: &dyn Session) -> Vec<Row> {
    include_str!("operators.txt").lines().filter_map(operator).collect()
}

fn operator(line: &str) -> Option<Row> {
    let parts: Vec<&str> = line.split(' ').collect();
    let [oid, name, kind, left, right, result, commutator, negator, merges, hashes] = parts[..] else { return None };
    let number = |text: &str| text.parse::<i64>().map(int).ok();
    let values = [
        ("oid", number(oid)?),
        ("oprname", text(name)),
        ("oprnamespace", int(PG_CATALOG)),
        ("oprowner", int(OWNER)),
        ("oprkind", text(kind)),
        ("oprcanmerge", Datum::Bool(merges == "t")),
        ("oprcanhash", Datum::Bool(hashes == "t")),
        ("oprleft", number(left)?),
        ("oprright", number(right)?),
        ("oprresult", number(result)?),
        ("oprcom", number(commutator)?),
        ("oprnegate", number(negator)?),
    ];
    Some(row(OPERATOR, &values))
}

#[cfg(test)]
mod tests {
    use super::operator;

    #[test]
    fn every_line_is_an_operator() {
        assert!(include_str!("operators.txt").lines().all(|line| operator(line).is_some()));
    }
}
