//! The block domain against a simulated disk: power cuts between any two syncs, failed syncs, a ring that runs full.
//!
//! Fault model: a sector (512 bytes) written since the last sync survives a power cut or not, independently of all
//! others. Synced bytes survive. A failed sync leaves unsynced bytes undefined.

use std::sync::atomic::{AtomicU64 as StdAtomicU64, Ordering as StdOrdering};

use proptest::prelude::*;

use std::time::Instant;

use super::*;
use crate::addr::PmAddr;
use crate::counters::CounterScope;
use crate::domain::Domain;
use crate::mapping::{Backing, Mapping};
use crate::medium::Medium;
use crate::memory::Setup;
use crate::storage::{Cached, Failing, FaultPlan, FaultyStorage, SimulatedDisk, write_all};

const JOURNAL_OFFSET: u64 = 4096;
pub(super) const DATA: u64 = 1 << 20;
pub(super) const DISK: u64 = 2 << 20;

fn files(storage: Arc<dyn Storage>) -> BlockFiles {
    BlockFiles {
        path: PathBuf::from("sim.pool"),
        journal: Arc::clone(&storage),
        direct: vec![Arc::clone(&storage)],
        parts: vec![storage],
        part_bytes: vec![DISK],
        journal_offset: JOURNAL_OFFSET,
        journal_bytes: JOURNAL_BYTES_MIN + 48 * 4096,
    }
}

/// Memory over the disk's present content, as a private mapping would show it.
pub(super) fn open(storage: Arc<dyn Storage>, content: &[u8], options: BlockOptions) -> Result<Memory> {
    open_with(storage, content, options, None)
}

fn open_with(
    storage: Arc<dyn Storage>,
    content: &[u8],
    options: BlockOptions,
    medium: Option<Arc<dyn Medium>>,
) -> Result<Memory> {
    open_files(files(storage), content, options, medium)
}

fn open_files(
    files: BlockFiles,
    content: &[u8],
    options: BlockOptions,
    medium: Option<Arc<dyn Medium>>,
) -> Result<Memory> {
    let mapping = Mapping::reserve(DISK, Backing::Anonymous).expect("address space");
    mapping.extend(None, DISK).expect("memory");
    let memory =
        Memory::new(Setup { parts: vec![mapping], domain: Domain::Block, read_only: false, tracer: None, medium });
    for (index, chunk) in content.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        if word != 0 {
            memory.raw_store(PmAddr::new(0, index as u64 * 8), word);
        }
    }
    memory.attach_block(BlockDomain::start(files, options)?);
    Ok(memory)
}

pub(super) const MANUAL: BlockOptions = BlockOptions {
    background: false,
    gather: Duration::ZERO,
    spin: Duration::ZERO,
    commit_interval: Duration::from_secs(3600),
};

fn word(content: &[u8], offset: u64) -> u64 {
    u64::from_le_bytes(content[offset as usize..][..8].try_into().expect("eight bytes"))
}

#[test]
fn one_waiting_writer_pays_one_sync_per_operation() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    for operation in 0..20 {
        let scope = CounterScope::start();
        for line in 0..3 {
            let at = PmAddr::new(0, DATA + line * 64);
            memory.store(at, operation + 1);
            memory.persist(at, 8);
        }
        memory.durable()?;
        assert_eq!((scope.delta().syncs, scope.delta().fences, scope.delta().flushes), (1, 3, 3));
    }
    let scope = CounterScope::start();
    memory.durable()?;
    memory.wait_durable(memory.flushed_at(PmAddr::new(0, DATA), 192))?;
    assert_eq!(scope.delta().syncs, 0, "nothing new to sync");
    Ok(())
}

#[test]
fn sixteen_waiting_writers_share_syncs() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let slow = Arc::new(SlowSync { disk, syncs: StdAtomicU64::new(0) });
    let memory =
        open(slow.clone(), &[], BlockOptions { background: true, gather: Duration::from_millis(1), ..MANUAL })?;
    let before = slow.syncs.load(StdOrdering::Relaxed);
    const OPERATIONS: u64 = 50;
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let memory = &memory;
            scope.spawn(move || {
                for operation in 1..=OPERATIONS {
                    let at = PmAddr::new(0, DATA + thread * 64);
                    memory.store(at, operation);
                    memory.persist(at, 8);
                    memory.durable().expect("the disk works");
                }
            });
        }
    });
    let syncs = slow.syncs.load(StdOrdering::Relaxed) - before;
    // Each sync serves all waiters: with a slow device there are far fewer than one in five.
    assert!(syncs * 5 < 16 * OPERATIONS, "{syncs} syncs for {} durable operations", 16 * OPERATIONS);
    Ok(())
}

