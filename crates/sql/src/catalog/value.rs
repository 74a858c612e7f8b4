//! Values of the engine and values of SQL.
//!
//! The engine counts days and moments from 1970, SQL from 2000. `char(n)` is kept without its blanks. A `numeric`
//! without digits or with more than the engine has, a span and a `jsonb` are kept as texts, and are no part of a key.

use lodestone_engine::{Date, Timestamp, Type as Kind, Value};
use lodestone_sql_types::composite::Attribute;
use lodestone_sql_types::time::{DAY_MICROS, EPOCH_DAYS};
use lodestone_sql_types::{Datum, Error, Numeric, Result, SqlState, Type, array, style, text};

use super::ColumnDef;

/// Most digits of the engine's decimals.
const ENGINE_DIGITS: u32 = 38;

/// The type in which the engine keeps values of `ty`. `None`: it keeps none.
pub fn kind_of(ty: Type, modifier: i32) -> Option<Kind> {
    Some(match ty {
        Type::Bool => Kind::Bool,
        Type::Int2 => Kind::I16,
        Type::Int4 => Kind::I32,
        Type::Int8 => Kind::I64,
        Type::Oid => Kind::I64,
        Type::Float4 | Type::Float8 => Kind::F64,
        Type::Text | Type::Varchar | Type::Bpchar | Type::Name | Type::Char => Kind::Text,
        Type::Bytea => Kind::Bytes,
        Type::Date => Kind::Date,
        Type::Timestamp | Type::Timestamptz => Kind::Timestamp,
        Type::Numeric => match decimal_scale(modifier) {
            Some(scale) => Kind::Decimal(scale),
            None => Kind::Text,
        },
        Type::Timetz | Type::Interval | Type::Json | Type::Jsonb => Kind::Text,
        Type::Uuid => Kind::Uuid,
        Type::Time => Kind::I64,
        // The text of the array. It is no part of a key.
        _ if ty.element().is_some_and(is_kept) => Kind::Text,
        // The number of the label.
        Type::Enum(_) => Kind::I64,
        // The text of its fields by number.
        Type::Composite(_) if is_kept(ty) => Kind::Text,
        _ => return None,
    })
}

/// Digits after the point of the engine's decimals. `None`: the numbers are kept as texts, because they have no limit
/// of digits, or one beyond the engine's.
fn decimal_scale(modifier: i32) -> Option<u8> {
    let (precision, scale) = lodestone_sql_types::cast::digits_of(modifier);
    let scale = u8::try_from(scale).ok()?;
    (modifier >= 4 && precision <= ENGINE_DIGITS && u32::from(scale) <= precision).then_some(scale)
}

/// Whether values of a column can be compared as they are kept: those kept as texts only if they are texts.
pub fn is_ordered(ty: Type, modifier: i32) -> bool {
    kind_of(ty, modifier) != Some(Kind::Text) || ty.is_text()
}

/// The type that SQL gives a column that the library made.
pub fn type_of(kind: Kind) -> (Type, i32) {
    match kind {
        Kind::Bool => (Type::Bool, -1),
        Kind::I16 => (Type::Int2, -1),
        Kind::I32 => (Type::Int4, -1),
        Kind::I64 => (Type::Int8, -1),
        // 20 digits without a fraction.
        Kind::U64 => (Type::Numeric, (20 << 16) + 4),
        Kind::F64 => (Type::Float8, -1),
        Kind::Bytes => (Type::Bytea, -1),
        Kind::Date => (Type::Date, -1),
        Kind::Uuid => (Type::Uuid, -1),
        Kind::Timestamp => (Type::Timestamptz, -1),
        Kind::Decimal(scale) => (Type::Numeric, (38 << 16) + i32::from(scale) + 4),
        // Texts, and identifiers of 128 bits in their text form.
        _ => (Type::Text, -1),
    }
}

/// Whether values of a type are kept. Those of rows without a type of the database are not: nothing says the numbers of
/// their fields.
fn is_kept(ty: Type) -> bool {
    match ty {
        Type::Composite(of) => !of.is_anonymous() && of.definition().oid < super::ROW_TYPES,
        ty => ty != Type::Record,
    }
}

