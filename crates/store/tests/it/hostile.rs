//! A catalog that verifies and is wrong all the same: its pages, entries, names and lists are changed and sealed again,
//! then a store is opened over it, asked, checked, changed and opened again. Nothing panics, nothing hangs, and no name
//! leads to another object than before without an error or a finding.
//!
//! 1. One pool holds objects with short and long names over several pages, a drop that a crash cut short in the middle,
//!    and one that had only begun. This file finds its way from the heap's root words by `docs/format.md` alone.
//! 2. A case changes one to three places, in one copy or in both, and computes the right checksums.
//! 3. Where the check says nothing and all answers are right, the store goes on: each change that it acknowledges is
//!    there after the next open, and nothing else changed.
//!
//! `LODESTONE_HOSTILE_CASES=100000 cargo test -p lodestone-store --test it hostile::` runs many cases for
//! each layer; a failed case prints the command that shows it again.

use std::collections::BTreeMap;
use std::fs;

use lodestone_crash::hostile::{Fate, Layer, Numbers, Tally};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_pmem::{Domain, DomainChoice, Memory, PmAddr, Pool, PoolOptions, checked};
use lodestone_proof::store::{SHELF, Shelf};
use lodestone_store::{Force, Kind, Object, Store, StoreOptions};

const POOL_BYTES: u64 = 160 << 10;
const COMMAND: &str = "cargo test -p lodestone-store --test it hostile::";

/// Words of the format.
const LIVE: u64 = 1;
const DROPPED: u64 = 2;
const ENTRY_MAGIC: u64 = u64::from_le_bytes(*b"LDSTNAME");
const PAGE_COPY_BYTES: u64 = 64;

/// Names with the places of their objects.
type Names = BTreeMap<String, PmAddr>;

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: POOL_BYTES, journal_bytes: 0, ..PoolOptions::default() }
}

fn store_options() -> StoreOptions {
    let mut heap = HeapOptions::small();
    (heap.chunk_bytes, heap.zone_chunks, heap.lane_bytes) = (4096, 16, 1024);
    StoreOptions::with_heap(heap)
}

fn memory() -> Memory {
    Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None).expect("memory")
}

/// A place that can be damaged.
#[derive(Clone, Copy, Debug)]
enum Site {
    /// A word that is there twice, as a payload.
    Twin([PmAddr; 2]),
    /// An entry whose name has so many bytes.
    Entry(PmAddr, u64),
    /// A list.
    List(PmAddr),
}

/// A pool with names in it.
struct Sound {
    image: Vec<u8>,
    names: Names,
    sites: BTreeMap<&'static str, Vec<Site>>,
    /// Where blocks of the pool start, whatever their owner.
    places: Vec<PmAddr>,
}

const fn copy_bytes(name_bytes: u64) -> u64 {
    (64 + name_bytes).next_multiple_of(64)
}

/// Checksum of the copy at `base` of the entry at `at`.
fn entry_checksum(memory: &Memory, at: PmAddr, base: PmAddr, name: &[u8]) -> u64 {
    let [magic, shape, object] = [0, 8, 16].map(|offset| memory.load(base.plus(offset)));
    let words = [magic, shape, object, at.to_raw(), base.to_raw()];
    let head = words.iter().fold(0, |crc, word: &u64| crc32c::crc32c_append(crc, &word.to_le_bytes()));
    u64::from(crc32c::crc32c_append(head, name))
}

fn list_checksum(memory: &Memory, at: PmAddr) -> u64 {
    let count = memory.load(at.plus(8));
    let head = crc32c::crc32c_append(crc32c::crc32c(&at.to_raw().to_le_bytes()), &count.to_le_bytes());
    let words = (0..count.min(64)).map(|number| memory.load(at.plus(24 + 8 * number)));
    u64::from(words.fold(head, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes())))
}

