//! Damage to the clock and to objects is found, and never shows half a transaction, an older version or other bytes.
//!
//! - A lost line of an object is zero at the next open. A flipped bit of an object comes between two lives.
//! - Version words that damage made are locks without an owner.
//! - The clock: a life crashed in the middle of a transaction of several objects. The slot of one of
//!   them did not reach the medium. Then one bit of the clock's two state lines, or of the table of crashed lives, is
//!   flipped.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestone_pmem::{DomainChoice, PmPtr, Pool, PoolOptions};
use lodestone_store::Store;
use lodestone_txn::Which;

use crate::error::Result;
use crate::object::Shaped;
use crate::{Stm, StmOptions, pm_object};
use lodestone_cells::Shape;

const VALUES: usize = 3;

#[pm_object]
struct Value {
    value: u64,
}

/// A small pool that only this process must survive.
pub fn options() -> PoolOptions {
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
    let table_bytes =
        core.timeline.lives().crashed().iter().map(|life| lodestone_txn::Lives::entry_bytes(life.last.len())).sum();
    drop((stm, pool));
    fs::write(path, image).expect("the file of the pool");
    let range = |at: lodestone_pmem::PmAddr, bytes: u64| at.offset()..at.offset() + bytes;
    let ranges = |places: [lodestone_pmem::PmAddr; 2], bytes| places.map(|at| range(at, bytes));
    Ok([ranges(lives.state, 64), ranges(lives.table, table_bytes)].concat())
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

/// Objects whose cells are one line, two lines and five lines.
#[derive(Clone, Copy, Debug)]
struct Objects {
    small: PmPtr<Value>,
    middle: PmPtr<Middle>,
    large: PmPtr<Large>,
}

#[pm_object]
struct Middle {
    values: [u64; 5],
}

#[pm_object]
struct Large {
    values: [u64; 14],
}

impl Objects {
    fn open(stm: &Stm) -> Result<Self> {
        Ok(Self { small: stm.root_named("small")?, middle: stm.root_named("middle")?, large: stm.root_named("large")? })
    }

    fn set(&self, stm: &Stm, value: u64) -> Result<()> {
        stm.update(|tx| tx.write(self.small).map(|found| found.value = value))?;
        stm.update(|tx| tx.write(self.middle).map(|found| found.values = [value; 5]))?;
        stm.update(|tx| tx.write(self.large).map(|found| found.values = [value; 14]))
    }

    fn get(&self, stm: &Stm) -> [Result<Vec<u64>>; 3] {
        [
            stm.read(|tx| Ok(vec![tx.read(self.small)?.value])),
            stm.read(|tx| Ok(tx.read(self.middle)?.values.to_vec())),
            stm.read(|tx| Ok(tx.read(self.large)?.values.to_vec())),
        ]
    }

    /// The place of each cell in the file of the pool, and its shape.
    fn cells(&self) -> [(u64, Shape); 3] {
        [
            (self.small.addr().offset(), Value::SHAPE),
            (self.middle.addr().offset(), Middle::SHAPE),
            (self.large.addr().offset(), Large::SHAPE),
        ]
    }

    /// Opens the pool at `path`. Each object must have a value of `right`, or be an error that the check names too.
    /// Returns how many are errors.
    fn judge(&self, path: &Path, read_only: bool, right: &[u64]) -> Result<usize> {
        let pool = if read_only { Pool::open_read_only(path, &options())? } else { Pool::open(path, &options())? };
        let stm = Stm::open(&Store::over(&pool)?)?;
        let found = self.get(&stm);
        for values in found.iter().flatten() {
            assert!(right.iter().any(|right| values.iter().all(|value| value == right)), "{values:?}, not {right:?}");
        }
        let errors = found.iter().filter(|found| found.is_err()).count();
        assert!(errors == 0 || !stm.check_all().is_intact(), "the check names what reads refuse");
        Ok(errors)
    }
}

#[test]
fn a_lost_line_of_an_object_is_damage_and_no_older_version() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    // Versions of both slots are the newest in turn, and the last life ends in order or is killed.
    for (round, is_killed) in [(1, false), (2, false), (3, true), (4, true), (5, false)] {
        let store = Store::open_or_create(&path, &options())?;
        let stm = Stm::open(&store)?;
        let objects = Objects::open(&stm)?;
        objects.set(&stm, round)?;
        let image = is_killed.then(|| fs::read(&path).expect("the file of the pool"));
        drop((stm, store));
        let image = image.unwrap_or_else(|| fs::read(&path).expect("the file of the pool"));
        let mut errors = 0;
        for (start, shape) in objects.cells() {
            let bytes = u64::from(shape.cell_bytes);
            let headers = [Which::First, Which::Second].map(|which| start + u64::from(shape.slot_offset(which)));
            let has_header = |line| headers.iter().any(|header| (line..line + 64).contains(header));
            for line in (start..start + bytes).step_by(64) {
                let mut damaged = image.clone();
                damaged[line as usize..line as usize + 64].fill(0);
                // A payload of the killed life is open: the kill may have torn it.
                let right = [round, if is_killed && !has_header(line) { round - 1 } else { round }];
                for read_only in [true, false] {
                    fs::write(&path, &damaged).expect("the file of the pool");
                    errors += objects.judge(&path, read_only, &right)?;
                }
            }
        }
        assert!(errors >= 10, "of 16 lost lines with headers: {errors}");
        fs::write(&path, &image).expect("the file of the pool");
        assert_eq!(objects.judge(&path, false, &[round])?, 0, "the pool without damage");
    }
    Ok(())
}

#[test]
fn a_killed_life_that_only_read_leaves_no_word_that_the_next_one_believes() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let store = Store::open_or_create(&path, &options())?;
    let stm = Stm::open(&store)?;
    let objects = Objects::open(&stm)?;
    objects.set(&stm, 1)?;
    drop((stm, store));
    for ends_in_order in [false, true] {
        let store = Store::open(&path, &options())?;
        let stm = Stm::open(&store)?;
        assert!(objects.get(&stm).iter().all(Result::is_ok));
        let newest =
            Large::SHAPE.slot_at(objects.large.addr(), stm.core.word(objects.large.addr(), Large::SHAPE)?.slot());
        let mut image = fs::read(&path).expect("the file of the pool");
        drop((stm, store));
        if ends_in_order {
            image = fs::read(&path).expect("the file of the pool");
        }
        let mut damaged = image.clone();
        damaged[newest.offset() as usize + 24] ^= 1;
        fs::write(&path, &damaged).expect("the file of the pool");
        assert_eq!(objects.judge(&path, false, &[1])?, 1, "the flipped bit is found, ends in order: {ends_in_order}");
        fs::write(&path, &image).expect("the file of the pool");
    }
    Ok(())
}
