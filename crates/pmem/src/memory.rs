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
//! - every store, flush, fence and stream to a pool goes through this file, so one trace sees all of them;
//! - an access outside the mapped parts panics. Addresses read from the medium are checked with `contains` first;
//! - the hot path of an ordinary domain has one predictable branch per primitive (`hooked`) for tracing, read-only
//!   pools and media models. Built with `--cfg lodestone_unhooked` the branch is left out, for one purpose: to measure
//!   its cost (`cargo xtask hook-cost`); such a build cannot trace.
#![expect(unsafe_code, reason = "words of a mapping as atomics, cache-line write-back, streaming stores")]

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::addr::{LINE_BYTES, LineAddr, MEDIA_BLOCK_BYTES, PmAddr, PmPtr, WORD_BYTES, bytes_of_words, lines_of};
use crate::block::BlockDomain;
use crate::counters;
use crate::cpu::{self, FlushInstruction, StreamInstruction};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::mapping::{Backing, Mapping};
use crate::medium::Medium;
use crate::tracer::{Site, TracedMemory, Tracer};
use crate::view::View;
use crate::watch::Watch;

mod stream;
mod window;

pub use stream::STREAM_BYTES_MIN;
pub use window::Window;
use window::load_each;

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
    read_only: bool,
    hooked: bool,
    flush_instruction: FlushInstruction,
    stream_instruction: StreamInstruction,
    tracer: Option<Arc<dyn Tracer>>,
    medium: Option<Arc<dyn Medium>>,
    block: OnceLock<BlockDomain>,
    gate: Gate,
    watch: OnceLock<Watch>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("domain", &self.inner.domain)
            .field("parts", &self.inner.parts.len())
            .field("read_only", &self.inner.read_only)
            .finish_non_exhaustive()
    }
}

/// The parts of a [`Memory`] to be made.
pub(crate) struct Setup {
    pub(crate) parts: Vec<Mapping>,
    pub(crate) domain: Domain,
    pub(crate) read_only: bool,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    /// Ignored in the traced domain.
    pub(crate) medium: Option<Arc<dyn Medium>>,
}

/// Whether the hooks are compiled in.
const HOOKS: bool = !cfg!(lodestone_unhooked);

impl Memory {
    pub(crate) fn new(setup: Setup) -> Self {
        Self::with_instructions(setup, FlushInstruction::detect(), StreamInstruction::detect())
    }

    /// As [`new`](Self::new), with instructions of the caller's choice; unsupported ones fall back to detection.
    pub(crate) fn with_instructions(setup: Setup, flush: FlushInstruction, stream: StreamInstruction) -> Self {
        let Setup { parts, domain, read_only, tracer, medium } = setup;
        let medium = medium.filter(|_| domain != Domain::Traced);
        Self {
            inner: Arc::new(Inner {
                parts: parts.into_boxed_slice(),
                domain,
                read_only,
                hooked: tracer.is_some() || read_only || medium.is_some(),
                flush_instruction: if flush.is_supported() { flush } else { FlushInstruction::detect() },
                stream_instruction: if stream.is_supported() { stream } else { StreamInstruction::detect() },
                tracer,
                medium,
                block: OnceLock::new(),
                gate: Gate::default(),
                watch: OnceLock::new(),
            }),
        }
    }

    /// Zeroed memory of this process in the `dax-emulated` domain, for tests and measurements.
    ///
    /// # Errors
    /// When address space runs out.
    pub fn anonymous(len: u64) -> Result<Self> {
        Self::anonymous_with(&[len], Domain::DaxEmulated, None)
    }

    /// Zeroed memory of this process with parts of the given lengths, in a domain without files, reported to `medium`.
    ///
    /// # Errors
    /// When address space runs out, and for the `dax`, `block` and `traced` domains, which need a pool or a tracer.
    pub fn anonymous_with(parts: &[u64], domain: Domain, medium: Option<Arc<dyn Medium>>) -> Result<Self> {
        if matches!(domain, Domain::Dax | Domain::Block | Domain::Traced) {
            return Err(Error::Invalid {
                what: "domain",
                finding: format!("`{domain}` for memory without a file"),
                hint: "use dax-emulated, eadr or process, or open a pool",
            });
        }
        let parts = parts.iter().map(|len| anonymous_mapping(*len, *len)).collect::<Result<Vec<_>>>()?;
        Ok(Self::new(Setup { parts, domain, read_only: false, tracer: None, medium }))
    }

