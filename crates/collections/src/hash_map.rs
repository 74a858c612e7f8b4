//! [`PmHashMap`]: extendible hashing whose directory is a tree, so that it grows by small steps.
//!
//! 1. *Pages* hold entries in no order. *Directories* hold 64 addresses of pages or further directories. A directory at
//!    level `l` is indexed by bits `6l .. 6l+6` of the key's hash. A lookup reads the header, one directory per level,
//!    one page.
//! 2. A page in a directory is shared by `2^(6-b)` of its places: those whose low `b` bits agree. A full page is split
//!    by the next bit: its entries are divided, and half of the places lead to the new page. That writes two pages and
//!    one directory.
//! 3. A full page with only one place gets a new directory, one level down, and is split there.
//! 4. Keys whose hashes agree in 60 bits are in overflow pages after the page.
//!
//! No step touches more than a few objects. None touches an object that every transaction reads, except for the first
//! directories. So a growing map does not disturb other transactions. There is no count of entries, for the same
//! reason: counting visits the pages.
//!
//! Invariants:
//! - every entry is in the page that its hash leads to;
//! - a page's places in its directory are exactly those that agree with it in its low bits;
//! - pages stay when they empty, until the map is cleared.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::ops::ControlFlow;

use lodestone_pmem::planted;
use lodestone_stm::{
    FromBytes, Immutable, IntoBytes, KnownLayout, PmAddr, PmBytes, PmObject, PmPtr, Result, Stm, Tx, TxResult,
};
use lodestone_width::{exact_u32, to_u64, to_usize};

use crate::damaged;
use crate::item::{PmKey, PmValue};
use crate::mark::{self, Forms, NodeKind};
use crate::node;
use crate::root;
use crate::salvage::Loot;
use crate::steps::Steps;
use crate::words::Words;

/// Words of a page: a slot of four lines.
pub(crate) const PAGE_WORDS: usize = 29;
/// The last word of a page leads to its overflow page.
const NEXT: usize = PAGE_WORDS - 1;
const LEVEL_BITS: u32 = 6;
const PLACES: usize = 1 << LEVEL_BITS;
/// Levels of directories. After them the hash has no bits left.
const LEVELS_MAX: u32 = 10;
/// Lowest bit of an address: it leads to a directory.
const DIRECTORY: u64 = 1;
/// Bit of a page's head word where the number of bits shared by its entries begins.
const BITS_SHIFT: u32 = 16;
const BITS_MASK: u64 = 0xFF << BITS_SHIFT;
/// Most words of one entry, so that a page holds at least two.
const ENTRY_WORDS_MAX: usize = (NEXT - node::HEAD_WORDS) / 2;

type Page = Words<PAGE_WORDS>;
type Directory = Words<PLACES>;

/// The header object of a [`PmHashMap`]. Keep a pointer to it in one of your objects to have a map inside it.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::{HashHeader, PmHashMap};
/// use lodestone_stm::{PmPtr, pm_object};
///
/// #[pm_object]
/// struct Shop {
///     stock: PmPtr<HashHeader>,
/// }
///
/// let shop = stm.root::<Shop>()?;
/// stm.update(|tx| {
///     let stock = PmHashMap::<u64, u64>::create(tx)?;
///     stock.insert(tx, &7, &3)?;
///     tx.write(shop)?.stock = stock.header();
///     Ok(())
/// })?;
/// let found = stm.read(|tx| {
///     let header = tx.read(shop)?.stock;
///     PmHashMap::<u64, u64>::at(tx, header)?.get(tx, &7)
/// })?;
/// assert_eq!(found, Some(3));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, PmObject)]
#[repr(C)]
#[pm(name = "lodestone.HashMap")]
pub struct HashHeader {
    /// Page or directory, or null.
    root: u64,
    /// Most entries of a page. 0: as many as fit.
    entries_max: u64,
    signature: PmBytes,
}

