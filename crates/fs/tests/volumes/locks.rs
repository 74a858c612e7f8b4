//! Locks of files between mounts: they exclude each other, go on after a takeover, and end with their mount.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestone_fs::cluster::{FileLock, Machine, RemoteOptions, RemoteVolume};
use lodestone_fs::{Caller, Error, Refusal};
use lodestone_registry::Security;

use crate::machines::{Place, make, until, until_whole};
use crate::once::{CUT, Gate, PASSES};

fn range(start: u64, end: u64, is_write: bool) -> FileLock {
    // Owners of different mounts may have the same number.
    FileLock { owner: 1, start, end, is_write, pid: 77 }
}

#[test]
fn locks_exclude_other_mounts_until_their_mount_is_gone() {
    let place = Place::new(false);
    let mut machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let first = place.volume();
    until_whole(&machines);
    let gate = Arc::new(Gate::default());
    let mut site = place.site.clone();
    site.machines.values_mut().for_each(|address| *address = gate.relay(*address));
    let second = RemoteVolume::connect(&site, Security::Plain, &RemoteOptions::default()).expect("a volume");
    let ino = make(&first, "locked");
    let lock =
        |volume: &RemoteVolume, start, end, is_write| volume.lock(ino, range(start, end, is_write)).expect("an answer");
    assert!(lock(&first, 0, 9, true) && lock(&second, 10, 20, true));
    assert!(!lock(&second, 5, 5, false), "a reader is excluded");
    assert_eq!(second.find_lock(ino, range(0, 99, false)).expect("an answer"), Some(range(0, 9, true)));
    first.unlock(ino, 1, 4, 9).expect("it is freed");
    assert!(lock(&second, 5, 9, true) && !lock(&second, 0, 5, true));
    second.unlock_owner(ino, 1).expect("all are freed");
    assert!(lock(&first, 4, 9, false) && lock(&second, 6, 7, false) && lock(&second, 10, 20, true), "readers share");
    assert!(!lock(&first, 6, 6, true));
    // Programs of two mounts that wait for each other: the one that would close the circle does not wait.
    let (other, everything) = (make(&first, "other"), range(0, u64::MAX, true));
    assert!(first.lock(other, everything).expect("an answer"));
    assert!(!second.wait_lock(other, everything).expect("it waits"));
    assert!(!first.lock(ino, range(10, 10, true)).expect("who does not wait closes no circle"));
    let refused = first.wait_lock(ino, range(10, 10, true)).expect_err("the other one waits for this one");
    assert!(matches!(refused, Error::Refused(Refusal::Deadlock)), "{refused}");
    first.unlock_owner(other, 1).expect("it is freed");
    assert!(second.wait_lock(other, everything).expect("an answer"));
    second.unlock_owner(other, 1).expect("it is freed");
    // Another machine leads: both mounts tell it their locks.
    let leader = first.leader().0;
    machines[usize::from(leader) - 1] = None;
    assert!(!lock(&second, 0, 0, false) && !lock(&first, 10, 10, false) && !lock(&first, 6, 6, true));
    assert!(lock(&second, 30, 30, true), "new ones are granted when others had their time");
    // A mount that is out of reach loses its locks, and learns of it when it comes back.
    second.pin(ino).expect("it is open");
    gate.mode.store(CUT, Ordering::SeqCst);
    until("its locks are free", || lock(&first, 10, 30, true));
    gate.mode.store(PASSES, Ordering::SeqCst);
    let write = || second.write(&Caller::root(), ino, 0, b"late");
    until("it knows", || write().is_err());
    let refused = write().expect_err("its users rely on the lock");
    assert!(matches!(refused, Error::Refused(Refusal::Stale)), "{refused}");
    second.unpin(ino, 1).expect("it is closed");
    write().expect("a new use of the file");
    // One that says goodbye is gone at once.
    drop(first);
    assert!(lock(&second, 0, 99, true));
    // One that is out of reach for its lease, and then comes to another metadata node: that one does not know who had
    // its lock meanwhile.
    machines[usize::from(leader) - 1] = Some(place.start(leader, false));
    until_whole(&machines);
    gate.mode.store(CUT, Ordering::SeqCst);
    std::thread::sleep(place.options(1, false).mount_lease);
    let other = place.volume();
    machines[usize::from(other.leader().0) - 1] = None;
    assert!(other.find_lock(ino, range(0, 0, true)).expect("another one leads").is_none());
    gate.mode.store(PASSES, Ordering::SeqCst);
    until("it knows", || write().is_err());
    assert!(matches!(write(), Err(Error::Refused(Refusal::Stale))));
}
