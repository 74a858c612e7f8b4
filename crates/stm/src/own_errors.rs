//! Transactions whose closures have an error type of their own.
//!
//! [`Stm::update`] fixes the error type of its closure, so that nobody has to write it down. The transactions here
//! leave it open: any type that an [`Abort`] converts to. The closure's own error ends the transaction and comes back
//! as it is.
//!
//! Whether a transaction begins again is not read from the closure's error: a conflict, or a condition that is waited
//! for, dooms the attempt when it is met. So an error type that loses it, or a closure that answers it with an error of
//! its own, changes nothing: what it saw may never have been a state, and the transaction begins again.

use crate::error::{Abort, Error, Result, TxResult};
use crate::stm::Stm;
use crate::tx::Tx;

impl Stm {
    /// As [`update`](Self::update), for closures with an error type of their own.
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
    /// What `body` returned, and the errors of [`update`](Self::update) as an `E`.
    ///
    /// # Panics
    /// When `body` panics: the transaction has not happened.
    pub fn try_update<R, E: From<Abort>>(&self, body: impl FnMut(&mut Tx<'_>) -> Result<R, E>) -> Result<R, E> {
        let mut own = OwnErrors { body, failed: None };
        let outcome = self.update(|tx| own.run(tx));
        own.conclude(outcome)
    }

    /// As [`read`](Self::read), for closures with an error type of their own.
    ///
    /// # Errors
    /// What `body` returned, and the errors of [`read`](Self::read) as an `E`.
    ///
    /// # Panics
    /// When `body` panics.
    pub fn try_read<R, E: From<Abort>>(&self, body: impl FnMut(&mut Tx<'_>) -> Result<R, E>) -> Result<R, E> {
        let mut own = OwnErrors { body, failed: None };
        let outcome = self.read(|tx| own.run(tx));
        own.conclude(outcome)
    }

    /// As [`snapshot`](Self::snapshot), for closures with an error type of their own.
    ///
    /// # Errors
    /// What `body` returned, and the errors of [`snapshot`](Self::snapshot) as an `E`.
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
            // Also in place of the closure's own: nobody may be told what a failed medium may lose.
            (Err(error), _) => Err(Abort::from(error).into()),
        }
    }
}
