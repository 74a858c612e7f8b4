//! A pool with one object of every kind, damaged at random: flipped bits, lost lines, lost pages, in the bytes that are
//! in use. The demands on the check and the readers:
//!
//! 1. no answer is wrong without an error;
//! 2. every damage that changes an answer, or turns it into an error, is reported by the check;
//! 3. nothing panics and nothing hangs;
//! 4. a salvage returns every record that is not in a damaged line, certain or doubtful, and names the others
//!    (`salvaged`);
//! 5. a repair that accepts loss leaves a pool that is clean, with exactly the records that the salvage returned.
//!
//! `LODESTONE_HOSTILE_CASES=1000 cargo test -p lodestone --test it damaged_pool:: -- --nocapture` runs that many cases
//! of each test.

mod salvaged;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::LazyLock;

use lodestone::collections::{Bytes, PmBTreeMap, PmHashMap, PmList, PmQueue};
use lodestone::crash::hostile::{Fate, Layer, Numbers, Tally};
use lodestone::heap::HeapOptions;
use lodestone::index::{FpTree, HashIndex, IndexKind, OpenIndex, SkipList, open_records};
use lodestone::pmem::{Memory, PmAddr, PoolOptions};
use lodestone::store::{Acknowledge, KeyForm, StoreOptions};
use lodestone::{Domain, DomainChoice, Durability, FastFair, OrderedMap, Pool, Stm, StmOptions, Store};

const POOL_BYTES: u64 = 2 << 20;
const COMMAND: &str = "cargo test -p lodestone --test it damaged_pool::";

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
/// Records by object and member.
type Answers = BTreeMap<String, Vec<(Vec<u8>, Vec<u8>)>>;

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: POOL_BYTES, journal_bytes: 0, ..PoolOptions::default() }
}

fn store_options() -> StoreOptions {
    let mut heap = HeapOptions::small();
    (heap.chunk_bytes, heap.zone_chunks, heap.lane_bytes) = (8192, 32, 1024);
    StoreOptions::with_heap(heap)
}

/// Small ones, but with both copies of header and directory in different pages, as with the default sizes.
fn stm_options() -> StmOptions {
    // A half of the header has 1024 bytes more.
    StmOptions { table_bytes: 4096 - 1024, directory_bytes: 4096, ..StmOptions::small() }
}

fn memory() -> Memory {
    Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None).expect("memory")
}

/// A number that occurs once in an image.
fn word_of(place: &str, number: u64) -> u64 {
    let seed = place.bytes().fold(number, |seed, byte| seed.wrapping_mul(257).wrapping_add(u64::from(byte)));
    Numbers::new(seed).number() >> 1
}

/// Bytes that occur once in an image.
fn text_of(place: &str, number: u64, len: usize) -> Vec<u8> {
    let words = (0_u64..).flat_map(|word| word_of(place, number + (word + 1) * 1000).to_le_bytes());
    words.take(len).collect()
}

/// A key whose bytes occur once in an image.
fn key_of(place: &str, number: u64) -> Vec<u8> {
    format!("{number:02} {:06x}", word_of(place, number + 500_000) & 0xFF_FFFF).into_bytes()
}

fn fill_words<I: OpenIndex<Key = u64>>(store: &Store, name: &str) -> Outcome {
    let index = I::open_index(store, name, &I::Options::default(), Durability::Sync)?;
    (0..60).try_for_each(|key| index.insert(&(key * 3), word_of(name, key)).map(drop))?;
    Ok(())
}

fn fill_strings<I: OpenIndex<Key = [u8]>>(store: &Store, name: &str) -> Outcome {
    let index = I::open_index(store, name, &I::Options::default(), Durability::Sync)?;
    (0..60_u64).try_for_each(|key| index.insert(&key_of(name, key), word_of(name, key)).map(drop))?;
    Ok(())
}

fn fill(store: &Store) -> Outcome {
    let map = OrderedMap::open(store, "ordered map")?;
    (0..80).try_for_each(|key| map.insert(&key_of("ordered map", key), &text_of("ordered map", key, 50)).map(drop))?;
    for kind in IndexKind::ALL {
        let name = format!("map over {kind}");
        let map = open_records(store, &name, kind, Durability::Sync)?;
        (0..40).try_for_each(|key| map.insert(&key_of(&name, key), &text_of(&name, key, 30)).map(drop))?;
    }
    fill_words::<FastFair<u64>>(store, "fastfair words")?;
    fill_strings::<FastFair<[u8]>>(store, "fastfair strings")?;
    fill_words::<FpTree<u64>>(store, "fptree words")?;
    fill_strings::<FpTree<[u8]>>(store, "fptree strings")?;
    fill_words::<HashIndex<u64>>(store, "hash words")?;
    fill_strings::<HashIndex<[u8]>>(store, "hash strings")?;
    fill_words::<SkipList<u64>>(store, "list words")?;
    fill_strings::<SkipList<[u8]>>(store, "list strings")?;
    let stm = Stm::open_with(store, &stm_options())?;
    let hash = PmHashMap::<Bytes, u64>::open(&stm, "hash map")?;
    let tree = PmBTreeMap::<Bytes, Bytes>::open(&stm, "tree")?;
    let (queue, list) = (PmQueue::<u64>::open(&stm, "queue")?, PmList::<Bytes>::open(&stm, "list")?);
    for number in 0..30_u64 {
        let key = key_of("", number);
        stm.update(|tx| {
            hash.insert(tx, &key, &word_of("hash map", number))?;
            tree.insert(tx, &key, &text_of("tree", number, 30))?;
            queue.push(tx, &word_of("queue", number))?;
            list.push_back(tx, &text_of("list", number, 30)).map(drop)
        })?;
    }
    Ok(())
}

