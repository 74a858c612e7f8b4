//! Types of persistent objects: their parts, and how a pool checks that a program means the same type.
//!
//! A type has a name, a version and a layout: its size and its fields with offsets and types, down to numbers and
//! pointers. All three are written into the pool when the type is first used. They are compared whenever it is used
//! again, and a difference is an error that names both.
//!
//! *Migration*: give the changed struct a new name (`#[pm(name = "AccountV2")]`), keep the old struct beside it, and
//! move the objects over in transactions. `crates/lodestone/examples/migrate.rs` does it step by step, and may be
//! killed between any two steps.

use std::collections::BTreeMap;
use std::fmt::Write;

use lodestone_pmem::{PmAddr, PmPtr};
use lodestone_width::{low_u32, to_u64};
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromZeros, Immutable, IntoBytes, KnownLayout, TryFromBytes};

use crate::error::{Error, Result};
use lodestone_cells::Shape;

/// A type of persistent objects. Use `#[pm_object]`, or `#[derive(PmObject)]` with zerocopy's traits and `repr(C)`.
///
/// Fields are numbers, `bool`, arrays, pointers ([`PmPtr`], [`PmAddr`]), byte strings ([`PmBytes`](crate::PmBytes)),
/// [`PmOption`](crate::PmOption), structs that are persistent objects themselves, and enums without fields that have
/// the attribute `#[pm_object]`. Not all bytes are a `bool` or a variant. Where a pool holds other bytes, a read
/// returns [`Error::Damaged`](crate::Error::Damaged), which names the type.
///
/// ```
/// use lodestone_stm::{PmPtr, pm_object};
///
/// #[pm_object]
/// struct Node {
///     key: u64,
///     value: u64,
///     next: PmPtr<Node>,
/// }
/// assert_eq!(lodestone_stm::Layout::of::<Node>().to_string(), "24 bytes: key u64 @0, value u64 @8, next *Node @16");
/// ```
///
/// A name means one layout, so a type has no parameters:
///
/// ```compile_fail
/// #[derive(lodestone_stm::FromBytes, lodestone_stm::IntoBytes, lodestone_stm::Immutable, lodestone_stm::KnownLayout)]
/// #[derive(lodestone_stm::PmObject)]
/// #[repr(C)]
/// struct Page<const WORDS: usize> {
///     words: [u64; WORDS],
/// }
/// ```
#[diagnostic::on_unimplemented(
    note = "write `#[pm_object]` above the struct, or derive FromZeros, IntoBytes, Immutable, KnownLayout and PmObject with `#[repr(C)]`"
)]
pub trait PmObject: TryFromBytes + FromZeros + IntoBytes + Immutable + KnownLayout + Sized + 'static {
    /// Name in the pool, 1 to 64 bytes, unique in the program.
    const NAME: &'static str;
    /// Version of the layout.
    const VERSION: u32;

    /// Adds the fields.
    fn describe(layout: &mut Layout);

    /// Visits the types that fields point to.
    fn visit_field_types(visitor: &mut TypeVisitor<'_>);

    /// A note of the memory that checked the type last.
    #[doc(hidden)]
    fn checked_by() -> &'static CheckedBy;
}

/// The shape of the cells of `T`, with the limits on `T` checked when the program is compiled.
pub(crate) trait Shaped: PmObject {
    const SHAPE: Shape = {
        assert!(align_of::<Self>() <= 8, "a persistent object is aligned to at most 8 bytes");
        assert!(
            to_u64(size_of::<Self>()) <= lodestone_cells::PAYLOAD_BYTES_MAX,
            "a persistent object has at most 4 MiB"
        );
        Shape::pair(low_u32(to_u64(size_of::<Self>())))
    };
    const WORDS: u32 = low_u32(to_u64(size_of::<Self>())).div_ceil(8);
}

impl<T: PmObject> Shaped for T {}

/// Which memory checked a type last: a number per open memory.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct CheckedBy(AtomicU64);

impl CheckedBy {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn is(&self, memory_id: u64) -> bool {
        self.0.load(Ordering::Acquire) == memory_id
    }

    pub(crate) fn set(&self, memory_id: u64) {
        self.0.store(memory_id, Ordering::Release);
    }
}

/// The layout of a type as text. Two layouts are compared by it.
///
/// ```
/// use lodestone_stm::{Layout, pm_object};
///
/// #[pm_object]
/// struct Point {
///     x: u64,
///     y: u64,
/// }
///
/// // Two programs can share objects of this type as long as this text is the same.
/// assert_eq!(Layout::of::<Point>().to_string(), "16 bytes: x u64 @0, y u64 @8");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    text: String,
    fields: usize,
}

