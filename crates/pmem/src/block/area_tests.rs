//! Runs of log areas against a simulated disk: what joins, what comes back after a power cut, what a checkpoint leaves
//! out.

use proptest::prelude::*;

use super::checkpoint::Upto;
use super::tests::{DATA, DISK, MANUAL, after_cut, after_cuts, open};
use super::*;
use crate::addr::{LINE_BYTES, PmAddr};
use crate::counters::CounterScope;
use crate::storage::SimulatedDisk;

/// Lines of the model.
const LINES: u64 = 24;

fn line(number: u64) -> PmAddr {
    PmAddr::new(0, DATA + number * LINE_BYTES)
}

fn found(content: &[u8], number: u64) -> u64 {
    let bytes = &content[line(number).offset() as usize..][..LINE_BYTES as usize];
    assert!(bytes.chunks_exact(8).all(|word| word == &bytes[..8]), "line {number} is torn: {bytes:?}");
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u64, u64),
    Flush(u64),
    Durable,
    /// Of all groups, of all but the newest ones, or when the ring is rather full.
    Checkpoint(Option<u64>),
    /// Everything is made durable first, as the contract says.
    Discard(u64, u64),
}

/// A content of a line: the step that stored it, and the step that discarded it.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    stored: u64,
    discarded: Option<u64>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = || (0..LINES, 1..6_u64).prop_map(|(first, count)| (first, count.min(LINES - first)));
    let step = prop_oneof![
        4 => run().prop_map(|(first, count)| Step::Append(first, count)),
        2 => (0..LINES).prop_map(Step::Flush),
        2 => Just(Step::Durable),
        2 => prop::option::of(0..4_u64).prop_map(Step::Checkpoint),
        2 => run().prop_map(|(first, count)| Step::Discard(first, count)),
    ];
    prop::collection::vec(step, 1..60)
}

/// Whether a line whose contents were `had` may have `found` when everything up to step `upto` is on the disk.
fn may_have(had: &[Content], upto: u64, found: u64) -> bool {
    let newest = had.iter().rposition(|content| content.stored <= upto).expect("zeroes at least");
    // A discard counts from its call on, whatever is durable.
    let is_any_older = had[newest].discarded.is_some();
    had[newest].stored == found || (is_any_older && had[..newest].iter().any(|content| content.stored == found))
}

/// One thread does `steps`. After each of them the power fails: the disk has all lines up to some step, and none of a
/// later one. Where a line was discarded, it may have an older content.
fn do_and_judge(steps: &[Step]) -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    let engine = &memory.block().expect("attached").engine;
    let mut history: Vec<Vec<Content>> = vec![vec![Content::default()]; LINES as usize];
    let mut durable = 0;
    for (now, step) in (1_u64..).zip(steps) {
        match *step {
            Step::Append(first, count) => {
                let bytes: Vec<u8> = now.to_le_bytes().repeat((count * 8) as usize);
                memory.append(line(first), &bytes);
                assert!(memory.flushed_at(line(first + count - 1), 8) >= memory.flushed_here());
                (first..first + count)
                    .for_each(|at| history[at as usize].push(Content { stored: now, ..Content::default() }));
            }
            Step::Flush(at) => {
                memory.write(line(at), &now.to_le_bytes().repeat(8));
                memory.flush(line(at), LINE_BYTES);
                history[at as usize].push(Content { stored: now, ..Content::default() });
            }
            Step::Durable => memory.durable()?,
            Step::Checkpoint(None) => engine.checkpoint(Upto::All)?,
            Step::Checkpoint(Some(0)) => engine.checkpoint(Upto::Oldest)?,
            Step::Checkpoint(Some(newest)) => {
                memory.durable()?;
                let upto = engine.groups.open_group().saturating_sub(newest);
                memory.block().expect("attached").checkpoint_upto(upto)?;
                durable = now;
            }
            Step::Discard(first, count) => {
                memory.durable()?;
                memory.discard(line(first), count * LINE_BYTES);
                for contents in &mut history[first as usize..(first + count) as usize] {
                    contents.iter_mut().for_each(|content| content.discarded = content.discarded.or(Some(now)));
                }
            }
        }
        if matches!(step, Step::Durable | Step::Discard(..)) {
            durable = now;
        }
        // One choice of surviving sectors after each step, in turns.
        let content = after_cut(&disk, now as usize)?;
        let is_state = |upto| (0..LINES).zip(&history).all(|(at, had)| may_have(had, upto, found(&content, at)));
        assert!((durable..=now).any(is_state), "after {now} steps, {durable} durable: no state of {steps:?}");
    }
    memory.block().expect("attached").close()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    #[test]
    fn a_power_cut_leaves_a_prefix_of_runs_and_lines(steps in steps()) {
        do_and_judge(&steps).expect("a working disk");
    }
}

