//! A database in persistent memory: tables of typed rows, serializable transactions, one log record and one fence for
//! each.
//!
//! A transaction collects its changes in DRAM and reads a state that was committed as a whole. At its commit it locks,
//! validates, streams one record to the log of its writer, and fences once (paper 3, sections 3.1 and 3.2). The rows
//! are in DRAM. An open rebuilds them from the logs.
//!
//! - *Serializable in real time*: a transaction that commits has the effect of one that ran alone, after all that were
//!   acknowledged before it began. Ranges have no phantoms, also in their empty parts.
//! - *Nothing that could be lost is told*: what a transaction answers, also an error and also a value that it only
//!   read, is durable before.
//! - *No anomalies inside a closure*: an attempt that will fail never sees a state that was not committed.
//! - *Bounded logs*: a checkpoint writes the rows that changed to pages, and the logs begin there. Commits make one
//!   when the logs are half full, [`Database::checkpoint`] at any time. Commits go on meanwhile.
//!
//! **What is not there yet.** A checkpoint writes each leaf that changed as a whole, in the thread of a commit. An open
//! reads all pages, and all rows must fit into DRAM. Tables cannot change or be dropped.
//!
//! | file | idea |
//! | --- | --- |
//! | `value`, `schema` | types, values, columns |
//! | `calendar`, `decimal`, `uuid` | values that Rust has no type for |
//! | `key` | keys as bytes in the order of their values |
//! | `payload` | the other columns of a row as bytes |
//! | `large` | texts and bytes that are too long for their row, in pieces |
//! | `typed` | rows as structs: what `#[derive(Row)]` is for |
//! | `tree` | rows in DRAM, by key: slots, leaves, claims, purge, split |
//! | `state` | the reads and changes of a transaction, and their validation |
//! | `tx`, `table`, `rows` | operations inside a transaction |
//! | `commit` | the commit, step by step |
//! | `cuts` | a position in every log, while commits go on |
//! | `rounds` | checkpoints: dirty leaves to pages, truncation |
//! | `catalog` | tables by name, as rows |
//! | `recover`, `format` | opening: from pages and logs to the trees |
//! | `database`, `core`, `kind` | what is shared, and the place in a store |
//!
//! [`Database`] has an example.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod calendar;
mod catalog;
mod commit;
mod core;
mod cuts;
mod database;
mod decimal;
mod error;
mod format;
mod key;
mod kind;
mod large;
mod options;
mod payload;
mod recover;
mod rounds;
mod rows;
mod schema;
mod state;
mod table;
mod tree;
mod tx;
mod typed;
mod uuid;
mod value;

pub use calendar::{Date, Timestamp};
pub use database::Database;
pub use decimal::Decimal;
pub use error::{Error, OrCancel, Result};
pub use key::KEY_BYTES_MAX;
pub use kind::{DATABASE, DatabaseKind};
pub use lodestone_engine_derive::Row;
pub use lodestone_pages::PageStats;
pub use options::{DATABASE_NAME, DatabaseOptions};
pub use payload::VALUE_BYTES_MAX;
pub use recover::RecoveryReport;
pub use rounds::CheckpointReport;
pub use rows::Rows;
pub use schema::{COLUMNS_MAX, Column, NAME_BYTES_MAX, Schema};
pub use table::Table;
pub use tx::Tx;
#[doc(hidden)]
pub use typed::RowValues;
pub use typed::{ColumnOf, ColumnType, KeyFor, KeyPart, KeyRange, RowsOf, TableOf, TypedRow};
pub use uuid::Uuid;
pub use value::{Row, Type, Value};
