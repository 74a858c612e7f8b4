//! The options of durability: what survives, what is refused, and what others see meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::common::{Open, options};
use lodestone_engine::{Database, DatabaseOptions, Durability, Error, Region, Result, row};
use lodestone_pmem::{CounterScope, DomainChoice, LineAddr, Medium, PmAddr};
use lodestone_store::Store;

fn with(durability: Durability) -> DatabaseOptions {
    DatabaseOptions { durability, ..options(DomainChoice::DaxEmulated) }
}

fn grouped(interval: Duration) -> DatabaseOptions {
    with(Durability::Epoch(interval))
}

#[test]
fn without_durability_nothing_is_written_and_nothing_survives() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let none = with(Durability::None);
    for _ in 0..2 {
        let open = Open::at(&path, &none)?;
        assert_eq!(open.all()?, [], "empty at each open");
        open.set(&[(0, 0)])?;
        let scope = CounterScope::start();
        (0..100).try_for_each(|key| open.set(&[(key, 1), (key + 1, 2)]))?;
        open.db.update(|tx| open.table.delete(tx, &row![5_u64]).map(|_| ()))?;
        assert_eq!((scope.delta().fences, scope.delta().pm_bytes()), (0, 0));
        assert_eq!(open.all()?.len(), 100);
        open.db.sync()?;
        assert!(matches!(open.db.checkpoint(), Err(Error::WithoutDurability { .. })));
    }
    // Never as if it had been durable, and never the reverse.
    for other in [Durability::Sync, Durability::Ordered, Durability::EPOCH] {
        let error = Database::open_with(&path, &with(other)).expect_err("made without durability");
        assert!(matches!(error, Error::DurabilityDiffers { .. }), "{error}");
        assert!(error.to_string().contains("open it with `Durability::None`"), "{error}");
    }
    let store = Store::open_or_create(&path, &none.pool)?;
    assert!(store.check(&mut |_| {}).is_clean());
    drop(store);
    let durable = folder.path().join("b.pool");
    Open::at(&durable, &with(Durability::Sync))?.set(&[(1, 1)])?;
    let error = Database::open_with(&durable, &none).expect_err("made with durability");
    assert!(matches!(error, Error::DurabilityDiffers { .. }), "{error}");
    assert_eq!(Open::at(&durable, &with(Durability::EPOCH))?.all()?, [(1, 1)], "the others may change");
    Ok(())
}

#[test]
fn durations_and_writers_outside_the_limits_are_refused() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    for micros in [0, 9, 80_001, u64::MAX] {
        let refused = Database::open_with(&path, &grouped(Duration::from_micros(micros)));
        assert!(matches!(refused, Err(Error::BadOption { value, .. }) if value == micros), "{micros}");
    }
    let one = DatabaseOptions { threads_max: 1, ..grouped(Duration::from_millis(1)) };
    assert!(matches!(Database::open_with(&path, &one), Err(Error::BadOption { option: "threads_max", .. })));
    Open::at(&path, &DatabaseOptions { durability: Durability::Sync, ..one })?.set(&[(1, 1)])
}

/// Commits have no fence. An epoch has one, and a record of all its commits.
#[test]
fn an_epoch_has_one_fence_and_survives_as_a_whole() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let options = grouped(Duration::from_millis(80));
    let open = Open::at(&path, &options)?;
    open.db.end_logger();
    open.set(&[(1, 1)])?;
    let scope = CounterScope::start();
    let tickets: Vec<_> =
        (0..10_i64).map(|value| open.db.update_async(|tx| open.put(tx, 1, value))).collect::<Result<_>>()?;
    assert_eq!((scope.delta().fences, scope.delta().pm_bytes()), (0, 0));
    let seen = open.db.update_async(|tx| open.get(tx, 1))?.into_value();
    assert_eq!(seen, Some(9), "visible at once");
    assert!(!tickets.iter().any(|ticket| ticket.is_durable()), "a look ends no epoch");
    for ticket in tickets {
        ticket.durable()?;
    }
    // A commit: 24 bytes for its tick, 32 for its row. A record: 24 more, to a multiple of 64.
    assert_eq!((scope.delta().fences, scope.delta().pm_bytes()), (1, 640));
    let lost = open.db.update_async(|tx| open.put(tx, 1, 77))?;
    open.db.update_async(|tx| open.put(tx, 2, 78))?.durable()?;
    assert!(lost.is_durable(), "with the epoch of another one");
    lost.durable()?;
    let lost = open.db.update_async(|tx| open.put(tx, 1, 99))?;
    let Open { db, table } = open;
    drop(table);
    db.abandon();
    assert!(matches!(lost.durable(), Err(Error::Poisoned { .. })), "it is not durable, and never said to be");
    let open = Open::at(&path, &options)?;
    assert_eq!(open.all()?, [(1, 77), (2, 78)]);
    Ok(())
}

