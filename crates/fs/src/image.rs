//! The image: the state of the volume at rest, in transactional trees.
//!
//! A batch is one transaction: it writes what has changed since the batch before, and `applied`, the number of the last
//! operation that it has. So the image is the state after a prefix of operations, with one fence for a batch.
//!
//! | tree | key | value |
//! | --- | --- | --- |
//! | `fs.rows` | file | its row (`inode.rs` has the bytes) |
//! | `fs.entries` | folder and cookie | file 8, kind 4 (bits of the mode), name |
//! | `fs.extents` | file and first file page | page of the volume in the low 40 bits, count in the high 24 |
//! | `fs.extra` | file 8 (big-endian), name | value; without a name: the target of a symbolic link |
//! | `fs.orphans` | file without a name | 1 |
//! | `fs.chunks` | chunk | bits of taken pages, 480 bytes |
//! | `fs.requests` | mount in another process | its requests that were carried out (`requests.rs` has the bytes) |

use std::collections::BTreeMap;
use std::ops::Bound;

use lodestone_collections::{Bytes, PmBTreeMap};
use lodestone_fabric::Sequence;
use lodestone_pmem::planted;
use lodestone_stm::{PmPtr, Stm, StmOptions, Tx, TxResult, pm_object};
use lodestone_store::Store;
use lodestone_width::low_u64;

use crate::error::{Result, damaged};
use crate::extents::{Extents, Run};
use crate::inode::{Content, Entry, FileKind, Folder, Inode, Row};
use crate::requests::Requests;
use crate::space::Space;

/// Name of the transactional memory in the store.
pub(crate) const IMAGE_NAME: &str = "fs.image";

const PAGE_BITS: u32 = 40;
/// Key of the mark of a volume with replicas: that of file 0, which does not exist.
const MARK_KEY: &[u8] = b"\0\0\0\0\0\0\0\0replicas";

/// The numbers of the volume as a whole.
#[pm_object]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The last operation that the image has.
    pub(crate) applied: u64,
    /// Number of the next file.
    pub(crate) next_ino: u64,
    /// Files.
    pub(crate) files: u64,
    /// Batches.
    pub(crate) batches: u64,
}

/// Places of a tree, each with its new value, or none.
pub(crate) type Places<K, V> = Vec<(K, Option<V>)>;

/// The content of a batch: the new value at each place, or that there is none.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) head: Head,
    pub(crate) rows: Places<u64, Vec<u8>>,
    pub(crate) entries: Places<(u64, u64), (Entry, Vec<u8>)>,
    pub(crate) extents: Places<(u64, u64), Run>,
    pub(crate) extra: Places<(u64, Vec<u8>), Vec<u8>>,
    pub(crate) orphans: Vec<(u64, bool)>,
    pub(crate) chunks: Vec<(u64, Vec<u8>)>,
    /// Requests of each mount that has some new ones.
    pub(crate) requests: Places<u64, Vec<u8>>,
    /// Pages and checksums, for the table.
    pub(crate) checksums: Vec<(u64, u32)>,
    /// Pages that are released when the batch is durable.
    pub(crate) freed: Vec<Run>,
}

/// The trees.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    stm: Stm,
    head: PmPtr<Head>,
    rows: PmBTreeMap<u64, Bytes>,
    entries: PmBTreeMap<u128, Bytes>,
    extents: PmBTreeMap<u128, u64>,
    extra: PmBTreeMap<Bytes, Bytes>,
    orphans: PmBTreeMap<u64, u64>,
    chunks: PmBTreeMap<u64, Bytes>,
    requests: PmBTreeMap<u64, Bytes>,
}

fn pair(high: u64, low: u64) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn extra_key(ino: u64, name: &[u8]) -> Vec<u8> {
    let mut key = ino.to_be_bytes().to_vec();
    key.extend(name);
    key
}

fn packed(run: Run) -> u64 {
    run.count << PAGE_BITS | run.page
}

fn unpacked(word: u64) -> Run {
    Run { page: word & ((1 << PAGE_BITS) - 1), count: word >> PAGE_BITS }
}

/// Sets a place of a tree, or empties it.
macro_rules! place {
    ($tree:expr, $tx:expr, $key:expr, $value:expr) => {
        match $value {
            Some(value) => _ = $tree.insert($tx, $key, value)?,
            None => _ = $tree.remove($tx, $key)?,
        }
    };
}

