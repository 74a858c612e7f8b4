//! The words of an index by kind, and how each is changed so that it verifies again.

use std::collections::BTreeMap;

use lodestone_crash::hostile::Numbers;
use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES, checked};

use crate::cells::LineAt;
use crate::fastfair::node::{LINES_MAX, Line, NodeAt, bounds_check};
use crate::layout::{KEY_BYTES_MAX, RecordHead};
use crate::medium::IndexMemory;

/// Bytes of an anchor, of a map's header, of a cell line.
const LINE_WORDS: u64 = LINE_BYTES / WORD_BYTES;

/// A place that can be damaged, with how.
#[derive(Clone, Copy, Debug)]
enum Site {
    /// A checked word.
    Word(PmAddr),
    /// Magic and shape of an anchor or a map's header: CRC in word 4.
    Anchor(PmAddr),
    /// A leaf's lower bound: a checked word with shape before it, CRC in the word after that; the bound's place
    /// depends on the first.
    Low { owner: PmAddr, shape: PmAddr, low: PmAddr, bytes: u64 },
    /// A record: lengths, key, value.
    Record { owner: PmAddr, at: PmAddr },
    /// Header of a tree node.
    NodeHeader(PmAddr),
    /// Entry line of a tree node.
    NodeLine(PmAddr),
    /// Block of a string, or the part of a list's node that is one.
    KeyBlock { owner: PmAddr, at: PmAddr },
    /// Header of a hash segment.
    Segment { owner: PmAddr, at: PmAddr },
    /// Cell line.
    Cells(PmAddr),
}

/// All places of an index.
pub(super) struct Sites {
    kinds: BTreeMap<&'static str, Vec<Site>>,
    /// Where blocks of the pool start, whatever their owner.
    places: Vec<PmAddr>,
    end: u64,
}

struct Collector<'h> {
    memory: &'h Memory,
    heap: &'h Heap,
    kinds: BTreeMap<&'static str, Vec<Site>>,
    /// Anchors: checksums of other blocks begin with the place of one of them.
    owners: Vec<PmAddr>,
    /// Tables of intents.
    intents: Vec<PmAddr>,
}

impl Sites {
    /// The places in `blocks`, which an intact index owns.
    pub(super) fn collect(heap: &Heap, blocks: &[PmAddr]) -> Self {
        let memory = heap.memory();
        let maps = blocks.iter().filter(|&&at| memory.load(at) == u64::from_le_bytes(*b"LDSTIRMP"));
        let heads = maps.map(|at| at.plus(16)).filter_map(|head| checked::decode_addr(head, memory.load(head)));
        let is_anchor = |at: &PmAddr| {
            let magic = memory.load(*at).to_le_bytes();
            &magic[..4] == b"LDST" && &magic != b"LDSTOSEG"
        };
        let owners = blocks.iter().copied().filter(is_anchor).collect();
        let mut collector = Collector { memory, heap, kinds: BTreeMap::new(), owners, intents: heads.collect() };
        // In the order of their places, so that a seed is the same case in every run.
        let mut blocks = blocks.to_vec();
        blocks.sort_unstable();
        blocks.iter().for_each(|&at| collector.block(at));
        let mut places = Vec::new();
        heap.for_each_block(|at, _| places.push(at));
        Self { kinds: collector.kinds, places, end: heap.memory().part_len(0) }
    }

    /// An address for a word that is at `at`.
    fn address(&self, at: PmAddr, numbers: &mut Numbers) -> PmAddr {
        let offset = match numbers.below(9) {
            0 => 0,
            1 => at.offset(),
            2 => at.line().start().offset(),
            3 => numbers.below(self.end / 8) * 8,
            4 => self.end - 8 * numbers.below(40),
            5 => numbers.pick(&self.places).offset() + 8 * numbers.below(9),
            _ => numbers.pick(&self.places).offset(),
        };
        PmAddr::new(if numbers.below(50) == 0 { 3 } else { 0 }, offset)
    }
}

fn address_payload(at: PmAddr) -> u64 {
    (u64::from(at.part()) << 40 | at.offset() >> 3) % checked::PAYLOAD_LIMIT
}