/// A disk whose sync takes a millisecond, so that threads meet while it runs, however loaded the machine is.
#[derive(Debug)]
struct SlowSync {
    disk: Arc<SimulatedDisk>,
    syncs: StdAtomicU64,
}

impl Storage for SlowSync {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.disk.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.disk.write_at(bytes, offset)
    }
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.syncs.fetch_add(1, StdOrdering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
        self.disk.write_durably_at(bytes, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.syncs.fetch_add(1, StdOrdering::Relaxed);
        self.disk.sync()
    }
}

/// Runs `operations` (each writes its number to a few lines, the last line last), cuts the power, replays and judges.
fn cut_and_judge(operations: &[(u8, bool)], survivors: u64, background: bool) -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], BlockOptions { background, ..MANUAL })?;
    let mut acknowledged = 0;
    let mut shadow = vec![vec![0_u64; 256]];
    for (number, (spread, wait)) in operations.iter().enumerate() {
        let number = number as u64 + 1;
        let mut next = shadow.last().expect("never empty").clone();
        for step in 0..=u64::from(spread % 7) {
            let line = (u64::from(*spread) * 31 + step * 17) % 256;
            memory.store(PmAddr::new(0, DATA + line * 64), number);
            memory.persist(PmAddr::new(0, DATA + line * 64), 8);
            next[line as usize] = number;
        }
        shadow.push(next);
        if *wait {
            memory.durable()?;
            acknowledged = number;
        }
    }
    let mut choice = survivors;
    let content = disk.power_cut(|_| {
        choice = choice.rotate_left(1).wrapping_mul(5).wrapping_add(1);
        choice & 8 != 0
    });
    let reborn = Arc::new(SimulatedDisk::new(content));
    replay(&files(reborn.clone()))?;
    let content = reborn.content();
    let found: Vec<u64> = (0..256).map(|line| word(&content, DATA + line * 64)).collect();
    // Operations are sequences of fenced single-line stores. A state between two of them is legal, but it must contain
    // everything acknowledged. And it must be a prefix: every line as of one point of the whole sequence.
    let prefixes = prefix_states(operations);
    let position = prefixes.iter().rposition(|state| *state == found);
    let Some(position) = position else { panic!("the recovered lines are no prefix of what was fenced") };
    let newest = found.iter().copied().max().unwrap_or(0);
    assert!(
        newest >= acknowledged || prefixes[position] == shadow[acknowledged as usize],
        "acknowledged {acknowledged}, found {newest}"
    );
    // Power fails again right after the replay: the lines that it moved out of the journal are in the file for good.
    let again = Arc::new(SimulatedDisk::new(reborn.power_cut(|_| false)));
    replay(&files(again.clone()))?;
    assert_eq!(&again.content()[DATA as usize..], &content[DATA as usize..], "a second power cut undid the replay");
    // And a second replay finds nothing to do and changes nothing.
    assert_eq!(replay(&files(reborn.clone()))?, JournalRecovery::default());
    assert_eq!(reborn.content(), content);
    Ok(())
}

fn prefix_states(operations: &[(u8, bool)]) -> Vec<Vec<u64>> {
    let mut states = vec![vec![0_u64; 256]];
    for (number, (spread, _)) in operations.iter().enumerate() {
        for step in 0..=u64::from(spread % 7) {
            let mut next = states.last().expect("never empty").clone();
            next[((u64::from(*spread) * 31 + step * 17) % 256) as usize] = number as u64 + 1;
            states.push(next);
        }
    }
    states
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_power_cut_leaves_a_prefix_with_everything_acknowledged(
        operations in prop::collection::vec((any::<u8>(), prop::bool::weighted(0.3)), 1..300),
        survivors in any::<u64>(),
        background in any::<bool>(),
    ) {
        cut_and_judge(&operations, survivors, background).expect("no device fails here");
    }
}

