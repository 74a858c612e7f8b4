//! Operations on the content of files: read, write, truncate, allocate, seek.
//!
//! A write goes to new pages; the operation then makes them count and frees the old ones. So a crash leaves the old
//! content or the new one, and a page that is damaged on its way is found by its checksum.
//!
//! Invariant: bytes of a page after the end of its file are zero. A change of a file's length relies on it.

use lodestone_pmem::{Domain, planted};
use lodestone_width::{to_u64, to_usize};

use crate::access::{Caller, WRITE, without_set_id};
use crate::cluster::link::QUORUM_WAIT;
use crate::core::{Core, Inner};
use crate::error::{Error, Refusal, Result};
use crate::extents::{Extents, Run};
use crate::inode::{Attributes, FILE_BYTES_MAX, FileKind};
use crate::op::{Action, ContentChange, OP_PAGES_MAX, Op};
use crate::requests::Tag;
use crate::volume::Volume;

/// The work of [`Volume::allocate`] on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Looks for room; the file becomes longer when `grows`.
    Room {
        /// Whether the file may become longer.
        grows: bool,
    },
    /// Makes it a hole.
    Punch,
    /// Makes it read as zeroes; the file becomes longer when `grows`.
    Zero {
        /// Whether the file may become longer.
        grows: bool,
    },
}

/// The target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next byte that has a page.
    Data,
    /// The next hole; the end of the file is one.
    Hole,
}

/// Most bytes of a write that the log has as well.
const INLINE_BYTES_MAX: usize = 16 << 10;

/// Pages that only removals may use: one of a hundred.
pub(crate) const fn reserve_pages(pages: u64) -> u64 {
    let share = pages / 100;
    if share < 8 { 8 } else { share }
}

/// A part of a file that is read: page, place in the answer.
struct Piece {
    file_page: u64,
    run: Run,
    crcs: Vec<u32>,
}

impl Core {
    fn extents(&mut self, ino: u64) -> Result<(Attributes, &Extents)> {
        let inode = self.file(ino)?;
        match inode.attributes.kind() {
            FileKind::File => {}
            FileKind::Folder => return Err(Refusal::IsFolder.into()),
            _ => return Err(Refusal::Invalid.into()),
        }
        let attributes = inode.attributes;
        inode.extents().map(|extents| (attributes, extents)).ok_or_else(|| Refusal::Invalid.into())
    }
}

/// A reservation that is given up unless it is used.
struct Reserved<'i> {
    inner: &'i Inner,
    runs: Vec<Run>,
    /// Their content, when replicas keep it.
    bytes: Vec<u8>,
}

impl Reserved<'_> {
    /// Runs and content, for replicas.
    fn parts(&self, page_bytes: u64) -> Vec<(Run, &[u8])> {
        let (mut rest, mut parts) = (self.bytes.as_slice(), Vec::new());
        for run in self.runs.iter().filter(|_| !self.bytes.is_empty()) {
            let (piece, others) = rest.split_at(to_usize(run.count * page_bytes));
            parts.push((*run, piece));
            rest = others;
        }
        parts
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.runs.is_empty() {
            let mut core = self.inner.core();
            self.runs.iter().for_each(|run| core.state.space.unreserve(*run));
        }
    }
}

