//! Tests of the mixes, of determinism and of the growing population.

use std::collections::HashMap;

use super::*;
use crate::mix::OperationKind;

fn spec(workload: Workload) -> Spec {
    Spec { records: 5_000, operations: 100_000, seed: 11, ..Spec::new(workload) }
}

fn drive(spec: &Spec, thread: usize, operations: usize) -> Vec<Operation> {
    let mut stream = Generator::new(spec).unwrap().stream(thread);
    let mut drawn = Vec::with_capacity(operations);
    for _ in 0..operations {
        let operation = stream.next_operation();
        if operation.kind == OperationKind::Insert {
            stream.finish_insert();
        }
        drawn.push(operation);
    }
    drawn
}

#[test]
fn every_workload_has_its_exact_mix() {
    for workload in Workload::ALL.into_iter().chain([Workload::Load]) {
        let mix = workload.mix();
        let mut counts: HashMap<OperationKind, u32> = HashMap::new();
        for operation in drive(&spec(workload), 0, 100_000) {
            *counts.entry(operation.kind).or_default() += 1;
        }
        for kind in OperationKind::ALL {
            let share = mix.share(kind);
            let count = counts.get(&kind).copied().unwrap_or(0);
            let expected = u32::from(share) * 1_000;
            assert!(count.abs_diff(expected) <= 600, "{workload} {}: {count}", kind.name());
            assert_eq!(count == 0, share == 0, "{workload} {}", kind.name());
        }
    }
}

#[test]
fn scans_are_one_to_a_hundred_and_uniform() {
    let mut counts = [0_u32; 101];
    for operation in drive(&spec(Workload::E), 0, 100_000) {
        if operation.kind == OperationKind::Scan {
            counts[operation.count] += 1;
        } else {
            assert_eq!(operation.count, 1);
        }
    }
    assert_eq!(counts[0], 0);
    assert!(counts[1..].iter().all(|count| (750..1_150).contains(count)), "{counts:?}");
}

#[test]
fn streams_repeat_for_each_seed_and_thread() {
    for workload in Workload::ALL {
        let spec = Spec { threads: 1, ..spec(workload) };
        assert_eq!(drive(&spec, 0, 2_000), drive(&spec, 0, 2_000), "{workload}");
        let other = Spec { seed: 12, ..spec.clone() };
        assert_ne!(drive(&spec, 0, 2_000), drive(&other, 0, 2_000), "{workload}");
    }
    let two = Spec { threads: 2, ..spec(Workload::C) };
    assert_ne!(drive(&two, 0, 100), drive(&two, 1, 100));
}

#[test]
fn inserts_of_threads_interleave_and_become_visible_together() {
    let spec = Spec { threads: 2, records: 10, ..spec(Workload::Load) };
    let generator = Generator::new(&spec).unwrap();
    let (mut first, mut second) = (generator.stream(0), generator.stream(1));
    assert_eq!([first.next_operation().record, first.next_operation().record], [10, 12]);
    assert_eq!(second.next_operation().record, 11);
    let ledger = generator.ledger();
    assert_eq!(ledger.watermark(), 10);
    first.finish_insert();
    first.finish_insert();
    assert_eq!((ledger.watermark(), ledger.population()), (10, 12));
    second.finish_insert();
    assert_eq!((ledger.watermark(), ledger.population()), (12, 13));
}

#[test]
fn reads_follow_the_inserts_of_workload_d() {
    let spec = Spec { records: 100, ..spec(Workload::D) };
    let mut stream = Generator::new(&spec).unwrap().stream(0);
    let (mut inserted, mut newest_read) = (100, 0);
    for _ in 0..50_000 {
        let operation = stream.next_operation();
        if operation.kind == OperationKind::Insert {
            assert_eq!(operation.record, inserted);
            inserted += 1;
            stream.finish_insert();
        } else {
            assert!(operation.record < inserted);
            newest_read = newest_read.max(operation.record);
        }
    }
    assert!(newest_read > inserted - 50, "{newest_read} of {inserted}");
}

#[test]
fn shares_add_up() {
    let spec = Spec { operations: 10, threads: 4, ..spec(Workload::A) };
    let shares: Vec<u64> = (0..4).map(|thread| spec.operations_of(thread)).collect();
    assert_eq!(shares, [3, 3, 2, 2]);
    assert_eq!(Spec { operations: 1_000, ..Spec::new(Workload::D) }.capacity(), 100_050);
}

#[test]
fn what_cannot_run_is_refused() {
    let good = spec(Workload::A);
    assert_eq!(good.validate(), Ok(()));
    for bad in [
        Spec { records: 0, ..good.clone() },
        Spec { threads: 0, ..good.clone() },
        Spec { key_bytes: 4, ..good.clone() },
        Spec { value_bytes: 23, ..good.clone() },
        Spec { scan_records_max: 0, ..good.clone() },
        Spec { distribution: Distribution::Zipfian { theta: 1.0 }, ..good.clone() },
    ] {
        assert!(bad.validate().is_err(), "{bad:?}");
    }
    assert_eq!("A".parse(), Ok(Workload::A));
    assert!("g".parse::<Workload>().is_err());
}
