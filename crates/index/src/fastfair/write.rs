//! Changing one leaf: insert, update, remove, the split of a line, and the repair after a crash.
//!
//! Every change happens under the leaf's lock and is persistent before the lock is released. The intermediate states on
//! the medium:
//!
//! - *Insert*: the words of a slot that does not count, then the meta word, in one line. Before or after.
//! - *Update* of a word: the meta word with the slot marked pending (its value not covered by the checksum), the value,
//!   the meta word without the mark, in one line. Old or new, and a leftover mark is harmless.
//! - *Remove*: the meta word.
//! - *Split of a line*: the free line, fence, the order word, fence, the old line without the moved entries (and with
//!   the new entry, if it belongs there). In between the moved entries are present twice, equal. When the only free
//!   line is an empty one, an order word without it comes first.

use lodestone_heap::Action;
use lodestone_pmem::{Domain, LINE_BYTES, PmAddr, WORD_BYTES, checked, planted};

use crate::change::Change;
use crate::error::{Error, Result, committed};
use crate::fastfair::FastFair;
use crate::fastfair::keys;
use crate::fastfair::node::{Entry, EntryList, Header, Line, SLOTS, order_payload};
use crate::fastfair::read::{Place, Step, Target};
use crate::layout::KEY_BYTES_MAX;
use crate::map::{Durability, limit};
use crate::traits::IndexKey;

/// Tries of a change before the tree is taken for damaged: each but the last lost against a change of others, or made
/// room.
const TRIES_MAX: usize = 20_000;

/// The result of a change.
enum Outcome {
    /// The value before is in two fields: as an `Option` it would be read back in one piece from memory to which it was
    /// written in two, and the processor would wait for that until the lines flushed before have left it.
    Done { found: bool, before: u64, changed: bool, is_small: bool },
    /// The leaf does not cover the key any more.
    Moved,
    /// There is no room in the leaf.
    Full,
    /// The line made room: try again.
    Again,
}

