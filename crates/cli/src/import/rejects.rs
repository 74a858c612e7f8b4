//! Rows that could not be imported: told to the user with their line numbers, and kept in a file.
//!
//! The file holds the rows exactly as they stand in the source (behind its header), so that it can be mended and
//! imported in turn. It is synced before the progress mark that counts on its length is stored; a continued import
//! cuts it back to that length, so no row is in it twice.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::output::Output;

/// Reasons told on a terminal; the rest is only counted.
const TOLD_MAX: u64 = 20;

/// Where rejected rows go.
pub struct Rejects {
    file: Option<(PathBuf, File)>,
    bytes: u64,
    count: u64,
    unsynced: bool,
}

/// One rejected row, as `--json` prints it.
#[derive(Serialize)]
struct Rejected<'a> {
    event: &'static str,
    line: u64,
    reason: &'a str,
}

impl Rejects {
    /// Keeps rejected rows in the file at `path`, if any, behind the `bytes` that an interrupted import left there.
    pub fn open(path: Option<&Path>, bytes: u64, head: &[u8]) -> Result<Self> {
        let mut rejects = Self { file: None, bytes, count: 0, unsynced: false };
        if let Some(path) = path {
            let context = || format!("{}: opening the file for rejected rows failed; check its folder", path.display());
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(false).open(path).with_context(context)?;
            file.set_len(bytes).with_context(context)?;
            file.seek(SeekFrom::Start(bytes)).with_context(context)?;
            rejects.file = Some((path.to_owned(), file));
            if bytes == 0 {
                rejects.write(head)?;
            }
        }
        Ok(rejects)
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Tells and keeps one row.
    pub fn reject(&mut self, output: &Output, line: u64, reason: &str, raw: &[u8]) -> Result<()> {
        self.count += 1;
        if output.is_json() {
            output.json(&Rejected { event: "rejected", line, reason })?;
        } else if self.count <= TOLD_MAX {
            output.note(&format!("line {line}: {reason}; the row is skipped"));
        } else if self.count == TOLD_MAX + 1 {
            output.note("more bad rows follow; they are counted, and kept with --rejects FILE");
        }
        self.write(raw)?;
        if !raw.ends_with(b"\n") && self.file.is_some() {
            self.write(b"\n")?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            file.write_all(bytes)
                .with_context(|| format!("{}: writing rejected rows failed; free space there", path.display()))?;
            self.bytes += bytes.len() as u64;
            self.unsynced = true;
        }
        Ok(())
    }

    /// Removes the file of an import that rejected nothing.
    pub fn remove(self) -> Result<()> {
        if let Some((path, _)) = &self.file {
            std::fs::remove_file(path)
                .with_context(|| format!("{}: removing the empty file of rejected rows failed", path.display()))?;
        }
        Ok(())
    }

    /// Makes the file as durable as the mark that will count on its length.
    pub fn sync(&mut self) -> Result<()> {
        if let Some((path, file)) = &self.file
            && self.unsynced
        {
            file.sync_data()
                .with_context(|| format!("{}: syncing rejected rows failed; check the device", path.display()))?;
            self.unsynced = false;
        }
        Ok(())
    }
}
