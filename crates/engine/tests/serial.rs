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
//! Two indexes lead to the rows. An entry of `by_part` stays where it is, and a range of a part has all rows of that
//! part. Entries of `by_shade` move with each version, and a range has all rows. So a range of an index tells the
//! version of each object in it, the absent ones too, as a range of the table does.
//!
//! Some transactions take a part of their changes back to a savepoint. Their reads stay. Some read through a snapshot
//! that their thread begins, keeps over some transactions of its own, and reads at the end. Such a one has its place in
//! the order while `Database::snapshot` runs, and must fit there. Others are serializable on a snapshot.
//!
//! Each round has keys of its own, few of them, so that transactions meet. Its history is judged at its end and
//! forgotten, so the memory is that of one round. Leaves have four rows, so that they are purged and split all the
//! time.
//!
//! `LODESTONE_HISTORY_OPERATIONS=10000000 cargo test -p lodestone-engine --test serial -- --ignored --nocapture` runs
//! so many operations.

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{env, thread};

use common::hardware::Hardware;
use common::options;
use lodestone_engine::{
    Database, DatabaseOptions, Isolation, Reader, Result, Row, Snapshot, Table, TableIndex, Tx, row,
};
use lodestone_pmem::DomainChoice;
use lodestone_workload::random::Random;
use lodestone_workload::serial_order::{Seen, judge};

const KEYS: u64 = 24;
/// Objects of a part, and shades of the versions of a round.
const PART: u64 = 8;
const SHADES: u64 = 4;
const THREADS: u64 = 4;
/// Transactions of a thread in a round.
const STEPS: u64 = 150;
/// Failed attempts of a round that are judged. Each costs as much as all the transactions.
const ATTEMPTS_JUDGED: usize = 40;
/// One operation in so many lets the other threads run.
const YIELDS_IN: u64 = 8;
/// Rounds in one pool.
const ROUNDS: u64 = 50;
/// Histories at a time, and most pools of each.
const LANES: u64 = 3;
const POOLS_MAX: u64 = 1 << 32;
/// The version of a deleted row.
const DELETED: u64 = 1 << 32;

struct World<'r> {
    db: &'r Database,
    table: &'r Table,
    by_part: TableIndex,
    by_shade: TableIndex,
    /// The first key of the round.
    first: u64,
    time: AtomicU64,
    /// Calls that read, write, begin a snapshot or a savepoint, or roll back to one.
    operations: AtomicU64,
    committed: Mutex<Vec<Seen>>,
    attempts: Mutex<Vec<Seen>>,
}

/// The way by which a range is read.
#[derive(Clone, Copy)]
enum By {
    Key,
    Part,
    Shade,
}

/// The version that the absence of a row is.
fn absent(object: u64) -> u64 {
    if object.is_multiple_of(2) { DELETED } else { 0 }
}

fn number(version: i64) -> u64 {
    u64::try_from(version).expect("versions are positive")
}

