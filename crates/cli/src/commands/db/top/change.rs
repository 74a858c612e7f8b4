//! The change of the figures from one view to the next.

use std::collections::BTreeMap;

use lodestone_engine::{DatabaseStats, NodeStats};
use lodestone_width::nearest_f64;
use serde::Serialize;

use super::published::Published;

/// An interval: its rates, and the figures at its end. With `--json` it is a line.
#[derive(Debug, Serialize)]
pub struct Change {
    pub process: u32,
    pub pool: String,
    pub database: String,
    pub written_unix_us: u64,
    /// Length of the interval.
    pub seconds: f64,
    pub commits_per_s: f64,
    pub read_only_per_s: f64,
    pub cancelled_per_s: f64,
    pub retries_per_s: f64,
    /// Attempts that met a conflict, among all attempts.
    pub conflict_percent: f64,
    pub log_bytes_per_s: f64,
    /// Segments with records, among all that the logs may have.
    pub log_fill_percent: f64,
    /// In this interval.
    pub checkpoints: u64,
    pub page_bytes_per_s: f64,
    /// By node, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeChange>,
    /// Only with a bound for the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheChange>,
    pub poisoned: bool,
    pub checkpoint_trouble: Option<String>,
    /// All figures at the end of the interval.
    figures: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    pub stats: DatabaseStats,
}

/// The part of the cache.
#[derive(Debug, Serialize)]
pub struct CacheChange {
    pub loads_per_s: f64,
    pub row_reads_per_s: f64,
    pub evictions_per_s: f64,
}

/// The part on one node.
#[derive(Debug, Serialize)]
pub struct NodeChange {
    /// `None`: unknown.
    pub node: Option<u32>,
    pub parts: Vec<u16>,
    pub page_bytes_per_s: f64,
    /// All figures at the end of the interval.
    figures: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    pub stats: NodeStats,
}

impl NodeChange {
    fn between(old: Option<&NodeStats>, now: &NodeStats, seconds: f64) -> Self {
        let bytes = now.pages.written_bytes.saturating_sub(old.map_or(0, |old| old.pages.written_bytes));
        Self {
            node: now.node,
            parts: now.parts.clone(),
            page_bytes_per_s: rounded(nearest_f64(bytes) / seconds),
            figures: now.figures().into_iter().collect(),
            stats: now.clone(),
        }
    }
}

impl Change {
    /// From `before` to `now`, which the same publisher wrote later.
    pub fn between(before: &Published, now: &Published) -> Self {
        let (old, new) = (before.figures, now.figures);
        let seconds = nearest_f64(now.elapsed_us.saturating_sub(before.elapsed_us).max(1)) / 1e6;
        let more = |figure: fn(&DatabaseStats) -> u64| figure(&new).saturating_sub(figure(&old));
        let per_s = |figure| rounded(nearest_f64(more(figure)) / seconds);
        let conflicts = more(|stats| stats.conflicts);
        let attempts = more(|stats| stats.commits + stats.read_only + stats.cancelled) + conflicts;
        let node = |(number, node)| NodeChange::between(before.nodes.get(number), node, seconds);
        let several = if now.nodes.len() > 1 { &now.nodes[..] } else { &[] };
        let cache = CacheChange {
            loads_per_s: per_s(|stats| stats.cache_loads),
            row_reads_per_s: per_s(|stats| stats.cache_row_reads),
            evictions_per_s: per_s(|stats| stats.cache_evictions),
        };
        Self {
            process: now.process,
            pool: now.pool.clone(),
            database: now.database.clone(),
            written_unix_us: now.written_unix_us,
            seconds: rounded(seconds),
            commits_per_s: per_s(|stats| stats.commits),
            read_only_per_s: per_s(|stats| stats.read_only),
            cancelled_per_s: per_s(|stats| stats.cancelled),
            retries_per_s: per_s(|stats| stats.retries),
            conflict_percent: percent(conflicts, attempts),
            log_bytes_per_s: per_s(|stats| stats.log_appended_bytes),
            log_fill_percent: percent(new.log.segments.saturating_sub(new.log.segments_free), new.log.segments_max),
            checkpoints: more(|stats| stats.pages.batches),
            page_bytes_per_s: per_s(|stats| stats.pages.written_bytes),
            nodes: several.iter().enumerate().map(node).collect(),
            cache: (new.cache_bytes > 0).then_some(cache),
            poisoned: now.is_poisoned,
            checkpoint_trouble: now.checkpoint_trouble.clone(),
            figures: new.figures().into_iter().collect(),
            stats: new,
        }
    }
}

/// A part of a whole in percent; 0 of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { rounded(100.0 * nearest_f64(part) / nearest_f64(whole)) }
}

/// Two digits after the point.
fn rounded(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Two files of one publisher, 2 seconds apart.
    pub fn files() -> (Published, Published) {
        let mut before = Published {
            process: 7,
            pool: "/srv/shop.pool".into(),
            database: "tables".into(),
            began_unix_us: 1,
            written_unix_us: 3_000_001,
            elapsed_us: 3_000_000,
            period_us: 1_000_000,
            is_poisoned: false,
            checkpoint_trouble: None,
            figures: DatabaseStats::default(),
            nodes: Vec::new(),
        };
        let old = &mut before.figures;
        (old.commits, old.conflicts, old.pages.batches) = (100, 50, 3);
        (old.log.segments, old.log.segments_free, old.log.segments_max) = (8, 6, 32);
        old.log.segment_bytes = 1 << 20;
        let mut now = before.clone();
        now.elapsed_us += 2_000_000;
        let new = &mut now.figures;
        (new.commits, new.conflicts, new.retries, new.pages.batches) = (290, 60, 9, 4);
        (new.log_appended_bytes, new.pages.written_bytes, new.log.segments_free) = (4 << 20, 1 << 20, 4);
        (new.snapshots_open, new.side_versions, new.side_bytes) = (1, 12, 3000);
        (before, now)
    }

    #[test]
    fn rates_are_differences_by_the_time_between_the_files() {
        let (before, mut now) = files();
        let change = Change::between(&before, &now);
        assert_eq!((change.seconds, change.commits_per_s, change.retries_per_s), (2.0, 95.0, 4.5));
        assert_eq!((change.conflict_percent, change.log_fill_percent), (5.0, 12.5));
        assert_eq!((change.log_bytes_per_s, change.page_bytes_per_s, change.checkpoints), (2_097_152.0, 524_288.0, 1));
        let object = serde_json::to_value(&change).expect("JSON");
        assert_eq!((&object["figures"]["commits"], &object["commits_per_s"]), (&290.into(), &95.0.into()));
        assert!(object.get("cache").is_none() && object["checkpoint_trouble"].is_null(), "{object}");
        (now.figures.cache_bytes, now.figures.cache_loads) = (1, 6);
        let object = serde_json::to_value(Change::between(&before, &now)).expect("JSON");
        assert_eq!(object["cache"]["loads_per_s"], 3.0);
    }
}
