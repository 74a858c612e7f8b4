//! A worker and its transaction: reads, working copies, commit, abort.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use lodestone_pmem::{PmAddr, PmPtr};
use lodestone_workload::engine::EngineError;
use lodestone_workload::random::Random;

use super::blocks::{BLOCK_HEADER_BYTES, CLASSES, TAKEN, class_of, stride_of};
use super::layout::STRIDE_MAX;
use super::log::{LogArea, entry_bytes, redo_head, write_entry};
use super::{LogKind, Tl2, is_locked, release};
use lodestone_stm_bench::tm::{Object, ReadBody, Reading, Ref, Statistics, UpdateBody, Worker, Writing};

/// Free blocks that a worker keeps for each class before it returns all of them.
const CACHE_MAX: usize = 1024;
/// Aborts in a row after which a worker yields its processor before it tries again.
const YIELD_AFTER: u32 = 4;

/// The reason why an attempt ended.
#[derive(Debug)]
pub enum Abort {
    /// Another transaction holds an object.
    Locked,
    /// An object is newer than the start.
    Newer,
    /// A read is no longer valid at commit.
    Validation,
    /// Another attempt would not help.
    Fatal(EngineError),
}

/// The effect on an object at commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// New content.
    Write,
    /// A block that was free: header and content.
    New,
    /// The header becomes free.
    Free,
}

/// An entry of the write set. The words are in the transaction's buffer; for `New` the header word comes first.
#[derive(Debug, Clone, Copy)]
struct Entry {
    raw: u64,
    change: Change,
    words: u32,
    from: u32,
    class: u32,
    /// Whether this entry holds the lock of its version word.
    locked: bool,
    version_index: u32,
    /// The version word before the lock.
    version_before: u64,
}

impl Entry {
    /// The address to which its words go.
    fn target(&self) -> PmAddr {
        let payload = PmAddr::from_raw(self.raw);
        match self.change {
            Change::Write => payload,
            Change::New | Change::Free => header_of(payload),
        }
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.from as usize..(self.from + self.words) as usize
    }
}

fn header_of(payload: PmAddr) -> PmAddr {
    PmAddr::new(payload.part(), payload.offset() - BLOCK_HEADER_BYTES)
}

/// The transaction of a [`Tl2Worker`].
#[derive(Debug)]
pub struct Tl2Transaction<'m> {
    tm: &'m Tl2,
    log_number: u64,
    log: LogArea,
    /// Sequence of the record or the undo entries that are written next. Never repeated in a log.
    sequence: u64,
    log_used: u64,
    /// Undo entries that no fence covers yet.
    unfenced: bool,
    start: u64,
    update: bool,
    reads: Vec<u32>,
    writes: Vec<Entry>,
    buffer: Vec<u64>,
    free: Vec<Vec<u64>>,
}

/// One thread's access to a [`Tl2`].
#[derive(Debug)]
pub struct Tl2Worker<'m> {
    transaction: Tl2Transaction<'m>,
    statistics: Statistics,
    back_off: Random,
}

impl<'m> Tl2Worker<'m> {
    pub(super) fn new(tm: &'m Tl2, log_number: u64) -> Self {
        let log = LogArea { at: tm.geometry.log(log_number), bytes: tm.geometry.log_bytes };
        let sequence = match tm.kind {
            LogKind::Undo => next_generation(tm, log),
            // After that of the newest record that is still there, whatever its outcome.
            LogKind::Redo => tm.memory.load(log.at.plus(8)) + 1,
        };
        let transaction = Tl2Transaction {
            tm,
            log_number,
            log,
            sequence,
            log_used: 0,
            unfenced: false,
            start: 0,
            update: false,
            reads: Vec::with_capacity(1024),
            writes: Vec::with_capacity(64),
            buffer: Vec::with_capacity(1024),
            free: vec![Vec::new(); CLASSES],
        };
        Self { transaction, statistics: Statistics::default(), back_off: Random::new(log_number) }
    }

