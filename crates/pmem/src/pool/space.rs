//! Space on the file system: all that a pool may store to is allocated before it is mapped.
//!
//! A store to a hole of a shared mapping takes a block from the file system, and is a SIGBUS when that is full. A new
//! pool has no holes. A file that was restored by a tool that leaves out zeroes has, until [`fill_holes`].

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use lodestone_width::{to_u64, to_usize};
use rustix::fs::{FallocateFlags, StatVfs, fallocate, fstatvfs};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::pool::part::PartFile;

/// Hint for every failure to get room.
pub(crate) const SPACE_HINT: &str =
    "free space on the file system (or raise the limit of file sizes), or ask for a smaller pool";
/// Least bytes that are asked for at a time when signals interrupt the calls.
const STEP_BYTES_MIN: u64 = 1 << 20;
/// Unit of the blocks that stat(2) counts.
const STAT_BLOCK_BYTES: u64 = 512;

/// Allocates blocks of `file` for `len` bytes from `offset` on; all or an error.
pub(crate) fn allocate(path: &Path, file: &File, offset: u64, len: u64) -> Result<()> {
    let failed = |source: io::Error| Error::io(path, "allocating space", SPACE_HINT, source);
    match in_steps(offset, len, |offset, len| fallocate(file, FallocateFlags::empty(), offset, len)) {
        Ok(()) => Ok(()),
        // A file system without fallocate: written zeroes hold the space as well.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeroes(path, file, offset, len),
        Err(source) => Err(failed(source.into())),
    }
}

/// Asks `step` for `len` bytes from `offset` on. A signal may interrupt the call, and some file systems then free the
/// bytes that it had allocated. So the steps become smaller, until one ends between two signals.
fn in_steps(offset: u64, len: u64, mut step: impl FnMut(u64, u64) -> rustix::io::Result<()>) -> rustix::io::Result<()> {
    let (mut done, mut most) = (0, len);
    while done < len {
        let bytes = most.min(len - done);
        match step(offset + done, bytes) {
            Ok(()) => done += bytes,
            Err(Errno::INTR) => most = (most / 2).max(STEP_BYTES_MIN),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes `len` zeroes at `offset`.
pub(crate) fn write_zeroes(path: &Path, file: &File, offset: u64, len: u64) -> Result<()> {
    let zeroes = vec![0; to_usize(len.min(1 << 20))];
    let mut done = 0;
    while done < len {
        let step = (len - done).min(to_u64(zeroes.len()));
        file.write_all_at(&zeroes[..to_usize(step)], offset + done)
            .map_err(|e| Error::io(path, "writing zeroes", SPACE_HINT, e))?;
        done += step;
    }
    Ok(())
}

/// Allocates the missing blocks of a part that will be mapped shared.
///
/// Asked for only when stat(2) counts fewer blocks than the file is long: over 8 GiB that are there, fallocate takes
/// 0.3 s on a tmpfs and up to 0.1 s on an ext4. The count has blocks of metadata in it, so a file with few and small
/// holes can keep them.
pub(crate) fn fill_holes(part: &PartFile) -> Result<()> {
    const HINT: &str = "the file has holes (a copy without its zeroes?), and a store there would kill the process: free \
                        space on the file system, or open the pool read-only";
    if part.is_device() {
        return Ok(());
    }
    let failed = |source: io::Error| Error::io(&part.path, "allocating the holes of the file", HINT, source);
    let found = part.file.metadata().map_err(failed)?;
    let missing = found.len().saturating_sub(found.blocks().saturating_mul(STAT_BLOCK_BYTES));
    if missing == 0 {
        return Ok(());
    }
    // Blocks allocated before the space ran out would stay allocated: a refused open must not fill the disk. A file
    // system without a limit (a tmpfs can be so) says that it has no blocks, and none free.
    let is_short = |room: StatVfs| room.f_blocks > 0 && room.f_bfree.saturating_mul(room.f_frsize) < missing;
    if fstatvfs(&part.file).is_ok_and(is_short) {
        return Err(failed(Errno::NOSPC.into()));
    }
    match in_steps(0, found.len(), |offset, len| fallocate(&part.file, FallocateFlags::KEEP_SIZE, offset, len)) {
        // A file system that cannot be asked allocates the space at the store, or fails then.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(source) => Err(failed(source.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_allocation_goes_on_and_ends_however_often_signals_come() {
        // A file system that frees the bytes of an interrupted call, and a signal in each call for more than 3 MiB.
        let mut got = Vec::new();
        let mut calls = 0;
        let result = in_steps(4096, 100 << 20, |offset, len| {
            calls += 1;
            if len > 3 << 20 {
                return Err(Errno::INTR);
            }
            got.push((offset, len));
            Ok(())
        });
        assert_eq!(result, Ok(()));
        let end = got.iter().try_fold(4096, |end, (offset, len)| (end == *offset).then_some(end + len));
        assert_eq!(end, Some(4096 + (100 << 20)), "without a gap");
        assert!(calls < 100, "{calls} calls");
        let mut interruptions = 3;
        let interrupted = in_steps(0, 4096, |_, _| {
            interruptions -= 1;
            if interruptions > 0 { Err(Errno::INTR) } else { Ok(()) }
        });
        assert_eq!((interrupted, interruptions), (Ok(()), 0), "a small step is repeated");
        assert_eq!(in_steps(0, 4096, |_, _| Err(Errno::NOSPC)), Err(Errno::NOSPC));
    }
}
