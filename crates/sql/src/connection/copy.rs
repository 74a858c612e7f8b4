//! COPY: rows from the client, and rows to it.
//!
//! Rows that come are added to the transaction one by one. They take no locks: a stream cannot be run again. A rival
//! that adds the same key meets a conflict at its commit, or makes this one meet it.
//!
//! A table without rows is loaded instead (`load.rs`): its rows go to pages and not to the log, so there may be more of
//! them than a transaction has. The first ones wait, because a load of few rows would cost more than they do.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::sync::Arc;

use lodestone_engine::{Row as EngineRow, TableLoad, Value};
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type, binary, cast, text};

use super::fields::{Field, Lines, each_field, write_field};
use super::session::NoLocks;
use super::transaction::State;
use super::tuples::{self, Part};
use super::{Completion, Connection, Failure, OutputColumn, Sink};
use crate::catalog::types::RowChecks;
use crate::catalog::{ColumnDef, TableDef, value};
use crate::parse::ast::{CopyFormat, Modes};
use crate::run::{Env, Run, Stop, to_stored};

/// Longest line.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Rows that wait before a table is loaded.
const WAITING_ROWS_MAX: usize = 2000;

/// A COPY that takes rows.
#[derive(Debug)]
pub struct CopyIn {
    format: CopyFormat,
    table: Arc<TableDef>,
    columns: Vec<usize>,
    /// Bytes of a line that is not complete.
    rest: Vec<u8>,
    lines: Lines,
    line: u64,
    rows: u64,
    /// The line `\.` came, or the end of the binary format.
    is_ended: bool,
    /// The head of the binary format came.
    has_head: bool,
    /// Values of the columns that the lines do not have.
    defaults: Vec<Option<crate::plan::Expr>>,
    way: Way,
}

/// Where the rows go.
#[derive(Debug)]
enum Way {
    /// Into the transaction.
    Rows,
    /// Nowhere yet, with their lines: the table may be loaded.
    Waiting(Vec<(u64, EngineRow)>),
    /// Into a load.
    Load(Box<TableLoad>),
}

impl Connection {
    pub(super) fn begin_copy(
        &mut self,
        format: &CopyFormat,
        table: &Arc<TableDef>,
        columns: &[usize],
    ) -> Result<Completion, Failure> {
        self.open(Modes::default())?;
        if self.state == State::Idle {
            self.state = State::Implicit;
        }
        let types = &self.session.catalog.types;
        let has_checks = |column: &&usize| RowChecks::of(types, table.columns[**column].ty).is_some();
        if let Some(column) = columns.iter().find(has_checks) {
            let name = &table.columns[*column].name;
            return Err(Error::unsupported(format!("COPY into \"{name}\", whose rows have fields of domains")).into());
        }
        let may_load = self.may_load(table)?;
        let Some(open) = &mut self.open else { return Ok(Completion::Empty) };
        if open.is_read_only {
            let message = "cannot execute COPY FROM in a read-only transaction";
            return Err(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message).into());
        }
        open.statements += 1;
        let defaults = crate::bind::defaults(&self.session.catalog, table, columns)?;
        self.copy = Some(CopyIn {
            format: format.clone(),
            table: table.clone(),
            columns: columns.to_vec(),
            rest: Vec::new(),
            lines: Lines::default(),
            line: 0,
            rows: 0,
            is_ended: false,
            has_head: false,
            defaults,
            way: if may_load { Way::Waiting(Vec::new()) } else { Way::Rows },
        });
        Ok(Completion::CopyIn { columns: columns.len(), is_binary: format.is_binary })
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
    pub fn copy_data(&mut self, bytes: &[u8]) -> Result<()> {
        let _style = self.enter_style();
        let Some(mut copy) = self.copy.take() else { return Ok(()) };
        self.check_cancel()?;
        let outcome = if copy.rest.is_empty() {
            self.copy_lines(&mut copy, bytes).map(|used| copy.rest.extend(&bytes[used..]))
        } else {
            let mut all = std::mem::take(&mut copy.rest);
            all.extend(bytes);
            self.copy_lines(&mut copy, &all).map(|used| {
                all.drain(..used);
                copy.rest = all;
            })
        };
        outcome.inspect_err(|_| self.fail())?;
        if copy.rest.len() > LINE_BYTES_MAX {
            self.fail();
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a line of COPY is longer than 64 MiB"));
        }
        self.copy = Some(copy);
        Ok(())
    }

