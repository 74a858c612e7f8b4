//! The group commit engine under a deterministic scheduler: every lock, atomic and copy is a point of choice.
//!
//! Each of three writers fences a line of its own, then a line that all share, then waits for durability and notes the
//! acknowledgement. After every sync of the device the state after a power cut is taken (all unsynced sectors lost). So
//! each schedule yields every durable state it passes through. The judge asks of each: is everything noted before the
//! cut there, and is no line there without the lines fenced before it?

use super::checkpoint::Upto;
use super::*;
use crate::addr::PmAddr;
use crate::domain::Domain;
use crate::mapping::{Backing, Mapping};
use crate::memory::Setup;
use crate::storage::{Failing, FaultPlan, FaultyStorage, OpenFile, SimulatedDisk};
use crate::sync::interleave;

const DISK: u64 = 96 << 10;
const DATA: u64 = 88 << 10;

fn word(content: &[u8], line: u64) -> u64 {
    u64::from_le_bytes(content[(DATA + line * 64) as usize..][..8].try_into().expect("eight bytes"))
}

fn files(disk: Arc<dyn Storage>) -> BlockFiles {
    files_of(&|| disk.clone(), DISK)
}

/// `open` returns an open file: the journal has one of its own.
fn files_of(open: &dyn Fn() -> Arc<dyn Storage>, bytes: u64) -> BlockFiles {
    BlockFiles {
        path: PathBuf::from("sim.pool"),
        journal: open(),
        direct: vec![open()],
        parts: vec![open()],
        part_bytes: vec![bytes],
        journal_offset: 4096,
        journal_bytes: JOURNAL_BYTES_MIN,
    }
}

/// A disk that notes what a power cut after each sync would leave, and what was acknowledged by then.
#[derive(Debug)]
struct Witness {
    disk: SimulatedDisk,
    noted: Arc<std::sync::Mutex<[u64; 4]>>,
    cuts: std::sync::Mutex<Vec<([u64; 4], Vec<u8>)>>,
}

impl Storage for Witness {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.disk.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.disk.write_at(bytes, offset)
    }
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        interleave();
        let count = self.disk.write_durably_at(bytes, offset)?;
        let noted = *self.noted.lock().expect("no panics");
        self.cuts.lock().expect("no panics").push((noted, self.disk.power_cut(|_| false)));
        interleave();
        Ok(count)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.disk.sync()
    }
}

/// One thread flushes a line again and again, one makes that line depend on another line, one commits. It is the
/// smallest schedule in which a copy made too late for its group would carry a store that depends on the next group.
fn a_dependant_and_its_ground() {
    let (memory, disk, _) = open();
    let at = |line: u64| PmAddr::new(0, DATA + line * 64);
    let flusher = memory.clone();
    let flusher = crate::sync::thread::spawn(move || (0..8).for_each(|_| flusher.flush(at(0), 64)));
    let committer = memory.clone();
    let committer = crate::sync::thread::spawn(move || {
        committer.persist(at(3), 8);
        committer.durable().expect("a working disk");
    });
    for round in 1..=6 {
        memory.store(at(2), round);
        memory.persist(at(2), 8);
        memory.store(at(0).plus(16), round);
    }
    flusher.join().expect("the flusher");
    committer.join().expect("the committer");
    for (_, content) in std::mem::take(&mut *disk.cuts.lock().expect("no panics")) {
        judge(&[0; 4], content);
    }
}

fn open() -> (Memory, Arc<Witness>, Arc<std::sync::Mutex<[u64; 4]>>) {
    let noted = Arc::new(std::sync::Mutex::new([0_u64; 4]));
    let disk = Arc::new(Witness {
        disk: SimulatedDisk::new(vec![0; DISK as usize]),
        noted: Arc::clone(&noted),
        cuts: std::sync::Mutex::new(Vec::new()),
    });
    (memory_of(&|| disk.clone(), DISK), disk, noted)
}

type Faulty = FaultyStorage<Arc<SimulatedDisk>>;

fn memory_over(device: &Arc<Faulty>) -> Memory {
    memory_of(&|| Arc::new(Interleaved(OpenFile::new(device))), DISK)
}

