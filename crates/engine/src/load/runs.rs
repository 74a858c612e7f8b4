//! Sorted runs of rows in a file without a name, for rows that come in no order and do not fit in memory.
//!
//! ```text
//! for each row: key bytes u32, payload bytes u32, key, payload
//! ```
//!
//! The file is no part of the pool: nothing is left of it after a crash, or when the load ends. So it needs no
//! checksums, and its errors are errors of the load.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_pmem::Error as PoolError;
use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::error::{Error, Result};
use crate::load::rows::RowBuffer;

/// Bytes of a run that are read at a time.
const READ_BYTES: usize = 256 << 10;
/// Bytes of a row before its key.
const HEAD_BYTES: usize = 8;

/// Numbers of the files of this process.
static FILES: AtomicU64 = AtomicU64::new(0);

/// See the module.
#[derive(Debug)]
pub struct Runs {
    file: File,
    path: PathBuf,
    /// Where each run ends.
    ends: Vec<u64>,
}

impl Runs {
    /// A file beside the pool, where there is room for rows as a rule.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(pool: &Path) -> Result<Self> {
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let mut name = pool.as_os_str().to_owned();
        name.push(format!(".load-{}-{number}", std::process::id()));
        let beside = PathBuf::from(name);
        let elsewhere = std::env::temp_dir().join(format!("lodestone-load-{}-{number}", std::process::id()));
        let open = |path: &Path| OpenOptions::new().read(true).write(true).create_new(true).open(path);
        // The pool may be a device.
        let (file, path) = match open(&beside) {
            Ok(file) => (file, beside),
            Err(_) => (open(&elsewhere).map_err(|error| failure(&elsewhere, error))?, elsewhere),
        };
        // From here on the file has no name: it goes with its last handle, also when the process is killed.
        std::fs::remove_file(&path).map_err(|error| failure(&path, error))?;
        Ok(Self { file, path, ends: Vec::new() })
    }

    /// Adds a run of rows, which are sorted.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add(&mut self, rows: &RowBuffer) -> Result<()> {
        let mut end = self.ends.last().copied().unwrap_or(0);
        let mut out = BufWriter::with_capacity(READ_BYTES, At { file: &self.file, at: end });
        for (key, payload) in rows.rows(0) {
            let lengths = [exact_u32(key.len()), exact_u32(payload.len())];
            let parts = [&lengths[0].to_le_bytes()[..], &lengths[1].to_le_bytes(), key, payload];
            for part in parts {
                out.write_all(part).map_err(|error| failure(&self.path, error))?;
                end += to_u64(part.len());
            }
        }
        out.flush().map_err(|error| failure(&self.path, error))?;
        drop(out);
        self.ends.push(end);
        Ok(())
    }

    /// A reader of each run.
    pub fn readers(&self) -> Vec<RunReader<'_>> {
        let begins = [0].into_iter().chain(self.ends.iter().copied());
        let reader = |(at, end)| RunReader { runs: self, at, end, buffer: Vec::new(), begin: 0 };
        begins.zip(self.ends.iter().copied()).map(reader).collect()
    }
}

/// Writes from a place of a file on.
struct At<'f> {
    file: &'f File,
    at: u64,
}

impl Write for At<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file.write_at(bytes, self.at)?;
        self.at += to_u64(count);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Reads the rows of a run in their order.
#[derive(Debug)]
pub struct RunReader<'r> {
    runs: &'r Runs,
    /// The part of the file that was not read yet.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Where the next row begins in the buffer.
    begin: usize,
}

impl RunReader<'_> {
    /// The next row: its key and its payload. `None`: there is none.
    ///
    /// # Errors
    /// Those of the file.
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if !self.fill(HEAD_BYTES)? {
            return Ok(None);
        }
        let word = |from: usize| {
            let bytes = self.buffer.get(from..from + 4).and_then(|bytes| bytes.first_chunk());
            to_usize(bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)))
        };
        let (key, payload) = (word(self.begin), word(self.begin + 4));
        if !self.fill(HEAD_BYTES + key + payload)? {
            let error = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "a run ends within a row");
            return Err(failure(&self.runs.path, error));
        }
        let from = self.begin + HEAD_BYTES;
        let row = (self.buffer[from..from + key].to_vec(), self.buffer[from + key..from + key + payload].to_vec());
        self.begin = from + key + payload;
        Ok(Some(row))
    }

    /// Makes sure that so many bytes of the run are in the buffer. `false`: the run ends before.
    fn fill(&mut self, bytes: usize) -> Result<bool> {
        if self.buffer.len() - self.begin >= bytes {
            return Ok(true);
        }
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let have = self.buffer.len();
        let left = to_usize(self.end - self.at);
        let count = READ_BYTES.max(bytes - have).min(left);
        self.buffer.resize(have + count, 0);
        self.runs
            .file
            .read_exact_at(&mut self.buffer[have..], self.at)
            .map_err(|error| failure(&self.runs.path, error))?;
        self.at += to_u64(count);
        Ok(self.buffer.len() >= bytes)
    }
}

/// An error of the file.
fn failure(path: &Path, source: std::io::Error) -> Error {
    Error::Pool(PoolError::io(
        path,
        "sorting rows",
        "make room on its device, or load rows in the order of the key",
        source,
    ))
}
