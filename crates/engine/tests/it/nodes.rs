//! Tables on parts of a pool, one on each of several virtual nodes: pages are where the table is placed, written by
//! threads of their nodes, and move while transactions go on.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lodestone_engine::{Database, DatabaseOptions, Error, FarPages, Index, NodeStats, Result, Schema, row};
use lodestone_numa::{AgentOptions, Observer, Request};
use lodestone_pmem::{DomainChoice, PoolOptions, thread_counters};

const NODES: usize = 2;

fn options(folder: &Path, nodes: usize) -> DatabaseOptions {
    let pool = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 8 << 20,
        journal_bytes: 0,
        parts: (1..nodes).map(|part| folder.join(format!("a.pool.{part}"))).collect(),
        virtual_nodes: nodes,
        ..PoolOptions::default()
    };
    DatabaseOptions {
        pool,
        log_bytes: 1 << 20,
        segment_bytes: 32 << 10,
        page_bytes: 1024,
        extent_pages: 8,
        leaf_rows_max: 16,
        checkpoint_thread: false,
        ..DatabaseOptions::default()
    }
}

fn open(folder: &Path, options: &DatabaseOptions) -> Result<Database> {
    Database::open_with(folder.join("a.pool"), options)
}

/// A table of this name in a part, with an index and long values.
fn schema(name: &str, part: u16) -> Schema {
    let text = format!("{name} (k u64, v i64, b bytes) key (k) index by_v (v)");
    text.parse::<Schema>().expect("a schema").in_part(part)
}

fn fill(db: &Database, table: &str, rows: u64, value: i64) -> Result<()> {
    let table = db.table(table)?;
    db.update(|tx| {
        let bytes = |k: u64| vec![7_u8; if k == 3 { 5000 } else { 20 }];
        (0..rows).try_for_each(|k| table.put(tx, &row![k, value, bytes(k)]))
    })
}

fn sum(db: &Database, table: &str) -> Result<(usize, i64)> {
    let table = db.table(table)?;
    db.update(|tx| {
        let by_index = table.index("by_v")?.range(tx, ..)?.count();
        let sum = table.range(tx, ..)?.map(|row| row.map(|row| row[1].as_i64().unwrap_or(0))).sum::<Result<i64>>()?;
        Ok((by_index, sum))
    })
}

/// The sums over the nodes are the figures of the database.
fn assert_sums(db: &Database) {
    let (nodes, all) = (db.node_stats(), db.stats());
    let total = |figure: fn(&NodeStats) -> u64| nodes.iter().map(figure).sum::<u64>();
    assert_eq!(total(|node| node.pages.written_bytes), all.pages.written_bytes);
    assert_eq!(total(|node| node.pages.pages_free), all.pages.pages_free);
    assert_eq!((total(|node| node.pages.pages), nodes.len()), (all.pages.pages, NODES));
    assert_eq!(total(|node| node.log.segments), all.log.segments);
    assert_eq!(total(|node| node.log.segments_free), all.log.segments_free);
}

/// Bytes that were written to the pages of each node.
fn written(db: &Database) -> Vec<u64> {
    db.node_stats().iter().map(|node| node.pages.written_bytes).collect()
}

