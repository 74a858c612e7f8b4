//! The file that a process writes its figures to: `docs/format.md`, "Figures of a database".
//!
//! The file is locked as long as its writer lives. So a file that this process can lock was left by one that died. It
//! may also be an older file that was replaced between the open and the lock: then it has no name any more.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use lodestone_engine::{DatabaseStats, NodeStats, PUBLISHED_VERSION};
use serde::Deserialize;

/// Periods after which figures are stale.
pub const PERIODS_MAX: u32 = 3;
/// Shortest such time: a busy machine is late.
const STALE_MIN: Duration = Duration::from_secs(1);
/// Most bytes of a file.
const BYTES_MAX: u64 = 1 << 20;
/// Files that are replaced while they are read, in a row.
const ATTEMPTS: u32 = 100;

/// The figures of a database, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub process: u32,
    pub pool: String,
    pub database: String,
    /// When the process began to publish. With the process it names the publisher.
    pub began_unix_us: u64,
    pub written_unix_us: u64,
    /// Time since the begin, by a clock that is never set.
    pub elapsed_us: u64,
    pub period_us: u64,
    /// Whether a commit failed in the middle. Then no transaction commits until the database is opened again.
    pub is_poisoned: bool,
    /// The error of the last checkpoint, if it failed.
    pub checkpoint_trouble: Option<String>,
    pub figures: DatabaseStats,
    /// By node. Earlier versions do not publish them.
    pub nodes: Vec<NodeStats>,
}

/// A node in the file: its figures by name.
#[derive(Deserialize)]
struct Node {
    node: Option<u32>,
    parts: Vec<u16>,
    figures: BTreeMap<String, u64>,
}

impl Node {
    fn stats(self) -> Result<NodeStats> {
        let figures = self.figures;
        let stats = NodeStats::from_figures(self.node, self.parts, |name| figures.get(name).copied());
        stats.map_err(|name| damaged(format!("missing figure `{name}` of a node")))
    }
}

/// The members of the file.
#[derive(Deserialize)]
struct Members {
    process: u32,
    pool: String,
    database: String,
    began_unix_us: u64,
    written_unix_us: u64,
    elapsed_us: u64,
    period_us: u64,
    poisoned: bool,
    // It must be there, and may be null.
    #[serde(deserialize_with = "Option::deserialize")]
    checkpoint_trouble: Option<String>,
    figures: BTreeMap<String, u64>,
    #[serde(default)]
    nodes: Vec<Node>,
}

/// The member that every version has.
#[derive(Deserialize)]
struct Version {
    lodestone_db_stats: u64,
}

impl Published {
    /// Reads the content of a file.
    fn parse(text: &str) -> Result<Self> {
        let version: Version = serde_json::from_str(text).map_err(damaged)?;
        let version = version.lodestone_db_stats;
        if version > PUBLISHED_VERSION {
            bail!(
                "its format has version {version}, and this program reads up to {PUBLISHED_VERSION}; use the \
                 `lodestone` of the program that has the database open"
            );
        }
        let members: Members = serde_json::from_str(text).map_err(damaged)?;
        let figures = DatabaseStats::from_figures(|name| members.figures.get(name).copied());
        let figures = figures.map_err(|name| damaged(format!("missing figure `{name}`")))?;
        Ok(Self {
            process: members.process,
            pool: members.pool,
            database: members.database,
            began_unix_us: members.began_unix_us,
            written_unix_us: members.written_unix_us,
            elapsed_us: members.elapsed_us,
            period_us: members.period_us,
            is_poisoned: members.poisoned,
            checkpoint_trouble: members.checkpoint_trouble,
            figures,
            nodes: members.nodes.into_iter().map(Node::stats).collect::<Result<_>>()?,
        })
    }

    /// Time from one write to the next.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_us)
    }

    /// Time since the file was written, by the clock of the system.
    fn age(&self) -> Duration {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since_1970.saturating_sub(Duration::from_micros(self.written_unix_us))
    }

    fn publisher(&self) -> (u32, u64, &str) {
        (self.process, self.began_unix_us, &self.pool)
    }

    /// Whether both are the same file.
    pub fn is_same_as(&self, other: &Self) -> bool {
        (self.publisher(), self.elapsed_us) == (other.publisher(), other.elapsed_us)
    }

    /// Whether the same publisher wrote this one later, so that counts can be compared.
    pub fn is_later_than(&self, before: &Self) -> bool {
        self.publisher() == before.publisher() && self.elapsed_us > before.elapsed_us
    }

    /// An error when no process writes the file any more.
    fn refuse_stale(&self, has_writer: bool) -> Result<()> {
        let (age, process) = (self.age(), self.process);
        let ago = if age < Duration::from_secs(1) { "just now".into() } else { format!("{} s ago", age.as_secs()) };
        if !has_writer {
            bail!("stale: written {ago}, process {process} is gone; the next process that publishes there replaces it");
        }
        if age > (self.period() * PERIODS_MAX).max(STALE_MIN) {
            bail!(
                "stale: written {ago}, process {process} is there and does not write; it is stopped, or has no room \
                 in the folder, see `Database::publish_trouble`"
            );
        }
        Ok(())
    }
}

fn damaged(finding: impl std::fmt::Display) -> anyhow::Error {
    anyhow!(
        "damaged, or no figures of a database: {finding}; a process that publishes writes the file anew, look again"
    )
}

