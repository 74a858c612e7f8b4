//! The map of a pool that the `kv` commands work on, and that map as the importer's store.

use anyhow::{Context, Result, bail};
use lodestone_heap::{Heap, HeapOptions};
use lodestone_index::{KEY_BYTES_MAX, KIND_PENDING, OrderedMap, VALUE_BYTES_MAX};
use lodestone_pmem::Pool;

use crate::commands::pool::OpenArgs;
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

/// An open map. Dropping it closes the pool.
pub struct Opened {
    pub map: OrderedMap,
    pub heap: Heap,
    pub pool: Pool,
}

impl MapArgs {
    /// Opens the map, creating it if the pool has none of that name.
    pub fn open(&self) -> Result<Opened> {
        let pool = self.open.open()?;
        self.open_in(pool)
    }

    /// Opens a map that exists, for reading; changes no byte of the pool unless a crash left something to recover.
    pub fn open_to_read(&self) -> Result<Opened> {
        let pool = self.open.open_read_only()?;
        let path = pool.path().display().to_string();
        match pool.root(&self.map)? {
            None => bail!("{path}: there is no map `{}` in this pool; `lodestone pool info` lists its roots", self.map),
            // A crash came while the map was made; the next open goes on with that, which takes a writer.
            Some((KIND_PENDING, _)) => {
                drop(pool);
                return self.open();
            }
            Some(_) => {}
        }
        match Heap::open(&pool, &HeapOptions::default()) {
            Ok(heap) => self.open_on(pool, heap),
            // The heap wants to finish what a crash cut short, which takes a writer.
            Err(lodestone_heap::Error::Invalid { what: "heap", .. }) => {
                drop(pool);
                self.open()
            }
            Err(error) => Err(error).with_context(|| format!("{path}: opening the heap failed")),
        }
    }

    /// Opens the map of a pool that is already open.
    fn open_in(&self, pool: Pool) -> Result<Opened> {
        let heap = Heap::open(&pool, &HeapOptions::default())
            .with_context(|| format!("{}: opening the heap failed", pool.path().display()))?;
        self.open_on(pool, heap)
    }

    fn open_on(&self, pool: Pool, heap: Heap) -> Result<Opened> {
        let map = OrderedMap::open(&heap, &self.map)
            .with_context(|| format!("{}: opening the map `{}` failed", pool.path().display(), self.map))?;
        Ok(Opened { map, heap, pool })
    }
}

/// The store of an import: the map, and the progress marks in a map of their own beside it.
pub struct MapStore {
    rows: OrderedMap,
    marks: OrderedMap,
    map_name: String,
}

impl MapStore {
    /// The store that imports into `opened`, a map named `map_name`.
    pub fn new(opened: Opened, map_name: &str) -> Result<Self> {
        let marks = OrderedMap::open(&opened.heap, MARKS)
            .with_context(|| format!("{}: opening the progress of imports failed", opened.pool.path().display()))?;
        Ok(Self { rows: opened.map, marks, map_name: map_name.to_owned() })
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
