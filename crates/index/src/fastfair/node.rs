//! Nodes of the tree, byte for byte; `docs/format.md` draws the same map.
//!
//! A node is a header line and up to [`LINES_MAX`] *entry lines* of three entries. An entry is two words: in a leaf the
//! key's order word and the value (or the key's block), in an inner node the order word of a child's lower bound and
//! the child.
//!
//! ```text
//! header:  0 shape: checked, level | lines << 8 | tag << 16    8 order: checked, entry lines by position, 4 bits each
//!         16 next: checked address   24 low bound   32 high bound (of no meaning when next is null)
//!         40 bounds: check of place, shape, low, high and whether there is a next   48 stamp   56 owner: checked address of the anchor
//! line:    0 meta: slots in order, 2 bits each | pending slot << 6 | check << 32   8 slot 0   24 slot 1   40 slot 2   56 zero
//! ```
//!
//! Invariants:
//! - a line's meta word alone says which slots count, and in which order, and its checksum covers them. So one store
//!   after the entry's words, *in the same line*, publishes an entry, and no fence is needed between them;
//! - keys ascend over the positions of the order word, with one exception: a crash inside the split of a line leaves
//!   the upper entries of one line in the following line as well (`FastFair::repair` drops them before anything is
//!   written there).

use std::hint::select_unpredictable;

use lodestone_pmem::{LINE_BYTES, PmAddr, WORD_BYTES, Window, checked};
use lodestone_width::{low_u8, low_u16, to_u64, to_usize};

use crate::error::{Error, Result};
use crate::fold::fold;
use crate::medium::IndexMemory;

/// Most entry lines of a node: with the header line twelve lines, a size class of the heap, and 44 bits of order.
pub(crate) const LINES_MAX: usize = 11;
/// Highest level of a node: with two children to each, more nodes than any pool holds.
pub(crate) const LEVEL_MAX: u8 = 48;
/// Entries of a line.
pub(crate) const SLOTS: usize = 3;
/// Stamp of a node that was merged away.
pub(crate) const DEAD: u64 = u64::MAX;

/// Lines that four bits of an order word can name: the reach of an unverified header.
const LINES_ROOM: usize = 15;

const TAG: u64 = 0xFA57;

/// Two words: the one that orders the key, and the one that it leads to.
pub(crate) type Entry = (u64, u64);

/// Entries of a node, without memory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryList {
    all: [Entry; LINES_MAX * SLOTS],
    count: usize,
    ascends: bool,
}

impl EntryList {
    pub(crate) const fn new() -> Self {
        Self { all: [(0, 0); LINES_MAX * SLOTS], count: 0, ascends: true }
    }

    /// Adds an entry; a node has no more lines than fill the list.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        self.ascends &= self.last().is_none_or(|last| last.0 < entry.0);
        self.all[self.count] = entry;
        self.count += 1;
    }

    /// Looks at the order of the entries from index `from` on, which were added without a look at it.
    #[inline]
    fn note_order(&mut self, from: usize) {
        let added = &self.all[from.saturating_sub(1)..self.count];
        // No jump for each entry.
        self.ascends &= added.windows(2).fold(true, |ascends, pair| ascends & (pair[0].0 < pair[1].0));
    }

    /// Whether the first word of each entry was above that of the entry before it when it was added.
    #[inline]
    pub(crate) fn ascends(&self) -> bool {
        self.ascends
    }

    /// Removes all entries.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.count, self.ascends) = (0, true);
    }

    /// Keeps the first `count` entries.
    #[inline]
    pub(crate) fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count);
    }
}

impl std::ops::Deref for EntryList {
    type Target = [Entry];

    #[inline]
    fn deref(&self) -> &[Entry] {
        &self.all[..self.count]
    }
}

/// Positions of a node: the entry line at each place in the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order(u64);

impl Order {
    /// Lines 0, 1, ... in this order.
    pub(crate) fn identity(count: usize) -> Self {
        (0..count).fold(Self(0), |order, number| order.with(number, number))
    }

    /// Number of positions.
    #[inline]
    pub(crate) fn count(self) -> usize {
        (64 - to_usize(self.0.leading_zeros())).div_ceil(4).min(LINES_MAX)
    }

