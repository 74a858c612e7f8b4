//! Real threads: sums that must not change, counts that must be true, and write skew that must not occur.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use crate::common::{Open, options};
use lodestone_engine::{Error, Result, row};
use lodestone_pmem::DomainChoice;

const THREADS: u64 = 4;

/// A generator of small numbers, another one for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Runs `work` on each thread, with its number, and hands its first error on.
fn on_threads(work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let work = &work;
                    move || work(number)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

#[test]
fn transfers_keep_the_sum_in_every_read() -> Result<()> {
    const ACCOUNTS: u64 = 12;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let open = Open::at(&path, &options(DomainChoice::DaxEmulated))?;
    open.set(&(0..ACCOUNTS).map(|key| (key, 100)).collect::<Vec<_>>())?;
    on_threads(|number| {
        let mut random = Random(number);
        for turn in 0..6000 {
            let (from, to) = (random.below(ACCOUNTS), random.below(ACCOUNTS));
            let amount = i64::try_from(random.below(20)).expect("small");
            if turn % 10 == 0 {
                // Inside the closure too: an attempt that fails later must not see a wrong sum.
                open.db.update(|tx| {
                    assert_eq!(open.rows(tx)?.iter().map(|(_, cents)| cents).sum::<i64>(), 1200);
                    Ok(())
                })?;
            }
            let outcome = open.db.update(|tx| {
                let (rich, poor) = (open.get(tx, from)?.unwrap_or(0), open.get(tx, to)?.unwrap_or(0));
                if rich < amount || from == to {
                    return Err(Error::cancelled("not enough"));
                }
                // Now and then the account ends and begins again.
                if turn % 7 == 0 {
                    open.table.delete(tx, &row![from])?;
                }
                open.put(tx, from, rich - amount)?;
                open.put(tx, to, poor + amount)
            });
            if !matches!(outcome, Ok(()) | Err(Error::Cancelled { .. })) {
                return outcome;
            }
        }
        Ok(())
    })?;
    let before = open.all()?;
    assert_eq!(before.iter().map(|(_, cents)| cents).sum::<i64>(), 1200);
    drop(open);
    assert_eq!(Open::at(&path, &options(DomainChoice::DaxEmulated))?.all()?, before);
    Ok(())
}

#[test]
fn rows_that_hold_the_count_of_the_others_are_all_different() -> Result<()> {
    // Each transaction counts the rows of its part and adds one with that count. With a phantom two rows hold the same.
    const PARTS: u64 = 3;
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    on_threads(|number| {
        let mut random = Random(number);
        for turn in 0..60 {
            let part = random.below(PARTS) * 1_000_000;
            let key = part + random.below(1000) * 1000 + number * 100 + turn;
            open.db.update(|tx| {
                let count = open.count(tx, part, part + 1_000_000)?;
                open.table.insert(tx, &row![key, i64::try_from(count).expect("small")])
            })?;
        }
        Ok(())
    })?;
    let all = open.all()?;
    assert_eq!(all.len() as u64, THREADS * 60);
    for part in 0..PARTS {
        let mut counts: Vec<i64> =
            all.iter().filter(|(key, _)| key / 1_000_000 == part).map(|(_, count)| *count).collect();
        counts.sort_unstable();
        assert!(counts.iter().copied().eq(0..counts.len() as i64), "part {part}: {counts:?}");
    }
    Ok(())
}

#[test]
fn of_two_doctors_one_stays_on_call() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    open.set(&[(0, 1), (1, 1)])?;
    let (is_over, left) = (AtomicBool::new(false), AtomicI64::new(0));
    on_threads(|number| {
        let own = number % 2;
        if number >= 2 {
            while !is_over.load(Ordering::Relaxed) {
                let on_call = open.db.update(|tx| Ok(open.get(tx, 0)?.unwrap_or(0) + open.get(tx, 1)?.unwrap_or(0)))?;
                assert!(on_call >= 1, "write skew");
            }
            return Ok(());
        }
        for _ in 0..10_000 {
            let leaves = open.db.update(|tx| {
                let both = open.get(tx, 0)? == Some(1) && open.get(tx, 1)? == Some(1);
                open.put(tx, own, i64::from(!both))?;
                Ok(both)
            })?;
            left.fetch_add(i64::from(leaves), Ordering::Relaxed);
        }
        is_over.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    assert!(left.load(Ordering::Relaxed) > 0, "no doctor ever left");
    Ok(())
}

#[test]
fn more_threads_than_writers_wait_for_one() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let one = lodestone_engine::DatabaseOptions { threads_max: 1, ..options(DomainChoice::Process) };
    let open = Open::at(&folder.path().join("a.pool"), &one)?;
    on_threads(|number| (0..200).try_for_each(|turn| open.set(&[(number * 1000 + turn, 1)])))?;
    assert_eq!(open.all()?.len() as u64, THREADS * 200);
    Ok(())
}

/// The outer closure may run again: a change inside it would happen twice, or make the outer one conflict for ever.
#[test]
fn a_change_inside_the_closure_of_another_transaction_is_refused() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    open.set(&[(1, 1)])?;
    open.db.update(|tx| {
        assert_eq!(open.get(tx, 1)?, Some(1));
        assert!(matches!(open.set(&[(1, 2)]), Err(Error::Nested)));
        assert_eq!((open.all()?, open.db.tables()?), (vec![(1, 1)], vec!["t".to_owned()]), "reads are free");
        open.put(tx, 2, 2)
    })?;
    let panicked =
        std::panic::catch_unwind(AssertUnwindSafe(|| open.db.update(|_| -> Result<()> { panic!("on purpose") })));
    assert!(panicked.is_err());
    // Another thread may change it, and this one after it.
    let outcome = open.db.update(|tx| {
        open.get(tx, 7)?;
        thread::scope(|scope| scope.spawn(|| open.set(&[(3, 3)])).join().expect("no panic"))
    });
    outcome?;
    open.set(&[(1, 5)])?;
    assert_eq!(open.all()?, [(1, 5), (2, 2), (3, 3)]);
    Ok(())
}
