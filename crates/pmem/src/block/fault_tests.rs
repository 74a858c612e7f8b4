//! Faults of a device under the block domain. Every write and sync fails once, for ever or short. Every bit of the
//! journal flips. Sectors and pages of it are lost. Values are stored that look like the journal's own bytes. Wakers
//! misbehave.

use std::sync::atomic::{AtomicU64 as StdAtomicU64, Ordering as StdOrdering};
use std::sync::mpsc;
use std::task::{Context, Wake};
use std::time::Instant;

use super::checkpoint::Upto;
use super::*;
use crate::addr::PmAddr;
use crate::domain::Domain;
use crate::mapping::{Backing, Mapping};
use crate::memory::Setup;
use crate::storage::{Failing, FaultPlan, FaultyStorage, OpenFile, SECTOR_BYTES, SimulatedDisk};

const JOURNAL: u64 = 4096;
const DATA: u64 = 88 << 10;
const DISK: u64 = 128 << 10;
/// Lines that the workloads write.
const LINES: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(20);

const MANUAL: BlockOptions = BlockOptions {
    background: false,
    gather: Duration::ZERO,
    spin: Duration::ZERO,
    commit_interval: Duration::from_secs(3600),
};

fn files(storage: Arc<dyn Storage>) -> BlockFiles {
    files_of(Arc::clone(&storage), storage)
}

fn files_of(journal: Arc<dyn Storage>, part: Arc<dyn Storage>) -> BlockFiles {
    BlockFiles {
        path: PathBuf::from("sim.pool"),
        journal,
        direct: vec![Arc::clone(&part)],
        parts: vec![part],
        part_bytes: vec![DISK],
        journal_offset: JOURNAL,
        journal_bytes: JOURNAL_BYTES_MIN,
    }
}

fn open(storage: Arc<dyn Storage>, options: BlockOptions) -> Result<Memory> {
    open_files(files(storage), options)
}

pub(super) fn open_files(files: BlockFiles, options: BlockOptions) -> Result<Memory> {
    let mapping = Mapping::reserve(DISK, Backing::Anonymous).expect("address space");
    mapping.extend(None, DISK).expect("memory");
    let (domain, medium) = (Domain::Block, None);
    let memory = Memory::new(Setup { parts: vec![mapping], domain, read_only: false, tracer: None, medium });
    memory.attach_block(BlockDomain::start(files, options)?);
    Ok(memory)
}

fn line(number: u64) -> PmAddr {
    PmAddr::new(0, DATA + number % LINES * 64)
}

/// Stores `number` into one to sixteen lines, the last one last, and waits; a group of up to three sectors.
fn write(memory: &Memory, number: u64) -> Result<()> {
    for step in 0..=number % 16 {
        memory.store(line(number + step * 7), number);
        memory.persist(line(number + step * 7), 8);
    }
    memory.durable()
}

fn newest(content: &[u8]) -> u64 {
    let word = |line: u64| u64::from_le_bytes(content[(DATA + line * 64) as usize..][..8].try_into().expect("8 bytes"));
    (0..LINES).map(word).max().unwrap_or_default()
}

/// Several laps of the ring.
const ROUNDS: u64 = 60;

fn fault_plans(number: u64) -> [FaultPlan; 7] {
    let none = FaultPlan::default();
    [
        FaultPlan { fail_sync: Some(Failing::once(number)), ..none },
        FaultPlan { fail_sync: Some(Failing::for_ever(number)), ..none },
        FaultPlan { fail_write: Some(Failing::once(number)), ..none },
        FaultPlan { fail_write: Some(Failing::for_ever(number)), ..none },
        FaultPlan { short_write: Some((number, 700)), ..none },
        FaultPlan { short_write: Some((number, 1024)), fail_write: Some(Failing::once(number + 1)), ..none },
        FaultPlan { short_write: Some((number, 512)), fail_sync: Some(Failing::once(number + 1)), ..none },
    ]
}

