//! What agents and clients did, counted where it happens: an agent's counts have one writer, a client's belong to it.

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
    /// What one agent did, or all of them.
    AgentCounts {
        /// Requests carried out.
        messages,
        /// Of them reads.
        reads,
        /// Of them writes.
        writes,
        /// Bytes read for clients.
        bytes_read,
        /// Bytes written for clients.
        bytes_written,
        /// Turns in which there was something to do: messages per batch is the average batch.
        batches,
        /// Fences executed: one per batch that has a request which wants it.
        fences,
        /// Waits for durability.
        durables,
        /// Times the agent went to sleep for want of requests.
        parks,
        /// Sleeping clients that the agent woke.
        wakes,
        /// Requests that were refused (a range outside the memory, a read-only pool).
        refused,
    }
}

counts! {
    /// What one client did.
    ClientCounts {
        /// Messages sent.
        messages,
        /// Accesses made by the client's own thread.
        direct,
        /// Of them to another node's memory.
        direct_remote,
        /// Times a submission waited because the ring was full.
        full_waits,
        /// Times the client went to sleep while it waited for an answer.
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
