//! Reading images, by any threads.

use lodestone_heap::Heap;
use lodestone_pmem::{LINE_BYTES, PmAddr};
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::error::Result;
use crate::image::{Found, Image};
use crate::layout::{PAGE_HEAD_BYTES, PAGE_MAGIC, PageHead};
use crate::pages::damage;

/// A reader of images: see [`Pages::reader`](crate::Pages::reader).
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) heap: Heap,
    pub(crate) piece_bytes: usize,
}

impl Reader {
    /// Reads an image. The caller makes sure that it counts until this returns.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged) names the page.
    pub fn read(&self, image: &Image) -> Result<Found> {
        let mut bytes = Vec::new();
        let (first, first_at) = image.pages[0];
        let mut tree = None;
        for (piece, &(page, at)) in (0..).zip(&image.pages) {
            let bad = |finding: &str| Err(damage(&self.heap, "page", at, &format!("page {page}: {finding}")));
            let memory = self.heap.memory();
            // A call of the device for all of it. In memory only what is there is read.
            let ahead = if memory.direct_unit() > LINE_BYTES { self.piece_bytes } else { 0 };
            let start = bytes.len();
            bytes.resize(start + PAGE_HEAD_BYTES + ahead, 0);
            memory.read_directly(at, &mut bytes[start..])?;
            let head = PageHead::read_from_bytes(&bytes[start..start + PAGE_HEAD_BYTES]).expect("so many bytes");
            if head.magic != PAGE_MAGIC || to_usize(head.bytes) > self.piece_bytes {
                return bad("its head is not that of a page");
            }
            bytes.drain(start..start + PAGE_HEAD_BYTES);
            bytes.resize(start + to_usize(head.bytes), 0);
            if ahead == 0 {
                memory.read_directly(at.plus(to_u64(PAGE_HEAD_BYTES)), &mut bytes[start..])?;
            }
            if head.crc != head.checksum(&bytes[start..]) {
                return bad("its checksum fails");
            }
            if (head.page, head.batch) != (page, image.batch) {
                return bad("it is another page, or of another batch than the page table says");
            }
            let of = (head.first, head.piece, head.pieces, *tree.get_or_insert(head.tree));
            if of != (first, piece, exact_u32(image.pages.len()), head.tree) {
                return bad(&format!("it is not piece {piece} of the image that begins at page {first}"));
            }
        }
        let tree = tree.unwrap_or_default();
        Found::decode(image.clone(), tree, &bytes)
            .ok_or_else(|| self.damaged(first_at, "its checksums are right, but its rows are not whole"))
    }

    /// An error about a page that verifies and makes no sense.
    #[must_use]
    pub fn senseless(&self, image: &Image, finding: &str) -> crate::Error {
        let (page, at) = image.pages[0];
        self.damaged(at, &format!("page {page}: {finding}"))
    }

    fn damaged(&self, at: PmAddr, finding: &str) -> crate::Error {
        damage(&self.heap, "page", at, finding)
    }
}
