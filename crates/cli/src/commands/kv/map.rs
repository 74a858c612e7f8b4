//! The map of a pool that the `kv` commands work on, and that map as the importer's store.
//!
//! A map is any object that has records: an ordered map, a map over an index, an index, a collection in a transactional
//! memory. The store knows its kind. Only a command that may create a map takes a choice of kind, and a choice that
//! differs from the existing map is refused.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use lodestone_index::{Durability, IndexKind, KEY_BYTES_MAX, OrderedMap, VALUE_BYTES_MAX, open_records};
use lodestone_pmem::Pool;
use lodestone_store::{
    Acknowledge, Kind, Member, NAME_BYTES_MAX, Named, Object, Records, Store, VisitLost, VisitRecord,
};

use crate::commands::pool::{OpenArgs, PoolFiles, ReadArgs, open_store};
use crate::import_store::ImportStore;

/// Name of the map that holds the progress of imports. Names with this prefix are reserved for the command itself.
const MARKS: &str = "lodestone.imports";

/// A pool and a map in it.
#[derive(Clone, Debug, clap::Args)]
pub struct MapArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a comment would become the text of the help")]
    pub open: OpenArgs,

    /// Name of the map inside the pool
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = map_name)]
    pub map: String,
}

fn map_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(format!("a map's name has 1 to {NAME_BYTES_MAX} bytes"));
    }
    if text.starts_with("lodestone.") {
        return Err("names that start with `lodestone.` are kept for the command itself".into());
    }
    Ok(text.to_owned())
}

/// The structure of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapKind {
    /// The ordered map.
    #[default]
    Ordered,
    /// Records over an index.
    Over(IndexKind),
}

/// Name of the ordered map among the kinds.
const ORDERED: &str = "ordered-map";

impl fmt::Display for MapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordered => f.write_str(ORDERED),
            Self::Over(kind) => kind.fmt(f),
        }
    }
}

impl FromStr for MapKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == ORDERED {
            return Ok(Self::Ordered);
        }
        text.parse().map(Self::Over).map_err(|_| {
            let others = IndexKind::ALL.map(IndexKind::name).join(", ");
            format!("`{text}` is no kind of map; the kinds are {ORDERED}, {others}")
        })
    }
}

/// The choice of a command that may create a map.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct KindArg {
    /// Structure of a new map: ordered-map (the default, and the fastest), fastfair, fptree, skiplist, hybrid or
    /// hybrid-plus. An existing map keeps its kind
    #[arg(long, value_name = "KIND")]
    pub index: Option<MapKind>,
}

/// An open map: the records of an object, or of a member of one. Dropping it closes the pool.
pub struct Opened {
    pub records: Box<dyn Records>,
    pub store: Store,
    pub pool: Pool,
}

/// The place of the records.
struct Place {
    object: String,
    member: Option<String>,
    kind: &'static dyn Kind,
}

impl MapArgs {
    /// Opens the map. Creates it if the pool has none of that name.
    pub fn open(&self) -> Result<Opened> {
        self.open_as(KindArg::default())
    }

    /// As [`open`](Self::open), with a chosen kind. A new map gets this kind, and an existing one must have it.
    pub fn open_as(&self, kind: KindArg) -> Result<Opened> {
        self.open_to_change(kind, Acknowledge::EachChange)
    }

    /// Opens a map that exists, for changes.
    pub fn open_existing(&self) -> Result<Opened> {
        let pool = self.open.open()?;
        let store = open_store(&pool)?;
        self.open_on(store, Acknowledge::EachChange)
    }

    /// As [`open_as`](Self::open_as), for a command that waits for the durability of many changes at once.
    fn open_to_load(&self, kind: KindArg) -> Result<Opened> {
        self.open_to_change(kind, Acknowledge::OnSync)
    }

    fn open_to_change(&self, kind: KindArg, acknowledge: Acknowledge) -> Result<Opened> {
        let pool = self.open.open()?;
        let store = open_store(&pool)?;
        if self.place(&store)?.is_none() {
            self.create(&store, kind.index.unwrap_or_default())?;
        } else if let Some(wanted) = kind.index {
            self.must_be(&store, wanted)?;
        }
        self.open_on(store, acknowledge)
    }

