//! Operations that were answered, not synced, and lost with the only machine that had them: they come back, unless
//! another mount has used what they change.
//!
//! Each machine is a process. In each attempt:
//!
//! 1. Two of three are stopped by a signal, so only the leader gets what is written then. It answers at once: a plain
//!    write waits for no other node.
//! 2. All three are killed, before the leader has missed the two for so long that it removes them. If it had, what it
//!    answered then would be safe: no machine could lead without it. That is not meant here, and the attempt counts for
//!    nothing.
//! 3. The two start. They are a majority of those that count, so one of them leads, without what was answered.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestone_fs::cluster::{Machine, RemoteOptions, RemoteVolume, Site, ask_machine};
use lodestone_fs::{Caller, Error, FileKind, NewFile, ROOT, Refusal, RenameMode};
use lodestone_registry::Security;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::machines::{Place, is_whole, make, options_in, until};
use crate::once::{CUT, Gate, PASSES};

const ATTEMPTS: usize = 5;
/// The leader removes a machine that is silent for a second.
const REMOVAL: Duration = Duration::from_millis(700);
/// Longer than a takeover.
const TAKEOVER: Duration = Duration::from_secs(5);

/// Tells this program which machine it is, in which folder.
const MACHINE: &str = "LODESTONE_FS_TEST_MACHINE";

/// The process of a machine. It is killed when this is dropped.
struct Process(Child);

