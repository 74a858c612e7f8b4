//! Verification: the papers' figures beside the model's.
//!
//! 1. Each cell of Tables 3 to 8 of paper 2 is measured in virtual time with the paper's loop (`measure.rs`,
//!    `tables.rs`).
//! 2. So are the sentences about ceilings, sizes, threads, mixed load and other nodes (`sentences.rs`).
//! 3. If a figure contains the cost of the program that measured it, the profile's `[instrument]` is added, in a
//!    separate column.
//!
//! Invariants: the same profile produces the same cells, bit for bit; nothing depends on the machine.

mod cell;
mod measure;
mod sentences;
mod tables;

use lodestone_pmem::Result;
use serde::Serialize;

pub use cell::{Cell, Expected};

use crate::profile::MediaProfile;

/// A profile beside the papers.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// Name of the profile.
    pub profile: String,
    /// The compared figures.
    pub cells: Vec<Cell>,
}

impl Verification {
    /// Whether every judged figure holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.cells.iter().all(Cell::holds)
    }

    /// Figures that do not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| !cell.holds())
    }

    /// Largest error of a cell of the tables, as a fraction.
    #[must_use]
    pub fn worst_table_error(&self) -> f64 {
        let tables = self.cells.iter().filter(|cell| cell.group.contains("Table"));
        tables.map(|cell| cell.error().abs()).fold(0.0, f64::max)
    }
}

/// Compares `profile` with the papers' figures of an Optane module, and `dram` with their figures of DRAM.
///
/// # Errors
/// If there is no memory for the arenas (128 MiB of address space, touched in part).
pub fn verify(profile: &MediaProfile, dram: &MediaProfile) -> Result<Verification> {
    let mut cells = tables::optane(profile)?;
    cells.extend(tables::dram(dram)?);
    cells.extend(sentences::bandwidth(profile)?);
    cells.extend(sentences::threads(profile)?);
    cells.extend(sentences::mixed(profile)?);
    cells.extend(sentences::nodes(profile)?);
    cells.extend(sentences::dram(dram)?);
    Ok(Verification { profile: profile.name.clone(), cells })
}

/// Compares `profile` with the papers' figures of DRAM only.
///
/// # Errors
/// As [`verify`].
pub fn verify_dram(profile: &MediaProfile) -> Result<Verification> {
    let mut cells = tables::dram(profile)?;
    cells.extend(sentences::dram(profile)?);
    Ok(Verification { profile: profile.name.clone(), cells })
}
