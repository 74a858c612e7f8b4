//! Subqueries. One that names no value of the rows around it runs once in a statement, and its answer is kept.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use lodestone_sql_types::op::{Comparison, compare};
use lodestone_sql_types::{Datum, Error, SqlState, Type};

use super::memo::{Memo, is_short};
use super::{Env, Flow, Outcome, Row, Run};
use crate::plan::{Hashed, Node};

/// The answer of a subquery, or the fact that it has no single one.
#[derive(Clone)]
pub enum Kept {
    /// Its answer depends on the row at hand.
    Correlated,
    /// Its answers by the values that it depends on.
    Memo(Rc<Memo>),
    Value(Datum),
    Values(Rc<Values>),
    /// Rows by what is looked for.
    Rows(Rc<HashMap<Vec<u8>, Vec<Row>>>),
}

/// The values of a subquery that others are looked for in.
pub struct Values {
    list: Vec<Datum>,
    /// The values, where equal ones have equal bytes.
    keys: Option<HashSet<Vec<u8>>>,
    has_null: bool,
}

impl Values {
    fn new(ty: Type, list: Vec<Datum>) -> Self {
        let has_null = list.iter().any(Datum::is_null);
        let is_plain = ty != Type::Bpchar && !ty.is_row() && ty.element().is_none();
        let keys = is_plain.then(|| list.iter().filter(|value| !value.is_null()).map(key).collect());
        Self { list: if is_plain { Vec::new() } else { list }, keys, has_null }
    }

    fn keys_len(&self) -> usize {
        self.keys.as_ref().map_or(0, HashSet::len)
    }

    /// Whether `left` is one of them: null if that depends on a null.
    fn contain(&self, ty: Type, left: &Datum) -> Datum {
        match &self.keys {
            Some(keys) if keys.is_empty() && !self.has_null => Datum::Bool(false),
            Some(_) if left.is_null() => Datum::Null,
            Some(keys) if keys.contains(&key(left)) => Datum::Bool(true),
            Some(_) if self.has_null => Datum::Null,
            Some(_) => Datum::Bool(false),
            None => {
                let mut found = Datum::Bool(false);
                for value in &self.list {
                    // A row that was written is compared field by field, and a null makes that unknown.
                    let is_written = ty == Type::Record;
                    let equal = if is_written {
                        fields_equal(left, value)
                    } else {
                        compare(Comparison::Equal, ty, left, value)
                    };
                    match equal {
                        Datum::Bool(true) => return Datum::Bool(true),
                        Datum::Null => found = Datum::Null,
                        _ => {}
                    }
                }
                found
            }
        }
    }
}

/// Whether all fields of two rows are equal: null if that depends on a null.
fn fields_equal(one: &Datum, two: &Datum) -> Datum {
    let (Datum::Record(one), Datum::Record(two)) = (one, two) else { return Datum::Null };
    let mut found = Datum::Bool(true);
    for (one, two) in one.iter().zip(two) {
        match (one.is_null() || two.is_null(), one.order(two).is_eq()) {
            (true, _) => found = Datum::Null,
            (false, false) => return Datum::Bool(false),
            (false, true) => {}
        }
    }
    found
}

fn key(value: &Datum) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.key(&mut bytes);
    bytes
}

