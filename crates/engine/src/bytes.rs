//! Bytes that threads share: keys and payloads.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};

use lodestone_blocks::Block;
use lodestone_width::{exact_u32, to_usize};

/// Bytes of a number before the bytes.
const TAG_BYTES: usize = 8;

/// Bytes of a key or a payload. The rows of a page that was read share one block of memory: it is free when the last of
/// them is.
#[derive(Clone)]
pub struct Bytes {
    block: Block,
    begin: u32,
    end: u32,
}

impl Bytes {
    /// A part of `block`.
    ///
    /// # Panics
    /// If the block ends before that, or is longer than 4 GiB.
    pub fn part(block: &Block, part: Range<usize>) -> Self {
        assert!(part.start <= part.end && part.end <= block.len(), "{part:?} of {}", block.len());
        Self { block: block.clone(), begin: exact_u32(part.start), end: exact_u32(part.end) }
    }

    /// A copy of `bytes` with a number before it, which no reader of the bytes sees.
    pub fn tagged(tag: u64, bytes: &[u8]) -> Self {
        let block = Block::of_parts(TAG_BYTES + bytes.len(), [&tag.to_le_bytes()[..], bytes]);
        Self::part(&block, TAG_BYTES..block.len())
    }

    /// The number of [`tagged`](Self::tagged) bytes; of others it means nothing.
    pub fn tag(&self) -> u64 {
        self.block.first_chunk().map_or(0, |tag| u64::from_le_bytes(*tag))
    }

    /// Whether it is in memory of a cache that is to go back to the allocator: see [`Block::is_evacuating`].
    pub fn is_evacuating(&self) -> bool {
        self.block.is_evacuating()
    }

    /// Bytes of memory that it takes: of a block that others share, as many as each of the others.
    ///
    /// A block of which it has more than half is its own: others that have it are copies that a reader or a checkpoint
    /// holds for a while.
    pub fn taken(&self) -> usize {
        let is_own = to_usize(self.end - self.begin) > self.block.len() / 2;
        self.block.taken() / if is_own { 1 } else { self.block.owners() }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.block[to_usize(self.begin)..to_usize(self.end)]
    }
}

impl From<Block> for Bytes {
    fn from(block: Block) -> Self {
        let end = exact_u32(block.len());
        Self { block, begin: 0, end }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Block::new(bytes).into()
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Block::new(&bytes).into()
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        Block::new(&bytes).into()
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Block::default().into()
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl PartialOrd for Bytes {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Bytes {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

/// As that of the slice, for lookups with one.
impl Hash for Bytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn parts_are_equal_to_copies_of_them() {
        let block = Block::new(b"alicebob");
        let (alice, bob) = (Bytes::part(&block, 0..5), Bytes::part(&block, 5..8));
        assert_eq!((&*alice, &*bob), (&b"alice"[..], &b"bob"[..]));
        // Who has most of a block has all of it, whatever others hold it.
        assert_eq!((alice.taken(), bob.taken(), block.owners()), (block.taken(), block.taken() / 3, 3));
        let copies = [Bytes::from(b"alice".to_vec()), Bytes::from(*b"bob")];
        assert_eq!([alice.clone(), bob.clone()], copies);
        assert!(alice < bob && Bytes::default() < alice && Bytes::default().is_empty());
        let (tree, hash) = (BTreeMap::from([(alice.clone(), 1)]), HashMap::from([(bob, 2)]));
        assert_eq!((tree.get(&b"alice"[..]), hash.get(&b"bob"[..])), (Some(&1), Some(&2)));
        assert_eq!(format!("{alice:?}"), "b\"alice\"");
    }

    #[test]
    fn a_tag_is_no_part_of_the_bytes() {
        let row = Bytes::tagged(u64::MAX - 7, b"alice");
        assert_eq!((&*row, row.tag(), row.clone().tag()), (&b"alice"[..], u64::MAX - 7, u64::MAX - 7));
        assert_eq!(row, Bytes::from(b"alice".to_vec()));
    }

    #[test]
    #[should_panic(expected = "of 3")]
    fn a_part_beyond_the_block_is_refused() {
        Bytes::part(&Block::new(b"bob"), 1..4);
    }
}
