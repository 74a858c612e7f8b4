//! The text of `lodestone db top`: a page for a terminal, lines for files and pipes.

use std::time::Duration;

use lodestone_width::whole_u64;

use super::change::{Change, NodeChange};
use super::published::Published;
use crate::output::properties;
use crate::size::human;

/// The columns of a line: title, width, and value.
type Column = (&'static str, usize, fn(&Change) -> String);

const COLUMNS: [Column; 10] = [
    ("commits/s", 9, |change| count(change.commits_per_s)),
    ("reads/s", 9, |change| count(change.read_only_per_s)),
    ("confl%", 7, |change| format!("{:.1}", change.conflict_percent)),
    ("retry/s", 8, |change| count(change.retries_per_s)),
    ("log/s", 9, |change| bytes(change.log_bytes_per_s)),
    ("log%", 6, |change| format!("{:.1}", change.log_fill_percent)),
    ("ckpt", 5, |change| change.checkpoints.to_string()),
    ("pages/s", 9, |change| bytes(change.page_bytes_per_s)),
    ("snaps", 6, |change| change.stats.snapshots_open.to_string()),
    ("kept", 9, |change| change.stats.side_versions.to_string()),
];

/// Those of a cache with a bound.
const CACHE_COLUMNS: [Column; 4] = [
    ("loads/s", 8, |change| cache_count(change, 0)),
    ("rows/s", 8, |change| cache_count(change, 1)),
    ("evict/s", 8, |change| cache_count(change, 2)),
    ("cache", 9, |change| short(change.stats.cache_bytes)),
];

fn columns(change: &Change) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().chain(CACHE_COLUMNS.iter().filter(|_| change.cache.is_some()))
}

/// The titles of the columns.
pub fn header(change: &Change) -> String {
    columns(change).map(|(title, width, _)| format!("{title:>width$}")).collect()
}

/// The interval as a line.
pub fn line(change: &Change) -> String {
    columns(change).map(|(_, width, value)| format!("{:>width$}", value(change))).collect()
}

fn cache_count(change: &Change, number: usize) -> String {
    let rates = change.cache.as_ref().map(|cache| [cache.loads_per_s, cache.row_reads_per_s, cache.evictions_per_s]);
    rates.map_or_else(String::new, |rates| count(rates[number]))
}

