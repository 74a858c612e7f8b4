//! Reads of pages from replicas: the one with the fewest running requests among those that have the record.
//!
//! 1. The owner names the page and the record that wrote it. Replicas whose durable tail is below that record are not
//!    asked (paper 5, section 2.4: the window). With none, the read waits for the next report.
//! 2. The answer counts if it is of the replica that was asked last, and its tail then had the record. An answer to an
//!    older request may be of a time when the page was another file's.
//! 3. A damaged page, and silence, send the read to another replica.
//!
//! The owner checks two things before it tells the bytes: that the page is still the file's, and the lease.

use std::collections::BTreeMap;

use lodestone_pmem::planted;

use crate::ids::{Moment, NodeId, Sequence};
use crate::message::Call;
use crate::packet::{Kind, PACKET_GONE, Packet};

const AGAIN_NS: u64 = 3_000_000;

/// A read that is not answered.
#[derive(Clone, Debug)]
struct Running {
    page: u64,
    sequence: Sequence,
    replica: Option<NodeId>,
    asked: Moment,
    /// Replicas whose page is damaged.
    damaged: Vec<NodeId>,
}

/// The reads of one sender.
///
/// ```
/// use lodestone_fabric::{Moment, NodeId, Reads, Sequence};
///
/// let mut reads = Reads::default();
/// let (first, second) = (reads.begin(7, Sequence(3)), reads.begin(8, Sequence(3)));
/// let replicas = [NodeId(1), NodeId(2)];
/// let one = reads.ask(Moment(0), first, replicas.into_iter()).unwrap();
/// let other = reads.ask(Moment(0), second, replicas.into_iter()).unwrap();
/// assert_ne!(one.0, other.0, "the second goes to the replica that has less to do");
/// assert!(reads.ask(Moment(1), first, replicas.into_iter()).is_none(), "it is asked already");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Reads {
    running: BTreeMap<u32, Running>,
    number: u32,
}

impl Reads {
    /// A read of `page` as the record `sequence` wrote it. Returns its number.
    pub fn begin(&mut self, page: u64, sequence: Sequence) -> u32 {
        self.begin_without(page, sequence, Vec::new())
    }

    /// As [`begin`](Self::begin), for a page that is damaged at some replicas: others are asked first.
    pub fn begin_without(&mut self, page: u64, sequence: Sequence, damaged: Vec<NodeId>) -> u32 {
        self.number = self.number.wrapping_add(1);
        self.running.insert(self.number, Running { page, sequence, replica: None, asked: Moment(0), damaged });
        self.number
    }

    /// The replicas that said that the page of a read is damaged there.
    #[must_use]
    pub fn damaged(&self, number: u32) -> &[NodeId] {
        self.running.get(&number).map_or(&[], |read| &read.damaged)
    }

    /// The replica to ask and the payload of the request, if one is due. `replicas` have the record.
    pub fn ask(
        &mut self,
        now: Moment,
        number: u32,
        replicas: impl Iterator<Item = NodeId>,
    ) -> Option<(NodeId, [u8; 16])> {
        let read = self.running.get(&number)?;
        if read.replica.is_some() && now.since(read.asked) < AGAIN_NS {
            return None;
        }
        let load = |node: &NodeId| self.running.values().filter(|other| other.replica == Some(*node)).count();
        // Not the silent or damaged one again, if there is another.
        let cost = |node: &NodeId| (read.damaged.contains(node), read.replica == Some(*node), load(node));
        let replica = replicas.min_by_key(cost)?;
        let page = read.page;
        let read = self.running.get_mut(&number)?;
        (read.replica, read.asked) = (Some(replica), now);
        Some((replica, Call::Page(page).to_payload(number)))
    }

    /// An answer arrived. Returns number and bytes if they are those of the record.
    pub fn answered<'p>(&mut self, packet: &Packet<'p>) -> Option<(u32, &'p [u8])> {
        let (call, number, bytes) = Call::from_payload(packet.payload).filter(|_| packet.head.kind == Kind::Reply)?;
        let read = self.running.get_mut(&number)?;
        let is_asked = read.replica == Some(packet.head.source) && call == Call::Page(read.page);
        let has_record = packet.head.sequence >= read.sequence || planted::active("fabric-late-answer-counts");
        if !is_asked || !has_record {
            return None;
        }
        if packet.head.has(PACKET_GONE) {
            read.asked = Moment(0);
            if !read.damaged.contains(&packet.head.source) {
                read.damaged.push(packet.head.source);
            }
            return None;
        }
        self.running.remove(&number);
        Some((number, bytes))
    }

    /// The read is not wanted any more.
    pub fn forget(&mut self, number: u32) {
        self.running.remove(&number);
    }

    /// Reads that are not answered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether none is running.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}
