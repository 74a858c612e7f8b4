//! The pool of a node: the log of what it has applied, its pages, and for nodes with metadata the rings of a sender.
//!
//! ```text
//! block    0  head, 128 bytes; a copy at 512
//!       4096  log of applied records; area of pages; ring of operations; ring of each unit
//! head     0 magic "LDSTFSND" 8   8 version 4      12 bytes of a page 4   16 volume id 8     24 salt 8
//!         32 node 4              36 group 4        40 pages 8             48 bytes of the log 8
//!         56 bytes of the ring of operations 8     64 bytes of the ring of a unit 8          72 units 4
//!         76 zeroes 48          124 CRC-32C of all before
//! ```
//!
//! The pool has no heap: an area of pages is one piece, which may be as large as the pool. The head is written last,
//! so a pool with a head is whole.

use std::path::Path;

use lodestone_fabric::{
    ApplyLog, GroupId, NodeId, OPERATIONS, PageArea, Receiver, ReceiverOptions, Ring, Sender, SenderOptions,
    VolumeSender,
};
use lodestone_pmem::{DomainChoice, Memory, PmAddr, Pool, PoolOptions};
use lodestone_width::exact_u32;

use crate::bytes::{Reader, Writer};
use crate::error::{Error, Result, damaged};

/// Name of the layout of these pools.
pub(crate) const NODE_LAYOUT_NAME: &str = "lodestone.fs.node";
const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"LDSTFSND";
const HEAD_BYTES: usize = 128;
const COPY_OFFSET: u64 = 512;
const BODY_OFFSET: u64 = 4096;
/// Pages of a member that keeps operations: it has none.
const NO_PAGES: (u32, u64) = (64, 2);
/// Longest payload of a packet between threads of a process, and on networks whose packets are as long.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 8 << 10;

/// The parts of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeHead {
    pub(crate) volume_id: u64,
    pub(crate) salt: u64,
    pub(crate) node: NodeId,
    /// The group that it is a member of: 0 for metadata, else a unit.
    pub(crate) group: GroupId,
    pub(crate) page_bytes: u32,
    pub(crate) pages: u64,
    pub(crate) log_bytes: u64,
    pub(crate) ring_bytes: u64,
    pub(crate) unit_ring_bytes: u64,
    pub(crate) units: u32,
}

impl NodeHead {
    fn to_bytes(self) -> Vec<u8> {
        let mut out = Writer(MAGIC.to_vec());
        out.u32(VERSION).u32(self.page_bytes).u64(self.volume_id).u64(self.salt);
        out.u32(self.node.0.into()).u32(self.group.0).u64(self.pages).u64(self.log_bytes);
        out.u64(self.ring_bytes).u64(self.unit_ring_bytes).u32(self.units);
        out.0.resize(HEAD_BYTES - 4, 0);
        let crc = crc32c::crc32c(&out.0);
        out.u32(crc);
        out.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        let mut from = Reader(body.strip_prefix(MAGIC)?);
        let is_whole = bytes.len() == HEAD_BYTES && crc32c::crc32c(body) == u32::from_le_bytes(*crc);
        (is_whole && from.u32()? == VERSION).then_some(())?;
        let (page_bytes, volume_id, salt) = (from.u32()?, from.u64()?, from.u64()?);
        let (node, group) = (NodeId(u16::try_from(from.u32()?).ok()?), GroupId(from.u32()?));
        let (pages, log_bytes, ring_bytes) = (from.u64()?, from.u64()?, from.u64()?);
        let (unit_ring_bytes, units) = (from.u64()?, from.u32()?);
        let head =
            Self { volume_id, salt, node, group, page_bytes, pages, log_bytes, ring_bytes, unit_ring_bytes, units };
        let is_size = |bytes: u64| bytes <= 1 << 40 && bytes.is_multiple_of(64);
        let fits = page_bytes.is_power_of_two()
            && (64..=1 << 16).contains(&page_bytes)
            && pages <= 1 << 40
            && is_size(log_bytes)
            && is_size(ring_bytes)
            && is_size(unit_ring_bytes)
            && units <= 1 << 16;
        fits.then_some(head)
    }

    fn area(&self) -> (u32, u64) {
        if self.group == OPERATIONS { NO_PAGES } else { (self.page_bytes, self.pages) }
    }

    fn area_bytes(&self) -> u64 {
        let (page_bytes, pages) = self.area();
        PageArea::bytes_for(page_bytes, pages).next_multiple_of(4096)
    }

    fn rings_bytes(&self) -> u64 {
        self.ring_bytes + self.unit_ring_bytes * u64::from(self.units)
    }

    fn body_bytes(&self) -> u64 {
        BODY_OFFSET + self.log_bytes + self.area_bytes() + self.rings_bytes()
    }
}

