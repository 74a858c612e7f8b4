//! A type of field beside numbers, arrays and pointers: a value that may be missing.

use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::object::{PmField, TypeVisitor};

/// Whether there is a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(u64)]
enum Tag {
    None = 0,
    Some = 1,
}

/// A value that may be missing, as a field of a persistent object. It replaces `Option`. The default is none.
///
/// It takes eight bytes more than the value. Like all fields it must leave no gap, so a `T` whose size is a multiple of
/// eight bytes always fits.
///
/// ```
/// use lodestone_stm::{PmOption, pm_object};
///
/// #[pm_object]
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Colour {
///     Red,
///     Green,
/// }
///
/// #[pm_object]
/// struct Lamp {
///     sold_to: PmOption<u64>,
///     is_lit: bool,
///     colour: Colour,
///     rest: [u8; 6],
/// }
///
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let stm = lodestone_stm::Stm::open(&Store::create(folder.path().join("a.pool"), &options)?)?;
/// let lamp = stm.root::<Lamp>()?;
/// stm.update(|tx| {
///     let lamp = tx.write(lamp)?;
///     (lamp.sold_to, lamp.is_lit, lamp.colour) = (Some(7).into(), true, Colour::Green);
///     Ok(())
/// })?;
/// assert_eq!(stm.read(|tx| Ok(tx.read(lamp)?.sold_to.get()))?, Some(7));
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, FromZeros, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct PmOption<T> {
    tag: Tag,
    value: T,
}

impl<T: FromZeros + Copy> PmOption<T> {
    /// No value.
    #[must_use]
    pub fn none() -> Self {
        Self { tag: Tag::None, value: T::new_zeroed() }
    }

    /// A value.
    #[must_use]
    pub fn some(value: T) -> Self {
        Self { tag: Tag::Some, value }
    }

    /// The value, if there is one.
    #[must_use]
    pub fn get(self) -> Option<T> {
        let (tag, value) = (self.tag, self.value);
        (tag == Tag::Some).then_some(value)
    }

    /// Replaces the value. Returns the old one.
    pub fn replace(&mut self, value: Option<T>) -> Option<T> {
        std::mem::replace(self, value.into()).get()
    }
}

impl<T: FromZeros + Copy> From<Option<T>> for PmOption<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or_else(Self::none, Self::some)
    }
}

impl<T: FromZeros + Copy> From<PmOption<T>> for Option<T> {
    fn from(value: PmOption<T>) -> Self {
        value.get()
    }
}

impl<T: FromZeros + Copy> Default for PmOption<T> {
    fn default() -> Self {
        Self::none()
    }
}

impl<T: FromZeros + Copy + PartialEq> PartialEq for PmOption<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: FromZeros + Copy + std::fmt::Debug> std::fmt::Debug for PmOption<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

impl<T: PmField + TryFromBytes> PmField for PmOption<T> {
    fn layout() -> String {
        format!("option {}", T::layout())
    }

    fn visit_types(visitor: &mut TypeVisitor<'_>) {
        T::visit_types(visitor);
    }
}
