//! `information_schema`: what the standard says about tables, columns and constraints.

use lodestone_sql_types::func::Session;
use lodestone_sql_types::{Datum, Type};

use super::{VirtualTable, action_text, count, int, row, text};
use crate::bind;
use crate::catalog::{Catalog, CheckOption, IdentityKind, LateKey, Relation, TableDef, ViewDef};
use crate::run::Row;
use crate::run::constraint::parent_columns;

use Type::{Int4, Name, Text};

const INFORMATION_TABLES: &[(&str, Type)] = &[
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("table_type", Text),
    ("is_insertable_into", Text),
    ("is_typed", Text),
];

const COLUMNS: &[(&str, Type)] = &[
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("column_name", Name),
    ("ordinal_position", Int4),
    ("column_default", Text),
    ("is_nullable", Text),
    ("data_type", Text),
    ("character_maximum_length", Int4),
    ("character_octet_length", Int4),
    ("numeric_precision", Int4),
    ("numeric_precision_radix", Int4),
    ("numeric_scale", Int4),
    ("datetime_precision", Int4),
    ("collation_name", Name),
    ("udt_catalog", Name),
    ("udt_schema", Name),
    ("udt_name", Name),
    ("is_identity", Text),
    ("identity_generation", Text),
    ("is_generated", Text),
    ("generation_expression", Text),
    ("is_updatable", Text),
];

const SCHEMATA: &[(&str, Type)] = &[("catalog_name", Name), ("schema_name", Name), ("schema_owner", Name)];

const VIEWS: &[(&str, Type)] = &[
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("view_definition", Text),
    ("check_option", Text),
    ("is_updatable", Text),
    ("is_insertable_into", Text),
    ("is_trigger_updatable", Text),
    ("is_trigger_deletable", Text),
    ("is_trigger_insertable_into", Text),
];

const TABLE_CONSTRAINTS: &[(&str, Type)] = &[
    ("constraint_catalog", Name),
    ("constraint_schema", Name),
    ("constraint_name", Name),
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("constraint_type", Text),
    ("is_deferrable", Text),
    ("initially_deferred", Text),
    ("enforced", Text),
];

const KEY_COLUMN_USAGE: &[(&str, Type)] = &[
    ("constraint_catalog", Name),
    ("constraint_schema", Name),
    ("constraint_name", Name),
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("column_name", Name),
    ("ordinal_position", Int4),
    ("position_in_unique_constraint", Int4),
];

const COLUMN_USAGE: &[(&str, Type)] = &[
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("column_name", Name),
    ("constraint_catalog", Name),
    ("constraint_schema", Name),
    ("constraint_name", Name),
];

const REFERENTIAL: &[(&str, Type)] = &[
    ("constraint_catalog", Name),
    ("constraint_schema", Name),
    ("constraint_name", Name),
    ("unique_constraint_catalog", Name),
    ("unique_constraint_schema", Name),
    ("unique_constraint_name", Name),
    ("match_option", Text),
    ("update_rule", Text),
    ("delete_rule", Text),
];

const CHECKS: &[(&str, Type)] =
    &[("constraint_catalog", Name), ("constraint_schema", Name), ("constraint_name", Name), ("check_clause", Text)];

const SEQUENCES: &[(&str, Type)] = &[
    ("sequence_catalog", Name),
    ("sequence_schema", Name),
    ("sequence_name", Name),
    ("data_type", Text),
    ("numeric_precision", Int4),
    ("numeric_precision_radix", Int4),
    ("numeric_scale", Int4),
    ("start_value", Text),
    ("minimum_value", Text),
    ("maximum_value", Text),
    ("increment", Text),
    ("cycle_option", Text),
];

const VIEW_TABLES: &[(&str, Type)] = &[
    ("view_catalog", Name),
    ("view_schema", Name),
    ("view_name", Name),
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
];

