//! The order in which the tables of a FROM list are joined.
//!
//! Tables between commas are joined as they are written, each with those before it. Where no equation connects one of
//! them with those before, every pair of rows is made, and a later equation throws most of them away: `FROM a, b, c
//! WHERE a.x = c.x AND c.y = b.y` makes all pairs of `a` and `b`. So another order is taken if it has fewer such steps:
//! from a table with a condition of its own, always on to one that an equation connects. The columns of the rows come
//! in the written order again.

use lodestone_sql_types::op::Comparison;

use super::access::{gated, push};
use crate::parse::ast::JoinKind;
use crate::plan::{Expr, Join, Node};

/// A table of the list, and where its columns are in the rows of the join.
struct Leaf {
    node: Node,
    start: usize,
    width: usize,
}

/// The equations and conditions of the tables, by their numbers.
#[derive(Default)]
struct Links {
    /// Equations: the tables of both sides.
    equations: Vec<(Vec<usize>, Vec<usize>)>,
    /// Whether a table has a condition that names no other one.
    has_own: Vec<bool>,
}

/// The rows of `node` that fulfil the condition, joined in an order with few products.
pub(super) fn filtered(node: Node, filter: Expr) -> Node {
    let mut conditions = Vec::new();
    filter.conjuncts(&mut conditions);
    if !is_list(&node) {
        return push(node, conditions);
    }
    let (once, conditions): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(Expr::is_one_time);
    gated(in_order(node, conditions), once)
}

/// The rows of a list of tables that fulfil all conditions.
fn in_order(node: Node, conditions: Vec<Expr>) -> Node {
    let mut leaves = Vec::new();
    take_apart(node, &mut leaves);
    let links = Links::of(&leaves, &conditions);
    let written: Vec<usize> = (0..leaves.len()).collect();
    let order = links.order();
    if links.products(&order) >= links.products(&written) {
        return push(put_together(leaves, &written), conditions);
    }
    let width = leaves.iter().map(|leaf| leaf.width).sum();
    let mut places = vec![0; width];
    let mut next = 0;
    for number in &order {
        let leaf = &leaves[*number];
        (leaf.start..leaf.start + leaf.width).for_each(|column| places[column] = next + column - leaf.start);
        next += leaf.width;
    }
    let (moved, rest): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(is_movable);
    let moved = moved.into_iter().map(|condition| renumbered(condition, &places)).collect();
    let node = push(put_together(leaves, &order), moved);
    let columns = places.into_iter().map(|index| Expr::Column { depth: 0, index }).collect();
    push(Node::Project { input: Box::new(node), columns }, rest)
}

/// Whether the join is one of at least three tables of a list. The others stay as they are.
fn is_list(node: &Node) -> bool {
    let left = |node: &Node| match node {
        Node::Join(join) if is_plain(join) => Some(matches!(&join.left, Node::Join(below) if is_plain(below))),
        _ => None,
    };
    left(node) == Some(true)
}

/// A product of two tables that do not depend on each other.
fn is_plain(join: &Join) -> bool {
    join.kind == JoinKind::Inner && !join.is_lateral && join.on.is_none() && join.hash.is_empty()
}

fn take_apart(node: Node, leaves: &mut Vec<Leaf>) {
    let (mut node, mut found) = (node, Vec::new());
    loop {
        match node {
            Node::Join(join) if is_plain(&join) => {
                let (start, width) = (join.left_width, join.right_width);
                found.push(Leaf { node: join.right, start, width });
                node = join.left;
            }
            first => {
                // The second table begins where the first one ends.
                let width = found.last().map_or(0, |leaf| leaf.start);
                found.push(Leaf { node: first, start: 0, width });
                break;
            }
        }
    }
    leaves.extend(found.into_iter().rev());
}

fn put_together(leaves: Vec<Leaf>, order: &[usize]) -> Node {
    let mut slots: Vec<Option<Leaf>> = leaves.into_iter().map(Some).collect();
    let mut found: Option<(Node, usize)> = None;
    for leaf in order.iter().filter_map(|number| slots[*number].take()) {
        let Some((left, left_width)) = found.take() else {
            found = Some((leaf.node, leaf.width));
            continue;
        };
        let right_width = leaf.width;
        let join = Join {
            kind: JoinKind::Inner,
            left,
            right: leaf.node,
            left_width,
            right_width,
            is_lateral: false,
            on: None,
            hash: Vec::new(),
        };
        found = Some((Node::Join(Box::new(join)), left_width + right_width));
    }
    found.map_or_else(|| Node::Values(vec![Vec::new()]), |(node, _)| node)
}

fn is_movable(condition: &Expr) -> bool {
    !condition.has_subquery() && !condition.is_volatile()
}

fn renumbered(mut condition: Expr, places: &[usize]) -> Expr {
    condition.walk_mut(&mut |part| {
        if let Expr::Column { depth: 0, index } = part
            && let Some(place) = places.get(*index)
        {
            *index = *place;
        }
    });
    condition
}

impl Links {
    fn of(leaves: &[Leaf], conditions: &[Expr]) -> Self {
        let mut found = Self { equations: Vec::new(), has_own: vec![false; leaves.len()] };
        for condition in conditions.iter().filter(|condition| is_movable(condition)) {
            if let [only] = tables(leaves, condition)[..] {
                found.has_own[only] = true;
            }
            if let Expr::Compare(Comparison::Equal, _, one, two) = condition {
                let (one, two) = (tables(leaves, one), tables(leaves, two));
                if !one.is_empty() && !two.is_empty() && !one.iter().any(|table| two.contains(table)) {
                    found.equations.push((one, two));
                }
            }
        }
        found
    }

    /// Whether an equation connects the table with those that were taken.
    fn connects(&self, table: usize, is_taken: &[bool]) -> bool {
        let is_between = |one: &[usize], two: &[usize]| one == [table] && two.iter().all(|other| is_taken[*other]);
        self.equations.iter().any(|(one, two)| is_between(one, two) || is_between(two, one))
    }

    /// How many tables no equation connects with those before.
    fn products(&self, order: &[usize]) -> usize {
        let mut is_taken = vec![false; order.len()];
        let mut count = 0;
        for table in order {
            count += usize::from(!self.connects(*table, &is_taken));
            is_taken[*table] = true;
        }
        count
    }

    fn order(&self) -> Vec<usize> {
        let mut is_taken = vec![false; self.has_own.len()];
        let mut order = Vec::new();
        while order.len() < is_taken.len() {
            let mut left: Vec<usize> = (0..is_taken.len()).filter(|table| !is_taken[*table]).collect();
            // The first one of the best: the order is stable.
            left.sort_by_key(|table| (!self.connects(*table, &is_taken), !self.has_own[*table]));
            let Some(next) = left.first() else { break };
            is_taken[*next] = true;
            order.push(*next);
        }
        order
    }
}

/// The tables whose columns an expression names.
fn tables(leaves: &[Leaf], expr: &Expr) -> Vec<usize> {
    let mut found = Vec::new();
    expr.walk(&mut |part| {
        if let Expr::Column { depth: 0, index } = part {
            let is_in = |leaf: &Leaf| (leaf.start..leaf.start + leaf.width).contains(index);
            found.extend(leaves.iter().position(is_in));
        }
    });
    found.sort_unstable();
    found.dedup();
    found
}
