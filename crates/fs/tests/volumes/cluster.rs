//! Volumes with replicas, all nodes in one process: nodes are stopped as a kill does, and nothing is lost.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lodestone_fs::cluster::{CACHE_LIFETIME, Carrier, Cluster, ClusterStatus, ScrubOptions, Server};
use lodestone_fs::oracle::{Draw, Plain, difference, shots};
use lodestone_fs::{CheckReport, Error, Volume, VolumeOptions};
use lodestone_pmem::DomainChoice;

use crate::nodes::{format, open, options, page, pool, until};

fn state_of(status: &ClusterStatus, node: u16) -> String {
    status.nodes.iter().find(|found| found.node == node).map_or_else(String::new, |found| found.state.clone())
}

#[test]
fn what_was_synced_survives_the_loss_of_a_replica_and_of_the_metadata_node() {
    let (_folder, path) = format(&pool());
    {
        // A volume of one file gets replicas with what it has.
        let volume = Volume::open_with(&path, &pool(), &VolumeOptions::default()).expect("one file");
        volume.create("/old").expect("a file").write_at(0, &[1; 10_000]).expect("a write").sync().expect("a sync");
    }
    let cluster = open(&path);
    let read = |name: &str| {
        cluster.volume().expect("it leads").open_file(name).expect("it is there").read_all().expect("it is whole")
    };
    assert_eq!(read("/old"), [1; 10_000]);
    let volume = cluster.volume().expect("it leads");
    let file = volume.create("/new").expect("a file");
    file.write_at(0, &[2; 9000]).expect("a write").sync().expect("a sync");
    assert_eq!(read("/new"), [2; 9000]);
    volume.write_image().expect("a batch");
    let metadata = cluster.status().metadata.expect("the node that leads knows it");
    assert!(metadata.files == 3 && metadata.image_bytes > 0, "{metadata:?}");
    cluster.stop_node(101).expect("a replica");
    file.write_at(100, &[3; 100]).expect("a write").sync().expect("two of three replicas are enough");
    drop((file, volume));
    let mut expected = vec![2; 9000];
    expected[100..200].fill(3);
    assert_eq!(read("/new"), expected);
    until("it is removed", &cluster, |status| state_of(status, 101) == "stopped" && status.groups[1].copies == 2);
    cluster.start_node(101).expect("it starts");
    until("it is back", &cluster, |status| status.groups[1].copies == 3);
    // The metadata node dies. The standby goes on.
    cluster.stop_node(1).expect("the metadata node");
    assert_eq!((read("/old"), read("/new")), (vec![1; 10_000], expected.clone()));
    assert_eq!(cluster.status().leader, 2);
    let volume = cluster.volume().expect("it leads");
    volume.create("/third").expect("a file").sync().expect("a sync");
    drop(volume);
    cluster.start_node(1).expect("it starts");
    until("it follows", &cluster, |status| status.groups[0].copies == 2 && state_of(status, 1) == "follows");
    cluster.stop_node(2).expect("the metadata node");
    assert_eq!(read("/third"), b"");
    assert_eq!(cluster.status().leader, 1);
    let report = cluster.volume().expect("it leads").check(true).expect("a check");
    assert!(report.is_clean(), "{:?}", report.findings);
    drop(cluster);
    let error = Volume::open_with(&path, &pool(), &VolumeOptions::default()).expect_err("it has replicas");
    assert!(matches!(error, Error::Replicated { replicas: 3, .. }), "{error}");
}

/// Random steps on a volume whose nodes are stopped and started. After a takeover the volume is the state after a
/// prefix of the steps, with everything that was synced.
#[test]
fn whatever_node_is_lost_the_volume_is_a_prefix_of_steps() {
    for seed in 0..2 {
        run(seed, 4);
    }
}

#[test]
#[ignore = "long; `make prove` runs it"]
fn whatever_node_is_lost_the_volume_is_a_prefix_of_steps_for_many_seeds() {
    (10..16).for_each(|seed| run(seed, 8));
}

/// The states since the last sync: a crash may bring any of them back.
struct Expected {
    states: Vec<Plain>,
}

impl Expected {
    fn step(&mut self, step: &lodestone_fs::oracle::Step) -> Result<(), i32> {
        let mut next = self.states.last().expect("a state").clone();
        let outcome = next.run(step);
        if *step == lodestone_fs::oracle::Step::Sync {
            self.states.clear();
        }
        self.states.push(next);
        outcome
    }

