//! Times, kinds and numbers, in the form of the kernel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use lodestone_fs::{Attributes, Error, FileKind, NewTime, PAGE_BYTES, Stamp};
use lodestone_width::low_u16;

/// Sectors of a page, the unit of `st_blocks`.
const PAGE_SECTORS: u64 = PAGE_BYTES / 512;

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Folder => FileType::Directory,
        FileKind::Link => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(crate) fn system_time(stamp: Stamp) -> SystemTime {
    let distance = Duration::from_nanos(stamp.unsigned_abs());
    let time = if stamp < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}

pub(crate) fn stamp(time: SystemTime) -> Stamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Stamp::try_from(after.as_nanos()).unwrap_or(Stamp::MAX),
        Err(before) => Stamp::try_from(before.duration().as_nanos()).map_or(Stamp::MIN, |nanos| -nanos),
    }
}

pub(crate) fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::Now => NewTime::Now,
        TimeOrNow::SpecificTime(time) => NewTime::At(stamp(time)),
    }
}

pub(crate) fn file_attr(file: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(file.ino),
        size: file.size,
        blocks: file.pages * PAGE_SECTORS,
        atime: system_time(file.atime),
        mtime: system_time(file.mtime),
        ctime: system_time(file.ctime),
        crtime: system_time(file.btime),
        kind: file_type(file.kind()),
        perm: low_u16(u64::from(file.permissions())),
        nlink: file.links,
        uid: file.uid,
        gid: file.gid,
        rdev: file.device,
        blksize: 4096,
        flags: 0,
    }
}

/// The number of an error. One that is no refusal is told here: the program that asked sees only `EIO`.
pub(crate) fn errno(error: &Error) -> Errno {
    if error.refusal().is_none() && !matches!(error, Error::CalledOff) {
        tracing::error!("{error}");
    }
    Errno::from_i32(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back() {
        for nanos in [0, 1, -1, 1_700_000_000_123_456_789, -5_000_000_001, Stamp::MAX] {
            assert_eq!(stamp(system_time(nanos)), nanos);
        }
    }
}
