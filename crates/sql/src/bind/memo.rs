//! Rows that a subquery looks for again and again, in a table by what it looks for.
//!
//! A subquery that names the row around it runs for each of those rows. Where it reads all rows of something that does
//! not depend on that row, and takes those with `own = outer`, the rows are read once and kept by their `own`. Then
//! each run looks up its rows: `SELECT (SELECT i.b FROM i WHERE i.a = o.a) FROM o` reads `i` once. A condition that
//! names no own column is tested once for a run, before its rows.

use lodestone_sql_types::Type;
use lodestone_sql_types::op::Comparison;

use crate::plan::{Access, Expr, Hashed, Join, Node, Scan};

/// The same query, with tables in place of what it reads again and again.
pub fn kept(node: Node) -> Node {
    let inside = |input: Box<Node>| Box::new(kept(*input));
    match node {
        Node::Scan(mut scan) if is_plain(&scan) => match scan.filter.take() {
            Some(filter) => {
                let again = filter.clone();
                hashed(Node::Scan(scan.clone()), filter).unwrap_or_else(|| {
                    scan.filter = Some(again);
                    Node::Scan(scan)
                })
            }
            None => Node::Scan(scan),
        },
        Node::Filter { input, filter } => match hashed((*input).clone(), filter.clone()) {
            Some(found) => found,
            None => Node::Filter { input: inside(input), filter },
        },
        Node::Gate { input, filter } => Node::Gate { input: inside(input), filter },
        Node::Project { input, columns } => Node::Project { input: inside(input), columns },
        Node::Aggregate { input, keys, calls, sets } => Node::Aggregate { input: inside(input), keys, calls, sets },
        Node::Sort { input, keys } => Node::Sort { input: inside(input), keys },
        Node::Limit { input, limit, offset, ties } => Node::Limit { input: inside(input), limit, offset, ties },
        Node::Distinct { input, on } => Node::Distinct { input: inside(input), on },
        Node::Set { op, is_all, left, right } => Node::Set { op, is_all, left: inside(left), right: inside(right) },
        Node::Join(join) => {
            let Join { left, right, .. } = *join;
            Node::Join(Box::new(Join { left: kept(left), right: kept(right), ..*join }))
        }
        other => other,
    }
}

/// Whether the scan reads all rows, and locks none.
fn is_plain(scan: &Scan) -> bool {
    matches!(scan.access, Access::All) && scan.locks.is_none() && !scan.shows_number
}

/// The rows of `input` that `filter` lets through, by a table of them. `None`: that makes no sense.
fn hashed(input: Node, filter: Expr) -> Option<Node> {
    if input.is_correlated() || input.takes_locks() || input.is_volatile() {
        return None;
    }
    let mut conditions = Vec::new();
    filter.conjuncts(&mut conditions);
    let (mut keys, mut before, mut own, mut rest) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for condition in conditions {
        match equal_sides(&condition) {
            Some(key) => keys.push(key),
            None if condition.is_volatile_inside() => rest.push(condition),
            None if !condition.names_row() => before.push(condition),
            // Rows that no run takes are not kept. A key may be an error for them.
            None if !condition.is_correlated() => own.push(condition),
            None => rest.push(condition),
        }
    }
    if keys.is_empty() {
        return None;
    }
    let input = match (input, Expr::all(own)) {
        (Node::Scan(scan), filter) => Node::Scan(Box::new(Scan { filter, ..*scan })),
        (input, Some(filter)) => Node::Filter { input: Box::new(input), filter },
        (input, None) => input,
    };
    let (before, rest) = (Expr::all(before), Expr::all(rest));
    Some(Node::Hashed(Box::new(Hashed { input, keys, before, rest })))
}

/// The sides of an equation of an own value and one of the rows around.
fn equal_sides(condition: &Expr) -> Option<(Expr, Expr)> {
    let Expr::Compare(Comparison::Equal, ty, one, two) = condition else { return None };
    // Equal values of these types do not always have equal bytes.
    if *ty == Type::Bpchar || ty.is_row() || ty.element().is_some() {
        return None;
    }
    let is_usable = |expr: &Expr| !expr.has_subquery() && !expr.is_volatile();
    if !is_usable(one) || !is_usable(two) {
        return None;
    }
    let is_own = |expr: &Expr| expr.names_row() && !expr.is_correlated();
    let is_outer = |expr: &Expr| !expr.names_row() && expr.is_correlated();
    match () {
        () if is_own(one) && is_outer(two) => Some(((**one).clone(), (**two).clone())),
        () if is_own(two) && is_outer(one) => Some(((**two).clone(), (**one).clone())),
        () => None,
    }
}
