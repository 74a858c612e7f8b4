//! Pages of rows in persistent memory: the state of a database from which its logs go on.
//!
//! A leaf of a tree is written as an *image*: its rows with their ticks, in one page or several. Images are written
//! in *batches* that count all at once, together with the positions from which the logs are still needed. A crash
//! leaves the state of the last batch that was published, where rows may be later versions. A new image takes free
//! pages, and the former image ends in the same batch. Where the medium has lines, rows of an image are also changed
//! in place, and rows added to it ([`Batch::patch`]).
//!
//! 1. *The page table* has a line for each page. Two words of it are the batches in which the page began and ended.
//!    Each word changes by one store and verifies itself. The rest repeats the head of the page, for opens.
//! 2. *The checkpoint* has two places. A batch overwrites the older one, so a crash or a damaged block leaves the other
//!    one, with all its pages and log records: a page is used again only when neither checkpoint has it, in the block
//!    domain also none that the file without its journal would have.
//! 3. *Traces of a batch that was not published* are erased by the next open, before anything is published: the next
//!    batch has the same number.
//!
//! This is paper 4's checkpoint (section 2.2.3: the last two are kept, and the newest one that is whole counts),
//! without undo, and its dirty lines (section 2.1.4).
//!
//! | file | idea |
//! | --- | --- |
//! | `layout` | bytes of directory, extents, blocks and pages |
//! | `pages` | opening, the page table, the list of images |
//! | `batch` | writing images, and the page table |
//! | `share` | parts of a batch, written by threads side by side |
//! | `free` | free pages, by part of the pool |
//! | `patch` | changing rows of an image in place |
//! | `checkpoint` | the block that makes a batch count |
//! | `heal` | the repair by an open |
//! | `image` | rows as bytes |
//! | `cell` | the part of a row that changes |
//! | `tail` | rows that are added to an image |
//! | `reader` | reading images, by any threads |
//! | `room` | the room that images need |
//!
//! ```
//! use lodestone_heap::{Heap, HeapOptions};
//! use lodestone_pages::{Error, PageOptions, PageRow, Pages};
//! use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
//! use lodestone_txn::{Tick, Writer};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("a.pool");
//! let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
//! let pool = Pool::create(&path, &options)?;
//! let heap = Heap::open(&pool, &HeapOptions::default())?;
//! let mut action = heap.action();
//! let at = Pages::make(&heap, &mut action, &PageOptions { writers: 1, ..PageOptions::default() })?;
//! action.set(heap.root_word(0), at.to_raw());
//! action.commit()?;
//!
//! let mut pages = Pages::open(&heap, at)?;
//! let mut batch = pages.batch();
//! let row = PageRow { key: b"alice", tick: Tick(7), writer: Writer::default(), payload: b"100" };
//! batch.write(1, b"", [row].into_iter())?;
//! batch.publish(vec![4096])?; // the log of writer 0 is needed from there on
//!
//! let pages = Pages::open(&heap, at)?;
//! let mut keys = Vec::new();
//! pages.images::<Error>(&mut |found| {
//!     keys.extend(found.rows().map(|row| row.key.to_vec()));
//!     Ok(())
//! })?;
//! assert_eq!(keys, [b"alice".to_vec()]);
//! // The page table says what there is. Any thread reads an image later.
//! let (listed, reader) = (pages.listed()?, pages.reader());
//! assert_eq!((listed[0].tree, listed[0].rows), (1, 1));
//! assert_eq!(reader.read(&listed[0].image)?.rows().count(), 1);
//! // The older of the two checkpoints decides: either of them may be damaged.
//! assert_eq!(pages.from(Writer::new(0).unwrap()), 0);
//! # Ok::<(), Error>(())
//! ```

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod batch;
mod buffer;
mod bytes;
mod cell;
mod checkpoint;
mod error;
mod free;
mod heal;
mod image;
mod layout;
mod options;
mod pages;
mod patch;
mod reader;
mod room;
mod share;
mod tail;

pub use batch::Batch;
pub use error::{Error, Result};
pub use image::{Found, Image, Listed, PageRow};
pub use options::PageOptions;
pub use pages::{PageStats, Pages};
pub use patch::{Patch, Patched, RowWrite};
pub use reader::{FarReads, Reader};
pub use room::row_bytes;
pub use share::{Share, Shares};
