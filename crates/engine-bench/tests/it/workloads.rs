//! The workloads on the engine: the rules hold after runs of one and of several threads, and after an open.

use crate::common::{SCALE, expect_consistent, loaded, open, options};
use lodestone_engine::{Database, DatabaseOptions, Durability, Region};
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_media::{CacheShape, Htm, HtmProfile};
use lodestone_pmem::DomainChoice;
use lodestone_pmem::htm::{HardwareTransactions, HtmModel};
use lodestone_workload::engine::{EngineError, Result};
use lodestone_workload::oltp::smallbank::SmallBank;
use lodestone_workload::oltp::tpcb::TpcB;
use lodestone_workload::oltp::tpcc::TpcC;
use lodestone_workload::oltp::tpcc::rows::{self, d};
use lodestone_workload::oltp::{Access, OltpEngine, Transaction, Worker, Workload, load, run, verify};
use lodestone_workload::race::{Length, Plan};

#[test]
fn all_conditions_of_tpcc_hold_after_runs_and_after_an_open() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    for domain in [DomainChoice::DaxEmulated, DomainChoice::Block] {
        let path = folder.path().join(format!("{domain:?}.pool"));
        let engine = loaded(&path, domain, &SCALE)?;
        expect_consistent(&engine, &SCALE, "after the load")?;
        let operations = if domain == DomainChoice::Block { 400 } else { 3_000 };
        for threads in [1, 4] {
            let outcome = run(&engine, &SCALE, &Plan::new(threads, Length::Operations(operations)), 5)?;
            assert_eq!(outcome.tally.committed() + outcome.tally.cancelled(), operations);
            assert!(outcome.tally.classes.iter().all(|class| class.committed > 0), "{:?}", outcome.tally);
            expect_consistent(&engine, &SCALE, &format!("{domain:?}, {threads} threads"))?;
        }
        drop(engine);
        let engine = open(&path, &options(domain), TpcC::TABLES)?;
        expect_consistent(&engine, &SCALE, "after an open")?;
        run(&engine, &SCALE, &Plan::new(2, Length::Operations(200)), 6)?;
        expect_consistent(&engine, &SCALE, "after a run in the next life")?;
    }
    Ok(())
}

/// Loses the number of an order, as an engine with lost updates would.
struct LoseOrder;

impl Transaction for LoseOrder {
    type Out = ();

    fn run<X: Access>(&mut self, x: &mut X) -> Result<(), X::Abort> {
        let (key, mut row) = (rows::district(2, 7).into(), Vec::new());
        x.get_to_change(rows::DISTRICT, key, &mut row)?;
        let next = d::NEXT_O_ID.get(&row);
        d::NEXT_O_ID.set(&mut row, next - 1);
        x.put(rows::DISTRICT, key, &row)
    }
}

#[test]
fn a_row_that_breaks_a_condition_is_found_in_the_engine() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = loaded(&folder.path().join("a.pool"), DomainChoice::Process, &SCALE)?;
    engine.worker()?.run(&mut LoseOrder)?;
    let found = verify(&engine, &SCALE, None)?;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].to_string(), "condition 2: district (2, 7): D_NEXT_O_ID - 1 is 19, not 20");
    Ok(())
}

#[test]
fn sums_of_tpcb_and_smallbank_hold() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (tpcb, bank) = (TpcB { branches: 2, accounts_per_branch: 200 }, SmallBank::new(100));
    sums(&folder.path().join("b.pool"), &tpcb)?;
    sums(&folder.path().join("s.pool"), &bank)
}

fn sums<L: Workload>(path: &std::path::Path, workload: &L) -> Result<()> {
    let engine = open(path, &options(DomainChoice::DaxEmulated), L::TABLES)?;
    load(&engine, workload, 2, 1)?;
    let mut effect = 0;
    for threads in [1, 4] {
        let tally = run(&engine, workload, &Plan::new(threads, Length::Operations(4_000)), 3)?.tally;
        effect += tally.effect;
        assert_eq!(verify(&engine, workload, effect)?, [], "{}, {threads} threads", L::NAME);
    }
    assert!(!verify(&engine, workload, effect + 1)?.is_empty());
    drop(engine);
    let engine = open(path, &options(DomainChoice::DaxEmulated), L::TABLES)?;
    assert_eq!(verify(&engine, workload, effect)?, [], "{} after an open", L::NAME);
    Ok(())
}

