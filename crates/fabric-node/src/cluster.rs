//! The processes of a group, and the registry that they ask.
//!
//! Each process has a reader thread that passes its lines on, with the moment at which they were read. Everything else
//! is one thread: it answers calls, tells the judge, and waits for what a harness needs. A process ends with its
//! standard input, so none outlives the harness, however that dies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use lodestone_fabric::{Clock, Lease, LocalRegistry, NodeId, Registry, Swap, Term, View, VolumeState};
use lodestone_pmem::{DomainChoice, Memory, PmAddr};
use rustix::process::{Pid, Signal, kill_process};

use crate::judge::Judge;
use crate::network::{GROUP, Kind};
use crate::words::{Order, Told};

/// Nodes from here on may send; the others are members.
pub const SENDERS: u16 = 100;

/// How the processes of a group are started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This program.
    pub program: PathBuf,
    /// Folder of the pools.
    pub folder: PathBuf,
    /// Their domain.
    pub domain: String,
    /// The transport.
    pub transport: Kind,
    /// Addresses of all nodes.
    pub addresses: BTreeMap<u16, SocketAddrV4>,
    /// The address for multicast.
    pub group: SocketAddrV4,
    /// Records under way.
    pub window: u64,
    /// The network namespace of each node; empty: this one.
    pub spaces: BTreeMap<u16, String>,
    /// The lease of the registry.
    pub lease: Duration,
    /// More arguments of every node.
    pub more: Vec<String>,
}

impl Setup {
    /// Nodes on the loopback interface. The id of this process chooses the addresses: harnesses that run at once have
    /// others, unless their ids have the same low 16 bits, or differ only by 0 and 1 in the second byte.
    pub fn loopback(members: u16, senders: u16) -> (BTreeMap<u16, SocketAddrV4>, SocketAddrV4) {
        let [high, low] = [std::process::id() >> 8, std::process::id()].map(|part| part.to_le_bytes()[0]);
        let node = |node: u16| Ipv4Addr::new(127, high.max(1), low, node.to_le_bytes()[0].max(1));
        let nodes = (1..=members).chain(SENDERS..SENDERS + senders);
        let addresses = nodes.map(|id| (id, SocketAddrV4::new(node(id), 47_301))).collect();
        (addresses, SocketAddrV4::new(Ipv4Addr::new(239, 77, high, low), 47_302))
    }

