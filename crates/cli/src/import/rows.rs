//! The importer's input: rows, each good (a key and a value) or bad (a reason), with their place in the source.

use std::io;

use super::lines::{Position, Raw};

/// One row of a source.
#[derive(Debug)]
pub struct Row {
    /// Number of its first line, from 1.
    pub line: u64,
    /// Its text as it is in the source, with line ends.
    pub raw: Raw,
    /// Key and value, or the reason why there are none.
    pub content: Result<(Vec<u8>, Vec<u8>), String>,
}

/// A source of rows.
pub trait Rows {
    /// The next row, or `None` after the last one.
    fn next_row(&mut self) -> io::Result<Option<Row>>;

    /// The start of the next row.
    fn position(&self) -> Position;

    /// The first bytes that a file of rejected rows needs so that it can be imported like the source.
    fn head(&self) -> &[u8] {
        b""
    }
}

/// The fields that become the key and the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Name of the key field; `None`: the first column.
    pub key: Option<String>,
    /// Names of the value fields. One: its text alone. None: a JSON object of all others. Several: a JSON object of
    /// these.
    pub values: Vec<String>,
}
