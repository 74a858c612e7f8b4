//! Copies of a pool, online and consistent: a *backup* is the same pool at another moment, a *copy* is a new pool.
//!
//! 1. Temporary files are made beside the targets, with all their space. So a full disk is found before writers are
//!    stopped.
//! 2. The pool's states are locked: no growth and no change of a root meanwhile. A first pass writes everything that is
//!    not zero to the targets, while writers go on. It need not be right. It saves time later.
//! 3. The gate in `fence` is closed: writers stop at their next fence, readers go on. `gate` argues why the copy is
//!    then a state that the contract allows. The second pass reads every line until two readings agree, so each is a
//!    prefix of its stores. It rewrites the lines that differ in the target. The journal area stays empty: its lines
//!    are in the memory already.
//! 4. The gate opens; the targets are synced and renamed into place, part 0 last and over no older one (see `publish`):
//!    the parts of two backups of one pool have the same identity, and no file may ever be found beside one of another
//!    backup.
//!
//! It is the same in every domain, because the memory of an open pool is the newest state in every domain. Everything
//! acknowledged before the call is in the copy.
//!
//! The headers of the target carry a part table of their own, so that a copied set never finds parts of the original.

mod publish;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestone_width::{exact_u16, nearest_f64, to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::error::{Error, Result};
use crate::gate::ClosedGate;
use crate::memory::Memory;
use crate::pool::access::Access;
use crate::pool::create::NewFile;
use crate::pool::layout::{PAGE_BYTES, PART_PATH_BYTES, PartHeader};
use crate::pool::uuid::Uuid;
use crate::pool::{Pool, PoolOptions, header, info, lock, set, space};
use publish::{Observer, publish_all};

/// Bytes that are copied at a time.
const CHUNK_BYTES: u64 = 64 << 10;
/// Readings of a line before the copy fails, because a thread stores to it all the time without a fence.
const READINGS_MAX: u32 = 1 << 20;

/// How to copy a pool.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use lodestone_pmem::CopyOptions;
///
/// let pool = Pool::create(&path, &options)?;
/// let target = folder.path().join("copy.pool");
/// pool.backup(&target, &CopyOptions::default())?;
/// assert!(pool.backup(&target, &CopyOptions::default()).is_err(), "it exists");
/// let replace = CopyOptions { overwrite: true, ..CopyOptions::default() };
/// pool.backup(&target, &replace)?;
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// Whether existing files at the target may be replaced.
    pub overwrite: bool,
    /// Where the further parts go; empty: beside the target, `target.1`, `target.2`, ...
    pub parts: Vec<PathBuf>,
}

/// The files, sizes and times of a copy.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use lodestone_pmem::CopyOptions;
///
/// let pool = Pool::create(&path, &options)?;
/// let target = folder.path().join("copy.pool");
/// let report = pool.backup(&target, &CopyOptions::default())?;
/// assert_eq!((report.paths, report.pool_bytes), (vec![target], 16 << 20));
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyReport {
    /// The files of the copy, by part number.
    pub paths: Vec<PathBuf>,
    /// Identity of the pool in them.
    pub set_uuid: Uuid,
    /// Length of all parts in bytes.
    pub pool_bytes: u64,
    /// Bytes that were not zero and were written in the first pass.
    pub written_bytes: u64,
    /// Bytes that were written again in the second pass, because they had changed meanwhile.
    pub rewritten_bytes: u64,
    /// How long writers were stopped at their fences.
    pub writers_stopped_ns: u64,
}

impl fmt::Display for CopyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        write!(
            f,
            "{}: pool {}, {} ({} not zero, {} changed meanwhile); writers were stopped for {:.1} ms",
            paths.join(", "),
            self.set_uuid,
            info::bytes(self.pool_bytes),
            info::bytes(self.written_bytes),
            info::bytes(self.rewritten_bytes),
            nearest_f64(self.writers_stopped_ns) / 1e6
        )
    }
}

impl Pool {
    /// Makes a backup: the same pool, with the same identity, as it is at one moment during the call. Works while the
    /// pool is in use. Opening the backup recovers it as after a power cut. Everything acknowledged before the call is
    /// in it.
    ///
    /// Writers are stopped at their next [`fence`](Memory::fence) while the lines are copied. So the calling thread may
    /// hold no lock that another thread needs to come to its fence and go on.
    ///
    /// The files get owner and permissions of the pool's files, as far as this user may set them. They are never open
    /// to more users than the pool's files.
    ///
    /// # Errors
    /// When the target is there already, space runs out, a read or write fails, or this pool was opened with
    /// [`allow_concurrent_writer`](PoolOptions::allow_concurrent_writer): then nothing stops the other writer. The
    /// target is then unchanged, or not there. A kill leaves that, or the new pool.
    pub fn backup(&self, target: impl AsRef<Path>, options: &CopyOptions) -> Result<CopyReport> {
        self.copy_to(target.as_ref(), options, false, &mut |_| Ok(()))
    }

