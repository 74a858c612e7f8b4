//! The heap area of a part, byte for byte. `docs/format.md` draws the same map.
//!
//! ```text
//! heap area:  | header page | lanes (part 0 only) | zone 0 | zone 1 | ...
//! zone:       | zone word, chunk table (whole chunks) | chunk | chunk | ...
//! slab chunk: | bitmap words, filled up to a line | block | block | ...
//! extent:     whole chunks, no header inside
//! ```
//!
//! Every word of metadata verifies itself. The header line has a CRC-32C. Zone words, chunk words and bitmap words are
//! checked words ([`lodestone_pmem::checked`]). A chunk word has the state of its chunk. An extent has one such word,
//! in its first chunk, with its length. The words of its other chunks stay "free".
//!
//! Invariant: chunk and zone sizes are powers of two, so shifts take an address apart.

use lodestone_pmem::{LINE_BYTES, PmAddr, PmPtr, WORD_BYTES, checked};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First eight bytes of a heap area.
pub const HEAP_MAGIC: [u8; 8] = *b"LDSTHEAP";
/// Version of the heap format that this code writes, and the newest it reads.
pub const HEAP_VERSION: u32 = 1;
/// Bytes of the header page; lanes or zones follow.
pub const HEADER_BYTES: u64 = 4096;
/// Offset of the second copy of the header line inside the header page: another media block.
pub const HEADER_COPY_OFFSET: u64 = 2048;
/// Offset of the root words inside the header page.
pub const ROOT_WORDS_OFFSET: u64 = 1024;
/// Number of root words: plain words of the heap's user, zero in a fresh heap.
pub const ROOT_WORDS: u64 = 64;
/// Offset of the zones word inside the header page: a checked word, the number of formatted zones.
pub const ZONES_WORD_OFFSET: u64 = ROOT_WORDS_OFFSET + ROOT_WORDS * WORD_BYTES;
/// Blocks per bitmap word: the payload bits of a checked word.
pub const BLOCKS_PER_WORD: u64 = 48;
/// Offset of the chunk table inside a zone: the zone word has the line before it.
pub const TABLE_OFFSET: u64 = LINE_BYTES;
/// Tag in the zone word, above the zone number.
const ZONE_TAG: u64 = 0x5A4F << 32;

/// The header of a part's heap area: one line, written twice when the heap is formatted and never again.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct HeapHeader {
    /// [`HEAP_MAGIC`].
    pub magic: [u8; 8],
    /// [`HEAP_VERSION`] of the writer.
    pub version: u32,
    /// Number of this part.
    pub part: u32,
    /// Number of lanes; 0 in all parts but the first.
    pub lanes: u32,
    /// Bytes of a lane.
    pub lane_bytes: u32,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Chunks in a zone, its table included.
    pub zone_chunks: u32,
    /// Offset of zone 0 in the part.
    pub zones_offset: u64,
    /// Life of the pool that formatted the heap.
    pub boot: u64,
    /// Zero.
    pub reserved: u64,
    /// Zero.
    pub padding: u32,
    /// CRC-32C of all bytes before it.
    pub crc: u32,
}

const _: () = assert!(to_u64(size_of::<HeapHeader>()) == LINE_BYTES, "the header fills one line: it persists in order");

impl HeapHeader {
    /// CRC-32C of all but the last four bytes.
    pub fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }

    /// Whether this is an intact header.
    pub fn is_intact(&self) -> bool {
        self.magic == HEAP_MAGIC && self.crc == self.checksum()
    }

    /// The header of `part`, whose zone 0 is at `zones_offset`. `self` is the header of part 0.
    pub fn for_part(&self, part: u16, zones_offset: u64) -> Self {
        let mut header = Self { part: u32::from(part), zones_offset, ..*self };
        header.crc = header.checksum();
        header
    }

    /// The two places of the header in a heap area that starts at `start`.
    pub fn places(start: PmAddr) -> [PmPtr<Self>; 2] {
        [PmPtr::new(start), PmPtr::new(start.plus(HEADER_COPY_OFFSET))]
    }
}

/// The state of a chunk, as its chunk word says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkWord {
    /// Nothing here, or the inside of an extent.
    Free,
    /// Part of a zone's own table.
    Table,
    /// Blocks of this many bytes.
    Slab(u32),
    /// The first of this many chunks in one block.
    Extent(u32),
}

