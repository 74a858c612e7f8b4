//! The levels of isolation, savepoints, tickets and figures: which anomalies are possible at which level.

use crate::common::{Open, options};
use lodestone_engine::{DatabaseOptions, DatabaseStats, Error, Isolation, Result, row};
use lodestone_pmem::DomainChoice;

const ALL: [Isolation; 4] =
    [Isolation::Serializable, Isolation::SerializableOnSnapshot, Isolation::Snapshot, Isolation::ReadCommitted];

fn with(rows: &[(u64, i64)]) -> Result<(tempfile::TempDir, Open)> {
    with_options(rows, &options(DomainChoice::Process))
}

fn with_options(rows: &[(u64, i64)], options: &DatabaseOptions) -> Result<(tempfile::TempDir, Open)> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), options)?;
    open.set(rows)?;
    Ok((folder, open))
}

#[test]
fn an_update_is_lost_at_no_level() -> Result<()> {
    for isolation in ALL {
        for (first, ends_absent) in [(Some(10), false), (None, false), (Some(10), true)] {
            let (_folder, open) = with(&first.map(|value| (1, value)).into_iter().collect::<Vec<_>>())?;
            let (left, right) = (open.db.begin_with(isolation), open.db.begin_with(isolation));
            for tx in [&left, &right] {
                assert_eq!(open.get(tx, 1)?, first);
            }
            if ends_absent {
                assert!(open.table.delete(&left, &row![1_u64])?);
            } else {
                open.put(&left, 1, 11)?;
            }
            open.put(&right, 1, 12)?;
            left.commit()?;
            let outcome = right.commit();
            assert!(matches!(outcome, Err(Error::Conflict)), "{isolation:?}, from {first:?}: {outcome:?}");
            assert_eq!(open.all()?, if ends_absent { vec![] } else { vec![(1, 11)] }, "{isolation:?}");
        }
    }
    Ok(())
}

#[test]
fn write_skew_is_possible_where_reads_are_not_validated_and_nowhere_else() -> Result<()> {
    for isolation in ALL {
        let (_folder, open) = with(&[(1, 1), (2, 1)])?;
        let (left, right) = (open.db.begin_with(isolation), open.db.begin_with(isolation));
        for tx in [&left, &right] {
            assert_eq!((open.get(tx, 1)?, open.get(tx, 2)?), (Some(1), Some(1)));
        }
        open.put(&left, 1, 0)?;
        open.put(&right, 2, 0)?;
        left.commit()?;
        let is_possible = matches!(isolation, Isolation::Snapshot | Isolation::ReadCommitted);
        assert_eq!(right.commit().is_ok(), is_possible, "{isolation:?}");
        assert_eq!(open.all()?, [(1, 0), (2, i64::from(!is_possible))], "{isolation:?}");
    }
    Ok(())
}

/// Phantoms: each counts the rows and adds one with that count.
#[test]
fn rows_with_the_same_count_are_possible_where_reads_are_not_validated_and_nowhere_else() -> Result<()> {
    for isolation in ALL {
        let (_folder, open) = with(&[(1, 0)])?;
        let (left, right) = (open.db.begin_with(isolation), open.db.begin_with(isolation));
        for (tx, key) in [(&left, 2), (&right, 3)] {
            let count = open.count(tx, 0, 100)?;
            open.put(tx, key, i64::try_from(count).expect("small"))?;
        }
        left.commit()?;
        let is_possible = matches!(isolation, Isolation::Snapshot | Isolation::ReadCommitted);
        assert_eq!(right.commit().is_ok(), is_possible, "{isolation:?}");
    }
    Ok(())
}

