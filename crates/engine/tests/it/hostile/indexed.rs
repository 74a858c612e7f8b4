//! Databases with indexes and long values, by single commits and by groups.
//!
//! The tables are `items`, whose rows are in tree 16, with `by_v` in tree 17 and the unique `by_name` in tree 18,
//! `notes` in tree 19 with `by_item` in tree 20, and `late` in tree 21 with `by_v` in tree 22. Pieces of long values
//! of `items` are in tree 16 with the highest bit.

use std::time::Duration;

use lodestone_crash::hostile::{Layer, Numbers};
use lodestone_engine::{Database, DatabaseOptions, Durability, Error, Index, Result, Row, Schema, Table, row};
use lodestone_pmem::{Memory, Severity};
use lodestone_store::Store;

use super::{COULD_BE, Image, Rows, SEGMENT_BYTES, Segment, Sound, options, rows_of, run_case, sound_of, store, upset};

const ITEMS: &str = "items (k u64, v i64, name text null, body bytes) key (k) index by_v (v) unique by_name (name)";
const NOTES: &str = "notes (item u64, n u64, text text) key (item, n) index by_item (text, item)";
const ROWS: u32 = 16;
const BY_V: u32 = 17;
const BY_NAME: u32 = 18;
const BY_BOTH: u32 = 23;
const PIECES: u32 = 1 << 31 | ROWS;
/// The rows where they are in cells.
const DUAL_ROWS: u32 = 1 << 30 | ROWS;
const PUT: u16 = 1;
const DELETE: u16 = 2;
const COMMIT: u16 = 5;

const COMMAND: &str = "cargo test -p lodestone-engine --test it hostile::indexed::";
/// Kinds of damage that a run has.
pub const KINDS: [&str; 4] = ["entry: row", "entry: piece", "entry: index", "entry: catalog"];

/// Bytes that a row holds itself, and bytes of a piece.
const INLINE_BYTES: usize = 60;
const PIECE_BYTES: usize = 50;

fn with(durability: Durability) -> DatabaseOptions {
    DatabaseOptions { inline_bytes_max: INLINE_BYTES, piece_bytes: PIECE_BYTES, durability, ..options() }
}

/// Sets a row whose index entries are others than those of the row before.
fn put(items: &Table, tx: &lodestone_engine::Tx, k: u64, v: i64) -> Result<()> {
    let name = (k % 4 != 3).then(|| format!("n{k}"));
    items.put(tx, &row![k, v, name, vec![k as u8; (k as usize * 23) % 160]])
}

/// Two lives, of which the second is killed. Deltas, deletions, checkpoints, an index that was added late. `is_dual`:
/// the rows of `items` and `late` are in cells.
pub fn fill(memory: &Memory, durability: Durability, is_dual: bool) -> Result<Sound> {
    let placed =
        |schema: &str| Ok::<_, Error>(if is_dual { schema.parse::<Schema>()?.dual() } else { schema.parse()? });
    let store = store(memory);
    let open = || {
        let database = Database::open_in(&store, &with(durability))?;
        // The epochs are closed by this thread, so that all runs are the same.
        database.end_logger();
        Ok::<_, Error>(database)
    };
    let database = open()?;
    let items = database.create_table(&placed(ITEMS)?)?;
    database.update(|tx| (0..8).try_for_each(|k| put(&items, tx, k, 10)))?;
    let notes = database.create_table(&"notes (item u64, n u64, text text) key (item, n)".parse()?)?;
    database.update(|tx| (0..5_u64).try_for_each(|n| notes.put(tx, &row![n % 2, n, format!("note {n}")])))?;
    let schema: Schema = NOTES.parse()?;
    drop((notes, database.create_index("notes", &schema.indexes()[0])?));
    database.checkpoint()?;
    database.update(|tx| items.delete(tx, &row![3_u64]).map(|_| ()))?;
    drop((items, database));
    let database = open()?;
    let (items, notes) = (database.table("items")?, database.table("notes")?);
    database.checkpoint()?;
    for v in 11..14 {
        // In groups: three commits in one record.
        let tickets = (0..3).map(|k| database.update_async(|tx| put(&items, tx, (v as u64 + k) % 9, v)));
        let tickets = tickets.collect::<Result<Vec<_>>>()?;
        tickets.into_iter().try_for_each(|ticket| ticket.durable())?;
        database.update(|tx| items.add(tx, &row![1_u64], "v", 1000))?;
        database.update(|tx| notes.put(tx, &row![v as u64 % 2, 1_u64, format!("again {v}")]))?;
    }
    database.update(|tx| items.delete(tx, &row![6_u64]).map(|_| ()))?;
    (0..3_u64).try_for_each(|n| database.update(|tx| notes.put(tx, &row![7_u64, n, "last"])))?;
    // Definitions that no checkpoint has.
    let late = database.create_table(&placed("late (k u64, v text null) key (k) unique by_v (v)")?)?;
    database.update(|tx| late.put(tx, &row![1_u64, "late"]))?;
    drop((late, database.create_index("items", &Index::new("by_both", ["v", "name"]))?));
    drop((items, notes));
    let sound = Sound::of(memory, &database);
    database.abandon();
    Ok(Sound {
        options: with(Durability::Sync),
        change,
        is_index: |tree| [17, 18, 20, 22, 23].contains(&tree),
        has_entries: true,
        ..sound
    })
}

