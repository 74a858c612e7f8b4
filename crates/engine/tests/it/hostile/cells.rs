//! A database with rows in cells: slots of cells and entries of their directory are changed and sealed again.
//!
//! A person who can seal can write any row into a slot, or any tick. So such a slot may change an answer, but never
//! lets an index and its table disagree without a finding.

use lodestone_crash::hostile::Numbers;
use lodestone_engine::{Database, Durability, row};
use lodestone_pmem::{PmAddr, checked};

use super::indexed::{KINDS, fill, hostile};
use super::{Image, Sound, sound_of, store, upset};

const COMMAND: &str = "cargo test -p lodestone-engine --test it hostile::cells::";
/// Bytes of a directory block, of an entry, and of what is before the entries.
const BLOCK_BYTES: u64 = 256;
const ENTRY_BYTES: u64 = 16;
const LINE_BYTES: u64 = 64;

/// A slot of a cell, with the payload bytes that it has room for.
#[derive(Clone, Copy)]
pub struct Slot {
    at: PmAddr,
    room: u64,
}

impl Slot {
    fn is_used(self, image: &Image) -> bool {
        image.load(self.at, 8) != 0
    }

    fn payload_bytes(self, image: &Image) -> u64 {
        ((image.load(self.at.plus(8), 4) >> 13) * 8).min(self.room)
    }

    fn seal(self, image: &mut Image) {
        let place = self.at.to_raw();
        let head = [image.read(self.at, 12), &[0; 4]].concat();
        let crc = crc32c::crc32c_append((place ^ (place >> 32)) as u32, &head);
        let crc = crc32c::crc32c_append(crc, image.read(self.at.plus(16), self.payload_bytes(image)));
        image.write(self.at.plus(12), &crc.to_le_bytes());
    }
}

/// The blocks of a chain of the directory.
fn chain(image: &Image, first: PmAddr) -> Vec<PmAddr> {
    let mut blocks = vec![first];
    loop {
        let last = blocks[blocks.len() - 1];
        let next = checked::decode_addr(last, image.load(last, 8)).expect("sound");
        if next.is_null() {
            return blocks;
        }
        blocks.push(next);
    }
}

/// All slots of the slabs that the blocks have.
fn slots(image: &Image, blocks: &[PmAddr]) -> Vec<Slot> {
    let mut slots = Vec::new();
    for entry in blocks.iter().flat_map(|block| (1..BLOCK_BYTES / ENTRY_BYTES).map(|n| block.plus(n * ENTRY_BYTES))) {
        let slab = checked::decode_addr(entry, image.load(entry, 8)).expect("sound");
        let sizes = checked::decode(entry.plus(8), image.load(entry.plus(8), 8)).expect("sound");
        let (cell, bytes) = ((sizes >> 2 & 0x7F_FFFF) * LINE_BYTES, (sizes >> 25 & 0x7F_FFFF) * LINE_BYTES);
        if slab.is_null() {
            break;
        }
        assert_eq!(sizes & 3, 1, "pairs");
        let second = if cell == LINE_BYTES { 32 } else { cell.div_ceil(2 * LINE_BYTES) * LINE_BYTES };
        for cell_at in (0..bytes / cell).map(|number| slab.plus(number * cell)) {
            slots.push(Slot { at: cell_at.plus(8), room: second - 8 - 16 });
            slots.push(Slot { at: cell_at.plus(second), room: cell - second - 16 });
        }
    }
    slots
}

impl Sound {
    fn find_slots(mut self) -> Self {
        let first = [44, 52].map(|offset| PmAddr::from_raw(self.image.load(self.headers[0].plus(offset), 8)));
        self.slab_blocks = first.map(|first| chain(&self.image, first));
        self.slots = slots(&self.image, &self.slab_blocks[0]);
        self
    }

