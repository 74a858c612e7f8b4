//! The directory of slabs: which areas of the heap have cells, and of which shape.
//!
//! It is there twice: two chains of blocks with the same entries. Each action that changes it changes both, so no crash
//! leaves them different. An entry or a link that fails its checksum is read in the other chain, and written again by
//! an open for writing. Unused entries have a checksum too: a lost line is not taken for the end.
//!
//! Invariant: both chains have as many blocks, and equal entries at equal places.

use std::collections::{BTreeMap, BTreeSet};

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES, checked};
use lodestone_txn::{NEVER_WRITTEN, SLOT_HEADER_WORDS, Which};
use lodestone_width::{exact_u32, to_usize};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::shape::{CellKind, Shape};

/// Chains of blocks.
const CHAINS: usize = 2;
const ENTRIES_OFFSET: u64 = 16;
const ENTRY_BYTES: u64 = 16;
const KIND_BITS: u32 = 2;
const LINES_BITS: u32 = 23;

/// A slab: cells of one shape, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// The first cell.
    pub at: PmAddr,
    /// Bytes of all cells.
    pub bytes: u64,
    /// The shape of each.
    pub shape: Shape,
}

impl Slab {
    /// All cells, by address.
    pub fn cells(&self) -> impl DoubleEndedIterator<Item = PmAddr> + use<> {
        let (at, bytes) = (self.at, u64::from(self.shape.cell_bytes));
        (0..self.bytes / bytes).map(move |index| at.plus(index * bytes))
    }

    /// The two words of its entry at `at`.
    fn entry(&self, at: PmAddr) -> [u64; 2] {
        [checked::encode_addr(at, self.at), self.encode(at.plus(WORD_BYTES))]
    }

    fn encode(&self, at: PmAddr) -> u64 {
        let kind = match self.shape.kind {
            CellKind::Pair => 1,
            CellKind::Single => 2,
            CellKind::Spill => 3,
        };
        let lines = u64::from(self.shape.cell_bytes) / LINE_BYTES;
        checked::encode(at, kind | (lines << KIND_BITS) | ((self.bytes / LINE_BYTES) << (KIND_BITS + LINES_BITS)))
    }

    fn decode(at: PmAddr, payload: u64) -> Option<Self> {
        let kind = match payload & 3 {
            1 => CellKind::Pair,
            2 => CellKind::Single,
            3 => CellKind::Spill,
            _ => return None,
        };
        let lines = (payload >> KIND_BITS) & ((1 << LINES_BITS) - 1);
        let bytes = (payload >> (KIND_BITS + LINES_BITS)) * LINE_BYTES;
        let cell_bytes = u32::try_from(lines * LINE_BYTES).ok()?;
        let slab = Self { at, bytes, shape: Shape { kind, cell_bytes } };
        (cell_bytes > 0 && bytes >= u64::from(cell_bytes)).then_some(slab)
    }
}

/// Adds an area to those that are taken, unless the two have a byte in common.
fn claim(taken: &mut BTreeMap<PmAddr, u64>, at: PmAddr, bytes: u64) -> bool {
    let before = taken.range(..=at).next_back();
    let behind = taken.range(at..).next();
    if before.into_iter().chain(behind).any(|(&other, &other_bytes)| overlap((at, bytes), (other, other_bytes))) {
        return false;
    }
    taken.insert(at, bytes);
    true
}

/// Fills a new slab with cells that were never used and flushes it. The action that makes the slab reachable fences.
/// A slab of spill blocks becomes zero.
fn write_cells(memory: &Memory, at: PmAddr, bytes: u64, shape: Shape) {
    const STEP_BYTES: u64 = 4096;
    let cell_bytes = u64::from(shape.cell_bytes);
    // Whole cells, or pieces of one.
    let image_bytes = cell_bytes.max(STEP_BYTES / cell_bytes * cell_bytes);
    let mut image = vec![0_u64; to_usize(image_bytes / WORD_BYTES)];
    if shape.kind != CellKind::Spill {
        for cell in image.chunks_exact_mut(to_usize(cell_bytes / WORD_BYTES)) {
            for which in [Which::First, Which::Second] {
                let header = to_usize(u64::from(shape.slot_offset(which)) / WORD_BYTES);
                cell[header..header + SLOT_HEADER_WORDS].copy_from_slice(&NEVER_WRITTEN);
            }
        }
    }
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(image_bytes);
        // Before the fence of the action: a cell that can be reached says what its slots are, whatever was there.
        memory.write_back(at.plus(done), &image.as_bytes()[..to_usize(step)]);
        done += step;
    }
}

