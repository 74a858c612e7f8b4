//! The kind of a transactional memory, with the collections in it: for the store's registry.

use lodestone_stm::MEMORY;
use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Member, Object, Records, Registered};

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
        MEMORY.examine(object)
    }

    fn members(&self, object: Object) -> Result<Vec<Member>, KindError> {
        MEMORY.members(object)
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
}
