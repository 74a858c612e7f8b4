//! A transaction in progress: reads by value, working copies, allocation.
//!
//! 1. *Read*: the version word names the newest slot. The slot is copied, and the word read again (see
//!    [`lodestone_txn::VersionWord`]). A version that the thread's start clocks cover is consistent with everything
//!    read before. A newer one makes the transaction validate its reads and extend the start clock, or restart. So a
//!    closure never sees a state that was never committed (opacity).
//!
//!    That holds also when the closure swallows a conflict and goes on. The attempt is then *doomed*, and every later
//!    operation returns the same conflict. The check costs nothing on the short way: the views of a doomed attempt show
//!    nothing, and the long way asks for the doom.
//! 2. *Write*: the first write to an object copies it into the thread's arena. Nothing is stored to the pool before the
//!    commit.
//! 3. *Note*: reads that may need validation are noted with address and word. Read-only transactions note nothing at
//!    first. When they meet a version that is not covered after a first read, they restart with a list.

use std::borrow::Cow;

use lodestone_pmem::{LINE_BYTES, PmAddr, PmPtr, Raw, VIEW_BLOCK_BYTES, View};
use lodestone_txn::{ClockKind, SLOT_HEADER_WORDS, SlotHeader, State, VersionWord, Which};
use lodestone_width::{exact_u32, to_usize, u32_to_u64};
use zerocopy::{FromBytes, IntoBytes, TryFromBytes};

use crate::commit::{another_size, not_allocated};
use crate::context::{Change, Context, Doom, FreeCell, ReadEntry, WriteEntry};
use crate::core::Core;
use crate::error::{Abort, Conflict, Error, Result, TxResult, Why};
use crate::object::{PmObject, Shaped};
use crate::part::Part;
use crate::published;
use lodestone_cells::Shape;

/// The operations that a transaction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads and changes. Reads are noted.
    Update,
    /// Reads only, noted or not.
    Read { noted: bool },
    /// Reads of the epoch's versions only.
    Snapshot { epoch: u64 },
    /// No operation any more: see [`Doom`].
    None,
}

/// A transaction in progress. See [`Stm::update`](crate::Stm::update).
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_stm::{PmPtr, Tx, TxResult, pm_object};
///
/// #[pm_object]
/// struct Account {
///     cents: u64,
/// }
///
/// fn add(tx: &mut Tx<'_>, account: PmPtr<Account>, cents: u64) -> TxResult<u64> {
///     let account = tx.write(account)?;
///     account.cents += cents;
///     Ok(account.cents)
/// }
///
/// let account = stm.root::<Account>()?;
/// assert_eq!(stm.update(|tx| add(tx, account, 100))?, 100);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Debug)]
pub struct Tx<'t> {
    pub(crate) core: &'t Core,
    pub(crate) context: &'t mut Context,
    pub(crate) access: Access,
    /// Whether reads are noted.
    pub(crate) notes: bool,
    /// Whether there were reads that were not noted.
    pub(crate) unnoted: bool,
    /// The view through which the newest versions may be read at once. Empty after a write, or when older versions are
    /// needed.
    view: View<'t>,
    /// The view through which versions may be read at once, whatever was written.
    whole: View<'t>,
    /// The object whose first write is under way.
    opening: PmAddr,
}

/// Values of up to so many bytes are read from both slots at once, before it is known which slot counts.
const EITHER_BYTES_MAX: usize = 32;
/// How often a reader looks at an object under commit before it yields.
pub(crate) const PATIENCE: u32 = 200;

impl<'t> Tx<'t> {
    pub(crate) fn new(core: &'t Core, context: &'t mut Context, access: Access) -> Self {
        if core.timeline.clock().kind() != ClockKind::Thread {
            know_now(core, context);
        }
        let notes = access == Access::Update || access == (Access::Read { noted: true });
        let current = !matches!(access, Access::Snapshot { .. }) && !published::reads();
        let whole = core.memory.view();
        let view = if current { whole } else { View::EMPTY };
        Self { core, context, access, notes, unnoted: false, view, whole, opening: PmAddr::NULL }
    }

