//! Messages to clients. Rows and the messages around each statement are encoded here, as there are many of them;
//! everything else by `pgwire`.

use bytes::{BufMut, Bytes, BytesMut};
use lodestone_engine::Ticket;
use lodestone_sql::{OutputColumn, Pressure, Sink};
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, binary, text};
use lodestone_width::{exact_u32, low_u8};
use pgwire::messages::Message;
use pgwire::messages::copy::{CopyInResponse, CopyOutResponse};
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{CloseComplete, PortalSuspended};
use pgwire::messages::response::{EmptyQueryResponse, ErrorResponse, NoticeResponse};
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey};
use smallvec::SmallVec;

use super::out::Out;

/// Appends a message.
fn put(out: &mut BytesMut, message: &impl Message) {
    // A message is refused only when it is longer than its kind may be. Nothing of it is to stay then.
    let before = out.len();
    if message.encode(out).is_err() {
        out.truncate(before);
    }
}

pub fn authentication_ok(out: &mut BytesMut) {
    put(out, &Authentication::Ok);
}

/// Asks for a proof of the password.
pub fn authentication_sasl(out: &mut BytesMut, mechanism: &str) {
    put(out, &Authentication::SASL(vec![mechanism.into()]));
}

pub fn sasl_continue(out: &mut BytesMut, answer: &str) {
    put(out, &Authentication::SASLContinue(Bytes::copy_from_slice(answer.as_bytes())));
}

pub fn sasl_final(out: &mut BytesMut, answer: &str) {
    put(out, &Authentication::SASLFinal(Bytes::copy_from_slice(answer.as_bytes())));
}

pub fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    put(out, &ParameterStatus::new(name.into(), value.into()));
}

pub fn backend_key(out: &mut BytesMut, (number, secret): (i32, i32)) {
    put(out, &BackendKeyData::new(number, SecretKey::I32(secret)));
}

pub fn negotiate(out: &mut BytesMut, options: Vec<String>) {
    put(out, &NegotiateProtocolVersion::new(0, options));
}

/// The messages of each statement are written here: their lengths are constants.
pub fn ready(out: &mut BytesMut, status: u8) {
    out.put_slice(&[b'Z', 0, 0, 0, 5, status]);
}

pub fn parse_complete(out: &mut BytesMut) {
    out.put_slice(&[b'1', 0, 0, 0, 4]);
}

pub fn bind_complete(out: &mut BytesMut) {
    out.put_slice(&[b'2', 0, 0, 0, 4]);
}

pub fn close_complete(out: &mut BytesMut) {
    put(out, &CloseComplete::new());
}

pub fn portal_suspended(out: &mut BytesMut) {
    put(out, &PortalSuspended::new());
}

pub fn empty_query(out: &mut BytesMut) {
    put(out, &EmptyQueryResponse::new());
}

pub fn no_data(out: &mut BytesMut) {
    put(out, &NoData::new());
}

pub fn complete(out: &mut BytesMut, tag: &str) {
    let before = begin(out, b'C');
    out.put_slice(tag.as_bytes());
    out.put_u8(0);
    end(out, before);
}

/// Begins a message whose length [`end`] writes. Returns its place.
fn begin(out: &mut BytesMut, letter: u8) -> usize {
    let before = out.len();
    out.put_slice(&[letter, 0, 0, 0, 0]);
    before
}

/// Writes the length of the message that began at `before`. Nothing stays of one that is too long.
fn end(out: &mut BytesMut, before: usize) {
    match i32::try_from(out.len() - before - 1) {
        Ok(length) => out[before + 1..before + 5].copy_from_slice(&length.to_be_bytes()),
        Err(_) => out.truncate(before),
    }
}

fn copy_out(out: &mut BytesMut, columns: usize, is_binary: bool) {
    let columns = i16::try_from(columns).unwrap_or(i16::MAX);
    let formats = (0..columns).map(|_| i16::from(is_binary)).collect();
    put(out, &CopyOutResponse::new(i8::from(is_binary), columns, formats));
}

pub fn copy_in(out: &mut BytesMut, columns: usize, is_binary: bool) {
    let columns = i16::try_from(columns).unwrap_or(i16::MAX);
    let formats = (0..columns).map(|_| i16::from(is_binary)).collect();
    put(out, &CopyInResponse::new(i8::from(is_binary), columns, formats));
}

