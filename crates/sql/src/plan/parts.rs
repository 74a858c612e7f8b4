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
            Self::Scan(scan) => scan_exprs(scan, &mut exprs),
            Self::Virtual { filter, .. } => exprs.extend(filter),
            Self::Function { arguments, .. } => exprs.extend(arguments),
            Self::Join(join) => {
                inputs.extend([&join.left, &join.right]);
                exprs.extend(join.on.iter().chain(join.hash.iter().flat_map(|(one, two)| [one, two])));
            }
            Self::Filter { input, filter } => {
                inputs.push(input);
                exprs.push(filter);
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
            Self::Limit { input, limit, offset } => {
                inputs.push(input);
                exprs.extend(limit.iter().chain(offset));
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
            Self::Work { .. } => {}
        }
        Parts { exprs, inputs }
    }

    /// Whether it locks rows that it reads, in a subquery perhaps.
    pub fn takes_locks(&self) -> bool {
        match self {
            Self::Scan(scan) if scan.locks => return true,
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
        reaches(self, 0, &mut works)
    }
}

impl Expr {
    /// Whether it names values of the rows around the one at hand.
    pub fn is_correlated(&self) -> bool {
        let mut works = Vec::new();
        expr_reaches(self, 0, &mut works)
    }
}

/// Whether a node that is `level` rows inside names a value further out. `works`: the recursive queries around it that
/// are inside as well.
fn reaches(node: &Node, level: usize, works: &mut Vec<usize>) -> bool {
    match node {
        Node::Work { number } => return !works.contains(number),
        Node::Recursive { number, first, step, .. } => {
            works.push(*number);
            let found = reaches(first, level, works) || reaches(step, level, works);
            works.pop();
            return found;
        }
        Node::Join(join) if join.is_lateral => {
            let on = join.on.iter().any(|expr| expr_reaches(expr, level, works));
            return on || reaches(&join.left, level, works) || reaches(&join.right, level + 1, works);
        }
        _ => {}
    }
    let Parts { exprs, inputs } = node.parts();
    exprs.into_iter().any(|expr| expr_reaches(expr, level, works))
        || inputs.into_iter().any(|input| reaches(input, level, works))
}

fn expr_reaches(expr: &Expr, level: usize, works: &mut Vec<usize>) -> bool {
    let mut found = false;
    expr.walk(&mut |part| match part {
        Expr::Column { depth, .. } => found = found || *depth > level,
        Expr::Scalar(node) | Expr::Exists(node) | Expr::ArrayOf(node) | Expr::InQuery(_, _, node) => {
            found = found || reaches(node, level + 1, works);
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

fn scan_exprs<'n>(scan: &'n Scan, exprs: &mut Vec<&'n Expr>) {
    match &scan.access {
        Access::All => {}
        Access::Key(parts) => exprs.extend(parts.iter().map(|part| &part.expr)),
        Access::Range { equal, low, high, .. } => {
            let limits = low.iter().chain(high).map(|(part, _)| part);
            exprs.extend(equal.iter().chain(limits).map(|part| &part.expr));
        }
    }
    exprs.extend(&scan.filter);
}
