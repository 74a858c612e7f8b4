//! Clients of the sender: files of one page that they write, change in parts and read.
//!
//! The sender of each term derives the state of the files from its log, as a file system would from its operations:
//! here the judges know all records, so the state is asked from them.

use std::collections::BTreeMap;

use lodestone_fabric::{
    FLAG_INLINE, FLAG_MERGE, FLAG_SYNC, Kind, LocalRegistry, NodeId, Packet, PacketHead, PagePair, PageStock, Reads,
    RecordHead, Registry, Result, Sender, Sequence, Submission, Term, Terms, merge_body, pages_body,
};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Event, World};
use crate::node::{Core, GROUP, Node};
use crate::oracle::{Made, Observed, Oracle};

/// Files and pages as a sender knows them.
#[derive(Default)]
struct Files {
    term: Term,
    files: BTreeMap<u64, (Sequence, u64)>,
    stock: PageStock,
    reads: Reads,
}

/// A read that is not answered.
#[derive(Clone, Copy)]
struct Reading {
    term: Term,
    file: u64,
    began: u64,
    /// The record that is asked for, its page, and the number of the request.
    found: Option<(Sequence, u64, u32)>,
}

/// All clients.
#[derive(Default)]
pub struct Clients {
    files: BTreeMap<NodeId, Files>,
    readings: BTreeMap<(NodeId, u32), Reading>,
    number: u32,
    values: u64,
    /// Terms of the ring of a node before it took over, with what it said it cut since.
    before: BTreeMap<NodeId, (Terms, Vec<(Sequence, Sequence)>)>,
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
        self.before.remove(&node);
    }

    /// Records that a sender has fenced are told to those who write without waiting for others.
    pub(super) fn fenced(&mut self, node: NodeId, sender: &Sender) {
        if sender.is_sending() {
            self.fenced.insert(node, (sender.term(), sender.ring().fenced()));
        }
    }

    pub(super) fn has_reads(&self) -> bool {
        !self.readings.is_empty()
    }

    pub(super) fn changes(&self, registry: &LocalRegistry) -> u64 {
        registry.state().map_or(0, |state| state.change)
    }

    pub(super) fn cut(&mut self, node: NodeId, cut: (Term, Sequence, Sequence)) {
        if let Some(before) = self.before.get_mut(&node) {
            before.1.push((cut.1, cut.2));
        }
    }

    /// The sender of `term` begins with this log.
    pub(super) fn adopted(
        &mut self,
        oracle: &mut Oracle,
        node: NodeId,
        term: Term,
        ring: &Terms,
        cut: Option<(Term, Sequence, Sequence)>,
    ) {
        if let Some(cut) = cut {
            self.cut(node, cut);
        }
        // P8: records of the former ring that are not in the log any more were named.
        if let Some((before, cuts)) = self.before.remove(&node) {
            let (begin, last) = (before.base().0.max(ring.base().0), before.last().1);
            for sequence in (begin.0 + 1..=last.0).map(Sequence) {
                let is_named = cuts.iter().any(|(from, to)| (*from..=*to).contains(&sequence));
                let is_kept = before.term_of(sequence) == ring.term_of(sequence);
                if is_kept == is_named && before.term_of(sequence).is_some_and(|term| term > Term(0)) {
                    oracle.fail(|| format!("P8: {node} cut {sequence}: {}, said so: {is_named}", !is_kept));
                }
            }
        }
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
        if !leader.sender().is_sending() {
            let terms = leader.sender().ring().terms().clone();
            self.clients.before.entry(id).or_insert_with(|| (terms, Vec::new()));
        }
    }

    /// A sender is ready: its first record is made, and the state of the files follows from its log.
    pub(super) fn first_record(&mut self, id: NodeId) {
        let Some(leader) = self.nodes.get(&id).and_then(Node::leader) else { return };
        let (term, first) = (leader.sender().term(), leader.sender().ring().last());
        let no_page = PagePair { new: 0, old: 0 };
        let made = Made { file: None, pair: no_page, content: Vec::new() };
        self.oracle.made(term, first, made);
        let files = self.oracle.state(term, first);
        let mut freed: BTreeMap<u64, Sequence> = (1..self.plan.pages).map(|page| (page, Sequence(0))).collect();
        for (sequence, pair) in self.oracle.pairs(term) {
            freed.insert(pair.old, sequence);
        }
        files.values().for_each(|(_, page)| {
            freed.remove(page);
        });
        let mut by_age: Vec<(Sequence, u64)> = freed.into_iter().filter(|f| f.0 > 0).map(|f| (f.1, f.0)).collect();
        by_age.sort_unstable();
        let mut stock = PageStock::default();
        by_age.into_iter().for_each(|(by, page)| stock.free(page, by));
        self.clients.files.insert(id, Files { term, files, stock, reads: Reads::default() });
    }

    /// Nodes that believe to be the sender, perhaps wrongly.
    fn sending(&self) -> Vec<NodeId> {
        let sends = |node: &&Node| node.leader().is_some_and(|leader| leader.sender().is_sending());
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
                leader.sender_mut().pump(now, out);
            }
            // Before plain writes are answered.
            leader.sender_mut().fence()?;
            leader.sender_mut().pump(now, out);
            Ok(())
        })
    }

    fn write_one(&mut self, id: NodeId) -> Result<()> {
        let (file, value) = (self.random.random_range(1..=self.plan.files), self.clients.values + 1);
        let draw = |random: &mut rand_chacha::ChaCha8Rng, ppm| random.random_range(0..1_000_000) < ppm;
        let (is_merge, is_inline) =
            (draw(&mut self.random, self.plan.merges), draw(&mut self.random, self.plan.inline));
        let sync = if draw(&mut self.random, self.plan.sync) { FLAG_SYNC } else { 0 };
        let size = self.plan.page_bytes as usize;
        let (at, length) = (self.random.random_range(0..size - 1), self.random.random_range(1..64));
        let Some(Core::Sender(leader)) = self.nodes.get_mut(&id).map(|node| &mut node.core) else { return Ok(()) };
        let Some(files) = self.clients.files.get_mut(&id) else { return Ok(()) };
        let sender = leader.sender_mut();
        let old = files.files.get(&file).copied();
        let bytes = pattern(value, size);
        let mut submission = Submission { flags: sync, inode: file, ..Submission::default() };
        let mut pair = PagePair { new: 0, old: old.map_or(0, |old| old.1) };
        let body = if is_inline {
            submission.flags |= FLAG_INLINE;
            bytes[..length].to_vec()
        } else {
            let Some((page, by)) = files.stock.take(sender.stable()) else { return Ok(()) };
            (pair.new, submission.reuse, submission.count) = (page, by, 1);
            if is_merge {
                submission.flags |= FLAG_MERGE;
                merge_body(pair, at as u32, &bytes[at..(at + length).min(size)])?
            } else {
                pages_body(&[(pair, &bytes)])
            }
        };
        let term = sender.term();
        let made = sender.submit(&submission, body.clone());
        let Ok(sequence) = made else {
            // Too much is on its way: the client comes back later.
            if pair.new != 0 {
                files.stock.give_back(pair.new, submission.reuse);
            }
            return Ok(());
        };
        let head = RecordHead { flags: submission.flags, count: submission.count, ..RecordHead::default() };
        let before = old.and_then(|old| self.oracle.record(term, old.0)).map(|found| found.1.content.clone());
        let content = Oracle::content(&head, &body, before.as_deref(), size);
        if !is_inline {
            files.files.insert(file, (sequence, pair.new));
            if pair.old != 0 {
                files.stock.free(pair.old, sequence);
            }
        }
        self.say(|| format!("{id} {term} makes {sequence} file {file} {pair:?} {head:?} reuse {}", submission.reuse));
        let file = (!is_inline).then_some(file);
        self.clients.values = value;
        self.oracle.made(term, sequence, Made { file, pair, content });
        self.outcome.writes += 1;
        Ok(())
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
        let Some((sequence, page)) = files.files.get(&reading.file).copied() else {
            self.told(key, Sequence(0), None);
            return Ok(());
        };
        // A newer record of the file is asked for anew.
        if reading.found.is_none_or(|found| (found.0, found.1) != (sequence, page)) {
            reading.found.iter().for_each(|found| files.reads.forget(found.2));
            reading.found = Some((sequence, page, files.reads.begin(page, sequence)));
        }
        let number = reading.found.map_or(0, |found| found.2);
        let Some(found) = self.nodes.get(&node) else { return Ok(()) };
        let Some(leader) = found.leader() else { return Ok(()) };
        let (term, local) = (reading.term, lodestone_fabric::Moment(found.local(now)));
        let Some((replica, payload)) = files.reads.ask(local, number, leader.sender().readable(sequence)) else {
            return Ok(());
        };
        self.act(node, move |_, _, out| {
            let head = PacketHead { term, ..PacketHead::new(Kind::Request, GROUP, node) };
            out.to_node(replica, head.packet([&payload, &[]]));
            Ok(())
        })
    }

    /// A replica answered.
    pub(super) fn read_answered(&mut self, node: NodeId, packet: &Packet<'_>) {
        let Some(files) = self.clients.files.get_mut(&node) else { return };
        let Some((number, bytes)) = files.reads.answered(packet) else { return };
        let is_it = |reading: &Reading| reading.found.is_some_and(|found| found.2 == number);
        let mut readings = self.clients.readings.iter_mut();
        let Some((key, reading)) = readings.find(|(key, reading)| key.0 == node && is_it(reading)) else { return };
        let Some((sequence, page, _)) = reading.found.take() else { return };
        let (key, term) = (*key, reading.term);
        // The page may be another file's by now. And what could still be lost is not told: the client asks again.
        let is_present = files.files.get(&reading.file) == Some(&(sequence, page));
        if is_present && self.oracle.is_acknowledged(term, sequence) {
            self.told(key, sequence, Some(bytes.to_vec()));
        }
    }

    /// Answers a read, if the sender may.
    fn told(&mut self, key: (NodeId, u32), sequence: Sequence, bytes: Option<Vec<u8>>) {
        let Some(reading) = self.clients.readings.remove(&key) else { return };
        let Some(node) = self.nodes.get(&key.0) else { return };
        let now = lodestone_fabric::Moment(node.local(self.now));
        if !node.leader().is_some_and(|leader| leader.may_read(now)) {
            return;
        }
        let Reading { file, began, term, .. } = reading;
        if let Some(bytes) = bytes {
            let expected = self.oracle.record(term, sequence).map(|found| found.1.content.clone());
            if expected.as_deref() != Some(bytes.as_slice()) {
                self.oracle
                    .fail(|| format!("P3: a read of file {file} in {term} returned other bytes than {sequence} wrote"));
            }
        }
        self.oracle.read(Observed { file, began, ended: self.now, sequence: sequence.0 });
    }
}

/// Bytes that tell which value they are of.
fn pattern(value: u64, size: usize) -> Vec<u8> {
    (0..size).map(|index| (value.wrapping_mul(0x9E37_79B9) >> (index % 24)) as u8 ^ index as u8).collect()
}
