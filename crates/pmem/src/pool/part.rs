//! One part of a pool as the operating system has it: a regular file or a devdax device, opened, locked and measured.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lodestone_width::{const_usize, to_usize};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, major, minor};
use zerocopy::{FromZeros, IntoBytes};

use crate::addr::{PmAddr, PmPtr};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::mapping::{Backing, Mapping};
use crate::memory::{Memory, Setup};
use crate::pool::header::{self, HeaderFault};
use crate::pool::layout::{FIXED_END, PAGE_BYTES, PartHeader};
use crate::pool::lock::{self, Hold};

/// The kind of device of a part.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// use lodestone_pmem::PartKind;
///
/// let info = Pool::create(&path, &options)?.info();
/// assert_eq!(info.parts[0].kind, PartKind::File);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartKind {
    /// A regular file.
    File,
    /// A devdax character device: persistent memory without a file system.
    Device {
        /// Mappings start and end at multiples of this.
        align_bytes: u64,
    },
}

/// An open part.
#[derive(Debug)]
pub(crate) struct PartFile {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) kind: PartKind,
    /// Length of the file or device when it was opened.
    pub(crate) len: u64,
}

impl PartFile {
    /// Opens the part at `path` and takes its lock; the file is the one at `path` when the lock is taken.
    pub(crate) fn open(path: &Path, hold: Hold, sysfs: &Path) -> Result<Self> {
        let writing = hold == Hold::Write;
        for _ in 0..lock::REPLACED_MAX {
            let file = open_file(path, writing)?;
            lock::acquire(path, &file, hold)?;
            if hold == Hold::Nothing || lock::is_at(path, &file)? {
                return Self::measure(path, file, sysfs);
            }
        }
        Err(lock::replaced_again_and_again(path))
    }

    /// Wraps an open file: tells files from devices and finds the length.
    pub(crate) fn measure(path: &Path, file: File, sysfs: &Path) -> Result<Self> {
        let found = file.metadata().map_err(|e| Error::io(path, "reading the file's metadata", "check the file", e))?;
        let (kind, len) = if found.file_type().is_char_device() {
            let (align_bytes, len) = devdax_geometry(path, sysfs, found.rdev())?;
            (PartKind::Device { align_bytes }, len)
        } else if found.is_file() {
            (PartKind::File, found.len())
        } else {
            return Err(no_part(path, found.file_type()));
        };
        Ok(Self { path: path.to_owned(), file, kind, len })
    }

    /// Whether this is a device.
    pub(crate) fn is_device(&self) -> bool {
        self.kind != PartKind::File
    }

    /// Maps the part with room for `reserve` bytes. Whole pages; a ragged tail of the file stays unmapped.
    pub(crate) fn map(&self, backing: Backing, reserve: u64) -> Result<Mapping> {
        self.map_front(self.len, backing, reserve)
    }

    /// As [`map`](Self::map), the first `bytes` only.
    pub(crate) fn map_front(&self, bytes: u64, backing: Backing, reserve: u64) -> Result<Mapping> {
        let failed = |source: rustix::io::Errno| {
            Error::io(&self.path, "mapping", "check free memory and the limit of address space (ulimit -v)", source)
        };
        let align = match self.kind {
            PartKind::File => PAGE_BYTES,
            PartKind::Device { align_bytes } => align_bytes,
        };
        let reserve_aligned = |bytes| Mapping::reserve_aligned(bytes, align, backing);
        // Address space may be limited (ulimit, valgrind): then the pool opens, and cannot grow in this life.
        let mapping = reserve_aligned(reserve.max(self.len)).or_else(|_| reserve_aligned(self.len)).map_err(failed)?;
        mapping.extend(Some(self.file.as_fd()), bytes.min(self.len) / PAGE_BYTES * PAGE_BYTES).map_err(failed)?;
        Ok(mapping)
    }

    /// Reads the header at the front and the copy at the end, as far as the part is long enough to have them.
    pub(crate) fn headers(&self) -> Result<(PartHeader, Option<PartHeader>)> {
        let front = self.header_at(0)?;
        let copy_offset = header::copy_offset(self.len);
        let copy = if copy_offset > 0 { self.header_at(copy_offset).ok() } else { None };
        Ok((front, copy))
    }

