//! The word protocols under weak memory order: loom runs every execution that the memory model allows.
//!
//! The code under test works on mapped memory. Its words are atomics with the orders of [`lodestone_pmem::Memory`]:
//! loads acquire, stores release, compare-and-exchange does both. The models use the real [`VersionWord`] on loom's
//! atomics, in the same steps. Each model runs once as it is, and once with each rule broken: a model that cannot fail
//! shows nothing.
//!
//! | model | steps of | broken rules that are caught |
//! | --- | --- | --- |
//! | a copy between two looks | `stm` `tx.rs` (read), `commit.rs` | no second look; a look at slot and state alone; relaxed copies; relaxed slot stores |
//! | a copy of the older version | `stm` `snapshot.rs`, `commit.rs` | no second look; slots before the lock |
//! | lock, then validate | `stm` `commit.rs` | no fence between them (processors that need one) |
//! | a new object is locked by a store | `stm` `commit.rs` | no fence after it |
//! | a new object, and a snapshot begins | `stm` `commit.rs`, `txn` `epochs.rs` | no fence after the store |
//! | a validated object is of the epoch or later | `stm` `commit.rs` | no fence between epoch and validation (processors that need one) |
//! | a snapshot begins | `txn` `epochs.rs`, `stm` `snapshot.rs` | no fence after the epoch has changed; none after the mark |
//! | an overwriter finds the snapshot | `txn` `epochs.rs`, `stm` `side.rs` | published after the epoch; relaxed epoch; relaxed lock |
//!
//! `cargo test -p lodestone-txn --features loom --test weak_memory`

use std::panic::{AssertUnwindSafe, catch_unwind};

use lodestone_txn::{State, Tick, VersionWord, Which, Writer};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

/// Payload words of a slot.
const WORDS: usize = 2;

fn live(tick: u64) -> VersionWord {
    let slot = if tick.is_multiple_of(2) { Which::First } else { Which::Second };
    VersionWord::new(Tick(tick), Writer::default(), slot, State::Live)
}

/// The rule that a run of a model breaks; `""` if none.
type Broken = &'static str;

/// An object: version `n` has `n` in every payload word.
struct Object {
    word: AtomicU64,
    slots: [[AtomicU64; WORDS]; 2],
}

impl Object {
    fn new() -> Self {
        // Version 2 in the first slot, version 1 in the second.
        let slot = |tick| std::array::from_fn(|_| AtomicU64::new(tick));
        Self { word: AtomicU64::new(live(2).to_raw()), slots: [slot(2), slot(1)] }
    }

    /// Commits version `tick`. No other thread commits meanwhile.
    fn commit(&self, tick: u64, broken: Broken) {
        let seen = live(tick - 1);
        let lock = || {
            let locked = seen.locked().to_raw();
            self.word.compare_exchange(seen.to_raw(), locked, Ordering::AcqRel, Ordering::Acquire).expect("one writer");
        };
        let order = if broken == "relaxed slot stores" { Ordering::Relaxed } else { Ordering::Release };
        let write = || self.slots[seen.slot().other().index() as usize].iter().for_each(|word| word.store(tick, order));
        if broken == "slots before the lock" {
            write();
            lock();
        } else {
            lock();
            write();
        }
        self.word.store(live(tick).to_raw(), Ordering::Release);
    }

    /// One look, a copy of the newest version or of the one before it, then another look. Returns the newest version
    /// and the copied payload if the looks agree.
    fn read(&self, older: bool, broken: Broken) -> Option<(VersionWord, [u64; WORDS])> {
        let first = VersionWord::from_raw(self.word.load(Ordering::Acquire));
        if !first.is_live() {
            return None;
        }
        let order = if broken == "relaxed copies" { Ordering::Relaxed } else { Ordering::Acquire };
        let which = if older { first.slot().other() } else { first.slot() };
        let slot = &self.slots[which.index() as usize];
        let copy = std::array::from_fn(|number| slot[number].load(order));
        let again = VersionWord::from_raw(self.word.load(Ordering::Acquire));
        let same = match broken {
            "no second look" => true,
            "slot and state alone" => again.slot() == first.slot() && again.state() == first.state(),
            _ => again == first,
        };
        same.then_some((first, copy))
    }
}

/// A reader copies words while a writer overwrites the other slot, and then the one that is read.
fn a_copy_between_two_looks(broken: Broken) {
    let object = Arc::new(Object::new());
    let writer = thread::spawn({
        let object = Arc::clone(&object);
        move || {
            object.commit(3, broken);
            object.commit(4, broken);
        }
    });
    if let Some((version, copy)) = object.read(false, broken) {
        assert_eq!(copy, [version.tick_bits(); WORDS], "a mixture, or another version than the word says");
    }
    writer.join().expect("no panic");
}

