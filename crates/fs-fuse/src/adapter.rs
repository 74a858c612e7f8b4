//! Requests of the kernel as operations of a volume.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    Notifier, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use lodestone_fs::cluster::{CACHE_LIFETIME, FileLock};
use lodestone_fs::{
    Allocation, Attributes, Caller, Changes, ExtraMode, FileKind, NAME_BYTES_MAX, NewFile, Patience, Refusal,
    RenameMode, Result, SeekTo,
};
use lodestone_width::{exact_u32, to_usize};

use crate::convert::{errno, file_attr, file_type, new_time};
use crate::killed::is_killed;
use crate::locks::{self, Waiters};
use crate::source::{Files, Source};

/// How long the kernel may keep names and attributes of a volume without replicas: all changes pass it.
const KEEP: Duration = Duration::from_secs(3600);
/// Most bytes of a write.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel sends ahead.
const BACKGROUND_MAX: u16 = 64;
/// Entries that are looked up for one answer; an answer has room for fewer.
const ENTRIES_MAX: usize = 512;
/// Files never get the number of another one.
const GENERATION: Generation = Generation(0);

const O_APPEND: i32 = 0o2000;
const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH: i32 = 2;
const FALLOC_ZERO: i32 = 16;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

/// Tells the kernel that something changed which it keeps. It tells nothing before the mount began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Teller(Arc<OnceLock<Notifier>>);

impl Teller {
    /// The mount begins.
    pub(crate) fn begin(&self, notifier: Notifier) {
        _ = self.0.set(notifier);
    }

    /// The kernel asks for the attributes of the file again. It takes no lock of the file or of a page for that, so
    /// this may be called while it waits for an answer, of whatever request.
    fn forget_attributes(&self, ino: u64) {
        let Some(notifier) = self.0.get() else { return };
        // An offset below 0: attributes alone.
        if let Err(error) = notifier.inval_inode(INodeNo(ino), -1, 0) {
            tracing::warn!("file {ino}: the kernel keeps old attributes for a moment: {error}");
        }
    }
}

/// The answers to the kernel's requests.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) source: Source,
    /// Whether an operation is durable when it returns.
    pub(crate) is_durable: bool,
    pub(crate) notes_reads: bool,
    /// Programs that wait for locks, if locks are those of all mounts.
    pub(crate) waiters: Option<Waiters>,
    /// Whether the kernel keeps nothing of a volume elsewhere: each call sees what other mounts did before it.
    pub(crate) is_strong: bool,
    /// News for the kernel.
    pub(crate) teller: Teller,
    /// How long programs wait for a volume that cannot go on.
    pub(crate) patience: Arc<Patience>,
    /// How long a sync waits before it has a thread of its own.
    pub(crate) brief: Arc<Patience>,
    /// Buffers of reads.
    pub(crate) buffers: std::sync::Mutex<Vec<Vec<u8>>>,
}

fn caller(request: &Request) -> Caller {
    Caller::checked(request.uid(), request.gid())
}

/// In whose name content is read, and written when set-id bits stay.
fn kernel() -> Caller {
    Caller::checked(0, 0)
}

/// In whose name content is written: whether set-id bits go.
fn writer(kills_set_id: bool) -> Caller {
    Caller::checked(if kills_set_id { u32::MAX } else { 0 }, 0)
}

