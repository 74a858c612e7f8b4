//! A simulated cluster of the fabric.

mod bugs;
mod network;
mod node;
mod oracle;
mod plan;
mod world;

pub use bugs::{Bug, bugs};
pub use plan::{NetworkFaults, Plan};
pub use world::{Outcome, World};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The scenario of `seed` with about so many writes.
#[must_use]
pub fn plan_of(seed: u64, operations: u64) -> Plan {
    Plan::drawn(&mut ChaCha8Rng::seed_from_u64(seed), operations)
}

/// Runs the scenario of `seed` with about so many writes.
///
/// # Panics
/// If a plan's sizes are too small, which no drawn plan's are.
#[must_use]
pub fn run_seed(seed: u64, operations: u64) -> Outcome {
    World::new(plan_of(seed, operations), seed).expect("drawn plans have room").run()
}
