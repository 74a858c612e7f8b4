//! Creation: a pool appears whole or not at all.
//!
//! For a file:
//! 1. Make a temporary file beside the target and take its lock. Allocate all its blocks: a full disk is an error here,
//!    not a SIGBUS later. Write the journal area with zeroes, so that later overwrites change no metadata.
//! 2. Format it: state, copy of the header, header. Sync the file.
//! 3. Rename it into place and sync the folder. An existing file is replaced only when it is empty or overwriting was
//!    asked for. Further parts come first, part 0 last: a set with a part 0 is complete. A killed creation leaves a
//!    temporary file without a lock. The next creation of the same name removes it. (A copy over an older one takes
//!    more care with the order, see `copy::publish`.)
//!
//! A device is formatted in place: first the header is wiped, then everything is zeroed and formatted. The magic comes
//! last, after a fence. A crash leaves a device without a header, or a whole pool.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lodestone_width::{exact_u16, to_u64, to_usize};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::addr::PmAddr;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::folder::folder_of;
use crate::mapping::Backing;
use crate::memory::{Memory, Setup};
use crate::planted;
use crate::pool::access::Access;
use crate::pool::header;
use crate::pool::layout::{FIXED_END, MAGIC, PAGE_BYTES, PART_PATH_BYTES, PartHeader, STATE_CLEAN, StateSlot};
use crate::pool::lock::{self, Hold};
use crate::pool::part::{self, PartFile};
use crate::pool::space::{SPACE_HINT, allocate, write_zeroes};
use crate::pool::uuid::Uuid;
use crate::pool::{PoolOptions, nodes, platform, set, state};
use crate::topology::Topology;

/// Makes all parts of the pool at `path`; they are locked and in place when this returns.
pub(crate) fn create(path: &Path, options: &PoolOptions) -> Result<(Vec<PartFile>, Vec<PartHeader>)> {
    let paths = set::paths_of_new(path, options)?;
    nodes::verify_given(options, &Topology::for_pool(&options.sysfs_root, options.virtual_nodes)?, paths.len())?;
    let set_uuid = Uuid::random(path)?;
    let uuids = paths.iter().map(|path| Uuid::random(path)).collect::<Result<Vec<_>>>()?;
    let stored: Vec<[u8; PART_PATH_BYTES]> =
        paths.iter().enumerate().map(|(index, part)| set::stored_path(path, part, index)).collect::<Result<_>>()?;
    let mut made: Vec<Option<(PartFile, PartHeader)>> = paths.iter().map(|_| None).collect();
    for index in (1..paths.len()).chain([0]) {
        let identify = |header: &mut PartHeader| {
            header.part_nodes = nodes::record(options);
            set::identify(header, set_uuid, &uuids, &stored);
        };
        made[index] = Some(create_part(&paths[index], exact_u16(index), options, &identify)?);
    }
    Ok(made.into_iter().flatten().unzip())
}

fn create_part(
    path: &Path,
    index: u16,
    options: &PoolOptions,
    identify: &dyn Fn(&mut PartHeader),
) -> Result<(PartFile, PartHeader)> {
    if is_device(path) {
        return create_on_device(path, index, options, identify);
    }
    let part_bytes =
        options.size_bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX / PAGE_BYTES * PAGE_BYTES);
    let mut header = header::build(options, index, part_bytes)?;
    identify(&mut header);
    let temporary = NewFile::beside(path, options.overwrite)?;
    allocate(path, &temporary.file, 0, part_bytes)?;
    write_zeroes(path, &temporary.file, header.journal_offset, header.journal_bytes)?;
    let handle =
        temporary.file.try_clone().map_err(|e| Error::io(path, "duplicating the descriptor", "close files", e))?;
    let measured = PartFile::measure(path, handle, &options.sysfs_root)?;
    verify_domain(&measured, options)?;
    let parts = vec![measured.map(Backing::Shared, 0)?];
    let memory = Memory::new(Setup { parts, domain: Domain::Process, read_only: false, tracer: None, medium: None });
    format(&memory, 0, &header);
    drop(memory);
    let file = temporary.publish()?;
    Ok((PartFile { file, ..measured }, header))
}

