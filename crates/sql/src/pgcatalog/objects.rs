//! Tables about everything else: schemas, types, roles, databases, settings.

use lodestone_sql_types::enumeration::STEP;
use lodestone_sql_types::func::{self, Argument, Session};
use lodestone_sql_types::{Datum, TYPES, Type};

use super::{INFORMATION_SCHEMA, OWNER, PG_CATALOG, PUBLIC, VirtualTable, count, int, row, text};
use crate::catalog::Catalog;
use crate::catalog::types::{TypeBody, TypeDef};
use crate::run::Row;

use Type::{Bool, Char, Int2, Int4, Name, Oid, OidVector, Text, TextArray};

const NAMESPACE: &[(&str, Type)] = &[("oid", Oid), ("nspname", Name), ("nspowner", Oid), ("nspacl", TextArray)];

const TYPE: &[(&str, Type)] = &[
    ("oid", Oid),
    ("typname", Name),
    ("typnamespace", Oid),
    ("typowner", Oid),
    ("typlen", Int2),
    ("typbyval", Bool),
    ("typtype", Char),
    ("typcategory", Char),
    ("typispreferred", Bool),
    ("typisdefined", Bool),
    ("typdelim", Char),
    ("typrelid", Oid),
    ("typsubscript", Oid),
    ("typelem", Oid),
    ("typarray", Oid),
    ("typinput", Oid),
    ("typoutput", Oid),
    ("typreceive", Oid),
    ("typsend", Oid),
    ("typmodin", Oid),
    ("typmodout", Oid),
    ("typanalyze", Oid),
    ("typalign", Char),
    ("typstorage", Char),
    ("typnotnull", Bool),
    ("typbasetype", Oid),
    ("typtypmod", Int4),
    ("typndims", Int4),
    ("typcollation", Oid),
    ("typdefaultbin", Text),
    ("typdefault", Text),
    ("typacl", TextArray),
];

const PROC: &[(&str, Type)] = &[
    ("oid", Oid),
    ("proname", Name),
    ("pronamespace", Oid),
    ("proowner", Oid),
    ("prolang", Oid),
    ("prokind", Char),
    ("proisstrict", Bool),
    ("proretset", Bool),
    ("provolatile", Char),
    ("pronargs", Int2),
    ("prorettype", Oid),
    ("proargtypes", OidVector),
    ("prosrc", Text),
    ("proacl", TextArray),
];

const DATABASE: &[(&str, Type)] = &[
    ("oid", Oid),
    ("datname", Name),
    ("datdba", Oid),
    ("encoding", Int4),
    ("datlocprovider", Char),
    ("datistemplate", Bool),
    ("datallowconn", Bool),
    ("datconnlimit", Int4),
    ("dattablespace", Oid),
    ("datcollate", Text),
    ("datctype", Text),
    ("daticulocale", Text),
    ("datcollversion", Text),
    ("datacl", TextArray),
];

const ROLES: &[(&str, Type)] = &[
    ("oid", Oid),
    ("rolname", Name),
    ("rolsuper", Bool),
    ("rolinherit", Bool),
    ("rolcreaterole", Bool),
    ("rolcreatedb", Bool),
    ("rolcanlogin", Bool),
    ("rolreplication", Bool),
    ("rolbypassrls", Bool),
    ("rolconnlimit", Int4),
    ("rolpassword", Text),
    ("rolvaliduntil", Type::Timestamptz),
    ("rolconfig", TextArray),
];

const AM: &[(&str, Type)] = &[("oid", Oid), ("amname", Name), ("amhandler", Oid), ("amtype", Char)];

const COLLATION: &[(&str, Type)] = &[
    ("oid", Oid),
    ("collname", Name),
    ("collnamespace", Oid),
    ("collowner", Oid),
    ("collprovider", Char),
    ("collisdeterministic", Bool),
    ("collencoding", Int4),
    ("collcollate", Text),
    ("collctype", Text),
];

const LOCKS: &[(&str, Type)] = &[
    ("locktype", Text),
    ("database", Oid),
    ("relation", Oid),
    ("classid", Oid),
    ("objid", Oid),
    ("objsubid", Int2),
    ("virtualtransaction", Text),
    ("pid", Int4),
    ("mode", Text),
    ("granted", Bool),
    ("fastpath", Bool),
];

