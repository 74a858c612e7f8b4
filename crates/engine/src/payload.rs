//! The payload of a row: the columns outside its key.
//!
//! ```text
//! version 2, null bitmap (a bit per column, in the order below), columns of fixed length (null: zeroes),
//! end offsets 2 of the others, their bytes
//! version: that of the schema (`history`), and 0x8000 if columns are moved; then a bitmap of these follows, a bit per column of variable length
//! moved column: its bytes are the length of the value 4 and the number of its pieces 4
//! ```
//!
//! All numbers are little-endian. Columns of fixed length come first, in the order of the schema, then the others.
//! Offsets count from the first byte after them. Where the texts and bytes of a row are too long, the longest are moved
//! to pieces (`large`), so that an offset always fits.

use std::cmp::Reverse;

use lodestone_width::{const_usize, exact_u16, exact_u32, to_u64, to_usize, u16_to_u64};

use crate::calendar::{Date, Timestamp};
use crate::error::{Error, Result};
use crate::schema::{COLUMNS_MAX, Layout, PayloadColumn, RowForm, Schema};
use crate::uuid::Uuid;
use crate::value::{Type, Value};

/// Longest text or bytes outside a key: 64 MiB.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// The largest `inline_bytes_max`.
pub const INLINE_BYTES_LIMIT: usize = 32 << 10;
/// In the version of a payload with moved columns.
const HAS_MOVED: u16 = 1 << 15;
/// Bytes of a payload that are taken from the allocator at once.
const ROW_BYTES_GUESS: usize = 128;
/// Bytes that a row keeps of a moved column.
const MOVED_BYTES: usize = 8;

const _: () = assert!(
    INLINE_BYTES_LIMIT + COLUMNS_MAX * MOVED_BYTES <= const_usize(u16_to_u64(u16::MAX)),
    "what a row holds itself has offsets of 16 bits: columns up to the limit, and of each other one at most 8 bytes"
);

/// How much a row holds itself. Each open may choose others: a row says how many pieces it has.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub inline_bytes_max: usize,
    pub piece_bytes: usize,
}

/// A column whose value is in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Its id, by which its pieces are found.
    pub id: usize,
    /// Its number in the schema. `None`: it was dropped, and the row is from before.
    pub number: Option<usize>,
    pub kind: Type,
    pub bytes: u32,
    pub pieces: u32,
}

/// A row as bytes.
#[derive(Debug)]
pub struct Payload<'r> {
    pub bytes: Vec<u8>,
    /// The values of the moved columns, by id of the column.
    pub moved: Vec<(usize, &'r [u8])>,
}

/// Whether columns of the row are moved.
pub fn has_moved(payload: &[u8]) -> bool {
    version(payload).is_some_and(|(version, _)| version & HAS_MOVED != 0)
}

fn version(payload: &[u8]) -> Option<(u16, &[u8])> {
    payload.split_first_chunk().map(|(version, rest)| (u16::from_le_bytes(*version), rest))
}

