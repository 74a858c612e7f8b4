//! Pages from replicas: from the one with the least to do, compared with the checksum that the metadata has.
//!
//! A page that is damaged at one replica is read from another, and told to the caller, who has it written again. A
//! page that no replica has right is lost: it is named, and no byte of it is told.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use lodestone_fabric::{Kind, NodeId, PacketHead, ViewNumber};
use lodestone_width::to_usize;

use super::link::{Link, QUORUM_WAIT, Sending, UNIT};
use crate::error::{Error, Result};
use crate::extents::Run;
use crate::patience::Wait;

/// Pages that are under way for one caller.
const PAGES_AT_A_TIME: u64 = 64;
const LOOK: Duration = Duration::from_millis(3);

/// The findings of a read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Pages that some replica has damaged.
    pub(crate) damaged: BTreeSet<u64>,
    /// The first page that no replica has right.
    pub(crate) lost: Option<u64>,
}

/// A page of a read.
struct Wanted {
    page: u64,
    number: u32,
    damaged: Vec<NodeId>,
    is_done: bool,
}

impl Link {
    /// Fills `out` with the pages of `run`, which have the checksums `crcs`.
    pub(crate) fn read(&self, run: Run, crcs: &[u32], out: &mut [u8]) -> Result<Found> {
        let size = out.len() / to_usize(run.count.max(1));
        let mut found = Found::default();
        let mut at = 0;
        while at < run.count && found.lost.is_none() {
            let count = (run.count - at).min(PAGES_AT_A_TIME);
            let (from, to) = (to_usize(at), to_usize(at + count));
            let piece = Run { page: run.page + at, count };
            self.read_piece(piece, &crcs[from..to], &mut out[from * size..to * size], &mut found)?;
            at += count;
        }
        Ok(found)
    }

    fn read_piece(&self, run: Run, crcs: &[u32], out: &mut [u8], found: &mut Found) -> Result<()> {
        let mut wait = Wait::begin(QUORUM_WAIT);
        let mut sending = self.sending();
        sending.check()?;
        let mut wanted: Vec<Wanted> = (run.page..run.page + run.count)
            .map(|page| {
                let sequence = sending.needed_for(page);
                Wanted { page, number: sending.reads.begin(page, sequence), damaged: Vec::new(), is_done: false }
            })
            .collect();
        let outcome = loop {
            let step = self.look(&mut sending, &mut wanted, crcs, out, found);
            match step {
                Ok(true) => break Ok(()),
                Ok(false) => match wait.goes_on(&|| format!("no replica answers for page {}", run.page)) {
                    Ok(true) => {}
                    Ok(false) => break Err(Error::NoReplica { page: run.page }),
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
            sending = self.changed.wait_timeout(sending, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        };
        wanted.iter().for_each(|page| {
            sending.reads.forget(page.number);
            sending.answers.remove(&page.number);
        });
        outcome
    }

    /// Takes answers in, and asks for what is missing. Whether all pages are there, or one is lost.
    fn look(
        &self,
        sending: &mut Sending,
        wanted: &mut [Wanted],
        crcs: &[u32],
        out: &mut [u8],
        found: &mut Found,
    ) -> Result<bool> {
        sending.check()?;
        let now = self.now();
        if !sending.leader.may_read(now) {
            return Ok(false);
        }
        let size = out.len() / wanted.len().max(1);
        let parts = wanted.iter_mut().zip(crcs).zip(out.chunks_exact_mut(size));
        for ((page, crc), target) in parts.filter(|((page, _), _)| !page.is_done) {
            if let Some((node, bytes)) = sending.answers.remove(&page.number) {
                page.is_done = bytes.len() == size && crc32c::crc32c(&bytes) == *crc;
                if page.is_done {
                    target.copy_from_slice(&bytes);
                    continue;
                }
                if !page.damaged.contains(&node) {
                    page.damaged.push(node);
                }
                let sequence = sending.needed_for(page.page);
                page.number = sending.reads.begin_without(page.page, sequence, page.damaged.clone());
            }
            if sending.is_lost(page) {
                found.damaged.insert(page.page);
                found.lost = Some(page.page);
                return Ok(true);
            }
            sending.ask(self, now, page);
        }
        sending.flush()?;
        found.damaged.extend(wanted.iter().filter(|page| page.is_done && !page.damaged.is_empty()).map(|p| p.page));
        Ok(wanted.iter().all(|page| page.is_done))
    }

    /// The page as the replica `node` has it, whatever its checksum. `None`: it has not answered.
    pub(crate) fn read_from(&self, node: NodeId, page: u64, most: Duration) -> Result<Option<Vec<u8>>> {
        let until = Instant::now() + most;
        let mut sending = self.sending();
        let sequence = sending.needed_for(page);
        let number = sending.reads.begin(page, sequence);
        let outcome = loop {
            if let Err(error) = sending.check() {
                break Err(error);
            }
            if let Some((_, bytes)) = sending.answers.remove(&number) {
                break Ok(Some(bytes));
            }
            if !sending.reads.damaged(number).is_empty() {
                break Ok(Some(Vec::new()));
            }
            if Instant::now() >= until {
                break Ok(None);
            }
            let now = self.now();
            let is_there = |found: NodeId| found == node;
            let readable: Vec<NodeId> = sending.readable(sequence).into_iter().filter(|n| is_there(*n)).collect();
            sending.ask_one_of(self, now, number, readable);
            if let Err(error) = sending.flush() {
                break Err(error);
            }
            sending = self.changed.wait_timeout(sending, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        };
        sending.reads.forget(number);
        sending.answers.remove(&number);
        outcome
    }

    /// The replicas that can be read from.
    pub(crate) fn replicas(&self) -> Vec<NodeId> {
        let sending = self.sending();
        sending.readable(lodestone_fabric::Sequence(0))
    }
}

impl Sending {
    fn readable(&self, sequence: lodestone_fabric::Sequence) -> Vec<NodeId> {
        self.leader.volume().group(UNIT).map_or_else(Vec::new, |unit| unit.readable(sequence).collect())
    }

    /// Whether every replica that has the page has it damaged. Replicas that lag may still have it right.
    fn is_lost(&self, page: &mut Wanted) -> bool {
        for node in self.reads.damaged(page.number) {
            if !page.damaged.contains(node) {
                page.damaged.push(*node);
            }
        }
        let Some(unit) = self.leader.volume().group(UNIT) else { return false };
        !page.damaged.is_empty() && unit.view().active().all(|node| page.damaged.contains(&node))
    }

    fn ask(&mut self, link: &Link, now: lodestone_fabric::Moment, page: &Wanted) {
        let replicas = self.readable(self.needed_for(page.page));
        self.ask_one_of(link, now, page.number, replicas);
    }

    fn ask_one_of(&mut self, link: &Link, now: lodestone_fabric::Moment, number: u32, replicas: Vec<NodeId>) {
        let Some((node, payload)) = self.reads.ask(now, number, replicas.into_iter()) else { return };
        let term = self.leader.sender().term();
        let view = self.leader.volume().group(UNIT).map_or(ViewNumber(0), |unit| unit.view().number);
        let head = PacketHead { term, view, ..PacketHead::new(Kind::Request, UNIT, link.node) };
        self.out.to_node(node, head.packet([&payload, &[]]));
    }
}
