//! Bulk writes around the cache, and when other threads may be told of them.
//!
//! 1. Whole lines are written with the processor's non-temporal stores; a ragged head or tail is stored and flushed.
//! 2. A call ends with one store fence, however many lines and pieces it wrote. The processor may make non-temporal
//!    stores visible after later ordinary ones, also after a release store. The fence rules that out.
//!
//! Invariant: between a non-temporal store and the store fence only this file's code runs, and a medium that is told of
//! the access. That holds however the call ends. So a flag, a lock or a channel of safe code orders streamed bytes as
//! it orders stored ones.
//!
//! The rule is about visibility. The trace does not see this fence, no budget counts it, and persistence still needs
//! `fence`.
#![expect(unsafe_code, reason = "streaming stores into a checked range")]

use std::panic::Location;

use lodestone_width::{to_u64, to_usize};

use super::Memory;
use super::hooks::to_words;
use crate::addr::{LINE_BYTES, PmAddr, WORD_BYTES, lines_of};
use crate::block::BlockDomain;
use crate::cpu::{self, StreamInstruction};
use crate::domain::Domain;
use crate::error::Result;
use crate::pool::layout::PAGE_BYTES;
use crate::tracer::Site;

/// From this size on a write that is not read soon goes around the cache: a 4 KiB stream costs a quarter of write plus
/// clwb, a 64-byte one about the same (measured; `lodestone bench substrate` repeats it).
pub const STREAM_BYTES_MIN: usize = 512;

impl Memory {
    /// Writes `bytes` at `at` around the cache. They are persistent after the next fence, without a flush. Until then
    /// they may become persistent in any order, even within a line. Meant for bulk data that is not read soon. The last
    /// word is filled up with zeroes.
    ///
    /// *Visibility.* On return the bytes are visible before anything that this thread stores later, as those of
    /// [`write`](Self::write) are. So a flag, a pointer or an answer may publish them. The processor alone does not
    /// promise that for non-temporal stores, so the call ends with a store fence. Several pieces share one fence in
    /// [`stream_each`](Self::stream_each).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    #[track_caller]
    pub fn stream(&self, at: PmAddr, bytes: &[u8]) {
        self.stream_each(&[(at, bytes)]);
    }

