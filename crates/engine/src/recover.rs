//! Opening: the rows from the logs, and the clock of a new life.
//!
//! 1. The page table is read for the images of the newest checkpoint, then every log from the position of the older
//!    checkpoint, each by a thread. An image is read now if a record changes a row of it, and else at the first look at
//!    it (`cold.rs`). Of each row the change with the largest tick counts, whatever the order in which they are read
//!    (`redo.rs`): ticks of a row rise with its versions. There is no undo. The records before the position are closed
//!    under dependency: a row that was deleted there does not come back by a record after it. Deltas are sorted by
//!    their ticks, and applied when all else is read (`delta.rs`).
//!    Logs and images are read by threads on their nodes, as long as these have some (`lodestone_pmem::work`). Of a
//!    transaction with records in several logs all count, or none (`recover/together.rs`).
//! 2. A crashed life ends. Its record in the table of lives names no writer: records certify themselves.
//! 3. A new life begins, whose ticks are above all that may be in the logs.
//! 4. Logs that end with a record of the crashed life are marked: from now on damage to it is named.
//! 5. The trees are built. All their rows have the first tick of the new life. There is a leaf for each image. It is
//!    clean if no row of it has changed since.
//!
//! Only the ends of the logs, the clock and traces of an unpublished batch are written, so a crash in between repeats
//! it with the same result. The time is bounded by the number of pages and `log_bytes`, and so is the memory: the
//! records stay in DRAM until the trees are built.

mod together;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use lodestone_blocks::Block;
use lodestone_heap::Heap;
use lodestone_pages::{Image, Listed, Pages};
use lodestone_pmem::sync::{Mutex, lock};
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, work};
use lodestone_txn::{ClockKind, Lives, Tick, Timeline, Writer};
use lodestone_wal::{Kept, Opening, Wal};

use self::together::Parts;
use crate::cache::{self, Cache};
use crate::cold::Source;
use crate::dual::{self, Cells, Verdict};
use crate::error::{Error, Result};
use crate::events::Phases;
use crate::format::Places;
use crate::leaf::Leaf;
use crate::leaf_size::LeafSize;
use crate::on_open::{Meter, OnOpen, OpenStep};
use crate::options::DatabaseOptions;
use crate::redo::{self, Redo, Sample, Trouble};
use crate::restore::{self, LastRecord, LogEnd};
use crate::tree::{Ground, Tree, TreePart};
use crate::warm::WARM_TREE;

/// Findings and work of an open.
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
    /// Rows of them and of the page table, with those of the catalog. Rows that a checkpoint has added to a page in
    /// place are not all among them.
    pub rows: u64,
    /// Copies of header and clock that were not whole: torn by a crash, or damaged. The other copy was used, and an
    /// open for writing made both equal.
    pub copies_damaged: u64,
    /// The same of the log's directory and its segments. A crash can leave one for each writer.
    pub log_copies_damaged: u64,
    /// The same of the directory of the pages and of their extents.
    pub page_copies_damaged: u64,
}

/// Parts of trees whose leaves a thread makes in one go.
const PARTS_OF_PIECE: usize = 128;
/// A tree of so many times the bytes of the log is large beside it. A round is due when the log is half full. So its
/// records are about an eighth of the bytes of such a tree, at most a quarter of the lines of its pages.
const LARGE: usize = 4;

/// The parts of an opened database.
pub struct Recovered {
    pub timeline: Timeline,
    pub wal: Wal,
    pub pages: Pages,
    pub trees: BTreeMap<u32, Arc<Tree>>,
    pub ground: Ground,
    pub ends: Vec<LogEnd>,
    /// The images of the list of leaves for a warm-up, with their first keys.
    pub warm: Vec<(Image, Block)>,
    pub report: RecoveryReport,
}

