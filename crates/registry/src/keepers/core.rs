//! The core of a keeper: messages, requests and time go in, messages and answers come out.
//!
//! 1. *In*: a request of a client becomes a command, if this keeper leads. It waits under the index and term of its
//!    entry. Messages of others and the passing of time go to Raft.
//! 2. *Pump*: what Raft wants to keep is written and made durable in one step. Only then do its messages leave, and
//!    committed entries are applied. An entry that is applied under its index and term answers the request that waits
//!    there. Under another term the request was overtaken, and is answered as unknown.
//!
//! *Leases*: see [`Table`](crate::Table). `ends` has the moment by this keeper's clock at which each lease ends: a
//! whole lease after the keeper applied its number, or began its life.
//!
//! Time that a seed repeats: Raft draws the time after which it wants to lead. It is drawn here instead.

use std::collections::BTreeMap;

use lodestone_fabric::{LEASE_NS, Moment, NodeId};
use lodestone_pmem::{Memory, PmAddr, planted};
use lodestone_width::{to_u64, to_usize};
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Config, RawNode, StateRole};

use super::disk::Disk;
use super::{KeeperId, frame, rules};
use crate::error::{Error, Result};
use crate::table::{Answer, COMMAND_BYTES_MAX, Command, Request, Table, VolumeId};

/// Nanoseconds of a tick.
pub const TICK_NS: u64 = 25_000_000;
/// Ticks between beats of the leader.
const BEAT_TICKS: usize = 2;
/// Ticks without a beat after which a keeper wants to lead: from here to twice as many.
const ELECTION_TICKS: usize = 12;
/// Requests that wait at once.
const WAITING_MAX: usize = 1024;
/// Bytes of entries in one message.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;
/// A wait for a lease is at least so long: the keeper that asks again finds it over.
const WAIT_NS_MIN: u64 = 1_000_000;

/// A keeper.
#[derive(Clone, Copy, Debug)]
pub struct KeeperOptions {
    /// Its number, among those of the registry.
    pub id: KeeperId,
    /// The number of the registry, drawn when it was made: messages of another registry are refused.
    pub registry: u64,
    /// The seed that its elections draw from: another number for each life, or a fixed one in a simulation.
    pub seed: u64,
}

/// The name of a request, given by the driver and returned with the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Messages and answers that leave a keeper.
#[derive(Debug, Default)]
pub struct KeeperOutbound {
    /// Messages to other keepers.
    pub messages: Vec<(KeeperId, Vec<u8>)>,
    /// Answers to requests.
    pub answers: Vec<(Token, Answer)>,
}

/// Counts of a life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperCounts {
    /// Messages that were taken.
    pub messages: u64,
    /// Messages that were refused: damaged, of no keeper, or against a rule.
    pub refused: u64,
    /// Requests that became entries.
    pub proposed: u64,
    /// Entries that were applied.
    pub applied: u64,
    /// Times that this keeper began to lead.
    pub elections: u64,
    /// Batches that were made durable.
    pub settled: u64,
}

/// A keeper.
pub struct Keeper {
    id: KeeperId,
    registry: u64,
    node: RawNode<Disk>,
    /// Requests that wait, by the index of their entry, with its term.
    waiting: BTreeMap<u64, (u64, Token, VolumeId)>,
    /// The number of the newest lease of a volume, and the moment of its end.
    ends: BTreeMap<VolumeId, (u64, Moment)>,
    tick_at: Option<Moment>,
    /// Draws times of elections.
    random: u64,
    /// The time of the next election in ticks, and the state for which it was drawn.
    election: (usize, (u64, StateRole, u64)),
    is_leading: bool,
    counts: KeeperCounts,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("id", &self.id).field("counts", &self.counts).finish_non_exhaustive()
    }
}

fn refused(doing: &'static str) -> impl FnOnce(raft::Error) -> Error {
    move |error| Error::Consensus { doing, reason: error.to_string() }
}

