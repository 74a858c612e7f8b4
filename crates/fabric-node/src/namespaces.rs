//! A group over network namespaces: real sockets, real packets, a bad switch between them.
//!
//! 1. The program starts itself again in a network and a mount namespace of its own. Everything that it makes there,
//!    named namespaces too, is gone with its last process, however that ends. The machine's own network has no part.
//! 2. Each node gets a namespace with one interface, whose other end is a port of a bridge, or of the [relay].
//! 3. For each fault and transport: a sender and three members, load for some seconds, then every member must catch up
//!    under that fault. The processes are killed, and their pools judged.
//!
//! [relay]: crate::relay

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::cluster::{Cluster, SENDERS, Sample, Setup};
use crate::network::Kind;
use crate::relay::Faults;

const INSIDE: &str = "LODESTONE_FABRIC_INSIDE";
const MEMBERS: u16 = 3;
const MULTICAST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 77, 70, 1), 47_302);

/// Arguments of `fabric-node namespaces`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Seconds of load for each fault and transport
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,

    /// Transports
    #[arg(long, value_enum, value_delimiter = ',', default_value = "udp,unicast,tcp")]
    transport: Vec<Kind>,

    /// Faults; all of them if none is given
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,

    /// Records under way
    #[arg(long, default_value_t = 16)]
    window: u64,

    /// Longest time until the members have caught up
    #[arg(long, default_value_t = 120)]
    settle_seconds_max: u64,

    /// Print one JSON object for each fault and transport, and nothing else
    #[arg(long)]
    json: bool,
}

/// A fault of the network.
struct Fault {
    name: &'static str,
    /// `None`: the kernel's bridge, which is faster than the relay.
    faults: Option<Faults>,
    /// Whether nodes are cut off during the load.
    has_cuts: bool,
}

fn all_faults() -> Vec<Fault> {
    let none = Faults::default;
    let fault = |name, faults| Fault { name, faults: Some(faults), has_cuts: false };
    vec![
        Fault { name: "bridge", faults: None, has_cuts: false },
        fault("relay", none()),
        fault("loss-1", Faults { lose: 100, ..none() }),
        fault("loss-5", Faults { lose: 500, ..none() }),
        fault("loss-20", Faults { lose: 2000, ..none() }),
        fault("repeats", Faults { repeat: 1000, ..none() }),
        fault("order", Faults { swap: 1000, ..none() }),
        fault("delay", Faults { delay_us: 300, ..none() }),
        fault("all", Faults { lose: 500, repeat: 500, swap: 500, delay_us: 100, cut: Vec::new() }),
        Fault { name: "cuts", faults: Some(none()), has_cuts: true },
    ]
}

/// Runs the faults. `false`: something was lost.
pub fn run(args: &Args) -> Result<bool> {
    if std::env::var_os(INSIDE).is_none() {
        return enter();
    }
    let names: Vec<&str> = all_faults().iter().map(|fault| fault.name).collect();
    if let Some(unknown) = args.faults.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("no fault `{unknown}`; there are {}", names.join(", "));
    }
    let spaces = Spaces::make()?;
    if !args.json {
        println!(
            "{MEMBERS} members, records of 4 KiB, {} under way, quorum 2; pools dax-emulated in memory",
            args.window
        );
        println!(
            "{:8} {:8} {:>9} {:>9} {:>9} {:>9} {:>7}  judged",
            "fault", "network", "durable/s", "p50 us", "p99 us", "resent", "sends"
        );
    }
    let mut holds = true;
    let chosen = |fault: &Fault| args.faults.is_empty() || args.faults.iter().any(|name| name == fault.name);
    for fault in all_faults().iter().filter(|fault| chosen(fault)) {
        for kind in &args.transport {
            let name = || format!("fault {} over {}", fault.name, kind.name());
            holds &= run_one(args, &spaces, fault, *kind).with_context(name)?;
        }
    }
    Ok(holds)
}

