//! Metadata of a pool that verifies and is wrong all the same: headers, states, roots, the journal's headers and its
//! records are changed and sealed again; then the pool is opened for reading and for writing, checked, changed,
//! repaired and opened again. Nothing panics, nothing hangs, and no open pool reaches beyond its file.
//!
//! An open for writing that succeeds is believed: the next open finds everything that it made durable.
//!
//! `LODESTONE_HOSTILE_CASES=100000 cargo test -p lodestone-pmem --test it hostile::` runs many cases for each layer; a
//! failed case prints the command that shows it again. A folder in memory (`TMPDIR`) makes it fast.

use std::fs;
use std::path::Path;

use lodestone_crash::hostile::{Fate, Layer, Numbers, Tally};
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions};

const COMMAND: &str = "cargo test -p lodestone-pmem --test it hostile::";
const POOL_BYTES: u64 = 224 << 10;
const JOURNAL_AT: usize = 12288;
const RING_AT: usize = JOURNAL_AT + 8192;
const SECTOR: usize = 512;
/// A word of the heap area that every open for writing changes.
const MARK: u64 = 64;

fn options(domain: DomainChoice) -> PoolOptions {
    PoolOptions {
        domain,
        size_bytes: POOL_BYTES,
        journal_bytes: 72 << 10,
        reserve_bytes: 16 << 20,
        ..PoolOptions::default()
    }
}

fn load(image: &[u8], at: usize, bytes: usize) -> u64 {
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(&image[at..at + bytes]);
    u64::from_le_bytes(word)
}