    /// Opens a map that exists, for reading. Changes no byte of the pool unless a crash left something to recover.
    pub fn open_to_read(&self, read: ReadArgs) -> Result<Opened> {
        self.open_on(self.store_to_read(read)?, Acknowledge::EachChange)
    }

    /// Calls `visit` with every record of a map that is not in a damaged line, and `lost` with the others. Changes no
    /// byte of the pool unless a crash left something to recover.
    pub fn salvage(&self, read: ReadArgs, visit: &mut VisitRecord<'_>, lost: &mut VisitLost<'_>) -> Result<u64> {
        let store = self.store_to_read(read)?;
        let place = self.place(&store)?.with_context(|| self.missing(&store))?;
        let object = store.open_object(&place.object)?;
        let found = place.kind.salvage(object, place.member.as_deref(), visit, lost);
        found
            .map_err(anyhow::Error::from_boxed)
            .with_context(|| format!("{}: bringing out the map `{}` failed", store.pool().path().display(), self.map))
    }

    /// Opens, for reading, the map's object, or the object that contains the map and the map's name in it.
    pub fn open_object_to_read(&self, read: ReadArgs) -> Result<(Store, Object, Option<String>)> {
        let store = self.store_to_read(read)?;
        let place = self.place(&store)?.with_context(|| self.missing(&store))?;
        let object = store.open_object(&place.object)?;
        Ok((store, object, place.member))
    }

    /// The store of the pool, opened for reading unless a crash left something to finish.
    fn store_to_read(&self, read: ReadArgs) -> Result<Store> {
        self.open.store_to_read(read)?.with_context(|| {
            let path = self.open.path.display();
            format!("{path}: there is no map `{}` in this pool; nothing was ever stored in it", self.map)
        })
    }

    /// The note that the map has no key like `key`.
    pub fn no_key(&self, opened: &Opened, key: &str) -> String {
        let (path, key) = (opened.pool.path().display(), crate::bytes::display(key.as_bytes()));
        format!("{path}: there is no key `{key}` in map `{}`", self.map)
    }

    fn missing(&self, store: &Store) -> String {
        let names: Vec<String> = store.names().into_iter().map(|named| named.name).collect();
        let names = if names.is_empty() { "nothing has a name in it".into() } else { names.join(", ") };
        let path = store.pool().path().display();
        format!(
            "{path}: there is no map `{}` in this pool; `lodestone pool info` says more of what there is: {names}",
            self.map
        )
    }

    fn create(&self, store: &Store, kind: MapKind) -> Result<()> {
        let made = match kind {
            MapKind::Ordered => OrderedMap::open(store, &self.map).map(drop),
            MapKind::Over(index) => open_records(store, &self.map, index, Durability::Sync).map(drop),
        };
        made.with_context(|| format!("{}: creating the map `{}` failed", store.pool().path().display(), self.map))
    }

    /// Refuses a choice that differs from the existing map.
    fn must_be(&self, store: &Store, wanted: MapKind) -> Result<()> {
        let path = store.pool().path().display();
        let found = store.open_object(&self.map)?;
        let what = store.kind_of(&found)?.describe(&found);
        drop(found);
        let is_right = match wanted {
            MapKind::Ordered => OrderedMap::open(store, &self.map).map(drop),
            MapKind::Over(index) => open_records(store, &self.map, index, Durability::Sync).map(drop),
        };
        is_right.with_context(|| {
            format!(
                "{path}: the map `{}` is {what}, not of kind {wanted}; leave --index out, or choose another --map",
                self.map
            )
        })
    }

    /// The place of the map: an object of that name, `OBJECT/NAME` for a member of an object, or the only member of
    /// that name in any object.
    fn place(&self, store: &Store) -> Result<Option<Place>> {
        if let Some((object, member)) = self.map.split_once('/') {
            let Some(found) = store.find(object)? else { return Ok(None) };
            let kind = kind_of(store, &found)?;
            return Ok(Some(Place { object: object.into(), member: Some(member.into()), kind }));
        }
        if let Some(found) = store.find(&self.map)? {
            return Ok(Some(Place { object: self.map.clone(), member: None, kind: kind_of(store, &found)? }));
        }
        let mut inside = Vec::new();
        for (object, kind, member) in members(store)? {
            if member.name == self.map {
                inside.push(Place { object, member: Some(member.name), kind });
            }
        }
        if inside.len() > 1 {
            let all: Vec<String> = inside.iter().map(|place| format!("{}/{}", place.object, self.map)).collect();
            bail!("`{}` is in several objects; name one of them: {}", self.map, all.join(", "));
        }
        Ok(inside.pop())
    }

