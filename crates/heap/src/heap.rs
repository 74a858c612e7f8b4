//! Opening a heap: format, verify, recover, rebuild.
//!
//! 1. *Format* (first use): lanes are made idle and persistent, then the second copy of the header, then the header: a
//!    crash before leaves a heap area without a header, which is formatted again.
//! 2. *Recover*: every lane whose record counts is replayed, fence, then all lanes are made idle, fence. Both may be cut
//!    short and repeated: records are idempotent, and no two records that count change the same word.
//! 3. *Rebuild*: the tables of all zones and the bitmaps of all slabs are read into DRAM.
//!
//! Cost of open: lanes times entries for replay, 8 bytes per chunk and 8 bytes per 48 blocks for the rebuild.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use lodestone_pmem::sync::Mutex;
use lodestone_pmem::{Memory, PmAddr, Pool, checked};
use zerocopy::{FromZeros, IntoBytes};

use crate::action::{Action, apply};
use crate::arena::Arena;
use crate::chunks::{Chunks, usable_chunks};
use crate::class::{Class, Classes};
use crate::core::{Block, Core, Lane, lock};
use crate::error::{Error, Result};
use crate::layout::{
    ChunkId, ChunkWord, Geometry, HEAP_MAGIC, HEAP_VERSION, HeapHeader, ROOT_WORDS, ROOT_WORDS_OFFSET,
};
use crate::record::{self, Found};
use crate::table::{PartTable, State};

/// How to format and use a heap. What is persistent counts only when the heap is formatted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HeapOptions {
    /// Bytes of a chunk, a power of two from 512. Persistent.
    pub chunk_bytes: u32,
    /// Chunks in a zone, a power of two from 4. A block is at most a zone without its table. Persistent.
    pub zone_chunks: u32,
    /// Lanes: actions that can commit at the same time. Persistent.
    pub lanes: u32,
    /// Bytes of a lane, a multiple of 64: an action changes at most a sixteenth of that many words, less one. Persistent.
    pub lane_bytes: u32,
    /// Arenas per part; 0: twice the processors, at least 4.
    pub arenas: usize,
    /// Take the lanes in turn instead of by thread: one thread then leaves records as many threads would. For tests.
    pub lane_rotation: bool,
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self { chunk_bytes: 64 << 10, zone_chunks: 4096, lanes: 64, lane_bytes: 4096, arenas: 0, lane_rotation: false }
    }
}

impl HeapOptions {
    /// Chunks, zones, lanes and arenas so small that tests reach every limit.
    #[must_use]
    pub fn small() -> Self {
        Self { chunk_bytes: 1024, zone_chunks: 8, lanes: 2, lane_bytes: 256, arenas: 1, lane_rotation: false }
    }
}

/// A persistent heap over a pool. Cheap to clone; used from any number of threads. One heap per pool at a time.
///
/// See [`Action`] for an example.
#[derive(Clone, Debug)]
pub struct Heap {
    pub(crate) core: Arc<Core>,
}

impl Heap {
    /// Opens the heap of `pool`: formats it on first use, else verifies it and finishes the actions that a crash cut
    /// short. Damaged metadata is set aside (nothing is given out there) and named by [`check`](Self::check).
    ///
    /// # Errors
    /// When both copies of the header are damaged, the format is newer, the options make no sense, the heap area is too
    /// small, or the pool is read-only and the heap needs recovery or formatting.
    pub fn open(pool: &Pool, options: &HeapOptions) -> Result<Self> {
        let geometry = match read_header(pool)? {
            Some(geometry) => geometry,
            None => format(pool, options)?,
        };
        let core = build_core(pool, options, geometry);
        recover(&core)?;
        rebuild(&core);
        Ok(Self { core: Arc::new(core) })
    }