#[test]
fn a_second_read_differs_only_where_each_operation_reads_anew() -> Result<()> {
    for isolation in ALL {
        let (_folder, open) = with(&[(1, 1), (2, 2)])?;
        let tx = open.db.begin_with(isolation);
        assert_eq!((open.get(&tx, 1)?, open.count(&tx, 0, 10)?), (Some(1), 2));
        open.set(&[(1, 5), (3, 3)])?;
        let again = open.get(&tx, 1).and_then(|value| Ok((value, open.count(&tx, 0, 10)?)));
        match isolation {
            Isolation::ReadCommitted => assert_eq!(again?, (Some(5), 3)),
            Isolation::Serializable => assert!(matches!(again, Err(Error::Conflict)), "{again:?}"),
            _ => assert_eq!(again?, (Some(1), 2), "{isolation:?}"),
        }
        if isolation != Isolation::Serializable {
            tx.commit()?;
        }
    }
    Ok(())
}

/// A range is one moment at every level: money that moves is in it once.
#[test]
fn a_range_sees_one_moment_at_every_level() -> Result<()> {
    for isolation in ALL {
        for is_reversed in [false, true] {
            let (_folder, open) = with(&(0..20).map(|key| (key, 10)).collect::<Vec<_>>())?;
            let tx = open.db.begin_with(isolation);
            let rows = open.table.range(&tx, ..)?;
            let mut rows: Box<dyn Iterator<Item = _>> = if is_reversed { Box::new(rows.rev()) } else { Box::new(rows) };
            let mut sum = 0;
            let mut outcome = Ok(());
            for number in 0..20 {
                match rows.next().expect("a row") {
                    Ok(row) => sum += row[1].as_i64().expect("a number"),
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
                if number == 5 {
                    open.set(&[(0, 0), (19, 20)])?;
                    open.set(&[(0, 5), (19, 15)])?;
                }
            }
            match outcome {
                Err(error) => assert!(isolation == Isolation::Serializable && matches!(error, Error::Conflict)),
                Ok(()) => assert_eq!(sum, 200, "{isolation:?}"),
            }
        }
    }
    Ok(())
}

#[test]
fn a_transaction_on_a_snapshot_that_changes_nothing_meets_no_conflict() -> Result<()> {
    let (_folder, open) = with(&[(1, 1), (2, 2)])?;
    for isolation in [Isolation::SerializableOnSnapshot, Isolation::Snapshot] {
        let tx = open.db.begin_with(isolation);
        let before = open.all()?;
        open.set(&[(1, 7)])?;
        open.db.update(|tx| open.table.delete(tx, &row![2_u64]))?;
        (10..20).try_for_each(|key| open.set(&[(key, 0)]))?;
        assert_eq!(open.rows(&tx)?, before);
        assert_eq!((open.get(&tx, 1)?, open.get(&tx, 2)?, open.get(&tx, 12)?), (Some(1), Some(2), None));
        tx.commit()?;
        open.db.update(|tx| {
            (10..20).try_for_each(|key: u64| open.table.delete(tx, &row![key]).map(|_| ()))?;
            open.put(tx, 1, 1)?;
            open.put(tx, 2, 2)
        })?;
    }
    let stats = open.db.stats();
    assert_eq!((stats.conflicts, stats.snapshots_open, stats.side_versions), (0, 0, 0));
    Ok(())
}

#[test]
fn a_transaction_on_a_snapshot_validates_all_that_it_read_when_it_changes_rows() -> Result<()> {
    type Change = fn(&Open) -> Result<()>;
    let changes: [(Change, bool); 6] = [
        (|open| open.set(&[(1, 7)]), false),
        (|open| open.db.update(|tx| open.table.delete(tx, &row![1_u64])).map(|_| ()), false),
        (|open| open.set(&[(3, 7)]), false),
        (|open| open.set(&[(15, 7)]), false),
        (|open| open.set(&[(40, 7)]), true),
        (|_| Ok(()), true),
    ];
    for (number, (change, may_commit)) in changes.into_iter().enumerate() {
        for is_first in [false, true] {
            let (_folder, open) = with(&[(1, 1), (2, 2), (10, 0), (20, 0)])?;
            let tx = open.db.begin_with(Isolation::SerializableOnSnapshot);
            let read = || -> Result<()> {
                assert_eq!((open.get(&tx, 1)?, open.get(&tx, 3)?, open.count(&tx, 10, 30)?), (Some(1), None, 2));
                Ok(())
            };
            if is_first {
                change(&open)?;
                read()?;
            } else {
                read()?;
                change(&open)?;
            }
            open.put(&tx, 50, 1)?;
            assert_eq!(tx.commit().is_ok(), may_commit, "change {number}, before the reads: {is_first}");
        }
    }
    Ok(())
}

/// The last look at a row is the base of its change: the first one may have become old.
#[test]
fn read_committed_builds_on_the_last_look() -> Result<()> {
    let (_folder, open) = with(&[(1, 1)])?;
    let tx = open.db.begin_with(Isolation::ReadCommitted);
    assert_eq!(open.get(&tx, 1)?, Some(1));
    open.set(&[(1, 2)])?;
    let found = open.get(&tx, 1)?.unwrap_or(0);
    open.put(&tx, 1, found + 1)?;
    tx.commit()?;
    // A row that it never looked at, one that it saw in a range, and one that it saw missing.
    let tx = open.db.begin_with(Isolation::ReadCommitted);
    open.set(&[(1, 8)])?;
    open.put(&tx, 1, 9)?;
    tx.commit()?;
    let tx = open.db.begin_with(Isolation::ReadCommitted);
    assert_eq!(open.rows(&tx)?, [(1, 9)]);
    open.set(&[(1, 10)])?;
    open.put(&tx, 1, 11)?;
    assert!(matches!(tx.commit(), Err(Error::Conflict)));
    let tx = open.db.begin_with(Isolation::ReadCommitted);
    open.table.insert(&tx, &row![5_u64, 1_i64])?;
    open.set(&[(5, 2)])?;
    assert!(matches!(tx.commit(), Err(Error::Conflict)));
    assert_eq!(open.all()?, [(1, 10), (5, 2)]);
    Ok(())
}

#[test]
fn closures_run_again_at_every_level() -> Result<()> {
    for isolation in ALL {
        let (_folder, open) = with(&[(1, 0)])?;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..250 {
                        let outcome = open.db.update_with(isolation, |tx| {
                            let found = open.get(tx, 1)?.unwrap_or(0);
                            open.put(tx, 1, found + 1)
                        });
                        outcome.expect("a commit");
                    }
                });
            }
        });
        assert_eq!(open.all()?, [(1, 1000)], "{isolation:?}");
    }
    Ok(())
}

