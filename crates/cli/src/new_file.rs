//! Files that a command makes: complete under their name, or absent.
//!
//! 1. Bytes go to a file without a name in the same folder, so not even SIGKILL leaves one there. A file system that
//!    has no such files (`O_TMPFILE`) gets a hidden temporary file.
//! 2. [`NewFile::publish`] syncs it, names it and syncs the folder. To replace a file it is first linked under
//!    a hidden name, which then replaces the other.
//! 3. On an error or a signal the hidden file is removed, and an older file keeps its name and its bytes.
//!
//! A target that is no regular file (`/dev/stdout`, a pipe) is written to directly, because there is nothing to
//! replace.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use lodestone_pmem::{folder_of, sync_folder_of};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use tempfile::NamedTempFile;

use crate::interrupt::Scratch;

/// The first bytes of a page that Lodestone made.
const PAGE_BEGINS: &[u8] = b"<!DOCTYPE html>";

/// A file in the making.
#[derive(Debug)]
pub struct NewFile {
    target: PathBuf,
    overwrite: bool,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    Unnamed(File),
    Beside(NamedTempFile, Scratch),
    Direct(File),
}

impl NewFile {
    /// Begins a file that will be called `target`.
    ///
    /// # Errors
    /// When `target` exists and `overwrite` is false, or its folder cannot be written.
    pub fn create(target: &Path, overwrite: bool) -> Result<Self> {
        let failed = || format!("{}: creating the file failed; check its folder", target.display());
        // A link still leads to the file that it names.
        let target = target.canonicalize().unwrap_or_else(|_| target.to_owned());
        let sink = match target.metadata() {
            Ok(found) if !found.is_file() => {
                Sink::Direct(OpenOptions::new().write(true).open(&target).with_context(failed)?)
            }
            found => {
                refuse_existing(&target, found.is_ok() && !overwrite)?;
                match unnamed_in(folder_of(&target)) {
                    Some(file) => Sink::Unnamed(file),
                    None => {
                        let (file, scratch) = beside(&target).with_context(failed)?;
                        Sink::Beside(file, scratch)
                    }
                }
            }
        };
        Ok(Self { target, overwrite, sink })
    }

    /// Makes the bytes durable and names the file.
    ///
    /// # Errors
    /// When syncing or renaming fails, or another file got the name meanwhile. Then no file remains.
    pub fn publish(self) -> Result<()> {
        let Self { target, overwrite, sink } = self;
        let failed =
            || format!("{}: writing the file failed; free space there, or choose another place", target.display());
        let named = match sink {
            Sink::Direct(_) => return Ok(()),
            Sink::Unnamed(file) => {
                file.sync_all().with_context(failed)?;
                name(&file, &target, overwrite)
            }
            Sink::Beside(file, scratch) => {
                file.as_file().sync_all().with_context(failed)?;
                // The name comes after the sync: it never leads to less than the whole file.
                scratch.publish(|| {
                    let done = if overwrite { file.persist(&target) } else { file.persist_noclobber(&target) };
                    done.map(drop).map_err(|error| error.error)
                })
            }
        };
        match named {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refuse_existing(&target, true)?,
            other => other.with_context(failed)?,
        }
        sync_folder_of(&target).with_context(failed)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sink {
            Sink::Beside(file, _) => file.write(bytes),
            Sink::Unnamed(file) | Sink::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Beside(file, _) => file.flush(),
            Sink::Unnamed(file) | Sink::Direct(file) => file.flush(),
        }
    }
}

/// An error when `target` exists and may not be replaced.
pub fn refuse_existing(target: &Path, is_there: bool) -> Result<()> {
    ensure!(!is_there, "{}: exists and was not touched; choose another file, or say --overwrite", target.display());
    Ok(())
}

/// A file without a name in `folder`, with the mode that a plain file would have. `None` where there are no such files,
/// or no path by which one can get a name.
fn unnamed_in(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok().map(File::from)?;
    path_of(&file).exists().then_some(file)
}

/// The path of an open file, whatever its name.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Names the file `target`. Replaces an older file of that name if `overwrite`.
fn name(file: &File, target: &Path, overwrite: bool) -> io::Result<()> {
    let link = |path: &Path| rustix::fs::linkat(CWD, path_of(file), CWD, path, AtFlags::SYMLINK_FOLLOW);
    match link(target) {
        Err(rustix::io::Errno::EXIST) if overwrite => {}
        other => return Ok(other?),
    }
    // A link never replaces a name, a rename does.
    let (hidden, scratch) = beside(target)?;
    let path = hidden.path().to_owned();
    hidden.close()?;
    link(&path)?;
    scratch.publish(|| fs::rename(&path, target))
}