    /// The object at `ptr`, by value.
    ///
    /// # Errors
    /// Return them with `?`: a conflict restarts the transaction. [`Error::BadPointer`] when no object is there.
    ///
    /// # Wrong pointers
    /// A pointer names a place, not a pool and not a type. A pointer of another pool, or to an object of another type,
    /// is an error where this pool has no object, or no room for a `T`. Otherwise the read returns the bytes at that
    /// place as a `T`: some value of the type, never a byte from outside the pool.
    ///
    /// An object of another size is noticed by every change ([`write`](Self::write), [`free`](Self::free)) and by reads
    /// of byte strings. Reads that take the long way (objects of more than about 2 KB, snapshots) notice it too. The
    /// short way does not: a look at the size would cost a small read a tenth to a quarter of its time.
    #[inline(always)]
    pub fn read<T: PmObject>(&mut self, ptr: PmPtr<T>) -> TxResult<T> {
        let at = ptr.addr();
        match self.read_at_once(self.view, at, Part::<T, T>::WHOLE) {
            Some(value) => Ok(value),
            None => self.read_again(at),
        }
    }

    /// A part of the object at `ptr`, by value: as [`read`](Self::read), but nothing else is copied. For large objects
    /// of which a step needs only a field or two.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline(always)]
    pub fn read_part<T: PmObject, F: FromBytes + IntoBytes>(&mut self, ptr: PmPtr<T>, part: Part<T, F>) -> TxResult<F> {
        let at = ptr.addr();
        match self.read_at_once(self.view, at, part) {
            Some(value) => Ok(value),
            None => self.read_again(at).map(|whole| part.of(&whole)),
        }
    }

    /// The part of the newest version of the object at `at`, if `view` shows it and it is covered.
    #[inline(always)]
    fn read_at_once<T: PmObject, F: TryFromBytes + IntoBytes>(
        &mut self,
        view: View<'t>,
        at: PmAddr,
        part: Part<T, F>,
    ) -> Option<F> {
        if const { u32_to_u64(T::SHAPE.cell_bytes) > VIEW_BLOCK_BYTES } {
            return None;
        }
        let payload = const { [T::SHAPE.payload_word(Which::First), T::SHAPE.payload_word(Which::Second)] };
        let block = view.block(at)?;
        let word = VersionWord::from_raw(block.load(0));
        if !self.context.known.covers_live(word) {
            return None;
        }
        let is_second = word.slot() == Which::Second;
        let (first, second) = (payload[0] + part.word(), payload[1] + part.word());
        let value: Raw<F> = if const { size_of::<F>() <= EITHER_BYTES_MAX } {
            block.get_either(first, second, is_second)
        } else {
            block.get(if is_second { second } else { first })
        };
        if !published::same(VersionWord::from_raw(block.load_behind(0)), word) {
            return None;
        }
        self.note(at, word);
        // Bytes that are no value: the long way names them.
        value.value()
    }

    /// As [`read`](Self::read), when the first look was not enough.
    #[inline(never)]
    fn read_again<T: PmObject>(&mut self, at: PmAddr) -> TxResult<T> {
        if !self.context.writes.is_empty() {
            if let Some(number) = self.context.find_write(at) {
                return self.own_copy(number);
            }
            if !published::reads()
                && let Some(value) = self.read_at_once(self.whole, at, Part::<T, T>::WHOLE)
            {
                return Ok(value);
            }
        }
        let mut value = Raw::<T>::zeroed();
        self.read_slow(at, T::SHAPE, T::WORDS, value.as_mut_bytes())?;
        value.value().ok_or_else(|| no_value::<T>(self.core, at))
    }

