//! A leaf of a tree in DRAM. Readers search it without a lock.
//!
//! - The keys that may be in a leaf never change. A leaf without room is *ended*, and others take its place.
//! - A row has a *place* from when it is added until the leaf ends. The *order* lists the places by key. An entry of it
//!   has the place of a row and the first bytes of its key, so a search seldom looks at a whole key.
//! - A thread that changes the order holds the lock of the leaf. It counts the change twice: the *count of changes* is
//!   odd during the change, and even after it. A reader that finds the same even count before and after its search
//!   has seen what a thread with the lock would have seen. This is a sequence lock; all that a reader sees are atomic
//!   words and places that are written once, so a search that fails reads nothing that is not there.
//! - The count of an ended leaf is [`ENDED`] for ever. It is odd, so no reader believes what it sees there.
//!
//! So a range that was read is unchanged while the counts of its leaves are.
//!
//! The rows of a leaf of an earlier life may not be *loaded* yet (`cold.rs`). They are before any use of them, but for
//! a look at one row alone (`leaf/early.rs`).

mod early;

use std::sync::{Arc, OnceLock};

use lodestone_pages::Image;
use lodestone_pmem::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use lodestone_pmem::sync::{Mutex, MutexGuard, lock, spin};
use lodestone_pmem::{DurablePoint, count_shared_rmws, planted};
use lodestone_txn::Tick;
use lodestone_width::{low_u16, to_u64, to_usize};

use early::Early;
pub use early::{EarlyPass, EarlyRow, FewRows, Look, LookTurns, ROWS_KEPT_MAX, UsedRows, charge_of};

use crate::error::Result;
use crate::slot::{Bytes, Slot, USES_MAX};

/// Most rows of a leaf: an entry of its order has 2 bytes for the place.
pub const ROWS_MAX: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 16;
/// The count of changes of an ended leaf.
const ENDED: u64 = u64::MAX;

/// The first 8 bytes of `key` after the first `skip`. Shorter keys have zeros.
pub fn head(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Bytes that the two keys begin with.
pub fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Of a leaf and those that took its place at the same first possible key: the image on the medium.
#[derive(Debug)]
pub struct Page {
    /// Whether a row may have changed since the image was written.
    is_dirty: AtomicBool,
    /// Whether a round has taken the dirt, and has not noted the image that has it.
    is_in_round: AtomicBool,
    /// How much of it changes between two rounds.
    pub changes: ChangesHint,
    /// Whether the next image must be a new one. Stored before the dirt.
    is_suspect: std::sync::atomic::AtomicBool,
    /// How many rows the image has, or [`UNKNOWN_ROWS`].
    image_rows: std::sync::atomic::AtomicU32,
    home: Mutex<Option<Image>>,
}

/// The rows of an image that no thread has read or written in this life.
const UNKNOWN_ROWS: u32 = u32::MAX;

/// How much of a page changes between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// No round has looked.
    Unknown,
    /// At most half of its lines.
    Few,
    /// More than half of its lines, so that it takes a new image.
    Most,
}

/// The finding of the last round that looked. Nothing but costs depends on it.
#[derive(Debug, Default)]
pub struct ChangesHint(std::sync::atomic::AtomicU8);

impl ChangesHint {
    pub fn get(&self) -> Changes {
        match self.0.load(Ordering::Relaxed) {
            1 => Changes::Few,
            2 => Changes::Most,
            _ => Changes::Unknown,
        }
    }

    pub fn note(&self, changes: Changes) {
        let number = match changes {
            Changes::Unknown => 0,
            Changes::Few => 1,
            Changes::Most => 2,
        };
        self.0.store(number, Ordering::Relaxed);
    }
}

impl Page {
    pub fn new(home: Option<Image>, is_dirty: bool) -> Arc<Self> {
        let (is_dirty, is_in_round) = (AtomicBool::new(is_dirty), AtomicBool::new(false));
        let (changes, is_suspect) = Default::default();
        let image_rows = UNKNOWN_ROWS.into();
        Arc::new(Self { is_dirty, is_in_round, changes, is_suspect, image_rows, home: Mutex::new(home) })
    }

    /// A dirty page with an image that must not be written in place: a process that was killed may have stored rows
    /// there, without a flush. They are read as they are to be, and a power cut would take them back.
    pub fn suspect(home: Option<Image>) -> Arc<Self> {
        let page = Self::new(home, true);
        page.is_suspect.store(true, Ordering::Relaxed);
        page
    }

