//! The repair by an open for writing.

use lodestone_pmem::{PmAddr, PmPtr, checked, planted};
use lodestone_txn::copies;
use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::layout::{ExtentLine, Summary, head_lines, links};
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
        for &page in &self.summaries_damaged {
            // A page that is damaged, too, is named by the list of images.
            if let Ok((head, low)) = self.head(page, self.spans[to_usize(page)].born) {
                let at = self.summary(page);
                memory.put(PmPtr::new(at), &Summary::new(&head, &low));
                // As above.
                memory.flush(at, to_u64(size_of::<Summary>()));
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
