//! `Tx::retry_when` in every kind of transaction: it waits for a change that another thread makes, and ends. Where no
//! thread can make one it is an error.

use lodestone_pmem::{DomainChoice, PoolOptions};
use lodestone_stm::{Error, FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm, Tx, TxResult};
use lodestone_store::Store;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
struct Flag {
    is_up: u64,
}

fn wait_until_up(tx: &mut Tx<'_>, flag: PmPtr<Flag>) -> TxResult<u64> {
    let found = tx.read(flag)?.is_up;
    tx.retry_when(found == 0)?;
    Ok(found)
}

#[test]
fn whoever_waits_for_a_condition_is_woken() -> Result<()> {
    for kind in 0..3 {
        let folder = tempfile::tempdir().expect("a folder");
        let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let stm = Stm::open(&Store::create(folder.path().join("waiting.pool"), &options)?)?;
        let flag = stm.root::<Flag>()?;
        let (ended, end) = std::sync::mpsc::channel();
        let waiter = stm.clone();
        // Not scoped: a waiter that is never woken must fail the test, not hang it.
        std::thread::spawn(move || {
            let seen = match kind {
                0 => waiter.update(|tx| wait_until_up(tx, flag)),
                1 => waiter.read(|tx| wait_until_up(tx, flag)),
                _ => waiter.snapshot(|tx| wait_until_up(tx, flag)),
            };
            let _ = ended.send(seen);
        });
        while stm.stats().waits == 0 {
            std::thread::yield_now();
        }
        stm.update(|tx| {
            tx.write(flag)?.is_up = 7;
            Ok(())
        })?;
        let seen = end.recv_timeout(std::time::Duration::from_secs(20)).expect("the waiter is woken");
        assert_eq!(seen?, 7, "kind {kind}");
    }
    Ok(())
}

#[test]
fn nobody_waits_for_a_change_of_a_pool_that_is_open_read_only() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("waiting.pool");
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let flag = Stm::open(&Store::create(&path, &options)?)?.root::<Flag>()?;
    let stm = Stm::open(&Store::open_read_only(&path, &options)?)?;
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = ended.send([stm.read(|tx| wait_until_up(tx, flag)), stm.snapshot(|tx| wait_until_up(tx, flag))]);
    });
    for outcome in end.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for ever") {
        assert!(matches!(outcome, Err(Error::NeverChanges)), "{outcome:?}");
    }
    Ok(())
}
