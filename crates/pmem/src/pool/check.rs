//! The check of a pool that is not open: everything that is checksummed or must be zero, without changing a byte.
//!
//! 1. Headers: the front of each part by itself, else by its copy at the end of the file.
//! 2. The medium: every byte is read with pread(2), so that a bad sector is a finding and not a signal.
//! 3. The journal as it is on the medium. Then it is replayed into a private view. State, roots and header copies of a
//!    crashed pool may be newer there than in the file.
//! 4. In that view: states and their mirrors, lengths, lives of the parts, header copies, roots and their mirrors,
//!    where roots point, reserved space.
//!
//! A crash in the middle of a write leaves a mirrored line whose two places differ: that is a note. A place that fails
//! its checksum is damaged, or torn by a crash. Either way the other place has the record, and either way it is
//! reported.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestone_width::{exact_u16, to_usize};

use crate::addr::PmAddr;
use crate::block::check_journal;
use crate::block::journal::JournalFinding;
use crate::error::Result;
use crate::mapping::Backing;
use crate::memory::{Memory, Setup};
use crate::pool::header::HeaderFault;
use crate::pool::layout::{FIXED_END, PAGE_BYTES, PartHeader, ROOTS_OFFSET, STATE_OFFSETS, StateSlot, crc_of};
use crate::pool::lock::Hold;
use crate::pool::mirror::{Mirror, Slot};
use crate::pool::part::{self, PartFile};
use crate::pool::report::{PoolFinding, PoolReport};
use crate::pool::{PoolOptions, header, open, roots, set, state};

/// Bytes read at a time when the medium is probed.
const PROBE_BYTES: u64 = 1 << 20;
const RESTORE: &str = "restore a backup";

/// The parts of a pool with the best header known of each.
pub(crate) struct Examined {
    pub(crate) parts: Vec<PartFile>,
    pub(crate) headers: Vec<PartHeader>,
    pub(crate) report: PoolReport,
    /// Whether all parts are there with a usable header, so that looking deeper makes sense.
    pub(crate) complete: bool,
}

/// Checks the pool at `path`.
pub(crate) fn check(path: &Path, options: &PoolOptions) -> Result<PoolReport> {
    let hold = if options.allow_concurrent_writer { Hold::Nothing } else { Hold::Read };
    let mut examined = examine(path, options, hold)?;
    if examined.complete && probe_media(&examined.parts, &mut examined.report) {
        check_inside(&mut examined);
    }
    Ok(examined.report)
}

/// Step 1: opens all parts and finds a header for each.
pub(crate) fn examine(path: &Path, options: &PoolOptions, hold: Hold) -> Result<Examined> {
    let first = PartFile::open(path, hold, &options.sysfs_root)?;
    let mut report = PoolReport { paths: vec![path.to_owned()], ..PoolReport::default() };
    let Some(main) = examine_header(&first, &mut report) else {
        return Ok(Examined { parts: vec![first], headers: Vec::new(), report, complete: false });
    };
    let mut examined = Examined { parts: vec![first], headers: vec![main], report, complete: true };
    if main.part_index != 0 {
        let finding = format!("this is part {} of a pool", main.part_index);
        examined.report.findings.push(PoolFinding::lost(path, 72, finding, "check the pool by the path of its part 0"));
        examined.complete = false;
        return Ok(examined);
    }
    for index in 1..usize::from(main.part_count) {
        if let Err(error) = examine_other(&mut examined, options, hold, index) {
            examined.report.findings.push(PoolFinding::from_error(path, error));
            examined.complete = false;
            break;
        }
    }
    Ok(examined)
}

fn examine_other(examined: &mut Examined, options: &PoolOptions, hold: Hold, index: usize) -> Result<()> {
    let main = examined.headers[0];
    let found = set::find_part(&examined.parts[0].path, &main, options, index)?;
    let part = PartFile::open(&found, hold, &options.sysfs_root)?;
    examined.report.paths.push(found);
    let header = examine_header(&part, &mut examined.report);
    if let Some(header) = header {
        set::verify_identity(&part.path, &main, &header, index)?;
        examined.headers.push(header);
    } else {
        examined.complete = false;
    }
    examined.parts.push(part);
    Ok(())
}

