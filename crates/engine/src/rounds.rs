//! Rounds: all rows that a cut of the commits left are written to pages, and the logs begin at the cut.
//!
//! 0. *Merge*: leaves without rows and images go (`tree/merge.rs`).
//! 1. *Cut*: the epoch rises, and each log has a position below which its records belong to the old epoch ([`Cuts`]).
//! 2. *Images*: every dirty leaf is written, in the order of the keys. If a leaf is split before its image is written,
//!    the image has the rows up to where the next leaf begins now, which is met next. If it is split later, the image
//!    has the rows of both, and the new half has none before the next round. So no image has rows of another one, and
//!    an open can leave it where it is. A row is read as a transaction reads it: locked ones are waited for, and so is
//!    the fence of a pending one. So the images have all commits of the old epoch: those held their locks before the
//!    epoch rose. Rows of later commits may be in an image: their records stay in the logs.
//!    The images of dropped trees end. Tables on other nodes are written by threads there (`page_writer.rs`).
//!
//!    If a leaf has the keys of its former image, and this medium has lines, only the rows that changed are written, in
//!    place ([`Batch::patch`]). They count at once, whatever becomes of the round. That is no harm: their records are
//!    persistent, and those above the cut of the newest checkpoint make a row that is torn (`delta.rs`).
//! 3. *Publish*: images, ends of former images and positions begin to count all at once ([`lodestone_pages::Batch`]).
//! 4. *Truncate*: up to the positions of the checkpoint before, which is kept too, or less for a feed.
//!
//! A round that fails has not happened: its leaves are dirty again. One thread at a time makes a round: that of the
//! database (`checkpointer.rs`), a commit whose log has no room, or a thread that asks for a checkpoint. Commits go on
//! meanwhile (paper 4, section 2.2.3).

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use lodestone_pages::{PageStats, Pages};
use lodestone_pmem::planted;
use lodestone_pmem::sync::atomic::{AtomicU64, Ordering};
use lodestone_pmem::sync::{Mutex, MutexGuard, lock, spin};
use lodestone_wal::{LogWriter, Record, Room, Wal};

use crate::checkpointer::Bell;
use crate::core::{Core, Dropped};
use crate::cuts::Cuts;
use crate::error::{Error, Result};
use crate::events;
use crate::page_writer::{Written, settled_rows, write_trees};
use crate::tree::{Bytes, Tree};

/// How many rounds a full log is worth: the second one frees the records below the cut of the first one.
pub const ROUNDS_MAX: u32 = 2;

/// The work of a checkpoint.
///
/// ```
/// # use lodestone_engine::{Database, Schema, Type, row};
/// # let folder = tempfile::tempdir().unwrap();
/// # let db = Database::open(folder.path().join("a.pool"))?;
/// let notes = db.create_table(&Schema::new("notes").column("id", Type::U64).key(["id"]))?;
/// db.update(|tx| notes.insert(tx, &row![1_u64]))?;
/// let report = db.checkpoint()?;
/// assert!(report.images >= 1 && report.pages >= 1);
/// # Ok::<(), lodestone_engine::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Leaves that were written.
    pub images: u64,
    /// Pages that they filled.
    pub pages: u64,
    /// Rows that were written in place, in the pages that they have.
    pub rows_in_place: u64,
    /// Lines of 64 bytes that were written for them.
    pub lines: u64,
    /// Threads that wrote them side by side: one for each node with tables that are placed there, and that of the
    /// checkpoint.
    pub writers: u64,
}

/// The state of the rounds.
#[derive(Debug)]
pub struct Rounds {
    pub cuts: Cuts,
    pub bell: Bell,
    /// Held during a round.
    pages: Mutex<Pages>,
    /// Figures of the pages, as the last thread that had them left them.
    page_stats: Mutex<PageFigures>,
    /// One more than the last epoch below the cut of the newest checkpoint, if it is of this life.
    pub whole_floor: AtomicU64,
    pub trouble: CheckpointTrouble,
}

/// Figures of all pages, and of those in each part where the pool has several.
#[derive(Clone, Debug)]
struct PageFigures {
    all: PageStats,
    parts: Vec<PageStats>,
}

impl PageFigures {
    fn of(pages: &Pages) -> Self {
        let all = pages.stats();
        let parts = match pages.part_count() {
            1 => vec![all],
            count => (0..count).map(|part| pages.stats_in(part)).collect(),
        };
        Self { all, parts }
    }
}

/// Rounds that failed. The thread that makes most of them has no caller that it could tell.
#[derive(Debug, Default)]
pub struct CheckpointTrouble {
    failed: AtomicU64,
    last: Mutex<Option<String>>,
}

