//! Transactions whose closures use another error type.
//!
//! [`Stm::update`] fixes the error type of its closure, so that it need not be written down. The transactions here
//! leave it open: any type that an [`Abort`] converts to. The closure's own error ends the transaction and is returned
//! unchanged.
//!
//! The restart of a transaction does not depend on the closure's error. A conflict, or a condition that is waited for,
//! dooms the attempt when it is met. An error type that loses it changes nothing, nor does a closure that answers it
//! with another error. The closure may have seen a state that never was, so the transaction restarts.

use crate::error::{Abort, Error, Result, TxResult};
use crate::stm::Stm;
use crate::tx::Tx;

impl Stm {
    /// As [`update`](Self::update), for closures with any error type.
    ///
    /// ```
    /// # use lodestone_pmem::{DomainChoice, PoolOptions};
    /// # use lodestone_store::Store;
    /// use lodestone_stm::{Abort, Stm, pm_object};
    ///
    /// #[pm_object]
    /// struct Account {
    ///     cents: u64,
    /// }
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// enum BankError {
    ///     #[error("the account is {short_cents} cents short")]
    ///     Short { short_cents: u64 },
    ///     #[error(transparent)]
    ///     Memory(#[from] Abort),
    /// }
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    /// # let stm = Stm::open(&Store::create(folder.path().join("bank.pool"), &options)?)?;
    /// let account = stm.root::<Account>()?;
    /// let outcome = stm.try_update(|tx| {
    ///     let account = tx.write(account)?;
    ///     account.cents = account.cents.checked_sub(70).ok_or(BankError::Short { short_cents: 70 - account.cents })?;
    ///     Ok(account.cents)
    /// });
    /// assert!(matches!(outcome, Err(BankError::Short { short_cents: 70 })));
    /// # Ok::<(), lodestone_stm::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that `body` returned, and the errors of [`update`](Self::update) as an `E`.
    ///
    /// # Panics
    /// When `body` panics: the transaction has not happened.
    pub fn try_update<R, E: From<Abort>>(&self, body: impl FnMut(&mut Tx<'_>) -> Result<R, E>) -> Result<R, E> {
        let mut own = OwnErrors { body, failed: None };
        let outcome = self.update(|tx| own.run(tx));
        own.conclude(outcome)
    }

    /// As [`read`](Self::read), for closures with any error type.
    ///
    /// # Errors
    /// The error that `body` returned, and the errors of [`read`](Self::read) as an `E`.
    ///
    /// # Panics
    /// When `body` panics.
    pub fn try_read<R, E: From<Abort>>(&self, body: impl FnMut(&mut Tx<'_>) -> Result<R, E>) -> Result<R, E> {
        let mut own = OwnErrors { body, failed: None };
        let outcome = self.read(|tx| own.run(tx));
        own.conclude(outcome)
    }

    /// As [`snapshot`](Self::snapshot), for closures with any error type.
    ///
    /// # Errors
    /// The error that `body` returned, and the errors of [`snapshot`](Self::snapshot) as an `E`.
    ///
    /// # Panics
    /// When `body` panics.
    pub fn try_snapshot<R, E: From<Abort>>(&self, body: impl FnMut(&mut Tx<'_>) -> Result<R, E>) -> Result<R, E> {
        let mut own = OwnErrors { body, failed: None };
        let outcome = self.snapshot(|tx| own.run(tx));
        own.conclude(outcome)
    }
}

/// A closure, and the error of its last attempt.
struct OwnErrors<F, E> {
    body: F,
    failed: Option<E>,
}

impl<F, E: From<Abort>> OwnErrors<F, E> {
    fn run<R>(&mut self, tx: &mut Tx<'_>) -> TxResult<R>
    where
        F: FnMut(&mut Tx<'_>) -> Result<R, E>,
    {
        self.failed = None;
        (self.body)(tx).map_err(|error| {
            self.failed = Some(error);
            Error::Cancelled { reason: "the closure returned an error of its own".into() }.into()
        })
    }

    fn conclude<R>(self, outcome: Result<R>) -> Result<R, E> {
        match (outcome, self.failed) {
            (Ok(value), _) => Ok(value),
            (Err(Error::Cancelled { .. }), Some(error)) => Err(error),
            // Also in place of the closure's error: it may be based on values that a failed medium loses.
            (Err(error), _) => Err(Abort::from(error).into()),
        }
    }
}
