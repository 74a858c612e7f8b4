//! Damage whose checksums fit: no bytes make the transactional memory or a collection panic, or run for ever.
//!
//! A case takes a sound pool and changes a few fields in it. Then it corrects every checksum over them by the rules of
//! `docs/format.md`: this file is a second implementation of the format. The pool is then opened, checked, read,
//! salvaged and written through every collection. Any error is right. A panic, or a case that does not end, is a fault.
//!
//! `LODESTONE_HOSTILE_CASES=100000 cargo test -p lodestone-collections --test hostile -- --nocapture`
//!
//! A failure names its seed. `LODESTONE_HOSTILE_SEED=n` runs that case alone. `LODESTONE_HOSTILE_FIRST=n` begins with
//! that case, so that several processes can share the work.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestone_collections::{Bytes, COLLECTIONS, PmBTreeMap, PmHashMap, PmList, PmQueue};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{DomainChoice, PmAddr, Pool, PoolOptions, checked};
use lodestone_stm::{PmPtr, Stm, StmOptions, pm_object};
use lodestone_store::{Kind, Store, StoreOptions};
use lodestone_txn::{SlotFlags, SlotHeader, Tick, Writer, seal};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Cases of a run without `LODESTONE_HOSTILE_CASES`.
const CASES: u64 = 500;
/// A case that takes longer hangs. The machine may be busy.
const CASE_SECONDS_MAX: u64 = 120;

fn options() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: 1 << 20,
        journal_bytes: 64 << 10,
        reserve_bytes: 4 << 20,
        ..PoolOptions::default()
    }
}

#[pm_object]
struct Account {
    cents: u64,
    next: PmPtr<Account>,
}

/// Numbers from a seed: the sequence is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() { None } else { Some(all[self.below(all.len() as u64) as usize]) }
    }
}

/// A cell with its slab's kind: 1 pair, 2 single.
#[derive(Clone, Copy)]
struct Cell {
    at: u64,
    bytes: u64,
    kind: u64,
}

impl Cell {
    /// Offset of a slot in the pool, and most payload words.
    fn slot(&self, which: u64) -> (u64, u64) {
        let (first, second) = match (self.kind, self.bytes) {
            (2, _) => (24, 8),
            (_, 64) => (8, 32),
            _ => (8, self.bytes.div_ceil(128) * 64),
        };
        let end = if which == 0 && self.kind == 1 { second } else { self.bytes };
        let offset = if which == 0 { first } else { second };
        let words = if self.kind == 2 && which == 1 { 0 } else { (end - offset - 16) / 8 };
        (self.at + offset, words)
    }
}

/// A pool as bytes, with the places of its parts.
#[derive(Clone)]
struct Image {
    bytes: Vec<u8>,
    header: u64,
    /// The first half of the header block, and the second.
    halves: [u64; 2],
    /// Address of the records, bytes of one, bytes of a spill block.
    records: (u64, u64, u64),
    /// Blocks and entries of the directory of slabs: in its first chain, and in the second.
    directories: Vec<[u64; 2]>,
    entries: Vec<[u64; 2]>,
    cells: Vec<Cell>,
}

const SYSTEM: u64 = 512;
const STATE: u64 = 256;
const TABLE: u64 = 1024;

impl Image {
    /// Walks through a sound pool from the header of the memory on.
    fn new(bytes: Vec<u8>, header: PmAddr) -> Outcome<Self> {
        let header = header.offset();
        let mut image = Self {
            bytes,
            header,
            halves: [header; 2],
            records: (0, 0, 0),
            directories: Vec::new(),
            entries: Vec::new(),
            cells: Vec::new(),
        };
        image.halves[1] += TABLE + u64::from(image.load_half(header + 20));
        let half = |at| u64::from(image.load_half(at));
        image.records = (image.load(header + 32), half(header + 16), half(header + 24));
        image.cells.push(Cell { at: header + SYSTEM, bytes: 128, kind: 1 });
        let block_bytes = u64::from(image.load_half(header + 28));
        let mut blocks = [image.load(header + 40), image.load(header + 48)];
        while blocks != [0, 0] {
            image.directories.push(blocks);
            for entry in 0..(block_bytes - 16) / 16 {
                let places = blocks.map(|block| block + 16 + entry * 16);
                let slab = checked::decode_addr(PmAddr::new(0, places[0]), image.load(places[0]));
                if slab.ok_or("a sound entry")?.is_null() {
                    break;
                }
                image.entries.push(places);
                image.add_slab(places[0])?;
            }
            for block in &mut blocks {
                let next = checked::decode_addr(PmAddr::new(0, *block), image.load(*block)).ok_or("a sound link")?;
                *block = next.offset();
            }
        }
        Ok(image)
    }

