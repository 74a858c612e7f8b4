//! The place of a benchmark's pool, and the meaning of its acknowledgements.
//!
//! The pool is a new file: one that must not exist yet, or a temporary one in the working folder. Unless it is to be
//! kept, its name is removed as soon as it is open, so that no file remains however the benchmark ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use lodestone_media::TimeMode;
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_workload::syncprobe::SyncLatency;
use serde::Serialize;

use lodestone_cli::emulation;
use lodestone_cli::interrupt::Scratch;

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Power loss: every write waits until it is durable, every read until the values it saw are durable
    Sync,
    /// Ordered, not waited for: a power loss may take the latest writes, never an older one before a newer one
    Relaxed,
    /// The death of the process only (the process domain)
    Process,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sync => "sync",
            Self::Relaxed => "relaxed",
            Self::Process => "process",
        })
    }
}

fn domain(text: &str) -> Result<DomainChoice, String> {
    text.parse().map_err(|error: lodestone_pmem::Error| error.to_string())
}

/// Arguments of every benchmark that needs a pool.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
    /// The pool's file, which must not exist, or a folder for it [default: a temporary file in the working folder, or
    /// memory where the help says so below]
    #[arg(long, value_name = "FILE")]
    pub path: Option<PathBuf>,

    /// Keep the pool's file
    #[arg(long, requires = "path")]
    pub keep: bool,

    /// Persistence domain: auto, dax, eadr, block, process, or dax-emulated to run dax instructions on any file
    #[arg(long, value_name = "DOMAIN", default_value = "auto", value_parser = domain)]
    pub domain: DomainChoice,

    /// The failures that an acknowledged write survives
    #[arg(long, value_enum, default_value = "sync")]
    pub durability: Durability,

    /// Emulate a medium by spinning: dram, optane, cxl, or a TOML file (see `lodestone media`)
    #[arg(long, value_name = "NAME|FILE", value_parser = emulation::profile)]
    pub profile: Option<emulation::Profile>,
}

impl Place {
    /// A temporary file in `folder`, in the default domain.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            path: Some(folder.to_owned()),
            keep: false,
            domain: DomainChoice::Auto,
            durability: Durability::Sync,
            profile: None,
        }
    }

    /// This place, or memory where none was given: for figures that a disk would only disturb.
    pub fn or_memory(&self) -> Self {
        let is_asked_for =
            self.path.is_some() || self.domain != DomainChoice::Auto || self.durability != Durability::Sync;
        let memory = Path::new(MEMORY_FOLDER);
        if is_asked_for || !memory.is_dir() {
            return self.clone();
        }
        Self { path: Some(memory.to_owned()), domain: DomainChoice::DaxEmulated, ..self.clone() }
    }

    /// The origin of figures of this place.
    ///
    /// # Errors
    /// When no pool can be made there.
    pub fn origin(&self) -> Result<Origin> {
        // A file of its own beside the pool that is measured, and it is not kept.
        let beside = Self { path: Some(self.folder()), keep: false, ..self.clone() };
        let info = beside.create(ORIGIN_POOL_BYTES, ORIGIN_JOURNAL_BYTES)?.info();
        Ok(Origin {
            domain: info.domain_label(),
            medium: info.media_label(),
            folder: self.folder().display().to_string(),
            promise: info.promise,
        })
    }

    /// The domain for the durability.
    pub fn domain_choice(&self) -> Result<DomainChoice> {
        match (self.durability, self.domain) {
            (Durability::Process, DomainChoice::Auto | DomainChoice::Process) => Ok(DomainChoice::Process),
            (Durability::Process, _) => {
                bail!("--durability process is the process domain; leave --domain out, or use --durability sync")
            }
            (Durability::Sync, DomainChoice::Process) => {
                bail!("the process domain cannot survive power loss; say --durability process")
            }
            (_, choice) => Ok(choice),
        }
    }

    /// Folder of the pool's file.
    pub fn folder(&self) -> PathBuf {
        match &self.path {
            Some(path) if path.is_dir() => path.clone(),
            Some(path) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
                _ => PathBuf::from("."),
            },
            None => PathBuf::from("."),
        }
    }

    /// Makes the pool.
    pub fn create(&self, size_bytes: u64, journal_bytes: u64) -> Result<Pool> {
        let folder = self.folder();
        let path = match &self.path {
            Some(path) if !path.is_dir() => {
                ensure!(!path.exists(), "{}: exists; a benchmark needs a pool file of its own", path.display());
                path.clone()
            }
            _ => folder.join(format!(".lodestone-bench-{}-{}.pool", std::process::id(), next_number())),
        };
        let options = PoolOptions {
            size_bytes,
            journal_bytes,
            domain: self.domain_choice()?,
            scratch: !self.keep,
            ..PoolOptions::default()
        };
        // A benchmark reads the wall clock, so there is no virtual time here.
        let options = emulation::apply(self.profile.as_ref(), TimeMode::Spinning, options)?;
        // With the scratch entry, a signal after the file is made and before its name is removed leaves no file.
        let scratch = (!self.keep).then(|| Scratch::new(&path));
        let pool = Pool::create(&path, &options).with_context(|| {
            format!("{}: creating the benchmark's pool failed; give a writable place with --path", path.display())
        })?;
        emulation::place(&pool);
        if !self.keep {
            std::fs::remove_file(&path).with_context(|| format!("{}: removing the name failed", path.display()))?;
        }
        drop(scratch);
        Ok(pool)
    }

    /// Opens the pool that an earlier run has kept.
    pub fn open(&self) -> Result<Pool> {
        let path = self.path.as_ref().context("give the pool's file with --path")?;
        let options = PoolOptions { domain: self.domain_choice()?, ..PoolOptions::default() };
        let options = emulation::apply(self.profile.as_ref(), TimeMode::Spinning, options)?;
        let failed = || format!("{}: opening the pool of an earlier run failed; make it with --keep", path.display());
        let pool = Pool::open(path, &options).with_context(failed)?;
        emulation::place(&pool);
        Ok(pool)
    }

    /// The present cost of one device sync in the pool's folder.
    pub fn sync_latency(&self) -> Result<SyncLatency> {
        let folder = self.folder();
        let measured = SyncLatency::measure(&folder, SYNC_SAMPLES, SYNC_TIME_MAX);
        measured.with_context(|| format!("{}: measuring fdatasync failed", folder.display()))
    }
}