/// A rate of counts. Small ones have a digit after the point.
fn count(rate: f64) -> String {
    if rate == 0.0 || rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

/// A rate of bytes, without a space.
fn bytes(rate: f64) -> String {
    short(whole_u64(rate))
}

fn short(bytes: u64) -> String {
    human(bytes).replace("iB", "").replace(' ', "")
}

/// The trouble of the database, in words.
pub fn trouble(now: &Published) -> Option<String> {
    if now.is_poisoned {
        return Some("poisoned: a commit failed in the middle; close the database and open it again".into());
    }
    now.checkpoint_trouble.as_ref().map(|error| format!("the last checkpoint failed: {error}"))
}

/// The interval as a page.
pub fn page(now: &Published, change: &Change) -> String {
    let stats = &change.stats;
    let rows = [
        (
            "transactions",
            format!(
                "{} commits/s, {} read-only/s, {} cancelled/s",
                count(change.commits_per_s),
                count(change.read_only_per_s),
                count(change.cancelled_per_s)
            ),
        ),
        (
            "conflicts",
            format!("{:.1} % of the attempts, {} retries/s", change.conflict_percent, count(change.retries_per_s)),
        ),
        (
            "log",
            format!(
                "{}/s appended, {:.1} % of {} in use",
                human(whole_u64(change.log_bytes_per_s)),
                change.log_fill_percent,
                human(stats.log.segments_max.saturating_mul(stats.log.segment_bytes))
            ),
        ),
        (
            "checkpoints",
            format!(
                "{} in the interval, {} in all, {} failed; {}/s to pages",
                change.checkpoints,
                stats.pages.batches,
                stats.checkpoints_failed,
                human(whole_u64(change.page_bytes_per_s))
            ),
        ),
        (
            "pages",
            format!("{} of {}, {} free", stats.pages.pages, human(stats.pages.page_bytes), stats.pages.pages_free),
        ),
        (
            "snapshots",
            format!(
                "{} open, {} versions kept, {}",
                stats.snapshots_open,
                stats.side_versions,
                human(stats.side_bytes)
            ),
        ),
        ("cache", cache(change)),
        ("trouble", trouble(now).unwrap_or_else(|| "none".into())),
    ];
    let nodes: Vec<_> = change.nodes.iter().map(|node| (name(node.node), of_node(node))).collect();
    let rows = rows.into_iter().chain(nodes.iter().map(|(name, text)| (name.as_str(), text.clone())));
    let up = Duration::from_micros(now.elapsed_us).as_secs();
    let title = format!("{}  database {}  process {}  {up} s", now.pool, now.database, now.process);
    format!("{title}\n\n{}", properties(rows))
}

/// The name of a node.
fn name(node: Option<u32>) -> String {
    node.map_or_else(|| "node unknown".into(), |node| format!("node {node}"))
}

/// The part of the database on a node.
fn of_node(node: &NodeChange) -> String {
    let (log, pages) = (node.stats.log, node.stats.pages);
    format!(
        "{} of {} log segments and {} of {} pages in use; {}/s to pages",
        log.segments.saturating_sub(log.segments_free),
        log.segments,
        pages.pages.saturating_sub(pages.pages_free),
        pages.pages,
        human(whole_u64(node.page_bytes_per_s))
    )
}

fn cache(change: &Change) -> String {
    let Some(cache) = &change.cache else { return "no bound".into() };
    format!(
        "{}; {} leaves/s and {} rows/s read, {} leaves/s made room",
        human(change.stats.cache_bytes),
        count(cache.loads_per_s),
        count(cache.row_reads_per_s),
        count(cache.evictions_per_s)
    )
}

/// The bytes that draw `page` over the one before it: cursor home, the rest of each line cleared, the lines below
/// cleared.
pub fn frame(page: &str, is_first: bool) -> String {
    let clear = if is_first { "\x1b[2J" } else { "" };
    let lines: String = page.lines().map(|line| format!("{}\x1b[K\n", plain(line))).collect();
    format!("{clear}\x1b[H{lines}\x1b[J")
}

/// A line without control characters: a path can have some.
fn plain(line: &str) -> String {
    line.chars().map(|found| if found.is_control() { '?' } else { found }).collect()
}

#[cfg(test)]
mod tests {
    use lodestone_engine::NodeStats;

    use super::super::change::tests::files;
    use super::*;

    #[test]
    fn a_line_has_its_values_under_their_titles() {
        let (before, mut now) = files();
        let change = Change::between(&before, &now);
        assert_eq!(
            [header(&change), line(&change)],
            [
                "commits/s  reads/s confl% retry/s    log/s  log% ckpt  pages/s snaps     kept",
                "     95.0        0    5.0     4.5       2M  12.5    1     512K     1       12",
            ]
        );
        (now.figures.cache_bytes, now.figures.cache_loads) = (3 << 19, 400);
        let change = Change::between(&before, &now);
        assert!(header(&change).ends_with(" loads/s  rows/s evict/s    cache"));
        assert!(line(&change).ends_with("     200       0       0     1.5M"), "{}", line(&change));
        assert_eq!(header(&change).len(), line(&change).len());
    }

    #[test]
    fn a_page_has_everything_and_names_trouble() {
        let (before, mut now) = files();
        let text = page(&now, &Change::between(&before, &now));
        for part in ["/srv/shop.pool  database tables  process 7  5 s", "95.0 commits/s", "12.5 % of 32 MiB in use"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("1 open, 12 versions kept") && text.ends_with("trouble       none"), "{text}");
        assert!(!text.contains("node"), "{text}");
        let of = |node, written| {
            let figure =
                |name: &str| if name == "page_written_bytes" { written } else { u64::try_from(name.len()).ok() };
            NodeStats::from_figures(node, vec![0], figure).expect("all figures")
        };
        let old = Published { nodes: vec![of(Some(0), Some(1 << 20)), of(None, Some(0))], ..before.clone() };
        now.nodes = vec![of(Some(0), Some(3 << 20)), of(None, Some(0))];
        now.nodes[0].log.segments_free = 5;
        let text = page(&now, &Change::between(&old, &now));
        assert!(
            text.contains("node 0        7 of 12 log segments and 0 of 5 pages in use; 1 MiB/s to pages"),
            "{text}"
        );
        assert!(text.contains("\nnode unknown  0 of 12 log segments"), "{text}");
        now.checkpoint_trouble = Some("the pool is full\nreally".into());
        let text = page(&now, &Change::between(&before, &now));
        let drawn = frame(&text, true);
        assert!(drawn.contains("the last checkpoint failed: the pool is full"), "{drawn}");
        assert!(drawn.starts_with("\x1b[2J\x1b[H/srv") && drawn.ends_with("\x1b[K\n\x1b[J"), "{drawn:?}");
        assert!(!frame(&text, false).contains("\x1b[2J"));
        assert_eq!(plain("a\x1b[7m"), "a?[7m");
    }
}