impl Collector<'_> {
    fn medium(&self) -> IndexMemory<'_> {
        IndexMemory::of(self.heap, PmAddr::NULL)
    }

    /// The anchor whose structure the block belongs to that `verifies`.
    fn owner(&self, verifies: impl Fn(IndexMemory<'_>) -> bool) -> Option<PmAddr> {
        self.owners.iter().copied().find(|owner| verifies(IndexMemory::of(self.heap, *owner)))
    }

    fn add(&mut self, kind: &'static str, site: Site) {
        self.kinds.entry(kind).or_default().push(site);
    }

    fn is_checked(&self, at: PmAddr) -> bool {
        checked::decode(at, self.memory.load(at)).is_some()
    }

    fn words(&mut self, kind: &'static str, at: PmAddr, count: u64) {
        for word in (0..count).map(|number| at.plus(number * WORD_BYTES)) {
            if self.is_checked(word) {
                self.add(kind, Site::Word(word));
            }
        }
    }

    /// Tells the blocks of all structures by their content.
    fn block(&mut self, at: PmAddr) {
        let bytes = self.heap.block_bytes(at).expect("an owned block");
        let magic = self.memory.load(at).to_le_bytes();
        if &magic[..4] == b"LDST" && &magic != b"LDSTOSEG" {
            return self.anchor(at);
        }
        if &magic == b"LDSTOSEG" {
            let owner = self.owner(|medium| crate::hash::layout::read_segment_cover(medium, at).is_ok());
            self.add("segment header", Site::Segment { owner: owner.expect("an owner"), at });
            let first = (at.offset() + LINE_BYTES).next_multiple_of(256);
            return self.cell_lines(PmAddr::new(at.part(), first), at.offset() + bytes);
        }
        if self.intents.contains(&at) {
            return self.words("intent", at, bytes / 8);
        }
        if crate::fastfair::node::Header::load(self.medium(), at).is_ok() {
            return self.node(at);
        }
        let key_owner = |at| self.owner(|medium| crate::fastfair::keys::with_block_key(medium, at, |_| ()).is_ok());
        if let Some(owner) = key_owner(at) {
            return self.key_block("key block", owner, at);
        }
        let (first, second, third) = (self.is_checked(at), self.is_checked(at.plus(8)), self.is_checked(at.plus(16)));
        if first
            && bytes >= 64
            && let Some(owner) = key_owner(at.plus(16))
        {
            self.add("link of a list", Site::Word(at));
            return self.key_block("node of a list", owner, at.plus(16));
        }
        if first && second && third && !(0..bytes / 8).all(|number| self.is_checked(at.plus(8 * number))) {
            return self.leaf(at, bytes);
        }
        if first {
            return self.words("directory entry", at, bytes / 8);
        }
        let owner = self.owner(|medium| medium.key(at, &mut Vec::new()).is_ok());
        self.add("record", Site::Record { owner: owner.expect("an owner"), at });
    }

    fn anchor(&mut self, at: PmAddr) {
        self.add("anchor", Site::Anchor(at));
        self.add("anchor: head", Site::Word(at.plus(16)));
        self.words("anchor: other words", at.plus(24), LINE_WORDS - 3);
    }

    fn node(&mut self, at: PmAddr) {
        self.add("node: order", Site::Word(NodeAt(at).order()));
        self.add("node: link", Site::Word(NodeAt(at).next()));
        self.add("node: header", Site::NodeHeader(at));
        let lines = (self.memory.load(at) >> 8 & 0xFF) as usize;
        for number in 0..lines.min(LINES_MAX) {
            let line = NodeAt(at).line(number);
            if Line::load(self.medium(), line).verify(self.medium()).is_ok() {
                self.add("node: line", Site::NodeLine(line));
            }
        }
    }

    fn key_block(&mut self, kind: &'static str, owner: PmAddr, at: PmAddr) {
        self.add(kind, Site::KeyBlock { owner, at });
        self.add("value head", Site::Word(at));
    }

    /// A leaf of the ordered map or of the tree with fingerprints.
    fn leaf(&mut self, at: PmAddr, bytes: u64) {
        let shape = checked::decode(at.plus(8), self.memory.load(at.plus(8))).unwrap_or(0);
        let (count, low_bytes) = (shape & 0xFFFF, shape >> 16);
        self.add("leaf: link", Site::Word(at));
        self.add("leaf: shape", Site::Word(at.plus(8)));
        let tree_leaf = crate::fptree::layout::TreeLeafAt(at);
        if let Some(owner) = self.owner(|medium| tree_leaf.frame(medium).is_ok()) {
            self.add("leaf: lower bound", Site::Low { owner, shape: at.plus(8), low: at.plus(24), bytes: low_bytes });
            let table = crate::fptree::layout::TreeLeafAt(at).table(count as u32, low_bytes as usize);
            return self.cell_lines(table.first, at.offset() + bytes);
        }
        self.words("leaf: slot", at.plus(24), count);
        let low = at.plus(24 + 8 * count);
        let owner = self.owner(|medium| medium.leaf_frame(crate::layout::LeafAt(at)).is_ok()).expect("an owner");
        self.add("leaf: lower bound", Site::Low { owner, shape: at.plus(8), low, bytes: low_bytes });
    }

    fn cell_lines(&mut self, first: PmAddr, end: u64) {
        for at in (first.offset()..end).step_by(LINE_BYTES as usize).map(|offset| PmAddr::new(first.part(), offset)) {
            if at.offset() + LINE_BYTES <= end && LineAt(at).load(self.memory).is_some() {
                self.add("cell line", Site::Cells(at));
            }
        }
    }
}

