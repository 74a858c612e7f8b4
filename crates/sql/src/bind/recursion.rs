//! Where a recursive query may name itself: once, in the FROM of its second part, and not where a row that is missing
//! counts, as rows that come later would change what was there before.

use lodestone_sql_types::{Error, Result, SqlState};

use super::aggregate::has_aggregate;
use crate::parse::ast::{Body, Item, JoinKind, Position, Query, Select, SetOperation, TableRef};
use crate::parse::walk;

/// Refuses the second part of a recursive query that names it in a wrong place.
///
/// # Errors
/// 42P19.
pub fn refuse(body: &Body, name: &str) -> Result<()> {
    match body {
        Body::Select(part) => select(part, name),
        Body::Values(_) => Ok(()),
        Body::Query(query) => refuse(&query.body, name),
        Body::Set { op, left, right, .. } => {
            if let (SetOperation::Except, Some(at)) = (op, places(body_sources(right), name).first()) {
                return Err(wrong(name, "must not appear within EXCEPT", *at));
            }
            refuse(left, name)?;
            refuse(right, name)
        }
    }
}

/// Refuses the second part of a recursive query that names it twice.
///
/// # Errors
/// 42P19.
pub fn refuse_twice(body: &Body, name: &str) -> Result<()> {
    match places(body_sources(body), name)[..] {
        [_, second, ..] => Err(wrong(name, "must not appear more than once", second)),
        _ => Ok(()),
    }
}

fn wrong(name: &str, why: &str, at: Position) -> Error {
    Error::new(SqlState::INVALID_RECURSION, format!("recursive reference to query \"{name}\" {why}")).at(at)
}

fn body_sources(body: &Body) -> Vec<walk::Source> {
    walk::sources(&Query { body: body.clone(), ..Query::empty() })
}

/// Where the query is named, also in subqueries.
fn places(sources: Vec<walk::Source>, name: &str) -> Vec<Position> {
    let is_it = |source: &walk::Source| source.name.schema.is_none() && source.name.name == name;
    sources.into_iter().filter(is_it).map(|source| source.name.at).collect()
}

fn select(part: &Select, name: &str) -> Result<()> {
    for table in &part.from {
        joins(table, name)?;
    }
    let items = part.items.iter().filter_map(|item| if let Item::Expr(expr, _) = item { Some(expr) } else { None });
    if let (true, Some(expr)) = (
        part.from.iter().any(|table| is_named(table, name)),
        items.chain(&part.having).find(|expr| has_aggregate(expr)),
    ) {
        let message = "aggregate functions are not allowed in a recursive query's recursive term";
        return Err(Error::new(SqlState::INVALID_RECURSION, message).at(expr.at()));
    }
    Ok(())
}

/// Whether the query itself is among these tables, and not in a subquery.
fn is_named(table: &TableRef, name: &str) -> bool {
    match table {
        TableRef::Table { name: own, .. } => own.schema.is_none() && own.name == name,
        TableRef::Join { left, right, .. } => is_named(left, name) || is_named(right, name),
        _ => false,
    }
}

/// Refuses the query on the side of an outer join whose rows may be missing.
fn joins(table: &TableRef, name: &str) -> Result<()> {
    match table {
        TableRef::Join { kind, left, right, .. } => {
            let find = |side: &TableRef| places(walk::sources_of(side), name).first().copied();
            let found = match kind {
                JoinKind::Left => find(right),
                JoinKind::Right => find(left),
                JoinKind::Full => find(left).or_else(|| find(right)),
                JoinKind::Inner => None,
            };
            if let Some(at) = found {
                return Err(wrong(name, "must not appear within an outer join", at));
            }
            joins(left, name)?;
            joins(right, name)
        }
        TableRef::Query { query, .. } => refuse(&query.body, name),
        _ => Ok(()),
    }
}
