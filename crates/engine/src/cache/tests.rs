//! The cache through its own counts: what stays, what goes, and what is counted.

use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_txn::{RowWord, Tick, Writer};

use super::holes::{ARENA_BYTES_MIN, HOLES_MAX_PART};
use super::*;
use crate::{Database, DatabaseOptions, Result, Schema, Type, row};

#[test]
fn rows_that_are_read_are_in_the_arena_and_its_holes_count() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let bound = ARENA_BYTES_MIN;
    let pool = PoolOptions { domain: DomainChoice::Process, size_bytes: 96 << 20, ..PoolOptions::default() };
    // No other thread makes rounds or reads leaves: each run has the same leaves, and the same looks.
    let (warm_up, checkpoint_thread) = (false, false);
    let options =
        DatabaseOptions { pool, cache_bytes: Some(bound), warm_up, checkpoint_thread, ..DatabaseOptions::default() };
    const ROWS: u64 = 12_000;
    {
        let db = Database::open_with(&path, &options)?;
        let schema = Schema::new("t").column("k", Type::U64).column("v", Type::Bytes).key(["k"]);
        let table = db.create_table(&schema)?;
        for first in (0..ROWS).step_by(100) {
            db.update(|tx| (first..first + 100).try_for_each(|key| table.put(tx, &row![key, vec![7_u8; 2000]])))?;
        }
    }
    let db = Database::open_with(&path, &options)?;
    // The rows of the log become clean.
    db.checkpoint()?;
    let table = db.table("t")?;
    let core = db.core();
    let (cache, arena) = (core.ground.cache.as_ref().expect("a bound"), core.ground.source.arena());
    let arena = arena.expect("an arena");
    let (mut looks, mut rows_sum) = (Vec::new(), 0);
    for turn in 0..40_000_u64 {
        // Some keys are asked for often, and others seldom.
        let key = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (ROWS >> (turn % 3));
        let row = db.update(|tx| table.get(tx, &row![key]))?;
        assert_eq!(row.map(|row| row[1].clone()), Some(vec![7_u8; 2000].into()));
        if turn >= 20_000 && turn % 500 == 0 {
            looks.push(cache.bytes());
            rows_sum += cache.row_bytes();
        }
    }
    let (taken, used, rows) = (arena.taken(), arena.used(), cache.row_bytes());
    assert!(used > rows * 8 / 10 && used < rows, "{used} bytes of {rows}: slots are beside the arena");
    // A part of the arena whose last row is dirty has holes as well.
    assert!(taken - used < bound / 8 + bound / 16, "{taken} bytes for {used}");
    assert_eq!(cache.bytes(), rows + (taken - used) + cache.leaf_bytes());
    // Holes take no room from the rows: rows that went for them would leave more. Only seldom a part is evacuated.
    let rows_max = cache.row_bytes_max();
    cache.holes.store(bound / 8, Ordering::Relaxed);
    assert_eq!(cache.row_bytes_max(), rows_max);
    let mean = rows_sum / to_u64(looks.len());
    assert!(mean > rows_max * 15 / 16, "{mean} bytes of rows of {rows_max}");
    // Holes may be more than the part that is left for them, until a tenth of the bound: all is within it still.
    let mean = looks.iter().sum::<u64>() / to_u64(looks.len());
    assert!(mean <= bound, "{mean} bytes of {bound}: {looks:?}");
    Ok(())
}

/// A database with a bound of so many bytes and a table of rows, in a folder that goes with it.
fn bounded(bound: u64) -> Result<(Database, crate::Table, tempfile::TempDir)> {
    bounded_with(DatabaseOptions { cache_bytes: Some(bound), row_reads: false, ..DatabaseOptions::default() })
}

fn bounded_with(options: DatabaseOptions) -> Result<(Database, crate::Table, tempfile::TempDir)> {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = PoolOptions { domain: DomainChoice::Process, size_bytes: 128 << 20, ..PoolOptions::default() };
    let options = DatabaseOptions { pool, ..options };
    let db = Database::open_with(folder.path().join("a.pool"), &options)?;
    let table = db.create_table(&Schema::new("t").column("k", Type::U64).column("v", Type::Bytes).key(["k"]))?;
    Ok((db, table, folder))
}

