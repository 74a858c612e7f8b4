//! COPY FROM STDIN, in the text format.
//!
//! Rows are added to the transaction as they come. They take no locks: a stream cannot be run again. A rival that adds
//! the same key meets a conflict at its commit, or makes this one meet it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lodestone_sql_types::{Datum, Error, Result, SqlState, binary, cast, text};

use super::session::NoLocks;
use super::transaction::State;
use super::{Completion, Connection, Failure};
use crate::catalog::TableDef;
use crate::parse::ast::{Copy, Modes};
use crate::run::{Env, Run, Stop};

/// Longest line.
const LINE_BYTES_MAX: usize = 64 << 20;

/// A COPY that takes rows.
#[derive(Debug)]
pub struct CopyIn {
    copy: Copy,
    table: Arc<TableDef>,
    columns: Vec<usize>,
    /// Bytes of a line that is not complete.
    rest: Vec<u8>,
    line: u64,
    rows: u64,
    /// The line `\.` came.
    is_ended: bool,
    /// Values of the columns that the lines do not have.
    defaults: Vec<Option<crate::plan::Expr>>,
}

impl Connection {
    pub(super) fn begin_copy(
        &mut self,
        copy: &Copy,
        table: &Arc<TableDef>,
        columns: &[usize],
    ) -> Result<Completion, Failure> {
        if !copy.is_from {
            return Err(Error::unsupported("COPY TO").hint("Use SELECT.").into());
        }
        self.open(Modes::default())?;
        if self.state == State::Idle {
            self.state = State::Implicit;
        }
        let Some(open) = &mut self.open else { return Ok(Completion::Empty) };
        if open.is_read_only {
            let message = "cannot execute COPY FROM in a read-only transaction";
            return Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into());
        }
        open.statements += 1;
        let defaults = crate::bind::defaults(&self.session.catalog, table, columns)?;
        self.copy = Some(CopyIn {
            copy: copy.clone(),
            table: table.clone(),
            columns: columns.to_vec(),
            rest: Vec::new(),
            line: 0,
            rows: 0,
            is_ended: false,
            defaults,
        });
        Ok(Completion::CopyIn(columns.len()))
    }

    /// Whether the client sends rows.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        self.copy.is_some()
    }

    /// Takes bytes of rows.
    ///
    /// # Errors
    /// Those of a row. The COPY is over then.
    pub fn copy_data(&mut self, mut bytes: &[u8]) -> Result<()> {
        let Some(mut copy) = self.copy.take() else { return Ok(()) };
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            let outcome = if copy.rest.is_empty() {
                self.copy_line(&mut copy, line)
            } else {
                copy.rest.extend(line);
                let line = std::mem::take(&mut copy.rest);
                self.copy_line(&mut copy, &line)
            };
            outcome.inspect_err(|_| self.fail())?;
        }
        copy.rest.extend(bytes);
        if copy.rest.len() > LINE_BYTES_MAX {
            self.fail();
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a line of COPY is longer than 64 MiB"));
        }
        self.copy = Some(copy);
        Ok(())
    }

    /// Ends a COPY. `is_last`: its transaction may end as well. Returns its tag.
    ///
    /// # Errors
    /// Those of the last row, and of the commit.
    pub fn copy_done(&mut self, is_last: bool) -> Result<String> {
        let Some(mut copy) = self.copy.take() else { return Ok(String::new()) };
        let line = std::mem::take(&mut copy.rest);
        let last = if line.is_empty() { Ok(()) } else { self.copy_line(&mut copy, &line) };
        let is_last = is_last && self.state == State::Implicit;
        let last = last.and_then(|()| self.settle_copy());
        let outcome = last.and_then(|()| if is_last { self.commit() } else { self.wait_for_reads() });
        outcome.inspect_err(|_| self.fail())?;
        Ok(format!("COPY {}", copy.rows))
    }

    /// The client gives up a COPY. Returns the error that it is told.
    pub fn copy_fail(&mut self, reason: &str) -> Error {
        self.copy = None;
        self.fail();
        Error::new(SqlState::QUERY_CANCELED, format!("COPY from stdin failed: {reason}"))
    }

    fn copy_line(&mut self, copy: &mut CopyIn, line: &[u8]) -> Result<()> {
        copy.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if copy.is_ended || line == b"\\." {
            copy.is_ended = true;
            return Ok(());
        }
        let place = format!("COPY {}, line {}", copy.table.name, copy.line);
        let outcome = self.copy_row(copy, line);
        outcome.map_err(|error| error.context(place))?;
        copy.rows += 1;
        Ok(())
    }

    fn copy_row(&mut self, copy: &CopyIn, line: &[u8]) -> Result<()> {
        let table = &*copy.table;
        let fields = fields(binary::utf8(line)?, copy.copy.delimiter, &copy.copy.null);
        let bad = |message: String| Error::new(SqlState::BAD_COPY_FILE_FORMAT, message);
        if fields.len() > copy.columns.len() {
            return Err(bad("extra data after last expected column".into()));
        }
        if let Some(missing) = copy.columns.get(fields.len()) {
            return Err(bad(format!("missing data for column \"{}\"", table.columns[*missing].name)));
        }
        let Some(open) = &self.open else {
            return Err(Error::new(SqlState::INTERNAL_ERROR, "a COPY runs without a transaction"));
        };
        let run = Run {
            tx: &open.tx,
            parameters: &[],
            session: &self.session,
            catalog: &self.session.catalog,
            locker: &NoLocks,
            events: &open.events,
            cancel: &self.cancel,
            steps: Cell::new(0),
            work: RefCell::default(),
            stats: None,
        };
        let stopped = |stop| match stop {
            Stop::Error(error) => error,
            Stop::Blocked => Error::new(SqlState::INTERNAL_ERROR, "a COPY waits for a lock"),
        };
        let mut row = vec![Datum::Null; table.columns.len()];
        for (value, default) in row.iter_mut().zip(&copy.defaults) {
            if let Some(default) = default {
                *value = run.eval(default, &Env { row: &[], outer: None }).map_err(stopped)?;
            }
        }
        for (number, field) in copy.columns.iter().zip(fields) {
            let column = &table.columns[*number];
            let Some(field) = field else {
                row[*number] = Datum::Null;
                continue;
            };
            let place = |error: Error| {
                let shown: String = field.chars().take(100).collect();
                let (table, line, name) = (&table.name, copy.line, &column.name);
                error.context(format!("COPY {table}, line {line}, column {name}: \"{shown}\""))
            };
            let datum = text::decode(column.ty, &field).map_err(place)?;
            row[*number] = cast::fit(datum, column.ty, column.modifier, false).map_err(place)?;
        }
        run.insert(table, &row, false).map(drop).map_err(stopped)
    }
}

