//! Queries of WITH, also those that name themselves, views, and the row of a sequence.

use lodestone_sql_types::func;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::from::output_columns;
use super::recursion;
use super::scope::{Scope, ScopeColumn};
use crate::catalog::{SequenceDef, ViewDef};
use crate::parse::ast::{Alias, Body, Query, SetOperation, With};
use crate::parse::walk;
use crate::plan::{Expr, Node, OutputColumn};

/// A query that names itself, while the part that does so is being bound.
pub struct Work {
    name: String,
    number: usize,
    columns: Vec<OutputColumn>,
    is_used: bool,
    /// How many subqueries of expressions are around the recursive query. `None`: it is none.
    nested: Option<usize>,
    /// It returns rows: a change without RETURNING does not.
    has_rows: bool,
}

impl Work {
    /// The rows of a change in WITH.
    pub(super) fn kept(name: String, number: usize, columns: Vec<OutputColumn>, has_rows: bool) -> Self {
        Self { name, number, columns, is_used: true, nested: None, has_rows }
    }

    /// Whether it has this name.
    pub(super) fn is_kept(&self, name: &str) -> bool {
        self.name == name
    }
}

type Found = Option<(Node, Vec<ScopeColumn>)>;

impl Binder<'_> {
    /// Whether the name means a query of WITH.
    pub(super) fn is_with_query(&self, name: &str) -> bool {
        self.work.iter().any(|work| work.name == name) || self.with.iter().flatten().any(|with| with.name.value == name)
    }

    /// Whether another query of the same WITH is being bound inside the one with this name.
    fn opens_beside(&self, name: &str) -> bool {
        let Some(place) = self.opening.iter().rposition(|(_, other)| other == name) else { return false };
        let level = self.opening[place].0;
        self.opening[place + 1..].iter().any(|(other, _)| *other == level)
    }

    /// The query of WITH with this name, if there is one.
    pub(super) fn with_query(
        &mut self,
        name: &str,
        shown: &str,
        alias: &Alias,
        parent: Option<&Scope<'_>>,
    ) -> Result<Found> {
        let shown = Some(shown.to_owned());
        let is_mutual = self.opens_beside(name);
        if let Some(work) = self.work.iter_mut().rev().find(|work| work.name == name) {
            work.is_used = true;
            if work.nested.is_some() && is_mutual {
                return Err(mutual());
            }
            if work.nested.is_some_and(|nested| self.nested > nested) {
                let message = format!("recursive reference to query \"{name}\" must not appear within a subquery");
                return Err(Error::new(SqlState::INVALID_RECURSION, message));
            }
            if !work.has_rows {
                let message = format!("WITH query \"{name}\" does not have a RETURNING clause");
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            let columns = output_columns(work.columns.clone(), shown.as_ref());
            return Ok(Some((Node::Work { number: work.number }, columns)));
        }
        let place = |with: &Vec<With>| with.iter().position(|other| other.name.value == name);
        let found = self.with.iter().enumerate().rev().find_map(|(level, with)| Some((level, place(with)?)));
        let Some((level, number)) = found else { return Ok(None) };
        let with = self.with[level][number].clone();
        if with.is_recursive && self.opening.contains(&(level, name.to_owned())) {
            return Err(mutual().at(with.name.at));
        }
        // The query sees the ones before it, and those around it. With RECURSIVE it sees the later ones as well.
        // Names of the scopes around the query that has the WITH count, if it is used right there.
        let is_there = self.with_depths.get(&level) == Some(&parent.map_or(0, Scope::depth));
        let parent = parent.filter(|_| is_there);
        let hidden = self.with.split_off(level);
        let end = if with.is_recursive { hidden[0].len() } else { number };
        let mut seen = hidden[0][..end].to_vec();
        if with.is_recursive {
            seen.remove(number);
        }
        self.with.push(seen);
        let grouping = self.grouping.take();
        let extras = self.extras.take();
        self.opening.push((level, name.to_owned()));
        let found = match with.is_recursive {
            true => self.recursive(&with, parent),
            false => self.query(&with.query, parent),
        };
        self.opening.pop();
        self.grouping = grouping;
        self.extras = extras;
        self.with.truncate(level);
        self.with.extend(hidden);
        let (node, output) = found?;
        let node = match with.shared {
            Some(number) if node.is_volatile() && !node.is_correlated() && !node.takes_locks() => {
                Node::Shared { number, input: Box::new(node) }
            }
            _ => node,
        };
        let mut columns = output_columns(output, shown.as_ref());
        if alias.columns.is_empty() {
            let names = with.columns.iter().map(|column| column.value.clone()).collect();
            columns = super::from::renamed(columns, &Alias { name: shown, columns: names })?;
        }
        Ok(Some((node, columns)))
    }

    /// The queries of WITH, with a number for each that is named more than once: all of these see the same rows.
    pub(super) fn numbered_with(&mut self, query: &Query) -> Vec<With> {
        let mut list = query.with.clone();
        if list.is_empty() {
            return list;
        }
        // Their names are not hidden in the query without them.
        let mut named = walk::sources(&Query { with: Vec::new(), ..query.clone() });
        named.extend(list.iter().flat_map(|with| walk::sources(&with.query)));
        let count = |name: &str| named.iter().filter(|one| one.name.schema.is_none() && one.name.name == name).count();
        for with in list.iter_mut().filter(|with| with.shared.is_none() && count(&with.name.value) > 1) {
            self.share(with);
        }
        list
    }

    /// Gives each query of WITH of a change a number: which parts of it name them is not looked for.
    pub(super) fn share_all(&mut self, list: &mut [With]) {
        list.iter_mut().for_each(|with| self.share(with));
    }

    fn share(&mut self, with: &mut With) {
        with.shared = Some(self.work_count);
        self.work_count += 1;
    }

    /// A query that may name itself: rows of the first part, then those of the second part over the rows before.
    fn recursive(&mut self, with: &With, parent: Option<&Scope<'_>>) -> Result<(Node, Vec<OutputColumn>)> {
        let plain = |binder: &mut Self| binder.query(&with.query, parent);
        // The UNION may be in parentheses, with other queries of WITH at each level.
        let mut levels = vec![&with.query];
        while let Some(Body::Query(inner)) = levels.last().map(|level| &level.body) {
            levels.push(inner);
        }
        let Some(Body::Set { op: SetOperation::Union, is_all, left, right }) = levels.last().map(|level| &level.body)
        else {
            return plain(self);
        };
        let whole = |body: &Body| Query {
            with: Vec::new(),
            body: body.clone(),
            order_by: Vec::new(),
            limit: None,
            has_ties: false,
            offset: None,
            locks: Vec::new(),
        };
        let around = self.with.len();
        self.with.extend(levels.iter().map(|level| level.with.clone()));
        let (first, mut columns) = match self.query(&whole(left), parent) {
            Ok(found) => found,
            Err(error) => {
                self.with.truncate(around);
                return Err(error);
            }
        };
        for (column, name) in columns.iter_mut().zip(&with.columns) {
            column.name.clone_from(&name.value);
        }
        let (name, number) = (with.name.value.clone(), self.work_count);
        self.work_count += 1;
        self.work.push(Work {
            name: name.clone(),
            number,
            columns: columns.clone(),
            is_used: false,
            nested: Some(self.nested),
            has_rows: true,
        });
        let step = recursion::refuse(right, &name).and_then(|()| self.query(&whole(right), parent));
        self.with.truncate(around);
        let is_used = self.work.pop().is_some_and(|work| work.is_used);
        let (step, others) = step?;
        recursion::refuse_twice(right, &name)?;
        if !is_used {
            return plain(self);
        }
        if let Some(what) = levels.iter().find_map(|level| after_union(level)) {
            let message = format!("{what} in a recursive query is not implemented");
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(with.name.at));
        }
        if columns.len() != others.len() {
            let message = "each UNION query must have the same number of columns";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(with.name.at));
        }
        for (place, (one, two)) in columns.iter().zip(&others).enumerate() {
            if one.ty != two.ty && !(one.ty.is_text() && two.ty.is_text()) {
                let message = format!(
                    "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                    place + 1,
                    one.ty,
                    two.ty
                );
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message)
                    .hint("Cast the output of the non-recursive term to the correct type.")
                    .at(with.name.at));
            }
        }
        let node = Node::Recursive { number, first: Box::new(first), step: Box::new(step), is_all: *is_all };
        let columns = columns.into_iter().map(|column| OutputColumn { modifier: -1, origin: None, ..column });
        Ok((node, columns.collect()))
    }

    /// The rows of a view. Its names mean what they meant when it was made.
    pub(super) fn view(&mut self, view: &ViewDef, shown: &str) -> Result<(Node, Vec<ScopeColumn>)> {
        self.depth += 1;
        if self.depth > super::DEPTH_MAX {
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded"));
        }
        let catalog = self.catalog.with_path(view.path.clone());
        let mut inner = Binder { depth: self.depth, work_count: self.work_count, ..Binder::new(&catalog) };
        let found = inner.query(&view.query, None);
        self.work_count = inner.work_count;
        self.depth -= 1;
        let (node, output) = found?;
        if output.len() != view.columns.len() {
            let message = format!("the view \"{}\" has other columns than when it was made", view.name);
            return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message));
        }
        let mut columns = output_columns(output, Some(&shown.to_owned()));
        for (number, (column, (name, _, _))) in columns.iter_mut().zip(&view.columns).enumerate() {
            column.name.clone_from(name);
            column.origin = i16::try_from(number + 1).ok().map(|number| (view.oid, number));
        }
        Ok((node, columns))
    }
}

