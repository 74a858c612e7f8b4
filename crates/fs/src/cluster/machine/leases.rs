//! The leases of mounts at a machine that leads, and the calls that wait for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use lodestone_pmem::sync::{Condvar, Mutex, lock};

use super::{Machinery, Shared};
use crate::cluster::link::Link;
use crate::cluster::remote::calls::{Answer, Call, Value};
use crate::error::{Error, Refusal, Result};
use crate::lease::kept::{GivenBack, Granted};
use crate::lease::keys;
use crate::lease::now;
use crate::lease::table::{Counts, Keys, LEASES_MAX, News, Step, Table};
use crate::volume::Volume;

/// How long a request for news waits for a recall. The lease of this node is a few times longer.
const HOLD: Duration = Duration::from_millis(100);
/// Longest pause between two looks of who waits: the node may have ended.
const LOOK: Duration = Duration::from_millis(50);

/// The leases of a term.
#[derive(Debug)]
pub(crate) struct Leases {
    term: u32,
    table: Mutex<Table>,
    /// There is a recall.
    recalled: Condvar,
    /// A lease or a change has ended.
    ended: Condvar,
    waits: AtomicU64,
    waited_ns: AtomicU64,
}

/// Figures of a term.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseFigures {
    pub(crate) out: usize,
    pub(crate) counts: Counts,
    /// Calls that waited for mounts, and how long.
    pub(crate) waits: u64,
    pub(crate) waited: Duration,
}

impl Leases {
    pub(crate) fn new(term: u32) -> Self {
        Self {
            term,
            table: Mutex::new(Table::new(term, LEASES_MAX)),
            recalled: Condvar::new(),
            ended: Condvar::new(),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn figures(&self) -> LeaseFigures {
        let (out, counts) = lock(&self.table).counts();
        let waited = Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed));
        LeaseFigures { out, counts, waits: self.waits.load(Ordering::Relaxed), waited }
    }

    /// The mount has ended.
    pub(crate) fn forget(&self, mount: u64) {
        lock(&self.table).forget(mount);
        self.ended.notify_all();
    }

    /// The files are not kept by anybody while the returned value lives. `find`: which they are, as the volume is now.
    ///
    /// # Errors
    /// [`Error::Gone`]: this node does not lead any more.
    pub(crate) fn recall(&self, link: &Link, find: impl Fn() -> Keys) -> Result<Recalled<'_>> {
        let mut keys = find();
        loop {
            let recalled = self.begin(link, keys)?;
            if recalled.keys.alone.is_empty() {
                self.wait(link, &recalled.keys)?;
                return Ok(recalled);
            }
            // No other call changes these folders from now on, so their names are what they are.
            let again = find();
            if again == recalled.keys {
                self.wait(link, &recalled.keys)?;
                return Ok(recalled);
            }
            drop(recalled);
            keys = again;
        }
    }

    fn begin(&self, link: &Link, keys: Keys) -> Result<Recalled<'_>> {
        let mut table = lock(&self.table);
        while !table.begin(&keys) {
            if link.ended().is_some() {
                return Err(Error::Gone);
            }
            table = self.ended.wait_timeout(table, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(table);
        Ok(Recalled { leases: self, keys })
    }

    /// Waits until no mount has a lease of these files.
    fn wait(&self, link: &Link, keys: &Keys) -> Result<()> {
        let mut table = lock(&self.table);
        let mut began = None;
        loop {
            let at = now();
            match table.step(at, keys) {
                Step::Clear => break,
                Step::Wait(until) => {
                    if began.is_none() {
                        began = Some(Instant::now());
                        self.recalled.notify_all();
                    }
                    let pause = until.saturating_sub(at).clamp(Duration::from_millis(1), LOOK);
                    table = self.ended.wait_timeout(table, pause).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
            if link.ended().is_some() {
                return Err(Error::Gone);
            }
        }
        drop(table);
        if let Some(began) = began {
            self.waits.fetch_add(1, Ordering::Relaxed);
            let waited = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.waited_ns.fetch_add(waited, Ordering::Relaxed);
        }
        Ok(())
    }

    /// News for a mount. `valid`: how long this node may answer reads, from before this call.
    fn news(&self, shared: &Shared, mount: u64, session: u64, done: u64, valid: Duration) -> News {
        let until = Instant::now() + HOLD;
        let mut table = lock(&self.table);
        let mut news = table.ask(now(), mount, session, done, valid);
        self.ended.notify_all();
        if news.session != session {
            return news;
        }
        while news.recalls.is_empty() && !shared.stop.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            table = self.recalled.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
            news.recalls = table.recalls(mount, session);
        }
        if table.session(mount) != Some(session) {
            // It ended while this waited: its mount asks again, and learns of the next one.
            news.valid = Duration::ZERO;
        }
        news
    }

    fn grant(&self, mount: u64, session: u64, key: u64) -> Option<u64> {
        lock(&self.table).grant(now(), mount, session, key)
    }

    /// Looks at attributes or at a name, under leases where they are granted.
    fn look(&self, volume: &Volume, mount: u64, session: u64, call: &Call) -> (Granted, Result<Answer>) {
        let mut granted = Granted::default();
        let mut grant = |key: u64| {
            let number = self.grant(mount, session, key);
            granted.number = granted.number.max(number.unwrap_or_default());
            number.is_some()
        };
        // Leases come first: what is found then is under them.
        let (folder, file, found) = match call {
            Call::Attributes { ino } => {
                let file = grant(*ino);
                (false, file, volume.attributes(*ino))
            }
            Call::Lookup { by, parent, name } => {
                let folder = by.uid == 0 && !matches!(&name[..], b"." | b"..") && grant(*parent);
                match volume.lookup(by, *parent, name) {
                    Ok(found) if folder && grant(found.ino) => match volume.attributes(found.ino) {
                        Ok(again) => (true, true, Ok(again)),
                        // It went meanwhile.
                        Err(_) => (false, false, Ok(found)),
                    },
                    Ok(found) => (folder, false, Ok(found)),
                    Err(error) => (folder, false, Err(error)),
                }
            }
            _ => (false, false, Err(Refusal::Invalid.into())),
        };
        // A file without a name may go with its last use, of which no mount is told.
        granted.file = file && found.as_ref().is_ok_and(|found| found.links > 0);
        granted.folder = folder && (found.is_ok() || matches!(found, Err(Error::Refused(Refusal::NotFound))));
        let answer = match found {
            Ok(file) => Ok(Answer::Done(0, Value::Attributes(file))),
            Err(Error::Refused(refusal)) => Ok(Answer::Refused(refusal)),
            Err(Error::Gone) => Err(Error::Gone),
            Err(error) => Ok(Answer::Failed(error.to_string())),
        };
        (granted, answer)
    }
}

/// Files that no mount keeps as long as this lives.
#[derive(Debug)]
pub(crate) struct Recalled<'l> {
    leases: &'l Leases,
    keys: Keys,
}

