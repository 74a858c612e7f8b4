//! The memory of a pool: parts, words, and the primitives of the persistence contract.
//!
//! **How safe code is kept from undefined behaviour.** Another thread can change bytes of a pool at any time, so no
//! Rust reference to them may exist. All access is by value, through this type, in aligned 8-byte words that are
//! atomics: loads acquire, stores release. Wider reads and writes are loops over such words. A racing reader may see a
//! mixture of two versions of a range, so it must verify the bytes. It never sees undefined bits. Every byte pattern is
//! valid for the types that can be read ([`zerocopy::FromBytes`]).
//!
//! Release stores also stop the compiler from reordering two stores to one line. The contract needs that: within a line
//! ordinary stores persist in program order.
//!
//! Invariants:
//! - every store, flush, fence and stream to a pool goes through this module, so one trace sees all of them;
//! - an access outside the mapped parts panics. Addresses read from the medium are checked with `contains` first;
//! - each primitive first calls its hook (`hooks`): one predictable branch in an ordinary memory, for tracing, media
//!   models and read-only pools.
#![expect(unsafe_code, reason = "words of a mapping as atomics, cache-line write-back, streaming stores")]

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lodestone_width::{to_u64, to_usize};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::addr::{LINE_BYTES, LineAddr, PmAddr, PmPtr, WORD_BYTES, bytes_of_words, lines_of};
use crate::block::BlockDomain;
use crate::changes::{Changes, Marking};
use crate::counters;
use crate::cpu::{self, FlushInstruction, StreamInstruction};
use crate::domain::Domain;
use crate::gate::Gate;
use crate::mapping::{Mapping, Reads};
use crate::tracer::Site;
use crate::view::View;
use crate::watch::Watch;
use crate::words::Words;

mod durable;
mod hooks;
mod make;
mod stream;
#[cfg(test)]
mod tests;
mod window;

pub use durable::DurablePoint;
use hooks::Hooks;
pub(crate) use make::Setup;
pub use stream::STREAM_BYTES_MIN;
pub use window::Window;

/// The mapped parts of a pool and the primitives on them. Cheap to clone; safe to use from many threads.
///
/// ```
/// use lodestone_pmem::{Memory, PmAddr};
/// let memory = Memory::anonymous(4096)?;
/// let at = PmAddr::new(0, 128);
/// memory.write(at, b"hello, medium!!!");
/// memory.persist(at, 16);
/// let mut back = [0; 16];
/// memory.read(at, &mut back);
/// assert_eq!(&back, b"hello, medium!!!");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    parts: Box<[Mapping]>,
    domain: Domain,
    flush_instruction: FlushInstruction,
    stream_instruction: StreamInstruction,
    hooks: Hooks,
    block: OnceLock<BlockDomain>,
    gate: Gate,
    changes: Changes,
    watch: OnceLock<Watch>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("domain", &self.inner.domain)
            .field("parts", &self.inner.parts.len())
            .field("read_only", &self.is_read_only())
            .finish_non_exhaustive()
    }
}

