//! Where things stand in the blocks of a hash index, byte for byte; `docs/format.md` draws the same map.
//!
//! Three kinds of block below the header: *directory nodes* (an array of checked addresses), *segments* (a header line,
//! then a table of cell lines), and, for byte-string keys, one *record* for each key.

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, MEDIA_BLOCK_BYTES, PmAddr, WORD_BYTES, checked};

use crate::anchor::AnchorKind;
use crate::cells::{KeyKind, Shape, TableAt};
use crate::error::Result;
use crate::kinds::{HASH_STRINGS, HASH_WORDS};
use crate::medium::Medium;

/// The anchor of a hash index whose keys are words.
const WORDS: AnchorKind = AnchorKind { magic: u64::from_le_bytes(*b"LDSTHSHW"), version: 3, kind: &HASH_WORDS };
/// The anchor of a hash index whose keys are strings.
const STRINGS: AnchorKind = AnchorKind { magic: u64::from_le_bytes(*b"LDSTHSHS"), version: 3, kind: &HASH_STRINGS };

/// The anchor of a hash index with such keys.
pub(crate) const fn hash_anchor(kind: KeyKind) -> &'static AnchorKind {
    match kind {
        KeyKind::Number => &WORDS,
        KeyKind::Bytes => &STRINGS,
    }
}

/// First word of a segment.
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"LDSTOSEG");
/// Most bits of a hash that the directory uses.
pub(crate) const DEPTH_MAX: u32 = 31;

/// Sizes that an index was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashShape {
    pub(crate) kind: KeyKind,
    /// Bits of a hash that one directory node resolves.
    pub(crate) node_bits: u32,
    pub(crate) table: Shape,
}

impl HashShape {
    /// The options in the anchor.
    pub(crate) fn encode(self) -> u32 {
        let Shape { buckets, lines, stash } = self.table;
        assert!(lines < 1 << 6 && buckets < 1 << 10 && stash < 1 << 10, "sizes that the anchor can hold");
        self.kind.code() | self.node_bits << 2 | lines << 6 | buckets << 12 | stash << 22
    }

    /// What the anchor's options say, or `None` when no index has them.
    pub(crate) fn decode(options: u32) -> Option<Self> {
        let kind = [KeyKind::Number, KeyKind::Bytes].into_iter().find(|kind| kind.code() == options & 3)?;
        let (node_bits, lines) = (options >> 2 & 0xF, options >> 6 & 0x3F);
        let table = Shape { buckets: options >> 12 & 0x3FF, lines, stash: options >> 22 };
        let sane = (1..=8).contains(&node_bits) && table.lines > 0 && table.buckets > 0;
        sane.then_some(Self { kind, node_bits, table })
    }

    /// Bytes of a directory node.
    pub(crate) fn node_bytes(self) -> u64 {
        WORD_BYTES << self.node_bits
    }

    /// Bytes of a node's block: at least a line, so that it starts one, which tells a node from a segment ([`Entry`]).
    pub(crate) fn node_block_bytes(self) -> u64 {
        self.node_bytes().max(LINE_BYTES)
    }

    /// Bytes of a segment: header line, table, and what it takes to begin the table with a media block.
    pub(crate) fn segment_bytes(self) -> u64 {
        LINE_BYTES + self.table.bytes() + (MEDIA_BLOCK_BYTES - LINE_BYTES)
    }

    /// The table of the segment at `segment`: it begins with a media block, so that a bucket's block of four lines is
    /// one.
    #[inline]
    pub(crate) fn table_at(self, segment: PmAddr) -> TableAt {
        let first = (segment.offset() + LINE_BYTES).next_multiple_of(MEDIA_BLOCK_BYTES);
        TableAt { first: PmAddr::new(segment.part(), first), shape: self.table }
    }
}

/// The hashes that a segment covers: those that agree with `prefix` in their first `depth` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) prefix: u64,
    pub(crate) depth: u32,
}

impl Cover {
    /// The hashes that agree with `hash` in `depth` bits.
    pub(crate) fn of(hash: u64, depth: u32) -> Self {
        Self { prefix: if depth == 0 { 0 } else { hash >> (64 - depth) << (64 - depth) }, depth }
    }

    /// Whether `hash` is among them.
    #[inline]
    pub(crate) fn covers(self, hash: u64) -> bool {
        self.depth == 0 || (hash ^ self.prefix) >> (64 - self.depth) == 0
    }