impl Run<'_> {
    /// The kept answer of a subquery. `None`: it runs for the first time, and its answer will be kept.
    fn kept(&self, node: &Node) -> Option<Kept> {
        let place = std::ptr::from_ref(node);
        if let Some(kept) = self.subqueries.borrow().get(&place) {
            return Some(kept.clone());
        }
        let kept = node.is_correlated().then(|| match Memo::new(node) {
            Some(memo) => Kept::Memo(Rc::new(memo)),
            None => Kept::Correlated,
        })?;
        self.subqueries.borrow_mut().insert(place, kept.clone());
        Some(kept)
    }

    /// The value of a subquery: kept, or computed by `compute`.
    fn value_of(&self, node: &Node, env: &Env<'_>, compute: impl FnOnce() -> Outcome<Datum>) -> Outcome<Datum> {
        match self.kept(node) {
            Some(Kept::Value(value)) => Ok(value),
            Some(Kept::Memo(memo)) => {
                let Some(key) = memo.key(env) else { return compute() };
                if let Some(Kept::Value(value)) = memo.get(&key) {
                    return Ok(value);
                }
                let value = compute()?;
                if is_short(&value) {
                    memo.put(key, Kept::Value(value.clone()), 1);
                }
                Ok(value)
            }
            Some(_) => compute(),
            None => {
                let value = compute()?;
                self.subqueries.borrow_mut().insert(std::ptr::from_ref(node), Kept::Value(value.clone()));
                Ok(value)
            }
        }
    }

    pub(super) fn scalar(&self, node: &Node, env: &Env<'_>) -> Outcome<Datum> {
        self.value_of(node, env, || {
            let mut found = None;
            self.each(node, Some(env), &mut |row| {
                if found.is_some() {
                    let message = "more than one row returned by a subquery used as an expression";
                    return Err(Error::new(SqlState::CARDINALITY_VIOLATION, message).into());
                }
                found = row.into_iter().next();
                Ok(Flow::More)
            })?;
            Ok(found.unwrap_or(Datum::Null))
        })
    }

    pub(super) fn exists(&self, node: &Node, env: &Env<'_>) -> Outcome<Datum> {
        self.value_of(node, env, || {
            let mut is_there = false;
            self.each(node, Some(env), &mut |_| {
                is_there = true;
                Ok(Flow::Enough)
            })?;
            Ok(Datum::Bool(is_there))
        })
    }

    pub(super) fn array_of(&self, node: &Node, env: &Env<'_>) -> Outcome<Datum> {
        self.value_of(node, env, || Ok(Datum::Array(self.first_values(node, env)?)))
    }

    pub(super) fn in_query(&self, ty: Type, left: &Datum, node: &Node, env: &Env<'_>) -> Outcome<Datum> {
        match self.kept(node) {
            Some(Kept::Values(values)) => Ok(values.contain(ty, left)),
            Some(Kept::Memo(memo)) => {
                let key = memo.key(env);
                if let Some(Kept::Values(values)) = key.as_ref().and_then(|key| memo.get(key)) {
                    return Ok(values.contain(ty, left));
                }
                let values = Rc::new(Values::new(ty, self.first_values(node, env)?));
                if let Some(key) = key {
                    memo.put(key, Kept::Values(values.clone()), 1 + values.list.len().max(values.keys_len()));
                }
                Ok(values.contain(ty, left))
            }
            Some(_) => Ok(Values::new(ty, self.first_values(node, env)?).contain(ty, left)),
            None => {
                let values = Rc::new(Values::new(ty, self.first_values(node, env)?));
                self.subqueries.borrow_mut().insert(std::ptr::from_ref(node), Kept::Values(values.clone()));
                Ok(values.contain(ty, left))
            }
        }
    }

    /// The rows of a table that is read once: those that are looked for.
    pub(super) fn hashed(
        &self,
        node: &Node,
        hashed: &Hashed,
        outer: Option<&Env<'_>>,
        sink: &mut dyn FnMut(Row) -> Outcome<Flow>,
    ) -> Outcome<Flow> {
        if !self.passes(hashed.before.as_ref(), &[], outer)? {
            return Ok(Flow::More);
        }
        let Some(key) = self.hash_key(hashed.keys.iter().map(|(_, key)| key), &[], outer)? else {
            return Ok(Flow::More);
        };
        let place = std::ptr::from_ref(node);
        let kept = self.subqueries.borrow().get(&place).cloned();
        let table = match kept {
            Some(Kept::Rows(table)) => table,
            _ => {
                let mut table: HashMap<Vec<u8>, Vec<Row>> = HashMap::new();
                self.each(&hashed.input, outer, &mut |row| {
                    self.step()?;
                    if let Some(key) = self.hash_key(hashed.keys.iter().map(|(key, _)| key), &row, outer)? {
                        table.entry(key).or_default().push(row);
                    }
                    Ok(Flow::More)
                })?;
                let table = Rc::new(table);
                self.subqueries.borrow_mut().insert(place, Kept::Rows(table.clone()));
                table
            }
        };
        for row in table.get(&key).into_iter().flatten() {
            self.step()?;
            if self.passes(hashed.rest.as_ref(), row, outer)? && sink(row.clone())? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        Ok(Flow::More)
    }

    /// The first value of each row.
    fn first_values(&self, node: &Node, env: &Env<'_>) -> Outcome<Vec<Datum>> {
        let rows = self.rows(node, Some(env))?;
        Ok(rows.into_iter().filter_map(|row| row.into_iter().next()).collect())
    }
}
