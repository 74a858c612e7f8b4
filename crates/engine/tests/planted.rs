//! Each planted bug of the commit is found by a scenario of two transactions, and none in the clean tree. A medium
//! holds the first transaction at its fence where its version must be pending.
//!
//! One test: a bug is planted for the whole process.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use common::hardware::Hardware;
use common::{Open, options};
use lodestone_engine::{
    Database, DatabaseOptions, Durability, Error, FeedStart, FlushUnit, Index, Isolation, Result, Row, row,
};
use lodestone_pmem::storage::{Failing, FaultPlan};
use lodestone_pmem::{DomainChoice, LineAddr, Medium, PmAddr, planted};

/// Time that a transaction gets to do what it must not do.
const WAIT: Duration = Duration::from_millis(300);

/// A medium whose next fence says so and waits for permission to go on.
#[derive(Debug)]
struct Gate {
    is_armed: AtomicBool,
    reached: SyncSender<()>,
    go_on: Mutex<Receiver<()>>,
}

impl Medium for Gate {
    fn label(&self) -> String {
        "a gate".into()
    }
    fn read(&self, _: PmAddr, _: u64) {}
    fn write(&self, _: PmAddr, _: u64) {}
    fn flush(&self, _: LineAddr) {}
    fn stream(&self, _: PmAddr, _: u64) {}
    fn fence(&self) {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            let _ = self.reached.send(());
            let _ = self.go_on.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}

/// Whether `second` commits while the transaction that sets row 1 to 2 is at its fence.
fn commits_before_the_fence(second: impl Fn(&Open) -> Result<()> + Sync) -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let (reached, is_reached) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel(1);
    let gate = Arc::new(Gate { is_armed: AtomicBool::new(false), reached, go_on: Mutex::new(may_go_on) });
    let mut options = options(DomainChoice::DaxEmulated);
    options.pool.medium = Some(gate.clone());
    let open = Open::at(&folder.path().join("a.pool"), &options)?;
    // Both writers have a segment afterwards, so that a commit has one fence.
    open.set(&[(1, 1)])?;
    let first_writer = open.db.hold_writer()?;
    open.set(&[(2, 1)])?;
    drop(first_writer);
    gate.is_armed.store(true, Ordering::SeqCst);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let first = scope.spawn(|| open.set(&[(1, 2)]));
        is_reached.recv().expect("a fence");
        let other = scope.spawn(|| {
            let outcome = second(&open);
            is_over.store(true, Ordering::SeqCst);
            outcome
        });
        thread::sleep(WAIT);
        let was_over = is_over.load(Ordering::SeqCst);
        go_on.send(()).expect("the first transaction waits");
        first.join().expect("no panic")?;
        other.join().expect("no panic")?;
        Ok(was_over)
    })
}

/// Builds row 2 on row 1, whose version is pending.
fn copies(open: &Open) -> Result<()> {
    open.db.update(|tx| {
        let found = open.get(tx, 1)?.unwrap_or(0);
        assert_eq!(found, 2, "a pending version is visible");
        open.put(tx, 2, found)
    })
}

/// Replaces row 1, whose version is pending, without a look at it.
fn replaces(open: &Open) -> Result<()> {
    open.set(&[(1, 3)])
}

/// Answers with row 1, whose version is pending.
fn answers(open: &Open) -> Result<()> {
    assert_eq!(open.db.update(|tx| open.get(tx, 1))?, Some(2));
    Ok(())
}

/// Drops the table of row 1, whose version is pending, and makes a checkpoint.
fn drops(open: &Open) -> Result<()> {
    open.db.drop_table("t")?;
    open.db.checkpoint().map(drop)
}

/// Answers with row 1 of a snapshot, whose version is pending.
fn answers_from_a_snapshot(open: &Open) -> Result<()> {
    let snapshot = open.db.snapshot()?;
    assert_eq!(open.get(&snapshot, 1)?, Some(2), "its epoch is not later than the snapshot's");
    Ok(())
}

fn fixture(name: &str) -> Result<(tempfile::TempDir, Open)> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join(name), &options(DomainChoice::Process))?;
    open.set(&[(10, 0), (20, 0)])?;
    Ok((folder, open))
}

