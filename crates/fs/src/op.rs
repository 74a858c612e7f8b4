//! Every change of a volume as a value, and its form in the log.
//!
//! The log keeps an operation in a record of the fabric: opcode, file and time are in the record's head, the rest is
//! the body. Numbers are short when they are small, so that a change of a name takes two lines.

use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::bytes::{Reader, Writer};
use crate::extents::Run;
use crate::inode::{FileKind, NAME_BYTES_MAX, Stamp};

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    /// The file that it is about.
    pub(crate) ino: u64,
    /// Its time.
    pub(crate) at: Stamp,
    pub(crate) action: Action,
}

/// The change that an operation makes to its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Makes the file, under a name.
    Make { parent: u64, name: Vec<u8>, mode: u32, uid: u32, gid: u32, device: u32, target: Vec<u8> },
    /// Adds a name.
    Link { parent: u64, name: Vec<u8> },
    /// Removes the name in the folder `ino`. `keep`: the file is open, so it stays when this was its last name.
    Remove { name: Vec<u8>, keep: bool },
    /// Moves the entry `name` of the folder `ino`, over another one or in exchange with it.
    Rename { name: Vec<u8>, to: u64, to_name: Vec<u8>, exchange: bool, keep: bool },
    /// Sets attributes.
    Set {
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        atime: Option<Stamp>,
        mtime: Option<Stamp>,
        is_read: bool,
    },
    /// Changes the content.
    Content(ContentChange),
    /// Sets or removes an extended attribute.
    Extra { name: Vec<u8>, value: Option<Vec<u8>> },
    /// Frees a file without a name, which is not open any more.
    Forget,
    /// Writes pages again with the content that they have: a replica had them damaged.
    Mend,
}

/// A change of a file's content: holes, then pages, then the size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContentChange {
    /// File pages, from and to, that become holes.
    pub(crate) cuts: Vec<(u64, u64)>,
    /// File pages, and the runs of pages that they get.
    pub(crate) puts: Vec<(u64, Run)>,
    /// Checksums of the pages of `puts`, in their order.
    pub(crate) crcs: Vec<u32>,
    pub(crate) size: u64,
    /// Whether the time of the content changes.
    pub(crate) touches: bool,
    pub(crate) mode: Option<u32>,
    /// The bytes of the pages, when the log has them too: then the operation does not rely on its pages.
    pub(crate) payload: Vec<u8>,
}

const MAKE: u16 = 1;
const LINK: u16 = 2;
const REMOVE: u16 = 3;
const RENAME: u16 = 4;
const SET: u16 = 5;
const CONTENT: u16 = 6;
const EXTRA: u16 = 7;
const FORGET: u16 = 8;
/// As [`CONTENT`], with the bytes of the pages after their checksums.
const CONTENT_INLINE: u16 = 9;
const MEND: u16 = 10;

