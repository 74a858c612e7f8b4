//! Mounted volumes that cannot go on for a while, because nodes are down: programs wait and see no error, or get `EIO`
//! in time if the mount says so. A program that is killed does not wait.
//!
//! `LODESTONE_FS_OUTAGE` is how many seconds nodes are down. Where the machine does not let this user mount, the tests
//! print why and end.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::Place;
use crate::fs_mount::{Mount, content, mount_by};

/// How long nodes are down.
pub fn outage() -> Duration {
    let seconds = std::env::var("LODESTONE_FS_OUTAGE").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Writes a file with a synced name.
pub fn write(folder: &Path, number: u64) -> std::io::Result<()> {
    let (part, name) = (folder.join(format!("f{number}.part")), folder.join(format!("f{number}")));
    let mut file = File::create(&part)?;
    file.write_all(&content(number))?;
    file.sync_all()?;
    std::fs::rename(&part, &name)?;
    File::open(folder).and_then(|folder| folder.sync_all())
}

/// All files up to `count` are there.
pub fn judge(folder: &Path, count: u64, when: &str) {
    for number in 0..count {
        let found = std::fs::read(folder.join(format!("f{number}"))).expect("it was acknowledged");
        assert!(found == content(number), "{when}: file {number} has other bytes");
    }
}

/// A folder of its own for the program that is killed: the kernel lets one program at a time make files in a folder. A
/// program that waits for that one cannot be killed.
pub fn make_side(folder: &Path) {
    std::fs::create_dir(folder.join("side")).expect("a folder");
}

/// A program that makes a file in the folder. Dropping it kills it.
struct Program(Child);

impl Program {
    fn start(folder: &Path) -> Self {
        let script = format!("exec dd if=/dev/zero of={}/side/other bs=4096 count=1 conv=fsync", folder.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("a shell"))
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A program waits for the volume, which cannot go on; then it is killed, and ends soon.
pub fn kill_one_that_waits(folder: &Path) {
    let mut program = Program::start(folder);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!program.has_ended(), "it waits");
    program.0.kill().expect("a child");
    let began = Instant::now();
    while !program.has_ended() {
        assert!(began.elapsed() < Duration::from_secs(15), "a killed program waits for the volume");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Files are written while something is down, and all of them are there afterwards. The longest time for one.
pub fn write_during(folder: &Path, (first, count): (u64, u64), outage: impl FnOnce()) -> Duration {
    let (folder, (done, written)) = (folder.to_owned(), mpsc::channel());
    // No scope: if the other steps fail, it waits until the mount is killed.
    std::thread::spawn(move || {
        for number in first..first + count {
            let began = Instant::now();
            let outcome = write(&folder, number);
            // Without a listener the test has ended.
            _ = done.send(outcome.map(|()| began.elapsed()));
        }
    });
    outage();
    let next = || written.recv_timeout(Duration::from_secs(120)).expect("the volume goes on");
    let each = (0..count).map(|_| next().expect("the program sees a delay, and no error"));
    each.max().unwrap_or_default()
}

const NODES: [&str; 5] = ["101", "102", "103", "1", "2"];

fn tell(place: &Place, command: &str, nodes: &[&str]) {
    nodes.iter().for_each(|node| _ = place.run(["fs", command, "a.vol", node]).ok());
}

fn mounted(more: &[&str]) -> Option<(Place, Mount)> {
    let place = Place::new();
    place.run(["fs", "format", "a.vol", "--size", "32MiB", "--domain", "process"]).ok();
    let mount = mount_by(&place, &[&["a.vol", "mnt", "--domain", "process", "--try", "3"], more].concat())?;
    make_side(&mount.point);
    (0..3).for_each(|number| write(&mount.point, number).expect("a file"));
    Some((place, mount))
}

#[test]
fn programs_wait_while_all_nodes_are_stopped_and_lose_nothing() {
    let Some((place, mount)) = mounted(&[]) else { return };
    let folder = mount.point.clone();
    tell(&place, "stop", &NODES);
    let longest = write_during(&folder, (3, 3), || {
        kill_one_that_waits(&folder);
        std::thread::sleep(outage());
        tell(&place, "start", &NODES);
    });
    assert!(longest >= outage(), "it waited for {longest:?}");
    judge(&folder, 6, "all nodes were stopped");
    println!("a program waited for {longest:?}");
    // Two of three replicas: no quorum has the pages, so syncs wait. Others read meanwhile, however many syncs wait.
    tell(&place, "stop", &["101", "102"]);
    let open = |number: u64| File::options().write(true).open(folder.join(format!("f{number}"))).expect("a file");
    let files: Vec<File> = (0..6).map(open).collect();
    std::thread::scope(|scope| {
        let syncing: Vec<_> = files
            .iter()
            .map(|file| {
                scope.spawn(|| {
                    file.write_all_at(b"new", 0)?;
                    file.sync_all()
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(2500));
        assert!(syncing.iter().all(|sync| !sync.is_finished()), "no quorum has it");
        let began = Instant::now();
        assert!(!folder.join("another").exists());
        assert!(began.elapsed() < Duration::from_secs(2), "others are answered: {:?}", began.elapsed());
        tell(&place, "start", &["101", "102"]);
        for sync in syncing {
            sync.join().expect("no panic").expect("no error, only a delay");
        }
    });
}

#[test]
fn a_mount_that_is_told_to_gives_errors_in_time_and_goes_on_afterwards() {
    let Some((place, mount)) = mounted(&["--on-loss", "error", "--timeout", "2"]) else { return };
    let folder = mount.point.clone();
    tell(&place, "stop", &["101", "102", "103"]);
    let mut file = File::create(folder.join("late")).expect("it is ordered, and not synced");
    file.write_all(b"late").expect("it is ordered");
    let began = Instant::now();
    let error = file.sync_all().expect_err("no replica has it");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    let took = began.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(12)).contains(&took), "the error came after {took:?}");
    tell(&place, "start", &["101", "102", "103"]);
    let began = Instant::now();
    while file.sync_all().is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "the replicas are back");
    }
    assert_eq!(std::fs::read(folder.join("late")).expect("the file"), b"late");
    judge(&folder, 3, "in the end");
    let refused = place.run(["fs", "mount", "a.vol", "mnt2", "--timeout", "2"]);
    refused.fails_with(&["--timeout", "--on-loss error"]);
}
