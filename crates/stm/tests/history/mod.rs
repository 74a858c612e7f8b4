//! Random programs under a deterministic scheduler, and the values that their transactions saw, for the judge.
//!
//! A program has three threads of a few transactions each, on registers and on holders. A register holds its version
//! number several times. A holder points to a node that holds the same version number. To write a holder means to free
//! its node and to allocate another. Transactions read and write both, nested or not. Some are read-only, some are
//! snapshots.
//!
//! Some faults show at once: a torn register, a node that is not its holder's, or an error. So do more attempts than
//! any order of the others explains, a snapshot that restarts, and a version kept for snapshots after all have ended.
//! The judge finds the rest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use lodestone_heap::HeapOptions;
use lodestone_pmem::sync::thread;
use lodestone_pmem::{Pool, PoolOptions, SilentTracer};
use lodestone_stm::{
    ClockKind, Error, FromBytes, Immutable, IntoBytes, KnownLayout, Mode, PmObject, PmPtr, Stm, StmOptions, Tx,
    TxResult,
};
use lodestone_store::{Store, StoreOptions};
use lodestone_workload::serial_order::{Seen, judge};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{MaxSteps, Runner};

const REGISTERS: usize = 3;
const HOLDERS: usize = 1;
const THREADS: usize = 3;
/// Attempts after which a transaction is stuck. Two other threads commit less often.
const ATTEMPTS_MAX: u32 = 60;
/// Switches of a schedule. Ours need a twentieth.
const STEPS_MAX: usize = 400_000;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Register {
    version: u64,
    copies: [u64; 4],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Holder {
    version: u64,
    node: PmPtr<Node>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Node {
    version: u64,
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub mode: Mode,
    pub clock: ClockKind,
    /// Kinds of transactions to draw from: u for update, r for read, s for snapshot.
    pub kinds: &'static [u8],
    /// Whether holders and their nodes take part.
    pub allocates: bool,
    pub seed: u64,
    pub schedules: usize,
}

/// A program: by thread, transactions of a kind with their steps.
type Program = Vec<Vec<(u8, Vec<Step>)>>;

#[derive(Clone, Copy, Debug)]
struct Step {
    object: usize,
    writes: bool,
    nested: bool,
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

fn program(spec: &Spec) -> Program {
    let mut state = spec.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for _ in 0..20 {
        random(&mut state);
    }
    let objects = REGISTERS as u64 + if spec.allocates { HOLDERS as u64 } else { 0 };
    let mut transaction = || {
        let kind = spec.kinds[random(&mut state) as usize % spec.kinds.len()];
        let steps = (0..2 + random(&mut state) % 3).map(|_| Step {
            object: (random(&mut state) % objects) as usize,
            writes: kind == b'u' && random(&mut state).is_multiple_of(2),
            nested: random(&mut state).is_multiple_of(4),
        });
        (kind, steps.collect())
    };
    (0..THREADS).map(|_| (0..3).map(|_| transaction()).collect()).collect()
}

struct World {
    stm: Stm,
    registers: Vec<PmPtr<Register>>,
    holders: Vec<PmPtr<Holder>>,
    time: AtomicU64,
    committed: Mutex<Vec<Seen>>,
    attempts: Mutex<Vec<Seen>>,
    wrong: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl World {
    fn new(spec: &Spec) -> Result<Self, Error> {
        let options =
            PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
        let pool = Pool::create_traced(&options, Arc::new(SilentTracer))?;
        let options = StmOptions { mode: spec.mode, clock: spec.clock, threads_max: 6, ..StmOptions::small() };
        let stm = Stm::open_with(&Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?, &options)?;
        let (registers, holders) = stm.update(|tx| {
            let register = |tx: &mut Tx<'_>| tx.alloc(Register { version: 0, copies: [0; 4] });
            let registers = (0..REGISTERS).map(|_| register(tx)).collect::<TxResult<Vec<_>>>()?;
            let holder = |tx: &mut Tx<'_>| {
                let node = tx.alloc(Node { version: 0 })?;
                tx.alloc(Holder { version: 0, node })
            };
            let holders = (0..HOLDERS).map(|_| holder(tx)).collect::<TxResult<Vec<_>>>()?;
            Ok((registers, holders))
        })?;
        let (committed, attempts, wrong) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { stm, registers, holders, time: AtomicU64::new(1), committed, attempts, wrong })
    }

    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn wrong(&self, what: String) {
        locked(&self.wrong).get_or_insert(what);
    }

    fn step(&self, tx: &mut Tx<'_>, step: Step, seen: &mut Seen) -> TxResult<()> {
        if step.nested {
            return tx.nested(|tx| self.step(tx, Step { nested: false, ..step }, seen));
        }
        let own = seen.writes.iter().any(|&(object, _)| object == step.object);
        let version = match step.object.checked_sub(REGISTERS) {
            None => self.register(tx, step, own)?,
            Some(holder) => self.holder(tx, self.holders[holder], step, own)?,
        };
        if !own {
            seen.reads.push((step.object, version));
            if step.writes {
                seen.writes.push((step.object, version + 1));
            }
        }
        Ok(())
    }

    /// Reads, or reads and writes, a register. Returns the version that was there.
    fn register(&self, tx: &mut Tx<'_>, step: Step, own: bool) -> TxResult<u64> {
        let at = self.registers[step.object];
        let (version, copies) = if step.writes && !own {
            let working = tx.write(at)?;
            let before = (working.version, working.copies);
            *working = Register { version: before.0 + 1, copies: [before.0 + 1; 4] };
            before
        } else {
            let found = tx.read(at)?;
            (found.version, found.copies)
        };
        if copies != [version; 4] {
            self.wrong(format!("a torn register: version {version}, copies {copies:?}"));
        }
        Ok(version)
    }

    fn holder(&self, tx: &mut Tx<'_>, at: PmPtr<Holder>, step: Step, own: bool) -> TxResult<u64> {
        let Holder { version, node } = tx.read(at)?;
        let found = tx.read(node)?.version;
        if found != version {
            self.wrong(format!("a holder of version {version} with a node of version {found}"));
        }
        if step.writes && !own {
            tx.free(node)?;
            let node = tx.alloc(Node { version: version + 1 })?;
            *tx.write(at)? = Holder { version: version + 1, node };
        }
        Ok(version)
    }

    fn run(&self, kind: u8, steps: &[Step]) {
        let begun = self.now();
        let (mut seen, mut attempts) = (Seen::default(), 0);
        let mut body = |tx: &mut Tx<'_>| {
            let last = std::mem::take(&mut seen);
            if !last.reads.is_empty() {
                locked(&self.attempts).push(Seen { begun, ended: u64::MAX, writes: Vec::new(), ..last });
            }
            attempts += 1;
            if attempts > ATTEMPTS_MAX {
                return tx.cancel("stuck");
            }
            steps.iter().try_for_each(|&step| self.step(tx, step, &mut seen))
        };
        let done = match kind {
            b'u' => self.stm.update(&mut body),
            b'r' => self.stm.read(&mut body),
            _ => self.stm.snapshot(&mut body),
        };
        match done {
            Ok(()) => {
                (seen.begun, seen.ended) = (begun, self.now());
                locked(&self.committed).push(seen);
            }
            Err(error) => self.wrong(format!("after {attempts} attempts: {error}")),
        }
    }

    fn verdict(&self) -> Result<(), String> {
        if let Some(wrong) = locked(&self.wrong).take() {
            return Err(wrong);
        }
        judge(&locked(&self.committed), &locked(&self.attempts))?;
        let stats = self.stm.stats();
        if stats.conflicts_snapshot > 0 {
            return Err("a snapshot began again".into());
        }
        if (stats.side_versions, stats.side_bytes) != (0, 0) {
            return Err(format!("{} versions are kept, and no snapshot is active", stats.side_versions));
        }
        let report = self.stm.check_all();
        if report.is_intact() { Ok(()) } else { Err(format!("findings: {:?}", report.findings)) }
    }
}

/// Counts over the schedules of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub schedules: u64,
    pub committed: u64,
    pub attempts: u64,
    pub side_copies: u64,
}