fn by_commits() -> Sound {
    sound_of(|memory| fill(memory, Durability::Sync, false))
}

fn by_groups() -> Sound {
    sound_of(|memory| fill(memory, Durability::Epoch(Duration::from_millis(80)), false))
}

/// Puts and deletes rows of `items`. Returns those that are there now.
fn change(database: &Database, numbers: &mut Numbers) -> Result<Rows> {
    database.create_table(&NOTES.parse()?)?;
    let items = database.table("items")?;
    let key = numbers.below(12);
    database.update(|tx| put(&items, tx, key, 77))?;
    database.update(|tx| items.delete(tx, &row![key + 1]).map(|_| ()))?;
    database.create_table(&"new (k bool) key (k)".parse()?)?;
    rows_of(database)
}

/// Indexes that answer otherwise than their table, or with an error. A table that cannot be read has none.
pub fn disagreements(database: &Database) -> Vec<String> {
    let mut found = Vec::new();
    for name in database.tables().unwrap_or_default() {
        let Ok(table) = database.table(&name) else { continue };
        let Ok(mut rows) = database.update(|tx| table.range(tx, ..)?.collect::<Result<Vec<Row>>>()) else { continue };
        rows.sort_by_key(ToString::to_string);
        for index in table.schema().indexes() {
            let by = table.index(&index.name).expect("an index of its schema");
            let through = database.update(|tx| by.range(tx, ..)?.collect::<Result<Vec<Row>>>());
            if matches!(through, Err(Error::IndexNotReady { .. })) {
                // A record that is lost may be the one that ended its building.
                continue;
            }
            let through = through.map(|mut through| {
                through.sort_by_key(ToString::to_string);
                through
            });
            if through.as_ref().ok() != Some(&rows) {
                found.push(format!("`{name}.{}`: {through:?}, the table has {rows:?}", index.name));
            }
        }
    }
    found
}

/// An entry of a record, with the offsets of its parts in the segment.
struct Entry {
    at: u64,
    tree: u64,
    kind: u64,
    key: (u64, u64),
    value: (u64, u64),
}

/// The entries of a record that is in one piece, up to one that an earlier change has spoiled.
fn entries(image: &Image, segment: &Segment, record: u64) -> Vec<Entry> {
    let load = |offset: u64, bytes| image.load(segment.at.plus(offset), bytes);
    let mut found = Vec::new();
    if load(record + 18, 2) != 1 {
        return found;
    }
    let (mut at, end) = (record + 24, (record + 24 + load(record + 8, 4)).min(SEGMENT_BYTES));
    while at + 12 <= end {
        let (key, value) = (load(at + 4, 2), load(at + 8, 4));
        if at + 12 + key + value > end {
            break;
        }
        found.push(Entry {
            at,
            tree: load(at, 4),
            kind: load(at + 6, 2),
            key: (at + 12, key),
            value: (at + 12 + key, value),
        });
        at += (12 + key + value).next_multiple_of(8);
    }
    found
}

