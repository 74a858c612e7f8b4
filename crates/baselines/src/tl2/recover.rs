//! Recovery: each log is finished (redo) or rolled back (undo) before anything else happens.
//!
//! Idempotent: contents are whole values, and a log ends only after they are persistent. Bounded by the size of the
//! logs. The logs may be handled in any order: no two name the same object, because their transactions held its lock.

use lodestone_pmem::Memory;
use lodestone_workload::engine::EngineError;

use super::LogKind;
use super::layout::Geometry;
use super::log::{LogArea, read_redo, read_undo};

/// Handles all logs.
pub(super) fn recover(memory: &Memory, geometry: &Geometry, kind: LogKind) -> Result<(), EngineError> {
    for worker in 0..geometry.workers {
        let log = LogArea { at: geometry.log(worker), bytes: geometry.log_bytes };
        let entries = match kind {
            LogKind::Redo => read_redo(memory, log).unwrap_or_default(),
            LogKind::Undo => {
                let mut entries = read_undo(memory, log);
                // The oldest content of a place is written last.
                entries.reverse();
                entries
            }
        };
        if entries.is_empty() {
            continue;
        }
        if memory.is_read_only() {
            return Err(EngineError::new("the pool was not closed cleanly; open it for writing once to recover it"));
        }
        for entry in &entries {
            let bytes = zerocopy::IntoBytes::as_bytes(entry.content.as_slice());
            memory.write(entry.address, bytes);
            memory.flush(entry.address, bytes.len() as u64);
        }
        // The end of the log may not overtake the contents that it would repeat.
        memory.fence();
        let end = match kind {
            LogKind::Redo => 0,
            LogKind::Undo => memory.load(log.at) + 1,
        };
        memory.store(log.at, end);
        // No later change of the same words may overtake the end of the log.
        memory.persist(log.at, 8);
    }
    memory.durable().map_err(EngineError::new)
}
