//! Messages to clients. Rows are encoded here, as there are many of them; everything else by `pgwire`.

use bytes::{BufMut, BytesMut};
use lodestone_sql::{OutputColumn, Sink};
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, binary, text};
use pgwire::messages::Message;
use pgwire::messages::copy::CopyInResponse;
use pgwire::messages::data::{FieldDescription, NoData, ParameterDescription, RowDescription};
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, ParseComplete, PortalSuspended};
use pgwire::messages::response::{
    CommandComplete, EmptyQueryResponse, ErrorResponse, NoticeResponse, ReadyForQuery, TransactionStatus,
};
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey};

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

pub fn parameter_status(out: &mut BytesMut, name: &str, value: &str) {
    put(out, &ParameterStatus::new(name.into(), value.into()));
}

pub fn backend_key(out: &mut BytesMut, (number, secret): (i32, i32)) {
    put(out, &BackendKeyData::new(number, SecretKey::I32(secret)));
}

pub fn negotiate(out: &mut BytesMut, options: Vec<String>) {
    put(out, &NegotiateProtocolVersion::new(0, options));
}

pub fn ready(out: &mut BytesMut, status: u8) {
    let status = match status {
        b'T' => TransactionStatus::Transaction,
        b'E' => TransactionStatus::Error,
        _ => TransactionStatus::Idle,
    };
    put(out, &ReadyForQuery::new(status));
}

pub fn parse_complete(out: &mut BytesMut) {
    put(out, &ParseComplete::new());
}

pub fn bind_complete(out: &mut BytesMut) {
    put(out, &BindComplete::new());
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
    put(out, &CommandComplete::new(tag.into()));
}

pub fn copy_in(out: &mut BytesMut, columns: usize) {
    let columns = i16::try_from(columns).unwrap_or(i16::MAX);
    put(out, &CopyInResponse::new(0, columns, (0..columns).map(|_| 0).collect()));
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
    let field = |(number, column): (usize, &OutputColumn)| {
        let (table, place) = column.origin.unwrap_or((0, 0));
        let table = i32::from_be_bytes(table.to_be_bytes());
        let format = format(formats, number);
        FieldDescription::new(
            column.name.replace('\0', ""),
            table,
            place,
            column.ty.oid(),
            column.ty.len(),
            column.modifier,
            format,
        )
    };
    put(out, &RowDescription::new(columns.iter().enumerate().map(field).collect()));
}

/// Writes the rows of a statement.
pub struct Writer<'w> {
    out: &'w mut BytesMut,
    formats: Vec<i16>,
    /// Where the answer of the statement begins.
    start: usize,
    text: String,
    bytes: Vec<u8>,
}

impl<'w> Writer<'w> {
    pub fn new(out: &'w mut BytesMut, formats: &[i16]) -> Self {
        let start = out.len();
        Self { out, formats: formats.to_vec(), start, text: String::new(), bytes: Vec::new() }
    }

    fn datum(&mut self, number: usize, datum: &Datum, ty: Type) -> Result<()> {
        if datum.is_null() {
            self.out.put_i32(-1);
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
        self.out.put_i32(i32::try_from(bytes.len()).map_err(|_| too_long())?);
        self.out.put_slice(bytes);
        Ok(())
    }
}

fn too_long() -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row of the answer is longer than 1 GiB")
}

impl Sink for Writer<'_> {
    fn columns(&mut self, columns: &[OutputColumn]) {
        row_description(self.out, columns, &self.formats);
        // If the statement runs again, its columns are still right.
        self.start = self.out.len();
    }

    fn row(&mut self, row: &[Datum], columns: &[OutputColumn]) -> Result<()> {
        let before = self.out.len();
        self.out.put_u8(b'D');
        self.out.put_i32(0);
        self.out.put_i16(i16::try_from(row.len()).map_err(|_| too_long())?);
        for (number, (datum, column)) in row.iter().zip(columns).enumerate() {
            self.datum(number, datum, column.ty)?;
        }
        let length = i32::try_from(self.out.len() - before - 1).map_err(|_| too_long())?;
        self.out[before + 1..before + 5].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn restart(&mut self) {
        self.out.truncate(self.start);
    }
}
