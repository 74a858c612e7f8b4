//! Statements as the rest of the crate sees them.

mod define;

pub use define::{
    Alter, AlterObject, AlterType, AttributeChange, AttributeDef, BoundDef, CheckDef, ColumnDef, ConstraintDef,
    Default, Discard, DomainDef, ForeignDef, Identity, KeyAction, KeyDef, LabelPlace, Like, OnCommit, PartitionBy,
    Placing, Relatives, SequenceOptions, Strategy, TableAs,
};

use crate::locks::Mode;

/// The number of a character in the statement, from 1. 0: unknown. Two expressions are equal wherever they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position(pub usize);

impl PartialEq for Position {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl From<Position> for usize {
    fn from(position: Position) -> Self {
        position.0
    }
}

/// No known place.
pub const NOWHERE: Position = Position(0);

/// A name with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    pub value: String,
    pub at: Position,
}

/// The name of a table, type or function, with its schema.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectName {
    pub schema: Option<String>,
    pub name: String,
    pub at: Position,
    /// ONLY was written before it: the tables below it are not meant.
    pub is_only: bool,
}

/// The name of a type, with its modifiers.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeName {
    pub schema: Option<String>,
    pub name: String,
    /// Lengths or digits.
    pub modifiers: Vec<i64>,
    pub is_array: bool,
    pub at: Position,
}

impl TypeName {
    /// A type without modifiers.
    pub fn plain(name: &str) -> Self {
        Self { schema: None, name: name.into(), modifiers: Vec::new(), is_array: false, at: NOWHERE }
    }
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
}

/// A call of a function or aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: ObjectName,
    pub arguments: Vec<Expr>,
    /// `count(*)`.
    pub is_star: bool,
    pub is_distinct: bool,
    pub order_by: Vec<Order>,
    pub filter: Option<Box<Expr>>,
    pub over: Option<Over>,
}

impl Call {
    /// A call with nothing but arguments.
    pub fn plain(name: ObjectName, arguments: Vec<Expr>) -> Self {
        Self { name, arguments, is_star: false, is_distinct: false, order_by: Vec::new(), filter: None, over: None }
    }
}

/// The rows of a window function.
#[derive(Clone, Debug, PartialEq)]
pub struct Over {
    /// A window of the query that this one builds on.
    pub name: Option<String>,
    pub partition_by: Vec<Expr>,
    pub order_by: Vec<Order>,
    pub frame: Option<Frame>,
    pub at: Position,
}

/// The rows that a frame leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exclude {
    #[default]
    Nothing,
    CurrentRow,
    /// The row and its peers.
    Group,
    /// The peers of the row.
    Ties,
}

/// The unit in which a frame is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnit {
    Rows,
    Range,
    Groups,
}

/// A limit of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum FrameBound {
    /// `None`: from the first row of the partition.
    Preceding(Option<Box<Expr>>),
    Current,
    /// `None`: to the last row of the partition.
    Following(Option<Box<Expr>>),
}

