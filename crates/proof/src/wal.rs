//! Logs under the crash explorer: new logs, records of one line and of several, new segments, records in pieces,
//! marks, truncation.
//!
//! The structure holds two logs. Its view is the records that an open finds, by writer; its model is lists. Where a
//! log begins is a root word of its writer, as a checkpoint of an engine would hold it.

use std::collections::BTreeMap;

use lodestone_crash::planted::Bug;
use lodestone_crash::{Failure, Outcome, Redundant, SiteKey, Structure, Target, tiny_pool};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{PmAddr, Pool, PoolOptions};
use lodestone_txn::{Tick, Writer};
use lodestone_wal::{LogOptions, LogStore, Record, Wal};

/// Where the records of a segment begin, as `docs/format.md` says.
const RECORDS: u64 = 512;

/// The tick of a torn transaction. No life uses it again.
const TORN_TICK: u64 = 1;

/// One change of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The writer appends a record with this key and so many bytes of values, in as many rows as `rows` says.
    Append(u16, u8, usize),
    /// All logs get a mark at the end.
    Mark,
    /// The writer's log begins after its last record from now on.
    Truncate(u16),
}

/// A transaction that a crash tore before the run, with the length of its values.
#[derive(Clone, Copy, Debug)]
enum Torn {
    /// It lacks its last piece. A life without transactions has come after it.
    Piece(usize),
    /// It lacks its last line. The run has the first open after that crash.
    Line(usize),
}

/// Keys and lengths of the values, by writer.
type View = BTreeMap<u16, Vec<(u8, usize)>>;

/// A script on two logs.
struct Logs {
    name: &'static str,
    /// Whether the logs exist before the run.
    is_made: bool,
    script: Vec<Step>,
    store: LogStore,
    segment_bytes: u64,
    torn: Option<Torn>,
}

/// The opened logs.
struct Handle {
    heap: Heap,
    wal: Wal,
    /// The records that the open found, and those that were appended since.
    view: Mutex<View>,
    /// The last tick.
    tick: Mutex<u64>,
}

/// All targets of the logs.
#[must_use]
pub fn targets() -> Vec<Box<dyn Target>> {
    use Step::{Append, Mark, Truncate};
    let logs = |name, script, store, segment_bytes| -> Box<dyn Target> {
        Box::new(Logs { name, is_made: name != "wal-create", script, store, segment_bytes, torn: None })
    };
    let appends = vec![Append(0, 1, 8), Append(0, 2, 100), Append(1, 3, 90), Mark, Append(0, 4, 8)];
    let segments = vec![Append(0, 1, 100), Append(0, 2, 100), Truncate(0), Append(1, 3, 8), Append(0, 4, 120)];
    let pieces = vec![Append(0, 1, 8), Append(0, 2, 240), Append(0, 3, 8)];
    vec![
        logs("wal-create", vec![Append(0, 1, 8)], LogStore::Stream, 768),
        logs("wal-append", appends, LogStore::Stream, 4096),
        logs("wal-flush", vec![Append(0, 1, 100), Append(0, 2, 8)], LogStore::Flush, 4096),
        logs("wal-segment", segments, LogStore::Stream, 768),
        logs("wal-pieces", pieces, LogStore::Stream, 768),
        // The last piece takes the segment of that piece of the transaction before, at the same position.
        Box::new(Logs {
            name: "wal-pieces-again",
            is_made: true,
            script: vec![Append(0, 2, 480)],
            store: LogStore::Stream,
            segment_bytes: 768,
            torn: Some(Torn::Piece(720)),
        }),
        // Its last line is the one that the torn transaction lacks.
        Box::new(Logs {
            name: "wal-torn-end",
            is_made: true,
            script: vec![Append(0, 2, 240)],
            store: LogStore::Stream,
            segment_bytes: 4096,
            torn: Some(Torn::Line(240)),
        }),
    ]
}

