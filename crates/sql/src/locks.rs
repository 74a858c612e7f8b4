//! Locks of transactions and sessions, in DRAM: on rows, on tables, and on the numbers of users (advisory locks).
//!
//! A change of a row takes the lock of its key first. So a transaction that comes second waits, reads the newest
//! version and goes on, instead of meeting a conflict at its commit. The locks are comfort: the engine validates
//! every commit, also against users of the library, who take none.
//!
//! 1. A lock has owners, each with the [modes](Mode) in which it has it, and a queue. Modes that conflict are not held
//!    by two owners. The tables of conflicts are `PostgreSQL`'s.
//! 2. When an owner ends, those of the queue become owners, in their order, as far as none of them conflicts with an
//!    owner or with one before it that still waits. They are woken.
//! 3. Who comes later does not pass one that waits and conflicts with it; on rows it does, as in `PostgreSQL`. An owner
//!    that asks for more waits before those that wait for it.
//! 4. No thread waits here: who does not get a lock is told so, undoes its statement, and runs it again when it is
//!    woken.
//! 5. An owner waits for one lock at a time. One that would wait for itself over others is refused (40P01).
//! 6. Reads and changes lock their table in modes that conflict with LOCK TABLE and definitions alone. They note that
//!    in a list of their session, and look whether there is a strong lock at all. Who takes a strong lock makes itself
//!    known first, and then moves the notes of all sessions here. Of two that come together one sees the other: both
//!    use the list under its mutex, the one after its note, the other after its announcement.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use lodestone_pmem::planted;
use lodestone_sql_types::{Error, Result, SqlState};

/// The row that is locked: the number of its table, and the bytes of its key. Without bytes it is the table itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockKey {
    pub table: u32,
    pub key: Vec<u8>,
}

/// In place of the number of a table: the key is a number of users.
const ADVISORY: u32 = u32::MAX - 1;

impl LockKey {
    /// The lock of a table.
    pub fn table(table: u32) -> Self {
        Self { table, key: Vec::new() }
    }

    /// The lock of a number, or of two shorter ones: these are other locks.
    pub fn advisory(number: i64, is_pair: bool) -> Self {
        let key = number.to_be_bytes().into_iter().chain([u8::from(is_pair)]).collect();
        Self { table: ADVISORY, key }
    }

    /// The number of users, and whether it is of two.
    pub fn as_advisory(&self) -> Option<(i64, bool)> {
        let (number, rest) = self.key.split_first_chunk()?;
        (self.table == ADVISORY).then_some((i64::from_be_bytes(*number), rest == [1]))
    }

    /// The word for what it is of. A row is waited for as the transaction that has it.
    pub fn kind(&self) -> &'static str {
        match self.as_advisory() {
            Some(_) => "advisory",
            None if self.is_table() => "relation",
            None => "transactionid",
        }
    }

    /// Whether it is that of a table.
    pub fn is_table(&self) -> bool {
        self.key.is_empty()
    }

    /// Whether one that comes later waits for one that waits.
    fn has_turns(&self) -> bool {
        self.is_table() || self.table == ADVISORY
    }
}

/// The way in which a lock is held. The first eight are of tables. Numbers use `Share` and `Exclusive` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
    /// Of rows, the weakest first: the key of the row stays.
    KeyShareRow,
    ShareRow,
    /// The row may change, its key stays.
    NoKeyUpdateRow,
    UpdateRow,
}

impl Mode {
    pub const TABLE: [Self; 8] = [
        Self::AccessShare,
        Self::RowShare,
        Self::RowExclusive,
        Self::ShareUpdateExclusive,
        Self::Share,
        Self::ShareRowExclusive,
        Self::Exclusive,
        Self::AccessExclusive,
    ];

    const ROW: [Self; 4] = [Self::KeyShareRow, Self::ShareRow, Self::NoKeyUpdateRow, Self::UpdateRow];

