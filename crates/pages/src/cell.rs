//! Cells: the parts of an image that change in place, one for each row.
//!
//! A cell verifies itself, with the page, the batch and the number of the row. So one that a crash tears is told from
//! one that is whole, and the rest of the image stays right whatever becomes of it.

use lodestone_pmem::planted;
use lodestone_txn::{Tick, Writer};
use lodestone_width::{exact_u32, to_usize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::image::PageRow;

/// Bytes of a cell before the payload.
pub const CELL_HEAD_BYTES: usize = size_of::<CellHead>();

/// The beginning of a cell.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct CellHead {
    tick: U64,
    payload_bytes: U32,
    writer: U16,
    /// CRC-32C of page, batch and number of the row, then of the fields before this one, then of the payload.
    crc: U32,
}

/// The place of a cell, which its checksum has in it.
#[derive(Clone, Copy, Debug)]
pub struct CellPlace {
    /// The first page of the image.
    pub page: u32,
    /// The batch that wrote the image.
    pub batch: u64,
    /// The number of the row.
    pub row: u32,
}

impl CellPlace {
    fn checksum(self, head: &CellHead, payload: &[u8]) -> u32 {
        let seed = crc32c::crc32c(self.page.as_bytes());
        let seed = crc32c::crc32c_append(seed, self.batch.as_bytes());
        let seed = crc32c::crc32c_append(seed, self.row.as_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(seed, &head.as_bytes()[..CELL_HEAD_BYTES - 4]), payload)
    }

    /// Writes a version into the cell, which has room for it, and seals it. The bytes after the payload stay as they
    /// are.
    pub fn write(self, cell: &mut [u8], row: &PageRow<'_>) {
        Self::fill(cell, row);
        self.seal(cell);
    }

    /// Writes a version into a cell, and no checksum.
    pub fn fill(cell: &mut [u8], row: &PageRow<'_>) {
        let (tick, payload_bytes) = (row.tick.0.into(), exact_u32(row.payload.len()).into());
        let head = CellHead { tick, payload_bytes, writer: row.writer.number().into(), crc: U32::ZERO };
        let (of_head, room) = cell.split_at_mut(CELL_HEAD_BYTES);
        of_head.copy_from_slice(head.as_bytes());
        room[..row.payload.len()].copy_from_slice(row.payload);
    }

    /// Stores the checksum of a cell that has a version.
    pub fn seal(self, cell: &mut [u8]) {
        let (head, room) = CellHead::mut_from_prefix(cell).expect("a cell is not shorter than its head");
        let payload = &room[..to_usize(head.payload_bytes.get())];
        head.crc = self.checksum(head, payload).into();
    }

    /// The version in the cell. `None`: it is not whole.
    pub fn read(self, cell: &[u8]) -> Option<(Tick, Writer, &[u8])> {
        let (head, room) = CellHead::ref_from_prefix(cell).ok()?;
        let payload = room.get(..to_usize(head.payload_bytes.get()))?;
        let writer = Writer::new(head.writer.get())?;
        let is_whole = head.crc == self.checksum(head, payload) || planted::active("pages-torn-row-counts");
        is_whole.then_some((Tick(head.tick.get()), writer, payload))
    }

    /// The tick that a cell says, whole or not.
    ///
    /// # Panics
    /// If it is shorter than a head.
    pub fn tick(cell: &[u8]) -> Tick {
        let (head, _) = CellHead::ref_from_prefix(cell).expect("a cell is not shorter than its head");
        Tick(head.tick.get())
    }

    /// The version in a cell that is whole.
    ///
    /// # Panics
    /// Perhaps, if it is not.
    pub fn content(cell: &[u8]) -> (Tick, Writer, &[u8]) {
        let (head, room) = CellHead::ref_from_prefix(cell).expect("a cell is not shorter than its head");
        let writer = Writer::new(head.writer.get()).expect("it was verified");
        (Tick(head.tick.get()), writer, &room[..to_usize(head.payload_bytes.get())])
    }
}
