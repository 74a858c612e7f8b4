//! Calls of mounts elsewhere: their bytes, and how the metadata node carries them out.
//!
//! ```text
//! call     mount 8, request 8, floor 8, kind 1, then by kind; request and floor are 0 if nothing is changed
//! answer   0, operation 8, then by kind
//!          1 refused, number of the error 4     2 not the metadata node here, the machine that is 4; 0: not known
//!          3 not attached                        4 failed, text
//!          5 it waits for nodes, text: the call is to be made again, with the same numbers
//! ```

use lodestone_width::exact_u32;

use super::locks::FileLock;
use crate::access::Caller;
use crate::attributes::{Changes, ExtraMode, NewTime, Room};
use crate::bytes::{Reader, Writer};
use crate::content::{Allocation, SeekTo};
use crate::error::{Error, Refusal, Result};
use crate::folders::FolderEntry;
use crate::inode::{Attributes, FileKind};
use crate::names::{NewFile, RenameMode};
use crate::requests::Files;
use crate::volume::Volume;

/// Most bytes of a read.
pub(crate) const READ_BYTES_MAX: u32 = 1 << 20;
/// Most entries of a folder in an answer.
const ENTRIES_MAX: u32 = 4096;
/// Most further groups of a caller.
const GROUPS_MAX: u32 = 1 << 16;

/// A call on a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Lookup {
        by: Caller,
        parent: u64,
        name: Vec<u8>,
    },
    Attributes {
        ino: u64,
    },
    Truncate {
        by: Caller,
        ino: u64,
        size: u64,
    },
    Set {
        by: Caller,
        ino: u64,
        changes: Changes,
    },
    ReadLink {
        ino: u64,
    },
    Make {
        by: Caller,
        parent: u64,
        name: Vec<u8>,
        mode: u32,
        device: u32,
        target: Vec<u8>,
        pins: bool,
    },
    Remove {
        by: Caller,
        parent: u64,
        name: Vec<u8>,
        is_folder: bool,
    },
    Rename {
        by: Caller,
        from: (u64, Vec<u8>),
        to: (u64, Vec<u8>),
        mode: RenameMode,
    },
    Link {
        by: Caller,
        ino: u64,
        parent: u64,
        name: Vec<u8>,
    },
    Pin {
        ino: u64,
    },
    Unpin {
        ino: u64,
    },
    Read {
        ino: u64,
        offset: u64,
        count: u32,
    },
    NoteRead {
        ino: u64,
    },
    Write {
        by: Caller,
        ino: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    Sync,
    ReadFolder {
        by: Caller,
        ino: u64,
        cookie: u64,
        count: u32,
    },
    ReadFolderPlus {
        by: Caller,
        ino: u64,
        cookie: u64,
        count: u32,
    },
    Room,
    SetExtra {
        by: Caller,
        ino: u64,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: ExtraMode,
    },
    Extra {
        by: Caller,
        ino: u64,
        name: Vec<u8>,
    },
    ExtraNames {
        by: Caller,
        ino: u64,
    },
    RemoveExtra {
        by: Caller,
        ino: u64,
        name: Vec<u8>,
    },
    Allocate {
        by: Caller,
        ino: u64,
        offset: u64,
        length: u64,
        what: Allocation,
    },
    Seek {
        ino: u64,
        offset: u64,
        to: SeekTo,
    },
    /// Takes a lock, or frees the range. Of the requests of a mount for a file, later ones have higher serial numbers.
    Lock {
        ino: u64,
        serial: u64,
        lock: FileLock,
        how: HowToLock,
    },
    FindLock {
        ino: u64,
        lock: FileLock,
    },
    Append {
        by: Caller,
        ino: u64,
        bytes: Vec<u8>,
    },
}

/// The effect of a request for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowToLock {
    /// Takes it, if it is free.
    Try,
    /// Frees the range.
    Free,
    /// As `Try`, for a program that waits: the request comes again, unless that would never end.
    Wait,
}

const HOWS: [HowToLock; 3] = [HowToLock::Try, HowToLock::Free, HowToLock::Wait];