impl Inner {
    /// Reserves pages, also of those that are kept for removals if `removes`. When there are too few, the quarantine is
    /// ended first.
    fn reserve(&self, count: u64, removes: bool) -> Result<Reserved<'_>> {
        for attempt in 0..2 {
            let mut core = self.core();
            core.check_poison()?;
            core.release_gated();
            let keep = if removes { 0 } else { reserve_pages(core.state.space.pages()) };
            if core.state.space.free() >= count + keep
                && let Some(runs) = core.state.space.reserve(count)
            {
                return Ok(Reserved { inner: self, runs, bytes: Vec::new() });
            }
            drop(core);
            if attempt == 0 {
                self.write_image()?;
                self.wait_for_gated()?;
            }
        }
        Err(Refusal::NoSpace.into())
    }

    /// Waits until every replica has seen the freed pages that wait for that.
    fn wait_for_gated(&self) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        let newest = self.core().gated.back().map(|gated| gated.0);
        newest.map_or(Ok(()), |sequence| link.wait_stable(sequence, QUORUM_WAIT))
    }

    /// Fills `out` from `offset` on. Returns how many bytes the file has there.
    fn read(&self, ino: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut core = self.core();
        let (file, extents) = core.extents(ino)?;
        let end = file.size.min(offset.saturating_add(to_u64(out.len())));
        if offset >= end {
            return Ok(0);
        }
        let (from, to) = (offset / self.page_bytes(), end.div_ceil(self.page_bytes()));
        let found: Vec<(u64, Run)> = extents.within(from, to).collect();
        let mut pieces = Vec::with_capacity(found.len());
        for (file_page, run) in found {
            let crc = |page| core.state.checksums.get(&page).copied().or_else(|| self.data.checksum(page));
            let crcs: Option<Vec<u32>> = (run.page..run.page + run.count).map(crc).collect();
            let damaged = Error::DamagedPage { ino, offset: file_page * self.page_bytes(), page: run.page };
            pieces.push(Piece { file_page, run, crcs: crcs.ok_or(damaged)? });
        }
        // Taken under the lock: a batch that releases these pages waits until they are read.
        let reading = self.readers.enter();
        drop(core);
        let out = &mut out[..to_usize(end - offset)];
        self.read_pieces(ino, offset, &pieces, out)?;
        drop(reading);
        Ok(out.len())
    }

    fn read_pieces(&self, ino: u64, offset: u64, pieces: &[Piece], out: &mut [u8]) -> Result<()> {
        let mut done = offset;
        let end = offset + to_u64(out.len());
        let mut scratch = Vec::new();
        for piece in pieces {
            let (start, stop) =
                (piece.file_page * self.page_bytes(), (piece.file_page + piece.run.count) * self.page_bytes());
            if start > done {
                out[to_usize(done - offset)..to_usize(start - offset)].fill(0);
            }
            let (begin, stop_in) = (start.max(offset), stop.min(end));
            let target = &mut out[to_usize(begin - offset)..to_usize(stop_in - offset)];
            if begin == start && stop_in == stop {
                self.read_run(ino, piece, target)?;
            } else {
                // Checksums are of whole pages.
                scratch.resize(to_usize(stop - start), 0);
                self.read_run(ino, piece, &mut scratch)?;
                target.copy_from_slice(&scratch[to_usize(begin - start)..to_usize(stop_in - start)]);
            }
            done = stop_in;
        }
        out[to_usize(done - offset)..].fill(0);
        Ok(())
    }

    /// Reads whole pages and compares their checksums.
    fn read_run(&self, ino: u64, piece: &Piece, out: &mut [u8]) -> Result<()> {
        if let Some(link) = &self.link {
            let found = link.read(piece.run, &piece.crcs, out)?;
            self.to_mend(found.damaged);
            let lost = found.lost.map(|page| self.damaged(ino, piece, page - piece.run.page));
            return lost.map_or(Ok(()), Err);
        }
        let is_there = self.data.read(piece.run, out)?;
        let pages = out.chunks_exact(to_usize(self.page_bytes())).zip(&piece.crcs).zip(0..);
        for ((bytes, crc), index) in pages {
            if is_there && (crc32c::crc32c(bytes) == *crc || planted::active("fs-checksums-ignored")) {
                continue;
            }
            return Err(self.damaged(ino, piece, index));
        }
        Ok(())
    }

    /// The error of the page number `index` of a piece, which is logged.
    fn damaged(&self, ino: u64, piece: &Piece, index: u64) -> Error {
        let (offset, page) = ((piece.file_page + index) * self.page_bytes(), piece.run.page + index);
        let error = Error::DamagedPage { ino, offset, page };
        tracing::error!("{}: {error}", self.store.pool().path().display());
        error
    }

    /// One page of a file as it is now; zeroes where it has none.
    fn page(&self, ino: u64, file_page: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(self.page_bytes())];
        self.read(ino, file_page * self.page_bytes(), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes whole pages into new places. Adds them to `change`.
    fn put_pages(&self, first: u64, bytes: &[u8], change: &mut ContentChange, removes: bool) -> Result<Reserved<'_>> {
        let mut reserved = self.reserve(to_u64(bytes.len()) / self.page_bytes(), removes)?;
        if self.link.is_some() {
            reserved.bytes = bytes.to_vec();
        }
        let (mut at, mut rest) = (first, bytes);
        for run in &reserved.runs {
            let (piece, others) = rest.split_at(to_usize(run.count * self.page_bytes()));
            if self.link.is_some() {
                change.crcs.extend(piece.chunks_exact(to_usize(self.page_bytes())).map(crc32c::crc32c));
            } else {
                self.data.write(*run, piece, &mut change.crcs)?;
            }
            change.puts.push((at, *run));
            (at, rest) = (at + run.count, others);
        }
        if self.is_inlined(bytes.len()) {
            change.payload.extend_from_slice(bytes);
        }
        Ok(reserved)
    }

    /// Whether the log has the bytes of a write as well. In the `block` domain a sync then waits for the log alone, not
    /// for the pages and then for the log. Such writes are written twice, so only those that are soon synced do it.
    fn is_inlined(&self, bytes: usize) -> bool {
        self.link.is_none()
            && self.memory.domain() == Domain::Block
            && bytes <= INLINE_BYTES_MAX
            && self.core().is_synced_often()
    }

    /// Logs a change of content. The reservations become the file's.
    fn commit_content(
        &self,
        (caller, tag): (&Caller, Option<Tag>),
        ino: u64,
        mut change: ContentChange,
        mut reserved: Vec<Reserved<'_>>,
    ) -> Result<Attributes> {
        let pages: u64 = change.puts.iter().map(|(_, run)| run.count).sum();
        if to_u64(change.payload.len()) != pages * self.page_bytes() {
            // Edges of which one was inlined: all or none.
            change.payload.clear();
        }
        let is_inline = pages == 0 || !change.payload.is_empty();
        let plan = |core: &mut Core, at| {
            let (file, _) = core.extents(ino)?;
            let mode = without_set_id(file.mode);
            change.mode = Some(mode).filter(|mode| *mode != file.mode && !caller.is_root() && change.touches);
            Ok(Some((Op { ino, at, action: Action::Content(change.clone()) }, ())))
        };
        let parts: Vec<(Run, &[u8])> = reserved.iter().flat_map(|one| one.parts(self.page_bytes())).collect();
        let done = |core: &mut Core, ()| {
            core.counts.pages_written += pages;
            core.since_sync += 1;
            core.relies_on_pages |= !is_inline;
            core.attributes(ino)
        };
        let nothing = || Err(Refusal::Invalid.into());
        let file = self.commit_for(tag, &parts, plan, |core, ()| Ok(done(core, ())), nothing)?;
        drop(parts);
        // The pages are the file's now, whatever its attributes are.
        reserved.iter_mut().for_each(|used| used.runs.clear());
        file
    }

    /// Writes at most [`OP_PAGES_MAX`] pages, and with replicas at most a quarter of the ring of a unit, under the lock
    /// of the file's content.
    fn write_piece(&self, by: (&Caller, Option<Tag>), ino: u64, offset: u64, bytes: &[u8]) -> Result<Attributes> {
        let size = {
            let mut core = self.core();
            core.extents(ino)?.0.size
        };
        let end = offset + to_u64(bytes.len());
        let first = offset / self.page_bytes();
        let mut change = ContentChange { size: size.max(end), touches: true, ..ContentChange::default() };
        let is_whole = offset.is_multiple_of(self.page_bytes()) && end.is_multiple_of(self.page_bytes());
        let reserved = if is_whole {
            self.put_pages(first, bytes, &mut change, false)?
        } else {
            let pages = self.merged(ino, offset, bytes)?;
            self.put_pages(first, &pages, &mut change, false)?
        };
        self.commit_content(by, ino, change, vec![reserved])
    }

    /// Whole pages: `bytes` at `offset`, and around them what the file has.
    fn merged(&self, ino: u64, offset: u64, bytes: &[u8]) -> Result<Vec<u8>> {
        let end = offset + to_u64(bytes.len());
        let (first, last) = (offset / self.page_bytes(), (end - 1) / self.page_bytes());
        let (head, tail) = (to_usize(offset % self.page_bytes()), to_usize(end % self.page_bytes()));
        let mut pages = vec![0; to_usize((last + 1 - first) * self.page_bytes())];
        let whole = to_usize(self.page_bytes());
        let last_at = pages.len() - whole;
        if head > 0 {
            pages[..whole].copy_from_slice(&self.page(ino, first)?);
        }
        if tail > 0 && (last > first || head == 0) {
            pages[last_at..].copy_from_slice(&self.page(ino, last)?);
        }
        pages[head..head + bytes.len()].copy_from_slice(bytes);
        Ok(pages)
    }

    /// A change that makes the bytes `from..to` of the file zeroes: holes, and edges of pages. The file has `size`
    /// bytes.
    fn clear(&self, ino: u64, from: u64, to: u64, size: u64, change: &mut ContentChange) -> Result<Vec<Reserved<'_>>> {
        let (first, last) = (from.div_ceil(self.page_bytes()), to / self.page_bytes());
        let mut reserved = Vec::new();
        if first < last {
            change.cuts.push((first, last));
        }
        let (head, tail) = (from / self.page_bytes(), to / self.page_bytes());
        let edges = if head == tail { vec![head] } else { vec![head, tail] };
        for page in edges {
            let (start, stop) = (page * self.page_bytes(), (page + 1) * self.page_bytes());
            let (begin, end) = (from.max(start), to.min(stop));
            let is_edge = begin < end && (begin > start || end < stop) && start < size;
            let has_page = is_edge && self.core().extents(ino)?.1.page_of(page).is_some();
            if has_page {
                let mut bytes = self.page(ino, page)?;
                bytes[to_usize(begin - start)..to_usize(end - start)].fill(0);
                reserved.push(self.put_pages(page, &bytes, change, true)?);
            }
        }
        Ok(reserved)
    }
}

