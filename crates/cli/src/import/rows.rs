//! What the importer reads: rows, each good (a key and a value) or bad (a reason), with their place in the source.

use std::io;

use super::lines::{Position, Raw};

/// One row of a source.
#[derive(Debug)]
pub struct Row {
    /// Number of its first line, from 1.
    pub line: u64,
    /// Its text as it is in the source, with line ends.
    pub raw: Raw,
    /// Key and value, or why there are none.
    pub content: Result<(Vec<u8>, Vec<u8>), String>,
}

/// A source of rows.
pub trait Rows {
    /// The next row, or `None` behind the last one.
    fn next_row(&mut self) -> io::Result<Option<Row>>;

    /// Where the next row starts.
    fn position(&self) -> Position;

    /// What must stand first in a file of rejected rows so that it can be imported like the source.
    fn head(&self) -> &[u8] {
        b""
    }
}

/// Which fields become the key and the value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Name of the key field; `None`: the first column.
    pub key: Option<String>,
    /// Names of the value fields. One: its text alone. None or several: a JSON object of the rest, or of these.
    pub values: Vec<String>,
}
