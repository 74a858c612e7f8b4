//! The inner directory: which leaf covers a key. In DRAM only; `open` rebuilds it from the leaves' lower bounds.
//!
//! A sorted list of leaves in chunks of at most [`CHUNK_LEAVES`]. So a structure change moves at most one chunk's
//! pointers (and once in [`CHUNK_LEAVES`] / 2 changes the list of chunks). The directory keeps with each leaf the first
//! eight bytes of its lower bound as a number. A search compares numbers and follows a pointer only where they are
//! equal.
//!
//! Invariant: the first leaf's lower bound is the empty key, so every key is covered; bounds ascend strictly.

use std::sync::Arc;

use lodestone_width::to_u64;

use crate::leaf::Leaf;

/// Most leaves in a chunk.
const CHUNK_LEAVES: usize = if cfg!(test) { 4 } else { 256 };

/// A leaf as the directory sees it.
pub(crate) trait Bounded {
    /// Its lower bound, which never changes.
    fn low(&self) -> &[u8];
}

impl Bounded for Leaf {
    fn low(&self) -> &[u8] {
        &self.low
    }
}

/// Leaves in ascending order of their lower bounds.
pub(crate) struct Directory<L = Leaf> {
    /// Of each chunk the first prefix, so that a search touches one chunk only.
    heads: Vec<u64>,
    chunks: Vec<Chunk<L>>,
}

struct Chunk<L> {
    prefixes: Vec<u64>,
    leaves: Vec<Arc<L>>,
}

/// The first eight bytes of `key` as a number that orders as they do, filled up with zeroes.
#[inline]
fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

impl<L: Bounded> Chunk<L> {
    fn new() -> Self {
        Self { prefixes: Vec::with_capacity(CHUNK_LEAVES), leaves: Vec::with_capacity(CHUNK_LEAVES) }
    }

    fn push(&mut self, leaf: Arc<L>) {
        self.prefixes.push(prefix_of(leaf.low()));
        self.leaves.push(leaf);
    }
}

