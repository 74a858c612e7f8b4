//! The costs of accesses and messages, from the parameters of a medium and of the DRAM beside it.
//!
//! Two bases of one profile: the paper's unit costs are on one of them, and a lone thread observes the other.
//!
//! - *Latency*: the time of one access without other threads. A message is two transfers from the other node's DRAM:
//!   the agent fetches the request, the client the answer. The payload travels with one of them.
//! - *Bandwidth*: the time for which an access occupies the medium, which limits many threads. The paper derives its
//!   costs this way. A message occupies the link between the nodes for its bytes.

use lodestone_media::MediaProfile;
use lodestone_numa::{Costs, Curve};
use serde::Serialize;

use super::paper::UnitCosts;

/// Bytes of a message besides its payload: a line for the request and one for the answer.
const HEADER_BYTES: u64 = 64;

/// The meaning of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Nanoseconds for a lone thread.
    Latency,
    /// Nanoseconds of the medium's time.
    Bandwidth,
}

/// Nanoseconds until `bytes` have arrived from another node's DRAM.
#[must_use]
pub fn transfer_ns(dram: &MediaProfile, bytes: u64) -> f64 {
    dram.read.random_latency_ns.at(bytes) * dram.remote.read_factor
}

/// Costs of moving `bytes`, in nanoseconds.
#[must_use]
pub fn unit_costs(medium: &MediaProfile, dram: &MediaProfile, bytes: u64, basis: Basis) -> UnitCosts {
    let block = medium.device.block_bytes;
    let moved = bytes.next_multiple_of(block.max(1)) as f64;
    let (local_read, local_write, message) = match basis {
        Basis::Latency => (
            medium.read.random_latency_ns.at(bytes),
            medium.write.random_latency_ns.at(bytes),
            transfer_ns(dram, bytes + HEADER_BYTES) + transfer_ns(dram, HEADER_BYTES),
        ),
        Basis::Bandwidth => (
            moved / medium.read.bandwidth_bytes_per_second * 1e9,
            moved / medium.write.bandwidth_bytes_per_second * 1e9,
            (bytes + 2 * HEADER_BYTES) as f64 / dram.read.bandwidth_bytes_per_second * 1e9 * dram.remote.read_factor,
        ),
    };
    UnitCosts {
        local_read,
        remote_read: local_read * medium.remote.read_factor,
        local_write,
        remote_write: local_write * medium.remote.write_factor,
        message,
    }
}

/// The sizes at which profiles are sampled.
const SIZES: [u64; 12] = [8, 64, 128, 192, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536];

/// The costs, in nanoseconds, by which clients choose between direct access and the agent.
///
/// ```
/// use lodestone_media::MediaProfile;
/// use lodestone_baselines::agents::profile::{Basis, costs};
/// let [optane, dram] = ["optane", "dram"].map(|name| MediaProfile::builtin(name).expect("built in"));
/// let alone = costs(&optane, &dram, Basis::Latency);
/// // A remote read of Optane is so dear that a message pays; a lone thread's remote write is not.
/// assert!(alone.read_by_agent(256) && !alone.write_by_agent(256) && !alone.write_by_agent(8192));
/// // Where many threads fill the medium's bandwidth, writes through agents leave more of it.
/// assert!(costs(&optane, &dram, Basis::Bandwidth).write_by_agent(256));
/// ```
#[must_use]
pub fn costs(medium: &MediaProfile, dram: &MediaProfile, basis: Basis) -> Costs {
    let curve = |of: fn(&UnitCosts) -> f64| {
        Curve::new(SIZES.iter().map(|&bytes| (bytes, of(&unit_costs(medium, dram, bytes, basis)))).collect())
    };
    Costs {
        local_read: curve(|costs| costs.local_read),
        remote_read: curve(|costs| costs.remote_read),
        local_write: curve(|costs| costs.local_write),
        remote_write: curve(|costs| costs.remote_write),
        message: curve(|costs| costs.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::paper::PAPER;

    /// Agents start with the paper's ratios, written as plain figures in `lodestone-numa`.
    #[test]
    fn agents_choose_by_the_papers_costs_unless_told_otherwise() {
        let Costs { local_read, remote_read, local_write, remote_write, message } = Costs::default();
        for units in [1, 4, 1000] {
            let at = |curve: &Curve| curve.at(256 * units) / units as f64;
            let unit = UnitCosts {
                local_read: at(&local_read),
                remote_read: at(&remote_read),
                local_write: at(&local_write),
                remote_write: at(&remote_write),
                message: at(&message),
            };
            assert_eq!(unit, PAPER, "{units} units");
        }
    }
}
