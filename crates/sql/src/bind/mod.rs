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
mod family;
mod fold;
mod from;
mod locking;
mod memo;
mod merge;
mod operator;
mod order;
mod query;
mod recursion;
mod recursive;
mod row;
mod scope;
mod semi;
pub mod stars;
pub mod view;
mod window;
mod with_change;

use lodestone_sql_types::{Error, Result, SqlState, Type};

use crate::catalog::types::Types;
use crate::catalog::{Catalog, ColumnDef, TableDef};
use crate::parse::ast::{self, Copy, CopySource, Name, ObjectName, Position, Statement, TypeName, With};
use crate::plan::{Action, Expr, OutputColumn, Plan, tables};
use crate::run::point::PointQuery;

pub use crate::catalog::types::UserType;
pub use expr::Typed;
pub use family::{partition_key, partition_key_of};
pub use with_change::changed;

/// Binds one statement.
pub struct Binder<'c> {
    pub catalog: &'c Catalog,
    /// The types of the parameters, as far as they are known.
    parameters: Vec<Type>,
    /// The queries of WITH: those of the innermost query last.
    with: Vec<Vec<With>>,
    /// By level of `with`: how many scopes are around the query that has it.
    with_depths: std::collections::HashMap<usize, usize>,
    /// Queries that name themselves and are being bound.
    work: Vec<recursive::Work>,
    /// How many of them there were.
    work_count: usize,
    /// The changes in WITH.
    first: Vec<crate::plan::First>,
    /// Subqueries inside each other.
    depth: usize,
    /// The groups of the query at hand.
    grouping: Option<aggregate::Grouping>,
    /// The windows of the query at hand, and its functions that return rows, where they are allowed.
    extras: Option<window::Extras>,
    /// The columns of a query of this depth that are literals without a type: INSERT gives them that of its column.
    untyped: Option<(usize, Vec<usize>)>,
    /// Subqueries of expressions inside each other.
    nested: usize,
    /// The queries of WITH that are being bound: the level of each, and its name.
    opening: Vec<(usize, String)>,
    /// The tables of the query at hand whose hidden numbers are shown.
    numbered: Vec<String>,
    /// How many scopes the queries have whose aggregates' arguments are being bound.
    aggregating: Vec<usize>,
    /// Tables have a hidden column `tableoid`, because the statement names it.
    shows_oids: bool,
    /// The table whose rows change has an alias, which may be its own name.
    has_alias: bool,
    /// The columns that each `*` stands for, where that is asked for.
    stars: Option<stars::Stars>,
    /// The clause that is being bound, for messages.
    place: &'static str,
}

/// Most queries inside each other.
const DEPTH_MAX: usize = 60;

/// The plan of `statement`. `types` are those of its parameters that the client named.
///
/// # Errors
/// As `PostgreSQL`, and 0A000.
pub fn bind(catalog: &Catalog, statement: Statement, types: &[Type]) -> Result<Plan> {
    let mut binder = Binder { parameters: types.to_vec(), ..Binder::new(catalog) };
    // Hardly any statement needs it, and the others are not to have one more column for it.
    let again = statement.clone();
    let (action, columns) = match binder.statement(statement) {
        Err(error) if needs_oids(&error) => {
            binder = Binder { parameters: types.to_vec(), shows_oids: true, ..Binder::new(catalog) };
            binder.statement(again).map_err(|other| if needs_oids(&other) { error } else { other })?
        }
        outcome => outcome?,
    };
    binder.refuse_shared(&action)?;
    // As PostgreSQL: a parameter that may have any type is a text.
    for ty in binder.parameters.iter_mut().filter(|ty| **ty == Type::Unknown) {
        *ty = Type::Text;
    }
    let first = binder.first;
    let has_constants = crate::run::constant::has_constants(&action, &first);
    let point = if first.is_empty() && !has_constants { PointQuery::of(&action) } else { None };
    let (tables, takes_numbers) = tables::of(catalog, &action, &first);
    let (parameters, catalog) = (binder.parameters, catalog.version);
    Ok(Plan { action, first, columns, parameters, tables, takes_numbers, catalog, point, has_constants })
}

/// Whether a statement failed because it names the column `tableoid`, or a table that has no column but that one.
fn needs_oids(error: &Error) -> bool {
    let message = error.message();
    match error.state() {
        SqlState::UNDEFINED_COLUMN => message.contains("tableoid"),
        SqlState::UNDEFINED_TABLE => message.contains("FROM-clause entry"),
        SqlState::SYNTAX_ERROR => message == NO_TABLES,
        _ => false,
    }
}