#[test]
fn each_node_has_figures_of_its_own() -> Result<()> {
    for domain in [DomainChoice::Process, DomainChoice::Block] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = options(folder.path(), NODES);
        (options.pool.domain, options.pool.journal_bytes) = (domain, 1 << 20);
        // So many rows in a page that one of them is a small part.
        (options.page_bytes, options.leaf_rows_max) = (4096, 64);
        let db = open(folder.path(), &options)?;
        for part in [0, 1] {
            db.create_table(&schema(&format!("t{part}"), part))?;
            fill(&db, &format!("t{part}"), 100, 1)?;
        }
        db.checkpoint()?;
        let table = db.table("t1")?;
        let put = |byte: u8| db.update(|tx| table.put(tx, &row![7_u64, 1_i64, vec![byte; 20]]));
        // From the next checkpoint on it is known that few lines change.
        put(6)?;
        db.checkpoint()?;
        for (number, node) in (0_u16..).zip(db.node_stats()) {
            assert_eq!((node.node, &node.parts[..]), (Some(number.into()), &[number][..]));
            // A round by a writer on each node.
            assert!(node.pages.pages - node.pages.pages_free > 3 && node.pages.written_bytes > 3 * 4096, "{node}");
        }
        assert_sums(&db);
        // One row of the second node: lines of its page. In the block domain pages of this size are written whole.
        let before = written(&db);
        put(8)?;
        assert_eq!(db.checkpoint()?.lines > 0, domain == DomainChoice::Process);
        let row = written(&db);
        assert!(row[0] == before[0] && row[1] > before[1], "{before:?} {row:?}");
        // New pages. Those before them are free at once, or wait until the journal of the block domain has left them.
        for value in 2..5 {
            fill(&db, "t1", 100, value)?;
            db.checkpoint()?;
            assert_sums(&db);
        }
        let after = written(&db);
        assert!(after[0] == before[0] && after[1] > row[1] + 3 * 4096, "{row:?} {after:?}");
    }
    Ok(())
}

#[test]
fn pages_are_in_the_part_of_their_table() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), NODES);
    let db = open(folder.path(), &options)?;
    for part in [0, 1] {
        db.create_table(&schema(&format!("t{part}"), part))?;
        fill(&db, &format!("t{part}"), 100, 1)?;
    }
    let report = db.checkpoint()?;
    assert_eq!(report.writers, 2, "one on each node");
    let pages = |db: &Database, table| db.placement(table).map(|placement| placement.pages);
    for (table, own, other) in [("t0", 0, 1), ("t1", 1, 0)] {
        let found = pages(&db, table)?;
        assert!(found[own] > 20 && found[other] == 0, "{table}: {found:?}");
    }
    assert_eq!(db.placement("t1")?.node, Some(1));
    assert_eq!(db.part_on(1)?, 1);
    assert!(matches!(db.part_on(7), Err(Error::NoPartOnNode { node: 7, .. })));
    // The next life places new pages there as well, also those of an index that is made then.
    drop(db);
    let db = open(folder.path(), &options)?;
    db.drop_index("t1", "by_v")?;
    db.create_index("t1", &Index::new("by_v", ["v"]))?;
    fill(&db, "t1", 300, 2)?;
    db.checkpoint()?;
    let found = pages(&db, "t1")?;
    assert!(found[1] > 60 && found[0] == 0, "{found:?}");
    assert_eq!((sum(&db, "t0")?, sum(&db, "t1")?), ((100, 100), (300, 600)));
    Ok(())
}

#[test]
fn a_part_that_is_not_there_is_refused_and_a_full_one_is_left() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), NODES);
    let db = open(folder.path(), &options)?;
    let refused = db.create_table(&schema("t", 2)).expect_err("two parts");
    assert!(refused.to_string().contains("the pool has no part 2"), "{refused}");
    db.create_table(&schema("t", 1))?;
    assert!(matches!(db.move_table("t", Some(9)), Err(Error::BadSchema { .. })));
    let heap = db.store().heap();
    let mut blocks = heap.action();
    while blocks.alloc_in(1, 4096).is_ok() {}
    blocks.commit()?;
    fill(&db, "t", 200, 1)?;
    db.checkpoint()?;
    let pages = db.placement("t")?.pages;
    assert!(pages[0] > 20, "{pages:?}");
    assert_eq!(sum(&db, "t")?, (200, 200));
    Ok(())
}

#[test]
fn a_table_that_is_loaded_is_on_its_part() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path(), &options(folder.path(), NODES))?;
    db.load_table(&schema("t", 1), (0..500_u64).map(|k| Ok(row![k, 1_i64, vec![1_u8; 30]])))?;
    let pages = db.placement("t")?.pages;
    assert!(pages[1] > 30 && pages[0] == 0, "{pages:?}");
    Ok(())
}