/// Writes a list of `blocks`, and makes the entry at `entry` name it.
fn add_list(heap: &Heap, (entry, name_bytes): (PmAddr, u64), blocks: &[PmAddr]) -> PmAddr {
    let memory = heap.memory();
    let mut action = heap.action();
    let at = action.alloc(24 + 8 * blocks.len() as u64).expect("room");
    let lists = [0, copy_bytes(name_bytes)].map(|copy| entry.plus(copy + 40));
    let next = checked::decode_addr(lists[0], memory.load(lists[0])).expect("a sound list");
    memory.store(at, checked::encode_addr(at, next));
    memory.store(at.plus(8), blocks.len() as u64);
    for (number, block) in blocks.iter().enumerate() {
        memory.store(at.plus(24 + 8 * number as u64), block.to_raw());
    }
    memory.store(at.plus(16), list_checksum(memory, at));
    for list in lists {
        action.set(list, checked::encode_addr(list, at));
    }
    action.commit().expect("commit");
    at
}

/// The blocks of a shelf.
fn blocks_of(object: Object) -> Vec<PmAddr> {
    SHELF.examine(object).expect("sound").blocks.into_iter().map(|(at, _)| at).collect()
}

fn sound() -> Sound {
    let memory = memory();
    let pool = Pool::create_on(memory.clone(), &options()).expect("a fresh pool");
    let store = Store::over_with(&pool, &store_options()).expect("a fresh heap");
    for number in 0..17_u64 {
        let name = if number % 5 == 4 { format!("{number} {}", "long ".repeat(20)) } else { format!("shelf {number}") };
        drop(Shelf::open(&store, &name, number % 4, 64).expect("room"));
    }
    for number in 0..3 {
        store.drop_object(&format!("shelf {}", number * 5), Force::No).expect("it is there");
    }
    store.rename("shelf 7", "renamed").expect("room");
    let mut names: Names = store.names().into_iter().map(|named| (named.name, named.at)).collect();
    let dropped = blocks_of(store.open_object("shelf 3").expect("it is there"));
    let begun = blocks_of(store.open_object("shelf 2").expect("it is there"));
    let mut sound = Sound { image: Vec::new(), names: Names::new(), sites: BTreeMap::new(), places: Vec::new() };
    sound.find_pages(store.heap());
    let entry_of = |sound: &Sound, name: &str| {
        let is_it =
            |site: &&Site| matches!(site, Site::Entry(at, bytes) if name_at(&memory, *at, *bytes) == name.as_bytes());
        match sound.sites["entry"].iter().find(is_it) {
            Some(Site::Entry(at, bytes)) => (*at, *bytes),
            _ => panic!("`{name}` has an entry"),
        }
    };
    let (first, second) = (entry_of(&sound, "shelf 3"), entry_of(&sound, "shelf 2"));
    let mut lists: Vec<PmAddr> = dropped.chunks(2).map(|blocks| add_list(store.heap(), first, blocks)).collect();
    lists.push(add_list(store.heap(), second, &begun[..1]));
    for copy in [0, copy_bytes(first.1)] {
        let state = first.0.plus(copy + 32);
        memory.store(state, checked::encode(state, DROPPED));
    }
    names.remove("shelf 3");
    sound.sites.insert("list", lists.into_iter().map(Site::List).collect());
    store.heap().for_each_block(|at, _| sound.places.push(at));
    drop((store, pool));
    sound.image = vec![0; POOL_BYTES as usize];
    memory.read(PmAddr::new(0, 0), &mut sound.image);
    sound.names = names;
    sound
}

fn name_at(memory: &Memory, entry: PmAddr, bytes: u64) -> Vec<u8> {
    let mut name = vec![0; bytes as usize];
    memory.read(entry.plus(64), &mut name);
    name
}

impl Sound {
    fn find_pages(&mut self, heap: &Heap) {
        let memory = heap.memory();
        let mut link = [heap.root_word(0), heap.root_word(8)];
        let mut add = |kind, site| self.sites.entry(kind).or_default().push(site);
        add("root words", Site::Twin(link));
        loop {
            let page = checked::decode_addr(link[0], memory.load(link[0])).expect("a sound link");
            if page.is_null() {
                return;
            }
            link = [0, PAGE_COPY_BYTES].map(|copy| page.plus(copy));
            add("link of a page", Site::Twin(link));
            for slot in 1..8 {
                let slot = link.map(|copy| copy.plus(8 * slot));
                add("slot", Site::Twin(slot));
                let entry = checked::decode_addr(slot[0], memory.load(slot[0])).expect("a sound slot");
                if entry.is_null() {
                    continue;
                }
                let bytes = memory.load(entry.plus(8)) >> 32;
                let twin = |offset| Site::Twin([0, copy_bytes(bytes)].map(|copy| entry.plus(copy + offset)));
                add("entry", Site::Entry(entry, bytes));
                add("state", twin(32));
                add("link to a list", twin(40));
            }
        }
    }

