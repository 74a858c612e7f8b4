//! Serves a database on the PostgreSQL wire.

#![cfg_attr(not(test), deny(clippy::as_conversions))]
