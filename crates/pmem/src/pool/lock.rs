//! One writer: an advisory lock on every part.
//!
//! The lock is `flock(2)`. It belongs to the open file, so a second open in the same process conflicts as well. The
//! kernel drops it with the process, however that dies, so no lock file can go stale. POSIX record locks are lost when
//! any descriptor of the file is closed anywhere in the process. Open-file-description locks do not tell their holder.
//!
//! The holder's process is looked up in `/proc/locks` at the moment of refusal. So it needs no hint on the medium and
//! is never out of date. Where the kernel hides it (another PID namespace) the message says so.
//!
//! A writer holds the lock exclusively, read-only opens share it.
//!
//! A process that is being started by this one shares its open files until it executes its own program. For that moment
//! a lock outlives the pool that was closed. So the lock is tried again for some milliseconds before the refusal is
//! returned.
//!
//! The file may be replaced between its open and its lock. The lock is then on a file without a name, beside the writer
//! of the new one. So the opener, with the lock, looks whether the path still leads to the file, and begins again when
//! not. A thread that replaces a file holds its lock.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, major, minor};

use crate::error::{Error, Result};

/// How to hold a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The one writer.
    Write,
    /// One of many readers.
    Read,
    /// Not at all: the caller accepts a writer beside it.
    Nothing,
}

/// How often, and how far apart in time, a lock is tried before the refusal is returned.
const ATTEMPTS: u32 = 25;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(2);

/// Takes the lock on `file` until it is closed.
pub(crate) fn acquire(path: &Path, file: &File, hold: Hold) -> Result<()> {
    let operation = match hold {
        Hold::Write => FlockOperation::NonBlockingLockExclusive,
        Hold::Read => FlockOperation::NonBlockingLockShared,
        Hold::Nothing => return Ok(()),
    };
    for attempt in 1.. {
        match flock(file, operation) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if attempt < ATTEMPTS => std::thread::sleep(ATTEMPT_INTERVAL),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::InUse { path: path.to_owned(), holder: holder_of(file) });
            }
            Err(source) => return Err(Error::io(path, "locking", "use a file system that supports flock", source)),
        }
    }
    Ok(())
}

/// The process that has `file` open for writing. The file may not be locked through this descriptor.
pub(crate) fn writer_of(path: &Path, file: &File) -> Result<Option<String>> {
    match acquire(path, file, Hold::Read) {
        Ok(()) => {
            let failed = |source| Error::io(path, "unlocking", "use a file system that supports flock", source);
            flock(file, FlockOperation::Unlock).map_err(failed)?;
            Ok(None)
        }
        Err(Error::InUse { holder, .. }) => Ok(Some(holder)),
        Err(error) => Err(error),
    }
}

/// How often an open begins again because its file was replaced before it was locked.
pub(crate) const REPLACED_MAX: u32 = 16;

/// Whether `path` leads to `file`. Asked with the lock held, the answer stays true until the lock is released.
pub(crate) fn is_at(path: &Path, file: &File) -> Result<bool> {
    let failed = |e| Error::io(path, "reading the file's metadata", "check the file", e);
    let open = file.metadata().map_err(failed)?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed(e)),
    }
}

/// The error of an open whose file was replaced [`REPLACED_MAX`] times.
pub(crate) fn replaced_again_and_again(path: &Path) -> Error {
    let source = std::io::Error::new(std::io::ErrorKind::ResourceBusy, "another file is there each time it is locked");
    Error::io(path, "locking", "stop what replaces the file all the time", source)
}

/// How often the table of locks is read before the holder counts as unknown. The kernel returns it in pieces. Where
/// other processes take and drop locks between two of them, lines are left out.
const TABLE_READINGS: u32 = 8;

/// Names the process that holds a lock on `file`, as far as the kernel tells.
fn holder_of(file: &File) -> String {
    let known = file.metadata().ok().and_then(|found| {
        let device = (major(found.dev()), minor(found.dev()));
        (0..TABLE_READINGS).find_map(|_| {
            let table = fs::read_to_string("/proc/locks").ok()?;
            pid_in_table(&table, device, found.ino())
        })
    });
    match known {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => match fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(name) => format!("process {pid} ({})", name.trim()),
            Err(_) => format!("process {pid}"),
        },
        None => "another process (the kernel does not tell which)".into(),
    }
}

/// Finds the holder of a flock on a device and inode in the text of `/proc/locks`.
fn pid_in_table(table: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let wanted = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    let same_inode = format!(":{inode}");
    let holders = |matches: &dyn Fn(&str) -> bool| -> Vec<u32> {
        table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|fields| fields.len() >= 6 && fields[1] == "FLOCK" && matches(fields[5]))
            .filter_map(|fields| fields[4].parse().ok())
            .filter(|pid| *pid != 0)
            .collect()
    };
    // Some file systems report another device number to stat(2) than to the lock table, so one match by inode is
    // enough.
    let exact = holders(&|place| place == wanted);
    let loose = holders(&|place| place.ends_with(&same_inode));
    exact.first().or(if loose.len() == 1 { loose.first() } else { None }).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
1: FLOCK  ADVISORY  WRITE 708 fe:00:1234 0 EOF
1: -> FLOCK  ADVISORY  WRITE 709 fe:00:1234 0 EOF
2: POSIX  ADVISORY  WRITE 3568 fe:00:77 0 EOF
3: FLOCK  ADVISORY  READ 12 00:17:99 0 EOF
4: FLOCK  ADVISORY  READ 0 00:17:98 0 EOF
";

    #[test]
    fn the_holder_is_found_in_the_lock_table() {
        assert_eq!(pid_in_table(TABLE, (0xfe, 0), 1234), Some(708));
        assert_eq!(pid_in_table(TABLE, (0, 0x99), 99), Some(12), "one match by inode");
        assert_eq!(pid_in_table(TABLE, (0xfe, 0), 77), None, "not a flock");
        assert_eq!(pid_in_table(TABLE, (0, 0x17), 98), None, "a process of another namespace");
    }

    #[test]
    fn writers_exclude_everyone_and_readers_share() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("file");
        fs::write(&path, b"x").expect("file");
        let open = || File::open(&path).expect("open");
        let (first, second, third) = (open(), open(), open());
        acquire(&path, &first, Hold::Read).expect("first reader");
        acquire(&path, &second, Hold::Read).expect("second reader");
        let refused = acquire(&path, &third, Hold::Write).expect_err("a writer beside readers").to_string();
        assert!(refused.contains(&format!("this process ({})", std::process::id())), "{refused}");
        drop((first, second));
        acquire(&path, &third, Hold::Write).expect("alone");
        assert!(acquire(&path, &open(), Hold::Read).is_err());
        acquire(&path, &open(), Hold::Nothing).expect("by name");
    }

    #[test]
    fn a_lock_that_a_starting_process_still_shares_is_waited_for() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("file");
        fs::write(&path, b"x").expect("file");
        let file = File::open(&path).expect("open");
        acquire(&path, &file, Hold::Write).expect("nobody has it");
        // As in a forked process that has not executed its program yet: the same open file.
        let shared = file.try_clone().expect("a second descriptor");
        drop(file);
        let other = File::open(&path).expect("open");
        assert!(
            flock(&other, FlockOperation::NonBlockingLockExclusive).is_err(),
            "the lock outlives the first descriptor"
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(ATTEMPT_INTERVAL * 4);
                drop(shared);
            });
            acquire(&path, &other, Hold::Write).expect("it goes with the second");
        });
    }
}