    /// [`stream`](Self::stream) for several pieces. They become visible in any order, all of them before the call
    /// returns.
    ///
    /// # Panics
    /// As [`write`](Self::write); the pieces before the refused one are written.
    #[inline]
    #[track_caller]
    pub fn stream_each(&self, pieces: &[(PmAddr, &[u8])]) {
        /// Ends the streams however the loop ends: a refused piece is a panic, and the code that catches it may
        /// publish.
        struct Publish<'m>(&'m Memory, bool, &'m [(PmAddr, &'m [u8])]);
        impl Drop for Publish<'_> {
            #[inline]
            fn drop(&mut self) {
                if self.1 {
                    self.0.publish_streams();
                }
                // Not before they are visible.
                self.2.iter().for_each(|(at, bytes)| self.0.inner.changes.note(*at, to_u64(bytes.len())));
            }
        }
        let site = Location::caller();
        let mut publish = Publish(self, false, pieces);
        for &(at, bytes) in pieces {
            publish.1 |= self.uses_streams(bytes);
            self.stream_piece(at, bytes, site);
        }
    }

    /// Whether a stream of `bytes` may use instructions whose stores are not ordered by themselves.
    #[inline]
    fn uses_streams(&self, bytes: &[u8]) -> bool {
        to_u64(bytes.len()) >= LINE_BYTES
            && self.inner.domain.has_dax_instructions()
            && self.inner.stream_instruction != StreamInstruction::Plain
    }

    /// Makes this thread's streamed bytes visible before anything that it stores later. It is no fence of the contract:
    /// its effect on persistence is not promised, traced or counted.
    #[inline]
    fn publish_streams(&self) {
        // The processor waits here for what it streamed.
        self.hook_store_fence();
        // Non-temporal stores may become visible after later ordinary stores, also after a release store.
        cpu::store_fence();
    }

    /// [`stream`](Self::stream) without its end. The caller calls [`publish_streams`](Self::publish_streams) before it
    /// stores anything by which another thread could learn of the bytes, and before it returns to code that could.
    #[inline]
    #[track_caller]
    fn stream_piece(&self, at: PmAddr, bytes: &[u8], site: Site) {
        match self.inner.domain {
            Domain::Dax | Domain::DaxEmulated => self.stream_dax(at, bytes, site),
            Domain::Eadr | Domain::Process => self.write(at, bytes),
            Domain::Block => {
                self.write(at, bytes);
                self.flush(at, to_u64(bytes.len()));
            }
            Domain::Traced => {
                let words = to_words(bytes);
                self.trace_stream(at, &words, site);
                self.words(at, to_u64(words.len())).store_each(&words);
            }
        }
    }

    /// As [`stream_piece`](Self::stream_piece), in a domain with the instructions of `dax`.
    #[inline]
    #[track_caller]
    fn stream_dax(&self, at: PmAddr, bytes: &[u8], site: Site) {
        assert!(at.offset().is_multiple_of(WORD_BYTES), "words are aligned");
        self.assert_writable(site);
        // Whole lines are streamed; a ragged head or tail is written and flushed, which persists no later.
        let head = to_usize((at.offset().wrapping_neg() % LINE_BYTES).min(to_u64(bytes.len())));
        let lines = (bytes.len() - head) / to_usize(LINE_BYTES);
        let body = lines * to_usize(LINE_BYTES);
        if head > 0 {
            self.write(at, &bytes[..head]);
            self.flush(at, to_u64(head));
        }
        if lines > 0 {
            let target = self.pointer(at.plus(to_u64(head)), to_u64(body));
            self.hook_stream(at.plus(to_u64(head)), to_u64(body));
            // SAFETY: `pointer` checked the target range, which starts a line. `bytes` holds the source range. All
            // other access to the target is by word atomics. The instruction was checked when it was chosen.
            unsafe {
                cpu::stream_lines(self.inner.stream_instruction, target, bytes[head..].as_ptr(), lines);
                if self.inner.stream_instruction == StreamInstruction::Plain {
                    for line in 0..lines {
                        cpu::flush_line(self.inner.flush_instruction, target.add(line * to_usize(LINE_BYTES)));
                    }
                }
            }
        }
        if head + body < bytes.len() {
            let tail = at.plus(to_u64(head + body));
            self.write(tail, &bytes[head + body..]);
            self.flush(tail, to_u64(bytes.len() - head - body));
        }
    }

    /// Writes bulk data that nothing refers to yet, in the cheapest way of the domain. Outside the `block` domain it
    /// may also be lines whose loss the caller can mend, while no thread reads them. It is visible on return. After
    /// [`settle`](Self::settle) and a fence it is persistent, and before that it may be, in any order. In the `block`
    /// domain the bytes go to the file at once, and not through the journal, so they are written once. The caller has
    /// called [`clear_for_direct_writes`](Self::clear_for_direct_writes) for the range, and flushes nothing in it.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// let memory = Memory::anonymous(1 << 20)?;
    /// let (page, line) = (PmAddr::new(0, 8192), PmAddr::new(0, 4096));
    /// memory.clear_for_direct_writes(page, 4096)?;
    /// memory.write_directly(page, &[7; 4096])?;
    /// memory.settle()?;
    /// memory.fence(); // before the line that says that the page is there
    /// memory.store(line, page.to_raw());
    /// memory.persist(line, 8);
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// A device that failed: from then on nothing becomes durable.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[track_caller]
    pub fn write_directly(&self, at: PmAddr, bytes: &[u8]) -> Result<()> {
        let Some(block) = self.block().filter(|_| self.inner.domain == Domain::Block) else {
            self.write_back(at, bytes);
            return Ok(());
        };
        let mapping = &self.inner.parts[usize::from(at.part())];
        // Whole pages of a private mapping show the file as long as nothing is stored to them. Then the bytes take no
        // memory of this process.
        let whole = if mapping.is_private() { whole_pages(at, bytes.len()) } else { 0..0 };
        self.write(at, &bytes[..whole.start]);
        if whole.end < bytes.len() {
            self.write(at.plus(to_u64(whole.end)), &bytes[whole.end..]);
        }
        // Counted as a stream. The medium is told of the stores alone: the file is real.
        Self::count_stream(to_u64(bytes.len()));
        block.write_directly(at, bytes)?;
        mapping.drop_private(at.offset() + to_u64(whole.start), to_u64(whole.len()));
        self.inner.changes.note(at, to_u64(bytes.len()));
        Ok(())
    }

    /// Reads bytes that were [written directly](Self::write_directly), in the cheapest way of the domain. In the
    /// `block` domain that is from the file: they take no memory of this process but `bytes`.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// let memory = Memory::anonymous(1 << 20)?;
    /// let page = PmAddr::new(0, 8192);
    /// memory.clear_for_direct_writes(page, 4096)?;
    /// memory.write_directly(page, &[7; 4096])?;
    /// let mut bytes = [0; 64];
    /// memory.read_directly(page, &mut bytes)?;
    /// assert_eq!(bytes, [7; 64]);
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// A device that failed to read.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn read_directly(&self, at: PmAddr, bytes: &mut [u8]) -> Result<()> {
        self.read_directly_by(at, bytes, false)
    }

    /// As [`read_directly`](Self::read_directly), for a caller that caches what it reads: in the `block` domain the
    /// bytes do not come from the page cache of the system, nor stay there, if place, buffer and count are multiples of
    /// [`FILE_BLOCK_BYTES`](crate::FILE_BLOCK_BYTES) and the file allows it.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// let memory = Memory::anonymous(1 << 20)?;
    /// let mut bytes = [1; 64];
    /// memory.read_around_cache(PmAddr::new(0, 8192), &mut bytes)?;
    /// assert_eq!(bytes, [0; 64]);
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`read_directly`](Self::read_directly).
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn read_around_cache(&self, at: PmAddr, bytes: &mut [u8]) -> Result<()> {
        self.read_directly_by(at, bytes, true)
    }

    #[track_caller]
    fn read_directly_by(&self, at: PmAddr, bytes: &mut [u8], is_around_cache: bool) -> Result<()> {
        match self.block().filter(|_| self.inner.domain == Domain::Block) {
            Some(block) => block.read_directly(at, bytes, is_around_cache),
            None => {
                self.read(at, bytes);
                Ok(())
            }
        }
    }

    /// A direct write should have a multiple of so many bytes, and begin at one: else the rest of them takes memory of
    /// the process as well.
    ///
    /// ```
    /// use lodestone_pmem::Memory;
    /// assert_eq!(Memory::anonymous(1 << 20)?.direct_unit(), 64, "there is no file");
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    #[must_use]
    pub fn direct_unit(&self) -> u64 {
        if self.inner.domain == Domain::Block { PAGE_BYTES } else { LINE_BYTES }
    }

    /// The bytes that any thread has written directly are on the device on return, in the `block` domain. In the others
    /// the next fence makes them persistent.
    ///
    /// # Errors
    /// As [`write_directly`](Self::write_directly).
    pub fn settle(&self) -> Result<()> {
        self.block().map_or(Ok(()), BlockDomain::settle)
    }

    /// Prepares `len` bytes at `at` for direct writes: no older content of them is under way to the medium. The owner
    /// of the range calls it once, after everything that was flushed there. On return the file has what was flushed in
    /// the range, whatever becomes of the journal.
    ///
    /// # Errors
    /// As [`write_directly`](Self::write_directly).
    pub fn clear_for_direct_writes(&self, at: PmAddr, len: u64) -> Result<()> {
        let Some(block) = self.block() else { return Ok(()) };
        block.clear_for_direct_writes(at, len)?;
        self.inner.parts[usize::from(at.part())].drop_private(at.offset(), len);
        Ok(())
    }

    /// Appends `bytes` to a log: as [`write_back`](Self::write_back), for bytes that do not change until they are
    /// [discarded](Self::discard). Whole lines on line boundaries join the commit group of the `block` domain as one
    /// run: one lock, however many lines. No other thread stores or flushes in these lines meanwhile.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// let memory = Memory::anonymous(1 << 20)?;
    /// let record = PmAddr::new(0, 4096);
    /// memory.append(record, &[7; 192]);
    /// memory.fence();
    /// memory.durable()?;
    /// // Later, when something else that is durable says that the record is not read again:
    /// memory.discard(record, 192);
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    #[track_caller]
    pub fn append(&self, at: PmAddr, bytes: &[u8]) {
        let is_whole = at.offset().is_multiple_of(LINE_BYTES) && to_u64(bytes.len()).is_multiple_of(LINE_BYTES);
        match self.block().filter(|_| self.inner.domain == Domain::Block && is_whole && !bytes.is_empty()) {
            Some(block) => {
                self.write(at, bytes);
                lines_of(at, to_u64(bytes.len())).for_each(|line| self.hook_flush(line));
                self.inner.changes.note(at, to_u64(bytes.len()));
                block.append(at, bytes);
            }
            None => self.write_back(at, bytes),
        }
    }

    /// No thread will read again what was [appended](Self::append) in `len` bytes at `at`, whole lines. Bytes there
    /// that are not written again may be older ones from now on, and after a crash. This thread has flushed whatever
    /// says so, and it is durable. It flushes or appends there as before when it uses the range again, and no thread
    /// does during the call.
    ///
    /// In the `block` domain such bytes leave the journal without being written to the file, together with what this
    /// thread flushed last, or later. The whole pages of the range take no memory of this process until they are used
    /// again: a log takes as much as its records. In the others nothing is done.
    ///
    /// # Panics
    /// If the range is not made of whole lines of this memory.
    pub fn discard(&self, at: PmAddr, len: u64) {
        let is_whole =
            at.offset().is_multiple_of(LINE_BYTES) && len.is_multiple_of(LINE_BYTES) && self.contains(at, len);
        assert!(is_whole, "{len} bytes at {at:?} are not whole lines of the memory");
        let Some(block) = self.block().filter(|_| len > 0) else { return };
        block.discard(at, len);
        if self.inner.domain == Domain::Block {
            self.inner.parts[usize::from(at.part())].drop_private(at.offset(), len);
        }
    }

    /// Writes `bytes` and starts their write-back in the cheaper way for their size. They are persistent after the next
    /// fence, and visible before anything that this thread stores later.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    #[track_caller]
    pub fn write_back(&self, at: PmAddr, bytes: &[u8]) {
        if bytes.len() >= STREAM_BYTES_MIN {
            self.stream(at, bytes);
        } else {
            self.write(at, bytes);
            self.flush(at, to_u64(bytes.len()));
        }
    }
}

/// Which of the `len` bytes at `at` fill whole pages.
fn whole_pages(at: PmAddr, len: usize) -> std::ops::Range<usize> {
    let start = to_usize(at.offset().next_multiple_of(PAGE_BYTES) - at.offset()).min(len);
    start..start + (len - start) / to_usize(PAGE_BYTES) * to_usize(PAGE_BYTES)
}
