//! The figures of a database in the text format of Prometheus, for a server that asks a process for its metrics.
//!
//! A name ends in `_total` where the figure only rises while the database is open. All others may fall.

use std::fmt::Write;

use crate::node_stats::NodeStats;
use crate::stats::DatabaseStats;

/// Figures that only rise, by their name without the prefix, and what each of all figures is about.
const DESCRIPTIONS: [(&str, bool, &str); 31] = [
    ("commits", true, "Transactions that committed changes."),
    ("read_only", true, "Transactions that ended well and changed nothing."),
    ("cancelled", true, "Transactions that ended with an error of their closure."),
    ("conflicts", true, "Attempts that met a conflict."),
    ("retries", true, "Attempts that ran again after a conflict."),
    ("regions", true, "Commits whose locks were taken in one hardware transaction."),
    ("region_conflicts", true, "Hardware transactions that were aborted because of another thread."),
    ("region_overflows", true, "Hardware transactions that did not fit into the processor's caches."),
    ("region_others", true, "Hardware transactions that were aborted for another reason."),
    ("region_fallbacks", true, "Commits that took their locks one by one after that."),
    ("snapshots_open", false, "Snapshots that are open."),
    ("side_copies", true, "Versions that were kept for snapshots."),
    ("side_versions", false, "Versions that are kept for snapshots at present."),
    ("side_bytes", false, "Bytes of the versions that are kept for snapshots."),
    ("cache_bytes", false, "Bytes of the rows in DRAM and of all leaves, with a bound for the cache."),
    ("cache_loads", true, "Leaves that were read from their pages."),
    ("cache_evictions", true, "Leaves that made room."),
    ("cache_row_reads", true, "Rows that were read from their pages without the others of their leaves."),
    ("cache_warm_loads", true, "Leaves of the last close that were read again after the open."),
    ("scan_leaves_ahead", true, "Leaves that threads on other nodes have read ahead of long scans."),
    ("checkpoints_failed", true, "Checkpoints that failed."),
    ("log_segments", false, "Segments of the logs."),
    ("log_segments_free", false, "Segments of the logs that have no records."),
    ("log_segments_max", false, "Segments that the logs may have."),
    ("log_segment_bytes", false, "Bytes of a segment."),
    ("pages", false, "Pages of the database."),
    ("pages_free", false, "Pages that hold nothing."),
    ("page_bytes", false, "Bytes of a page."),
    ("page_batches", true, "Checkpoints and loads that were written since the database was made."),
    ("page_written_bytes", true, "Bytes that were written to pages."),
    ("log_appended_bytes", true, "Bytes of all records that were ever appended to the logs."),
];

impl DatabaseStats {
    /// The figures as Prometheus reads them, each as `lodestone_db_NAME` with the label `database`.
    ///
    /// ```
    /// use lodestone_engine::{Database, Error, Schema, Type, row};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let db = Database::open(folder.path().join("shop.pool"))?;
    /// let table = db.create_table(&Schema::new("t").column("k", Type::U64).key(["k"]))?;
    /// let before = db.stats().commits;
    /// db.update(|tx| table.put(tx, &row![1_u64]))?;
    /// let text = db.stats().to_prometheus("shop");
    /// let line = format!("lodestone_db_commits_total{{database=\"shop\"}} {}\n", before + 1);
    /// assert!(text.contains(&line));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn to_prometheus(&self, database: &str) -> String {
        let label = label(database);
        let mut text = String::new();
        for ((figure, value), (name, is_counter, about)) in self.figures().into_iter().zip(DESCRIPTIONS) {
            debug_assert_eq!(figure, name, "descriptions are in the order of the figures");
            let full = begin(&mut text, name, is_counter, about);
            // Text that is written to a string does not fail.
            let _ = writeln!(text, "{full}{{database=\"{label}\"}} {value}");
        }
        text
    }
}

