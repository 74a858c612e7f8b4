//! The medium that targets run on: one traced memory that is laid out again for every crash state.
//!
//! Laying out writes only lines that differ. Lines that the last run dirtied return to the baseline, and the lines of
//! the new state are written over it. The mapping is made again only after a run has grown the memory.

use std::sync::{Arc, Mutex, PoisonError};

use lodestone_pmem::{LineAddr, Memory, PmAddr, Pool, PoolOptions};

use crate::event::EventKind;
use crate::mutation::Mutation;
use crate::options::Contents;
use crate::persist::Baseline;
use crate::recorder::Recorder;
use crate::target::Failure;

/// The medium of a target: makes and opens the pool, and takes the marks of the application.
pub struct CrashMedium {
    recorder: Arc<Recorder>,
    memory: Mutex<Memory>,
    options: PoolOptions,
}

impl CrashMedium {
    /// Zeroed memory for a pool of `options.size_bytes` bytes, and as many for each of `options.parts`.
    ///
    /// # Errors
    /// If address space runs out.
    pub fn new(options: PoolOptions, mutation: Option<Mutation>) -> Result<Self, Failure> {
        let recorder = Arc::new(Recorder::new(mutation));
        let images = vec![vec![0; usize::try_from(options.size_bytes)?]; 1 + options.parts.len()];
        let memory = Memory::traced(&images, options.reserve_bytes.min(1 << 32), recorder.clone())?;
        Ok(Self { recorder, memory: Mutex::new(memory), options })
    }

    /// The memory, for code below pools.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Options of the pool.
    #[must_use]
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// Formats the memory as a pool and opens it.
    ///
    /// # Errors
    /// As [`Pool::create`].
    pub fn create_pool(&self) -> Result<Pool, lodestone_pmem::Error> {
        Pool::create_on(self.memory(), &self.options)
    }

    /// Opens the pool in the memory.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_pool(&self) -> Result<Pool, lodestone_pmem::Error> {
        Pool::open_on(self.memory(), &self.options)
    }

    /// Marks that operation number `op` of the run begins.
    pub fn begin(&self, op: usize) {
        self.recorder.mark(EventKind::Begin { op });
    }

    /// Waits for durability, as every caller must before it tells the outside, and marks operation number `op` as
    /// acknowledged.
    ///
    /// # Errors
    /// If the wait fails.
    pub fn ack(&self, op: usize) -> Result<(), lodestone_pmem::Error> {
        self.memory().durable()?;
        self.recorder.mark(EventKind::Ack { op });
        Ok(())
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The present content, as the baseline of the medium.
    pub(crate) fn baseline(&self) -> Baseline {
        let memory = self.memory();
        let traced = memory.as_traced().expect("the medium is traced memory");
        let lines = |part: u16| {
            (0..memory.part_len(part) / 64).map(|line| traced.peek(PmAddr::new(part, line * 64).line())).collect()
        };
        self.recorder.take_dirty();
        Baseline::new((0..memory.part_count()).map(lines).collect())
    }

    /// Makes the memory hold `lines` over `baseline` (the first content of each).
    ///
    /// # Errors
    /// If address space runs out.
    pub(crate) fn lay_out(&self, baseline: &Baseline, lines: &Contents, part_bytes: &[u64]) -> Result<(), Failure> {
        let mut dirty = self.recorder.take_dirty();
        self.set_lengths(baseline, part_bytes)?;
        let memory = self.memory();
        let traced = memory.as_traced().expect("the medium is traced memory");
        dirty.sort_unstable();
        dirty.dedup();
        let inside = |line: &LineAddr| memory.contains(line.start(), 64);
        for line in dirty.into_iter().filter(|line| inside(line) && !lines.contains_key(line)) {
            traced.poke(line, baseline.line(line));
        }
        for (&line, contents) in lines.iter().filter(|(line, _)| inside(line)) {
            traced.poke(line, contents.at(0));
        }
        self.recorder.note_dirty(lines.keys().copied());
        Ok(())
    }

    /// Makes a new memory if the parts have other lengths, because a memory cannot shrink.
    fn set_lengths(&self, baseline: &Baseline, part_bytes: &[u64]) -> Result<(), Failure> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if (0..memory.part_count()).map(|part| memory.part_len(part)).eq(part_bytes.iter().copied()) {
            return Ok(());
        }
        let image = |(image, &bytes): (&Vec<u8>, &u64)| {
            let mut image = image.clone();
            image.resize(bytes as usize, 0);
            image
        };
        let images: Vec<_> = baseline.images().iter().zip(part_bytes).map(image).collect();
        *memory = Memory::traced(&images, self.options.reserve_bytes.min(1 << 32), self.recorder.clone())?;
        Ok(())
    }
}
