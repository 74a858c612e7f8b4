//! The journal as users meet it: kills, flipped bits, a group cut short, closing, and wakers that close.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use lodestone_pmem::{DomainChoice, Error, PmAddr, Pool, PoolOptions, Severity};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const JOURNAL: usize = 12288;
const JOURNAL_BYTES: usize = 72 << 10;
const UNIT: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Block,
        size_bytes: 256 << 10,
        journal_bytes: JOURNAL_BYTES as u64,
        reserve_bytes: 1 << 30,
        ..PoolOptions::default()
    }
}

/// A pool that was killed after its first word was acknowledged as `number`, in one group after the other.
fn killed(folder: &Path, number: u64) -> Result<(PathBuf, Vec<u8>), Box<dyn std::error::Error>> {
    let path = folder.join("live.pool");
    let pool = Pool::create(&path, &options())?;
    let at = pool.heap_area(0).0;
    for count in 1..=number {
        for line in 0..10 {
            pool.memory().store(at.plus(line * 64), count);
            pool.memory().persist(at.plus(line * 64), 8);
        }
        pool.memory().durable()?;
    }
    let image = fs::read(&path)?;
    drop(pool);
    Ok((folder.join("dead.pool"), image))
}

/// Where the unit with the largest position begins: the last record.
fn last_record(image: &[u8]) -> usize {
    let position = |unit: &usize| u64::from_le_bytes(image[unit + 16..][..8].try_into().expect("8 bytes"));
    let ring = JOURNAL + 2 * UNIT..JOURNAL + JOURNAL_BYTES;
    ring.step_by(UNIT).filter(|unit| image[*unit..].starts_with(b"LODEJREC")).max_by_key(position).expect("a record")
}

#[test]
fn a_flipped_bit_after_a_kill_loses_nothing_or_is_told() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (dead, image) = killed(folder.path(), 20)?;
    let (at, mut refused) = (Pool::open_read_only(folder.path().join("live.pool"), &options())?.heap_area(0).0, 0);
    let last = last_record(&image);
    for byte in (JOURNAL..JOURNAL + JOURNAL_BYTES).step_by(53).chain(last..last + 72) {
        let mut flipped = image.clone();
        flipped[byte] ^= 1 << (byte % 8);
        fs::write(&dead, &flipped)?;
        match Pool::open_read_only(&dead, &options()) {
            Ok(pool) => {
                assert_eq!(pool.memory().load(at), 20, "byte {byte:#x}: an acknowledged group is lost in silence")
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("damaged") && text.contains("acknowledged"), "byte {byte:#x}: {text}");
                assert!(!Pool::check(&dead, &options())?.is_clean(), "byte {byte:#x}");
                refused += 1;
            }
        }
    }
    assert!(refused > 72, "the flips missed the live records");
    Ok(())
}

#[test]
fn the_loss_of_a_damaged_last_group_is_accepted_by_name_only() -> Outcome {
    let folder = tempfile::tempdir()?;
    let (dead, mut image) = killed(folder.path(), 20)?;
    let last = last_record(&image);
    image[last + 100] ^= 1;
    fs::write(&dead, &image)?;
    let report = Pool::repair(&dead, &options(), false)?;
    assert!(report.done.is_empty() && !report.after.is_repairable(), "{report}");
    assert!(Pool::open(&dead, &options()).is_err());
    let report = Pool::repair(&dead, &options(), true)?;
    assert!(report.after.is_clean() && report.done.iter().any(|done| done.contains("LOST")), "{report}");
    let pool = Pool::open(&dead, &options())?;
    let found = pool.memory().load(pool.heap_area(0).0);
    assert!(found == 19 || found == 20, "{found}");
    Ok(())
}

#[test]
fn a_group_that_a_kill_cut_short_is_told_and_is_no_damage() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [path, dead] = ["live.pool", "dead.pool"].map(|name| folder.path().join(name));
    // The background thread may come between the flushes, or after the group: then once more.
    let (at, older, mut image) = loop {
        let pool = Pool::create(&path, &PoolOptions { overwrite: true, ..options() })?;
        let at = pool.heap_area(0).0;
        let older = fs::read(&path)?;
        for line in 0..10 {
            pool.memory().store(at.plus(line * 64), 7);
            pool.memory().persist(at.plus(line * 64), 8);
        }
        pool.memory().durable()?;
        let image = fs::read(&path)?;
        if image[last_record(&image) + 32..].starts_with(&10_u64.to_le_bytes()) {
            break (at, older, image);
        }
    };
    // Of the group's two sectors with lines the second does not reach the file.
    let second_sector = last_record(&image) + 512;
    image[second_sector..second_sector + 512].copy_from_slice(&older[second_sector..second_sector + 512]);
    fs::write(&dead, &image)?;
    let report = Pool::check(&dead, &options())?;
    let note = report.findings.iter().find(|found| found.finding.contains("was not acknowledged")).expect("a note");
    assert!(report.is_clean() && note.severity == Severity::Note, "{report}");
    let pool = Pool::open(&dead, &options())?;
    assert!(pool.recovery().unfinished_group.is_some() && pool.memory().load(at) == 0);
    assert!(pool.info().to_string().contains("was being written"), "{}", pool.info());
    drop(pool);
    assert_eq!(Pool::open(&dead, &options())?.recovery().unfinished_group, None, "told once");
    Ok(())
}

