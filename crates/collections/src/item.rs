//! Keys and values, and their form in the words of a node.
//!
//! - Numbers and byte arrays are stored in the node itself.
//! - [`Bytes`](crate::Bytes) are byte strings of any length. See `bytes`.
//! - [`Plain`] is any persistent object type by value.
//!
//! Invariants: exactly one entry owns its stored words. Code that removes an entry frees its words. Code that moves an
//! entry moves them.

use std::cmp::Ordering;
use std::marker::PhantomData;

use lodestone_stm::{Layout, PmAddr, PmObject, Tx, TxResult};
use zerocopy::{FromBytes, IntoBytes};

use crate::damaged;
use crate::hash::Hasher;

/// A type of values. Implemented for numbers, byte arrays, [`Bytes`](crate::Bytes) and [`Plain`].
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::{PmList, PmValue};
/// use lodestone_stm::{Tx, TxResult};
///
/// /// Works for items of any type.
/// fn last<T: PmValue>(tx: &mut Tx<'_>, list: &PmList<T>) -> TxResult<Option<T::Owned>> {
///     list.last(tx)?.map(|at| list.get(tx, at)).transpose()
/// }
///
/// let list = PmList::<u64>::open(&stm, "steps")?;
/// stm.update(|tx| list.push_back(tx, &7))?;
/// assert_eq!(stm.read(|tx| last(tx, &list))?, Some(7));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub trait PmValue: 'static {
    /// The form that is stored.
    type View: ?Sized;
    /// The form that a read returns.
    type Owned;
    /// Words that it takes in a node.
    const WORDS: usize;

    /// The type as written in the pool. It is compared whenever a collection is opened.
    fn signature() -> String;

    /// Stores `view`. The words go to `stored`.
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    fn store(tx: &mut Tx<'_>, view: &Self::View, stored: &mut [u64]) -> TxResult<()>;

    /// Reads the value that `stored` represents.
    ///
    /// # Errors
    /// As [`Tx::read`].
    fn load(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<Self::Owned>;

    /// Stores `view` in place of the value that `stored` represents. Returns whether the words changed.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::alloc`].
    fn replace(tx: &mut Tx<'_>, view: &Self::View, stored: &mut [u64]) -> TxResult<bool> {
        Self::free(tx, stored)?;
        Self::store(tx, view, stored)?;
        Ok(true)
    }

    /// Frees the value that `stored` represents.
    ///
    /// # Errors
    /// As [`Tx::free`].
    fn free(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<()>;

    /// Objects beside its words: those that [`free`](Self::free) frees.
    ///
    /// # Errors
    /// As [`Tx::read`].
    fn objects(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<u64> {
        let _ = (tx, stored);
        Ok(0)
    }
}

/// A type of keys. Implemented for integers, byte arrays and [`Bytes`](crate::Bytes).
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::{Bytes, PmBTreeMap, PmKey};
/// use lodestone_stm::{Tx, TxResult};
///
/// /// Works for keys of any type.
/// fn is_known<K: PmKey>(tx: &mut Tx<'_>, map: &PmBTreeMap<K, u64>, key: &K::View) -> TxResult<bool> {
///     map.contains(tx, key)
/// }
///
/// let map = PmBTreeMap::<Bytes, u64>::open(&stm, "prices")?;
/// stm.update(|tx| map.insert(tx, b"lamp", &12))?;
/// assert!(stm.read(|tx| is_known(tx, &map, b"lamp"))?);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub trait PmKey: 'static {
    /// The form of a key in a lookup.
    type View: ?Sized;
    /// The form that a read returns.
    type Owned;
    /// Words that it takes in a node.
    const WORDS: usize;

    /// The type as written in the pool.
    fn signature() -> String;

    /// Stores `view`. The words go to `stored`.
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    fn store(tx: &mut Tx<'_>, view: &Self::View, stored: &mut [u64]) -> TxResult<()>;

    /// Reads the key that `stored` represents.
    ///
    /// # Errors
    /// As [`Tx::read`].
    fn load(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<Self::Owned>;

    /// Frees the key that `stored` represents.
    ///
    /// # Errors
    /// As [`Tx::free`].
    fn free(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<()>;

    /// Objects beside its words: those that [`free`](Self::free) frees.
    ///
    /// # Errors
    /// As [`Tx::read`].
    fn objects(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<u64> {
        let _ = (tx, stored);
        Ok(0)
    }

    /// Compares the stored key with `view`.
    ///
    /// # Errors
    /// As [`Tx::read`].
    fn compare(tx: &mut Tx<'_>, stored: &[u64], view: &Self::View) -> TxResult<Ordering>;

    /// Whether the stored key is `view`.
    ///
    /// # Errors
    /// As [`Tx::read`].
    fn is_equal(tx: &mut Tx<'_>, stored: &[u64], view: &Self::View) -> TxResult<bool> {
        Ok(Self::compare(tx, stored, view)? == Ordering::Equal)
    }

    /// Its hash. It is part of the format, so it never changes.
    fn hash(view: &Self::View) -> u64;

    /// The hash of a stored key.
    ///
    /// # Errors
    /// As [`Tx::read`].
    fn hash_stored(tx: &mut Tx<'_>, stored: &[u64]) -> TxResult<u64>;

    /// Stores a key above the stored key `left` and not above the stored key `right`, as short as possible.
    ///
    /// # Errors
    /// As [`Tx::read`] and [`Tx::alloc`].
    fn separator(tx: &mut Tx<'_>, left: &[u64], right: &[u64], stored: &mut [u64]) -> TxResult<()>;
}

fn store_fixed<T: IntoBytes + zerocopy::Immutable>(value: &T, stored: &mut [u64]) {
    stored.fill(0);
    stored.as_mut_bytes()[..size_of::<T>()].copy_from_slice(value.as_bytes());
}

fn load_fixed<T: FromBytes>(stored: &[u64]) -> T {
    let read = T::read_from_prefix(stored.as_bytes());
    read.map(|(value, _)| value).unwrap_or_else(|_| unreachable!("an entry has room for its type"))
}

/// The parts that values and keys of a fixed size have alike: they are their own form in the node.
macro_rules! stored_in_place {
    ($signature:expr) => {
        type View = Self;
        type Owned = Self;
        const WORDS: usize = size_of::<Self>().div_ceil(8);

        fn signature() -> String {
            $signature
        }

        fn store(_: &mut Tx<'_>, view: &Self, stored: &mut [u64]) -> TxResult<()> {
            store_fixed(view, stored);
            Ok(())
        }

        fn load(_: &mut Tx<'_>, stored: &[u64]) -> TxResult<Self> {
            Ok(load_fixed(stored))
        }

        fn free(_: &mut Tx<'_>, _: &[u64]) -> TxResult<()> {
            Ok(())
        }
    };
}

macro_rules! fixed_value {
    ($kind:ty, $signature:expr $(, $n:ident)?) => {
        impl $(<const $n: usize>)? PmValue for $kind {
            stored_in_place!($signature);
        }
    };
}

macro_rules! fixed_key {
    ($kind:ty, $signature:expr $(, $n:ident)?) => {
        fixed_value!($kind, $signature $(, $n)?);

        impl $(<const $n: usize>)? PmKey for $kind {
            stored_in_place!($signature);

            #[inline]
            fn compare(_: &mut Tx<'_>, stored: &[u64], view: &Self) -> TxResult<Ordering> {
                Ok(load_fixed::<Self>(stored).cmp(view))
            }

            fn hash(view: &Self) -> u64 {
                Hasher::of(view.as_bytes())
            }

            fn hash_stored(_: &mut Tx<'_>, stored: &[u64]) -> TxResult<u64> {
                Ok(Hasher::of(&stored.as_bytes()[..size_of::<Self>()]))
            }

            fn separator(_: &mut Tx<'_>, _: &[u64], right: &[u64], stored: &mut [u64]) -> TxResult<()> {
                stored.copy_from_slice(right);
                Ok(())
            }
        }
    };
}

macro_rules! numbers {
    ($macro:ident: $($kind:ty),+) => { $($macro!($kind, stringify!($kind).into());)+ };
}
numbers!(fixed_key: u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);
numbers!(fixed_value: f32, f64);
fixed_key!([u8; N], format!("[u8; {N}]"), N);

/// The values of a persistent object type `T`, kept in the collection by value.
///
/// ```
/// use lodestone_collections::{Plain, PmBTreeMap};
/// use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmObject};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
/// #[repr(C)]
/// struct Order {
///     customer: u64,
///     cents: u64,
/// }
/// type Orders = PmBTreeMap<u64, Plain<Order>>;
/// ```
#[derive(Debug)]
pub struct Plain<T>(PhantomData<T>);

impl<T: PmObject> PmValue for Plain<T> {
    type View = T;
    type Owned = T;
    const WORDS: usize = size_of::<T>().div_ceil(8);

    fn signature() -> String {
        format!("{} version {} [{}]", T::NAME, T::VERSION, Layout::of::<T>())
    }

    fn store(_: &mut Tx<'_>, view: &T, stored: &mut [u64]) -> TxResult<()> {
        store_fixed(view, stored);
        Ok(())
    }

    fn load(_: &mut Tx<'_>, stored: &[u64]) -> TxResult<T> {
        let read = T::try_read_from_prefix(stored.as_bytes());
        read.map(|(value, _)| value).map_err(|_| damaged(PmAddr::NULL, "a value whose bytes are none of its type"))
    }

    fn free(_: &mut Tx<'_>, _: &[u64]) -> TxResult<()> {
        Ok(())
    }
}