impl Sound {
    /// Changes an entry of a record by its meaning.
    pub fn damage_entry(&self, image: &mut Image, numbers: &mut Numbers) -> &'static str {
        let records = self.segments.iter().flat_map(|segment| segment.records.iter().map(move |at| (segment, *at)));
        let all = records.map(|(segment, record)| (segment, record, entries(image, segment, record)));
        // There are few rows of the catalog.
        let only_catalog = numbers.below(4) == 0;
        let counts = |entry: &&Entry| !only_catalog || entry.tree == 0 && entry.kind != u64::from(COMMIT);
        let all: Vec<_> = all.filter(|(_, _, entries)| entries.iter().any(|entry| counts(&entry))).collect();
        let (segment, record, entries) = numbers.pick(&all);
        let entry = *numbers.pick(&entries.iter().filter(counts).collect::<Vec<_>>());
        let is_index = (self.is_index)(entry.tree);
        let kind = match entry.tree {
            _ if entry.kind == u64::from(COMMIT) => "entry: tick",
            0 => "entry: catalog",
            tree if tree & 1 << 31 != 0 => "entry: piece",
            _ if is_index => "entry: index",
            _ => "entry: row",
        };
        let place = |(at, bytes): (u64, u64), numbers: &mut Numbers| at + numbers.below(bytes);
        match numbers.below(6) {
            0 => {
                let trees = [0, ROWS, DUAL_ROWS, BY_V, BY_NAME, 19, 20, 21, 22, 23, 24, PIECES, 1 << 31 | 19, 3];
                image.write(segment.at.plus(entry.at), &numbers.pick(&trees).to_le_bytes());
            }
            1 => image.write(segment.at.plus(entry.at + 6), &numbers.pick(&[PUT, DELETE, 3, 4, COMMIT]).to_le_bytes()),
            2 | 3 if entry.key.1 > 0 => upset(image, segment.at.plus(place(entry.key, numbers)), 1, numbers),
            4 => {
                // The key of another entry of the same length, often of the same tree.
                let others: Vec<_> = entries.iter().filter(|other| other.key.1 == entry.key.1).collect();
                let other = *numbers.pick(&others);
                let bytes = image.read(segment.at.plus(other.key.0), other.key.1).to_vec();
                image.write(segment.at.plus(entry.key.0), &bytes);
            }
            _ if entry.value.1 > 0 => upset(image, segment.at.plus(place(entry.value, numbers)), 1, numbers),
            _ => upset(image, segment.at.plus(entry.at + 4), 2, numbers),
        }
        segment.seal(image, *record);
        kind
    }
}

/// Runs the cases of a test, with the command that runs the tests of its file.
pub fn hostile((command, name): (&'static str, &'static str), sound: &Sound, seed: u64, kinds: &[&str]) {
    let layer = Layer { name, command, cases: 600, seed, seconds_max: 60 };
    let tally = layer.run(|numbers| run_case(sound, numbers));
    let is_damage = |kind: &str| !COULD_BE.contains(&kind);
    assert_eq!(tally.wrong_unreported(is_damage), 0, "a row is wrong, and the check says nothing: {tally}");
    let missing: Vec<_> = kinds.iter().filter(|kind| !tally.kinds.contains_key(**kind)).collect();
    assert!(missing.is_empty() || std::env::var("LODESTONE_HOSTILE_CASES").is_ok(), "no case of {missing:?}");
}

#[test]
fn indexes_and_long_values() {
    hostile((COMMAND, "indexes_and_long_values"), &by_commits(), 0xDB10_0000, &KINDS);
}

#[test]
fn groups_of_commits() {
    hostile((COMMAND, "groups_of_commits"), &by_groups(), 0xDB20_0000, &KINDS);
}

/// An entry of a record.
fn entry(tree: u32, kind: u16, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut entry = tree.to_le_bytes().to_vec();
    entry.extend((key.len() as u16).to_le_bytes());
    entry.extend(kind.to_le_bytes());
    entry.extend((value.len() as u32).to_le_bytes());
    entry.extend(key);
    entry.extend(value);
    entry.resize(entry.len().next_multiple_of(8), 0);
    entry
}

fn key_of(k: u64) -> [u8; 8] {
    k.to_be_bytes()
}

/// The key of an entry of `by_v`.
fn by_v(v: i64, k: u64) -> Vec<u8> {
    [(v as u64 ^ 1 << 63).to_be_bytes(), key_of(k)].concat()
}

/// The key of an entry of `by_name`.
fn by_name(name: &str) -> Vec<u8> {
    [&[1], name.as_bytes(), &[0, 0]].concat()
}

/// The key of an entry of `by_both`.
fn by_both(v: i64, name: &str, k: u64) -> Vec<u8> {
    [&(v as u64 ^ 1 << 63).to_be_bytes()[..], &by_name(name), &key_of(k)].concat()
}

/// The payload of a row of `items` without a body.
fn payload(v: i64, name: &str) -> Vec<u8> {
    let end = (name.len() as u16).to_le_bytes();
    [&[1, 0, 0][..], &v.to_le_bytes(), &end, &end, name.as_bytes()].concat()
}

/// Opens the image with a record of these entries after all others. Returns the findings of the check, and the error of
/// the open if it refuses.
fn findings(sound: &Sound, entries: &[Vec<u8>]) -> (Vec<String>, Option<String>) {
    let mut image = sound.image.clone();
    let used = sound.segments.iter().filter(|segment| !segment.records.is_empty());
    let segment = used.min_by_key(|segment| segment.end).expect("a segment");
    segment.append(&mut image, sound.newest_tick() + 100, entries.len() as u32, &entries.concat());
    let store: Store = store(&image.to_memory());
    let report = store.check(&mut |_| {});
    let findings = report.findings.iter().filter(|finding| finding.severity != Severity::Note);
    let findings = findings.map(|finding| finding.finding.clone()).collect();
    let error = Database::open_in(&store, &sound.options).err().map(|error| error.to_string());
    (findings, error)
}

