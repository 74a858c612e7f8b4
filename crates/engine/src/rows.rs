//! Reading a range of a tree, from its first key or from its last.
//!
//! 1. The slots of one leaf are looked up at a time: first a few, then more. When the leaf has changed since, the rest
//!    is looked up again.
//! 2. A row is read when it is asked for. First the range that the transaction has read grows by the keys up to it, and
//!    only then its version is accepted. So when that is later than the reads before, their validation also finds
//!    rows that were added among these keys.
//! 3. Own changes are merged in when a row is asked for. So a closure may change rows of the range while it reads it.
//!
//! A snapshot notes nothing. Every row that it sees had a slot when it began, and keeps it. So one look at a leaf is
//! enough, also when the leaf changes or is split meanwhile.
//!
//! Of a table on several nodes the leaves may come from readers on these nodes: see `ahead.rs`.

use std::ops::Bound;
use std::sync::Arc;

use crate::ahead::Readers;
use crate::error::Result;
use crate::key::after;
use crate::reader::{Moment, View};
use crate::snapshot::Snapshot;
use crate::state::{Range, State};
use crate::table::Table;
use crate::tree::{Bytes, Segment, Slot, Tree};
use crate::tx::Tx;
use crate::value::Row;

/// The rows of a range, in the order of their keys: see [`Table::range`].
///
/// The transaction may change rows of the range while it reads it.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let events = db.create_table(&Schema::new("events").column("second", Type::U64).key(["second"]))?;
/// db.update(|tx| (0..10_u64).try_for_each(|second| events.put(tx, &row![second])))?;
/// let latest = db.update(|tx| events.range(tx, ..)?.rev().take(2).collect::<Result<Vec<_>, _>>())?;
/// assert_eq!(latest, [row![9_u64], row![8_u64]]);
/// db.update(|tx| {
///     for row in events.range(tx, ..row![8_u64])? {
///         events.delete(tx, &row?)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(db.update(|tx| Ok(events.range(tx, ..)?.count()))?, 2);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Rows<'t> {
    table: &'t Table,
    cursor: Cursor<'t>,
}

impl<'t> Rows<'t> {
    pub(crate) fn new(view: View<'t>, table: &'t Table, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        Self { table, cursor: Cursor::new(Moment::of(view), &table.tree, from, to) }
    }

    /// The same rows, from the last key to the first. Call it before the first row is asked for.
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.cursor.reverse();
        self
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        let row = self.cursor.step().and_then(|found| {
            let Some((key, payload)) = found else { return Ok(None) };
            self.table.decode(self.cursor.moment(), &key, &payload).map(Some)
        });
        if row.is_err() {
            self.cursor.end();
        }
        row.transpose()
    }
}

/// The keys and payloads of a range of a tree, in the order of the keys.
#[derive(Debug)]
pub struct Cursor<'t> {
    moment: Moment<'t>,
    tree: &'t Arc<Tree>,
    /// The first key that is left.
    from: Vec<u8>,
    /// The end of the keys that are left, exclusive. `None`: no end.
    to: Option<Vec<u8>>,
    is_reversed: bool,
    is_done: bool,
    part: Option<Part>,
    /// Most rows of the next part.
    part_rows_max: usize,
    readers: Readers,
}

/// Most rows of the first part. Each later one may have twice as many as the one before. A reader of one row
/// should not pay for a leaf.
const FIRST_PART_ROWS: usize = 4;

/// The rest of a leaf.
#[derive(Debug)]
struct Part {
    segment: Segment,
    /// Slots of the segment that were passed, in the direction of the range.
    passed: usize,
    /// Number of the transaction's range that grows with the passed keys.
    range: Option<usize>,
}

impl Part {
    fn of(segment: Segment) -> Self {
        Self { segment, passed: 0, range: None }
    }

    fn next(&self, is_reversed: bool) -> Option<(Bytes, Arc<Slot>)> {
        let slots = &self.segment.slots;
        let number = if is_reversed { slots.len().checked_sub(self.passed + 1)? } else { self.passed };
        slots.get(number).map(|slot| (slot.key().clone(), slot.clone()))
    }

