//! Sealed packets between machines: the secrets come from the keepers, by a thread that nothing waits for.
//!
//! 1. A packet whose secret is not known is dropped, and the secret is noted as wanted. The protocol sends again.
//! 2. One thread asks the keepers for wanted secrets, not more often than every [`PAUSE`] for the same one.
//! 3. Every transport of the process takes new secrets at its next step. A secret of a newer term retires those of
//!    older ones in its group: keepers tell only those of the newest term.
//!
//! Each transport of the process has a number of its own in its packets, which never repeats: the boot of the process,
//! counted in the file `life`, and the transports since then.
//!
//! Anybody may send packets that name any term. So at most sixteen secrets are wanted at a time, and what the keepers
//! refuse is asked for again after a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_fabric::{
    GroupId, KeyRing, NodeId, Outgoing, SealedTransport, Secret, Term, Transport, TransportCounts, ViewNumber,
};
use lodestone_pmem::sync::{Condvar, Mutex, lock};
use lodestone_registry::KeeperClient;

use crate::cluster::node::Port;
use crate::error::{Error, Result};

type Place = (GroupId, Term, ViewNumber);

/// Pause before the same secret is asked for again.
const PAUSE: Duration = Duration::from_millis(100);
/// Secrets that are wanted at a time.
const WANTED_MAX: usize = 16;
/// Secrets that are kept: of the views of a while.
const KNOWN_MAX: usize = 64;
/// 2026, in seconds since 1970: the first life of a machine has the number of the minute since then.
const LIVES_BEGIN: u64 = 1_767_225_600;
const LIVES_MAX: u32 = u32::MAX / TRANSPORTS;
/// Transports of one life of the process before the number of the life rises.
const TRANSPORTS: u32 = 1 << 10;

#[derive(Default)]
struct Known {
    secrets: BTreeMap<Place, Secret>,
    wanted: BTreeSet<Place>,
    /// Those that the keepers did not tell, and when.
    refused: BTreeMap<Place, Instant>,
}

/// The secrets of a process, and the numbers of its transports.
pub(crate) struct Seals {
    known: Mutex<Known>,
    changed: Condvar,
    /// Rises with each new secret.
    version: AtomicU64,
    lives: Mutex<Lives>,
    stop: AtomicBool,
}

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seals").finish_non_exhaustive()
    }
}

/// Numbers that never repeat, also after a restart: a file has the last one that was begun.
#[derive(Debug)]
struct Lives {
    path: PathBuf,
    life: u32,
    used: u32,
}

