//! Volumes: formatting, opening, closing.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use lodestone_fabric::{Outbox, RecordHead, Ring, Sequence, Term};
use lodestone_pmem::{Domain, Pool, PoolOptions};
use lodestone_stm::StmOptions;
use lodestone_store::Store;
use lodestone_width::low_u32;

use crate::batch;
use crate::cluster::follow::Parts;
use crate::cluster::link::Link;
use crate::cluster::plan::Plan;
use crate::core::{Core, Inner, Log, OpCounts, system_time};
use crate::data::Data;
use crate::error::{Error, Result, damaged};
use crate::image::Image;
use crate::inode::{Attributes, Content, FileKind, Folder, Inode, PAGE_BYTES, ROOT, Stamp};
use crate::layout::{self, Super, VOLUME, VOLUME_NAME};
use crate::op::{Action, Op};
use crate::requests::{Files, Tag};
use crate::space::Space;
use crate::state::State;
use crate::usage::MetadataUsage;

/// Name of the pool's layout.
pub const LAYOUT_NAME: &str = "lodestone.fs";
const LAYOUT_VERSION: u32 = 1;

/// Where times come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// A second for each operation. For tests that must repeat.
    Steps,
}

/// How to use a volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VolumeOptions {
    /// Whether a thread writes the image. Otherwise the operation that finds it due does it.
    pub background: bool,
    /// Operations after which the image is written.
    pub batch_operations: u64,
    /// Time after which the image is written.
    pub batch_interval: Duration,
    /// Files that stay in memory although nothing uses them.
    pub files_in_memory: usize,
    /// Where times come from.
    pub clock: Clock,
    /// Options of the image's transactional memory.
    pub image: StmOptions,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            background: true,
            batch_operations: 2048,
            batch_interval: Duration::from_secs(1),
            files_in_memory: 100_000,
            clock: Clock::System,
            image: StmOptions::default(),
        }
    }
}

/// How to make a volume.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FormatOptions {
    /// Bytes of the log; 0: a thirty-second part of the volume, at most 64 MiB.
    pub log_bytes: u64,
    /// Owner of the root folder.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Salt of the log; 0: drawn. For tests that must repeat.
    pub salt: u64,
    /// Time of the format; `None`: now. Nodes of one volume that are made in different places have the same.
    pub created: Option<Stamp>,
    /// Bytes of a page, pages, and pages of an area; the default: 4096, and by the size. For tests.
    pub pages: Option<(u64, u64, u64)>,
}

/// The findings of an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeRecovery {
    /// Operations of the log that the image lacked.
    pub replayed: u64,
    /// Operations at the end of the log whose pages a crash had lost. None of them was acknowledged as durable.
    pub dropped: u64,
    /// Files without a name that were open when the volume was last used. They are freed.
    pub orphans: u64,
}

/// A file system in a pool. It is cheap to clone, and any number of threads may use it.
///
/// ```
/// use lodestone_fs::Volume;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("notes.vol");
///
/// Volume::format(&path, 16 << 20)?;
/// let volume = Volume::open(&path)?;
/// let file = volume.create("/a")?;
/// file.write_at(0, b"hello")?;
/// file.sync()?; // it survives power loss
///
/// let mut bytes = [0; 5];
/// assert_eq!(volume.open_file("/a")?.read_at(0, &mut bytes)?, 5);
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), lodestone_fs::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
    _closer: Arc<Closer>,
    recovery: VolumeRecovery,
    /// The request of a mount in another process that this handle is for.
    pub(crate) tag: Option<Tag>,
    /// The files that were told when the request was answered before.
    pub(crate) told: Option<Files>,
}

/// Ends the thread and writes the image, when the last handle is gone.
#[derive(Debug)]
struct Closer {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.inner.signal.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.inner.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
        let is_gone = self.inner.link.as_ref().is_some_and(|link| link.ended().is_some());
        if !self.inner.options.background || is_gone {
            return;
        }
        if let Err(error) = self.inner.write_image() {
            tracing::error!("closing {}: {error}", self.inner.store.pool().path().display());
        }
    }
}

impl Volume {
    /// Makes a volume of `size` bytes in a new file.
    ///
    /// # Errors
    /// A file that exists, no space, a size that is too small.
    pub fn format(path: impl AsRef<Path>, size: u64) -> Result<()> {
        let pool = PoolOptions { size_bytes: size, ..PoolOptions::default() };
        Self::format_with(path, &pool, &FormatOptions::default()).map(drop)
    }