impl CheckpointTrouble {
    fn note(&self, error: Option<&Error>) {
        *lock(&self.last) = error.map(ToString::to_string);
        if error.is_some() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many failed.
    pub fn count(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The error of the last round, if it failed.
    pub fn last(&self) -> Option<String> {
        lock(&self.last).clone()
    }
}

impl Rounds {
    /// For logs without owners.
    pub fn new(pages: Pages, writers: u16, wal: &Wal) -> Self {
        let page_stats = Mutex::new(PageFigures::of(&pages));
        let (cuts, pages) = (Cuts::new(writers, wal.positions()), Mutex::new(pages));
        let (bell, whole_floor, trouble) = (Bell::default(), AtomicU64::new(0), CheckpointTrouble::default());
        Self { cuts, bell, pages, page_stats, whole_floor, trouble }
    }

    /// The pages. Waits while a round is under way.
    pub fn pages(&self) -> LockedPages<'_> {
        LockedPages { pages: lock(&self.pages), rounds: self }
    }

    /// The pages, unless a round is under way.
    fn try_pages(&self) -> Option<LockedPages<'_>> {
        let pages = self.pages.try_lock().ok()?;
        Some(LockedPages { pages, rounds: self })
    }

    /// Figures of the pages. While a round is under way: those before it. It does not lock the pages: a thread that
    /// found them locked would leave out a round.
    pub fn page_stats(&self) -> PageStats {
        lock(&self.page_stats).all
    }

    /// The same of the pages in each part of the pool.
    pub fn page_stats_by_part(&self) -> Vec<PageStats> {
        lock(&self.page_stats).parts.clone()
    }
}

/// The pages, locked. Dropping this notes their figures.
#[derive(Debug)]
pub struct LockedPages<'r> {
    pages: MutexGuard<'r, Pages>,
    rounds: &'r Rounds,
}

impl Deref for LockedPages<'_> {
    type Target = Pages;

    fn deref(&self) -> &Pages {
        &self.pages
    }
}

impl DerefMut for LockedPages<'_> {
    fn deref_mut(&mut self) -> &mut Pages {
        &mut self.pages
    }
}

impl Drop for LockedPages<'_> {
    fn drop(&mut self) {
        *lock(&self.rounds.page_stats) = PageFigures::of(&self.pages);
    }
}

/// Room for `record` in the log. Makes rounds when there is none, and one when they are half full.
///
/// # Errors
/// `Error::Full` when rounds do not help; those of a round.
pub fn reserve(core: &Core, log: &mut LogWriter, record: &mut Record) -> Result<Room> {
    if log.took_segment() {
        ask_if_due(core)?;
    }
    let mut reserve = || log.reserve(record).map_err(|error| core.log_error(error));
    for _ in 0..ROUNDS_MAX {
        match reserve() {
            Err(error) if error.is_full() => {}
            outcome => return outcome,
        }
        let _waits = Waits::begin(core, "log");
        // The segments that a round frees help with a full pool as well. Another thread may have made one meanwhile.
        let mut pages = core.rounds.pages();
        match reserve() {
            Err(error) if error.is_full() => round(core, &mut pages)?,
            outcome => return outcome,
        };
    }
    reserve()
}

/// A commit waits for room. Dropping this emits the event: after the pages are unlocked, which were locked later.
struct Waits<'c> {
    core: &'c Core,
    what: &'static str,
    began: Instant,
}

impl<'c> Waits<'c> {
    fn begin(core: &'c Core, what: &'static str) -> Self {
        Self { core, what, began: Instant::now() }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        events::waited(self.core, self.what, self.began);
    }
}

/// Waits for a round, or makes it, if the cache is full of changes. No row may be locked.
///
/// # Errors
/// Those of a round.
#[inline]
pub fn wait_for_cache(core: &Core) -> Result<()> {
    if let Some(cache) = core.ground.cache.as_ref().filter(|cache| cache.is_over()) {
        cache.make_room();
    }
    match &core.ground.cache {
        Some(cache) if cache.is_full() && !core.ways.durability.is_none() => {
            let _waits = Waits::begin(core, "cache");
            let mut pages = core.rounds.pages();
            // Another thread may have made one meanwhile.
            match if cache.is_full() { round(core, &mut pages) } else { return Ok(()) } {
                // The rows that changed stay in DRAM.
                Err(error) if error.is_full() => Ok(()),
                outcome => outcome.map(|_| ()),
            }
        }
        _ => Ok(()),
    }
}

/// Asks for a round if one is due. Makes it if there is no thread for that, or no room to wait for it.
///
/// # Errors
/// Those of a round, but for want of room.
pub fn ask_if_due(core: &Core) -> Result<()> {
    let must_wait = is_pool_short(core);
    if must_wait || (is_half_full(core) && !core.rounds.bell.ring()) { round_if_due(core) } else { Ok(()) }
}

/// Makes a round if one is due.
///
/// # Errors
/// Those of a round, but for want of room.
pub fn round_if_due(core: &Core) -> Result<()> {
    if is_half_full(core) || is_pool_short(core) || is_cache_short(core) {
        // Another thread that makes a round does it for this one as well.
        if let Some(mut pages) = core.rounds.try_pages() {
            match round(core, &mut pages) {
                // The log still has room. An error is due when it has none.
                Err(error) if error.is_full() => {}
                outcome => outcome.map(|_| ())?,
            }
        }
    }
    Ok(())
}