    /// The volume is one of the states: the newest, if nothing may be lost.
    fn judge(&mut self, volume: &Volume, may_lose: bool, when: &str) {
        let found = shots(volume).unwrap_or_else(|error| panic!("{when}: {error}"));
        let newest = self.states.len() - 1;
        let from = if may_lose { 0 } else { newest };
        let is_found = (from..=newest).rev().find(|index| difference(&found, &self.states[*index].shots()).is_none());
        let Some(index) = is_found else {
            panic!("{when}: no prefix: {:?}", difference(&found, &self.states[newest].shots()));
        };
        self.states.truncate(index + 1);
    }
}

fn run(seed: u64, rounds: u64) {
    let (_folder, path) = format(&pool());
    let (mut draw, mut cluster) = (Draw::new(seed), open(&path));
    let mut expected = Expected { states: vec![Plain::default()] };
    for round in 0..rounds {
        let when = format!("seed {seed}, round {round}");
        let replica = 101 + u16::try_from(draw.below(3)).expect("small");
        for step in 0..60 {
            let what = draw.step();
            let volume = cluster.volume().expect("it leads");
            assert_eq!(what.run(&volume), expected.step(&what), "{when}, step {step}, {what:?}");
            if step == 20 {
                cluster.stop_node(replica).expect("a replica");
            }
        }
        expected.judge(&cluster.volume().expect("it leads"), false, &when);
        match draw.below(3) {
            0 => {
                // Everything dies at once.
                let (metas, datas) = cluster.nodes();
                metas.into_iter().chain(datas).for_each(|node| cluster.stop_node(node).expect("a node"));
                drop(cluster);
                cluster = open(&path);
            }
            1 => {
                until("both keep metadata", &cluster, |status| status.groups[0].copies == 2);
                let leader = cluster.status().leader;
                cluster.stop_node(leader).expect("the metadata node");
                let volume = cluster.volume().expect("another leads");
                assert_ne!(cluster.status().leader, leader);
                // Lost operations are told once, by a sync.
                _ = volume.sync();
                drop(volume);
                cluster.start_node(leader).expect("it starts");
            }
            _ => {}
        }
        cluster.start_node(replica).expect("it starts");
        expected.judge(&cluster.volume().expect("it leads"), true, &when);
        until("all replicas are back", &cluster, |status| status.groups[1].copies == 3);
        let report = cluster.volume().expect("it leads").check(true).expect("a check");
        assert!(report.is_clean(), "{when}: {:?}", report.findings);
    }
}

/// Flips one byte of page `number` in the file of a replica.
fn flip(bytes: &mut [u8], places: &std::collections::HashMap<[u8; 8], usize>, number: u64) {
    let head: [u8; 8] = page(number)[..8].try_into().expect("eight bytes");
    bytes[places[&head] + 100 + usize::try_from(number % 3000).expect("small")] ^= 0x40;
}

fn places(bytes: &[u8]) -> std::collections::HashMap<[u8; 8], usize> {
    (0..bytes.len() / 4096).map(|at| (bytes[at * 4096..][..8].try_into().expect("eight bytes"), at * 4096)).collect()
}

