//! One flipped bit in the persistent clock of a crashed pool is found, and never shows half a transaction. The file
//! also tests version words that damage made: locks without an owner.
//!
//! The fault model of the first: a life crashed in the middle of a transaction of several objects. The slot of one of
//! them did not reach the medium. Then one bit of the clock's two state lines, or of the table of crashed lives, is
//! flipped.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestone_pmem::{DomainChoice, PmPtr, Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_txn::STATE_PAIR_BYTES;

use crate::error::Result;
use crate::object::Shaped;
use crate::{Stm, StmOptions, pm_object};

const VALUES: usize = 3;

#[pm_object]
struct Value {
    value: u64,
}

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 2 << 20,
        journal_bytes: 128 << 10,
        ..PoolOptions::default()
    }
}

fn values(stm: &Stm) -> Result<Vec<PmPtr<Value>>> {
    (0..VALUES).map(|number| stm.root_named::<Value>(&number.to_string())).collect()
}

fn set(stm: &Stm, all: &[PmPtr<Value>], value: u64) -> Result<()> {
    stm.update(|tx| all.iter().try_for_each(|&ptr| tx.write(ptr).map(|found| found.value = value)))
}

fn get(stm: &Stm, all: &[PmPtr<Value>]) -> Result<Vec<u64>> {
    stm.read(|tx| all.iter().map(|&ptr| tx.read(ptr).map(|found| found.value)).collect())
}

/// Runs a life in which all values became `value`, and then `value` + 1 in a transaction that a crash tore. Returns the
/// bytes of the state lines and of the used table as ranges of the file.
fn live_and_crash(path: &Path, value: u64) -> Result<Vec<std::ops::Range<u64>>> {
    let pool = Pool::open_or_create(path, &options())?;
    let stm = Stm::open_with(&Store::over(&pool)?, &StmOptions { threads_max: 4, ..StmOptions::default() })?;
    let all = values(&stm)?;
    set(&stm, &all, value)?;
    set(&stm, &all, value + 1)?;
    let core = &*stm.core;
    let torn = Value::SHAPE.slot_at(all[2].addr(), core.word(all[2].addr(), Value::SHAPE)?.slot());
    let payload = core.memory.load(torn.plus(16));
    core.memory.store(torn.plus(16), 77);
    let image = fs::read(path).expect("the file of the pool");
    core.memory.store(torn.plus(16), payload);
    let lives = core.places.lives();
    let table_bytes = core.lives.crashed().iter().map(|life| lodestone_txn::Lives::entry_bytes(life.last.len())).sum();
    drop((stm, pool));
    fs::write(path, image).expect("the file of the pool");
    let range = |at: lodestone_pmem::PmAddr, bytes: u64| at.offset()..at.offset() + bytes;
    let half = STATE_PAIR_BYTES / 2;
    Ok(vec![range(lives.state, 64), range(lives.state.plus(half), 64), range(lives.table, table_bytes)])
}

/// Opens the pool, read-only or not. Every value must be `expected`, or the open must fail. Returns whether damage was
/// reported.
fn judge(path: &Path, read_only: bool, expected: u64) -> bool {
    let Ok(pool) = (if read_only { Pool::open_read_only(path, &options()) } else { Pool::open(path, &options()) })
    else {
        return true;
    };
    let Ok(stm) = Stm::open(&Store::over(&pool).expect("a store")) else { return true };
    let Ok(found) = values(&stm).and_then(|all| get(&stm, &all)) else { return true };
    assert_eq!(found, [expected; VALUES], "half a transaction, or another state than that before the crash");
    stm.recovery().clock_copies_damaged > 0 || !stm.check_all().findings.is_empty()
}

fn flip_everything(path: &Path, ranges: &[std::ops::Range<u64>], expected: u64) {
    let image = fs::read(path).expect("the file of the pool");
    let file = OpenOptions::new().write(true).open(path).expect("the file of the pool");
    assert!(judge(path, true, expected) || expected > 0, "the pool without damage");
    for at in ranges.iter().cloned().flatten() {
        for bit in 0..8 {
            let flipped = [image[at as usize] ^ (1 << bit)];
            file.write_all_at(&flipped, at).expect("a write");
            assert!(judge(path, true, expected), "silent: byte {at} bit {bit}, read-only");
            if (at * 8 + bit) % 5 == 0 {
                // Recovery changes the pool. From here on it must be as right without the bit.
                assert!(judge(path, false, expected), "silent: byte {at} bit {bit}");
                let _ = judge(path, true, expected);
                file.write_all_at(&image, 0).expect("a write");
            }
            file.write_all_at(&image[at as usize..=at as usize], at).expect("a write");
        }
    }
}

#[test]
fn one_flipped_bit_in_the_clock_of_a_crashed_pool_is_found_and_shows_no_half() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    // In the first life there is no table of crashed lives yet; later it has an entry, or two.
    for value in [10, 20, 30] {
        let ranges = live_and_crash(&path, value)?;
        flip_everything(&path, &ranges, value);
    }
    Ok(())
}

/// A damaged line may hold a word that says "committing" and is of this life. A thread that meets it would wait for
/// ever.
/// for ever.
#[test]
fn a_lock_that_nobody_holds_is_made_anew() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = Pool::create(folder.path().join("a.pool"), &options())?;
    let stm = Stm::open_with(&Store::over(&pool)?, &StmOptions { threads_max: 4, ..StmOptions::default() })?;
    let all = values(&stm)?;
    set(&stm, &all, 1)?;
    for kind in 0..3 {
        let core = &*stm.core;
        let word = core.word(all[1].addr(), Value::SHAPE)?;
        core.memory.store(all[1].addr(), word.locked().to_raw());
        let (ended, end) = std::sync::mpsc::channel();
        let (user, all) = (stm.clone(), all.clone());
        // Not scoped: a thread that waits for ever must fail the test, not hang it.
        std::thread::spawn(move || {
            let outcome = match kind {
                0 => get(&user, &all),
                1 => user.snapshot(|tx| all.iter().map(|&ptr| tx.read(ptr).map(|found| found.value)).collect()),
                _ => set(&user, &all, 1).and_then(|()| get(&user, &all)),
            };
            let _ = ended.send(outcome);
        });
        let found = end.recv_timeout(std::time::Duration::from_secs(60)).expect("it ends");
        assert_eq!(found?, [1; VALUES]);
    }
    Ok(())
}
