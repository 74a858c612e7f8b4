//! Accesses to a file through io_uring, with enough requests in flight to keep a device busy.
//!
//! 1. The ring is filled with requests. Each has its own buffer.
//! 2. `work(n)` waits for n completions and replaces each by a new request, so the depth stays the same.
//! 3. Dropping it waits for all requests still in flight: the kernel writes into the buffers until then.
//!
//! Invariant: a buffer is neither moved, freed nor used again while a request with it is in flight.
#![expect(unsafe_code, reason = "requests name buffers that the kernel fills while this code runs on")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::address::Walk;
use super::error::Result;
use super::file_bench::Buffer;
use super::harness::Worker;
use super::{CellKey, Operation, Pattern, ProbeError};

/// Requests in flight.
pub(super) const DEPTH: u32 = 32;
/// Most bytes of all buffers of a ring.
const BUFFERS_BYTES_MAX: u64 = 64 << 20;

/// The reason why the kernel refuses an io_uring; `None` if it does not.
pub(super) fn refusal() -> Option<String> {
    IoUring::new(2).err().map(|error| error.to_string())
}

/// One thread's ring.
pub(super) struct UringWorker<'f> {
    ring: IoUring,
    file: &'f File,
    walk: Walk,
    key: CellKey,
    step: u64,
    buffers: Vec<Buffer>,
    in_flight: u64,
}

fn failed(source: io::Error) -> ProbeError {
    ProbeError::Io { action: "io_uring", source }
}

impl<'f> UringWorker<'f> {
    pub(super) fn new(file: &'f File, walk: Walk, key: &CellKey) -> Result<Self> {
        let depth = (BUFFERS_BYTES_MAX / key.access_bytes.max(1)).clamp(1, u64::from(DEPTH));
        let ring = IoUring::new(DEPTH).map_err(failed)?;
        let buffers = (0..depth).map(|_| Buffer::new(key.access_bytes as usize)).collect();
        let mut worker = Self { ring, file, walk, key: *key, step: 0, buffers, in_flight: 0 };
        for slot in 0..worker.buffers.len() {
            worker.push(slot)?;
        }
        Ok(worker)
    }

    /// Puts a request with buffer `slot`, which is not in flight, into the ring.
    fn push(&mut self, slot: usize) -> Result<()> {
        let offset = match self.key.pattern {
            Pattern::Sequential => self.walk.sequential(self.step),
            _ => self.walk.random(self.step),
        };
        self.step += 1;
        let (file, bytes) = (types::Fd(self.file.as_raw_fd()), self.buffers[slot].bytes_mut());
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = match self.key.operation {
            Operation::Read => opcode::Read::new(file, bytes.as_mut_ptr(), len).offset(offset).build(),
            Operation::Write => opcode::Write::new(file, bytes.as_ptr(), len).offset(offset).build(),
        };
        // SAFETY: the file outlives this value. The buffer's bytes are on the heap and owned by `self`. They are used
        // again only after the completion that names this slot, and `drop` waits for all completions.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.map_err(|_| failed(io::Error::other("the submission queue is full")))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Waits for one completion. Returns its slot and the bytes that it moved.
    fn complete(&mut self) -> Result<(usize, usize)> {
        loop {
            if let Some(done) = self.ring.completion().next() {
                self.in_flight -= 1;
                let moved =
                    usize::try_from(done.result()).map_err(|_| failed(io::Error::from_raw_os_error(-done.result())))?;
                return Ok((done.user_data() as usize, moved));
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

impl Worker for UringWorker<'_> {
    fn work(&mut self, count: u64) -> Result<()> {
        for _ in 0..count {
            let (slot, moved) = self.complete()?;
            if moved as u64 != self.key.access_bytes {
                return Err(failed(io::Error::other(format!("{moved} of {} bytes moved", self.key.access_bytes))));
            }
            self.push(slot)?;
            // Submit now: pushed requests would otherwise leave only with the next wait, and a full queue would keep
            // the device idle.
            self.ring.submit().map_err(failed)?;
        }
        Ok(())
    }
}

impl Drop for UringWorker<'_> {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            let before = self.in_flight;
            if self.complete().is_err() && self.in_flight == before {
                // The ring no longer answers, and the kernel may still write into the buffers, so they are never freed.
                std::mem::forget(std::mem::take(&mut self.buffers));
                return;
            }
        }
    }
}
