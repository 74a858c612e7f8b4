//! Reads a pool into the files of a copy: all of it once, then again and again the pages that were flushed meanwhile,
//! and at last those few that are left, while writers are stopped.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestone_width::{exact_u16, to_u64, to_usize};
use zerocopy::IntoBytes;

use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::changes::Marking;
use crate::error::{Error, Result};
use crate::gate::ClosedGate;
use crate::memory::Memory;
use crate::pool::copy::pace::{Pace, UNSYNCED_MAX};
use crate::pool::create::NewFile;
use crate::pool::layout::{PAGE_BYTES, PartHeader};
use crate::pool::{Pool, header, space};

/// Bytes that are copied at a time.
const CHUNK_BYTES: u64 = 64 << 10;
/// Readings of a line while writers are stopped, before the copy fails: a thread stores to it without ever fencing.
const READINGS_MAX: u32 = 1 << 20;
/// Readings of a line beside writers.
const READINGS_MAX_BESIDE: u32 = 1 << 10;
/// Pages that are few enough to stop the writers for: 2 MiB.
const PAGES_LAST: u64 = 512;
/// Passes beside writers, at most: then they are stopped for all pages that are left.
const PASSES_MAX: u32 = 32;
/// Bytes that are held in memory, at most, while writers are stopped.
const HELD_BYTES_MAX: usize = 64 << 20;

/// The files of a copy in the making.
pub(super) struct Copying<'p> {
    pub(super) pool: &'p Pool,
    /// Of the targets, by part number.
    pub(super) headers: Vec<PartHeader>,
    pub(super) files: Vec<NewFile>,
    /// Bytes of the parts that the files have.
    pub(super) lengths: Vec<u64>,
    pub(super) pace: Pace,
    pub(super) figures: Figures,
}

/// As in [`CopyReport`](super::CopyReport).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) written_bytes: u64,
    pub(super) rewritten_bytes: u64,
    pub(super) passes: u32,
    pub(super) writers_stopped_ns: u64,
}

/// Bytes of a part that are still to be written.
struct Piece {
    part: usize,
    offset: u64,
    bytes: Vec<u8>,
}