const ACTIVITY: &[(&str, Type)] = &[
    ("datid", Oid),
    ("datname", Name),
    ("pid", Int4),
    ("usesysid", Oid),
    ("usename", Name),
    ("application_name", Text),
    ("client_addr", Text),
    ("client_port", Int4),
    ("backend_start", Type::Timestamptz),
    ("xact_start", Type::Timestamptz),
    ("query_start", Type::Timestamptz),
    ("state_change", Type::Timestamptz),
    ("wait_event_type", Text),
    ("wait_event", Text),
    ("state", Text),
    ("query", Text),
    ("backend_type", Text),
];

const SETTINGS: &[(&str, Type)] = &[("name", Text), ("setting", Text), ("unit", Text), ("short_desc", Text)];

const DESCRIPTION: &[(&str, Type)] = &[("objoid", Oid), ("classoid", Oid), ("objsubid", Int4), ("description", Text)];

pub const TABLES: &[VirtualTable] = &[
    VirtualTable::of("pg_namespace", 2615, NAMESPACE, namespace),
    VirtualTable::of("pg_type", 1247, TYPE, types),
    VirtualTable::of("pg_proc", 1255, PROC, procs),
    VirtualTable::of("pg_database", 1262, DATABASE, database),
    VirtualTable::of("pg_locks", 12_073, LOCKS, |_, session| session.lock_rows()),
    VirtualTable::of("pg_stat_activity", 12_222, ACTIVITY, |_, session| session.activity_rows()),
    VirtualTable::of("pg_roles", 12_003, ROLES, roles),
    VirtualTable::of("pg_authid", 1260, ROLES, roles),
    VirtualTable::of("pg_am", 2601, AM, |_, _| {
        let of = |oid: i64, name: &str, kind: &str| {
            row(AM, &[("oid", int(oid)), ("amname", text(name)), ("amtype", text(kind))])
        };
        vec![of(2, "heap", "t"), of(403, "btree", "i")]
    }),
    VirtualTable::of("pg_collation", 3456, COLLATION, |_, _| {
        let of = |oid: i64, name: &str| {
            row(
                COLLATION,
                &[
                    ("oid", int(oid)),
                    ("collname", text(name)),
                    ("collnamespace", int(PG_CATALOG)),
                    ("collowner", int(OWNER)),
                    ("collprovider", text("c")),
                    ("collisdeterministic", Datum::Bool(true)),
                    ("collencoding", int(-1)),
                ],
            )
        };
        vec![of(100, "default"), of(950, "C"), of(951, "POSIX")]
    }),
    VirtualTable::of("pg_settings", 12_004, SETTINGS, |_, session| {
        let of = |name: &'static str| {
            let value = session.setting(name).map_or(Datum::Null, Datum::Text);
            row(SETTINGS, &[("name", text(name)), ("setting", value)])
        };
        crate::settings::names().map(of).collect()
    }),
    VirtualTable::of("pg_description", 2609, DESCRIPTION, |catalog, _| {
        let of = |((class, oid), column, comment): ((u32, u32), usize, String)| {
            vec![int(i64::from(oid)), int(i64::from(class)), count(column), Datum::Text(comment)]
        };
        catalog.described().into_iter().map(of).collect()
    }),
    VirtualTable::empty("pg_shdescription", 2396, &[("objoid", Oid), ("classoid", Oid), ("description", Text)]),
    VirtualTable::of(
        "pg_tablespace",
        1213,
        &[("oid", Oid), ("spcname", Name), ("spcowner", Oid), ("spcacl", TextArray), ("spcoptions", TextArray)],
        |catalog, _| {
            let of = |oid: i64, name: &str| vec![int(oid), text(name), int(OWNER), Datum::Null, Datum::Null];
            let own = catalog.tablespaces.iter().map(|(name, found)| of(found.oid.into(), name));
            [of(1663, "pg_default"), of(1664, "pg_global")].into_iter().chain(own).collect()
        },
    ),
    VirtualTable::of(
        "pg_language",
        2612,
        &[("oid", Oid), ("lanname", Name), ("lanowner", Oid), ("lanispl", Bool), ("lanpltrusted", Bool)],
        |_, _| {
            let of =
                |oid: i64, name: &str| vec![int(oid), text(name), int(OWNER), Datum::Bool(false), Datum::Bool(false)];
            vec![of(12, "internal"), of(13, "c"), of(14, "sql")]
        },
    ),
    VirtualTable::empty(
        "pg_auth_members",
        1261,
        &[("roleid", Oid), ("member", Oid), ("grantor", Oid), ("admin_option", Bool)],
    ),
    VirtualTable::empty(
        "pg_db_role_setting",
        2964,
        &[("setdatabase", Oid), ("setrole", Oid), ("setconfig", TextArray)],
    ),
    VirtualTable::of(
        "pg_enum",
        3501,
        &[("oid", Oid), ("enumtypid", Oid), ("enumsortorder", Type::Float4), ("enumlabel", Name)],
        labels,
    ),
    VirtualTable::empty(
        "pg_range",
        3541,
        &[("rngtypid", Oid), ("rngsubtype", Oid), ("rngmultitypid", Oid), ("rngcollation", Oid), ("rngsubopc", Oid)],
    ),
    VirtualTable::empty(
        "pg_extension",
        3079,
        &[
            ("oid", Oid),
            ("extname", Name),
            ("extowner", Oid),
            ("extnamespace", Oid),
            ("extrelocatable", Bool),
            ("extversion", Text),
        ],
    ),
    VirtualTable::empty(
        "pg_foreign_server",
        1417,
        &[("oid", Oid), ("srvname", Name), ("srvowner", Oid), ("srvfdw", Oid)],
    ),
    VirtualTable::empty(
        "pg_opclass",
        2616,
        &[
            ("oid", Oid),
            ("opcmethod", Oid),
            ("opcname", Name),
            ("opcnamespace", Oid),
            ("opcowner", Oid),
            ("opcfamily", Oid),
            ("opcintype", Oid),
            ("opcdefault", Bool),
            ("opckeytype", Oid),
        ],
    ),
    VirtualTable::empty(
        "pg_opfamily",
        2753,
        &[("oid", Oid), ("opfmethod", Oid), ("opfname", Name), ("opfnamespace", Oid), ("opfowner", Oid)],
    ),
    VirtualTable::empty(
        "pg_cast",
        2605,
        &[
            ("oid", Oid),
            ("castsource", Oid),
            ("casttarget", Oid),
            ("castfunc", Oid),
            ("castcontext", Char),
            ("castmethod", Char),
        ],
    ),
    VirtualTable::of("pg_operator", 2617, super::operator::OPERATOR, super::operator::operators),
    VirtualTable::empty(
        "pg_conversion",
        2607,
        &[
            ("oid", Oid),
            ("conname", Name),
            ("connamespace", Oid),
            ("conowner", Oid),
            ("conforencoding", Int4),
            ("contoencoding", Int4),
            ("condefault", Bool),
        ],
    ),
    VirtualTable::empty(
        "pg_foreign_data_wrapper",
        2328,
        &[("oid", Oid), ("fdwname", Name), ("fdwowner", Oid), ("fdwhandler", Oid), ("fdwvalidator", Oid)],
    ),
    VirtualTable::empty(
        "pg_ts_config",
        3602,
        &[("oid", Oid), ("cfgname", Name), ("cfgnamespace", Oid), ("cfgowner", Oid), ("cfgparser", Oid)],
    ),
    VirtualTable::empty(
        "pg_subscription",
        6100,
        &[("oid", Oid), ("subdbid", Oid), ("subname", Name), ("subowner", Oid), ("subenabled", Bool)],
    ),
    VirtualTable::empty(
        "pg_event_trigger",
        3466,
        &[("oid", Oid), ("evtname", Name), ("evtevent", Name), ("evtowner", Oid)],
    ),
];