    /// The pool below.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.core.pool
    }

    /// The pool's memory.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> &Memory {
        &self.core.memory
    }

    /// Begins an action.
    #[must_use]
    #[inline]
    pub fn action(&self) -> Action<'_> {
        Action::new(&self.core)
    }

    /// Usable bytes of the block at `at`, or `None` when no allocated block starts there. A block counts from the commit
    /// that allocates it to the call of `free`.
    #[must_use]
    pub fn block_bytes(&self, at: PmAddr) -> Option<u64> {
        match self.core.block(at) {
            Block::Small { id, class_index, word, mask } => {
                let live = self.core.slab(id, class_index).bits[word as usize].live.load(Ordering::Acquire);
                (live & mask != 0).then(|| u64::from(self.core.classes.get(class_index).block_bytes))
            }
            Block::Large { chunks, .. } => Some(u64::from(chunks) << self.core.geometry.chunk_shift),
            Block::None(_) => None,
        }
    }

    /// Address of root word `index` of [`ROOT_WORDS`]: a word of the heap's user, zero in a fresh heap, from which
    /// everything that is allocated can be reached. Setting it in the action that allocates is what keeps a first block
    /// from leaking.
    ///
    /// # Panics
    /// When `index` is [`ROOT_WORDS`] or more.
    #[must_use]
    pub fn root_word(&self, index: u64) -> PmAddr {
        assert!(index < ROOT_WORDS, "a heap has {ROOT_WORDS} root words");
        self.core.bases[0].0.plus(ROOT_WORDS_OFFSET + index * 8)
    }

    /// Largest block that this heap can give, in bytes, however much is free.
    #[must_use]
    pub fn block_bytes_max(&self) -> u64 {
        self.core.geometry.extent_bytes_max()
    }

    /// Words that one action can change.
    #[must_use]
    pub fn action_words_max(&self) -> usize {
        self.core.geometry.lane_entries()
    }

    /// Calls `visit` with address and usable bytes of every allocated block, by ascending address. What other threads
    /// allocate or free meanwhile may or may not be visited.
    pub fn for_each_block(&self, mut visit: impl FnMut(PmAddr, u64)) {
        let core = &*self.core;
        for_each_chunk(core, |id, state| match state {
            State::Slab(class_index) => {
                let class = core.classes.get(class_index);
                let slab = core.slab(id, class_index);
                for block in 0..class.blocks {
                    let live = slab.bits[(block / 48) as usize].live.load(Ordering::Acquire);
                    if live & (1 << (block % 48)) != 0 {
                        let inside = class.blocks_offset + block * class.block_bytes;
                        visit(core.chunk_addr(id).plus(u64::from(inside)), u64::from(class.block_bytes));
                    }
                }
            }
            State::Extent(chunks) => visit(core.chunk_addr(id), u64::from(chunks) << core.geometry.chunk_shift),
            State::None | State::Busy(_) | State::Damaged => {}
        });
    }
}

/// Calls `visit` for every chunk of every formatted zone with its state in DRAM.
pub(crate) fn for_each_chunk(core: &Core, mut visit: impl FnMut(ChunkId, State)) {
    for part in 0..core.bases.len() as u16 {
        for zone in 0.. {
            let Some(chunks) = core.tables[part as usize].zone(zone) else { break };
            for (slot, chunk) in chunks.iter().enumerate() {
                visit(ChunkId { part, index: (zone << core.geometry.zone_shift) + slot as u32 }, chunk.state());
            }
        }
    }
}

/// The geometry of a formatted heap, `None` when the heap was never formatted.
fn read_header(pool: &Pool) -> Result<Option<Geometry>> {
    let memory = pool.memory();
    let (start, _) = pool.heap_area(0);
    let damaged = |finding: &str| Error::Damaged { path: pool.path().to_owned(), at: start, finding: finding.into() };
    let places = HeapHeader::places(start);
    if !memory.contains(places[1].addr(), 64) {
        return Err(Error::NoSpace { path: pool.path().to_owned(), part: 0, wanted_bytes: 4096 });
    }
    let copies = places.map(|place| memory.get(place));
    let Some(header) = copies.iter().find(|header| header.is_intact()) else {
        // The front header is written last: while it is zero, the heap was never used.
        if copies[0] == HeapHeader::new_zeroed() {
            return Ok(None);
        }
        return Err(damaged("both copies of the heap header fail their checksum"));
    };
    if header.version > HEAP_VERSION {
        return Err(damaged(&format!(
            "heap format version {}, this lodestone reads up to {HEAP_VERSION}",
            header.version
        )));
    }
    match Geometry::from_header(header) {
        Some(geometry) if geometry.lanes > 0 => {
            finish_header(memory, start, &copies);
            Ok(Some(geometry))
        }
        _ => Err(damaged("the heap header names impossible sizes")),
    }
}

