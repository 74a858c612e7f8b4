//! Reads that are noted by column.
//!
//! Such a read stays valid when another transaction changes other columns of the row. Validation finds another version,
//! and compares the columns that were read. If they are equal, the note *moves* to that version.
//!
//! A version that is unchanged at the validation was current from the read to then. Columns that are equal again need
//! not have been equal in between. So when a note has moved, validation looks at all reads once more, until it finds no
//! version changed: between the two looks all of them were current. Without that second look two columns may be found
//! equal at moments that no one moment joins.
//!
//! A row that the transaction replaces may be noted by column as well. It is locked then, so its columns are compared
//! with those of the version before.

use std::sync::Arc;

use crate::catalog::Definition;
use crate::tree::Bytes;

/// How often validation looks again at the reads. Others change their rows meanwhile.
pub const LOOKS_MAX: u32 = 16;

/// The columns of a row that were read.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub definition: Arc<Definition>,
    /// Their numbers in the schema.
    pub numbers: Vec<usize>,
    /// The row as it was read.
    pub payload: Bytes,
}

impl Columns {
    /// Whether they have the same values in `payload`, of the same key.
    pub fn are_in(&self, key: &[u8], payload: &[u8]) -> bool {
        if self.numbers.is_empty() {
            // That there is a row is all that was asked.
            return true;
        }
        let Definition { schema, layout, .. } = &*self.definition;
        let decode = |payload| schema.decode_row(layout, key, payload).filter(|(_, moved)| moved.is_empty());
        match (decode(&self.payload), decode(payload)) {
            (Some((one, _)), Some((other, _))) => self.numbers.iter().all(|number| one[*number] == other[*number]),
            _ => false,
        }
    }
}