/// The header of `part`: the front, or the copy when the front is damaged and the copy is not.
fn examine_header(part: &PartFile, report: &mut PoolReport) -> Option<PartHeader> {
    let path = &part.path;
    if part.len < PAGE_BYTES {
        let finding =
            if part.len == 0 { "the file is empty".into() } else { format!("the file has {} bytes", part.len) };
        report.findings.push(PoolFinding::lost(path, part.len, format!("{finding}; a header alone has 4096"), RESTORE));
        return None;
    }
    let (front, copy) = match part.headers() {
        Ok(found) => found,
        Err(error) => {
            report.findings.push(PoolFinding::from_error(path, error));
            return None;
        }
    };
    let Err(found) = header::verify(&front, true) else { return Some(front) };
    // An intact header of a newer version or with unknown features is no damage that a copy could heal.
    let front_is_intact = front.magic == crate::pool::layout::MAGIC && front.crc == crc_of(&front);
    match copy.filter(|copy| !front_is_intact && header::verify(copy, true).is_ok()) {
        Some(copy) => {
            let finding = format!("the header is damaged: {}; its copy at the end is intact", found.finding);
            report.findings.push(PoolFinding::repairable(path, found.offset, finding));
            Some(copy)
        }
        None => {
            report.findings.push(PoolFinding::lost_as(path, found));
            None
        }
    }
}

/// Step 2: reads every byte. `false` when a mapping of a part could raise a signal.
fn probe_media(parts: &[PartFile], report: &mut PoolReport) -> bool {
    let mut readable = true;
    for part in parts.iter().filter(|part| !part.is_device()) {
        let mut buffer = vec![0; to_usize(PROBE_BYTES)];
        let mut offset = 0;
        while offset < part.len {
            let step = (part.len - offset).min(PROBE_BYTES);
            if part.file.read_exact_at(&mut buffer[..to_usize(step)], offset).is_err() {
                readable &= probe_pages(&part.path, &part.file, offset, step, report);
            }
            report.probed_bytes += step;
            offset += step;
        }
    }
    readable
}

/// Finds the pages that cannot be read.
fn probe_pages(path: &Path, file: &File, start: u64, len: u64, report: &mut PoolReport) -> bool {
    let mut page = vec![0; to_usize(PAGE_BYTES)];
    let mut readable = true;
    for offset in (start..start + len).step_by(to_usize(PAGE_BYTES)) {
        let step = (start + len - offset).min(PAGE_BYTES);
        if let Err(error) = file.read_exact_at(&mut page[..to_usize(step)], offset) {
            readable = false;
            let finding = format!("these {step} bytes cannot be read: {error}");
            let next = "replace the device and restore a backup; the rest was not looked at";
            report.findings.push(PoolFinding::lost(path, offset, finding, next));
        }
    }
    readable
}

/// Steps 3 and 4, in a private view.
fn check_inside(examined: &mut Examined) {
    let path = examined.parts[0].path.clone();
    match view(examined) {
        Ok((memory, before)) => check_view(&memory, &before, examined),
        Err(error) => {
            if !examined.report.findings.iter().any(|found| found.path == path && is_in_journal(examined, found.offset))
            {
                examined.report.findings.push(PoolFinding::from_error(&path, error));
            }
        }
    }
}

fn is_in_journal(examined: &Examined, offset: u64) -> bool {
    let main = &examined.headers[0];
    (main.journal_offset..main.journal_offset + main.journal_bytes).contains(&offset)
}

