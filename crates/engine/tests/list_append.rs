//! Appends to lists and reads of lists, interleaved at random: each level of isolation shows the anomalies that its
//! documentation allows, and no other one.
//!
//! A row is a list of numbers. Some transactions are open at once, and one thread carries out their operations in turn,
//! so a seed repeats a history exactly. Some transactions are rolled back. Three judges must agree on each history:
//!
//! | judge | of | finds |
//! | --- | --- | --- |
//! | `workload::list_append` | this project | Adya's anomalies by name |
//! | `workload::serial_order` | this project | that there is no serial order in real time |
//! | `adya` | others | the same from outside, after Elle |
//!
//! Then bugs are planted, and each is found. A bug is planted for the whole process, so all is one test.

mod common;

use std::collections::BTreeSet;
use std::env;

use adya::{History, Opts, Valid, Workload, check};
use common::options;
use lodestone_engine::{Database, Error, Isolation, Reader, Result, Table, Tx, row};
use lodestone_pmem::{DomainChoice, planted};
use lodestone_workload::list_append::Anomaly::{self, G2, GNonadjacent, GSingle, LostUpdate};
use lodestone_workload::list_append::{Operation, Transaction, anomalies};
use lodestone_workload::random::Random;
use lodestone_workload::serial_order::{Seen, judge};

const LISTS: u64 = 3;
/// Transactions that are open at once.
const OPEN_MAX: u64 = 4;
const STEPS: u64 = 120;
const SEEDS: u64 = 100;

/// The levels, and the anomalies that each allows.
const LEVELS: [(Isolation, &[Anomaly]); 4] = [
    (Isolation::Serializable, &[]),
    (Isolation::SerializableOnSnapshot, &[]),
    (Isolation::Snapshot, &[G2]),
    (Isolation::ReadCommitted, &[GSingle, GNonadjacent, G2]),
];

/// The bugs, the level that shows each, and an anomaly that it brings.
const BUGS: [(&str, Isolation, Anomaly); 4] = [
    ("engine-reads-unvalidated", Isolation::Serializable, G2),
    ("engine-stale-reads-count", Isolation::SerializableOnSnapshot, G2),
    ("engine-snapshot-writes-unvalidated", Isolation::Snapshot, LostUpdate),
    ("engine-bases-unvalidated", Isolation::ReadCommitted, LostUpdate),
];

/// An event of a transaction: that it began, or how it ended.
type Event = (usize, &'static str);

struct World {
    db: Database,
    table: Table,
    _folder: tempfile::TempDir,
}

/// A transaction that is open.
struct Running {
    number: usize,
    tx: Tx,
}

/// The deeds of the transactions of a history.
#[derive(Default)]
struct Told {
    transactions: Vec<Transaction>,
    seen: Vec<Seen>,
    events: Vec<Event>,
}

fn length(list: &[u64]) -> u64 {
    list.len() as u64
}

fn list_number(list: u64) -> usize {
    usize::try_from(list).expect("few")
}

impl World {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut sizes = options(DomainChoice::Process);
        (sizes.pool.size_bytes, sizes.log_bytes) = (64 << 20, 32 << 20);
        let db = Database::open_with(folder.path().join("a.pool"), &sizes)?;
        let table = db.create_table(&"lists (k u64, list text) key (k)".parse()?)?;
        Ok(Self { db, table, _folder: folder })
    }

    fn list(&self, reader: &impl Reader, key: u64) -> Result<Vec<u64>> {
        let Some(row) = self.table.get(reader, &row![key])? else { return Ok(Vec::new()) };
        let text = row[1].as_text().expect("a text");
        Ok(text.split(' ').map(|number| number.parse().expect("a number")).collect())
    }

    fn set(&self, tx: &Tx, key: u64, list: &[u64]) -> Result<()> {
        let text: Vec<String> = list.iter().map(u64::to_string).collect();
        self.table.put(tx, &row![key, text.join(" ")])
    }

    /// Runs a history on lists of its own.
    fn run(&self, level: Isolation, seed: u64) -> Result<Told> {
        let (mut random, mut told, mut running) = (Random::new(seed), Told::default(), Vec::new());
        for step in 0..STEPS {
            let place = random.below(OPEN_MAX);
            if place >= running.len() as u64 {
                running.push(told.begin(self.db.begin_with(level)));
                continue;
            }
            let place = list_number(place);
            let outcome = match random.below(10) {
                0..5 => self.read(&running[place], seed, random.below(LISTS), &mut told),
                5..8 => self.append(&running[place], seed, random.below(LISTS), step, &mut told),
                8 if random.below(3) == 0 => Err(Error::cancelled("a rollback")),
                _ => {
                    told.end(running.swap_remove(place))?;
                    continue;
                }
            };
            match outcome {
                Err(Error::Conflict | Error::Cancelled { .. }) => told.fail(running.swap_remove(place).number),
                outcome => outcome?,
            }
        }
        while let Some(one) = running.pop() {
            told.end(one)?;
        }
        // So that each value has its place.
        let last = told.begin(self.db.begin());
        (0..LISTS).try_for_each(|list| self.read(&last, seed, list, &mut told))?;
        told.end(last)?;
        Ok(told)
    }

    fn read(&self, one: &Running, seed: u64, list: u64, told: &mut Told) -> Result<()> {
        let found = self.list(&one.tx, seed * LISTS + list)?;
        told.saw(one.number, list, &found);
        told.transactions[one.number].operations.push(Operation::Read { list, found });
        Ok(())
    }

    fn append(&self, one: &Running, seed: u64, list: u64, value: u64, told: &mut Told) -> Result<()> {
        let key = seed * LISTS + list;
        let mut found = self.list(&one.tx, key)?;
        told.saw(one.number, list, &found);
        found.push(value);
        self.set(&one.tx, key, &found)?;
        let seen = &mut told.seen[one.number];
        seen.writes.retain(|(other, _)| *other != list_number(list));
        seen.writes.push((list_number(list), length(&found)));
        told.transactions[one.number].operations.push(Operation::Append { list, value });
        Ok(())
    }
}

