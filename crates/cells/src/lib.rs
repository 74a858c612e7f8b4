//! Cells in persistent memory: two versions of an object or a row side by side (paper 1, section 4.1).
//!
//! A cell has two slots. A commit writes the slot with the older version while the newer one stays, so a torn write
//! loses nothing, and no log has to have the data. Which version counts after a crash is for the owner to say: the
//! objects of a transactional memory (`lodestone-stm`), and the rows of tables with the placement `dual`
//! (`lodestone-engine`).
//!
//! | file | idea |
//! | --- | --- |
//! | `shape` | sizes of cells, and the places of the slots inside them |
//! | `slots` | reading one slot: whole, torn, never written |
//! | `directory` | which areas of the heap have cells; there twice |

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod directory;
mod error;
mod shape;
mod slots;

pub use directory::{Directory, Slab, overlap};
pub use error::{Error, Result};
pub use shape::{CellKind, PAYLOAD_BYTES_MAX, Shape};
pub use slots::{Version, read_slot};
