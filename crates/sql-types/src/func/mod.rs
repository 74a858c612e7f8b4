//! Functions by name and types of their arguments.
//!
//! One table serves the binder and `pg_proc`. A function is strict unless it says otherwise: it is null when an
//! argument is. Those that ask about the session or the catalog do it through [`Session`].

mod activity;
mod advisory;
mod array;
mod bytes;
mod catalog;
mod degrees;
mod format;
mod introspect;
mod json;
mod moment;
mod number;
mod number_format;
mod regex;
mod sequence;
mod string;
mod system;
mod template;

use crate::datum::Datum;
use crate::error::{Error, Result};
use crate::types::Type;

/// The answers to functions that ask about their session.
pub trait Session {
    /// When the transaction began: microseconds since 2000-01-01 UTC.
    fn transaction_time(&self) -> i64;
    /// When the statement began.
    fn statement_time(&self) -> i64;
    /// The user.
    fn user(&self) -> &str;
    /// The database.
    fn database(&self) -> &str;
    /// The number of the connection.
    fn backend(&self) -> i64;
    /// A setting.
    ///
    /// # Errors
    /// 42704 if there is none of that name.
    fn setting(&self, name: &str) -> Result<String>;
    /// Changes a setting, until the end of the transaction if `is_local`.
    ///
    /// # Errors
    /// As the statement SET.
    fn set(&self, name: &str, value: &str, is_local: bool) -> Result<String>;
    /// The name of a table or index.
    fn relation_name(&self, oid: i64) -> Option<String>;
    /// The statement that makes the index, or one of its columns.
    fn index_definition(&self, oid: i64, column: i64) -> Option<String>;
    /// The clause that makes the constraint.
    fn constraint_definition(&self, oid: i64, is_pretty: bool) -> Option<String>;
    /// Rows of a table, for its size.
    fn relation_bytes(&self, oid: i64) -> Option<i64>;
    /// The comment on an object of a class, or of any class, or on a column of it, from 1 on.
    fn comment(&self, _class: Option<i64>, _oid: i64, _column: i64) -> Option<String> {
        None
    }
    /// The location of a tablespace. `None`: it has none.
    fn tablespace_location(&self, _oid: i64) -> Option<String> {
        None
    }
    /// How a table is parted. `None`: it is not.
    fn partition_key(&self, _oid: i64) -> Option<String> {
        None
    }
    /// A partition, and the tables above it, the nearest first. Empty: it is none, and has none.
    fn partition_ancestors(&self, _oid: i64) -> Vec<i64> {
        Vec::new()
    }
    /// The changes that a relation takes: 4 UPDATE, 8 INSERT, 16 DELETE, and of a view which columns take values.
    fn updatable(&self, _oid: i64) -> (i64, Option<Vec<bool>>) {
        (28, None)
    }
    /// The text of a view.
    fn view_definition(&self, oid: i64) -> Option<String>;
    /// The name of a relation as a statement finds it.
    fn relation_text(&self, oid: i64) -> Option<String>;
    /// The name of a type of the database as a statement finds it, or of arrays of one.
    fn type_text(&self, oid: i64) -> Option<String>;
    /// The number of the relation of this name. `None`: there is none.
    fn relation_number(&self, name: &str) -> Option<i64>;
    /// Whether the relation is found by its name alone.
    fn is_visible(&self, oid: i64) -> bool;
    /// The schemas that names without one are looked up in.
    fn schemas(&self) -> Vec<String>;
    /// The name of the sequence that a column of a table takes its values from.
    ///
    /// # Errors
    /// 42P01; 42703.
    fn serial_sequence(&self, table: &str, column: &str) -> Result<Option<String>>;
    /// Whether the session with this number waits for a lock of another one.
    fn is_blocked(&self, backend: i64) -> bool;
    /// The sessions that the one with this number waits for.
    fn blockers(&self, backend: i64) -> Vec<i64>;
    /// Takes or releases a lock of a number. Whether it did.
    ///
    /// # Errors
    /// 40P01; any error when the statement must run again, because it waits for the lock now.
    fn advisory(&self, call: AdvisoryCall) -> Result<bool>;
    /// Whether the last error of [`advisory`](Self::advisory) says that a lock is waited for. It is forgotten then.
    fn takes_wait(&self) -> bool;
    /// Waits for so many microseconds.
    ///
    /// # Errors
    /// 57014 when the statement is cancelled, or its time is over; any error when it must run again, on a thread that
    /// may wait.
    fn sleep(&self, micros: i64) -> Result<()>;
    /// Whether the last error of [`sleep`](Self::sleep) says that the statement must run on another thread. It is
    /// forgotten then.
    fn takes_long(&self) -> bool;
    /// Ends the statement of the session with this number, or the session. Whether there is one; if not, the client is
    /// warned.
    ///
    /// # Errors
    /// 57014 and 57P01 when it is the own one.
    fn end_other(&self, backend: i64, is_session: bool) -> Result<bool>;
    /// Whether there is a session with this number.
    fn is_there(&self, backend: i64) -> bool;
    /// Tells the client of a warning.
    fn warn(&self, warning: Error);
    /// The rows of `pg_stat_activity`.
    fn activity_rows(&self) -> Vec<Vec<Datum>>;
    /// The rows of `pg_locks`.
    fn lock_rows(&self) -> Vec<Vec<Datum>>;
    /// The next number of a sequence, or one that it gave.
    ///
    /// # Errors
    /// 55000 for a number that the session has not been given; 2200H; 42809.
    fn sequence(&self, call: SequenceCall) -> Result<i64>;
}