    /// An address for a word that is at `at`.
    fn address(&self, at: PmAddr, numbers: &mut Numbers) -> PmAddr {
        let offset = match numbers.below(9) {
            0 => 0,
            1 => at.offset(),
            2 => at.line().start().offset(),
            3 => numbers.below(POOL_BYTES / 8) * 8,
            4 => POOL_BYTES - 8 * numbers.below(40),
            _ => numbers.pick(&self.places).offset(),
        };
        PmAddr::new(if numbers.below(40) == 0 { 3 } else { 0 }, offset)
    }
}

/// The copies to change: the first, the second, or mostly both.
fn copies(numbers: &mut Numbers) -> &'static [usize] {
    match numbers.below(6) {
        0 => &[0],
        1 => &[1],
        _ => &[0, 1],
    }
}

fn damage(memory: &Memory, sound: &Sound, numbers: &mut Numbers) -> &'static str {
    let kinds: Vec<(&&'static str, &Vec<Site>)> = sound.sites.iter().collect();
    let (kind, all) = *numbers.pick(&kinds);
    match *numbers.pick(all) {
        Site::Twin(places) => {
            let payload_at = |at| checked::decode(at, memory.load(at)).unwrap_or(0);
            let payload = match numbers.below(4) {
                0 => numbers.nasty(payload_at(places[0])) % checked::PAYLOAD_LIMIT,
                1 => match *numbers.pick(all) {
                    Site::Twin(others) => payload_at(others[0]),
                    _ => 0,
                },
                2 if *kind == "state" => *numbers.pick(&[LIVE, DROPPED, 0, 3]),
                _ => checked::addr_payload(sound.address(places[0], numbers)),
            };
            let (copies, before) = (copies(numbers), payload_at(places[0]));
            for &copy in copies {
                memory.store(places[copy], checked::encode(places[copy], payload));
            }
            if *kind == "state" && (before, payload, copies.len()) == (DROPPED, LIVE, 2) { UNDONE } else { kind }
        }
        Site::Entry(at, bytes) => damage_entry(memory, sound, numbers, at, bytes),
        Site::List(at) => damage_list(memory, sound, numbers, at),
    }
}

/// Another name for the entry at `at`: one that another object has, one that no object can have, or a new one.
fn other_name(memory: &Memory, sound: &Sound, numbers: &mut Numbers, at: PmAddr, bytes: u64) -> (Vec<u8>, bool) {
    let mut name = name_at(memory, at, bytes);
    let index = numbers.below(bytes) as usize;
    match numbers.below(4) {
        0 => {
            let same: Vec<&String> = sound.names.keys().filter(|name| name.len() as u64 == bytes).collect();
            (same.first().map_or(name, |_| numbers.pick(&same).as_bytes().to_vec()), false)
        }
        1 => {
            name[index] = *numbers.pick(b"/\n\0\x7f\xff\xc3");
            (name, false)
        }
        _ => {
            name[index] = b'A' + numbers.below(26) as u8;
            (name, true)
        }
    }
}