fn namespace(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let of =
        |oid: i64, name: &str| row(NAMESPACE, &[("oid", int(oid)), ("nspname", text(name)), ("nspowner", int(OWNER))]);
    let rights = ["pg_database_owner=UC/pg_database_owner", "=U/pg_database_owner"].map(Datum::from).to_vec();
    let public = [
        ("oid", int(PUBLIC)),
        ("nspname", text("public")),
        ("nspowner", int(func::DATABASE_OWNER)),
        ("nspacl", Datum::Array(rights)),
    ];
    let public = row(NAMESPACE, &public);
    let fixed = [of(PG_CATALOG, "pg_catalog"), public, of(INFORMATION_SCHEMA, "information_schema")];
    let own = catalog.schemas.iter().map(|(name, oid)| of(i64::from(*oid), name));
    fixed.into_iter().chain(own).collect()
}

/// The labels of all enumerations. Their places are those that PostgreSQL counts from 1, with fractions between.
fn labels(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let mut rows = Vec::new();
    for found in catalog.types.values() {
        let TypeBody::Enum(labels) = &found.note.body else { continue };
        for label in labels {
            let (whole, rest) = (label.number.div_euclid(STEP), label.number.rem_euclid(STEP));
            let part = |value: i64| lodestone_sql_types::Numeric::from(value).to_f64();
            let place = part(whole) + part(rest) / part(STEP);
            rows.push(vec![int(label.oid), int(found.note.oid), Datum::Float(place), text(&label.name)]);
        }
    }
    rows
}

