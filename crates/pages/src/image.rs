//! An image: the rows of a leaf as bytes, in one page or several.
//!
//! ```text
//! low key bytes u32, rows u32, low key, then for each row:
//!   tick u64, key bytes u32, payload bytes u32, writer u16, key, payload
//! ```

use std::ops::Range;
use std::sync::Arc;

use lodestone_pmem::PmAddr;
use lodestone_txn::{Tick, Writer};
use lodestone_width::{exact_u32, to_usize};
use smallvec::SmallVec;

/// Bytes of a row before its key.
pub(crate) const ROW_BYTES: usize = 18;

/// The place of an image: the pages that it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The batch that wrote it.
    pub(crate) batch: u64,
    /// The number and the place of each page, by piece.
    pub(crate) pages: SmallVec<[(u32, PmAddr); 1]>,
}

impl Image {
    /// Number of pages.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }
}

/// A row of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRow<'p> {
    /// Its key.
    pub key: &'p [u8],
    /// The tick of its version.
    pub tick: Tick,
    /// The writer of its version. It means nothing in later lives.
    pub writer: Writer,
    /// The rest of the row.
    pub payload: &'p [u8],
}

/// An image of which only what the page table says was read.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Of two images with different ones, that with the smaller one comes first.
    pub(crate) order: u128,
    /// Its pages.
    pub image: Image,
    /// The tree.
    pub tree: u32,
    /// The first key that could be in the leaf.
    pub low: Arc<[u8]>,
    /// How many rows it has.
    pub rows: u32,
}

/// An image that was read.
#[derive(Debug)]
pub struct Found {
    /// Its pages.
    pub image: Image,
    /// The tree.
    pub tree: u32,
    /// The first key that could be in the leaf.
    pub low: Vec<u8>,
    rows: u32,
    bytes: Arc<[u8]>,
}

impl Found {
    /// The rows as they are in the image, one after the other.
    #[must_use]
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// As [`rows`](Self::rows), with the place of each payload in [`bytes`](Self::bytes).
    pub fn rows_with_places(&self) -> impl Iterator<Item = (PageRow<'_>, Range<usize>)> {
        let mut rest = &self.bytes[..];
        (0..self.rows).map_while(move |_| {
            let row = take_row(&mut rest)?;
            // It is the last part of a row.
            let end = self.bytes.len() - rest.len();
            Some((row, end - row.payload.len()..end))
        })
    }

    /// The rows, in the order in which they were written.
    pub fn rows(&self) -> impl Iterator<Item = PageRow<'_>> {
        self.rows_with_places().map(|(row, _)| row)
    }

    /// `None` when the bytes are no image.
    pub(crate) fn decode(image: Image, tree: u32, bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let (low_bytes, rows) = (take_u32(&mut rest)?, take_u32(&mut rest)?);
        let low = rest.split_off(..to_usize(low_bytes))?.to_vec();
        let found = Self { image, tree, low, rows, bytes: rest.into() };
        for _ in 0..rows {
            take_row(&mut rest)?;
        }
        rest.is_empty().then_some(found)
    }
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    rest.split_off(..4)?.try_into().ok().map(u32::from_le_bytes)
}

fn take_row<'p>(rest: &mut &'p [u8]) -> Option<PageRow<'p>> {
    let tick = Tick(u64::from_le_bytes(rest.split_off(..8)?.try_into().ok()?));
    let (key, payload) = (take_u32(rest)?, take_u32(rest)?);
    let writer = Writer::new(u16::from_le_bytes(rest.split_off(..2)?.try_into().ok()?))?;
    let key = rest.split_off(..to_usize(key))?;
    let payload = rest.split_off(..to_usize(payload))?;
    Some(PageRow { key, tick, writer, payload })
}

/// The bytes of an image. Returns the number of rows.
pub(crate) fn encode<'r>(out: &mut Vec<u8>, low: &[u8], rows: impl Iterator<Item = PageRow<'r>>) -> u32 {
    out.clear();
    out.extend(exact_u32(low.len()).to_le_bytes());
    out.extend([0; 4]);
    out.extend(low);
    let mut count = 0_u32;
    for row in rows {
        out.extend(row.tick.0.to_le_bytes());
        out.extend(exact_u32(row.key.len()).to_le_bytes());
        out.extend(exact_u32(row.payload.len()).to_le_bytes());
        out.extend(row.writer.number().to_le_bytes());
        out.extend(row.key);
        out.extend(row.payload);
        count += 1;
    }
    out[4..8].copy_from_slice(&count.to_le_bytes());
    count
}