/// A transaction counts a range, another one adds a row to it.
fn has_phantoms() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let tx = open.db.begin();
    assert_eq!(open.count(&tx, 0, 100)?, 2);
    open.set(&[(15, 0)])?;
    open.put(&tx, 1000, 2)?;
    Ok(!matches!(tx.commit(), Err(Error::Conflict)))
}

/// A transaction reads two rows, another one changes both in between.
fn sees_a_mixture() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let tx = open.db.begin();
    open.get(&tx, 10)?;
    open.set(&[(10, 1), (20, 1)])?;
    Ok(open.get(&tx, 20).is_ok())
}

/// A row is deleted and purged, and inserted again by a writer whose clock is far back.
fn loses_the_second_row() -> Result<bool> {
    let (folder, open) = fixture("a.pool")?;
    (0..50).try_for_each(|value| open.set(&[(1, value)]))?;
    open.db.update(|tx| open.table.delete(tx, &row![1_u64]))?;
    let first = open.db.hold_writer()?;
    (2..9).try_for_each(|key| open.set(&[(key, 0)]))?;
    open.set(&[(1, 77)])?;
    drop(first);
    drop(open);
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    Ok(!open.all()?.contains(&(1, 77)))
}

/// A transaction reads that a row is deleted. The row is purged and inserted again in between.
fn holds_a_purged_row() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    open.db.update(|tx| open.table.delete(tx, &row![10_u64]))?;
    let tx = open.db.begin();
    assert_eq!(open.get(&tx, 10)?, None);
    (11..14).try_for_each(|key| open.set(&[(key, 0)]))?;
    open.set(&[(10, 1)])?;
    open.put(&tx, 1000, 0)?;
    Ok(!matches!(tx.commit(), Err(Error::Conflict)))
}

/// Reads the feed, with row 1 in a transaction that could still be lost.
fn feeds(open: &Open) -> Result<()> {
    let mut feed = open.db.feed(&FeedStart::Oldest)?;
    let found = feed.next_batch()?.transactions.last().map(|last| last.changes[0].row.clone());
    assert_eq!(found, Some(Some(row![1_u64, 2_i64])));
    Ok(())
}

/// A row moves to another entry of an index.
fn keeps_an_old_entry() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let table = open.db.create_index("t", &Index::new("by_v", ["v"]))?;
    open.db.update(|tx| table.update(tx, &row![10_u64, 5_i64]))?;
    open.db.update(|tx| Ok(table.index("by_v")?.range(tx, row![0_i64]..=row![0_i64])?.count() != 1))
}

/// A transaction adds a row, another one adds an index in between.
fn misses_an_entry() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let tx = open.db.begin();
    open.put(&tx, 30, 0)?;
    open.db.create_index("t", &Index::new("by_v", ["v"]))?;
    Ok(!matches!(tx.commit(), Err(Error::Conflict)))
}

/// The table `t` with the rows 0 to 1,099, and the unique index `by_v` built over it. `step` is told how many rows have
/// their entries: 1,024 and then all.
fn built(step: impl Fn(&Open, u64) -> Result<()>) -> Result<(tempfile::TempDir, Open)> {
    let (folder, open) = fixture("a.pool")?;
    open.db.update(|tx| (0..1100_u64).try_for_each(|key| open.table.put(tx, &row![key, row_value(key)])))?;
    open.db.create_index_with("t", &Index::unique("by_v", ["v"]), |rows| step(&open, rows))?;
    Ok((folder, open))
}

/// The last row has the value of the first one.
fn row_value(key: u64) -> i64 {
    i64::try_from(key % 1099).expect("small")
}

/// The entries of an index that was built, and the rows of the table.
fn has_other_entries(open: &Open) -> Result<bool> {
    let by_v = open.db.table("t")?.index("by_v")?;
    open.db.update(|tx| Ok(by_v.range(tx, ..)?.filter(Result::is_ok).count() != 1100))
}

/// The second of two rows with the same values changes before the build comes to it.
fn ends_the_entry_of_another_row() -> Result<bool> {
    let (_folder, open) = built(|open, rows| if rows == 1024 { open.set(&[(1099, 7000)]) } else { Ok(()) })?;
    has_other_entries(&open)
}

