//! The block that everything of a volume hangs on: sizes, the place of the log, the areas of pages.
//!
//! ```text
//! block   0  head, 128 bytes; a copy at 512
//!      4096  table of areas: a checked word for each area, 0 while it has no pages; then a copy of the table
//! head    0 magic "LDSTFSVL" 8    8 version 4     12 bytes of a page 4   16 volume id 8   24 salt 8
//!        32 pages 8              40 pages of an area 8    48 place of the log 8    56 bytes of the log 8
//!        64 creation 8           72 zeroes 52   124 CRC-32C of all before
//! area    4 bytes for each page: its CRC-32C; then, from the next multiple of 4096 on, the pages
//! ```
//!
//! The head never changes. An area is allocated when the first of its pages is written: one action of the heap takes
//! the block and sets both words.

use std::path::Path;

use lodestone_heap::{Action, Heap};
use lodestone_pmem::{Memory, PmAddr, WORD_BYTES, checked};
use lodestone_store::{Acknowledge, Contents, Flaw, Kind, KindCode, KindError, Object, Records, Registered};
use lodestone_width::{to_u64, to_usize};

use crate::bytes::{Reader, Writer};
use crate::error::{Error, Result, damaged};
use crate::inode::PAGE_BYTES;

/// Name of the volume's object in the store.
pub(crate) const VOLUME_NAME: &str = "fs.volume";
/// The newest format that this program knows.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"LDSTFSVL";
const HEAD_BYTES: usize = 128;
const COPY_OFFSET: u64 = 512;
const TABLE_OFFSET: u64 = 4096;

/// The head of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Super {
    pub(crate) page_bytes: u64,
    pub(crate) volume_id: u64,
    pub(crate) salt: u64,
    /// Pages, page 0 included.
    pub(crate) pages: u64,
    pub(crate) area_pages: u64,
    pub(crate) ring_at: PmAddr,
    pub(crate) ring_bytes: u64,
    pub(crate) created: i64,
}

impl Super {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Writer(MAGIC.to_vec());
        out.u32(FORMAT_VERSION).u32(lodestone_width::low_u32(self.page_bytes)).u64(self.volume_id).u64(self.salt);
        out.u64(self.pages).u64(self.area_pages).u64(self.ring_at.to_raw()).u64(self.ring_bytes).i64(self.created);
        out.0.resize(HEAD_BYTES - 4, 0);
        let crc = crc32c::crc32c(&out.0);
        out.u32(crc);
        out.0
    }

    /// The head in `bytes`. The error is the version, when it is a newer one.
    fn from_bytes(bytes: &[u8]) -> std::result::Result<Option<Self>, u32> {
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else { return Ok(None) };
        if bytes.len() != HEAD_BYTES || crc32c::crc32c(body) != u32::from_le_bytes(*crc) || !body.starts_with(MAGIC) {
            return Ok(None);
        }
        let mut from = Reader(&body[MAGIC.len()..]);
        let version = from.u32().unwrap_or(0);
        if version > FORMAT_VERSION {
            return Err(version);
        }
        Ok(Self::fields(&mut from).filter(|_| version == FORMAT_VERSION))
    }

    fn fields(from: &mut Reader<'_>) -> Option<Self> {
        let page_bytes = from.u32()?;
        let head = Self {
            page_bytes: u64::from(page_bytes),
            volume_id: from.u64()?,
            salt: from.u64()?,
            pages: from.u64()?,
            area_pages: from.u64()?,
            ring_at: PmAddr::from_raw(from.u64()?),
            ring_bytes: from.u64()?,
            created: from.i64()?,
        };
        let fits = page_bytes.is_power_of_two()
            && (64..=1 << 16).contains(&page_bytes)
            && (1..=1 << 20).contains(&head.area_pages)
            && head.pages > 1
            && head.pages <= 1 << 40
            && head.ring_bytes <= 1 << 40;
        fits.then_some(head)
    }

    /// Areas that there can be.
    pub(crate) const fn areas(&self) -> u64 {
        self.pages.div_ceil(self.area_pages)
    }

    /// Bytes of the block of an area.
    pub(crate) const fn area_bytes(&self) -> u64 {
        // The pages begin at a multiple of their size, wherever the block is.
        (self.area_pages * 4).next_multiple_of(self.page_bytes) + (self.area_pages + 1) * self.page_bytes
    }

    fn table_bytes(&self) -> u64 {
        self.areas() * WORD_BYTES
    }

    /// Bytes of the block.
    pub(crate) fn block_bytes(&self) -> u64 {
        TABLE_OFFSET + 2 * self.table_bytes()
    }

    /// The words of area `area`.
    pub(crate) fn area_words(&self, at: PmAddr, area: u64) -> [PmAddr; 2] {
        [0, self.table_bytes()].map(|copy| at.plus(TABLE_OFFSET + copy + area * WORD_BYTES))
    }

    /// Where the pages of the area at `at` begin.
    pub(crate) fn pages_of(&self, at: PmAddr) -> PmAddr {
        let table_end = at.offset() + self.area_pages * 4;
        PmAddr::new(at.part(), table_end.next_multiple_of(self.page_bytes))
    }
}

