//! Pools: a file, a device or a set of them, formatted, identified and opened in a persistence domain.
//!
//! 1. *Create* formats a temporary file, syncs it and renames it into place. A device is formatted in place, its header
//!    last. So a half-made pool is never taken for a pool (see `create`).
//! 2. *Open* takes the one-writer lock, verifies header and state, replays the journal, and maps the parts in the
//!    chosen domain. It starts a new life: the boot number goes up and is persistent before anything else is stored
//!    (see `open`).
//! 3. *Close* ([`Pool::close`], or the drop of the last handle) makes everything durable and sets the clean mark.
//!
//! Moved and copied pools: nothing in a pool names the path of part 0, so a pool that was moved opens as before. A copy
//! made with ordinary tools is the same pool twice (same uuids): each opens on its own. `Pool::copy` makes a new pool
//! with identities of its own.

mod access;
mod check;
mod claim;
mod copy;
mod create;
mod grow;
pub(crate) mod header;
mod info;
pub(crate) mod layout;
pub(crate) mod lock;
pub mod mirror;
mod nodes;
mod open;
pub(crate) mod part;
pub(crate) mod platform;
mod repair;
mod report;
mod roots;
mod set;
mod space;
mod state;
mod uuid;
mod volatile;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use crate::addr::PmAddr;
use crate::block::JournalRecovery;
use crate::domain::DomainChoice;
use crate::error::{Error, Result};
use crate::medium::Medium;
use crate::memory::Memory;
use crate::storage::Storage;
use crate::sync::Mutex;
use crate::topology::Topology;
use crate::tracer::Tracer;
use crate::watch::Watch;
pub use claim::HeapClaim;
pub use copy::{CopyOptions, CopyReport};
pub use info::{PartInfo, PoolInfo, RootInfo};
use layout::{PAGE_BYTES, PartHeader, STATE_CLEAN, StateSlot};
pub use nodes::{NodeOrigin, PartNode};
use part::PartFile;
pub use part::PartKind;
pub use report::{PoolFinding, PoolReport, RepairReport, Severity};
pub use uuid::Uuid;

/// How to create or open a pool.
///
/// ```
/// use lodestone_pmem::{Pool, PoolOptions};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// // Small at first. When it is full it grows by itself, up to a gigabyte.
/// let options = PoolOptions { size_bytes: 16 << 20, grow_bytes_max: 1 << 30, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// assert_eq!(pool.info().parts[0].part_bytes, 16 << 20);
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Bytes of a new pool, of each of its parts; rounded up to whole pages. A device is always used whole.
    pub size_bytes: u64,
    /// Bytes of the journal of a new pool; 0: none, and the pool cannot be opened in the block domain.
    pub journal_bytes: u64,
    /// Name of the application's layout; name and version are checked at open when it is not empty.
    pub layout_name: String,
    /// Version of the application's layout.
    pub layout_version: u32,
    /// Domain to open in.
    pub domain: DomainChoice,
    /// Address space to reserve per part, the limit of `grow` in this life.
    pub reserve_bytes: u64,
    /// Bytes up to which a part grows by itself when it is full, in this life; 0: never. See
    /// [`Pool::grow_when_full`].
    pub grow_bytes_max: u64,
    /// Further parts, one per NUMA node as a rule; empty at open: they are found by the part table and by name
    /// (`name.pool.1`, `name.pool.2`, ...).
    pub parts: Vec<PathBuf>,
    /// NUMA node of each part, part 0 first, by the kernel's number. Empty: the devices decide, or the nodes are
    /// unknown. At creation it is written into the header. At open it overrides all other sources.
    pub part_nodes: Vec<u32>,
    /// Split the machine's processors into this many virtual nodes, over which the parts are spread; 0: the machine's
    /// own nodes.
    pub virtual_nodes: usize,
    /// Whether `create` may replace an existing file or the pool on a device. Never one that is open.
    pub overwrite: bool,
    /// Whether a read-only open may run beside a writer. It may then read bytes of different moments; for inspection
    /// only.
    pub allow_concurrent_writer: bool,
    /// Whether the pool is scratch space, whose files may lose their names while it is open. Otherwise that is an error
    /// ([`Error::Changed`]), because the content is gone when the pool is closed.
    pub scratch: bool,
    /// Where the kernel describes devices; another folder in tests.
    pub sysfs_root: PathBuf,
    /// The model of a medium that accesses are reported to (see [`Medium`]); figures of such a pool are emulated.
    pub medium: Option<Arc<dyn Medium>>,
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
            grow_bytes_max: 0,
            parts: Vec::new(),
            part_nodes: Vec::new(),
            virtual_nodes: 0,
            overwrite: false,
            allow_concurrent_writer: false,
            scratch: false,
            sysfs_root: PathBuf::from("/sys"),
            medium: None,
        }
    }
}