/// The build adds the entry of a row, and a transaction changes that row which has not seen the entry.
fn keeps_the_entry_of_a_row_before() -> Result<bool> {
    let late = std::cell::RefCell::new(None);
    let (_folder, open) = built(|open, rows| {
        if rows == 1024 {
            open.set(&[(1099, 7000)])?;
            let tx = open.db.begin_with(Isolation::ReadCommitted);
            open.table.put(&tx, &row![1098_u64, 8000_i64])?;
            late.replace(Some(tx));
        } else if let Some(tx) = late.take() {
            assert!(matches!(tx.commit(), Ok(()) | Err(Error::Conflict)));
        }
        Ok(())
    })?;
    let by_v = open.db.table("t")?.index("by_v")?;
    let found = open.db.update(|tx| by_v.get(tx, &row![1098_i64]))?;
    Ok(found.is_some_and(|row| row[1] != 1098_i64.into()) || has_other_entries(&open)?)
}

/// An index is read while it is built.
fn reads_some_of_the_entries() -> Result<bool> {
    let is_read = std::cell::Cell::new(false);
    built(|open, rows| {
        let by_v = open.db.table("t")?.index("by_v")?;
        is_read.set(is_read.get() || by_v.range(&open.db.snapshot()?, ..).is_ok());
        if rows == 1024 { open.set(&[(1099, 7000)]) } else { Ok(()) }
    })?;
    Ok(is_read.get())
}

/// A row that a snapshot sees is deleted, and its leaf is purged.
fn a_snapshot_loses_a_row() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let snapshot = open.db.snapshot()?;
    open.db.update(|tx| open.table.delete(tx, &row![10_u64]))?;
    (11..14).try_for_each(|key| open.set(&[(key, 0)]))?;
    Ok(open.get(&snapshot, 10)? != Some(0) || open.rows(&snapshot)? != [(10, 0), (20, 0)])
}

/// Of two snapshots that see the same version the older ends.
fn a_snapshot_loses_a_version() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let (first, second) = (open.db.snapshot()?, open.db.snapshot()?);
    open.set(&[(10, 1)])?;
    drop(first);
    Ok(open.get(&second, 10)? != Some(0))
}

/// A transaction finds that a row is deleted and inserts it, and another one does the same in between.
fn inserts_twice() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    open.db.update(|tx| open.table.delete(tx, &row![10_u64]))?;
    let tx = open.db.begin();
    open.table.insert(&tx, &row![10_u64, 1_i64])?;
    open.db.update(|tx| open.table.insert(tx, &row![10_u64, 2_i64]))?;
    Ok(!matches!(tx.commit(), Err(Error::Conflict)))
}

/// A transaction copies row 10 to row 20, and another one changes row 10 in between.
fn commits_after_a_change() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let tx = open.db.begin();
    let found = open.get(&tx, 10)?.unwrap_or(0);
    open.set(&[(10, 5)])?;
    open.put(&tx, 20, found + 1)?;
    Ok(!matches!(tx.commit(), Err(Error::Conflict)))
}

/// The same, where the row was changed before the transaction read an older version of it.
fn commits_after_a_stale_read() -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let tx = open.db.begin_with(Isolation::SerializableOnSnapshot);
    open.set(&[(10, 5)])?;
    let found = open.get(&tx, 10)?.unwrap_or(0);
    open.put(&tx, 20, found + 1)?;
    Ok(!matches!(tx.commit(), Err(Error::Conflict)))
}

/// An update of row 10 at this level, after another one.
fn loses_an_update(isolation: Isolation) -> Result<bool> {
    let (_folder, open) = fixture("a.pool")?;
    let tx = open.db.begin_with(isolation);
    let found = open.get(&tx, 10)?.unwrap_or(0);
    open.set(&[(10, 5)])?;
    open.put(&tx, 10, found + 1)?;
    Ok(!matches!(tx.commit(), Err(Error::Conflict)))
}