pub const TABLES: &[VirtualTable] = &[
    VirtualTable::information("view_table_usage", 13_011, VIEW_TABLES, view_tables),
    VirtualTable::information("tables", 13_001, INFORMATION_TABLES, tables),
    VirtualTable::information("columns", 13_002, COLUMNS, columns),
    VirtualTable::information("schemata", 13_003, SCHEMATA, |catalog, session| {
        let own = catalog.schemas.keys().map(String::as_str);
        let all = ["public", "pg_catalog", "information_schema"].into_iter().chain(own);
        all.map(|name| vec![text(session.database()), text(name), text(session.user())]).collect()
    }),
    VirtualTable::information("views", 13_004, VIEWS, |catalog, session| {
        let view = |view: &std::sync::Arc<ViewDef>| {
            let check = view.check_option().map_or("NONE", |check| match check {
                CheckOption::Local => "LOCAL",
                CheckOption::Cascaded => "CASCADED",
            });
            let (events, _) = bind::view::events(catalog, view);
            vec![
                text(session.database()),
                text(&view.schema),
                text(&view.name),
                Datum::Text(format!(" {};", catalog.shown_view(view))),
                text(check),
                yes_no(events & 20 == 20),
                yes_no(events & 8 != 0),
                text("NO"),
                text("NO"),
                text("NO"),
            ]
        };
        catalog.views.values().map(view).collect()
    }),
    VirtualTable::information("table_constraints", 13_005, TABLE_CONSTRAINTS, table_constraints),
    VirtualTable::information("key_column_usage", 13_006, KEY_COLUMN_USAGE, key_column_usage),
    VirtualTable::information("constraint_column_usage", 13_007, COLUMN_USAGE, column_usage),
    VirtualTable::information("referential_constraints", 13_008, REFERENTIAL, referential),
    VirtualTable::information("check_constraints", 13_009, CHECKS, |catalog, session| {
        let mut rows = Vec::new();
        for table in catalog.tables.values() {
            for check in &table.checks {
                let clause = Datum::Text(format!("({})", catalog.shown_text(&check.text)));
                rows.push(vec![text(session.database()), text(&table.schema), text(&check.name), clause]);
            }
        }
        rows
    }),
    VirtualTable::information("sequences", 13_010, SEQUENCES, |catalog, session| {
        let of = |sequence: &std::sync::Arc<crate::catalog::SequenceDef>| {
            let bits = i64::from(sequence.ty.len()) * 8;
            let number = |value: i64| Datum::Text(value.to_string());
            vec![
                text(session.database()),
                text(&sequence.schema),
                text(&sequence.name),
                Datum::Text(sequence.ty.to_string()),
                int(bits),
                int(2),
                int(0),
                number(sequence.start),
                number(sequence.minimum),
                number(sequence.maximum),
                number(sequence.increment),
                text(if sequence.is_cycle { "YES" } else { "NO" }),
            ]
        };
        // Those of identity columns are parts of them.
        catalog.sequences.values().filter(|sequence| !sequence.is_identity).map(of).collect()
    }),
];

fn yes_no(is_so: bool) -> Datum {
    text(if is_so { "YES" } else { "NO" })
}

fn tables(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let of = |schema: &str, name: &str, kind: &str, takes_rows: bool| {
        vec![text(session.database()), text(schema), text(name), text(kind), yes_no(takes_rows), text("NO")]
    };
    let tables = catalog.tables.values().map(|table| of(&table.schema, &table.name, "BASE TABLE", true));
    let takes_rows = |view: &std::sync::Arc<ViewDef>| bind::view::events(catalog, view).0 & 8 != 0;
    tables.chain(catalog.views.values().map(|view| of(&view.schema, &view.name, "VIEW", takes_rows(view)))).collect()
}

/// A column for the standard.
struct Shown<'s> {
    relation: (&'s str, &'s str),
    name: &'s str,
    number: usize,
    ty: Type,
    modifier: i32,
    default: Option<String>,
    not_null: bool,
    identity: Option<IdentityKind>,
    generated: Option<String>,
    takes_values: bool,
}

fn columns(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        for (number, column) in (1..).zip(&table.columns) {
            let default = column.default.as_ref().filter(|_| column.identity.is_none() && !column.is_generated);
            let generated = column.default.as_ref().filter(|_| column.is_generated);
            let shown = Shown {
                relation: (&table.schema, &table.name),
                name: &column.name,
                number,
                ty: column.ty,
                modifier: column.modifier,
                default: default.map(|default| catalog.shown_default(default)),
                not_null: column.not_null,
                identity: column.identity,
                generated: generated.map(|default| catalog.shown_text(&default.text)),
                takes_values: true,
            };
            rows.push(column_row(session, &shown));
        }
    }
    for view in catalog.views.values() {
        let (_, takes_values) = bind::view::events(catalog, view);
        for ((number, (name, ty, modifier)), takes_values) in (1..).zip(&view.columns).zip(takes_values) {
            let shown = Shown {
                relation: (&view.schema, &view.name),
                name,
                number,
                ty: *ty,
                modifier: *modifier,
                default: None,
                not_null: false,
                identity: None,
                generated: None,
                takes_values,
            };
            rows.push(column_row(session, &shown));
        }
    }
    rows
}

