//! Rows of COPY in the binary format.
//!
//! ```text
//! "PGCOPY\n\xff\r\n\0", flags u32, length of more u32, more
//! for each row: fields i16; for each field: length i32 (-1: null), value
//! -1 i16
//! ```
//!
//! All numbers are big-endian. The bytes come from anybody: a count is no reason to take memory.

use lodestone_sql_types::{Datum, Error, Result, SqlState, binary};

use super::OutputColumn;

/// How the bytes begin.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Bytes of the head, without more.
const HEAD_BYTES: usize = SIGNATURE.len() + 8;
/// Flags that change the meaning of what follows.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// A part of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    Head,
    /// A row with so many fields, which follow each other in the bytes after the first two.
    Row(usize),
    End,
}

fn bad(message: impl Into<String>) -> Error {
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message.into())
}

fn word(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|word| i32::from_be_bytes(*word))
}

/// The first part of the bytes, and its length. `None`: more bytes are needed.
///
/// # Errors
/// 22P04.
pub fn next(bytes: &[u8], has_head: bool) -> Result<Option<(Part, usize)>> {
    if has_head { row(bytes) } else { head(bytes) }
}

fn head(bytes: &[u8]) -> Result<Option<(Part, usize)>> {
    let begin = &bytes[..bytes.len().min(SIGNATURE.len())];
    if !SIGNATURE.starts_with(begin) {
        return Err(bad("COPY file signature not recognized"));
    }
    let (Some(flags), Some(more)) = (word(bytes, SIGNATURE.len()), word(bytes, SIGNATURE.len() + 4)) else {
        return Ok(None);
    };
    if flags.cast_unsigned() & CRITICAL_FLAGS != 0 {
        return Err(bad("unrecognized critical flags in COPY file header"));
    }
    let more = usize::try_from(more).map_err(|_| bad("invalid COPY file header (wrong length)"))?;
    Ok((bytes.len() - HEAD_BYTES >= more).then_some((Part::Head, HEAD_BYTES + more)))
}

fn row(bytes: &[u8]) -> Result<Option<(Part, usize)>> {
    let Some(count) = bytes.first_chunk() else { return Ok(None) };
    let count = i16::from_be_bytes(*count);
    if count == -1 {
        return Ok(Some((Part::End, 2)));
    }
    let count = usize::try_from(count).map_err(|_| bad(format!("row field count is {count}")))?;
    let mut at = 2;
    for _ in 0..count {
        let Some(length) = word(bytes, at) else { return Ok(None) };
        at += 4;
        if length == -1 {
            continue;
        }
        at += usize::try_from(length).map_err(|_| bad("invalid field size"))?;
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some((Part::Row(count), at)))
}

/// The fields of a whole row. `None`: null.
pub fn fields(row: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = row.get(2..).unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first_chunk()?;
        rest = after;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else { return Some(None) };
        let (field, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(Some(field))
    })
}

/// Appends the head.
pub fn put_head(out: &mut Vec<u8>) {
    out.extend(SIGNATURE);
    out.extend([0; 8]);
}

/// Appends a row.
///
/// # Errors
/// Those of a value without a binary format; 54000.
pub fn put_row(out: &mut Vec<u8>, row: &[Datum], columns: &[OutputColumn]) -> Result<()> {
    let too_long = || Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is too long for the binary format of COPY");
    out.extend(i16::try_from(row.len()).map_err(|_| too_long())?.to_be_bytes());
    for (datum, column) in row.iter().zip(columns) {
        out.extend((-1_i32).to_be_bytes());
        if datum.is_null() {
            continue;
        }
        let begin = out.len();
        binary::encode(column.ty, datum, out)?;
        let length = i32::try_from(out.len() - begin).map_err(|_| too_long())?;
        out[begin - 4..begin].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// Appends the end.
pub fn put_end(out: &mut Vec<u8>) {
    out.extend((-1_i16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use lodestone_sql_types::Type;

    use super::*;

    fn sample() -> Vec<u8> {
        let column = |ty| OutputColumn { name: String::new(), ty, modifier: -1, origin: None };
        let mut bytes = Vec::new();
        put_head(&mut bytes);
        let row = [Datum::Int(7), Datum::Null, Datum::from("x")];
        put_row(&mut bytes, &row, &[column(Type::Int4), column(Type::Int4), column(Type::Text)]).expect("short");
        put_end(&mut bytes);
        bytes
    }

    /// The parts of the bytes, and whether they are whole.
    fn parts(bytes: &[u8]) -> Result<(Vec<Part>, usize)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some((part, length)) = next(&bytes[at..], !found.is_empty())? {
            at += length;
            found.push(part);
        }
        Ok((found, at))
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = sample();
        assert_eq!(parts(&bytes).expect("right"), (vec![Part::Head, Part::Row(3), Part::End], bytes.len()));
        let found: Vec<_> = fields(&bytes[HEAD_BYTES..bytes.len() - 2]).collect();
        assert_eq!(found, [Some(&[0, 0, 0, 7][..]), None, Some(b"x")]);
    }

    #[test]
    fn every_beginning_waits_and_no_damage_panics() {
        let bytes = sample();
        for length in 0..bytes.len() {
            let (_, read) = parts(&bytes[..length]).expect("the beginning of something right");
            assert!(read <= length);
        }
        for place in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[place] = value;
                if let Ok((_, read)) = parts(&damaged) {
                    fields(&damaged[read.min(HEAD_BYTES)..]).take(100).for_each(drop);
                }
            }
        }
    }
}
