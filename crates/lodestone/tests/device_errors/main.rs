//! Every floor on a device that fails: each write and each sync fails once, for ever, or takes half of its bytes.
//!
//! A program makes numbered steps on an ordered map, on objects and a collection in transactions, and on a table. From
//! some call on the device fails. Then the power fails, and any choice of the sectors that were not synced survives.
//!
//! 1. Every step that was acknowledged is there, and every step is there whole or not at all.
//! 2. An answer to a read was durable: it is at most as new as what survived.
//! 3. After the first error no step is acknowledged. Nothing panics or hangs, also when everything is closed.
//! 4. The pool opens again and goes on. Its check finds nothing.
//!
//! `cold.rs` has rows that are not in memory, on a device that fails to read.
//! `tables.rs` has the floors of tables: indexes, long values, deltas, definitions, groups, tickets, feeds, backups.
//! `threads.rs` has many threads on a device that fails under them.

mod cold;
mod tables;
mod threads;

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone::collections::PmHashMap;
use lodestone::engine::{Durability, FeedPosition, row};
use lodestone::{Database, OrderedMap, Pool, PoolOptions, Stm, Store};
use lodestone_engine::{DatabaseOptions, Schema, Table, Type, Value};
use lodestone_heap::HeapOptions;
use lodestone_pmem::DomainChoice;
use lodestone_pmem::storage::{Failing, FaultPlan, FaultyStorage, OpenFile, SimulatedDisk};
use lodestone_stm::StmOptions;
use lodestone_store::StoreOptions;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;
type Device = Arc<FaultyStorage<Arc<SimulatedDisk>>>;

const POOL_BYTES: u64 = 1 << 20;
/// Keys that the steps write, one after the other.
const KEYS: u64 = 5;
/// Steps of a program on the device that fails.
const STEPS: u64 = 14;
/// Steps after which the journal has been round several times, so that the program also meets checkpoints.
const STEPS_MANY: u64 = 150;
/// Longer than any program takes on a busy machine.
const HANG_SECONDS: u64 = 120;

/// The newest step that wrote each key.
type View = [u64; KEYS as usize];

/// The content after `steps` steps.
fn model(steps: u64) -> View {
    std::array::from_fn(|key| (1..=steps).rev().find(|step| step % KEYS == key as u64).unwrap_or(0))
}

/// The number of steps that leave this view.
fn steps_in(view: View) -> Option<u64> {
    let steps = view.into_iter().max().unwrap_or(0);
    (view == model(steps)).then_some(steps)
}

/// A floor of the stack.
trait Floor {
    fn step(&self, step: u64) -> Outcome;
    fn view(&self) -> Outcome<View>;

    /// The last step that was told otherwise than by an answer, as by a feed.
    fn told(&self) -> u64 {
        0
    }

    /// The place of a feed after what it told.
    fn position(&self) -> Option<FeedPosition> {
        None
    }

    /// A feed goes on from there, with the steps after `told` up to `steps`.
    fn go_on(&self, _position: &FeedPosition, _told: u64, _steps: u64) -> Outcome {
        Ok(())
    }
}

type Open = fn(&Store) -> Outcome<Box<dyn Floor>>;

struct Map(OrderedMap);

impl Floor for Map {
    fn step(&self, step: u64) -> Outcome {
        self.0.insert(&[(step % KEYS) as u8], &step.to_le_bytes())?;
        Ok(())
    }

    fn view(&self) -> Outcome<View> {
        let mut view = View::default();
        for (key, step) in view.iter_mut().enumerate() {
            let found = self.0.get(&[key as u8])?;
            *step = found.map_or(Ok(0), |bytes| bytes.try_into().map(u64::from_le_bytes)).map_err(|_| "eight bytes")?;
        }
        Ok(view)
    }
}

/// Values by key in one collection, and the newest step in another one.
struct Objects(Stm, PmHashMap<u64, u64>, PmHashMap<u64, u64>);

