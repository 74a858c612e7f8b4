//! Pools: a file, a device or a set of them, formatted, identified and opened in a persistence domain.
//!
//! 1. *Create* formats a temporary file, syncs it and renames it into place (a device is formatted in place, its header
//!    last), so a half-made pool is never taken for a pool.
//! 2. *Open* takes the one-writer lock, verifies header and state, maps the parts in the chosen domain, replays what
//!    the journal holds, and starts a new life: the boot number goes up and is persistent before anything else is stored.
//! 3. *Close* (drop) makes everything durable and sets the clean mark.

mod layout;
mod roots;
mod state;

use std::fs::{File, OpenOptions as FileOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use zerocopy::{FromZeros, IntoBytes};

use crate::addr::{PmAddr, PmPtr};
use crate::block::{BlockDomain, BlockFiles, BlockOptions, replay};
use crate::domain::{Domain, DomainChoice};
use crate::error::{Error, Result};
use crate::mapping::{Backing, Mapping};
use crate::memory::{Memory, Setup};
use crate::storage::{FileStorage, read_all};
use crate::sync::Mutex;
use crate::tracer::Tracer;
use layout::{
    ENDIAN_MARK, FIXED_END, FORMAT_VERSION, LAYOUT_NAME_BYTES, MAGIC, PAGE_BYTES, PartHeader, STATE_CLEAN, StateSlot,
    crc_of,
};

/// How to create or open a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Bytes of a new pool.
    pub size_bytes: u64,
    /// Bytes of the journal of a new pool; 0: none, and the pool cannot be opened in the block domain.
    pub journal_bytes: u64,
    /// Name of the application's layout; checked at open when not empty.
    pub layout_name: String,
    /// Version of the application's layout.
    pub layout_version: u32,
    /// Domain to open in.
    pub domain: DomainChoice,
    /// Address space to reserve per part, the limit of `grow` in this life.
    pub reserve_bytes: u64,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            size_bytes: 64 << 20,
            journal_bytes: 8 << 20,
            layout_name: String::new(),
            layout_version: 0,
            domain: DomainChoice::Auto,
            reserve_bytes: 1 << 40,
        }
    }
}

/// An open pool. Cheap to clone; the last clone closes it.
#[derive(Clone, Debug)]
pub struct Pool {
    memory: Memory,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    header: PartHeader,
    memory: Memory,
    boot: u64,
    was_clean: bool,
    state: Mutex<StateSlot>,
    _file: Option<File>,
}

