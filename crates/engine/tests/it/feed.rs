//! The change feed: its batches in a row are one serial order, whatever threads, checkpoints and crashes there were.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Open, options};
use lodestone_engine::{
    Database, DatabaseOptions, Error, Feed, FeedBatch, FeedPosition, FeedStart, FeedTransaction, Index, Result, row,
};
use lodestone_pmem::DomainChoice;

const ROWS: u64 = 12;
const THREADS: u64 = 4;

/// Rows as the feed tells them. A value counts the transactions that changed the row.
#[derive(Default)]
struct Follower {
    rows: BTreeMap<u64, i64>,
    transactions: usize,
}

impl Follower {
    /// Each transaction adds one to the rows that it changes, so it follows the one that it was built on.
    fn follow(&mut self, transaction: &FeedTransaction) {
        for change in &transaction.changes {
            let key = change.key[0].as_u64().expect("a key");
            let found = change.row.as_ref().map(|row| row[1].as_i64().expect("a value"));
            let before = self.rows.get(&key).copied().unwrap_or(0);
            assert_eq!(found, Some(before + 1), "row {key} in {transaction:?}");
            self.rows.extend(found.map(|value| (key, value)));
        }
        self.transactions += 1;
    }

    fn batch(&mut self, batch: &FeedBatch) {
        batch.transactions.iter().for_each(|transaction| self.follow(transaction));
    }
}

/// Adds one to two rows.
fn change(open: &Open, keys: [u64; 2]) -> Result<()> {
    open.db.update(|tx| {
        for key in keys {
            let value = open.get(tx, key)?.unwrap_or(0);
            open.put(tx, key, value + 1)?;
        }
        Ok(())
    })
}

fn batches_are_a_serial_order(domain: DomainChoice) -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    // Room for all of it: a busy machine may run the feed last.
    let options = DatabaseOptions { log_bytes: 4 << 20, segment_bytes: 16 << 10, ..options(domain) };
    let open = Open::at(&folder.path().join("a.pool"), &options)?;
    let mut feed = open.db.feed(&FeedStart::Now)?;
    let is_over = AtomicBool::new(false);
    let mut follower = Follower::default();
    let steps: u64 = if domain == DomainChoice::Block { 60 } else { 600 };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let open = &open;
                scope.spawn(move || {
                    for step in 0..steps {
                        let keys = [(step * 5 + thread) % ROWS, (step * 5 + thread + 1 + step % 7) % ROWS];
                        change(open, keys).expect("no error");
                        if step % 200 == 199 {
                            open.db.checkpoint().expect("no error");
                        }
                    }
                })
            })
            .collect();
        let is_over = &is_over;
        scope.spawn(move || {
            writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            is_over.store(true, Ordering::SeqCst);
        });
        while !is_over.load(Ordering::SeqCst) {
            follower.batch(&feed.next_batch().expect("no error"));
            thread::yield_now();
        }
        follower.batch(&feed.next_batch().expect("no error"));
    });
    assert_eq!(follower.transactions as u64, THREADS * steps, "every transaction once");
    assert_eq!(follower.rows.into_iter().collect::<Vec<_>>(), open.all()?);
    assert!(feed.next_batch()?.transactions.is_empty());
    Ok(())
}

#[test]
fn batches_in_a_row_are_one_serial_order() -> Result<()> {
    batches_are_a_serial_order(DomainChoice::DaxEmulated)?;
    batches_are_a_serial_order(DomainChoice::Process)?;
    batches_are_a_serial_order(DomainChoice::Block)
}

/// Transactions that a new feed finds.
fn count(db: &Database, start: &FeedStart) -> Result<usize> {
    Ok(db.feed(start)?.next_batch()?.transactions.len())
}

#[test]
fn a_position_outlives_the_process_and_a_kill() -> Result<()> {
    for is_killed in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, options) = (folder.path().join("a.pool"), options(DomainChoice::Process));
        let open = Open::at(&path, &options)?;
        let first = open.db.feed(&FeedStart::Now)?.position();
        open.set(&[(1, 1)])?;
        let mut feed = open.db.feed(&FeedStart::After(first.clone()))?;
        assert_eq!(feed.next_batch()?.transactions.len(), 1);
        let second: FeedPosition = feed.position().to_string().parse().expect("its own text");
        open.set(&[(2, 1)])?;
        drop(feed);
        let Open { db, table } = open;
        drop(table);
        if is_killed {
            db.abandon()
        } else {
            drop(db)
        }
        let open = Open::at(&path, &options)?;
        open.set(&[(3, 1)])?;
        assert_eq!(count(&open.db, &FeedStart::After(first))?, 3, "killed: {is_killed}");
        assert_eq!(count(&open.db, &FeedStart::After(second))?, 2, "killed: {is_killed}");
        assert_eq!(count(&open.db, &FeedStart::Now)?, 0);
        // One more: that which made the table.
        assert_eq!(count(&open.db, &FeedStart::Oldest)?, 4);
    }
    Ok(())
}

