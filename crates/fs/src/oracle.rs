//! A plain tree of files: what a volume must look like after some steps. For tests and proofs.
//!
//! It has no log, no pages and no image, so it is right by reading it. [`Step::run`] does a step on a volume,
//! [`Plain::run`] on the tree. Both return the number of the error that refuses it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lodestone_width::{exact_u32, to_usize};

use crate::access::Caller;
use crate::attributes::{Changes, ExtraMode};
use crate::content::Allocation;
use crate::error::{Error, Refusal};
use crate::inode::{FileKind, ROOT};
use crate::names::{NewFile, RenameMode};
use crate::requests::Tag;
use crate::volume::Volume;

/// A change, by paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes an empty file.
    File(String),
    /// Makes a folder.
    Folder(String),
    /// Makes a symbolic link to a text.
    Link(String, String),
    /// Gives a file another name.
    Hard(String, String),
    /// Writes so many bytes of this value at an offset.
    Write(String, u64, u8, usize),
    /// Makes a file longer or shorter.
    Truncate(String, u64),
    /// Makes a range a hole.
    Punch(String, u64, u64),
    /// Makes a range zeroes, and the file longer.
    Zero(String, u64, u64),
    /// Removes a file or an empty folder.
    Remove(String),
    /// Moves a file.
    Rename(String, String),
    /// Exchanges two files.
    Exchange(String, String),
    /// Sets permissions.
    Mode(String, u32),
    /// Sets or removes an attribute.
    Extra(String, String, Option<Vec<u8>>),
    /// Makes everything durable.
    Sync,
    /// Writes the image.
    Image,
    /// A step for a request of a mount in another process, with this number. All but the one before have their
    /// answers.
    Request(u64, Box<Step>),
}

/// A file as a reader sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Shot {
    /// Kind.
    pub kind: FileKind,
    /// Permissions.
    pub permissions: u32,
    /// Links.
    pub links: u32,
    /// Content, or target.
    pub bytes: Vec<u8>,
    /// Attributes.
    pub extra: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl fmt::Debug for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extra = self.extra.iter().map(|(name, value)| (name.escape_ascii().to_string(), Runs(value)));
        let extra: BTreeMap<String, Runs<'_>> = extra.collect();
        write!(f, "{:?} {:o}, {} links, {:?}, {extra:?}", self.kind, self.permissions, self.links, Runs(&self.bytes))
    }
}

/// Bytes in short: each run as its length and value.
struct Runs<'b>(&'b [u8]);

impl fmt::Debug for Runs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes:", self.0.len())?;
        let runs = self.0.chunk_by(|left, right| left == right);
        runs.take(12).try_for_each(|run| write!(f, " {}x{}", run.len(), run[0]))
    }
}

/// All files, by path.
pub type Shots = BTreeMap<String, Shot>;

/// The first path at which two trees differ, with both files.
#[must_use]
pub fn difference(found: &Shots, expected: &Shots) -> Option<String> {
    let paths = found.keys().chain(expected.keys());
    let path = paths.filter(|path| found.get(*path) != expected.get(*path)).min()?;
    Some(format!("{path}: found {:?}, expected {:?}", found.get(path), expected.get(path)))
}

type Outcome = Result<(), i32>;

/// The mount of requests.
const MOUNT: u64 = 1;

/// Requests below have their answers.
const fn floor(request: u64) -> u64 {
    request.saturating_sub(1)
}

/// Requests that the volume would not carry out again, and that may be sent again.
#[must_use]
pub fn requests(volume: &Volume) -> BTreeSet<u64> {
    let known = volume.inner.core().state.requests.known();
    known.into_values().flat_map(|(_, requests)| requests).collect()
}

fn number(error: &Error) -> i32 {
    error.errno()
}