/// The states after a power cut now and a replay, for several choices of the sectors that survive.
fn after_power_cuts(disk: &SimulatedDisk) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for survivors in [0_u64, u64::MAX, 0x5555_5555_5555_5555, 0x0F0F_00FF_3C3C_1234] {
        let mut choice = survivors;
        let reborn = Arc::new(SimulatedDisk::new(disk.power_cut(|_| {
            choice = choice.rotate_left(1);
            choice & 1 != 0
        })));
        replay(&files(reborn.clone()))?;
        found.push(reborn.content());
    }
    Ok(found)
}

#[test]
fn no_fault_of_any_write_or_sync_loses_what_was_acknowledged() -> Result<()> {
    let calls = {
        let counting = Arc::new(FaultyStorage::new(SimulatedDisk::new(vec![0; DISK as usize]), FaultPlan::default()));
        let memory = open(counting.clone(), MANUAL)?;
        (1..=ROUNDS).try_for_each(|number| write(&memory, number))?;
        memory.block().expect("attached").close()?;
        counting.writes().max(counting.syncs())
    };
    for plan in (1..=calls).flat_map(fault_plans) {
        let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
        let faulty = Arc::new(FaultyStorage::new(disk.clone(), plan));
        let mut acknowledged = 0;
        if let Ok(memory) = open(faulty.clone(), MANUAL) {
            let failed = (1..=ROUNDS).find_map(|number| match write(&memory, number) {
                Ok(()) => {
                    acknowledged = number;
                    None
                }
                Err(error) => Some(error),
            });
            if let Some(error) = &failed {
                assert!(error.to_string().contains("poisoned") && write(&memory, 99).is_err(), "{plan:?}: {error}");
            }
            let closed = memory.block().expect("attached").close();
            assert!(failed.is_none() || closed.is_err(), "{plan:?}: a loss that the close does not tell");
        }
        for content in after_power_cuts(&disk)? {
            let found = newest(&content);
            assert!(found >= acknowledged, "{plan:?}: acknowledged {acknowledged}, found {found}");
        }
        // The device works again, and the page cache shows bytes of failed writes as if they were there.
        faulty.arm(FaultPlan::default());
        replay(&files(faulty.clone()))?;
        let seen = newest(&disk.content());
        for content in after_power_cuts(&disk)? {
            assert!(
                newest(&content) >= seen.max(acknowledged),
                "{plan:?}: {seen} was seen, {} is left",
                newest(&content)
            );
        }
    }
    Ok(())
}

/// A killed pool: some groups are in the files, the last ones in the journal only. Returns it and the last number.
fn killed(options: BlockOptions) -> Result<(Vec<u8>, u64)> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), options)?;
    (1..ROUNDS).try_for_each(|number| write(&memory, number))?;
    let clock = Instant::now();
    for number in ROUNDS.. {
        write(&memory, number)?;
        // Until the background thread has confirmed the last group.
        let engine = &memory.block().expect("attached").engine;
        let is_confirmed = |ring: &Ring| match ring.unapplied.last() {
            Some(record) => record.lines() == 0,
            None => ring.tail == ring.head,
        };
        while options.background && !is_confirmed(&lock(&engine.ring)) {
            assert!(clock.elapsed() < PATIENCE, "a silent pool never confirms its last group");
            std::thread::yield_now();
        }
        let content = disk.power_cut(|_| false);
        if newest(&content) + 2 < number {
            return Ok((content, number));
        }
    }
    unreachable!("a checkpoint comes once in many groups");
}

/// Replays `content`: everything acknowledged is there, or the refusal names the damage.
fn nothing_is_silent(content: Vec<u8>, acknowledged: u64, what: &str) -> bool {
    let reborn = Arc::new(SimulatedDisk::new(content));
    let files = files(reborn.clone());
    match replay(&files) {
        Ok(found) => {
            let kept = newest(&reborn.content());
            let is_told = found.unfinished_group.is_some();
            assert!(kept >= acknowledged || is_told, "{what}: acknowledged {acknowledged}, found {kept}");
            kept < acknowledged
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("damaged") || text.contains("blank"), "{what}: {text}");
            assert!(check_journal(&files).expect("readable").iter().any(|found| !found.is_note), "{what}");
            false
        }
    }
}

