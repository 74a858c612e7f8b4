//! Records: what stands in a sender's ring travels unchanged, and members keep its head.
//!
//! ```text
//! head, 64 bytes, little-endian
//!   0  crc 4          CRC-32C of bytes 4..64 and the body, with the salt of the group as its seed
//!   4  body bytes 4
//!   8  reuse 8        every member had this record durably before the pages of this one were used again
//!  16  sequence 8     place in the group
//!  24  operation 8    number of the operation; the sequence in group 0
//!  32  term 4         of the sender that made it
//!  36  opcode 2       the caller's
//!  38  flags 2        1 sync, 2 merge, 4 inline, 8 begin (the first record of a term), 16 payloads
//!  40  inode 8        the caller's
//!  48  offset 8       the caller's
//!  56  count 4        pages that it writes
//!  60  group 4
//! body, by its form
//!   inline   any bytes; members keep them in their log
//!   pages    count times {new page 8, old page or 0 8}, then count whole pages
//!   merge    {new page 8, old page 8}, offset in the page 4, bytes 4, then so many bytes
//!   inline with payloads   count 4, zero 4, count times {unit 4, zero 4, sequence 8}, then any bytes
//! ```
//!
//! Invariant: a record whose checksum holds was made by a sender of this group. So its form is checked once, when it is
//! made and again when it arrives, and never trusted in between.

use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::ids::{GroupId, Sequence, Term};

/// Bytes of a record's head.
pub const RECORD_HEAD_BYTES: usize = 64;
/// Longest body: 64 KiB of payload and the numbers of its pages.
pub const BODY_BYTES_MAX: usize = (64 << 10) + 1024;
/// Bytes of the numbers of one page.
pub const PAIR_BYTES: usize = 16;
/// Bytes before the payload of a merge.
pub const MERGE_HEAD_BYTES: usize = PAIR_BYTES + 8;

/// Flag: the caller waits for the quorum.
pub const FLAG_SYNC: u16 = 1;
/// Flag: bytes of one page, over the rest of its old version.
pub const FLAG_MERGE: u16 = 2;
/// Flag: the body has no pages; members keep it in their log.
pub const FLAG_INLINE: u16 = 4;
/// Flag: the first record of a term.
pub const FLAG_BEGIN: u16 = 8;
/// Flag: an operation that names its payloads in units; see [`Payloads`].
pub const FLAG_PAYLOADS: u16 = 16;

/// The head of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHead {
    /// Checksum of head and body; set by [`seal`](Self::seal).
    pub crc: u32,
    /// Bytes of the body.
    pub body_bytes: u32,
    /// The newest record that freed a page which this record uses again.
    pub reuse: Sequence,
    /// Place in the group.
    pub sequence: Sequence,
    /// Number of the operation that it is part of.
    pub operation: u64,
    /// Term of the sender that made it.
    pub term: Term,
    /// The caller's code.
    pub opcode: u16,
    /// The flags above.
    pub flags: u16,
    /// The caller's inode.
    pub inode: u64,
    /// The caller's offset in the file.
    pub offset: u64,
    /// Pages that it writes.
    pub count: u32,
    /// The group.
    pub group: GroupId,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    crc: U32,
    body_bytes: U32,
    reuse: U64,
    sequence: U64,
    operation: U64,
    term: U32,
    opcode: U16,
    flags: U16,
    inode: U64,
    offset: U64,
    count: U32,
    group: U32,
}

const _: () = assert!(size_of::<Raw>() == RECORD_HEAD_BYTES);

/// The page that one part of a record writes, and the one that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePair {
    /// The page that is written.
    pub new: u64,
    /// The page that is freed by it; 0: none.
    pub old: u64,
}

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bytes for the log.
    Inline,
    /// Whole pages.
    Pages,
    /// A part of a page.
    Merge,
}

