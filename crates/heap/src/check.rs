//! Verification of all metadata on the medium, and of the owner of each block.
//!
//! 1. *Metadata*: both header copies, the commit words of lanes, the zones word, zone and chunk words, and bitmap
//!    words. Each verifies itself, so every flipped byte is found.
//! 2. *Structure*: extents cover only free chunk words inside their zone, bitmaps name only blocks that exist, and the
//!    medium says the same as DRAM.
//! 3. *Ownership* (`owners`), when the caller lists the blocks that it can reach. A block reached twice has two owners.
//!    An allocated block that is not reached is a leak. A reached block must be allocated.
//!
//! Meant for a heap at rest. Blocks of actions that are open or commit meanwhile may be reported.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;

use lodestone_pmem::{PmAddr, WORD_BYTES, checked};
use lodestone_width::{exact_u16, exact_u32, to_u64, to_usize};
use serde::{Serialize, Serializer};

use crate::core::{Block, Core, lock};
use crate::heap::{Heap, for_each_chunk};
use crate::layout::{ChunkId, ChunkWord, HeapHeader, TABLE_OFFSET, encode_zone};
use crate::owners::plan;
use crate::record::{self, Found};
use crate::table::State;

/// The kind of fault at a place.
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// use lodestone_heap::FindingKind;
///
/// let mut action = heap.action();
/// action.alloc(64)?;
/// action.commit()?;
/// // The caller names the blocks that it reaches: none.
/// let report = heap.check(Some(&mut std::iter::empty()));
/// assert_eq!(report.findings[0].kind, FindingKind::Leak);
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// A copy of the heap header fails its checksum.
    Header,
    /// A lane is damaged, or holds a record although no action commits.
    Lane,
    /// The word that counts zones, or the one at the start of a zone, is damaged.
    Zone,
    /// The word that describes a chunk is damaged or contradicts another.
    Chunk,
    /// A bitmap word of a slab is damaged.
    Bitmap,
    /// The medium and the running heap disagree.
    Disagreement,
    /// An allocated block that nothing reaches.
    Leak,
    /// A block that is reached more than once.
    DoubleOwner,
    /// Something that is reached is not an allocated block.
    Dangling,
    /// An owner keeps more in a block than the block has room for.
    TooSmall,
}

/// How a finding is repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fix {
    None,
    /// Write the other copy of the header here.
    Header,
    /// Make lane `number` idle.
    Lane(u32),
    /// Store this word.
    Word(u64),
    /// Make these blocks of the bitmap word the allocated ones.
    Bits(u64),
    /// Give the chunks that a damaged word takes out of use, its own included, the state that their owners prove.
    Chunks(ChunkId, Vec<Made>),
    /// Free the block.
    Free,
}

/// The new state of one or several chunks that were set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// A chunk that is given out again.
    Free,
    /// A block of so many chunks.
    Extent(u32),
    /// Blocks of this class, with these bits by bitmap word.
    Slab(usize, Vec<u64>),
}

/// One thing that is wrong.
///
/// ```
/// # use lodestone_heap::{Heap, HeapOptions};
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// # let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// let at = action.alloc(64)?;
/// action.commit()?;
/// let report = heap.check(Some(&mut std::iter::empty()));
/// let leak = &report.findings[0];
/// assert!(leak.at == at && leak.is_repairable(), "{leak}");
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeapFinding {
    /// The kind of fault.
    pub kind: FindingKind,
    /// Where it is.
    #[serde(serialize_with = "as_text")]
    pub at: PmAddr,
    /// The finding as text.
    pub finding: String,
    /// Next step for the user.
    pub hint: &'static str,
    #[serde(skip)]
    pub(crate) fix: Fix,
}

pub(crate) fn as_text<S: Serializer>(at: &PmAddr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

impl HeapFinding {
    /// Whether [`Heap::repair`] can repair it.
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        self.fix != Fix::None
    }
}

impl fmt::Display for HeapFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}: {}; {}", self.at, self.finding, self.hint)
    }
}