    /// Counts an abort and waits a little, longer after more aborts in a row.
    #[cold]
    fn aborted(&mut self, abort: Abort, attempt: u32) -> Result<(), EngineError> {
        self.transaction.roll_back();
        match abort {
            Abort::Locked => self.statistics.aborts_locked += 1,
            Abort::Newer => self.statistics.aborts_newer += 1,
            Abort::Validation => self.statistics.aborts_validation += 1,
            Abort::Fatal(error) => return Err(error),
        }
        if attempt >= YIELD_AFTER {
            std::thread::yield_now();
        } else {
            for _ in 0..self.back_off.below(16 << attempt) {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}

impl Worker for Tl2Worker<'_> {
    #[inline]
    fn read<B: ReadBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        for attempt in 0.. {
            self.transaction.begin(false);
            match body.run(&mut self.transaction) {
                Ok(out) => {
                    self.statistics.commits += 1;
                    return Ok(out);
                }
                Err(abort) => self.aborted(abort, attempt)?,
            }
        }
        unreachable!("attempts are not limited")
    }

    #[inline]
    fn update<B: UpdateBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        for attempt in 0.. {
            self.transaction.begin(true);
            let outcome = body.run(&mut self.transaction);
            match outcome.and_then(|out| self.transaction.commit().map(|()| out)) {
                Ok(out) => {
                    self.statistics.commits += 1;
                    return Ok(out);
                }
                Err(abort) => self.aborted(abort, attempt)?,
            }
        }
        unreachable!("attempts are not limited")
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}

impl Drop for Tl2Worker<'_> {
    fn drop(&mut self) {
        // Only a body that panicked leaves anything: its locks and its log.
        self.transaction.roll_back();
        let Tl2Transaction { tm, log_number, free, .. } = &mut self.transaction;
        for (class, cache) in free.iter_mut().enumerate() {
            tm.blocks.give_back(class, cache);
        }
        tm.return_log(*log_number);
    }
}

impl Reading for Tl2Transaction<'_> {
    type Abort = Abort;

    #[inline]
    fn read<T: Object>(&mut self, at: Ref<T>) -> Result<T, Abort> {
        if !self.writes.is_empty()
            && let Some(index) = self.find(at.to_raw())
        {
            return Ok(self.copy_of(index));
        }
        let (version_index, word) = self.tm.version_word(at.to_raw());
        let value = self.read_committed(at, version_index, word)?;
        if self.update {
            self.reads.push(version_index);
        }
        Ok(value)
    }
}

impl Writing for Tl2Transaction<'_> {
    #[inline]
    fn write<T: Object>(&mut self, at: Ref<T>, change: impl FnOnce(&mut T)) -> Result<(), Abort> {
        let index = match self.find(at.to_raw()) {
            Some(index) => index,
            None => self.open_for_write(at)?,
        };
        let mut value: T = self.copy_of(index);
        change(&mut value);
        let range = self.payload_range(index);
        self.buffer[range].copy_from_slice(words_of(&value).as_slice_words());
        Ok(())
    }

    fn alloc<T: Object>(&mut self, value: T) -> Result<Ref<T>, Abort> {
        let class = class_of(T::WORDS);
        if class >= CLASSES {
            let text = format!("an object of {} words is larger than a block of {STRIDE_MAX} bytes", T::WORDS);
            return Err(Abort::Fatal(EngineError::new(text)));
        }
        let tm = self.tm;
        if self.free[class].is_empty() && !tm.blocks.refill(&tm.memory, &tm.geometry, class, &mut self.free[class]) {
            let text = format!("no page is left for objects of {} bytes; make the area larger", stride_of(class));
            return Err(Abort::Fatal(EngineError::new(text)));
        }
        let Some(raw) = self.free[class].pop() else {
            return Err(Abort::Fatal(EngineError::new("a page without blocks; use larger pages")));
        };
        let from = self.buffer.len() as u32;
        self.buffer.push(TAKEN);
        self.buffer.extend_from_slice(words_of(&value).as_slice_words());
        self.add(raw, Change::New, T::WORDS as u32 + 1, from, class)?;
        Ok(Ref::from_raw(raw))
    }

    fn free<T: Object>(&mut self, at: Ref<T>) -> Result<(), Abort> {
        let from = self.buffer.len() as u32;
        self.buffer.push(0);
        self.add(at.to_raw(), Change::Free, 1, from, class_of(T::WORDS))
    }
}

