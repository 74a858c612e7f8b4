//! Logs of the block domain whose segments are used again and again, on a simulated disk that loses its power: every
//! acknowledged row is there, and log bytes that are no longer needed are not written a second time.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Open, options};
use lodestone_engine::{DatabaseOptions, Result};
use lodestone_pmem::{CounterScope, DomainChoice};

/// Logs of 128 segments of 1 KiB: a checkpoint every some hundred commits, of which each may begin a segment.
fn small_logs() -> DatabaseOptions {
    let mut options = options(DomainChoice::Block);
    (options.log_bytes, options.segment_bytes) = (128 << 10, 1 << 10);
    options
}

/// Rows of each thread.
const ROWS: u64 = 20;

/// Three threads count in their rows until the power fails, again and again.
#[test]
fn acknowledged_rows_survive_power_cuts_beside_checkpoints() -> Result<()> {
    const THREADS: u64 = 3;
    let options = small_logs();
    let (mut device, mut open) = Open::on_device(&options)?;
    let mut floor = vec![0_i64; THREADS as usize];
    let mut batches = 0;
    for cut in 0..12_u64 {
        let acknowledged: Vec<_> = floor.iter().map(|count| AtomicI64::new(*count)).collect();
        let is_over = AtomicBool::new(false);
        let (told, content) = thread::scope(|scope| {
            for (number, acknowledged) in (0..THREADS).zip(&acknowledged) {
                let (open, is_over, from) = (&open, &is_over, floor[number as usize]);
                scope.spawn(move || {
                    for count in from + 1.. {
                        if is_over.load(Ordering::Acquire) {
                            break;
                        }
                        let key = number * ROWS + count as u64 % ROWS;
                        open.set(&[(key, count), (number * ROWS + ROWS - 1, count)]).expect("a working device");
                        acknowledged.store(count, Ordering::Release);
                    }
                });
            }
            thread::sleep(Duration::from_millis(60 + 7 * cut));
            // On a busy machine that is a moment.
            let until = Instant::now() + Duration::from_secs(60);
            while open.db.stats().pages.batches < 2 && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
            let told: Vec<i64> = acknowledged.iter().map(|count| count.load(Ordering::Acquire)).collect();
            let mut choice = cut.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let content = device.disk.power_cut(|_| {
                choice = choice.rotate_left(1) ^ cut;
                choice & 1 != 0
            });
            is_over.store(true, Ordering::Release);
            (told, content)
        });
        batches += open.db.stats().pages.batches;
        let Open { db, table } = open;
        drop(table);
        db.abandon();
        (device, open) = Open::on_disk(content, &options)?;
        let rows = open.all()?;
        for (number, told) in (0..THREADS).zip(told) {
            let mine = rows.iter().filter(|(key, _)| key / ROWS == number);
            let newest = mine.clone().find(|(key, _)| key % ROWS == ROWS - 1).map_or(0, |(_, count)| *count);
            assert!(newest >= told, "cut {cut}, thread {number}: acknowledged {told}, found {newest}");
            for (key, count) in mine.filter(|(key, _)| key % ROWS < ROWS - 1) {
                let place = (key % ROWS) as i64;
                let expected = newest - (newest - place).rem_euclid(ROWS as i64);
                assert_eq!(*count, expected, "cut {cut}, thread {number}, row {key}, newest {newest}");
            }
            floor[number as usize] = newest;
        }
    }
    assert!(batches >= 24, "{batches} checkpoints: the logs are too large for this test");
    Ok(())
}

/// Log bytes go to the journal, and most of them nowhere else.
#[test]
fn a_checkpoint_leaves_out_most_log_bytes() -> Result<()> {
    let options = DatabaseOptions { checkpoint_thread: false, ..small_logs() };
    let (_device, open) = Open::on_device(&options)?;
    let rows: Vec<_> = (0..ROWS).map(|key| (key, 1)).collect();
    open.set(&rows)?;
    open.db.checkpoint()?;
    // Of this thread: it also makes room in the journal for its commits, and checkpoints.
    let (scope, before) = (CounterScope::start(), open.db.log_bytes());
    for _ in 0..10 {
        (0..60).try_for_each(|_| open.set(&rows))?;
        open.db.checkpoint()?;
    }
    let (written, appended) = (scope.delta(), open.db.log_bytes() - before);
    assert!(written.journal_bytes > appended, "{written:?}, log bytes {appended}");
    // Heads of segments and lines of the page table are moved too. With all log bytes it would be more than these.
    assert!(written.checkpoint_bytes < appended * 2 / 3, "{written:?}, log bytes {appended}");
    Ok(())
}
