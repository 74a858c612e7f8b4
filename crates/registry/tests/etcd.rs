//! The suite of registries on etcd, if the program `etcd` is there. It starts one on loopback, in a folder of its own.
//!
//! Run it by `cargo test -p lodestone-registry --test etcd -- --ignored --nocapture` (Debian: `apt-get install
//! etcd-server`). It waits for leases of etcd, which count real seconds: so it is in no list of tests.

#[path = "keepers/suite.rs"]
mod suite;

// The suite needs these of the topic of keepers.
#[path = "keepers/histories.rs"]
mod histories;
#[path = "keepers/seeds.rs"]
#[expect(dead_code, reason = "the suite needs a part of it")]
mod seeds;

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lodestone_fabric::Registry;
use lodestone_registry::EtcdRegistry;
use seeds::{GROUP, VOLUME, first_view};
use suite::Ground;

/// An etcd of three members, or of one.
struct Etcd {
    folder: tempfile::TempDir,
    clients: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
    members: Vec<Option<Child>>,
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Etcd {
    /// `None`: the program is not installed.
    fn start(count: usize) -> Option<Self> {
        Command::new("etcd").arg("--version").stdout(Stdio::null()).status().ok()?;
        let mut etcd = Self {
            folder: tempfile::tempdir().unwrap(),
            clients: (0..count).map(|_| free_port()).collect(),
            peers: (0..count).map(|_| free_port()).collect(),
            members: (0..count).map(|_| None).collect(),
        };
        etcd.start_all();
        let registry = etcd.registry(Duration::from_secs(60));
        assert!(registry.create(vec![(GROUP, first_view())]).expect("etcd answers"));
        Some(etcd)
    }

    fn start_all(&mut self) {
        let cluster: Vec<String> =
            self.peers.iter().enumerate().map(|(index, peer)| format!("m{index}=http://{peer}")).collect();
        for index in 0..self.members.len() {
            if self.members[index].is_some() {
                continue;
            }
            let (client, peer) = (self.clients[index], self.peers[index]);
            let log = std::fs::File::create(self.folder.path().join(format!("log{index}"))).unwrap();
            let child = Command::new("etcd")
                .args(["--name", &format!("m{index}"), "--initial-cluster", &cluster.join(",")])
                .args(["--initial-cluster-state", "new"])
                .arg("--data-dir")
                .arg(self.folder.path().join(format!("m{index}")))
                .args(["--listen-client-urls", &format!("http://{client}")])
                .args(["--advertise-client-urls", &format!("http://{client}")])
                .args(["--listen-peer-urls", &format!("http://{peer}")])
                .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            self.members[index] = Some(child);
        }
        let end = Instant::now() + Duration::from_secs(60);
        while self.registry(Duration::from_secs(2)).state().is_err_and(|error| !error.to_string().contains("make it")) {
            assert!(Instant::now() < end, "etcd does not start");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn stop(&mut self, index: usize) {
        if let Some(mut child) = self.members[index].take() {
            _ = child.kill();
            _ = child.wait();
        }
    }

    fn registry(&self, patience: Duration) -> EtcdRegistry {
        EtcdRegistry::new(self.clients.clone(), VOLUME, patience)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.stop(index));
    }
}

impl Ground for Etcd {
    fn client(&mut self) -> Box<dyn Registry + Send> {
        let is_whole = self.members.iter().all(Option::is_some);
        Box::new(self.registry(Duration::from_secs(if is_whole { 30 } else { 3 })))
    }

    fn pass(&mut self, ns: u64) {
        // etcd counts by its own clock.
        std::thread::sleep(Duration::from_nanos(ns));
    }

    fn restart(&mut self) {
        (0..self.members.len()).for_each(|index| self.stop(index));
        self.start_all();
    }

    fn lose_majority(&mut self) -> bool {
        (0..=self.members.len() / 2).for_each(|index| self.stop(index));
        true
    }

    fn heal(&mut self) {
        self.start_all();
    }
}

fn run(count: usize) {
    match Etcd::start(count) {
        Some(mut etcd) => {
            suite::run(&mut etcd);
            println!("the suite ran on an etcd of {count}");
        }
        None => println!("did not run: there is no program `etcd` (Debian: apt-get install etcd-server)"),
    }
}

#[test]
#[ignore = "needs the program etcd, and real seconds"]
fn etcd_of_one() {
    run(1);
}

#[test]
#[ignore = "needs the program etcd, and real seconds"]
fn etcd_of_three() {
    run(3);
}
