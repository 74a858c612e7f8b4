//! Messages of clients, from bytes.
//!
//! The bytes come from anybody. `pgwire`'s decoders take bytes off a buffer without asking whether they are there, and
//! panic on a body that is shorter than its counts say, so messages of clients are decoded here: borrowed from the
//! buffer, and refused by name.

use lodestone_sql_types::{Error, Result, SqlState, binary};
use smallvec::SmallVec;

/// A list that is short as a rule.
pub type Few<T> = SmallVec<[T; 4]>;

/// A message of a client that is connected.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'b> {
    Query(&'b str),
    Parse { name: &'b str, query: &'b str, types: Few<u32> },
    Bind { portal: &'b str, statement: &'b str, formats: Few<i16>, values: Few<Option<&'b [u8]>>, results: Few<i16> },
    DescribeStatement(&'b str),
    DescribePortal(&'b str),
    Execute { portal: &'b str, rows_max: usize },
    CloseStatement(&'b str),
    ClosePortal(&'b str),
    Sync,
    Flush,
    CopyData(&'b [u8]),
    CopyDone,
    CopyFail(&'b str),
    Terminate,
}

/// The first message of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// It asks for encryption: by TLS, or by GSS.
    Encryption {
        is_tls: bool,
    },
    Cancel {
        number: i32,
        secret: i32,
    },
    /// The minor version that it wants, and its settings.
    Startup {
        minor: u16,
        settings: Vec<(String, String)>,
    },
}

/// Longest first message.
const OPENING_BYTES_MAX: usize = 10_000;
/// Longest message.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
const CANCEL_CODE: u32 = 80_877_102;
const SSL_CODE: u32 = 80_877_103;
const GSS_CODE: u32 = 80_877_104;

/// The error of a message that breaks the protocol.
pub fn wrong(message: impl Into<String>) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, message.into())
}

/// Takes parts off a body.
struct Body<'b>(&'b [u8]);

impl<'b> Body<'b> {
    fn short() -> Error {
        wrong("insufficient data left in message")
    }

    fn bytes(&mut self, count: usize) -> Result<&'b [u8]> {
        self.0.split_off(..count).ok_or_else(Self::short)
    }

    fn u16(&mut self) -> Result<u16> {
        let (found, rest) = self.0.split_first_chunk().ok_or_else(Self::short)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*found))
    }

    fn i16(&mut self) -> Result<i16> {
        self.u16().map(|found| i16::from_be_bytes(found.to_be_bytes()))
    }

    fn u32(&mut self) -> Result<u32> {
        let (found, rest) = self.0.split_first_chunk().ok_or_else(Self::short)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*found))
    }

    fn i32(&mut self) -> Result<i32> {
        self.u32().map(|found| i32::from_be_bytes(found.to_be_bytes()))
    }

    /// A text that a zero ends.
    fn text(&mut self) -> Result<&'b str> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or_else(|| wrong("invalid string in message"))?;
        let text = self.bytes(end)?;
        self.bytes(1)?;
        binary::utf8(text)
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Few<T>> {
        let count = usize::from(self.u16()?);
        // A count is no reason to take memory: each element has a byte at least.
        if count > self.0.len() {
            return Err(Self::short());
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn end<T>(self, found: T) -> Result<T> {
        if self.0.is_empty() { Ok(found) } else { Err(wrong("invalid message format")) }
    }
}

/// The length of the next message of a connected client, with its letter. `None`: it is not complete.
///
/// # Errors
/// 08P01 for a letter or length that no message has. The connection ends then.
pub fn frame(input: &[u8]) -> Result<Option<usize>> {
    let Some((letter, rest)) = input.split_first() else { return Ok(None) };
    if !b"QPBDECSHdcfXp".contains(letter) {
        return Err(wrong(format!("invalid frontend message type {letter}")));
    }
    let Some(length) = rest.first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes(*length);
    let length = usize::try_from(length).ok().filter(|length| (4..=MESSAGE_BYTES_MAX).contains(length));
    let length = length.ok_or_else(|| wrong("invalid message length"))?;
    Ok((input.len() > length).then_some(length + 1))
}

/// As [`frame`], of a client that must prove who it is: it has no long messages.
///
/// # Errors
/// 08P01.
pub fn proof_frame(input: &[u8]) -> Result<Option<usize>> {
    match input {
        [] => Ok(None),
        [b'p', rest @ ..] => {
            let Some(length) = rest.first_chunk() else { return Ok(None) };
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if !(4..=OPENING_BYTES_MAX).contains(&length) {
                return Err(wrong("invalid message length"));
            }
            Ok((input.len() > length).then_some(length + 1))
        }
        [letter, ..] => Err(wrong(format!("expected SASL response, got message type {letter}"))),
    }
}

/// The client's first message of a proof.
///
/// # Errors
/// 08P01; 22021.
pub fn first_proof(body: &[u8]) -> Result<&str> {
    let mut body = Body(body);
    if body.text()? != lodestone_sql::scram::MECHANISM {
        return Err(wrong("client selected an invalid SASL authentication mechanism"));
    }
    let length = usize::try_from(body.i32()?).map_err(|_| wrong("invalid message format"))?;
    let message = body.bytes(length)?;
    body.end(binary::utf8(message)?)
}

/// A body that is one text.
///
/// # Errors
/// 22021.
pub fn text_of(body: &[u8]) -> Result<&str> {
    binary::utf8(body)
}

/// The message with this letter and body.
///
/// # Errors
/// 08P01; 22021.
pub fn decode(letter: u8, body: &[u8]) -> Result<Message<'_>> {
    let mut body = Body(body);
    let message = match letter {
        b'Q' => Message::Query(body.text()?),
        b'P' => Message::Parse { name: body.text()?, query: body.text()?, types: body.list(Body::u32)? },
        b'B' => Message::Bind {
            portal: body.text()?,
            statement: body.text()?,
            formats: body.list(Body::i16)?,
            values: body.list(|body| match body.i32()? {
                -1 => Ok(None),
                length => {
                    let length = usize::try_from(length).map_err(|_| wrong("invalid message format"))?;
                    body.bytes(length).map(Some)
                }
            })?,
            results: body.list(Body::i16)?,
        },
        b'D' => match body.bytes(1)? {
            b"S" => Message::DescribeStatement(body.text()?),
            b"P" => Message::DescribePortal(body.text()?),
            _ => return Err(wrong("invalid DESCRIBE message subtype")),
        },
        b'E' => {
            let portal = body.text()?;
            // Zero and less: all rows.
            Message::Execute { portal, rows_max: usize::try_from(body.i32()?).unwrap_or(0) }
        }
        b'C' => match body.bytes(1)? {
            b"S" => Message::CloseStatement(body.text()?),
            b"P" => Message::ClosePortal(body.text()?),
            _ => return Err(wrong("invalid CLOSE message subtype")),
        },
        b'S' => Message::Sync,
        b'H' => Message::Flush,
        b'd' => Message::CopyData(std::mem::take(&mut body.0)),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(body.text()?),
        b'X' => Message::Terminate,
        _ => return Err(wrong("this message is not expected here")),
    };
    body.end(message)
}