impl Layout {
    /// The payload of `row`, which is verified.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(crate) fn encode<'r>(&self, schema: &Schema, row: &'r [Value], limits: Limits) -> Result<Payload<'r>> {
        let moved = self.to_move(schema, row, limits)?;
        let version = if moved.is_empty() { self.version } else { self.version | HAS_MOVED };
        let value_of = |column: &PayloadColumn| column.number.map_or(&Value::Null, |number| &row[number]);
        // One block of memory for most rows.
        let mut bytes = Vec::with_capacity(ROW_BYTES_GUESS);
        bytes.extend_from_slice(&version.to_le_bytes());
        let bitmap = bytes.len();
        bytes.resize(bitmap + self.form.columns.len().div_ceil(8), 0);
        let mut end = 0;
        for (place, column) in self.form.columns.iter().enumerate() {
            let value = value_of(column);
            if *value == Value::Null {
                bytes[bitmap + place / 8] |= 1 << (place % 8);
                bytes.extend(std::iter::repeat_n(0, column.kind.fixed_bytes().unwrap_or(0)));
            }
            if column.kind.fixed_bytes().is_some() {
                push_fixed(value, &mut bytes);
                continue;
            }
            let is_moved = moved.binary_search_by_key(&column.id, |(id, _)| *id).is_ok();
            end += if is_moved { MOVED_BYTES } else { variable_bytes(value).len() };
            bytes.extend_from_slice(&exact_u16(end).to_le_bytes());
        }
        let mut moved_bitmap = vec![0; if moved.is_empty() { 0 } else { self.variable_columns().div_ceil(8) }];
        let variable = self.form.columns.iter().filter(|column| column.kind.fixed_bytes().is_none());
        for (place, column) in variable.enumerate() {
            if let Ok(number) = moved.binary_search_by_key(&column.id, |(id, _)| *id) {
                let length = moved[number].1.len();
                bytes.extend_from_slice(&exact_u32(length).to_le_bytes());
                bytes.extend_from_slice(&exact_u32(length.div_ceil(limits.piece_bytes)).to_le_bytes());
                moved_bitmap[place / 8] |= 1 << (place % 8);
            } else {
                bytes.extend_from_slice(variable_bytes(value_of(column)));
            }
        }
        bytes.extend_from_slice(&moved_bitmap);
        Ok(Payload { bytes, moved })
    }

    fn variable_columns(&self) -> usize {
        variable_columns(&self.form.columns)
    }

    /// The columns that the row does not hold itself, with their values: the longest, until the others fit.
    fn to_move<'r>(&self, schema: &Schema, row: &'r [Value], limits: Limits) -> Result<Vec<(usize, &'r [u8])>> {
        let bytes = |column: &PayloadColumn| Some((column.id, variable_bytes(&row[column.number?])));
        let columns = || self.form.columns.iter().filter_map(bytes);
        let mut left: usize = columns().map(|(_, bytes)| bytes.len()).sum();
        if left <= limits.inline_bytes_max {
            return Ok(Vec::new());
        }
        let mut moved: Vec<_> = columns().filter(|(_, bytes)| bytes.len() > MOVED_BYTES).collect();
        moved.sort_by_key(|(_, bytes)| Reverse(bytes.len()));
        if let Some((_, bytes)) = moved.first().filter(|(_, bytes)| bytes.len() > VALUE_BYTES_MAX) {
            let (bytes, limit) = (bytes.len(), VALUE_BYTES_MAX);
            return Err(Error::TooLarge { table: schema.name.clone(), what: "value", bytes, limit });
        }
        let mut is_moved = |bytes: &[u8]| {
            let is_moved = left > limits.inline_bytes_max;
            left -= if is_moved { bytes.len() - MOVED_BYTES } else { 0 };
            is_moved
        };
        let count = moved.iter().take_while(|(_, bytes)| is_moved(bytes)).count();
        moved.truncate(count);
        moved.sort_by_key(|(id, _)| *id);
        Ok(moved)
    }

    /// Sets the columns outside the key in `row`, but for the moved ones, which it returns. `None` for bytes that
    /// [`encode`](Self::encode) does not write, also in earlier versions.
    pub(crate) fn decode(&self, bytes: &[u8], row: &mut [Value]) -> Option<Vec<Moved>> {
        let (version, rest) = version(bytes)?;
        let RowForm { columns, defaults } = self.form_of(version & !HAS_MOVED)?;
        defaults.iter().for_each(|(number, value)| row[*number].clone_from(&**value));
        let (bitmap, rest) = rest.split_at_checked(columns.len().div_ceil(8))?;
        let offsets = variable_columns(columns);
        let moved_bytes = if version & HAS_MOVED == 0 { 0 } else { offsets.div_ceil(8) };
        let (mut rest, moved_bitmap) = rest.split_at_checked(rest.len().checked_sub(moved_bytes)?)?;
        let fixed: usize = columns.iter().filter_map(|column| column.kind.fixed_bytes()).sum();
        let variable = rest.get(fixed + 2 * offsets..)?;
        let (mut begin, mut variable_place) = (0, 0);
        let mut moved = Vec::new();
        for (place, column) in columns.iter().enumerate() {
            let is_null = bitmap[place / 8] & 1 << (place % 8) != 0;
            let (bytes, is_moved) = match column.kind.fixed_bytes() {
                Some(bytes) => (rest.split_off(..bytes)?, false),
                None => {
                    let end = usize::from(u16::from_le_bytes(*rest.split_off(..2)?.first_chunk()?));
                    let found = variable.get(begin..end)?;
                    let is_moved = moved_bitmap.get(variable_place / 8).unwrap_or(&0) & 1 << (variable_place % 8) != 0;
                    (begin, variable_place) = (end, variable_place + 1);
                    (found, is_moved)
                }
            };
            let found = match (is_null, column.nullable) {
                (false, _) if is_moved => {
                    moved.push(moved_column(column, bytes)?);
                    Value::Null
                }
                (false, _) => value(column.kind, bytes)?,
                (true, true) if !is_moved => Value::Null,
                (true, _) => return None,
            };
            if let Some(number) = column.number {
                row[number] = found;
            }
        }
        (begin == variable.len() && moved.is_empty() == (moved_bytes == 0)).then_some(moved)
    }

    /// The value of one column outside the key, which is not moved. `None` for bytes that [`encode`](Self::encode) does
    /// not write, as far as the columns before it tell, and for a moved column.
    pub(crate) fn decode_column(&self, bytes: &[u8], number: usize) -> Option<Value> {
        let (version, rest) = version(bytes)?;
        if version & HAS_MOVED != 0 {
            return None;
        }
        let RowForm { columns, defaults } = self.form_of(version)?;
        if let Some((_, value)) = defaults.iter().find(|(other, _)| *other == number) {
            return Some(Value::clone(value));
        }
        let (bitmap, rest) = rest.split_at_checked(columns.len().div_ceil(8))?;
        let (mut fixed, mut variable_place, mut wanted) = (0, 0, None);
        for (place, column) in columns.iter().enumerate() {
            if column.number == Some(number) {
                wanted = Some((place, column, fixed, variable_place));
            }
            match column.kind.fixed_bytes() {
                Some(bytes) => fixed += bytes,
                None => variable_place += 1,
            }
        }
        let (place, column, begin, variable) = wanted?;
        if bitmap[place / 8] & 1 << (place % 8) != 0 {
            return column.nullable.then_some(Value::Null);
        }
        if let Some(bytes) = column.kind.fixed_bytes() {
            return value(column.kind, rest.get(begin..begin + bytes)?);
        }
        let end_of = |place: usize| {
            let end = rest.get(fixed + 2 * place..)?.first_chunk()?;
            Some(usize::from(u16::from_le_bytes(*end)))
        };
        let from = if variable == 0 { 0 } else { end_of(variable - 1)? };
        value(column.kind, rest.get(fixed + 2 * variable_place..)?.get(from..end_of(variable)?)?)
    }

    /// The moved columns of a payload. `None` as for [`decode`](Self::decode).
    pub(crate) fn moved(&self, bytes: &[u8]) -> Option<Vec<Moved>> {
        let mut row = vec![Value::Null; self.key.len() + self.form.columns.len()];
        self.decode(bytes, &mut row)
    }
}

