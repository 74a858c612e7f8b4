//! The block by which an index is found: its anchor. Made and opened in one way for every structure.
//!
//! *Create.* The anchor must be allocated and named by a root, and no crash may leave it allocated and unnamed:
//! 1. anchor and first blocks are reserved in the heap and written, the anchor's `live` word as 0, and fenced;
//! 2. the root is set, kind *pending*, to the reserved anchor;
//! 3. one heap action allocates everything and sets `live` to 1;
//! 4. the root's kind is set to *live*.
//!
//! A later open that finds a pending root finishes step 4 when `live` is 1 (the action is persistent), else starts
//! again: nothing was allocated, and nobody was told of the index.
//!
//! ```text
//!  0  magic                                    8  format version | options << 32
//! 16  head: checked address, the structure's   24  live: checked word, 1 once published
//! 32  checked word: CRC-32C of the first 16 bytes
//! 40  second: checked word, the structure's    48  zero (16 bytes)
//! ```

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{PmAddr, WORD_BYTES, checked, planted};

use crate::error::{Error, Result};
use crate::medium::Medium;
use crate::open::{Only, Opening};

/// Bytes of an anchor: one line.
pub(crate) const ANCHOR_BYTES: u64 = 64;

/// What tells the anchors of one kind of index from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnchorKind {
    pub(crate) magic: u64,
    pub(crate) version: u32,
    /// Kind of the pool root while the anchor it names is not yet published.
    pub(crate) pending: u32,
    /// Kind of the pool root of an index in use.
    pub(crate) live: u32,
}

/// An anchor that was opened: nobody else in this process has it.
#[derive(Debug)]
pub(crate) struct Anchor {
    pub(crate) at: PmAddr,
    /// What the index was created with.
    pub(crate) options: u32,
    _only: Only,
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
    fn live(self) -> PmAddr {
        self.0.plus(24)
    }
    fn crc(self) -> PmAddr {
        self.0.plus(32)
    }
    /// Another word of the structure's.
    pub(crate) fn second(self) -> PmAddr {
        self.0.plus(40)
    }
}

fn crc_of(magic: u64, shape: u64) -> u64 {
    u64::from(crc32c::crc32c_append(crc32c::crc32c(&magic.to_le_bytes()), &shape.to_le_bytes()))
}

/// The options in the anchor at `at`, when it verifies.
pub(crate) fn verify(medium: Medium<'_>, kind: &AnchorKind, at: PmAddr) -> Result<u32> {
    if !medium.memory.contains(at, ANCHOR_BYTES) || !at.offset().is_multiple_of(WORD_BYTES) {
        return Err(medium.damaged(at, "root of an index", "is no place in the pool where an index can be"));
    }
    let anchor = AnchorAt(at);
    let (magic, shape) = (medium.memory.load(at), medium.memory.load(anchor.shape()));
    if magic != kind.magic {
        return Err(medium.damaged(at, "anchor of an index", "no magic of this kind of index"));
    }
    if medium.word(anchor.crc(), "checksum of an anchor")? != crc_of(magic, shape) {
        return Err(medium.damaged(anchor.shape(), "anchor of an index", "checksum mismatch"));
    }
    let (version, options) = ((shape & u64::from(u32::MAX)) as u32, (shape >> 32) as u32);
    if version != kind.version {
        let finding = format!("format version {version}; use the program version that wrote it");
        return Err(medium.damaged(anchor.shape(), "anchor of an index", finding));
    }
    Ok(options)
}

fn is_published(medium: Medium<'_>, kind: &AnchorKind, at: PmAddr) -> bool {
    verify(medium, kind, at).is_ok()
        && medium.word(AnchorAt(at).live(), "live mark of an index").is_ok_and(|live| live == 1)
}

/// Opens the index `name`, or creates it: `build` reserves and writes its first blocks (started on their way back) and
/// gives the address of the head and the payload of the second word.
pub(crate) fn open(
    heap: &Heap,
    name: &str,
    kind: &AnchorKind,
    options: u32,
    build: impl FnOnce(&mut Action<'_>) -> Result<(PmAddr, u64)>,
) -> Result<Anchor> {
    let pool = heap.pool();
    let medium = Medium { memory: heap.memory(), path: pool.path() };
    let _opening = Opening::claim(heap, name)?;
    let at = match pool.root(name)? {
        Some((found, at)) if found == kind.live => at,
        Some((found, at)) if found == kind.pending && is_published(medium, kind, at) => {
            if !heap.memory().is_read_only() {
                pool.set_root(name, kind.live, at)?;
            }
            at
        }
        Some((found, _)) if found != kind.pending => return Err(Error::wrong_kind(pool, name, found, kind.live)),
        _ if heap.memory().is_read_only() => {
            return Err(Error::ReadOnly { path: pool.path().to_owned(), what: "the creation of an index" });
        }
        _ => create(heap, name, kind, options, build)?,
    };
    let only = Only::claim(heap, at)
        .ok_or_else(|| Error::AlreadyOpen { path: pool.path().to_owned(), name: name.to_owned() })?;
    Ok(Anchor { at, options: verify(medium, kind, at)?, _only: only })
}

fn create(
    heap: &Heap,
    name: &str,
    kind: &AnchorKind,
    options: u32,
    build: impl FnOnce(&mut Action<'_>) -> Result<(PmAddr, u64)>,
) -> Result<PmAddr> {
    let memory = heap.memory();
    let mut action = heap.action();
    let at = action.alloc(ANCHOR_BYTES)?;
    let anchor = AnchorAt(at);
    let (head, second) = build(&mut action)?;
    let shape = u64::from(kind.version) | u64::from(options) << 32;
    let words = [
        kind.magic,
        shape,
        checked::encode_addr(anchor.head(), head),
        checked::encode(anchor.live(), 0),
        checked::encode(anchor.crc(), crc_of(kind.magic, shape)),
        checked::encode(anchor.second(), second),
        0,
        0,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write_back(at, &bytes);
    // The pending root may not overtake the anchor's `live` word of 0: an old 1 there would pass for a finished index.
    memory.fence();
    if !planted::active("index-anchor-unnamed") {
        heap.pool().set_root(name, kind.pending, at)?;
    }
    action.set(anchor.live(), checked::encode(anchor.live(), 1));
    action.commit()?;
    heap.pool().set_root(name, kind.live, at)?;
    Ok(at)
}
