//! Acknowledgement in the block domain, where a commit is not durable by itself: tickets of threads and tasks, and
//! answers of readers. The tests judge durability by opening a copy of the file, as it would be found after a power
//! cut.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use lodestone_pmem::{DomainChoice, DurablePoint, PoolOptions, process_counters};
use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm, Tx, TxResult};
use lodestone_store::Store;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Counter {
    count: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Page {
    words: [u64; 500],
}

/// Syncs are counted for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn options(domain: DomainChoice) -> PoolOptions {
    PoolOptions { domain, size_bytes: 8 << 20, journal_bytes: 2 << 20, ..PoolOptions::default() }
}

/// A memory with two counters, all of it durable.
fn counters(folder: &tempfile::TempDir, domain: DomainChoice) -> Result<(Stm, [PmPtr<Counter>; 2])> {
    let stm = Stm::open(&Store::create(folder.path().join("pool"), &options(domain))?)?;
    let found = [stm.root_named::<Counter>("first")?, stm.root_named::<Counter>("second")?];
    stm.update(|tx| found.iter().try_for_each(|&counter| tx.write(counter).map(|counter| counter.count = 0)))?;
    Ok((stm, found))
}

fn add(stm: &Stm, counter: PmPtr<Counter>) -> Result<lodestone_stm::Ticket<u64>> {
    stm.update_async(|tx| {
        let counter = tx.write(counter)?;
        counter.count += 1;
        Ok(counter.count)
    })
}

/// Both counters as a power cut now would leave them.
fn after_power_cut(folder: &tempfile::TempDir) -> Result<[u64; 2]> {
    let copy = folder.path().join("copy");
    std::fs::copy(folder.path().join("pool"), &copy).expect("a copy");
    let stm = Stm::open(&Store::open(&copy, &options(DomainChoice::Process))?)?;
    let found = [stm.root_named::<Counter>("first")?, stm.root_named::<Counter>("second")?];
    stm.read(|tx| Ok([tx.read(found[0])?.count, tx.read(found[1])?.count]))
}

/// Wakes a thread and counts.
struct Alarm {
    thread: Thread,
    rung: AtomicU64,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// The smallest executor: polls, and sleeps until it is woken.
fn block_on<T>(future: impl IntoFuture<Output = T>) -> (T, u64) {
    let alarm = Arc::new(Alarm { thread: std::thread::current(), rung: AtomicU64::new(0) });
    let waker = Waker::from(Arc::clone(&alarm));
    let mut future = pin!(future.into_future());
    loop {
        let before = alarm.rung.load(Ordering::SeqCst);
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (done, before);
        }
        while alarm.rung.load(Ordering::SeqCst) == before {
            std::thread::park();
        }
    }
}

#[test]
fn an_awaited_ticket_is_durable_and_whoever_commits_wakes_its_task() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, _]) = counters(&folder, DomainChoice::Block)?;
    let mut woken = 0;
    for round in 1..=20 {
        let ticket = add(&stm, first)?;
        assert_eq!(*ticket.value(), round);
        let (count, rung) = block_on(ticket);
        assert_eq!(count?, round);
        assert!(after_power_cut(&folder)?[0] >= round, "acknowledged in round {round}");
        woken += rung;
    }
    assert!(woken > 0, "no task ever waited");
    Ok(())
}

#[test]
fn many_tickets_share_a_sync_and_need_no_thread_each() -> Result<()> {
    const TICKETS: u64 = 200;
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, _]) = counters(&folder, DomainChoice::Block)?;
    let before = process_counters().syncs;
    let tickets = (0..TICKETS).map(|_| add(&stm, first)).collect::<Result<Vec<_>>>()?;
    let all = async {
        let mut newest = 0;
        for ticket in tickets {
            newest = ticket.await?;
        }
        Ok::<_, lodestone_stm::Error>(newest)
    };
    assert_eq!(block_on(all).0?, TICKETS);
    assert_eq!(after_power_cut(&folder)?[0], TICKETS);
    let syncs = process_counters().syncs - before;
    assert!(syncs < TICKETS / 2, "{syncs} syncs for {TICKETS} tickets");
    Ok(())
}

#[test]
fn a_ticket_that_was_dropped_or_waited_for_by_a_thread_disturbs_nobody() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, second]) = counters(&folder, DomainChoice::Block)?;
    let mut dropped = add(&stm, first)?.into_future();
    let mut task = Context::from_waker(Waker::noop());
    let _ = std::pin::Pin::new(&mut dropped).poll(&mut task);
    drop(dropped);
    assert_eq!(add(&stm, second)?.durable()?, 1);
    assert_eq!(after_power_cut(&folder)?, [1, 1], "groups become durable in order");
    // A ticket outlives the memory.
    let late = add(&stm, first)?;
    drop(stm);
    assert_eq!(block_on(late).0?, 2);
    Ok(())
}

