//! Leases of mounts: what a mount keeps is as true as what the metadata node says, also while others change it, while
//! the metadata node is replaced, and while a mount is out of reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestone_fs::cluster::{Machine, RemoteOptions, RemoteVolume, Site};
use lodestone_fs::{Caller, Error, ROOT, Refusal, RenameMode};
use lodestone_registry::Security;

use crate::machines::{Place, make, until, until_whole};
use crate::once::{CUT, Gate, PASSES};

fn keeping(site: &Site) -> RemoteVolume {
    let mut options = RemoteOptions::default();
    (options.keeps, options.patience) = (true, Duration::from_secs(60));
    RemoteVolume::connect(site, Security::Plain, &options).expect("a volume")
}

fn size(volume: &RemoteVolume, ino: u64) -> u64 {
    volume.attributes(ino).expect("attributes").size
}

fn find(volume: &RemoteVolume, name: &str) -> Option<u64> {
    match volume.lookup(&Caller::root(), ROOT, name.as_bytes()) {
        Ok(file) => Some(file.ino),
        Err(Error::Refused(Refusal::NotFound)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until looks at the file are answered from what is kept.
fn until_kept(volume: &RemoteVolume, ino: u64) {
    until("its attributes are kept", || {
        let before = volume.kept().0;
        size(volume, ino);
        volume.kept().0 > before
    });
}

fn truncate(volume: &RemoteVolume, ino: u64, size: u64) {
    volume.truncate(&Caller::root(), ino, size).expect("it changes");
}

#[test]
fn what_a_mount_keeps_is_dropped_before_another_one_changes_it() {
    let place = Place::new(false);
    let machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let (first, second, plain) = (keeping(&place.site), keeping(&place.site), place.volume());
    until_whole(&machines);
    let ino = make(&plain, "a");
    for (number, by) in (1..40).zip([&first, &second, &plain].into_iter().cycle()) {
        until_kept(&first, ino);
        assert_eq!(find(&first, "a"), Some(ino));
        assert_eq!(find(&second, "b"), None);
        truncate(by, ino, number);
        assert_eq!((size(&first, ino), size(&second, ino)), (number, number));
        // A name that is not there is kept, too.
        let linked = by.link(&Caller::root(), ino, ROOT, b"b").expect("a link");
        assert_eq!((linked.links, find(&second, "b"), find(&first, "b")), (2, Some(ino), Some(ino)));
        assert_eq!(first.attributes(ino).expect("attributes").links, 2);
        by.rename(&Caller::root(), (ROOT, b"b"), (ROOT, b"c"), RenameMode::Replace).expect("it moves");
        assert_eq!((find(&second, "b"), find(&first, "c"), find(&second, "c")), (None, Some(ino), Some(ino)));
        by.unlink(&Caller::root(), ROOT, b"c").expect("it goes");
        assert_eq!((find(&second, "c"), first.attributes(ino).expect("attributes").links), (None, 1));
    }
    let leader = machines.iter().flatten().find(|machine| machine.handle().leads().is_some()).expect("one leads");
    let value = |name: &str| {
        let figures = leader.handle().to_prometheus();
        let line = figures.lines().find(|line| line.starts_with(&format!("lodestone_fs_{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{name}: {figures}"))
    };
    // A machine that is very busy lets a lease end by itself now and then.
    for (name, least) in [("leases_granted_total", 40.0), ("leases_recalled_total", 20.0), ("lease_waits_total", 10.0)]
    {
        assert!(value(name) > least, "{name}: {}", value(name));
    }
    assert!(value("lease_wait_seconds_total") > 0.0);
    assert!(first.kept().0 > 30 && first.kept().1 > 10 && plain.kept() == (0, 0), "{:?}", first.kept());
    // Nothing waits for a mount that has said goodbye.
    until_kept(&first, ino);
    drop((first, second));
    let waits = value("lease_waits_total");
    truncate(&plain, ino, 1000);
    assert!(value("lease_waits_total") <= waits && value("leases_out") < 1.0);
}

/// Every look begins after a change was answered that it has to show, or a later one.
#[test]
fn no_look_is_older_than_an_answered_change_while_metadata_nodes_end() {
    let place = Place::new(false);
    let mut machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let volumes = [keeping(&place.site), keeping(&place.site)];
    until_whole(&machines);
    let ino = make(&volumes[0], "a");
    // Sizes up to this one are answered, and synced: no takeover loses them.
    let (answered, stop, looks) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let leads = |machines: &[Option<Machine>]| {
        machines.iter().position(|machine| machine.as_ref().is_some_and(|machine| machine.handle().leads().is_some()))
    };
    std::thread::scope(|scope| {
        let (answered, stop, looks, volumes) = (&answered, &stop, &looks, &volumes);
        for volume in volumes {
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let least = answered.load(Ordering::Acquire);
                    let found = size(volume, ino);
                    assert!(found >= least, "a look shows {found} after {least} was answered");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(move || {
            for (number, volume) in (1..).zip(volumes.iter().cycle()) {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                truncate(volume, ino, number);
                match volume.sync() {
                    Ok(()) => answered.store(number, Ordering::Release),
                    // A takeover came before the sync.
                    Err(Error::Lost { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                std::thread::sleep(Duration::from_millis(number % 7));
            }
        });
        std::thread::sleep(Duration::from_millis(500));
        let leader = leads(&machines).expect("one leads");
        machines[leader] = None;
        let before = answered.load(Ordering::Acquire);
        until("another one leads, and changes go on", || answered.load(Ordering::Acquire) > before + 20);
        stop.store(true, Ordering::Release);
    });
    let (from_kept, _) = volumes[0].kept();
    println!("{} changes, {looks:?} looks, {from_kept} of the first mount kept", answered.load(Ordering::Acquire));
    assert!(from_kept > 100, "{from_kept}");
}

#[test]
fn a_mount_that_is_out_of_reach_delays_a_change_for_a_moment_and_shows_nothing_old_then() {
    let place = Place::new(false);
    let machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let gate = Arc::new(Gate::default());
    let mut site = place.site.clone();
    site.machines.values_mut().for_each(|address| *address = gate.relay(*address));
    let (near, far) = (keeping(&place.site), keeping(&site));
    until_whole(&machines);
    let ino = make(&near, "a");
    for number in 1..4 {
        until_kept(&far, ino);
        gate.mode.store(CUT, Ordering::SeqCst);
        let (far, answered) = (&far, &AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Kept at first, then it waits for the metadata node, which is out of reach for a while.
                let mut found = 0;
                while found != number {
                    let is_late = answered.load(Ordering::Acquire);
                    found = size(far, ino);
                    assert!(!is_late || found == number, "{found} after {number} was answered");
                }
            });
            let began = Instant::now();
            truncate(&near, ino, number);
            answered.store(true, Ordering::Release);
            let took = began.elapsed();
            assert!(took < place.options(1, false).mount_lease, "not as long as for a lock: {took:?}");
            gate.mode.store(PASSES, Ordering::SeqCst);
        });
    }
}