    /// Its name in messages and in `pg_locks`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AccessShare => "AccessShareLock",
            Self::RowShare => "RowShareLock",
            Self::RowExclusive => "RowExclusiveLock",
            Self::ShareUpdateExclusive => "ShareUpdateExclusiveLock",
            Self::Share | Self::KeyShareRow | Self::ShareRow => "ShareLock",
            Self::ShareRowExclusive => "ShareRowExclusiveLock",
            Self::Exclusive | Self::NoKeyUpdateRow | Self::UpdateRow => "ExclusiveLock",
            Self::AccessExclusive => "AccessExclusiveLock",
        }
    }

    /// The modes that no other owner may have beside it.
    pub fn conflicts(self) -> Modes {
        use Mode as M;
        let of = |modes: &[M]| modes.iter().fold(Modes::NONE, |all, mode| all.with(*mode));
        match self {
            M::AccessShare => of(&[M::AccessExclusive]),
            M::RowShare => of(&[M::Exclusive, M::AccessExclusive]),
            M::RowExclusive => of(&[M::Share, M::ShareRowExclusive, M::Exclusive, M::AccessExclusive]),
            M::ShareUpdateExclusive => of(&M::TABLE[3..]),
            M::Share => of(&[M::RowExclusive, M::ShareUpdateExclusive]).and(of(&M::TABLE[5..])),
            M::ShareRowExclusive => of(&M::TABLE[2..]),
            M::Exclusive => of(&M::TABLE[1..]),
            M::AccessExclusive => of(&M::TABLE),
            M::KeyShareRow => of(&[M::UpdateRow]),
            M::ShareRow => of(&[M::NoKeyUpdateRow, M::UpdateRow]),
            M::NoKeyUpdateRow => of(&M::ROW[1..]),
            M::UpdateRow => of(&M::ROW),
        }
    }

    /// Whether it conflicts with what reads and changes of rows take.
    fn is_strong(self) -> bool {
        matches!(self, Self::Share | Self::ShareRowExclusive | Self::Exclusive | Self::AccessExclusive)
    }
}

/// Several modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes(u16);

impl Modes {
    pub const NONE: Self = Self(0);

    const fn bit(mode: Mode) -> u16 {
        match mode {
            Mode::AccessShare => 1,
            Mode::RowShare => 1 << 1,
            Mode::RowExclusive => 1 << 2,
            Mode::ShareUpdateExclusive => 1 << 3,
            Mode::Share => 1 << 4,
            Mode::ShareRowExclusive => 1 << 5,
            Mode::Exclusive => 1 << 6,
            Mode::AccessExclusive => 1 << 7,
            Mode::KeyShareRow => 1 << 8,
            Mode::ShareRow => 1 << 9,
            Mode::NoKeyUpdateRow => 1 << 10,
            Mode::UpdateRow => 1 << 11,
        }
    }

    pub const fn of(mode: Mode) -> Self {
        Self(Self::bit(mode))
    }

    #[must_use]
    pub const fn with(self, mode: Mode) -> Self {
        Self(self.0 | Self::bit(mode))
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn contains(self, mode: Mode) -> bool {
        self.0 & Self::bit(mode) != 0
    }

    /// Whether an owner with these modes needs no other one for `mode`.
    pub fn covers(self, mode: Mode) -> bool {
        let stronger = Mode::ROW.iter().filter(|row| **row >= mode && Mode::ROW.contains(&mode));
        self.contains(mode) || stronger.into_iter().any(|row| self.contains(*row))
    }

    pub fn iter(self) -> impl Iterator<Item = Mode> {
        Mode::TABLE.into_iter().chain(Mode::ROW).filter(move |mode| self.contains(*mode))
    }

    fn strong_count(self) -> usize {
        self.iter().filter(|mode| mode.is_strong()).count()
    }
}

/// A session, by a number that no other one has.
pub type Owner = u64;

#[derive(Debug, Default)]
struct Lock {
    owners: Vec<(Owner, Modes)>,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    owner: Owner,
    mode: Mode,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    locks: HashMap<LockKey, Lock>,
    waits: HashMap<Owner, (LockKey, Mode)>,
}

/// The tables that a session has locked in weak modes.
#[derive(Debug, Default)]
pub struct WeakList(Mutex<Vec<(u32, Modes)>>);

impl WeakList {
    fn list(&self) -> MutexGuard<'_, Vec<(u32, Modes)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes modes of a table out. Returns those that were there.
    fn take(&self, table: u32, modes: Modes) -> Modes {
        let mut list = self.list();
        let Some(place) = list.iter().position(|(other, _)| *other == table) else { return Modes::NONE };
        let there = Modes(list[place].1.0 & modes.0);
        list[place].1 = list[place].1.without(modes);
        if list[place].1.is_empty() {
            list.swap_remove(place);
        }
        there
    }
}

/// A lock, as `pg_locks` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownLock {
    pub owner: Owner,
    pub key: LockKey,
    pub mode: Mode,
    pub is_granted: bool,
    /// It is in the list of its session.
    pub is_weak: bool,
}