    pub fn damage_cells(&self, image: &mut Image, numbers: &mut Numbers) -> &'static str {
        if numbers.below(5) == 0 {
            return self.damage_slabs(image, numbers);
        }
        // Mostly those with a version.
        let used: Vec<_> = self.slots.iter().filter(|slot| slot.is_used(image)).copied().collect();
        let any = if numbers.below(6) == 0 || used.is_empty() { &self.slots } else { &used };
        let slot = *numbers.pick(any);
        let at = slot.at;
        match numbers.below(8) {
            0 | 1 => upset(image, at, 8, numbers),
            // Writer and flags, or the length.
            2 => upset(image, at.plus(8), 4, numbers),
            3 => {
                let meta = image.load(at.plus(8), 4) ^ (1 << *numbers.pick(&[0, 1, 2, 10, 11, 12, 13, 14]));
                image.write(at.plus(8), &(meta as u32).to_le_bytes());
            }
            // Length of the row, tree, key.
            4 => {
                let (field, bytes) = *numbers.pick(&[(0, 4), (4, 4), (8, 8)]);
                upset(image, at.plus(16 + field), bytes, numbers);
            }
            5 | 6 => upset(image, at.plus(16 + numbers.below(slot.room - 4)), *numbers.pick(&[1, 2, 4]), numbers),
            // The version of another slot.
            _ => {
                let other = *numbers.pick(&used);
                let bytes = 16 + other.payload_bytes(image).min(slot.room);
                let words = image.read(other.at, bytes).to_vec();
                image.write(at, &words);
            }
        }
        slot.seal(image);
        "slot"
    }

    /// Changes an entry or a link of the directory, in one chain or in both.
    fn damage_slabs(&self, image: &mut Image, numbers: &mut Numbers) -> &'static str {
        let block = numbers.below(self.slab_blocks[0].len() as u64) as usize;
        let offset = 8 * numbers.below(10);
        let is_sealed = numbers.below(4) > 0;
        let which = numbers.below(3);
        let seed = numbers.number();
        for chain in (0..2).filter(|chain| *chain as u64 != which) {
            let place = self.slab_blocks[chain][block].plus(offset);
            let mut same = Numbers::new(seed);
            if !is_sealed {
                upset(image, place, 8, &mut same);
                continue;
            }
            let word = checked::decode(place, image.load(place, 8)).unwrap_or_default();
            let word = match same.below(4) {
                0 => 0,
                1 => word ^ 1 << same.below(48),
                2 => same.pick(&self.places).offset() >> 3,
                _ => same.nasty(word) & ((1 << 48) - 1),
            };
            image.write(place, &checked::encode(place, word).to_le_bytes());
        }
        if which == 2 { "slabs: both" } else { "slabs: one" }
    }
}

fn sound() -> Sound {
    sound_of(|memory| fill(memory, Durability::Sync, true)).find_slots()
}

#[test]
fn rows_in_cells() {
    let kinds = [&KINDS[..], &["slot", "slabs: one", "slabs: both"]].concat();
    hostile((COMMAND, "rows_in_cells"), &sound(), 0xDB30_0000, &kinds);
}

#[test]
fn slots_are_where_the_format_says_and_sealed_so() {
    let sound = sound();
    let used: Vec<_> = sound.slots.iter().filter(|slot| slot.is_used(&sound.image)).collect();
    assert!(used.len() >= 10, "{} versions", used.len());
    for slot in used {
        let mut image = sound.image.clone();
        slot.seal(&mut image);
        assert!(image.0 == sound.image.0, "the slot at {} is sealed already", slot.at);
    }
}

/// A version with a tick that no life has reached is newer than all that will be written there. So an update would be
/// lost with the next open, and a row that is put into a free cell as well.
#[test]
fn a_version_of_no_life_is_named_and_takes_no_row() {
    let sound = sound();
    let mut opened = 0;
    for slot in sound.slots.iter().filter(|slot| slot.is_used(&sound.image)) {
        let mut image = sound.image.clone();
        image.write(slot.at, &(1_u64 << 50).to_le_bytes());
        slot.seal(&mut image);
        let memory = image.to_memory();
        let store_first = store(&memory);
        let report = store_first.check(&mut |_| {});
        let is_told = report.findings.iter().any(|finding| finding.finding.contains("no life has reached that"));
        assert!(is_told, "the slot at {}: {:?}", slot.at, report.findings);
        // Refused where a record needs the row.
        let Ok(database) = Database::open_in(&store_first, &sound.options) else { continue };
        opened += 1;
        let items = database.table("items").expect("it is there");
        let put = |key: u64| {
            let row = row![key, 5_i64, format!("new {key}"), vec![1_u8; 3]];
            database.update(|tx| items.put(tx, &row)).map(|()| row)
        };
        // Rows that are there, or were, and new ones: either it is refused, or it is there after the next open.
        let put: Vec<_> = (0..20).filter_map(|key| put(key).ok()).collect();
        assert!(put.len() >= 15, "the slot at {}: {} rows", slot.at, put.len());
        drop((items, database, store_first));
        let again = Database::open_in(&store(&memory), &sound.options).expect("it opens again");
        let items = again.table("items").expect("it is there");
        for row in put {
            let found = again.update(|tx| items.get(tx, &row[..1])).expect("it can be read");
            assert_eq!(found, Some(row), "the slot at {}", slot.at);
        }
    }
    assert!(opened > 0, "{opened} opened");
}
