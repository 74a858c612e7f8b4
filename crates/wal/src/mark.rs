//! Marks: records without entries, which follow the last record of a log.
//!
//! A record that does not verify at the end of a log looks like one that a crash tore, and no thread was told about
//! that one. So damage to the last record would lose it silently. A whole record after it is proof of damage. A mark is
//! such a record, and a mark that is damaged itself loses nothing.

use lodestone_txn::Tick;

use crate::error::{Error, Result};
use crate::record::Record;
use crate::wal::Wal;

impl Wal {
    /// Adds a mark to each log whose last record has entries and that no owner has. On return the marks are persistent.
    /// Returns how many were added. A log stays as it is when it has no room for one, and none can be made.
    ///
    /// `may_use` makes sure that a tick may be used. A mark has the tick after the last one of its log. When the answer
    /// is `false`, there is no mark.
    ///
    /// Call it when the logs are at rest: at a clean close, and after the open that follows a crash.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; those of the heap but for want of room.
    pub fn mark_ends(&self, may_use: &mut dyn FnMut(Tick) -> bool) -> Result<usize> {
        let mut marks = 0;
        for writer in self.unmarked() {
            let mut log = match self.writer(writer) {
                // An owner came in between. Its next record does what a mark would do.
                Err(Error::WriterTaken { .. }) => continue,
                log => log?,
            };
            let mut mark = Record::new();
            let room = match log.reserve(&mut mark) {
                // Of the log or of the pool: an open must not need room.
                Err(error) if error.is_full() => continue,
                room => room?,
            };
            let tick = log.last_tick().next();
            if may_use(tick) {
                log.append(room, &mut mark, tick)?;
                marks += 1;
            }
        }
        if marks > 0 {
            // Damage may come at any time after the return, and the caller may end its life now.
            self.memory().fence();
        }
        Ok(marks)
    }
}
