//! Warm-up: the leaves that were in the cache when the database was closed are read again after the next open.
//!
//! - *The list* of these leaves, by tree and first key, is written at a close. It is a tree of its own in the pages
//!   ([`WARM_TREE`]): its rows are the leaves, and no log ever names it. So it has their checksums, it replaces the
//!   former list in one batch or not at all, and its pages are freed like others. A crash leaves the list of the last
//!   close. Nothing relies on it: an entry without a leaf is passed over, and a damaged list is named and not used.
//! - *Why a list*: the page table knows which images are new, and so which leaves were written. In a load of reads that
//!   says nothing about those that are used.
//! - *After the open* a thread reads these leaves, those that were used most first, until they are done or the cache
//!   has no room. It evicts nothing. It rests for four fifths of the time, as a backup does, and a close ends it after
//!   the leaf at which it is.
//! - Tables that are [kept](crate::Schema::kept) are read first, as a whole: they need no list and no room.
//! - A close that comes before the end keeps the entries that are left, as many as fit into the cache.
//!
//! There is no thread where runs must repeat exactly.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_blocks::Block;
use lodestone_pages::{Image, PageRow};
use lodestone_pmem::Domain;
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_txn::Writer;

use crate::core::Core;
use crate::error::{Error, Result};
use crate::tree::Bytes;
use crate::{events, threads};

/// The tree of the list: a number that no table has.
pub const WARM_TREE: u32 = 1;
/// Leaves in an image of the list.
const LEAVES_PER_IMAGE: usize = 256;
/// Bytes of a tree's number in a row of the list, in the order of numbers.
const TREE_BYTES: usize = 4;
/// Bytes of its payload: the rank of the leaf. The smallest one is read first.
const RANK_BYTES: usize = 4;
/// Segments of the log that a list leaves room for.
const SPARE_SEGMENTS: u64 = 2;
/// The thread rests so many times as long as it has worked: 20 % of the time are work.
const REST: u32 = 4;
/// Work without a rest.
const WORK_MIN: Duration = Duration::from_millis(1);

/// A leaf, by its tree and its first possible key.
type Place = (u32, Bytes);

/// The list, and where the warm-up is in it.
#[derive(Debug)]
pub struct WarmList {
    is_on: bool,
    list: Mutex<List>,
    is_end: (Mutex<bool>, Condvar),
}

#[derive(Debug)]
struct List {
    /// Its images on the medium, with their first keys.
    images: Vec<(Image, Block)>,
    /// The leaves that are not read yet, and a digest of the list. `None`: the list was not read.
    read: Option<(VecDeque<Place>, u32)>,
}

impl List {
    /// The leaves that are left. An error of the list is told, and leaves none.
    fn left(&mut self, core: &Core) -> &mut (VecDeque<Place>, u32) {
        let images = &self.images;
        self.read.get_or_insert_with(|| {
            let read = read(core, images).inspect_err(|error| {
                events::damage(error);
                events::warm_up_refused(core, error);
            });
            read.unwrap_or_default()
        })
    }
}

fn key_of((tree, low): &Place) -> Vec<u8> {
    [&tree.to_be_bytes()[..], low].concat()
}

/// The digest of the list, with another row.
fn digest(crc: u32, key: &[u8], rank: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc, key), rank)
}

/// The leaves of the list in `images`, by rank, as many as can be in the cache. With a digest of the list.
fn read(core: &Core, images: &[(Image, Block)]) -> Result<(VecDeque<Place>, u32)> {
    let (mut places, mut crc) = (Vec::new(), 0);
    for (image, low) in images {
        let found = core.ground.source.read(image, WARM_TREE, low, None)?;
        let place = |row: PageRow<'_>| {
            let (tree, low) = row.key.split_first_chunk::<TREE_BYTES>()?;
            let rank = row.payload.try_into().ok().map(u32::from_le_bytes)?;
            Some((rank, (u32::from_be_bytes(*tree), Bytes::from(low))))
        };
        places.extend(found.rows().filter_map(place));
        crc = found.rows().fold(crc, |crc, row| digest(crc, row.key, row.payload));
    }
    places.sort_by_key(|(rank, _)| *rank);
    places.truncate(leaves_max(core));
    Ok((places.into_iter().map(|(_, place)| place).collect(), crc))
}

/// Rows of the list.
fn rows<'k>(core: &Core, keys: &'k [(Vec<u8>, [u8; RANK_BYTES])]) -> impl Iterator<Item = PageRow<'k>> {
    let tick = core.timeline.base();
    keys.iter().map(move |(key, rank)| PageRow { key, tick, writer: Writer::default(), payload: rank })
}

/// How many leaves fit into the cache at most.
fn leaves_max(core: &Core) -> usize {
    core.ground.cache.as_ref().map_or(usize::MAX, |cache| cache.leaves_max(core.ground.leaf_size.bytes_max))
}

impl WarmList {
    /// The list that an open found.
    pub fn new(images: Vec<(Image, Block)>, is_on: bool) -> Self {
        Self { is_on, list: Mutex::new(List { images, read: None }), is_end: Default::default() }
    }