    fn may_hold(&self, key: &[u8]) -> bool {
        key >= &self.segment.from[..] && self.segment.to.as_deref().is_none_or(|to| key < to)
    }
}

impl<'t> Cursor<'t> {
    pub fn new(moment: Moment<'t>, tree: &'t Arc<Tree>, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Self {
        let (mut is_done, mut first, mut end) = (false, Vec::new(), None);
        match from {
            Bound::Unbounded => {}
            Bound::Included(key) => first = key,
            Bound::Excluded(key) => match after(&key) {
                Some(key) => first = key,
                None => is_done = true,
            },
        }
        match to {
            Bound::Unbounded => {}
            Bound::Included(key) => end = after(&key),
            Bound::Excluded(key) => end = Some(key),
        }
        is_done |= end.as_ref().is_some_and(|end| *end <= first);
        let readers = Readers::of(moment.view.core());
        Self {
            moment,
            tree,
            from: first,
            to: end,
            is_reversed: false,
            is_done,
            part: None,
            part_rows_max: FIRST_PART_ROWS,
            readers,
        }
    }

    /// Turns the direction, unless a key was passed.
    pub fn reverse(&mut self) {
        self.is_reversed ^= self.part.is_none();
        if self.is_reversed {
            // They go forward.
            self.readers = Readers::None;
        }
    }

    /// There is nothing more.
    pub fn end(&mut self) {
        self.is_done = true;
        self.readers = Readers::None;
    }

    /// The next key and its payload; `None` at the end. After an error there is nothing more: the transaction cannot
    /// go on.
    pub fn step(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        let found = match self.moment.view {
            View::Tx(tx) => self.step_in(tx),
            View::Snapshot(snapshot) => self.step_through(snapshot),
        };
        if !matches!(found, Ok(Some(_))) {
            self.end();
        }
        found
    }

    /// The moment that it reads.
    pub fn moment(&self) -> &Moment<'t> {
        &self.moment
    }

    fn step_through(&mut self, snapshot: &Snapshot) -> Result<Option<(Bytes, Bytes)>> {
        while !self.is_done {
            let part = match self.part.take() {
                Some(part) => part,
                None => {
                    let part = Part::of(self.segment()?);
                    snapshot.wait_purged(part.segment.look.purged())?;
                    part
                }
            };
            let part = self.part.insert(part);
            let Some((key, slot)) = part.next(self.is_reversed) else {
                self.leave();
                continue;
            };
            part.passed += 1;
            let found = snapshot.get_slot(self.tree, &key, &slot)?;
            self.pass(&key);
            if let Some(payload) = found {
                return Ok(Some((key, payload)));
            }
        }
        Ok(None)
    }

    fn step_in(&mut self, tx: &Tx) -> Result<Option<(Bytes, Bytes)>> {
        while !self.is_done {
            let mut state = tx.live_state()?;
            let part = match self.part.take() {
                Some(part) if part.segment.look.is_current() => part,
                _ => {
                    let part = Part::of(self.segment()?);
                    state.learn_floor(&tx.core, &part.segment.look)?;
                    part
                }
            };
            let part = self.part.insert(part);
            let slot = part.next(self.is_reversed);
            let own = own_change(self.tree, &state, &self.from, self.to.as_deref(), self.is_reversed);
            let own = own.filter(|(key, _)| part.may_hold(key)).filter(|(key, _)| {
                slot.as_ref().is_none_or(|(other, _)| if self.is_reversed { key >= other } else { key <= other })
            });
            let found = match (own, slot) {
                (Some((key, payload)), slot) => {
                    let slot = slot.filter(|(other, _)| *other == key).map(|(_, slot)| slot);
                    grow(self.tree, &mut state, part, Some(&key), slot, self.is_reversed);
                    Some((key, payload))
                }
                (None, Some((key, slot))) => {
                    grow(self.tree, &mut state, part, Some(&key), Some(slot.clone()), self.is_reversed);
                    let tree = self.tree;
                    let payload = match &self.moment.statement {
                        Some(cut) => state.accept_for_statement(tree, &key, cut.read_slot(tree, &key, &slot)?),
                        None => state.read_slot(&tx.core, tree, &key, &slot)?,
                    };
                    Some((key, payload))
                }
                (None, None) => {
                    grow(self.tree, &mut state, part, None, None, self.is_reversed);
                    None
                }
            };
            drop(state);
            match found {
                Some((key, payload)) => {
                    self.pass(&key);
                    if let Some(payload) = payload {
                        return Ok(Some((key, payload)));
                    }
                }
                None => self.leave(),
            }
        }
        Ok(None)
    }

