//! Volumes with replicas, whose processes are killed under load: everything that `fsync` acknowledged is there, files
//! are whole or absent, and the check finds nothing.
//!
//! `LODESTONE_FS_ROUNDS` is the number of rounds. Where the machine does not let this user mount, the tests print why
//! and end.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::Place;
use crate::fs_mount::{Mount, content, mount_by, write_until_dead};

/// A process with replicas. Dropping it kills it.
struct Serving {
    process: Child,
    folder: String,
    address: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Serving {
    fn start(place: &Place, folder: &str, address: &str) -> Self {
        let arguments = ["fs", "serve", "--dir", folder, "--listen", address, "--domain", "process", "--plain-network"];
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let mut process = place.command(arguments).stdout(Stdio::piped()).spawn().expect("the program starts");
            let mut line = String::new();
            let stdout = process.stdout.take().expect("a pipe");
            BufReader::new(stdout).read_line(&mut line).expect("a line, or the end");
            let found = line.split(" at ").nth(1).and_then(|rest| rest.split(',').next());
            if let Some(address) = found {
                return Self { process, folder: folder.to_owned(), address: address.to_owned() };
            }
            // The port may be in use for a moment.
            process.wait().expect("it ends");
            assert!(Instant::now() < until, "{address}: the process does not listen");
        }
    }

    fn kill(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }

    /// Kills it and starts it again at the same place.
    fn restart(&mut self, place: &Place) {
        self.kill();
        let (folder, address) = (self.folder.clone(), self.address.clone());
        *self = Self::start(place, &folder, &address);
    }
}