#[test]
fn a_scrub_repairs_a_thousand_flipped_bytes_and_names_what_no_replica_has() {
    const PAGES: u64 = 500;
    let (folder, path) = format(&pool());
    let cluster = open(&path);
    let content: Vec<u8> = (0..PAGES).flat_map(page).collect();
    let file = cluster.volume().expect("it leads").create("/a").expect("a file");
    file.write_at(0, &content).expect("a write").sync().expect("a sync");
    drop((file, cluster));
    // Each page is damaged at two of its three replicas: a thousand bytes.
    for (index, node) in (0..).zip(["data-101", "data-102", "data-103"]) {
        let name = folder.path().join("a.vol.nodes").join(node);
        let mut bytes = std::fs::read(&name).expect("the replica");
        let found = places(&bytes);
        (0..PAGES).filter(|number| number % 3 != index).for_each(|number| flip(&mut bytes, &found, number));
        std::fs::write(&name, bytes).expect("the replica");
    }
    let cluster = open(&path);
    let volume = cluster.volume().expect("it leads");
    // Reads never see them.
    assert_eq!(volume.open_file("/a").expect("a file").read_all().expect("its content"), content);
    let mut dry = ScrubOptions::default();
    dry.repairs = false;
    let report = volume.scrub(&ScrubOptions::default(), &mut |_, _| {}).expect("a scrub");
    assert_eq!((report.pages, report.lost.len(), report.unread), (PAGES, 0, 0), "{report:?}");
    assert!(report.damaged <= 1000 && report.repaired == report.damaged, "{report:?}");
    let report = volume.scrub(&dry, &mut |_, _| {}).expect("a scrub");
    assert_eq!((report.copies_read, report.damaged), (3 * PAGES, 0), "{report:?}");
    assert!(volume.check(true).expect("a check").is_clean());
    drop((volume, cluster));
    // Page 7 is damaged everywhere.
    for node in ["data-101", "data-102", "data-103"] {
        let name = folder.path().join("a.vol.nodes").join(node);
        let mut bytes = std::fs::read(&name).expect("the replica");
        let found = places(&bytes);
        flip(&mut bytes, &found, 7);
        std::fs::write(&name, bytes).expect("the replica");
    }
    let cluster = open(&path);
    let volume = cluster.volume().expect("it leads");
    let file = volume.open_file("/a").expect("a file");
    let mut bytes = vec![0; 4096];
    let error = file.read_at(7 * 4096, &mut bytes).expect_err("no replica has it");
    assert!(error.errno() == 5 && error.to_string().contains("offset 28672"), "{error}");
    assert_eq!(file.read_at(8 * 4096, &mut bytes).expect("another page"), 4096);
    let report = volume.scrub(&ScrubOptions::default(), &mut |_, _| {}).expect("a scrub");
    assert_eq!(report.lost.iter().map(|page| page.offset).collect::<Vec<_>>(), [28672], "{report:?}");
    file.write_at(28672, &page(7)).expect("it is written again");
    assert_eq!(file.read_all().expect("its content"), content);
    assert!(volume.scrub(&dry, &mut |_, _| {}).expect("a scrub").is_clean());
}

#[test]
fn a_volume_is_used_once_at_a_time() {
    let (_folder, path) = format(&pool());
    let volume = Volume::open_with(&path, &pool(), &VolumeOptions::default()).expect("it opens");
    let error = Volume::open_with(&path, &pool(), &VolumeOptions::default()).expect_err("it is open");
    assert!(error.to_string().contains("is open in this process"), "{error}");
    drop(volume);
    let cluster = open(&path);
    let error = Cluster::open(&path, &pool(), &options()).expect_err("it is open");
    assert!(error.to_string().contains("is open in this process"), "{error}");
    drop(cluster);
    let mut other = options();
    other.replicas = 2;
    let error = Cluster::open(&path, &pool(), &other).expect_err("it has three");
    assert!(error.to_string().contains("(3, 1)"), "{error}");
    other.replicas = 0;
    assert_eq!(Cluster::open(&path, &pool(), &other).expect("as it is").nodes().1.len(), 3);
}

/// Programs have the volume in their hands while its only metadata node is away.
#[test]
fn the_last_metadata_node_that_was_stopped_starts_again() {
    let (_folder, path) = format(&pool());
    let cluster = open(&path);
    let volume = cluster.volume().expect("it leads");
    let file = volume.create("/a").expect("a file");
    cluster.stop_node(2).expect("the standby stops");
    until("the standby is removed", &cluster, |status| state_of(status, 2) == "stopped" && status.term == 1);
    file.write_at(0, &page(1)).expect("a write");
    volume.sync().expect("one node with metadata is enough");
    for _ in 0..3 {
        cluster.stop_node(1).expect("the metadata node stops");
        assert!(volume.sync().is_err(), "it is away");
        cluster.start_node(1).expect("its pool is closed");
        let again = cluster.volume().expect("it leads again");
        assert_eq!(again.open_file("/a").expect("the file").read_all().expect("its content"), page(1));
        again.sync().expect("a sync");
    }
}

/// With one replica of three a sync waits, and ends when another is back.
#[test]
fn a_sync_waits_for_a_quorum() {
    let (_folder, path) = format(&pool());
    let cluster = open(&path);
    let volume = cluster.volume().expect("it leads");
    let file = volume.create("/a").expect("a file");
    file.sync().expect("a sync");
    cluster.stop_node(101).expect("a replica");
    cluster.stop_node(102).expect("a replica");
    file.write_at(0, &[5; 5000]).expect("a plain write needs none");
    let writer = volume.clone();
    let sync = std::thread::spawn(move || writer.sync());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!sync.is_finished(), "nothing has it but one replica");
    cluster.start_node(102).expect("it starts");
    sync.join().expect("it ends").expect("two replicas have it");
}

