//! The places of everything in the blocks of a hash index, byte for byte; `docs/format.md` draws the same map.
//!
//! Three kinds of block below the header: *directory nodes* (an array of checked addresses), *segments* (a header line,
//! then a table of cell lines), and, for byte-string keys, one *record* for each key.

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, MEDIA_BLOCK_BYTES, PmAddr, WORD_BYTES, checked};
use lodestone_width::low_u32;

use crate::anchor::AnchorKind;
use crate::cells::{KeyKind, Shape, TableAt};
use crate::error::{Error, Result};
use crate::kinds::{HASH_STRINGS, HASH_WORDS};
use crate::medium::IndexMemory;

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

    /// The meaning of the anchor's options, or `None` when no index has them.
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
        Self { prefix: word & !0xFF, depth: low_u32(word & 0xFF) }
    }
}

const _: () = assert!(DEPTH_MAX <= 64 - 8, "prefix and depth of a cover share a word");

/// The target of an entry of a directory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A segment.
    Segment(PmAddr),
    /// A node that resolves further bits.
    Node(PmAddr),
}

impl Entry {
    const WHAT: &'static str = "entry of a hash directory";

    /// The word at `at` that names it. Blocks of this size start a line, so eight more bytes tell a node from a
    /// segment.
    pub(crate) fn encode(self, at: PmAddr) -> u64 {
        match self {
            Self::Segment(target) => checked::encode_addr(at, target),
            Self::Node(target) => checked::encode_addr(at, target.plus(WORD_BYTES)),
        }
    }

    /// The entry at `at`; its target is not looked at.
    fn parse(medium: IndexMemory<'_>, at: PmAddr) -> Result<Self> {
        let target = medium.link(at, Self::WHAT, LINE_BYTES)?;
        match target.offset() % LINE_BYTES {
            0 => Ok(Self::Segment(target)),
            WORD_BYTES => Ok(Self::Node(PmAddr::new(target.part(), target.offset() - WORD_BYTES))),
            _ => Err(Self::no_block(medium, at, target)),
        }
    }

    fn no_block(medium: IndexMemory<'_>, at: PmAddr, target: PmAddr) -> Error {
        medium.damaged(at, Self::WHAT, format!("{target} is no place of a block"))
    }

    /// Reads the entry at `at`.
    pub(crate) fn read(medium: IndexMemory<'_>, at: PmAddr, shape: HashShape) -> Result<Self> {
        let entry = Self::parse(medium, at)?;
        let (block, bytes) = match entry {
            Self::Segment(block) => (block, shape.segment_bytes()),
            Self::Node(block) => (block, shape.node_bytes()),
        };
        if block.is_null() || !medium.memory.contains(block, bytes) {
            return Err(Self::no_block(medium, at, block));
        }
        Ok(entry)
    }
}

/// The header of a segment: its cover, and everything that decides how it is read. The anchor says the latter as well,
/// and a segment is believed only where both agree. The checksum begins with the anchor's place: a salvage tells by it
/// which index the segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) cover: Cover,
    /// As [`HashShape::encode`].
    options: u32,
    /// Start value of the hash.
    seed: u64,
}

impl SegmentHeader {
    const WHAT: &'static str = "header of a hash segment";

    /// The header of a segment that covers `cover`.
    pub(crate) fn new(cover: Cover, shape: HashShape, seed: u64) -> Self {
        Self { cover, options: shape.encode(), seed }
    }

    /// The header line of the segment at `at`, of the index whose anchor is at `owner`.
    pub(crate) fn encode(self, owner: PmAddr, at: PmAddr) -> Vec<u8> {
        let crc = checked::encode(at.plus(2 * WORD_BYTES), self.crc(owner));
        let words = [SEGMENT_MAGIC, self.cover.pack(), crc, u64::from(self.options), self.seed, 0, 0, 0];
        words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
    }

