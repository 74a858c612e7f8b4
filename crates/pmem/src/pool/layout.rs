//! The layout of a part, byte for byte. `docs/format.md` draws the same map.
//!
//! Every part starts with its *header* (page 0: written once at creation, again only by `repair`) and has an identical
//! copy of it in its last page. Page 1 holds the two mirrored *state slots*; page 2 the *root directory* (part 0 only).
//! Then the journal of the block domain (part 0 only, may be empty), then the heap area.

use lodestone_width::const_usize;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page: the granularity of mappings and header copies.
pub const PAGE_BYTES: u64 = 4096;
/// First eight bytes of every part.
pub const MAGIC: [u8; 8] = *b"LODESTON";
/// Version of the format that this code writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 3;
/// In the header, as written by a little-endian machine.
pub const ENDIAN_MARK: u32 = 0x0102_0304;
/// Longest layout name in bytes.
pub const LAYOUT_NAME_BYTES: usize = 64;
/// Most parts a pool can have: the part table is in the header.
pub const PARTS_MAX: usize = 16;
/// Longest path in the part table, in bytes.
pub const PART_PATH_BYTES: usize = 192;
/// Features that an older reader may ignore as long as it does not write, as far as this code knows them.
pub const FEATURES_READ_ONLY_COMPATIBLE_KNOWN: u64 = 0;
/// Features that a reader must know, as far as this code knows them.
pub const FEATURES_INCOMPATIBLE_KNOWN: u64 = 0;

/// Offset of the two state slots, 256 bytes apart so that they share no media block.
pub const STATE_OFFSETS: [u64; 2] = [PAGE_BYTES, PAGE_BYTES + 256];
/// Offset of the root directory.
pub const ROOTS_OFFSET: u64 = 2 * PAGE_BYTES;
/// Number of named roots; each has two lines, one in each half of the directory's page.
pub const ROOTS_MAX: u64 = 32;
/// Distance of the two lines of a root: half a page, so that they share no media block.
pub const ROOTS_MIRROR_BYTES: u64 = PAGE_BYTES / 2;
/// First byte after the fixed areas: the journal, or the heap where there is none.
pub const FIXED_END: u64 = 3 * PAGE_BYTES;

/// The header of a part: the first 4 KiB.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct PartHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// [`ENDIAN_MARK`].
    pub endian_mark: u32,
    /// Features that an older reader may ignore.
    pub features_compatible: u64,
    /// Features that an older reader may ignore as long as it does not write.
    pub features_read_only_compatible: u64,
    /// Features that an older reader must refuse.
    pub features_incompatible: u64,
    /// The same in all parts of one pool; `copy` makes a new one, `backup` keeps it.
    pub set_uuid: [u8; 16],
    /// This part alone.
    pub part_uuid: [u8; 16],
    /// Number of this part.
    pub part_index: u16,
    /// Number of parts in the pool.
    pub part_count: u16,
    /// Version of the layout, as the application counts.
    pub layout_version: u32,
    /// Creation time, nanoseconds since 1970.
    pub created_unix_ns: u64,
    /// Name of the layout, filled up with zeroes.
    pub layout_name: [u8; LAYOUT_NAME_BYTES],
    /// Offset of the journal area.
    pub journal_offset: u64,
    /// Bytes of the journal area; 0: the pool cannot be opened in the block domain.
    pub journal_bytes: u64,
    /// Offset of the heap area; it ends one page before the end of the part.
    pub heap_offset: u64,
    /// Length of the part when this header was written; the state slots hold the present one.
    pub part_bytes: u64,
    /// Identities of all parts of the set, by number; zeroes after the last.
    pub part_uuids: [[u8; 16]; PARTS_MAX],
    /// Where each further part was created, by number, filled up with zeroes: absolute, or relative to the folder of
    /// part 0; all zero when the part follows the convention (path of part 0, a dot, the number).
    pub part_paths: [[u8; PART_PATH_BYTES]; PARTS_MAX],
    /// NUMA node on which each part was said to be at creation, plus one, by number; 0: nothing was said.
    pub part_nodes: [u16; PARTS_MAX],
    /// Zeroes.
    pub reserved: [u8; 544],
    /// Zero.
    pub padding: u32,
    /// CRC-32C of all bytes before it.
    pub crc: u32,
}

const _: () = assert!(size_of::<PartHeader>() == const_usize(PAGE_BYTES), "the header fills the first page");

/// One of the two mirrored state slots: equal at rest, the newer intact one counts after a crash.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct StateSlot {
    /// Counts up with every write; the larger one is newer.
    pub sequence: u64,
    /// Number of this life of the pool; counts up with every open for writing.
    pub boot: u64,
    /// Present length of the part in bytes.
    pub part_bytes: u64,
    /// [`STATE_CLEAN`], [`STATE_BEGINNING`].
    pub flags: u64,
    /// Length before the last `grow` while the page of the former header copy is not yet zeroed; else 0.
    pub grown_from: u64,
    /// Zeroes.
    pub reserved: [u64; 2],
    /// Zero.
    pub padding: u32,
    /// CRC-32C of all bytes before it.
    pub crc: u32,
}

const _: () = assert!(size_of::<StateSlot>() == 64, "a state slot fills one line");

/// Flag of [`StateSlot::flags`]: closed in order.
pub const STATE_CLEAN: u64 = 1;
/// Flag of [`StateSlot::flags`] in parts other than part 0: the life of this boot number may not have begun.
pub const STATE_BEGINNING: u64 = 2;

/// One of the two mirrored lines of a root: equal at rest, the newer intact one counts after a crash.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PartialEq, Eq)]
#[repr(C)]
pub struct RootLine {
    /// Counts up with every write; 0: never written.
    pub sequence: u32,
    /// Bytes of `name` in use; 0: the root was removed.
    pub name_bytes: u16,
    /// Zero.
    pub padding: u16,
    /// Where the root object is.
    pub addr: u64,
    /// Type of the root object, as its owner counts; checked when the root is looked up.
    pub kind: u32,
    /// Name, filled up with zeroes.
    pub name: [u8; 40],
    /// CRC-32C of all bytes before it.
    pub crc: u32,
}

const _: () = assert!(size_of::<RootLine>() == 64, "a root line fills one line");
const _: () = assert!(ROOTS_MAX * 64 == ROOTS_MIRROR_BYTES, "the roots fill both halves of their page");

/// CRC-32C of all but the last four bytes of `record`.
pub fn crc_of(record: &(impl IntoBytes + Immutable)) -> u32 {
    let bytes = record.as_bytes();
    crc32c::crc32c(&bytes[..bytes.len() - 4])
}
