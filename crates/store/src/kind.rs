//! Kinds of objects: each registers once, and every tool asks the registry.
//!
//! A kind says what its code on the medium is, what it is called, and how an object of it is verified. From the blocks
//! that an examination finds follow ownership, leaks and the drop of the object. A kind that a store does not know is a
//! finding and an error, never skipped.

use std::fmt;
use std::ops::ControlFlow;

use lodestone_pmem::PmAddr;

use crate::object::Object;

/// An error of a kind's own.
pub type KindError = Box<dyn std::error::Error + Send + Sync>;

/// Code of a kind on the medium: four letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindCode(pub [u8; 4]);

impl KindCode {
    /// The number on the medium.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        u32::from_le_bytes(self.0)
    }

    /// The code with this number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw.to_le_bytes())
    }
}

impl fmt::Display for KindCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// Something in an object that does not verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where.
    pub at: PmAddr,
    /// What, and what was found.
    pub text: String,
    /// Whether every block that the object owns is known all the same.
    pub blocks_are_known: bool,
}

/// What an examination found in an object.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Records (keys, objects) that verify.
    pub records: u64,
    /// Every block that the object owns, in no order; without those that lie beyond a flaw.
    pub blocks: Vec<PmAddr>,
    /// What does not verify; empty when the object is intact.
    pub flaws: Vec<Flaw>,
    /// What is worth knowing and no damage, such as an action that a crash cut short.
    pub notes: Vec<String>,
}

impl Contents {
    /// Whether every block that the object owns is in [`blocks`](Self::blocks).
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.flaws.iter().all(|flaw| flaw.blocks_are_known)
    }
}

/// An object inside another one, with a name of its own: a collection in a transactional memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What it is, for a person.
    pub what: String,
}

/// What the keys of an object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// Any bytes.
    Bytes,
    /// Numbers, shown and asked for in decimal.
    Number,
}

/// What a scan shows records to: key and value; it goes on or breaks.
pub type VisitRecord<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;
/// What a salvage tells of records that it cannot bring out: the place, or the range of keys.
pub type VisitLost<'v> = dyn FnMut(&str) + 'v;

/// What a change through [`Records`] waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// Every change is durable when its call returns.
    #[default]
    EachChange,
    /// Changes are durable when [`Records::sync`] returns, where the object can do that; else as `EachChange`.
    OnSync,
}

/// The records of an object, whatever it is made of: for tools.
pub trait Records: Send + Sync {
    /// What the keys are.
    fn key_form(&self) -> KeyForm;

    /// The value of `key`.
    ///
    /// # Errors
    /// When the key makes no sense, or the medium is damaged where the answer is.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KindError>;

    /// Sets `key` to `value`; whether it replaced an older value. Durable as the records were opened.
    ///
    /// # Errors
    /// As [`get`](Self::get); when there is no space or a limit is passed; where the object takes no changes from
    /// tools.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, KindError>;

    /// Removes `key`; whether it was there. Durable as the records were opened.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn remove(&self, key: &[u8]) -> Result<bool, KindError>;

    /// Waits until every change of this thread is durable.
    ///
    /// # Errors
    /// When the pool failed: changes since the last success may be lost.
    fn sync(&self) -> Result<(), KindError>;

    /// Shows `visit` the records from `start` on, in the order of the object, until it breaks; how many it saw. An
    /// object without an order shows all records, in any order, and refuses a `start`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn scan(&self, start: Option<&[u8]>, visit: &mut VisitRecord<'_>) -> Result<u64, KindError>;

    /// Shows `visit` every record that verifies, and tells `lost` of what does not: never stops at damage. The number
    /// shown.
    ///
    /// # Errors
    /// When the pool itself fails.
    fn salvage(&self, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> Result<u64, KindError>;

    /// Number of records.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn len(&self) -> Result<u64, KindError>;

    /// Whether there is no record.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn is_empty(&self) -> Result<bool, KindError> {
        Ok(self.len()? == 0)
    }
}

/// A kind of object.
pub trait Kind: fmt::Debug + Sync {
    /// Its code on the medium; no two kinds have the same.
    fn code(&self) -> KindCode;

    /// What an object of it is, with an article: "an FPTree". For messages and tables.
    fn title(&self) -> &'static str;

    /// What `object` is in more words than [`title`](Self::title), for listings.
    fn describe(&self, object: &Object) -> String {
        let _ = object;
        self.title().to_owned()
    }

    /// Verifies everything of `object`; nobody changes it meanwhile. Changes nothing.
    ///
    /// # Errors
    /// When the object cannot be opened at all. Damage further inside is a flaw of the contents.
    fn examine(&self, object: Object) -> Result<Contents, KindError>;

    /// The named objects inside of `object`.
    ///
    /// # Errors
    /// When they cannot be read.
    fn members(&self, object: Object) -> Result<Vec<Member>, KindError> {
        drop(object);
        Ok(Vec::new())
    }

    /// The records of `object`, or of its member `member`.
    ///
    /// # Errors
    /// When the object is damaged at its root, has no such member, or has no records.
    fn records(
        &self,
        object: Object,
        member: Option<&str>,
        acknowledge: Acknowledge,
    ) -> Result<Box<dyn Records>, KindError>;
}

/// A kind that every store of the program knows: submit one from the crate that makes such objects.
///
/// ```
/// # use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Object, Records};
/// # #[derive(Debug)] struct Log;
/// # impl Kind for Log {
/// #     fn code(&self) -> KindCode { KindCode(*b"MLOG") }
/// #     fn title(&self) -> &'static str { "a log" }
/// #     fn examine(&self, _: Object) -> Result<Contents, KindError> { Ok(Contents::default()) }
/// #     fn records(&self, _: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> { Err("none".into()) }
/// # }
/// static LOG: Log = Log;
/// inventory::submit! { lodestone_store::Registered(&LOG) }
/// ```
#[derive(Debug)]
pub struct Registered(pub &'static dyn Kind);

inventory::collect!(Registered);

/// The kinds that a program knows.
#[derive(Clone, Debug, Default)]
pub struct Kinds(Vec<&'static dyn Kind>);

impl Kinds {
    /// Every kind that a crate of the program registered.
    #[must_use]
    pub fn registered() -> Self {
        let mut kinds = Self::default();
        inventory::iter::<Registered>.into_iter().for_each(|registered| kinds.add(registered.0));
        kinds
    }

    /// With `kinds` added; one that is there already counts once.
    ///
    /// # Panics
    /// When two different kinds have one code.
    #[must_use]
    pub fn with(mut self, kinds: &[&'static dyn Kind]) -> Self {
        kinds.iter().for_each(|kind| self.add(*kind));
        self
    }

    pub(crate) fn add(&mut self, kind: &'static dyn Kind) {
        match self.find(kind.code()) {
            Some(known) => assert_eq!(known.title(), kind.title(), "two kinds have the code {}", kind.code()),
            None => self.0.push(kind),
        }
    }

    /// The kind with this code.
    #[must_use]
    pub fn find(&self, code: KindCode) -> Option<&'static dyn Kind> {
        self.0.iter().copied().find(|kind| kind.code() == code)
    }

    /// Every kind, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn Kind> + '_ {
        self.0.iter().copied()
    }
}
