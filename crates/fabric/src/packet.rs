//! Packets: one line of head, then payload. A decoder never panics and never allocates by a length it was only told.
//!
//! ```text
//! head, 64 bytes, little-endian
//!   0  magic 2 `LF`     16  source node 2       36  bytes of the record 4
//!   2  version 1        18  flags 2             40  stable 8
//!   3  kind 1           20  destinations 4      48  packet counter 8
//!   4  group 4          24  sequence 8          56  credit 4
//!   8  term 4           32  fragment 2          60  CRC-32C of head and payload 4
//!  12  view 4           34  fragments 2         64  payload
//! ```
//!
//! A record larger than a packet is cut into fragments of one size; the last one has the rest. The checksum covers the
//! head too: addresses in a damaged head would send good bytes to a wrong place (paper 5, section 2.4, covers the
//! halves of the data alone).

use lodestone_pmem::planted;
use lodestone_width::{exact_u16, to_u64, to_usize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{GroupId, NodeId, Sequence, Term, ViewNumber};
use crate::record::{BODY_BYTES_MAX, RECORD_HEAD_BYTES};

/// Bytes of a packet's head.
pub const PACKET_HEAD_BYTES: usize = 64;
/// Longest packet that a decoder accepts: a datagram of UDP.
pub const PACKET_BYTES_MAX: usize = 65_507;
/// The version of the format.
pub const VERSION: u8 = 1;
/// Most fragments of a record: the bits of a word say which are there.
pub const FRAGMENTS_MAX: u16 = 64;
/// Longest record.
pub const RECORD_BYTES_MAX: usize = RECORD_HEAD_BYTES + BODY_BYTES_MAX;
const MAGIC: [u8; 2] = *b"LF";

/// Flag: the caller of the record waits; members report at once.
pub const PACKET_SYNC: u16 = 1;
/// Flag: sent again.
pub const PACKET_RESENT: u16 = 2;
/// Flag: an answer to a packet of the same kind.
pub const PACKET_ANSWER: u16 = 4;
/// Flag: what was asked for is not there.
pub const PACKET_GONE: u16 = 8;
/// Flag: the packet is sealed, and has its source's life in place of the checksum.
pub const PACKET_SEALED: u16 = 1 << 15;

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A fragment of a record, from the sender to the group.
    Data,
    /// The newest sequence, so that the loss of the last record shows.
    Beat,
    /// Records that a member lacks.
    Nack,
    /// A member has applied durably up to a sequence.
    Report,
    /// A member has room again.
    Credit,
    /// A new sender asks for a promise, or a member makes it.
    Promise,
    /// Members and log of a term.
    View,
    /// A call to a member.
    Request,
    /// Its answer.
    Reply,
    /// The report of a member that joins and lacks pages: it has the records, and does not count.
    Copying,
}

impl Kind {
    /// All kinds, in the order of their codes from 1.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::Beat,
        Self::Nack,
        Self::Report,
        Self::Credit,
        Self::Promise,
        Self::View,
        Self::Request,
        Self::Reply,
        Self::Copying,
    ];

    const fn code(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Beat => 2,
            Self::Nack => 3,
            Self::Report => 4,
            Self::Credit => 5,
            Self::Promise => 6,
            Self::View => 7,
            Self::Request => 8,
            Self::Reply => 9,
            Self::Copying => 10,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// The head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// Its purpose.
    pub kind: Kind,
    /// The group.
    pub group: GroupId,
    /// The term.
    pub term: Term,
    /// The view.
    pub view: ViewNumber,
    /// The node that sent it.
    pub source: NodeId,
    /// The flags above.
    pub flags: u16,
    /// A bit for each member of the view that it is for; all ones: every member.
    pub destinations: u32,
    /// A sequence, by the kind.
    pub sequence: Sequence,
    /// Number of the fragment, from 0.
    pub fragment: u16,
    /// Fragments of the record.
    pub fragments: u16,
    /// Bytes of the whole record.
    pub record_bytes: u32,
    /// Every member has applied durably up to here.
    pub stable: Sequence,
    /// Number of the packet of its source.
    pub counter: u64,
    /// Bytes that the source takes beyond what it has reported.
    pub credit: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 2],
    version: u8,
    kind: u8,
    group: U32,
    term: U32,
    view: U32,
    source: U16,
    flags: U16,
    destinations: U32,
    sequence: U64,
    fragment: U16,
    fragments: U16,
    record_bytes: U32,
    stable: U64,
    counter: U64,
    credit: U32,
    crc: U32,
}