/// The rows of a partition that count for a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub unit: FrameUnit,
    pub from: FrameBound,
    pub to: FrameBound,
    pub exclude: Exclude,
}

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Literal(Literal, Position),
    Parameter(usize, Position),
    /// With the names before it.
    Column(Vec<String>, Position),
    Negate(Box<Expr>, Position),
    Binary {
        op: String,
        left: Box<Expr>,
        right: Box<Expr>,
        at: Position,
    },
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    IsNull {
        expr: Box<Expr>,
        negated: bool,
    },
    /// `None`: unknown.
    IsTruth {
        expr: Box<Expr>,
        truth: Option<bool>,
        negated: bool,
    },
    IsDistinct {
        left: Box<Expr>,
        right: Box<Expr>,
        negated: bool,
        at: Position,
    },
    InList {
        expr: Box<Expr>,
        list: Vec<Expr>,
        negated: bool,
        at: Position,
    },
    InQuery {
        expr: Box<Expr>,
        query: Box<Query>,
        negated: bool,
        at: Position,
    },
    Between {
        expr: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
        negated: bool,
        at: Position,
    },
    Like {
        expr: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<Option<char>>,
        ignores_case: bool,
        negated: bool,
    },
    /// Compares with each element of an array: with any, or with all.
    Quantified {
        left: Box<Expr>,
        op: String,
        right: Box<Expr>,
        is_all: bool,
        at: Position,
    },
    Cast {
        expr: Box<Expr>,
        to: TypeName,
        /// The text is input of the type: one that is too long is refused, and not cut off.
        is_input: bool,
    },
    Call(Box<Call>, Position),
    Case {
        operand: Option<Box<Expr>>,
        branches: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Exists(Box<Query>),
    Scalar(Box<Query>, Position),
    ArrayOf(Box<Query>),
    Array(Vec<Expr>, Position),
    Element(Box<Expr>, Box<Expr>, Position),
    /// A part of an array.
    Part {
        base: Box<Expr>,
        list: Vec<Subscript>,
        at: Position,
    },
    /// The value of a column with another part: over a value before, or over that of the column.
    Assigned {
        base: Option<Box<Expr>>,
        list: Vec<Subscript>,
        value: Box<Expr>,
        at: Position,
    },
    Row(Vec<Expr>, Position),
    /// A field of a row, or all of them: [`EVERY_FIELD`].
    Field(Box<Expr>, Name),
}

/// The field that `(row).*` is read as. No user can write it.
pub const EVERY_FIELD: &str = "\u{3}*";

/// A subscript: an index, or bounds of which each may be left out. Where a part is assigned it may be a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subscript {
    pub low: Option<Expr>,
    pub high: Option<Expr>,
    pub is_slice: bool,
    pub field: Option<Name>,
}

impl Expr {
    /// Where it is, if that is known.
    pub fn at(&self) -> Position {
        match self {
            Self::Literal(_, at)
            | Self::Parameter(_, at)
            | Self::Column(_, at)
            | Self::Negate(_, at)
            | Self::Call(_, at)
            | Self::Scalar(_, at)
            | Self::Array(_, at)
            | Self::Part { at, .. }
            | Self::Assigned { at, .. }
            | Self::Row(_, at) => *at,
            Self::Binary { left, .. }
            | Self::And(left, _)
            | Self::Or(left, _)
            | Self::IsDistinct { left, .. }
            | Self::Quantified { left, .. }
            | Self::Element(left, ..) => left.at(),
            Self::Field(expr, _)
            | Self::IsNull { expr, .. }
            | Self::IsTruth { expr, .. }
            | Self::InList { expr, .. }
            | Self::InQuery { expr, .. }
            | Self::Between { expr, .. }
            | Self::Like { expr, .. }
            | Self::Cast { expr, .. }
            | Self::Not(expr) => expr.at(),
            Self::Case { branches, .. } => branches.first().map_or(NOWHERE, |(condition, _)| condition.at()),
            Self::Exists(_) | Self::ArrayOf(_) => NOWHERE,
        }
    }
}

/// A column of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub expr: Expr,
    pub is_descending: bool,
    pub nulls_first: Option<bool>,
}

/// A query of WITH.
#[derive(Clone, Debug, PartialEq)]
pub struct With {
    pub name: Name,
    pub columns: Vec<Name>,
    pub query: Query,
    /// It may name itself.
    pub is_recursive: bool,
    /// A change of rows in the place of the query, which has no rows then.
    pub change: Option<Box<Statement>>,
    /// The binder's number of it, if it is used in several places.
    pub shared: Option<usize>,
}

/// A query with its order and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub with: Vec<With>,
    pub body: Body,
    pub order_by: Vec<Order>,
    pub limit: Option<Expr>,
    /// Rows that are equal to the last one in the order are taken as well.
    pub has_ties: bool,
    pub offset: Option<Expr>,
    /// `FOR UPDATE` and its relatives.
    pub locks: Vec<RowLock>,
}

impl Query {
    /// A query without rows.
    pub fn empty() -> Self {
        Self {
            with: Vec::new(),
            body: Body::Values(Vec::new()),
            order_by: Vec::new(),
            limit: None,
            has_ties: false,
            offset: None,
            locks: Vec::new(),
        }
    }
}