/// Folder and name of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Step {
    /// Does the step on `volume`.
    ///
    /// # Errors
    /// The number of the error.
    pub fn run(&self, volume: &Volume) -> Outcome {
        self.on(volume).map_err(|error| number(&error))
    }

    /// As [`run`](Self::run), with the whole error.
    ///
    /// # Errors
    /// That of the operation.
    pub fn on(&self, volume: &Volume) -> Result<(), Error> {
        let (root, paths) = (Caller::root(), volume.by(Caller::root()));
        let find = |path: &str| paths.find(path, false).map(|file| file.ino);
        let place = |path: &str| -> Result<(u64, Vec<u8>), Error> {
            let (folder, name) = split(path);
            Ok((find(folder)?, name.as_bytes().to_vec()))
        };
        let make = |path: &str, new: &NewFile<'_>| {
            let (folder, name) = place(path)?;
            volume.make_file(&root, folder, &name, new, false).map(drop)
        };
        match self {
            Self::File(path) => make(path, &NewFile::new(FileKind::File, 0o644)),
            Self::Folder(path) => make(path, &NewFile::new(FileKind::Folder, 0o755)),
            Self::Link(path, target) => make(path, &NewFile::link(target.as_bytes())),
            Self::Hard(from, to) => {
                let (ino, (folder, name)) = (find(from)?, place(to)?);
                volume.link(&root, ino, folder, &name).map(drop)
            }
            Self::Write(path, offset, byte, count) => volume.write(&root, find(path)?, *offset, &vec![*byte; *count]),
            Self::Truncate(path, size) => volume.truncate(&root, find(path)?, *size).map(drop),
            Self::Punch(path, at, count) => volume.allocate(&root, find(path)?, *at, *count, Allocation::Punch),
            Self::Zero(path, at, count) => {
                volume.allocate(&root, find(path)?, *at, *count, Allocation::Zero { grows: true })
            }
            Self::Remove(path) => {
                let (folder, name) = place(path)?;
                if volume.lookup(&root, folder, &name)?.is_folder() {
                    volume.remove_folder(&root, folder, &name)
                } else {
                    volume.unlink(&root, folder, &name)
                }
            }
            Self::Rename(from, to) | Self::Exchange(from, to) => {
                let is_exchange = matches!(self, Self::Exchange(..));
                let mode = if is_exchange { RenameMode::Exchange } else { RenameMode::Replace };
                let (from, to) = (place(from)?, place(to)?);
                volume.rename(&root, (from.0, &from.1), (to.0, &to.1), mode)
            }
            Self::Mode(path, mode) => {
                let changes = Changes { permissions: Some(*mode), ..Changes::default() };
                volume.set_attributes(&root, find(path)?, &changes).map(drop)
            }
            Self::Extra(path, name, Some(value)) => {
                volume.set_extra(&root, find(path)?, name.as_bytes(), value, ExtraMode::Set)
            }
            Self::Extra(path, name, None) => volume.remove_extra(&root, find(path)?, name.as_bytes()),
            Self::Sync => volume.sync(),
            Self::Image => volume.write_image(),
            Self::Request(number, step) => step.on(&volume.for_request(Tag::new(MOUNT, *number, floor(*number)))),
        }
    }
}

/// Everything that a reader sees of `volume`.
///
/// # Errors
/// Damage.
pub fn shots(volume: &Volume) -> Result<Shots, Error> {
    let (root, mut shots, mut open) = (Caller::root(), Shots::new(), vec![(String::new(), ROOT)]);
    while let Some((path, ino)) = open.pop() {
        let file = volume.attributes(ino)?;
        let bytes = match file.kind() {
            FileKind::File => {
                let mut bytes = vec![0; to_usize(file.size)];
                volume.read(ino, 0, &mut bytes)?;
                bytes
            }
            FileKind::Link => volume.read_link(ino)?,
            _ => Vec::new(),
        };
        let mut extra = BTreeMap::new();
        for name in volume.extra_names(&root, ino)? {
            let value = volume.extra(&root, ino, &name)?;
            extra.insert(name, value);
        }
        if file.is_folder() {
            for entry in volume.read_folder(&root, ino, 2, usize::MAX)? {
                open.push((format!("{path}/{}", String::from_utf8_lossy(&entry.name)), entry.ino));
            }
        }
        let shot = Shot { kind: file.kind(), permissions: file.permissions(), links: file.links, bytes, extra };
        shots.insert(path, shot);
    }
    Ok(shots)
}