/// Refuses a domain that is not available on `part`, before anything has a name or is overwritten.
fn verify_domain(part: &PartFile, options: &PoolOptions) -> Result<()> {
    let part = std::slice::from_ref(part);
    platform::choose(part, options.domain, options.journal_bytes, false, &options.sysfs_root).map(drop)
}

/// Whether `path` is a character device.
pub(crate) fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device())
}

fn create_on_device(
    path: &Path,
    index: u16,
    options: &PoolOptions,
    identify: &dyn Fn(&mut PartHeader),
) -> Result<(PartFile, PartHeader)> {
    let device = PartFile::open(path, Hold::Write, &options.sysfs_root)?;
    if options.size_bytes > device.len {
        return Err(Error::NoSpace { path: path.to_owned(), what: "the pool", wanted_bytes: options.size_bytes });
    }
    let (front, _) = device.headers()?;
    if front.magic == MAGIC && !options.overwrite {
        return Err(Error::Exists { path: path.to_owned(), finding: "a Lodestone pool".into() });
    }
    verify_domain(&device, options)?;
    // The pool takes the whole device, so that the copy of the header is found without knowing any length.
    let mut header = header::build(options, index, device.len)?;
    identify(&mut header);
    let parts = vec![device.map(Backing::Shared, 0)?];
    let memory = Memory::new(Setup { parts, domain: Domain::Dax, read_only: false, tracer: None, medium: None });
    memory.zero(PmAddr::NULL, PAGE_BYTES);
    // No store below may overtake the end of the old pool: half of it must not look whole.
    memory.persist(PmAddr::NULL, PAGE_BYTES);
    let zeroes = vec![0; 1 << 20];
    let mut offset = PAGE_BYTES;
    while offset < device.len {
        let step = (device.len - offset).min(to_u64(zeroes.len()));
        memory.stream(PmAddr::new(0, offset), &zeroes[..to_usize(step)]);
        offset += step;
    }
    // The states must not be overtaken by zeroes that were streamed before them.
    memory.fence();
    format(&memory, 0, &header);
    Ok((device, header))
}

/// Writes state, header copy and header of part `part` into zeroed memory, the magic last.
pub(crate) fn format(memory: &Memory, part: u16, header: &PartHeader) {
    let state = StateSlot { boot: 0, part_bytes: header.part_bytes, flags: STATE_CLEAN, ..StateSlot::default() };
    state::write(memory, part, state);
    let copy = part::copy(part, header.part_bytes);
    memory.put(copy, header);
    let front = part::front(part);
    let magic = if planted::active("pool-magic-with-header") { MAGIC } else { [0; 8] };
    memory.put(front, &PartHeader { magic, ..*header });
    memory.flush(front.addr(), PAGE_BYTES);
    // The magic at the front makes it a pool: state, copy and the rest of the header must be persistent before it.
    memory.persist(copy.addr(), PAGE_BYTES);
    memory.store(front.addr(), u64::from_le_bytes(MAGIC));
    // No caller hears of the pool, and nothing is stored in it, before it is one.
    memory.persist(front.addr(), 8);
}

/// A file in the making: removed when it is dropped before [`publish`](Self::publish).
#[derive(Debug)]
pub(crate) struct NewFile {
    /// The name that it will have, for messages.
    pub(crate) target: PathBuf,
    path: PathBuf,
    pub(crate) file: File,
    /// The file at the target that will be replaced: an empty one, or one that may be overwritten. Held locked.
    replaces: Option<File>,
    published: bool,
}

impl NewFile {
    /// Makes a temporary file in the folder of `target`, after checking that `target` may be written. It gets the owner
    /// and permissions of the file that it will replace.
    pub(crate) fn beside(target: &Path, overwrite: bool) -> Result<Self> {
        Self::with_access(target, overwrite, None)
    }