/// Calls `visit` for each leaf.
fn for_each_leaf(core: &Core, mut visit: impl FnMut(&Tree, &Arc<Leaf>)) {
    core.trees().iter().for_each(|tree| tree.all_leaves().iter().for_each(|leaf| visit(tree, leaf)));
}

#[test]
fn rows_count_from_their_commit_to_their_end() -> Result<()> {
    for row_reads in [false, true] {
        // Commits make the rounds that are due, so that no other thread counts.
        let (cache_bytes, checkpoint_thread) = (Some(2 << 20), false);
        let options = DatabaseOptions { cache_bytes, row_reads, checkpoint_thread, ..DatabaseOptions::default() };
        let (db, table, _folder) = bounded_with(options)?;
        let (core, key) = (db.core(), |turn: u64| turn * 3_571 % 4_000);
        let cache = core.ground.cache.as_ref().expect("a bound");
        let check = |when: &str| {
            let (mut rows, mut charged, count) = (0, 0, cache.row_bytes());
            for_each_leaf(core, |_, leaf| {
                rows += leaf.bytes();
                charged += leaf.charged();
            });
            assert_eq!(count, charged, "{when}");
            // Leaves that share a page after a split are counted again when the hand passes them.
            assert!(count >= rows - rows / 8, "{when}: {rows} bytes of rows count as {count}");
        };
        for turn in 0..4_000 {
            // All keys in an order that jumps: leaves grow, split, become cold and are loaded.
            db.update(|tx| table.put(tx, &row![key(turn), vec![7_u8; 1000]]))?;
            db.update(|tx| table.get(tx, &row![key(turn / 3)]))?;
            if turn % 100 == 99 {
                check("in a load");
            }
        }
        assert!(cache.evictions() > 100 && cache.loads() > 100, "{}", db.stats());
        assert!(!row_reads || cache.row_reads() > 100, "{}", db.stats());
        for turn in 0..4_000 {
            db.update(|tx| table.delete(tx, &row![key(turn)]))?;
        }
        db.checkpoint()?;
        cache.make_much_room();
        db.drop_table("t")?;
        drop(table);
        // A table ends with the second round after it was dropped.
        db.checkpoint()?;
        db.checkpoint()?;
        check("without the table");
    }
    Ok(())
}

#[test]
fn a_leaf_that_is_used_for_one_row_keeps_that_one() -> Result<()> {
    let options = DatabaseOptions { cache_bytes: Some(4 << 20), ..DatabaseOptions::default() };
    let (db, table, _folder) = bounded_with(options)?;
    for key in 0..400_u64 {
        db.update(|tx| table.put(tx, &row![key, vec![key.to_le_bytes()[0]; 1000]]))?;
    }
    db.checkpoint()?;
    let (core, cache) = (db.core(), db.core().ground.cache.as_ref().expect("a bound"));
    let read = |key: u64| db.update(|tx| table.get(tx, &row![key])).map(|row| row.expect("it is there"));
    let pass_all = || {
        let entries: Vec<_> = std::iter::from_fn(|| lock(&cache.clock).pop()).collect();
        entries.into_iter().for_each(|entry| _ = cache.pass(core, entry));
    };
    // All leaves are loaded. While such uses count, none becomes cold.
    assert_eq!(table.range(&db.snapshot()?, ..)?.count(), 400);
    let loads = cache.loads();
    read(0)?;
    pass_all();
    assert_eq!(table.range(&db.snapshot()?, ..)?.count(), 400);
    assert_eq!(cache.loads(), loads, "a leaf that is read as a whole stays");
    let hot = || (0..400_u64).step_by(40);
    for _ in 0..5 {
        hot().try_for_each(|key| read(key).map(drop))?;
        pass_all();
    }
    let mut cold = 0;
    for_each_leaf(core, |_, leaf| cold += u32::from(leaf.charged() > 0 && !leaf.is_loaded()));
    assert_eq!(cold, 10, "leaves with rows that stay");
    let (loads, rows) = (cache.loads(), cache.row_reads());
    assert!(hot().all(|key| table.is_in_memory(&row![key]).is_ok_and(|is_there| is_there)));
    assert!(!table.is_in_memory(&row![1_u64])?, "its leaf is cold, and a look was not asked for");
    for key in hot() {
        assert_eq!(read(key)?[1].as_bytes(), Some(&vec![key.to_le_bytes()[0]; 1000][..]));
    }
    assert_eq!((cache.loads(), cache.row_reads()), (loads, rows), "they are here");
    // A row that changes is in its leaf again, in the same slot.
    let tx = db.begin();
    table.get(&tx, &row![40_u64])?;
    db.update(|tx| table.put(tx, &row![40_u64, vec![1_u8]]))?;
    table.put(&tx, &row![1_000_u64, vec![1_u8]])?;
    assert!(matches!(tx.commit(), Err(crate::Error::Conflict)), "it has read another version");
    // Those that stay count until their table is gone.
    let charged = || {
        let mut charged = 0;
        for_each_leaf(core, |_, leaf| charged += leaf.charged());
        charged
    };
    assert_eq!(cache.row_bytes(), charged());
    db.drop_table("t")?;
    drop(table);
    (0..3).try_for_each(|_| db.checkpoint().map(drop))?;
    assert_eq!(cache.row_bytes(), charged());
    Ok(())
}

