//! Checks whether an engine keeps the contract of the [`Engine`] trait, so that a benchmark does not reward a shortcut.
//!
//! Random operations go to the engine and to a sorted map, and every answer is compared. Keys come from a small set, so
//! that replaced, removed and missing records are frequent. Values change their length.

use std::collections::BTreeMap;

use crate::engine::{Engine, EngineError, Session};
use crate::random::Random;
use crate::value::{self, VALUE_BYTES_MIN};

const RECORDS: u64 = 200;
const VALUE_BYTES_MAX: u64 = 300;
const SCAN_RECORDS_MAX: u64 = 40;

/// Freedoms that an engine may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Licence {
    /// Updates do not check whether the record exists: they always return true, and insert a missing record.
    pub blind_updates: bool,
    /// Removals do not check whether the record exists: they always return true.
    pub blind_removals: bool,
}

/// How an engine broke the contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Deviation {
    /// A call failed.
    #[error("operation {operation}: {call} failed: {source}")]
    Failed {
        /// Number of the operation, from 0.
        operation: u64,
        /// The call.
        call: &'static str,
        /// The engine's error.
        source: EngineError,
    },
    /// A call returned a wrong answer.
    #[error("operation {operation}: {call} of key {key:?}: expected {expected}, found {found}")]
    WrongAnswer {
        /// Number of the operation, from 0.
        operation: u64,
        /// The call.
        call: &'static str,
        /// The key.
        key: Vec<u8>,
        /// The model's answer.
        expected: String,
        /// The engine's answer.
        found: String,
    },
}

/// Runs `operations` random operations on an empty engine and compares every answer. Then it reads everything back.
///
/// ```
/// use lodestone_workload::conformance::{Licence, check};
/// use lodestone_workload::memory::MemoryEngine;
///
/// check(&MemoryEngine::new(), 1, 1_000, Licence::default())?;
/// # Ok::<(), lodestone_workload::conformance::Deviation>(())
/// ```
///
/// # Errors
/// The first [`Deviation`].
pub fn check<E: Engine>(engine: &E, seed: u64, operations: u64, licence: Licence) -> Result<(), Deviation> {
    let opened = engine.session();
    let session = opened.map_err(|source| Deviation::Failed { operation: 0, call: "session", source })?;
    let mut check = Check { session, licence, model: BTreeMap::new(), operation: 0, value: Vec::new() };
    let mut random = Random::new(seed);
    while check.operation < operations {
        check.step(&mut random)?;
        check.operation += 1;
    }
    for record in 0..RECORDS {
        check.read(&key_of(record))?;
    }
    check.scan(b"k", usize::try_from(RECORDS).unwrap_or(usize::MAX) + 1)
}

struct Check<S> {
    session: S,
    licence: Licence,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    operation: u64,
    value: Vec<u8>,
}

/// Keys of different lengths, some of them prefixes of others.
fn key_of(record: u64) -> Vec<u8> {
    let mut key = format!("key{}", record % 100).into_bytes();
    if record >= 100 {
        key.push(0);
        key.push(0xFF);
    }
    key
}

impl<S: Session> Check<S> {
    fn step(&mut self, random: &mut Random) -> Result<(), Deviation> {
        let key = key_of(random.below(RECORDS));
        let length = usize::try_from(random.below(VALUE_BYTES_MAX)).unwrap_or(0) + VALUE_BYTES_MIN;
        let fresh = value::make(&key, self.operation, length);
        match random.below(6) {
            0 => self.read(&key),
            1 => {
                let answer = self.session.insert(&key, &fresh);
                self.compare("insert", &key, (), answer)?;
                self.model.insert(key, fresh);
                Ok(())
            }
            2 => {
                let there = self.licence.blind_updates || self.model.contains_key(&key);
                let answer = self.session.update(&key, &fresh);
                self.compare("update", &key, there, answer)?;
                if there {
                    self.model.insert(key, fresh);
                }
                Ok(())
            }
            3 => {
                let there = self.model.remove(&key).is_some() || self.licence.blind_removals;
                let answer = self.session.remove(&key);
                self.compare("remove", &key, there, answer)
            }
            4 => {
                let count = usize::try_from(random.below(SCAN_RECORDS_MAX)).unwrap_or(0);
                self.scan(&key, count)
            }
            _ => self.read_modify_write(key),
        }
    }

