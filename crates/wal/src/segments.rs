//! The stock of segments: which are free, and the chain of each writer.
//!
//! A segment that the heap made stays with the log. It is in the stock, in the chain of a writer, or in the hands of a
//! writer that will need it for the record it has begun. [`Segments::hand_out`] writes heads; an open makes their lines
//! equal and takes back those of a torn record. A segment whose records are no longer needed returns to the stock in
//! DRAM alone: at the next open the caller's positions say the same.
//!
//! A pool with a part for each node has segments in each of them. A thread takes those of its own node as long as there
//! are any, and makes up to an even share there, so its log is near (paper 4, section 2.1.2: a WAL for each node). Only
//! then it takes far ones: no log is full while a segment is free.

use std::collections::{BTreeMap, VecDeque};

use lodestone_heap::{Action, Heap};
use lodestone_pmem::mirror::{self, Line, Mirror, Slot};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Memory, PmAddr, PmPtr, checked, planted};
use lodestone_txn::copies;
use lodestone_width::to_u64;

use crate::error::{Error, Result};
use crate::layout::{
    DirectoryLine, NO_WRITER, RECORD_HEAD_BYTES, SEGMENT_HEAD_BYTES, SEGMENT_MAGIC, SegmentLine, directory_bytes,
    directory_entries, directory_lines, segment_lines,
};
use crate::options::{LogAlign, LogOptions};

/// A segment of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub at: PmAddr,
    pub generation: u64,
    pub first: u64,
    /// The tick of the last record before it, of the same life.
    pub last_tick: u64,
}

impl Segment {
    /// Address of `position`, which is in this segment.
    pub const fn address(&self, position: u64) -> PmAddr {
        self.at.plus(SEGMENT_HEAD_BYTES + (position - self.first))
    }
}

#[derive(Debug, Default)]
struct Stock {
    /// Every segment that was made, by number.
    made: Vec<PmAddr>,
    free: Vec<PmAddr>,
    chains: BTreeMap<u16, VecDeque<Segment>>,
}

/// All segments of a log.
#[derive(Debug)]
pub struct Segments {
    pub heap: Heap,
    pub directory: PmAddr,
    pub salt: u64,
    pub align: LogAlign,
    /// Bytes of records in a segment.
    pub capacity: u64,
    segment_bytes: u64,
    total: u64,
    stock: Mutex<Stock>,
    line: DirectoryLine,
    /// Places of copies that were not whole when the log was opened.
    pub damaged: Vec<PmAddr>,
}

impl Segments {
    /// Makes an empty directory as part of `action`.
    pub fn make(heap: &Heap, action: &mut Action<'_>, options: &LogOptions, salt: u64) -> Result<PmAddr> {
        options.check()?;
        let at = action.alloc_zeroed(directory_bytes(options.segments()))?;
        let memory = heap.memory();
        for number in 0..options.segments() {
            for place in directory_entries(at, options.segments(), number) {
                memory.store(place, checked::encode_addr(place, PmAddr::NULL));
            }
        }
        for line in directory_lines(at) {
            memory.put(line, &DirectoryLine::new(options, salt));
        }
        // Before the fence of the action that makes the directory reachable.
        memory.flush(at, directory_bytes(options.segments()));
        Ok(at)
    }

    /// Reads the directory at `at`, and the head of each segment.
    pub fn open(heap: &Heap, at: PmAddr) -> Result<Self> {
        let memory = heap.memory();
        let damaged = |at, what, finding: &str| damaged(heap, at, what, finding);
        if !at.offset().is_multiple_of(64) || !memory.contains(at, directory_bytes(0)) {
            return Err(damaged(at, "directory of the log", "its address leads nowhere"));
        }
        let intact = |line: &DirectoryLine| line.crc == line.checksum() && line.magic == crate::layout::MAGIC;
        let line = copies::read(memory, directory_lines(at).map(PmPtr::addr), intact)
            .map_err(|finding| damaged(at, "directory of the log", &format!("header: {finding}")))?;
        if line.version != crate::layout::VERSION {
            let (path, what) = (heap.pool().path().to_owned(), "directory of the log");
            let (found, known) = (line.version, crate::layout::VERSION);
            return Err(lodestone_pmem::Error::OtherVersion { path, what, at, found, known }.into());
        }
        let Some(options) = line.options().filter(|options| memory.contains(at, directory_bytes(options.segments())))
        else {
            return Err(damaged(at, "directory of the log", "its sizes are outside the limits"));
        };
        let mut segments = Self {
            heap: heap.clone(),
            directory: at,
            salt: line.salt,
            align: options.align,
            capacity: options.segment_bytes - SEGMENT_HEAD_BYTES,
            segment_bytes: options.segment_bytes,
            total: options.segments(),
            stock: Mutex::default(),
            line,
            damaged: Vec::new(),
        };
        let mut damaged = copies::damaged(memory, directory_lines(at).map(PmPtr::addr), &line);
        segments.read_heads(&mut damaged)?;
        segments.damaged = damaged;
        Ok(segments)
    }