#[test]
fn savepoints_take_changes_back_and_nest() -> Result<()> {
    for isolation in ALL {
        let (_folder, open) = with(&[(1, 1), (2, 2), (3, 3)])?;
        let tx = open.db.begin_with(isolation);
        let rows = || open.rows(&tx);
        let start = tx.savepoint()?;
        open.put(&tx, 1, 10)?;
        let outer = tx.savepoint()?;
        open.table.delete(&tx, &row![1_u64])?;
        open.table.delete(&tx, &row![2_u64])?;
        open.put(&tx, 4, 4)?;
        let inner = tx.savepoint()?;
        open.put(&tx, 2, 20)?;
        open.table.delete(&tx, &row![4_u64])?;
        open.put(&tx, 5, 5)?;
        assert_eq!(rows()?, [(2, 20), (3, 3), (5, 5)]);
        tx.rollback_to(inner)?;
        assert_eq!(rows()?, [(3, 3), (4, 4)]);
        open.put(&tx, 6, 6)?;
        tx.rollback_to(inner)?;
        assert_eq!(rows()?, [(3, 3), (4, 4)], "it stays, and is used again");
        open.put(&tx, 7, 7)?;
        tx.release(inner)?;
        assert!(matches!(tx.rollback_to(inner), Err(Error::NoSavepoint)));
        assert_eq!(rows()?, [(3, 3), (4, 4), (7, 7)], "a release keeps the changes");
        let later = tx.savepoint()?;
        tx.rollback_to(outer)?;
        assert_eq!(rows()?, [(1, 10), (2, 2), (3, 3)], "also those of a savepoint that was released");
        assert!(matches!(tx.release(later), Err(Error::NoSavepoint)), "it was made after `outer`");
        tx.release(outer)?;
        tx.rollback_to(start)?;
        assert_eq!(rows()?, [(1, 1), (2, 2), (3, 3)]);
        let other = open.db.begin();
        assert!(matches!(other.rollback_to(start), Err(Error::NoSavepoint)));
        let commits = open.db.stats().commits;
        tx.commit()?;
        assert_eq!(open.db.stats().commits, commits, "nothing is left to commit");
    }
    Ok(())
}

