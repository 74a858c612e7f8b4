//! Errors of SQL: a code of five characters, a message in `PostgreSQL`'s words, and where the statement is wrong.

use std::borrow::Cow;
use std::fmt;

/// Result of the operations of the SQL crates.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The code of an error: `SQLSTATE`.
///
/// ```
/// assert_eq!(lodestone_sql_types::SqlState::UNIQUE_VIOLATION.code(), "23505");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(&'static str);

macro_rules! states {
    ($($(#[$about:meta])* $name:ident = $code:literal;)+) => {
        impl SqlState { $($(#[$about])* pub const $name: Self = Self($code);)+ }
    };
}

states! {
    /// A warning without a code of its own.
    WARNING = "01000";
    /// Everything went well.
    SUCCESS = "00000";
    /// The client broke the protocol.
    PROTOCOL_VIOLATION = "08P01";
    /// The client is gone.
    CONNECTION_FAILURE = "08006";
    /// Not built.
    FEATURE_NOT_SUPPORTED = "0A000";
    /// A subquery that may return one row returned more.
    CARDINALITY_VIOLATION = "21000";
    /// A text is too long for its column.
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    /// A number is outside the limits of its type.
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    /// A date or time is outside its limits.
    DATETIME_FIELD_OVERFLOW = "22008";
    /// A text is no date or time.
    INVALID_DATETIME_FORMAT = "22007";
    /// An offset of a time zone is too large.
    INVALID_TIME_ZONE_DISPLACEMENT = "22009";
    /// A division by zero.
    DIVISION_BY_ZERO = "22012";
    /// Bytes are no UTF-8.
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    /// A parameter has a value that makes no sense.
    INVALID_PARAMETER_VALUE = "22023";
    /// A value makes no sense in its place.
    DATA_EXCEPTION = "22000";
    /// An escape sequence is wrong.
    INVALID_ESCAPE_SEQUENCE = "22025";
    /// A number of a span of time is too large.
    INTERVAL_FIELD_OVERFLOW = "22015";
    /// The part of a text that is asked for makes no sense.
    SUBSTRING_ERROR = "22011";
    /// A null where none is allowed.
    NULL_VALUE_NOT_ALLOWED = "22004";
    /// An index of an array makes no sense.
    ARRAY_SUBSCRIPT_ERROR = "2202E";
    /// An array has not as many elements.
    ARRAY_ELEMENT_ERROR = "2202E";
    /// A character that the text type has not.
    UNTRANSLATABLE_CHARACTER = "22P05";
    /// A power that is no number.
    INVALID_ARGUMENT_FOR_POWER_FUNCTION = "2201F";
    /// A logarithm that is no number.
    INVALID_ARGUMENT_FOR_LOG = "2201E";
    /// A bucket that makes no sense.
    INVALID_ARGUMENT_FOR_WIDTH_BUCKET = "2201G";
    /// An escape stands where none is allowed.
    INVALID_USE_OF_ESCAPE_CHARACTER = "2200C";
    /// A limit of rows is negative.
    INVALID_ROW_COUNT_IN_LIMIT = "2201W";
    /// An offset of rows is negative.
    INVALID_ROW_COUNT_IN_OFFSET = "2201X";
    /// A sample cannot be repeated by this value.
    INVALID_TABLESAMPLE_REPEAT = "2202G";
    /// A sample cannot have this size.
    INVALID_TABLESAMPLE_ARGUMENT = "2202H";
    /// A sequence has no further number.
    SEQUENCE_LIMIT_EXCEEDED = "2200H";
    /// A frame has a size that makes no sense.
    INVALID_FRAME_SIZE = "22013";
    /// The number of groups is not positive.
    INVALID_NTILE_ARGUMENT = "22014";
    /// The number of a value is not positive.
    INVALID_NTH_VALUE_ARGUMENT = "22016";
    /// A regular expression is wrong.
    INVALID_REGULAR_EXPRESSION = "2201B";
    /// A text is no value of the type.
    INVALID_TEXT_REPRESENTATION = "22P02";
    /// Binary bytes are no value of the type.
    INVALID_BINARY_REPRESENTATION = "22P03";
    /// A line of COPY is wrong.
    BAD_COPY_FILE_FORMAT = "22P04";
    /// A null in a column that takes none.
    NOT_NULL_VIOLATION = "23502";
    /// Another row has the key.
    UNIQUE_VIOLATION = "23505";
    /// A row names a row of another table that is not there, or is named.
    FOREIGN_KEY_VIOLATION = "23503";
    /// A row does not fulfil a condition.
    CHECK_VIOLATION = "23514";
    /// The cursor is not in the state that the statement needs.
    INVALID_CURSOR_STATE = "24000";
    /// The statement needs to be outside of a transaction.
    ACTIVE_SQL_TRANSACTION = "25001";
    /// There is no transaction.
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    /// The transaction failed before.
    IN_FAILED_SQL_TRANSACTION = "25P02";
    /// A change in a transaction that only reads.
    READ_ONLY_SQL_TRANSACTION = "25006";
    /// There is no such prepared statement.
    INVALID_SQL_STATEMENT_NAME = "26000";
    /// Other objects need the object.
    DEPENDENT_OBJECTS = "2BP01";
    /// The user may not connect.
    INVALID_AUTHORIZATION = "28000";
    /// There is no such portal or cursor.
    INVALID_CURSOR_NAME = "34000";
    /// There is no such savepoint.
    INVALID_SAVEPOINT = "3B001";
    /// There is no such database.
    INVALID_CATALOG_NAME = "3D000";
    /// There is no such schema.
    INVALID_SCHEMA_NAME = "3F000";
    /// Another transaction was first; run this one again.
    SERIALIZATION_FAILURE = "40001";
    /// Transactions wait for each other.
    DEADLOCK_DETECTED = "40P01";
    /// A name is too long, or no name.
    INVALID_NAME = "42602";
    /// A text is no SQL.
    SYNTAX_ERROR = "42601";
    /// A column must be grouped.
    GROUPING_ERROR = "42803";
    /// Types do not fit each other.
    DATATYPE_MISMATCH = "42804";
    /// A type cannot be converted.
    CANNOT_COERCE = "42846";
    /// There is no such column.
    UNDEFINED_COLUMN = "42703";
    /// There is no such function or operator.
    UNDEFINED_FUNCTION = "42883";
    /// There is no such table.
    UNDEFINED_TABLE = "42P01";
    /// There is no such parameter.
    UNDEFINED_PARAMETER = "42P02";
    /// There is no such object.
    UNDEFINED_OBJECT = "42704";
    /// There is a column of that name.
    DUPLICATE_COLUMN = "42701";
    /// There is a prepared statement of that name.
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    /// There is a table of that name.
    DUPLICATE_TABLE = "42P07";
    /// The name belongs to the system.
    RESERVED_NAME = "42939";
    /// There is a schema of that name.
    DUPLICATE_SCHEMA = "42P06";
    /// There is an object of that name.
    DUPLICATE_OBJECT = "42710";
    /// There is a cursor of that name.
    DUPLICATE_CURSOR = "42P03";
    /// A foreign key makes no sense.
    INVALID_FOREIGN_KEY = "42830";
    /// A column takes no values of the user.
    GENERATED_ALWAYS = "428C9";
    /// A window makes no sense.
    WINDOWING_ERROR = "42P20";
    /// A query that names itself makes no sense.
    INVALID_RECURSION = "42P19";
    /// The definition of an object makes no sense.
    INVALID_OBJECT_DEFINITION = "42P17";
    /// Two tables of a query have one name.
    DUPLICATE_ALIAS = "42712";
    /// A name of a table that several tables have.
    AMBIGUOUS_ALIAS = "42P09";
    /// Several columns have the name.
    AMBIGUOUS_COLUMN = "42702";
    /// Several functions fit.
    AMBIGUOUS_FUNCTION = "42725";
    /// The column is not what the place needs.
    INVALID_COLUMN_REFERENCE = "42P10";
    /// The type of a parameter is unknown.
    INDETERMINATE_DATATYPE = "42P18";
    /// The object is of another kind.
    WRONG_OBJECT_TYPE = "42809";
    /// The definition of a table makes no sense.
    INVALID_TABLE_DEFINITION = "42P16";
    /// A schema cannot be defined like that.
    INVALID_SCHEMA_DEFINITION = "42P15";
    /// A column cannot be defined like that.
    INVALID_COLUMN_DEFINITION = "42611";
    /// The user may not do that.
    INSUFFICIENT_PRIVILEGE = "42501";
    /// No memory, or no room in the pool.
    OUT_OF_RESOURCES = "53000";
    /// The pool is full.
    DISK_FULL = "53100";
    /// A row that a view would not show.
    WITH_CHECK_OPTION_VIOLATION = "44000";
    /// A table in memory is full.
    OUT_OF_MEMORY = "53200";
    /// Too many connections.
    TOO_MANY_CONNECTIONS = "53300";
    /// A limit of the program.
    PROGRAM_LIMIT_EXCEEDED = "54000";
    /// A statement is too deep.
    STATEMENT_TOO_COMPLEX = "54001";
    /// Too many columns.
    TOO_MANY_COLUMNS = "54011";
    /// A call has more arguments than it may have.
    TOO_MANY_ARGUMENTS = "54023";
    /// The object is not in the state that the statement needs.
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    /// The setting cannot be changed.
    CANT_CHANGE_RUNTIME_PARAM = "55P02";
    /// The user cancelled the statement.
    QUERY_CANCELED = "57014";
    /// The server ends.
    ADMIN_SHUTDOWN = "57P01";
    /// A transaction was idle for too long.
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03";
    /// A lock was not to be had in time.
    LOCK_NOT_AVAILABLE = "55P03";
    /// The password is wrong.
    INVALID_PASSWORD = "28P01";
    /// The medium failed.
    IO_ERROR = "58030";
    /// Bytes on the medium are damaged.
    DATA_CORRUPTED = "XX001";
    /// A fault of this program.
    INTERNAL_ERROR = "XX000";
}

impl SqlState {
    /// Its five characters.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.0
    }
}

/// The reason why a statement is refused, or a notice beside its answer.
///
/// ```
/// use lodestone_sql_types::{Error, SqlState};
///
/// let error = Error::new(SqlState::UNDEFINED_TABLE, "relation \"t\" does not exist").at(15_usize);
/// assert_eq!((error.state().code(), error.position()), ("42P01", Some(15)));
/// assert_eq!(error.to_string(), "ERROR 42P01: relation \"t\" does not exist");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Fields>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fields {
    state: SqlState,
    message: Cow<'static, str>,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<usize>,
    context: Option<String>,
    /// Schema, table, column, constraint: what drivers map to exceptions.
    table: Option<String>,
    column: Option<String>,
    constraint: Option<String>,
}

impl Error {
    /// An error of this code.
    #[must_use]
    pub fn new(state: SqlState, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Fields {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            context: None,
            table: None,
            column: None,
            constraint: None,
        }))
    }

    /// The refusal of something that is not built, by name.
    #[must_use]
    pub fn unsupported(what: impl fmt::Display) -> Self {
        Self::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// With a detail.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// With the next step for the user.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// With the place in the statement: the number of a character, from 1. The first place that is named counts.
    #[must_use]
    pub fn at(mut self, position: impl Into<usize>) -> Self {
        let position = position.into();
        if position > 0 {
            self.0.position.get_or_insert(position);
        }
        self
    }

    /// With the place where it happened, for people.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.0.context.get_or_insert_with(|| context.into());
        self
    }

    /// With the table that it is about.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.0.table = Some(table.into());
        self
    }

    /// With the column that it is about.
    #[must_use]
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.0.column = Some(column.into());
        self
    }

    /// With the constraint that it is about.
    #[must_use]
    pub fn constraint(mut self, constraint: impl Into<String>) -> Self {
        self.0.constraint = Some(constraint.into());
        self
    }

    /// Its code.
    #[must_use]
    pub fn state(&self) -> SqlState {
        self.0.state
    }

    /// Its message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Its place in the statement: the number of a character, from 1.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.0.position
    }

    /// Its hint.
    #[must_use]
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The fields of the protocol's message, without severity and code.
    pub fn fields(&self) -> impl Iterator<Item = (u8, String)> {
        let Fields { message, detail, hint, position, context, table, column, constraint, .. } = &*self.0;
        let text = |code: u8, text: &Option<String>| text.clone().map(|text| (code, text));
        let schema = table.as_ref().map(|_| (b's', "public".to_owned()));
        [
            Some((b'M', message.clone().into_owned())),
            text(b'D', detail),
            text(b'H', hint),
            position.map(|position| (b'P', position.to_string())),
            text(b'W', context),
            schema,
            text(b't', table),
            text(b'c', column),
            text(b'n', constraint),
        ]
        .into_iter()
        .flatten()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {}: {}", self.state().code(), self.message())
    }
}

impl std::error::Error for Error {}
