//! A hash index in persistent memory that never rehashes as a whole.
//!
//! *Shape.* A directory of nodes names segments of 16 KiB by the upper bits of a key's hash. A segment is a table of
//! cell lines (see `cells`) whose lower hash bits name a key's home line. The shape follows two published indexes. From
//! CCEH come segments below a directory, chosen by upper bits, so that one segment's entries are neighbours. From Dash
//! come buckets of a media block, a stash, and versions for readers. `docs/DEVIATIONS.md` argues three differences:
//! pairs publish in one line, the directory is a tree of small nodes that deepens instead of an array that doubles, and
//! no lock is on the medium.
//!
//! *Cost.* An insert, an update or a removal of a `u64` key flushes one line and fences once. (It does so twice when a
//! key leaves its full home line for a new level, about once per line.) A byte-string key adds one heap action to
//! insert and remove. A lookup reads one line in most cases, even of an absent key.
//!
//! *Structure changes.* A segment without room is split into two new ones:
//! 1. Its buckets are frozen; readers continue.
//! 2. Both halves are built in DRAM and written.
//! 3. One heap action allocates them, sets the directory's entries and frees the old segment.
//! 4. The old segment's locks die, and threads that wait on them search again.
//!
//! Other segments are not touched. Two neighbours that removals emptied to a quarter become one in the same way. A
//! crash leaves the segments before or after.
//!
//! *Recovery.* The hash needs none; the heap's is bounded by its lanes. Opening reads one header. Nodes and segment
//! headers are read when a search first needs them, so the time to the first answer does not depend on the number of
//! keys.
//!
//! *Visibility.* A reader waits while a writer holds its key's bucket, and a writer releases it after its fence. So no
//! reader sees a change that a crash could still take back (in the block domain an answer also waits for the commit
//! group).
//!
//! Files: `layout` (bytes), `directory` (DRAM), `map` (operations), `structure` (split, merge), `open`, `walk` (going
//! through all pairs), `check`.

mod check;
mod directory;
pub(crate) mod layout;
mod map;
mod open;
mod structure;
mod walk;

pub use check::HashStats;
pub use map::HashIndex;
pub use open::HashOptions;
