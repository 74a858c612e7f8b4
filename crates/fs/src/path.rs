//! Files by their paths: the short way to use a volume in a program.

use std::sync::Arc;

use crate::access::{Caller, READ, WRITE};
use crate::error::{Refusal, Result};
use crate::folders::FolderEntry;
use crate::inode::{Attributes, FileKind, ROOT};
use crate::names::{NewFile, RenameMode};
use crate::volume::Volume;

/// Symbolic links that a path may lead through.
const LINKS_FOLLOWED_MAX: u32 = 40;
const PATH_BYTES_MAX: usize = 4095;

/// An open file of a volume.
///
/// ```
/// use lodestone_fs::Volume;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("notes.vol");
/// # Volume::format(&path, 16 << 20)?;
/// # let volume = Volume::open(&path)?;
/// let log = volume.create("/log")?;
/// log.append(b"one\n")?;
/// log.append(b"two\n")?;
/// assert_eq!(log.size()?, 8);
/// volume.remove("/log")?;
/// log.append(b"three\n")?; // it is there as long as it is open
/// assert_eq!(log.read_all()?, b"one\ntwo\nthree\n");
/// # Ok::<(), lodestone_fs::Error>(())
/// ```
#[derive(Debug)]
pub struct File {
    volume: Volume,
    caller: Arc<Caller>,
    ino: u64,
}

impl Drop for File {
    fn drop(&mut self) {
        if let Err(error) = self.volume.unpin(self.ino, 1) {
            tracing::error!("closing file {}: {error}", self.ino);
        }
    }
}

impl File {
    /// Its number.
    #[must_use]
    pub const fn ino(&self) -> u64 {
        self.ino
    }

    /// Reads from `offset` on. Returns how many bytes were read.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        self.volume.read(self.ino, offset, out)
    }

    /// Its whole content.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read_all(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; lodestone_width::to_usize(self.size()?)];
        let count = self.read_at(0, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Writes at `offset`. Returns the file, for the next call.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<&Self> {
        self.volume.write(&self.caller, self.ino, offset, bytes)?;
        Ok(self)
    }

    /// Writes at the end. Returns the offset.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.volume.append(&self.caller, self.ino, bytes)
    }

    /// Makes it `size` bytes long.
    ///
    /// # Errors
    /// As [`Volume::truncate`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.volume.truncate(&self.caller, self.ino, size).map(drop)
    }

    /// Everything that was done before the call survives power loss on return.
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn sync(&self) -> Result<()> {
        self.volume.sync()
    }

    /// Bytes.
    ///
    /// # Errors
    /// Damaged metadata.
    pub fn size(&self) -> Result<u64> {
        Ok(self.attributes()?.size)
    }

    /// Its attributes, as `stat` tells them.
    ///
    /// # Errors
    /// Damaged metadata.
    pub fn attributes(&self) -> Result<Attributes> {
        self.volume.attributes(self.ino)
    }
}

/// A volume in the name of a caller. See [`Volume::by`].
#[derive(Clone, Debug)]
pub struct Paths {
    volume: Volume,
    caller: Arc<Caller>,
}

impl Volume {
    /// Paths of the volume in the name of `caller`. The methods of the volume itself use [`Caller::root`].
    #[must_use]
    pub fn by(&self, caller: Caller) -> Paths {
        Paths { volume: self.clone(), caller: Arc::new(caller) }
    }

    fn as_root(&self) -> Paths {
        self.by(Caller::root())
    }

    /// Makes an empty file, or empties the one that is there, and opens it.
    ///
    /// # Errors
    /// As [`Paths::create`].
    pub fn create(&self, path: &str) -> Result<File> {
        self.as_root().create(path)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`Paths::open_file`].
    pub fn open_file(&self, path: &str) -> Result<File> {
        self.as_root().open_file(path)
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// As [`Volume::make_file`].
    pub fn create_folder(&self, path: &str) -> Result<()> {
        self.as_root().create_folder(path)
    }

    /// Removes a file or an empty folder.
    ///
    /// # Errors
    /// As [`Volume::unlink`] and [`Volume::remove_folder`].
    pub fn remove(&self, path: &str) -> Result<()> {
        self.as_root().remove(path)
    }

    /// Gives a file another path.
    ///
    /// # Errors
    /// As [`Volume::rename`].
    pub fn rename_path(&self, from: &str, to: &str) -> Result<()> {
        self.as_root().rename(from, to)
    }

    /// The entries of a folder, without `.` and `..`.
    ///
    /// # Errors
    /// As [`Volume::read_folder`].
    pub fn entries(&self, path: &str) -> Result<Vec<FolderEntry>> {
        self.as_root().entries(path)
    }
}

impl Paths {
    /// The file at `path`. Symbolic links are followed, the last one if `follow`.
    ///
    /// # Errors
    /// No such file; no permission; too many links.
    pub fn find(&self, path: &str, follow: bool) -> Result<Attributes> {
        let mut links = 0;
        self.walk(ROOT, path.as_bytes(), follow, &mut links)
    }