/// Key and bytes of each row of a record. A long record has two rows, so that half of it would show. The second is the
/// same for all records.
fn rows(key: u8, bytes: usize) -> Vec<(u8, usize)> {
    if bytes < 200 { vec![(key, bytes)] } else { vec![(key, bytes / 2), (100, bytes / 2)] }
}

/// The root word that holds where the log of `writer` begins.
fn begin_word(heap: &Heap, writer: u16) -> PmAddr {
    heap.root_word(8 * (u64::from(writer) + 1))
}

fn id(writer: u16) -> Outcome<Writer> {
    Writer::new(writer).ok_or_else(|| Failure::new("a writer's number is small"))
}

impl Logs {
    /// Makes the logs and the word that leads to them.
    fn make(&self, heap: &Heap) -> Outcome {
        let mut action = heap.action();
        let log_bytes = 16 * self.segment_bytes;
        // Fixed: runs must repeat exactly.
        let salt = Some(0x5EED);
        let options = LogOptions { log_bytes, segment_bytes: self.segment_bytes, salt, ..LogOptions::default() };
        let at = Wal::make(heap, &mut action, &options)?;
        action.set(heap.root_word(0), at.to_raw());
        Ok(action.commit()?)
    }

    fn tear(&self, pool: &Pool, torn: Torn) -> Outcome {
        let handle = self.open(pool)?;
        let (Torn::Piece(bytes) | Torn::Line(bytes)) = torn;
        *lock(&handle.tick) = TORN_TICK - 1;
        self.apply(&handle, &Step::Append(0, 1, bytes))?;
        // The last piece is in the segment that was made first, which comes after the directory.
        let (segment, _) = handle.wal.blocks()[1];
        let place = segment.plus(match torn {
            Torn::Piece(_) => RECORDS,
            Torn::Line(_) => RECORDS + handle.wal.writer(id(0)?)?.position() - 64,
        });
        let memory = handle.heap.memory();
        memory.store(place, !memory.load(place));
        // The run begins with what is persistent.
        memory.persist(place, 8);
        drop(handle);
        match torn {
            Torn::Piece(_) => self.open(pool).map(drop),
            Torn::Line(_) => Ok(()),
        }
    }
}

impl Structure for Logs {
    type Op = Step;
    type Handle = Handle;
    type View = View;

    fn name(&self) -> String {
        self.name.into()
    }

    fn options(&self) -> PoolOptions {
        PoolOptions { size_bytes: 64 << 10, ..tiny_pool() }
    }

    fn script(&self) -> Vec<Step> {
        self.script.clone()
    }

    fn setup(&self, pool: &Pool) -> Outcome {
        let heap = Heap::open(pool, &HeapOptions::small())?;
        if self.is_made {
            self.make(&heap)?;
        }
        drop(heap);
        self.torn.map_or(Ok(()), |torn| self.tear(pool, torn))
    }

    fn open(&self, pool: &Pool) -> Outcome<Handle> {
        let heap = Heap::open(pool, &HeapOptions::small())?;
        if heap.memory().load(heap.root_word(0)) == 0 {
            self.make(&heap)?;
        }
        let at = PmAddr::from_raw(heap.memory().load(heap.root_word(0)));
        let (mut view, mut tick) = (View::new(), TORN_TICK);
        let mut from = |writer: Writer| heap.memory().load(begin_word(&heap, writer.number()));
        let wal = Wal::open_with(&heap, at, self.store, &mut from, &mut |found| {
            tick = tick.max(found.tick.0);
            for entry in found.entries() {
                let key = entry.key.first().copied().unwrap_or(0);
                let is_right = entry.value.iter().all(|byte| *byte == key);
                let bytes = if is_right { entry.value.len() } else { usize::MAX };
                view.entry(found.writer.number()).or_default().push((key, bytes));
            }
            Ok(())
        })?;
        Ok(Handle { wal, view: Mutex::new(view), tick: Mutex::new(tick), heap })
    }

