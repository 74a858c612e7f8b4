//! The state that all handles and threads of a database share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, PoisonError};

use crossbeam_utils::CachePadded;
use lodestone_heap::Heap;
use lodestone_pages::Image;
use lodestone_pmem::htm::HardwareTransactions;
use lodestone_pmem::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use lodestone_pmem::sync::{Condvar, Mutex, RwLock, lock, spin};
use lodestone_pmem::{Domain, DurablePoint, LINE_BYTES, Memory, count_shared_rmws, planted};
use lodestone_store::{InUse, Object};
use lodestone_txn::{Lease, RowState, RowWord, Tick, Timeline};
use lodestone_wal::{Found, LogWriter, Record, Wal};
use lodestone_width::{low_u16, to_u64};

use crate::build::Builds;
use crate::checkpointer::Checkpointer;
use crate::dual::Cells;
use crate::durability::{Durability, Point, Ways};
use crate::error::{Error, Result};
use crate::events;
use crate::feed::Holds;
use crate::format::Places;
use crate::group::{Group, LoggerThread};
use crate::large::PIECES;
use crate::leaf::{Leaf, Page, Purged, Span};
use crate::options::DatabaseOptions;
use crate::payload::Limits;
use crate::placement::{Place, Placements};
use crate::publish::{PublishOptions, Publisher};
use crate::recover::{self, Recovered};
use crate::restore::LogEnd;
use crate::rounds::Rounds;
use crate::side::Side;
use crate::spares::Spares;
use crate::state::State;
use crate::stats::Counts;
use crate::tree::{Bytes, Ground, Slot, Tree};
use crate::warm::{WarmList, WarmUp};

/// The right to append to a log.
#[derive(Debug)]
pub struct Committer {
    /// The part of the pool that the log is in, or another number by which logs are told apart.
    shelf: u16,
    pub lease: Lease,
    pub log: LogWriter,
    pub record: Record,
    /// The epoch of the last record that says that rows in cells have changed, and not how. `None`: none in this life.
    pub traced: Option<u64>,
}

/// A tree of a dropped table or index.
#[derive(Clone, Debug)]
pub struct Dropped {
    pub tree: Arc<Tree>,
    /// Whether all of its records are before the cut of the last round.
    pub is_before_last_cut: bool,
}

/// The shared state.
#[derive(Debug)]
pub struct Core {
    pub timeline: Timeline,
    pub memory: Memory,
    pub heap: Heap,
    pub wal: Wal,
    pub places: Places,
    pub ways: Ways,
    /// The hardware transactions of commits.
    pub htm: Option<Box<dyn HardwareTransactions>>,
    /// With group commit by epochs.
    pub group: Option<Group>,
    /// Whether what was fenced may not be durable yet.
    pub waits: bool,
    /// The things that all trees share.
    pub ground: Ground,
    /// The rows of tables with cells. `None`: an earlier version made the database.
    pub cells: Option<Arc<Cells>>,
    /// How much a row holds itself.
    pub limits: Limits,
    trees: RwLock<BTreeMap<u32, Arc<Tree>>>,
    /// Trees of dropped tables and indexes, whose images have not ended yet.
    dropped: Mutex<Vec<Dropped>>,
    pub rounds: Rounds,
    /// The parts of the pool that the pages of trees are in.
    pub placements: Placements,
    /// Held while the place of a table changes in the catalog and then in `placements`: in the same order in both.
    pub placing: Mutex<()>,
    /// The parts of the logs that feeds still need.
    pub holds: Holds,
    /// The indexes that are being built.
    pub builds: Builds,
    /// Most bytes of the logs that feeds hold back.
    pub feed_bytes: u64,
    /// Bytes of rows of a load that are in memory.
    pub load_buffer_bytes: usize,
    /// The leaves that an open reads again.
    pub warm: WarmList,
    /// Versions that snapshots see and that were overwritten.
    pub side: Side,
    /// States between transactions.
    states: Spares<State>,
    /// Those of all states.
    counts: Mutex<Vec<Arc<Counts>>>,
    /// Writers between commits, by the part of the pool that their logs are in.
    committers: Box<[Spares<Committer>]>,
    /// The part of the pool that all logs are in.
    log_part: Option<u16>,
    /// Tables are told apart by their numbers: for proofs.
    log_groups: u16,
    /// Commits that wait for one, and how they are woken.
    waiting: AtomicUsize,
    returned: (Mutex<()>, Condvar),
    /// By writer: where its last versions that others may see are durable.
    points: Box<[CachePadded<Mutex<Points>>]>,
    /// Transactions that lost many times in a row.
    pub starving: AtomicUsize,
    /// Savepoints that were opened.
    savepoints: AtomicU64,
    /// Purges of leaves.
    purges: AtomicU64,
    /// Whether long scans have readers on the nodes of their rows.
    pub scan_readers: bool,
    /// Leaves that such readers have read for scans.
    pub leaves_ahead: AtomicU64,
    /// Where the logs ended when this life began.
    pub ends: Vec<LogEnd>,
    /// The claim on the database. Released last.
    pub object: Object,
}