impl Layout {
    /// The layout of `T`.
    #[must_use]
    pub fn of<T: PmObject>() -> Self {
        let mut layout = Self { text: format!("{} bytes", size_of::<T>()), fields: 0 };
        T::describe(&mut layout);
        layout
    }

    /// Adds a field.
    pub fn field<F: PmField>(&mut self, name: &str, offset: usize) {
        let before = if self.fields == 0 { ": " } else { ", " };
        self.fields += 1;
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{before}{name} {} @{offset}", F::layout());
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A type that fields of persistent objects may have.
///
/// ```
/// use lodestone_stm::PmField;
///
/// // The text of a field in a layout.
/// assert_eq!(u64::layout(), "u64");
/// assert_eq!(<[u8; 4]>::layout(), "[u8; 4]");
/// ```
#[diagnostic::on_unimplemented(
    note = "fields are numbers, `bool`, arrays, `PmPtr`, `PmAddr`, `PmBytes`, `PmOption`, structs that derive PmObject, and enums \
            without fields under `#[pm_object]`",
    note = "in place of `Option<T>` use `PmOption<T>`, of a reference or `Box<T>` a `PmPtr<T>`, of `String` or `Vec<u8>` a `PmBytes`, \
            of `usize` a `u64`; or write `#[pm_object]` above the type of the field"
)]
pub trait PmField {
    /// The type as written in a layout.
    fn layout() -> String;

    /// Visits the object types that it points to.
    fn visit_types(visitor: &mut TypeVisitor<'_>) {
        let _ = visitor;
    }
}

macro_rules! plain_fields {
    ($($kind:ty),+) => { $(impl PmField for $kind { fn layout() -> String { stringify!($kind).into() } })+ };
}
plain_fields!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool);

impl PmField for PmAddr {
    fn layout() -> String {
        "*".into()
    }
}

impl<T: PmObject> PmField for PmPtr<T> {
    fn layout() -> String {
        format!("*{}", T::NAME)
    }

    fn visit_types(visitor: &mut TypeVisitor<'_>) {
        visitor.visit::<T>();
    }
}

impl<F: PmField, const N: usize> PmField for [F; N] {
    fn layout() -> String {
        format!("[{}; {N}]", F::layout())
    }

    fn visit_types(visitor: &mut TypeVisitor<'_>) {
        F::visit_types(visitor);
    }
}

/// A type as it is written into the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeInfo {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: u32,
    /// Its layout.
    pub layout: Layout,
}

impl TypeInfo {
    /// Of `T`.
    pub(crate) fn of<T: PmObject>() -> Self {
        Self { name: T::NAME, version: T::VERSION, layout: Layout::of::<T>() }
    }

    /// The error that the type of this name was found with another version or layout.
    pub(crate) fn differs(&self, found_version: u32, found: String) -> Error {
        Error::LayoutChanged {
            name: self.name.into(),
            found_version,
            found,
            expected_version: self.version,
            expected: self.layout.to_string(),
        }
    }
}

/// Walks over a type and all types that its fields point to.
///
/// ```
/// use lodestone_stm::{PmField, TypeVisitor};
///
/// /// A field of an own type, laid out as a number. It points to no object.
/// struct Cents(u64);
///
/// impl PmField for Cents {
///     fn layout() -> String {
///         u64::layout()
///     }
///     fn visit_types(_: &mut TypeVisitor<'_>) {}
/// }
/// assert_eq!(Cents::layout(), "u64");
/// ```
#[derive(Debug)]
pub struct TypeVisitor<'v> {
    found: &'v mut BTreeMap<&'static str, TypeInfo>,
    /// A type that has the name of another one and differs from it.
    clash: &'v mut Option<TypeInfo>,
}

impl TypeVisitor<'_> {
    /// Visits `T` unless it was visited.
    pub fn visit<T: PmObject>(&mut self) {
        let info = TypeInfo::of::<T>();
        match self.found.get(T::NAME) {
            None => {
                self.found.insert(T::NAME, info);
                T::visit_field_types(self);
            }
            Some(known) if *known == info => {}
            Some(_) => *self.clash = Some(info),
        }
    }
}

/// `T` and every type that can be reached from it.
///
/// # Errors
/// [`Error::LayoutChanged`] when two of them have one name.
pub(crate) fn types_of<T: PmObject>() -> Result<BTreeMap<&'static str, TypeInfo>> {
    let (mut found, mut clash) = (BTreeMap::new(), None);
    TypeVisitor { found: &mut found, clash: &mut clash }.visit::<T>();
    match clash {
        None => Ok(found),
        Some(other) => Err(other.differs(found[other.name].version, found[other.name].layout.to_string())),
    }
}
