//! Reading folders.

use crate::access::{Caller, READ};
use crate::error::{Refusal, Result};
use crate::inode::{Attributes, FileKind};
use crate::volume::Volume;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderEntry {
    /// Name.
    pub name: Vec<u8>,
    /// File.
    pub ino: u64,
    /// Kind.
    pub kind: FileKind,
    /// Its place: a reading that goes on after it sees each entry that stays exactly once, whatever happens to others.
    pub cookie: u64,
}

impl Volume {
    /// At most `count` entries of the folder after the one with `cookie`; 0: from the beginning. `.` and `..` are the
    /// first ones. Entries come in the order in which they were made.
    ///
    /// # Errors
    /// No folder; no permission.
    pub fn read_folder(&self, caller: &Caller, ino: u64, cookie: u64, count: usize) -> Result<Vec<FolderEntry>> {
        let mut core = self.inner.core();
        let inode = core.file(ino)?;
        let attributes = inode.attributes;
        let folder = inode.folder().ok_or(Refusal::NotFolder)?;
        caller.need(&attributes, READ)?;
        let dots = [(&b"."[..], ino, 1), (b"..", folder.parent, 2)];
        let dots = dots.into_iter().filter(|(_, _, own)| *own > cookie && attributes.links > 0);
        let dots =
            dots.map(|(name, ino, cookie)| FolderEntry { name: name.to_vec(), ino, kind: FileKind::Folder, cookie });
        let others = folder.after(cookie).map(|(name, entry)| FolderEntry {
            name: name.to_vec(),
            ino: entry.ino,
            kind: entry.kind,
            cookie: entry.cookie,
        });
        Ok(dots.chain(others).take(count).collect())
    }

    /// As [`read_folder`](Self::read_folder), each entry with its attributes.
    ///
    /// # Errors
    /// As [`read_folder`](Self::read_folder).
    pub fn read_folder_plus(
        &self,
        caller: &Caller,
        ino: u64,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(FolderEntry, Attributes)>> {
        let entries = self.read_folder(caller, ino, cookie, count)?;
        let mut core = self.inner.core();
        let mut found = Vec::with_capacity(entries.len());
        for entry in entries {
            // One that went meanwhile is left out: it did not stay.
            if let Some(file) = core.state.find(entry.ino)? {
                found.push((entry, file.attributes));
            }
        }
        Ok(found)
    }
}
