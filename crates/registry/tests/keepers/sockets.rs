//! Keepers on sockets of this machine: the suite, plain and sealed, and what connections may not do.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lodestone_fabric::{NodeId, Registry, Term};
use lodestone_pmem::{Memory, PmAddr};
use lodestone_registry::{
    Keeper, KeeperClient, KeeperClientOptions, KeeperClock, KeeperId, KeeperOptions, KeeperServer, KeeperServerOptions,
    Security,
};

use crate::seeds::{GROUP, VOLUME, first_view};
use crate::suite::{self, Ground};

const AT: PmAddr = PmAddr::new(0, 4096);
const BYTES: u64 = 128 << 10;

/// Three keepers and their memory, which outlives them.
pub struct Sockets {
    memory: BTreeMap<KeeperId, Memory>,
    pub addresses: BTreeMap<KeeperId, SocketAddr>,
    pub servers: BTreeMap<KeeperId, KeeperServer>,
    security: BTreeMap<KeeperId, Security>,
    client: Security,
    clock: Arc<KeeperClock>,
}

impl Sockets {
    /// New keepers with the volume of the suite. `security` of each, and of clients, who must be operators or anyone.
    pub fn start(count: u64, security: &dyn Fn(KeeperId) -> Security, client: Security) -> Self {
        let ids: Vec<KeeperId> = (1..=count).map(KeeperId).collect();
        let mut sockets = Self {
            memory: BTreeMap::new(),
            addresses: BTreeMap::new(),
            servers: BTreeMap::new(),
            security: ids.iter().map(|id| (*id, security(*id))).collect(),
            client,
            // A busy machine changes no leader. One alone is never in doubt.
            clock: Arc::new(KeeperClock::slow(if count > 1 { 6 } else { 1 })),
        };
        let mut listeners = BTreeMap::new();
        for id in &ids {
            let memory = Memory::anonymous(1 << 20).unwrap();
            Keeper::create(options(*id), &memory, AT, BYTES, &ids).unwrap();
            sockets.memory.insert(*id, memory);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            sockets.addresses.insert(*id, listener.local_addr().unwrap());
            listeners.insert(*id, listener);
        }
        for (id, listener) in listeners {
            sockets.run(id, listener);
        }
        let made = sockets.keeper_client(&sockets.client, NodeId(1)).create(vec![(GROUP, first_view())]);
        assert!(made.expect("keepers that answer"), "the volume is new");
        sockets
    }

    fn run(&mut self, id: KeeperId, listener: TcpListener) {
        let keeper = Keeper::open(options(id), &self.memory[&id], AT, BYTES).unwrap();
        let peers = self.addresses.iter().filter(|peer| *peer.0 != id).map(|(id, at)| (*id, *at)).collect();
        let security = self.security[&id].clone();
        let server = KeeperServerOptions { listener, peers, security, clock: Arc::clone(&self.clock) };
        self.servers.insert(id, KeeperServer::start(keeper, (), server).unwrap());
    }

    /// Starts those that do not run.
    fn start_all(&mut self) {
        let stopped: Vec<KeeperId> =
            self.addresses.keys().filter(|id| !self.servers.contains_key(id)).copied().collect();
        for id in stopped {
            let listener = TcpListener::bind(self.addresses[&id]).expect("the port is free again");
            self.run(id, listener);
        }
    }

    pub fn keeper_client(&self, security: &Security, node: NodeId) -> KeeperClient {
        let options = KeeperClientOptions {
            keepers: self.addresses.clone(),
            security: security.clone(),
            node,
            // Long for a busy machine; a call that cannot be decided takes as long.
            patience: Duration::from_secs(if self.servers.len() == self.addresses.len() { 90 } else { 2 }),
        };
        KeeperClient::new(options, VOLUME)
    }
}

fn options(id: KeeperId) -> KeeperOptions {
    KeeperOptions { id, registry: 77, seed: id.0 }
}

impl Ground for Sockets {
    fn client(&mut self) -> Box<dyn Registry + Send> {
        Box::new(self.keeper_client(&self.client, NodeId(1)))
    }

    fn pass(&mut self, ns: u64) {
        self.clock.pass(ns);
    }

    fn restart(&mut self) {
        self.servers.clear();
        self.start_all();
    }

    fn lose_majority(&mut self) -> bool {
        let lost: Vec<KeeperId> = self.addresses.keys().copied().take(self.addresses.len() / 2 + 1).collect();
        for id in lost {
            self.servers.remove(&id);
        }
        true
    }

    fn heal(&mut self) {
        self.start_all();
    }
}

#[test]
fn three_keepers_on_sockets() {
    suite::run(&mut Sockets::start(3, &|_| Security::Plain, Security::Plain));
}

/// Bytes that are no hello, hello of no kind, frames that are too long: closed, counted, and the keeper goes on.
#[test]
fn strangers_are_closed() {
    let sockets = Sockets::start(1, &|_| Security::Plain, Security::Plain);
    let (id, address) = sockets.addresses.first_key_value().map(|(id, at)| (*id, *at)).unwrap();
    let hello = |kind: u8| {
        let mut bytes = b"LKP1".to_vec();
        bytes.extend([kind, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes
    };
    let long = [hello(2), u32::MAX.to_le_bytes().to_vec()].concat();
    let none = [hello(2), 3_u32.to_le_bytes().to_vec(), vec![9, 9, 9]].concat();
    let joins = [hello(3), 0_u32.to_le_bytes().to_vec()].concat();
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), hello(7), long, none, joins] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut rest = Vec::new();
        // The keeper closes it.
        _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{bytes:?} is answered by {rest:?}");
    }
    let status = sockets.servers[&id].status();
    assert_eq!(status.server.refused, 5, "{:?}", status.refusals);
    assert_eq!(status.security, "plain-network");
    let state = sockets.keeper_client(&Security::Plain, NodeId(1)).state().expect("it goes on");
    assert_eq!(state.term, Term(0));
    // A client that lost the answer makes its volume again.
    let client = sockets.keeper_client(&Security::Plain, NodeId(1));
    assert!(client.create(vec![(GROUP, first_view())]).expect("the same volume"));
    assert!(!client.create(vec![]).expect("an answer"), "another volume of that name");
}

/// More strangers than there is room for are closed at once. They do not keep others from being served for long.
#[test]
fn strangers_that_say_nothing_are_bounded() {
    let sockets = Sockets::start(1, &|_| Security::Plain, Security::Plain);
    let (id, address) = sockets.addresses.first_key_value().map(|(id, at)| (*id, *at)).unwrap();
    let silent: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(address).unwrap()).collect();
    // The last ones find no room.
    let mut last = silent.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(last.read(&mut [0; 1]).unwrap(), 0, "closed");
    assert!(sockets.servers[&id].status().server.too_many > 0);
    // The others lose their places after seconds, and this one is served.
    sockets.keeper_client(&Security::Plain, NodeId(1)).state().expect("there is room again");
}