    /// As [`format`](Self::format), with the options of the pool, whose layout is set here. Returns the volume, open.
    ///
    /// # Errors
    /// As [`format`](Self::format), and those of [`Pool::create`].
    pub fn format_with(path: impl AsRef<Path>, pool: &PoolOptions, options: &FormatOptions) -> Result<Self> {
        let pool = Pool::create(path, &pool_options(pool))?;
        let store = Store::over(&pool)?;
        Self::make(&store, options, &VolumeOptions::default())
    }

    /// Opens the volume in a file.
    ///
    /// # Errors
    /// A file that is no volume, is in use, is newer, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &PoolOptions::default(), &VolumeOptions::default())
    }

    /// As [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, pool: &PoolOptions, options: &VolumeOptions) -> Result<Self> {
        let pool = Pool::open(path, &pool_options(pool))?;
        Self::over(&Store::over(&pool)?, options)
    }

    /// Makes a volume in a store, and opens it. Durable on return.
    ///
    /// # Errors
    /// As [`format`](Self::format).
    pub fn make(store: &Store, options: &FormatOptions, volume: &VolumeOptions) -> Result<Self> {
        let image = Image::open(store, &volume.image)?;
        if image.head()?.next_ino == 0 {
            write_root(&image, options, volume.clock)?;
        }
        drop(image);
        // The object comes last: with it the volume exists.
        let object = store.open_or_make(VOLUME_NAME, &VOLUME, |action| make_object(store, action, options, volume))?;
        drop(object);
        Self::over(store, volume)
    }

    /// Opens the volume of a store.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(store: &Store, options: &VolumeOptions) -> Result<Self> {
        let not_found = || Error::NotAVolume { path: store.pool().path().to_owned() };
        store.find(VOLUME_NAME)?.ok_or_else(not_found)?;
        let object = store.open_or_make::<Error>(VOLUME_NAME, &VOLUME, |_| Err(not_found()))?;
        let memory = store.memory().clone();
        let path = store.pool().path();
        let layout = layout::read(&memory, object.at(), path)?;
        let image = Image::open(store, &options.image)?;
        if let Some(plan) = Plan::of_mark(image.mark()?, path)? {
            return Err(Error::Replicated { path: path.to_owned(), replicas: plan.replicas });
        }
        let data = Data::open(store.heap(), object.at(), layout)?;
        let mut state = State::load(image, layout.pages)?;
        let term = Term(low_u32(store.pool().boot()));
        let mut ring = Ring::open(&memory, layout.ring_at, layout.ring_bytes, layout.salt)?;
        let (mut recovery, settled) = replay(&mut ring, term, &mut state, &data)?;
        let mut core = Core::new(state, Log::Own { ring, term, salt: layout.salt });
        core.settled = settled;
        let inner = Inner::over(store, Arc::new(object), layout, Arc::new(data), None, options, core);
        // The quarantine of pages that replayed operations freed ends with this batch.
        inner.write_image()?;
        recovery.orphans = inner.free_orphans()?;
        Self::started(inner, recovery)
    }

    /// The volume of a metadata node that has taken over. `pins`: files that mounts of this process use.
    pub(crate) fn leading(
        parts: &Parts,
        core: Core,
        link: Arc<Link>,
        (options, keeps_orphans): (&VolumeOptions, bool),
        recovery: VolumeRecovery,
    ) -> Result<Self> {
        let (object, data) = (Arc::clone(&parts.object), Arc::clone(&parts.data));
        let inner = Inner::over(&parts.store, object, parts.layout, data, Some(link), options, core);
        let mut recovery = recovery;
        if !keeps_orphans {
            recovery.orphans = inner.free_orphans()?;
        }
        Self::started(inner, recovery)
    }

    fn started(inner: Inner, recovery: VolumeRecovery) -> Result<Self> {
        let inner = Arc::new(inner);
        let thread = if inner.options.background {
            let failed = |error| Error::Options(format!("no thread for the image could be started: {error}"));
            Some(batch::start(&inner).map_err(failed)?)
        } else {
            None
        };
        let closer = Arc::new(Closer { inner: Arc::clone(&inner), thread });
        Ok(Self { inner, _closer: closer, recovery, tag: None, told: None })
    }

    /// A handle for a request of a mount in another process.
    pub(crate) fn for_request(&self, tag: Option<Tag>) -> Self {
        Self { tag, ..self.clone() }
    }

    /// As [`for_request`](Self::for_request), for one that was answered before a takeover lost it.
    pub(crate) fn for_request_again(&self, tag: Tag, told: Files) -> Self {
        Self { tag: Some(tag), told: Some(told), ..self.clone() }
    }

    /// The operation that carried out a request of a mount.
    pub(crate) fn operation_of(&self, tag: Tag) -> Option<u64> {
        self.inner.core().state.requests.operation(tag).map(|operation| operation.0)
    }

    /// Whether the requests of a mount are remembered, if it had any.
    pub(crate) fn remembers(&self, mount: u64) -> bool {
        self.inner.core().state.requests.remembers(mount)
    }

    /// The lowest number of a file that the takeover did not leave.
    pub(crate) fn adopted_ino(&self) -> u64 {
        self.inner.core().adopted_ino
    }

    /// Whether the request that this handle is for was carried out before.
    pub(crate) fn was_carried_out(&self) -> bool {
        self.tag.is_some_and(|tag| self.inner.core().state.requests.has(tag))
    }

    /// The operation that carried out the request that this handle is for; 0: none did.
    pub(crate) fn operation_of_request(&self) -> u64 {
        let operation = |tag| self.inner.core().state.requests.operation(tag);
        self.tag.and_then(operation).map_or(0, |operation| operation.0)
    }

    /// New files get no lower number than this.
    pub(crate) fn number_files_from(&self, ino: u64) {
        let mut core = self.inner.core();
        core.ino_floor = core.ino_floor.max(ino);
    }

    /// As [`Inner::commit_or_not`], for the request that this handle is for, and with something to do.
    pub(crate) fn commit<T, R>(
        &self,
        mut plan: impl FnMut(&mut Core, Stamp) -> Result<(Op, T)>,
        done: impl FnOnce(&mut Core, T) -> Result<R>,
    ) -> Result<R> {
        let nothing = || Err(crate::error::Refusal::Invalid.into());
        self.inner.commit_for(self.tag, &[], |core, at| plan(core, at).map(Some), done, nothing)
    }

    /// Brings the image up to the last operation. Durable on return. A background thread does it by itself.
    ///
    /// # Errors
    /// A device that failed.
    pub fn write_image(&self) -> Result<()> {
        self.inner.write_image()
    }

    /// Everything that was done before the call survives power loss on return: `fsync` of every file.
    ///
    /// # Errors
    /// A device that failed: then nothing is acknowledged any more.
    pub fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    /// The findings of the open.
    #[must_use]
    pub const fn recovery(&self) -> VolumeRecovery {
        self.recovery
    }

    /// Counts since the open.
    #[must_use]
    pub fn counts(&self) -> OpCounts {
        self.inner.core().counts
    }

    /// Use of the pool by metadata. It waits for no operation.
    ///
    /// # Errors
    /// A damaged image.
    pub fn metadata(&self) -> Result<MetadataUsage> {
        let Inner { store, data, layout, image, .. } = &*self.inner;
        MetadataUsage::of(store, image, data, layout)
    }

    /// The store that the volume is in.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The persistence domain.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.inner.memory.domain()
    }

    /// Whether an operation is as durable as a sync makes it when its call returns: on media with lines, without
    /// replicas.
    #[must_use]
    pub fn is_durable_at_once(&self) -> bool {
        self.inner.link.is_none() && self.domain() != Domain::Block
    }

    /// Number of the volume, drawn when it was made.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner.layout.volume_id
    }

    /// Time of the format, nanoseconds since 1970.
    #[must_use]
    pub fn created(&self) -> i64 {
        self.inner.layout.created
    }
}

