//! Opening: from locked, verified parts to a pool with a new life.
//!
//! 1. Part 0 is opened, locked and verified; it names the others, which are opened and verified against it.
//! 2. The domain is chosen. A writer looks at the journal and, through a private view, at the states as they will be
//!    after it. So an open that is refused changes no file. A file that is mapped shared gets the space that it lacks.
//! 3. A pool with a journal may hold groups that its last life, in the block domain, did not apply. They are replayed
//!    into the files, also when the next domain is another. A read-only open replays them into the private view and
//!    changes no file.
//! 4. The parts are mapped, for a writer as far as the states say: bytes that a growth left after that may be cut off.
//!    States are read and compared: lengths against the files, lives of the parts against each other.
//! 5. A writer heals torn mirrored lines and the page of a former header copy. It writes the state with the next boot
//!    number to all parts, part 0 last, and makes it durable. From here on the life has begun.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use lodestone_width::{exact_u16, to_usize};
use rustix::fs::OFlags;

use crate::addr::{LINE_BYTES, LineAddr, PmAddr};
use crate::block::journal::HEADERS_BYTES;
use crate::block::{
    BlockDomain, BlockFiles, BlockOptions, JournalRecovery, apply_journal, read_journal, read_salvage, sync_journal,
};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::events::PoolOpened;
use crate::mapping::Backing;
use crate::memory::{Memory, Setup};
use crate::planted;
use crate::pool::header::{self, HeaderFault};
use crate::pool::layout::{
    PAGE_BYTES, PART_PATH_BYTES, PARTS_MAX, PartHeader, ROOTS_OFFSET, STATE_BEGINNING, STATE_CLEAN, STATE_OFFSETS,
    StateSlot,
};
use crate::pool::lock::Hold;
use crate::pool::part::{self, PartFile};
use crate::pool::uuid::Uuid;
use crate::pool::{Pool, PoolOptions, Shared, create, nodes, platform, roots, set, space, state};
use crate::storage::{FileStorage, Storage};
use crate::sync::Mutex;
use crate::topology::Topology;

/// Largest reservation of traced memory: explorers hold many at a time.
const TRACED_RESERVE_MAX: u64 = 1 << 32;
const TRACED_PATH: &str = "(traced)";
const TRACED_REASON: &str = "the crash explorer made it";
const DEVICE_PATH: &str = "(device)";
const DEVICE_REASON: &str = "a test made its device";
/// Opens beside a writer of a pool that looks damaged, and the time between two of them.
pub(crate) const ATTEMPTS_BESIDE_WRITER_MAX: u32 = 5;
pub(crate) const ATTEMPT_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn open(path: &Path, options: &PoolOptions, read_only: bool) -> Result<Pool> {
    let hold = match (read_only, options.allow_concurrent_writer) {
        (false, _) => Hold::Write,
        (true, false) => Hold::Read,
        (true, true) => Hold::Nothing,
    };
    let first = PartFile::open(path, hold, &options.sysfs_root)?;
    let main = first.verified_header(read_only)?;
    header::verify_layout(path, &main, options)?;
    let (parts, headers) = set::open_others(first, &main, options, hold)?;
    open_parts(parts, headers, options, read_only)
}