    /// # Errors
    /// A damaged list.
    pub fn verify(&self, core: &Core) -> Result<()> {
        read(core, &lock(&self.list).images).map(|_| ())
    }

    fn next(&self, core: &Core) -> Option<Place> {
        lock(&self.list).left(core).0.pop_front()
    }

    fn give_back(&self, core: &Core, place: Place) {
        lock(&self.list).left(core).0.push_front(place);
    }

    fn left(&self, core: &Core) -> usize {
        lock(&self.list).left(core).0.len()
    }

    /// Writes the list of the leaves that are in the cache, at a close. Durable on return.
    ///
    /// # Errors
    /// A full pool; a medium that failed. Then the list is the former one.
    pub fn write(&self, core: &Core) -> Result<()> {
        let Some(cache) = core.ground.cache.as_ref().filter(|_| self.is_on) else { return Ok(()) };
        let mut list = lock(&self.list);
        let limit = leaves_max(core);
        let (left, before) = list.left(core);
        let mut ranks: BTreeMap<Vec<u8>, [u8; RANK_BYTES]> = BTreeMap::new();
        let mut places = cache.loaded();
        places.extend(left.drain(..));
        for (rank, place) in (0_u32..).zip(places.iter().take(limit)) {
            ranks.entry(key_of(place)).or_insert(rank.to_le_bytes());
        }
        let places: Vec<_> = ranks.into_iter().collect();
        let crc = places.iter().fold(0, |crc, (key, rank)| digest(crc, key, rank));
        if crc == *before || (places.is_empty() && list.images.is_empty()) {
            return Ok(());
        }
        let mut pages = core.rounds.pages();
        let chunks = || places.chunks(LEAVES_PER_IMAGE);
        let count = chunks().map(|keys| pages.image_pages(&keys[0].0, rows(core, keys))).sum();
        pages.find_room(count, None, (SPARE_SEGMENTS, core.wal.stats().segment_bytes))?;
        let mut batch = pages.batch();
        for keys in chunks() {
            batch.write(WARM_TREE, &keys[0].0, rows(core, keys))?;
        }
        list.images.drain(..).for_each(|(image, _)| batch.end(image));
        Ok(batch.publish_beside()?)
    }
}

/// The thread. Dropping this ends it, after the leaf at which it is.
#[derive(Debug)]
pub struct WarmUp {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl WarmUp {
    /// Begins the thread, if there is a list and a cache.
    pub fn begin(core: &Arc<Core>) -> Option<Self> {
        let is_exact = cfg!(feature = "shuttle") || core.memory.domain() == Domain::Traced;
        let has_list = !lock(&core.warm.list).images.is_empty() || core.trees().iter().any(|tree| tree.is_kept());
        if is_exact || !core.warm.is_on || !has_list || core.ground.cache.is_none() {
            return None;
        }
        let shared = core.clone();
        let thread = std::thread::Builder::new().name("lodestone-warm-up".into()).spawn(move || run(&shared));
        Some(Self { core: core.clone(), thread: Mutex::new(thread.ok()) })
    }

    /// Waits until it has ended by itself.
    pub fn wait(&self) {
        lock(&self.thread).take().into_iter().for_each(threads::join);
    }
}

impl Drop for WarmUp {
    fn drop(&mut self) {
        *lock(&self.core.warm.is_end.0) = true;
        self.core.warm.is_end.1.notify_all();
        self.wait();
    }
}

fn run(core: &Core) {
    let Some(cache) = &core.ground.cache else { return };
    let (began, mut work, mut leaves) = (Instant::now(), Instant::now(), 0);
    // Works a part of the time. Returns whether the database is being closed.
    let mut rest = || {
        let is_over = work.elapsed() >= WORK_MIN && has_ended(core, work.elapsed() * REST);
        if work.elapsed() >= WORK_MIN {
            work = Instant::now();
        }
        is_over
    };
    // They have no need of room. As below, an error is that of the next look, too.
    for tree in core.trees().into_iter().filter(|tree| tree.is_kept()) {
        leaves += tree.load_while(|| !rest()).unwrap_or(0);
    }
    while let Some((tree, low)) = core.warm.next(core) {
        if !cache.has_room(core.ground.leaf_size.bytes_max) {
            core.warm.give_back(core, (tree, low));
            break;
        }
        match core.find_tree(tree).map(|tree| tree.load_at(&low)) {
            Some(Ok(true)) => {
                cache.note_warm_load();
                leaves += 1;
            }
            // It was named. Any other look at the leaf names it again.
            Some(Err(Error::Damaged { .. })) | None | Some(Ok(false)) => {}
            Some(Err(_)) => break,
        }
        if rest() {
            break;
        }
    }
    events::warmed_up(core, leaves, core.warm.left(core), began);
}

/// Rests. Returns whether the database is being closed.
fn has_ended(core: &Core, rest: Duration) -> bool {
    let (is_end, closes) = &core.warm.is_end;
    let waits = closes.wait_timeout_while(lock(is_end), rest, |is_end| !*is_end);
    *waits.unwrap_or_else(PoisonError::into_inner).0
}
