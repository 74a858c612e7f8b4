//! Errors of the fabric, each with the next step for its user.

use lodestone_pmem::PmAddr;

/// Result of the operations of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the fabric failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool refused: after a failed device nothing more is acknowledged.
    #[error(transparent)]
    Pmem(#[from] lodestone_pmem::Error),
    /// A range of a pool cannot hold what it is to hold.
    #[error("the range at {at} has {bytes} bytes, {what} needs {needed} and a multiple of 64; give it a larger range")]
    RangeTooSmall {
        /// Where it begins.
        at: PmAddr,
        /// Its bytes.
        bytes: u64,
        /// The structure that it is for.
        what: &'static str,
        /// Bytes that are needed at least.
        needed: u64,
    },
    /// No log is in the range.
    #[error("no {what} at {at}: its head is missing or damaged twice; restore the node from another replica")]
    NoLog {
        /// The kind of log.
        what: &'static str,
        /// Where it was looked for.
        at: PmAddr,
    },
    /// A log of another version of the format.
    #[error("the {what} at {at} has version {found} of its format, this program knows {known}; use the program of it")]
    Version {
        /// The kind of log.
        what: &'static str,
        /// Where it is.
        at: PmAddr,
        /// Its version.
        found: u8,
        /// The version that this program reads and writes.
        known: u8,
    },
    /// A head whose checksum holds has values that nothing wrote.
    #[error(
        "the {what} at {at} has an intact checksum, but {field} is impossible; restore the node from another replica"
    )]
    Impossible {
        /// The kind of log.
        what: &'static str,
        /// Where it is.
        at: PmAddr,
        /// The field.
        field: &'static str,
    },
    /// An entry that was durable is damaged.
    #[error(
        "the {what} at {at} is damaged at position {position}, but is durable up to {durable}; remove this replica \
         from its group and add it again"
    )]
    Damaged {
        /// The kind of log.
        what: &'static str,
        /// Where the log begins.
        at: PmAddr,
        /// Position of the damaged entry.
        position: u64,
        /// Position up to which all entries were durable.
        durable: u64,
    },
    /// The log has no room for another entry.
    #[error(
        "the {what} is full: {needed} bytes are needed, {free} of {capacity} are free; it is released when the \
         slowest member has reported, or make it larger"
    )]
    Full {
        /// The kind of log.
        what: &'static str,
        /// Bytes of the entry.
        needed: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes of the log.
        capacity: u64,
    },
    /// The body of a record is longer than a record may be.
    #[error("a record's body of {bytes} bytes; the limit is {limit}; split the operation into several records")]
    RecordTooLarge {
        /// Bytes of the body.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The body of a record does not have the form that its flags say.
    #[error("a malformed record: {what}; this is a bug of the program that submits it")]
    Malformed {
        /// The fault.
        what: &'static str,
    },
    /// This node may not send in the group now.
    #[error("this node is not the sender of the group: {state}; wait until it is, or ask the present sender")]
    NotSender {
        /// The present state.
        state: &'static str,
    },
    /// A packet could not be sealed.
    #[error("sealing packets: {what}")]
    Sealing {
        /// The reason, and what to do.
        what: &'static str,
    },
    /// Too many records wait to be sent.
    #[error("{queued} records wait for the slowest member; wait until some were sent")]
    Busy {
        /// Records that wait.
        queued: u64,
    },
    /// A change of members is not allowed now.
    #[error("the members cannot change now: {reason}")]
    ChangeRefused {
        /// The rule that forbids it.
        reason: &'static str,
    },
    /// The registry could not be asked or refused.
    #[error("the registry: {0}; its state is unchanged")]
    Registry(String),
    /// The registry was asked for a change and did not answer.
    #[error("the registry: {0}; the change may have happened: ask for the state before the next one")]
    RegistryUnanswered(String),
    /// The network.
    #[error("{doing} failed; {hint}")]
    Network {
        /// The step that failed.
        doing: String,
        /// The next thing to try.
        hint: &'static str,
        /// The cause.
        source: std::io::Error,
    },
}
