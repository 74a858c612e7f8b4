//! The judge over schedules can fail. The published orders of paper 1 and planted bugs of snapshots are switched on one
//! at a time and found in random programs. The test has its own process, because a switch is on for all threads.

mod history;

use history::{Spec, explore};
use lodestone_pmem::planted;
use lodestone_stm::{ClockKind, Mode};

/// The violation that shows `bug`, and the number of programs until it was found.
fn find(bug: &str, kinds: &'static [u8], seeds: u64) -> Option<(u64, String)> {
    planted::plant(Some(bug));
    let found = (1..=seeds).find_map(|seed| {
        [false, true].into_iter().find_map(|by_priorities| {
            let spec = Spec {
                mode: Mode::OneFence,
                clock: ClockKind::Thread,
                kinds,
                allocates: seed % 2 == 0,
                seed,
                schedules: 20,
            };
            explore(spec, by_priorities).err().map(|violation| (seed, violation))
        })
    });
    planted::plant(None);
    found
}

#[test]
fn published_orders_and_planted_bugs_are_found() {
    // Every find is a panic inside the scheduler.
    std::panic::set_hook(Box::new(|_| {}));
    let bugs: [(&str, &[u8]); 15] = [
        ("stm-s3", b"uur"),
        ("stm-s4", b"uur"),
        ("stm-s5", b"uur"),
        ("stm-s6", b"uur"),
        ("stm-s7", b"uur"),
        ("stm-s8", b"uur"),
        ("stm-s9", b"u"),
        ("stm-s10", b"u"),
        ("stm-s11", b"u"),
        ("stm-aba", b"uur"),
        ("stm-epoch-early", b"uus"),
        ("stm-side-late", b"uus"),
        ("txn-side-first-only", b"uss"),
        ("txn-side-freed-early", b"uss"),
        ("txn-active-late", b"uus"),
    ];
    let mut missed = Vec::new();
    for (bug, kinds) in bugs {
        let started = std::time::Instant::now();
        match find(bug, kinds, 100) {
            Some((seed, violation)) => println!("{bug}: program {seed}, {:?}: {violation}", started.elapsed()),
            None => missed.push(bug),
        }
    }
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "not found: {missed:?}");
}
