//! Everything that watches a memory: counters, the tracer of the explorer, media models, and the refusal of stores.
//!
//! 1. Each primitive calls one function of this file before it acts (`hook_load`, `hook_store`, ...). In an ordinary
//!    memory that is one predictable branch ([`Memory::is_hooked`]), and for flushes and fences the thread's counter.
//! 2. A memory with a tracer or a medium, or one that is read-only, leaves that branch for a cold function.
//! 3. In the traced domain a flush, a fence and a stream are nothing but a report to the tracer (`trace_flush`, ...).
//!
//! Invariants:
//! - hooks see an access before it happens, on the same thread, with the place in the source that asked for it;
//! - the deterministic scheduler may switch threads before each access to traced memory, and nowhere else.
//!
//! Built with `--cfg lodestone_unhooked` the branch is left out, for one purpose: to measure its cost (`cargo xtask
//! hook-cost`). Such a build cannot trace.

use std::panic::Location;
use std::sync::Arc;

use lodestone_width::to_u64;

use super::{Memory, Setup};
use crate::addr::{LineAddr, MEDIA_BLOCK_BYTES, PmAddr, WORD_BYTES, lines_of};
use crate::counters;
use crate::domain::Domain;
use crate::medium::Medium;
use crate::tracer::{Site, TracedMemory, Tracer};
use crate::words::word_from;

/// Whether the hooks are compiled in.
const HOOKS: bool = !cfg!(lodestone_unhooked);

/// Who watches a memory.
pub(super) struct Hooks {
    /// Whether any of the others asks for a look.
    any: bool,
    read_only: bool,
    tracer: Option<Arc<dyn Tracer>>,
    medium: Option<Arc<dyn Medium>>,
}

impl Hooks {
    /// Those that `setup` asks for. Time means nothing to the explorer: a medium is ignored in the traced domain.
    pub(super) fn of(setup: &mut Setup) -> Self {
        let (tracer, read_only) = (setup.tracer.take(), setup.read_only);
        let medium = setup.medium.take().filter(|_| setup.domain != Domain::Traced);
        Self { any: tracer.is_some() || read_only || medium.is_some(), read_only, tracer, medium }
    }
}

impl Memory {
    /// Whether accesses must be reported or refused.
    #[inline(always)]
    pub(super) fn is_hooked(&self) -> bool {
        HOOKS && self.inner.hooks.any
    }