    /// As [`beside`](Self::beside), with the owner and permissions `access`, from the first moment on.
    pub(crate) fn with_access(target: &Path, overwrite: bool, access: Option<Access>) -> Result<Self> {
        let replaces = verify_target(target, overwrite)?;
        let failed = |e| Error::io(target, "setting owner and permissions", "choose another folder", e);
        let access = match (access, &replaces) {
            (None, Some(old)) => Some(Access::of(old).map_err(failed)?),
            (access, _) => access,
        };
        remove_abandoned(target);
        let path = temporary_path(target)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(access.map_or(0o666, Access::mode_at_creation))
            .open(&path)
            .map_err(|e| Error::io(target, "creating", "check that the folder exists and may be written", e))?;
        let new = Self { target: target.to_owned(), path, file, replaces, published: false };
        access.map_or(Ok(()), |access| access.give_to(&new.file)).map_err(failed)?;
        // Locked before it has its name: no other process opens the pool between creation and the creator's open.
        lock::acquire(target, &new.file, Hold::Write)?;
        Ok(new)
    }

    /// Syncs the file, renames it to the target and syncs the folder.
    pub(crate) fn publish(mut self) -> Result<File> {
        self.sync()?;
        self.rename()?;
        sync_folder(&self.target)?;
        self.file.try_clone().map_err(|e| self.failed("duplicating the descriptor", e))
    }