    /// Whether so many rows may be written to the image in place. If it has more of them, some are gone: it need not be
    /// read to see that.
    pub fn may_patch(&self, rows: usize) -> bool {
        let image_rows = self.image_rows.load(Ordering::Relaxed);
        let has_all = image_rows == UNKNOWN_ROWS || u32::try_from(rows).is_ok_and(|rows| rows >= image_rows);
        has_all && !self.is_suspect.load(Ordering::Relaxed)
    }

    /// Whether the image was read or written in this life: then it has the rows that did not change in it.
    pub fn has_old_rows(&self) -> bool {
        self.image_rows.load(Ordering::Relaxed) != UNKNOWN_ROWS
    }

    /// Notes how many rows the image has, which was read or written.
    pub fn note_image_rows(&self, rows: usize) {
        self.image_rows.store(u32::try_from(rows).unwrap_or(UNKNOWN_ROWS), Ordering::Relaxed);
    }

    /// Makes the page dirty. A commit has locked the row before.
    pub fn soil(&self) {
        // Mostly it is dirty, and then its line stays shared.
        if !self.is_dirty.load(Ordering::SeqCst) {
            self.is_dirty.store(true, Ordering::SeqCst);
        }
    }

    /// The next round writes a new image, whatever has changed.
    pub fn renew(&self) {
        self.is_suspect.store(true, Ordering::Relaxed);
        self.soil();
    }

    /// Whether the image may lack a change of a row.
    pub fn is_busy(&self) -> bool {
        let is_in_round = || self.is_in_round.load(Ordering::SeqCst) && !planted::active("engine-evicts-in-round");
        self.is_dirty.load(Ordering::SeqCst) || is_in_round()
    }

    /// The round that took the dirt has noted the new image, or made the page dirty again.
    pub fn leave_round(&self) {
        self.is_in_round.store(false, Ordering::SeqCst);
    }

    /// A bug on request: the dirt of a commit beside the copy goes with that before it.
    #[cold]
    pub fn forget_dirt(&self) {
        self.is_dirty.store(false, Ordering::SeqCst);
    }

    /// The image that was written last.
    pub fn home(&self) -> Option<Image> {
        lock(&self.home).clone()
    }

    /// Notes the image that has the rows from now on, and how many.
    pub fn set_home(&self, home: Option<Image>, rows: usize) {
        self.is_suspect.store(false, Ordering::Relaxed);
        self.note_image_rows(rows);
        *lock(&self.home) = home;
    }
}

/// The keys that may be in a leaf: from `low` to before `high`.
#[derive(Clone, Debug)]
pub struct Span {
    pub low: Bytes,
    /// `None`: no end.
    pub high: Option<Bytes>,
}

/// The trace of the rows that were purged from a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// None of them was later.
    pub floor: Tick,
    /// The number of the purge, over all trees; 0: there was none.
    pub number: u64,
    /// Where their deletions are durable.
    pub point: DurablePoint,
}

/// See the module.
#[derive(Debug)]
pub struct Leaf {
    pub span: Span,
    /// None: no row was purged.
    purged: Option<Box<Purged>>,
    pub page: Arc<Page>,
    /// Bytes that all its keys begin with, as far as this can count them.
    skip: u16,
    /// How often it was used, for more than a row, since the hand of the cache passed, up to [`USES_MAX`].
    uses: std::sync::atomic::AtomicU8,
    /// The looks at rows that were not in DRAM: see [`note_look`](Self::note_look).
    looked: std::sync::atomic::AtomicU32,
    changes: AtomicU64,
    /// Not set: the rows are not loaded.
    body: OnceLock<Box<Body>>,
    /// Rows of a leaf that is not loaded. Its lock is that of the order, of the places, and of loading the rows.
    early: Mutex<Early>,
}

/// A table larger than its cache has a cold leaf for each page: each byte of it takes a row's place.
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(feature = "shuttle")))]
const _: () = assert!(size_of::<Leaf>() <= 112 && size_of::<Page>() <= 48);

/// The rows.
#[derive(Debug)]
struct Body {
    rows: AtomicUsize,
    /// How many places are taken. A thread that changes it holds the lock of the leaf.
    taken: AtomicUsize,
    /// Bytes that it counts for the cache.
    charged: std::sync::atomic::AtomicU64,
    order: Box<[AtomicU64]>,
    places: Box<[OnceLock<Arc<Slot>>]>,
}