/// The names of the calls, in the order of their numbers on the wire.
pub(crate) const CALLS: [&str; 27] = [
    "lookup",
    "attributes",
    "truncate",
    "set",
    "read_link",
    "make",
    "remove",
    "rename",
    "link",
    "pin",
    "unpin",
    "read",
    "note_read",
    "write",
    "sync",
    "read_folder",
    "read_folder_plus",
    "room",
    "set_extra",
    "extra",
    "extra_names",
    "remove_extra",
    "allocate",
    "seek",
    "lock",
    "find_lock",
    "append",
];

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    Attributes(Attributes),
    Bytes(Vec<u8>),
    Names(Vec<Vec<u8>>),
    Entries(Vec<FolderEntry>),
    EntriesPlus(Vec<(FolderEntry, Attributes)>),
    Room(Room),
    Number(u64),
    Lock(Option<FileLock>),
    /// The files that were at the names before.
    Files(Files),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The value, and the operation that carried the call out; 0: none.
    Done(u64, Value),
    Refused(Refusal),
    /// The metadata node is elsewhere: at this machine, if that is known. Nothing happened.
    Elsewhere(u16),
    /// The metadata node does not know the mount. Nothing happened.
    NotAttached,
    Failed(String),
    /// The metadata node waits for other nodes. The call may be made again, with the same numbers.
    NotYet(String),
}

impl Writer {
    fn caller(&mut self, by: &Caller) -> &mut Self {
        self.u32(by.uid).u32(by.gid).u8(by.is_checked.into()).u32(exact_u32(by.groups.len()));
        by.groups.iter().for_each(|group| _ = self.u32(*group));
        self
    }

    fn attributes(&mut self, file: &Attributes) -> &mut Self {
        self.u64(file.ino).u32(file.mode).u32(file.uid).u32(file.gid).u32(file.links).u32(file.device);
        self.u64(file.size).u64(file.pages).i64(file.atime).i64(file.mtime).i64(file.ctime).i64(file.btime)
    }

    fn entry(&mut self, entry: &FolderEntry) -> &mut Self {
        self.bytes(&entry.name).u64(entry.ino).u32(entry.kind.mode_bits()).u64(entry.cookie)
    }
}

impl<'b> Reader<'b> {
    fn flag(&mut self) -> Option<bool> {
        self.u8().filter(|byte| *byte < 2).map(|byte| byte == 1)
    }

    fn owned(&mut self) -> Option<Vec<u8>> {
        self.bytes().map(<[u8]>::to_vec)
    }

    fn caller(&mut self) -> Option<Caller> {
        let (uid, gid, is_checked) = (self.u32()?, self.u32()?, self.flag()?);
        let count = self.u32().filter(|count| *count <= GROUPS_MAX)?;
        let groups = (0..count).map(|_| self.u32()).collect::<Option<_>>()?;
        Some(Caller { uid, gid, groups, is_checked })
    }

    fn attributes(&mut self) -> Option<Attributes> {
        Some(Attributes {
            ino: self.u64()?,
            mode: self.u32()?,
            uid: self.u32()?,
            gid: self.u32()?,
            links: self.u32()?,
            device: self.u32()?,
            size: self.u64()?,
            pages: self.u64()?,
            atime: self.i64()?,
            mtime: self.i64()?,
            ctime: self.i64()?,
            btime: self.i64()?,
        })
    }

    fn entry(&mut self) -> Option<FolderEntry> {
        let (name, ino) = (self.owned()?, self.u64()?);
        Some(FolderEntry { name, ino, kind: FileKind::of_mode(self.u32()?)?, cookie: self.u64()? })
    }

    /// So many of something.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32().filter(|count| *count <= GROUPS_MAX)?;
        (0..count).map(|_| one(self)).collect()
    }
}