impl Op {
    /// Code, and body.
    pub(crate) fn encode(&self) -> (u16, Vec<u8>) {
        let mut out = Writer(Vec::with_capacity(64));
        let code = match &self.action {
            Action::Make { parent, name, mode, uid, gid, device, target } => {
                out.small(*parent).bytes(name).small((*mode).into()).small((*uid).into()).small((*gid).into());
                out.small((*device).into()).bytes(target);
                MAKE
            }
            Action::Link { parent, name } => {
                out.small(*parent).bytes(name);
                LINK
            }
            Action::Remove { name, keep } => {
                out.bytes(name).u8(u8::from(*keep));
                REMOVE
            }
            Action::Rename { name, to, to_name, exchange, keep } => {
                out.bytes(name).small(*to).bytes(to_name).u8(u8::from(*exchange) | u8::from(*keep) << 1);
                RENAME
            }
            Action::Set { mode, uid, gid, atime, mtime, is_read } => {
                let flags = [mode.is_some(), uid.is_some(), gid.is_some(), atime.is_some(), mtime.is_some(), *is_read];
                out.u8(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
                [mode, uid, gid].into_iter().flatten().for_each(|value| _ = out.small((*value).into()));
                [atime, mtime].into_iter().flatten().for_each(|stamp| _ = out.i64(*stamp));
                SET
            }
            Action::Content(change) => {
                change.encode(&mut out);
                out.0.extend(&change.payload);
                if change.payload.is_empty() { CONTENT } else { CONTENT_INLINE }
            }
            Action::Extra { name, value } => {
                out.bytes(name).u8(u8::from(value.is_some()));
                out.bytes(value.as_deref().unwrap_or_default());
                EXTRA
            }
            Action::Forget => FORGET,
            Action::Mend => MEND,
        };
        (code, out.0)
    }

    /// The operation in a record. `None` when the bytes are none.
    pub(crate) fn decode(code: u16, ino: u64, at: Stamp, body: &[u8]) -> Option<Self> {
        let mut from = Reader(body);
        let action = match code {
            MAKE => make(&mut from)?,
            LINK => Action::Link { parent: from.small()?, name: name(&mut from)? },
            REMOVE => Action::Remove { name: name(&mut from)?, keep: flag(from.u8()?)? },
            RENAME => {
                let (old, to, to_name, flags) = (name(&mut from)?, from.small()?, name(&mut from)?, from.u8()?);
                (flags < 4).then_some(())?;
                Action::Rename { name: old, to, to_name, exchange: flags & 1 != 0, keep: flags & 2 != 0 }
            }
            SET => set(&mut from)?,
            CONTENT => Action::Content(ContentChange::decode(&mut from, false)?),
            CONTENT_INLINE => Action::Content(ContentChange::decode(&mut from, true)?),
            EXTRA => {
                let (name, is_there, value) = (name(&mut from)?, flag(from.u8()?)?, from.bytes()?);
                Action::Extra { name, value: is_there.then(|| value.to_vec()) }
            }
            FORGET => Action::Forget,
            MEND => Action::Mend,
            _ => return None,
        };
        from.is_empty().then_some(Self { ino, at, action })
    }
}

fn flag(byte: u8) -> Option<bool> {
    (byte < 2).then_some(byte == 1)
}

fn half(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.small()?).ok()
}

fn name(from: &mut Reader<'_>) -> Option<Vec<u8>> {
    from.bytes().filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX).map(<[u8]>::to_vec)
}

fn make(from: &mut Reader<'_>) -> Option<Action> {
    let (parent, name, mode) = (from.small()?, name(from)?, half(from)?);
    let (uid, gid, device, target) = (half(from)?, half(from)?, half(from)?, from.bytes()?.to_vec());
    FileKind::of_mode(mode)?;
    Some(Action::Make { parent, name, mode, uid, gid, device, target })
}

fn set(from: &mut Reader<'_>) -> Option<Action> {
    let flags = from.u8().filter(|flags| *flags < 64)?;
    let has = |bit: u8| flags & (1 << bit) != 0;
    let value = |from: &mut Reader<'_>, bit| if has(bit) { half(from).map(Some) } else { Some(None) };
    let (mode, uid, gid) = (value(from, 0)?, value(from, 1)?, value(from, 2)?);
    let stamp = |from: &mut Reader<'_>, bit| if has(bit) { from.i64().map(Some) } else { Some(None) };
    let (atime, mtime) = (stamp(from, 3)?, stamp(from, 4)?);
    Some(Action::Set { mode, uid, gid, atime, mtime, is_read: has(5) })
}

impl ContentChange {
    fn encode(&self, out: &mut Writer) {
        out.u8(u8::from(self.touches) | u8::from(self.mode.is_some()) << 1).small(self.size);
        self.mode.iter().for_each(|mode| _ = out.small((*mode).into()));
        out.small(to_u64(self.cuts.len()));
        self.cuts.iter().for_each(|(from, to)| _ = out.small(*from).small(to - from));
        out.small(to_u64(self.puts.len()));
        self.puts.iter().for_each(|(first, run)| _ = out.small(*first).small(run.page).small(run.count));
        self.crcs.iter().for_each(|crc| _ = out.u32(*crc));
    }

