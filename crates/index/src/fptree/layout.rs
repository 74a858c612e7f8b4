//! The layout of a leaf of the tree, byte for byte; `docs/format.md` draws the same map.
//!
//! A leaf is a *frame* (link to the next leaf, shape, lower bound) and a table of cell lines of one bucket. All but the
//! link and the lines never changes while the leaf is allocated.

use lodestone_heap::Heap;
use lodestone_pmem::{MEDIA_BLOCK_BYTES, PmAddr, WORD_BYTES, checked};
use lodestone_width::{low_u32, to_u64, to_usize};

use crate::anchor::AnchorKind;
use crate::cells::{Image, KeyKind, Shape, TableAt};
use crate::error::Result;
use crate::kinds::{FPTREE_STRINGS, FPTREE_WORDS};
use crate::layout::{KEY_BYTES_MAX, low_check};
use crate::medium::IndexMemory;

/// The anchor of a tree whose keys are words.
const WORDS: AnchorKind = AnchorKind { magic: u64::from_le_bytes(*b"LDSTFPTW"), version: 3, kind: &FPTREE_WORDS };
/// The anchor of a tree whose keys are strings.
const STRINGS: AnchorKind = AnchorKind { magic: u64::from_le_bytes(*b"LDSTFPTS"), version: 3, kind: &FPTREE_STRINGS };

/// The anchor of a tree with such keys.
pub(crate) const fn tree_anchor(kind: KeyKind) -> &'static AnchorKind {
    match kind {
        KeyKind::Number => &WORDS,
        KeyKind::Bytes => &STRINGS,
    }
}

/// Most lines of a leaf.
pub(crate) const LINES_MAX: u32 = 64;
/// Start value of the hash that names a key's home line inside a leaf.
pub(crate) const HOME_SEED: u64 = 0;

/// Lines of a leaf that an action of `heap` can change at once: a split sets their headers and the link, and allocates
/// a leaf; a merge frees one.
pub(crate) fn lines_max(heap: &Heap) -> u32 {
    let lines = heap.action_words_max().saturating_sub(2).max(1);
    u32::try_from(lines).unwrap_or(LINES_MAX).min(LINES_MAX)
}

/// The options in the anchor.
pub(crate) fn encode_options(kind: KeyKind, lines: u32) -> u32 {
    kind.code() | lines << 2
}

/// Kind of keys and lines of new leaves, or `None` when no tree has these options.
pub(crate) fn decode_options(options: u32) -> Option<(KeyKind, u32)> {
    let kind = [KeyKind::Number, KeyKind::Bytes].into_iter().find(|kind| kind.code() == options & 3)?;
    (1..=LINES_MAX).contains(&(options >> 2)).then_some((kind, options >> 2))
}

/// Words of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeLeafAt(pub(crate) PmAddr);

/// The words of a leaf that never change.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) lines: u32,
    pub(crate) low: Box<[u8]>,
}

impl TreeLeafAt {
    /// Bytes of a leaf; with room to begin the table with a media block.
    pub(crate) fn bytes(lines: u32, low_bytes: usize) -> u64 {
        Self::frame_bytes(low_bytes).next_multiple_of(64) + (MEDIA_BLOCK_BYTES - 64) + shape_of(lines).bytes()
    }

    fn frame_bytes(low_bytes: usize) -> u64 {
        3 * WORD_BYTES + to_u64(low_bytes)
    }

    /// Checked address of the next leaf, null in the last one.
    pub(crate) fn next(self) -> PmAddr {
        self.0
    }

    fn shape(self) -> PmAddr {
        self.0.plus(WORD_BYTES)
    }

    fn low_crc(self) -> PmAddr {
        self.0.plus(2 * WORD_BYTES)
    }

    fn low(self) -> PmAddr {
        self.0.plus(3 * WORD_BYTES)
    }

    /// The lines.
    pub(crate) fn table(self, lines: u32, low_bytes: usize) -> TableAt {
        let first = (self.0.offset() + Self::frame_bytes(low_bytes)).next_multiple_of(MEDIA_BLOCK_BYTES);
        TableAt { first: PmAddr::new(self.0.part(), first), shape: shape_of(lines) }
    }

    /// The content of a new leaf of the tree whose anchor is at `owner`, frame and table apart.
    pub(crate) fn encode(self, owner: PmAddr, low: &[u8], next: PmAddr, image: &Image) -> (Vec<u8>, Vec<u8>) {
        let lines = image.at().shape.lines;
        let shape = u64::from(lines) | to_u64(low.len()) << 16;
        let words = [
            checked::encode_addr(self.next(), next),
            checked::encode(self.shape(), shape),
            checked::encode(self.low_crc(), low_check(owner, low)),
        ];
        let mut frame: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        frame.extend_from_slice(low);
        frame.resize(frame.len().next_multiple_of(8), 0);
        let mut table = Vec::new();
        image.append_bytes(&mut table);
        (frame, table)
    }

    /// Reads and verifies the frame.
    pub(crate) fn frame(self, medium: IndexMemory<'_>) -> Result<Frame> {
        let shape = medium.word(self.shape(), "shape of a tree leaf")?;
        let (lines, low_bytes) = (low_u32(shape & 0xFFFF), to_usize(shape >> 16));
        let sane = (1..=LINES_MAX).contains(&lines)
            && low_bytes <= KEY_BYTES_MAX
            && medium.memory.contains(self.0, Self::bytes(lines, low_bytes));
        if !sane {
            return Err(medium.damaged(self.shape(), "shape of a tree leaf", format!("{shape:#x} fits no leaf")));
        }
        let mut low = vec![0; low_bytes].into_boxed_slice();
        medium.memory.read(self.low(), &mut low);
        if medium.word(self.low_crc(), "checksum of a lower bound")? != low_check(medium.owner, &low) {
            return Err(medium.damaged(self.low(), "lower bound of a tree leaf", "checksum mismatch"));
        }
        Ok(Frame { lines, low })
    }
}

/// A leaf's table: one bucket, no stash.
pub(crate) fn shape_of(lines: u32) -> Shape {
    Shape { buckets: 1, lines, stash: 0 }
}