    /// The line at a position.
    #[inline]
    pub(crate) fn line(self, position: usize) -> usize {
        (to_usize((self.0 >> (4 * position)) & 15)).saturating_sub(1)
    }

    /// With `line` at `position`; the line that was there and the following ones move one on.
    pub(crate) fn with(self, position: usize, line: usize) -> Self {
        let below = self.0 & ((1 << (4 * position)) - 1);
        let above = (self.0 >> (4 * position)) << (4 * position + 4);
        Self(below | above | (to_u64(line) + 1) << (4 * position))
    }

    /// Without the line at `position`.
    pub(crate) fn without(self, position: usize) -> Self {
        let below = self.0 & ((1 << (4 * position)) - 1);
        Self(below | (self.0 >> (4 * position + 4)) << (4 * position))
    }

    /// The first `count` positions.
    pub(crate) fn truncated(self, count: usize) -> Self {
        Self(self.0 & ((1 << (4 * count)) - 1))
    }

    /// The lowest line of `lines` that has no position.
    pub(crate) fn free_line(self, lines: usize) -> Option<usize> {
        let used = (0..self.count()).fold(0_u32, |used, position| used | 1 << self.line(position));
        let free = to_usize((!used).trailing_zeros());
        (free < lines).then_some(free)
    }

    fn decode(payload: u64, lines: usize) -> Option<Self> {
        let order = Self(payload);
        let count = order.count();
        // Every write of a leaf comes here: no jump for each position.
        let used = (0..count).fold(0_u32, |used, position| used | 1 << (payload >> (4 * position) & 15));
        let is_each_once = to_usize(used.count_ones()) == count && used & 1 == 0 && used >> lines <= 1;
        // A position beyond the last would be carried along, and at last out of the word.
        (is_each_once && payload >> (4 * count) == 0).then_some(order)
    }
}

/// Words of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeAt(pub(crate) PmAddr);

impl NodeAt {
    pub(crate) fn bytes(lines: usize) -> u64 {
        LINE_BYTES * (1 + to_u64(lines))
    }
    pub(crate) fn order(self) -> PmAddr {
        self.0.plus(8)
    }
    pub(crate) fn next(self) -> PmAddr {
        self.0.plus(16)
    }
    pub(crate) fn high(self) -> PmAddr {
        self.0.plus(32)
    }
    pub(crate) fn bounds(self) -> PmAddr {
        self.0.plus(40)
    }
    pub(crate) fn stamp(self) -> PmAddr {
        self.0.plus(48)
    }
    /// Checked address of the tree's anchor: tells the nodes of one tree from those of others.
    pub(crate) fn owner(self) -> PmAddr {
        self.0.plus(56)
    }
    pub(crate) fn line(self, number: usize) -> PmAddr {
        self.0.plus(LINE_BYTES * (1 + to_u64(number)))
    }
}

/// Low bound, high bound, and whether there is a next node.
pub(crate) type Bounds = (u64, u64, bool);

/// The content of the bounds word. Verifying it costs three multiplications: every read of a leaf does it.
#[inline]
pub(crate) fn bounds_check(at: NodeAt, shape: u64, (low, high, has_next): Bounds) -> u64 {
    let place = fold(at.0.to_raw(), shape);
    // Never zero: zeroed memory is no node.
    fold(fold(place ^ low, high), u64::from(has_next)) | 1
}

/// The word of a node's shape.
fn shape_word(at: PmAddr, level: u8, lines: usize) -> u64 {
    checked::encode(at, u64::from(level) | to_u64(lines) << 8 | TAG << 16)
}

/// The address in a link word, unverified.
#[inline]
fn raw_link(word: u64) -> PmAddr {
    let raw = word & (checked::PAYLOAD_LIMIT - 1);
    PmAddr::new(low_u16(raw >> 40), (raw & ((1 << 40) - 1)) << 3)
}

/// The words of a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) at: NodeAt,
    pub(crate) level: u8,
    pub(crate) lines: usize,
    pub(crate) order: Order,
    /// Verified by [`load`](Self::load), else by [`follow`](Self::follow).
    pub(crate) next: PmAddr,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) stamp: u64,
    words: [u64; 8],
}