/// All locks of a database.
#[derive(Debug, Default)]
pub struct Locks {
    state: Mutex<State>,
    /// How many strong locks of tables there are, or are waited for.
    strong: AtomicUsize,
    weak: Mutex<HashMap<Owner, Arc<WeakList>>>,
}

impl Locks {
    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic in a change of the table the server stops: see `is_broken`.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<Owner, Arc<WeakList>>> {
        self.weak.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread has panicked while it changed them.
    pub fn is_broken(&self) -> bool {
        self.state.is_poisoned() || self.weak.is_poisoned()
    }

    /// A session begins. It has this list until [`leave`](Self::leave).
    pub fn enter(&self, owner: Owner) -> Arc<WeakList> {
        self.lists().entry(owner).or_default().clone()
    }

    /// A session ends, without any lock.
    pub fn leave(&self, owner: Owner) {
        self.lists().remove(&owner);
    }

    /// Whether a table may be locked in a way that reads and changes of rows must wait for.
    pub fn has_strong(&self) -> bool {
        self.strong.load(Ordering::SeqCst) > 0
    }

    /// Takes the lock for `owner`. `false`: another one has it or comes first, and `waker` is woken when it is free.
    ///
    /// # Errors
    /// 40P01 when the wait would never end.
    pub fn acquire(&self, owner: Owner, key: &LockKey, mode: Mode, waker: &Waker) -> Result<bool> {
        self.announce(key, mode, |state| state.take(owner, key, mode, Some(waker)))
    }

    /// Takes the lock for `owner` if it need not wait.
    pub fn acquire_now(&self, owner: Owner, key: &LockKey, mode: Mode) -> bool {
        self.announce(key, mode, |state| state.take(owner, key, mode, None)).unwrap_or(false)
    }

    /// Takes a lock. Before a strong one, the notes of all sessions become locks.
    fn announce(&self, key: &LockKey, mode: Mode, take: impl FnOnce(&mut State) -> Result<Taken>) -> Result<bool> {
        let is_strong = key.is_table() && mode.is_strong();
        if is_strong {
            // Before the lists are read: see step 6.
            self.strong.fetch_add(1, Ordering::SeqCst);
        }
        let mut state = self.state();
        assert!(!planted::active("sql-lock-panics"), "planted");
        if is_strong {
            let lists: Vec<(Owner, Arc<WeakList>)> =
                self.lists().iter().map(|(owner, list)| (*owner, list.clone())).collect();
            for (owner, list) in lists {
                let modes = list.take(key.table, Modes(u16::MAX));
                if !modes.is_empty() {
                    state.add(owner, key, modes);
                }
            }
        }
        let taken = take(&mut state);
        // One that has the lock already, waits for it already, or does not get it counts no more.
        if is_strong && !matches!(taken, Ok(Taken::New | Taken::Waits { is_new: true })) {
            self.strong.fetch_sub(1, Ordering::SeqCst);
        }
        taken.map(|taken| matches!(taken, Taken::New | Taken::Had))
    }

    /// Locks a table in a weak mode. `false`: as for [`acquire`](Self::acquire).
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_weak(&self, owner: Owner, list: &WeakList, table: u32, mode: Mode, waker: &Waker) -> Result<bool> {
        {
            let mut list = list.list();
            match list.iter_mut().find(|(other, _)| *other == table) {
                Some((_, modes)) => *modes = modes.with(mode),
                None => list.push((table, Modes::of(mode))),
            }
        }
        if !self.has_strong() && !planted::active("sql-weak-unseen") {
            return Ok(true);
        }
        if list.take(table, Modes::of(mode)).is_empty() {
            // One that takes a strong lock has made a lock of the note.
            return Ok(true);
        }
        self.acquire(owner, &LockKey::table(table), mode, waker)
    }

    /// Ends locks of `owner`.
    pub fn release(&self, owner: Owner, held: impl IntoIterator<Item = (LockKey, Modes)>) {
        let mut woken = Vec::new();
        {
            let mut state = self.state();
            for (key, modes) in held {
                self.release_one(&mut state, owner, &key, modes, &mut woken);
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends weak locks of `owner`: those of its list, and those that were made locks of it.
    pub fn release_weak(&self, owner: Owner, list: &WeakList, held: &[(u32, Modes)]) {
        let moved = held.iter().filter_map(|(table, modes)| {
            let rest = modes.without(list.take(*table, *modes));
            (!rest.is_empty()).then(|| (LockKey::table(*table), rest))
        });
        let moved: Vec<_> = moved.collect();
        if !moved.is_empty() {
            self.release(owner, moved);
        }
    }

    /// Ends the wait of `owner`. A lock that became its own meanwhile stays.
    pub fn stop_waiting(&self, owner: Owner) {
        let mut woken = Vec::new();
        {
            let mut state = self.state();
            if let Some((key, mode)) = state.stop_waiting(owner, &mut woken)
                && key.is_table()
                && mode.is_strong()
            {
                self.strong.fetch_sub(1, Ordering::SeqCst);
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    fn release_one(&self, state: &mut State, owner: Owner, key: &LockKey, modes: Modes, woken: &mut Vec<Waker>) {
        let Some(lock) = state.locks.get_mut(key) else { return };
        let Some(place) = lock.owners.iter().position(|(other, _)| *other == owner) else { return };
        let had = Modes(lock.owners[place].1.0 & modes.0);
        lock.owners[place].1 = lock.owners[place].1.without(modes);
        if lock.owners[place].1.is_empty() {
            lock.owners.swap_remove(place);
        }
        if key.is_table() {
            self.strong.fetch_sub(had.strong_count(), Ordering::SeqCst);
        }
        grant(lock, &mut state.waits, woken);
        if lock.owners.is_empty() && lock.queue.is_empty() {
            state.locks.remove(key);
        }
    }

    /// Whether `owner` waits for a lock.
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.state().waits.contains_key(&owner)
    }

    /// The lock that `owner` waits for.
    pub fn wait_of(&self, owner: Owner) -> Option<LockKey> {
        self.state().waits.get(&owner).map(|(key, _)| key.clone())
    }

    /// Whether `owner` waits no more: the lock is its own.
    pub fn is_granted(&self, owner: Owner) -> bool {
        !self.is_waiting(owner)
    }

    /// The owners for which `owner` waits.
    pub fn blockers(&self, owner: Owner) -> Vec<Owner> {
        let state = self.state();
        let Some((key, mode)) = state.waits.get(&owner) else { return Vec::new() };
        let mut found = state.before(key, owner, *mode);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// All locks of tables and numbers, and all waits.
    pub fn shown(&self) -> Vec<ShownLock> {
        let mut found = Vec::new();
        let state = self.state();
        for (key, lock) in &state.locks {
            let is_shown = key.has_turns();
            for (owner, modes) in lock.owners.iter().filter(|_| is_shown) {
                let of = |mode| ShownLock { owner: *owner, key: key.clone(), mode, is_granted: true, is_weak: false };
                found.extend(modes.iter().map(of));
            }
            found.extend(lock.queue.iter().map(|waiter| ShownLock {
                owner: waiter.owner,
                key: key.clone(),
                mode: waiter.mode,
                is_granted: false,
                is_weak: false,
            }));
        }
        let lists: Vec<(Owner, Arc<WeakList>)> =
            self.lists().iter().map(|(owner, list)| (*owner, list.clone())).collect();
        for (owner, list) in lists {
            for (table, modes) in list.list().iter() {
                let key = LockKey::table(*table);
                let of = |mode| ShownLock { owner, key: key.clone(), mode, is_granted: true, is_weak: true };
                found.extend(modes.iter().map(of));
            }
        }
        found
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    New,
    /// The owner had it, or something stronger.
    Had,
    Waits {
        is_new: bool,
    },
    /// It is not free, and is not waited for.
    Busy,
}

impl State {
    /// The owner has these modes now.
    fn add(&mut self, owner: Owner, key: &LockKey, modes: Modes) {
        let lock = self.locks.entry(key.clone()).or_default();
        match lock.owners.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, own)) => *own = own.and(modes),
            None => lock.owners.push((owner, modes)),
        }
    }

    /// `waker`: the owner waits if it must.
    fn take(&mut self, owner: Owner, key: &LockKey, mode: Mode, waker: Option<&Waker>) -> Result<Taken> {
        let Some(lock) = self.locks.get_mut(key) else {
            self.add(owner, key, Modes::of(mode));
            return Ok(Taken::New);
        };
        let own = lock.modes_of(owner);
        if own.covers(mode) {
            return Ok(Taken::Had);
        }
        let place = lock.turn_of(owner, own);
        let is_first = !key.has_turns() || !lock.has_conflict_before(place, owner, mode);
        if is_first && !lock.has_conflict(owner, mode) {
            self.add(owner, key, Modes::of(mode));
            return Ok(Taken::New);
        }
        let Some(waker) = waker else { return Ok(Taken::Busy) };
        if let Some(holder) = self.circle(owner, key, mode) {
            return Err(Error::new(SqlState::DEADLOCK_DETECTED, "deadlock detected")
                .detail(format!("Session {owner} waits for {} of session {holder}, which waits for it.", mode.name()))
                .hint("Run the transaction again."));
        }
        let before = self.waits.insert(owner, (key.clone(), mode));
        let Some(lock) = self.locks.get_mut(key) else { return Ok(Taken::Busy) };
        match lock.queue.iter_mut().find(|waiter| waiter.owner == owner) {
            Some(waiter) => (waiter.mode, waiter.waker) = (mode, waker.clone()),
            None => lock.queue.insert(place, Waiter { owner, mode, waker: waker.clone() }),
        }
        Ok(Taken::Waits { is_new: before.is_none() })
    }

    /// The owner leaves the queue that it is in. Returns what it waited for.
    fn stop_waiting(&mut self, owner: Owner, woken: &mut Vec<Waker>) -> Option<(LockKey, Mode)> {
        let (key, mode) = self.waits.remove(&owner)?;
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.queue.retain(|waiter| waiter.owner != owner);
            grant(lock, &mut self.waits, woken);
            if lock.owners.is_empty() && lock.queue.is_empty() {
                self.locks.remove(&key);
            }
        }
        Some((key, mode))
    }

    /// The owners for which `owner` waits, or would: those that have the lock, and those that come first.
    fn before(&self, key: &LockKey, owner: Owner, mode: Mode) -> Vec<Owner> {
        let Some(lock) = self.locks.get(key) else { return Vec::new() };
        let wanted = mode.conflicts();
        let owners = lock.owners.iter().filter(|(other, modes)| *other != owner && modes.meets(wanted));
        let mut found: Vec<Owner> = owners.map(|(other, _)| *other).collect();
        let own_place = lock.queue.iter().position(|waiter| waiter.owner == owner);
        let place = own_place.unwrap_or_else(|| lock.turn_of(owner, lock.modes_of(owner)));
        if key.has_turns() || own_place.is_some() {
            let first = lock.queue.iter().take(place).filter(|waiter| wanted.contains(waiter.mode));
            found.extend(first.map(|waiter| waiter.owner));
        }
        found
    }

    /// One for which `owner` would wait and that waits for it, over others perhaps.
    fn circle(&self, owner: Owner, key: &LockKey, mode: Mode) -> Option<Owner> {
        // Owners that were looked at do not lead back. A hot row has a long queue, so each is looked at once.
        let mut seen = HashSet::new();
        for start in self.before(key, owner, mode) {
            let mut next = vec![start];
            while let Some(holder) = next.pop() {
                if holder == owner {
                    return Some(start);
                }
                if let Some((key, mode)) = self.waits.get(&holder).filter(|_| seen.insert(holder)) {
                    next.extend(self.before(key, holder, *mode));
                }
            }
        }
        None
    }
}

impl Lock {
    fn modes_of(&self, owner: Owner) -> Modes {
        self.owners.iter().find(|(other, _)| *other == owner).map_or(Modes::NONE, |(_, modes)| *modes)
    }

    fn has_conflict(&self, owner: Owner, mode: Mode) -> bool {
        let wanted = mode.conflicts();
        self.owners.iter().any(|(other, modes)| *other != owner && modes.meets(wanted))
    }

    /// The place in the queue of an owner with these modes: before the first one that waits for it.
    fn turn_of(&self, owner: Owner, own: Modes) -> usize {
        let waits_for_it = |waiter: &Waiter| waiter.owner != owner && waiter.mode.conflicts().meets(own);
        self.queue.iter().position(waits_for_it).unwrap_or(self.queue.len())
    }

    fn has_conflict_before(&self, place: usize, owner: Owner, mode: Mode) -> bool {
        let wanted = mode.conflicts();
        self.queue.iter().take(place).any(|waiter| waiter.owner != owner && wanted.contains(waiter.mode))
    }
}

/// Those of the queue become owners, as far as they can.
fn grant(lock: &mut Lock, waits: &mut HashMap<Owner, (LockKey, Mode)>, woken: &mut Vec<Waker>) {
    let (mut place, mut ahead) = (0, Modes::NONE);
    while let Some(Waiter { owner, mode, .. }) = lock.queue.get(place) {
        let (owner, mode) = (*owner, *mode);
        if lock.has_conflict(owner, mode) || ahead.meets(mode.conflicts()) {
            ahead = ahead.with(mode);
            place += 1;
            continue;
        }
        let Some(waiter) = lock.queue.remove(place) else { return };
        match lock.owners.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, own)) => *own = own.with(mode),
            None => lock.owners.push((owner, Modes::of(mode))),
        }
        waits.remove(&owner);
        woken.push(waiter.waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> LockKey {
        LockKey { table: 1, key: vec![number] }
    }

    fn all_of(number: u8, mode: Mode) -> [(LockKey, Modes); 1] {
        [(key(number), Modes::of(mode))]
    }

    const UPDATE: Mode = Mode::UpdateRow;

    #[test]
    fn conflicts_are_as_in_postgresql() {
        // Table 13.2 of its documentation: a letter for each pair of modes, from ACCESS SHARE on.
        let expected = [".......#", "......##", "....####", "...#####", "..##.###", "..######", ".#######", "########"];
        let found = Mode::TABLE.map(|one| {
            Mode::TABLE.iter().map(|two| if one.conflicts().contains(*two) { '#' } else { '.' }).collect::<String>()
        });
        assert_eq!(found, expected);
        // Table 13.3, from FOR KEY SHARE on.
        let rows = Mode::ROW.map(|one| {
            Mode::ROW.iter().map(|two| if one.conflicts().contains(*two) { '#' } else { '.' }).collect::<String>()
        });
        assert_eq!(rows, ["...#", "..##", ".###", "####"]);
        for one in Mode::TABLE.into_iter().chain(Mode::ROW) {
            for two in Mode::TABLE.into_iter().chain(Mode::ROW) {
                assert_eq!(one.conflicts().contains(two), two.conflicts().contains(one), "{one:?} {two:?}");
            }
        }
    }

    #[test]
    fn the_first_of_the_queue_is_next() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        assert!(locks.acquire(1, &key(0), UPDATE, waker)?);
        assert!(locks.acquire(1, &key(0), UPDATE, waker)?, "again by its owner");
        assert!(!locks.acquire(2, &key(0), UPDATE, waker)?);
        assert!(!locks.acquire(3, &key(0), UPDATE, waker)?);
        assert!(!locks.is_granted(2));
        assert_eq!(locks.blockers(3), [1, 2]);
        locks.release(1, all_of(0, UPDATE));
        assert!(locks.is_granted(2) && !locks.is_granted(3));
        assert!(locks.acquire(2, &key(0), UPDATE, waker)?);
        locks.stop_waiting(3);
        locks.release(2, all_of(0, UPDATE));
        assert!(locks.acquire(4, &key(0), UPDATE, waker)?, "no owner waits any more");
        Ok(())
    }

    #[test]
    fn a_lock_is_shared_until_it_is_taken_alone() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        let (table, shared) = (LockKey::table(7), Modes::of(Mode::Share));
        let both = [(table.clone(), shared)];
        assert!(locks.acquire(1, &table, Mode::Share, waker)? && locks.acquire(2, &table, Mode::Share, waker)?);
        assert!(!locks.acquire(3, &table, Mode::Exclusive, waker)?);
        assert!(!locks.acquire(4, &table, Mode::Share, waker)?, "the one before it is not passed");
        assert!(!locks.acquire_now(5, &table, Mode::Share));
        locks.release(1, both.clone());
        assert!(!locks.is_granted(3));
        locks.release(2, both.clone());
        assert!(locks.is_granted(3) && !locks.is_granted(4));
        locks.release(3, [(table.clone(), Modes::of(Mode::Exclusive))]);
        assert!(locks.is_granted(4) && locks.acquire(5, &table, Mode::Share, waker)?);
        // Of two that share it, only one can wait for it alone.
        assert!(!locks.acquire(4, &table, Mode::Exclusive, waker)?);
        let found = locks.acquire(5, &table, Mode::Exclusive, waker).expect_err("each would wait for the other");
        assert_eq!(found.state(), SqlState::DEADLOCK_DETECTED);
        assert!(locks.has_strong());
        locks.release(5, both.clone());
        assert!(locks.is_granted(4) && locks.acquire(4, &table, Mode::Exclusive, waker)?);
        locks.release(4, [(table, shared.with(Mode::Exclusive))]);
        assert!(!locks.has_strong() && locks.shown().is_empty());
        Ok(())
    }

    #[test]
    fn rows_are_passed_and_owners_come_first() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        assert!(locks.acquire(1, &key(0), Mode::KeyShareRow, waker)?);
        assert!(!locks.acquire(2, &key(0), UPDATE, waker)?);
        assert!(locks.acquire(3, &key(0), Mode::KeyShareRow, waker)?, "it passes the one that waits");
        assert!(locks.acquire(3, &key(0), Mode::NoKeyUpdateRow, waker)?);
        assert!(locks.acquire(3, &key(0), Mode::ShareRow, waker)?, "it has a stronger one");
        locks.release(1, all_of(0, Mode::KeyShareRow));
        assert!(!locks.is_granted(2));
        locks.release(3, [(key(0), Modes::of(Mode::KeyShareRow).with(Mode::NoKeyUpdateRow))]);
        assert!(locks.is_granted(2));
        // An owner that asks for more does not wait for those that wait for it.
        let table = LockKey::table(7);
        assert!(locks.acquire(1, &table, Mode::RowExclusive, waker)?);
        assert!(!locks.acquire(2, &table, Mode::AccessExclusive, waker)?);
        assert!(locks.acquire(1, &table, Mode::ShareUpdateExclusive, waker)?);
        assert_eq!(locks.blockers(2), [1]);
        Ok(())
    }

