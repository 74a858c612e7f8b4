//! Opening: the rows from the logs, and the clock of a new life.
//!
//! 1. Every log is read from its beginning. Of each row the change with the largest tick counts, whatever the order in
//!    which the logs are read: ticks of a row rise with its versions. There is no undo.
//! 2. A crashed life ends. Its record in the table of lives names no writer: records certify themselves.
//! 3. A new life begins, whose ticks are above all that may be in the logs.
//! 4. Logs that end with a record of the crashed life are marked: from now on damage to it is named.
//! 5. The trees are built. All their rows have the first tick of the new life.
//!
//! Only the ends of the logs and the clock are written, so a crash in between repeats it with the same result. The time
//! is bounded by `log_bytes`, since nothing is truncated yet.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestone_heap::Heap;
use lodestone_pmem::{Memory, planted};
use lodestone_txn::{ClockKind, Lives, Tick, Timeline};
use lodestone_wal::{EntryKind, Found, Wal};

use crate::error::Result;
use crate::format::Places;
use crate::options::DatabaseOptions;
use crate::tree::{Bytes, Tree};

/// What an open found and did.
///
/// ```
/// use lodestone_engine::{Database, DatabaseOptions, Error, Schema, Type, row};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("shop.pool");
/// # let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let options = DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
/// let db = Database::open_with(&path, &options)?;
/// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
/// db.update(|tx| table.put(tx, &row![1_u64]))?;
/// drop((table, db));
/// let report = Database::open_with(&path, &options)?.recovery();
/// assert!(report.was_clean && report.copies_damaged == 0);
/// // One that made the table, and one that put the row. The catalog has two rows.
/// assert_eq!((report.records, report.rows), (2, 3));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Whether the last life that changed anything ended in order.
    pub was_clean: bool,
    /// Records of transactions in the logs.
    pub records: u64,
    /// Rows that they leave, with those of the catalog.
    pub rows: u64,
    /// Copies of header and clock that were not whole: torn by a crash, or damaged. The other copy was used, and an
    /// open for writing made both equal.
    pub copies_damaged: u64,
    /// The same of the log's directory and its segments. A crash can leave one for each writer.
    pub log_copies_damaged: u64,
}

/// The newest change of each row, by tree and key.
type Rows = BTreeMap<(u32, Vec<u8>), (Tick, Option<Bytes>)>;

/// The parts of an opened database.
pub struct Recovered {
    pub timeline: Timeline,
    pub wal: Wal,
    pub trees: BTreeMap<u32, Arc<Tree>>,
    pub report: RecoveryReport,
}

/// Opens everything. See the module.
pub fn recover(heap: &Heap, places: &Places, options: &DatabaseOptions) -> Result<Recovered> {
    let memory = heap.memory();
    let mut lives = Lives::open(memory, places.lives())?;
    let mut report = RecoveryReport { was_clean: !lives.is_open(), ..RecoveryReport::default() };
    report.copies_damaged = if memory.is_read_only() {
        lodestone_width::to_u64(places.damaged_lines(memory).len() + lives.findings(memory).len())
    } else {
        // First of all: the next steps rely on the newest state. One damaged line could still take it back.
        let copies = places.heal(memory);
        lodestone_width::to_u64(copies) + u64::from(lives.heal(memory)) + u64::from(lives.heal_table(memory))
    };
    let mut rows = Rows::new();
    let wal = Wal::open_with(heap, places.log(), options.log_store, &mut |_| 0, &mut |found| {
        report.records += u64::from(!found.is_mark());
        collect(&mut rows, found, lives.limit()).map_err(|finding| damaged(heap, places, found, finding))
    })?;
    report.log_copies_damaged = lodestone_width::to_u64(wal.copies_damaged().len());
    begin(memory, &mut lives)?;
    let timeline = Timeline::new(memory, lives, ClockKind::Thread, places.threads_max());
    if !memory.is_read_only() {
        wal.mark_ends(&mut |tick| timeline.reserve(tick).is_ok())?;
    }
    let trees = build(rows, timeline.base(), options.leaf_rows_max, &mut report.rows);
    Ok(Recovered { timeline, wal, trees, report })
}

fn collect(rows: &mut Rows, found: &Found<'_>, limit: Tick) -> std::result::Result<(), &'static str> {
    if found.tick > limit {
        return Err("its tick was never reserved");
    }
    for entry in found.entries() {
        let payload = match entry.kind {
            EntryKind::Put => Some(Bytes::from(entry.value)),
            EntryKind::Delete => None,
            EntryKind::Delta | EntryKind::Member => {
                return Err("it has an entry of a kind that this version never writes");
            }
        };
        let newest = rows.entry((entry.tree, entry.key.to_vec())).or_insert((Tick::NEVER, None));
        if found.tick > newest.0 || planted::active("engine-last-read-wins") {
            *newest = (found.tick, payload);
        }
    }
    Ok(())
}

fn damaged(heap: &Heap, places: &Places, found: &Found<'_>, finding: &str) -> lodestone_wal::Error {
    lodestone_wal::Error::Damaged {
        path: heap.pool().path().to_owned(),
        what: "log",
        at: places.log(),
        finding: format!("record at position {} of writer {}: {finding}", found.position, found.writer.number()),
    }
}

/// Ends a crashed life and begins another one.
fn begin(memory: &Memory, lives: &mut Lives) -> Result<()> {
    if lives.is_open() {
        if memory.is_read_only() {
            lives.close_crashed_in_memory(Vec::new(), Vec::new());
        } else if lives.close_crashed(memory, Vec::new()).is_err() {
            // The table is full. Nothing on the medium is judged by it, so nothing has to be made invalid first.
            lives.renew(memory);
            lives.close_crashed(memory, Vec::new())?;
        }
    }
    if !memory.is_read_only() {
        if lives.scrub_is_due() {
            lives.renew(memory);
        }
        lives.begin(memory);
    }
    Ok(())
}

fn build(rows: Rows, base: Tick, leaf_rows_max: usize, count: &mut u64) -> BTreeMap<u32, Arc<Tree>> {
    let mut by_tree: BTreeMap<u32, Vec<(Bytes, Bytes)>> = BTreeMap::new();
    for ((tree, key), (_, payload)) in rows {
        if let Some(payload) = payload {
            *count += 1;
            by_tree.entry(tree).or_default().push((key.into(), payload));
        }
    }
    by_tree.into_iter().map(|(number, rows)| (number, Arc::new(Tree::new(number, leaf_rows_max, base, rows)))).collect()
}
