//! Definitions of tables, columns, constraints and types.

use super::{Expr, Name, ObjectName, Position, TypeName};

/// A column of CREATE TABLE.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDef {
    pub name: Name,
    pub ty: TypeName,
    pub not_null: bool,
    pub default: Option<Default>,
    pub identity: Option<Identity>,
    /// The expression of the other columns that its value is.
    pub generated: Option<Default>,
}

/// An expression with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Default {
    pub expr: Expr,
    pub text: String,
}

/// A column whose values come from a sequence of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// Other values are refused.
    pub is_always: bool,
    pub options: SequenceOptions,
}

/// The options of a sequence that were written. The inner `None` is NO MINVALUE, NO MAXVALUE.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceOptions {
    pub ty: Option<TypeName>,
    pub increment: Option<i64>,
    pub minimum: Option<Option<i64>>,
    pub maximum: Option<Option<i64>>,
    pub start: Option<i64>,
    pub cache: Option<i64>,
    pub is_cycle: Option<bool>,
    /// The inner `None`: by none.
    pub owner: Option<Option<(ObjectName, String)>>,
    /// The inner `None`: at its start.
    pub restart: Option<Option<i64>>,
    /// SEQUENCE NAME: that of the sequence of a column.
    pub name: Option<ObjectName>,
}

/// A change of a view, index, schema or sequence that is no change of its contents.
#[derive(Clone, Debug, PartialEq)]
pub enum AlterObject {
    /// OWNER TO, which changes nothing here. `None`: the user of the session.
    Owner(Option<Name>),
    Rename(Name),
    /// The schema that it belongs to from now on.
    SetSchema(Name),
    /// Options of a view with their values.
    SetOptions(Vec<(String, String)>),
    /// Options that have their usual value again.
    ResetOptions(Vec<String>),
    /// ATTACH PARTITION: the index of a partition becomes a part of that of its table.
    AttachIndex(ObjectName),
}

/// A table whose columns a new one has as well.
#[derive(Clone, Debug, PartialEq)]
pub struct Like {
    /// The number of the written column that follows them.
    pub before: usize,
    pub table: ObjectName,
    pub defaults: bool,
    pub constraints: bool,
    pub identity: bool,
    pub indexes: bool,
    pub generated: bool,
    pub comments: bool,
}

/// Where the rows of a table are to be, as it was written: the values of storage parameters, and a tablespace. The
/// inner `None`: RESET.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placing {
    pub placement: Option<Option<String>>,
    pub node: Option<Option<String>>,
    pub tablespace: Option<Name>,
}

/// A table that is made of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct TableAs {
    pub name: ObjectName,
    pub if_not_exists: bool,
    pub columns: Vec<Name>,
    /// The rows of the query are added.
    pub with_data: bool,
    pub on_commit: Option<OnCommit>,
    pub placing: Placing,
    /// It was written SELECT INTO.
    pub is_into: bool,
}

/// The state of a session that is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    All,
    Plans,
    Sequences,
    Temporary,
}

/// A key of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyDef {
    pub name: Option<String>,
    pub columns: Vec<Name>,
    /// INCLUDE: columns that the index shows, which are no part of the key.
    pub included: Vec<Name>,
    /// DEFERRABLE: whether also INITIALLY DEFERRED.
    pub deferrable: Option<bool>,
}

/// A condition that all rows of a table fulfil.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckDef {
    pub name: Option<String>,
    pub check: Default,
    pub at: Position,
    /// Tables below this one do not have it.
    pub no_inherit: bool,
}

/// The change of child rows when their parent's key goes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyAction {
    #[default]
    NoAction,
    Restrict,
    Cascade,
    SetNull,
    SetDefault,
}

/// A foreign key.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignDef {
    pub name: Option<String>,
    pub columns: Vec<Name>,
    pub parent: ObjectName,
    /// None: the primary key.
    pub parent_columns: Vec<Name>,
    pub on_delete: KeyAction,
    pub on_update: KeyAction,
    pub is_full: bool,
    pub is_deferrable: bool,
    pub is_deferred: bool,
}

/// A constraint of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstraintDef {
    Primary(KeyDef),
    Unique(KeyDef),
    Check(CheckDef),
    Foreign(ForeignDef),
}