/// The options of a volume's pool.
pub(crate) fn pool_options(options: &PoolOptions) -> PoolOptions {
    let mut options = options.clone();
    (options.layout_name, options.layout_version) = (LAYOUT_NAME.into(), LAYOUT_VERSION);
    if options.grow_bytes_max == 0 {
        // Trees of very many small files need more than their share: then the pool grows.
        options.grow_bytes_max = u64::MAX;
    }
    options
}

/// Writes the root folder into an empty image.
fn write_root(image: &Image, options: &FormatOptions, clock: crate::Clock) -> Result<()> {
    let now = options.created.unwrap_or_else(|| if clock == Clock::System { system_time() } else { 0 });
    let attributes = Attributes {
        ino: ROOT,
        mode: FileKind::Folder.mode_bits() | 0o755,
        uid: options.uid,
        gid: options.gid,
        links: 2,
        device: 0,
        size: 0,
        pages: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    };
    let head = crate::image::Head { next_ino: ROOT + 1, files: 1, ..Default::default() };
    let mut state = State::new(image.clone(), head, Space::new(2));
    let content = Content::Folder(Folder::new(ROOT));
    state.put(Inode { attributes, content, extra: std::collections::BTreeMap::new() });
    image.write(&state.begin_batch(0))?.durable()?;
    Ok(())
}

