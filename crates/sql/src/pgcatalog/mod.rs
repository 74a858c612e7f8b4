//! `pg_catalog` and `information_schema`: tables that are computed from the catalog when they are read.
//!
//! They come from the same descriptors that resolve names, so they cannot disagree with them. Tables of features that
//! are not built are there and empty: clients join them. A column that has no meaning here has its usual empty value.
//!
//! `shapes.rs` lists all tables and views of PostgreSQL 15 with all their columns. The other files compute rows.

mod depend;
mod family;
pub use family::foreign_parent;
pub use objects::is_role_of_system;
mod information;
mod objects;
mod operator;
mod shapes;
mod tables;

use lodestone_sql_types::func::{self, Session};
use lodestone_sql_types::{Datum, Error, SqlState, Type};

use crate::catalog::Catalog;
use crate::run::Row;

/// The number of the schema of users' tables.
pub const PUBLIC: i64 = 2200;
/// The number of the schema of the system.
pub const PG_CATALOG: i64 = 11;
/// The number of `information_schema`.
pub const INFORMATION_SCHEMA: i64 = 13_000;
/// The number of the one role.
pub const OWNER: i64 = 10;

/// Words that are reserved in statements.
pub const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// Functions of types, which clients name, and their numbers.
pub const TYPE_FUNCTIONS: &[(&str, i64)] =
    &[("array_in", 750), ("array_out", 751), ("array_recv", 2400), ("array_send", 2401)];

/// Computes the rows of a table.
pub type Rows = fn(&Catalog, &dyn Session) -> Vec<Row>;

/// A table that is computed.
#[derive(Debug)]
pub struct VirtualTable {
    pub schema: &'static str,
    pub name: &'static str,
    pub oid: u32,
    pub columns: &'static [(&'static str, Type)],
    compute: Rows,
    /// By column: its place in the computed rows. `None`: it has its empty value. Without a list they are the same.
    places: Option<Vec<Option<usize>>>,
}