/// The first message, and its length. `None`: it is not complete.
///
/// # Errors
/// 08P01; 0A000 for another protocol.
pub fn opening(input: &[u8]) -> Result<Option<(Opening, usize)>> {
    let Some(length) = input.first_chunk() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if !(8..=OPENING_BYTES_MAX).contains(&length) {
        return Err(wrong("invalid length of startup packet"));
    }
    let Some(body) = input.get(4..length) else { return Ok(None) };
    let mut body = Body(body);
    let code = body.u32()?;
    let found = match code {
        SSL_CODE | GSS_CODE => body.end(Opening::Encryption { is_tls: code == SSL_CODE })?,
        CANCEL_CODE => {
            let (number, secret) = (body.i32()?, body.i32()?);
            body.end(Opening::Cancel { number, secret })?
        }
        _ => {
            let (major, minor) = (code >> 16, u16::try_from(code & 0xffff).unwrap_or(0));
            if major != 3 {
                let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0");
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            let mut settings = Vec::new();
            loop {
                let name = body.text()?;
                if name.is_empty() {
                    break;
                }
                settings.push((name.to_owned(), body.text()?.to_owned()));
            }
            body.end(Opening::Startup { minor, settings })?
        }
    };
    Ok(Some((found, length)))
}

/// The statement of a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Subject {
    /// Its text, without quoted texts.
    Text(String),
    /// That of the portal with this name.
    Portal(String),
    /// That of the prepared statement with this name.
    Prepared(String),
    None,
}