fn memory_of(open: &dyn Fn() -> Arc<dyn Storage>, bytes: u64) -> Memory {
    let mapping = Mapping::reserve(bytes, Backing::Anonymous).expect("address space");
    mapping.extend(None, bytes).expect("memory");
    let memory = Memory::new(Setup {
        parts: vec![mapping],
        domain: Domain::Block,
        read_only: false,
        tracer: None,
        medium: None,
    });
    let options =
        BlockOptions { background: false, gather: Duration::ZERO, spin: Duration::ZERO, ..BlockOptions::default() };
    memory.attach_block(BlockDomain::start(files_of(open, bytes), options).expect("a working disk"));
    memory
}

fn writers_and_a_power_cut() {
    let (memory, disk, noted) = open();
    let turn = Arc::new(Mutex::new(0_u64));
    let writers: Vec<_> = (1..=3_u64)
        .map(|writer| {
            let (memory, noted, turn) = (memory.clone(), Arc::clone(&noted), Arc::clone(&turn));
            crate::sync::thread::spawn(move || {
                for round in 1..=2_u64 {
                    let own = PmAddr::new(0, DATA + writer * 64);
                    memory.store(own, round);
                    memory.persist(own, 8);
                    {
                        // The shared line says who wrote last, and so depends on that writer's own line.
                        let mut count = lock(&turn);
                        *count += 1;
                        memory.store(PmAddr::new(0, DATA + 8 * writer), round);
                        memory.store(PmAddr::new(0, DATA), *count);
                    }
                    memory.persist(PmAddr::new(0, DATA), 64);
                    memory.durable().expect("a working disk");
                    noted.lock().expect("no panics")[writer as usize] = round;
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("the writer"));
    for (noted, content) in std::mem::take(&mut *disk.cuts.lock().expect("no panics")) {
        judge(&noted, content);
    }
}

fn judge(noted: &[u64; 4], content: Vec<u8>) {
    if content[DATA as usize..] == [0; (DISK - DATA) as usize] && content[4096 + 2 * 4096..][..8] == [0; 8] {
        assert_eq!(noted, &[0; 4], "acknowledged, and the journal is empty");
        return;
    }
    let reborn = Arc::new(SimulatedDisk::new(content));
    replay(&files(reborn.clone())).expect("a consistent journal");
    let content = reborn.content();
    for writer in 1..=3_u64 {
        let own = word(&content, writer);
        let shared = u64::from_le_bytes(content[(DATA + 8 * writer) as usize..][..8].try_into().expect("eight bytes"));
        assert!(own >= noted[writer as usize], "writer {writer}: acknowledged {}, found {own}", noted[writer as usize]);
        assert!(own >= shared, "writer {writer}: the shared line tells of round {shared}, its own line of {own}");
        assert!(shared >= noted[writer as usize], "writer {writer}: its mark in the shared line was lost");
    }
}

#[test]
fn random_schedules_lose_nothing() {
    shuttle::check_random(writers_and_a_power_cut, 1000);
}

#[test]
fn priority_schedules_lose_nothing() {
    shuttle::check_pct(writers_and_a_power_cut, 1000, 3);
}

#[test]
fn a_dependant_never_lands_in_an_earlier_group() {
    shuttle::check_random(a_dependant_and_its_ground, 20_000);
}

/// Contents of the disk after a power cut and a replay, with the choice of the unsynced sectors that survive.
fn after_power_cuts(disk: &SimulatedDisk) -> impl Iterator<Item = (u64, Vec<u8>)> {
    [0_u64, u64::MAX, 0x5555_5555_5555_5555, 0x3C3C_3C3C_3C3C_3C3C].into_iter().map(|survivors| {
        let mut choice = survivors;
        let content = disk.power_cut(|_| {
            choice = choice.rotate_left(1);
            choice & 1 != 0
        });
        let bytes = content.len() as u64;
        let reborn = Arc::new(SimulatedDisk::new(content));
        replay(&files_of(&|| reborn.clone(), bytes)).expect("a consistent journal");
        (survivors, reborn.content())
    })
}

/// Units of the ring that are used when the faults begin: the next few commits need a checkpoint.
const UNITS_USED: u64 = 13;

/// Three writers and a checkpointer beside them, on a disk that fails as `plan` says after the ring is almost full.
///
/// Judged at the end: every line that was acknowledged is there, whichever of the sectors in doubt survive.
fn committers_on_a_failing_disk(plan: FaultPlan) {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let faulty = Arc::new(FaultyStorage::new(Arc::clone(&disk), FaultPlan::default()));
    let memory = memory_over(&faulty);
    let used = PmAddr::new(0, DATA + 4 * 64);
    for round in 1..=UNITS_USED {
        memory.store(used, round);
        memory.persist(used, 8);
        memory.durable().expect("no fault yet");
    }
    faulty.arm(plan);
    let checkpointer = {
        let memory = memory.clone();
        crate::sync::thread::spawn(move || {
            let engine = &memory.block().expect("attached").engine;
            for _ in 0..2 {
                if engine.checkpoint(Upto::All).is_err() {
                    engine.wake_all();
                }
            }
        })
    };
    let writers: Vec<_> = (1..=3_u64)
        .map(|writer| {
            let memory = memory.clone();
            crate::sync::thread::spawn(move || {
                let own = PmAddr::new(0, DATA + writer * 64);
                for round in 1..=3_u64 {
                    memory.store(own, round);
                    memory.persist(own, 8);
                    if memory.durable().is_err() {
                        assert!(memory.durable().is_err(), "a poisoned pool stays poisoned");
                        return round - 1;
                    }
                }
                3
            })
        })
        .collect();
    let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().expect("the writer")).collect();
    checkpointer.join().expect("the checkpointer");
    for (_, content) in after_power_cuts(&disk) {
        assert_eq!(word(&content, 4), UNITS_USED, "{plan:?}: acknowledged before the first fault");
        for (writer, noted) in (1..).zip(&acknowledged) {
            let found = word(&content, writer);
            assert!(found >= *noted, "{plan:?}: writer {writer}, acknowledged {noted}, found {found}");
        }
    }
}

/// A storage with points of choice around each call.
#[derive(Debug)]
struct Interleaved(OpenFile<Arc<SimulatedDisk>>);

impl Storage for Interleaved {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        interleave();
        self.0.write_at(bytes, offset)
    }
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        interleave();
        let done = self.0.write_durably_at(bytes, offset);
        interleave();
        done
    }
    fn sync(&self) -> std::io::Result<()> {
        interleave();
        let done = self.0.sync();
        interleave();
        done
    }
}

/// The workload above makes about this many writes and syncs.
const CALLS_MAX: u64 = 16;

fn every_call(plan: impl Fn(u64) -> FaultPlan) {
    for number in 1..=CALLS_MAX {
        let plan = plan(number);
        shuttle::check_random(move || committers_on_a_failing_disk(plan), 60);
        shuttle::check_pct(move || committers_on_a_failing_disk(plan), 60, 3);
    }
}

#[test]
fn a_sync_that_fails_once_loses_nothing_acknowledged() {
    every_call(|number| FaultPlan { fail_sync: Some(Failing::once(number)), ..FaultPlan::default() });
}

#[test]
fn syncs_that_fail_for_ever_lose_nothing_acknowledged() {
    every_call(|number| FaultPlan { fail_sync: Some(Failing::for_ever(number)), ..FaultPlan::default() });
}

#[test]
fn a_write_that_fails_once_loses_nothing_acknowledged() {
    every_call(|number| FaultPlan { fail_write: Some(Failing::once(number)), ..FaultPlan::default() });
}

#[test]
fn writes_that_fail_for_ever_lose_nothing_acknowledged() {
    every_call(|number| FaultPlan { fail_write: Some(Failing::for_ever(number)), ..FaultPlan::default() });
}

#[test]
fn a_short_write_loses_nothing_acknowledged() {
    every_call(|number| FaultPlan { short_write: Some((number, 700)), ..FaultPlan::default() });
}

#[test]
fn a_short_write_with_no_space_for_the_rest_loses_nothing_acknowledged() {
    every_call(|number| FaultPlan {
        short_write: Some((number, 1024)),
        fail_write: Some(Failing::once(number + 1)),
        ..FaultPlan::default()
    });
}

/// Two writers and a thread that closes: everything acknowledged is found, and nothing is acknowledged after the close.
fn a_close_beside_writers() {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let faulty = Arc::new(FaultyStorage::new(Arc::clone(&disk), FaultPlan::default()));
    let memory = memory_over(&faulty);
    let writers: Vec<_> = (1..=2_u64)
        .map(|writer| {
            let memory = memory.clone();
            crate::sync::thread::spawn(move || {
                let own = PmAddr::new(0, DATA + writer * 64);
                for round in 1..=3_u64 {
                    memory.store(own, round);
                    memory.persist(own, 8);
                    if let Err(error) = memory.durable() {
                        assert!(matches!(error, Error::Closed { .. }), "{error}");
                        return round - 1;
                    }
                }
                3
            })
        })
        .collect();
    let last = PmAddr::new(0, DATA + 3 * 64);
    memory.store(last, 1);
    memory.persist(last, 8);
    memory.block().expect("attached").close().expect("a working disk");
    let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().expect("the writer")).collect();
    let reborn = Arc::new(SimulatedDisk::new(disk.power_cut(|_| false)));
    assert_eq!(replay(&files(reborn.clone())).expect("a closed journal"), JournalRecovery::default());
    let content = reborn.content();
    assert_eq!(word(&content, 3), 1, "flushed before the close, and never waited for");
    for (writer, noted) in (1..).zip(acknowledged) {
        let found = word(&content, writer);
        assert!(found >= noted, "writer {writer}: acknowledged {noted}, found {found}");
    }
}

