//! Functions about the catalog: what the clients' introspection asks.

use super::{Argument, BOOL, Function, INT2, INT4, NAME, OID, Session, TEXT, int, of, text};
use crate::datum::Datum;
use crate::error::Result;
use crate::types::Type;

const REGCLASS: Argument = Argument::Of(Type::Regclass);

fn none(_: &dyn Session, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Null)
}

fn yes(_: &dyn Session, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(true))
}

fn maybe(found: Option<String>) -> Result<Datum> {
    Ok(found.map_or(Datum::Null, Datum::Text))
}

fn size(session: &dyn Session, arguments: &[Datum]) -> Result<Datum> {
    Ok(session.relation_bytes(int(arguments, 0)).map_or(Datum::Null, Datum::Int))
}

pub const FUNCTIONS: &[Function] = &[
    of("format_type", &[OID, INT4], Type::Text, |_, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        let modifier = i32::try_from(a[1].as_int().unwrap_or(-1)).unwrap_or(-1);
        let ty = u32::try_from(int(a, 0)).ok().and_then(Type::of_oid);
        Ok(Datum::Text(match ty {
            Some(Type::Bpchar) if a[1].is_null() => "character".into(),
            Some(ty) => ty.with_modifier(modifier),
            None => "???".into(),
        }))
    })
    .lax(),
    of("pg_table_is_visible", &[OID], Type::Bool, |s, a| Ok(Datum::Bool(s.is_visible(int(a, 0))))),
    of("pg_type_is_visible", &[OID], Type::Bool, yes),
    of("pg_function_is_visible", &[OID], Type::Bool, yes),
    of("pg_get_userbyid", &[OID], Type::Name, |s, _| Ok(Datum::from(s.user()))),
    of("pg_get_expr", &[TEXT, OID], Type::Text, |_, a| Ok(a[0].clone())),
    of("pg_get_expr", &[TEXT, OID, BOOL], Type::Text, |_, a| Ok(a[0].clone())),
    of("pg_get_indexdef", &[OID], Type::Text, |s, a| maybe(s.index_definition(int(a, 0), 0))),
    of("pg_get_indexdef", &[OID, INT4, BOOL], Type::Text, |s, a| maybe(s.index_definition(int(a, 0), int(a, 1)))),
    of("pg_get_constraintdef", &[OID], Type::Text, |s, a| maybe(s.constraint_definition(int(a, 0)))),
    of("pg_get_constraintdef", &[OID, BOOL], Type::Text, |s, a| maybe(s.constraint_definition(int(a, 0)))),
    of("pg_get_statisticsobjdef_columns", &[OID], Type::Text, none),
    of("pg_get_viewdef", &[OID], Type::Text, |s, a| maybe(s.view_definition(int(a, 0)))),
    of("pg_get_viewdef", &[OID, BOOL], Type::Text, |s, a| maybe(s.view_definition(int(a, 0)))),
    of("obj_description", &[OID, NAME], Type::Text, none),
    of("obj_description", &[OID], Type::Text, none),
    of("shobj_description", &[OID, NAME], Type::Text, none),
    of("col_description", &[OID, INT4], Type::Text, none),
    of("pg_relation_is_publishable", &[REGCLASS], Type::Bool, |_, _| Ok(Datum::Bool(false))),
    of("pg_table_size", &[REGCLASS], Type::Int8, size),
    of("pg_total_relation_size", &[REGCLASS], Type::Int8, size),
    of("pg_relation_size", &[REGCLASS], Type::Int8, size),
    of("pg_get_serial_sequence", &[TEXT, TEXT], Type::Text, |s, a| {
        maybe(s.serial_sequence(text(a, 0), text(a, 1))?)
    }),
    of("pg_column_is_updatable", &[REGCLASS, INT2, BOOL], Type::Bool, yes),
];
