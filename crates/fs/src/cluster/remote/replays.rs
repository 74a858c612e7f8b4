//! Operations that were answered and lost with all nodes that had them: mounts send them again, and the next metadata
//! node decides which of them are carried out again.
//!
//! A takeover leaves a prefix of the operations. Each mount declares its operations that no sync has covered
//! (`unstable`), when it attaches. Of those that are not in the prefix:
//!
//! 1. An operation is *lost* if its result may be another one now: another mount has used what it changes since the
//!    takeover; a later operation on the same was carried out again before; somebody else changed the volume between
//!    its term and this one; or an earlier operation of its mount on the same is lost.
//! 2. The others are *claimed*: calls of other mounts that use the same wait until they are carried out, or refused.
//! 3. Those on the same are carried out in the order that they had, also those of several mounts. All files are made in
//!    that order, so each gets the number that was told.
//!
//! So the volume is as after some of the operations in the order that they had, those of the prefix first, and each
//! mount is told how many of its own are missing. No mount has seen the volume without an operation that comes back,
//! unless it looked before the mount attached, and then the operation is lost.
//!
//! Memory is bounded: of a term, only uses in the first half minute are noted. Who attaches later gets nothing back.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use lodestone_width::exact_u32;

use super::calls::{Call, Value};
use super::unstable::PENDING_MAX;
use crate::bytes::{Reader, Writer};
use crate::requests::{Files, Tag};

/// Uses are noted for so long.
const NOTES_TIME: Duration = Duration::from_secs(30);
/// Uses that are noted.
const NOTES_MAX: usize = 1 << 16;
/// Others wait for a mount that sends nothing for at most so long.
const SILENCE: Duration = Duration::from_secs(5);
/// How long operations of several mounts wait for each other: all mounts attach at once.
const GATHER: Duration = Duration::from_millis(500);
/// Most things that one operation changes.
const KEYS_MAX: u32 = 8;

/// The term and the number of an operation: the order that operations had.
pub(crate) type Place = (u32, u64);

/// An operation that was answered, as its mount declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) request: u64,
    /// The place that it had when it was answered first.
    pub(crate) place: Place,
    /// The term whose log had it last.
    pub(crate) since: u32,
    /// Keys of the things that it changes.
    pub(crate) keys: Vec<u64>,
}

impl Declared {
    pub(crate) fn write(&self, out: &mut Writer) {
        out.u64(self.request).u32(self.place.0).u64(self.place.1).u32(self.since).u32(exact_u32(self.keys.len()));
        self.keys.iter().for_each(|key| _ = out.u64(*key));
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (request, place, since) = (from.u64()?, (from.u32()?, from.u64()?), from.u32()?);
        let count = from.u32().filter(|count| *count <= KEYS_MAX)?;
        let keys = (0..count).map(|_| from.u64()).collect::<Option<_>>()?;
        Some(Self { request, place, since, keys })
    }

    /// A list of them.
    pub(crate) fn read_all(from: &mut Reader<'_>) -> Option<Vec<Self>> {
        let count = from.u32().filter(|count| lodestone_width::to_usize(*count) <= PENDING_MAX)?;
        (0..count).map(|_| Self::read(from)).collect()
    }
}

/// The fate of a declared operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The volume has it, as this operation.
    Kept(u64),
    /// It is to be sent again, in its turn.
    Again,
    Lost,
}

impl Fate {
    pub(crate) fn write(self, out: &mut Writer) {
        match self {
            Self::Kept(operation) => out.u8(0).u64(operation),
            Self::Again => out.u8(1).u64(0),
            Self::Lost => out.u8(2).u64(0),
        };
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Option<Self> {
        match (from.u8()?, from.u64()?) {
            (0, operation) => Some(Self::Kept(operation)),
            (1, _) => Some(Self::Again),
            (2, _) => Some(Self::Lost),
            _ => None,
        }
    }
}

/// The order in which files are made, which all that make one have in common.
const MAKES: u64 = 0;

/// The bit of the keys of lists of folders: changes of a list do not depend on each other.
const LIST: u64 = 1 << 63;

/// A key of something: FNV-1a over its kind, its number and its name. Two things with the same key only wait for each
/// other in vain.
fn key(kind: u8, ino: u64, name: &[u8]) -> u64 {
    let bytes = [kind].into_iter().chain(ino.to_le_bytes()).chain(name.iter().copied());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash & !LIST).max(1)
}

/// Whether operations that change the same depend on each other.
const fn is_ordered(key: u64) -> bool {
    key & LIST == 0
}