impl Header {
    /// The header in these words; nothing in it is verified.
    #[inline]
    fn of(at: PmAddr, words: [u64; 8]) -> Self {
        let [shape, order, next, low, high, _, stamp, _] = words;
        let (level, lines) = (low_u8(shape & 0xFF), to_usize((shape >> 8) & 0xFF));
        let order = Order(order & (checked::PAYLOAD_LIMIT - 1));
        Self { at: NodeAt(at), level, lines, order, next: raw_link(next), low, high, stamp, words }
    }

    /// Whether every line that an order can name is in the pool.
    #[inline]
    fn has_room(medium: IndexMemory<'_>, at: PmAddr) -> bool {
        medium.memory.contains(at, NodeAt::bytes(LINES_ROOM)) && at.line().start() == at
    }

    /// Reads the header at `at` and verifies all of it.
    pub(crate) fn load(medium: IndexMemory<'_>, at: PmAddr) -> Result<Self> {
        if !medium.memory.contains(at, NodeAt::bytes(1)) || at.line().start() != at {
            return Err(medium.damaged(at, "address of a tree node", "is no place of the pool where a node can be"));
        }
        let header = Self::of(at, medium.memory.load_words(at));
        let shape = checked::decode(at, header.words[0]);
        if shape.is_none_or(|shape| shape >> 16 != TAG) {
            return Err(medium.damaged(at, "shape of a tree node", "checksum mismatch"));
        }
        if header.lines > LINES_MAX
            || header.level > LEVEL_MAX
            || !medium.memory.contains(at, NodeAt::bytes(header.lines))
        {
            return Err(medium.damaged(at, "shape of a tree node", "is no shape that fits the pool"));
        }
        header.verify_order(medium)?;
        header.verify_places(medium)?;
        header.follow(medium)?;
        header.verify_bounds(medium)?;
        Ok(header)
    }

    /// Whether the node has as many entry lines as the anchor says every node has.
    pub(crate) fn compare_lines(&self, medium: IndexMemory<'_>, lines: usize) -> Result<()> {
        if self.lines == lines {
            return Ok(());
        }
        let finding = format!("entry lines: {} here, {lines} in the anchor", self.lines);
        Err(medium.damaged(self.at.0, "shape of a tree node", finding))
    }

    /// As [`load`](Self::load), of the link only the fact that there is one. A search in a leaf rests on no more.
    ///
    /// Always inlined: the words then come from the medium in registers. A call would return them through memory, word
    /// by word in and in larger pieces out, for which the processor waits.
    #[inline(always)]
    pub(crate) fn load_leaf(medium: IndexMemory<'_>, at: PmAddr) -> Result<Self> {
        let words = if Self::has_room(medium, at) {
            medium.memory.load_words(at)
        } else {
            // At the end of the pool, where a shape may name lines that do not exist.
            Self::words_at_end(medium, at)?
        };
        let header = Self::of(at, words);
        // The bounds cover the shape; a shape that was never one has no bounds that verify.
        header.verify_bounds(medium)?;
        header.verify_order(medium)?;
        Ok(header)
    }

    #[cold]
    fn words_at_end(medium: IndexMemory<'_>, at: PmAddr) -> Result<[u64; 8]> {
        Ok(Self::load(medium, at)?.words)
    }

    /// As [`load`](Self::load), without looking at checksums: for nodes on the way to a leaf, whose bounds tell whether
    /// the way was right. The content there can be anything; every address in it is checked before it is followed.
    #[inline]
    pub(crate) fn peek(medium: IndexMemory<'_>, at: PmAddr) -> Result<Self> {
        if !Self::has_room(medium, at) {
            return Self::load(medium, at);
        }
        Ok(Self::of(at, medium.memory.load_words(at)))
    }

    /// The next node, verified.
    #[inline]
    pub(crate) fn follow(&self, medium: IndexMemory<'_>) -> Result<PmAddr> {
        let next = checked::decode_addr(self.at.next(), self.words[2]);
        next.ok_or_else(|| self.damaged(medium, self.at.next(), "link of a tree node"))
    }

    #[cold]
    fn damaged(&self, medium: IndexMemory<'_>, at: PmAddr, what: &'static str) -> Error {
        medium.damaged(at, what, "checksum mismatch")
    }

    #[inline]
    fn verify_order(&self, medium: IndexMemory<'_>) -> Result<()> {
        match checked::decode(self.at.order(), self.words[1]) {
            Some(_) => Ok(()),
            None => Err(self.damaged(medium, self.at.order(), "order of a tree node")),
        }
    }

