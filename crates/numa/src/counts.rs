//! Counts of agents and clients, taken where the work happens. Only the agent writes its counts; a client owns its own.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counts {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $field:ident),+ $(,)? }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct $name { $($(#[$doc])* pub $field: u64),+ }

        impl $name {
            const FIELDS: usize = [$(stringify!($field)),+].len();

            fn values(&self) -> [u64; Self::FIELDS] {
                [$(self.$field),+]
            }

            fn of_values([$($field),+]: [u64; Self::FIELDS]) -> Self {
                Self { $($field),+ }
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                let (own, others) = (self.values(), other.values());
                *self = Self::of_values(std::array::from_fn(|field| own[field] + others[field]));
            }
        }
    };
}

counts! {
    /// Counts of one agent, or of all of them.
    AgentCounts {
        /// Requests carried out.
        messages,
        /// Of these, reads.
        reads,
        /// Of these, writes.
        writes,
        /// Bytes read for clients.
        bytes_read,
        /// Bytes written for clients.
        bytes_written,
        /// Turns with work. Messages divided by batches is the average batch.
        batches,
        /// Fences executed: one per batch with a request that needs it.
        fences,
        /// Waits for durability.
        durables,
        /// Times that the agent went to sleep because there were no requests.
        parks,
        /// Sleeping clients that the agent woke.
        wakes,
        /// Requests that were refused (a range outside the memory, a read-only pool).
        refused,
    }
}

counts! {
    /// Counts of one client.
    ClientCounts {
        /// Messages sent.
        messages,
        /// Accesses made by the client's own thread.
        direct,
        /// Of these, accesses to another node's memory.
        direct_remote,
        /// Times that a submission waited because the ring was full.
        full_waits,
        /// Times that the client went to sleep while waiting for an answer.
        parks,
        /// Sleeping agents that the client woke.
        wakes,
    }
}

/// The counts of a running agent: only its thread writes them.
#[derive(Debug, Default)]
pub(crate) struct Published {
    words: [AtomicU64; AgentCounts::FIELDS],
}

impl Published {
    /// Makes the agent's present counts visible.
    pub(crate) fn publish(&self, counts: &AgentCounts) {
        for (word, value) in self.words.iter().zip(counts.values()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The counts as of the agent's last turn.
    pub(crate) fn get(&self) -> AgentCounts {
        AgentCounts::of_values(self.words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }
}
