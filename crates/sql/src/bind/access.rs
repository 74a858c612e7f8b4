//! Conditions to where they select most: into tables, their keys and indexes, and joins.

use lodestone_sql_types::op::Comparison;
use lodestone_sql_types::{Datum, Error, Result, Type};

use super::Binder;
use crate::catalog::TableDef;
use crate::locks::Mode;
use crate::parse::ast::JoinKind;
use crate::plan::{Access, Expr, Join, KeyPart, Member, Node, Scan};

impl Binder<'_> {
    /// The rows of `node` for which `filter` is true.
    pub(super) fn filter(&mut self, node: Node, filter: Expr) -> Node {
        let mut conditions = Vec::new();
        filter.conjuncts(&mut conditions);
        push(node, conditions)
    }
}

/// The rows of `node` that fulfil all `conditions`.
pub(super) fn push(node: Node, conditions: Vec<Expr>) -> Node {
    if conditions.is_empty() {
        return node;
    }
    match node {
        Node::Scan(mut scan) => {
            let before = used_conditions(&scan).into_iter().chain(scan.filter.take());
            let all: Vec<Expr> = before.chain(conditions).collect();
            let (shows_number, wait, is_read) = (scan.shows_number, scan.wait, scan.is_read);
            *scan = Scan { shows_number, wait, is_read, ..with_access(scan.table, all, scan.locks) };
            Node::Scan(scan)
        }
        Node::Virtual { table, filter } => {
            Node::Virtual { table, filter: Expr::all(filter.into_iter().chain(conditions)) }
        }
        Node::Project { input, columns } if is_same_row(&columns) && matches!(*input, Node::Virtual { .. }) => {
            let is_inside =
                |condition: &Expr| condition.column_range().is_none_or(|(_, most)| most + 1 < columns.len());
            let (inside, rest): (Vec<Expr>, Vec<Expr>) =
                conditions.into_iter().partition(|condition| is_inside(condition) && !condition.has_subquery());
            push_filter(Node::Project { input: Box::new(push(*input, inside)), columns }, rest)
        }
        Node::Append(members) => {
            let kept = members.into_iter().filter(|member| !member.is_excluded(&conditions));
            let below = |member: Member| Member { node: push(member.node, conditions.clone()), ..member };
            Node::Append(kept.map(below).collect())
        }
        Node::Project { input, columns } if matches!(*input, Node::Scan(_)) && columns.iter().all(is_plain) => {
            let (inside, rest): (Vec<Expr>, Vec<Expr>) =
                conditions.into_iter().partition(|condition| !condition.has_subquery());
            let inside = inside.into_iter().map(|condition| under(condition, &columns)).collect();
            push_filter(Node::Project { input: Box::new(push(*input, inside)), columns }, rest)
        }
        Node::Gate { input, filter } => Node::Gate { input: Box::new(push(*input, conditions)), filter },
        Node::Join(join) => {
            // A condition that names no column is tested once, before the first row.
            let (once, rest): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(Expr::is_one_time);
            gated(push_into_join(*join, rest), once)
        }
        other => {
            let (once, rest): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(Expr::is_one_time);
            gated(push_filter(other, rest), once)
        }
    }
}

/// How many operators and functions a condition has: those with few are tested first, as in `PostgreSQL`. So a row
/// that a simple condition throws away is no error of another one.
fn cost(condition: &Expr) -> usize {
    let mut count = 0;
    condition.walk(&mut |part| {
        count += match part {
            Expr::Const(_) | Expr::Column { .. } | Expr::Param(_) | Expr::And(..) | Expr::Or(..) | Expr::Not(_) => 0,
            Expr::Case { .. } | Expr::Coalesce(_) | Expr::IsNull(_) | Expr::IsTruth(..) => 0,
            Expr::Scalar(_) | Expr::Exists(_) | Expr::ArrayOf(_) | Expr::InQuery(..) => 1_000,
            _ => 1,
        };
    });
    count
}

/// Whether all columns but the last one are those of the row below.
fn is_same_row(columns: &[Expr]) -> bool {
    let before = columns.len().saturating_sub(1);
    let is_same =
        |(number, column): (usize, &Expr)| matches!(column, Expr::Column { depth: 0, index } if *index == number);
    columns[..before].iter().enumerate().all(is_same)
}

