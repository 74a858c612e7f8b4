//! The block by which an index is found: its anchor. Every structure makes and opens its anchor in the same way.
//!
//! The anchor is the place of an object of the store. The action that makes the object's name also makes the anchor and
//! the index's first blocks. So a crash leaves all of them or none. An index below a map has no name: the map's anchor
//! leads to it, and the map's action makes both.
//!
//! ```text
//!  0  magic                                    8  format version | options << 32
//! 16  head: checked address, the structure's   24  checked address of the map that it is below; null: none
//! 32  checked word: CRC-32C of the first 16 bytes
//! 40  second: checked word, the structure's    48  zero
//! ```

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{PmAddr, WORD_BYTES, checked};
use lodestone_store::{Kind, Object, Store};
use lodestone_width::low_u32;

use crate::error::Result;
use crate::medium::IndexMemory;

/// Bytes of an anchor: one line.
pub(crate) const ANCHOR_BYTES: u64 = 64;

/// Distinguishes the anchors of one kind of index from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnchorKind {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    /// The object kind in the store.
    pub(crate) kind: &'static dyn Kind,
}

/// An anchor that was opened: no other holder in this process has it.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) at: PmAddr,
    /// The options that the index was created with.
    pub(crate) options: u32,
    /// The claim on it. An index below a map uses the map's claim.
    _object: Option<Object>,
}

/// Words of an anchor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnchorAt(pub(crate) PmAddr);

impl AnchorAt {
    fn shape(self) -> PmAddr {
        self.0.plus(8)
    }
    /// The structure's first block.
    pub(crate) fn head(self) -> PmAddr {
        self.0.plus(16)
    }
    /// The map that the index is below, for when the map's own anchor is damaged.
    pub(crate) fn above(self) -> PmAddr {
        self.0.plus(24)
    }
    fn crc(self) -> PmAddr {
        self.0.plus(32)
    }
    /// Another word, whose meaning the structure defines.
    pub(crate) fn second(self) -> PmAddr {
        self.0.plus(40)
    }
}

/// The first blocks of an index that is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// The address that the head leads to.
    pub(crate) head: PmAddr,
    /// Payload of the second word.
    pub(crate) second: u64,
}

fn crc_of(magic: u64, shape: u64) -> u64 {
    u64::from(crc32c::crc32c_append(crc32c::crc32c(&magic.to_le_bytes()), &shape.to_le_bytes()))
}

/// The options in the anchor at `at`, when it verifies.
pub(crate) fn verify(medium: IndexMemory<'_>, kind: &AnchorKind, at: PmAddr) -> Result<u32> {
    if !medium.memory.contains(at, ANCHOR_BYTES) || !at.offset().is_multiple_of(WORD_BYTES) {
        return Err(medium.damaged(at, "place of an index", "is no place in the pool where an index can be"));
    }
    let anchor = AnchorAt(at);
    let (magic, shape) = (medium.memory.load(at), medium.memory.load(anchor.shape()));
    if magic != kind.magic {
        return Err(medium.damaged(at, "anchor of an index", "no magic of this kind of index"));
    }
    if medium.word(anchor.crc(), "checksum of an anchor")? != crc_of(magic, shape) {
        return Err(medium.damaged(anchor.shape(), "anchor of an index", "checksum mismatch"));
    }
    let (version, options) = (low_u32(shape & u64::from(u32::MAX)), low_u32(shape >> 32));
    if version != kind.version {
        let (path, what) = (medium.path.to_owned(), "anchor of an index");
        let (found, known) = (version, kind.version);
        return Err(lodestone_pmem::Error::OtherVersion { path, what, at, found, known }.into());
    }
    Ok(options)
}

/// Whether an index or map of this kind begins at `at` and is below no other one.
pub(crate) fn begins_at(heap: &Heap, kind: &AnchorKind, at: PmAddr) -> bool {
    let (medium, above) = (IndexMemory::of(heap, at), AnchorAt(at).above());
    let is_block = heap.block_bytes(at).is_some_and(|bytes| bytes >= ANCHOR_BYTES);
    is_block
        && verify(medium, kind, at).is_ok()
        && checked::decode_addr(above, medium.memory.load(above)).is_some_and(PmAddr::is_null)
}

/// Opens the index `name`, or creates it. `build` receives the anchor's address, reserves and writes the first blocks
/// and starts their write-back.
pub(crate) fn open(
    store: &Store,
    name: &str,
    kind: &AnchorKind,
    options: u32,
    build: impl FnOnce(&mut Action<'_>, PmAddr) -> Result<First>,
) -> Result<Anchor> {
    let object = store
        .open_or_make(name, kind.kind, |action| make(store.heap(), action, (kind, PmAddr::NULL), options, build))?;
    let at = object.at();
    let medium = IndexMemory::of(store.heap(), at);
    Ok(Anchor { at, options: verify(medium, kind, at)?, _object: Some(object) })
}

/// Opens an index whose object or map is claimed already.
pub(crate) fn attach(heap: &Heap, kind: &AnchorKind, at: PmAddr, object: Option<Object>) -> Result<Anchor> {
    let medium = IndexMemory::of(heap, at);
    Ok(Anchor { at, options: verify(medium, kind, at)?, _object: object })
}

/// Reserves and writes, as part of `action`, an anchor and the first blocks of its index. The index is below the map at
/// `above` if that is not null. `build` receives the anchor's address, because those blocks name it.
pub(crate) fn make(
    heap: &Heap,
    action: &mut Action<'_>,
    (kind, above): (&AnchorKind, PmAddr),
    options: u32,
    build: impl FnOnce(&mut Action<'_>, PmAddr) -> Result<First>,
) -> Result<PmAddr> {
    let at = action.alloc(ANCHOR_BYTES)?;
    let anchor = AnchorAt(at);
    let First { head, second } = build(action, at)?;
    let shape = u64::from(kind.version) | u64::from(options) << 32;
    let words = [
        kind.magic,
        shape,
        checked::encode_addr(anchor.head(), head),
        checked::encode_addr(anchor.above(), above),
        checked::encode(anchor.crc(), crc_of(kind.magic, shape)),
        checked::encode(anchor.second(), second),
        0,
        0,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    // The action that names the index may not overtake its anchor: the action's first fence comes between.
    heap.memory().write_back(at, &bytes);
    Ok(at)
}