#[test]
fn only_a_cache_that_is_far_over_its_bound_waits_for_the_hand() -> Result<()> {
    let (db, _table, _folder) = bounded(1 << 20)?;
    let cache = db.core().ground.cache.as_ref().expect("a bound");
    let max = cache.row_bytes_max();
    // Another thread moves the hand.
    let hand = lock(&cache.hand);
    cache.bytes.fetch_add(max + max / 16, Ordering::Relaxed);
    cache.make_room();
    cache.bytes.fetch_add(max, Ordering::Relaxed);
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cache.make_room();
            has_ended.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!has_ended.load(Ordering::SeqCst), "it did not wait");
        drop(hand);
    });
    cache.bytes.fetch_sub(2 * max + max / 16, Ordering::Relaxed);
    Ok(())
}

#[test]
fn memory_of_rows_that_are_gone_goes_back() -> Result<()> {
    let bound = 2 * ARENA_BYTES_MIN;
    let (db, table, _folder) = bounded(bound)?;
    const ROWS: u64 = 12_000;
    for first in (0..ROWS).step_by(100) {
        db.update(|tx| (first..first + 100).try_for_each(|key| table.put(tx, &row![2 * key, vec![7_u8; 1000]])))?;
    }
    db.checkpoint()?;
    let core = db.core();
    let (cache, arena) = (core.ground.cache.as_ref().expect("a bound"), core.ground.source.arena());
    let arena = arena.expect("an arena");
    // All leaves become cold, and are loaded again.
    for_each_leaf(core, |tree, leaf| _ = tree.evict(core, leaf, &[]));
    assert_eq!(arena.used(), 0);
    for key in 0..ROWS {
        db.update(|tx| table.get(tx, &row![2 * key]))?;
    }
    let full = arena.taken();
    assert!(full > bound / 2, "{arena:?}");
    // Three of four leaves become cold. The others have rows in all parts of the memory.
    let mut number = 0;
    for_each_leaf(core, |tree, leaf| {
        number += 1;
        let _ = number % 4 == 0 || tree.evict(core, leaf, &[]);
    });
    assert_eq!(arena.taken(), full);
    // As the next loads do.
    cache.hole_bytes();
    cache.make_room();
    let holes = arena.taken() - arena.used();
    assert!(holes <= bound / HOLES_MAX_PART && arena.used() > 0, "{arena:?}");
    // New rows between those that are there: leaves are split. Cold ones hold nothing of their pages.
    for first in (0..ROWS).step_by(100) {
        db.update(|tx| (first..first + 100).try_for_each(|key| table.put(tx, &row![2 * key + 1, vec![7_u8; 1000]])))?;
    }
    db.checkpoint()?;
    for_each_leaf(core, |tree, leaf| _ = tree.evict(core, leaf, &[]));
    assert_eq!(arena.used(), 0);
    Ok(())
}