/// Changes something in memory that holds the index, and seals it again; what.
pub(super) fn damage(memory: &Memory, sites: &Sites, numbers: &mut Numbers) -> &'static str {
    let kinds: Vec<(&&'static str, &Vec<Site>)> = sites.kinds.iter().collect();
    let (kind, all) = *numbers.pick(&kinds);
    match *numbers.pick(all) {
        Site::Word(at) => damage_word(memory, sites, numbers, at, all),
        Site::Anchor(at) => damage_anchor(memory, numbers, at),
        Site::Low { owner, shape, low, bytes } => damage_low(memory, numbers, owner, (shape, low, bytes)),
        Site::Record { owner, at } => return damage_record(memory, sites, numbers, (owner, at)),
        Site::NodeHeader(at) => damage_node(memory, sites, numbers, at),
        Site::NodeLine(at) => return damage_line(memory, sites, numbers, at),
        Site::KeyBlock { owner, at } => return damage_key_block(memory, numbers, owner, at),
        Site::Segment { owner, at } => damage_segment(memory, numbers, owner, at),
        Site::Cells(at) => return damage_cells(memory, sites, numbers, at),
    }
    kind
}

fn damage_word(memory: &Memory, sites: &Sites, numbers: &mut Numbers, at: PmAddr, all: &[Site]) {
    let payload_at = |at| checked::decode(at, memory.load(at)).unwrap_or(0);
    let payload = match numbers.below(4) {
        0 => numbers.nasty(payload_at(at)) % checked::PAYLOAD_LIMIT,
        1 => match *numbers.pick(all) {
            Site::Word(other) => payload_at(other),
            _ => 0,
        },
        _ => address_payload(sites.address(at, numbers)),
    };
    memory.store(at, checked::encode(at, payload));
}

fn damage_anchor(memory: &Memory, numbers: &mut Numbers, at: PmAddr) {
    let mut shape = memory.load(at.plus(8));
    shape = if numbers.below(2) == 0 {
        numbers.nasty(shape)
    } else {
        shape & 0xFFFF_FFFF | numbers.nasty(shape >> 32) << 32
    };
    memory.store(at.plus(8), shape);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&memory.load(at).to_le_bytes()), &shape.to_le_bytes());
    memory.store(at.plus(32), checked::encode(at.plus(32), u64::from(crc)));
}

fn damage_low(memory: &Memory, numbers: &mut Numbers, owner: PmAddr, (shape, low, bytes): (PmAddr, PmAddr, u64)) {
    let mut bound = vec![0; bytes as usize];
    memory.read(low, &mut bound);
    let old = checked::decode(shape, memory.load(shape)).unwrap_or(0);
    let mut len = bytes;
    match numbers.below(3) {
        0 => len = numbers.below(bytes + 9),
        _ if bound.is_empty() => len = 1 + numbers.below(8),
        _ => {
            let index = numbers.below(bytes) as usize;
            bound[index] = bound[index].wrapping_add(*numbers.pick(&[1, 255, 7, 128]));
        }
    }
    bound.resize(len as usize, 0xAB);
    // A longer bound overwrites the rest of its block, as a forged one would.
    let whole = bound.len().next_multiple_of(8);
    let mut padded = bound.clone();
    padded.resize(whole, 0);
    if memory.contains(low, whole as u64) {
        memory.write(low, &padded);
    }
    memory.store(shape, checked::encode(shape, (old & 0xFFFF | len << 16) % checked::PAYLOAD_LIMIT));
    let crc_at = shape.plus(8);
    memory.store(crc_at, checked::encode(crc_at, crate::layout::low_check(owner, &bound)));
}

