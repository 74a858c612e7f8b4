//! Entries of equal size after the mark of a node: the common part of leaves, inner nodes and pages.
//!
//! ```text
//! word 0      low 16 bits: number of entries; 16 to 23 belong to the collection; the rest to the mark
//! word 1      owner (`mark`)
//! word 2 ..   entries, without gaps
//! ```

use lodestone_stm::{PmAddr, TxResult};
use lodestone_width::{to_u64, to_usize};

use crate::damaged;
use crate::words::Words;

/// Words before the first entry.
pub const HEAD_WORDS: usize = 2;
const COUNT_MASK: u64 = 0xFFFF;

/// A node without entries.
pub fn empty<const N: usize>(mark: [u64; HEAD_WORDS]) -> Words<N> {
    let mut node = Words([0; N]);
    node.0[..HEAD_WORDS].copy_from_slice(&mark);
    node
}

/// Entries that a node of `words` words has room for.
pub const fn room(words: usize, entry_words: usize) -> usize {
    (words - HEAD_WORDS) / entry_words
}

/// Number of entries.
pub fn count(node: &[u64]) -> usize {
    to_usize(node[0] & COUNT_MASK)
}

/// Number of entries. An error when the node has no room for so many.
pub fn checked_count(node: &[u64], entry_words: usize, at: PmAddr) -> TxResult<usize> {
    let count = count(node);
    if count <= room(node.len(), entry_words) {
        Ok(count)
    } else {
        Err(damaged(at, "a node with more entries than it has room for"))
    }
}

fn set_count(node: &mut [u64], count: usize) {
    node[0] = node[0] & !COUNT_MASK | to_u64(count);
}

/// Entry `index`.
#[inline]
pub fn entry(node: &[u64], words: usize, index: usize) -> &[u64] {
    &node[HEAD_WORDS + index * words..][..words]
}

/// Entry `index`, for a change.
pub fn entry_mut(node: &mut [u64], words: usize, index: usize) -> &mut [u64] {
    &mut node[HEAD_WORDS + index * words..][..words]
}

/// The finding when an entry has no place: its index is beyond the entries, or the node has no room.
const NO_PLACE: &str = "a node whose entries changed under way: two places of the collection lead to it";

/// Inserts `new` as entry `index`.
pub fn insert(node: &mut [u64], index: usize, new: &[u64]) -> TxResult<()> {
    let (words, count) = (new.len(), count(node));
    if index > count || count >= room(node.len(), words) {
        return Err(damaged(PmAddr::NULL, NO_PLACE));
    }
    let at = HEAD_WORDS + index * words;
    node.copy_within(at..HEAD_WORDS + count * words, at + words);
    node[at..at + words].copy_from_slice(new);
    set_count(node, count + 1);
    Ok(())
}

/// Removes entry `index`.
pub fn remove(node: &mut [u64], words: usize, index: usize) -> TxResult<()> {
    let count = count(node);
    if index >= count || count > room(node.len(), words) {
        return Err(damaged(PmAddr::NULL, NO_PLACE));
    }
    let (at, end) = (HEAD_WORDS + index * words, HEAD_WORDS + count * words);
    node.copy_within(at + words..end, at);
    node[end - words..end].fill(0);
    set_count(node, count - 1);
    Ok(())
}

/// Moves the entries from `index` on to the empty node `target`.
pub fn split_off(node: &mut [u64], words: usize, index: usize, target: &mut [u64]) -> TxResult<()> {
    let count = count(node);
    if index > count || count > room(node.len(), words) || count - index > room(target.len(), words) {
        return Err(damaged(PmAddr::NULL, NO_PLACE));
    }
    let (at, end) = (HEAD_WORDS + index * words, HEAD_WORDS + count * words);
    target[HEAD_WORDS..][..end - at].copy_from_slice(&node[at..end]);
    node[at..end].fill(0);
    set_count(target, count - index);
    set_count(node, index);
    Ok(())
}

/// Appends all entries of `source`.
pub fn append(node: &mut [u64], words: usize, source: &[u64]) -> TxResult<()> {
    let (own, more) = (count(node), count(source));
    if own + more > room(node.len(), words) || more > room(source.len(), words) {
        return Err(damaged(PmAddr::NULL, NO_PLACE));
    }
    node[HEAD_WORDS + own * words..][..more * words].copy_from_slice(&source[HEAD_WORDS..][..more * words]);
    set_count(node, own + more);
    Ok(())
}
