//! Files and devices as scratch memory for measurements, without a pool in them.
//!
//! 1. [`ScratchFile::temporary`] makes a file without a name in a folder. [`ScratchFile::open`] opens a file or device
//!    at a path. It is locked like a pool's part, so no pool in use is measured.
//! 2. [`ScratchFile::content`] describes its content. The caller decides whether that may be overwritten.
//! 3. [`ScratchFile::fill`] writes bytes that do not compress all over it and syncs them. So the measured bytes are on
//!    the medium, not in a hole of a file.
//! 4. [`ScratchFile::map`] returns the memory. On persistent memory its domain is `dax` or `eadr`. Any other file is
//!    mapped with the instructions of `dax` and labelled `dax-emulated`: it measures the page cache.
//!
//! Invariant: a file that was opened read-only is never changed. Nothing is written before `fill` or a store.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_width::{to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::addr::PmAddr;
use crate::domain::{Domain, DomainChoice};
use crate::error::{Error, Result};
use crate::mapping::Backing;
use crate::memory::{Memory, Setup};
use crate::pool::header;
use crate::pool::layout::PAGE_BYTES;
use crate::pool::lock::{self, Hold};
use crate::pool::part::{PartFile, PartKind};
use crate::pool::platform;

/// Bytes that are written at a time.
const STEP_BYTES: u64 = 1 << 20;
/// Pages of a large file or device that are looked at for content, evenly spread; the first and the last are among
/// them.
const SAMPLE_PAGES: u64 = 1024;

/// A file or device that is, or may become, scratch memory. The lock is held until it is dropped.
#[derive(Debug)]
pub struct ScratchFile {
    part: PartFile,
    kind: &'static str,
    writable: bool,
    temporary: bool,
    sysfs: PathBuf,
}

/// Mapped scratch memory.
#[derive(Debug)]
pub struct ScratchMemory {
    /// The memory; part 0 from offset 0 on.
    pub memory: Memory,
    /// The domain as it is printed; `dax-emulated` on anything that is no persistent memory.
    pub domain_label: String,
    /// Why it is this domain.
    pub reason: String,
}

impl ScratchFile {
    /// A new file in `folder` that has no name: it is gone when it is closed, however this process ends.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn temporary(folder: &Path) -> Result<Self> {
        let hint = "name a folder that this user may write, or an existing file or device";
        let failed = |source| Error::io(folder, "making a temporary file", hint, source);
        let file = match unnamed(folder) {
            Ok(file) => file,
            // Not every file system has files without a name: make one and take its name away.
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::IsADirectory) => {
                named_then_removed(folder).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let sysfs = PathBuf::from("/sys");
        let part = PartFile::measure(folder, file, &sysfs)?;
        Ok(Self { part, kind: "file", writable: true, temporary: true, sysfs })
    }

    /// The regular file, block device or devdax device at `path`, locked for writing unless it is only to be read. A
    /// block device that the system uses (mounted, swap, part of an array) is refused for writing.
    ///
    /// # Errors
    /// When there is no such thing, it may not be opened, it is something else, or a pool in it is open elsewhere.
    pub fn open(path: &Path, write: bool) -> Result<Self> {
        let found = std::fs::metadata(path).map_err(|e| open_error(path, write, e))?;
        let kind = found.file_type();
        let sysfs = PathBuf::from("/sys");
        if !kind.is_block_device() && !kind.is_char_device() && !found.is_file() {
            let hint = "name a regular file, a folder for a temporary file, a block device or a devdax device";
            let source = std::io::Error::new(ErrorKind::InvalidInput, "neither a file nor a device");
            return Err(Error::io(path, "opening", hint, source));
        }
        let exclusive = if kind.is_block_device() && write { rustix::fs::OFlags::EXCL.bits() } else { 0 };
        let mut file = OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(exclusive.cast_signed())
            .open(path)
            .map_err(|e| open_error(path, write, e))?;
        let (part, kind) = if kind.is_block_device() {
            let failed = |e| Error::io(path, "finding the size", "check the device", e);
            let len = file.seek(SeekFrom::End(0)).map_err(failed)?;
            (PartFile { path: path.to_owned(), file, kind: PartKind::File, len }, "block device")
        } else {
            let part = PartFile::measure(path, file, &sysfs)?;
            let kind = if part.is_device() { "devdax device" } else { "file" };
            (part, kind)
        };
        // A reader disturbs no other process and needs no lock.
        lock::acquire(path, &part.file, if write { Hold::Write } else { Hold::Nothing })?;
        Ok(Self { part, kind, writable: write, temporary: false, sysfs })
    }

