//! Salvage of structures of cell lines: the leaves of an FPTree and the segments of a hash index. Their heads are
//! sealed with the anchor; each line verifies by itself.
//!
//! Of a leaf or segment whose head is damaged the lines still come out when a link or a directory entry leads to it,
//! and the place of its lines is known. Otherwise the pairs in its lines are doubtful:
//! - *words*: in a leaf that a link leads to, in each line that there can be. Also in a leaf or segment whose head
//!   verifies, in memory of which the heap says nothing;
//! - *strings*: in any line, wherever it is, that names a record which no other line names. Records are sealed with the
//!   anchor, so these pairs belong to the structure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, MEDIA_BLOCK_BYTES, PmAddr, WORD_BYTES};
use lodestone_width::{low_u64, nearest_f64, to_u64, to_usize};

use crate::anchor::{self, AnchorAt};
use crate::cells::{KeyKind, LineAt, TableAt, header, pair, record_at};
use crate::fptree::FpTree;
use crate::fptree::layout::{Frame, LINES_MAX, TreeLeafAt, decode_options, shape_of, tree_anchor};
use crate::hash::HashIndex;
use crate::hash::layout::{Cover, Entry, HashShape, hash_anchor, read_segment_cover, read_segment_shape};
use crate::layout::{KEY_BYTES_MAX, RecordHead};
use crate::medium::IndexMemory;
use crate::traits::IndexKey;

use super::doubt::{Doubt, HEADLESS, UNLISTED, Unlisted, unknown_block, unknown_places, unknown_ranges};
use super::{Haul, IndexOf, Salvage, blocks_of, follow, reason_of, records_among};

type Range = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Brings out pairs of lines.
struct Lines<'m> {
    heap: &'m Heap,
    medium: IndexMemory<'m>,
    kind: KeyKind,
    haul: Haul,
    /// Records of keys that lines name.
    seen: HashSet<PmAddr>,
    /// Pairs of words whose lines may not count.
    doubtful: Vec<Doubt>,
}

fn is_in(key: &[u8], (from, to): &Range) -> bool {
    from.as_ref().is_none_or(|from| key >= from.as_slice()) && to.as_ref().is_none_or(|to| key < to.as_slice())
}

impl<'m> Lines<'m> {
    fn new(heap: &'m Heap, medium: IndexMemory<'m>, kind: KeyKind) -> Self {
        Self { heap, medium, kind, haul: Haul::default(), seen: HashSet::new(), doubtful: Vec::new() }
    }

    /// Adds the pairs of a table whose keys are in `range` (not known: of any).
    fn add_table(&mut self, table: TableAt, range: Option<&Range>) {
        table.lines().for_each(|line| self.add_line(line, range));
    }

    fn lose(&mut self, at: PmAddr, range: Option<&Range>, reason: String) {
        match range {
            Some(range) => self.haul.lose_between(range.clone(), Some(at), true, reason),
            None => self.haul.lose_at(Some(at), true, reason),
        }
    }

    fn add_line(&mut self, line: LineAt, range: Option<&Range>) {
        let meta = match header(self.medium, line) {
            Ok(meta) => meta,
            Err(error) => return self.lose(line.header(), range, reason_of(&error)),
        };
        for slot in meta.used() {
            let found = pair(self.medium, line, meta, slot).and_then(|(word, value)| {
                if self.kind == KeyKind::Bytes {
                    self.seen.insert(record_at(self.medium, word)?);
                }
                Ok((self.kind.bytes(self.medium, word)?, value))
            });
            match found {
                Ok((key, value)) => {
                    if range.is_none_or(|range| is_in(&key, range)) {
                        self.haul.add(key, value);
                    } else {
                        self.haul.lose_key(key, line.key(slot), "pair: its key is outside the bounds of its leaf");
                    }
                }
                Err(error) => self.lose(line.key(slot), range, reason_of(&error)),
            }
        }
    }