/// An update whose region begins, and then another update of the row.
fn loses_an_update_in_a_region() -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let hardware = Hardware::new();
    let options = DatabaseOptions { region: hardware.region(), ..options(DomainChoice::Process) };
    let open = Arc::new(Open::at(&folder.path().join("a.pool"), &options)?);
    open.set(&[(10, 0)])?;
    let add = |open: &Open| {
        open.db.update(|tx| {
            let found = open.get(tx, 10)?.unwrap_or(0);
            open.put(tx, 10, found + 1)
        })
    };
    let other = open.clone();
    hardware.then(move || add(&other).expect("a commit"));
    add(&open)?;
    Ok(open.all()? != [(10, 2)])
}

/// A row whose changes are deltas.
fn wide_row(key: u64, value: i64) -> Row {
    row![key, value, "a text that no transaction changes"]
}

/// A transaction encodes a delta to a row, and then waits for a pending row. Another one replaces the first row without
/// a look at it. Whether the database cannot be opened afterwards.
fn builds_on_a_replaced_row() -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let (reached, is_reached) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel(1);
    let gate = Arc::new(Gate { is_armed: AtomicBool::new(false), reached, go_on: Mutex::new(may_go_on) });
    let mut gated = options(DomainChoice::DaxEmulated);
    gated.pool.medium = Some(gate.clone());
    let path = folder.path().join("a.pool");
    let open = Open::at(&path, &gated)?;
    let wide = open.db.create_table(&"w (k u64, v i64, pad text) key (k)".parse()?)?;
    let put = |rows: &[(u64, i64)]| {
        open.db.update(|tx| rows.iter().try_for_each(|(key, value)| wide.put(tx, &wide_row(*key, *value))))
    };
    // Three writers have a segment afterwards.
    put(&[(1, 1), (2, 1)])?;
    let first_writer = open.db.hold_writer()?;
    put(&[(1, 1), (2, 1)])?;
    let second_writer = open.db.hold_writer()?;
    put(&[(1, 1), (2, 1)])?;
    drop((first_writer, second_writer));
    gate.is_armed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let first = scope.spawn(|| put(&[(1, 2)]));
        is_reached.recv().expect("a fence");
        let second = scope.spawn(|| put(&[(1, 3), (2, 3)]));
        // It has encoded both rows, and waits for the first one.
        thread::sleep(WAIT);
        put(&[(2, 4)])?;
        go_on.send(()).expect("the first transaction waits");
        first.join().expect("no panic")?;
        second.join().expect("no panic")
    })?;
    let table = wide.clone();
    let rows = open.db.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<_>>>())?;
    assert_eq!(rows, [wide_row(1, 3), wide_row(2, 3)]);
    let Open { db, table: narrow } = open;
    drop((wide, table, narrow));
    db.abandon();
    let again = Open::at(&path, &options(DomainChoice::DaxEmulated));
    assert!(again.is_ok() || matches!(again, Err(Error::Damaged { .. })));
    Ok(again.is_err())
}

/// A transaction returns before its epoch is durable, although it says that it waits.
fn answers_before_its_epoch() -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let grouped = DatabaseOptions { durability: Durability::EPOCH, ..options(DomainChoice::Process) };
    let open = Open::at(&folder.path().join("a.pool"), &grouped)?;
    open.db.end_logger();
    open.set(&[(1, 1)])?;
    open.db.clone().abandon();
    drop(open);
    Ok(Open::at(&folder.path().join("a.pool"), &grouped)?.all()?.is_empty())
}

/// Two threads wait for an epoch that a device does not take. Whether one of them is told that it is durable.
fn acknowledges_an_epoch_that_failed() -> Result<bool> {
    let grouped = DatabaseOptions { durability: Durability::EPOCH, ..options(DomainChoice::Block) };
    let (device, Open { db, table }) = Open::on_device(&grouped)?;
    db.end_logger();
    db.update(|tx| table.put(tx, &row![1_u64, 1_i64]))?;
    device.faulty.arm(FaultPlan { fail_sync: Some(Failing::for_ever(1)), ..FaultPlan::default() });
    let ticket = db.update_async(|tx| table.put(tx, &row![1_u64, 2_i64]))?;
    thread::scope(|scope| {
        let first = scope.spawn(|| ticket.durable().is_ok());
        let second = db.sync().is_ok();
        Ok(first.join().expect("no panic") || second)
    })
}