/// The groups of a query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupBy {
    pub keys: Vec<Expr>,
    /// The keys of each set, by their numbers. None: all keys are one set.
    pub sets: Vec<Vec<usize>>,
}

impl GroupBy {
    /// Whether the clause is not there.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.sets.is_empty()
    }
}

/// A clause that locks rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RowLock {
    /// The table that it is for. `None`: all of the query.
    pub of: Option<Name>,
    pub wait: LockWait,
    /// Its words, for messages.
    pub strength: &'static str,
}

impl RowLock {
    /// How it locks the rows.
    pub fn mode(&self) -> Mode {
        match self.strength {
            "FOR KEY SHARE" => Mode::KeyShareRow,
            "FOR SHARE" => Mode::ShareRow,
            "FOR NO KEY UPDATE" => Mode::NoKeyUpdateRow,
            _ => Mode::UpdateRow,
        }
    }
}

/// The treatment of a row that another transaction has locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockWait {
    #[default]
    Wait,
    /// NOWAIT.
    Refuse,
    /// SKIP LOCKED.
    Skip,
}

/// The rows of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Select(Box<Select>),
    Values(Vec<Vec<Expr>>),
    Query(Box<Query>),
    Set { op: SetOperation, is_all: bool, left: Box<Body>, right: Box<Body> },
}

/// An operation on the rows of two queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    Union,
    Intersect,
    Except,
}

/// Which rows of a SELECT stay.
#[derive(Clone, Debug, PartialEq)]
pub enum Distinct {
    All,
    Rows,
    On(Vec<Expr>),
}

/// A SELECT.
#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    pub distinct: Distinct,
    pub items: Vec<Item>,
    pub from: Vec<TableRef>,
    pub filter: Option<Expr>,
    pub group_by: GroupBy,
    pub having: Option<Expr>,
    /// The windows of the query, by name.
    pub windows: Vec<(Name, Over)>,
}

/// A column of a SELECT.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Star(Position),
    TableStar(Vec<String>, Position),
    Expr(Expr, Option<String>),
}

/// The name of a table in a query, and of its columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alias {
    pub name: Option<String>,
    pub columns: Vec<String>,
}

/// How two tables are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

/// Which rows of two tables belong together.
#[derive(Clone, Debug, PartialEq)]
pub enum JoinOn {
    Nothing,
    Expr(Expr),
    Using(Vec<Name>),
    Natural,
}

/// A table of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum TableRef {
    Table { name: ObjectName, alias: Alias },
    Query { query: Box<Query>, is_lateral: bool, alias: Alias },
    Function { call: Call, has_ordinality: bool, alias: Alias },
    Sample(Box<Sampled>),
    Join { kind: JoinKind, left: Box<TableRef>, right: Box<TableRef>, on: JoinOn },
}

/// Some rows of a table, chosen at random: TABLESAMPLE.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub table: TableRef,
    /// The share of the rows in percent.
    pub percent: Expr,
    /// Of the same rows again for the same value.
    pub repeat: Option<Expr>,
}

/// The rows of an INSERT.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Defaults,
    Query(Box<Query>),
}

/// Whether values of identity columns are taken as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overriding {
    System,
    User,
}

/// The rows with which an insertion may collide.
#[derive(Clone, Debug, PartialEq)]
pub enum ConflictTarget {
    Any,
    Columns(Vec<Name>),
    Constraint(Name),
}

/// A column and its new value; `None`: its default.
pub type Assignment = (Name, Option<Expr>);

/// An ON CONFLICT.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    pub target: ConflictTarget,
    /// `None`: DO NOTHING.
    pub update: Option<(Vec<Assignment>, Option<Expr>)>,
}

/// Which rows of a cursor come next. `None`: all that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    Forward(Option<i64>),
    Backward(Option<i64>),
    /// From the first one, or the last one if it is negative.
    Absolute(i64),
    Relative(i64),
}