impl Told {
    fn begin(&mut self, tx: Tx) -> Running {
        let number = self.transactions.len();
        self.transactions.push(Transaction::default());
        self.seen.push(Seen { begun: self.events.len() as u64, ..Seen::default() });
        self.events.push((number, "invoke"));
        Running { number, tx }
    }

    /// Notes a read for the serial order, whose versions are the lengths of the lists.
    fn saw(&mut self, number: usize, list: u64, found: &[u64]) {
        let seen = &mut self.seen[number];
        if seen.writes.iter().all(|(other, _)| *other != list_number(list)) {
            seen.reads.push((list_number(list), length(found)));
        }
    }

    fn end(&mut self, one: Running) -> Result<()> {
        match one.tx.commit() {
            Ok(()) => {
                self.transactions[one.number].is_committed = true;
                self.seen[one.number].ended = self.events.len() as u64;
                self.events.push((one.number, "ok"));
            }
            Err(Error::Conflict) => self.fail(one.number),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn fail(&mut self, number: usize) {
        self.events.push((number, "fail"));
    }

    /// Whether the outside judge finds that the history is of this model.
    fn is(&self, model: &str) -> bool {
        let lines: Vec<String> = self.events.iter().map(|event| self.line(event)).collect();
        let history = History::from_json(&lines.join("\n")).expect("a history");
        let options = Opts { models: vec![model.into()], ..Opts::default() };
        check(&history, Workload::ListAppend, &options).valid != Valid::False
    }

    /// The event as a line of JSON. Each transaction is a process of its own.
    fn line(&self, &(number, event): &Event) -> String {
        let operation = |operation: &Operation| match operation {
            Operation::Append { list, value } => format!("[\"append\",{list},{value}]"),
            Operation::Read { list, found } if event == "ok" => format!("[\"r\",{list},{found:?}]"),
            Operation::Read { list, .. } => format!("[\"r\",{list},null]"),
        };
        let operations: Vec<String> = self.transactions[number].operations.iter().map(operation).collect();
        format!("{{\"type\":\"{event}\",\"process\":{number},\"value\":[{}]}}", operations.join(","))
    }

    /// Asks our judges. Returns the anomalies, and whether there is a serial order.
    fn ours(&self) -> (BTreeSet<Anomaly>, bool) {
        let pairs = self.transactions.iter().zip(&self.seen);
        let committed: Vec<Seen> = pairs.filter(|(one, _)| one.is_committed).map(|(_, seen)| seen.clone()).collect();
        (anomalies(&self.transactions), judge(&committed, &[]).is_ok())
    }
}

/// The anomalies of all histories of a level, in which the judges agree.
fn found_at(level: Isolation, seeds: impl Iterator<Item = u64>) -> Result<BTreeSet<Anomaly>> {
    let world = World::new()?;
    let mut all = BTreeSet::new();
    for seed in seeds {
        let told = world.run(level, seed)?;
        let (found, is_serial) = told.ours();
        let has_none_of = |kinds: &[Anomaly]| found.iter().all(|one| !kinds.contains(one));
        let weak = [GSingle, GNonadjacent, G2];
        let is_strict = told.is("strict-serializable");
        let outside = (told.is("read-committed"), told.is("snapshot-isolation"), told.is("serializable"), is_strict);
        let committed_only = found.iter().all(|one| weak.contains(one));
        let inside = (
            committed_only,
            committed_only && has_none_of(&[GSingle, GNonadjacent]),
            committed_only && has_none_of(&weak),
            is_serial,
        );
        assert_eq!(
            outside,
            inside,
            "judges disagree about {found:?} of {level:?}: LODESTONE_LISTS_SEED={seed} cargo test -p lodestone-engine \
             --test list_append\n{:#?}",
            told.events.iter().map(|event| told.line(event)).collect::<Vec<_>>()
        );
        all.extend(found);
    }
    Ok(all)
}

#[test]
fn each_level_has_the_anomalies_that_it_allows_and_planted_bugs_bring_others() -> Result<()> {
    let only = env::var("LODESTONE_LISTS_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    for (level, allowed) in LEVELS {
        let found = found_at(level, only.map_or(0..SEEDS, |seed| seed..seed + 1))?;
        println!("{level:?}: {found:?}");
        let is_expected =
            if only.is_some() { found.iter().all(|one| allowed.contains(one)) } else { found.iter().eq(allowed) };
        assert!(is_expected, "{level:?}: {found:?}, and {allowed:?} are allowed");
    }
    for (bug, level, anomaly) in BUGS {
        planted::plant(Some(bug));
        let world = World::new()?;
        let found: Result<BTreeSet<Anomaly>> = (0..SEEDS).try_fold(BTreeSet::new(), |mut all, seed| {
            all.extend(world.run(level, seed)?.ours().0);
            Ok(all)
        });
        planted::plant(None);
        let found = found?;
        println!("{bug}: {found:?}");
        assert!(found.contains(&anomaly), "{bug} at {level:?} brings {found:?}");
    }
    Ok(())
}
