//! FpTree: leaves in persistent memory, everything above them in DRAM.
//!
//! It follows FPTree (Oukid et al., SIGMOD 2016), which paper 2 combines with its cache. It has unsorted leaves with
//! fingerprints and a bitmap on the medium, inner nodes in DRAM that are rebuilt on open, and locks in DRAM only.
//! `docs/DEVIATIONS.md` argues two differences. *Fingerprints and bitmap are in the line of their pairs* (see `cells`),
//! so that an insert flushes one line and fences once, where FPTree's leaf takes three of each. A key's hash names its
//! home line inside the leaf, so a lookup reads one line of the leaf in most cases. *There is no split log*: a split
//! and a merge are one action of the heap each.
//!
//! It shares two parts with [`OrderedMap`](crate::OrderedMap): the chain of leaves with fixed lower bounds, and the
//! heap's actions. Why both: the map holds values of any length in separate records, so each change is an action. Here
//! a `u64` key with its value is changed in place of one line, a quarter of the fences.
//!
//! *Recovery.* The heap's, bounded by its lanes; then one visit per leaf, which reads its frame (one line of about 24),
//! by several threads where there are many.
//!
//! Files: `layout` (bytes), `leaf` (as DRAM sees it), `tree` (operations), `structure` (split, merge), `scan`, `open`,
//! `rebuild` (the chain, by several threads), `bulk` (sorted input), `check`.

mod bulk;
mod check;
pub(crate) mod layout;
mod leaf;
mod open;
mod rebuild;
mod scan;
mod structure;
mod tree;

pub use open::TreeOptions;
pub use tree::FpTree;
