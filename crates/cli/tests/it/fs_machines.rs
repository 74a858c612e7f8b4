//! A volume on three machines, which are three processes here: machines are killed, also the one with the metadata
//! node, while files are written on a mount in a fourth one. Connections have certificates, and packets are sealed.
//!
//! Where the machine does not let this user mount, the first test prints why and ends.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Place, Process};
use crate::fs_loss;
use crate::fs_mount::{Mount, content, mount_by};
use crate::ports::ports;

/// A keeper, and the machines of the volume `a.vol`, three at the beginning.
struct Site {
    place: Place,
    keepers: String,
    _keeper: Process,
    machines: BTreeMap<usize, Process>,
    /// Where they tell their figures.
    metrics: BTreeMap<usize, String>,
}

impl Site {
    fn new() -> Self {
        let place = Place::new();
        place.run(["fabric", "authority", "ca"]).ok();
        place.run(["fabric", "token", "ca", "--keeper", "1", "--dir", "k1"]).ok();
        place.run(["fabric", "token", "ca", "--operator", "--dir", "op"]).ok();
        let keep = ["fabric", "keep", "--new", "--authority", "ca", "--dir", "k1", "--id", "1"];
        let (keeper, line) = Process::start(&place, [&keep[..], &["--keepers", "1=127.0.0.1:0"]].concat());
        let address = line.split(" at ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address");
        let keepers = format!("1={address}");
        Self { place, keepers, _keeper: keeper, machines: BTreeMap::new(), metrics: BTreeMap::new() }
    }

    fn format(&self) {
        let machines: Vec<String> = (1..=3).map(|machine| format!("{machine}=127.0.0.1:{}", ports())).collect();
        let machines = machines.join(",");
        let format = ["fs", "format", "a.vol", "--size", "32MiB", "--credentials", "op", "--machines", &machines];
        let told = self.place.run(format.iter().chain(&["--keepers", &self.keepers])).ok();
        assert!(told.contains("3 machines") && told.contains("sealed"), "{told}");
    }

    /// Starts a machine; at the first start with a token.
    fn start(&mut self, machine: usize, is_new: bool) {
        let (folder, number) = (format!("m{machine}"), machine.to_string());
        let mut arguments = vec!["fs", "serve", "a.vol", "--dir", &folder, "--domain", "process"];
        arguments.extend(["--metrics", "127.0.0.1:0"]);
        let token =
            if is_new { self.place.run(["fabric", "token", "ca", "--node", &number]).ok() } else { String::new() };
        if is_new {
            arguments.extend(["--new", "--token", token.trim()]);
        }
        let (process, line) = Process::start(&self.place, &arguments);
        assert!(line.contains(&format!("machine {machine} of volume")), "{line}");
        let metrics = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
        self.metrics.insert(machine, metrics.to_owned());
        self.machines.insert(machine, process);
    }

    /// The state of all nodes, when it is as wanted.
    fn until(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let done = self.place.command(["fs", "status", "a.vol", "--credentials", "op", "--json"]).output();
            let text = String::from_utf8_lossy(&done.expect("it ends").stdout).into_owned();
            match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(found) if is_so(&found) => return found,
                _ => assert!(Instant::now() < until, "{what}: {text}"),
            }
            // Each look is a process.
            std::thread::sleep(Duration::from_millis(400));
        }
    }

    /// The answer of a machine to a request for its figures.
    fn metrics(&self, machine: usize, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics[&machine]).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// All nodes count.
    fn until_whole(&self) -> usize {
        let counts = |status: &serde_json::Value, group: usize| status["groups"][group]["copies"].as_u64() == Some(3);
        let found = self.until("all nodes count", |status| counts(status, 0) && counts(status, 1));
        usize::try_from(found["leader"].as_u64().expect("a number")).expect("a machine")
    }
}

/// Writes a file with a synced name. How long that took.
fn write(folder: &Path, number: u64) -> Duration {
    let began = Instant::now();
    let (part, name) = (folder.join(format!("f{number}.part")), folder.join(format!("f{number}")));
    let mut file = File::create(&part).expect("no error, only a delay");
    file.write_all(&content(number)).expect("no error, only a delay");
    file.sync_all().expect("no error, only a delay");
    std::fs::rename(&part, &name).expect("no error, only a delay");
    File::open(folder).and_then(|folder| folder.sync_all()).expect("no error, only a delay");
    began.elapsed()
}