/// The pool as a reader would see it after the journal was replayed, and the states as they are in the files.
fn view(examined: &mut Examined) -> Result<(Memory, Vec<Option<StateSlot>>)> {
    let Examined { parts, headers, report, .. } = examined;
    let path = &parts[0].path;
    for (part, header) in parts.iter().zip(headers.iter()) {
        part.verify_length(header.part_bytes, "when it was created")?;
    }
    let files = open::block_files(parts, &headers[0])?;
    let devices = parts.iter().any(PartFile::is_device);
    let backing = if devices { Backing::SharedReadOnly } else { Backing::Private };
    let mappings = parts.iter().map(|part| part.map(backing, 0)).collect::<Result<Vec<_>>>()?;
    let domain = crate::domain::Domain::Process;
    let memory = Memory::new(Setup { parts: mappings, domain, read_only: true, tracer: None, medium: None });
    let before = open::states_in(&memory);
    if let Some(files) = &files {
        let found = check_journal(files)?;
        let replayed = open::replay_in_memory(files, &memory, |_| true);
        report.findings.extend(found.into_iter().map(|found| journal_finding(path, found, replayed.is_ok())));
        replayed?;
    }
    Ok((memory, before))
}

/// Damage of the journal: harmless when it could be replayed all the same (one of its two header pages is enough).
fn journal_finding(path: &Path, found: JournalFinding, could_be_replayed: bool) -> PoolFinding {
    let JournalFinding { offset, finding: what, is_note } = found;
    if is_note {
        return PoolFinding::note(path, offset, what);
    }
    if could_be_replayed {
        return PoolFinding::repairable(path, offset, what);
    }
    let next = "acknowledged writes may be lost: restore a backup, or drop what is damaged with `lodestone pool check \
                --repair --accept-journal-loss`";
    PoolFinding::lost(path, offset, what, next)
}

fn check_view(memory: &Memory, before: &[Option<StateSlot>], examined: &mut Examined) {
    let Examined { parts, headers, report, .. } = examined;
    let mut states = Vec::new();
    for (index, (part, header)) in parts.iter().zip(headers.iter()).enumerate() {
        let number = exact_u16(index);
        let state = check_state(memory, number, part, header, report);
        if let Some(state) = &state {
            check_copy(memory, number, part, header, state, report);
        }
        states.push(state);
        let state_page = |word: u64| STATE_OFFSETS.iter().all(|slot| !(*slot..*slot + 64).contains(&word));
        check_zero(memory, number, part, (PAGE_BYTES, ROOTS_OFFSET), &state_page, report);
        if index > 0 {
            check_zero(memory, number, part, (ROOTS_OFFSET, FIXED_END), &|_| true, report);
        }
        let journal_end = (header.journal_offset + header.journal_bytes).next_multiple_of(8);
        check_zero(memory, number, part, (journal_end, header.heap_offset), &|_| true, report);
    }
    let others = set::other_lives(parts, before, &states);
    report.findings.extend(others.into_iter().map(|other| PoolFinding::from_error(&parts[0].path, other)));
    check_roots(memory, &parts[0].path, headers, &states, report);
}

/// Checks the mirrored line `mirror` called `what`, whose places are `offsets`.
fn check_mirror<L: PartialEq>(
    path: &Path,
    what: &str,
    slots: &[Slot<L>; 2],
    offsets: [u64; 2],
    report: &mut PoolReport,
) {
    let findings = &mut report.findings;
    match slots {
        [Slot::Damaged, Slot::Damaged] => {
            let finding = format!("both copies of {what} are damaged");
            findings.push(PoolFinding::lost(path, offsets[0], finding, RESTORE));
        }
        [Slot::Damaged, Slot::Empty] | [Slot::Empty, Slot::Damaged] => {
            let index = usize::from(slots[1] == Slot::Damaged);
            let finding = format!("{what} was being written for the first time, and only one copy has bytes");
            findings.push(PoolFinding::repairable(path, offsets[index], finding));
        }
        [Slot::Damaged, _] | [_, Slot::Damaged] => {
            let index = usize::from(slots[1] == Slot::Damaged);
            let finding = format!("a copy of {what} is damaged (or was torn by a crash); the other copy is intact");
            findings.push(PoolFinding::repairable(path, offsets[index], finding));
        }
        [first, second] if first != second => {
            let finding = format!("the copies of {what} differ: a crash came between their writes");
            findings.push(PoolFinding::note(path, offsets[1], finding));
        }
        _ => {}
    }
}