#[test]
fn a_close_loses_nothing_acknowledged_beside_it() {
    shuttle::check_random(a_close_beside_writers, 2000);
    shuttle::check_pct(a_close_beside_writers, 2000, 3);
}

/// A close while a checkpoint is under way, on a disk that fails as `plan` says. A checkpoint that fails has taken its
/// records from the list, so the close must not move the journal's tail past them.
fn a_close_beside_a_checkpoint(plan: FaultPlan) {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let faulty = Arc::new(FaultyStorage::new(Arc::clone(&disk), FaultPlan::default()));
    let memory = memory_over(&faulty);
    for line in 1..=4 {
        memory.store(PmAddr::new(0, DATA + line * 64), line);
        memory.persist(PmAddr::new(0, DATA + line * 64), 8);
        memory.durable().expect("no fault yet");
    }
    faulty.arm(plan);
    let checkpointer = {
        let memory = memory.clone();
        crate::sync::thread::spawn(move || {
            let engine = &memory.block().expect("attached").engine;
            if engine.checkpoint(Upto::All).is_err() {
                engine.wake_all();
            }
        })
    };
    let closed = memory.block().expect("attached").close();
    checkpointer.join().expect("the checkpointer");
    for (survivors, content) in after_power_cuts(&disk) {
        for line in 1..=4 {
            assert_eq!(word(&content, line), line, "{plan:?}, survivors {survivors:#x}, closed: {closed:?}");
        }
    }
}

