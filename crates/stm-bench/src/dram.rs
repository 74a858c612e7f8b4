//! The floor: the same structures in plain DRAM, with one reader-writer lock or with none. No data survives.
//!
//! 1. Objects are in one array of words, and a reference is an index. Words are relaxed atomics, which cost as much as
//!    plain loads and stores and keep shared access sound without `unsafe`.
//! 2. A worker takes blocks from its own lists by size, which it fills by cutting pieces from the end of the array.
//! 3. Changes are made in place at once. A body never aborts, because the lock (or being alone) excludes other threads.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use lodestone_stm::Part;
use lodestone_workload::engine::{EngineError, Environment};
use zerocopy::{FromBytes, IntoBytes};

use crate::tm::{Object, ReadBody, Reading, Ref, Root, Statistics, TransactionalMemory, UpdateBody, Worker, Writing};

/// Words that a worker cuts off at a time.
const PIECE_WORDS: usize = 4096;
/// Largest object, in words.
const OBJECT_WORDS_MAX: usize = 64;
/// Position of the root: after the null reference, at the start of a line.
const ROOT_INDEX: u64 = 8;

/// Whether threads share the structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DramLock {
    /// One worker at a time, no lock: the cost of the algorithm itself.
    None,
    /// One reader-writer lock around every transaction, as the library peers use it.
    ReaderWriter,
}

/// Objects in DRAM.
#[derive(Debug)]
pub struct Dram {
    words: Box<[AtomicU64]>,
    used: AtomicUsize,
    lock: RwLock<()>,
    kind: DramLock,
    taken: AtomicBool,
}

impl Dram {
    /// Room for `bytes` of objects.
    #[must_use]
    pub fn new(bytes: usize, kind: DramLock) -> Self {
        let count = (bytes / 8).max(2 * PIECE_WORDS);
        let words = (0..count).map(|_| AtomicU64::new(0)).collect();
        Self { words, used: AtomicUsize::new(64), lock: RwLock::new(()), kind, taken: AtomicBool::new(false) }
    }

    #[inline]
    fn range<T: Object>(&self, at: Ref<T>) -> &[AtomicU64] {
        let start = at.to_raw() as usize;
        &self.words[start..start + T::WORDS]
    }

    #[inline]
    fn load<T: Object>(&self, at: Ref<T>) -> T {
        self.load_part(at, const { Part::at(0) })
    }

    #[inline]
    fn load_part<T: Object, F: FromBytes + IntoBytes>(&self, at: Ref<T>, part: Part<T, F>) -> F {
        let mut value = F::new_zeroed();
        let words = &self.range(at)[part.word()..];
        for (bytes, word) in value.as_mut_bytes().chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        value
    }

    #[inline]
    fn store<T: Object>(&self, at: Ref<T>, value: &T) {
        let (words, _) = value.as_bytes().as_chunks::<8>();
        for (bytes, word) in words.iter().zip(self.range(at)) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }
}

impl TransactionalMemory for Dram {
    type Worker<'m> = DramWorker<'m>;

    fn name(&self) -> String {
        match self.kind {
            DramLock::None => "dram".into(),
            DramLock::ReaderWriter => "dram-lock".into(),
        }
    }

    fn worker(&self) -> Result<DramWorker<'_>, EngineError> {
        if self.kind == DramLock::None && self.taken.swap(true, Ordering::AcqRel) {
            return Err(EngineError::new("`dram` has no lock and serves one thread; use `dram-lock` for more"));
        }
        let access = DramAccess { memory: self, free: vec![Vec::new(); OBJECT_WORDS_MAX + 1], full: false };
        Ok(DramWorker { access, commits: 0 })
    }

    fn root(&self) -> Ref<Root> {
        Ref::from_raw(ROOT_INDEX)
    }

    fn workers_max(&self) -> usize {
        match self.kind {
            DramLock::None => 1,
            DramLock::ReaderWriter => usize::MAX,
        }
    }

    fn environment(&self) -> Environment {
        Environment { domain: None, media: Some("dram".into()), durability: Some("none".into()) }
    }
}

