//! Two threads open one index that does not exist yet. One of them makes it, the other gets the error that it is open.
//! The next opening finds the first thread's inserts, and nothing leaks.

use std::sync::{Arc, Mutex};

use lodestone_heap::HeapOptions;
use lodestone_index::{Durability, Error, FpTree, OpenIndex, OrderedMap};
use lodestone_pmem::{Pool, PoolOptions, SilentTracer};
use lodestone_store::{Store, StoreOptions};
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner};

fn run<I: OpenIndex<Key = [u8]> + 'static>() {
    let options =
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Pool::create_traced(&options, Arc::new(SilentTracer)).expect("a pool");
    let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small())).expect("a heap");
    let open = |store: &Store| I::open_index(store, "index", &I::Options::default(), Durability::Sync);
    let opened = Arc::new(Mutex::new(Vec::new()));
    let threads = [1, 2].map(|number| {
        let (store, opened) = (store.clone(), Arc::clone(&opened));
        shuttle::thread::spawn(move || match open(&store) {
            Ok(index) => {
                assert!(index.insert(&[number], u64::from(number)).expect("insert"));
                opened.lock().expect("one thread runs at a time").push((number, index));
            }
            Err(error) => assert!(matches!(error, Error::AlreadyOpen { .. }), "{error}"),
        })
    });
    threads.into_iter().for_each(|thread| thread.join().expect("a thread panicked"));
    let opened = std::mem::take(&mut *opened.lock().expect("nobody runs"));
    let told: Vec<u8> = opened.iter().map(|(number, _)| *number).collect();
    assert!(!told.is_empty(), "nobody made the index");
    drop(opened);
    let index = open(&store).expect("an index");
    for number in &told {
        assert_eq!(index.get(&[*number]).expect("get"), Some(u64::from(*number)), "of the keys of {told:?}");
    }
    let (owned, mut held) = (index.check().blocks.len(), 0);
    store.heap().for_each_block(|_, _| held += 1);
    assert_eq!(owned + store.own_blocks().len(), held, "blocks of the index and of the heap");
}

/// Panics when two threads of a schedule get an index each.
pub fn one_of_two_threads_makes_an_index(schedules: usize) {
    for body in [run::<FpTree<[u8]>>, run::<OrderedMap>] {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        Runner::new(RandomScheduler::new_from_seed(5, schedules), config).run(body);
    }
}
