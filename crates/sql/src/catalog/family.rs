//! Tables above and below each other: partitions, and INHERITS.
//!
//! A partitioned table is a table of the engine without rows, whose heirs are its partitions. A table that others
//! inherit from has rows of its own. Columns are the same by their names: an heir may have them in another order.
//!
//! The bound of a partition is a part of the properties of the partition, as texts. [`Family`] has the bounds as
//! values, and chooses the partition of a row.

use std::cmp::Ordering;
use std::sync::Arc;

use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, hash, op, text};

use super::{ColumnDef, TableDef, object};
pub use crate::parse::ast::Strategy;
use crate::plan::Expr;

impl Strategy {
    /// Its word in PARTITION BY.
    pub fn word(self) -> &'static str {
        match self {
            Self::List => "LIST",
            Self::Range => "RANGE",
            Self::Hash => "HASH",
        }
    }

    /// Its letter in the catalog.
    pub fn letter(self) -> &'static str {
        match self {
            Self::List => "l",
            Self::Range => "r",
            Self::Hash => "h",
        }
    }

    fn of_letter(letter: &str) -> Option<Self> {
        [Self::List, Self::Range, Self::Hash].into_iter().find(|one| one.letter() == letter)
    }
}

/// PARTITION BY, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionNote {
    pub strategy: Strategy,
    /// The expressions.
    pub keys: Vec<String>,
}

impl PartitionNote {
    pub(super) fn text(&self) -> String {
        let keys = self.keys.iter().map(String::as_str);
        object::join(&[self.strategy.letter()].into_iter().chain(keys).collect::<Vec<_>>())
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        let parts = object::split(text)?;
        let (strategy, keys) = parts.split_first()?;
        Some(Self { strategy: Strategy::of_letter(strategy)?, keys: keys.to_vec() })
    }
}

/// A limit of a range of partitions.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit<V> {
    Least,
    Value(V),
    Most,
}

/// The rows of a partition.
#[derive(Clone, Debug, PartialEq)]
pub enum Bound<V> {
    Default,
    Hash {
        modulus: u64,
        remainder: u64,
    },
    /// `None` is the null.
    List(Vec<Option<V>>),
    Range(Vec<Limit<V>>, Vec<Limit<V>>),
}

/// A table above another one. Partitions have a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct ParentNote {
    pub oid: u32,
    pub bound: Option<Bound<String>>,
}