#[test]
fn a_failed_sync_poisons_and_never_acknowledges() -> Result<()> {
    for failing in 1..=50 {
        let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
        let plan = FaultPlan {
            fail_sync: Some(Failing::for_ever(failing)),
            short_write_bytes: Some(3000),
            ..FaultPlan::default()
        };
        let faulty = Arc::new(FaultyStorage::new(disk.clone(), plan));
        let mut acknowledged = 0;
        if let Ok(memory) = open(faulty, &[], MANUAL) {
            for number in 1..=400_u64 {
                let at = PmAddr::new(0, DATA + number % 100 * 64);
                memory.store(at, number);
                memory.persist(at, 8);
                match memory.durable() {
                    Ok(()) => acknowledged = number,
                    Err(error) => {
                        assert!(error.to_string().contains("poisoned"), "{error}");
                        assert!(memory.durable().is_err(), "a poisoned pool stays poisoned");
                        break;
                    }
                }
            }
            assert!(acknowledged < 400, "sync {failing} was to fail");
        }
        for survivors in [0_u64, u64::MAX, 0x5555_5555_5555_5555] {
            let mut choice = survivors;
            let reborn = Arc::new(SimulatedDisk::new(disk.power_cut(|_| {
                choice = choice.rotate_left(1);
                choice & 1 != 0
            })));
            replay(&files(reborn.clone()))?;
            let content = reborn.content();
            let newest = (0..100).map(|line| word(&content, DATA + line * 64)).max().unwrap_or(0);
            assert!(newest >= acknowledged, "sync {failing}: acknowledged {acknowledged}, found {newest}");
        }
    }
    Ok(())
}

#[test]
fn a_full_ring_blocks_writers_and_never_fails_them() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], BlockOptions { background: true, ..MANUAL })?;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let memory = &memory;
            scope.spawn(move || {
                for round in 1..=40_u64 {
                    // More lines than one group may hold, without a wait: the flush itself must commit.
                    for line in 0..700 {
                        let at = PmAddr::new(0, DATA + (thread * 1000 + line) * 64);
                        memory.store(at, round);
                        memory.flush(at, 8);
                    }
                    memory.fence();
                }
                memory.durable().expect("the disk works");
            });
        }
    });
    memory.block().expect("attached").close()?;
    let content = disk.power_cut(|_| false);
    for thread in 0..4_u64 {
        for line in 0..700 {
            assert_eq!(word(&content, DATA + (thread * 1000 + line) * 64), 40);
        }
    }
    Ok(())
}

#[test]
fn what_nobody_waits_for_is_committed_after_the_interval() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let interval = BlockOptions { background: true, commit_interval: Duration::from_millis(1), ..MANUAL };
    let memory = open(disk.clone(), &[], interval)?;
    let at = PmAddr::new(0, DATA);
    memory.store(at, 7);
    memory.persist(at, 8);
    let clock = Instant::now();
    loop {
        let copy = Arc::new(SimulatedDisk::new(disk.power_cut(|_| false)));
        replay(&files(copy.clone()))?;
        if word(&copy.content(), DATA) == 7 {
            return Ok(());
        }
        assert!(clock.elapsed() < Duration::from_secs(60), "the background thread never committed");
        std::thread::yield_now();
    }
}

#[test]
fn a_replay_that_is_cut_short_is_done_again() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    for number in 1..=40_u64 {
        for line in 0..3 {
            let at = PmAddr::new(0, DATA + (number % 8 * 3 + line) * 64);
            memory.store(at, number);
            memory.persist(at, 8);
        }
        memory.durable()?;
    }
    let cut = disk.power_cut(|_| false);
    let whole = Arc::new(SimulatedDisk::new(cut.clone()));
    let report = replay(&files(whole.clone()))?;
    assert_eq!((report.groups, report.lines), (40, 120));
    for failing in 1..=report.lines {
        let broken = Arc::new(SimulatedDisk::new(cut.clone()));
        let plan = FaultPlan { fail_write: Some(Failing::for_ever(failing)), ..FaultPlan::default() };
        assert!(
            replay(&files(Arc::new(FaultyStorage::new(broken.clone(), plan)))).is_err(),
            "write {failing} was to fail"
        );
        let mut choice = failing.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let reborn = Arc::new(SimulatedDisk::new(broken.power_cut(|_| {
            choice = choice.rotate_left(1);
            choice & 1 != 0
        })));
        replay(&files(reborn.clone()))?;
        assert_eq!(
            &reborn.content()[DATA as usize..],
            &whole.content()[DATA as usize..],
            "after failed write {failing}"
        );
    }
    Ok(())
}

