//! A database whose bytes verify and are wrong all the same: header, clock, directory of the log, segments, records and
//! their entries, checkpoints, page table and pages are changed and sealed again. Then the database is opened, checked,
//! read, changed and opened again.
//! Nothing panics, nothing hangs, and no bytes but those of rows change an answer without an error or a finding.
//!
//! 1. One pool holds two tables, a life that was closed and one that was killed, two checkpoints, records of several
//!    writers, and a record and an image in pieces. This file finds its way from the anchor by `docs/format.md` alone.
//! 2. A case changes one to three places, in one copy or in both, and computes the right checksums. Or it adds a record
//!    that no database wrote.
//! 3. Where the check says nothing and all answers are right, the database goes on: each change that it acknowledges is
//!    there after the next open.
//!
//! `indexed.rs` has databases with indexes, long values and groups of commits. There a case may also change an entry of
//! a record by its meaning: tree, kind, key or value of a row, a piece, an entry of an index, a row of the catalog, or
//! the tick of a commit in a group. A person who can seal can write any row, any definition and the end of any log. So
//! the kinds in [`COULD_BE`] may change an answer. **But an index and its table never disagree without a finding.**
//!
//! `cells.rs` has a database with rows in cells: there a case may also change a slot, or the directory of the cells.
//!
//! `LODESTONE_HOSTILE_CASES=100000 cargo test -p lodestone-engine --test it hostile::` runs many cases; a failed case
//! prints the command that shows it again.

mod cells;
mod indexed;

use std::collections::BTreeMap;

use lodestone_crash::hostile::{Fate, Layer, Numbers};
use lodestone_engine::{Database, DatabaseOptions, Error, Result, Row, Schema, Table, Type, Value, row};
use lodestone_heap::HeapOptions;
use lodestone_pmem::{Domain, DomainChoice, Memory, PmAddr, Pool, PoolOptions, checked};
use lodestone_store::{Store, StoreOptions};

const POOL_BYTES: u64 = 160 << 10;
const LOG_BYTES: u64 = 32 << 10;
const SEGMENT_BYTES: u64 = 4 << 10;
const SEGMENTS: u64 = LOG_BYTES / SEGMENT_BYTES;
const SALT: u64 = 7;
/// Bytes from an address to its copy in the other list.
const LIST_BYTES: u64 = 256;

/// Damage after which records may be missing, or say something else, without a sign of it.
const COULD_BE: [&str; 14] = [
    "salt",
    "address: both",
    "segment",
    "record",
    "checkpoint: both",
    "page table",
    "page",
    "several",
    "entry: row",
    "entry: piece",
    "entry: index",
    "entry: catalog",
    "entry: tick",
    "slot",
];
/// Bytes of a page, pages of an extent, and bytes of its page table.
const PAGE_BYTES: u64 = 256;
const EXTENT_PAGES: u64 = 16;
const ENTRY_BYTES: u64 = 64;
const TABLE_BYTES: u64 = EXTENT_PAGES * ENTRY_BYTES;

/// Rows of all tables, by schema.
type Rows = BTreeMap<String, Vec<Row>>;

fn options() -> DatabaseOptions {
    let pool = PoolOptions {
        domain: DomainChoice::Process,
        size_bytes: POOL_BYTES,
        journal_bytes: 0,
        ..PoolOptions::default()
    };
    DatabaseOptions {
        pool,
        threads_max: 4,
        log_bytes: LOG_BYTES,
        segment_bytes: SEGMENT_BYTES,
        log_salt: Some(SALT),
        leaf_rows_max: 4,
        page_bytes: PAGE_BYTES as u32,
        extent_pages: EXTENT_PAGES as u32,
        ..DatabaseOptions::default()
    }
}

fn memory() -> Memory {
    Memory::anonymous_with(&[POOL_BYTES], Domain::Process, None).expect("memory")
}

fn store(memory: &Memory) -> Store {
    let pool = Pool::open_on(memory.clone(), &options().pool).expect("the pool is sound");
    let mut heap = HeapOptions::small();
    (heap.chunk_bytes, heap.zone_chunks, heap.lane_bytes) = (8192, 16, 1024);
    Store::over_with(&pool, &StoreOptions::with_heap(heap)).expect("the store is sound")
}

