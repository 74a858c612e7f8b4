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

/// The number of the role that every owner of the database has.
pub const DATABASE_OWNER: i64 = 6171;
/// The number of the one database.
pub const DATABASE_NUMBER: u32 = 5;
/// The tables of `pg_catalog` with the objects that can have comments, and their numbers.
const CLASSES: [(&str, i64); 4] =
    [("pg_class", 1259), ("pg_type", 1247), ("pg_constraint", 2606), ("pg_namespace", 2615)];

/// The number of the first function in `pg_proc`.
pub const FIRST_FUNCTION: i64 = 10_000;

/// The function with this number.
fn function(oid: i64) -> Option<&'static Function> {
    usize::try_from(oid - FIRST_FUNCTION).ok().and_then(|number| super::all().nth(number))
}

/// The types of the arguments of a function.
fn arguments(function: &'static Function) -> String {
    let name = |argument: &Argument| match argument {
        Argument::Of(ty) => ty.to_string(),
        Argument::Any => "\"any\"".into(),
        Argument::AnyArray => "anyarray".into(),
    };
    let mut names: Vec<String> = function.arguments.iter().map(name).collect();
    if function.is_variadic {
        names.push("VARIADIC \"any\"".into());
    }
    names.join(", ")
}

pub const FUNCTIONS: &[Function] = &[
    of("format_type", &[OID, INT4], Type::Text, |s, a| {
        if a[0].is_null() {
            return Ok(Datum::Null);
        }
        let modifier = i32::try_from(a[1].as_int().unwrap_or(-1)).unwrap_or(-1);
        // The name of a type of the database depends on the search path.
        let own = s.type_text(int(a, 0));
        let ty = u32::try_from(int(a, 0)).ok().filter(|_| own.is_none()).and_then(Type::of_oid);
        Ok(Datum::Text(match ty {
            Some(Type::Bpchar) if a[1].is_null() => "character".into(),
            Some(ty) => ty.with_modifier(modifier),
            None => own.unwrap_or_else(|| "???".into()),
        }))
    })
    .lax(),
    of("pg_table_is_visible", &[OID], Type::Bool, |s, a| Ok(Datum::Bool(s.is_visible(int(a, 0))))),
    of("pg_type_is_visible", &[OID], Type::Bool, yes),
    of("pg_function_is_visible", &[OID], Type::Bool, yes),
    of("pg_get_userbyid", &[OID], Type::Name, |s, a| {
        Ok(Datum::from(if int(a, 0) == DATABASE_OWNER { "pg_database_owner" } else { s.user() }))
    }),
    of("pg_get_expr", &[TEXT, OID], Type::Text, |_, a| Ok(a[0].clone())),
    of("pg_get_expr", &[TEXT, OID, BOOL], Type::Text, |_, a| Ok(a[0].clone())),
    of("pg_get_indexdef", &[OID], Type::Text, |s, a| maybe(s.index_definition(int(a, 0), 0))),
    of("pg_get_indexdef", &[OID, INT4, BOOL], Type::Text, |s, a| maybe(s.index_definition(int(a, 0), int(a, 1)))),
    of("pg_get_constraintdef", &[OID], Type::Text, |s, a| maybe(s.constraint_definition(int(a, 0), false))),
    of("pg_get_constraintdef", &[OID, BOOL], Type::Text, |s, a| {
        maybe(s.constraint_definition(int(a, 0), a[1] == Datum::Bool(true)))
    }),
    of("pg_get_statisticsobjdef_columns", &[OID], Type::Text, none),
    of("pg_get_viewdef", &[OID], Type::Text, |s, a| maybe(s.view_definition(int(a, 0)))),
    of("pg_get_viewdef", &[OID, BOOL], Type::Text, |s, a| maybe(s.view_definition(int(a, 0)))),
    of("pg_get_ruledef", &[OID], Type::Text, none),
    of("pg_get_ruledef", &[OID, BOOL], Type::Text, none),
    of("pg_get_triggerdef", &[OID], Type::Text, none),
    of("pg_get_triggerdef", &[OID, BOOL], Type::Text, none),
    of("pg_get_functiondef", &[OID], Type::Text, none),
    of("pg_get_function_result", &[OID], Type::Text, |_, a| {
        maybe(function(int(a, 0)).map(|function| function.result.to_string()))
    }),
    of("pg_get_function_arguments", &[OID], Type::Text, |_, a| maybe(function(int(a, 0)).map(arguments))),
    of("pg_get_function_identity_arguments", &[OID], Type::Text, |_, a| maybe(function(int(a, 0)).map(arguments))),
    of("pg_tablespace_location", &[OID], Type::Text, |s, a| {
        Ok(Datum::Text(s.tablespace_location(int(a, 0)).unwrap_or_default()))
    }),
    of("getdatabaseencoding", &[], Type::Name, |_, _| Ok(Datum::from("UTF8"))),
    of("pg_statistics_obj_is_visible", &[OID], Type::Bool, yes),
    of("pg_operator_is_visible", &[OID], Type::Bool, yes),
    of("pg_conversion_is_visible", &[OID], Type::Bool, yes),
    of("pg_collation_is_visible", &[OID], Type::Bool, yes),
    of("pg_opclass_is_visible", &[OID], Type::Bool, yes),
    of("pg_opfamily_is_visible", &[OID], Type::Bool, yes),
    of("pg_ts_config_is_visible", &[OID], Type::Bool, yes),
    of("array_remove", &[Argument::Of(Type::TextArray), TEXT], Type::TextArray, |_, a| match &a[0] {
        Datum::Array(values) => {
            Ok(Datum::Array(values.iter().filter(|value| value.order(&a[1]).is_ne()).cloned().collect()))
        }
        _ => Ok(Datum::Null),
    })
    .lax(),
    of("obj_description", &[OID, NAME], Type::Text, |s, a| {
        let class = CLASSES.iter().find(|(name, _)| *name == text(a, 1));
        maybe(class.and_then(|(_, class)| s.comment(Some(*class), int(a, 0), 0)))
    }),
    of("obj_description", &[OID], Type::Text, |s, a| maybe(s.comment(None, int(a, 0), 0))),
    of("shobj_description", &[OID, NAME], Type::Text, none),
    of("col_description", &[OID, INT4], Type::Text, |s, a| match int(a, 1) {
        0 => Ok(Datum::Null),
        column => maybe(s.comment(Some(1259), int(a, 0), column)),
    }),
    of("pg_relation_is_publishable", &[REGCLASS], Type::Bool, |_, _| Ok(Datum::Bool(false))),
    of("pg_table_size", &[REGCLASS], Type::Int8, size),
    of("pg_total_relation_size", &[REGCLASS], Type::Int8, size),
    of("pg_relation_size", &[REGCLASS], Type::Int8, size),
    of("pg_get_serial_sequence", &[TEXT, TEXT], Type::Text, |s, a| maybe(s.serial_sequence(text(a, 0), text(a, 1))?)),
    of("pg_column_is_updatable", &[REGCLASS, INT2, BOOL], Type::Bool, |s, a| {
        let (events, columns) = s.updatable(int(a, 0));
        let place = usize::try_from(int(a, 1)).ok().and_then(|number| number.checked_sub(1));
        let takes = |place: usize| columns.is_none_or(|columns| columns.get(place) == Some(&true));
        Ok(Datum::Bool(events & 20 == 20 && place.is_some_and(takes)))
    }),
];
