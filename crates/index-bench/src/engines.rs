//! Any key-value engine of `lodestone-workload` as a target. Keys are bytes in the order of the keys; values have eight
//! bytes.

use std::marker::PhantomData;

use lodestone_index::IndexKey;
use lodestone_workload::engine::{self, Engine, EngineCounters, EngineError, Environment};

use crate::target::{Result, Session, Target};

/// An engine with words as values.
#[derive(Debug)]
pub struct OnEngine<'e, K: ?Sized, E> {
    engine: &'e E,
    key: PhantomData<fn(&K)>,
}

impl<'e, K: IndexKey + ?Sized, E: Engine> OnEngine<'e, K, E> {
    /// The engine as a target.
    pub fn new(engine: &'e E) -> Self {
        Self { engine, key: PhantomData }
    }
}

/// A session of an engine, with a buffer for values.
#[derive(Debug)]
pub struct OnSession<K: ?Sized, S> {
    session: S,
    value: Vec<u8>,
    key: PhantomData<fn(&K)>,
}

impl<K: IndexKey + ?Sized, S> OnSession<K, S> {
    fn new(session: S) -> Self {
        Self { session, value: Vec::new(), key: PhantomData }
    }
}

impl<K: IndexKey + ?Sized, E: Engine> Target for OnEngine<'_, K, E> {
    type Key = K;
    type Session<'t>
        = OnSession<K, E::Session<'t>>
    where
        Self: 't;

    fn name(&self) -> String {
        self.engine.name().into()
    }

    fn session(&self) -> Result<Self::Session<'_>> {
        self.engine.session().map(OnSession::new)
    }

    fn load_session(&self) -> Result<Self::Session<'_>> {
        self.engine.load_session().map(OnSession::new)
    }

    fn finish_load(&self) -> Result<()> {
        self.engine.finish_load()
    }

    fn is_ordered(&self) -> bool {
        true
    }

    fn environment(&self) -> Environment {
        self.engine.environment()
    }

    fn counters(&self) -> EngineCounters {
        self.engine.counters()
    }
}

impl<K: IndexKey + ?Sized, S: engine::Session> Session for OnSession<K, S> {
    type Key = K;

    fn get(&mut self, key: &K) -> Result<Option<u64>> {
        if !key.with_bytes(|bytes| self.session.read(bytes, &mut self.value))? {
            return Ok(None);
        }
        let word = <[u8; 8]>::try_from(&self.value[..]);
        let word = word.map_err(|_| EngineError::new(format!("a value of {} bytes, not of 8", self.value.len())))?;
        Ok(Some(u64::from_le_bytes(word)))
    }

    fn insert(&mut self, key: &K, value: u64) -> Result<bool> {
        key.with_bytes(|bytes| self.session.insert(bytes, &value.to_le_bytes()))?;
        Ok(true)
    }

    fn update(&mut self, key: &K, value: u64) -> Result<bool> {
        key.with_bytes(|bytes| self.session.update(bytes, &value.to_le_bytes()))
    }

    fn remove(&mut self, key: &K) -> Result<bool> {
        key.with_bytes(|bytes| self.session.remove(bytes))
    }

    fn scan(&mut self, start: &K, count: u64) -> Result<u64> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        key_scan(start, |bytes| self.session.scan(bytes, count))
    }
}

fn key_scan<K: IndexKey + ?Sized>(start: &K, scan: impl FnOnce(&[u8]) -> Result<usize>) -> Result<u64> {
    start.with_bytes(scan).map(|seen| seen as u64)
}
