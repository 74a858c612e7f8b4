//! Commits whose locks and validation are one hardware transaction: the words they touch, aborts and the fallback.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::common::hardware::Hardware;
use crate::common::{Open, options};
use lodestone_engine::{Database, DatabaseOptions, DatabaseStats, Error, Region, Result, row};
use lodestone_pmem::htm::Rtm;
use lodestone_pmem::{CounterScope, DomainChoice, LineAddr, Medium, PmAddr};

struct World {
    folder: tempfile::TempDir,
    options: DatabaseOptions,
    hardware: Arc<Hardware>,
    open: Arc<Open>,
}

impl World {
    /// Rows 0 to 19 are 0.
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let hardware = Hardware::new();
        let options = DatabaseOptions { region: hardware.region(), ..options(DomainChoice::DaxEmulated) };
        let open = Arc::new(Open::at(&folder.path().join("a.pool"), &options)?);
        (0..20).try_for_each(|key| open.set(&[(key, 0)]))?;
        let stats = open.db.stats();
        assert!(stats.regions >= 20 && stats.region_fallbacks == 0, "rows that are added as well: {stats:?}");
        Ok(Self { folder, options, hardware, open })
    }

    fn stats(&self) -> DatabaseStats {
        self.open.db.stats()
    }

    /// The rows, now and after another open, which reads the log or, after a checkpoint, the pages.
    fn expect_all(self, expected: &[(u64, i64)]) -> Result<()> {
        assert_eq!(self.open.all()?, expected);
        let open = Arc::into_inner(self.open).expect("no thread has it");
        let path = self.folder.path().join("a.pool");
        drop(open.table);
        open.db.abandon();
        let open = Open::at(&path, &self.options)?;
        assert_eq!(open.all()?, expected, "after a crash");
        open.db.checkpoint()?;
        drop(open);
        assert_eq!(Open::at(&path, &self.options)?.all()?, expected, "from the pages");
        Ok(())
    }
}

fn rows(changed: &[(u64, i64)]) -> Vec<(u64, i64)> {
    let value = |key| changed.iter().find(|(found, _)| *found == key).map_or(0, |(_, value)| *value);
    let extra = changed.iter().copied().filter(|(key, _)| *key >= 20);
    (0..20).map(|key| (key, value(key))).chain(extra).collect()
}

#[test]
fn a_region_writes_one_word_for_each_row_and_the_commit_has_one_fence() -> Result<()> {
    let world = World::new()?;
    let before = world.stats();
    let scope = CounterScope::start();
    world.open.db.update(|tx| {
        let sum = world.open.get(tx, 3)?.unwrap_or(0) + world.open.get(tx, 4)?.unwrap_or(0);
        [(1, sum + 1), (2, sum + 2)].iter().try_for_each(|(key, value)| world.open.put(tx, *key, *value))
    })?;
    assert_eq!(scope.delta().fences, 1);
    // Two rows that were read, the row of the table in the catalog, and perhaps what `put` looked at.
    let [read, written] = world.hardware.words();
    assert_eq!(written, 2);
    assert!((3..=5).contains(&read), "{read}");
    let after = world.stats();
    assert_eq!((after.regions - before.regions, after.region_fallbacks), (1, 0));
    world.expect_all(&rows(&[(1, 1), (2, 2)]))
}

#[test]
fn what_does_not_fit_into_the_caches_falls_back_at_once() -> Result<()> {
    let world = World::new()?;
    world.hardware.writes_max.store(8, Ordering::SeqCst);
    let before = world.stats();
    let changed: Vec<_> = (5..15).map(|key| (key, 7)).collect();
    world.open.set(&changed)?;
    let after = world.stats();
    assert_eq!((after.region_overflows, after.region_fallbacks), (1, 1));
    assert_eq!(after.regions, before.regions);
    world.open.set(&[(1, 1)])?;
    assert_eq!(world.stats().regions, before.regions + 1);
    let mut expected = rows(&changed);
    expected[1].1 = 1;
    world.expect_all(&expected)
}

#[test]
fn conflicts_are_tried_again_and_then_the_locks_are_taken() -> Result<()> {
    let world = World::new()?;
    world.hardware.conflicts.store(3, Ordering::SeqCst);
    world.open.set(&[(1, 1)])?;
    let stats = world.stats();
    assert_eq!((stats.region_conflicts, stats.region_fallbacks), (3, 0));
    world.hardware.conflicts.store(100, Ordering::SeqCst);
    // With a row that is new: each attempt claims its slot and takes it out again.
    world.open.set(&[(2, 2), (30, 3)])?;
    let stats = world.stats();
    assert_eq!((stats.region_conflicts, stats.region_fallbacks), (11, 1));
    assert_eq!(stats.conflicts, 0, "no transaction ran again for it");
    world.expect_all(&rows(&[(1, 1), (2, 2), (30, 3)]))
}

