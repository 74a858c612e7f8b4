//! The parts of a MERGE.

use std::sync::Arc;

use super::{Expr, Node};
use crate::catalog::TableDef;

/// A MERGE.
#[derive(Clone, Debug)]
pub struct Merge {
    pub table: Arc<TableDef>,
    /// The tables that have its rows, if there are others below it.
    pub members: Vec<MergeMember>,
    /// The columns of the table, where its row is, and the columns of the source. All before those are null where no
    /// row of the table fits.
    pub input: Node,
    /// Columns before those of the source.
    pub width: usize,
    /// Tested again when the row has changed meanwhile.
    pub on: Expr,
    pub clauses: Vec<MergeClause>,
}

/// A table that has rows of the one that is named.
#[derive(Clone, Debug)]
pub struct MergeMember {
    pub table: Arc<TableDef>,
    /// For each column of the table that is named, the column of this one.
    pub map: Vec<usize>,
}

/// WHEN of a MERGE.
#[derive(Clone, Debug)]
pub struct MergeClause {
    pub is_matched: bool,
    pub filter: Option<Expr>,
    pub work: MergeWork,
}

/// The work of a clause.
#[derive(Clone, Debug)]
pub enum MergeWork {
    Nothing,
    Delete,
    Update(Vec<(usize, Expr)>),
    /// A value for each column.
    Insert(Vec<Expr>),
}

impl MergeClause {
    /// The values of its rows.
    pub fn values(&self) -> impl Iterator<Item = &Expr> {
        let (set, row): (&[(usize, Expr)], &[Expr]) = match &self.work {
            MergeWork::Nothing | MergeWork::Delete => (&[], &[]),
            MergeWork::Update(set) => (set, &[]),
            MergeWork::Insert(row) => (&[], row),
        };
        set.iter().map(|(_, value)| value).chain(row)
    }

    /// All of its expressions.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.filter.iter().chain(self.values())
    }
}