    /// Whether the order names each of the node's lines once at most. A reader of a leaf endures any order; a writer
    /// would carry it on.
    pub(crate) fn verify_places(&self, medium: IndexMemory<'_>) -> Result<()> {
        match Order::decode(self.order.0, self.lines) {
            Some(_) => Ok(()),
            None => Err(medium.damaged(self.at.order(), "order of a tree node", "is no order of its lines")),
        }
    }

    /// Whether shape and bounds are those that were written.
    #[inline]
    fn verify_bounds(&self, medium: IndexMemory<'_>) -> Result<()> {
        if self.words[5] == self.bounds_check((self.low, self.high, !self.next.is_null())) {
            return Ok(());
        }
        Err(self.damaged(medium, self.at.0, "bounds of a tree node"))
    }

    /// The bounds word for other bounds of this node.
    #[inline]
    pub(crate) fn bounds_check(&self, bounds: Bounds) -> u64 {
        bounds_check(self.at, self.words[0], bounds)
    }

    /// The entry lines, for searches that look at words of several of them. `None`: see [`nowhere`](Self::nowhere).
    ///
    /// No `Result`: one with a large error would take the answer through memory, word by word in and in larger pieces
    /// out, for which the processor waits.
    #[inline]
    pub(crate) fn lines<'m>(&self, medium: IndexMemory<'m>) -> Option<Lines<'m>> {
        let words = |lines: usize| NodeAt::bytes(lines) / WORD_BYTES;
        let window = medium.memory.window(self.at.0, words(LINES_ROOM));
        // At the end of the pool, where only a header that was verified whole comes from.
        let window = window.or_else(|| medium.memory.window(self.at.0, words(self.lines)))?;
        Some(Lines { window, order: self.order })
    }

    /// The error for a node without room for its lines.
    #[cold]
    pub(crate) fn nowhere(&self, medium: IndexMemory<'_>) -> Error {
        medium.damaged(self.at.0, "address of a tree node", "is no place of the pool where a node can be")
    }

    /// The line at a position.
    #[inline]
    pub(crate) fn load_line(&self, medium: IndexMemory<'_>, position: usize) -> Line {
        Line::load(medium, self.at.line(self.order.line(position)))
    }

    /// The line at a position, verified.
    #[inline]
    pub(crate) fn verified_line(&self, medium: IndexMemory<'_>, position: usize) -> Result<Line> {
        let line = self.load_line(medium, position);
        line.verify(medium).map(|()| line)
    }
}

/// The entry lines of a node on the medium, bounds checked once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines<'m> {
    window: Window<'m>,
    order: Order,
}