/// The two chains of blocks of an opened directory.
///
/// Thread safety: a change needs the directory for itself, by `&mut`.
#[derive(Debug)]
pub struct Directory {
    /// A block of each chain, for each place in the chains.
    blocks: Vec<[PmAddr; CHAINS]>,
    /// Entries that the last blocks have in use.
    used: u64,
    /// Bytes of a block.
    bytes: u64,
    /// Words that the open found damaged, and the right ones.
    damaged: Vec<(PmAddr, u64)>,
}

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Unused,
    Used(Slab),
}

fn unused_entry(at: PmAddr) -> [u64; 2] {
    [checked::encode_addr(at, PmAddr::NULL), checked::encode(at.plus(WORD_BYTES), 0)]
}

/// Fills a new directory block of `bytes` bytes with links to nothing and unused entries, and flushes it. The action
/// that makes the block reachable fences.
fn write_block(memory: &Memory, block: PmAddr, bytes: u64) {
    let mut words = vec![0; to_usize(bytes / WORD_BYTES)];
    for (number, pair) in (0..).zip(words.chunks_exact_mut(2)) {
        let at = block.plus(number * ENTRY_BYTES);
        let [first, second] = [at, at.plus(WORD_BYTES)].map(|link| checked::encode_addr(link, PmAddr::NULL));
        pair.copy_from_slice(&if number == 0 { [first, second] } else { unused_entry(at) });
    }
    // Before the fence of the action: a link never leads to a block with other content.
    memory.write_back(block, words.as_bytes());
}

/// Reads the directory, and notes what must be written to make both chains equal.
struct Reader<'r> {
    heap: &'r Heap,
    memory: &'r Memory,
    bytes: u64,
    damaged: Vec<(PmAddr, u64)>,
}

