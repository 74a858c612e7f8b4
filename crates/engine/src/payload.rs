//! The payload of a row: the columns outside its key.
//!
//! ```text
//! schema version 2, null bitmap (a bit per column, in the order below), columns of fixed length (null: zeroes),
//! end offsets 2 of the others, their bytes
//! ```
//!
//! All numbers are little-endian. Columns of fixed length come first, in the order of the schema, then the others.
//! Offsets count from the first byte after them.

use lodestone_width::{const_usize, exact_u16, u16_to_u64};

use crate::calendar::{Date, Timestamp};
use crate::error::{Error, Result};
use crate::schema::{Layout, Schema};
use crate::uuid::Uuid;
use crate::value::{Type, Value};

/// Most bytes of the columns of one row whose length varies.
pub const VARIABLE_BYTES_MAX: usize = const_usize(u16_to_u64(u16::MAX));
/// The version of every schema: schemas do not change yet.
const SCHEMA_VERSION: u16 = 1;

impl Layout {
    /// The payload of `row`, which is verified.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(crate) fn encode(&self, schema: &Schema, row: &[Value]) -> Result<Vec<u8>> {
        let mut bytes = SCHEMA_VERSION.to_le_bytes().to_vec();
        let bitmap = bytes.len();
        bytes.resize(bitmap + self.payload.len().div_ceil(8), 0);
        let mut variable: Vec<u8> = Vec::new();
        for (place, column) in self.payload.iter().enumerate() {
            let value = &row[column.number];
            match value {
                Value::Null => {
                    bytes[bitmap + place / 8] |= 1 << (place % 8);
                    bytes.extend(std::iter::repeat_n(0, column.kind.fixed_bytes().unwrap_or(0)));
                }
                Value::Bool(value) => bytes.push(u8::from(*value)),
                Value::I64(value) => bytes.extend(value.to_le_bytes()),
                Value::U64(value) => bytes.extend(value.to_le_bytes()),
                Value::F64(value) => bytes.extend(value.to_le_bytes()),
                Value::Text(value) => variable.extend(value.as_bytes()),
                Value::Bytes(value) => variable.extend(value),
                Value::I16(value) => bytes.extend(value.to_le_bytes()),
                Value::I32(value) => bytes.extend(value.to_le_bytes()),
                Value::Date(value) => bytes.extend(value.days().to_le_bytes()),
                Value::Timestamp(value) => bytes.extend(value.micros().to_le_bytes()),
                Value::Uuid(value) => bytes.extend(value.bytes()),
                Value::Decimal { units, .. } => bytes.extend(units.to_le_bytes()),
            }
            if variable.len() > VARIABLE_BYTES_MAX {
                let what = "row: texts and bytes outside the key";
                let (bytes, limit) = (variable.len(), VARIABLE_BYTES_MAX);
                return Err(Error::TooLarge { table: schema.name.clone(), what, bytes, limit });
            }
            if column.kind.fixed_bytes().is_none() {
                bytes.extend(exact_u16(variable.len()).to_le_bytes());
            }
        }
        bytes.extend(variable);
        Ok(bytes)
    }

    /// Sets the columns outside the key in `row`. `None` for bytes that [`encode`](Self::encode) does not write.
    pub(crate) fn decode(&self, bytes: &[u8], row: &mut [Value]) -> Option<()> {
        let (version, rest) = bytes.split_first_chunk()?;
        if u16::from_le_bytes(*version) != SCHEMA_VERSION {
            return None;
        }
        let (bitmap, mut rest) = rest.split_at_checked(self.payload.len().div_ceil(8))?;
        let offsets = self.payload.iter().filter(|column| column.kind.fixed_bytes().is_none()).count();
        let fixed: usize = self.payload.iter().filter_map(|column| column.kind.fixed_bytes()).sum();
        let variable = rest.get(fixed + 2 * offsets..)?;
        let mut begin = 0;
        for (place, column) in self.payload.iter().enumerate() {
            let is_null = bitmap[place / 8] & 1 << (place % 8) != 0;
            let bytes = match column.kind.fixed_bytes() {
                Some(bytes) => rest.split_off(..bytes)?,
                None => {
                    let end = usize::from(u16::from_le_bytes(*rest.split_off(..2)?.first_chunk()?));
                    let found = variable.get(begin..end)?;
                    begin = end;
                    found
                }
            };
            row[column.number] = match (is_null, column.nullable) {
                (false, _) => value(column.kind, bytes)?,
                (true, true) => Value::Null,
                (true, false) => return None,
            };
        }
        (begin == variable.len()).then_some(())
    }
}

