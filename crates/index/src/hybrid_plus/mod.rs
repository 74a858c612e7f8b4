//! HybridPlus: a FAST & FAIR tree in persistent memory, and a hash of the same pairs in DRAM (paper 2, section 3.1:
//! HybridIndex+).
//!
//! *Roles.* The tree is the index: it alone is on the medium, ranges read it, and it can be used at once after a crash.
//! The hash saves point reads the way to the medium: a read of a `u64` key touches one line of DRAM in most cases.
//!
//! *One truth.* Every operation takes effect where it takes effect in the tree. A change makes its key's stripe of the
//! hash busy, changes the tree, then the hash, and frees the stripe. A point read is answered from the hash only if its
//! stripe was free and unchanged all the while. Then each entry was what the tree held at that moment. Otherwise the
//! tree is asked. So a range that showed a new value cannot be followed by a point read of the old one. When the tree
//! showed the new value the stripe was busy, and it becomes free only after the hash's change.
//!
//! *A miss* in the hash means "not there" only once its stripe is *complete*: every pair that was in the tree when the
//! index was opened has been filled in. Until then a miss asks the tree. That is also why a crash between the two
//! changes does no harm.
//!
//! *The rebuild* goes through the tree by ranges of keys. Before it reads a batch it notes how many changes each stripe
//! has completed. It fills a pair in under the stripe's lock, and only if that number is still the same. Otherwise the
//! pair may be out of date (a key that is removed meanwhile would come back for ever), and the tree is asked again,
//! under the lock. A pair that is already in the hash is newer. When all ranges are done, every key of the tree is in
//! the hash: it was filled in, or put there by its last change.
//!
//! *Durability* is the tree's. With `Durability::Sync` a change waits for it while its stripe is busy, so the hash
//! returns only data that would survive. In the block domain, where that is a wait for a device, changes of one stripe
//! queue up.
//!
//! *Failures.* If the tree reports an error, its value for the key is read again. If that fails too, or a panic comes
//! between the two changes, the stripe forgets all entries and is never complete again. Then the tree answers, and
//! reports the damage.
//!
//! *Costs.* A change costs the tree's change, one exchange for the stripe's lock, and the key's line of the hash, which
//! is requested before the tree is changed. A change that has nothing to do goes to the tree as well. The exception: if
//! the last change of its stripe had nothing to do either, it looks in DRAM first. DRAM per `u64` key: 18 to 37 bytes,
//! for a string its own bytes and about 40; [`HybridPlus::stats`] counts. Space that removals free is used again, and
//! released when the index is closed.
//!
//! The medium holds only the tree: an index can be opened as [`FastFair`](crate::FastFair) and the other way round.
//!
//! Files: `grown` (arrays), `keys` (copies of strings), `stripe` (hash and versions), `index` (operations), `rebuild`.

mod grown;
mod index;
mod keys;
mod rebuild;
mod stripe;

pub use index::{HybridPlus, HybridPlusOptions, HybridPlusStats, WarmUp};