#[test]
fn no_flipped_bit_of_a_live_journal_is_silent() -> Result<()> {
    let (content, acknowledged) = killed(MANUAL)?;
    for byte in JOURNAL as usize..(JOURNAL + JOURNAL_BYTES_MIN) as usize {
        // One bit of each byte, and all bits of the headers and of the beginnings of units.
        let all = byte % 4096 < 72 || (504..512).contains(&(byte % 512));
        for bit in (0..8).filter(|bit| all || *bit == byte % 8) {
            let mut flipped = content.clone();
            flipped[byte] ^= 1 << bit;
            let is_lost = nothing_is_silent(flipped, acknowledged, &format!("bit {bit} of byte {byte:#x}"));
            assert!(!is_lost, "bit {bit} of byte {byte:#x}: acknowledged, and only called unfinished");
        }
    }
    Ok(())
}

#[test]
fn no_lost_sector_or_page_of_a_confirmed_journal_is_silent() -> Result<()> {
    let interval = Duration::from_millis(1);
    let (content, acknowledged) = killed(BlockOptions { background: true, commit_interval: interval, ..MANUAL })?;
    let earlier = vec![0; DISK as usize];
    let foreign = killed(MANUAL)?.0;
    for bytes in [SECTOR_BYTES, 4096] {
        for start in (JOURNAL as usize..(JOURNAL + JOURNAL_BYTES_MIN) as usize).step_by(bytes) {
            for (what, source) in [("zeroes", &earlier), ("another life", &foreign)] {
                let mut damaged = content.clone();
                damaged[start..start + bytes].copy_from_slice(&source[start..start + bytes]);
                // A header page of another pool in the place of one is an intact header: no check can tell.
                let is_header = start < (JOURNAL + journal::HEADERS_BYTES) as usize && what != "zeroes";
                if !is_header {
                    let what = format!("{bytes} bytes at {start:#x}, {what}");
                    assert!(!nothing_is_silent(damaged, acknowledged, &what), "{what}: only called unfinished");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn values_that_look_like_the_journal_change_nothing() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), MANUAL)?;
    let life = memory.block().expect("attached").engine.life;
    // The strongest forger knows the salt: first sectors of later records of this very life, and header pages.
    let mut forged = vec![disk.content()[JOURNAL as usize..][..SECTOR_BYTES].to_vec()];
    for (position, group) in (1..40).map(|unit| (unit * record::UNIT_BYTES, 90 + unit)) {
        let mut record = Record::default();
        (0..3).for_each(|index| record.push(DATA + index * 64, &[0xBAD; 8]));
        record.seal(&life, position, group);
        forged.push(record.bytes()[..SECTOR_BYTES].to_vec());
    }
    for (round, sector) in forged.iter().enumerate() {
        for shift in 0..8 {
            for number in 0..90 {
                let words: Vec<u64> = (0..8)
                    .map(|word| {
                        let at = ((number as usize + shift) % 8 * 64 + word * 8) % SECTOR_BYTES;
                        u64::from_le_bytes(sector[at..at + 8].try_into().expect("8 bytes"))
                    })
                    .collect();
                let at = PmAddr::new(0, DATA + (LINES + 1 + number) * 64);
                (0..8).for_each(|word| memory.store(at.plus(word * 8), words[word as usize]));
                memory.flush(at, 64);
            }
            memory.store(line(0), (round * 8 + shift + 1) as u64);
            memory.persist(line(0), 8);
            memory.durable()?;
        }
        let reborn = Arc::new(SimulatedDisk::new(disk.power_cut(|_| false)));
        replay(&files(reborn.clone()))?;
        assert_eq!(newest(&reborn.content()), (round * 8 + 8) as u64);
    }
    Ok(())
}

#[test]
#[should_panic(expected = "is in the journal")]
fn a_line_of_the_journal_is_not_flushed() {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk, MANUAL).expect("a working disk");
    memory.flush(PmAddr::new(0, JOURNAL + JOURNAL_BYTES_MIN - 64), 8);
}

#[test]
fn a_writer_that_never_waits_learns_of_its_loss_when_it_closes() -> Result<()> {
    for plan in [FaultPlan::default(), FaultPlan { fail_sync: Some(Failing::once(1)), ..FaultPlan::default() }] {
        let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
        let faulty = Arc::new(FaultyStorage::new(disk.clone(), FaultPlan::default()));
        let memory = open(faulty.clone(), MANUAL)?;
        memory.store(line(0), 7);
        memory.persist(line(0), 8);
        faulty.arm(plan);
        let closed = memory.block().expect("attached").close();
        assert_eq!(closed.is_ok(), plan.fail_sync.is_none());
        assert_eq!(memory.durable().is_ok(), closed.is_ok(), "what the close kept may be told later");
        let kept = newest(&disk.power_cut(|_| false)) == 7;
        assert_eq!(kept, closed.is_ok());
        // Nothing is acknowledged after a closed journal.
        memory.store(line(1), 8);
        memory.persist(line(1), 8);
        let error = memory.durable().expect_err("closed");
        assert_eq!(matches!(error, Error::Closed { .. }), closed.is_ok(), "{error}");
    }
    Ok(())
}

/// A waker that runs a closure once.
struct Call(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let call = lock(&self.0).take();
        call.into_iter().for_each(|call| call());
    }
}

