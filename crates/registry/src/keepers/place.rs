//! A keeper in a pool of its own: an object of the store, so that all tools know it.
//!
//! ```text
//! block     0  head, 64 bytes; a copy at 256        512  the keeper's journal (`disk.rs`)
//! head      magic "LDSTKEEP" 8, version 4, zero 4, keeper 8, registry 8, bytes of the journal 8, zero 20, CRC-32C 4
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lodestone_heap::Heap;
use lodestone_pmem::{Memory, PmAddr, Pool, PoolOptions};
use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Object, Records, Registered, Store};
use lodestone_width::to_u64;

use super::{Keeper, KeeperId, KeeperOptions};
use crate::error::{Error, Result};
use crate::wire::{Reader, Writer};

const NAME: &str = "registry.keeper";
const MAGIC: &[u8; 8] = b"LDSTKEEP";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
const COPY_OFFSET: u64 = 256;
const JOURNAL_OFFSET: u64 = 512;
/// Bytes of a keeper's pool.
const POOL_BYTES: u64 = 16 << 20;
/// Bytes of its journal: the largest table and its successor, several times.
const JOURNAL_BYTES: u64 = 4 << 20;

/// A keeper in a file, and what keeps the file open.
#[derive(Debug)]
pub struct KeeperPool {
    /// The keeper.
    pub keeper: Keeper,
    /// The object in the store: as long as it lives, nothing else opens the keeper.
    pub held: Object,
}

#[derive(Clone, Copy)]
struct Head {
    keeper: KeeperId,
    registry: u64,
    bytes: u64,
}

impl Head {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Writer(MAGIC.to_vec());
        out.u32(VERSION).u32(0).u64(self.keeper.0).u64(self.registry).u64(self.bytes);
        out.0.resize(HEAD_BYTES - 4, 0);
        let crc = crc32c::crc32c(&out.0);
        out.u32(crc);
        out.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        let mut from = Reader(body);
        let is_head = from.array::<8>()? == *MAGIC && crc32c::crc32c(body) == u32::from_le_bytes(*crc);
        (is_head && from.u32()? == VERSION && from.u32()? == 0).then_some(())?;
        let head = Self { keeper: KeeperId(from.u64()?), registry: from.u64()?, bytes: from.u64()? };
        (head.bytes.is_multiple_of(64) && head.bytes <= 1 << 40).then_some(head)
    }

    /// The head at `at`, or its copy.
    fn read(memory: &Memory, at: PmAddr) -> Option<Self> {
        [0, COPY_OFFSET].into_iter().find_map(|copy| {
            let mut bytes = vec![0; HEAD_BYTES];
            let is_there = memory.contains(at.plus(copy), to_u64(HEAD_BYTES));
            is_there.then(|| memory.read(at.plus(copy), &mut bytes))?;
            Self::from_bytes(&bytes).filter(|head| memory.contains(at, JOURNAL_OFFSET + head.bytes))
        })
    }
}

impl KeeperPool {
    /// Makes a new keeper in a new file: durable on return. `registry` is the number of the registry, the same for all.
    ///
    /// The file gets its name when the keeper is whole. A killed creation leaves `PATH.new`, and the next one replaces
    /// it.
    ///
    /// # Errors
    /// A file that exists, or is being made by another process; an impossible list of keepers.
    pub fn create(path: impl AsRef<Path>, id: KeeperId, registry: u64, keepers: &[KeeperId]) -> Result<Self> {
        let path = path.as_ref();
        let temporary = temporary(path);
        let journal_bytes = 4 << 20;
        let options = PoolOptions { size_bytes: POOL_BYTES, journal_bytes, overwrite: true, ..PoolOptions::default() };
        // From here to the rename the lock of this file keeps others from making the same keeper.
        let pool = Pool::create(&temporary, &options)?;
        let made = Self::make(&pool, id, registry, keepers).and_then(|made| {
            publish(&temporary, path)?;
            Ok(made)
        });
        if made.is_err() {
            // It is no keeper, and the next creation would replace it. The first error is the one that counts.
            _ = std::fs::remove_file(&temporary);
        }
        drop((made?, pool));
        // Errors from now on name the file by its right name.
        Self::open(path)
    }