/// A question about a sequence, which is named by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceCall {
    /// `nextval`.
    Next(i64),
    /// `currval`.
    Current(i64),
    /// `lastval`.
    Last,
    /// `setval`: the number, and whether it was given.
    Set(i64, i64, bool),
    /// The number that was given last, or comes first.
    Value(i64),
    /// 1 if that number was given.
    Called(i64),
}

/// Computes a function from its arguments.
pub type Eval = fn(&dyn Session, &[Datum]) -> Result<Datum>;

/// The type of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// This one.
    Of(Type),
    /// Any one.
    Any,
    /// Any array.
    AnyArray,
}

/// The type of a result that is not always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// That of the function.
    Fixed,
    /// That of the argument with this number.
    Like(usize),
    /// That of the elements of the argument with this number.
    ElementOf(usize),
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name.
    pub name: &'static str,
    /// The types of its arguments.
    pub arguments: &'static [Argument],
    /// Whether more arguments of any type may follow.
    pub is_variadic: bool,
    /// The type of its result.
    pub result: Type,
    /// How its result depends on its arguments, if its type is not always the same.
    pub shape: Shape,
    /// Whether it is null when an argument is.
    pub is_strict: bool,
    /// Whether it may have another value the next time.
    pub is_volatile: bool,
    /// Computes it.
    pub eval: Eval,
}

/// A strict function of arguments of these types.
const fn of(name: &'static str, arguments: &'static [Argument], result: Type, eval: Eval) -> Function {
    Function {
        name,
        arguments,
        is_variadic: false,
        result,
        shape: Shape::Fixed,
        is_strict: true,
        is_volatile: false,
        eval,
    }
}

impl Function {
    /// Whether its result depends on its arguments alone: not on the settings of the session, its user, or the catalog.
    ///
    /// ```
    /// use lodestone_sql_types::func;
    ///
    /// let is_immutable = |name| func::all().find(|function| function.name == name).map(|found| found.is_immutable());
    /// assert_eq!((is_immutable("upper"), is_immutable("to_char")), (Some(true), Some(false)));
    /// ```
    #[must_use]
    pub fn is_immutable(&self) -> bool {
        const OF_SESSION: [&[Function]; 6] = [
            system::FUNCTIONS,
            catalog::FUNCTIONS,
            introspect::FUNCTIONS,
            sequence::FUNCTIONS,
            advisory::FUNCTIONS,
            activity::FUNCTIONS,
        ];
        let is_self = |other: &Self| other.name == self.name && other.arguments == self.arguments;
        let is_of_session = OF_SESSION.into_iter().flatten().any(is_self);
        let has_zone = self.result == Type::Timestamptz || self.arguments.contains(&TIMESTAMPTZ);
        let reads_settings = match self.name {
            "concat" | "concat_ws" | "format" | "to_char" | "to_date" | "array_to_string" => true,
            "json_build_array" | "json_build_object" | "jsonb_build_array" | "jsonb_build_object" => true,
            "to_timestamp" => self.arguments.len() == 2,
            "date_trunc" | "date_part" | "extract" | "age" | "make_timestamptz" => has_zone,
            _ => false,
        };
        !self.is_volatile && !is_of_session && !reads_settings
    }

