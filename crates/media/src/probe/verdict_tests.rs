//! The rules on made-up figures, and on the emulated medium of the paper.

use super::*;
use crate::MediaProfile;
use crate::TimeMode;
use crate::probe::{Budget, Probe, ProbeOptions, Spread, TargetChoice};

fn spread(value: f64) -> Spread {
    Spread::of([value]).expect("finite")
}

fn cell(section: Section, operation: Operation, access_bytes: u64, threads: u32, rate: f64) -> Cell {
    let access = if operation == Operation::Read { Access::Load } else { Access::Stream };
    Cell {
        section,
        key: CellKey {
            subject: Subject::Target,
            operation,
            pattern: Pattern::Random,
            access,
            fence_bytes: 0,
            access_bytes,
            threads,
            beside_threads: 0,
            place: Place::Near,
            working_set_bytes: 1 << 28,
        },
        operations: 1,
        repetitions: 5,
        latency_ns: spread(access_bytes as f64 * f64::from(threads) * 1e9 / rate),
        bandwidth_bytes_per_s: spread(rate),
    }
}

fn result(cells: Vec<Cell>) -> ProbeResult {
    ProbeResult { cells, ..ProbeResult::new() }
}

fn value(result: &ProbeResult, topic: Topic) -> Option<f64> {
    Verdict::of(result).about(topic)?.value
}

#[test]
fn the_best_size_is_the_smallest_that_reaches_nine_tenths() {
    let rates = [(8, 9e9), (64, 1e9), (128, 2e9), (256, 3.7e9), (512, 4e9), (1 << 20, 1e9)];
    let cells = rates.map(|(bytes, rate)| cell(Section::Latency, Operation::Read, bytes, 1, rate));
    let found = result(cells.to_vec());
    assert_eq!(value(&found, Topic::RandomReadBytes), Some(256.0), "8 B is below a line and counts not");
    assert_eq!(value(&found, Topic::SmallRandomReads), Some(0.25));
    assert_eq!(value(&found, Topic::LargeAccesses), Some(0.25));
    assert_eq!(value(&found, Topic::RandomWriteBytes), None, "nothing was written");
    let finding = Verdict::of(&found).about(Topic::RandomReadBytes).cloned().expect("a finding");
    assert!(finding.evidence.contains("3.7 GB/s at 256 B") && finding.evidence.contains("4 GB/s"), "{finding:?}");
    // With more threads, 64 B reach the same bandwidth.
    let mut cells = found.cells.clone();
    cells.push(cell(Section::Threads, Operation::Read, 64, 8, 3.9e9));
    assert_eq!(value(&result(cells), Topic::RandomReadBytes), Some(64.0));
}

#[test]
fn the_best_number_of_threads_is_the_smallest_that_reaches_nine_tenths() {
    let by_threads = |rates: &[(u32, f64)]| {
        result(
            rates
                .iter()
                .map(|(threads, rate)| cell(Section::Threads, Operation::Write, 256, *threads, *rate))
                .collect(),
        )
    };
    let falls = by_threads(&[(1, 1e9), (2, 1.9e9), (4, 2e9), (16, 1.2e9)]);
    assert_eq!(value(&falls, Topic::WriteThreads), Some(2.0));
    let sentence =
        |result: &ProbeResult| Verdict::of(result).about(Topic::WriteThreads).map(|one| one.sentence.clone());
    assert!(sentence(&falls).is_some_and(|text| text.contains("16 lose 40 %")), "{:?}", sentence(&falls));
    let grows = by_threads(&[(1, 1e9), (2, 2e9), (4, 4e9)]);
    assert!(sentence(&grows).is_some_and(|text| text.contains("still grew")));
    assert_eq!(value(&by_threads(&[(1, 1e9)]), Topic::WriteThreads), None, "one count is no comparison");
}

#[test]
fn streaming_begins_where_it_is_never_slower_again() {
    let with = |streams: &[(u64, f64, f64)]| {
        let way = |size, access, nanoseconds| {
            let mut cell = cell(Section::Instruction, Operation::Write, size, 1, 1e9);
            cell.key.access = access;
            cell.latency_ns = spread(nanoseconds);
            cell
        };
        let both = |(size, flush, stream): &(u64, f64, f64)| {
            [way(*size, Access::StoreFlush, *flush), way(*size, Access::Stream, *stream)]
        };
        result(streams.iter().flat_map(both).collect())
    };
    let usual =
        with(&[(8, 100.0, 600.0), (64, 100.0, 90.0), (256, 100.0, 120.0), (512, 200.0, 209.0), (4096, 900.0, 200.0)]);
    assert_eq!(value(&usual, Topic::StreamFromBytes), Some(512.0), "5 % are no difference, 20 % are one");
    assert_eq!(value(&with(&[(8, 9.0, 8.0), (64, 9.0, 8.0)]), Topic::StreamFromBytes), Some(8.0));
    let never = with(&[(64, 9.0, 8.0), (4096, 100.0, 200.0)]);
    let finding = Verdict::of(&never).about(Topic::StreamFromBytes).cloned().expect("a finding");
    assert!(finding.value.is_none() && finding.sentence.contains("at every size"), "{finding:?}");
}