/// Domain and medium of a benchmark's pools.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    pub domain: String,
    pub medium: String,
    pub folder: String,
    pub promise: String,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "domain {}, medium {}, in {}: {}", self.domain, self.medium, self.folder, self.promise)
    }
}

/// The file system in memory that every Linux has.
const MEMORY_FOLDER: &str = "/dev/shm";
/// Bytes of a pool that is made only to find out its domain.
const ORIGIN_POOL_BYTES: u64 = 4 << 20;
const ORIGIN_JOURNAL_BYTES: u64 = 1 << 20;

const SYNC_SAMPLES: u64 = 500;
const SYNC_TIME_MAX: Duration = Duration::from_secs(2);

fn next_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_and_domain_must_agree() {
        let place = |durability, domain| Place { path: None, keep: false, domain, durability, profile: None };
        assert_eq!(place(Durability::Process, DomainChoice::Auto).domain_choice().ok(), Some(DomainChoice::Process));
        assert!(place(Durability::Process, DomainChoice::Block).domain_choice().is_err());
        assert!(place(Durability::Sync, DomainChoice::Process).domain_choice().is_err());
        assert_eq!(place(Durability::Relaxed, DomainChoice::Block).domain_choice().ok(), Some(DomainChoice::Block));
    }

    #[test]
    fn memory_is_for_those_who_asked_for_no_place() {
        let place = |durability, domain| Place { path: None, keep: false, domain, durability, profile: None };
        let chosen = |place: &Place| (place.or_memory().path, place.or_memory().domain);
        let memory = Some(PathBuf::from(MEMORY_FOLDER));
        assert_eq!(chosen(&place(Durability::Sync, DomainChoice::Auto)), (memory, DomainChoice::DaxEmulated));
        for (durability, domain) in [
            (Durability::Sync, DomainChoice::Block),
            (Durability::Process, DomainChoice::Auto),
            (Durability::Relaxed, DomainChoice::Auto),
        ] {
            assert_eq!(chosen(&place(durability, domain)), (None, domain));
        }
        let asked = Place::in_folder(Path::new("/tmp"));
        assert_eq!(chosen(&asked), (Some("/tmp".into()), DomainChoice::Auto));
    }
}
