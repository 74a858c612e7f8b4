//! Tables about tables: `pg_class`, `pg_attribute`, `pg_index`, `pg_constraint` and their relatives.

use lodestone_sql_types::func::{SequenceCall, Session};
use lodestone_sql_types::{Datum, Type};

use super::{OWNER, PG_CATALOG, VirtualTable, all, count, int, namespace, row, text};
use crate::catalog::types::TypeBody;
use crate::catalog::{Catalog, IdentityKind, SequenceDef, TableDef, ViewDef};
use crate::parse::ast::KeyAction;
use crate::run::Row;

use Type::{Bool, Char, Float4, Int2, Int4, Name, Oid, OidVector, Text, TextArray};

const CLASS: &[(&str, Type)] = &[
    ("oid", Oid),
    ("relname", Name),
    ("relnamespace", Oid),
    ("reltype", Oid),
    ("reloftype", Oid),
    ("relowner", Oid),
    ("relam", Oid),
    ("relfilenode", Oid),
    ("reltablespace", Oid),
    ("relpages", Int4),
    ("reltuples", Float4),
    ("relallvisible", Int4),
    ("reltoastrelid", Oid),
    ("relhasindex", Bool),
    ("relisshared", Bool),
    ("relpersistence", Char),
    ("relkind", Char),
    ("relnatts", Int2),
    ("relchecks", Int2),
    ("relhasrules", Bool),
    ("relhastriggers", Bool),
    ("relhassubclass", Bool),
    ("relrowsecurity", Bool),
    ("relforcerowsecurity", Bool),
    ("relispopulated", Bool),
    ("relreplident", Char),
    ("relispartition", Bool),
    ("relrewrite", Oid),
    ("relfrozenxid", Int4),
    ("relminmxid", Int4),
    ("relacl", TextArray),
    ("reloptions", TextArray),
    ("relpartbound", Text),
];

const ATTRIBUTE: &[(&str, Type)] = &[
    ("attrelid", Oid),
    ("attname", Name),
    ("atttypid", Oid),
    ("attstattarget", Int4),
    ("attlen", Int2),
    ("attnum", Int2),
    ("attndims", Int4),
    ("attcacheoff", Int4),
    ("atttypmod", Int4),
    ("attbyval", Bool),
    ("attalign", Char),
    ("attstorage", Char),
    ("attcompression", Char),
    ("attnotnull", Bool),
    ("atthasdef", Bool),
    ("atthasmissing", Bool),
    ("attidentity", Char),
    ("attgenerated", Char),
    ("attisdropped", Bool),
    ("attislocal", Bool),
    ("attinhcount", Int4),
    ("attcollation", Oid),
    ("attacl", TextArray),
    ("attoptions", TextArray),
    ("attfdwoptions", TextArray),
    ("attmissingval", Text),
];

const INDEX: &[(&str, Type)] = &[
    ("indexrelid", Oid),
    ("indrelid", Oid),
    ("indnatts", Int2),
    ("indnkeyatts", Int2),
    ("indisunique", Bool),
    ("indnullsnotdistinct", Bool),
    ("indisprimary", Bool),
    ("indisexclusion", Bool),
    ("indimmediate", Bool),
    ("indisclustered", Bool),
    ("indisvalid", Bool),
    ("indcheckxmin", Bool),
    ("indisready", Bool),
    ("indislive", Bool),
    ("indisreplident", Bool),
    ("indkey", Type::Int2Vector),
    ("indcollation", OidVector),
    ("indclass", OidVector),
    ("indoption", Type::Int2Vector),
    ("indexprs", Text),
    ("indpred", Text),
];

const CONSTRAINT: &[(&str, Type)] = &[
    ("oid", Oid),
    ("conname", Name),
    ("connamespace", Oid),
    ("contype", Char),
    ("condeferrable", Bool),
    ("condeferred", Bool),
    ("convalidated", Bool),
    ("conrelid", Oid),
    ("contypid", Oid),
    ("conindid", Oid),
    ("conparentid", Oid),
    ("confrelid", Oid),
    ("confupdtype", Char),
    ("confdeltype", Char),
    ("confmatchtype", Char),
    ("conislocal", Bool),
    ("coninhcount", Int4),
    ("connoinherit", Bool),
    ("conkey", Type::Int2Array),
    ("confkey", Type::Int2Array),
    ("conpfeqop", Type::OidArray),
    ("conppeqop", Type::OidArray),
    ("conffeqop", Type::OidArray),
    ("confdelsetcols", Type::Int2Array),
    ("conexclop", Type::OidArray),
    ("conbin", Text),
];