/// Number of leading positions for which `is_left` holds. Where a prefix differs from `prefix`, the prefixes decide.
#[inline]
fn rank(prefixes: &[u64], prefix: u64, is_left: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, prefixes.len());
    while low < high {
        let middle = low.midpoint(high);
        let found = prefixes[middle];
        if found < prefix || (found == prefix && is_left(middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl<L: Bounded> Directory<L> {
    /// A directory of `leaves`, which ascend strictly and start with the empty bound.
    pub(crate) fn new(leaves: impl IntoIterator<Item = Arc<L>>) -> Self {
        let mut chunks: Vec<Chunk<L>> = Vec::new();
        for leaf in leaves {
            match chunks.last_mut() {
                // Three quarters full: room for the first structure changes.
                Some(chunk) if chunk.leaves.len() < CHUNK_LEAVES / 4 * 3 => chunk.push(leaf),
                _ => {
                    let mut chunk = Chunk::new();
                    chunk.push(leaf);
                    chunks.push(chunk);
                }
            }
        }
        let heads = chunks.iter().map(|chunk| chunk.prefixes[0]).collect();
        assert!(chunks.first().is_some_and(|c| c.leaves[0].low().is_empty()), "the first leaf covers the empty key");
        Self { heads, chunks }
    }

    /// Position of the last leaf that is at most `key` (below it when `strict`).
    #[inline]
    fn position(&self, key: &[u8], strict: bool) -> Option<(usize, usize)> {
        let prefix = prefix_of(key);
        let is_left = |leaf: &L| if strict { *leaf.low() < *key } else { *leaf.low() <= *key };
        let position = rank(&self.heads, prefix, |at| is_left(&self.chunks[at].leaves[0])).checked_sub(1)?;
        let chunk = &self.chunks[position];
        Some((position, rank(&chunk.prefixes, prefix, |at| is_left(&chunk.leaves[at])) - 1))
    }

    /// The leaf that covers `key`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> &Arc<L> {
        // The first bound is the empty key, so there always is one.
        let (chunk, index) = self.position(key, false).unwrap_or((0, 0));
        &self.chunks[chunk].leaves[index]
    }

    /// The last leaf whose lower bound is below `key`: the neighbour before the leaf that starts at `key`.
    pub(crate) fn find_before(&self, key: &[u8]) -> Option<&Arc<L>> {
        self.position(key, true).map(|(chunk, index)| &self.chunks[chunk].leaves[index])
    }

    /// The last leaf.
    pub(crate) fn last(&self) -> &Arc<L> {
        let chunk = &self.chunks[self.chunks.len() - 1];
        &chunk.leaves[chunk.leaves.len() - 1]
    }

    /// Adds `leaf`, whose bound is new and not empty.
    pub(crate) fn insert(&mut self, leaf: Arc<L>) {
        let (position, index) = self.position(leaf.low(), false).unwrap_or((0, 0));
        let chunk = &mut self.chunks[position];
        chunk.prefixes.insert(index + 1, prefix_of(leaf.low()));
        chunk.leaves.insert(index + 1, leaf);
        if chunk.leaves.len() >= CHUNK_LEAVES {
            let mut right = Chunk::new();
            right.prefixes.extend(chunk.prefixes.drain(CHUNK_LEAVES / 2..));
            right.leaves.extend(chunk.leaves.drain(CHUNK_LEAVES / 2..));
            self.heads.insert(position + 1, right.prefixes[0]);
            self.chunks.insert(position + 1, right);
        }
    }

    /// Removes the leaf whose bound is `low`, which is not empty.
    pub(crate) fn remove(&mut self, low: &[u8]) {
        let Some((position, index)) = self.position(low, false) else { return };
        let chunk = &mut self.chunks[position];
        assert!(*chunk.leaves[index].low() == *low && !low.is_empty(), "an unlinked leaf stands in the directory");
        chunk.prefixes.remove(index);
        chunk.leaves.remove(index);
        if let Some(&head) = chunk.prefixes.first() {
            self.heads[position] = head;
        } else {
            self.heads.remove(position);
            self.chunks.remove(position);
        }
    }

    /// All leaves, ascending.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Arc<L>> {
        self.chunks.iter().flat_map(|chunk| &chunk.leaves)
    }

    /// Number of leaves.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.leaves.len()).sum()
    }

    /// Bytes of DRAM that the directory and its leaves take.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let of_chunk = |chunk: &Chunk<L>| {
            let bounds: usize = chunk.leaves.iter().map(|leaf| leaf.low().len()).sum();
            // Each bound exists twice: as a leaf's lower one and as its neighbour's upper one. Each leaf has two
            // counts.
            size_of::<Chunk<L>>() + CHUNK_LEAVES * 16 + chunk.leaves.len() * (size_of::<L>() + 16) + 2 * bounds
        };
        to_u64(self.chunks.iter().map(of_chunk).sum::<usize>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lodestone_pmem::PmAddr;

    use super::*;
    use crate::layout::LeafAt;

    fn leaf(low: &[u8]) -> Arc<Leaf> {
        Arc::new(Leaf::unloaded(LeafAt(PmAddr::new(0, 64)), 4, low.into(), PmAddr::NULL, None))
    }

    #[test]
    fn finds_what_a_sorted_set_finds_through_inserts_and_removals() {
        let mut directory = Directory::new([leaf(b"")]);
        let mut model = BTreeSet::from([Vec::new()]);
        let mut seed = 7_u64;
        for step in 0..4000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (seed >> 33) % 300;
            // Shared prefixes longer than eight bytes, and keys of other lengths.
            let key = if number.is_multiple_of(3) {
                number.to_be_bytes().to_vec()
            } else {
                format!("key-with-prefix-{number}").into_bytes()
            };
            if model.contains(&key) && step % 2 == 0 {
                model.remove(&key);
                directory.remove(&key);
            } else if model.insert(key.clone()) {
                directory.insert(leaf(&key));
            }
            assert_eq!(directory.len(), model.len());
            let probe = (seed >> 20).to_be_bytes().to_vec();
            for probe in [probe, key] {
                let expected = model.range(..=probe.clone()).next_back().map(|k| &k[..]);
                assert_eq!(Some(&directory.find(&probe).low[..]), expected);
                let before = model.range(..probe.clone()).next_back().map(|k| &k[..]);
                assert_eq!(directory.find_before(&probe).map(|l| &l.low[..]), before);
            }
            assert_eq!(Some(&directory.last().low[..]), model.last().map(|k| &k[..]));
        }
    }
}
