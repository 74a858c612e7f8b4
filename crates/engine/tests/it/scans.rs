//! Long scans of a table on two nodes, whose leaves are read by a thread on each: the rows, reads and errors are those
//! of a scan without such threads, and few reads are far.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use lodestone_engine::{Database, DatabaseOptions, Error, FarPages, FarReads, Reader, Result, Row, Schema, Table, row};
use lodestone_pmem::{DomainChoice, PmAddr, PoolOptions, Topology};

const ROWS: u64 = 2_000;
/// The rows from here on are on the second node.
const BORDER: u64 = 1_000;

fn options(folder: &Path) -> DatabaseOptions {
    let pool = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 8 << 20,
        journal_bytes: 0,
        parts: vec![folder.join("a.pool.1")],
        virtual_nodes: 2,
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

fn open(folder: &Path, options: &DatabaseOptions) -> Result<(Database, Table)> {
    let db = Database::open_with(folder.join("a.pool"), options)?;
    let table = db.table("t")?;
    Ok((db, table))
}

fn value(key: u64) -> i64 {
    i64::try_from(key * 7 + 1_000_000).expect("small")
}

/// Makes a table with a half on each node. All of it is in pages.
fn make(folder: &Path) -> Result<()> {
    let db = Database::open_with(folder.join("a.pool"), &options(folder))?;
    let schema: Schema = "t (k u64, v i64) key (k)".parse()?;
    db.load_table(&schema.in_part(0), (0..ROWS).map(|key| Ok(row![key, value(key)])))?;
    db.move_range("t", row![BORDER].., Some(1))?;
    assert_eq!(db.placement("t")?.pages_elsewhere, 0);
    Ok(())
}

fn forward(table: &Table, reader: &impl Reader) -> Result<Vec<Row>> {
    table.range(reader, ..)?.collect()
}

/// A scan from the end has no readers.
fn backward(table: &Table, reader: &impl Reader) -> Result<Vec<Row>> {
    let mut rows = table.range(reader, ..)?.rev().collect::<Result<Vec<_>>>()?;
    rows.reverse();
    Ok(rows)
}

/// Counts reads of pages: those by threads of the page's node, and others.
#[derive(Debug, Default)]
struct Counted {
    topology: std::sync::OnceLock<Topology>,
    near: AtomicU64,
    far: AtomicU64,
    /// Heads of pages of the second node. Each page is read by its head, then by the rest.
    heads: AtomicU64,
}

/// Bytes of the head of a page.
const HEAD_BYTES: usize = 64;

impl FarReads for Counted {
    fn read(&self, at: PmAddr, bytes: &mut [u8]) -> bool {
        let is_head = at.part() == 1 && bytes.len() == HEAD_BYTES;
        self.heads.fetch_add(u64::from(is_head), Ordering::SeqCst);
        if let Some(topology) = self.topology.get() {
            let is_near = topology.node_of_thread() == usize::from(at.part());
            if is_near { &self.near } else { &self.far }.fetch_add(1, Ordering::Relaxed);
        }
        false
    }
}

/// The near and the far reads of a scan on the first node, and the leaves that came from readers.
fn counts(
    folder: &Path,
    scan_readers: bool,
    scan: impl Fn(&Database, &Table) -> Result<()> + Sync,
) -> Result<[u64; 3]> {
    let counted = Arc::new(Counted::default());
    let options = DatabaseOptions { scan_readers, far_pages: FarPages::By(counted.clone()), ..options(folder) };
    let (db, table) = open(folder, &options)?;
    counted.topology.set(db.pool().topology().clone()).expect("set once");
    let on_first_node = || db.pool().topology().as_if_on(0, || scan(&db, &table));
    thread::scope(|scope| scope.spawn(on_first_node).join().expect("no panic"))?;
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Ok([read(&counted.near), read(&counted.far), db.stats().scan_leaves_ahead])
}

#[test]
fn each_node_reads_its_part_of_a_long_scan() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path())?;
    let through_tx = |db: &Database, table: &Table| {
        db.update(|tx| forward(table, tx)).map(|rows| assert_eq!(rows.len() as u64, ROWS))
    };
    let through_snapshot =
        |db: &Database, table: &Table| forward(table, &db.snapshot()?).map(|rows| assert_eq!(rows.len() as u64, ROWS));
    let [near, far, ahead] = counts(folder.path(), false, through_tx)?;
    assert!(near > 50 && far > 50 && ahead == 0, "{near} near, {far} far");
    for [all_near, all_far, ahead] in
        [counts(folder.path(), true, through_tx)?, counts(folder.path(), true, through_snapshot)?]
    {
        // No image is read twice. One may be far: that of the leaf over the border, in two reads.
        assert_eq!(all_near + all_far, near + far);
        assert!(all_far <= 2, "{all_far} far");
        assert!(ahead > 100, "{ahead} leaves ahead");
    }
    Ok(())
}