/// The message of a `*` without tables.
const NO_TABLES: &str = "SELECT * with no tables specified is not valid";

/// The values of the columns that a COPY does not name. `None`: the column is named, or has no default.
///
/// # Errors
/// Those of a default that no longer makes sense.
pub fn defaults(catalog: &Catalog, table: &TableDef, named: &[usize]) -> Result<Vec<Option<Expr>>> {
    let mut binder = Binder::new(catalog);
    let of = |column: usize| {
        let has_default = !named.contains(&column) && table.columns[column].effective_default().is_some();
        has_default.then(|| binder.default_of(table, column)).transpose()
    };
    (0..table.columns.len()).map(of).collect()
}

/// Values for parameters of these types.
///
/// # Errors
/// 42804, and those of the expressions.
pub fn arguments(catalog: &Catalog, list: &[ast::Expr], types: &[Type]) -> Result<Vec<Expr>> {
    let mut binder = Binder::new(catalog);
    let mut found = Vec::new();
    for (expr, ty) in list.iter().zip(types) {
        let typed = binder.expr(expr, &scope::Scope::default())?;
        let within = lodestone_sql_types::cast::Context::Assignment;
        found.push(binder.coerce(typed, *ty, within, expr.at())?.expr);
    }
    if binder.parameters.is_empty() {
        return Ok(found);
    }
    Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"))
}

/// A condition over the columns of a table.
///
/// # Errors
/// As for WHERE; 0A000 for a subquery.
pub fn check_in(types: &Types, table: &str, columns: &[ColumnDef], expr: &ast::Expr) -> Result<Expr> {
    let catalog = Catalog::of_types(types);
    let mut binder = Binder::new(&catalog);
    let scope = scope::Scope { columns: from::scope_columns(0, columns, table), parent: None };
    let found = binder.condition(expr, &scope, "CHECK")?;
    if found.has_subquery() {
        let message = "cannot use subquery in check constraint";
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    Ok(found)
}

/// The value of a column from the others of its row.
///
/// # Errors
/// As the statement that makes the column.
pub fn generation(
    types: &Types,
    table: &str,
    (columns, column): (&[ColumnDef], usize),
    expr: &ast::Expr,
) -> Result<Expr> {
    let catalog = Catalog::of_types(types);
    let mut binder = Binder::new(&catalog);
    binder.place = "in column generation expressions";
    let scope = scope::Scope { columns: from::scope_columns(0, columns, table), parent: None };
    let own = &columns[column];
    let typed = binder.expr(expr, &scope)?;
    let ty = typed.ty;
    let found = binder.coerce(typed, own.ty, lodestone_sql_types::cast::Context::Assignment, ast::NOWHERE);
    let found = found.map_err(|error| match error.state() {
        SqlState::DATATYPE_MISMATCH => {
            let message =
                format!("column \"{}\" is of type {} but default expression is of type {ty}", own.name, own.ty);
            Error::new(SqlState::DATATYPE_MISMATCH, message).hint("You will need to rewrite or cast the expression.")
        }
        _ => error,
    })?;
    let found = binder.fitted(found, own.ty, own.modifier, false).expr;
    if found.has_subquery() {
        let message = "cannot use subquery in column generation expression";
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let mut other = None;
    found.walk(&mut |part| match part {
        Expr::Column { depth: 0, index } if columns.get(*index).is_some_and(|column| column.is_generated) => {
            other = Some(*index);
        }
        _ => {}
    });
    if let Some(other) = other {
        let message =
            format!("cannot use generated column \"{}\" in column generation expression", columns[other].name);
        return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message)
            .detail("A generated column cannot reference another generated column."));
    }
    if !is_immutable(&found) {
        return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, "generation expression is not immutable"));
    }
    Ok(found)
}

/// Whether the value of an expression depends on its row alone, and not on the settings of the session.
fn is_immutable(expr: &Expr) -> bool {
    let mut found = true;
    expr.walk(&mut |part| {
        found &= match part {
            Expr::Call(function, _) => function.is_immutable(),
            // A literal was read already.
            Expr::Cast { expr, from, to } => matches!(**expr, Expr::Const(_)) || !reads_settings(*from, *to),
            Expr::ToJson(ty, _) => !reads_settings(*ty, Type::Text),
            // Days and months are those of a zone.
            Expr::Arithmetic(_, ty, ..) => *ty != Type::Timestamptz,
            _ => true,
        }
    });
    found
}