#[test]
fn where_a_fence_is_enough_a_ticket_is_ready_at_once() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, _]) = counters(&folder, DomainChoice::Process)?;
    assert_eq!(block_on(add(&stm, first)?).0?, 1);
    let (count, rung) = block_on(add(&stm, first)?);
    assert_eq!((count?, rung), (2, 0));
    Ok(())
}

#[test]
fn readers_tell_nothing_that_could_still_be_lost() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, second]) = counters(&folder, DomainChoice::Block)?;
    for round in 1..=10 {
        // This thread's latest flush is durable. The value read below comes from another thread.
        add(&stm, second)?.durable()?;
        std::thread::scope(|scope| {
            let added = scope.spawn(|| add(&stm, first).map(|ticket| *ticket.value())).join();
            assert_eq!(added.expect("no panic").expect("a commit"), round);
        });
        let seen = match round % 3 {
            0 => stm.snapshot(|tx| Ok(tx.read(first)?.count))?,
            1 => stm.read(|tx| Ok(tx.read(first)?.count))?,
            _ => stm.update(|tx| Ok(tx.read(first)?.count))?,
        };
        assert_eq!(seen, round);
        assert_eq!(after_power_cut(&folder)?[0], round, "round {round} was told before it was durable");
    }
    Ok(())
}

#[test]
fn no_object_is_durable_before_its_whole_transaction() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, _]) = counters(&folder, DomainChoice::Block)?;
    let pages: Vec<_> = (0..20).map(|_| stm.update(|tx| tx.alloc(Page { words: [0; 500] }))).collect::<Result<_>>()?;
    let stop = AtomicBool::new(false);
    let (mut crossed, mut apart) = (0, None);
    std::thread::scope(|scope| -> Result<()> {
        // Closes one group after the other.
        let closer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                add(&stm, first).and_then(lodestone_stm::Ticket::durable).expect("a commit");
            }
        });
        let memory = stm.pool().memory();
        let mut task = Context::from_waker(Waker::noop());
        for value in 1..=10_000 {
            let before = memory.flushing_now();
            let ticket = stm.update_async(|tx| {
                pages.iter().try_for_each(|&page| tx.write(page).map(|page| page.words = [value; 500]))
            })?;
            crossed += u64::from(memory.flushing_now() != before);
            // The newest flush of each page is the slot of this transaction.
            let points: Vec<_> = pages.iter().map(|page| memory.flushed_at(page.addr(), 9000)).collect();
            // If groups are closed faster than the pages join one, all of them are durable before they are seen.
            let is_durable = |point: &DurablePoint| memory.poll_durable(*point, &mut task).is_ready();
            if points.iter().any(|point| *point != points[0]) && !points.iter().all(is_durable) {
                apart = Some(points);
            }
            if value % 50 == 0 {
                ticket.durable()?;
            }
            if apart.is_some() || crossed > 10 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        closer.join().expect("no panic");
        Ok(())
    })?;
    assert_eq!(apart, None, "the pages of one transaction become durable one after the other");
    assert!(crossed > 0, "no group was closed within a transaction");
    Ok(())
}

#[test]
fn an_error_tells_nothing_that_could_still_be_lost() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, _]) = counters(&folder, DomainChoice::Block)?;
    let tell = |tx: &mut Tx<'_>| -> TxResult<()> {
        let count = tx.read(first)?.count;
        tx.cancel(count.to_string())
    };
    let tell_what_was_opened = |tx: &mut Tx<'_>| -> TxResult<()> {
        let count = tx.write(first)?.count;
        tx.cancel(count.to_string())
    };
    for round in 1..=20 {
        let ticket = add(&stm, first)?;
        let told = std::thread::scope(|scope| {
            let asked = scope.spawn(|| match round % 4 {
                0 => stm.update(tell_what_was_opened),
                1 => stm.read(tell),
                2 => stm.snapshot(tell),
                _ => stm.update(tell),
            });
            asked.join().expect("no panic").expect_err("cancelled").to_string()
        });
        assert!(told.ends_with(&format!(": {round}")), "{told}");
        assert!(after_power_cut(&folder)?[0] >= round, "told in round {round}");
        drop(ticket);
    }
    Ok(())
}

#[test]
fn a_transaction_larger_than_a_commit_group_ends() -> Result<()> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let pool = PoolOptions { size_bytes: 24 << 20, ..options(DomainChoice::Block) };
    let stm = Stm::open(&Store::create(folder.path().join("pool"), &pool)?)?;
    let (ended, end) = std::sync::mpsc::channel();
    let writer = stm.clone();
    // Not scoped: a commit that never ends must fail the test, not hang it.
    std::thread::spawn(move || {
        let _ = ended.send(writer.update(|tx| tx.alloc_bytes(&[7; 3_500_000])));
    });
    let bytes = end.recv_timeout(std::time::Duration::from_secs(30)).expect("the commit ends")?;
    assert!(stm.read(|tx| tx.read_bytes(bytes))? == [7; 3_500_000]);
    Ok(())
}
