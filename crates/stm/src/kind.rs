//! The object kind of a transactional memory, for the store's registry.

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;
use lodestone_store::{Acknowledge, Contents, Flaw, Kind, KindCode, KindError, Member, Object, Records};

use crate::check::ObjectsReport;
use crate::format;
use crate::options::StmOptions;
use crate::stm::Stm;

/// The kind of a transactional memory. It has no records. The crate of collections has a kind with the same code that
/// reads the collections in the memory.
pub static MEMORY: Memory = Memory;

/// See [`MEMORY`].
#[derive(Debug)]
pub struct Memory;

impl Kind for Memory {
    fn code(&self) -> KindCode {
        KindCode(*b"LSTM")
    }

    fn title(&self) -> &'static str {
        "a transactional memory"
    }

    fn examine(&self, object: Object) -> Result<Contents, KindError> {
        Ok(contents_of(Stm::open_object(object, &StmOptions::default())?.check_all()))
    }

    fn members(&self, object: Object) -> Result<Vec<Member>, KindError> {
        let roots = Stm::open_object(object, &StmOptions::default())?.roots()?;
        Ok(roots.into_iter().map(|(name, what)| Member { name, what }).collect())
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        format::read(heap, at).is_ok()
    }

    fn records(&self, object: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
        Err(format!("`{}` holds objects of any types, which only the program that made them can show", object.name())
            .into())
    }
}

/// The findings of a check, for the store.
#[must_use]
pub fn contents_of(report: ObjectsReport) -> Contents {
    let mut contents = Contents { records: report.objects, ..Contents::default() };
    contents.blocks = report.blocks.into_iter().zip(report.blocks_bytes).collect();
    for finding in report.findings {
        if finding.is_damage {
            // The directory of the memory, which an open has verified, says which blocks belong to it.
            contents.flaws.push(Flaw { at: finding.at, text: finding.what, blocks_are_known: true, is_in_heap: false });
        } else {
            contents.notes.push(finding.to_string());
        }
    }
    contents
}