impl Copying<'_> {
    /// Copies a pool without writers.
    pub(super) fn copy_all(&mut self) -> Result<()> {
        self.copy_all_but(None)
    }

    /// The first pass. Beside writers it marks pages that change while they are read.
    fn copy_all_but(&mut self, marking: Option<&Marking<'_>>) -> Result<()> {
        self.figures.passes = 1;
        self.pace.begin();
        let mut unsynced = 0;
        let mut chunk = vec![0; to_usize(CHUNK_BYTES)];
        for part in 0..self.headers.len() {
            self.write_headers(part)?;
            self.figures.written_bytes += 2 * PAGE_BYTES;
            for area in self.areas(part) {
                for offset in (area.start..area.end).step_by(to_usize(CHUNK_BYTES)) {
                    let data = &mut chunk[..to_usize((area.end - offset).min(CHUNK_BYTES))];
                    self.read(part, offset, data, marking)?;
                    // The file was made with zeroes.
                    if data.iter().any(|byte| *byte != 0) {
                        self.write(part, offset, data)?;
                        self.figures.written_bytes += to_u64(data.len());
                        unsynced += to_u64(data.len());
                    }
                    if marking.is_some() {
                        self.rest(part, &mut unsynced)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Copies a pool beside its writers. `stop` stops them at their next fence.
    pub(super) fn copy_beside_writers<'g>(
        &mut self,
        marking: &Marking<'_>,
        stop: impl FnOnce() -> Result<ClosedGate<'g>>,
    ) -> Result<()> {
        self.copy_all_but(Some(marking))?;
        let states = loop {
            let present = |part: usize| self.pool.shared.part_bytes[part].load(Ordering::Acquire);
            let present: Vec<u64> = (0..self.lengths.len()).map(present).collect();
            self.follow_growth(marking, &present)?;
            if marking.count() > PAGES_LAST && self.figures.passes < PASSES_MAX {
                self.copy_marked(marking)?;
                continue;
            }
            // From here on no part grows.
            let states = self.pool.shared.states();
            let present: Vec<u64> = states.iter().map(|state| state.part_bytes).collect();
            let has_grown = self.follow_growth(marking, &present)?;
            if !has_grown || self.figures.passes >= PASSES_MAX {
                break states;
            }
            // Others wait for the states while a part that has just grown is copied.
            drop(states);
            self.copy_marked(marking)?;
        };
        let gate = stop()?;
        let started = Instant::now();
        // Not to the files, as long as memory suffices: a file system may let a writer wait.
        let (mut pieces, mut held) = (Vec::new(), 0);
        let mut rewritten = 0;
        for part in 0..self.headers.len() {
            marking.take(exact_u16(part), |offset, bytes| {
                for (offset, bytes) in self.parts_to_copy(part, offset, bytes) {
                    let mut piece = Piece { part, offset, bytes: vec![0; to_usize(bytes)] };
                    self.read(part, offset, &mut piece.bytes, None)?;
                    rewritten += bytes;
                    if held < HELD_BYTES_MAX {
                        held += piece.bytes.len();
                        pieces.push(piece);
                    } else {
                        self.write_piece(&piece)?;
                    }
                }
                Ok(())
            })?;
        }
        drop(gate);
        self.figures.writers_stopped_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        drop(states);
        self.figures.rewritten_bytes += rewritten;
        pieces.iter().try_for_each(|piece| self.write_piece(piece))
    }

    /// Copies the pages that are marked.
    fn copy_marked(&mut self, marking: &Marking<'_>) -> Result<()> {
        self.figures.passes += 1;
        self.pace.hurry();
        let (mut rewritten, mut unsynced) = (0, 0);
        let mut chunk = vec![0; to_usize(CHUNK_BYTES)];
        for part in 0..self.headers.len() {
            marking.take(exact_u16(part), |offset, bytes| {
                for (offset, bytes) in self.parts_to_copy(part, offset, bytes) {
                    for from in (offset..offset + bytes).step_by(to_usize(CHUNK_BYTES)) {
                        let data = &mut chunk[..to_usize((offset + bytes - from).min(CHUNK_BYTES))];
                        self.read(part, from, data, Some(marking))?;
                        self.write(part, from, data)?;
                        rewritten += to_u64(data.len());
                        unsynced += to_u64(data.len());
                        self.rest(part, &mut unsynced)?;
                    }
                }
                Ok(())
            })?;
        }
        self.figures.rewritten_bytes += rewritten;
        Ok(())
    }

    /// Lets the writers go on, after a chunk of work. So many bytes of the file of a part were written and not synced.
    fn rest(&mut self, part: usize, unsynced: &mut u64) -> Result<()> {
        if *unsynced >= UNSYNCED_MAX {
            *unsynced = 0;
            let (hint, file) = ("the device; the pool itself is untouched", &self.files[part]);
            file.file.sync_data().map_err(|e| Error::io(&file.target, "syncing the copy", hint, e))?;
        }
        self.pace.rest();
        Ok(())
    }

    /// Makes the files as long as the parts are at present, and marks what is new. Returns whether one has grown.
    fn follow_growth(&mut self, marking: &Marking<'_>, present: &[u64]) -> Result<bool> {
        let mut has_grown = false;
        for (part, new) in present.iter().copied().enumerate() {
            let old = self.lengths[part];
            if new <= old {
                continue;
            }
            has_grown = true;
            space::allocate(&self.files[part].target, &self.files[part].file, old, new - old)?;
            self.lengths[part] = new;
            self.write_headers(part)?;
            // Also the page that had the copy of the header before.
            let from = header::copy_offset(old);
            marking.mark(PmAddr::new(exact_u16(part), from), header::copy_offset(new) - from);
        }
        Ok(has_grown)
    }

    /// The ranges of a part that are copied: everything but headers and journal.
    fn areas(&self, part: usize) -> [std::ops::Range<u64>; 2] {
        let header = &self.headers[part];
        [PAGE_BYTES..header.journal_offset, header.heap_offset..header::copy_offset(self.lengths[part])]
    }

    /// The parts of some bytes that are copied: offsets and lengths.
    fn parts_to_copy(&self, part: usize, offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        self.areas(part).into_iter().filter_map(move |area| {
            let (start, end) = (area.start.max(offset), area.end.min(offset + bytes));
            (start < end).then(|| (start, end - start))
        })
    }

    fn write_headers(&self, part: usize) -> Result<()> {
        let header = self.headers[part].as_bytes();
        self.write(part, header::copy_offset(self.lengths[part]), header)?;
        self.write(part, 0, header)
    }

    fn write_piece(&self, piece: &Piece) -> Result<()> {
        self.write(piece.part, piece.offset, &piece.bytes)
    }

    fn write(&self, part: usize, offset: u64, data: &[u8]) -> Result<()> {
        let (hint, file) = ("free space on the file system; the pool itself is untouched", &self.files[part]);
        file.file.write_all_at(data, offset).map_err(|e| Error::io(&file.target, "writing the copy", hint, e))
    }

    /// Reads bytes of a part, each line as it was at one moment. With `marking`, a page whose line changes all the time
    /// is marked for the next pass.
    fn read(&self, part: usize, offset: u64, out: &mut [u8], marking: Option<&Marking<'_>>) -> Result<()> {
        let at = PmAddr::new(exact_u16(part), offset);
        let readings_max = if marking.is_some() { READINGS_MAX_BESIDE } else { READINGS_MAX };
        read_stable(&self.pool.memory, at, out, readings_max, |line| {
            if let Some(marking) = marking {
                marking.mark(line.start(), LINE_BYTES);
                return Ok(());
            }
            let source = std::io::Error::new(std::io::ErrorKind::TimedOut, format!("{line:?} changes all the time"));
            let hint = "a thread stores there without ever fencing: stop it and try again";
            Err(Error::io(self.pool.path(), "copying", hint, source))
        })
    }
}

/// Reads whole lines from `at`, each as it was at one moment. A line that changes between two readings, so many times,
/// is told to `unstable`.
fn read_stable(
    memory: &Memory,
    at: PmAddr,
    out: &mut [u8],
    readings_max: u32,
    unstable: impl Fn(LineAddr) -> Result<()>,
) -> Result<()> {
    let mut line = at.line();
    for target in out.chunks_mut(to_usize(LINE_BYTES)) {
        let mut words = memory.raw_line(line);
        let mut readings = 1;
        loop {
            let again = memory.raw_line(line);
            if again == words {
                break;
            }
            words = again;
            if readings == readings_max {
                unstable(line)?;
                break;
            }
            readings += 1;
            std::hint::spin_loop();
        }
        target.copy_from_slice(&words.as_bytes()[..target.len()]);
        line = line.next();
    }
    Ok(())
}