/// Loses a write and a new file: no replica has the write when the metadata node dies. Returns the number of the file.
fn lose(cluster: &Cluster, leader: u16) -> u64 {
    const REPLICAS: [u16; 3] = [101, 102, 103];
    let volume = cluster.volume().expect("it leads");
    let file = volume.open_file("/a").expect("a file");
    REPLICAS.into_iter().for_each(|node| cluster.stop_node(node).expect("a replica"));
    file.write_at(0, &page(2)).expect("a plain write");
    let lost = volume.create("/lost").expect("a file").ino();
    cluster.stop_node(leader).expect("the metadata node");
    let ended = Instant::now();
    REPLICAS.into_iter().for_each(|node| cluster.start_node(node).expect("a replica"));
    let volume = cluster.volume().expect("another leads");
    assert!(ended.elapsed() >= CACHE_LIFETIME, "users may have kept names of lost files");
    assert!(volume.open_file("/lost").is_err(), "it was never synced");
    lost
}

#[test]
fn numbers_of_lost_files_are_not_used_again_and_every_loss_is_told() {
    let (_folder, path) = format(&pool());
    let cluster = open(&path);
    let volume = cluster.volume().expect("it leads");
    volume.create("/a").expect("a file").write_at(0, &page(1)).expect("a write").sync().expect("a sync");
    drop(volume);
    let first = lose(&cluster, 1);
    cluster.start_node(1).expect("it starts");
    until("both keep metadata", &cluster, |status| status.groups[0].copies == 2 && status.groups[1].copies == 3);
    // No sync has told the first loss yet.
    let second = lose(&cluster, 2);
    assert!(second > first, "{second} after {first}");
    let volume = cluster.volume().expect("it leads");
    let error = volume.sync().expect_err("operations are lost");
    assert!(matches!(error, Error::Lost { count: 4.. }), "{error}");
    volume.sync().expect("it is told once");
    let third = volume.create("/lost").expect("a file").ino();
    assert!(third > second, "{third} after {second}");
}

#[test]
fn a_node_that_does_not_start_is_told() {
    let (folder, path) = format(&pool());
    let cluster = open(&path);
    cluster.stop_node(102).expect("a replica");
    let place = folder.path().join("a.vol.nodes").join("data-102");
    std::fs::remove_file(&place).expect("the pool is lost");
    let error = cluster.start_node(102).expect_err("it has no pool");
    assert!(error.to_string().contains("data-102"), "{error}");
    assert!(state_of(&cluster.status(), 102).contains("data-102"));
}

#[test]
fn a_folder_of_someone_else_is_left_alone_and_one_of_a_kill_is_used() {
    let (folder, path) = format(&pool());
    let nodes = folder.path().join("a.vol.nodes");
    std::fs::create_dir(&nodes).expect("a folder");
    std::fs::write(nodes.join("registry"), "mine").expect("a file");
    let error = Cluster::open(&path, &pool(), &options()).expect_err("the folder is not the volume's");
    assert!(error.to_string().contains("it has registry"), "{error}");
    assert_eq!(std::fs::read(nodes.join("registry")).expect("it is there"), b"mine");
    std::fs::remove_file(nodes.join("registry")).expect("a file");
    // A kill left the folder with its name and some files.
    let volume = Volume::open_with(&path, &pool(), &VolumeOptions::default()).expect("one file");
    std::fs::write(nodes.join("volume"), format!("{:016x}\n", volume.id())).expect("a file");
    std::fs::write(nodes.join("data-102"), "half a pool").expect("a file");
    drop(volume);
    assert_eq!(open(&path).nodes().1.len(), 3);
}

fn serve(folder: &Path, listen: SocketAddrV4) -> Server {
    Server::start(folder, listen, DomainChoice::Process).expect("it listens")
}