/// Maps verified parts and attaches.
pub(crate) fn open_parts(
    parts: Vec<PartFile>,
    headers: Vec<PartHeader>,
    options: &PoolOptions,
    read_only: bool,
) -> Result<Pool> {
    let journal_bytes = headers[0].journal_bytes;
    let chosen = platform::choose(&parts, options.domain, journal_bytes, read_only, &options.sysfs_root)?;
    let files = block_files(&parts, &headers[0])?;
    let mut lengths: Vec<u64> = parts.iter().map(|part| part.len).collect();
    let mut recovery = JournalRecovery::default();
    if !read_only && !parts.iter().any(PartFile::is_device) {
        let (found, states) = preview(&parts, &headers, files.as_ref())?;
        lengths = states.iter().map(|state| state.part_bytes).collect();
        if matches!(chosen.backing, Backing::Shared | Backing::SharedSync) {
            parts.iter().try_for_each(space::fill_holes)?;
        }
        // Before anything is mapped: lines of the journal belong into the files, also when the next domain is another.
        if let Some(files) = &files {
            apply_journal(files, found)?;
        }
        if matches!(chosen.domain, Domain::Dax | Domain::Eadr) {
            // A process that was killed may have stored bytes and not flushed them. This life reads them as if they
            // were persistent, and builds on them. The kernel writes back the lines of all pages that were stored to.
            // A device without a file system has no such call.
            parts.iter().try_for_each(sync)?;
        }
        recovery = found;
    }
    let mappings = parts
        .iter()
        .zip(lengths)
        .map(|(part, bytes)| part.map_front(bytes, chosen.backing, options.reserve_bytes))
        .collect::<Result<Vec<_>>>()?;
    let medium = options.medium.clone();
    let memory = Memory::new(Setup { parts: mappings, domain: chosen.domain, read_only, tracer: None, medium });
    let before = states_in(&memory);
    match files {
        Some(files) if read_only => {
            recovery = replay_in_memory(&files, &memory, |_| true)?;
            if recovery.groups > 0 {
                sync_journal(&files)?;
            }
        }
        Some(files) if chosen.domain == Domain::Block => {
            hide_journal(&memory, &files);
            memory.attach_block(BlockDomain::start(files, BlockOptions::default())?);
        }
        _ => {}
    }
    let path = parts[0].path.clone();
    attach(Opened { path, parts, headers, memory, before, recovery, reason: chosen.reason }, options)
}

fn sync(part: &PartFile) -> Result<()> {
    let failed = |source| Error::io(&part.path, "syncing", "check the device and try again", source);
    part.file.sync_all().map_err(failed)
}

/// Zeroes in the place of the journal's header pages, in private memory: no reader of the memory sees the salt.
fn hide_journal(memory: &Memory, files: &BlockFiles) {
    for offset in (files.journal_offset..files.journal_offset + HEADERS_BYTES).step_by(8) {
        memory.raw_store(PmAddr::new(0, offset), 0);
    }
}

/// Address space to reserve for traced memory.
pub(crate) fn traced_reserve(options: &PoolOptions) -> u64 {
    options.reserve_bytes.min(TRACED_RESERVE_MAX)
}

pub(crate) fn create_on(memory: Memory, options: &PoolOptions) -> Result<Pool> {
    let parts = memory.part_count();
    // Fixed identities: an explored creation is the same in every run.
    let uuids: Vec<Uuid> = (2..).take(parts.into()).map(|byte| Uuid([byte; 16])).collect();
    let header = |part: u16| {
        let mut header = header::build(options, part, memory.part_len(part) / PAGE_BYTES * PAGE_BYTES)?;
        header.created_unix_ns = 0;
        set::identify(&mut header, Uuid([1; 16]), &uuids, &vec![[0; PART_PATH_BYTES]; parts.into()]);
        Ok(header)
    };
    let headers = (0..parts).map(header).collect::<Result<Vec<_>>>()?;
    // The first part last: with it, it is a pool.
    (0..parts).rev().zip(headers.iter().rev()).for_each(|(part, header)| create::format(&memory, part, header));
    attach(Opened::traced(headers, memory), options)
}

pub(crate) fn open_on(memory: Memory, options: &PoolOptions) -> Result<Pool> {
    let path = Path::new(TRACED_PATH);
    let header = |part: u16| {
        let (header, copy) = headers_in(&memory, part, path)?;
        header::verify_with_copy(&header, copy.as_ref(), false).map_err(|finding| finding.into_error(path))?;
        header::verify_layout(path, &header, options)?;
        Ok(header)
    };
    let headers = (0..memory.part_count()).map(header).collect::<Result<Vec<_>>>()?;
    attach(Opened::traced(headers, memory), options)
}