impl VirtualTable {
    const fn of(name: &'static str, oid: u32, columns: &'static [(&'static str, Type)], rows: Rows) -> Self {
        Self { schema: "pg_catalog", name, oid, columns, compute: rows, places: None }
    }

    const fn empty(name: &'static str, oid: u32, columns: &'static [(&'static str, Type)]) -> Self {
        Self::of(name, oid, columns, |_, _| Vec::new())
    }

    const fn information(name: &'static str, oid: u32, columns: &'static [(&'static str, Type)], rows: Rows) -> Self {
        Self { schema: "information_schema", name, oid, columns, compute: rows, places: None }
    }

    /// Its rows.
    pub fn rows(&self, catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
        let rows = (self.compute)(catalog, session);
        let Some(places) = &self.places else { return rows };
        let of = |mut row: Row| -> Row {
            let cell = |(place, (_, ty)): (&Option<usize>, &(&str, Type))| match place {
                Some(place) => std::mem::replace(&mut row[*place], Datum::Null),
                None => empty(*ty),
            };
            places.iter().zip(self.columns).map(cell).collect()
        };
        rows.into_iter().map(of).collect()
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static VirtualTable> {
    shapes::ALL.iter()
}

/// Those whose rows are computed, with the columns that are.
fn computed() -> impl Iterator<Item = &'static VirtualTable> {
    [tables::TABLES, objects::TABLES, information::TABLES].into_iter().flatten()
}

/// The table with this name, where no schema means `pg_catalog`.
pub fn find(schema: Option<&str>, name: &str) -> Option<&'static VirtualTable> {
    let schema = schema.unwrap_or("pg_catalog");
    all().find(|table| table.schema == schema && table.name == name)
}

/// The number of a schema.
pub fn namespace(catalog: &Catalog, schema: &str) -> Datum {
    match schema {
        crate::catalog::PUBLIC => int(PUBLIC),
        "pg_catalog" => int(PG_CATALOG),
        "information_schema" => int(INFORMATION_SCHEMA),
        other => catalog.schemas.get(other).map_or_else(|| int(PUBLIC), |oid| int(*oid)),
    }
}

/// A row of `columns` with these values. The others have the empty value of their type.
fn row(columns: &[(&str, Type)], values: &[(&str, Datum)]) -> Row {
    let value = |(name, ty): &(&str, Type)| {
        let given = values.iter().find(|(other, _)| other == name);
        given.map_or_else(|| empty(*ty), |(_, datum)| datum.clone())
    };
    columns.iter().map(value).collect()
}

fn empty(ty: Type) -> Datum {
    match ty {
        Type::Bool => Datum::Bool(false),
        Type::Float4 | Type::Float8 => Datum::Float(0.0),
        _ if ty.is_integer() => Datum::Int(0),
        Type::Char | Type::Name => Datum::from(""),
        _ => Datum::Null,
    }
}

/// How PostgreSQL stores values of a type, as a letter.
fn storage(ty: Type) -> &'static str {
    match ty {
        Type::Numeric => "m",
        _ if ty.len() < 0 && ty != Type::OidVector && ty != Type::Int2Vector => "x",
        _ => "p",
    }
}

fn int(value: impl Into<i64>) -> Datum {
    Datum::Int(value.into())
}

fn count(value: usize) -> Datum {
    Datum::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn text(value: &str) -> Datum {
    Datum::from(value)
}

/// The number of the object that is named, as one of type `to`.
///
/// # Errors
/// 42704, 42883 or 3F000 if there is none; 0A000 for other types.
pub fn number_of(catalog: &Catalog, to: Type, name: &str) -> lodestone_sql_types::Result<i64> {
    let missing = |state, what: &str| Error::new(state, format!("{what} \"{name}\" does not exist"));
    let plain = names_of(name).1;
    match to {
        Type::Regtype => {
            let plain = plain.strip_prefix("pg_catalog.").unwrap_or(&plain);
            let found = Type::named(plain).or_else(|| Type::named(&name.trim().to_lowercase()));
            let user = || {
                let (schema, plain) = names_of(name);
                let object = crate::parse::ast::ObjectName {
                    schema,
                    name: plain,
                    at: crate::parse::ast::NOWHERE,
                    is_only: false,
                };
                catalog.type_def(&object).map(|found| found.note.oid)
            };
            let array = || {
                let element = plain.strip_suffix("[]")?;
                let of = |oid| crate::catalog::types::of_oid(&catalog.types, u32::try_from(oid).ok()?)?.ty.array();
                number_of(catalog, to, element).ok().and_then(of).map(Type::oid)
            };
            found
                .map(Type::oid)
                .or_else(user)
                .or_else(array)
                .map(i64::from)
                .ok_or_else(|| missing(SqlState::UNDEFINED_OBJECT, "type"))
        }
        Type::Regproc => {
            if let Some((_, number)) = TYPE_FUNCTIONS.iter().find(|(name, _)| *name == plain) {
                return Ok(*number);
            }
            let place = func::all().position(|function| function.name == plain);
            let number = place.and_then(|place| i64::try_from(place).ok()).map(|place| func::FIRST_FUNCTION + place);
            number.ok_or_else(|| missing(SqlState::UNDEFINED_FUNCTION, "function"))
        }
        Type::Regnamespace if catalog.has_schema(&plain) || plain == "pg_catalog" || plain == "information_schema" => {
            Ok(namespace(catalog, &plain).as_int().unwrap_or(0))
        }
        Type::Regnamespace => Err(missing(SqlState::INVALID_SCHEMA_NAME, "schema")),
        other => Err(Error::unsupported(format!("a name as a {other}"))),
    }
}

/// Schema and name of a text such as `"My".table`.
pub fn names_of(text: &str) -> (Option<String>, String) {
    let mut parts: Vec<String> = Vec::new();
    let (mut part, mut is_quoted, mut was_quoted) = (String::new(), false, false);
    for letter in text.trim().chars() {
        match letter {
            '"' => (is_quoted, was_quoted) = (!is_quoted, true),
            '.' if !is_quoted => {
                parts.push(if was_quoted { part } else { part.to_lowercase() });
                (part, was_quoted) = (String::new(), false);
            }
            letter => part.push(letter),
        }
    }
    parts.push(if was_quoted { part } else { part.to_lowercase() });
    let name = parts.pop().unwrap_or_default();
    (parts.pop(), name)
}

/// The statement that makes an index, or the name of one of its columns.
pub fn index_definition(catalog: &Catalog, oid: i64, column: i64) -> Option<String> {
    use crate::catalog::Relation;
    let (table, name, columns, included, is_unique) = match catalog.relation(oid)? {
        Relation::Key(table) => (table, &table.key_name, &table.key, &table.key_included[..], true),
        Relation::Index(table, index) => (table, &index.name, &index.columns, &index.included[..], index.is_key()),
        _ => return None,
    };
    let name_of = |column: &usize| table.columns[*column].name.as_str();
    if column > 0 {
        let place = usize::try_from(column - 1).ok()?;
        return columns.iter().chain(included).nth(place).map(|column| name_of(column).to_owned());
    }
    let unique = if is_unique { "UNIQUE " } else { "" };
    let quote = lodestone_sql_types::func::quote_ident;
    let (schema, table_name) = (quote(&table.schema), quote(&table.name));
    let list = |columns: &[usize]| columns.iter().map(|column| quote(name_of(column))).collect::<Vec<_>>().join(", ");
    let columns = list(columns);
    let included = if included.is_empty() { String::new() } else { format!(" INCLUDE ({})", list(included)) };
    // The indexes of its partitions are objects of their own.
    let only = if table.partition_by.is_some() { "ONLY " } else { "" };
    let on = format!("{only}{schema}.{table_name}");
    Some(format!("CREATE {unique}INDEX {} ON {on} USING btree ({columns}){included}", quote(name)))
}

/// The clause that makes a constraint. Keys have the numbers of their indexes.
///
/// `is_pretty`: without the parentheses that no reader needs.
pub fn constraint_definition(catalog: &Catalog, oid: i64, is_pretty: bool) -> Option<String> {
    use crate::catalog::Relation;
    let quote = lodestone_sql_types::func::quote_ident;
    let names = |table: &crate::catalog::TableDef, columns: &[usize]| {
        columns.iter().map(|column| quote(&table.columns[*column].name)).collect::<Vec<_>>().join(", ")
    };
    let included = |table: &crate::catalog::TableDef, columns: &[usize]| match columns {
        [] => String::new(),
        columns => format!(" INCLUDE ({})", names(table, columns)),
    };
    match catalog.relation(oid) {
        Some(Relation::Key(table)) => {
            let included = included(table, &table.key_included);
            return Some(format!("PRIMARY KEY ({}){included}", names(table, &table.key)));
        }
        Some(Relation::Index(table, index)) => {
            let included = included(table, &index.included);
            let kind = if index.is_late_primary() { "PRIMARY KEY" } else { "UNIQUE" };
            let when = match index.late {
                None => "",
                Some(late) if late.is_deferred => " DEFERRABLE INITIALLY DEFERRED",
                Some(_) => " DEFERRABLE",
            };
            return Some(format!("{kind} ({}){included}{when}", names(table, &index.columns)));
        }
        _ => {}
    }
    for found in catalog.types.values() {
        let crate::catalog::types::TypeBody::Domain(domain) = &found.note.body else { continue };
        let Some(check) = domain.checks.iter().find(|check| i64::from(check.oid) == oid) else { continue };
        let text = catalog.shown_text(&check.text);
        let text = if is_pretty { format!("CHECK ({text})") } else { format!("CHECK (({text}))") };
        return Some(format!("{text}{}", if check.is_valid { "" } else { " NOT VALID" }));
    }
    for table in catalog.tables.values() {
        if let Some(check) = table.checks.iter().find(|check| i64::from(check.oid) == oid) {
            let text = catalog.shown_text(&check.text);
            let text = if is_pretty { format!("CHECK ({text})") } else { format!("CHECK (({text}))") };
            let inherits = if check.no_inherit { " NO INHERIT" } else { "" };
            return Some(format!("{text}{inherits}{}", if check.is_valid { "" } else { " NOT VALID" }));
        }
        let Some(key) = table.foreign_keys.iter().find(|key| i64::from(key.oid) == oid) else { continue };
        let parent = catalog.table_of(key.parent)?;
        let shown = match catalog.is_visible(&parent.schema, &parent.name) {
            true => quote(&parent.name),
            false => format!("{}.{}", quote(&parent.schema), quote(&parent.name)),
        };
        let columns = key.parent_columns.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ");
        let mut text = format!("FOREIGN KEY ({}) REFERENCES {shown}({columns})", names(table, &key.columns));
        if key.is_full {
            text += " MATCH FULL";
        }
        for (event, action) in [("UPDATE", key.on_update), ("DELETE", key.on_delete)] {
            text += &action_text(action).map_or(String::new(), |action| format!(" ON {event} {action}"));
        }
        if key.is_deferrable {
            text += " DEFERRABLE";
        }
        if key.is_deferred {
            text += " INITIALLY DEFERRED";
        }
        if !key.is_valid {
            text += " NOT VALID";
        }
        return Some(text);
    }
    None
}

/// The words of an action, unless it is none.
pub fn action_text(action: crate::parse::ast::KeyAction) -> Option<&'static str> {
    use crate::parse::ast::KeyAction as A;
    match action {
        A::NoAction => None,
        A::Restrict => Some("RESTRICT"),
        A::Cascade => Some("CASCADE"),
        A::SetNull => Some("SET NULL"),
        A::SetDefault => Some("SET DEFAULT"),
    }
}