impl Drop for Recalled<'_> {
    fn drop(&mut self) {
        lock(&self.leases.table).end(&self.keys);
        self.leases.ended.notify_all();
    }
}

/// Whether leases come with the answer of a call.
pub(super) const fn is_leased(call: &Call) -> bool {
    matches!(call, Call::Lookup { .. } | Call::Attributes { .. })
}

impl Machinery {
    /// The leases of a term. `None`: it is over.
    pub(crate) fn leases(&self, term: u32) -> Option<Arc<Leases>> {
        let mut leases = lock(&self.leases);
        if leases.term < term {
            *leases = Arc::new(Leases::new(term));
        }
        (leases.term == term).then(|| Arc::clone(&leases))
    }
}

impl Shared {
    /// The answer to a mount that asks for news; `None`: this node does not lead, or does not know the mount.
    pub(super) fn news(&self, mount: u64, session: u64, done: u64) -> Option<News> {
        let (_, link) = self.leading_here().ok()?;
        let machine = self.machine.as_ref()?;
        let leases = machine.leases(link.term())?;
        // After the request has arrived, so after it was sent.
        let valid = link.lease_left()?;
        if !lock(&machine.mounts).in_term(link.term()).hear(mount) {
            return None;
        }
        Some(leases.news(self, mount, session, done, valid))
    }

    /// Carries out a call that may come with leases, and ends those that it conflicts with.
    pub(super) fn carry_out_leased(
        &self,
        machine: &Machinery,
        (volume, link): (&Volume, &Link),
        (mount, asked): (u64, Option<&GivenBack>),
        call: &Call,
        carry_out: impl FnOnce() -> Result<Answer>,
    ) -> (Granted, Result<Answer>) {
        let nothing = Granted::default();
        let Some(leases) = machine.leases(link.term()) else { return (nothing, Err(Error::Gone)) };
        if let Some(given) = asked {
            lock(&leases.table).give_back(mount, given.session, given.seen, &given.keys);
            if is_leased(call) {
                return leases.look(volume, mount, given.session, call);
            }
        }
        if let Call::NoteRead { ino } = call {
            match volume.notes_read(*ino) {
                Ok(true) => {}
                Ok(false) => return (nothing, Ok(Answer::Done(0, Value::Nothing))),
                // It is told below.
                Err(_) => return (nothing, carry_out()),
            }
        }
        if !call.is_change() && !matches!(call, Call::NoteRead { .. }) {
            return (nothing, carry_out());
        }
        match leases.recall(link, || keys::of_call(volume, call)) {
            Ok(_recalled) => (nothing, carry_out()),
            Err(error) => (nothing, Err(error)),
        }
    }
}