#[derive(Clone, Debug)]
struct Node {
    shot: Shot,
    entries: BTreeMap<String, u64>,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Plain {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    /// Requests that were carried out and may be sent again.
    requests: BTreeSet<u64>,
}

impl Default for Plain {
    fn default() -> Self {
        let nodes = BTreeMap::from([(ROOT, Node::new(FileKind::Folder, 0o755, Vec::new()))]);
        Self { nodes, next: ROOT + 1, requests: BTreeSet::new() }
    }
}

impl Node {
    fn new(kind: FileKind, permissions: u32, bytes: Vec<u8>) -> Self {
        let links = if kind == FileKind::Folder { 2 } else { 1 };
        Self { shot: Shot { kind, permissions, links, bytes, extra: BTreeMap::new() }, entries: BTreeMap::new() }
    }

    fn is_folder(&self) -> bool {
        self.shot.kind == FileKind::Folder
    }
}

fn no<T>(refusal: Refusal) -> Result<T, i32> {
    Err(refusal.errno())
}

impl Plain {
    /// The state after `steps`, of which refused ones change nothing.
    #[must_use]
    pub fn after(steps: &[Step]) -> Self {
        let mut plain = Self::default();
        for step in steps {
            _ = plain.run(step);
        }
        plain
    }

    fn node(&mut self, ino: u64) -> &mut Node {
        self.nodes.get_mut(&ino).expect("entries lead to nodes")
    }

    fn find(&mut self, path: &str) -> Result<u64, i32> {
        let mut at = ROOT;
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        for (index, name) in names.iter().enumerate() {
            let node = self.node(at);
            if !node.is_folder() {
                return no(Refusal::NotFolder);
            }
            at = match node.entries.get(*name) {
                Some(ino) => *ino,
                None => return no(Refusal::NotFound),
            };
            let is_link = self.node(at).shot.kind == FileKind::Link;
            if is_link && index + 1 < names.len() {
                // Targets of links in tests exist nowhere.
                return no(Refusal::NotFound);
            }
        }
        Ok(at)
    }

    fn place<'p>(&mut self, path: &'p str) -> Result<(u64, &'p str), i32> {
        let (folder, name) = split(path);
        Ok((self.find(folder)?, name))
    }

    fn vacant(&mut self, path: &str) -> Result<(u64, String), i32> {
        let (folder, name) = self.place(path)?;
        let node = self.node(folder);
        if !node.is_folder() {
            return no(Refusal::NotFolder);
        }
        if node.entries.contains_key(name) { no(Refusal::Exists) } else { Ok((folder, name.to_owned())) }
    }

    fn make(&mut self, path: &str, node: Node) -> Outcome {
        let (folder, name) = self.vacant(path)?;
        let (ino, is_folder, mut node) = (self.next, node.is_folder(), node);
        self.next += 1;
        if is_folder {
            node.shot.permissions |= self.node(folder).shot.permissions & 0o2000;
        }
        self.nodes.insert(ino, node);
        self.enter(folder, &name, ino, is_folder);
        Ok(())
    }

    fn enter(&mut self, folder: u64, name: &str, ino: u64, is_folder: bool) {
        let node = self.node(folder);
        node.entries.insert(name.to_owned(), ino);
        node.shot.links += u32::from(is_folder);
    }

    fn content(&mut self, path: &str) -> Result<&mut Vec<u8>, i32> {
        let ino = self.find(path)?;
        let node = self.node(ino);
        match node.shot.kind {
            FileKind::File => Ok(&mut node.shot.bytes),
            FileKind::Folder => no(Refusal::IsFolder),
            _ => no(Refusal::Invalid),
        }
    }

    /// Does the step on the tree.
    ///
    /// # Errors
    /// The number of the error that refuses it.
    pub fn run(&mut self, step: &Step) -> Outcome {
        match step {
            Step::File(path) => self.make(path, Node::new(FileKind::File, 0o644, Vec::new())),
            Step::Folder(path) => self.make(path, Node::new(FileKind::Folder, 0o755, Vec::new())),
            Step::Link(path, target) => self.make(path, Node::new(FileKind::Link, 0o777, target.as_bytes().to_vec())),
            Step::Hard(from, to) => self.hard(from, to),
            Step::Write(path, offset, byte, count) => {
                let bytes = self.content(path)?;
                let (from, to) = (to_usize(*offset), to_usize(*offset) + count);
                if *count > 0 {
                    bytes.resize(bytes.len().max(to), 0);
                    bytes[from..to].fill(*byte);
                }
                Ok(())
            }
            Step::Truncate(path, size) => {
                self.content(path)?.resize(to_usize(*size), 0);
                Ok(())
            }
            Step::Punch(path, at, count) => self.zero(path, *at, *count, false),
            Step::Zero(path, at, count) => self.zero(path, *at, *count, true),
            Step::Remove(path) => self.remove(path),
            Step::Rename(from, to) => self.rename(from, to),
            Step::Exchange(from, to) => self.exchange(from, to),
            Step::Mode(path, mode) => {
                let ino = self.find(path)?;
                self.node(ino).shot.permissions = mode & 0o7777;
                Ok(())
            }
            Step::Extra(path, name, value) => self.extra(path, name, value.as_ref()),
            Step::Sync | Step::Image => Ok(()),
            Step::Request(number, step) => {
                let outcome = self.run(step);
                if outcome.is_ok() {
                    self.requests.insert(*number);
                    self.requests.retain(|request| *request >= floor(*number));
                }
                outcome
            }
        }
    }

