//! The crash explorer's work on every structure of Lodestone: the proof, outside the product.
//!
//! The explorer itself is `lodestone-crash`. This crate holds its input, one module per floor:
//!
//! | module | structure |
//! | --- | --- |
//! | [`heap`] | actions of the allocator |
//! | [`wal`] | logs: records, segments, pieces, truncation |
//! | [`pages`] | rows that are added to an image in place |
//! | [`store`] | names: create, rename, drop |
//! | [`engine`] | tables: commits, deletions, lives |
//! | [`fabric`] | rings of senders, logs of members |
//! | [`index`] | the ordered map and every index, random programs as well |
//! | [`stm`] | transactions over typed objects |
//! | [`tl2`] | the logged baselines that `bench stm` compares with |
//! | [`fs`] | volumes of files: names, content, batches of the image |
//! | [`registry`] | keepers: what they told, and their votes |
//! | [`collections`] | maps, lists and queues that change in one transaction |
//!
//! A module has three parts:
//! - a *structure* with its oracle: a plain model, and the demands on recovery;
//! - *targets*: scripts on the structure, small enough to be exhausted;
//! - *bugs*: mistakes that a target must find.
//!
//! The pool's own targets are in `lodestone-crash`, which depends on nothing above the pool.
//!
//! A bug is one line at its site, `planted::active("name")`, and is described here. One that only leaves out a flush or
//! fence has no line there: the comment above the call names it ([`lodestone_crash::planted::Bug::without`]). A flush
//! or fence can be excused from the mutation audit for a reason. Its file and its number there name it.
//!
//! **A target for a new structure**: implement [`lodestone_crash::Structure`], add a module beside these, and add one
//! line to [`floors`]. `lodestone crash run`, the tests here and the guided run then find it.

pub mod collections;
pub mod engine;
pub mod fabric;
pub mod fs;
pub mod heap;
pub mod index;
pub mod pages;
pub mod registry;
pub mod stm;
pub mod store;
pub mod tl2;
pub mod wal;

use lodestone_crash::{Target, pool_targets};

/// The targets of one floor.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    /// The name for all its targets on the command line.
    pub name: &'static str,
    /// Makes its targets.
    pub targets: fn() -> Vec<Box<dyn Target>>,
}

/// The floors, from the ground up.
///
/// ```
/// let names: Vec<&str> = lodestone_proof::floors().iter().map(|floor| floor.name).collect();
/// assert_eq!(names[..6], ["pool", "heap", "wal", "pages", "store", "index"]);
/// assert_eq!(names[6..], ["stm", "tl2", "collections", "engine", "fabric", "registry", "fs"]);
/// ```
#[must_use]
pub fn floors() -> Vec<Floor> {
    vec![
        Floor { name: "pool", targets: pool_targets },
        Floor { name: "heap", targets: heap::heap_targets },
        Floor { name: "wal", targets: wal::targets },
        Floor { name: "pages", targets: pages::targets },
        Floor { name: "store", targets: store::targets },
        Floor { name: "index", targets: index::targets },
        Floor { name: "stm", targets: stm::targets },
        Floor { name: "tl2", targets: tl2::targets },
        Floor { name: "collections", targets: collections::targets },
        Floor { name: "engine", targets: engine::targets },
        Floor { name: "fabric", targets: fabric::targets },
        Floor { name: "registry", targets: registry::targets },
        Floor { name: "fs", targets: fs::targets },
    ]
}
