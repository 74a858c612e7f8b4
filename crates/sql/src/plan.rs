//! Plans: what the binder makes and the executor runs.
//!
//! A row is a list of values. An expression names a value of the row at hand by its number (depth 0), or one of the row
//! around a subquery or lateral table (depth 1 and more).

mod member;
mod merge;
mod parts;
pub mod tables;

use std::sync::Arc;

use lodestone_sql_types::func::Function;
use lodestone_sql_types::op::{Arithmetic, Comparison};
use lodestone_sql_types::{Datum, Type};

use crate::catalog::types::RowChecks;
use crate::catalog::{Domain, TableDef};
use crate::locks::Mode;
use crate::parse::ast::{CopyFormat, Exclude, FrameUnit, JoinKind, LockWait, SetOperation};
use crate::pgcatalog::VirtualTable;
use crate::run::point::PointQuery;

pub use member::{Limits, Member};
pub use merge::{Merge, MergeClause, MergeMember, MergeWork};
pub use parts::Parts;

/// An expression whose types are known.
#[derive(Clone, Debug)]
pub enum Expr {
    Const(Datum),
    Column {
        depth: usize,
        index: usize,
    },
    Param(usize),
    Compare(Comparison, Type, Box<Expr>, Box<Expr>),
    Arithmetic(Arithmetic, Type, Box<Expr>, Box<Expr>),
    Negate(Type, Box<Expr>),
    Concat(Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    IsTruth(Box<Expr>, Option<bool>),
    IsDistinct(Type, Box<Expr>, Box<Expr>),
    /// Equal to one of the list.
    In(Type, Box<Expr>, Vec<Expr>),
    Like {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<char>,
        ignores_case: bool,
    },
    Regex {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        ignores_case: bool,
    },
    /// Compares with the elements of an array.
    Quantified {
        op: Comparison,
        ty: Type,
        left: Box<Expr>,
        right: Box<Expr>,
        is_all: bool,
    },
    /// LIKE with the elements of an array as patterns.
    LikeEach {
        left: Box<Expr>,
        right: Box<Expr>,
        ignores_case: bool,
        negated: bool,
        is_all: bool,
    },
    Cast {
        expr: Box<Expr>,
        from: Type,
        to: Type,
    },
    /// The JSON text of a value of this type.
    ToJson(Type, Box<Expr>),
    /// The modifier of a type.
    Fit {
        expr: Box<Expr>,
        ty: Type,
        modifier: i32,
        is_explicit: bool,
    },
    /// A value that becomes one of a domain.
    Domain {
        expr: Box<Expr>,
        domain: Arc<Domain>,
    },
    /// The number of the table that a text names.
    RelationOid(Box<Expr>),
    Call(&'static Function, Vec<Expr>),
    Case {
        branches: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Coalesce(Vec<Expr>),
    /// The largest or the smallest of values.
    Extreme {
        ty: Type,
        list: Vec<Expr>,
        is_greatest: bool,
    },
    Array(Vec<Expr>),
    Record(Vec<Expr>),
    /// The elements of an array as the last arguments of a call, each as the expression makes it: the element is the
    /// only column of its row.
    Spread(Box<Expr>, Arc<Expr>),
    /// A row, or an array of rows, whose fields of domains are tested.
    Checked(Box<Expr>, Arc<RowChecks>),
    /// The row of a type that a JSON object says, over another row.
    Populate(Type, Box<Expr>, Box<Expr>),
    /// A field of a row, by its place.
    Field(Box<Expr>, usize),
    Element(Box<Expr>, Box<Expr>),
    /// A part of an array, or the array with another part.
    Part(Box<Part>),
    Scalar(Box<Node>),
    Exists(Box<Node>),
    ArrayOf(Box<Node>),
    InQuery(Type, Box<Expr>, Box<Node>),
}

/// Subscripts of an array.
#[derive(Clone, Debug)]
pub struct Part {
    pub base: Expr,
    /// Both bounds of each, of which one that is left out is that of the array. An index is the second one.
    pub list: Vec<(Option<Expr>, Option<Expr>)>,
    pub is_slice: bool,
    /// The part that is assigned.
    pub value: Option<Expr>,
    /// The base is a `jsonb`, and the indexes are texts. A null becomes an array if so, or else an object.
    pub json: Option<bool>,
}

impl Part {
    fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let bounds = self.list.iter().flat_map(|(low, high)| low.iter().chain(high));
        [&self.base].into_iter().chain(bounds).chain(&self.value)
    }

    fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let bounds = self.list.iter_mut().flat_map(|(low, high)| low.iter_mut().chain(high));
        [&mut self.base].into_iter().chain(bounds).chain(&mut self.value)
    }
}

/// An aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    CountRows,
    Count,
    /// Of this type.
    Sum(Type),
    Avg(Type),
    Min(Type),
    Max(Type),
    BoolAnd,
    BoolOr,
    StringAgg,
    ArrayAgg,
    /// `array_agg` of arrays: an array with one more dimension.
    ArrayStack,
    BitAnd,
    BitOr,
    BitXor,
    /// Of JSON texts, to a `json` or a `jsonb`.
    JsonAgg(Type),
    /// Of keys and JSON texts.
    JsonObjectAgg(Type),
    /// A figure of one or two columns, of this type.
    Figure(Figure, Type),
}

