//! Real threads: every history of reads, absent rows, ranges, insertions and deletions has a serial order, and each
//! attempt that failed saw a state that was committed. `workload::serial_order` draws the conclusions.
//!
//! A row holds the number of its version, which only its writers assign. An absent row has a version as well. So that
//! it is known which, a row of an even key is deleted at most once, and one of an odd key is not there at first and is
//! never deleted:
//!
//! | key | versions |
//! | --- | --- |
//! | even | 0 and more: there from the beginning; [`DELETED`]: absent; above: there again |
//! | odd | 0: absent; 1 and more: there |
//!
//! Some transactions read through a snapshot that their thread begins, keeps over some transactions of its own, and
//! reads at the end. Such a one has its place in the order while `Database::snapshot` runs, and must fit there. Others
//! are serializable on a snapshot.
//!
//! Each round has keys of its own, few of them, so that transactions meet. Leaves have four rows, so that they are
//! purged and split all the time. `LODESTONE_HISTORY_TRANSACTIONS` sets the number of transactions.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{env, thread};

use common::{Open, options};
use lodestone_engine::{Isolation, Reader, Result, Snapshot, Tx, row};
use lodestone_pmem::DomainChoice;
use lodestone_workload::random::Random;
use lodestone_workload::serial_order::{Seen, judge};

const KEYS: u64 = 24;
const THREADS: u64 = 4;
/// Transactions of a thread in a round.
const STEPS: u64 = 150;
/// Failed attempts of a round that are judged. Each costs as much as all the transactions.
const ATTEMPTS_JUDGED: usize = 40;
/// The version of a deleted row.
const DELETED: u64 = 1 << 32;

struct World {
    open: Open,
    /// The first key of the round.
    first: u64,
    time: AtomicU64,
    committed: Mutex<Vec<Seen>>,
    attempts: Mutex<Vec<Seen>>,
}

/// The version that the absence of a row is.
fn absent(object: u64) -> u64 {
    if object.is_multiple_of(2) { DELETED } else { 0 }
}

fn number(version: i64) -> u64 {
    u64::try_from(version).expect("versions are positive")
}

impl World {
    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn note(&self, seen: &mut Seen, object: u64, version: u64) {
        seen.reads.push((usize::try_from(object).expect("few"), version));
    }

    /// Reads an object, and notes its version.
    fn read(&self, reader: &impl Reader, object: u64, seen: &mut Seen) -> Result<Option<u64>> {
        let found = self.open.get(reader, self.first + object)?.map(number);
        self.note(seen, object, found.unwrap_or(absent(object)));
        Ok(found)
    }

    /// Reads a range, and notes the versions of all its objects, the absent ones too.
    fn read_range(&self, reader: &impl Reader, from: u64, to: u64, is_reversed: bool, seen: &mut Seen) -> Result<()> {
        let range = row![self.first + from]..row![self.first + to];
        let rows = self.open.table.range(reader, range)?;
        let mut rows: Vec<_> =
            if is_reversed { rows.rev().collect::<Result<_>>()? } else { rows.collect::<Result<_>>()? };
        if is_reversed {
            rows.reverse();
        }
        let found = |key: u64| rows.iter().find(|row| row[0].as_u64() == Some(key)).and_then(|row| row[1].as_i64());
        assert!(rows.is_sorted_by_key(|row| row[0].as_u64()), "not in the order of the keys: {rows:?}");
        (from..to).for_each(|object| {
            self.note(seen, object, found(self.first + object).map_or(absent(object), number));
        });
        Ok(())
    }

    /// Reads an object and makes its next version: another number, a deletion, or an insertion.
    fn write(&self, tx: &Tx, object: u64, deletes: bool, seen: &mut Seen) -> Result<()> {
        let found = self.read(tx, object, seen)?;
        let before = found.unwrap_or(absent(object));
        let version = if deletes && found.is_some() && object.is_multiple_of(2) && before < DELETED {
            self.open.table.delete(tx, &row![self.first + object])?;
            DELETED
        } else {
            let row = row![self.first + object, i64::try_from(before + 1).expect("small")];
            if found.is_some() {
                self.open.table.update(tx, &row)?
            } else {
                self.open.table.insert(tx, &row)?
            }
            before + 1
        };
        seen.writes.push((usize::try_from(object).expect("few"), version));
        Ok(())
    }

    /// A snapshot, and the transaction that it is so far.
    fn snapshot(&self) -> (Snapshot, Seen) {
        let begun = self.now();
        let snapshot = self.open.db.snapshot().expect("a snapshot");
        (snapshot, Seen { begun, ended: self.now(), ..Seen::default() })
    }

    /// Reads some objects or all of them, each once.
    fn read_through(&self, snapshot: &Snapshot, seen: &mut Seen, random: &mut Random) -> Result<()> {
        let (from, to) = if random.below(2) == 0 { (0, KEYS) } else { (random.below(KEYS), KEYS) };
        let middle = from + random.below(to - from);
        self.read_range(snapshot, middle, to, random.below(2) == 0, seen)?;
        thread::yield_now();
        (from..middle).try_for_each(|object| self.read(snapshot, object, seen).map(|_| ()))
    }