impl Memory {
    /// Domain of this memory.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.inner.domain
    }

    /// Whether both are the same memory: then one fence is for both.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Number of parts.
    #[must_use]
    pub fn part_count(&self) -> u16 {
        u16::try_from(self.inner.parts.len()).unwrap_or(u16::MAX)
    }

    /// Bytes mapped of part `part`, 0 when there is no such part. Grows when the pool grows.
    #[must_use]
    #[inline]
    pub fn part_len(&self, part: u16) -> u64 {
        self.inner.parts.get(to_usize(part)).map_or(0, Mapping::len)
    }

    /// Whether `len` bytes at `at` are inside a part. Use it on every address that was read from the medium.
    #[must_use]
    #[inline]
    pub fn contains(&self, at: PmAddr, len: u64) -> bool {
        at.offset().checked_add(len).is_some_and(|end| end <= self.part_len(at.part()))
    }

    /// Where `len` bytes at `at` are in this process: for a device that reads them on its own, as a network card does.
    /// The range stays mapped as long as a clone of this memory lives. `None`: outside a part, or in a domain in which
    /// the mapping is not what the medium has (`block`, `traced`).
    #[must_use]
    pub fn device_address(&self, at: PmAddr, len: u64) -> Option<NonNull<u8>> {
        let is_medium = !matches!(self.domain(), Domain::Block | Domain::Traced);
        if is_medium && self.contains(at, len) { NonNull::new(self.pointer(at, len)) } else { None }
    }

    /// Instructions in use, for reports.
    #[must_use]
    pub fn instructions(&self) -> (FlushInstruction, StreamInstruction) {
        (self.inner.flush_instruction, self.inner.stream_instruction)
    }

    pub(crate) fn mapping(&self, part: u16) -> Option<&Mapping> {
        self.inner.parts.get(to_usize(part))
    }

    /// The gate that every fence passes.
    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    /// Marks the pages that are flushed from now on, until the guard is dropped.
    pub(crate) fn mark_changes(&self) -> rustix::io::Result<Marking<'_>> {
        self.inner.changes.begin(self.inner.parts.iter().map(Mapping::reserved_bytes))
    }

    pub(crate) fn attach_block(&self, block: BlockDomain) {
        let fresh = self.inner.block.set(block).is_ok();
        assert!(fresh, "one block domain per memory");
    }

    pub(crate) fn block(&self) -> Option<&BlockDomain> {
        self.inner.block.get()
    }

    /// Where `len` bytes at `at` are mapped.
    #[inline]
    #[track_caller]
    pub(crate) fn pointer(&self, at: PmAddr, len: u64) -> *mut u8 {
        match self.inner.parts.get(to_usize(at.part())) {
            Some(part) => part.at(at.offset(), len),
            None => no_such_part(at),
        }
    }

    /// The word at `at` as an atomic.
    #[inline]
    #[track_caller]
    fn word(&self, at: PmAddr) -> &AtomicU64 {
        assert!(at.offset().is_multiple_of(WORD_BYTES), "words are aligned");
        let pointer = self.pointer(at, WORD_BYTES).cast::<u64>();
        // SAFETY: `pointer` checked the bounds, the assertion the alignment. The mapping lives as long as `self`. It is
        // only accessed by word atomics, or by streaming instructions that write whole words.
        unsafe { AtomicU64::from_ptr(pointer) }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn raw_load(&self, at: PmAddr) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline]
    #[track_caller]
    pub(crate) fn raw_store(&self, at: PmAddr, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Stores whole words, of which the last is filled up with zeros (release). For images that are loaded.
    #[inline]
    #[track_caller]
    pub(crate) fn raw_write(&self, at: PmAddr, bytes: &[u8]) {
        self.words(at, to_u64(bytes.len().div_ceil(8))).write(bytes);
    }

    /// The eight words of a line, loaded one by one (acquire).
    #[inline]
    pub(crate) fn raw_line(&self, line: LineAddr) -> [u64; 8] {
        self.words(line.start(), 8).load_each()
    }

    /// Loads the word at `at` (acquire).
    ///
    /// # Panics
    /// When `at` is not a multiple of 8 or is outside the parts.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn load(&self, at: PmAddr) -> u64 {
        self.hook_load(at, WORD_BYTES);
        self.raw_load(at)
    }

    /// Stores `value` at `at` (release): visible at once, persistent at the latest after flush and fence.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8, is outside the parts, or the pool is read-only.
    #[inline]
    #[track_caller]
    pub fn store(&self, at: PmAddr, value: u64) {
        self.hook_store(at, &[value]);
        self.raw_store(at, value);
    }

    /// Replaces the word at `at` by `new` if it is `current`; returns the former value, as `Err` when it differed.
    ///
    /// # Errors
    /// The value found, when it was not `current`; nothing was stored then.
    ///
    /// # Panics
    /// As [`store`](Self::store).
    #[inline]
    #[track_caller]
    pub fn compare_exchange(&self, at: PmAddr, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.hook_exchange(at, current, new)?;
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Reads `out.len()` bytes from `at`, word by word. A concurrent writer may leave a mixture of words.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8 or the range (rounded up to words) is outside the parts.
    #[inline]
    #[track_caller]
    pub fn read(&self, at: PmAddr, out: &mut [u8]) {
        let words = to_u64(out.len().div_ceil(8));
        self.hook_load(at, words * WORD_BYTES);
        self.words(at, words).read(out, Ordering::Acquire);
    }

    /// Loads the `WORDS` words at `at` in ascending order (acquire). A concurrent writer may leave a mixture of words.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn load_words<const WORDS: usize>(&self, at: PmAddr) -> [u64; WORDS] {
        self.hook_load(at, to_u64(WORDS) * WORD_BYTES);
        self.words(at, to_u64(WORDS)).load_each()
    }

    /// Writes `bytes` at `at`, word by word in ascending order; the last word is filled up with zeroes.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8, the range (rounded up to words) is outside the parts, or the pool is
    /// read-only.
    #[inline]
    #[track_caller]
    pub fn write(&self, at: PmAddr, bytes: &[u8]) {
        self.hook_write(at, bytes);
        self.raw_write(at, bytes);
    }

    /// Writes `words` at `at` in ascending order and starts the write-back of the lines that they touch:
    /// [`write`](Self::write) and [`flush`](Self::flush) with one look at the place.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    #[track_caller]
    pub fn write_and_flush(&self, at: PmAddr, words: &[u64]) {
        if self.is_hooked() || !self.inner.domain.has_dax_instructions() {
            self.write(at, words.as_bytes());
            return self.flush(at, to_u64(words.len()) * WORD_BYTES);
        }
        let target = self.words(at, to_u64(words.len()));
        target.store_each(words);
        self.flush_words(at, words.len(), target);
    }

    /// As [`write_and_flush`](Self::write_and_flush), but the first word is written last. So where it is persistent,
    /// the words after it in the same line are: stores to one line persist in their order.
    ///
    /// # Panics
    /// As [`write`](Self::write); if there is no word.
    #[inline]
    #[track_caller]
    pub fn write_first_last_and_flush(&self, at: PmAddr, words: &[u64]) {
        let [first, rest @ ..] = words else { panic!("there is a first word") };
        if self.is_hooked() || !self.inner.domain.has_dax_instructions() {
            self.write(at.plus(WORD_BYTES), rest.as_bytes());
            self.store(at, *first);
            return self.flush(at, to_u64(words.len()) * WORD_BYTES);
        }
        let target = self.words(at, to_u64(words.len()));
        target.store_each_first_last(words);
        self.flush_words(at, words.len(), target);
    }

    /// Notes the change of so many words, and starts the write-back of their lines by the processor's instruction.
    #[inline(always)]
    fn flush_words(&self, at: PmAddr, count: usize, target: Words<'_>) {
        self.inner.changes.note(at, to_u64(count) * WORD_BYTES);
        let local = counters::local();
        let mut pointer = target.pointer();
        for line in lines_of(at, to_u64(count) * WORD_BYTES) {
            local.count_line(line);
            // SAFETY: the pointer is as far into this line as the first word is into its own. The line holds words of
            // the checked range, so it is mapped whole. The instruction was checked when it was chosen.
            unsafe { cpu::flush_line(self.inner.flush_instruction, pointer) };
            pointer = pointer.wrapping_add(to_usize(LINE_BYTES));
        }
    }

    /// The words of a range as atomics.
    #[inline]
    #[track_caller]
    fn words(&self, at: PmAddr, count: u64) -> Words<'_> {
        assert!(at.offset().is_multiple_of(WORD_BYTES), "words are aligned");
        let Some(bytes) = bytes_of_words(count) else { outside_every_part(at) };
        let pointer = self.pointer(at, bytes);
        // SAFETY: bounds and alignment are checked as in `word`, for the whole range.
        unsafe { Words::from_raw(pointer, to_usize(count)) }
    }

    /// The `words` words at `at`, with bounds and alignment checked once for all loads that follow. `None` when they
    /// are not inside one part or `at` is no multiple of 8. For readers that look at several words of one place.
    #[inline(always)]
    #[must_use]
    pub fn window(&self, at: PmAddr, words: u64) -> Option<Window<'_>> {
        if !at.offset().is_multiple_of(WORD_BYTES) {
            return None;
        }
        let pointer = self.inner.parts.get(to_usize(at.part()))?.checked_at(at.offset(), bytes_of_words(words)?)?;
        // SAFETY: bounds and alignment were checked for the whole range. The mapping lives as long as `self` and is
        // only accessed as words.
        let words = unsafe { Words::from_raw(pointer, to_usize(words)) };
        Some(Window::new(self, at, words))
    }

    /// Tells the processor that the lines of `len` bytes at `at` will be read soon. It is a hint without effect on any
    /// value. Nothing happens for bytes outside the parts, nor where accesses are traced or reported to a medium.
    #[inline(always)]
    pub fn prefetch(&self, at: PmAddr, len: u64) {
        if self.is_hooked() {
            return;
        }
        let part = self.inner.parts.get(to_usize(at.part()));
        if let Some(pointer) = part.and_then(|part| part.checked_at(at.offset(), len)) {
            for line in 0..len.div_ceil(LINE_BYTES) {
                cpu::prefetch(pointer.wrapping_add(to_usize(line * LINE_BYTES)));
            }
        }
    }

    /// Tells the kernel that of the `len` bytes at `at` few are read through the memory, here and there. Where the
    /// memory is the page cache of a file, the kernel does not read the bytes around them any more: in a process with
    /// less memory than the file has bytes these would only push others out. A hint without effect on any value.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// Memory::anonymous(1 << 20)?.expect_random_reads(PmAddr::new(0, 4096), 1 << 16);
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    pub fn expect_random_reads(&self, at: PmAddr, len: u64) {
        self.advise_reads(at, len, Reads::AtRandom);
    }

    /// Tells the kernel that the `len` bytes at `at` will all be read soon: where they are in a file, it begins to read
    /// them together. Returns at once. A hint without effect on any value.
    ///
    /// ```
    /// use lodestone_pmem::{Memory, PmAddr};
    /// Memory::anonymous(1 << 20)?.read_ahead(PmAddr::new(0, 4096), 1 << 16);
    /// # Ok::<(), lodestone_pmem::Error>(())
    /// ```
    pub fn read_ahead(&self, at: PmAddr, len: u64) {
        self.advise_reads(at, len, Reads::Soon);
    }

    fn advise_reads(&self, at: PmAddr, len: u64, reads: Reads) {
        if self.contains(at, len) && !self.is_hooked() {
            self.inner.parts[usize::from(at.part())].advise_reads(at.offset(), len, reads);
        }
    }

    /// A view of the first part for readers that look at many places: their bounds check is one comparison. Empty where
    /// accesses have to be reported.
    #[inline]
    #[must_use]
    pub fn view(&self) -> View<'_> {
        match self.inner.parts.first() {
            Some(part) if !self.is_hooked() => View::new(self, part.at(0, 0), part.len()),
            _ => View::EMPTY,
        }
    }

    /// Writes zeroes over `len` bytes (rounded up to words) at `at`.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[track_caller]
    pub fn zero(&self, at: PmAddr, len: u64) {
        const ZEROES: [u8; 4096] = [0; 4096];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(4096);
            self.write(at.plus(done), &ZEROES[..to_usize(step)]);
            done += step;
        }
    }

    /// Reads a value. Any bytes are a valid `T`; the caller checks whether they make sense.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn get<T: FromBytes + IntoBytes>(&self, at: PmPtr<T>) -> T {
        let mut value = T::new_zeroed();
        self.read(at.addr(), value.as_mut_bytes());
        value
    }

    /// Writes a value, word by word in ascending order.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    #[track_caller]
    pub fn put<T: IntoBytes + Immutable>(&self, at: PmPtr<T>, value: &T) {
        self.write(at.addr(), value.as_bytes());
    }

    /// Starts the write-back of the lines that `len` bytes at `at` touch.
    ///
    /// In the `block` domain the lines' present contents join the open commit group.
    ///
    /// # Panics
    /// When the range is outside the parts.
    #[inline]
    #[track_caller]
    pub fn flush(&self, at: PmAddr, len: u64) {
        let site = Location::caller();
        self.inner.changes.note(at, len);
        for line in lines_of(at, len) {
            self.flush_line(line, site);
        }
    }

    #[inline]
    #[track_caller]
    fn flush_line(&self, line: LineAddr, site: Site) {
        self.hook_flush(line);
        match self.inner.domain {
            Domain::Dax | Domain::DaxEmulated => {
                let pointer = self.pointer(line.start(), 1);
                // SAFETY: the line starts inside the mapping, and the instruction was checked when it was chosen.
                unsafe { cpu::flush_line(self.inner.flush_instruction, pointer) };
            }
            Domain::Eadr | Domain::Process => {}
            Domain::Block => {
                if let Some(block) = self.inner.block.get() {
                    block.flush(self, line);
                }
            }
            Domain::Traced => self.trace_flush(line, site),
        }
    }

    /// Orders: everything this thread flushed or streamed before is persistent before anything it stores after.
    ///
    /// In the `dax` and `eadr` domains it is then durable as well. Elsewhere [`durable`](Self::durable) waits for that.
    #[inline]
    #[track_caller]
    pub fn fence(&self) {
        self.hook_fence();
        if self.inner.domain != Domain::Traced {
            self.inner.gate.pass();
        }
        match self.inner.domain {
            Domain::Dax | Domain::DaxEmulated | Domain::Eadr => cpu::store_fence(),
            // Order inside and between groups follows from when lines are copied (see `block`); order as seen by other
            // threads is release order.
            Domain::Block | Domain::Process => std::sync::atomic::fence(Ordering::Release),
            Domain::Traced => self.trace_fence(Location::caller()),
        }
    }

    /// Flush and fence.
    #[inline]
    #[track_caller]
    pub fn persist(&self, at: PmAddr, len: u64) {
        self.flush(at, len);
        self.fence();
    }
}

#[cold]
#[track_caller]
fn no_such_part(at: PmAddr) -> ! {
    panic!("address {at} names a part that the pool does not have")
}

#[cold]
#[track_caller]
fn outside_every_part(at: PmAddr) -> ! {
    panic!("address outside the part: more words at {at} than any part has")
}