const _: () = assert!(size_of::<Raw>() == PACKET_HEAD_BYTES);

impl PacketHead {
    /// A head of this kind, everything else at rest.
    #[must_use]
    pub const fn new(kind: Kind, group: GroupId, source: NodeId) -> Self {
        Self {
            kind,
            group,
            term: Term(0),
            view: ViewNumber(0),
            source,
            flags: 0,
            destinations: u32::MAX,
            sequence: Sequence(0),
            fragment: 0,
            fragments: 1,
            record_bytes: 0,
            stable: Sequence(0),
            counter: 0,
            credit: 0,
        }
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The packet with this head and a payload in two pieces.
    #[must_use]
    pub fn packet(&self, payload: [&[u8]; 2]) -> Vec<u8> {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION,
            kind: self.kind.code(),
            group: self.group.0.into(),
            term: self.term.0.into(),
            view: self.view.0.into(),
            source: self.source.0.into(),
            flags: self.flags.into(),
            destinations: self.destinations.into(),
            sequence: self.sequence.0.into(),
            fragment: self.fragment.into(),
            fragments: self.fragments.into(),
            record_bytes: self.record_bytes.into(),
            stable: self.stable.0.into(),
            counter: self.counter.into(),
            credit: self.credit.into(),
            crc: 0.into(),
        };
        raw.crc = checksum(raw.as_bytes(), payload).into();
        let mut packet = Vec::with_capacity(PACKET_HEAD_BYTES + payload[0].len() + payload[1].len());
        packet.extend(raw.as_bytes());
        payload.iter().for_each(|piece| packet.extend(*piece));
        packet
    }
}

/// Fields of a packet that was not verified, for what seals and opens it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketFields {
    group: GroupId,
    term: Term,
    view: ViewNumber,
    pub(crate) source: NodeId,
    pub(crate) flags: u16,
    pub(crate) counter: u64,
    /// The checksum, or the life of the source.
    pub(crate) last_word: u32,
}

impl PacketFields {
    /// The fields in `bytes`, if they are long enough for a packet of this version.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (raw, _) = Raw::read_from_prefix(bytes).ok()?;
        (bytes.len() <= PACKET_BYTES_MAX && raw.magic == MAGIC && raw.version == VERSION).then_some(())?;
        Some(Self {
            group: GroupId(raw.group.get()),
            term: Term(raw.term.get()),
            view: ViewNumber(raw.view.get()),
            source: NodeId(raw.source.get()),
            flags: raw.flags.get(),
            counter: raw.counter.get(),
            last_word: raw.crc.get(),
        })
    }

    pub(crate) const fn key_place(&self) -> (GroupId, Term, ViewNumber) {
        (self.group, self.term, self.view)
    }

    /// Marks a packet as one that is sealed.
    pub(crate) fn mark_sealed(bytes: &mut [u8], counter: u64, life: u32) {
        if let Ok((raw, _)) = Raw::mut_from_prefix(bytes) {
            raw.flags = (raw.flags.get() | PACKET_SEALED).into();
            (raw.counter, raw.crc) = (counter.into(), life.into());
        }
    }

    /// Takes the mark away.
    pub(crate) fn unmark(bytes: &mut [u8]) {
        if let Ok((raw, _)) = Raw::mut_from_prefix(bytes) {
            raw.flags = (raw.flags.get() & !PACKET_SEALED).into();
        }
    }
}

/// Gives a packet that was opened the checksum that it had.
pub(crate) fn reseal_checksum(bytes: &mut [u8]) {
    let Some((head, payload)) = bytes.split_at_checked(PACKET_HEAD_BYTES) else { return };
    let crc = checksum(head, [payload, &[]]);
    if let Ok((raw, _)) = Raw::mut_from_prefix(bytes) {
        raw.crc = crc.into();
    }
}

/// CRC-32C of the head before its checksum, then of the payload.
fn checksum(head: &[u8], payload: [&[u8]; 2]) -> u32 {
    let covered = if planted::active("fabric-head-outside-checksum") { 0 } else { PACKET_HEAD_BYTES - 4 };
    let seed = crc32c::crc32c(head.get(..covered).unwrap_or(head));
    payload.iter().fold(seed, |crc, piece| crc32c::crc32c_append(crc, piece))
}

/// A packet that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'p> {
    /// Its head.
    pub head: PacketHead,
    /// Its payload.
    pub payload: &'p [u8],
}

