//! Kinds of objects: each registers once, and every tool asks the registry.
//!
//! A kind has a code on the medium and a name, and it verifies its objects. The blocks that an examination finds decide
//! about ownership, leaks and the drop of the object. A kind that a store does not know is a finding and an error. It
//! is never skipped.

use std::fmt;
use std::ops::ControlFlow;

use lodestone_heap::Heap;
use lodestone_pmem::PmAddr;

use crate::object::Object;

/// The error type of a kind.
///
/// ```
/// use lodestone_store::KindError;
///
/// let error: KindError = "the log has no records".into();
/// assert_eq!(error.to_string(), "the log has no records");
/// ```
pub type KindError = Box<dyn std::error::Error + Send + Sync>;

/// Code of a kind on the medium: four letters.
///
/// ```
/// use lodestone_store::KindCode;
///
/// let code = KindCode(*b"MLOG");
/// assert_eq!(code.to_string(), "MLOG");
/// assert_eq!(KindCode::from_raw(code.to_raw()), code);
/// ```
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

/// A place in an object that does not verify.
///
/// ```
/// use lodestone_pmem::PmAddr;
/// use lodestone_store::{Contents, Flaw};
///
/// let text = "a leaf does not verify".to_owned();
/// let flaw = Flaw { at: PmAddr::new(0, 4096), text, blocks_are_known: true, is_in_heap: false };
/// let contents = Contents { flaws: vec![flaw], ..Contents::default() };
/// assert!(contents.is_complete() && !contents.is_whole(), "damaged, but no block is unknown");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The place.
    pub at: PmAddr,
    /// The structure, and the finding.
    pub text: String,
    /// Whether every block that the object owns is known nevertheless.
    pub blocks_are_known: bool,
    /// Whether the object itself is whole, and only the heap's metadata is wrong. A repair of the heap corrects that.
    pub is_in_heap: bool,
}

/// The result of an examination of an object.
///
/// ```
/// use lodestone_pmem::PmAddr;
/// use lodestone_store::Contents;
///
/// let contents = Contents { records: 2, blocks: vec![(PmAddr::new(0, 4096), 100)], ..Contents::default() };
/// assert!(contents.is_whole());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Records (keys, objects) that verify.
    pub records: u64,
    /// Every block that the object owns, in no order, with the bytes that it keeps there (0: not known). Blocks beyond
    /// a flaw are missing.
    pub blocks: Vec<(PmAddr, u64)>,
    /// The flaws. Empty when the object is intact.
    pub flaws: Vec<Flaw>,
    /// Notes that are no damage, such as an action that a crash cut short.
    pub notes: Vec<String>,
}

impl Contents {
    /// Whether every block that the object owns is in [`blocks`](Self::blocks).
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.flaws.iter().all(|flaw| flaw.blocks_are_known)
    }

    /// Whether nothing in the object itself is damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.flaws.iter().all(|flaw| flaw.is_in_heap)
    }
}

/// The identity of lost records.
///
/// ```
/// use lodestone_store::LostKeys;
///
/// let after_m = LostKeys::Between(Some(b"m".to_vec()), None);
/// assert_ne!(after_m, LostKeys::Unknown);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostKeys {
    /// The record with this key, in the form for tools.
    Key(Vec<u8>),
    /// Any record with a key in this range, in the form for tools: from the first, before the second.
    Between(Option<Vec<u8>>, Option<Vec<u8>>),
    /// Unknown: the records at the place.
    Unknown,
    /// A *doubtful* record with this key and value, in the form for tools. Both verify, and nothing says any more
    /// whether the record was removed or replaced before the damage. Several can have one key.
    Doubtful(Vec<u8>, Vec<u8>),
}