/// Whether an operation has another result if an earlier one on the same is missing.
pub(super) const fn is_spoilt(key: u64) -> bool {
    is_ordered(key) && key != MAKES
}

fn file(ino: u64) -> u64 {
    key(1, ino, b"")
}

fn files(of: Files) -> impl Iterator<Item = u64> {
    of.into_iter().filter(|ino| *ino != 0).map(file)
}

fn entry(parent: u64, name: &[u8]) -> u64 {
    key(2, parent, name)
}

fn list(parent: u64) -> u64 {
    key(3, parent, b"") | LIST
}

/// Keys of the things that a call looks at or changes.
fn used(call: &Call) -> Vec<u64> {
    match call {
        Call::Lookup { parent, name, .. } | Call::Make { parent, name, .. } | Call::Remove { parent, name, .. } => {
            vec![entry(*parent, name)]
        }
        Call::Rename { from, to, .. } => vec![entry(from.0, &from.1), entry(to.0, &to.1)],
        Call::Link { ino, parent, name, .. } => vec![file(*ino), entry(*parent, name)],
        Call::ReadFolder { ino, .. } | Call::ReadFolderPlus { ino, .. } => vec![list(*ino)],
        Call::Attributes { ino }
        | Call::Truncate { ino, .. }
        | Call::Set { ino, .. }
        | Call::ReadLink { ino }
        | Call::Read { ino, .. }
        | Call::NoteRead { ino }
        | Call::Write { ino, .. }
        | Call::Append { ino, .. }
        | Call::SetExtra { ino, .. }
        | Call::RemoveExtra { ino, .. }
        | Call::Extra { ino, .. }
        | Call::ExtraNames { ino, .. }
        | Call::Allocate { ino, .. }
        | Call::Seek { ino, .. } => vec![file(*ino)],
        _ => Vec::new(),
    }
}

/// Keys of the files that an answer shows.
fn shown(value: &Value) -> Vec<u64> {
    match value {
        Value::Attributes(found) => vec![file(found.ino)],
        Value::EntriesPlus(entries) => entries.iter().map(|(_, found)| file(found.ino)).collect(),
        _ => Vec::new(),
    }
}

/// The file that an operation made, of those that were told.
pub(crate) fn made_of(call: &Call, files: Files) -> Option<u64> {
    matches!(call, Call::Make { .. }).then_some(files[0])
}

/// Keys of the things that an operation changes, also of the files that were told, and of folders, which others must
/// not list without it.
pub(crate) fn changed(call: &Call, told: Files) -> Vec<u64> {
    let mut keys = used(call);
    match call {
        Call::Make { parent, .. } | Call::Remove { parent, .. } | Call::Link { parent, .. } => keys.push(list(*parent)),
        Call::Rename { from, to, .. } => keys.extend([list(from.0), list(to.0)]),
        _ => {}
    }
    keys.extend(files(told));
    keys.extend(made_of(call, told).map(|_| MAKES));
    keys
}

/// The state that a takeover left.
pub(crate) struct Left<'l> {
    /// Its last operation.
    pub(crate) base: u64,
    /// The operation that carried out a request of the mount that declares.
    pub(crate) operation_of: &'l dyn Fn(u64) -> Option<u64>,
    /// Whether no other mount has changed the volume since that term.
    pub(crate) is_unchanged_since: &'l dyn Fn(u32) -> bool,
}

/// Whether an operation may be carried out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    /// Others come first.
    Later,
    Lost,
}

#[derive(Clone, Debug)]
struct Waiting {
    place: Place,
    keys: Vec<u64>,
}

/// A mount with operations that wait.
#[derive(Debug)]
struct Waiter {
    heard: Instant,
    /// By their requests.
    operations: BTreeMap<u64, Waiting>,
}

/// The operations that come back in a term, and the uses that forbid it.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    since: Option<Instant>,
    /// The mount that has used something; `None`: several have.
    notes: HashMap<u64, Option<u64>>,
    /// Uses are not noted any more.
    is_over: bool,
    waiters: HashMap<u64, Waiter>,
    /// Keys of the things that the waiting operations change.
    claims: HashMap<u64, BTreeSet<(Place, u64)>>,
    /// The newest operation on something that was carried out again.
    again: HashMap<u64, Place>,
    /// Files that were made again.
    made: HashSet<u64>,
    /// When the first mount declared lost operations, and what is known of all of them.
    gathering: Option<Instant>,
    base: u64,
    seen: BTreeSet<Place>,
}

