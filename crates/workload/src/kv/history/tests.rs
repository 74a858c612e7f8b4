//! Tests of the checker: it accepts every state that a correct engine may leave and finds every planted fault.

use super::*;
use crate::keys::KeyOrder;

const PUT: WriteKind = WriteKind::Put;
const REMOVE: WriteKind = WriteKind::Remove;

fn codec() -> KeyCodec {
    KeyCodec::new(8, KeyOrder::Ordered).unwrap()
}

fn history(writes: &[(u64, u64, WriteKind, bool)]) -> History {
    let mut history = History::new(codec());
    for (record, version, write, acknowledged) in writes {
        history.started(*record, *version, *write);
        if *acknowledged {
            history.acknowledged(*record, *version, *write);
        }
    }
    history
}

fn view(versions: &[(u64, u64)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let row = |(record, version): &(u64, u64)| {
        let key = codec().encode(*record);
        let bytes = value::make(&key, *version, 80);
        (key, bytes)
    };
    versions.iter().map(row).collect()
}

#[test]
fn acknowledged_writes_must_be_there() {
    let history = history(&[(1, 1, PUT, true), (1, 2, PUT, true), (2, 1, PUT, true)]);
    let verdict = history.judge(view(&[(1, 2), (2, 1)]));
    assert!(verdict.holds(), "{:?}", verdict.violations);
    assert_eq!((verdict.present, verdict.acknowledged, verdict.uncertain), (2, 2, 0));

    let lost = history.judge(view(&[(2, 1)]));
    assert_eq!(lost.violations, [Violation::Lost { record: 1, acknowledged: 2 }]);
    let stale = history.judge(view(&[(1, 1), (2, 1)]));
    assert_eq!(stale.violations, [Violation::Stale { record: 1, acknowledged: 2, found: 1 }]);
    assert_eq!(history.judge(view(&[])).violations.len(), 2);
}

#[test]
fn unacknowledged_writes_are_there_or_not_but_never_invented() {
    let history = history(&[(1, 1, PUT, true), (1, 2, PUT, false), (1, 4, PUT, false), (2, 1, PUT, false)]);
    for allowed in [&[(1, 1)][..], &[(1, 2)], &[(1, 4)], &[(1, 2), (2, 1)]] {
        let verdict = history.judge(view(allowed));
        assert!(verdict.holds(), "{allowed:?}: {:?}", verdict.violations);
        assert_eq!(verdict.uncertain, 2);
    }
    assert_eq!(history.judge(view(&[(1, 4), (2, 1)])).uncertain_applied, 2);
    for (record, invented) in [(1, 3), (1, 5), (2, 7)] {
        let mut rows = view(&[(1, 1)]);
        if record == 1 {
            rows.clear();
        }
        rows.extend(view(&[(record, invented)]));
        let expected = Violation::NeverStarted { record, found: invented };
        assert_eq!(history.judge(rows).violations, [expected]);
    }
}

#[test]
fn removals_hold() {
    let history = history(&[
        (1, 1, PUT, true),
        (1, 2, REMOVE, true),
        (2, 1, PUT, true),
        (2, 2, REMOVE, false),
        (3, 1, PUT, true),
        (3, 2, REMOVE, true),
        (3, 3, PUT, false),
    ]);
    for allowed in [&[][..], &[(2, 1)], &[(2, 1), (3, 3)]] {
        let verdict = history.judge(view(allowed));
        assert!(verdict.holds(), "{allowed:?}: {:?}", verdict.violations);
    }
    let back = history.judge(view(&[(1, 1)]));
    assert_eq!(back.violations, [Violation::Resurrected { record: 1, removed: 2, found: 1 }]);
    let back = history.judge(view(&[(3, 1)]));
    assert_eq!(back.violations, [Violation::Resurrected { record: 3, removed: 2, found: 1 }]);
}

#[test]
fn torn_swapped_foreign_doubled_and_disordered_records_are_found() {
    let history = history(&[(1, 1, PUT, true), (1, 2, PUT, false), (2, 1, PUT, true)]);
    let mut torn = view(&[(1, 1), (2, 1)]);
    let newer = value::make(&torn[0].0, 2, 80);
    torn[0].1[40..].copy_from_slice(&newer[40..]);
    let violations = history.judge(torn).violations;
    assert!(matches!(violations[..], [Violation::Torn { record: 1, .. }]), "{violations:?}");

    let mut swapped = view(&[(1, 1), (2, 1)]);
    let (first, second) = swapped.split_at_mut(1);
    std::mem::swap(&mut first[0].1, &mut second[0].1);
    assert_eq!(history.judge(swapped).violations.len(), 2);

    let foreign = history.judge(view(&[(1, 1), (2, 1), (9, 1)])).violations;
    assert!(matches!(foreign[..], [Violation::UnknownKey { .. }]), "{foreign:?}");
    let doubled = history.judge(view(&[(1, 1), (2, 1), (2, 1)])).violations;
    assert_eq!(doubled, [Violation::Duplicate { record: 2 }]);
    let disordered = history.judge(view(&[(2, 1), (1, 1)])).violations;
    assert!(matches!(disordered[..], [Violation::OutOfOrder { .. }]), "{disordered:?}");
}

#[test]
fn after_adoption_a_discarded_write_may_not_come_back() {
    let mut history = history(&[(1, 1, PUT, true), (1, 2, PUT, false), (2, 1, PUT, false), (3, 1, PUT, true)]);
    history.started(3, 2, REMOVE);
    let verdict = history.judge(view(&[(1, 1), (2, 1)]));
    assert!(verdict.holds());
    history.adopt(&verdict);
    assert!(history.judge(view(&[(1, 1), (2, 1)])).holds());

    let late = history.judge(view(&[(1, 2), (2, 1)])).violations;
    assert_eq!(late, [Violation::NeverStarted { record: 1, found: 2 }]);
    let lost = history.judge(view(&[(1, 1)])).violations;
    assert_eq!(lost, [Violation::Lost { record: 2, acknowledged: 1 }]);
    let back = history.judge(view(&[(1, 1), (2, 1), (3, 1)])).violations;
    assert_eq!(back, [Violation::Resurrected { record: 3, removed: 2, found: 1 }]);
    assert_eq!(history.next_version(1), 3);
    assert_eq!(history.next_version(77), 1);
}

#[test]
fn acknowledgements_may_overtake_each_other() {
    let mut history = history(&[(1, 1, PUT, false), (1, 2, PUT, false)]);
    history.acknowledged(1, 2, PUT);
    history.acknowledged(1, 1, PUT);
    assert!(history.judge(view(&[(1, 2)])).holds());
    assert!(!history.judge(view(&[(1, 1)])).holds());
    assert_eq!(history.acknowledgements(), 2);
}

#[test]
#[should_panic(expected = "was not started")]
fn an_acknowledgement_out_of_nowhere_is_the_tests_own_fault() {
    history(&[]).acknowledged(1, 1, PUT);
}

#[test]
#[should_panic(expected = "breaks the order")]
fn versions_must_grow() {
    history(&[(1, 5, PUT, true)]).started(1, 5, PUT);
}

/// Every single fault planted into a view of a random history is found; the view itself is accepted.
#[test]
fn every_planted_loss_is_found() {
    let mut random = crate::random::Random::new(4);
    for _ in 0..50 {
        let mut history = History::new(codec());
        let mut truth = BTreeMap::new();
        for _ in 0..200 {
            let record = random.below(40);
            let version = history.next_version(record);
            let write = if random.below(4) == 0 { REMOVE } else { PUT };
            history.started(record, version, write);
            history.acknowledged(record, version, write);
            match write {
                PUT => truth.insert(record, version),
                REMOVE => truth.remove(&record),
            };
        }
        let whole: Vec<(u64, u64)> = truth.into_iter().collect();
        assert!(history.judge(view(&whole)).holds());
        for fault in 0..whole.len() {
            let mut lost = whole.clone();
            let (record, version) = lost.remove(fault);
            assert_eq!(history.judge(view(&lost)).violations, [Violation::Lost { record, acknowledged: version }]);
            let mut older = whole.clone();
            older[fault].1 -= 1;
            assert_eq!(history.judge(view(&older)).violations.len(), 1);
        }
    }
}