#[test]
fn rows_that_are_read_once_do_not_stay_in_a_full_cache() -> Result<()> {
    const ROWS: u64 = 24_000;
    // Each is in another leaf, and none is read twice.
    const STEP: u64 = 11;
    let (warm_up, checkpoint_thread) = (false, false);
    let options =
        DatabaseOptions { cache_bytes: Some(2 << 20), warm_up, checkpoint_thread, ..DatabaseOptions::default() };
    let (db, table, _folder) = bounded_with(options)?;
    for first in (0..ROWS).step_by(100) {
        db.update(|tx| (first..first + 100).try_for_each(|key| table.put(tx, &row![key, vec![7_u8; 1000]])))?;
    }
    db.checkpoint()?;
    let core = db.core();
    let cache = core.ground.cache.as_ref().expect("a bound");
    for_each_leaf(core, |tree, leaf| _ = tree.evict(core, leaf, &[]));
    let read = |key: u64| db.update(|tx| table.get(tx, &row![key])).map(|row| assert!(row.is_some()));
    let stays = |key: u64| table.is_in_memory(&row![key]);
    let mut keys = (0..ROWS).step_by(to_usize(STEP));
    // While there is room, each stays.
    let max = cache.row_bytes_max();
    while cache.row_bytes() < max - max / 16 {
        let key = keys.next().expect("fewer fit");
        read(key)?;
        assert!(stays(key)?, "{key}: {} bytes of {max}", cache.row_bytes());
    }
    keys.by_ref().take(100).try_for_each(read)?;
    // Then few do.
    let looks = keys.by_ref().take(320).map(|key| read(key).and_then(|()| stays(key)));
    let stay = looks.collect::<Result<Vec<_>>>()?.into_iter().filter(|stays| *stays).count();
    assert!((15..=25).contains(&stay), "{stay} of 320 rows stay");
    // One that is read again stays.
    for key in keys.by_ref().take(50) {
        (0..2).try_for_each(|_| read(key))?;
        assert!(stays(key)?, "{key}");
    }
    // So does one that a transaction holds, as long as it holds it. Such rows do not count.
    let (bytes, evictions) = (cache.row_bytes(), cache.row_evictions.load(Ordering::Relaxed));
    let held: Vec<_> = keys.take(300).collect();
    let tx = db.begin();
    for key in &held {
        table.get(&tx, &row![*key])?;
        assert!(stays(*key)?, "{key}");
    }
    let gone = cache.row_evictions.load(Ordering::Relaxed) - evictions;
    assert!(gone > 250 && cache.row_bytes() <= bytes + bytes / 16, "{gone} of 300, {} bytes", cache.row_bytes());
    assert!(lock(&cache.early).len() >= 250, "leaves refer to rows that are held");
    drop(tx);
    let stay = held.iter().map(|key| stays(*key)).collect::<Result<Vec<_>>>()?.into_iter().filter(|stays| *stays);
    assert!(stay.count() < 50);
    // With other reads the leaves that may refer to such rows become few again.
    held.iter().try_for_each(|key| read(*key + 1))?;
    assert!(lock(&cache.early).len() <= EARLY_MAX + 1, "{}", lock(&cache.early).len());
    Ok(())
}

/// A database whose cache holds no row, and the cold leaves of its table.
fn cold_leaves() -> Result<(Database, Vec<Arc<Leaf>>, tempfile::TempDir)> {
    let (cache_bytes, warm_up, checkpoint_thread) = (Some(4 << 20), false, false);
    let options = DatabaseOptions { cache_bytes, warm_up, checkpoint_thread, ..DatabaseOptions::default() };
    let (db, table, folder) = bounded_with(options)?;
    for first in (0..12_000_u64).step_by(100) {
        db.update(|tx| (first..first + 100).try_for_each(|key| table.put(tx, &row![key, vec![7_u8; 1000]])))?;
    }
    db.checkpoint()?;
    let mut leaves = Vec::new();
    for_each_leaf(db.core(), |tree, leaf| _ = tree.evict(db.core(), leaf, &[]));
    for_each_leaf(db.core(), |tree, leaf| {
        if tree.number == table.tree.number && !leaf.is_loaded() {
            leaves.push(leaf.clone());
        }
    });
    Ok((db, leaves, folder))
}