    /// Makes a new pool with identities of its own and the contents of this one; otherwise as [`backup`](Self::backup).
    /// For a pool that is not in use: `Pool::open_read_only(..)?.copy(..)`.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn copy(&self, target: impl AsRef<Path>, options: &CopyOptions) -> Result<CopyReport> {
        self.copy_to(target.as_ref(), options, true, &mut |_| Ok(()))
    }

    fn copy_to(
        &self,
        target: &Path,
        options: &CopyOptions,
        new_identity: bool,
        after_step: Observer<'_>,
    ) -> Result<CopyReport> {
        let states = self.shared.states();
        self.verify_one_moment()?;
        // A deleted file can be copied: often that is the only way to keep what it holds.
        self.verify_lengths()?;
        let lengths: Vec<u64> = self.shared.part_bytes.iter().map(|bytes| bytes.load(Ordering::Acquire)).collect();
        let paths = self.target_paths(target, options)?;
        let headers = self.target_headers(target, &paths, new_identity)?;
        let mut files = Vec::with_capacity(paths.len());
        for (index, (path, bytes)) in paths.iter().zip(&lengths).enumerate() {
            let file = NewFile::with_access(path, options.overwrite, self.access_of(index)?)?;
            space::allocate(path, &file.file, 0, *bytes)?;
            files.push(file);
        }
        let mut written_bytes = 0;
        for (part, header) in headers.iter().enumerate() {
            written_bytes += self.copy_running(exact_u16(part), lengths[part], header, &files[part])?;
        }
        let gate = self.stop_writers(target)?;
        let started = Instant::now();
        let mut rewritten_bytes = 0;
        for (part, header) in headers.iter().enumerate() {
            rewritten_bytes += self.copy_stopped(exact_u16(part), lengths[part], header, &files[part])?;
        }
        drop(gate);
        let writers_stopped_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        drop(states);
        publish_all(files, after_step)?;
        let set_uuid = Uuid(headers[0].set_uuid);
        Ok(CopyReport {
            paths,
            set_uuid,
            pool_bytes: lengths.iter().sum(),
            written_bytes,
            rewritten_bytes,
            writers_stopped_ns,
        })
    }

    /// Refuses a pool that was opened without a lock: its bytes may mix moments, and no gate stops a writer of another
    /// process.
    fn verify_one_moment(&self) -> Result<()> {
        if !self.shared.is_unlocked {
            return Ok(());
        }
        let mut writer = None;
        for part in self.shared.parts.iter() {
            writer = writer.or(lock::writer_of(&part.path, &part.file)?);
        }
        let writer = match writer {
            Some(holder) => format!("it is open for writing in {holder}"),
            None => "a writer may have been beside it since".into(),
        };
        Err(Error::Invalid {
            what: "source of the copy",
            finding: format!(
                "{} was opened without a lock (allow_concurrent_writer), and {writer}: a copy would mix moments",
                self.path().display()
            ),
            hint: "take the backup in the process that writes, or close the pool there and open it with a lock",
        })
    }

    /// Owner and permissions of part `index`, for its copy; a device has no such file.
    fn access_of(&self, index: usize) -> Result<Option<Access>> {
        match self.shared.parts.get(index) {
            None => Ok(None),
            Some(part) if part.is_device() => Ok(Some(Access::private())),
            Some(part) => {
                let failed = |e| Error::io(&part.path, "reading owner and permissions", "check the file", e);
                Access::of(&part.file).map(Some).map_err(failed)
            }
        }
    }

    /// Closes the gate; a read-only pool has no writers to stop.
    fn stop_writers(&self, target: &Path) -> Result<Option<ClosedGate<'_>>> {
        if self.memory.is_read_only() {
            return Ok(None);
        }
        let hint = "the kernel does not allow membarrier(2): close the pool, open it read-only and copy it then";
        let closed = self.memory.gate().close();
        closed.map(Some).map_err(|e| Error::io(target, "stopping the writers", hint, e))
    }

    fn target_paths(&self, target: &Path, options: &CopyOptions) -> Result<Vec<PathBuf>> {
        let count = self.shared.headers.len();
        let mut parts = options.parts.clone();
        if parts.is_empty() {
            parts = (1..count).map(|index| set::conventional_path(target, index)).collect();
        }
        if parts.len() + 1 != count {
            return Err(Error::Invalid {
                what: "parts",
                finding: format!("{} target paths for a pool of {count} parts", parts.len() + 1),
                hint: "name a target for every further part, or for none",
            });
        }
        set::paths_of_new(target, &PoolOptions { parts, ..PoolOptions::default() })
    }

    fn target_headers(&self, target: &Path, paths: &[PathBuf], new_identity: bool) -> Result<Vec<PartHeader>> {
        let mut headers = self.shared.headers.clone();
        let stored: Vec<[u8; PART_PATH_BYTES]> = paths
            .iter()
            .enumerate()
            .map(|(index, path)| set::stored_path(target, path, index))
            .collect::<Result<_>>()?;
        let (mut set_uuid, mut uuids) =
            (Uuid(headers[0].set_uuid), headers.iter().map(|header| Uuid(header.part_uuid)).collect::<Vec<_>>());
        if new_identity {
            set_uuid = Uuid::random(target)?;
            uuids = paths.iter().map(|path| Uuid::random(path)).collect::<Result<_>>()?;
        }
        for header in &mut headers {
            set::identify(header, set_uuid, &uuids, &stored);
        }
        Ok(headers)
    }

    /// The first pass over one part, with its new header; returns the number of bytes written.
    fn copy_running(&self, part: u16, bytes: u64, header: &PartHeader, target: &NewFile) -> Result<u64> {
        write(target, header.as_bytes(), header::copy_offset(bytes))?;
        write(target, header.as_bytes(), 0)?;
        let mut written = 2 * PAGE_BYTES;
        let mut chunk = vec![0; to_usize(CHUNK_BYTES)];
        for (offset, step) in chunks(bytes, header) {
            let data = &mut chunk[..step];
            self.memory.read(PmAddr::new(part, offset), data);
            if data.iter().any(|byte| *byte != 0) {
                write(target, data, offset)?;
                written += to_u64(step);
            }
        }
        Ok(written)
    }

    /// The second pass over one part, with the gate closed; returns the number of bytes written again.
    fn copy_stopped(&self, part: u16, bytes: u64, header: &PartHeader, target: &NewFile) -> Result<u64> {
        let mut rewritten = 0;
        let (mut chunk, mut copied) = (vec![0; to_usize(CHUNK_BYTES)], vec![0; to_usize(CHUNK_BYTES)]);
        for (offset, step) in chunks(bytes, header) {
            let (data, copied) = (&mut chunk[..step], &mut copied[..step]);
            let unstable = |line| unstable(self.path(), line);
            read_stable(&self.memory, PmAddr::new(part, offset), data).map_err(unstable)?;
            target.file.read_exact_at(copied, offset).map_err(|e| {
                Error::io(&target.target, "reading the copy", "check the file system; the pool itself is untouched", e)
            })?;
            if data != copied {
                write(target, data, offset)?;
                rewritten += to_u64(step);
            }
        }
        Ok(rewritten)
    }
}