/// An open pool of a node.
#[derive(Debug)]
pub(crate) struct NodePool {
    pub(crate) head: NodeHead,
    /// Longest payload of its packets.
    payload_bytes: usize,
    pool: Pool,
    at: PmAddr,
    /// The area, until the member takes it.
    area: Option<PageArea>,
    log: Option<ApplyLog>,
}

fn options(domain: DomainChoice, size_bytes: u64) -> PoolOptions {
    let journal_bytes = (size_bytes / 16).clamp(2 << 20, 64 << 20);
    PoolOptions {
        size_bytes: size_bytes + journal_bytes,
        journal_bytes,
        layout_name: NODE_LAYOUT_NAME.into(),
        layout_version: VERSION,
        domain,
        ..PoolOptions::default()
    }
}

impl NodePool {
    /// Makes the pool of a new node, with nothing applied. `fill` writes pages that the volume has already.
    pub(crate) fn create(
        path: &Path,
        domain: DomainChoice,
        head: NodeHead,
        fill: &mut dyn FnMut(&mut PageArea) -> Result<()>,
    ) -> Result<Self> {
        // Room for the pool's own head and for rounding.
        let pool = Pool::create(path, &options(domain, head.body_bytes() + (128 << 10)))?;
        let (start, _) = pool.heap_area(0);
        let at = PmAddr::new(start.part(), start.offset().next_multiple_of(4096));
        let memory = pool.memory().clone();
        let mut node = Self { head, payload_bytes: PAYLOAD_BYTES_MAX, pool, at, area: None, log: None };
        node.log = Some(ApplyLog::create(&memory, node.log_at(), head.log_bytes, head.salt)?);
        let mut area = node.open_area()?;
        fill(&mut area)?;
        area.settle()?;
        node.area = Some(area);
        if head.ring_bytes > 0 {
            node.rings().try_for_each(|(_, at, bytes)| Ring::create(&memory, at, bytes, head.salt).map(drop))?;
        }
        // Log, pages and rings are persistent before the head says that they are there.
        memory.fence();
        for copy in [0, COPY_OFFSET] {
            // Persistent with the fence below.
            memory.write_back(at.plus(copy), &head.to_bytes());
        }
        // The head, before the node is told to others.
        memory.fence();
        memory.durable()?;
        Ok(node)
    }

    /// Makes the pool of a new node at once or not at all: a kill leaves none at `path`.
    pub(crate) fn create_whole(path: &Path, domain: DomainChoice, head: NodeHead) -> Result<()> {
        let new = path.with_extension("new");
        let failed = |doing: &str, error| Error::Options(format!("{}: {doing} failed: {error}", new.display()));
        // Left by a kill: only this function makes files of such names.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("removing it", error)),
            _ => {}
        }
        drop(Self::create(&new, domain, head, &mut |_| Ok(()))?);
        std::fs::rename(&new, path).map_err(|error| failed("renaming it", error))?;
        super::make::sync_folder_of(path)
    }

    /// Opens the pool of a node.
    pub(crate) fn open(path: &Path, domain: DomainChoice) -> Result<Self> {
        let pool = Pool::open(path, &options(domain, 0))?;
        let (start, end) = pool.heap_area(0);
        let at = PmAddr::new(start.part(), start.offset().next_multiple_of(4096));
        let memory = pool.memory().clone();
        let read = |copy: u64| {
            let mut bytes = vec![0; HEAD_BYTES];
            memory.read(at.plus(copy), &mut bytes);
            NodeHead::from_bytes(&bytes)
        };
        let head = read(0).or_else(|| read(COPY_OFFSET));
        let fits = |head: &NodeHead| at.offset() + head.body_bytes() <= end.offset();
        let wrong = || damaged("head of a node", format!("{}: both copies do not verify", path.display()));
        let head = head.filter(fits).ok_or_else(wrong)?;
        let mut node = Self { head, payload_bytes: PAYLOAD_BYTES_MAX, pool, at, area: None, log: None };
        let mut area = node.open_area()?;
        node.log = Some(ApplyLog::open(&memory, node.log_at(), head.log_bytes, head.salt, &mut area)?);
        node.area = Some(area);
        Ok(node)
    }

    fn log_at(&self) -> PmAddr {
        self.at.plus(BODY_OFFSET)
    }

    fn open_area(&self) -> Result<PageArea> {
        let at = self.log_at().plus(self.head.log_bytes);
        let (page_bytes, pages) = self.head.area();
        Ok(PageArea::open(self.pool.memory(), at, self.head.area_bytes(), page_bytes, pages)?)
    }

    /// Groups, places and bytes of the rings.
    fn rings(&self) -> impl Iterator<Item = (GroupId, PmAddr, u64)> + '_ {
        let head = self.head;
        let first = self.log_at().plus(head.log_bytes + head.area_bytes());
        (0..=head.units).map(move |group| {
            let before = if group == 0 { 0 } else { head.ring_bytes + u64::from(group - 1) * head.unit_ring_bytes };
            let bytes = if group == 0 { head.ring_bytes } else { head.unit_ring_bytes };
            (GroupId(group), first.plus(before), bytes)
        })
    }

    /// With packets of at most so long a payload.
    pub(crate) const fn with_payload(mut self, bytes: usize) -> Self {
        self.payload_bytes = bytes;
        self
    }

    /// The memory of the pool.
    pub(crate) fn memory(&self) -> &Memory {
        self.pool.memory()
    }

    /// The member that the node is. Once.
    pub(crate) fn member(&mut self) -> Result<Receiver> {
        let (Some(log), Some(area)) = (self.log.take(), self.area.take()) else {
            return Err(Error::Options("the node runs already".into()));
        };
        let options = ReceiverOptions {
            node: self.head.node,
            group: self.head.group,
            salt: self.head.salt,
            payload_bytes_max: self.payload_bytes,
            ..ReceiverOptions::default()
        };
        Ok(Receiver::new(options, log, area))
    }

    /// The sender of all groups that the node may become, under the name `node`.
    pub(crate) fn sender(&self, node: NodeId) -> Result<VolumeSender> {
        let head = self.head;
        let mut senders = Vec::new();
        for (group, at, bytes) in self.rings() {
            let ring = Ring::open(self.memory(), at, bytes, head.salt)?;
            let options = SenderOptions {
                node,
                group,
                salt: head.salt,
                payload_bytes_max: self.payload_bytes,
                ..SenderOptions::default()
            };
            senders.push(Sender::new(options, ring));
        }
        let operations = senders.remove(0);
        Ok(VolumeSender::new(operations, senders)?)
    }
}