impl Body {
    /// Room for `rows_max` rows, of which it has `slots`, by key. All begin with `skip` bytes that are equal.
    fn new(rows_max: usize, slots: Vec<Arc<Slot>>, skip: usize) -> Box<Self> {
        let (rows, rows_max) = (slots.len(), rows_max.max(slots.len()));
        let entry = |(place, slot): (usize, &Arc<Slot>)| AtomicU64::new(entry(place, slot.key(), skip));
        let order = slots.iter().enumerate().map(entry).chain(std::iter::repeat_with(Default::default));
        let order = order.take(rows_max).collect();
        let places = slots.into_iter().map(OnceLock::from).chain(std::iter::repeat_with(OnceLock::new));
        let places = places.take(rows_max).collect();
        let (count, charged) = (|| AtomicUsize::new(rows), Default::default());
        Box::new(Self { rows: count(), taken: count(), charged, order, places })
    }
}

/// A leaf whose order no other thread changes.
#[derive(Debug)]
pub struct LockedLeaf<'l> {
    pub leaf: &'l Arc<Leaf>,
    _lock: MutexGuard<'l, Early>,
}

impl Leaf {
    /// A leaf with room for `rows_max` rows, of which it has `slots`, by key.
    pub fn new(rows_max: usize, span: Span, slots: Vec<Arc<Slot>>, purged: Purged, page: Arc<Page>) -> Arc<Self> {
        let body = Body::new(rows_max, slots, skip_of(&span).into());
        Self::with_body(span, purged, page, body.into(), Early::default())
    }

    /// A leaf whose rows are those of the image of `page`, and are not loaded.
    pub fn cold(span: Span, purged: Purged, page: Arc<Page>) -> Arc<Self> {
        Self::with_body(span, purged, page, OnceLock::new(), Early::default())
    }

    /// As [`cold`](Self::cold), with rows that stay in DRAM and what each counts for the cache.
    pub fn cold_with(span: Span, purged: Purged, page: Arc<Page>, rows: Vec<(Arc<Slot>, u64)>) -> Arc<Self> {
        Self::with_body(span, purged, page, OnceLock::new(), Early::keeping(rows))
    }

    fn with_body(span: Span, purged: Purged, page: Arc<Page>, body: OnceLock<Box<Body>>, early: Early) -> Arc<Self> {
        let purged = (purged != Purged::default()).then(|| Box::new(purged));
        let (skip, changes, early) = (skip_of(&span), AtomicU64::new(0), Mutex::new(early));
        let (uses, looked) = Default::default();
        Arc::new(Self { span, purged, page, skip, uses, looked, changes, body, early })
    }

    /// The trace of the rows that were purged from it.
    pub fn purged(&self) -> Purged {
        self.purged.as_deref().copied().unwrap_or_default()
    }

    fn skip(&self) -> usize {
        self.skip.into()
    }