/// Whether a value of one type becomes one of the other by the zone or the style of the session.
fn reads_settings(from: Type, to: Type) -> bool {
    use Type::{Date, Interval, Time, Timestamp, Timestamptz, Timetz};
    match (from.element().unwrap_or(from), to.element().unwrap_or(to)) {
        (Timestamptz | Time, Timetz) => true,
        (Timestamptz, Date | Time | Timestamp) | (Date | Time | Timestamp, Timestamptz) => true,
        (Date | Timestamp | Timestamptz | Interval, to) => to.is_text(),
        (from, Date | Time | Timetz | Timestamp | Timestamptz | Interval) => from.is_text(),
        _ => false,
    }
}

/// A condition of a domain over values of a type and modifier.
///
/// # Errors
/// As for WHERE; 0A000 for a subquery; 42703 for another name than VALUE.
pub fn domain_check(types: &Types, (ty, modifier): (Type, i32), expr: &ast::Expr) -> Result<Expr> {
    let catalog = Catalog::of_types(types);
    let mut binder = Binder::new(&catalog);
    let name = "value".to_owned();
    let column = scope::ScopeColumn {
        table: None,
        name,
        ty,
        modifier,
        origin: None,
        is_hidden: false,
        is_outer: false,
        relation: None,
    };
    let found = binder.condition(expr, &scope::Scope { columns: vec![column], parent: None }, "CHECK")?;
    if found.has_subquery() {
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot use subquery in check constraint"));
    }
    Ok(found)
}

/// A value for a column from the columns of its table as they were: that of ALTER COLUMN .. TYPE. `None`: the value of
/// the column itself.
///
/// # Errors
/// 42804, and those of the expression.
pub fn conversion(
    catalog: &Catalog,
    table: &TableDef,
    column: usize,
    to: &ColumnDef,
    using: Option<&ast::Expr>,
) -> Result<Expr> {
    let mut binder = Binder::new(catalog);
    let scope = scope::Scope { columns: from::scope_columns(table.oid, &table.columns, &table.name), parent: None };
    let own = &table.columns[column];
    let typed = match using {
        Some(expr) => binder.expr(expr, &scope)?,
        None => Typed { expr: Expr::Column { depth: 0, index: column }, ty: own.ty, modifier: own.modifier },
    };
    let within = lodestone_sql_types::cast::Context::Assignment;
    let at = crate::parse::ast::NOWHERE;
    let found = binder.coerce(typed, to.ty, within, at).map_err(|error| match error.state() {
        SqlState::DATATYPE_MISMATCH => {
            let message = format!("column \"{}\" cannot be cast automatically to type {}", own.name, to.ty);
            Error::new(SqlState::DATATYPE_MISMATCH, message)
                .hint(format!("You might need to specify \"USING {}::{}\".", own.name, to.ty))
        }
        _ => error,
    })?;
    Ok(binder.fitted(found, to.ty, to.modifier, false).expr)
}

