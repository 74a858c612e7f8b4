//! Statements that differ in integers only share a plan.
//!
//! Programs write values into their statements: `SELECT b FROM t WHERE k = 7`. The parser and the binder cost more than
//! such a statement. So its integers are taken out of the text, and the rest is looked up. The plan has a parameter of
//! type `integer` in the place of each, which means the same: an integer of so few digits has that type.
//!
//! 1. [`Pattern::of`] takes integers of at most 9 digits out. Texts with quotes, comments or letters beyond ASCII have
//!    no pattern: where an integer begins there needs the parser.
//! 2. The first statement of a pattern is parsed as always. [`substitute`] replaces the integers in its tree. They must
//!    all be found in conditions, assignments and rows of values. Elsewhere an integer may mean something else: a
//!    column in ORDER BY, the length of a type. Then the pattern is noted as one that has no plan.

use lodestone_sql_types::Datum;
use smallvec::SmallVec;

use crate::parse::ast::{Body, Distinct, Expr, Literal, NOWHERE, Query, Source, Statement, TableRef};

/// Longest text of a pattern.
const TEXT_BYTES_MAX: usize = 1024;
/// Most digits of an integer that is taken out: all of these fit in `integer`.
const DIGITS_MAX: usize = 9;

/// A text without its integers.
#[derive(Debug)]
pub struct Pattern {
    /// The text, with a letter that no statement has in the place of each integer.
    pub key: String,
    /// Their values.
    pub values: SmallVec<[Datum; 8]>,
    /// Their places in the text, from 1 on, and their digits.
    places: SmallVec<[(usize, usize); 8]>,
}

impl Pattern {
    /// The pattern of `text`. `None`: it has none, or no integers.
    pub fn of(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() > TEXT_BYTES_MAX {
            return None;
        }
        let mut found =
            Self { key: String::with_capacity(bytes.len()), values: SmallVec::new(), places: SmallVec::new() };
        let (mut place, mut copied) = (0, 0);
        while let Some(byte) = bytes.get(place) {
            match *byte {
                b'\'' | b'"' | b'$' | b'/' | b'\\' | 0..=8 | 128.. => return None,
                b'-' if bytes.get(place + 1) == Some(&b'-') => return None,
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'.' => {
                    // Digits of a name, or of a fraction.
                    place += word(&bytes[place..]);
                    continue;
                }
                b'0'..=b'9' => {
                    let length = word(&bytes[place..]);
                    let run = &bytes[place..place + length];
                    if length <= DIGITS_MAX && run.iter().all(u8::is_ascii_digit) {
                        found.key.push_str(&text[copied..place]);
                        found.key.push('\u{1}');
                        let value = run.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
                        found.values.push(Datum::Int(value));
                        found.places.push((place + 1, length));
                        copied = place + length;
                    }
                    place += length;
                    continue;
                }
                _ => place += 1,
            }
        }
        found.key.push_str(&text[copied..]);
        (!found.values.is_empty()).then_some(found)
    }
}

/// Letters, digits and dots at the beginning.
fn word(bytes: &[u8]) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    bytes.iter().take_while(|byte| is_part(byte)).count()
}

/// The statement with parameters in place of the integers of its pattern. `None`: they are not all where they can be
/// replaced.
pub fn substitute(mut statement: Statement, pattern: &Pattern) -> Option<Statement> {
    let mut work = Substitution { pattern, found: SmallVec::new(), is_right: true };
    match &mut statement {
        Statement::Query(query) => work.query(query)?,
        Statement::Insert { source: Source::Query(query), .. } => match &mut query.body {
            Body::Values(rows) if is_plain(query.with.is_empty(), &query.order_by, &query.limit, &query.offset) => {
                rows.iter_mut().flatten().for_each(|expr| work.expr(expr));
            }
            _ => return None,
        },
        Statement::Update { set, filter, .. } => {
            set.iter_mut().filter_map(|(_, expr)| expr.as_mut()).for_each(|expr| work.expr(expr));
            filter.iter_mut().for_each(|expr| work.expr(expr));
        }
        Statement::Delete { filter, .. } => filter.iter_mut().for_each(|expr| work.expr(expr)),
        _ => return None,
    }
    (work.is_right && work.found.len() == pattern.places.len()).then_some(statement)
}

