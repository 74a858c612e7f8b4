//! The room that images need, before any of them is written.

use lodestone_width::to_usize;

use crate::error::Result;
use crate::image::{PageRow, ROW_BYTES};
use crate::layout::IMAGE_HEAD_BYTES;
use crate::pages::Pages;

/// Bytes that a row takes in an image.
#[must_use]
pub fn row_bytes(key: &[u8], payload: &[u8]) -> usize {
    ROW_BYTES + key.len() + payload.len()
}

impl Pages {
    /// Bytes of its first possible key and its rows that an image in one page may have.
    #[must_use]
    pub fn page_room(&self) -> usize {
        self.places.piece_bytes() - IMAGE_HEAD_BYTES
    }

    /// Number of pages that an image of these rows takes.
    pub fn image_pages<'r>(&self, low: &[u8], rows: impl Iterator<Item = PageRow<'r>>) -> usize {
        let rows = rows.map(|row| row_bytes(row.key, row.payload)).sum::<usize>();
        (IMAGE_HEAD_BYTES + low.len() + rows).div_ceil(self.places.piece_bytes())
    }

    /// Looks for room for so many pages in `part`, or anywhere if that is full. If the heap must give some of it, it
    /// must have room for `spare` blocks of `spare_bytes` afterwards. Nothing is taken. The next batch takes all
    /// extents that it lacks at once.
    ///
    /// # Errors
    /// A full pool.
    pub fn find_room(&mut self, pages: usize, part: Option<u16>, spare: (u64, u64)) -> Result<()> {
        let part = self.wanted(part);
        self.reclaim();
        let extents = match self.try_room(pages, part, spare).or_else(|_| self.try_room(pages, None, spare)) {
            Err(_) if !self.waiting.is_empty() => {
                self.reclaim_all()?;
                self.try_room(pages, None, spare)
            }
            outcome => outcome,
        };
        self.expected = extents?;
        Ok(())
    }

    /// Lets the next batch take extents one by one, as it needs them: its images go to several parts.
    pub fn forget_room(&mut self) {
        self.expected = 0;
    }

    /// How many extents the pages need, for which there is room.
    fn try_room(&self, pages: usize, part: Option<u16>, (spare, spare_bytes): (u64, u64)) -> Result<usize> {
        let missing = pages.saturating_sub(self.free_for(part));
        let extents = missing.div_ceil(to_usize(self.places.options.extent_pages));
        if extents > 0 {
            // An action reserves blocks, and is dropped.
            let mut trial = self.heap.action();
            let bytes = self.places.extent_bytes();
            for _ in 0..extents {
                match part {
                    Some(part) => trial.alloc_in(part, bytes)?,
                    None => trial.alloc(bytes)?,
                };
            }
            (0..spare).try_for_each(|_| trial.alloc(spare_bytes).map(|_| ()))?;
        }
        Ok(extents)
    }
}
