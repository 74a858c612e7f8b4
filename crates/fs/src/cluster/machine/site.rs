//! The description of a volume whose nodes are on several machines: a small file of text, the same everywhere.
//!
//! ```text
//! lodestone volume of machines 1
//! volume 8d2c0f6e11a4b3c7           number of the volume
//! revision 3                        changes of the machines since the format; 0: no line
//! size 1073741824                   bytes that each machine keeps
//! rings 33554432 67108864           bytes of the rings of operations and of pages; no line: by the pages of the volume
//! owner 1000 1000                   user and group of the root folder
//! created 1764300000000000000       nanoseconds since 1970
//! carrier unicast                   udp or unicast
//! payload 1392                      longest payload of a packet
//! network sealed                    sealed or plain
//! machine 1 10.0.0.1:7000           one line for each; UDP at its port and the two after it, TCP at its port
//! machine 2 10.0.0.2:7000 leaves    it is drained: its nodes are not to count
//! keeper 1 10.0.0.1:7411            one line for each
//! ```
//!
//! Who leads and who counts is at the keepers. This file only says where everybody is. A change of the machines is an
//! operation of the volume (`changes`), whose log has the newest text; files with older ones are brought up to it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_fabric::{GroupId, MEMBERS_MAX, NodeId, OPERATIONS, View};
use lodestone_registry::{KeeperId, MACHINES_MAX, REPLICA_OF_MACHINE};

use crate::cluster::link::UNIT;
use crate::cluster::net::{Carrier, Map};
use crate::cluster::peers::name_of;
use crate::cluster::plan::sender_of;
use crate::cluster::pool::rings_of;
use crate::error::{Error, Result};
use crate::inode::Stamp;

const FIRST_LINE: &str = "lodestone volume of machines 1";
/// Longest description.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// Payloads of packets: an MTU of 1,500 with heads and seal, and what machines on one host use.
const PAYLOADS: (u32, u32) = (1392, 8 << 10);
/// Ports that a machine takes, from its own on.
const PORTS: u16 = 3;

/// Where the machines and the keepers of a volume are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Number of the volume.
    pub volume: u64,
    /// Changes of the machines since the format.
    pub revision: u64,
    /// Bytes that each machine keeps.
    pub(crate) size_bytes: u64,
    /// Bytes of the ring of operations and of the ring of pages, which are the same at all nodes that may send: a
    /// takeover into a smaller one might wait for all members. `None`: by the pages, as former programs made them.
    pub(crate) rings: Option<(u64, u64)>,
    /// User and group of the root folder.
    pub owner: (u32, u32),
    /// Time of the format, nanoseconds since 1970.
    pub created: Stamp,
    /// How packets travel.
    pub carrier: Carrier,
    /// Longest payload of a packet.
    pub payload_bytes: u32,
    /// Whether packets are sealed, and connections have certificates.
    pub is_sealed: bool,
    /// The machines, with their addresses.
    pub machines: BTreeMap<u16, SocketAddrV4>,
    /// Those of them whose nodes are not to count: they are drained.
    pub leaving: BTreeSet<u16>,
    /// The keepers of the registry.
    pub keepers: BTreeMap<KeeperId, SocketAddr>,
}