impl Replays {
    /// Takes the operations of a mount in. The fate of each.
    pub(crate) fn declare(&mut self, mount: u64, declared: &[Declared], left: &Left<'_>, now: Instant) -> Vec<Fate> {
        self.begin(now);
        self.forget(mount);
        let mut order: Vec<usize> = (0..declared.len()).collect();
        order.sort_unstable_by_key(|at| declared[*at].place);
        let mut fates = vec![Fate::Lost; declared.len()];
        let (mut spoilt, mut waiting) = (HashSet::new(), BTreeMap::new());
        for at in order {
            let one = &declared[at];
            if let Some(operation) = (left.operation_of)(one.request) {
                fates[at] = Fate::Kept(operation);
                continue;
            }
            if !self.is_over {
                self.seen.insert(one.place);
            }
            let is_lost = self.is_over
                || !(left.is_unchanged_since)(one.since)
                || one.keys.iter().any(|key| spoilt.contains(key) || !self.is_free(mount, *key, one.place));
            if is_lost {
                spoilt.extend(one.keys.iter().copied().filter(|key| is_spoilt(*key)));
            } else {
                waiting.insert(one.request, Waiting { place: one.place, keys: one.keys.clone() });
                fates[at] = Fate::Again;
            }
        }
        if !waiting.is_empty() {
            self.base = left.base;
            self.gathering.get_or_insert(now);
            for one in waiting.values() {
                one.keys.iter().for_each(|key| _ = self.claims.entry(*key).or_default().insert((one.place, mount)));
            }
            self.waiters.insert(mount, Waiter { heard: now, operations: waiting });
        }
        fates
    }

    /// Whether nothing has happened to the thing that forbids an operation of the mount.
    fn is_free(&self, mount: u64, key: u64, place: Place) -> bool {
        let is_later = self.again.get(&key).is_none_or(|last| *last < place) || !is_ordered(key);
        is_later && self.notes.get(&key).is_none_or(|by| *by == Some(mount))
    }

    /// Whether calls may have to wait, or are noted.
    pub(crate) fn is_needed(&self) -> bool {
        !self.is_over || !self.waiters.is_empty()
    }

    /// A mount makes a call, whose names lead to `found` if it moves them. `false`: it has to wait for operations of
    /// others.
    pub(crate) fn may_call(&mut self, mount: u64, call: &Call, found: Files, now: Instant) -> bool {
        let mut keys = used(call);
        keys.extend(files(found));
        self.note(mount, &keys, now)
    }

    /// A call of a mount was carried out. `false`: the answer must not leave, as others have claimed what it shows.
    pub(crate) fn may_answer(&mut self, mount: u64, value: &Value, now: Instant) -> bool {
        self.note(mount, &shown(value), now)
    }

    fn note(&mut self, mount: u64, keys: &[u64], now: Instant) -> bool {
        self.begin(now);
        self.forget_silent(now);
        let is_claimed = |key| self.claims.get(key).is_some_and(|claims| claims.iter().any(|(_, of)| *of != mount));
        let may = !keys.iter().any(is_claimed);
        if self.is_over {
            return may;
        }
        if self.notes.len() + keys.len() > NOTES_MAX {
            self.end_notes();
            return may;
        }
        for key in keys {
            let by = self.notes.entry(*key).or_insert(Some(mount));
            *by = by.filter(|by| *by == mount);
        }
        may
    }

    fn begin(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if !self.is_over && now.duration_since(since) >= NOTES_TIME {
            self.end_notes();
        }
    }

    fn end_notes(&mut self) {
        (self.notes, self.is_over) = (HashMap::new(), true);
    }

    /// Whether it is the turn of an operation that comes again. `adopted`: the lowest number of a file that the
    /// takeover did not leave.
    pub(crate) fn turn(&mut self, tag: Tag, call: &Call, adopted: u64, now: Instant) -> Turn {
        let Tag { mount, request, .. } = tag;
        self.forget_silent(now);
        let gathers = self.gathering.is_some_and(|since| now.duration_since(since) < GATHER) && !self.is_complete();
        let Some(waiter) = self.waiters.get_mut(&mount) else { return Turn::Lost };
        waiter.heard = now;
        let Some(one) = waiter.operations.get(&request) else { return Turn::Lost };
        let is_first = |key| self.claims.get(key).and_then(|claims| claims.first()) == Some(&(one.place, mount));
        if gathers || !one.keys.iter().filter(|key| is_ordered(**key)).all(is_first) {
            return Turn::Later;
        }
        // Another file may have the number of one that is lost.
        let is_there = |ino: &u64| *ino < adopted || self.made.contains(ino);
        if call.files_changed().iter().all(is_there) { Turn::Now } else { Turn::Lost }
    }