impl Changes {
    fn write(&self, out: &mut Writer) {
        for value in [self.permissions, self.uid, self.gid] {
            out.u8(value.is_some().into()).u32(value.unwrap_or_default());
        }
        for time in [self.atime, self.mtime] {
            match time {
                None => out.u8(0).i64(0),
                Some(NewTime::Now) => out.u8(1).i64(0),
                Some(NewTime::At(stamp)) => out.u8(2).i64(stamp),
            };
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let value = |from: &mut Reader<'_>| {
            let (is_there, value) = (from.flag()?, from.u32()?);
            Some(is_there.then_some(value))
        };
        let (permissions, uid, gid) = (value(from)?, value(from)?, value(from)?);
        let time = |from: &mut Reader<'_>| match (from.u8()?, from.i64()?) {
            (0, _) => Some(None),
            (1, _) => Some(Some(NewTime::Now)),
            (2, stamp) => Some(Some(NewTime::At(stamp))),
            _ => None,
        };
        Some(Self { permissions, uid, gid, atime: time(from)?, mtime: time(from)? })
    }
}

const RENAMES: [RenameMode; 3] = [RenameMode::Replace, RenameMode::KeepOther, RenameMode::Exchange];
const EXTRAS: [ExtraMode; 3] = [ExtraMode::Set, ExtraMode::Create, ExtraMode::Replace];
const SEEKS: [SeekTo; 2] = [SeekTo::Data, SeekTo::Hole];
const ALLOCATIONS: [Allocation; 5] = [
    Allocation::Room { grows: false },
    Allocation::Room { grows: true },
    Allocation::Punch,
    Allocation::Zero { grows: false },
    Allocation::Zero { grows: true },
];

/// The place of a value in a list of all of them.
fn code<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let at = all.iter().position(|found| found == value).unwrap_or_default();
    u8::try_from(at).unwrap_or_default()
}

fn of_code<T: Copy>(all: &[T], code: u8) -> Option<T> {
    all.get(usize::from(code)).copied()
}