/// An unordered map in a transactional memory.
///
/// Cost of an operation on `n` entries, in objects: a lookup reads the header, `log64(n / 10)` directories, one page,
/// and the box of a byte string's value. An insert or removal also writes the page (4 lines) and the box. An update of
/// a byte string that fits its box writes the box alone. A split writes two pages and a directory. Fences: one per
/// transaction.
///
/// ```
/// # use lodestone_collections::{Bytes, PmHashMap};
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # use lodestone_stm::Stm;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let stm = Stm::open(&Store::create(folder.path().join("a.pool"), &options)?)?;
/// let accounts = PmHashMap::<u64, i64>::open(&stm, "accounts")?;
/// stm.update(|tx| {
///     accounts.insert(tx, &1, &100)?;
///     accounts.insert(tx, &2, &50)
/// })?;
/// assert_eq!(stm.read(|tx| accounts.get(tx, &1))?, Some(100));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
pub struct PmHashMap<K, V> {
    header: PmPtr<HashHeader>,
    kind: PhantomData<fn() -> (K, V)>,
}

root::collection!(PmHashMap<K, V>, HashHeader);
root::handle!(PmHashMap<K: PmKey, V: PmValue>, HashHeader, "map");

/// The page that a hash leads to.
struct Reached {
    /// The directory that holds it, and its level. `None`: the header holds it.
    directory: Option<(PmPtr<Directory>, u32)>,
    at: PmPtr<Page>,
}

/// An entry that was found.
struct Found {
    at: PmPtr<Page>,
    page: Page,
    index: usize,
}

fn place_of(hash: u64, level: u32) -> usize {
    to_usize(hash >> (level * LEVEL_BITS)) & (PLACES - 1)
}

fn bits(page: &Page) -> u32 {
    exact_u32((page.0[0] & BITS_MASK) >> BITS_SHIFT)
}

fn set_bits(page: &mut Page, bits: u32) {
    page.0[0] = page.0[0] & !BITS_MASK | u64::from(bits) << BITS_SHIFT;
}

impl<K: PmKey, V: PmValue> PmHashMap<K, V> {
    const ENTRY: usize = {
        assert!(
            K::WORDS + V::WORDS <= ENTRY_WORDS_MAX,
            "an entry is too large for a page; keep the value in an object"
        );
        K::WORDS + V::WORDS
    };

    fn empty_page(&self) -> Page {
        node::empty(mark::head(NodeKind::Page, Forms::of_pairs::<K, V>(), self.header.addr()))
    }

    fn signature() -> String {
        format!("hash map of {} to {}", K::signature(), V::signature())
    }

    /// A new map that no object points to yet. Keep [`header`](Self::header) in an object.
    ///
    /// # Errors
    /// As [`Tx::alloc`].
    pub fn create(tx: &mut Tx<'_>) -> TxResult<Self> {
        Self::create_with(tx, 0)
    }