/// Opens everything. See the module.
pub fn recover(heap: &Heap, places: &Places, options: &DatabaseOptions, phases: &mut Phases<'_>) -> Result<Recovered> {
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
    let cells = places.cells().map(|first| Cells::open(heap, first)).transpose()?.map(Arc::new);
    if let Some(cells) = &cells {
        report.copies_damaged += if memory.is_read_only() {
            lodestone_width::to_u64(cells.damaged_lines().len())
        } else {
            cells.heal().into()
        };
    }
    let pages = Pages::open(heap, places.pages())?;
    report.page_copies_damaged = lodestone_width::to_u64(pages.copies_damaged().len());
    let (threads, limit) = (work::threads(memory), lives.limit());
    let is_suspect = !report.was_clean && memory.direct_unit() == LINE_BYTES;
    let (cells_open, on_open) = (cells.as_deref(), options.on_open.as_ref());
    let is_crashed = !report.was_clean;
    let mut verdict = Verdict { base: lives.base(), limit, is_crashed, ..Verdict::default() };
    let opener = Opener { heap, places, pages: &pages, cells: cells_open, limit, threads, is_suspect, on_open };
    let reader = match options.far_pages.begin(heap.pool())? {
        Some(far) => pages.reader().through(far),
        None => pages.reader(),
    };
    let arena = options.cache_bytes.and_then(|bytes| cache::arena(bytes, pages.page_room()));
    let reader = reader.into_arena(arena.clone()).around_cache(options.direct_reads && options.cache_bytes.is_some());
    let source = Source::new(reader, cells.clone(), limit);
    let mut images = opener.read_pages()?;
    let warm = images.extract_if(.., |listed| listed.tree == WARM_TREE).map(|listed| (listed.image, listed.low));
    let warm = warm.collect();
    phases.end("images", images.len());
    let opening = Opening::begin(heap, places.log())?;
    let (records, sample, last) = opener.read_logs(&opening, &mut verdict)?;
    report.records = lodestone_width::to_u64(records.iter().map(Kept::len).sum::<usize>());
    phases.end("records", lodestone_width::to_usize(report.records));
    if let Some(cells) = &cells {
        cells.judge(verdict);
        cells.sweep(&images.iter().map(|image| image.tree).chain(sample.trees()).collect());
        if !cells.is_empty() {
            phases.end("cells", cells.blocks().len());
        }
    }
    let parts = opener.redo(&images, &sample, &records, &source)?;
    drop((records, images));
    report.rows = parts.iter().map(|(_, part)| lodestone_width::to_u64(part.len())).sum();
    phases.end("rows", lodestone_width::to_usize(report.rows));
    let wal = opening.finish(options.log_store);
    if let Some((writer, _)) = wal.positions().into_iter().find(|(writer, _)| writer.number() >= places.threads_max()) {
        let finding =
            format!("writer {} has a log, the database has {} writers", writer.number(), places.threads_max());
        return Err(Error::Damaged { path: heap.pool().path().to_owned(), what: "log", at: places.log(), finding });
    }
    // Before they are marked.
    let end = |(writer, position): (Writer, u64)| LogEnd {
        writer: writer.index(),
        position,
        last: last.iter().find(|(of, _)| *of == writer).map(|(_, last)| *last),
    };
    let ends = wal.positions().into_iter().map(end).collect();
    report.log_copies_damaged = lodestone_width::to_u64(wal.copies_damaged().len());
    begin(memory, &mut lives)?;
    let timeline = Timeline::new(memory, lives, ClockKind::Thread, places.threads_max());
    if !memory.is_read_only() {
        wal.mark_ends(&mut |tick| timeline.reserve(tick).is_ok())?;
    }
    let leaf_size = LeafSize { rows_max: options.leaf_rows_max, bytes_max: pages.page_room() };
    let cache = |bytes| Cache::new(bytes, arena, options.row_reads, leaf_size.bytes_max);
    let cache = options.cache_bytes.map(cache);
    let many_leaves = lodestone_width::to_usize(places.log_bytes()).saturating_mul(LARGE) / leaf_size.bytes_max;
    let ground = Ground { leaf_size, base: timeline.base(), source, cache, many_leaves };
    phases.end("life", 1);
    let trees = build(parts, &ground, threads);
    phases.end("trees", trees.len());
    Ok(Recovered { timeline, wal, pages, trees, ground, ends, warm, report })
}

/// The work of an open that threads share.
struct Opener<'o> {
    heap: &'o Heap,
    places: &'o Places,
    pages: &'o Pages,
    cells: Option<&'o Cells>,
    /// No tick above it was ever reserved.
    limit: Tick,
    threads: usize,
    /// Whether the life before was cut off, in memory that has lines.
    is_suspect: bool,
    on_open: Option<&'o OnOpen>,
}