/// Records that a salvage cannot recover, or a doubtful record that it does not count among the others.
///
/// ```
/// use lodestone_store::{Lost, LostKeys};
///
/// let mut lost = Lost::doubtful(b"lamp".to_vec(), b"3".to_vec(), None, "its leaf is lost");
/// assert!(lost.is_doubtful());
/// assert_eq!(lost.take_record(), Some((b"lamp".to_vec(), b"3".to_vec())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Their identity.
    pub keys: LostKeys,
    /// The first damaged byte, where it is known.
    pub at: Option<PmAddr>,
    /// Whether a record is certainly lost. Otherwise there may have been none, or all of them were salvaged.
    pub is_certain: bool,
    /// The finding.
    pub reason: String,
}

impl Lost {
    /// A doubtful record. See [`LostKeys::Doubtful`].
    #[must_use]
    pub fn doubtful(key: Vec<u8>, value: Vec<u8>, at: Option<PmAddr>, reason: impl Into<String>) -> Self {
        Self { keys: LostKeys::Doubtful(key, value), at, is_certain: false, reason: reason.into() }
    }

    /// Whether this is a doubtful record.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        matches!(self.keys, LostKeys::Doubtful(..))
    }

    /// Takes key and value of a doubtful record, which is then only named by its key. So a list of many takes no memory
    /// for their values.
    ///
    /// ```
    /// use lodestone_store::{Lost, LostKeys};
    ///
    /// let mut found = Lost::doubtful(b"k".to_vec(), b"v".to_vec(), None, "nothing says whether it counts");
    /// assert_eq!(found.take_record(), Some((b"k".to_vec(), b"v".to_vec())));
    /// assert_eq!(found.keys, LostKeys::Key(b"k".to_vec()));
    /// assert_eq!(found.take_record(), None);
    /// ```
    pub fn take_record(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let LostKeys::Doubtful(key, value) = &mut self.keys else { return None };
        let (key, value) = (std::mem::take(key), std::mem::take(value));
        self.keys = LostKeys::Key(key.clone());
        Some((key, value))
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certainty = if self.is_certain { "" } else { "perhaps " };
        match &self.keys {
            LostKeys::Key(key) => write!(f, "{certainty}the key `{}`", key.escape_ascii())?,
            LostKeys::Doubtful(key, _) => write!(f, "the key `{}`", key.escape_ascii())?,
            LostKeys::Between(from, to) => {
                match from {
                    Some(from) => write!(f, "{certainty}keys from `{}`", from.escape_ascii())?,
                    None => write!(f, "{certainty}keys from the first")?,
                }
                match to {
                    Some(to) => write!(f, " to before `{}`", to.escape_ascii())?,
                    None => write!(f, " to the last")?,
                }
            }
            LostKeys::Unknown => write!(f, "{certainty}records")?,
        }
        if let Some(at) = self.at {
            write!(f, ", part {} at offset {:#x}", at.part(), at.offset())?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl serde::Serialize for Lost {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let mut map = serializer.serialize_map(None)?;
        match &self.keys {
            LostKeys::Key(key) => map.serialize_entry("key", &text(key))?,
            LostKeys::Between(from, to) => {
                map.serialize_entry("from", &from.as_deref().map(text))?;
                map.serialize_entry("to", &to.as_deref().map(text))?;
            }
            LostKeys::Unknown => {}
            LostKeys::Doubtful(key, value) => {
                map.serialize_entry("key", &text(key))?;
                map.serialize_entry("value", &text(value))?;
            }
        }
        map.serialize_entry("at", &self.at.map(|at| (at.part(), at.offset())))?;
        map.serialize_entry("certain", &self.is_certain)?;
        map.serialize_entry("reason", &self.reason)?;
        map.end()
    }
}

/// A named object inside another one, such as a collection in a transactional memory.
///
/// ```
/// use lodestone_store::Member;
///
/// let member = Member { name: "stock".to_owned(), what: "a hash map, bytes to u64".to_owned() };
/// assert_eq!(member.name, "stock");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// A description for people.
    pub what: String,
}