const ATTRDEF: &[(&str, Type)] = &[("oid", Oid), ("adrelid", Oid), ("adnum", Int2), ("adbin", Text)];

const REWRITE: &[(&str, Type)] = &[
    ("oid", Oid),
    ("rulename", Name),
    ("ev_class", Oid),
    ("ev_type", Char),
    ("ev_enabled", Char),
    ("is_instead", Bool),
    ("ev_qual", Text),
    ("ev_action", Text),
];

const PG_TABLES: &[(&str, Type)] = &[
    ("schemaname", Name),
    ("tablename", Name),
    ("tableowner", Name),
    ("tablespace", Name),
    ("hasindexes", Bool),
    ("hasrules", Bool),
    ("hastriggers", Bool),
    ("rowsecurity", Bool),
];

const PG_INDEXES: &[(&str, Type)] =
    &[("schemaname", Name), ("tablename", Name), ("indexname", Name), ("tablespace", Name), ("indexdef", Text)];

pub const TABLES: &[VirtualTable] = &[
    VirtualTable::of("pg_class", 1259, CLASS, class),
    VirtualTable::of("pg_attribute", 1249, ATTRIBUTE, attribute),
    VirtualTable::of("pg_index", 2610, INDEX, index),
    VirtualTable::of("pg_constraint", 2606, CONSTRAINT, constraint),
    VirtualTable::of("pg_attrdef", 2604, ATTRDEF, attrdef),
    VirtualTable::of("pg_tables", 12_001, PG_TABLES, pg_tables),
    VirtualTable::of("pg_indexes", 12_002, PG_INDEXES, pg_indexes),
    VirtualTable::of("pg_inherits", 2611, super::family::INHERITS, super::family::inherits),
    VirtualTable::of("pg_partitioned_table", 3350, super::family::PARTITIONED, super::family::partitioned),
    VirtualTable::empty(
        "pg_policy",
        3256,
        &[
            ("oid", Oid),
            ("polname", Name),
            ("polrelid", Oid),
            ("polcmd", Char),
            ("polpermissive", Bool),
            ("polroles", Type::OidArray),
            ("polqual", Text),
            ("polwithcheck", Text),
        ],
    ),
    VirtualTable::empty(
        "pg_statistic_ext",
        3381,
        &[
            ("oid", Oid),
            ("stxrelid", Oid),
            ("stxname", Name),
            ("stxnamespace", Oid),
            ("stxowner", Oid),
            ("stxstattarget", Int4),
            ("stxkeys", Type::Int2Vector),
            ("stxkind", TextArray),
            ("stxexprs", Text),
        ],
    ),
    VirtualTable::empty(
        "pg_publication",
        6104,
        &[
            ("oid", Oid),
            ("pubname", Name),
            ("pubowner", Oid),
            ("puballtables", Bool),
            ("pubinsert", Bool),
            ("pubupdate", Bool),
            ("pubdelete", Bool),
            ("pubtruncate", Bool),
            ("pubviaroot", Bool),
        ],
    ),
    VirtualTable::empty(
        "pg_publication_rel",
        6106,
        &[("oid", Oid), ("prpubid", Oid), ("prrelid", Oid), ("prqual", Text), ("prattrs", Type::Int2Vector)],
    ),
    VirtualTable::empty("pg_publication_namespace", 6237, &[("oid", Oid), ("pnpubid", Oid), ("pnnspid", Oid)]),
    VirtualTable::empty(
        "pg_trigger",
        2620,
        &[
            ("oid", Oid),
            ("tgrelid", Oid),
            ("tgparentid", Oid),
            ("tgname", Name),
            ("tgfoid", Oid),
            ("tgtype", Int2),
            ("tgenabled", Char),
            ("tgisinternal", Bool),
            ("tgconstrrelid", Oid),
            ("tgconstrindid", Oid),
            ("tgconstraint", Oid),
            ("tgdeferrable", Bool),
            ("tginitdeferred", Bool),
            ("tgnargs", Int2),
        ],
    ),
    VirtualTable::of("pg_rewrite", 2618, REWRITE, rewrite),
    VirtualTable::of(
        "pg_sequence",
        2224,
        &[
            ("seqrelid", Oid),
            ("seqtypid", Oid),
            ("seqstart", Type::Int8),
            ("seqincrement", Type::Int8),
            ("seqmax", Type::Int8),
            ("seqmin", Type::Int8),
            ("seqcache", Type::Int8),
            ("seqcycle", Bool),
        ],
        sequence,
    ),
    VirtualTable::of(
        "pg_sequences",
        12_005,
        &[
            ("schemaname", Name),
            ("sequencename", Name),
            ("sequenceowner", Name),
            ("data_type", Type::Regtype),
            ("start_value", Type::Int8),
            ("min_value", Type::Int8),
            ("max_value", Type::Int8),
            ("increment_by", Type::Int8),
            ("cycle", Bool),
            ("cache_size", Type::Int8),
            ("last_value", Type::Int8),
        ],
        pg_sequences,
    ),
    VirtualTable::of(
        "pg_views",
        12_006,
        &[("schemaname", Name), ("viewname", Name), ("viewowner", Name), ("definition", Text)],
        pg_views,
    ),
    VirtualTable::of(
        "pg_depend",
        2608,
        &[
            ("classid", Oid),
            ("objid", Oid),
            ("objsubid", Int4),
            ("refclassid", Oid),
            ("refobjid", Oid),
            ("refobjsubid", Int4),
            ("deptype", Char),
        ],
        super::depend::depend,
    ),
    VirtualTable::empty("pg_foreign_table", 3118, &[("ftrelid", Oid), ("ftserver", Oid), ("ftoptions", TextArray)]),
];

