//! Opening: the rows from the logs, and the clock of a new life.
//!
//! 1. The images of the newest checkpoint are read, then every log from the position of the older checkpoint. Of each
//!    row the change with the largest tick counts, whatever the order in which they are read: ticks of a row rise with
//!    its versions. There is no undo. The records before the position are closed under dependency: a row that was
//!    deleted there does not come back by a record after it. Deltas are sorted by their ticks, and applied when all
//!    else is read (`delta.rs`).
//! 2. A crashed life ends. Its record in the table of lives names no writer: records certify themselves.
//! 3. A new life begins, whose ticks are above all that may be in the logs.
//! 4. Logs that end with a record of the crashed life are marked: from now on damage to it is named.
//! 5. The trees are built. All their rows have the first tick of the new life.
//!
//! 6. A leaf for each image. It is clean if no row of it has changed since.
//!
//! Only the ends of the logs, the clock and traces of an unpublished batch are written, so a crash in between repeats
//! it with the same result. The time is bounded by the size of the pages and `log_bytes`.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use lodestone_heap::Heap;
use lodestone_pages::{Image, Pages};
use lodestone_pmem::{Memory, planted};
use lodestone_txn::{ClockKind, Lives, Tick, Timeline};
use lodestone_wal::{EntryKind, Wal};

use crate::delta::{self, Delta, Deltas};
use crate::error::{Error, Result};
use crate::format::Places;
use crate::options::DatabaseOptions;
use crate::tree::{Bytes, Tree, TreePart};

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
    /// The same of the directory of the pages and of their extents.
    pub page_copies_damaged: u64,
}

/// The newest change of each row, by key.
type Changes = BTreeMap<Vec<u8>, (Tick, Option<Bytes>)>;

/// A tree as it is read.
#[derive(Default)]
struct Reading {
    rows: Changes,
    /// Changes of rows that are not whole. They wait until all whole ones are read.
    deltas: Deltas,
    /// Images by their first possible key, and whether their rows are not what the image has.
    images: BTreeMap<Vec<u8>, (Image, bool)>,
}

/// The parts of an opened database.
pub struct Recovered {
    pub timeline: Timeline,
    pub wal: Wal,
    pub pages: Pages,
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
    let pages = Pages::open(heap, places.pages())?;
    report.page_copies_damaged = lodestone_width::to_u64(pages.copies_damaged().len());
    let mut trees = read_pages(heap, places, &pages, lives.limit())?;
    let mut from = |writer| pages.from(writer);
    let wal = Wal::open_with(heap, places.log(), options.log_store, &mut from, &mut |found| {
        report.records += u64::from(!found.is_mark());
        collect(&mut trees, found, lives.limit()).map_err(|finding| damaged(heap, places, found, finding))
    })?;
    for (number, reading) in &mut trees {
        reading.redo().map_err(|(key, finding)| Error::Damaged {
            path: heap.pool().path().to_owned(),
            what: "log",
            at: places.log(),
            finding: format!("row `{}` of tree {number}: {finding}", key.escape_ascii()),
        })?;
    }
    if let Some((writer, _)) = wal.positions().into_iter().find(|(writer, _)| writer.number() >= places.threads_max()) {
        let finding =
            format!("writer {} has a log, the database has {} writers", writer.number(), places.threads_max());
        return Err(Error::Damaged { path: heap.pool().path().to_owned(), what: "log", at: places.log(), finding });
    }
    report.log_copies_damaged = lodestone_width::to_u64(wal.copies_damaged().len());
    begin(memory, &mut lives)?;
    let timeline = Timeline::new(memory, lives, ClockKind::Thread, places.threads_max());
    if !memory.is_read_only() {
        wal.mark_ends(&mut |tick| timeline.reserve(tick).is_ok())?;
    }
    let trees = build(trees, timeline.base(), options.leaf_rows_max, &mut report.rows);
    Ok(Recovered { timeline, wal, pages, trees, report })
}

/// The rows of all images that count.
fn read_pages(heap: &Heap, places: &Places, pages: &Pages, limit: Tick) -> Result<BTreeMap<u32, Reading>> {
    let mut images = Vec::new();
    pages.images::<Error>(&mut |found| {
        images.push(found);
        Ok(())
    })?;
    let bad = |finding: String| Error::Damaged {
        path: heap.pool().path().to_owned(),
        what: "pages",
        at: places.pages(),
        finding,
    };
    let mut trees: BTreeMap<u32, Reading> = BTreeMap::new();
    for found in &images {
        let reading = trees.entry(found.tree).or_default();
        if reading.images.insert(found.low.clone(), (found.image.clone(), false)).is_some() {
            return Err(bad(format!(
                "two images of tree {} begin with the key `{}`",
                found.tree,
                found.low.escape_ascii()
            )));
        }
    }
    for found in &images {
        let Some(reading) = trees.get_mut(&found.tree) else { continue };
        for row in found.rows() {
            if row.tick > limit {
                let key = row.key.escape_ascii();
                return Err(bad(format!("the row `{key}` of tree {} has a tick that was never reserved", found.tree)));
            }
            if reading.home_of(row.key).is_none_or(|low| low != found.low) {
                // The leaf was split while its image was written. The other half may have an image of its own.
                reading.soil(row.key);
                reading.soil(&found.low);
            }
            reading.change(row.key, row.tick, Some(row.payload));
        }
    }
    Ok(trees)
}