    /// Takes all whole lines. Returns how many bytes they have.
    fn copy_lines(&mut self, copy: &mut CopyIn, bytes: &[u8]) -> Result<usize> {
        if copy.format.is_binary {
            return self.copy_tuples(copy, bytes);
        }
        let mut used = 0;
        while let Some(end) = copy.lines.end(&bytes[used..], &copy.format) {
            self.copy_line(copy, &bytes[used..used + end])?;
            used += end + 1;
        }
        Ok(used)
    }

    /// Takes all whole rows in the binary format. Returns how many bytes they have.
    fn copy_tuples(&mut self, copy: &mut CopyIn, bytes: &[u8]) -> Result<usize> {
        let mut used = 0;
        while !copy.is_ended
            && let Some((part, length)) = tuples::next(&bytes[used..], copy.has_head)?
        {
            match part {
                Part::Head => copy.has_head = true,
                Part::End => copy.is_ended = true,
                Part::Row(count) => {
                    copy.line += 1;
                    let outcome = self.row_of_tuple(copy, &bytes[used..used + length], count);
                    let outcome = outcome.and_then(|row| self.take_row(copy, row));
                    let place = || format!("COPY {}, line {}", copy.table.name, copy.line);
                    outcome.map_err(|error| error.context(place()))?;
                    copy.rows += 1;
                }
            }
            used += length;
        }
        if copy.is_ended && used < bytes.len() {
            let message = "received copy data after EOF marker";
            return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
        }
        Ok(used)
    }

