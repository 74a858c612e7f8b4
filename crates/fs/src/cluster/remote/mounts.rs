//! The mounts elsewhere that a metadata node knows: the files that they have open.
//!
//! A mount tells its open files and its locks when it attaches, also to the next metadata node. One that is silent for
//! its lease is gone: its files are not open any more, and its locks are free.
//!
//! ```text
//! attach   mount 8, lowest number for a new file 8, open files 4, each 8; locks 4, each file 8 and lock;
//!          operations that may be lost 4, each: request 8, its place when it was answered (term 4, number 8), the
//!          term whose log had it last 4, keys of what it changes 4, each 8
//! answer   0, term 4, lease in milliseconds 8,
//!          locks that others have 4, the place of each among those that were told 4,
//!          for each operation: 0 the volume has it, its number 8; 1 it is to be sent again, 8; 2 it is lost, 8;
//!          or as to a call
//! ```

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use lodestone_width::exact_u32;

use super::calls::{Answer, Call, HowToLock, Value};
use super::locks::{FileLock, GRACE, Locked, Locks};
use super::replays::{Declared, Fate, Left, Replays};
use super::waits::Waits;
use crate::bytes::{Reader, Writer};
use crate::error::{Error, Result};
use crate::requests::Tag;
use crate::volume::Volume;

/// Most files that a mount has open.
const OPEN_MAX: u32 = 1 << 17;
/// Most locks that it has.
const LOCKS_MAX: u32 = 1 << 15;

/// Files of which it is known who got locks.
const GRANTED_MAX: usize = 1 << 16;

/// A mount that attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attach {
    pub(crate) mount: u64,
    /// New files get no lower number: a former metadata node may have given those to files that are lost.
    pub(crate) ino_floor: u64,
    pub(crate) open: Vec<u64>,
    pub(crate) locks: Vec<(u64, FileLock)>,
    /// Operations that were answered and may be lost.
    pub(crate) declared: Vec<Declared>,
}

impl Attach {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.mount).u64(self.ino_floor).u32(exact_u32(self.open.len()));
        self.open.iter().for_each(|ino| _ = out.u64(*ino));
        out.u32(exact_u32(self.locks.len()));
        self.locks.iter().for_each(|(ino, lock)| lock.write(out.u64(*ino)));
        out.u32(exact_u32(self.declared.len()));
        self.declared.iter().for_each(|one| one.write(out));
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (mount, ino_floor) = (from.u64()?, from.u64()?);
        let count = from.u32().filter(|count| *count <= OPEN_MAX)?;
        let open = (0..count).map(|_| from.u64()).collect::<Option<_>>()?;
        let count = from.u32().filter(|count| *count <= LOCKS_MAX)?;
        let locks = (0..count).map(|_| Some((from.u64()?, FileLock::read(from)?))).collect::<Option<_>>()?;
        let declared = Declared::read_all(from)?;
        from.is_empty().then_some(Self { mount, ino_floor, open, locks, declared })
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
    waits: Waits,
    granted: Granted,
    pub(crate) replays: Replays,
}

/// The mount that got new locks of a file in this term; `None`: several did.
#[derive(Debug, Default)]
struct Granted {
    files: HashMap<u64, Option<u64>>,
    /// Too many files to note them all.
    is_full: bool,
}

impl Granted {
    fn note(&mut self, ino: u64, mount: u64) {
        if self.files.len() >= GRANTED_MAX && !self.files.contains_key(&ino) {
            self.is_full = true;
            return;
        }
        let only = self.files.entry(ino).or_insert(Some(mount));
        *only = only.filter(|only| *only == mount);
    }

    /// Whether a mount other than this one may have had a lock of the file.
    fn has_other(&self, ino: u64, mount: u64) -> bool {
        self.files.get(&ino).map_or(self.is_full, |only| *only != Some(mount))
    }
}