fn relation(values: &[(&str, Datum)]) -> Row {
    let always = [
        ("relowner", int(OWNER)),
        ("relpersistence", text("p")),
        ("relispopulated", Datum::Bool(true)),
        ("relreplident", text("d")),
        ("reltuples", Datum::Float(-1.0)),
    ];
    row(CLASS, &[values, &always].concat())
}

fn class(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for view in catalog.views.values() {
        rows.push(relation(&[
            ("oid", int(view.oid)),
            ("relname", text(&view.name)),
            ("relnamespace", namespace(catalog, &view.schema)),
            ("relkind", text("v")),
            ("relnatts", count(view.columns.len())),
            ("relhasrules", Datum::Bool(true)),
            ("relreplident", text("n")),
            ("reloptions", view_options(view)),
        ]));
    }
    for sequence in catalog.sequences.values() {
        rows.push(relation(&[
            ("oid", int(sequence.oid)),
            ("relname", text(&sequence.name)),
            ("relnamespace", namespace(catalog, &sequence.schema)),
            ("relkind", text("S")),
            ("relnatts", int(3)),
            ("relreplident", text("n")),
        ]));
    }
    for table in catalog.tables.values() {
        let schema = || namespace(catalog, &table.schema);
        let is_parent = catalog.children.contains_key(&table.oid);
        let has_triggers = !table.foreign_keys.is_empty() || is_parent || table.has_late_keys();
        let has_index = !table.key.is_empty() || !table.indexes.is_empty();
        rows.push(relation(&[
            ("oid", int(table.oid)),
            ("relname", text(&table.name)),
            ("reltype", int(table.oid | crate::catalog::ROW_TYPES)),
            ("relnamespace", schema()),
            ("relchecks", count(table.checks.len())),
            ("relhastriggers", Datum::Bool(has_triggers)),
            ("relam", int(if table.partition_by.is_some() { 0 } else { 2 })),
            ("relkind", text(if table.partition_by.is_some() { "p" } else { "r" })),
            ("relnatts", count(table.columns.len())),
            ("relhasindex", Datum::Bool(has_index)),
            ("relhassubclass", Datum::Bool(!catalog.heirs(table.oid).is_empty())),
            ("relispartition", Datum::Bool(table.parents.iter().any(|parent| parent.bound.is_some()))),
            ("relpartbound", super::family::bound(catalog, table)),
            ("reloptions", options(table)),
            ("reltablespace", int(table.place.tablespace.unwrap_or_default())),
        ]));
        for (oid, name, columns, _, _) in indexes(table) {
            rows.push(relation(&[
                ("oid", int(oid)),
                ("relname", text(name)),
                ("relnamespace", schema()),
                ("relam", int(403)),
                ("relkind", text(if table.partition_by.is_some() { "I" } else { "i" })),
                ("relispartition", Datum::Bool(super::family::index_parent(catalog, table, oid).is_some())),
                ("relreplident", text("n")),
                ("relnatts", count(columns.len() + table.included(oid).len())),
            ]));
        }
    }
    for found in catalog.types.values() {
        let TypeBody::Composite(composite) = &found.note.body else { continue };
        rows.push(relation(&[
            ("oid", int(composite.relation_oid)),
            ("relname", text(&found.note.name)),
            ("reltype", int(found.note.oid)),
            ("relnamespace", namespace(catalog, &found.note.schema)),
            ("relkind", text("c")),
            ("relnatts", count(composite.attributes.len())),
            ("relreplident", text("n")),
        ]));
    }
    for table in all() {
        let namespace = if table.schema == "pg_catalog" { PG_CATALOG } else { super::INFORMATION_SCHEMA };
        rows.push(relation(&[
            ("oid", int(table.oid)),
            ("relname", text(table.name)),
            ("relnamespace", int(namespace)),
            ("relkind", text(if table.schema == "pg_catalog" { "r" } else { "v" })),
            ("relnatts", count(table.columns.len())),
        ]));
    }
    rows
}