/// Starts this program again in namespaces of its own.
fn enter() -> Result<bool> {
    let ways: [&[&str]; 2] = [
        &["--net", "--mount", "--propagation", "private"],
        // Without rights: as root of a namespace of users, where the machine allows that.
        &["--user", "--map-root-user", "--net", "--mount", "--propagation", "private"],
    ];
    let mut reasons = Vec::new();
    for way in ways {
        let tried = Command::new("unshare").args(way).arg("true").output();
        let tried = tried.context("no program `unshare`; install util-linux")?;
        if tried.status.success() {
            let program = std::env::current_exe().context("finding this program")?;
            let status = Command::new("unshare")
                .args(way)
                .arg(program)
                .args(std::env::args_os().skip(1))
                .env(INSIDE, "1")
                .status()
                .context("starting in namespaces")?;
            return match status.code() {
                Some(0) => Ok(true),
                Some(1) => Ok(false),
                _ => bail!("the run in namespaces ended with {status}; its last line says why"),
            };
        }
        reasons.push(String::from_utf8_lossy(&tried.stderr).trim().to_owned());
    }
    bail!(
        "this process may not make network namespaces ({}); run it as root, or allow namespaces of users",
        reasons.join("; ")
    )
}

fn ip(words: &str) -> Result<()> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output = output.context("no program `ip`; install iproute2")?;
    if output.status.success() {
        return Ok(());
    }
    bail!("`ip {words}` failed: {}", String::from_utf8_lossy(&output.stderr).trim())
}

/// The namespaces of the nodes, and their ports here.
struct Spaces {
    nodes: Vec<u16>,
}

const fn host(node: u16) -> u8 {
    node.to_le_bytes()[0]
}

fn space(node: u16) -> String {
    format!("node{node}")
}

fn port(node: u16) -> String {
    format!("port{node}")
}

fn card(node: u16) -> String {
    format!("02:00:00:00:00:{:02x}", host(node))
}

fn address(node: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 70, host(node))
}

impl Spaces {
    fn make() -> Result<Self> {
        // Names of namespaces are in /run/netns: in one of our own, no other process sees them.
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status().context("running mount")?;
        if !mounted.success() {
            bail!("no own /run: the mount failed");
        }
        let nodes: Vec<u16> = (1..=MEMBERS).chain([SENDERS]).collect();
        ip("link add bridge type bridge mcast_snooping 0")?;
        ip("link set bridge up")?;
        for node in &nodes {
            let (space, port, card) = (space(*node), port(*node), card(*node));
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {port} type veth peer name eth0 address {card} netns {space}"))?;
            ip(&format!("link set {port} up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add {}/24 dev eth0", address(*node)))?;
            // Frames no longer than the MTU, so that a frame that is lost is one segment.
            let _ = ip(&format!("-n {space} link set eth0 gso_max_segs 1"));
            ip(&format!("-n {space} link set eth0 up"))?;
            ip(&format!("-n {space} route add 224.0.0.0/4 dev eth0"))?;
            // Addresses are known, so that their protocol takes no part in a bad network.
            for other in nodes.iter().filter(|other| *other != node) {
                let (address, card) = (address(*other), self::card(*other));
                ip(&format!("-n {space} neigh replace {address} lladdr {card} dev eth0 nud permanent"))?;
            }
        }
        Ok(Self { nodes })
    }

    /// Joins the ports by the bridge, or by a relay.
    fn join(&self, faults: Option<&Faults>) -> Result<Option<RelayProcess>> {
        for node in &self.nodes {
            let master = if faults.is_some() { "nomaster".to_owned() } else { "master bridge".to_owned() };
            ip(&format!("link set {} {master}", port(*node)))?;
        }
        faults.map(|faults| RelayProcess::start(&self.nodes, faults)).transpose()
    }
}

/// The relay.
struct RelayProcess {
    child: Child,
    input: ChildStdin,
}

impl RelayProcess {
    fn start(nodes: &[u16], faults: &Faults) -> Result<Self> {
        let ports: Vec<String> = nodes.iter().map(|node| port(*node)).collect();
        let mut child = Command::new(std::env::current_exe().context("finding this program")?)
            .args(["relay", "--ports", &ports.join(",")])
            .stdin(Stdio::piped())
            .spawn()
            .context("starting the relay")?;
        let input = child.stdin.take().context("the relay has no input")?;
        let mut relay = Self { child, input };
        relay.set(faults)?;
        Ok(relay)
    }