    /// Ends a snapshot that is read at its end.
    fn end(&self, (snapshot, mut seen): (Snapshot, Seen), random: &mut Random) {
        self.read_through(&snapshot, &mut seen, random).expect("a snapshot answers");
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    /// The transactions of a thread, and snapshots around some of them.
    fn run(&self, random: &mut Random) {
        let mut snapshots = Vec::new();
        for _ in 0..STEPS {
            if random.below(8) == 0 {
                snapshots.push(self.snapshot());
            }
            self.step(random);
            if snapshots.len() > 2 || (!snapshots.is_empty() && random.below(8) == 0) {
                let number = usize::try_from(random.below(snapshots.len() as u64)).expect("few");
                self.end(snapshots.swap_remove(number), random);
            }
        }
        snapshots.into_iter().for_each(|snapshot| self.end(snapshot, random));
    }

    /// A transaction of one to four operations.
    fn step(&self, random: &mut Random) {
        let on_snapshot = random.below(3) == 0;
        let isolation = if on_snapshot { Isolation::SerializableOnSnapshot } else { Isolation::Serializable };
        let begun = self.now();
        let plan: Vec<(u64, u64, u64)> =
            (0..1 + random.below(4)).map(|_| (random.below(10), random.below(KEYS), random.below(8))).collect();
        let mut seen = Seen::default();
        let outcome = self.open.db.update_with(isolation, |tx| {
            if !seen.reads.is_empty() {
                let attempt = Seen { begun, ended: u64::MAX, writes: Vec::new(), ..std::mem::take(&mut seen) };
                self.attempts.lock().unwrap_or_else(PoisonError::into_inner).push(attempt);
            }
            seen = Seen::default();
            for &(kind, object, length) in &plan {
                // So that transactions overlap, also where there are few processors.
                thread::yield_now();
                let is_mine = |(other, _): &(usize, u64)| *other as u64 == object;
                match kind {
                    // Its own write is no version that others see.
                    _ if seen.writes.iter().any(is_mine) => {}
                    0..4 => self.read(tx, object, &mut seen).map(|_| ())?,
                    4 if seen.writes.is_empty() => {
                        self.read_range(tx, object, (object + length).min(KEYS), length % 2 == 0, &mut seen)?
                    }
                    _ => self.write(tx, object, kind > 7, &mut seen)?,
                }
            }
            Ok(())
        });
        outcome.expect("a commit");
        (seen.begun, seen.ended) = (begun, self.now());
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

#[test]
fn histories_of_threads_have_a_serial_order() -> Result<()> {
    let wanted: u64 = env::var("LODESTONE_HISTORY_TRANSACTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    let folder = tempfile::tempdir().expect("a folder");
    let mut sizes = options(DomainChoice::Process);
    (sizes.pool.size_bytes, sizes.log_bytes) = (64 << 20, 32 << 20);
    let (mut transactions, mut operations, mut attempts, mut kept) = (0, 0, 0, 0);
    for round in 0.. {
        if transactions >= wanted {
            break;
        }
        // A log holds every change of its database, so there is a new one now and then.
        let path = folder.path().join(format!("{}.pool", round / 50));
        if round % 50 == 0 && round > 0 {
            std::fs::remove_file(folder.path().join(format!("{}.pool", round / 50 - 1))).expect("the pool before");
        }
        let open = Open::at(&path, &sizes)?;
        let first = round % 50 * KEYS;
        open.set(&(0..KEYS).step_by(2).map(|object| (first + object, 0)).collect::<Vec<_>>())?;
        let (committed, failed) = (Mutex::default(), Mutex::default());
        let world = World { open, first, time: AtomicU64::new(1), committed, attempts: failed };
        thread::scope(|scope| {
            for number in 0..THREADS {
                let world = &world;
                scope.spawn(move || {
                    let mut random = Random::new(round * THREADS + number);
                    world.run(&mut random);
                });
            }
        });
        let stats = world.open.db.stats();
        assert_eq!((stats.snapshots_open, stats.side_versions, stats.side_bytes), (0, 0, 0), "round {round}");
        kept += stats.side_copies;
        let committed = world.committed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let failed = world.attempts.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(judge(&committed, &failed[..failed.len().min(ATTEMPTS_JUDGED)]), Ok(()), "round {round}");
        transactions += THREADS * STEPS;
        operations += committed.iter().map(|seen| seen.reads.len()).sum::<usize>();
        attempts += failed.len();
    }
    println!(
        "{transactions} transactions, {operations} versions read, {attempts} failed attempts, {kept} versions kept for \
         snapshots: no anomaly"
    );
    assert!(kept > 0, "no snapshot ever needed an older version");
    Ok(())
}