/// The statement of the message that `input` begins with, for an event about it. The end of the message may be missing.
pub fn subject(input: &[u8]) -> Subject {
    let mut parts = input.get(5..).unwrap_or_default().split(|byte| *byte == 0);
    let mut part = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    match input.first() {
        Some(b'Q') => Subject::Text(without_quoted(&part())),
        Some(b'P') => {
            part();
            Subject::Text(without_quoted(&part()))
        }
        Some(b'E') => Subject::Portal(part()),
        Some(b'B') => {
            part();
            Subject::Prepared(part())
        }
        Some(b'D') => match part().split_at_checked(1) {
            Some(("P", name)) => Subject::Portal(name.to_owned()),
            Some((_, name)) => Subject::Prepared(name.to_owned()),
            None => Subject::None,
        },
        _ => Subject::None,
    }
}

/// A statement without the texts between its quotes: they are data of users, or passwords.
pub fn without_quoted(text: &str) -> String {
    // Other ways to quote: everything from there on may be quoted.
    let is_other = |(place, letter): (usize, char)| match letter {
        '\\' => true,
        '$' => !text[place + 1..].starts_with(|next: char| next.is_ascii_digit()),
        _ => false,
    };
    let end = text.char_indices().find(|found| is_other(*found)).map(|(place, _)| place);
    let mut found = String::new();
    for (number, part) in text[..end.unwrap_or(text.len())].split('\'').enumerate() {
        found.push_str(if number % 2 == 0 { part } else { "'..'" });
    }
    if end.is_some() {
        found.push_str("..");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_named_without_their_data() {
        for (text, shown) in [
            ("select 1", "select 1"),
            ("insert into t values ('ann', 'it''s', 7)", "insert into t values ('..', '..''..', 7)"),
            ("select 'cut", "select '..'"),
            (r"select E'a\'b', 'c'", "select E'..'.."),
            ("select $$secret$$", "select .."),
            ("select v from t where k = $1", "select v from t where k = $1"),
        ] {
            let found = without_quoted(text);
            assert!(!found.contains("secret") && !found.contains("ann"), "{found}");
            assert_eq!(found, shown, "{text}");
        }
        let query = b"Q\0\0\0\x0eselect 'a'\0";
        assert_eq!(subject(query), Subject::Text("select '..'".into()));
        assert_eq!(subject(&query[..9]), Subject::Text("sele".into()), "its end is missing");
        assert_eq!(subject(b"P\0\0\0\x11s\0select 1\0\0\0"), Subject::Text("select 1".into()));
        assert_eq!(subject(b"E\0\0\0\x0ap\0\0\0\0\0"), Subject::Portal("p".into()));
        assert_eq!(subject(b"B\0\0\0\x0cp\0s\0\0\0"), Subject::Prepared("s".into()));
        assert_eq!(subject(b"DxxxxPp\0"), Subject::Portal("p".into()));
        assert_eq!((subject(b""), subject(b"S\0\0\0\x04")), (Subject::None, Subject::None));
    }
}