fn judge(folder: &Path, files: std::ops::Range<u64>, when: &str) {
    for number in files.clone() {
        let found = std::fs::read(folder.join(format!("f{number}")));
        assert!(found.expect("it was acknowledged") == content(number), "{when}: file {number} has other bytes");
    }
    let count = std::fs::read_dir(folder).expect("the folder").count() as u64;
    assert_eq!(count, files.end - files.start, "{when}: no other files");
}

#[test]
fn a_mount_goes_on_when_a_replica_and_the_metadata_node_are_killed() {
    let Some((mut site, mount)) = Site::mounted() else { return };
    let leader = site.leader();
    let (folder, mut count) = (mount.point.clone(), 0);
    let mut write_some = |files: u64| {
        let times: Vec<Duration> = (0..files).map(|file| write(&folder, count + file)).collect();
        count += files;
        (count, times.into_iter().max().unwrap_or_default())
    };
    let (_, calm) = write_some(5);
    let (figures, others) = (site.metrics(leader, "/metrics"), site.metrics(leader % 3 + 1, "/metrics"));
    for line in ["leads{", "copies{", "calls_total{", "ring_used_bytes{", "lease_held{"] {
        assert!(figures.contains(&format!("\nlodestone_fs_{line}volume=")), "{line}: {figures}");
    }
    let value = |figures: &str, end: &str| figures.lines().any(|line| line.ends_with(end));
    assert!(value(&figures, &format!("machine=\"{leader}\",group=\"0\"}} 3")), "three copies: {figures}");
    assert!(value(&figures, "call=\"write\"} 5") && others.contains("200 OK") && !others.contains("_lease_held"));
    assert!(site.metrics(leader, "/").starts_with("HTTP/1.1 404 "));
    let strong = ["--credentials", "op", "--consistency", "strong"];
    let strong = |folder: &str| mount_by(&site.place, &[&["a.vol", folder], &strong[..]].concat()).expect("a mount");
    {
        let (first, second) = (strong("mnt1"), strong("mnt2"));
        see_each_other(&first.point, &second.point);
        keep_nothing_old(&first.point, &second.point);
        let figures = site.metrics(leader, "/metrics");
        let recalled = figures.lines().find(|line| line.starts_with("lodestone_fs_leases_recalled_total{"));
        let recalled = recalled.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        assert!(recalled.is_some_and(|count| count > 100), "{recalled:?} leases were taken back");
        opens_see_the_size(&first.point, &mount.point);
    }
    // A machine that follows: a replica and a standby.
    let follower = leader % 3 + 1;
    site.machines.remove(&follower);
    let (count, _) = write_some(5);
    judge(&mount.point, 0..count, "a replica was killed");
    site.start(follower, false);
    assert_eq!(site.until_whole(), leader, "it came back, and counts");
    // The machine with the metadata node. A file is open, and stays so.
    let mut open = File::create(mount.point.join("f0")).expect("a file");
    site.machines.remove(&leader);
    open.write_all(&content(0)).expect("no error, only a delay");
    open.sync_all().expect("no error, only a delay");
    let (count, delay) = write_some(5);
    judge(&mount.point, 0..count, "the metadata node was killed");
    let found = site.until("another one leads", |status| status["leader"].as_u64() != Some(leader as u64));
    println!("calm {calm:?}, after the kill {delay:?}; {found}");
    site.start(leader, false);
    assert_ne!(site.until_whole(), leader, "it came back and follows");
    judge(&mount.point, 0..count, "in the end");
}

impl Site {
    /// Three machines that all count, and a mount. `None`: there is no FUSE here.
    fn mounted() -> Option<(Self, Mount)> {
        let mut site = Self::new();
        site.format();
        (1..=3).for_each(|machine| site.start(machine, true));
        site.until_whole();
        let mount = mount_by(&site.place, &["a.vol", "mnt", "--credentials", "op"])?;
        Some((site, mount))
    }

    /// The machine counts, or has another state.
    fn until_state(&self, machine: usize, state: &str) {
        self.until(&format!("machine {machine} {state}"), |status| {
            let machines = status["machines"].as_array().into_iter().flatten();
            let mut found = machines.filter(|found| found["machine"].as_u64() == Some(machine as u64));
            found.any(|found| found["state"] == *state)
        });
    }

    fn leader(&self) -> usize {
        let found = self.until("a machine leads", |status| status["leader"].as_u64().is_some_and(|leader| leader > 0));
        usize::try_from(found["leader"].as_u64().expect("a number")).expect("a machine")
    }

    /// Runs a command of an operator on the volume.
    fn change(&self, command: &str, what: &str) -> String {
        self.place.run(["fs", command, "a.vol", what, "--credentials", "op"]).ok()
    }

