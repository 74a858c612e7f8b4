//! The names and attributes that a mount keeps under its leases.

use std::collections::HashMap;
use std::time::Duration;

use super::at_the_mount;
use super::table::News;
use crate::inode::Attributes;

/// Groups of files: of each it is known when one was dropped last.
const GROUPS: u64 = 1 << 10;
/// Most files and names that are kept. With more, all are dropped.
const KEPT_MAX: usize = 1 << 17;

/// A moment at a mount, by what it has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) session: u64,
    drops: u64,
}

/// Files whose leases a call gives back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenBack {
    pub(crate) session: u64,
    /// Only leases up to this number.
    pub(crate) seen: u64,
    pub(crate) keys: Vec<u64>,
}

/// The leases that came with an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The number of the newest one.
    pub(crate) number: u64,
    /// That of the folder in which a name was looked up.
    pub(crate) folder: bool,
    /// That of the file.
    pub(crate) file: bool,
}

/// Names and attributes, and until when they are used.
#[derive(Debug)]
pub(crate) struct Kept {
    session: u64,
    /// Nothing is used from then on, unless the session goes on.
    until: Duration,
    /// The newest lease of which an answer arrived.
    seen: u64,
    /// All recalls of the session up to this one are done.
    done: u64,
    drops: u64,
    /// When, by `drops`, a file of each group was dropped last.
    dropped: Vec<u64>,
    files: HashMap<u64, Attributes>,
    names: HashMap<u64, HashMap<Vec<u8>, Option<u64>>>,
    names_count: usize,
    most: usize,
    #[cfg(test)]
    pub(super) faults: super::world::Faults,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            session: 0,
            until: Duration::ZERO,
            seen: 0,
            done: 0,
            drops: 0,
            dropped: vec![0; lodestone_width::to_usize(GROUPS)],
            files: HashMap::new(),
            names: HashMap::new(),
            names_count: 0,
            most: KEPT_MAX,
            #[cfg(test)]
            faults: super::world::Faults::default(),
        }
    }
}

impl Kept {
    /// With planted mistakes.
    #[cfg(test)]
    pub(super) fn with(faults: super::world::Faults) -> Self {
        Self { faults, ..Self::default() }
    }

    /// The session, and the last recall that is done, for a request for news.
    pub(crate) const fn session(&self) -> (u64, u64) {
        (self.session, self.done)
    }

    /// A request begins whose answer may be kept.
    pub(crate) const fn begin(&self) -> Begun {
        Begun { session: self.session, drops: self.drops }
    }

    /// The attributes of a file, if they are kept.
    pub(crate) fn attributes(&self, now: Duration, ino: u64) -> Option<Attributes> {
        self.files.get(&ino).copied().filter(|_| now < self.until)
    }

    /// The file of a name, if that is kept; `Some(None)`: there is no such name.
    pub(crate) fn lookup(&self, now: Duration, parent: u64, name: &[u8]) -> Option<Option<Attributes>> {
        match self.names.get(&parent)?.get(name)? {
            Some(ino) => self.attributes(now, *ino).map(Some),
            None => (now < self.until).then_some(None),
        }
    }

    /// Keeps the attributes of an answer.
    pub(crate) fn keep_file(&mut self, begun: Begun, granted: Granted, file: &Attributes) {
        self.note(begun, granted);
        if granted.file && self.is_news(begun, file.ino) {
            self.make_room();
            self.files.insert(file.ino, *file);
        }
    }

    /// Keeps the file of a name, or that there is none.
    pub(crate) fn keep_name(
        &mut self,
        begun: Begun,
        granted: Granted,
        (parent, name): (u64, &[u8]),
        file: Option<&Attributes>,
    ) {
        self.note(begun, granted);
        if granted.folder && self.is_news(begun, parent) {
            self.make_room();
            let names = self.names.entry(parent).or_default();
            let before = names.insert(name.to_vec(), file.map(|file| file.ino));
            self.names_count += usize::from(before.is_none());
        }
        file.iter().for_each(|file| self.keep_file(begun, granted, file));
    }

    /// Drops files that a call changes, before it is sent. `names`: those that it changes in a folder; their files
    /// change, too.
    pub(crate) fn give_back(&mut self, keys: &[u64], names: &[(u64, &[u8])]) -> GivenBack {
        let mut keys = keys.to_vec();
        for (parent, name) in names {
            keys.extend(self.names.get(parent).and_then(|names| names.get(*name)).copied().flatten());
        }
        keys.sort_unstable();
        keys.dedup();
        keys.iter().for_each(|key| self.drop_file(*key));
        GivenBack { session: self.session, seen: self.seen, keys }
    }

    /// News for a request that was sent at `sent` and named the session `asked`.
    pub(crate) fn tell(&mut self, sent: Duration, asked: u64, news: &News) {
        if news.session != self.session {
            if asked == self.session {
                self.drop_all();
                (self.session, self.seen, self.done, self.until) = (news.session, 0, 0, Duration::ZERO);
            }
            // Else it answers a request of a former session, after another answer.
            return;
        }
        if asked != self.session {
            return;
        }
        for (recall, key) in &news.recalls {
            self.drop_file(*key);
            self.done = self.done.max(*recall);
        }
        if !news.valid.is_zero() {
            self.until = self.until.max(sent + at_the_mount(news.valid));
        }
    }

    /// Drops everything.
    pub(crate) fn drop_all(&mut self) {
        self.drops += 1;
        let drops = self.drops;
        self.dropped.iter_mut().for_each(|dropped| *dropped = drops);
        self.clear();
    }

    fn clear(&mut self) {
        self.files.clear();
        self.names.clear();
        self.names_count = 0;
    }

    fn make_room(&mut self) {
        if self.files.len() + self.names_count >= self.most {
            self.clear();
        }
    }

    fn note(&mut self, begun: Begun, granted: Granted) {
        if begun.session == self.session {
            self.seen = self.seen.max(granted.number);
        }
    }

    /// Whether a file was not dropped since then.
    fn is_news(&self, begun: Begun, key: u64) -> bool {
        #[cfg(test)]
        if self.faults.keeps_late_answers {
            return begun.session == self.session;
        }
        begun.session == self.session && self.session != 0 && self.dropped[group(key)] <= begun.drops
    }

    fn drop_file(&mut self, key: u64) {
        self.drops += 1;
        self.dropped[group(key)] = self.drops;
        self.files.remove(&key);
        if let Some(names) = self.names.remove(&key) {
            self.names_count -= names.len();
        }
    }
}

fn group(key: u64) -> usize {
    lodestone_width::to_usize(key % GROUPS)
}