/// The storage parameters of a table.
fn options(table: &TableDef) -> Datum {
    let options = crate::ddl::parameters(table);
    if options.is_empty() { Datum::Null } else { Datum::Array(options.into_iter().map(Datum::Text).collect()) }
}

fn view_options(view: &ViewDef) -> Datum {
    let options = view.options.iter().map(|(name, value)| Datum::Text(format!("{name}={value}")));
    if view.options.is_empty() { Datum::Null } else { Datum::Array(options.collect()) }
}

/// The name of the tablespace of a table.
fn tablespace(catalog: &Catalog, table: &TableDef) -> Datum {
    let is_it = |found: &crate::catalog::place::Tablespace| Some(found.oid) == table.place.tablespace;
    let found = catalog.tablespaces.iter().find(|(_, found)| is_it(found));
    found.map_or(Datum::Null, |(name, _)| text(name))
}

/// Number, name, columns, whether it is unique, and whether it is the key, of each index.
fn indexes(table: &TableDef) -> impl Iterator<Item = (u32, &str, &[usize], bool, bool)> {
    let key = (!table.key.is_empty()).then_some((table.key_oid, table.key_name.as_str(), &table.key[..], true, true));
    let others = table.indexes.iter();
    key.into_iter().chain(
        others
            .map(|index| (index.oid, index.name.as_str(), &index.columns[..], index.is_key(), index.is_late_primary())),
    )
}

pub fn collation(ty: Type) -> i64 {
    match ty {
        Type::Text | Type::Varchar | Type::Bpchar => 100,
        Type::Name => 950,
        _ => 0,
    }
}