/// A figure of the numbers of one column, or of the pairs of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    VariancePopulation,
    VarianceSample,
    DeviationPopulation,
    DeviationSample,
    Correlation,
    CovariancePopulation,
    CovarianceSample,
    AverageX,
    AverageY,
    Count,
    Intercept,
    Determination,
    Slope,
    SquaresX,
    Products,
    SquaresY,
}

/// A call of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    pub aggregate: Aggregate,
    pub arguments: Vec<Expr>,
    pub is_distinct: bool,
    pub filter: Option<Expr>,
    pub order_by: Vec<SortKey>,
}

/// A column of an order.
#[derive(Clone, Debug)]
pub struct SortKey {
    pub expr: Expr,
    pub ty: Type,
    pub is_descending: bool,
    pub nulls_first: bool,
}

/// The bound of a range: an expression of the type with which it is compared.
#[derive(Clone, Debug)]
pub struct KeyPart {
    pub expr: Expr,
    pub ty: Type,
}

/// How rows of a table are found.
#[expect(clippy::large_enum_variant, reason = "a scan has one, and is itself in a box")]
#[derive(Clone, Debug)]
pub enum Access {
    /// All rows.
    All,
    /// The row with this key.
    Key(Vec<KeyPart>),
    /// Rows by the first columns of the key or an index, and limits of the next one.
    Range {
        /// The number of the index. `None`: the key.
        index: Option<usize>,
        equal: Vec<KeyPart>,
        low: Option<(KeyPart, bool)>,
        high: Option<(KeyPart, bool)>,
    },
}

/// Rows of a table.
#[derive(Clone, Debug)]
pub struct Scan {
    pub table: Arc<TableDef>,
    pub access: Access,
    pub filter: Option<Expr>,
    /// How the rows are locked until the transaction ends. `None`: they are not.
    pub locks: Option<Mode>,
    pub wait: LockWait,
    /// Whether the rows are locked for a query, not for a change.
    pub is_read: bool,
    /// Whether the hidden number of a row is one more column.
    pub shows_number: bool,
}

/// A function that returns rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetFunction {
    GenerateSeries,
    Unnest,
    GenerateSubscripts,
    /// Of moments, of this type.
    GenerateMoments(Type),
    RegexMatches,
    RegexSplit,
    StringToTable,
    /// Keys and values of a `json` or `jsonb`; values as texts if so.
    JsonEach {
        is_text: bool,
    },
    JsonElements {
        is_text: bool,
    },
    JsonKeys,
    /// The rows of a type that the objects of a JSON array say, over another row.
    JsonRows(Type),
    /// Any other function, as one row.
    One,
}