    fn extra(&mut self, path: &str, name: &str, value: Option<&Vec<u8>>) -> Outcome {
        let ino = self.find(path)?;
        let shot = &mut self.node(ino).shot;
        if !matches!(shot.kind, FileKind::File | FileKind::Folder) {
            return no(Refusal::NotPermitted);
        }
        match value {
            Some(value) => _ = shot.extra.insert(name.as_bytes().to_vec(), value.clone()),
            None if shot.extra.remove(name.as_bytes()).is_none() => return no(Refusal::NoAttribute),
            None => {}
        }
        Ok(())
    }

    fn zero(&mut self, path: &str, at: u64, count: u64, grows: bool) -> Outcome {
        if count == 0 {
            return no(Refusal::Invalid);
        }
        let bytes = self.content(path)?;
        let (from, to) = (to_usize(at), to_usize(at + count));
        if grows {
            bytes.resize(bytes.len().max(to), 0);
        }
        let end = to.min(bytes.len());
        bytes.get_mut(from..end).unwrap_or_default().fill(0);
        Ok(())
    }

    fn hard(&mut self, from: &str, to: &str) -> Outcome {
        let ino = self.find(from)?;
        // As the volume: the place is looked up before the file is judged.
        let (folder, name) = self.place(to)?;
        if self.node(ino).is_folder() {
            return no(Refusal::NotPermitted);
        }
        if !self.node(folder).is_folder() {
            return no(Refusal::NotFolder);
        }
        if self.node(folder).entries.contains_key(name) {
            return no(Refusal::Exists);
        }
        self.node(ino).shot.links += 1;
        self.enter(folder, name, ino, false);
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Outcome {
        let (folder, name) = self.place(path)?;
        let node = self.node(folder);
        if !node.is_folder() {
            return no(Refusal::NotFolder);
        }
        let Some(ino) = node.entries.get(name).copied() else { return no(Refusal::NotFound) };
        if !self.node(ino).entries.is_empty() {
            return no(Refusal::NotEmpty);
        }
        self.leave(folder, name, ino);
        Ok(())
    }

    /// Takes an entry out, and the file with its last name.
    fn leave(&mut self, folder: u64, name: &str, ino: u64) {
        let is_folder = self.node(ino).is_folder();
        let parent = self.node(folder);
        parent.entries.remove(name);
        parent.shot.links -= u32::from(is_folder);
        let shot = &mut self.node(ino).shot;
        shot.links -= if is_folder { 2 } else { 1 };
        if shot.links == 0 {
            self.nodes.remove(&ino);
        }
    }

    /// Both ends of a rename, if the first exists.
    fn ends<'p>(&mut self, from: &'p str, to: &'p str) -> Result<(Ends<'p>, Option<u64>), i32> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        if !self.node(from.0).is_folder() {
            return no(Refusal::NotFolder);
        }
        let Some(ino) = self.node(from.0).entries.get(from.1).copied() else { return no(Refusal::NotFound) };
        if !self.node(to.0).is_folder() {
            return no(Refusal::NotFolder);
        }
        let old = self.node(to.0).entries.get(to.1).copied();
        Ok((Ends { from, to, ino }, old))
    }

    fn is_within(&mut self, ino: u64, above: u64) -> bool {
        let mut open = vec![above];
        while let Some(at) = open.pop() {
            if at == ino {
                return true;
            }
            open.extend(self.node(at).entries.values());
        }
        false
    }

    fn rename(&mut self, from: &str, to: &str) -> Outcome {
        let (ends, old) = self.ends(from, to)?;
        let is_folder = self.node(ends.ino).is_folder();
        if is_folder && self.is_within(ends.to.0, ends.ino) {
            return no(Refusal::Invalid);
        }
        if let Some(old) = old {
            if old == ends.ino {
                return Ok(());
            }
            match (is_folder, self.node(old).is_folder()) {
                (true, false) => return no(Refusal::NotFolder),
                (false, true) => return no(Refusal::IsFolder),
                _ if !self.node(old).entries.is_empty() => return no(Refusal::NotEmpty),
                _ => self.leave(ends.to.0, ends.to.1, old),
            }
        }
        let parent = self.node(ends.from.0);
        parent.entries.remove(ends.from.1);
        parent.shot.links -= u32::from(is_folder);
        self.enter(ends.to.0, ends.to.1, ends.ino, is_folder);
        Ok(())
    }

    fn exchange(&mut self, from: &str, to: &str) -> Outcome {
        let (ends, old) = self.ends(from, to)?;
        let Some(old) = old else { return no(Refusal::NotFound) };
        let (is_folder, was_folder) = (self.node(ends.ino).is_folder(), self.node(old).is_folder());
        if is_folder && self.is_within(ends.to.0, ends.ino) {
            return no(Refusal::Invalid);
        }
        if old != ends.ino && was_folder && self.is_within(ends.from.0, old) {
            return no(Refusal::Invalid);
        }
        self.node(ends.from.0).entries.insert(ends.from.1.to_owned(), old);
        self.node(ends.to.0).entries.insert(ends.to.1.to_owned(), ends.ino);
        let change = |node: &mut Node, plus: bool, minus: bool| {
            node.shot.links = node.shot.links + u32::from(plus) - u32::from(minus);
        };
        change(self.node(ends.from.0), was_folder, is_folder);
        change(self.node(ends.to.0), is_folder, was_folder);
        Ok(())
    }

    /// Requests that were carried out and may be sent again.
    #[must_use]
    pub const fn requests(&self) -> &BTreeSet<u64> {
        &self.requests
    }

    /// Everything that a reader sees.
    #[must_use]
    pub fn shots(&self) -> Shots {
        let (mut shots, mut open) = (Shots::new(), vec![(String::new(), ROOT)]);
        while let Some((path, ino)) = open.pop() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            open.extend(node.entries.iter().map(|(name, ino)| (format!("{path}/{name}"), *ino)));
            shots.insert(path, node.shot.clone());
        }
        shots
    }
}

