//! Mounting and unmounting.
//!
//! [`mount`] starts the threads that answer the kernel. [`Mounted::unmount`] refuses while files are open, and
//! [`Mounted::detach`] hides the mount at once, which then ends with the last open file. A process that is killed
//! leaves a mount on which every operation fails; the next mount at that place takes it away.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use lodestone_fs::Patience;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::adapter::{Adapter, Teller};
use crate::locks::Waiters;
use crate::source::Source;

/// How long a sync waits before it has a thread of its own.
const BRIEF: Duration = Duration::from_secs(1);

/// Why a volume cannot be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no FUSE.
    #[error("there is no /dev/fuse; load the module by `modprobe fuse`, or allow the device in this container")]
    NoFuse,
    /// No folder to mount on.
    #[error("{}: not a folder that can be mounted on: {source}; make it by `mkdir`", point.display())]
    NoFolder {
        /// The place.
        point: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The kernel, or fusermount3, refused.
    #[error("{}: mounting failed: {source}; as an ordinary user you need fusermount3 (package fuse3)", point.display())]
    Mount {
        /// The place.
        point: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The volume has no metadata node now.
    #[error(transparent)]
    Volume(lodestone_fs::Error),
    /// Files are open, or a process has its folder there.
    #[error("{}: files are open or a process is in it; close them, `fuser -vm` shows who", point.display())]
    Busy {
        /// The place.
        point: PathBuf,
    },
    /// Unmounting failed.
    #[error("{}: unmounting failed: {source}", point.display())]
    Unmount {
        /// The place.
        point: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A thread that answers the kernel has failed.
    #[error("{}: the mount has ended with an error: {source}", point.display())]
    Session {
        /// The place.
        point: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The changes of other mounts that a mount of a volume on machines sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The kernel keeps names, attributes and content: another mount's changes are seen within a second, and by each
    /// open of the file.
    #[default]
    CloseToOpen,
    /// The kernel keeps nothing: each call sees every change before it, and appends of several mounts are all there. A
    /// volume that was opened with [`RemoteOptions::keeps`] answers names and attributes that it keeps under leases.
    ///
    /// [`RemoteOptions::keeps`]: lodestone_fs::cluster::RemoteOptions::keeps
    Strong,
}

impl std::str::FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "strong" => Ok(Self::Strong),
            "close-to-open" => Ok(Self::CloseToOpen),
            _ => Err(format!("`{text}` is neither strong nor close-to-open")),
        }
    }
}

/// The way of programs while the volume cannot go on: too few of its nodes answer, or none leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// They wait until it does, or they are killed: they see a delay, and no error.
    #[default]
    Wait,
    /// They wait for so long. Then they see `EIO`; what they asked for may still happen, and a later call may succeed.
    Error(Duration),
}

impl OnLoss {
    const fn limit(self) -> Option<Duration> {
        match self {
            Self::Wait => None,
            Self::Error(limit) => Some(limit),
        }
    }
}

/// How to mount.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MountOptions {
    /// Threads that answer the kernel.
    pub threads: usize,
    /// Whether other users may use the mount. Their permissions are checked.
    pub allow_other: bool,
    /// Whether nothing may be changed.
    pub read_only: bool,
    /// Whether reads change access times, at most once a day.
    pub atime: bool,
    /// The changes of other mounts that a mount of a volume on machines sees.
    pub consistency: Consistency,
    /// The way of programs while a volume with replicas cannot go on.
    pub on_loss: OnLoss,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            threads: 4,
            allow_other: rustix::process::geteuid().is_root(),
            read_only: false,
            atime: true,
            consistency: Consistency::default(),
            on_loss: OnLoss::default(),
        }
    }
}

/// A mounted volume. Dropping it ends the mount.
#[derive(Debug)]
pub struct Mounted {
    session: BackgroundSession,
    point: PathBuf,
}