    fn add(&mut self, machine: usize) {
        self.change("add", &format!("{machine}=127.0.0.1:{}", ports()));
        self.start(machine, true);
        self.until_state(machine, "counts");
    }
}

/// Two mounts that keep nothing in their kernels: each sees what the other did, appends of both are there, and locks of
/// both kinds are between them.
/// A mount whose kernel keeps attributes for a second: an open of a file sees what was written elsewhere before.
fn opens_see_the_size(writer: &Path, reader: &Path) {
    let mut found = Vec::new();
    for size in 1..=20 {
        std::fs::write(writer.join("grows"), vec![7; size]).expect("a write");
        let mut file = File::open(reader.join("grows")).expect("a file");
        assert_eq!(file.metadata().expect("attributes").len(), size as u64, "the size at an open");
        // After a read a kernel asks for the time of it, and learns the size as well.
        if size == 20 {
            file.read_to_end(&mut found).expect("a read");
        }
    }
    assert_eq!(found, [7; 20], "the content at an open");
    std::fs::remove_file(writer.join("grows")).expect("the file goes");
}

fn see_each_other(first: &Path, second: &Path) {
    let open = |folder: &Path| File::options().read(true).append(true).open(folder.join("both")).expect("a file");
    std::fs::write(first.join("both"), b"").expect("a file");
    let (mut one, mut two) = (open(first), open(second));
    for number in 0..20_u8 {
        one.write_all(&[number]).and_then(|()| two.write_all(&[number])).expect("an append");
        assert_eq!(two.metadata().expect("attributes").len(), u64::from(number + 1) * 2, "each sees the other's end");
    }
    let expected: Vec<u8> = (0..20).flat_map(|number| [number, number]).collect();
    let mut found = Vec::new();
    open(first).read_to_end(&mut found).expect("a read");
    assert_eq!(found, expected);
    std::fs::rename(first.join("both"), first.join("renamed")).expect("a rename");
    assert!(second.join("renamed").exists() && !second.join("both").exists(), "names are seen at once");
    // `flock`: who waits for it gets it when the other one is closed.
    one.lock().expect("a lock");
    assert!(two.try_lock().is_err(), "the other mount has it");
    // A process that waits for it can be killed.
    let mut killed = Command::new("flock").arg("-x").arg(second.join("renamed")).arg("true").spawn().expect("flock");
    std::thread::sleep(Duration::from_millis(200));
    assert!(killed.try_wait().expect("a child").is_none(), "the other mount has it");
    killed.kill().expect("a child");
    let began = Instant::now();
    while killed.try_wait().expect("a child").is_none() {
        assert!(began.elapsed() < Duration::from_secs(20), "a killed process waits for a lock for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    let waiting = std::thread::spawn(move || two.lock().map(|()| two));
    drop(one);
    let two = waiting.join().expect("no panic").expect("the lock");
    two.unlock().expect("it is free");
    // `fcntl`: the end of any use of the file by the process frees it.
    let lock = |file: &File| rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    let one = File::options().read(true).write(true).open(first.join("renamed")).expect("a file");
    lock(&one).expect("a lock");
    assert!(lock(&two).is_err(), "the other mount has it");
    drop(one);
    lock(&two).expect("it is free");
    // Two mounts that wait for each other: one of them is refused, and the other one gets the lock.
    let other = |folder: &Path| File::options().create(true).write(true).truncate(false).open(folder.join("other"));
    let (one, (first_other, second_other)) = (first.join("renamed"), (other(first), other(second)));
    let (first_other, second_other) = (first_other.expect("a file"), second_other.expect("a file"));
    let one = File::options().write(true).open(one).expect("a file");
    lock(&first_other).expect("a lock");
    let wait = |file: &File| rustix::fs::fcntl_lock(file, rustix::fs::FlockOperation::LockExclusive);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| wait(&second_other));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(wait(&one), Err(rustix::io::Errno::DEADLK));
        drop(first_other);
        waiting.join().expect("no panic").expect("it is free");
    });
    drop((one, second_other));
    std::fs::remove_file(second.join("other")).expect("it is there");
    std::fs::remove_file(second.join("renamed")).expect("it is there");
}

