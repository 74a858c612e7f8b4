//! A table that is loaded with its rows, for the steps of the database: rows, an index, and pieces of a long value.

use lodestone_crash::planted::Bug;
use lodestone_crash::{Config, Profile, Target};
use lodestone_engine::{Error, Result, Schema, row};

use super::{INDEX, Kind, Open, Step, Tables, View, elsewhere, large_value, named, tables};

/// The number of the fourth table, and in its place: the entries of its index, and whether it is there.
const LOADED: usize = 13;
const LOADED_ENTRIES: usize = 14;
const HAS_LOADED: usize = 15;

/// The value of a row of the fourth table that is not a number. That of the second row is in pieces.
fn loaded_value(key: u64) -> Vec<u8> {
    large_value(if key == 1 { 60 } else { 4 })
}

/// Rows of the fourth table.
const ROWS: u64 = 5;

impl Open {
    /// Carries out a step on the fourth table.
    pub fn apply_load(&self, step: &Step) -> Result<()> {
        match step {
            Step::Load(count) => self.load(*count),
            Step::Reload(count, value) => self.reload(*count, *value),
            Step::PutLoaded(key, value) => self.put_loaded(*key, *value),
            Step::NoPageLost => self.no_page_is_lost(),
            _ => Ok(()),
        }
    }

    /// Makes the fourth table. Its rows do not come in the order of their keys.
    pub fn load(&self, count: u64) -> Result<()> {
        let schema: Schema = "d (k u64, v i64, b bytes) key (k) index by_v (v)".parse()?;
        let rows = (0..count).rev().map(|key| Ok(row![key, 0_i64, loaded_value(key)]));
        match self.db.load_table(&schema, rows) {
            Err(Error::TableExists { .. }) => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Gives the fourth table other rows, of which the same transaction changes the first one.
    pub fn reload(&self, count: u64, value: i64) -> Result<()> {
        let table = match self.db.table("d") {
            Err(Error::NoTable { .. }) => return Ok(()),
            table => table?,
        };
        let mut load = self.db.begin_load(table.schema())?;
        (0..count).rev().try_for_each(|key| load.push(&row![key, value, loaded_value(key)]))?;
        let tx = self.db.begin();
        let inside = self.db.put_loaded(&tx, load.finish()?)?;
        inside.update(&tx, &row![0_u64, value + 1, loaded_value(0)])?;
        tx.commit()
    }

    pub fn put_loaded(&self, key: u64, value: i64) -> Result<()> {
        let table = match self.db.table("d") {
            Err(Error::NoTable { .. }) => return Ok(()),
            table => table?,
        };
        self.db.update(|tx| table.update(tx, &row![key, value, loaded_value(key)]))
    }

    pub fn view_loaded(&self, view: &mut View) -> Result<()> {
        let table = match self.db.table("d") {
            Err(Error::NoTable { .. }) => return Ok(()),
            table => table?,
        };
        let by_v = table.index(INDEX)?;
        view.insert((HAS_LOADED, 0), 1);
        self.db.update(|tx| {
            let rows = table.range(tx, ..)?.map(|row| (LOADED, row));
            for (number, row) in rows.chain(by_v.range(tx, ..)?.map(|row| (LOADED_ENTRIES, row))) {
                let row = row?;
                let key = row[0].as_u64().unwrap_or(0);
                let is_whole = row[2].as_bytes() == Some(&loaded_value(key)[..]);
                view.insert((number, key), row[1].as_i64().filter(|_| is_whole).unwrap_or(i64::MIN));
            }
            Ok(())
        })
    }

    pub fn no_page_is_lost(&self) -> Result<()> {
        // The images of a dropped tree end with the second checkpoint, and their pages with the third.
        (0..3).try_for_each(|_| self.db.checkpoint().map(drop))?;
        let (stats, in_use) = (self.db.page_stats(), self.db.pages_in_use()?);
        if stats.pages - stats.pages_free == in_use {
            return Ok(());
        }
        Err(Error::cancelled(format!("{in_use} pages are in use, {stats:?}")))
    }
}

/// Changes `view` as a step on the fourth table does.
pub fn follow(view: &mut View, step: &Step) {
    match *step {
        Step::Load(count) if !view.contains_key(&(HAS_LOADED, 0)) => {
            view.insert((HAS_LOADED, 0), 1);
            view.extend((0..count).flat_map(|key| [((LOADED, key), 0), ((LOADED_ENTRIES, key), 0)]));
        }
        Step::Reload(count, value) if view.contains_key(&(HAS_LOADED, 0)) => {
            view.retain(|(table, _), _| !matches!(*table, LOADED | LOADED_ENTRIES));
            let number = |key| if key == 0 { value + 1 } else { value };
            view.extend(
                (0..count).flat_map(|key| [((LOADED, key), number(key)), ((LOADED_ENTRIES, key), number(key))]),
            );
        }
        Step::PutLoaded(key, value) if view.contains_key(&(LOADED, key)) => {
            view.extend([((LOADED, key), value), ((LOADED_ENTRIES, key), value)]);
        }
        _ => {}
    }
}

/// Steps that must work after a crash. First of all no page of a load that did not end may be lost.
pub fn more() -> Vec<Step> {
    use Step::{Kill, Load, NoPageLost, PutLoaded, Reload};
    vec![NoPageLost, Load(ROWS), NoPageLost, PutLoaded(1, 100), Kill, Reload(3, 50), NoPageLost]
}

/// The targets of loads.
pub fn targets() -> Vec<Tables> {
    use Step::{Checkpoint, Kill, Load, Put, PutLoaded, Reload, SpoilCheckpoint};
    // The changed row has no pieces: each line of its record may be lost by itself.
    let steps = vec![Put(0, 0, 1), Load(ROWS), PutLoaded(2, 7), Kill, Checkpoint, elsewhere(Put(1, 0, 2))];
    let older = vec![Put(0, 0, 1), Checkpoint, Put(0, 0, 2), Load(ROWS), SpoilCheckpoint, PutLoaded(2, 7)];
    vec![
        Tables { kind: Kind::Large, ..tables("db-load", steps) },
        Tables { kind: Kind::Large, ..tables("db-load-older-round", older) },
        Tables {
            kind: Kind::Large,
            ..tables("db-load-again", vec![Load(ROWS), Reload(3, 20), PutLoaded(2, 7), Kill, Reload(2, 30)])
        },
    ]
}

/// Bugs that they must find. With persistent caches there are few states, and these bugs need no other ones.
pub fn bugs() -> Vec<Bug> {
    let bug = |name, harm, target: fn() -> Box<dyn Target>| Bug {
        config: Config { profile: Profile::Eadr, ..Config::default() },
        ..Bug::new(name, harm, target)
    };
    vec![
        bug("engine-load-table-first", "a crash leaves a table without the rows that it was loaded with", || {
            named("db-load")
        }),
        bug("engine-load-in-one-checkpoint", "damage to the newest checkpoint loses the rows of a load", || {
            named("db-load-older-round")
        }),
        bug("engine-load-keeps-rows-before", "the rows in whose place a load came take their pages for ever", || {
            named("db-load-again")
        }),
    ]
}