fn damage_entry(memory: &Memory, sound: &Sound, numbers: &mut Numbers, at: PmAddr, bytes: u64) -> &'static str {
    let (copies, kind) = (copies(numbers), numbers.below(5));
    let (name, is_new) = other_name(memory, sound, numbers, at, bytes);
    let words: [u64; 3] = [
        numbers.nasty(ENTRY_MAGIC),
        memory.load(at.plus(8)) & !0xFFFF_FFFF | numbers.nasty(0x1234) & 0xFFFF_FFFF,
        memory.load(at.plus(8)) & 0xFFFF_FFFF | numbers.nasty(bytes) << 32,
    ];
    let object = match numbers.below(2) {
        0 => *numbers.pick(&sound.names.values().copied().collect::<Vec<_>>()),
        _ if numbers.below(3) == 0 => PmAddr::from_raw(numbers.nasty(at.to_raw())),
        _ => sound.address(at, numbers),
    };
    for base in copies.iter().map(|copy| at.plus(*copy as u64 * copy_bytes(bytes))) {
        let mut name_there = name_at(memory, base, bytes);
        match kind {
            0 => memory.store(base.plus(8), words[1]),
            1 => {
                memory.store(base.plus(8), words[2]);
                let bytes = words[2] >> 32;
                let room = memory.contains(base.plus(64), bytes.next_multiple_of(8));
                name_there = if room { name_at(memory, base, bytes) } else { name_there };
            }
            2 => memory.store(base.plus(16), object.to_raw()),
            3 => memory.store(base, words[0]),
            _ => {
                let mut padded = name.clone();
                padded.resize(name.len().next_multiple_of(8), 0);
                memory.write(base.plus(64), &padded);
                name_there.clone_from(&name);
            }
        }
        memory.store(base.plus(24), entry_checksum(memory, at, base, &name_there));
    }
    match kind {
        0 => "entry: kind",
        // In a copy of the same size, a shorter name.
        1 if copies.len() == 2 && copy_bytes(words[2] >> 32) == copy_bytes(bytes) => RENAMED,
        1 => "entry: length of the name",
        2 => "entry: object",
        3 => "entry: magic",
        _ if copies.len() == 2 && is_new => RENAMED,
        _ => "entry: name",
    }
}

/// Both copies have another name that an object could have: that is what a rename does.
const RENAMED: &str = "entry: renamed";
/// Both copies of the state of a dropped object say that it lives: that is a drop that had only begun.
const UNDONE: &str = "state: the drop had only begun";
/// Several changes, one of them one of these.
const SEVERAL_COULD_BE: &str = "several, that could be so";
/// A catalog that users of the store could have made.
const COULD_BE: [&str; 3] = [RENAMED, UNDONE, SEVERAL_COULD_BE];

fn damage_list(memory: &Memory, sound: &Sound, numbers: &mut Numbers, at: PmAddr) -> &'static str {
    let count = memory.load(at.plus(8));
    let kind = match numbers.below(4) {
        0 => {
            let lists = &sound.sites["list"];
            let next = match (numbers.below(2), *numbers.pick(lists)) {
                (0, Site::List(other)) => other,
                _ => sound.address(at, numbers),
            };
            memory.store(at, checked::encode_addr(at, next));
            "list: next"
        }
        1 => {
            memory.store(at.plus(8), numbers.nasty(count));
            "list: count"
        }
        _ => {
            let block = sound.address(at, numbers);
            memory.store(at.plus(24 + 8 * numbers.below(count.min(2))), block.to_raw());
            "list: block"
        }
    };
    memory.store(at.plus(16), list_checksum(memory, at));
    kind
}

fn open(memory: &Memory) -> Option<Store> {
    let pool = Pool::open_on(memory.clone(), &options()).expect("the pool is sound");
    let store = Store::over_with(&pool, &store_options()).ok()?;
    store.add_kind(&SHELF);
    Some(store)
}

/// The answers of a store compared with the expected ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answers {
    Same,
    Failed,
    Wrong,
}

fn ask_all(store: &Store, names: &Names) -> Answers {
    let listed: Names = store.names().into_iter().map(|named| (named.name, named.at)).collect();
    let mut worst = if listed == *names { Answers::Same } else { Answers::Failed };
    let has_more = listed.iter().any(|(name, at)| names.get(name) != Some(at) && store.open_object(name).is_ok());
    for (name, at) in names {
        let found = match store.find(name) {
            Ok(Some(found)) if found.at == *at => Answers::Same,
            Ok(None) => Answers::Wrong,
            // It may be open to no caller.
            Ok(Some(_)) | Err(_) => Answers::Failed,
        };
        let opened = match store.open_object(name) {
            Ok(object) if object.at() == *at => Answers::Same,
            Ok(_) => Answers::Wrong,
            Err(_) => Answers::Failed,
        };
        worst = worst.max(found).max(opened);
    }
    if has_more { Answers::Wrong } else { worst }
}