    /// Notes the pairs of lines whose head does not say that they count, with keys in `range`. Strings need none of
    /// that: [`doubt_strings`](Self::doubt_strings) finds every line.
    fn doubt(&mut self, lines: impl Iterator<Item = LineAt>, range: &Range, reason: &str) {
        if self.kind == KeyKind::Bytes {
            return;
        }
        for line in lines {
            for (slot, key, value) in self.pairs_in(line) {
                let key = key.to_be_bytes().to_vec();
                if is_in(&key, range) {
                    self.doubtful.push(Doubt::new(key, value, line.key(slot), reason));
                }
            }
        }
    }

    /// Slot, key word and value of each pair that verifies in the line at `line`.
    fn pairs_in(&self, line: LineAt) -> Vec<(usize, u64, u64)> {
        let Some(meta) = line.load(self.medium.memory) else { return Vec::new() };
        let words = |slot| pair(self.medium, line, meta, slot).ok().map(|(key, value)| (slot, key, value));
        meta.used().filter_map(words).collect()
    }

    /// Names the keys whose records no line names any more: their values are lost, or doubtful. Leaves and segments of
    /// the structure have `sizes`.
    fn finish(mut self, blocks: &[(PmAddr, u64)], sizes: &RangeInclusive<u64>) -> Haul {
        if self.kind == KeyKind::Bytes && !self.haul.lost.is_empty() {
            self.doubt_strings(blocks, sizes);
        }
        let doubtful = std::mem::take(&mut self.doubtful);
        self.haul.doubt_missing(doubtful);
        self.haul
    }

    fn doubt_strings(&mut self, blocks: &[(PmAddr, u64)], sizes: &RangeInclusive<u64>) {
        let unlisted = records_among(self.medium, unknown_places(self.heap, 16, RecordHead::BYTES));
        let listed = records_among(self.medium, blocks.iter().copied());
        let mut keys: HashMap<PmAddr, Vec<u8>> = HashMap::new();
        for record in listed.into_iter().filter(|record| !self.seen.contains(&record.at)) {
            self.haul.lose_key(record.key.clone(), record.at, "the line with its value does not verify");
            keys.insert(record.at, record.key);
        }
        let of_unlisted = unlisted.into_iter().filter(|record| !self.seen.contains(&record.at));
        keys.extend(of_unlisted.map(|record| (record.at, record.key)));
        if keys.is_empty() {
            return;
        }
        let lines_of = |(at, bytes): (PmAddr, u64)| {
            let first = at.offset().next_multiple_of(LINE_BYTES);
            let lines = (at.offset() + bytes).saturating_sub(first) / LINE_BYTES;
            (0..lines).map(move |line| PmAddr::new(at.part(), first + line * LINE_BYTES))
        };
        let of_blocks = blocks.iter().copied().filter(|(_, bytes)| sizes.contains(bytes)).flat_map(lines_of);
        let of_unknown = unknown_ranges(self.heap).into_iter().flat_map(lines_of);
        let mut found = Vec::new();
        for line in of_blocks.chain(of_unknown).map(LineAt) {
            for (slot, word, value) in self.pairs_in(line) {
                let key = record_at(self.medium, word).ok().and_then(|at| keys.get(&at));
                found.extend(key.map(|key| Doubt::new(key.clone(), value, line.key(slot), HEADLESS)));
            }
        }
        self.doubtful.extend(found);
    }
}

impl<K: IndexKey + ?Sized> IndexOf for FpTree<K> {
    type Keys = K;
}