fn fill(open: &Open, turns: i64) -> Result<()> {
    (0..turns).try_for_each(|turn| open.set(&(0..100).map(|key| (key, turn)).collect::<Vec<_>>()))
}

fn lagging(path: &Path, feed_bytes: u64) -> Result<(Open, Feed)> {
    let options = DatabaseOptions {
        log_bytes: 1 << 20,
        segment_bytes: 16 << 10,
        feed_bytes: Some(feed_bytes),
        ..options(DomainChoice::Process)
    };
    let open = Open::at(path, &options)?;
    let feed = open.db.feed(&FeedStart::Now)?;
    Ok((open, feed))
}

#[test]
fn a_feed_holds_the_logs_up_to_a_limit() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (open, mut feed) = lagging(&folder.path().join("a.pool"), 512 << 10)?;
    let position = feed.position();
    fill(&open, 20)?;
    (0..4).try_for_each(|_| open.db.checkpoint().map(|_| ()))?;
    assert_eq!(feed.next_batch()?.transactions.len(), 20, "four checkpoints later");
    drop(feed);
    (0..4).try_for_each(|_| open.db.checkpoint().map(|_| ()))?;
    let outcome = open.db.feed(&FeedStart::After(position))?.next_batch();
    assert!(matches!(outcome, Err(Error::FeedLagged { .. })), "without a hold: {outcome:?}");

    let (open, mut slow) = lagging(&folder.path().join("b.pool"), 64 << 10)?;
    let mut fast = open.db.feed(&FeedStart::Now)?;
    let mut found = 0;
    for _ in 0..40 {
        fill(&open, 10)?;
        found += fast.next_batch()?.transactions.len();
    }
    (0..3).try_for_each(|_| open.db.checkpoint().map(|_| ()))?;
    assert_eq!(found, 400);
    let outcome = slow.next_batch();
    assert!(matches!(outcome, Err(Error::FeedLagged { .. })), "{outcome:?}");
    assert!(fast.next_batch()?.transactions.is_empty(), "the other one goes on");
    Ok(())
}

#[test]
fn a_feed_has_whole_rows_from_its_begin_on() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    let wide = open.db.create_table(&"w (k u64, v i64, pad text) key (k)".parse()?)?;
    let put = |value: i64| open.db.update(|tx| wide.put(tx, &row![1_u64, value, "x".repeat(300)]));
    (0..3).try_for_each(put)?;
    let outcome = open.db.feed(&FeedStart::Oldest)?.next_batch();
    assert!(matches!(outcome, Err(Error::FeedLagged { .. })), "parts of rows: {outcome:?}");
    let mut feed = open.db.feed(&FeedStart::Now)?;
    (3..6).try_for_each(put)?;
    let batch = feed.next_batch()?;
    let rows: Vec<_> = batch.transactions.iter().map(|found| found.changes[0].row.clone()).collect();
    assert_eq!(rows, (3..6_i64).map(|value| Some(row![1_u64, value, "x".repeat(300)])).collect::<Vec<_>>());
    drop(feed);
    (6..8).try_for_each(put)?;
    let outcome = open.db.feed(&FeedStart::After(batch.position))?.next_batch();
    assert!(matches!(outcome, Err(Error::FeedLagged { .. })), "without a feed: {outcome:?}");
    Ok(())
}