impl Volume {
    /// Reads from `offset` on. Returns how many bytes were read: fewer than asked for at the end of the file.
    ///
    /// # Errors
    /// [`Error::DamagedPage`]: never wrong bytes.
    pub fn read(&self, ino: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.inner.read(ino, offset, out)
    }

    /// Notes in the access time that the file was read.
    ///
    /// # Errors
    /// A device that failed.
    pub fn note_read(&self, ino: u64) -> Result<()> {
        self.inner.core().check_poison()?;
        self.touch_read(ino)
    }

    /// Writes `bytes` at `offset`: of up to four mebibytes all or, after a crash, nothing.
    ///
    /// # Errors
    /// No space; a file that would be too large; no file.
    pub fn write(&self, caller: &Caller, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let _stripe = self.inner.stripe(ino);
        self.write_locked(caller, ino, offset, bytes)
    }

    /// Writes `bytes` at the end, wherever that is. Returns the offset. Atomic with other appends.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn append(&self, caller: &Caller, ino: u64, bytes: &[u8]) -> Result<u64> {
        let _stripe = self.inner.stripe(ino);
        let offset = self.inner.core().attributes(ino)?.size;
        self.write_locked(caller, ino, offset, bytes)?;
        Ok(offset)
    }

    fn write_locked(&self, caller: &Caller, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(to_u64(bytes.len())).filter(|end| *end <= FILE_BYTES_MAX);
        end.ok_or(Refusal::FileTooLarge)?;
        let (mut at, mut rest) = (offset, bytes);
        let pages_max = self.inner.link.as_ref().map_or(OP_PAGES_MAX, |link| link.op_pages_max().min(OP_PAGES_MAX));
        while !rest.is_empty() {
            let room = (at / self.inner.page_bytes() + pages_max) * self.inner.page_bytes() - at;
            let (piece, others) = rest.split_at(to_usize(room.min(to_u64(rest.len()))));
            // A write of several operations has no number of its request: none of them alone says that it is done.
            let tag = self.tag.filter(|_| piece.len() == bytes.len());
            self.inner.write_piece((caller, tag), ino, at, piece)?;
            (at, rest) = (at + to_u64(piece.len()), others);
        }
        Ok(())
    }

    /// Makes the file `size` bytes long. New bytes are zeroes.
    ///
    /// # Errors
    /// As [`write`](Self::write); no permission.
    pub fn truncate(&self, caller: &Caller, ino: u64, size: u64) -> Result<Attributes> {
        if size > FILE_BYTES_MAX {
            return Err(Refusal::FileTooLarge.into());
        }
        let _stripe = self.inner.stripe(ino);
        let old = {
            let mut core = self.inner.core();
            let file = core.extents(ino)?.0;
            caller.need(&file, WRITE)?;
            file.size
        };
        let mut change = ContentChange { size, touches: true, ..ContentChange::default() };
        let mut reserved = Vec::new();
        if size < old && !planted::active("fs-truncate-keeps-bytes") {
            let end = old.next_multiple_of(self.inner.page_bytes());
            reserved = self.inner.clear(ino, size, end, old, &mut change)?;
        }
        self.inner.commit_content((caller, self.tag), ino, change, reserved)
    }

    /// Allocates, punches or clears a range.
    ///
    /// # Errors
    /// As [`write`](Self::write). `Room` needs free pages for what is not there yet, but does not hold them.
    pub fn allocate(&self, caller: &Caller, ino: u64, offset: u64, length: u64, what: Allocation) -> Result<()> {
        let end = offset.checked_add(length).ok_or(Refusal::FileTooLarge)?;
        if length == 0 {
            return Err(Refusal::Invalid.into());
        }
        if end > FILE_BYTES_MAX {
            return Err(Refusal::FileTooLarge.into());
        }
        let _stripe = self.inner.stripe(ino);
        let old = self.inner.core().extents(ino)?.0.size;
        let grows = matches!(what, Allocation::Room { grows: true } | Allocation::Zero { grows: true });
        let size = if grows { old.max(end) } else { old };
        let mut change = ContentChange { size, touches: true, ..ContentChange::default() };
        let mut reserved = Vec::new();
        if let Allocation::Room { .. } = what {
            self.need_room(ino, offset / self.inner.page_bytes(), end.div_ceil(self.inner.page_bytes()))?;
            if size == old {
                return Ok(());
            }
        } else {
            let stop = end.min(old.next_multiple_of(self.inner.page_bytes()));
            if offset < stop {
                reserved = self.inner.clear(ino, offset, stop, old, &mut change)?;
            }
        }
        self.inner.commit_content((caller, self.tag), ino, change, reserved)?;
        Ok(())
    }

    fn need_room(&self, ino: u64, from: u64, to: u64) -> Result<()> {
        let missing = {
            let mut core = self.inner.core();
            let there: u64 = core.extents(ino)?.1.within(from, to).map(|(_, run)| run.count).sum();
            to - from - there
        };
        if missing > self.room().available { Err(Refusal::NoSpace.into()) } else { Ok(()) }
    }

    /// The next data or the next hole at or after `offset`.
    ///
    /// # Errors
    /// [`Refusal::Beyond`] when there is none.
    pub fn seek(&self, ino: u64, offset: u64, to: SeekTo) -> Result<u64> {
        let mut core = self.inner.core();
        let (file, extents) = core.extents(ino)?;
        if offset >= file.size {
            return Err(Refusal::Beyond.into());
        }
        let page = offset / self.inner.page_bytes();
        match to {
            SeekTo::Data => {
                let found = extents.next_data(page).map(|page| (page * self.inner.page_bytes()).max(offset));
                found.filter(|at| *at < file.size).ok_or_else(|| Refusal::Beyond.into())
            }
            SeekTo::Hole => Ok((extents.next_hole(page) * self.inner.page_bytes()).max(offset).min(file.size)),
        }
    }
}