impl Keeper {
    /// Makes a new keeper among `keepers` in `bytes` bytes at `at`: durable on return. All keepers of a registry are
    /// made with the same list.
    ///
    /// # Errors
    /// [`Error::Keepers`] for an impossible list; a range that is too small; a device that failed.
    pub fn create(
        options: KeeperOptions,
        memory: &Memory,
        at: PmAddr,
        bytes: u64,
        keepers: &[KeeperId],
    ) -> Result<Self> {
        if !keepers.contains(&options.id) {
            return Err(Error::Keepers(format!("{} is not among the keepers of the registry", options.id)));
        }
        Self::over(options, Disk::create(memory, at, bytes, options.registry, keepers)?)
    }

    /// Opens the keeper at `at`.
    ///
    /// # Errors
    /// [`Error::NoKeeper`]; damage; a device that failed.
    pub fn open(options: KeeperOptions, memory: &Memory, at: PmAddr, bytes: u64) -> Result<Self> {
        Self::over(options, Disk::open(memory, at, bytes, options.registry)?)
    }

    fn over(options: KeeperOptions, disk: Disk) -> Result<Self> {
        if !disk.keepers().contains(&options.id) {
            return Err(Error::Keepers(format!("{} is not among the keepers of this log", options.id)));
        }
        let config = Config {
            applied: disk.base(),
            election_tick: ELECTION_TICKS,
            heartbeat_tick: BEAT_TICKS,
            check_quorum: true,
            pre_vote: true,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_uncommitted_size: 16 * MESSAGE_BYTES_MAX,
            ..Config::new(options.id.0)
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, disk, &logger).map_err(refused("the start"))?;
        let mut keeper = Self {
            id: options.id,
            registry: options.registry,
            node,
            waiting: BTreeMap::new(),
            ends: BTreeMap::new(),
            tick_at: None,
            random: options.seed ^ (options.id.0 << 48),
            election: (ELECTION_TICKS, (0, StateRole::Follower, u64::MAX)),
            is_leading: false,
            counts: KeeperCounts::default(),
        };
        keeper.draw_election();
        Ok(keeper)
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> KeeperId {
        self.id
    }

    /// The keepers of the registry.
    #[must_use]
    pub fn keepers(&self) -> &[KeeperId] {
        self.disk().keepers()
    }

    /// Whether it leads, as far as it knows.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// The keeper that leads, if one is known.
    #[must_use]
    pub fn leader(&self) -> Option<KeeperId> {
        Some(KeeperId(self.node.raft.leader_id)).filter(|leader| leader.0 > 0)
    }

    /// The term of the keepers, which has nothing to do with terms of volumes.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// The keeper that it voted for in this term.
    #[must_use]
    pub fn vote(&self) -> Option<KeeperId> {
        Some(KeeperId(self.node.raft.vote)).filter(|vote| vote.0 > 0)
    }

    /// Entries that were applied.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.disk().applied
    }

