//! The leases that a metadata node has granted in a term.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Most leases of a mount. The oldest one is recalled for a new one.
pub(crate) const LEASES_MAX: usize = 1 << 16;
/// Leases above that, while the mount does not answer recalls.
const OVER_MAX: usize = 1 << 12;
/// Most recalls in one answer.
pub(crate) const RECALLS_MAX: usize = 1 << 12;

/// The leases of one mount, as long as it renews them.
#[derive(Debug)]
struct Session {
    number: u64,
    until: Duration,
    /// Files of its leases, by the numbers of these: the oldest first.
    leases: BTreeMap<u64, u64>,
    /// Files to be forgotten, by the numbers of the recalls.
    recalls: BTreeMap<u64, u64>,
    last_recall: u64,
}

/// A lease of a file.
#[derive(Clone, Copy, Debug)]
struct Lease {
    number: u64,
    /// The recall that ends it.
    recall: Option<u64>,
}

/// Changes of a file that are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changing {
    others: usize,
    /// One that others must not run beside.
    is_alone: bool,
}

/// Figures since the term began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) granted: u64,
    pub(crate) recalled: u64,
    /// Recalls because a mount had too many.
    pub(crate) evicted: u64,
    /// Sessions that ended because their mount was silent.
    pub(crate) expired: u64,
}

/// A mount that asked for news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The session that the mount has now. Another one than it named: all that it kept is to be dropped.
    pub(crate) session: u64,
    /// How long the session goes on, from when the request arrived; zero: it was not made longer.
    pub(crate) valid: Duration,
    /// Number and file of each recall.
    pub(crate) recalls: Vec<(u64, u64)>,
}

/// The files of an operation: the folders whose names it looks up, and all others that it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    /// No other change of these runs beside it: what it found under a name stays there.
    pub(crate) alone: Vec<u64>,
    pub(crate) others: Vec<u64>,
}

impl Keys {
    fn all(&self) -> impl Iterator<Item = u64> + '_ {
        self.alone.iter().chain(&self.others).copied()
    }

    /// Sorts them, each once.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Self {
        self.alone.sort_unstable();
        self.alone.dedup();
        self.others.sort_unstable();
        self.others.dedup();
        self.others.retain(|key| !self.alone.contains(key));
        self
    }
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// No mount has a lease of its files.
    Clear,
    /// Wait for answers, at most until then.
    Wait(Duration),
}

/// The leases.
#[derive(Debug)]
pub(crate) struct Table {
    last_session: u64,
    last_lease: u64,
    sessions: HashMap<u64, Session>,
    holders: HashMap<u64, HashMap<u64, Lease>>,
    changing: HashMap<u64, Changing>,
    most: usize,
    counts: Counts,
}

impl Table {
    /// No mount has a lease. Sessions of different terms have different numbers.
    pub(crate) fn new(term: u32, most: usize) -> Self {
        Self {
            last_session: u64::from(term) << 32,
            last_lease: 0,
            sessions: HashMap::new(),
            holders: HashMap::new(),
            changing: HashMap::new(),
            most,
            counts: Counts::default(),
        }
    }

    /// A mount asks for news, names its session, and says that it has done all recalls up to a number. This node may
    /// answer reads for `valid` from now on.
    pub(crate) fn ask(&mut self, now: Duration, mount: u64, session: u64, done: u64, valid: Duration) -> News {
        self.end_if_over(now, mount);
        let Some(found) = self.sessions.get_mut(&mount) else {
            self.last_session += 1;
            let (leases, recalls) = (BTreeMap::new(), BTreeMap::new());
            let new = Session { number: self.last_session, until: now + valid, leases, recalls, last_recall: 0 };
            self.sessions.insert(mount, new);
            return News { session: self.last_session, ..News::default() };
        };
        if found.number != session {
            // The request is an old one, or the answer with the number was lost. The mount may have the session.
            return News { session: found.number, ..News::default() };
        }
        found.until = found.until.max(now + valid);
        let rest = found.recalls.split_off(&done.saturating_add(1));
        for (recall, key) in std::mem::replace(&mut found.recalls, rest) {
            self.drop_if(mount, key, |lease| lease.recall == Some(recall));
        }
        News { session, valid, recalls: self.recalls(mount, session) }
    }

    /// The recalls that a mount has not done.
    pub(crate) fn recalls(&self, mount: u64, session: u64) -> Vec<(u64, u64)> {
        let found = self.sessions.get(&mount).filter(|found| found.number == session);
        found
            .map(|found| found.recalls.iter().take(RECALLS_MAX).map(|(recall, key)| (*recall, *key)).collect())
            .unwrap_or_default()
    }

    /// The session of a mount that is not over.
    pub(crate) fn session(&self, mount: u64) -> Option<u64> {
        self.sessions.get(&mount).map(|found| found.number)
    }