    /// Ends a COPY. `is_last`: its transaction may end as well. Returns its tag.
    ///
    /// # Errors
    /// Those of the last row, and of the commit.
    pub fn copy_done(&mut self, is_last: bool) -> Result<String> {
        let _style = self.enter_style();
        let Some(mut copy) = self.copy.take() else { return Ok(String::new()) };
        let line = std::mem::take(&mut copy.rest);
        let last = match line.is_empty() {
            true => Ok(()),
            false if copy.format.is_binary => {
                Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, "unexpected EOF in COPY data"))
            }
            false => self.copy_line(&mut copy, &line),
        };
        let last = last.and_then(|()| self.end_copy(&mut copy));
        let is_last = is_last && self.state == State::Implicit;
        let last = last.and_then(|()| self.settle_copy());
        let outcome = last.and_then(|()| if is_last { self.commit() } else { self.wait_for_reads() });
        outcome.inspect_err(|_| self.fail())?;
        Ok(format!("COPY {}", copy.rows))
    }

    /// All rows are there.
    fn end_copy(&mut self, copy: &mut CopyIn) -> Result<()> {
        match std::mem::replace(&mut copy.way, Way::Rows) {
            Way::Rows => Ok(()),
            Way::Waiting(rows) => {
                let place = |line: u64| format!("COPY {}, line {line}", copy.table.name);
                rows.into_iter()
                    .try_for_each(|(line, row)| self.add_row(copy, row).map_err(|error| error.context(place(line))))
            }
            Way::Load(load) => self.end_load(&copy.table, *load),
        }
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
        if copy.line == 1 && copy.format.has_header {
            return Ok(());
        }
        let outcome = self.row_of(copy, line).and_then(|row| self.take_row(copy, row));
        outcome.map_err(|error| error.context(format!("COPY {}, line {}", copy.table.name, copy.line)))?;
        copy.rows += 1;
        Ok(())
    }

    /// Takes a row on the way that it goes.
    fn take_row(&mut self, copy: &mut CopyIn, mut row: EngineRow) -> Result<()> {
        match &mut copy.way {
            Way::Rows => self.add_row(copy, row),
            Way::Load(load) => {
                if let Some(place) = copy.table.hidden {
                    row.0.insert(place, copy.table.next_row().into());
                }
                load.push(&row).map_err(|error| crate::run::with_names(error, &copy.table))
            }
            Way::Waiting(rows) => {
                rows.push((copy.line, row));
                if rows.len() < WAITING_ROWS_MAX {
                    return Ok(());
                }
                let rows = std::mem::take(rows);
                copy.way = match self.begin_load(&copy.table)? {
                    Some(load) => Way::Load(Box::new(load)),
                    None => Way::Rows,
                };
                rows.into_iter().try_for_each(|(_, row)| self.take_row(copy, row))
            }
        }
    }

    /// Adds a row to the transaction.
    fn add_row(&self, copy: &CopyIn, row: EngineRow) -> Result<()> {
        self.with_run(|run| run.insert_stored(&copy.table, row, false).map(drop))
    }

    /// Calls `with` with the transaction at hand, for rows that take no locks.
    fn with_run<R>(&self, with: impl FnOnce(&Run<'_>) -> Result<R, Stop>) -> Result<R> {
        let Some(open) = &self.open else {
            return Err(Error::new(SqlState::INTERNAL_ERROR, "a COPY runs without a transaction"));
        };
        let run = Run {
            tx: &open.tx,
            snapshot: None,
            replaced: &open.replaced,
            parameters: &[],
            session: &self.session,
            catalog: &self.session.catalog,
            locker: &NoLocks,
            events: &open.events,
            watch: &self.session.watch,
            steps: Cell::new(0),
            work: RefCell::default(),
            virtuals: RefCell::default(),
            subqueries: RefCell::default(),
            sides: RefCell::default(),
            stats: None,
        };
        with(&run).map_err(|stop| match stop {
            Stop::Error(error) => error,
            Stop::Blocked | Stop::Long => Error::new(SqlState::INTERNAL_ERROR, "a COPY waits for a lock"),
        })
    }

    /// The row of a line, without a hidden number.
    fn row_of(&self, copy: &CopyIn, line: &[u8]) -> Result<EngineRow> {
        let table = &*copy.table;
        let bad = |message: String| Error::new(SqlState::BAD_COPY_FILE_FORMAT, message);
        let mut row = vec![Value::Null; table.columns.len()];
        self.set_defaults(copy, &mut row)?;
        // A line without columns has no field, not an empty one.
        if copy.columns.is_empty() && line.is_empty() {
            return whole(table, row);
        }
        let mut count = 0;
        each_field(binary::utf8(line)?, &copy.format, |field| {
            let number = *copy.columns.get(count).ok_or_else(|| bad("extra data after last expected column".into()))?;
            count += 1;
            row[number] = stored(&table.columns[number], field).map_err(|(error, shown)| {
                let (name, line, column) = (&table.name, copy.line, &table.columns[number].name);
                error.context(format!("COPY {name}, line {line}, column {column}: \"{shown}\""))
            })?;
            Ok(())
        })?;
        if let Some(missing) = copy.columns.get(count) {
            return Err(bad(format!("missing data for column \"{}\"", table.columns[*missing].name)));
        }
        whole(table, row)
    }

    /// The row of a tuple in the binary format, which has `count` fields, without a hidden number.
    fn row_of_tuple(&self, copy: &CopyIn, tuple: &[u8], count: usize) -> Result<EngineRow> {
        let table = &*copy.table;
        if count != copy.columns.len() {
            let message = format!("row field count is {count}, expected {}", copy.columns.len());
            return Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message));
        }
        let mut row = vec![Value::Null; table.columns.len()];
        self.set_defaults(copy, &mut row)?;
        for (number, field) in copy.columns.iter().zip(tuples::fields(tuple)) {
            let column = &table.columns[*number];
            row[*number] = match field.map(|bytes| of_binary(column, bytes)) {
                None => Value::Null,
                Some(value) => value.map_err(|error| {
                    error.context(format!("COPY {}, line {}, column {}", table.name, copy.line, column.name))
                })?,
            };
        }
        whole(table, row)
    }

    fn set_defaults(&self, copy: &CopyIn, row: &mut [Value]) -> Result<()> {
        for (number, default) in copy.defaults.iter().enumerate() {
            let Some(default) = default else { continue };
            let datum = self.with_run(|run| run.eval(default, &Env { row: &[], outer: None }))?;
            row[number] = value::to_stored(&copy.table.columns[number], datum)?;
        }
        Ok(())
    }
}

/// The value of a field in the binary format, for the engine.
fn of_binary(column: &ColumnDef, bytes: &[u8]) -> Result<Value> {
    let datum = binary::decode(column.ty, bytes)?;
    value::to_stored(column, cast::fit(datum, column.ty, column.modifier, false)?)
}