fn make_object(
    store: &Store,
    action: &mut lodestone_heap::Action<'_>,
    options: &FormatOptions,
    volume: &VolumeOptions,
) -> Result<lodestone_pmem::PmAddr> {
    let memory = store.memory();
    let (start, end) = store.pool().heap_area(0);
    let (page_bytes, pages, area_pages, ring_bytes) = match options.pages {
        Some((page_bytes, pages, area_pages)) => (page_bytes, pages, area_pages, options.log_bytes),
        None => {
            let (pages, area_pages, ring_bytes) = layout::sizes(end.offset() - start.offset(), options.log_bytes)?;
            (PAGE_BYTES, pages, area_pages, ring_bytes)
        }
    };
    let draw = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), system_time());
    let salt = if options.salt == 0 { draw() } else { options.salt };
    let ring_at = action.alloc(ring_bytes)?;
    Ring::create(memory, ring_at, ring_bytes, salt)?;
    let created = options.created.unwrap_or_else(|| if volume.clock == Clock::System { system_time() } else { 0 });
    let volume_id = if options.salt == 0 { draw() } else { options.salt };
    let head = Super { page_bytes, volume_id, salt, pages, area_pages, ring_at, ring_bytes, created };
    layout::make(memory, action, &head)
}

/// Executes the operations that the image lacks. Returns the last one that is known to be durable, too.
///
/// An operation that nothing says to be durable counts only if its pages have their checksums. The first that does not
/// ends the log: it and what follows was never acknowledged.
fn replay(ring: &mut Ring, term: Term, state: &mut State, data: &Data) -> Result<(VolumeRecovery, Sequence)> {
    let applied = Sequence(state.head.applied);
    let mut recovery = VolumeRecovery::default();
    if ring.last() < applied {
        // The image is durable after the log is. So this log lost only records that nothing needs.
        ring.restart(applied, term);
    }
    if ring.first() > applied {
        let (first, image) = (ring.first().0, applied.0);
        return Err(damaged(
            "log of operations",
            format!("it begins after operation {first}, the image ends at {image}"),
        ));
    }
    let last = ring.last();
    let mut durable = applied;
    for number in applied.0 + 1..=last.0 {
        durable = durable.max(record(ring, number)?.0);
    }
    for number in applied.0 + 1..=last.0 {
        let (_, op) = record(ring, number)?;
        write_inlined(&op.0, data, &state.space)?;
        if Sequence(number) > durable && !has_its_pages(&op.0, data)? {
            ring.cut(Sequence(number - 1))?;
            recovery.dropped = last.0 - number + 1;
            break;
        }
        state.execute(&op, Sequence(number))?;
        recovery.replayed += 1;
    }
    Ok((recovery, durable))
}

/// The operation `number`, the one up to which everything was durable when it was made, and the request it was for.
fn record(ring: &Ring, number: u64) -> Result<(Sequence, (Op, Option<Tag>))> {
    let missing = || damaged("log of operations", format!("operation {number} cannot be read"));
    let (head, body) = ring.record(Sequence(number))?.ok_or_else(missing)?;
    let op = tagged_operation(&head, &body)?;
    if head.reuse >= Sequence(number) {
        return Err(damaged("log of operations", format!("operation {number} names one after it as durable")));
    }
    Ok((head.reuse, op))
}

/// The operation in a record of the log, and the request that it was for.
pub(crate) fn tagged_operation(head: &RecordHead, body: &[u8]) -> Result<(Op, Option<Tag>)> {
    let number = head.sequence.0;
    let op = Tag::split(head.opcode, body).and_then(|(code, body, tag)| {
        Op::decode(code, head.inode, head.offset.cast_signed(), body).map(|op| (op, tag))
    });
    op.ok_or_else(|| damaged("log of operations", format!("operation {number} makes no sense")))
}