#[test]
fn fences_nodes_and_mixtures_are_judged_by_their_ratio() {
    let fenced = |plain: f64, fenced: f64| {
        let plain = cell(Section::Fence, Operation::Write, 65536, 4, plain);
        let mut other = cell(Section::Fence, Operation::Write, 65536, 4, fenced);
        other.key.fence_bytes = FENCE_BYTES;
        Verdict::of(&result(vec![plain, other])).about(Topic::Fence).cloned().expect("a finding")
    };
    assert_eq!(fenced(1e9, 2e9).advice, Advice::Avoid);
    assert!(fenced(1e9, 2e9).sentence.contains("from 64 KiB on") && fenced(1e9, 2e9).sentence.contains("2 times"));
    assert!(fenced(2e9, 1e9).sentence.contains("once, at their end"));
    assert!(fenced(1e9, 1.05e9).sentence.contains("no difference"));

    let far = |near: f64, far: f64| {
        let near = cell(Section::Nodes, Operation::Read, 256, 8, near);
        let mut other = cell(Section::Nodes, Operation::Read, 256, 8, far);
        other.key.place = Place::Far;
        Verdict::of(&result(vec![near, other])).about(Topic::FarReads).cloned().expect("a finding")
    };
    assert_eq!((far(10e9, 1e9).advice, far(10e9, 1e9).value), (Advice::Avoid, Some(10.0)));
    assert_eq!(far(10e9, 9.9e9).advice, Advice::Know);

    let alone = cell(Section::Mixed, Operation::Read, 256, 4, 4e9);
    let mut beside = cell(Section::Mixed, Operation::Read, 256, 4, 1e9);
    beside.key.beside_threads = 1;
    let finding = Verdict::of(&result(vec![alone, beside])).about(Topic::ReadsBesideWrites).cloned().expect("one");
    assert!(finding.sentence.contains("75 %"), "{finding:?}");
}

#[test]
fn an_unquiet_machine_is_told() {
    let mut noisy = cell(Section::Latency, Operation::Read, 64, 1, 1e9);
    noisy.latency_ns.variation = 0.3;
    let mut found = result(vec![noisy]);
    found.method.repetitions = 5;
    let sentence = Verdict::of(&found).about(Topic::Noise).map(|one| one.sentence.clone()).expect("a finding");
    assert!(sentence.contains("not quiet"), "{sentence}");
    let evidence = Verdict::of(&found).about(Topic::Noise).map(|one| one.evidence.clone()).expect("a finding");
    assert!(evidence.contains("1 by more than 20 %"), "{evidence}");
    assert!(Verdict::of(&ProbeResult::new()).findings.is_empty(), "nothing measured, nothing said");
}

fn noisy(mut cell: Cell) -> Cell {
    cell.latency_ns.variation = 0.6;
    cell.bandwidth_bytes_per_s.variation = 0.6;
    cell
}

/// `Store and flush at every size` needs more than one disturbed figure at the largest size.
#[test]
fn a_noisy_size_does_not_decide_between_streaming_and_flushing() {
    let with = |last_is_noisy: bool| {
        let way = |size, access, nanoseconds| {
            let mut cell = cell(Section::Instruction, Operation::Write, size, 1, 1e9);
            cell.key.access = access;
            cell.latency_ns = spread(nanoseconds);
            if last_is_noisy && size == 16 << 20 { noisy(cell) } else { cell }
        };
        let sizes = [(64, 100.0, 200.0), (256, 120.0, 100.0), (4096, 900.0, 300.0), (16 << 20, 1e6, 2e6)];
        let both = |(size, flush, stream)| [way(size, Access::StoreFlush, flush), way(size, Access::Stream, stream)];
        result(sizes.into_iter().flat_map(both).collect())
    };
    assert_eq!(value(&with(true), Topic::StreamFromBytes), Some(256.0));
    assert_eq!(value(&with(false), Topic::StreamFromBytes), None, "a sure one counts");
}

