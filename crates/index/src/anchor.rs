//! The block by which an index is found: its anchor. Made and opened in one way for every structure.
//!
//! *Create.* The anchor must be allocated and named by a root, and no crash may leave it allocated and unnamed:
//! 1. anchor and first blocks are reserved in the heap and written, the anchor's `live` word as 0, and fenced;
//! 2. the root is set, kind *pending*, to the reserved anchor;
//! 3. one heap action allocates everything and sets `live` to 1;
//! 4. the root's kind is set to *live*.
//!
//! A later open that finds a pending root finishes step 4 when `live` is 1 (the action is persistent) in an anchor made under its name, else starts
//! again: nothing was allocated, and nobody was told of the index. The name decides because what was not allocated may be another index's anchor by now.
//! Such a root stands for nothing: an index of another kind may take its name as well.
//!
//! ```text
//!  0  magic                                    8  format version | options << 32
//! 16  head: checked address, the structure's   24  live: checked word, 1 once published
//! 32  checked word: CRC-32C of the first 16 bytes
//! 40  second: checked word, the structure's    48  checked word: CRC-32C of the root's name | 1 << 32
//! 56  zero
//! ```

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{PmAddr, WORD_BYTES, checked, planted};

use crate::error::{Error, Result};
use crate::medium::Medium;
use crate::open::{Only, Opening};
use crate::root_kind;

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
    fn name(self) -> PmAddr {
        self.0.plus(48)
    }
}