/// An open pool. Cheap to clone; the last clone closes it.
///
/// **Bad media.** Header, state, roots and journal are read with read(2) at open, so a bad sector there is an
/// [`Error`]. The heap is memory. A sector or page that goes bad under it is a SIGBUS to the thread that touches it, as
/// for every mapped file. So is a file that another process truncates while it is open. [`check`](Self::check) reads
/// every byte with read(2) and lists the unreadable ones; [`verify_files`](Self::verify_files) notices truncation.
///
/// ```
/// use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("shop.pool");
/// let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let pool = Pool::create(&path, &options)?;
/// let (start, _end) = pool.heap_area(0);
/// pool.memory().store(start, 99);
/// pool.memory().persist(start, 8);
/// pool.set_root("counter", 7, start)?;
/// drop(pool);
/// let pool = Pool::open(&path, &options)?;
/// assert_eq!(pool.root("counter")?, Some((7, start)));
/// assert_eq!(pool.memory().load(start), 99);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    memory: Memory,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    headers: Vec<PartHeader>,
    memory: Memory,
    boot: u64,
    was_clean: bool,
    recovery: JournalRecovery,
    /// Whether the pool was closed, or an attempt failed: the drop has nothing to do.
    is_finished: AtomicBool,
    /// The states of all parts as persisted; locked during a change of state or roots.
    states: Mutex<Vec<StateSlot>>,
    /// Length in use of each part: as in `states`, but without the lock.
    part_bytes: Box<[AtomicU64]>,
    /// Empty in the traced domain. Holds the locks.
    parts: Arc<[PartFile]>,
    /// See [`PoolOptions::grow_bytes_max`].
    grow_bytes_max: u64,
    /// Held while a part grows by itself: threads that find it full wait for the one that makes room.
    growing: Mutex<()>,
    /// Whether it was opened without a lock, so that a writer may be beside it, or have been.
    is_unlocked: bool,
    /// Why the memory has its domain.
    reason: String,
    sysfs_root: PathBuf,
    topology: Topology,
    part_nodes: Vec<PartNode>,
    /// Whether a heap of this open pool exists; see [`Pool::claim_heap`].
    heap_claimed: Arc<AtomicBool>,
}