/// Whether a column is one of the row below, or the same for all rows.
fn is_plain(column: &Expr) -> bool {
    matches!(column, Expr::Column { depth: 0, .. } | Expr::Const(_))
}

/// A condition over the row below these columns.
fn under(mut condition: Expr, columns: &[Expr]) -> Expr {
    condition.walk_mut(&mut |part| {
        if let Expr::Column { depth: 0, index } = part
            && let Some(column) = columns.get(*index)
        {
            *part = column.clone();
        }
    });
    condition
}

/// The sides of a join to which a condition belongs.
enum Side {
    Left,
    Right,
    Both,
}

fn side(expr: &Expr, left_width: usize) -> Side {
    if expr.has_subquery() || expr.is_volatile() {
        return Side::Both;
    }
    match expr.column_range() {
        Some((_, most)) if most < left_width => Side::Left,
        Some((least, _)) if least >= left_width => Side::Right,
        _ => Side::Both,
    }
}

/// Whether the condition means the same inside the right side. The rows around a join are one row further out from a
/// LATERAL right side.
fn fits_right(condition: &Expr, join: &Join) -> bool {
    !join.is_lateral || !condition.is_correlated()
}

/// Conditions on the rows of a join: after it.
fn push_into_join(mut join: Join, conditions: Vec<Expr>) -> Node {
    let (mut left, mut right, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for condition in conditions {
        match side(&condition, join.left_width) {
            Side::Left if matches!(join.kind, JoinKind::Inner | JoinKind::Left) => left.push(condition),
            Side::Right if matches!(join.kind, JoinKind::Inner | JoinKind::Right) && fits_right(&condition, &join) => {
                right.push(condition.shifted(join.left_width));
            }
            _ => both.push(condition),
        }
    }
    join.left = push(join.left, left);
    join.right = push(join.right, right);
    if join.kind == JoinKind::Inner {
        let (on, hash) = (join.on.take(), std::mem::take(&mut join.hash));
        return with_more(Join { hash, ..join }, on.into_iter().chain(both).collect());
    }
    push_filter(Node::Join(Box::new(join)), both)
}

fn push_filter(node: Node, conditions: Vec<Expr>) -> Node {
    match Expr::all(conditions) {
        Some(filter) => Node::Filter { input: Box::new(node), filter },
        None => node,
    }
}

/// A join with the conditions of its ON.
pub(super) fn with_conditions(mut join: Join, conditions: Vec<Expr>) -> Node {
    let mut all = Vec::new();
    conditions.into_iter().for_each(|condition| condition.conjuncts(&mut all));
    let (once, all): (Vec<Expr>, Vec<Expr>) = all.into_iter().partition(|condition| join.is_gate(condition));
    let (mut left, mut right, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for condition in all {
        // Only the side that has no rows of its own to keep may lose rows before the join.
        match side(&condition, join.left_width) {
            Side::Left if matches!(join.kind, JoinKind::Inner | JoinKind::Right) => left.push(condition),
            Side::Right if matches!(join.kind, JoinKind::Inner | JoinKind::Left) && fits_right(&condition, &join) => {
                right.push(condition.shifted(join.left_width));
            }
            _ => both.push(condition),
        }
    }
    join.left = push(join.left, left);
    join.right = push(join.right, right);
    match join.kind {
        JoinKind::Left => join.right = gated(join.right, once),
        JoinKind::Right => join.left = gated(join.left, once),
        _ => return gated(with_more(join, both), once),
    }
    with_more(join, both)
}

/// The rows of `node` if all conditions are true, none of which names a column of theirs: they are tested once, before
/// the first row.
pub(super) fn gated(node: Node, once: Vec<Expr>) -> Node {
    let once = once.into_iter().filter(|condition| !matches!(condition, Expr::Const(Datum::Bool(true))));
    match Expr::all(once) {
        Some(filter) => Node::Gate { input: Box::new(node), filter },
        None => node,
    }
}

impl Join {
    /// Whether a condition of its ON is tested once, at the side that may lose its rows by it.
    fn is_gate(&self, condition: &Expr) -> bool {
        self.kind != JoinKind::Full && !self.is_lateral && condition.is_one_time()
    }
}

/// Equal columns become the keys of a hash table, other conditions are tested.
fn with_more(mut join: Join, conditions: Vec<Expr>) -> Node {
    let mut rest = Vec::new();
    for condition in conditions {
        match equal_sides(&condition, join.left_width) {
            Some(pair) if !join.is_lateral => join.hash.push(pair),
            _ => rest.push(condition),
        }
    }
    join.on = Expr::all(join.on.take().into_iter().chain(rest));
    Node::Join(Box::new(join))
}

/// The sides of an equation between both tables: over the left row, and over the right row.
fn equal_sides(condition: &Expr, left_width: usize) -> Option<(Expr, Expr)> {
    let Expr::Compare(Comparison::Equal, ty, one, two) = condition else { return None };
    // Equal values of these types do not always have equal bytes.
    if *ty == Type::Bpchar {
        return None;
    }
    match (side(one, left_width), side(two, left_width)) {
        (Side::Left, Side::Right) => Some(((**one).clone(), two.shifted(left_width))),
        (Side::Right, Side::Left) => Some(((**two).clone(), one.shifted(left_width))),
        _ => None,
    }
}

/// Locks the rows of the one table of a query.
///
/// # Errors
/// 0A000 for other queries.
pub(super) fn lock(node: Node, mode: Mode, wait: crate::parse::ast::LockWait) -> Result<Node> {
    match node {
        Node::Scan(mut scan) => {
            (scan.locks, scan.wait, scan.is_read) = (Some(mode), wait, true);
            Ok(Node::Scan(scan))
        }
        Node::Append(members) => {
            let locked =
                members.into_iter().map(|member| Ok(Member { node: lock(member.node, mode, wait)?, ..member }));
            Ok(Node::Append(locked.collect::<Result<_>>()?))
        }
        Node::Project { input, columns } if matches!(*input, Node::Scan(_)) && columns.iter().all(is_plain) => {
            Ok(Node::Project { input: Box::new(lock(*input, mode, wait)?), columns })
        }
        _ => Err(Error::unsupported("FOR UPDATE of a join or a view")),
    }
}

/// A comparison of a column with a value that does not depend on the row.
struct Limit {
    comparison: Comparison,
    part: KeyPart,
}

/// The limits of a column among the conditions, with their numbers.
fn limits(conditions: &[Expr], column: usize, table: &TableDef) -> Vec<(usize, Limit)> {
    let mut found = Vec::new();
    for (number, condition) in conditions.iter().enumerate() {
        let Expr::Compare(comparison, ty, one, two) = condition else { continue };
        let (comparison, value) = if is_column(one, column, *ty, table) && is_constant(two) {
            (*comparison, two)
        } else if is_column(two, column, *ty, table) && is_constant(one) {
            (comparison.flipped(), one)
        } else {
            continue;
        };
        if comparison != Comparison::NotEqual {
            found.push((number, Limit { comparison, part: KeyPart { expr: (**value).clone(), ty: *ty } }));
        }
    }
    found
}

/// Whether the expression is the column, perhaps in a wider type whose order is the same.
fn is_column(expr: &Expr, column: usize, ty: Type, table: &TableDef) -> bool {
    let own = table.columns[column].ty;
    match expr {
        Expr::Column { depth: 0, index } => {
            *index == column && (own == ty || own.is_integer() && ty.is_integer() || own.is_text() && ty == Type::Text)
        }
        Expr::Cast { expr, from, to } => {
            let is_wider = from.is_integer() && to.is_integer() && from.len() <= to.len();
            let is_text = matches!(from, Type::Varchar | Type::Name) && *to == Type::Text;
            (is_wider || is_text) && matches!(**expr, Expr::Column { depth: 0, index } if index == column)
        }
        _ => false,
    }
}

fn is_constant(expr: &Expr) -> bool {
    expr.column_range().is_none() && !expr.has_subquery() && !expr.is_volatile()
}

/// The conditions of a scan that are fulfilled by the way to its rows, and are not in its filter: another way may take
/// its place.
fn used_conditions(scan: &Scan) -> Vec<Expr> {
    let table = &scan.table;
    let (columns, parts) = match &scan.access {
        Access::All => return Vec::new(),
        Access::Key(parts) => (&table.key, parts),
        Access::Range { index, equal, .. } => (index.map_or(&table.key, |index| &table.indexes[index].columns), equal),
    };
    let equation = |(column, part): (&usize, &KeyPart)| {
        let column = Expr::Column { depth: 0, index: *column };
        Expr::Compare(Comparison::Equal, part.ty, Box::new(column), Box::new(part.expr.clone()))
    };
    columns.iter().zip(parts).map(equation).collect()
}

/// The best way to the rows of `table` that fulfil all `conditions`.
pub(super) fn with_access(table: std::sync::Arc<TableDef>, mut conditions: Vec<Expr>, locks: Option<Mode>) -> Scan {
    conditions.sort_by_key(cost);
    let mut best: Option<(usize, Access, Vec<usize>)> = None;
    let keys = (!table.key.is_empty()).then_some((None, &table.key)).into_iter();
    let orders = keys.chain(table.indexes.iter().enumerate().map(|(number, index)| (Some(number), &index.columns)));
    for (index, columns) in orders {
        // A number without a scale is kept as a text, whose order is another one.
        let is_ordered = |column: &&usize| {
            let column = &table.columns[**column];
            crate::catalog::value::is_ordered(column.ty, column.modifier)
        };
        let Some((score, access, used)) =
            path(&table, &conditions, index, columns.iter().take_while(is_ordered).copied(), columns.len())
        else {
            continue;
        };
        if best.as_ref().is_none_or(|(other, ..)| score > *other) {
            best = Some((score, access, used));
        }
    }
    let Some((_, access, used)) = best else {
        return Scan {
            table,
            access: Access::All,
            filter: Expr::all(conditions),
            locks,
            wait: crate::parse::ast::LockWait::Wait,
            is_read: false,
            shows_number: false,
        };
    };
    let rest = conditions.into_iter().enumerate().filter(|(number, _)| !used.contains(number));
    let filter = Expr::all(rest.map(|(_, condition)| condition));
    Scan { table, access, filter, locks, wait: crate::parse::ast::LockWait::Wait, is_read: false, shows_number: false }
}

/// Rows by the first `columns` of a key or index: how good that is, the way, and the conditions that it fulfils.
fn path(
    table: &TableDef,
    conditions: &[Expr],
    index: Option<usize>,
    columns: impl Iterator<Item = usize>,
    count: usize,
) -> Option<(usize, Access, Vec<usize>)> {
    let (mut equal, mut used) = (Vec::new(), Vec::new());
    let (mut low, mut high) = (None, None);
    for column in columns {
        let mut found = limits(conditions, column, table);
        if let Some(place) = found.iter().position(|(_, limit)| limit.comparison == Comparison::Equal) {
            let (number, limit) = found.swap_remove(place);
            used.push(number);
            equal.push(limit.part);
            continue;
        }
        // Limits are tested as well: an index has its nulls on one side of all values.
        for (_, limit) in found {
            let slot = match limit.comparison {
                Comparison::Greater | Comparison::GreaterOrEqual => &mut low,
                _ => &mut high,
            };
            let is_inclusive = matches!(limit.comparison, Comparison::GreaterOrEqual | Comparison::LessOrEqual);
            slot.get_or_insert((limit.part, is_inclusive));
        }
        break;
    }
    if index.is_none() && equal.len() == count {
        return Some((1000, Access::Key(equal), used));
    }
    let limits = usize::from(low.is_some()) + usize::from(high.is_some());
    let is_unique = index.is_some_and(|index| table.indexes[index].is_unique) && equal.len() == count;
    let score = equal.len() * 10 + limits * 3 + usize::from(is_unique) * 500 + usize::from(index.is_none());
    (equal.len() + limits > 0).then(|| (score, Access::Range { index, equal, low, high }, used))
}