impl Process {
    fn start(place: &Place, machine: u16) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["again::a_machine", "--exact", "--nocapture", "--test-threads=1"]).stdout(Stdio::null());
        command.env(MACHINE, format!("{machine} {}", place.path("").display()));
        Self(command.spawn().expect("a process"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// No thread of it does anything from now on.
    fn freeze(&self) {
        rustix::process::kill_process(self.pid(), Signal::STOP).expect("a signal");
        let (_, status) =
            rustix::process::waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("a child").expect("its state");
        assert!(status.stopped(), "a machine has ended: {status:?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        let status = self.0.wait().expect("a child");
        let killed = Signal::KILL.as_raw();
        assert!(std::thread::panicking() || status.signal() == Some(killed), "a machine ended by itself: {status}");
    }
}

/// No test: the program of a machine.
#[test]
fn a_machine() {
    let Ok(told) = std::env::var(MACHINE) else { return };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal when the test is gone");
    let (number, folder) = told.split_once(' ').expect("a number and a folder");
    let (number, folder) = (number.parse().expect("a number"), std::path::Path::new(folder));
    let site = Site::read(&folder.join("site")).expect("a description");
    let makes = !folder.join(format!("m{number}")).exists();
    let mut options = options_in(folder, number, makes, Security::Plain);
    options.texts = Some(Arc::new(|machine, _, _| is_whole(machine).to_string()));
    let _machine = Machine::start(&site, options).expect("a machine");
    loop {
        std::thread::park();
    }
}

struct Lab {
    place: Place,
    machines: [Option<Process>; 3],
    volume: RemoteVolume,
}

impl Lab {
    fn new() -> Self {
        let place = Place::new(false);
        place.site.write_new(&place.path("site")).expect("a description");
        let machines = [1, 2, 3].map(|machine| Some(Process::start(&place, machine)));
        let volume = place.volume();
        Self { place, machines, volume }
    }

    fn start(&mut self, machine: u16) {
        let found = &mut self.machines[usize::from(machine) - 1];
        *found = found.take().or_else(|| Some(Process::start(&self.place, machine)));
    }

    /// All machines run, and have everything.
    fn begin(&mut self) {
        (1..=3).for_each(|machine| self.start(machine));
        let is_whole = |machine| {
            let told = ask_machine(&self.place.site, &Security::Plain, machine, "whole", &mut |_| {});
            told.is_ok_and(|told| told == "true")
        };
        until("all nodes count", || (1..=3).any(is_whole));
        self.volume.sync().expect("a sync");
    }

    /// The machines beside the leader stop. When that was.
    fn freeze_others(&self) -> Instant {
        let (leader, ..) = self.volume.leader();
        let others = (1..).zip(&self.machines).filter(|(machine, _)| *machine != leader);
        others.for_each(|(_, machine)| machine.as_ref().expect("it runs").freeze());
        Instant::now()
    }

    /// All machines are killed, and those that had stopped at `frozen` start. Whether one of them leads, without what
    /// the former leader alone had.
    fn lose_leader(&mut self, frozen: Instant) -> bool {
        let (leader, term, _) = self.volume.leader();
        self.machines[usize::from(leader) - 1] = None;
        let lasted = frozen.elapsed();
        self.machines = [None, None, None];
        if lasted < REMOVAL {
            (1..=3).filter(|machine| *machine != leader).for_each(|machine| self.start(machine));
            let began = Instant::now();
            while self.volume.leader().1 == term && began.elapsed() < TAKEOVER {
                std::thread::sleep(Duration::from_millis(10));
            }
            if self.volume.leader().1 > term {
                println!("{:?} after the start another machine leads", began.elapsed());
                return true;
            }
        }
        println!("the machine that led goes on: it was alone for {lasted:?}");
        (1..=3).for_each(|machine| self.start(machine));
        false
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
    for attempt in 0..ATTEMPTS {
        let name = |name: &str| format!("{name}-{attempt}");
        let [kept, gone, moved] = ["kept", "gone", "moved"].map(|file| make(&lab.volume, &name(file)));
        write(&lab.volume, kept, "first");
        lab.begin();
        let before = lab.volume.came_back();
        let frozen = lab.freeze_others();
        let volume = &lab.volume;
        write(volume, kept, "other");
        let made = make(volume, &name("made"));
        write(volume, made, "new file");
        let new = NewFile::new(FileKind::Folder, 0o700);
        let folder = volume.make_file(&root, ROOT, name("folder").as_bytes(), &new, false).expect("a folder").ino;
        let from = name("moved");
        volume.rename(&root, (ROOT, from.as_bytes()), (folder, b"there"), RenameMode::Replace).expect("a rename");
        volume.unlink(&root, ROOT, name("gone").as_bytes()).expect("an unlink");
        volume.append(&root, kept, b" more").expect("an append");
        volume.truncate(&root, made, 3).expect("a truncate");
        // Open, and without a name.
        let new = NewFile::new(FileKind::File, 0o600);
        let open = volume.make_file(&root, ROOT, name("open").as_bytes(), &new, true).expect("a file").ino;
        write(volume, open, "no name");
        volume.unlink(&root, ROOT, name("open").as_bytes()).expect("an unlink");
        let is_lost = lab.lose_leader(frozen);
        let volume = &lab.volume;
        volume.sync().expect("nothing is lost");
        let numbers = ["kept", "made", "folder"].map(|file| number(volume, &name(file)).expect("it is there"));
        assert_eq!(numbers, [kept, made, folder], "the numbers that were told");
        assert_eq!([kept, made, open].map(|ino| text(volume, ino)), ["other more", "new", "no name"]);
        assert_eq!(volume.lookup(&root, folder, b"there").expect("it is there").ino, moved);
        for file in ["gone", "moved", "open"] {
            let error = number(volume, &name(file)).expect_err("it has no name");
            assert!(matches!(error, Error::Refused(Refusal::NotFound)), "{file}: {error}");
        }
        assert!(volume.attributes(gone).is_err());
        let next = make(volume, &name("next"));
        assert!(next > open, "{next} after {open}");
        if is_lost {
            assert_eq!(volume.came_back() - before, 11, "the operations since the sync");
            return;
        }
    }
    panic!("no attempt lost an operation");
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
    for attempt in 0..ATTEMPTS {
        let name = |name: &str| format!("{name}-{attempt}");
        let [shared, own] = ["shared", "own"].map(|file| make(&lab.volume, &name(file)));
        lab.begin();
        let before = [&lab.volume, &other, &late].map(RemoteVolume::came_back);
        let frozen = lab.freeze_others();
        // Two mounts, each on what the other one made: their operations come back in the order that they had.
        let made = make(&lab.volume, &name("made"));
        write(&other, made, "of the other");
        let names = (name("made"), name("renamed"));
        let (from, to) = ((ROOT, names.0.as_bytes()), (ROOT, names.1.as_bytes()));
        lab.volume.rename(&root, from, to, RenameMode::Replace).expect("a rename");
        let second = make(&other, &name("second"));
        lab.volume.append(&root, second, b"of the first").expect("an append");
        // A third one, which does not see the next leader for a while.
        write(&late, shared, "late");
        write(&late, own, "its own");
        gate.mode.store(CUT, Ordering::SeqCst);
        let is_lost = lab.lose_leader(frozen);
        std::thread::scope(|scope| {
            let synced = scope.spawn(|| other.sync());
            lab.volume.sync().expect("nothing is lost");
            synced.join().expect("no panic").expect("nothing is lost");
        });
        assert_eq!([made, second].map(|ino| text(&lab.volume, ino)), ["of the other", "of the first"]);
        assert_eq!(number(&other, &name("renamed")).expect("it is there"), made);
        let found = text(&other, shared);
        gate.mode.store(PASSES, Ordering::SeqCst);
        let synced = late.sync();
        if is_lost {
            assert_eq!(found, "", "the late one has not come");
            let error = synced.expect_err("another mount has read one file without it");
            assert!(matches!(error, Error::Lost { count: 1 }), "{error}");
            late.sync().expect("it is told once");
            assert_eq!([shared, own].map(|ino| text(&other, ino)), ["", "its own"]);
            let came_back = [&lab.volume, &other, &late].map(RemoteVolume::came_back);
            assert_eq!([0, 1, 2].map(|mount| came_back[mount] - before[mount]), [3, 2, 1]);
            return;
        }
        // It did not count: the late one may have been told that something is lost, or not.
        _ = synced;
    }
    panic!("no attempt lost an operation");
}