/// The fields of a line. `None` is null.
fn fields(line: &str, delimiter: char, null: &str) -> Vec<Option<String>> {
    let mut fields = Vec::new();
    let mut start = 0;
    let mut letters = line.char_indices();
    while let Some((place, letter)) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if letter == delimiter {
            fields.push(field(&line[start..place], null));
            start = place + delimiter.len_utf8();
        }
    }
    fields.push(field(&line[start..], null));
    fields
}

fn field(raw: &str, null: &str) -> Option<String> {
    if raw == null {
        return None;
    }
    if !raw.contains('\\') {
        return Some(raw.to_owned());
    }
    let mut found = String::new();
    let mut letters = raw.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            found.push(letter);
            continue;
        }
        match letters.next() {
            Some('b') => found.push('\u{8}'),
            Some('f') => found.push('\u{c}'),
            Some('n') => found.push('\n'),
            Some('r') => found.push('\r'),
            Some('t') => found.push('\t'),
            Some('v') => found.push('\u{b}'),
            Some('x') => {
                let mut code = 0;
                let mut count = 0;
                while count < 2
                    && let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(16))
                {
                    letters.next();
                    (code, count) = (code * 16 + digit, count + 1);
                }
                found.push(if count == 0 { 'x' } else { char::from_u32(code).unwrap_or('\u{fffd}') });
            }
            Some(first @ '0'..='7') => {
                let mut code = first.to_digit(8).unwrap_or(0);
                let mut count = 1;
                while count < 3
                    && let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(8))
                {
                    letters.next();
                    (code, count) = (code * 8 + digit, count + 1);
                }
                found.push(char::from_u32(code & 0xff).unwrap_or('\u{fffd}'));
            }
            Some(other) => found.push(other),
            None => found.push('\\'),
        }
    }
    Some(found)
}
