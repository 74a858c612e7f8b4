//! Repair: metadata is restored from its second copy; nothing is invented.
//!
//! 1. Damaged headers at the front are written from their copies: straight to the file and synced, because everything
//!    else is found through them.
//!    Parts of different lives, and ones shorter than header or state say, are left as they are from here on: nothing
//!    of one moment is written to another.
//! 2. The journal is replayed into the files. A damaged journal stops the repair, unless the caller accepts the loss:
//!    then the records before the damage are applied (unless the newest header page is gone: then they may be older
//!    than the files) and the rest is dropped.
//! 3. In a shared mapping: states and roots from their mirrors, header copies from the headers, zeroes into reserved
//!    space. A state of which both copies are gone is made anew from the length of the file, with the boot number of
//!    the other parts. Without an intact state in any part that is the time in seconds: larger than any count of opens,
//!    so that no boot number repeats.
//! 4. The files are synced and checked again.
//!
//! Each step can be repeated: a crash in the middle is cured by another repair.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use lodestone_width::exact_u16;
use zerocopy::IntoBytes;

use crate::addr::PmAddr;
use crate::block::{BlockFiles, check_journal, drop_journal, replay, rewrite_header};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::mapping::Backing;
use crate::memory::{Memory, Setup};
use crate::pool::layout::{FIXED_END, PAGE_BYTES, PartHeader, ROOTS_OFFSET, STATE_OFFSETS, StateSlot};
use crate::pool::lock::Hold;
use crate::pool::mirror::{self, Mirror};
use crate::pool::part::{self, PartFile};
use crate::pool::report::RepairReport;
use crate::pool::{PoolOptions, check, create, header, open, platform, roots, space, state};

/// Repairs the pool at `path`, which may not be open anywhere.
pub(crate) fn repair(path: &Path, options: &PoolOptions, accept_journal_loss: bool) -> Result<RepairReport> {
    let before = check::check(path, options)?;
    let mut done = Vec::new();
    if !before.is_clean() {
        let examined = check::examine(path, options, Hold::Write)?;
        if examined.complete {
            examined
                .parts
                .iter()
                .filter(|part| part.is_device())
                .try_for_each(|part| platform::verify_flush(&part.path))?;
            for (part, header) in examined.parts.iter().zip(&examined.headers) {
                restore_front(part, header, &mut done)?;
            }
            let lengths_fit =
                examined.parts.iter().zip(&examined.headers).all(|(part, header)| part.len >= header.part_bytes);
            let files = open::block_files(&examined.parts, &examined.headers[0])?;
            if lengths_fit && open::other_moments(&examined.parts, files.as_ref())?.is_empty() {
                if let Some(files) = files {
                    replay_or_drop(&files, accept_journal_loss, &mut done)?;
                    restore_journal_header(&files, &mut done)?;
                }
                repair_mapped(&examined.parts, &examined.headers, &mut done)?;
            }
        }
    }
    let after = check::check(path, options)?;
    Ok(RepairReport { before, done, after })
}

/// Step 1.
fn restore_front(part: &PartFile, header: &PartHeader, done: &mut Vec<String>) -> Result<()> {
    if part.headers()?.0 == *header {
        return Ok(());
    }
    if part.is_device() {
        let mappings = vec![part.map(Backing::Shared, 0)?];
        let memory =
            Memory::new(Setup { parts: mappings, domain: Domain::Dax, read_only: false, tracer: None, medium: None });
        memory.put(part::front(0), header);
        // Everything that follows is found through the header.
        memory.persist(PmAddr::NULL, PAGE_BYTES);
    } else {
        let failed = |e| Error::io(&part.path, "writing the header", "check the device and try again", e);
        part.file.write_all_at(header.as_bytes(), 0).and_then(|()| part.file.sync_all()).map_err(failed)?;
    }
    done.push(format!("{}: the header, from its copy at the end", part.path.display()));
    Ok(())
}

