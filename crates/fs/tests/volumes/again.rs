//! Operations that were answered, not synced, and lost with the only machine that had them: they come back, unless
//! another mount has used what they change.
//!
//! Two of three machines end, so that only the leader gets what is written then. It ends, too, and the two start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestone_fs::cluster::{Machine, RemoteOptions, RemoteVolume};
use lodestone_fs::{Caller, Error, FileKind, NewFile, ROOT, Refusal, RenameMode};
use lodestone_registry::Security;

use crate::machines::{Place, make, until_whole};
use crate::once::{CUT, Gate, PASSES};

struct Lab {
    place: Place,
    machines: Vec<Option<Machine>>,
    volume: RemoteVolume,
}

impl Lab {
    fn new() -> Self {
        let place = Place::new(false);
        let machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
        let volume = place.volume();
        until_whole(&machines);
        Self { place, machines, volume }
    }

    /// The machines beside the leader end.
    fn leave_leader_alone(&mut self) {
        let (leader, ..) = self.volume.leader();
        let others = (1..).zip(&mut self.machines).filter(|(machine, _)| *machine != leader);
        let ended: Vec<Option<Machine>> = others.map(|(_, machine)| machine.take()).collect();
        // At the same time: otherwise the first one that ends may be removed before the second one does.
        std::thread::scope(|scope| ended.into_iter().for_each(|machine| _ = scope.spawn(|| drop(machine))));
    }

    /// The leader ends, and the others start.
    fn lose_leader(&mut self) {
        let (leader, ..) = self.volume.leader();
        self.machines[usize::from(leader) - 1] = None;
        let others = (1..=3).filter(|machine| *machine != leader);
        others.for_each(|machine| self.machines[usize::from(machine) - 1] = Some(self.place.start(machine, false)));
    }
}

fn write(volume: &RemoteVolume, ino: u64, text: &str) {
    volume.write(&Caller::root(), ino, 0, text.as_bytes()).expect("a write");
}

fn text(volume: &RemoteVolume, ino: u64) -> String {
    let mut bytes = vec![0; 100];
    let count = volume.read(ino, 0, &mut bytes).expect("a read");
    String::from_utf8(bytes[..count].to_vec()).expect("a text")
}

fn number(volume: &RemoteVolume, name: &str) -> Result<u64, Error> {
    volume.lookup(&Caller::root(), ROOT, name.as_bytes()).map(|file| file.ino)
}

#[test]
fn what_was_answered_and_not_synced_comes_back() {
    let mut lab = Lab::new();
    let root = Caller::root();
    let (kept, gone, moved) = (make(&lab.volume, "kept"), make(&lab.volume, "gone"), make(&lab.volume, "moved"));
    write(&lab.volume, kept, "first");
    lab.volume.sync().expect("a sync");
    lab.leave_leader_alone();
    let volume = &lab.volume;
    write(volume, kept, "other");
    let made = make(volume, "made");
    write(volume, made, "new file");
    let folder = volume.make_file(&root, ROOT, b"folder", &NewFile::new(FileKind::Folder, 0o700), false);
    let folder = folder.expect("a folder").ino;
    volume.rename(&root, (ROOT, b"moved"), (folder, b"there"), RenameMode::Replace).expect("a rename");
    volume.unlink(&root, ROOT, b"gone").expect("an unlink");
    volume.append(&root, kept, b" more").expect("an append");
    volume.truncate(&root, made, 3).expect("a truncate");
    // Open, and without a name.
    let open = volume.make_file(&root, ROOT, b"open", &NewFile::new(FileKind::File, 0o600), true).expect("a file").ino;
    write(volume, open, "no name");
    volume.unlink(&root, ROOT, b"open").expect("an unlink");
    let (_, term, _) = volume.leader();
    lab.lose_leader();
    let volume = &lab.volume;
    for _ in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(1000));
        for machine in lab.machines.iter().flatten() {
            let status = machine.handle().status();
            eprintln!("{:?} {:?} {:?}", machine.handle().leads(), status.groups, status.nodes);
        }
    }
    volume.sync().expect("everything came back");
    assert!(volume.leader().1 > term, "another one leads");
    let numbers = ["kept", "made", "folder"].map(|name| number(volume, name).expect("it is there"));
    assert_eq!(numbers, [kept, made, folder], "the numbers that were told");
    assert_eq!([kept, made, open].map(|ino| text(volume, ino)), ["other more", "new", "no name"]);
    assert_eq!(volume.lookup(&root, folder, b"there").expect("it is there").ino, moved);
    for name in ["gone", "moved", "open"] {
        let error = number(volume, name).expect_err("it has no name");
        assert!(matches!(error, Error::Refused(Refusal::NotFound)), "{name}: {error}");
    }
    assert!(volume.attributes(gone).is_err());
    let next = make(volume, "next");
    assert!(next > open, "{next} after {open}");
    // And once more, from what came back.
    volume.sync().expect("nothing is lost");
}

#[test]
fn what_another_mount_has_used_meanwhile_is_lost_and_the_rest_comes_back() {
    let mut lab = Lab::new();
    let root = Caller::root();
    let gate = Arc::new(Gate::default());
    let mut site = lab.place.site.clone();
    site.machines.values_mut().for_each(|address| *address = gate.relay(*address));
    let late = RemoteVolume::connect(&site, Security::Plain, &RemoteOptions::default()).expect("a volume");
    let other = lab.place.volume();
    let (shared, own) = (make(&lab.volume, "shared"), make(&lab.volume, "own"));
    lab.volume.sync().expect("a sync");
    lab.leave_leader_alone();
    // Two mounts, each on what the other one made: their operations come back in the order that they had.
    let made = make(&lab.volume, "made");
    write(&other, made, "of the other");
    lab.volume.rename(&root, (ROOT, b"made"), (ROOT, b"renamed"), RenameMode::Replace).expect("a rename");
    let second = make(&other, "second");
    lab.volume.append(&root, second, b"of the first").expect("an append");
    // A third one, which does not see the next leader for a while.
    write(&late, shared, "late");
    write(&late, own, "its own");
    gate.mode.store(CUT, Ordering::SeqCst);
    lab.lose_leader();
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| other.sync());
        lab.volume.sync().expect("everything came back");
        synced.join().expect("no panic").expect("everything came back");
    });
    assert_eq!([made, second].map(|ino| text(&lab.volume, ino)), ["of the other", "of the first"]);
    assert_eq!(number(&other, "renamed").expect("it is there"), made);
    assert_eq!(text(&other, shared), "", "the late one is not there");
    gate.mode.store(PASSES, Ordering::SeqCst);
    let error = late.sync().expect_err("another mount has read one file without it");
    assert!(matches!(error, Error::Lost { count: 1 }), "{error}");
    late.sync().expect("it is told once");
    assert_eq!([shared, own].map(|ino| text(&other, ino)), ["", "its own"]);
}