fn read(memory: &Memory, at: PmAddr, bytes: u64) -> Vec<u8> {
    let mut all = vec![0; bytes as usize];
    if memory.contains(at, bytes.next_multiple_of(8)) {
        memory.read(at, &mut all);
    }
    all
}

fn damage_record(memory: &Memory, sites: &Sites, numbers: &mut Numbers, (owner, at): (PmAddr, PmAddr)) -> &'static str {
    let head = RecordHead::from_words(memory.load(at), memory.load(at.plus(8)));
    let mut key = read(memory, RecordHead::key_at(at), u64::from(head.key_bytes));
    let mut value = read(memory, at.plus(head.value_offset()), u64::from(head.value_bytes));
    let kind = match numbers.below(4) {
        0 if !key.is_empty() => {
            let index = numbers.below(key.len() as u64) as usize;
            key[index] ^= 1 << numbers.below(8);
            "record: key"
        }
        1 => {
            let bytes = numbers.nasty(key.len() as u64) % (KEY_BYTES_MAX as u64 + 2);
            key = read(memory, RecordHead::key_at(at), bytes);
            "record: key length"
        }
        2 => {
            let bytes = numbers.nasty(value.len() as u64) % sites.end;
            value = read(memory, at.plus(head.value_offset()), bytes);
            "record: value length"
        }
        _ => {
            value.iter_mut().for_each(|byte| *byte ^= 0x55);
            "record: value"
        }
    };
    let mut out = Vec::new();
    crate::layout::encode_record(owner, at, &key, &value, &mut out);
    if memory.contains(at, out.len() as u64) && (kind == "record: key" || kind == "record: value") {
        memory.write(at, &out);
    } else {
        // Lengths only: what follows stays, and the checksums fit what then is key and value.
        memory.write(at, &out[..16]);
    }
    kind
}

fn damage_node(memory: &Memory, sites: &Sites, numbers: &mut Numbers, at: PmAddr) {
    let mut words: [u64; 8] = memory.load_words(at);
    let other: [u64; 8] = memory.load_words(match numbers.pick(&sites.kinds["node: header"]) {
        Site::NodeHeader(other) => *other,
        _ => at,
    });
    match numbers.below(6) {
        0 => words[0] = words[0] & !0xFF | numbers.nasty(words[0] & 0xFF) & 0xFF,
        1 => words[0] = words[0] & !0xFF00 | (numbers.nasty(words[0] >> 8 & 0xFF) & 0xFF) << 8,
        2 => words[3] = *numbers.pick(&[other[3], other[4], numbers.clone().nasty(words[3])]),
        3 => words[4] = *numbers.pick(&[other[3], other[4], numbers.clone().nasty(words[4])]),
        4 => words[6] = *numbers.pick(&[u64::MAX, 0, 1, 2, 3]),
        _ => {
            words[2] = address_payload(sites.address(at, numbers));
        }
    }
    let node = NodeAt(at);
    words[0] = checked::encode(at, words[0] % checked::PAYLOAD_LIMIT);
    words[2] = checked::encode(node.next(), words[2] % checked::PAYLOAD_LIMIT);
    let next = words[2] % checked::PAYLOAD_LIMIT;
    words[5] = bounds_check(node, words[0], (words[3], words[4], next != 0));
    for (number, word) in words.iter().enumerate() {
        memory.store(at.plus(8 * number as u64), *word);
    }
}

fn damage_line(memory: &Memory, sites: &Sites, numbers: &mut Numbers, at: PmAddr) -> &'static str {
    let mut line = Line { at, words: memory.load_words(at) };
    let (mut order, mut pending) = (line.slot_order(), line.pending());
    let slot = numbers.below(3) as usize;
    let kind = match numbers.below(5) {
        0 => {
            order = numbers.nasty(order) & 0x3F;
            "node: slots"
        }
        1 => {
            line.words[1 + 2 * slot] = numbers.nasty(line.words[1 + 2 * slot]);
            "node: key"
        }
        2 => {
            line.words[2 + 2 * slot] = sites.address(at, numbers).to_raw();
            "node: second word"
        }
        3 => {
            line.words[2 + 2 * slot] = numbers.nasty(line.words[2 + 2 * slot]);
            "node: second word"
        }
        _ => {
            pending = Some(slot);
            "node: pending"
        }
    };
    line.words[0] = line.meta(order, pending);
    for (number, word) in line.words.iter().enumerate() {
        memory.store(at.plus(8 * number as u64), *word);
    }
    kind
}