#[test]
fn a_noisy_peak_makes_neither_a_best_size_nor_a_fall() {
    let rates = [(64, 1e9), (256, 3.9e9), (512, 4e9), (4096, 4e9), (65536, 4e9)];
    let mut cells = rates.map(|(bytes, rate)| cell(Section::Latency, Operation::Read, bytes, 1, rate)).to_vec();
    cells.push(noisy(cell(Section::Latency, Operation::Read, 1024, 1, 9e9)));
    assert_eq!(value(&result(cells.clone()), Topic::RandomReadBytes), Some(256.0), "9 GB/s at 1 KiB are a mistake");
    assert_eq!(value(&result(cells.clone()), Topic::LargeAccesses), None);
    cells.push(noisy(cell(Section::Latency, Operation::Read, 1 << 24, 1, 1e8)));
    assert_eq!(value(&result(cells.clone()), Topic::LargeAccesses), None, "so is a fall at the end");
    // More threads, but noisy: the sure figure of one thread remains.
    cells.push(noisy(cell(Section::Threads, Operation::Read, 64, 8, 9e9)));
    assert_eq!(value(&result(cells), Topic::RandomReadBytes), Some(256.0));
}

#[test]
fn a_noisy_number_of_threads_is_not_the_best() {
    let by_threads = |loud: bool| {
        let rates = [(1, 1e9), (2, 2e9), (4, 2.1e9), (8, 8e9)];
        let one = |(threads, rate)| {
            let cell = cell(Section::Threads, Operation::Write, 256, threads, rate);
            if loud && threads == 8 { noisy(cell) } else { cell }
        };
        result(rates.into_iter().map(one).collect())
    };
    assert_eq!(value(&by_threads(true), Topic::WriteThreads), Some(2.0));
    assert_eq!(value(&by_threads(false), Topic::WriteThreads), Some(8.0));
}

#[test]
fn rules_that_compare_two_cells_are_silent_when_one_of_them_is_noisy() {
    let plain = cell(Section::Fence, Operation::Write, 65536, 4, 1e9);
    let mut fenced = cell(Section::Fence, Operation::Write, 65536, 4, 3e9);
    fenced.key.fence_bytes = FENCE_BYTES;
    let near = cell(Section::Nodes, Operation::Read, 256, 8, 9e9);
    let mut far = cell(Section::Nodes, Operation::Read, 256, 8, 1e9);
    far.key.place = Place::Far;
    let alone = cell(Section::Mixed, Operation::Read, 256, 4, 4e9);
    let mut beside = cell(Section::Mixed, Operation::Read, 256, 4, 1e9);
    beside.key.beside_threads = 1;
    for (one, other, topic) in
        [(plain, fenced, Topic::Fence), (near, far, Topic::FarReads), (alone, beside, Topic::ReadsBesideWrites)]
    {
        let verdict = |cells| Verdict::of(&result(cells)).about(topic).is_some();
        assert!(verdict(vec![one.clone(), other.clone()]), "{topic:?}");
        assert!(!verdict(vec![noisy(one.clone()), other.clone()]) && !verdict(vec![one, noisy(other)]), "{topic:?}");
    }
}

/// Paper 2, section 2.2.2: random accesses reach the bandwidth at 256 B, sequential ones at 64 B.
#[test]
fn the_emulated_medium_of_the_paper_is_judged_as_in_the_paper() {
    let profile = MediaProfile::builtin("optane").expect("built in");
    let options = ProbeOptions {
        budget: Budget { virtual_operations: 512, ..Budget::QUICK },
        // Leaves out the largest accesses with the most threads, because they take the longest.
        range_bytes: Some(64 << 20),
        sections: vec![Section::Latency, Section::Threads, Section::Fence, Section::Mixed, Section::Nodes],
        ..ProbeOptions::default()
    };
    let probe = Probe::open(TargetChoice::Profile(Box::new(profile), TimeMode::Virtual), options).expect("planned");
    let found = probe.run(&mut |_| ()).expect("measured");
    let verdict = Verdict::of(&found);
    for (topic, bytes) in [
        (Topic::RandomReadBytes, 256.0),
        (Topic::RandomWriteBytes, 256.0),
        (Topic::SequentialReadBytes, 64.0),
        (Topic::SequentialWriteBytes, 64.0),
    ] {
        let finding = verdict.about(topic).expect("a finding");
        assert_eq!(finding.value, Some(bytes), "{finding:?}");
    }
    for topic in [
        Topic::SmallRandomWrites,
        Topic::SmallStreams,
        Topic::Fence,
        Topic::FarReads,
        Topic::FarWrites,
        Topic::ReadsBesideWrites,
    ] {
        let finding = verdict.about(topic).unwrap_or_else(|| panic!("{topic:?} in {verdict:?}"));
        assert_eq!(finding.advice, Advice::Avoid, "{finding:?}");
    }
}