impl Lives {
    fn open(path: &Path) -> Result<Self> {
        let life = match std::fs::read_to_string(path) {
            Ok(text) => text.trim().parse().ok().filter(|life| *life < LIVES_MAX).ok_or_else(|| {
                let text =
                    "the number of the last life makes no sense; make the machine anew: its packets would repeat";
                Error::Options(format!("{}: {text}", path.display()))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(Error::Options(format!("{}: reading failed: {error}", path.display()))),
        };
        let mut lives = Self { path: path.to_owned(), life, used: 0 };
        lives.begin()?;
        Ok(lives)
    }

    fn begin(&mut self) -> Result<()> {
        // Minutes, so that a machine whose file was lost does not begin again with numbers that it had.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let minutes = u32::try_from(since.saturating_sub(LIVES_BEGIN) / 60).unwrap_or(0);
        let next = (self.life + 1).max(if minutes < LIVES_MAX { minutes } else { 0 });
        let next = Some(next).filter(|next| *next < LIVES_MAX);
        self.life = next.ok_or_else(|| Error::Options("all lives of this machine are used; make it anew".into()))?;
        self.used = 0;
        let failed = |error| Error::Options(format!("{}: writing failed: {error}", self.path.display()));
        let new = self.path.with_extension("new");
        let file = std::fs::File::create(&new).map_err(failed)?;
        std::io::Write::write_all(&mut &file, format!("{}\n", self.life).as_bytes()).map_err(failed)?;
        // Durable before a packet has the number.
        file.sync_all().map_err(failed)?;
        std::fs::rename(&new, &self.path).map_err(failed)?;
        crate::cluster::make::sync_folder_of(&self.path)
    }

    fn next(&mut self) -> Result<u32> {
        if self.used == TRANSPORTS {
            self.begin()?;
        }
        self.used += 1;
        Ok(self.life * TRANSPORTS + self.used - 1)
    }
}

impl Seals {
    /// The seals of the process whose lives are counted in the file `lives`, and the thread that asks `keepers`.
    pub(crate) fn start(lives: &Path, keepers: KeeperClient) -> Result<(Arc<Self>, JoinHandle<()>)> {
        let seals = Arc::new(Self {
            known: Mutex::default(),
            changed: Condvar::new(),
            version: AtomicU64::new(0),
            lives: Mutex::new(Lives::open(lives)?),
            stop: AtomicBool::new(false),
        });
        let asking = Arc::clone(&seals);
        let work = move || {
            while let Some(place) = asking.next_wanted() {
                asking.told(place, keepers.secret(place.0, place.1, place.2));
            }
        };
        let failed = |error| Error::Options(format!("no thread for secrets could be started: {error}"));
        let thread = std::thread::Builder::new().name("fs-secrets".into()).spawn(work).map_err(failed)?;
        Ok((seals, thread))
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Seals what `node` sends over `inner`.
    pub(crate) fn seal(self: &Arc<Self>, inner: Port, node: NodeId) -> Result<Port> {
        let life = lock(&self.lives).next()?;
        let inner = SealedTransport::new(inner, node, life, KeyRing::default());
        Ok(Box::new(Sealing { inner, seals: Arc::clone(self), version: 0 }))
    }

    /// A secret to ask for. `None` at the end.
    fn next_wanted(&self) -> Option<Place> {
        let mut known = lock(&self.known);
        while !self.stop.load(Ordering::Acquire) {
            // The newest term first: the others are refused.
            if let Some(place) = known.wanted.iter().max_by_key(|place| (place.1, place.2)).copied() {
                return Some(place);
            }
            known = self.changed.wait_timeout(known, PAUSE).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    fn told(&self, place: Place, answer: lodestone_fabric::Result<Secret>) {
        let mut known = lock(&self.known);
        known.wanted.remove(&place);
        known.refused.retain(|_, since| since.elapsed() < PAUSE);
        match answer {
            Ok(secret) => {
                known.secrets.retain(|other, _| other.0 != place.0 || other.1 >= place.1);
                if known.secrets.len() >= KNOWN_MAX {
                    let oldest = known.secrets.keys().min_by_key(|place| (place.1, place.2)).copied();
                    oldest.iter().for_each(|oldest| _ = known.secrets.remove(oldest));
                }
                known.secrets.insert(place, secret);
                self.version.fetch_add(1, Ordering::AcqRel);
            }
            Err(error) => {
                tracing::debug!("no secret of {} in {} for {}: {error}", place.0, place.1, place.2);
                // Packets that still need it want it again.
                known.refused.insert(place, Instant::now());
            }
        }
    }

    fn want(&self, places: Vec<Place>) {
        if places.is_empty() {
            return;
        }
        let mut known = lock(&self.known);
        for place in places {
            let is_refused = known.refused.get(&place).is_some_and(|since| since.elapsed() < PAUSE);
            if known.wanted.len() < WANTED_MAX && !is_refused && !known.secrets.contains_key(&place) {
                known.wanted.insert(place);
            }
        }
        drop(known);
        self.changed.notify_all();
    }
}

/// A transport that takes its secrets from [`Seals`].
struct Sealing {
    inner: SealedTransport<Port>,
    seals: Arc<Seals>,
    version: u64,
}

impl Sealing {
    /// Takes new secrets.
    fn take(&mut self) {
        let version = self.seals.version.load(Ordering::Acquire);
        if version == self.version {
            return;
        }
        self.version = version;
        let secrets = lock(&self.seals.known).secrets.clone();
        let mut newest: BTreeMap<GroupId, Term> = BTreeMap::new();
        for ((group, term, view), secret) in secrets {
            newest.insert(group, term);
            self.inner.keys().hand_exact(group, term, view, secret);
        }
        for (group, term) in newest {
            self.inner.retire(group, term, ViewNumber(0));
        }
    }
}

impl Transport for Sealing {
    fn send(&mut self, packets: &[Outgoing]) -> lodestone_fabric::Result<()> {
        self.take();
        let sent = self.inner.send(packets);
        self.seals.want(self.inner.take_wanted());
        sent
    }

    fn poll(
        &mut self,
        wait: Duration,
        most: usize,
        receive: &mut dyn FnMut(&[u8]) -> lodestone_fabric::Result<()>,
    ) -> lodestone_fabric::Result<usize> {
        self.take();
        let count = self.inner.poll(wait, most, receive);
        self.seals.want(self.inner.take_wanted());
        count
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }

    fn name(&self) -> &'static str {
        match self.inner.name() {
            "udp" => "udp, sealed",
            _ => "unicast, sealed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_transports_never_repeat() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("life");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3 {
            let mut lives = Lives::open(&path).expect("lives");
            for _ in 0..TRANSPORTS + 2 {
                assert!(seen.insert(lives.next().expect("a number")));
            }
        }
        std::fs::write(&path, "x").expect("a file");
        assert!(Lives::open(&path).is_err());
    }
}
