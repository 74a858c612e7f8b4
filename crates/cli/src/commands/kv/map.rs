//! The map of a pool that the `kv` commands work on, and that map as the importer's store.
//!
//! A map is the ordered map, or records over an index of another kind. What it is, its root says: only a command that may create
//! one takes a choice, and a choice that differs from what is there is refused.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_index::{
    Durability, IndexKind, KEY_BYTES_MAX, KIND_PENDING, KIND_RECORDS, KIND_RECORDS_PENDING, OrderedMap, RecordMap,
    VALUE_BYTES_MAX, index_of_map, is_root_unmade, open_records,
};
use lodestone_pmem::Pool;

use crate::commands::pool::{OpenArgs, PoolFiles, ReadArgs};
use crate::store::Store;

/// Name of the map that holds the progress of imports. Names that start so belong to the command itself.
const MARKS: &str = "lodestone.imports";

/// A pool and a map in it.
#[derive(Clone, Debug, clap::Args)]
pub struct MapArgs {
    #[command(flatten)]
    pub open: OpenArgs,

    /// Name of the map inside the pool
    #[arg(long, value_name = "NAME", default_value = "main", value_parser = map_name)]
    pub map: String,
}

fn map_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 32 {
        return Err("a map's name has 1 to 32 bytes".into());
    }
    if text.starts_with("lodestone.") {
        return Err("names that start with `lodestone.` are kept for the command itself".into());
    }
    Ok(text.to_owned())
}

/// What a map is made of.
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
    /// What a new map is made of: ordered-map (the default, and the fastest), fastfair, fptree, skiplist, hybrid or
    /// hybrid-plus; a map that is there keeps its kind
    #[arg(long, value_name = "KIND")]
    pub index: Option<MapKind>,
}

/// How a command opens its map.
#[derive(Clone, Copy, Default)]
struct Wanted {
    kind: Option<MapKind>,
    durability: Durability,
}

/// The kind of the map `name`, if it is there.
fn kind_of(pool: &Pool, name: &str) -> Result<Option<MapKind>> {
    if is_root_unmade(pool, name)? {
        // Nothing, or less: a crash came while something of whatever kind was made. Whoever creates has the choice again.
        return Ok(None);
    }
    Ok(match pool.root(name)? {
        None => None,
        Some((KIND_RECORDS | KIND_RECORDS_PENDING, _)) => index_of_map(pool, name)?.map(MapKind::Over),
        // Anything else is for the ordered map to take or to refuse.
        Some(_) => Some(MapKind::Ordered),
    })
}

/// An open map. Dropping it closes the pool.
pub struct Opened {
    pub map: Box<dyn RecordMap>,
    pub kind: MapKind,
    pub heap: Heap,
    pub pool: Pool,
}

impl MapArgs {
    /// Opens the map, creating it if the pool has none of that name.
    pub fn open(&self) -> Result<Opened> {
        self.open_for(Wanted::default())
    }

    /// As [`open`](Self::open); it is created as, and must be, of the chosen kind.
    pub fn open_as(&self, kind: KindArg) -> Result<Opened> {
        self.open_for(Wanted { kind: kind.index, durability: Durability::Sync })
    }

    /// As [`open_as`](Self::open_as), for a command that waits for the durability of many changes at once.
    pub fn open_to_load(&self, kind: KindArg) -> Result<Opened> {
        self.open_for(Wanted { kind: kind.index, durability: Durability::Relaxed })
    }

    fn open_for(&self, wanted: Wanted) -> Result<Opened> {
        let pool = self.open.open()?;
        let heap = Heap::open(&pool, &HeapOptions::default())
            .with_context(|| format!("{}: opening the heap failed", pool.path().display()))?;
        self.open_on(pool, heap, wanted)
    }

    /// Opens a map that exists, for reading; changes no byte of the pool unless a crash left something to recover.
    pub fn open_to_read(&self, read: ReadArgs) -> Result<Opened> {
        let pool = self.open.open_read_only()?;
        let path = pool.path().display().to_string();
        if is_root_unmade(&pool, &self.map)? {
            bail!("{path}: there is no map `{}` in this pool; `lodestone pool info` lists its roots", self.map)
        }
        if let Some((KIND_PENDING | KIND_RECORDS_PENDING, _)) = pool.root(&self.map)? {
            // A crash came before the last step of making the map; the next open goes on with that, which takes a writer.
            drop(pool);
            read.may_finish(&self.open)?;
            return self.open();
        }
        match Heap::open(&pool, &HeapOptions::default()) {
            Ok(heap) => match self.open_on(pool, heap, Wanted::default()) {
                // The same: of a map over an index not everything is there yet.
                Err(error) if matches!(error.downcast_ref(), Some(lodestone_index::Error::ReadOnly { .. })) => {
                    read.may_finish(&self.open)?;
                    self.open()
                }
                other => other,
            },
            // The heap wants to finish what a crash cut short, which takes a writer.
            Err(lodestone_heap::Error::Invalid { what: "heap", .. }) => {
                drop(pool);
                read.may_finish(&self.open)?;
                self.open()
            }
            Err(error) => Err(error).with_context(|| format!("{path}: opening the heap failed")),
        }
    }

    /// Opens the map of a pool that is already open.
    fn open_on(&self, pool: Pool, heap: Heap, wanted: Wanted) -> Result<Opened> {
        let path = pool.path().display().to_string();
        let found = kind_of(&pool, &self.map)?;
        let kind = found.or(wanted.kind).unwrap_or_default();
        if let Some(wanted) = wanted.kind.filter(|wanted| *wanted != kind) {
            bail!(
                "{path}: the map `{}` is of kind {kind}, not {wanted}; leave --index out, or choose another --map",
                self.map
            );
        }
        let opened: lodestone_index::Result<Box<dyn RecordMap>> = match kind {
            MapKind::Ordered => OrderedMap::open(&heap, &self.map).map(|map| Box::new(map) as Box<dyn RecordMap>),
            MapKind::Over(kind) => open_records(&heap, &self.map, kind, wanted.durability),
        };
        let map = opened.with_context(|| format!("{path}: opening the map `{}` failed", self.map))?;
        Ok(Opened { map, kind, heap, pool })
    }
}

/// The store of an import: the map, and the progress marks in a map of their own beside it.
pub struct MapStore {
    rows: Box<dyn RecordMap>,
    marks: OrderedMap,
    map_name: String,
    files: PoolFiles,
}

impl MapStore {
    /// The store that imports into `opened`, a map named `map_name`.
    pub fn new(opened: Opened, map_name: &str) -> Result<Self> {
        let marks = OrderedMap::open(&opened.heap, MARKS)
            .with_context(|| format!("{}: opening the progress of imports failed", opened.pool.path().display()))?;
        let files = PoolFiles::of(&opened.pool)?;
        Ok(Self { rows: opened.map, marks, map_name: map_name.to_owned(), files })
    }

    /// Key of the mark `name`: map and source; the head of a long source gives way to its checksum.
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

impl Store for MapStore {
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.rows.insert_relaxed(key, value)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.rows.sync()?)
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
