//! Structure changes: a segment without room splits, two sparse neighbours merge. Both replace segments by new ones.
//!
//! 1. The structure locks of the old segments are taken, then their buckets frozen: writers wait, readers go on.
//! 2. All pairs are read; the new segments are built in DRAM, written, and their write-back started.
//! 3. One heap action allocates the new segments, sets the directory's entries (for a single entry: a new node, too)
//!    and frees the old segments. The freed blocks are kept back.
//! 4. The old buckets' locks die: from now on no reader trusts data that it read there.
//! 5. The directory in DRAM names the new segments; waiting writers and readers find them.
//! 6. The freed blocks go back to the heap.
//!
//! Why not split in place, moving half of the pairs out: the moved half would have to be cleared line by line (as many
//! write-backs as a new segment), or be distinguished from the rest at every later insert. And readers would have to be
//! stopped while the headers change. Why 4 before 5: with two live copies a reader of the old one could miss a change
//! of the new.
//!
//! A new segment always has room for its half: each of its buckets receives at most the pairs of the old one. Pairs
//! that a bucket cannot take were in the old stash.

use lodestone_heap::{Action, Freed};
use lodestone_pmem::sync::atomic::Ordering;
use lodestone_pmem::sync::lock;
use lodestone_pmem::{PmAddr, planted};
use lodestone_width::{to_u64, to_usize};

use crate::cells::{Image, Pair, pairs_of};
use crate::error::{Error, Result};
use crate::hash::directory::{Fresh, Segment, Stretch};
use crate::hash::layout::{Cover, DEPTH_MAX, Entry, SegmentHeader};
use crate::hash::map::HashIndex;
use crate::hash::open::write_segment;
use crate::traits::IndexKey;

/// A segment is counted after as many removals that emptied a line as this share of its lines.
const REMOVALS_PER_COUNT: u64 = 8;

/// Segments whose writers wait.
struct Frozen<'d> {
    segments: Vec<(usize, &'d Segment)>,
}

impl<'d> Frozen<'d> {
    /// Freezes `segments`, which are alive and whose structure locks the caller holds.
    fn new(segments: Vec<(usize, &'d Segment)>) -> Self {
        for (_, segment) in &segments {
            for lock in &segment.locks {
                assert!(lock.freeze(), "only the holder of the structure lock ends a segment");
            }
        }
        Self { segments }
    }

    fn thaw(self) {
        self.segments.iter().flat_map(|(_, segment)| &segment.locks).for_each(|lock| lock.thaw());
    }

    fn kill(self) -> Vec<usize> {
        self.segments.iter().flat_map(|(_, segment)| &segment.locks).for_each(|lock| lock.kill());
        self.segments.iter().map(|&(index, _)| index).collect()
    }
}

impl<K: IndexKey + ?Sized> HashIndex<K> {
    /// Splits the segment with this index, unless another thread did it meanwhile: the descriptor may be another
    /// segment's by now.
    #[cold]
    pub(crate) fn split(&self, index: usize, hash: u64) -> Result<()> {
        let segment = self.directory.segment(index);
        let _structure = lock(&segment.structure);
        let cover = segment.cover();
        if segment.is_dead() || !cover.covers(hash) {
            return Ok(());
        }
        if cover.depth == DEPTH_MAX {
            return Err(Error::Crowded { path: self.medium().path.to_owned() });
        }
        let frozen = Frozen::new(vec![(index, segment)]);
        let pairs = self.pairs(segment);
        let has_room = self.replace(frozen, &cover.halves(), self.directory.stretch(cover), pairs)?;
        if has_room {
            return Ok(());
        }
        // Only pairs that are not where their hashes lead need more room than the old segment had.
        Err(self.medium().damaged(segment.at(), "hash segment", "holds pairs that do not fit its halves"))
    }

    fn pairs(&self, segment: &Segment) -> Result<Vec<Pair>> {
        pairs_of(self.shape.table_at(segment.at()), self.medium(), self.shape.kind, self.seed)
    }

    /// Replaces the frozen segments, which hold `pairs`, by segments that cover `covers`; `false` when the pairs do not
    /// fit, and then nothing changed.
    fn replace(
        &self,
        frozen: Frozen<'_>,
        covers: &[Cover],
        stretch: Stretch,
        pairs: Result<Vec<Pair>>,
    ) -> Result<bool> {
        let old: Vec<PmAddr> = frozen.segments.iter().map(|(_, segment)| segment.at()).collect();
        let built = pairs.and_then(|pairs| self.publish(&old, covers, stretch, &pairs));
        let (fresh, child, freed, outcome) = match built {
            Ok(Some(built)) => built,
            other => {
                frozen.thaw();
                return other.map(|_| false);
            }
        };
        let dead = frozen.kill();
        self.directory.replace(stretch, child, &fresh, &dead);
        drop(freed);
        outcome.map(|()| true)
    }