/// Answers with nothing, or with the error.
fn done(reply: ReplyEmpty, outcome: Result<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// A value or its size, as the kernel asks for them.
fn sized(reply: ReplyXattr, size: u32, outcome: Result<Vec<u8>>) {
    match outcome {
        Ok(value) if size == 0 => reply.size(exact_u32(value.len())),
        Ok(value) if value.len() > to_usize(size) => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Adapter {
    /// Does something on the volume for a request. While the volume cannot go on it waits, as the mount says, or until
    /// the program that asked is killed.
    fn on<T>(&self, request: &Request, act: impl FnMut(&dyn Files) -> Result<T>) -> Result<T> {
        self.during(request, |source| source.on(act))
    }

    fn during<T>(&self, request: &Request, act: impl FnOnce(&Source) -> T) -> T {
        let pid = request.pid();
        self.patience.during(move || is_killed(pid), || act(&self.source))
    }

    /// Makes everything durable. A program may wait for that for long, and others read meanwhile: then it has a thread
    /// of its own, and this one goes on to answer the kernel.
    fn sync(&self, request: &Request, reply: ReplyEmpty) {
        let pid = request.pid();
        let outcome = self.brief.during(move || is_killed(pid), || self.source.on(|volume| volume.sync()));
        match outcome {
            Err(error) if error.may_pass() && self.patience.limit() != self.brief.limit() => {
                let (source, patience) = (self.source.clone(), Arc::clone(&self.patience));
                let waits = move || {
                    let outcome = patience.during(move || is_killed(pid), || source.on(|volume| volume.sync()));
                    done(reply, outcome);
                };
                if let Err(error) = std::thread::Builder::new().name("fs-sync".into()).spawn(waits) {
                    // The reply went with the thread: fuser answers with an error.
                    tracing::error!("a sync fails: no thread could be started: {error}");
                }
            }
            outcome => done(reply, outcome),
        }
    }

    /// How long the kernel may keep what it is told: a takeover of a volume with replicas may lose some of it.
    const fn keep(&self) -> Duration {
        match self.source {
            Source::Remote(_) if self.is_strong => Duration::ZERO,
            Source::One(_) => KEEP,
            Source::Replicated(_) | Source::Remote(_) => CACHE_LIFETIME,
        }
    }

    /// The use that the kernel may make of its copy of a file that is opened.
    const fn open_flags(&self) -> FopenFlags {
        match self.source {
            // It is right: nothing else writes the file, and a loss shows in its times.
            Source::One(_) | Source::Replicated(_) => FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH),
            Source::Remote(_) if self.is_strong => FopenFlags::FOPEN_DIRECT_IO,
            // Another mount may have written the file: each open looks again. The end of each use frees locks.
            Source::Remote(_) => FopenFlags::empty(),
        }
    }

    fn entry(&self, reply: ReplyEntry, outcome: Result<Attributes>) {
        match outcome {
            Ok(file) => reply.entry(&self.keep(), &file_attr(&file), GENERATION),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn attributes(&self, reply: ReplyAttr, outcome: Result<Attributes>) {
        match outcome {
            Ok(file) => reply.attr(&self.keep(), &file_attr(&file)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn make(&self, request: &Request, parent: INodeNo, name: &OsStr, new: &NewFile<'_>) -> Result<Attributes> {
        self.on(request, |volume| volume.make_file(&caller(request), parent.0, name.as_bytes(), new, false))
    }

    fn read_into(&self, request: &Request, ino: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let count = self.on(request, |volume| volume.read(ino, offset, buffer))?;
        if self.notes_reads
            && let Err(error) = self.on(request, |volume| volume.note_read(ino))
        {
            // The bytes are right, whether the time of the access is kept or not.
            tracing::warn!("file {ino}: the time of a read is not kept: {error}");
        }
        Ok(count)
    }

    fn buffer(&self) -> Vec<u8> {
        let mut buffers = self.buffers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        buffers.pop().unwrap_or_default()
    }

    fn give_back(&self, buffer: Vec<u8>) {
        self.buffers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(buffer);
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_CACHE_SYMLINKS
            // Otherwise each write asks for an attribute first.
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO;
        let wanted = match self.source {
            Source::One(_) => wanted,
            // Pages that the kernel has are dropped when a file turns out to be another than before: a takeover may
            // have lost their write.
            Source::Replicated(_) => wanted | InitFlags::FUSE_AUTO_INVAL_DATA,
            Source::Remote(_) => {
                let locks = InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS;
                let strong = if self.is_strong {
                    // Without it a file could not be mapped at all.
                    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
                } else {
                    InitFlags::empty()
                };
                wanted | InitFlags::FUSE_AUTO_INVAL_DATA | locks | strong
            }
        };
        let known = wanted & config.capabilities();
        // A capability that the kernel lacks only costs time.
        _ = config.add_capabilities(known);
        _ = config.set_max_write(WRITE_BYTES_MAX);
        _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        if let Err(error) = self.source.on(|volume| volume.sync()) {
            tracing::error!("the last sync: {error}");
        }
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, self.on(request, |volume| volume.lookup(&kernel(), parent.0, name.as_bytes())));
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(reply, self.on(request, |volume| volume.attributes(ino.0)));
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(new_time), mtime.map(new_time));
        let changes = Changes { permissions: mode, uid, gid, atime, mtime };
        let by = writer(request.uid() != 0);
        let sized =
            size.map_or(Ok(None), |size| self.on(request, |volume| volume.truncate(&by, ino.0, size)).map(Some));
        let outcome = sized.and_then(|file| match file {
            Some(file) if changes == Changes::default() => Ok(file),
            _ => self.on(request, |volume| volume.set_attributes(&caller(request), ino.0, &changes)),
        });
        self.attributes(reply, outcome);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.on(request, |volume| volume.read_link(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = FileKind::of_mode(mode) else { return reply.error(Errno::EINVAL) };
        self.entry(reply, self.make(request, parent, name, &NewFile::device(kind, mode & 0o7777, device)));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        self.entry(reply, self.make(request, parent, name, &NewFile::new(FileKind::Folder, mode & 0o7777)));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.on(request, |volume| volume.unlink(&caller(request), parent.0, name.as_bytes())));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.on(request, |volume| volume.remove_folder(&caller(request), parent.0, name.as_bytes())));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.entry(reply, self.make(request, parent, name, &NewFile::link(target)));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::KeepOther
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameMode::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        done(reply, self.on(request, |volume| volume.rename(&caller(request), from, to, mode)));
    }

    fn link(&self, request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(reply, self.on(request, |volume| volume.link(&caller(request), ino.0, parent.0, name.as_bytes())));
    }

    fn open(&self, request: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if let Err(error) = self.on(request, |volume| volume.pin(ino.0)) {
            return reply.error(errno(&error));
        }
        if matches!(self.source, Source::Remote(_)) && !self.is_strong {
            // A program that opens the file sees what other mounts wrote before they closed it. The kernel drops its
            // pages by itself, and would keep the size.
            self.teller.forget_attributes(ino.0);
        }
        reply.opened(FileHandle(0), self.open_flags());
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = self.buffer();
        let wanted = to_usize(size);
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        match self.read_into(request, ino.0, offset, &mut buffer[..wanted]) {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) => reply.error(errno(&error)),
        }
        self.give_back(buffer);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let by = writer(flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID));
        let outcome = match &self.source {
            // The end of the file is where the metadata node says: other mounts append, too.
            Source::Remote(volume) if self.is_strong && open.0 & O_APPEND != 0 => {
                self.during(request, |_| volume.append(&by, ino.0, data))
            }
            _ => self.on(request, |volume| volume.write(&by, ino.0, offset, data)),
        };
        match outcome {
            Ok(()) => reply.written(exact_u32(data.len())),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, request: &Request, ino: INodeNo, _: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        match &self.source {
            Source::Remote(volume) => done(reply, self.during(request, |_| locks::end(volume, ino.0, owner.0))),
            // Nothing is kept back: the kernel need not ask at each close.
            _ => reply.error(Errno::ENOSYS),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let Source::Remote(volume) = &self.source else { return reply.error(Errno::ENOSYS) };
        if !(locks::READ..=locks::UNLOCK).contains(&kind) || start > end {
            return reply.error(Errno::EINVAL);
        }
        let lock = FileLock { owner: owner.0, start, end, is_write: kind == locks::WRITE, pid };
        match &self.waiters {
            Some(waiters) if waits && kind != locks::UNLOCK => waiters.add(ino.0, lock, reply),
            _ => self.during(request, |_| locks::set(volume, ino.0, kind, lock, reply)),
        }
    }

    fn getlk(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let Source::Remote(volume) = &self.source else { return reply.error(Errno::ENOSYS) };
        if start > end {
            return reply.error(Errno::EINVAL);
        }
        let lock = FileLock { owner: owner.0, start, end, is_write: kind == locks::WRITE, pid };
        match self.during(request, |_| volume.find_lock(ino.0, lock)) {
            Ok(None) => reply.locked(start, end, locks::UNLOCK, 0),
            Ok(Some(found)) => {
                let kind = if found.is_write { locks::WRITE } else { locks::READ };
                reply.locked(found.start, found.end, kind, found.pid);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        owner: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let (Source::Remote(volume), Some(owner)) = (&self.source, owner)
            && let Err(error) = self.during(request, |_| locks::end(volume, ino.0, owner.0))
        {
            tracing::warn!("file {}: its locks are not freed: {error}", ino.0);
        }
        done(reply, self.on(request, |volume| volume.unpin(ino.0, 1)));
    }

    fn fsync(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.is_durable {
            // Every operation was durable when it was answered. The kernel does not send this again.
            return reply.error(Errno::ENOSYS);
        }
        self.sync(request, reply);
    }

    fn fsyncdir(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.is_durable {
            return reply.error(Errno::ENOSYS);
        }
        self.sync(request, reply);
    }

    fn readdir(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let entries = match self.on(request, |volume| volume.read_folder(&kernel(), ino.0, offset, ENTRIES_MAX)) {
            Ok(entries) => entries,
            Err(error) => return reply.error(errno(&error)),
        };
        for entry in entries {
            let name = OsStr::from_bytes(&entry.name);
            if reply.add(INodeNo(entry.ino), entry.cookie, file_type(entry.kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let entries = match self.on(request, |volume| volume.read_folder_plus(&kernel(), ino.0, offset, ENTRIES_MAX)) {
            Ok(entries) => entries,
            Err(error) => return reply.error(errno(&error)),
        };
        for (entry, file) in entries {
            let name = OsStr::from_bytes(&entry.name);
            if reply.add(INodeNo(entry.ino), entry.cookie, name, &self.keep(), &file_attr(&file), GENERATION) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        let room = match self.on(request, |volume| volume.room()) {
            Ok(room) => room,
            Err(error) => return reply.error(errno(&error)),
        };
        // Each file needs metadata, not a page: so many could still be made.
        let files_free = room.available.saturating_mul(4);
        let (page, name) = (exact_u32(to_usize(room.page_bytes)), exact_u32(NAME_BYTES_MAX));
        reply.statfs(room.pages, room.free, room.available, room.files + files_free, files_free, page, name, page);
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags & (XATTR_CREATE | XATTR_REPLACE) {
            0 => ExtraMode::Set,
            XATTR_CREATE => ExtraMode::Create,
            XATTR_REPLACE => ExtraMode::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        done(reply, self.on(request, |volume| volume.set_extra(&caller(request), ino.0, name.as_bytes(), value, mode)));
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        sized(reply, size, self.on(request, |volume| volume.extra(&caller(request), ino.0, name.as_bytes())));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.on(request, |volume| volume.extra_names(&caller(request), ino.0));
        let joined = names.map(|names| {
            names.into_iter().fold(Vec::new(), |mut joined, name| {
                joined.extend(name);
                joined.push(0);
                joined
            })
        });
        sized(reply, size, joined);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.on(request, |volume| volume.remove_extra(&caller(request), ino.0, name.as_bytes())));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let new = NewFile::new(FileKind::File, mode & 0o7777);
        let outcome =
            self.on(request, |volume| volume.make_file(&caller(request), parent.0, name.as_bytes(), &new, true));
        match outcome {
            Ok(file) => {
                reply.created(&self.keep(), &file_attr(&file), GENERATION, FileHandle(0), self.open_flags());
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let grows = mode & FALLOC_KEEP_SIZE == 0;
        let what = match mode & !FALLOC_KEEP_SIZE {
            0 => Allocation::Room { grows },
            FALLOC_PUNCH if !grows => Allocation::Punch,
            FALLOC_ZERO => Allocation::Zero { grows },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        done(reply, self.on(request, |volume| volume.allocate(&kernel(), ino.0, offset, length, what)));
    }

    fn lseek(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let to = match whence {
            SEEK_DATA => SeekTo::Data,
            SEEK_HOLE => SeekTo::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let found = self.on(request, |volume| volume.seek(ino.0, offset, to));
        match found.and_then(|at| i64::try_from(at).map_err(|_| Refusal::FileTooLarge.into())) {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(errno(&error)),
        }
    }
}