#[test]
fn what_was_discarded_is_written_once_and_what_came_after_it_twice() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    let engine = &memory.block().expect("attached").engine;
    let bytes = |value: u64, lines: u64| value.to_le_bytes().repeat((lines * 8) as usize);
    let scope = CounterScope::start();
    memory.append(line(0), &bytes(1, 16));
    memory.append(line(16), &bytes(2, 4));
    memory.durable()?;
    assert_eq!((scope.delta().flushes, scope.delta().syncs), (20, 1));
    memory.discard(line(0), 16 * LINE_BYTES);
    // The same place again, before the checkpoint.
    memory.append(line(0), &bytes(3, 2));
    memory.durable()?;
    engine.checkpoint(Upto::All)?;
    let content = disk.power_cut(|_| false);
    let kept: Vec<u64> = (0..20).map(|at| found(&content, at)).collect();
    assert_eq!(kept, [&[3; 2][..], &[0; 14], &[2; 4]].concat());
    assert_eq!(scope.delta().checkpoint_bytes, 6 * LINE_BYTES);
    // A discard with nothing in the journal, and one more of a range that was discarded and used again.
    memory.discard(line(0), 16 * LINE_BYTES);
    memory.append(line(0), &bytes(4, 2));
    memory.durable()?;
    memory.discard(line(0), 16 * LINE_BYTES);
    memory.append(line(8), &bytes(5, 1));
    memory.durable()?;
    engine.checkpoint(Upto::All)?;
    let content = disk.power_cut(|_| false);
    assert_eq!([0, 1, 8].map(|at| found(&content, at)), [3, 3, 5]);
    memory.block().expect("attached").close()
}

/// A checkpoint that leaves the reason of a discard in the journal moves what was discarded.
#[test]
fn a_discard_waits_for_its_reason() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    let engine = &memory.block().expect("attached").engine;
    let bytes = |value: u64, lines: u64| value.to_le_bytes().repeat((lines * 8) as usize);
    memory.append(line(0), &bytes(1, 2));
    memory.append(line(4), &bytes(1, 2));
    memory.durable()?;
    let before = memory.flushed_here();
    assert!(!memory.has_left_journal(before));
    memory.append(line(8), &bytes(2, 1));
    memory.durable()?;
    memory.discard(line(0), 2 * LINE_BYTES);
    memory.leave_journal(before)?;
    assert!(memory.has_left_journal(before) && !memory.has_left_journal(memory.flushed_here()));
    assert_eq!([0, 1, 4, 8].map(|at| found(&disk.power_cut(|_| false), at)), [1, 1, 1, 0]);
    // The next one moves the reason.
    memory.append(line(0), &bytes(3, 2));
    memory.durable()?;
    memory.discard(line(0), 2 * LINE_BYTES);
    engine.checkpoint(Upto::All)?;
    assert!(memory.has_left_journal(memory.flushed_here()));
    assert_eq!([0, 1, 4, 8].map(|at| found(&disk.power_cut(|_| false), at)), [1, 1, 1, 2]);
    memory.block().expect("attached").close()
}

/// A run that is longer than a group may be, and a group with as many runs as it holds.
#[test]
fn long_runs_and_many_runs_take_several_groups() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    let bytes_max = memory.block().expect("attached").engine.groups.area_bytes_max() as u64;
    let long = 3 * bytes_max / LINE_BYTES + 5;
    assert!(DATA + 2 * long * LINE_BYTES < DISK);
    let scope = CounterScope::start();
    memory.append(line(0), &7_u64.to_le_bytes().repeat((long * 8) as usize));
    memory.durable()?;
    assert!(scope.delta().syncs >= 4, "{} syncs", scope.delta().syncs);
    (0..long).for_each(|at| memory.append(line(long + at), &8_u64.to_le_bytes().repeat(8)));
    memory.durable()?;
    for content in after_cuts(&disk)? {
        assert!((0..2 * long).all(|at| found(&content, at) == 7 + at / long));
    }
    memory.block().expect("attached").close()
}

/// Ranges that are no whole lines join line by line.
#[test]
fn a_ragged_append_is_a_flush() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    memory.append(line(0).plus(8), &[1; 100]);
    memory.append(line(3), &[2; 65]);
    memory.append(line(6), &[]);
    memory.durable()?;
    for content in after_cuts(&disk)? {
        let at = |number: u64| &content[line(number).offset() as usize..];
        assert!(at(0)[8..108].iter().all(|byte| *byte == 1) && at(3)[..65].iter().all(|byte| *byte == 2));
    }
    Ok(())
}

#[test]
#[should_panic(expected = "is in the journal")]
fn a_run_in_the_journal_is_refused() {
    let memory = open(Arc::new(SimulatedDisk::new(vec![0; DISK as usize])), &[], MANUAL).expect("a working disk");
    memory.append(PmAddr::new(0, 8192), &[0; 128]);
}