/// An error, or a warning or notice.
pub fn error(out: &mut BytesMut, severity: &str, error: &Error) {
    let head = [(b'S', severity.to_owned()), (b'V', severity.to_owned()), (b'C', error.state().code().to_owned())];
    // A zero would end the field.
    let fields = head.into_iter().chain(error.fields()).map(|(code, text)| (code, text.replace('\0', ""))).collect();
    match severity {
        "ERROR" | "FATAL" => put(out, &ErrorResponse::new(fields)),
        _ => put(out, &NoticeResponse::new(fields)),
    }
}

pub fn parameters(out: &mut BytesMut, types: &[Type]) {
    put(out, &ParameterDescription::new(types.iter().map(|ty| ty.oid()).collect()));
}

/// The format of a column: the own one, the only one, or text.
fn format(formats: &[i16], column: usize) -> i16 {
    if formats.len() == 1 { formats[0] } else { formats.get(column).copied().unwrap_or(0) }
}

pub fn row_description(out: &mut BytesMut, columns: &[OutputColumn], formats: &[i16]) {
    let before = begin(out, b'T');
    out.put_i16(i16::try_from(columns.len()).unwrap_or(i16::MAX));
    for (number, column) in columns.iter().enumerate() {
        let (table, place) = column.origin.unwrap_or((0, 0));
        // A zero would end the name.
        out.extend(column.name.bytes().filter(|byte| *byte != 0));
        out.put_u8(0);
        out.put_u32(table);
        out.put_i16(place);
        out.put_u32(column.ty.oid());
        out.put_i16(column.ty.len());
        out.put_i32(column.modifier);
        out.put_i16(format(formats, number));
    }
    end(out, before);
}

/// Bytes of an answer that leave while the statement runs.
const FLUSH_BYTES: usize = 64 << 10;
/// Bytes of an answer on a thread that serves others as well.
const SHORT_BYTES_MAX: usize = 256 << 10;

/// Sends bytes to a client while a statement runs.
pub trait Stream: Send {
    /// Sends as many of the bytes as the client takes, and waits a moment for it. Returns how many.
    ///
    /// # Errors
    /// When the client is gone.
    fn send(&mut self, bytes: &[u8]) -> Result<usize>;
}

/// Writes the rows of a statement.
pub struct Writer<'w> {
    out: &'w mut Out,
    stream: Option<&'w mut Box<dyn Stream>>,
    formats: SmallVec<[i16; 4]>,
    /// Where the answer of the statement begins.
    start: usize,
    has_left: bool,
    text: String,
    bytes: Vec<u8>,
}

impl<'w> Writer<'w> {
    pub fn new(out: &'w mut Out, stream: Option<&'w mut Box<dyn Stream>>, formats: &[i16]) -> Self {
        let start = out.bytes.len();
        let (text, bytes) = Default::default();
        Self { out, stream, formats: formats.into(), start, has_left: false, text, bytes }
    }

    fn datum(&mut self, number: usize, datum: &Datum, ty: Type) -> Result<()> {
        if datum.is_null() {
            self.out.bytes.put_i32(-1);
            return Ok(());
        }
        // Labels and names of types have texts of their own.
        let is_named = matches!(ty, Type::Enum(_) | Type::Regtype);
        if let (Datum::Int(value), 0, false) = (datum, format(&self.formats, number), is_named) {
            integer(&mut self.out.bytes, *value);
            return Ok(());
        }
        let bytes = match format(&self.formats, number) {
            1 => {
                self.bytes.clear();
                binary::encode(ty, datum, &mut self.bytes)?;
                &self.bytes[..]
            }
            _ => {
                self.text.clear();
                text::write_to(ty, datum, &mut self.text);
                self.text.as_bytes()
            }
        };
        self.out.bytes.put_i32(i32::try_from(bytes.len()).map_err(|_| too_long())?);
        self.out.bytes.put_slice(bytes);
        Ok(())
    }
}

/// An integer as a text, with its length. The formatting of the standard library costs three times as much.
fn integer(out: &mut BytesMut, value: i64) {
    let (mut digits, mut begin, mut rest) = ([0_u8; 20], 20, value.unsigned_abs());
    loop {
        begin -= 1;
        digits[begin] = b'0' + low_u8(rest % 10);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        begin -= 1;
        digits[begin] = b'-';
    }
    let digits = &digits[begin..];
    out.put_u32(exact_u32(digits.len()));
    out.put_slice(digits);
}