    fn header_at(&self, offset: u64) -> Result<PartHeader> {
        let mut found = PartHeader::new_zeroed();
        self.read_at(offset, found.as_mut_bytes())?;
        Ok(found)
    }

    /// Reads from the medium, never through the mapping of a file, so that a bad sector is an error and not a signal.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if self.is_device() {
            // Device memory has no read(2).
            let parts = vec![self.map(Backing::SharedReadOnly, 0)?];
            let memory =
                Memory::new(Setup { parts, domain: Domain::Process, read_only: true, tracer: None, medium: None });
            memory.read(PmAddr::new(0, offset), out);
            return Ok(());
        }
        self.file.read_exact_at(out, offset).map_err(|source| {
            if source.kind() == io::ErrorKind::UnexpectedEof {
                let finding = format!("the file ends at {} bytes", self.len);
                HeaderFault::new(offset, finding, format!("{} more bytes", out.len()), "restore a backup")
                    .into_error(&self.path)
            } else {
                let hint = "the medium reports an error here: run `lodestone pool check`, and restore a backup";
                Error::io(&self.path, "reading", hint, source)
            }
        })
    }

    /// Reads and verifies the header: the first thing that every open does.
    pub(crate) fn verified_header(&self, read_only: bool) -> Result<PartHeader> {
        let short = |finding: String, hint: &str| {
            let expected = format!("a header of {PAGE_BYTES} bytes");
            Err(HeaderFault::new(self.len, finding, expected, hint).into_error(&self.path))
        };
        if self.len == 0 {
            return short("the file is empty".into(), "create a pool here with `lodestone pool create`");
        }
        if self.len < PAGE_BYTES {
            let hint = "it is no pool, or it was truncated: check the path, or restore a backup";
            return short(format!("the file has only {} bytes", self.len), hint);
        }
        let (front, copy) = self.headers()?;
        header::verify_with_copy(&front, copy.as_ref(), read_only).map_err(|finding| finding.into_error(&self.path))?;
        self.verify_length(front.part_bytes, "when it was created")?;
        self.probe_fixed_areas()?;
        Ok(front)
    }

    /// Reads what every open needs with read(2): where the medium is bad there, the open gets an error and not a
    /// signal.
    pub(crate) fn probe_fixed_areas(&self) -> Result<()> {
        let mut page = [0; const_usize(PAGE_BYTES)];
        for offset in (PAGE_BYTES..FIXED_END).step_by(to_usize(PAGE_BYTES)).filter(|_| !self.is_device()) {
            self.read_at(offset, &mut page)?;
        }
        Ok(())
    }

    /// An error when the file is shorter than `part_bytes`.
    pub(crate) fn verify_length(&self, part_bytes: u64, when: &str) -> Result<()> {
        if self.len >= part_bytes {
            return Ok(());
        }
        let finding = format!("the file is truncated: it has {} bytes", self.len);
        let expected = format!("{part_bytes} bytes, its length {when}");
        let hint = "restore a backup; what stood behind the end is gone";
        Err(HeaderFault::new(self.len, finding, expected, hint).into_error(&self.path))
    }

    fn changed(&self, finding: impl Into<String>, hint: &'static str) -> Result<()> {
        Err(Error::Changed { path: self.path.clone(), finding: finding.into(), hint })
    }

    fn metadata(&self) -> Result<Metadata> {
        self.file.metadata().map_err(|e| Error::io(&self.path, "reading the metadata", "check the file", e))
    }

    /// An error when the file became shorter than the part.
    pub(crate) fn verify_not_shorter(&self, part_bytes: u64) -> Result<()> {
        let len = if self.is_device() { self.len } else { self.metadata()?.len() };
        if len >= part_bytes {
            return Ok(());
        }
        let finding = format!("it has {len} bytes now, {part_bytes} are in use");
        self.changed(finding, "close the pool without writing and restore a backup")
    }

    /// An error when the file has no name any more: nothing leads to what it holds once it is closed.
    pub(crate) fn verify_named(&self) -> Result<()> {
        if self.is_device() || self.metadata()?.nlink() > 0 {
            return Ok(());
        }
        let hint = "take a backup with the process that has it open: what it holds is gone when it is closed";
        self.changed("it was deleted, or another file was renamed over it", hint)
    }

    /// An error when the file has no name, or its path leads to another file.
    pub(crate) fn verify_linked(&self) -> Result<()> {
        if self.is_device() {
            return Ok(());
        }
        self.verify_named()?;
        let open = self.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) if (named.dev(), named.ino()) == (open.dev(), open.ino()) => Ok(()),
            Ok(_) => self.changed("another file is at its path now", "move that one away and the pool back"),
            // Moved: harmless to the pool, and the mover knows the new path.
            Err(_) => Ok(()),
        }
    }
}