    /// Whether each operation that the takeover cut is known, so that no mount is missing.
    fn is_complete(&self) -> bool {
        let (Some(first), Some(last)) = (self.seen.first(), self.seen.last()) else { return true };
        first.0 == last.0 && last.1.checked_sub(self.base) == Some(lodestone_width::to_u64(self.seen.len()))
    }

    /// An operation was carried out again, or was refused. `made`: the file that it made.
    pub(crate) fn ended(&mut self, mount: u64, request: u64, is_done: bool, made: Option<u64>) {
        let Some(waiter) = self.waiters.get_mut(&mount) else { return };
        let Some(one) = waiter.operations.remove(&request) else { return };
        let mut gone = vec![one.clone()];
        if is_done {
            self.made.extend(made);
            for key in &one.keys {
                let last = self.again.entry(*key).or_insert(one.place);
                *last = (*last).max(one.place);
            }
        } else {
            // Later ones on the same have another result without it.
            let mut spoilt: HashSet<u64> = one.keys.iter().copied().filter(|key| is_spoilt(*key)).collect();
            let mut later: Vec<(Place, u64)> = waiter.operations.iter().map(|(at, of)| (of.place, *at)).collect();
            later.sort_unstable();
            for (_, request) in later {
                let Some(of) = waiter.operations.get(&request) else { continue };
                if of.keys.iter().any(|key| spoilt.contains(key)) {
                    spoilt.extend(of.keys.iter().copied().filter(|key| is_spoilt(*key)));
                    gone.extend(waiter.operations.remove(&request));
                }
            }
        }
        if waiter.operations.is_empty() {
            self.waiters.remove(&mount);
        }
        gone.iter().for_each(|one| self.unclaim(mount, one));
        if self.is_over && self.waiters.is_empty() {
            // Nothing comes back any more.
            (self.made, self.again, self.seen) = Default::default();
        }
    }

    fn unclaim(&mut self, mount: u64, one: &Waiting) {
        for key in &one.keys {
            if let Some(claims) = self.claims.get_mut(key) {
                claims.remove(&(one.place, mount));
                if claims.is_empty() {
                    self.claims.remove(key);
                }
            }
        }
    }

    /// A mount is gone, or declares anew.
    pub(crate) fn forget(&mut self, mount: u64) {
        let waiter = self.waiters.remove(&mount);
        waiter.iter().flat_map(|waiter| waiter.operations.values()).for_each(|one| self.unclaim(mount, one));
    }

    fn forget_silent(&mut self, now: Instant) {
        if self.waiters.is_empty() {
            return;
        }
        let silent = self.waiters.iter().filter(|(_, waiter)| now.duration_since(waiter.heard) >= SILENCE);
        let silent: Vec<u64> = silent.map(|(mount, _)| *mount).collect();
        for mount in silent {
            tracing::warn!("mount {mount:016x} is silent: its operations that a takeover lost do not come back");
            self.forget(mount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Caller;
    use crate::inode::ROOT;
    use crate::names::RenameMode;

    /// A new file takes the place of an old one. Its content does not come back, because somebody has read the file, so
    /// the old one stays.
    #[test]
    fn a_rename_is_lost_with_the_content_of_the_file() {
        let (by, new, old) = (Caller::root(), 9, 8);
        let write = Call::Write { by: by.clone(), ino: new, offset: 0, bytes: vec![1] };
        let (from, to) = ((ROOT, b"new".to_vec()), (ROOT, b"old".to_vec()));
        let rename = Call::Rename { by: by.clone(), from, to, mode: RenameMode::Replace };
        let other = Call::Remove { by, parent: ROOT, name: b"c".to_vec(), is_folder: false };
        let calls = [(write, Files::default()), (rename, [new, old]), (other, [7, 0])];
        let declared = |(request, (call, files)): (u64, &(Call, Files))| Declared {
            request,
            place: (1, request),
            since: 1,
            keys: changed(call, *files),
        };
        let declared: Vec<Declared> = (1..).zip(&calls).map(declared).collect();
        let left = Left { base: 0, operation_of: &|_| None, is_unchanged_since: &|_| true };
        let (mut replays, now) = (Replays::default(), Instant::now());
        assert_eq!(replays.declare(1, &declared, &left, now), [Fate::Again; 3]);
        let mut replays = Replays::default();
        assert!(replays.may_call(2, &Call::Read { ino: new, offset: 0, count: 9 }, Files::default(), now));
        assert_eq!(replays.declare(1, &declared, &left, now), [Fate::Lost, Fate::Lost, Fate::Again]);
    }
}
