//! Threads and tasks that wait for another thread: each of them ends, whatever becomes of the one that it waits for.
//!
//! A case that hangs ends the process, because a thread that hangs cannot be ended.

mod common;

use std::future::{Future, IntoFuture};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{Open, options};
use lodestone_engine::{DatabaseOptions, Durability, Error, Result, Ticket, row};
use lodestone_pmem::storage::{Failing, FaultPlan};
use lodestone_pmem::{DomainChoice, LineAddr, Medium, PmAddr};

/// Longer than any case takes on a busy machine.
const HANG_SECONDS: u64 = 240;

/// Panics of all threads but those that a test makes on purpose. Those of other threads fail no test by themselves.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// Ends the process when it is not dropped in time. Fails when any thread has panicked.
struct Watch {
    _ends: Sender<()>,
}

impl Watch {
    fn new(what: &'static str) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let former = take_hook();
            set_hook(Box::new(move |info| {
                let text = info.payload().downcast_ref::<&str>();
                if !text.is_some_and(|text| text.contains("on purpose")) {
                    PANICS.fetch_add(1, Ordering::SeqCst);
                    former(info);
                }
            }));
        });
        let (ends, is_over) = channel::<()>();
        thread::spawn(move || {
            if is_over.recv_timeout(Duration::from_secs(HANG_SECONDS)) == Err(RecvTimeoutError::Timeout) {
                let _ = writeln!(std::io::stderr(), "a hang of more than {HANG_SECONDS} s: {what}");
                std::process::abort();
            }
        });
        Self { _ends: ends }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        assert!(thread::panicking() || PANICS.load(Ordering::SeqCst) == 0, "a thread has panicked");
    }
}

fn grouped(interval: Duration) -> DatabaseOptions {
    DatabaseOptions { durability: Durability::Epoch(interval), ..options(DomainChoice::Process) }
}

fn open(options: &DatabaseOptions) -> Result<(tempfile::TempDir, Open)> {
    let folder = tempfile::tempdir().expect("a folder");
    let open = Open::at(&folder.path().join("a.pool"), options)?;
    Ok((folder, open))
}

type Acknowledgement = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// A task as an executor keeps it: its waker owns it, and so its future.
struct Task {
    future: Mutex<Option<Acknowledgement>>,
    /// The waker does it beside waking.
    on_wake: Box<dyn Fn() + Send + Sync>,
    woken: (Mutex<bool>, Condvar),
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        *self.woken.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.1.notify_all();
        (self.on_wake)();
    }
}

impl Task {
    fn new(ticket: Ticket<()>, on_wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let future: Acknowledgement = Box::pin(ticket.into_future());
        Arc::new(Self { future: Mutex::new(Some(future)), on_wake: Box::new(on_wake), woken: Default::default() })
    }