impl Opener<'_> {
    fn meter(&self, step: OpenStep, total: Option<usize>) -> Meter<'_> {
        Meter::new(self.on_open, step, total)
    }

    /// All images that count, by tree and first key. None of them is read.
    fn read_pages(&self) -> Result<Vec<Listed>> {
        let images = self.pages.listed()?;
        self.meter(OpenStep::Images, Some(images.len())).add(images.len());
        let mut pairs = images.windows(2);
        match pairs.find(|pair| (pair[0].tree, &pair[0].low[..]) == (pair[1].tree, &pair[1].low[..])) {
            None => Ok(images),
            Some(pair) => {
                let (tree, low) = (pair[0].tree, pair[0].low.escape_ascii());
                let finding = format!("two images of tree {tree} begin with the key `{low}`");
                Err(self.damaged("pages", self.places.pages(), finding))
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "the parts go their own ways at once")]
    /// Reads all logs, each from the position where the older checkpoint needs it. Returns their records that have
    /// entries, and the last record of each. Notes in `verdict` which versions in cells count.
    fn read_logs(
        &self,
        opening: &Opening,
        verdict: &mut Verdict,
    ) -> Result<(Vec<Kept>, Sample, Vec<(Writer, LastRecord)>)> {
        let (writers, meter) = (opening.writers(), self.meter(OpenStep::Records, None));
        let cells = self.cells.filter(|cells| verdict.is_crashed && !cells.is_empty());
        let read = |number: usize| {
            let (writer, mut kept, mut sample) = (writers[number], Kept::default(), Sample::default());
            let (mut lasts, mut parts) = ([None::<(u64, Tick, bool)>; 2], Parts::default());
            opening.read(writer, self.pages.from(writer), &mut |found| {
                redo::check(found, self.limit, &mut sample)
                    .map_err(|finding| damaged(self.heap, self.places, found, finding))?;
                lasts = [lasts[1], Some((found.position, found.tick, found.is_mark()))];
                if !found.is_mark() {
                    parts.note(found);
                    kept.push(found);
                    meter.add_one_of_many(kept.len());
                }
                Ok(())
            })?;
            let mut tick = Tick::NEVER;
            if let Some(cells) = cells {
                let before = opening.tick_before(writer, self.pages.from(writer))?.unwrap_or(Tick::NEVER);
                if let [previous, Some((position, loser, false))] = lasts
                    && !dual::is_whole(cells, &kept, loser, writer)
                {
                    kept.remove(&BTreeSet::from([loser]));
                    opening.end_before(writer, position, previous.map_or(before, |(_, tick, _)| tick));
                    lasts = [None, previous];
                }
                tick = lasts[1].map_or(before, |(_, tick, _)| tick);
            }
            let last = lasts[1].map(|(position, tick, is_mark)| {
                let entries = kept.len().checked_sub(1).filter(|_| !is_mark);
                let entries = entries.and_then(|number| kept.records(number..number + 1).next());
                let contents = restore::contents_of(entries.into_iter().flat_map(|(_, entries)| entries));
                (writer, LastRecord { position, tick: tick.0, contents })
            });
            Ok::<_, Error>((kept, sample, last, parts, (writer.number(), tick)))
        };
        let (mut records, mut sample, mut lasts) = (Vec::new(), Sample::default(), Vec::new());
        let mut of_logs = Vec::new();
        let node_of = |number: usize| self.node_of(opening.part_of(writers[number]));
        let topology = self.heap.pool().topology();
        for (kept, of_log, last, parts, end) in work::each_near(topology, self.threads, writers.len(), &node_of, read)?
        {
            records.push(kept);
            sample.extend(of_log);
            lasts.extend(last);
            of_logs.push(parts);
            verdict.last.extend([end]);
        }
        sample.finish();
        let from = |writer| self.pages.from(writer);
        together::remove_incomplete(&writers, &of_logs, from, &mut records);
        Ok((records, sample, lasts))
    }

    /// The rows of all trees, by tree and part.
    fn redo(
        &self,
        images: &[Listed],
        sample: &Sample,
        records: &[Kept],
        source: &Source,
    ) -> Result<Vec<(u32, TreePart)>> {
        let redo = Redo::new(images, sample, source, (self.heap.pool(), self.threads), self.is_suspect)?;
        let meter = self.meter(OpenStep::Leaves, Some(redo.part_count()));
        redo.rows(records, &|| meter.add(1)).map_err(|trouble| match trouble {
            Trouble::Row { tree, key, finding } => {
                let finding = format!("row `{}` of tree {tree}: {finding}", key.escape_ascii());
                self.damaged("log", self.places.log(), finding)
            }
            Trouble::Image(error) => error,
        })
    }

    /// The node of a part of the pool.
    fn node_of(&self, part: Option<u16>) -> Option<usize> {
        self.heap.pool().part_nodes().get(usize::from(part?))?.index
    }

    fn damaged(&self, what: &'static str, at: PmAddr, finding: String) -> Error {
        Error::Damaged { path: self.heap.pool().path().to_owned(), what, at, finding }
    }
}

/// An error about a record that verifies and makes no sense.
pub fn damaged(heap: &Heap, places: &Places, found: &lodestone_wal::Found<'_>, finding: &str) -> lodestone_wal::Error {
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

/// The trees of all parts, which are sorted.
fn build(parts: Vec<(u32, TreePart)>, ground: &Ground, threads: usize) -> BTreeMap<u32, Arc<Tree>> {
    let (mut parts, mut pieces) = (parts.into_iter(), Vec::new());
    while parts.len() > 0 {
        pieces.push(Mutex::new(parts.by_ref().take(PARTS_OF_PIECE).collect::<Vec<_>>()));
    }
    // The leaves of a piece, by tree.
    let leaves = |number: usize| {
        let mut trees: Vec<(u32, Vec<Arc<Leaf>>)> = Vec::new();
        for (tree, part) in std::mem::take(&mut *lock(&pieces[number])) {
            if trees.last().is_none_or(|(last, _)| *last != tree) {
                trees.push((tree, Vec::with_capacity(PARTS_OF_PIECE)));
            }
            let (_, leaves) = trees.last_mut().expect("one was added");
            part.leaves(ground.base, &ground.leaf_size, leaves);
        }
        Ok::<_, Infallible>(trees)
    };
    let Ok(pieces) = work::each(threads, pieces.len(), leaves);
    let mut leaves = pieces.into_iter().flatten().peekable();
    let mut trees = BTreeMap::new();
    while let Some((number, mut of_tree)) = leaves.next() {
        while let Some((_, more)) = leaves.next_if(|(tree, _)| *tree == number) {
            of_tree.extend(more);
        }
        trees.insert(number, Tree::of_leaves(number, ground, of_tree));
    }
    trees
}