    #[test]
    fn a_circle_is_refused() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        let advisory = LockKey::advisory(3, false);
        assert!(locks.acquire(1, &key(1), UPDATE, waker)?);
        assert!(locks.acquire(2, &LockKey::table(7), Mode::Exclusive, waker)?);
        assert!(locks.acquire(3, &advisory, Mode::Exclusive, waker)?);
        assert!(!locks.acquire(1, &LockKey::table(7), Mode::RowExclusive, waker)?);
        assert!(!locks.acquire(2, &advisory, Mode::Share, waker)?);
        let found = locks.acquire(3, &key(1), UPDATE, waker).expect_err("1 waits for 2, 2 for 3, 3 for 1");
        assert_eq!(found.state(), SqlState::DEADLOCK_DETECTED);
        // The refused one ends, and the others go on one after another.
        locks.release(3, [(advisory, Modes::of(Mode::Exclusive))]);
        assert!(locks.is_granted(2) && !locks.is_granted(1));
        locks.release(2, [(LockKey::table(7), Modes::of(Mode::Exclusive))]);
        assert!(locks.is_granted(1));
        Ok(())
    }

    #[test]
    fn weak_locks_of_tables_are_seen_by_strong_ones() -> Result<()> {
        let (locks, waker) = (Locks::default(), Waker::noop());
        let (one, two) = (locks.enter(1), locks.enter(2));
        let table = LockKey::table(7);
        assert!(locks.acquire_weak(1, &one, 7, Mode::RowExclusive, waker)?);
        assert_eq!(locks.shown().iter().map(|lock| (lock.owner, lock.is_weak)).collect::<Vec<_>>(), [(1, true)]);
        assert!(!locks.acquire(3, &table, Mode::Share, waker)?);
        // From here on the table of locks is used.
        assert!(locks.acquire_weak(2, &two, 7, Mode::AccessShare, waker)?);
        assert!(!locks.acquire_weak(2, &two, 7, Mode::RowExclusive, waker)?);
        assert_eq!(locks.blockers(2), [3]);
        locks.release_weak(1, &one, &[(7, Modes::of(Mode::RowExclusive))]);
        assert!(locks.is_granted(3) && !locks.is_granted(2));
        locks.release(3, [(table, Modes::of(Mode::Share))]);
        assert!(locks.is_granted(2) && !locks.has_strong());
        locks.release_weak(2, &two, &[(7, Modes::of(Mode::AccessShare).with(Mode::RowExclusive))]);
        assert!(locks.shown().is_empty());
        Ok(())
    }

    #[test]
    fn a_strong_lock_beside_weak_ones_is_never_held_with_them() {
        let locks = Arc::new(Locks::default());
        let inside = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let run = |owner: Owner, is_strong: bool| {
            let (locks, inside) = (locks.clone(), inside.clone());
            std::thread::spawn(move || {
                let list = locks.enter(owner);
                for _ in 0..500 {
                    let mode = if is_strong { Mode::Share } else { Mode::RowExclusive };
                    let is_held = match is_strong {
                        true => locks.acquire(owner, &LockKey::table(7), mode, Waker::noop()),
                        false => locks.acquire_weak(owner, &list, 7, mode, Waker::noop()),
                    };
                    while !is_held.as_ref().is_ok_and(|held| *held) && !locks.is_granted(owner) {
                        std::thread::yield_now();
                    }
                    inside[usize::from(is_strong)].fetch_add(1, Ordering::SeqCst);
                    let others = inside[usize::from(!is_strong)].load(Ordering::SeqCst);
                    inside[usize::from(is_strong)].fetch_sub(1, Ordering::SeqCst);
                    match is_strong {
                        true => locks.release(owner, [(LockKey::table(7), Modes::of(mode))]),
                        false => locks.release_weak(owner, &list, &[(7, Modes::of(mode))]),
                    }
                    assert_eq!(others, 0);
                }
            })
        };
        let threads = [run(1, false), run(2, false), run(3, true), run(4, true)];
        threads.into_iter().for_each(|thread| thread.join().expect("no conflict is held"));
        assert!(!locks.has_strong() && locks.shown().is_empty());
    }
}
