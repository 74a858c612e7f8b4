//! The parts of a query: its expressions and the queries below it.

use super::{Access, Expr, Node, Scan};

/// The expressions of a node, and the nodes that it reads.
pub struct Parts<'n> {
    pub exprs: Vec<&'n Expr>,
    pub inputs: Vec<&'n Node>,
}

impl Node {
    /// Its expressions and inputs, without those further below.
    pub fn parts(&self) -> Parts<'_> {
        let mut exprs: Vec<&Expr> = Vec::new();
        let mut inputs: Vec<&Node> = Vec::new();
        match self {
            Self::Values(rows) => exprs.extend(rows.iter().flatten()),
            Self::Scan(scan) => exprs = scan.exprs(),
            Self::Virtual { filter, .. } => exprs.extend(filter),
            Self::Function { arguments, .. } => exprs.extend(arguments),
            Self::Join(join) => {
                inputs.extend([&join.left, &join.right]);
                exprs.extend(join.on.iter().chain(join.hash.iter().flat_map(|(one, two)| [one, two])));
            }
            Self::Filter { input, filter } | Self::Gate { input, filter } => {
                inputs.push(input);
                exprs.push(filter);
            }
            Self::Hashed(hashed) => {
                inputs.push(&hashed.input);
                exprs.extend(hashed.keys.iter().flat_map(|(one, two)| [one, two]));
                exprs.extend(hashed.before.iter().chain(&hashed.rest));
            }
            Self::Project { input, columns } => {
                inputs.push(input);
                exprs.extend(columns);
            }
            Self::Aggregate { input, keys, calls, .. } => {
                inputs.push(input);
                exprs.extend(keys);
                for call in calls {
                    exprs.extend(call.arguments.iter().chain(&call.filter));
                    exprs.extend(call.order_by.iter().map(|key| &key.expr));
                }
            }
            Self::Sort { input, keys } => {
                inputs.push(input);
                exprs.extend(keys.iter().map(|key| &key.expr));
            }
            Self::Limit { input, limit, offset, ties } => {
                inputs.push(input);
                exprs.extend(limit.iter().chain(offset).chain(ties.iter().map(|key| &key.expr)));
            }
            Self::Distinct { input, on } => {
                inputs.push(input);
                exprs.extend(on);
            }
            Self::Set { left, right, .. } => inputs.extend([&**left, &**right]),
            Self::Window { input, calls } => {
                inputs.push(input);
                for call in calls {
                    exprs.extend(call.arguments.iter().chain(&call.filter).chain(&call.partition_by));
                    exprs.extend(call.order_by.iter().map(|key| &key.expr));
                }
            }
            Self::ProjectSet { input, calls } => {
                inputs.push(input);
                exprs.extend(calls.iter().flat_map(|(_, arguments)| arguments));
            }
            Self::Recursive { first, step, .. } => inputs.extend([&**first, &**step]),
            Self::LockRows(locked) => {
                inputs.push(&locked.input);
                exprs.extend(locked.limit.iter().chain(&locked.offset));
            }
            Self::Sample { input, percent, repeat } => {
                inputs.push(input);
                exprs.extend([percent].into_iter().chain(repeat));
            }
            Self::Append(members) => inputs.extend(members.iter().map(|member| &member.node)),
            Self::Shared { input, .. } => inputs.push(input),
            Self::Work { .. } => {}
        }
        Parts { exprs, inputs }
    }

    /// Whether it locks rows that it reads, in a subquery perhaps.
    pub fn takes_locks(&self) -> bool {
        match self {
            Self::Scan(scan) if scan.locks.is_some() => return true,
            Self::LockRows(_) => return true,
            _ => {}
        }
        let Parts { exprs, inputs } = self.parts();
        inputs.into_iter().any(Self::takes_locks) || exprs.into_iter().any(has_locks)
    }
}

impl Node {
    /// Whether it names values of the rows around it.
    pub fn is_correlated(&self) -> bool {
        let mut works = Vec::new();
        reaches(self, 0, &|depth, _, level| depth > level, &mut works)
    }

    /// Calls `note` for each value of the rows around it that it names: the number of rows further out, where the
    /// nearest one is 0, and the column. `false`: it reads rows of a recursive query around it as well.
    pub fn each_outer(&self, note: &dyn Fn(usize, usize)) -> bool {
        let mut works = Vec::new();
        let means = |depth: usize, index: usize, level: usize| {
            if depth > level && depth < usize::MAX {
                note(depth - level - 1, index);
            }
            depth == usize::MAX
        };
        !reaches(self, 0, &means, &mut works)
    }