/// A transaction that only reads, and an error, wait for the epoch of what they saw.
#[test]
fn an_answer_waits_for_the_epoch_of_what_it_saw() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let answers: [fn(&Open) -> Result<()>; 2] = [
        |open| open.db.update(|tx| open.get(tx, 1)).map(|_| ()),
        |open| match open.db.update(|tx| open.table.insert(tx, &row![1_u64, 0_i64])) {
            Err(Error::Duplicate { .. }) => Ok(()),
            other => other,
        },
    ];
    for (number, answer) in (1..).zip(answers) {
        let options = grouped(Duration::from_millis(80));
        let open = Open::at(&path, &options)?;
        open.db.end_logger();
        let _ = open.db.update_async(|tx| open.put(tx, 1, number))?;
        answer(&open)?;
        let Open { db, table } = open;
        drop(table);
        db.abandon();
        assert_eq!(Open::at(&path, &options)?.all()?, [(1, number)]);
    }
    Ok(())
}

/// A reader of absent rows waits for the open epoch. It ends although no commit has joined it.
#[test]
fn a_reader_of_absent_rows_waits_for_no_commit() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &grouped(Duration::from_millis(1)))?;
    open.set(&[(1, 1), (2, 2)])?;
    open.db.update(|tx| open.table.delete(tx, &row![1_u64]).map(|_| ()))?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                thread::sleep(Duration::from_millis(100));
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
            // The reader sleeps for ever: no panic would end the test.
            std::process::abort();
        });
        for _ in 0..20 {
            // The epoch of the last commit is closed, and nothing is under way.
            thread::sleep(Duration::from_millis(5));
            let snapshot = open.db.snapshot()?;
            assert_eq!(open.table.get(&snapshot, &row![1_u64])?, None);
            assert_eq!(open.table.range(&snapshot, ..)?.count(), 1);
            assert_eq!(open.all()?, [(2, 2)]);
            open.db.update(|tx| open.table.get(tx, &row![1_u64]).map(|row| assert_eq!(row, None)))?;
        }
        is_over.store(true, Ordering::Relaxed);
        Ok(())
    })
}

/// Checkpoints beside groups: the log is small, the threads do not wait for epochs.
#[test]
fn groups_and_checkpoints_take_any_number_of_commits() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let small = DatabaseOptions { log_bytes: 64 << 10, segment_bytes: 8 << 10, ..grouped(Duration::from_micros(300)) };
    let open = Open::at(&path, &small)?;
    thread::scope(|scope| {
        for number in 0..3 {
            let open = &open;
            scope.spawn(move || {
                for turn in 0..3000_u64 {
                    let key = turn % 50 * 4 + number;
                    let done = open.db.update_async(|tx| {
                        let sum = open.get(tx, 1000)?.unwrap_or(0);
                        open.put(tx, 1000, sum + 1)?;
                        open.put(tx, key, turn as i64)
                    });
                    let ticket = done.expect("no fault");
                    if turn % 100 == 99 {
                        ticket.durable().expect("no fault");
                    }
                }
            });
        }
    });
    let many: Vec<(u64, i64)> = (0..2000).map(|key| (key, 1)).collect();
    assert!(matches!(open.set(&many), Err(Error::TransactionTooLarge { .. })));
    assert!(open.db.page_stats().batches > 5, "{:?}", open.db.page_stats());
    let expected = open.all()?;
    assert!(expected.contains(&(1000, 9000)));
    let Open { db, table } = open;
    drop(table);
    db.abandon();
    let open = Open::at(&path, &DatabaseOptions { durability: Durability::Sync, ..small })?;
    assert_eq!(open.all()?, expected);
    Ok(())
}