impl Pool {
    /// Creates the pool at `path` and opens it.
    ///
    /// # Errors
    /// When the file exists, cannot be made, or the options make no sense.
    pub fn create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        let path = path.as_ref();
        let io = |action, source| Error::io(path, action, "choose another path or remove the file", source);
        let file =
            FileOptions::new().read(true).write(true).create_new(true).open(path).map_err(|e| io("creating", e))?;
        file.set_len(options.size_bytes).map_err(|e| io("setting the length", e))?;
        let memory = map(path, &file, Backing::Shared, Domain::Process, options, false)?;
        format(path, &memory, options)?;
        drop(memory);
        file.sync_all().map_err(|e| io("syncing", e))?;
        drop(file);
        Self::open(path, options)
    }

    /// Opens the pool at `path` for reading and writing.
    ///
    /// # Errors
    /// When the file is no pool, damaged, too new, of another layout, or open elsewhere.
    pub fn open(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        let path = path.as_ref();
        let io = |action, source| Error::io(path, action, "check that the file exists and may be written", source);
        let file = FileOptions::new().read(true).write(true).open(path).map_err(|e| io("opening", e))?;
        let (backing, domain) = match options.domain {
            DomainChoice::Process => (Backing::Shared, Domain::Process),
            DomainChoice::DaxEmulated => (Backing::Shared, Domain::Dax),
            _ => (Backing::Private, Domain::Block),
        };
        let files = block_files(path, &file, options)?;
        // Before anything is mapped: lines of the journal belong into the file, whatever domain comes next.
        replay(&files)?;
        let memory = map(path, &file, backing, domain, options, false)?;
        if domain == Domain::Block {
            memory.attach_block(BlockDomain::start(files, BlockOptions::default())?);
        }
        Self::attach(path.to_owned(), memory, options, Some(file))
    }

    /// Opens the pool at `path` if it exists, else creates it.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        if path.as_ref().exists() { Self::open(path, options) } else { Self::create(path, options) }
    }

    /// Formats zeroed traced memory as a pool and opens it: creation as the crash explorer sees it.
    ///
    /// # Errors
    /// When the options make no sense.
    pub fn create_traced(options: &PoolOptions, tracer: Arc<dyn Tracer>) -> Result<Self> {
        let image = vec![0; usize::try_from(options.size_bytes).unwrap_or(usize::MAX)];
        Self::create_on(Memory::traced(&[image], options.reserve_bytes.min(1 << 32), tracer)?, options)
    }

    /// Formats memory of the caller's making (zeroed traced memory) as a pool and opens it.
    ///
    /// # Errors
    /// When the options make no sense.
    pub fn create_on(memory: Memory, options: &PoolOptions) -> Result<Self> {
        let path = PathBuf::from("(traced)");
        format(&path, &memory, options)?;
        Self::attach(path, memory, options, None)
    }

    /// Opens the pool that stands in memory of the caller's making, as after a crash.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(memory: Memory, options: &PoolOptions) -> Result<Self> {
        Self::attach(PathBuf::from("(traced)"), memory, options, None)
    }

    /// Opens the image of a pool in traced memory, as after a crash.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_traced(image: &[u8], options: &PoolOptions, tracer: Arc<dyn Tracer>) -> Result<Self> {
        Self::open_on(Memory::traced(&[image.to_vec()], options.reserve_bytes.min(1 << 32), tracer)?, options)
    }

    fn attach(path: PathBuf, memory: Memory, options: &PoolOptions, file: Option<File>) -> Result<Self> {
        let header: PartHeader = memory.get(PmPtr::new(PmAddr::new(0, 0)));
        verify_header(&path, &header, options)?;
        let Some((old, _)) = state::read(&memory, 0) else {
            return Err(Error::Format {
                path,
                offset: layout::STATE_OFFSETS[0],
                finding: "both state slots are damaged".into(),
                expected: "at least one with a valid CRC-32C".into(),
                hint: "run `lodestone pool check --repair`, or restore a backup".into(),
            });
        };
        let next = StateSlot { boot: old.boot + 1, flags: 0, ..old };
        let state = state::write(&memory, 0, next);
        memory.durable()?;
        let shared = Shared {
            path,
            header,
            memory: memory.clone(),
            boot: state.boot,
            was_clean: old.flags & STATE_CLEAN != 0,
            state: Mutex::new(state),
            _file: file,
        };
        Ok(Self { memory, shared: Arc::new(shared) })
    }

    /// The pool's memory and its primitives.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Path of the first part, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Number of this life of the pool; larger than every earlier one, persistent before `open` returned.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.shared.boot
    }

    /// Whether the life before this one ended with an orderly close.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.shared.was_clean
    }

    /// First byte of the heap area of `part` and the first byte behind it. Grows when the pool grows.
    #[must_use]
    pub fn heap_area(&self, part: u16) -> (PmAddr, PmAddr) {
        let end = self.memory.part_len(part).saturating_sub(PAGE_BYTES);
        (PmAddr::new(part, self.shared.header.heap_offset), PmAddr::new(part, end))
    }

    /// Sets the root `name` to the object at `addr` of the given kind: atomic, and persistent on return (call
    /// [`Memory::durable`] before telling anyone).
    ///
    /// # Errors
    /// When the name is empty or longer than 40 bytes, or all roots are taken.
    pub fn set_root(&self, name: &str, kind: u32, addr: PmAddr) -> Result<()> {
        let _guard = self.shared.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        roots::set(&self.shared.path, &self.memory, name, kind, addr)
    }

    /// Kind and address of the root `name`.
    ///
    /// # Errors
    /// When a root line that may hold the name is damaged.
    pub fn root(&self, name: &str) -> Result<Option<(u32, PmAddr)>> {
        roots::get(&self.shared.path, &self.memory, name)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Everything the structures above stored must be durable before the clean mark says that nothing is to recover.
        if self.memory.is_read_only() || self.memory.durable().is_err() {
            return;
        }
        let state = *self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state::write(&self.memory, 0, StateSlot { flags: STATE_CLEAN, ..state });
        // Too late to tell anyone; an unset clean mark only costs the next open its checks.
        let _ = self.memory.durable();
        if let Some(block) = self.memory.block() {
            let _ = block.close();
        }
    }
}

/// The files of the pool at `path` as the block domain sees them; verifies the header on the way.
fn block_files(path: &Path, file: &File, options: &PoolOptions) -> Result<BlockFiles> {
    let failed = |source| Error::io(path, "reading the header", "check the file", source);
    let storage = Arc::new(FileStorage::new(file.try_clone().map_err(failed)?));
    let mut header = PartHeader::new_zeroed();
    read_all(storage.as_ref(), header.as_mut_bytes(), 0).map_err(failed)?;
    verify_header(path, &header, options)?;
    Ok(BlockFiles {
        path: path.to_owned(),
        parts: vec![storage],
        journal_offset: header.journal_offset,
        journal_bytes: header.journal_bytes,
    })
}

