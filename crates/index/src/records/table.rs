//! The intents of a map over an index, byte for byte; `docs/format.md` draws the same table.
//!
//! ```text
//! one line per stripe:  0 new: checked address    8 old: checked address    16 stripes: checked word    24 zero
//! ```
//!
//! The stripes say which line a key belongs to. They are in the anchor and in each line, and both must agree.
//!
//! Both words change by one action of the heap; a line each, so that stripes do not share one. An intent that owns no
//! record is let go by a store that need not last.

use lodestone_heap::Action;
use lodestone_pmem::{LINE_BYTES, Memory, PmAddr, WORD_BYTES, checked, planted};
use lodestone_width::{to_u64, to_usize};

use crate::error::Result;
use crate::layout::RecordHead;
use crate::medium::IndexMemory;

/// Most stripes of a map.
pub(crate) const INTENTS_MAX: usize = 1024;

/// Bytes of the table of so many intents.
pub(crate) fn intent_bytes(count: usize) -> u64 {
    to_u64(count) * LINE_BYTES
}

/// Writes a table without an intent at the reserved place `at` and starts its write-back; the action that publishes it
/// fences first.
pub(crate) fn write_empty(memory: &Memory, at: PmAddr, count: usize) {
    let mut bytes = Vec::with_capacity(count * to_usize(LINE_BYTES));
    for number in 0..count {
        let intent = IntentAt::new(at, number, count);
        let end = bytes.len() + to_usize(LINE_BYTES);
        for word in [intent.new_word(), intent.old_word()] {
            bytes.extend_from_slice(&checked::encode_addr(word, PmAddr::NULL).to_le_bytes());
        }
        bytes.extend_from_slice(&checked::encode(intent.stripes_word(), to_u64(count)).to_le_bytes());
        bytes.resize(end, 0);
    }
    memory.write_back(at, &bytes);
}

/// The content of an intent: the record that the key is to have, and the former one; null for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) new: PmAddr,
    pub(crate) old: PmAddr,
}

impl Intent {
    /// No change under way.
    pub(crate) const NONE: Self = Self { new: PmAddr::NULL, old: PmAddr::NULL };
}

/// Place of an intent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IntentAt {
    at: PmAddr,
    /// Stripes of the map, as its anchor says.
    stripes: usize,
}

impl IntentAt {
    pub(crate) fn new(table: PmAddr, number: usize, stripes: usize) -> Self {
        Self { at: table.plus(to_u64(number) * LINE_BYTES), stripes }
    }

    pub(crate) fn at(self) -> PmAddr {
        self.at
    }

    fn new_word(self) -> PmAddr {
        self.at
    }

    fn old_word(self) -> PmAddr {
        self.at.plus(WORD_BYTES)
    }

    fn stripes_word(self) -> PmAddr {
        self.at.plus(2 * WORD_BYTES)
    }

    /// Compares the anchor's stripes with those of this line. A line that does not verify is left to
    /// [`load`](Self::load).
    pub(super) fn compare_stripes(self, medium: IndexMemory<'_>) -> Result<()> {
        let word = self.stripes_word();
        match checked::decode(word, medium.memory.load(word)) {
            Some(here) if here != to_u64(self.stripes) => {
                let finding = format!("stripes: {here} here, {} in the anchor", self.stripes);
                Err(medium.damaged(word, "intent of a map", finding))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn load(self, medium: IndexMemory<'_>) -> Result<Intent> {
        medium.word(self.stripes_word(), "stripes of an intent")?;
        self.compare_stripes(medium)?;
        let new = medium.link(self.new_word(), "new record of an intent", RecordHead::BYTES)?;
        let old = medium.link(self.old_word(), "old record of an intent", RecordHead::BYTES)?;
        Ok(Intent { new, old })
    }

    /// Notes in `action` both words, whatever stood there: the medium may still have an intent that was let go.
    pub(crate) fn set(self, action: &mut Action<'_>, to: Intent) {
        if !(planted::active("records-intent-half-set") && to.new.is_null()) {
            action.set(self.new_word(), checked::encode_addr(self.new_word(), to.new));
        }
        action.set(self.old_word(), checked::encode_addr(self.old_word(), to.old));
    }

    /// Lets go of an intent that owns no record.
    pub(crate) fn let_go(self, memory: &Memory, from: Intent) {
        let word = if from.new.is_null() { self.old_word() } else { self.new_word() };
        // Not flushed: recovery would find that the index has the record, and nothing to free; and the next change of
        // the stripe, the first that may free it, sets both words.
        memory.store(word, checked::encode_addr(word, PmAddr::NULL));
    }
}