/// Result of [`Heap::check`].
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// let mut action = heap.action();
/// let at = action.alloc(64)?;
/// action.commit()?;
/// // Nothing reaches the block: it is a leak, which a repair frees.
/// let report = heap.check(Some(&mut std::iter::empty()));
/// assert_eq!((report.blocks, report.findings[0].at), (1, at));
/// assert_eq!(heap.repair(&report)?.repaired.len(), 1);
/// assert!(heap.check(Some(&mut std::iter::empty())).is_clean());
/// # Ok::<(), lodestone_heap::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeapReport {
    /// All faults; empty if there is none.
    pub findings: Vec<HeapFinding>,
    /// Words of metadata that were verified.
    pub words: u64,
    /// Allocated blocks.
    pub blocks: u64,
    /// Addresses that the caller reached; `None` when ownership was not checked.
    pub reached: Option<u64>,
}

impl HeapReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

impl fmt::Display for HeapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        write!(f, "{} words of metadata verified, {} blocks, ", self.words, self.blocks)?;
        match self.reached {
            Some(reached) => write!(f, "{reached} reached, ")?,
            None => f.write_str("ownership not checked, ")?,
        }
        write!(f, "{} findings", self.findings.len())
    }
}

const BACKUP: &str = "restore a backup, or export what is readable into a new pool";
const REWRITE: &str = "repair writes it anew";

impl Heap {
    /// Verifies all metadata. With `reachable`, which lists every block that the heap's user still points to (each
    /// once), it verifies ownership too. Changes nothing.
    ///
    /// [`check_owned`](Self::check_owned) finds more, and more of it can be repaired, because it knows how much of each
    /// block is used.
    #[must_use]
    pub fn check(&self, reachable: Option<&mut dyn Iterator<Item = PmAddr>>) -> HeapReport {
        match reachable {
            Some(reachable) => self.check_with(Some(&mut reachable.map(|at| (at, 0)))),
            None => self.check_with(None),
        }
    }

    /// As [`check`](Self::check), with the number of bytes that the owner of each block keeps in it. The list must be
    /// complete: a [`repair`](Self::repair) of the report frees every block that it lacks.
    ///
    /// The words of chunk tables and bitmaps repeat the content of a complete list. So any damage in them is repairable
    /// as long as the owners do not contradict each other.
    ///
    /// ```
    /// use lodestone_heap::{Heap, HeapOptions};
    /// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let pool = Pool::create(folder.path().join("a.pool"), &options)?;
    /// let heap = Heap::open(&pool, &HeapOptions::default())?;
    /// let mut action = heap.action();
    /// let at = action.alloc(108)?;
    /// action.set(heap.root_word(0), at.to_raw());
    /// action.commit()?;
    /// let report = heap.check_owned(&mut [(at, 108)].into_iter());
    /// assert!(report.is_clean());
    /// # Ok::<(), lodestone_heap::Error>(())
    /// ```
    #[must_use]
    pub fn check_owned(&self, owned: &mut dyn Iterator<Item = (PmAddr, u64)>) -> HeapReport {
        self.check_with(Some(owned))
    }

    fn check_with(&self, owned: Option<&mut dyn Iterator<Item = (PmAddr, u64)>>) -> HeapReport {
        let core = &*self.core;
        let mut check = Check { core, report: HeapReport::default(), lost: HashMap::new(), set_aside: Vec::new() };
        check.headers();
        check.lanes();
        for part in 0..exact_u16(core.bases.len()) {
            let zones = exact_u32((0..).take_while(|&zone| core.tables[to_usize(part)].zone(zone).is_some()).count());
            check.zones_word(part, zones);
            (0..zones).for_each(|zone| check.zone(part, zone));
        }
        check.owners(self, owned);
        check.report
    }

    /// Every range of the pool that holds metadata which [`check`](Self::check) verifies: address and bytes.
    #[must_use]
    pub fn metadata_ranges(&self) -> Vec<(PmAddr, u64)> {
        let core = &*self.core;
        let mut ranges = Vec::new();
        for &(start, _) in &core.bases {
            ranges.extend(HeapHeader::places(start).map(|place| (place.addr(), 64)));
        }
        ranges.extend((0..core.geometry.lanes).map(|lane| (core.geometry.lane(core.bases[0].0, lane), WORD_BYTES)));
        for part in 0..exact_u16(core.bases.len()) {
            ranges.push((core.zones_word(part), WORD_BYTES));
            for zone in (0..).take_while(|&zone| core.tables[to_usize(part)].zone(zone).is_some()) {
                let start = core.zone_addr(part, zone);
                ranges.push((start, WORD_BYTES));
                ranges.push((start.plus(TABLE_OFFSET), u64::from(core.geometry.zone_chunks()) * WORD_BYTES));
            }
        }
        for_each_chunk(core, |id, state| {
            if let State::Slab(class_index) = state {
                let words = core.classes.get(class_index).words;
                ranges.push((core.chunk_addr(id), u64::from(words) * WORD_BYTES));
            }
        });
        ranges
    }
}

