//! Copies of a pool, online and consistent: a *backup* is the same pool at another moment, a *copy* is a new pool.
//!
//! 1. Temporary files are made beside the targets, with all their space. So a full disk is found at the beginning.
//! 2. From now on pages that are flushed are marked (`changes.rs`). A first pass writes everything that is not zero to
//!    the targets, while writers go on.
//! 3. Further passes take the marks and write these pages again, until few are left. Parts that grow meanwhile grow in
//!    the targets as well.
//! 4. The pool's states are locked, so that no part grows, and the gate in `fence` is closed: writers stop at their
//!    next fence, readers go on. The pages that are left are read. `changes` argues why the copy is then a state that
//!    the contract allows. Each line is read until two readings agree, so each is a prefix of its stores. The journal
//!    area stays empty: its lines are in the memory already.
//! 5. The gate opens; those pages are written; the targets are synced and renamed into place, part 0 last and over no
//!    older one (see `publish`): the parts of two backups of one pool have the same identity, and no file may ever be
//!    found beside one of another backup.
//!
//! It is the same in every domain, because the memory of an open pool is the newest state in every domain. Everything
//! acknowledged before the call is in the copy.
//!
//! The headers of the target carry a part table of their own, so that a copied set never finds parts of the original.

mod pace;
mod passes;
mod publish;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestone_width::nearest_f64;

use crate::error::{Error, Result};
use crate::events;
use crate::pool::access::Access;
use crate::pool::create::NewFile;
use crate::pool::layout::{PART_PATH_BYTES, PartHeader};
use crate::pool::uuid::Uuid;
use crate::pool::{Pool, PoolOptions, info, lock, set, space};
use pace::Pace;
use passes::{Copying, Figures};
use publish::{Observer, publish_all};

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
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Whether existing files at the target may be replaced.
    pub overwrite: bool,
    /// Where the further parts go; empty: beside the target, `target.1`, `target.2`, ...
    pub parts: Vec<PathBuf>,
    /// How much of its time a copy beside writers works, in percent, 1 to 100. It sleeps for the rest, so that they
    /// have the processors and the medium. After the first pass over all pages it works more with each pass: else they
    /// could change pages faster than these are copied. 20 by default. A pool without writers is copied without sleep.
    pub share_percent: u8,
}

impl Default for CopyOptions {
    fn default() -> Self {
        Self { overwrite: false, parts: Vec::new(), share_percent: 20 }
    }
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
    /// Bytes that were written again in further passes, because they were flushed meanwhile.
    pub rewritten_bytes: u64,
    /// Passes while writers went on.
    pub passes: u32,
    /// How long writers were stopped at their fences, after these passes.
    pub writers_stopped_ns: u64,
}

impl fmt::Display for CopyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        write!(
            f,
            "{}: pool {}, {} ({} not zero, {} changed meanwhile and written again); writers were stopped for {:.1} ms",
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
    /// Writers go on while all is copied, and then what they have changed meanwhile, in several passes. At the end they
    /// are stopped at their next [`fence`](crate::Memory::fence), while the last few pages are read: 2 MiB at most. If
    /// they change pages faster than these are copied, all that are left. The calling thread may hold no lock
    /// that another thread needs to come to its fence and go on.
    ///
    /// The files get owner and permissions of the pool's files, as far as this user may set them. They are never open
    /// to more users than the pool's files.
    ///
    /// # Errors
    /// When the target is there already, space runs out, a read or write fails, or this pool was opened with
    /// [`allow_concurrent_writer`](PoolOptions::allow_concurrent_writer): then nothing stops the other writer. The
    /// target is then unchanged, or not there. A kill leaves that, or the new pool.
    pub fn backup(&self, target: impl AsRef<Path>, options: &CopyOptions) -> Result<CopyReport> {
        self.told_copy(target.as_ref(), options, false)
    }

    /// Makes a new pool with identities of its own and the contents of this one; otherwise as [`backup`](Self::backup).
    /// For a pool that is not in use: `Pool::open_read_only(..)?.copy(..)`.
    ///
    /// # Errors
    /// As [`backup`](Self::backup).
    pub fn copy(&self, target: impl AsRef<Path>, options: &CopyOptions) -> Result<CopyReport> {
        self.told_copy(target.as_ref(), options, true)
    }

    /// Copies, and emits the events about it.
    fn told_copy(&self, target: &Path, options: &CopyOptions, new_identity: bool) -> Result<CopyReport> {
        let start = Instant::now();
        events::copy_begins(self.path(), target);
        let outcome = self.copy_to(target, options, new_identity, &mut |_| Ok(()));
        events::copied(self.path(), target, &outcome, start.elapsed());
        outcome
    }

    fn copy_to(
        &self,
        target: &Path,
        options: &CopyOptions,
        new_identity: bool,
        after_step: Observer<'_>,
    ) -> Result<CopyReport> {
        if !(1..=100).contains(&options.share_percent) {
            let finding = format!("share_percent is {}", options.share_percent);
            return Err(Error::Invalid { what: "options of a copy", finding, hint: "it is 1 to 100" });
        }
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
        let set_uuid = Uuid(headers[0].set_uuid);
        let pace = Pace::new(options.share_percent);
        let mut copying = Copying { pool: self, headers, files, lengths, pace, figures: Figures::default() };
        if self.memory.is_read_only() {
            copying.copy_all()?;
        } else {
            let failed = |e: rustix::io::Errno| {
                let hint =
                    "the kernel does not allow membarrier(2): close the pool, open it read-only and copy it then";
                Error::io(target, "making all threads see that a copy begins", hint, e)
            };
            let marking = self.memory.mark_changes().map_err(failed)?;
            copying.copy_beside_writers(&marking, || self.memory.gate().close().map_err(failed))?;
        }
        let Copying { files, lengths, figures, .. } = copying;
        publish_all(files, after_step)?;
        let Figures { written_bytes, rewritten_bytes, passes, writers_stopped_ns } = figures;
        let pool_bytes = lengths.iter().sum();
        Ok(CopyReport { paths, set_uuid, pool_bytes, written_bytes, rewritten_bytes, passes, writers_stopped_ns })
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
}
