//! Where the rows of a table are: its placement, its node, its tablespace.
//!
//! The engine's table knows the first two, so a table that the library has made or moved shows where it is now. The
//! tablespace is the name of a node: it is noted beside the table, and counts as long as the table is on that node.

use lodestone_engine::{Database, Schema};
use lodestone_sql_types::{Error, Result, SqlState};

/// The text before the number of a node in the location of a tablespace.
const NODE_PREFIX: &str = "node:";

/// How rows are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In pages. DRAM has those that were used lately, up to the bound of the cache.
    #[default]
    Paged,
    /// In pages, and all of them in DRAM beside the cache.
    Memory,
    /// In cells of two versions in persistent memory, and in DRAM.
    Dual,
}

impl Placement {
    /// All of them, as they are written.
    pub const NAMES: &'static [&'static str] = &["paged", "memory", "dual"];
    const ALL: [Self; 3] = [Self::Paged, Self::Memory, Self::Dual];

    /// The placement with this name.
    ///
    /// # Errors
    /// 22023.
    pub fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|placement| placement.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let message = format!("invalid value for enum option \"placement\": {name}");
            Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .detail("Valid values are \"memory\", \"paged\" and \"dual\".")
                .hint(
                    "memory: all rows stay in DRAM; paged: those that are used; dual: small rows that change one by \
                     one, without a log.",
                )
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paged => "paged",
            Self::Memory => "memory",
            Self::Dual => "dual",
        }
    }

    /// That of an engine's table.
    pub fn of(schema: &Schema) -> Self {
        match (schema.is_dual(), schema.is_kept()) {
            (true, _) => Self::Dual,
            (false, true) => Self::Memory,
            (false, false) => Self::Paged,
        }
    }

    /// The table with this placement, of one with none.
    pub fn apply(self, schema: Schema) -> Schema {
        match self {
            Self::Paged => schema,
            Self::Memory => schema.kept(),
            Self::Dual => schema.dual(),
        }
    }
}

/// The node that a table is on, if that is known, and the number of the tablespace that it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TablePlace {
    pub node: Option<u32>,
    pub tablespace: Option<u32>,
}

/// A name for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tablespace {
    pub oid: u32,
    pub node: u32,
}

impl Tablespace {
    /// The node of a location as it was written, or as it is stored.
    pub fn node_of(location: &str) -> Option<u32> {
        location.strip_prefix(NODE_PREFIX)?.parse().ok()
    }

    /// The location.
    pub fn location(&self) -> String {
        format!("{NODE_PREFIX}{}", self.node)
    }
}

/// The node of the part that an engine's table is in.
pub fn node_of(database: &Database, schema: &Schema) -> Option<u32> {
    let part = usize::from(schema.part()?);
    database.pool().part_nodes().get(part)?.id
}

/// The part of the pool on a node.
///
/// # Errors
/// 22023, with the nodes that there are.
pub fn part_on(database: &Database, node: u32) -> Result<u16> {
    database.part_on(node).map_err(|_| {
        let mut nodes: Vec<u32> = database.pool().part_nodes().iter().filter_map(|part| part.id).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let names: Vec<String> = nodes.iter().map(u32::to_string).collect();
        let error =
            Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("the pool has no part of memory on node {node}"));
        match &names[..] {
            [] => error.hint(
                "No part of it is on a node that is known: `lodestone pool create --parts-per-node` makes such a pool.",
            ),
            [one] => error.hint(format!("It has parts on node {one} alone.")),
            more => error.hint(format!("It has parts on the nodes {}.", more.join(", "))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_have_their_names() {
        let schema = || "t (k u64) key (k)".parse::<Schema>().expect("a schema");
        for (placement, name) in Placement::ALL.into_iter().zip(Placement::NAMES) {
            assert_eq!((placement.name(), Placement::named(&name.to_uppercase()).ok()), (*name, Some(placement)));
            assert_eq!(Placement::of(&placement.apply(schema())), placement);
        }
        assert!(Placement::named("disk").is_err());
    }

    #[test]
    fn locations_come_back() {
        let found = Tablespace { oid: 1, node: 7 };
        assert_eq!(Tablespace::node_of(&found.location()), Some(7));
        for wrong in ["", "7", "node:", "node:x", "node:-1", "/mnt/pmem"] {
            assert_eq!(Tablespace::node_of(wrong), None, "{wrong}");
        }
    }
}