/// Every record of one object or member.
fn records_of(store: &Store, object: &str, member: Option<&str>) -> Outcome<Vec<(Vec<u8>, Vec<u8>)>> {
    let object = store.open_object(object)?;
    let records = store.kind_of(&object)?.records(object, member, Acknowledge::EachChange)?;
    let mut all = Vec::new();
    records.scan(None, &mut |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    all.sort();
    Ok(all)
}

fn is_of_numbers(store: &Store, object: &str, member: Option<&str>) -> Outcome<bool> {
    let object = store.open_object(object)?;
    let records = store.kind_of(&object)?.records(object, member, Acknowledge::EachChange)?;
    Ok(records.key_form() == KeyForm::Number)
}

/// All places with records, by object and member.
fn places(store: &Store) -> Outcome<Vec<(String, Option<String>)>> {
    let mut all = Vec::new();
    for named in store.names() {
        let kind = store.find_kind(named.kind).ok_or("an unknown kind")?;
        let members = kind.members(store.open_object(&named.name)?)?;
        if members.is_empty() {
            all.push((named.name, None));
        } else {
            all.extend(members.into_iter().map(|member| (named.name.clone(), Some(member.name))));
        }
    }
    Ok(all)
}

/// A sound pool, its answers, and its ranges that are in use.
struct Sound {
    image: Vec<u8>,
    places: Vec<(String, Option<String>)>,
    answers: Answers,
    /// Places whose keys are numbers.
    numbers: BTreeSet<String>,
    /// The place of each object.
    objects: BTreeMap<String, PmAddr>,
    /// The place of each record.
    homes: salvaged::Homes,
    used: Vec<(PmAddr, u64)>,
}

/// The places of the records of a place.
fn homes_of(
    image: &[u8],
    (used, cells): (&[(PmAddr, u64)], &[salvaged::Cell]),
    place: &str,
    records: &[(Vec<u8>, Vec<u8>)],
) -> BTreeMap<Vec<u8>, salvaged::Home> {
    // Those that `fill_words` and `fill_strings` make, and two collections.
    let is_of_words = [" words/", " strings/", "hash map", "queue"].iter().any(|part| place.contains(part));
    // Head and key of a record are in front of its value.
    let before = if place.contains("map over") || place.starts_with("ordered") { 32 } else { 0 };
    // A separate key beside the line with its value.
    let has_key = ["fptree strings", "hash strings"].iter().any(|kind| place.starts_with(kind));
    let home = |(key, value): &(Vec<u8>, Vec<u8>)| {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
        let value = match number.filter(|_| is_of_words) {
            Some(number) => number.to_le_bytes().to_vec(),
            None => value.clone(),
        };
        if place.starts_with("objects/") {
            return (key.clone(), salvaged::home_in_cells(cells, &value));
        }
        let traces = salvaged::Traces { value, before, key: has_key.then(|| key.clone()) };
        (key.clone(), salvaged::home(image, used, &traces))
    };
    records.iter().map(home).collect()
}

/// Made once for all tests: to find the places of its records takes longer than their cases.
static SOUND: LazyLock<Sound> = LazyLock::new(|| sound().expect("a sound pool"));

fn sound() -> Outcome<Sound> {
    let memory = memory();
    let pool = Pool::create_on(memory.clone(), &options())?;
    let store = Store::over_with(&pool, &store_options())?;
    fill(&store)?;
    let report = store.check(&mut |_| {});
    assert!(report.is_clean() && report.ownership_checked, "{:?}", report.findings);
    let places = places(&store)?;
    let (mut answers, mut numbers) = (Answers::new(), BTreeSet::new());
    for (object, member) in &places {
        if is_of_numbers(&store, object, member.as_deref())? {
            numbers.insert(format!("{object}/{member:?}"));
        }
        answers.insert(format!("{object}/{member:?}"), records_of(&store, object, member.as_deref())?);
    }
    let mut blocks = Vec::new();
    store.heap().for_each_block(|at, bytes| blocks.push((at, bytes)));
    let mut used = store.heap().metadata_ranges();
    used.extend(&blocks);
    let objects: BTreeMap<String, PmAddr> = store.names().into_iter().map(|named| (named.name, named.at)).collect();
    let cells = salvaged::cells(&Stm::open_with(&store, &stm_options())?);
    drop((store, pool));
    let mut image = vec![0; usize::try_from(POOL_BYTES)?];
    memory.read(PmAddr::new(0, 0), &mut image);
    let mut homes = salvaged::Homes::new();
    for (place, records) in &answers {
        let found = homes_of(&image, (&blocks, &cells), place, records);
        assert!(found.values().all(|home| !home.own.is_empty()), "{place}: records that the image does not show");
        homes.insert(place.clone(), found);
    }
    Ok(Sound { image, places, answers, numbers, objects, homes, used })
}

/// A byte that is in use.
fn used_byte(sound: &Sound, numbers: &mut Numbers) -> PmAddr {
    let total: u64 = sound.used.iter().map(|(_, bytes)| bytes).sum();
    let mut left = numbers.below(total);
    for &(at, bytes) in &sound.used {
        if left < bytes {
            return at.plus(left);
        }
        left -= bytes;
    }
    sound.used[0].0
}

fn flip_bit(memory: &Memory, at: PmAddr, numbers: &mut Numbers) {
    let word_at = PmAddr::new(at.part(), at.offset() & !7);
    memory.store(word_at, memory.load(word_at) ^ 1 << numbers.below(64));
}

fn lose(memory: &Memory, at: PmAddr, bytes: u64, numbers: &mut Numbers) {
    let start = at.offset() & !(bytes - 1);
    let fill_random = numbers.below(2) == 0;
    for offset in (start..start + bytes).step_by(8) {
        memory.store(PmAddr::new(at.part(), offset), if fill_random { numbers.number() } else { 0 });
    }
}

fn judge(sound: &Sound, memory: Memory, figures: &mut salvaged::Figures) -> Outcome<Fate> {
    let damaged = salvaged::damaged_lines(sound, &memory);
    figures.cases += 1;
    figures.damaging += u64::from(!damaged.is_empty());
    figures.refused += 1;
    let Ok(pool) = Pool::open_on(memory, &options()) else { return Ok(Fate::Refused) };
    let Ok(store) = Store::over_with(&pool, &store_options()) else { return Ok(Fate::Refused) };
    let (mut failed, mut wrong) = (false, false);
    // The open reported every copy that it healed.
    let healed = store.recovery().copies_healed > 0 || !store.heap().recovery().is_sound();
    let report = store.check(&mut |_| {});
    for (object, member) in &sound.places {
        match records_of(&store, object, member.as_deref()) {
            Ok(found) => wrong |= found != sound.answers[&format!("{object}/{member:?}")],
            Err(_) => failed = true,
        }
    }
    let reported = !report.is_clean() || healed;
    figures.refused -= 1;
    let salvaged = salvaged::salvage_all(&store, sound, &damaged, figures);
    salvaged::repair(&store, sound, &salvaged, &damaged, figures)?;
    Ok(match (wrong, failed) {
        (true, _) => Fate::Wrong { reported },
        (false, true) => Fate::Failed { reported },
        (false, false) => Fate::Same { reported },
    })
}

fn run(name: &'static str, cases: u64, damage: impl Fn(&Sound, &Memory, &mut Numbers)) -> Tally {
    let sound: &Sound = &SOUND;
    let figures = RefCell::new(salvaged::Figures::default());
    let layer = Layer { name, command: COMMAND, cases, seed: 0xDA_0000, seconds_max: 60 };
    let tally = layer.run(|numbers| {
        let memory = memory();
        memory.write(PmAddr::new(0, 0), &sound.image);
        damage(sound, &memory, numbers);
        (name, judge(sound, memory, &mut figures.borrow_mut()).expect("a judgement"))
    });
    let figures = figures.into_inner();
    let faults = &figures.faults[..figures.faults.len().min(20)];
    println!("{name}: {figures}");
    assert!(faults.is_empty(), "{} faults:\n{}", figures.faults.len(), faults.join("\n"));
    tally
}

fn assert_told(tally: &Tally) {
    for (kind, counts) in &tally.kinds {
        assert_eq!(counts.wrong, [0, 0], "{kind}: wrong answers without an error: {tally}");
        assert_eq!(counts.failed[1], 0, "{kind}: errors that the check does not know: {tally}");
    }
}

#[test]
fn flipped_bits() {
    assert_told(&run("flipped_bits", 40, |sound, memory, numbers| {
        flip_bit(memory, used_byte(sound, numbers), numbers);
    }));
}

#[test]
fn lost_lines() {
    assert_told(&run("lost_lines", 25, |sound, memory, numbers| {
        lose(memory, used_byte(sound, numbers), 64, numbers);
    }));
}

#[test]
fn lost_pages() {
    assert_told(&run("lost_pages", 24, |sound, memory, numbers| {
        lose(memory, used_byte(sound, numbers), 4096, numbers);
    }));
}