fn attribute(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    let of = |relation: u32, name: &str, number: usize, ty: Type, rest: &[(&str, Datum)]| {
        let values = [
            ("attrelid", int(relation)),
            ("attname", text(name)),
            ("atttypid", int(ty.oid())),
            ("attstattarget", int(-1)),
            ("attlen", int(ty.len())),
            ("attnum", count(number)),
            ("attcacheoff", int(-1)),
            ("atttypmod", int(-1)),
            ("attstorage", text(super::storage(ty))),
            ("attalign", text("i")),
            ("attislocal", Datum::Bool(true)),
            ("attcollation", int(collation(ty))),
        ];
        // The later of two values would not count.
        row(ATTRIBUTE, &[rest, &values].concat())
    };
    for view in catalog.views.values() {
        for (number, (name, ty, modifier)) in (1..).zip(&view.columns) {
            rows.push(of(view.oid, name, number, *ty, &[("atttypmod", int(*modifier))]));
        }
    }
    for sequence in catalog.sequences.values() {
        let columns = [("last_value", Type::Int8), ("log_cnt", Type::Int8), ("is_called", Bool)];
        for (number, (name, ty)) in (1..).zip(columns) {
            rows.push(of(sequence.oid, name, number, ty, &[("attnotnull", Datum::Bool(true))]));
        }
    }
    for table in catalog.tables.values() {
        for (number, column) in (1..).zip(&table.columns) {
            let identity = match column.identity {
                None => "",
                Some(IdentityKind::Always) => "a",
                Some(IdentityKind::ByDefault) => "d",
            };
            let rest = [
                ("attidentity", text(identity)),
                ("attgenerated", text(if column.is_generated { "s" } else { "" })),
                ("atttypmod", int(if column.domain.is_some() { -1 } else { column.modifier })),
                ("atttypid", int(column.type_oid())),
                ("attnotnull", Datum::Bool(column.not_null)),
                ("attislocal", Datum::Bool(column.is_local)),
                (
                    "attinhcount",
                    super::family::count_above(catalog, table, |above| above.column(&column.name).is_some()),
                ),
                ("atthasdef", Datum::Bool(column.default.is_some() && column.identity.is_none())),
            ];
            rows.push(of(table.oid, &column.name, number, column.ty, &rest));
        }
        for (oid, _, columns, _, _) in indexes(table) {
            let columns: Vec<_> =
                columns.iter().chain(table.included(oid)).map(|column| &table.columns[*column]).collect();
            let names = crate::catalog::index_column_names(columns.iter().map(|column| column.name.as_str()));
            for (number, (column, name)) in (1..).zip(columns.iter().zip(&names)) {
                rows.push(of(oid, name, number, column.ty, &[("atttypmod", int(column.modifier))]));
            }
        }
    }
    for found in catalog.types.values() {
        let TypeBody::Composite(composite) = &found.note.body else { continue };
        for attribute in found.ty.ty.attributes().into_iter().flatten() {
            let number = usize::try_from(attribute.number).unwrap_or_default();
            let is_plain = attribute.domain == 0;
            let rest = [
                ("atttypmod", int(if is_plain { attribute.modifier } else { -1 })),
                ("atttypid", int(if is_plain { attribute.ty.oid() } else { attribute.domain })),
            ];
            rows.push(of(composite.relation_oid, &attribute.name, number, attribute.ty, &rest));
        }
    }
    for table in all() {
        for (number, (name, ty)) in (1..).zip(table.columns) {
            rows.push(of(table.oid, name, number, *ty, &[]));
        }
    }
    rows
}

fn index(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        for (oid, _, columns, is_unique, is_key) in indexes(table) {
            let zeros = || Datum::Array(columns.iter().map(|_| int(0)).collect());
            let shown = columns.iter().chain(table.included(oid));
            rows.push(row(
                INDEX,
                &[
                    ("indexrelid", int(oid)),
                    ("indrelid", int(table.oid)),
                    ("indnatts", count(shown.clone().count())),
                    ("indnkeyatts", count(columns.len())),
                    ("indisunique", Datum::Bool(is_unique)),
                    ("indisprimary", Datum::Bool(is_key)),
                    ("indimmediate", Datum::Bool(table.late(oid).is_none())),
                    ("indisvalid", Datum::Bool(true)),
                    ("indisready", Datum::Bool(true)),
                    ("indislive", Datum::Bool(true)),
                    ("indkey", Datum::Array(shown.map(|column| count(column + 1)).collect())),
                    ("indcollation", zeros()),
                    ("indclass", zeros()),
                    ("indoption", zeros()),
                ],
            ));
        }
    }
    rows
}

fn constraint(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        for (oid, name, columns, _, is_key) in indexes(table) {
            let late = table.late(oid);
            let is_constraint = is_key || table.indexes.iter().any(|index| index.oid == oid && index.is_constraint);
            if !is_constraint {
                continue;
            }
            rows.push(row(
                CONSTRAINT,
                &[
                    ("oid", int(oid)),
                    ("conname", text(name)),
                    ("connamespace", namespace(catalog, &table.schema)),
                    ("contype", text(if is_key { "p" } else { "u" })),
                    ("condeferrable", Datum::Bool(late.is_some())),
                    ("condeferred", Datum::Bool(late.is_some_and(|late| late.is_deferred))),
                    ("convalidated", Datum::Bool(true)),
                    ("conrelid", int(table.oid)),
                    ("conindid", int(oid)),
                    ("conislocal", Datum::Bool(super::family::index_parent(catalog, table, oid).is_none())),
                    ("coninhcount", int(u32::from(super::family::index_parent(catalog, table, oid).is_some()))),
                    ("conparentid", int(super::family::index_parent(catalog, table, oid).unwrap_or(0))),
                    ("connoinherit", Datum::Bool(table.partition_by.is_none())),
                    ("conkey", Datum::Array(columns.iter().map(|column| count(column + 1)).collect())),
                    ("confupdtype", text(" ")),
                    ("confdeltype", text(" ")),
                    ("confmatchtype", text(" ")),
                ],
            ));
        }
        checks_and_foreign_keys(catalog, table, &mut rows);
    }
    domain_checks(catalog, &mut rows);
    rows
}