fn is_half_full(core: &Core) -> bool {
    let log = core.wal.stats();
    (log.segments - log.segments_free) * 2 >= log.segments_max
}

/// Whether the cache has no room but that of dirty leaves.
fn is_cache_short(core: &Core) -> bool {
    core.ground.cache.as_ref().is_some_and(|cache| cache.needs_round())
}

/// Whether the logs need as much of the pool as is free for pages.
fn is_pool_short(core: &Core) -> bool {
    let (log, pool) = (core.wal.stats(), core.heap.usage());
    (log.segments - log.segments_free) * log.segment_bytes >= pool.chunks_free * pool.chunk_bytes
}

/// Makes a round. See the module.
///
/// # Errors
/// A full pool; a medium that failed; `Error::Poisoned`. Then the round has not happened.
pub fn round(core: &Core, pages: &mut Pages) -> Result<CheckpointReport> {
    let (began, before) = (Instant::now(), pages.stats());
    core.ground.cache.iter().for_each(|cache| cache.begin_round());
    let outcome = try_round(core, pages);
    core.ground.cache.iter().for_each(|cache| cache.end_round(outcome.is_ok()));
    core.rounds.trouble.note(outcome.as_ref().err());
    events::round(core, &outcome, &before, &pages.stats(), began);
    outcome
}

fn try_round(core: &Core, pages: &mut Pages) -> Result<CheckpointReport> {
    core.refuse_if_poisoned()?;
    core.refuse_if_read_only()?;
    if core.ways.durability.is_none() {
        return Err(Error::WithoutDurability { path: core.heap.pool().path().to_owned() });
    }
    let dropped = core.dropped_trees();
    for Dropped { tree, .. } in dropped.iter().filter(|dropped| !dropped.is_before_last_cut) {
        settle_tree(core, tree)?;
    }
    // Those of before the cut too: what is in the log of a tree that is dropped meanwhile may build on its images.
    let mut trees = core.trees();
    trees.iter().for_each(|tree| tree.merge_spare(core));
    let (epoch, from) = core.rounds.cuts.cut();
    trees.extend(core.trees());
    trees.sort_by_key(|tree| tree.number);
    trees.dedup_by_key(|tree| tree.number);
    let mut written = Written::default();
    let mut batch = pages.batch();
    // The images of a tree end when the older of the kept cuts is after all of its records: those may be changes of
    // rows in the images. A snapshot may still look at a cold leaf. One that begins later does not see the table.
    let is_over = |dropped: &&Dropped| {
        let is_needed = !dropped.is_before_last_cut && !planted::active("engine-drop-ends-images-early");
        !is_needed && (!core.timeline.epochs().any_active() || !dropped.tree.has_cold_leaf())
    };
    let ended: Vec<_> = dropped.iter().filter(is_over).map(|dropped| dropped.tree.clone()).collect();
    for home in ended.iter().flat_map(|tree| tree.homes()) {
        batch.end(home);
    }
    write_trees(core, &mut batch, trees, &mut written)?;
    wait_settled(core, &from)?;
    if let Some(group) = &core.group {
        // The images may have versions of epochs that are not durable. They must not count before those.
        group.flush(core)?;
    }
    batch.publish_then(from, |pages| {
        core.rounds.whole_floor.store(epoch + 1, Ordering::SeqCst);
        truncate(core, pages);
    })?;
    let report = written.publish();
    core.note_dropped(&dropped, &ended);
    Ok(report)
}

/// Waits until no commit changes `tree`, which is dropped: no other one can begin to.
fn settle_tree(core: &Core, tree: &Tree) -> Result<()> {
    if planted::active("engine-round-leaves-dropped") {
        return Ok(());
    }
    let mut next = Some(Bytes::default());
    while let Some(low) = next {
        if let (_, Some(slots)) = tree.take_dirt(&low) {
            settled_rows(core, tree, &slots)?;
        }
        next = tree.next_low(&low);
    }
    Ok(())
}

/// Waits until all records before the cut are persistent. Those of rows that were written are, but others may be of a
/// tree that was dropped.
fn wait_settled(core: &Core, from: &[u64]) -> Result<()> {
    if ["engine-round-leaves-dropped", "pages-copies-pending"].into_iter().any(planted::active) {
        return Ok(());
    }
    for (writer, from) in core.rounds.cuts.writers().zip(from) {
        let mut turn = 0;
        while core.rounds.cuts.settled(writer) < *from {
            core.refuse_if_poisoned()?;
            spin(turn);
            turn += 1;
        }
    }
    core.refuse_if_poisoned()
}

/// Truncates the logs as far as the kept checkpoints and the feeds allow.
fn truncate(core: &Core, pages: &Pages) {
    let from: Vec<u64> = core.rounds.cuts.writers().map(|writer| pages.from(writer)).collect();
    let floors = core.holds.floors(&from, core.feed_bytes);
    for (writer, floor) in core.rounds.cuts.writers().zip(floors) {
        core.wal.truncate(writer, floor);
    }
}