fn column_row(session: &dyn Session, column: &Shown<'_>) -> Row {
    let default = column.default.as_deref().map_or(Datum::Null, text);
    let has_modifier = column.modifier >= 4;
    let (mut length, mut precision, mut radix, mut scale) = (Datum::Null, Datum::Null, Datum::Null, Datum::Null);
    let mut octets = Datum::Null;
    let mut moment = Datum::Null;
    match column.ty {
        Type::Varchar | Type::Bpchar if has_modifier => {
            length = int(column.modifier - 4);
            octets = int(i64::from(column.modifier - 4) * 4);
        }
        Type::Varchar | Type::Bpchar | Type::Text => octets = int(1_073_741_824_i64),
        Type::Numeric if has_modifier => {
            let (digits, after) = lodestone_sql_types::cast::digits_of(column.modifier);
            (precision, radix, scale) = (int(digits), int(10), int(after));
        }
        Type::Numeric => radix = int(10),
        Type::Int2 => (precision, radix, scale) = (int(16), int(2), int(0)),
        Type::Int4 => (precision, radix, scale) = (int(32), int(2), int(0)),
        Type::Int8 => (precision, radix, scale) = (int(64), int(2), int(0)),
        Type::Float4 => (precision, radix) = (int(24), int(2)),
        Type::Float8 => (precision, radix) = (int(53), int(2)),
        Type::Date => moment = int(0),
        Type::Time | Type::Timetz | Type::Timestamp | Type::Timestamptz | Type::Interval => {
            moment = int(lodestone_sql_types::cast::second_digits(column.ty, column.modifier).map_or(6, i64::from));
        }
        _ => {}
    }
    let data_type = if column.ty.element().is_some() { "ARRAY".to_owned() } else { column.ty.to_string() };
    row(
        COLUMNS,
        &[
            ("table_catalog", text(session.database())),
            ("table_schema", text(column.relation.0)),
            ("table_name", text(column.relation.1)),
            ("column_name", text(column.name)),
            ("ordinal_position", count(column.number)),
            ("column_default", default),
            ("is_nullable", yes_no(!column.not_null)),
            ("data_type", Datum::Text(data_type)),
            ("character_maximum_length", length),
            ("character_octet_length", octets),
            ("numeric_precision", precision),
            ("numeric_precision_radix", radix),
            ("numeric_scale", scale),
            ("datetime_precision", moment),
            ("collation_name", Datum::Null),
            ("udt_catalog", text(session.database())),
            ("udt_schema", text("pg_catalog")),
            ("udt_name", text(column.ty.info().name)),
            ("is_identity", yes_no(column.identity.is_some())),
            (
                "identity_generation",
                match column.identity {
                    None => Datum::Null,
                    Some(IdentityKind::Always) => text("ALWAYS"),
                    Some(IdentityKind::ByDefault) => text("BY DEFAULT"),
                },
            ),
            ("is_generated", text(if column.generated.is_some() { "ALWAYS" } else { "NEVER" })),
            (
                "generation_expression",
                column.generated.as_ref().map_or(Datum::Null, |expr| Datum::Text(format!("({expr})"))),
            ),
            ("is_updatable", yes_no(column.takes_values)),
        ],
    )
}

/// The keys of a table: name, columns, whether it is the primary one, and how it is tested late, if it is.
fn keys(table: &TableDef) -> impl Iterator<Item = (&str, &[usize], bool, Option<LateKey>)> {
    let primary = (!table.key.is_empty()).then_some((table.key_name.as_str(), &table.key[..], true, None));
    let unique = table.indexes.iter().filter(|index| index.is_constraint);
    primary
        .into_iter()
        .chain(unique.map(|index| (index.name.as_str(), &index.columns[..], index.is_late_primary(), index.late)))
}

