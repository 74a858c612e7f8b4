//! Conditions that are known to be true for no row, and sums with a null.
//!
//! As in `PostgreSQL`: a comparison with a null is null before it runs, and a condition that is null lets no row
//! through. So `WHERE 1 / x <= NULL` is no division by zero for any row.

use lodestone_sql_types::Datum;

use crate::plan::Expr;
use crate::run::constant::has_constant;

/// A condition of WHERE, HAVING or ON: what is null is false.
pub(super) fn condition(expr: Expr) -> Expr {
    passing(folded(expr))
}

/// A strict operator, which is null if a side of it is. Constants of the other side that may be errors stay.
pub(super) fn strict(expr: Expr) -> Expr {
    let is_null = |expr: &Expr| matches!(expr, Expr::Const(Datum::Null));
    match &expr {
        Expr::Arithmetic(_, _, one, two)
            if is_null(one) && !has_constant(two) || is_null(two) && !has_constant(one) =>
        {
            Expr::Const(Datum::Null)
        }
        _ => expr,
    }
}

fn constant(value: Option<bool>) -> Expr {
    Expr::Const(value.map_or(Datum::Null, Datum::Bool))
}

/// The value of a constant truth.
fn truth(expr: &Expr) -> Option<Option<bool>> {
    match expr {
        Expr::Const(Datum::Null) => Some(None),
        Expr::Const(Datum::Bool(value)) => Some(Some(*value)),
        _ => None,
    }
}

fn passing(expr: Expr) -> Expr {
    let both = |one: Box<Expr>, two: Box<Expr>| (passing(*one), passing(*two));
    match expr {
        Expr::Const(Datum::Null) => constant(Some(false)),
        Expr::And(one, two) => and(both(one, two)),
        Expr::Or(one, two) => or(both(one, two)),
        other => other,
    }
}

fn and((one, two): (Expr, Expr)) -> Expr {
    match (truth(&one), truth(&two)) {
        (Some(Some(false)), _) | (_, Some(Some(false))) => constant(Some(false)),
        (Some(Some(true)), _) => two,
        (_, Some(Some(true))) => one,
        (Some(None), Some(None)) => constant(None),
        _ => Expr::And(Box::new(one), Box::new(two)),
    }
}

fn or((one, two): (Expr, Expr)) -> Expr {
    match (truth(&one), truth(&two)) {
        (Some(Some(true)), _) | (_, Some(Some(true))) => constant(Some(true)),
        (Some(Some(false)), _) => two,
        (_, Some(Some(false))) => one,
        (Some(None), Some(None)) => constant(None),
        _ => Expr::Or(Box::new(one), Box::new(two)),
    }
}

/// Not the expression: the operators inside are turned, so that a null among them is seen.
fn not(expr: Expr) -> Expr {
    match expr {
        Expr::And(one, two) => or((not(*one), not(*two))),
        Expr::Or(one, two) => and((not(*one), not(*two))),
        Expr::Not(inner) => *inner,
        other => match truth(&other) {
            Some(value) => constant(value.map(|value| !value)),
            None => Expr::Not(Box::new(other)),
        },
    }
}

fn folded(expr: Expr) -> Expr {
    match expr {
        Expr::And(one, two) => and((folded(*one), folded(*two))),
        Expr::Or(one, two) => or((folded(*one), folded(*two))),
        Expr::Not(inner) => not(folded(*inner)),
        Expr::IsNull(inner) if is_null(&inner) => constant(Some(true)),
        other if is_null(&other) => constant(None),
        other => other,
    }
}

/// Whether a strict operator has a null on a side. An error of the other side that does not depend on the row is one
/// before there is a row, so it stays.
fn is_null(expr: &Expr) -> bool {
    let has_null = |one: &Expr, two: &Expr| {
        let varies = |expr: &Expr| expr.names_row() || matches!(expr, Expr::Const(_) | Expr::Param(_));
        is_null(one) && (is_null(two) || varies(two)) || is_null(two) && varies(one)
    };
    match expr {
        Expr::Const(Datum::Null) => true,
        Expr::Compare(_, _, one, two) | Expr::Arithmetic(_, _, one, two) => has_null(one, two),
        Expr::Negate(_, inner) | Expr::Cast { expr: inner, .. } | Expr::Fit { expr: inner, .. } => is_null(inner),
        _ => false,
    }
}