    /// The path; of a temporary file, its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.part.path
    }

    /// Its kind: `file`, `block device` or `devdax device`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Whether it has no name and is gone when it is closed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// Present length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.part.len
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.part.file
    }

    /// Its file system.
    #[must_use]
    pub fn file_system(&self) -> String {
        if self.kind == "block device" { "none".into() } else { platform::file_system(&self.part) }
    }

    /// The NUMA node of its device, where the platform tells; the kernel's number.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        platform::numa_node(&self.part, &self.sysfs)
    }

    /// Its content, in words; `None` when it is empty. A device counts as empty when 1024 pages all over it, the first
    /// and the last among them, hold zeroes only.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn content(&self) -> Result<Option<String>> {
        if self.part.len == 0 {
            return Ok(None);
        }
        let mut page = vec![0; to_usize(PAGE_BYTES.min(self.part.len))];
        self.part.read_at(0, &mut page)?;
        if to_u64(page.len()) == PAGE_BYTES
            && let Ok((front, copy)) = self.part.headers()
            && header::verify_with_copy(&front, copy.as_ref(), true).is_ok()
        {
            let layout = header::layout_name(&front);
            let layout = if layout.is_empty() { String::new() } else { format!(", layout `{layout}`") };
            return Ok(Some(format!("a Lodestone pool of {} bytes{layout}", self.part.len)));
        }
        if self.kind == "file" {
            let bytes = self.part.len;
            let looks =
                if to_u64(page.len()) == PAGE_BYTES { header::describe_foreign(&page).0 } else { String::new() };
            let looks = if looks.is_empty() { looks } else { format!(" ({looks})") };
            return Ok(Some(format!("a file with {bytes} bytes in it{looks}")));
        }
        self.device_content(&mut page)
    }

    fn device_content(&self, page: &mut [u8]) -> Result<Option<String>> {
        let pages = self.part.len / PAGE_BYTES;
        let samples = pages.min(SAMPLE_PAGES);
        for sample in 0..samples {
            let number = if samples < 2 { 0 } else { sample * (pages - 1) / (samples - 1) };
            self.part.read_at(number * PAGE_BYTES, page)?;
            if page.iter().any(|byte| *byte != 0) {
                let (kind, offset) = (self.kind, number * PAGE_BYTES);
                return Ok(Some(format!("a {kind} with content at offset {offset:#x}")));
            }
        }
        Ok(None)
    }

    /// Checks that there is room for `bytes` bytes, without writing any.
    ///
    /// # Errors
    /// When the file system has not as much free space.
    pub fn verify_room(&self, bytes: u64) -> Result<()> {
        if self.kind != "file" || bytes <= self.part.len {
            return Ok(());
        }
        let failed = |e| Error::io(&self.part.path, "asking for free space", "check the file system", e);
        let found = rustix::fs::fstatvfs(&self.part.file).map_err(failed)?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if bytes - self.part.len > free {
            let path = self.part.path.display();
            let finding = format!("{path}: {bytes} bytes are asked for, its file system has {free} free");
            return Err(Error::Invalid { what: "size", finding, hint: "ask for less (--size), or free some space" });
        }
        Ok(())
    }

    /// Makes `bytes` bytes (whole pages) of bytes that do not compress, synced; a file becomes at least that long.
    /// Calls `progress` with the bytes written so far.
    ///
    /// # Errors
    /// When there is no space, the device is smaller, or writing fails. A temporary file then frees its space.
    pub fn fill(&mut self, bytes: u64, progress: &mut dyn FnMut(u64)) -> Result<()> {
        // A full file system harms all of its users: better not to begin.
        self.verify_room(bytes)?;
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut step = vec![0_u64; to_usize(STEP_BYTES / 8)];
        let mut noise = || {
            for word in &mut step {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *word = state;
            }
            step.as_bytes().to_vec()
        };
        if self.part.is_device() {
            let memory = self.map(bytes)?.memory;
            for offset in (0..bytes).step_by(to_usize(STEP_BYTES)) {
                let chunk = noise();
                memory.stream(PmAddr::new(0, offset), &chunk[..to_usize(STEP_BYTES.min(bytes - offset))]);
                progress(offset);
            }
            // Nothing measured later may be slowed down by these writes still being on their way.
            memory.fence();
            return Ok(());
        }
        for offset in (0..bytes).step_by(to_usize(STEP_BYTES)) {
            let chunk = noise();
            let chunk = &chunk[..to_usize(STEP_BYTES.min(bytes - offset))];
            self.part.file.write_all_at(chunk, offset).map_err(|e| self.fill_error(e, bytes))?;
            progress(offset);
        }
        self.part.file.sync_data().map_err(|e| self.fill_error(e, bytes))?;
        self.part.len = self.part.len.max(bytes);
        Ok(())
    }

    fn fill_error(&self, source: std::io::Error, bytes: u64) -> Error {
        let hint = match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                "ask for less (--size), or free some space"
            }
            _ => "check the file system and the device",
        };
        let source = std::io::Error::new(source.kind(), format!("writing {bytes} bytes: {source}"));
        Error::io(&self.part.path, "filling with data", hint, source)
    }

    /// Empties the file, to restore a file that was empty before.
    ///
    /// # Errors
    /// When it cannot be truncated.
    pub fn empty(&mut self) -> Result<()> {
        let failed = |e| Error::io(&self.part.path, "truncating", "truncate it by hand", e);
        self.part.file.set_len(0).map_err(failed)?;
        self.part.len = 0;
        Ok(())
    }

    /// Maps the first `bytes` bytes (whole pages), in the strongest available domain.
    ///
    /// # Errors
    /// When it is shorter than that, or address space runs out.
    pub fn map(&self, bytes: u64) -> Result<ScratchMemory> {
        let parts = std::slice::from_ref(&self.part);
        // The block domain would need a journal. There is none; the code below replaces that domain.
        let chosen = platform::choose(parts, DomainChoice::Auto, PAGE_BYTES, false, &self.sysfs)?;
        let ordinary = chosen.domain == Domain::Block;
        let domain = if ordinary { Domain::DaxEmulated } else { chosen.domain };
        let backing = match (self.writable, ordinary) {
            (false, _) => Backing::SharedReadOnly,
            (true, true) => Backing::Shared,
            (true, false) => chosen.backing,
        };
        if bytes > self.part.len {
            let finding =
                format!("{} holds {} bytes, {bytes} are to be measured", self.part.path.display(), self.part.len);
            return Err(Error::Invalid { what: "size", finding, hint: "ask for less (--size)" });
        }
        let view = PartFile {
            path: self.part.path.clone(),
            file: self
                .part
                .file
                .try_clone()
                .map_err(|e| Error::io(&self.part.path, "opening again", "try again", e))?,
            kind: self.part.kind,
            len: match self.part.kind {
                PartKind::File => bytes,
                PartKind::Device { align_bytes } => bytes.next_multiple_of(align_bytes).min(self.part.len),
            },
        };
        let mapping = view.map(backing, 0)?;
        let memory =
            Memory::new(Setup { parts: vec![mapping], domain, read_only: !self.writable, tracer: None, medium: None });
        Ok(ScratchMemory { memory, domain_label: domain.to_string(), reason: chosen.reason })
    }
}