    /// Reads the newest version of the object of `words` words at `at`, which is not in the write set, into `out`, if a
    /// view shows it and it is covered. Returns whether it did. As [`read_at_once`](Self::read_at_once), where the size
    /// is known only now. The size is checked too.
    #[inline]
    pub(crate) fn copy_bytes_at_once(&mut self, at: PmAddr, shape: Shape, words: u32, out: &mut [u8]) -> bool {
        let view = if self.context.writes.is_empty() || published::reads() { self.view } else { self.whole };
        if u64::from(shape.cell_bytes) > VIEW_BLOCK_BYTES {
            return false;
        }
        let Some(block) = view.block(at) else { return false };
        let word = VersionWord::from_raw(block.load(0));
        if !self.context.known.covers_live(word) {
            return false;
        }
        let payload = shape.payload_word(word.slot());
        let fits = SlotHeader::decode(0, block.load(payload - 1)).words == words;
        block.copy_bytes(payload, out);
        if !fits || !published::same(VersionWord::from_raw(block.load_behind(0)), word) {
            return false;
        }
        self.note(at, word);
        true
    }

    #[inline(always)]
    fn note(&mut self, at: PmAddr, word: VersionWord) {
        if self.notes {
            self.context.reads.push(ReadEntry { at, word });
        } else {
            self.unnoted = true;
        }
    }

