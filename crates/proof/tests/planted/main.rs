//! Planted bugs of every floor: each is found by the target written for it, with a reproducer that replays.
//!
//! A bug is switched on for the whole process, so the tests of this program take turns.

mod collections;
mod engine;
mod fabric;
mod fs;
mod heap;
mod index;
mod pages;
mod registry;
mod stm;
mod store;
mod wal;

use std::collections::BTreeMap;
use std::time::Instant;

use lodestone_crash::planted::Bug;

/// Demands that the explorer finds each of `bugs`, of which there are at least `least`.
fn all_are_found(bugs: &[Bug], least: usize) {
    assert!(bugs.len() >= least, "{} bugs", bugs.len());
    let mut clean = BTreeMap::new();
    for bug in bugs {
        let begin = Instant::now();
        let violation = bug.must_be_found_after(&mut clean);
        println!("{}: {} ({} s)\n{violation}\n", bug.name, bug.harm, begin.elapsed().as_secs());
    }
}
