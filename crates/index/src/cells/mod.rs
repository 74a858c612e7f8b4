//! Lines that publish themselves: the hash index and the leaves of [`FpTree`](crate::FpTree) consist of them.
//!
//! A *cell line* is one cache line with room for three pairs: a header word, three keys and four value cells. A pair is
//! written into a free key and a free value cell, then the header word that names both is stored. Stores to one line
//! persist in program order, so the header never overtakes the pair: an insert, an update and a removal of a `u64` key
//! each take **one flushed line and one fence**, whatever crashes. An update writes the fourth, free value cell and
//! renames it in the header, so no acknowledged value is ever overwritten in place, and the checks of header and pairs
//! stay true at every moment.
//!
//! Files: `line` (bytes of a line), `table` (where a key's lines are), `probe` (finding a key), `change` (changing a
//! table under its lock), `image` (a table built or rebuilt in DRAM), `key` (what a key word holds), `wish` (what a
//! change is to do), `lock` (versions in DRAM that let readers pass), `verify`.

mod arena;
mod change;
mod image;
mod key;
mod line;
mod lock;
mod probe;
mod table;
mod verify;
mod wish;

pub(crate) use arena::Arena;
pub(crate) use change::{Attempt, Site, change_pair, insert_pair, key_word, lock_on_medium};
pub(crate) use image::{Image, Pair, pairs_of};
pub(crate) use key::{KeyKind, KeyRef, record_at, with_key};
pub(crate) use line::LineAt;
pub(crate) use lock::{Stamp, Turn, VersionLock};
pub(crate) use probe::{Found, find, header, home_level, pair, settle};
pub(crate) use table::{Level, Shape, TableAt};
pub(crate) use verify::check_table;
pub(crate) use wish::{Wish, changeable, swap_of};