    /// Opens the records of a store that is open.
    fn open_on(&self, store: Store, acknowledge: Acknowledge) -> Result<Opened> {
        let path = store.pool().path().display().to_string();
        let place = self.place(&store)?.with_context(|| self.missing(&store))?;
        let object = store.open_object(&place.object)?;
        let records = place
            .kind
            .records(object, place.member.as_deref(), acknowledge)
            .map_err(anyhow::Error::from_boxed)
            .with_context(|| format!("{path}: opening the map `{}` failed", self.map))?;
        let pool = store.pool().clone();
        Ok(Opened { records, store, pool })
    }
}

fn kind_of(store: &Store, named: &Named) -> Result<&'static dyn Kind> {
    store.find_kind(named.kind).with_context(|| {
        let path = store.pool().path().display();
        format!("{path}: `{}` has a kind that this program does not know ({})", named.name, named.kind)
    })
}

/// All members of objects: object, its kind, and the member.
pub fn members(store: &Store) -> Result<Vec<(String, &'static dyn Kind, Member)>> {
    let mut all = Vec::new();
    for named in store.names() {
        let Some(kind) = store.find_kind(named.kind) else { continue };
        let found = kind.members(store.open_object(&named.name)?).map_err(anyhow::Error::from_boxed)?;
        all.extend(found.into_iter().map(|member| (named.name.clone(), kind, member)));
    }
    Ok(all)
}

/// The store of an import: the map, and the progress marks in a separate map beside it.
pub struct MapStore {
    rows: Box<dyn Records>,
    marks: OrderedMap,
    map_name: String,
    domain: String,
    files: PoolFiles,
}

impl MapStore {
    /// Opens or creates `map`, so that rows wait for their durability in batches. A new map gets `kind`.
    ///
    /// # Errors
    /// When the pool or the map cannot be opened, or an existing map is of another kind.
    pub fn open(map: &MapArgs, kind: KindArg) -> Result<Self> {
        let opened = map.open_to_load(kind)?;
        let marks = OrderedMap::open(&opened.store, MARKS)
            .with_context(|| format!("{}: opening the progress of imports failed", opened.pool.path().display()))?;
        let files = PoolFiles::of(&opened.pool)?;
        let domain = opened.pool.info().domain_label();
        Ok(Self { rows: opened.records, marks, map_name: map.map.clone(), domain, files })
    }

    /// The name of the pool's domain.
    pub fn domain_label(&self) -> &str {
        &self.domain
    }

    /// Key of the mark `name`: map and source. A long source is shortened to a checksum and its end.
    fn mark_key(&self, name: &str) -> Vec<u8> {
        let mut key = format!("{}:", self.map_name).into_bytes();
        let room = KEY_BYTES_MAX - key.len();
        if name.len() <= room {
            key.extend_from_slice(name.as_bytes());
        } else {
            key.extend_from_slice(format!("{:08x}", crc32c::crc32c(name.as_bytes())).as_bytes());
            key.extend_from_slice(&name.as_bytes()[name.len() - (room - 8)..]);
        }
        key
    }
}

impl ImportStore for MapStore {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.rows.insert(key, value).map_err(anyhow::Error::from_boxed)
    }

    fn sync(&self) -> Result<()> {
        self.rows.sync().map_err(anyhow::Error::from_boxed)
    }

    fn verify(&self) -> Result<()> {
        self.files.verify()
    }

    fn mark(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.marks.get(&self.mark_key(name))?)
    }

    fn set_mark(&self, name: &str, mark: &[u8]) -> Result<()> {
        // Same thread, same order: the rows before it were fenced, so the mark never survives without them.
        self.marks.insert_relaxed(&self.mark_key(name), mark)?;
        Ok(())
    }

    fn clear_mark(&self, name: &str) -> Result<()> {
        self.marks.remove_relaxed(&self.mark_key(name))?;
        Ok(())
    }

    fn limits(&self) -> (usize, usize) {
        (KEY_BYTES_MAX, VALUE_BYTES_MAX)
    }
}
