//! The exact cost of the transactions: fences, and bytes of the log.
//!
//! Nothing else is written in the measured time: logs and pages have room.

use std::path::Path;

use crate::common::open;
use lodestone_engine::DatabaseOptions;
use lodestone_engine_bench::tables::DatabaseTables;
use lodestone_pmem::{CounterScope, DomainChoice, PoolOptions};
use lodestone_workload::engine::Result;
use lodestone_workload::oltp::smallbank::{self, SmallBank};
use lodestone_workload::oltp::tpcb::TpcB;
use lodestone_workload::oltp::tpcc::rows::{self, o};
use lodestone_workload::oltp::tpcc::{self, TpcC};
use lodestone_workload::oltp::{Access, Done, Key, OltpEngine, Table, Terminal, Transaction, Worker, Workload, load};

/// The cost of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    fences: u64,
    /// Flushed and streamed.
    bytes: u64,
}

/// `deltas`: whether records have the bytes that changed, or whole rows.
fn loaded<L: Workload>(path: &Path, workload: &L, deltas: bool) -> Result<DatabaseTables> {
    let (domain, size_bytes) = (DomainChoice::DaxEmulated, 256 << 20);
    let pool = PoolOptions { domain, size_bytes, ..PoolOptions::default() };
    let options =
        DatabaseOptions { pool, log_bytes: 64 << 20, segment_bytes: 16 << 20, deltas, ..DatabaseOptions::default() };
    let engine = open(path, &options, L::TABLES)?;
    load(&engine, workload, 1, 1)?;
    Ok(engine)
}

/// Runs `count` transactions and calls `judge` with each cost. The first one may take a segment.
fn costs<L: Workload>(
    engine: &DatabaseTables,
    workload: &L,
    count: u32,
    mut judge: impl FnMut(Done, Cost),
) -> Result<()> {
    let mut worker = engine.worker()?;
    let mut terminal = workload.terminal(&mut worker, 0, 1, 2)?;
    for _ in 0..count {
        terminal.draw();
        let (scope, log) = (CounterScope::start(), engine.database().log_bytes());
        let done = terminal.step(&mut worker)?;
        let spent = scope.delta();
        let cost = Cost { fences: spent.fences, bytes: spent.pm_bytes() };
        assert_eq!(engine.database().log_bytes() - log, cost.bytes, "a commit writes its record and nothing else");
        judge(done, cost);
    }
    Ok(())
}

/// Reads a row.
struct Get(Table, u64);

impl Transaction for Get {
    type Out = Vec<u8>;

    fn run<X: Access>(&mut self, x: &mut X) -> Result<Vec<u8>, X::Abort> {
        let mut row = Vec::new();
        x.get(self.0, Key::from(self.1), &mut row)?;
        Ok(row)
    }
}

/// Bytes of records.
struct Records {
    /// The largest of an order of ten lines.
    of_ten: u64,
    /// The largest by class of transaction.
    largest: [u64; 5],
    /// Of half of the payments, at most. One in ten changes 500 bytes of text.
    payment_p50: u64,
}

fn tpcc_records(deltas: bool) -> Result<Records> {
    let folder = tempfile::tempdir().expect("a folder");
    let scale = TpcC { items: 500, customers: 60, ..TpcC::new(1) };
    let engine = loaded(&folder.path().join("a.pool"), &scale, deltas)?;
    let (mut orders, mut payments, mut largest) = (Vec::new(), Vec::new(), [0; 5]);
    costs(&engine, &scale, 3_000, |done, cost| {
        let changes = !done.is_cancelled && done.class != 2 && done.class != 4;
        let expected = if changes { 1 } else { 0 };
        // A delivery without orders changes nothing.
        let is_idle = done.class == tpcc::Class::Delivery as usize && cost.bytes == 0;
        assert!(cost.fences == expected || is_idle && cost.fences == 0, "{done:?}: {cost:?}");
        assert_eq!(cost.bytes == 0, cost.fences == 0, "{done:?}: {cost:?}");
        largest[done.class] = largest[done.class].max(cost.bytes);
        if done.class == 1 {
            payments.push(cost.bytes);
        }
        if let (0, Some((_, key))) = (done.class, done.receipt) {
            orders.push((key, cost.bytes));
        }
    })?;
    let mut worker = engine.worker()?;
    let mut of_ten = 0;
    for (key, bytes) in orders {
        let row = worker.run(&mut Get(rows::ORDERS, key))?.expect("not cancelled");
        let lines = u64::from(o::OL_CNT.get(&row));
        // Head, district, order, new order, entry: 264 bytes. A line: 72, and 336 of stock at most.
        let most = (24 + 264 + lines * (72 + 336)).next_multiple_of(64);
        assert!(bytes <= most, "{lines} lines: {bytes} bytes, at most {most}");
        of_ten = of_ten.max(if lines == 10 { bytes } else { 0 });
    }
    payments.sort_unstable();
    Ok(Records { of_ten, largest, payment_p50: payments[payments.len() / 2] })
}

#[test]
fn tpcc_fences_once_and_its_records_are_small() -> Result<()> {
    let Records { of_ten, largest, .. } = tpcc_records(false)?;
    assert!((3_700..=4_352).contains(&of_ten), "an order of ten lines: {of_ten} bytes");
    assert!((900..=1_088).contains(&largest[1]), "a payment: {largest:?}");
    assert_eq!([largest[2], largest[4]], [0, 0], "transactions that only read");
    let Records { of_ten, largest, payment_p50 } = tpcc_records(true)?;
    assert!((1_200..=1_408).contains(&of_ten), "an order of ten lines, with deltas: {of_ten} bytes");
    assert!((192..=256).contains(&payment_p50), "half of the payments, with deltas: {payment_p50} bytes");
    assert!(largest[3] <= 6_080, "a delivery, with deltas: {largest:?}");
    assert_eq!([largest[2], largest[4]], [0, 0], "transactions that only read");
    Ok(())
}

#[test]
fn tpcb_fences_once() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let scale = TpcB { branches: 2, accounts_per_branch: 100 };
    let engine = loaded(&folder.path().join("a.pool"), &scale, false)?;
    // Three rows of 100 bytes and one of 50, with 17 bytes of head and key each or 25, to multiples of 8: 440.
    costs(&engine, &scale, 200, |done, cost| assert_eq!(cost, Cost { fences: 1, bytes: 512 }, "{done:?}"))?;
    let engine = loaded(&folder.path().join("b.pool"), &scale, true)?;
    costs(&engine, &scale, 200, |done, cost| {
        assert!(cost.fences == 1 && (192..=256).contains(&cost.bytes), "with deltas: {done:?}: {cost:?}");
    })
}

#[test]
fn smallbank_fences_once_and_reading_costs_nothing() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let scale = SmallBank::new(500);
    let engine = loaded(&folder.path().join("a.pool"), &scale, true)?;
    costs(&engine, &scale, 1_000, |done, cost| {
        // A row: 40 bytes.
        let bytes = match done.class {
            _ if done.is_cancelled => 0,
            class if class == smallbank::Class::Balance as usize => 0,
            class if class == smallbank::Class::SendPayment as usize => 128,
            class if class == smallbank::Class::Amalgamate as usize => 192,
            _ => 64,
        };
        assert_eq!(cost, Cost { fences: u64::from(bytes > 0), bytes }, "{done:?}");
    })
}