    fn decode(from: &mut Reader<'_>, is_inline: bool) -> Option<Self> {
        let flags = from.u8().filter(|flags| *flags < 4)?;
        let size = from.small()?;
        let mode = if flags & 2 != 0 { Some(half(from)?) } else { None };
        let mut change = Self { size, touches: flags & 1 != 0, mode, ..Self::default() };
        for _ in 0..from.small()? {
            let (first, count) = (from.small()?, from.small()?);
            change.cuts.push((first, first.checked_add(count)?));
        }
        let mut pages = 0_u64;
        for _ in 0..from.small()? {
            let (first, run) = (from.small()?, Run { page: from.small()?, count: from.small()? });
            (run.count > 0 && run.page.checked_add(run.count)? > 0 && first.checked_add(run.count)? > 0)
                .then_some(())?;
            pages = pages.checked_add(run.count)?;
            change.puts.push((first, run));
        }
        // One checksum for each page, so a body bounds the count.
        let left = to_u64(from.0.len()).checked_sub(pages.checked_mul(4)?)?;
        for _ in 0..pages {
            change.crcs.push(from.u32()?);
        }
        let is_whole = if is_inline { pages > 0 && left > 0 && left.is_multiple_of(pages) } else { left == 0 };
        is_whole.then_some(())?;
        change.payload = from.take(to_usize(left))?.to_vec();
        Some(change)
    }

    /// Each page that it writes: file page, page, checksum.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        let pages = self.puts.iter().flat_map(|(first, run)| (0..run.count).map(move |i| (first + i, run.page + i)));
        pages.zip(&self.crcs).map(|((at, page), crc)| (at, page, *crc))
    }
}

/// Most pages of one operation: their checksums and runs fit a record, however scattered the pages are.
pub(crate) const OP_PAGES_MAX: u64 = 1024;

/// Bytes that an operation's body has at most beside names and values.
pub(crate) const fn body_bytes_max() -> usize {
    lodestone_fabric::BODY_BYTES_MAX
}

/// Whether a body of so many bytes fits a record.
pub(crate) fn fits(bytes: usize) -> bool {
    exact_u32(bytes) <= exact_u32(body_bytes_max())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Op> {
        let name = b"notes".to_vec();
        let change = ContentChange {
            cuts: vec![(3, 9)],
            puts: vec![(0, Run { page: 7, count: 2 }), (100, Run { page: 1 << 40, count: 1 })],
            crcs: vec![1, 2, 3],
            size: 409_700,
            touches: true,
            mode: Some(0o100_755),
            payload: Vec::new(),
        };
        let inline = ContentChange { payload: vec![7; 3 * 64], ..change.clone() };
        let actions = [
            Action::Make {
                parent: 1,
                name: name.clone(),
                mode: 0o120_777,
                uid: 1000,
                gid: 7,
                device: 0,
                target: b"x".to_vec(),
            },
            Action::Link { parent: 4, name: name.clone() },
            Action::Remove { name: name.clone(), keep: true },
            Action::Rename { name: name.clone(), to: 9, to_name: b"b".to_vec(), exchange: true, keep: false },
            Action::Set { mode: None, uid: Some(0), gid: None, atime: Some(-5), mtime: None, is_read: true },
            Action::Content(change),
            Action::Content(inline),
            Action::Extra { name: b"user.a".to_vec(), value: Some(vec![]) },
            Action::Extra { name: b"user.a".to_vec(), value: None },
            Action::Forget,
            Action::Mend,
        ];
        actions.into_iter().map(|action| Op { ino: 77, at: -3, action }).collect()
    }

    #[test]
    fn operations_come_back_and_no_prefix_of_one_is_another() {
        for op in samples() {
            let (code, body) = op.encode();
            assert_eq!(Op::decode(code, 77, -3, &body), Some(op.clone()));
            for cut in 0..body.len() {
                assert_ne!(Op::decode(code, 77, -3, &body[..cut]), Some(op.clone()));
            }
            for flip in 0..body.len() * 8 {
                let mut other = body.clone();
                other[flip / 8] ^= 1 << (flip % 8);
                // Any bytes decode to something or nothing, and never panic.
                _ = Op::decode(code, 77, -3, &other);
            }
        }
        assert_eq!(Op::decode(99, 1, 0, &[]), None);
    }

    #[test]
    fn a_create_takes_two_lines_of_the_log() {
        let make = &samples()[0];
        assert!(32 + 64 + make.encode().1.len() <= 128);
    }
}
