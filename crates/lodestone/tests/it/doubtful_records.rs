//! Doubtful records: key and value verify, and nothing says any more whether the record was removed or replaced.
//!
//! Structures of every kind are filled, records are replaced and removed, and then one damage takes the way into a
//! structure (its anchor) and another one the heap's tables. Blocks of removed and replaced records are still there
//! with all their bytes, beside those of the records that count. The demands:
//! 1. a record that was removed or replaced never comes out as a certain one;
//! 2. every record that counts comes out as a certain one or as a doubtful one with its value;
//! 3. nothing is doubtful that never was in the structure;
//! 4. nothing is doubtful in a structure whose links are whole, whatever the heap's tables say.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use lodestone::heap::HeapOptions;
use lodestone::index::{FastFair, FpTree, HashIndex, IndexKind, OpenIndex, OrderedMap, SkipList, open_records};
use lodestone::pmem::{Memory, PmAddr, PoolOptions};
use lodestone::store::{Acknowledge, Lost, LostKeys, Records as Tools, StoreOptions};
use lodestone::{Domain, DomainChoice, Durability, Pool, Store};

const POOL_BYTES: u64 = 2 << 20;
const KEYS: u64 = 90;
const ZONE_CHUNKS: u32 = 32;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
type Records = BTreeMap<Vec<u8>, Vec<u8>>;
type Set = BTreeSet<(Vec<u8>, Vec<u8>)>;

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: POOL_BYTES, journal_bytes: 0, ..PoolOptions::default() }
}

fn open(memory: Memory) -> Outcome<Store> {
    let pool = Pool::open_on(memory, &options())?;
    let mut heap = HeapOptions::small();
    (heap.chunk_bytes, heap.zone_chunks, heap.lane_bytes) = (8192, ZONE_CHUNKS, 1024);
    Ok(Store::over_with(&pool, &StoreOptions::with_heap(heap))?)
}

/// A structure with the records that count, and all that it ever had.
struct Subject {
    name: String,
    at: PmAddr,
    now: Records,
    ever: Set,
}

/// The image of a pool with a structure of each kind, and the heap's tables in it.
struct Patient {
    image: Vec<u8>,
    subjects: Vec<Subject>,
    tables: Vec<(Tables, PmAddr, u64)>,
    /// Allocated blocks with a first line of their own.
    blocks: Vec<PmAddr>,
}

fn key(number: u64) -> Vec<u8> {
    (number * 7).to_string().into_bytes()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    (1_000_000 + number * 1000 + version).to_string().into_bytes()
}

impl Subject {
    fn of(store: &Store, name: &str) -> Outcome<Self> {
        let at = store.open_object(name)?.at();
        Ok(Self { name: name.to_owned(), at, now: Records::new(), ever: Set::new() })
    }

    fn change(&mut self, store: &Store, mut change: impl FnMut(&mut Self, &dyn Tools) -> Outcome) -> Outcome {
        let object = store.open_object(&self.name)?;
        let records = store.kind_of(&object)?.records(object, None, Acknowledge::EachChange)?;
        change(self, &*records)?;
        records.sync()
    }

    fn insert(&mut self, records: &dyn Tools, number: u64, version: u64) -> Outcome {
        records.insert(&key(number), &value(number, version))?;
        self.now.insert(key(number), value(number, version));
        self.ever.insert((key(number), value(number, version)));
        Ok(())
    }

    fn remove(&mut self, records: &dyn Tools, number: u64) -> Outcome {
        assert!(records.remove(&key(number))?);
        self.now.remove(&key(number));
        Ok(())
    }
}

fn make<I: OpenIndex>(store: &Store, name: &str) -> Outcome {
    I::open_index(store, name, &I::Options::default(), Durability::Sync)?;
    Ok(())
}

fn patient() -> Outcome<Patient> {
    let memory = Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None)?;
    drop(Pool::create_on(memory.clone(), &options())?);
    let store = open(memory.clone())?;
    drop(OrderedMap::open(&store, "ordered map")?);
    for kind in IndexKind::ALL {
        drop(open_records(&store, &format!("map over {kind}"), kind, Durability::Sync)?);
    }
    make::<FastFair<u64>>(&store, "fastfair words")?;
    make::<FastFair<[u8]>>(&store, "fastfair strings")?;
    make::<FpTree<u64>>(&store, "fptree words")?;
    make::<FpTree<[u8]>>(&store, "fptree strings")?;
    make::<HashIndex<u64>>(&store, "hash words")?;
    make::<HashIndex<[u8]>>(&store, "hash strings")?;
    make::<SkipList<u64>>(&store, "list words")?;
    make::<SkipList<[u8]>>(&store, "list strings")?;
    let names: Vec<String> = store.names().into_iter().map(|named| named.name).collect();
    let mut subjects = names.iter().map(|name| Subject::of(&store, name)).collect::<Outcome<Vec<_>>>()?;
    // Removals are last in all of them, so that no insertion uses the blocks of removed records again.
    for subject in &mut subjects {
        subject.change(&store, |it, records| (0..KEYS).try_for_each(|number| it.insert(records, number, 1)))?;
    }
    for subject in &mut subjects {
        let mut some = (0..KEYS).filter(|number| number % 3 == 0);
        subject.change(&store, |it, records| some.try_for_each(|number| it.insert(records, number, 2)))?;
    }
    for subject in &mut subjects {
        let mut some = (0..KEYS).filter(|number| number % 5 == 0);
        subject.change(&store, |it, records| some.try_for_each(|number| it.remove(records, number)))?;
    }
    let (tables, mut blocks) = (tables_of(&store), Vec::new());
    store.heap().for_each_block(|at, bytes| blocks.extend((bytes >= 128).then_some(at)));
    drop(store);
    let mut image = vec![0; usize::try_from(POOL_BYTES)?];
    memory.read(PmAddr::new(0, 0), &mut image);
    Ok(Patient { image, subjects, tables, blocks })
}

