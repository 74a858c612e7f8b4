//! The relations that a query names.

use super::ast::{Body, Expr, Item, JoinOn, ObjectName, Query, Select, TableRef};

/// Adds the names of all relations in the query, also those of its subqueries. Names of its own WITH are among them.
pub fn tables(query: &Query, found: &mut Vec<ObjectName>) {
    query.with.iter().for_each(|with| tables(&with.query, found));
    // A view has no changes in it.
    body(&query.body, found);
    query.order_by.iter().for_each(|order| expr(&order.expr, found));
    query.limit.iter().chain(&query.offset).for_each(|part| expr(part, found));
}

fn body(part: &Body, found: &mut Vec<ObjectName>) {
    match part {
        Body::Select(part) => select(part, found),
        Body::Values(rows) => rows.iter().flatten().for_each(|part| expr(part, found)),
        Body::Query(query) => tables(query, found),
        Body::Set { left, right, .. } => {
            body(left, found);
            body(right, found);
        }
    }
}

fn select(part: &Select, found: &mut Vec<ObjectName>) {
    for item in &part.items {
        if let Item::Expr(part, _) = item {
            expr(part, found);
        }
    }
    part.from.iter().for_each(|part| table(part, found));
    part.filter.iter().chain(&part.group_by.keys).chain(&part.having).for_each(|part| expr(part, found));
}

fn table(part: &TableRef, found: &mut Vec<ObjectName>) {
    match part {
        TableRef::Table { name, .. } => found.push(name.clone()),
        TableRef::Query { query, .. } => tables(query, found),
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

fn expr(part: &Expr, found: &mut Vec<ObjectName>) {
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
        Expr::InQuery { expr: one, query, .. } => {
            expr(one, found);
            tables(query, found);
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
        Expr::Exists(query) | Expr::Scalar(query, _) | Expr::ArrayOf(query) => tables(query, found),
        Expr::Array(list, _) | Expr::Row(list, _) => list.iter().for_each(|part| expr(part, found)),
    }
}