/// Writes the front header that a crash cut short while the heap was formatted: it is a beginning of its copy and zeroes
/// behind. Anything else is damage, which is left for the check to tell.
fn finish_header(memory: &Memory, start: PmAddr, copies: &[HeapHeader; 2]) {
    let [front, copy] = copies.each_ref().map(HeapHeader::as_bytes);
    let same = front.chunks(8).zip(copy.chunks(8)).take_while(|(front, copy)| front == copy).count() * 8;
    if memory.is_read_only() || same == front.len() || front[same..].iter().any(|&byte| byte != 0) {
        return;
    }
    let place = HeapHeader::places(start)[0];
    memory.put(place, &copies[1]);
    // Nothing in the heap may overtake the header that makes it one.
    memory.persist(place.addr(), 64);
}

/// Formats all parts, part 0 last.
fn format(pool: &Pool, options: &HeapOptions) -> Result<Geometry> {
    let memory = pool.memory();
    let mut header = HeapHeader::new_zeroed();
    header.magic = HEAP_MAGIC;
    header.version = HEAP_VERSION;
    header.lanes = options.lanes;
    header.lane_bytes = options.lane_bytes;
    header.chunk_bytes = options.chunk_bytes;
    header.zone_chunks = options.zone_chunks;
    header.boot = pool.boot();
    let geometry = Geometry::from_header(&header).filter(|geometry| geometry.lanes > 0);
    let Some(geometry) = geometry else {
        return Err(Error::Invalid {
            what: "heap options",
            finding: format!("{options:?}"),
            hint: "use powers of two for chunk_bytes (from 512) and zone_chunks (from 4), 1 to 65536 lanes, and a multiple of 64 up to 1 MiB for lane_bytes",
        });
    };
    if memory.is_read_only() {
        return Err(needs_writing());
    }
    for part in (0..memory.part_count()).rev() {
        let (start, end) = pool.heap_area(part);
        header.part = u32::from(part);
        header.zones_offset = geometry.zones_offset(start);
        header.crc = header.checksum();
        let needed = header.zones_offset + u64::from(geometry.table_chunks() + 1) * geometry.chunk_bytes();
        if end.offset() < needed {
            let wanted_bytes = needed - start.offset();
            return Err(Error::NoSpace { path: pool.path().to_owned(), part, wanted_bytes });
        }
        for lane in 0..if part == 0 { geometry.lanes } else { 0 } {
            record::clear(memory, geometry.lane(start, lane));
        }
        let roots = start.plus(ROOT_WORDS_OFFSET);
        memory.zero(roots, ROOT_WORDS * 8);
        memory.flush(roots, ROOT_WORDS * 8);
        // The header says that lanes and root words are there: it may not overtake them.
        memory.fence();
        let [front, copy] = HeapHeader::places(start);
        memory.put(copy, &header);
        // The front header, once begun, must find an intact copy behind it: it may not overtake the copy.
        memory.persist(copy.addr(), 64);
        memory.put(front, &header);
        // Nothing in the heap may overtake the header that makes it one.
        memory.persist(front.addr(), 64);
    }
    Ok(geometry)
}

fn needs_writing() -> Error {
    Error::Invalid {
        what: "heap",
        finding: "the pool is open read-only, but its heap must be formatted or recovered first".into(),
        hint: "open the pool for writing once",
    }
}

fn build_core(pool: &Pool, options: &HeapOptions, geometry: Geometry) -> Core {
    let parts = pool.memory().part_count();
    let classes = Classes::new(&geometry);
    let processors = || std::thread::available_parallelism().map_or(4, |count| 2 * count.get()).max(4);
    let arenas_per_part = if options.arenas == 0 { processors() } else { options.arenas };
    let bases = (0..parts).map(|part| pool.heap_area(part).0).map(|start| (start, geometry.zones_offset(start)));
    Core {
        memory: pool.memory().clone(),
        pool: pool.clone(),
        bases: bases.collect(),
        tables: (0..parts).map(|_| PartTable::new()).collect(),
        lanes: (0..geometry.lanes).map(|_| CachePadded::new(Mutex::new(Lane::default()))).collect(),
        lane_rotation: options.lane_rotation,
        lane_next: AtomicUsize::new(0),
        arenas: (0..arenas_per_part * usize::from(parts))
            .map(|_| CachePadded::new(Mutex::new(Arena::new(classes.len()))))
            .collect(),
        arenas_per_part,
        chunks: Mutex::new(Chunks::new(parts)),
        words_max: Class::cut(geometry.chunk_bytes(), 16).map_or(1, |class| class.words),
        classes,
        geometry,
    }
}