/// Strong mounts keep names and attributes under leases: none is older than a change that was answered.
fn keep_nothing_old(first: &Path, second: &Path) {
    let both = || [first, second].into_iter();
    std::fs::write(first.join("kept"), b"").expect("a file");
    for (size, by) in (1..=50).zip(both().cycle()) {
        File::options().write(true).open(by.join("kept")).and_then(|file| file.set_len(size)).expect("it grows");
        for _ in 0..2 {
            both().for_each(|at| {
                assert_eq!(std::fs::metadata(at.join("kept")).expect("attributes").len(), size);
                assert!(!at.join("moved").exists());
            });
        }
        std::fs::rename(by.join("kept"), by.join("moved")).expect("it moves");
        both().for_each(|at| assert!(at.join("moved").exists() && !at.join("kept").exists()));
        std::fs::rename(by.join("moved"), by.join("kept")).expect("it moves back");
    }
    std::fs::remove_file(second.join("kept")).expect("it is there");
    // Both change one folder at a time, and wait for each other's leases.
    std::thread::scope(|scope| {
        for (number, at) in both().enumerate() {
            scope.spawn(move || {
                for round in 0..50 {
                    let name = at.join(format!("n{number}-{round}"));
                    std::fs::write(&name, b"x").expect("a file");
                    assert_eq!(std::fs::metadata(&name).expect("attributes").len(), 1);
                    std::fs::remove_file(&name).expect("it is there");
                    assert!(!name.exists());
                }
            });
        }
    });
}

/// Files that are there at a time.
const KEPT: u64 = 100;

/// Adds, drains, kills and replaces machines.
fn change_machines(site: &mut Site) {
    // A machine whose folder is lost for good. A new one takes its place.
    let lost = site.leader() % 3 + 1;
    site.add(4);
    site.machines.remove(&lost);
    std::fs::remove_dir_all(site.place.path(&format!("m{lost}"))).expect("the folder goes");
    site.change("remove", &lost.to_string());
    // The machine that leads is drained: another one leads then. Its process goes on until it is removed.
    let leader = site.leader();
    let told = site.change("drain", &leader.to_string());
    assert!(told.contains("is drained"), "{told}");
    assert_ne!(site.leader(), leader);
    site.until_state(leader, "drained");
    site.change("remove", &leader.to_string());
    let mut removed = site.machines.remove(&leader).expect("it runs");
    let ended = removed.0.wait().expect("it ends by itself");
    assert!(!ended.success(), "it says that it was removed");
    assert_eq!(site.machines.len(), 2);
}

#[test]
fn machines_are_added_drained_lost_and_replaced_while_files_are_written() {
    let Some((mut site, mount)) = Site::mounted() else { return };
    let (folder, stop) = (mount.point.clone(), AtomicBool::new(false));
    std::fs::copy(site.place.path("a.vol"), site.place.path("old.vol")).expect("a copy");
    let (count, longest) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let (mut count, mut longest) = (0, Duration::ZERO);
            while !stop.load(Ordering::Relaxed) {
                let began = Instant::now();
                write(&folder, count);
                count += 1;
                if count > KEPT {
                    std::fs::remove_file(folder.join(format!("f{}", count - KEPT - 1))).expect("no error");
                }
                longest = longest.max(began.elapsed());
                // The rest of the processors' time is for the machines.
                std::thread::sleep(Duration::from_millis(50));
            }
            (count, longest)
        });
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change_machines(&mut site)));
        stop.store(true, Ordering::Relaxed);
        let written = writing.join().expect("the application sees a delay, and no error");
        changed.map_err(|panic| std::panic::resume_unwind(panic)).ok();
        written
    });
    println!("{count} files were written, the slowest in {longest:?}");
    judge(&folder, count.saturating_sub(KEPT)..count, "in the end");
    let scrubbed = site.place.run(["fs", "scrub", "a.vol", "--credentials", "op"]).ok();
    assert!(scrubbed.contains(" 0 damaged"), "{scrubbed}");
    let told = site.place.run(["fs", "status", "old.vol", "--credentials", "op"]).ok();
    assert!(told.contains("machine 4") && told.contains(": counts"), "an old copy works: {told}");
    let checked = site.place.run(["fs", "fsck", "a.vol", "--credentials", "op"]).ok();
    assert!(checked.contains("image of 1 standby: everything verifies"), "{checked}");
    let remove = |credentials: &str| site.place.run(["fs", "remove", "a.vol", "9", "--credentials", credentials]);
    remove("op").fails_with(&["no machine 9"]);
    // A machine's own certificate does not change the machines.
    remove("m4").fails_with(&["certificate of an operator"]);
}

