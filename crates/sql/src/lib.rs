//! SQL on the engine: parser, catalog, plans, operators, locks, connections.
//!
//! The reference is `PostgreSQL` 15: the same statement has the same rows, the same tag and the same `SQLSTATE`. What
//! is not built is refused by name (0A000).
//!
//! | module | idea |
//! | --- | --- |
//! | `parse` | text to statements of our own; `sqlparser` is the front end, and nothing else sees its tree |
//! | `catalog` | tables of the engine with the types, defaults and numbers that SQL gives them |
//! | `bind` | names to columns, literals to types, operators to functions: a typed plan |
//! | `plan` | what the executor runs |
//! | `run` | operators and expressions |
//! | `literals` | statements that differ in integers only share a plan |
//! | `roles`, `scram` | users and their passwords |
//! | `locks` | rows that a transaction changes, until it ends |
//! | `ddl` | definitions: parts of their transactions |
//! | `explain` | plans for people |
//! | `sequence` | numbers that are logged ahead |
//! | `pgcatalog` | `pg_catalog` and `information_schema`, computed from the catalog |
//! | `settings` | SET and SHOW |
//! | `connection` | one client, without input or output |
//! | `database` | what connections share: catalog, plans, locks |
//!
//! [`Database`] has an example. The server is one caller of [`Connection`] among others.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod activity;
mod bind;
mod catalog;
mod connection;
mod database;
mod ddl;
mod errors;
mod explain;
mod interrupt;
mod literals;
mod locks;
mod parse;
mod pgcatalog;
mod plan;
mod roles;
mod run;
pub mod scram;
mod sequence;
mod settings;

pub use connection::{
    Answer, Completion, Connection, Described, Failure, OutputColumn, Overdue, Pressure, SimpleQuery, Sink,
};
pub use database::Database;
pub use errors::from_engine;
pub use settings::SERVER_VERSION;