fn waker(call: impl FnOnce() + Send + 'static) -> Waker {
    Arc::new(Call(Mutex::new(Some(Box::new(call))))).into()
}

#[test]
fn a_waker_may_drop_the_last_handle_on_the_thread_that_wakes_it() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk.clone(), BlockOptions { background: true, ..MANUAL })?;
    let engine = Arc::downgrade(&memory.block().expect("attached").engine);
    memory.store(line(0), 7);
    memory.persist(line(0), 8);
    let (tell, told) = mpsc::channel();
    let (last, point) = (memory.clone(), memory.flushed_here());
    let waker = waker(move || {
        last.block().expect("attached").close().expect("a working disk");
        drop(last);
        tell.send(std::thread::current().name().map(str::to_owned)).expect("the test waits");
    });
    assert!(memory.poll_durable(point, &mut Context::from_waker(&waker)).is_pending());
    drop((waker, memory));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Some("lodestone-checkpoint".into())));
    let clock = Instant::now();
    while engine.strong_count() > 0 {
        assert!(clock.elapsed() < PATIENCE, "the thread never ends");
        std::thread::yield_now();
    }
    assert_eq!(newest(&disk.power_cut(|_| false)), 7);
    Ok(())
}

#[test]
fn a_waker_that_panics_harms_no_other_wait() -> Result<()> {
    let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
    let memory = open(disk, BlockOptions { background: true, ..MANUAL })?;
    let woken = Arc::new(StdAtomicU64::new(0));
    let (tell, told) = mpsc::channel();
    for number in 1..=20 {
        memory.store(line(0), number);
        memory.persist(line(0), 8);
        let point = memory.flushed_here();
        let bad = waker(|| panic!("a waker of somebody else"));
        let (tell, woken) = (tell.clone(), Arc::clone(&woken));
        let good = waker(move || {
            woken.fetch_add(1, StdOrdering::Relaxed);
            tell.send(()).expect("the test waits");
        });
        // The first may find it durable already when the second is added.
        let pending =
            [bad, good].map(|waker| memory.poll_durable(point, &mut Context::from_waker(&waker)).is_pending());
        if pending[1] {
            assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "an await never ends, round {number}");
        }
        memory.durable()?;
    }
    assert!(woken.load(StdOrdering::Relaxed) > 0, "no task waited");
    Ok(())
}

#[test]
fn tasks_that_wait_when_the_pool_is_closed_are_told() -> Result<()> {
    for _ in 0..50 {
        let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
        let memory = open(disk, BlockOptions { background: true, ..MANUAL })?;
        let (tell, told) = mpsc::channel();
        let task = memory.clone();
        let waiting = std::thread::spawn(move || {
            for number in 1.. {
                task.store(line(0), number);
                task.persist(line(0), 8);
                let tell = tell.clone();
                let waker = waker(move || tell.send(()).unwrap_or_default());
                match task.poll_durable(task.flushed_here(), &mut Context::from_waker(&waker)) {
                    Poll::Pending => assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "an await never ends"),
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return assert!(matches!(error, Error::Closed { .. }), "{error}"),
                }
            }
        });
        memory.block().expect("attached").close()?;
        waiting.join().expect("the task");
    }
    Ok(())
}