/// A database with what an attack has to know of it.
struct Sound {
    image: Image,
    rows: Rows,
    /// How it is opened, and changed.
    options: DatabaseOptions,
    change: fn(&Database, &mut Numbers) -> Result<Rows>,
    /// The tree of the first table, and the trees of indexes.
    is_index: fn(u64) -> bool,
    /// Whether entries are changed by their meaning.
    has_entries: bool,
    /// The header lines and state lines of the anchor, and the header lines of the log's directory.
    headers: [PmAddr; 2],
    clocks: [PmAddr; 2],
    directory: PmAddr,
    segments: Vec<Segment>,
    /// The directory of the pages, then the extents.
    extents: Vec<PmAddr>,
    /// Any places of blocks.
    places: Vec<PmAddr>,
    /// The slots of rows in cells, and the blocks of the directory of cells.
    slots: Vec<cells::Slot>,
    slab_blocks: [Vec<PmAddr>; 2],
}

/// A segment of a log, with the offsets of its records and of its end.
struct Segment {
    at: PmAddr,
    generation: u64,
    first: u64,
    writer: u64,
    records: Vec<u64>,
    end: u64,
}

impl Segment {
    fn seal(&self, image: &mut Image, offset: u64) {
        let bytes = image.load(self.at.plus(offset + 8), 4).min(SEGMENT_BYTES - offset - 24);
        let position = self.first.wrapping_add(offset - 512);
        let seed = [SALT, self.generation, position, self.writer].map(u64::to_le_bytes).concat();
        let body = crc32c::crc32c_append(crc32c::crc32c(&seed), image.read(self.at.plus(offset + 24), bytes));
        let crc = crc32c::crc32c_append(body, image.read(self.at.plus(offset), 20));
        image.write(self.at.plus(offset + 20), &crc.to_le_bytes());
    }

    /// Adds a record at the end.
    fn append(&self, image: &mut Image, tick: u64, count: u32, entries: &[u8]) {
        let mut head = tick.to_le_bytes().to_vec();
        head.extend((entries.len() as u32).to_le_bytes());
        head.extend(count.to_le_bytes());
        head.extend([0, 0, 1, 0, 0, 0, 0, 0]);
        image.write(self.at.plus(self.end), &head);
        image.write(self.at.plus(self.end + 24), entries);
        self.seal(image, self.end);
    }

    fn verifies(&self, image: &Image, offset: u64) -> bool {
        let mut sealed = image.clone();
        self.seal(&mut sealed, offset);
        sealed.0 == image.0 && image.load(self.at.plus(offset), 8) != 0
    }
}

/// The bytes of the pool.
#[derive(Clone)]
struct Image(Vec<u8>);

impl Image {
    fn of(memory: &Memory) -> Self {
        let mut bytes = vec![0; POOL_BYTES as usize];
        memory.read(PmAddr::new(0, 0), &mut bytes);
        Self(bytes)
    }

    fn to_memory(&self) -> Memory {
        let memory = memory();
        memory.write(PmAddr::new(0, 0), &self.0);
        memory
    }

    fn read(&self, at: PmAddr, bytes: u64) -> &[u8] {
        let from = at.offset() as usize;
        &self.0[from..from + bytes as usize]
    }

    fn write(&mut self, at: PmAddr, bytes: &[u8]) {
        let from = at.offset() as usize;
        self.0[from..from + bytes.len()].copy_from_slice(bytes);
    }