fn table_constraints(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        let mut add = |name: &str, kind: &str, (is_deferrable, is_deferred): (bool, bool)| {
            let (database, schema) = (|| text(session.database()), || text(&table.schema));
            rows.push(vec![
                database(),
                schema(),
                text(name),
                database(),
                schema(),
                text(&table.name),
                text(kind),
                yes_no(is_deferrable),
                yes_no(is_deferred),
                text("YES"),
            ]);
        };
        for (name, _, is_primary, late) in keys(table) {
            let timing = (late.is_some(), late.is_some_and(|late| late.is_deferred));
            add(name, if is_primary { "PRIMARY KEY" } else { "UNIQUE" }, timing);
        }
        table.checks.iter().for_each(|check| add(&check.name, "CHECK", (false, false)));
        for key in &table.foreign_keys {
            add(&key.name, "FOREIGN KEY", (key.is_deferrable, key.is_deferred));
        }
    }
    rows
}

/// The tables and views that each view names.
fn view_tables(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for view in catalog.views.values() {
        for oid in catalog.relations_of_view(view) {
            let (schema, name) = match catalog.relation(oid.into()) {
                Some(Relation::Table(table)) => (&table.schema, &table.name),
                Some(Relation::View(other)) => (&other.schema, &other.name),
                _ => continue,
            };
            let database = || text(session.database());
            rows.push(vec![database(), text(&view.schema), text(&view.name), database(), text(schema), text(name)]);
        }
    }
    rows
}

fn key_column_usage(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        let mut add = |name: &str, column: usize, number: usize, unique: Datum| {
            let (database, schema) = (|| text(session.database()), || text(&table.schema));
            let column = text(&table.columns[column].name);
            rows.push(vec![
                database(),
                schema(),
                text(name),
                database(),
                schema(),
                text(&table.name),
                column,
                count(number),
                unique,
            ]);
        };
        for (name, columns, ..) in keys(table) {
            for (number, column) in (1..).zip(columns) {
                add(name, *column, number, Datum::Null);
            }
        }
        for key in &table.foreign_keys {
            let parent = catalog.table_of(key.parent);
            let own = parent.and_then(|parent| parent_columns(parent, key)).unwrap_or_default();
            let order = parent.and_then(|parent| {
                let unique = parent.unique_over(&own)?;
                Some(unique.map_or(&parent.key, |index| &parent.indexes[index].columns).clone())
            });
            for (number, column) in (1..).zip(&key.columns) {
                let place = own.get(number - 1).and_then(|own| order.as_ref()?.iter().position(|other| other == own));
                add(&key.name, *column, number, place.map_or(Datum::Null, |place| count(place + 1)));
            }
        }
    }
    rows
}

fn column_usage(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |of: &TableDef, column: usize, name: &str, schema: &str| {
        let database = || text(session.database());
        let column = text(&of.columns[column].name);
        rows.push(vec![database(), text(&of.schema), text(&of.name), column, database(), text(schema), text(name)]);
    };
    for table in catalog.tables.values() {
        for (name, columns, ..) in keys(table) {
            columns.iter().for_each(|column| add(table, *column, name, &table.schema));
        }
        for key in &table.foreign_keys {
            let Some(parent) = catalog.table_of(key.parent) else { continue };
            let columns = parent_columns(parent, key).unwrap_or_default();
            columns.iter().for_each(|column| add(parent, *column, &key.name, &table.schema));
        }
    }
    rows
}

fn referential(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        for key in &table.foreign_keys {
            let Some(parent) = catalog.table_of(key.parent) else { continue };
            let unique = parent.unique_over(&parent_columns(parent, key).unwrap_or_default());
            let name = match unique {
                Some(Some(index)) => &parent.indexes[index].name,
                _ => &parent.key_name,
            };
            let database = || text(session.database());
            rows.push(vec![
                database(),
                text(&table.schema),
                text(&key.name),
                database(),
                text(&parent.schema),
                text(name),
                text(if key.is_full { "FULL" } else { "NONE" }),
                text(action_text(key.on_update).unwrap_or("NO ACTION")),
                text(action_text(key.on_delete).unwrap_or("NO ACTION")),
            ]);
        }
    }
    rows
}
