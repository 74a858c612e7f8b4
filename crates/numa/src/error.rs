//! Errors between a client and an agent, each with advice for the user.

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory or the kernel refused.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
    /// The node has no agent.
    #[error("no agent on node {node}: {reason}; use Access::Direct or Access::Auto, which go there without one")]
    NoAgent {
        /// Index of the node.
        node: usize,
        /// Why there is none.
        reason: String,
    },
    /// The agents were stopped before the request was carried out.
    #[error("the agent of node {node} was stopped and did not carry out the request; start agents again to repeat it")]
    Stopped {
        /// Index of the node.
        node: usize,
    },
    /// The agent's thread died.
    #[error(
        "the agent of node {node} died ({cause}); the request may or may not have been carried out: check before you repeat it, and start agents again"
    )]
    AgentDied {
        /// Index of the node.
        node: usize,
        /// The message of its panic.
        cause: String,
    },
    /// The range is not inside the memory, or does not start at a word.
    #[error("{len} bytes at {at}: {finding}; check where the address came from")]
    BadRange {
        /// The address.
        at: PmAddr,
        /// Bytes asked for.
        len: u64,
        /// The fault.
        finding: &'static str,
    },
    /// The memory is open read-only.
    #[error("the memory is open read-only; open the pool for writing")]
    ReadOnly,
    /// Making a write durable failed on the agent.
    #[error(
        "node {node}: making the write durable failed and the pool is poisoned; fix the device, close and reopen the pool"
    )]
    Poisoned {
        /// Index of the node.
        node: usize,
    },
    /// A parameter makes no sense.
    #[error("{what}: {finding}; {hint}")]
    Invalid {
        /// The parameter.
        what: &'static str,
        /// The fault of the parameter.
        finding: String,
        /// The next thing to do.
        hint: &'static str,
    },
}
