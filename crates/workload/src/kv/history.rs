//! The checker itself: collects events, judges a recovered view, adopts it. See [the rules](crate::kv).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crate::keys::KeyCodec;
use crate::kv::event::{Event, EventKind, WriteKind};
use crate::value::{self, ValueError};

/// A state of one record: the version of its value, or absent.
type State = Option<u64>;

/// Facts known about one record.
#[derive(Debug, Clone, Default)]
struct Record {
    /// Version of the newest acknowledged write (0: none) and the state after it.
    acknowledged_version: u64,
    acknowledged_state: State,
    /// Started writes newer than that, by version: the state after each.
    pending: BTreeMap<u64, State>,
    /// Newest version ever started, to tell an old state from an invented one.
    newest_started: u64,
}

/// Why a recovered view is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// An acknowledged value is gone.
    Lost {
        /// The record.
        record: u64,
        /// The newest acknowledged version.
        acknowledged: u64,
    },
    /// A record went back to a state before an acknowledged write.
    Stale {
        /// The record.
        record: u64,
        /// The newest acknowledged version.
        acknowledged: u64,
        /// The version found.
        found: u64,
    },
    /// A record is back although its removal was acknowledged.
    Resurrected {
        /// The record.
        record: u64,
        /// The version of the removal.
        removed: u64,
        /// The version found.
        found: u64,
    },
    /// A version that was never written, or that an earlier recovery had discarded.
    NeverStarted {
        /// The record.
        record: u64,
        /// The version found.
        found: u64,
    },
    /// A value is torn, truncated or belongs to another key.
    Torn {
        /// The record.
        record: u64,
        /// The fault.
        reason: ValueError,
    },
    /// A key that belongs to no record that was ever written.
    UnknownKey {
        /// The key.
        key: Vec<u8>,
    },
    /// The same key was found twice.
    Duplicate {
        /// The record.
        record: u64,
    },
    /// A key came after a greater one.
    OutOfOrder {
        /// The later, smaller key.
        key: Vec<u8>,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { record, acknowledged } => {
                write!(formatter, "record {record}: lost; version {acknowledged} was acknowledged")
            }
            Self::Stale { record, acknowledged, found } => write!(
                formatter,
                "record {record}: stale; version {acknowledged} was acknowledged, version {found} is there"
            ),
            Self::Resurrected { record, removed, found } => {
                write!(formatter, "record {record}: back; removal {removed} was acknowledged, version {found} is there")
            }
            Self::NeverStarted { record, found } => {
                write!(formatter, "record {record}: version {found} is there, which no running write could leave")
            }
            Self::Torn { record, reason } => write!(formatter, "record {record}: {reason}"),
            Self::UnknownKey { key } => write!(formatter, "key {} was never written", Hex(key)),
            Self::Duplicate { record } => {
                write!(formatter, "record {record}: its key is there twice")
            }
            Self::OutOfOrder { key } => {
                write!(formatter, "key {} comes after a greater key", Hex(key))
            }
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The result of a judgement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Records found in the view, damaged ones included.
    pub present: u64,
    /// Records for which the view was checked against an acknowledged write.
    pub acknowledged: u64,
    /// Records with writes that were started but not acknowledged.
    pub uncertain: u64,
    /// Of these, records on which such a write took effect.
    pub uncertain_applied: u64,
    /// All violations, ordered by position in the view, then by record.
    pub violations: Vec<Violation>,
    /// The whole, known values found.
    found: HashMap<u64, u64>,
}

impl Verdict {
    /// Whether the view is one that a correct engine may return.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

/// The writes of one map, over any number of kills.
///
/// ```
/// use lodestone_workload::keys::{KeyCodec, KeyOrder};
/// use lodestone_workload::kv::{History, Violation, WriteKind};
/// use lodestone_workload::value;
///
/// let codec = KeyCodec::new(8, KeyOrder::Ordered)?;
/// let mut history = History::new(codec);
/// history.started(1, 1, WriteKind::Put);
/// history.acknowledged(1, 1, WriteKind::Put);
/// history.started(2, 1, WriteKind::Put);
///
/// let key = codec.encode(1);
/// let survived = vec![(key.clone(), value::make(&key, 1, 64))];
/// assert!(history.judge(survived).holds());
/// let lost: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
/// assert_eq!(history.judge(lost).violations, [Violation::Lost { record: 1, acknowledged: 1 }]);
/// # Ok::<(), lodestone_workload::keys::KeysError>(())
/// ```
#[derive(Debug, Clone)]
pub struct History {
    codec: KeyCodec,
    records: HashMap<u64, Record>,
    acknowledgements: u64,
}

impl History {
    /// An empty history of a map whose keys `codec` makes.
    #[must_use]
    pub fn new(codec: KeyCodec) -> Self {
        Self { codec, records: HashMap::new(), acknowledgements: 0 }
    }

    /// How record numbers become keys.
    #[must_use]
    pub fn codec(&self) -> KeyCodec {
        self.codec
    }

    /// Acknowledgements collected so far.
    #[must_use]
    pub fn acknowledgements(&self) -> u64 {
        self.acknowledgements
    }