#[test]
fn a_close_beside_a_checkpoint_that_fails_loses_nothing() {
    for number in 1..=6 {
        for plan in [
            FaultPlan { fail_sync: Some(Failing::once(number)), ..FaultPlan::default() },
            FaultPlan { fail_write: Some(Failing::once(number)), ..FaultPlan::default() },
            FaultPlan {
                short_write: Some((number, 64)),
                fail_write: Some(Failing::once(number + 1)),
                ..FaultPlan::default()
            },
        ] {
            shuttle::check_random(move || a_close_beside_a_checkpoint(plan), 200);
            shuttle::check_pct(move || a_close_beside_a_checkpoint(plan), 200, 3);
        }
    }
}

/// A disk with lines enough to fill a shard of a group.
const LARGE_DISK: u64 = 192 << 10;

/// A checkpoint that fails beside a committer, and a flusher that finds its group full: it leaves out a line, and then
/// flushes one that depends on it.
fn a_full_group_beside_a_checkpoint(plan: FaultPlan) {
    let disk = Arc::new(SimulatedDisk::new(vec![0; LARGE_DISK as usize]));
    let faulty = Arc::new(FaultyStorage::new(Arc::clone(&disk), FaultPlan::default()));
    let memory = memory_of(&|| Arc::new(Interleaved(OpenFile::new(&faulty))), LARGE_DISK);
    let lines = (DATA..LARGE_DISK).step_by(64).map(|offset| PmAddr::new(0, offset));
    let (mut alike, mut others): (Vec<_>, Vec<_>) = lines.partition(|at| group::shard_of(at.line()) == 0);
    let (ground, dependant, first, last) =
        (alike.pop().expect("a line"), others.pop().expect("a line"), others.pop().expect("a line"), others.pop());
    memory.store(first, 1);
    memory.persist(first, 8);
    memory.durable().expect("no fault yet");
    let engine = &memory.block().expect("attached").engine;
    let open = engine.groups.open_group();
    let is_full = |at: &PmAddr| engine.groups.join(&memory, at.line()) == Joined::Full(open);
    assert!(alike.iter().any(is_full), "the lines fill the shard");
    faulty.arm(plan);
    let checkpointer = {
        let memory = memory.clone();
        crate::sync::thread::spawn(move || {
            let engine = &memory.block().expect("attached").engine;
            if engine.checkpoint(Upto::All).is_err() {
                engine.wake_all();
            }
        })
    };
    let committer = {
        let (memory, last) = (memory.clone(), last.expect("a line"));
        crate::sync::thread::spawn(move || {
            memory.persist(last, 8);
            let _ = memory.durable();
        })
    };
    for at in [ground, dependant] {
        memory.store(at, 1);
        memory.persist(at, 8);
    }
    checkpointer.join().expect("the checkpointer");
    committer.join().expect("the committer");
    for (_, content) in after_power_cuts(&disk) {
        let word = |at: PmAddr| content[at.offset() as usize];
        assert_eq!(word(first), 1, "{plan:?}: acknowledged before the first fault");
        assert!(word(ground) >= word(dependant), "{plan:?}: a line is there without the one that was fenced before it");
    }
}

