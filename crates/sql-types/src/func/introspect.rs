//! Functions that clients ask about the server and its objects, beside those of `catalog.rs`.

use super::{Argument, BOOL, Function, INT2, INT4, NAME, OID, TEXT, int, of, text};
use crate::datum::Datum;
use crate::error::Result;
use crate::types::Type;

const REGCLASS: Argument = Argument::Of(Type::Regclass);

fn none(_: &dyn super::Session, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Null)
}

fn yes(_: &dyn super::Session, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(true))
}

fn no(_: &dyn super::Session, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(false))
}

/// The number of the type of this name, or of its alias in the standard.
fn type_number(name: &str) -> Datum {
    let name = name.trim().to_ascii_lowercase();
    let plain = name.strip_prefix("pg_catalog.").unwrap_or(&name).trim_matches('"');
    let (plain, is_array) = plain.strip_suffix("[]").map_or((plain, false), |element| (element, true));
    let found = Type::named(match plain {
        "int" => "int4",
        "decimal" => "numeric",
        "float" => "float8",
        "char" => "bpchar",
        other => other,
    });
    let found = if is_array { found.and_then(|ty| ty.info().array) } else { found };
    found.map_or(Datum::Null, |ty| Datum::Int(ty.oid().into()))
}

/// A field of a record.
fn field(arguments: &[Datum], number: usize) -> Datum {
    match arguments.first() {
        Some(Datum::Record(values)) => values.get(number).cloned().unwrap_or_default(),
        _ => Datum::Null,
    }
}