    fn walk(&self, start: u64, path: &[u8], follow: bool, links: &mut u32) -> Result<Attributes> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Refusal::NameTooLong.into());
        }
        let mut at = self.volume.attributes(if path.starts_with(b"/") { ROOT } else { start })?;
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let folder = at.ino;
            at = self.volume.lookup(&self.caller, folder, name)?;
            if at.kind() == FileKind::Link && (follow || names.peek().is_some()) {
                *links += 1;
                if *links > LINKS_FOLLOWED_MAX {
                    return Err(Refusal::Loop.into());
                }
                at = self.walk(folder, &self.volume.read_link(at.ino)?, true, links)?;
            }
        }
        Ok(at)
    }

    /// The folder of a path, and its last name.
    fn parent<'p>(&self, path: &'p str) -> Result<(u64, &'p [u8])> {
        let path = path.trim_end_matches('/');
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() {
            return Err(Refusal::Invalid.into());
        }
        Ok((self.find(folder, true)?.ino, name.as_bytes()))
    }

    fn opened(&self, ino: u64) -> File {
        File { volume: self.volume.clone(), caller: Arc::clone(&self.caller), ino }
    }

    /// Makes an empty file, or empties the one that is there, and opens it.
    ///
    /// # Errors
    /// As [`Volume::make_file`] and [`Volume::truncate`].
    pub fn create(&self, path: &str) -> Result<File> {
        let (folder, name) = self.parent(path)?;
        let new = NewFile::new(FileKind::File, 0o644);
        match self.volume.make_file(&self.caller, folder, name, &new, true) {
            Ok(file) => Ok(self.opened(file.ino)),
            Err(error) if error.refusal() == Some(Refusal::Exists) => {
                let file = self.open_for(path, WRITE)?;
                file.truncate(0)?;
                Ok(file)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a file for reading, and for writing if the caller may.
    ///
    /// # Errors
    /// No such file; a folder; no permission.
    pub fn open_file(&self, path: &str) -> Result<File> {
        self.open_for(path, READ)
    }

    fn open_for(&self, path: &str, wanted: u32) -> Result<File> {
        let file = self.find(path, true)?;
        if file.is_folder() {
            return Err(Refusal::IsFolder.into());
        }
        self.caller.need(&file, wanted)?;
        self.volume.pin(file.ino);
        let opened = self.opened(file.ino);
        // It may have gone between the two steps.
        opened.attributes()?;
        Ok(opened)
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// As [`Volume::make_file`].
    pub fn create_folder(&self, path: &str) -> Result<()> {
        let (folder, name) = self.parent(path)?;
        let new = NewFile::new(FileKind::Folder, 0o755);
        self.volume.make_file(&self.caller, folder, name, &new, false).map(drop)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Volume::make_file`].
    pub fn create_link(&self, path: &str, target: &str) -> Result<()> {
        let (folder, name) = self.parent(path)?;
        self.volume.make_file(&self.caller, folder, name, &NewFile::link(target.as_bytes()), false).map(drop)
    }

    /// Removes a file or an empty folder.
    ///
    /// # Errors
    /// As [`Volume::unlink`] and [`Volume::remove_folder`].
    pub fn remove(&self, path: &str) -> Result<()> {
        let (folder, name) = self.parent(path)?;
        if self.volume.lookup(&self.caller, folder, name)?.is_folder() {
            return self.volume.remove_folder(&self.caller, folder, name);
        }
        self.volume.unlink(&self.caller, folder, name)
    }

    /// Gives a file another path.
    ///
    /// # Errors
    /// As [`Volume::rename`].
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.parent(from)?, self.parent(to)?);
        self.volume.rename(&self.caller, from, to, RenameMode::Replace)
    }

    /// The entries of a folder, without `.` and `..`.
    ///
    /// # Errors
    /// As [`Volume::read_folder`].
    pub fn entries(&self, path: &str) -> Result<Vec<FolderEntry>> {
        let folder = self.find(path, true)?;
        self.volume.read_folder(&self.caller, folder.ino, 2, usize::MAX)
    }
}