/// Runs a workload on a new database, and checks its rules before it is closed, and after an open if `survives`.
fn keeps_its_rules<L: Workload>(
    workload: &L,
    options: &DatabaseOptions,
    unacknowledged_max: usize,
    survives: bool,
) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let what = format!("{}, {:?}, {unacknowledged_max} unacknowledged", L::NAME, options.durability);
    let open = || -> Result<DatabaseTables> {
        let database = Database::open_with(&path, options).map_err(EngineError::new)?;
        Ok(DatabaseTables::open(database, L::TABLES)?.unacknowledged(unacknowledged_max))
    };
    let engine = open()?;
    load(&engine, workload, 2, 1)?;
    let plan = Plan { time_one_of: 1, ..Plan::new(3, Length::Operations(1_500)) };
    let outcome = run(&engine, workload, &plan, 5)?;
    let tally = &outcome.tally;
    assert_eq!((tally.committed() + tally.cancelled(), outcome.run.latency.len()), (1_500, 1_500), "{what}");
    assert!(L::NAME == "tpcb" || tally.cancelled() > 0, "{what}: cancelled ones are among them");
    assert_eq!(verify(&engine, workload, tally.effect)?, [], "{what}");
    drop(engine);
    if survives {
        assert_eq!(verify(&open()?, workload, tally.effect)?, [], "{what}, after an open");
    }
    Ok(())
}

/// Commits in hardware transactions of a small processor. It watches the pool as well: a flush inside is an abort.
fn in_regions(base: &DatabaseOptions) -> DatabaseOptions {
    let writes = CacheShape { bytes: 1 << 10, ways: 2 };
    let htm = Htm::new(HtmProfile { writes, conflict_chance: 0.2, ..HtmProfile::default() }, None);
    let mut options = DatabaseOptions { region: Region::Emulated(HtmModel(htm.clone())), ..base.clone() };
    options.pool.medium = Some(htm);
    options
}

/// No flush and no streaming store is inside a region, and both ways of a commit are used.
#[test]
fn regions_are_aborted_for_what_the_model_says_and_never_by_a_flush() -> Result<()> {
    let options = in_regions(&options(DomainChoice::DaxEmulated));
    let Region::Emulated(HtmModel(model)) = &options.region else { unreachable!("it is emulated") };
    let label = HardwareTransactions::label(&**model);
    assert!(label.contains("stores in 1 KiB of 2 ways"), "{label}");
    let folder = tempfile::tempdir().expect("a folder");
    let database = Database::open_with(folder.path().join("a.pool"), &options).map_err(EngineError::new)?;
    let engine = DatabaseTables::open(database, TpcC::TABLES)?;
    load(&engine, &SCALE, 2, 1)?;
    run(&engine, &SCALE, &Plan::new(3, Length::Operations(1_000)), 5)?;
    let stats = engine.database().stats();
    assert!(stats.regions > 300 && stats.region_conflicts > 50, "{stats:?}");
    assert!(stats.region_overflows > 50 && stats.region_fallbacks >= stats.region_overflows, "{stats:?}");
    Ok(())
}

/// No durability, regions of hardware, group commit with workers that wait and that go on, naive, and late visibility.
#[test]
fn the_rules_hold_with_every_way_of_a_commit() -> Result<()> {
    let base = options(DomainChoice::DaxEmulated);
    let with = |durability| DatabaseOptions { durability, ..base.clone() };
    let brief = Durability::Epoch(std::time::Duration::from_micros(100));
    let ways = [
        // Without a checkpoint the rows of the load stay in memory.
        (with(Durability::None), 0, false),
        (with(brief), 0, true),
        (with(brief), 1, true),
        (with(brief), 1_000_000, true),
        (with(Durability::EPOCH), 1_000_000, true),
        (DatabaseOptions { region: Region::Naive, ..base.clone() }, 0, true),
        (DatabaseOptions { early_release: false, ..base.clone() }, 0, true),
        (in_regions(&base), 0, true),
        (options(DomainChoice::Block), 100, true),
    ];
    for (options, unacknowledged_max, survives) in &ways {
        keeps_its_rules(&SCALE, options, *unacknowledged_max, *survives)?;
        keeps_its_rules(&TpcB { branches: 2, accounts_per_branch: 200 }, options, *unacknowledged_max, *survives)?;
        keeps_its_rules(&SmallBank { customers: 100, hot: 10 }, options, *unacknowledged_max, *survives)?;
    }
    Ok(())
}
