//! The orders that paper 1 prints, where ours differ. Tests switch them on one at a time to show what each breaks.
//!
//! Every function implements one rule of the read and commit protocol. In a build without the feature `planted-bugs`
//! the switches are constants, and only the rule remains. The names are those of `docs/DEVIATIONS.md`.

use lodestone_pmem::{PmAddr, planted};
use lodestone_txn::{SLOT_HEADER_WORDS, SlotHeader, StartClocks, State, VersionWord, Which};
use lodestone_width::to_u64;

use crate::context::Context;
use crate::core::Core;
use lodestone_cells::Shape;

/// Whether the published order `id` is switched on.
#[inline(always)]
pub fn on(id: &str) -> bool {
    planted::active(id)
}

/// Whether a switch changes reads, so that all of them take the long way.
#[inline(always)]
pub fn reads() -> bool {
    on("stm-s1")
}

/// Whether read-only transactions note their reads from the beginning, as the paper's do.
#[inline(always)]
pub fn notes() -> bool {
    on("stm-s3") || on("stm-s5") || on("stm-s6") || on("stm-s8") || on("stm-s13")
}

/// Whether the newest version of an object with this word may be read: unless it is being committed.
#[inline]
pub fn may_read(word: VersionWord) -> bool {
    if on("stm-s1") {
        // Algorithm 2 as printed: `lock != new`, with lock 0 = free, 1 = slot 0 is written, 2 = slot 1 is written.
        let lock = if word.state() == State::Committing { 1 + word.slot().other().index() } else { 0 };
        return lock != word.slot().index();
    }
    // S4, S6, S7: only the slot that is being written is locked; the other may be read meanwhile.
    word.state() != State::Committing || on("stm-s4") || on("stm-s6") || on("stm-s7") || on("stm-s10")
}

/// S2: Algorithm 2, lines 10 to 20: a read-only transaction runs off the end without a value and without an abort.
#[inline]
pub fn falls_off(_: VersionWord) -> bool {
    on("stm-s2")
}

/// Whether a second look at a word says that nothing happened: only when it is the same.
#[inline(always)]
pub fn same(again: VersionWord, word: VersionWord) -> bool {
    if on("stm-aba") {
        return again.state() == word.state() && again.slot() == word.slot();
    }
    again == word || (on("stm-s4") || on("stm-s6") || on("stm-s7") || on("stm-s10")) && again.same_version(word)
}

/// Whether a value read under `seen` is still valid when the word is `now`: only when it is the same. `own` says that
/// the object is being opened for writing.
#[inline]
pub fn valid(now: VersionWord, seen: VersionWord, own: bool, known: &StartClocks) -> bool {
    now == seen
        || on("stm-s6") && now.same_version(seen)
        // The read set holds addresses only. A version is valid when its timestamp is known by now.
        || on("stm-s8") && now.is_live() && known.covers(now)
        // "Updated data need not be validated."
        || on("stm-s9") && own
}

/// Whether a commit accepts a value that it read while another transaction commits that object.
#[inline]
pub fn accepts_foreign_locks() -> bool {
    on("stm-s6") || on("stm-s7") || on("stm-s10")
}

/// S3, S5, S13: a read-only transaction whose newest version is too new takes the older one. Returns whether it did.
pub fn falls_back(core: &Core, context: &Context, word: VersionWord, at: PmAddr, shape: Shape, out: &mut [u8]) -> bool {
    if !(on("stm-s3") || on("stm-s5") || on("stm-s13")) {
        return false;
    }
    let slot = shape.slot_at(at, word.slot().other());
    let header = SlotHeader::decode(core.memory.load(slot), core.memory.load(slot.plus(8)));
    let old = VersionWord::new(header.tick, header.writer, Which::First, State::Live);
    let known = header.tick <= core.timeline.base() || context.known.covers(old);
    // An object with one version: its other slot has timestamp 0, which every thread knows.
    let is_written = header.tick.0 != 0 || on("stm-s13");
    if known && is_written {
        core.memory.read(slot.plus(to_u64(SLOT_HEADER_WORDS) * 8), out);
    }
    known && is_written
}
