//! Nodes of the tree, byte for byte; `docs/format.md` draws the same map.
//!
//! A node is a header line and up to [`LINES_MAX`] *entry lines* of three entries. An entry is two words: in a leaf the key's
//! order word and the value (or the key's block), in an inner node the order word of a child's lower bound and the child.
//!
//! ```text
//! header:  0 shape: checked, level | lines << 8 | tag << 16    8 order: checked, entry lines by position, 4 bits each
//!         16 next: checked address   24 low bound   32 high bound (of no meaning when next is null)
//!         40 bounds: checked, CRC-32C of low, high and whether there is a next   48 stamp   56 zero
//! line:    0 meta: slots in order, 2 bits each | pending slot << 6 | CRC-32C << 32   8 slot 0   24 slot 1   40 slot 2   56 zero
//! ```
//!
//! Invariants:
//! - a line's meta word alone says which slots count, and in which order, and its checksum covers them: so one store
//!   behind the entry's words, *in the same line*, publishes an entry, and no fence is needed between them;
//! - keys ascend over the positions of the order word, except that a crash inside the split of a line leaves the upper
//!   entries of one line in the line behind it as well (`FastFair::repair` drops them before anything is written there).

use lodestone_pmem::{LINE_BYTES, PmAddr, PmPtr, checked};

use crate::error::Result;
use crate::medium::Medium;

/// Most entry lines of a node: with the header line twelve lines, a size class of the heap, and 44 bits of order.
pub(crate) const LINES_MAX: usize = 11;
/// Entries of a line.
pub(crate) const SLOTS: usize = 3;
/// Stamp of a node that was merged away.
pub(crate) const DEAD: u64 = u64::MAX;

const TAG: u64 = 0xFA57;

/// Two words: what a key is ordered by, and what it leads to.
pub(crate) type Entry = (u64, u64);

/// Positions of a node: which entry line stands where in the order of keys.
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
        (64 - self.0.leading_zeros() as usize).div_ceil(4)
    }

    /// The line at a position.
    #[inline]
    pub(crate) fn line(self, position: usize) -> usize {
        (((self.0 >> (4 * position)) & 15) as usize).saturating_sub(1)
    }

    /// With `line` at `position`, what stood there and behind moved one on.
    pub(crate) fn with(self, position: usize, line: usize) -> Self {
        let below = self.0 & ((1 << (4 * position)) - 1);
        let above = (self.0 >> (4 * position)) << (4 * position + 4);
        Self(below | above | (line as u64 + 1) << (4 * position))
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

    /// The lowest line of `lines` that stands nowhere.
    pub(crate) fn free_line(self, lines: usize) -> Option<usize> {
        let used = (0..self.count()).fold(0_u32, |used, position| used | 1 << self.line(position));
        let free = (!used).trailing_zeros() as usize;
        (free < lines).then_some(free)
    }

    fn decode(payload: u64, lines: usize) -> Option<Self> {
        let order = Self(payload);
        let count = order.count();
        let mut used = 0_u32;
        for position in 0..count {
            let nibble = (payload >> (4 * position)) & 15;
            if nibble == 0 || nibble as usize > lines || used & 1 << nibble != 0 {
                return None;
            }
            used |= 1 << nibble;
        }
        (count <= lines).then_some(order)
    }
}

/// Words of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeAt(pub(crate) PmAddr);

impl NodeAt {
    pub(crate) fn bytes(lines: usize) -> u64 {
        LINE_BYTES * (1 + lines as u64)
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
    pub(crate) fn line(self, number: usize) -> PmAddr {
        self.0.plus(LINE_BYTES * (1 + number as u64))
    }
}

/// What the bounds word holds.
pub(crate) fn bounds_payload(low: u64, high: u64, has_next: bool) -> u64 {
    let mut bytes = [0; 17];
    bytes[..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..16].copy_from_slice(&high.to_le_bytes());
    bytes[16] = u8::from(has_next);
    u64::from(crc32c::crc32c(&bytes))
}

/// The words of a header, read and verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) at: NodeAt,
    pub(crate) level: u8,
    pub(crate) lines: usize,
    pub(crate) order: Order,
    pub(crate) next: PmAddr,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) stamp: u64,
    bounds: u64,
}

