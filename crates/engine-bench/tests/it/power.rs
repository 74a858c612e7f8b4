//! TPC-C on a simulated disk whose power is cut while threads work. Any choice of the sectors that were not synced
//! survives. Then all conditions hold, and every order and payment that was acknowledged before the cut is there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::expect_consistent;
use lodestone_engine::{Database, DatabaseOptions};
use lodestone_engine_bench::lives::{Receipt, lost};
use lodestone_engine_bench::records::DatabaseRecords;
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::storage::{Failing, FaultPlan, FaultyStorage, OpenFile, SimulatedDisk};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_workload::engine::{Engine, Session};
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::{OltpEngine, Terminal, Workload, load};
use lodestone_workload::random::Random;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
type Device = Arc<FaultyStorage<Arc<SimulatedDisk>>>;

const SCALE: TpcC = TpcC { items: 20, customers: 10, ..TpcC::new(1) };
const POOL_BYTES: u64 = 8 << 20;
const THREADS: usize = 3;

fn pool_options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Block,
        size_bytes: POOL_BYTES,
        journal_bytes: 512 << 10,
        ..PoolOptions::default()
    }
}

fn device(content: Vec<u8>) -> (Arc<SimulatedDisk>, Device) {
    let disk = Arc::new(SimulatedDisk::new(content));
    (disk.clone(), Arc::new(FaultyStorage::new(disk, FaultPlan::default())))
}

fn database_on(device: &Device) -> Outcome<Database> {
    let store = Store::over(&Pool::open_on_device(|| Arc::new(OpenFile::new(device)), POOL_BYTES, &pool_options())?)?;
    let small = DatabaseOptions { log_bytes: 256 << 10, segment_bytes: 16 << 10, ..DatabaseOptions::default() };
    let small = DatabaseOptions { leaf_rows_max: 8, page_bytes: 512, extent_pages: 64, ..small };
    Ok(Database::open_in(&store, &small)?)
}

fn engine_on(device: &Device) -> Outcome<DatabaseTables> {
    Ok(DatabaseTables::open(database_on(device)?, TpcC::TABLES)?)
}

/// The content of a device with a new pool.
fn new_pool() -> Outcome<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    drop(Pool::create(&path, &pool_options())?);
    Ok(std::fs::read(path)?)
}

/// The content of a device with loaded tables.
fn loaded() -> Outcome<Vec<u8>> {
    let (disk, device) = device(new_pool()?);
    let engine = engine_on(&device)?;
    load(&engine, &SCALE, 1, 3)?;
    drop(engine);
    Ok(disk.content())
}

/// A device after a power cut, and the rows that were acknowledged before it.
type Cut = (Vec<u8>, Vec<Receipt>);

/// Runs TPC-C until the device fails or `end` says so. Calls `watch` meanwhile with the receipts so far.
fn work(engine: &DatabaseTables, seed: u64, watch: impl FnOnce(&Mutex<Vec<Receipt>>)) -> Outcome<Vec<Receipt>> {
    let (told, end) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (told, end) = (&told, &end);
            scope.spawn(move || {
                let work = || -> Outcome {
                    let mut worker = engine.worker()?;
                    let mut terminal = SCALE.terminal(&mut worker, number, THREADS, seed)?;
                    while !end.load(Ordering::Relaxed) {
                        terminal.draw();
                        let receipt = terminal.step(&mut worker)?.receipt;
                        let receipt = receipt.map(|(table, key)| Receipt { table, key });
                        told.lock().expect("no thread panics").extend(receipt);
                    }
                    Ok(())
                };
                // An error ends a thread: the device failed.
                let _ = work();
            });
        }
        watch(&told);
        end.store(true, Ordering::Relaxed);
    });
    Ok(told.into_inner()?)
}

fn cut(disk: &SimulatedDisk, random: &mut Random) -> Vec<u8> {
    // Few, half, or most of the sectors that were not synced survive.
    let share = [0, 3, 50, 97, 100][usize::try_from(random.below(5)).unwrap_or(0)];
    disk.power_cut(|_| random.below(100) < share)
}

fn judge((content, told): Cut, what: &str) -> Outcome {
    let (_, device) = device(content);
    let engine = engine_on(&device)?;
    expect_consistent(&engine, &SCALE, what)?;
    let lost = lost(&engine, &told)?;
    assert!(lost.is_empty(), "{what}: acknowledged and lost: {lost:x?}");
    Ok(())
}

#[test]
fn the_power_may_go_at_any_moment() -> Outcome {
    let content = loaded()?;
    let cuts = std::env::var("LODESTONE_KILLS").ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(6);
    let (disk, device) = device(content);
    let engine = engine_on(&device)?;
    let (mut random, mut all) = (Random::new(1), Vec::new());
    work(&engine, 1, |told| {
        for number in 0..cuts {
            while told.lock().expect("no thread panics").len() < 40 * (number + 1) {
                thread::yield_now();
            }
            // First the receipts: what comes later may be lost.
            let told = told.lock().expect("no thread panics").clone();
            all.push((cut(&disk, &mut random), told));
        }
    })?;
    drop(engine);
    all.into_iter().enumerate().try_for_each(|(number, cut)| judge(cut, &format!("cut {number}")))
}

#[test]
fn the_device_may_fail_before_the_power_goes() -> Outcome {
    let content = loaded()?;
    let none = FaultPlan::default();
    let mut random = Random::new(2);
    for (number, plan) in [
        FaultPlan { fail_sync: Some(Failing::for_ever(40)), ..none },
        FaultPlan { fail_sync: Some(Failing::once(23)), ..none },
        FaultPlan { fail_write: Some(Failing::for_ever(31)), ..none },
        FaultPlan { short_write: Some((27, 512)), ..none },
    ]
    .into_iter()
    .enumerate()
    {
        let (disk, device) = device(content.clone());
        let engine = engine_on(&device)?;
        device.arm(plan);
        let told = work(&engine, number as u64, |told| {
            // All threads end with an error, so nothing is told any more.
            let mut last = (0, 0);
            while last.1 < 2_000 {
                thread::sleep(std::time::Duration::from_micros(100));
                let count = told.lock().expect("no thread panics").len();
                last = (count, if count == last.0 { last.1 + 1 } else { 0 });
            }
        })?;
        drop(engine);
        let content = cut(&disk, &mut random);
        judge((content, told), &format!("{plan:?}"))?;
    }
    Ok(())
}

/// A load of records acknowledges them before they are durable. They all are when it ends.
#[test]
fn a_load_is_durable_when_it_ends() -> Outcome {
    const RECORDS: u64 = 300;
    let (disk, on_disk) = device(new_pool()?);
    let records = DatabaseRecords::open(database_on(&on_disk)?)?;
    let mut session = records.load_session()?;
    (0..RECORDS).try_for_each(|key| session.insert(&key.to_be_bytes(), b"loaded"))?;
    records.finish_load()?;
    // Nothing that was not synced survives.
    let (_, after) = device(disk.power_cut(|_| false));
    let records_after = DatabaseRecords::open(database_on(&after)?)?;
    let (mut session, mut value) = (records_after.session()?, Vec::new());
    for key in 0..RECORDS {
        assert!(session.read(&key.to_be_bytes(), &mut value)? && value == b"loaded", "record {key}");
    }
    Ok(())
}