struct Ends<'p> {
    from: (u64, &'p str),
    to: (u64, &'p str),
    ino: u64,
}

/// Draws steps on few names, so that they meet.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Steps of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn path(&mut self) -> String {
        let depth = 1 + self.below(3);
        (0..depth)
            .map(|_| format!("/{}", ["a", "b", "c", "a-name-of-more-bytes-than-a-key-has"][to_usize(self.below(4))]))
            .collect()
    }

    fn offset(&mut self) -> u64 {
        match self.below(3) {
            0 => self.below(6) * 4096,
            1 => self.below(6 * 4096),
            _ => self.below(300),
        }
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        let (path, other) = (self.path(), self.path());
        let (offset, count) = (self.offset(), 1 + self.offset());
        match self.below(40) {
            0..=5 => Step::File(path),
            6..=9 => Step::Folder(path),
            10 => Step::Link(path, "nowhere/else".into()),
            11 | 12 => Step::Hard(path, other),
            13..=19 => Step::Write(path, offset, lodestone_width::low_u8(self.0), to_usize(count)),
            20..=22 => Step::Truncate(path, offset),
            23 | 24 => Step::Punch(path, offset, count),
            25 => Step::Zero(path, offset, count),
            26..=28 => Step::Remove(path),
            29..=32 => Step::Rename(path, other),
            33 => Step::Exchange(path, other),
            34 => Step::Mode(path, exact_u32(to_usize(self.below(0o10000)))),
            35 => Step::Extra(path, "user.a".into(), Some(vec![7; to_usize(self.below(700))])),
            36 => Step::Extra(path, "user.a".into(), None),
            37 | 38 => Step::Sync,
            _ => Step::Image,
        }
    }
}
