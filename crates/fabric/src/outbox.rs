//! Where the bytes of records stand that some member still lacks.
//!
//! A sender never keeps a second copy for resending: the owner of the records keeps them, and gives them up when every
//! member has them (paper 5 frees a send buffer when its card has sent it; a lost packet could never be sent again).

use crate::error::Result;
use crate::ids::Sequence;
use crate::record::RecordHead;

/// Records by their sequence, until they are released.
pub trait Outbox {
    /// The record, or `None` if it was released or does not exist.
    ///
    /// # Errors
    /// A damaged record.
    fn record(&self, sequence: Sequence) -> Result<Option<(RecordHead, Vec<u8>)>>;

    /// No member needs the records up to this one any more.
    fn release(&mut self, up_to: Sequence);
}