    /// Counts a use that is not one of a single row.
    #[inline]
    pub fn note_use(&self) {
        // Mostly the count is at its end, and then its line stays shared. A lost one does no harm.
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Uses that are counted.
    pub fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Takes one from the count of uses. Returns whether there was one.
    pub fn take_use(&self) -> bool {
        let uses = self.uses.load(Ordering::Relaxed);
        self.uses.store(uses.saturating_sub(1), Ordering::Relaxed);
        uses > 0
    }

    /// About how many bytes of DRAM it holds more than a cold leaf.
    pub fn bytes(&self) -> u64 {
        let Some(body) = self.body.get() else { return 0 };
        let slots = body.places.iter().filter_map(OnceLock::get);
        let slots: usize = slots.map(|slot| slot.bytes()).sum();
        let arrays = body.places.len() * (size_of::<AtomicU64>() + size_of::<OnceLock<Arc<Slot>>>());
        to_u64(slots + arrays + size_of::<Body>())
    }

    /// Notes how many bytes its rows count for the cache. Returns what it was before: 0 at first, and if it is cold.
    pub fn charge(&self, bytes: u64) -> u64 {
        self.body.get().map_or(0, |body| body.charged.swap(bytes, Ordering::SeqCst))
    }

    /// It counts so many bytes more.
    pub fn grow_charge(&self, bytes: u64) {
        if let Some(body) = self.body.get() {
            body.charged.fetch_add(bytes, Ordering::SeqCst);
        }
    }

    /// Whether a row is in memory of a cache that is to go back to the allocator.
    pub fn is_evacuating(&self) -> bool {
        let Some(body) = self.body.get() else { return false };
        body.places.iter().filter_map(OnceLock::get).any(|slot| slot.is_evacuating())
    }

    /// Whether the rows are loaded.
    pub fn is_loaded(&self) -> bool {
        self.body.get().is_some()
    }

    /// Loads the rows, unless another thread has done that. `read` reads an image, and `room` says for how many rows
    /// there is to be room.
    ///
    /// Returns, if this call did, how many bytes the rows counted for the cache that were here before.
    ///
    /// # Errors
    /// Those of `read`. Then the rows are not loaded.
    pub fn load(
        &self,
        room: impl FnOnce(&[Arc<Slot>]) -> usize,
        read: impl FnOnce(&Image) -> Result<Vec<Arc<Slot>>>,
    ) -> Result<Option<u64>> {
        // The image counts while the lock is held and the rows are not loaded: no thread can change one of them.
        let mut early = lock(&self.early);
        if self.is_loaded() {
            return Ok(None);
        }
        let mut slots = read(&self.page.home().expect("rows that are not loaded are in an image"))?;
        self.page.note_image_rows(slots.len());
        let mut charged = 0;
        if !planted::active("engine-early-row-forgotten") {
            charged = early.move_to(&mut slots);
        }
        self.body.get_or_init(|| Body::new(room(&slots), slots, self.skip()));
        Ok(Some(charged))
    }

    /// The rows that were used for themselves since this was called last.
    pub fn take_used(&self) -> UsedRows {
        let Some(body) = self.body.get() else { return UsedRows::None };
        let (mut used, mut bytes, mut count) = (FewRows::new(), 0, 0);
        for slot in body.places.iter().filter_map(OnceLock::get).filter(|slot| slot.take_use()) {
            count += 1;
            if count <= ROWS_KEPT_MAX {
                bytes += charge_of(slot);
                used.push(slot.address());
            }
        }
        match count {
            0 => UsedRows::None,
            1..=ROWS_KEPT_MAX if 3 * bytes <= 2 * self.bytes() => UsedRows::Few(used),
            _ => UsedRows::Many,
        }
    }

    /// The most uses that are counted, of the leaf or of one of its rows.
    pub fn uses_of_any(&self) -> u8 {
        let places = self.body.get().map_or(&[][..], |body| &body.places);
        places.iter().filter_map(OnceLock::get).map(|slot| slot.uses()).fold(self.uses(), u8::max)
    }

    fn body(&self) -> &Body {
        self.body.get().expect("rows are loaded before they are used")
    }

    /// The address of the count of its changes.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(&self.changes).addr()
    }

    /// The count of its changes.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Whether other leaves have taken its place.
    pub fn is_ended(&self) -> bool {
        self.changes.load(Ordering::SeqCst) == ENDED
    }

    /// Calls `search` for a look at one moment, and tells it the count of changes. Others may change the leaf while it
    /// searches; then it is called again, and it may return `None` where it finds no sense. `None`: the leaf is ended.
    pub fn read<R>(&self, mut search: impl FnMut(u64) -> Option<R>) -> Option<R> {
        for turn in 0.. {
            let before = self.changes();
            if before == ENDED {
                return None;
            }
            if before.is_multiple_of(2) {
                let found = search(before);
                // The loads before this are not newer than the count below.
                fence(Ordering::Acquire);
                if self.changes.load(Ordering::Relaxed) == before {
                    return Some(found.expect("nobody changed the leaf"));
                }
            }
            spin(turn);
        }
        None
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.body().rows.load(Ordering::Relaxed)
    }

    /// How many rows it may have.
    pub fn room(&self) -> usize {
        self.body().places.len()
    }

    /// Row `number` in the order of the keys.
    pub fn slot(&self, number: usize) -> Option<&Arc<Slot>> {
        let Body { order, places, .. } = self.body();
        places.get(place(order.get(number)?.load(Ordering::Relaxed)))?.get()
    }

    /// The number of the row with `key`, or of the first row after it. The key may be in this leaf, or is its end.
    pub fn search(&self, key: &[u8]) -> Option<std::result::Result<usize, usize>> {
        let wanted = head(key, self.skip()) >> PLACE_BITS;
        let Body { rows, order, places, .. } = self.body();
        let (mut from, mut to) = (0, rows.load(Ordering::Relaxed));
        while from < to {
            let middle = from.midpoint(to);
            let found = order.get(middle)?.load(Ordering::Relaxed);
            let is_before = match (found >> PLACE_BITS).cmp(&wanted) {
                std::cmp::Ordering::Equal => {
                    let found = places.get(place(found))?.get()?;
                    match (**found.key()).cmp(key) {
                        std::cmp::Ordering::Equal => return Some(Ok(middle)),
                        order => order.is_lt(),
                    }
                }
                order => order.is_lt(),
            };
            if is_before {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Some(Err(from))
    }

    /// Locks the leaf. `None`: it is ended.
    pub fn lock(self: &Arc<Self>) -> Option<LockedLeaf<'_>> {
        count_shared_rmws(2);
        let lock = lock(&self.early);
        (!self.is_ended()).then_some(LockedLeaf { leaf: self, _lock: lock })
    }
}

impl LockedLeaf<'_> {
    /// The number of the row with `key`, or of the first row after it.
    pub fn search(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        self.leaf.search(key).expect("nobody else changes the leaf")
    }