/// A snapshot copies the version before the newest while a writer overwrites it.
fn a_copy_of_the_older_version(broken: Broken) {
    let object = Arc::new(Object::new());
    let writer = thread::spawn({
        let object = Arc::clone(&object);
        move || object.commit(3, broken)
    });
    if let Some((newest, copy)) = object.read(true, broken) {
        assert_eq!(copy, [newest.tick_bits() - 1; WORDS], "not the version before the newest");
    }
    writer.join().expect("no panic");
}

/// Two commits, each of which overwrites an object that the other has read. Both succeed only if neither saw a lock.
fn lock_then_validate(broken: Broken) {
    let words = Arc::new([AtomicU64::new(live(2).to_raw()), AtomicU64::new(live(2).to_raw())]);
    let commit = |own: usize| {
        let words = Arc::clone(&words);
        move || {
            let seen = live(2);
            let locked = seen.locked().to_raw();
            let lock = words[own].compare_exchange(seen.to_raw(), locked, Ordering::AcqRel, Ordering::Acquire);
            lock.expect("no other thread writes it");
            if broken != "no fence" {
                fence(Ordering::SeqCst);
            }
            words[1 - own].load(Ordering::Acquire) == seen.to_raw()
        }
    };
    let other = thread::spawn(commit(1));
    let first = commit(0)();
    let other = other.join().expect("no panic");
    assert!(!(first && other), "write skew");
}

/// A transaction has read `x` and makes a new object in a free cell. It locks the cell's word by a plain store, because
/// no other thread writes that word. A second transaction has read, through an old pointer, that the cell is empty, and
/// overwrites `x`. Each saw a state before the other.
///
/// On x86-64 an exchange after the store is as good as the fence. Here both are the fence.
fn a_new_object_is_locked_by_a_store(broken: Broken) {
    let free = VersionWord::new(Tick(2), Writer::default(), Which::First, State::Free);
    let x = Arc::new(AtomicU64::new(live(2).to_raw()));
    let cell = Arc::new(AtomicU64::new(free.to_raw()));
    let maker = thread::spawn({
        let (x, cell) = (Arc::clone(&x), Arc::clone(&cell));
        move || {
            cell.store(free.locked().to_raw(), Ordering::Release);
            if broken != "no fence after the store" {
                fence(Ordering::SeqCst);
            }
            x.load(Ordering::Acquire) == live(2).to_raw()
        }
    });
    let seen = live(2);
    let lock = x.compare_exchange(seen.to_raw(), seen.locked().to_raw(), Ordering::AcqRel, Ordering::Acquire);
    lock.expect("no other thread writes it");
    fence(Ordering::SeqCst);
    let finds_nothing = cell.load(Ordering::Acquire) == free.to_raw();
    let reads_old = maker.join().expect("no panic");
    assert!(!(reads_old && finds_nothing), "write skew");
}

/// As [`a_snapshot_begins`], with a new object.
fn a_new_object_and_a_snapshot(broken: Broken) {
    let free = VersionWord::new(Tick(2), Writer::default(), Which::First, State::Free);
    let cell = Arc::new(AtomicU64::new(free.to_raw()));
    let epoch = Arc::new(AtomicU64::new(1));
    let maker = thread::spawn({
        let (cell, epoch) = (Arc::clone(&cell), Arc::clone(&epoch));
        move || {
            cell.store(free.locked().to_raw(), Ordering::Release);
            if broken != "no fence after the store" {
                fence(Ordering::SeqCst);
            }
            epoch.load(Ordering::Acquire)
        }
    });
    let snapshot = epoch.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    let unmarked = cell.load(Ordering::Acquire) == free.to_raw();
    let belongs = maker.join().expect("no panic") <= snapshot;
    assert!(!(belongs && unmarked), "the snapshot misses an object of its epoch");
}

/// One committer reads the epoch and then validates `x`. Another locks `x` and then reads the epoch. If the first finds
/// `x` unchanged, it comes before the other, so its epoch may not be the later one.
fn what_is_validated_is_of_the_epoch_or_later(broken: Broken) {
    let x = Arc::new(AtomicU64::new(live(2).to_raw()));
    let epoch = Arc::new(AtomicU64::new(1));
    let reader = thread::spawn({
        let (x, epoch) = (Arc::clone(&x), Arc::clone(&epoch));
        move || {
            let own = epoch.load(Ordering::Acquire);
            if broken != "no fence after the epoch" {
                fence(Ordering::SeqCst);
            }
            (x.load(Ordering::Acquire) == live(2).to_raw()).then_some(own)
        }
    });
    let writer = thread::spawn({
        let (x, epoch) = (Arc::clone(&x), Arc::clone(&epoch));
        move || {
            let seen = live(2);
            let lock = x.compare_exchange(seen.to_raw(), seen.locked().to_raw(), Ordering::AcqRel, Ordering::Acquire);
            lock.expect("no other thread writes it");
            fence(Ordering::SeqCst);
            epoch.load(Ordering::Acquire)
        }
    });
    epoch.fetch_add(1, Ordering::AcqRel);
    fence(Ordering::SeqCst);
    let (reader, writer) = (reader.join().expect("no panic"), writer.join().expect("no panic"));
    assert!(reader.is_none_or(|reader| reader <= writer), "a dependency goes back to an earlier epoch");
}

