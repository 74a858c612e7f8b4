//! Histories of files: programs of ours that write, sync and rename, and know what must be there after each operation.
//!
//! A history is a sequence of operations on a folder of its own, drawn from a seed: files are made, written, cut,
//! synced, renamed over each other and removed, and folders are renamed under them. Each is one operation of the
//! volume, except a write: the kernel cuts it after a page that it has in part and that is not in its cache. The writer
//! notes in a log, which is not on the volume, when each begins and when it was answered.
//!
//! After everything died, the folder must be as after one of its operations, from the last answered sync to the last
//! one that began: names, lengths, and each byte. Of a write the first pages may be there. So every synced byte is
//! there, no rename is torn, and no file shows bytes of others: each word that an operation writes has its number.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::program::Program;
use super::{Load, Verdict};

/// Histories at the same time.
const HISTORIES: u64 = 2;
const FOLDERS: [&str; 3] = ["x", "y", "z"];
/// Names in a folder.
const NAMES: u64 = 6;
const FILE_BYTES_MAX: u64 = 48 << 10;
const WRITE_BYTES_MAX: u64 = 12 << 10;
const PAGE_BYTES: u64 = 4096;

/// One history, for the process that writes it.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder.
    #[arg(long)]
    folder: PathBuf,
    /// The log.
    #[arg(long)]
    log: PathBuf,
    /// The seed of its operations.
    #[arg(long)]
    seed: u64,
    /// Operations.
    #[arg(long)]
    operations: u64,
}

/// Everything below the folder of a history, and itself: folders, and files with their content.
type Tree = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Op {
    MakeFolder(String),
    Create(String),
    Write { name: String, at: u64, bytes: Vec<u8> },
    Truncate { name: String, bytes: u64 },
    Rename { from: String, to: String },
    Remove(String),
    Sync(String),
}

/// The operations of a history, and the tree after the last one that was drawn.
struct History {
    random: StdRng,
    seed: u64,
    drawn: u64,
    tree: Tree,
}

impl History {
    fn new(seed: u64) -> Self {
        Self { random: StdRng::seed_from_u64(seed), seed, drawn: 0, tree: Tree::new() }
    }

    fn names(&self, are_files: bool) -> Vec<String> {
        let wanted = self.tree.iter().filter(|(name, content)| content.is_some() == are_files && !name.is_empty());
        wanted.map(|(name, _)| name.clone()).collect()
    }

    fn one_of(&mut self, names: &[String]) -> Option<String> {
        let last = names.len().checked_sub(1)?;
        names.get(self.random.random_range(0..=last)).cloned()
    }

    /// The next operation. The tree has it.
    fn next(&mut self) -> Op {
        self.drawn += 1;
        let op = match self.drawn {
            1 => Op::MakeFolder(String::new()),
            2 => Op::MakeFolder(FOLDERS[0].into()),
            3 => Op::MakeFolder(FOLDERS[1].into()),
            _ => self.draw(),
        };
        op.apply(&mut self.tree);
        op
    }

    fn draw(&mut self) -> Op {
        let (files, folders) = (self.names(true), self.names(false));
        let kind = self.random.random_range(0..100);
        let Some(name) = self.one_of(&files).filter(|_| kind >= 18) else {
            let name = self.any_name(&folders);
            return if self.tree.contains_key(&name) { Op::Sync(name) } else { Op::Create(name) };
        };
        let length = self.tree.get(&name).and_then(Option::as_ref).map_or(0, Vec::len);
        match kind {
            18..=57 => {
                let at = self.random.random_range(0..=u64::try_from(length).unwrap_or(0));
                let count = self.random.random_range(1..=WRITE_BYTES_MAX).min(FILE_BYTES_MAX.saturating_sub(at).max(1));
                Op::Write { name, at, bytes: content(self.seed, self.drawn, count) }
            }
            58..=62 => Op::Truncate { name, bytes: self.random.random_range(0..FILE_BYTES_MAX) },
            63..=79 => {
                let to = self.any_name(&folders);
                // A rename to the same name does nothing.
                if to == name { Op::Sync(name) } else { Op::Rename { from: name, to } }
            }
            80..=84 => Op::Remove(name),
            85..=87 => {
                let from = self.one_of(&folders).unwrap_or_default();
                let free = FOLDERS.iter().find(|folder| !folders.iter().any(|found| found == *folder));
                Op::Rename { from, to: free.copied().unwrap_or_default().into() }
            }
            88..=91 => Op::Sync(self.one_of(&folders).unwrap_or_default()),
            _ => Op::Sync(name),
        }
    }

    fn any_name(&mut self, folders: &[String]) -> String {
        let folder = self.one_of(folders).unwrap_or_default();
        format!("{folder}/{}", self.random.random_range(0..NAMES))
    }
}