#[test]
fn a_savepoint_ends_with_an_earlier_one_and_with_its_attempt() -> Result<()> {
    let (_folder, open) = with(&[(1, 1)])?;
    let tx = open.db.begin();
    let (outer, inner) = (tx.savepoint()?, tx.savepoint()?);
    open.put(&tx, 1, 2)?;
    tx.release(outer)?;
    assert!(matches!(tx.rollback_to(inner), Err(Error::NoSavepoint)), "it was made after `outer`");
    assert_eq!(open.get(&tx, 1)?, Some(2));
    tx.commit()?;
    let mut first = None;
    open.db.update(|tx| {
        let found = open.get(tx, 1)?.unwrap_or(0);
        let Some(savepoint) = first else {
            first = Some(tx.savepoint()?);
            let other = open.db.begin();
            open.put(&other, 1, 7)?;
            other.commit()?;
            return open.put(tx, 1, found + 1);
        };
        assert!(matches!(tx.rollback_to(savepoint), Err(Error::NoSavepoint)), "of the attempt before");
        open.put(tx, 1, found + 1)
    })?;
    assert_eq!(open.all()?, [(1, 8)]);
    Ok(())
}

/// A value that was read between a savepoint and the rollback counts: the transaction knows it.
#[test]
fn a_rollback_to_a_savepoint_forgets_no_read() -> Result<()> {
    let (_folder, open) = with(&[(1, 1), (2, 2)])?;
    let tx = open.db.begin();
    let savepoint = tx.savepoint()?;
    assert_eq!(open.get(&tx, 1)?, Some(1));
    open.put(&tx, 9, 9)?;
    tx.rollback_to(savepoint)?;
    open.set(&[(1, 5)])?;
    open.put(&tx, 2, 3)?;
    assert!(matches!(tx.commit(), Err(Error::Conflict)));
    // A conflict is not taken back either.
    let tx = open.db.begin();
    let savepoint = tx.savepoint()?;
    assert_eq!(open.get(&tx, 1)?, Some(5));
    open.set(&[(1, 6), (2, 6)])?;
    assert!(matches!(open.get(&tx, 2), Err(Error::Conflict)));
    assert!(matches!(tx.rollback_to(savepoint), Err(Error::Conflict)));
    // An attempt that runs again begins without savepoints.
    let mut attempts = 0;
    open.db.update(|tx| {
        attempts += 1;
        let savepoint = tx.savepoint()?;
        open.put(tx, 1, 7)?;
        let found = open.get(tx, 2)?;
        if attempts == 1 {
            let other = open.db.begin();
            open.put(&other, 2, 9)?;
            other.commit()?;
        }
        tx.rollback_to(savepoint)?;
        open.put(tx, 3, found.unwrap_or(0))
    })?;
    assert_eq!((attempts, open.all()?), (2, vec![(1, 6), (2, 9), (3, 9)]));
    Ok(())
}