impl Reader<'_> {
    fn error(&self, at: PmAddr, finding: &str) -> Error {
        let path = self.heap.pool().path().to_owned();
        Error::Damaged { path, what: "directory of slabs", at, finding: finding.into() }
    }

    /// Notes the words of `right` that are not at `at`.
    fn expect(&mut self, at: PmAddr, right: &[u64]) {
        for (number, &word) in (0..).zip(right) {
            let at = at.plus(number * WORD_BYTES);
            if self.memory.load(at) != word {
                self.damaged.push((at, word));
            }
        }
    }

    fn entry_at(&self, at: PmAddr) -> Option<Entry> {
        let (start, sizes) = (self.memory.load(at), self.memory.load(at.plus(WORD_BYTES)));
        let (start, sizes) = checked::decode_addr(at, start).zip(checked::decode(at.plus(WORD_BYTES), sizes))?;
        if start.is_null() {
            return (sizes == 0).then_some(Entry::Unused);
        }
        let slab = Slab::decode(start, sizes)?;
        let is_inside = self.memory.contains(slab.at, slab.bytes) && slab.at.offset().is_multiple_of(LINE_BYTES);
        is_inside.then_some(Entry::Used(slab))
    }

    /// The entry number `index` of a block of each chain.
    fn entry(&mut self, blocks: [PmAddr; CHAINS], index: u64) -> Result<Entry> {
        let places = blocks.map(|block| block.plus(ENTRIES_OFFSET + index * ENTRY_BYTES));
        let entry = match places.map(|at| self.entry_at(at)) {
            [Some(first), Some(second)] if first != second => {
                return Err(self.error(places[0], "the two copies of an entry differ, and both have a right checksum"));
            }
            [Some(entry), _] | [None, Some(entry)] => entry,
            [None, None] => {
                let finding = "both copies of an entry fail their checksums or lead outside";
                return Err(self.error(places[0], finding));
            }
        };
        for at in places {
            self.expect(at, &if let Entry::Used(slab) = entry { slab.entry(at) } else { unused_entry(at) });
        }
        Ok(entry)
    }

    /// The next block of each chain. Each block has a link for each chain: first that for its own.
    fn next(&mut self, blocks: [PmAddr; CHAINS]) -> Result<Option<[PmAddr; CHAINS]>> {
        let mut next = [PmAddr::NULL; CHAINS];
        for chain in 0..CHAINS {
            let links = [blocks[chain], blocks[1 - chain].plus(WORD_BYTES)];
            let found = links.map(|at| checked::decode_addr(at, self.memory.load(at)));
            let mut known = found.into_iter().flatten();
            next[chain] = match (known.next(), known.next()) {
                (Some(first), Some(second)) if first != second => {
                    return Err(self.error(links[0], "the two copies of a link differ, and both have a right checksum"));
                }
                (Some(link), _) => link,
                (None, _) => return Err(self.error(links[0], "both copies of a link fail their checksums")),
            };
            for at in links {
                self.expect(at, &[checked::encode_addr(at, next[chain])]);
            }
        }
        let is_block = |at: PmAddr| self.memory.contains(at, self.bytes) && at.offset().is_multiple_of(LINE_BYTES);
        match next.map(PmAddr::is_null) {
            [true, true] => Ok(None),
            [false, false] if next.into_iter().all(is_block) => Ok(Some(next)),
            _ => Err(self.error(blocks[0], "a link leads outside, or one chain is longer than the other")),
        }
    }
}

impl Directory {
    /// Makes an empty directory of blocks of `bytes` bytes, as part of `action`. Returns the first block of each chain,
    /// which the action must also make reachable. It is flushed, not fenced: the action fences.
    ///
    /// # Errors
    /// Those of the heap.
    pub fn make(heap: &Heap, action: &mut Action<'_>, bytes: u64) -> Result<[PmAddr; CHAINS]> {
        let first = [action.alloc(bytes)?, action.alloc(bytes)?];
        first.into_iter().for_each(|block| write_block(heap.memory(), block, bytes));
        Ok(first)
    }