impl<'r> World<'r> {
    fn new(db: &'r Database, table: &'r Table, first: u64) -> Result<Self> {
        let (by_part, by_shade) = (table.index("by_part")?, table.index("by_shade")?);
        let (time, operations) = (AtomicU64::new(1), AtomicU64::new(0));
        let (committed, attempts) = (Mutex::default(), Mutex::default());
        Ok(Self { db, table, by_part, by_shade, first, time, operations, committed, attempts })
    }

    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn count(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    /// The row of an object in a version.
    fn row(&self, object: u64, version: u64) -> Row {
        let key = self.first + object;
        let shade = self.first * SHADES + (version * 7 + object) % SHADES;
        row![key, i64::try_from(version).expect("small"), key / PART, shade]
    }

    fn note(&self, seen: &mut Seen, object: u64, version: u64) {
        seen.reads.push((usize::try_from(object).expect("few"), version));
    }

    /// The version of a row, which is right in all of its columns.
    fn version(&self, row: &Row) -> u64 {
        let (key, version) = (row[0].as_u64().expect("a number"), number(row[1].as_i64().expect("a number")));
        assert_eq!(*row, self.row(key - self.first, version), "a row that no transaction wrote");
        version
    }

    /// Reads an object, and notes its version.
    fn read(&self, reader: &impl Reader, object: u64, seen: &mut Seen) -> Result<Option<u64>> {
        self.count();
        let found = self.table.get(reader, &row![self.first + object])?.map(|row| self.version(&row));
        self.note(seen, object, found.unwrap_or(absent(object)));
        Ok(found)
    }

    /// Reads a range, and notes the versions of all its objects, the absent ones too.
    fn read_range(
        &self,
        reader: &impl Reader,
        by: By,
        range: (u64, u64),
        is_back: bool,
        seen: &mut Seen,
    ) -> Result<()> {
        self.count();
        let (from, to) = match by {
            By::Key => range,
            By::Part => (range.0 / PART * PART, range.0 / PART * PART + PART),
            By::Shade => (0, KEYS),
        };
        let first = self.first;
        let part = || row![(first + from) / PART]..=row![(first + from) / PART];
        let shades = || row![first * SHADES]..row![first * SHADES + SHADES];
        let mut rows: Vec<Row> = match (by, is_back) {
            (By::Key, false) => {
                self.table.range(reader, row![first + from]..row![first + to])?.collect::<Result<_>>()?
            }
            (By::Key, true) => {
                self.table.range(reader, row![first + from]..row![first + to])?.rev().collect::<Result<_>>()?
            }
            (By::Part, false) => self.by_part.range(reader, part())?.collect::<Result<_>>()?,
            (By::Part, true) => self.by_part.range(reader, part())?.rev().collect::<Result<_>>()?,
            (By::Shade, false) => self.by_shade.range(reader, shades())?.collect::<Result<_>>()?,
            (By::Shade, true) => self.by_shade.range(reader, shades())?.rev().collect::<Result<_>>()?,
        };
        if is_back {
            rows.reverse();
        }
        let order = |row: &Row| (if matches!(by, By::Shade) { row[3].as_u64() } else { None }, row[0].as_u64());
        assert!(rows.is_sorted_by_key(order), "not in order: {rows:?}");
        let found = |key: u64| rows.iter().find(|row| row[0].as_u64() == Some(key)).map(|row| self.version(row));
        (from..to).for_each(|object| self.note(seen, object, found(first + object).unwrap_or(absent(object))));
        let is_outside = |row: &&Row| row[0].as_u64().is_none_or(|key| !(first + from..first + to).contains(&key));
        assert_eq!(rows.iter().find(is_outside), None, "outside of the range");
        Ok(())
    }

    /// Reads an object and makes its next version: another number, a deletion, or an insertion.
    fn write(&self, tx: &Tx, object: u64, deletes: bool, seen: &mut Seen) -> Result<()> {
        let found = self.read(tx, object, seen)?;
        self.count();
        let before = found.unwrap_or(absent(object));
        let version = if deletes && found.is_some() && object.is_multiple_of(2) && before < DELETED {
            self.table.delete(tx, &row![self.first + object])?;
            DELETED
        } else {
            let row = self.row(object, before + 1);
            if found.is_some() {
                self.table.update(tx, &row)?
            } else {
                self.table.insert(tx, &row)?
            }
            before + 1
        };
        seen.writes.push((usize::try_from(object).expect("few"), version));
        Ok(())
    }

    /// A snapshot, and the transaction that it is so far.
    fn snapshot(&self) -> (Snapshot, Seen) {
        self.count();
        let begun = self.now();
        let snapshot = self.db.snapshot().expect("a snapshot");
        (snapshot, Seen { begun, ended: self.now(), ..Seen::default() })
    }

    /// Reads some objects or all of them, each once.
    fn read_through(&self, snapshot: &Snapshot, seen: &mut Seen, random: &mut Random) -> Result<()> {
        let (from, to) = if random.below(2) == 0 { (0, KEYS) } else { (random.below(KEYS), KEYS) };
        let middle = from + random.below(to - from);
        let by = [By::Key, By::Part, By::Shade][usize::try_from(random.below(3)).expect("few")];
        self.read_range(snapshot, by, (middle, to), random.below(2) == 0, seen)?;
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
            (0..1 + random.below(5)).map(|_| (random.below(12), random.below(KEYS), random.below(8))).collect();
        let mut seen = Seen::default();
        let outcome = self.db.update_with(isolation, |tx| {
            if !seen.reads.is_empty() {
                let attempt = Seen { begun, ended: u64::MAX, writes: Vec::new(), ..std::mem::take(&mut seen) };
                self.attempts.lock().unwrap_or_else(PoisonError::into_inner).push(attempt);
            }
            seen = Seen::default();
            let mut savepoint = None;
            for &(kind, object, length) in &plan {
                // So that transactions overlap, also where there are few processors.
                if random.below(YIELDS_IN) == 0 {
                    thread::yield_now();
                }
                let is_mine = |(other, _): &(usize, u64)| *other as u64 == object;
                match kind {
                    // Its own write is no version that others see.
                    _ if seen.writes.iter().any(is_mine) => {}
                    0..4 => self.read(tx, object, &mut seen).map(|_| ())?,
                    // A range would have its own writes.
                    4..6 if seen.writes.is_empty() => {
                        let by = if kind == 4 { By::Key } else { [By::Part, By::Shade][usize::from(length > 5)] };
                        let to = (object + length).min(KEYS);
                        self.read_range(tx, by, (object, to), length % 2 == 0, &mut seen)?;
                    }
                    10 => {
                        self.count();
                        savepoint = Some((tx.savepoint()?, seen.writes.len()));
                    }
                    11 => {
                        if let Some((savepoint, writes)) = savepoint {
                            self.count();
                            tx.rollback_to(savepoint)?;
                            seen.writes.truncate(writes);
                        }
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

/// Runs rounds until there were so many operations. `lane`: which other rounds it is to run.
fn prove(wanted: u64, lane: u64, is_in_regions: bool) -> Result<()> {
    let begun = Instant::now();
    let folder = tempfile::tempdir().expect("a folder");
    let mut sizes = options(DomainChoice::Process);
    (sizes.pool.size_bytes, sizes.log_bytes) = (64 << 20, 32 << 20);
    // Each odd lane: a leaf or two, so that they come and go all the time.
    sizes.cache_bytes = (lane % 2 == 1).then_some(2 << 10);
    if is_in_regions {
        let hardware = Hardware::new();
        // So that there are regions, those that are tried again, and fallbacks beside them.
        hardware.one_of.store(2, Ordering::SeqCst);
        sizes.region = hardware.region();
    }
    let (mut operations, mut transactions, mut versions, mut attempts, mut kept) = (0, 0, 0, 0, 0);
    for pool in lane * POOLS_MAX.. {
        if operations >= wanted {
            break;
        }
        // A log holds every change of its database, so there is a new one now and then.
        let path = folder.path().join(format!("{pool}.pool"));
        let (db, table) = open(&path, &sizes)?;
        for round in pool * ROUNDS..(pool + 1) * ROUNDS {
            let world = World::new(&db, &table, round % ROUNDS * KEYS)?;
            db.update(|tx| (0..KEYS).step_by(2).try_for_each(|object| table.put(tx, &world.row(object, 0))))?;
            thread::scope(|scope| {
                for number in 0..THREADS {
                    let world = &world;
                    scope.spawn(move || world.run(&mut Random::new(round * THREADS + number)));
                }
            });
            let stats = db.stats();
            assert_eq!((stats.snapshots_open, stats.side_versions, stats.side_bytes), (0, 0, 0), "round {round}");
            operations += world.operations.into_inner();
            let committed = world.committed.into_inner().unwrap_or_else(PoisonError::into_inner);
            let failed = world.attempts.into_inner().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(judge(&committed, &failed[..failed.len().min(ATTEMPTS_JUDGED)]), Ok(()), "round {round}");
            transactions += committed.len();
            versions += committed.iter().map(|seen| seen.reads.len()).sum::<usize>();
            attempts += failed.len();
            if operations >= wanted {
                break;
            }
        }
        kept += db.stats().side_copies;
        std::fs::remove_file(path).expect("the pool");
    }
    println!(
        "{operations} operations, {transactions} transactions, {versions} versions read, {attempts} failed attempts, \
         {kept} versions kept for snapshots in {} s: no anomaly",
        begun.elapsed().as_secs()
    );
    assert!(kept > 0, "no snapshot ever needed an older version");
    Ok(())
}

fn open(path: &Path, options: &DatabaseOptions) -> Result<(Database, Table)> {
    let db = Database::open_with(path, options)?;
    let schema = "t (k u64, v i64, part u64, shade u64) key (k) index by_part (part) index by_shade (shade)";
    let table = db.create_table(&schema.parse()?)?;
    Ok((db, table))
}

#[test]
fn histories_of_threads_have_a_serial_order() -> Result<()> {
    prove(20_000, 0, false)
}

#[test]
fn histories_of_threads_in_regions_have_a_serial_order() -> Result<()> {
    prove(20_000, 0, true)
}

#[test]
#[ignore = "`make prove` runs it: as many operations as `LODESTONE_HISTORY_OPERATIONS` says"]
fn long_histories_of_threads_have_a_serial_order() -> Result<()> {
    let wanted = env::var("LODESTONE_HISTORY_OPERATIONS").ok().and_then(|number| number.parse().ok());
    // So many at a time that threads lose the processor anywhere: that finds more.
    let wanted = wanted.unwrap_or(600_000) / LANES;
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|lane| scope.spawn(move || prove(wanted, lane, lane == 0))).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
