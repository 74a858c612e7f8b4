//! A hash index in persistent memory that never rehashes as a whole.
//!
//! *Structure.* A directory of nodes names segments of 16 KiB by the upper bits of a key's hash; a segment is a table
//! of cell lines (see `cells`) whose lower hash bits name a key's home line. It follows CCEH (segments below a
//! directory, upper bits above, so that one segment's entries are neighbours) and Dash (buckets of a media block, a
//! stash, versions for readers), with three differences that `docs/DEVIATIONS.md` argues: pairs publish in one line,
//! the directory is a tree of small nodes that deepens instead of an array that doubles, and nothing is locked on the
//! medium.
//!
//! *Cost.* An insert, an update or a removal of a `u64` key flushes one line and fences once (twice when a key leaves
//! its full home line for a new level, about once per line). A byte-string key adds one heap action to insert and
//! remove. A lookup reads one line in most cases, of an absent key too.
//!
//! *Structure changes.* A segment without room is split into two new ones: 1. its buckets are frozen, readers go on; 2.
//! both halves are built in DRAM and written; 3. one heap action allocates them, sets the directory's entries and frees
//! the old segment; 4. the old segment's locks die, and who waits on them looks again. Other segments are not touched.
//! Two neighbours that removals emptied to a quarter become one in the same way. A crash leaves the segments before or
//! after.
//!
//! *Recovery.* None of its own: the heap's is bounded by its lanes. Opening reads two headers; nodes and other segment
//! headers are read when a search first needs them, so the time to the first answer does not depend on the number of
//! keys.
//!
//! *Shape.* The anchor says how nodes and segments are read, and each segment's sealed header says it again. A segment
//! whose header says something else is refused, so an anchor whose checksum fits is not believed alone.
//!
//! *Visibility.* A reader waits while a writer holds its key's bucket, and a writer lets go after its fence: no thread
//! sees what a crash could still take back (in the block domain an answer also waits for the commit group).
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
