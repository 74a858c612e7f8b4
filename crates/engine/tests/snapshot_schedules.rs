//! Random programs of transactions and snapshots under a deterministic scheduler. The judge of histories finds a
//! snapshot that is no serializable transaction at the moment of its begin. Each rule of the snapshots is broken on
//! request, and found.
//!
//! A program has three threads of a few transactions each, on a few rows. A row holds the number of its version. Rows
//! come and go, and leaves have two rows, so they are purged and split. A version of an absent row is known as in
//! `serial.rs`: a row of an even key is deleted at most once.
//!
//! One test: a bug is planted for the whole process. A violation names its program: `LODESTONE_PROGRAM` runs schedules
//! of one program in the clean tree, and `LODESTONE_BUG` looks for one bug alone.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::traced;
use lodestone_engine::{Database, Isolation, Reader, Result, Schema, Table, Tx, Type, row};
use lodestone_pmem::planted;
use lodestone_pmem::sync::thread;
use lodestone_workload::random::Random;
use lodestone_workload::serial_order::{Seen, judge};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{MaxSteps, Runner};

const KEYS: u64 = 4;
const THREADS: u64 = 3;
/// Attempts after which a transaction is stuck. Two other threads commit less often.
const ATTEMPTS_MAX: u32 = 60;
/// Switches of a schedule.
const STEPS_MAX: usize = 2_000_000;
/// The version of a deleted row.
const DELETED: u64 = 1 << 32;

/// A transaction of a program.
#[derive(Clone, Debug)]
enum Work {
    /// Reads and writes: the key, whether it is written, and whether it is deleted where that is allowed.
    Update(Isolation, Vec<(u64, bool, bool)>),
    /// Reads all rows through a snapshot, twice, forwards or backwards, with another transaction in between.
    Snapshot(bool, Vec<(u64, bool, bool)>),
}

fn program(seed: u64) -> Vec<Vec<Work>> {
    let mut random = Random::new(seed);
    let steps = |random: &mut Random| -> Vec<(u64, bool, bool)> {
        (0..1 + random.below(2)).map(|_| (random.below(KEYS), random.below(3) > 0, random.below(2) == 0)).collect()
    };
    let mut work = || match random.below(5) {
        0..2 => Work::Snapshot(random.below(2) == 0, steps(&mut random)),
        2 => Work::Update(Isolation::SerializableOnSnapshot, steps(&mut random)),
        _ => Work::Update(Isolation::Serializable, steps(&mut random)),
    };
    (0..THREADS).map(|_| (0..2).map(|_| work()).collect()).collect()
}

struct World {
    db: Database,
    table: Table,
    time: AtomicU64,
    committed: Mutex<Vec<Seen>>,
    attempts: Mutex<Vec<Seen>>,
    wrong: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version that the absence of a row is.
fn absent(key: u64) -> u64 {
    if key.is_multiple_of(2) { DELETED } else { 0 }
}

impl World {
    fn new() -> Result<Self> {
        let (store, options) = traced();
        let db = Database::open_in(&store, &options)?;
        let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::I64).key(["k"]))?;
        db.update(|tx| (0..KEYS).step_by(2).try_for_each(|key| table.put(tx, &row![key, 0_i64])))?;
        let (committed, attempts, wrong) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { db, table, time: AtomicU64::new(1), committed, attempts, wrong })
    }

    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn read(&self, reader: &impl Reader, key: u64, seen: &mut Seen) -> Result<Option<u64>> {
        let found = self.table.get(reader, &row![key])?.and_then(|row| row[1].as_i64());
        let found = found.map(|version| u64::try_from(version).expect("versions are positive"));
        seen.reads.push((usize::try_from(key).expect("few"), found.unwrap_or(absent(key))));
        Ok(found)
    }

    fn step(&self, tx: &Tx, (key, writes, deletes): (u64, bool, bool), seen: &mut Seen) -> Result<()> {
        if seen.writes.iter().any(|(other, _)| *other as u64 == key) {
            return Ok(());
        }
        let found = self.read(tx, key, seen)?;
        if !writes {
            return Ok(());
        }
        let before = found.unwrap_or(absent(key));
        let version = if deletes && found.is_some() && key.is_multiple_of(2) && before < DELETED {
            self.table.delete(tx, &row![key])?;
            DELETED
        } else {
            self.table.put(tx, &row![key, i64::try_from(before + 1).expect("small")])?;
            before + 1
        };
        seen.writes.push((usize::try_from(key).expect("few"), version));
        Ok(())
    }

    fn update(&self, isolation: Isolation, steps: &[(u64, bool, bool)]) -> Result<()> {
        let begun = self.now();
        let (mut seen, mut attempts) = (Seen::default(), 0);
        self.db.update_with(isolation, |tx| {
            let last = std::mem::take(&mut seen);
            if !last.reads.is_empty() {
                locked(&self.attempts).push(Seen { begun, ended: u64::MAX, writes: Vec::new(), ..last });
            }
            attempts += 1;
            if attempts > ATTEMPTS_MAX {
                return Err(lodestone_engine::Error::cancelled("stuck"));
            }
            steps.iter().try_for_each(|step| self.step(tx, *step, &mut seen))
        })?;
        (seen.begun, seen.ended) = (begun, self.now());
        locked(&self.committed).push(seen);
        Ok(())
    }

    /// All rows by a range, with the absent ones.
    fn scan(&self, reader: &impl Reader, is_reversed: bool) -> Result<Vec<(usize, u64)>> {
        let rows = self.table.range(reader, ..)?;
        let rows: Vec<_> = if is_reversed { rows.rev().collect::<Result<_>>()? } else { rows.collect::<Result<_>>()? };
        let found = |key: u64| rows.iter().find(|row| row[0].as_u64() == Some(key)).and_then(|row| row[1].as_i64());
        let version = |key| found(key).map_or(absent(key), |version| u64::try_from(version).expect("positive"));
        Ok((0..KEYS).map(|key| (usize::try_from(key).expect("few"), version(key))).collect())
    }

    fn snapshot(&self, is_reversed: bool, between: &[(u64, bool, bool)]) -> Result<()> {
        let begun = self.now();
        let snapshot = self.db.snapshot()?;
        let ended = self.now();
        let reads = self.scan(&snapshot, is_reversed)?;
        self.update(Isolation::Serializable, between)?;
        let mut again = Seen::default();
        (0..KEYS).try_for_each(|key| self.read(&snapshot, key, &mut again).map(|_| ()))?;
        let third = self.scan(&snapshot, !is_reversed)?;
        if reads != again.reads || reads != third {
            locked(&self.wrong).get_or_insert(format!("a snapshot saw {reads:?}, {:?}, {third:?}", again.reads));
        }
        locked(&self.committed).push(Seen { begun, ended, reads, writes: Vec::new() });
        Ok(())
    }

    fn run(&self, work: &Work) {
        let outcome = match work {
            Work::Update(isolation, steps) => self.update(*isolation, steps),
            Work::Snapshot(is_reversed, between) => self.snapshot(*is_reversed, between),
        };
        if let Err(error) = outcome {
            locked(&self.wrong).get_or_insert(error.to_string());
        }
    }

    fn verdict(&self) -> std::result::Result<(), String> {
        if let Some(wrong) = locked(&self.wrong).take() {
            return Err(wrong);
        }
        judge(&locked(&self.committed), &locked(&self.attempts))?;
        let stats = self.db.stats();
        if (stats.snapshots_open, stats.side_versions, stats.side_bytes) != (0, 0, 0) {
            return Err(format!("no snapshot is open: {stats}"));
        }
        Ok(())
    }
}