/// A temporary file in the folder of `target`, with the mode that a plain file would have.
fn beside(target: &Path) -> io::Result<(NamedTempFile, Scratch)> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut builder = tempfile::Builder::new();
    let prefix = format!(".{name}.");
    let builder = builder.prefix(&prefix).suffix(".tmp").permissions(fs::Permissions::from_mode(0o666));
    let file = builder.tempfile_in(folder_of(target))?;
    let scratch = Scratch::new(file.path());
    Ok((file, scratch))
}

/// Checks, before the work for a page begins, that the page can get its name.
///
/// # Errors
/// When its folder is missing, or a file that is no page exists.
pub fn verify_page(target: &Path) -> Result<()> {
    let folder = folder_of(target);
    ensure!(folder.is_dir(), "{}: its folder is missing; make it, or choose another one", target.display());
    let mut found = vec![0; PAGE_BEGINS.len()];
    let is_page = target.is_file()
        && File::open(target).and_then(|mut file| io::Read::read_exact(&mut file, &mut found)).is_ok()
        && found == PAGE_BEGINS;
    ensure!(
        is_page || !target.is_file(),
        "{}: is there and is no page that could be replaced; choose another file",
        target.display()
    );
    Ok(())
}

/// Writes a page. An existing older page is replaced, any other file is refused.
///
/// # Errors
/// As [`verify_page`], or when the file cannot be written.
pub fn write_page(target: &Path, text: &str) -> Result<()> {
    verify_page(target)?;
    let mut file = NewFile::create(target, true)?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("{}: writing the page failed; choose a writable folder", target.display()))?;
    file.publish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("folder");
        entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let folder = tempfile::tempdir().expect("folder");
        let target = folder.path().join("out.csv");
        let mut file = NewFile::create(&target, false).expect("create");
        file.write_all(b"half").expect("write");
        assert!(!target.exists(), "nothing has the name yet");
        drop(file);
        assert_eq!(names(folder.path()), [""; 0], "nothing stays behind");
        let mut file = NewFile::create(&target, false).expect("create");
        file.write_all(b"whole").expect("write");
        file.publish().expect("publish");
        assert_eq!((names(folder.path()), fs::read(&target).expect("read")), (vec!["out.csv".into()], b"whole".into()));
        assert_ne!(target.metadata().expect("metadata").permissions().mode() & 0o444, 0o400, "the mode of plain files");
    }

    #[test]
    fn an_existing_file_is_replaced_only_when_asked() {
        let folder = tempfile::tempdir().expect("folder");
        let target = folder.path().join("out.csv");
        fs::write(&target, "old").expect("write");
        let message = NewFile::create(&target, false).expect_err("exists").to_string();
        assert!(message.contains("--overwrite"), "{message}");
        drop(NewFile::create(&target, true).expect("create"));
        assert_eq!(fs::read(&target).expect("read"), b"old", "not before it is whole");
        NewFile::create(&target, true).expect("create").publish().expect("publish");
        assert_eq!(fs::read(&target).expect("read"), b"");
        // Another process takes the name meanwhile.
        fs::remove_file(&target).expect("remove");
        let file = NewFile::create(&target, false).expect("create");
        fs::write(&target, "theirs").expect("write");
        assert!(file.publish().expect_err("taken").to_string().contains("exists"));
        assert_eq!((names(folder.path()).len(), fs::read(&target).expect("read")), (1, b"theirs".to_vec()));
    }

    #[test]
    fn pages_replace_pages_alone() {
        let folder = tempfile::tempdir().expect("folder");
        let target = folder.path().join("page.html");
        write_page(&target, "<!DOCTYPE html>one").expect("new");
        write_page(&target, "<!DOCTYPE html>two").expect("again");
        fs::write(&target, "id,name").expect("write");
        assert!(write_page(&target, "<!DOCTYPE html>").expect_err("no page").to_string().contains("no page"));
        assert_eq!(fs::read(&target).expect("read"), b"id,name");
        let nowhere = folder.path().join("missing").join("page.html");
        assert!(verify_page(&nowhere).expect_err("no folder").to_string().contains("missing"));
    }
}