    /// The number of so many bytes.
    fn load(&self, at: PmAddr, bytes: u64) -> u64 {
        self.read(at, bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// The cells of a page, by row: where each is, and its bytes. As far as they make sense.
fn cells(image: &Image, page: PmAddr) -> Vec<(PmAddr, u64)> {
    let end = 64 + image.load(page.plus(32), 4).min(PAGE_BYTES - 64);
    let (low_bytes, rows) = (image.load(page.plus(64), 4), image.load(page.plus(68), 4));
    let (mut at, mut rooms) = (72 + low_bytes, Vec::new());
    while (rooms.len() as u64) < rows && at + 8 <= end {
        rooms.push(image.load(page.plus(at + 4), 4));
        at += 8 + image.load(page.plus(at), 4);
    }
    let mut cells = Vec::new();
    for room in rooms {
        if at + 18 + room <= end {
            cells.push((page.plus(at), 18 + room));
        }
        at += 18 + room;
    }
    cells
}

/// Seals the cells of an image in one page.
fn seal_cells(image: &mut Image, page: PmAddr) {
    if image.load(page.plus(28), 4) != 1 {
        return;
    }
    for (row, (at, bytes)) in (0_u32..).zip(cells(image, page)) {
        let payload = image.load(at.plus(8), 4).min(bytes - 18);
        let seed = [image.read(page.plus(16), 4), image.read(page.plus(8), 8), &row.to_le_bytes()].concat();
        let crc = crc32c::crc32c_append(crc32c::crc32c(&seed), image.read(at, 14));
        let crc = crc32c::crc32c_append(crc, image.read(at.plus(18), payload));
        image.write(at.plus(14), &crc.to_le_bytes());
    }
}

/// Changes a word of a page's tail, which may say anything about rows after the image. Returns whether it has one.
fn damage_tail(image: &mut Image, page: PmAddr, numbers: &mut Numbers) -> bool {
    let tail = image.load(page.plus(48), 4);
    let word = page.plus(tail + 8 * numbers.below(2));
    if tail > 0 {
        let content = numbers.below(8) | numbers.below(30) << 32;
        image.write(word, &checked::encode(word, content).to_le_bytes());
    }
    tail > 0
}

/// Seals a line of 64 bytes that ends with its checksum.
fn seal_line(image: &mut Image, at: PmAddr) {
    let crc = crc32c::crc32c(image.read(at, 60));
    image.write(at.plus(60), &crc.to_le_bytes());
}

/// Changes the number of so many bytes at `at`.
fn upset(image: &mut Image, at: PmAddr, bytes: u64, numbers: &mut Numbers) {
    let nasty = numbers.nasty(image.load(at, bytes)).to_le_bytes();
    image.write(at, &nasty[..bytes as usize]);
}

fn words(prefix: &str, number: i64) -> Row {
    row![format!("{prefix} {number}"), number, Value::Null]
}

fn schemas() -> [Schema; 2] {
    let numbers = Schema::new("numbers").column("k", Type::U64).column("v", Type::I64).nullable("b", Type::Bytes);
    let words = Schema::new("words").column("a", Type::Text).column("n", Type::I64).nullable("f", Type::F64);
    [numbers.key(["k"]), words.key(["a", "n"])]
}

fn sound() -> Sound {
    sound_of(fill)
}

fn sound_of(fill: impl Fn(&Memory) -> Result<Sound>) -> Sound {
    let memory = memory();
    drop(Pool::create_on(memory.clone(), &options().pool).expect("a fresh pool"));
    let mut made = fill(&memory).expect("room");
    let rows = {
        let store = store(&memory);
        let database = Database::open_in(&store, &made.options).expect("sound");
        let rows = rows_of(&database).expect("sound");
        database.abandon();
        rows
    };
    made.rows = rows;
    made.image = Image::of(&memory);
    made.find_segments();
    made
}

/// Two lives of a database, of which the second is killed.
fn fill(memory: &Memory) -> Result<Sound> {
    let store = store(memory);
    let database = Database::open_in(&store, &options())?;
    let [numbers, words_of] = schemas();
    let (numbers, text) = (database.create_table(&numbers)?, database.create_table(&words_of)?);
    database.update(|tx| (0..12_u64).try_for_each(|k| numbers.put(tx, &row![k, 1_i64, vec![k as u8; 20]])))?;
    let held = database.hold_writer()?;
    database.update(|tx| (0..4).try_for_each(|number| text.insert(tx, &words("a word", number))))?;
    database.update(|tx| numbers.delete(tx, &row![3_u64]).map(|_| ()))?;
    database.checkpoint()?;
    drop(held);
    database.update(|tx| numbers.put(tx, &row![21_u64, -1_i64, vec![8; 600]]))?;
    drop((numbers, text, database));
    let database = Database::open_in(&store, &options())?;
    let (numbers, text) = (database.table("numbers")?, database.table("words")?);
    database.checkpoint()?;
    database.update(|tx| numbers.put(tx, &row![20_u64, -1_i64, vec![9; 6000]]))?;
    let held = database.hold_writer()?;
    (0..4_u64).try_for_each(|k| database.update(|tx| numbers.put(tx, &row![k * 2, 5_i64, Value::Null])))?;
    drop(held);
    let held = database.hold_writer()?;
    database.update(|tx| text.delete(tx, &words("a word", 1)[..2]).map(|_| ()))?;
    drop(held);
    database.update(|tx| numbers.put(tx, &row![1_u64, 2_i64, Value::Null]))?;
    // Deltas by both writers, on a row of this life.
    database.update(|tx| numbers.put(tx, &row![10_u64, 1_i64, vec![7; 40]]))?;
    for amount in 1..4 {
        database.update(|tx| numbers.add(tx, &row![10_u64], "v", amount * 1000))?;
        let _held = database.hold_writer()?;
        database.update(|tx| numbers.add(tx, &row![10_u64], "v", amount))?;
    }
    drop((numbers, text));
    let sound = Sound::of(memory, &database);
    database.abandon();
    Ok(sound)
}

impl Sound {
    /// The places of `database`, which is ready but for its image.
    fn of(memory: &Memory, database: &Database) -> Self {
        let headers = database.copies();
        let places: Vec<PmAddr> = database.blocks().into_iter().map(|(at, _)| at).collect();
        let has_pages = |at: &PmAddr| [*b"LDSTPGS\0", *b"LDSTEXT\0"].contains(&memory.load(*at).to_le_bytes());
        let extents: Vec<PmAddr> = places.iter().copied().filter(has_pages).collect();
        assert!(extents.len() >= 2, "{} extents", extents.len() - 1);
        Self {
            image: Image(Vec::new()),
            rows: Rows::new(),
            options: options(),
            change,
            is_index: |_| false,
            has_entries: false,
            headers,
            clocks: headers.map(|half| half.plus(256)),
            directory: database.blocks()[1].0,
            segments: Vec::new(),
            extents,
            places,
            slots: Vec::new(),
            slab_blocks: Default::default(),
        }
    }

    fn address_place(&self, number: u64) -> PmAddr {
        self.directory.plus(512 + 8 * number)
    }

    fn find_segments(&mut self) {
        let image = self.image.clone();
        for number in 0..SEGMENTS {
            let place = self.address_place(number);
            let at = checked::decode_addr(place, image.load(place, 8)).expect("sound");
            if at.is_null() {
                break;
            }
            let [generation, first, writer] =
                [(8, 8), (16, 8), (24, 4)].map(|(offset, bytes)| image.load(at.plus(offset), bytes));
            let mut segment = Segment { at, generation, first, writer, records: Vec::new(), end: 512 };
            while segment.end + 24 <= SEGMENT_BYTES && segment.verifies(&image, segment.end) {
                let bytes = image.load(at.plus(segment.end + 8), 4);
                segment.records.push(segment.end);
                segment.end += (24 + bytes).next_multiple_of(64);
            }
            self.segments.push(segment);
        }
        let records: usize = self.segments.iter().map(|segment| segment.records.len()).sum();
        assert!(self.segments.len() >= 2 && records >= 10, "{} segments, {records} records", self.segments.len());
    }

    /// Changes one place and seals it again. Returns the kind of the damage.
    fn damage(&self, image: &mut Image, numbers: &mut Numbers) -> &'static str {
        if !self.slots.is_empty() && numbers.below(2) == 0 {
            return self.damage_cells(image, numbers);
        }
        match numbers.below(if self.has_entries { 24 } else { 18 }) {
            18.. => self.damage_entry(image, numbers),
            12..18 => self.damage_pages(image, numbers),
            0 => {
                let field = numbers.pick(&[(8, 4), (12, 4), (16, 8), (24, 8), (32, 8)]);
                Self::damage_lines(image, self.headers, *field, numbers);
                "header"
            }
            1 => {
                let field = (8 * numbers.below(6), 8);
                Self::damage_lines(image, self.clocks, field, numbers);
                "clock"
            }
            2 => {
                // The table of lives. Nothing seals it here, so one copy is damaged.
                let half = numbers.pick(&self.headers).plus(512 + 8 * numbers.below(64));
                upset(image, half, 8, numbers);
                "table of lives"
            }
            3 => {
                let lines = [self.directory, self.directory.plus(256)];
                let field = *numbers.pick(&[(8, 4), (12, 4), (16, 8), (24, 8), (32, 8), (40, 8)]);
                Self::damage_lines(image, lines, field, numbers);
                if field.0 == 32 { "salt" } else { "directory" }
            }
            4 => self.damage_address(image, numbers),
            5 | 6 => {
                let segment = numbers.pick(&self.segments);
                let field = *numbers.pick(&[(8, 8), (16, 8), (24, 4), (28, 4)]);
                Self::damage_lines(image, [segment.at, segment.at.plus(256)], field, numbers);
                "segment"
            }
            7 | 8 => {
                let segment = self.used_segment(numbers);
                let offset = *numbers.pick(&segment.records);
                let (field, bytes) = *numbers.pick(&[(0, 8), (8, 4), (12, 4), (16, 2), (18, 2)]);
                upset(image, segment.at.plus(offset + field), bytes, numbers);
                segment.seal(image, offset);
                "record"
            }
            9 | 10 => {
                let segment = self.used_segment(numbers);
                let offset = *numbers.pick(&segment.records);
                let bytes = image.load(segment.at.plus(offset + 8), 4);
                let in_entries = numbers.below(bytes.clamp(8, 120)) & !1;
                upset(image, segment.at.plus(offset + 24 + in_entries), *numbers.pick(&[1, 2, 4]), numbers);
                segment.seal(image, offset);
                "record"
            }
            _ => self.forge(image, numbers),
        }
    }

    fn used_segment(&self, numbers: &mut Numbers) -> &Segment {
        let used: Vec<&Segment> = self.segments.iter().filter(|segment| !segment.records.is_empty()).collect();
        used[numbers.below(used.len() as u64) as usize]
    }

    /// Changes a field in one line of a pair, or in both alike.
    fn damage_lines(image: &mut Image, lines: [PmAddr; 2], (offset, bytes): (u64, u64), numbers: &mut Numbers) {
        let which = numbers.below(3);
        let seed = numbers.number();
        for line in [0, 1].into_iter().filter(|line| *line as u64 != which).map(|line: usize| lines[line]) {
            upset(image, line.plus(offset), bytes, &mut Numbers::new(seed));
            seal_line(image, line);
        }
    }

    fn damage_address(&self, image: &mut Image, numbers: &mut Numbers) -> &'static str {
        let number = numbers.below(SEGMENTS);
        let at = match numbers.below(4) {
            0 => PmAddr::NULL,
            1 => *numbers.pick(&self.places),
            2 => self.places[0].plus(64 * numbers.below(100)),
            // Any that the word can hold.
            _ => PmAddr::new(0, numbers.nasty(1 << 12) & ((1 << 43) - 8)),
        };
        let which = numbers.below(3);
        for list in (0..2).filter(|list| *list != which) {
            let place = self.address_place(number).plus(list * LIST_BYTES);
            image.write(place, &checked::encode_addr(place, at).to_le_bytes());
        }
        if which == 2 { "address: both" } else { "address: one" }
    }

    fn damage_pages(&self, image: &mut Image, numbers: &mut Numbers) -> &'static str {
        let (directory, extents) = (self.extents[0], &self.extents[1..]);
        let extent = *numbers.pick(extents);
        let (table, first) = (extent.plus(512), extent.plus(512 + TABLE_BYTES));
        let is_used = |page: &u64| image.load(first.plus(page * PAGE_BYTES), 8) != 0;
        let pages: Vec<PmAddr> = (0..EXTENT_PAGES).filter(is_used).map(|page| first.plus(page * PAGE_BYTES)).collect();
        match numbers.below(9) {
            0 => {
                let field = *numbers.pick(&[(8, 4), (12, 4), (16, 4), (20, 4), (24, 8)]);
                Self::damage_lines(image, [directory, directory.plus(256)], field, numbers);
                "directory of the pages"
            }
            1 => {
                let field = *numbers.pick(&[(8, 4), (12, 4), (40, 8)]);
                Self::damage_lines(image, [extent, extent.plus(256)], field, numbers);
                "extent"
            }
            2 => {
                let node = *numbers.pick(&self.extents);
                let to = match numbers.below(3) {
                    0 => PmAddr::NULL,
                    1 => *numbers.pick(&self.places),
                    _ => PmAddr::new(0, numbers.nasty(1 << 12) & ((1 << 43) - 8)),
                };
                let which = numbers.below(3);
                for copy in (0..2).filter(|copy| *copy != which) {
                    let place = node.plus(64 + 256 * copy);
                    image.write(place, &checked::encode_addr(place, to).to_le_bytes());
                }
                if which == 2 { "address: both" } else { "link" }
            }
            3 => {
                // Four positions follow the line, and one block is 256 bytes long.
                let blocks = [directory.plus(512), directory.plus(768)];
                let field = *numbers.pick(&[(8, 8), (20, 8), (64, 8), (72, 8), (80, 8)]);
                let which = numbers.below(3);
                for at in (0..2).filter(|block| *block as u64 != which).map(|block: usize| blocks[block]) {
                    upset(image, at.plus(field.0), field.1, numbers);
                    let positions = crc32c::crc32c(image.read(at.plus(64), 32));
                    let crc = crc32c::crc32c_append(positions, image.read(at, 60));
                    image.write(at.plus(60), &crc.to_le_bytes());
                }
                "checkpoint: both"
            }
            4 => {
                let index = numbers.below(EXTENT_PAGES);
                let number = self.extents[1..].iter().position(|at| *at == extent).expect("an extent") as u64;
                let (entry, page) = (table.plus(ENTRY_BYTES * index), (number * EXTENT_PAGES + index) as u32);
                let batch = checked::decode(entry, image.load(entry, 8)).expect("sound");
                upset(image, entry.plus(16 + 4 * numbers.below(11)), 4, numbers);
                let crc = crc32c::crc32c(&[&page.to_le_bytes()[..], &batch.to_le_bytes()].concat());
                let crc = crc32c::crc32c_append(crc, image.read(entry.plus(16), 44));
                image.write(entry.plus(60), &crc.to_le_bytes());
                "page table"
            }
            5 => {
                let entry = table.plus(ENTRY_BYTES * numbers.below(EXTENT_PAGES));
                let place = entry.plus(8 * numbers.below(2));
                let batch = checked::decode(place, image.load(place, 8)).expect("sound");
                let batch = if numbers.below(2) == 0 { numbers.below(6) } else { numbers.nasty(batch) & 0xFFFF_FFFF };
                image.write(place, &checked::encode(place, batch).to_le_bytes());
                "page table"
            }
            _ if pages.is_empty() => "page",
            6 => {
                // A row that is torn, or damaged: nothing seals it.
                let cells = cells(image, *numbers.pick(&pages));
                if !cells.is_empty() {
                    let (at, bytes) = *numbers.pick(&cells);
                    upset(image, at.plus(numbers.below(bytes - 3)), 4, numbers);
                }
                "row of a page"
            }
            _ => {
                let page = *numbers.pick(&pages);
                // The words of the head but the upper one of the batch.
                let head: Vec<_> = (0..13).filter(|word| *word != 3).map(|word| (word * 4, 4)).collect();
                if numbers.below(4) == 0 && damage_tail(image, page, numbers) {
                    return "page";
                }
                let (field, bytes) =
                    if numbers.below(2) == 0 { *numbers.pick(&head) } else { (64 + numbers.below(184), 4) };
                upset(image, page.plus(field), bytes, numbers);
                let bytes = image.load(page.plus(32), 4).min(PAGE_BYTES - 64);
                // The head has a checksum of its own, over the first possible key as well, which is in the first piece.
                let from = if image.load(page.plus(24), 4) == 0 { bytes.min(8) } else { bytes };
                let low_bytes = image.load(page.plus(36), 4).min(bytes - from);
                let low = image.read(page.plus(64 + from), low_bytes);
                let crc = crc32c::crc32c_append(crc32c::crc32c(image.read(page, 56)), low);
                image.write(page.plus(56), &crc.to_le_bytes());
                let fixed = image.load(page.plus(44), 4).min(bytes);
                let crc = crc32c::crc32c_append(crc32c::crc32c(image.read(page.plus(64), fixed)), image.read(page, 60));
                image.write(page.plus(60), &crc.to_le_bytes());
                seal_cells(image, page);
                "page"
            }
        }
    }