#[test]
fn a_leaf_is_listed_once_while_a_row_of_it_is_held() -> Result<()> {
    const LEAVES: usize = 300;
    let (db, leaves, _folder) = cold_leaves()?;
    let cache = db.core().ground.cache.as_ref().expect("a bound");
    assert!(leaves.len() > LEAVES + EARLY_MAX, "{}", leaves.len());
    let length = || lock(&cache.early).len();
    // Each has a row that a thread holds, and others of it are read and do not stay.
    let hold = |leaf: &Leaf| {
        let slot = Slot::new(b"held"[..].into(), RowWord::new(Tick(1), Writer::default(), false), b""[..].into());
        assert!(leaf.early_row(b"held", |_| Some((slot.clone(), None))).is_some());
        slot
    };
    let held: Vec<_> = leaves[..LEAVES].iter().map(|leaf| hold(leaf)).collect();
    for _ in 0..10 {
        leaves[..LEAVES].iter().for_each(|leaf| cache.note_held(leaf));
        assert_eq!(length(), LEAVES);
    }
    // They go when no thread holds a row, and are listed again after that.
    drop(held);
    leaves[LEAVES..LEAVES + EARLY_MAX].iter().for_each(|leaf| cache.note_held(leaf));
    leaves[LEAVES..].iter().chain(&leaves[LEAVES..]).for_each(|leaf| cache.note_held(leaf));
    assert!(length() <= EARLY_MAX + 1, "{}", length());
    assert!(lock(&cache.early).capacity() <= 2 * EARLY_MAX, "{}", lock(&cache.early).capacity());
    let again = hold(&leaves[0]);
    let before = length();
    cache.note_held(&leaves[0]);
    assert!((before..=before + 1).contains(&length()));
    assert!(lock(&cache.early).iter().any(|leaf| leaf.ptr_eq(&Arc::downgrade(&leaves[0]))));
    drop(again);
    Ok(())
}

#[test]
fn a_read_that_hangs_stops_no_read_of_other_leaves() -> Result<()> {
    let (db, leaves, _folder) = cold_leaves()?;
    let cache = db.core().ground.cache.as_ref().expect("a bound");
    let (first, others) = leaves.split_first().expect("a leaf");
    assert!(others.len() > 2 * EARLY_MAX, "{}", others.len());
    cache.note_held(first);
    let (begun, is_begun) = std::sync::mpsc::channel();
    let (end, is_ended) = std::sync::mpsc::channel::<()>();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The page of the first leaf does not come.
            first.early_row(b"a", |_| {
                begun.send(()).expect("the test waits");
                let _ = is_ended.recv();
                None
            })
        });
        is_begun.recv().expect("the read begins");
        scope.spawn(move || {
            others.iter().for_each(|leaf| cache.note_held(leaf));
            let _ = done.send(());
        });
        let outcome = is_done.recv_timeout(std::time::Duration::from_secs(20));
        drop(end);
        assert!(outcome.is_ok(), "they wait for the page of another leaf");
    });
    Ok(())
}

#[test]
fn a_row_is_known_again_when_the_number_of_entries_passes_a_power_of_two() -> Result<()> {
    let (db, leaves, _folder) = cold_leaves()?;
    let cache = db.core().ground.cache.as_ref().expect("a bound");
    cache.row_evictions.store(1_000_000, Ordering::Relaxed);
    for (before, after) in [(65_535, 65_536), (65_536, 65_535), (4_095, 4_096)] {
        for leaf in &leaves[..10] {
            cache.on_clock.store(before, Ordering::Relaxed);
            assert_ne!(cache.look(leaf, &before.to_le_bytes()), Looked::Leaf);
            cache.on_clock.store(after, Ordering::Relaxed);
            assert_eq!(cache.look(leaf, &before.to_le_bytes()), Looked::Row(Stay::OnClock));
        }
        // Long after.
        cache.row_evictions.fetch_add(1_000_000, Ordering::Relaxed);
    }
    Ok(())
}