/// What a header says of the name that it was made under; never 0.
pub(crate) fn name_mark(name: &str) -> u64 {
    u64::from(crc32c::crc32c(name.as_bytes())) | 1 << 32
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

/// Whether the anchor at `at` was made under the root `name`, by an action that is persistent.
pub(crate) fn is_published(medium: Medium<'_>, kind: &AnchorKind, name: &str, at: PmAddr) -> bool {
    verify(medium, kind, at).is_ok()
        && medium.word(AnchorAt(at).live(), "live mark of an index").is_ok_and(|live| live == 1)
        && medium.word(AnchorAt(at).name(), "name mark of an index").is_ok_and(|mark| mark == name_mark(name))
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
        Some((found, at)) if found == kind.pending && is_published(medium, kind, name, at) => {
            if !heap.memory().is_read_only() {
                pool.set_root(name, kind.live, at)?;
            }
            at
        }
        // Of whatever kind: a creation that a crash cut short keeps no name from another.
        Some((found, at)) if !root_kind::is_unmade(medium, name, found, at) => {
            return Err(Error::wrong_kind(pool, name, found, kind.live));
        }
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
        checked::encode(anchor.name(), name_mark(name)),
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use lodestone_heap::HeapOptions;
    use lodestone_pmem::{DomainChoice, Pool, PoolOptions};

    use super::*;
    use crate::{Durability, FastFair, KIND_PENDING, OpenIndex, OrderedMap, PointIndex};

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    /// A heap where a crash came between steps 2 and 3 of making `first`, and the address that its root names: the next block of that size.
    fn interrupted(
        folder: &tempfile::TempDir,
        pending: u32,
    ) -> std::result::Result<(Heap, PmAddr), Box<dyn std::error::Error>> {
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let heap = Heap::open(&Pool::create(folder.path().join("a.pool"), &options)?, &HeapOptions::default())?;
        let at = heap.action().alloc(ANCHOR_BYTES)?;
        heap.pool().set_root("first", pending, at)?;
        Ok((heap, at))
    }

    #[test]
    fn an_index_that_a_crash_left_unmade_is_none_that_stands_there_now() -> Outcome {
        let folder = tempfile::tempdir()?;
        let (heap, at) = interrupted(&folder, crate::fastfair::KIND_WORDS.pending)?;
        let open = |name| FastFair::<u64>::open_index(&heap, name, &Default::default(), Durability::Sync);
        let second = open("second")?;
        assert_eq!(second.anchor.at, at, "the block that the root of the first one names");
        second.insert(&1, 2)?;
        drop(second);
        assert_eq!(open("first")?.get(&1)?, None);
        assert_eq!(open("second")?.get(&1)?, Some(2));
        Ok(())
    }

    #[test]
    fn a_creation_that_a_crash_cut_short_leaves_its_name_to_every_kind() -> Outcome {
        type Words = FastFair<u64>;
        let kinds = [KIND_PENDING, crate::fastfair::KIND_STRINGS.pending, crate::KIND_RECORDS_PENDING];
        for pending in kinds {
            let folder = tempfile::tempdir()?;
            let (heap, _) = interrupted(&folder, pending)?;
            assert!(crate::is_root_unmade(heap.pool(), "first")?);
            let tree = Words::open_index(&heap, "first", &Default::default(), Durability::Sync)?;
            tree.insert(&1, 2)?;
            assert!(!crate::is_root_unmade(heap.pool(), "first")?);
            assert!(matches!(OrderedMap::open(&heap, "first"), Err(Error::WrongKind { .. })), "it is made now");
            let folder = tempfile::tempdir()?;
            let (heap, _) = interrupted(&folder, pending)?;
            OrderedMap::open(&heap, "first")?.insert(b"key", b"value")?;
            let folder = tempfile::tempdir()?;
            let (heap, _) = interrupted(&folder, pending)?;
            crate::open_records(&heap, "first", crate::IndexKind::FpTree, Durability::Sync)?;
        }
        Ok(())
    }

    /// Made, and its root still pending: that is no creation that may begin anew as something else.
    #[test]
    fn a_creation_that_lacks_its_last_step_keeps_its_name() -> Outcome {
        let folder = tempfile::tempdir()?;
        let (heap, _) = interrupted(&folder, KIND_PENDING)?;
        let tree = FastFair::<u64>::open_index(&heap, "tree", &Default::default(), Durability::Sync)?;
        let (kind, at) = (crate::fastfair::KIND_WORDS.pending, tree.anchor.at);
        drop(tree);
        heap.pool().set_root("tree", kind, at)?;
        assert!(matches!(OrderedMap::open(&heap, "tree"), Err(Error::WrongKind { .. })));
        drop(OrderedMap::open(&heap, "map")?);
        let Some((_, at)) = heap.pool().root("map")? else { return Err("no root".into()) };
        heap.pool().set_root("map", KIND_PENDING, at)?;
        let opened = FastFair::<u64>::open_index(&heap, "map", &Default::default(), Durability::Sync);
        assert!(matches!(opened, Err(Error::WrongKind { .. })));
        Ok(())
    }

    /// The block that an unmade map's root names is the anchor of another one.
    #[test]
    fn a_map_that_a_crash_left_unmade_has_no_kind() -> Outcome {
        let folder = tempfile::tempdir()?;
        let (heap, at) = interrupted(&folder, crate::KIND_RECORDS_PENDING)?;
        assert_eq!(crate::index_of_map(heap.pool(), "first")?, None);
        let second = crate::open_records(&heap, "second", crate::IndexKind::SkipList, Durability::Sync)?;
        assert!(heap.pool().root("second")?.is_some_and(|(_, anchor)| anchor == at));
        assert_eq!(crate::index_of_map(heap.pool(), "first")?, None);
        heap.pool().set_root("second", crate::KIND_RECORDS_PENDING, at)?;
        assert_eq!(crate::index_of_map(heap.pool(), "second")?, Some(crate::IndexKind::SkipList), "it lacks one step");
        drop(second);
        crate::open_records(&heap, "first", crate::IndexKind::FastFair, Durability::Sync)?;
        assert_eq!(crate::index_of_map(heap.pool(), "first")?, Some(crate::IndexKind::FastFair));
        Ok(())
    }

    #[test]
    fn a_map_that_a_crash_left_unmade_is_none_that_stands_there_now() -> Outcome {
        let folder = tempfile::tempdir()?;
        let (heap, at) = interrupted(&folder, KIND_PENDING)?;
        let second = OrderedMap::open(&heap, "second")?;
        assert!(heap.pool().root("second")?.is_some_and(|(_, header)| header == at));
        second.insert(b"key", b"value")?;
        drop(second);
        assert_eq!(OrderedMap::open(&heap, "first")?.get(b"key")?, None);
        assert!(OrderedMap::open(&heap, "second")?.get(b"key")?.is_some());
        Ok(())
    }
}