/// Runs schedules of the program `seed`, random or by priorities. Returns how many versions were kept.
fn explore(seed: u64, schedules: usize, by_priorities: bool) -> std::result::Result<u64, String> {
    let kept = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&kept);
    let execution = move || {
        let world = Arc::new(World::new().expect("a database"));
        let running = program(seed).into_iter().map(|work| {
            let world = Arc::clone(&world);
            thread::spawn(move || work.iter().for_each(|work| world.run(work)))
        });
        // All of them run before the first is waited for.
        let running: Vec<_> = running.collect();
        running.into_iter().for_each(|thread| thread.join().expect("no panic"));
        if let Err(violation) = world.verdict() {
            panic!("{violation}");
        }
        sum.fetch_add(world.db.stats().side_copies, Ordering::Relaxed);
    };
    let mut config = shuttle::Config::new();
    (config.stack_size, config.max_steps) = (1 << 20, MaxSteps::FailAfter(STEPS_MAX));
    config.failure_persistence = shuttle::FailurePersistence::None;
    let outcome = catch_unwind(AssertUnwindSafe(|| match by_priorities {
        false => Runner::new(RandomScheduler::new_from_seed(seed, schedules), config).run(execution),
        true => Runner::new(PctScheduler::new_from_seed(seed, 3, schedules + 1), config).run(execution),
    }));
    outcome.map(|_| kept.load(Ordering::Relaxed)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        format!("program {seed}, by priorities: {by_priorities}: {}", text.unwrap_or_default())
    })
}

/// Programs and schedules of each.
const CLEAN: (u64, usize) = (40, 8);
const PROGRAMS_MAX: u64 = 300;

#[test]
fn a_snapshot_is_serializable_in_every_schedule_and_each_broken_rule_is_found() {
    if let Some(seed) = std::env::var("LODESTONE_PROGRAM").ok().and_then(|seed| seed.parse().ok()) {
        println!("{:#?}", program(seed));
        [false, true].into_iter().for_each(|pct| println!("{:?}", explore(seed, 100, pct)));
        return;
    }
    // Every find is a panic inside the scheduler.
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var("LODESTONE_BUG").ok();
    let mut kept = 0;
    for seed in 1..=if only.is_some() { 1 } else { CLEAN.0 } {
        for by_priorities in [false, true] {
            kept += explore(seed, CLEAN.1, by_priorities).unwrap_or_else(|violation| {
                eprintln!("{violation}");
                std::process::abort();
            });
        }
    }
    println!("no violation, {kept} versions were kept");
    let bugs = [
        "engine-side-late",
        "engine-snapshot-epoch-early",
        "engine-snapshot-purged",
        "engine-stale-reads-count",
        "engine-reads-unvalidated",
        "txn-side-first-only",
        "txn-side-freed-early",
    ];
    let mut missed = Vec::new();
    for bug in bugs.into_iter().filter(|bug| only.as_deref().is_none_or(|only| only == *bug)) {
        planted::plant(Some(bug));
        let find = |seed| [false, true].into_iter().find_map(|pct| explore(seed, 20, pct).err());
        let found = (1..=PROGRAMS_MAX).find_map(find);
        planted::plant(None);
        match found {
            Some(violation) => println!("{bug}: {violation}"),
            None => missed.push(bug),
        }
    }
    drop(std::panic::take_hook());
    assert!(kept > 0, "no snapshot ever needed an older version");
    assert!(missed.is_empty(), "not found: {missed:?}");
}