fn too_long() -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row of the answer is longer than 1 GiB")
}

impl Sink for Writer<'_> {
    fn columns(&mut self, columns: &[OutputColumn]) {
        row_description(&mut self.out.bytes, columns, &self.formats);
        // If the statement runs again, its columns are still right.
        self.start = self.out.bytes.len();
    }

    fn row(&mut self, row: &[Datum], columns: &[OutputColumn]) -> Result<()> {
        let before = begin(&mut self.out.bytes, b'D');
        self.out.bytes.put_i16(i16::try_from(row.len()).map_err(|_| too_long())?);
        for (number, (datum, column)) in row.iter().zip(columns).enumerate() {
            self.datum(number, datum, column.ty)?;
        }
        let out = &mut self.out.bytes;
        let length = i32::try_from(out.len() - before - 1).map_err(|_| too_long())?;
        out[before + 1..before + 5].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn restart(&mut self) {
        if !self.has_left {
            self.out.bytes.truncate(self.start);
        }
    }

    fn copy_out(&mut self, columns: usize, is_binary: bool) -> Result<()> {
        copy_out(&mut self.out.bytes, columns, is_binary);
        Ok(())
    }

    fn copy_line(&mut self, line: &[u8]) -> Result<()> {
        let out = &mut self.out.bytes;
        out.put_u8(b'd');
        out.put_i32(i32::try_from(line.len() + 4).map_err(|_| too_long())?);
        out.put_slice(line);
        Ok(())
    }

    fn copy_end(&mut self) {
        self.out.bytes.put_slice(&[b'c', 0, 0, 0, 4]);
    }

    fn is_text(&self, column: usize) -> bool {
        format(&self.formats, column) == 0
    }

    fn pressure(&self) -> Pressure {
        match (&self.stream, self.out.bytes.len()) {
            (Some(_), FLUSH_BYTES..) => Pressure::Flush,
            (None, SHORT_BYTES_MAX..) => Pressure::Long,
            _ => Pressure::None,
        }
    }

    fn flush(&mut self, ticket: Ticket<()>) -> Result<()> {
        let Some(stream) = self.stream.as_mut() else { return Ok(()) };
        self.out.wait().and_then(|()| ticket.durable()).map_err(lodestone_sql::from_engine)?;
        (self.has_left, self.start) = (true, 0);
        self.out.note_whole();
        let count = stream.send(&self.out.bytes)?;
        self.out.leave(count);
        Ok(())
    }

    fn has_left(&self) -> bool {
        self.has_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_as_the_standard_library_writes_them() {
        for value in [0, 7, -7, 10, 99, -100, i64::MAX, i64::MIN, 1_234_567_890] {
            let mut out = BytesMut::new();
            integer(&mut out, value);
            let text = value.to_string();
            assert_eq!(out[..4], u32::try_from(text.len()).expect("short").to_be_bytes());
            assert_eq!(&out[4..], text.as_bytes());
        }
    }

    #[test]
    fn messages_are_as_pgwire_encodes_them() {
        use pgwire::messages::data::{FieldDescription, RowDescription};
        use pgwire::messages::extendedquery::{BindComplete, ParseComplete};
        use pgwire::messages::response::{CommandComplete, ReadyForQuery, TransactionStatus};
        let (mut own, mut other) = (BytesMut::new(), BytesMut::new());
        ready(&mut own, b'T');
        put(&mut other, &ReadyForQuery::new(TransactionStatus::Transaction));
        parse_complete(&mut own);
        put(&mut other, &ParseComplete::new());
        bind_complete(&mut own);
        put(&mut other, &BindComplete::new());
        complete(&mut own, "SELECT 1");
        put(&mut other, &CommandComplete::new("SELECT 1".into()));
        let column = |name: &str, origin| OutputColumn { name: name.into(), ty: Type::Int4, modifier: -1, origin };
        row_description(&mut own, &[column("a", Some((16_384, 2))), column("", None)], &[1]);
        let field = |name: &str, table, place| FieldDescription::new(name.into(), table, place, 23, 4, -1, 1);
        put(&mut other, &RowDescription::new(vec![field("a", 16_384, 2), field("", 0, 0)]));
        assert_eq!(own, other);
    }
}