/// Each way in which an index, a piece and a row can disagree is named.
#[test]
fn an_index_that_disagrees_with_its_table_is_found() {
    let sound = by_commits();
    let items = sound.rows.iter().find(|(schema, _)| schema.contains("items")).expect("a table").1.clone();
    let item = |k: u64| items.iter().find(|row| row[0] == k.into()).cloned().expect("a row");
    let v = |k: u64| item(k)[1].as_i64().expect("a number");
    assert_eq!(item(5)[2].as_text(), Some("n5"));
    assert!(item(4)[3].as_bytes().is_some_and(|body| body.len() > INLINE_BYTES), "a long value");
    let piece = |k: u64, number: u32| [&key_of(k)[..], &3_u16.to_be_bytes(), &number.to_be_bytes()].concat();
    assert_eq!(findings(&sound, &[]), (Vec::new(), None), "an empty record");
    let whole = [
        entry(ROWS, PUT, &key_of(50), &payload(-9, "new")),
        entry(BY_V, PUT, &by_v(-9, 50), &[]),
        entry(BY_NAME, PUT, &by_name("new"), &key_of(50)),
        entry(BY_BOTH, PUT, &by_both(-9, "new", 50), &[]),
    ];
    assert_eq!(findings(&sound, &whole), (Vec::new(), None), "a row with its entries");
    let cases: [(&str, &str, Vec<u8>); 12] = [
        ("an entry is gone", "is missing", entry(BY_V, DELETE, &by_v(v(5), 5), &[])),
        ("another entry of a row", "is that of no row", entry(BY_V, PUT, &by_v(v(5) + 1, 5), &[])),
        ("an entry of a row that never was", "is that of no row", entry(BY_V, PUT, &by_v(1, 99), &[])),
        ("an entry of a deleted row", "is that of no row", entry(BY_V, PUT, &by_v(10, 6), &[])),
        ("an entry with a payload", "leads to another row", entry(BY_V, PUT, &by_v(v(5), 5), &[1])),
        ("an entry that makes no sense", "is that of no row", entry(BY_V, PUT, &[1, 2, 3], &[])),
        ("a name of another row", "leads to another row", entry(BY_NAME, PUT, &by_name("n5"), &key_of(4))),
        ("a name that is gone", "is missing", entry(BY_NAME, DELETE, &by_name("n5"), &[])),
        ("a row without its entries", "is missing", entry(ROWS, PUT, &key_of(50), &payload(-9, "new"))),
        ("entries without their row", "is that of no row", entry(ROWS, DELETE, &key_of(5), &[])),
        ("a piece of no row", "belongs to no row", entry(PIECES, PUT, &piece(99, 0), &[1; 9])),
        ("a piece that is gone", "lacks the value", entry(PIECES, DELETE, &piece(4, 1), &[])),
    ];
    for (what, finding, entry) in cases {
        let (found, error) = findings(&sound, &[entry]);
        assert!(error.is_none(), "{what}: {error:?}");
        assert!(found.iter().any(|found| found.contains(finding)), "{what}: {found:?}");
    }
}

/// The tick of a commit in a group is not after that of its record, and is a number.
#[test]
fn a_commit_of_a_group_with_a_wrong_tick_is_damage() {
    let sound = by_groups();
    let newest = sound.newest_tick() + 100;
    let row = || entry(ROWS, PUT, &key_of(50), &payload(-9, "new"));
    let entries_of = || {
        let by_both = entry(BY_BOTH, PUT, &by_both(-9, "new", 50), &[]);
        [entry(BY_V, PUT, &by_v(-9, 50), &[]), entry(BY_NAME, PUT, &by_name("new"), &key_of(50)), by_both]
    };
    let commit = |value: &[u8]| entry(0, COMMIT, &[], value);
    let of = |value: &[u8]| [vec![commit(value), row()], entries_of().to_vec()].concat();
    assert_eq!(findings(&sound, &of(&newest.to_le_bytes())), (Vec::new(), None), "a commit of the same tick");
    for value in [&(newest + 1).to_le_bytes()[..], &u64::MAX.to_le_bytes(), &[1, 0, 0], &[]] {
        let (found, error) = findings(&sound, &of(value));
        let says = |text: &String| text.contains("the tick of a transaction makes no sense");
        assert!(error.as_ref().is_some_and(says) && found.iter().any(says), "{value:?}: {error:?}, {found:?}");
    }
    // An earlier tick loses against the rows that are there.
    let old = [commit(&1_u64.to_le_bytes()), entry(ROWS, PUT, &key_of(5), &payload(-9, "old"))];
    assert_eq!(findings(&sound, &old), (Vec::new(), None), "an older version of a row");
}