/// The form of an object's keys.
///
/// ```
/// use lodestone_store::KeyForm;
///
/// /// As a tool shows a key.
/// fn shown(form: KeyForm, key: &[u8]) -> String {
///     match form {
///         KeyForm::Number => u64::from_be_bytes(key.try_into().unwrap_or_default()).to_string(),
///         KeyForm::Bytes => String::from_utf8_lossy(key).into_owned(),
///     }
/// }
/// assert_eq!(shown(KeyForm::Bytes, b"lamp"), "lamp");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// Any bytes.
    Bytes,
    /// Numbers, shown and asked for in decimal.
    Number,
}

/// The callback of a scan, called with key and value. It continues or breaks.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use lodestone_store::VisitRecord;
///
/// let mut keys = Vec::new();
/// let visit: &mut VisitRecord<'_> = &mut |key, _value| {
///     keys.push(key.to_vec());
///     if keys.len() == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
/// };
/// assert!(visit(b"lamp", b"3").is_continue());
/// ```
pub type VisitRecord<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;
/// The callback of a salvage for records that it cannot recover.
///
/// ```
/// use lodestone_store::{Lost, VisitLost};
///
/// let mut doubtful = 0;
/// let lost: &mut VisitLost<'_> = &mut |found: Lost| doubtful += u32::from(found.is_doubtful());
/// lost(Lost::doubtful(b"lamp".to_vec(), b"3".to_vec(), None, "its leaf is lost"));
/// assert_eq!(doubtful, 1);
/// ```
pub type VisitLost<'v> = dyn FnMut(Lost) + 'v;

/// When a change through [`Records`] is durable.
///
/// ```
/// use lodestone_store::Acknowledge;
///
/// // Tools that load many records wait once, at the end.
/// assert_ne!(Acknowledge::OnSync, Acknowledge::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// Every change is durable when its call returns.
    #[default]
    EachChange,
    /// Changes are durable when [`Records::sync`] returns, if the object can do that. Otherwise as `EachChange`.
    OnSync,
}

/// The records of an object of any kind, for tools.
pub trait Records: Send + Sync {
    /// The form of the keys.
    fn key_form(&self) -> KeyForm;

    /// The value of `key`.
    ///
    /// # Errors
    /// When the key is invalid, or the medium is damaged at the place of the answer.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KindError>;

    /// Sets `key` to `value`. Returns whether it replaced an older value. Durable as chosen when the records were
    /// opened.
    ///
    /// # Errors
    /// As [`get`](Self::get). Also when there is no space, when a limit is passed, or when the object takes no changes
    /// from tools.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, KindError>;

    /// Removes `key`. Returns whether it was there. Durable as chosen when the records were opened.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    fn remove(&self, key: &[u8]) -> Result<bool, KindError>;

    /// Waits until every change of this thread is durable.
    ///
    /// # Errors
    /// When the pool failed. Then changes since the last success may be lost.
    fn sync(&self) -> Result<(), KindError>;

    /// Calls `visit` with the records from `start` on, in the order of the object, until it breaks. Returns the number
    /// of calls. An object without an order shows all records, in any order, and refuses a `start`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn scan(&self, start: Option<&[u8]>, visit: &mut VisitRecord<'_>) -> Result<u64, KindError>;

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
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Object, Records};
///
/// #[derive(Debug)]
/// struct Counter;
///
/// impl Kind for Counter {
///     fn code(&self) -> KindCode {
///         KindCode(*b"MCNT")
///     }
///
///     fn title(&self) -> &'static str {
///         "a counter"
///     }
///
///     fn examine(&self, counter: Object) -> Result<Contents, KindError> {
///         Ok(Contents { records: 1, blocks: vec![(counter.at(), 8)], ..Contents::default() })
///     }
///
///     fn records(&self, _: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
///         Err("a counter has no records".into())
///     }
/// }
///
/// static COUNTER: Counter = Counter;
///
/// let hits = store.open_or_make::<lodestone_store::Error>("hits", &COUNTER, |action| Ok(action.alloc_zeroed(8)?))?;
/// hits.memory().store(hits.at(), 1);
/// hits.memory().persist(hits.at(), 8);
/// assert_eq!(store.names()[0].name, "hits");
/// # Ok::<(), lodestone_store::Error>(())
/// ```
pub trait Kind: fmt::Debug + Sync {
    /// Its code on the medium. No two kinds have the same.
    fn code(&self) -> KindCode;