impl RecordHead {
    /// The bytes of the head.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_HEAD_BYTES] {
        let raw = Raw {
            crc: self.crc.into(),
            body_bytes: self.body_bytes.into(),
            reuse: self.reuse.0.into(),
            sequence: self.sequence.0.into(),
            operation: self.operation.into(),
            term: self.term.0.into(),
            opcode: self.opcode.into(),
            flags: self.flags.into(),
            inode: self.inode.into(),
            offset: self.offset.into(),
            count: self.count.into(),
            group: self.group.0.into(),
        };
        let mut bytes = [0; RECORD_HEAD_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The head at the start of `bytes`, unverified; `None` if they are too few.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (raw, _) = Raw::read_from_prefix(bytes).ok()?;
        Some(Self {
            crc: raw.crc.get(),
            body_bytes: raw.body_bytes.get(),
            reuse: Sequence(raw.reuse.get()),
            sequence: Sequence(raw.sequence.get()),
            operation: raw.operation.get(),
            term: Term(raw.term.get()),
            opcode: raw.opcode.get(),
            flags: raw.flags.get(),
            inode: raw.inode.get(),
            offset: raw.offset.get(),
            count: raw.count.get(),
            group: GroupId(raw.group.get()),
        })
    }

    fn checksum(&self, salt: u64, body: &[u8]) -> u32 {
        let seed = crc32c::crc32c(&salt.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c_append(seed, &self.to_bytes()[4..]), body)
    }

    /// Sets length and checksum for `body`.
    ///
    /// # Errors
    /// [`Error::RecordTooLarge`].
    pub fn seal(&mut self, salt: u64, body: &[u8]) -> Result<()> {
        if body.len() > BODY_BYTES_MAX {
            return Err(Error::RecordTooLarge { bytes: body.len(), limit: BODY_BYTES_MAX });
        }
        self.body_bytes = exact_u32(body.len());
        self.crc = self.checksum(salt, body);
        Ok(())
    }

    /// Whether head and `body` are as they were sealed.
    #[must_use]
    pub fn verifies(&self, salt: u64, body: &[u8]) -> bool {
        to_u64(body.len()) == u64::from(self.body_bytes) && self.checksum(salt, body) == self.crc
    }

    /// The form that the flags say.
    #[must_use]
    pub const fn form(&self) -> Form {
        if self.flags & FLAG_INLINE != 0 {
            Form::Inline
        } else if self.flags & FLAG_MERGE != 0 {
            Form::Merge
        } else {
            Form::Pages
        }
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Bytes of the body that members keep in their log beside the head: all of it, or the part before the payload.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        match self.form() {
            Form::Inline => to_usize(self.body_bytes),
            Form::Pages => to_usize(self.count).saturating_mul(PAIR_BYTES),
            Form::Merge => MERGE_HEAD_BYTES,
        }
    }

    /// Checks that `body` has the form that the head says, for pages of `page_bytes`, all below `pages`.
    ///
    /// # Errors
    /// [`Error::Malformed`].
    pub fn check_form(&self, body: &[u8], page_bytes: u32, pages: u64) -> Result<()> {
        let wrong = |what| Err(Error::Malformed { what });
        if body.len() > BODY_BYTES_MAX || to_u64(body.len()) != u64::from(self.body_bytes) {
            return wrong("the length of the body");
        }
        match self.form() {
            Form::Inline if self.count != 0 => return wrong("an inline record with pages"),
            Form::Inline if self.has(FLAG_PAYLOADS) && Payloads::of(body).is_none() => {
                return wrong("an operation whose list of payloads is not whole");
            }
            Form::Inline => return Ok(()),
            Form::Pages => {
                let one = u64::from(page_bytes) + to_u64(PAIR_BYTES);
                if self.count == 0 || u64::from(self.count).checked_mul(one) != Some(to_u64(body.len())) {
                    return wrong("the number of pages and the length of the body differ");
                }
            }
            Form::Merge => {
                let Some(merge) = Merge::of(body).filter(|_| self.count == 1) else {
                    return wrong("a merge is of one page");
                };
                if u64::from(merge.at) + to_u64(merge.bytes.len()) > u64::from(page_bytes) {
                    return wrong("a merge beyond the end of its page");
                }
            }
        }
        if self.pairs(body).any(|pair| pair.new == 0 || pair.new >= pages || pair.old >= pages) {
            return wrong("a page outside the area");
        }
        Ok(())
    }

    /// The pages of `body`, whose form was checked or which is a kept part of it.
    pub fn pairs<'b>(&self, body: &'b [u8]) -> impl Iterator<Item = PagePair> + use<'b> {
        let count = if self.form() == Form::Inline { 0 } else { to_usize(self.count) };
        body.chunks_exact(PAIR_BYTES).take(count).map(|pair| {
            let word = |at: usize| pair.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
            PagePair { new: word(0), old: word(8) }
        })
    }
}