#[test]
fn stats_count_what_happened() -> Result<()> {
    let (_folder, open) = with(&[(1, 1)])?;
    let before = open.db.stats();
    open.set(&[(1, 2)])?;
    open.all()?;
    assert!(open.db.update(|_| Err::<(), _>(Error::cancelled("on purpose"))).is_err());
    let (left, right) = (open.db.begin(), open.db.begin());
    for tx in [&left, &right] {
        let found = open.get(tx, 1)?;
        open.put(tx, 1, found.unwrap_or(0) + 1)?;
    }
    left.commit()?;
    assert!(right.commit().is_err());
    let mut attempts = 0;
    open.db.update(|tx| {
        attempts += 1;
        let found = open.get(tx, 1)?;
        if attempts == 1 {
            let other = open.db.begin();
            open.put(&other, 1, 9)?;
            other.commit()?;
        }
        open.put(tx, 1, found.unwrap_or(0) + 1)
    })?;
    let snapshots = [open.db.snapshot()?, open.db.snapshot()?];
    open.set(&[(1, 50)])?;
    open.set(&[(1, 51)])?;
    let stats = open.db.stats();
    let counts =
        |stats: &DatabaseStats| [stats.commits, stats.read_only, stats.cancelled, stats.conflicts, stats.retries];
    let difference: Vec<u64> = counts(&stats).iter().zip(counts(&before)).map(|(now, then)| now - then).collect();
    assert_eq!(difference, [6, 1, 1, 2, 1]);
    assert_eq!((stats.snapshots_open, stats.side_versions, stats.side_copies), (2, 1, 1), "one for both");
    assert!(stats.side_bytes > 0 && stats.log.segments > 0);
    open.db.checkpoint()?;
    assert_eq!(open.db.stats().pages.batches, before.pages.batches + 1);
    drop(snapshots);
    // A transaction keeps nothing for its own snapshot.
    open.db.update_with(Isolation::Snapshot, |tx| open.put(tx, 1, 60))?;
    assert_eq!(open.db.stats().side_copies, 1);
    let stats = open.db.stats();
    assert_eq!((stats.snapshots_open, stats.side_versions, stats.side_bytes), (0, 0, 0));
    Ok(())
}

/// Each figure has its own name, and programs read them by it.
#[test]
fn figures_are_an_object_of_json_in_which_each_has_its_name() {
    let mut stats = DatabaseStats::default();
    (stats.commits, stats.read_only, stats.cancelled, stats.conflicts, stats.retries) = (1, 2, 3, 4, 5);
    (stats.regions, stats.region_conflicts, stats.region_overflows) = (6, 7, 8);
    (stats.region_others, stats.region_fallbacks) = (9, 10);
    (stats.snapshots_open, stats.side_copies, stats.side_versions, stats.side_bytes) = (11, 12, 13, 14);
    (stats.cache_bytes, stats.cache_loads, stats.cache_evictions) = (15, 16, 17);
    (stats.cache_row_reads, stats.cache_warm_loads, stats.scan_leaves_ahead) = (18, 19, 20);
    (stats.checkpoints_failed, stats.log.segments, stats.log.segments_free) = (21, 22, 23);
    (stats.log.segments_max, stats.log.segment_bytes) = (24, 25);
    (stats.pages.pages, stats.pages.pages_free, stats.pages.page_bytes, stats.pages.batches) = (26, 27, 28, 29);
    (stats.pages.written_bytes, stats.log_appended_bytes) = (30, 31);
    let names = [
        "commits",
        "read_only",
        "cancelled",
        "conflicts",
        "retries",
        "regions",
        "region_conflicts",
        "region_overflows",
        "region_others",
        "region_fallbacks",
        "snapshots_open",
        "side_copies",
        "side_versions",
        "side_bytes",
        "cache_bytes",
        "cache_loads",
        "cache_evictions",
        "cache_row_reads",
        "cache_warm_loads",
        "scan_leaves_ahead",
        "checkpoints_failed",
        "log_segments",
        "log_segments_free",
        "log_segments_max",
        "log_segment_bytes",
        "pages",
        "pages_free",
        "page_bytes",
        "page_batches",
        "page_written_bytes",
        "log_appended_bytes",
    ];
    assert_eq!(stats.figures(), names.into_iter().zip(1..).collect::<Vec<_>>());
    let fields: Vec<String> = names.iter().zip(1..).map(|(name, number)| format!("\"{name}\":{number}")).collect();
    assert_eq!(stats.to_string(), format!("{{{}}}", fields.join(",")));
    let find = |name: &str| stats.figures().into_iter().find(|(found, _)| *found == name).map(|(_, value)| value);
    assert_eq!(DatabaseStats::from_figures(find), Ok(stats));
    let last = DatabaseStats::from_figures(|name| find(name).filter(|_| name != "log_appended_bytes"));
    assert_eq!(last, Err("log_appended_bytes"));
}