/// Step 2.
fn replay_or_drop(files: &BlockFiles, accept_loss: bool, done: &mut Vec<String>) -> Result<()> {
    match replay(files) {
        Ok(report) if report.groups == 0 => Ok(()),
        Ok(report) => {
            done.push(format!("{}: {} commit groups replayed from the journal", files.path.display(), report.groups));
            Ok(())
        }
        Err(Error::Format { finding, .. }) if accept_loss => {
            drop_journal(files)?;
            done.push(format!(
                "{}: the journal was emptied, its damaged rest is LOST ({finding})",
                files.path.display()
            ));
            Ok(())
        }
        // The check that follows tells what is damaged.
        Err(Error::Format { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes the header of the journal again when one of its pages is damaged.
fn restore_journal_header(files: &BlockFiles, done: &mut Vec<String>) -> Result<()> {
    if check_journal(files)?.iter().all(|found| found.is_note) || replay(files).is_err() {
        return Ok(());
    }
    rewrite_header(files)?;
    done.push(format!("{}: the damaged header page of the journal", files.path.display()));
    Ok(())
}

/// Steps 3 and 4.
fn repair_mapped(parts: &[PartFile], headers: &[PartHeader], done: &mut Vec<String>) -> Result<()> {
    let devices = parts.iter().any(PartFile::is_device);
    parts.iter().try_for_each(space::fill_holes)?;
    let mappings = parts.iter().map(|part| part.map(Backing::Shared, 0)).collect::<Result<Vec<_>>>()?;
    // Files are synced as a whole below; a device needs its lines flushed.
    let domain = if devices { Domain::Dax } else { Domain::Process };
    let memory = Memory::new(Setup { parts: mappings, domain, read_only: false, tracer: None, medium: None });
    let boot = boot_of_set(&memory, parts, headers);
    for (index, (part, header)) in parts.iter().zip(headers).enumerate() {
        repair_part(&memory, exact_u16(index), part, header, boot, done);
    }
    let healed = roots::heal(&memory);
    if healed > 0 {
        done.push(format!("{}: {healed} roots, from their other copies", parts[0].path.display()));
    }
    drop(memory);
    for part in parts.iter().filter(|part| !part.is_device()) {
        // The report lists the repairs: they must be on the medium before it is returned.
        part.file.sync_all().map_err(|e| Error::io(&part.path, "syncing", "check the device and try again", e))?;
    }
    create::sync_folder(&parts[0].path)
}

/// The boot number of states that are made anew: the smallest of the intact states, because an open that died half-way
/// left further parts one ahead of part 0.
fn boot_of_set(memory: &Memory, parts: &[PartFile], headers: &[PartHeader]) -> u64 {
    let intact = parts.iter().zip(headers).enumerate().filter_map(|(index, (part, header))| {
        state::read(memory, exact_u16(index)).filter(|state| state::nonsense(state, header, part.len).is_none())
    });
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1 << 31, |now| now.as_secs());
    intact.map(|state| state.boot).min().unwrap_or_else(seconds)
}

fn repair_part(memory: &Memory, number: u16, part: &PartFile, header: &PartHeader, boot: u64, done: &mut Vec<String>) {
    let path = part.path.display();
    let mirror = Mirror::read(memory, state::places(number));
    let state = match mirror.newest() {
        Some((state, _)) => {
            if !mirror.is_at_rest() {
                mirror::write(memory, state::places(number), state);
                done.push(format!("{path}: the state, from its other copy"));
            }
            state
        }
        None => {
            let part_bytes = part.len / PAGE_BYTES * PAGE_BYTES;
            done.push(format!("{path}: a new state, with boot number {boot} and a length of {part_bytes} bytes"));
            state::write(memory, number, StateSlot { boot, part_bytes, ..StateSlot::default() })
        }
    };
    if state::nonsense(&state, header, part.len).is_some() {
        return;
    }
    let place = part::copy(number, state.part_bytes);
    if memory.get(place) != *header {
        memory.put(place, header);
        // Nothing may go on as if the copy were there before it is.
        memory.persist(place.addr(), PAGE_BYTES);
        done.push(format!("{path}: the copy of the header at {:#x}", header::copy_offset(state.part_bytes)));
    }
    clear_reserved(memory, number, part, header, done);
}

fn clear_reserved(memory: &Memory, number: u16, part: &PartFile, header: &PartHeader, done: &mut Vec<String>) {
    let journal_end = (header.journal_offset + header.journal_bytes).next_multiple_of(8);
    let is_state = |word: u64| STATE_OFFSETS.iter().any(|slot| (*slot..*slot + 64).contains(&word));
    let roots = if number == 0 { FIXED_END } else { ROOTS_OFFSET };
    let mut cleared = 0;
    for (start, end) in [(PAGE_BYTES, ROOTS_OFFSET), (roots, FIXED_END), (journal_end, header.heap_offset)] {
        for word in (start..end).step_by(8).filter(|word| !is_state(*word)) {
            let at = PmAddr::new(number, word);
            if memory.load(at) != 0 {
                memory.store(at, 0);
                // For the fence below; zeroes need no order among each other.
                memory.flush(at, 8);
                cleared += 1;
            }
        }
    }
    if cleared > 0 {
        // The report says that it is done: the zeroes must be persistent before it is returned.
        memory.fence();
        done.push(format!("{}: {cleared} words of reserved space zeroed", part.path.display()));
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::block::journal::{JOURNAL_BYTES_MIN, JournalArea, JournalState, new_life};
    use crate::block::record::{Record, UNIT_BYTES};
    use crate::storage::{Failing, FaultPlan, FaultyStorage, SimulatedDisk, Storage};

    const JOURNAL: u64 = 4096;
    const RING: u64 = JOURNAL + 2 * UNIT_BYTES;
    const DATA: u64 = 128 << 10;

    fn files(disk: Arc<dyn Storage>) -> BlockFiles {
        BlockFiles {
            path: PathBuf::from("sim.pool"),
            journal: Arc::clone(&disk),
            direct: vec![Arc::clone(&disk)],
            parts: vec![disk],
            part_bytes: vec![132 << 10],
            journal_offset: JOURNAL,
            journal_bytes: JOURNAL_BYTES_MIN,
        }
    }

    /// Five groups, each with its number in a line that all share and in one of its own; then `damage` is destroyed.
    fn damaged_journal(damage: &[u64]) -> Result<Vec<u8>> {
        let disk = SimulatedDisk::new(vec![0; 132 << 10]);
        let path = Path::new("sim.pool");
        let area = JournalArea { path, storage: &disk, offset: JOURNAL, bytes: JOURNAL_BYTES_MIN };
        let life = new_life(path)?;
        for position in (0..14 * UNIT_BYTES).step_by(UNIT_BYTES as usize) {
            let mut record = Record::default();
            record.seal(&new_life(path)?, position, 1);
            area.append(&record, position).expect("room");
        }
        area.write_header(&JournalState { life, tail: 14 * UNIT_BYTES, group: 1, closed: false })?;
        for group in 1..=5 {
            let position = (13 + group) * UNIT_BYTES;
            let mut record = Record::default();
            [DATA, DATA + group * 64].into_iter().for_each(|addr| record.push(addr, &[group; 8]));
            record.seal(&life, position, group);
            area.append(&record, position).expect("room");
        }
        let mut content = disk.content();
        damage.iter().for_each(|place| content[*place as usize] ^= 0x40);
        Ok(content)
    }

    fn dropped(disk: Arc<dyn Storage>) -> Result<()> {
        replay_or_drop(&files(disk), true, &mut Vec::new())
    }

    #[test]
    fn a_dropped_journal_whose_dropping_was_cut_short_is_told() -> Result<()> {
        // The third record, which is the first of the ring; both header pages.
        for damage in [vec![RING + 100], vec![JOURNAL + 16, JOURNAL + UNIT_BYTES + 16]] {
            let before = damaged_journal(&damage)?;
            let whole = Arc::new(SimulatedDisk::new(before.clone()));
            dropped(whole.clone())?;
            let whole = whole.content();
            let mut told = 0;
            for (sync, survivors) in (1..=6).flat_map(|sync| (0..40_u64).map(move |survivors| (sync, survivors))) {
                let disk = Arc::new(SimulatedDisk::new(before.clone()));
                let plan = FaultPlan { fail_sync: Some(Failing::for_ever(sync)), ..FaultPlan::default() };
                let cut_short = dropped(Arc::new(FaultyStorage::new(disk.clone(), plan))).is_err();
                // Some or all sectors, and the headers alone.
                let mut choice = survivors.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let content = disk.power_cut(|sector| {
                    choice = choice.rotate_left(7).wrapping_mul(5).wrapping_add(1);
                    if survivors == 1 { (sector as u64 * 512) < RING } else { survivors == 0 || choice & 8 != 0 }
                });
                let reborn = Arc::new(SimulatedDisk::new(content));
                if replay(&files(reborn.clone())).is_err() {
                    told += 1;
                    assert!(cut_short && !check_journal(&files(reborn.clone()))?.is_empty());
                    dropped(reborn.clone())?;
                }
                let found = reborn.content();
                assert!(found[DATA as usize..] == whole[DATA as usize..], "sync {sync}, survivors {survivors}");
            }
            assert!(told > 0, "no power cut came early enough to leave the damage");
        }
        Ok(())
    }

    #[test]
    fn blank_headers_before_records_are_told() -> Result<()> {
        let mut content = damaged_journal(&[])?;
        content[JOURNAL as usize..][..2 * UNIT_BYTES as usize].fill(0);
        let disk = Arc::new(SimulatedDisk::new(content));
        let text = replay(&files(disk.clone())).expect_err("records without a header").to_string();
        assert!(text.contains("both journal headers are blank"), "{text}");
        assert_eq!(check_journal(&files(disk.clone()))?.len(), 1);
        dropped(disk.clone())?;
        assert_eq!((replay(&files(disk.clone()))?.groups, check_journal(&files(disk))?.len()), (0, 0));
        Ok(())
    }

    #[test]
    fn a_damaged_header_page_is_written_again() -> Result<()> {
        for page in 0..2 {
            let content = damaged_journal(&[JOURNAL + page * UNIT_BYTES + 16])?;
            let disk = Arc::new(SimulatedDisk::new(content));
            let files = files(disk.clone());
            restore_journal_header(&files, &mut Vec::new())?;
            assert_eq!((disk.content()[DATA as usize], check_journal(&files)?.len()), (5, 0));
        }
        Ok(())
    }
}
