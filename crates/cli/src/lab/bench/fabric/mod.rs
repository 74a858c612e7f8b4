//! `lodestone bench fabric`: records that a quorum of replicas has durably, by transport and number of replicas.
//! Beside them durable writes of one copy, and of copies that a stream each is written to.
//!
//! One thread submits records as long as fewer than `--window` are under way: with 1, the default, it waits until a
//! quorum has the record. Members of `switch` run in its turn, in the same thread; those of the other transports have a
//! thread each. Counts are exact: sends for each fragment,
//! packets for each write, fences for each batch of a member.

mod plain;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use lodestone_fabric::{
    ApplyLog, FLAG_SYNC, GroupId, KeyRing, MemberDriver, NodeId, Outgoing, PACKET_HEAD_BYTES, PageArea, PagePair,
    Peers, Receiver, ReceiverOptions, Ring, SEAL_BYTES, SealedTransport, Secret, Sender, SenderDriver, SenderOptions,
    Sequence, Submission, SwitchNetwork, TcpTransport, Term, Transport, TransportCounts, UdpOptions, UdpTransport,
    View, ViewNumber, pages_body,
};
use lodestone_pmem::{Memory, PmAddr};
use serde::Serialize;

use lodestone_cli::output::{Output, table};

const AFTER_HELP: &str = "\
Examples:
  lodestone bench fabric
  lodestone bench fabric --transport switch,udp,unicast --members 2,3 --json
  lodestone bench fabric --transport udp --members 3 --operations 100000
  lodestone bench fabric --transport udp,tcp --members 3 --sealed
  lodestone bench fabric --transport udp --members 3 --lose 1
  lodestone bench fabric --transport udp,unicast --members 3 --window 16

All nodes are threads of this process, on the loopback interface, with memory of the domain dax-emulated. So the figures
are those of the software, without a network card and without a medium. Packets are plain here unless --sealed is
given. The rows `one copy` and `streams` are no fabric: the same pages, written durably once in this process, and to
each replica over a connection of its own, without an order, takeovers or repair.";

const GROUP: GroupId = GroupId(1);
const SALT: u64 = 0xFAB;
const SENDER: NodeId = NodeId(1000);
const PAGES: u64 = 1024;

/// Arguments of `lodestone bench fabric`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Transports: switch (in one thread), udp (multicast), unicast, tcp
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "switch,udp,unicast,tcp")]
    transport: Vec<String>,

    /// Numbers of replicas
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,2,3")]
    members: Vec<u16>,

    /// Bytes of a record's page: a multiple of 64
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(64..=65536))]
    bytes: u32,

    /// Records of a run
    #[arg(long, value_name = "COUNT", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,

    /// Packets that are lost, of a hundred
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    lose: f64,

    /// Seal packets with AES-128-GCM
    #[arg(long)]
    sealed: bool,

    /// Longest datagram; a record has at most 64 of them
    #[arg(long, value_name = "BYTES", default_value_t = 8972, value_parser = clap::value_parser!(u16).range(256..=65_507))]
    datagram: u16,

    /// Records under way at a time
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=512))]
    window: u64,
}

/// The figures of a run.
#[derive(Serialize)]
struct Figures {
    kind: &'static str,
    transport: &'static str,
    members: u16,
    bytes: u32,
    operations: u64,
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    fragments_per_write: f64,
    sends_per_write: f64,
    reports_per_write: f64,
    fences_per_record: f64,
    resent: u64,
    lose_percent: f64,
    sealed: bool,
    window: u64,
    datagram: u16,
    domain: &'static str,
}

/// Multicast beside unicast, with the same number of replicas: how many times the records, and what share of the sends.
#[derive(Serialize)]
struct Ratio {
    kind: &'static str,
    members: u16,
    durable_ratio: f64,
    sends_ratio: f64,
}

/// The figures of what is no fabric.
#[derive(Serialize)]
struct PlainFigures {
    kind: &'static str,
    members: u16,
    bytes: u32,
    operations: u64,
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    domain: &'static str,
}

/// The domain of all pools.
const DOMAIN: &str = "dax-emulated";