impl<K: IndexKey + ?Sized> Salvage for FpTree<K> {
    fn haul(heap: &Heap, at: PmAddr) -> Haul {
        let (medium, kind) = (IndexMemory::of(heap, at), KeyKind::of::<K>());
        let blocks = blocks_of(heap);
        let options = anchor::verify(medium, tree_anchor(kind), at).ok().and_then(decode_options);
        let leaves = leaves_among(medium, at, &blocks);
        let lines = options.map(|(_, lines)| lines).or_else(|| leaves.first().map(|(_, frame)| frame.lines));
        let mut out = Lines::new(heap, medium, kind);
        let mut link = (AnchorAt(at).head(), None);
        for (number, (leaf, frame)) in leaves.iter().enumerate() {
            let upper = leaves.get(number + 1).map(|(_, next)| next.low.to_vec());
            add_missing(&mut out, &blocks, lines, link, Some((*leaf, frame)));
            out.add_table(leaf.table(frame.lines, frame.low.len()), Some(&(Some(frame.low.to_vec()), upper)));
            link = (leaf.next(), Some(frame.low.to_vec()));
        }
        add_missing(&mut out, &blocks, lines, link, None);
        if !out.haul.lost.is_empty() {
            doubt_unlisted(&mut out, &leaves);
        }
        out.finish(&blocks, &(TreeLeafAt::bytes(1, 0)..=4 * LEAF_BYTES_MAX))
    }
}

/// Bytes of the largest leaf.
const LEAF_BYTES_MAX: u64 = 64 * LINE_BYTES + to_u64(KEY_BYTES_MAX) + 2 * MEDIA_BLOCK_BYTES;
const _: () = assert!(LINES_MAX == 64, "lines of the largest leaf");

/// Notes the pairs of leaves that no link leads to, in memory of which the heap says nothing.
fn doubt_unlisted(out: &mut Lines<'_>, leaves: &[(TreeLeafAt, Frame)]) {
    let (medium, heap) = (out.medium, out.heap);
    let known: HashSet<PmAddr> = leaves.iter().map(|(leaf, _)| leaf.0).collect();
    for (at, bytes) in unknown_places(heap, LINE_BYTES, TreeLeafAt::bytes(1, 0)) {
        let leaf = TreeLeafAt(at);
        if !known.contains(&at)
            && let Ok(frame) = leaf.frame(medium)
            && TreeLeafAt::bytes(frame.lines, frame.low.len()) <= bytes
        {
            let table = leaf.table(frame.lines, frame.low.len());
            out.doubt(table.lines(), &(Some(frame.low.to_vec()), None), UNLISTED);
        }
    }
}

/// The leaves of the tree among `blocks`, and those that links lead to, in order of keys.
fn leaves_among(medium: IndexMemory<'_>, anchor: PmAddr, blocks: &[(PmAddr, u64)]) -> Vec<(TreeLeafAt, Frame)> {
    let mut leaves = Vec::new();
    for &(at, bytes) in blocks.iter().filter(|(_, bytes)| *bytes >= TreeLeafAt::bytes(1, 0)) {
        let leaf = TreeLeafAt(at);
        if let Ok(frame) = leaf.frame(medium)
            && TreeLeafAt::bytes(frame.lines, frame.low.len()) <= bytes
        {
            leaves.push((leaf, frame));
        }
    }
    let links: Vec<PmAddr> =
        std::iter::once(AnchorAt(anchor).head()).chain(leaves.iter().map(|(leaf, _)| leaf.next())).collect();
    follow(medium, links, leaves.iter().map(|(leaf, _)| leaf.0).collect(), |at| {
        let leaf = TreeLeafAt(at);
        leaves.push((leaf, leaf.frame(medium).ok()?));
        Some(leaf.next())
    });
    leaves.sort_by(|left, right| left.1.low.cmp(&right.1.low));
    leaves
}

