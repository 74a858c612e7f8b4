//! `Tx::retry_when` in every kind of transaction: it waits for a change that another thread makes, and ends.

use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject, PmPtr, Result, Stm, Tx, TxResult};

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
        let stm = Stm::open(&Pool::create(folder.path().join("waiting.pool"), &options)?)?;
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