impl Pool {
    /// Creates the pool at `path` and opens it. All space is allocated; the heap area is zeroed. The pool appears at
    /// `path` when it is whole.
    ///
    /// # Errors
    /// When something is there already, space runs out, or the options make no sense. No file is left then, except
    /// further parts of a pool of several.
    pub fn create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        let (parts, headers) = create::create(path.as_ref(), options)?;
        open::open_parts(parts, headers, options, false)
    }

    /// Opens the pool at `path` for reading and writing.
    ///
    /// # Errors
    /// When the file is no pool, damaged, too new, of another layout, or open elsewhere.
    pub fn open(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        open::open(path.as_ref(), options, false)
    }

    /// Opens the pool at `path` for reading: changes no byte of it. The memory shows the pool as a writer would find it
    /// after recovery of the journal. Stores panic.
    ///
    /// # Errors
    /// As [`open`](Self::open); also while a writer has the pool open, unless
    /// [`allow_concurrent_writer`](PoolOptions::allow_concurrent_writer) is set. With it, what looks damaged is read
    /// again for some moments before it is an error: the writer may have gone on between two reads.
    pub fn open_read_only(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        let path = path.as_ref();
        let attempts = if options.allow_concurrent_writer { 1..open::ATTEMPTS_BESIDE_WRITER_MAX } else { 1..1 };
        for _ in attempts {
            match open::open(path, options, true) {
                Err(Error::Format { .. }) => std::thread::sleep(open::ATTEMPT_INTERVAL),
                other => return other,
            }
        }
        open::open(path, options, true)
    }

    /// Opens the pool at `path` if it exists, else creates it.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(path: impl AsRef<Path>, options: &PoolOptions) -> Result<Self> {
        let path = path.as_ref();
        let is_there = path.metadata().is_ok_and(|found| found.len() > 0 || !found.is_file());
        if is_there { Self::open(path, options) } else { Self::create(path, options) }
    }

    /// Formats zeroed traced memory as a pool and opens it: creation as the crash explorer sees it. It has a part more
    /// than `options` names files of parts.
    ///
    /// # Errors
    /// When the options make no sense.
    pub fn create_traced(options: &PoolOptions, tracer: Arc<dyn Tracer>) -> Result<Self> {
        let image = vec![0; usize::try_from(options.size_bytes).unwrap_or(usize::MAX)];
        let images = vec![image; 1 + options.parts.len()];
        Self::create_on(Memory::traced(&images, open::traced_reserve(options), tracer)?, options)
    }

    /// Formats memory of the caller's making (zeroed traced memory) as a pool and opens it.
    ///
    /// # Errors
    /// When the options make no sense.
    pub fn create_on(memory: Memory, options: &PoolOptions) -> Result<Self> {
        open::create_on(memory, options)
    }

    /// Opens the image of a pool in traced memory, as after a crash.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_traced(image: &[u8], options: &PoolOptions, tracer: Arc<dyn Tracer>) -> Result<Self> {
        Self::open_on(Memory::traced(&[image.to_vec()], open::traced_reserve(options), tracer)?, options)
    }

    /// Opens the pool in memory that the caller made, as after a crash.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(memory: Memory, options: &PoolOptions) -> Result<Self> {
        open::open_on(memory, options)
    }

    /// Opens the pool on a device that the caller made, of so many bytes, in the block domain. `open` returns an open
    /// file of it, and is called twice, because the journal has one of its own. For tests of whole stacks on a device
    /// that fails: see [`OpenFile`](crate::storage::OpenFile).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_on_device(open: impl Fn() -> Arc<dyn Storage>, bytes: u64, options: &PoolOptions) -> Result<Self> {
        open::open_on_device(open, bytes, options)
    }

    /// Checks the pool at `path`, which no writer may have open: headers, states, roots, journal, lengths, reserved
    /// space, and that every byte can be read. Changes nothing. The heap checks its own content.
    ///
    /// # Errors
    /// When the file cannot be opened or is in use. Damage is no error but a finding in the report.
    pub fn check(path: impl AsRef<Path>, options: &PoolOptions) -> Result<PoolReport> {
        check::check(path.as_ref(), options)
    }

    /// Repairs metadata that has a second copy: headers, states, roots, reserved space. With `accept_journal_loss` a
    /// damaged journal is emptied as well, and acknowledged writes in it are lost.
    ///
    /// # Errors
    /// As [`check`](Self::check), and when writing fails. A fault that cannot be repaired is a finding in the report.
    pub fn repair(path: impl AsRef<Path>, options: &PoolOptions, accept_journal_loss: bool) -> Result<RepairReport> {
        repair::repair(path.as_ref(), options, accept_journal_loss)
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

    /// Number of this life of the pool; larger than every earlier one, persistent before `open` returned. In a
    /// read-only pool the number of the last life that could write.
    #[must_use]
    pub fn boot(&self) -> u64 {
        self.shared.boot
    }

    /// Whether the life before this one ended with an orderly close.
    #[must_use]
    pub fn was_clean(&self) -> bool {
        self.shared.was_clean
    }

    /// Findings of this open in the journal of the block domain. A read-only open applied the journal to memory only.
    #[must_use]
    pub fn recovery(&self) -> JournalRecovery {
        self.shared.recovery
    }

    /// Closes the pool: makes everything durable that was flushed, empties the journal into the files, and sets the
    /// clean mark. A program that never waits for durability learns here whether its writes were kept. Dropping the
    /// last handle does the same, but reports no failure.
    ///
    /// Memory that outlives the pool can make nothing durable any more in the `block` domain:
    /// [`Memory::durable`] returns [`Error::Closed`].
    ///
    /// # Errors
    /// - [`Error::StillOpen`] while other handles of the pool are in use. Everything flushed is durable; the last
    ///   handle closes.
    /// - [`Error::Poisoned`] when the device failed at any time in this life, [`Error::Changed`] when a file was cut
    ///   short underneath. The next open finds everything that was acknowledged before.
    ///
    /// ```
    /// use lodestone_pmem::{DomainChoice, Error, Pool, PoolOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.pool");
    /// let options = PoolOptions { domain: DomainChoice::Block, size_bytes: 16 << 20, ..PoolOptions::default() };
    /// let pool = Pool::create(&path, &options)?;
    /// let (at, _end) = pool.heap_area(0);
    /// pool.memory().store(at, 7);
    /// pool.memory().persist(at, 8);
    /// // No caller asked for `durable`. Another handle keeps the pool open:
    /// let other = pool.clone();
    /// assert!(matches!(pool.close(), Err(Error::StillOpen { handles: 1, .. })));
    /// other.close()?;
    /// let pool = Pool::open(&path, &options)?;
    /// assert!(pool.was_clean() && pool.memory().load(at) == 7);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn close(self) -> Result<()> {
        self.memory.wait_durable(self.memory.flushed_anywhere())?;
        let path = self.shared.path.clone();
        let handles = Arc::strong_count(&self.shared) - 1;
        let Self { memory, shared } = self;
        // Of several that close at once exactly one has the last handle.
        let last = Arc::into_inner(shared).ok_or(Error::StillOpen { path, handles: handles.max(1) })?;
        let closed = last.finish();
        drop(memory);
        closed
    }

    /// First byte of the heap area of `part` and the first byte after it. Grows when the pool grows.
    ///
    /// # Panics
    /// When the pool has no part of that number.
    #[must_use]
    pub fn heap_area(&self, part: u16) -> (PmAddr, PmAddr) {
        let index = usize::from(part);
        let end = self.shared.part_bytes[index].load(Ordering::Acquire) - PAGE_BYTES;
        (PmAddr::new(part, self.shared.headers[index].heap_offset), PmAddr::new(part, end))
    }

    /// The nodes of the machine that this pool was opened on, or the virtual ones that were asked for.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.shared.topology
    }

    /// The NUMA node of each part, by number.
    #[must_use]
    pub fn part_nodes(&self) -> &[PartNode] {
        &self.shared.part_nodes
    }

    /// Sets the root `name` to the object at `addr` of the given kind: atomic, and persistent on return (call
    /// [`Memory::durable`] before an acknowledgement).
    ///
    /// # Errors
    /// When the name is empty or longer than 40 bytes, all roots are taken, or the root directory is damaged.
    pub fn set_root(&self, name: &str, kind: u32, addr: PmAddr) -> Result<()> {
        let _guard = self.shared.states();
        roots::set(&self.shared.path, &self.memory, name, kind, addr)
    }

    /// Kind and address of the root `name`.
    ///
    /// # Errors
    /// When a root that may have that name is damaged.
    pub fn root(&self, name: &str) -> Result<Option<(u32, PmAddr)>> {
        // A root is two lines. A reader whose two looks both met a half-stored line would take the root for lost.
        let _guard = self.shared.states();
        roots::get(&self.shared.path, &self.memory, name)
    }

    /// Looks whether the files are still the opened ones: not shorter, not deleted, not replaced. `grow` does this
    /// itself. Another process that writes into the file is not noticed.
    ///
    /// # Errors
    /// [`Error::Changed`] with the cause.
    pub fn verify_files(&self) -> Result<()> {
        self.verify_lengths()?;
        self.verify_linked()
    }

    /// Looks whether the files still have their names: not deleted, and no other file at their path. The content of a
    /// deleted file is gone when the pool is closed, although every write succeeds. So look before an acknowledgement.
    /// A file that was moved is no error. Takes some microseconds.
    ///
    /// [`Memory::durable`] and its like look every so many calls, for deleted files only.
    ///
    /// # Errors
    /// [`Error::Changed`] with the cause.
    pub fn verify_linked(&self) -> Result<()> {
        self.shared.parts.iter().try_for_each(PartFile::verify_linked)
    }

    /// An error when a file is shorter than the part: a load after its end would be a SIGBUS.
    fn verify_lengths(&self) -> Result<()> {
        let mut parts = self.shared.parts.iter().zip(&self.shared.part_bytes);
        parts.try_for_each(|(part, bytes)| part.verify_not_shorter(bytes.load(Ordering::Acquire)))
    }
}