/// A type of the database, and that of its arrays.
fn user_types(catalog: &Catalog, found: &TypeDef) -> Vec<Row> {
    let note = &found.note;
    let ty = found.ty.ty;
    let head = |oid: u32, name: String| {
        vec![
            ("oid", int(oid)),
            ("typname", Datum::Text(name)),
            ("typnamespace", super::namespace(catalog, &note.schema)),
            ("typowner", int(OWNER)),
            ("typisdefined", Datum::Bool(true)),
            ("typdelim", text(",")),
        ]
    };
    let mut own = head(note.oid, note.name.clone());
    own.extend([("typarray", int(note.array_oid)), ("typlen", int(ty.len()))]);
    own.push(("typstorage", text(super::storage(ty))));
    own.push(("typbyval", Datum::Bool((1..=8).contains(&ty.len()))));
    match &note.body {
        TypeBody::Enum(_) => {
            own.extend([("typtype", text("e")), ("typcategory", text("E")), ("typtypmod", int(-1))]);
        }
        TypeBody::Composite(composite) => {
            own.extend([
                ("typtype", text("c")),
                ("typcategory", text("C")),
                ("typtypmod", int(-1)),
                ("typrelid", int(composite.relation_oid)),
                ("typinput", int(2290)),
                ("typoutput", int(2291)),
                ("typreceive", int(2402)),
                ("typsend", int(2403)),
            ]);
        }
        TypeBody::Domain(domain) => {
            let shown_default = domain.default.as_deref();
            let shown_default = shown_default.map_or(Datum::Null, |default| Datum::Text(catalog.shown_text(default)));
            own.extend([
                ("typtype", text("d")),
                ("typcategory", Datum::Text(ty.info().category.to_string())),
                ("typbasetype", int(domain.base)),
                ("typtypmod", int(domain.modifier)),
                ("typnotnull", Datum::Bool(domain.not_null)),
                ("typcollation", int(super::tables::collation(ty))),
                ("typdefault", shown_default.clone()),
                ("typdefaultbin", shown_default),
            ]);
        }
    }
    let mut array = head(note.array_oid, format!("_{}", note.name));
    array.extend(array_of(note.oid));
    vec![row(TYPE, &own), row(TYPE, &array)]
}

