//! The mounts elsewhere that a metadata node knows: the files that they have open.
//!
//! A mount tells its open files and its locks when it attaches, also to the next metadata node. One that is silent for
//! its lease is gone: its files are not open any more, and its locks are free.
//!
//! ```text
//! attach   mount 8, lowest number for a new file 8, open files 4, each 8; locks 4, each file 8 and lock
//! answer   0, term 4, the last operation that the takeover left 8, lease in milliseconds 8,
//!          locks that others have 4, the place of each among those that were told 4; or as to a call
//! ```

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use lodestone_width::exact_u32;

use super::calls::{Answer, Call, Value};
use super::locks::{FileLock, GRACE, Locked, Locks};
use crate::bytes::{Reader, Writer};
use crate::error::{Error, Result};
use crate::requests::Tag;
use crate::volume::Volume;

/// Most files that a mount has open.
const OPEN_MAX: u32 = 1 << 17;
/// Most locks that it has.
const LOCKS_MAX: u32 = 1 << 15;

/// A mount that attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attach {
    pub(crate) mount: u64,
    /// New files get no lower number: a former metadata node may have given those to files that are lost.
    pub(crate) ino_floor: u64,
    pub(crate) open: Vec<u64>,
    pub(crate) locks: Vec<(u64, FileLock)>,
}

impl Attach {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.mount).u64(self.ino_floor).u32(exact_u32(self.open.len()));
        self.open.iter().for_each(|ino| _ = out.u64(*ino));
        out.u32(exact_u32(self.locks.len()));
        self.locks.iter().for_each(|(ino, lock)| lock.write(out.u64(*ino)));
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (mount, ino_floor) = (from.u64()?, from.u64()?);
        let count = from.u32().filter(|count| *count <= OPEN_MAX)?;
        let open = (0..count).map(|_| from.u64()).collect::<Option<_>>()?;
        let count = from.u32().filter(|count| *count <= LOCKS_MAX)?;
        let locks = (0..count).map(|_| Some((from.u64()?, FileLock::read(from)?))).collect::<Option<_>>()?;
        from.is_empty().then_some(Self { mount, ino_floor, open, locks })
    }
}

/// A mount.
#[derive(Debug)]
struct Mount {
    open: BTreeSet<u64>,
    heard: Instant,
    /// The newest request for locks of each file.
    serials: HashMap<u64, u64>,
}

/// The mounts of a metadata node in a term.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    term: u32,
    /// When the term began here.
    since: Option<Instant>,
    mounts: HashMap<u64, Mount>,
    locks: Locks,
}

impl Mounts {
    /// Those of a former term are not known any more: they attach again.
    pub(crate) fn in_term(&mut self, term: u32) -> &mut Self {
        if self.term != term {
            *self = Self { term, since: Some(Instant::now()), ..Self::default() };
        }
        self
    }

    /// Mounts that are known.
    pub(crate) fn count(&self) -> usize {
        self.mounts.len()
    }

    /// Takes a mount in, with the files that it has open and its locks. Places of those that another mount has now.
    pub(crate) fn attach(&mut self, volume: &Volume, attach: &Attach) -> Vec<u32> {
        volume.number_files_from(attach.ino_floor);
        let open: BTreeSet<u64> = attach.open.iter().copied().collect();
        let before = self.mounts.remove(&attach.mount).map(|mount| mount.open).unwrap_or_default();
        open.difference(&before).for_each(|ino| volume.pin(*ino));
        before.difference(&open).for_each(|ino| close(volume, *ino));
        self.mounts.insert(attach.mount, Mount { open, heard: Instant::now(), serials: HashMap::new() });
        self.locks.free_mount(attach.mount);
        let mut take = |(ino, lock): &(u64, FileLock)| self.locks.take(*ino, attach.mount, *lock) == Locked::Done;
        (0..).zip(&attach.locks).filter(|(_, lock)| !take(lock)).map(|(place, _)| place).collect()
    }

    /// Takes a lock for a mount, or frees a range. `lease`: that of mounts.
    pub(crate) fn lock(
        &mut self,
        (mount, lease): (u64, Duration),
        serial: u64,
        ino: u64,
        lock: FileLock,
        frees: bool,
    ) -> Locked {
        let Some(known) = self.mounts.get_mut(&mount) else { return Locked::Again };
        let newest = known.serials.entry(ino).or_default();
        if serial < *newest {
            // It was late, and another one of the mount came first: its mount sends it again, if it still waits.
            return Locked::Again;
        }
        *newest = serial;
        if frees {
            self.locks.free(ino, mount, (lock.owner, lock.start, lock.end));
            return Locked::Done;
        }
        match self.locks.conflict(ino, mount, &lock) {
            None if self.since.is_some_and(|since| since.elapsed() < GRACE.min(lease / 4)) => Locked::Again,
            _ => self.locks.take(ino, mount, lock),
        }
    }

    /// A lock of another owner that excludes this one.
    pub(crate) fn find_lock(&self, mount: u64, ino: u64, lock: &FileLock) -> Option<FileLock> {
        self.locks.conflict(ino, mount, lock)
    }

    /// Whether the mount is known, which is heard of now.
    pub(crate) fn hear(&mut self, mount: u64) -> bool {
        self.mounts.get_mut(&mount).map(|mount| mount.heard = Instant::now()).is_some()
    }

