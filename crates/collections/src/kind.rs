//! The kind of a transactional memory, with the collections in it: for the store's registry.

use lodestone_heap::Heap;
use lodestone_stm::{MEMORY, PmAddr};
use lodestone_store::{
    Acknowledge, Contents, Kind, KindCode, KindError, Member, Object, Records, Registered, VisitLost, VisitRecord,
};

use crate::salvage;
use crate::tool_records::open_records;

/// The kind of a transactional memory whose collections can be read by tools. It has the code of
/// [`lodestone_stm::MEMORY`].
pub static COLLECTIONS: Collections = Collections;

inventory::submit! { Registered(&COLLECTIONS) }

/// See [`COLLECTIONS`].
#[derive(Debug)]
pub struct Collections;

impl Kind for Collections {
    fn code(&self) -> KindCode {
        MEMORY.code()
    }

    fn title(&self) -> &'static str {
        MEMORY.title()
    }

    fn examine(&self, object: Object) -> Result<Contents, KindError> {
        salvage::examine(object)
    }

    fn members(&self, object: Object) -> Result<Vec<Member>, KindError> {
        salvage::members(object)
    }

    fn records(
        &self,
        object: Object,
        member: Option<&str>,
        acknowledge: Acknowledge,
    ) -> Result<Box<dyn Records>, KindError> {
        match member {
            Some(member) => open_records(object, member),
            None => MEMORY.records(object, member, acknowledge),
        }
    }

    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        MEMORY.begins_at(heap, at)
    }

    fn salvage(
        &self,
        object: Object,
        member: Option<&str>,
        visit: &mut VisitRecord<'_>,
        lost: &mut VisitLost<'_>,
    ) -> Result<u64, KindError> {
        match member {
            Some(member) => salvage::salvage_member(object, member, visit, lost),
            None => Err("name one of the collections in it".into()),
        }
    }

    fn rebuild(&self, object: Object, name: &str, lost: &mut VisitLost<'_>) -> Result<u64, KindError> {
        salvage::rebuild(object, name, lost)
    }
}