/// The words of an object, by the bytes of its value.
struct Words<'a, T: Object>(&'a T);

fn words_of<T: Object>(value: &T) -> Words<'_, T> {
    Words(value)
}

impl<T: Object> Words<'_, T> {
    #[inline]
    fn as_slice_words(&self) -> &[u64] {
        // Objects are whole aligned words: `Object::WORDS` checks that at compile time.
        debug_assert!(T::WORDS > 0);
        zerocopy::FromBytes::ref_from_bytes(self.0.as_bytes()).unwrap_or(&[])
    }
}

impl<'m> Tl2Transaction<'m> {
    #[inline]
    fn begin(&mut self, update: bool) {
        self.update = update;
        self.start = self.tm.clock.now();
        self.reads.clear();
        self.writes.clear();
        self.buffer.clear();
        self.log_used = 0;
    }

    #[inline]
    fn find(&self, raw: u64) -> Option<usize> {
        self.writes.iter().position(|entry| entry.raw == raw && entry.change != Change::Free)
    }

    /// The range of an object's content in the buffer.
    #[inline]
    fn payload_range(&self, index: usize) -> std::ops::Range<usize> {
        let entry = &self.writes[index];
        let range = entry.range();
        range.start + usize::from(entry.change == Change::New)..range.end
    }

    #[inline]
    fn copy_of<T: Object>(&self, index: usize) -> T {
        let mut value = T::new_zeroed();
        let words = &self.buffer[self.payload_range(index)];
        value.as_mut_bytes().copy_from_slice(zerocopy::IntoBytes::as_bytes(words));
        value
    }

    /// Reads an object whose version word is `word`, whole and not newer than the start.
    #[inline]
    fn read_committed<T: Object>(&self, at: Ref<T>, version_index: u32, word: &AtomicU64) -> Result<T, Abort> {
        let before = word.load(Ordering::Acquire);
        if is_locked(before) && !self.holds(before) {
            return Err(Abort::Locked);
        }
        let value = self.tm.memory.get(PmPtr::<T>::new(PmAddr::from_raw(at.to_raw())));
        // The words of the object are read before the version is read again.
        fence(Ordering::Acquire);
        if word.load(Ordering::Relaxed) != before {
            return Err(Abort::Locked);
        }
        let version = if is_locked(before) { self.version_before(version_index) } else { before };
        if version >> 1 > self.start {
            return Err(Abort::Newer);
        }
        Ok(value)
    }

    fn lock_word(&self) -> u64 {
        self.log_number << 1 | 1
    }

    #[inline]
    fn holds(&self, word: u64) -> bool {
        word == self.lock_word()
    }

    /// Makes a working copy. With an undo log, first locks the object and logs it.
    fn open_for_write<T: Object>(&mut self, at: Ref<T>) -> Result<usize, Abort> {
        let from = self.buffer.len() as u32;
        let (version_index, word) = self.tm.version_word(at.to_raw());
        let value = self.read_committed(at, version_index, word)?;
        // A working copy is also a read: another transaction may change the object before it is locked.
        self.reads.push(version_index);
        self.buffer.extend_from_slice(words_of(&value).as_slice_words());
        self.add(at.to_raw(), Change::Write, T::WORDS as u32, from, 0)?;
        Ok(self.writes.len() - 1)
    }