    /// Traced memory whose parts start with the given images and can grow to `reserve` bytes each.
    ///
    /// # Errors
    /// When address space runs out.
    pub fn traced(images: &[Vec<u8>], reserve: u64, tracer: Arc<dyn Tracer>) -> Result<Self> {
        let mut parts = Vec::with_capacity(images.len());
        for image in images {
            parts.push(anonymous_mapping(image.len() as u64, reserve)?);
        }
        let (domain, tracer) = (Domain::Traced, Some(tracer));
        let memory = Self::new(Setup { parts, domain, read_only: false, tracer, medium: None });
        for (part, image) in images.iter().enumerate() {
            for (index, chunk) in image.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                memory.raw_store(PmAddr::new(part as u16, index as u64 * WORD_BYTES), u64::from_le_bytes(word));
            }
        }
        Ok(memory)
    }

    /// Raw access to traced memory, `None` in every other domain. The crash explorer lays out a crash image with it, in
    /// memory that it uses again.
    #[must_use]
    pub fn as_traced(&self) -> Option<TracedMemory<'_>> {
        (self.inner.domain == Domain::Traced).then_some(TracedMemory { memory: self })
    }

    /// Domain of this memory.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.inner.domain
    }

    /// Whether stores are forbidden.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.read_only
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
        self.inner.parts.get(part as usize).map_or(0, Mapping::len)
    }

    /// Whether `len` bytes at `at` are inside a part. Use it on every address that was read from the medium.
    #[must_use]
    #[inline]
    pub fn contains(&self, at: PmAddr, len: u64) -> bool {
        at.offset().checked_add(len).is_some_and(|end| end <= self.part_len(at.part()))
    }

    /// Instructions in use, for reports.
    #[must_use]
    pub fn instructions(&self) -> (FlushInstruction, StreamInstruction) {
        (self.inner.flush_instruction, self.inner.stream_instruction)
    }

    /// The medium that accesses are reported to.
    #[must_use]
    pub fn medium(&self) -> Option<&Arc<dyn Medium>> {
        self.inner.medium.as_ref()
    }

    pub(crate) fn mapping(&self, part: u16) -> Option<&Mapping> {
        self.inner.parts.get(part as usize)
    }

    /// The gate that every fence passes.
    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    pub(crate) fn attach_block(&self, block: BlockDomain) {
        let fresh = self.inner.block.set(block).is_ok();
        assert!(fresh, "one block domain per memory");
    }

    /// From now on every wait for durability passes `watch`.
    pub(crate) fn attach_watch(&self, watch: Watch) {
        let fresh = self.inner.watch.set(watch).is_ok();
        assert!(fresh, "one watch per memory");
    }

    /// Looks once in many waits. An error when a file of the pool has lost its name.
    #[inline]
    pub(crate) fn pass_watch(&self) -> Result<()> {
        self.inner.watch.get().map_or(Ok(()), Watch::pass)
    }

    pub(crate) fn block(&self) -> Option<&BlockDomain> {
        self.inner.block.get()
    }

    #[inline]
    #[track_caller]
    fn pointer(&self, at: PmAddr, len: u64) -> *mut u8 {
        match self.inner.parts.get(at.part() as usize) {
            Some(part) => part.at(at.offset(), len),
            None => no_such_part(at),
        }
    }

    /// Pointer to a checked range, for the comparison in [`crate::bare`].
    #[track_caller]
    pub(crate) fn raw_pointer(&self, at: PmAddr, len: u64) -> *mut u8 {
        self.pointer(at, len)
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

    /// The eight words of a line, loaded one by one (acquire).
    #[inline]
    pub(crate) fn raw_line(&self, line: LineAddr) -> [u64; 8] {
        let words = self.words(line.start(), 8);
        std::array::from_fn(|index| words[index].load(Ordering::Acquire))
    }

    #[cold]
    #[inline(never)]
    fn before_load(&self, at: PmAddr, len: u64) {
        if let Some(medium) = &self.inner.medium {
            medium.read(at, len);
        }
        if let Some(tracer) = &self.inner.tracer {
            crate::sync::interleave();
            for line in lines_of(at, len) {
                tracer.touch(&TracedMemory { memory: self }, line);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn before_store(&self, at: PmAddr, words: &[u64], streamed: bool, site: Site) {
        if self.inner.tracer.is_some() {
            crate::sync::interleave();
        }
        self.before_store_at_once(at, words, streamed, site);
    }

    /// As [`before_store`](Self::before_store), without a point at which another thread may run.
    #[cold]
    #[inline(never)]
    fn before_store_at_once(&self, at: PmAddr, words: &[u64], streamed: bool, site: Site) {
        assert!(!self.inner.read_only, "store to a pool that was opened read-only, at {site}");
        if let Some(medium) = &self.inner.medium {
            medium.write(at, words.len() as u64 * WORD_BYTES);
        }
        if let Some(tracer) = &self.inner.tracer {
            for line in lines_of(at, words.len() as u64 * WORD_BYTES) {
                tracer.touch(&TracedMemory { memory: self }, line);
            }
            if streamed {
                tracer.stream(at, words, site);
            } else {
                tracer.store(at, words, site);
            }
        }
    }

    /// Before `bytes` are written at `at`: as [`before_store`](Self::before_store); words are made for a tracer only.
    #[cold]
    #[inline(never)]
    fn before_write(&self, at: PmAddr, bytes: &[u8], site: Site) {
        match &self.inner.medium {
            Some(medium) if !self.inner.read_only => medium.write(at, bytes.len() as u64),
            _ => self.before_store(at, &to_words(bytes), false, site),
        }
    }

    #[cold]
    #[inline(never)]
    fn before_flush(&self, line: LineAddr) {
        // Elsewhere a flush sends nothing to the mapped memory (see `medium`).
        if let Some(medium) = self.inner.medium.as_ref().filter(|_| self.inner.domain.has_dax_instructions()) {
            medium.flush(line);
        }
    }

    #[cold]
    #[inline(never)]
    fn before_stream(&self, at: PmAddr, len: u64) {
        if let Some(medium) = &self.inner.medium {
            medium.stream(at, len);
        }
    }

    #[cold]
    #[inline(never)]
    fn before_fence(&self) {
        if let Some(medium) = &self.inner.medium {
            // No order of its own: the fence that follows is the caller's, this only takes the medium's time for it.
            medium.fence();
        }
    }

    /// Loads the word at `at` (acquire).
    ///
    /// # Panics
    /// When `at` is not a multiple of 8 or is outside the parts.
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn load(&self, at: PmAddr) -> u64 {
        if HOOKS && self.inner.hooked {
            self.before_load(at, WORD_BYTES);
        }
        self.raw_load(at)
    }

    /// Stores `value` at `at` (release): visible at once, persistent at the latest after flush and fence.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8, is outside the parts, or the pool is read-only.
    #[inline]
    #[track_caller]
    pub fn store(&self, at: PmAddr, value: u64) {
        if HOOKS && self.inner.hooked {
            self.before_store(at, &[value], false, Location::caller());
        }
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
        if HOOKS && self.inner.hooked {
            self.before_load(at, WORD_BYTES);
            // One thread runs at a time here, and no other gets its turn between look and exchange.
            let found = self.raw_load(at);
            if found != current {
                return Err(found);
            }
            self.before_store_at_once(at, &[new], false, Location::caller());
        }
        self.word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
    }

    /// Reads `out.len()` bytes from `at`, word by word. A concurrent writer may leave a mixture of words.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8 or the range (rounded up to words) is outside the parts.
    #[inline]
    #[track_caller]
    pub fn read(&self, at: PmAddr, out: &mut [u8]) {
        let words = out.len().div_ceil(8) as u64;
        if HOOKS && self.inner.hooked {
            self.before_load(at, words * WORD_BYTES);
        }
        let base = self.words(at, words);
        let (chunks, rest) = out.as_chunks_mut::<8>();
        // Arrays, not slices: a slice of eight bytes is copied by a call.
        for (chunk, word) in chunks.iter_mut().zip(base) {
            *chunk = word.load(Ordering::Acquire).to_le_bytes();
        }
        if !rest.is_empty()
            && let Some(word) = base.last()
        {
            let bytes = word.load(Ordering::Acquire).to_le_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
    }

    /// Loads the `WORDS` words at `at` in ascending order (acquire). A concurrent writer may leave a mixture of words.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    #[must_use]
    #[track_caller]
    pub fn load_words<const WORDS: usize>(&self, at: PmAddr) -> [u64; WORDS] {
        if HOOKS && self.inner.hooked {
            self.before_load(at, WORDS as u64 * WORD_BYTES);
        }
        load_each(self.words(at, WORDS as u64))
    }

    /// Writes `bytes` at `at`, word by word in ascending order; the last word is filled up with zeroes.
    ///
    /// # Panics
    /// When `at` is not a multiple of 8, the range (rounded up to words) is outside the parts, or the pool is
    /// read-only.
    #[inline]
    #[track_caller]
    pub fn write(&self, at: PmAddr, bytes: &[u8]) {
        if HOOKS && self.inner.hooked {
            self.before_write(at, bytes, Location::caller());
        }
        let target = self.words(at, bytes.len().div_ceil(8) as u64);
        let (chunks, rest) = bytes.as_chunks::<8>();
        for (word, chunk) in target.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Release);
        }
        if !rest.is_empty()
            && let Some(word) = target.last()
        {
            word.store(word_from(rest), Ordering::Release);
        }
    }

    /// Writes `words` at `at` in ascending order and starts the write-back of the lines that they touch:
    /// [`write`](Self::write) and [`flush`](Self::flush) with one look at the place.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    #[track_caller]
    pub fn write_and_flush(&self, at: PmAddr, words: &[u64]) {
        if HOOKS && self.inner.hooked || !self.inner.domain.has_dax_instructions() {
            self.write(at, words.as_bytes());
            return self.flush(at, words.len() as u64 * WORD_BYTES);
        }
        let target = self.words(at, words.len() as u64);
        for (place, word) in target.iter().zip(words) {
            place.store(*word, Ordering::Release);
        }
        let local = counters::local();
        let mut pointer = target.as_ptr().cast::<u8>();
        for line in lines_of(at, words.len() as u64 * WORD_BYTES) {
            local.count_line(line.start().to_raw() / MEDIA_BLOCK_BYTES);
            // SAFETY: the pointer is as far into this line as the first word is into its own. The line holds words of
            // the checked range, so it is mapped whole. The instruction was checked when it was chosen.
            unsafe { cpu::flush_line(self.inner.flush_instruction, pointer) };
            pointer = pointer.wrapping_add(LINE_BYTES as usize);
        }
    }

    /// The words of a range as atomics.
    #[inline]
    #[track_caller]
    fn words(&self, at: PmAddr, count: u64) -> &[AtomicU64] {
        assert!(at.offset().is_multiple_of(WORD_BYTES), "words are aligned");
        let Some(bytes) = bytes_of_words(count) else { outside_every_part(at) };
        let pointer = self.pointer(at, bytes).cast::<AtomicU64>();
        // SAFETY: bounds and alignment are checked as in `word`, for the whole range; atomics may be shared.
        unsafe { std::slice::from_raw_parts(pointer, count as usize) }
    }

    /// The `words` words at `at`, with bounds and alignment checked once for all loads that follow. `None` when they
    /// are not inside one part or `at` is no multiple of 8. For readers that look at several words of one place.
    #[inline(always)]
    #[must_use]
    pub fn window(&self, at: PmAddr, words: u64) -> Option<Window<'_>> {
        if !at.offset().is_multiple_of(WORD_BYTES) {
            return None;
        }
        let pointer = self.inner.parts.get(at.part() as usize)?.checked_at(at.offset(), bytes_of_words(words)?)?;
        // SAFETY: bounds and alignment were checked for the whole range. The mapping lives as long as `self` and is
        // only accessed by word atomics, which may be shared.
        let words = unsafe { std::slice::from_raw_parts(pointer.cast::<AtomicU64>(), words as usize) };
        Some(Window::new(self, at, words))
    }

    /// Tells the processor that the lines of `len` bytes at `at` will be read soon. It is a hint without effect on any
    /// value. Nothing happens for bytes outside the parts, nor where accesses are traced or reported to a medium.
    #[inline(always)]
    pub fn prefetch(&self, at: PmAddr, len: u64) {
        if HOOKS && self.inner.hooked {
            return;
        }
        let part = self.inner.parts.get(at.part() as usize);
        if let Some(pointer) = part.and_then(|part| part.checked_at(at.offset(), len)) {
            for line in 0..len.div_ceil(LINE_BYTES) {
                cpu::prefetch(pointer.wrapping_add((line * LINE_BYTES) as usize));
            }
        }
    }

    /// A view of the first part for readers that look at many places: their bounds check is one comparison. Empty where
    /// accesses have to be reported.
    #[inline]
    #[must_use]
    pub fn view(&self) -> View<'_> {
        match self.inner.parts.first() {
            Some(part) if !HOOKS || !self.inner.hooked => View::new(self, part.at(0, 0), part.len()),
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
            self.write(at.plus(done), &ZEROES[..step as usize]);
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
        for line in lines_of(at, len) {
            self.flush_line(line, site);
        }
    }

    #[inline]
    #[track_caller]
    fn flush_line(&self, line: LineAddr, site: Site) {
        if HOOKS && self.inner.hooked {
            self.before_flush(line);
        }
        let start = line.start();
        counters::local().count_line(start.to_raw() / MEDIA_BLOCK_BYTES);
        match self.inner.domain {
            Domain::Dax | Domain::DaxEmulated => {
                let pointer = self.pointer(start, 1);
                // SAFETY: the line starts inside the mapping, and the instruction was checked when it was chosen.
                unsafe { cpu::flush_line(self.inner.flush_instruction, pointer) };
            }
            Domain::Eadr | Domain::Process => {}
            Domain::Block => {
                if let Some(block) = self.inner.block.get() {
                    block.flush(self, line);
                }
            }
            Domain::Traced => {
                if let Some(tracer) = &self.inner.tracer {
                    crate::sync::interleave();
                    tracer.flush(line, site);
                }
            }
        }
    }

    /// Orders: everything this thread flushed or streamed before is persistent before anything it stores after.
    ///
    /// In the `dax` and `eadr` domains it is then durable as well. Elsewhere [`durable`](Self::durable) waits for that.
    #[inline]
    #[track_caller]
    pub fn fence(&self) {
        if HOOKS && self.inner.hooked {
            self.before_fence();
        }
        counters::local().count_fence();
        if self.inner.domain != Domain::Traced {
            self.inner.gate.pass();
        }
        match self.inner.domain {
            Domain::Dax | Domain::DaxEmulated | Domain::Eadr => cpu::store_fence(),
            // Order inside and between groups follows from when lines are copied (see `block`); order as seen by other
            // threads is release order.
            Domain::Block | Domain::Process => std::sync::atomic::fence(Ordering::Release),
            Domain::Traced => {
                if let Some(tracer) = &self.inner.tracer {
                    crate::sync::interleave();
                    tracer.fence(Location::caller());
                }
            }
        }
    }

    /// Flush and fence.
    #[inline]
    #[track_caller]
    pub fn persist(&self, at: PmAddr, len: u64) {
        self.flush(at, len);
        self.fence();
    }

    /// Waits until everything this thread flushed and fenced would survive power loss (in the `process` domain: the
    /// death of the process). After `Ok` it may be acknowledged to the outside.
    ///
    /// # Errors
    /// [`Error::Poisoned`] in the `block` domain when a journal write or sync failed: the data may be lost.
    /// [`Error::Changed`] when a file of the pool was deleted: all of it is lost when the pool is closed. That is
    /// noticed after some thousand calls at the latest. [`Pool::verify_linked`](crate::Pool::verify_linked) looks at
    /// once.
    #[inline]
    #[track_caller]
    pub fn durable(&self) -> Result<()> {
        counters::bump(&counters::local().durables, 1);
        self.pass_watch()?;
        match self.inner.domain {
            Domain::Dax | Domain::DaxEmulated | Domain::Eadr | Domain::Process => Ok(()),
            Domain::Block => match self.inner.block.get() {
                Some(block) => block.durable(),
                None => Ok(()),
            },
            Domain::Traced => {
                if let Some(tracer) = &self.inner.tracer {
                    tracer.durable(Location::caller());
                }
                Ok(())
            }
        }
    }

    /// Waits until the newest flushed content of `len` bytes at `at` is durable, whichever thread flushed it. A read
    /// calls it before it answers the outside with these bytes.
    ///
    /// # Errors
    /// As [`durable`](Self::durable).
    #[inline]
    pub fn durable_range(&self, at: PmAddr, len: u64) -> Result<()> {
        self.pass_watch()?;
        match (self.inner.domain, self.inner.block.get()) {
            (Domain::Block, Some(block)) => block.durable_lines(lines_of(at, len)),
            _ => Ok(()),
        }
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

#[inline]
fn word_from(chunk: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..chunk.len()].copy_from_slice(chunk);
    u64::from_le_bytes(word)
}

fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(word_from).collect()
}

fn anonymous_mapping(len: u64, reserve: u64) -> Result<Mapping> {
    let failed = |source| Error::io("(memory)", "mapping", "free memory or ask for less", source);
    let mapping = Mapping::reserve(reserve.max(len), Backing::Anonymous).map_err(failed)?;
    let whole_pages = len.checked_next_multiple_of(4096).ok_or(failed(rustix::io::Errno::NOMEM))?;
    mapping.extend(None, whole_pages).map_err(failed)?;
    Ok(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_round_trip_by_every_way() -> Result<()> {
        let memory = Memory::anonymous(8192)?;
        let pattern: Vec<u8> = (0..2000_u32).map(|i| (i * 7 + 1) as u8).collect();
        for len in (0..200).chain([511, 512, 513, 1999]) {
            for start in [0, 8, 56, 64] {
                let at = PmAddr::new(0, 1024 + start);
                for way in 0..4 {
                    memory.zero(PmAddr::new(0, 1024), 2560);
                    match way {
                        0 => memory.write(at, &pattern[..len]),
                        1 => memory.stream(at, &pattern[..len]),
                        2 => {
                            let (head, tail) = pattern[..len].split_at(len / 16 * 8);
                            memory.stream_each(&[(at, head), (at.plus(head.len() as u64), tail)]);
                        }
                        _ => memory.write_back(at, &pattern[..len]),
                    }
                    memory.fence();
                    let mut back = vec![0xEE; len];
                    memory.read(at, &mut back);
                    assert_eq!(back, pattern[..len], "len {len} start {start} way {way}");
                    assert_eq!(memory.load(at.plus((len as u64).next_multiple_of(8))), 0, "behind the end");
                }
            }
        }
        Ok(())
    }

    /// The message of the panic that `work` must end with.
    fn caught(work: impl FnOnce() -> u64) -> String {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).expect_err("a panic");
        panic
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_else(|| panic.downcast_ref::<&str>().expect("text").to_string())
    }

    #[test]
    fn ranges_whose_length_would_wrap_are_refused() -> Result<()> {
        let memory = Memory::anonymous(4096)?;
        for words in [1 << 61, (1 << 61) + 1, 1 << 63, u64::MAX, 513] {
            assert!(memory.window(PmAddr::NULL, words).is_none(), "{words:#x} words");
        }
        assert!(memory.window(PmAddr::NULL, 512).is_some());
        assert!(!memory.contains(PmAddr::new(0, 64), u64::MAX - 63));
        let refused = caught(|| memory.words(PmAddr::NULL, 1 << 61).len() as u64);
        assert!(refused.contains("outside the part"), "{refused}");
        assert!(Memory::anonymous(u64::MAX).is_err());
        assert!(Memory::traced(&[vec![0; 64]], u64::MAX, Arc::new(crate::SilentTracer)).is_err());
        Ok(())
    }

    #[test]
    fn a_window_under_hooks_ends_where_it_ends() -> Result<()> {
        let memory = Memory::traced(&[vec![7; 4096]], 4096, Arc::new(crate::SilentTracer))?;
        let window = memory.window(PmAddr::new(0, 64), 2).expect("inside");
        assert_eq!((window.load(1), window.get::<u64>(1)), (0x0707_0707_0707_0707, 0x0707_0707_0707_0707));
        for index in [2, 100, 1 << 61, usize::MAX] {
            let ways: [&dyn Fn() -> u64; 3] =
                [&|| window.load(index), &|| window.get::<u64>(index), &|| window.load_words::<1>(index)[0]];
            for (way, load) in ways.into_iter().enumerate() {
                let text = caught(load);
                assert!(text.contains("out of range") || text.contains("out of bounds"), "{index:#x} {way}: {text}");
            }
        }
        Ok(())
    }

    #[test]
    fn memory_of_this_process_never_calls_itself_dax() -> Result<()> {
        let memory = Memory::anonymous(4096)?;
        assert_eq!((memory.domain(), memory.domain().to_string().as_str()), (Domain::DaxEmulated, "dax-emulated"));
        assert!(Memory::anonymous_with(&[4096], Domain::Dax, None).is_err());
        Ok(())
    }

    #[test]
    fn compare_exchange_tells_what_it_found() -> Result<()> {
        let memory = Memory::anonymous(4096)?;
        let at = PmAddr::new(0, 64);
        assert_eq!(memory.compare_exchange(at, 0, 5), Ok(0));
        assert_eq!(memory.compare_exchange(at, 0, 6), Err(5));
        assert_eq!(memory.load(at), 5);
        Ok(())
    }

    #[test]
    #[should_panic(expected = "names a part")]
    fn foreign_part_panics() {
        let memory = Memory::anonymous(4096).expect("memory");
        let _ = memory.load(PmAddr::new(1, 64));
    }
}