fn store(image: &mut [u8], at: usize, bytes: usize, value: u64) {
    image[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

/// Makes the checksum in the last four bytes of a record fit.
fn seal(image: &mut [u8], at: usize, bytes: usize) {
    let crc = crc32c::crc32c(&image[at..at + bytes - 4]);
    store(image, at + bytes - 4, 4, u64::from(crc));
}

/// A number that is likely to upset arithmetic on offsets and counts.
fn nasty(numbers: &mut Numbers, old: u64) -> u64 {
    const EDGES: [u64; 12] = [
        4095,
        12288,
        POOL_BYTES,
        POOL_BYTES - 4096,
        1 << 61,
        (1 << 61) + 1,
        1 << 62,
        (1 << 62) - 1,
        (1 << 62) - 4096,
        u64::MAX - 1,
        i64::MAX as u64,
        u64::MAX - 4095,
    ];
    if numbers.below(3) == 0 { *numbers.pick(&EDGES) } else { numbers.nasty(old) }
}

/// Changes a field of `bytes` bytes of the record at `at` and of its copies, and seals them.
fn upset(image: &mut [u8], numbers: &mut Numbers, copies: &[usize], record_bytes: usize, field: (usize, usize)) {
    let old = load(image, copies[0] + field.0, field.1);
    let value = nasty(numbers, old);
    // One copy, or all.
    let first = if numbers.below(2) == 0 { 0 } else { numbers.below(copies.len() as u64) as usize };
    let changed = if numbers.below(2) == 0 { &copies[first..=first] } else { copies };
    for &at in changed {
        store(image, at + field.0, field.1, value);
        seal(image, at, record_bytes);
    }
}

fn damage_parts(image: &mut [u8], numbers: &mut Numbers) -> &'static str {
    const FIELDS: [(usize, usize); 20] = [
        (8, 4),
        (12, 4),
        (16, 8),
        (24, 8),
        (32, 8),
        (40, 8),
        (56, 8),
        (72, 2),
        (74, 2),
        (76, 4),
        (88, 8),
        (152, 8),
        (160, 8),
        (168, 8),
        (176, 8),
        (184, 8),
        (200, 8),
        (440, 8),
        (3512, 2),
        (3544, 8),
    ];
    let word = (numbers.below(7) as usize * 8, 8);
    match numbers.below(4) {
        0 | 1 => {
            let copies = [0, image.len() - 4096];
            upset(image, numbers, &copies, 4096, *numbers.clone().pick(&FIELDS));
            "header of a part"
        }
        2 => {
            upset(image, numbers, &[4096, 4352], 64, word);
            "state"
        }
        _ => {
            let root = 8192 + 64 * numbers.below(3) as usize;
            upset(image, numbers, &[root, root + 2048], 64, word);
            "root"
        }
    }
}

fn seal_sector(image: &mut [u8], at: usize) {
    seal(image, at, SECTOR);
}

/// Seals the record at `at`: the checksums of its sectors, and the one over them in its header.
fn seal_record(image: &mut [u8], at: usize) {
    let lines = load(image, at + 32, 8);
    let sectors = 1 + lines.saturating_sub(6).div_ceil(7);
    let mut crc = crc32c::crc32c(&image[JOURNAL_AT + 40..JOURNAL_AT + 56]);
    for number in 1..usize::try_from(sectors).unwrap_or(usize::MAX) {
        let Some(sector) = number.checked_mul(SECTOR).map(|offset| at + offset).filter(|at| at + SECTOR <= image.len())
        else {
            break;
        };
        seal_sector(image, sector);
        crc = crc32c::crc32c_append(crc, &image[sector + 508..sector + 512]);
    }
    store(image, at + 60, 4, u64::from(crc));
    seal_sector(image, at);
}

/// Where the records of the ring begin.
fn records(image: &[u8]) -> Vec<usize> {
    let ring = RING_AT..JOURNAL_AT + (72 << 10);
    ring.step_by(4096).filter(|at| &image[*at..at + 8] == b"LODEJREC").collect()
}

fn damage_journal(image: &mut [u8], numbers: &mut Numbers) -> &'static str {
    let all = records(image);
    match numbers.below(4) {
        0 | 1 => {
            const FIELDS: [(usize, usize); 8] = [(8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 4)];
            let copies = [JOURNAL_AT, JOURNAL_AT + 4096];
            // The checksum is at the end of the first line, not of the page.
            upset(image, numbers, &copies, 64, *numbers.clone().pick(&FIELDS));
            "header of the journal"
        }
        2 => {
            let at = *numbers.pick(&all);
            let field = at + 8 * numbers.below(8) as usize;
            let value = nasty(numbers, load(image, field, 8));
            store(image, field, 8, value);
            seal_record(image, at);
            "header of a record"
        }
        _ => {
            let at = *numbers.pick(&all);
            let lines = load(image, at + 32, 8).min(64);
            let entry = numbers.below(lines) as usize;
            let offset = match entry {
                0..6 => 64 + 72 * entry,
                _ => SECTOR * (1 + (entry - 6) / 7) + (entry - 6) % 7 * 72,
            };
            // An address: of the pool's own metadata, of the journal, beyond the end, of another part, of no line.
            let target = match numbers.below(4) {
                0 => numbers.below(5) * 4096 + numbers.below(128) * 32,
                1 => POOL_BYTES - 4096 + 64 * numbers.below(70),
                2 => PmAddr::new(1, 64 * numbers.below(100)).to_raw(),
                _ => nasty(numbers, load(image, at + offset, 8)),
            };
            if numbers.below(3) > 0 && at + offset + 8 <= image.len() {
                store(image, at + offset, 8, target);
            } else if at + offset + 72 <= image.len() {
                let word = at + offset + 8 + 8 * numbers.below(8) as usize;
                let value = nasty(numbers, load(image, word, 8));
                store(image, word, 8, value);
            }
            seal_record(image, at);
            "entry of a record"
        }
    }
}

/// A pool with roots; one that died with records in its journal.
fn sound(path: &Path, domain: DomainChoice) -> Vec<u8> {
    let _ = fs::remove_file(path);
    let pool = Pool::create(path, &options(domain)).expect("a pool");
    let start = pool.heap_area(0).0;
    pool.set_root("root", 1, start).expect("a root");
    pool.set_root("other", 2, start.plus(4096)).expect("a root");
    for number in 0..5_u64 {
        for line in 0..=number * 5 {
            let at = start.plus(8192 + 64 * line);
            pool.memory().store(at, number);
            pool.memory().persist(at, 8);
        }
        pool.memory().durable().expect("durable");
    }
    // As a process leaves it that dies.
    let image = fs::read(path).expect("the file");
    drop(pool);
    image
}