/// Bytes of the ring of operations, and of the ring of a unit, of a volume of so many bytes.
pub(crate) fn rings_of(bytes: u64) -> (u64, u64) {
    // An operation writes at most a quarter of the ring of a unit.
    ((bytes / 32).clamp(512 << 10, 32 << 20) / 64 * 64, (bytes / 16).clamp(2 << 20, 64 << 20) / 64 * 64)
}

/// Sizes of the nodes of a volume of so many pages.
pub(crate) fn heads(volume_id: u64, salt: u64, page_bytes: u64, pages: u64, units: u32) -> NodeHead {
    let (ring_bytes, unit_ring_bytes) = rings_of(pages * page_bytes);
    NodeHead {
        volume_id,
        salt,
        node: NodeId(0),
        group: OPERATIONS,
        page_bytes: exact_u32(lodestone_width::to_usize(page_bytes)),
        pages,
        log_bytes: log_bytes(ring_bytes),
        ring_bytes,
        unit_ring_bytes,
        units,
    }
}

/// Bytes of the log of a member of the operations. Its entries take at most twice what records take in the ring.
const fn log_bytes(ring_bytes: u64) -> u64 {
    2 * ring_bytes + (128 << 10)
}

impl NodeHead {
    /// With rings of these sizes, if they are given.
    pub(crate) fn with_rings(self, rings: Option<(u64, u64)>) -> Self {
        let Some((ring_bytes, unit_ring_bytes)) = rings else { return self };
        Self { ring_bytes, unit_ring_bytes, log_bytes: log_bytes(ring_bytes), ..self }
    }

    /// A node with metadata.
    pub(crate) fn meta(self, node: NodeId) -> Self {
        Self { node, ..self }
    }

    /// A node with the pages of a unit.
    pub(crate) fn data(self, node: NodeId, group: GroupId) -> Self {
        let smallest = u64::from(self.page_bytes) + 16 + 96;
        // A record of one page takes 192 bytes here with a mark, and a page more in the ring.
        let entries = self.unit_ring_bytes / smallest + 1;
        let log_bytes = (2 * entries * 192).next_multiple_of(4096) + (128 << 10);
        Self { node, group, log_bytes, ring_bytes: 0, unit_ring_bytes: 0, units: 0, ..self }
    }
}

#[cfg(test)]
mod tests {
    use lodestone_width::to_u64;

    use super::*;

    #[test]
    fn a_head_comes_back_and_a_flipped_byte_shows() {
        let head = heads(7, 9, 4096, 10_000, 1).data(NodeId(101), GroupId(1));
        assert_eq!(NodeHead::from_bytes(&head.to_bytes()), Some(head));
        for byte in 0..HEAD_BYTES {
            let mut wrong = head.to_bytes();
            wrong[byte] ^= 1;
            assert_eq!(NodeHead::from_bytes(&wrong), None, "byte {byte}");
        }
        assert!(to_u64(head.to_bytes().len()) < COPY_OFFSET);
    }
}