fn has_its_pages(op: &Op, data: &Data) -> Result<bool> {
    let Action::Content(change) = &op.action else { return Ok(true) };
    if lodestone_pmem::planted::active("fs-pages-unverified") {
        return Ok(true);
    }
    for (_, page, crc) in change.pages() {
        if !data.verifies(page, crc)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes the pages that the log has as well: nothing says that they have reached the medium. They are free in the
/// image, so a crash here does no harm.
fn write_inlined(op: &Op, data: &Data, space: &Space) -> Result<()> {
    let Action::Content(change) = &op.action else { return Ok(()) };
    let mut rest = change.payload.as_slice();
    let wrong = || damaged("log of operations", format!("a write of file {} names pages that it cannot have", op.ino));
    for (_, run) in change.puts.iter().filter(|_| !change.payload.is_empty()) {
        // Looked at before anything is written: the pages may be those of another file.
        let bytes = space.may_take(*run).then(|| data.bytes_of(*run)).ok_or_else(wrong)?;
        data.write(*run, rest.split_off(..bytes).ok_or_else(wrong)?, &mut Vec::new())?;
    }
    if rest.is_empty() { Ok(()) } else { Err(wrong()) }
}

impl Inner {
    /// Frees the files without a name: nothing has them open in a new life.
    pub(crate) fn free_orphans(&self) -> Result<u64> {
        let image = self.core().state.image.clone();
        let mut orphans: BTreeSet<u64> = image.orphans()?.into_iter().collect();
        orphans.extend(&self.core().state.dirty.orphans);
        let mut freed = 0;
        for ino in orphans {
            let plan = |core: &mut Core, at| {
                let is_orphan = core.state.find(ino)?.is_some_and(|file| file.attributes.links == 0);
                let is_free = is_orphan && !core.is_pinned(ino);
                Ok(is_free.then_some((Op { ino, at, action: Action::Forget }, ())))
            };
            freed += self.commit_or_not(&[], plan, |_, ()| Ok(1), || Ok(0))?;
        }
        if freed > 0 && self.link.is_none() {
            self.write_image()?;
        }
        Ok(freed)
    }
}

#[cfg(test)]
mod tests {
    use lodestone_fabric::FLAG_INLINE;
    use lodestone_pmem::DomainChoice;
    use lodestone_width::to_usize;

    use super::*;
    use crate::access::Caller;
    use crate::extents::Run;
    use crate::op::ContentChange;

    /// Records with a right checksum that no volume writes: each is named, and other files keep their bytes.
    #[test]
    fn impossible_records_of_the_log_are_named() {
        let page = PAGE_BYTES;
        let write = |run: Run, bytes: u64| ContentChange {
            size: bytes,
            puts: vec![(0, run)],
            crcs: vec![0; to_usize(run.count)],
            payload: vec![7; to_usize(bytes)],
            ..ContentChange::default()
        };
        let make = |ino| {
            let (parent, name, target) = (ROOT, b"b".to_vec(), Vec::new());
            let mode = FileKind::File.mode_bits() | 0o644;
            (ino, Action::Make { parent, name, mode, uid: 0, gid: 0, device: 0, target })
        };
        let content = |run, bytes| (ROOT + 1, Action::Content(write(run, bytes)));
        let wrong = [
            content(Run { page: u64::from(u32::MAX), count: 1 }, page),
            content(Run { page: 1, count: 1 }, page),
            content(Run { page: 3, count: 1 }, page / 2),
            content(Run { page: 3, count: 1 }, 2 * page),
            make(u64::MAX),
        ];
        for (ino, action) in wrong {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("a.vol");
            let pool = PoolOptions { size_bytes: 16 << 20, domain: DomainChoice::Process, ..PoolOptions::default() };
            let options = VolumeOptions { background: false, ..VolumeOptions::default() };
            drop(Volume::format_with(&path, &pool, &FormatOptions::default()).expect("a volume"));
            let volume = Volume::open_with(&path, &pool, &options).expect("a volume");
            let file = volume.create("/a").expect("a file");
            assert_eq!(file.ino(), ROOT + 1);
            volume.write(&Caller::root(), ROOT + 1, 0, &[1; 4096]).expect("a write");
            volume.write_image().expect("an image");
            let mut core = volume.inner.core();
            assert!(!core.state.space.may_take(Run { page: 1, count: 1 }), "the page of the file");
            let (code, body) = Op { ino, at: 5, action }.encode();
            let Log::Own { ring, term, .. } = &mut core.log else { panic!("it has no replicas") };
            let sequence = ring.last().next();
            let (term, operation) = (*term, sequence.0);
            let mut head = RecordHead { sequence, operation, term, opcode: code, inode: ino, ..RecordHead::default() };
            (head.flags, head.offset) = (FLAG_INLINE, 5);
            head.seal(volume.inner.layout.salt, &body).expect("a record");
            ring.append(&head, &body).expect("a record");
            volume.inner.memory.fence();
            drop(core);
            drop((file, volume));
            let error = Volume::open_with(&path, &pool, &options).expect_err("a record that makes no sense");
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
        }
    }
}