    /// Adds a record that no database wrote, at the end of a segment.
    fn forge(&self, image: &mut Image, numbers: &mut Numbers) -> &'static str {
        let segment = self.used_segment(numbers);
        let offset = segment.end;
        let mut entries = Vec::new();
        let count = 1 + numbers.below(3);
        for _ in 0..count {
            let keys: [&[u8]; 6] = [b"", b"numbers\0\0", b"words\0\0", &[0, 0, 0, 0, 0, 0, 0, 1], b"\0\0", &[0xFF; 30]];
            let key = *numbers.pick(&keys);
            let definition = schemas()[0].to_string();
            let tick = image.load(segment.at.plus(*numbers.pick(&segment.records)), 8).to_le_bytes();
            let delta = [&tick[..], &[3, 0, 1, 0, 9, 4, 0, 2, 0, 7, 7]].concat();
            let values: [&[u8]; 7] = [b"", &[1, 0], &[1; 24], definition.as_bytes(), &[0xFF; 60], &tick, &delta];
            let mut value = numbers.pick(&values).to_vec();
            value.iter_mut().for_each(|byte| *byte ^= (numbers.below(8) / 7 * numbers.below(256)) as u8);
            let tree = *numbers.pick(&[0_u32, 0, 16, 17, 18, 3, u32::MAX]);
            entries.extend(tree.to_le_bytes());
            entries.extend((key.len() as u16).to_le_bytes());
            entries.extend(numbers.pick(&[1_u16, 1, 2, 3, 3, 4, 5, 9]).to_le_bytes());
            entries.extend((value.len() as u32).to_le_bytes());
            entries.extend(key);
            entries.extend(value);
            entries.resize(entries.len().next_multiple_of(8), 0);
        }
        if offset + 24 + entries.len() as u64 > SEGMENT_BYTES {
            return "record";
        }
        let last = segment.records.last().map_or(0, |last| image.load(segment.at.plus(*last), 8));
        let tick = if numbers.below(3) == 0 { numbers.nasty(last) } else { last + 1 };
        segment.append(image, tick, count as u32, &entries);
        "record"
    }

    /// The largest tick of a record with entries.
    fn newest_tick(&self) -> u64 {
        let ticks = self.segments.iter().flat_map(|segment| {
            let with_entries = |offset: &&u64| self.image.load(segment.at.plus(**offset + 12), 4) > 0;
            segment.records.iter().filter(with_entries).map(|offset| self.image.load(segment.at.plus(*offset), 8))
        });
        ticks.max().expect("a record")
    }
}