    /// Grants a lease, if nothing is in its way; its number. The file is to be looked at after this.
    pub(crate) fn grant(&mut self, now: Duration, mount: u64, session: u64, key: u64) -> Option<u64> {
        self.end_if_over(now, mount);
        let found = self.sessions.get_mut(&mount).filter(|found| found.number == session)?;
        if self.changing.contains_key(&key) || found.leases.len() >= self.most + OVER_MAX {
            return None;
        }
        let holders = self.holders.entry(key).or_default();
        match holders.get(&mount) {
            // The mount drops it when the recall arrives, whenever that is.
            Some(lease) if lease.recall.is_some() => return None,
            Some(lease) => _ = found.leases.remove(&lease.number),
            None => {}
        }
        self.last_lease += 1;
        holders.insert(mount, Lease { number: self.last_lease, recall: None });
        found.leases.insert(self.last_lease, key);
        self.counts.granted += 1;
        if found.leases.len() > self.most {
            self.evict(mount);
        }
        Some(self.last_lease)
    }

    /// The oldest lease of a mount that is not recalled yet is.
    fn evict(&mut self, mount: u64) {
        let Some(found) = self.sessions.get(&mount) else { return };
        let is_kept = |key: &u64| {
            let lease = self.holders.get(key).and_then(|holders| holders.get(&mount));
            lease.is_some_and(|lease| lease.recall.is_none())
        };
        // Those before it are recalled already: few, as grants end when there are too many.
        if let Some(key) = found.leases.values().copied().find(|key| is_kept(key)) {
            self.counts.evicted += 1;
            self.recall(mount, key);
        }
    }

    /// The mount has dropped these files, as far as their leases have numbers up to `seen`.
    pub(crate) fn give_back(&mut self, mount: u64, session: u64, seen: u64, keys: &[u64]) {
        if self.session(mount) == Some(session) {
            keys.iter().for_each(|key| self.drop_if(mount, *key, |lease| lease.number <= seen));
        }
    }

    /// Begins a change, and recalls the leases of its files. `false`: another change is in the way; nothing is done.
    pub(crate) fn begin(&mut self, keys: &Keys) -> bool {
        let changing = |key: &u64| self.changing.get(key).copied().unwrap_or_default();
        let is_free = keys.alone.iter().all(|key| changing(key) == Changing::default())
            && keys.others.iter().all(|key| !changing(key).is_alone);
        if !is_free {
            return false;
        }
        keys.alone.iter().for_each(|key| self.changing.entry(*key).or_default().is_alone = true);
        keys.others.iter().for_each(|key| self.changing.entry(*key).or_default().others += 1);
        for key in keys.all() {
            let holders: Vec<u64> =
                self.holders.get(&key).map(|found| found.keys().copied().collect()).unwrap_or_default();
            for mount in holders {
                self.recall(mount, key);
            }
        }
        true
    }

    /// Whether a change that began may be carried out.
    pub(crate) fn step(&mut self, now: Duration, keys: &Keys) -> Step {
        let mut until: Option<Duration> = None;
        for key in keys.all() {
            let holders: Vec<u64> =
                self.holders.get(&key).map(|found| found.keys().copied().collect()).unwrap_or_default();
            for mount in holders {
                if !self.end_if_over(now, mount)
                    && let Some(found) = self.sessions.get(&mount)
                {
                    until = Some(until.map_or(found.until, |until| until.min(found.until)));
                }
            }
        }
        until.map_or(Step::Clear, Step::Wait)
    }

    /// A change that began has been carried out, or not.
    pub(crate) fn end(&mut self, keys: &Keys) {
        keys.alone.iter().for_each(|key| _ = self.changing.remove(key));
        for key in &keys.others {
            if let Some(changing) = self.changing.get_mut(key) {
                changing.others = changing.others.saturating_sub(1);
                if *changing == Changing::default() {
                    self.changing.remove(key);
                }
            }
        }
    }

