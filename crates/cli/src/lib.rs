//! The daily commands of Lodestone, and the code that its two programs share: arguments, output, imports, files.
//!
//! | program | commands | users |
//! | --- | --- | --- |
//! | `lodestone` (`main.rs`) | [`commands::Daily`]: pools, keys and values, media, topology | operators and developers |
//! | `lodestone-lab` (`lab/main.rs`, feature `lab`) | the same, and `bench`, `sim`, `torture`, `crash`, `demo` | researchers, and developers who prove a change |
//!
//! `lodestone bench` and the other laboratory commands find `lodestone-lab` beside `lodestone` or in the path, and
//! become it. So a user types one command. Without the feature `lab` nothing of the measuring and proving crates is
//! built.
//!
//! A program is a set of [`program::Commands`]: arguments, one run, an exit code.

#![cfg_attr(not(test), deny(clippy::as_conversions))]

// It registers the kind of databases, which the commands of pools look for.
use lodestone_engine as _;

#[macro_use]
pub mod program;

pub mod bytes;
pub mod commands;
pub mod emulation;
pub mod examine;
pub mod export;
mod give_back;
pub mod import;
pub mod import_store;
pub mod interrupt;
pub mod log;
pub mod new_file;
pub mod object;
pub mod output;
pub mod publish;
pub mod size;
