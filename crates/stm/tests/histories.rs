//! Histories of random programs under a deterministic scheduler are judged for opacity and strict serializability. The
//! schedules are random or by priorities. Every mode, the thread clock and the global clocks take part, and snapshots
//! too.
//!
//! A violation names seed and configuration. The same seed shows it again.

mod history;

use history::{Counts, Spec, explore};
use lodestone_stm::{ClockKind, Mode};

fn run(specs: &[(Mode, ClockKind, &'static [u8], bool)], seeds: u64) {
    let mut total = Counts::default();
    for &(mode, clock, kinds, allocates) in specs {
        for seed in 1..=seeds {
            for by_priorities in [false, true] {
                let spec = Spec { mode, clock, kinds, allocates, seed, schedules: 6 };
                let counts = explore(spec, by_priorities).unwrap_or_else(|violation| panic!("{violation}"));
                total.schedules += counts.schedules;
                total.committed += counts.committed;
                total.attempts += counts.attempts;
                total.side_copies += counts.side_copies;
            }
        }
    }
    println!("no violation: {total:?}");
    assert!(total.attempts > total.schedules / 4, "hardly anybody was in anybody's way: {total:?}");
}

#[test]
fn histories_with_one_fence_have_a_serial_order() {
    run(&[(Mode::OneFence, ClockKind::Thread, b"uuur", true), (Mode::OneFence, ClockKind::Thread, b"uur", false)], 20);
}

#[test]
fn histories_with_snapshots_have_a_serial_order_and_no_snapshot_begins_again() {
    run(&[(Mode::OneFence, ClockKind::Thread, b"uus", true), (Mode::OneFence, ClockKind::Thread, b"uuss", false)], 20);
}

#[test]
fn histories_of_the_published_modes_and_clocks_have_a_serial_order() {
    run(
        &[
            (Mode::AddressLog, ClockKind::Thread, b"uuurs", true),
            (Mode::Scan, ClockKind::Thread, b"uuurs", true),
            (Mode::AddressLog, ClockKind::GlobalFetchAdd, b"uuur", true),
            (Mode::Scan, ClockKind::GlobalMutex, b"uuur", true),
            (Mode::OneFence, ClockKind::GlobalCompareExchange, b"uuurs", true),
        ],
        8,
    );
}
