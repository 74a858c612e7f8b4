//! The counts of a model.

use std::ops::{AddAssign, Sub};

use serde::Serialize;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counts of a [`Model`](super::Model), of all threads or of one. The difference of two snapshots covers the
        /// phase between them.
        ///
        /// Blocks are counted as the medium sees them: after the processor's cache and after the medium's own buffers.
        /// The `media_blocks` counter of `pmem` counts blocks as the code addresses them, without cache and buffers.
        /// That counter shows the requests of the code on any machine; these counts show the work of a given medium.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct MediaCounts { $($(#[$doc])* pub $name: u64),+ }

        impl AddAssign for MediaCounts {
            fn add_assign(&mut self, other: Self) { $(self.$name += other.$name;)+ }
        }

        impl Sub for MediaCounts {
            type Output = Self;
            /// Saturates at 0, so that snapshots taken in the wrong order do not panic.
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name)),+ }
            }
        }
    };
}

counts! {
    /// Bytes the code loaded.
    read_bytes,
    /// Bytes the code stored with ordinary stores.
    write_bytes,
    /// Bytes the code streamed.
    stream_bytes,
    /// Lines that the processor's cache served.
    cached_lines,
    /// Lines that the processor fetched from the medium, for loads and for stores.
    fetched_lines,
    /// Lines that reached the medium: written back, streamed or evicted.
    sent_lines,
    /// Of these, lines that left the cache to make room, not because they were flushed.
    evicted_lines,
    /// Flushes of lines that were clean in this thread's cache: they send nothing.
    needless_flushes,
    /// Fences.
    fences,
    /// Blocks that the medium read, including those read before a partial write.
    blocks_read,
    /// Blocks that the medium wrote.
    blocks_written,
    /// Blocks that had to be read before they were written because lines were missing.
    blocks_modified,
    /// Blocks written a second time because their lines arrived out of order.
    blocks_torn,
    /// Accesses that found their block in the medium's read or write buffer.
    read_buffer_hits,
    /// Lines that joined others in the medium's write buffer.
    write_buffer_hits,
    /// Lines fetched from a part on another node.
    remote_read_lines,
    /// Lines sent to a part on another node.
    remote_write_lines,
    /// Time charged, ns, summed over threads.
    charged_ns,
}

impl MediaCounts {
    /// Bytes that the medium read for each byte that the processor fetched, with blocks of `block_bytes`; 0 without
    /// reads. Read-modify-writes are left out: they count as writing.
    #[must_use]
    pub fn read_amplification(&self, block_bytes: u64) -> f64 {
        let blocks = self.blocks_read - self.blocks_modified.min(self.blocks_read);
        ratio(blocks * block_bytes, self.fetched_lines * lodestone_pmem::LINE_BYTES)
    }

    /// Bytes that the medium wrote for each byte sent to it; 0 without writes. Blocks that still wait in the write
    /// buffer are not counted as written: [`Model::drain`](super::Model::drain) sends them.
    #[must_use]
    pub fn write_amplification(&self, block_bytes: u64) -> f64 {
        ratio(self.blocks_written * block_bytes, self.sent_lines * lodestone_pmem::LINE_BYTES)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