/// Opens the file or character device at `path`. Returns at once for every kind of file: a plain open of a FIFO would
/// wait for its other end.
pub(crate) fn open_file(path: &Path, writing: bool) -> Result<File> {
    let is_possible = |kind: FileType| kind.is_file() || kind.is_char_device();
    let failed = |e| open_error(path, writing, e);
    // Before the open, because the open alone may do something to the other end of a FIFO.
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !is_possible(kind) {
        return Err(no_part(path, kind));
    }
    // Something else may have come to the path since.
    let at_once = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(writing).custom_flags(at_once.bits().cast_signed());
    let file = options.open(path).map_err(failed)?;
    let kind = file.metadata().map_err(failed)?.file_type();
    if !is_possible(kind) {
        return Err(no_part(path, kind));
    }
    let flags = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
    flags.map_err(|e| failed(e.into()))?;
    Ok(file)
}

/// The refusal of a file that cannot hold a part of a pool.
fn no_part(path: &Path, kind: FileType) -> Error {
    let what = match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a FIFO (named pipe)",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_block_device() => "a block device",
        _ => "neither a file nor a devdax device",
    };
    let hint = "name a pool file; block devices need a file system on them";
    HeaderFault::new(0, what, "a regular file or a devdax device", hint).into_error(path)
}

/// An error of open(2) with the hint that fits its kind.
fn open_error(path: &Path, writing: bool, source: io::Error) -> Error {
    use io::ErrorKind;
    let hint = match source.kind() {
        ErrorKind::NotFound => "check the path (was the pool moved?), or create it with `lodestone pool create`",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem if writing => {
            "the file may not be written: change its permissions, or only read it (open it read-only)"
        }
        ErrorKind::PermissionDenied => "the file may not be read: change its permissions",
        ErrorKind::IsADirectory => "this is a folder: name the pool file in it",
        _ => "check that the file exists and may be opened",
    };
    Error::io(path, "opening", hint, source)
}

/// Alignment and size of the devdax device with number `rdev`, from `sysfs/dev/char/MAJOR:MINOR`.
fn devdax_geometry(path: &Path, sysfs: &Path, rdev: u64) -> Result<(u64, u64)> {
    let folder = sysfs.join(format!("dev/char/{}:{}", major(rdev), minor(rdev)));
    let no_devdax = |finding: String| {
        let hint = "name a pool file, or a /dev/daxN.M device";
        HeaderFault::new(0, finding, "a devdax device", hint).into_error(path)
    };
    let subsystem =
        fs::read_link(folder.join("subsystem")).ok().and_then(|link| link.file_name().map(|n| n.to_owned()));
    if subsystem.as_deref() != Some("dax".as_ref()) {
        return Err(no_devdax("a character device that is not of the dax subsystem".into()));
    }
    let number = |name: &str| -> Option<u64> { fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok() };
    let Some(len) = number("size").filter(|size| *size > 0) else {
        return Err(no_devdax(format!("a device without a size in {}", folder.join("size").display())));
    };
    Ok((number("align").unwrap_or(2 << 20), len))
}

/// Address of the header at the front of `part`.
pub(crate) fn front(part: u16) -> PmPtr<PartHeader> {
    PmPtr::new(PmAddr::new(part, 0))
}

/// Address of the copy of the header at the end of a part of `part_bytes`.
pub(crate) fn copy(part: u16, part_bytes: u64) -> PmPtr<PartHeader> {
    PmPtr::new(PmAddr::new(part, header::copy_offset(part_bytes)))
}
