//! Names to columns, literals to types, operators to functions: from a statement to a plan.
//!
//! Types follow `PostgreSQL`'s rules in their simple form. A literal or parameter without a type takes the one that
//! its place needs. Numbers meet at the larger type of int2, int4, int8, numeric, float8. Everything else is an
//! error with a position.

mod access;
mod aggregate;
mod call;
mod change;
mod expr;
mod from;
mod query;
mod scope;

use lodestone_sql_types::{Error, Result, SqlState, Type};

use crate::catalog::{Catalog, TableDef};
use crate::parse::ast::{Copy, CopySource, Name, ObjectName, Position, Query, Statement, TypeName};
use crate::plan::{Action, Expr, OutputColumn, Plan};
use crate::run::point::PointQuery;

pub use expr::Typed;

/// Binds one statement.
pub struct Binder<'c> {
    pub catalog: &'c Catalog,
    /// The types of the parameters, as far as they are known.
    parameters: Vec<Type>,
    /// The queries of WITH, by name: those of the innermost query last.
    with: Vec<Vec<(String, Vec<String>, Query)>>,
    /// Subqueries inside each other.
    depth: usize,
    /// The groups of the query at hand.
    grouping: Option<aggregate::Grouping>,
}

/// Most queries inside each other.
const DEPTH_MAX: usize = 60;

/// The plan of `statement`. `types` are those of its parameters that the client named.
///
/// # Errors
/// As `PostgreSQL`, and 0A000.
pub fn bind(catalog: &Catalog, statement: Statement, types: &[Type]) -> Result<Plan> {
    let mut binder = Binder { catalog, parameters: types.to_vec(), with: Vec::new(), depth: 0, grouping: None };
    let (action, columns) = binder.statement(statement)?;
    // As PostgreSQL: a parameter that may have any type is a text.
    for ty in binder.parameters.iter_mut().filter(|ty| **ty == Type::Unknown) {
        *ty = Type::Text;
    }
    let point = PointQuery::of(&action);
    Ok(Plan { action, columns, parameters: binder.parameters, catalog: catalog.version, point })
}

/// The values of the columns that a COPY does not name. `None`: the column is named, or has no default.
///
/// # Errors
/// Those of a default that no longer makes sense.
pub fn defaults(catalog: &Catalog, table: &TableDef, named: &[usize]) -> Result<Vec<Option<Expr>>> {
    let mut binder = Binder { catalog, parameters: Vec::new(), with: Vec::new(), depth: 0, grouping: None };
    let of = |column: usize| {
        let has_default = !named.contains(&column) && table.columns[column].default.is_some();
        has_default.then(|| binder.default_of(table, column)).transpose()
    };
    (0..table.columns.len()).map(of).collect()
}

impl Binder<'_> {
    fn statement(&mut self, statement: Statement) -> Result<(Action, Vec<OutputColumn>)> {
        Ok(match statement {
            Statement::Empty => (Action::Empty, Vec::new()),
            Statement::Query(query) => {
                let (node, columns) = self.query(&query, None)?;
                (Action::Select(node), columns)
            }
            Statement::Insert { table, columns, source, skips_duplicates, returning } => {
                self.insert(&table, &columns, &source, skips_duplicates, &returning)?
            }
            Statement::Update { table, alias, set, filter, returning } => {
                self.update(&table, alias, &set, filter.as_ref(), &returning)?
            }
            Statement::Delete { table, alias, filter, returning } => {
                self.delete(&table, alias, filter.as_ref(), &returning)?
            }
            Statement::Copy(copy) => self.copy(copy)?,
            Statement::Show(name) => {
                let modifier = -1;
                let column = |name: &str| OutputColumn { name: name.into(), ty: Type::Text, modifier, origin: None };
                let columns = if name == "all" { vec![column("name"), column("setting")] } else { vec![column(&name)] };
                (Action::Utility(Statement::Show(name)), columns)
            }
            other => (Action::Utility(other), Vec::new()),
        })
    }

    fn copy(&mut self, copy: Copy) -> Result<(Action, Vec<OutputColumn>)> {
        let (name, named) = match copy.source {
            CopySource::Table(name, named) => (name, named),
            CopySource::Query(query) => {
                let (node, columns) = self.query(&query, None)?;
                return Ok((Action::CopyOut(copy.format, node), columns));
            }
        };
        if !copy.is_from {
            // The table is there, and so are its columns: the query names them.
            let table = self.table(&name)?;
            named.iter().try_for_each(|name| self.column_of(&table, name).map(drop))?;
            let Some(Statement::Query(query)) = crate::parse::parse(&rows_of(&name, &named))?.pop() else {
                return Err(Error::new(SqlState::INTERNAL_ERROR, "a query of a table is no query"));
            };
            let (node, columns) = self.query(&query, None)?;
            return Ok((Action::CopyOut(copy.format, node), columns));
        }
        let table = self.table(&name)?;
        let mut columns = Vec::new();
        for name in &named {
            columns.push(self.column_of(&table, name)?);
        }
        if named.is_empty() {
            columns = (0..table.columns.len()).collect();
        }
        Ok((Action::CopyIn(copy.format, table, columns), Vec::new()))
    }

    /// The type of a parameter becomes known.
    fn learn(&mut self, number: usize, ty: Type) -> Type {
        let place = number - 1;
        if self.parameters.len() <= place {
            self.parameters.resize(place + 1, Type::Unknown);
        }
        if self.parameters[place] == Type::Unknown {
            self.parameters[place] = ty;
        }
        self.parameters[place]
    }

    fn parameter(&mut self, number: usize) -> Typed {
        let ty = self.learn(number, Type::Unknown);
        Typed { expr: Expr::Param(number - 1), ty, modifier: -1 }
    }
}