impl Image {
    /// Opens the trees, which are made when there are none.
    pub(crate) fn open(store: &Store, options: &StmOptions) -> Result<Self> {
        let stm = Stm::open_named(store, IMAGE_NAME, options)?;
        Ok(Self {
            head: stm.root_named("fs.head")?,
            rows: PmBTreeMap::open(&stm, "fs.rows")?,
            entries: PmBTreeMap::open(&stm, "fs.entries")?,
            extents: PmBTreeMap::open(&stm, "fs.extents")?,
            extra: PmBTreeMap::open(&stm, "fs.extra")?,
            orphans: PmBTreeMap::open(&stm, "fs.orphans")?,
            chunks: PmBTreeMap::open(&stm, "fs.chunks")?,
            requests: PmBTreeMap::open(&stm, "fs.requests")?,
            stm,
        })
    }

    pub(crate) fn head(&self) -> Result<Head> {
        Ok(self.stm.read(|tx| tx.read(self.head))?)
    }

    /// Fills `space` with the bitmap.
    pub(crate) fn load_space(&self, space: &mut Space) -> Result<()> {
        let chunks = self.stm.read(|tx| self.chunks.iter(tx)?.collect::<TxResult<Vec<_>>>())?;
        for (chunk, bytes) in chunks {
            let wrong = || damaged("bitmap of pages", format!("chunk {chunk} has pages that do not exist"));
            space.load_chunk(chunk, &bytes).ok_or_else(wrong)?;
        }
        Ok(())
    }

    /// Requests of mounts that the operations of the image carried out.
    pub(crate) fn load_requests(&self) -> Result<Requests> {
        let (applied, found) = self.stm.read(|tx| {
            let applied = tx.read(self.head)?.applied;
            Ok((applied, self.requests.iter(tx)?.collect::<TxResult<Vec<_>>>()?))
        })?;
        Requests::load(&found, Sequence(applied)).map_err(|finding| damaged("image", finding))
    }

    /// Writes requests of a mount that are perhaps none, with right checksums.
    #[cfg(test)]
    pub(crate) fn forge_requests(&self, mount: u64, bytes: Option<&Vec<u8>>) {
        let ticket = self.stm.update_async(|tx| {
            place!(self.requests, tx, &mount, bytes);
            Ok(())
        });
        ticket.and_then(|ticket| ticket.durable()).expect("a transaction");
    }

    /// Files without a name.
    pub(crate) fn orphans(&self) -> Result<Vec<u64>> {
        let found = self.stm.read(|tx| self.orphans.iter(tx)?.collect::<TxResult<Vec<_>>>())?;
        Ok(found.into_iter().map(|(ino, _)| ino).collect())
    }

    /// Numbers of all files.
    pub(crate) fn files(&self) -> Result<Vec<u64>> {
        let found = self.stm.read(|tx| self.rows.iter(tx)?.map(|row| Ok(row?.0)).collect::<TxResult<Vec<_>>>())?;
        Ok(found)
    }

    /// Folders and files that have entries or runs, whether they have a row or not. For a check.
    pub(crate) fn owners(&self) -> Result<Vec<u64>> {
        let found = self.stm.read(|tx| {
            let mut owners: Vec<u64> = Vec::new();
            let high = |key: u128| low_u64(key >> 64);
            let mut note = |ino| {
                if owners.last() != Some(&ino) {
                    owners.push(ino)
                }
            };
            for entry in self.entries.iter(tx)? {
                note(high(entry?.0));
            }
            for run in self.extents.iter(tx)? {
                note(high(run?.0));
            }
            Ok(owners)
        })?;
        Ok(found)
    }

    /// The whole file `ino`, if there is one.
    pub(crate) fn load(&self, ino: u64) -> Result<Option<Inode>> {
        let loaded = self.stm.read(|tx| self.read(tx, ino))?;
        let Some(loaded) = loaded else { return Ok(None) };
        let finding = || damaged("image", format!("the row, the entries or the pages of file {ino} make no sense"));
        loaded.inode(ino).map(Some).ok_or_else(finding)
    }

    fn read(&self, tx: &mut Tx<'_>, ino: u64) -> TxResult<Option<Loaded>> {
        let Some(row) = self.rows.get(tx, &ino)? else { return Ok(None) };
        let mut loaded = Loaded { row, entries: Vec::new(), extents: Vec::new(), extra: Vec::new() };
        let Some(row) = Row::from_bytes(ino, &loaded.row) else { return Ok(Some(loaded)) };
        let (low, high) = (pair(ino, 0), pair(ino, u64::MAX));
        match row.attributes.kind() {
            FileKind::Folder => {
                for entry in self.entries.range(tx, Bound::Included(&low), Bound::Included(&high))? {
                    loaded.entries.push(entry?);
                }
            }
            FileKind::File => {
                for run in self.extents.range(tx, Bound::Included(&low), Bound::Included(&high))? {
                    loaded.extents.push(run?);
                }
            }
            _ => {}
        }
        if row.has_extra || row.attributes.kind() == FileKind::Link {
            for extra in self.extra.prefix(tx, &ino.to_be_bytes())? {
                loaded.extra.push(extra?);
            }
        }
        Ok(Some(loaded))
    }

