//! Rows that could not be imported: reported to the user with their line numbers, and kept in a file.
//!
//! 1. Rows go to a file beside the requested one, with `.partial` after its name. They are exactly as in the source,
//!    after its header, so that the file can be corrected and imported in turn.
//! 2. The file is synced before the progress mark that depends on its length is stored. A continued import cuts it back
//!    to that length, so no row is in it twice.
//! 3. At the end of the import the file gets its name. Before the first mark nothing depends on it, and it is removed
//!    on an error or a signal.
//!
//! Invariants: the final name never holds half of the rows. An existing file keeps its bytes unless `overwrite` is set.
//! A target that is no regular file (`/dev/stderr`) is written to directly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde::Serialize;

use crate::interrupt::Scratch;
use crate::new_file::refuse_existing;
use crate::output::Output;

use super::lines::Raw;

/// Number of reasons printed on a terminal. The others are only counted.
const TOLD_MAX: u64 = 20;

/// The destination of rejected rows.
pub struct Rejects {
    file: Option<Kept>,
    bytes: u64,
    count: u64,
    unsynced: bool,
}

/// The file of rejected rows.
struct Kept {
    target: PathBuf,
    /// The name until the end. `None`: the target itself, which is no regular file.
    partial: Option<PathBuf>,
    file: File,
    overwrite: bool,
    /// `Some` until a mark depends on the file. If this is dropped before that, the file is removed.
    unmarked: Option<Scratch>,
}

/// One rejected row, as `--json` prints it.
#[derive(Serialize)]
struct Rejected<'a> {
    event: &'static str,
    line: u64,
    reason: &'a str,
}

impl Rejects {
    /// Keeps rejected rows for the file at `path`, if any, after the `bytes` that an interrupted import left.
    ///
    /// # Errors
    /// When the file exists and may not be replaced, when the rows of an interrupted import are gone, or when the
    /// folder fails.
    pub fn open(path: Option<&Path>, overwrite: bool, bytes: u64, head: &[u8]) -> Result<Self> {
        let file = path.map(|path| Kept::open(path, overwrite, bytes)).transpose()?;
        let mut rejects = Self { file, bytes, count: 0, unsynced: false };
        if bytes == 0 && !head.is_empty() {
            rejects.write(&mut Raw::Bytes(head.to_vec()))?;
        }
        Ok(rejects)
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reports and keeps one row.
    pub fn reject(&mut self, output: &Output, line: u64, reason: &str, raw: &mut Raw) -> Result<()> {
        self.count += 1;
        if output.is_json() {
            output.json(&Rejected { event: "rejected", line, reason })?;
        } else if self.count <= TOLD_MAX {
            output.note(&format!("line {line}: {reason}; the row is skipped"));
        } else if self.count == TOLD_MAX + 1 {
            output.note("more bad rows follow; they are counted, and kept with --rejects FILE");
        }
        self.write(raw)
    }

    fn write(&mut self, raw: &mut Raw) -> Result<()> {
        if let Some(kept) = &mut self.file {
            self.bytes += raw
                .write_to(&mut kept.file)
                .with_context(|| kept.failed("writing rejected rows failed; free space there"))?;
            self.unsynced = true;
        }
        Ok(())
    }

    /// Makes the file as durable as the mark that will depend on its length.
    pub fn sync(&mut self) -> Result<()> {
        if let Some(kept) = self.file.as_ref().filter(|kept| kept.partial.is_some())
            && self.unsynced
        {
            kept.file.sync_data().with_context(|| kept.failed("syncing rejected rows failed; check the device"))?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Notes that a mark depends on the file. From now on the file stays for a continued import.
    pub fn marked(&mut self) {
        if let Some(kept) = &mut self.file {
            kept.unmarked = None;
        }
    }

    /// Renames the file to its final name, or removes it when no row was rejected.
    pub fn finish(mut self, rejected: u64) -> Result<()> {
        let Some(mut kept) = self.file.take() else { return Ok(()) };
        let Some(partial) = kept.partial.clone() else { return Ok(()) };
        let failed = kept.failed("finishing the file of rejected rows failed; check its folder");
        if rejected == 0 {
            kept.unmarked = None;
            fs::remove_file(&partial).with_context(|| failed.clone())?;
            // A file of an earlier import would look like one of this.
            if kept.overwrite && kept.target.exists() {
                fs::remove_file(&kept.target).with_context(|| failed.clone())?;
            }
            return Ok(());
        }
        kept.file.sync_all().with_context(|| failed.clone())?;
        let flags = if kept.overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let rename = || Ok(renameat_with(CWD, &partial, CWD, &kept.target, flags)?);
        let renamed: io::Result<()> = match kept.unmarked.take() {
            Some(scratch) => scratch.publish(rename),
            None => rename(),
        };
        renamed.with_context(|| failed.clone())?;
        lodestone_pmem::sync_folder_of(&kept.target).with_context(|| failed)
    }
}

impl Kept {
    fn open(path: &Path, overwrite: bool, bytes: u64) -> Result<Self> {
        let context = || format!("{}: opening the file for rejected rows failed; check its folder", path.display());
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if target.metadata().is_ok_and(|found| !found.is_file()) {
            let file = OpenOptions::new().write(true).open(&target).with_context(context)?;
            return Ok(Self { target, partial: None, file, overwrite, unmarked: None });
        }
        let partial = partial_name(&target);
        if bytes > 0 && !partial.exists() && target.metadata().is_ok_and(|found| found.len() == bytes) {
            // The interrupted import that this one continues had already reached its end.
            fs::rename(&target, &partial).with_context(context)?;
        }
        refuse_existing(&target, target.exists() && !overwrite)?;
        if bytes > 0 && partial.metadata().map_or(0, |found| found.len()) < bytes {
            bail!(
                "{}: the rows that the interrupted import rejected are gone; import afresh with --restart",
                partial.display()
            );
        }
        let unmarked = (bytes == 0).then(|| Scratch::new(&partial));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(&partial).with_context(context)?;
        file.set_len(bytes).with_context(context)?;
        file.seek(SeekFrom::Start(bytes)).with_context(context)?;
        Ok(Self { target, partial: Some(partial), file, overwrite, unmarked })
    }

    fn failed(&self, what: &str) -> String {
        format!("{}: {what}", self.target.display())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let (Some(_), Some(partial)) = (&self.unmarked, &self.partial) {
            // Nothing depends on it. A file that cannot be removed only costs space.
            let _ = fs::remove_file(partial);
        }
    }
}

/// The name of the file until it is complete. Then it is called `target`.
fn partial_name(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    target.with_file_name(name)
}
