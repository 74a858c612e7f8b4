//! Requests of machines, and of mounts elsewhere, and their answers, over a connection.
//!
//! ```text
//! first frame   magic `LDFS`, version 6, volume 8; the answer: 0, or 1 and a text
//! request       kind 1, then by kind; an answer for each
//!   1 standing  the answer is a standing
//!   2 image     node 2; the answer is pieces (offset 8, bytes), first the length: 3, bytes 8; last: 1, bytes 8
//!   3 text      a request of the program; the answer is frames: of progress, and the last one
//!   4 attach, 5 call, 6 detach: of mounts (see `remote`)
//!   7 site      the answer is the text of the description
//!   8 sign      of a mount 8 that is there; the answer is 0, or 3 if it is to attach
//!   9 news, 10 leased call: of mounts that keep something (see `lease::wire`)
//!   11 again    a call of a mount that was answered before: the file that it made, or those that it found at its
//!               names, 8 and 8, 0 for none; then as a call
//! ```

use std::collections::BTreeMap;
use std::time::Instant;

use lodestone_fabric::NodeId;
use lodestone_width::exact_u32;

use crate::bytes::{Reader, Writer};
use crate::cluster::status::CopyProgress;

const MAGIC: &[u8; 4] = b"LDFS";
const VERSION: u32 = 6;

pub(crate) const STANDING: u8 = 1;
pub(crate) const IMAGE: u8 = 2;
pub(crate) const TEXT: u8 = 3;
pub(crate) const ATTACH: u8 = 4;
pub(crate) const CALL: u8 = 5;
pub(crate) const DETACH: u8 = 6;
pub(crate) const SITE: u8 = 7;
pub(crate) const SIGN: u8 = 8;
pub(crate) const NEWS: u8 = 9;
pub(crate) const LEASED_CALL: u8 = 10;
pub(crate) const AGAIN: u8 = 11;

/// Longest frame of a request.
pub(crate) const REQUEST_BYTES_MAX: usize = 2 << 20;
/// Longest frame of an answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 2 << 20;
/// Nodes of a machine.
const NODES_MAX: u32 = 16;

/// The first frame of a connection.
pub(crate) fn hello(volume: u64) -> Vec<u8> {
    let mut out = Writer(MAGIC.to_vec());
    out.u32(VERSION).u64(volume);
    out.0
}

/// Why a first frame is refused; `None`: it is right.
pub(crate) fn refused(hello: &[u8], volume: u64) -> Option<String> {
    let mut from = Reader(hello);
    if from.take(MAGIC.len()) != Some(MAGIC) {
        return Some("this is no connection of a volume's machines".into());
    }
    match (from.u32(), from.u64()) {
        (Some(VERSION), Some(found)) if found == volume => None,
        (Some(VERSION), Some(found)) => Some(format!(
            "this machine has volume {volume:016x}, not {found:016x}; use the description of the same volume everywhere"
        )),
        _ => Some("the other program is of another version; use the same one everywhere".into()),
    }
}

/// A node as its own process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeStanding {
    pub(crate) node: NodeId,
    pub(crate) runs: bool,
    /// Whether its state lacks operations that its log does not have.
    pub(crate) lacks_image: bool,
    /// Whether it joins, and its state is as far as its log.
    pub(crate) is_ready: bool,
    /// The last operation that it has executed.
    pub(crate) executed: u64,
    /// How far it is, if it copies what it lacks.
    pub(crate) copied: Option<CopyProgress>,
    /// Why it does not run.
    pub(crate) error: String,
}

/// How machines stood when they last answered, or why they do not; each with the time of that.
pub(crate) type Standings = BTreeMap<u16, (Instant, Result<Standing, String>)>;

/// A machine as its own process sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The term in which it leads; 0: it does not.
    pub(crate) term: u32,
    /// The last operation of that term that no loss of a minority of the nodes takes away.
    pub(crate) acknowledged: u64,
    /// The machine that leads, as far as it knows; 0: none.
    pub(crate) leader: u16,
    /// Changes of the description that it has.
    pub(crate) revision: u64,
    /// Bytes of a page, and pages of its volume.
    pub(crate) pages: (u64, u64),
    /// Bytes of its rings, of operations and of pages.
    pub(crate) rings: (u64, u64),
    pub(crate) nodes: Vec<NodeStanding>,
}

impl Standing {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.term).u64(self.acknowledged).u32(self.leader.into()).u64(self.revision);
        out.u64(self.pages.0).u64(self.pages.1).u64(self.rings.0).u64(self.rings.1);
        out.u32(exact_u32(self.nodes.len()));
        for node in &self.nodes {
            let flags = u8::from(node.runs) | u8::from(node.lacks_image) << 1 | u8::from(node.is_ready) << 2;
            let copied = node.copied.unwrap_or_default();
            out.u32(node.node.0.into()).u8(flags).u64(node.executed).u64(copied.done_bytes).u64(copied.all_bytes);
            out.u64(copied.bytes_per_second);
            out.bytes(node.error.as_bytes());
        }
        out.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let (term, acknowledged) = (from.u32()?, from.u64()?);
        let leader = u16::try_from(from.u32()?).ok()?;
        let revision = from.u64()?;
        let (pages, rings) = ((from.u64()?, from.u64()?), (from.u64()?, from.u64()?));
        let count = from.u32().filter(|count| *count <= NODES_MAX)?;
        let mut nodes = Vec::new();
        for _ in 0..count {
            let node = NodeId(u16::try_from(from.u32()?).ok()?);
            let flags = from.u8().filter(|flags| *flags < 8)?;
            let executed = from.u64()?;
            let (done_bytes, all_bytes, rate) = (from.u64()?, from.u64()?, from.u64()?);
            (done_bytes <= all_bytes).then_some(())?;
            let copied = CopyProgress::of(done_bytes, all_bytes, rate);
            let error = String::from_utf8_lossy(from.bytes()?).into_owned();
            let (runs, lacks_image, is_ready) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            nodes.push(NodeStanding { node, runs, lacks_image, is_ready, executed, copied, error });
        }
        from.is_empty().then_some(Self { term, acknowledged, leader, revision, pages, rings, nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standings_come_back_and_other_bytes_are_none() {
        let copied = CopyProgress::of(3, 9, 2);
        let node = NodeStanding { node: NodeId(101), runs: true, is_ready: true, copied, ..Default::default() };
        let node = NodeStanding { error: "late".into(), ..node };
        let nodes = vec![node, NodeStanding::default()];
        let standing =
            Standing { term: 7, leader: 2, revision: 3, pages: (4096, 9), rings: (5, 6), nodes, acknowledged: 8 };
        let bytes = standing.to_bytes();
        assert_eq!(Standing::from_bytes(&bytes), Some(standing));
        for cut in 0..bytes.len() {
            assert_eq!(Standing::from_bytes(&bytes[..cut]), None);
        }
    }

    #[test]
    fn another_volume_and_another_program_are_named() {
        assert_eq!(refused(&hello(7), 7), None);
        assert!(refused(&hello(7), 8).is_some_and(|text| text.contains("0000000000000007")));
        assert!(refused(b"GET / HTTP/1.1", 7).is_some_and(|text| text.contains("no connection")));
        assert!(refused(b"LDFS\x01\0\0\0\0\0\0\0\0\0\0\0", 7).is_some_and(|text| text.contains("version")));
    }
}
