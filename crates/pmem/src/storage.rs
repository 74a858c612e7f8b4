//! The file layer under the block domain: a seam with a real side and a simulated one.
//!
//! [`FileStorage`] is a file. [`FaultyStorage`] wraps any storage and makes chosen calls fail or write short, as
//! devices do. [`SimulatedDisk`] keeps a volatile write cache, so that a test can cut the power: sectors written since
//! the last sync then survive or not, in any combination.
//!
//! Contract of every side: bytes covered by a successful `sync` survive power loss. All other bytes may be old, new or,
//! sector by sector (512 bytes), a mixture. A failed sync leaves all unsynced bytes undefined for ever, and no caller
//! retries it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Mutex, OnceLock};

use lodestone_width::to_u64;
use rustix::fs::OFlags;
use rustix::io::ReadWriteFlags;

/// A file can be read around the page cache of the system in blocks of so many bytes, at such multiples, into such
/// places.
pub const FILE_BLOCK_BYTES: u64 = 4096;

/// Positioned reads, writes and syncs on one part of a pool.
///
/// ```
/// use lodestone_pmem::storage::{SimulatedDisk, Storage};
///
/// fn put(device: &dyn Storage, bytes: &[u8]) -> std::io::Result<()> {
///     let written = device.write_at(bytes, 0)?;
///     assert_eq!(written, bytes.len(), "a write may be short");
///     device.sync()
/// }
///
/// put(&SimulatedDisk::new(vec![0; 4096]), b"durable")?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Storage: Send + Sync + Debug {
    /// Reads at `offset`; returns the number of bytes, which is short only at the end.
    ///
    /// # Errors
    /// The error of the device.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// As [`read_at`](Self::read_at). Where it can, it neither takes the bytes from the page cache of the system nor
    /// leaves them there: for callers with a cache of their own.
    ///
    /// # Errors
    /// The error of the device.
    fn read_around_cache_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
    /// Writes at `offset`; returns the number of bytes, which may be short.
    ///
    /// # Errors
    /// The error of the device.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Writes at `offset` and makes just these bytes durable; may be short.
    ///
    /// # Errors
    /// The error of the device. The state of the bytes is then unknown.
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Makes everything written durable.
    ///
    /// # Errors
    /// The error of the device. The state of unsynced bytes is then unknown.
    fn sync(&self) -> io::Result<()>;
}