/// Begins a figure. Returns its full name.
fn begin(text: &mut String, name: &str, is_counter: bool, about: &str) -> String {
    let (kind, end) = if is_counter { ("counter", "_total") } else { ("gauge", "") };
    let full = format!("lodestone_db_{name}{end}");
    // Text that is written to a string does not fail.
    let _ = writeln!(text, "# HELP {full} {about}\n# TYPE {full} {kind}");
    full
}

/// A value of a label as Prometheus reads it.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The figures of a node in their order, as those above.
const OF_NODES: [(&str, bool, &str); 5] = [
    ("node_log_segments", false, "Segments of the logs on the node."),
    ("node_log_segments_free", false, "Segments of the logs on the node that have no records."),
    ("node_pages", false, "Pages on the node."),
    ("node_pages_free", false, "Pages on the node that hold nothing."),
    ("node_page_written_bytes", true, "Bytes that were written to pages on the node."),
];

impl NodeStats {
    /// The figures of the nodes of a database as Prometheus reads them, each as `lodestone_db_node_NAME` with the
    /// labels `database` and `node`. An unknown node has an empty label.
    ///
    /// ```
    /// use lodestone_engine::NodeStats;
    ///
    /// let node = NodeStats::from_figures(Some(1), vec![1], |name| Some(if name == "pages" { 7 } else { 0 }));
    /// let text = NodeStats::to_prometheus(&[node?], "shop");
    /// assert!(text.contains("lodestone_db_node_pages{database=\"shop\",node=\"1\"} 7\n"));
    /// # Ok::<(), &str>(())
    /// ```
    #[must_use]
    pub fn to_prometheus(nodes: &[Self], database: &str) -> String {
        let label = label(database);
        let mut text = String::new();
        for (number, (name, is_counter, about)) in OF_NODES.into_iter().enumerate() {
            let full = begin(&mut text, name, is_counter, about);
            for node in nodes {
                let (figure, value) = node.figures()[number];
                debug_assert_eq!(name, format!("node_{figure}"), "descriptions are in the order of the figures");
                let id = node.node.map_or_else(String::new, |id| id.to_string());
                let _ = writeln!(text, "{full}{{database=\"{label}\",node=\"{id}\"}} {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_a_node_is_told_once_with_all_nodes() {
        let node = |id, value| NodeStats::from_figures(id, vec![0], |_| Some(value)).expect("all figures");
        let text = NodeStats::to_prometheus(&[node(None, 7), node(Some(3), 8)], "a");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4 * OF_NODES.len());
        assert_eq!(
            lines[1..4],
            [
                "# TYPE lodestone_db_node_log_segments gauge",
                "lodestone_db_node_log_segments{database=\"a\",node=\"\"} 7",
                "lodestone_db_node_log_segments{database=\"a\",node=\"3\"} 8",
            ]
        );
        assert_eq!(lines[17], "# TYPE lodestone_db_node_page_written_bytes_total counter");
    }

    #[test]
    fn each_figure_has_three_lines() {
        let stats = DatabaseStats { commits: 7, side_bytes: 9, ..DatabaseStats::default() };
        let text = stats.to_prometheus("a \"b\"\\\n");
        let figures = stats.figures();
        let names: Vec<_> = DESCRIPTIONS.iter().map(|(name, _, _)| *name).collect();
        assert_eq!(names, figures.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3 * figures.len());
        assert_eq!(lines[1], "# TYPE lodestone_db_commits_total counter");
        assert_eq!(lines[2], r#"lodestone_db_commits_total{database="a \"b\"\\\n"} 7"#);
        assert!(lines.contains(&r#"lodestone_db_side_bytes{database="a \"b\"\\\n"} 9"#));
        for about in lines.chunks(3) {
            let name = about[2].split('{').next().expect("a name");
            assert!(about[0].starts_with(&format!("# HELP {name} ")) && about[0].ends_with('.'), "{about:?}");
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            assert_eq!(about[1], format!("# TYPE {name} {kind}"));
        }
    }
}
