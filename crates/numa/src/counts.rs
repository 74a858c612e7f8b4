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

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) { $(self.$field += other.$field;)+ }
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
    words: [AtomicU64; 11],
}

impl Published {
    /// Makes the agent's present counts visible.
    pub(crate) fn publish(&self, counts: &AgentCounts) {
        let AgentCounts {
            messages,
            reads,
            writes,
            bytes_read,
            bytes_written,
            batches,
            fences,
            durables,
            parks,
            wakes,
            refused,
        } = *counts;
        let values =
            [messages, reads, writes, bytes_read, bytes_written, batches, fences, durables, parks, wakes, refused];
        for (word, value) in self.words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The counts as of the agent's last turn.
    pub(crate) fn get(&self) -> AgentCounts {
        let word = |index: usize| self.words[index].load(Ordering::Relaxed);
        AgentCounts {
            messages: word(0),
            reads: word(1),
            writes: word(2),
            bytes_read: word(3),
            bytes_written: word(4),
            batches: word(5),
            fences: word(6),
            durables: word(7),
            parks: word(8),
            wakes: word(9),
            refused: word(10),
        }
    }
}