impl Call {
    pub(crate) fn write(&self, out: &mut Writer) {
        match self {
            Self::Lookup { by, parent, name } => _ = out.u8(1).caller(by).u64(*parent).bytes(name),
            Self::Attributes { ino } => _ = out.u8(2).u64(*ino),
            Self::Truncate { by, ino, size } => _ = out.u8(3).caller(by).u64(*ino).u64(*size),
            Self::Set { by, ino, changes } => {
                out.u8(4).caller(by).u64(*ino);
                changes.write(out);
            }
            Self::ReadLink { ino } => _ = out.u8(5).u64(*ino),
            Self::Make { by, parent, name, mode, device, target, pins } => {
                out.u8(6).caller(by).u64(*parent).bytes(name).u32(*mode).u32(*device).bytes(target).u8((*pins).into());
            }
            Self::Remove { by, parent, name, is_folder } => {
                out.u8(7).caller(by).u64(*parent).bytes(name).u8((*is_folder).into());
            }
            Self::Rename { by, from, to, mode } => {
                out.u8(8).caller(by).u64(from.0).bytes(&from.1).u64(to.0).bytes(&to.1).u8(code(&RENAMES, mode));
            }
            Self::Link { by, ino, parent, name } => _ = out.u8(9).caller(by).u64(*ino).u64(*parent).bytes(name),
            Self::Pin { ino } => _ = out.u8(10).u64(*ino),
            Self::Unpin { ino } => _ = out.u8(11).u64(*ino),
            Self::Read { ino, offset, count } => _ = out.u8(12).u64(*ino).u64(*offset).u32(*count),
            Self::NoteRead { ino } => _ = out.u8(13).u64(*ino),
            Self::Write { by, ino, offset, bytes } => _ = out.u8(14).caller(by).u64(*ino).u64(*offset).bytes(bytes),
            Self::Sync => _ = out.u8(15),
            Self::ReadFolder { by, ino, cookie, count } => {
                out.u8(16).caller(by).u64(*ino).u64(*cookie).u32(*count);
            }
            Self::ReadFolderPlus { by, ino, cookie, count } => {
                out.u8(17).caller(by).u64(*ino).u64(*cookie).u32(*count);
            }
            Self::Room => _ = out.u8(18),
            Self::SetExtra { by, ino, name, value, mode } => {
                out.u8(19).caller(by).u64(*ino).bytes(name).bytes(value).u8(code(&EXTRAS, mode));
            }
            Self::Extra { by, ino, name } => _ = out.u8(20).caller(by).u64(*ino).bytes(name),
            Self::ExtraNames { by, ino } => _ = out.u8(21).caller(by).u64(*ino),
            Self::RemoveExtra { by, ino, name } => _ = out.u8(22).caller(by).u64(*ino).bytes(name),
            Self::Allocate { by, ino, offset, length, what } => {
                out.u8(23).caller(by).u64(*ino).u64(*offset).u64(*length).u8(code(&ALLOCATIONS, what));
            }
            Self::Seek { ino, offset, to } => _ = out.u8(24).u64(*ino).u64(*offset).u8(code(&SEEKS, to)),
            Self::Lock { ino, serial, lock, how } => {
                lock.write(out.u8(25).u64(*ino).u64(*serial));
                out.u8(code(&HOWS, how));
            }
            Self::FindLock { ino, lock } => lock.write(out.u8(26).u64(*ino)),
            Self::Append { by, ino, bytes } => _ = out.u8(27).caller(by).u64(*ino).bytes(bytes),
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let call = match from.u8()? {
            1 => Self::Lookup { by: from.caller()?, parent: from.u64()?, name: from.owned()? },
            2 => Self::Attributes { ino: from.u64()? },
            3 => Self::Truncate { by: from.caller()?, ino: from.u64()?, size: from.u64()? },
            4 => Self::Set { by: from.caller()?, ino: from.u64()?, changes: Changes::read(from)? },
            5 => Self::ReadLink { ino: from.u64()? },
            6 => Self::Make {
                by: from.caller()?,
                parent: from.u64()?,
                name: from.owned()?,
                mode: from.u32()?,
                device: from.u32()?,
                target: from.owned()?,
                pins: from.flag()?,
            },
            7 => Self::Remove { by: from.caller()?, parent: from.u64()?, name: from.owned()?, is_folder: from.flag()? },
            8 => Self::Rename {
                by: from.caller()?,
                from: (from.u64()?, from.owned()?),
                to: (from.u64()?, from.owned()?),
                mode: of_code(&RENAMES, from.u8()?)?,
            },
            9 => Self::Link { by: from.caller()?, ino: from.u64()?, parent: from.u64()?, name: from.owned()? },
            10 => Self::Pin { ino: from.u64()? },
            11 => Self::Unpin { ino: from.u64()? },
            12 => {
                let (ino, offset) = (from.u64()?, from.u64()?);
                Self::Read { ino, offset, count: from.u32().filter(|count| *count <= READ_BYTES_MAX)? }
            }
            13 => Self::NoteRead { ino: from.u64()? },
            14 => Self::Write { by: from.caller()?, ino: from.u64()?, offset: from.u64()?, bytes: from.owned()? },
            kind => return Self::read_more(kind, from),
        };
        Some(call)
    }

    fn read_more(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        let call = match kind {
            15 => Self::Sync,
            16 | 17 => {
                let (by, ino, cookie) = (from.caller()?, from.u64()?, from.u64()?);
                let count = from.u32()?.min(ENTRIES_MAX);
                if kind == 16 {
                    Self::ReadFolder { by, ino, cookie, count }
                } else {
                    Self::ReadFolderPlus { by, ino, cookie, count }
                }
            }
            18 => Self::Room,
            19 => Self::SetExtra {
                by: from.caller()?,
                ino: from.u64()?,
                name: from.owned()?,
                value: from.owned()?,
                mode: of_code(&EXTRAS, from.u8()?)?,
            },
            20 => Self::Extra { by: from.caller()?, ino: from.u64()?, name: from.owned()? },
            21 => Self::ExtraNames { by: from.caller()?, ino: from.u64()? },
            22 => Self::RemoveExtra { by: from.caller()?, ino: from.u64()?, name: from.owned()? },
            23 => Self::Allocate {
                by: from.caller()?,
                ino: from.u64()?,
                offset: from.u64()?,
                length: from.u64()?,
                what: of_code(&ALLOCATIONS, from.u8()?)?,
            },
            24 => Self::Seek { ino: from.u64()?, offset: from.u64()?, to: of_code(&SEEKS, from.u8()?)? },
            25 => {
                let (ino, serial) = (from.u64()?, from.u64()?);
                Self::Lock { ino, serial, lock: FileLock::read(from)?, how: of_code(&HOWS, from.u8()?)? }
            }
            26 => Self::FindLock { ino: from.u64()?, lock: FileLock::read(from)? },
            27 => Self::Append { by: from.caller()?, ino: from.u64()?, bytes: from.owned()? },
            _ => return None,
        };
        Some(call)
    }

    /// The place of the call in [`CALLS`].
    pub(crate) const fn place(&self) -> usize {
        match self {
            Self::Lookup { .. } => 0,
            Self::Attributes { .. } => 1,
            Self::Truncate { .. } => 2,
            Self::Set { .. } => 3,
            Self::ReadLink { .. } => 4,
            Self::Make { .. } => 5,
            Self::Remove { .. } => 6,
            Self::Rename { .. } => 7,
            Self::Link { .. } => 8,
            Self::Pin { .. } => 9,
            Self::Unpin { .. } => 10,
            Self::Read { .. } => 11,
            Self::NoteRead { .. } => 12,
            Self::Write { .. } => 13,
            Self::Sync => 14,
            Self::ReadFolder { .. } => 15,
            Self::ReadFolderPlus { .. } => 16,
            Self::Room => 17,
            Self::SetExtra { .. } => 18,
            Self::Extra { .. } => 19,
            Self::ExtraNames { .. } => 20,
            Self::RemoveExtra { .. } => 21,
            Self::Allocate { .. } => 22,
            Self::Seek { .. } => 23,
            Self::Lock { .. } => 24,
            Self::FindLock { .. } => 25,
            Self::Append { .. } => 26,
        }
    }

    /// Whether the call is an operation, which must be carried out once.
    pub(crate) const fn is_change(&self) -> bool {
        matches!(
            self,
            Self::Truncate { .. }
                | Self::Set { .. }
                | Self::Make { .. }
                | Self::Remove { .. }
                | Self::Rename { .. }
                | Self::Link { .. }
                | Self::Write { .. }
                | Self::Append { .. }
                | Self::SetExtra { .. }
                | Self::RemoveExtra { .. }
                | Self::Allocate { .. }
        )
    }

    /// The files that the call changes, of those that it names by their numbers.
    pub(crate) fn files_changed(&self) -> Vec<u64> {
        match self {
            Self::Truncate { ino, .. }
            | Self::Set { ino, .. }
            | Self::Write { ino, .. }
            | Self::Append { ino, .. }
            | Self::SetExtra { ino, .. }
            | Self::RemoveExtra { ino, .. }
            | Self::Allocate { ino, .. } => vec![*ino],
            Self::Make { parent, .. } | Self::Remove { parent, .. } => vec![*parent],
            Self::Link { ino, parent, .. } => vec![*ino, *parent],
            Self::Rename { from, to, .. } => vec![from.0, to.0],
            _ => Vec::new(),
        }
    }

    /// Carries the call out. One that was carried out before is answered from what is there now.
    pub(crate) fn make(&self, volume: &Volume) -> Result<Value> {
        // Before anything is looked at: others may have changed what it needs since then.
        if volume.was_carried_out() {
            return self.repeated(volume);
        }
        match self.make_once(volume) {
            Err(Error::Repeated) => self.repeated(volume),
            outcome => outcome,
        }
    }

    fn make_once(&self, volume: &Volume) -> Result<Value> {
        let nothing = |()| Value::Nothing;
        match self {
            Self::Truncate { by, ino, size } => volume.truncate(by, *ino, *size).map(Value::Attributes),
            Self::Set { by, ino, changes } => volume.set_attributes(by, *ino, changes).map(Value::Attributes),
            Self::Make { by, parent, name, mode, device, target, pins } => {
                let kind = FileKind::of_mode(*mode).ok_or(Refusal::Invalid)?;
                let is_link = kind == FileKind::Link;
                let device = NewFile::device(kind, mode & 0o7777, *device);
                let new = if is_link { NewFile::link(target) } else { device };
                volume.make_file(by, *parent, name, &new, *pins).map(Value::Attributes)
            }
            Self::Remove { by, parent, name, is_folder } => {
                volume.take_out(by, *parent, name, *is_folder).map(|ino| Value::Files([ino, 0]))
            }
            Self::Rename { by, from, to, mode } => {
                volume.move_entry(by, (from.0, &from.1), (to.0, &to.1), *mode).map(Value::Files)
            }
            Self::Link { by, ino, parent, name } => volume.link(by, *ino, *parent, name).map(Value::Attributes),
            Self::NoteRead { ino } => volume.note_read(*ino).map(nothing),
            Self::Write { by, ino, offset, bytes } => volume.write(by, *ino, *offset, bytes).map(nothing),
            Self::Append { by, ino, bytes } => volume.append(by, *ino, bytes).map(Value::Number),
            Self::Sync => volume.sync().map(nothing),
            Self::SetExtra { by, ino, name, value, mode } => {
                volume.set_extra(by, *ino, name, value, *mode).map(nothing)
            }
            Self::RemoveExtra { by, ino, name } => volume.remove_extra(by, *ino, name).map(nothing),
            Self::Allocate { by, ino, offset, length, what } => {
                volume.allocate(by, *ino, *offset, *length, *what).map(nothing)
            }
            other => other.look(volume),
        }
    }

    /// The names that it takes away or moves.
    pub(crate) fn names(&self) -> Vec<(u64, &[u8])> {
        match self {
            Self::Remove { parent, name, .. } => vec![(*parent, name)],
            Self::Rename { from, to, .. } => vec![(from.0, &from.1), (to.0, &to.1)],
            _ => Vec::new(),
        }
    }

    /// A call that changes nothing.
    fn look(&self, volume: &Volume) -> Result<Value> {
        let size = |count: &u32| lodestone_width::to_usize(*count);
        Ok(match self {
            Self::Lookup { by, parent, name } => Value::Attributes(volume.lookup(by, *parent, name)?),
            Self::Attributes { ino } => Value::Attributes(volume.attributes(*ino)?),
            Self::ReadLink { ino } => Value::Bytes(volume.read_link(*ino)?),
            Self::Read { ino, offset, count } => {
                let mut bytes = vec![0; size(count)];
                let read = volume.read(*ino, *offset, &mut bytes)?;
                bytes.truncate(read);
                Value::Bytes(bytes)
            }
            Self::ReadFolder { by, ino, cookie, count } => {
                Value::Entries(volume.read_folder(by, *ino, *cookie, size(count))?)
            }
            Self::ReadFolderPlus { by, ino, cookie, count } => {
                Value::EntriesPlus(volume.read_folder_plus(by, *ino, *cookie, size(count))?)
            }
            Self::Room => Value::Room(volume.room()),
            Self::Extra { by, ino, name } => Value::Bytes(volume.extra(by, *ino, name)?),
            Self::ExtraNames { by, ino } => Value::Names(volume.extra_names(by, *ino)?),
            Self::Seek { ino, offset, to } => Value::Number(volume.seek(*ino, *offset, *to)?),
            _ => Value::Nothing,
        })
    }

    /// The answer to a call that was carried out before.
    fn repeated(&self, volume: &Volume) -> Result<Value> {
        match self {
            Self::Make { parent, name, pins, .. } => {
                let file = volume.lookup(&Caller::checked(0, 0), *parent, name)?;
                if *pins {
                    volume.pin(file.ino);
                }
                Ok(Value::Attributes(file))
            }
            Self::Truncate { ino, .. } | Self::Set { ino, .. } | Self::Link { ino, .. } => {
                volume.attributes(*ino).map(Value::Attributes)
            }
            // Where it went is not remembered: no mount asks for it.
            Self::Append { .. } => Ok(Value::Number(0)),
            _ => Ok(Value::Nothing),
        }
    }
}

impl Value {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Nothing => _ = out.u8(0),
            Self::Attributes(file) => _ = out.u8(1).attributes(file),
            Self::Bytes(bytes) => _ = out.u8(2).bytes(bytes),
            Self::Names(names) => {
                out.u8(3).u32(exact_u32(names.len()));
                names.iter().for_each(|name| _ = out.bytes(name));
            }
            Self::Entries(entries) => {
                out.u8(4).u32(exact_u32(entries.len()));
                entries.iter().for_each(|entry| _ = out.entry(entry));
            }
            Self::EntriesPlus(entries) => {
                out.u8(5).u32(exact_u32(entries.len()));
                entries.iter().for_each(|(entry, file)| _ = out.entry(entry).attributes(file));
            }
            Self::Room(room) => {
                out.u8(6).u64(room.page_bytes).u64(room.pages).u64(room.free).u64(room.available).u64(room.files);
            }
            Self::Number(number) => _ = out.u8(7).u64(*number),
            Self::Lock(lock) => {
                out.u8(8).u8(lock.is_some().into());
                lock.iter().for_each(|lock| lock.write(out));
            }
            Self::Files(files) => _ = out.u8(9).u64(files[0]).u64(files[1]),
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            0 => Self::Nothing,
            1 => Self::Attributes(from.attributes()?),
            2 => Self::Bytes(from.owned()?),
            3 => Self::Names(from.list(Reader::owned)?),
            4 => Self::Entries(from.list(Reader::entry)?),
            5 => Self::EntriesPlus(from.list(|from| Some((from.entry()?, from.attributes()?)))?),
            6 => Self::Room(Room {
                page_bytes: from.u64()?,
                pages: from.u64()?,
                free: from.u64()?,
                available: from.u64()?,
                files: from.u64()?,
            }),
            7 => Self::Number(from.u64()?),
            8 => Self::Lock(if from.flag()? { Some(FileLock::read(from)?) } else { None }),
            9 => Self::Files([from.u64()?, from.u64()?]),
            _ => return None,
        })
    }
}

