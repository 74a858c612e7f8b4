//! The repair by an open for writing.

use lodestone_pmem::{PmAddr, checked, planted};
use lodestone_txn::copies;
use lodestone_width::exact_u32;

use crate::layout::{ExtentLine, head_lines, links};
use crate::pages::Pages;

impl Pages {
    /// Makes the medium equal to the state that was read. Flushed, not fenced: the fence of a batch comes before the
    /// block that makes it count, and the next batch has the number of one whose traces are erased here.
    pub(crate) fn heal(&mut self) {
        let memory = self.heap.memory();
        copies::heal(memory, head_lines(self.places.directory), &self.line);
        for (number, at) in self.extents.iter().enumerate() {
            copies::heal(memory, head_lines(*at), &ExtentLine::new(exact_u32(number)));
        }
        let nodes = std::iter::once(self.places.directory).chain(self.extents.iter().copied());
        let nexts = self.extents.iter().copied().chain(std::iter::once(PmAddr::NULL));
        for (node, next) in nodes.zip(nexts) {
            for place in links(node) {
                self.mend(place, checked::encode_addr(place, next));
            }
        }
        if !planted::active("pages-unpublished-kept") {
            for (page, span) in (0..).zip(&self.spans) {
                let [born, died] = self.words(page);
                self.mend(born, checked::encode(born, span.born));
                self.mend(died, checked::encode(died, span.died));
            }
        }
    }

    fn mend(&self, place: PmAddr, word: u64) {
        if self.memory().load(place) != word {
            self.memory().store(place, word);
            // Before the fence of the next batch.
            self.memory().flush(place, 8);
        }
    }
}
