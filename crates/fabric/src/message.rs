//! The payloads of packets that are no data: promises, views, gaps, calls.
//!
//! All numbers are little-endian. Decoders check lengths first; lists have limits, so nothing is allocated by a number
//! that a packet only claims.
//!
//! ```text
//! terms    base 8, base term 4, runs 4, then {term 4, last sequence 8} each
//! promise  (answer) terms
//! view     source 2, copy from 2, members 4, then {node 2, role 1, zero 1, since 4} each, joins from 8, its term 4,
//! terms
//! nack     words 2, zero 6, fragments of the first 8, then words of 64 records each
//! request  call 2, zero 2, number 4, argument 8
//! reply    the same, then bytes
//! ```

use lodestone_width::{exact_u16, exact_u32, to_u64};

use crate::ids::{NodeId, Sequence, Term, ViewNumber};
use crate::terms::{RUNS_MAX, Terms};
use crate::view::{MEMBERS_MAX, Member, Role};

/// Words of a map of missing records.
pub const NACK_WORDS_MAX: usize = 4;

/// Reads numbers from bytes. After the end it returns `None` for good.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

impl Terms {
    fn write(&self, out: &mut Vec<u8>) {
        let (base, term) = self.base();
        out.extend(base.0.to_le_bytes());
        out.extend(term.0.to_le_bytes());
        out.extend(exact_u32(self.runs().len()).to_le_bytes());
        for (term, last) in self.runs() {
            out.extend(term.0.to_le_bytes());
            out.extend(last.0.to_le_bytes());
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (base, term) = (Sequence(from.u64()?), Term(from.u32()?));
        let count = usize::try_from(from.u32()?).ok().filter(|count| *count <= RUNS_MAX)?;
        let runs = (0..count).map(|_| Some((Term(from.u32()?), Sequence(from.u64()?)))).collect::<Option<_>>()?;
        Self::from_parts(base, term, runs)
    }

    /// As the payload of a promise.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// From the payload of a promise.
    #[must_use]
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        Self::read(&mut Reader(payload))
    }
}

/// Members and log of a term, for one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewMessage {
    /// The members.
    pub members: Vec<Member>,
    /// From whom a member that joins copies pages.
    pub copy_from: NodeId,
    /// Where a member that joins begins, with the term there.
    pub joins_from: (Sequence, Term),
    /// The adopted log.
    pub adopted: Terms,
}

impl ViewMessage {
    /// The bytes.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.copy_from.0.to_le_bytes());
        out.extend([0; 2]);
        out.extend(exact_u32(self.members.len()).to_le_bytes());
        for member in &self.members {
            out.extend(member.node.0.to_le_bytes());
            out.extend([member.role.code(), 0]);
            out.extend(member.since.0.to_le_bytes());
        }
        out.extend(self.joins_from.0.0.to_le_bytes());
        out.extend(self.joins_from.1.0.to_le_bytes());
        self.adopted.write(&mut out);
        out
    }

    /// From the bytes.
    #[must_use]
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let mut from = Reader(payload);
        let copy_from = NodeId(from.u16()?);
        from.u16()?;
        let count = usize::try_from(from.u32()?).ok().filter(|count| *count <= MEMBERS_MAX)?;
        let member = |from: &mut Reader<'_>| {
            let node = NodeId(from.u16()?);
            let [code, _] = from.take()?;
            Some(Member { node, role: Role::from_code(code)?, since: ViewNumber(from.u32()?) })
        };
        let members = (0..count).map(|_| member(&mut from)).collect::<Option<_>>()?;
        let joins_from = (Sequence(from.u64()?), Term(from.u32()?));
        (joins_from.0 < Sequence::MAX).then_some(())?;
        Some(Self { members, copy_from, joins_from, adopted: Terms::read(&mut from)? })
    }
}

/// The records that a member lacks, from the first one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// A bit for each missing fragment of the first.
    pub fragments: u64,
    /// A bit for each record from the first on.
    pub map: Vec<u64>,
}

impl Missing {
    /// The bytes.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        let words = self.map.len().min(NACK_WORDS_MAX);
        let mut out = Vec::new();
        out.extend(exact_u16(words).to_le_bytes());
        out.extend([0; 6]);
        out.extend(self.fragments.to_le_bytes());
        self.map.iter().take(words).for_each(|word| out.extend(word.to_le_bytes()));
        out
    }

    /// From the bytes.
    #[must_use]
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let mut from = Reader(payload);
        let words = usize::from(from.u16()?);
        from.take::<6>()?;
        (words <= NACK_WORDS_MAX).then_some(())?;
        let fragments = from.u64()?;
        Some(Self { fragments, map: (0..words).map(|_| from.u64()).collect::<Option<_>>()? })
    }

    /// Distances from the first record.
    pub fn distances(&self) -> impl Iterator<Item = u64> + '_ {
        let bits = |(index, word): (usize, &u64)| {
            let word = *word;
            (0..64_u64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| to_u64(index) * 64 + bit)
        };
        self.map.iter().enumerate().flat_map(bits)
    }
}

/// A call to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The whole record of a sequence, for a sender that takes over.
    Record(Sequence),
    /// The bytes of a page, at once.
    Page(u64),
    /// The bytes of a page, when nothing else is to do: for a member that joins.
    Copy(u64),
    /// The view of the term, from a member that missed it.
    View,
}

/// How a call is answered (paper 5, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Never: the packet is a notice.
    NoReply,
    /// At once.
    Now,
    /// After everything else.
    Later,
}

impl Call {
    /// How it is answered.
    #[must_use]
    pub const fn mode(self) -> Mode {
        match self {
            Self::Record(_) | Self::Page(_) => Mode::Now,
            Self::Copy(_) => Mode::Later,
            Self::View => Mode::NoReply,
        }
    }

    /// The bytes of a call with a number that its answer repeats.
    #[must_use]
    pub fn to_payload(self, number: u32) -> [u8; 16] {
        let (code, argument) = match self {
            Self::Record(sequence) => (1_u16, sequence.0),
            Self::Page(page) => (2, page),
            Self::Copy(page) => (3, page),
            Self::View => (4, 0),
        };
        let mut out = [0; 16];
        out[..2].copy_from_slice(&code.to_le_bytes());
        out[4..8].copy_from_slice(&number.to_le_bytes());
        out[8..].copy_from_slice(&argument.to_le_bytes());
        out
    }

    /// Call, number, and the bytes after them.
    #[must_use]
    pub fn from_payload(payload: &[u8]) -> Option<(Self, u32, &[u8])> {
        let mut from = Reader(payload);
        let code = from.u16()?;
        from.u16()?;
        let (number, argument) = (from.u32()?, from.u64()?);
        let call = match code {
            1 => Self::Record(Sequence(argument)),
            2 => Self::Page(argument),
            3 => Self::Copy(argument),
            4 => Self::View,
            _ => return None,
        };
        Some((call, number, from.0))
    }
}