/// Sizes of a new volume in a heap with so many bytes.
pub(crate) fn sizes(heap_bytes: u64, ring_bytes: u64) -> Result<(u64, u64, u64)> {
    let ring = if ring_bytes > 0 { ring_bytes } else { (heap_bytes / 32).clamp(256 << 10, 64 << 20) };
    let ring = ring.next_multiple_of(64);
    // An eighth for the image, at least a mebibyte: trees of small files need as much.
    let image = (heap_bytes / 8).max(1 << 20);
    let rest = heap_bytes.saturating_sub(ring + image);
    // Areas of 16 MiB fill the zones of the heap. A small volume has at least a dozen.
    let area_pages = (rest / PAGE_BYTES / 16).clamp(56, 4064);
    let area_pages = if area_pages < 4064 { (area_pages & !15) + 8 } else { area_pages };
    let area_bytes = (area_pages * (PAGE_BYTES + 4) + 2 * PAGE_BYTES).next_multiple_of(64 << 10);
    let areas = rest / area_bytes;
    if areas == 0 {
        let needed = (ring + image + area_bytes + (1 << 20)).div_ceil(1 << 20);
        return Err(Error::Options(format!("a volume needs at least {needed} MiB; give it a larger size")));
    }
    Ok((areas * area_pages, area_pages, ring))
}

/// Writes a new volume's block in an action of the heap. The log is made by the caller.
pub(crate) fn make(memory: &Memory, action: &mut Action<'_>, head: &Super) -> Result<PmAddr> {
    let at = action.alloc_zeroed(head.block_bytes())?;
    for copy in [0, COPY_OFFSET] {
        // Persistent with the commit of the action, which makes the block count.
        memory.write_back(at.plus(copy), &head.to_bytes());
    }
    Ok(at)
}

/// Reads the head of the volume at `at`.
pub(crate) fn read(memory: &Memory, at: PmAddr, path: &Path) -> Result<Super> {
    let mut newer = 0;
    for copy in [0, COPY_OFFSET] {
        let mut bytes = vec![0; HEAD_BYTES];
        if !memory.contains(at.plus(copy), to_u64(HEAD_BYTES)) {
            continue;
        }
        memory.read(at.plus(copy), &mut bytes);
        match Super::from_bytes(&bytes) {
            Ok(Some(head)) if memory.contains(at, head.block_bytes()) => return Ok(head),
            Ok(_) => {}
            Err(version) => newer = version,
        }
    }
    if newer > 0 {
        return Err(Error::TooNew { path: path.to_owned(), found: newer, known: FORMAT_VERSION });
    }
    Err(damaged("head", format!("both copies at {at} do not verify")))
}