    fn crc(self, owner: PmAddr) -> u64 {
        let words = [SEGMENT_MAGIC, self.cover.pack(), u64::from(self.options), self.seed, owner.to_raw()];
        u64::from(words.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes())))
    }

    /// Reads and verifies the header of the segment at `at`, whose line is in the pool.
    fn read(medium: IndexMemory<'_>, at: PmAddr) -> Result<Self> {
        let [magic, cover, _, options, seed] =
            [0, 1, 2, 3, 4].map(|word| medium.memory.load(at.plus(word * WORD_BYTES)));
        let crc = medium.word(at.plus(2 * WORD_BYTES), Self::WHAT)?;
        let header = u32::try_from(options).ok().map(|options| Self { cover: Cover::unpack(cover), options, seed });
        let intact = |header: &Self| {
            magic == SEGMENT_MAGIC
                && crc == header.crc(medium.owner)
                && header.cover.depth <= DEPTH_MAX
                && header.cover == Cover::of(header.cover.prefix, header.cover.depth)
        };
        header.filter(intact).ok_or_else(|| medium.damaged(at, Self::WHAT, "checksum mismatch"))
    }

    /// How this segment is to be read differently from what the anchor says, in words; `None` when it is not.
    fn difference(self, shape: HashShape, seed: u64) -> Option<String> {
        /// Name, first bit and bits of each field of the options.
        const FIELDS: [(&str, u32, u32); 5] = [
            ("kind of keys", 0, 2),
            ("directory bits", 2, 4),
            ("lines of a bucket", 6, 6),
            ("buckets", 12, 10),
            ("stash lines", 22, 10),
        ];
        let (here, there) = (self.options, shape.encode());
        let field = |options: u32, from: u32, bits: u32| options >> from & ((1 << bits) - 1);
        let differs = |&(_, from, bits): &(&str, u32, u32)| field(here, from, bits) != field(there, from, bits);
        if let Some(&(name, from, bits)) = FIELDS.iter().find(|which| differs(which)) {
            let (here, there) = (field(here, from, bits), field(there, from, bits));
            return Some(format!("{name}: {here} here, {there} in the anchor"));
        }
        (self.seed != seed).then(|| format!("seed of the hash: {:#x} here, {seed:#x} in the anchor", self.seed))
    }
}

/// The sizes that the header of the segment at `at` says, if it verifies. For when the anchor is damaged.
pub(crate) fn read_segment_shape(medium: IndexMemory<'_>, at: PmAddr) -> Option<HashShape> {
    HashShape::decode(SegmentHeader::read(medium, at).ok()?.options)
}

/// The cover of the segment at `at`, if its header verifies, whatever the anchor says. For when the anchor is damaged.
pub(crate) fn read_segment_cover(medium: IndexMemory<'_>, at: PmAddr) -> Result<Cover> {
    SegmentHeader::read(medium, at).map(|header| header.cover)
}

/// The cover of the segment at `at`: its header verifies, and the anchor's `shape` and `seed` are its own.
pub(crate) fn read_cover(medium: IndexMemory<'_>, at: PmAddr, shape: HashShape, seed: u64) -> Result<Cover> {
    let header = SegmentHeader::read(medium, at)?;
    match header.difference(shape, seed) {
        None => Ok(header.cover),
        Some(difference) => Err(medium.damaged(at, SegmentHeader::WHAT, difference)),
    }
}

/// Compares the anchor's `shape` and `seed` with the first segment below the node at `root`. So an anchor that says
/// something else is refused before anything is read as it says. Damage on the way is left to the reader that needs the
/// place.
pub(crate) fn compare_first_segment(medium: IndexMemory<'_>, root: PmAddr, shape: HashShape, seed: u64) -> Result<()> {
    let mut node = root;
    // The first entry of a node is where it is in a node of any size, so the way does not depend on the anchor.
    for _ in 0..u64::BITS {
        match Entry::parse(medium, node) {
            Ok(Entry::Node(child)) if medium.memory.contains(child, WORD_BYTES) => node = child,
            Ok(Entry::Segment(at)) if !at.is_null() && medium.memory.contains(at, LINE_BYTES) => {
                let difference = SegmentHeader::read(medium, at).ok().and_then(|found| found.difference(shape, seed));
                return difference.map_or(Ok(()), |text| Err(medium.damaged(at, SegmentHeader::WHAT, text)));
            }
            _ => break,
        }
    }
    Ok(())
}

/// Directory bits that fit the heap's actions: a split sets half a node's entries and three more words, and twice that
/// many leave room for a merge.
pub(crate) fn node_bits_max(heap: &Heap) -> u32 {
    let words = heap.action_words_max().saturating_sub(4).max(2);
    words.ilog2().min(8)
}