/// Opens the pool on a device in the block domain, as [`open_parts`] opens a file: the journal is replayed, then the
/// content is loaded, then the life begins. `open` returns an open file of the device; the journal has one of its own.
pub(crate) fn open_on_device(open: impl Fn() -> Arc<dyn Storage>, bytes: u64, options: &PoolOptions) -> Result<Pool> {
    let (path, device) = (PathBuf::from(DEVICE_PATH), open());
    let memory = Memory::for_device(bytes, options.medium.clone())?;
    load(&memory, &*device, bytes, &path)?;
    let (header, copy) = headers_in(&memory, 0, &path)?;
    header::verify_with_copy(&header, copy.as_ref(), false).map_err(|finding| finding.into_error(&path))?;
    header::verify_layout(&path, &header, options)?;
    let files = BlockFiles {
        path: path.clone(),
        journal: open(),
        direct: vec![open()],
        parts: vec![Arc::clone(&device)],
        part_bytes: vec![bytes],
        journal_offset: header.journal_offset,
        journal_bytes: header.journal_bytes,
    };
    let recovery = read_journal(&files, |_, _| {})?;
    apply_journal(&files, recovery)?;
    let before = states_in(&memory);
    load(&memory, &*device, bytes, &path)?;
    hide_journal(&memory, &files);
    memory.attach_block(BlockDomain::start(files, BlockOptions::default())?);
    let reason = DEVICE_REASON.into();
    attach(Opened { path, parts: Vec::new(), headers: vec![header], memory, before, recovery, reason }, options)
}