/// The budget of a checkpoint: two fences, and one more for each further node, by its own thread.
#[test]
fn each_further_node_fences_once() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path(), &options(folder.path(), NODES))?;
    let fences = || -> Result<u64> {
        let before = thread_counters().fences;
        db.checkpoint()?;
        Ok(thread_counters().fences - before)
    };
    for part in [0, 1] {
        db.create_table(&schema(&format!("t{part}"), part))?;
        fill(&db, &format!("t{part}"), 100, 1)?;
    }
    // Extents are taken.
    (0..4).try_for_each(|value| {
        fill(&db, "t0", 100, value).and_then(|()| fill(&db, "t1", 100, value)).and_then(|()| fences().map(drop))
    })?;
    for tables in [&["t0"][..], &["t1"], &["t0", "t1"]] {
        tables.iter().try_for_each(|table| fill(&db, table, 100, 9))?;
        assert_eq!(fences()?, 2, "{tables:?}: of the thread of the checkpoint");
    }
    Ok(())
}

#[test]
fn a_table_moves_while_others_change_it() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    for cache_bytes in [None, Some(96 << 10)] {
        let options = DatabaseOptions { cache_bytes, ..options(folder.path(), NODES) };
        let db = open(folder.path(), &options)?;
        if cache_bytes.is_none() {
            db.create_table(&schema("t", 0))?;
            fill(&db, "t", 400, 0)?;
            db.checkpoint()?;
        }
        let (from, to) = if cache_bytes.is_none() { (0, 1) } else { (1, 0) };
        assert!(db.placement("t")?.pages[to] == 0);
        let (_, before) = sum(&db, "t")?;
        let (table, ends) = (db.table("t")?, AtomicBool::new(false));
        let added = thread::scope(|scope| -> Result<i64> {
            let adds = scope.spawn(|| -> Result<i64> {
                let mut added = 0;
                while !ends.load(Ordering::Relaxed) {
                    let key = u64::try_from(added % 400).unwrap_or(0);
                    db.update(|tx| table.add(tx, &row![key], "v", 1))?;
                    added += 1;
                }
                Ok(added)
            });
            let moved = db.move_table("t", Some(u16::try_from(to).expect("small")));
            ends.store(true, Ordering::Relaxed);
            let added = adds.join().expect("no panic")?;
            assert!(moved?.leaves > 30);
            Ok(added)
        })?;
        let pages = db.placement("t")?.pages;
        assert!(pages[from] == 0 && pages[to] > 30, "{pages:?}");
        let (entries, found) = sum(&db, "t")?;
        assert_eq!((entries, found), (400, before + added));
        // Nothing is left to move, and no page is lost.
        assert_eq!(db.move_table("t", Some(u16::try_from(to).expect("small")))?.leaves, 0);
        (0..3).try_for_each(|_| db.checkpoint().map(drop))?;
        let stats = db.page_stats();
        assert_eq!(stats.pages - stats.pages_free, db.pages_in_use()?);
        drop((table, db));
        let db = open(folder.path(), &options)?;
        assert_eq!(sum(&db, "t")?, (400, found));
    }
    Ok(())
}

/// A table on each node, of 400 rows; reopened with far pages read by so many agents a node, which call `observer`.
fn with_agents(folder: &Path, per_node: usize, observer: Arc<Observer>) -> Result<Database> {
    let made = options(folder, NODES);
    let db = open(folder, &made)?;
    for part in [0, 1] {
        let rows = (0..400_u64).map(|k| Ok(row![k, 1_i64, vec![1_u8; 30]]));
        db.load_table(&schema(&format!("t{part}"), part), rows)?;
    }
    drop(db);
    let mut agents = AgentOptions::default();
    agents.observer = Some(observer);
    let far_pages = FarPages::Agents { options: agents, per_node };
    open(folder, &DatabaseOptions { cache_bytes: Some(64 << 10), far_pages, ..made })
}

