//! All logs of a database.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_txn::{Tick, Writer};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};
use crate::options::{LogOptions, LogStore};
use crate::reader::{End, Found, Reader};
use crate::segments::Segments;
use crate::writer::LogWriter;

/// The state that all writers share.
#[derive(Debug)]
pub struct Shared {
    pub segments: Segments,
    pub store: LogStore,
    /// The end of each log that no writer has.
    ends: Mutex<BTreeMap<Writer, Log>>,
}

#[derive(Clone, Copy, Debug)]
enum Log {
    Idle(End),
    Taken,
}

impl Shared {
    /// Notes that the log of `writer` has no owner any more.
    pub fn end_of(&self, writer: Writer, end: End) {
        lock(&self.ends).insert(writer, Log::Idle(end));
    }
}

/// Figures about the segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Segments that were made.
    pub segments: u64,
    /// Those of them without live records.
    pub segments_free: u64,
    /// Most segments that the log may have.
    pub segments_max: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

/// The logs. Clones share them.
///
/// Thread safety: one [`LogWriter`] for each writer at a time, any number of writers side by side.
#[derive(Clone, Debug)]
pub struct Wal {
    shared: Arc<Shared>,
}

impl Wal {
    /// Makes empty logs as part of `action`, which must also make the returned address reachable. Segments are made
    /// when they are needed.
    ///
    /// # Errors
    /// [`Error::BadOption`]; those of the heap.
    pub fn make(heap: &Heap, action: &mut Action<'_>, options: &LogOptions) -> Result<PmAddr> {
        let salt = match options.salt {
            Some(salt) => salt,
            None => random()?,
        };
        Segments::make(heap, action, options, salt)
    }

    /// Opens the logs at `at`. Each log is read from the position that `from` returns for its writer, and `visit` is
    /// called for each whole record and each mark, by rising ticks within a log. Then damaged copies are mended and the
    /// ends are made certain, unless the pool is open read-only. A crash in between changes nothing that a repetition
    /// sees.
    ///
    /// # Errors
    /// [`Error::Damaged`] names what does not verify and cannot be the work of a crash; errors of `visit`.
    pub fn open(
        heap: &Heap,
        at: PmAddr,
        from: &mut dyn FnMut(Writer) -> u64,
        visit: &mut dyn FnMut(&Found<'_>) -> Result<()>,
    ) -> Result<Self> {
        Self::open_with(heap, at, LogStore::default(), from, visit)
    }

    /// As [`open`](Self::open), with the way in which records are stored.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(
        heap: &Heap,
        at: PmAddr,
        store: LogStore,
        from: &mut dyn FnMut(Writer) -> u64,
        visit: &mut dyn FnMut(&Found<'_>) -> Result<()>,
    ) -> Result<Self> {
        let opening = Opening::begin(heap, at)?;
        for writer in opening.writers() {
            opening.read(writer, from(writer), visit)?;
        }
        Ok(opening.finish(store))
    }

    /// Takes the log of `writer`.
    ///
    /// # Errors
    /// [`Error::WriterTaken`] while another owner has it.
    pub fn writer(&self, writer: Writer) -> Result<LogWriter> {
        let end = match lock(&self.shared.ends).insert(writer, Log::Taken) {
            None => End::default(),
            Some(Log::Idle(end)) => end,
            Some(Log::Taken) => return Err(Error::WriterTaken { writer: writer.number() }),
        };
        Ok(LogWriter::new(self.shared.clone(), writer, end))
    }

    /// The writers whose logs have no owner and end with a record that has entries.
    pub(crate) fn unmarked(&self) -> Vec<Writer> {
        let ends = lock(&self.shared.ends);
        let is_unmarked = |log: &Log| matches!(log, Log::Idle(end) if end.has_entries);
        ends.iter().filter(|(_, log)| is_unmarked(log)).map(|(writer, _)| *writer).collect()
    }

    pub(crate) fn memory(&self) -> &Memory {
        self.shared.segments.memory()
    }

    /// Calls `visit` for each record of `writer` from position `from` up to `to`, while its owner may append. Returns
    /// whether the log has them: `false` when a truncation was first.
    ///
    /// The caller knows that all of them are persistent, and has that knowledge from the thread that fenced them. It
    /// makes sure that no truncation takes them away meanwhile, or does not rely on the outcome when one did.
    ///
    /// # Errors
    /// [`Error::Damaged`]; errors of `visit`.
    pub fn read(
        &self,
        writer: Writer,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(&Found<'_>) -> Result<()>,
    ) -> Result<bool> {
        if from >= to {
            return Ok(true);
        }
        let segments = &self.shared.segments;
        let chain = segments.chain(writer.number());
        if chain.first().is_none_or(|first| first.first > from) {
            return Ok(false);
        }
        Reader { segments, writer, chain: &chain }.read_to(from, Some(to), visit)?;
        Ok(true)
    }

    /// Says that the records of `writer` below position `from` are no longer needed. Their segments are used again.
    ///
    /// The caller has made persistent that the log is read from `from` or later, in all states that a crash or one
    /// damaged block can bring back.
    pub fn truncate(&self, writer: Writer, from: u64) {
        self.shared.segments.release_below(writer.number(), from);
    }

    /// The position after the last record of each log that no owner has.
    #[must_use]
    pub fn positions(&self) -> Vec<(Writer, u64)> {
        let position = |(writer, log): (&Writer, &Log)| match log {
            Log::Idle(end) => Some((*writer, end.position)),
            Log::Taken => None,
        };
        lock(&self.shared.ends).iter().filter_map(position).collect()
    }

    /// Most bytes of the entries of a record.
    #[must_use]
    pub fn record_bytes_max(&self) -> u64 {
        self.shared.segments.record_bytes_max()
    }

    /// Figures about the segments.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        self.stats_of(self.shared.segments.counts())
    }

    /// Those about the segments in `part` of the pool. Any of them may be there: `segments_max` is that of the whole.
    #[must_use]
    pub fn stats_in(&self, part: u16) -> LogStats {
        self.stats_of(self.shared.segments.counts_in(part))
    }

    fn stats_of(&self, (segments, segments_free): (u64, u64)) -> LogStats {
        let (segments_max, segment_bytes) = (self.shared.segments.total(), self.shared.segments.segment_bytes());
        LogStats { segments, segments_free, segments_max, segment_bytes }
    }

    /// Places of copies that were not whole when the logs were opened: torn by a crash, or damaged. The other copy was
    /// used, and an open for writing made both equal.
    #[must_use]
    pub fn copies_damaged(&self) -> &[PmAddr] {
        &self.shared.segments.damaged
    }

    /// Blocks of the heap that the logs own, with the bytes they keep there.
    #[must_use]
    pub fn blocks(&self) -> Vec<(PmAddr, u64)> {
        self.shared.segments.blocks()
    }
}

/// Logs that are being opened. [`Wal::open`] does it on one thread.
///
/// Thread safety: each log may be read by a thread of its own.
#[derive(Debug)]
pub struct Opening {
    segments: Segments,
    writers: Vec<Writer>,
    ends: Mutex<BTreeMap<Writer, End>>,
}

impl Opening {
    /// Finds the logs at `at`. Nothing is changed.
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn begin(heap: &Heap, at: PmAddr) -> Result<Self> {
        let segments = Segments::open(heap, at)?;
        let unknown = || segments.damaged(at, "segment of the log", "its writer has a number that no writer has");
        let writer = |number| Writer::new(number).ok_or_else(unknown);
        let writers = segments.writers().into_iter().map(writer).collect::<Result<_>>()?;
        Ok(Self { segments, writers, ends: Mutex::default() })
    }