    /// Whether it may have other rows the next time.
    pub fn is_volatile(&self) -> bool {
        let Parts { exprs, inputs } = self.parts();
        inputs.into_iter().any(Self::is_volatile) || exprs.into_iter().any(Expr::is_volatile_inside)
    }
}

impl Expr {
    /// Whether it names values of the rows around the one at hand.
    pub fn is_correlated(&self) -> bool {
        let mut works = Vec::new();
        expr_reaches(self, 0, &|depth, _, level| depth > level, &mut works)
    }

    /// Whether it names values of the row at hand, in a subquery perhaps.
    pub fn names_row(&self) -> bool {
        let mut works = Vec::new();
        expr_reaches(self, 0, &|depth, _, level| depth == level, &mut works)
    }

    /// The least number of rows further out of the values that it names. `None`: it names none.
    pub fn least_depth(&self) -> Option<usize> {
        let mut works = Vec::new();
        let least = std::cell::Cell::new(usize::MAX);
        let note = |depth: usize, _: usize, level: usize| {
            if depth >= level && depth < usize::MAX {
                least.set(least.get().min(depth - level));
            }
            false
        };
        expr_reaches(self, 0, &note, &mut works);
        (least.get() < usize::MAX).then_some(least.get())
    }

    /// Whether it, or a subquery of it, may have another value the next time.
    pub fn is_volatile_inside(&self) -> bool {
        let mut found = self.is_volatile();
        self.walk(&mut |part| match part {
            Self::Scalar(node) | Self::Exists(node) | Self::ArrayOf(node) | Self::InQuery(_, _, node) => {
                found = found || node.is_volatile();
            }
            _ => {}
        });
        found
    }
}

/// Whether a value at this depth, in this column, is meant by one that is this many rows inside.
type Means<'m> = &'m dyn Fn(usize, usize, usize) -> bool;

/// Whether a node that is `level` rows inside names such a value. `works`: the recursive queries around it that are
/// inside as well; the rows of another one count as a value further out.
fn reaches(node: &Node, level: usize, means: Means<'_>, works: &mut Vec<usize>) -> bool {
    match node {
        Node::Work { number } => return !works.contains(number) && means(usize::MAX, 0, level),
        Node::Recursive { number, first, step, .. } => {
            works.push(*number);
            let found = reaches(first, level, means, works) || reaches(step, level, means, works);
            works.pop();
            return found;
        }
        Node::Join(join) if join.is_lateral => {
            let on = join.on.iter().any(|expr| expr_reaches(expr, level, means, works));
            return on || reaches(&join.left, level, means, works) || reaches(&join.right, level + 1, means, works);
        }
        _ => {}
    }
    let Parts { exprs, inputs } = node.parts();
    exprs.into_iter().any(|expr| expr_reaches(expr, level, means, works))
        || inputs.into_iter().any(|input| reaches(input, level, means, works))
}

fn expr_reaches(expr: &Expr, level: usize, means: Means<'_>, works: &mut Vec<usize>) -> bool {
    let mut found = false;
    expr.walk(&mut |part| match part {
        Expr::Column { depth, index } => found = found || means(*depth, *index, level),
        Expr::Scalar(node) | Expr::Exists(node) | Expr::ArrayOf(node) | Expr::InQuery(_, _, node) => {
            found = found || reaches(node, level + 1, means, works);
        }
        _ => {}
    });
    found
}

/// Whether a subquery of the expression locks rows.
fn has_locks(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |part| match part {
        Expr::Scalar(node) | Expr::Exists(node) | Expr::ArrayOf(node) | Expr::InQuery(_, _, node) => {
            found = found || node.takes_locks();
        }
        _ => {}
    });
    found
}

impl Scan {
    /// Its expressions.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut exprs: Vec<&Expr> = match &self.access {
            Access::All => Vec::new(),
            Access::Key(parts) => parts.iter().map(|part| &part.expr).collect(),
            Access::Range { equal, low, high, .. } => {
                let limits = low.iter().chain(high).map(|(part, _)| part);
                equal.iter().chain(limits).map(|part| &part.expr).collect()
            }
        };
        exprs.extend(&self.filter);
        exprs
    }
}
