//! Locks of files on a mount whose volume is elsewhere: between the processes of all mounts.
//!
//! The kernel asks for `fcntl` and `flock` alike, with an owner for each. A program that waits for a lock must not keep
//! one of the threads that answer the kernel: they would not be there for the unlock. So one thread of its own asks for
//! all locks that programs wait for, again and again. The metadata node refuses the wait that would close a circle of
//! programs that wait for each other, of whatever mounts: with `EDEADLK`. `fuser` does not say which of the two kinds
//! of locks a program wants, so that is so for `flock`, too.
//!
//! `fuser` refuses the kernel's interrupts, and a process that is killed waits for its answer before it ends. So the
//! thread looks whether a signal ends the process, and answers then.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyEmpty};
use lodestone_fs::Result;
use lodestone_fs::cluster::{FileLock, RemoteVolume};

use crate::convert::errno;

/// Pauses before a lock is asked for again: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// The bit of SIGKILL, number 9, in a set of signals of `/proc`.
const SIGKILL: u64 = 1 << 8;

/// Kinds of a lock, as the kernel names them.
pub(crate) const READ: i32 = 0;
pub(crate) const WRITE: i32 = 1;
pub(crate) const UNLOCK: i32 = 2;

/// A program that waits for a lock.
struct Waiting {
    ino: u64,
    lock: FileLock,
    reply: ReplyEmpty,
    pause: Duration,
    next: Instant,
}

/// Programs that wait for locks.
#[derive(Debug)]
pub(crate) struct Waiters(Sender<(u64, FileLock, ReplyEmpty)>);

impl Waiters {
    /// Starts the thread. It ends with this.
    pub(crate) fn start(volume: RemoteVolume) -> std::io::Result<Self> {
        let (waiters, arriving) = channel();
        std::thread::Builder::new().name("fs-locks".into()).spawn(move || wait(&volume, &arriving))?;
        Ok(Self(waiters))
    }

    /// Answers when the lock is there.
    pub(crate) fn add(&self, ino: u64, lock: FileLock, reply: ReplyEmpty) {
        if let Err(std::sync::mpsc::SendError((_, _, reply))) = self.0.send((ino, lock, reply)) {
            reply.error(Errno::ENOLCK);
        }
    }
}

fn wait(volume: &RemoteVolume, arriving: &Receiver<(u64, FileLock, ReplyEmpty)>) {
    let mut waiting: Vec<Waiting> = Vec::new();
    loop {
        let now = Instant::now();
        let next = waiting.iter().map(|one| one.next.saturating_duration_since(now)).min();
        match arriving.recv_timeout(next.unwrap_or(Duration::from_secs(3600))) {
            Ok((ino, lock, reply)) => waiting.push(Waiting { ino, lock, reply, pause: PAUSES.0, next: now }),
            Err(RecvTimeoutError::Timeout) => {}
            // The mount has ended.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        for mut one in std::mem::take(&mut waiting) {
            if one.next > now {
                waiting.push(one);
                continue;
            }
            match volume.wait_lock(one.ino, one.lock) {
                Ok(true) => one.reply.ok(),
                Ok(false) if is_killed(one.lock.pid) => one.reply.error(Errno::EINTR),
                Ok(false) => {
                    one.next = Instant::now() + one.pause;
                    one.pause = (one.pause * 2).min(PAUSES.1);
                    waiting.push(one);
                }
                Err(error) => one.reply.error(errno(&error)),
            }
        }
    }
}

/// Whether a signal ends this process. The kernel turns each that does into SIGKILL for all threads.
fn is_killed(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let is_pending = |line: &str| {
        let signals = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let signals = signals.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
        signals.is_some_and(|signals| signals & SIGKILL != 0)
    };
    let mut statuses =
        threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    statuses.any(|status| status.lines().any(is_pending))
}

/// Takes or frees a lock at once.
pub(crate) fn set(volume: &RemoteVolume, ino: u64, kind: i32, lock: FileLock, reply: ReplyEmpty) {
    if kind == UNLOCK {
        return match volume.unlock(ino, lock.owner, lock.start, lock.end) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        };
    }
    match volume.lock(ino, lock) {
        Ok(true) => reply.ok(),
        Ok(false) => reply.error(Errno::EAGAIN),
        Err(error) => reply.error(errno(&error)),
    }
}

/// The end of a use of a file: what its owner has is free.
pub(crate) fn end(volume: &RemoteVolume, ino: u64, owner: u64) -> Result<()> {
    volume.unlock_owner(ino, owner)
}