/// Runs `lodestone bench fabric`.
pub fn run(args: &Args, output: &Output) -> Result<()> {
    ensure!(args.bytes.is_multiple_of(64), "--bytes needs a multiple of 64");
    ensure!((0.0..=50.0).contains(&args.lose), "--lose needs 0 to 50 percent");
    let fragments = usize::try_from(args.bytes)?.div_ceil(payload_bytes(args));
    ensure!(fragments < 64, "--bytes {} takes more than 64 packets of --datagram {}", args.bytes, args.datagram);
    let mut all: Vec<Figures> = Vec::new();
    let mut shown = table(&[
        "transport",
        "replicas",
        "durable/s",
        "p50 us",
        "p99 us",
        "fragments",
        "sends",
        "reports",
        "fences/record",
        "resent",
    ]);
    for (index, name) in args.transport.iter().enumerate() {
        for &members in &args.members {
            ensure!((1..=32).contains(&members), "--members needs 1 to 32");
            let figures = measure(args, name, members, u16::try_from(index * 64 + usize::from(members))?)?;
            if output.is_json() {
                output.json(&figures)?;
            }
            shown.add_row([
                figures.transport.to_owned(),
                members.to_string(),
                format!("{:.0}", figures.per_second),
                format!("{:.1}", figures.p50_us),
                format!("{:.1}", figures.p99_us),
                format!("{:.2}", figures.fragments_per_write),
                format!("{:.2}", figures.sends_per_write),
                format!("{:.2}", figures.reports_per_write),
                format!("{:.2}", figures.fences_per_record),
                figures.resent.to_string(),
            ]);
            all.push(figures);
        }
    }
    for (name, members, plain) in beside(args)? {
        let operations = args.operations;
        let figures = PlainFigures {
            kind: name,
            members,
            bytes: args.bytes,
            operations,
            per_second: operations as f64 / plain.seconds,
            p50_us: plain.times.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: plain.times.value_at_quantile(0.99) as f64 / 1e3,
            domain: DOMAIN,
        };
        if output.is_json() {
            output.json(&figures)?;
        }
        let numbers = [figures.per_second, figures.p50_us, figures.p99_us];
        let mut row = vec![name.to_owned(), members.to_string(), format!("{:.0}", numbers[0])];
        row.extend(numbers[1..].iter().map(|number| format!("{number:.1}")));
        shown.add_row(row);
    }
    if output.is_json() {
        return ratios(&all).iter().try_for_each(|ratio| output.json(ratio));
    }
    let under_way = args.window;
    output.line(&format!("{} bytes, domain {DOMAIN}, loopback, {under_way} under way\n{shown}", args.bytes))?;
    for Ratio { members, durable_ratio, sends_ratio, .. } in ratios(&all) {
        output.line(&format!(
            "multicast : unicast, {members} replicas: {durable_ratio:.2} of the records a second, {sends_ratio:.2} of the sends"
        ))?;
    }
    Ok(())
}

/// Of each number of replicas that was measured with both.
fn ratios(all: &[Figures]) -> Vec<Ratio> {
    let of = |transport: &str| all.iter().filter(move |figures| figures.transport == transport).collect::<Vec<_>>();
    let (multicast, unicast) = (of("udp"), of("unicast"));
    let pair = |one: &&Figures| {
        let other = unicast.iter().find(|other| other.members == one.members)?;
        Some(Ratio {
            kind: "multicast : unicast",
            members: one.members,
            durable_ratio: one.per_second / other.per_second,
            sends_ratio: one.sends_per_write / other.sends_per_write,
        })
    };
    multicast.iter().filter_map(pair).collect()
}

/// One copy, and streams to as many replicas as were asked for.
fn beside(args: &Args) -> Result<Vec<(&'static str, u16, plain::Plain)>> {
    let mut all = vec![("one copy", 1, plain::local(args.bytes, args.operations)?)];
    for &members in &args.members {
        all.push(("streams", members, plain::streams(args.bytes, members, args.operations)?));
    }
    Ok(all)
}

type Boxed = Box<dyn Transport + Send>;

/// The sender's transport, and those of the members.
type Transports = (Boxed, Vec<Boxed>);

/// Loses some of what another transport is to send.
struct Losing {
    inner: Boxed,
    /// Of 2^32.
    share: u64,
    state: u64,
}

impl Transport for Losing {
    fn send(&mut self, packets: &[Outgoing]) -> lodestone_fabric::Result<()> {
        let mut kept = Vec::with_capacity(packets.len());
        for packet in packets {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if self.state >> 32 >= self.share {
                kept.push(packet.clone());
            }
        }
        self.inner.send(&kept)
    }

