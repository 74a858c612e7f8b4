//! Clients of the sender: files of one page that they write, change in parts and read.
//!
//! The sender of each term derives the state of the files from its log, as a file system would from its operations:
//! here the judges know all records, so the state is asked from them.

use std::collections::BTreeMap;

use lodestone_fabric::{
    FLAG_INLINE, FLAG_MERGE, FLAG_SYNC, GroupId, Kind, Leader, NodeId, Packet, PacketHead, PagePair, PageStock,
    Payload, Reads, RecordHead, Result, Sequence, Submission, Term, Terms, merge_body, pages_body,
};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Event, World};
use crate::node::{Core, GROUP, Node};
use crate::oracle::{Made, Observed, Oracle};
use crate::orders::Wrote;

/// The record that wrote a file last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    group: GroupId,
    sequence: Sequence,
    page: u64,
    /// The number by which it is told: its operation's, or its own.
    told: Sequence,
}

impl From<Wrote> for Place {
    fn from(wrote: Wrote) -> Self {
        Self { group: wrote.unit, sequence: wrote.sequence, page: wrote.page, told: wrote.operation }
    }
}

/// Files and pages as a sender knows them.
#[derive(Default)]
struct Files {
    term: Term,
    files: BTreeMap<u64, Place>,
    stocks: BTreeMap<GroupId, PageStock>,
    reads: Reads,
}

/// A read that is not answered.
#[derive(Clone, Copy)]
struct Reading {
    term: Term,
    file: u64,
    began: u64,
    /// The record that is asked for, and the number of the request.
    found: Option<(Place, u32)>,
}

/// A ring before a takeover.
struct Before {
    terms: Terms,
    /// Ranges that the sender said it cut since.
    cuts: Vec<(Sequence, Sequence)>,
}

/// All clients.
#[derive(Default)]
pub struct Clients {
    files: BTreeMap<NodeId, Files>,
    readings: BTreeMap<(NodeId, u32), Reading>,
    number: u32,
    values: u64,
    /// Terms of the ring of a node before it took over, with what it said it cut since.
    before: BTreeMap<(NodeId, GroupId), Before>,
    /// The last record that a stopped sender had fenced, with its term.
    fenced: BTreeMap<NodeId, (Term, Sequence)>,
}

impl Clients {
    /// The node does not send any more, or crashed.
    pub(super) fn deposed(&mut self, node: NodeId) {
        self.files.remove(&node);
        self.readings.retain(|key, _| key.0 != node);
    }

    /// A node crashes.
    pub(super) fn stopped(&mut self, node: NodeId) {
        self.before.retain(|key, _| key.0 != node);
    }

    /// Records that a sender has fenced are told to those who write without waiting for others.
    pub(super) fn fenced(&mut self, node: NodeId, leader: &Leader) {
        if leader.volume().is_sending() {
            let sender = leader.sender();
            self.fenced.insert(node, (sender.term(), sender.ring().fenced()));
        }
    }

    pub(super) fn has_reads(&self) -> bool {
        !self.readings.is_empty()
    }

    pub(super) fn cut(&mut self, node: NodeId, group: GroupId, cut: (Term, Sequence, Sequence)) {
        if let Some(before) = self.before.get_mut(&(node, group)) {
            before.cuts.push((cut.1, cut.2));
        }
    }

    /// The sender of `term` begins with this log.
    pub(super) fn adopted(
        &mut self,
        oracle: &mut Oracle,
        (node, group): (NodeId, GroupId),
        ring: &Terms,
        cut: Option<(Term, Sequence, Sequence)>,
    ) {
        if let Some(cut) = cut {
            self.cut(node, group, cut);
        }
        // P8: records of the former ring that are not in the log any more were named.
        if let Some(Before { terms: before, cuts }) = self.before.remove(&(node, group)) {
            let (begin, last) = (before.base().0.max(ring.base().0), before.last().1);
            for sequence in (begin.0 + 1..=last.0).map(Sequence) {
                let is_named = cuts.iter().any(|(from, to)| (*from..=*to).contains(&sequence));
                let is_kept = before.term_of(sequence) == ring.term_of(sequence);
                if is_kept == is_named && before.term_of(sequence).is_some_and(|term| term > Term(0)) {
                    oracle.fail(|| format!("P8: {node} cut {sequence}: {}, said so: {is_named}", !is_kept));
                }
            }
        }
    }