#[test]
fn a_replica_elsewhere_that_lost_its_folder_is_refused_until_it_joins_anew() {
    let (folder, path) = format(&pool());
    let any = SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0);
    let place = |number: u16| folder.path().join(format!("r{number}"));
    let mut servers: Vec<Server> = (1..=3).map(|number| serve(&place(number), any)).collect();
    let mut wanted = options();
    wanted.nodes = servers.iter().map(Server::address).collect();
    let lost_at = servers[0].address();
    let cluster = Cluster::open(&path, &pool(), &wanted).expect("it opens");
    let volume = cluster.volume().expect("it leads");
    let file = volume.create("/a").expect("a file");
    file.write_at(0, &page(1)).expect("a write").sync().expect("a sync");
    until("all run", &cluster, |status| (101..=103).all(|node| state_of(status, node) == "member"));
    drop(servers.remove(0));
    std::fs::remove_dir_all(place(1)).expect("its folder is lost");
    servers.push(serve(&place(1), lost_at));
    until("it is refused", &cluster, |status| state_of(status, 101).contains("data-101 is lost"));
    until("it does not count", &cluster, |status| status.groups[1].copies == 2);
    assert!(servers[2].nodes().is_empty(), "an empty pool in its place");
    // The status and the removal do not wait for each other.
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                _ = cluster.status();
            }
        });
        cluster.remove_node(101).expect("the others have everything");
        is_done.store(true, Ordering::Release);
    });
    assert_eq!(cluster.add_node(lost_at).expect("it is free"), 104);
    // How far its copy is, as the status says; nothing when it is done.
    let mut told = BTreeSet::new();
    until("it has copied", &cluster, |status| {
        let copied = status.nodes.iter().find(|found| found.node == 104).and_then(|found| found.copied);
        told.extend(copied.map(|copied| (copied.all_bytes, copied.done_bytes)));
        state_of(status, 104) == "member" && status.groups[1].copies == 3
    });
    println!("copied: {told:?}");
    assert!(told.iter().all(|(all, done)| all == &told.first().expect("one").0 && done <= all), "{told:?}");
    until("nothing is copied any more", &cluster, |status| status.nodes.iter().all(|node| node.copied.is_none()));
    // Each is read from when it has said that it knows the newest members.
    until("all three are right", &cluster, |_| {
        let volume = cluster.volume().expect("it leads");
        let report = volume.scrub(&ScrubOptions::default(), &mut |_, _| {}).expect("a scrub");
        assert_eq!((report.damaged, report.unread), (0, 0), "{report:?}");
        report.copies_read == 3
    });
}

/// A cluster whose standby follows at once.
fn open_quick(path: &Path) -> Cluster {
    let mut options = options();
    options.volume.batch_interval = Duration::from_millis(20);
    Cluster::open(path, &pool(), &options).expect("it opens")
}

/// The image of the standby as a check sees it, when it is as wanted. The volume itself is sound.
fn check_image(cluster: &Cluster, is_so: impl Fn(&CheckReport) -> bool) -> CheckReport {
    let volume = cluster.volume().expect("it leads");
    let mut report = CheckReport::default();
    until("the standby is as wanted", cluster, |_| {
        report = volume.check(false).expect("a check");
        assert!(report.is_clean(), "the volume itself: {:?}", report.findings);
        cluster.images().check(Some(&volume), true, &mut report).expect("a check");
        is_so(&report)
    });
    assert_eq!(report.images.iter().map(|image| image.node).collect::<Vec<_>>(), [2]);
    report
}

/// Changes a byte wherever `wanted` is, and says in how many places.
fn spoil(file: &Path, wanted: &[u8]) -> usize {
    let mut bytes = std::fs::read(file).expect("the image");
    let found = bytes.windows(wanted.len()).enumerate().filter(|(_, found)| *found == wanted);
    let places: Vec<usize> = found.map(|(at, _)| at).collect();
    places.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(file, bytes).expect("the image");
    places.len()
}

#[test]
fn the_image_of_a_standby_is_compared_while_others_write() {
    let (_folder, path) = format(&pool());
    let cluster = open_quick(&path);
    let volume = cluster.volume().expect("it leads");
    volume.create("/another").expect("a file");
    let file = volume.create("/content").expect("a file");
    let content: Vec<u8> = (0..3).flat_map(page).collect();
    file.write_at(0, &content).expect("a write").sync().expect("a sync");
    let report = check_image(&cluster, |report| report.images.first().is_some_and(|image| image.files == 3));
    assert!(report.is_clean() && report.images[0].operation > 0, "{report:?}");
    // Pages are written anew, and files come and go, while it is compared.
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for number in 0..400 {
                file.write_at(number % 3 * 4096, &page(number % 3)).expect("a write");
                let name = format!("/n{}", number % 7);
                volume.create(&name).and_then(|other| other.write_at(0, &[1; 5000]).map(drop)).expect("a file");
                volume.remove(&name).expect("it goes");
            }
        });
        while !writing.is_finished() {
            let mut report = CheckReport::default();
            cluster.images().check(Some(&volume), true, &mut report).expect("a check");
            assert!(report.is_clean() && report.images.len() == 1, "{report:?}");
        }
    });
    file.sync().expect("a sync");
    check_image(&cluster, |report| report.images.first().is_some_and(|image| image.files == 3));
}

