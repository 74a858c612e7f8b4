//! The objects that every memory holds: the system object, from which types and named roots hang in two lists.
//!
//! Types are written when they are first used and never changed. Roots are added in one transaction with their object.

use std::sync::Arc;

use lodestone_pmem::sync::lock;
use lodestone_pmem::{PmAddr, PmPtr};

use crate::bytes::PmBytes;
use crate::context::{Context, Running};
use crate::core::Core;
use crate::error::{Error, Result, TxResult};
use crate::object::{CheckedBy, Layout, PmObject, TypeInfo, TypeVisitor, types_of};
use crate::stm::Stm;
use crate::tx::Tx;

macro_rules! system_object {
    ($(#[$doc:meta])* $name:ident, $text:literal { $($(#[$field_doc:meta])* $field:ident: $kind:ty),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind),+ }

        impl PmObject for $name {
            const NAME: &'static str = $text;
            const VERSION: u32 = 1;
            fn describe(layout: &mut Layout) {
                $(layout.field::<$kind>(stringify!($field), std::mem::offset_of!(Self, $field));)+
            }
            fn visit_field_types(_: &mut TypeVisitor<'_>) {}
            fn checked_by() -> &'static CheckedBy {
                static CHECKED_BY: CheckedBy = CheckedBy::new();
                &CHECKED_BY
            }
        }
    };
}

system_object!(
    /// The system object.
    System, "lodestone.System" {
        /// First of the list of types.
        types: PmPtr<TypeEntry>,
        /// First of the list of roots.
        roots: PmPtr<RootEntry>,
    }
);
system_object!(
    /// A type that objects of this pool have.
    TypeEntry, "lodestone.Type" {
        /// The next, or null.
        next: PmPtr<TypeEntry>,
        /// Its name.
        name: PmBytes,
        /// Its layout.
        layout: PmBytes,
        /// Its version.
        version: u64,
    }
);
system_object!(
    /// A named root.
    RootEntry, "lodestone.Root" {
        /// The next, or null.
        next: PmPtr<RootEntry>,
        /// Its name.
        name: PmBytes,
        /// Name of its object's type.
        kind: PmBytes,
        /// Its object.
        object: PmAddr,
    }
);

/// A walk along a list of any length that notices when damage closes it to a circle. It remembers one entry that it
/// passed, a later one whenever its length has doubled, so at last one of the circle (Brent's way).
#[derive(Debug, Default)]
struct Walk {
    entries: u64,
    passed: PmAddr,
}

impl Walk {
    /// Visits the entry at `at`. An error when it was visited before.
    fn come_to(&mut self, core: &Core, at: PmAddr) -> Result<()> {
        if at == self.passed {
            return Err(core.damaged("list of types or roots", at, "it leads in a circle"));
        }
        self.entries += 1;
        if self.entries.is_power_of_two() {
            self.passed = at;
        }
        Ok(())
    }
}

impl Core {
    /// Makes sure that the pool means the same by `T` as the program.
    #[inline]
    pub fn check_type<T: PmObject>(&self, context: &mut Context) -> Result<()> {
        if T::checked_by().is(self.id) { Ok(()) } else { self.check_type_slow::<T>(context) }
    }

    #[cold]
    fn check_type_slow<T: PmObject>(&self, context: &mut Context) -> Result<()> {
        if T::NAME.starts_with("lodestone.") {
            return Ok(());
        }
        let Some(core) = self.this.upgrade() else { return Ok(()) };
        if !self.is_checked::<T>()? {
            check_types::<T>(&core, context.lend(&core).context())?;
        }
        T::checked_by().set(self.id);
        Ok(())
    }

    /// Whether the type was compared with the pool.
    ///
    /// # Errors
    /// [`Error::LayoutChanged`] when another type of that name was compared.
    fn is_checked<T: PmObject>(&self) -> Result<bool> {
        let checked = lock(&self.checked);
        let Some(known) = checked.get(T::NAME) else { return Ok(false) };
        let info = TypeInfo::of::<T>();
        if *known == info { Ok(true) } else { Err(info.differs(known.version, known.layout.to_string())) }
    }
}

/// Compares `T` and all types that it reaches with the pool, and writes those that are new.
fn check_types<T: PmObject>(core: &Arc<Core>, context: &mut Context) -> Result<()> {
    let wanted = types_of::<T>()?;
    let read_only = core.memory.is_read_only();
    Stm::run(core, context, read_only, |tx| {
        let system = tx.system();
        let mut missing: Vec<&TypeInfo> = wanted.values().collect();
        let mut next = tx.read(system)?.types;
        let mut walk = Walk::default();
        while !next.is_null() {
            walk.come_to(tx.core, next.addr())?;
            let entry = tx.read(next)?;
            let name = tx.read_bytes(entry.name)?;
            if let Some(position) = missing.iter().position(|info| info.name.as_bytes() == name) {
                let info = missing.swap_remove(position);
                let layout = tx.read_bytes(entry.layout)?;
                compare(info, entry.version, &layout)?;
            }
            next = entry.next;
        }
        if !read_only {
            for info in missing {
                let name = tx.alloc_bytes(info.name.as_bytes())?;
                let layout = tx.alloc_bytes(info.layout.to_string().as_bytes())?;
                let next = tx.read(system)?.types;
                let entry = tx.alloc(TypeEntry { next, name, layout, version: u64::from(info.version) })?;
                tx.write(system)?.types = entry;
            }
        }
        Ok(())
    })?;
    lock(&core.checked).extend(wanted);
    Ok(())
}

fn compare(info: &TypeInfo, version: u64, layout: &[u8]) -> Result<()> {
    if version == u64::from(info.version) && layout == info.layout.to_string().as_bytes() {
        return Ok(());
    }
    Err(info.differs(u32::try_from(version).unwrap_or(u32::MAX), String::from_utf8_lossy(layout).into_owned()))
}

impl Tx<'_> {
    fn system(&self) -> PmPtr<System> {
        PmPtr::new(self.core.places.system())
    }

    /// The root entry with this name.
    fn find_root(&mut self, name: &str) -> TxResult<Option<RootEntry>> {
        let mut next = self.read(self.system())?.roots;
        let mut walk = Walk::default();
        while !next.is_null() {
            walk.come_to(self.core, next.addr())?;
            let entry = self.read(next)?;
            if self.read_bytes(entry.name)? == name.as_bytes() {
                return Ok(Some(entry));
            }
            next = entry.next;
        }
        Ok(None)
    }

    /// The object of the root `name`. When there is no such root, it is made with a zeroed object.
    fn root_or_zeroed<T: PmObject>(&mut self, name: &str) -> TxResult<PmPtr<T>> {
        if let Some(entry) = self.find_root(name)? {
            let found = self.read_bytes(entry.kind)?;
            if found != T::NAME.as_bytes() {
                let found = String::from_utf8_lossy(&found).into_owned();
                return Err(Error::RootType { root: name.into(), found, expected: T::NAME.into() }.into());
            }
            return Ok(PmPtr::new(entry.object));
        }
        let object = self.alloc(T::new_zeroed())?;
        let (name, kind) = (self.alloc_bytes(name.as_bytes())?, self.alloc_bytes(T::NAME.as_bytes())?);
        let system = self.system();
        let next = self.read(system)?.roots;
        let entry = self.alloc(RootEntry { next, name, kind, object: object.addr() })?;
        self.write(system)?.roots = entry;
        Ok(object)
    }
}