    /// The address of segment `number`. Adds the place of a copy that is damaged to `damaged`.
    fn read_entry(&self, number: u64, damaged: &mut Vec<PmAddr>) -> Result<PmAddr> {
        let places = directory_entries(self.directory, self.total, number);
        let read = |place| {
            let found = checked::decode_addr(place, self.memory().load(place));
            found.filter(|at| at.is_null() || self.is_place(*at))
        };
        match places.map(read) {
            [Some(first), Some(second)] if first == second => Ok(first),
            [Some(at), None] => {
                damaged.push(places[1]);
                Ok(at)
            }
            [None, Some(at)] => {
                damaged.push(places[0]);
                Ok(at)
            }
            [first, _] => {
                let finding = if first.is_none() {
                    "both copies of an address fail their checksum"
                } else {
                    "the two copies of an address differ"
                };
                Err(self.damaged(places[0], "directory of the log", finding))
            }
        }
    }

    fn read_heads(&self, damaged: &mut Vec<PmAddr>) -> Result<()> {
        let memory = self.memory();
        let mut stock = lock(&self.stock);
        for number in 0..self.total {
            let at = self.read_entry(number, damaged)?;
            if at.is_null() {
                continue;
            }
            if lodestone_width::to_u64(stock.made.len()) < number {
                return Err(self.damaged(
                    at,
                    "directory of the log",
                    "an address before that of this segment is missing",
                ));
            }
            if stock.made.contains(&at) {
                return Err(self.damaged(at, "directory of the log", "it names a segment twice"));
            }
            let head = Mirror::<SegmentLine>::read(memory, segment_lines(at));
            let is_whole = |slot: &Slot<SegmentLine>| matches!(slot, Slot::Intact(_));
            let slots = segment_lines(at).into_iter().zip(&head.slots);
            damaged.extend(slots.filter(|(_, slot)| !is_whole(slot)).map(|(place, _)| place.addr()));
            let (line, _) = head
                .newest()
                .filter(|(line, _)| line.magic == SEGMENT_MAGIC)
                .ok_or_else(|| self.damaged(at, "segment of the log", "both copies of its head fail their checksum"))?;
            stock.made.push(at);
            let segment = Segment { at, generation: line.generation, first: line.first, last_tick: line.last_tick };
            match u16::try_from(line.writer) {
                Ok(writer) => stock.chains.entry(writer).or_default().push_back(segment),
                Err(_) => stock.free.push(at),
            }
        }
        for chain in stock.chains.values_mut() {
            chain.make_contiguous().sort_by_key(|segment| (segment.first, segment.generation));
        }
        Ok(())
    }

    fn is_place(&self, at: PmAddr) -> bool {
        at.offset().is_multiple_of(64) && self.memory().contains(at, self.segment_bytes)
    }

    pub fn memory(&self) -> &Memory {
        self.heap.memory()
    }

    pub fn damaged(&self, at: PmAddr, what: &'static str, finding: &str) -> Error {
        damaged(&self.heap, at, what, finding)
    }

    /// The writers that have segments.
    pub fn writers(&self) -> Vec<u16> {
        lock(&self.stock).chains.keys().copied().collect()
    }