fn variable_columns(columns: &[PayloadColumn]) -> usize {
    columns.iter().filter(|column| column.kind.fixed_bytes().is_none()).count()
}

fn moved_column(column: &PayloadColumn, bytes: &[u8]) -> Option<Moved> {
    let (length, pieces) = bytes.split_first_chunk()?;
    let (bytes, pieces) = (u32::from_le_bytes(*length), u32::from_le_bytes(pieces.try_into().ok()?));
    let has_sense = to_usize(bytes) <= VALUE_BYTES_MAX && to_u64(MOVED_BYTES) < u64::from(bytes) && pieces <= bytes;
    let PayloadColumn { id, number, kind, .. } = *column;
    has_sense.then_some(Moved { id, number, kind, bytes, pieces })
}

/// The bytes of a text or bytes, none for other values.
fn variable_bytes(value: &Value) -> &[u8] {
    match value {
        Value::Text(value) => value.as_bytes(),
        Value::Bytes(value) => value,
        _ => &[],
    }
}

/// Appends a value whose length its type tells.
fn push_fixed(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null | Value::Text(_) | Value::Bytes(_) => {}
        Value::Bool(value) => bytes.push(u8::from(*value)),
        Value::I16(value) => bytes.extend(value.to_le_bytes()),
        Value::I32(value) => bytes.extend(value.to_le_bytes()),
        Value::I64(value) => bytes.extend(value.to_le_bytes()),
        Value::U64(value) => bytes.extend(value.to_le_bytes()),
        Value::F64(value) => bytes.extend(value.to_le_bytes()),
        Value::Date(value) => bytes.extend(value.days().to_le_bytes()),
        Value::Timestamp(value) => bytes.extend(value.micros().to_le_bytes()),
        Value::Uuid(value) => bytes.extend(value.bytes()),
        Value::Decimal { units, .. } => bytes.extend(units.to_le_bytes()),
    }
}