    /// The next version to use for `record`.
    #[must_use]
    pub fn next_version(&self, record: u64) -> u64 {
        self.records.get(&record).map_or(0, |known| known.newest_started) + 1
    }

    /// Takes one event.
    ///
    /// # Panics
    /// As [`History::started`] and [`History::acknowledged`].
    pub fn apply(&mut self, event: Event) {
        match event.kind {
            EventKind::Started => self.started(event.record, event.version, event.write),
            EventKind::Acknowledged => self.acknowledged(event.record, event.version, event.write),
        }
    }

    /// A write is about to be passed to the engine.
    ///
    /// # Panics
    /// If its version is not above every earlier version of this record: then the test itself is wrong.
    pub fn started(&mut self, record: u64, version: u64, write: WriteKind) {
        let known = self.records.entry(record).or_default();
        assert!(
            version > known.newest_started,
            "record {record}: version {version} after {} breaks the order of versions",
            known.newest_started
        );
        known.newest_started = version;
        known.pending.insert(version, state_after(write, version));
    }

    /// The engine called a write durable. Acknowledgements of one record may come in any order.
    ///
    /// # Panics
    /// If that write was never started: then the test itself is wrong.
    pub fn acknowledged(&mut self, record: u64, version: u64, write: WriteKind) {
        let known = self.records.entry(record).or_default();
        let superseded = version < known.acknowledged_version;
        assert!(
            superseded || known.pending.get(&version) == Some(&state_after(write, version)),
            "record {record}: version {version} is acknowledged but was not started"
        );
        self.acknowledgements += 1;
        if !superseded {
            known.acknowledged_version = version;
            known.acknowledged_state = state_after(write, version);
            known.pending.retain(|pending, _| *pending > version);
        }
    }

    /// Judges all records of a recovered map, in the order in which a full scan returned them.
    pub fn judge<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, view: impl IntoIterator<Item = (K, V)>) -> Verdict {
        let mut verdict = Verdict::default();
        let mut damaged = HashSet::new();
        let mut previous: Option<Vec<u8>> = None;
        for (key, bytes) in view {
            let (key, bytes) = (key.as_ref(), bytes.as_ref());
            verdict.present += 1;
            if previous.as_deref().is_some_and(|previous| key < previous) {
                verdict.violations.push(Violation::OutOfOrder { key: key.into() });
            }
            previous = Some(key.into());
            let known = self.codec.decode(key).filter(|record| self.records.contains_key(record));
            let Some(record) = known else {
                verdict.violations.push(Violation::UnknownKey { key: key.into() });
                continue;
            };
            if verdict.found.contains_key(&record) || damaged.contains(&record) {
                verdict.violations.push(Violation::Duplicate { record });
                continue;
            }
            match value::verify(key, bytes) {
                Ok(version) => {
                    verdict.found.insert(record, version);
                }
                Err(reason) => {
                    verdict.violations.push(Violation::Torn { record, reason });
                    damaged.insert(record);
                }
            }
        }
        self.judge_records(&mut verdict, &damaged);
        verdict
    }

    fn judge_records(&self, verdict: &mut Verdict, damaged: &HashSet<u64>) {
        let mut records: Vec<u64> = self.records.keys().copied().collect();
        records.sort_unstable();
        for record in records {
            let known = &self.records[&record];
            verdict.acknowledged += u64::from(known.acknowledged_version > 0);
            verdict.uncertain += u64::from(!known.pending.is_empty());
            if damaged.contains(&record) {
                continue;
            }
            let found = verdict.found.get(&record).copied();
            if found == known.acknowledged_state {
                continue;
            }
            if known.pending.values().any(|state| *state == found) {
                verdict.uncertain_applied += 1;
            } else {
                verdict.violations.push(known.explain(record, found));
            }
        }
    }

    /// Makes the recovered state the starting point of the next round: uncertain writes are now decided.
    pub fn adopt(&mut self, verdict: &Verdict) {
        for (record, known) in &mut self.records {
            let found = verdict.found.get(record).copied();
            let applied = known.pending.iter().rev().find(|(_, state)| **state == found);
            if found != known.acknowledged_state
                && let Some((version, _)) = applied
            {
                known.acknowledged_version = *version;
            }
            known.acknowledged_state = found;
            known.pending.clear();
        }
    }
}

impl Record {
    /// Names the violation of a state that is neither the acknowledged one nor one of the pending ones.
    fn explain(&self, record: u64, found: State) -> Violation {
        match (self.acknowledged_state, found) {
            (Some(acknowledged), None) => Violation::Lost { record, acknowledged },
            (Some(acknowledged), Some(found)) if found < acknowledged => {
                Violation::Stale { record, acknowledged, found }
            }
            (None, Some(found)) if found < self.acknowledged_version => {
                Violation::Resurrected { record, removed: self.acknowledged_version, found }
            }
            // The last pattern is impossible: two absent states are equal.
            (_, Some(found)) => Violation::NeverStarted { record, found },
            (None, None) => unreachable!("equal states are no violation"),
        }
    }
}

fn state_after(write: WriteKind, version: u64) -> State {
    (write == WriteKind::Put).then_some(version)
}

#[cfg(test)]
mod tests;
