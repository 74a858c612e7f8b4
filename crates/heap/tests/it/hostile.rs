//! Metadata that verifies and is wrong all the same. Every word of a heap that holds blocks is changed and sealed
//! again. A heap is opened over it, checked, read, changed, repaired and opened again. Nothing panics, nothing hangs.
//!
//! `LODESTONE_HOSTILE_CASES=100000 cargo test -p lodestone-heap --test it hostile::` runs many cases for each layer; a
//! failed case prints the command that shows it again.

use std::collections::BTreeSet;

use lodestone_crash::hostile::{Fate, Layer, Numbers, Tally};
use lodestone_heap::{Heap, HeapOptions, ROOT_WORDS};
use lodestone_pmem::{Domain, DomainChoice, Memory, PmAddr, Pool, PoolOptions, checked};

const POOL_BYTES: u64 = 96 << 10;
const COMMAND: &str = "cargo test -p lodestone-heap --test it hostile::";

fn options() -> PoolOptions {
    PoolOptions { domain: DomainChoice::Process, size_bytes: POOL_BYTES, journal_bytes: 0, ..PoolOptions::default() }
}

fn memory() -> Memory {
    Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None).expect("memory")
}

/// A pool with a heap in use.
struct Sound {
    image: Vec<u8>,
    /// Every live block with its bytes.
    blocks: BTreeSet<(PmAddr, u64)>,
    start: PmAddr,
    lanes: Vec<PmAddr>,
    lane_bytes: u64,
    /// Every checked word, with its kind.
    words: Vec<(PmAddr, &'static str)>,
}

fn sound() -> Sound {
    let memory = memory();
    let pool = Pool::create_on(memory.clone(), &options()).expect("a fresh pool");
    let heap_options = HeapOptions::small();
    let heap = Heap::open(&pool, &heap_options).expect("a fresh heap");
    let sizes = [16, 16, 48, 64, 100, 300, 448, 1000, 3000, 2000, 64, 5000, 16, 32, 4000, 64, 128];
    let mut blocks = Vec::new();
    for bytes in sizes {
        let mut action = heap.action();
        blocks.push(action.alloc(bytes).expect("room"));
        action.commit().expect("commit");
    }
    let mut action = heap.action();
    for index in [9, 8, 3] {
        action.free(blocks.remove(index)).expect("free");
    }
    action.commit().expect("commit");
    let ranges = heap.metadata_ranges();
    let (start, _) = pool.heap_area(0);
    let lanes: Vec<PmAddr> = ranges[2..2 + heap_options.lanes as usize].iter().map(|range| range.0).collect();
    let mut words = Vec::new();
    for (number, &(at, bytes)) in ranges.iter().enumerate().skip(2) {
        let kind = match number - 2 {
            lane if lane < lanes.len() => "commit word",
            lane if lane == lanes.len() => "zones word",
            _ if bytes == 8 * u64::from(heap_options.zone_chunks) => "chunk word",
            _ if at.offset() % u64::from(heap_options.chunk_bytes) == 0 && bytes == 8 => "zone or bitmap word",
            _ => "bitmap word",
        };
        words.extend((0..bytes / 8).map(|word| (at.plus(8 * word), kind)));
    }
    let mut live = BTreeSet::new();
    heap.for_each_block(|at, bytes| {
        live.insert((at, bytes));
    });
    assert!(heap.check(Some(&mut live.iter().map(|block| block.0))).is_clean());
    let mut image = vec![0; POOL_BYTES as usize];
    drop((heap, pool));
    memory.read(PmAddr::new(0, 0), &mut image);
    Sound { image, blocks: live, start, lanes, lane_bytes: u64::from(heap_options.lane_bytes), words }
}

/// An address that may or may not be one of the heap's.
fn some_place(sound: &Sound, numbers: &mut Numbers) -> PmAddr {
    let inside = |numbers: &mut Numbers| PmAddr::new(0, numbers.below(POOL_BYTES / 8) * 8);
    match numbers.below(6) {
        0 => sound.words[numbers.below(sound.words.len() as u64) as usize].0,
        1 => inside(numbers),
        2 => sound.start.plus(numbers.below(512) * 8),
        3 => *numbers.pick(&sound.lanes),
        4 => PmAddr::from_raw(numbers.nasty(POOL_BYTES) & !7),
        _ => numbers.pick(&sound.blocks.iter().collect::<Vec<_>>()).0,
    }
}

fn damage_word(memory: &Memory, sound: &Sound, numbers: &mut Numbers) -> &'static str {
    let &(at, kind) = numbers.pick(&sound.words);
    let old = checked::decode(at, memory.load(at)).unwrap_or(0);
    let payload = if kind == "chunk word" && numbers.below(3) > 0 {
        // A word that makes sense: some kind with some value.
        numbers.below(6) | numbers.nasty(old >> 8) << 8
    } else {
        numbers.nasty(old)
    };
    memory.store(at, checked::encode(at, payload % checked::PAYLOAD_LIMIT));
    kind
}