    fn add(&mut self, raw: u64, change: Change, words: u32, from: u32, class: usize) -> Result<(), Abort> {
        let version_index = self.tm.version_word(raw).0;
        let class = class as u32;
        let entry = Entry { raw, change, words, from, class, locked: false, version_index, version_before: 0 };
        self.writes.push(entry);
        if self.tm.kind == LogKind::Undo {
            let index = self.writes.len() - 1;
            self.lock(index)?;
            self.log_old(index)?;
        }
        Ok(())
    }

    /// Locks the version word of an entry, unless an earlier entry holds it.
    fn lock(&mut self, index: usize) -> Result<(), Abort> {
        let mine = self.lock_word();
        let entry = &mut self.writes[index];
        let word = &self.tm.versions[entry.version_index as usize];
        let found = word.load(Ordering::Relaxed);
        if found == mine {
            return Ok(());
        }
        if is_locked(found) {
            return Err(Abort::Locked);
        }
        if found >> 1 > self.start && entry.change != Change::New {
            return Err(Abort::Newer);
        }
        if word.compare_exchange(found, mine, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(Abort::Locked);
        }
        entry.locked = true;
        entry.version_before = found;
        Ok(())
    }

    /// Appends the old content of a locked object to the undo log.
    fn log_old(&mut self, index: usize) -> Result<(), Abort> {
        let entry = self.writes[index];
        let memory = &self.tm.memory;
        let target = entry.target();
        // For a new block only the header must be restored: nothing refers to its content.
        let words = if entry.change == Change::Write { entry.words } else { 1 };
        let mut old = [0; (STRIDE_MAX / 8) as usize];
        let old = &mut old[..words as usize];
        for (offset, word) in (0..).zip(old.iter_mut()) {
            *word = memory.load(target.plus(offset * 8));
        }
        if self.log_used + entry_bytes(old.len()) > self.log.capacity() {
            return Err(too_large(self.log));
        }
        let at = self.log.entries().plus(self.log_used);
        write_entry(memory, at, target.to_raw(), self.sequence, old);
        memory.flush(at, entry_bytes(old.len()));
        self.log_used += entry_bytes(old.len());
        self.unfenced = true;
        if entry.change == Change::Write {
            // In-place changes may start only after the old content is safe. Headers wait for the next fence.
            memory.fence();
            self.unfenced = false;
        }
        Ok(())
    }

    /// Whether all reads still hold.
    fn reads_are_valid(&self) -> bool {
        self.reads.iter().all(|&index| {
            let found = self.tm.versions[index as usize].load(Ordering::Acquire);
            // For a word that this transaction itself holds, the version before its lock counts.
            let version = if self.holds(found) { self.version_before(index) } else { found };
            !is_locked(version) && version >> 1 <= self.start
        })
    }

    /// The version of a word that this transaction holds, as it was before the lock.
    fn version_before(&self, version_index: u32) -> u64 {
        let holder = self.writes.iter().find(|entry| entry.locked && entry.version_index == version_index);
        holder.map_or(u64::MAX, |entry| entry.version_before)
    }

    #[inline]
    fn commit(&mut self) -> Result<(), Abort> {
        // Each read was checked against the start, so a transaction that changes nothing is consistent.
        if self.writes.is_empty() { Ok(()) } else { self.commit_changes() }
    }

    fn commit_changes(&mut self) -> Result<(), Abort> {
        if self.tm.kind == LogKind::Redo {
            for index in 0..self.writes.len() {
                self.lock(index)?;
            }
        }
        let version = self.tm.clock.tick();
        // If only this tick moved the clock, no other transaction committed in between.
        if version != self.start + 1 && !self.reads_are_valid() {
            return Err(Abort::Validation);
        }
        match self.tm.kind {
            LogKind::Redo => self.persist_redo()?,
            LogKind::Undo => self.persist_undo(),
        }
        for entry in self.writes.iter().filter(|entry| entry.locked) {
            release(&self.tm.versions[entry.version_index as usize], version);
        }
        for index in 0..self.writes.len() {
            let entry = self.writes[index];
            if entry.change == Change::Free {
                self.cache_free(entry.class as usize, entry.raw);
            }
        }
        // Committed, whatever the medium reports next: nothing is left to roll back.
        self.writes.clear();
        self.tm.memory.durable().map_err(|error| Abort::Fatal(EngineError::new(error)))
    }