    /// Reads the directory that begins with these blocks of `bytes` bytes, and its slabs. Nothing is changed. `taken`:
    /// areas that are of other things of the same owner, with those blocks.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn read(
        heap: &Heap,
        first: [PmAddr; CHAINS],
        bytes: u64,
        taken: impl IntoIterator<Item = (PmAddr, u64)>,
    ) -> Result<(Self, Vec<Slab>)> {
        let mut reader = Reader { heap, memory: heap.memory(), bytes, damaged: Vec::new() };
        // A directory without damage names its blocks once, and areas without a common byte.
        let mut taken: BTreeMap<PmAddr, u64> = taken.into_iter().collect();
        let (mut directory, mut slabs) =
            (Self { blocks: vec![first], used: 0, bytes, damaged: Vec::new() }, Vec::new());
        loop {
            let blocks = directory.last();
            directory.used = 0;
            for index in 0..directory.entries_per_block() {
                let Entry::Used(slab) = reader.entry(blocks, index)? else { continue };
                let at = blocks[0].plus(ENTRIES_OFFSET + index * ENTRY_BYTES);
                if index != directory.used {
                    return Err(reader.error(at, "an entry after an unused one"));
                }
                if !claim(&mut taken, slab.at, slab.bytes) {
                    return Err(reader.error(at, "a slab overlaps another one, or other blocks of its owner"));
                }
                slabs.push(slab);
                directory.used += 1;
            }
            let Some(next) = reader.next(blocks)? else { break };
            if !next.into_iter().all(|block| claim(&mut taken, block, bytes)) {
                return Err(reader.error(blocks[0], "a link leads in a circle, or into something else"));
            }
            directory.blocks.push(next);
        }
        directory.damaged = reader.damaged;
        Ok((directory, slabs))
    }

    fn last(&self) -> [PmAddr; CHAINS] {
        self.blocks[self.blocks.len() - 1]
    }

    fn entries_per_block(&self) -> u64 {
        (self.bytes - ENTRIES_OFFSET) / ENTRY_BYTES
    }

    /// Lines of one chain that the open found damaged. The other chain was used.
    #[must_use]
    pub fn damaged_lines(&self) -> Vec<PmAddr> {
        let line = |at: &PmAddr| PmAddr::new(at.part(), at.offset() / LINE_BYTES * LINE_BYTES);
        let lines: BTreeSet<PmAddr> = self.damaged.iter().map(|(at, _)| line(at)).collect();
        lines.into_iter().collect()
    }

    /// Makes both chains equal again, and flushes what it writes. Returns how many lines were damaged.
    pub fn heal(&mut self, memory: &Memory) -> u32 {
        let lines = self.damaged_lines();
        for (at, word) in std::mem::take(&mut self.damaged) {
            memory.store(at, word);
            // Each word is whole in one place, and that place may be damaged next.
            memory.flush(at, WORD_BYTES);
        }
        exact_u32(lines.len())
    }

    /// Blocks of the heap that the directory takes, the first of each chain before all others.
    pub fn blocks(&self) -> impl Iterator<Item = PmAddr> + '_ {
        self.blocks.iter().flatten().copied()
    }

    /// Makes a slab of about `wanted_bytes` bytes, at least one cell, and its entry: together or not at all. On return
    /// both are persistent. The slots of its cells say that they were never written; a slab of spill blocks is zero.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; those of the heap, a full one among them.
    pub fn add(&mut self, heap: &Heap, shape: Shape, wanted_bytes: u64) -> Result<Slab> {
        let cell_bytes = u64::from(shape.cell_bytes);
        if cell_bytes > heap.block_bytes_max() {
            return Err(Error::TooLarge { bytes: cell_bytes, limit_bytes: heap.block_bytes_max() });
        }
        let bytes = wanted_bytes.min(heap.block_bytes_max()).max(cell_bytes) / cell_bytes * cell_bytes;
        if self.used == self.entries_per_block() {
            self.add_blocks(heap)?;
        }
        let mut action = heap.action();
        let slab = Slab { at: action.alloc(bytes)?, bytes, shape };
        write_cells(heap.memory(), slab.at, bytes, shape);
        for block in self.last() {
            let place = block.plus(ENTRIES_OFFSET + self.used * ENTRY_BYTES);
            for (word_at, word) in [place, place.plus(WORD_BYTES)].into_iter().zip(slab.entry(place)) {
                action.set(word_at, word);
            }
        }
        action.commit()?;
        self.used += 1;
        Ok(slab)
    }

    /// Adds an empty block to each chain. It is an action of its own: the record of one that also adds the slab would
    /// be longer than the smallest lane of a heap.
    fn add_blocks(&mut self, heap: &Heap) -> Result<()> {
        let last = self.last();
        let mut action = heap.action();
        let next = [action.alloc(self.bytes)?, action.alloc(self.bytes)?];
        for chain in 0..CHAINS {
            write_block(heap.memory(), next[chain], self.bytes);
            let other = last[1 - chain].plus(WORD_BYTES);
            for link in [last[chain], other] {
                action.set(link, checked::encode_addr(link, next[chain]));
            }
        }
        action.commit()?;
        self.blocks.push(next);
        self.used = 0;
        Ok(())
    }
}

/// Whether two areas inside the pool have a byte in common.
#[must_use]
pub fn overlap(left: (PmAddr, u64), right: (PmAddr, u64)) -> bool {
    let ((left, left_bytes), (right, right_bytes)) = (left, right);
    left.part() == right.part()
        && left.offset() < right.offset() + right_bytes
        && right.offset() < left.offset() + left_bytes
}