    fn add_slab(&mut self, entry: u64) -> Outcome {
        let slab = checked::decode_addr(PmAddr::new(0, entry), self.load(entry)).ok_or("a sound entry")?.offset();
        let sizes = checked::decode(PmAddr::new(0, entry + 8), self.load(entry + 8)).ok_or("a sound entry")?;
        let (kind, bytes, all) = (sizes & 3, (sizes >> 2 & 0x7F_FFFF) * 64, (sizes >> 25) * 64);
        if kind != 3 {
            self.cells.extend((0..all / bytes).map(|cell| Cell { at: slab + cell * bytes, bytes, kind }));
        }
        Ok(())
    }

    fn load(&self, at: u64) -> u64 {
        let bytes = self.bytes.get(at as usize..(at as usize).saturating_add(8)).unwrap_or(&[0; 8]);
        u64::from_le_bytes(bytes.try_into().unwrap_or_default())
    }

    fn load_half(&self, at: u64) -> u32 {
        self.load(at) as u32
    }

    fn store(&mut self, at: u64, word: u64) {
        if let Some(bytes) = self.bytes.get_mut(at as usize..(at as usize).saturating_add(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn crc(&mut self, at: u64, len: u64) {
        let crc = crc32c::crc32c(&self.bytes[at as usize..(at + len - 4) as usize]);
        self.bytes[(at + len - 4) as usize..(at + len) as usize].copy_from_slice(&crc.to_le_bytes());
    }

    /// A word that is likely to upset arithmetic or to lead astray.
    fn nasty(&self, numbers: &mut Numbers, own: u64) -> u64 {
        const EDGES: [u64; 16] = [
            0,
            1,
            2,
            63,
            64,
            u16::MAX as u64,
            u32::MAX as u64,
            1 << 47,
            1 << 48,
            (1 << 48) + 64,
            1 << 51,
            i64::MAX as u64,
            u64::MAX - 63,
            u64::MAX - (1 << 53),
            u64::MAX - 1,
            u64::MAX,
        ];
        let cell = numbers.below(self.cells.len() as u64) as usize;
        match numbers.below(10) {
            0 => numbers.next(),
            1 => numbers.next() >> numbers.below(64),
            2 | 3 => EDGES[numbers.below(EDGES.len() as u64) as usize],
            4 => self.load(own).wrapping_add(numbers.below(5)).wrapping_sub(2),
            5 => self.load(own) ^ (1 << numbers.below(64)),
            6 => own & !63,
            7 => self.cells[cell].at | numbers.below(2),
            _ => self.cells[cell].at + numbers.below(2),
        }
    }

    /// Cells with a version, and the slot of the newest.
    fn versions(&self) -> Vec<(Cell, u64)> {
        let newest = |cell: &Cell| {
            let (first, second) = (self.load(cell.slot(0).0), self.load(cell.slot(1).0));
            (first | second != 0).then_some((*cell, u64::from(second > first)))
        };
        self.cells.iter().filter_map(newest).collect()
    }

    /// Changes words of a payload and seals the slot again.
    fn upset_payload(&mut self, numbers: &mut Numbers) {
        let Some((cell, which)) = numbers.one_of(&self.versions()) else { return };
        let (slot, _) = cell.slot(which);
        let words = self.load(slot + 8) >> 13 & 0x7_FFFF;
        for _ in 0..=numbers.below(3) {
            let at = slot + 16 + 8 * numbers.below(words);
            if words > 0 {
                let word = self.nasty(numbers, at);
                self.store(at, word);
            }
        }
        self.seal(cell, which);
    }

    /// Copies a payload to another cell of its size.
    fn move_payload(&mut self, numbers: &mut Numbers) {
        let all = self.versions();
        let (Some((from, from_which)), Some((to, to_which))) = (numbers.one_of(&all), numbers.one_of(&all)) else {
            return;
        };
        let (source, target) = (from.slot(from_which), to.slot(to_which));
        if source.1 != target.1 {
            return;
        }
        for word in 1..2 + source.1 {
            let moved = self.load(source.0 + word * 8);
            self.store(target.0 + word * 8, moved);
        }
        self.seal(to, to_which);
    }

    /// Changes a slot's header and seals it again.
    fn upset_slot(&mut self, numbers: &mut Numbers) {
        let Some((cell, which)) = numbers.one_of(&self.versions()) else { return };
        let (slot, _) = cell.slot(numbers.one_of(&[which, which ^ 1]).unwrap_or(which));
        let at = slot + 8 * numbers.below(2);
        let word = self.nasty(numbers, at);
        self.store(at, word);
        self.seal(cell, which);
        self.seal(cell, which ^ 1);
    }

    fn seal(&mut self, cell: Cell, which: u64) {
        let (slot, room) = cell.slot(which);
        let (tick, meta) = (self.load(slot), self.load(slot + 8));
        let mut header = SlotHeader::decode(tick, meta);
        header.words = header.words.min(room as u32);
        header.tick = Tick(tick);
        header.writer = Writer::new((meta & 1023) as u16).unwrap_or_default();
        header.flags = SlotFlags { certifies_itself: meta >> 10 & 1 == 1, deleted: meta >> 11 & 1 == 1 };
        let mut words: Vec<u64> = (0..2 + u64::from(header.words)).map(|word| self.load(slot + word * 8)).collect();
        seal(PmAddr::new(0, slot), &header, &mut words);
        for (word, content) in words.into_iter().enumerate() {
            self.store(slot + word as u64 * 8, content);
        }
    }

    fn upset_version_word(&mut self, numbers: &mut Numbers) {
        let Some((cell, _)) = numbers.one_of(&self.versions()) else { return };
        let [base, limit] = [8, 16].map(|field| {
            let [first, second] = self.halves.map(|half| self.load(half + STATE + field));
            first.max(second)
        });
        let word = match numbers.below(3) {
            0 => self.nasty(numbers, cell.at),
            // A tick that the next life may have, with any state.
            _ => (base.max(limit).wrapping_add(numbers.below(40)) << 13) | (numbers.below(3) << 3) | numbers.below(8),
        };
        self.store(cell.at, word);
    }

    /// The first copy, both, or the second. A reader takes the first where both are right and may differ.
    fn copies(&self, numbers: &mut Numbers, places: [u64; 2]) -> Vec<u64> {
        match numbers.below(4) {
            0 => vec![places[0]],
            1 => vec![places[1]],
            _ => places.to_vec(),
        }
    }

    fn upset_header(&mut self, numbers: &mut Numbers) {
        let (field, word) = match numbers.below(2) {
            0 => {
                let field = 8 * (4 + numbers.below(3));
                (field, self.nasty(numbers, self.header + field))
            }
            _ => {
                let field = 8 + 4 * numbers.below(6);
                let at = self.header + field;
                let half = self.nasty(numbers, at) & u64::from(u32::MAX);
                (field, self.load(at) & !u64::from(u32::MAX) | half)
            }
        };
        for half in self.copies(numbers, self.halves) {
            self.store(half + field, word);
            self.crc(half, 64);
        }
    }

    fn upset_lives(&mut self, numbers: &mut Numbers) {
        let field = numbers.below(6) * 8;
        let word = self.nasty(numbers, self.header + STATE + field);
        for half in self.copies(numbers, self.halves) {
            self.store(half + STATE + field, word);
            self.crc(half + STATE, 64);
        }
    }

    /// Changes an entry of the table of lives, or adds one.
    fn upset_table(&mut self, numbers: &mut Numbers) {
        if numbers.below(2) == 0 {
            // The same effect as such a state.
            let bytes = 24 + 8 * numbers.below(4);
            for half in self.halves {
                self.store(half + STATE + 32, bytes);
                self.crc(half + STATE, 64);
                self.store(half + TABLE + 16, (bytes - 24) / 8);
            }
        }
        let field = 8 * numbers.below(6);
        let word = self.nasty(numbers, self.header + TABLE + field);
        for half in self.copies(numbers, self.halves) {
            let table = half + TABLE;
            self.store(table + field, if field == 16 { word & u64::from(u32::MAX) } else { word });
            let count = self.load(table + 16) & u64::from(u32::MAX);
            let words: Vec<u64> = (0..3 + count.min(64)).map(|word| self.load(table + word * 8)).collect();
            let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
            let crc = crc32c::crc32c_append(table as u32, &bytes(&[words[0], words[1], count]));
            let crc = crc32c::crc32c_append(crc, &bytes(&words[3..]));
            self.store(table + 16, count | u64::from(crc) << 32);
        }
    }

    /// Changes a record, with members in spill blocks or without, and makes its checksum fit.
    fn upset_record(&mut self, numbers: &mut Numbers) {
        let (records, bytes, spill_bytes) = self.records;
        let at = records + bytes * numbers.below(8);
        for _ in 0..=numbers.below(3) {
            let word = at + 8 * numbers.below(8);
            let nasty = self.nasty(numbers, word);
            self.store(word, nasty);
        }
        if numbers.below(2) == 0 {
            // A tick of the life that is about to be recovered, and an existing kind.
            let base = self.load(self.header + STATE + 8);
            self.store(at, base.wrapping_add(1 + numbers.below(9)));
            self.store(at + 8, self.load(at + 8) & !0xF | (1 + numbers.below(3)));
            self.store(at + 16, 0);
        }
        let meta = self.load(at + 8) & u64::from(u32::MAX);
        let (count, chained) = (meta >> 5, meta >> 4 & 1 == 1);
        let mut members = Vec::new();
        if chained {
            let mut block = self.load(at + 24);
            while (members.len() as u64) < count.min(4096) {
                let more = (count - members.len() as u64).min(spill_bytes / 8 - 1);
                members.extend((1..=more).map(|word| self.load((block & !63).wrapping_add(word * 8))));
                block = self.load(block & !63);
            }
        } else {
            members.extend((0..count.min(bytes / 8 - 3)).map(|member| self.load(at + 24 + member * 8)));
        }
        let header = [self.load(at), meta, self.load(at + 16)];
        let place = at as u32;
        let all: Vec<u8> = header.iter().chain(&members).flat_map(|word| word.to_le_bytes()).collect();
        self.store(at + 8, meta | u64::from(crc32c::crc32c_append(place, &all)) << 32);
    }

    fn upset_directory(&mut self, numbers: &mut Numbers) {
        let place = |at| PmAddr::new(0, at);
        match numbers.below(3) {
            0 => {
                let (Some(blocks), Some(to)) = (numbers.one_of(&self.directories), numbers.one_of(&self.directories))
                else {
                    return;
                };
                let chain = numbers.below(2) as usize;
                let to =
                    if numbers.below(3) == 0 { self.nasty(numbers, blocks[0]) & 0x7FF_FFFF_FFF8 } else { to[chain] };
                for at in self.copies(numbers, [blocks[chain], blocks[1 - chain] + 8]) {
                    self.store(at, checked::encode_addr(place(at), place(to)));
                }
            }
            1 => {
                let Some(places) = numbers.one_of(&self.entries) else { return };
                let to = self.nasty(numbers, places[0]) & 0x7FF_FFFF_FFF8;
                for at in self.copies(numbers, places) {
                    self.store(at, checked::encode_addr(place(at), place(to)));
                }
            }
            _ => {
                let Some(places) = numbers.one_of(&self.entries) else { return };
                let sizes = self.nasty(numbers, places[0] + 8) & ((1 << 48) - 1);
                for at in self.copies(numbers, places) {
                    self.store(at + 8, checked::encode(place(at + 8), sizes));
                }
            }
        }
    }

    fn upset(&mut self, numbers: &mut Numbers) {
        match numbers.below(20) {
            0 => self.upset_header(numbers),
            1 => self.upset_lives(numbers),
            2 => self.upset_table(numbers),
            3 | 4 => self.upset_record(numbers),
            5 => self.upset_directory(numbers),
            6 | 7 => self.upset_slot(numbers),
            8 | 9 => self.upset_version_word(numbers),
            10 => self.move_payload(numbers),
            11 => {
                let at = numbers.below(self.bytes.len() as u64 - 12288) + 12288;
                self.bytes[at as usize] ^= 1 << numbers.below(8);
            }
            _ => self.upset_payload(numbers),
        }
    }
}

/// All collections in the pool.
struct All {
    stm: Stm,
    numbers: PmHashMap<u64, u64>,
    texts: PmHashMap<Bytes, Bytes>,
    tree: PmBTreeMap<u64, u64>,
    words: PmBTreeMap<Bytes, Bytes>,
    list: PmList<u64>,
    queue: PmQueue<Bytes>,
}

fn open_stm(path: &Path, read_only: bool) -> Outcome<Stm> {
    let pool = if read_only { Pool::open_read_only(path, &options())? } else { Pool::open(path, &options())? };
    let mut heap = HeapOptions::small();
    (heap.chunk_bytes, heap.zone_chunks) = (4096, 32);
    Ok(Stm::open_with(&Store::over_with(&pool, &StoreOptions::with_heap(heap))?, &StmOptions::small())?)
}

fn text(number: u64) -> Vec<u8> {
    vec![number as u8; [3, 16, 17, 90, 500, 70_000][number as usize % 6]]
}

/// A sound pool with something in every collection. `lives` processes used it. The last of them died when `dies`.
fn sound(path: &Path, lives: u64, dies: bool) -> Outcome<Image> {
    let _ = fs::remove_file(path);
    Pool::create(path, &options())?;
    for life in 0..lives {
        let stm = open_stm(path, false)?;
        fill(&stm, life)?;
        let named = stm.store().find(lodestone_stm::MEMORY_NAME)?.ok_or("the memory has its name")?;
        let header = named.at;
        if life + 1 < lives || dies {
            // The next process finds the pool as a killed process leaves it.
            let bytes = fs::read(path)?;
            drop(stm);
            fs::write(path, bytes)?;
        } else {
            drop(stm);
        }
        if life + 1 == lives {
            return Image::new(fs::read(path)?, header);
        }
    }
    Err("there is a last life".into())
}

fn fill(stm: &Stm, life: u64) -> Outcome {
    let numbers = PmHashMap::<u64, u64>::open(stm, "numbers")?;
    let texts = PmHashMap::<Bytes, Bytes>::open(stm, "texts")?;
    let tree = PmBTreeMap::<u64, u64>::open(stm, "tree")?;
    let words = PmBTreeMap::<Bytes, Bytes>::open(stm, "words")?;
    let list = PmList::<u64>::open(stm, "list")?;
    let queue = PmQueue::<Bytes>::open(stm, "queue")?;
    let account = stm.root::<Account>()?;
    stm.update(|tx| {
        numbers.limit_entries(tx, 2)?;
        texts.limit_entries(tx, 2)?;
        tree.limit_entries(tx, 3)?;
        words.limit_entries(tx, 3)
    })?;
    for n in life * 12..life * 12 + 12 {
        stm.update(|tx| {
            numbers.insert(tx, &n, &(n + 1))?;
            texts.insert(tx, &text(n % 5), &text(n % 5 + 1)[..(60 + n as usize * 8).min(text(n % 5 + 1).len())])?;
            tree.insert(tx, &(n * 7 % 31), &n)?;
            words.insert(tx, format!("a key that is longer than sixteen bytes {n}").as_bytes(), &text(n % 4))?;
            list.push_back(tx, &n)?;
            queue.push(tx, &text(n % 4))?;
            if n % 3 == 2 {
                queue.pop(tx)?;
                list.pop_front(tx)?;
                tree.remove(tx, &(n * 7 % 31))?;
            }
            let next = tx.read(account)?.next;
            let next = tx.alloc(Account { cents: n, next })?;
            tx.write(account)?.next = next;
            Ok(())
        })?;
    }
    if life == 0 {
        stm.update(|tx| texts.insert(tx, b"large", &text(5)))?;
    }
    Ok(())
}

fn open_all(path: &Path, read_only: bool) -> Outcome<All> {
    let stm = open_stm(path, read_only)?;
    Ok(All {
        numbers: PmHashMap::open(&stm, "numbers")?,
        texts: PmHashMap::open(&stm, "texts")?,
        tree: PmBTreeMap::open(&stm, "tree")?,
        words: PmBTreeMap::open(&stm, "words")?,
        list: PmList::open(&stm, "list")?,
        queue: PmQueue::open(&stm, "queue")?,
        stm,
    })
}

/// Reads everything. Returns how many of the operations failed.
fn read_all(all: &All) -> u64 {
    let All { stm, numbers, texts, tree, words, list, queue } = all;
    let mut failed = 0;
    let mut note = |is_ok: bool| failed += u64::from(!is_ok);
    note(stm.check_all().is_intact());
    note(stm.read(|tx| numbers.check(tx)).is_ok() && stm.read(|tx| texts.check(tx)).is_ok());
    note(stm.read(|tx| tree.check(tx)).is_ok() && stm.read(|tx| words.check(tx)).is_ok());
    note(stm.read(|tx| list.check(tx)).is_ok() && stm.read(|tx| queue.check(tx)).is_ok());
    note(stm.read(|tx| numbers.len(tx)).is_ok() && stm.snapshot(|tx| texts.len(tx)).is_ok());
    note(stm.read(|tx| tree.len(tx)).is_ok() && stm.snapshot(|tx| words.len(tx)).is_ok());
    note(stm.read(|tx| list.to_vec(tx)).is_ok() && stm.snapshot(|tx| queue.to_vec(tx)).is_ok());
    note(stm.read(|tx| tree.iter(tx)?.try_for_each(|entry| entry.map(|_| ()))).is_ok());
    let down = |tx: &mut lodestone_stm::Tx<'_>| {
        words.range_down(tx, Bound::Unbounded, Bound::Unbounded)?.try_for_each(|entry| entry.map(|_| ()))
    };
    note(stm.read(down).is_ok() && stm.snapshot(down).is_ok());
    note(stm.read(|tx| words.prefix(tx, b"a key")?.try_for_each(|entry| entry.map(|_| ()))).is_ok());
    for n in 0..14 {
        note(stm.read(|tx| numbers.get(tx, &n)).is_ok() && stm.read(|tx| texts.get(tx, &text(n % 6))).is_ok());
        note(stm.read(|tx| tree.get(tx, &n)).is_ok());
    }
    let chain = stm.root::<Account>().and_then(|account| {
        stm.read(|tx| {
            let mut at = account;
            for _ in 0..64 {
                if at.is_null() {
                    break;
                }
                at = tx.read(at)?.next;
            }
            Ok(())
        })
    });
    note(chain.is_ok());
    failed
}

fn change_all(all: &All, numbers_of: &mut Numbers) -> u64 {
    let All { stm, numbers, texts, tree, words, list, queue } = all;
    let mut failed = 0;
    let mut note = |is_ok: bool| failed += u64::from(!is_ok);
    for _ in 0..6 {
        let n = numbers_of.below(40);
        note(stm.update(|tx| numbers.insert(tx, &n, &1)).is_ok());
        note(stm.update(|tx| texts.insert(tx, &text(n % 5), &text((n + 1) % 5))).is_ok());
        note(stm.update(|tx| tree.insert(tx, &n, &1)).is_ok());
        note(stm.update(|tx| words.insert(tx, &text(n % 5), &text(n % 4))).is_ok());
        note(stm.update(|tx| list.push_front(tx, &n)).is_ok());
        note(stm.update(|tx| queue.push(tx, &text(n % 4))).is_ok());
        let n = numbers_of.below(40);
        note(stm.update(|tx| numbers.take(tx, &n)).is_ok());
        note(stm.update(|tx| texts.remove(tx, &text(n % 6))).is_ok());
        note(stm.update(|tx| tree.remove(tx, &n)).is_ok() && stm.update(|tx| tree.pop_first(tx)).is_ok());
        note(stm.update(|tx| words.pop_first(tx)).is_ok());
        note(stm.update(|tx| list.pop_back(tx)).is_ok() && stm.update(|tx| queue.pop(tx)).is_ok());
    }
    if numbers_of.below(3) == 0 {
        note(stm.update(|tx| numbers.clear(tx)).is_ok() && stm.update(|tx| texts.clear(tx)).is_ok());
        note(stm.update(|tx| tree.clear(tx)).is_ok() && stm.update(|tx| words.clear(tx)).is_ok());
        note(stm.update(|tx| list.clear(tx)).is_ok() && stm.update(|tx| queue.clear(tx)).is_ok());
    }
    let made = stm.update(|tx| tx.alloc(Account { cents: 1, next: PmPtr::NULL }));
    note(made.and_then(|made| stm.update(|tx| tx.free(made))).is_ok());
    failed
}

/// Salvages every collection. Returns the number of losses.
fn salvage_all(path: &Path) -> Outcome<u64> {
    let stm = open_stm(path, true)?;
    let store = stm.store().clone();
    drop(stm);
    let object = || store.open_object(lodestone_stm::MEMORY_NAME);
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| error.to_string();
    let mut losses = 0;
    COLLECTIONS.examine(object()?).map_err(failed)?;
    for member in COLLECTIONS.members(object()?).map_err(failed)? {
        let mut show = |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        let outcome = COLLECTIONS.salvage(object()?, Some(&member.name), &mut show, &mut |_| losses += 1);
        losses += u64::from(outcome.is_err());
    }
    Ok(losses)
}

/// Opens the pool at `path` as a user would. Returns whether it could be opened, and how many operations failed.
fn exercise(path: &Path, numbers: &mut Numbers) -> (bool, u64) {
    let mut failed = open_all(path, true).map_or(0, |all| read_all(&all));
    // A sound pool has one loss: no tool can show the program's own root.
    failed += salvage_all(path).map_or(1, |losses| losses.saturating_sub(1));
    let Ok(all) = open_all(path, false) else { return (false, failed) };
    failed += read_all(&all) + change_all(&all, numbers) + read_all(&all);
    drop(all);
    if let Ok(all) = open_all(path, false) {
        failed += read_all(&all);
    }
    (true, failed)
}

/// Ends the process when a case takes too long.
fn watch(case: &'static AtomicU64) {
    std::thread::spawn(move || {
        let (mut seen, mut since) = (u64::MAX, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = case.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if now != u64::MAX && since.elapsed() > Duration::from_secs(CASE_SECONDS_MAX) {
                let text = format!("case {now} does not end; LODESTONE_HOSTILE_SEED={now} runs it alone");
                let _ = writeln!(std::io::stderr(), "{text}");
                std::process::abort();
            }
        }
    });
}

static CASE: AtomicU64 = AtomicU64::new(u64::MAX);

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_damage_whose_checksums_fit_panics_or_hangs() -> Outcome {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a.pool");
    let images = [sound(&path, 1, false)?, sound(&path, 1, true)?, sound(&path, 3, true)?, sound(&path, 2, false)?];
    for image in &images {
        fs::write(&path, &image.bytes)?;
        let all = open_all(&path, false)?;
        assert_eq!(read_all(&all), 0, "a sound pool");
        drop(all);
        assert_eq!(salvage_all(&path)?, 1, "only the root of the program's own type is none that a tool can show");
    }
    let only = number_of("LODESTONE_HOSTILE_SEED");
    let cases = number_of("LODESTONE_HOSTILE_CASES").unwrap_or(CASES);
    let first = number_of("LODESTONE_HOSTILE_FIRST").unwrap_or(0);
    watch(&CASE);
    let (mut refused, mut failing, mut quiet) = (0, 0, 0);
    let mut slowest = BTreeMap::new();
    for case in only.map_or(first..first + cases, |case| case..case + 1) {
        CASE.store(case, Ordering::Relaxed);
        if case % 10_000 == 9_999 {
            println!("{} cases", case + 1);
        }
        let began = Instant::now();
        let mut numbers = Numbers(case);
        let mut image = images[numbers.below(4) as usize].clone();
        for _ in 0..=numbers.below(4) {
            image.upset(&mut numbers);
        }
        fs::write(&path, &image.bytes)?;
        match catch_unwind(AssertUnwindSafe(|| exercise(&path, &mut numbers))) {
            Ok((false, _)) => refused += 1,
            Ok((true, 0)) => quiet += 1,
            Ok((true, _)) => failing += 1,
            Err(_) => panic!("case {case} panicked; LODESTONE_HOSTILE_SEED={case} runs it alone"),
        }
        slowest.insert(began.elapsed(), case);
        if slowest.len() > 3 {
            slowest.pop_first();
        }
    }
    CASE.store(u64::MAX, Ordering::Relaxed);
    println!("{refused} refused at open, {failing} with errors, {quiet} without; slowest {slowest:?}");
    let share = cases / 50;
    assert!(only.is_some() || refused.min(failing).min(quiet) >= share, "the cases must reach all three");
    Ok(())
}