/// Lets waits for durability notice that a file of `parts` was deleted.
fn attach_watch(memory: &Memory, parts: &Arc<[PartFile]>, options: &PoolOptions) {
    // A pool that was opened without a name (through /proc) has none to lose.
    if options.scratch
        || parts.is_empty()
        || memory.is_read_only()
        || parts.iter().any(|part| part.verify_named().is_err())
    {
        return;
    }
    // The memory may outlive the pool, whose files are closed then.
    let parts: Weak<[PartFile]> = Arc::downgrade(parts);
    let look = move || parts.upgrade().map_or(Ok(()), |parts| parts.iter().try_for_each(PartFile::verify_named));
    memory.attach_watch(Watch::new(memory.domain(), Box::new(look)));
}

impl Shared {
    fn states(&self) -> crate::sync::MutexGuard<'_, Vec<StateSlot>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes everything durable and sets the clean mark, once.
    fn finish(&self) -> Result<()> {
        if self.is_finished.swap(true, Ordering::AcqRel) || self.memory.is_read_only() {
            return Ok(());
        }
        let marked = self.mark_clean();
        // All waiters get an error in any case, and the background thread ends.
        match self.memory.block() {
            Some(block) if matches!(marked, Err(Error::Changed { .. })) => block.abandon(),
            Some(block) => return marked.and(block.close()),
            None => {}
        }
        marked
    }

    fn mark_clean(&self) -> Result<()> {
        // Everything the structures above stored must be durable before the clean mark says that nothing is to recover.
        self.memory.wait_durable(self.memory.flushed_anywhere())?;
        let in_reach =
            |part: &&PartFile| part.file.metadata().is_ok_and(|found| part.is_device() || found.len() > PAGE_BYTES * 2);
        if let Some(part) = self.parts.iter().find(|part| !in_reach(part)) {
            // A store to the state would be a SIGBUS.
            let finding = "it was truncated, or cannot be looked at".into();
            return Err(Error::Changed { path: part.path.clone(), finding, hint: "restore a backup" });
        }
        let state = self.states()[0];
        state::write(&self.memory, 0, StateSlot { flags: STATE_CLEAN, ..state });
        self.memory.durable()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Too late for an error; an unset clean mark only costs the next open its checks.
        let _ = self.finish();
    }
}