    /// The sender of `term` begins with these operations, or with the log of the only group.
    pub(super) fn began(&mut self, oracle: &mut Oracle, node: NodeId, term: Term, ring: &Terms) {
        // A plain write survives if its sender comes back and no other one came between.
        if let Some((former, fenced)) = self.fenced.remove(&node)
            && former.0 + 1 == term.0
            && ring.last().1 < fenced
        {
            oracle
                .fail(|| format!("{node} had fenced {fenced} in {former}, and begins {term} after {}", ring.last().1));
        }
        self.files.remove(&node);
        self.files.insert(node, Files { term, ..Files::default() });
    }
}

impl World {
    /// Remembers the ring of a node that may take over now.
    pub(super) fn before_takeover(&mut self, id: NodeId) {
        let Some(leader) = self.nodes.get(&id).and_then(Node::leader) else { return };
        for sender in leader.volume().groups().filter(|sender| !sender.is_sending()) {
            let terms = sender.ring().terms().clone();
            self.clients.before.entry((id, sender.group())).or_insert_with(|| Before { terms, cuts: Vec::new() });
        }
    }

    /// The sender of a group is ready: its first record is made. When that is the group of the operations, or the only
    /// one, the state of the files follows from its log.
    pub(super) fn first_record(&mut self, id: NodeId, group: GroupId) {
        let Some(leader) = self.nodes.get(&id).and_then(Node::leader) else { return };
        let Some(sender) = leader.volume().group(group) else { return };
        let (term, first) = (sender.term(), sender.ring().last());
        let pair = PagePair { new: 0, old: 0 };
        let made = Made { began: self.now, files: Vec::new(), pair, content: Vec::new() };
        self.oracle_of(group).made(term, first, made);
        if group != leader_group(&self.plan) {
            return;
        }
        let files = if self.plan.units == 0 { self.files_of_the_group(term, first) } else { self.files_of(id, term) };
        self.clients.files.insert(id, files);
    }

    fn files_of_the_group(&self, term: Term, first: Sequence) -> Files {
        let place = |(sequence, page)| Place { group: GROUP, sequence, page, told: sequence };
        let files: BTreeMap<u64, Place> =
            self.oracle.state(term, first).into_iter().map(|(file, found)| (file, place(found))).collect();
        let mut freed: BTreeMap<u64, Sequence> = (1..self.plan.pages).map(|page| (page, Sequence(0))).collect();
        for (sequence, pair) in self.oracle.pairs(term) {
            freed.insert(pair.old, sequence);
        }
        files.values().for_each(|place| {
            freed.remove(&place.page);
        });
        Files { term, files, stocks: BTreeMap::from([(GROUP, stock_of(freed))]), reads: Reads::default() }
    }

    /// The files of a volume. Its free pages count as used by the last adopted record of their unit.
    fn files_of(&mut self, id: NodeId, term: Term) -> Files {
        self.orders.adopted(&mut self.oracle, term);
        let state = self.orders.state(&self.oracle, term);
        let files: BTreeMap<u64, Place> = state.into_iter().map(|(file, wrote)| (file, wrote.into())).collect();
        let mut stocks = BTreeMap::new();
        let Some(leader) = self.nodes.get(&id).and_then(Node::leader) else { return Files::default() };
        for unit in leader.volume().groups().map(lodestone_fabric::Sender::group).skip(1) {
            let from = leader.volume().pages_free_from(unit);
            let mut freed: BTreeMap<u64, Sequence> = (1..self.plan.pages).map(|page| (page, from)).collect();
            files.values().filter(|place| place.group == unit).for_each(|place| {
                freed.remove(&place.page);
            });
            stocks.insert(unit, stock_of(freed));
        }
        Files { term, files, stocks, reads: Reads::default() }
    }

    /// Nodes that believe to be the sender, perhaps wrongly.
    fn sending(&self) -> Vec<NodeId> {
        let sends = |node: &&Node| node.leader().is_some_and(|leader| leader.volume().is_sending());
        self.nodes.values().filter(sends).map(|node| node.id).collect()
    }

    pub(super) fn write(&mut self) -> Result<()> {
        let ns = self.around(self.plan.write_ns);
        let pause = if self.random.random_range(0..200) == 0 { self.random.random_range(0..50_000_000) } else { 0 };
        if self.healed.is_none() {
            self.after(ns + pause, Event::Write);
        }
        let Some(id) = self.sending().choose(&mut self.random).copied() else { return Ok(()) };
        let count = self.random.random_range(1..=3);
        let fences_first = self.random.random::<bool>();
        for _ in 0..count {
            self.write_one(id)?;
        }
        self.act(id, |core, now, out| {
            let Core::Sender(leader) = core else { return Ok(()) };
            if !fences_first {
                leader.volume_mut().pump(now, out);
            }
            // Before plain writes are answered.
            leader.volume_mut().fence()?;
            leader.volume_mut().pump(now, out);
            Ok(())
        })
    }