/// Adds what is left of the leaf that `link` leads to, unless that is `next`. Keys from the low bound on follow `link`.
fn add_missing(
    out: &mut Lines<'_>,
    blocks: &[(PmAddr, u64)],
    lines: Option<u32>,
    (link, from): (PmAddr, Option<Vec<u8>>),
    next: Option<(TreeLeafAt, &Frame)>,
) {
    let expected = next.map_or(PmAddr::NULL, |(next, _)| next.0);
    let range = (from, next.map(|(_, frame)| frame.low.to_vec()));
    let found = match out.medium.link(link, "link to a tree leaf", LINE_BYTES) {
        Ok(found) if found == expected => return,
        Ok(found) => found,
        Err(error) => {
            let is_first = range.0.is_none() && next.is_some_and(|(_, frame)| frame.low.is_empty());
            if !is_first {
                out.haul.lose_between(range, Some(link), false, reason_of(&error));
            }
            return;
        }
    };
    let why = TreeLeafAt(found).frame(out.medium).err();
    let why = why.map_or_else(|| "tree leaf: is not where its keys are".to_owned(), |error| reason_of(&error));
    let listed = blocks.iter().find(|(at, _)| *at == found).map(|(_, bytes)| Unlisted::Sized(*bytes));
    let block = listed.or_else(|| unknown_block(out.heap, found));
    let table = match (block, lines) {
        (Some(Unlisted::Sized(bytes)), Some(lines)) => table_in(out.medium, found, bytes, lines),
        // The lines of the leaf after it may be there.
        _ => None,
    };
    match table {
        Some(table) => {
            out.add_table(table, Some(&range));
            // Where this leaf leads is not known: another one may be missing after it.
            out.haul.lose_between(range, Some(found), false, why);
        }
        None => {
            if let Some(Unlisted::Sized(bytes) | Unlisted::AtMost(bytes)) = block {
                out.doubt(lines_in(found, bytes, lines), &range, HEADLESS);
            }
            out.haul.lose_between(range, Some(found), true, why);
        }
    }
}

/// Every place where a line can be of a leaf for words whose frame is damaged. A lower bound of a word, or none, leads
/// to one place of the first.
fn lines_in(at: PmAddr, bytes: u64, lines: Option<u32>) -> impl Iterator<Item = LineAt> {
    let table = TreeLeafAt(at).table(lines.unwrap_or(LINES_MAX).clamp(1, LINES_MAX), 0);
    table.lines().take_while(move |line| line.0.offset() + LINE_BYTES <= at.offset() + bytes)
}

/// Where the lines of a leaf are whose frame is damaged: the one place where there can be as many as it has. `None`
/// when several places are possible.
fn table_in(medium: IndexMemory<'_>, at: PmAddr, bytes: u64, lines: u32) -> Option<TableAt> {
    let shape = shape_of(lines);
    let is_room = |table: &TableAt| {
        (1..=LINES_MAX).contains(&lines) && table.first.offset() + shape.bytes() <= at.offset() + bytes
    };
    // All low bounds of up to a word lead to one place.
    let shortest = TreeLeafAt(at).table(lines, 0);
    let mut places = (0..)
        .map(|step| TableAt { first: shortest.first.plus(step * MEDIA_BLOCK_BYTES), shape })
        .take_while(is_room)
        .filter(|table| table.lines().filter(|line| line.load(medium.memory).is_some()).count() + 1 >= to_usize(lines));
    places.next().filter(|_| places.next().is_none())
}

impl<K: IndexKey + ?Sized> IndexOf for HashIndex<K> {
    type Keys = K;
}

