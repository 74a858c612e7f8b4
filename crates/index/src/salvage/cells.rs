//! Salvage of what is made of cell lines: the leaves of an FPTree and the segments of a hash index. Their heads are
//! sealed with the anchor; each line verifies by itself.
//!
//! Of a leaf or segment whose head is damaged the lines still come out when a link or a directory entry leads to it,
//! and the place of its lines is known.

use std::collections::{BTreeMap, HashSet};

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, MEDIA_BLOCK_BYTES, PmAddr, WORD_BYTES};
use lodestone_width::{low_u64, nearest_f64, to_usize};

use crate::anchor::{self, AnchorAt};
use crate::cells::{KeyKind, LineAt, TableAt, header, pair, record_at};
use crate::fptree::FpTree;
use crate::fptree::layout::{Frame, LINES_MAX, TreeLeafAt, decode_options, shape_of, tree_anchor};
use crate::hash::HashIndex;
use crate::hash::layout::{Cover, Entry, HashShape, hash_anchor, read_segment_cover, read_segment_shape};
use crate::medium::IndexMemory;
use crate::traits::IndexKey;

use super::{Haul, IndexOf, Salvage, blocks_of, follow, reason_of, records_among};

type Range = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Brings out pairs of lines.
struct Lines<'m> {
    medium: IndexMemory<'m>,
    kind: KeyKind,
    haul: Haul,
    /// Records of keys that lines name.
    seen: HashSet<PmAddr>,
}

impl<'m> Lines<'m> {
    fn new(medium: IndexMemory<'m>, kind: KeyKind) -> Self {
        Self { medium, kind, haul: Haul::default(), seen: HashSet::new() }
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
                    let is_inside = range.is_none_or(|(from, to)| {
                        from.as_ref().is_none_or(|from| key >= *from) && to.as_ref().is_none_or(|to| key < *to)
                    });
                    if is_inside {
                        self.haul.add(key, value);
                    } else {
                        self.haul.lose_key(key, line.key(slot), "pair: its key is outside the bounds of its leaf");
                    }
                }
                Err(error) => self.lose(line.key(slot), range, reason_of(&error)),
            }
        }
    }

    /// Names the keys whose records no line names any more: their values are lost.
    fn finish(mut self, blocks: &[(PmAddr, u64)]) -> Haul {
        if self.kind == KeyKind::Bytes && !self.haul.lost.is_empty() {
            for record in records_among(self.medium, blocks) {
                if !self.seen.contains(&record.at) {
                    self.haul.lose_key(record.key, record.at, "the line with its value does not verify");
                }
            }
        }
        self.haul
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
        let mut out = Lines::new(medium, kind);
        let mut link = (AnchorAt(at).head(), None);
        for (number, (leaf, frame)) in leaves.iter().enumerate() {
            let upper = leaves.get(number + 1).map(|(_, next)| next.low.to_vec());
            add_missing(&mut out, &blocks, lines, link, Some((*leaf, frame)));
            out.add_table(leaf.table(frame.lines, frame.low.len()), Some(&(Some(frame.low.to_vec()), upper)));
            link = (leaf.next(), Some(frame.low.to_vec()));
        }
        add_missing(&mut out, &blocks, lines, link, None);
        out.finish(&blocks)
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
    let block = blocks.iter().find(|(at, _)| *at == found);
    match block.zip(lines).and_then(|(&(at, bytes), lines)| table_in(out.medium, at, bytes, lines)) {
        Some(table) => {
            out.add_table(table, Some(&range));
            // Where this leaf leads is not known: another one may be missing after it.
            out.haul.lose_between(range, Some(found), false, why);
        }
        None => out.haul.lose_between(range, Some(found), true, why),
    }
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
        // Segments first: an anchor whose checksum fits may be forged all the same.
        let shape = segments.keys().find_map(|at| read_segment_shape(medium, *at)).or(options);
        let mut out = Lines::new(medium, kind);
        let Some(shape) = shape.filter(|shape| shape.kind == kind) else {
            out.haul.lose_at(Some(at), true, "neither the anchor nor a segment of the index verifies");
            return out.finish(&blocks);
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
        out.finish(&blocks)
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
                    segments.entry(segment).or_insert(None);
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