    /// The group of a file's pages.
    fn group_of_file(&self, file: u64) -> GroupId {
        let units = u64::from(self.plan.units);
        if units == 0 { GROUP } else { GroupId(1 + (file % units) as u32) }
    }

    fn write_one(&mut self, id: NodeId) -> Result<()> {
        let (file, value) = (self.random.random_range(1..=self.plan.files), self.clients.values + 1);
        let draw = |random: &mut rand_chacha::ChaCha8Rng, ppm| random.random_range(0..1_000_000) < ppm;
        let (is_merge, is_inline) =
            (draw(&mut self.random, self.plan.merges), draw(&mut self.random, self.plan.inline));
        let sync = if draw(&mut self.random, self.plan.sync) { FLAG_SYNC } else { 0 };
        let size = self.plan.page_bytes as usize;
        let (at, length) = (self.random.random_range(0..size - 1), self.random.random_range(1..64));
        let mut files = if is_inline { Vec::new() } else { vec![file] };
        if self.plan.units > 1 && draw(&mut self.random, self.plan.double) {
            let other = self.random.random_range(1..=self.plan.files);
            files.extend(Some(other).filter(|other| !is_inline && *other != file));
        }
        let bytes = pattern(value, size);
        let mut drafts = Vec::new();
        for file in files {
            let Some(draft) = self.draft(id, file, sync, is_merge.then_some((at, length)), &bytes)? else { break };
            drafts.push(draft);
        }
        if drafts.is_empty() != is_inline {
            self.give_back(id, &drafts);
            return Ok(());
        }
        let submission = Submission { flags: sync, inode: file, ..Submission::default() };
        let term = self.term_of(id);
        let Some(sequences) = self.submit(id, &submission, &bytes[..length], &drafts) else {
            // Too much is on its way: the client comes back later.
            self.give_back(id, &drafts);
            return Ok(());
        };
        self.clients.values = value;
        self.note_made(id, term, sequences, drafts);
        self.outcome.writes += 1;
        Ok(())
    }

    /// The payload of a file, whose page is taken from the stock; `None`: all free ones wait.
    fn draft(
        &mut self,
        id: NodeId,
        file: u64,
        sync: u16,
        merge: Option<(usize, usize)>,
        bytes: &[u8],
    ) -> Result<Option<Draft>> {
        let group = self.group_of_file(file);
        let Some(Core::Sender(leader)) = self.nodes.get(&id).map(|node| &node.core) else { return Ok(None) };
        let Some(stable) = leader.volume().group(group).map(lodestone_fabric::Sender::stable) else { return Ok(None) };
        let term = leader.sender().term();
        let Some(files) = self.clients.files.get_mut(&id) else { return Ok(None) };
        let old = files.files.get(&file).copied();
        let taken = files.stocks.get_mut(&group).and_then(|stock| stock.take(stable));
        let Some((page, by)) = taken else { return Ok(None) };
        let pair = PagePair { new: page, old: old.map_or(0, |old| old.page) };
        let mut submission = Submission { flags: sync, inode: file, count: 1, reuse: by, ..Submission::default() };
        let body = if let Some((at, length)) = merge {
            submission.flags |= FLAG_MERGE;
            merge_body(pair, at as u32, &bytes[at..(at + length).min(bytes.len())])?
        } else {
            pages_body(&[(pair, bytes)])
        };
        let head = RecordHead { flags: submission.flags, count: 1, ..RecordHead::default() };
        let record = |old: Place| self.judge_of(group).record(term, old.sequence).map(|found| found.1.content.clone());
        let content = Oracle::content(&head, &body, old.and_then(record).as_deref(), bytes.len());
        Ok(Some(Draft { file, group, pair, submission, body, content }))
    }

    fn give_back(&mut self, id: NodeId, drafts: &[Draft]) {
        let Some(files) = self.clients.files.get_mut(&id) else { return };
        for draft in drafts {
            if let Some(stock) = files.stocks.get_mut(&draft.group) {
                stock.give_back(draft.pair.new, draft.submission.reuse);
            }
        }
    }