/// Creates, renames and drops; `names` follows what is acknowledged.
fn change(store: &Store, names: &mut Names, numbers: &mut Numbers) {
    for number in 0..numbers.below(14) {
        let present: Vec<String> = names.keys().cloned().collect();
        let name = if present.is_empty() { "none".to_owned() } else { numbers.pick(&present).clone() };
        match numbers.below(4) {
            0 | 1 => {
                if let Ok(object) = Shelf::open(store, &format!("new {number}"), numbers.below(4), 64) {
                    names.insert(object.name(), object.at());
                }
            }
            2 => {
                let new_name = format!("again {number}");
                if store.rename(&name, &new_name).is_ok()
                    && let Some(at) = names.remove(&name)
                {
                    names.insert(new_name, at);
                }
            }
            _ => {
                if store.drop_object(&name, *numbers.pick(&[Force::No, Force::Yes])).is_ok() {
                    names.remove(&name);
                }
            }
        }
    }
}

/// Opens the pool for reading, as a tool would.
fn look(memory: &Memory) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let mut image = vec![0; POOL_BYTES as usize];
    memory.read(PmAddr::new(0, 0), &mut image);
    fs::write(&path, image).expect("room");
    let pool = Pool::open_read_only(&path, &options()).expect("the pool is sound");
    if let Ok(store) = Store::over_with(&pool, &store_options()) {
        store.add_kind(&SHELF);
        let _ = (store.check(&mut |_| {}).findings.len(), store.own_blocks().len(), store.names().len());
    }
}

fn run_case(sound: &Sound, numbers: &mut Numbers) -> (&'static str, Fate) {
    let memory = memory();
    memory.write(PmAddr::new(0, 0), &sound.image);
    let mut kind = damage(&memory, sound, numbers);
    for _ in 0..numbers.below(6) / 4 {
        let also = damage(&memory, sound, numbers);
        // Two changes of entries may be one and the same change of both copies, or leave one copy that verifies.
        let could_be = [kind, also].iter().any(|kind| COULD_BE.contains(kind));
        let of_entries = [kind, also].iter().all(|kind| kind.starts_with("entry"));
        kind = if could_be || of_entries { SEVERAL_COULD_BE } else { "several" };
    }
    if numbers.below(6) == 0 {
        look(&memory);
    }
    let Some(store) = open(&memory) else { return (kind, Fate::Refused) };
    let report = store.check(&mut |_| {});
    let reported = !report.is_clean();
    let answers = ask_all(&store, &sound.names);
    let mut names = sound.names.clone();
    change(&store, &mut names, numbers);
    let _ = store.check(&mut |_| {});
    drop(store);
    let again = open(&memory);
    let is_sound = !reported && answers == Answers::Same;
    if let Some(store) = &again {
        let report = store.check(&mut |_| {});
        let found = ask_all(store, &names);
        assert!(!is_sound || (report.is_clean() && found == Answers::Same), "{kind}: {found:?}, {:?}", report.findings);
        change(store, &mut names, numbers);
    }
    assert!(!is_sound || again.is_some(), "{kind}: the next open is refused");
    let fate = match answers {
        Answers::Same => Fate::Same { reported },
        Answers::Failed => Fate::Failed { reported },
        Answers::Wrong => Fate::Wrong { reported },
    };
    (kind, fate)
}

fn run(name: &'static str, cases: u64) -> Tally {
    let sound = sound();
    let layer = Layer { name, command: COMMAND, cases, seed: 0x5708_0000, seconds_max: 60 };
    layer.run(|numbers| run_case(&sound, numbers))
}

#[test]
fn the_sound_pool_is_sound() {
    let sound = sound();
    let memory = memory();
    memory.write(PmAddr::new(0, 0), &sound.image);
    look(&memory);
    let store = open(&memory).expect("sound");
    assert_eq!((store.recovery().drops_finished, store.recovery().drops_undone), (1, 1));
    let report = store.check(&mut |_| {});
    assert!(report.is_clean() && report.ownership_checked, "{:?}", report.findings);
    assert_eq!(ask_all(&store, &sound.names), Answers::Same);
}

#[test]
fn names_of_a_store() {
    let tally = run("names_of_a_store", 600);
    let is_damage = |kind: &str| !COULD_BE.contains(&kind);
    assert_eq!(tally.wrong_unreported(is_damage), 0, "a name is wrong, and the check says nothing: {tally}");
}
