//! The kinds of roots that this crate makes, by name: for messages about a root that holds something else.

use crate::{fastfair, fptree, hash, layout, records, skiplist};

/// What a root of this kind holds. One whose creation a crash cut short is called as one that is finished.
pub(crate) fn name_of(kind: u32) -> String {
    let anchors = [
        (&fastfair::KIND_WORDS, "a FAST & FAIR tree with words as keys"),
        (&fastfair::KIND_STRINGS, "a FAST & FAIR tree with strings as keys"),
        (&fptree::layout::TREE_ANCHOR, "an FPTree"),
        (&skiplist::KIND_WORDS, "a skip list with words as keys"),
        (&skiplist::KIND_STRINGS, "a skip list with strings as keys"),
        (&hash::layout::HASH_ANCHOR, "a hash index"),
        (&records::KIND, "a map over an index"),
    ];
    let found = anchors.into_iter().find(|(anchor, _)| [anchor.live, anchor.pending].contains(&kind));
    match found {
        Some((_, name)) => name.to_owned(),
        None if [layout::KIND_LIVE, layout::KIND_PENDING].contains(&kind) => "an ordered map".to_owned(),
        None => format!("an object of kind {kind:#010x}, which is no index"),
    }
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
