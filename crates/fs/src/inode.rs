//! Files, folders and links in memory, and the row that stands for each in the image.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bytes::{Reader, Writer};
use crate::extents::Extents;

/// Number of the root folder.
pub const ROOT: u64 = 1;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// Most bytes of the target of a symbolic link.
pub const LINK_BYTES_MAX: usize = 4095;
/// Most bytes of a file: 16 TiB.
pub const FILE_BYTES_MAX: u64 = 16 << 40;
/// Most bytes of an attribute's value.
pub const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// Most links to a file, and folders in a folder.
pub const LINKS_MAX: u32 = 1 << 31;
/// The first cookie of an entry: `.` and `..` have 1 and 2.
pub(crate) const COOKIE_FIRST: u64 = 3;

const TYPE_MASK: u32 = 0o170_000;
const PERMISSION_MASK: u32 = 0o7777;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A file with bytes.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    const ALL: [(Self, u32); 7] = [
        (Self::Fifo, 0o010_000),
        (Self::CharDevice, 0o020_000),
        (Self::Folder, 0o040_000),
        (Self::BlockDevice, 0o060_000),
        (Self::File, 0o100_000),
        (Self::Link, 0o120_000),
        (Self::Socket, 0o140_000),
    ];

    /// The kind that a mode says.
    #[must_use]
    pub fn of_mode(mode: u32) -> Option<Self> {
        Self::ALL.iter().find(|(_, bits)| mode & TYPE_MASK == *bits).map(|(kind, _)| *kind)
    }

    /// The bits of a mode.
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, bits)| *bits)
    }
}

/// Nanoseconds since 1970; times outside 1677 to 2262 are kept as the nearest one.
pub type Stamp = i64;

/// The attributes of a file, as `stat` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number; never used again.
    pub ino: u64,
    /// Kind and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it; a folder has two more than it has folders.
    pub links: u32,
    /// Device number of a device.
    pub device: u32,
    /// Bytes.
    pub size: u64,
    /// Pages that it takes.
    pub pages: u64,
    /// Last read.
    pub atime: Stamp,
    /// Last change of the content.
    pub mtime: Stamp,
    /// Last change of anything.
    pub ctime: Stamp,
    /// Creation.
    pub btime: Stamp,
}

impl Attributes {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode).unwrap_or(FileKind::File)
    }

    /// The permission bits.
    #[must_use]
    pub const fn permissions(&self) -> u32 {
        self.mode & PERMISSION_MASK
    }

    /// Whether it is a folder.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        self.kind() == FileKind::Folder
    }
}

/// An entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) ino: u64,
    /// Its place among the entries: rises with each entry that is made in the folder, and is never used again.
    pub(crate) cookie: u64,
    pub(crate) kind: FileKind,
}

/// The entries of a folder, by name and in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    pub(crate) parent: u64,
    pub(crate) next_cookie: u64,
    by_name: BTreeMap<Arc<[u8]>, Entry>,
    by_cookie: BTreeMap<u64, Arc<[u8]>>,
}

impl Folder {
    pub(crate) const fn new(parent: u64) -> Self {
        Self { parent, next_cookie: COOKIE_FIRST, by_name: BTreeMap::new(), by_cookie: BTreeMap::new() }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<Entry> {
        self.by_name.get(name).copied()
    }

    /// The entry with this cookie.
    pub(crate) fn at(&self, cookie: u64) -> Option<(&[u8], Entry)> {
        let name = self.by_cookie.get(&cookie)?;
        self.by_name.get(name).map(|entry| (&**name, *entry))
    }

    /// The entries after `cookie`.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], Entry)> + '_ {
        let after = (std::ops::Bound::Excluded(cookie), std::ops::Bound::Unbounded);
        self.by_cookie.range(after).filter_map(|(_, name)| Some((&**name, *self.by_name.get(name)?)))
    }