/// A query.
#[derive(Clone, Debug)]
pub enum Node {
    Values(Vec<Vec<Expr>>),
    Scan(Box<Scan>),
    Virtual {
        table: &'static VirtualTable,
        filter: Option<Expr>,
    },
    Function {
        function: SetFunction,
        arguments: Vec<Expr>,
        has_ordinality: bool,
    },
    Join(Box<Join>),
    Filter {
        input: Box<Node>,
        filter: Expr,
    },
    /// The rows of `input` if the condition is true, which names no column of theirs.
    Gate {
        input: Box<Node>,
        filter: Expr,
    },
    Hashed(Box<Hashed>),
    Project {
        input: Box<Node>,
        columns: Vec<Expr>,
    },
    Aggregate {
        input: Box<Node>,
        keys: Vec<Expr>,
        calls: Vec<AggregateCall>,
        /// The keys of each set, by their numbers; the others are null in its groups. Then the last key is a number
        /// with a bit for each key that the set leaves out. None: all keys are one set.
        sets: Vec<Vec<usize>>,
    },
    Sort {
        input: Box<Node>,
        keys: Vec<SortKey>,
    },
    Limit {
        input: Box<Node>,
        limit: Option<Expr>,
        offset: Option<Expr>,
        /// The order in which rows that are equal to the last one are taken as well. Empty: none are.
        ties: Vec<SortKey>,
    },
    /// The first row of each group of equal columns; all columns if there are none.
    Distinct {
        input: Box<Node>,
        on: Vec<Expr>,
    },
    Set {
        op: SetOperation,
        is_all: bool,
        left: Box<Node>,
        right: Box<Node>,
    },
    /// The rows, each with the results of the calls after its columns.
    Window {
        input: Box<Node>,
        calls: Vec<WindowCall>,
    },
    /// For each row as many as the longest of the calls returns, with their values after its columns.
    ProjectSet {
        input: Box<Node>,
        calls: Vec<(SetFunction, Vec<Expr>)>,
    },
    /// The rows of `first`, then those of `step` over the rows that came last, until there are none.
    Recursive {
        number: usize,
        first: Box<Node>,
        step: Box<Node>,
        is_all: bool,
    },
    /// The rows that came last in the recursive query with this number.
    Work {
        number: usize,
    },
    /// The rows of a query of WITH that may have others the next time. They are read once, for all that name it.
    Shared {
        number: usize,
        input: Box<Node>,
    },
    LockRows(Box<LockRows>),
    /// Some of the rows, chosen at random.
    Sample {
        input: Box<Node>,
        /// Of all rows, as `float4`.
        percent: Expr,
        /// The same rows again for the same value, as `float8`.
        repeat: Option<Expr>,
    },
    /// The rows of each, one after the other.
    Append(Vec<Member>),
}

/// Rows that are read once in a statement, and looked for by values of the rows around again and again.
#[derive(Clone, Debug)]
pub struct Hashed {
    /// It does not depend on the rows around.
    pub input: Node,
    /// Equal values: of an own row, and of the rows around.
    pub keys: Vec<(Expr, Expr)>,
    /// Tested before the rows: it names no own column.
    pub before: Option<Expr>,
    pub rest: Option<Expr>,
}

/// Rows of tables, locked until the transaction ends.
///
/// As many as `limit` and `offset` leave are locked, in the order in which they come. The rows of `offset` are among
/// them, as in `PostgreSQL`, and come out as well.
#[derive(Clone, Debug)]
pub struct LockRows {
    pub input: Node,
    pub targets: Vec<LockTarget>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
}

/// A table whose rows are locked, and where its columns are in the rows at hand.
#[derive(Clone, Debug)]
pub struct LockTarget {
    pub table: Arc<TableDef>,
    pub columns: Vec<usize>,
    /// Where its hidden number is, if it has no key.
    pub number: Option<usize>,
    pub mode: Mode,
    pub wait: LockWait,
}

/// A function of the rows around a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    Lag,
    Lead,
    FirstValue,
    LastValue,
    NthValue,
    Aggregate(Aggregate),
}

/// A limit of a frame.
#[derive(Clone, Debug)]
pub enum FrameBound {
    Start,
    Before(Box<Expr>),
    Current,
    After(Box<Expr>),
    End,
}