impl Answer {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Self::Done(operation, value) => {
                out.u8(0).u64(*operation);
                value.write(&mut out);
            }
            Self::Refused(refusal) => _ = out.u8(1).u32(refusal.errno().unsigned_abs()),
            Self::Elsewhere(machine) => _ = out.u8(2).u32((*machine).into()),
            Self::NotAttached => _ = out.u8(3),
            Self::Failed(text) => _ = out.u8(4).bytes(text.as_bytes()),
            Self::NotYet(text) => _ = out.u8(5).bytes(text.as_bytes()),
        }
        out.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let answer = match from.u8()? {
            0 => Self::Done(from.u64()?, Value::read(&mut from)?),
            1 => Self::Refused(Refusal::of_errno(from.u32()?.cast_signed())?),
            2 => Self::Elsewhere(u16::try_from(from.u32()?).ok()?),
            3 => Self::NotAttached,
            4 => Self::Failed(String::from_utf8_lossy(from.bytes()?).into_owned()),
            5 => Self::NotYet(String::from_utf8_lossy(from.bytes()?).into_owned()),
            _ => return None,
        };
        from.is_empty().then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: FileLock = FileLock { owner: 7, start: 1, end: u64::MAX, is_write: true, pid: 5 };

    fn calls() -> Vec<Call> {
        let by = Caller { uid: 7, gid: 8, groups: vec![9], is_checked: true };
        let (name, changes) =
            (b"a".to_vec(), Changes { atime: Some(NewTime::At(-3)), uid: Some(5), ..Default::default() });
        vec![
            Call::Lookup { by: by.clone(), parent: 1, name: name.clone() },
            Call::Attributes { ino: 2 },
            Call::Truncate { by: by.clone(), ino: 2, size: 3 },
            Call::Set { by: by.clone(), ino: 2, changes },
            Call::ReadLink { ino: 2 },
            Call::Make {
                by: by.clone(),
                parent: 1,
                name: name.clone(),
                mode: 0o100_644,
                device: 0,
                target: vec![],
                pins: true,
            },
            Call::Remove { by: by.clone(), parent: 1, name: name.clone(), is_folder: true },
            Call::Rename { by: by.clone(), from: (1, name.clone()), to: (2, vec![9]), mode: RenameMode::Exchange },
            Call::Link { by: by.clone(), ino: 2, parent: 1, name: name.clone() },
            Call::Pin { ino: 2 },
            Call::Unpin { ino: 2 },
            Call::Read { ino: 2, offset: 3, count: 4 },
            Call::NoteRead { ino: 2 },
            Call::Write { by: by.clone(), ino: 2, offset: 3, bytes: vec![1, 2] },
            Call::Sync,
            Call::ReadFolder { by: by.clone(), ino: 1, cookie: 0, count: 9 },
            Call::ReadFolderPlus { by: by.clone(), ino: 1, cookie: 0, count: 9 },
            Call::Room,
            Call::SetExtra { by: by.clone(), ino: 2, name: name.clone(), value: vec![1], mode: ExtraMode::Create },
            Call::Extra { by: by.clone(), ino: 2, name: name.clone() },
            Call::ExtraNames { by: by.clone(), ino: 2 },
            Call::RemoveExtra { by: by.clone(), ino: 2, name },
            Call::Allocate { by, ino: 2, offset: 3, length: 4, what: Allocation::Zero { grows: true } },
            Call::Seek { ino: 2, offset: 3, to: SeekTo::Hole },
            Call::Lock { ino: 2, serial: 9, lock: LOCK, how: HowToLock::Free },
            Call::Lock { ino: 2, serial: 9, lock: LOCK, how: HowToLock::Wait },
            Call::FindLock { ino: 2, lock: LOCK },
            Call::Append { by: Caller::root(), ino: 2, bytes: vec![1, 2] },
        ]
    }

    #[test]
    fn calls_come_back_and_other_bytes_are_refused() {
        for call in calls() {
            let mut out = Writer::default();
            call.write(&mut out);
            assert_eq!(Call::read(&mut Reader(&out.0)), Some(call.clone()));
            assert_eq!(usize::from(out.0[0]), call.place() + 1, "{}", CALLS[call.place()]);
            for cut in 0..out.0.len() {
                assert_eq!(Call::read(&mut Reader(&out.0[..cut])), None, "{call:?}");
            }
            for flip in 0..out.0.len() * 8 {
                let mut other = out.0.clone();
                other[flip / 8] ^= 1 << (flip % 8);
                // Any bytes are a call or none, and never panic.
                _ = Call::read(&mut Reader(&other));
            }
        }
    }

    #[test]
    fn answers_come_back() {
        let file = Attributes {
            ino: 1,
            mode: 2,
            uid: 3,
            gid: 4,
            links: 5,
            device: 6,
            size: 7,
            pages: 8,
            atime: -9,
            mtime: 10,
            ctime: 11,
            btime: 12,
        };
        let entry = FolderEntry { name: vec![1], ino: 2, kind: FileKind::Fifo, cookie: 3 };
        let room = Room { page_bytes: 1, pages: 2, free: 3, available: 4, files: 5 };
        let values = [
            Value::Nothing,
            Value::Attributes(file),
            Value::Bytes(vec![1, 2]),
            Value::Names(vec![vec![1], vec![]]),
            Value::Entries(vec![entry.clone()]),
            Value::EntriesPlus(vec![(entry, file)]),
            Value::Room(room),
            Value::Number(9),
            Value::Lock(Some(LOCK)),
            Value::Lock(None),
            Value::Files([3, 0]),
        ];
        let mut answers: Vec<Answer> = values.into_iter().map(|value| Answer::Done(7, value)).collect();
        answers.extend([Answer::Refused(Refusal::Stale), Answer::Elsewhere(3), Answer::NotAttached]);
        answers.extend([Answer::Failed("no".into()), Answer::NotYet("no quorum".into())]);
        for answer in answers {
            let bytes = answer.to_bytes();
            assert_eq!(Answer::from_bytes(&bytes), Some(answer));
            for cut in 0..bytes.len() {
                _ = Answer::from_bytes(&bytes[..cut]);
            }
        }
    }
}