    fn own_copy<T: PmObject>(&mut self, number: usize) -> TxResult<T> {
        use zerocopy::IntoBytes;
        self.refuse_if_doomed()?;
        let entry = self.context.writes[number];
        if !matches!(entry.change, Change::Update | Change::Alloc) || entry.words != T::WORDS {
            return Err(not_allocated(entry.at).into());
        }
        let bytes = self.context.payload(number).as_bytes();
        match T::try_read_from_prefix(bytes) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(no_value::<T>(self.core, entry.at)),
        }
    }

    /// Reads the payload of the object of `words` words at `at`, or its beginning, into `out`, when the first look was
    /// not enough. Returns the word.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_slow(&mut self, at: PmAddr, shape: Shape, words: u32, out: &mut [u8]) -> TxResult<VersionWord> {
        self.refuse_if_doomed()?;
        if let Access::Snapshot { epoch } = self.access {
            return crate::snapshot::read(self, epoch, at, shape, words, out);
        }
        let mut looks = 0;
        loop {
            let word = self.core.word(at, shape)?;
            if !published::may_read(word) {
                looks += 1;
                if self.access != Access::Update && published::falls_off(word) {
                    return Ok(word);
                }
                if looks > PATIENCE {
                    if word.state() == State::Committing && self.core.heal_lock(at, word) {
                        looks = 0;
                        continue;
                    }
                    return Err(self.conflict(Conflict::Committing));
                }
                give_way(looks);
                continue;
            }
            if !self.context.known.covers(word)
                && let Err(conflict) = self.extend(word)
            {
                if self.access != Access::Update && published::falls_back(self.core, self.context, word, at, shape, out)
                {
                    self.note(at, word);
                    return Ok(word);
                }
                return Err(self.conflict(conflict));
            }
            if word.state() == State::Free {
                // The absence of an object is also a read: the closure may go on.
                self.note(at, word);
                return Err(not_allocated(at).into());
            }
            let fits = self.core.read_version(shape.slot_at(at, word.slot()), words, out);
            let again = VersionWord::from_raw(self.core.memory.load(at));
            if published::same(again, word) || self.core.memory.is_read_only() {
                self.note(at, word);
                return if fits { Ok(word) } else { Err(another_size(at).into()) };
            }
        }
    }

    /// Learns the version of `word`, if everything that was read is still valid.
    fn extend(&mut self, word: VersionWord) -> Result<(), Conflict> {
        if self.unnoted {
            self.context.known.raise(word);
            return Err(Conflict::Unrecorded);
        }
        self.core.stats.of(self.context.writer.index()).extensions();
        // A global clock is read before the validation. Everything committed up to then is known afterwards.
        let now = self.core.timeline.clock().now();
        let opening = self.opening;
        let context = &mut *self.context;
        if published::on("stm-s5") || published::on("stm-s8") {
            context.known.raise(word);
        }
        let unchanged = |at: PmAddr, seen: VersionWord| {
            let now = VersionWord::from_raw(self.core.memory.load(at));
            published::valid(now, seen, opening == at, &context.known)
        };
        let valid = context.reads.iter().all(|entry| unchanged(entry.at, entry.word))
            && context.writes.iter().all(|entry| entry.change == Change::Nothing || unchanged(entry.at, entry.seen));
        // Also when it is not valid: the next attempt begins later.
        match now {
            Some(now) => context.known.know(0, now),
            None => context.known.raise(word),
        }
        if valid { Ok(()) } else { Err(Conflict::ReadChanged) }
    }

    /// Ends the attempt, also when the closure swallows the error.
    #[cold]
    pub(crate) fn conflict(&mut self, conflict: Conflict) -> Abort {
        self.doom(Doom::Conflict(conflict));
        conflict.into()
    }

    /// Makes every later operation fail: without views reads take the long way, without access changes are refused.
    #[cold]
    fn doom(&mut self, doom: Doom) {
        self.context.doom.set(Some(doom));
        (self.view, self.whole, self.access) = (View::EMPTY, View::EMPTY, Access::None);
    }

    /// Returns an error that was returned before.
    #[inline(always)]
    pub(crate) fn refuse_if_doomed(&self) -> TxResult<()> {
        match self.context.doom.get() {
            None => Ok(()),
            Some(doom) => Err(doom.into()),
        }
    }

    /// A working copy of the object at `ptr`. The object gets its content when the transaction commits.
    ///
    /// # Errors
    /// As [`read`](Self::read). [`Error::ReadOnly`] in a transaction that only reads.
    #[inline]
    pub fn write<T: PmObject>(&mut self, ptr: PmPtr<T>) -> TxResult<&mut T> {
        let number = self.writable(ptr)?;
        let core = self.core;
        let bytes = zerocopy::IntoBytes::as_mut_bytes(self.context.payload(number));
        match T::try_mut_from_prefix(bytes) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(no_value::<T>(core, ptr.addr())),
        }
    }

    /// Number of the write entry of the object at `ptr`, made when there is none.
    fn writable<T: PmObject>(&mut self, ptr: PmPtr<T>) -> TxResult<usize> {
        self.changeable("a write")?;
        let at = ptr.addr();
        if let Some(number) = self.context.find_write(at) {
            let entry = self.context.writes[number];
            let usable = matches!(entry.change, Change::Update | Change::Alloc) && entry.words == T::WORDS;
            return if usable { Ok(number) } else { Err(not_allocated(at).into()) };
        }
        self.view = View::EMPTY;
        // Copied to the end of the arena first. The entry follows when the version is known.
        let arena = self.context.arena.len();
        self.context.arena.resize(arena + SLOT_HEADER_WORDS + to_usize(T::WORDS), 0);
        let (shape, words) = (T::SHAPE, T::WORDS);
        let seen = match self.copy_at_once::<T>(at, arena + SLOT_HEADER_WORDS) {
            Some(seen) => seen,
            None => self.copy_again(at, shape, arena)?,
        };
        Ok(self.context.add_entry(WriteEntry { at, seen, shape, change: Change::Update, words, arena }))
    }

    /// Copies the newest version of the object at `at` to word `start` of the arena, if the view shows it and it is
    /// covered. Returns its word. No read entry is needed, because the lock will compare the word.
    #[inline(always)]
    fn copy_at_once<T: PmObject>(&mut self, at: PmAddr, start: usize) -> Option<VersionWord> {
        if const { u32_to_u64(T::SHAPE.cell_bytes) > VIEW_BLOCK_BYTES } {
            return None;
        }
        let block = self.whole.block(at)?;
        let word = VersionWord::from_raw(block.load(0));
        if !self.context.known.covers_live(word) {
            return None;
        }
        let target = &mut self.context.arena[start..start + to_usize(T::WORDS)];
        let payload = T::SHAPE.payload_word(word.slot());
        block.copy(payload, target);
        // An object of another size has its slots elsewhere. A write here would destroy its neighbours.
        let fits = SlotHeader::decode(0, block.load(payload - 1)).words == T::WORDS;
        (fits && block.load_behind(0) == word.to_raw()).then_some(word)
    }

    /// As [`copy_at_once`](Self::copy_at_once), when that was not enough, for the arena's last entry, which begins at
    /// `arena`.
    #[cold]
    #[inline(never)]
    fn copy_again(&mut self, at: PmAddr, shape: Shape, arena: usize) -> TxResult<VersionWord> {
        let mut words = self.context.arena.split_off(arena + SLOT_HEADER_WORDS);
        let count = exact_u32(words.len());
        let seen = self.current(at, shape, count, zerocopy::IntoBytes::as_mut_bytes(words.as_mut_slice()));
        match seen {
            Ok(_) => self.context.arena.extend(words),
            Err(_) => self.context.arena.truncate(arena),
        }
        seen
    }

    /// Reads the newest version of an object of `words` words that is to be written, without a read entry.
    fn current(&mut self, at: PmAddr, shape: Shape, words: u32, out: &mut [u8]) -> TxResult<VersionWord> {
        let noted = self.context.reads.len();
        self.opening = at;
        let word = self.read_slow(at, shape, words, out);
        self.opening = PmAddr::NULL;
        let word = word?;
        self.context.reads.truncate(noted);
        Ok(word)
    }

    #[inline(always)]
    pub(crate) fn changeable(&self, what: &'static str) -> TxResult<()> {
        let allowed = self.access == Access::Update && !self.core.memory.is_read_only();
        if allowed { Ok(()) } else { self.refuse_change(what) }
    }

    #[cold]
    fn refuse_change(&self, what: &'static str) -> TxResult<()> {
        self.refuse_if_doomed()?;
        Err(Error::ReadOnly { what }.into())
    }

    /// A new object with the content `value`. It exists when the transaction commits. Otherwise no room is taken.
    ///
    /// # Errors
    /// A full pool ([`lodestone_heap::Error::NoSpace`] in [`Error::Heap`]), [`Error::LayoutChanged`],
    /// [`Error::ReadOnly`].
    pub fn alloc<T: PmObject>(&mut self, value: T) -> TxResult<PmPtr<T>> {
        self.changeable("an allocation")?;
        self.core.check_type::<T>(self.context)?;
        let number = self.alloc_cell(T::SHAPE, T::WORDS)?;
        let payload = zerocopy::IntoBytes::as_mut_bytes(self.context.payload(number));
        payload[..size_of::<T>()].copy_from_slice(value.as_bytes());
        Ok(PmPtr::new(self.context.writes[number].at))
    }

    /// Takes a cell and adds it to the write set. Returns the entry's number.
    #[inline(always)]
    pub(crate) fn alloc_cell(&mut self, shape: Shape, words: u32) -> Result<usize> {
        self.view = View::EMPTY;
        let FreeCell { at, word } = self.context.take_cell(self.core, shape)?;
        debug_assert!(word.is_none_or(|word| self.core.memory.load(at) == word.to_raw()), "free cells are ours alone");
        let seen = match word {
            Some(word) => word,
            None => self.free_word(at, shape)?,
        };
        Ok(self.context.add_write(at, seen, shape, Change::Alloc, words))
    }

    /// The word of a free cell that this life has not used.
    #[cold]
    #[inline(never)]
    fn free_word(&self, at: PmAddr, shape: Shape) -> Result<VersionWord> {
        let seen = self.core.word(at, shape)?;
        if seen.state() == State::Free {
            Ok(seen)
        } else {
            Err(self.core.damaged("cell", at, "a free cell holds an object"))
        }
    }

    /// Frees the object at `ptr`. Its place is used again when the transaction is durable.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn free<T: PmObject>(&mut self, ptr: PmPtr<T>) -> TxResult<()> {
        self.free_cell(ptr.addr(), T::SHAPE, T::WORDS)
    }

    pub(crate) fn free_cell(&mut self, at: PmAddr, shape: Shape, words: u32) -> TxResult<()> {
        self.changeable("a free")?;
        if let Some(number) = self.context.find_write(at) {
            let entry = &mut self.context.writes[number];
            let is_other = entry.shape != shape || entry.words != words;
            entry.change = match entry.change {
                Change::Update | Change::Alloc if is_other => return Err(another_size(at).into()),
                Change::Update => Change::Free,
                Change::Alloc => Change::Nothing,
                Change::Free | Change::Nothing => return Err(not_allocated(at).into()),
            };
            self.core.slabs.ensure_scanned(at, |cell| self.core.is_free(cell, shape));
            return Ok(());
        }
        let seen = match self.seen_at_once(at, shape, words) {
            Some(seen) => seen,
            None => self.current(at, shape, words, &mut [])?,
        };
        self.core.slabs.ensure_scanned(at, |cell| self.core.is_free(cell, shape));
        self.view = View::EMPTY;
        self.context.add_write(at, seen, shape, Change::Free, 0);
        Ok(())
    }

    /// The word of the live object of `words` words at `at`, if the view shows it and it is covered.
    fn seen_at_once(&self, at: PmAddr, shape: Shape, words: u32) -> Option<VersionWord> {
        if u64::from(shape.cell_bytes) > VIEW_BLOCK_BYTES {
            return None;
        }
        let block = self.whole.block(at)?;
        let word = VersionWord::from_raw(block.load(0));
        let fits = SlotHeader::decode(0, block.load(shape.payload_word(word.slot()) - 1)).words == words;
        let known = self.context.known.covers_live(word);
        (known && fits && block.load_behind(0) == word.to_raw()).then_some(word)
    }

    /// More objects than the pool can hold. A walk along links that visits so many objects is in a circle.
    #[must_use]
    pub fn objects_max(&self) -> u64 {
        let memory = &self.core.memory;
        (0..memory.part_count()).map(|part| memory.part_len(part)).sum::<u64>() / LINE_BYTES
    }

    /// Ends the transaction without a change. [`Stm::update`](crate::Stm::update) returns [`Error::Cancelled`].
    ///
    /// # Errors
    /// Always: return it.
    pub fn cancel<R>(&self, reason: impl Into<Cow<'static, str>>) -> TxResult<R> {
        Err(Error::Cancelled { reason: reason.into() }.into())
    }

    /// When `condition` holds, ends this attempt and waits until something that it read has changed. Then the
    /// transaction restarts. It waits for ever when no thread makes the change.
    ///
    /// # Errors
    /// Return it with `?`. [`Error::NeverChanges`] when `condition` holds and the pool is open read-only.
    pub fn retry_when(&self, condition: bool) -> TxResult<()> {
        self.refuse_if_doomed()?;
        match condition {
            false => Ok(()),
            true if self.core.memory.is_read_only() => Err(Error::NeverChanges.into()),
            true => {
                // Also when the closure answers with another error, or goes on.
                self.context.doom.set(Some(Doom::Retry));
                Err(Abort(Why::Retry))
            }
        }
    }

    /// Runs `body` as part of this transaction: nested transactions flatten. A failure of `body` ends the whole
    /// transaction, even when the outer closure swallows it. Every later operation of the closure fails, so that it
    /// never sees half of `body`. [`Stm::update`](crate::Stm::update) returns [`Error::Cancelled`].
    ///
    /// # Errors
    /// The error that `body` returned.
    pub fn nested<R>(&mut self, body: impl FnOnce(&mut Tx<'_>) -> TxResult<R>) -> TxResult<R> {
        self.refuse_if_doomed()?;
        let outcome = body(self);
        if outcome.is_err() && self.context.doom.get().is_none() {
            self.doom(Doom::Nested);
        }
        outcome
    }
}

/// The error for an object whose bytes are no `T`.
#[cold]
fn no_value<T: PmObject>(core: &Core, at: PmAddr) -> Abort {
    let finding = format!("its bytes are no `{}`: a field holds what its type does not have", T::NAME);
    core.damaged("object", at, finding).into()
}

/// A global clock: everything up to now is known (paper 1: `get_time`).
#[inline(never)]
fn know_now(core: &Core, context: &mut Context) {
    if let Some(now) = core.timeline.clock().now() {
        context.known.know(0, now);
    }
}

/// Lets other threads go on: at first a pause of the processor, then of the thread.
pub(crate) fn give_way(looks: u32) {
    if cfg!(feature = "shuttle") || looks.is_multiple_of(32) {
        lodestone_pmem::sync::thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}