fn check_state(
    memory: &Memory,
    number: u16,
    part: &PartFile,
    header: &PartHeader,
    report: &mut PoolReport,
) -> Option<StateSlot> {
    let mirror = Mirror::read(memory, state::places(number));
    let both_damaged = mirror.newest().is_none();
    if both_damaged {
        let finding = "both copies of the state (boot number, length) are damaged; a new boot number can be chosen";
        report.findings.push(PoolFinding::repairable(&part.path, STATE_OFFSETS[0], finding));
        return None;
    }
    check_mirror(&part.path, "the state", &mirror.slots, STATE_OFFSETS, report);
    let (state, _) = mirror.newest()?;
    if state.part_bytes > part.len {
        let finding = format!("the file is truncated: it has {} bytes, {} are in use", part.len, state.part_bytes);
        report.findings.push(PoolFinding::lost(&part.path, part.len, finding, RESTORE));
        return None;
    }
    if let Some((offset, finding, expected)) = state::nonsense(&state, header, part.len) {
        let finding = format!("{finding}; expected {expected}");
        report.findings.push(PoolFinding::lost(&part.path, STATE_OFFSETS[0] + offset, finding, RESTORE));
        return None;
    }
    if state.part_bytes < part.len && !part.is_device() {
        let finding = format!("{} bytes behind the end: a growth that did not finish", part.len - state.part_bytes);
        report.findings.push(PoolFinding::note(&part.path, state.part_bytes, finding));
    }
    if state.grown_from != 0 {
        let finding = "a growth whose last step is missing";
        report.findings.push(PoolFinding::note(&part.path, STATE_OFFSETS[0] + 32, finding));
    }
    Some(state)
}

/// Compares the copy of the header at the end with the header.
fn check_copy(
    memory: &Memory,
    number: u16,
    part: &PartFile,
    header: &PartHeader,
    state: &StateSlot,
    report: &mut PoolReport,
) {
    let place = part::copy(number, state.part_bytes);
    let copy = memory.get(place);
    let offset = place.addr().offset();
    if let Err(HeaderFault { offset: inside, finding, .. }) = header::verify(&copy, true) {
        let finding = format!("the copy of the header is damaged: {finding}");
        report.findings.push(PoolFinding::repairable(&part.path, offset + inside, finding));
    } else if copy != *header {
        let finding = "the copy of the header is of another pool or part";
        report.findings.push(PoolFinding::repairable(&part.path, offset, finding));
    }
}

/// Reports the first word in `range` that should be zero (says `counts`) and is not.
fn check_zero(
    memory: &Memory,
    number: u16,
    part: &PartFile,
    (start, end): (u64, u64),
    counts: &dyn Fn(u64) -> bool,
    report: &mut PoolReport,
) {
    let found =
        (start..end).step_by(8).filter(|word| counts(*word)).find(|word| memory.load(PmAddr::new(number, *word)) != 0);
    if let Some(word) = found {
        let finding = "reserved space that is not zero";
        report.findings.push(PoolFinding::repairable(&part.path, word, finding));
    }
}

fn check_roots(
    memory: &Memory,
    path: &Path,
    headers: &[PartHeader],
    states: &[Option<StateSlot>],
    report: &mut PoolReport,
) {
    for (root, mirror) in (0..).zip(roots::read_all(memory)) {
        let offsets = roots::places(root).map(|place| place.addr().offset());
        check_mirror(path, &format!("root number {root}"), &mirror.slots, offsets, report);
        let Some((found, _)) = mirror.newest().filter(|(found, _)| found.name_bytes > 0) else { continue };
        let at = PmAddr::from_raw(found.addr);
        let index = usize::from(at.part());
        let inside = match (headers.get(index), states.get(index)) {
            (Some(header), Some(Some(state))) => {
                (header.heap_offset..state.part_bytes - PAGE_BYTES).contains(&at.offset())
            }
            // The end of a part whose state is damaged is not known.
            (found, _) => found.is_some(),
        };
        if !at.is_null() && !inside {
            let name = String::from_utf8_lossy(roots::name_of(&found)).into_owned();
            let finding = format!("the root `{name}` points to {at}, outside every heap area");
            report.findings.push(PoolFinding::lost(path, offsets[0], finding, "the program that set it has a bug"));
        }
    }
}