/// The rows of a partition that count for a row.
#[derive(Clone, Debug)]
pub struct Frame {
    pub unit: FrameUnit,
    pub from: FrameBound,
    pub to: FrameBound,
    pub exclude: Exclude,
    /// The types of the order and of the offsets of a RANGE frame that has one.
    pub range: Option<(Type, Type)>,
}

/// A call of a window function.
#[derive(Clone, Debug)]
pub struct WindowCall {
    pub function: WindowFunction,
    pub arguments: Vec<Expr>,
    pub filter: Option<Expr>,
    pub partition_by: Vec<Expr>,
    pub order_by: Vec<SortKey>,
    pub frame: Frame,
}

/// A join of two tables.
#[derive(Clone, Debug)]
pub struct Join {
    pub kind: JoinKind,
    pub left: Node,
    pub right: Node,
    pub left_width: usize,
    pub right_width: usize,
    /// Whether the right side names columns of the left one, at depth 1.
    pub is_lateral: bool,
    /// Over the columns of both sides.
    pub on: Option<Expr>,
    /// Equal columns: of the left row, and of the right row.
    pub hash: Vec<(Expr, Expr)>,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub ty: Type,
    /// The modifier of the type; -1: none.
    pub modifier: i32,
    /// Table and column that it is taken from.
    pub origin: Option<(u32, i16)>,
}

/// A change of rows.
#[derive(Clone, Debug)]
pub enum Change {
    /// The input has a value for each column.
    Insert {
        table: Arc<TableDef>,
        input: Node,
        conflict: Option<Conflict>,
        /// The table is changed through views.
        view: Option<Arc<ViewRows>>,
    },
    Update {
        scan: Scan,
        set: Vec<(usize, Expr)>,
    },
    Delete {
        scan: Scan,
    },
    /// Of a table and of those below it.
    Family {
        root: Arc<TableDef>,
        parts: Vec<FamilyPart>,
        is_update: bool,
    },
    /// Of rows of a join: those of the table first, then its hidden number if it has one, then those of the others.
    Joined {
        table: Arc<TableDef>,
        input: Node,
        /// Tested again when the row has changed meanwhile.
        filter: Option<Expr>,
        /// `None`: the rows are deleted.
        set: Option<Vec<(usize, Expr)>>,
        /// The table is changed through views, whose columns are those after the hidden number.
        view: Option<Arc<ViewRows>>,
    },
    Merge(Box<Merge>),
}

/// The columns and conditions that views add to a row of the table that is changed through them.
#[derive(Clone, Debug, Default)]
pub struct ViewRows {
    /// The columns of the views, each over those of the table, its hidden number, and those before it.
    pub columns: Vec<Expr>,
    /// The conditions of WITH CHECK OPTION over such a row, each with the name of its view, the innermost first.
    pub checks: Vec<(String, Expr)>,
}

impl ViewRows {
    /// All of its expressions.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.columns.iter().chain(self.checks.iter().map(|(_, check)| check))
    }
}

/// The change of one of the tables.
#[derive(Clone, Debug)]
pub struct FamilyPart {
    /// Over the columns of this table.
    pub change: Change,
    /// For each column of the root, the column of this table.
    pub map: Vec<usize>,
}

/// The way of a row whose key another row has.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The number of a unique index, or the primary key. `None`: any of them.
    pub key: Option<Option<usize>>,
    /// Over the columns of the row that is there, then those of the new one. `None`: the new row is skipped.
    pub update: Option<ConflictUpdate>,
}

/// The change of the row that is there.
#[derive(Clone, Debug)]
pub struct ConflictUpdate {
    pub set: Vec<(usize, Expr)>,
    pub filter: Option<Expr>,
    /// The rows are those of views.
    pub view: Option<Arc<ViewRows>>,
}

