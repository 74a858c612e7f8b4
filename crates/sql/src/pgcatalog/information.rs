//! `information_schema`: what the standard says about tables and columns.

use lodestone_sql_types::func::Session;
use lodestone_sql_types::{Datum, Type};

use super::{VirtualTable, count, int, row, text};
use crate::catalog::{Catalog, ColumnDef};
use crate::run::Row;

use Type::{Int4, Name, Text};

const INFORMATION_TABLES: &[(&str, Type)] = &[
    ("table_catalog", Name),
    ("table_schema", Name),
    ("table_name", Name),
    ("table_type", Text),
    ("is_insertable_into", Text),
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
    ("numeric_precision", Int4),
    ("numeric_scale", Int4),
    ("udt_name", Name),
];

const SCHEMATA: &[(&str, Type)] = &[("catalog_name", Name), ("schema_name", Name), ("schema_owner", Name)];

pub const TABLES: &[VirtualTable] = &[
    VirtualTable::information("tables", 13_001, INFORMATION_TABLES, |catalog, session| {
        let of = |name: &String| {
            row(
                INFORMATION_TABLES,
                &[
                    ("table_catalog", text(session.database())),
                    ("table_schema", text("public")),
                    ("table_name", text(name)),
                    ("table_type", text("BASE TABLE")),
                    ("is_insertable_into", text("YES")),
                ],
            )
        };
        catalog.tables.keys().map(of).collect()
    }),
    VirtualTable::information("columns", 13_002, COLUMNS, columns),
    VirtualTable::information("schemata", 13_003, SCHEMATA, |_, session| {
        let of = |name: &str| {
            row(
                SCHEMATA,
                &[
                    ("catalog_name", text(session.database())),
                    ("schema_name", text(name)),
                    ("schema_owner", text(session.user())),
                ],
            )
        };
        ["public", "pg_catalog", "information_schema"].into_iter().map(of).collect()
    }),
];

fn columns(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        for (number, column) in (1..).zip(&table.columns) {
            rows.push(column_row(session, &table.name, number, column));
        }
    }
    rows
}

fn column_row(session: &dyn Session, table: &str, number: usize, column: &ColumnDef) -> Row {
    let default = column.default.as_ref().map_or(Datum::Null, |default| text(&default.text));
    let has_modifier = column.modifier >= 4;
    let (mut length, mut precision, mut scale) = (Datum::Null, Datum::Null, Datum::Null);
    match column.ty {
        Type::Varchar | Type::Bpchar if has_modifier => length = int(column.modifier - 4),
        Type::Numeric if has_modifier => {
            let (digits, after) = lodestone_sql_types::cast::digits_of(column.modifier);
            (precision, scale) = (int(digits), int(after));
        }
        Type::Int2 => (precision, scale) = (int(16), int(0)),
        Type::Int4 => (precision, scale) = (int(32), int(0)),
        Type::Int8 => (precision, scale) = (int(64), int(0)),
        _ => {}
    }
    row(
        COLUMNS,
        &[
            ("table_catalog", text(session.database())),
            ("table_schema", text("public")),
            ("table_name", text(table)),
            ("column_name", text(&column.name)),
            ("ordinal_position", count(number)),
            ("column_default", default),
            ("is_nullable", text(if column.not_null { "NO" } else { "YES" })),
            ("data_type", Datum::Text(column.ty.to_string())),
            ("character_maximum_length", length),
            ("numeric_precision", precision),
            ("numeric_scale", scale),
            ("udt_name", text(column.ty.info().name)),
        ],
    )
}
