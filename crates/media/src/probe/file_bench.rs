//! Cells of a file through the kernel: pread and pwrite, with and without the page cache, synced, and by io_uring.
//!
//! Invariants: a direct access uses a buffer and offsets of whole pages; writes go only to the given range.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use super::address::Walk;
use super::error::Result;
use super::harness::{self, Group, Measured, Worker};
use super::plan::{FileAccess, Job};
use super::uring::UringWorker;
use super::{Access, Budget, CellKey, Operation, Pattern, ProbeError};

/// Alignment of buffers for direct accesses.
pub(super) const PAGE_BYTES: usize = 4096;

/// A file that is measured.
#[derive(Debug)]
pub(super) struct FileBench {
    file: File,
    direct: Option<File>,
    writable: bool,
    uring: bool,
    range_bytes: u64,
    cpus: Vec<usize>,
    /// Requests that the kernel refuses, for the notes.
    pub(super) refusals: Vec<String>,
}

impl FileBench {
    /// The first `range_bytes` bytes of `file`. Finds out which ways of access the kernel allows.
    pub(super) fn new(file: &File, writable: bool, range_bytes: u64, cpus: Vec<usize>) -> Result<Self> {
        let again = |source| ProbeError::Io { action: "opening the file again", source };
        let file = file.try_clone().map_err(again)?;
        let mut refusals = Vec::new();
        let direct = match open_direct(&file, writable) {
            Ok(direct) => Some(direct),
            Err(error) => {
                refusals.push(format!(
                    "file: direct accesses are not measured, the kernel refuses O_DIRECT here ({error})"
                ));
                None
            }
        };
        let uring = match super::uring::refusal() {
            None => true,
            Some(refusal) => {
                refusals.push(format!("file: io_uring is not measured, the kernel refuses it ({refusal})"));
                false
            }
        };
        Ok(Self { file, direct, writable, uring, range_bytes, cpus, refusals })
    }

    /// The ways of access that can be measured.
    pub(super) fn access(&self) -> FileAccess {
        FileAccess { writable: self.writable, direct: self.direct.is_some(), uring: self.uring }
    }

    /// Writes back all dirty data.
    pub(super) fn settle(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        self.file.sync_data().map_err(|source| ProbeError::Io { action: "fdatasync", source })
    }

    /// Measures one job.
    pub(super) fn run(&self, job: &Job, budget: &Budget) -> Result<Vec<Measured>> {
        let groups: Vec<Group> =
            job.groups.iter().map(|key| Group { threads: key.threads, access_bytes: key.access_bytes }).collect();
        let make = |group: usize, index: u32| self.worker(&job.groups[group], index);
        harness::measure(&groups, budget, &self.cpus, &make)
    }

    fn worker(&self, key: &CellKey, index: u32) -> Result<Box<dyn Worker + '_>> {
        let slice = self.range_bytes / u64::from(key.threads.max(1)) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let Some(walk) = Walk::new(slice * u64::from(index), slice, key.access_bytes, 0) else {
            let finding = format!("{slice} bytes for a thread hold no access of {}", key.access_bytes);
            return Err(ProbeError::Invalid { what: "size", finding, hint: "give more --size".into() });
        };
        let file = match key.access {
            Access::Direct | Access::Uring => self.direct.as_ref().unwrap_or(&self.file),
            _ => &self.file,
        };
        if key.access == Access::Uring {
            return Ok(Box::new(UringWorker::new(file, walk, key)?));
        }
        let buffer = Buffer::new(key.access_bytes as usize);
        Ok(Box::new(FileWorker { file, walk, key: *key, step: 0, buffer }))
    }
}

/// Opens `file` once more, with `O_DIRECT`, and reads to see whether that works.
fn open_direct(file: &File, writable: bool) -> io::Result<File> {
    // A file without a name has no other path than this.
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let flags = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    let direct = OpenOptions::new().read(true).write(writable).custom_flags(flags).open(path)?;
    let mut buffer = Buffer::new(PAGE_BYTES);
    // Reading an empty file returns no bytes, which is not a refusal.
    let _ = direct.read_at(buffer.bytes_mut(), 0)?;
    Ok(direct)
}

/// Bytes that start at a page.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(super) fn new(len: usize) -> Self {
        let bytes = vec![0xA5; len + PAGE_BYTES];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { bytes, start, len }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

struct FileWorker<'f> {
    file: &'f File,
    walk: Walk,
    key: CellKey,
    step: u64,
    buffer: Buffer,
}

impl Worker for FileWorker<'_> {
    fn work(&mut self, count: u64) -> Result<()> {
        let read = |source| ProbeError::Io { action: "pread", source };
        let write = |source| ProbeError::Io { action: "pwrite", source };
        for step in self.step..self.step + count {
            let offset = match self.key.pattern {
                Pattern::Sequential => self.walk.sequential(step),
                _ => self.walk.random(step),
            };
            let bytes = self.buffer.bytes_mut();
            match self.key.operation {
                Operation::Read => self.file.read_exact_at(bytes, offset).map_err(read)?,
                Operation::Write => self.file.write_all_at(bytes, offset).map_err(write)?,
            }
            if self.key.access == Access::BufferedSync {
                self.file.sync_data().map_err(|source| ProbeError::Io { action: "fdatasync", source })?;
            }
        }
        self.step += count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::plan::{Frame, Plan};
    use crate::probe::{Section, Subject};
    use std::time::Duration;

    #[test]
    fn every_way_to_a_file_is_measured_and_the_rest_is_left_alone() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 80 << 10]).expect("file");
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
        let bench = FileBench::new(&file, true, 64 << 10, Vec::new()).expect("bench");
        let frame = Frame {
            range_bytes: 64 << 10,
            threads_max: 1,
            sections: vec![Section::Compare],
            read_only: false,
            is_dram: true,
            is_virtual: false,
            file: Some(bench.access()),
            has_far_node: false,
        };
        let short = Budget { repetition: Duration::from_micros(100), repetitions: 2, virtual_operations: 1 };
        let plan = Plan::new(&frame);
        assert!(plan.jobs.iter().all(|job| job.groups[0].subject == Subject::File));
        for job in &plan.jobs {
            let measured = bench.run(job, &short).expect("measured");
            assert!(measured[0].operations > 0 && measured[0].latency_ns.median > 0.0, "{job:?}");
        }
        assert!(plan.jobs.len() >= 15, "{}", plan.jobs.len());
        let content = std::fs::read(&path).expect("read");
        assert!(content.len() == 80 << 10 && content[64 << 10..].iter().all(|byte| *byte == 7));
        assert!(content[..64 << 10].contains(&0xA5), "writes went to the file");
    }

    #[test]
    fn buffers_start_at_a_page() {
        for len in [1, 4096, 5000] {
            let mut buffer = Buffer::new(len);
            let bytes = buffer.bytes_mut();
            assert_eq!((bytes.len(), bytes.as_ptr() as usize % PAGE_BYTES), (len, 0));
        }
    }
}