/// An old copy of a standby's image was put back: its log does not have the operations in between. It counts, and could
/// not take over.
#[test]
fn a_standby_that_counts_without_its_image_gets_it() {
    let (_folder, path) = format(&pool());
    let mut quick = options();
    quick.volume.batch_interval = Duration::from_millis(20);
    let open = || Cluster::open(&path, &pool(), &quick).expect("it opens");
    let write_some = |cluster: &Cluster, round: u64| {
        let volume = cluster.volume().expect("a volume");
        for number in 0..400 {
            volume.create(&format!("/f{round}-{number}")).expect("a file").write_at(0, &page(number)).expect("a write");
            volume.remove(&format!("/f{round}-{number}")).expect("it goes");
        }
        volume.create(&format!("/f{round}")).expect("a file").sync().expect("a sync");
    };
    let image = path.with_extension("vol.nodes").join("image-2.vol");
    let old = path.with_extension("old");
    let cluster = open();
    write_some(&cluster, 0);
    drop(cluster);
    std::fs::copy(&image, &old).expect("a copy");
    let cluster = open();
    (1..20).for_each(|round| write_some(&cluster, round));
    let last = cluster.status().groups[0].stable;
    until("it follows", &cluster, |status| status.nodes.iter().any(|node| node.executed >= Some(last)));
    drop(cluster);
    std::fs::copy(&old, &image).expect("a copy");
    let cluster = open();
    assert!(cluster.status().leader == 1, "the other one leads");
    until("it has an image", &cluster, |status| {
        state_of(status, 2) == "follows" && status.nodes.iter().any(|node| node.executed >= Some(last))
    });
    cluster.stop_node(1).expect("it stops");
    let volume = cluster.volume().expect("the standby takes over");
    (0..20).for_each(|round| assert!(volume.open_file(&format!("/f{round}")).is_ok(), "file {round}"));
}

#[test]
fn damage_of_a_standbys_image_is_found_and_named() {
    let (folder, path) = format(&pool());
    let cluster = open_quick(&path);
    let volume = cluster.volume().expect("it leads");
    volume.create("/a-name-that-is-nowhere-else").expect("a file");
    let file = volume.create("/content").expect("a file");
    let content: Vec<u8> = (0..3).flat_map(page).collect();
    file.write_at(0, &content).expect("a write").sync().expect("a sync");
    check_image(&cluster, |report| report.images.first().is_some_and(|image| image.files == 3));
    drop((file, volume, cluster));
    let image = folder.path().join("a.vol.nodes/image-2.vol");
    // By this checksum the standby would refuse the page after a takeover.
    assert!(spoil(&image, &crc32c::crc32c(&page(1)).to_le_bytes()) > 0);
    let cluster = open_quick(&path);
    let report = check_image(&cluster, |report| !report.is_clean());
    let found: Vec<_> = report.findings.iter().map(|found| (found.node, &*found.path)).collect();
    assert_eq!(found, [(2, "/content")], "{report:?}");
    assert!(report.findings[0].finding.contains("the page at offset 4096"), "{report:?}");
    drop(cluster);
    // A tree.
    assert!(spoil(&image, b"a-name-that-is-nowhere-else") > 0);
    let cluster = open_quick(&path);
    let report = check_image(&cluster, |report| !report.is_clean());
    let names_it = |text: &str| text.contains("image-2.vol") && text.contains("checksum fails");
    assert!(report.findings.iter().all(|found| found.node == 2 && names_it(&found.finding)), "{report:?}");
}

#[test]
fn streams_are_no_carrier() {
    let error = "tcp".parse::<Carrier>().expect_err("a node listens for orders at its port");
    assert!(error.contains("udp and unicast"), "{error}");
}
