//! The volume in memory: files that were looked at, and the changes that the image lacks.
//!
//! A file is loaded whole from the image when it is first needed: its row, entries, runs and attributes. So an open
//! reads no file. Files that have changed since the last batch of the image stay in memory; the others may be dropped.

use std::collections::{BTreeSet, HashMap};

use lodestone_fabric::Sequence;
use lodestone_pmem::planted;

use crate::apply::apply;
use crate::error::{Result, damaged};
use crate::extents::Run;
use crate::image::{Batch, Head, Image};
use crate::inode::{Content, Inode};
use crate::op::Op;
use crate::requests::{Requests, Tag};
use crate::space::Space;

/// The places of the image that a batch must write.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) rows: BTreeSet<u64>,
    /// Folder and cookie.
    pub(crate) entries: BTreeSet<(u64, u64)>,
    /// File and first file page.
    pub(crate) extents: BTreeSet<(u64, u64)>,
    pub(crate) extra: BTreeSet<(u64, Vec<u8>)>,
    /// Files that became links since then: their targets.
    pub(crate) targets: BTreeSet<u64>,
    pub(crate) orphans: BTreeSet<u64>,
}

impl Dirty {
    fn has(&self, ino: u64) -> bool {
        self.rows.contains(&ino)
    }
}

/// The state.
#[derive(Debug)]
pub(crate) struct State {
    inodes: HashMap<u64, Inode>,
    pub(crate) image: Image,
    pub(crate) head: Head,
    pub(crate) space: Space,
    /// Requests of mounts in other processes that were carried out.
    pub(crate) requests: Requests,
    /// Checksums of pages that the table does not have yet.
    pub(crate) checksums: HashMap<u64, u32>,
    pub(crate) dirty: Dirty,
    /// Files of the batch that is being written: they stay until it is durable.
    in_batch: BTreeSet<u64>,
}

impl State {
    pub(crate) fn new(image: Image, head: Head, space: Space) -> Self {
        Self {
            inodes: HashMap::new(),
            image,
            head,
            space,
            requests: Requests::default(),
            checksums: HashMap::new(),
            dirty: Dirty::default(),
            in_batch: BTreeSet::new(),
        }
    }

    /// The state of an image, for a volume of so many pages.
    pub(crate) fn load(image: Image, pages: u64) -> Result<Self> {
        let mut space = Space::new(pages);
        image.load_space(&mut space)?;
        let head = image.head()?;
        let requests = image.load_requests()?;
        Ok(Self { requests, ..Self::new(image, head, space) })
    }

    /// Executes an operation of the log, and remembers the request that it was for.
    pub(crate) fn execute(&mut self, (op, tag): &(Op, Option<Tag>), number: Sequence) -> Result<()> {
        // The metadata node refuses a request that was carried out. So log or image are wrong.
        if let Some(tag) = tag.filter(|tag| self.requests.has(*tag)) {
            let finding = "which the image or an operation before it has, too";
            return Err(damaged(
                "log of operations",
                format!("operation {} is request {} of mount {:016x}, {finding}", number.0, tag.request, tag.mount),
            ));
        }
        self.requests.note(*tag, number);
        apply(self, op)
    }

    /// The file `ino`, if there is one.
    pub(crate) fn find(&mut self, ino: u64) -> Result<Option<&mut Inode>> {
        if !self.inodes.contains_key(&ino) {
            // A file that is dirty or in a batch is in memory, unless it is gone.
            if self.dirty.has(ino) || self.in_batch.contains(&ino) {
                return Ok(None);
            }
            let Some(inode) = self.image.load(ino)? else { return Ok(None) };
            self.inodes.insert(ino, inode);
        }
        Ok(self.inodes.get_mut(&ino))
    }

    /// The file `ino`, which an operation relies on.
    pub(crate) fn need(&mut self, ino: u64) -> Result<&mut Inode> {
        self.find(ino)?.ok_or_else(|| missing(ino))
    }

    /// As [`need`](Self::need), and its row changes.
    pub(crate) fn change(&mut self, ino: u64) -> Result<&mut Inode> {
        self.dirty_after_load(ino)?;
        self.need(ino)
    }

    fn dirty_after_load(&mut self, ino: u64) -> Result<()> {
        self.need(ino)?;
        self.dirty.rows.insert(ino);
        Ok(())
    }

    /// Puts a new file in.
    pub(crate) fn put(&mut self, inode: Inode) {
        let ino = inode.attributes.ino;
        self.dirty.rows.insert(ino);
        if matches!(inode.content, Content::Link(_)) {
            self.dirty.targets.insert(ino);
        }
        self.inodes.insert(ino, inode);
    }

    /// Takes a file out that is gone.
    pub(crate) fn take(&mut self, ino: u64) -> Result<Inode> {
        self.dirty_after_load(ino)?;
        self.inodes.remove(&ino).ok_or_else(|| missing(ino))
    }

