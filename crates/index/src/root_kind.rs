//! The kinds of roots that this crate makes: their names, for messages about a root that holds something else, and which of them stand for nothing.

use lodestone_pmem::{PmAddr, Pool};

use crate::anchor::{self, AnchorKind};
use crate::error::Result;
use crate::medium::Medium;
use crate::{fastfair, fptree, hash, layout, open, records, skiplist};

/// Every kind of anchor, and what has one.
const ANCHORS: [(&AnchorKind, &str); 7] = [
    (&fastfair::KIND_WORDS, "a FAST & FAIR tree with words as keys"),
    (&fastfair::KIND_STRINGS, "a FAST & FAIR tree with strings as keys"),
    (&fptree::layout::TREE_ANCHOR, "an FPTree"),
    (&skiplist::KIND_WORDS, "a skip list with words as keys"),
    (&skiplist::KIND_STRINGS, "a skip list with strings as keys"),
    (&hash::layout::HASH_ANCHOR, "a hash index"),
    (&records::KIND, "a map over an index"),
];

/// What a root of this kind holds. One whose creation a crash cut short is called as one that is finished.
pub(crate) fn name_of(kind: u32) -> String {
    let found = ANCHORS.into_iter().find(|(anchor, _)| [anchor.live, anchor.pending].contains(&kind));
    match found {
        Some((_, name)) => name.to_owned(),
        None if [layout::KIND_LIVE, layout::KIND_PENDING].contains(&kind) => "an ordered map".to_owned(),
        None => format!("an object of kind {kind:#010x}, which is no index"),
    }
}

/// Whether the root `name`, of this kind and naming `at`, stands for nothing: a crash cut short what it was set for, before anything was allocated.
pub(crate) fn is_unmade(medium: Medium<'_>, name: &str, kind: u32, at: PmAddr) -> bool {
    if kind == layout::KIND_PENDING {
        return !open::is_published(medium, name, at);
    }
    let found = ANCHORS.into_iter().find(|(anchor, _)| anchor.pending == kind);
    found.is_some_and(|(kind, _)| !anchor::is_published(medium, kind, name, at))
}

/// Whether nothing stands under the root `name`: there is no such root, or it was left by the creation of an index or map that a crash cut short.
/// Whatever is created under that name next takes its place.
///
/// ```
/// use lodestone_heap::{Heap, HeapOptions};
/// use lodestone_index::{Durability, FastFair, OpenIndex, is_root_unmade};
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
///
/// let folder = tempfile::tempdir()?;
/// let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// let pool = Pool::create(folder.path().join("a.pool"), &options)?;
/// let heap = Heap::open(&pool, &HeapOptions::default())?;
/// assert!(is_root_unmade(&pool, "numbers")?);
/// drop(FastFair::<u64>::open_index(&heap, "numbers", &Default::default(), Durability::Sync)?);
/// assert!(!is_root_unmade(&pool, "numbers")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Pool`](crate::Error::Pool) when the table of roots cannot be read.
pub fn is_root_unmade(pool: &Pool, name: &str) -> Result<bool> {
    let medium = Medium { memory: pool.memory(), path: pool.path() };
    Ok(pool.root(name)?.is_none_or(|(kind, at)| is_unmade(medium, name, kind, at)))
}

/// Lets the root `name`, and that of an index below it, begin to be made anew, whatever it named.
#[cfg(feature = "explore")]
pub(crate) fn begin_anew(pool: &lodestone_pmem::Pool, name: &str) -> lodestone_pmem::Result<()> {
    for name in [name, &records::index_root_of(name)] {
        let Some((kind, _)) = pool.root(name)? else { continue };
        let found = ANCHORS.into_iter().find(|(anchor, _)| anchor.live == kind);
        let pending = found.map_or(layout::KIND_PENDING, |(anchor, _)| anchor.pending);
        pool.set_root(name, pending, lodestone_pmem::PmAddr::NULL)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own() {
        let kinds = [
            layout::KIND_LIVE,
            fastfair::KIND_WORDS.live,
            fastfair::KIND_STRINGS.live,
            fptree::layout::TREE_ANCHOR.live,
            skiplist::KIND_WORDS.live,
            skiplist::KIND_STRINGS.live,
            hash::layout::HASH_ANCHOR.live,
            records::KIND.live,
            0x5858_5858,
        ];
        let names: std::collections::BTreeSet<String> = kinds.into_iter().map(name_of).collect();
        assert_eq!(names.len(), kinds.len(), "{names:?}");
        assert_eq!(name_of(fptree::layout::TREE_ANCHOR.pending), "an FPTree");
    }
}