    fn poll(
        &mut self,
        wait: Duration,
        most: usize,
        receive: &mut dyn FnMut(&[u8]) -> lodestone_fabric::Result<()>,
    ) -> lodestone_fabric::Result<usize> {
        self.inner.poll(wait, most, receive)
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

/// A transport with the losses and the seal that were asked for.
fn dressed(args: &Args, transport: Boxed, node: NodeId) -> Boxed {
    let mut transport = transport;
    if args.lose > 0.0 {
        let share = (args.lose / 100.0 * 4_294_967_296.0) as u64;
        transport = Box::new(Losing { inner: transport, share, state: u64::from(node.0) });
    }
    if args.sealed {
        let mut keys = KeyRing::default();
        keys.hand(GROUP, ViewNumber(0), Secret::of([0x5A; 32]));
        transport = Box::new(SealedTransport::new(transport, node, 1, keys));
    }
    transport
}

/// Longest payload of a packet's record.
fn payload_bytes(args: &Args) -> usize {
    usize::from(args.datagram) - PACKET_HEAD_BYTES - if args.sealed { SEAL_BYTES } else { 0 }
}

fn tcp(members: u16) -> Result<Transports> {
    let nodes: Vec<NodeId> = (1..=members).map(NodeId).collect();
    let bind = |node: NodeId| TcpTransport::bind(node, ([127, 0, 0, 1], 0).into());
    let mut own = bind(SENDER)?;
    let mut others = nodes.iter().map(|node| bind(*node)).collect::<Result<Vec<_>, _>>()?;
    let mut peers = Peers::from([(SENDER, own.address()?)]);
    for (node, transport) in nodes.iter().zip(&others) {
        peers.insert(*node, transport.address()?);
    }
    own.connect(peers.clone(), nodes.clone());
    others.iter_mut().for_each(|other| other.connect(peers.clone(), nodes.clone()));
    Ok((Box::new(own), others.into_iter().map(|other| -> Boxed { Box::new(other) }).collect()))
}

fn transports(args: &Args, name: &str, members: u16, port: u16) -> Result<Transports> {
    let (own, others) = if name == "tcp" { tcp(members)? } else { packets(name, members, port)? };
    let others = (1..).map(NodeId).zip(others).map(|(node, other)| dressed(args, other, node)).collect();
    Ok((dressed(args, own, SENDER), others))
}

fn packets(name: &str, members: u16, port: u16) -> Result<Transports> {
    let nodes: Vec<NodeId> = (1..=members).map(NodeId).collect();
    let group = match name {
        "switch" => {
            let all: Vec<(NodeId, bool)> = nodes.iter().map(|node| (*node, true)).chain([(SENDER, false)]).collect();
            let mut ports = SwitchNetwork::list(&all);
            let sender = ports.pop().context("a port")?;
            let others = ports.into_iter().map(|port| -> Boxed { Box::new(port) });
            return Ok((Box::new(sender), others.collect()));
        }
        "udp" => Some(47_200 + port),
        "unicast" => None,
        other => bail!("no transport `{other}`; there are switch, udp, unicast, tcp"),
    };
    let mut own = UdpTransport::bind(SENDER, &UdpOptions::loopback(group, false))?;
    let bind = |node: &NodeId| UdpTransport::bind(*node, &UdpOptions::loopback(group, true));
    let mut others = nodes.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
    let mut peers = Peers::from([(SENDER, own.address()?)]);
    for (node, transport) in nodes.iter().zip(&others) {
        peers.insert(*node, transport.address()?);
    }
    own.connect(peers.clone(), nodes.clone());
    others.iter_mut().for_each(|other| other.connect(peers.clone(), nodes.clone()));
    Ok((Box::new(own), others.into_iter().map(|other| -> Boxed { Box::new(other) }).collect()))
}

fn member(args: &Args, node: NodeId) -> Result<Receiver> {
    let log_bytes = 16 << 20;
    let bytes = log_bytes + PageArea::bytes_for(args.bytes, PAGES);
    let (memory, at) = (Memory::anonymous(4096 + bytes)?, PmAddr::new(0, 4096));
    let log = ApplyLog::create(&memory, at, log_bytes, SALT)?;
    let pages = PageArea::open(&memory, at.plus(log_bytes), bytes - log_bytes, args.bytes, PAGES)?;
    let payload_bytes_max = payload_bytes(args);
    let options = ReceiverOptions { node, group: GROUP, salt: SALT, payload_bytes_max, ..Default::default() };
    Ok(Receiver::new(options, log, pages))
}

fn measure(args: &Args, name: &str, members: u16, port: u16) -> Result<Figures> {
    let (own, others) = transports(args, name, members, port)?;
    let nodes: Vec<NodeId> = (1..=members).map(NodeId).collect();
    let memory = Memory::anonymous(9 << 20)?;
    let ring = Ring::create(&memory, PmAddr::new(0, 4096), 8 << 20, SALT)?;
    let payload_bytes_max = payload_bytes(args);
    let options = SenderOptions { node: SENDER, group: GROUP, salt: SALT, payload_bytes_max, ..Default::default() };
    let sender = SenderDriver::new(Sender::new(options, ring), own);
    let mut drivers = Vec::new();
    for (node, transport) in nodes.iter().zip(others) {
        drivers.push(MemberDriver::new(member(args, *node)?, transport));
    }
    if name == "switch" {
        return Run { args, sender }.go(&nodes, &mut drivers).and_then(|run| run.figures(members, &drivers));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = drivers
            .into_iter()
            .map(|mut driver| {
                let stop = &stop;
                scope.spawn(move || -> Result<_> {
                    while !stop.load(Ordering::Relaxed) {
                        driver.step(Duration::from_millis(1))?;
                    }
                    Ok(driver)
                })
            })
            .collect();
        let run = Run { args, sender }.go(&nodes, &mut []);
        stop.store(true, Ordering::Relaxed);
        let mut done = Vec::new();
        for thread in threads {
            done.push(thread.join().map_err(|_| anyhow::anyhow!("a member's thread panicked"))??);
        }
        run?.figures(members, &done)
    })
}

struct Run<'a> {
    args: &'a Args,
    sender: SenderDriver<Boxed>,
}