    /// Steps 2 and 3: the new segments, the new node if there is one, and the blocks that were freed.
    #[expect(clippy::type_complexity, reason = "what one action made, taken apart at once")]
    fn publish(
        &self,
        old: &[PmAddr],
        covers: &[Cover],
        stretch: Stretch,
        pairs: &[Pair],
    ) -> Result<Option<(Vec<Fresh>, Option<PmAddr>, Freed<'_>, Result<()>)>> {
        let mut action = self.heap.action();
        let mut fresh = Vec::with_capacity(covers.len());
        for &cover in covers {
            let at = action.alloc(self.shape.segment_bytes())?;
            let covered = pairs.iter().copied().filter(|pair| cover.covers(pair.hash));
            let Some(image) = Image::of(self.shape.table_at(at), covered) else { return Ok(None) };
            write_segment(self.medium(), SegmentHeader::new(cover, self.shape, self.seed), at, &image);
            fresh.push(Fresh { at, cover });
        }
        if planted::active("hash-segment-leaked") {
            // Planted: segments that are allocated before anything names them.
            action.commit()?;
            action = self.heap.action();
        }
        let child = self.set_entries(&mut action, stretch, &fresh)?;
        for &at in old {
            action.free(at)?;
        }
        match action.commit_keeping() {
            // The directory in DRAM follows what is persistent, also when the heap met damage on the way.
            (Some(freed), outcome) => Ok(Some((fresh, child, freed, outcome.map_err(Error::from)))),
            (None, outcome) => outcome.map(|()| None).map_err(Error::from),
        }
    }

    /// Notes in `action` that the entries of `stretch` name `fresh`.
    fn set_entries(&self, action: &mut Action<'_>, stretch: Stretch, fresh: &[Fresh]) -> Result<Option<PmAddr>> {
        let words: Vec<PmAddr> = self.directory.words(stretch).collect();
        let name = |word: PmAddr, half: usize| Entry::Segment(fresh[half].at).encode(word);
        if words.len() >= fresh.len() {
            for (number, &word) in words.iter().enumerate() {
                action.set(word, name(word, number * fresh.len() / words.len()));
            }
            return Ok(None);
        }
        let child = action.alloc(self.shape.node_block_bytes())?;
        let count = self.shape.node_bytes() / 8;
        let words_of_child = (0..count).map(|number| {
            let word = child.plus(8 * number);
            name(word, to_usize(number * to_u64(fresh.len()) / count))
        });
        let bytes: Vec<u8> = words_of_child.flat_map(u64::to_le_bytes).collect();
        // The entry that names the node may not overtake its content: the action's first fence comes between.
        self.heap.memory().write_back(child, &bytes);
        action.set(words[0], Entry::Node(child).encode(words[0]));
        Ok(Some(child))
    }

    /// After a removal left a line empty: now and then the segment is counted. If it and its neighbour are sparse, they
    /// merge. A failure changes nothing and is not reported: a sparse segment is no fault. A fault of the pool shows in
    /// the operation that meets it.
    #[inline]
    pub(crate) fn after_removal(&self, index: usize, hash: u64) {
        let removals = self.directory.segment(index).removals.fetch_add(1, Ordering::Relaxed) + 1;
        if removals >= u64::from(self.shape.table.all_lines()).div_ceil(REMOVALS_PER_COUNT) {
            // The product of a merge may be sparse again.
            while self.try_merge(hash).unwrap_or(false) {}
        }
    }

    #[cold]
    fn try_merge(&self, hash: u64) -> Result<bool> {
        let medium = self.medium();
        let (_, segment) = self.directory.find(medium, hash)?;
        segment.removals.store(0, Ordering::Relaxed);
        let cover = segment.cover();
        if !self.directory.has_buddy(cover) {
            return Ok(false);
        }
        let [low, high] = Cover::of(cover.prefix, cover.depth - 1).halves();
        let (low_index, left) = self.directory.find(medium, low.prefix)?;
        let (high_index, right) = self.directory.find(medium, high.prefix)?;
        if low_index == high_index {
            return Ok(false);
        }
        let (first, second) = if low_index < high_index { (left, right) } else { (right, left) };
        let _first = lock(&first.structure);
        let _second = lock(&second.structure);
        let alive = |segment: &Segment, cover| !segment.is_dead() && segment.cover() == cover;
        if !alive(left, low) || !alive(right, high) || !self.directory.are_siblings(low, high) {
            return Ok(false);
        }
        if self.count_in(left) + self.count_in(right) > self.sparse() {
            return Ok(false);
        }
        let frozen = Frozen::new(vec![(low_index, left), (high_index, right)]);
        let pairs = self.pairs(left).and_then(|mut pairs| {
            pairs.extend(self.pairs(right)?);
            Ok(pairs)
        });
        let union = Cover::of(cover.prefix, cover.depth - 1);
        self.replace(frozen, &[union], self.directory.stretch_with_buddy(cover), pairs)
    }

    /// Pairs of two segments up to which they merge: half of the pairs that one holds, so that the next inserts do not
    /// split it.
    fn sparse(&self) -> usize {
        self.shape.table.pairs_max() / 2
    }
}