    const fn lax(self) -> Self {
        Self { is_strict: false, ..self }
    }

    const fn volatile(self) -> Self {
        Self { is_volatile: true, ..self }
    }

    const fn like(self, argument: usize) -> Self {
        Self { shape: Shape::Like(argument), ..self }
    }

    const fn variadic(self) -> Self {
        Self { is_variadic: true, ..self }
    }
}

/// All functions.
///
/// ```
/// use lodestone_sql_types::func;
///
/// assert!(func::all().any(|function| function.name == "substring"));
/// ```
pub fn all() -> impl Iterator<Item = &'static Function> {
    [
        number::FUNCTIONS,
        string::FUNCTIONS,
        system::FUNCTIONS,
        catalog::FUNCTIONS,
        introspect::FUNCTIONS,
        sequence::FUNCTIONS,
        // Later ones stay at the end: the place of a function is its number in `pg_proc`.
        moment::FUNCTIONS,
        array::FUNCTIONS,
        regex::FUNCTIONS,
        format::FUNCTIONS,
        json::FUNCTIONS,
        number_format::FUNCTIONS,
        template::FUNCTIONS,
        advisory::FUNCTIONS,
        degrees::FUNCTIONS,
        bytes::FUNCTIONS,
        json::OF_RECORDS,
        activity::FUNCTIONS,
        introspect::LATER,
        moment::OF_ZONED_TIMES,
    ]
    .into_iter()
    .flatten()
}

pub use advisory::{AdvisoryCall, AdvisoryVerb};
pub use catalog::{DATABASE_NUMBER, DATABASE_OWNER, FIRST_FUNCTION};
pub use regex::{matches as regex_matches, split as regex_split};
pub use string::quote_ident;

/// The argument with this number as a text; empty if it is none.
fn text(arguments: &[Datum], number: usize) -> &str {
    arguments.get(number).and_then(Datum::as_text).unwrap_or_default()
}

/// A whole count as a value.
fn count(count: usize) -> Datum {
    Datum::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The elements of the argument with this number; none if it is no array.
fn elements(arguments: &[Datum], number: usize) -> &[Datum] {
    arguments.get(number).map_or(&[], crate::array::values)
}

/// The argument with this number as an integer; 0 if it is none.
fn int(arguments: &[Datum], number: usize) -> i64 {
    arguments.get(number).and_then(Datum::as_int).unwrap_or_default()
}

const ARRAY: Argument = Argument::AnyArray;
const ANY: Argument = Argument::Any;
const BYTEA: Argument = Argument::Of(Type::Bytea);
const TEXTS: Argument = Argument::Of(Type::TextArray);
const DATE: Argument = Argument::Of(Type::Date);
const TIME: Argument = Argument::Of(Type::Time);
const TIMESTAMP: Argument = Argument::Of(Type::Timestamp);
const TIMESTAMPTZ: Argument = Argument::Of(Type::Timestamptz);
const INTERVAL: Argument = Argument::Of(Type::Interval);
const JSON: Argument = Argument::Of(Type::Json);
const JSONB: Argument = Argument::Of(Type::Jsonb);
const BOOL: Argument = Argument::Of(Type::Bool);
const INT2: Argument = Argument::Of(Type::Int2);
const INT4: Argument = Argument::Of(Type::Int4);
const INT8: Argument = Argument::Of(Type::Int8);
const FLOAT: Argument = Argument::Of(Type::Float8);
const FLOAT4: Argument = Argument::Of(Type::Float4);
const NUMERIC: Argument = Argument::Of(Type::Numeric);
const TEXT: Argument = Argument::Of(Type::Text);
const NAME: Argument = Argument::Of(Type::Name);
const OID: Argument = Argument::Of(Type::Oid);