/// Writes all of `bytes`, going on after short writes; durable on return when `durably`.
///
/// # Errors
/// The device's error, or [`io::ErrorKind::WriteZero`] when it stops taking bytes.
pub fn write_all(storage: &dyn Storage, mut bytes: &[u8], mut offset: u64, durably: bool) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = if durably { storage.write_durably_at(bytes, offset) } else { storage.write_at(bytes, offset) };
        match written {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::WriteZero, "the device takes no more bytes")),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += to_u64(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads exactly `buffer.len()` bytes.
///
/// # Errors
/// The device's error, or [`io::ErrorKind::UnexpectedEof`].
pub fn read_all(storage: &dyn Storage, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    read_all_by(|buffer, offset| storage.read_at(buffer, offset), buffer, offset)
}

/// As [`read_all`], [around the page cache](Storage::read_around_cache_at).
///
/// # Errors
/// As [`read_all`].
pub fn read_all_around_cache(storage: &dyn Storage, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    read_all_by(|buffer, offset| storage.read_around_cache_at(buffer, offset), buffer, offset)
}

fn read_all_by(
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match read(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += to_u64(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file.
///
/// ```
/// use lodestone_pmem::storage::{FileStorage, Storage};
///
/// let file = FileStorage::new(tempfile::tempfile()?);
/// file.write_durably_at(b"durable", 0)?;
/// let mut bytes = [0; 7];
/// assert_eq!((file.read_at(&mut bytes, 0)?, &bytes), (7, b"durable"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileStorage {
    file: File,
    /// The file once more, for reads around the page cache. Not set: there was none. `None`: the kernel refuses it.
    around_cache: OnceLock<Option<File>>,
}

impl FileStorage {
    /// Takes the file, which must be open for the calls that follow.
    #[must_use]
    pub fn new(file: File) -> Self {
        Self { file, around_cache: OnceLock::new() }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    fn around_cache(&self) -> Option<&File> {
        let open = || {
            // By descriptor, not by path: the file may have been renamed.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::DIRECT.bits().cast_signed();
            OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
        };
        self.around_cache.get_or_init(open).as_ref()
    }
}

impl Storage for FileStorage {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn read_around_cache_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let block = FILE_BLOCK_BYTES;
        let is_whole = offset.is_multiple_of(block)
            && to_u64(buffer.len()).is_multiple_of(block)
            && to_u64(buffer.as_ptr().addr()).is_multiple_of(block);
        let Some(file) = self.around_cache().filter(|_| is_whole) else { return self.read_at(buffer, offset) };
        match file.read_at(buffer, offset) {
            // Its blocks are larger.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.read_at(buffer, offset),
            outcome => outcome,
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // RWF_DSYNC is a write and an fdatasync of just this range: dirty pages elsewhere in the file (a checkpoint
        // under way) do not delay it. Where the kernel does not know the flag, the two calls do the same.
        match rustix::io::pwritev2(&self.file, &[io::IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {
                let count = self.file.write_at(bytes, offset)?;
                self.file.sync_data()?;
                Ok(count)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Which calls of one kind fail.
///
/// ```
/// use lodestone_pmem::storage::{Failing, FaultPlan, FaultyStorage, SimulatedDisk, Storage};
///
/// // As Linux does: the error of the device comes once.
/// let plan = FaultPlan { fail_sync: Some(Failing::once(1)), ..FaultPlan::default() };
/// let disk = FaultyStorage::new(SimulatedDisk::new(vec![0; 4096]), plan);
/// assert!(disk.sync().is_err() && disk.sync().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    first: u64,
    times: u64,
}

impl Failing {
    /// Call number `first` (counted from 1) fails and later ones succeed, as Linux reports an error of a device.
    #[must_use]
    pub const fn once(first: u64) -> Self {
        Self { first, times: 1 }
    }

    /// Call number `first` (counted from 1) and all later ones fail.
    #[must_use]
    pub const fn for_ever(first: u64) -> Self {
        Self { first, times: u64::MAX }
    }

    const fn hits(self, number: u64) -> bool {
        number >= self.first && number - self.first < self.times
    }
}

/// Which calls of a [`FaultyStorage`] go wrong.
///
/// ```
/// use lodestone_pmem::storage::{FaultPlan, FaultyStorage, SimulatedDisk, Storage};
///
/// let plan = FaultPlan { short_write_bytes: Some(512), ..FaultPlan::default() };
/// let disk = FaultyStorage::new(SimulatedDisk::new(vec![0; 4096]), plan);
/// assert_eq!(disk.write_at(&[7; 1024], 0)?, 512);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultPlan {
    /// These syncs (durable writes and syncs) fail. The bytes were handed to the device, and no later sync makes them
    /// durable.
    pub fail_sync: Option<Failing>,
    /// These writes fail with "no space" and write nothing.
    pub fail_write: Option<Failing>,
    /// These reads fail, and leave the buffer as it was.
    pub fail_read: Option<Failing>,
    /// The write of this number (counted from 1) takes this many bytes only.
    pub short_write: Option<(u64, usize)>,
    /// Every write of more than this many bytes is cut to it.
    pub short_write_bytes: Option<usize>,
}

/// A storage with a cache that a failed write-back can lose.
///
/// ```
/// use lodestone_pmem::storage::{Cached, SimulatedDisk, Storage};
///
/// let disk = SimulatedDisk::new(vec![0; 4096]);
/// disk.write_at(b"lost", 0)?;
/// disk.forget_unsynced(0, 4096); // a failed write-back
/// disk.sync()?; // succeeds, and writes nothing
/// assert_eq!(&disk.power_cut(|_sector| false)[..4], [0; 4]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Cached: Storage {
    /// Forgets that the unsynced bytes of this range are to be written, as Linux does after a failed write-back:
    /// readers see them, the device may have them or not, and no later sync writes them.
    fn forget_unsynced(&self, offset: u64, len: u64);
}

#[derive(Debug, Default)]
struct FaultState {
    plan: FaultPlan,
    syncs: u64,
    writes: u64,
    reads: u64,
    /// Since the device was made.
    write_backs_failed: u64,
}

/// A storage that fails on plan.
///
/// ```
/// use lodestone_pmem::storage::{Failing, FaultPlan, FaultyStorage, SimulatedDisk, Storage};
///
/// let plan = FaultPlan { fail_write: Some(Failing::for_ever(2)), ..FaultPlan::default() };
/// let disk = FaultyStorage::new(SimulatedDisk::new(vec![0; 4096]), plan);
/// assert!(disk.write_at(b"first", 0).is_ok());
/// assert!(disk.write_at(b"second", 512).is_err());
/// ```
#[derive(Debug)]
pub struct FaultyStorage<S> {
    inner: S,
    state: Mutex<FaultState>,
}

impl<S: Cached> FaultyStorage<S> {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        Self { inner, state: Mutex::new(FaultState { plan, ..FaultState::default() }) }
    }

    /// Makes `plan` count from now on, with all counts back at 0.
    pub fn arm(&self, plan: FaultPlan) {
        let mut state = self.state();
        *state = FaultState { plan, write_backs_failed: state.write_backs_failed, ..FaultState::default() };
    }

    /// Fails a write-back that the operating system makes by itself: all that is unsynced is forgotten. Each
    /// [`OpenFile`] is told once.
    pub fn fail_write_back(&self) {
        self.state().write_backs_failed += 1;
        self.inner.forget_unsynced(0, u64::MAX);
    }

    /// Syncs asked for since the plan was made.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Writes asked for since the plan was made.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Reads asked for since the plan was made.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    fn state(&self) -> std::sync::MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn count_sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.syncs += 1;
        if state.plan.fail_sync.is_some_and(|failing| failing.hits(state.syncs)) {
            state.write_backs_failed += 1;
            return Err(io::Error::other(format!("injected failure of sync {}", state.syncs)));
        }
        Ok(())
    }

    fn cut<'b>(&self, bytes: &'b [u8]) -> io::Result<&'b [u8]> {
        let mut state = self.state();
        state.writes += 1;
        if state.plan.fail_write.is_some_and(|failing| failing.hits(state.writes)) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let limit = match state.plan.short_write {
            Some((number, limit)) if number == state.writes => limit,
            _ => state.plan.short_write_bytes.unwrap_or(usize::MAX),
        };
        Ok(&bytes[..bytes.len().min(limit)])
    }
}

impl<S: Cached> Storage for FaultyStorage<S> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.state();
        state.reads += 1;
        if state.plan.fail_read.is_some_and(|failing| failing.hits(state.reads)) {
            return Err(io::Error::other(format!("injected failure of read {}", state.reads)));
        }
        drop(state);
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(self.cut(bytes)?, offset)
    }

    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let bytes = self.cut(bytes)?;
        if let Err(error) = self.count_sync() {
            self.inner.write_at(bytes, offset)?;
            self.inner.forget_unsynced(offset, to_u64(bytes.len()));
            return Err(error);
        }
        self.inner.write_durably_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.count_sync().inspect_err(|_| self.inner.forget_unsynced(0, u64::MAX))?;
        self.inner.sync()
    }
}