impl<K: IndexKey + ?Sized> FastFair<K> {
    /// Does with `key` as `decide` says, given its value; `new` is the value to set. Returns the value before.
    pub(super) fn change(&self, key: &K, new: u64, decide: impl Fn(Option<u64>) -> Change) -> Result<Option<u64>> {
        limit("key", key.key_bytes(), KEY_BYTES_MAX)?;
        if self.heap.memory().is_read_only() {
            return Err(Error::ReadOnly { path: self.heap.pool().path().to_owned(), what: "a change" });
        }
        let (mut collected, mut takes_hint) = (false, true);
        for _ in 0..TRIES_MAX {
            let outcome = self.change_once(key, new, &decide, takes_hint);
            takes_hint = false;
            match outcome {
                Ok(Outcome::Done { found, before, changed, is_small }) => {
                    if is_small {
                        self.merge_at(key);
                    }
                    if changed && self.durability == Durability::Sync {
                        self.heap.memory().durable()?;
                    } else if !changed && self.heap.memory().domain() == Domain::Block {
                        // The answer depends on another thread's write.
                        self.lookup(key)?;
                    }
                    return Ok(found.then_some(before));
                }
                Ok(Outcome::Full) => {
                    let split = self.split_at(key);
                    match split {
                        Err(error) if error.is_full() && !collected => {
                            collected = true;
                            self.readers.collect();
                        }
                        other => other?,
                    }
                    // The guide knows of the new leaf.
                    takes_hint = true;
                }
                Ok(Outcome::Moved | Outcome::Again) => {}
                // The missing room may be in blocks that wait for readers.
                Err(error) if error.is_full() && !collected => {
                    collected = true;
                    self.readers.collect();
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.medium().damaged(self.root(), "tree", "never has room where the key belongs"))
    }

    /// `takes_hint`: the leaf that the guide names is locked without a look at it first.
    #[inline]
    fn change_once(
        &self,
        key: &K,
        new: u64,
        decide: &impl Fn(Option<u64>) -> Change,
        takes_hint: bool,
    ) -> Result<Outcome> {
        let medium = self.medium();
        let _pin = self.readers.pin();
        let leaf = match self.hint(Target::At(key)).filter(|_| takes_hint) {
            Some(leaf) => leaf,
            None => self.at_leaf(Target::At(key), |header| Ok(header.at.0))?,
        };
        let _locked = self.stripes.lock_one(leaf);
        let mut header = Header::load_leaf(medium, leaf)?;
        if !matches!(self.covers(&header, Target::At(key))?, Step::Here(())) {
            return Ok(Outcome::Moved);
        }
        header.verify_places(medium)?;
        self.repair(&mut header)?;
        let place = self.locate(&header, key)?;
        match &place.line {
            Some((_, line)) if place.found => self.change_found(&header, line, place.rank, new, decide),
            _ => {
                if decide(None) == Change::Put {
                    return self.insert_entry(&header, &place, key, new);
                }
                Ok(Outcome::Done { found: false, before: 0, changed: false, is_small: false })
            }
        }
    }

    fn change_found(
        &self,
        header: &Header,
        line: &Line,
        index: usize,
        new: u64,
        decide: &impl Fn(Option<u64>) -> Change,
    ) -> Result<Outcome> {
        let medium = self.medium();
        let entry = line.entry(index);
        let before = keys::value_of::<K>(medium, entry)?;
        let mut is_small = false;
        match decide(Some(before)) {
            Change::Keep => return Ok(Outcome::Done { found: true, before, changed: false, is_small }),
            Change::Put if K::IS_WORD => self.set_word(line, line.slot(index), new),
            Change::Put => keys::set_block_value(medium, PmAddr::from_raw(entry.1), new)?,
            Change::Remove => {
                self.remove_entry(header, line, index, entry)?;
                is_small = line.count() == 1 && self.is_small(header);
            }
        }
        Ok(Outcome::Done { found: true, before, changed: true, is_small })
    }

    /// Whether a leaf in which a line has become empty should try to join a sibling: when at most a quarter of its
    /// lines hold entries.
    fn is_small(&self, header: &Header) -> bool {
        let lines = (0..header.order.count()).filter(|at| header.load_line(self.medium(), *at).count() > 0).count();
        lines <= header.lines / 4
    }

    fn set_word(&self, line: &Line, slot: usize, value: u64) {
        let memory = self.heap.memory();
        let mut line = *line;
        let order = line.slot_order();
        if !planted::active("fastfair-update-not-pending") {
            memory.store(line.at, line.meta(order, Some(slot)));
        }
        // In one line, in this order: no fence between them.
        memory.store(line.slot_at(slot).plus(8), value);
        line.words[2 + 2 * slot] = value;
        memory.store(line.at, line.meta(order, None));
        // The leaf's version may not tell readers of the value before it is persistent.
        memory.persist(line.at, LINE_BYTES);
    }

    fn remove_entry(&self, header: &Header, line: &Line, index: usize, entry: Entry) -> Result<()> {
        let memory = self.heap.memory();
        let meta = line.meta(line.order_without(index), None);
        if K::IS_WORD {
            memory.store(line.at, meta);
            let flushed = if planted::active("fastfair-remove-flushes-wrong-line") { header.at.0 } else { line.at };
            // As for an update.
            memory.persist(flushed, LINE_BYTES);
            return Ok(());
        }
        let mut action = self.heap.action();
        action.set(line.at, meta);
        action.free(PmAddr::from_raw(entry.1))?;
        let (freed, outcome) = action.commit_keeping();
        self.readers.retire(freed);
        Ok(outcome?)
    }

    /// Puts a key that is not there into the leaf.
    fn insert_entry(&self, header: &Header, place: &Place, key: &K, value: u64) -> Result<Outcome> {
        let done = Ok(Outcome::Done { found: false, before: 0, changed: true, is_small: false });
        // Into the line that covers the key, or, when it is after all of that line's keys, into the next one.
        let (position, line, rank) = match &place.line {
            Some((position, line)) => (*position, Some(*line), place.rank),
            None if header.order.count() > 0 => (0, Some(header.verified_line(self.medium(), 0)?), 0),
            None => (0, None, 0),
        };
        if let Some(line) = line {
            if let Some(slot) = line.free_slot() {
                self.fill_slot(&line, rank, slot, key, value)?;
                return done;
            }
            if rank == SLOTS && position + 1 < header.order.count() {
                let next = header.verified_line(self.medium(), position + 1)?;
                if let Some(slot) = next.free_slot() {
                    self.fill_slot(&next, 0, slot, key, value)?;
                    return done;
                }
            }
        }
        let Some((header, position, free)) = self.free_line(header, position) else { return Ok(Outcome::Full) };
        let entry = (key.order_word(), value);
        let Some(line) = line else {
            return self.add_line(&header, 0, free, key, entry).and(done);
        };
        if rank == SLOTS {
            // After all of a full line: into its own line, so that ascending keys fill their lines.
            return self.add_line(&header, position + 1, free, key, entry).and(done);
        }
        self.split_line(&header, position, &line, free, rank, entry);
        if K::IS_WORD { done } else { Ok(Outcome::Again) }
    }

    /// A line of the leaf that is nowhere in its order, if need be an empty one that is taken out of it first: the
    /// header with the order without it, `position` as it is in that order, and the line.
    fn free_line(&self, header: &Header, position: usize) -> Option<(Header, usize, usize)> {
        if let Some(free) = header.order.free_line(header.lines) {
            return Some((*header, position, free));
        }
        let (medium, memory) = (self.medium(), self.heap.memory());
        let empty =
            (0..header.order.count()).find(|at| *at != position && header.load_line(medium, *at).count() == 0)?;
        let mut without = *header;
        without.order = header.order.without(empty);
        if !planted::active("fastfair-empty-line-in-order") {
            memory.store(header.at.order(), checked::encode(header.at.order(), order_payload(without.order)));
            // The line may not be written anew before the order that lacks it is persistent: its new entries would
            // be at its old place, among keys that they are not between.
            memory.persist(header.at.order(), WORD_BYTES);
        }
        Some((without, position - usize::from(empty < position), header.order.line(empty)))
    }

    /// Writes an entry into a slot that does not count, and publishes it as entry `rank` of its line.
    fn fill_slot(&self, line: &Line, rank: usize, slot: usize, key: &K, value: u64) -> Result<()> {
        let memory = self.heap.memory();
        let mut line = *line;
        let order = line.order_with(rank, slot);
        let at = line.slot_at(slot);
        let mut action = if K::IS_WORD { None } else { Some(self.heap.action()) };
        let word = match &mut action {
            None => value,
            Some(action) => self.new_block(action, key, value)?.to_raw(),
        };
        (line.words[1 + 2 * slot], line.words[2 + 2 * slot]) = (key.order_word(), word);
        let meta = line.meta(order, None);
        if planted::active("fastfair-meta-before-entry") {
            memory.store(line.at, meta);
        }
        memory.store(at, key.order_word());
        memory.store(at.plus(8), word);
        let Some(mut action) = action else {
            // In the same line, after the entry: no fence between them.
            memory.store(line.at, meta);
            // The leaf's version may not tell readers of the entry before it is persistent.
            memory.persist(line.at, LINE_BYTES);
            return Ok(());
        };
        // The meta word may not overtake the entry and its block: the action's first fence comes between.
        memory.flush(line.at, LINE_BYTES);
        action.set(line.at, meta);
        committed(action.commit()).1
    }

    /// Reserves and writes the block of a key.
    pub(super) fn new_block(&self, action: &mut Action<'_>, key: &K, value: u64) -> Result<PmAddr> {
        let at = action.alloc(keys::block_bytes(key.key_bytes()))?;
        key.with_bytes(|key| keys::write_block(self.medium(), at, key, value));
        Ok(at)
    }

    /// Makes `entry` a separate line at `position`; its second word is the value.
    fn add_line(&self, header: &Header, position: usize, free: usize, key: &K, entry: Entry) -> Result<()> {
        let memory = self.heap.memory();
        let order = header.order.with(position, free);
        let order_word = checked::encode(header.at.order(), order_payload(order));
        let at = header.at.line(free);
        if K::IS_WORD {
            self.write_line(&Line::new(at, &[entry]));
            memory.store(header.at.order(), order_word);
            // As for an insert into a line.
            memory.persist(header.at.order(), 8);
            return Ok(());
        }
        let mut action = self.heap.action();
        let block = self.new_block(&mut action, key, entry.1)?;
        // The order word may not overtake the line: the action's first fence comes between.
        memory.write_and_flush(at, &Line::new(at, &[(entry.0, block.to_raw())]).words);
        action.set(header.at.order(), order_word);
        committed(action.commit()).1
    }

    fn write_line(&self, line: &Line) {
        let memory = self.heap.memory();
        if planted::active("fastfair-line-not-flushed") {
            memory.write(line.at, &line.to_bytes());
        } else {
            memory.write_and_flush(line.at, &line.words);
        }
        // The order word may not overtake the line that it links.
        memory.fence();
    }

    /// Moves the upper entries of a full line into a free one. For keys that are words the new entry goes along, as
    /// entry `rank`.
    fn split_line(&self, header: &Header, position: usize, line: &Line, free: usize, rank: usize, entry: Entry) {
        let memory = self.heap.memory();
        let goes_right = rank >= 2;
        let kept = if goes_right { 2 } else { 1 };
        let mut moved = EntryList::new();
        for (index, present) in line.entries().enumerate().skip(kept) {
            if K::IS_WORD && goes_right && index == rank {
                moved.push(entry);
            }
            moved.push(present);
        }
        let right = Line::new(header.at.line(free), &moved);
        let mut left = *line;
        left.words[0] = left.meta(left.order_truncated(kept), None);
        if planted::active("fastfair-line-shrinks-first") {
            memory.store(left.at, left.words[0]);
            // Planted: the entries are gone before their copies are linked.
            memory.persist(left.at, LINE_BYTES);
        }
        self.write_line(&right);
        let order = header.order.with(position + 1, free);
        memory.store(header.at.order(), checked::encode(header.at.order(), order_payload(order)));
        memory.flush(header.at.order(), 8);
        // The old line may not let its entries go before the new one is linked.
        memory.fence();
        memory.store(left.at, left.words[0]);
        if K::IS_WORD && !goes_right {
            let slot = left.free_slot().unwrap_or(0);
            let order = left.order_with(rank, slot);
            let at = left.slot_at(slot);
            // The slot does not count by now; in one line, in this order.
            memory.store(at, entry.0);
            memory.store(at.plus(8), entry.1);
            (left.words[1 + 2 * slot], left.words[2 + 2 * slot]) = entry;
            memory.store(left.at, left.meta(order, None));
        }
        // Changes of the moved entries in their new line may not overtake the end of the old copies.
        memory.persist(left.at, LINE_BYTES);
    }

    /// Before the first change of a leaf in this life: drops the copies that a crash inside the split of a line left.
    pub(super) fn repair(&self, header: &mut Header) -> Result<()> {
        if header.stamp == self.boot || planted::active("fastfair-no-repair") {
            return Ok(());
        }
        let (medium, memory) = (self.medium(), self.heap.memory());
        let mut repaired = false;
        let mut behind: Option<Entry> = None;
        for position in (0..header.order.count()).rev() {
            let line = header.verified_line(medium, position)?;
            let is_copy = |entry: &Entry| match behind {
                Some(first) if K::IS_WORD => entry.0 >= first.0,
                // A string's copies name the same block.
                Some(_) => self.stands_behind(header, position, *entry),
                None => false,
            };
            let kept = line.entries().take_while(|entry| !is_copy(entry)).count();
            if kept < line.count() {
                memory.store(line.at, line.meta(line.order_truncated(kept), None));
                memory.flush(line.at, LINE_BYTES);
                repaired = true;
            }
            if kept > 0 {
                behind = Some(line.entry(0));
            }
        }
        if repaired {
            // Changes of the other copies may not overtake the end of these.
            memory.fence();
        }
        // Not flushed: when it is lost, the next life looks again, as it would anyway.
        memory.store(header.at.stamp(), self.boot);
        header.stamp = self.boot;
        Ok(())
    }

    /// Whether a line after `position` holds the same block.
    fn stands_behind(&self, header: &Header, position: usize, entry: Entry) -> bool {
        let behind = position + 1..header.order.count();
        behind.into_iter().any(|at| header.load_line(self.medium(), at).entries().any(|other| other.1 == entry.1))
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::ops::Bound;

    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    use lodestone_store::Store;

    use super::*;
    use crate::fastfair::FastFairOptions;
    use crate::traits::{OrderedIndex, PointIndex};

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    fn open(pool: &Pool) -> std::result::Result<FastFair<u64>, Box<dyn std::error::Error>> {
        let store = Store::over(pool)?;
        Ok(FastFair::open(&store, "tree", &FastFairOptions::default(), Durability::Sync)?)
    }

    /// A read-only pool has the number of the life that crashed: that life's stamp says nothing about copies it may
    /// have left.
    #[test]
    fn a_read_only_pool_shows_no_copy_that_the_last_life_left() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.pool");
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        {
            let tree = open(&Pool::create(&path, &options)?)?;
            for key in [10, 20, 30] {
                tree.insert(&key, 10 * key)?;
            }
            // As a crash in the split of a line: the following line is linked, this one has not dropped its entries.
            let (medium, memory) = (tree.medium(), tree.heap.memory());
            let header = Header::load(medium, tree.root())?;
            let moved: Vec<Entry> = header.load_line(medium, 0).entries().skip(1).collect();
            let free = header.order.free_line(header.lines).ok_or("a free line")?;
            tree.write_line(&Line::new(header.at.line(free), &moved));
            let order = header.order.with(1, free);
            memory.store(header.at.order(), checked::encode(header.at.order(), order_payload(order)));
        }
        let tree = open(&Pool::open_read_only(&path, &options)?)?;
        let all: Result<Vec<_>> = tree.range(Bound::Unbounded, Bound::Unbounded).collect();
        assert_eq!(all?, [(10, 100), (20, 200), (30, 300)]);
        assert_eq!((tree.len()?, tree.get(&20)?, tree.get(&30)?), (3, Some(200), Some(300)));
        assert!(tree.check().is_intact());
        Ok(())
    }
}