fn every_failing_checkpoint() {
    for number in 1..=4 {
        for plan in [
            FaultPlan { fail_sync: Some(Failing::once(number)), ..FaultPlan::default() },
            FaultPlan { fail_write: Some(Failing::once(number)), ..FaultPlan::default() },
        ] {
            shuttle::check_random(move || a_full_group_beside_a_checkpoint(plan), 300);
            shuttle::check_pct(move || a_full_group_beside_a_checkpoint(plan), 300, 3);
        }
    }
}

#[test]
#[cfg(feature = "planted-bugs")]
fn a_group_that_lacks_a_line_is_never_committed() {
    every_failing_checkpoint();
    // A committer that does not look again is found.
    crate::planted::plant(Some("block-commits-after-halt"));
    let found = catch_unwind(every_failing_checkpoint);
    crate::planted::plant(None);
    assert!(found.is_err(), "nothing notices a committer that goes on after a halt");
}

/// The owner of a line flushed an older content of it. Another thread commits, a third one checkpoints. Then the owner
/// writes the line directly: no older content may follow, not even after a power cut.
fn a_direct_write_beside_commits_and_checkpoints() {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = memory_over(&Arc::new(FaultyStorage::new(Arc::clone(&disk), FaultPlan::default())));
    let at = |line: u64| PmAddr::new(0, DATA + line * 64);
    memory.store(at(5), 1);
    memory.persist(at(5), 8);
    let committer = memory.clone();
    let committer = crate::sync::thread::spawn(move || {
        committer.store(at(1), 1);
        committer.persist(at(1), 8);
        committer.durable().expect("a working disk");
    });
    let checkpointer = memory.clone();
    let checkpointer = crate::sync::thread::spawn(move || {
        let engine = &checkpointer.block().expect("attached").engine;
        (0..2).for_each(|_| engine.checkpoint(Upto::All).expect("a working disk"));
    });
    memory.clear_for_direct_writes(at(5), 64).expect("a working disk");
    memory.write_directly(at(5), &[2; 64]).expect("a working disk");
    memory.settle().expect("a working disk");
    committer.join().expect("the committer");
    checkpointer.join().expect("the checkpointer");
    memory.store(at(1), 2);
    memory.persist(at(1), 8);
    memory.durable().expect("a working disk");
    memory.block().expect("attached").engine.checkpoint(Upto::All).expect("a working disk");
    for (_, content) in after_power_cuts(&disk) {
        assert_eq!(word(&content, 5), 0x0202_0202_0202_0202, "an older content followed");
    }
}

#[test]
fn no_schedule_puts_an_older_line_over_a_direct_write_and_each_broken_rule_is_found() {
    shuttle::check_random(a_direct_write_beside_commits_and_checkpoints, 2_000);
    shuttle::check_pct(a_direct_write_beside_commits_and_checkpoints, 2_000, 3);
    for bug in ["block-clears-beside-commit", "block-clears-beside-checkpoint"] {
        crate::planted::plant(Some(bug));
        let found = std::panic::catch_unwind(|| {
            shuttle::check_pct(a_direct_write_beside_commits_and_checkpoints, 20_000, 3);
        });
        crate::planted::plant(None);
        assert!(found.is_err(), "{bug} is not found");
    }
}