/// The part of a query that is no UNION of a recursive one.
fn after_union(query: &Query) -> Option<&'static str> {
    match () {
        () if !query.order_by.is_empty() => Some("ORDER BY"),
        () if query.offset.is_some() => Some("OFFSET"),
        () if query.limit.is_some() => Some("LIMIT"),
        () if !query.locks.is_empty() => Some("FOR UPDATE/SHARE"),
        () => None,
    }
}

fn mutual() -> Error {
    Error::new(SqlState::FEATURE_NOT_SUPPORTED, "mutual recursion between WITH items is not implemented")
}

/// The one row of a sequence.
pub fn sequence_row(sequence: &SequenceDef, shown: &str) -> Result<(Node, Vec<ScopeColumn>)> {
    let call = |name: &str| {
        let function = func::all().find(|function| function.name == name);
        let function = function.ok_or_else(|| Error::new(SqlState::INTERNAL_ERROR, "a function is not there"))?;
        Ok::<_, Error>(Expr::Call(function, vec![Expr::Const(Datum::Int(sequence.oid.into()))]))
    };
    let row = vec![call("lodestone_sequence_value")?, Expr::Const(Datum::Int(0)), call("lodestone_sequence_called")?];
    let column = |(name, ty): (&str, Type)| ScopeColumn {
        table: Some(shown.to_owned()),
        name: name.to_owned(),
        ty,
        modifier: -1,
        origin: None,
        is_hidden: false,
        is_outer: false,
        relation: None,
    };
    let columns = [("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Type::Bool)];
    Ok((Node::Values(vec![row]), columns.into_iter().map(column).collect()))
}