#[test]
fn a_flush_into_a_full_group_of_a_closed_pool_is_never_told_to_be_durable() -> Result<()> {
    // Flushes of lines, and runs of a log area.
    for is_run in [false, true] {
        let memory = open(Arc::new(SimulatedDisk::new(vec![0; DISK as usize])), MANUAL)?;
        let flush = |number: u64| {
            let at = PmAddr::new(0, DATA + number * 64);
            memory.store(at, number);
            if is_run {
                memory.block().expect("attached").append(at, &[7; 64]);
            } else {
                memory.persist(at, 8);
            }
            at
        };
        // The latest flush of this thread is durable.
        write(&memory, 1)?;
        let engine = &memory.block().expect("attached").engine;
        engine.stop_committing()?;
        // Another thread fills the open group.
        let lines = (DISK - DATA) / 64;
        std::thread::scope(|scope| {
            scope.spawn(|| (LINES..lines - 1).map(flush).for_each(drop));
        });
        let at = flush(lines - 1);
        assert!(!engine.groups.any(|line| line == at.line()), "{is_run}: the group was not full");
        assert!(matches!(memory.durable(), Err(Error::Closed { .. })), "{is_run}");
        assert!(memory.wait_durable(memory.flushed_at(at, 8)).is_err(), "{is_run}");
        assert!(memory.wait_durable(memory.flushed_anywhere()).is_err(), "{is_run}");
    }
    Ok(())
}

#[test]
fn a_task_that_waits_for_an_empty_group_is_woken() -> Result<()> {
    let memory =
        open(Arc::new(SimulatedDisk::new(vec![0; DISK as usize])), BlockOptions { background: true, ..MANUAL })?;
    // Confirmed: the thread has nothing else to commit.
    write(&memory, 1)?;
    memory.block().expect("attached").wait_for(memory.block().expect("attached").flushing_now())?;
    for _ in 0..20 {
        let (tell, told) = mpsc::channel();
        let waker = waker(move || tell.send(()).unwrap_or_default());
        let point = memory.flushing_now();
        if memory.poll_durable(point, &mut Context::from_waker(&waker)).is_pending() {
            assert_eq!(told.recv_timeout(PATIENCE), Ok(()), "an await never ends");
        }
        assert!(memory.poll_durable(point, &mut Context::from_waker(&waker)).is_ready());
    }
    Ok(())
}

#[test]
fn damage_that_a_repair_accepts_is_not_found_again_after_the_next_crash() -> Result<()> {
    let (content, _) = killed(MANUAL)?;
    let ring = (JOURNAL + 2 * 4096) as usize..(JOURNAL + JOURNAL_BYTES_MIN) as usize;
    for damaged in ring.clone().step_by(SECTOR_BYTES) {
        let mut content = content.clone();
        content[damaged + 100] ^= 4;
        let disk = Arc::new(SimulatedDisk::new(content));
        if replay(&files(disk.clone())).is_err() {
            drop_journal(&files(disk.clone()))?;
        } else {
            // Not in use: a repair is not asked for.
            continue;
        }
        assert_eq!(check_journal(&files(disk.clone()))?, []);
        // More than a lap of the ring. Each time a crash tears the last write, of which every other sector is left.
        for number in 0..ROUNDS {
            let memory = open(disk.clone(), MANUAL)?;
            (0..number % 3).try_for_each(|step| write(&memory, 900 + number + step))?;
            let before = disk.content();
            write(&memory, 911 + number)?;
            drop(memory);
            for left in [0, 1] {
                let mut torn = disk.content();
                let sectors = ring.clone().step_by(SECTOR_BYTES).map(|start| start..start + SECTOR_BYTES);
                let changed = sectors.filter(|sector| torn[sector.clone()] != before[sector.clone()]);
                let lost: Vec<_> = changed.enumerate().filter(|(index, _)| index % 2 != left).collect();
                lost.into_iter().for_each(|(_, sector)| torn[sector.clone()].copy_from_slice(&before[sector]));
                replay(&files(Arc::new(SimulatedDisk::new(torn))))?;
            }
            replay(&files(disk.clone()))?;
        }
    }
    Ok(())
}

