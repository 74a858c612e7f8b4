//! The persistent indexes by name: the one list that benchmarks, kill loops and tools read. A new index needs a name in
//! [`Competitor`], a line in [`visit`] and an implementation of [`BenchIndex`].

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::str::FromStr;

use lodestone_index::{
    Acs, AcsOptions, CacheMode, CacheOptions, Direction, FastFair, FpTree, HashIndex, Hybrid, HybridPlus, IndexKey,
    OpenIndex, OrderedIndex, OrderedMap, SkipList,
};

/// The interface of an index for a benchmark, besides its operations.
pub trait BenchIndex: OpenIndex {
    /// Whether it can be read in order.
    const IS_ORDERED: bool;

    /// Reads up to `count` keys from `start` and returns their number. `None` if the index has no order.
    ///
    /// # Errors
    /// Those of the index.
    fn read_range(&self, start: &Self::Key, count: u64) -> lodestone_index::Result<Option<u64>>;

    /// Passes all keys with their values in order to `visit`, until it returns `false`. Does nothing if the index has
    /// no order.
    ///
    /// # Errors
    /// Those of the index.
    fn visit_all(&self, visit: &mut dyn FnMut(&Self::Key, u64) -> bool) -> lodestone_index::Result<()>;

    /// Whether all parts that are built in the background are complete.
    fn is_warm(&self) -> bool {
        true
    }

    /// The index's own counts since it was opened, for example the hits of a cache.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Reads up to `count` keys of an ordered index, and loads the keys and values for the caller.
fn ordered_range<I: OrderedIndex>(index: &I, start: &I::Key, count: u64) -> lodestone_index::Result<Option<u64>> {
    let (mut seen, mut sum) = (0, 0_u64);
    if count == 0 {
        return Ok(Some(0));
    }
    index.scan(Bound::Included(start), Bound::Unbounded, Direction::Ascending, |key, value| {
        sum = sum.wrapping_add(key.order_word() ^ value);
        seen += 1;
        if seen < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    std::hint::black_box(sum);
    Ok(Some(seen))
}

fn ordered_all<I: OrderedIndex>(index: &I, visit: &mut dyn FnMut(&I::Key, u64) -> bool) -> lodestone_index::Result<()> {
    index
        .scan(Bound::Unbounded, Bound::Unbounded, Direction::Ascending, |key, value| {
            if visit(key, value) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .map(|_| ())
}

/// An ordered index. The block after its name holds its additions.
macro_rules! ordered {
    ($($index:ident $more:tt),+) => {$(
        impl<K: IndexKey + ?Sized> BenchIndex for $index<K> {
            const IS_ORDERED: bool = true;

            fn read_range(&self, start: &K, count: u64) -> lodestone_index::Result<Option<u64>> {
                ordered_range(self, start, count)
            }

            fn visit_all(&self, visit: &mut dyn FnMut(&K, u64) -> bool) -> lodestone_index::Result<()> {
                ordered_all(self, visit)
            }

            ordered!(@ $more);
        }
    )+};
    (@ { $($more:tt)* }) => { $($more)* };
}

ordered!(
    FastFair {},
    FpTree {},
    SkipList {},
    Hybrid {
        fn is_warm(&self) -> bool {
            self.recovery().time_to_warm.is_some()
        }
    },
    HybridPlus {
        fn is_warm(&self) -> bool {
            self.recovery().time_to_warm.is_some()
        }
    }
);

impl BenchIndex for OrderedMap {
    const IS_ORDERED: bool = true;

    fn read_range(&self, start: &[u8], count: u64) -> lodestone_index::Result<Option<u64>> {
        ordered_range(self, start, count)
    }

    fn visit_all(&self, visit: &mut dyn FnMut(&[u8], u64) -> bool) -> lodestone_index::Result<()> {
        ordered_all(self, visit)
    }
}

impl<K: IndexKey + ?Sized> BenchIndex for HashIndex<K> {
    const IS_ORDERED: bool = false;

    fn read_range(&self, _: &K, _: u64) -> lodestone_index::Result<Option<u64>> {
        Ok(None)
    }

    fn visit_all(&self, _: &mut dyn FnMut(&K, u64) -> bool) -> lodestone_index::Result<()> {
        Ok(())
    }
}

impl<I: BenchIndex + 'static> BenchIndex for Acs<I> {
    const IS_ORDERED: bool = I::IS_ORDERED;

    fn read_range(&self, start: &I::Key, count: u64) -> lodestone_index::Result<Option<u64>> {
        self.index().read_range(start, count)
    }

    fn visit_all(&self, visit: &mut dyn FnMut(&I::Key, u64) -> bool) -> lodestone_index::Result<()> {
        self.index().visit_all(visit)
    }

    fn is_warm(&self) -> bool {
        self.index().is_warm()
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let stats = self.stats();
        vec![
            ("cache_hits", stats.hits),
            ("cache_misses", stats.misses),
            ("cache_fills", stats.fills),
            ("cache_evictions", stats.evictions),
            ("cache_bypasses", stats.bypasses),
        ]
    }
}

/// The kind of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Competitor {
    /// B+-tree wholly in persistent memory.
    FastFair,
    /// Leaves in persistent memory, directory in DRAM.
    FpTree,
    /// Skip list, bottom level in persistent memory.
    SkipList,
    /// Hash index, points only.
    Hash,
    /// Hash in persistent memory, tree in DRAM.
    Hybrid,
    /// Tree in persistent memory, hash in DRAM.
    HybridPlus,
    /// A cache in DRAM in front of a FAST & FAIR tree.
    AcsFastFair,
    /// A cache in front of an FPTree.
    AcsFpTree,
    /// A cache in front of a skip list.
    AcsSkipList,
    /// A cache in front of a hash index.
    AcsHash,
    /// The ordered map of byte strings, with values of eight bytes.
    Map,
}

impl Competitor {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::FastFair,
        Self::FpTree,
        Self::SkipList,
        Self::Hash,
        Self::Hybrid,
        Self::HybridPlus,
        Self::AcsFastFair,
        Self::AcsFpTree,
        Self::AcsSkipList,
        Self::AcsHash,
        Self::Map,
    ];

    /// Name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FastFair => "fastfair",
            Self::FpTree => "fptree",
            Self::SkipList => "skiplist",
            Self::Hash => "hash",
            Self::Hybrid => "hybrid",
            Self::HybridPlus => "hybrid-plus",
            Self::AcsFastFair => "acs-fastfair",
            Self::AcsFpTree => "acs-fptree",
            Self::AcsSkipList => "acs-skiplist",
            Self::AcsHash => "acs-hash",
            Self::Map => "map",
        }
    }