/// Reads some rows of a table from the key `first` on, by a thread of this node.
fn read_on(db: &Database, node: usize, table: &str, first: u64) -> Result<()> {
    db.pool().topology().pin_thread(node)?;
    let table = db.table(table)?;
    for key in (first..400).step_by(7) {
        assert_eq!(db.update(|tx| table.get(tx, &row![key]))?.map(|row| row[1].clone()), Some(1_i64.into()));
    }
    Ok(())
}

#[test]
fn agents_read_the_pages_of_other_nodes() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let requests: Arc<[AtomicUsize; NODES]> = Arc::default();
    let counts = requests.clone();
    let observer = move |request: &Request| {
        counts[request.node].fetch_add(1, Ordering::Relaxed);
    };
    let db = with_agents(folder.path(), 1, Arc::new(observer))?;
    for node in 0..NODES {
        let before: Vec<_> = requests.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let read = || ["t0", "t1"].into_iter().try_for_each(|table| read_on(&db, node, table, 0));
        thread::scope(|scope| scope.spawn(read).join().expect("no panic"))?;
        for (agent, count) in requests.iter().enumerate() {
            let asked = count.load(Ordering::Relaxed) - before[agent];
            assert_eq!(asked > 20, agent != node, "node {node} asked the agent of node {agent} {asked} times");
        }
    }
    Ok(())
}

/// The first read of each waits in its agent for that of the other one: a single agent would be in the way.
#[test]
fn two_threads_have_two_agents_of_a_node() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let met: Arc<(Mutex<usize>, Condvar)> = Arc::default();
    let meeting = met.clone();
    let observer = move |_: &Request| {
        let (inside, changed) = &*meeting;
        let mut inside = inside.lock().expect("no panic");
        *inside += 1;
        changed.notify_all();
        drop(changed.wait_timeout_while(inside, Duration::from_secs(20), |inside| *inside < 2).expect("no panic"));
    };
    let db = with_agents(folder.path(), 2, Arc::new(observer))?;
    let began = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let threads = [0, 200].map(|first| {
            scope.spawn({
                let db = &db;
                move || read_on(db, 0, "t1", first)
            })
        });
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert!(*met.0.lock().expect("no panic") > 2);
    assert!(began.elapsed() < Duration::from_secs(20), "they did not meet");
    Ok(())
}

/// Where the pages of a range of keys go: those that were there, new ones, loaded ones, and those of the next life.
#[test]
fn a_range_of_keys_is_on_its_part() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), NODES);
    let db = open(folder.path(), &options)?;
    db.create_table(&schema("t", 0))?;
    fill(&db, "t", 400, 1)?;
    db.checkpoint()?;
    let before = db.placement("t")?.pages;
    assert_eq!(before[1], 0, "{before:?}");
    let moved = db.move_range("t", row![200_u64]..row![300_u64], Some(1))?;
    assert!(moved.leaves >= 5, "{moved:?}");
    let placement = db.placement("t")?;
    let ranges: Vec<_> = placement.ranges.iter().map(|range| (range.from.as_str(), range.part, range.node)).collect();
    assert_eq!(ranges, [("(200)", Some(1), Some(1)), ("(300)", Some(0), Some(0))]);
    assert_eq!((placement.pages[1], placement.pages_elsewhere), (moved.leaves, 0), "{placement:?}");
    // New leaves of both, in this life and in the next one. Both nodes write.
    fill(&db, "t", 400, 2)?;
    assert_eq!(db.checkpoint()?.writers, 2);
    assert_eq!(db.placement("t")?.pages_elsewhere, 0);
    drop(db);
    let db = open(folder.path(), &options)?;
    fill(&db, "t", 600, 3)?;
    db.checkpoint()?;
    let placement = db.placement("t")?;
    assert_eq!((placement.ranges.len(), placement.pages_elsewhere), (2, 0));
    assert!(placement.pages[1] < moved.leaves + 5, "{placement:?}");
    assert_eq!(sum(&db, "t")?, (600, 1800));
    // The rows of a load go where those of the table went, and the index is beside the table.
    let mut load = db.begin_load(db.table("t")?.schema())?;
    (0..400_u64).try_for_each(|k| load.push(&row![k, 4_i64, vec![1_u8; 20]]))?;
    let tx = db.begin();
    db.put_loaded(&tx, load.finish()?)?;
    tx.commit()?;
    let placement = db.placement("t")?;
    assert!(placement.pages[1] > 4 && placement.pages_elsewhere == 0, "{placement:?}");
    // One range in place of two, an open end, and none.
    db.move_range("t", row![250_u64].., Some(1))?;
    let placement = db.placement("t")?;
    assert_eq!((placement.ranges.len(), placement.pages_elsewhere), (1, 0), "{placement:?}");
    db.move_table("t", Some(1))?;
    let placement = db.placement("t")?;
    assert_eq!((placement.ranges.len(), placement.pages[0]), (0, 0), "{placement:?}");
    assert_eq!(sum(&db, "t")?, (400, 1600));
    Ok(())
}