    /// Submits what is drafted as one record or one operation. Returns its number and those of its payloads.
    fn submit(
        &mut self,
        id: NodeId,
        submission: &Submission,
        bytes: &[u8],
        drafts: &[Draft],
    ) -> Option<(Sequence, Vec<Sequence>)> {
        let Some(Core::Sender(leader)) = self.nodes.get_mut(&id).map(|node| &mut node.core) else { return None };
        if self.plan.units == 0 {
            let made = match drafts.first() {
                Some(draft) => leader.sender_mut().submit(&draft.submission, draft.body.clone()),
                None => {
                    let submission = Submission { flags: submission.flags | FLAG_INLINE, ..*submission };
                    leader.sender_mut().submit(&submission, bytes.to_vec())
                }
            };
            let sequence = made.ok()?;
            return Some((sequence, vec![sequence; drafts.len()]));
        }
        let before: BTreeMap<GroupId, Sequence> =
            leader.volume().groups().map(|sender| (sender.group(), sender.ring().last())).collect();
        let payload =
            |draft: &Draft| Payload { unit: draft.group, submission: draft.submission, body: draft.body.clone() };
        let payloads: Vec<Payload> = drafts.iter().map(payload).collect();
        let number = leader.volume_mut().submit(submission, bytes, payloads).ok()?;
        let mut next = before;
        let sequences = drafts.iter().map(|draft| {
            let last = next.entry(draft.group).or_default();
            *last = last.next();
            *last
        });
        Some((number, sequences.collect()))
    }

    /// Tells judges and files what was made.
    fn note_made(&mut self, id: NodeId, term: Term, made: (Sequence, Vec<Sequence>), drafts: Vec<Draft>) {
        let (number, sequences) = made;
        let units = self.plan.units;
        self.say(|| {
            let parts: Vec<String> =
                drafts.iter().zip(&sequences).map(|(draft, at)| format!("{at} {draft:?}")).collect();
            format!("{id} {term} makes {number}: {parts:?}")
        });
        let none = PagePair { new: 0, old: 0 };
        let all = drafts.iter().map(|draft| draft.file).collect();
        let content = drafts.first().map_or_else(Vec::new, |draft| draft.content.clone());
        let pair = drafts.first().map_or(none, |draft| draft.pair);
        let began = self.now;
        self.oracle.made(term, number, Made { began, files: all, pair, content });
        let mut wrote = Vec::new();
        for (draft, sequence) in drafts.into_iter().zip(sequences) {
            let Draft { file, group, pair, content, .. } = draft;
            let place = Place { group, sequence, page: pair.new, told: number };
            wrote.push(Wrote { file, operation: number, unit: group, sequence, page: pair.new });
            if units > 0 {
                self.oracle_of(group).made(term, sequence, Made { began, files: vec![file], pair, content });
            }
            let Some(files) = self.clients.files.get_mut(&id) else { continue };
            files.files.insert(file, place);
            if let Some(stock) = files.stocks.get_mut(&group).filter(|_| pair.old != 0) {
                stock.free(pair.old, sequence);
            }
        }
        if units > 0 {
            self.orders.made(term, number, wrote);
        }
    }

    /// Begins a read, and asks again for those without an answer.
    pub(super) fn read(&mut self) -> Result<()> {
        let ns = self.around(self.plan.read_ns);
        if self.healed.is_none() || self.clients.has_reads() {
            let least = if self.healed.is_none() { 1_000 } else { 1_000_000 };
            self.after(ns.max(least), Event::Read);
        }
        let readers: Vec<NodeId> = self
            .sending()
            .into_iter()
            .filter(|id| {
                let leader = self.nodes.get(id).and_then(Node::leader);
                let now = self.nodes.get(id).map_or(0, |node| node.local(self.now));
                leader.is_some_and(|leader| leader.may_read(lodestone_fabric::Moment(now)))
            })
            .collect();
        // While writers wait for long, readers do not go on for ever.
        let is_wanted = self.healed.is_none()
            && self.clients.readings.len() < 8
            && (self.oracle.read_count() as u64) < 10 * self.plan.operations;
        if let Some(node) = readers.choose(&mut self.random).copied().filter(|_| is_wanted) {
            let (file, term) = (self.random.random_range(1..=self.plan.files), self.term_of(node));
            self.clients.number += 1;
            let key = (node, self.clients.number);
            self.clients.readings.insert(key, Reading { term, file, began: self.now, found: None });
        }
        let waiting: Vec<(NodeId, u32)> = self.clients.readings.keys().copied().collect();
        for key in waiting {
            self.ask(key)?;
        }
        Ok(())
    }