fn write(target: &NewFile, data: &[u8], offset: u64) -> Result<()> {
    let hint = "free space on the file system; the pool itself is untouched";
    target.file.write_all_at(data, offset).map_err(|e| Error::io(&target.target, "writing the copy", hint, e))
}

/// Offsets and lengths of the copied ranges of a part of `bytes`: everything but headers and journal.
fn chunks(bytes: u64, header: &PartHeader) -> impl Iterator<Item = (u64, usize)> {
    let areas = [(PAGE_BYTES, header.journal_offset), (header.heap_offset, header::copy_offset(bytes))];
    areas.into_iter().flat_map(|(start, end)| {
        let starts = (start..end).step_by(to_usize(CHUNK_BYTES));
        starts.map(move |offset| (offset, to_usize((end - offset).min(CHUNK_BYTES))))
    })
}

fn unstable(path: &Path, line: LineAddr) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::TimedOut, format!("{line:?} changes all the time"));
    Error::io(path, "copying", "a thread stores there without ever fencing: stop it and try again", source)
}

/// Reads whole lines from `at`, each as it was at one moment.
fn read_stable(memory: &Memory, at: PmAddr, out: &mut [u8]) -> std::result::Result<(), LineAddr> {
    let mut line = at.line();
    for target in out.chunks_mut(to_usize(LINE_BYTES)) {
        let mut words = memory.raw_line(line);
        let mut readings = 1;
        loop {
            let again = memory.raw_line(line);
            if again == words {
                break;
            }
            if readings == READINGS_MAX {
                return Err(line);
            }
            (words, readings) = (again, readings + 1);
            std::hint::spin_loop();
        }
        target.copy_from_slice(&words.as_bytes()[..target.len()]);
        line = line.next();
    }
    Ok(())
}
