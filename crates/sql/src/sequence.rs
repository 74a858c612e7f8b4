//! Sequences: numbers that no transaction takes back.
//!
//! ```text
//! lodestone_sequences: key (state i64), value i64, is_called bool
//! ```
//!
//! 1. A sequence has a state: the last number that may have been given, and whether it was. A range of numbers is
//!    *logged ahead*: the state says its last one before the first of them is given. The numbers of a range are given
//!    from DRAM.
//! 2. The state changes in a transaction of its own, so a rollback gives no number back. Its record is durable before
//!    an answer with a number of the range leaves: the connection waits for its ticket, as for rows.
//! 3. After a crash the rest of a range is lost, and no number comes twice.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lodestone_engine::{Database, Error as EngineError, Ticket, row};
use lodestone_sql_types::{Error, Result, SqlState};

use crate::catalog::SequenceDef;
use crate::catalog::store::SEQUENCES;
use crate::errors::from_engine;

/// Numbers that are logged at once.
const RANGE: i64 = 32;

/// A sequence in this process.
#[derive(Debug)]
struct Sequence {
    /// The number that was given last, or comes first.
    last: i64,
    is_called: bool,
    /// How many numbers may be given before the next range.
    left: i64,
    /// Whether the state on the medium is known to be durable.
    is_durable: bool,
}

/// The sequences of a database, by the numbers of their states.
#[derive(Debug, Default)]
pub struct Sequences(Mutex<HashMap<i64, Sequence>>);

fn limit(sequence: &SequenceDef) -> Error {
    let (what, value) =
        if sequence.increment > 0 { ("maximum", sequence.maximum) } else { ("minimum", sequence.minimum) };
    let message = format!("nextval: reached {what} value of sequence \"{}\" ({value})", sequence.name);
    Error::new(SqlState::SEQUENCE_LIMIT_EXCEEDED, message)
}

/// The number after `last`.
fn next(sequence: &SequenceDef, last: i64) -> Option<i64> {
    let found = last.checked_add(sequence.increment);
    let found = found.filter(|found| (sequence.minimum..=sequence.maximum).contains(found));
    let first = if sequence.increment > 0 { sequence.minimum } else { sequence.maximum };
    found.or(sequence.is_cycle.then_some(first))
}

fn put(engine: &Database, state: i64, (value, is_called): (i64, bool)) -> Result<Ticket<()>> {
    let table = engine.table(SEQUENCES).map_err(from_engine)?;
    engine.update_async(|tx| table.put(tx, &row![state, value, is_called])).map_err(from_engine)
}

/// A state that gives `start` next.
///
/// # Errors
/// Those of the engine.
pub fn begin(engine: &Database, state: i64, start: i64) -> Result<()> {
    put(engine, state, (start, false))?.durable().map(drop).map_err(from_engine)
}

impl Sequences {
    fn all(&self) -> MutexGuard<'_, HashMap<i64, Sequence>> {
        // A panic elsewhere leaves a sequence whole: a number was given, or not.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread has panicked while it changed one.
    pub fn is_broken(&self) -> bool {
        self.0.is_poisoned()
    }

    /// The next number, and a ticket for which the answer waits.
    ///
    /// # Errors
    /// 2200H; those of the engine.
    pub fn next(&self, engine: &Database, sequence: &SequenceDef) -> Result<(i64, Option<Ticket<()>>)> {
        let mut all = self.all();
        let found = Self::find(&mut all, engine, sequence)?;
        let value = match found.is_called {
            true => next(sequence, found.last).ok_or_else(|| limit(sequence))?,
            false => found.last,
        };
        if found.left > 0 {
            (found.last, found.is_called, found.left) = (value, true, found.left - 1);
            return Ok((value, found.ticket(engine, sequence.state)?));
        }
        // The last number of the range is in the state before the first one is given.
        let (mut end, mut count) = (value, 0);
        while count < RANGE - 1
            && let Some(further) = next(sequence, end)
        {
            (end, count) = (further, count + 1);
        }
        let ticket = put(engine, sequence.state, (end, true))?;
        (found.last, found.is_called, found.left) = (value, true, count);
        found.is_durable = ticket.is_durable();
        Ok((value, Some(ticket)))
    }

    /// Sets the number that was given last, or comes next.
    ///
    /// # Errors
    /// 22003; those of the engine.
    pub fn set(
        &self,
        engine: &Database,
        sequence: &SequenceDef,
        (value, is_called): (i64, bool),
    ) -> Result<Ticket<()>> {
        if !(sequence.minimum..=sequence.maximum).contains(&value) {
            let (name, least, most) = (&sequence.name, sequence.minimum, sequence.maximum);
            let message = format!("setval: value {value} is out of bounds for sequence \"{name}\" ({least}..{most})");
            return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        let mut all = self.all();
        let ticket = put(engine, sequence.state, (value, is_called))?;
        let is_durable = ticket.is_durable();
        all.insert(sequence.state, Sequence { last: value, is_called, left: 0, is_durable });
        Ok(ticket)
    }

    /// The number that was given last, or comes first, and whether it was given.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn value(&self, engine: &Database, sequence: &SequenceDef) -> Result<(i64, bool)> {
        let mut all = self.all();
        let found = Self::find(&mut all, engine, sequence)?;
        Ok((found.last, found.is_called))
    }

    fn find<'a>(
        all: &'a mut HashMap<i64, Sequence>,
        engine: &Database,
        sequence: &SequenceDef,
    ) -> Result<&'a mut Sequence> {
        let place = match all.entry(sequence.state) {
            Entry::Occupied(found) => return Ok(found.into_mut()),
            Entry::Vacant(place) => place,
        };
        let read = || -> lodestone_engine::Result<Option<(i64, bool)>> {
            let table = match engine.table(SEQUENCES) {
                Err(EngineError::NoTable { .. }) => return Ok(None),
                table => table?,
            };
            let row = engine.update(|tx| table.get(tx, &row![sequence.state]))?;
            Ok(row.and_then(|row| Some((row[1].as_i64()?, row[2].as_bool()?))))
        };
        let (last, is_called) = read().map_err(from_engine)?.unwrap_or((sequence.start, false));
        // The reading transaction has waited until what it saw was durable.
        Ok(place.insert(Sequence { last, is_called, left: 0, is_durable: true }))
    }
}

impl Sequence {
    /// A ticket for the range that a number is of, if it may not be durable yet.
    fn ticket(&mut self, engine: &Database, state: i64) -> Result<Option<Ticket<()>>> {
        if self.is_durable {
            return Ok(None);
        }
        let table = engine.table(SEQUENCES).map_err(from_engine)?;
        let tx = engine.begin();
        table.get(&tx, &row![state]).map_err(from_engine)?;
        let ticket = tx.seen().map_err(from_engine)?;
        self.is_durable = ticket.is_durable();
        Ok(Some(ticket))
    }
}