impl Core {
    pub fn new(heap: Heap, places: Places, options: &DatabaseOptions, found: Recovered, object: Object) -> Self {
        let memory = heap.memory().clone();
        let group = match options.durability {
            Durability::Epoch(interval) if !memory.is_read_only() => Some(Group::new(interval, places.threads_max())),
            _ => None,
        };
        let rounds = Rounds::new(found.pages, places.threads_max(), &found.wal);
        let shelves = memory.part_count().max(options.log_groups);
        Self {
            rounds,
            timeline: found.timeline,
            ways: Ways::new(options, memory.direct_unit() == LINE_BYTES),
            htm: None,
            group,
            waits: memory.domain() == Domain::Block,
            memory,
            heap,
            wal: found.wal,
            cells: found.ground.source.cells.clone(),
            ground: found.ground,
            limits: options.limits(),
            trees: RwLock::new(found.trees),
            dropped: Mutex::default(),
            placements: Placements::default(),
            placing: Mutex::default(),
            holds: Holds::default(),
            builds: Builds::default(),
            feed_bytes: options.feed_bytes.unwrap_or(places.log_bytes() / 4),
            load_buffer_bytes: options.load_buffer_bytes,
            warm: WarmList::new(found.warm, options.warm_up),
            side: Side::new(options.side_bytes_max),
            states: Spares::default(),
            counts: Mutex::default(),
            committers: (0..shelves).map(|_| Spares::default()).collect(),
            log_part: options.log_part,
            log_groups: options.log_groups,
            waiting: AtomicUsize::new(0),
            returned: (Mutex::new(()), Condvar::new()),
            points: (0..places.threads_max()).map(|_| CachePadded::default()).collect(),
            starving: AtomicUsize::new(0),
            savepoints: AtomicU64::new(0),
            purges: AtomicU64::new(0),
            scan_readers: options.scan_readers,
            leaves_ahead: AtomicU64::new(0),
            ends: found.ends,
            places,
            object,
        }
    }