/// An open file on a device that fails on plan. As Linux does since 4.13, each open file is told once of a write-back
/// that failed: by its own sync or durable write, or by the next one if another open file's call met the error. A
/// duplicate of a descriptor is the same open file, and shares its one report.
///
/// ```
/// use std::sync::Arc;
///
/// use lodestone_pmem::storage::{FaultPlan, FaultyStorage, OpenFile, SimulatedDisk, Storage};
///
/// let device = Arc::new(FaultyStorage::new(SimulatedDisk::new(vec![0; 4096]), FaultPlan::default()));
/// let (one, other) = (OpenFile::new(&device), OpenFile::new(&device));
/// device.fail_write_back();
/// assert!(one.sync().is_err() && one.sync().is_ok());
/// assert!(other.sync().is_err() && other.sync().is_ok());
/// ```
#[derive(Debug)]
pub struct OpenFile<S> {
    device: std::sync::Arc<FaultyStorage<S>>,
    /// Failed write-backs that it was told of.
    told: Mutex<u64>,
}

impl<S: Cached> OpenFile<S> {
    /// Opens the device. Earlier errors are not told.
    #[must_use]
    pub fn new(device: &std::sync::Arc<FaultyStorage<S>>) -> Self {
        let told = Mutex::new(device.state().write_backs_failed);
        Self { device: device.clone(), told }
    }

    /// The outcome of a call that has waited for a write-back: an error also if another call met one.
    fn tell<R>(&self, outcome: io::Result<R>) -> io::Result<R> {
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failed = self.device.state().write_backs_failed;
        let is_new = std::mem::replace(&mut *told, failed) < failed;
        outcome.and_then(|done| if is_new { Err(io::Error::other("a write-back failed")) } else { Ok(done) })
    }
}

impl<S: Cached> Storage for OpenFile<S> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.device.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.device.write_at(bytes, offset)
    }

    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.tell(self.device.write_durably_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.tell(self.device.sync())
    }
}

/// Bytes that a device writes whole.
pub const SECTOR_BYTES: usize = 512;

