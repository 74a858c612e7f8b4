//! The registry of a volume as its nodes reach it: in this process, or at keepers.

use std::fmt;
use std::sync::Arc;

use lodestone_fabric::Registry;
use lodestone_pmem::Pool;
use lodestone_pmem::sync::Mutex;
use lodestone_registry::RegistryThread;

use super::link::{Asking, SharedRegistry};
use crate::error::{Error, Result};

/// A registry elsewhere, and all that is needed to reach it.
pub(crate) type Connect = Box<dyn Fn() -> Box<dyn Registry + Send> + Send + Sync>;

/// The registry.
pub(crate) struct Registrar {
    /// For those who may wait for it.
    pub(crate) shared: SharedRegistry,
    /// Another one for each sender, which may not wait.
    connect: Option<Connect>,
    /// That of a registry in this process stays open.
    _pool: Option<Pool>,
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").field("is_elsewhere", &self.is_elsewhere()).finish_non_exhaustive()
    }
}

impl Registrar {
    /// A registry in this process.
    pub(crate) fn here(registry: impl Registry + Send + 'static, pool: Pool) -> Self {
        Self { shared: Arc::new(Mutex::new(Box::new(registry))), connect: None, _pool: Some(pool) }
    }

    /// A registry elsewhere.
    pub(crate) fn elsewhere(connect: Connect) -> Self {
        Self { shared: Arc::new(Mutex::new(connect())), connect: Some(connect), _pool: None }
    }

    pub(crate) const fn is_elsewhere(&self) -> bool {
        self.connect.is_some()
    }

    /// The way of a new sender.
    pub(crate) fn asking(&self) -> Result<Asking> {
        let Some(connect) = &self.connect else { return Ok(Asking::Here(Arc::clone(&self.shared))) };
        let failed = |error| Error::Options(format!("no thread for the registry could be started: {error}"));
        RegistryThread::start(connect()).map(Asking::Elsewhere).map_err(failed)
    }
}