/// The text as which an array, a row, a span or a JSON value is kept.
fn kept_text(ty: Type, datum: &Datum) -> String {
    match (ty, datum) {
        (Type::EnumArray(_), _) => text::encode(Type::Int8Array, datum),
        (Type::Enum(_), _) => text::encode(Type::Int8, datum),
        (Type::Composite(of), Datum::Record(values)) => {
            let attributes = of.attributes();
            let count = attributes.iter().map(|one| usize::try_from(one.number).unwrap_or(0)).max().unwrap_or(0);
            let mut fields = vec![Datum::Null; count];
            for (one, value) in attributes.iter().zip(values).filter(|(_, value)| !value.is_null()) {
                let place = usize::try_from(one.number).ok().and_then(|number| number.checked_sub(1));
                if let Some(field) = place.and_then(|place| fields.get_mut(place)) {
                    *field = Datum::Text(kept_text(one.ty, value));
                }
            }
            text::encode(Type::Record, &Datum::Record(fields))
        }
        (Type::CompositeArray(of), _) => {
            let element = |value: Datum| match value {
                Datum::Null => Ok(Datum::Null),
                value => Ok(Datum::Text(kept_text(Type::Composite(of), &value))),
            };
            array::map(datum.clone(), element).map(|texts| text::encode(Type::TextArray, &texts)).unwrap_or_default()
        }
        _ => text::encode(ty, datum),
    }
}

/// The value that was kept as a text.
fn of_kept_text(ty: Type, kept: &str) -> Result<Datum> {
    match ty {
        Type::EnumArray(_) => text::decode(Type::Int8Array, kept),
        Type::Enum(_) => text::decode(Type::Int8, kept),
        Type::Composite(of) => {
            let fields = text::fields(kept)?;
            // An attribute that was added later has no field.
            let value = |number: i16| {
                let place = usize::try_from(number).ok()?.checked_sub(1)?;
                fields.get(place)?.as_deref()
            };
            let field = |one: &Attribute| match value(one.number) {
                None => Ok(Datum::Null),
                Some(text) => of_kept_text(one.ty, text),
            };
            Ok(Datum::Record(of.attributes().iter().map(field).collect::<Result<_>>()?))
        }
        Type::CompositeArray(of) => {
            let element = |value: Datum| match value {
                Datum::Text(text) => of_kept_text(Type::Composite(of), &text),
                other => Ok(other),
            };
            array::map(text::decode(Type::TextArray, kept)?, element)
        }
        _ => text::decode(ty, kept),
    }
}

fn broken(column: &ColumnDef) -> Error {
    let message = format!("the value of column \"{}\" makes no sense", column.name);
    Error::new(SqlState::DATA_CORRUPTED, message).hint("Run `lodestone db check` on the pool.")
}

/// The value of a column as SQL sees it.
///
/// # Errors
/// XX001 for a value that the column cannot have; 0A000 for one that SQL has no type for.
pub fn to_datum(column: &ColumnDef, value: Value) -> Result<Datum> {
    Ok(match value {
        Value::Null => Datum::Null,
        Value::Bool(value) => Datum::Bool(value),
        Value::I16(value) => Datum::Int(value.into()),
        Value::I32(value) => Datum::Int(value.into()),
        Value::I64(value) if column.ty == Type::Time => Datum::Time(value),
        Value::I64(value) => Datum::Int(value),
        Value::U64(value) => Datum::Numeric(Numeric::new(value.into(), 0)?),
        Value::F64(value) => Datum::Float(value),
        Value::Text(text) => match column.ty {
            Type::Numeric => Datum::Numeric(text.parse().map_err(|_| broken(column))?),
            Type::Bpchar => lodestone_sql_types::cast::fit(Datum::Text(text), column.ty, column.modifier, false)?,
            ty if matches!(ty, Type::Timetz | Type::Interval | Type::Jsonb | Type::Composite(_))
                || ty.element().is_some() =>
            {
                style::plain(|| of_kept_text(ty, &text)).map_err(|_| broken(column))?
            }
            _ => Datum::Text(text),
        },
        Value::Bytes(bytes) => Datum::Bytes(bytes),
        Value::Date(date) => Datum::Date(match date.days() {
            i32::MAX => i32::MAX,
            i32::MIN => i32::MIN,
            days => i32::try_from(i64::from(days) - EPOCH_DAYS).map_err(|_| broken(column))?,
        }),
        Value::Timestamp(moment) => Datum::Time(match moment.micros() {
            i64::MAX => i64::MAX,
            i64::MIN => i64::MIN,
            micros => micros.checked_sub(EPOCH_DAYS * DAY_MICROS).ok_or_else(|| broken(column))?,
        }),
        Value::Uuid(uuid) if column.ty == Type::Uuid => Datum::Bytes(uuid.bytes().to_vec()),
        Value::Uuid(uuid) => Datum::Text(uuid.to_string()),
        Value::Decimal { units, scale } => Datum::Numeric(Numeric::new(units, scale)?),
        _ => return Err(Error::unsupported(format!("the type of column \"{}\"", column.name)).column(&column.name)),
    })
}

