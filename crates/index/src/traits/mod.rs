//! The operations of every index, whatever its structure. Structures implement these traits, wrappers (a cache, a
//! hybrid of two structures) compose them, and one conformance suite tests them.
//!
//! 1. [`PointIndex`]: operations on one key. Each is atomic: it takes effect at one moment between call and return.
//! 2. [`OrderedIndex`]: reading in order of the keys, and loading sorted input.
//! 3. [`OpenIndex`]: making one in a heap and opening it again, so that tests, benchmarks and tools are generic too.
//! 4. [`IndexKey`]: the type of a key: a `u64`, or a string of bytes.
//!
//! Values are one word: a number, or the address of data that the caller stores elsewhere.
//!
//! Everything is generic and compiled for each structure; a wrapper is `struct Cached<I: PointIndex>` that implements
//! [`PointIndex`] again. There is no trait object, because a call through one costs as much as a cached lookup.
//!
//! **Durability** is chosen when an index is opened ([`Durability`](crate::Durability)). With `Sync` a change would
//! survive power loss before the call returns, and a read returns only data that would. With `Relaxed` a change is
//! ordered (a crash loses it only together with everything after it), and [`PointIndex::sync`] waits. The choice is an
//! argument of [`OpenIndex::open_index`].
//!
//! Why the value is not a byte string as in [`OrderedMap`](crate::OrderedMap): compare-and-swap and failure-atomic
//! update want one word, and the published structures that are compared here store one. A byte string is one
//! indirection away.

mod key;
mod ordered;
mod ordered_map;
mod point;
mod range;

pub use key::IndexKey;
pub use ordered::OrderedIndex;
pub use point::{OpenIndex, PointIndex, Swap};
pub use range::Range;