/// Runs schedules of the program of `spec.seed`, random or by priorities. Returns the first violation, or the counts.
pub fn explore(spec: Spec, by_priorities: bool) -> Result<Counts, String> {
    let counts = Arc::new(Mutex::new(Counts::default()));
    let sum = Arc::clone(&counts);
    let execution = move || {
        let world = Arc::new(World::new(&spec).expect("a memory"));
        let running = program(&spec).into_iter().map(|transactions| {
            let world = Arc::clone(&world);
            thread::spawn(move || transactions.iter().for_each(|(kind, steps)| world.run(*kind, steps)))
        });
        // All of them run before the first is waited for.
        let running: Vec<_> = running.collect();
        running.into_iter().for_each(|thread| thread.join().expect("no panic"));
        if let Err(violation) = world.verdict() {
            panic!("{violation}");
        }
        let mut sum = locked(&sum);
        sum.schedules += 1;
        sum.committed += locked(&world.committed).len() as u64;
        sum.attempts += locked(&world.attempts).len() as u64;
        sum.side_copies += world.stm.stats().side_copies;
    };
    let mut config = shuttle::Config::new();
    (config.stack_size, config.max_steps) = (1 << 20, MaxSteps::FailAfter(STEPS_MAX));
    config.failure_persistence = shuttle::FailurePersistence::None;
    let (seed, schedules) = (spec.seed, spec.schedules);
    let outcome = catch_unwind(AssertUnwindSafe(|| match by_priorities {
        false => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config).run(execution),
        true => Runner::new(PctScheduler::new_from_seed(seed, 3, schedules + 1), config).run(execution),
    }));
    match outcome {
        Ok(_) => Ok(*locked(&counts)),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().cloned();
            let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let text = text.unwrap_or_else(|| "a panic without a message".into());
            Err(format!("{spec:?}, by priorities: {by_priorities}: {text}"))
        }
    }
}
