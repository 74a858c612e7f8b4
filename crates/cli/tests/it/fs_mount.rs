//! A mounted volume, and mounts that are killed: everything that `fsync` acknowledged is there afterwards, files are
//! whole or absent, and the check finds nothing.
//!
//! Where the machine does not let this user mount, the tests print why and end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Place;

/// How often the mount is killed.
const KILLS: u64 = 6;

/// A mount in a process of its own. Dropping it kills the process and takes the mount away.
pub struct Mount {
    pub process: Child,
    pub point: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
        for program in ["umount", "fusermount3"] {
            let arguments: &[&str] = if program == "umount" { &["-l"] } else { &["-u", "-z"] };
            _ = Command::new(program).args(arguments).arg(&self.point).stderr(Stdio::null()).status();
        }
    }
}

/// Mounts the volume `a.vol`; `None` where that is not possible here.
fn mount(place: &Place) -> Option<Mount> {
    mount_by(place, &["a.vol", "mnt"])
}

/// Mounts by these arguments, of which the folder `mnt` is one.
pub fn mount_by(place: &Place, arguments: &[&str]) -> Option<Mount> {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: there is no /dev/fuse");
        return None;
    }
    // The first argument is the volume, the second the folder.
    let point = place.path(arguments[1]);
    fs::create_dir_all(&point).ok();
    let mut process = place
        .command([&["fs", "mount"], arguments].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut line = String::new();
    let stdout = process.stdout.take().expect("a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("a line, or the end");
    let mount = Mount { process, point };
    if line.contains("is mounted at") {
        return Some(mount);
    }
    let mut mount = mount;
    let mut error = String::new();
    let stderr = mount.process.stderr.take().expect("a pipe");
    BufReader::new(stderr).read_line(&mut error).expect("a line, or the end");
    assert!(error.contains("mounting failed") || error.contains("fuse"), "{error}");
    println!("skipped: {error}");
    None
}

/// Content of file `number`: up to five pages of one value.
pub fn content(number: u64) -> Vec<u8> {
    let length = (number * 7919) % 20_000 + 1;
    vec![u8::try_from(number % 251).expect("small"); usize::try_from(length).expect("small")]
}

/// Writes files until the mount is dead. Returns the numbers that `fsync` acknowledged.
pub fn write_until_dead(folder: &Path, first: u64) -> (u64, Vec<u64>) {
    let mut acknowledged = Vec::new();
    let mut number = first;
    loop {
        let outcome = (|| {
            let name = folder.join(format!("f{number}.part"));
            let mut file = File::create(&name)?;
            file.write_all(&content(number))?;
            file.sync_all()?;
            fs::rename(&name, folder.join(format!("f{number}")))?;
            File::open(folder)?.sync_all()
        })();
        if outcome.is_err() {
            return (number + 1, acknowledged);
        }
        acknowledged.push(number);
        number += 1;
    }
}

#[test]
fn a_mount_that_is_killed_loses_nothing_that_was_synced() {
    let place = Place::new();
    place.run(["fs", "format", "a.vol", "--size", "64MiB", "--domain", "block"]).ok();
    let (mut next, mut acknowledged) = (0, Vec::new());
    for round in 0..KILLS {
        let Some(mut mount) = mount(&place) else { return };
        let folder = mount.point.clone();
        let writer = std::thread::spawn(move || write_until_dead(&folder, next));
        // At least one file is acknowledged; then the kill comes at any moment. A file with its name may not be
        // acknowledged yet: the writer still waits for the folder. The next file begins after that.
        let until = Instant::now() + Duration::from_secs(60);
        let exists = |name: String| mount.point.join(name).exists();
        while !(exists(format!("f{}.part", next + 1)) || exists(format!("f{}", next + 1))) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let spins = (round * 0x9E37_79B9) % 200_000;
        (0..spins).for_each(|_| std::hint::spin_loop());
        mount.process.kill().expect("it dies");
        mount.process.wait().expect("it is dead");
        let (after, new) = writer.join().expect("the writer ends");
        (next, acknowledged) = (after, [acknowledged, new].concat());
        assert!(!acknowledged.is_empty(), "round {round}: nothing was acknowledged within a minute");
        drop(mount);
        place.run(["fs", "fsck", "a.vol"]).ok();
        let Some(mount) = self::mount(&place) else { return };
        for number in &acknowledged {
            let found = fs::read(mount.point.join(format!("f{number}")));
            assert_eq!(found.expect("it was acknowledged"), content(*number), "round {round}, file {number}");
        }
        // A file that was renamed was synced before.
        for entry in fs::read_dir(&mount.point).expect("the folder").map(|entry| entry.expect("an entry")) {
            let name = entry.file_name().into_string().expect("text");
            if let Some(number) = name.strip_prefix('f').and_then(|number| number.parse().ok()) {
                assert_eq!(fs::read(entry.path()).expect("it is readable"), content(number), "round {round}, {name}");
            }
        }
    }
}

#[test]
fn errors_say_what_to_do() {
    let place = Place::new();
    place.run(["pool", "create", "a.pool"]).ok();
    place.run(["fs", "mount", "a.pool", "."]).fails_with(&["a.pool", "layout"]);
    place.run(["fs", "mount", "none.vol", "."]).fails_with(&["none.vol"]);
    place.run(["fs", "format", "small.vol", "--size", "1MiB"]).fails_with(&["small.vol"]);
    place.run(["fs", "format", "a.vol", "--size", "32MiB", "--domain", "process"]).ok();
    place.run(["fs", "format", "a.vol", "--size", "32MiB"]).fails_with(&["a.vol", "there already", "--overwrite"]);
    assert!(place.run(["fs", "fsck", "a.vol", "--domain", "process"]).ok().contains("everything verifies"));
    let status = place.run(["fs", "status", "a.vol", "--domain", "process"]).ok();
    assert!(status.contains("files      1"), "{status}");
    assert!(status.contains("metadata   ") && status.contains(" for 1 files and folders; "), "{status}");
    let status = place.json(["fs", "status", "a.vol", "--domain", "process"]).remove(0);
    let metadata = |name: &str| status["metadata"][name].as_u64().expect("a number");
    assert_eq!((metadata("files"), &status["used_bytes"]), (1, &0.into()), "{status}");
    assert!(metadata("image_bytes") > 0 && metadata("used_bytes") > metadata("image_bytes"), "{status}");
    if Path::new("/dev/fuse").exists() {
        let error = place.run(["fs", "mount", "a.vol", "nowhere", "--domain", "process"]);
        error.fails_with(&["nowhere", "mkdir"]);
    }
}