impl<K: IndexKey + ?Sized> Salvage for HashIndex<K> {
    fn haul(heap: &Heap, at: PmAddr) -> Haul {
        let (medium, kind) = (IndexMemory::of(heap, at), KeyKind::of::<K>());
        let blocks = blocks_of(heap);
        let mut segments: BTreeMap<PmAddr, Option<Cover>> = BTreeMap::new();
        for &(at, _) in blocks.iter().filter(|(_, bytes)| *bytes > LINE_BYTES) {
            if let Ok(cover) = read_segment_cover(medium, at) {
                segments.insert(at, Some(cover));
            }
        }
        let options = anchor::verify(medium, hash_anchor(kind), at).ok().and_then(HashShape::decode);
        let unlisted: Vec<(PmAddr, u64)> = unknown_places(heap, LINE_BYTES, 2 * LINE_BYTES)
            .filter(|(at, _)| read_segment_cover(medium, *at).is_ok())
            .collect();
        // Segments first: an anchor whose checksum fits may be forged all the same.
        let known = segments.keys().chain(unlisted.iter().map(|(at, _)| at));
        let shape = known.copied().find_map(|at| read_segment_shape(medium, at)).or(options);
        let mut out = Lines::new(heap, medium, kind);
        let Some(shape) = shape.filter(|shape| shape.kind == kind) else {
            out.haul.lose_at(Some(at), true, "neither the anchor nor a segment of the index verifies");
            return out.finish(&blocks, &(LINE_BYTES..=u64::MAX));
        };
        add_of_directory(&mut out, at, shape, &mut segments);
        for (&at, cover) in &segments {
            if !has_room(medium, &blocks, shape, at) {
                out.haul.lose_at(Some(at), true, "segment of a hash index: its block is too small");
                continue;
            }
            if cover.is_none() {
                out.haul.lose_at(Some(at), false, "header of a hash segment: checksum mismatch");
            }
            out.add_table(shape.table_at(at), None);
        }
        name_uncovered(&segments, &mut out.haul);
        for (at, bytes) in unlisted {
            if !segments.contains_key(&at) && shape.segment_bytes() <= bytes {
                out.doubt(shape.table_at(at).lines(), &(None, None), UNLISTED);
            }
        }
        out.finish(&blocks, &(shape.segment_bytes()..=4 * shape.segment_bytes()))
    }
}

/// Whether a segment fits into its block, or into the pool where the heap does not know the block.
fn has_room(medium: IndexMemory<'_>, blocks: &[(PmAddr, u64)], shape: HashShape, at: PmAddr) -> bool {
    match blocks.iter().find(|(block, _)| *block == at) {
        Some((_, bytes)) => shape.segment_bytes() <= *bytes,
        None => medium.memory.contains(at, shape.segment_bytes()),
    }
}

/// Adds the segments that the directory names and that do not say themselves what they are.
fn add_of_directory(
    out: &mut Lines<'_>,
    anchor: PmAddr,
    shape: HashShape,
    segments: &mut BTreeMap<PmAddr, Option<Cover>>,
) {
    let medium = out.medium;
    let mut open: Vec<PmAddr> = match medium.link(AnchorAt(anchor).head(), "directory", shape.node_bytes()) {
        Ok(root) if !root.is_null() => vec![root],
        _ => Vec::new(),
    };
    let mut visited = HashSet::new();
    while let Some(node) = open.pop() {
        if !visited.insert(node) {
            continue;
        }
        for number in 0..1_u64 << shape.node_bits {
            match Entry::read(medium, node.plus(number * WORD_BYTES), shape) {
                Ok(Entry::Node(child)) => open.push(child),
                Ok(Entry::Segment(segment)) => {
                    // The heap's tables may not show its block.
                    segments.entry(segment).or_insert_with(|| read_segment_cover(medium, segment).ok());
                }
                // The segments that it named say themselves what they are.
                Err(_) => {}
            }
        }
    }
}

/// Says so when the segments that were found do not cover every hash.
fn name_uncovered(segments: &BTreeMap<PmAddr, Option<Cover>>, haul: &mut Haul) {
    let covered: u128 = segments.values().flatten().map(|cover| 1_u128 << (64 - cover.depth)).sum();
    let missing = (1_u128 << 64).saturating_sub(covered);
    if missing > 0 && segments.values().all(Option::is_some) {
        let percent = nearest_f64(low_u64(missing >> 32)) / nearest_f64(1_u64 << 32) * 100.0;
        haul.lose_at(None, true, format!("segments for {percent:.1} % of all hashes do not verify"));
    }
}