    /// Whether it can be read in order.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        !matches!(self, Self::Hash | Self::AcsHash)
    }

    /// Whether it takes numbers as keys, not only strings.
    #[must_use]
    pub const fn takes_words(self) -> bool {
        !matches!(self, Self::Map)
    }

    /// All names, for messages.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Competitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Competitor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("unknown index '{text}'; use {}", Self::names()))
    }
}

/// Choices besides the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Keys that a cache in DRAM may hold.
    pub cache_keys: usize,
    /// When a cache is used.
    pub cache_mode: CacheMode,
}

impl Setup {
    /// Options of an index with a cache in front of it.
    fn cached<O: Default>(self) -> AcsOptions<O> {
        AcsOptions::new(O::default(), CacheOptions::default().with_entries(self.cache_keys).with_mode(self.cache_mode))
    }
}

/// An action on an index whose type is known only by name.
pub trait Visitor<K: IndexKey + ?Sized> {
    /// The result.
    type Out;

    /// Runs the action.
    fn visit<I: BenchIndex<Key = K>>(self, options: &I::Options) -> Self::Out;
}

/// Calls `visitor` with the type of `kind`. `None` for a kind that takes only strings.
pub fn visit<K: IndexKey + ?Sized, V: Visitor<K>>(kind: Competitor, setup: Setup, visitor: V) -> Option<V::Out> {
    Some(match kind {
        Competitor::FastFair => visitor.visit::<FastFair<K>>(&Default::default()),
        Competitor::FpTree => visitor.visit::<FpTree<K>>(&Default::default()),
        Competitor::SkipList => visitor.visit::<SkipList<K>>(&Default::default()),
        Competitor::Hash => visitor.visit::<HashIndex<K>>(&Default::default()),
        Competitor::Hybrid => visitor.visit::<Hybrid<K>>(&Default::default()),
        Competitor::HybridPlus => visitor.visit::<HybridPlus<K>>(&Default::default()),
        Competitor::AcsFastFair => visitor.visit::<Acs<FastFair<K>>>(&setup.cached()),
        Competitor::AcsFpTree => visitor.visit::<Acs<FpTree<K>>>(&setup.cached()),
        Competitor::AcsSkipList => visitor.visit::<Acs<SkipList<K>>>(&setup.cached()),
        Competitor::AcsHash => visitor.visit::<Acs<HashIndex<K>>>(&setup.cached()),
        Competitor::Map => return None,
    })
}

/// As [`visit`], for strings: every kind takes them.
pub fn visit_strings<V: Visitor<[u8]>>(kind: Competitor, setup: Setup, visitor: V) -> V::Out {
    match kind {
        Competitor::Map => visitor.visit::<OrderedMap>(&Default::default()),
        _ => visit(kind, setup, visitor).unwrap_or_else(|| unreachable!("every other kind takes all keys")),
    }
}