impl Mounts {
    /// Those of a former term are not known any more: they attach again. A thread that is late with a former term
    /// changes nothing.
    pub(crate) fn in_term(&mut self, term: u32) -> &mut Self {
        if self.term < term {
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
        let before = self.mounts.remove(&attach.mount);
        // One that was forgotten, or comes late after a takeover: what it had may have been another one's meanwhile.
        let is_known = before.is_some();
        let before = before.map(|mount| mount.open).unwrap_or_default();
        open.difference(&before).for_each(|ino| volume.pin(*ino));
        before.difference(&open).for_each(|ino| close(volume, *ino));
        self.mounts.insert(attach.mount, Mount { open, heard: Instant::now(), serials: HashMap::new() });
        self.locks.free_mount(attach.mount);
        let (granted, locks) = (&self.granted, &mut self.locks);
        let mut take = |(ino, lock): &(u64, FileLock)| {
            let is_its_own = is_known || !granted.has_other(*ino, attach.mount);
            is_its_own && locks.take(*ino, attach.mount, *lock) == Locked::Done
        };
        (0..).zip(&attach.locks).filter(|(_, lock)| !take(lock)).map(|(place, _)| place).collect()
    }

    /// Takes in the operations of a mount that a takeover may have lost. Nothing that they change is used by others
    /// from now on, before they are carried out again.
    pub(crate) fn declare(&mut self, attach: &Attach, left: &Left<'_>) -> Vec<Fate> {
        self.replays.declare(attach.mount, &attach.declared, left, Instant::now())
    }

    /// Takes a lock for a mount, or frees a range. `lease`: that of mounts.
    pub(crate) fn lock(
        &mut self,
        (mount, lease): (u64, Duration),
        serial: u64,
        ino: u64,
        lock: FileLock,
        how: HowToLock,
    ) -> Locked {
        let Some(known) = self.mounts.get_mut(&mount) else { return Locked::Again };
        let newest = known.serials.entry(ino).or_default();
        if serial < *newest {
            // It was late, and another one of the mount came first: its mount sends it again, if it still waits.
            return Locked::Again;
        }
        *newest = serial;
        if how == HowToLock::Free {
            self.locks.free(ino, mount, (lock.owner, lock.start, lock.end));
            return Locked::Done;
        }
        let is_free = self.locks.conflict(ino, mount, &lock).is_none();
        if is_free && self.since.is_some_and(|since| since.elapsed() < grace_of(lease)) {
            return Locked::Again;
        }
        let outcome = self.locks.take(ino, mount, lock);
        match (outcome, how) {
            (Locked::Conflict, HowToLock::Wait) if !self.waits.begin(&self.locks, mount, ino, lock, Instant::now()) => {
                return Locked::Deadlock;
            }
            (Locked::Conflict, _) => {}
            _ => self.waits.end(mount, ino, &lock),
        }
        if outcome == Locked::Done {
            self.granted.note(ino, mount);
        }
        outcome
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
        self.waits.forget_mount(mount);
        self.replays.forget(mount);
        for ino in self.mounts.remove(&mount).map(|mount| mount.open).unwrap_or_default() {
            close(volume, ino);
        }
    }

    /// Mounts that were silent for too long are gone.
    pub(crate) fn forget_silent(&mut self, volume: &Volume, lease: Duration) {
        self.waits.forget_late(Instant::now());
        let silent = self.mounts.iter().filter(|(_, mount)| mount.heard.elapsed() >= lease);
        let silent: Vec<u64> = silent.map(|(mount, _)| *mount).collect();
        for mount in silent {
            tracing::warn!("mount {mount:016x} is silent: its open files are closed, and its locks are free");
            self.detach(volume, mount);
        }
    }
}

/// How long after a takeover no new lock is granted.
pub(crate) fn grace_of(lease: Duration) -> Duration {
    GRACE.min(lease / 4)
}

/// Whether a mount may have lost its locks before it attaches in the term `to`: it was last known in the term `from`,
/// and silent since then. Then that metadata node may have forgotten it and granted them to others, or one between the
/// two may have. A clock may be slow by a tenth.
pub(crate) fn may_have_lost(from: u32, to: u32, silent: Duration, lease: Duration) -> bool {
    let is_forgotten = silent >= lease * 9 / 10;
    let was_another_between = to > from.saturating_add(1) && silent >= grace_of(lease) * 9 / 10;
    from != 0 && from != to && (is_forgotten || was_another_between)
}

fn close(volume: &Volume, ino: u64) {
    if let Err(error) = volume.unpin(ino, 1) {
        tracing::warn!("file {ino}: it is not used any more, and could not be freed: {error}");
    }
}

/// Carries a call out for a mount, and says which operation that was.
pub(crate) fn carry_out(volume: &Volume, tag: Option<Tag>, call: &Call) -> Result<Answer> {
    carry_out_for(&volume.for_request(tag.filter(|_| call.is_change())), call)
}

/// As [`carry_out`], for the request of the handle.
pub(crate) fn carry_out_for(volume: &Volume, call: &Call) -> Result<Answer> {
    match call.make(volume) {
        Ok(value) => Ok(Answer::Done(volume.operation_of_request(), value)),
        Err(Error::Refused(refusal)) => Ok(Answer::Refused(refusal)),
        Err(Error::Gone) => Err(Error::Gone),
        Err(error) if error.may_pass() => Ok(Answer::NotYet(error.to_string())),
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
    fn a_late_thread_with_a_former_term_forgets_no_mount() {
        let mut mounts = Mounts::default();
        let mount = || Mount { open: BTreeSet::new(), heard: Instant::now(), serials: HashMap::new() };
        mounts.in_term(2).mounts.insert(7, mount());
        assert_eq!(mounts.in_term(1).count(), 1, "a former term");
        assert_eq!(mounts.in_term(2).count(), 1, "the same term");
        assert_eq!(mounts.in_term(3).count(), 0, "the next term");
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

    /// A mount that is gone had put other files at the names: they were removed and renamed there. Those that are there
    /// without its operations stay.
    #[test]
    fn what_comes_back_leaves_names_of_other_files_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = volume(folder.path());
        let Answer::Done(_, Value::Attributes(file)) = carry_out(&volume, None, &make(false)).expect("an answer")
        else {
            panic!("a file is made")
        };
        let (ino, other) = (file.ino, file.ino + 1);
        let (from, to) = ((crate::inode::ROOT, b"a".to_vec()), (crate::inode::ROOT, b"b".to_vec()));
        let rename = Call::Rename { by: Caller::root(), from, to, mode: crate::names::RenameMode::Replace };
        let again = |request, call: &Call, files| {
            let tag = Tag::new(7, request, 1).expect("a tag");
            carry_out_for(&volume.for_request_again(tag, files), call).expect("an answer")
        };
        let stale = Answer::Refused(Refusal::Stale);
        // Not known, another one, one more that it replaced.
        for files in [[0, 0], [other, 0], [ino, other]] {
            assert_eq!([&remove(), &rename].map(|call| again(1, call, files)), [&stale, &stale].map(Clone::clone));
        }
        let there = |answer| matches!(answer, Answer::Done(1.., Value::Files(files)) if files == [ino, 0]);
        assert!(there(again(2, &rename, [ino, 0])));
        assert!(there(again(
            3,
            &Call::Remove { by: Caller::root(), parent: crate::inode::ROOT, name: b"b".to_vec(), is_folder: false },
            [ino, 0]
        )));
        // Its number is used already.
        assert_eq!(again(4, &make(false), [ino, 0]), stale);
    }

    const LEASE: Duration = Duration::from_secs(40);

    /// A metadata node whose takeover was long ago, with two mounts.
    fn two_mounts(volume: &Volume) -> Mounts {
        let mut mounts = Mounts { since: Instant::now().checked_sub(LEASE), ..Mounts::default() };
        [1, 2].iter().for_each(|mount| _ = mounts.attach(volume, &attach(*mount, &[])));
        mounts
    }

    fn attach(mount: u64, locks: &[(u64, FileLock)]) -> Attach {
        Attach { mount, ino_floor: 0, open: Vec::new(), locks: locks.to_vec(), declared: Vec::new() }
    }

    fn whole(owner: u64) -> FileLock {
        FileLock { owner, start: 0, end: u64::MAX, is_write: true, pid: 0 }
    }

    #[test]
    fn a_circle_of_waits_over_two_mounts_and_two_files_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = volume(folder.path());
        let mut mounts = two_mounts(&volume);
        let mut serial = 0;
        let mut ask = |mounts: &mut Mounts, mount, ino, how| {
            serial += 1;
            mounts.lock((mount, LEASE), serial, ino, whole(1), how)
        };
        assert_eq!(ask(&mut mounts, 1, 10, HowToLock::Try), Locked::Done);
        assert_eq!(ask(&mut mounts, 2, 20, HowToLock::Try), Locked::Done);
        assert_eq!(ask(&mut mounts, 1, 20, HowToLock::Wait), Locked::Conflict);
        assert_eq!(ask(&mut mounts, 2, 10, HowToLock::Try), Locked::Conflict, "who does not wait closes no circle");
        assert_eq!(ask(&mut mounts, 2, 10, HowToLock::Wait), Locked::Deadlock);
        assert_eq!(ask(&mut mounts, 2, 20, HowToLock::Free), Locked::Done);
        assert_eq!(ask(&mut mounts, 1, 20, HowToLock::Wait), Locked::Done);
        assert_eq!(ask(&mut mounts, 2, 10, HowToLock::Wait), Locked::Conflict, "now it may wait");
        mounts.detach(&volume, 1);
        assert_eq!(ask(&mut mounts, 2, 10, HowToLock::Wait), Locked::Done);
    }

    /// The lock is free when the mount comes back, and yet not its own: another mount had it in between.
    #[test]
    fn a_lock_that_another_mount_had_meanwhile_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = volume(folder.path());
        let mut mounts = two_mounts(&volume);
        let mut serial = 0;
        let mut ask = |mounts: &mut Mounts, mount, ino, how| {
            serial += 1;
            assert_eq!(mounts.lock((mount, LEASE), serial, ino, whole(1), how), Locked::Done);
        };
        let told = [(10, whole(1)), (20, whole(1))];
        told.iter().for_each(|(ino, _)| ask(&mut mounts, 1, *ino, HowToLock::Try));
        assert_eq!(mounts.attach(&volume, &attach(1, &told)), [0; 0], "it was known all the time");
        mounts.detach(&volume, 1);
        assert_eq!(mounts.attach(&volume, &attach(1, &told)), [0; 0], "nobody else had them");
        mounts.detach(&volume, 1);
        ask(&mut mounts, 2, 20, HowToLock::Try);
        ask(&mut mounts, 2, 20, HowToLock::Free);
        assert_eq!(mounts.attach(&volume, &attach(1, &told)), [1], "the other mount had the second one");
        // After a takeover who comes first had it; who comes late may have lost it.
        let mut mounts = Mounts { since: Instant::now().checked_sub(LEASE), ..Mounts::default() };
        mounts.attach(&volume, &attach(2, &[]));
        ask(&mut mounts, 2, 20, HowToLock::Try);
        ask(&mut mounts, 2, 20, HowToLock::Free);
        assert_eq!(mounts.attach(&volume, &attach(1, &told)), [1]);
        let mut granted = Granted::default();
        (0..70_000).for_each(|ino| granted.note(ino, 1));
        assert!(!granted.has_other(5, 1) && granted.has_other(5, 2) && granted.has_other(69_999, 1));
        assert_eq!(granted.files.len(), GRANTED_MAX);
    }

    #[test]
    fn a_mount_that_was_silent_over_a_takeover_may_have_lost_its_locks() {
        let lost = |to, seconds| may_have_lost(5, to, Duration::from_secs(seconds), LEASE);
        assert!(!lost(6, 30) && lost(6, 36), "the former one may have forgotten it");
        assert!(!lost(7, 4) && lost(7, 5), "another one may have led between");
        assert!(!lost(5, 100), "the same one knows");
        assert!(!may_have_lost(0, 5, LEASE, LEASE), "it had none before");
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
            mounts.attach(&volume, &attach(mount, &[]));
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
        mounts.attach(&volume, &Attach { open: vec![ino], ..attach(2, &[]) });
        assert!(volume.attributes(ino).is_ok());
        mounts.detach(&volume, 2);
        assert!(volume.attributes(ino).is_err(), "nobody has it open");
    }
}