    /// Writes a batch. On return it is ordered; [`durable`](Self::durable) waits for it.
    pub(crate) fn write(&self, batch: &Batch) -> Result<lodestone_stm::Ticket<()>> {
        let ticket = self.stm.update_async(|tx| self.write_in(tx, batch))?;
        Ok(ticket)
    }

    fn write_in(&self, tx: &mut Tx<'_>, batch: &Batch) -> TxResult<()> {
        let head = tx.write(self.head)?;
        let batches = head.batches + 1;
        if !planted::active("fs-image-applied-late") {
            *head = Head { batches, ..batch.head };
        }
        for (ino, row) in &batch.rows {
            place!(self.rows, tx, ino, row);
        }
        for ((folder, cookie), entry) in &batch.entries {
            let value = entry.as_ref().map(|(entry, name)| {
                let mut value = entry.ino.to_le_bytes().to_vec();
                value.extend(entry.kind.mode_bits().to_le_bytes());
                value.extend(name);
                value
            });
            place!(self.entries, tx, &pair(*folder, *cookie), &value);
        }
        for ((ino, first), run) in &batch.extents {
            place!(self.extents, tx, &pair(*ino, *first), &run.map(packed));
        }
        for ((ino, name), value) in &batch.extra {
            place!(self.extra, tx, &extra_key(*ino, name), value);
        }
        for (ino, is_there) in &batch.orphans {
            place!(self.orphans, tx, ino, &is_there.then_some(1));
        }
        for (chunk, bytes) in &batch.chunks {
            let bytes = (!bytes.is_empty()).then_some(bytes);
            place!(self.chunks, tx, chunk, bytes);
        }
        if !planted::active("fs-requests-not-in-image") {
            for (mount, bytes) in &batch.requests {
                place!(self.requests, tx, mount, bytes);
            }
        }
        Ok(())
    }

    /// The mark of a volume with replicas, if it has one.
    pub(crate) fn mark(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.stm.read(|tx| self.extra.get(tx, MARK_KEY))?)
    }

    /// Marks the volume as one with replicas, whose operations are counted from the beginning. Durable on return.
    pub(crate) fn set_mark(&self, mark: &[u8]) -> Result<()> {
        let mark = mark.to_vec();
        let ticket = self.stm.update_async(|tx| {
            tx.write(self.head)?.applied = 0;
            self.extra.insert(tx, MARK_KEY, &mark)?;
            Ok(())
        })?;
        ticket.durable()?;
        Ok(())
    }

    /// Checks the trees themselves.
    pub(crate) fn check(&self) -> Result<()> {
        self.stm.read(|tx| {
            self.rows.check(tx)?;
            self.entries.check(tx)?;
            self.extents.check(tx)?;
            self.extra.check(tx)?;
            self.orphans.check(tx)?;
            self.chunks.check(tx)?;
            self.requests.check(tx)?;
            Ok(())
        })?;
        Ok(())
    }
}

/// A file as the trees have it.
struct Loaded {
    row: Vec<u8>,
    entries: Vec<(u128, Vec<u8>)>,
    extents: Vec<(u128, u64)>,
    extra: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Loaded {
    /// The file. `None` when the parts make no sense.
    fn inode(self, ino: u64) -> Option<Inode> {
        let row = Row::from_bytes(ino, &self.row)?;
        let mut extra: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (key, value) in self.extra {
            extra.insert(key.get(8..)?.to_vec(), value);
        }
        let content = match row.attributes.kind() {
            FileKind::Folder => Content::Folder(folder(&row, self.entries)?),
            FileKind::File => {
                let runs = self.extents.into_iter().map(|(key, word)| (low_u64(key), unpacked(word)));
                Content::File(Extents::from_runs(runs)?)
            }
            FileKind::Link => Content::Link(extra.remove(&Vec::new())?),
            _ => Content::Special,
        };
        Some(Inode { attributes: row.attributes, content, extra })
    }
}

fn folder(row: &Row, entries: Vec<(u128, Vec<u8>)>) -> Option<Folder> {
    let mut folder = Folder::new(row.parent);
    folder.next_cookie = row.next_cookie;
    for (key, value) in entries {
        let (ino, rest) = value.split_first_chunk::<8>()?;
        let (kind, name) = rest.split_first_chunk::<4>()?;
        let cookie = low_u64(key);
        let kind = FileKind::of_mode(u32::from_le_bytes(*kind))?;
        let is_new = cookie < row.next_cookie && !name.is_empty() && folder.get(name).is_none();
        is_new.then(|| folder.restore(name, Entry { ino: u64::from_le_bytes(*ino), cookie, kind }))?;
    }
    Some(folder)
}