impl Lines<'_> {
    #[inline]
    fn base(&self, position: usize) -> usize {
        8 * (1 + self.order.line(position))
    }

    #[inline]
    fn entry(&self, base: usize, slot: usize, both: bool) -> Entry {
        let key = self.window.load(base + 1 + 2 * slot);
        (key, if both { self.window.load(base + 2 + 2 * slot) } else { 0 })
    }

    /// The first entry of the line at a position, unverified: its order word and, if `both`, the other word. `None`
    /// when the line has none.
    #[inline]
    pub(crate) fn first(&self, position: usize, both: bool) -> Option<Entry> {
        let base = self.base(position);
        let slot = (self.window.load(base) & 3).checked_sub(1)?;
        Some(self.entry(base, to_usize(slot), both))
    }

    /// The last entry of the line at a position, which has one; as [`first`](Self::first).
    #[inline]
    pub(crate) fn last(&self, position: usize, both: bool) -> Entry {
        let base = self.base(position);
        let order = self.window.load(base) & SLOT_ORDER;
        let slot = if order >> 4 != 0 {
            order >> 4
        } else if order >> 2 != 0 {
            order >> 2
        } else {
            order
        };
        self.entry(base, to_usize((slot & 3).saturating_sub(1)), both)
    }

    /// Appends the entries of the line at a position to `all`. Returns whether the line verifies.
    #[inline]
    pub(crate) fn append(&self, position: usize, all: &mut EntryList) -> bool {
        let before = all.count;
        let verifies = self.copy_line(position, all);
        all.note_order(before);
        verifies
    }

    /// As [`append`](Self::append), of the lines at the first `count` positions. Returns the first position whose line
    /// does not verify.
    #[inline]
    pub(crate) fn append_first(&self, count: usize, all: &mut EntryList) -> Option<usize> {
        let before = all.count;
        let damaged = (0..count).find(|position| !self.copy_line(*position, all));
        all.note_order(before);
        damaged
    }

    /// Appends the entries of a line without a look at their order.
    ///
    /// The number of entries differs from line to line, so the processor could not foresee a jump that depends on it.
    /// All slots are copied and folded: the list then counts those that the line counts, and the check is the one
    /// after as many folds.
    #[inline(always)]
    fn copy_line(&self, position: usize, all: &mut EntryList) -> bool {
        let base = self.base(position);
        // The last word of a line has no meaning.
        let [meta, slots @ ..] = self.window.load_words::<7>(base);
        let order = meta & SLOT_ORDER;
        let slots = [(0, 0), (slots[0], slots[1]), (slots[2], slots[3]), (slots[4], slots[5])];
        let entries = [0, 2, 4].map(|shift| slots[to_usize((order >> shift) & 3)]);
        let none = fold(self.line_at(base).to_raw(), order);
        let one = fold(none ^ entries[0].0, entries[0].1);
        let two = fold(one ^ entries[1].0, entries[1].1);
        let three = fold(two ^ entries[2].0, entries[2].1);
        let check = select_unpredictable(order >> 2 == 0, one, two);
        let check = select_unpredictable(order >> 4 == 0, check, three);
        let check = select_unpredictable(order == 0, none, check);
        let is_plain = IS_ORDER >> order & 1 != 0 && meta == order | check >> 32 << 32;
        if is_plain && let Some(room) = all.all.get_mut(all.count..).and_then(<[Entry]>::first_chunk_mut) {
            *room = entries;
            all.count += usize::from(order != 0) + usize::from(order >> 2 != 0) + usize::from(order >> 4 != 0);
            return true;
        }
        self.copy_pending(position, all)
    }

    /// As [`copy_line`](Self::copy_line), of a line that may have a pending slot. It is loaded again: a copy in memory
    /// would cost every line eight stores. If it changed meanwhile, the reader reads the node anew.
    #[cold]
    fn copy_pending(&self, position: usize, all: &mut EntryList) -> bool {
        let line = self.line(position);
        let verifies = line.verifies();
        if verifies {
            line.entries().for_each(|entry| all.push(entry));
        }
        verifies
    }

    /// The line at a position.
    #[inline]
    pub(crate) fn line(&self, position: usize) -> Line {
        let base = self.base(position);
        Line { at: self.line_at(base), words: self.window.load_words(base) }
    }

    /// The address of the line whose first word is word `base` of the window.
    #[inline]
    fn line_at(&self, base: usize) -> PmAddr {
        self.window.addr().plus(to_u64(base) * WORD_BYTES)
    }
}

/// The words of an entry line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) at: PmAddr,
    pub(crate) words: [u64; 8],
}

const SLOT_ORDER: u64 = 0x3F;

/// Bit by bit, which slot orders name each slot at most once and none after a gap.
const IS_ORDER: u64 = {
    let (mut all, mut order) = (0, 0);
    while order < 64 {
        let (a, b, c) = (order & 3, (order >> 2) & 3, (order >> 4) & 3);
        let is_order = (b == 0 && c == 0)
            || (a != 0 && b != 0 && a != b && c == 0)
            || (a != 0 && b != 0 && a != b && a != c && b != c);
        if is_order {
            all |= 1 << order;
        }
        order += 1;
    }
    all
};
const PENDING_SHIFT: u32 = 6;
const PENDING: u64 = 3 << PENDING_SHIFT;

impl Line {
    #[inline]
    pub(crate) fn load(medium: IndexMemory<'_>, at: PmAddr) -> Self {
        Self { at, words: medium.memory.load_words(at) }
    }

    /// A line with these entries, in order.
    pub(crate) fn new(at: PmAddr, entries: &[Entry]) -> Self {
        assert!(entries.len() <= SLOTS, "a line holds three entries");
        let mut line = Self { at, words: [0; 8] };
        let mut order = 0;
        for (slot, entry) in entries.iter().enumerate() {
            (line.words[1 + 2 * slot], line.words[2 + 2 * slot]) = *entry;
            order |= (to_u64(slot) + 1) << (2 * slot);
        }
        line.words[0] = line.meta(order, None);
        line
    }

