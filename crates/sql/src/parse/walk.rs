//! The relations that a query names.

use super::ast::{Body, Expr, Item, JoinOn, ObjectName, Query, Select, TableRef};

/// A relation that a query names, and whether it has another name there.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: ObjectName,
    pub has_alias: bool,
}

/// The relations that were found, and the names of queries of WITH that hide relations at the place at hand.
#[derive(Default)]
struct Found {
    sources: Vec<Source>,
    hidden: Vec<String>,
}

/// Adds the names of all relations in the query, also those of its subqueries. Names of its own WITH are no relations.
pub fn tables(part: &Query, names: &mut Vec<ObjectName>) {
    names.extend(sources(part).into_iter().map(|source| source.name));
}

/// The relations in the query, as [`tables`] has their names.
pub fn sources(part: &Query) -> Vec<Source> {
    let mut found = Found::default();
    query(part, &mut found);
    found.sources
}

/// The relations in a table of FROM.
pub fn sources_of(part: &TableRef) -> Vec<Source> {
    let mut found = Found::default();
    table(part, &mut found);
    found.sources
}

fn query(query_of: &Query, found: &mut Found) {
    let depth = found.hidden.len();
    for with in &query_of.with {
        // A query that may name itself does not mean a relation of its name.
        found.hidden.extend(with.is_recursive.then(|| with.name.value.clone()));
        query(&with.query, found);
        found.hidden.push(with.name.value.clone());
    }
    // A view has no changes in it.
    body(&query_of.body, found);
    query_of.order_by.iter().for_each(|order| expr(&order.expr, found));
    query_of.limit.iter().chain(&query_of.offset).for_each(|part| expr(part, found));
    found.hidden.truncate(depth);
}

fn body(part: &Body, found: &mut Found) {
    match part {
        Body::Select(part) => select(part, found),
        Body::Values(rows) => rows.iter().flatten().for_each(|part| expr(part, found)),
        Body::Query(part) => query(part, found),
        Body::Set { left, right, .. } => {
            body(left, found);
            body(right, found);
        }
    }
}

fn select(part: &Select, found: &mut Found) {
    for item in &part.items {
        if let Item::Expr(part, _) = item {
            expr(part, found);
        }
    }
    part.from.iter().for_each(|part| table(part, found));
    part.filter.iter().chain(&part.group_by.keys).chain(&part.having).for_each(|part| expr(part, found));
}

fn table(part: &TableRef, found: &mut Found) {
    match part {
        TableRef::Table { name, alias } => {
            if name.schema.is_some() || !found.hidden.contains(&name.name) {
                found.sources.push(Source { name: name.clone(), has_alias: alias.name.is_some() });
            }
        }
        TableRef::Query { query: part, .. } => query(part, found),
        TableRef::Function { call, .. } => call.arguments.iter().for_each(|part| expr(part, found)),
        TableRef::Sample(sampled) => {
            table(&sampled.table, found);
            [&sampled.percent].into_iter().chain(&sampled.repeat).for_each(|part| expr(part, found));
        }
        TableRef::Join { left, right, on, .. } => {
            table(left, found);
            table(right, found);
            if let JoinOn::Expr(part) = on {
                expr(part, found);
            }
        }
    }
}

fn expr(part: &Expr, found: &mut Found) {
    match part {
        Expr::Literal(..) | Expr::Parameter(..) | Expr::Column(..) => {}
        Expr::Negate(one, _) | Expr::Not(one) | Expr::Field(one, _) => expr(one, found),
        Expr::IsNull { expr: one, .. } | Expr::IsTruth { expr: one, .. } | Expr::Cast { expr: one, .. } => {
            expr(one, found);
        }
        Expr::And(one, two)
        | Expr::Or(one, two)
        | Expr::Element(one, two, _)
        | Expr::Binary { left: one, right: two, .. }
        | Expr::IsDistinct { left: one, right: two, .. }
        | Expr::Like { expr: one, pattern: two, .. }
        | Expr::Quantified { left: one, right: two, .. } => {
            expr(one, found);
            expr(two, found);
        }
        Expr::InList { expr: one, list, .. } => {
            expr(one, found);
            list.iter().for_each(|part| expr(part, found));
        }
        Expr::InQuery { expr: one, query: part, .. } => {
            expr(one, found);
            query(part, found);
        }
        Expr::Between { expr: one, low, high, .. } => [one, low, high].into_iter().for_each(|part| expr(part, found)),
        Expr::Call(call, _) => {
            call.arguments.iter().for_each(|part| expr(part, found));
            call.order_by.iter().for_each(|order| expr(&order.expr, found));
            call.filter.iter().for_each(|part| expr(part, found));
            if let Some(over) = &call.over {
                over.partition_by.iter().for_each(|part| expr(part, found));
                over.order_by.iter().for_each(|order| expr(&order.expr, found));
            }
        }
        Expr::Case { operand, branches, otherwise } => {
            operand.iter().chain(otherwise).for_each(|part| expr(part, found));
            for (condition, result) in branches {
                expr(condition, found);
                expr(result, found);
            }
        }
        Expr::Part { base, list, .. } => {
            expr(base, found);
            list.iter().flat_map(|one| one.low.iter().chain(&one.high)).for_each(|part| expr(part, found));
        }
        Expr::Assigned { base, list, value, .. } => {
            base.iter().chain([value]).for_each(|part| expr(part, found));
            list.iter().flat_map(|one| one.low.iter().chain(&one.high)).for_each(|part| expr(part, found));
        }
        Expr::Exists(part) | Expr::Scalar(part, _) | Expr::ArrayOf(part) => query(part, found),
        Expr::Array(list, _) | Expr::Row(list, _) => list.iter().for_each(|part| expr(part, found)),
    }
}