impl Bound<String> {
    pub(super) fn text(&self) -> String {
        let value = |value: &Option<String>| value.as_ref().map_or_else(|| "n".to_owned(), |text| format!("v{text}"));
        let limit = |limit: &Limit<String>| match limit {
            Limit::Least => "-".to_owned(),
            Limit::Most => "+".to_owned(),
            Limit::Value(text) => format!("v{text}"),
        };
        let parts: Vec<String> = match self {
            Self::Default => vec!["d".into()],
            Self::Hash { modulus, remainder } => vec!["h".into(), modulus.to_string(), remainder.to_string()],
            Self::List(list) => ["l".to_owned()].into_iter().chain(list.iter().map(value)).collect(),
            Self::Range(from, to) => ["r".to_owned()].into_iter().chain(from.iter().chain(to).map(limit)).collect(),
        };
        object::join(&parts.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        let parts = object::split(text)?;
        let (kind, rest) = parts.split_first()?;
        let limit = |part: &String| match part.as_str() {
            "-" => Some(Limit::Least),
            "+" => Some(Limit::Most),
            other => other.strip_prefix('v').map(|text| Limit::Value(text.to_owned())),
        };
        let value = |part: &String| match part.as_str() {
            "n" => Some(None),
            other => other.strip_prefix('v').map(|text| Some(text.to_owned())),
        };
        Some(match kind.as_str() {
            "d" => Self::Default,
            "h" => Self::Hash { modulus: rest.first()?.parse().ok()?, remainder: rest.get(1)?.parse().ok()? },
            "l" => Self::List(rest.iter().map(value).collect::<Option<_>>()?),
            "r" => {
                let (from, to) = rest.split_at(rest.len() / 2);
                let limits = |list: &[String]| list.iter().map(limit).collect::<Option<_>>();
                Self::Range(limits(from)?, limits(to)?)
            }
            _ => return None,
        })
    }

    /// The bound with values of the types of a key.
    ///
    /// # Errors
    /// XX001 for a text that is no value of its type.
    pub fn read(&self, key: &PartitionKey) -> Result<Bound<Datum>> {
        let bad = || Error::new(SqlState::DATA_CORRUPTED, "the bound of a partition cannot be read");
        let value = |place: usize, text: &String| match key.keys.get(place) {
            Some(part) => text::decode(part.ty, text).map_err(|_| bad()),
            None => Err(bad()),
        };
        let limits = |list: &[Limit<String>]| -> Result<Vec<Limit<Datum>>> {
            let one = |(place, limit): (usize, &Limit<String>)| {
                Ok(match limit {
                    Limit::Least => Limit::Least,
                    Limit::Most => Limit::Most,
                    Limit::Value(text) => Limit::Value(value(place, text)?),
                })
            };
            list.iter().enumerate().map(one).collect()
        };
        Ok(match self {
            Self::Default => Bound::Default,
            Self::Hash { modulus, remainder } => Bound::Hash { modulus: *modulus, remainder: *remainder },
            Self::List(list) => {
                let one = |text: &Option<String>| text.as_ref().map(|text| value(0, text)).transpose();
                Bound::List(list.iter().map(one).collect::<Result<_>>()?)
            }
            Self::Range(from, to) => Bound::Range(limits(from)?, limits(to)?),
        })
    }

    /// As `PostgreSQL` shows it.
    pub fn shown(&self, key: &PartitionKey) -> String {
        let value = |place: usize, text: &str| match key.keys.get(place).map(|part| part.ty) {
            Some(Type::Bool) => if text == "t" { "true" } else { "false" }.to_owned(),
            Some(ty) if ty.is_integer() || matches!(ty, Type::Numeric | Type::Float4 | Type::Float8 | Type::Oid) => {
                if text.starts_with('-') || text.parse::<f64>().is_ok_and(|number| !number.is_finite()) {
                    format!("'{text}'")
                } else {
                    text.to_owned()
                }
            }
            _ => format!("'{}'", text.replace('\'', "''")),
        };
        let limits = |list: &[Limit<String>]| {
            let one = |(place, limit): (usize, &Limit<String>)| match limit {
                Limit::Least => "MINVALUE".to_owned(),
                Limit::Most => "MAXVALUE".to_owned(),
                Limit::Value(text) => value(place, text),
            };
            list.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Default => "DEFAULT".into(),
            Self::Hash { modulus, remainder } => {
                format!("FOR VALUES WITH (modulus {modulus}, remainder {remainder})")
            }
            Self::List(list) => {
                let one = |text: &Option<String>| text.as_ref().map_or_else(|| "NULL".into(), |text| value(0, text));
                format!("FOR VALUES IN ({})", list.iter().map(one).collect::<Vec<_>>().join(", "))
            }
            Self::Range(from, to) => format!("FOR VALUES FROM ({}) TO ({})", limits(from), limits(to)),
        }
    }
}

/// A part of a partition key.
#[derive(Clone, Debug)]
pub struct KeyPart {
    pub text: String,
    /// The column that it is. `None`: an expression.
    pub column: Option<usize>,
    /// Over the columns of the table.
    pub expr: Expr,
    pub ty: Type,
    pub modifier: i32,
}

/// The values that choose the partition of a row.
#[derive(Clone, Debug)]
pub struct PartitionKey {
    pub strategy: Strategy,
    pub keys: Vec<KeyPart>,
}

impl PartitionKey {
    /// As `PostgreSQL` shows it.
    pub fn shown(&self, columns: &[ColumnDef]) -> String {
        let part = |part: &KeyPart| match part.column {
            Some(column) => lodestone_sql_types::func::quote_ident(&columns[column].name),
            None if part.text.ends_with(')') && part.text.starts_with(|letter: char| letter.is_alphabetic()) => {
                part.text.clone()
            }
            None if part.text.starts_with('(') => part.text.clone(),
            None => format!("({})", part.text),
        };
        let keys: Vec<String> = self.keys.iter().map(part).collect();
        format!("{} ({})", self.strategy.word(), keys.join(", "))
    }

    /// As it is stored.
    pub fn note(&self, columns: &[ColumnDef]) -> PartitionNote {
        let text = |part: &KeyPart| match part.column {
            Some(column) => lodestone_sql_types::func::quote_ident(&columns[column].name),
            None => part.text.clone(),
        };
        PartitionNote { strategy: self.strategy, keys: self.keys.iter().map(text).collect() }
    }

    /// The order of the values of a key and of limits.
    pub fn order(&self, values: &[Datum], limits: &[Limit<Datum>]) -> Ordering {
        for ((part, value), limit) in self.keys.iter().zip(values).zip(limits) {
            let found = match limit {
                Limit::Least => Ordering::Greater,
                Limit::Most => Ordering::Less,
                Limit::Value(other) => op::order(part.ty, value, other),
            };
            if found.is_ne() {
                return found;
            }
        }
        Ordering::Equal
    }