#[test]
fn a_commit_between_is_a_conflict_of_the_row_or_of_the_transaction() -> Result<()> {
    let world = World::new()?;
    // It changes a row that this one changes without having read it: only the region is aborted.
    let other = world.open.clone();
    world.hardware.then(move || other.set(&[(1, 5)]).expect("a commit"));
    world.open.set(&[(1, 6)])?;
    let stats = world.stats();
    assert_eq!((stats.region_conflicts, stats.conflicts), (1, 0));
    // It changes a row that this one has read: the transaction runs again.
    let other = world.open.clone();
    world.hardware.then(move || other.set(&[(2, 10)]).expect("a commit"));
    world.open.db.update(|tx| {
        let found = world.open.get(tx, 2)?.unwrap_or(0);
        world.open.put(tx, 3, found + 1)
    })?;
    assert_eq!(world.stats().conflicts, 1);
    // It deletes the row, and adds one of a range that was read.
    let other = world.open.clone();
    world.hardware.then(move || {
        let table = &other.table;
        other.db.update(|tx| table.delete(tx, &row![4_u64]).and_then(|_| other.put(tx, 25, 1))).expect("a commit");
    });
    world.open.db.update(|tx| {
        let count = world.open.count(tx, 0, 100)?;
        world.open.put(tx, 4, i64::try_from(count).expect("few"))
    })?;
    assert_eq!(world.stats().conflicts, 2);
    world.expect_all(&rows(&[(1, 6), (2, 10), (3, 11), (4, 20), (25, 1)]))
}

/// Each commit says that the page of its row is dirty, after it has the lock. Else a checkpoint leaves the page, and
/// truncates the record.
#[test]
fn a_row_that_a_region_locked_is_in_the_next_images() -> Result<()> {
    let world = World::new()?;
    world.open.db.checkpoint()?;
    world.open.set(&[(7, 5)])?;
    for _ in 0..2 {
        world.open.db.checkpoint()?;
    }
    world.expect_all(&rows(&[(7, 5)]))
}

/// Calls an action once, at a fence.
struct AtFence(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for AtFence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an action at a fence")
    }
}

impl Medium for AtFence {
    fn label(&self) -> String {
        "an action at a fence".into()
    }
    fn read(&self, _: PmAddr, _: u64) {}
    fn write(&self, _: PmAddr, _: u64) {}
    fn flush(&self, _: LineAddr) {}
    fn stream(&self, _: PmAddr, _: u64) {}
    fn fence(&self) {
        let action = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        action.into_iter().for_each(|action| action());
    }
}

/// A region that waited inside for another thread would meet interrupts, and stores of that thread.
#[test]
fn a_region_begins_when_what_was_read_is_not_pending() -> Result<()> {
    let at_fence = Arc::new(AtFence(Mutex::default()));
    let hardware = Hardware::new();
    let mut options = DatabaseOptions { region: hardware.region(), ..options(DomainChoice::DaxEmulated) };
    options.pool.medium = Some(at_fence.clone());
    let folder = tempfile::tempdir().expect("a folder");
    let open = Arc::new(Open::at(&folder.path().join("a.pool"), &options)?);
    open.set(&[(1, 0), (2, 0)])?;
    let (other, begun) = (open.clone(), hardware.clone());
    let (seen, is_seen) = std::sync::mpsc::channel();
    *at_fence.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(move || {
        // The version of row 1 is pending: its commit is at this fence.
        let before = begun.begun.load(Ordering::SeqCst);
        let copy = thread::spawn(move || {
            other.db.update(|tx| {
                let found = other.get(tx, 1)?.unwrap_or(0);
                other.put(tx, 2, found + 1)
            })
        });
        thread::sleep(Duration::from_millis(200));
        let now = begun.begun.load(Ordering::SeqCst);
        seen.send((now - before, copy)).expect("the test waits");
    }));
    open.set(&[(1, 7)])?;
    let (regions, copy) = is_seen.recv().expect("the fence");
    copy.join().expect("no panic")?;
    assert_eq!((regions, open.all()?), (0, vec![(1, 7), (2, 8)]));
    Ok(())
}

#[test]
fn a_processor_without_transactions_is_an_error_and_nothing_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let opened = Database::open_with(&path, &DatabaseOptions { region: Region::Rtm, ..options(DomainChoice::Process) });
    match Rtm::detect() {
        Some(_) => assert!(opened.is_ok(), "{opened:?}"),
        None => {
            let error = opened.map(|_| ()).expect_err("no such processor");
            assert!(matches!(error, Error::NoHardwareTransactions), "{error}");
            assert!(error.to_string().contains("the region `Locks`"), "{error}");
            assert!(!path.exists());
        }
    }
}