impl Stm {
    /// Names and types of all roots, the collections among them, in no order.
    ///
    /// # Errors
    /// When the list of roots is damaged.
    pub fn roots(&self) -> Result<Vec<(String, String)>> {
        self.read(|tx| {
            let mut all = Vec::new();
            let mut next = tx.read(tx.system())?.roots;
            let mut walk = Walk::default();
            while !next.is_null() {
                walk.come_to(tx.core, next.addr())?;
                let entry = tx.read(next)?;
                let (name, kind) = (tx.read_bytes(entry.name)?, tx.read_bytes(entry.kind)?);
                all.push([name, kind].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).into());
                next = entry.next;
            }
            Ok(all)
        })
    }

    /// The root object, from which everything else is reached. A zeroed one is made when there is none.
    ///
    /// # Errors
    /// [`Error::RootType`] when it has another type, [`Error::LayoutChanged`] when `T` or a type that it reaches has
    /// another layout than in the pool, and as [`update`](Self::update).
    pub fn root<T: PmObject>(&self) -> Result<PmPtr<T>> {
        self.root_named("root")
    }

    /// As [`root`](Self::root), for one of several roots.
    ///
    /// # Errors
    /// As [`root`](Self::root).
    pub fn root_named<T: PmObject>(&self, name: &str) -> Result<PmPtr<T>> {
        let found = self.read(|tx| {
            let Some(entry) = tx.find_root(name)? else { return Ok(None) };
            Ok(Some((entry.object, tx.read_bytes(entry.kind)?)))
        })?;
        if let Some((object, kind)) = found {
            if kind != T::NAME.as_bytes() {
                let found = String::from_utf8_lossy(&kind).into_owned();
                return Err(Error::RootType { root: name.into(), found, expected: T::NAME.into() });
            }
            self.check::<T>()?;
            return Ok(PmPtr::new(object));
        }
        self.check::<T>()?;
        self.update(|tx| tx.root_or_zeroed::<T>(name))
    }

    /// Compares `T` and every type that it reaches with the pool, and writes those that the pool does not know.
    ///
    /// # Errors
    /// [`Error::LayoutChanged`]; [`Error::Nested`] inside a transaction of this memory.
    pub fn check<T: PmObject>(&self) -> Result<()> {
        if !self.core.is_checked::<T>()? {
            check_types::<T>(&self.core, Running::start(&self.core)?.context())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lodestone_pmem::{DomainChoice, PoolOptions};
    use lodestone_store::Store;

    use super::*;

    system_object!(
        /// A user's object.
        Pet, "Pet" {
            /// Its age.
            age: u64,
        }
    );
    system_object!(
        /// Another type of that name.
        OtherPet, "Pet" {
            /// Its age.
            age: u64,
            /// Its weight.
            weight: u64,
        }
    );

    /// More than the sixteen bits of an earlier limit.
    const MANY: u64 = (1 << 16) + 3;

    fn options() -> PoolOptions {
        PoolOptions { domain: DomainChoice::Process, size_bytes: 64 << 20, ..PoolOptions::default() }
    }

    /// Puts `MANY` roots and types before those that are there.
    fn add_many(stm: &Stm) -> Result<()> {
        stm.update(|tx| {
            let system = tx.system();
            for number in 0..MANY {
                let name = tx.alloc_bytes(number.to_string().as_bytes())?;
                let System { roots, types } = tx.read(system)?;
                let root = RootEntry { next: roots, name, kind: name, object: PmAddr::NULL };
                let kind = TypeEntry { next: types, name, layout: name, version: 1 };
                let (root, kind) = (tx.alloc(root)?, tx.alloc(kind)?);
                *tx.write(system)? = System { roots: root, types: kind };
            }
            Ok(())
        })
    }

    #[test]
    fn roots_and_types_are_found_behind_any_number_of_others() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("many.pool");
        let stm = Stm::open(&Store::create(&path, &options())?)?;
        let first = stm.root_named::<Pet>("first")?;
        add_many(&stm)?;
        drop(stm);
        let stm = Stm::open(&Store::open(&path, &options())?)?;
        assert_eq!(stm.root_named::<Pet>("first")?, first, "another root of this name was made");
        drop(stm);
        let stm = Stm::open(&Store::open(&path, &options())?)?;
        let other = stm.check::<OtherPet>();
        assert!(matches!(other, Err(Error::LayoutChanged { .. })), "the type was not found: {other:?}");
        Ok(())
    }

    #[test]
    fn a_list_that_leads_in_a_circle_is_damage() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("circle.pool");
        let stm = Stm::open(&Store::create(&path, &options())?)?;
        for name in ["first", "second", "third"] {
            stm.root_named::<Pet>(name)?;
        }
        stm.update(|tx| {
            let System { roots, types } = tx.read(tx.system())?;
            let second = tx.read(roots)?.next;
            let first = tx.read(second)?.next;
            tx.write(first)?.next = second;
            tx.write(types)?.next = types;
            Ok(())
        })?;
        stm.root_named::<Pet>("first")?;
        let fourth = stm.root_named::<Pet>("fourth");
        assert!(matches!(fourth, Err(Error::Damaged { .. })), "{fourth:?}");
        drop(stm);
        let types = Stm::open(&Store::open(&path, &options())?)?.check::<unknown::Unknown>();
        assert!(matches!(types, Err(Error::Damaged { .. })), "{types:?}");
        Ok(())
    }

    mod unknown {
        use super::*;

        system_object!(
            /// A type that the pool does not know.
            Unknown, "Unknown" {
                /// Something.
                word: u64,
            }
        );
    }
}