impl Floor for Objects {
    fn step(&self, step: u64) -> Outcome {
        self.0.update(|tx| {
            self.1.insert(tx, &(step % KEYS), &step)?;
            self.2.insert(tx, &0, &step)?;
            Ok(())
        })?;
        Ok(())
    }

    fn view(&self) -> Outcome<View> {
        let read = |tx: &mut lodestone::stm::Tx<'_>| {
            let mut view = View::default();
            for (key, step) in view.iter_mut().enumerate() {
                *step = self.1.get(tx, &(key as u64))?.unwrap_or(0);
            }
            Ok((view, self.2.get(tx, &0)?.unwrap_or(0)))
        };
        let (view, newest) = self.0.update(read)?;
        if view.into_iter().max() == Some(newest) { Ok(view) } else { Err("half a transaction".into()) }
    }
}

/// The rows of the keys, and a row with the newest step.
struct Rows(Database, Table);

impl Floor for Rows {
    fn step(&self, step: u64) -> Outcome {
        if step.is_multiple_of(3) {
            // Rows go to pages, and the log is truncated.
            self.0.checkpoint()?;
        }
        self.0.update(|tx| {
            self.1.put(tx, &row![step % KEYS, step])?;
            self.1.put(tx, &row![KEYS, step])
        })?;
        Ok(())
    }

    fn view(&self) -> Outcome<View> {
        let rows = self.0.update(|tx| self.1.range(tx, ..)?.collect::<Result<Vec<_>, _>>())?;
        let (mut view, mut newest) = (View::default(), 0);
        for row in rows {
            let number = |value: &Value| value.as_u64().ok_or("a number");
            let (key, step) = (number(&row[0])?, number(&row[1])?);
            *view.get_mut(key as usize).unwrap_or(&mut newest) = step;
        }
        if view.into_iter().max() == Some(newest) { Ok(view) } else { Err("half a transaction".into()) }
    }
}

/// Rows in cells. A step updates one of them, so it has no record.
struct Cells(Database, Table);

impl Floor for Cells {
    fn step(&self, step: u64) -> Outcome {
        if step.is_multiple_of(7) {
            self.0.checkpoint()?;
        }
        Ok(self.0.update(|tx| self.1.put(tx, &row![step % KEYS, step]))?)
    }

    fn view(&self) -> Outcome<View> {
        let rows = self.0.update(|tx| self.1.range(tx, ..)?.collect::<Result<Vec<_>, _>>())?;
        let mut view = View::default();
        for row in rows {
            let number = |value: &Value| value.as_u64().ok_or("a number");
            view[number(&row[0])? as usize] = number(&row[1])?;
        }
        Ok(view)
    }
}

fn open_map(store: &Store) -> Outcome<Box<dyn Floor>> {
    Ok(Box::new(Map(OrderedMap::open(store, "map")?)))
}

fn open_objects(store: &Store) -> Outcome<Box<dyn Floor>> {
    let small = StmOptions { threads_max: 4, table_bytes: 1024, slab_bytes: 4096, ..StmOptions::default() };
    let stm = Stm::open_with(store, &small)?;
    let (values, newest) = (PmHashMap::open(&stm, "values")?, PmHashMap::open(&stm, "newest")?);
    Ok(Box::new(Objects(stm, values, newest)))
}

fn open_rows(store: &Store) -> Outcome<Box<dyn Floor>> {
    // A thread would make calls of its own, and each run would have others.
    let log = DatabaseOptions { log_bytes: 64 << 10, segment_bytes: 4 << 10, ..DatabaseOptions::default() };
    let small = DatabaseOptions { page_bytes: 512, extent_pages: 8, checkpoint_thread: false, ..log };
    let database = Database::open_in(store, &small)?;
    let table = database.create_table(&Schema::new("t").column("k", Type::U64).column("step", Type::U64).key(["k"]))?;
    Ok(Box::new(Rows(database, table)))
}