    /// Makes the bytes of the file durable, under the name that it has.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.failed("syncing", e))
    }

    /// Renames the file, which must be synced, to the target; durable when its folder is synced.
    pub(crate) fn rename(&mut self) -> Result<()> {
        if self.replaces.is_some() {
            fs::rename(&self.path, &self.target).map_err(|e| self.failed("renaming into place", e))?;
        } else {
            rename_to_new(&self.path, &self.target)?;
        }
        self.published = true;
        Ok(())
    }

    /// Moves the file at the target out of the way, and expects no file there from now on; `None` when there was none.
    /// Durable when the folder is synced.
    ///
    /// # Errors
    /// Also when nothing was there at first, and now something is.
    pub(crate) fn set_aside(&mut self) -> Result<Option<SetAside>> {
        let Some(lock) = self.replaces.take() else {
            return if fs::symlink_metadata(&self.target).is_ok() { Err(appeared(&self.target)) } else { Ok(None) };
        };
        let path = temporary_path(&self.target)?;
        rename_to_new(&self.target, &path)?;
        Ok(Some(SetAside { target: self.target.clone(), path, _lock: lock, is_put_back: false }))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::io(&self.target, action, SPACE_HINT, source)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.published {
            // If this fails, the file only costs space, and its name tells its purpose.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that was moved out of the way of a [`NewFile`]. It has the name of a temporary file, so the next creation
/// removes it after a kill. Removed when it is dropped, unless it was put back.
#[derive(Debug)]
pub(crate) struct SetAside {
    target: PathBuf,
    path: PathBuf,
    /// Tells creations that look for abandoned files that this one is in use.
    _lock: File,
    is_put_back: bool,
}

impl SetAside {
    /// Renames the file back. It is not removed, even when that fails.
    pub(crate) fn put_back(mut self) -> Result<()> {
        self.is_put_back = true;
        rename_to_new(&self.path, &self.target).map_err(|e| {
            let source = io::Error::other(format!("{e}; it is at {}", self.path.display()));
            let hint = "give the old file its name again before the next attempt, which would remove it";
            Error::io(&self.target, "putting the old file back", hint, source)
        })?;
        // After the failure is returned, the caller may rely on the old file again.
        sync_folder(&self.target)
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        if !self.is_put_back {
            // If this fails, the file only costs space, until the next file is made for the same target.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// End of the names of files in the making.
const TEMPORARY_SUFFIX: &str = ".creating";

/// Start of the names of files in the making for `target`.
fn temporary_prefix(target: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(set::file_name(target));
    prefix.push(".");
    prefix
}

/// A name beside `target` for a file in the making, which [`remove_abandoned`] recognises.
fn temporary_path(target: &Path) -> Result<PathBuf> {
    let mut name = temporary_prefix(target);
    name.push(format!("{}{TEMPORARY_SUFFIX}", &Uuid::random(target)?.to_string()[..8]));
    Ok(target.with_file_name(name))
}

/// Removes the files of killed creations of `target`: temporary files that are not locked. A file that cannot be looked
/// at or removed stays, and only costs space.
fn remove_abandoned(target: &Path) {
    let prefix = temporary_prefix(target);
    let Ok(entries) = fs::read_dir(folder_of(target)) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = set::file_name(&path).as_bytes();
        let is_ours = name.starts_with(prefix.as_bytes()) && name.ends_with(TEMPORARY_SUFFIX.as_bytes());
        // Eight digits between them: a pool whose own name looks alike is not touched.
        let fits = name.len() == prefix.len() + 8 + TEMPORARY_SUFFIX.len();
        if is_ours
            && fits
            && part::open_file(&path, false).is_ok_and(|file| lock::acquire(&path, &file, Hold::Write).is_ok())
        {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Refuses a target that holds something, unless it may be overwritten; returns the locked file that will be replaced.
fn verify_target(target: &Path, overwrite: bool) -> Result<Option<File>> {
    for _ in 0..lock::REPLACED_MAX {
        let found = lock_target(target, overwrite)?;
        if found.as_ref().map_or(Ok(true), |file| lock::is_at(target, file))? {
            return Ok(found);
        }
    }
    Err(lock::replaced_again_and_again(target))
}

/// As [`verify_target`], but the file may have been replaced before it was locked.
fn lock_target(target: &Path, overwrite: bool) -> Result<Option<File>> {
    let found = match fs::metadata(target) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io(target, "looking at the path", "check that its folder may be searched", e)),
    };
    let exists = |finding: String| Err(Error::Exists { path: target.to_owned(), finding });
    if !found.is_file() {
        // Not `Exists`, which advises to overwrite.
        let kind = if found.is_dir() { "a folder" } else { "a device or another special file" };
        let finding = format!("{} is {kind}, and no pool can replace it", target.display());
        return Err(Error::Invalid { what: "the path of a new pool", finding, hint: "choose another path" });
    }
    if found.len() > 0 && !overwrite {
        let mut magic = [0; 8];
        let is_pool = File::open(target).is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok()) && magic == MAGIC;
        return exists(format!("a {} of {} bytes", if is_pool { "Lodestone pool" } else { "file" }, found.len()));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(target)
        .map_err(|e| Error::io(target, "opening the file to replace", "check its permissions", e))?;
    // A pool that is in use is not replaced, even with overwriting allowed.
    lock::acquire(target, &file, Hold::Write)?;
    Ok(Some(file))
}

/// Renames without ever replacing a file that appeared at `target` meanwhile.
fn rename_to_new(source: &Path, target: &Path) -> Result<()> {
    let failed = |e: io::Error| {
        if e.kind() == io::ErrorKind::AlreadyExists {
            appeared(target)
        } else {
            Error::io(target, "renaming into place", "check the folder", e)
        }
    };
    match renameat_with(CWD, source, CWD, target, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // A file system without that flag: a hard link never replaces either.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            fs::hard_link(source, target).and_then(|()| fs::remove_file(source)).map_err(failed)
        }
        Err(e) => Err(failed(e.into())),
    }
}

/// The error when a file appeared at `target` where none was before.
fn appeared(target: &Path) -> Error {
    Error::Exists { path: target.to_owned(), finding: "another file (it appeared during creation)".into() }
}

/// Makes the directory entry of `path` durable.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    let failed = |e| Error::io(folder_of(path), "syncing the folder", "check the file system", e);
    crate::sync_folder_of(path).map_err(failed)
}

const _: () = assert!(FIXED_END.is_multiple_of(PAGE_BYTES), "the journal starts on a page");