impl Header {
    /// Reads the header at `at`; the bounds are verified by [`verify_bounds`](Self::verify_bounds).
    #[inline]
    pub(crate) fn load(medium: Medium<'_>, at: PmAddr) -> Result<Self> {
        if !medium.memory.contains(at, NodeAt::bytes(1)) || at.line().start() != at {
            return Err(medium.damaged(at, "address of a tree node", "is no place of the pool where a node can be"));
        }
        let node = NodeAt(at);
        let words: [u64; 8] = medium.memory.get(PmPtr::new(at));
        let shape = checked::decode(at, words[0]);
        let Some(shape) = shape.filter(|shape| shape >> 16 == TAG) else {
            return Err(medium.damaged(at, "shape of a tree node", "checksum mismatch"));
        };
        let (level, lines) = ((shape & 0xFF) as u8, ((shape >> 8) & 0xFF) as usize);
        if lines > LINES_MAX || !medium.memory.contains(at, NodeAt::bytes(lines)) {
            return Err(medium.damaged(at, "shape of a tree node", "is no shape that fits the pool"));
        }
        let order = checked::decode(node.order(), words[1]).and_then(|payload| Order::decode(payload, lines));
        let order = order.ok_or_else(|| medium.damaged(node.order(), "order of a tree node", "checksum mismatch"))?;
        let next = checked::decode_addr(node.next(), words[2]);
        let next = next.ok_or_else(|| medium.damaged(node.next(), "link of a tree node", "checksum mismatch"))?;
        let (low, high, bounds, stamp) = (words[3], words[4], words[5], words[6]);
        Ok(Self { at: node, level, lines, order, next, low, high, stamp, bounds })
    }

    /// As [`load`](Self::load), without looking at checksums: for nodes on the way to a leaf, whose bounds tell whether the way was
    /// right. What stands there can be anything; every address in it is checked before it is followed.
    #[inline]
    pub(crate) fn peek(medium: Medium<'_>, at: PmAddr) -> Result<Self> {
        if !medium.memory.contains(at, NodeAt::bytes(15)) || at.line().start() != at {
            return Self::load(medium, at);
        }
        let words: [u64; 8] = medium.memory.get(PmPtr::new(at));
        let (level, lines) = ((words[0] & 0xFF) as u8, ((words[0] >> 8) & 0xFF) as usize);
        let order = Order(words[1] & (checked::PAYLOAD_LIMIT - 1));
        let raw = words[2] & (checked::PAYLOAD_LIMIT - 1);
        let next = PmAddr::new((raw >> 40) as u16, (raw & ((1 << 40) - 1)) << 3);
        let (low, high, bounds, stamp) = (words[3], words[4], words[5], words[6]);
        Ok(Self { at: NodeAt(at), level, lines, order, next, low, high, stamp, bounds })
    }

    /// The first entry of the line at a position: its order word and, if `both`, the other word. `None` when the line has no entry.
    #[inline]
    pub(crate) fn first_entry(&self, medium: Medium<'_>, position: usize, both: bool) -> Option<Entry> {
        let line = self.at.line(self.order.line(position));
        let slot = (medium.memory.load(line) & 3).checked_sub(1)?;
        let at = line.plus(8 + 16 * slot);
        Some((medium.memory.load(at), if both { medium.memory.load(at.plus(8)) } else { 0 }))
    }

    /// The last entry of the line at a position that has one; as [`first_entry`](Self::first_entry).
    #[inline]
    pub(crate) fn last_entry(&self, medium: Medium<'_>, position: usize, both: bool) -> Entry {
        let line = self.at.line(self.order.line(position));
        let order = medium.memory.load(line) & SLOT_ORDER;
        let slot =
            [order >> 4, order >> 2, order].into_iter().map(|slot| slot & 3).find(|slot| *slot != 0).unwrap_or(1);
        let at = line.plus(8 + 16 * (slot - 1));
        (medium.memory.load(at), if both { medium.memory.load(at.plus(8)) } else { 0 })
    }

    /// Whether the bounds are those that were written.
    #[inline]
    pub(crate) fn verify_bounds(&self, medium: Medium<'_>) -> Result<()> {
        let expected = bounds_payload(self.low, self.high, !self.next.is_null());
        if checked::decode(self.at.bounds(), self.bounds) == Some(expected) {
            return Ok(());
        }
        Err(medium.damaged(self.at.0, "bounds of a tree node", "checksum mismatch"))
    }

    /// The line at a position.
    #[inline]
    pub(crate) fn load_line(&self, medium: Medium<'_>, position: usize) -> Line {
        Line::load(medium, self.at.line(self.order.line(position)))
    }

    /// The line at a position, verified.
    #[inline]
    pub(crate) fn verified_line(&self, medium: Medium<'_>, position: usize) -> Result<Line> {
        let line = self.load_line(medium, position);
        line.verify(medium).map(|()| line)
    }
}

/// The words of an entry line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) at: PmAddr,
    pub(crate) words: [u64; 8],
}

const SLOT_ORDER: u64 = 0x3F;
const PENDING_SHIFT: u32 = 6;

impl Line {
    #[inline]
    pub(crate) fn load(medium: Medium<'_>, at: PmAddr) -> Self {
        Self { at, words: medium.memory.get(PmPtr::new(at)) }
    }