/// Two writers append runs to logs of their own and wait. Their runs depend on a line that both flush before, and one
/// that both flush afterwards depends on the runs.
fn runs_beside_lines_and_a_power_cut() {
    let (memory, disk, noted) = open();
    let turn = Arc::new(Mutex::new(0_u64));
    let at = |line: u64| PmAddr::new(0, DATA + line * 64);
    let writers: Vec<_> = (1..=2_u64)
        .map(|writer| {
            let (memory, noted, turn) = (memory.clone(), Arc::clone(&noted), Arc::clone(&turn));
            crate::sync::thread::spawn(move || {
                for round in 1..=2_u64 {
                    let own = at(8 * writer + 2 * round);
                    memory.store(at(writer), round);
                    memory.persist(at(writer), 8);
                    memory.append(own, &round.to_le_bytes().repeat(16));
                    memory.fence();
                    {
                        let mut count = lock(&turn);
                        *count += 1;
                        memory.store(at(0).plus(8 * writer), round);
                        memory.store(at(0), *count);
                    }
                    memory.persist(at(0), 64);
                    memory.durable().expect("a working disk");
                    noted.lock().expect("no panics")[writer as usize] = round;
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("the writer"));
    for (noted, content) in std::mem::take(&mut *disk.cuts.lock().expect("no panics")) {
        let reborn = Arc::new(SimulatedDisk::new(content));
        replay(&files(reborn.clone())).expect("a consistent journal");
        let content = reborn.content();
        for writer in 1..=2_u64 {
            let word =
                |at: PmAddr| u64::from_le_bytes(content[at.offset() as usize..][..8].try_into().expect("8 bytes"));
            let runs = (1..=2).take_while(|round| {
                let run = at(8 * writer + 2 * round);
                let (first, second) = (word(run), word(run.plus(64)));
                assert_eq!(first, second, "writer {writer}: half a run of round {round}");
                first == *round
            });
            let (before, runs, after) = (word(at(writer)), runs.count() as u64, word(at(0).plus(8 * writer)));
            let noted = noted[writer as usize];
            assert!(before >= runs, "writer {writer}: {runs} runs without the lines before, {before}");
            assert!(runs >= after, "writer {writer}: {runs} runs, the line after them tells of {after}");
            assert!(after >= noted, "writer {writer}: acknowledged {noted}, found {after}");
        }
    }
}

/// One thread appends a line that it has flushed before, then flushes it again. Another one commits. The last content
/// counts, whatever is committed when.
fn a_line_in_both_ways() {
    let (memory, disk, noted) = open();
    let at = PmAddr::new(0, DATA + 64);
    let committer = memory.clone();
    let committer = crate::sync::thread::spawn(move || {
        for round in 1..=2 {
            committer.store(PmAddr::new(0, DATA + 128), round);
            committer.persist(PmAddr::new(0, DATA + 128), 8);
            committer.durable().expect("a working disk");
        }
    });
    let mut next = 0;
    for _ in 0..2 {
        memory.store(at, next + 1);
        memory.persist(at, 8);
        memory.append(at, &(next + 2).to_le_bytes().repeat(8));
        memory.fence();
        memory.store(at, next + 3);
        memory.persist(at, 8);
        memory.durable().expect("a working disk");
        next += 3;
        noted.lock().expect("no panics")[1] = next;
    }
    committer.join().expect("the committer");
    for (noted, content) in std::mem::take(&mut *disk.cuts.lock().expect("no panics")) {
        let reborn = Arc::new(SimulatedDisk::new(content));
        replay(&files(reborn.clone())).expect("a consistent journal");
        let found = word(&reborn.content(), 1);
        assert!(found >= noted[1], "acknowledged {}, found {found}", noted[1]);
    }
}

#[test]
fn runs_join_no_group_too_early_or_too_late() {
    shuttle::check_random(a_line_in_both_ways, 3_000);
    shuttle::check_pct(a_line_in_both_ways, 3_000, 3);
    shuttle::check_random(runs_beside_lines_and_a_power_cut, 2_000);
    shuttle::check_pct(runs_beside_lines_and_a_power_cut, 2_000, 3);
    crate::planted::plant(Some("block-area-joins-late"));
    let found = std::panic::catch_unwind(|| shuttle::check_pct(runs_beside_lines_and_a_power_cut, 20_000, 3));
    crate::planted::plant(None);
    assert!(found.is_err(), "block-area-joins-late is not found");
}
