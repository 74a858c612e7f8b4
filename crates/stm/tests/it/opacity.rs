//! A closure may swallow an error and go on. Its result must still come from one committed state, or the attempt is not
//! believed. The cases: the error was a conflict, an absent object, or the end of a nested transaction. After a
//! conflict or a failed nested transaction the closure sees nothing more. A state that was never committed would break
//! its assumptions, and it could loop or panic before the attempt is refused.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};

use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_stm::{
    Error, FromBytes, Immutable, IntoBytes, KnownLayout, Part, PmBytes, PmObject, PmPtr, Result, Stm, Tx, TxResult,
};
use lodestone_store::Store;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Counter {
    count: u64,
}

/// Too large to be read at once.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Large {
    count: u64,
    rest: [u64; 299],
}

fn memory(folder: &tempfile::TempDir) -> Result<(Stm, [PmPtr<Counter>; 2])> {
    let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
    let stm = Stm::open(&Store::create(folder.path().join("a.pool"), &options)?)?;
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

/// Reads both counters, which are always equal. Others change them in between, and the closure swallows the conflict.
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
            // A conclusion from a state that was never committed must not be told either.
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
        // A thread that frees an object and makes another in its place on request.
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
        let _ = tx.write(second).map(|counter| counter.count = 5);
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

#[test]
fn a_nested_failure_that_is_swallowed_ends_reads_and_snapshots_too() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, _) = memory(&folder)?;
    let swallow = |tx: &mut Tx<'_>| {
        let _: TxResult<()> = tx.nested(|tx| tx.cancel("half way"));
        Ok(7)
    };
    for outcome in [stm.read(swallow), stm.snapshot(swallow)] {
        assert!(matches!(outcome, Err(Error::Cancelled { .. })), "{outcome:?}");
    }
    assert_eq!(stm.read(|_| Ok(7))?, 7, "the next one is not held responsible");
    Ok(())
}

#[test]
fn the_error_of_a_nested_transaction_is_the_answer_of_the_whole() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, _) = memory(&folder)?;
    let hand_on = |tx: &mut Tx<'_>| tx.nested(|tx| tx.cancel::<()>("half way"));
    for outcome in [stm.update(hand_on), stm.read(hand_on), stm.snapshot(hand_on)] {
        assert!(matches!(&outcome, Err(Error::Cancelled { reason }) if reason == "half way"), "{outcome:?}");
    }
    Ok(())
}

/// Reads one counter, swallows the conflict that the other one meets, and looks at the other one again. Returns the
/// values it sees of both, if any.
fn keep_a_conflict(tx: &mut Tx<'_>, both: [PmPtr<Counter>; 2], between: impl FnOnce()) -> TxResult<Option<[u64; 2]>> {
    let first = tx.read(both[0])?.count;
    between();
    let kept = tx.read(both[1]).is_err();
    let second = tx.read(both[1]);
    assert!(kept || second.is_ok(), "what was read is read again");
    Ok(second.ok().map(|second| [first, second.count]))
}

#[test]
fn behind_a_conflict_nothing_more_is_seen() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, both) = memory(&folder)?;
    for kind in 0..4 {
        let (mut attempts, mut kept) = (0, 0);
        let body = |tx: &mut Tx<'_>| {
            attempts += 1;
            if kind == 3 {
                // After a write, reads go another way.
                tx.alloc(Counter { count: 0 })?;
            }
            let seen = keep_a_conflict(tx, both, || {
                if attempts <= 2 {
                    add_to_both(&stm, both);
                }
            })?;
            // Inside the closure, which may rely on it.
            match seen {
                Some([first, second]) => {
                    assert_eq!(first, second, "kind {kind}, attempt {attempts}: a state that never was")
                }
                None => kept += 1,
            }
            Ok(())
        };
        match kind {
            0 => stm.read(body)?,
            1 => stm.snapshot(body)?,
            _ => stm.update(body)?,
        }
        assert_eq!(kept > 0, kind != 1, "kind {kind}: only a snapshot meets no conflict");
    }
    Ok(())
}

/// Every operation. None may succeed. `mine` was written before, and `string` allocated.
fn try_everything(
    tx: &mut Tx<'_>,
    [mine, other]: [PmPtr<Counter>; 2],
    large: PmPtr<Large>,
    string: PmBytes,
) -> [bool; 15] {
    [
        tx.alloc_bytes(b"text").is_err(),
        tx.read(mine).is_err(),
        tx.read(other).is_err(),
        tx.read_part(mine, const { Part::<Counter, u64>::at(0) }).is_err(),
        tx.read(large).is_err(),
        tx.read_bytes(string).is_err(),
        tx.write(mine).is_err(),
        tx.write(other).is_err(),
        tx.write(large).is_err(),
        tx.alloc(Counter { count: 7 }).is_err(),
        tx.free(mine).is_err(),
        tx.free_bytes(string).is_err(),
        tx.free_bytes(PmBytes::default()).is_err(),
        tx.nested(|_| Ok(())).is_err(),
        tx.retry_when(false).is_err(),
    ]
}

#[test]
fn behind_a_conflict_every_operation_fails_and_the_transaction_begins_again() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, both) = memory(&folder)?;
    let mine: PmPtr<Counter> = stm.root_named("mine")?;
    let large: PmPtr<Large> = stm.root_named("large")?;
    let objects = stm.check_all().objects;
    let mut attempts = 0;
    stm.update(|tx| {
        attempts += 1;
        tx.write(mine)?.count += 1;
        let string = tx.alloc_bytes(b"mine")?;
        tx.read(large)?;
        let seen = keep_a_conflict(tx, both, || {
            if attempts == 1 {
                add_to_both(&stm, both);
            }
        })?;
        assert_eq!(seen.is_none(), attempts == 1, "nobody is in the way of the second attempt");
        if attempts == 1 {
            assert_eq!(try_everything(tx, [mine, both[0]], large, string), [true; 15]);
        }
        tx.free_bytes(string)
    })?;
    assert_eq!(attempts, 2);
    assert_eq!(stm.read(|tx| Ok(tx.read(mine)?.count))?, 1);
    assert_eq!(stm.check_all().objects, objects, "nothing was allocated");
    Ok(())
}

#[test]
fn behind_a_nested_transaction_that_failed_every_operation_fails() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm, both) = memory(&folder)?;
    let large: PmPtr<Large> = stm.root_named("large")?;
    let outcome = stm.update(|tx| {
        let string = tx.alloc_bytes(b"mine")?;
        let _: TxResult<()> = tx.nested(|tx| {
            tx.write(both[0])?.count = 5;
            tx.cancel("half way")
        });
        assert_eq!(try_everything(tx, both, large, string), [true; 15], "half of a nested transaction can be seen");
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Cancelled { .. })), "{outcome:?}");
    assert_eq!(stm.read(|tx| Ok(tx.read(both[0])?.count))?, 0);
    Ok(())
}
