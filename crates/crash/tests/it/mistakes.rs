//! Every class of mistake is found, in every mode that promises it; the correct structure is clean in all.

use crate::common::{Mistake, Pair};
use lodestone_crash::{Config, Mode, Profile, Report, audit_target, replay, run_target};

const MISTAKES: [Mistake; 15] = [
    Mistake::LogNotFlushed,
    Mistake::NoFenceAfterLog,
    Mistake::OneLineNotFlushed,
    Mistake::WrongLineFlushed,
    Mistake::RecordDroppedEarly,
    Mistake::ValidBeforePayload,
    Mistake::AcknowledgedEarly,
    Mistake::InPlace,
    Mistake::StreamedRecord,
    Mistake::RecoveryDropsEarly,
    Mistake::RecoveryNotIdempotent,
    Mistake::RecoveryPanics,
    Mistake::RecoveryEndless,
    Mistake::StuckAfterCrash,
    Mistake::Leak,
];

fn explore(mistake: Mistake, config: &Config) -> Report {
    run_target(&Pair(mistake), config, &mut |_| {})
}

#[test]
fn the_correct_structure_is_clean_everywhere() {
    for &profile in Profile::ALL {
        for &mode in Mode::ALL {
            let report = explore(Mistake::None, &Config { profile, mode, ..Config::default() });
            println!("{report}");
            let report = report.expect_clean();
            assert_eq!(report.exhausted, mode != Mode::Representative);
        }
    }
}

#[test]
fn exhaustive_and_reading_modes_find_every_mistake_with_a_reproducer() {
    for mode in [Mode::Exhaustive, Mode::Reading] {
        for mistake in MISTAKES {
            let report = explore(mistake, &Config { mode, ..Config::default() });
            let violation = report.expect_violation();
            println!("{mistake:?}: {violation}\n");
            let again = replay(&violation.token, &[Box::new(Pair(mistake))]).expect("the token is good");
            assert_eq!(again.violation.as_ref(), Some(&violation.message), "{mistake:?}");
            let expected = if mistake == Mistake::RecoveryNotIdempotent { 3 } else { 2 };
            assert!(violation.ops.len() <= expected, "{mistake:?} is not shrunk: {violation}");
        }
    }
}

#[test]
fn damaged_and_foreign_tokens_are_refused_with_a_reason() {
    for (token, reason) in [
        ("nonsense", "six fields"),
        ("other~adr~0~-~-~k3", "no target is called `other`"),
        ("pair-None~adr~9~-~-~k3", "no operation 9"),
        ("pair-None~adr~0~-~-~k99999", "another version of the code"),
        #[cfg(not(feature = "planted-bugs"))]
        ("pair-None~adr~0~-~some-bug~k3", "--features planted-bugs"),
    ] {
        let refused = replay(token, &[Box::new(Pair(Mistake::None))]).expect_err(token).to_string();
        assert!(refused.contains(reason), "{token}: {refused}");
    }
}

#[test]
fn only_a_crash_in_recovery_shows_recoveries_that_are_not_idempotent() {
    for (mistake, shown_by) in [(Mistake::RecoveryDropsEarly, 1), (Mistake::LogNotFlushed, 0)] {
        for nested_depth in 0..=1 {
            let report = explore(mistake, &Config { nested_depth, ..Config::default() });
            assert_eq!(report.is_clean(), nested_depth < shown_by, "{mistake:?} at depth {nested_depth}: {report}");
        }
    }
}

#[test]
fn recovery_may_crash_in_the_recovery_from_a_crash_in_recovery() {
    for mode in [Mode::Exhaustive, Mode::Reading] {
        let config = Config { mode, nested_depth: 3, ..Config::default() };
        let report = explore(Mistake::None, &config).expect_exhausted();
        let shallow = explore(Mistake::None, &Config { nested_depth: 1, ..config });
        println!("{report}");
        assert!(report.states_nested > shallow.states_nested, "{report}");
    }
}

/// Recovery that depends on something other than the medium is detected: the reading-driven mode then does not claim to
/// be complete.
#[test]
fn recovery_that_depends_on_other_things_than_the_medium_is_noticed() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let calls = std::sync::Arc::new(AtomicU64::new(0));
    let line = |pool: &lodestone_pmem::Pool, index: u64| pool.heap_area(0).0.plus(index * 64);
    let explore = lodestone_crash::Explore::new("moody")
        .op("store", move |pool| {
            for index in 0..4 {
                pool.memory().store(line(pool, index), 1);
            }
            Ok(())
        })
        .recover(move |pool| {
            let mood = calls.fetch_add(1, Ordering::Relaxed);
            for index in 0..4 {
                let _ = pool.memory().load(line(pool, (index + mood) % 4));
            }
            Ok(())
        });
    let report = explore.run();
    assert!(report.is_clean() && !report.exhausted && report.runs_unsteady > 0, "{report}");
}

#[test]
fn persistent_caches_forgive_what_only_concerns_flushes() {
    let eadr = Config { profile: Profile::Eadr, ..Config::default() };
    for mistake in [Mistake::LogNotFlushed, Mistake::NoFenceAfterLog, Mistake::OneLineNotFlushed] {
        explore(mistake, &eadr).expect_exhausted();
    }
    for mistake in [Mistake::ValidBeforePayload, Mistake::InPlace, Mistake::RecoveryPanics, Mistake::Leak] {
        let _ = explore(mistake, &eadr).expect_violation();
    }
}

#[test]
fn the_block_profile_misses_what_was_never_flushed() {
    let block = Config { profile: Profile::Block, ..Config::default() };
    for mistake in [Mistake::LogNotFlushed, Mistake::InPlace] {
        let _ = explore(mistake, &block).expect_violation();
    }
    // Groups arrive in order, so a missing fence between two flushes does no harm there.
    explore(Mistake::NoFenceAfterLog, &block).expect_exhausted();
}

#[test]
fn every_mutant_of_the_correct_structure_is_killed() {
    let report = audit_target(&Pair(Mistake::None), &Config::default(), &mut |_, _| {}).expect("clean");
    println!("{report}");
    assert!(report.killed > 10, "{report}");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_needless_flush_and_fence_survive_the_audit_unless_excused() {
    let audit = |mistake| audit_target(&Pair(mistake), &Config::default(), &mut |_, _| {}).expect("clean");
    let report = audit(Mistake::Needless);
    println!("{report}");
    assert!(!report.is_clean());
    assert_eq!((report.survived, report.redundant, report.stale), (5, 0, 0), "{report}");
    let report = audit(Mistake::Excused).expect_clean();
    assert_eq!((report.survived, report.redundant, report.stale), (0, 5, 0), "{report}");
    let report = audit(Mistake::StaleExcuse);
    assert_eq!((report.survived, report.redundant, report.stale), (0, 0, 1), "{report}");
    assert!(!report.is_clean());
}