struct Check<'c> {
    core: &'c Core,
    report: HeapReport,
    /// Damaged bitmap words: index of the finding.
    lost: HashMap<PmAddr, usize>,
    /// Damaged chunk words and the chunks that are set aside for each.
    set_aside: Vec<SetAside>,
}

/// Chunks that are not allocated because of a damaged word.
struct SetAside {
    /// Index of the finding.
    index: usize,
    first: ChunkId,
    chunks: u32,
    /// Reached blocks there, with the bytes that their owners keep in them; 0: unknown.
    owned: Vec<(PmAddr, u64)>,
}

impl Check<'_> {
    fn add(&mut self, kind: FindingKind, at: PmAddr, finding: impl Into<String>, hint: &'static str, fix: Fix) {
        self.report.findings.push(HeapFinding { kind, at, finding: finding.into(), hint, fix });
    }

    fn headers(&mut self) {
        for (part, &(start, zones_offset)) in self.core.bases.iter().enumerate() {
            let expected = self.core.header.for_part(exact_u16(part), zones_offset);
            for place in HeapHeader::places(start) {
                self.report.words += 8;
                let found = self.core.memory.get(place);
                let finding = if !found.is_intact() {
                    "a copy of the heap header fails its checksum"
                } else if found != expected {
                    "a copy of the heap header verifies, but contradicts the one in use"
                } else {
                    continue;
                };
                self.add(FindingKind::Header, place.addr(), finding, REWRITE, Fix::Header);
            }
        }
    }

    fn lanes(&mut self) {
        let core = self.core;
        for number in 0..core.geometry.lanes {
            // A lane whose lock is held is in use, and its record is not judged.
            let Ok(guard) = core.lanes[to_usize(number)].try_lock() else { continue };
            let lane = core.geometry.lane(core.bases[0].0, number);
            self.report.words += 1;
            let finding = match (record::read(&core.memory, lane, core.geometry.lane_entries()), guard.dead) {
                (Found::Damaged(finding), _) | (_, Some(finding)) => finding,
                (Found::Idle, None) => continue,
                (Found::Record(_) | Found::Torn, None) => "the lane holds a record although nobody commits",
            };
            let finding = format!("lane {number}: {finding}");
            let hint = "repair clears the lane; if a crash had cut an action short there, compare with a backup";
            self.add(FindingKind::Lane, lane, finding, hint, Fix::Lane(number));
        }
    }

    fn zones_word(&mut self, part: u16, zones: u32) {
        let at = self.core.zones_word(part);
        self.report.words += 1;
        let expected = checked::encode(at, u64::from(zones));
        if self.core.memory.load(at) != expected {
            let finding = format!("the word that counts zones is damaged; there are at most {zones}");
            let intact = (0..zones).all(|zone| {
                let start = self.core.zone_addr(part, zone);
                self.core.memory.load(start) == encode_zone(start, zone)
            });
            let (hint, fix) = if intact { (REWRITE, Fix::Word(expected)) } else { (BACKUP, Fix::None) };
            self.add(FindingKind::Zone, at, finding, hint, fix);
        }
    }

    fn zone(&mut self, part: u16, zone: u32) {
        let core = self.core;
        let start = core.zone_addr(part, zone);
        self.report.words += 1;
        let expected = encode_zone(start, zone);
        if core.memory.load(start) != expected {
            let finding = format!("the word of zone {zone} is damaged");
            self.add(FindingKind::Zone, start, finding, REWRITE, Fix::Word(expected));
        }
        let mut covered = 0;
        for slot in 0..core.geometry.zone_chunks() {
            let id = ChunkId { part, index: (zone << core.geometry.zone_shift) + slot };
            let inside = slot < covered;
            if let Some(chunks) = self.chunk(id, slot, inside) {
                covered = slot + chunks;
            }
        }
    }

    /// Verifies one chunk word; returns the length of an extent that starts there.
    fn chunk(&mut self, id: ChunkId, slot: u32, inside: bool) -> Option<u32> {
        let core = self.core;
        let at = core.chunk_word(id);
        let table = slot < core.geometry.table_chunks();
        self.report.words += 1;
        let found = ChunkWord::decode(at, core.memory.load(at));
        let expected = if table { ChunkWord::Table } else { ChunkWord::Free };
        if (table || inside) && found != Some(expected) {
            let finding = format!("the word of chunk {} says {found:?} instead of {expected:?}", id.index);
            self.add(FindingKind::Chunk, at, finding, REWRITE, Fix::Word(expected.encode(at)));
            return None;
        }
        if table {
            return None;
        }
        let state = core.locate(core.chunk_addr(id)).map_or(State::None, |(_, chunk, _)| chunk.state());
        match (found, state) {
            (found, State::Damaged) => {
                let what = found.map_or("fails its checksum".into(), |word| format!("says {word:?}, which cannot be"));
                let finding = format!("the word of chunk {} {what}; its blocks are set aside", id.index);
                let (index, chunks) = (self.report.findings.len(), self.doubtful_chunks(id, slot));
                self.set_aside.push(SetAside { index, first: id, chunks, owned: Vec::new() });
                let hint = "repair makes the chunk what its owners say when the check was told of all of them; else restore a backup";
                // There is nothing after the end of the part.
                let fix = if chunks == 0 { Fix::Word(ChunkWord::Free.encode(at)) } else { Fix::None };
                self.add(FindingKind::Chunk, at, finding, hint, fix);
            }
            // Named with the damaged word before it.
            (Some(ChunkWord::Free), State::Doubtful) => {}
            (None, state) => {
                // It was intact when the heap was opened, so the state in DRAM is right.
                let word = match state {
                    State::Slab(class_index) => ChunkWord::Slab(core.classes.get(class_index).block_bytes),
                    State::Extent(chunks) => ChunkWord::Extent(chunks),
                    _ => ChunkWord::Free,
                };
                let finding = format!("the word of chunk {} fails its checksum", id.index);
                self.add(FindingKind::Chunk, at, finding, REWRITE, Fix::Word(word.encode(at)));
                return if let State::Extent(chunks) = state { Some(chunks) } else { None };
            }
            (Some(ChunkWord::Slab(block_bytes)), State::Slab(class_index))
                if core.classes.get(class_index).block_bytes == block_bytes =>
            {
                self.bitmap(id, class_index);
            }
            (Some(ChunkWord::Extent(chunks)), State::Extent(live)) if chunks == live => return Some(chunks),
            (Some(ChunkWord::Free), State::None) => {}
            (Some(word), _) => {
                let finding = format!("the word of chunk {} says {word:?}, the running heap has {state:?}", id.index);
                self.add(FindingKind::Disagreement, at, finding, BACKUP, Fix::None);
            }
        }
        None
    }

    /// Chunks from a damaged word on that were set aside for it when the heap was opened.
    fn doubtful_chunks(&self, id: ChunkId, slot: u32) -> u32 {
        let core = self.core;
        let usable = lock(&core.chunks).usable(id.part, id.index >> core.geometry.zone_shift);
        let is_doubtful = |&behind: &u32| {
            let at = core.chunk_addr(ChunkId { index: id.index + behind, ..id });
            core.locate(at).is_some_and(|(_, chunk, _)| chunk.state() == State::Doubtful)
        };
        let room = usable.saturating_sub(slot);
        exact_u32((1..room).take_while(is_doubtful).count()) + room.min(1)
    }

    fn bitmap(&mut self, id: ChunkId, class_index: usize) {
        let core = self.core;
        let class = core.classes.get(class_index);
        for word in 0..class.words {
            let at = core.bitmap_word(id, word);
            let bits = &core.slab(id, class_index).bits[to_usize(word)];
            let (live, taken) = (bits.live.load(Ordering::Acquire), bits.taken.load(Ordering::Acquire));
            self.report.words += 1;
            match checked::decode(at, core.memory.load(at)) {
                Some(bits) if bits == live => {}
                Some(bits) if bits & !class.mask(word) == 0 => {
                    let finding = format!("the bitmap says {bits:#x} are allocated, the running heap has {live:#x}");
                    self.add(FindingKind::Disagreement, at, finding, BACKUP, Fix::None);
                }
                // Set aside at open: all taken, none live. Anything else was intact then, and the state in DRAM is
                // right.
                _ if live != 0 || taken & class.mask(word) != class.mask(word) => {
                    let finding = "a bitmap word is damaged";
                    self.add(FindingKind::Bitmap, at, finding, REWRITE, Fix::Word(checked::encode(at, live)));
                }
                _ => {
                    let finding = "a bitmap word is damaged; its blocks are set aside";
                    let hint = "repair writes it anew when the check was told what is reachable; else restore a backup";
                    self.lost.insert(at, self.report.findings.len());
                    self.add(FindingKind::Bitmap, at, finding, hint, Fix::None);
                }
            }
        }
    }

    fn owners(&mut self, heap: &Heap, owned: Option<&mut dyn Iterator<Item = (PmAddr, u64)>>) {
        let mut blocks: HashMap<PmAddr, (u32, u64)> = HashMap::new();
        heap.for_each_block(|at, bytes| {
            blocks.insert(at, (0, bytes));
        });
        self.report.blocks = to_u64(blocks.len());
        let Some(owned) = owned else { return };
        for &index in self.lost.values() {
            self.report.findings[index].fix = Fix::Bits(0);
        }
        let mut reached = 0;
        for (at, bytes) in owned {
            reached += 1;
            if let Some((owners, room)) = blocks.get_mut(&at) {
                *owners += 1;
                let (owners, room) = (*owners, *room);
                if owners == 2 {
                    let finding = "the block is reached twice";
                    self.add(FindingKind::DoubleOwner, at, finding, BACKUP, Fix::None);
                }
                if bytes > room {
                    let finding = format!("an owner keeps {bytes} bytes in a block of {room}");
                    self.add(FindingKind::TooSmall, at, finding, BACKUP, Fix::None);
                }
            } else if !self.find_again(at) && !self.is_set_aside(at, bytes) {
                self.add_dangling(at);
            }
        }
        self.report.reached = Some(reached);
        self.plan_set_aside();
        let mut leaked: Vec<PmAddr> =
            blocks.into_iter().filter(|(_, (owners, _))| *owners == 0).map(|(at, _)| at).collect();
        leaked.sort_unstable();
        for at in leaked {
            self.add(
                FindingKind::Leak,
                at,
                "the block is allocated, but nothing reaches it",
                "repair frees it",
                Fix::Free,
            );
        }
    }

    fn add_dangling(&mut self, at: PmAddr) {
        let finding = "the address is reached, but no allocated block starts there";
        self.add(FindingKind::Dangling, at, finding, BACKUP, Fix::None);
    }

    /// Notes something that is reached in chunks that are set aside.
    fn is_set_aside(&mut self, at: PmAddr, bytes: u64) -> bool {
        let Some((id, _, _)) = self.core.locate(at) else { return false };
        let holds = |aside: &&mut SetAside| {
            let first = aside.first;
            id.part == first.part && (first.index..first.index + aside.chunks).contains(&id.index)
        };
        let Some(aside) = self.set_aside.iter_mut().find(holds) else { return false };
        aside.owned.push((at, bytes));
        true
    }

    /// Plans the repair of all chunks that are set aside.
    fn plan_set_aside(&mut self) {
        for mut aside in std::mem::take(&mut self.set_aside) {
            if aside.chunks == 0 {
                continue;
            }
            aside.owned.sort_unstable();
            match plan(self.core, aside.first, aside.chunks, &aside.owned) {
                Some(made) => self.report.findings[aside.index].fix = Fix::Chunks(aside.first, made),
                None => aside.owned.iter().for_each(|&(at, _)| self.add_dangling(at)),
            }
        }
    }

    /// Notes a reached block whose bitmap word is damaged.
    fn find_again(&mut self, at: PmAddr) -> bool {
        let Block::Small { id, word, mask, .. } = self.core.block(at) else { return false };
        let Some(&index) = self.lost.get(&self.core.bitmap_word(id, word)) else { return false };
        let Fix::Bits(bits) = &mut self.report.findings[index].fix else { return false };
        let fresh = *bits & mask == 0;
        *bits |= mask;
        fresh
    }
}