#[test]
fn a_short_scan_has_no_readers() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path())?;
    let short = |db: &Database, table: &Table| {
        db.update(|tx| table.range(tx, row![BORDER - 20]..)?.take(100).collect::<Result<Vec<_>>>()).map(drop)
    };
    let [_, far, ahead] = counts(folder.path(), true, short)?;
    assert!(far > 0 && ahead == 0, "{far} far, {ahead} ahead");
    // One that stays on its node has none either, however long it is.
    let half = |db: &Database, table: &Table| db.update(|tx| Ok(table.range(tx, ..row![BORDER])?.count())).map(drop);
    let [near, far, ahead] = counts(folder.path(), true, half)?;
    assert!(near > 50 && far == 0 && ahead == 0, "{near} near, {far} far, {ahead} ahead");
    Ok(())
}

/// A reader has looked at leaves that others then change. The scan sees the changes, and a change of the part that it
/// has passed is a conflict.
#[test]
fn a_leaf_that_changes_after_its_reader_is_looked_at_again() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path())?;
    let deleted = || 1_500..1_540_u64;
    let left = ROWS - deleted().count() as u64;
    for is_conflict in [false, true] {
        let counted = Arc::new(Counted::default());
        let options = DatabaseOptions { far_pages: FarPages::By(counted.clone()), ..options(folder.path()) };
        let (db, table) = open(folder.path(), &options)?;
        let (tx, pages) = (db.begin(), db.placement("t")?.pages[1]);
        db.pool().topology().as_if_on(0, || -> Result<()> {
            let mut rows = table.range(&tx, ..)?;
            let first = rows.by_ref().take(400).collect::<Result<Vec<_>>>()?;
            // Until the reader of the second node has read all of it.
            while counted.heads.load(Ordering::SeqCst) < pages {
                thread::yield_now();
            }
            db.update(|tx| {
                // Whole leaves of them: their slots go.
                deleted().try_for_each(|key| table.delete(tx, &row![key]).map(drop))?;
                table.put(tx, &row![ROWS, 5_i64])?;
                table.put(tx, &row![1_700_u64, 6_i64])?;
                if is_conflict { table.put(tx, &row![7_u64, 7_i64]) } else { Ok(()) }
            })?;
            let rest = rows.collect::<Result<Vec<_>>>();
            if is_conflict {
                assert!(matches!(rest, Err(Error::Conflict)), "{rest:?}");
                return Ok(());
            }
            let all: Vec<_> = first.into_iter().chain(rest?).collect();
            assert_eq!(all.len() as u64, left + 1, "one is added");
            assert!(all.contains(&row![ROWS, 5_i64]) && all.contains(&row![1_700_u64, 6_i64]));
            assert!(all.iter().all(|row| deleted().all(|key| row[0] != key.into())));
            assert!(db.stats().scan_leaves_ahead > 50, "{}", db.stats());
            Ok(())
        })?;
        if !is_conflict {
            // Its own changes depend on what it has read, and nothing of that has changed.
            table.put(&tx, &row![ROWS + 1, 1_i64])?;
            tx.commit()?;
            // A phantom in a leaf that came from a reader is a conflict.
            let tx = db.begin();
            let count = db.pool().topology().as_if_on(0, || table.range(&tx, ..).map(Iterator::count))?;
            assert_eq!(count as u64, left + 2);
            table.put(&tx, &row![ROWS + 2, i64::try_from(count).expect("small")])?;
            db.update(|tx| table.put(tx, &row![1_500_u64, value(1_500)]))?;
            assert!(matches!(tx.commit(), Err(Error::Conflict)));
        }
    }
    Ok(())
}