impl Site {
    /// A new volume. Its number is drawn.
    ///
    /// # Errors
    /// Too few or too many machines; ports of two machines that overlap.
    pub fn new(machines: BTreeMap<u16, SocketAddrV4>, keepers: BTreeMap<KeeperId, SocketAddr>) -> Result<Self> {
        let created = crate::core::system_time();
        let volume = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), created).max(1);
        let is_one_host = machines.values().all(|address| address.ip().is_loopback());
        let site = Self {
            volume,
            revision: 0,
            size_bytes: 1 << 30,
            rings: Some(rings_of(1 << 30)),
            owner: (0, 0),
            created,
            carrier: Carrier::default(),
            payload_bytes: if is_one_host { PAYLOADS.1 } else { PAYLOADS.0 },
            is_sealed: true,
            machines,
            leaving: BTreeSet::new(),
            keepers,
        };
        site.check()?;
        Ok(site)
    }

    /// The same, with so many bytes at each machine.
    #[must_use]
    pub fn with_size(self, bytes: u64) -> Self {
        Self { size_bytes: bytes, rings: Some(rings_of(bytes)), ..self }
    }

    /// Bytes that each machine keeps.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Options(text));
        if self.machines.is_empty() || self.machines.keys().any(|machine| !(1..=MACHINES_MAX).contains(machine)) {
            return wrong(format!("a volume has machines with numbers from 1 to {MACHINES_MAX}"));
        }
        if self.machines.len() > MEMBERS_MAX {
            return wrong(format!("a volume has at most {MEMBERS_MAX} machines; remove one first"));
        }
        if self.keepers.is_empty() {
            return wrong("a volume of machines needs keepers of its registry; see `lodestone fabric`".into());
        }
        for (machine, address) in &self.machines {
            if address.port() == 0 || address.port() > u16::MAX - PORTS {
                return wrong(format!("machine {machine}: port {} and the two after it are none", address.port()));
            }
            let overlaps = |other: &SocketAddrV4| {
                other.ip() == address.ip() && other != address && other.port().abs_diff(address.port()) < PORTS
            };
            let is_twice = self.machines.values().filter(|other| *other == address).count() > 1;
            if is_twice || self.machines.values().any(overlaps) {
                return wrong(format!("machine {machine}: each machine takes {PORTS} ports from {address} on"));
            }
        }
        Ok(())
    }

    /// The text of the description.
    #[must_use]
    pub fn to_text(&self) -> String {
        let revision = if self.revision > 0 { format!("revision {}\n", self.revision) } else { String::new() };
        let rings = self.rings.map(|(ring, unit)| format!("rings {ring} {unit}\n")).unwrap_or_default();
        let mut text = format!(
            "{FIRST_LINE}\nvolume {:016x}\n{revision}size {}\n{rings}owner {} {}\ncreated {}\ncarrier {}\npayload {}\n\
             network {}\n",
            self.volume,
            self.size_bytes,
            self.owner.0,
            self.owner.1,
            self.created,
            name_of(self.carrier),
            self.payload_bytes,
            if self.is_sealed { "sealed" } else { "plain" }
        );
        let leaves = |machine: &u16| if self.leaving.contains(machine) { " leaves" } else { "" };
        let line = |(machine, address)| format!("machine {machine} {address}{}\n", leaves(machine));
        let machines = self.machines.iter().map(line);
        let keepers = self.keepers.iter().map(|(keeper, address)| format!("keeper {} {address}\n", keeper.0));
        text.extend(machines.chain(keepers));
        text
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == FIRST_LINE).then_some(())?;
        let mut site = Self {
            volume: 0,
            revision: 0,
            size_bytes: 0,
            rings: None,
            owner: (0, 0),
            created: 0,
            carrier: Carrier::default(),
            payload_bytes: PAYLOADS.0,
            is_sealed: true,
            machines: BTreeMap::new(),
            leaving: BTreeSet::new(),
            keepers: BTreeMap::new(),
        };
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["volume", number] => site.volume = u64::from_str_radix(number, 16).ok()?,
                ["revision", revision] => site.revision = revision.parse().ok()?,
                ["size", bytes] => site.size_bytes = bytes.parse().ok()?,
                ["rings", ring, unit] => {
                    let bytes = |text: &str| text.parse().ok().filter(|b: &u64| *b <= 1 << 40 && b.is_multiple_of(64));
                    site.rings = Some((bytes(ring)?, bytes(unit)?));
                }
                ["owner", user, group] => site.owner = (user.parse().ok()?, group.parse().ok()?),
                ["created", time] => site.created = time.parse().ok()?,
                ["carrier", carrier] => site.carrier = carrier.parse().ok()?,
                ["payload", bytes] => {
                    site.payload_bytes = bytes.parse().ok().filter(|b| (64..=16 << 10).contains(b))?
                }
                ["network", "sealed"] => site.is_sealed = true,
                ["network", "plain"] => site.is_sealed = false,
                ["machine", number, address, rest @ ..] => {
                    let number = number.parse().ok()?;
                    site.machines.insert(number, address.parse().ok()?).is_none().then_some(())?;
                    match rest {
                        [] => {}
                        ["leaves"] => _ = site.leaving.insert(number),
                        _ => return None,
                    }
                }
                ["keeper", number, address] => {
                    let keeper = KeeperId(number.parse().ok()?);
                    site.keepers.insert(keeper, address.parse().ok()?).is_none().then_some(())?;
                }
                [] => {}
                _ => return None,
            }
        }
        (site.volume > 0 && site.size_bytes > 0).then_some(site)
    }

    /// Whether the file is a description, and not a volume itself.
    #[must_use]
    pub fn is_at(path: &Path) -> bool {
        let mut first = [0; FIRST_LINE.len()];
        let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut first));
        read.is_ok() && first == *FIRST_LINE.as_bytes()
    }

    /// Reads a description.
    ///
    /// # Errors
    /// A file that cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Self> {
        let failed = |error| Error::Options(format!("{}: reading failed: {error}", path.display()));
        if std::fs::metadata(path).map_err(failed)?.len() > TEXT_BYTES_MAX {
            return Err(Error::Options(format!("{}: it is no description of a volume's machines", path.display())));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let wrong = || {
            let text = "a line makes no sense; copy the file again from where the volume was formatted";
            Error::Options(format!("{}: {text}", path.display()))
        };
        let site = Self::from_text(&text).ok_or_else(wrong)?;
        site.check()?;
        Ok(site)
    }

    /// The description in a text. `None`: it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_text(text).filter(|site| site.check().is_ok())
    }

    /// Writes the description into a new file.
    ///
    /// # Errors
    /// A file that is there already, or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<()> {
        let failed = |error| Error::Options(format!("{}: writing failed: {error}", path.display()));
        let file = std::fs::File::create_new(path).map_err(failed)?;
        std::io::Write::write_all(&mut &file, self.to_text().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        crate::cluster::make::sync_folder_of(path)
    }

    /// Replaces the description in a file, at once or not at all. Durable on return. Others may do so at the same time:
    /// one of them is there then, whole. A newer one of the same volume that was there before stays.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn replace(&self, path: &Path) -> Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let failed = |error| Error::Options(format!("{}: writing failed: {error}", path.display()));
        let is_older = |found: Self| found.volume == self.volume && found.revision > self.revision;
        if Self::read(path).is_ok_and(is_older) {
            return Ok(());
        }
        let mut new = path.as_os_str().to_owned();
        // A name of this call alone: no other one cuts the file short between its sync and its rename.
        new.push(format!(".{}-{}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        let file = std::fs::File::create(&new).map_err(failed)?;
        let written = std::io::Write::write_all(&mut &file, self.to_text().as_bytes())
            // The bytes come before the name: it never leads to less than the whole text.
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&new, path));
        if written.is_err() {
            _ = std::fs::remove_file(&new);
        }
        written.map_err(failed)?;
        crate::cluster::make::sync_folder_of(path)
    }

    /// The members of the groups at the beginning, for the registry.
    #[must_use]
    pub fn groups(&self) -> Vec<(GroupId, View)> {
        let replicas: Vec<NodeId> = self.machines.keys().map(|machine| replica_of(*machine)).collect();
        vec![(OPERATIONS, View::of(&self.metas())), (UNIT, View::of(&replicas))]
    }

    /// The nodes with metadata.
    pub(crate) fn metas(&self) -> Vec<NodeId> {
        self.machines.keys().copied().map(NodeId).collect()
    }

    /// The address of a machine.
    ///
    /// # Errors
    /// No such machine.
    pub fn address(&self, machine: u16) -> Result<SocketAddrV4> {
        let known: Vec<String> = self.machines.keys().map(ToString::to_string).collect();
        let missing = || Error::Options(format!("the volume has no machine {machine}, but {}", known.join(", ")));
        self.machines.get(&machine).copied().ok_or_else(missing)
    }

    /// The addresses of all nodes.
    pub(crate) fn map(&self) -> Map {
        let mut addresses = BTreeMap::new();
        for (machine, address) in &self.machines {
            let node = NodeId(*machine);
            for (node, after) in [(node, 0), (replica_of(*machine), 1), (sender_of(node), 2)] {
                addresses.insert(node, SocketAddrV4::new(*address.ip(), address.port() + after));
            }
        }
        Map { carrier: self.carrier, addresses }
    }
}