    /// The members.
    pub fn members(&self) -> impl Iterator<Item = u16> + '_ {
        self.addresses.keys().copied().filter(|node| *node < SENDERS)
    }

    /// The pool of a node.
    pub fn pool(&self, node: u16) -> PathBuf {
        self.folder.join(format!("node{node}.pool"))
    }

    fn command(&self, node: u16) -> Command {
        let mut command = match self.spaces.get(&node) {
            Some(space) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space]).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        let list = |items: Vec<String>| items.join(",");
        let peers = self.addresses.iter().map(|(node, address)| format!("{node}={address}"));
        command.arg(if node < SENDERS { "member" } else { "sender" });
        command.arg("--pool").arg(self.pool(node)).args(["--domain", &self.domain]);
        command.args(["--node", &node.to_string(), "--transport", self.transport.name()]);
        command.args(["--peers", &list(peers.collect())]);
        command.args(["--members", &list(self.members().map(|member| member.to_string()).collect())]);
        command.args(["--group", &self.group.to_string()]).args(&self.more);
        if node >= SENDERS {
            command.args(["--window", &self.window.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }
}

/// A line, or the end, of a process.
struct Heard {
    node: u16,
    life: u64,
    at: Instant,
    told: Option<Told>,
}

struct Process {
    child: Child,
    input: ChildStdin,
    life: u64,
    is_open: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Numbers of a sample that a sender told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Nanoseconds from submit to acknowledgement, of half of them.
    pub p50_ns: u64,
    /// Of 99 of 100.
    pub p99_ns: u64,
    /// Packets that were sent again, in the sender's life.
    pub resent: u64,
    /// Sends of its transport, in its life.
    pub sends: u64,
    /// Fragments of records, in its life.
    pub fragments: u64,
}

/// The first acknowledgement since a moment.
struct Watched {
    since: Instant,
    term: Option<u32>,
    first: Option<Instant>,
}

/// The processes of a group.
pub struct Cluster {
    /// How they are started.
    pub setup: Setup,
    /// It knows which records were acknowledged.
    pub judge: Judge,
    watched: Watched,
    processes: BTreeMap<u16, Process>,
    heard: Receiver<Heard>,
    hears: Sender<Heard>,
    registry: LocalRegistry,
    clock: Clock,
    lives: u64,
    /// The newest term that is ready, and its sender.
    pub leading: Option<(u32, u16)>,
    stable: u64,
    sample: Option<Sample>,
    /// The transport that the members told.
    pub transport: String,
}

impl Cluster {
    /// A group of which no process runs yet.
    pub fn new(setup: Setup) -> Result<Self> {
        let (hears, heard) = channel();
        let members: Vec<NodeId> = setup.members().map(NodeId).collect();
        let memory = Memory::anonymous(1 << 16)?;
        let groups = vec![(GROUP, View::of(&members))];
        let lease_ns = u64::try_from(setup.lease.as_nanos())?;
        let registry = LocalRegistry::create(&memory, PmAddr::new(0, 4096), groups)?.with_lease(lease_ns);
        Ok(Self {
            setup,
            judge: Judge::default(),
            watched: Watched { since: Instant::now(), term: None, first: None },
            processes: BTreeMap::new(),
            heard,
            hears,
            registry,
            clock: Clock::default(),
            lives: 0,
            leading: None,
            stable: 0,
            sample: None,
            transport: String::new(),
        })
    }

    /// The domain of the pools.
    pub fn domain(&self) -> Result<DomainChoice> {
        Ok(self.setup.domain.parse()?)
    }

    /// Starts a node.
    pub fn start(&mut self, node: u16) -> Result<()> {
        let mut child = self.setup.command(node).spawn().context("starting a node")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { bail!("no pipes") };
        self.lives += 1;
        let (life, hears) = (self.lives, self.hears.clone());
        thread::spawn(move || {
            let tell = |told| hears.send(Heard { node, life, at: Instant::now(), told }).is_ok();
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if Told::parse(&line).is_some_and(|told| !tell(Some(told))) {
                    return;
                }
            }
            tell(None);
        });
        self.processes.insert(node, Process { child, input, life, is_open: true });
        Ok(())
    }

    /// Starts all nodes, and lets one of them lead.
    pub fn start_all(&mut self, leader: u16) -> Result<()> {
        let nodes: Vec<u16> = self.setup.addresses.keys().copied().collect();
        nodes.into_iter().try_for_each(|node| self.start(node))?;
        self.order(leader, &Order::Lead);
        Ok(())
    }

    /// A line to a node. One that is dead does not mind.
    pub fn order(&mut self, node: u16, order: &Order) {
        if let Some(process) = self.processes.get_mut(&node) {
            let _ = process.input.write_all(format!("{order}\n").as_bytes());
        }
    }

    /// SIGKILL, and then every line that the node had written is taken in.
    pub fn kill(&mut self, node: u16) -> Result<()> {
        let Some(process) = self.processes.get_mut(&node) else { return Ok(()) };
        let ended = process.child.try_wait().context("looking after a node")?;
        if let Some(status) = ended {
            bail!("node {node} ended by itself, with {status}");
        }
        process.child.kill().context("killing a node")?;
        process.child.wait().context("waiting for a node that was killed")?;
        let is_over = |cluster: &Self| cluster.processes.get(&node).is_none_or(|process| !process.is_open);
        if !self.until(Duration::from_secs(60), is_over)? {
            bail!("the output of node {node} does not end");
        }
        self.processes.remove(&node);
        Ok(())
    }

    /// Stops a node where it is, or lets it go on.
    pub fn signal(&self, node: u16, signal: Signal) -> Result<()> {
        let Some(process) = self.processes.get(&node) else { return Ok(()) };
        let pid = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw).context("no such process")?;
        kill_process(pid, signal).context("sending a signal")
    }

    /// Takes lines in until `is_over`; whether that came before the time was over.
    pub fn until(&mut self, most: Duration, is_over: impl Fn(&Self) -> bool) -> Result<bool> {
        let deadline = Instant::now() + most;
        while !is_over(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            // Lines that come all the time must not carry the wait past its end.
            if left.is_zero() {
                return Ok(false);
            }
            match self.heard.recv_timeout(left) {
                Ok(heard) => self.take(heard)?,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(is_over(self)),
            }
        }
        Ok(true)
    }

    /// Takes lines in for so long.
    pub fn run_for(&mut self, time: Duration) -> Result<()> {
        self.until(time, |_| false).map(drop)
    }

    /// From now on: when is the first acknowledgement read, of a term after `term`?
    pub fn watch(&mut self, term: Option<u32>) {
        self.watched = Watched { since: Instant::now(), term, first: None };
    }

    /// How long after [`watch`](Self::watch) the first one was read. Waits for it; `None`: there was none for so long.
    pub fn first_acknowledged(&mut self, most: Duration) -> Result<Option<Duration>> {
        self.until(most, |cluster| cluster.watched.first.is_some())?;
        Ok(self.watched.first.map(|first| first - self.watched.since))
    }

    /// Pauses the sender until every member has everything. Whether that came before the time was over.
    pub fn settle(&mut self, most: Duration) -> Result<bool> {
        self.stable = 0;
        let Some((_, leader)) = self.leading else { return Ok(false) };
        self.order(leader, &Order::Pause);
        self.until(most, |cluster| cluster.stable >= cluster.judge.newest().max(1))
    }

    /// A sample of the sender.
    pub fn sample(&mut self) -> Result<Sample> {
        self.sample = None;
        let Some((_, leader)) = self.leading else { return Ok(Sample::default()) };
        self.order(leader, &Order::Sample);
        self.until(Duration::from_secs(20), |cluster| cluster.sample.is_some())?;
        self.sample.context("the sender tells no sample")
    }

    /// Kills all nodes, the senders first, and judges every pool.
    pub fn kill_all(&mut self) -> Result<()> {
        let nodes: Vec<u16> = self.processes.keys().rev().copied().collect();
        nodes.into_iter().try_for_each(|node| self.kill(node))?;
        let members: Vec<u16> = self.setup.members().collect();
        let tails = members.iter().map(|member| self.inspect(*member)).collect::<Result<Vec<_>>>()?;
        self.judge.all_dead(&tails);
        Ok(())
    }

    /// Judges the pool of a dead member.
    pub fn inspect(&mut self, node: u16) -> Result<u64> {
        let (pool, domain) = (self.setup.pool(node), self.domain()?);
        self.judge.inspect(node, &pool, domain).with_context(|| format!("the pool of member {node}"))
    }

    fn take(&mut self, heard: Heard) -> Result<()> {
        let Heard { node, life, at, told } = heard;
        let Some(told) = told else {
            if let Some(process) = self.processes.get_mut(&node).filter(|process| process.life == life) {
                process.is_open = false;
            }
            return Ok(());
        };
        match told {
            Told::Started { transport, .. } => self.transport = transport,
            Told::State => self.tell_state(node)?,
            Told::Claim { seen } => {
                let (Swap::Done(state) | Swap::Differs(state)) = self.registry.claim(NodeId(node), Term(seen))?;
                self.tell(node, life, &of_state(&state));
            }
            Told::Renew { term, asked } => {
                let order = match self.registry.renew(self.clock.now(), Term(term))? {
                    Lease::Held(ns) => Order::Held { ns, asked },
                    Lease::Wait(ns) => Order::Wait { ns },
                    Lease::Lost(term) => Order::Lost { term: term.0 },
                };
                self.tell(node, life, &order);
            }
            Told::Ready { term, base } => {
                self.judge.ready(term, base);
                self.leading = self.leading.max(Some((term, node)));
            }
            Told::Acknowledged { term, sequence } => {
                self.judge.acknowledge(term, sequence);
                let watched = &mut self.watched;
                if at > watched.since && watched.first.is_none() && watched.term.is_none_or(|of| term > of) {
                    watched.first = Some(at);
                }
            }
            Told::Stable { sequence } => self.stable = sequence,
            Told::Deposed { .. } => {}
            Told::Sample { p50_ns, p99_ns, resent, sends, fragments, .. } => {
                self.sample = Some(Sample { p50_ns, p99_ns, resent, sends, fragments });
            }
        }
        Ok(())
    }

    fn tell_state(&mut self, node: u16) -> Result<()> {
        let state = self.registry.state()?;
        self.order(node, &of_state(&state));
        Ok(())
    }

    /// An answer to a life of a node, unless that is over.
    fn tell(&mut self, node: u16, life: u64, order: &Order) {
        if self.processes.get(&node).is_some_and(|process| process.life == life) {
            self.order(node, order);
        }
    }
}

const fn of_state(state: &VolumeState) -> Order {
    Order::Registry { term: state.term.0, sender: state.sender.0, change: state.change }
}
