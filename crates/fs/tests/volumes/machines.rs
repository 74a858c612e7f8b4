//! A volume on three machines, all of them in this process, with a keeper: the client goes on when machines end, and
//! each request is carried out once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ports::ports;
use lodestone_fs::cluster::{Machine, MachineHandle, MachineOptions, RemoteOptions, RemoteVolume, Site, register};
use lodestone_fs::{Caller, Error, FileKind, NewFile, ROOT, Refusal};
use lodestone_pmem::DomainChoice;
use lodestone_registry::control::{Authority, Credentials, Name};
use lodestone_registry::{KeeperClock, KeeperId, KeeperPool, KeeperServer, KeeperServerOptions, Security};

/// The cluster: an authority if the network is sealed, a keeper, the description.
pub struct Place {
    folder: tempfile::TempDir,
    authority: Option<Authority>,
    keeper: Option<KeeperServer>,
    pub site: Site,
}

impl Place {
    pub fn new(is_sealed: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = is_sealed.then(|| Authority::create(folder.path().join("ca")).expect("an authority"));
        let machines = (1..=3).map(|number| (number, SocketAddrV4::new(Ipv4Addr::LOCALHOST, ports()))).collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let keepers = BTreeMap::from([(KeeperId(1), listener.local_addr().expect("an address"))]);
        let mut site = Site::new(machines, keepers).expect("a site").with_size(24 << 20);
        site.is_sealed = is_sealed;
        let mut place = Self { folder, authority, keeper: None, site };
        let pool = place.path("keeper.pool");
        let registry = place.security(Name::Keeper(KeeperId(1)));
        let number = if let Security::Tls(credentials) = &registry { credentials.registry() } else { 1 };
        let keeper = KeeperPool::create(pool, KeeperId(1), number, &[KeeperId(1)]).expect("a keeper");
        let clock = Arc::new(KeeperClock::default());
        let options = KeeperServerOptions { listener, peers: BTreeMap::new(), security: registry, clock };
        place.keeper = Some(KeeperServer::start(keeper.keeper, keeper.held, options).expect("a keeper"));
        assert!(register(&place.site, &place.security(Name::Operator)).expect("an answer"));
        place
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub fn security(&self, name: Name) -> Security {
        let Some(authority) = &self.authority else { return Security::Plain };
        let folder = self.path(&name.to_string());
        if !folder.exists() {
            authority.issue(name, &folder).expect("credentials");
        }
        Security::Tls(Arc::new(Credentials::open(folder).expect("credentials")))
    }

    pub fn options(&self, machine: u16, makes: bool) -> MachineOptions {
        let security = self.security(Name::Node(lodestone_fabric::NodeId(machine)));
        options_in(self.folder.path(), machine, makes, security)
    }

    pub fn start(&self, machine: u16, makes: bool) -> Machine {
        Machine::start(&self.site, self.options(machine, makes)).expect("a machine")
    }

    pub fn volume(&self) -> RemoteVolume {
        let mut options = RemoteOptions::default();
        options.patience = Duration::from_secs(60);
        RemoteVolume::connect(&self.site, self.security(Name::Operator), &options).expect("a volume")
    }
}

pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A machine of a place in this folder.
pub fn options_in(folder: &Path, machine: u16, makes: bool, security: Security) -> MachineOptions {
    let mut options = MachineOptions::new(machine, folder.join(format!("m{machine}")), security);
    (options.makes, options.domain) = (makes, DomainChoice::Process);
    options.mount_lease = Duration::from_secs(8);
    options
}

/// Whether the machine leads, and all nodes count.
pub fn is_whole(machine: &MachineHandle) -> bool {
    let counts = || machine.status().groups.iter().filter(|group| group.copies == 3).count();
    machine.leads().is_some() && counts() == 2
}

/// All nodes count.
pub fn until_whole(machines: &[Option<Machine>]) {
    until("all nodes count", || machines.iter().flatten().any(|machine| is_whole(&machine.handle())));
}

pub fn make(volume: &RemoteVolume, name: &str) -> u64 {
    let new = NewFile::new(FileKind::File, 0o644);
    volume.make_file(&Caller::root(), ROOT, name.as_bytes(), &new, false).expect("a file").ino
}

fn content(number: u8) -> Vec<u8> {
    vec![number; 5000]
}

fn goes_on(is_sealed: bool) {
    let place = Place::new(is_sealed);
    let mut machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let volume = place.volume();
    until_whole(&machines);
    let mut files = Vec::new();
    let mut write = |volume: &RemoteVolume| {
        let number = u8::try_from(files.len()).expect("few");
        let ino = make(volume, &format!("f{number}"));
        volume.write(&Caller::root(), ino, 0, &content(number)).expect("a write");
        volume.sync().expect("a sync");
        files.push(ino);
        for (number, ino) in (0..).zip(&files) {
            let mut found = vec![0; 6000];
            assert_eq!(volume.read(*ino, 0, &mut found).expect("a read"), 5000, "file {number}");
            assert!(found[..5000] == content(number), "file {number}");
        }
    };
    write(&volume);
    let (leader, term, _) = volume.leader();
    let follower = leader % 3 + 1;
    machines[usize::from(follower) - 1] = None;
    write(&volume);
    machines[usize::from(follower) - 1] = Some(place.start(follower, false));
    until_whole(&machines);
    write(&volume);
    // The one with the metadata node.
    machines[usize::from(leader) - 1] = None;
    let began = Instant::now();
    write(&volume);
    println!("sealed {is_sealed}: {:?} until the next machine leads", began.elapsed());
    assert!(volume.leader().1 > term && volume.leader().0 != leader);
    machines[usize::from(leader) - 1] = Some(place.start(leader, false));
    until_whole(&machines);
    write(&volume);
    // All of them: also what only the logs have.
    machines.iter_mut().for_each(|machine| *machine = None);
    (1..=3).for_each(|machine| machines[usize::from(machine) - 1] = Some(place.start(machine, false)));
    write(&volume);
    assert_eq!(volume.read_folder(&Caller::root(), ROOT, 2, 100).expect("the folder").len(), 6);
}

#[test]
fn a_client_goes_on_when_machines_end() {
    goes_on(false);
}

#[test]
fn the_same_with_certificates_and_sealed_packets() {
    goes_on(true);
}

fn error(outcome: Result<Machine, Error>) -> String {
    outcome.map(drop).expect_err("an error").to_string()
}

fn has(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is missing in: {text}"));
}

#[test]
fn what_is_wrong_with_a_machine_is_named() {
    let place = Place::new(true);
    let start = |machine, makes| Machine::start(&place.site, place.options(machine, makes));
    has(&error(start(1, false)), &["m1", "--new"]);
    has(&error(start(4, true)), &["no machine 4", "1, 2, 3"]);
    let machine = place.start(1, true);
    has(&error(start(1, false)), &["m1", "is open in this process"]);
    has(&error(start(1, true)), &["made before"]);
    drop(machine);
    // The folder of another machine, and of another volume.
    let mut other = place.options(2, false);
    other.folder = place.path("m1");
    has(&error(Machine::start(&place.site, other)), &["machine 1", "machine 2"]);
    let mut site = place.site.clone();
    site.volume += 1;
    has(&error(Machine::start(&site, place.options(1, false))), &["the folder is of volume"]);
    // A certificate of another machine.
    let mut options = place.options(2, true);
    options.security = place.security(Name::Node(lodestone_fabric::NodeId(3)));
    let machine = Machine::start(&place.site, options).expect("nobody has asked it yet");
    let patience = RemoteOptions::default();
    let mut short = patience.clone();
    short.patience = Duration::from_millis(500);
    let found = RemoteVolume::connect(&place.site, place.security(Name::Operator), &short);
    has(&found.map(drop).expect_err("nobody leads").to_string(), &["no machine", "machine 2", "another name"]);
    drop(machine);
    // Another volume at the same addresses.
    let machine = place.start(3, true);
    let found = RemoteVolume::connect(&site, place.security(Name::Operator), &short);
    has(&found.map(drop).expect_err("another volume").to_string(), &["use the description of the same volume"]);
    drop(machine);
}

#[test]
fn a_machine_that_lost_its_pools_is_not_made_anew_while_it_counts() {
    let place = Place::new(false);
    let mut machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let volume = place.volume();
    until_whole(&machines);
    let ino = make(&volume, "a");
    volume.write(&Caller::root(), ino, 0, b"hello").and_then(|()| volume.sync()).expect("a write");
    let lost = volume.leader().0 % 3 + 1;
    machines[usize::from(lost) - 1] = None;
    remove(&place.path(&format!("m{lost}")));
    let refused = Machine::start(&place.site, place.options(lost, true));
    if let Err(error) = refused {
        has(&error.to_string(), &["counts in volume", "former folder"]);
    }
    // The others remove it, and then it copies everything.
    until("it is removed", || match Machine::start(&place.site, place.options(lost, true)) {
        Ok(machine) => {
            machines[usize::from(lost) - 1] = Some(machine);
            true
        }
        Err(_) => false,
    });
    until_whole(&machines);
    let mut found = [0; 5];
    assert_eq!((volume.read(ino, 0, &mut found).expect("a read"), &found), (5, b"hello"));
    let refused = volume.unlink(&Caller::root(), ROOT, b"b").expect_err("no such file");
    assert!(matches!(refused, Error::Refused(Refusal::NotFound)), "{refused}");
}

fn remove(folder: &Path) {
    std::fs::remove_dir_all(folder).expect("the folder goes");
}

/// The rings of nodes that may send have one size, which the description says. A pool with others is refused by its
/// own machine, and by the others when the description of one machine says something else.
#[test]
fn a_machine_with_other_rings_is_refused() {
    let place = Place::new(false);
    let text = place.site.to_text();
    let rings = text.lines().find(|line| line.starts_with("rings ")).expect("the rings").to_owned();
    let smaller = Site::parse(&text.replace(&rings, "rings 262144 1048576")).expect("a description");
    let start = |site: &Site, machine, makes| Machine::start(site, place.options(machine, makes));
    drop(start(&place.site, 1, true).expect("a machine"));
    has(&error(start(&smaller, 1, false)), &["machine 1", "rings of 786432", "262144", "make it anew"]);
    let machine = start(&place.site, 1, false).expect("with the description that it was made with");
    let other = start(&smaller, 2, true).expect("nobody has asked it yet");
    until("each refuses the other", || {
        let refuses = |machine: &Machine, other: u16| {
            let nodes = machine.handle().status().nodes;
            nodes.iter().any(|node| node.node == other && node.state.contains("it has rings of"))
        };
        refuses(&machine, 2) && refuses(&other, 1)
    });
}

#[test]
fn a_change_of_machines_that_makes_no_sense_is_refused() {
    let place = Place::new(false);
    let mut machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let volume = place.volume();
    until_whole(&machines);
    let leader = volume.leader().0;
    let other = leader % 3 + 1;
    let handle = machines[usize::from(leader) - 1].as_ref().expect("it runs").handle();
    let refused = |outcome: Result<Site, Error>, parts: &[&str]| {
        has(&outcome.map(drop).expect_err("an error").to_string(), parts);
    };
    let address = place.site.machines[&1];
    refused(handle.add_machine(4, address), &["3 ports"]);
    refused(handle.add_machine(1, SocketAddrV4::new(*address.ip(), 60_000)), &["machine 1", "remove it first"]);
    refused(handle.add_machine(100, SocketAddrV4::new(*address.ip(), 60_000)), &["1 to 99"]);
    refused(handle.remove_machine(other), &["drain it first"]);
    refused(handle.drain_machine(9), &["no machine 9"]);
    let follower = machines[usize::from(other) - 1].as_ref().expect("it runs").handle();
    assert!(matches!(follower.drain_machine(1), Err(Error::Gone)), "it does not lead");
    assert_eq!(handle.site().expect("a description").revision, 0, "nothing has changed");
    // With two machines that have everything none may be drained.
    machines[usize::from(other) - 1] = None;
    until("one is away", || handle.status().machines.iter().any(|found| found.state == "away"));
    refused(handle.drain_machine(leader), &["--min-copies", "add one first"]);
    let names = volume.extra_names(&Caller::root(), ROOT).expect("names");
    assert!(names.is_empty(), "{names:?}");
    // The one that is away may be: it has nothing to hand over.
    assert_eq!(handle.drain_machine(other).expect("a description").revision, 1);
    until("it is drained", || handle.status().machines.iter().any(|found| found.state == "drained"));
    assert!(!handle.remove_machine(other).expect("a description").machines.contains_key(&other));
    assert!(volume.extra_names(&Caller::root(), ROOT).expect("names").is_empty(), "no user sees the description");
    until("the mount knows", || volume.site().revision == 2);
    // A new one gets the description from the others: its copy is from before it was added.
    let new = SocketAddrV4::new(Ipv4Addr::LOCALHOST, ports());
    assert_eq!(handle.add_machine(4, new).expect("a description").address(4).expect("its address"), new);
    let new = place.start(4, true);
    let counts = |found: &lodestone_fs::cluster::MachineStatus| found.machine == 4 && found.state == "counts";
    // How far its copy of the pages is, as it says itself and as the machine that leads does.
    let (mut own, mut told, mut took) = (BTreeSet::new(), BTreeSet::new(), Duration::ZERO);
    let began = Instant::now();
    until("it counts", || {
        for _ in 0..20 {
            let copied = |handle: &MachineHandle| {
                let status = handle.status();
                status.nodes.iter().find(|node| node.node == 104).and_then(|node| node.copied)
            };
            if let Some(copied) = copied(&new.handle()) {
                own.insert((copied.all_bytes, copied.done_bytes));
                took = began.elapsed();
            }
            told.extend(copied(&handle).map(|copied| (copied.all_bytes, copied.done_bytes)));
            std::thread::sleep(Duration::from_micros(200));
        }
        handle.status().machines.iter().any(counts)
    });
    let sizes: BTreeSet<u64> = own.iter().map(|(all, _)| *all).collect();
    assert!(sizes.len() == 1 && own.len() > 2, "the copy goes on, of one size: {own:?}");
    assert!(!told.is_empty() || took < Duration::from_secs(1), "the others are told");
    assert!(told.iter().all(|(all, done)| sizes.contains(all) && done <= all), "{told:?}");
    let ended = |handle: &MachineHandle| handle.status().nodes.iter().all(|node| node.copied.is_none());
    until("nothing is copied any more", || ended(&new.handle()) && ended(&handle));
    machines[usize::from(other) - 1] = Some(new);
}

/// Two operators at the same time, and each change said twice: as after an answer that was lost.
#[test]
fn changes_of_machines_at_the_same_time_and_twice_are_all_there_once() {
    let place = Place::new(false);
    let machines: Vec<Option<Machine>> = (1..=3).map(|machine| Some(place.start(machine, true))).collect();
    let volume = place.volume();
    until_whole(&machines);
    let handle = machines[usize::from(volume.leader().0) - 1].as_ref().expect("it runs").handle();
    let new: Vec<SocketAddrV4> =
        (0..8).map(|at| SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 9), 9000 + at * 3)).collect();
    std::thread::scope(|scope| {
        for operator in 0..2 {
            let (handle, new) = (handle.clone(), &new);
            // Each adds half of them, and says all of them twice.
            scope.spawn(move || {
                for (machine, address) in (10..).zip(new).filter(|(machine, _)| machine % 2 == operator) {
                    let site = handle.add_machine(machine, *address).expect("a description");
                    let again = handle.add_machine(machine, *address).expect("it is done");
                    assert!(site.machines[&machine] == *address && again.machines[&machine] == *address);
                }
            });
        }
    });
    let site = handle.site().expect("a description");
    assert_eq!((site.machines.len(), site.revision), (11, 8), "each change counts once");
    // Of three machines with everything one may be drained: the first that is named.
    let followers: Vec<u16> = (1..=3).filter(|machine| *machine != volume.leader().0).collect();
    let drained: Vec<(u16, Result<Site, Error>)> = std::thread::scope(|scope| {
        let drain = |machine: &u16| (*machine, handle.drain_machine(*machine));
        let drains: Vec<_> = followers.iter().map(|machine| scope.spawn(move || drain(machine))).collect();
        drains.into_iter().map(|drain| drain.join().expect("no panic")).collect()
    });
    let refused = drained.iter().find_map(|(_, outcome)| outcome.as_ref().err()).expect("one is refused");
    has(&refused.to_string(), &["--min-copies", "add one first"]);
    let one = drained.iter().find(|(_, outcome)| outcome.is_ok()).expect("one is drained").0;
    assert_eq!(handle.drain_machine(one).expect("it is done").revision, 9);
    has(
        &handle.add_machine(one, place.site.machines[&one]).expect_err("which?").to_string(),
        &["drained", "remove it"],
    );
    until("it is drained", || handle.remove_machine(one).is_ok());
    has(&handle.remove_machine(one).expect_err("it is gone").to_string(), &["no machine"]);
    // One whose caller did not wait until it was acknowledged counts nevertheless, and its number is not given again.
    handle.add_machine_and_end(20, SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 8), 9000)).expect("an operation");
    until("all have it", || volume.site().machines.contains_key(&20));
    assert_eq!(volume.site().revision, 11);
}

#[test]
fn a_description_that_many_replace_is_always_whole_and_never_older() {
    let place = Place::new(false);
    let path = place.path("a.vol");
    place.site.write_new(&path).expect("a file");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (mut site, path) = (place.site.clone(), &path);
            scope.spawn(move || {
                for revision in 0..25 {
                    site.revision = revision * 4 + writer;
                    site.replace(path).expect("it is written");
                    assert!(Site::read(path).expect("it is whole").volume == site.volume);
                }
            });
        }
    });
    let count = std::fs::read_dir(path.parent().expect("a folder")).expect("the folder");
    let left = count.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(".new")).count();
    assert_eq!(left, 0);
    let mut older = Site::read(&path).expect("a description");
    let newest = older.revision;
    older.revision = 1;
    older.replace(&path).expect("nothing to do");
    assert_eq!(Site::read(&path).expect("a description").revision, newest);
}
