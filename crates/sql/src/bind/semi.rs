//! EXISTS as IN: a subquery that is tied to the row around it by one equation becomes one that runs once.
//!
//! `EXISTS (SELECT .. FROM k WHERE k.a = t.b AND rest)` is true where `t.b IN (SELECT k.a FROM k WHERE rest)` is. The
//! first form reads `k` for each row of `t`; the second one is a table of values. A lookup by an index stays as it is.

use lodestone_sql_types::op::Comparison;
use lodestone_sql_types::{Datum, Type};

use crate::plan::{Access, Expr, Node, Scan};

/// The test whether `node` has rows.
pub fn exists(node: Node) -> Expr {
    let node = bare(node);
    match tied(&node) {
        Some((ty, outer, inner)) => {
            let test = Expr::InQuery(ty, Box::new(outer), Box::new(inner));
            Expr::IsTruth(Box::new(test), Some(true))
        }
        None => Expr::Exists(Box::new(super::memo::kept(node))),
    }
}

/// The same number of rows, or none where there are none, without columns, order and a limit that says nothing: as in
/// `PostgreSQL`, these are not computed. Then fewer subqueries depend on the row around them.
fn bare(node: Node) -> Node {
    match node {
        Node::Project { input, .. } if !input.takes_locks() => Node::Project { input, columns: Vec::new() },
        Node::Limit { input, limit: Some(Expr::Const(Datum::Int(1..))), offset: None, .. } => bare(*input),
        other => other,
    }
}

/// The value of the row around the query, and the query whose values it is equal to one of.
fn tied(node: &Node) -> Option<(Type, Expr, Node)> {
    let Node::Project { input, columns } = node else { return None };
    if columns.iter().any(|column| column.has_subquery() || column.is_volatile()) {
        return None;
    }
    let (filter, rest): (&Expr, &dyn Fn(Option<Expr>) -> Node) = match &**input {
        Node::Scan(scan) if matches!(scan.access, Access::All) && scan.locks.is_none() => {
            let of = |filter| Node::Scan(Box::new(Scan { filter, ..(**scan).clone() }));
            return split(scan.filter.as_ref()?, &of);
        }
        Node::Filter { input, filter } => (filter, &|filter| match filter {
            Some(filter) => Node::Filter { input: input.clone(), filter },
            None => (**input).clone(),
        }),
        _ => return None,
    };
    split(filter, rest)
}

fn split(filter: &Expr, rest: &dyn Fn(Option<Expr>) -> Node) -> Option<(Type, Expr, Node)> {
    let mut conditions = Vec::new();
    filter.clone().conjuncts(&mut conditions);
    let (mut tied, own): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(Expr::is_correlated);
    let (Some(equation), true) = (tied.pop(), tied.is_empty()) else { return None };
    let Expr::Compare(Comparison::Equal, ty, one, two) = equation else { return None };
    // Equal values of these types do not always have equal bytes.
    if ty == Type::Bpchar || ty.is_row() {
        return None;
    }
    let (mut outer, inner) = match (one.is_correlated(), two.is_correlated()) {
        (true, false) => (*one, *two),
        (false, true) => (*two, *one),
        _ => return None,
    };
    if outer.has_subquery() || outer.column_range().is_some() || outer.is_volatile() || inner.is_volatile() {
        return None;
    }
    outer.walk_mut(&mut |part| {
        if let Expr::Column { depth, .. } = part {
            *depth = depth.saturating_sub(1);
        }
    });
    let found = Node::Project { input: Box::new(rest(Expr::all(own))), columns: vec![inner] };
    // Another table may be named further out.
    (!found.is_correlated()).then_some((ty, outer, found))
}
