//! The opening of pools: the arguments that commands share.
//!
//! 1. [`WaitArgs`] is for every command that opens a pool: how long to wait for another process to close it.
//! 2. [`ReadArgs`] is for every command that only reads. Such a command opens the pool read-only by itself. Where a
//!    crash left something to finish it opens it for writing once, unless `--read-only` forbids that.
//! 3. [`OpenArgs`] holds the pool, its parts and its domain.
//!
//! A reader cannot share a pool with a writer: the files change under its mapping, in no order that it could follow.
//! `lodestone pool info` is the exception, because it reads headers only.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;

use crate::emulation::{self, EmulationArgs};

/// Whether nothing was ever stored in the pool: its heap is not formatted.
pub fn is_untouched(pool: &Pool) -> bool {
    pool.memory().load(pool.heap_area(0).0) == 0
}

/// Parses `--domain`.
pub fn domain(text: &str) -> Result<DomainChoice, String> {
    text.parse().map_err(|error: lodestone_pmem::Error| error.to_string())
}

/// Longest wait for a pool: a year.
const WAIT_SECONDS_MAX: f64 = 365.0 * 86_400.0;
/// Time between two attempts to open a pool.
const WAIT_INTERVAL: Duration = Duration::from_millis(20);

fn wait(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is no number of seconds; use a number from 0 to {WAIT_SECONDS_MAX} (a year)");
    let seconds: f64 = text.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= WAIT_SECONDS_MAX).ok_or_else(bad)
}

/// How long to wait for a pool that another process has open.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct WaitArgs {
    /// How long to wait for a pool that another process has open [default: 0]
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "0",
        hide_default_value = true,
        allow_negative_numbers = true,
        value_parser = wait
    )]
    pub wait: Duration,
}

impl WaitArgs {
    /// Runs `attempt` until it succeeds, fails for another reason than a pool in use, or the time is over.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let until = Instant::now() + self.wait;
        loop {
            match attempt() {
                Err(error) if is_in_use(&error) && Instant::now() < until => std::thread::sleep(WAIT_INTERVAL),
                Err(error) if is_in_use(&error) && !self.wait.is_zero() => {
                    let waited = format!("waited {} s in vain", self.wait.as_secs_f64());
                    return Err(error).context(waited);
                }
                other => return other,
            }
        }
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(lodestone_pmem::Error::InUse { .. })))
}

/// The limits of a command that only reads.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct ReadArgs {
    /// Change no byte, even if a crash left something to finish [default: finish that first, otherwise change nothing]
    #[arg(long)]
    pub read_only: bool,
}

impl ReadArgs {
    /// Refuses to open `open` for writing where only reading is allowed.
    ///
    /// # Errors
    /// With `--read-only`.
    pub fn may_finish(&self, open: &OpenArgs) -> Result<()> {
        if self.read_only {
            bail!(
                "{}: a crash left something that the next open for writing finishes, and --read-only forbids that; \
                 leave --read-only out",
                open.path.display()
            );
        }
        Ok(())
    }
}

/// A pool, and the domain to open it in.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OpenArgs {
    /// The pool file or device
    #[arg(value_name = "POOL")]
    pub path: PathBuf,

    /// Persistence domain: auto, dax, eadr, block, process (not safe against power loss)
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = domain)]
    pub domain: DomainChoice,

    /// A further part, in order; an existing pool finds its parts by itself unless they were moved
    #[arg(long = "part", value_name = "FILE")]
    pub parts: Vec<PathBuf>,

    /// NUMA node of each part, part 0 first [default: that of the device, else the one given at creation]
    #[arg(long = "node", value_name = "NODE")]
    pub part_nodes: Vec<u32>,

    /// Split the processors into this many virtual nodes, over which the parts are spread
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    pub virtual_nodes: usize,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment would become the text of the help")]
    pub wait: WaitArgs,

    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment would become the text of the help")]
    pub emulation: EmulationArgs,
}

impl OpenArgs {
    /// The pool at `path`, in the default domain.
    pub fn of(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    /// The options to open the pool with.
    pub fn options(&self) -> Result<PoolOptions> {
        self.emulation.apply(PoolOptions {
            domain: self.domain,
            parts: self.parts.clone(),
            part_nodes: self.part_nodes.clone(),
            virtual_nodes: self.virtual_nodes,
            ..PoolOptions::default()
        })
    }

    /// Opens the pool as its one writer.
    pub fn open(&self) -> Result<Pool> {
        let options = self.options()?;
        let pool = self.wait.retry(|| Ok(Pool::open(&self.path, &options)?))?;
        emulation::place(&pool);
        Ok(pool)
    }

    /// Opens the pool without changing a byte of it.
    pub fn open_read_only(&self) -> Result<Pool> {
        let options = self.options()?;
        let pool = self.wait.retry(|| Ok(Pool::open_read_only(&self.path, &options)?))?;
        emulation::place(&pool);
        Ok(pool)
    }
}

impl OpenArgs {
    /// The store of the pool, opened for reading unless a crash left something to finish. `None`: nothing was ever
    /// stored in the pool.
    ///
    /// # Errors
    /// When the pool cannot be opened or its store is damaged; with `--read-only` when there is something to finish.
    pub fn store_to_read(&self, read: ReadArgs) -> Result<Option<Store>> {
        let pool = self.open_read_only()?;
        if is_untouched(&pool) {
            return Ok(None);
        }
        match Store::over(&pool) {
            Ok(store) => Ok(Some(store)),
            // The heap must finish work that a crash cut short. That takes a writer.
            Err(lodestone_store::Error::Heap(lodestone_heap::Error::Invalid { what: "heap", .. })) => {
                drop(pool);
                read.may_finish(self)?;
                open_store(&self.open()?).map(Some)
            }
            Err(error) => Err(error).with_context(|| format!("{}: opening the store failed", pool.path().display())),
        }
    }
}

/// The store of `pool`.
///
/// # Errors
/// When it is damaged.
pub fn open_store(pool: &Pool) -> Result<Store> {
    Store::over(pool).with_context(|| format!("{}: opening the store failed", pool.path().display()))
}

/// The files of an open pool, by path and identity.
#[derive(Debug)]
pub struct PoolFiles(Vec<(PathBuf, (u64, u64))>);

impl PoolFiles {
    /// The files of `pool` as they are now.
    ///
    /// # Errors
    /// When one is not there.
    pub fn of(pool: &Pool) -> Result<Self> {
        let paths = pool.info().parts.into_iter().map(|part| part.path);
        let found = paths.map(|path| identity(&path).map(|identity| (path, identity)));
        Ok(Self(found.collect::<Result<_>>()?))
    }

    /// Checks that every path still leads to the file that is open.
    ///
    /// # Errors
    /// When one was removed, renamed or replaced: then written data is lost with the process.
    pub fn verify(&self) -> Result<()> {
        for (path, expected) in &self.0 {
            if !identity(path).is_ok_and(|found| found == *expected) {
                bail!(
                    "{}: the file of the open pool was removed, renamed or replaced; what this command wrote is in a file \
                     without that name: stop what removes it, and run the command again",
                    path.display()
                );
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> Result<(u64, u64)> {
    let found = path.metadata().with_context(|| format!("{}: reading the file's metadata failed", path.display()))?;
    Ok((found.dev(), found.ino()))
}
