//! The tables whose rows a table with partitions has, and which of them a condition leaves out.
//!
//! A member is left out where no row of its partition can fulfil a comparison of a column of the key with a constant.
//! A condition that is not understood leaves nothing out.

use std::sync::Arc;

use lodestone_sql_types::op::{self, Comparison};
use lodestone_sql_types::{Datum, Type};

use super::{Expr, Node};
use crate::catalog::family::{Bound, Limit, PartitionKey, Strategy};

/// The rows of one of the tables.
#[derive(Clone, Debug)]
pub struct Member {
    pub node: Node,
    /// The bounds of its rows, one for each level of partitions.
    pub limits: Vec<Limits>,
}

/// The bound of a partition.
#[derive(Clone, Debug)]
pub struct Limits {
    pub key: Arc<PartitionKey>,
    /// The columns of the whole table that are the key; `None`: an expression.
    pub columns: Vec<Option<usize>>,
    pub bound: Bound<Datum>,
    /// Those of the other partitions, if this one is the default.
    pub others: Vec<Bound<Datum>>,
}

/// A comparison of a column with a constant.
struct Known<'c> {
    column: usize,
    comparison: Comparison,
    value: &'c Datum,
    ty: Type,
}

fn known(condition: &Expr) -> Option<Known<'_>> {
    let Expr::Compare(comparison, ty, one, two) = condition else { return None };
    let (column, comparison, value) = match (&**one, &**two) {
        (Expr::Column { depth: 0, index }, Expr::Const(value)) => (*index, *comparison, value),
        (Expr::Const(value), Expr::Column { depth: 0, index }) => (*index, comparison.flipped(), value),
        _ => return None,
    };
    (!value.is_null()).then_some(Known { column, comparison, value, ty: *ty })
}

/// Whether values are compared in the same way as those of the key.
fn is_same_order(ty: Type, key: Type) -> bool {
    ty == key
        || ty.is_integer() && key.is_integer()
        || ty.is_text() && key.is_text() && ty != Type::Bpchar && key != Type::Bpchar
}

impl Limits {
    /// Whether no row of the partition fulfils all conditions, which are over the columns of the whole table.
    pub fn exclude(&self, conditions: &[Expr]) -> bool {
        let known: Vec<Known<'_>> = conditions.iter().filter_map(known).collect();
        let of = |place: usize| {
            let (column, ty) = (self.columns[place], self.key.keys[place].ty);
            known.iter().filter(move |known| Some(known.column) == column && is_same_order(known.ty, ty))
        };
        let equal =
            |place: usize| of(place).find(|known| known.comparison == Comparison::Equal).map(|known| known.value);
        let values: Option<Vec<Datum>> = (0..self.columns.len()).map(|place| equal(place).cloned()).collect();
        if let Some(values) = values {
            return match &self.bound {
                Bound::Default => self.others.iter().any(|other| self.key.fits(other, &values)),
                bound => !self.key.fits(bound, &values),
            };
        }
        match (&self.bound, self.key.strategy) {
            (Bound::Range(from, to), Strategy::Range) => of(0).any(|known| self.is_beyond(known, (&from[0], &to[0]))),
            _ => false,
        }
    }

    /// Whether a comparison is false for all values between the first limits.
    fn is_beyond(&self, known: &Known<'_>, (from, to): (&Limit<Datum>, &Limit<Datum>)) -> bool {
        let ty = self.key.keys[0].ty;
        let order = |limit: &Limit<Datum>| match limit {
            Limit::Least => std::cmp::Ordering::Less,
            Limit::Most => std::cmp::Ordering::Greater,
            Limit::Value(limit) => op::order(ty, limit, known.value),
        };
        // The last value of a key of several columns may be the limit itself.
        let is_below = if self.columns.len() == 1 { order(to).is_le() } else { order(to).is_lt() };
        match known.comparison {
            Comparison::Equal => order(from).is_gt() || is_below,
            Comparison::Less => order(from).is_ge(),
            Comparison::LessOrEqual => order(from).is_gt(),
            Comparison::Greater => order(to).is_le(),
            Comparison::GreaterOrEqual => is_below,
            Comparison::NotEqual => false,
        }
    }
}

impl Member {
    /// Whether no row of it fulfils all conditions.
    pub fn is_excluded(&self, conditions: &[Expr]) -> bool {
        self.limits.iter().any(|limits| limits.exclude(conditions))
    }
}