#[test]
fn a_ticket_is_ordered_at_once_and_durable_when_it_says_so() -> Result<()> {
    for domain in [DomainChoice::Block, DomainChoice::DaxEmulated, DomainChoice::Process] {
        let (folder, open) = with_options(&[(1, 0)], &options(domain))?;
        for round in 1..=10 {
            let ticket = open.db.update_async(|tx| {
                let found = open.get(tx, 1)?.unwrap_or(0) + 1;
                open.put(tx, 1, found)?;
                Ok(found)
            })?;
            assert_eq!(
                (*ticket.value(), open.db.update_async(|tx| open.get(tx, 1))?.into_value()),
                (round, Some(round))
            );
            if round % 4 == 0 {
                // The pool syncs by itself, if rarely.
                while !ticket.is_durable() {
                    std::thread::yield_now();
                }
            } else if round % 2 == 0 {
                ticket.durable()?;
            } else {
                // A ticket for a read waits for what was read.
                drop(ticket);
                assert_eq!(open.db.update_async(|tx| open.get(tx, 1))?.durable()?, Some(round));
            }
            // As a power cut would leave it.
            let copy = folder.path().join("copy.pool");
            std::fs::copy(folder.path().join("a.pool"), &copy).expect("a copy");
            let found = Open::at(&copy, &options(DomainChoice::Process))?.all()?;
            assert!(found[0].1 >= round, "{domain:?}: {found:?} after round {round}");
        }
        let tx = open.db.begin();
        open.put(&tx, 2, 2)?;
        tx.commit_async()?.durable()?;
        assert_eq!(open.all()?, [(1, 10), (2, 2)]);
    }
    Ok(())
}

#[test]
fn a_row_that_is_held_is_there_at_the_commit_as_it_was_seen() -> Result<()> {
    // The value that the row is given (none: it is deleted), whether a plain hold endures that, and one of `v`.
    let changes = [(Some(10), true, true), (Some(11), true, false), (None, false, false)];
    for (isolation, is_before) in ALL.into_iter().flat_map(|level| [(level, false), (level, true)]) {
        for (value, endures, endures_column) in changes {
            for (columns, endures) in [(&[][..], endures), (&["v"], endures_column)] {
                let (_folder, open) = with(&[(1, 10)])?;
                let change = || match value {
                    Some(value) => open.set(&[(1, value)]),
                    None => open.db.update(|tx| open.table.delete(tx, &row![1_u64]).map(drop)),
                };
                let tx = open.db.begin_with(isolation);
                if is_before {
                    change()?;
                }
                let is_held = open.table.hold_columns(&tx, &row![1_u64], columns);
                if !is_before {
                    change()?;
                }
                let is_done = is_held.is_ok_and(|held| held) && open.put(&tx, 2, 20).and_then(|()| tx.commit()).is_ok();
                // Without a snapshot a change before it was seen.
                let sees_newest = matches!(isolation, Isolation::Serializable | Isolation::ReadCommitted);
                let endures = if is_before && sees_newest { value.is_some() } else { endures };
                // It reads a snapshot by versions, and all of them are to be the newest ones.
                let endures = endures && isolation != Isolation::SerializableOnSnapshot;
                assert_eq!(is_done, endures, "{isolation:?}, before: {is_before}, {value:?}, {columns:?}");
            }
        }
    }
    Ok(())
}