    fn poll(self: &Arc<Self>) -> Poll<Result<()>> {
        let waker = Waker::from(self.clone());
        let mut future = self.future.lock().unwrap_or_else(PoisonError::into_inner);
        future.as_mut().expect("not polled after its end").as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// As an executor: polls when it was woken, until the ticket is durable.
    fn wait(self: &Arc<Self>) -> Result<()> {
        loop {
            if let Poll::Ready(outcome) = self.poll() {
                return outcome;
            }
            let mut is_woken = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !std::mem::take(&mut *is_woken) {
                is_woken = self.woken.1.wait(is_woken).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// When a task has its answer, a power cut takes nothing back: nothing else waits, and no thread closes the epoch.
#[test]
fn a_task_has_its_answer_when_the_transaction_survives() -> Result<()> {
    let _watch = Watch::new("a task that waits alone");
    for durability in [Durability::Epoch(Duration::from_millis(40)), Durability::Sync] {
        let options = DatabaseOptions { durability, ..options(DomainChoice::Block) };
        let (folder, open) = open(&options)?;
        open.db.end_logger();
        for value in 0..10 {
            Task::new(open.db.update_async(|tx| open.put(tx, 1, value))?, || {}).wait()?;
            let copy = folder.path().join("copy.pool");
            std::fs::copy(folder.path().join("a.pool"), &copy).expect("a copy");
            assert_eq!(Open::at(&copy, &options)?.all()?, [(1, value)], "{durability:?}");
        }
    }
    Ok(())
}

/// A transaction that can no longer become durable is an error for a task, as for a thread.
#[test]
fn a_task_hears_of_a_lost_epoch() -> Result<()> {
    let (_folder, open) = open(&grouped(Duration::from_millis(80)))?;
    open.db.end_logger();
    let (task, ticket) = (open.db.update_async(|tx| open.put(tx, 1, 1))?, open.db.update_async(|tx| open.get(tx, 1))?);
    let task = Task::new(task, || {});
    open.db.clone().abandon();
    assert!(matches!(task.wait(), Err(Error::Poisoned { .. })));
    assert!(!ticket.is_durable() && matches!(ticket.durable(), Err(Error::Poisoned { .. })));
    Ok(())
}

/// A device that fails takes an answer from everyone who waits for one: threads and tasks get the error.
#[test]
fn a_ticket_on_a_failed_device_is_an_error() -> Result<()> {
    let _watch = Watch::new("tickets on a failed device");
    for is_task in [false, true] {
        let (device, Open { db, table }) = Open::on_device(&options(DomainChoice::Block))?;
        let put = |value: i64| db.update_async(|tx| table.put(tx, &row![1_u64, value]));
        put(1)?.durable()?;
        device.faulty.arm(FaultPlan { fail_sync: Some(Failing::for_ever(1)), ..FaultPlan::default() });
        let (ticket, other) = (put(2)?, db.update_async(|tx| table.get(tx, &row![1_u64]).map(|_| ()))?);
        let outcome = if is_task { Task::new(ticket, || {}).wait() } else { ticket.durable() };
        assert!(matches!(outcome, Err(Error::Pool(_) | Error::Poisoned { .. })), "task {is_task}: {outcome:?}");
        assert!(!other.is_durable() && other.durable().is_err(), "it saw what may be lost");
    }
    Ok(())
}

/// A waker is foreign code. One that panics keeps no other task from its wake-up, and ends no thread.
#[test]
fn a_waker_that_panics_stops_no_other_task() -> Result<()> {
    let _watch = Watch::new("a task after one whose waker panics");
    for durability in [Durability::Epoch(Duration::from_millis(40)), Durability::Sync] {
        let (_folder, open) = open(&DatabaseOptions { durability, ..options(DomainChoice::Block) })?;
        for turn in 0..3 {
            let put = || open.db.update_async(|tx| open.put(tx, 1, turn));
            let first = Task::new(put()?, || panic!("a waker panics, on purpose"));
            let second = Task::new(put()?, || {});
            if first.poll().is_pending() {
                second.wait()?;
            }
            open.set(&[(2, turn)])?;
        }
    }
    Ok(())
}

/// An executor that is dropped leaves its tasks to their wakers: the last handle ends on the thread that wakes.
#[test]
fn the_thread_that_wakes_may_drop_the_last_handle() -> Result<()> {
    let _watch = Watch::new("a database whose last handle is dropped by a waker");
    for durability in [Durability::Epoch(Duration::from_millis(40)), Durability::Sync] {
        let options = DatabaseOptions { durability, ..options(DomainChoice::Block) };
        let (folder, open) = open(&options)?;
        let is_pending = {
            let task = Task::new(open.db.update_async(|tx| open.put(tx, 1, 1))?, || {});
            matches!(task.poll(), Poll::Pending)
        };
        drop(open);
        // It waits until the last handle has been dropped.
        let path = folder.path().join("a.pool");
        let mut again = Open::at(&path, &options);
        while is_pending && again.is_err() {
            thread::yield_now();
            again = Open::at(&path, &options);
        }
        let open = again?;
        assert_eq!(open.all()?, [(1, 1)], "{durability:?}");
        assert!(open.db.recovery().was_clean, "{durability:?}");
    }
    Ok(())
}

/// As above, on the thread that makes checkpoints: it ends commit groups as well, and so wakes tasks.
#[test]
fn the_thread_of_checkpoints_may_drop_the_last_handle() -> Result<()> {
    let _watch = Watch::new("a database whose last handle is dropped during a checkpoint");
    for durability in [Durability::Epoch(Duration::from_millis(80)), Durability::Sync] {
        let small = DatabaseOptions { log_bytes: 64 << 10, segment_bytes: 4 << 10, ..options(DomainChoice::Block) };
        let options = DatabaseOptions { durability, ..small };
        let (folder, open) = open(&options)?;
        let (is_there, may_go) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let waits = Arc::new(AtomicU64::new(0));
        for _ in 0..5_000 {
            if is_there.load(Ordering::SeqCst) {
                break;
            }
            let (is_there, may_go, waits) = (is_there.clone(), may_go.clone(), waits.clone());
            let on_wake = move || {
                let is_checkpoint = thread::current().name() == Some("lodestone-checkpointer");
                if is_checkpoint && waits.fetch_add(1, Ordering::SeqCst) < 8 {
                    is_there.store(true, Ordering::SeqCst);
                    let begun = Instant::now();
                    // Not for ever: the other thread may wait for the checkpoint, because the log is full.
                    while !may_go.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_millis(200) {
                        thread::yield_now();
                    }
                    is_there.store(false, Ordering::SeqCst);
                }
            };
            // Its waker alone keeps it.
            let _ = Task::new(open.db.update_async(|tx| open.put(tx, 1, 1))?, on_wake).poll();
        }
        drop(open);
        may_go.store(true, Ordering::SeqCst);
        let path = folder.path().join("a.pool");
        let again = loop {
            if let Ok(again) = Open::at(&path, &options) {
                break again;
            }
            thread::yield_now();
        };
        assert_eq!((again.all()?, again.db.recovery().was_clean), (vec![(1, 1)], true), "{durability:?}");
    }
    Ok(())
}

/// A medium whose fence panics on request.
#[derive(Debug, Default)]
struct Panics(AtomicBool);

impl Medium for Panics {
    fn label(&self) -> String {
        "panics".into()
    }
    fn read(&self, _: PmAddr, _: u64) {}
    fn write(&self, _: PmAddr, _: u64) {}
    fn flush(&self, _: LineAddr) {}
    fn stream(&self, _: PmAddr, _: u64) {}
    fn fence(&self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "a fence panics, on purpose");
    }
}

/// A commit that panics takes its writer with it, and maybe the database. The threads that wait for a writer, for its
/// rows, for an epoch or in a task get an answer or an error.
#[test]
fn a_panic_in_a_commit_leaves_no_thread_waiting() -> Result<()> {
    let _watch = Watch::new("threads beside a commit that panics");
    // One writer for commits: the logger of groups has the other one.
    for (threads_max, durability) in [(1, Durability::Sync), (2, Durability::Epoch(Duration::from_millis(1)))] {
        for turn in (0..30).step_by(3) {
            let panics = Arc::new(Panics::default());
            let mut options = DatabaseOptions { threads_max, durability, ..options(DomainChoice::DaxEmulated) };
            options.pool.medium = Some(panics.clone());
            let (_folder, open) = open(&options)?;
            open.set(&[(1, 1)])?;
            let (ended, failed) = (AtomicU64::new(0), AtomicU64::new(0));
            thread::scope(|scope| {
                for number in 0..6_u64 {
                    let (open, panics, ended, failed) = (&open, &panics, &ended, &failed);
                    scope.spawn(move || {
                        for value in 0..50 {
                            if number == 0 && value == turn {
                                panics.0.store(true, Ordering::SeqCst);
                            }
                            let done = catch_unwind(AssertUnwindSafe(|| match number % 3 {
                                0 => open.set(&[(1, value), (number, value)]),
                                1 => open.db.update_async(|tx| open.put(tx, 1, value))?.durable(),
                                _ => open.all().and_then(|_| open.db.checkpoint().map(|_| ())),
                            }));
                            match done {
                                Ok(Ok(())) => {}
                                Ok(Err(Error::Poisoned { .. })) | Err(_) => drop(failed.fetch_add(1, Ordering::SeqCst)),
                                Ok(Err(error)) => panic!("{error}"),
                            }
                        }
                        ended.fetch_add(1, Ordering::SeqCst);
                    });
                }
            });
            assert_eq!(ended.load(Ordering::SeqCst), 6);
            assert!(failed.load(Ordering::SeqCst) > 0, "the fence never panicked");
        }
    }
    Ok(())
}

/// The end of the logger while tasks and threads wait: others close the epoch for them.
#[test]
fn the_end_of_the_logger_leaves_nothing_waiting() -> Result<()> {
    let _watch = Watch::new("threads and tasks beside a logger that ends");
    for turn in 0..16_u64 {
        let (_folder, open) = open(&grouped(Duration::from_micros(if turn % 2 == 0 { 300 } else { 20_000 })))?;
        thread::scope(|scope| {
            for number in 0..4_u64 {
                let open = &open;
                scope.spawn(move || {
                    for value in 0..20 {
                        let ticket = open.db.update_async(|tx| open.put(tx, number, value)).expect("no fault");
                        if number % 2 == 0 {
                            ticket.durable().expect("no fault");
                            continue;
                        }
                        Task::new(ticket, || {}).wait().expect("no fault");
                    }
                });
            }
            (0..turn * 10).for_each(|_| thread::yield_now());
            open.db.end_logger();
        });
        assert_eq!(open.all()?.len(), 4);
    }
    Ok(())
}

/// A full pool is an error of the commit that found it. Those before it stay, and the database goes on.
#[test]
fn a_full_pool_poisons_no_group() -> Result<()> {
    let _watch = Watch::new("groups in a full pool");
    let mut sizes = grouped(Duration::from_micros(100));
    (sizes.pool.size_bytes, sizes.pool.grow_bytes_max) = (2 << 20, 0);
    (sizes.log_bytes, sizes.segment_bytes) = (1 << 20, 16 << 10);
    let (folder, open) = open(&sizes)?;
    let largest = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..3_u64 {
            let (open, largest) = (&open, &largest);
            scope.spawn(move || {
                for key in 0..100_000_u64 {
                    match open.db.update_async(|tx| open.put(tx, key * 3 + number, 1)) {
                        Ok(ticket) if key % 64 == 0 => ticket.durable().expect("there was room"),
                        Ok(_) => {}
                        Err(error) if error.is_full() => break,
                        Err(error) => panic!("{error}"),
                    }
                    largest.fetch_max(key, Ordering::SeqCst);
                }
            });
        }
    });
    assert!(largest.load(Ordering::SeqCst) < 99_999, "the pool was never full");
    open.db.sync()?;
    let rows = open.all()?;
    assert!(matches!(open.db.update(|tx| open.get(tx, 0)), Ok(Some(1))));
    drop(open);
    let again = Open::at(&folder.path().join("a.pool"), &sizes)?;
    assert_eq!(again.all()?, rows);
    Ok(())
}

/// A reader of a durable row waits for no later commit of its writer. The idle pool syncs now and then by itself.
#[test]
fn a_reader_waits_for_the_version_that_it_read_and_for_no_later_one() -> Result<()> {
    let (device, Open { db, table }) = Open::on_device(&options(DomainChoice::Block))?;
    let mut answered_at_once = 0;
    for value in 1..=20_i64 {
        db.update(|tx| table.put(tx, &row![1_u64, value]))?;
        // Of the same writer, visible, and in a commit group that is not synced.
        let later = db.update_async(|tx| table.put(tx, &row![2_u64, value]))?;
        let before = device.faulty.syncs();
        let found = db.update(|tx| table.get(tx, &row![1_u64]))?;
        assert_eq!(found, Some(row![1_u64, value]));
        answered_at_once += u32::from(device.faulty.syncs() == before);
        later.durable()?;
    }
    assert!(answered_at_once > 10, "{answered_at_once} of 20 readers made no sync");
    Ok(())
}