/// The options of EXPLAIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExplainOptions {
    pub is_analyze: bool,
    pub is_json: bool,
    pub has_no_timing: bool,
}

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Table,
    Index,
    View,
    Sequence,
    Schema,
    Type,
    Domain,
}

/// The properties that a transaction asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    pub isolation: Option<Level>,
    pub is_read_only: Option<bool>,
    pub is_deferrable: Option<bool>,
}

/// A level of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// The kinds of changes of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleVerb {
    Create,
    Alter,
    Drop,
}

/// A change of a role.
#[derive(Clone, PartialEq)]
pub struct RoleChange {
    pub verb: RoleVerb,
    pub name: String,
    /// Whether it was called a user.
    pub is_user: bool,
    /// Whether it is the user of the session.
    pub is_own: bool,
    pub if_exists: bool,
    pub can_login: Option<bool>,
    /// `Some(None)`: it gets none.
    pub password: Option<Option<String>>,
}

/// Passwords are in no log.
impl std::fmt::Debug for RoleChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoleChange").field("verb", &self.verb).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A comment on an object. `text`: `None` removes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comment {
    pub target: CommentTarget,
    pub text: Option<String>,
}

/// The object of a comment.
#[derive(Clone, Debug, PartialEq)]
pub enum CommentTarget {
    Object(ObjectKind, ObjectName),
    Column {
        table: ObjectName,
        name: Name,
    },
    /// Of a table, or of a domain.
    Constraint {
        name: Name,
        of: ObjectName,
        is_domain: bool,
    },
}

/// The lines of a COPY.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyFormat {
    /// Values in their binary formats, and no lines.
    pub is_binary: bool,
    pub is_csv: bool,
    pub delimiter: char,
    pub null: String,
    /// The first line has the names of the columns.
    pub has_header: bool,
    pub quote: char,
    pub escape: char,
}

impl std::default::Default for CopyFormat {
    fn default() -> Self {
        let (delimiter, null) = ('\t', "\\N".into());
        Self { is_binary: false, is_csv: false, delimiter, null, has_header: false, quote: '"', escape: '"' }
    }
}

impl CopyFormat {
    /// Of files with commas.
    pub fn csv() -> Self {
        Self { is_csv: true, delimiter: ',', null: String::new(), ..Self::default() }
    }
}

/// A COPY.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    pub source: CopySource,
    pub is_from: bool,
    pub format: CopyFormat,
}

/// The rows of a COPY.
#[derive(Clone, Debug, PartialEq)]
pub enum CopySource {
    Table(ObjectName, Vec<Name>),
    Query(Box<Query>),
}

/// A MERGE.
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    pub table: ObjectName,
    pub alias: Option<String>,
    pub source: TableRef,
    pub on: Expr,
    pub clauses: Vec<MergeClause>,
    pub with: Vec<With>,
}

/// WHEN of a MERGE.
#[derive(Clone, Debug, PartialEq)]
pub struct MergeClause {
    /// For rows of the source with a row of the table, or for those without one.
    pub is_matched: bool,
    pub filter: Option<Expr>,
    pub action: MergeAction,
}