struct Done<'a> {
    run: Run<'a>,
    times: Histogram<u64>,
    seconds: f64,
    sends: u64,
    fragments: u64,
    received: u64,
}

impl<'a> Run<'a> {
    /// Takes over, then writes; members in `here` run in this thread.
    fn go(mut self, nodes: &[NodeId], here: &mut [MemberDriver<Boxed>]) -> Result<Done<'a>> {
        self.sender.with(|sender, now, out| {
            sender.take_over(now, Term(1), View::of(nodes), out);
            Ok(())
        })?;
        self.until(Sequence(1), here)?;
        let page = vec![7; usize::try_from(self.args.bytes)?];
        let mut times = Histogram::<u64>::new(3)?;
        let (counts, before) = (self.sender.transport().counts(), self.sender.sender().counts());
        let mut under_way = VecDeque::new();
        let started = Instant::now();
        for number in 0..self.args.operations {
            let begun = Instant::now();
            let pair = PagePair { new: 1 + number % (PAGES - 1), old: 0 };
            let submission = Submission { flags: FLAG_SYNC, count: 1, ..Submission::default() };
            let sequence = self.sender.submit(&submission, pages_body(&[(pair, &page)]))?;
            under_way.push_back((sequence, begun));
            let is_last = number + 1 == self.args.operations;
            let most = if is_last { 0 } else { usize::try_from(self.args.window)? - 1 };
            while under_way.len() > most {
                self.until(under_way.front().map_or(sequence, |first| first.0), here)?;
                let acknowledged = self.sender.acknowledged();
                while let Some((_, begun)) = under_way.front().filter(|first| first.0 <= acknowledged) {
                    times.record(u64::try_from(begun.elapsed().as_nanos())?)?;
                    under_way.pop_front();
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let after = self.sender.transport().counts();
        let fragments = self.sender.sender().counts().fragments - before.fragments;
        let (sends, received) = (after.sends - counts.sends, after.received - counts.received);
        Ok(Done { times, seconds, sends, fragments, received, run: self })
    }

    fn until(&mut self, sequence: Sequence, here: &mut [MemberDriver<Boxed>]) -> Result<()> {
        let started = Instant::now();
        while self.sender.acknowledged() < sequence {
            for member in here.iter_mut() {
                member.step(Duration::ZERO)?;
            }
            let wait = if here.is_empty() { Duration::from_millis(1) } else { Duration::ZERO };
            self.sender.step(wait)?;
            ensure!(started.elapsed() < Duration::from_secs(30), "{sequence} is not acknowledged after 30 s");
        }
        Ok(())
    }
}

impl Done<'_> {
    fn figures(self, members: u16, drivers: &[MemberDriver<Boxed>]) -> Result<Figures> {
        let operations = self.run.args.operations as f64;
        let (mut fences, mut exposed) = (0, 0);
        for driver in drivers {
            let counts = driver.receiver().counts();
            // Each fence is that of a batch which exposed something, and no batch has two.
            ensure!(counts.batch_fences <= counts.exposed, "more fences than records: {counts:?}");
            fences += counts.batch_fences;
            exposed += counts.exposed;
            ensure!(counts.mark_fences == 0, "no page was used again");
        }
        Ok(Figures {
            kind: "fabric",
            transport: self.run.sender.transport().name(),
            members,
            bytes: self.run.args.bytes,
            operations: self.run.args.operations,
            per_second: operations / self.seconds,
            p50_us: self.times.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: self.times.value_at_quantile(0.99) as f64 / 1e3,
            fragments_per_write: self.fragments as f64 / operations,
            sends_per_write: self.sends as f64 / operations,
            reports_per_write: self.received as f64 / operations,
            fences_per_record: fences as f64 / exposed as f64,
            resent: self.run.sender.sender().counts().resent,
            lose_percent: self.run.args.lose,
            sealed: self.run.args.sealed,
            window: self.run.args.window,
            datagram: self.run.args.datagram,
            domain: DOMAIN,
        })
    }
}
