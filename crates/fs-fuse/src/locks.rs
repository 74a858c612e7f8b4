//! Locks of files on a mount whose volume is elsewhere: between the processes of all mounts.
//!
//! The kernel asks for `fcntl` and `flock` alike, with an owner for each. A program that waits for a lock must not keep
//! one of the threads that answer the kernel: they would not be there for the unlock. So one thread of its own asks for
//! all locks that programs wait for, again and again. The metadata node refuses the wait that would close a circle of
//! programs that wait for each other, of whatever mounts: with `EDEADLK`. `fuser` does not say which of the two kinds
//! of locks a program wants, so that is so for `flock`, too.
//!
//! A process that is killed waits for its answer before it ends ([`killed`](crate::killed)). So the thread looks
//! whether a signal ends the process, and answers then. While the volume cannot go on no program of these keeps the
//! others waiting: each is asked for briefly, and again.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fuser::{Errno, ReplyEmpty};
use lodestone_fs::cluster::{FileLock, RemoteVolume};
use lodestone_fs::{Patience, Result};

use crate::convert::errno;
use crate::killed::is_killed;

/// Pauses before a lock is asked for again: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// How long one request waits for a volume that cannot go on.
const BRIEF: Duration = Duration::from_millis(500);

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
    /// When the volume answered last, or the wait began.
    began: Instant,
}

/// Programs that wait for locks.
#[derive(Debug)]
pub(crate) struct Waiters(Sender<(u64, FileLock, ReplyEmpty)>);

impl Waiters {
    /// Starts the thread. It ends with this.
    pub(crate) fn start(volume: RemoteVolume, patience: Arc<Patience>) -> std::io::Result<Self> {
        let (waiters, arriving) = channel();
        std::thread::Builder::new().name("fs-locks".into()).spawn(move || wait(&volume, &patience, &arriving))?;
        Ok(Self(waiters))
    }

    /// Answers when the lock is there.
    pub(crate) fn add(&self, ino: u64, lock: FileLock, reply: ReplyEmpty) {
        if let Err(std::sync::mpsc::SendError((_, _, reply))) = self.0.send((ino, lock, reply)) {
            reply.error(Errno::ENOLCK);
        }
    }
}

fn wait(volume: &RemoteVolume, patience: &Patience, arriving: &Receiver<(u64, FileLock, ReplyEmpty)>) {
    let (mut waiting, brief) = (Vec::<Waiting>::new(), Arc::new(Patience::of("locks", Some(BRIEF))));
    loop {
        let now = Instant::now();
        let next = waiting.iter().map(|one| one.next.saturating_duration_since(now)).min();
        match arriving.recv_timeout(next.unwrap_or(Duration::from_secs(3600))) {
            Ok((ino, lock, reply)) => {
                waiting.push(Waiting { ino, lock, reply, pause: PAUSES.0, next: now, began: now })
            }
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
            let outcome = brief.during(|| false, || volume.wait_lock(one.ino, one.lock));
            let is_over = || patience.limit().is_some_and(|limit| one.began.elapsed() >= limit);
            let outcome = match outcome {
                // The volume cannot go on: programs wait as long as the mount says.
                Err(error) if error.may_pass() && !is_over() => Ok(false),
                Ok(locked) => {
                    one.began = Instant::now();
                    Ok(locked)
                }
                outcome => outcome,
            };
            match outcome {
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
