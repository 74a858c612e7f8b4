//! Figures about the parts of a database on each node.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use lodestone_pages::PageStats;
use lodestone_wal::LogStats;

use crate::core::Core;
use crate::database::Database;
use crate::stats::write_figures;

/// Figures about the part of a database that is on one node: see [`Database::node_stats`](crate::Database::node_stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// The kernel's number of the node (the virtual node's own). `None`: the node of these parts is unknown.
    pub node: Option<u32>,
    /// The parts of the pool on it.
    pub parts: Vec<u16>,
    /// The segments of the logs in these parts. `segments_max` is that of the whole database: any may be there.
    pub log: LogStats,
    /// The pages in these parts, as the last checkpoint left them. `batches` is that of the whole database.
    pub pages: PageStats,
}

impl Database {
    /// Figures about the part of the database on each node, by the nodes of the pool's parts. It waits for no
    /// transaction and no checkpoint.
    ///
    /// ```
    /// # use lodestone_engine::{Database, DatabaseOptions, Error};
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("shop.pool");
    /// let parts = vec![folder.path().join("second.pool")];
    /// let pool = PoolOptions { virtual_nodes: 2, parts, domain: DomainChoice::Process, ..PoolOptions::default() };
    /// let db = Database::open_with(&path, &DatabaseOptions { pool, ..DatabaseOptions::default() })?;
    /// let nodes = db.node_stats();
    /// assert_eq!(nodes.iter().map(|node| node.parts.clone()).collect::<Vec<_>>(), [[0], [1]]);
    /// assert_eq!(nodes.iter().map(|node| node.pages.pages).sum::<u64>(), db.stats().pages.pages);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn node_stats(&self) -> Vec<NodeStats> {
        NodeStats::of(self.core())
    }
}

impl NodeStats {
    /// Those of all nodes with parts of the pool, by number; unknown ones first.
    pub(crate) fn of(core: &Core) -> Vec<Self> {
        let mut nodes = BTreeMap::<Option<u32>, Self>::new();
        let pages = core.rounds.page_stats_by_part();
        for ((part, found), pages) in (0..).zip(core.heap.pool().part_nodes()).zip(pages) {
            let log = core.wal.stats_in(part);
            match nodes.entry(found.id) {
                Entry::Vacant(place) => {
                    place.insert(Self { node: found.id, parts: vec![part], log, pages });
                }
                Entry::Occupied(place) => place.into_mut().add(part, log, pages),
            }
        }
        nodes.into_values().collect()
    }

    fn add(&mut self, part: u16, log: LogStats, pages: PageStats) {
        self.parts.push(part);
        self.log.segments += log.segments;
        self.log.segments_free += log.segments_free;
        self.pages.pages += pages.pages;
        self.pages.pages_free += pages.pages_free;
        self.pages.written_bytes += pages.written_bytes;
    }

    /// A node whose [figures](Self::figures) have the values that `find` knows by their names. The others are 0.
    ///
    /// # Errors
    /// The name of the first one that `find` does not know.
    ///
    /// ```
    /// use lodestone_engine::NodeStats;
    ///
    /// let node = NodeStats::from_figures(Some(1), vec![1], |name| Some(if name == "pages" { 7 } else { 0 }));
    /// assert_eq!(node.map(|node| node.pages.pages), Ok(7));
    /// assert_eq!(NodeStats::from_figures(None, vec![], |_| None), Err("log_segments"));
    /// ```
    pub fn from_figures(
        node: Option<u32>,
        parts: Vec<u16>,
        find: impl Fn(&str) -> Option<u64>,
    ) -> Result<Self, &'static str> {
        let mut stats = Self { node, parts, ..Self::default() };
        for (name, value) in stats.named() {
            *value = find(name).ok_or(name)?;
        }
        Ok(stats)
    }

    /// The figures that belong to the node alone, by name. Later versions may add some.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let mut copy = self.clone();
        copy.named().into_iter().map(|(name, value)| (name, *value)).collect()
    }

    /// The places of all figures, by name.
    const fn named(&mut self) -> [(&'static str, &mut u64); 5] {
        let Self { log, pages, .. } = self;
        [
            ("log_segments", &mut log.segments),
            ("log_segments_free", &mut log.segments_free),
            ("pages", &mut pages.pages),
            ("pages_free", &mut pages.pages_free),
            ("page_written_bytes", &mut pages.written_bytes),
        ]
    }
}

/// An object of JSON with the node, its parts, and its [figures](NodeStats::figures).
impl fmt::Display for NodeStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node.map_or_else(|| "null".into(), |node| node.to_string());
        write!(f, "{{\"node\":{node},\"parts\":{:?},\"figures\":", self.parts)?;
        write_figures(f, self.figures())?;
        f.write_str("}")
    }
}
