//! A node that may send, on a pool: it writes records as fast as they are acknowledged, and tells each acknowledgement.
//!
//! The registry is in the harness: calls go out as lines, and answers come in as lines.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use lodestone_fabric::{
    Clock, Error, Leader, Lease, Moment, NodeId, Outbound, Packet, RegistryAnswer, RegistryCall, Sender, SenderEvent,
    SenderOptions, Sequence, Term, Transport, View, VolumeState,
};
use lodestone_pmem::DomainChoice;
use lodestone_width::to_u64;

use crate::content;
use crate::network::{GROUP, Network, SALT};
use crate::pools;
use crate::words::{Order, Told, orders, tell};

/// Packets of a turn.
const BATCH_PACKETS: usize = 256;
/// Longest wait for a packet: lines of the harness are looked for after it.
const WAIT: Duration = Duration::from_millis(1);

/// Arguments of `fabric-node sender`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The pool of the ring; it is made if it is not there
    #[arg(long)]
    pool: PathBuf,

    /// Persistence domain
    #[arg(long, default_value = "auto")]
    domain: DomainChoice,

    /// Records that are under way at a time
    #[arg(long, default_value_t = 16)]
    window: u64,

    #[command(flatten)]
    network: Network,
}

struct Node {
    leader: Leader,
    transport: Box<dyn Transport>,
    clock: Clock,
    out: Outbound,
    members: Vec<NodeId>,
    window: u64,
    is_paused: bool,
    told_stable: Sequence,
    /// Records that are under way, and since when.
    since: VecDeque<(Sequence, Instant)>,
    /// Nanoseconds of acknowledged records.
    times: Vec<u64>,
}

/// Runs a sender.
pub fn run(args: &Args) -> Result<()> {
    let (_pool, ring) = pools::ring(&args.pool, args.domain)?;
    let tail = ring.last().0;
    let node = NodeId(args.network.node);
    let options = SenderOptions {
        node,
        group: GROUP,
        salt: SALT,
        payload_bytes_max: args.network.payload_bytes_max(),
        ..SenderOptions::default()
    };
    let mut node = Node {
        leader: Leader::new(node, GROUP, Sender::new(options, ring)),
        transport: args.network.open()?,
        clock: Clock::default(),
        out: Outbound::default(),
        members: args.network.members(),
        window: args.window,
        is_paused: false,
        told_stable: Sequence(0),
        since: VecDeque::new(),
        times: Vec::new(),
    };
    tell(&Told::Started { transport: node.transport.name().to_owned(), tail })?;
    let orders = orders();
    while node.obey(&orders)? {
        node.turn()?;
    }
    Ok(())
}