/// The body of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge<'b> {
    /// Pages.
    pub pair: PagePair,
    /// Where in the page the bytes go.
    pub at: u32,
    /// The bytes.
    pub bytes: &'b [u8],
}

impl<'b> Merge<'b> {
    /// The merge in `body`, if that is whole.
    #[must_use]
    pub fn of(body: &'b [u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let bytes = body.get(MERGE_HEAD_BYTES..)?;
        let length = half(20)?;
        (u64::from(length) == to_u64(bytes.len())).then_some(())?;
        Some(Self { pair: PagePair { new: word(0)?, old: word(8)? }, at: half(16)?, bytes })
    }
}

/// The body of a record that writes whole pages.
#[must_use]
pub fn pages_body(pages: &[(PagePair, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (pair, _) in pages {
        body.extend(pair.new.to_le_bytes());
        body.extend(pair.old.to_le_bytes());
    }
    pages.iter().for_each(|(_, bytes)| body.extend(*bytes));
    body
}

/// The body of a record that writes `bytes` at `at` of a page, over its old version.
///
/// # Errors
/// [`Error::RecordTooLarge`].
pub fn merge_body(pair: PagePair, at: u32, bytes: &[u8]) -> Result<Vec<u8>> {
    let limit = BODY_BYTES_MAX - MERGE_HEAD_BYTES;
    let length = u32::try_from(bytes.len()).map_err(|_| Error::RecordTooLarge { bytes: bytes.len(), limit })?;
    let mut body = Vec::with_capacity(MERGE_HEAD_BYTES + bytes.len());
    body.extend(pair.new.to_le_bytes());
    body.extend(pair.old.to_le_bytes());
    body.extend(at.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(bytes);
    Ok(body)
}

/// Bytes before the places of an operation's payloads.
const PAYLOADS_HEAD_BYTES: usize = 8;
/// Bytes of one place.
const PLACE_BYTES: usize = 16;
/// Most units that one operation writes to.
pub const PAYLOADS_MAX: usize = 256;

/// The payloads of an operation: for each unit that it writes to, its last record there.
///
/// ```
/// use lodestone_fabric::{GroupId, Payloads, Sequence};
///
/// let body = Payloads::body(&[(GroupId(2), Sequence(7))], b"write");
/// let payloads = Payloads::of(&body).unwrap();
/// assert_eq!(payloads.places().collect::<Vec<_>>(), [(GroupId(2), Sequence(7))]);
/// assert_eq!(payloads.rest(), b"write");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payloads<'b> {
    places: &'b [u8],
    rest: &'b [u8],
}

impl<'b> Payloads<'b> {
    /// The list in a body whose head has [`FLAG_PAYLOADS`], if that is whole.
    #[must_use]
    pub fn of(body: &'b [u8]) -> Option<Self> {
        let (head, after) = body.split_at_checked(PAYLOADS_HEAD_BYTES)?;
        let count = to_usize(u32::from_le_bytes(head.get(..4)?.try_into().ok()?));
        (count <= PAYLOADS_MAX).then_some(())?;
        let (places, rest) = after.split_at_checked(count * PLACE_BYTES)?;
        Some(Self { places, rest })
    }

    /// Units and sequences.
    pub fn places(&self) -> impl Iterator<Item = (GroupId, Sequence)> + use<'b> {
        self.places.chunks_exact(PLACE_BYTES).map(|place| {
            let unit = place.get(..4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
            let sequence = place.get(8..).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
            (GroupId(unit), Sequence(sequence))
        })
    }

    /// The caller's bytes.
    #[must_use]
    pub const fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// The body of an operation with these payloads, of which there are at most [`PAYLOADS_MAX`].
    #[must_use]
    pub fn body(places: &[(GroupId, Sequence)], rest: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(PAYLOADS_HEAD_BYTES + places.len() * PLACE_BYTES + rest.len());
        body.extend(exact_u32(places.len()).to_le_bytes());
        body.extend([0; 4]);
        for (unit, sequence) in places {
            body.extend(unit.0.to_le_bytes());
            body.extend([0; 4]);
            body.extend(sequence.0.to_le_bytes());
        }
        body.extend(rest);
        body
    }
}