    /// Raw access to traced memory, `None` in every other domain. The crash explorer lays out a crash image with it, in
    /// memory that it uses again.
    #[must_use]
    pub fn as_traced(&self) -> Option<TracedMemory<'_>> {
        (self.inner.domain == Domain::Traced).then_some(TracedMemory { memory: self })
    }

    /// Whether stores are forbidden.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.hooks.read_only
    }

    /// The medium that accesses are reported to.
    #[must_use]
    pub fn medium(&self) -> Option<&Arc<dyn Medium>> {
        self.inner.hooks.medium.as_ref()
    }

    /// `len` bytes at `at` are about to be loaded.
    #[inline(always)]
    pub(super) fn hook_load(&self, at: PmAddr, len: u64) {
        if self.is_hooked() {
            self.before_load(at, len);
        }
    }

    /// `words` are about to be stored at `at`.
    #[inline(always)]
    #[track_caller]
    pub(super) fn hook_store(&self, at: PmAddr, words: &[u64]) {
        if self.is_hooked() {
            self.before_store(at, words, Location::caller());
        }
    }

    /// `bytes` are about to be stored at `at`.
    #[inline(always)]
    #[track_caller]
    pub(super) fn hook_write(&self, at: PmAddr, bytes: &[u8]) {
        if self.is_hooked() {
            self.before_write(at, bytes, Location::caller());
        }
    }

    /// The word at `at` is about to be replaced by `new` if it is `current`. Returns the value that was found if that
    /// is known to be another one.
    #[inline(always)]
    #[track_caller]
    pub(super) fn hook_exchange(&self, at: PmAddr, current: u64, new: u64) -> Result<(), u64> {
        if self.is_hooked() { self.before_exchange(at, current, new, Location::caller()) } else { Ok(()) }
    }

    /// The write-back of `line` is about to be started: counted in every domain.
    #[inline(always)]
    pub(super) fn hook_flush(&self, line: LineAddr) {
        if self.is_hooked() {
            self.before_flush(line);
        }
        counters::local().count_line(line);
    }

    /// `len` bytes at `at`, whole lines, are about to be written around the cache.
    #[inline(always)]
    pub(super) fn hook_stream(&self, at: PmAddr, len: u64) {
        if self.is_hooked() {
            self.before_stream(at, len);
        }
        Self::count_stream(len);
    }

    /// Counts `len` streamed bytes, of which no medium is told.
    #[inline(always)]
    pub(super) fn count_stream(len: u64) {
        let local = counters::local();
        counters::bump(&local.streamed_bytes, len);
        counters::bump(&local.media_blocks, len.div_ceil(MEDIA_BLOCK_BYTES));
    }

    /// The thread is about to fence: counted in every domain.
    #[inline(always)]
    pub(super) fn hook_fence(&self) {
        self.hook_store_fence();
        counters::local().count_fence();
    }

    /// The thread is about to wait for durability: counted in every domain, traced in that domain.
    #[inline(always)]
    pub(super) fn hook_durable(&self, site: Site) {
        counters::bump(&counters::local().durables, 1);
        if self.is_hooked() {
            self.trace_durable(site);
        }
    }

    /// The thread is about to execute a store fence that is no fence of the contract: not counted.
    #[inline(always)]
    pub(super) fn hook_store_fence(&self) {
        if self.is_hooked() {
            self.before_fence();
        }
    }

    /// A flush in the traced domain.
    #[inline]
    pub(super) fn trace_flush(&self, line: LineAddr, site: Site) {
        if let Some(tracer) = &self.inner.hooks.tracer {
            crate::sync::interleave();
            tracer.flush(line, site);
        }
    }

    /// A fence in the traced domain.
    #[inline]
    pub(super) fn trace_fence(&self, site: Site) {
        if let Some(tracer) = &self.inner.hooks.tracer {
            crate::sync::interleave();
            tracer.fence(site);
        }
    }

    #[cold]
    #[inline(never)]
    fn trace_durable(&self, site: Site) {
        if let Some(tracer) = &self.inner.hooks.tracer {
            tracer.durable(site);
        }
    }

    /// `words` are about to be streamed to `at` in the traced domain.
    #[inline]
    pub(super) fn trace_stream(&self, at: PmAddr, words: &[u64], site: Site) {
        self.before_store_as(at, words, true, site);
    }

    /// Panics if stores are forbidden; `at` is where one was asked for.
    #[inline]
    pub(super) fn assert_writable(&self, site: Site) {
        assert!(!self.inner.hooks.read_only, "store to a pool that was opened read-only, at {site}");
    }

    #[cold]
    #[inline(never)]
    fn before_load(&self, at: PmAddr, len: u64) {
        if let Some(medium) = &self.inner.hooks.medium {
            medium.read(at, len);
        }
        if let Some(tracer) = &self.inner.hooks.tracer {
            crate::sync::interleave();
            for line in lines_of(at, len) {
                tracer.touch(&TracedMemory { memory: self }, line);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn before_store(&self, at: PmAddr, words: &[u64], site: Site) {
        self.before_store_as(at, words, false, site);
    }

    fn before_store_as(&self, at: PmAddr, words: &[u64], streamed: bool, site: Site) {
        if self.inner.hooks.tracer.is_some() {
            crate::sync::interleave();
        }
        self.before_store_at_once(at, words, streamed, site);
    }

    /// As [`before_store_as`](Self::before_store_as), without a point at which another thread may run.
    fn before_store_at_once(&self, at: PmAddr, words: &[u64], streamed: bool, site: Site) {
        self.assert_writable(site);
        if let Some(medium) = &self.inner.hooks.medium {
            medium.write(at, to_u64(words.len()) * WORD_BYTES);
        }
        if let Some(tracer) = &self.inner.hooks.tracer {
            for line in lines_of(at, to_u64(words.len()) * WORD_BYTES) {
                tracer.touch(&TracedMemory { memory: self }, line);
            }
            if streamed {
                tracer.stream(at, words, site);
            } else {
                tracer.store(at, words, site);
            }
        }
    }

    /// As [`before_store`](Self::before_store) for bytes; words are made for a tracer only.
    #[cold]
    #[inline(never)]
    fn before_write(&self, at: PmAddr, bytes: &[u8], site: Site) {
        match &self.inner.hooks.medium {
            Some(medium) if !self.inner.hooks.read_only => medium.write(at, to_u64(bytes.len())),
            _ => self.before_store(at, &to_words(bytes), site),
        }
    }

    #[cold]
    #[inline(never)]
    fn before_exchange(&self, at: PmAddr, current: u64, new: u64, site: Site) -> Result<(), u64> {
        self.before_load(at, WORD_BYTES);
        // One thread runs at a time here, and no other gets its turn between look and exchange.
        let found = self.raw_load(at);
        if found != current {
            return Err(found);
        }
        self.before_store_at_once(at, &[new], false, site);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn before_flush(&self, line: LineAddr) {
        // Elsewhere a flush sends nothing to the mapped memory (see `medium`).
        if let Some(medium) = self.inner.hooks.medium.as_ref().filter(|_| self.inner.domain.has_dax_instructions()) {
            medium.flush(line);
        }
    }

    #[cold]
    #[inline(never)]
    fn before_stream(&self, at: PmAddr, len: u64) {
        if let Some(medium) = &self.inner.hooks.medium {
            medium.stream(at, len);
        }
    }

    #[cold]
    #[inline(never)]
    fn before_fence(&self) {
        if let Some(medium) = &self.inner.hooks.medium {
            // No order of its own: the fence that follows is the caller's, this only takes the medium's time for it.
            medium.fence();
        }
    }
}

/// `bytes` as the words that hold them; the last one is filled up with zeroes.
pub(super) fn to_words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(word_from).collect()
}