/// Why bytes are no packet of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// Shorter than a head, or longer than any packet.
    Length,
    /// Another protocol.
    Magic,
    /// Another version of this one.
    Version,
    /// A kind that does not exist.
    Kind,
    /// The checksum does not hold.
    Checksum,
    /// Fields that contradict each other.
    Fields,
}

impl<'p> Packet<'p> {
    /// The packet in `bytes`.
    ///
    /// # Errors
    /// Why they are none. Nothing was allocated.
    pub fn decode(bytes: &'p [u8]) -> Result<Self, Refusal> {
        if bytes.len() > PACKET_BYTES_MAX {
            return Err(Refusal::Length);
        }
        let (raw, payload) = Raw::read_from_prefix(bytes).map_err(|_| Refusal::Length)?;
        if raw.magic != MAGIC {
            return Err(Refusal::Magic);
        }
        if raw.version != VERSION {
            return Err(Refusal::Version);
        }
        let kind = Kind::from_code(raw.kind).ok_or(Refusal::Kind)?;
        if checksum(raw.as_bytes(), [payload, &[]]) != raw.crc.get() {
            return Err(Refusal::Checksum);
        }
        let head = PacketHead {
            kind,
            group: GroupId(raw.group.get()),
            term: Term(raw.term.get()),
            view: ViewNumber(raw.view.get()),
            source: NodeId(raw.source.get()),
            flags: raw.flags.get(),
            destinations: raw.destinations.get(),
            sequence: Sequence(raw.sequence.get()),
            fragment: raw.fragment.get(),
            fragments: raw.fragments.get(),
            record_bytes: raw.record_bytes.get(),
            stable: Sequence(raw.stable.get()),
            counter: raw.counter.get(),
            credit: raw.credit.get(),
        };
        if head.sequence >= Sequence::MAX || head.stable >= Sequence::MAX {
            return Err(Refusal::Fields);
        }
        let is_data = kind == Kind::Data || (kind == Kind::Reply && head.record_bytes > 0);
        if is_data && head.fragment_place(payload.len()).is_none() {
            return Err(Refusal::Fields);
        }
        Ok(Self { head, payload })
    }
}

impl PacketHead {
    /// Where the bytes of this fragment go in its record; `None` if the fields contradict each other.
    #[must_use]
    pub fn fragment_place(&self, bytes: usize) -> Option<usize> {
        let whole = to_usize(self.record_bytes);
        let is_possible = self.fragment < self.fragments
            && self.fragments <= FRAGMENTS_MAX
            && (RECORD_HEAD_BYTES..=RECORD_BYTES_MAX).contains(&whole)
            && bytes > 0
            && bytes <= whole;
        is_possible.then_some(())?;
        let is_last = self.fragment + 1 == self.fragments;
        let at = if is_last { whole - bytes } else { usize::from(self.fragment) * bytes };
        let end = at + bytes;
        // All but the last have one size, and the last is no longer than they are.
        let is_right = if is_last {
            self.fragments == 1 && at == 0 || self.fragments > 1 && at >= usize::from(self.fragment) * bytes
        } else {
            end < whole
        };
        is_right.then_some(at)
    }
}

/// Cuts the record of `head` and `body` into packets whose payload has at most `payload_bytes_max`, and passes each to
/// `send`. `only` has a bit for each fragment that is wanted.
pub fn fragments(
    head: &PacketHead,
    record: &[u8; RECORD_HEAD_BYTES],
    body: &[u8],
    payload_bytes_max: usize,
    only: u64,
    send: &mut dyn FnMut(Vec<u8>),
) {
    let whole = RECORD_HEAD_BYTES + body.len();
    let count = whole.div_ceil(payload_bytes_max.max(1)).max(whole.div_ceil(RECORD_BYTES_MAX)).max(1);
    let size = whole.div_ceil(count);
    let count = whole.div_ceil(size);
    let mut head = PacketHead {
        fragments: u16::try_from(count).unwrap_or(u16::MAX),
        record_bytes: u32::try_from(to_u64(whole)).unwrap_or(u32::MAX),
        ..*head
    };
    for index in (0..count).filter(|index| only >> (index % 64) & 1 == 1) {
        let (from, to) = (index * size, whole.min((index + 1) * size));
        let first = record.get(from.min(RECORD_HEAD_BYTES)..to.min(RECORD_HEAD_BYTES)).unwrap_or(&[]);
        let start = from.saturating_sub(RECORD_HEAD_BYTES);
        let second = body.get(start..to.saturating_sub(RECORD_HEAD_BYTES)).unwrap_or(&[]);
        head.fragment = exact_u16(index);
        send(head.packet([first, second]));
    }
}