fn rows_of(database: &Database) -> Result<Rows> {
    let table = |name: String| {
        let table = database.table(&name)?;
        Ok((table.schema().to_string(), all(database, &table)?))
    };
    database.tables()?.into_iter().map(table).collect()
}

/// All rows, which are the same from the other end and one by one.
fn all(database: &Database, table: &Table) -> Result<Vec<Row>> {
    database.update(|tx| {
        let rows = table.range(tx, ..)?.collect::<Result<Vec<_>>>()?;
        let mut back = table.range(tx, ..)?.rev().collect::<Result<Vec<_>>>()?;
        back.reverse();
        assert_eq!(format!("{rows:?}"), format!("{back:?}"), "forwards and backwards");
        Ok(rows)
    })
}

/// Puts and deletes rows. Returns those that are there now.
fn change(database: &Database, numbers: &mut Numbers) -> Result<Rows> {
    for table in [database.create_table(&schemas()[0])?, database.table("numbers")?] {
        let key = numbers.below(30);
        database.update(|tx| table.put(tx, &row![key, 77_i64, Value::Null]))?;
        database.update(|tx| table.delete(tx, &row![key + 1]).map(|_| ()))?;
    }
    database.create_table(&Schema::new("new").column("k", Type::Bool).key(["k"]))?;
    rows_of(database)
}

