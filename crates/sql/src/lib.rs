//! SQL on the engine.
#![cfg_attr(not(test), deny(clippy::as_conversions))]
mod bind;
mod catalog;
mod errors;
mod locks;
mod parse;
mod pgcatalog;
mod plan;
mod run;
mod settings;