/// A field of one copy of the header, or of both.
fn damage_header(memory: &Memory, sound: &Sound, numbers: &mut Numbers) -> &'static str {
    const FIELDS: [(usize, usize); 10] =
        [(8, 4), (12, 4), (16, 4), (20, 4), (24, 4), (28, 4), (32, 8), (40, 8), (48, 8), (56, 4)];
    let (field, bytes) = *numbers.pick(&FIELDS);
    let copies: &[u64] = match numbers.below(4) {
        0 => &[0],
        1 => &[2048],
        _ => &[0, 2048],
    };
    let mut line = [0; 64];
    memory.read(sound.start, &mut line);
    let mut old = [0; 8];
    old[..bytes].copy_from_slice(&line[field..field + bytes]);
    let old = u64::from_le_bytes(old);
    let value = if numbers.below(2) == 0 { 1 << numbers.below(33) } else { numbers.nasty(old) };
    line[field..field + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    let crc = crc32c::crc32c(&line[..60]);
    line[60..].copy_from_slice(&crc.to_le_bytes());
    for copy in copies {
        memory.write(sound.start.plus(*copy), &line);
    }
    "header"
}

/// A record that counts, of entries that no commit wrote.
fn damage_lane(memory: &Memory, sound: &Sound, numbers: &mut Numbers) -> &'static str {
    let lane = *numbers.pick(&sound.lanes);
    let count = 1 + numbers.below((sound.lane_bytes - 16) / 16);
    let mut bytes = numbers.nasty(1).to_le_bytes().to_vec();
    for _ in 0..count {
        let tagged = some_place(sound, numbers).to_raw() & !7 | numbers.below(6);
        let value = numbers.nasty(1);
        bytes.extend_from_slice(&tagged.to_le_bytes());
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    memory.write(lane.plus(8), &bytes);
    memory.store(lane, checked::encode(lane, count | u64::from(crc32c::crc32c(&bytes)) << 16));
    "record"
}

fn open(memory: &Memory) -> Option<Heap> {
    let pool = Pool::open_on(memory.clone(), &options()).ok()?;
    Heap::open(&pool, &HeapOptions::small()).ok()
}

fn live(heap: &Heap) -> BTreeSet<(PmAddr, u64)> {
    let mut live = BTreeSet::new();
    heap.for_each_block(|at, bytes| {
        live.insert((at, bytes));
    });
    live
}

/// Allocates, frees, moves and sets words; errors are answers.
fn change(heap: &Heap, sound: &Sound, numbers: &mut Numbers) {
    let mut made = Vec::new();
    for _ in 0..6 {
        let mut action = heap.action();
        match numbers.below(5) {
            0 | 1 => {
                let bytes = *numbers.pick(&[16, 64, 100, 448, 1000, 3000]);
                made.extend(action.alloc(bytes));
            }
            2 => {
                let _ = action.free(some_place(sound, numbers));
            }
            3 => {
                let _ = action.realloc(some_place(sound, numbers), 700);
            }
            _ => {
                if let Some(at) = made.pop() {
                    let _ = action.free(at);
                }
                action.set(heap.root_word(numbers.below(ROOT_WORDS)), 5);
                action.set(heap.root_word(numbers.below(ROOT_WORDS)), 6);
            }
        }
        if numbers.below(4) > 0 {
            let _ = action.commit();
        }
    }
}

fn use_all(heap: &Heap, sound: &Sound, numbers: &mut Numbers) {
    let _ = (heap.usage().to_string(), heap.metadata_ranges().len());
    for _ in 0..8 {
        let _ = heap.block_bytes(some_place(sound, numbers));
    }
    change(heap, sound, numbers);
    let _ = heap.check(None).to_string();
}

fn run_case(
    sound: &Sound,
    numbers: &mut Numbers,
    damage: fn(&Memory, &Sound, &mut Numbers) -> &'static str,
) -> (&'static str, Fate) {
    let memory = memory();
    memory.write(PmAddr::new(0, 0), &sound.image);
    let kind = damage(&memory, sound, numbers);
    for _ in 0..numbers.below(4) / 2 {
        damage(&memory, sound, numbers);
    }
    let Some(heap) = open(&memory) else { return (kind, Fate::Refused) };
    let report = heap.check_owned(&mut sound.blocks.iter().copied());
    let (reported, found) = (!report.is_clean(), live(&heap));
    let _ = report.to_string();
    // A block that is larger than it was loses nothing: a forged length over free chunks cannot be told.
    let same = found.len() == sound.blocks.len()
        && sound.blocks.iter().all(|(at, bytes)| heap.block_bytes(*at) >= Some(*bytes));
    use_all(&heap, sound, numbers);
    if numbers.below(2) == 0 {
        let _ = heap.check(Some(&mut sound.blocks.iter().map(|block| block.0))).to_string();
        let _ = heap.repair(&heap.check_owned(&mut sound.blocks.iter().copied()));
        use_all(&heap, sound, numbers);
    }
    drop(heap);
    if let Some(heap) = open(&memory) {
        let _ = heap.check_owned(&mut sound.blocks.iter().copied());
        use_all(&heap, sound, numbers);
    }
    (kind, if same { Fate::Same { reported } } else { Fate::Wrong { reported } })
}

fn run(name: &'static str, cases: u64, damage: fn(&Memory, &Sound, &mut Numbers) -> &'static str) -> Tally {
    let sound = sound();
    let layer = Layer { name, command: COMMAND, cases, seed: 0x4EA9_0000, seconds_max: 60 };
    layer.run(|numbers| run_case(&sound, numbers, damage))
}

#[test]
fn words_of_a_heap() {
    let tally = run("words_of_a_heap", 1000, damage_word);
    assert_eq!(tally.wrong_unreported(|_| true), 0, "blocks were lost or made up, and the check does not say so");
}

#[test]
fn headers_of_a_heap() {
    run("headers_of_a_heap", 400, damage_header);
}

#[test]
fn records_of_a_heap() {
    run("records_of_a_heap", 400, damage_lane);
}
