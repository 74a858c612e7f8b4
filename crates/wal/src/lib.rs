//! Write-ahead logs in persistent memory: a log for each writer, value redo, one fence for each transaction.
//!
//! A transaction describes its changes in a [`Record`]: rows by tree and key, with their new values. The writer streams
//! the record to its own log ([`LogWriter::append`]), and the caller fences. After that fence the transaction survives.
//! There is no undo and no global sequence: after a crash the largest tick wins for each row, so records may be
//! repeated in any order (paper 3, section 3.1.3: `LogQueue`).
//!
//! 1. *A log for each writer*: an append stores only to memory of its own writer. No word is shared.
//! 2. *Segments*: a log is a chain of segments from a common stock. Each use of a segment has a new generation, which
//!    is persistent before the first record.
//! 3. *Checksums with a seed*: a record verifies only in its segment, generation, position and log. So old bytes of a
//!    segment, bytes of a value, and records of another log never count.
//! 4. *The end*: a record that does not verify is the end of the log, because a writer has one record in flight. A
//!    whole record after it is proof of damage, and the open refuses.
//! 5. *The end is made certain*: an open for writing clears the first word at each end before it serves. Otherwise a
//!    record that a crash tore could become whole later: the next life may write the lines that it lacked.
//! 6. *Marks*: damage to the last record would look like a crash in the middle of it. [`Wal::mark_ends`] adds a record
//!    without entries after it, at a clean close and after a crash. From then on damage there is named.
//!
//! | file | idea |
//! | --- | --- |
//! | `record` | entries of a transaction, encoded and decoded |
//! | `layout` | bytes of directory, segments and records |
//! | `segments` | the stock of segments, and who has which |
//! | `writer` | room before the locks, one streamed record after them |
//! | `reader` | a log from a position to its end, and the verdict about the end |
//! | `wal` | make, open, truncate |
//! | `mark` | records without entries, so that damage to the last one shows |
//!
//! ```
//! use lodestone_heap::{Heap, HeapOptions};
//! use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
//! use lodestone_txn::{Tick, Writer};
//! use lodestone_wal::{LogOptions, Record, Wal};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("a.pool");
//! let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
//! let pool = Pool::create(&path, &options)?;
//! let heap = Heap::open(&pool, &HeapOptions::default())?;
//! let mut action = heap.action();
//! let sizes = LogOptions { log_bytes: 1 << 20, segment_bytes: 1 << 16, ..LogOptions::default() };
//! let at = Wal::make(&heap, &mut action, &sizes)?;
//! action.set(heap.root_word(0), at.to_raw());
//! action.commit()?;
//!
//! let wal = Wal::open(&heap, at, &mut |_| 0, &mut |_| Ok(()))?;
//! let mut log = wal.writer(Writer::new(0).unwrap())?;
//! let mut record = Record::new();
//! record.put(1, b"alice", b"100")?;
//! record.delete(1, b"bob")?;
//! let room = log.reserve(&mut record)?; // may wait or fail: before any lock
//! log.append(room, &mut record, Tick(1))?; // streamed, not fenced
//! heap.memory().fence(); // the one fence
//! heap.memory().durable()?;
//!
//! drop((log, wal));
//! let mut keys = Vec::new();
//! Wal::open(&heap, at, &mut |_| 0, &mut |found| {
//!     keys.extend(found.entries().map(|entry| entry.key.to_vec()));
//!     Ok(())
//! })?;
//! assert_eq!(keys, [b"alice".to_vec(), b"bob".to_vec()]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod error;
mod layout;
mod mark;
mod options;
mod reader;
mod record;
mod segments;
mod wal;
mod writer;

pub use error::{Error, Result};
pub use options::{LogAlign, LogOptions, LogStore};
pub use reader::{Found, Kept};
pub use record::{ENTRY_HEAD_BYTES, Entries, Entry, EntryKind, Record};
pub use wal::{LogStats, Opening, Wal};
pub use writer::{LogWriter, Room};
