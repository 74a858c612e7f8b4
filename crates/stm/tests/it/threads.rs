//! Real threads: every state that any closure sees was committed, and every history has a serial order.
//!
//! Registers hold version numbers that only their writers assign. `workload::serial_order` draws the conclusions.
//! `tests/histories.rs` lets the same judge look at schedules of a deterministic scheduler.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_stm::{
    ClockKind, FromBytes, Immutable, IntoBytes, KnownLayout, Mode, PmObject, PmPtr, Result, Stm, StmOptions,
};
use lodestone_store::Store;
use lodestone_workload::serial_order::{Seen, judge};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Register {
    /// Number of the transaction that wrote it.
    writer: u64,
    /// The number of versions before it.
    version: u64,
    copies: [u64; 8],
}

const OBJECTS: usize = 4;

struct World {
    stm: Stm,
    registers: Vec<PmPtr<Register>>,
    time: AtomicU64,
    committed: Mutex<Vec<Seen>>,
    attempts: Mutex<Vec<Seen>>,
}

impl World {
    fn new(folder: &tempfile::TempDir, options: &StmOptions) -> Result<Self> {
        let pool = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
        let stm = Stm::open_with(&Store::create(folder.path().join("threads.pool"), &pool)?, options)?;
        let make = |_| stm.update(|tx| tx.alloc(Register { writer: 0, version: 0, copies: [0; 8] }));
        let registers = (0..OBJECTS).map(make).collect::<Result<_>>()?;
        let (committed, attempts) = (Mutex::default(), Mutex::default());
        Ok(Self { stm, registers, time: AtomicU64::new(1), committed, attempts })
    }

    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    /// One transaction of thread `thread`: reads some registers, writes some.
    fn step(&self, kind: u64, random: u64) {
        let begun = self.now();
        let mut seen = Seen::default();
        let mut body = |tx: &mut lodestone_stm::Tx<'_>| {
            if !seen.reads.is_empty() {
                let attempt = Seen { begun, ended: u64::MAX, writes: Vec::new(), ..std::mem::take(&mut seen) };
                self.attempts.lock().expect("no panic under it").push(attempt);
            }
            seen = Seen::default();
            for object in 0..OBJECTS {
                let choice = (random >> (4 * object)) & 15;
                let register = self.registers[object];
                if choice < 9 {
                    let found = tx.read(register)?;
                    assert_eq!(found.copies, [found.version; 8], "a torn version");
                    seen.reads.push((object, found.version));
                }
                if kind == 0 && (7..12).contains(&choice) {
                    let working = tx.write(register)?;
                    let version = working.version;
                    (working.version, working.copies) = (version + 1, [version + 1; 8]);
                    seen.reads.push((object, version));
                    seen.writes.push((object, version + 1));
                }
            }
            Ok(())
        };
        let done = match kind {
            0 => self.stm.update(&mut body),
            1 => self.stm.read(&mut body),
            _ => self.stm.snapshot(&mut body),
        };
        done.expect("a commit");
        (seen.begun, seen.ended) = (begun, self.now());
        self.committed.lock().expect("no panic under it").push(seen);
    }
}

fn run(mode: Mode, clock: ClockKind) -> Result<()> {
    for seed in 1..6_u64 {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::new(&folder, &StmOptions { mode, clock, ..StmOptions::default() })?;
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let world = &world;
                scope.spawn(move || {
                    let mut state = (seed * 31 + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                    for _ in 0..60 {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        world.step([0, 0, 1, 2][(state % 4) as usize], state >> 8);
                    }
                });
            }
        });
        let committed = world.committed.lock().expect("no panic under it");
        let attempts = world.attempts.lock().expect("no panic under it");
        assert_eq!(judge(&committed, &attempts[..attempts.len().min(50)]), Ok(()), "{mode:?} {clock:?} seed {seed}");
        assert!(world.stm.check_all().is_intact());
    }
    Ok(())
}

#[test]
fn histories_of_threads_have_a_serial_order() -> Result<()> {
    run(Mode::OneFence, ClockKind::Thread)
}

#[test]
fn so_have_those_of_the_published_modes_and_clocks() -> Result<()> {
    run(Mode::AddressLog, ClockKind::GlobalFetchAdd)?;
    run(Mode::Scan, ClockKind::GlobalMutex)?;
    run(Mode::OneFence, ClockKind::GlobalCompareExchange)
}