    /// Whether the image lacks something.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.rows.is_empty() || self.space.has_freed()
    }

    /// Everything that the image lacks, as it is now. The caller calls [`end_batch`](Self::end_batch) when it is
    /// durable.
    pub(crate) fn begin_batch(&mut self, applied: u64) -> Batch {
        let dirty = std::mem::take(&mut self.dirty);
        self.head.applied = applied;
        let (chunks, freed) = self.space.begin_batch();
        let find = |ino: &u64| self.inodes.get(ino);
        let rows = dirty.rows.iter().map(|ino| (*ino, find(ino).map(|inode| inode.row().to_bytes()))).collect();
        let entry = |(ino, cookie): &(u64, u64)| {
            let entry = find(ino).and_then(Inode::folder).and_then(|folder| folder.at(*cookie));
            ((*ino, *cookie), entry.map(|(name, entry)| (entry, name.to_vec())))
        };
        let extent = |(ino, first): &(u64, u64)| {
            ((*ino, *first), find(ino).and_then(Inode::extents).and_then(|extents| extents.starting_at(*first)))
        };
        let extra = |(ino, name): &(u64, Vec<u8>)| {
            ((*ino, name.clone()), find(ino).and_then(|inode| inode.extra.get(name).cloned()))
        };
        let target = |ino: &u64| {
            let target = find(ino).and_then(|inode| match &inode.content {
                Content::Link(target) => Some(target.clone()),
                _ => None,
            });
            ((*ino, Vec::new()), target)
        };
        let orphan = |ino: &u64| (*ino, find(ino).is_some_and(|inode| inode.attributes.links == 0));
        let mut checksums: Vec<(u64, u32)> = self.checksums.iter().map(|(page, crc)| (*page, *crc)).collect();
        checksums.sort_unstable();
        let batch = Batch {
            head: self.head,
            rows,
            entries: dirty.entries.iter().map(entry).collect(),
            extents: dirty.extents.iter().map(extent).collect(),
            extra: dirty.extra.iter().map(extra).chain(dirty.targets.iter().map(target)).collect(),
            orphans: dirty.orphans.iter().map(orphan).collect(),
            chunks,
            requests: self.requests.take_dirty(),
            checksums,
            freed,
        };
        self.in_batch = dirty.rows;
        batch
    }

    /// The batch is durable: its checksums are in the table. The caller ends its quarantine.
    pub(crate) fn end_batch(&mut self, batch: &Batch) {
        for (page, crc) in &batch.checksums {
            if self.checksums.get(page) == Some(crc) {
                self.checksums.remove(page);
            }
        }
        self.in_batch.clear();
    }

    /// The batch did not become durable, and never will: everything in it is to be written by the next one.
    pub(crate) fn undo_batch(&mut self, batch: &Batch, applied: u64) {
        self.head.applied = applied;
        let dirty = &mut self.dirty;
        dirty.rows.extend(batch.rows.iter().map(|(ino, _)| *ino));
        dirty.entries.extend(batch.entries.iter().map(|(place, _)| *place));
        dirty.extents.extend(batch.extents.iter().map(|(place, _)| *place));
        let (targets, extra): (Vec<_>, Vec<_>) = batch.extra.iter().partition(|((_, name), _)| name.is_empty());
        dirty.targets.extend(targets.iter().map(|((ino, _), _)| *ino));
        dirty.extra.extend(extra.into_iter().map(|(place, _)| place.clone()));
        dirty.orphans.extend(batch.orphans.iter().map(|(ino, _)| *ino));
        self.requests.dirty_again(batch.requests.iter().map(|(mount, _)| *mount));
        self.space.undo_batch(batch.chunks.iter().map(|(chunk, _)| *chunk), &batch.freed);
        self.in_batch.clear();
    }

    /// Drops files that did not change, until at most `keep` are left.
    pub(crate) fn evict(&mut self, keep: usize, is_used: impl Fn(u64) -> bool) {
        let mut excess = self.inodes.len().saturating_sub(keep);
        if excess == 0 {
            return;
        }
        let (dirty, in_batch) = (&self.dirty, &self.in_batch);
        self.inodes.retain(|ino, _| {
            let stays = excess == 0 || dirty.has(*ino) || in_batch.contains(ino) || is_used(*ino);
            excess -= usize::from(!stays);
            stays
        });
    }

    /// Frees pages of a file.
    pub(crate) fn give(&mut self, runs: &[Run]) -> Result<()> {
        for run in runs {
            if !self.space.give(*run) {
                return Err(damaged(
                    "bitmap of pages",
                    format!("pages {} to {} are freed, but belong to no file", run.page, run.page + run.count - 1),
                ));
            }
            (run.page..run.page + run.count).for_each(|page| _ = self.checksums.remove(&page));
            if planted::active("fs-quarantine-skipped") {
                self.space.skip_quarantine();
            }
        }
        Ok(())
    }
}

#[cold]
fn missing(ino: u64) -> crate::Error {
    damaged("namespace", format!("file {ino} is missing"))
}