/// The work of a clause of a MERGE.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeAction {
    Nothing,
    Delete,
    Update(Vec<(Name, Option<Expr>)>),
    Insert { columns: Vec<Name>, overriding: Option<Overriding>, source: Source },
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Empty,
    Query(Query),
    Insert {
        table: ObjectName,
        columns: Vec<Name>,
        /// The name of the table in the rest of the statement.
        alias: Option<String>,
        source: Source,
        overriding: Option<Overriding>,
        conflict: Option<Conflict>,
        returning: Vec<Item>,
        with: Vec<With>,
    },
    Update {
        table: ObjectName,
        alias: Option<String>,
        set: Vec<(Name, Option<Expr>)>,
        from: Vec<TableRef>,
        filter: Option<Expr>,
        returning: Vec<Item>,
        with: Vec<With>,
    },
    Delete {
        table: ObjectName,
        alias: Option<String>,
        using: Vec<TableRef>,
        filter: Option<Expr>,
        returning: Vec<Item>,
        with: Vec<With>,
    },
    Merge(Box<Merge>),
    CreateTable {
        name: ObjectName,
        if_not_exists: bool,
        columns: Vec<ColumnDef>,
        constraints: Vec<ConstraintDef>,
        likes: Vec<Like>,
        /// `None`: it has no tables above it, and is not partitioned.
        relatives: Option<Box<Relatives>>,
        on_commit: Option<OnCommit>,
        placing: Placing,
    },
    CreateTableAs {
        table: TableAs,
        query: Box<Query>,
    },
    /// UNLISTEN *: no client listens.
    Unlisten,
    CreateIndex {
        name: Option<Name>,
        table: ObjectName,
        columns: Vec<Name>,
        /// Those of INCLUDE.
        included: Vec<Name>,
        is_unique: bool,
        if_not_exists: bool,
        /// It asks for another order of entries than the one of all indexes.
        is_descending: bool,
    },
    AlterTable {
        table: ObjectName,
        if_exists: bool,
        actions: Vec<Alter>,
    },
    CreateTablespace {
        name: Name,
        location: String,
    },
    DropTablespace {
        name: Name,
        if_exists: bool,
    },
    CreateSequence {
        name: ObjectName,
        if_not_exists: bool,
        options: SequenceOptions,
    },
    AlterSequence {
        name: ObjectName,
        if_exists: bool,
        options: SequenceOptions,
    },
    CreateSchema {
        name: Name,
        if_not_exists: bool,
        /// The objects that are made in it.
        elements: Vec<Statement>,
    },
    CreateView {
        name: ObjectName,
        columns: Vec<Name>,
        or_replace: bool,
        query: Box<Query>,
        text: String,
        /// With their values, in their order.
        options: Vec<(String, String)>,
    },
    CreateComposite {
        name: ObjectName,
        attributes: Vec<AttributeDef>,
    },
    CreateEnum {
        name: ObjectName,
        labels: Vec<String>,
    },
    CreateDomain {
        name: ObjectName,
        domain: DomainDef,
    },
    AlterType {
        name: ObjectName,
        is_domain: bool,
        action: AlterType,
    },
    AlterObject {
        kind: ObjectKind,
        name: ObjectName,
        if_exists: bool,
        action: AlterObject,
    },
    Drop {
        kind: ObjectKind,
        names: Vec<ObjectName>,
        if_exists: bool,
        is_cascade: bool,
    },
    Prepare {
        name: String,
        types: Vec<TypeName>,
        statement: Box<Statement>,
    },
    Execute {
        name: String,
        arguments: Vec<Expr>,
    },
    Explain {
        options: ExplainOptions,
        statement: Box<Statement>,
    },
    Declare {
        name: String,
        /// `None`: as the query allows.
        is_scroll: Option<bool>,
        is_hold: bool,
        query: Box<Query>,
    },
    Fetch {
        name: String,
        direction: Fetch,
        is_move: bool,
    },
    /// `None`: all cursors.
    Close(Option<String>),
    /// `None`: all constraints.
    SetConstraints {
        names: Option<Vec<ObjectName>>,
        is_deferred: bool,
    },
    Truncate {
        tables: Vec<ObjectName>,
        is_cascade: bool,
    },
    Copy(Copy),
    Role(RoleChange),
    Comment(Comment),
    /// `is_start`: it was written START TRANSACTION.
    Begin {
        modes: Modes,
        is_start: bool,
    },
    Commit,
    Rollback,
    /// The end of a transaction, and the begin of another one with the same modes.
    Chain {
        is_rollback: bool,
    },
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    Set {
        name: String,
        /// `None`: that of the start.
        value: Option<String>,
        is_local: bool,
        is_reset: bool,
    },
    SetTransaction {
        modes: Modes,
        is_session: bool,
    },
    Show(String),
    Vacuum(Vec<ObjectName>),
    Analyze(Vec<ObjectName>),
    Checkpoint,
    Discard(Discard),
    /// LOCK TABLE.
    Lock {
        tables: Vec<ObjectName>,
        mode: Mode,
        is_nowait: bool,
    },
    /// `None`: all.
    Deallocate(Option<String>),
}