#[test]
fn a_reader_that_waits_for_what_it_saw_tells_nothing_that_a_power_cut_takes() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    let at = PmAddr::new(0, DATA);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            memory.store(at, 7);
            memory.persist(at, 8);
        });
    });
    // The writer never waited; the reader is another thread.
    assert_eq!(memory.load(at), 7);
    memory.wait_durable(memory.flushed_at(at, 8))?;
    let reborn = Arc::new(SimulatedDisk::new(disk.power_cut(|_| false)));
    replay(&files(reborn.clone()))?;
    assert_eq!(word(&reborn.content(), DATA), 7);
    let scope = CounterScope::start();
    memory.wait_durable(memory.flushed_at(at, 8))?;
    assert_eq!(scope.delta().syncs, 0, "what is durable costs a reader nothing");
    Ok(())
}

#[test]
fn a_commit_into_a_full_ring_ends_while_the_checkpointer_is_held_up() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = Arc::new(open(disk, &[], BlockOptions { background: true, ..MANUAL })?);
    let block = memory.block().expect("attached");
    // As when it waits for this very commit, to make lines durable that have no waiter.
    lock(&block.engine.ring).closing = true;
    block.engine.ring_moved.notify_all();
    lock(&block.checkpointer).take().expect("it was started").join().expect("it does not panic");
    let laps = 3 * block.engine.files.area().ring_bytes() / record::UNIT_BYTES;
    let writer = Arc::clone(&memory);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for number in 1..=laps {
            let at = PmAddr::new(0, DATA + number % 100 * 64);
            writer.store(at, number);
            writer.persist(at, 8);
            writer.durable().expect("the disk works");
        }
        tell.send(())
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(()), "a committer waits for ever");
    Ok(())
}

#[test]
fn a_full_ring_of_a_poisoned_domain_is_an_error() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk, &[], BlockOptions { background: true, ..MANUAL })?;
    let engine = Arc::clone(&memory.block().expect("attached").engine);
    // A checkpoint fails after the committer last looked at the poison, and frees nothing.
    engine.halt(Halt::Poisoned("a checkpoint's sync failed".into()));
    lock(&engine.ring).head += engine.files.area().ring_bytes();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(engine.reserve(record::UNIT_BYTES).is_err()));
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true), "a committer waits for ever");
    Ok(())
}

#[test]
fn what_another_domain_left_in_the_page_cache_is_durable_before_anything_is_acknowledged() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    write_all(&disk, &[7; 64], DATA, false).expect("room");
    let memory = open(disk.clone(), &disk.content(), MANUAL)?;
    let pointer = PmAddr::new(0, DATA + 4096);
    memory.store(pointer, DATA);
    memory.persist(pointer, 8);
    memory.durable()?;
    let reborn = Arc::new(SimulatedDisk::new(disk.power_cut(|_| false)));
    replay(&files(reborn.clone()))?;
    let content = reborn.content();
    assert_eq!(word(&content, DATA + 4096), DATA);
    assert_eq!(word(&content, DATA), u64::from_le_bytes([7; 8]), "what the acknowledged line relies on is gone");
    Ok(())
}