fn run_case(sound: &Sound, numbers: &mut Numbers) -> (&'static str, Fate) {
    let mut image = sound.image.clone();
    let mut kind = sound.damage(&mut image, numbers);
    for _ in 0..numbers.below(6) / 4 {
        sound.damage(&mut image, numbers);
        kind = "several";
    }
    let memory = image.to_memory();
    let store_first = store(&memory);
    let reported = !store_first.check(&mut |_| {}).is_clean();
    let Ok(database) = Database::open_in(&store_first, &sound.options) else { return (kind, Fate::Refused) };
    let answers = rows_of(&database);
    let disagreements = indexed::disagreements(&database);
    assert!(reported || disagreements.is_empty(), "{kind}: the check says nothing about {disagreements:?}");
    let changed = (sound.change)(&database, numbers);
    drop((database, store_first));
    let fate = match answers {
        Ok(rows) if rows == sound.rows => Fate::Same { reported },
        Ok(_) => Fate::Wrong { reported },
        Err(_) => Fate::Failed { reported },
    };
    let store = store(&memory);
    let again = Database::open_in(&store, &sound.options).and_then(|database| {
        let disagreements = indexed::disagreements(&database);
        assert!(reported || disagreements.is_empty(), "{kind}: {disagreements:?} after changes");
        rows_of(&database)
    });
    if fate == (Fate::Same { reported: false }) {
        let changed = changed.expect("a sound database can be changed");
        assert_eq!(again.expect("it opens again"), changed, "{kind}: what was acknowledged");
        assert!(store.check(&mut |_| {}).is_clean(), "{kind}");
    }
    (kind, fate)
}