    /// The mount has the file open, once, whatever it had before. `is_pinned`: it has been pinned for it already.
    pub(crate) fn open(&mut self, volume: &Volume, mount: u64, ino: u64, is_pinned: bool) {
        let Some(mount) = self.mounts.get_mut(&mount) else { return };
        match (mount.open.insert(ino), is_pinned) {
            (true, false) => volume.pin(ino),
            (false, true) => close(volume, ino),
            _ => {}
        }
    }

    /// The mount does not have the file open any more.
    pub(crate) fn close(&mut self, volume: &Volume, mount: u64, ino: u64) {
        if self.mounts.get_mut(&mount).is_some_and(|mount| mount.open.remove(&ino)) {
            close(volume, ino);
        }
    }

    /// The mount is gone.
    pub(crate) fn detach(&mut self, volume: &Volume, mount: u64) {
        self.locks.free_mount(mount);
        for ino in self.mounts.remove(&mount).map(|mount| mount.open).unwrap_or_default() {
            close(volume, ino);
        }
    }

    /// Mounts that were silent for too long are gone.
    pub(crate) fn forget_silent(&mut self, volume: &Volume, lease: Duration) {
        let silent = self.mounts.iter().filter(|(_, mount)| mount.heard.elapsed() >= lease);
        let silent: Vec<u64> = silent.map(|(mount, _)| *mount).collect();
        for mount in silent {
            tracing::warn!("mount {mount:016x} is silent: its open files are closed, and its locks are free");
            self.detach(volume, mount);
        }
    }
}

fn close(volume: &Volume, ino: u64) {
    if let Err(error) = volume.unpin(ino, 1) {
        tracing::warn!("file {ino}: it is not used any more, and could not be freed: {error}");
    }
}

/// Carries a call out for a mount, and says which operation that was.
pub(crate) fn carry_out(volume: &Volume, tag: Option<Tag>, call: &Call) -> Result<Answer> {
    let volume = volume.for_request(tag.filter(|_| call.is_change()));
    match call.make(&volume) {
        Ok(value) => Ok(Answer::Done(volume.operation_of_request(), value)),
        Err(Error::Refused(refusal)) => Ok(Answer::Refused(refusal)),
        Err(Error::Gone) => Err(Error::Gone),
        Err(error) => Ok(Answer::Failed(error.to_string())),
    }
}

/// The file that a call has made and opened.
pub(crate) fn opened(call: &Call, answer: &Answer) -> Option<u64> {
    match (call, answer) {
        (Call::Make { pins: true, .. }, Answer::Done(_, Value::Attributes(file))) => Some(file.ino),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lodestone_pmem::{DomainChoice, PoolOptions};

    use super::*;
    use crate::access::Caller;
    use crate::error::Refusal;

    fn volume(folder: &std::path::Path) -> Volume {
        let pool = PoolOptions { size_bytes: 16 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
        Volume::format_with(folder.join("a.vol"), &pool, &crate::volume::FormatOptions::default()).expect("a volume")
    }

    fn make(pins: bool) -> Call {
        let (parent, name, target) = (crate::inode::ROOT, b"a".to_vec(), Vec::new());
        Call::Make { by: Caller::root(), parent, name, mode: 0o100_644, device: 0, target, pins }
    }

    fn remove() -> Call {
        let (parent, name) = (crate::inode::ROOT, b"a".to_vec());
        Call::Remove { by: Caller::root(), parent, name, is_folder: false }
    }

    #[test]
    fn a_request_that_is_sent_again_is_carried_out_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = volume(folder.path());
        let tag = |request| Tag::new(7, request, 1);
        let first = carry_out(&volume, tag(1), &make(false)).expect("an answer");
        assert!(matches!(first, Answer::Done(operation, _) if operation > 0), "{first:?}");
        assert_eq!(carry_out(&volume, tag(1), &make(false)).expect("an answer"), first, "sent again");
        let other = carry_out(&volume, tag(2), &make(false)).expect("an answer");
        assert_eq!(other, Answer::Refused(Refusal::Exists), "another request");
        assert!(matches!(carry_out(&volume, tag(3), &remove()).expect("an answer"), Answer::Done(..)));
        assert!(matches!(carry_out(&volume, tag(3), &remove()).expect("an answer"), Answer::Done(..)), "sent again");
        assert_eq!(carry_out(&volume, tag(4), &remove()).expect("an answer"), Answer::Refused(Refusal::NotFound));
    }

    #[test]
    fn an_open_file_without_a_name_goes_with_the_last_mount_that_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = volume(folder.path());
        let (mut mounts, mut request) = (Mounts::default(), 0);
        let mut call = |call: &Call| {
            request += 1;
            carry_out(&volume, Tag::new(1, request, 1), call).expect("an answer")
        };
        for mount in [1, 2] {
            mounts.attach(&volume, &Attach { mount, ino_floor: 0, open: Vec::new(), locks: Vec::new() });
        }
        let made = call(&make(true));
        let ino = opened(&make(true), &made).expect("a file");
        mounts.open(&volume, 1, ino, true);
        mounts.open(&volume, 2, ino, false);
        mounts.open(&volume, 2, ino, false);
        call(&remove());
        mounts.close(&volume, 1, ino);
        assert!(volume.attributes(ino).is_ok(), "the other mount has it open");
        // It attaches again, at the same node, and still has it open.
        mounts.attach(&volume, &Attach { mount: 2, ino_floor: 0, open: vec![ino], locks: Vec::new() });
        assert!(volume.attributes(ino).is_ok());
        mounts.detach(&volume, 2);
        assert!(volume.attributes(ino).is_err(), "nobody has it open");
    }
}