/// The last handle that is dropped makes the open epoch durable.
#[test]
fn a_clean_end_leaves_nothing_behind() -> Result<()> {
    for domain in [DomainChoice::DaxEmulated, DomainChoice::Block] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        for durability in [Durability::EPOCH, Durability::Ordered] {
            let options = DatabaseOptions { durability, ..options(domain) };
            let open = Open::at(&path, &options)?;
            let before = open.all()?.len() as u64;
            for key in before..before + 10 {
                let _ = open.db.update_async(|tx| open.put(tx, key, 1))?;
            }
            drop(open);
            let open = Open::at(&path, &options)?;
            assert!(open.db.recovery().was_clean);
            assert_eq!(open.all()?.len() as u64, before + 10, "{durability:?}");
        }
    }
    Ok(())
}

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

/// While a transaction that has read row 2 and set row 1 is at its fence: whether row 1 can be read and has the new
/// value, and whether row 2 can be set.
fn at_the_fence(change: impl Fn(&mut DatabaseOptions)) -> Result<(Option<i64>, bool)> {
    let folder = tempfile::tempdir().expect("a folder");
    let (reached, is_reached) = sync_channel(1);
    let (go_on, may_go_on) = sync_channel(1);
    let gate = Arc::new(Gate { is_armed: AtomicBool::new(false), reached, go_on: Mutex::new(may_go_on) });
    let mut options = options(DomainChoice::DaxEmulated);
    options.pool.medium = Some(gate.clone());
    change(&mut options);
    let open = Open::at(&folder.path().join("a.pool"), &options)?;
    open.set(&[(1, 1), (2, 1)])?;
    let first_writer = open.db.hold_writer()?;
    open.set(&[(1, 1), (2, 1)])?;
    drop(first_writer);
    gate.is_armed.store(true, Ordering::SeqCst);
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            open.db.update(|tx| {
                let found = open.get(tx, 2)?.unwrap_or(0);
                open.put(tx, 1, found + 1)
            })
        });
        is_reached.recv().expect("a fence");
        let seen = match open.get(&open.db.begin(), 1) {
            Err(Error::Conflict) => None,
            seen => seen?,
        };
        let other = open.db.begin();
        open.put(&other, 2, 5)?;
        let was_set = match other.commit() {
            Err(Error::Conflict) => false,
            outcome => outcome.map(|()| true)?,
        };
        go_on.send(()).expect("the first transaction waits");
        first.join().expect("no panic")?;
        assert_eq!(open.all()?, [(1, 2), (2, if was_set { 5 } else { 1 })]);
        Ok((seen, was_set))
    })
}

#[test]
fn others_see_changes_and_set_rows_as_the_options_say() -> Result<()> {
    assert_eq!(at_the_fence(|_| {})?, (Some(2), true));
    assert_eq!(at_the_fence(|options| options.early_release = false)?, (None, true));
    assert_eq!(at_the_fence(|options| options.region = Region::Naive)?, (None, false));
    Ok(())
}

/// Every option keeps sums and pairs whole.
#[test]
fn transactions_are_serializable_in_every_way() -> Result<()> {
    let ways: [fn(&mut DatabaseOptions); 6] = [
        |options| options.early_release = false,
        |options| options.region = Region::Naive,
        |options| options.durability = Durability::None,
        |options| options.durability = Durability::Ordered,
        |options| options.durability = Durability::Epoch(Duration::from_micros(50)),
        |options| (options.durability, options.region) = (Durability::Epoch(Duration::from_millis(1)), Region::Naive),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = options(DomainChoice::Process);
        way(&mut options);
        let open = Open::at(&folder.path().join("a.pool"), &options)?;
        open.set(&[(0, 0), (1, 0), (2, 0), (3, 0)])?;
        thread::scope(|scope| {
            for number in 0..3_u64 {
                let open = &open;
                scope.spawn(move || {
                    for turn in 0..150_u64 {
                        let (from, to) = (turn % 4, (turn + 1 + number) % 4);
                        let moved = open.db.update_async(|tx| {
                            let (a, b) = (open.get(tx, from)?.unwrap_or(0), open.get(tx, to)?.unwrap_or(0));
                            open.put(tx, from, a - 1)?;
                            let b = if from == to { a - 1 } else { b };
                            open.put(tx, to, b + 1)
                        });
                        let _ = moved.expect("no fault");
                        let sum: i64 = open.all().expect("no fault").iter().map(|(_, value)| value).sum();
                        assert_eq!(sum, 0);
                    }
                });
            }
        });
        assert_eq!(open.all()?.iter().map(|(_, value)| value).sum::<i64>(), 0, "way {number}");
    }
    Ok(())
}