type Faulty = FaultyStorage<Arc<SimulatedDisk>>;
/// The device, and the open file of the journal.
type ToldFirst = (Arc<Faulty>, Arc<dyn Storage>);

/// An open file whose next sync comes after a write-back that failed, and of which the open file of the journal was
/// told first, as by a commit beside a checkpoint.
#[derive(Debug)]
struct ToldSecond {
    own: Arc<OpenFile<Arc<SimulatedDisk>>>,
    failing: Mutex<Option<ToldFirst>>,
}

impl Storage for ToldSecond {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.own.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.own.write_at(bytes, offset)
    }
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        self.own.write_durably_at(bytes, offset)
    }
    fn sync(&self) -> std::io::Result<()> {
        if let Some((device, journal)) = lock(&self.failing).take() {
            device.fail_write_back();
            assert!(journal.sync().is_err(), "it is told");
        }
        self.own.sync()
    }
}

/// The rule that the journal has an open file of its own. With one open file for both, the lines of a checkpoint are
/// lost: their records are given up, and they are not in the file.
#[test]
fn the_error_of_a_checkpoints_lines_is_told_to_the_checkpoint_too() -> Result<()> {
    for has_own in [true, false] {
        let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
        let device = Arc::new(FaultyStorage::new(disk.clone(), FaultPlan::default()));
        let of_part = Arc::new(OpenFile::new(&device));
        let of_journal = if has_own { Arc::new(OpenFile::new(&device)) } else { of_part.clone() };
        let part = Arc::new(ToldSecond { own: of_part, failing: Mutex::new(None) });
        let memory = open_files(files_of(of_journal.clone(), part.clone()), MANUAL)?;
        (1..=7).try_for_each(|number| write(&memory, number))?;
        *lock(&part.failing) = Some((device, of_journal));
        let block = memory.block().expect("attached");
        assert_eq!(block.engine.checkpoint(Upto::All).is_err(), has_own);
        let kept = after_power_cuts(&disk)?.iter().all(|content| newest(content) >= 7);
        assert_eq!(kept, has_own, "7 was acknowledged");
    }
    Ok(())
}

/// Two owners of direct writes: one is told of the error of the device, and no other goes on as if there were none.
#[test]
fn an_error_of_a_direct_write_ends_everything() -> Result<()> {
    let settle_fails = FaultPlan { fail_sync: Some(Failing::once(1)), ..FaultPlan::default() };
    let write_fails = FaultPlan { fail_write: Some(Failing::once(1)), ..FaultPlan::default() };
    for plan in [settle_fails, write_fails] {
        let disk = Arc::new(SimulatedDisk::new(vec![0; DISK as usize]));
        let device = Arc::new(FaultyStorage::new(disk, FaultPlan::default()));
        let [journal, part] = [(); 2].map(|()| Arc::new(OpenFile::new(&device)) as Arc<dyn Storage>);
        let memory = open_files(files_of(journal, part), MANUAL)?;
        let at = PmAddr::new(0, DATA + 4096);
        memory.clear_for_direct_writes(at, 512)?;
        device.arm(plan);
        let failed = memory.write_directly(at, &[1; 512]).and_then(|()| memory.settle());
        assert!(matches!(failed, Err(Error::Poisoned { .. })), "{failed:?}");
        device.arm(FaultPlan::default());
        for later in [memory.settle(), memory.write_directly(at, &[2; 512]), memory.durable()] {
            assert!(matches!(later, Err(Error::Poisoned { .. })), "{later:?}");
        }
        memory.store(PmAddr::new(0, DATA), 1);
        memory.persist(PmAddr::new(0, DATA), 8);
        assert!(memory.durable().is_err());
    }
    Ok(())
}