    fn cache_free(&mut self, class: usize, raw: u64) {
        let cache = &mut self.free[class];
        cache.push(raw);
        if cache.len() > CACHE_MAX {
            self.tm.blocks.give_back(class, cache);
        }
    }

    fn persist_redo(&mut self) -> Result<(), Abort> {
        let memory = &self.tm.memory;
        let bytes: u64 = self.writes.iter().map(|entry| entry_bytes(entry.words as usize)).sum();
        if bytes > self.log.capacity() {
            return Err(too_large(self.log));
        }
        let (mut at, mut sum) = (self.log.entries(), 0);
        for entry in &self.writes {
            let content = &self.buffer[entry.range()];
            let checksum = write_entry(memory, at, entry.target().to_raw(), self.sequence, content);
            sum = crc32c::crc32c_append(sum, &checksum.to_le_bytes());
            at = at.plus(entry_bytes(content.len()));
        }
        memory.store(self.log.at.plus(8), self.sequence);
        memory.store(self.log.at, redo_head(self.writes.len() as u64, self.sequence, sum));
        memory.flush(self.log.at, 64 + bytes);
        self.sequence += 1;
        // The record decides: no object in place may overtake it.
        memory.fence();
        self.write_in_place();
        // The end of the record may not overtake the objects that it would repeat.
        memory.fence();
        memory.store(self.log.at, 0);
        // No other transaction may change these objects before the record has ended, or a replay undoes that change.
        memory.persist(self.log.at, 8);
        Ok(())
    }

    fn persist_undo(&mut self) {
        let memory = &self.tm.memory;
        if self.unfenced {
            // No object in place may overtake its old content in the log.
            memory.fence();
            self.unfenced = false;
        }
        self.write_in_place();
        // The end of the log decides; it may not overtake the objects.
        memory.fence();
        self.end_undo();
    }

    fn end_undo(&mut self) {
        self.sequence += 1;
        self.tm.memory.store(self.log.at, self.sequence);
        // No other transaction may change these objects before the log has ended, or recovery undoes that change.
        self.tm.memory.persist(self.log.at, 8);
        self.log_used = 0;
        self.unfenced = false;
    }

    /// Stores the working copies and flushes them; the caller fences.
    fn write_in_place(&self) {
        let memory = &self.tm.memory;
        for entry in &self.writes {
            let content = zerocopy::IntoBytes::as_bytes(&self.buffer[entry.range()]);
            memory.write(entry.target(), content);
            // Before the fence after which the log ends.
            memory.flush(entry.target(), content.len() as u64);
        }
    }

    /// Undoes the effects of an attempt: its log, its locks, its blocks.
    #[cold]
    fn roll_back(&mut self) {
        if self.tm.kind == LogKind::Undo && self.log_used > 0 {
            // While the entries count, no other thread may change these objects. Nothing was stored in place.
            self.end_undo();
        }
        for index in 0..self.writes.len() {
            let entry = self.writes[index];
            if entry.locked {
                release(&self.tm.versions[entry.version_index as usize], entry.version_before >> 1);
            }
            if entry.change == Change::New {
                self.free[entry.class as usize].push(entry.raw);
            }
        }
        self.writes.clear();
    }
}

/// Ends the entries that an earlier life may have left in an undo log after a torn entry.
fn next_generation(tm: &Tl2, log: LogArea) -> u64 {
    let sequence = tm.memory.load(log.at) + 1;
    if !tm.memory.is_read_only() {
        tm.memory.store(log.at, sequence);
        // No new entry may count while old ones of the same number could follow it.
        tm.memory.persist(log.at, 8);
    }
    sequence
}

fn too_large(log: LogArea) -> Abort {
    Abort::Fatal(EngineError::new(format!("the transaction does not fit its log of {} bytes", log.bytes)))
}
