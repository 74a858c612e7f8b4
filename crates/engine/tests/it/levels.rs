//! Transactions of every level, snapshots and savepoints in random order on one thread, beside an oracle that keeps the
//! rows of every moment.
//!
//! The oracle knows for each key how often it was changed. So it says exactly which commit must meet a conflict, but
//! for serializable ones, whose conflicts may be false: of those it says that what they read is true when they commit.
//! `LODESTONE_LEVELS_SEED` runs one seed alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Open, options};
use lodestone_engine::{Error, Isolation, Reader, Result, Row, Savepoint, Snapshot, Tx, row};
use lodestone_pmem::DomainChoice;
use lodestone_workload::random::Random;

const KEYS: u64 = 16;
const LEVELS: [Isolation; 4] =
    [Isolation::Serializable, Isolation::SerializableOnSnapshot, Isolation::Snapshot, Isolation::ReadCommitted];

type Map = BTreeMap<u64, i64>;
type Own = BTreeMap<u64, Option<i64>>;

/// The committed rows, and how often each key was changed.
#[derive(Clone, Default)]
struct Moment {
    rows: Map,
    changes: BTreeMap<u64, u64>,
}

/// A transaction and what the oracle knows about it.
struct Running {
    tx: Tx,
    begun: Moment,
    own: Own,
    savepoints: Vec<(Savepoint, Own)>,
    /// Read committed: how often the key had been changed at the last look, and whether there was a row.
    bases: BTreeMap<u64, (u64, bool)>,
    /// Read committed: keys that a range found missing. It depends on purges whether that is noted.
    unsure: BTreeSet<u64>,
    /// Rows of others that it read: keys and values.
    reads: Vec<(u64, Option<i64>)>,
}

struct World {
    open: Open,
    now: Moment,
    running: Vec<Running>,
    snapshots: Vec<(Snapshot, Map)>,
    conflicts: [u64; 4],
    commits: [u64; 4],
}

fn overlay(rows: &Map, own: &Own) -> Map {
    let mut rows = rows.clone();
    for (key, value) in own {
        match value {
            Some(value) => rows.insert(*key, *value),
            None => rows.remove(key),
        };
    }
    rows
}

fn pair(row: &Row) -> (u64, i64) {
    (row[0].as_u64().unwrap_or(u64::MAX), row[1].as_i64().unwrap_or(i64::MIN))
}

impl Running {
    fn level(&self) -> Isolation {
        self.tx.isolation()
    }

    /// The committed rows that it reads now.
    fn base(&self, now: &Moment) -> Map {
        if matches!(self.level(), Isolation::ReadCommitted | Isolation::Serializable) {
            now.rows.clone()
        } else {
            self.begun.rows.clone()
        }
    }

    /// Notes a look at a key that it has not changed itself.
    fn looked(&mut self, now: &Moment, key: u64) {
        if !self.own.contains_key(&key) {
            let base = self.base(now);
            self.reads.push((key, base.get(&key).copied()));
            let changes = now.changes.get(&key).copied().unwrap_or(0);
            self.bases.insert(key, (changes, now.rows.contains_key(&key)));
            self.unsure.remove(&key);
        }
    }
}

fn range(open: &Open, reader: &impl Reader, from: u64, to: u64, is_reversed: bool) -> Result<Vec<(u64, i64)>> {
    let rows = open.table.range(reader, row![from]..row![to])?;
    let mut rows: Vec<Row> =
        if is_reversed { rows.rev().collect::<Result<_>>()? } else { rows.collect::<Result<_>>()? };
    if is_reversed {
        rows.reverse();
    }
    Ok(rows.iter().map(pair).collect())
}

fn part(rows: &Map, from: u64, to: u64) -> Vec<(u64, i64)> {
    rows.range(from..to.max(from)).map(|(key, value)| (*key, *value)).collect()
}