/// The value of a moved column from the bytes of its pieces.
pub fn moved_value(moved: &Moved, bytes: Vec<u8>) -> Option<Value> {
    match moved.kind {
        Type::Text => String::from_utf8(bytes).ok().map(Value::Text),
        _ => Some(Value::Bytes(bytes)),
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
        fn rows_come_back(row in rows(), inline_bytes_max in 0..60_usize) {
            let schema = schema();
            let layout = schema.layout()?;
            schema.verify_row(&row)?;
            let limits = Limits { inline_bytes_max, piece_bytes: 5 };
            let (key, Payload { bytes, moved: values }) =
                (schema.key_of(&layout, &row)?, layout.encode(&schema, &row, limits)?);
            let decode = |bytes| schema.decode_row(&layout, &key, bytes);
            let (mut found, moved) = decode(&bytes).expect("its own bytes");
            prop_assert_eq!(moved.len(), values.len());
            prop_assert_eq!(has_moved(&bytes), !moved.is_empty());
            for (moved, (column, value)) in moved.iter().zip(values) {
                prop_assert_eq!((moved.number, to_usize(moved.bytes)), (Some(column), value.len()));
                prop_assert_eq!(to_usize(moved.pieces), value.len().div_ceil(5));
                found.0[column] = moved_value(moved, value.to_vec()).expect("its own bytes");
            }
            prop_assert_eq!(&found, &row);
            for column in layout.form.columns.iter().filter_map(|column| column.number) {
                let alone = layout.decode_column(&bytes, column);
                prop_assert_eq!(alone, moved.is_empty().then(|| row[column].clone()));
            }
            // Columns are moved until the rest fits.
            let lengths = || row.iter().map(|value| variable_bytes(value).len());
            let kept: usize = lengths().sum::<usize>() - moved.iter().map(|moved| to_usize(moved.bytes) - 8).sum::<usize>();
            let is_small = |(number, length): (usize, usize)| length <= 8 || moved.iter().any(|moved| moved.id == number);
            prop_assert!(kept <= inline_bytes_max || lengths().enumerate().all(is_small));
            for end in 0..bytes.len() {
                prop_assert!(decode(&bytes[..end]).is_none());
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            has_moved in any::<bool>(),
        ) {
            let layout = schema().layout()?;
            let mut bytes = bytes;
            if bytes.len() >= 2 {
                let version = if has_moved { 1 | HAS_MOVED } else { 1 };
                bytes[..2].copy_from_slice(&version.to_le_bytes());
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
        let row = crate::row![vec![1_u8; 999], "x".repeat(VALUE_BYTES_MAX + 1)];
        assert!(matches!(schema.key_of(&layout, &row), Err(Error::TooLarge { what: "key", bytes: 1001, .. })));
        let limits = Limits { inline_bytes_max: 2000, piece_bytes: 3900 };
        let error = layout.encode(&schema, &row, limits).expect_err("too long");
        assert!(error.to_string().contains("67108865 bytes of a value; the limit is 67108864 bytes"), "{error}");
        Ok(())
    }
}