    pub(crate) fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (chunk, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
            *chunk = word.to_le_bytes();
        }
        bytes
    }

    /// The meta word for these slots in this order; the value of a pending slot is not covered.
    #[inline]
    pub(crate) fn meta(&self, order: u64, pending: Option<usize>) -> u64 {
        let low = order | pending.map_or(0, |slot| (to_u64(slot) + 1) << PENDING_SHIFT);
        let mut check = fold(self.at.to_raw(), low);
        let mut rest = order;
        while rest & 3 != 0 {
            let slot = to_usize(rest & 3) - 1;
            let value = if pending == Some(slot) { 0 } else { self.words[(2 + 2 * slot) & 7] };
            check = fold(check ^ self.words[(1 + 2 * slot) & 7], value);
            rest >>= 2;
        }
        low | check >> 32 << 32
    }

    /// The slots that count, two bits each.
    #[inline]
    pub(crate) fn slot_order(&self) -> u64 {
        self.words[0] & SLOT_ORDER
    }

    /// The slot whose value was being changed when the power failed.
    pub(crate) fn pending(&self) -> Option<usize> {
        (to_usize((self.words[0] >> PENDING_SHIFT) & 3)).checked_sub(1)
    }

    #[inline]
    pub(crate) fn verify(&self, medium: IndexMemory<'_>) -> Result<()> {
        if self.verifies() { Ok(()) } else { Err(self.damaged(medium)) }
    }

    fn verifies(&self) -> bool {
        let order = self.slot_order();
        let pending = if self.words[0] & PENDING == 0 { None } else { self.pending() };
        IS_ORDER >> order & 1 != 0 && self.words[0] == self.meta(order, pending)
    }

    #[cold]
    pub(crate) fn damaged(&self, medium: IndexMemory<'_>) -> Error {
        medium.damaged(self.at, "line of a tree node", "checksum mismatch")
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        let order = self.words[0];
        usize::from(order & 0x3 != 0) + usize::from(order & 0xC != 0) + usize::from(order & 0x30 != 0)
    }

    /// The slot of entry `index` in order.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> usize {
        (to_usize((self.slot_order() >> (2 * index)) & 3)).saturating_sub(1)
    }

    /// The last entry of a line that has one.
    #[inline]
    pub(crate) fn last(&self) -> Entry {
        self.entry(self.count().saturating_sub(1))
    }

    /// Entry `index` in order.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Entry {
        let slot = self.slot(index);
        (self.words[1 + 2 * slot], self.words[2 + 2 * slot])
    }

    pub(crate) fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> + '_ {
        (0..self.count()).map(|index| self.entry(index))
    }

    /// A slot that does not count.
    pub(crate) fn free_slot(&self) -> Option<usize> {
        let used = (0..self.count()).fold(0_u32, |used, index| used | 1 << self.slot(index));
        let free = to_usize((!used).trailing_zeros());
        (free < SLOTS).then_some(free)
    }

    /// Address of the first word of a slot.
    pub(crate) fn slot_at(&self, slot: usize) -> PmAddr {
        self.at.plus(8 + 16 * to_u64(slot))
    }

    /// The order of slots with `slot` as entry `index`.
    pub(crate) fn order_with(&self, index: usize, slot: usize) -> u64 {
        let order = self.slot_order();
        let below = order & ((1 << (2 * index)) - 1);
        (below | (order >> (2 * index)) << (2 * index + 2) | (to_u64(slot) + 1) << (2 * index)) & SLOT_ORDER
    }

    /// The order of slots without entry `index`.
    pub(crate) fn order_without(&self, index: usize) -> u64 {
        let order = self.slot_order();
        (order & ((1 << (2 * index)) - 1)) | (order >> (2 * index + 2)) << (2 * index)
    }

    /// The order of the first `count` entries.
    pub(crate) fn order_truncated(&self, count: usize) -> u64 {
        self.slot_order() & ((1 << (2 * count)) - 1)
    }
}

