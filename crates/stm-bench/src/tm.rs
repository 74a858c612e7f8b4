//! The interface of a transactional memory, so that one workload runs on all of them.
//!
//! - A [`TransactionalMemory`] is shared. Each thread works through its own [`Worker`].
//! - A transaction is a [`ReadBody`] or an [`UpdateBody`], not a closure. Its `run` is generic over the transaction, so
//!   the structure's code is compiled for every engine and no call in the hot path is virtual.
//! - Objects are plain values of a fixed layout ([`Object`]). They are read by value and changed in place by a
//!   function, which each engine applies to its form of a working copy.
//! - A `run` that receives an `Abort` from the engine passes it on at once. The engine decides whether to run it again.
//!
//! Invariant: a `run` may be called many times for one transaction and must not keep results of earlier calls.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use lodestone_stm::{Part, PmObject};
use lodestone_workload::engine::{EngineError, Environment};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A plain value that a transactional memory stores: whole words, no padding, any bit pattern valid.
pub trait Object: PmObject + FromBytes + Copy + Send + Sync {
    /// Words of the value. A layout that does not consist of words fails to compile.
    const WORDS: usize = {
        assert!(size_of::<Self>().is_multiple_of(8) && align_of::<Self>() <= 8, "objects are made of whole words");
        size_of::<Self>() / 8
    };
}

/// The location of an object, in the engine's own terms. Other objects store it as a plain word.
pub struct Ref<T> {
    raw: u64,
    kind: PhantomData<fn() -> T>,
}

impl<T> Ref<T> {
    /// The reference that refers to nothing.
    pub const NULL: Self = Self::from_raw(0);

    /// Decodes the result of [`to_raw`](Self::to_raw).
    #[must_use]
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self { raw, kind: PhantomData }
    }

    /// The word that represents it in an object.
    #[must_use]
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.raw
    }

    /// Whether this is [`Ref::NULL`].
    #[must_use]
    #[inline]
    pub const fn is_null(self) -> bool {
        self.raw == 0
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ref<T> {}
impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}
impl<T> Eq for Ref<T> {}
impl<T> Hash for Ref<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}
impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Ref({:#x})", self.raw)
    }
}

/// Operations of every transaction.
pub trait Reading {
    /// The reason why the engine wants the body to stop. Only the engine interprets it.
    type Abort;

    /// The value of the object at `at` as of this transaction.
    ///
    /// # Errors
    /// The engine's abort.
    fn read<T: Object>(&mut self, at: Ref<T>) -> Result<T, Self::Abort>;

    /// A part of the object at `at` as of this transaction.
    ///
    /// # Errors
    /// The engine's abort.
    #[inline]
    fn read_part<T: Object, F: FromBytes + IntoBytes>(
        &mut self,
        at: Ref<T>,
        part: Part<T, F>,
    ) -> Result<F, Self::Abort> {
        Ok(part.of(&self.read(at)?))
    }
}

/// Operations of an update transaction besides reading.
pub trait Writing: Reading {
    /// Changes the object at `at`. `change` receives its value as of this transaction.
    ///
    /// # Errors
    /// The engine's abort.
    fn write<T: Object>(&mut self, at: Ref<T>, change: impl FnOnce(&mut T)) -> Result<(), Self::Abort>;

    /// Makes an object that exists if and only if the transaction commits.
    ///
    /// # Errors
    /// The engine's abort, also if memory is exhausted.
    fn alloc<T: Object>(&mut self, value: T) -> Result<Ref<T>, Self::Abort>;

    /// Frees the object at `at` with the commit.
    ///
    /// # Errors
    /// The engine's abort.
    fn free<T: Object>(&mut self, at: Ref<T>) -> Result<(), Self::Abort>;
}

/// A transaction that only reads.
pub trait ReadBody {
    /// Its result.
    type Out;

    /// One attempt.
    ///
    /// # Errors
    /// The error of `tx`.
    fn run<X: Reading>(&mut self, tx: &mut X) -> Result<Self::Out, X::Abort>;
}

/// A transaction that may change objects.
pub trait UpdateBody {
    /// Its result.
    type Out;

    /// One attempt.
    ///
    /// # Errors
    /// The error of `tx`.
    fn run<X: Writing>(&mut self, tx: &mut X) -> Result<Self::Out, X::Abort>;
}

/// Eight words from which all other objects of a transactional memory can be reached.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[pm(name = "bench.Root")]
pub struct Root {
    /// The words; zero in a fresh memory.
    pub words: [u64; 8],
}

impl Object for Root {}

/// A transactional memory under test.
pub trait TransactionalMemory: Sync {
    /// One thread's access.
    type Worker<'m>: Worker
    where
        Self: 'm;

    /// Name for results, with its variants, for example `tl2-redo/add`.
    fn name(&self) -> String;

    /// A worker for the calling thread.
    ///
    /// # Errors
    /// If there are no more.
    fn worker(&self) -> Result<Self::Worker<'_>, EngineError>;

    /// The object from which all others are reached.
    fn root(&self) -> Ref<Root>;

    /// Most workers at a time.
    fn workers_max(&self) -> usize {
        usize::MAX
    }

    /// Where it runs, and the meaning of a commit.
    fn environment(&self) -> Environment;

    /// Returns when every commit of every worker is durable, those of [`Worker::update_relaxed`] too.
    ///
    /// # Errors
    /// If the medium failed.
    fn settle(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// One thread's access to a transactional memory.
pub trait Worker {
    /// Runs `body` until it commits.
    ///
    /// # Errors
    /// A fault that another attempt would not cure: memory exhausted, a poisoned medium.
    fn read<B: ReadBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError>;

    /// Runs `body` until it commits. On return its changes are durable in the sense of the engine's environment.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn update<B: UpdateBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError>;

    /// As [`update`](Self::update), but durable only after [`TransactionalMemory::settle`].
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn update_relaxed<B: UpdateBody>(&mut self, body: &mut B) -> Result<B::Out, EngineError> {
        self.update(body)
    }

    /// The counts of this worker since it was made.
    fn statistics(&self) -> Statistics;
}

/// Commits and aborts of a worker, or of all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Transactions that took effect.
    pub commits: u64,
    /// Attempts that found an object locked by another transaction.
    pub aborts_locked: u64,
    /// Attempts that found an object newer than their start and could not extend it.
    pub aborts_newer: u64,
    /// Attempts whose reads were no longer valid at commit.
    pub aborts_validation: u64,
    /// Attempts that failed for another reason.
    pub aborts_other: u64,
}

impl Statistics {
    /// All aborts.
    #[must_use]
    pub fn aborts(&self) -> u64 {
        self.aborts_locked + self.aborts_newer + self.aborts_validation + self.aborts_other
    }

    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.aborts_locked += other.aborts_locked;
        self.aborts_newer += other.aborts_newer;
        self.aborts_validation += other.aborts_validation;
        self.aborts_other += other.aborts_other;
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            commits: self.commits.saturating_sub(earlier.commits),
            aborts_locked: self.aborts_locked.saturating_sub(earlier.aborts_locked),
            aborts_newer: self.aborts_newer.saturating_sub(earlier.aborts_newer),
            aborts_validation: self.aborts_validation.saturating_sub(earlier.aborts_validation),
            aborts_other: self.aborts_other.saturating_sub(earlier.aborts_other),
        }
    }
}