    /// Asks a replica for the page of a read, when that is due.
    fn ask(&mut self, key: (NodeId, u32)) -> Result<()> {
        let (node, now) = (key.0, self.now);
        let Some(reading) = self.clients.readings.get_mut(&key) else { return Ok(()) };
        let files = self.clients.files.get_mut(&node).filter(|files| files.term == reading.term);
        let Some(files) = files else {
            self.clients.readings.remove(&key);
            return Ok(());
        };
        let Some(place) = files.files.get(&reading.file).copied() else {
            self.told(key, None, None);
            return Ok(());
        };
        // A newer record of the file is asked for anew.
        if reading.found.is_none_or(|found| found.0 != place) {
            reading.found.iter().for_each(|found| files.reads.forget(found.1));
            reading.found = Some((place, files.reads.begin(place.page, place.sequence)));
        }
        let number = reading.found.map_or(0, |found| found.1);
        let Some(found) = self.nodes.get(&node) else { return Ok(()) };
        let Some(leader) = found.leader() else { return Ok(()) };
        let (term, local) = (reading.term, lodestone_fabric::Moment(found.local(now)));
        let Some(sender) = leader.volume().group(place.group) else { return Ok(()) };
        let Some((replica, payload)) = files.reads.ask(local, number, sender.readable(place.sequence)) else {
            return Ok(());
        };
        self.act(node, move |_, _, out| {
            let head = PacketHead { term, ..PacketHead::new(Kind::Request, place.group, node) };
            out.to_node(replica, head.packet([&payload, &[]]));
            Ok(())
        })
    }

    /// A replica answered.
    pub(super) fn read_answered(&mut self, node: NodeId, packet: &Packet<'_>) {
        let Some(files) = self.clients.files.get_mut(&node) else { return };
        let Some((number, bytes)) = files.reads.answered(packet) else { return };
        let is_it = |reading: &Reading| reading.found.is_some_and(|found| found.1 == number);
        let mut readings = self.clients.readings.iter_mut();
        let Some((key, reading)) = readings.find(|(key, reading)| key.0 == node && is_it(reading)) else { return };
        let Some((place, _)) = reading.found.take() else { return };
        let (key, term) = (*key, reading.term);
        // The page may be another file's by now. And what could still be lost is not told: the client asks again.
        let is_present = files.files.get(&reading.file) == Some(&place);
        if is_present && self.oracle.is_acknowledged(term, place.told) {
            self.told(key, Some(place), Some(bytes.to_vec()));
        }
    }

    /// Answers a read, if the sender may.
    fn told(&mut self, key: (NodeId, u32), place: Option<Place>, bytes: Option<Vec<u8>>) {
        let Some(reading) = self.clients.readings.remove(&key) else { return };
        let Some(node) = self.nodes.get(&key.0) else { return };
        let now = lodestone_fabric::Moment(node.local(self.now));
        if !node.leader().is_some_and(|leader| leader.may_read(now)) {
            return;
        }
        let Reading { file, began, term, .. } = reading;
        if let Some((place, bytes)) = place.zip(bytes) {
            let record = self.judge_of(place.group).record(term, place.sequence);
            let expected = record.map(|found| found.1.content.clone());
            if expected.as_deref() != Some(bytes.as_slice()) {
                let sequence = place.sequence;
                self.oracle.fail(|| {
                    format!("P3, P5: a read of file {file} in {term} returned other bytes than {sequence} wrote")
                });
            }
        }
        let sequence = place.map_or(0, |place| place.told.0);
        self.oracle.read(Observed { file, began, ended: self.now, sequence });
    }
}

/// A payload that is not submitted yet.
#[derive(Debug)]
struct Draft {
    file: u64,
    group: GroupId,
    pair: PagePair,
    submission: Submission,
    body: Vec<u8>,
    /// The page after it.
    content: Vec<u8>,
}

/// Free pages with the records that freed them, the oldest first.
fn stock_of(freed: BTreeMap<u64, Sequence>) -> PageStock {
    let mut by_age: Vec<(Sequence, u64)> = freed.into_iter().filter(|f| f.0 > 0).map(|f| (f.1, f.0)).collect();
    by_age.sort_unstable();
    let mut stock = PageStock::default();
    by_age.into_iter().for_each(|(by, page)| stock.free(page, by));
    stock
}

/// The group that the leader's events are of.
fn leader_group(plan: &crate::plan::Plan) -> GroupId {
    if plan.units == 0 { GROUP } else { lodestone_fabric::OPERATIONS }
}

/// Bytes that tell which value they are of.
fn pattern(value: u64, size: usize) -> Vec<u8> {
    (0..size).map(|index| (value.wrapping_mul(0x9E37_79B9) >> (index % 24)) as u8 ^ index as u8).collect()
}