#[test]
fn ranges_that_are_none_are_refused() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(folder.path(), &options(folder.path(), NODES))?;
    db.create_table(&"t (a text, n u64) key (a, n)".parse::<Schema>()?.in_part(0))?;
    let refused = |outcome: Result<_>, finding: &str| {
        let error: Error = outcome.map(|_| ()).expect_err(finding);
        assert!(error.to_string().contains(finding), "{error}");
    };
    refused(db.move_range("t", row!["b"]..row!["a"], Some(1)), "no keys");
    refused(db.move_range("t", row!["b"]..row!["c"], Some(7)), "no part 7");
    refused(db.move_range("t", row![1_u64].., Some(1)), "cannot hold");
    refused(db.move_range("u", .., Some(1)), "no table");
    for name in 0..128_u64 {
        db.move_range("t", row!["k", 2 * name]..row!["k", 2 * name + 1], Some(1))?;
    }
    refused(db.move_range("t", row!["k", 999_u64]..row!["l"], Some(1)), "the limit is 256");
    assert_eq!(db.placement("t")?.ranges.len(), 256);
    // By the first column of the key: all of the ranges are inside, and it ends where that column does.
    db.move_range("t", row!["k"]..=row!["k"], Some(1))?;
    let ranges = db.placement("t")?.ranges;
    assert_eq!((ranges.len(), ranges[0].from.as_str(), ranges[1].part), (2, "(\"k\")", Some(0)));
    Ok(())
}

/// Leaves over the border of two ranges are split while two nodes write the leaves beside it. No row is lost.
#[test]
fn rows_are_added_at_the_border_of_ranges_during_checkpoints() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(folder.path(), NODES);
    let db = open(folder.path(), &options)?;
    let table = db.create_table(&"t (k u64, v i64) key (k)".parse::<Schema>()?.in_part(0))?;
    db.move_range("t", row![1_000_u64].., Some(1))?;
    let ends = AtomicBool::new(false);
    let added = thread::scope(|scope| -> Result<u64> {
        let adds = scope.spawn(|| -> Result<u64> {
            let mut added = 0;
            while !ends.load(Ordering::Relaxed) && added < 2_000 {
                // From both sides to the border.
                let key = if added % 2 == 0 { added / 2 } else { 2_000 - added / 2 };
                db.update(|tx| table.put(tx, &row![key, 1_i64]))?;
                added += 1;
            }
            Ok(added)
        });
        let rounds = (0..40).try_for_each(|_| db.checkpoint().map(drop));
        ends.store(true, Ordering::Relaxed);
        let added = adds.join().expect("no panic")?;
        rounds.map(|()| added)
    })?;
    (0..2).try_for_each(|_| db.checkpoint().map(drop))?;
    drop(table);
    db.abandon();
    let db = open(folder.path(), &options)?;
    let table = db.table("t")?;
    let found = db.update(|tx| Ok(table.range(tx, ..)?.count()))?;
    assert_eq!(u64::try_from(found).expect("few"), added);
    Ok(())
}