fn unnamed(folder: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::TMPFILE.bits().cast_signed())
        .open(folder)
}

fn named_then_removed(folder: &Path) -> std::io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".lodestone-scratch-{}-{number}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// An error of open(2) with the hint that fits its kind.
fn open_error(path: &Path, writing: bool, source: std::io::Error) -> Error {
    let hint = match source.kind() {
        ErrorKind::NotFound => "name a folder (a temporary file is made there), an existing file or a device",
        ErrorKind::PermissionDenied if writing => {
            "this user may not write it: change its permissions, or only read it (--read-only)"
        }
        ErrorKind::PermissionDenied => "this user may not read it: change its permissions",
        ErrorKind::ReadOnlyFilesystem => "its file system is read-only: only read it (--read-only)",
        ErrorKind::ResourceBusy => "the system uses the device (mounted, swap, an array): only read it (--read-only)",
        _ => "check that it exists and may be opened",
    };
    Error::io(path, "opening", hint, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_is_filled_mapped_and_leaves_no_name() -> Result<()> {
        let folder = tempfile::tempdir().expect("temporary folder");
        for file in [unnamed(folder.path()), named_then_removed(folder.path())].into_iter().flatten() {
            let part = PartFile::measure(folder.path(), file, Path::new("/sys"))?;
            let mut scratch =
                ScratchFile { part, kind: "file", writable: true, temporary: true, sysfs: PathBuf::from("/sys") };
            assert_eq!(scratch.content()?, None);
            let refused = scratch.fill(1 << 62, &mut |_| ()).expect_err("no room").to_string();
            assert!(refused.contains("free") && scratch.bytes() == 0, "{refused}");
            scratch.fill(3 << 20, &mut |_| ())?;
            let mapped = scratch.map(2 << 20)?;
            assert_eq!(mapped.memory.part_len(0), 2 << 20);
            assert!(mapped.memory.load(PmAddr::new(0, (2 << 20) - 8)) != 0);
            assert!(scratch.map(4 << 20).is_err(), "behind the end");
            assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
        }
        Ok(())
    }

    #[test]
    fn content_is_named_and_a_reader_changes_nothing() -> Result<()> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        std::fs::write(&path, b"").expect("file");
        assert_eq!(ScratchFile::open(&path, true)?.content()?, None);
        std::fs::write(&path, b"my thesis".repeat(1000)).expect("file");
        let found = ScratchFile::open(&path, true)?.content()?.expect("content");
        assert!(found.contains("9000 bytes") && found.contains("text file"), "{found}");
        let reader = ScratchFile::open(&path, false)?.map(8192)?;
        assert!(reader.memory.is_read_only());
        assert_eq!(std::fs::read(&path).expect("read"), b"my thesis".repeat(1000));

        let pool = folder.path().join("b");
        let options = crate::PoolOptions { layout_name: "shop".into(), ..crate::PoolOptions::default() };
        let open = crate::Pool::create(&pool, &options)?;
        let refused = ScratchFile::open(&pool, true).expect_err("a pool in use").to_string();
        assert!(refused.contains("is open in"), "{refused}");
        drop(open);
        let found = ScratchFile::open(&pool, true)?.content()?.expect("content");
        assert!(found.contains("Lodestone pool") && found.contains("shop"), "{found}");
        Ok(())
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_a_hint() {
        let text = |path: &str| ScratchFile::open(Path::new(path), true).expect_err(path).to_string();
        assert!(text("/nonexistent").contains("existing file or a device"));
        assert!(text("/dev/null").contains("dax"), "{}", text("/dev/null"));
        assert!(text("/").contains("neither a file nor a device"));
        let missing = ScratchFile::temporary(Path::new("/nonexistent")).expect_err("no folder").to_string();
        assert!(missing.contains("/nonexistent"), "{missing}");
    }
}