/// A committer marks its object and reads the epoch. A snapshot changes the epoch and reads the object. If the version
/// belongs to the snapshot's epoch, the snapshot may not find the object unchanged.
fn a_snapshot_begins(broken: Broken) {
    let object = Arc::new(AtomicU64::new(live(2).to_raw()));
    let epoch = Arc::new(AtomicU64::new(1));
    let committer = thread::spawn({
        let (object, epoch) = (Arc::clone(&object), Arc::clone(&epoch));
        move || {
            let seen = live(2);
            let locked = seen.locked().to_raw();
            object.compare_exchange(seen.to_raw(), locked, Ordering::AcqRel, Ordering::Acquire).expect("one writer");
            if broken != "no fence after the mark" {
                fence(Ordering::SeqCst);
            }
            epoch.load(Ordering::Acquire)
        }
    });
    let snapshot = epoch.fetch_add(1, Ordering::AcqRel);
    if broken != "no fence after the epoch" {
        fence(Ordering::SeqCst);
    }
    let unmarked = object.load(Ordering::Acquire) == live(2).to_raw();
    let belongs = committer.join().expect("no panic") <= snapshot;
    assert!(!(belongs && unmarked), "the snapshot misses a version of its epoch");
}

/// A snapshot is published as active, then its epoch ends. One committer writes a version, and a second one overwrites
/// the version before it. The second must find the snapshot active if the first one's version is of a later epoch.
fn whoever_overwrites_finds_the_snapshot(broken: Broken) {
    let word = Arc::new(AtomicU64::new(live(2).to_raw()));
    let epoch = Arc::new(AtomicU64::new(1));
    let active = Arc::new(AtomicU64::new(u64::MAX));
    let first = thread::spawn({
        let (word, epoch) = (Arc::clone(&word), Arc::clone(&epoch));
        move || {
            word.store(live(2).locked().to_raw(), Ordering::Release);
            let order = if broken == "relaxed epoch" { Ordering::Relaxed } else { Ordering::Acquire };
            let own = epoch.load(order);
            word.store(live(3).to_raw(), Ordering::Release);
            own
        }
    });
    let second = thread::spawn({
        let (word, active) = (Arc::clone(&word), Arc::clone(&active));
        move || {
            let seen = live(3);
            let order = if broken == "relaxed lock" { Ordering::Relaxed } else { Ordering::AcqRel };
            let locked = word.compare_exchange(seen.to_raw(), seen.locked().to_raw(), order, Ordering::Relaxed);
            locked.is_ok().then(|| active.load(Ordering::Relaxed))
        }
    });
    let late = broken == "published after the epoch";
    if !late {
        active.store(1, Ordering::Release);
    }
    epoch.fetch_add(1, Ordering::AcqRel);
    if late {
        active.store(1, Ordering::Release);
    }
    let later = first.join().expect("no panic") > 1;
    let found = second.join().expect("no panic");
    assert!(!(later && found == Some(u64::MAX)), "no thread keeps the version that the snapshot sees");
}

/// Runs `model` as it is, then once with each rule broken: each broken rule must be found.
fn check(model: fn(Broken), broken: &[Broken]) {
    loom::model(move || model(""));
    for &rule in broken {
        let outcome = catch_unwind(AssertUnwindSafe(|| loom::model(move || model(rule))));
        assert!(outcome.is_err(), "not caught: {rule}");
        println!("caught: {rule}");
    }
}

#[test]
fn a_copy_is_whole_and_the_one_that_the_word_names() {
    check(
        a_copy_between_two_looks,
        &["no second look", "slot and state alone", "relaxed copies", "relaxed slot stores"],
    );
    check(a_copy_of_the_older_version, &["no second look", "slots before the lock"]);
}

#[test]
fn one_of_two_that_overwrite_each_others_reads_fails() {
    check(lock_then_validate, &["no fence"]);
}

#[test]
fn a_new_object_is_in_nobodys_past_and_future() {
    check(a_new_object_is_locked_by_a_store, &["no fence after the store"]);
    check(a_new_object_and_a_snapshot, &["no fence after the store"]);
}

#[test]
fn dependencies_do_not_go_back_to_earlier_epochs() {
    check(what_is_validated_is_of_the_epoch_or_later, &["no fence after the epoch"]);
}

#[test]
fn a_snapshot_misses_no_version_of_its_epoch() {
    check(a_snapshot_begins, &["no fence after the epoch", "no fence after the mark"]);
}

#[test]
fn whoever_overwrites_a_version_finds_the_snapshots_that_see_it() {
    check(whoever_overwrites_finds_the_snapshot, &["published after the epoch", "relaxed epoch", "relaxed lock"]);
}