/// A type by name, with its modifier.
///
/// # Errors
/// 42704; 22023.
pub fn type_of(name: &TypeName) -> Result<(Type, i32)> {
    let at = |error: Error| error.at(name.at);
    let undefined = || Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", name.name));
    let unsupported = || Error::unsupported(format!("the type {}", name.name));
    const LATER: &[&str] = &[
        "time",
        "timetz",
        "interval",
        "uuid",
        "json",
        "jsonb",
        "xml",
        "inet",
        "cidr",
        "macaddr",
        "bit",
        "varbit",
        "money",
        "point",
        "tsvector",
        "tsquery",
        "serial",
        "bigserial",
        "smallserial",
        "serial4",
        "serial8",
        "serial2",
        "hstore",
    ];
    let element = match Type::named(&name.name) {
        Some(ty) => ty,
        None if LATER.contains(&name.name.as_str()) => return Err(at(unsupported())),
        None => return Err(at(undefined())),
    };
    let bad = |message: String| at(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let modifier = match (element, &name.modifiers[..]) {
        (_, []) => -1,
        (Type::Varchar | Type::Bpchar, [length]) => {
            if !(1..=10_485_760).contains(length) {
                return Err(bad(format!("length for type {element} must be at least 1 and at most 10485760")));
            }
            i32::try_from(*length).unwrap_or(0) + 4
        }
        (Type::Numeric, [precision, scale]) => {
            if !(1..=38).contains(precision) || !(0..=*precision).contains(scale) {
                return Err(bad(format!(
                    "NUMERIC({precision},{scale}) must have 1 to 38 digits, and a scale of at most that"
                ))
                .hint("Lodestone keeps 38 digits."));
            }
            i32::try_from((precision << 16 | scale) + 4).unwrap_or(-1)
        }
        _ => return Err(at(Error::unsupported(format!("a modifier of the type {element}")))),
    };
    let ty = if name.is_array { element.array().ok_or_else(unsupported)? } else { element };
    Ok((ty, modifier))
}

/// The query of the rows of a table.
fn rows_of(table: &ObjectName, columns: &[Name]) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let columns: Vec<String> = columns.iter().map(|name| quoted(&name.value)).collect();
    let columns = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
    let schema = table.schema.as_ref().map_or_else(String::new, |schema| format!("{}.", quoted(schema)));
    format!("SELECT {columns} FROM {schema}{}", quoted(&table.name))
}

/// The error of a table that is not there.
fn no_table(name: &ObjectName) -> Error {
    let text = name.schema.as_ref().map_or(name.name.clone(), |schema| format!("{schema}.{}", name.name));
    Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{text}\" does not exist")).at(name.at)
}

/// The error of types that do not fit.
fn mismatch(message: String, at: Position) -> Error {
    Error::new(SqlState::DATATYPE_MISMATCH, message).at(at)
}