fn open_cells(store: &Store) -> Outcome<Box<dyn Floor>> {
    let database = Database::open_in(store, &tables::options(Durability::Sync, true))?;
    let schema = Schema::new("t").column("k", Type::U64).column("step", Type::U64).key(["k"]).dual();
    let table = database.create_table(&schema)?;
    Ok(Box::new(Cells(database, table)))
}

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Block,
        size_bytes: POOL_BYTES,
        journal_bytes: 96 << 10,
        ..PoolOptions::default()
    }
}

/// Ends the process when what it watches takes too long: a thread that hangs cannot be ended.
struct Watch(Option<Sender<()>>, Option<JoinHandle<()>>);

impl Watch {
    fn new(what: String) -> Self {
        let (ends, is_over) = channel::<()>();
        let watch = move || {
            if is_over.recv_timeout(Duration::from_secs(HANG_SECONDS)) == Err(RecvTimeoutError::Timeout) {
                let _ = writeln!(std::io::stderr(), "a hang of more than {HANG_SECONDS} s: {what}");
                std::process::abort();
            }
        };
        Self(Some(ends), Some(std::thread::spawn(watch)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.0.take());
        self.1.take().map(JoinHandle::join);
    }
}

/// The content of a device with an empty pool.
fn fresh() -> Outcome<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    drop(Pool::create(&path, &options())?);
    Ok(std::fs::read(path)?)
}

fn device(content: Vec<u8>) -> (Arc<SimulatedDisk>, Device) {
    let disk = Arc::new(SimulatedDisk::new(content));
    (disk.clone(), Arc::new(FaultyStorage::new(disk, FaultPlan::default())))
}

fn store_on(device: &Device) -> Outcome<Store> {
    let pool = Pool::open_on_device(|| Arc::new(OpenFile::new(device)), POOL_BYTES, &options())?;
    Ok(Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small()))?)
}

fn plans(number: u64) -> [FaultPlan; 6] {
    let none = FaultPlan::default();
    [
        FaultPlan { fail_sync: Some(Failing::once(number)), ..none },
        FaultPlan { fail_sync: Some(Failing::for_ever(number)), ..none },
        FaultPlan { fail_write: Some(Failing::once(number)), ..none },
        FaultPlan { fail_write: Some(Failing::for_ever(number)), ..none },
        FaultPlan { short_write: Some((number, 512)), ..none },
        FaultPlan { short_write: Some((number, 512)), fail_sync: Some(Failing::once(number + 1)), ..none },
    ]
}

/// One program under one plan. Returns whether the device failed at all.
fn run(open: Open, content: &[u8], steps: u64, plan: FaultPlan) -> Outcome<bool> {
    let _watch = Watch::new(format!("{plan:?}"));
    let (disk, device) = device(content.to_vec());
    let store = store_on(&device)?;
    let floor = open(&store)?;
    let before = steps_in(floor.view()?).ok_or("the state before")?;
    device.arm(plan);
    let (mut acknowledged, mut tried, mut has_failed, mut seen) = (before, before, false, 0);
    for step in before + 1..=before + steps {
        tried = step;
        match floor.step(step) {
            Ok(()) => {
                assert!(!has_failed, "step {step} is acknowledged after one that failed");
                acknowledged = step;
            }
            Err(_) => has_failed = true,
        }
        if let Ok(view) = floor.view() {
            seen = steps_in(view).ok_or("a view that no steps leave")?;
            assert!(seen >= acknowledged && seen <= tried, "{acknowledged} <= {seen} <= {tried}");
        }
        seen = seen.max(floor.told());
        if has_failed && step > acknowledged + 3 {
            break;
        }
    }
    let (position, told) = (floor.position(), floor.told());
    drop((floor, store));
    for survivors in [0_u64, u64::MAX, 0x5555_3333_0F0F_1234] {
        let mut choice = survivors;
        let content = disk.power_cut(|_| {
            choice = choice.rotate_left(1);
            choice & 1 == 1
        });
        let (_, reborn) = self::device(content);
        let store = store_on(&reborn)?;
        let floor = open(&store)?;
        let steps = steps_in(floor.view()?).ok_or("a state that no steps leave")?;
        assert!(steps >= acknowledged.max(seen) && steps <= tried, "{acknowledged}, {seen} <= {steps} <= {tried}");
        position.iter().try_for_each(|position| floor.go_on(position, told, steps))?;
        floor.step(steps + 1)?;
        assert_eq!(steps_in(floor.view()?), Some(steps + 1));
        drop(floor);
        let report = store.check(&mut |_| {});
        assert!(report.is_clean(), "{:?}", report.findings);
        drop(store);
    }
    Ok(has_failed)
}