impl ChunkWord {
    /// The encoded word for the address `at`.
    pub fn encode(self, at: PmAddr) -> u64 {
        let (kind, value) = match self {
            Self::Free => (1, 0),
            Self::Table => (2, 0),
            Self::Slab(block_bytes) => (3, block_bytes),
            Self::Extent(chunks) => (4, chunks),
        };
        checked::encode(at, kind | (u64::from(value) << 8))
    }

    /// Decodes `word` at `at`; `None` when it is damaged.
    pub fn decode(at: PmAddr, word: u64) -> Option<Self> {
        let payload = checked::decode(at, word)?;
        let value = u32::try_from(payload >> 8).ok()?;
        match (payload & 0xFF, value) {
            (1, 0) => Some(Self::Free),
            (2, 0) => Some(Self::Table),
            (3, 1..) => Some(Self::Slab(value)),
            (4, 1..) => Some(Self::Extent(value)),
            _ => None,
        }
    }
}

/// The word at the start of zone `zone`. It repeats the statement of the zones word.
pub fn encode_zone(at: PmAddr, zone: u32) -> u64 {
    checked::encode(at, ZONE_TAG | u64::from(zone))
}

/// Number of a chunk in its part, counted from zone 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId {
    /// The part.
    pub part: u16,
    /// Zone number times chunks per zone plus chunk in the zone.
    pub index: u32,
}

/// Sizes of a heap, from its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Binary logarithm of the bytes of a chunk.
    pub chunk_shift: u32,
    /// Binary logarithm of the chunks in a zone.
    pub zone_shift: u32,
    /// Number of lanes.
    pub lanes: u32,
    /// Bytes of a lane.
    pub lane_bytes: u32,
}

impl Geometry {
    /// Reads the sizes from an intact header; `None` when they are out of range.
    pub fn from_header(header: &HeapHeader) -> Option<Self> {
        let sane = header.chunk_bytes.is_power_of_two()
            && (512..=1 << 30).contains(&header.chunk_bytes)
            && header.zone_chunks.is_power_of_two()
            && (4..=1 << 24).contains(&header.zone_chunks)
            && header.lane_bytes.is_multiple_of(64)
            && (64..=1 << 20).contains(&header.lane_bytes)
            && header.lanes <= 1 << 16;
        let geometry = Self {
            chunk_shift: header.chunk_bytes.trailing_zeros(),
            zone_shift: header.zone_chunks.trailing_zeros(),
            lanes: header.lanes,
            lane_bytes: header.lane_bytes,
        };
        (sane && geometry.table_chunks() < geometry.zone_chunks()).then_some(geometry)
    }

    /// Bytes of a chunk.
    pub const fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Chunks in a zone.
    pub const fn zone_chunks(&self) -> u32 {
        1 << self.zone_shift
    }

    /// Bytes of a zone.
    pub const fn zone_bytes(&self) -> u64 {
        1 << (self.chunk_shift + self.zone_shift)
    }

    /// Chunks at the start of a zone that its table takes.
    pub fn table_chunks(&self) -> u32 {
        exact_u32((TABLE_OFFSET + u64::from(self.zone_chunks()) * WORD_BYTES).div_ceil(self.chunk_bytes()))
    }

    /// Largest block: a zone without its table.
    pub fn extent_bytes_max(&self) -> u64 {
        u64::from(self.zone_chunks() - self.table_chunks()) * self.chunk_bytes()
    }

    /// Entries that a lane records.
    pub fn lane_entries(&self) -> usize {
        (to_usize(self.lane_bytes) - 16) / 16
    }

    /// Offset of zone 0 in a part whose heap area starts at `start`.
    pub fn zones_offset(&self, start: PmAddr) -> u64 {
        let lanes = if start.part() == 0 { u64::from(self.lanes) * u64::from(self.lane_bytes) } else { 0 };
        (start.offset() + HEADER_BYTES + lanes).next_multiple_of(4096)
    }

    /// Address of lane `lane` in the heap area that starts at `start`.
    pub fn lane(&self, start: PmAddr, lane: u32) -> PmAddr {
        start.plus(HEADER_BYTES + u64::from(lane) * u64::from(self.lane_bytes))
    }
}
