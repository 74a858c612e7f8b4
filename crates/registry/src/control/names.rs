//! The names in certificates.

use std::fmt;

use lodestone_fabric::NodeId;

use crate::keepers::KeeperId;
use crate::net::Peer;

/// Who a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A keeper.
    Keeper(KeeperId),
    /// A node of volumes.
    Node(NodeId),
    /// An operator.
    Operator,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keeper(id) => write!(f, "keeper-{}.lodestone", id.0),
            Self::Node(id) => write!(f, "node-{}.lodestone", id.0),
            Self::Operator => f.write_str("operator.lodestone"),
        }
    }
}

impl Name {
    /// The name that a certificate has; `None` if it is none of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix(".lodestone")?;
        let found = match name.split_once('-') {
            Some(("keeper", id)) => Self::Keeper(KeeperId(id.parse::<u16>().ok()?.into())),
            Some(("node", id)) => Self::Node(NodeId(id.parse().ok()?)),
            _ if name == "operator" => Self::Operator,
            _ => return None,
        };
        // One text for one name.
        (found.to_string() == text).then_some(found)
    }

    pub(crate) const fn peer(self) -> Peer {
        match self {
            Self::Keeper(id) => Peer::Keeper(id),
            Self::Node(id) => Peer::Node(id),
            Self::Operator => Peer::Operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [Name::Keeper(KeeperId(3)), Name::Node(NodeId(7)), Name::Operator] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        for wrong in [
            "node-07.lodestone",
            "node-70000.lodestone",
            "keeper-65536.lodestone",
            "node-7",
            "keeper.lodestone",
            "other.lodestone",
        ] {
            assert_eq!(Name::parse(wrong), None, "{wrong}");
        }
    }
}