/// The value for the engine of a datum of the column's type. `None`: no value of the column is equal to it.
pub fn to_value(column: &ColumnDef, datum: Datum) -> Option<Value> {
    Some(match (datum, column.kind) {
        (Datum::Null, _) => Value::Null,
        (Datum::Bool(value), Kind::Bool) => Value::Bool(value),
        (Datum::Int(value), Kind::I16) => Value::I16(value.try_into().ok()?),
        (Datum::Int(value), Kind::I32) => Value::I32(value.try_into().ok()?),
        (Datum::Int(value), Kind::I64) => Value::I64(value),
        (Datum::Int(value), Kind::U64) => Value::U64(value.try_into().ok()?),
        (Datum::Float(value), Kind::F64) => Value::F64(value),
        (Datum::Numeric(value), Kind::U64) => {
            let (units, scale) = value.trimmed().small()?;
            if scale > 0 {
                return None;
            }
            Value::U64(units.try_into().ok()?)
        }
        (Datum::Numeric(value), Kind::Decimal(scale)) => {
            let fitted = value.round(scale.into()).ok().filter(|fitted| *fitted == value)?;
            Value::Decimal { units: fitted.small()?.0, scale }
        }
        (Datum::Numeric(value), Kind::Text) => Value::Text(value.to_string()),
        (Datum::Text(mut text), Kind::Text) => {
            if column.ty == Type::Bpchar {
                text.truncate(text.trim_end_matches(' ').len());
            }
            Value::Text(text)
        }
        (Datum::Bytes(bytes), Kind::Uuid) => Value::Uuid(lodestone_engine::Uuid::from_bytes(bytes.try_into().ok()?)),
        (Datum::Time(micros), Kind::I64) => Value::I64(micros),
        (
            datum @ (Datum::ZonedTime(_)
            | Datum::Interval(_)
            | Datum::Json(_)
            | Datum::Array(_)
            | Datum::Shaped(_)
            | Datum::Record(_)),
            Kind::Text,
        ) => Value::Text(style::plain(|| kept_text(column.ty, &datum))),
        (Datum::Text(text), Kind::Uuid) => Value::parse(Kind::Uuid, &text)?,
        (Datum::Bytes(bytes), Kind::Bytes) => Value::Bytes(bytes),
        (Datum::Date(days), Kind::Date) => Value::Date(Date::from_days(match days {
            i32::MAX => i32::MAX,
            i32::MIN => i32::MIN,
            days => i32::try_from(i64::from(days) + EPOCH_DAYS).ok()?,
        })),
        (Datum::Time(micros), Kind::Timestamp) => Value::Timestamp(Timestamp::from_micros(match micros {
            i64::MAX => i64::MAX,
            i64::MIN => i64::MIN,
            micros => micros.checked_add(EPOCH_DAYS * DAY_MICROS)?,
        })),
        _ => return None,
    })
}

/// As [`to_value`], for a value that is stored.
///
/// # Errors
/// 22003 for a value that the engine's type does not hold.
pub fn to_stored(column: &ColumnDef, datum: Datum) -> Result<Value> {
    to_value(column, datum).ok_or_else(|| {
        let message = format!("{} out of range", column.ty);
        Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message).column(&column.name)
    })
}