    /// The table as this keeper has it: it may be an old one.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.disk().table
    }

    /// Counts of this life.
    #[must_use]
    pub const fn counts(&self) -> KeeperCounts {
        self.counts
    }

    fn disk(&self) -> &Disk {
        self.node.store()
    }

    /// When [`tick`](Self::tick) has something to do. `None`: at once, because it was never called.
    #[must_use]
    pub const fn wake_at(&self) -> Option<Moment> {
        self.tick_at
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// A device that failed: the keeper must stop.
    pub fn tick(&mut self, now: Moment, out: &mut KeeperOutbound) -> Result<()> {
        // Leases of a former life may be held: they count from the beginning of this one.
        self.note_leases(now);
        let due = self.tick_at.is_none_or(|at| now >= at);
        if due {
            self.tick_at = Some(now.plus(TICK_NS));
            self.node.tick();
            if self.node.raft.election_elapsed == 0 {
                // An election begins again. With the same time as another keeper's none would ever win.
                self.election.1.2 = u64::MAX;
            }
            self.draw_election();
        }
        self.pump(now, out)
    }

    /// A message of another keeper arrived. One that is damaged or breaks a rule is counted and dropped.
    ///
    /// # Errors
    /// A device that failed: the keeper must stop.
    pub fn message(&mut self, now: Moment, bytes: &[u8], out: &mut KeeperOutbound) -> Result<()> {
        self.note_leases(now);
        let message = frame::decode(self.registry, self.keepers(), bytes);
        let message = message.filter(|message| rules::may_step(&self.node.raft, message));
        let Some(message) = message else {
            self.counts.refused += 1;
            return Ok(());
        };
        self.counts.messages += 1;
        if self.node.step(message).is_err() {
            self.counts.refused += 1;
        }
        self.draw_election();
        self.pump(now, out)
    }

    /// A client asks. The answer comes out now or later under `token`, or never if this keeper stops.
    ///
    /// # Errors
    /// A device that failed: the keeper must stop.
    pub fn request(
        &mut self,
        now: Moment,
        token: Token,
        volume: VolumeId,
        request: Request,
        out: &mut KeeperOutbound,
    ) -> Result<()> {
        self.request_of(now, token, None, (volume, request), out)
    }

    /// As [`request`](Self::request), of a node that may do only what members of the volume may.
    ///
    /// # Errors
    /// A device that failed: the keeper must stop.
    pub fn request_of(
        &mut self,
        now: Moment,
        token: Token,
        node: Option<NodeId>,
        (volume, request): (VolumeId, Request),
        out: &mut KeeperOutbound,
    ) -> Result<()> {
        self.note_leases(now);
        if !self.is_leading() {
            let leader = self.leader().map_or(0, |leader| lodestone_width::low_u16(leader.0));
            out.answers.push((token, Answer::NotLeader(leader)));
            return Ok(());
        }
        let mut command = Command::new(volume, request, node);
        if let Request::Renew(term) = command.request {
            command.over = self.lease_over(now, volume, term).unwrap_or(command.over);
            if let Some(answer) = self.renewed_alone(now, &command) {
                out.answers.push((token, answer));
                return Ok(());
            }
        }
        let bytes = command.to_bytes();
        let is_too_large = bytes.len() > COMMAND_BYTES_MAX;
        if is_too_large || self.waiting.len() >= WAITING_MAX {
            let reason = if is_too_large { "the request is too large" } else { "too many requests wait; ask again" };
            out.answers.push((token, Answer::Refused(reason.to_owned())));
            return Ok(());
        }
        match self.node.propose(Vec::new(), bytes) {
            Ok(()) => {
                self.counts.proposed += 1;
                let raft = &self.node.raft;
                self.waiting.insert(raft.raft_log.last_index(), (raft.term, token, volume));
            }
            Err(_) => out.answers.push((token, Answer::Refused("too many requests wait; ask again".to_owned()))),
        }
        self.pump(now, out)
    }

    /// The planted way to renew: from memory, without the others.
    fn renewed_alone(&self, now: Moment, command: &Command) -> Option<Answer> {
        let Request::Renew(term) = command.request else { return None };
        let is_held = self.table().state(command.volume)?.term == term
            && self.table().foreign_lease(command.volume, term).is_none()
            && self.ends.get(&command.volume).is_some_and(|end| now < end.1);
        (is_held && planted::active("registry-renewed-by-one-keeper")).then_some(Answer::Held(LEASE_NS))
    }

    /// The number of the lease of another term, if it is over by this keeper's clock.
    fn lease_over(&self, now: Moment, volume: VolumeId, term: lodestone_fabric::Term) -> Option<u64> {
        let number = self.table().foreign_lease(volume, term)?;
        let (noted, end) = self.ends.get(&volume).copied()?;
        (noted == number && now >= end).then_some(number)
    }

    /// Every lease that this keeper has not noted yet ends a whole lease from now.
    fn note_leases(&mut self, now: Moment) {
        let new: Vec<(VolumeId, u64)> = self
            .table()
            .leases()
            .filter(|(volume, number)| self.ends.get(volume).is_none_or(|noted| noted.0 != *number))
            .collect();
        let length = if planted::active("registry-lease-forgotten") { 0 } else { LEASE_NS };
        for (volume, number) in new {
            self.ends.insert(volume, (number, now.plus(length)));
        }
    }

    /// Does everything that Raft has ready.
    fn pump(&mut self, now: Moment, out: &mut KeeperOutbound) -> Result<()> {
        while self.node.has_ready() {
            let mut ready = self.node.ready();
            let mut messages = ready.take_messages();
            let disk = self.node.raft.mut_store();
            if !ready.snapshot().is_empty() {
                disk.install(ready.snapshot())?;
            }
            let hard = ready.hs().filter(|_| ready.must_sync()).cloned();
            if let Some(hard) = ready.hs() {
                disk.committed(hard.commit);
            }
            let entries = ready.take_entries();
            disk.keep(hard.as_ref(), entries)?;
            disk.settle()?;
            self.counts.settled += u64::from(ready.must_sync());
            messages.extend(ready.take_persisted_messages());
            let mut committed = ready.take_committed_entries();
            let mut light = self.node.advance_append(ready);
            if let Some(commit) = light.commit_index() {
                self.node.raft.mut_store().committed(commit);
            }
            committed.extend(light.take_committed_entries());
            messages.extend(light.take_messages());
            self.apply(now, &committed, out);
            self.node.advance_apply();
            self.send(&messages, out);
        }
        self.note_role(out);
        Ok(())
    }

    fn apply(&mut self, now: Moment, entries: &[Entry], out: &mut KeeperOutbound) {
        for entry in entries {
            let disk = self.node.raft.mut_store();
            disk.applied = entry.index;
            // The first entry of a leader has nothing in it.
            let command = Command::from_bytes(&entry.data);
            let answer = command.map(|command| disk.table.apply(&command));
            self.counts.applied += 1;
            self.note_leases(now);
            let Some((term, token, volume)) = self.waiting.remove(&entry.index) else { continue };
            let answer = answer.filter(|_| term == entry.term).unwrap_or(Answer::Unknown);
            out.answers.push((token, self.with_time(now, volume, answer)));
        }
    }

    /// Puts the time into an answer that says to wait.
    fn with_time(&self, now: Moment, volume: VolumeId, answer: Answer) -> Answer {
        match answer {
            Answer::Wait(_) => {
                let ns = self.ends.get(&volume).map_or(LEASE_NS, |end| end.1.since(now));
                Answer::Wait(ns.max(WAIT_NS_MIN))
            }
            other => other,
        }
    }

    fn send(&mut self, messages: &[Message], out: &mut KeeperOutbound) {
        for message in messages {
            if let Some(bytes) = frame::encode(self.registry, message) {
                out.messages.push((KeeperId(message.to), bytes));
            }
            if message.get_msg_type() == MessageType::MsgSnapshot {
                // Whether it arrived shows in the next answer. Until then entries are not sent, so this asks again.
                self.node.report_snapshot(message.to, raft::SnapshotStatus::Finish);
            }
        }
    }

    /// Requests of a keeper that does not lead any more are unknown.
    fn note_role(&mut self, out: &mut KeeperOutbound) {
        let leads = self.is_leading();
        self.counts.elections += u64::from(leads && !self.is_leading);
        if self.is_leading && !leads {
            let waiting = std::mem::take(&mut self.waiting);
            out.answers.extend(waiting.into_values().map(|(_, token, _)| (token, Answer::Unknown)));
        }
        self.is_leading = leads;
    }

    /// Sets the time of the next election, and draws it when something happened that makes Raft draw.
    fn draw_election(&mut self) {
        let raft = &mut self.node.raft;
        let now = (raft.term, raft.state, raft.leader_id);
        if self.election.1 != now {
            // SplitMix64.
            self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            self.election = (ELECTION_TICKS + to_usize((mixed >> 33) % to_u64(ELECTION_TICKS)), now);
        }
        raft.set_randomized_election_timeout(self.election.0);
    }
}