fn value(kind: Type, bytes: &[u8]) -> Option<Value> {
    Some(match kind {
        Type::Bool => Value::Bool(match bytes {
            [0] => false,
            [1] => true,
            _ => return None,
        }),
        Type::I64 => Value::I64(i64::from_le_bytes(*bytes.first_chunk()?)),
        Type::U64 => Value::U64(u64::from_le_bytes(*bytes.first_chunk()?)),
        Type::F64 => Value::F64(f64::from_le_bytes(*bytes.first_chunk()?)),
        Type::I16 => Value::I16(i16::from_le_bytes(*bytes.first_chunk()?)),
        Type::I32 => Value::I32(i32::from_le_bytes(*bytes.first_chunk()?)),
        Type::Date => Value::Date(Date::from_days(i32::from_le_bytes(*bytes.first_chunk()?))),
        Type::Timestamp => Value::Timestamp(Timestamp::from_micros(i64::from_le_bytes(*bytes.first_chunk()?))),
        Type::Uuid => Value::Uuid(Uuid::from_bytes(*bytes.first_chunk()?)),
        Type::Decimal(scale) => Value::Decimal { units: i128::from_le_bytes(*bytes.first_chunk()?), scale },
        Type::Text => Value::Text(std::str::from_utf8(bytes).ok()?.to_owned()),
        Type::Bytes => Value::Bytes(bytes.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decimal::Decimal;
    use crate::value::Row;

    /// A column of each type, in an order that the payload changes, and the key in the middle.
    fn schema() -> Schema {
        Schema::new("t")
            .nullable("text", Type::Text)
            .column("flag", Type::Bool)
            .column("key", Type::U64)
            .nullable("bytes", Type::Bytes)
            .nullable("signed", Type::I64)
            .column("name", Type::Text)
            .nullable("float", Type::F64)
            .nullable("short", Type::I16)
            .column("int", Type::I32)
            .column("day", Type::Date)
            .nullable("moment", Type::Timestamp)
            .nullable("id", Type::Uuid)
            .column("price", Type::Decimal(3))
            .key(["key"])
    }

    fn rows() -> impl Strategy<Value = Row> {
        let text = || "[\0a\u{10ffff}]{0,9}";
        let bytes = prop::collection::vec(any::<u8>(), 0..9);
        let float = prop::option::of(any::<f64>().prop_filter("compares", |float| !float.is_nan()));
        let others = (
            prop::option::of(any::<i16>()),
            any::<i32>(),
            any::<i32>(),
            prop::option::of(any::<i64>()),
            prop::option::of(any::<u128>()),
            any::<i128>(),
        );
        let others = others.prop_map(|(short, int, day, moment, id, price)| -> [Value; 6] {
            let (moment, id) = (moment.map(Timestamp::from_micros), id.map(Uuid::from_u128));
            [
                short.into(),
                int.into(),
                Date::from_days(day).into(),
                moment.into(),
                id.into(),
                Decimal::<3>::from_units(price).into(),
            ]
        });
        let parts = (
            prop::option::of(text()),
            any::<bool>(),
            any::<u64>(),
            prop::option::of(bytes),
            prop::option::of(any::<i64>()),
            text(),
            float,
            others,
        );
        parts.prop_map(|(text, flag, key, bytes, signed, name, float, others)| {
            let values: [Value; 7] =
                [text.into(), flag.into(), key.into(), bytes.into(), signed.into(), name.into(), float.into()];
            values.into_iter().chain(others).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn rows_come_back(row in rows()) {
            let schema = schema();
            let layout = schema.layout()?;
            schema.verify_row(&row)?;
            let (key, payload) = (schema.key_of(&layout, &row)?, layout.encode(&schema, &row)?);
            prop_assert_eq!(schema.decode_row(&layout, &key, &payload), Some(row.clone()));
            for end in 0..payload.len() {
                prop_assert_eq!(schema.decode_row(&layout, &key, &payload[..end]), None);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let layout = schema().layout()?;
            let mut bytes = bytes;
            if bytes.len() >= 2 {
                bytes[..2].copy_from_slice(&1_u16.to_le_bytes());
            }
            let _ = layout.decode(&bytes, &mut vec![Value::Null; 13]);
        }
    }

    #[test]
    fn values_that_do_not_fit_are_named() -> Result<()> {
        let schema = Schema::new("t").column("k", Type::Bytes).nullable("v", Type::Text).key(["k"]);
        let layout = schema.layout()?;
        assert!(matches!(schema.verify_row(&crate::row![vec![1_u8], 7_i64]), Err(Error::WrongType { .. })));
        assert!(matches!(schema.verify_row(&crate::row![None::<bool>, "x"]), Err(Error::WrongType { .. })));
        assert!(matches!(schema.verify_row(&crate::row![vec![1_u8]]), Err(Error::WrongLength { .. })));
        let row = crate::row![vec![1_u8; 999], "x".repeat(65_536)];
        assert!(matches!(schema.key_of(&layout, &row), Err(Error::TooLarge { what: "key", bytes: 1001, .. })));
        assert!(matches!(layout.encode(&schema, &row), Err(Error::TooLarge { bytes: 65_536, .. })));
        Ok(())
    }
}