    /// The tree with this number, which may be empty.
    pub fn tree(&self, number: u32) -> Arc<Tree> {
        if let Some(tree) = self.trees.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return tree.clone();
        }
        let make = || {
            let tree = Tree::new(number, &self.ground);
            tree.keep(self.placements.is_kept(number));
            tree
        };
        self.trees.write().unwrap_or_else(PoisonError::into_inner).entry(number).or_insert_with(make).clone()
    }

    /// Adds trees that were built elsewhere. No thread has used their numbers.
    pub fn add_trees(&self, new: impl IntoIterator<Item = Arc<Tree>>) {
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        for tree in new {
            tree.keep(self.placements.is_kept(tree.number));
            let before = trees.insert(tree.number, tree);
            debug_assert!(before.is_none(), "the number of a tree is used once");
        }
    }

    /// Takes out trees that no table and no index has any more. The next round but one ends their images.
    pub fn forget_trees(&self, numbers: &[u32]) {
        let mut trees = self.trees.write().unwrap_or_else(PoisonError::into_inner);
        let found = numbers.iter().filter_map(|number| trees.remove(number)).inspect(|tree| tree.drop_images());
        lock(&self.dropped).extend(found.map(|tree| Dropped { tree, is_before_last_cut: false }));
        self.placements.forget(numbers);
    }

    /// Forgets images of the tree with this number, which was never added.
    pub fn forget_images(&self, number: u32, images: Vec<Image>) {
        if images.is_empty() {
            return;
        }
        let leaf = |(place, image): (usize, Image)| {
            // The keys mean nothing: no thread looks for a row.
            let low = if place == 0 { Bytes::default() } else { to_u64(place).to_be_bytes().into() };
            Leaf::cold(Span { low, high: None }, Purged::default(), Page::new(Some(image), false))
        };
        let leaves = images.into_iter().enumerate().map(leaf).collect();
        let tree = Tree::of_leaves(number, &self.ground, leaves);
        tree.drop_images();
        lock(&self.dropped).push(Dropped { tree, is_before_last_cut: false });
    }

    /// Notes where the pages of a table are to be, and whether its rows stay in DRAM. The first of `trees` has the
    /// rows.
    pub fn place(&self, trees: &[u32], place: &Place) {
        self.placements.set(trees, place);
        self.keep(trees);
    }

    /// Lets the leaves of trees stay in DRAM, or not, as their places say.
    pub fn keep(&self, trees: &[u32]) {
        let all = trees.iter().flat_map(|tree| [*tree, tree | PIECES]);
        all.filter_map(|tree| self.find_tree(tree)).for_each(|tree| tree.keep(self.placements.is_kept(tree.number)));
    }

    /// The trees that were taken out.
    pub fn dropped_trees(&self) -> Vec<Dropped> {
        lock(&self.dropped).clone()
    }

    /// A round has counted. It found `seen` before its cut, and ended the images of some of them.
    pub fn note_dropped(&self, seen: &[Dropped], ended: &[Arc<Tree>]) {
        let mut dropped = lock(&self.dropped);
        dropped.retain(|dropped| !ended.iter().any(|ended| Arc::ptr_eq(ended, &dropped.tree)));
        for dropped in &mut *dropped {
            dropped.is_before_last_cut |= seen.iter().any(|seen| Arc::ptr_eq(&seen.tree, &dropped.tree));
        }
    }

    /// The numbers of the trees that were used in this life or hold rows.
    pub fn tree_numbers(&self) -> Vec<u32> {
        self.trees.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// The tree with this number, if it was used in this life or holds rows.
    pub fn find_tree(&self, number: u32) -> Option<Arc<Tree>> {
        self.trees.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// All trees.
    pub fn trees(&self) -> Vec<Arc<Tree>> {
        self.trees.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A state for a transaction.
    pub fn take_state(&self) -> State {
        self.states.take().unwrap_or_else(|| {
            let counts = Arc::<Counts>::default();
            lock(&self.counts).push(counts.clone());
            State::new(self.timeline.base(), counts)
        })
    }

    /// The counts of all transactions.
    pub fn counts(&self) -> Vec<Arc<Counts>> {
        lock(&self.counts).clone()
    }

    /// Keeps a state for the next transaction.
    pub fn give_state(&self, mut state: State) {
        state.reset();
        self.states.give(state);
    }

    /// A number that no other savepoint has.
    pub fn next_savepoint(&self) -> u64 {
        self.savepoints.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of the next purge of a leaf.
    pub fn next_purge(&self) -> u64 {
        self.purges.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the last purge of any leaf.
    pub fn last_purge(&self) -> u64 {
        self.purges.load(Ordering::SeqCst)
    }

    /// The number by which the log of this thread is told from others: the part of the pool that is nearest to it.
    pub fn near_shelf(&self) -> u16 {
        let near = || self.heap.parts_for(LINE_BYTES).first().copied().unwrap_or(0);
        self.log_part.unwrap_or_else(|| if self.memory.part_count() == 1 { 0 } else { near() })
    }

    /// The number of the log for the row of a tree with this key, if it is not with all others.
    pub fn shelf_of(&self, tree: u32, key: &[u8]) -> Option<u16> {
        match self.log_groups {
            0 => self.placements.at(tree, key),
            groups => Some(low_u16(u64::from(tree % u32::from(groups)))),
        }
    }

    /// A writer for one commit, with a log near this thread, if there is one or a new one can be made. Waits while all
    /// of them are in use.
    pub fn take_committer(&self) -> Result<Committer> {
        self.take_committer_of(self.near_shelf())
    }

    fn take_committer_of(&self, shelf: u16) -> Result<Committer> {
        if let Some(committer) = self.committers[usize::from(shelf)].take() {
            return Ok(committer);
        }
        let mut waits = lock(&self.returned.0);
        let _waiting = Waiting::new(&self.waiting);
        loop {
            if let Some(committer) = self.committers[usize::from(shelf)].take() {
                return Ok(committer);
            }
            // A far log is better than one that takes a segment which others need.
            if self.committers.len() > 1
                && self.are_segments_scarce()
                && let Some(committer) = self.committers.iter().find_map(Spares::take)
            {
                return Ok(committer);
            }
            if let Some(committer) = self.make_committer(shelf)? {
                return Ok(committer);
            }
            // A far log is better than none.
            if let Some(committer) = self.committers.iter().find_map(Spares::take) {
                return Ok(committer);
            }
            waits = self.returned.1.wait(waits).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A new writer. `None`: there are as many as there may be.
    fn make_committer(&self, shelf: u16) -> Result<Option<Committer>> {
        let lease = match self.timeline.registry().lease() {
            Ok(lease) => lease,
            Err(lodestone_txn::Error::TooManyThreads { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        match self.wal.writer(lease.writer()) {
            Ok(mut log) => {
                let is_by_table = self.ways.by_table && self.memory.part_count() > 1;
                log.place(self.log_part.or(is_by_table.then_some(shelf)));
                Ok(Some(Committer { shelf, lease, log, record: Record::new(), traced: None }))
            }
            Err(error) => {
                self.timeline.registry().release(lease);
                Err(error.into())
            }
        }
    }

    /// Another writer for a commit that has one, with a log in this part. It never waits.
    pub fn lend_another(&self, shelf: u16) -> Result<Option<Lent<'_>>> {
        let spare = self.committers[usize::from(shelf)].take();
        let committer = if spare.is_some() { spare } else { self.make_committer(shelf)? };
        Ok(committer.map(|committer| Lent { core: self, committer: Some(committer) }))
    }

    /// A writer for the commit of this thread, with a log in this part if there is one.
    pub fn lend_committer_of(&self, shelf: u16) -> Result<Lent<'_>> {
        Ok(Lent { core: self, committer: Some(self.take_committer_of(shelf)?) })
    }

    /// Whether a quarter of the log's segments is in use.
    fn are_segments_scarce(&self) -> bool {
        let log = self.wal.stats();
        (log.segments - log.segments_free) * 4 >= log.segments_max
    }

    /// A writer for the commit of this thread: see [`take_committer`](Self::take_committer).
    pub fn lend_committer(&self) -> Result<Lent<'_>> {
        Ok(Lent { core: self, committer: Some(self.take_committer()?) })
    }

    /// Keeps a writer for the next commit.
    pub fn give_committer(&self, committer: Committer) {
        self.committers[usize::from(committer.shelf)].give(committer);
        // One that waits has counted itself, and then looked.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        }
    }

    /// Wakes a commit that waits for a writer.
    fn wake_one(&self) {
        // It has looked with this lock held.
        drop(lock(&self.returned.0));
        self.returned.1.notify_one();
    }

    /// Notes that the versions of `writer` up to `tick` are durable at `point`. Before that version is live.
    pub fn note_point(&self, writer: usize, tick: Tick, point: DurablePoint) {
        lock(&self.points[writer]).add(tick, point);
    }

    /// Where the versions of `writer` up to `tick`, which others may see, are durable.
    pub fn point_of(&self, writer: usize, tick: Tick) -> Point {
        match &self.group {
            Some(group) => Point::of_epoch(group.epoch_of(writer)),
            None => Point { flushed: lock(&self.points[writer]).up_to(tick), ..Point::default() },
        }
    }

    /// Where everything that `state` read is durable.
    pub fn seen_point(&self, state: &State) -> Point {
        if !self.answers_wait() {
            return Point::default();
        }
        match state.writers() {
            Some(writers) => {
                let seen = Point { flushed: state.purged(), ..Point::default() };
                writers.into_iter().fold(seen, |seen, (writer, tick)| seen.max(self.point_of(writer, tick)))
            }
            None => self.present_point(),
        }
    }

    /// Where everything is durable that any thread may have seen.
    pub fn present_point(&self) -> Point {
        match &self.group {
            Some(group) => Point::of_epoch(group.epoch()),
            None => Point { flushed: self.memory.flushed_anywhere(), ..Point::default() },
        }
    }

    /// Whether the versions that others may see can be lost.
    pub fn answers_wait(&self) -> bool {
        self.waits || self.group.is_some()
    }

    /// Waits for `point` before an answer, unless the options say that answers do not wait.
    pub fn acknowledge(&self, point: Point) -> Result<()> {
        match self.ways.durability {
            Durability::Ordered | Durability::None => Ok(()),
            Durability::Sync | Durability::Epoch(_) => self.wait_for(point),
        }
    }

    /// Waits for `point`.
    pub fn wait_for(&self, point: Point) -> Result<()> {
        if planted::active("engine-reader-answers-early") && !point.is_own {
            return Ok(());
        }
        if let Some(group) = &self.group {
            group.wait(self, point.epoch)
        } else if point.is_own {
            Ok(self.memory.durable()?)
        } else {
            Ok(self.memory.wait_durable(point.flushed)?)
        }
    }

    /// Whether every active snapshot sees the deletion `word`, so that none needs a version before it. A snapshot that
    /// begins later sees it as well.
    pub fn may_purge(&self, word: RowWord) -> bool {
        let (epochs, version) = (self.timeline.epochs(), word.version());
        // A snapshot that does not see the deletion was active before its writer read the epoch, and so before the word
        // was published. So the thread that has read the word finds it active.
        !epochs.any_active()
            || planted::active("engine-snapshot-purged")
            || epochs.is_visible(version.writer(), version.tick(self.timeline.base()), epochs.oldest_active())
    }

    /// Waits until the version `word` of `slot` is not pending. It may be overwritten then.
    pub fn wait_settled(&self, slot: &Slot, word: RowWord) -> Result<()> {
        for turn in 0.. {
            let now = slot.word();
            if !now.same_version(word) || now.state() != RowState::Pending {
                break;
            }
            self.refuse_if_poisoned()?;
            spin(turn);
        }
        Ok(())
    }

    /// An error about a record that verifies and makes no sense.
    pub fn damaged_log(&self, found: &Found<'_>, finding: &str) -> lodestone_wal::Error {
        recover::damaged(&self.heap, &self.places, found, finding)
    }

    /// An error of the log, with the size that an option set.
    pub fn log_error(&self, error: lodestone_wal::Error) -> Error {
        match error {
            lodestone_wal::Error::Full { path, .. } => Error::Full { path, bytes: self.places.log_bytes() },
            other => other.into(),
        }
    }

    /// # Errors
    /// [`Error::Poisoned`].
    pub fn refuse_if_poisoned(&self) -> Result<()> {
        let path = || self.heap.pool().path().to_owned();
        if self.timeline.is_poisoned() { Err(Error::Poisoned { path: path() }) } else { Ok(()) }
    }

    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn refuse_if_read_only(&self) -> Result<()> {
        let path = || self.heap.pool().path().to_owned();
        if self.memory.is_read_only() { Err(Error::ReadOnly { path: path() }) } else { Ok(()) }
    }

    /// Waits a while between two attempts, the longer the more were lost. `is_starving`: lost many times.
    pub fn back_off(&self, attempts: u32, is_starving: bool) {
        let others_first = !is_starving && self.starving.load(Ordering::Relaxed) > 0;
        let turns = if is_starving { 1 } else { 1 << attempts.min(10) };
        (0..if others_first { turns * 16 } else { turns }).for_each(spin);
    }
}

/// A writer that a commit has. It goes back when the commit ends. After a panic its log is given up as at the end of a
/// life, and another commit takes it up again.
#[derive(Debug)]
pub struct Lent<'c> {
    core: &'c Core,
    /// Taken when this is dropped.
    committer: Option<Committer>,
}

impl Lent<'_> {
    pub fn committer(&mut self) -> &mut Committer {
        self.committer.as_mut().expect("until it is dropped")
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(committer) = self.committer.take() else { return };
        if !std::thread::panicking() {
            return self.core.give_committer(committer);
        }
        let Committer { lease, log, .. } = committer;
        // First the log: the next one that has the lease takes it.
        drop(log);
        self.core.timeline.registry().release(lease);
        self.core.wake_one();
    }
}

/// Counts a commit that waits.
struct Waiting<'c>(&'c AtomicUsize);

impl<'c> Waiting<'c> {
    fn new(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Where the last versions of a writer are durable, the newest first. A reader of an older one must not wait for those
/// that came after it: their commit group may be the next one.
#[derive(Debug, Default)]
struct Points([(Tick, DurablePoint); POINTS]);

/// Versions of a writer before these are durable, or nearly.
const POINTS: usize = 4;

impl Points {
    fn add(&mut self, tick: Tick, point: DurablePoint) {
        self.0.rotate_right(1);
        self.0[0] = (tick, point);
    }

    /// The point of the first version at `tick` or later. Ticks of a writer rise.
    fn up_to(&self, tick: Tick) -> DurablePoint {
        let later = self.0.iter().take_while(|(of, _)| *of >= tick);
        let found = if planted::active("engine-point-too-early") { self.0.last() } else { later.last() };
        found.map_or(self.0[0].1, |(_, point)| *point)
    }
}

/// A handle on the shared state. While there is one, the database counts as open.
#[derive(Debug)]
pub struct Handle(Arc<Opened>);

impl Clone for Handle {
    fn clone(&self) -> Self {
        // The count of references rises here, and falls again.
        count_shared_rmws(2);
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Opened {
    /// Dropped before `core`. After it the database is being closed, and an open waits for that.
    _in_use: InUse,
    /// Dropped before `core` as well: the thread has a share of it.
    _logger: Option<LoggerThread>,
    /// As the logger.
    _checkpointer: Option<Checkpointer>,
    /// As the logger.
    warm_up: OnceLock<Option<WarmUp>>,
    /// As the logger.
    publisher: Mutex<Option<Publisher>>,
    core: Arc<Core>,
}

impl Handle {
    pub fn new(in_use: InUse, core: Core) -> Self {
        let core = Arc::new(core);
        core.ground.cache.iter().for_each(|cache| cache.begin(&core));
        let (logger, checkpointer) = (LoggerThread::begin(&core), Checkpointer::begin(&core));
        let (warm_up, publisher) = (OnceLock::new(), Mutex::default());
        let (_logger, _checkpointer) = (logger, checkpointer);
        Self(Arc::new(Opened { _in_use: in_use, _logger, _checkpointer, warm_up, publisher, core }))
    }

    /// Begins to publish figures. A publisher that was there ends first.
    pub fn publish(&self, options: &PublishOptions) -> Result<()> {
        let mut publisher = lock(&self.0.publisher);
        *publisher = None;
        *publisher = Some(Publisher::begin(&self.0.core, options)?);
        Ok(())
    }

    /// Begins the warm-up, once it is known which tables are kept.
    pub fn begin_warm_up(&self) {
        self.0.warm_up.get_or_init(|| WarmUp::begin(&self.0.core));
    }

    /// Waits for the end of the warm-up.
    pub fn wait_for_warm_up(&self) {
        if let Some(Some(warm_up)) = self.0.warm_up.get() {
            warm_up.wait();
        }
    }

    /// The error of the publisher's last write, if it failed.
    pub fn publish_trouble(&self) -> Option<String> {
        lock(&self.0.publisher).as_ref().and_then(Publisher::trouble)
    }

    /// Whether both are on the same database.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Handle {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.0.core
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let in_order = self.close();
        events::closed(self.heap.pool().path(), in_order);
    }
}

impl Core {
    /// Ends the life. Returns whether it ended in order.
    fn close(&mut self) -> bool {
        if !self.memory.is_read_only() && !self.timeline.is_poisoned() {
            if let Some(group) = &self.group {
                if group.close(self).is_err() {
                    // The life ends as in a crash.
                    return false;
                }
                group.end();
            }
            if !self.ways.durability.is_none()
                && let Err(error) = self.warm.write(self)
            {
                events::warm_up_refused(self, &error);
            }
            // A log with an owner gets no mark.
            self.committers.iter().for_each(Spares::clear);
            // Without a mark the log is as after a crash. The next open marks it.
            let _ = self.wal.mark_ends(&mut |tick| self.timeline.reserve(tick).is_ok());
        }
        self.timeline.close();
        !self.timeline.is_poisoned()
    }
}