/// The figures in the file at `path`. `None`: there is no file.
///
/// # Errors
/// A file that is damaged, too new, or stale; one that cannot be read.
pub fn read(path: &Path) -> Result<Option<Published>> {
    for _ in 0..ATTEMPTS {
        // Opening a pipe would wait for its writer.
        let opened =
            path.metadata().and_then(|found| if found.is_file() { File::open(path).map(Some) } else { Ok(None) });
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(None) => {
                bail!("{}: no regular file; name the file that a process publishes its figures in", path.display())
            }
            Ok(Some(file)) => file,
            Err(error) => {
                return Err(error).with_context(|| format!("{}: opening the file failed", path.display()));
            }
        };
        match read_open(&file) {
            Ok(None) => {}
            other => return other.with_context(|| path.display().to_string()),
        }
    }
    bail!("{}: the file was replaced {ATTEMPTS} times while it was read; look again", path.display())
}

/// The figures in an open file. `None`: it was replaced or removed meanwhile.
fn read_open(file: &File) -> Result<Option<Published>> {
    let has_writer = match file.try_lock_shared() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => return Err(error).context("locking the file failed"),
    };
    if !has_writer && file.metadata().context("looking at the file failed")?.nlink() == 0 {
        return Ok(None);
    }
    let mut text = String::new();
    // Bytes that are no text are damage.
    file.take(BYTES_MAX).read_to_string(&mut text).map_err(damaged)?;
    let published = Published::parse(&text)?;
    published.refuse_stale(has_writer)?;
    Ok(Some(published))
}

#[cfg(test)]
mod tests {
    use lodestone_engine::{Database, DatabaseOptions, PublishOptions};
    use lodestone_pmem::{DomainChoice, PoolOptions};

    use super::*;

    /// A folder, and in it a database that publishes.
    fn publishing() -> (tempfile::TempDir, Database, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a \"pool\"");
        let pool = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
        let options =
            DatabaseOptions { pool, log_bytes: 1 << 20, segment_bytes: 1 << 16, ..DatabaseOptions::default() };
        let database = Database::open_with(&path, &options).expect("a database");
        database.publish(&PublishOptions::default()).expect("a file");
        (folder, database, PublishOptions::default_path(&path))
    }

    #[test]
    fn everything_that_a_database_publishes_is_read() {
        let (_folder, database, file) = publishing();
        let found = read(&file).expect("figures").expect("a file");
        assert_eq!(found.figures, database.stats());
        let nodes = |nodes: &[NodeStats]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((found.nodes.len(), nodes(&found.nodes)), (1, nodes(&database.node_stats())));
        assert_eq!((found.process, found.database.as_str()), (std::process::id(), "tables"));
        assert!(found.pool.ends_with("/a \"pool\""), "{}", found.pool);
        assert_eq!(
            (found.period(), found.is_poisoned, &found.checkpoint_trouble),
            (Duration::from_secs(1), false, &None)
        );
        drop(database);
        assert_eq!(read(&file).expect("no error"), None);
    }

    #[test]
    fn damage_and_a_later_format_are_named() {
        let (_folder, _database, file) = publishing();
        let text = std::fs::read_to_string(&file).expect("a file");
        let error = |text: &str| format!("{:#}", Published::parse(text).expect_err(text));
        for end in 0..text.trim_end().len() {
            assert!(error(&text[..end]).starts_with("damaged"), "{end}");
        }
        let members = [
            "process",
            "pool",
            "database",
            "began_unix_us",
            "written_unix_us",
            "elapsed_us",
            "period_us",
            "poisoned",
            "checkpoint_trouble",
            "figures",
            "lodestone_db_stats",
            "log_segments_max",
        ];
        for member in members {
            let without = error(&text.replacen(&format!("\"{member}\":"), "\"other\":", 1));
            assert!(without.contains(&format!("`{member}`")), "{member}: {without}");
        }
        assert!(error(&text.replace("\"poisoned\":false", "\"poisoned\":7")).starts_with("damaged"));
        assert!(error(&text.replace("_stats\":1,", "_stats\":2,")).contains("version 2"), "newer");
        let before_nodes = Published::parse(&format!("{}}}\n", text.split(",\"nodes\"").next().expect("a part")));
        assert_eq!(before_nodes.expect("an earlier version").nodes, []);
        assert!(error(&text.replace("\"parts\"", "\"other\"")).contains("`parts`"));
        let (head, nodes) = text.split_once("\"nodes\"").expect("nodes");
        let without = error(&format!("{head}\"nodes\"{}", nodes.replace("\"pages_free\"", "\"other\"")));
        assert!(without.contains("missing figure `pages_free` of a node"), "{without}");
        // Members that a later program adds do no harm.
        let more = text.replacen("\"process\"", "\"colour\":\"red\",\"process\"", 1);
        let more = more.replacen("\"parts\"", "\"colour\":\"red\",\"parts\"", 1);
        assert_eq!(Published::parse(&more).expect("figures"), Published::parse(&text).expect("figures"));
    }

    #[test]
    fn figures_that_no_process_writes_are_stale() {
        let (folder, _database, file) = publishing();
        let text = std::fs::read_to_string(&file).expect("a file");
        let copy = folder.path().join("copy");
        std::fs::write(&copy, &text).expect("a file");
        let error = format!("{:#}", read(&copy).expect_err("it has no lock"));
        let process = std::process::id();
        assert!(error.contains(&format!("stale: written just now, process {process} is gone")), "{error}");
        let mut old = Published::parse(&text).expect("figures");
        old.written_unix_us -= 12_500_000;
        let error = old.refuse_stale(true).expect_err("it is old").to_string();
        assert!(error.contains(&format!("written 12 s ago, process {process} is there")), "{error}");
        old.period_us = 10_000_000;
        old.refuse_stale(true).expect("three periods have 30 seconds");
    }
}