impl World {
    fn new(folder: &std::path::Path) -> Result<Self> {
        let open = Open::at(&folder.join("a.pool"), &options(DomainChoice::Process))?;
        let (now, running, snapshots) = (Moment::default(), Vec::new(), Vec::new());
        Ok(Self { open, now, running, snapshots, conflicts: [0; 4], commits: [0; 4] })
    }

    /// One operation of a transaction. A conflict is allowed to serializable ones alone.
    fn operate(&mut self, number: usize, random: &mut Random) -> Result<()> {
        let Self { open, now, running, .. } = self;
        let one = &mut running[number];
        let (key, value) = (random.below(KEYS), i64::try_from(random.below(1000)).expect("small"));
        let expected = overlay(&one.base(now), &one.own);
        match random.below(10) {
            0..3 => {
                assert_eq!(open.get(&one.tx, key)?, expected.get(&key).copied(), "{:?}: key {key}", one.level());
                one.looked(now, key);
            }
            3..5 => {
                let (from, to) = (key, key + random.below(KEYS));
                let found = range(open, &one.tx, from, to, value % 2 == 0)?;
                assert_eq!(found, part(&expected, from, to), "{:?}: {from} to {to}", one.level());
                for key in from..to {
                    one.looked(now, key);
                    if !expected.contains_key(&key) {
                        one.unsure.insert(key);
                    }
                }
            }
            5 => {
                open.put(&one.tx, key, value)?;
                one.own.insert(key, Some(value));
            }
            6 => {
                let outcome = open.table.insert(&one.tx, &row![key, value]);
                one.looked(now, key);
                match outcome {
                    Err(Error::Duplicate { .. }) => assert!(expected.contains_key(&key)),
                    outcome => {
                        outcome?;
                        assert!(!expected.contains_key(&key));
                        one.own.insert(key, Some(value));
                    }
                }
            }
            7 => {
                let was_there = open.table.delete(&one.tx, &row![key])?;
                assert_eq!(was_there, expected.contains_key(&key), "{:?}: key {key}", one.level());
                one.looked(now, key);
                if was_there {
                    one.own.insert(key, None);
                }
            }
            8 => one.savepoints.push((one.tx.savepoint()?, one.own.clone())),
            _ => {
                if let Some(place) = one.savepoints.len().checked_sub(1).map(|last| random.below(last as u64 + 1)) {
                    let place = usize::try_from(place).expect("few");
                    let (savepoint, own) = one.savepoints[place].clone();
                    if value % 3 == 0 {
                        one.tx.release(savepoint)?;
                        one.savepoints.truncate(place);
                    } else {
                        one.tx.rollback_to(savepoint)?;
                        one.own = own;
                        one.savepoints.truncate(place + 1);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a commit of `one` must meet a conflict; `None`: it may.
    fn must_conflict(&self, one: &Running) -> Option<bool> {
        let changed = |key: &u64, then: u64| self.now.changes.get(key).copied().unwrap_or(0) != then;
        let is_newer = |key: &u64| changed(key, one.begun.changes.get(key).copied().unwrap_or(0));
        match one.level() {
            _ if one.own.is_empty() => Some(false),
            Isolation::Snapshot => Some(one.own.keys().any(is_newer)),
            Isolation::ReadCommitted => {
                let mut outcome = Some(false);
                for key in one.own.keys() {
                    let Some((then, was_there)) = one.bases.get(key).copied() else { continue };
                    // A row that was missing, came, went and was purged is missing as before.
                    let may_be_same = !was_there && !self.now.rows.contains_key(key);
                    match changed(key, then) {
                        _ if one.unsure.contains(key) => outcome = None,
                        true if may_be_same => outcome = None,
                        true => return Some(true),
                        false => {}
                    }
                }
                outcome
            }
            _ => None,
        }
    }

    fn end(&mut self, number: usize) -> Result<()> {
        let one = self.running.swap_remove(number);
        let expected = self.must_conflict(&one);
        let level = one.level();
        let place = LEVELS.iter().position(|other| *other == level).expect("one of them");
        match one.tx.commit() {
            Ok(()) => {
                assert_ne!(expected, Some(true), "{level:?}: a conflict was not noticed");
                let is_serializable = matches!(level, Isolation::Serializable | Isolation::SerializableOnSnapshot);
                if is_serializable && !one.own.is_empty() {
                    for (key, value) in &one.reads {
                        assert_eq!(self.now.rows.get(key), value.as_ref(), "{level:?}: key {key} has changed");
                    }
                }
                self.now.rows = overlay(&self.now.rows, &one.own);
                one.own.keys().for_each(|key| *self.now.changes.entry(*key).or_default() += 1);
                self.commits[place] += 1;
            }
            Err(Error::Conflict) => {
                assert_ne!(expected, Some(false), "{level:?}: a conflict without a reason");
                self.conflicts[place] += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn step(&mut self, random: &mut Random) -> Result<()> {
        match random.below(20) {
            0..3 if self.running.len() < 6 => {
                let level = LEVELS[usize::try_from(random.below(4)).expect("few")];
                let (tx, begun) = (self.open.db.begin_with(level), self.now.clone());
                let (own, savepoints, bases, reads) = (Own::new(), Vec::new(), BTreeMap::new(), Vec::new());
                let unsure = BTreeSet::new();
                self.running.push(Running { tx, begun, own, savepoints, bases, unsure, reads });
            }
            3 if self.snapshots.len() < 4 => self.snapshots.push((self.open.db.snapshot()?, self.now.rows.clone())),
            4 if !self.snapshots.is_empty() => {
                let number = random.below(self.snapshots.len() as u64);
                self.snapshots.swap_remove(usize::try_from(number).expect("few"));
            }
            5..8 if !self.running.is_empty() => {
                let number = random.below(self.running.len() as u64);
                self.end(usize::try_from(number).expect("few"))?;
            }
            8 => {
                for (snapshot, rows) in &self.snapshots {
                    let (from, is_reversed) = (random.below(KEYS), random.below(2) == 0);
                    assert_eq!(range(&self.open, snapshot, from, KEYS, is_reversed)?, part(rows, from, KEYS));
                    let key = random.below(KEYS);
                    assert_eq!(self.open.get(snapshot, key)?, rows.get(&key).copied());
                }
            }
            _ if !self.running.is_empty() => {
                let number = usize::try_from(random.below(self.running.len() as u64)).expect("few");
                match self.operate(number, random) {
                    Err(Error::Conflict) => {
                        let one = self.running.swap_remove(number);
                        assert_eq!(one.level(), Isolation::Serializable, "another level met a conflict in a read");
                        self.conflicts[0] += 1;
                    }
                    outcome => outcome?,
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn run(seed: u64) -> Result<[[u64; 4]; 2]> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut world = World::new(folder.path())?;
    let mut random = Random::new(seed);
    for _ in 0..600 {
        world.step(&mut random)?;
    }
    while !world.running.is_empty() {
        world.end(0)?;
    }
    let rows: Vec<(u64, i64)> = part(&world.now.rows, 0, KEYS);
    assert_eq!(world.open.all()?, rows);
    world.snapshots.clear();
    let stats = world.open.db.stats();
    assert_eq!((stats.snapshots_open, stats.side_versions, stats.side_bytes), (0, 0, 0));
    Ok([world.commits, world.conflicts])
}

#[test]
fn transactions_of_every_level_do_what_the_oracle_says() {
    let only = std::env::var("LODESTONE_LEVELS_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let mut sums = [[0; 4]; 2];
    for seed in only.map_or(0..150, |seed| seed..seed + 1) {
        println!("LODESTONE_LEVELS_SEED={seed}");
        let found = run(seed).expect("no error");
        sums.iter_mut().flatten().zip(found.iter().flatten()).for_each(|(sum, more)| *sum += more);
    }
    println!("{LEVELS:?}: commits {:?}, conflicts {:?}", sums[0], sums[1]);
    if only.is_none() {
        assert!(sums.iter().flatten().all(|count| *count > 50), "{sums:?}");
    }
}