/// The work of a statement.
#[derive(Clone, Debug)]
pub enum Action {
    Select(Node),
    /// With the columns that are returned of each row.
    Change(Change, Option<Vec<Expr>>),
    /// Rows from the client, with the numbers of their columns.
    CopyIn(CopyFormat, Arc<TableDef>, Vec<usize>),
    /// Rows to the client.
    CopyOut(CopyFormat, Node),
    /// Statements that the connection carries out from their text.
    Utility(crate::parse::ast::Statement),
    Empty,
}

/// A change that runs before the statement, and the columns that are kept of its rows.
#[derive(Clone, Debug)]
pub struct First {
    /// Under which [`Node::Work`] finds the rows.
    pub number: usize,
    pub change: Change,
    pub returned: Option<Vec<Expr>>,
}

/// A statement that is ready to run.
#[derive(Debug)]
pub struct Plan {
    pub action: Action,
    /// The changes in WITH.
    pub first: Vec<First>,
    pub columns: Vec<OutputColumn>,
    pub parameters: Vec<Type>,
    /// The tables that it locks before it runs, and how.
    pub tables: Vec<(u32, Mode)>,
    /// Whether it takes locks of numbers (advisory locks), which it may wait for.
    pub takes_numbers: bool,
    /// The catalog that it was made under.
    pub catalog: u64,
    /// The same as a query of one row by its key, if it is one.
    pub point: Option<PointQuery>,
    /// Whether it has constants that are computed before its first row.
    pub has_constants: bool,
}

impl Plan {
    /// Whether it takes no locks and changes nothing.
    pub fn only_reads(&self) -> bool {
        if !self.first.is_empty() {
            return false;
        }
        match &self.action {
            Action::Select(node) | Action::CopyOut(_, node) => !node.takes_locks(),
            _ => false,
        }
    }

    /// Whether it returns rows.
    pub fn returns_rows(&self) -> bool {
        matches!(self.action, Action::Select(_) | Action::Change(_, Some(_)))
            || matches!(
                self.action,
                Action::Utility(crate::parse::ast::Statement::Show(_) | crate::parse::ast::Statement::Explain { .. })
            )
    }
}

impl Expr {
    /// Calls `visit` for each part that belongs to the same row, the outermost first. Subqueries are not entered.
    pub fn walk(&self, visit: &mut dyn FnMut(&Expr)) {
        visit(self);
        self.each_part(&mut |part| part.walk(visit));
    }