/// Mounts a volume at `point`, a folder.
///
/// # Errors
/// No FUSE, no folder, no right to mount, no volume.
pub fn mount(source: impl Into<Source>, point: &Path, options: &MountOptions) -> Result<Mounted, Error> {
    if !Path::new("/dev/fuse").exists() {
        return Err(Error::NoFuse);
    }
    let point = folder(point)?;
    let source = source.into();
    let (is_durable, name) = source.kind().map_err(Error::Volume)?;
    let failed = |source| Error::Mount { point: point.clone(), source };
    let limit = options.on_loss.limit();
    let patience = Arc::new(Patience::of(&*name, limit));
    let waiters = match &source {
        Source::Remote(volume) => Some(Waiters::start(volume.clone(), Arc::clone(&patience)).map_err(failed)?),
        _ => None,
    };
    let teller = Teller::default();
    let adapter = Adapter {
        is_durable,
        notes_reads: options.atime && !options.read_only,
        waiters,
        is_strong: options.consistency == Consistency::Strong,
        teller: teller.clone(),
        patience,
        brief: Arc::new(Patience::of(&*name, Some(limit.map_or(BRIEF, |limit| limit.min(BRIEF))))),
        buffers: std::sync::Mutex::default(),
        source,
    };
    let config = config(&name, options);
    let session = Session::new(adapter, &point, &config).map_err(failed)?;
    teller.begin(session.notifier());
    let session = session.spawn().map_err(failed)?;
    Ok(Mounted { session, point })
}

fn config(name: &str, options: &MountOptions) -> Config {
    let name = name.replace(',', "_");
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::Subtype("lodestone".into()),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    if rustix::process::geteuid().is_root() {
        config.mount_options.extend([MountOption::Suid, MountOption::Dev]);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = options.threads > 1;
    config
}

/// The folder to mount on. A mount whose process has died is taken away first.
fn folder(point: &Path) -> Result<PathBuf, Error> {
    let refused = |source| Error::NoFolder { point: point.to_owned(), source };
    let look = || std::fs::canonicalize(point).and_then(|path| std::fs::read_dir(&path).map(|_| path));
    match look() {
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            detach(point).map_err(refused)?;
            look().map_err(refused)
        }
        outcome => outcome.map_err(refused),
    }
}

/// Hides the mount at `point` at once.
fn detach(point: &Path) -> io::Result<()> {
    by_kernel_or_helper(point, UnmountFlags::DETACH, &["-u", "-q", "-z"])
}

fn by_kernel_or_helper(point: &Path, flags: UnmountFlags, arguments: &[&str]) -> io::Result<()> {
    match rustix::mount::unmount(point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => {
            let output = Command::new("fusermount3").args(arguments).arg("--").arg(point).output()?;
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() { Ok(()) } else { Err(io::Error::other(text)) }
        }
        Err(error) => Err(error.into()),
    }
}

impl Mounted {
    /// The place.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Whether the mount has ended: it was unmounted by `umount`.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts, unless files are open.
    ///
    /// # Errors
    /// [`Error::Busy`]: the mount goes on.
    pub fn unmount(&self) -> Result<(), Error> {
        if self.has_ended() {
            return Ok(());
        }
        by_kernel_or_helper(&self.point, UnmountFlags::empty(), &["-u", "-q"]).map_err(|source| {
            let is_busy = source.raw_os_error() == Some(Errno::BUSY.raw_os_error());
            let point = self.point.clone();
            if is_busy { Error::Busy { point } } else { Error::Unmount { point, source } }
        })
    }

    /// Hides the mount. It ends with the last open file.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn detach(&self) -> Result<(), Error> {
        detach(&self.point).map_err(|source| Error::Unmount { point: self.point.clone(), source })
    }

    /// Waits for the end of the mount. Everything is durable then.
    ///
    /// # Errors
    /// A thread that failed.
    pub fn wait(self) -> Result<(), Error> {
        let point = self.point;
        self.session.join().map_err(|source| Error::Session { point, source })
    }
}