    fn make(pool: &Pool, id: KeeperId, registry: u64, keepers: &[KeeperId]) -> Result<Self> {
        let store = Store::over(pool)?;
        let seed = store.pool().boot();
        let object = store.open_or_make(NAME, &KEEPER, |action| -> Result<PmAddr> {
            let at = action.alloc_zeroed(JOURNAL_OFFSET + JOURNAL_BYTES)?;
            let head = Head { keeper: id, registry, bytes: JOURNAL_BYTES };
            for copy in [0, COPY_OFFSET] {
                // Persistent with the commit of the action, which makes the block count.
                store.memory().write_back(at.plus(copy), &head.to_bytes());
            }
            // The journal is durable before the object exists.
            let options = KeeperOptions { id, registry, seed };
            Keeper::create(options, store.memory(), at.plus(JOURNAL_OFFSET), JOURNAL_BYTES, keepers)?;
            Ok(at)
        })?;
        Self::of(object, seed)
    }

    /// Opens the keeper in a file.
    ///
    /// # Errors
    /// A file without a keeper, in use, or damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let pool = Pool::open(path, &PoolOptions::default())?;
        let store = Store::over(&pool)?;
        let missing = || Error::NoKeeper { at: pool.heap_area(0).0 };
        store.find(NAME)?.ok_or_else(missing)?;
        let object = store.open_or_make(NAME, &KEEPER, |_| Err(missing()))?;
        Self::of(object, store.pool().boot())
    }

    fn of(object: Object, boot: u64) -> Result<Self> {
        let (memory, at) = (object.memory().clone(), object.at());
        let head = Head::read(&memory, at).ok_or(Error::Impossible { at })?;
        // Each life draws other times of elections.
        let options = KeeperOptions { id: head.keeper, registry: head.registry, seed: boot ^ head.registry };
        let keeper = Keeper::open(options, &memory, at.plus(JOURNAL_OFFSET), head.bytes)?;
        Ok(Self { keeper, held: object })
    }
}

/// Where a keeper is made: the same name, with `.new` after it.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

/// Gives a whole keeper its name: durable on return.
fn publish(temporary: &Path, path: &Path) -> Result<()> {
    let failed = |doing: &'static str| move |source| Error::File { path: path.to_owned(), doing, source };
    // Another creation of this file would have the lock of the temporary one: nothing makes it meanwhile.
    if path.symlink_metadata().is_ok() {
        return Err(failed("making a keeper")(std::io::ErrorKind::AlreadyExists.into()));
    }
    std::fs::rename(temporary, path).map_err(failed("naming the new keeper"))?;
    lodestone_pmem::sync_folder_of(path).map_err(failed("making the name durable"))
}

/// The kind of a keeper in a store.
static KEEPER: KeeperKind = KeeperKind;

inventory::submit! { Registered(&KEEPER) }

#[derive(Debug)]
struct KeeperKind;

impl Kind for KeeperKind {
    fn code(&self) -> KindCode {
        KindCode(*b"RKEE")
    }

    fn title(&self) -> &'static str {
        "a keeper of the fabric's registry"
    }

    fn examine(&self, object: Object) -> std::result::Result<Contents, KindError> {
        let (memory, at) = (object.memory(), object.at());
        let head = Head::read(memory, at).ok_or("both copies of the keeper's head do not verify")?;
        let blocks = vec![(at, JOURNAL_OFFSET + head.bytes)];
        Ok(Contents { blocks, ..Contents::default() })
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        Head::read(heap.memory(), at).is_some()
    }

    fn records(
        &self,
        object: Object,
        _: Option<&str>,
        _: Acknowledge,
    ) -> std::result::Result<Box<dyn Records>, KindError> {
        Err(format!("`{}` is a keeper of a registry; run it by `lodestone fabric keep`", object.name()).into())
    }
}