/// Opens for reading, asks, checks.
fn look(path: &Path, options: &PoolOptions) -> bool {
    let report = Pool::check(path, options);
    let reported = report.as_ref().map_or(true, |report| !report.is_clean());
    let _ = report.map(|report| report.to_string());
    if let Ok(pool) = Pool::open_read_only(path, options) {
        let (start, end) = pool.heap_area(0);
        assert!(start < end && pool.memory().contains(PmAddr::new(0, end.offset()), 4096), "areas in the file");
        let _ = (pool.info().to_string(), pool.root("root").is_ok(), pool.memory().load(start));
        assert!(pool.memory().contains(PmAddr::new(0, 0), end.offset()), "the heap is in the file");
    }
    reported
}

/// Opens for writing and makes a change durable; whether it could be opened.
fn change(path: &Path, options: &PoolOptions, value: u64) -> bool {
    let Ok(pool) = Pool::open(path, options) else { return false };
    let at = pool.heap_area(0).0.plus(MARK);
    pool.memory().store(at, value);
    pool.memory().persist(at, 8);
    let is_durable = pool.memory().durable().is_ok();
    let is_root = pool.set_root("mark", 7, PmAddr::new(0, value * 64)).is_ok() && pool.memory().durable().is_ok();
    drop(pool);
    match Pool::open_read_only(path, options) {
        Ok(pool) => {
            assert!(!is_durable || pool.memory().load(at) == value, "a durable store is lost");
            let root = pool.root("mark");
            assert!(
                !is_root || matches!(root, Ok(Some((7, at))) if at.offset() == value * 64),
                "a root is lost: {root:?}"
            );
        }
        Err(error) => assert!(!is_durable, "what was made durable cannot be opened: {error}"),
    }
    true
}

fn run_case(
    path: &Path,
    options: &PoolOptions,
    image: &[u8],
    numbers: &mut Numbers,
    damage: fn(&mut [u8], &mut Numbers) -> &'static str,
) -> (&'static str, Fate) {
    let mut bad = image.to_vec();
    let mut kind = damage(&mut bad, numbers);
    for _ in 0..numbers.below(4) / 2 {
        damage(&mut bad, numbers);
        kind = "several";
    }
    fs::write(path, &bad).expect("room");
    let reported = look(path, options);
    let is_open = change(path, options, 1 + numbers.below(9)) && change(path, options, 11 + numbers.below(9));
    if numbers.below(2) == 0 {
        fs::write(path, &bad).expect("room");
        let _ = Pool::repair(path, options, numbers.below(2) == 0).map(|report| report.to_string());
        look(path, options);
        change(path, options, 21);
    }
    (kind, if is_open { Fate::Same { reported } } else { Fate::Refused })
}

fn run(
    name: &'static str,
    cases: u64,
    domain: DomainChoice,
    damage: fn(&mut [u8], &mut Numbers) -> &'static str,
) -> Tally {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pool");
    let (image, options) = (sound(&path, domain), options(domain));
    fs::write(&path, &image).expect("room");
    assert!(!look(&path, &options) && change(&path, &options, 1), "the sound pool is sound");
    let layer = Layer { name, command: COMMAND, cases, seed: 0x90E1_0000, seconds_max: 60 };
    let tally = layer.run(|numbers| run_case(&path, &options, &image, numbers, damage));
    let refused: u64 = tally.kinds.values().map(|counts| counts.refused).sum();
    let opened: u64 = tally.kinds.values().map(|counts| counts.same.iter().sum::<u64>()).sum();
    assert!(opened + refused < 100 || opened.min(refused) > (opened + refused) / 50, "both sides: {opened}, {refused}");
    tally
}

#[test]
fn headers_states_and_roots() {
    run("headers_states_and_roots", 250, DomainChoice::Process, damage_parts);
}

#[test]
fn headers_states_and_roots_of_the_block_domain() {
    run("headers_states_and_roots_of_the_block_domain", 150, DomainChoice::Block, damage_parts);
}

#[test]
fn journals() {
    run("journals", 250, DomainChoice::Block, damage_journal);
}