    /// Calls `visit` for each part of which it is made. Subqueries are not entered.
    pub fn each_part<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        match self {
            Self::Const(_)
            | Self::Column { .. }
            | Self::Param(_)
            | Self::Scalar(_)
            | Self::Exists(_)
            | Self::ArrayOf(_) => {}
            Self::Compare(_, _, one, two)
            | Self::Arithmetic(_, _, one, two)
            | Self::Concat(one, two)
            | Self::And(one, two)
            | Self::Or(one, two)
            | Self::IsDistinct(_, one, two)
            | Self::Populate(_, one, two)
            | Self::Element(one, two)
            | Self::Like { expr: one, pattern: two, .. }
            | Self::Regex { expr: one, pattern: two, .. }
            | Self::LikeEach { left: one, right: two, .. }
            | Self::Quantified { left: one, right: two, .. } => {
                visit(one);
                visit(two);
            }
            Self::Negate(_, expr)
            | Self::Not(expr)
            | Self::IsNull(expr)
            | Self::IsTruth(expr, _)
            | Self::Cast { expr, .. }
            | Self::Fit { expr, .. }
            | Self::Domain { expr, .. }
            | Self::ToJson(_, expr)
            | Self::RelationOid(expr)
            | Self::Field(expr, _)
            | Self::Checked(expr, _)
            | Self::Spread(expr, _)
            | Self::InQuery(_, expr, _) => visit(expr),
            Self::In(_, expr, list) => {
                visit(expr);
                list.iter().for_each(visit);
            }
            Self::Call(_, list)
            | Self::Coalesce(list)
            | Self::Extreme { list, .. }
            | Self::Array(list)
            | Self::Record(list) => list.iter().for_each(visit),
            Self::Part(part) => part.exprs().for_each(visit),
            Self::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    visit(condition);
                    visit(result);
                }
                visit(otherwise);
            }
        }
    }

    /// Whether it has a subquery.
    pub fn has_subquery(&self) -> bool {
        let mut found = false;
        self.walk(&mut |expr| {
            found |= matches!(expr, Self::Scalar(_) | Self::Exists(_) | Self::ArrayOf(_) | Self::InQuery(..));
        });
        found
    }

    /// Whether it may have another value the next time.
    pub fn is_volatile(&self) -> bool {
        let mut found = false;
        self.walk(&mut |expr| found |= matches!(expr, Self::Call(function, _) if function.is_volatile));
        found
    }

    /// The least and the largest column of the row at hand that it names.
    pub fn column_range(&self) -> Option<(usize, usize)> {
        let mut range: Option<(usize, usize)> = None;
        self.walk(&mut |expr| {
            if let Self::Column { depth: 0, index } = expr {
                range = Some(range.map_or((*index, *index), |(least, most)| (least.min(*index), most.max(*index))));
            }
        });
        range
    }

    /// The same expression over a row that begins `count` columns later. It has no subquery.
    pub fn shifted(&self, count: usize) -> Self {
        let mut found = self.clone();
        found.shift(count);
        found
    }

    fn shift(&mut self, count: usize) {
        self.walk_mut(&mut |expr| {
            if let Self::Column { depth: 0, index } = expr {
                *index -= count;
            }
        });
    }

    /// As [`walk`](Self::walk), to change the parts.
    pub fn walk_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        visit(self);
        match self {
            Self::Const(_)
            | Self::Column { .. }
            | Self::Param(_)
            | Self::Scalar(_)
            | Self::Exists(_)
            | Self::ArrayOf(_) => {}
            Self::Compare(_, _, one, two)
            | Self::Arithmetic(_, _, one, two)
            | Self::Concat(one, two)
            | Self::And(one, two)
            | Self::Or(one, two)
            | Self::IsDistinct(_, one, two)
            | Self::Populate(_, one, two)
            | Self::Element(one, two)
            | Self::Like { expr: one, pattern: two, .. }
            | Self::Regex { expr: one, pattern: two, .. }
            | Self::LikeEach { left: one, right: two, .. }
            | Self::Quantified { left: one, right: two, .. } => {
                one.walk_mut(visit);
                two.walk_mut(visit);
            }
            Self::Negate(_, expr)
            | Self::Not(expr)
            | Self::IsNull(expr)
            | Self::IsTruth(expr, _)
            | Self::Cast { expr, .. }
            | Self::Fit { expr, .. }
            | Self::Domain { expr, .. }
            | Self::ToJson(_, expr)
            | Self::RelationOid(expr)
            | Self::Field(expr, _)
            | Self::Checked(expr, _)
            | Self::Spread(expr, _)
            | Self::InQuery(_, expr, _) => expr.walk_mut(visit),
            Self::In(_, expr, list) => {
                expr.walk_mut(visit);
                list.iter_mut().for_each(|expr| expr.walk_mut(visit));
            }
            Self::Call(_, list)
            | Self::Coalesce(list)
            | Self::Extreme { list, .. }
            | Self::Array(list)
            | Self::Record(list) => list.iter_mut().for_each(|expr| expr.walk_mut(visit)),
            Self::Part(part) => part.exprs_mut().for_each(|expr| expr.walk_mut(visit)),
            Self::Case { branches, otherwise } => {
                for (condition, result) in branches {
                    condition.walk_mut(visit);
                    result.walk_mut(visit);
                }
                otherwise.walk_mut(visit);
            }
        }
    }

    /// The conditions that all must hold.
    pub fn conjuncts(self, found: &mut Vec<Self>) {
        match self {
            Self::And(one, two) => {
                one.conjuncts(found);
                two.conjuncts(found);
            }
            other => found.push(other),
        }
    }

    /// All of the conditions together.
    pub fn all(conditions: impl IntoIterator<Item = Self>) -> Option<Self> {
        conditions.into_iter().reduce(|one, two| Self::And(Box::new(one), Box::new(two)))
    }
}