/// The value of an expression without columns, for a column.
///
/// # Errors
/// 42804, and those of the expression.
pub fn default_expr(catalog: &Catalog, column: &ColumnDef, expr: &ast::Expr) -> Result<Expr> {
    let mut binder = Binder::new(catalog);
    let typed = binder.expr(expr, &scope::Scope::default()).map_err(|error| match error.state() {
        SqlState::UNDEFINED_COLUMN => {
            Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot use column reference in DEFAULT expression")
        }
        _ => error,
    })?;
    let (ty, within) = (typed.ty, lodestone_sql_types::cast::Context::Assignment);
    let found =
        binder.coerce(typed, column.ty, within, crate::parse::ast::NOWHERE).map_err(|error| match error.state() {
            SqlState::DATATYPE_MISMATCH => {
                let message = format!(
                    "column \"{}\" is of type {} but default expression is of type {ty}",
                    column.name, column.ty
                );
                Error::new(SqlState::DATATYPE_MISMATCH, message)
                    .hint("You will need to rewrite or cast the expression.")
            }
            _ => error,
        })?;
    let found = binder.fitted(found, column.ty, column.modifier, false).expr;
    match binder.parameters.is_empty() {
        true if !found.has_subquery() => Ok(found),
        true => {
            let message = "cannot use subquery in DEFAULT expression";
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
        false => Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1")),
    }
}

impl<'c> Binder<'c> {
    fn new(catalog: &'c Catalog) -> Self {
        Self {
            catalog,
            parameters: Vec::new(),
            with: Vec::new(),
            with_depths: std::collections::HashMap::new(),
            work: Vec::new(),
            work_count: 0,
            first: Vec::new(),
            depth: 0,
            grouping: None,
            extras: None,
            untyped: None,
            nested: 0,
            opening: Vec::new(),
            numbered: Vec::new(),
            aggregating: Vec::new(),
            shows_oids: false,
            has_alias: false,
            stars: None,
            place: "here",
        }
    }
}

impl Binder<'_> {
    fn statement(&mut self, statement: Statement) -> Result<(Action, Vec<OutputColumn>)> {
        Ok(match statement {
            Statement::Empty => (Action::Empty, Vec::new()),
            Statement::Query(mut query) => {
                self.bind_changes(&mut query.with)?;
                let (node, columns) = self.query(&query, None)?;
                (Action::Select(node), columns)
            }
            Statement::Insert { table, columns, alias, source, overriding, conflict, returning, mut with } => {
                self.share_all(&mut with);
                self.bind_changes(&mut with)?;
                self.with.push(with);
                let parts =
                    change::Insert { columns: &columns, source: &source, overriding, conflict: conflict.as_ref() };
                self.insert(&table, alias, &parts, &returning)?
            }
            Statement::Update { table, alias, set, from, filter, returning, mut with } => {
                self.share_all(&mut with);
                self.bind_changes(&mut with)?;
                self.with.push(with);
                self.has_alias = alias.is_some();
                let shown = alias.unwrap_or_else(|| table.name.clone());
                self.update((&table, &shown), &set, &from, filter.as_ref(), &returning)?
            }
            Statement::Delete { table, alias, using, filter, returning, mut with } => {
                self.share_all(&mut with);
                self.bind_changes(&mut with)?;
                self.with.push(with);
                self.has_alias = alias.is_some();
                let shown = alias.unwrap_or_else(|| table.name.clone());
                self.delete((&table, &shown), &using, filter.as_ref(), &returning)?
            }
            Statement::Merge(mut merge) => {
                self.share_all(&mut merge.with);
                self.bind_changes(&mut merge.with)?;
                self.has_alias = merge.alias.is_some();
                self.with.push(merge.with.clone());
                self.merge(&merge)?
            }
            Statement::Copy(copy) => self.copy(copy)?,
            Statement::Show(name) => {
                let modifier = -1;
                let column = |name: &str| OutputColumn { name: name.into(), ty: Type::Text, modifier, origin: None };
                let columns = if name == "all" { vec![column("name"), column("setting")] } else { vec![column(&name)] };
                (Action::Utility(Statement::Show(name)), columns)
            }
            Statement::Explain { options, statement } => {
                let (name, modifier) = ("QUERY PLAN".to_owned(), -1);
                let column = OutputColumn { name, ty: Type::Text, modifier, origin: None };
                (Action::Utility(Statement::Explain { options, statement }), vec![column])
            }
            Statement::Declare { query, name, is_scroll, is_hold } => {
                // For the types of its parameters, and its errors.
                self.query(&query, None)?;
                (Action::Utility(Statement::Declare { query, name, is_scroll, is_hold }), Vec::new())
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
        if self.view_named(&name).is_some() {
            let (verb, hint) = match copy.is_from {
                true => ("copy to", "To enable copying to a view, provide an INSTEAD OF INSERT trigger."),
                false => ("copy from", "Try the COPY (SELECT ...) TO variant."),
            };
            let message = format!("cannot {verb} view \"{}\"", name.name);
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).hint(hint).at(name.at));
        }
        if !copy.is_from {
            // The table is there, and so are its columns: the query names them.
            let table = self.table(&name)?;
            if table.partition_by.is_some() {
                let message = format!("cannot copy from partitioned table \"{}\"", name.name);
                let hint = "Try the COPY (SELECT ...) TO variant.";
                return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).hint(hint));
            }
            for name in &named {
                let column = self.column_of(&table, name)?;
                if table.columns[column].is_generated {
                    return Err(generated_in_copy(&name.value));
                }
            }
            let kept = || table.columns.iter().filter(|column| !column.is_generated);
            let name_of = |column: &ColumnDef| Name { value: column.name.clone(), at: ast::NOWHERE };
            let named = match named.is_empty() && kept().count() < table.columns.len() {
                true => kept().map(name_of).collect(),
                false => named,
            };
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
        if let Some(column) = columns.iter().map(|column| &table.columns[*column]).find(|column| column.is_generated) {
            return Err(generated_in_copy(&column.name));
        }
        if named.is_empty() {
            columns = (0..table.columns.len()).filter(|column| !table.columns[*column].is_generated).collect();
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

/// A type by name, also one of the database.
///
/// # Errors
/// 42704; 22023; 0A000.
pub fn user_type(catalog: &Catalog, name: &TypeName) -> Result<UserType> {
    let is_system = name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog");
    let object = ObjectName { schema: name.schema.clone(), name: name.name.clone(), at: name.at, is_only: false };
    if is_system && Type::named(&name.name).is_some() {
        return type_of(name).map(|(ty, modifier)| UserType { ty, modifier, domain: None });
    }
    let Some(found) = catalog.type_def(&object) else {
        if let Some(table) = catalog.table(&object)
            && name.modifiers.is_empty()
        {
            let ty = table.row_type()?;
            let ty = if name.is_array { expr::array_of(ty)? } else { ty };
            return Ok(UserType { ty, modifier: -1, domain: None });
        }
        return type_of(name).map(|(ty, modifier)| UserType { ty, modifier, domain: None });
    };
    if !name.modifiers.is_empty() {
        let message = format!("type modifier is not allowed for type \"{}\"", name.name);
        return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(name.at));
    }
    if !name.is_array {
        return Ok(found.ty.clone());
    }
    if found.ty.domain.is_some() {
        return Err(Error::unsupported(format!("an array of the domain {}", name.name)).at(name.at));
    }
    let ty = expr::array_of(found.ty.ty)?;
    Ok(UserType { ty, modifier: -1, domain: None })
}

/// The name of the type of a column.
pub fn type_name(catalog: &Catalog, ty: Type, domain: Option<u32>) -> TypeName {
    let oid = domain.unwrap_or_else(|| ty.element().unwrap_or(ty).oid());
    if let Some(found) = catalog.type_of_oid(oid.into()) {
        let (schema, name) = (Some(found.note.schema.clone()), found.note.name.clone());
        let is_array = domain.is_none() && ty.element().is_some();
        return TypeName { schema, name, modifiers: Vec::new(), is_array, at: ast::NOWHERE };
    }
    TypeName::plain(ty.info().name)
}

/// A type of the system by name, with its modifier.
///
/// # Errors
/// 42704; 22023.
fn type_of(name: &TypeName) -> Result<(Type, i32)> {
    let at = |error: Error| error.at(name.at);
    let undefined = || Error::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", name.name));
    let unsupported = || Error::unsupported(format!("the type {}", name.name));
    const LATER: &[&str] = &[
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
            if !(1..=1000).contains(precision) {
                return Err(bad(format!("NUMERIC precision {precision} must be between 1 and 1000")));
            }
            if !(-1000..=1000).contains(scale) {
                return Err(bad(format!("NUMERIC scale {scale} must be between -1000 and 1000")));
            }
            i32::try_from((precision << 16 | scale & 0x7ff) + 4).unwrap_or(-1)
        }
        (Type::Time | Type::Timetz | Type::Timestamp | Type::Timestamptz | Type::Interval, [digits]) => {
            // Six digits of the seconds are all that there are.
            let digits = i32::try_from((*digits).min(6)).unwrap_or(6);
            lodestone_sql_types::cast::second_modifier(element, digits)
        }
        _ => return Err(at(Error::unsupported(format!("a modifier of the type {element}")))),
    };
    let ty = if name.is_array { element.array().ok_or_else(unsupported)? } else { element };
    Ok((ty, modifier))
}

/// The error of a COPY that names a column that is computed.
fn generated_in_copy(name: &str) -> Error {
    Error::new(SqlState::INVALID_COLUMN_REFERENCE, format!("column \"{name}\" is a generated column"))
        .detail("Generated columns cannot be used in COPY.")
}

/// The query of the rows of a table.
fn rows_of(table: &ObjectName, columns: &[Name]) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let columns: Vec<String> = columns.iter().map(|name| quoted(&name.value)).collect();
    let columns = if columns.is_empty() { "*".to_owned() } else { columns.join(", ") };
    let schema = table.schema.as_ref().map_or_else(String::new, |schema| format!("{}.", quoted(schema)));
    // Tables below it have their rows themselves.
    format!("SELECT {columns} FROM ONLY {schema}{}", quoted(&table.name))
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