/// The row, whose columns that take no null have a value.
fn whole(table: &TableDef, row: Vec<Value>) -> Result<EngineRow> {
    let mut columns = table.columns.iter().zip(&row);
    // The partition of a row is looked for first, and tests it then.
    if table.partition_by.is_none()
        && columns.any(|(column, value)| column.not_null && !column.is_generated && *value == Value::Null)
    {
        let data = table.columns.iter().zip(row).map(|(column, found)| value::to_datum(column, found));
        // Says which one, and shows the row.
        return to_stored(table, &data.collect::<Result<Vec<_>>>()?);
    }
    Ok(EngineRow(row))
}

/// The value of a field for the engine. An error comes with the field as it is shown.
fn stored(column: &ColumnDef, field: Field<'_>) -> Result<Value, (Error, String)> {
    let Some(field) = field else { return Ok(Value::Null) };
    if let Some(found) = plain(column, &field) {
        return Ok(found);
    }
    let convert = || {
        let datum = text::decode(column.ty, &field)?;
        value::to_stored(column, cast::fit(datum, column.ty, column.modifier, false)?)
    };
    convert().map_err(|error| (error, field.chars().take(100).collect()))
}

/// The value of a field that needs no conversion but that of digits.
fn plain(column: &ColumnDef, field: &str) -> Option<Value> {
    let is_number = field.len() < 19 && !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    match (column.ty, column.kind) {
        (Type::Int4, lodestone_engine::Type::I32) if is_number => field.parse().ok().map(Value::I32),
        (Type::Int8, lodestone_engine::Type::I64) if is_number => field.parse().ok().map(Value::I64),
        (Type::Text, lodestone_engine::Type::Text) => Some(Value::Text(field.to_owned())),
        (Type::Bpchar | Type::Varchar, lodestone_engine::Type::Text) => {
            let is_short = column.modifier < 4
                || field.is_ascii() && i32::try_from(field.len()).is_ok_and(|length| length <= column.modifier - 4);
            let is_padded = column.ty == Type::Bpchar && field.ends_with(' ');
            // A blank is one byte, so this is a border of letters.
            let end = if is_padded {
                field.bytes().rposition(|byte| byte != b' ').map_or(0, |last| last + 1)
            } else {
                field.len()
            };
            is_short.then(|| Value::Text(field[..end].to_owned()))
        }
        _ => None,
    }
}

/// Gives the rows of a COPY to a sink, as lines.
pub struct CopyOut<'o> {
    sink: &'o mut dyn Sink,
    format: &'o CopyFormat,
    line: String,
    field: String,
    /// A row in the binary format.
    tuple: Vec<u8>,
}

impl<'o> CopyOut<'o> {
    /// Begins a COPY of rows with these columns.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn begin(sink: &'o mut dyn Sink, format: &'o CopyFormat, columns: &[OutputColumn]) -> Result<Self> {
        sink.copy_out(columns.len(), format.is_binary)?;
        let mut found = Self { sink, format, line: String::new(), field: String::new(), tuple: Vec::new() };
        if format.is_binary {
            // The head leaves with the first row, or with the end.
            tuples::put_head(&mut found.tuple);
        }
        if format.has_header {
            for (number, column) in columns.iter().enumerate() {
                write_field(&mut found.line, Some(&column.name), number == 0, columns.len() == 1, format);
            }
            found.send()?;
        }
        Ok(found)
    }

    fn send(&mut self) -> Result<()> {
        self.line.push('\n');
        let outcome = self.sink.copy_line(self.line.as_bytes());
        self.line.clear();
        outcome
    }

    /// Gives a row.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn row(&mut self, row: &[Datum], columns: &[OutputColumn]) -> Result<&mut dyn Sink> {
        if self.format.is_binary {
            tuples::put_row(&mut self.tuple, row, columns)?;
            self.sink.copy_line(&self.tuple)?;
            self.tuple.clear();
            return Ok(&mut *self.sink);
        }
        for (number, (datum, column)) in row.iter().zip(columns).enumerate() {
            self.field.clear();
            match datum {
                Datum::Int(value) if column.ty.is_integer() => _ = write!(self.field, "{value}"),
                datum => text::write_to(column.ty, datum, &mut self.field),
            }
            let field = (!datum.is_null()).then_some(&*self.field);
            write_field(&mut self.line, field, number == 0, columns.len() == 1, self.format);
        }
        self.send()?;
        Ok(&mut *self.sink)
    }

    /// All rows were given.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn end(mut self) -> Result<()> {
        if self.format.is_binary {
            tuples::put_end(&mut self.tuple);
            self.sink.copy_line(&self.tuple)?;
        }
        self.sink.copy_end();
        Ok(())
    }
}