    /// A line with these entries, in order.
    pub(crate) fn new(at: PmAddr, entries: &[Entry]) -> Self {
        assert!(entries.len() <= SLOTS, "a line holds three entries");
        let mut line = Self { at, words: [0; 8] };
        let mut order = 0;
        for (slot, entry) in entries.iter().enumerate() {
            (line.words[1 + 2 * slot], line.words[2 + 2 * slot]) = *entry;
            order |= (slot as u64 + 1) << (2 * slot);
        }
        line.words[0] = line.meta(order, None);
        line
    }

    pub(crate) fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The meta word for these slots in this order; the value of a pending slot is not covered.
    pub(crate) fn meta(&self, order: u64, pending: Option<usize>) -> u64 {
        let low = order | pending.map_or(0, |slot| (slot as u64 + 1) << PENDING_SHIFT);
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&self.at.to_raw().to_le_bytes());
        bytes[8..16].copy_from_slice(&low.to_le_bytes());
        for position in 0..SLOTS {
            let Some(slot) = (((order >> (2 * position)) & 3) as usize).checked_sub(1) else { break };
            let at = 16 + 16 * slot;
            bytes[at..at + 8].copy_from_slice(&self.words[1 + 2 * slot].to_le_bytes());
            if pending != Some(slot) {
                bytes[at + 8..at + 16].copy_from_slice(&self.words[2 + 2 * slot].to_le_bytes());
            }
        }
        low | u64::from(crc32c::crc32c(&bytes)) << 32
    }

    /// The slots that count, two bits each.
    #[inline]
    pub(crate) fn slot_order(&self) -> u64 {
        self.words[0] & SLOT_ORDER
    }

    /// The slot whose value was being changed when the power failed.
    pub(crate) fn pending(&self) -> Option<usize> {
        (((self.words[0] >> PENDING_SHIFT) & 3) as usize).checked_sub(1)
    }

    #[inline]
    pub(crate) fn verify(&self, medium: Medium<'_>) -> Result<()> {
        let order = self.slot_order();
        let slots = [order & 3, (order >> 2) & 3, (order >> 4) & 3];
        let is_order = match slots {
            [0, 0, 0] | [_, 0, 0] => true,
            [a, b, 0] => a != 0 && a != b,
            [a, b, c] => a != 0 && b != 0 && a != b && a != c && b != c,
        };
        if is_order && self.words[0] == self.meta(order, self.pending()) {
            return Ok(());
        }
        Err(medium.damaged(self.at, "line of a tree node", "checksum mismatch"))
    }

    /// Number of entries.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        (64 - self.slot_order().leading_zeros() as usize).div_ceil(2).min(SLOTS)
    }

    /// The slot of entry `index` in order.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> usize {
        (((self.slot_order() >> (2 * index)) & 3) as usize).saturating_sub(1)
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
        let free = (!used).trailing_zeros() as usize;
        (free < SLOTS).then_some(free)
    }

    /// Address of the first word of a slot.
    pub(crate) fn slot_at(&self, slot: usize) -> PmAddr {
        self.at.plus(8 + 16 * slot as u64)
    }

    /// The order of slots with `slot` as entry `index`.
    pub(crate) fn order_with(&self, index: usize, slot: usize) -> u64 {
        let order = self.slot_order();
        let below = order & ((1 << (2 * index)) - 1);
        (below | (order >> (2 * index)) << (2 * index + 2) | (slot as u64 + 1) << (2 * index)) & SLOT_ORDER
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

/// What a new node holds.
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
    pub(crate) fn write(&self, medium: Medium<'_>, at: PmAddr) {
        let node = NodeAt(at);
        let lines = spread(self.entries, self.lines);
        let bounds = bounds_payload(self.low, self.high, !self.next.is_null());
        let header = Line {
            at,
            words: [
                checked::encode(at, u64::from(self.level) | (self.lines as u64) << 8 | TAG << 16),
                checked::encode(node.order(), Order::identity(lines.len()).0),
                checked::encode_addr(node.next(), self.next),
                self.low,
                self.high,
                checked::encode(node.bounds(), bounds),
                self.stamp,
                0,
            ],
        };
        // The words that make the node reachable may not overtake its content: the action's first fence comes between.
        if lodestone_pmem::planted::active("fastfair-node-not-flushed") {
            medium.memory.write(at, &header.to_bytes());
        } else {
            medium.memory.write_back(at, &header.to_bytes());
        }
        for (number, entries) in lines.iter().enumerate() {
            let line = Line::new(node.line(number), entries);
            medium.memory.write_back(line.at, &line.to_bytes());
        }
    }
}

/// Entries by line: two to a line where there are lines enough, so that each has room for one more.
pub(crate) fn spread(entries: &[Entry], lines: usize) -> Vec<&[Entry]> {
    let per_line = if entries.len() <= 2 * lines { 2 } else { SLOTS };
    entries.chunks(per_line).collect()
}

/// The payload of an order word.
pub(crate) fn order_payload(order: Order) -> u64 {
    order.0
}

#[cfg(test)]
mod tests {
    use super::*;

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