/// The heap's tables with their ranges.
fn tables_of(store: &Store) -> Vec<(Tables, PmAddr, u64)> {
    let ranges = store.heap().metadata_ranges();
    // No bitmap has a word for each chunk of a zone.
    let is_table = |range: &&(PmAddr, u64)| range.1 == u64::from(ZONE_CHUNKS) * 8;
    let tables: Vec<(PmAddr, u64)> = ranges.iter().filter(is_table).copied().collect();
    // A zone begins one line before its table.
    let zones: BTreeSet<u64> = tables.iter().map(|(at, _)| at.offset() - 64).collect();
    let is_bitmap = |(at, bytes): &(PmAddr, u64)| {
        zones.first().is_some_and(|first| at.offset() > *first)
            && !zones.contains(&at.offset())
            && !tables.contains(&(*at, *bytes))
    };
    let bitmaps = ranges.iter().copied().filter(is_bitmap).map(|(at, bytes)| (Tables::Bitmaps, at, bytes));
    bitmaps.chain(tables.iter().map(|&(at, bytes)| (Tables::ChunkWords, at, bytes))).collect()
}

/// The part of the heap's tables that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tables {
    /// The bitmaps of the chunks.
    Bitmaps,
    /// The words that say what each chunk is.
    ChunkWords,
}

impl Patient {
    /// The pool with the lines at `lost` and all such tables zeroed.
    fn damaged(&self, tables: Option<Tables>, lost: &[PmAddr]) -> Memory {
        let memory = Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None).expect("memory");
        memory.write(PmAddr::new(0, 0), &self.image);
        for &(_, at, bytes) in self.tables.iter().filter(|(kind, ..)| Some(*kind) == tables) {
            memory.write(at, &vec![0; bytes as usize]);
        }
        lost.iter().for_each(|at| memory.write(*at, &[0; 64]));
        memory
    }
}

/// Certain and doubtful records of a structure.
fn salvage(store: &Store, name: &str) -> Outcome<(Records, Set, Vec<Lost>)> {
    let object = store.open_object(name)?;
    let (mut certain, mut doubtful, mut lost) = (Records::new(), Set::new(), Vec::new());
    let mut show = |key: &[u8], value: &[u8]| {
        assert!(certain.insert(key.to_vec(), value.to_vec()).is_none(), "a key came out twice");
        ControlFlow::Continue(())
    };
    let mut name = |found: Lost| match found.keys {
        LostKeys::Doubtful(key, value) => drop(doubtful.insert((key, value))),
        _ => lost.push(found),
    };
    store.kind_of(&object)?.salvage(object, None, &mut show, &mut name)?;
    Ok((certain, doubtful, lost))
}

fn text((key, value): (&Vec<u8>, &Vec<u8>)) -> String {
    format!("`{}` = `{}`", key.escape_ascii(), value.escape_ascii())
}

/// Demands 1 to 3.
fn judge(subject: &Subject, case: &str, certain: &Records, doubtful: &Set) {
    for found in certain {
        assert_eq!(subject.now.get(found.0), Some(found.1), "{case}: {} is certain", text(found));
    }
    for (key, value) in doubtful {
        let found = text((key, value));
        assert!(subject.ever.contains(&(key.clone(), value.clone())), "{case}: {found} never was");
        assert!(!certain.contains_key(key), "{case}: {found} is both");
    }
    for (key, value) in &subject.now {
        let is_there = certain.contains_key(key) || doubtful.contains(&(key.clone(), value.clone()));
        assert!(is_there, "{case}: {} is neither certain nor doubtful", text((key, value)));
    }
}

#[test]
fn removed_and_replaced_records_are_doubtful_and_never_certain() -> Outcome {
    let patient = patient()?;
    let mut stale = BTreeMap::new();
    for (subject, tables) in
        patient.subjects.iter().flat_map(|subject| [(subject, Tables::Bitmaps), (subject, Tables::ChunkWords)])
    {
        let name = &subject.name;
        let store = open(patient.damaged(Some(tables), &[subject.at]))?;
        let (certain, doubtful, _) = salvage(&store, name)?;
        judge(subject, &format!("{name}, {tables:?}"), &certain, &doubtful);
        let old = doubtful.iter().filter(|(key, value)| subject.now.get(key) != Some(value)).count();
        println!("{name}, {tables:?}: {} certain, {} doubtful, {old} of them old", certain.len(), doubtful.len());
        *stale.entry(name.as_str()).or_insert(0) += old;
    }
    // The distinction matters: without it these would have come back.
    for name in ["ordered map", "map over fastfair", "map over skiplist", "fastfair strings"] {
        assert!(stale[name] > 10, "{name}: {} old records", stale[name]);
    }
    Ok(())
}