/// Answers with rows whose commits are ordered and not durable yet, by `read`. Whether a power cut takes one back.
fn answers_what_is_lost(read: impl Fn(&Open) -> Result<Option<i64>>) -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Block))?;
    open.set(&[(1, 0)])?;
    for value in 1..=20 {
        drop(open.db.update_async(|tx| open.put(tx, 1, value))?);
        assert_eq!(read(&open)?, Some(value));
        let copy = folder.path().join("copy.pool");
        std::fs::copy(folder.path().join("a.pool"), &copy).expect("a copy");
        if Open::at(&copy, &options(DomainChoice::Process))?.all()? != [(1, value)] {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A row was deleted and purged after another transaction looked at a purge, by a writer whose clock is smaller.
/// Whether the other one sees that deletion, and not the rest of its transaction.
fn sees_a_purge_without_the_rest() -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    let keys = |from: u64| (from..from + 12).map(|key| (key, 0)).collect::<Vec<_>>();
    open.set(&[(1, 1), (500, 0), (1000, 0)])?;
    open.set(&keys(700))?;
    // The clock of the first writer is large when it deletes a row. Its inserts purge that.
    (0..50).try_for_each(|value| open.set(&[(500, value)]))?;
    open.db.update(|tx| open.table.delete(tx, &row![500_u64]))?;
    keys(501).iter().try_for_each(|row| open.set(&[*row]))?;
    let reader = open.db.begin();
    assert_eq!((open.get(&reader, 1)?, open.get(&reader, 500)?), (Some(1), None));
    let _first_writer = open.db.hold_writer()?;
    open.db.update(|tx| {
        open.put(tx, 1, 2)?;
        open.table.delete(tx, &row![1000_u64])
    })?;
    keys(1001).iter().try_for_each(|row| open.set(&[*row]))?;
    match open.get(&reader, 1000) {
        Err(Error::Conflict) => Ok(false),
        found => Ok(found?.is_none()),
    }
}

/// A checkpoint on a device that fails at one of its syncs, and a power cut. Whether rows are missing then, or damaged.
fn loses_images() -> Result<bool> {
    let options = DatabaseOptions { checkpoint_thread: false, ..options(DomainChoice::Block) };
    let rows = |value| (0..40).map(|key| (key, value)).collect::<Vec<_>>();
    for number in 1..=12 {
        let (device, open) = Open::on_device(&options)?;
        open.set(&rows(1))?;
        open.db.checkpoint()?;
        open.set(&rows(2))?;
        device.faulty.arm(FaultPlan { fail_sync: Some(Failing::for_ever(number)), ..FaultPlan::default() });
        // It fails, unless it needs fewer syncs.
        let _ = open.db.checkpoint();
        let content = device.disk.power_cut(|_| false);
        let Open { db, table } = open;
        drop(table);
        db.abandon();
        if !Open::on_disk(content, &options).and_then(|(_, open)| open.all()).is_ok_and(|found| found == rows(2)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The records of a journal are gone, as after a repair that gives up a damaged one. Whether the older state of the
/// database is damaged. `is_reopened`: each checkpoint is of another opening of the database, in one life of the pool.
fn damages_an_older_state(is_reopened: bool) -> Result<bool> {
    // As `docs/format.md` says.
    const RING: usize = 12_288 + 8_192;
    let options = options(DomainChoice::Block);
    let (device, mut open) = Open::on_device(&options)?;
    for round in 0..6 {
        open.set(&(0..40).map(|key| (key, round)).collect::<Vec<_>>())?;
        open.db.checkpoint()?;
        if round == 2 {
            // As the pool does when its journal is half full.
            let memory = open.db.store().memory();
            memory.leave_journal(memory.flushed_anywhere()).expect("a working device");
        }
        if is_reopened {
            let store = open.db.store().clone();
            drop(open);
            let db = Database::open_in(&store, &options)?;
            open = Open { table: db.table("t")?, db };
        }
    }
    let mut content = device.disk.power_cut(|_| true);
    content[RING..12_288 + (1 << 20)].fill(0);
    let Open { db, table } = open;
    drop(table);
    db.abandon();
    let found = Open::on_disk(content, &options).and_then(|(_, open)| open.all());
    let is_whole = |rows: &[(u64, i64)]| rows.len() == 40 && rows.iter().all(|(_, value)| *value == rows[0].1);
    Ok(!found.is_ok_and(|rows| is_whole(&rows)))
}

/// Checkpoints whose logs take several segments, and damage of the newest checkpoint. The older one needs the log
/// records after it. Whether rows are missing, or damaged.
fn lacks_records_of_an_older_checkpoint() -> Result<bool> {
    let options = DatabaseOptions {
        checkpoint_thread: false,
        log_bytes: 128 << 10,
        segment_bytes: 1 << 10,
        ..options(DomainChoice::Block)
    };
    let (device, open) = Open::on_device(&options)?;
    let rows = |round| (0..40).map(|key| (key, round)).collect::<Vec<_>>();
    for round in 0..6 {
        rows(round).chunks(4).try_for_each(|rows| open.set(rows))?;
        open.db.checkpoint()?;
    }
    // In order, so that the newest checkpoint is in the file and not in the journal.
    drop(open);
    let mut content = device.disk.power_cut(|_| false);
    // As `docs/format.md` says: the magic number of a checkpoint block, and the number of its batch after it.
    let journal = 12_288..12_288 + (1 << 20);
    let blocks = content.windows(8).enumerate().filter(|(at, bytes)| *bytes == b"LDSTCHK\0" && !journal.contains(at));
    let batch =
        |at: usize| content[at + 8..][..8].iter().rev().fold(0_u64, |batch, byte| batch << 8 | u64::from(*byte));
    let newest = blocks.map(|(at, _)| at).max_by_key(|at| batch(*at)).expect("a checkpoint");
    content[newest + 8] ^= 1;
    Ok(Open::on_disk(content, &options).and_then(|(_, open)| open.all()).ok() != Some(rows(5)))
}

/// A table is dropped whose log has changes of rows in its images. Whether the database cannot be opened afterwards.
fn needs_images_of_a_dropped_table() -> Result<bool> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut options = DatabaseOptions { checkpoint_thread: false, ..options(DomainChoice::Process) };
    // Else the change of some bytes has all of the row.
    options.flush_unit = FlushUnit::Page;
    for checkpoints in 1..4 {
        let open = Open::at(&path, &options)?;
        let wide = open.db.create_table(&"w (k u64, v i64, pad text) key (k)".parse()?)?;
        open.db.update(|tx| wide.put(tx, &wide_row(1, 1)))?;
        open.db.checkpoint()?;
        // A change of some bytes of the row.
        open.db.update(|tx| wide.update(tx, &wide_row(1, 2)))?;
        drop(wide);
        open.db.drop_table("w")?;
        (0..checkpoints).try_for_each(|_| open.db.checkpoint().map(drop))?;
        drop(open);
        match Open::at(&path, &options) {
            Err(Error::Damaged { .. }) => return Ok(true),
            outcome => drop(outcome?),
        }
    }
    Ok(false)
}

/// Checkpoints whose logs take several segments. After each one the records of the journal are gone, as after a repair
/// that gives up a damaged one. Whether the older state of the database lacks something.
fn lacks_discarded_records() -> Result<bool> {
    let options = DatabaseOptions {
        checkpoint_thread: false,
        log_bytes: 128 << 10,
        segment_bytes: 1 << 10,
        ..options(DomainChoice::Block)
    };
    // As `docs/format.md` says.
    const RING: usize = 12_288 + 8_192;
    let (device, open) = Open::on_device(&options)?;
    for round in 0..12 {
        for chunk in 0..10 {
            open.set(&(0..4).map(|key| (chunk * 4 + key, round)).collect::<Vec<_>>())?;
        }
        open.db.checkpoint()?;
        let mut content = device.disk.power_cut(|_| true);
        content[RING..12_288 + (1 << 20)].fill(0);
        let found = Open::on_disk(content, &options).and_then(|(_, open)| open.all());
        // A transaction is there or not, and no later one without it.
        let values: Vec<i64> = found.iter().flatten().map(|(_, value)| *value).collect();
        let is_prefix = |values: &[i64]| values.is_sorted_by(|one, next| one >= next);
        let is_whole = values.chunks(4).all(|chunk| chunk.len() == 4 && chunk.iter().all(|value| *value == chunk[0]));
        if found.is_err() || !is_prefix(&values) || !is_whole {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A name, and whether the scenario goes wrong.
type Scenario = (&'static str, fn() -> Result<bool>);

#[test]
fn every_planted_bug_is_found() -> Result<()> {
    let scenarios: [Scenario; 40] = [
        ("engine-round-leaves-dropped", || commits_before_the_fence(drops)),
        ("engine-drop-ends-images-early", needs_images_of_a_dropped_table),
        ("block-discards-early", lacks_discarded_records),
        ("wal-discards-live", lacks_records_of_an_older_checkpoint),
        ("pages-block-in-journal", || damages_an_older_state(false)),
        ("pages-block-in-journal", || damages_an_older_state(true)),
        ("pages-direct-before-durable", loses_images),
        ("engine-region-ignores-locks", loses_an_update_in_a_region),
        ("engine-point-too-early", || answers_what_is_lost(|open| open.db.update(|tx| open.get(tx, 1)))),
        ("engine-epoch-poisons-late", acknowledges_an_epoch_that_failed),
        ("engine-purges-by-tick", sees_a_purge_without_the_rest),
        ("engine-delta-base-unchecked", builds_on_a_replaced_row),
        ("engine-epoch-answers-early", answers_before_its_epoch),
        ("engine-reader-forgets-pending", || commits_before_the_fence(copies)),
        ("engine-locks-pending", || commits_before_the_fence(replaces)),
        ("engine-answers-pending", || commits_before_the_fence(answers)),
        ("pages-copies-pending", || commits_before_the_fence(|open| open.db.checkpoint().map(|_| ()))),
        ("engine-no-leaf-version", has_phantoms),
        ("engine-no-extension", sees_a_mixture),
        ("engine-no-floor", loses_the_second_row),
        ("engine-stale-slot", holds_a_purged_row),
        ("engine-feed-unsettled", || commits_before_the_fence(feeds)),
        ("engine-index-entry-kept", keeps_an_old_entry),
        ("engine-table-unnoted", misses_an_entry),
        ("engine-build-ends-others", ends_the_entry_of_another_row),
        ("engine-build-unvalidated", keeps_the_entry_of_a_row_before),
        ("engine-index-read-early", reads_some_of_the_entries),
        ("engine-snapshot-answers-pending", || commits_before_the_fence(answers_from_a_snapshot)),
        ("engine-reader-answers-early", || answers_what_is_lost(|open| open.get(&open.db.snapshot()?, 1))),
        ("engine-reader-answers-early", || answers_what_is_lost(|open| open.db.update(|tx| open.get(tx, 1)))),
        ("engine-reader-answers-early", || {
            answers_what_is_lost(|open| open.db.update_with(Isolation::Snapshot, |tx| open.get(tx, 1)))
        }),
        ("engine-reader-answers-early", || {
            answers_what_is_lost(|open| open.db.update_with(Isolation::ReadCommitted, |tx| open.get(tx, 1)))
        }),
        ("engine-snapshot-purged", a_snapshot_loses_a_row),
        ("txn-side-first-only", a_snapshot_loses_a_version),
        ("txn-side-freed-early", a_snapshot_loses_a_version),
        ("engine-reads-unvalidated", commits_after_a_change),
        ("engine-dup-unvalidated", inserts_twice),
        ("engine-stale-reads-count", commits_after_a_stale_read),
        ("engine-snapshot-writes-unvalidated", || loses_an_update(Isolation::Snapshot)),
        ("engine-bases-unvalidated", || loses_an_update(Isolation::ReadCommitted)),
    ];
    for (bug, goes_wrong) in scenarios {
        assert!(!goes_wrong()?, "{bug} is found in the clean tree");
        planted::plant(Some(bug));
        let found = goes_wrong();
        planted::plant(None);
        assert!(found?, "{bug} is not found");
    }
    Ok(())
}