/// One thread's access to a [`Dram`].
#[derive(Debug)]
pub struct DramWorker<'m> {
    access: DramAccess<'m>,
    commits: u64,
}

/// The transaction of a [`DramWorker`]. It needs no notes.
#[derive(Debug)]
pub struct DramAccess<'m> {
    memory: &'m Dram,
    /// Free blocks by their number of words.
    free: Vec<Vec<u64>>,
    full: bool,
}

impl DramAccess<'_> {
    #[inline]
    fn block(&mut self, words: usize) -> u64 {
        if let Some(at) = self.free[words].pop() {
            return at;
        }
        self.cut(words)
    }

    #[cold]
    fn cut(&mut self, words: usize) -> u64 {
        // Blocks of up to a line do not cross lines.
        let stride = if words <= 8 { words.next_power_of_two() } else { words.next_multiple_of(8) };
        let start = self.memory.used.fetch_add(PIECE_WORDS, Ordering::Relaxed);
        if start + PIECE_WORDS > self.memory.words.len() {
            self.full = true;
            return ROOT_INDEX;
        }
        let blocks = (start..start + PIECE_WORDS / stride * stride).step_by(stride);
        self.free[words].extend(blocks.rev().map(|index| index as u64));
        self.free[words].pop().unwrap_or(ROOT_INDEX)
    }
}

impl Reading for DramAccess<'_> {
    type Abort = Infallible;

    #[inline]
    fn read<T: Object>(&mut self, at: Ref<T>) -> Result<T, Infallible> {
        Ok(self.memory.load(at))
    }

    #[inline]
    fn read_part<T: Object, F: FromBytes + IntoBytes>(
        &mut self,
        at: Ref<T>,
        part: Part<T, F>,
    ) -> Result<F, Infallible> {
        Ok(self.memory.load_part(at, part))
    }
}

impl Writing for DramAccess<'_> {
    #[inline]
    fn write<T: Object>(&mut self, at: Ref<T>, change: impl FnOnce(&mut T)) -> Result<(), Infallible> {
        let mut value = self.memory.load(at);
        change(&mut value);
        self.memory.store(at, &value);
        Ok(())
    }

    #[inline]
    fn alloc<T: Object>(&mut self, value: T) -> Result<Ref<T>, Infallible> {
        let at = Ref::from_raw(self.block(T::WORDS));
        if !self.full {
            self.memory.store(at, &value);
        }
        Ok(at)
    }

    #[inline]
    fn free<T: Object>(&mut self, at: Ref<T>) -> Result<(), Infallible> {
        self.free[T::WORDS].push(at.to_raw());
        Ok(())
    }
}

impl Worker for DramWorker<'_> {
    #[inline]
    fn read<B: ReadBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        let memory = self.access.memory;
        let _guard =
            (memory.kind == DramLock::ReaderWriter).then(|| memory.lock.read().unwrap_or_else(PoisonError::into_inner));
        self.commits += 1;
        let Ok(out) = body.run(&mut self.access);
        Ok(out)
    }

    #[inline]
    fn update<B: UpdateBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        let memory = self.access.memory;
        let _guard = (memory.kind == DramLock::ReaderWriter)
            .then(|| memory.lock.write().unwrap_or_else(PoisonError::into_inner));
        self.commits += 1;
        let Ok(out) = body.run(&mut self.access);
        if self.access.full {
            // There is no way back: the changes of the body stay, and the memory is of no further use.
            return Err(EngineError::new("the array in DRAM is full; make it larger"));
        }
        Ok(out)
    }

    fn statistics(&self) -> Statistics {
        Statistics { commits: self.commits, ..Statistics::default() }
    }
}

impl Drop for DramWorker<'_> {
    fn drop(&mut self) {
        self.access.memory.taken.store(false, Ordering::Release);
    }
}