    /// The two halves.
    pub(crate) fn halves(self) -> [Self; 2] {
        let depth = self.depth + 1;
        [Self { prefix: self.prefix, depth }, Self { prefix: self.prefix | 1 << (64 - depth), depth }]
    }

    /// In one word.
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        self.prefix | u64::from(self.depth)
    }

    /// From one word.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        Self { prefix: word & !0xFF, depth: (word & 0xFF) as u32 }
    }
}

const _: () = assert!(DEPTH_MAX <= 64 - 8, "prefix and depth of a cover share a word");

/// What an entry of a directory node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A segment.
    Segment(PmAddr),
    /// A node that resolves further bits.
    Node(PmAddr),
}

impl Entry {
    /// The word at `at` that names it. Blocks of this size start a line, so eight more bytes tell a node from a
    /// segment.
    pub(crate) fn encode(self, at: PmAddr) -> u64 {
        match self {
            Self::Segment(target) => checked::encode_addr(at, target),
            Self::Node(target) => checked::encode_addr(at, target.plus(WORD_BYTES)),
        }
    }

    /// Reads the entry at `at`.
    pub(crate) fn read(medium: Medium<'_>, at: PmAddr, shape: HashShape) -> Result<Self> {
        const WHAT: &str = "entry of a hash directory";
        let target = medium.link(at, WHAT, LINE_BYTES)?;
        let (entry, bytes) = match target.offset() % LINE_BYTES {
            0 => (Self::Segment(target), shape.segment_bytes()),
            WORD_BYTES => (Self::Node(PmAddr::new(target.part(), target.offset() - WORD_BYTES)), shape.node_bytes()),
            _ => return Err(medium.damaged(at, WHAT, format!("{target} is no place of a block"))),
        };
        let (Self::Segment(block) | Self::Node(block)) = entry;
        if block.is_null() || !medium.memory.contains(block, bytes) {
            return Err(medium.damaged(at, WHAT, format!("{target} is no place of a block")));
        }
        Ok(entry)
    }
}

/// The header line of a segment of the index whose anchor is at `owner`. It says the index's sizes again, for when the
/// anchor is damaged.
pub(crate) fn encode_segment_header(owner: PmAddr, shape: HashShape, at: PmAddr, cover: Cover) -> Vec<u8> {
    let (crc, options) = (at.plus(2 * WORD_BYTES), at.plus(3 * WORD_BYTES));
    let words = [
        SEGMENT_MAGIC,
        cover.pack(),
        checked::encode(crc, segment_crc(owner, cover)),
        checked::encode(options, u64::from(shape.encode())),
        0,
        0,
        0,
        0,
    ];
    words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
}

fn segment_crc(owner: PmAddr, cover: Cover) -> u64 {
    let bytes: Vec<u8> =
        [SEGMENT_MAGIC, cover.pack(), owner.to_raw()].iter().flat_map(|word| word.to_le_bytes()).collect();
    u64::from(crc32c::crc32c(&bytes))
}

/// The sizes that the header of the segment at `at` says, when that word verifies.
pub(crate) fn read_segment_shape(medium: Medium<'_>, at: PmAddr) -> Option<HashShape> {
    let options = at.plus(3 * WORD_BYTES);
    let payload = checked::decode(options, medium.memory.load(options))?;
    HashShape::decode(u32::try_from(payload).ok()?)
}

/// What the segment at `at` covers, verified.
pub(crate) fn read_cover(medium: Medium<'_>, at: PmAddr) -> Result<Cover> {
    const WHAT: &str = "header of a hash segment";
    let cover = Cover::unpack(medium.memory.load(at.plus(WORD_BYTES)));
    let intact = medium.memory.load(at) == SEGMENT_MAGIC
        && medium.word(at.plus(2 * WORD_BYTES), WHAT)? == segment_crc(medium.owner, cover)
        && cover.depth <= DEPTH_MAX
        && cover == Cover::of(cover.prefix, cover.depth);
    if intact { Ok(cover) } else { Err(medium.damaged(at, WHAT, "checksum mismatch")) }
}

/// Directory bits that fit the heap's actions: a split sets half a node's entries and three more words, and twice that
/// many leave room for a merge.
pub(crate) fn node_bits_max(heap: &Heap) -> u32 {
    let words = heap.action_words_max().saturating_sub(4).max(2);
    words.ilog2().min(8)
}