/// Copies the content of `device` to `memory`.
fn load(memory: &Memory, device: &dyn Storage, bytes: u64, path: &Path) -> Result<()> {
    let mut page = vec![0; to_usize(PAGE_BYTES)];
    for offset in (0..bytes).step_by(page.len()) {
        let failed = |source| Error::io(path, "reading", "look at the device", source);
        let read = device.read_at(&mut page, offset).map_err(failed)?;
        if read < page.len() {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        memory.raw_write(PmAddr::new(0, offset), &page);
    }
    Ok(())
}

/// Header and copy in the image of a part; the copy is looked at only when the header is not intact.
fn headers_in(memory: &Memory, part: u16, path: &Path) -> Result<(PartHeader, Option<PartHeader>)> {
    let len = memory.part_len(part);
    if len < 2 * PAGE_BYTES {
        let finding = format!("the image has {len} bytes");
        return Err(HeaderFault::new(len, finding, "a header and its copy", "give the whole image").into_error(path));
    }
    let front = memory.get(part::front(part));
    let copy = if header::verify(&front, false).is_ok() { None } else { Some(memory.get(part::copy(part, len))) };
    Ok((front, copy))
}

/// A pool that is mapped and verified, whose life has not begun.
struct Opened {
    path: PathBuf,
    /// Empty in the traced domain.
    parts: Vec<PartFile>,
    headers: Vec<PartHeader>,
    memory: Memory,
    /// The states before the journal was replayed into `memory`.
    before: Vec<Option<StateSlot>>,
    recovery: JournalRecovery,
    /// Why the memory has its domain.
    reason: String,
}

impl Opened {
    fn traced(headers: Vec<PartHeader>, memory: Memory) -> Self {
        let (path, reason) = (PathBuf::from(TRACED_PATH), TRACED_REASON.into());
        let recovery = JournalRecovery::default();
        Self { path, parts: Vec::new(), headers, memory, before: Vec::new(), recovery, reason }
    }
}

/// The files of a pool as the block domain sees them; `None` for devices, which never have a journal in use.
pub(crate) fn block_files(parts: &[PartFile], main: &PartHeader) -> Result<Option<BlockFiles>> {
    if main.journal_bytes == 0 || parts.iter().any(PartFile::is_device) {
        return Ok(None);
    }
    let part_bytes = parts.iter().map(|part| part.len).collect();
    let mut storages: Vec<Arc<dyn Storage>> = Vec::with_capacity(parts.len());
    for part in parts {
        let failed = |source| Error::io(&part.path, "duplicating the descriptor", "close some files", source);
        storages.push(Arc::new(FileStorage::new(part.file.try_clone().map_err(failed)?)));
    }
    let path = parts[0].path.clone();
    let journal = Arc::new(FileStorage::new(open_again(&parts[0])?));
    let mut direct: Vec<Arc<dyn Storage>> = Vec::with_capacity(parts.len());
    for part in parts {
        direct.push(Arc::new(FileStorage::new(open_again(part)?)));
    }
    let (journal_offset, journal_bytes) = (main.journal_offset, main.journal_bytes);
    Ok(Some(BlockFiles { path, parts: storages, journal, direct, part_bytes, journal_offset, journal_bytes }))
}

/// The file of `part` as an open file of its own, to which the kernel reports errors of the device separately. A
/// duplicate would share one report. A commit could then take the error of a checkpoint's write, and the checkpoint
/// would go on as if there were none. The same holds for direct writes.
fn open_again(part: &PartFile) -> Result<File> {
    let failed = |source| Error::io(&part.path, "opening the file again", "mount /proc, or close some files", source);
    let flags = rustix::fs::fcntl_getfl(&part.file).map_err(|errno| failed(errno.into()))?;
    let writing = flags & OFlags::RWMODE == OFlags::RDWR;
    // By descriptor, not by path: the file may have been renamed.
    let path = format!("/proc/self/fd/{}", part.file.as_raw_fd());
    OpenOptions::new().read(true).write(writing).open(path).map_err(failed)
}

/// The content of the journal, and the states of the parts as they will be after its replay. An error when the open is
/// to be refused. Changes no file.
fn preview(
    parts: &[PartFile],
    headers: &[PartHeader],
    files: Option<&BlockFiles>,
) -> Result<(JournalRecovery, Vec<StateSlot>)> {
    let memory = private_view(parts)?;
    let before = states_in(&memory);
    let found = files.map_or(Ok(JournalRecovery::default()), |files| replay_states(files, &memory))?;
    let states = verified_states(&parts[0].path, parts, headers, &memory, &before)?;
    Ok((found, states))
}

/// Which parts come from another life than the set, or are shorter than their states say; changes no file.
pub(crate) fn other_moments(parts: &[PartFile], files: Option<&BlockFiles>) -> Result<Vec<Error>> {
    let mut memory = private_view(parts)?;
    let before = states_in(&memory);
    if let Some(files) = files
        && replay_states(files, &memory).is_err()
    {
        // Lines that were replayed into the view before the damage was found may be older than the files.
        memory = private_view(parts)?;
        // Of a damaged journal, which is to be dropped, only those records count that a repair will apply, and may have
        // begun to apply.
        let salvaged = read_salvage(files, |line, bytes| {
            if is_state(line) && memory.contains(line.start(), LINE_BYTES) {
                memory.raw_write(line.start(), bytes);
            }
        });
        // A journal that the repair will refuse makes no state newer.
        drop(salvaged);
    }
    let states = states_in(&memory);
    let is_short = |(part, state): (&PartFile, &Option<StateSlot>)| {
        part.verify_length(state.as_ref()?.part_bytes, "when it was last grown").err()
    };
    let short = parts.iter().zip(&states).filter_map(is_short);
    Ok(set::other_lives(parts, &before, &states).into_iter().chain(short).collect())
}

fn private_view(parts: &[PartFile]) -> Result<Memory> {
    let backing = if parts.iter().any(PartFile::is_device) { Backing::SharedReadOnly } else { Backing::Private };
    let parts = parts.iter().map(|part| part.map(backing, 0)).collect::<Result<Vec<_>>>()?;
    Ok(Memory::new(Setup { parts, domain: Domain::Process, read_only: true, tracer: None, medium: None }))
}

/// The newest intact state of each part.
pub(crate) fn states_in(memory: &Memory) -> Vec<Option<StateSlot>> {
    (0..memory.part_count()).map(|part| state::read(memory, part)).collect()
}

/// Replays the lines of states alone: each line costs a page of memory in a private view.
fn replay_states(files: &BlockFiles, memory: &Memory) -> Result<JournalRecovery> {
    replay_in_memory(files, memory, is_state)
}

/// Whether `line` is in the page of a part's state.
fn is_state(line: LineAddr) -> bool {
    (PAGE_BYTES..ROOTS_OFFSET).contains(&line.start().offset())
}

/// Brings those lines of a private view up to date with the journal for which `counts`, in memory only.
pub(crate) fn replay_in_memory(
    files: &BlockFiles,
    memory: &Memory,
    counts: impl Fn(LineAddr) -> bool,
) -> Result<JournalRecovery> {
    let mut outside = None;
    let found = read_journal(files, |line, bytes| {
        if !memory.contains(line.start(), LINE_BYTES) {
            outside = Some(line);
        } else if counts(line) {
            memory.raw_write(line.start(), bytes);
        }
    })?;
    match outside {
        None => Ok(found),
        Some(line) => {
            let finding = format!("the journal holds {line:?}, which is outside the pool");
            let hint = "the file was truncated: restore a backup";
            Err(HeaderFault::new(files.journal_offset, finding, "lines inside the pool", hint).into_error(&files.path))
        }
    }
}

/// From a mapped, replayed pool to an open one.
fn attach(opened: Opened, options: &PoolOptions) -> Result<Pool> {
    let states = verified_states(&opened.path, &opened.parts, &opened.headers, &opened.memory, &opened.before)?;
    let topology = Topology::for_pool(&options.sysfs_root, options.virtual_nodes)?;
    nodes::verify_given(options, &topology, opened.headers.len())?;
    let part_nodes = nodes::assign(&opened.parts, &opened.headers, options, &topology, opened.memory.domain());
    let Opened { path, parts, headers, memory, recovery, reason, .. } = opened;
    let parts: Arc<[PartFile]> = parts.into();
    let was_clean = states[0].flags & STATE_CLEAN != 0;
    let states = if memory.is_read_only() { states } else { begin_life(&path, &memory, states)? };
    super::attach_watch(&memory, &parts, options);
    let (boot, is_read_only) = (states[0].boot, memory.is_read_only());
    let domain = memory.domain();
    PoolOpened { path: &path, domain, reason: &reason, boot, was_clean, is_read_only, recovery: &recovery }.emit();
    let is_unlocked = memory.is_read_only() && options.allow_concurrent_writer && !parts.is_empty();
    let shared = Shared {
        grow_bytes_max: options.grow_bytes_max,
        growing: Mutex::default(),
        path,
        memory: memory.clone(),
        boot: states[0].boot,
        was_clean,
        recovery,
        part_bytes: states.iter().map(|state| AtomicU64::new(state.part_bytes)).collect(),
        states: Mutex::new(states),
        headers,
        parts,
        is_unlocked,
        is_finished: AtomicBool::new(false),
        reason,
        sysfs_root: options.sysfs_root.clone(),
        topology,
        part_nodes,
        heap_claimed: Arc::default(),
    };
    Ok(Pool { memory, shared: Arc::new(shared) })
}

/// The newest states of all parts, checked against files and headers.
fn verified_states(
    path: &Path,
    parts: &[PartFile],
    headers: &[PartHeader],
    memory: &Memory,
    before: &[Option<StateSlot>],
) -> Result<Vec<StateSlot>> {
    let mut states = Vec::with_capacity(PARTS_MAX);
    for (index, header) in headers.iter().enumerate() {
        let path = parts.get(index).map_or(path, |part| &part.path);
        let Some(state) = state::read(memory, exact_u16(index)) else {
            let hint = "run `lodestone pool check --repair`, or restore a backup";
            let expected = "at least one with a valid CRC-32C";
            return Err(HeaderFault::new(STATE_OFFSETS[0], "both copies of the state are damaged", expected, hint)
                .into_error(path));
        };
        let mapped = memory.part_len(exact_u16(index));
        if let Some(part) = parts.get(index) {
            part.verify_length(state.part_bytes, "when it was last grown")?;
        }
        if let Some((offset, finding, expected)) = state::nonsense(&state, header, mapped) {
            let offset = STATE_OFFSETS[0] + offset;
            return Err(HeaderFault::new(offset, finding, expected, "restore a backup").into_error(path));
        }
        states.push(state);
    }
    let found: Vec<Option<StateSlot>> = states.iter().copied().map(Some).collect();
    set::other_lives(parts, before, &found).into_iter().next().map_or(Ok(states), Err)
}

/// Finishes what a crash cut short and makes the next boot number durable.
fn begin_life(path: &Path, memory: &Memory, mut states: Vec<StateSlot>) -> Result<Vec<StateSlot>> {
    let boot = state::next_boot(path, &states[0])?;
    roots::heal(memory);
    let count = states.len();
    // Part 0 decides whether the life has begun. The others announce it before and confirm it after. So a part of
    // another life is never taken for one that an open left one ahead.
    let announce = (1..count).map(|index| (index, STATE_BEGINNING));
    let confirm = (1..count).map(|index| (index, 0));
    for (index, flags) in announce.chain([(0, 0)]).chain(confirm) {
        let part = exact_u16(index);
        let old = states[index];
        if old.grown_from != 0 && !planted::active("pool-growth-not-finished") {
            clear_former_copy(memory, part, old.grown_from);
        }
        // Planted: a life that crashes is taken for one that ended in order.
        let flags = if planted::active("pool-clean-mark-kept") { old.flags } else { flags };
        let next = StateSlot { boot, flags, grown_from: 0, ..old };
        if planted::active("pool-boot-in-memory-only") {
            states[index] = next;
            continue;
        }
        states[index] = state::write(memory, part, next);
    }
    memory.durable()?;
    Ok(states)
}

/// Zeroes the page that held the copy of the header before the part grew from `grown_from` bytes: it is heap now.
pub(crate) fn clear_former_copy(memory: &Memory, part: u16, grown_from: u64) {
    let page = PmAddr::new(part, header::copy_offset(grown_from));
    memory.zero(page, PAGE_BYTES);
    // The state that says "cleared" must not overtake the zeroes.
    memory.persist(page, PAGE_BYTES);
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, SeekFrom};

    use super::*;

    #[test]
    fn the_journal_is_written_through_an_open_file_of_its_own() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pool");
        drop(Pool::create(
            &path,
            &PoolOptions { size_bytes: 1 << 20, journal_bytes: 256 << 10, ..PoolOptions::default() },
        )?);
        let part = PartFile::open(&path, Hold::Write, Path::new("/sys"))?;
        let mut journal = open_again(&part)?;
        // A duplicate would share the position, as it shares the reports of errors.
        journal.seek(SeekFrom::Start(77)).expect("a file");
        assert_eq!((&part.file).stream_position().expect("a file"), 0);
        assert!(PartFile::open(&path, Hold::Write, Path::new("/sys")).is_err(), "the lock is still held");
        let reader = File::open(&path).map_err(|e| Error::io(&path, "opening", "", e))?;
        let reader = PartFile::measure(&path, reader, Path::new("/sys"))?;
        let again = open_again(&reader)?;
        assert_eq!(rustix::fs::fcntl_getfl(&again).expect("open") & OFlags::RWMODE, OFlags::RDONLY);
        Ok(())
    }
}