    fn apply(&self, handle: &Handle, step: &Step) -> Outcome {
        let memory = handle.heap.memory();
        match *step {
            Step::Append(writer, key, bytes) => {
                let mut log = handle.wal.writer(id(writer)?)?;
                let mut record = Record::new();
                for (key, bytes) in rows(key, bytes) {
                    record.put(1, &[key], &vec![key; bytes])?;
                }
                let room = log.reserve(&mut record)?;
                let mut tick = lock(&handle.tick);
                *tick += 1;
                log.append(room, &mut record, Tick(*tick))?;
                // The one fence: the operation is acknowledged after it.
                memory.fence();
                lock(&handle.view).entry(writer).or_default().extend(rows(key, bytes));
            }
            Step::Mark => {
                let mut tick = lock(&handle.tick);
                handle.wal.mark_ends(&mut |used| {
                    *tick = used.0.max(*tick);
                    true
                })?;
            }
            Step::Truncate(writer) => {
                let position = handle.wal.writer(id(writer)?)?.position();
                let word = begin_word(&handle.heap, writer);
                memory.store(word, position);
                // Before the segments below are used again.
                memory.persist(word, 8);
                handle.wal.truncate(id(writer)?, position);
                lock(&handle.view).remove(&writer);
            }
        }
        Ok(())
    }

    fn view(&self, handle: &Handle) -> Outcome<View> {
        Ok(lock(&handle.view).clone())
    }

    fn model(&self, steps: &[Step]) -> View {
        let mut view = View::new();
        for step in steps {
            match *step {
                Step::Append(writer, key, bytes) => view.entry(writer).or_default().extend(rows(key, bytes)),
                Step::Mark => {}
                Step::Truncate(writer) => {
                    view.remove(&writer);
                }
            }
        }
        view
    }

    fn audit(&self, handle: &Handle) -> Outcome {
        let mut owned = handle.wal.blocks().into_iter();
        let report = handle.heap.check_owned(&mut owned);
        Failure::unless(report.is_clean(), || format!("the heap and the log disagree: {report}"))
    }

    fn audits(&self, site: &SiteKey) -> bool {
        site.file.contains("wal/src/")
    }

    fn redundant(&self) -> Vec<Redundant> {
        let flush = "the former head shows when the newer line is damaged later: \
                     `a_head_that_a_crash_left_in_one_line_is_in_both_before_a_record_follows`; `wal-pieces` kills it";
        let end = "an end that is not certain shows when the life after it appends and crashes: \
                   `a_torn_record_never_becomes_whole`; `wal-torn-end` kills it";
        let mut redundant = Vec::new();
        let is_torn_end = self.name == "wal-torn-end";
        if !is_torn_end {
            redundant.push(Redundant::new("at crates/wal/src/wal.rs", 5, end));
        }
        // New logs have no segment that a crash could have left with a former head, and here none is taken.
        if self.is_made && !is_torn_end && !self.name.starts_with("wal-pieces") {
            redundant.push(Redundant::new("at crates/wal/src/segments.rs", 2, flush));
        }
        if self.script.contains(&Step::Mark) {
            let mark = "the fence of the append that follows orders the mark too; only another thread's would not";
            redundant.push(Redundant::new("early fence at crates/wal/src/mark.rs", 1, mark));
        }
        redundant
    }
}

/// Bugs that a target of this module must find.
#[must_use]
pub fn bugs() -> Vec<Bug> {
    vec![
        Bug::new("wal-no-crc", "a torn record is replayed as it is", || named("wal-append")),
        Bug::new("wal-piece-counts-alone", "half of a long transaction survives", || named("wal-pieces")),
        Bug::new(
            "wal-generation-kept",
            "a piece of a transaction that a crash cut short is taken for a later one's",
            || named("wal-pieces-again"),
        ),
    ]
}

fn named(name: &str) -> Box<dyn Target> {
    targets().into_iter().find(|target| target.name() == name).expect("a target of that name")
}