#[test]
fn rows_of_a_database() {
    let sound = sound();
    let layer = Layer {
        name: "rows_of_a_database",
        command: "cargo test -p lodestone-engine --test it hostile::",
        cases: 600,
        seed: 0xDB00_0000,
        seconds_max: 60,
    };
    let tally = layer.run(|numbers| run_case(&sound, numbers));
    let is_damage = |kind: &str| !COULD_BE.contains(&kind);
    assert_eq!(tally.wrong_unreported(is_damage), 0, "a row is wrong, and the check says nothing: {tally}");
}

/// An entry of the table `numbers`.
fn entry(kind: u16, key: u64, value: &[u8]) -> Vec<u8> {
    let mut entry = 16_u32.to_le_bytes().to_vec();
    entry.extend(8_u16.to_le_bytes());
    entry.extend(kind.to_le_bytes());
    entry.extend((value.len() as u32).to_le_bytes());
    entry.extend(key.to_be_bytes());
    entry.extend(value);
    entry.resize(entry.len().next_multiple_of(8), 0);
    entry
}

/// A record whose change builds on a version that is not there, or does not fit it, is named.
#[test]
fn a_delta_without_its_base_is_damage() {
    let sound = sound();
    let newest = sound.newest_tick();
    let open = |key: u64, base: u64, ranges: &[u8]| -> Result<Rows> {
        let mut image = sound.image.clone();
        let used = sound.segments.iter().filter(|segment| !segment.records.is_empty());
        let segment = used.min_by_key(|segment| segment.end).expect("a segment");
        let entries = entry(3, key, &[&base.to_le_bytes()[..], ranges].concat());
        segment.append(&mut image, newest + 100, 1, &entries);
        rows_of(&Database::open_in(&store(&image.to_memory()), &options())?)
    };
    // The second byte of the number, after schema version and bitmap. The row has the newest tick of all.
    let fits = [4, 0, 1, 0, 99];
    let row =
        |rows: &Rows| rows.values().next().and_then(|rows| rows.iter().find(|row| row[0] == 10_u64.into()).cloned());
    let (before, after) =
        (row(&sound.rows).expect("a row"), row(&open(10, newest, &fits).expect("sound")).expect("a row"));
    let number = |row: &Row| row[1].as_i64().expect("a number");
    assert_eq!(number(&after), number(&before) & !0xFF00 | 99 << 8);
    let bad: [(&str, u64, u64, &[u8]); 8] = [
        ("a version that was overwritten", 10, newest - 1, &fits),
        ("a version to come", 10, newest + 100, &fits),
        ("a row that never was", 29, newest, &fits),
        ("a row that is deleted", 3, newest, &fits),
        ("a row of an earlier life", 5, newest, &fits),
        ("a range after the end", 10, newest, &[255, 0, 1, 0, 1]),
        ("a range that is cut short", 10, newest, &[4, 0, 9, 0, 1]),
        ("ranges that overlap", 10, newest, &[4, 0, 1, 0, 1, 4, 0, 1, 0, 1]),
    ];
    for (what, key, base, ranges) in bad {
        let error = open(key, base, ranges).map(|_| ()).expect_err(what);
        assert!(matches!(error, Error::Damaged { what: "log", .. }), "{what}: {error}");
        assert!(error.to_string().contains("of tree 16: the change of tick"), "{what}: {error}");
    }
}

#[test]
fn the_sound_database_is_sound() {
    let sound = sound();
    let memory = sound.image.to_memory();
    let store = store(&memory);
    assert!(store.check(&mut |_| {}).is_clean());
    let database = Database::open_in(&store, &options()).expect("sound");
    assert_eq!(rows_of(&database).expect("sound"), sound.rows);
    assert_eq!(sound.rows.values().map(Vec::len).collect::<Vec<_>>(), [13, 3]);
    assert_eq!(change(&database, &mut Numbers::new(1)).expect("room").len(), 3);
}

#[test]
fn cells_are_where_the_format_says() {
    let sound = sound();
    let first = sound.extents[1].plus(512 + TABLE_BYTES);
    let mut count = 0;
    for page in (0..EXTENT_PAGES).map(|page| first.plus(page * PAGE_BYTES)) {
        let mut image = sound.image.clone();
        if image.load(page, 8) != 0 {
            seal_cells(&mut image, page);
            assert!(image.0 == sound.image.0, "the page at {page} is sealed already");
            count += cells(&image, page).len();
        }
    }
    assert!(count >= 3, "{count} rows");
}