impl Node {
    /// Takes the harness's lines in. `false`: it is gone.
    fn obey(&mut self, orders: &Receiver<Order>) -> Result<bool> {
        loop {
            match orders.try_recv() {
                Ok(order) => self.obey_one(&order)?,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn obey_one(&mut self, order: &Order) -> Result<()> {
        let now = self.clock.now();
        let answer = match *order {
            Order::Registry { term, sender, change } => RegistryAnswer::State(VolumeState {
                term: Term(term),
                sender: NodeId(sender),
                change,
                groups: vec![(GROUP, View::of(&self.members))],
            }),
            Order::Held { ns, asked } => RegistryAnswer::Lease(Lease::Held(ns), Moment(asked)),
            Order::Wait { ns } => RegistryAnswer::Lease(Lease::Wait(ns), now),
            Order::Lost { term } => RegistryAnswer::Lease(Lease::Lost(Term(term)), now),
            Order::Lead => {
                self.leader.claim(now);
                return Ok(());
            }
            Order::Pause => {
                self.is_paused = true;
                self.told_stable = Sequence(0);
                return Ok(());
            }
            Order::Go => {
                self.is_paused = false;
                return Ok(());
            }
            Order::Sample => return self.tell_sample(),
        };
        self.leader.answered(now, answer, &mut self.out);
        Ok(())
    }

    /// One turn: packets, what is due, further records, one fence for them.
    fn turn(&mut self) -> Result<()> {
        let (leader, out, clock) = (&mut self.leader, &mut self.out, self.clock);
        self.transport.poll(WAIT, BATCH_PACKETS, &mut |bytes| match Packet::decode(bytes) {
            Ok(packet) => leader.volume_mut().packet(clock.now(), &packet, out),
            Err(_) => Ok(()),
        })?;
        let events = self.leader.tick(self.clock.now(), &mut self.out)?;
        self.tell_events(&events)?;
        for call in self.leader.take_calls() {
            self.tell_call(&call)?;
        }
        self.write()?;
        self.leader.sender_mut().pump(self.clock.now(), &mut self.out);
        self.transport.send(&self.out.packets)?;
        self.out.packets.clear();
        // The records, before any caller is told that they survive a crash of this node. They travel already.
        self.leader.sender_mut().fence()?;
        self.tell_stable()
    }

    fn tell_events(&mut self, events: &[SenderEvent]) -> Result<()> {
        let term = self.leader.sender().term().0;
        for event in events {
            match event {
                SenderEvent::Ready => {
                    self.since.clear();
                    tell(&Told::Ready { term, base: self.leader.sender().base().0 })?;
                }
                SenderEvent::Deposed(term) => tell(&Told::Deposed { term: term.0 })?,
                SenderEvent::Acknowledged(_) | SenderEvent::Adopted { .. } => {}
            }
        }
        let newest = events.iter().rev().find_map(|event| match event {
            SenderEvent::Acknowledged(sequence) => Some(*sequence),
            _ => None,
        });
        let Some(sequence) = newest else { return Ok(()) };
        tell(&Told::Acknowledged { term, sequence: sequence.0 })?;
        while let Some((_, since)) = self.since.front().filter(|(waiting, _)| *waiting <= sequence) {
            self.times.push(u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX));
            self.since.pop_front();
        }
        Ok(())
    }

    fn tell_call(&self, call: &RegistryCall) -> Result<()> {
        match call {
            RegistryCall::State => tell(&Told::State),
            RegistryCall::Claim(_, seen) => tell(&Told::Claim { seen: seen.0 }),
            RegistryCall::Renew(term) => tell(&Told::Renew { term: term.0, asked: self.clock.now().0 }),
            // The members of these groups do not change.
            RegistryCall::Change(..) => Ok(()),
        }
    }

    /// Submits records until the window is full.
    fn write(&mut self) -> Result<()> {
        while !self.is_paused && self.leader.sender().is_sending() && self.leader.is_leading() {
            let sender = self.leader.sender();
            let (next, term) = (sender.ring().last().next(), sender.term().0);
            let under_way = next.0 - sender.acknowledged().0.max(sender.base().0);
            if under_way > self.window || content::gate(next.0) > sender.stable() {
                return Ok(());
            }
            let (submission, body) = content::record(term, next.0);
            match self.leader.sender_mut().submit(&submission, body) {
                Ok(sequence) => self.since.push_back((sequence, Instant::now())),
                Err(Error::Busy { .. } | Error::Full { .. } | Error::NotSender { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// While it pauses: that every member has everything.
    fn tell_stable(&mut self) -> Result<()> {
        let sender = self.leader.sender();
        let (stable, last) = (sender.stable(), sender.ring().last());
        if self.is_paused && sender.is_sending() && stable == last && stable > self.told_stable {
            self.told_stable = stable;
            tell(&Told::Stable { sequence: stable.0 })?;
        }
        Ok(())
    }

    fn tell_sample(&mut self) -> Result<()> {
        let mut times = std::mem::take(&mut self.times);
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        let (counts, sender) = (self.transport.counts(), self.leader.sender().counts());
        tell(&Told::Sample {
            records: to_u64(times.len()),
            p50_ns: at(50),
            p99_ns: at(99),
            resent: sender.resent,
            sends: counts.sends,
            fragments: sender.fragments,
        })
    }
}
