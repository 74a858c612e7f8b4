//! A simulated cluster of the fabric: the cores of `lodestone-fabric` on virtual time, with seeded faults and judges.
//!
//! 1. [`Plan`]: a scenario, drawn from a seed: members, senders, sizes and faults. It states the fault model.
//! 2. [`World`]: nodes, network, registry and clients under one clock. Every node has a pool on memory that crashes as
//!    the persistence contract allows ([`lodestone_crash::OnlineMedium`]), also in the middle of an operation.
//! 3. The judges look at each action, and at all reads in the end. They are in `oracle.rs` and read like the promises.
//! 4. [`bugs`]: bugs that can be planted, each with the scenario that finds it.
//!
//! A scenario has one group, or a volume: operations in a group of their own, and units with their payloads.
//!
//! The judges know every record that was made, and which log each term had. So they compare the log and the pages of a
//! member with those of its sender after each record, and not only in the end.
//!
//! ```
//! let outcome = lodestone_fabric_sim::run_seed(3, 100);
//! assert_eq!(outcome.violation, None);
//! assert_eq!(outcome, lodestone_fabric_sim::run_seed(3, 100), "a seed repeats bit for bit");
//! ```

mod bugs;
mod keepers;
pub mod linear;
mod network;
mod node;
mod oracle;
mod orders;
mod plan;
mod world;

pub use bugs::{Bug, bugs};
pub use keepers::{KeeperFaults, KeeperWorld};
pub use plan::{NetworkFaults, Plan};
pub use world::{Outcome, World};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The scenario of `seed` with about so many writes.
#[must_use]
pub fn plan_of(seed: u64, operations: u64) -> Plan {
    Plan::drawn(&mut ChaCha8Rng::seed_from_u64(seed), operations)
}

/// The scenario of `seed` with several groups under one order of operations, and about so many writes.
#[must_use]
pub fn volume_plan_of(seed: u64, operations: u64) -> Plan {
    Plan::drawn_volume(&mut ChaCha8Rng::seed_from_u64(seed ^ 0x0070_1035), operations)
}

/// The scenario of `seed` with a registry of keepers, and about so many writes.
#[must_use]
pub fn keeper_plan_of(seed: u64, operations: u64) -> Plan {
    Plan::drawn_keepers(&mut ChaCha8Rng::seed_from_u64(seed ^ 0x6B65_6570), operations)
}

/// Runs the scenario of `seed` with a registry of keepers, and about so many writes.
///
/// # Panics
/// If a plan's sizes are too small, which no drawn plan's are.
#[must_use]
pub fn run_keeper_seed(seed: u64, operations: u64) -> Outcome {
    World::new(keeper_plan_of(seed, operations), seed).expect("drawn plans have room").run()
}

/// Runs the scenario of `seed` with several groups and about so many writes.
///
/// # Panics
/// If a plan's sizes are too small, which no drawn plan's are.
#[must_use]
pub fn run_volume_seed(seed: u64, operations: u64) -> Outcome {
    World::new(volume_plan_of(seed, operations), seed).expect("drawn plans have room").run()
}

/// Runs the scenario of `seed` with about so many writes.
///
/// # Panics
/// If a plan's sizes are too small, which no drawn plan's are.
#[must_use]
pub fn run_seed(seed: u64, operations: u64) -> Outcome {
    World::new(plan_of(seed, operations), seed).expect("drawn plans have room").run()
}