/// The end of a temporary table's rows, or of itself, when a transaction commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCommit {
    DeleteRows,
    Drop,
}

/// The tables that a new table belongs to, and how it is parted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Relatives {
    pub inherits: Vec<ObjectName>,
    pub partition_of: Option<(ObjectName, BoundDef)>,
    pub partition_by: Option<PartitionBy>,
}

/// How a table chooses the partition of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    List,
    Range,
    Hash,
}

/// PARTITION BY.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionBy {
    pub strategy: Strategy,
    pub keys: Vec<Default>,
    pub at: Position,
}

/// The rows of a partition: FOR VALUES, or DEFAULT.
#[derive(Clone, Debug, PartialEq)]
pub enum BoundDef {
    Default,
    Hash { modulus: i64, remainder: i64, at: Position },
    List(Vec<Expr>),
    Range(Vec<Expr>, Vec<Expr>),
}

/// A part of ALTER TABLE.
#[derive(Clone, Debug, PartialEq)]
pub enum Alter {
    /// OWNER TO, which changes nothing here. `None`: the user of the session.
    Owner(Option<Name>),
    Attach {
        partition: ObjectName,
        bound: BoundDef,
    },
    Detach {
        partition: ObjectName,
        is_concurrent: bool,
    },
    Inherit(ObjectName),
    NoInherit(ObjectName),
    AddColumn {
        column: Box<ColumnDef>,
        constraints: Vec<ConstraintDef>,
        if_not_exists: bool,
    },
    DropColumn {
        name: Name,
        if_exists: bool,
        is_cascade: bool,
    },
    RenameColumn {
        from: Name,
        to: String,
    },
    RenameTable(Name),
    SetSchema(Name),
    RenameConstraint {
        from: Name,
        to: String,
    },
    SetDefault {
        column: Name,
        default: Option<Default>,
    },
    SetNotNull {
        column: Name,
        is_set: bool,
    },
    SetType {
        column: Name,
        ty: TypeName,
        using: Option<Expr>,
    },
    AddIdentity {
        column: Name,
        identity: Identity,
    },
    /// `is_valid`: the rows that are there are tested.
    AddConstraint {
        constraint: ConstraintDef,
        is_valid: bool,
    },
    /// VALIDATE CONSTRAINT.
    Validate(Name),
    /// ALTER CONSTRAINT. `deferrable`: as of [`KeyDef`].
    Timing {
        constraint: Name,
        deferrable: Option<bool>,
    },
    DropConstraint {
        name: Name,
        if_exists: bool,
        is_cascade: bool,
    },
    /// SET and RESET of storage parameters, SET TABLESPACE.
    Place(Placing),
    /// The owner, the one user.
    Nothing,
}

/// The parts of CREATE DOMAIN.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainDef {
    pub ty: TypeName,
    pub default: Option<Default>,
    pub not_null: Option<bool>,
    pub checks: Vec<CheckDef>,
}

/// The place of a new label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelPlace {
    Last,
    Before(String),
    After(String),
}

/// A field of a type of rows as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeDef {
    pub name: Name,
    pub ty: TypeName,
}

/// A change of the fields of a type of rows.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeChange {
    Add(AttributeDef),
    Drop { name: Name, if_exists: bool },
    Type(AttributeDef),
}

/// A change of a type or domain.
#[derive(Clone, Debug, PartialEq)]
pub enum AlterType {
    /// OWNER TO, which changes nothing here. `None`: the user of the session.
    Owner(Option<Name>),
    AddValue {
        label: String,
        if_not_exists: bool,
        place: LabelPlace,
    },
    RenameValue {
        from: String,
        to: String,
    },
    Rename(Name),
    /// One after the other.
    Attributes(Vec<AttributeChange>),
    RenameAttribute {
        from: Name,
        to: Name,
    },
    RenameConstraint {
        from: String,
        to: String,
    },
    SetDefault(Option<Default>),
    SetNotNull(bool),
    AddCheck {
        check: CheckDef,
        is_valid: bool,
    },
    Validate(String),
    DropConstraint {
        name: String,
        if_exists: bool,
    },
}