pub const FUNCTIONS: &[Function] = &[
    // For `information_schema._pg_expandarray`: each element with its number, and the fields of such a record.
    of("lodestone_expand_array", &[Argument::Any], Type::Record, |_, a| match &a[0] {
        Datum::Array(values) => {
            let pair = |(number, value): (i64, &Datum)| Datum::Record(vec![value.clone(), Datum::Int(number)]);
            Ok(Datum::Array((1..).zip(values).map(pair).collect()))
        }
        _ => Ok(Datum::Null),
    }),
    of("lodestone_relation_name", &[REGCLASS], Type::Text, |s, a| {
        Ok(Datum::Text(s.relation_text(int(a, 0)).unwrap_or_else(|| crate::text::encode(Type::Regclass, &a[0]))))
    })
    .volatile(),
    of("lodestone_row_is_full", &[Argument::Any], Type::Bool, |_, a| {
        Ok(Datum::Bool(match &a[0] {
            Datum::Record(values) => !values.iter().any(Datum::is_null),
            value => !value.is_null(),
        }))
    })
    .lax(),
    of("lodestone_record_x", &[Argument::Any], Type::Int2, |_, a| Ok(field(a, 0))),
    of("lodestone_record_n", &[Argument::Any], Type::Int4, |_, a| Ok(field(a, 1))),
    of("pg_advisory_unlock_all", &[], Type::Void, super::advisory::unlock_all).volatile(),
    of("to_regclass", &[TEXT], Type::Regclass, |s, a| {
        Ok(s.relation_number(text(a, 0)).map_or(Datum::Null, Datum::Int))
    })
    .volatile(),
    of("to_regtype", &[TEXT], Type::Regtype, |_, a| Ok(type_number(text(a, 0)))),
    of("to_regproc", &[TEXT], Type::Regproc, |_, a| {
        let place = super::all().position(|function| function.name == text(a, 0));
        let number = place.and_then(|place| i64::try_from(place).ok());
        Ok(number.map_or(Datum::Null, |number| Datum::Int(super::FIRST_FUNCTION + number)))
    }),
    // Every role may do everything.
    of("has_table_privilege", &[TEXT, TEXT], Type::Bool, yes),
    of("has_table_privilege", &[NAME, OID, TEXT], Type::Bool, yes),
    of("has_table_privilege", &[NAME, TEXT, TEXT], Type::Bool, yes),
    of("has_schema_privilege", &[TEXT, TEXT], Type::Bool, yes),
    of("has_schema_privilege", &[NAME, OID, TEXT], Type::Bool, yes),
    of("has_schema_privilege", &[NAME, TEXT, TEXT], Type::Bool, yes),
    of("has_database_privilege", &[TEXT], Type::Bool, yes),
    of("has_database_privilege", &[OID, TEXT], Type::Bool, yes),
    of("has_column_privilege", &[OID, INT2, TEXT], Type::Bool, yes),
    of("has_column_privilege", &[TEXT, TEXT, TEXT], Type::Bool, yes),
    of("has_any_column_privilege", &[OID, TEXT], Type::Bool, yes),
    of("has_sequence_privilege", &[OID, TEXT], Type::Bool, yes),
    of("has_sequence_privilege", &[TEXT, TEXT], Type::Bool, yes),
    of("has_function_privilege", &[OID, TEXT], Type::Bool, yes),
    of("has_type_privilege", &[OID, TEXT], Type::Bool, yes),
    of("has_tablespace_privilege", &[OID, TEXT], Type::Bool, yes),
    of("pg_has_role", &[OID, TEXT], Type::Bool, yes),
    of("pg_has_role", &[NAME, TEXT], Type::Bool, yes),
    of("pg_has_role", &[NAME, OID, TEXT], Type::Bool, yes),
    of("pg_database_size", &[NAME], Type::Int8, none),
    of("pg_database_size", &[OID], Type::Int8, none),
    of("pg_tablespace_size", &[OID], Type::Int8, none),
    of("pg_indexes_size", &[REGCLASS], Type::Int8, |s, a| {
        Ok(s.relation_bytes(int(a, 0)).map_or(Datum::Null, Datum::Int))
    }),
    of("pg_relation_is_updatable", &[REGCLASS, BOOL], Type::Int4, |s, a| Ok(Datum::Int(s.updatable(int(a, 0)).0))),
    of("pg_my_temp_schema", &[], Type::Oid, |_, _| Ok(Datum::Int(0))),
    of("pg_is_other_temp_schema", &[OID], Type::Bool, no),
    of("pg_get_partkeydef", &[OID], Type::Text, |s, a| Ok(s.partition_key(int(a, 0)).map_or(Datum::Null, Datum::Text))),
    of("lodestone_partition_ancestors", &[REGCLASS], Type::OidArray, |s, a| {
        Ok(Datum::Array(s.partition_ancestors(int(a, 0)).into_iter().map(Datum::Int).collect()))
    }),
    of("pg_partition_root", &[REGCLASS], Type::Regclass, |s, a| {
        Ok(s.partition_ancestors(int(a, 0)).last().map_or(Datum::Null, |oid| Datum::Int(*oid)))
    }),
    of("pg_get_partition_constraintdef", &[OID], Type::Text, none),
    of("pg_get_function_sqlbody", &[OID], Type::Text, none),
    of("pg_get_function_arg_default", &[OID, INT4], Type::Text, none),
    of("pg_get_statisticsobjdef", &[OID], Type::Text, none),
    of("pg_get_publication_tables", &[TEXT], Type::Text, none),
    of("pg_get_replica_identity_index", &[REGCLASS], Type::Regclass, none),
    of("pg_relation_filenode", &[REGCLASS], Type::Oid, |_, a| Ok(a[0].clone())),
    of("pg_filenode_relation", &[OID, OID], Type::Regclass, none),
    of("pg_index_column_has_property", &[REGCLASS, INT4, TEXT], Type::Bool, |_, a| {
        let name = text(a, 2);
        Ok(Datum::Bool(matches!(
            name,
            "asc" | "nulls_last" | "orderable" | "search_array" | "search_nulls" | "returnable"
        )))
    }),
    of("pg_indexam_has_property", &[OID, TEXT], Type::Bool, |_, a| {
        Ok(Datum::Bool(matches!(text(a, 1), "can_order" | "can_unique" | "can_multi_col")))
    }),
    of("pg_ts_parser_is_visible", &[OID], Type::Bool, yes),
    of("pg_ts_dict_is_visible", &[OID], Type::Bool, yes),
    of("pg_ts_template_is_visible", &[OID], Type::Bool, yes),
    of("pg_char_to_encoding", &[NAME], Type::Int4, |_, a| {
        let letters: String = text(a, 0).chars().filter(char::is_ascii_alphanumeric).collect();
        Ok(Datum::Int(if letters.eq_ignore_ascii_case("utf8") { 6 } else { -1 }))
    }),
    of("pg_client_encoding", &[], Type::Name, |_, _| Ok(Datum::from("UTF8"))),
    of("pg_postmaster_start_time", &[], Type::Timestamptz, |_, _| Ok(Datum::Time(crate::time::now()))).volatile(),
    of("pg_conf_load_time", &[], Type::Timestamptz, |_, _| Ok(Datum::Time(crate::time::now()))).volatile(),
    of("inet_server_port", &[], Type::Int4, none).lax(),
    of("inet_client_port", &[], Type::Int4, none).lax(),
    of("pg_blocking_pids", &[INT4], Type::Int4Array, |s, a| {
        Ok(Datum::Array(s.blockers(int(a, 0)).into_iter().map(Datum::Int).collect()))
    })
    .volatile(),
    of("pg_stat_get_numscans", &[OID], Type::Int8, |_, _| Ok(Datum::Int(0))),
    of("pg_stat_get_live_tuples", &[OID], Type::Int8, |_, _| Ok(Datum::Int(0))),
    of("age", &[INT4], Type::Int4, |_, _| Ok(Datum::Int(0))),
    of("mxid_age", &[INT4], Type::Int4, |_, _| Ok(Datum::Int(0))),
    of("acldefault", &[Argument::Of(Type::Char), OID], Type::TextArray, none),
    of("pg_sequence_last_value", &[REGCLASS], Type::Int8, |s, a| {
        let number = int(a, 0);
        match s.sequence(super::SequenceCall::Called(number))? {
            0 => Ok(Datum::Null),
            _ => s.sequence(super::SequenceCall::Value(number)).map(Datum::Int),
        }
    })
    .volatile(),
];

/// Those that came later.
pub const LATER: &[Function] = &[
    of("abs", &[Argument::Of(Type::Float4)], Type::Float4, |_, a| {
        Ok(if let Datum::Float(value) = a[0] { Datum::Float(value.abs()) } else { Datum::Null })
    }),
    // `name[n]`: null where the name has no letter.
    of("lodestone_name_letter", &[NAME, INT4], Type::Char, |_, a| {
        let place = usize::try_from(int(a, 1)).ok();
        let letter = place.and_then(|place| text(a, 0).as_bytes().get(place).copied());
        Ok(letter.map_or(Datum::Null, |letter| Datum::Text(char::from(letter).to_string())))
    }),
    // The name of an option (0), or its value (1).
    of("lodestone_option_part", &[TEXT, INT4], Type::Text, |_, a| {
        let (name, value) = text(a, 0).split_once('=').map_or((text(a, 0), None), |(name, value)| (name, Some(value)));
        Ok(if int(a, 1) == 0 { Datum::from(name) } else { value.map_or(Datum::Null, Datum::from) })
    }),
];
