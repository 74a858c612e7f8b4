//! The cost of one durable operation of the map, in events. The counts are exact where the protocol decides them, and
//! bounded where the scheduler has an influence. Nothing is timed.
//!
//! The counters cover the whole process, so the tests of this file take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lodestone_index::OrderedMap;
use lodestone_pmem::{Domain, DomainChoice, Pool, PoolOptions, process_counters, thread_counters};
use lodestone_store::Store;

static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map in a pool of the block domain on an ordinary file.
struct Fixture {
    map: OrderedMap,
    _folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("temporary folder");
        // A journal so large that nothing is checkpointed meanwhile.
        let options = PoolOptions {
            domain: DomainChoice::Block,
            size_bytes: 128 << 20,
            journal_bytes: 64 << 20,
            ..PoolOptions::default()
        };
        let pool = Pool::create(folder.path().join("counts.pool"), &options).expect("pool");
        assert_eq!(pool.memory().domain(), Domain::Block);
        let store = Store::over(&pool).expect("heap");
        let map = OrderedMap::open(&store, "counts").expect("map");
        Self { map, _folder: folder }
    }
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

#[test]
fn a_writer_that_waits_each_time_takes_one_sync_for_each_insert() {
    const INSERTS: u64 = 200;
    let _turn = turn();
    let fixture = Fixture::new();
    fixture.map.insert(b"warm", &[0; 100]).expect("insert");
    let started = Instant::now();
    let (mut syncs, mut more_than_one) = (0, 0);
    for number in 0..INSERTS {
        let before = process_counters();
        fixture.map.insert(&key(number), &[number as u8; 100]).expect("insert");
        let taken = (process_counters() - before).syncs;
        assert!(taken >= 1, "insert {number} was called durable without a sync");
        syncs += taken;
        more_than_one += u64::from(taken > 1);
    }
    println!("one waiting writer: {syncs} syncs for {INSERTS} inserts, {more_than_one} of them with a second one");
    // Five times a second the pool commits flushed lines that no thread waits for yet. They may be part of an insert.
    let commits_in_between = started.elapsed().as_millis() as u64 / 200 + 1;
    assert!(syncs <= INSERTS + commits_in_between, "{syncs} syncs for {INSERTS} inserts");
}

#[test]
fn sixteen_writers_share_their_syncs() {
    const WRITERS: u64 = 16;
    const INSERTS: u64 = 200;
    const ROUNDS: u64 = 60;
    /// For each insert. All writers in each group would need 1 / 16, writers that share nothing 1.
    const SYNCS_MAX: f64 = 0.2;
    let _turn = turn();
    let fixture = Fixture::new();
    let mut best = f64::INFINITY;
    // The scheduler decides how many threads meet in a group: on a loaded machine one round in several must do. The
    // block domain's tests assert this for every round, on a device with a slow sync.
    for round in 0..ROUNDS {
        let before = process_counters();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let map = &fixture.map;
                scope.spawn(move || {
                    for number in 0..INSERTS {
                        let number = (round * WRITERS + writer) * INSERTS + number;
                        map.insert(&key(number), &[number as u8; 100]).expect("insert");
                    }
                });
            }
        });
        let delta = process_counters() - before;
        let syncs_per_insert = delta.syncs as f64 / (WRITERS * INSERTS) as f64;
        println!("{WRITERS} writers, round {round}: {syncs_per_insert:.4} syncs for each durable insert");
        best = best.min(syncs_per_insert);
        if best < SYNCS_MAX {
            break;
        }
    }
    assert!(best < SYNCS_MAX, "{best} syncs for each durable insert with {WRITERS} writers");
    assert_eq!(fixture.map.len().expect("length") % (WRITERS * INSERTS), 0, "every insert is there");
}

#[test]
fn an_insert_takes_a_fixed_number_of_fences_and_flushes() {
    let _turn = turn();
    let fixture = Fixture::new();
    fixture.map.insert(b"warm", &[0; 100]).expect("insert");
    let count = |work: &dyn Fn()| {
        let before = thread_counters();
        work();
        let delta = thread_counters() - before;
        (delta.fences, delta.flushes)
    };
    // The leaf has room for all of these: no structure changes.
    for number in 0..20_u64 {
        let insert = count(&|| assert!(!fixture.map.insert(&key(number), &[1; 100]).expect("insert")));
        let update = count(&|| assert!(fixture.map.insert(&key(number), &[2; 100]).expect("update")));
        let read = count(&|| assert!(fixture.map.get(&key(number)).expect("read").is_some()));
        if number == 0 {
            println!("fences and flushed lines: insert {insert:?}, update {update:?}, read {read:?}");
        }
        // Fences: the record before the action that publishes it, the action's record before its words, the words
        // before its end, its end before the next operation. Lines: two of the record, the action's and its end, and
        // one for each of its two words.
        assert!(insert.0 <= 4 && insert.1 <= 6, "insert: {insert:?}");
        assert!(update.0 <= 4 && update.1 <= 6, "update: {update:?}");
        assert_eq!(read, (0, 0), "a read writes nothing");
    }
}