fn map(
    path: &Path,
    file: &File,
    backing: Backing,
    domain: Domain,
    options: &PoolOptions,
    read_only: bool,
) -> Result<Memory> {
    let io =
        |source: rustix::io::Errno| Error::io(path, "mapping", "check the length of the file and free memory", source);
    let len = file.metadata().map_err(|e| Error::io(path, "reading the length", "check the file", e))?.len();
    let mapping = Mapping::reserve(options.reserve_bytes.max(len), backing).map_err(io)?;
    mapping.extend(Some(file.as_fd()), len / PAGE_BYTES * PAGE_BYTES).map_err(io)?;
    Ok(Memory::new(Setup { parts: vec![mapping], domain, read_only, tracer: None }))
}

fn format(path: &Path, memory: &Memory, options: &PoolOptions) -> Result<()> {
    let heap_offset = (FIXED_END + options.journal_bytes).next_multiple_of(PAGE_BYTES);
    let part_bytes = memory.part_len(0);
    if options.layout_name.len() > LAYOUT_NAME_BYTES {
        return Err(Error::Invalid {
            what: "layout name",
            finding: format!("{} bytes", options.layout_name.len()),
            hint: "use at most 64 bytes",
        });
    }
    if part_bytes < heap_offset + 2 * PAGE_BYTES {
        return Err(Error::NoSpace {
            path: path.to_owned(),
            what: "the fixed areas of the pool",
            wanted_bytes: heap_offset + 2 * PAGE_BYTES,
        });
    }
    let mut header = PartHeader::new_zeroed();
    header.magic = MAGIC;
    header.format_version = FORMAT_VERSION;
    header.endian_mark = ENDIAN_MARK;
    header.part_count = 1;
    header.layout_version = options.layout_version;
    header.layout_name[..options.layout_name.len()].copy_from_slice(options.layout_name.as_bytes());
    header.created_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    header.journal_offset = FIXED_END;
    header.journal_bytes = options.journal_bytes;
    header.heap_offset = heap_offset;
    header.part_bytes = part_bytes;
    header.crc = crc_of(&header);
    state::write(memory, 0, StateSlot { boot: 0, part_bytes, flags: STATE_CLEAN, ..StateSlot::default() });
    let copy: PmPtr<PartHeader> = PmPtr::new(PmAddr::new(0, part_bytes - PAGE_BYTES));
    memory.put(copy, &header);
    let front: PmPtr<PartHeader> = PmPtr::new(PmAddr::NULL);
    memory.put(front, &PartHeader { magic: [0; 8], ..header });
    memory.flush(front.addr(), PAGE_BYTES);
    // The magic at the front makes it a pool: state, copy and the rest of the header must be persistent before it.
    memory.persist(copy.addr(), PAGE_BYTES);
    memory.store(front.addr(), u64::from_le_bytes(MAGIC));
    // Nobody is told of the pool, and nothing is stored in it, before it is one.
    memory.persist(front.addr(), 8);
    Ok(())
}

fn verify_header(path: &Path, header: &PartHeader, options: &PoolOptions) -> Result<()> {
    let bad = |offset, finding: String, expected: &str, hint: &str| {
        Err(Error::Format { path: path.to_owned(), offset, finding, expected: expected.into(), hint: hint.into() })
    };
    if header.magic != MAGIC {
        return bad(0, "no pool magic".into(), "LODESTON", "this is no Lodestone pool, or its creation did not finish");
    }
    if header.crc != crc_of(header) {
        return bad(4092, "header checksum mismatch".into(), "a valid CRC-32C", "run `lodestone pool check --repair`");
    }
    if header.format_version > FORMAT_VERSION {
        return bad(8, format!("format version {}", header.format_version), "version 1", "use a newer lodestone");
    }
    let name = String::from_utf8_lossy(&header.layout_name);
    let name = name.trim_end_matches('\0');
    if !options.layout_name.is_empty() && name != options.layout_name {
        return bad(88, format!("layout `{name}`"), &options.layout_name, "open it with the program that made it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_pool_keeps_words_and_roots_over_lives() -> Result<()> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a.pool");
        let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
        let pool = Pool::create(&path, &options)?;
        let (start, _) = pool.heap_area(0);
        pool.memory().store(start, 99);
        pool.memory().persist(start, 8);
        pool.set_root("counter", 7, start)?;
        assert_eq!(pool.boot(), 1);
        drop(pool);
        let pool = Pool::open(&path, &options)?;
        assert!(pool.was_clean());
        assert_eq!(pool.boot(), 2);
        assert_eq!(pool.root("counter")?, Some((7, start)));
        assert_eq!(pool.root("other")?, None);
        assert_eq!(pool.memory().load(start), 99);
        Ok(())
    }
}