fn is_plain<T>(without: bool, order: &[T], limit: &Option<Expr>, offset: &Option<Expr>) -> bool {
    without && order.is_empty() && limit.is_none() && offset.is_none()
}

struct Substitution<'p> {
    pattern: &'p Pattern,
    /// The numbers of the integers that were replaced. The tree may have one more than once: a bound of BETWEEN
    /// SYMMETRIC.
    found: SmallVec<[usize; 8]>,
    is_right: bool,
}

impl Substitution<'_> {
    /// The condition of a query of one table.
    fn query(&mut self, query: &mut Query) -> Option<()> {
        if !is_plain(query.with.is_empty(), &query.order_by, &query.limit, &query.offset) {
            return None;
        }
        let Body::Select(select) = &mut query.body else { return None };
        let is_simple = select.distinct == Distinct::All && select.group_by.is_empty() && select.having.is_none();
        if !is_simple || !matches!(select.from[..], [TableRef::Table { .. }]) {
            return None;
        }
        select.filter.iter_mut().for_each(|expr| self.expr(expr));
        Some(())
    }

    fn expr(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Literal(Literal::Number(text), at) => {
                let Some(number) = self.pattern.places.iter().position(|(place, _)| *place == at.0) else { return };
                let length = self.pattern.places[number].1;
                let (is_negative, digits) = (text.starts_with('-'), text.trim_start_matches('-'));
                // A number that the parser has put together from several tokens is no integer of the pattern.
                self.is_right &= digits.len() == length;
                if !self.found.contains(&number) {
                    self.found.push(number);
                }
                let parameter = Expr::Parameter(number + 1, NOWHERE);
                *expr = if is_negative { Expr::Negate(Box::new(parameter), NOWHERE) } else { parameter };
            }
            Expr::Binary { left, right, .. } | Expr::And(left, right) | Expr::Or(left, right) => {
                self.expr(left);
                self.expr(right);
            }
            Expr::Not(inner) | Expr::Negate(inner, _) => self.expr(inner),
            Expr::InList { expr, list, .. } => {
                self.expr(expr);
                list.iter_mut().for_each(|expr| self.expr(expr));
            }
            Expr::Between { expr, low, high, .. } => {
                self.expr(expr);
                self.expr(low);
                self.expr(high);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn substituted(text: &str) -> Option<Statement> {
        let pattern = Pattern::of(text)?;
        let statement = parse(text).expect("a statement").pop().expect("one");
        substitute(statement, &pattern)
    }

    #[test]
    fn integers_are_taken_out_of_texts() {
        let found = Pattern::of("select a1 from t2 where k = 7 and b<-15;").expect("two integers");
        assert_eq!(found.key, "select a1 from t2 where k = \u{1} and b<-\u{1};");
        assert_eq!(found.values[..], [Datum::Int(7), Datum::Int(15)]);
        let found = Pattern::of("select 1234567890, 1.5, 2e3, .5, 999999999").expect("one");
        assert_eq!(found.key, "select 1234567890, 1.5, 2e3, .5, \u{1}");
        for text in
            ["select 'a' where k = 1", "select 1 -- 2", "select $1 + 1", "select 1 /* 2 */", "select a", "\u{e4} = 1"]
        {
            assert!(Pattern::of(text).is_none(), "{text}");
        }
    }

    #[test]
    fn parameters_take_the_place_of_integers() {
        let same = |one: &str, other: &str| {
            assert_eq!(substituted(one), parse(other).expect("a statement").pop(), "{one}");
        };
        same("select a from t where k = 7", "select a from t where k = $1");
        same(
            "update t set a = a + -5 where k = 7 and b in (1, 2)",
            "update t set a = a + -$1 where k = $2 and b in ($3, $4)",
        );
        same("insert into t values (1, 2, -3, now())", "insert into t values ($1, $2, -$3, now())");
        same("delete from t where k between 1 and 2", "delete from t where k between $1 and $2");
    }

    #[test]
    fn integers_that_mean_something_else_stay() {
        for text in [
            "select a, b from t order by 1",
            "select a from t limit 5",
            "select 7 from t",
            "select a from t group by 1",
            "select a from t where k = 1::smallint",
            "select a from t where k = abs(1)",
            "select a from t, u where k = 1",
            "select cast(a as varchar(3)) from t where k = 1",
            "create table t (k char(3))",
        ] {
            assert_eq!(substituted(text), None, "{text}");
        }
    }
}