    /// The name of such an object, with an article: "an FPTree". For messages and tables.
    fn title(&self) -> &'static str;

    /// A longer description of `object` than [`title`](Self::title), for listings.
    fn describe(&self, object: &Object) -> String {
        let _ = object;
        self.title().to_owned()
    }

    /// Verifies everything of `object`, which does not change meanwhile. Changes nothing.
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

    /// Calls `visit` with every record of `object`, or of its member `member`, that is not in a damaged line, and
    /// `lost` with the others. Never stops at damage: a damaged link hides nothing. Changes nothing. The object must
    /// not change meanwhile. Returns the number of records shown.
    ///
    /// A record that verifies and may have been removed or replaced is never shown. It goes to `lost` as
    /// [`LostKeys::Doubtful`].
    ///
    /// # Errors
    /// When the object has no records, or nothing of it can be read.
    fn salvage(
        &self,
        object: Object,
        member: Option<&str>,
        visit: &mut VisitRecord<'_>,
        lost: &mut VisitLost<'_>,
    ) -> Result<u64, KindError> {
        let records = self.records(object, member, Acknowledge::EachChange)?;
        records.scan(None, visit).or_else(|error| {
            let reason = format!("nothing can be read beyond this: {error}");
            lost(Lost { keys: LostKeys::Unknown, at: None, is_certain: true, reason });
            Ok(0)
        })
    }

    /// Whether an object of this kind begins at `at`, the start of an allocated block, and is inside no other object.
    /// A repair that accepts loss asks this to find objects whose names are lost. It must not be true of a block that
    /// holds a user's bytes.
    fn begins_at(&self, heap: &Heap, at: PmAddr) -> bool {
        let _ = (heap, at);
        false
    }

    /// Makes the object `name` from the readable records of `object`, which is damaged, and calls `lost` with the
    /// others. Durable on return. Returns the number of records.
    ///
    /// # Errors
    /// When the kind cannot do that, or there is no room. The caller then drops the unfinished `name`.
    fn rebuild(&self, object: Object, name: &str, lost: &mut VisitLost<'_>) -> Result<u64, KindError> {
        let _ = (name, lost);
        Err(format!("`{}` is {}, which no tool can make anew", object.name(), self.title()).into())
    }
}

/// A kind that every store of the program knows. The crate that makes such objects submits it.
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
///
/// ```
/// use lodestone_pmem::{DomainChoice, PoolOptions};
/// use lodestone_store::{Kinds, Store};
/// # use lodestone_store::{Acknowledge, Contents, Kind, KindCode, KindError, Object, Records};
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # #[derive(Debug)]
/// # struct Log;
/// # impl Kind for Log {
/// #     fn code(&self) -> KindCode { KindCode(*b"MLOG") }
/// #     fn title(&self) -> &'static str { "a log" }
/// #     fn examine(&self, log: Object) -> Result<Contents, KindError> {
/// #         Ok(Contents { records: 1, blocks: vec![(log.at(), 100)], ..Contents::default() })
/// #     }
/// #     fn records(&self, _: Object, _: Option<&str>, _: Acknowledge) -> Result<Box<dyn Records>, KindError> {
/// #         Err("none".into())
/// #     }
/// # }
/// # static LOG: Log = Log;
/// let store = Store::create(&path, &options)?;
/// let make = |name: &str| store.open_or_make::<lodestone_store::Error>(name, &LOG, |action| Ok(action.alloc(100)?));
/// let kinds = Kinds::registered().with(&[&LOG]);
/// assert_eq!(kinds.find(LOG.code()).map(|kind| kind.title()), Some("a log"));
/// # let _ = make;
/// # Ok::<(), lodestone_store::Error>(())
/// ```
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

    /// The same with `kinds` added. A kind that is already there counts once.
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