    /// As [`create`](Self::create), with pages of at most `entries_max` entries (0: as many as fit). For tests that
    /// want early splits.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(tx: &mut Tx<'_>, entries_max: u64) -> TxResult<Self> {
        let header = HashHeader { root: 0, entries_max, signature: PmBytes::default() };
        Ok(Self::new(root::create(tx, header, &Self::signature())?))
    }

    /// The map with this header, which is not read. For a salvage.
    pub(crate) fn with_header(header: PmPtr<HashHeader>) -> Self {
        Self::new(header)
    }

    /// From now on pages take at most `entries_max` entries (0: as many as fit). For tests that want early splits.
    ///
    /// # Errors
    /// As [`Tx::write`].
    pub fn limit_entries(&self, tx: &mut Tx<'_>, entries_max: u64) -> TxResult<()> {
        tx.write(self.header)?.entries_max = entries_max;
        Ok(())
    }

    fn room(header: &HashHeader) -> usize {
        let room = node::room(NEXT, Self::ENTRY);
        if header.entries_max == 0 { room } else { room.min(to_usize(header.entries_max)) }
    }

    fn reach(tx: &mut Tx<'_>, header: &HashHeader, hash: u64) -> TxResult<Option<Reached>> {
        let (mut word, mut directory, mut level) = (header.root, None, 0);
        while word & DIRECTORY != 0 {
            let at = PmPtr::<Directory>::new(PmAddr::from_raw(word & !DIRECTORY));
            if level == LEVELS_MAX {
                return Err(damaged(at.addr(), "a directory below the last level"));
            }
            directory = Some((at, level));
            word = tx.read(at)?.0[place_of(hash, level)];
            level += 1;
        }
        let at = PmPtr::new(PmAddr::from_raw(word));
        Ok((word != 0).then_some(Reached { directory, at }))
    }

    fn read_page(tx: &mut Tx<'_>, at: PmPtr<Page>) -> TxResult<Page> {
        let page = tx.read(at)?;
        node::checked_count(&page.0[..NEXT], Self::ENTRY, at.addr())?;
        Ok(page)
    }

    fn next(page: &Page) -> Option<PmPtr<Page>> {
        (page.0[NEXT] != 0).then(|| PmPtr::new(PmAddr::from_raw(page.0[NEXT])))
    }

    /// Looks for `key` in the page at `at` and its overflow pages.
    fn find(tx: &mut Tx<'_>, at: PmPtr<Page>, key: &K::View) -> TxResult<Option<Found>> {
        let mut next = Some(at);
        let mut steps = None;
        while let Some(at) = next {
            let page = Self::read_page(tx, at)?;
            if page.0[NEXT] != 0 {
                steps.get_or_insert_with(|| Steps::new(tx, PAGE_WORDS)).come_to(at.addr())?;
            }
            for index in 0..node::count(&page.0) {
                if K::is_equal(tx, &node::entry(&page.0, Self::ENTRY, index)[..K::WORDS], key)? {
                    return Ok(Some(Found { at, page, index }));
                }
            }
            next = Self::next(&page);
        }
        Ok(None)
    }

    fn look_up(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<Option<Found>> {
        let header = tx.read(self.header)?;
        match Self::reach(tx, &header, K::hash(key))? {
            Some(reached) => Self::find(tx, reached.at, key),
            None => Ok(None),
        }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Return them with `?`, as those of [`Tx::read`].
    pub fn get(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<Option<V::Owned>> {
        let Some(found) = self.look_up(tx, key)? else { return Ok(None) };
        V::load(tx, &node::entry(&found.page.0, Self::ENTRY, found.index)[K::WORDS..]).map(Some)
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<bool> {
        Ok(self.look_up(tx, key)?.is_some())
    }

    /// Sets `key` to `value`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::alloc`], a full pool included.
    pub fn insert(&self, tx: &mut Tx<'_>, key: &K::View, value: &V::View) -> TxResult<bool> {
        tx.nested(|tx| {
            let header = tx.read(self.header)?;
            let hash = K::hash(key);
            let Some(reached) = Self::reach(tx, &header, hash)? else {
                let mut page = self.empty_page();
                Self::add(tx, &mut page, key, value)?;
                tx.write(self.header)?.root = tx.alloc(page)?.addr().to_raw();
                return Ok(false);
            };
            if let Some(Found { at, page, index }) = Self::find(tx, reached.at, key)? {
                let mut stored = [0; ENTRY_WORDS_MAX];
                let stored = &mut stored[..V::WORDS];
                stored.copy_from_slice(&node::entry(&page.0, Self::ENTRY, index)[K::WORDS..]);
                if V::replace(tx, value, stored)? {
                    let page = tx.write(at)?;
                    node::entry_mut(&mut page.0, Self::ENTRY, index)[K::WORDS..].copy_from_slice(stored);
                }
                return Ok(true);
            }
            let at = self.make_room(tx, &header, reached, hash)?;
            let mut page = tx.read(at)?;
            Self::add(tx, &mut page, key, value)?;
            *tx.write(at)? = page;
            Ok(false)
        })
    }

    fn add(tx: &mut Tx<'_>, page: &mut Page, key: &K::View, value: &V::View) -> TxResult<()> {
        let mut entry = [0; ENTRY_WORDS_MAX];
        K::store(tx, key, &mut entry[..K::WORDS])?;
        V::store(tx, value, &mut entry[K::WORDS..Self::ENTRY])?;
        let count = node::count(&page.0);
        node::insert(&mut page.0[..NEXT], count, &entry[..Self::ENTRY])
    }

    /// A page with room that `hash` leads to. Splits until there is one.
    fn make_room(
        &self,
        tx: &mut Tx<'_>,
        header: &HashHeader,
        mut reached: Reached,
        hash: u64,
    ) -> TxResult<PmPtr<Page>> {
        loop {
            let page = Self::read_page(tx, reached.at)?;
            if node::count(&page.0) < Self::room(header) {
                return Ok(reached.at);
            }
            match reached.directory {
                Some((directory, level)) if bits(&page) < LEVEL_BITS => {
                    let at = self.split(tx, reached.at, page, directory, level, hash)?;
                    reached = Reached { directory: reached.directory, at };
                }
                Some((_, level)) if level + 1 == LEVELS_MAX => {
                    return self.overflow(tx, header, reached.at, page);
                }
                _ => reached = self.add_directory(tx, reached, page, hash)?,
            }
        }
    }

    /// Divides a page by its next bit. Returns the half that `hash` leads to.
    fn split(
        &self,
        tx: &mut Tx<'_>,
        at: PmPtr<Page>,
        mut page: Page,
        directory: PmPtr<Directory>,
        level: u32,
        hash: u64,
    ) -> TxResult<PmPtr<Page>> {
        let bit = bits(&page);
        let goes = |hash: u64| place_of(hash, level) >> bit & 1 == 1;
        let mut other = self.empty_page();
        set_bits(&mut page, bit + 1);
        set_bits(&mut other, bit + 1);
        for index in (0..node::count(&page.0)).rev() {
            let mut moved = [0; ENTRY_WORDS_MAX];
            let moved = &mut moved[..Self::ENTRY];
            moved.copy_from_slice(node::entry(&page.0, Self::ENTRY, index));
            if goes(K::hash_stored(tx, &moved[..K::WORDS])?) {
                node::remove(&mut page.0[..NEXT], Self::ENTRY, index)?;
                node::insert(&mut other.0[..NEXT], 0, moved)?;
            }
        }
        *tx.write(at)? = page;
        let other = tx.alloc(other)?;
        if !planted::active("collections-directory-forgets") {
            let same = (1_usize << bit) - 1;
            for (place, word) in tx.write(directory)?.0.iter_mut().enumerate() {
                if place & same == place_of(hash, level) & same && place >> bit & 1 == 1 {
                    *word = other.addr().to_raw();
                }
            }
        }
        Ok(if goes(hash) { other } else { at })
    }

    /// Replaces the page by a directory, all of whose places lead to the page.
    fn add_directory(&self, tx: &mut Tx<'_>, reached: Reached, mut page: Page, hash: u64) -> TxResult<Reached> {
        let directory = tx.alloc(Words([reached.at.addr().to_raw(); PLACES]))?;
        let word = directory.addr().to_raw() | DIRECTORY;
        let level = match reached.directory {
            None => {
                tx.write(self.header)?.root = word;
                0
            }
            Some((above, level)) => {
                tx.write(above)?.0[place_of(hash, level)] = word;
                level + 1
            }
        };
        set_bits(&mut page, 0);
        *tx.write(reached.at)? = page;
        Ok(Reached { directory: Some((directory, level)), at: reached.at })
    }

    /// A page with room after `at`, for hashes that agree in all bits.
    fn overflow(&self, tx: &mut Tx<'_>, header: &HashHeader, at: PmPtr<Page>, page: Page) -> TxResult<PmPtr<Page>> {
        let (mut last, mut next) = (at, Self::next(&page));
        let mut steps = Steps::new(tx, PAGE_WORDS);
        while let Some(at) = next {
            steps.come_to(at.addr())?;
            let page = Self::read_page(tx, at)?;
            if node::count(&page.0) < Self::room(header) {
                return Ok(at);
            }
            (last, next) = (at, Self::next(&page));
        }
        let added = tx.alloc(self.empty_page())?;
        tx.write(last)?.0[NEXT] = added.addr().to_raw();
        Ok(added)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Tx::write`] and [`Tx::free`].
    pub fn remove(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<bool> {
        tx.nested(|tx| {
            let Some(found) = self.look_up(tx, key)? else { return Ok(false) };
            let (key, value) = node::entry(&found.page.0, Self::ENTRY, found.index).split_at(K::WORDS);
            K::free(tx, key)?;
            V::free(tx, value)?;
            node::remove(&mut tx.write(found.at)?.0[..NEXT], Self::ENTRY, found.index)?;
            Ok(true)
        })
    }

    /// Removes `key` and returns its value.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn take(&self, tx: &mut Tx<'_>, key: &K::View) -> TxResult<Option<V::Owned>> {
        let value = self.get(tx, key)?;
        if value.is_some() {
            self.remove(tx, key)?;
        }
        Ok(value)
    }

    /// Visits every page and then every directory below `word`.
    fn visit_all(tx: &mut Tx<'_>, word: u64, visit: &mut Visit<'_>) -> TxResult<ControlFlow<()>> {
        let mut steps = Steps::new(tx, PAGE_WORDS);
        Self::visit(tx, word, 0, &mut steps, visit)
    }

    fn visit(
        tx: &mut Tx<'_>,
        word: u64,
        level: u32,
        steps: &mut Steps,
        visit: &mut Visit<'_>,
    ) -> TxResult<ControlFlow<()>> {
        if word & DIRECTORY == 0 {
            let mut next = (word != 0).then(|| PmPtr::<Page>::new(PmAddr::from_raw(word)));
            while let Some(at) = next {
                steps.come_to(at.addr())?;
                let page = Self::read_page(tx, at)?;
                next = Self::next(&page);
                if visit(tx, at.addr(), Node::Page(&page))?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        let at = PmPtr::<Directory>::new(PmAddr::from_raw(word & !DIRECTORY));
        if level == LEVELS_MAX {
            return Err(damaged(at.addr(), "a directory below the last level"));
        }
        steps.come_to(at.addr())?;
        let directory = tx.read(at)?;
        for (place, &word) in directory.0.iter().enumerate() {
            // A page is visited at the first of its places only.
            if directory.0[..place].contains(&word) {
                continue;
            }
            if Self::visit(tx, word, level + 1, steps, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        visit(tx, at.addr(), Node::Directory)
    }

    /// Calls `visit` with every entry, in no order, until it breaks.
    ///
    /// # Errors
    /// As [`get`](Self::get), and any error that `visit` returns.
    pub fn for_each(
        &self,
        tx: &mut Tx<'_>,
        mut visit: impl FnMut(K::Owned, V::Owned) -> TxResult<ControlFlow<()>>,
    ) -> TxResult<()> {
        let root = tx.read(self.header)?.root;
        let _ = Self::visit_all(tx, root, &mut |tx, _, node| {
            let Node::Page(page) = node else { return Ok(ControlFlow::Continue(())) };
            for index in 0..node::count(&page.0) {
                let (key, value) = node::entry(&page.0, Self::ENTRY, index).split_at(K::WORDS);
                let (key, value) = (K::load(tx, key)?, V::load(tx, value)?);
                if visit(key, value)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    /// Number of entries. Visits every page.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn len(&self, tx: &mut Tx<'_>) -> TxResult<u64> {
        let root = tx.read(self.header)?.root;
        let mut entries = 0;
        let _ = Self::visit_all(tx, root, &mut |_, _, node| {
            if let Node::Page(page) = node {
                entries += to_u64(node::count(&page.0));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(entries)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn is_empty(&self, tx: &mut Tx<'_>) -> TxResult<bool> {
        let mut is_empty = true;
        self.for_each(tx, |_, _| {
            is_empty = false;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(is_empty)
    }

    /// Removes all entries and frees all pages in one transaction. Its record needs room, so in a full pool remove
    /// entries one by one first.
    ///
    /// # Errors
    /// As [`Tx::free`].
    pub fn clear(&self, tx: &mut Tx<'_>) -> TxResult<()> {
        tx.nested(|tx| {
            let root = tx.read(self.header)?.root;
            let _ = Self::visit_all(tx, root, &mut |tx, at, node| {
                match node {
                    Node::Directory => tx.free(PmPtr::<Directory>::new(at))?,
                    Node::Page(page) => {
                        for index in 0..node::count(&page.0) {
                            let (key, value) = node::entry(&page.0, Self::ENTRY, index).split_at(K::WORDS);
                            K::free(tx, key)?;
                            V::free(tx, value)?;
                        }
                        tx.free(PmPtr::<Page>::new(at))?;
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
            tx.write(self.header)?.root = 0;
            Ok(())
        })
    }

    /// Checks that a page says that it is one of this map.
    fn check_mark(&self, at: PmAddr, page: &Page) -> TxResult<()> {
        let (mark, own) = (mark::Mark::of(&page.0), mark::Mark::of(&self.empty_page().0));
        if mark == own { Ok(()) } else { Err(damaged(at, "a page that names another collection")) }
    }

    /// Checks that every entry is where its hash leads, once. Returns the number of objects that the map owns, header
    /// and signature included. Visits everything.
    ///
    /// # Errors
    /// The fault, as [`Error::BadPointer`](lodestone_stm::Error::BadPointer).
    pub fn check(&self, tx: &mut Tx<'_>) -> TxResult<u64>
    where
        K::Owned: Borrow<K::View>,
    {
        let root = tx.read(self.header)?.root;
        let (mut objects, mut entries) = (2, Vec::new());
        let _ = Self::visit_all(tx, root, &mut |tx, at, node| {
            objects += 1;
            if let Node::Page(page) = node {
                self.check_mark(at, page)?;
                for index in 0..node::count(&page.0) {
                    let (key, value) = node::entry(&page.0, Self::ENTRY, index).split_at(K::WORDS);
                    objects += K::objects(tx, key)? + V::objects(tx, value)?;
                    entries.push((at, index, K::load(tx, key)?));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (at, index, key) in entries {
            let found = self.look_up(tx, key.borrow())?;
            if !found.is_some_and(|found| found.at.addr() == at && found.index == index) {
                return Err(damaged(at, "an entry is not where its hash leads, or is there twice"));
            }
        }
        Ok(objects)
    }
}

impl<K: PmKey, V: PmValue> PmHashMap<K, V> {
    /// Passes every entry that verifies to `loot`, and names the others. Each object is read on its own. Pages that no
    /// link leads to are found by their marks.
    pub(crate) fn salvage(&self, stm: &Stm, loot: &mut Loot<'_, K, V>) {
        let mut visited = HashSet::new();
        let is_whole = match stm.snapshot(|tx| tx.read(self.header)) {
            Ok(header) => Self::salvage_below(stm, header.root, &mut visited, loot),
            Err(error) => {
                loot.lose_way((None, None), &error);
                false
            }
        };
        if is_whole || !loot.wants_orphans() {
            return;
        }
        for at in mark::nodes_of(stm, self.header.addr(), NodeKind::Page) {
            if visited.insert(at.to_raw()) && !loot.is_over() {
                let _ = Self::salvage_page(stm, at, loot);
            }
        }
    }

    /// Salvages what links lead to from `root` on. Returns whether all of them led to something.
    fn salvage_below(stm: &Stm, root: u64, visited: &mut HashSet<u64>, loot: &mut Loot<'_, K, V>) -> bool {
        let (mut open, mut is_whole) = (vec![(root, 0)], true);
        while let Some((word, level)) = open.pop() {
            if word == 0 || !visited.insert(word) || loot.is_over() {
                continue;
            }
            if word & DIRECTORY == 0 {
                match Self::salvage_page(stm, PmAddr::from_raw(word), loot) {
                    Some(next) => open.push((next, level)),
                    // Its overflow pages.
                    None => is_whole = false,
                }
                continue;
            }
            let at = PmPtr::<Directory>::new(PmAddr::from_raw(word & !DIRECTORY));
            match stm.snapshot(|tx| tx.read(at)) {
                Ok(directory) if level < LEVELS_MAX => {
                    open.extend(directory.0.iter().map(|word| (*word, level + 1)));
                    continue;
                }
                Ok(_) => loot.lose_way((None, None), &damaged(at.addr(), "a directory below the last level").into()),
                Err(error) => loot.lose_way((None, None), &error),
            }
            is_whole = false;
        }
        is_whole
    }

    /// Salvages a page. Returns the word that leads to its overflow page.
    fn salvage_page(stm: &Stm, at: PmAddr, loot: &mut Loot<'_, K, V>) -> Option<u64> {
        match stm.snapshot(|tx| Self::read_page(tx, PmPtr::new(at))) {
            Ok(page) => {
                for index in 0..node::count(&page.0) {
                    loot.add(stm, node::entry(&page.0, Self::ENTRY, index), (None, None));
                }
                Some(page.0[NEXT])
            }
            Err(error) => {
                loot.lose((None, None), &error);
                None
            }
        }
    }
}

/// A node that is visited.
enum Node<'n> {
    Page(&'n Page),
    Directory,
}

type Visit<'v> = dyn FnMut(&mut Tx<'_>, PmAddr, Node<'_>) -> TxResult<ControlFlow<()>> + 'v;