/// The columns of the array of the type with this number.
fn array_of(element: u32) -> [(&'static str, Datum); 10] {
    [
        ("typstorage", text("x")),
        ("typtype", text("b")),
        ("typcategory", text("A")),
        ("typelem", int(element)),
        ("typlen", int(-1)),
        ("typtypmod", int(-1)),
        ("typinput", int(750)),
        ("typoutput", int(751)),
        ("typreceive", int(2400)),
        ("typsend", int(2401)),
    ]
}

/// The type of the rows of a table, and that of its arrays.
fn row_types(catalog: &Catalog, table: &crate::catalog::TableDef) -> Vec<Row> {
    let (own, of_arrays) = (table.oid | crate::catalog::ROW_TYPES, table.oid | crate::catalog::ROW_ARRAYS);
    let head = |oid: u32, name: String| {
        vec![
            ("oid", int(oid)),
            ("typname", Datum::Text(name)),
            ("typnamespace", super::namespace(catalog, &table.schema)),
            ("typowner", int(OWNER)),
            ("typisdefined", Datum::Bool(true)),
            ("typdelim", text(",")),
        ]
    };
    let mut rows = head(own, table.name.clone());
    rows.extend([
        ("typstorage", text("x")),
        ("typtype", text("c")),
        ("typcategory", text("C")),
        ("typlen", int(-1)),
        ("typtypmod", int(-1)),
        ("typrelid", int(table.oid)),
        ("typarray", int(of_arrays)),
        ("typinput", int(2290)),
        ("typoutput", int(2291)),
        ("typreceive", int(2402)),
        ("typsend", int(2403)),
    ]);
    let mut arrays = head(of_arrays, format!("_{}", table.name));
    arrays.extend(array_of(own));
    vec![row(TYPE, &rows), row(TYPE, &arrays)]
}

/// Types that arguments of functions have and no column has: name, number, length.
const PSEUDO_TYPES: [(&str, i64, i64); 9] = [
    ("cstring", 2275, -2),
    ("any", 2276, 4),
    ("anyarray", 2277, -1),
    ("trigger", 2279, 4),
    ("internal", 2281, 8),
    ("anyelement", 2283, 4),
    ("anynonarray", 2776, 4),
    ("anycompatible", 5077, 4),
    ("anycompatiblearray", 5078, -1),
];

fn pseudo_type((name, oid, length): &(&str, i64, i64)) -> Row {
    row(
        TYPE,
        &[
            ("oid", int(*oid)),
            ("typname", text(name)),
            ("typnamespace", int(PG_CATALOG)),
            ("typowner", int(OWNER)),
            ("typlen", int(*length)),
            ("typbyval", Datum::Bool(*length > 0)),
            ("typtype", text("p")),
            ("typcategory", text("P")),
            ("typisdefined", Datum::Bool(true)),
            ("typdelim", text(",")),
            ("typtypmod", int(-1)),
        ],
    )
}

fn types(catalog: &Catalog, _: &dyn Session) -> Vec<Row> {
    let of = |info: &lodestone_sql_types::TypeInfo| {
        let other = |ty: Option<Type>| int(ty.map_or(0, Type::oid));
        let is_pseudo = matches!(info.ty, Type::Void | Type::Record | Type::Unknown);
        row(
            TYPE,
            &[
                ("oid", int(info.oid)),
                ("typname", text(info.name)),
                ("typnamespace", int(PG_CATALOG)),
                ("typowner", int(OWNER)),
                ("typlen", int(info.len)),
                ("typbyval", Datum::Bool((1..=8).contains(&info.len))),
                ("typtype", text(if is_pseudo { "p" } else { "b" })),
                ("typcategory", Datum::Text(info.category.to_string())),
                ("typisdefined", Datum::Bool(true)),
                ("typdelim", text(",")),
                ("typelem", other(info.element)),
                ("typarray", other(info.array)),
                ("typinput", int(if info.element.is_some() && info.len < 0 { 750 } else { 0 })),
                ("typoutput", int(if info.element.is_some() && info.len < 0 { 751 } else { 0 })),
                ("typreceive", int(if info.element.is_some() && info.len < 0 { 2400 } else { 0 })),
                ("typsend", int(if info.element.is_some() && info.len < 0 { 2401 } else { 0 })),
                ("typtypmod", int(-1)),
                ("typstorage", text(super::storage(info.ty))),
                ("typcollation", int(super::tables::collation(info.ty))),
            ],
        )
    };
    let users = catalog.types.values().flat_map(|found| user_types(catalog, found));
    let tables = catalog.tables.values().flat_map(|table| row_types(catalog, table));
    TYPES.iter().map(of).chain(PSEUDO_TYPES.iter().map(pseudo_type)).chain(users).chain(tables).collect()
}

fn procs(_: &Catalog, _: &dyn Session) -> Vec<Row> {
    let of = |(number, function): (i64, &func::Function)| {
        let oid = |argument: &Argument| match argument {
            Argument::Of(ty) => int(ty.oid()),
            Argument::Any => int(2283),
            Argument::AnyArray => int(2277),
        };
        row(
            PROC,
            &[
                // The numbers of functions are no part of what clients keep.
                ("oid", int(func::FIRST_FUNCTION + number)),
                ("proname", text(function.name)),
                ("pronamespace", int(PG_CATALOG)),
                ("proowner", int(OWNER)),
                ("prolang", int(12)),
                ("prokind", text("f")),
                ("proisstrict", Datum::Bool(function.is_strict)),
                ("provolatile", text(if function.is_volatile { "v" } else { "i" })),
                ("pronargs", count(function.arguments.len())),
                ("prorettype", int(function.result.oid())),
                ("proargtypes", Datum::Array(function.arguments.iter().map(oid).collect())),
                ("prosrc", text(function.name)),
            ],
        )
    };
    let of_types = super::TYPE_FUNCTIONS.iter().map(|(name, number)| {
        let result = match *name {
            "array_out" => 2275,
            "array_send" => 17,
            _ => 2277,
        };
        let values = [
            ("oid", int(*number)),
            ("proname", text(name)),
            ("pronamespace", int(PG_CATALOG)),
            ("prorettype", int(result)),
        ];
        row(PROC, &[&values[..], &[("proowner", int(OWNER)), ("prolang", int(12)), ("prokind", text("f"))]].concat())
    });
    let named = (0..).zip(func::all()).filter(|(_, function)| !GRAMMAR.contains(&function.name));
    named.map(of).chain(of_types).collect()
}

/// Functions that are words of the grammar, and have no names that a call could use.
const GRAMMAR: &[&str] =
    &["current_catalog", "current_date", "current_role", "current_timestamp", "localtime", "localtimestamp", "user"];

fn database(_: &Catalog, session: &dyn Session) -> Vec<Row> {
    vec![row(
        DATABASE,
        &[
            ("oid", int(func::DATABASE_NUMBER)),
            ("datname", text(session.database())),
            ("datdba", int(OWNER)),
            ("encoding", int(6)),
            ("datlocprovider", text("c")),
            ("datallowconn", Datum::Bool(true)),
            ("datconnlimit", int(-1)),
            ("datcollate", text("C")),
            ("datctype", text("C")),
        ],
    )]
}

/// Roles of the system, which own objects and whose rights every role has: name, number.
const ROLES_OF_SYSTEM: [(&str, i64); 12] = [
    ("pg_database_owner", func::DATABASE_OWNER),
    ("pg_read_all_data", 6181),
    ("pg_write_all_data", 6182),
    ("pg_monitor", 3373),
    ("pg_read_all_settings", 3374),
    ("pg_read_all_stats", 3375),
    ("pg_stat_scan_tables", 3377),
    ("pg_read_server_files", 4569),
    ("pg_write_server_files", 4570),
    ("pg_execute_server_program", 4571),
    ("pg_signal_backend", 4200),
    ("pg_checkpoint", 4544),
];

/// Whether a role is there in every database.
pub fn is_role_of_system(name: &str) -> bool {
    ROLES_OF_SYSTEM.iter().any(|(role, _)| *role == name)
}

fn roles(_: &Catalog, session: &dyn Session) -> Vec<Row> {
    let of_system = |(name, oid): &(&str, i64)| {
        let inherits = Datum::Bool(true);
        row(ROLES, &[("oid", int(*oid)), ("rolname", text(name)), ("rolinherit", inherits), ("rolconnlimit", int(-1))])
    };
    let own = row(
        ROLES,
        &[
            ("oid", int(OWNER)),
            ("rolname", text(session.user())),
            ("rolsuper", Datum::Bool(true)),
            ("rolinherit", Datum::Bool(true)),
            ("rolcreaterole", Datum::Bool(true)),
            ("rolcreatedb", Datum::Bool(true)),
            ("rolcanlogin", Datum::Bool(true)),
            ("rolbypassrls", Datum::Bool(true)),
            ("rolconnlimit", int(-1)),
        ],
    );
    std::iter::once(own).chain(ROLES_OF_SYSTEM.iter().map(of_system)).collect()
}
