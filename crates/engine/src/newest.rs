//! A row as it is now: a transaction of one read.
//!
//! It has nothing to validate: whatever version is the newest one at the moment of the look is true at that moment. So
//! it needs no memory of a transaction. The table is looked at after the row. If it is the one that the handle knows,
//! it was so at the moment of the look as well, since no version comes back.

use lodestone_pmem::sync::spin;
use lodestone_txn::{RowState, Tick};

use crate::durability::Point;
use crate::error::{Error, Result};
use crate::payload;
use crate::table::Table;
use crate::ticket::Ticket;
use crate::tree::{Bytes, Lookup};
use crate::value::Value;

/// The answer of [`Table::newest`].
#[derive(Debug)]
#[must_use = "the answer may not be durable yet"]
pub enum Newest {
    /// The row is there. The answer is durable when the ticket is; `None`: it is so already.
    Found(Option<Ticket<()>>),
    /// There is no such row.
    Nothing(Option<Ticket<()>>),
    /// It takes a transaction to read it: the table has changed since the handle was made, or values are in pieces.
    Elsewhere,
}

impl Table {
    /// The newest committed row with this key, without a transaction: as if one of its own had read it. The values of
    /// the columns with these numbers are added to `values`, in that order.
    ///
    /// # Errors
    /// [`Error::WrongType`] and [`Error::WrongLength`] for a key of other columns; [`Error::Damaged`];
    /// [`Error::Poisoned`].
    ///
    /// ```
    /// use lodestone_engine::{Database, DatabaseOptions, Error, Newest, Schema, Value, row};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let options =
    /// #     DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
    /// let db = Database::open_with(&path, &options)?;
    /// let users = db.create_table(&"users (id u64, town text, age i64) key (id)".parse::<Schema>()?)?;
    /// db.update(|tx| users.put(tx, &row![7_u64, "Oslo", 40_i64]))?;
    /// let mut values = Vec::new();
    /// assert!(matches!(users.newest(&row![7_u64], &[2, 0], &mut values)?, Newest::Found(_)));
    /// assert_eq!(values, [Value::I64(40), Value::U64(7)]);
    /// assert!(matches!(users.newest(&row![8_u64], &[2], &mut values)?, Newest::Nothing(_)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn newest(&self, key: &[Value], columns: &[usize], values: &mut Vec<Value>) -> Result<Newest> {
        let (core, definition) = (self.core(), self.definition());
        let bytes = definition.schema.key_bytes(&definition.layout, key, false)?;
        let (payload, point) = self.newest_payload(&bytes)?;
        let is_same = definition.origin.as_ref().is_none_or(|origin| origin.slot.word().same_version(origin.word));
        if !is_same || payload.as_deref().is_some_and(payload::has_moved) {
            return Ok(Newest::Elsewhere);
        }
        let ticket = (point.flushed != Default::default() || point.epoch != 0).then(|| Ticket::new(core, point, ()));
        let ticket = ticket.filter(|ticket| !ticket.is_durable());
        let Some(payload) = payload else { return Ok(Newest::Nothing(ticket)) };
        let layout = &definition.layout;
        let damaged = || self.damaged(format!("the row with the key `{}` makes no sense", bytes.escape_ascii()));
        for number in columns {
            let value = match layout.key.iter().position(|column| column == number) {
                Some(place) => key[place].clone(),
                None => layout.decode_column(&payload, *number).ok_or_else(damaged)?,
            };
            values.push(value);
        }
        Ok(Newest::Found(ticket))
    }

    /// The newest payload, and where the answer is durable.
    fn newest_payload(&self, key: &[u8]) -> Result<(Option<Bytes>, Point)> {
        let core = self.core();
        let base = core.timeline.base();
        for turn in 0.. {
            core.refuse_if_poisoned()?;
            match self.tree.find(key)? {
                Lookup::Nothing(look) => {
                    let point = match () {
                        () if !core.answers_wait() => Point::default(),
                        // No word is left of the row that was deleted.
                        () if look.floor() > Tick::NEVER => core.present_point(),
                        () => Point { flushed: look.purged(), ..Point::default() },
                    };
                    return Ok((None, point));
                }
                Lookup::Slot(slot) => {
                    let Some((word, payload)) = slot.read() else {
                        // A commit is under way, or the slot was purged.
                        spin(turn);
                        continue;
                    };
                    if word.state() == RowState::Pending {
                        core.wait_settled(&slot, word)?;
                    }
                    let (version, is_waited) = (word.version(), core.answers_wait());
                    let is_own_life = version.tick(base) > base;
                    let point = match is_waited && is_own_life {
                        true => core.point_of(version.writer().index(), version.tick(base)),
                        false => Point::default(),
                    };
                    return Ok(((!word.is_absent()).then_some(payload), point));
                }
            }
        }
        Err(Error::Conflict)
    }
}