    /// The writers that have a log.
    #[must_use]
    pub fn writers(&self) -> Vec<Writer> {
        self.writers.clone()
    }

    /// The part of the pool that the last segment of a log is in.
    #[must_use]
    pub fn part_of(&self, writer: Writer) -> Option<u16> {
        self.segments.chain(writer.number()).last().map(|segment| segment.at.part())
    }

    /// Reads a log from position `from` on: see [`Wal::open`].
    ///
    /// # Errors
    /// As [`Wal::open`].
    pub fn read(&self, writer: Writer, from: u64, visit: &mut dyn FnMut(&Found<'_>) -> Result<()>) -> Result<()> {
        self.segments.release_below(writer.number(), from);
        let chain = self.segments.chain(writer.number());
        let end = Reader { segments: &self.segments, writer, chain: &chain }.read(from, visit)?;
        lock(&self.ends).insert(writer, end);
        Ok(())
    }

    /// The tick of the last record of `writer` before position `from`: one that is still there, or one of the same
    /// life. 0: there is none. `None`: no record of the log can be under way.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn tick_before(&self, writer: Writer, from: u64) -> Result<Option<Tick>> {
        let chain = self.segments.chain(writer.number());
        Reader { segments: &self.segments, writer, chain: &chain }.tick_before(from)
    }

    /// Ends the log of `writer`, which was read, before its last record at `position`: that does not count. The one
    /// before it has the tick `last`.
    pub fn end_before(&self, writer: Writer, position: u64, last: Tick) {
        // Without entries: a mark would say that the record was acknowledged.
        let end = End { position, last_tick: last.0, has_entries: false };
        lock(&self.ends).insert(writer, end);
    }

    /// Mends damaged copies and makes the ends certain, unless the pool is open read-only.
    ///
    /// # Panics
    /// When a log was not read: its end is not known.
    #[must_use]
    pub fn finish(self, store: LogStore) -> Wal {
        let ends = std::mem::take(&mut *lock(&self.ends));
        assert_eq!(ends.len(), self.writers.len(), "each log is read before it is used");
        if !self.segments.memory().is_read_only() {
            make_ends_certain(&self.segments, &ends);
        }
        let ends = ends.into_iter().map(|(writer, end)| (writer, Log::Idle(end))).collect();
        Wal { shared: Arc::new(Shared { segments: self.segments, store, ends: Mutex::new(ends) }) }
    }
}

/// Clears the first word at the end of each log, so that no record which a crash tore there can become whole: the next
/// life may store the very lines that it lacks.
fn make_ends_certain(segments: &Segments, ends: &BTreeMap<Writer, End>) {
    let memory = segments.memory();
    segments.heal();
    for (writer, end) in ends {
        segments.release_above(writer.number(), end.position);
        let chain = segments.chain(writer.number());
        let Some(last) = chain.last().filter(|last| end.position - last.first < segments.capacity) else { continue };
        let at = last.address(end.position);
        if memory.load(at) != 0 {
            memory.store(at, 0);
            // Before the fence below.
            memory.flush(at, 8);
        }
    }
    // No record of this life may overtake the words: it could complete an old one. Nor may it overtake the heads.
    memory.fence();
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).map_err(|error| {
            let source = std::io::Error::from(error);
            Error::Pmem(lodestone_pmem::Error::Io {
                path: "the system's random numbers".into(),
                action: "reading",
                source,
                hint: "a log needs a random seed; see `getrandom(2)`",
            })
        })?;
    }
    Ok(u64::from_le_bytes(bytes))
}