    /// The order of two lists of limits.
    pub fn order_limits(&self, one: &[Limit<Datum>], two: &[Limit<Datum>]) -> Ordering {
        for ((part, one), two) in self.keys.iter().zip(one).zip(two) {
            let found = match (one, two) {
                (Limit::Value(one), Limit::Value(two)) => op::order(part.ty, one, two),
                // The limits after an infinite one do not count.
                (Limit::Least, Limit::Least) | (Limit::Most, Limit::Most) => return Ordering::Equal,
                (Limit::Least, _) | (_, Limit::Most) => Ordering::Less,
                (_, Limit::Least) | (Limit::Most, _) => Ordering::Greater,
            };
            if found.is_ne() {
                return found;
            }
        }
        Ordering::Equal
    }

    /// Whether rows with these values are in a partition with this bound. The default one has none of its own.
    pub fn fits(&self, bound: &Bound<Datum>, values: &[Datum]) -> bool {
        match bound {
            Bound::Default => false,
            Bound::Hash { modulus, remainder } => {
                let row = hash::of_row(self.keys.iter().map(|part| part.ty).zip(values));
                row.checked_rem(*modulus) == Some(*remainder)
            }
            Bound::List(list) => list.iter().any(|own| match (own, &values[0]) {
                (None, value) => value.is_null(),
                (Some(_), Datum::Null) => false,
                (Some(own), value) => op::order(self.keys[0].ty, own, value).is_eq(),
            }),
            Bound::Range(from, to) => {
                !values.iter().any(Datum::is_null) && self.order(values, from).is_ge() && self.order(values, to).is_lt()
            }
        }
    }
}

/// A table below another one.
#[derive(Clone, Debug)]
pub struct Heir {
    pub table: Arc<TableDef>,
    /// `None`: it inherits.
    pub bound: Option<Bound<Datum>>,
    /// For each column of the table above, the column of this one.
    pub map: Vec<usize>,
}

/// The bound of a table below another one; the inner `None`: it inherits. `None`: it is no partition of the table.
///
/// # Errors
/// XX001.
pub(super) fn bound_of(above: &TableDef, parent: &ParentNote) -> Result<Option<Option<Bound<Datum>>>> {
    Ok(match (&above.partition_by, &parent.bound) {
        (Some(key), Some(bound)) => Some(Some(bound.read(key)?)),
        (None, None) => Some(None),
        _ => None,
    })
}

/// The tables below a table.
#[derive(Clone, Debug, Default)]
pub struct Family {
    pub key: Option<Arc<PartitionKey>>,
    pub heirs: Vec<Heir>,
}

impl Family {
    /// The partition of a row whose key has these values.
    pub fn partition(&self, values: &[Datum]) -> Option<&Heir> {
        let key = self.key.as_ref()?;
        let own = self.heirs.iter().find(|heir| heir.bound.as_ref().is_some_and(|bound| key.fits(bound, values)));
        own.or_else(|| self.heirs.iter().find(|heir| heir.bound == Some(Bound::Default)))
    }

    /// Puts the heirs into their order: that of their bounds, or of their numbers.
    pub(super) fn sort(&mut self) {
        let Some(key) = self.key.clone() else {
            self.heirs.sort_by_key(|heir| heir.table.oid);
            return;
        };
        let least = |list: &[Option<Datum>]| {
            list.iter().flatten().min_by(|one, two| op::order(key.keys[0].ty, one, two)).cloned()
        };
        self.heirs.sort_by(|one, two| match (&one.bound, &two.bound) {
            (Some(Bound::Range(one, _)), Some(Bound::Range(two, _))) => key.order_limits(one, two),
            (Some(Bound::List(one)), Some(Bound::List(two))) => match (least(one), least(two)) {
                (Some(one), Some(two)) => op::order(key.keys[0].ty, &one, &two),
                (one, two) => two.is_some().cmp(&one.is_some()),
            },
            (
                Some(Bound::Hash { modulus, remainder }),
                Some(Bound::Hash { modulus: other, remainder: other_remainder }),
            ) => (modulus, remainder).cmp(&(other, other_remainder)),
            (one, two) => (*one == Some(Bound::Default)).cmp(&(*two == Some(Bound::Default))),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Limit, PartitionNote, Strategy};

    #[test]
    fn texts_come_back() {
        let value = |text: &str| Limit::Value(text.to_owned());
        for bound in [
            Bound::Default,
            Bound::Hash { modulus: 4, remainder: 3 },
            Bound::List(vec![Some("a".into()), None, Some(String::new())]),
            Bound::Range(vec![Limit::Least, value("-")], vec![Limit::Most, value("+")]),
        ] {
            assert_eq!(Bound::of_text(&bound.text()), Some(bound));
        }
        let note = PartitionNote { strategy: Strategy::List, keys: vec!["lower(a)".into()] };
        assert_eq!(PartitionNote::of_text(&note.text()), Some(note));
        assert_eq!(Bound::of_text("1:x"), None);
    }
}