/// The place of area `area`: of the intact one of its two words.
pub(crate) fn area(memory: &Memory, at: PmAddr, head: &Super, area: u64) -> Result<Option<PmAddr>> {
    let words = head.area_words(at, area).map(|word_at| (word_at, memory.load(word_at)));
    let decoded = words.map(|(word_at, word)| checked::decode_addr(word_at, word));
    let inside = |found: &PmAddr| memory.contains(*found, head.area_bytes());
    match decoded.into_iter().flatten().find(inside) {
        Some(found) => Ok(Some(found)),
        None if words.iter().any(|(_, word)| *word == 0) => Ok(None),
        None => Err(damaged("table of areas", format!("both words of area {area} do not verify"))),
    }
}

/// The kind of a volume in a store.
pub static VOLUME: VolumeKind = VolumeKind;

inventory::submit! { Registered(&VOLUME) }

/// See [`VOLUME`].
#[derive(Debug)]
pub struct VolumeKind;

impl Kind for VolumeKind {
    fn code(&self) -> KindCode {
        KindCode(*b"FSVL")
    }

    fn title(&self) -> &'static str {
        "a file system's log and pages"
    }

    fn examine(&self, object: Object) -> std::result::Result<Contents, KindError> {
        let (memory, at) = (object.memory(), object.at());
        let head = read(memory, at, object.store().pool().path())?;
        let mut contents = Contents { records: 0, ..Contents::default() };
        contents.blocks = vec![(at, head.block_bytes()), (head.ring_at, head.ring_bytes)];
        for number in 0..head.areas() {
            match area(memory, at, &head, number) {
                Ok(Some(found)) => contents.blocks.push((found, head.area_bytes())),
                Ok(None) => {}
                Err(error) => {
                    let at = head.area_words(at, number)[0];
                    let (text, is_in_heap) = (error.to_string(), false);
                    contents.flaws.push(Flaw { at, text, blocks_are_known: false, is_in_heap });
                }
            }
        }
        Ok(contents)
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        read(heap.memory(), at, heap.pool().path()).is_ok()
    }

    fn records(
        &self,
        object: Object,
        _: Option<&str>,
        _: Acknowledge,
    ) -> std::result::Result<Box<dyn Records>, KindError> {
        Err(format!("`{}` is part of a file system; mount it by `lodestone fs mount`", object.name()).into())
    }
}

/// Number of a page within its area, and the area.
pub(crate) fn split(head: &Super, page: u64) -> (usize, u64) {
    (to_usize(page / head.area_pages), page % head.area_pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> Super {
        Super {
            page_bytes: PAGE_BYTES,
            volume_id: 7,
            salt: 9,
            pages: 4096,
            area_pages: 64,
            ring_at: PmAddr::new(0, 4096),
            ring_bytes: 65536,
            created: -1,
        }
    }

    #[test]
    fn a_head_comes_back_and_a_newer_one_is_named() {
        assert_eq!(Super::from_bytes(&head().to_bytes()), Ok(Some(head())));
        let mut newer = head().to_bytes();
        newer[8] = 2;
        let crc = crc32c::crc32c(&newer[..124]);
        newer[124..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Super::from_bytes(&newer), Err(2));
        for byte in 0..HEAD_BYTES {
            let mut wrong = head().to_bytes();
            wrong[byte] ^= 1;
            assert_eq!(Super::from_bytes(&wrong), Ok(None), "byte {byte}");
        }
    }

    #[test]
    fn sizes_fit_the_heap() {
        for shift in 22..44 {
            let bytes = 1_u64 << shift;
            let Ok((pages, area_pages, ring)) = sizes(bytes, 0) else {
                assert!(shift < 23);
                continue;
            };
            assert!(pages * PAGE_BYTES + ring < bytes, "{bytes} bytes");
            assert!(shift < 25 || pages * PAGE_BYTES > bytes / 10 * 7, "{bytes} bytes have {pages} pages");
            let block = Super { pages, area_pages, ..head() }.area_bytes();
            assert!(area_pages < 4064 || block <= 16 << 20, "sixteen of them fill a zone");
        }
    }
}