    /// The mount has ended: it keeps nothing.
    pub(crate) fn forget(&mut self, mount: u64) {
        let Some(found) = self.sessions.remove(&mount) else { return };
        for key in found.leases.values() {
            if let Some(holders) = self.holders.get_mut(key) {
                holders.remove(&mount);
                if holders.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
    }

    /// Leases that are out, and figures.
    pub(crate) fn counts(&self) -> (usize, Counts) {
        (self.sessions.values().map(|found| found.leases.len()).sum(), self.counts)
    }

    fn recall(&mut self, mount: u64, key: u64) {
        let lease = self.holders.get_mut(&key).and_then(|holders| holders.get_mut(&mount));
        if let (Some(lease), Some(found)) = (lease, self.sessions.get_mut(&mount))
            && lease.recall.is_none()
        {
            found.last_recall += 1;
            lease.recall = Some(found.last_recall);
            found.recalls.insert(found.last_recall, key);
            self.counts.recalled += 1;
        }
    }

    /// Ends a lease that is as it is to be.
    fn drop_if(&mut self, mount: u64, key: u64, is_so: impl Fn(&Lease) -> bool) {
        let Some(holders) = self.holders.get_mut(&key) else { return };
        let Some(lease) = holders.get(&mount).copied().filter(|lease| is_so(lease)) else { return };
        holders.remove(&mount);
        if holders.is_empty() {
            self.holders.remove(&key);
        }
        if let Some(found) = self.sessions.get_mut(&mount) {
            found.leases.remove(&lease.number);
            lease.recall.iter().for_each(|recall| _ = found.recalls.remove(recall));
        }
    }

    /// Whether the session of a mount is over, and ended by this.
    fn end_if_over(&mut self, now: Duration, mount: u64) -> bool {
        let is_over = self.sessions.get(&mount).is_some_and(|found| now >= found.until);
        if is_over {
            self.counts.expired += 1;
            self.forget(mount);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn of(file: u64) -> Keys {
        Keys { alone: vec![], others: vec![file] }
    }

    /// A table with the sessions of mounts 1 and 2.
    fn table(most: usize) -> (Table, [u64; 2]) {
        let mut table = Table::new(3, most);
        let sessions = [1, 2].map(|mount| table.ask(at(0), mount, 0, 0, HOUR).session);
        assert_eq!(sessions, [(3 << 32) + 1, (3 << 32) + 2]);
        (table, sessions)
    }

    #[test]
    fn the_oldest_lease_of_a_mount_is_recalled_for_a_new_one() {
        let (mut table, [session, _]) = table(4);
        (10..14).for_each(|file| assert!(table.grant(at(1), 1, session, file).is_some()));
        assert!(table.grant(at(1), 1, session, 10).is_some(), "again: it is the newest one now");
        assert!(table.recalls(1, session).is_empty());
        assert!(table.grant(at(1), 1, session, 14).is_some());
        let recalls = table.recalls(1, session);
        assert_eq!(recalls, [(1, 11)]);
        assert_eq!(table.grant(at(1), 1, session, 11), None, "it is to be dropped first");
        assert_eq!(table.ask(at(2), 1, session, 1, HOUR).recalls, []);
        assert!(table.grant(at(2), 1, session, 11).is_some());
        // A mount that does no recall gets no more in the end.
        let got = (100..).take_while(|file| table.grant(at(3), 1, session, *file).is_some()).count();
        assert!(got <= OVER_MAX && table.counts().0 <= 4 + OVER_MAX, "{got}");
        table.forget(1);
        assert_eq!(table.counts().0, 0);
        assert!(table.holders.is_empty());
    }

    #[test]
    fn a_change_waits_for_recalls_or_the_end_of_a_session_and_nothing_is_granted_meanwhile() {
        let (mut table, [first, second]) = table(4);
        assert!(table.grant(at(1), 1, first, 7).is_some() && table.grant(at(1), 2, second, 7).is_some());
        assert!(table.begin(&of(7)));
        assert_eq!(table.step(at(2), &of(7)), Step::Wait(HOUR));
        assert_eq!(table.ask(at(2), 1, first, 0, HOUR).recalls, [(1, 7)]);
        table.ask(at(3), 1, first, 1, HOUR);
        assert_eq!(table.step(at(4), &of(7)), Step::Wait(HOUR), "the other one has not answered");
        assert_eq!(table.grant(at(4), 1, first, 7), None, "a change is under way");
        assert_eq!(table.step(HOUR, &of(7)), Step::Clear, "its session is over");
        table.end(&of(7));
        assert!(table.grant(HOUR, 1, first, 7).is_some());
        assert_eq!(table.grant(HOUR, 2, second, 7), None);
        let news = table.ask(HOUR, 2, second, 0, HOUR);
        assert!(news.session != second && news.valid.is_zero(), "it is to drop everything: {news:?}");
        assert_eq!(table.counts().1.expired, 1);
    }

    #[test]
    fn changes_that_look_up_names_run_alone() {
        let (mut table, _) = table(4);
        let alone = Keys { alone: vec![1], others: vec![2] };
        assert!(table.begin(&of(1)) && table.begin(&of(1)) && !table.begin(&alone));
        table.end(&of(1));
        assert!(!table.begin(&alone), "one is still under way");
        table.end(&of(1));
        assert!(table.begin(&alone) && !table.begin(&of(1)) && !table.begin(&alone) && table.begin(&of(2)));
        table.end(&alone);
        table.end(&of(2));
        assert!(table.begin(&of(1)) && table.changing.len() == 1);
    }
}