/// Runs `open` under the plans for every call of the device up to the first one that no program makes.
fn prove(open: Open, steps: u64, stride: u64) -> Outcome {
    let (disk, device) = device(fresh()?);
    {
        let store = store_on(&device)?;
        let floor = open(&store)?;
        (1..=7).try_for_each(|step| floor.step(step))?;
    }
    let content = disk.content();
    let mut failures = 0;
    for number in (1..).step_by(stride as usize) {
        let failed = plans(number)
            .into_iter()
            .map(|plan| run(open, &content, steps, plan).map_err(|error| format!("{plan:?}: {error}").into()));
        let failed = failed.collect::<Outcome<Vec<bool>>>()?;
        failures += failed.iter().filter(|failed| **failed).count();
        if !failed.contains(&true) {
            break;
        }
    }
    assert!(failures as u64 * stride >= 4 * steps, "{failures} programs met the failure");
    Ok(())
}

#[test]
fn a_map_loses_nothing_that_it_acknowledged_when_the_device_fails() -> Outcome {
    prove(open_map, STEPS, 5)
}

#[test]
fn objects_lose_nothing_that_was_acknowledged_when_the_device_fails() -> Outcome {
    prove(open_objects, STEPS, 5)
}

#[test]
fn rows_lose_nothing_that_was_acknowledged_when_the_device_fails() -> Outcome {
    prove(open_rows, STEPS, 5)
}

#[test]
fn tables_lose_nothing_that_was_acknowledged_when_the_device_fails() -> Outcome {
    prove(tables::open_sync, STEPS, 31)
}

#[test]
fn ordered_tables_lose_nothing_that_was_acknowledged_when_the_device_fails() -> Outcome {
    prove(tables::open_ordered, STEPS, 31)
}

#[test]
fn groups_lose_nothing_that_was_acknowledged_when_the_device_fails() -> Outcome {
    prove(tables::open_epochs, STEPS, 61)
}

#[test]
fn feeds_and_copies_hold_what_was_acknowledged_when_the_device_fails() -> Outcome {
    prove(tables::open_feed, STEPS, 61)
}

#[test]
fn cells_lose_nothing_that_was_acknowledged_when_the_device_fails() -> Outcome {
    prove(open_cells, STEPS, 5)?;
    prove(tables::open_dual, STEPS, 31)?;
    prove(tables::open_dual_feed, STEPS, 61)
}

#[test]
#[ignore = "`make prove` runs it"]
fn every_call_of_the_device_may_fail() -> Outcome {
    for open in [open_map as Open, open_objects, open_rows, open_cells] {
        prove(open, STEPS, 1)?;
        prove(open, STEPS_MANY, 17)?;
    }
    Ok(())
}

#[test]
#[ignore = "`make prove` runs it: every ninth call of the device, or every seventeenth"]
fn every_ninth_call_of_the_device_may_fail_below_tables() -> Outcome {
    // A step of these makes several transactions, and some calls of the device between two that are tried.
    let dual = [(tables::open_dual as Open, 17), (tables::open_dual_feed, 17)];
    let others = [
        (tables::open_sync as Open, 9),
        (tables::open_ordered, 17),
        (tables::open_epochs, 17),
        (tables::open_feed, 17),
    ];
    for (open, stride) in others.into_iter().chain(dual) {
        prove(open, STEPS, stride)?;
        prove(open, STEPS_MANY, 28 * stride + 1)?;
    }
    Ok(())
}