    /// The rest of the next leaf.
    fn segment(&mut self) -> Result<Segment> {
        let (tree, from, to, rows_max) = (self.tree, &self.from, self.to.as_deref(), self.part_rows_max);
        self.part_rows_max = rows_max.saturating_mul(2);
        if let Some(found) = self.readers.take(self.moment.view.core(), tree, (from, to))? {
            return Ok(found);
        }
        if self.is_reversed { tree.last_segment(from, to, rows_max) } else { tree.first_segment(from, to, rows_max) }
    }

    /// Goes on after `key`.
    fn pass(&mut self, key: &[u8]) {
        if self.is_reversed {
            copy(self.to.get_or_insert_default(), key);
        } else {
            copy_after(&mut self.from, key);
        }
    }

    /// Goes on in the next leaf.
    fn leave(&mut self) {
        let Some(part) = self.part.take() else { return };
        match (self.is_reversed, part.segment.to) {
            (true, _) => self.to = Some(part.segment.from),
            (false, Some(end)) => self.from = end,
            (false, None) => self.is_done = true,
        }
        self.is_done |= self.to.as_ref().is_some_and(|to| *to <= self.from);
    }
}

fn copy(into: &mut Vec<u8>, key: &[u8]) {
    into.clear();
    into.extend_from_slice(key);
}

/// Puts the first possible key after `key` into the buffer.
fn copy_after(into: &mut Vec<u8>, key: &[u8]) {
    copy(into, key);
    into.push(0);
}

/// The first own change of the range, in its direction.
fn own_change(
    tree: &Arc<Tree>,
    state: &State,
    from: &[u8],
    to: Option<&[u8]>,
    is_reversed: bool,
) -> Option<(Bytes, Option<Bytes>)> {
    if to.is_some_and(|to| to <= from) {
        return None;
    }
    let rows = &state.changes.get(&tree.number)?.rows;
    let mut rows = rows.range::<[u8], _>((Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded)));
    let (key, payload) = if is_reversed { rows.next_back() } else { rows.next() }?;
    Some((key.clone(), payload.clone()))
}

/// The transaction has read the keys of the part up to `key`, or all of them, and passes `slot`.
fn grow(
    tree: &Arc<Tree>,
    state: &mut State,
    part: &mut Part,
    key: Option<&[u8]>,
    slot: Option<Arc<Slot>>,
    is_reversed: bool,
) {
    let Segment { look, from, to, .. } = &part.segment;
    let number = *part.range.get_or_insert_with(|| {
        let (tree, look, slots) = (tree.clone(), look.clone(), Vec::new());
        state.push_range(Range { tree, look, from: from.clone(), to: to.clone(), slots, is_reversed });
        state.ranges.len() - 1
    });
    let range = &mut state.ranges[number];
    match (is_reversed, key) {
        (true, Some(key)) => copy(&mut range.from, key),
        (true, None) => range.from.clone_from(from),
        (false, Some(key)) => copy_after(range.to.get_or_insert_default(), key),
        (false, None) => range.to.clone_from(to),
    }
    part.passed += usize::from(slot.is_some());
    range.slots.extend(slot);
}