    fn read(&mut self, key: &[u8]) -> Result<(), Deviation> {
        // The buffer still holds an earlier value: the engine must clear it.
        let mut value = std::mem::take(&mut self.value);
        let answer = self.session.read(key, &mut value).map(|found| found.then(|| value.clone()));
        let expected = self.model.get(key).cloned();
        self.value = value;
        self.compare("read", key, expected, answer)
    }

    fn scan(&mut self, start: &[u8], count: usize) -> Result<(), Deviation> {
        let expected = self.model.range(start.to_vec()..).take(count).count();
        let answer = self.session.scan(start, count);
        self.compare("scan", start, expected, answer)
    }

    fn read_modify_write(&mut self, key: Vec<u8>) -> Result<(), Deviation> {
        let mut seen = None;
        let mut change = |value: &mut Vec<u8>| {
            seen = Some(value.clone());
            value.push(7);
        };
        let mut value = std::mem::take(&mut self.value);
        let answer = self.session.read_modify_write(&key, &mut value, &mut change);
        self.value = value;
        let before = self.model.get(&key).cloned();
        self.compare("read_modify_write", &key, before.is_some(), answer)?;
        self.compare("read_modify_write", &key, before.clone(), Ok(seen))?;
        if let Some(mut after) = before {
            after.push(7);
            self.model.insert(key, after);
        }
        Ok(())
    }

    fn compare<T: PartialEq + std::fmt::Debug>(
        &self,
        call: &'static str,
        key: &[u8],
        expected: T,
        answer: Result<T, EngineError>,
    ) -> Result<(), Deviation> {
        let operation = self.operation;
        let found = answer.map_err(|source| Deviation::Failed { operation, call, source })?;
        if found == expected {
            return Ok(());
        }
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        Err(Deviation::WrongAnswer { operation, call, key: key.into(), expected, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Result as EngineResult;
    use crate::memory::{MemoryEngine, MemorySession};

    #[test]
    fn the_map_in_memory_conforms() {
        for seed in 0..5 {
            check(&MemoryEngine::new(), seed, 3_000, Licence::default()).unwrap();
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Shortcut {
        DropUpdates,
        KeepRemoved,
        ShortScan,
        DirtyBuffer,
        WrongKey,
    }

    struct Cheat {
        inner: MemoryEngine,
        shortcut: Shortcut,
    }

    impl Engine for Cheat {
        type Session<'a> = CheatSession<'a>;

        fn name(&self) -> &str {
            "cheat"
        }

        fn session(&self) -> EngineResult<CheatSession<'_>> {
            Ok(CheatSession { inner: self.inner.session()?, shortcut: self.shortcut })
        }
    }

    struct CheatSession<'a> {
        inner: MemorySession<'a>,
        shortcut: Shortcut,
    }

    impl Session for CheatSession<'_> {
        fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> EngineResult<bool> {
            if matches!(self.shortcut, Shortcut::DirtyBuffer) {
                let mut clean = Vec::new();
                let found = self.inner.read(key, &mut clean)?;
                value.extend(clean);
                return Ok(found);
            }
            self.inner.read(key, value)
        }

        fn insert(&mut self, key: &[u8], value: &[u8]) -> EngineResult<()> {
            let cut = if matches!(self.shortcut, Shortcut::WrongKey) { key.len().min(4) } else { key.len() };
            self.inner.insert(&key[..cut], value)
        }

        fn update(&mut self, key: &[u8], value: &[u8]) -> EngineResult<bool> {
            if matches!(self.shortcut, Shortcut::DropUpdates) {
                return self.inner.read(key, &mut Vec::new());
            }
            self.inner.update(key, value)
        }

        fn scan(&mut self, start: &[u8], count: usize) -> EngineResult<usize> {
            let less = usize::from(matches!(self.shortcut, Shortcut::ShortScan));
            self.inner.scan(start, count).map(|seen| seen.saturating_sub(less))
        }

        fn remove(&mut self, key: &[u8]) -> EngineResult<bool> {
            if matches!(self.shortcut, Shortcut::KeepRemoved) {
                return self.inner.read(key, &mut Vec::new());
            }
            self.inner.remove(key)
        }
    }

    #[test]
    fn every_shortcut_is_noticed() {
        use Shortcut::{DirtyBuffer, DropUpdates, KeepRemoved, ShortScan, WrongKey};
        for shortcut in [DropUpdates, KeepRemoved, ShortScan, DirtyBuffer, WrongKey] {
            let cheat = Cheat { inner: MemoryEngine::new(), shortcut };
            assert!(check(&cheat, 1, 3_000, Licence::default()).is_err(), "{shortcut:?}");
        }
    }
}
