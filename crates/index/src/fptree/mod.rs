//! FpTree: leaves in persistent memory, everything above them in DRAM.
//!
//! It follows FPTree (Oukid et al., SIGMOD 2016), which paper 2 puts behind its cache: unsorted leaves with
//! fingerprints and a bitmap on the medium, inner nodes in DRAM and rebuilt on open, locks in DRAM only. Two things are
//! different, and `docs/DEVIATIONS.md` argues them. *Fingerprints and bitmap stand in the line of the pairs they speak
//! of* (see `cells`), so that an insert flushes one line and fences once, where FPTree's leaf takes three of each; a
//! key's hash names its home line inside the leaf, so a lookup reads one line of the leaf in most cases. *There is no
//! split log*: a split and a merge are one action of the heap each.
//!
//! What it shares with [`OrderedMap`](crate::OrderedMap): the chain of leaves with fixed lower
//! bounds, the heap's actions. Why both: the map holds values of any length in records of their own, so each change is
//! an action; here a `u64` key with its value is changed in place of one line, a quarter of the fences.
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