/// Bytes that no other operation writes.
fn content(seed: u64, number: u64, count: u64) -> Vec<u8> {
    let first = (seed << 40 ^ number << 16).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = (0..count.div_ceil(8)).flat_map(|word| (first ^ word).to_le_bytes());
    words.take(usize::try_from(count).unwrap_or(0)).collect()
}

impl Op {
    fn apply(&self, tree: &mut Tree) {
        match self {
            Self::MakeFolder(name) => _ = tree.insert(name.clone(), None),
            Self::Create(name) => _ = tree.insert(name.clone(), Some(Vec::new())),
            Self::Write { name, at, bytes } => {
                if let (Some(Some(file)), Ok(at)) = (tree.get_mut(name), usize::try_from(*at)) {
                    file.resize(file.len().max(at + bytes.len()), 0);
                    file[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
            Self::Truncate { name, bytes } => {
                if let (Some(Some(file)), Ok(bytes)) = (tree.get_mut(name), usize::try_from(*bytes)) {
                    file.resize(bytes, 0);
                }
            }
            Self::Rename { from, to } => {
                let below = format!("{from}/");
                let is_moved = |name: &str| name == from || name.starts_with(&below);
                let moved: Vec<String> = tree.keys().filter(|name| is_moved(name)).cloned().collect();
                for name in moved {
                    if let Some(content) = tree.remove(&name) {
                        tree.insert(format!("{to}{}", &name[from.len()..]), content);
                    }
                }
            }
            Self::Remove(name) => _ = tree.remove(name),
            Self::Sync(_) => {}
        }
    }

    /// The parts of a write that may be there without the rest: the kernel cuts it between pages.
    fn first_pages(&self) -> Vec<Self> {
        let Self::Write { name, at, bytes } = self else { return Vec::new() };
        let first = usize::try_from(PAGE_BYTES - at % PAGE_BYTES).unwrap_or(usize::MAX);
        let page = usize::try_from(PAGE_BYTES).unwrap_or(usize::MAX);
        let parts = (first..bytes.len()).step_by(page).map(|count| bytes[..count].to_vec());
        parts.map(|bytes| Self::Write { name: name.clone(), at: *at, bytes }).collect()
    }

    /// Whether it makes `wanted` of `before`.
    fn makes(&self, wanted: &Tree, before: &Tree) -> bool {
        let mut tree = before.clone();
        self.apply(&mut tree);
        tree == *wanted
    }

    /// Does it below `folder`.
    fn perform(&self, folder: &Path) -> std::io::Result<()> {
        let at = |name: &str| if name.is_empty() { folder.to_owned() } else { folder.join(name) };
        let open = |name: &str| OpenOptions::new().write(true).open(at(name));
        match self {
            Self::MakeFolder(name) => std::fs::create_dir(at(name)),
            Self::Create(name) => OpenOptions::new().write(true).create_new(true).open(at(name)).map(drop),
            Self::Write { name, at, bytes } => open(name)?.write_all_at(bytes, *at),
            Self::Truncate { name, bytes } => open(name)?.set_len(*bytes),
            Self::Rename { from, to } => std::fs::rename(at(from), at(to)),
            Self::Remove(name) => std::fs::remove_file(at(name)),
            Self::Sync(name) => File::open(at(name))?.sync_all(),
        }
    }
}

/// Writes a history. `false` when an operation failed.
pub(crate) fn write(options: &Options) -> Result<bool> {
    let mut log = File::create(&options.log).context("the log of the history")?;
    let mut history = History::new(options.seed);
    for number in 1..=options.operations {
        let op = history.next();
        writeln!(log, "begin {number}")?;
        if let Err(error) = op.perform(&options.folder) {
            println!("operation {number}, {}: {error}", op.told());
            return Ok(false);
        }
        writeln!(log, "answered {number}")?;
    }
    Ok(true)
}

impl Op {
    fn told(&self) -> String {
        match self {
            Self::Write { name, at, bytes } => format!("{} bytes at {at} of {name}", bytes.len()),
            other => format!("{other:?}"),
        }
    }
}

/// Everything at `folder` on the mount. An error says what cannot be read.
fn read(folder: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut waiting = vec![String::new()];
    while let Some(name) = waiting.pop() {
        let at = if name.is_empty() { folder.to_owned() } else { folder.join(&name) };
        let entries = match std::fs::read_dir(&at) {
            Err(error) if error.kind() == ErrorKind::NotFound && name.is_empty() => return Ok(tree),
            entries => entries.with_context(|| format!("folder `{name}`"))?,
        };
        tree.insert(name.clone(), None);
        for entry in entries {
            let entry = entry.with_context(|| format!("folder `{name}`"))?;
            let below = entry.file_name().to_string_lossy().into_owned();
            let path = if name.is_empty() { below } else { format!("{name}/{below}") };
            if entry.file_type().with_context(|| path.clone())?.is_dir() {
                waiting.push(path);
            } else {
                let content = std::fs::read(entry.path()).with_context(|| format!("file `{path}`"))?;
                tree.insert(path, Some(content));
            }
        }
    }
    Ok(tree)
}

/// The last operation that began, and the last one that an answered sync made durable.
fn last_and_synced(seed: u64, log: &str) -> (u64, u64) {
    let number = |line: &str, word: &str| line.strip_prefix(word)?.trim().parse::<u64>().ok();
    let last = log.lines().filter_map(|line| number(line, "begin")).max().unwrap_or(0);
    let answered = log.lines().filter_map(|line| number(line, "answered")).max().unwrap_or(0);
    let mut history = History::new(seed);
    let synced = (1..=answered).filter(|_| matches!(history.next(), Op::Sync(_))).max().unwrap_or(0);
    (last, synced)
}

/// Which operation the tree is after, one of `synced` to `last`. An error says how it differs from both.
fn judge(seed: u64, tree: &Tree, (synced, last): (u64, u64)) -> std::result::Result<u64, String> {
    let mut history = History::new(seed);
    let (mut found, mut difference) = (None, String::new());
    for number in 0..=last {
        let before = if number > synced { history.tree.clone() } else { Tree::new() };
        let op = if number > 0 { history.next() } else { Op::Sync(String::new()) };
        let is_within = || op.first_pages().iter().any(|part| part.makes(tree, &before));
        if number >= synced && history.tree == *tree {
            found = Some(number);
        } else if number > synced && is_within() {
            found = Some(number - 1);
        } else if number == synced || number == last {
            difference += &format!("; after {number}: {}", difference_of(tree, &history.tree));
        }
    }
    found.ok_or_else(|| format!("as after no operation from {synced} to {last}{difference}"))
}

/// The first difference of what was found to what should be there.
fn difference_of(found: &Tree, wanted: &Tree) -> String {
    for name in found.keys().chain(wanted.keys()) {
        match (found.get(name), wanted.get(name)) {
            (None, _) => return format!("`{name}` is missing"),
            (_, None) => return format!("`{name}` should not be there"),
            (Some(Some(found)), Some(Some(wanted))) if found != wanted => {
                let at = found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
                return format!("`{name}` differs at {at}, it has {} bytes of {}", found.len(), wanted.len());
            }
            (Some(found), Some(wanted)) if found.is_some() != wanted.is_some() => {
                return format!("`{name}` is of another kind");
            }
            _ => {}
        }
    }
    "no difference".into()
}

/// The histories of a round.
pub(super) struct Histories {
    place: PathBuf,
    operations: u64,
    seed: u64,
    mount: PathBuf,
    runs: Vec<Program>,
}

impl Histories {
    pub(super) fn new(place: &Path, operations: u64) -> Result<Self> {
        Ok(Self { place: place.to_owned(), operations, seed: 0, mount: PathBuf::new(), runs: Vec::new() })
    }

    fn seed_of(&self, history: u64) -> u64 {
        self.seed * HISTORIES + history
    }

    fn log(&self, history: u64) -> PathBuf {
        self.place.join(format!("history.{history}.log"))
    }

    fn folder(&self, history: u64) -> PathBuf {
        self.mount.join(format!("h{history}"))
    }

    fn last_and_synced(&self, history: u64) -> Result<(u64, u64)> {
        let log = std::fs::read_to_string(self.log(history)).context("the log of a history")?;
        Ok(last_and_synced(self.seed_of(history), &log))
    }

    /// Compares the folders with the histories. `is_whole`: they have ended.
    fn compare(&self, is_whole: bool) -> Result<Verdict> {
        let mut said = Vec::new();
        for history in 0..HISTORIES {
            let (last, synced) = self.last_and_synced(history)?;
            let from = if is_whole { last } else { synced };
            let tree = match read(&self.folder(history)) {
                Ok(tree) => tree,
                Err(error) => return Ok(Verdict::wrong(format!("history {history}: {error:#}"))),
            };
            match judge(self.seed_of(history), &tree, (from, last)) {
                Ok(number) => said.push(format!("as after operation {number} of {last}, {synced} was synced")),
                Err(finding) => return Ok(Verdict::wrong(format!("history {history}: {finding}"))),
            }
        }
        Ok(Verdict::right(said.join("; ")))
    }
}

impl Load for Histories {
    fn name(&self) -> &'static str {
        "history"
    }

    fn start(&mut self, mount: &Path, seed: u64) -> Result<()> {
        (self.seed, self.mount) = (seed, mount.to_owned());
        self.runs.clear();
        for history in 0..HISTORIES {
            let log = self.log(history);
            _ = std::fs::remove_file(&log);
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("fs-history").arg("--folder").arg(self.folder(history)).arg("--log").arg(log);
            command.args(["--seed", &self.seed_of(history).to_string()]);
            command.args(["--operations", &self.operations.to_string()]);
            self.runs.push(Program::start(&mut command, &self.place.join(format!("history.{history}.said")))?);
        }
        Ok(())
    }

    fn begun(&mut self) -> Result<u64> {
        let mut least = u64::MAX;
        for history in 0..HISTORIES {
            let lines = std::fs::read_to_string(self.log(history)).unwrap_or_default().lines().count();
            least = least.min(u64::try_from(lines)?.div_ceil(2));
        }
        Ok(least)
    }

    fn has_ended(&mut self) -> Result<bool> {
        for run in &mut self.runs {
            if run.has_ended()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn finish(&mut self) -> Result<Verdict> {
        for run in &mut self.runs {
            if !run.wait()? {
                return Ok(Verdict::wrong(run.said_last()?));
            }
        }
        self.compare(true)
    }

    fn end(&mut self) -> Result<()> {
        self.runs.iter_mut().try_for_each(|run| run.wait().map(drop))
    }

    fn judge(&mut self) -> Result<Verdict> {
        self.compare(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seed: u64, count: u64) -> Tree {
        let mut history = History::new(seed);
        (0..count).for_each(|_| _ = history.next());
        history.tree
    }

    #[test]
    fn a_folder_is_as_after_one_of_its_operations_and_every_other_state_is_found() {
        let folder = std::env::temp_dir().join(format!("lodestone-history-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder");
        let (at, log) = (folder.join("h"), folder.join("log"));
        for (seed, operations) in [(1, 40), (2, 400), (3, 1500)] {
            _ = std::fs::remove_dir_all(&at);
            let options = Options { folder: at.clone(), log: log.clone(), seed, operations };
            assert!(write(&options).expect("it writes"), "an ordinary folder does all of it");
            let (last, synced) = last_and_synced(seed, &std::fs::read_to_string(&log).expect("the log"));
            assert!(last == operations && synced > 0 && synced <= last, "{synced} of {last}");
            let tree = read(&at).expect("it is readable");
            assert_eq!(judge(seed, &tree, (last, last)), Ok(last));
            for (name, content) in &tree {
                let mut other = tree.clone();
                match content {
                    Some(content) if !content.is_empty() => {
                        let mut content = content.clone();
                        content[0] ^= 1;
                        other.insert(name.clone(), Some(content));
                    }
                    _ => _ = other.remove(name),
                }
                assert!(judge(seed, &other, (last, last)).is_err(), "`{name}` is another one");
            }
            let mut more = tree.clone();
            more.insert("x/foreign".into(), Some(Vec::new()));
            assert!(judge(seed, &more, (0, last)).unwrap_err().contains("`x/foreign` should not be there"));
        }
        std::fs::remove_dir_all(&folder).expect("it goes");
    }

    #[test]
    fn a_state_before_the_last_answered_sync_is_refused() {
        let log = (1..=200).map(|number| format!("begin {number}\nanswered {number}\n")).collect::<String>();
        let (last, synced) = last_and_synced(9, &log);
        let before = (0..synced).rev().find(|number| after(9, *number) != after(9, synced)).expect("a state");
        assert!(judge(9, &after(9, before), (synced, last)).is_err());
        assert_eq!(judge(9, &after(9, last), (synced, last)), Ok(last));
        let unanswered = format!("{}begin 201\n", &log);
        assert_eq!(last_and_synced(9, &unanswered), (201, synced));
    }

    #[test]
    fn of_a_write_the_first_pages_may_be_there_and_no_other_part() {
        let mut history = History::new(5);
        let (number, before, op) = loop {
            let before = history.tree.clone();
            let op = history.next();
            if op.first_pages().len() == 2 {
                break (history.drawn, before, op);
            }
        };
        for part in op.first_pages() {
            let mut tree = before.clone();
            part.apply(&mut tree);
            assert_eq!(judge(5, &tree, (number - 1, number)), Ok(number - 1));
            assert!(judge(5, &tree, (number, number)).is_err(), "it was synced");
        }
        let Op::Write { name, at, bytes } = op else { panic!("a write has pages") };
        let part = Op::Write { name, at, bytes: bytes[..1].to_vec() };
        let mut torn = before.clone();
        part.apply(&mut torn);
        assert!(judge(5, &torn, (number - 1, number)).is_err(), "within a page");
    }

    #[test]
    fn renames_of_folders_take_their_files_along() {
        let mut tree = Tree::from([("x".into(), None), ("x/1".into(), Some(vec![1])), ("xy".into(), None)]);
        Op::Rename { from: "x".into(), to: "z".into() }.apply(&mut tree);
        assert_eq!(tree.keys().collect::<Vec<_>>(), ["xy", "z", "z/1"]);
    }
}
