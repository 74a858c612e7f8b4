//! Bugs that only interleavings show. A planted bug is switched on for all threads, so they have their own process, and
//! one test plants them one after the other.

mod list_readers;
mod openings;

use std::panic::{AssertUnwindSafe, catch_unwind};

use lodestone_crash::Structure;
use lodestone_crash::schedules::{ScheduleConfig, Scheduler, explore_schedules};
use lodestone_pmem::planted::plant;
use lodestone_proof::index::{
    FASTFAIR_RACES, acs_threaded, fastfair_threaded, fptree_threaded, hash_threaded, threaded,
};

fn must_be_found<S: Structure + 'static>(targets: impl Fn() -> Vec<S>, name: &str, bug: &str) {
    let found = [Scheduler::Pct, Scheduler::Random].into_iter().any(|scheduler| {
        let target = targets().into_iter().find(|target| Structure::name(target) == name).expect("a target");
        let mut config = ScheduleConfig { scheduler, schedules: 300, ..ScheduleConfig::default() };
        config.crash.states_max = 1000;
        config.crash.planted = Some(bug.into());
        let report = explore_schedules(target, &config);
        println!("{bug}: {report}");
        !report.is_clean()
    });
    assert!(found, "no schedule shows {bug}");
}

fn must_panic(bug: &str, scenario: fn(usize), schedules: usize) {
    plant(Some(bug));
    let found = catch_unwind(AssertUnwindSafe(|| scenario(schedules)));
    plant(None);
    assert!(found.is_err(), "no schedule shows {bug}");
}

#[test]
fn lookups_that_ignore_what_changed_under_them_are_found() {
    // A change goes on with a leaf that was split before it had the leaf's lock. Its key gets into a leaf that does not
    // cover it, readers miss it, scans go back.
    must_be_found(threaded, "map-threads-split", "index-stale-leaf");
    // A split relies on its look at the parent, or the root, before it had the locks.
    for (bug, target) in FASTFAIR_RACES {
        must_be_found(fastfair_threaded, target, bug);
    }
    // A lookup believes its read of a segment, or leaf, during a change of another thread.
    must_be_found(hash_threaded, "hash-threads-read", "hash-stale-segment");
    must_be_found(fptree_threaded, "fptree-threads-read", "fptree-stale-leaf");
    // The cache answers a read with a value that the index does not have yet. A crash takes it away again.
    must_be_found(acs_threaded, "acs-threads-update", "acs-cache-before-index");
    // A lookup in a list answers by a link whose line is not flushed.
    must_panic("skiplist-tells-unflushed", list_readers::tell_only_what_was_flushed, 1000);
    // Two threads that find no root make an index each, and the root names one. Then the answers of the other are lost.
    must_panic("store-open-twice", openings::one_of_two_threads_makes_an_index, 200);
}
