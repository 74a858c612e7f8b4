//! The workloads on the engine: the rules hold after runs of one and of several threads, and after an open.

mod common;

use common::{SCALE, expect_consistent, loaded, open, options};
use lodestone_pmem::DomainChoice;
use lodestone_workload::engine::Result;
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
