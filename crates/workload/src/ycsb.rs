//! The Yahoo! Cloud Serving Benchmark, workloads A to F, as a stream of operations for each thread.
//!
//! 1. [`Spec`] describes the run. [`Spec::validate`] refuses a specification that cannot be run.
//! 2. [`Generator::new`] prepares the shared state of the threads: the zipfian sums and the [ledger](InsertLedger) of
//!    inserts.
//! 3. [`Generator::stream`] returns the [`OperationStream`] of thread `t`, which draws kind and record from stream `t`
//!    of the seed.
//! 4. [`Runner`] loads an engine and runs the streams on it.
//!
//! Inserts: thread `t` of `n` inserts records `records + t`, `records + t + n`, and so on, so that the inserted keys do
//! not depend on timing. A thread reports each finished insert to the ledger. Other threads choose only among records
//! below a watermark under which every insert has finished. Each thread reads the watermark every few draws. With one
//! thread the whole stream depends on the seed alone. With several threads, kinds and inserts depend on the seed alone,
//! but the choice of *new* records to read must depend on progress.
//!
//! | workload | read | update | insert | scan | read-modify-write | distribution |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | A | 50 | 50 | | | | zipfian |
//! | B | 95 | 5 | | | | zipfian |
//! | C | 100 | | | | | zipfian |
//! | D | 95 | | 5 | | | latest |
//! | E | | | 5 | 95 | | zipfian, scans of 1 to 100 |
//! | F | 50 | | | | 50 | zipfian |

mod mix;
mod run;
mod stream;

pub use mix::{UnknownWorkload, Workload};
pub use run::{Outcome, Progress, Runner};
pub use stream::{Generator, InsertLedger, Operation, OperationStream};

use crate::keys::{Distribution, KeyChooser, KeyCodec, KeyOrder, KeysError};
use crate::mix::OperationKind;
use crate::race::share_of;
use crate::value::VALUE_BYTES_MIN;

/// The specification of a run. Make one with [`Spec::new`] and change fields.
///
/// ```
/// use lodestone_workload::ycsb::{Spec, Workload};
///
/// let spec = Spec { records: 1_000_000, threads: 8, ..Spec::new(Workload::A) };
/// spec.validate()?;
/// # Ok::<(), lodestone_workload::ycsb::SpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Kinds of operations and their shares.
    pub workload: Workload,
    /// Records loaded before the run.
    pub records: u64,
    /// Operations of all threads together.
    pub operations: u64,
    /// Threads of the run and of the load.
    pub threads: usize,
    /// Length of each key, at least 8.
    pub key_bytes: usize,
    /// Length of each value, at least 24 so that it can describe itself.
    pub value_bytes: usize,
    /// Which records are chosen.
    pub distribution: Distribution,
    /// Whether keys are inserted in key order.
    pub key_order: KeyOrder,
    /// A scan reads between 1 and this many records, drawn uniformly.
    pub scan_records_max: u64,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Spec {
    /// The workload with its own distribution, 100,000 records of 8 + 100 bytes, as many operations, one thread.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        Self {
            workload,
            records: 100_000,
            operations: 100_000,
            threads: 1,
            key_bytes: 8,
            value_bytes: 100,
            distribution: workload.distribution(),
            key_order: KeyOrder::Hashed,
            scan_records_max: 100,
            seed: 1,
        }
    }

    /// Refuses a specification that cannot be run.
    ///
    /// # Errors
    /// [`SpecError`] names the field and what it needs.
    pub fn validate(&self) -> Result<(), SpecError> {
        if self.records == 0 {
            return Err(SpecError::Zero { field: "records" });
        }
        if self.threads == 0 {
            return Err(SpecError::Zero { field: "threads" });
        }
        if self.scan_records_max == 0 {
            return Err(SpecError::Zero { field: "scan_records_max" });
        }
        if self.value_bytes < VALUE_BYTES_MIN {
            return Err(SpecError::ValueBytes { value_bytes: self.value_bytes });
        }
        self.codec()?;
        KeyChooser::new(self.distribution, self.records, self.records)?;
        Ok(())
    }

    /// How record numbers become key bytes.
    ///
    /// # Errors
    /// [`KeysError::KeyBytes`].
    pub fn codec(&self) -> Result<KeyCodec, KeysError> {
        KeyCodec::new(self.key_bytes, self.key_order)
    }

    /// The operations of one thread. The shares are even, and the first threads take the rest.
    #[must_use]
    pub fn operations_of(&self, thread: usize) -> u64 {
        share_of(self.operations, self.threads, thread)
    }

    /// Approximate number of records at the end of the run: loaded and inserted.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let share = self.workload.mix().share(OperationKind::Insert);
        let inserts = u128::from(self.operations) * u128::from(share) / 100;
        self.records.saturating_add(u64::try_from(inserts).unwrap_or(u64::MAX))
    }
}

/// Why a [`Spec`] cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A count that must not be zero.
    #[error("{field} is 0; it must be at least 1")]
    Zero {
        /// The field.
        field: &'static str,
    },
    /// Values must describe themselves.
    #[error("values of {value_bytes} bytes cannot describe themselves; use at least {VALUE_BYTES_MIN}")]
    ValueBytes {
        /// The given length.
        value_bytes: usize,
    },
    /// A fault of keys or distribution.
    #[error(transparent)]
    Keys(#[from] KeysError),
}

#[cfg(test)]
mod tests;