#[test]
fn long_values_are_whole_in_a_feed_a_snapshot_and_at_each_level() -> Result<()> {
    use lodestone_engine::Isolation::{ReadCommitted, Serializable, SerializableOnSnapshot, Snapshot};
    let folder = tempfile::tempdir().expect("a folder");
    let (path, options) = (folder.path().join("a.pool"), options(DomainChoice::Process));
    let db = Database::open_with(&path, &options)?;
    let text = "notes (id u64, town text, body text null) key (id) index by_town (town)";
    let notes = db.create_table(&text.parse()?)?;
    let body = |letter: &str, count: usize| letter.repeat(count);
    let mut feed = db.feed(&FeedStart::Now)?;
    db.update(|tx| notes.put(tx, &row![1_u64, "a", body("x", 20_000)]))?;
    let before = db.snapshot()?;
    for level in [Serializable, SerializableOnSnapshot, Snapshot, ReadCommitted] {
        db.update_with(level, |tx| {
            let found = notes.get(tx, &row![1_u64])?.expect("a row");
            let length = found[2].as_text().map_or(0, str::len);
            notes.update(tx, &row![1_u64, "b", body("y", length + 3000)])?;
            assert_eq!(notes.index("by_town")?.range(tx, row!["b"]..=row!["b"])?.count(), 1);
            Ok(())
        })?;
    }
    db.update_with(ReadCommitted, |tx| notes.put(tx, &row![1_u64, "c", "short"]))?;
    assert_eq!(notes.get(&before, &row![1_u64])?, Some(row![1_u64, "a", body("x", 20_000)]));
    let found = notes.index("by_town")?.get(&before, &row!["a"])?;
    assert_eq!(found, Some(row![1_u64, "a", body("x", 20_000)]));
    let batch = feed.next_batch()?;
    let rows: Vec<_> = batch.transactions.iter().map(|found| found.changes[0].row.clone().expect("put")).collect();
    let lengths: Vec<_> = rows.iter().map(|row| row[2].as_text().map_or(0, str::len)).collect();
    assert_eq!(lengths, [20_000, 23_000, 26_000, 29_000, 32_000, 5]);
    assert!(batch.transactions.iter().all(|found| found.changes.len() == 1), "no pieces and no entries");
    drop((feed, before));
    assert_eq!(db.pieces_left_over()?, Vec::<String>::new());
    db.update(|tx| notes.put(tx, &row![2_u64, "a", body("z", 50_000)]))?;
    (0..2).try_for_each(|_| db.checkpoint().map(|_| ()))?;
    db.drop_table("notes")?;
    (0..3).try_for_each(|_| db.checkpoint().map(|_| ()))?;
    let stats = db.page_stats();
    assert!(stats.pages - stats.pages_free <= 2, "the catalog is left: {stats:?}");
    Ok(())
}

#[test]
fn tables_come_and_go_in_a_feed() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), &options(DomainChoice::Process))?;
    let mut feed = open.db.feed(&FeedStart::Now)?;
    open.set(&[(1, 1)])?;
    let table = open.db.create_index("t", &Index::new("by_v", ["v"]))?;
    open.db.update(|tx| table.put(tx, &row![2_u64, 5_i64]))?;
    let other = open.db.create_table(&"other (k u64) key (k)".parse()?)?;
    open.db.update(|tx| other.put(tx, &row![7_u64]))?;
    let renamed = open.db.rename_table("t", "s")?;
    open.db.update(|tx| renamed.delete(tx, &row![1_u64]).map(|_| ()))?;
    open.db.drop_table("other")?;
    let batch = feed.next_batch()?;
    let changes: Vec<_> = batch.transactions.iter().flat_map(|found| &found.changes).collect();
    let found: Vec<_> = changes.iter().map(|change| (change.table.as_str(), change.key.clone())).collect();
    assert_eq!(found, [("s", row![1_u64]), ("s", row![2_u64]), ("s", row![1_u64])], "no entries, no dropped table");
    assert_eq!(changes[1].row, Some(row![2_u64, 5_i64]));
    assert_eq!(changes[2].row, None);
    Ok(())
}

#[test]
fn positions_are_of_one_database_and_whole() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(DomainChoice::Process);
    let open = |name: &str| Open::at(&folder.path().join(name), &options);
    let (first, second) = (open("a.pool")?, open("b.pool")?);
    first.set(&[(1, 1)])?;
    let position = first.db.feed(&FeedStart::Now)?.position();
    let outcome = second.db.feed(&FeedStart::After(position.clone()));
    assert!(matches!(outcome, Err(Error::OtherFeed { .. })), "{outcome:?}");
    let text = position.to_string();
    assert_eq!(text.parse(), Ok(position));
    for end in 0..text.len() {
        assert!(text[..end].parse::<FeedPosition>().is_err(), "cut at {end}");
    }
    for place in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[place] = if bytes[place] == b'0' { b'1' } else { b'0' };
        let changed = String::from_utf8(bytes).expect("digits");
        assert!(changed.parse::<FeedPosition>().is_err(), "digit {place}");
    }
    Ok(())
}
