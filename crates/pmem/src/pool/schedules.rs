//! Roots that are set and asked for by two threads, under a deterministic scheduler.

use std::sync::Arc;

use crate::addr::{LineAddr, PmAddr};
use crate::pool::{Pool, PoolOptions};
use crate::sync::thread;
use crate::tracer::{Site, TracedMemory, Tracer};

/// Records nothing: traced memory is here for its scheduling points before every access.
struct Silent;

impl Tracer for Silent {
    fn touch(&self, _: &TracedMemory<'_>, _: LineAddr) {}
    fn store(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn stream(&self, _: PmAddr, _: &[u64], _: Site) {}
    fn flush(&self, _: LineAddr, _: Site) {}
    fn fence(&self, _: Site) {}
    fn durable(&self, _: Site) {}
}

/// Both lines of a root are written when it is set: who asked in between, without the lock, took the root for lost.
fn a_root_that_is_set_while_it_is_asked_for() {
    let options =
        PoolOptions { size_bytes: 64 << 10, journal_bytes: 0, reserve_bytes: 1 << 20, ..PoolOptions::default() };
    let pool = Arc::new(Pool::create_traced(&options, Arc::new(Silent)).expect("a pool"));
    pool.set_root("counter", 0, PmAddr::NULL).expect("a free root");
    let writer = thread::spawn({
        let pool = Arc::clone(&pool);
        move || (1..4).for_each(|kind| pool.set_root("counter", kind, PmAddr::NULL).expect("the same root"))
    });
    let mut last = 0;
    for _ in 0..3 {
        let (kind, _) = pool.root("counter").expect("nothing is damaged").expect("the root was there before");
        assert!(kind >= last, "{kind} behind {last}");
        last = kind;
    }
    writer.join().expect("a thread panicked");
}

#[test]
fn a_root_is_found_while_it_is_set() {
    shuttle::check_random(a_root_that_is_set_while_it_is_asked_for, 300);
    shuttle::check_pct(a_root_that_is_set_while_it_is_asked_for, 300, 3);
}
