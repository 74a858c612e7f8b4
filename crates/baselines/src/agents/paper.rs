//! The cost model of paper 4, section 2.1.3, as code. It estimates a transaction over two tables on two nodes, with
//! remote access and with I/O agents.
//!
//! Costs are per unit of data (the paper's delta, 256 bytes), relative to a local read of 100. They come from the
//! paper's bandwidth measurements:
//!
//! - a local read has ten times the bandwidth of a remote read;
//! - a local write has a tenth of the bandwidth of a local read, and twice the bandwidth of a remote write;
//! - a message is a copy to another node's DRAM, with 2.9 times the bandwidth of a local read of persistent memory, so
//!   it costs 100 / 2.9, rounded to 35.
//!
//! `docs/DEVIATIONS.md` lists the simplifications of the model. The agent is always idle and answers at once. A message
//! costs the same at any size. The request of a read costs nothing.

use serde::Serialize;

/// Costs of moving one unit of data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UnitCosts {
    /// Reading from the node's own persistent memory.
    pub local_read: f64,
    /// Reading from another node's memory.
    pub remote_read: f64,
    /// Writing to the node's own memory.
    pub local_write: f64,
    /// Writing to another node's memory.
    pub remote_write: f64,
    /// Carrying the unit to or from another node's agent.
    pub message: f64,
}

/// The paper's own numbers.
pub const PAPER: UnitCosts =
    UnitCosts { local_read: 100.0, remote_read: 1000.0, local_write: 1000.0, remote_write: 2000.0, message: 35.0 };

/// A transaction's units of data by table. Table 1 is on the executor's node, table 2 on the other.
///
/// A write writes both `data` and `log`, each to its own table's node (the paper's lambda and omega).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Transaction {
    /// Units read from table 1 and table 2 (the paper's mu).
    pub reads: [f64; 2],
    /// Units of table data written.
    pub data: [f64; 2],
    /// Units of log written.
    pub log: [f64; 2],
}

impl Transaction {
    /// The paper's pure write transaction: as much to one table as to the other.
    #[must_use]
    pub fn pure_write() -> Self {
        Self { reads: [0.0; 2], data: [0.5; 2], log: [0.5; 2] }
    }

    /// The paper's pure read transaction.
    #[must_use]
    pub fn pure_read() -> Self {
        Self { reads: [1.0; 2], data: [0.0; 2], log: [0.0; 2] }
    }

    /// A share of reads between 0 and 1, the rest writes: the paper adds up its two models in proportion.
    #[must_use]
    pub fn mixed(read_share: f64) -> Self {
        let half = (1.0 - read_share) / 2.0;
        Self { reads: [read_share; 2], data: [half; 2], log: [half; 2] }
    }
}

/// The costs of a transaction in both ways.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// With direct access to the remote node.
    pub direct: f64,
    /// With an agent there.
    pub agent: f64,
}

impl Prediction {
    /// The relative change by the agent: -0.32 is 32 % less.
    #[must_use]
    pub fn change(&self) -> f64 {
        self.agent / self.direct - 1.0
    }
}

/// Predicts the cost of `transaction`.
///
/// ```
/// use lodestone_baselines::agents::paper::{PAPER, Transaction, predict};
/// let write = predict(&PAPER, &Transaction::pure_write());
/// assert_eq!((write.direct, write.agent), (3000.0, 2035.0));
/// assert_eq!((100.0 * write.change()).round(), -32.0);
/// let read = predict(&PAPER, &Transaction::pure_read());
/// assert_eq!((read.direct, read.agent), (1100.0, 235.0));
/// // 1 - 235 / 1100 is 78.6 %: the paper cuts it off to 78.
/// assert_eq!((1000.0 * read.change()).round(), -786.0);
/// ```
#[must_use]
pub fn predict(costs: &UnitCosts, transaction: &Transaction) -> Prediction {
    let [local_reads, remote_reads] = transaction.reads;
    let local_writes = transaction.data[0] + transaction.log[0];
    let remote_writes = transaction.data[1] + transaction.log[1];
    let local = local_reads * costs.local_read + local_writes * costs.local_write;
    let direct = local + remote_reads * costs.remote_read + remote_writes * costs.remote_write;
    let agent =
        local + remote_reads * (costs.message + costs.local_read) + remote_writes * (costs.message + costs.local_write);
    Prediction { direct, agent }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unequal_tables_follow_the_papers_formulas() {
        let (lambda, omega, mu) = ([3.0, 5.0], [7.0, 11.0], [13.0, 17.0]);
        let write = predict(&PAPER, &Transaction { reads: [0.0; 2], data: lambda, log: omega });
        assert_eq!(write.direct, ((3.0 + 7.0) + (5.0 + 11.0) * 2.0) * 1000.0);
        assert_eq!(write.agent, (3.0 + 7.0) * 1000.0 + (5.0 + 11.0) * 1035.0);
        let read = predict(&PAPER, &Transaction { reads: mu, data: [0.0; 2], log: [0.0; 2] });
        assert_eq!((read.direct, read.agent), (100.0 * 13.0 + 1000.0 * 17.0, 100.0 * 13.0 + 135.0 * 17.0));
    }

    #[test]
    fn a_mixed_transaction_lies_between_the_pure_ones_in_proportion() {
        let (read, write) = (predict(&PAPER, &Transaction::mixed(1.0)), predict(&PAPER, &Transaction::mixed(0.0)));
        assert_eq!((read.direct, write.agent), (1100.0, 2035.0));
        let half = predict(&PAPER, &Transaction::mixed(0.5));
        assert_eq!(half.direct, (read.direct + write.direct) / 2.0);
        assert_eq!(half.agent, (read.agent + write.agent) / 2.0);
    }

    /// `docs/DEVIATIONS.md`: two sentences of the paper give two costs of a message.
    #[test]
    fn the_papers_two_ratios_of_local_to_remote_dram_change_little() {
        // Section 2.1.3: local DRAM writes have 5.8 times the bandwidth of local reads of persistent memory, and remote
        // ones half of that. Section 2.1.1: a local access has three times the bandwidth of a remote one.
        let (by_half, by_third): (f64, f64) = (100.0 / (5.8 / 2.0), 100.0 / (5.8 / 3.0));
        assert_eq!((by_half.ceil(), by_third.ceil()), (PAPER.message, 52.0));
        let other = UnitCosts { message: by_third, ..PAPER };
        let percent = |costs: UnitCosts, transaction| (100.0 * predict(&costs, &transaction).change()).round();
        assert_eq!([PAPER, other].map(|costs| percent(costs, Transaction::pure_write())), [-32.0, -32.0]);
        assert_eq!([PAPER, other].map(|costs| percent(costs, Transaction::pure_read())), [-79.0, -77.0]);
    }

    #[test]
    fn an_agent_that_costs_as_much_as_it_saves_changes_nothing() {
        let costs = UnitCosts { message: 900.0, ..PAPER };
        assert_eq!(predict(&costs, &Transaction::pure_read()).change(), 0.0);
    }
}