/// The conditions of domains.
fn domain_checks(catalog: &Catalog, rows: &mut Vec<Row>) {
    for found in catalog.types.values() {
        let TypeBody::Domain(domain) = &found.note.body else { continue };
        for check in &domain.checks {
            let values = [
                ("oid", int(check.oid)),
                ("conname", text(&check.name)),
                ("connamespace", namespace(catalog, &found.note.schema)),
                ("contype", text("c")),
                ("convalidated", Datum::Bool(check.is_valid)),
                ("contypid", int(found.note.oid)),
                ("conislocal", Datum::Bool(true)),
                ("confupdtype", text(" ")),
                ("confdeltype", text(" ")),
                ("confmatchtype", text(" ")),
                ("conbin", Datum::Text(catalog.shown_text(&check.text))),
            ];
            rows.push(row(CONSTRAINT, &values));
        }
    }
}

fn checks_and_foreign_keys(catalog: &Catalog, table: &TableDef, rows: &mut Vec<Row>) {
    let head = |oid: u32, name: &str, kind: &str| {
        vec![
            ("oid", int(oid)),
            ("conname", text(name)),
            ("connamespace", namespace(catalog, &table.schema)),
            ("contype", text(kind)),
            ("convalidated", Datum::Bool(true)),
            ("conrelid", int(table.oid)),
            ("conislocal", Datum::Bool(true)),
        ]
    };
    let numbers = |columns: &[usize]| Datum::Array(columns.iter().map(|column| count(column + 1)).collect());
    for check in &table.checks {
        let mut used = Vec::new();
        check.expr.walk(&mut |part| {
            if let crate::plan::Expr::Column { depth: 0, index } = part
                && !used.contains(index)
            {
                used.push(*index);
            }
        });
        let mut values = head(check.oid, &check.name, "c");
        let has = |above: &TableDef| above.checks.iter().any(|own| own.name == check.name && !own.no_inherit);
        values.retain(|(name, _)| !matches!(*name, "conislocal" | "convalidated"));
        values.extend([
            ("conislocal", Datum::Bool(check.is_local)),
            ("connoinherit", Datum::Bool(check.no_inherit)),
            ("convalidated", Datum::Bool(check.is_valid)),
            ("coninhcount", super::family::count_above(catalog, table, has)),
        ]);
        let none = || text(" ");
        values.extend([("confupdtype", none()), ("confdeltype", none()), ("confmatchtype", none())]);
        values.extend([("conkey", numbers(&used)), ("conbin", Datum::Text(catalog.shown_text(&check.text)))]);
        rows.push(row(CONSTRAINT, &values));
    }
    for key in &table.foreign_keys {
        let Some(parent) = catalog.table_of(key.parent) else { continue };
        let columns = crate::run::constraint::parent_columns(parent, key).unwrap_or_default();
        let index = match parent.unique_over(&columns) {
            Some(None) => parent.key_oid,
            Some(Some(index)) => parent.indexes[index].oid,
            None => 0,
        };
        let letter = |action| match action {
            KeyAction::NoAction => "a",
            KeyAction::Restrict => "r",
            KeyAction::Cascade => "c",
            KeyAction::SetNull => "n",
            KeyAction::SetDefault => "d",
        };
        let above = super::family::foreign_parent(catalog, table, key);
        let mut values = head(key.oid, &key.name, "f");
        values.retain(|(name, _)| !matches!(*name, "convalidated" | "conislocal"));
        values.push(("conislocal", Datum::Bool(above.is_none())));
        values.push(("coninhcount", int(u32::from(above.is_some()))));
        values.push(("conparentid", int(above.unwrap_or(0))));
        values.push(("convalidated", Datum::Bool(key.is_valid)));
        values.extend([
            ("condeferrable", Datum::Bool(key.is_deferrable)),
            ("condeferred", Datum::Bool(key.is_deferred)),
            ("conindid", int(index)),
            ("confrelid", int(key.parent)),
            ("confupdtype", text(letter(key.on_update))),
            ("confdeltype", text(letter(key.on_delete))),
            ("confmatchtype", text(if key.is_full { "f" } else { "s" })),
            ("connoinherit", Datum::Bool(true)),
            ("conkey", numbers(&key.columns)),
            ("confkey", numbers(&columns)),
        ]);
        rows.push(row(CONSTRAINT, &values));
    }
}