    /// Whether its rows are loaded.
    pub fn is_loaded(&self) -> bool {
        self.leaf.is_loaded()
    }

    /// Row `number`.
    pub fn slot(&self, number: usize) -> &Arc<Slot> {
        self.leaf.slot(number).expect("nobody else changes the leaf")
    }

    /// All rows, by key.
    pub fn slots(&self) -> Vec<Arc<Slot>> {
        (0..self.leaf.len()).map(|number| self.slot(number).clone()).collect()
    }

    /// Whether it has no place for another row.
    pub fn is_full(&self) -> bool {
        let Body { taken, places, .. } = self.leaf.body();
        taken.load(Ordering::Relaxed) >= places.len()
    }

    /// Adds a row before row `number`. There is room.
    pub fn insert(&mut self, number: usize, slot: Arc<Slot>) {
        let (Body { order, rows, taken, places, .. }, skip) = (self.leaf.body(), self.leaf.skip());
        let place = taken.load(Ordering::Relaxed);
        taken.store(place + 1, Ordering::Relaxed);
        let mut new = entry(place, slot.key(), skip);
        places[place].set(slot).expect("a place is taken once");
        let count = self.leaf.len() + 1;
        self.change(|| {
            for entry in &order[number..count] {
                let old = entry.load(Ordering::Relaxed);
                entry.store(new, Ordering::Relaxed);
                new = old;
            }
            rows.store(count, Ordering::Relaxed);
        });
    }

    /// Takes row `number` out. Its place stays taken.
    pub fn remove(&mut self, number: usize) {
        let Body { order, rows, .. } = self.leaf.body();
        let count = self.leaf.len() - 1;
        self.change(|| {
            for (entry, next) in order[number..].iter().zip(&order[number + 1..=count]) {
                entry.store(next.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            rows.store(count, Ordering::Relaxed);
        });
    }

    fn change(&mut self, edit: impl FnOnce()) {
        let changes = &self.leaf.changes;
        let before = changes.load(Ordering::Relaxed);
        changes.store(before + 1, Ordering::Relaxed);
        // A reader that sees one of the stores below sees the odd count after them.
        fence(Ordering::Release);
        edit();
        let is_uncounted = planted::active("engine-no-leaf-version");
        changes.store(if is_uncounted { before } else { before + 2 }, Ordering::Release);
    }

    /// Ends the leaf. Readers look for the leaves that take its place until they find them.
    pub fn end(&mut self) {
        self.leaf.changes.store(ENDED, Ordering::SeqCst);
    }

    /// The rows, by key, if the leaf is dirty. It is clean then: the caller writes an image, or soils the page again.
    ///
    /// A commit locks a slot, and then makes the page dirty. If this took away what it noted, its slot is locked
    /// here, or newer.
    pub fn take_dirt(&mut self) -> Option<Vec<Arc<Slot>>> {
        let page = &self.leaf.page;
        // Before the dirt is taken, whether there is some or not: a commit may make it dirty between two looks.
        page.is_in_round.store(true, Ordering::SeqCst);
        let is_dirty = page.is_dirty.swap(false, Ordering::SeqCst);
        if !is_dirty {
            page.leave_round();
        }
        // The words of the slots are read after this.
        fence(Ordering::SeqCst);
        is_dirty.then(|| self.slots())
    }
}

/// Bytes that all keys of `span` begin with: so many at least.
fn skip_of(span: &Span) -> u16 {
    let skip = span.high.as_deref().map_or(0, |high| common(&span.low, high));
    u16::try_from(skip).unwrap_or(u16::MAX)
}

/// An entry of the order.
fn entry(place: usize, key: &[u8], skip: usize) -> u64 {
    let head = head(key, skip) >> PLACE_BITS;
    (head << PLACE_BITS) | to_u64(place)
}

fn place(entry: u64) -> usize {
    to_usize(low_u16(entry))
}

#[cfg(all(test, feature = "shuttle"))]
mod schedules;
