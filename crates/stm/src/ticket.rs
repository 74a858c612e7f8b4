//! Acknowledgement apart from the commit: a ticket that waits until the transaction is durable.

use lodestone_pmem::{Memory, PmAddr};

use crate::error::Result;

/// A committed transaction that may not be durable yet; see [`Stm::update_async`](crate::Stm::update_async).
#[derive(Debug)]
#[must_use = "the transaction is acknowledged by `durable`"]
pub struct Ticket<R> {
    memory: Memory,
    at: Option<(PmAddr, u64)>,
    value: R,
}

impl<R> Ticket<R> {
    pub(crate) fn new(memory: Memory, at: Option<(PmAddr, u64)>, value: R) -> Self {
        Self { memory, at, value }
    }

    /// What the transaction gave. Not to be told to the outside before [`durable`](Self::durable).
    pub fn value(&self) -> &R {
        &self.value
    }

    /// Waits until the transaction survives power loss.
    ///
    /// # Errors
    /// [`Error::Pool`](crate::Error::Pool) when the medium failed: the transaction may be lost.
    pub fn durable(self) -> Result<R> {
        if let Some((at, bytes)) = self.at {
            self.memory.durable_range(at, bytes)?;
        }
        Ok(self.value)
    }
}