/// Finishes what a crash cut short.
fn recover(core: &Core) -> Result<()> {
    let memory = &core.memory;
    let mut stale = Vec::new();
    for number in 0..core.geometry.lanes {
        let lane = core.geometry.lane(core.bases[0].0, number);
        let found = record::read(memory, lane, core.geometry.lane_entries());
        if memory.is_read_only() && matches!(found, Found::Record(_)) {
            return Err(needs_writing());
        }
        match found {
            Found::Idle => {}
            Found::Torn => stale.push(lane),
            Found::Damaged(_) => lock(&core.lanes[number as usize]).dead = true,
            Found::Record(entries) => {
                let inside = |at: PmAddr| memory.contains(at, 8);
                if entries.iter().all(|entry| inside(entry.at()) && entry.kind().is_some()) {
                    // A damaged word is found again by `check`, and its blocks are set aside by `rebuild`.
                    let _ = apply(core, &entries);
                    stale.push(lane);
                } else {
                    lock(&core.lanes[number as usize]).dead = true;
                }
            }
        }
    }
    if stale.is_empty() || memory.is_read_only() {
        return Ok(());
    }
    // The end of a record may not overtake the words it repeats.
    memory.fence();
    for lane in stale {
        record::clear(memory, lane);
    }
    // Later changes of the same words may not overtake the end of the records, or a second recovery rolls them back.
    memory.fence();
    Ok(())
}

/// Reads chunk words and bitmaps of all zones into DRAM.
fn rebuild(core: &Core) {
    for part in 0..core.bases.len() as u16 {
        for zone in 0.. {
            let usable = usable_chunks(core, part, zone);
            let at = core.zone_addr(part, zone);
            if usable <= core.geometry.table_chunks() || core.memory.load(at) == 0 {
                break;
            }
            rebuild_zone(core, part, zone, usable);
        }
    }
}

fn rebuild_zone(core: &Core, part: u16, zone: u32, usable: u32) {
    let table = core.tables[part as usize].add_zone(zone, &core.geometry);
    let first = zone << core.geometry.zone_shift;
    let mut free = Vec::new();
    // Behind a damaged chunk word there may be the rest of an extent.
    let mut doubtful = false;
    // Chunks up to here belong to the extent found last.
    let mut covered = 0;
    for slot in 0..core.geometry.zone_chunks() {
        let id = ChunkId { part, index: first + slot };
        let at = core.chunk_word(id);
        let chunk = &table[slot as usize];
        let word = ChunkWord::decode(at, core.memory.load(at));
        match word {
            _ if slot < covered => {}
            Some(ChunkWord::Free) if slot >= usable || !doubtful => free.push(slot),
            Some(ChunkWord::Free) => {}
            Some(ChunkWord::Table) => doubtful = false,
            Some(ChunkWord::Slab(block_bytes)) => {
                doubtful = false;
                match core.classes.index_of(block_bytes) {
                    Some(class_index) => rebuild_slab(core, id, class_index),
                    None => chunk.set_state(State::Damaged),
                }
            }
            Some(ChunkWord::Extent(chunks)) => {
                doubtful = false;
                covered = slot.saturating_add(chunks);
                chunk.set_state(if covered <= usable { State::Extent(chunks) } else { State::Damaged });
            }
            None => {
                doubtful = true;
                chunk.set_state(State::Damaged);
            }
        }
    }
    lock(&core.chunks).add_zone(core, part, free.into_iter());
}

fn rebuild_slab(core: &Core, id: ChunkId, class_index: usize) {
    let class = core.classes.get(class_index);
    let slab = core.slab(id, class_index);
    let mut has_free = false;
    for word in 0..class.words {
        let at = core.bitmap_word(id, word);
        let mask = class.mask(word);
        let bits = &slab.bits[word as usize];
        // Nothing is given out or taken back where the bitmap is damaged.
        let (taken, live) = match checked::decode(at, core.memory.load(at)) {
            Some(found) if found & !mask == 0 => (found, found),
            _ => (mask, 0),
        };
        bits.taken.store(taken, Ordering::Relaxed);
        bits.live.store(live, Ordering::Relaxed);
        has_free |= taken != mask;
    }
    let arena = id.part as usize * core.arenas_per_part + id.index as usize % core.arenas_per_part;
    slab.owner.store(arena as u32, Ordering::Relaxed);
    slab.listed.store(false, Ordering::Relaxed);
    if has_free {
        core.list_slab(id, class_index, arena);
    } else if let Some((_, chunk, _)) = core.locate(core.chunk_addr(id)) {
        chunk.set_state(State::Slab(class_index));
    }
}