/// A sector that was written and is not known to be durable.
#[derive(Debug)]
struct CachedSector {
    sector: usize,
    bytes: [u8; SECTOR_BYTES],
    /// A write-back of it failed: no sync writes it any more.
    forgotten: bool,
}

#[derive(Debug, Default)]
struct DiskState {
    durable: Vec<u8>,
    /// Sectors written since the last sync, in order of writing.
    cache: Vec<CachedSector>,
    current: Vec<u8>,
}

/// A disk in memory with a volatile write cache.
///
/// ```
/// use lodestone_pmem::storage::{SimulatedDisk, Storage};
///
/// let disk = SimulatedDisk::new(vec![0; 4096]);
/// disk.write_at(b"kept", 0)?;
/// disk.sync()?;
/// disk.write_at(b"lost", 0)?; // only in its cache
/// assert_eq!(&disk.content()[..4], b"lost");
/// assert_eq!(&disk.power_cut(|_sector| false)[..4], b"kept");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct SimulatedDisk {
    state: Mutex<DiskState>,
}

impl SimulatedDisk {
    /// A disk with the given content, a multiple of 512 bytes.
    #[must_use]
    pub fn new(content: Vec<u8>) -> Self {
        assert!(content.len().is_multiple_of(SECTOR_BYTES), "a disk has whole sectors");
        Self { state: Mutex::new(DiskState { current: content.clone(), durable: content, cache: Vec::new() }) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The content of the disk after a power cut: synced bytes, and the cached sector writes for which `survives` says
    /// yes. It is asked once per cached write, in order of writing. A later survivor of the same sector wins.
    #[must_use]
    pub fn power_cut(&self, mut survives: impl FnMut(usize) -> bool) -> Vec<u8> {
        let state = self.state();
        let mut content = state.durable.clone();
        for CachedSector { sector, bytes, .. } in &state.cache {
            if survives(*sector) {
                content[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(bytes);
            }
        }
        content
    }

    /// The content that a reader sees now.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.state().current.clone()
    }
}

impl DiskState {
    /// Returns the sectors that were written.
    fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<Range<usize>> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let Some(target) = self.current.get_mut(start..start + bytes.len()) else {
            return Err(io::ErrorKind::StorageFull.into());
        };
        target.copy_from_slice(bytes);
        let sectors = start / SECTOR_BYTES..(start + bytes.len()).div_ceil(SECTOR_BYTES);
        for sector in sectors.clone() {
            let mut bytes = [0; SECTOR_BYTES];
            bytes.copy_from_slice(&self.current[sector * SECTOR_BYTES..][..SECTOR_BYTES]);
            self.cache.push(CachedSector { sector, bytes, forgotten: false });
        }
        Ok(sectors)
    }

    /// Makes the cached sectors of `range` durable, but for forgotten ones.
    fn settle(&mut self, range: &Range<usize>) {
        let Self { durable, cache, .. } = self;
        let mut settled = BTreeSet::new();
        for CachedSector { sector, bytes, forgotten } in &*cache {
            if range.contains(sector) && !forgotten {
                durable[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(bytes);
                settled.insert(*sector);
            }
        }
        // The durable bytes replace earlier cached writes of the sector, forgotten or not.
        cache.retain(|cached| !settled.contains(&cached.sector));
    }
}

impl Cached for SimulatedDisk {
    fn forget_unsynced(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched = |sector: usize| to_u64(sector * SECTOR_BYTES);
        for cached in &mut self.state().cache {
            let start = touched(cached.sector);
            cached.forgotten |= start < end && start + to_u64(SECTOR_BYTES) > offset;
        }
    }
}

impl<S: Cached + ?Sized> Cached for std::sync::Arc<S> {
    fn forget_unsynced(&self, offset: u64, len: u64) {
        (**self).forget_unsynced(offset, len);
    }
}

impl Storage for SimulatedDisk {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state();
        let start = usize::try_from(offset).map_err(io::Error::other)?.min(state.current.len());
        let count = buffer.len().min(state.current.len() - start);
        buffer[..count].copy_from_slice(&state.current[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.state().write(bytes, offset)?;
        Ok(bytes.len())
    }

    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // At once: a write-back of these sectors that another call makes fail would be an error of this one as well.
        let mut state = self.state();
        let sectors = state.write(bytes, offset)?;
        state.settle(&sectors);
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.state().settle(&(0..usize::MAX));
        Ok(())
    }
}

impl<S: Storage + ?Sized> Storage for std::sync::Arc<S> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(buffer, offset)
    }
    fn read_around_cache_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_around_cache_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        (**self).write_at(bytes, offset)
    }
    fn write_durably_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        (**self).write_durably_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsynced_sectors_may_be_lost_and_synced_ones_never() -> io::Result<()> {
        let disk = SimulatedDisk::new(vec![0; 4096]);
        write_all(&disk, &[1; 1024], 0, true)?;
        write_all(&disk, &[2; 1024], 1024, false)?;
        write_all(&disk, &[3; 512], 0, false)?;
        let cut = disk.power_cut(|sector| sector == 2);
        assert_eq!((cut[0], cut[512], cut[1024], cut[1536]), (1, 1, 2, 0));
        disk.sync()?;
        assert_eq!(disk.power_cut(|_| false), disk.content());
        Ok(())
    }

    #[test]
    fn short_writes_are_continued_and_planned_failures_fail() -> io::Result<()> {
        let plan =
            FaultPlan { fail_sync: Some(Failing::for_ever(2)), short_write_bytes: Some(100), ..FaultPlan::default() };
        let storage = FaultyStorage::new(SimulatedDisk::new(vec![0; 4096]), plan);
        write_all(&storage, &[7; 1000], 8, false)?;
        let mut back = [0; 1000];
        read_all(&storage, &mut back, 8)?;
        assert_eq!(back, [7; 1000]);
        storage.sync()?;
        assert!(storage.sync().is_err());
        assert!(storage.sync().is_err(), "a failed device stays failed");
        Ok(())
    }

    #[test]
    fn bytes_around_the_cache_are_those_that_were_written_last() -> io::Result<()> {
        const BLOCK: usize = 4096;
        assert_eq!(FILE_BLOCK_BYTES, to_u64(BLOCK));
        let file = FileStorage::new(tempfile::tempfile()?);
        let content: Vec<u8> = (0..3 * BLOCK).map(|at| (at / 16 % 251) as u8).collect();
        write_all(&file, &content, 0, false)?;
        let mut memory = vec![0; 4 * BLOCK];
        let whole = memory.as_ptr().align_offset(BLOCK);
        // Whole blocks, and others, which are read through the cache.
        for (begin, at, length) in [(0, 1, 2), (0, 1, 1), (0, 0, 3), (8, 1, 1)] {
            let buffer = &mut memory[whole + begin..][..length * BLOCK];
            read_all_around_cache(&file, buffer, to_u64(at * BLOCK))?;
            assert!(*buffer == content[at * BLOCK..][..length * BLOCK], "{length} blocks at {at} to {begin}");
        }
        for (at, length) in [(5, BLOCK), (0, 100)] {
            let buffer = &mut memory[whole..][..length];
            read_all_around_cache(&file, buffer, to_u64(at))?;
            assert!(*buffer == content[at..][..length], "{length} bytes at {at}");
        }
        // Bytes in the cache count that were not written to the device.
        read_all_around_cache(&file, &mut memory[whole..][..BLOCK], 0)?;
        write_all(&file, &[255; BLOCK], 0, false)?;
        read_all_around_cache(&file, &mut memory[whole..][..BLOCK], 0)?;
        assert!(memory[whole..][..BLOCK].iter().all(|byte| *byte == 255));
        let end = read_all_around_cache(&file, &mut memory[whole..][..BLOCK], to_u64(3 * BLOCK));
        assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::UnexpectedEof));
        Ok(())
    }

    #[test]
    fn a_failure_comes_once_and_its_bytes_are_forgotten() -> io::Result<()> {
        let disk = std::sync::Arc::new(SimulatedDisk::new(vec![0; 4096]));
        let plan = FaultPlan {
            fail_sync: Some(Failing::once(1)),
            fail_write: Some(Failing::once(2)),
            short_write: Some((3, 7)),
            ..FaultPlan::default()
        };
        let storage = FaultyStorage::new(disk.clone(), plan);
        storage.write_at(&[1; 512], 0)?;
        assert!(storage.sync().is_err());
        assert!(storage.write_at(&[2; 512], 512).is_err());
        assert_eq!(storage.write_at(&[3; 512], 1024)?, 7);
        storage.sync()?;
        let (lost, kept) = (disk.power_cut(|_| false), disk.power_cut(|_| true));
        assert_eq!((lost[0], lost[512], lost[1024], lost[1031]), (0, 0, 3, 0));
        assert_eq!((kept[0], disk.content()[0]), (1, 1), "the device may have it, and readers see it");
        storage.write_at(&[4; 512], 0)?;
        storage.sync()?;
        assert_eq!(disk.power_cut(|_| false)[0], 4);
        Ok(())
    }
}