/// Against scans from the end, which have no readers, beside transactions that move amounts between the nodes, add rows
/// and delete them. With a cache for a tenth of the rows, so leaves become cold again.
#[test]
fn scans_beside_writers_are_those_without_readers() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path())?;
    let options = DatabaseOptions { cache_bytes: Some(96 << 10), ..options(folder.path()) };
    let (db, table) = open(folder.path(), &options)?;
    let sum = |rows: &[Row]| rows.iter().map(|row| row[1].as_i64().unwrap_or(0)).sum::<i64>();
    let wanted: i64 = (0..ROWS).map(value).sum();
    let ends = AtomicBool::new(false);
    let moves = |worker: u64| -> Result<()> {
        let mut step = worker;
        while !ends.load(Ordering::Relaxed) {
            step += 2;
            let (from, to) = (step * 31 % BORDER, BORDER + step * 17 % BORDER);
            db.update(|tx| {
                table.add(tx, &row![from], "v", -1)?;
                table.add(tx, &row![to], "v", 1)?;
                // A row of nothing comes and goes.
                let key = row![ROWS + worker, 0_i64];
                if step % 4 < 2 { table.put(tx, &key) } else { table.delete(tx, &row![ROWS + worker]).map(drop) }
            })?;
            if step % 64 < 2 {
                db.checkpoint()?;
            }
        }
        Ok(())
    };
    let scans = || -> Result<()> {
        for turn in 0..5_u64 {
            let snapshot = db.snapshot()?;
            let rows = forward(&table, &snapshot)?;
            assert_eq!(sum(&rows), wanted, "turn {turn}");
            assert_eq!(rows, backward(&table, &snapshot)?, "turn {turn}");
            drop(snapshot);
            let tx = db.begin();
            // Own changes on both nodes are among the rows.
            let own = || -> Result<()> {
                table.put(&tx, &row![ROWS + 7, 3_i64])?;
                table.delete(&tx, &row![turn * 150])?;
                let rows = forward(&table, &tx)?;
                assert_eq!(rows, backward(&table, &tx)?, "turn {turn}");
                assert!(rows.contains(&row![ROWS + 7, 3_i64]) && rows.iter().all(|row| row[0] != (turn * 150).into()));
                Ok(())
            };
            match own() {
                Ok(()) | Err(Error::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..2).map(|worker| scope.spawn(move || moves(worker))).collect();
        let outcome = db.pool().topology().as_if_on(0, scans);
        ends.store(true, Ordering::Relaxed);
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))?;
        outcome
    })?;
    assert!(db.stats().scan_leaves_ahead > 100, "{}", db.stats());
    Ok(())
}

/// Damage on one node: the scan returns the rows before it, the error, and nothing more.
#[test]
fn damage_on_one_node_ends_the_scan_where_it_is() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    make(folder.path())?;
    let part = folder.path().join("a.pool.1");
    let mut bytes = fs::read(&part).expect("the part");
    let wanted = value(1_600).to_le_bytes();
    let places: Vec<_> = (0..bytes.len() - 8).filter(|at| bytes[*at..].starts_with(&wanted)).collect();
    assert_eq!(places.len(), 1, "row 1600 is in a page of the part");
    bytes[places[0]] ^= 1;
    fs::write(&part, bytes).expect("the part");
    let scan = |scan_readers: bool| -> Result<(usize, String, u64)> {
        let (db, table) = open(folder.path(), &DatabaseOptions { scan_readers, ..options(folder.path()) })?;
        let snapshot = db.snapshot()?;
        let all = || table.range(&snapshot, ..).map(Iterator::collect::<Vec<_>>);
        let mut rows = db.pool().topology().as_if_on(0, all)?;
        let Some(Err(error)) = rows.pop() else { panic!("not damaged") };
        let good = rows.into_iter().collect::<Result<Vec<_>>>()?.len();
        Ok((good, error.to_string(), db.stats().scan_leaves_ahead))
    };
    let (good, error, ahead) = scan(true)?;
    assert!(error.contains("damaged page at 1:"), "{error}");
    assert!(good > 1_500 && good <= 1_600 && ahead > 50, "{good} rows, {ahead} leaves ahead");
    assert_eq!(scan(false)?, (good, error, 0));
    Ok(())
}