#[test]
fn no_line_of_a_record_that_only_the_page_cache_holds_reaches_the_disk_before_it() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), &[], MANUAL)?;
    let before = disk.content();
    let lines = [DATA, DATA + 4096];
    for line in lines {
        memory.store(PmAddr::new(0, line), 7);
        memory.persist(PmAddr::new(0, line), 8);
    }
    memory.durable()?;
    let journal = &disk.content()[JOURNAL_OFFSET as usize..DATA as usize];
    for (failing, is_forgotten) in (1..=5).flat_map(|failing| [(failing, false), (failing, true)]) {
        // A kill between the writes of a record that runs around the end of the ring and its sync. Or a failed sync,
        // after which no other sync writes the content that the page cache shows.
        let killed = Arc::new(SimulatedDisk::new(before.clone()));
        write_all(&killed, journal, JOURNAL_OFFSET, false).expect("room");
        if is_forgotten {
            killed.forget_unsynced(0, u64::MAX);
        }
        let plan = FaultPlan { fail_sync: Some(Failing::for_ever(failing)), ..FaultPlan::default() };
        assert!(
            replay(&files(Arc::new(FaultyStorage::new(killed.clone(), plan)))).is_err(),
            "sync {failing} was to fail"
        );
        let one_line = killed.power_cut(|sector| sector as u64 * 512 == lines[0]);
        let reborn = Arc::new(SimulatedDisk::new(one_line));
        replay(&files(reborn.clone()))?;
        let content = reborn.content();
        assert_eq!(word(&content, lines[0]), word(&content, lines[1]), "a part of a group, sync {failing}");
    }
    Ok(())
}

/// The page of 512 bytes that is written directly.
const PAGE: u64 = DATA + 4096;

/// The disk after a power cut in which none, all or some of the cached sectors survive, with the journal replayed.
pub(super) fn after_cut(disk: &SimulatedDisk, choice: usize) -> Result<Vec<u8>> {
    const SURVIVORS: [fn(usize) -> bool; 4] = [|_| false, |_| true, |write| write % 2 == 0, |write| write % 3 == 1];
    let reborn = Arc::new(SimulatedDisk::new(disk.power_cut(SURVIVORS[choice % 4])));
    replay(&files(reborn.clone()))?;
    Ok(reborn.content())
}

/// All of them.
pub(super) fn after_cuts(disk: &SimulatedDisk) -> Result<Vec<Vec<u8>>> {
    (0..4).map(|choice| after_cut(disk, choice)).collect()
}

/// Lines of a range are in the journal, in the open group or on their way to the file. Then the range gets another
/// owner, whose direct writes must not be overwritten by them.
/// A disk that counts the reads around the page cache of the system.
#[derive(Debug)]
struct AroundCache(Arc<SimulatedDisk>, StdAtomicU64);