#[test]
fn the_salt_of_the_journal_is_not_in_memory() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    drop(Pool::create(&path, &options())?);
    let pool = Pool::open(&path, &options())?;
    let words = (JOURNAL..JOURNAL + 2 * UNIT).step_by(8);
    assert!(words.clone().all(|at| pool.memory().load(PmAddr::new(0, at as u64)) == 0));
    let image = fs::read(&path)?;
    assert!(words.into_iter().any(|at| image[at] != 0), "the header is in the file");
    Ok(())
}

#[test]
fn one_damaged_header_page_of_a_live_journal_loses_nothing() -> Outcome {
    for page in 0..2 {
        let folder = tempfile::tempdir()?;
        let (dead, mut image) = killed(folder.path(), 20)?;
        image[JOURNAL + page * UNIT..][..UNIT].fill(0);
        fs::write(&dead, &image)?;
        let report = Pool::check(&dead, &options())?;
        assert!(!report.is_clean() && report.is_repairable(), "{report}");
        assert!(Pool::repair(&dead, &options(), false)?.after.is_clean());
        let pool = Pool::open(&dead, &options())?;
        assert_eq!(pool.memory().load(pool.heap_area(0).0), 20);
    }
    Ok(())
}

#[test]
fn a_close_on_a_truncated_file_is_an_error_and_writes_nothing() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    let pool = Pool::create(&path, &options())?;
    let memory = pool.memory().clone();
    fs::OpenOptions::new().write(true).open(&path)?.set_len(0)?;
    let error = pool.close().expect_err("the file is gone");
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert_eq!(fs::metadata(&path)?.len(), 0, "a closed pool wrote into a file that was cut short");
    drop(memory);
    Ok(())
}

#[test]
fn memory_that_outlives_its_pool_acknowledges_nothing_new() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    let pool = Pool::create(&path, &options())?;
    let (memory, at) = (pool.memory().clone(), pool.heap_area(0).0);
    memory.store(at, 7);
    memory.persist(at, 8);
    let point = memory.flushed_here();
    pool.close()?;
    memory.wait_durable(point)?;
    memory.store(at, 8);
    memory.persist(at, 8);
    assert!(matches!(memory.durable(), Err(Error::Closed { .. })));
    drop(memory);
    let pool = Pool::open(&path, &options())?;
    assert!(pool.was_clean() && pool.memory().load(at) == 7);
    pool.close()?;
    Pool::open_read_only(&path, &options())?.close()?;
    Ok(())
}

/// A waker that holds a pool until it is woken.
struct Holder(Mutex<Option<(Pool, mpsc::Sender<()>)>>);

impl Wake for Holder {
    fn wake(self: Arc<Self>) {
        if let Some((pool, tell)) = self.0.lock().expect("no panics").take() {
            drop(pool);
            tell.send(()).expect("the test waits");
        }
    }
}

#[test]
fn a_waker_may_hold_the_last_handle_of_a_pool() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    for number in 1..=10 {
        let pool = Pool::open_or_create(&path, &options())?;
        let (memory, at) = (pool.memory().clone(), pool.heap_area(0).0);
        assert_eq!(memory.load(at), number - 1);
        memory.store(at, number);
        memory.persist(at, 8);
        let (tell, told) = mpsc::channel();
        let waker: Waker = Arc::new(Holder(Mutex::new(Some((pool, tell))))).into();
        let pending = memory.poll_durable(memory.flushed_here(), &mut Context::from_waker(&waker)).is_pending();
        drop(memory);
        if !pending {
            waker.wake_by_ref();
        }
        drop(waker);
        told.recv_timeout(PATIENCE)?;
        // The thread that woke it lets go of the file a moment later.
        let clock = Instant::now();
        while matches!(Pool::open_read_only(&path, &options()), Err(Error::InUse { .. })) {
            assert!(clock.elapsed() < PATIENCE, "the pool is never let go");
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// A range that a log has discarded takes no memory of the process, and can be used again.
#[test]
fn discarded_pages_take_no_memory_until_they_are_used_again() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log.pool");
    let options = PoolOptions { size_bytes: 1 << 20, journal_bytes: 256 << 10, ..options() };
    let pool = Pool::create(&path, &options)?;
    let memory = pool.memory();
    // Two whole pages, with a line before them and one after them.
    let (at, pages) = (PmAddr::new(0, (512 << 10) - 64), [PmAddr::new(0, 512 << 10), PmAddr::new(0, 516 << 10)]);
    let len = 2 * 4096 + 128;
    let word = |at: PmAddr| pool.memory().load(at);
    let append = |number: u64| {
        memory.append(at, &number.to_le_bytes().repeat(len / 8));
        memory.fence();
        memory.durable()
    };
    append(7)?;
    assert_eq!(pages.map(word), [7; 2]);
    memory.discard(at, len as u64);
    assert_eq!(pages.map(word), [0; 2], "they show the file, which the record never reached");
    assert_eq!((word(at), word(pages[1].plus(4096))), (7, 7), "lines in pages with others stay");
    append(8)?;
    assert_eq!(pages.map(word), [8; 2]);
    let copy = folder.path().join("copy.pool");
    fs::copy(&path, &copy)?;
    drop(pool);
    let pool = Pool::open(&copy, &options)?;
    assert_eq!(pages.map(|at| pool.memory().load(at)), [8; 2], "after a kill");
    Ok(())
}