    /// Adds an entry under a new name.
    pub(crate) fn add(&mut self, name: &[u8], ino: u64, kind: FileKind) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.restore(name, Entry { ino, cookie, kind });
        cookie
    }

    /// Puts back an entry as the image has it.
    pub(crate) fn restore(&mut self, name: &[u8], entry: Entry) {
        let name: Arc<[u8]> = name.into();
        self.by_cookie.insert(entry.cookie, Arc::clone(&name));
        self.by_name.insert(name, entry);
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let entry = self.by_name.remove(name)?;
        self.by_cookie.remove(&entry.cookie);
        Some(entry)
    }

    /// Makes the entry `name` lead to another file.
    pub(crate) fn point(&mut self, name: &[u8], ino: u64, kind: FileKind) {
        if let Some(entry) = self.by_name.get_mut(name) {
            (entry.ino, entry.kind) = (ino, kind);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// The content of a file of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    File(Extents),
    Folder(Folder),
    Link(Vec<u8>),
    Special,
}

/// A file with everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) attributes: Attributes,
    pub(crate) content: Content,
    pub(crate) extra: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Inode {
    pub(crate) fn folder(&self) -> Option<&Folder> {
        match &self.content {
            Content::Folder(folder) => Some(folder),
            _ => None,
        }
    }

    pub(crate) fn folder_mut(&mut self) -> Option<&mut Folder> {
        match &mut self.content {
            Content::Folder(folder) => Some(folder),
            _ => None,
        }
    }

    pub(crate) fn extents(&self) -> Option<&Extents> {
        match &self.content {
            Content::File(extents) => Some(extents),
            _ => None,
        }
    }

    /// The row of the image.
    pub(crate) fn row(&self) -> Row {
        let (parent, next_cookie) = self.folder().map_or((0, 0), |folder| (folder.parent, folder.next_cookie));
        Row { attributes: self.attributes, parent, next_cookie, has_extra: !self.extra.is_empty() }
    }
}

/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 97;

/// A file without its entries, runs and attributes, as the image has it.
///
/// ```text
///  0 mode 4     4 uid 4      8 gid 4     12 links 4    16 device 4   20 size 8    28 pages 8
/// 36 atime 8   44 mtime 8   52 ctime 8   60 btime 8    68 parent 8   76 next cookie 8
/// 84 flags 1 (1: has attributes)         85 ino 8      93 zero 4
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) attributes: Attributes,
    pub(crate) parent: u64,
    pub(crate) next_cookie: u64,
    pub(crate) has_extra: bool,
}

impl Row {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let a = &self.attributes;
        let mut out = Writer(Vec::with_capacity(ROW_BYTES));
        out.u32(a.mode).u32(a.uid).u32(a.gid).u32(a.links).u32(a.device).u64(a.size).u64(a.pages);
        out.i64(a.atime).i64(a.mtime).i64(a.ctime).i64(a.btime).u64(self.parent).u64(self.next_cookie);
        out.u8(u8::from(self.has_extra)).u64(a.ino).u32(0);
        debug_assert_eq!(out.0.len(), ROW_BYTES, "the byte map above");
        out.0
    }

    /// The row of file `ino`; `None` when the bytes are no such row.
    pub(crate) fn from_bytes(ino: u64, bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let attributes = Attributes {
            ino,
            mode: from.u32()?,
            uid: from.u32()?,
            gid: from.u32()?,
            links: from.u32()?,
            device: from.u32()?,
            size: from.u64()?,
            pages: from.u64()?,
            atime: from.i64()?,
            mtime: from.i64()?,
            ctime: from.i64()?,
            btime: from.i64()?,
        };
        let (parent, next_cookie) = (from.u64()?, from.u64()?);
        let (flags, own, zero) = (from.u8()?, from.u64()?, from.u32()?);
        let kind = FileKind::of_mode(attributes.mode)?;
        let fits = own == ino
            && zero == 0
            && flags <= 1
            && from.is_empty()
            && attributes.size <= FILE_BYTES_MAX
            && (kind != FileKind::Folder || next_cookie >= COOKIE_FIRST);
        fits.then_some(Self { attributes, parent, next_cookie, has_extra: flags == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_and_belongs_to_its_file() {
        let attributes = Attributes {
            ino: 9,
            mode: 0o100_644,
            uid: 1,
            gid: 2,
            links: 3,
            device: 4,
            size: 5,
            pages: 6,
            atime: -7,
            mtime: 8,
            ctime: 9,
            btime: i64::MAX,
        };
        let row = Row { attributes, parent: 0, next_cookie: 0, has_extra: true };
        assert_eq!(Row::from_bytes(9, &row.to_bytes()), Some(row));
        assert_eq!(Row::from_bytes(8, &row.to_bytes()), None, "the row of another file");
        let mut wrong = row.to_bytes();
        wrong[1] = 0;
        assert_eq!(Row::from_bytes(9, &wrong), None, "a mode without a kind");
    }

    #[test]
    fn cookies_rise_and_are_never_used_again() {
        let mut folder = Folder::new(1);
        let first = folder.add(b"a", 5, FileKind::File);
        folder.remove(b"a");
        let second = folder.add(b"a", 5, FileKind::File);
        assert!(second > first);
        folder.point(b"a", 6, FileKind::Folder);
        let names: Vec<_> = folder.after(0).map(|(name, entry)| (name.to_vec(), entry.ino, entry.cookie)).collect();
        assert_eq!(names, [(b"a".to_vec(), 6, second)]);
    }
}