#[test]
fn nothing_is_doubtful_where_the_links_are_whole() -> Outcome {
    let patient = patient()?;
    for tables in [Tables::Bitmaps, Tables::ChunkWords] {
        let store = open(patient.damaged(Some(tables), &[]))?;
        assert!(!store.heap().unknown_blocks().is_empty());
        for subject in &patient.subjects {
            let (certain, doubtful, lost) = salvage(&store, &subject.name)?;
            assert_eq!(certain, subject.now, "{}, {tables:?}", subject.name);
            assert!(doubtful.is_empty() && lost.is_empty(), "{}, {tables:?}: {doubtful:?}, {lost:?}", subject.name);
        }
    }
    Ok(())
}

/// Leaves and segments of words whose first line is lost: their header, and no pair.
#[test]
fn pairs_beside_a_lost_header_come_out() -> Outcome {
    let patient = patient()?;
    let names = ["fastfair words", "fptree words", "hash words"];
    let mut counts = BTreeMap::new();
    for tables in [None, Some(Tables::Bitmaps), Some(Tables::ChunkWords)] {
        for &block in &patient.blocks {
            let Ok(store) = open(patient.damaged(tables, &[block])) else { continue };
            for subject in patient.subjects.iter().filter(|subject| names.contains(&subject.name.as_str())) {
                let Ok((certain, doubtful, _)) = salvage(&store, &subject.name) else { continue };
                judge(subject, &format!("{}, {tables:?}, {block}", subject.name), &certain, &doubtful);
                *counts.entry((subject.name.as_str(), tables)).or_insert(0) += doubtful.len();
            }
        }
    }
    println!("doubtful: {counts:?}");
    assert!(counts[&("fastfair words", None)] > 60 && counts[&("fastfair words", Some(Tables::Bitmaps))] > 60);
    assert!(counts[&("fptree words", Some(Tables::ChunkWords))] > 60);
    Ok(())
}

/// The name of a tree and the header of one of its leaves are lost. No export could name it before the repair gives it
/// a name again, so that repair must not drop its doubtful records.
#[test]
fn a_repair_drops_no_doubtful_record_that_could_not_be_exported() -> Outcome {
    let patient = patient()?;
    let subject = patient.subjects.iter().find(|subject| subject.name == "fastfair words").ok_or("the tree")?;
    let has_doubt = |block: &&PmAddr| {
        let store = open(patient.damaged(None, &[**block]));
        store.and_then(|store| salvage(&store, &subject.name)).is_ok_and(|(_, doubtful, _)| !doubtful.is_empty())
    };
    let leaf = *patient.blocks.iter().find(has_doubt).ok_or("a leaf")?;
    // A name has its own line in each copy of its entry.
    let lines = (0..).step_by(64).zip(patient.image.chunks(64));
    let mut names: Vec<PmAddr> = lines
        .filter(|(_, line)| line.starts_with(subject.name.as_bytes()))
        .map(|(offset, _)| PmAddr::new(0, offset))
        .collect();
    assert_eq!(names.len(), 2, "both copies");
    names.push(leaf);
    let store = open(patient.damaged(None, &names))?;
    assert!(store.find(&subject.name).is_err());
    let first = store.repair_accepting_loss(&mut |_| {})?;
    let name = format!("lost-{:x}", subject.at.to_raw());
    assert_eq!(first.adopted.iter().map(|adopted| &adopted.name).collect::<Vec<_>>(), [&name]);
    let left: Vec<_> = first.left.iter().map(|left| (&left.name, left.why.contains("--doubtful"))).collect();
    assert_eq!(left, [(&name, true)], "{first:?}");
    let (certain, doubtful, _) = salvage(&store, &name)?;
    judge(subject, &name, &certain, &doubtful);
    let foreseen = store.foresee_loss(&mut |_| {});
    let counts: Vec<_> = foreseen.iter().map(|it| (&it.name, it.records, it.doubtful)).collect();
    assert_eq!(counts, [(&name, certain.len() as u64, doubtful.len() as u64)]);
    // Now they are accepted as lost.
    let second = store.repair_accepting_loss(&mut |_| {})?;
    assert!(second.left.is_empty(), "{second:?}");
    let rebuilt = second.rebuilt.iter().find(|rebuilt| rebuilt.name == name).ok_or("the tree")?;
    assert_eq!(rebuilt.doubtful.len(), doubtful.len(), "{rebuilt:?}");
    assert!(rebuilt.lost.iter().all(|lost| !lost.is_doubtful()));
    assert!(store.check(&mut |_| {}).is_clean() && store.foresee_loss(&mut |_| {}).is_empty());
    Ok(())
}