impl Reading {
    /// The first possible key of the image that could have `key`.
    fn home_of(&self, key: &[u8]) -> Option<&[u8]> {
        let range = (Bound::Unbounded, Bound::Included(key));
        self.images.range::<[u8], _>(range).next_back().map(|(low, _)| &low[..])
    }

    /// Notes that the image that could have `key` has not the newest rows.
    fn soil(&mut self, key: &[u8]) {
        let range = (Bound::Unbounded, Bound::Included(key));
        if let Some((_, (_, is_dirty))) = self.images.range_mut::<[u8], _>(range).next_back() {
            *is_dirty = true;
        }
    }

    /// Notes a change, unless a later one is known. Returns whether it is the newest.
    fn change(&mut self, key: &[u8], tick: Tick, payload: Option<&[u8]>) -> bool {
        let newest = self.rows.entry(key.to_vec()).or_insert((Tick::NEVER, None));
        let is_newest = tick > newest.0 || planted::active("engine-last-read-wins");
        if is_newest {
            *newest = (tick, payload.map(Bytes::from));
        }
        is_newest
    }

    /// Applies the deltas. Returns the key of a row that is damaged, and the finding.
    fn redo(&mut self) -> std::result::Result<(), (Vec<u8>, String)> {
        for (key, deltas) in std::mem::take(&mut self.deltas) {
            let newest = self.rows.entry(key.clone()).or_insert((Tick::NEVER, None));
            match delta::redo(newest, deltas) {
                Ok(false) => {}
                Ok(true) => self.soil(&key),
                Err(finding) => return Err((key, finding)),
            }
        }
        Ok(())
    }

    /// The parts of the tree. Counts the rows.
    fn parts(self, count: &mut u64) -> Vec<TreePart> {
        let image = |(low, (image, is_dirty))| TreePart { low, home: Some(image), is_dirty, rows: Vec::new() };
        let mut parts: Vec<TreePart> = self.images.into_iter().map(image).collect();
        if parts.first().is_none_or(|first| !first.low.is_empty()) {
            parts.insert(0, TreePart { is_dirty: true, ..TreePart::default() });
        }
        let mut part = 0;
        for (key, (_, payload)) in self.rows {
            let Some(payload) = payload else { continue };
            while parts.get(part + 1).is_some_and(|next| next.low <= key) {
                part += 1;
            }
            parts[part].rows.push((key.into(), payload));
            *count += 1;
        }
        parts
    }
}

fn collect(
    trees: &mut BTreeMap<u32, Reading>,
    found: &lodestone_wal::Found<'_>,
    limit: Tick,
) -> std::result::Result<(), &'static str> {
    if found.tick > limit {
        return Err("its tick was never reserved");
    }
    let mut tick = found.tick;
    for entry in found.entries() {
        if entry.kind == EntryKind::Commit {
            let named = entry.value.try_into().map(u64::from_le_bytes).map(Tick);
            tick = named.ok().filter(|tick| *tick <= found.tick).ok_or("the tick of a transaction makes no sense")?;
            continue;
        }
        let reading = trees.entry(entry.tree).or_default();
        let payload = match entry.kind {
            EntryKind::Put => Some(entry.value),
            EntryKind::Delete => None,
            EntryKind::Delta => {
                let delta = Delta { tick, value: entry.value.into() };
                reading.deltas.entry(entry.key.to_vec()).or_default().push(delta);
                continue;
            }
            EntryKind::Commit | EntryKind::Member => {
                return Err("it has an entry of a kind that this version never writes");
            }
        };
        if reading.change(entry.key, tick, payload) {
            reading.soil(entry.key);
        }
    }
    Ok(())
}

fn damaged(heap: &Heap, places: &Places, found: &lodestone_wal::Found<'_>, finding: &str) -> lodestone_wal::Error {
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

fn build(trees: BTreeMap<u32, Reading>, base: Tick, leaf_rows_max: usize, count: &mut u64) -> BTreeMap<u32, Arc<Tree>> {
    let tree = |(number, reading): (u32, Reading)| {
        let parts = reading.parts(count);
        (number, Arc::new(Tree::of_parts(number, leaf_rows_max, base, parts)))
    };
    trees.into_iter().map(tree).collect()
}