/// The content of a new node.
pub(crate) struct NewNode<'n> {
    pub(crate) level: u8,
    pub(crate) lines: usize,
    pub(crate) next: PmAddr,
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// Life in which it is made: it needs no repair in this one.
    pub(crate) stamp: u64,
    pub(crate) entries: &'n [Entry],
}

impl NewNode<'_> {
    /// Writes the node at the reserved place `at` and starts its write-back: the header line and the lines that hold
    /// entries. The action that publishes it fences first.
    pub(crate) fn write(&self, medium: IndexMemory<'_>, at: PmAddr) {
        let node = NodeAt(at);
        let lines = spread(self.entries, self.lines);
        let shape = shape_word(at, self.level, self.lines);
        let header = Line {
            at,
            words: [
                shape,
                checked::encode(node.order(), Order::identity(lines.len()).0),
                checked::encode_addr(node.next(), self.next),
                self.low,
                self.high,
                bounds_check(node, shape, (self.low, self.high, !self.next.is_null())),
                self.stamp,
                checked::encode_addr(node.owner(), medium.owner),
            ],
        };
        // The words that make the node reachable may not overtake its content: the action's first fence comes between.
        if lodestone_pmem::planted::active("fastfair-node-not-flushed") {
            medium.memory.write(at, &header.to_bytes());
        } else {
            medium.memory.write_and_flush(at, &header.words);
        }
        for (number, entries) in lines.enumerate() {
            let line = Line::new(node.line(number), entries);
            medium.memory.write_and_flush(line.at, &line.words);
        }
    }
}

/// Entries by line: two to a line where there are lines enough, so that each has room for one more.
pub(crate) fn spread(entries: &[Entry], lines: usize) -> std::slice::Chunks<'_, Entry> {
    let per_line = if entries.len() <= 2 * lines { 2 } else { SLOTS };
    entries.chunks(per_line)
}

/// The payload of an order word.
pub(crate) fn order_payload(order: Order) -> u64 {
    order.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_of_more_positions_than_a_node_has_lines_is_none() {
        let full = (0..LINES_MAX).fold(Order::identity(0), |order, line| order.with(line, line));
        assert_eq!(Order::decode(full.0, LINES_MAX), Some(full));
        for beyond in 1..16 {
            assert_eq!(Order::decode(full.0 | beyond << (4 * LINES_MAX), LINES_MAX), None);
        }
    }

    #[test]
    fn orders_behave_as_lists() {
        let mut order = Order::identity(0);
        let mut model: Vec<usize> = Vec::new();
        for (number, position) in [0, 0, 1, 3, 2, 5, 0, 7, 4, 9, 10].into_iter().enumerate() {
            order = order.with(position, number);
            model.insert(position, number);
            assert_eq!((0..order.count()).map(|at| order.line(at)).collect::<Vec<_>>(), model);
            assert_eq!(order.free_line(LINES_MAX), (number + 1 < LINES_MAX).then_some(number + 1));
            assert_eq!(Order::decode(order.0, LINES_MAX), Some(order));
        }
        while !model.is_empty() {
            let position = model.len() * 7 % model.len().max(2) % model.len();
            order = order.without(position);
            model.remove(position);
            assert_eq!((0..order.count()).map(|at| order.line(at)).collect::<Vec<_>>(), model);
        }
        assert_eq!(Order::decode(0x11, LINES_MAX), None, "a line stands twice");
        assert_eq!(Order::decode(0x101, LINES_MAX), None, "a hole");
    }

    #[test]
    fn lines_order_their_slots() {
        let at = PmAddr::new(0, 4096);
        let mut line = Line::new(at, &[(10, 1), (30, 3)]);
        assert_eq!(line.free_slot(), Some(2));
        line.words[5..7].copy_from_slice(&[20, 2]);
        line.words[0] = line.meta(line.order_with(1, 2), None);
        assert_eq!(line.entries().collect::<Vec<_>>(), [(10, 1), (20, 2), (30, 3)]);
        assert_eq!(line.free_slot(), None);
        line.words[0] = line.meta(line.order_without(0), None);
        assert_eq!(line.entries().collect::<Vec<_>>(), [(20, 2), (30, 3)]);
        line.words[0] = line.meta(line.order_truncated(1), None);
        assert_eq!((line.count(), line.entry(0)), (1, (20, 2)));
    }
}
