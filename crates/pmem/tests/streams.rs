//! Streamed data and the flag that publishes it: a thread that sees the flag sees the data.
//!
//! Non-temporal stores become visible in no order. Without a store fence at the end of a stream, the release store of
//! the flag may overtake them. A reader that waited for the flag in good order then reads the old bytes.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lodestone_pmem::{DomainChoice, Memory, PmAddr, Pool, PoolOptions};

/// A page that an object used before it is written directly. In the block domain the file alone has the new bytes: the
/// private copy of the page must not hide them.
#[test]
fn what_is_written_directly_is_seen_by_every_way_to_read_it() -> Outcome {
    for domain in [DomainChoice::Block, DomainChoice::DaxEmulated, DomainChoice::Process] {
        let folder = tempfile::tempdir()?;
        let options = PoolOptions { domain, size_bytes: 1 << 20, journal_bytes: 256 << 10, ..PoolOptions::default() };
        let path = folder.path().join("a.pool");
        let pool = Pool::create(&path, &options)?;
        let memory = pool.memory();
        // Whole pages with a piece of one before and after them; and a piece of a page alone.
        for (at, len) in [(512 << 10, 8192), ((600 << 10) + 64, 3 * 4096), ((700 << 10) + 128, 256)] {
            let (at, mut bytes) = (PmAddr::new(0, at), vec![0; len]);
            memory.write(at, &vec![7; len]);
            memory.persist(at, len as u64);
            memory.clear_for_direct_writes(at, len as u64)?;
            for round in [8, 9] {
                memory.write_directly(at, &vec![round; len])?;
                memory.read(at, &mut bytes);
                assert!(bytes.iter().all(|byte| *byte == round), "{domain:?}: through the mapping, round {round}");
                bytes.fill(0);
                memory.read_directly(at, &mut bytes)?;
                assert!(bytes.iter().all(|byte| *byte == round), "{domain:?}: directly, round {round}");
            }
            memory.settle()?;
            memory.fence();
            memory.durable()?;
        }
        pool.close()?;
        let pool = Pool::open(&path, &options)?;
        let mut bytes = [0; 64];
        pool.memory().read(PmAddr::new(0, 512 << 10), &mut bytes);
        assert_eq!(bytes, [9; 64], "{domain:?}: after a close");
    }
    Ok(())
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Looks of the reader. It takes some while the writer has the next number only when both have a processor at a time.
const LOOKS: u64 = 100_000;
/// On a busy machine the looks end early.
const TIME_MAX: Duration = Duration::from_secs(10);
const PIECE_BYTES: u64 = 512;
/// Few, so that the reader has the old bytes in its cache: it then sees them as long as the new ones are on their way.
const PIECES: u64 = 64;

/// In rounds, one thread writes 512 bytes of its number with `write` and publishes the number. The other takes the
/// number and looks for it in all eight lines. A place is used again with larger numbers only. Returns how often the
/// other thread saw an older number, and the number of its looks.
fn stale_reads(write: impl Fn(&Memory, PmAddr, &[u8]) + Sync) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let memory = Memory::anonymous(PIECES * PIECE_BYTES)?;
    memory.zero(PmAddr::NULL, PIECES * PIECE_BYTES);
    let (published, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let place = |round: u64| PmAddr::new(0, round % PIECES * PIECE_BYTES);
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; PIECE_BYTES as usize];
            for round in 1.. {
                bytes.as_chunks_mut::<8>().0.fill(u64::to_le_bytes(round));
                write(&memory, place(round), &bytes);
                published.store(round, Ordering::Release);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let (mut stale, mut looks, mut last) = (0, 0, 0);
        while looks < LOOKS && started.elapsed() < TIME_MAX {
            let round = published.load(Ordering::Acquire);
            if round == last {
                spin_loop();
                continue;
            }
            (last, looks) = (round, looks + 1);
            let is_old = |line: u64| memory.load(place(round).plus(line * 64)) < round;
            // The line that was streamed last is on its way the shortest time.
            stale += u64::from((0..PIECE_BYTES / 64).rev().any(is_old));
        }
        stop.store(true, Ordering::Relaxed);
        Ok((stale, looks))
    })
}

fn none_is_stale(write: impl Fn(&Memory, PmAddr, &[u8]) + Sync) -> Outcome {
    let (stale, looks) = stale_reads(write)?;
    assert_eq!(stale, 0, "so many of {looks} looks after the flag saw what was there before the stream");
    Ok(())
}

#[test]
fn who_sees_the_flag_sees_what_was_streamed_before_it() -> Outcome {
    none_is_stale(|memory, at, bytes| memory.stream(at, bytes))
}

#[test]
fn who_sees_the_flag_sees_what_was_written_back_before_it() -> Outcome {
    none_is_stale(|memory, at, bytes| memory.write_back(at, bytes))
}

#[test]
fn who_sees_the_flag_sees_all_pieces_that_were_streamed_before_it() -> Outcome {
    none_is_stale(|memory, at, bytes| {
        let (head, tail) = bytes.split_at(128);
        memory.stream_each(&[(at, head), (at.plus(128), tail)]);
    })
}

#[test]
fn a_refused_piece_leaves_the_others_visible_in_order() -> Outcome {
    let outside = PmAddr::new(0, PIECES * PIECE_BYTES);
    std::panic::set_hook(Box::new(|_| ()));
    let outcome = none_is_stale(|memory, at, bytes| {
        // One in sixteen rounds, because a panic takes its time.
        if !(at.offset() / PIECE_BYTES).is_multiple_of(16) {
            return memory.stream(at, bytes);
        }
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            memory.stream_each(&[(at, bytes), (outside, bytes)]);
        }));
        assert!(refused.is_err(), "outside the part");
    });
    let _ = std::panic::take_hook();
    outcome
}
