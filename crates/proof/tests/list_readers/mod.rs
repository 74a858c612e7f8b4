//! The answers of readers of a skip list while its only key comes or goes. Readers take no lock, so they see links that
//! are stored and not yet flushed. In the block domain only flushed lines can be waited for.

use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard};

use lodestone_heap::HeapOptions;
use lodestone_index::{Direction, Durability, OrderedIndex, PointIndex, SkipList};
use lodestone_pmem::{LineAddr, PmAddr, Pool, PoolOptions, Site, TracedMemory, Tracer};
use lodestone_store::{Store, StoreOptions};
use shuttle::scheduler::PctScheduler;
use shuttle::{Config, Runner};

/// The lines with stores that are not flushed.
#[derive(Default)]
struct Unflushed(Mutex<HashSet<LineAddr>>);

impl Unflushed {
    fn lines(&self) -> MutexGuard<'_, HashSet<LineAddr>> {
        self.0.lock().expect("one thread runs at a time")
    }
}

impl Tracer for Unflushed {
    fn touch(&self, _: &TracedMemory<'_>, _: LineAddr) {}
    fn store(&self, at: PmAddr, _: &[u64], _: Site) {
        self.lines().insert(at.line());
    }
    fn stream(&self, at: PmAddr, words: &[u64], site: Site) {
        self.store(at, words, site);
    }
    fn flush(&self, line: LineAddr, _: Site) {
        self.lines().remove(&line);
    }
    fn fence(&self, _: Site) {}
    fn durable(&self, _: Site) {}
}

/// The value of the key of the list by a range of all.
fn by_range(list: &SkipList<u64>) -> Option<u64> {
    let mut found = None;
    let visit = |_: &u64, value| {
        found = Some(value);
        ControlFlow::Continue(())
    };
    list.scan(Bound::Unbounded, Bound::Unbounded, Direction::Ascending, visit).expect("scan");
    found
}

fn run(comes: bool) {
    let tracer = Arc::new(Unflushed::default());
    let options =
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
    let traced: Arc<dyn Tracer> = Arc::<Unflushed>::clone(&tracer);
    let pool = Pool::create_traced(&options, traced).expect("a pool");
    let store = Store::over_with(&pool, &StoreOptions::with_heap(HeapOptions::small())).expect("a heap");
    let list = SkipList::<u64>::open(&store, "list", Durability::Sync).expect("a list");
    // The link that every answer depends on is in the anchor.
    let anchor = list.check().blocks[0].line();
    if !comes {
        assert!(list.insert(&10, 1).expect("insert"));
    }
    let list = Arc::new(list);
    let writer = shuttle::thread::spawn({
        let list = Arc::clone(&list);
        move || if comes { list.insert(&10, 1).map(drop) } else { list.remove(&10).map(drop) }
    });
    for by in [|list: &SkipList<u64>| list.get(&10).expect("get"), by_range] {
        let found = by(&list);
        // The one change has been seen, and no other comes.
        let is_new = found.is_some() == comes;
        assert!(!is_new || !tracer.lines().contains(&anchor), "{found:?} was told before the link was flushed");
    }
    writer.join().expect("a thread panicked").expect("a change");
}

/// Panics when a schedule lets a reader tell what no wait covers.
pub fn tell_only_what_was_flushed(schedules: usize) {
    for comes in [true, false] {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        // A reader must get through while the writer is stopped between two steps. That needs schedules that seldom
        // switch threads.
        Runner::new(PctScheduler::new_from_seed(3, 2, schedules), config).run(move || run(comes));
    }
}
