//! A closure may keep an error for itself and go on. What it gives then still comes of one committed state, or the attempt is
//! not believed: the cases where the error was a conflict, an absent object, or the end of a nested transaction.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};

use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_stm::{Error, FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm, Tx, TxResult};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Counter {
    count: u64,
}

fn memory(folder: &tempfile::TempDir) -> Result<(Stm, [PmPtr<Counter>; 2])> {
    let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
    let stm = Stm::open(&Pool::create(folder.path().join("a.pool"), &options)?)?;
    let found = [stm.root_named("first")?, stm.root_named("second")?];
    Ok((stm, found))
}

fn on_another_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

/// Adds one to both counters, as another thread.
fn add_to_both(stm: &Stm, both: [PmPtr<Counter>; 2]) {
    let add = || stm.update(|tx| both.iter().try_for_each(|&at| tx.write(at).map(|counter| counter.count += 1)));
    on_another_thread(add).expect("a commit");
}

/// Reads both counters, which are always equal; others change them in between, and the conflict is kept.
fn read_both(tx: &mut Tx<'_>, both: [PmPtr<Counter>; 2], between: impl FnOnce()) -> TxResult<[u64; 2]> {
    let first = tx.read(both[0])?.count;
    between();
    let _ = tx.read(both[1]);
    Ok([first, tx.read(both[1])?.count])
}

#[test]
fn an_attempt_that_met_a_conflict_is_not_believed() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, both) = memory(&folder)?;
    for kind in 0..4 {
        let attempts = Cell::new(0);
        let body = |tx: &mut Tx<'_>| {
            attempts.set(attempts.get() + 1);
            let others = || (attempts.get() == 1).then(|| add_to_both(&stm, both));
            let read = read_both(tx, both, || {
                others();
            })?;
            // What is concluded from a state that never was must not be told either.
            if kind == 3 && read[0] != read[1] { tx.cancel("they differ") } else { Ok(read) }
        };
        let [first, second] = match kind {
            0 => stm.read(body)?,
            1 => stm.snapshot(body)?,
            _ => stm.update(body)?,
        };
        assert_eq!(first, second, "kind {kind}");
    }
    Ok(())
}

#[test]
fn that_an_object_is_absent_is_seen_like_its_content() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [verdict, _]) = memory(&folder)?;
    let (asks, asked): (Sender<bool>, Receiver<bool>) = channel();
    let (answers, answered) = channel();
    std::thread::scope(|scope| {
        // A thread that frees an object, and makes another in its place when it is asked.
        let stm = &stm;
        scope.spawn(move || {
            let mut at = stm.update(|tx| tx.alloc(Counter { count: 7 })).expect("an object");
            for makes in asked {
                if makes {
                    let made = stm.update(|tx| tx.alloc(Counter { count: 8 })).expect("an object");
                    assert_eq!(made, at, "the place is used again");
                    at = made;
                } else {
                    stm.update(|tx| tx.free(at)).expect("freed");
                }
                answers.send(at).expect("somebody waits");
            }
        });
        asks.send(false).expect("the thread is there");
        let at = answered.recv().expect("an answer");
        let mut attempts = 0;
        let judged = stm.update(|tx| {
            attempts += 1;
            let is_absent = tx.read(at).is_err();
            if attempts == 1 {
                asks.send(true).expect("the thread is there");
                answered.recv().expect("an answer");
            }
            tx.write(verdict)?.count = if is_absent { 1 } else { 2 };
            Ok(is_absent)
        });
        drop(asks);
        assert!(!judged?, "committed behind the object, without having seen it");
        Ok(())
    })
}

#[test]
fn a_nested_transaction_that_failed_takes_the_whole_with_it() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, [first, second]) = memory(&folder)?;
    let outcome = stm.update(|tx| {
        let _: TxResult<()> = tx.nested(|tx| {
            tx.write(first)?.count = 5;
            tx.cancel("half way")
        });
        tx.write(second)?.count = 5;
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Cancelled { .. })), "{outcome:?}");
    let found = stm.read(|tx| Ok([tx.read(first)?.count, tx.read(second)?.count]))?;
    assert_eq!(found, [0, 0], "half of a nested transaction");
    // The next one is not held responsible.
    stm.update(|tx| tx.nested(|tx| tx.write(first).map(|counter| counter.count = 6)))?;
    assert_eq!(stm.read(|tx| Ok(tx.read(first)?.count))?, 6);
    Ok(())
}