impl Storage for AroundCache {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn read_around_cache_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.1.fetch_add(1, StdOrdering::Relaxed);
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.0.write_at(bytes, offset)
    }
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.0.write_durably_at(bytes, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn direct_reads_are_around_the_cache_of_the_system_for_those_who_ask() -> Result<()> {
    let disk = Arc::new(AroundCache(Arc::new(SimulatedDisk::new(vec![0; DISK as usize])), StdAtomicU64::new(0)));
    let around = || disk.1.load(StdOrdering::Relaxed);
    let memory = open_with(disk.clone(), &[], MANUAL, None)?;
    let page = PmAddr::new(0, 64 << 10);
    memory.clear_for_direct_writes(page, 4096)?;
    memory.write_directly(page, &[7; 4096])?;
    let mut bytes = [0; 4096];
    memory.read_directly(page, &mut bytes)?;
    assert_eq!((bytes, around()), ([7; 4096], 0));
    bytes.fill(0);
    memory.read_around_cache(page, &mut bytes)?;
    assert_eq!((bytes, around()), ([7; 4096], 1));
    Ok(())
}

#[test]
fn older_lines_never_overwrite_a_direct_write() -> Result<()> {
    for bug in [false, true] {
        for committed in [true, false] {
            let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
            let memory = open(disk.clone(), &[], MANUAL)?;
            let at = PmAddr::new(0, PAGE);
            memory.write(at, &[1; 512]);
            memory.persist(at, 512);
            if committed {
                memory.durable()?;
            }
            if !bug {
                memory.clear_for_direct_writes(at, 512)?;
            }
            memory.write_directly(at, &[2; 512])?;
            memory.settle()?;
            // A checkpoint, if there is something, and the replay.
            let kept = |content: &Vec<u8>| content[PAGE as usize..][..512] == [2; 512];
            memory.durable()?;
            let replayed = after_cuts(&disk)?.iter().all(kept);
            memory.block().expect("attached").close()?;
            assert_eq!(replayed && after_cuts(&disk)?.iter().all(kept), !bug, "committed: {committed}");
        }
    }
    Ok(())
}

/// A disk whose syncs wait until they may end.
#[derive(Debug)]
struct HeldSync {
    disk: Arc<SimulatedDisk>,
    syncs: StdAtomicU64,
    may_end: StdAtomicU64,
}

impl Storage for HeldSync {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.disk.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.disk.write_at(bytes, offset)
    }
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.disk.write_durably_at(bytes, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.syncs.fetch_add(1, StdOrdering::SeqCst);
        while self.may_end.load(StdOrdering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        self.disk.sync()
    }
}

/// A write during a sync does not wait for it, and is settled by the next one.
#[test]
fn direct_writes_go_on_while_others_are_settled() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let slow = Arc::new(HeldSync { disk: disk.clone(), syncs: StdAtomicU64::new(0), may_end: StdAtomicU64::new(0) });
    let mut files = files(disk);
    let direct: Arc<dyn Storage> = slow.clone();
    files.direct = vec![direct];
    let memory = open_files(files, &[], MANUAL, None)?;
    let at = |page: u64| PmAddr::new(0, PAGE + page * 512);
    memory.clear_for_direct_writes(at(0), 1024)?;
    memory.write_directly(at(0), &[1; 512])?;
    std::thread::scope(|scope| {
        let settling = scope.spawn(|| memory.settle());
        while slow.syncs.load(StdOrdering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let writing = scope.spawn(|| memory.write_directly(at(1), &[2; 512]));
        let until = Instant::now() + std::time::Duration::from_secs(60);
        while !writing.is_finished() && Instant::now() < until {
            std::thread::yield_now();
        }
        let went_on = writing.is_finished();
        slow.may_end.store(1, StdOrdering::SeqCst);
        assert!(went_on, "the write waited for the sync");
        settling.join().expect("no panic").and(writing.join().expect("no panic"))
    })?;
    memory.settle()?;
    assert_eq!(slow.syncs.load(StdOrdering::SeqCst), 2, "the write during the sync needs another one");
    memory.settle()?;
    assert_eq!(slow.syncs.load(StdOrdering::SeqCst), 2, "nothing was written since");
    Ok(())
}

/// Streams that a medium is told of.
#[derive(Debug, Default)]
struct Streams(StdAtomicU64);

impl Medium for Streams {
    fn label(&self) -> String {
        "streams, counted".into()
    }
    fn read(&self, _: PmAddr, _: u64) {}
    fn write(&self, _: PmAddr, _: u64) {}
    fn flush(&self, _: LineAddr) {}
    fn stream(&self, _: PmAddr, _: u64) {
        self.0.fetch_add(1, StdOrdering::Relaxed);
    }
    fn fence(&self) {}
}

/// In this domain a medium models the private memory. The file takes its own time.
#[test]
fn a_medium_is_told_of_no_stream_by_a_direct_write() -> Result<()> {
    let streams = Arc::new(Streams::default());
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open_with(disk, &[], MANUAL, Some(streams.clone()))?;
    let scope = CounterScope::start();
    memory.write_directly(PmAddr::new(0, PAGE), &[1; 512])?;
    assert_eq!((scope.delta().streamed_bytes, streams.0.load(StdOrdering::Relaxed)), (512, 0));
    Ok(())
}

/// A line that says that a page counts is never on the disk without the page.
#[test]
fn a_page_that_was_written_directly_is_there_when_a_line_says_so() -> Result<()> {
    for is_settled in [true, false] {
        let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
        let memory = open(disk.clone(), &[], MANUAL)?;
        let (line, page) = (PmAddr::new(0, DATA), PmAddr::new(0, PAGE));
        memory.clear_for_direct_writes(page, 512)?;
        let mut torn = false;
        for round in 1..=20_u8 {
            let scope = CounterScope::start();
            memory.write_directly(page, &[round; 512])?;
            if is_settled {
                memory.settle()?;
            }
            memory.store(line, round.into());
            memory.persist(line, 8);
            memory.durable()?;
            let counts = scope.delta();
            assert_eq!((counts.syncs, counts.flushes, counts.streamed_bytes), (1 + u64::from(is_settled), 1, 512));
            torn |= after_cuts(&disk)?.iter().any(|content| {
                let counts = u8::try_from(word(content, DATA)).expect("a round");
                content[PAGE as usize..][..512].iter().any(|byte| *byte < counts)
            });
        }
        assert_eq!(torn, !is_settled);
    }
    Ok(())
}