/// The replica of a machine.
pub(crate) const fn replica_of(machine: u16) -> NodeId {
    NodeId(machine + REPLICA_OF_MACHINE)
}

/// The machine of a node.
pub(crate) const fn machine_of(node: NodeId) -> u16 {
    if node.0 > REPLICA_OF_MACHINE { node.0 - REPLICA_OF_MACHINE } else { node.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(ports: &[u16]) -> Result<Site> {
        let address = |port: &u16| format!("127.0.0.1:{port}").parse().expect("an address");
        let machines = (1..).zip(ports.iter().map(address)).collect();
        Site::new(machines, BTreeMap::from([(KeeperId(1), "127.0.0.1:7411".parse().expect("an address"))]))
    }

    #[test]
    fn a_description_comes_back_and_other_text_is_refused() {
        let mut site = site(&[7000, 7003, 7006]).expect("a site");
        (site.revision, site.leaving) = (3, BTreeSet::from([2]));
        assert_eq!(Site::from_text(&site.to_text()).as_ref(), Some(&site));
        for line in 0..site.to_text().lines().count() {
            let wrong: Vec<String> = site.to_text().lines().map(str::to_owned).collect();
            let mut wrong = wrong;
            wrong[line] = format!("{} x", wrong[line]);
            assert_eq!(Site::from_text(&wrong.join("\n")), None, "line {line}");
        }
        assert_eq!(site.map().addresses.len(), 9);
        assert_eq!(site.groups()[1].1.members.len(), 3);
        assert_eq!((machine_of(replica_of(7)), machine_of(NodeId(7))), (7, 7));
    }

    #[test]
    fn machines_whose_ports_overlap_are_refused() {
        assert!(site(&[7000, 7002]).is_err());
        assert!(site(&[7000, 7000]).is_err());
        assert!(site(&[0]).is_err());
        assert!(site(&[]).is_err());
        assert!(site(&[7000, 7003]).is_ok());
    }
}
