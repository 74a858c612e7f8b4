//! A database in persistent memory: tables of typed rows, serializable transactions, one log record and one fence for
//! each.
//!
//! A transaction collects its changes in DRAM and reads a state that was committed as a whole. At its commit it locks,
//! validates, streams one record to the log of its writer, and fences once (paper 3, section 3.1). The rows
//! are in DRAM when they are used. They come from pages, and after a crash also from the logs.
//!
//! - *Serializable in real time*: a transaction that commits has the effect of one that ran alone, after all that were
//!   acknowledged before it began. Ranges have no phantoms, also in their empty parts.
//! - *Nothing that could be lost is told*: each answer of a transaction is durable before it is returned. This
//!   includes errors, and values that were only read.
//! - *No anomalies inside a closure*: an attempt that will fail never sees a state that was not committed.
//! - *Snapshots*: reads of one moment, which never meet a conflict ([`Database::snapshot`]). Transactions may ask for
//!   less than serializability ([`Isolation`]).
//! - *Bounded logs*: a checkpoint writes the rows that changed to pages, and the logs begin there. A thread makes one
//!   when the logs are half full, [`Database::checkpoint`] at any time. Commits go on meanwhile.
//!
//! - *Rows on the medium*: [`cache_bytes`](DatabaseOptions::cache_bytes) bounds the DRAM for rows. Without a bound all
//!   rows that were used stay there.
//!
//! | file | idea |
//! | --- | --- |
//! | `value`, `schema`, `history` | types, values, columns; the columns that a table had |
//! | `calendar`, `decimal`, `uuid` | values that Rust has no type for |
//! | `key` | keys as bytes in the order of their values |
//! | `payload` | the other columns of a row as bytes |
//! | `large` | texts and bytes that are too long for their row, in pieces |
//! | `typed` | rows as structs: what `#[derive(Row)]` is for |
//! | `tree`, `branch`, `leaf`, `slot` | rows in DRAM, by key: claims, purge, split |
//! | `cold`, `cache` | leaves that are read from their pages when they are used; a bound for those in DRAM |
//! | `state`, `columns` | the reads and changes of a transaction, and their validation; reads by column |
//! | `isolation` | what a transaction sees of others, in four levels |
//! | `savepoint` | changes of a transaction that are taken back |
//! | `tx`, `table`, `add`, `rows`, `reader` | operations inside a transaction, and reads of a snapshot |
//! | `snapshot`, `side` | long readers, and the versions kept for them |
//! | `index`, `build` | other orders of the rows: entries in trees of their own; a new one while commits go on |
//! | `commit`, `ticket` | the commit, step by step; waiting for it later |
//! | `durability` | when a commit is acknowledged; the protocols that this one is compared with |
//! | `delta` | records of the bytes that changed, and the rule that makes them sound |
//! | `group`, `region` | for comparison: group commit by epochs; steps of a commit in a hardware transaction |
//! | `stats`, `publish`, `metrics` | counts of transactions, and figures of all parts; in a file, and as text |
//! | `warm` | leaves of the last close are read again after an open |
//! | `events` | what an operator is told, through `tracing` |
//! | `cuts` | a position in every log, while commits go on |
//! | `rounds`, `checkpointer`, `tree/merge` | checkpoints: dirty leaves to pages, truncation; a thread; empty leaves |
//! | `placement`, `page_writer`, `move_table` | tables in a part of the pool; a writer for each node; another part |
//! | `far`, `scan` | pages of other nodes, by agents; scans of tables by threads on their nodes |
//! | `feed`, `archive`, `restore` | committed transactions in an order of their effects; in a file; onto a backup |
//! | `define` | tables that a transaction makes, changes and drops among its other changes |
//! | `replace` | a table in the place of another one |
//! | `load` | a new table with all its rows: pages, and no records |
//! | `catalog` | tables and indexes by name, as rows |
//! | `recover`, `redo`, `format` | opening: from pages and logs to the trees, on several threads |
//! | `database`, `core`, `spares`, `kind` | what is shared, what transactions use in turn, and the place in a store |
//!
//! [`Database`] has an example.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod add;
mod ahead;
mod archive;
mod branch;
mod build;
mod bytes;
mod cache;
mod calendar;
mod catalog;
mod checkpointer;
mod cold;
mod columns;
mod commit;
mod core;
mod cuts;
mod database;
mod decimal;
mod define;
mod delta;
mod dual;
mod durability;
mod error;
mod events;
mod far;
mod feed;
mod format;
mod group;
mod history;
mod index;
mod isolation;
mod key;
mod kind;
mod large;
mod leaf;
mod leaf_size;
mod load;
mod metrics;
mod move_table;
mod newest;
mod node_stats;
mod on_open;
mod options;
mod page_writer;
mod payload;
mod placement;
mod publish;
mod reader;
mod recover;
mod redo;
mod region;
mod replace;
mod restore;
mod rounds;
mod rows;
mod savepoint;
mod scan;
mod schema;
mod side;
mod slot;
mod snapshot;
mod spares;
mod state;
mod stats;
mod table;
mod threads;
mod ticket;
mod tree;
mod tx;
mod typed;
mod uuid;
mod value;
mod warm;

pub use archive::{LogArchive, LogBatch, LogSink};
pub use calendar::{Date, Timestamp};
pub use database::Database;
pub use decimal::Decimal;
pub use durability::{Durability, FlushUnit, LogPlacement, Region};
pub use error::{Error, OrCancel, Result};
pub use far::FarPages;
pub use feed::{Feed, FeedBatch, FeedChange, FeedPosition, FeedStart, FeedTransaction};
pub use index::{IndexRows, TableIndex};
pub use isolation::Isolation;
pub use key::KEY_BYTES_MAX;
pub use kind::{DATABASE, DatabaseKind};
pub use load::{LoadedTable, TableLoad};
pub use lodestone_engine_derive::Row;
pub use lodestone_pages::{FarReads, PageStats};
pub use lodestone_wal::{LogAlign, LogStats, LogStore};
pub use move_table::MoveReport;
pub use newest::Newest;
pub use node_stats::NodeStats;
pub use on_open::{OnOpen, OpenProgress, OpenStep};
pub use options::{DATABASE_NAME, DatabaseOptions};
pub use payload::VALUE_BYTES_MAX;
pub use placement::{RangePlacement, TablePlacement};
pub use publish::{PUBLISHED_VERSION, PublishOptions};
pub use reader::Reader;
pub use recover::RecoveryReport;
pub use restore::{RestorePoint, RestoreReport};
pub use rounds::CheckpointReport;
pub use rows::Rows;
pub use savepoint::Savepoint;
pub use schema::{COLUMNS_MAX, Column, Index, NAME_BYTES_MAX, Schema};
pub use snapshot::Snapshot;
pub use stats::DatabaseStats;
pub use table::Table;
pub use ticket::Ticket;
pub use tx::Tx;
#[doc(hidden)]
pub use typed::RowValues;
pub use typed::{ColumnOf, ColumnType, KeyFor, KeyPart, KeyRange, RowsOf, TableOf, TypedRow};
pub use uuid::Uuid;
pub use value::{Row, Type, Value};