fn damage_key_block(memory: &Memory, numbers: &mut Numbers, owner: PmAddr, at: PmAddr) -> &'static str {
    let word = memory.load(at.plus(24));
    let mut key = read(memory, at.plus(32), word & 0xFFFF_FFFF);
    let kind = match numbers.below(3) {
        0 => {
            let bytes = numbers.nasty(key.len() as u64) % (KEY_BYTES_MAX as u64 + 2);
            key = read(memory, at.plus(32), bytes);
            "key block: length"
        }
        1 => {
            // The value, with its head.
            let which = checked::decode(at, memory.load(at)).unwrap_or(0) & 1;
            let value = numbers.nasty(memory.load(at.plus(8 + 8 * which)));
            memory.store(at.plus(8 + 8 * which), value);
            let head = which | u64::from(crc32c::crc32c(&value.to_le_bytes())) << 8;
            memory.store(at, checked::encode(at, head));
            return "key block: value";
        }
        _ => {
            let index = numbers.below(key.len() as u64) as usize;
            if let Some(byte) = key.get_mut(index) {
                *byte ^= 1 << numbers.below(8);
            }
            "key block: key"
        }
    };
    let place = [at.to_raw(), owner.to_raw(), key.len() as u64];
    let head = place.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()));
    let crc = crc32c::crc32c_append(head, &key);
    memory.store(at.plus(24), key.len() as u64 | u64::from(crc) << 32);
    if kind == "key block: key" {
        key.resize(key.len().next_multiple_of(8), 0);
        memory.write(at.plus(32), &key);
    }
    kind
}

fn damage_segment(memory: &Memory, numbers: &mut Numbers, owner: PmAddr, at: PmAddr) {
    let mut words: [u64; 5] = memory.load_words(at);
    let (cover, options) = (words[1], words[3]);
    match numbers.below(5) {
        0 => words[1] = cover & !0xFF | numbers.nasty(cover & 0xFF) & 0xFF,
        1 => words[1] = cover & 0xFF | numbers.nasty(cover) & !0xFF,
        2 => words[1] = numbers.nasty(cover),
        3 => words[3] = numbers.nasty(options),
        _ => words[4] = numbers.nasty(words[4]),
    }
    let sealed = [words[0], words[1], words[3], words[4], owner.to_raw()];
    let crc = sealed.iter().fold(0, |crc, word| crc32c::crc32c_append(crc, &word.to_le_bytes()));
    words[2] = checked::encode(at.plus(16), u64::from(crc));
    for (number, word) in words.iter().enumerate() {
        memory.store(at.plus(8 * number as u64), *word);
    }
}

fn damage_cells(memory: &Memory, sites: &Sites, numbers: &mut Numbers, at: PmAddr) -> &'static str {
    let line = LineAt(at);
    let Some(meta) = line.load(memory) else { return "cell line" };
    let slot = numbers.below(3) as usize;
    let (key_at, value_at) = (line.key(slot), line.value(meta.cell(slot)));
    let kind = match numbers.below(5) {
        0 => {
            let tag = memory.load(key_at) & !(checked::PAYLOAD_LIMIT - 1);
            memory.store(key_at, tag | address_payload(sites.address(at, numbers)));
            "cell line: key"
        }
        1 => {
            memory.store(key_at, numbers.nasty(memory.load(key_at)));
            "cell line: key"
        }
        2 => {
            memory.store(value_at, numbers.nasty(memory.load(value_at)));
            "cell line: value"
        }
        _ => {
            let payload = memory.load(at) ^ 1 << numbers.below(11);
            memory.store(at, line.seal(payload));
            "cell line: header"
        }
    };
    // The checks of all pairs that count fit.
    let Some(mut meta) = line.load(memory) else { return kind };
    for slot in meta.used() {
        let cell = meta.cell(slot);
        meta = meta.with(slot, cell, line.pair_check(memory.load(line.key(slot)), memory.load(line.value(cell))));
    }
    memory.store(at, line.encode(meta));
    kind
}