    fn set(&mut self, faults: &Faults) -> Result<()> {
        self.input.write_all(faults.line().as_bytes()).context("the relay has ended")
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_one(args: &Args, spaces: &Spaces, fault: &Fault, kind: Kind) -> Result<bool> {
    let mut relay = spaces.join(fault.faults.as_ref())?;
    let folder = tempfile::Builder::new().prefix("fabric-namespaces-").tempdir_in("/dev/shm");
    let folder = folder.context("a folder for pools in /dev/shm")?;
    let setup = Setup {
        program: std::env::current_exe().context("finding this program")?,
        folder: folder.path().to_owned(),
        domain: "dax-emulated".to_owned(),
        transport: kind,
        addresses: spaces.nodes.iter().map(|node| (*node, SocketAddrV4::new(address(*node), 47_301))).collect(),
        group: MULTICAST,
        window: args.window,
        spaces: spaces.nodes.iter().map(|node| (*node, space(*node))).collect::<BTreeMap<_, _>>(),
        lease: Duration::from_secs(1),
        more: Vec::new(),
    };
    let mut cluster = Cluster::new(setup)?;
    cluster.start_all(SENDERS)?;
    let most = Duration::from_secs(args.settle_seconds_max);
    if cluster.acknowledged_after(Instant::now(), None, most)?.is_none() {
        bail!("nothing is acknowledged {} s after the start", most.as_secs());
    }
    cluster.sample()?;
    let (before, started) = (cluster.judge.count, Instant::now());
    match (&mut relay, fault.has_cuts) {
        (Some(relay), true) => cut_in_turn(&mut cluster, relay, args.seconds, most)?,
        _ => cluster.run_for(Duration::from_secs_f64(args.seconds))?,
    }
    let rate = (cluster.judge.count - before) as f64 / started.elapsed().as_secs_f64();
    let sample = cluster.sample()?;
    let has_all = cluster.settle(most)?;
    cluster.kill_all()?;
    if !has_all {
        cluster.judge.violations.push(format!("the members have not caught up after {} s", most.as_secs()));
    }
    Ok(report(args, fault, kind, &cluster, rate, &sample))
}

/// A member is cut off, then two of them (no quorum), then the sender; each time longer than a member may be silent.
fn cut_in_turn(cluster: &mut Cluster, relay: &mut RelayProcess, seconds: f64, most: Duration) -> Result<()> {
    let part = Duration::from_secs_f64(seconds.max(1.0) / 3.0);
    for cut in [vec![0], vec![1, 2], vec![usize::from(MEMBERS)]] {
        relay.set(&Faults { cut, ..Faults::default() })?;
        cluster.run_for(part)?;
        relay.set(&Faults::default())?;
        if cluster.acknowledged_after(Instant::now(), None, most)?.is_none() {
            bail!("nothing is acknowledged {} s after a cut was healed", most.as_secs());
        }
    }
    Ok(())
}

fn report(args: &Args, fault: &Fault, kind: Kind, cluster: &Cluster, rate: f64, sample: &Sample) -> bool {
    let judge = &cluster.judge;
    let microseconds = |ns: u64| ns as f64 / 1e3;
    let sends = sample.sends as f64 / judge.newest().max(1) as f64;
    if args.json {
        println!(
            "{}",
            json!({ "fault": fault.name, "transport": kind.name(), "members": MEMBERS, "window": args.window,
                "per_second": rate, "p50_us": microseconds(sample.p50_ns), "p99_us": microseconds(sample.p99_ns),
                "acknowledged": judge.count, "resent": sample.resent, "sends_per_record": sends,
                "fragments": sample.fragments,
                "pages_compared": judge.compared, "violations": judge.violations })
        );
    } else {
        let verdict = if judge.violations.is_empty() {
            format!("nothing lost of {}", judge.count)
        } else {
            format!("VIOLATION {}", judge.violations.join("; "))
        };
        println!(
            "{:8} {:8} {rate:9.0} {:9.1} {:9.1} {:9} {sends:7.2}  {verdict}",
            fault.name,
            kind.name(),
            microseconds(sample.p50_ns),
            microseconds(sample.p99_ns),
            sample.resent,
        );
    }
    judge.violations.is_empty()
}