fn sequence(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let of = |sequence: &std::sync::Arc<SequenceDef>| {
        vec![
            int(sequence.oid),
            int(sequence.ty.oid()),
            int(sequence.start),
            int(sequence.increment),
            int(sequence.maximum),
            int(sequence.minimum),
            int(sequence.cache),
            Datum::Bool(sequence.is_cycle),
        ]
    };
    catalog.sequences.values().map(of).collect()
}

fn pg_sequences(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let of = |sequence: &std::sync::Arc<SequenceDef>| {
        let oid = i64::from(sequence.oid);
        let is_called = session.sequence(SequenceCall::Called(oid)).is_ok_and(|called| called == 1);
        let value = session.sequence(SequenceCall::Value(oid)).ok().filter(|_| is_called);
        vec![
            text(&sequence.schema),
            text(&sequence.name),
            text(session.user()),
            int(sequence.ty.oid()),
            int(sequence.start),
            int(sequence.minimum),
            int(sequence.maximum),
            int(sequence.increment),
            Datum::Bool(sequence.is_cycle),
            int(sequence.cache),
            value.map_or(Datum::Null, Datum::Int),
        ]
    };
    catalog.sequences.values().map(of).collect()
}

fn pg_views(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let of = |view: &std::sync::Arc<ViewDef>| {
        let query = Datum::Text(format!(" {};", catalog.shown_view(view)));
        vec![text(&view.schema), text(&view.name), text(session.user()), query]
    };
    catalog.views.values().map(of).collect()
}

fn rewrite(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let of = |view: &std::sync::Arc<ViewDef>| {
        let values = [
            ("oid", int(view.oid)),
            ("rulename", text("_RETURN")),
            ("ev_class", int(view.oid)),
            ("ev_type", text("1")),
        ];
        let rest = [("ev_enabled", text("O")), ("is_instead", Datum::Bool(true))];
        row(REWRITE, &[&values[..], &rest].concat())
    };
    catalog.views.values().map(of).collect()
}

fn attrdef(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let of = |found: &super::depend::DefaultOf<'_>| {
        let values = [
            ("oid", int(found.oid)),
            ("adrelid", int(found.table.oid)),
            ("adnum", count(found.place + 1)),
            ("adbin", Datum::Text(catalog.shown_default(found.default))),
        ];
        row(ATTRDEF, &values)
    };
    super::depend::defaults(catalog).iter().map(of).collect()
}

fn pg_tables(catalog: &Catalog, session: &dyn Session) -> Vec<Row> {
    let of = |table: &std::sync::Arc<TableDef>| {
        row(
            PG_TABLES,
            &[
                ("schemaname", text(&table.schema)),
                ("tablename", text(&table.name)),
                ("tableowner", text(session.user())),
                ("tablespace", tablespace(catalog, table)),
                ("hasindexes", Datum::Bool(!table.key.is_empty() || !table.indexes.is_empty())),
            ],
        )
    };
    catalog.tables.values().map(of).collect()
}

fn pg_indexes(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables.values() {
        for (oid, name, ..) in indexes(table) {
            let definition = super::index_definition(catalog, oid.into(), 0).map_or(Datum::Null, Datum::Text);
            rows.push(row(
                PG_INDEXES,
                &[
                    ("schemaname", text(&table.schema)),
                    ("tablename", text(&table.name)),
                    ("indexname", text(name)),
                    ("tablespace", Datum::Null),
                    ("indexdef", definition),
                ],
            ));
        }
    }
    rows
}