fn rounds(default: u64) -> u64 {
    std::env::var("LODESTONE_FS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(default)
}

/// Waits until the writer has renamed a file.
fn until_written(mount: &Mount, number: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    while !mount.point.join(format!("f{number}")).exists() {
        assert!(Instant::now() < until, "file {number} was not acknowledged within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn judge(mount: &Mount, acknowledged: &[u64], when: &str) {
    for number in acknowledged {
        let found = std::fs::read(mount.point.join(format!("f{number}")));
        let found = found.unwrap_or_else(|error| panic!("{when}: file {number} was acknowledged: {error}"));
        assert!(found == content(*number), "{when}: file {number} has other bytes");
    }
    for entry in std::fs::read_dir(&mount.point).expect("the folder").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("text");
        if let Some(number) = name.strip_prefix('f').and_then(|number| number.parse().ok()) {
            assert!(std::fs::read(entry.path()).expect("it is readable") == content(number), "{when}: {name}");
        }
    }
}

/// The dead mount of a killed process.
fn kill(mut mount: Mount) {
    mount.process.kill().expect("it dies");
    mount.process.wait().expect("it is dead");
}

/// Two rounds, or as many as `LODESTONE_FS_ROUNDS` says.
#[test]
fn killed_replicas_and_metadata_nodes_lose_nothing_that_was_synced() {
    let place = Place::new();
    place.run(["fs", "format", "a.vol", "--size", "64MiB", "--domain", "process"]).ok();
    let mut replicas: Vec<Serving> =
        (1..=3).map(|number| Serving::start(&place, &format!("r{number}"), "127.0.0.1:0")).collect();
    let nodes = replicas.iter().map(|replica| replica.address.clone()).collect::<Vec<_>>().join(",");
    let carrier = std::env::var("LODESTONE_FS_CARRIER").unwrap_or_else(|_| "unicast".into());
    let first = ["a.vol", "mnt", "--domain", "process", "--nodes", &nodes, "--carrier", &carrier, "--plain-network"];
    let again = ["a.vol", "mnt", "--domain", "process", "--plain-network"];
    let (mut next, mut acknowledged) = (0, Vec::new());
    for round in 0..rounds(2) {
        let when = format!("round {round}");
        let Some(mount) = mount_by(&place, if round == 0 { &first } else { &again }) else { return };
        judge(&mount, &acknowledged, &when);
        let folder = mount.point.clone();
        let writer = std::thread::spawn(move || write_until_dead(&folder, next));
        until_written(&mount, next);
        // A replica dies and comes back: the writer sees a delay.
        let victim = usize::try_from(round % 3).expect("small");
        replicas[victim].kill();
        let so_far = next + 3;
        until_written(&mount, so_far);
        replicas[victim].restart(&place);
        until_written(&mount, so_far + 2);
        if round % 2 == 1 {
            // Everything at once.
            replicas.iter_mut().for_each(Serving::kill);
        }
        kill(mount);
        let (after, new) = writer.join().expect("the writer ends");
        (next, acknowledged) = (after, [acknowledged, new].concat());
        if round % 2 == 1 {
            replicas.iter_mut().for_each(|replica| replica.restart(&place));
        }
        take_away(place.path("mnt").as_path());
    }
    let Some(mount) = mount_by(&place, &again) else { return };
    judge(&mount, &acknowledged, "in the end");
    println!("{} files acknowledged", acknowledged.len());
}

/// Takes the mount of a dead process away.
fn take_away(point: &Path) {
    _ = std::process::Command::new("umount").arg("-l").arg(point).stderr(Stdio::null()).status();
}

/// All nodes are in one process, which is killed. Two processes never have one volume.
#[test]
fn a_killed_process_with_replicas_and_a_standby_loses_nothing_that_was_synced() {
    let place = Place::new();
    place.run(["fs", "format", "a.vol", "--size", "48MiB", "--domain", "process"]).ok();
    let (mut next, mut acknowledged) = (0, Vec::new());
    for round in 0..rounds(2) {
        let arguments = ["a.vol", "mnt", "--domain", "process", "--try", "3"];
        let Some(mount) = mount_by(&place, &arguments) else { return };
        judge(&mount, &acknowledged, &format!("round {round}"));
        std::fs::create_dir_all(place.path("other")).expect("a folder");
        let second = place.run(["fs", "mount", "a.vol", "other", "--domain", "process"]);
        second.fails_with(&["a.vol", "is open in process"]);
        let folder = mount.point.clone();
        let writer = std::thread::spawn(move || write_until_dead(&folder, next));
        until_written(&mount, next);
        if round == 0 {
            assert!(place.run(["fs", "status", "a.vol"]).ok().contains("node 1 leads"));
            place.run(["fs", "stop", "a.vol", "101"]).ok();
            until_written(&mount, next + 1);
            // The mount goes on at the standby.
            place.run(["fs", "stop", "a.vol", "1"]).ok();
            until_written(&mount, next + 3);
            assert!(place.run(["fs", "status", "a.vol"]).ok().contains("node 2 leads"));
            place.run(["fs", "start", "a.vol", "101"]).ok();
        }
        kill(mount);
        let (after, new) = writer.join().expect("the writer ends");
        (next, acknowledged) = (after, [acknowledged, new].concat());
        take_away(place.path("mnt").as_path());
    }
    let scrub = place.run(["fs", "scrub", "a.vol", "--domain", "process"]).ok();
    assert!(scrub.contains("0 lost"), "{scrub}");
}

#[test]
fn a_watch_opens_no_volume_and_streams_are_refused() {
    let place = Place::new();
    place.run(["fs", "format", "a.vol", "--size", "32MiB", "--domain", "process"]).ok();
    let watch = place.run(["fs", "status", "a.vol", "--domain", "process", "--watch"]);
    watch.fails_with(&["a.vol", "nothing to watch"]);
    let tcp = place.command(["fs", "mount", "a.vol", "mnt", "--carrier", "tcp"]).output().expect("it ends");
    let error = String::from_utf8_lossy(&tcp.stderr).into_owned();
    assert!(!tcp.status.success() && error.contains("udp and unicast"), "{error}");
}
