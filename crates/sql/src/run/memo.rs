//! Answers of subqueries by the values of the rows around them, so that equal values do not run them again.
//!
//! A subquery that names a value of a row around it has the same answer while that value is the same. It may name a
//! row further out than the one at hand, or a column with few values: `PostgreSQL` has parameters and its node Memoize
//! for these. Few answers are kept, and a memo that does not help is given up.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use lodestone_sql_types::Datum;

use super::Env;
use super::subquery::Kept;
use crate::plan::{Expr, Node};

/// How much is kept: answers, and values that others are looked for in. Beyond that all is forgotten.
const WEIGHT_MAX: usize = 10_000;
/// Longest key and answer that are kept.
const BYTES_MAX: usize = 1024;
/// Lookups after which a memo must have helped.
const TRIAL: u32 = 500;
/// One of so many lookups must have found something by then.
const HITS_MIN: u32 = 8;

/// The answers of one subquery in a statement.
pub struct Memo {
    /// The values that it names: how many rows further out than the one at hand, and the column.
    columns: Vec<(usize, usize)>,
    answers: RefCell<HashMap<Vec<u8>, Kept>>,
    weight: Cell<usize>,
    lookups: Cell<u32>,
    hits: Cell<u32>,
    is_given_up: Cell<bool>,
}

impl Memo {
    /// `None`: the answer may be another one for equal values.
    pub(super) fn new(node: &Node) -> Option<Self> {
        if node.is_volatile() || node.takes_locks() {
            return None;
        }
        let mut columns = BTreeSet::new();
        node.outer_columns(&mut columns).then(|| Self {
            columns: columns.into_iter().collect(),
            answers: RefCell::default(),
            weight: Cell::new(0),
            lookups: Cell::new(0),
            hits: Cell::new(0),
            is_given_up: Cell::new(false),
        })
    }

    /// The values that the subquery names. `None`: its answer is not kept for them.
    pub(super) fn key(&self, env: &Env<'_>) -> Option<Vec<u8>> {
        if self.is_given_up.get() {
            return None;
        }
        let mut bytes = Vec::new();
        for (depth, index) in &self.columns {
            let mut at = env;
            for _ in 0..*depth {
                at = at.outer?;
            }
            let value = at.row.get(*index)?;
            // Equal values of other types may be written in several ways.
            let is_exact = match value {
                Datum::Null | Datum::Bool(_) | Datum::Int(_) | Datum::Date(_) | Datum::Time(_) => true,
                Datum::Text(text) => text.len() <= BYTES_MAX,
                Datum::Bytes(bytes) => bytes.len() <= BYTES_MAX,
                _ => false,
            };
            if !is_exact {
                return None;
            }
            value.key(&mut bytes);
        }
        Some(bytes)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Kept> {
        let found = self.answers.borrow().get(key).cloned();
        self.lookups.set(self.lookups.get().saturating_add(1));
        self.hits.set(self.hits.get().saturating_add(u32::from(found.is_some())));
        if self.lookups.get() == TRIAL && self.hits.get() < TRIAL / HITS_MIN {
            self.is_given_up.set(true);
            self.answers.borrow_mut().clear();
        }
        found
    }

    /// `weight`: how many values the answer has.
    pub(super) fn put(&self, key: Vec<u8>, kept: Kept, weight: usize) {
        if self.is_given_up.get() || weight > WEIGHT_MAX {
            return;
        }
        if self.weight.get() + weight > WEIGHT_MAX {
            self.answers.borrow_mut().clear();
            self.weight.set(0);
        }
        self.weight.set(self.weight.get() + weight);
        self.answers.borrow_mut().insert(key, kept);
    }
}

/// Whether a value is short enough to be kept.
pub(super) fn is_short(value: &Datum) -> bool {
    match value {
        Datum::Null | Datum::Bool(_) | Datum::Int(_) | Datum::Float(_) | Datum::Date(_) | Datum::Time(_) => true,
        Datum::Text(text) => text.len() <= BYTES_MAX,
        Datum::Bytes(bytes) => bytes.len() <= BYTES_MAX,
        _ => false,
    }
}

impl Node {
    /// Notes the values of the rows around it that it names. `false`: it depends on something else.
    fn outer_columns(&self, found: &mut BTreeSet<(usize, usize)>) -> bool {
        let found = RefCell::new(found);
        let note = |depth: usize, index: usize| {
            found.borrow_mut().insert((depth, index));
        };
        self.each_outer(&note)
    }
}

impl Expr {
    /// Whether it names no value of the row at hand, and has the same value the next time.
    pub fn is_one_time(&self) -> bool {
        !self.names_row() && !self.is_volatile_inside()
    }
}