    /// Most bytes of the entries of a record: a quarter of the log.
    pub fn record_bytes_max(&self) -> u64 {
        (self.total / 4).max(1) * (self.capacity - to_u64(RECORD_HEAD_BYTES))
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// The segments of a writer, by position.
    pub fn chain(&self, writer: u16) -> Vec<Segment> {
        lock(&self.stock).chains.get(&writer).map(|chain| chain.iter().copied().collect()).unwrap_or_default()
    }

    /// Returns the segments of `writer` whose records all lie below `from`. The last one stays.
    pub fn release_below(&self, writer: u16, from: u64) {
        let mut stock = lock(&self.stock);
        let Stock { free, chains, .. } = &mut *stock;
        let Some(chain) = chains.get_mut(&writer) else { return };
        while chain.len() > 1 && chain[1].first <= from {
            let Some(Segment { at, .. }) = chain.pop_front() else { return };
            // The head stays: it says which records do not count.
            self.memory().discard(at.plus(SEGMENT_HEAD_BYTES), self.segment_bytes - SEGMENT_HEAD_BYTES);
            free.push(at);
        }
        if planted::active("wal-discards-live")
            && let Some(live) = chain.front()
        {
            self.memory().discard(live.at.plus(SEGMENT_HEAD_BYTES), self.segment_bytes - SEGMENT_HEAD_BYTES);
        }
    }

    /// Takes the segments of `writer` that begin above `end` out of its chain, on the medium too: they hold pieces of
    /// a record that a crash cut short.
    pub fn release_above(&self, writer: u16, end: u64) {
        let mut stock = lock(&self.stock);
        let Stock { free, chains, .. } = &mut *stock;
        let Some(chain) = chains.get_mut(&writer) else { return };
        if chain.back().is_some_and(|last| last.first > end) {
            // Healed lines, before: the mirror destroys one line of a head, and the other may be a healed one.
            self.memory().fence();
        }
        while let Some(last) = chain.back().copied().filter(|last| last.first > end) {
            chain.pop_back();
            // Fenced by the mirror, before the caller clears the word at `end`: while the first piece is whole, the
            // others may still be found, and no gap is taken for damage.
            mirror::write(self.memory(), segment_lines(last.at), SegmentLine::new(NO_WRITER, 0, 0));
            free.push(last.at);
        }
    }

    /// Takes segments out of the stock until `held` has `count`. The heap makes those that are missing. `part`: where
    /// they are best; without it near this thread.
    pub fn take(&self, held: &mut Vec<PmAddr>, count: usize, part: Option<u16>) -> Result<()> {
        let mut stock = lock(&self.stock);
        let needed = to_u64(count.saturating_sub(held.len()));
        let free = to_u64(stock.free.len()) + (self.total - to_u64(stock.made.len()));
        if needed > free {
            let path = self.heap.pool().path().to_owned();
            return Err(Error::Full { path, needed, free, total: self.total });
        }
        while held.len() < count {
            held.push(self.next(&mut stock, part)?);
        }
        Ok(())
    }

    /// The nearest segment that is free or can be made, to `part` or to this thread.
    fn next(&self, stock: &mut Stock, part: Option<u16>) -> Result<PmAddr> {
        let parts = self.heap.parts_for(self.segment_bytes);
        let near = part.filter(|part| parts.contains(part)).or(parts.first().copied()).unwrap_or(0);
        let is_near = |at: &PmAddr| at.part() == near;
        if let Some(place) = stock.free.iter().rposition(is_near) {
            return Ok(stock.free.swap_remove(place));
        }
        let made_near = to_u64(stock.made.iter().filter(|at| is_near(at)).count());
        let may_make = to_u64(stock.made.len()) < self.total;
        // A part that was named may have all of them.
        if may_make && (part.is_some() || made_near < self.total.div_ceil(to_u64(parts.len().max(1)))) {
            match self.make_segment(stock, near) {
                // Its part is full: a far one is better than none.
                Err(_) if !stock.free.is_empty() => {}
                outcome => return outcome,
            }
        }
        match stock.free.pop() {
            Some(far) => Ok(far),
            None => self.make_segment(stock, near),
        }
    }

    /// Returns segments to the stock.
    pub fn give(&self, held: &mut Vec<PmAddr>) {
        lock(&self.stock).free.append(held);
    }

    /// Makes a segment in part `near`, or in another one if that is full.
    fn make_segment(&self, stock: &mut Stock, near: u16) -> Result<PmAddr> {
        let memory = self.memory();
        let mut action = self.heap.action();
        let at = match action.alloc_in(near, self.segment_bytes) {
            Err(lodestone_heap::Error::NoSpace { .. }) => action.alloc(self.segment_bytes)?,
            outcome => outcome?,
        };
        let mut line = SegmentLine::new(NO_WRITER, 0, 0);
        line.seal(1);
        for place in segment_lines(at) {
            memory.put(place, &line);
            // Before the fence of the action that makes the segment reachable.
            memory.flush(place.addr(), 64);
        }
        for place in directory_entries(self.directory, self.total, to_u64(stock.made.len())) {
            action.set(place, checked::encode_addr(place, at));
        }
        action.commit()?;
        stock.made.push(at);
        Ok(at)
    }

    /// Makes the segment at `at` the end of the chain of `writer`, from position `first` on, after a record of
    /// `last_tick`. On return that is persistent, and so is everything that this thread streamed or flushed before.
    pub fn hand_out(&self, writer: u16, at: PmAddr, first: u64, last_tick: u64) -> Segment {
        let line = SegmentLine::new(u32::from(writer), first, last_tick);
        let generation = mirror::write(self.memory(), segment_lines(at), line).generation;
        let segment = Segment { at, generation, first, last_tick };
        lock(&self.stock).chains.entry(writer).or_default().push_back(segment);
        segment
    }

    /// Makes the two copies of each part equal, where a crash or damage left them different, and flushes them. Until
    /// then damage to the newer line of a head would bring back the former use of the segment, and lose the records of
    /// this one. The generation stays: the records of the segment verify with it. The caller fences.
    pub fn heal(&self) {
        let memory = self.memory();
        copies::heal(memory, directory_lines(self.directory).map(PmPtr::addr), &self.line);
        let stock = lock(&self.stock);
        for number in 0..self.total {
            let at = stock.made.get(lodestone_width::to_usize(number)).copied().unwrap_or(PmAddr::NULL);
            for place in directory_entries(self.directory, self.total, number) {
                let word = checked::encode_addr(place, at);
                if memory.load(place) != word {
                    memory.store(place, word);
                    // The other copy may be damaged next.
                    memory.flush(place, 8);
                }
            }
        }
        for &at in &stock.made {
            let found = Mirror::<SegmentLine>::read(memory, segment_lines(at));
            let Some((newest, _)) = found.newest().filter(|_| !found.is_at_rest()) else { continue };
            let differs = |slot: &Slot<SegmentLine>| *slot != Slot::Intact(newest);
            for (place, _) in segment_lines(at).into_iter().zip(&found.slots).filter(|(_, slot)| differs(slot)) {
                memory.put(place, &newest);
                // Before the caller's fence: no record may follow a head that one damaged line takes back.
                memory.flush(place.addr(), 64);
            }
        }
    }

    /// Segments that were made, and those of them that are in the stock.
    pub fn counts(&self) -> (u64, u64) {
        let stock = lock(&self.stock);
        (to_u64(stock.made.len()), to_u64(stock.free.len()))
    }

    /// The same of those in `part`.
    pub fn counts_in(&self, part: u16) -> (u64, u64) {
        let count = |list: &[PmAddr]| to_u64(list.iter().filter(|at| at.part() == part).count());
        let stock = lock(&self.stock);
        (count(&stock.made), count(&stock.free))
    }

    /// Most segments.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Blocks of the heap that the log owns, with the bytes it keeps there.
    pub fn blocks(&self) -> Vec<(PmAddr, u64)> {
        let directory = (self.directory, directory_bytes(self.total));
        let stock = lock(&self.stock);
        std::iter::once(directory).chain(stock.made.iter().map(|at| (*at, self.segment_bytes))).collect()
    }
}

fn damaged(heap: &Heap, at: PmAddr, what: &'static str, finding: &str) -> Error {
    Error::Damaged { path: heap.pool().path().to_owned(), what, at, finding: finding.into() }
}
