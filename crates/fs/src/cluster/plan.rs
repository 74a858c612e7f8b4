//! The mark of a volume with replicas, in its image, and the places of its nodes.

use std::path::{Path, PathBuf};

use lodestone_fabric::{GroupId, NodeId, OPERATIONS, View};

use super::link::UNIT;
use crate::bytes::{Reader, Writer};
use crate::error::{Error, Result};

const VERSION: u32 = 1;
/// Most replicas of a unit.
pub const REPLICAS_MAX: u16 = 7;
/// Most standbys.
pub const STANDBYS_MAX: u16 = 6;
/// The first number of a node with pages.
pub(crate) const FIRST_DATA: u16 = 101;
/// A node that sends has a second name: it is a member too.
const SENDS: u16 = 0x4000;

/// How many nodes a volume has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Replicas in the process of the metadata node; 0: they are elsewhere.
    pub(crate) replicas: u16,
    pub(crate) standbys: u16,
}

impl Plan {
    pub(crate) fn new(replicas: u16, standbys: u16) -> Result<Self> {
        if !(1..=REPLICAS_MAX).contains(&replicas) || standbys > STANDBYS_MAX {
            let text = format!("a volume has 1 to {REPLICAS_MAX} replicas and at most {STANDBYS_MAX} standbys");
            return Err(Error::Options(text));
        }
        Ok(Self { replicas, standbys })
    }

    /// Replicas in other processes.
    pub(crate) const fn elsewhere() -> Self {
        Self { replicas: 0, standbys: 0 }
    }

    pub(crate) fn to_mark(self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(VERSION).u32(self.replicas.into()).u32(self.standbys.into());
        out.0
    }

    /// The plan in a mark.
    pub(crate) fn of_mark(mark: Option<Vec<u8>>, path: &Path) -> Result<Option<Self>> {
        let Some(mark) = mark else { return Ok(None) };
        let mut from = Reader(&mark);
        let version = from.u32().unwrap_or(0);
        if version > VERSION {
            return Err(Error::TooNew { path: path.to_owned(), found: version, known: VERSION });
        }
        let mut number = || from.u32().and_then(|number| u16::try_from(number).ok()).unwrap_or(u16::MAX);
        let (replicas, standbys) = (number(), number());
        if (replicas, standbys) == (0, 0) {
            return Ok(Some(Self::elsewhere()));
        }
        Self::new(replicas, standbys).map(Some)
    }

    /// Nodes with metadata; the first has the volume's own file.
    pub(crate) fn metas(&self) -> Vec<NodeId> {
        (1..=1 + self.standbys).map(NodeId).collect()
    }

    /// Nodes with pages.
    pub(crate) fn datas(&self) -> Vec<NodeId> {
        (FIRST_DATA..FIRST_DATA + self.replicas).map(NodeId).collect()
    }

    /// The first members of all groups. `elsewhere`: replicas in other processes.
    pub(crate) fn views(&self, elsewhere: &[NodeId]) -> Vec<(GroupId, View)> {
        let datas = [&self.datas(), elsewhere].concat();
        vec![(OPERATIONS, View::of(&self.metas())), (UNIT, View::of(&datas))]
    }
}

/// The name under which a node with metadata sends.
pub(crate) const fn sender_of(meta: NodeId) -> NodeId {
    NodeId(meta.0 | SENDS)
}

/// The node with metadata that sends under this name.
pub(crate) const fn meta_of(sender: NodeId) -> NodeId {
    NodeId(sender.0 & !SENDS)
}

/// The group of a node.
pub(crate) const fn group_of(node: NodeId) -> GroupId {
    if node.0 >= FIRST_DATA { UNIT } else { OPERATIONS }
}

/// The files of a volume's nodes: a folder beside it.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The image of node 1.
    volume: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Places {
    pub(crate) fn of(volume: &Path) -> Self {
        let mut name = volume.as_os_str().to_owned();
        name.push(".nodes");
        Self { volume: volume.to_owned(), folder: name.into() }
    }

    /// The files of a machine: all of them are in its folder.
    pub(crate) fn of_machine(folder: &Path) -> Self {
        Self { volume: folder.join("image-1.vol"), folder: folder.to_owned() }
    }

    /// The file that names the volume: with it the folder is the volume's.
    pub(crate) fn owner(&self) -> PathBuf {
        self.folder.join("volume")
    }

    /// Whether a file of this name belongs to the nodes.
    pub(crate) fn is_of_node(name: &str) -> bool {
        let is_number = |text: &str| text.parse::<u16>().is_ok();
        let parts = [("meta-", ""), ("data-", ""), ("image-", ".vol")];
        let of_node = |(before, after): (&str, &str)| {
            name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).is_some_and(is_number)
        };
        ["registry", "addresses", "addresses.new", "control"].contains(&name) || parts.into_iter().any(of_node)
    }

    /// The file of terms and members.
    pub(crate) fn registry(&self) -> PathBuf {
        self.folder.join("registry")
    }

    /// The addresses of replicas in other processes.
    pub(crate) fn addresses(&self) -> PathBuf {
        self.folder.join("addresses")
    }

    /// The pool of a node.
    pub(crate) fn node(&self, node: NodeId) -> PathBuf {
        let kind = if group_of(node) == OPERATIONS { "meta" } else { "data" };
        self.folder.join(format!("{kind}-{}", node.0))
    }

    /// The volume of a node with metadata: its image.
    pub(crate) fn image(&self, node: NodeId) -> PathBuf {
        if node == NodeId(1) { self.volume.clone() } else { self.folder.join(format!("image-{}.vol", node.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back() {
        let plan = Plan::new(3, 1).expect("a plan");
        let path = Path::new("a.vol");
        assert_eq!(Plan::of_mark(Some(plan.to_mark()), path).expect("a plan"), Some(plan));
        assert_eq!(Plan::of_mark(None, path).expect("none"), None);
        assert!(Plan::of_mark(Some(vec![1]), path).is_err());
        assert!(Plan::of_mark(Some(vec![9; 12]), path).is_err(), "a newer one");
        assert_eq!(meta_of(sender_of(NodeId(2))), NodeId(2));
        assert!(Plan::new(0, 0).is_err());
    }
}
