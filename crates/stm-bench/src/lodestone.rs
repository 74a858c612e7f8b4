//! Lodestone's own transactional memory as an engine, in every mode and with every clock.

use lodestone_pmem::{PmAddr, PmPtr, Pool};
use lodestone_stm::{Abort, ClockKind, FromBytes, IntoBytes, Mode, Part, PmObject, Stm, StmOptions, Ticket, Tx};
use lodestone_store::Store;
use lodestone_workload::engine::{EngineError, Environment};

use crate::tm::{Object, ReadBody, Reading, Ref, Root, Statistics, TransactionalMemory, UpdateBody, Worker, Writing};

/// A memory of `lodestone-stm` in a pool.
#[derive(Debug)]
pub struct Lodestone {
    stm: Stm,
    root: Ref<Root>,
    mode: Mode,
    clock: ClockKind,
}

/// Name of a mode for results and the command line.
#[must_use]
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::OneFence => "one-fence",
        Mode::AddressLog => "address-log",
        Mode::Scan => "scan",
        _ => "unknown",
    }
}

/// Name of a clock for results and the command line.
#[must_use]
pub fn clock_name(clock: ClockKind) -> &'static str {
    match clock {
        ClockKind::Thread => "thread",
        ClockKind::GlobalMutex => "global-mutex",
        ClockKind::GlobalFetchAdd => "global-add",
        ClockKind::GlobalCompareExchange => "global-cas",
    }
}

impl Lodestone {
    /// Opens the memory in `pool`, and formats it on first use.
    ///
    /// # Errors
    /// If the pool has no room or holds something else.
    pub fn open(pool: &Pool, mode: Mode, clock: ClockKind) -> Result<Self, EngineError> {
        #[expect(
            clippy::field_reassign_with_default,
            reason = "the options are not exhaustive: no literal outside their crate"
        )]
        let options = {
            let mut options = StmOptions::default();
            options.mode = mode;
            options.clock = clock;
            options
        };
        let stm = Stm::open_with(&Store::over(pool).map_err(EngineError::new)?, &options).map_err(EngineError::new)?;
        let root = Ref::from_raw(stm.root::<Root>().map_err(EngineError::new)?.addr().to_raw());
        Ok(Self { stm, root, mode, clock })
    }

    /// The memory itself, for its counts.
    #[must_use]
    pub fn stm(&self) -> &Stm {
        &self.stm
    }
}

impl TransactionalMemory for Lodestone {
    type Worker<'m> = LodestoneWorker<'m>;

    fn name(&self) -> String {
        format!("stm-{}/{}", mode_name(self.mode), clock_name(self.clock))
    }

    fn worker(&self) -> Result<LodestoneWorker<'_>, EngineError> {
        Ok(LodestoneWorker { stm: &self.stm, commits: 0, attempts: 0 })
    }

    fn root(&self) -> Ref<Root> {
        self.root
    }

    fn workers_max(&self) -> usize {
        256
    }

    fn environment(&self) -> Environment {
        let info = self.stm.pool().info();
        Environment {
            domain: Some(info.domain_label()),
            media: Some(info.media_label()),
            durability: Some("sync".into()),
        }
    }

    /// A snapshot is an answer, so it waits for every commit that it may have seen.
    fn settle(&self) -> Result<(), EngineError> {
        self.stm.snapshot(|_| Ok(())).map_err(EngineError::new)
    }
}

/// One thread's access to a [`Lodestone`]. The memory itself keeps the state of each thread.
#[derive(Debug)]
pub struct LodestoneWorker<'m> {
    stm: &'m Stm,
    commits: u64,
    attempts: u64,
}

impl Worker for LodestoneWorker<'_> {
    #[inline]
    fn read<B: ReadBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        self.commits += 1;
        let attempts = &mut self.attempts;
        let outcome = self.stm.read(|tx| {
            *attempts += 1;
            body.run(&mut Access(tx))
        });
        outcome.map_err(EngineError::new)
    }

    #[inline]
    fn update<B: UpdateBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        self.commits += 1;
        let attempts = &mut self.attempts;
        let outcome = self.stm.update(|tx| {
            *attempts += 1;
            body.run(&mut Access(tx))
        });
        outcome.map_err(EngineError::new)
    }

    #[inline]
    fn update_relaxed<B: UpdateBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        self.commits += 1;
        let attempts = &mut self.attempts;
        let ticket = self.stm.update_async(|tx| {
            *attempts += 1;
            body.run(&mut Access(tx))
        });
        ticket.map(Ticket::into_value).map_err(EngineError::new)
    }

    /// The memory counts the reasons of failed attempts, for all threads together.
    fn statistics(&self) -> Statistics {
        let aborts_other = self.attempts.saturating_sub(self.commits);
        Statistics { commits: self.commits, aborts_other, ..Statistics::default() }
    }
}

/// A transaction of `lodestone-stm` with the interface of the structures.
struct Access<'a, 't>(&'a mut Tx<'t>);

#[inline]
fn pointer<T: PmObject>(at: Ref<T>) -> PmPtr<T> {
    PmPtr::new(PmAddr::from_raw(at.to_raw()))
}

impl Reading for Access<'_, '_> {
    type Abort = Abort;

    #[inline(always)]
    fn read<T: Object>(&mut self, at: Ref<T>) -> Result<T, Abort> {
        self.0.read(pointer(at))
    }

    #[inline]
    fn read_part<T: Object, F: FromBytes + IntoBytes>(&mut self, at: Ref<T>, part: Part<T, F>) -> Result<F, Abort> {
        self.0.read_part(pointer(at), part)
    }
}

impl Writing for Access<'_, '_> {
    #[inline]
    fn write<T: Object>(&mut self, at: Ref<T>, change: impl FnOnce(&mut T)) -> Result<(), Abort> {
        change(self.0.write(pointer(at))?);
        Ok(())
    }

    #[inline]
    fn alloc<T: Object>(&mut self, value: T) -> Result<Ref<T>, Abort> {
        Ok(Ref::from_raw(self.0.alloc(value)?.addr().to_raw()))
    }

    #[inline]
    fn free<T: Object>(&mut self, at: Ref<T>) -> Result<(), Abort> {
        self.0.free(pointer(at))
    }
}