#[test]
fn programs_wait_while_all_machines_are_down_and_lose_nothing() {
    let Some((mut site, mount)) = Site::mounted() else { return };
    let folder = mount.point.clone();
    fs_loss::make_side(&folder);
    (0..3).for_each(|number| _ = write(&folder, number));
    site.machines.clear();
    let longest = fs_loss::write_during(&folder, (3, 3), || {
        fs_loss::kill_one_that_waits(&folder);
        std::thread::sleep(fs_loss::outage());
        (1..=3).for_each(|machine| site.start(machine, false));
    });
    assert!(longest >= fs_loss::outage(), "it waited for {longest:?}");
    println!("a program waited for {longest:?}");
    fs_loss::judge(&folder, 6, "all machines were killed");
    // One machine alone: it leads at most, and no quorum has what is written.
    site.until_whole();
    let one = site.leader();
    site.machines.retain(|machine, _| *machine == one);
    let others: Vec<usize> = (1..=3).filter(|machine| *machine != one).collect();
    fs_loss::write_during(&folder, (6, 2), || {
        fs_loss::kill_one_that_waits(&folder);
        std::thread::sleep(fs_loss::outage());
        others.iter().for_each(|machine| site.start(*machine, false));
    });
    fs_loss::judge(&folder, 8, "two of three machines were killed");
    lose_the_only_one_that_has_what_was_not_synced(&mut site, &folder);
    fs_loss::judge(&folder, 9, "all machines were killed before a sync");
}

/// Only the machine that leads has what a program wrote last. All are killed, and the other two start: the next sync
/// succeeds.
fn lose_the_only_one_that_has_what_was_not_synced(site: &mut Site, folder: &Path) {
    let leader = site.until_whole();
    site.machines.iter().filter(|(machine, _)| **machine != leader).for_each(|(_, process)| freeze(process));
    let frozen = Instant::now();
    let mut file = File::create(folder.join("f8.part")).expect("a file");
    file.write_all(&content(8)).expect("a write");
    std::fs::rename(folder.join("f8.part"), folder.join("f8")).expect("a rename");
    site.machines.remove(&leader);
    // A leader that has removed the others is needed again: what it has then is safe.
    let is_lost = frozen.elapsed() < Duration::from_millis(700);
    site.machines.clear();
    (1..=3).filter(|machine| !is_lost || *machine != leader).for_each(|machine| site.start(machine, false));
    file.sync_all().expect("nothing is lost");
    println!("what was not synced was lost with a machine, and is there: {is_lost}");
}

/// No thread of the process does anything from now on.
fn freeze(process: &Process) {
    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("a signal");
    let told = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED).expect("a child");
    assert!(told.is_some_and(|(_, status)| status.stopped()), "it runs");
}

#[test]
fn a_plain_network_needs_its_name_and_other_commands_say_what_the_file_is() {
    let place = Place::new();
    let format = ["fs", "format", "a.vol", "--machines", "1=127.0.0.1:7000", "--keepers", "1=127.0.0.1:7411"];
    place.run(format).fails_with(&["--credentials"]);
    let overlaps = ["fs", "format", "a.vol", "--machines", "1=127.0.0.1:7000,2=127.0.0.1:7001", "--plain-network"];
    place.run(overlaps.iter().chain(&["--keepers", "1=127.0.0.1:7411"])).fails_with(&["3 ports"]);
    let text = "lodestone volume of machines 1\nvolume 1f\nsize 33554432\nowner 0 0\ncreated 1\ncarrier unicast\n\
                payload 8192\nnetwork plain\nmachine 1 127.0.0.1:7000\nkeeper 1 127.0.0.1:7411\n";
    place.write("b.vol", text);
    place.run(["fs", "mount", "b.vol", "."]).fails_with(&["b.vol", "--plain-network"]);
    place.run(["fs", "status", "b.vol", "--credentials", "op"]).fails_with(&["leave --credentials out"]);
    place.run(["fs", "serve", "b.vol", "--dir", "m1", "--plain-network"]).fails_with(&["--machine"]);
    let not_made = ["fs", "serve", "b.vol", "--dir", "m1", "--machine", "1", "--plain-network"];
    place.run(not_made).fails_with(&["m1", "--new"]);
    place.run(["fs", "fsck", "b.vol"]).fails_with(&["b.vol", "--plain-network"]);
    place.run(["fs", "drain", "b.vol", "1"]).fails_with(&["b.vol", "--plain-network"]);
    place.run(["fs", "add", "b.vol", "127.0.0.1:7003", "--plain-network"]).fails_with(&["4=10.0.0.4:7000"]);
    place.write("c.vol", text.replace("network plain", "network open"));
    place.run(["fs", "mount", "c.vol", "."]).fails_with(&["c.vol", "a line makes no sense"]);
}
