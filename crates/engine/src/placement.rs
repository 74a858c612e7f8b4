//! In which part of the pool the pages of a table are (paper 4, section 2.1.2: a table space on each node).
//!
//! The catalog has the [`Place`] of a table: a part, and others for ranges of its keys. Its trees, those of rows, long
//! values and indexes, are written there by rounds and loads. A part is on one node, so a node is chosen by its part,
//! and the table follows its part to another node. Indexes have keys of their own, so ranges say nothing about them.
//!
//! The place says where the *next* image of a leaf goes, by the key that the leaf begins with. So a leaf over the
//! border of two ranges is in the part of the first. Images that are there stay until they are written again as a
//! whole, or until the table is moved (`move_table.rs`). When a part is full, images go elsewhere: nothing but costs
//! depends on it.
//!
//! The place says as well whether the rows of the table stay in DRAM, where those of others are in a cache with a bound
//! (paper 4, section 2.1.4: hot pages in DRAM).

use std::collections::BTreeMap;
use std::sync::PoisonError;

use lodestone_pmem::sync::RwLock;
use lodestone_width::exact_u16;

use crate::dual::is_dual;
use crate::large::PIECES;
use crate::schema::{Schema, take_u16};

/// Most ranges of keys of a table.
pub const RANGES_MAX: usize = 256;
/// In place of a part: there is none.
const NO_PART: u16 = u16::MAX;

/// Where the images of a table go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// For indexes, and for the rows before the first range. `None`: where there is room.
    pub part: Option<u16>,
    /// The first key of each range, in order, and its part. A range ends where the next one begins. Two that meet have
    /// different parts.
    ranges: Vec<(Vec<u8>, Option<u16>)>,
    /// Whether the rows stay in DRAM, where the others have a cache.
    pub is_kept: bool,
    /// Whether the rows are in cells. The number of the tree says so on the medium.
    pub is_dual: bool,
}

impl Place {
    /// All of it in this part.
    pub fn whole(self, part: Option<u16>) -> Self {
        Self { part, ranges: Vec::new(), ..self }
    }

    /// With rows that stay in DRAM, or not.
    pub fn kept(self, is_kept: bool) -> Self {
        Self { is_kept, ..self }
    }

    /// The place of the indexes: without ranges, because their keys are others.
    pub fn of_indexes(&self) -> Self {
        Self { part: self.part, is_kept: self.is_kept, ..Self::default() }
    }

    /// The part of the row, or of the leaf that begins, with this key.
    pub fn at(&self, key: &[u8]) -> Option<u16> {
        let after = self.ranges.partition_point(|(low, _)| &low[..] <= key);
        after.checked_sub(1).map_or(self.part, |number| self.ranges[number].1)
    }

    /// Sets the part of the keys from `low` to before `high`.
    pub fn set(&mut self, low: Vec<u8>, high: Option<Vec<u8>>, part: Option<u16>) {
        let after = high.map(|high| (self.at(&high), high));
        let is_inside = |key: &Vec<u8>| *key >= low && after.as_ref().is_none_or(|(_, high)| key < high);
        self.ranges.retain(|(key, _)| !is_inside(key));
        self.ranges.push((low, part));
        if let Some((part, high)) = after
            && self.ranges.iter().all(|(key, _)| *key != high)
        {
            self.ranges.push((high, part));
        }
        self.ranges.sort();
        let mut before = self.part;
        self.ranges.retain(|(_, part)| std::mem::replace(&mut before, *part) != *part);
    }

    /// The ranges: the first key of each, and its part.
    pub fn ranges(&self) -> &[(Vec<u8>, Option<u16>)] {
        &self.ranges
    }

    /// All parts that it names, some of them more than once.
    pub fn parts(&self) -> impl Iterator<Item = u16> {
        self.part.into_iter().chain(self.ranges.iter().filter_map(|(_, part)| *part))
    }

    /// Appends the bytes of the ranges for the catalog.
    pub fn encode_ranges(&self, bytes: &mut Vec<u8>) {
        bytes.extend(exact_u16(self.ranges.len()).to_le_bytes());
        for (low, part) in &self.ranges {
            bytes.extend(exact_u16(low.len()).to_le_bytes());
            bytes.extend(low);
            bytes.extend(part.unwrap_or(NO_PART).to_le_bytes());
        }
    }

    /// Reads ranges from the beginning of `bytes`, which begin after them then. `None` for bytes that
    /// [`encode_ranges`](Self::encode_ranges) does not write.
    pub fn decode_ranges(&mut self, bytes: &mut &[u8]) -> Option<()> {
        let count = usize::from(take_u16(bytes)?);
        for _ in 0..count {
            let length = usize::from(take_u16(bytes)?);
            let low = bytes.split_off(..length)?.to_vec();
            let part = take_u16(bytes)?;
            let is_next = self.ranges.last().is_none_or(|(last, _)| *last < low);
            is_next.then(|| self.ranges.push((low, (part != NO_PART).then_some(part))))?;
        }
        (1..=RANGES_MAX).contains(&count).then_some(())
    }
}

impl Schema {
    /// With pages in this part of the pool, as long as it has room: those of the table, its indexes and its long
    /// values. So they are on the node of that part ([`Database::part_on`](crate::Database::part_on)). Without it they
    /// are where there is room, nearest to the thread that writes them first.
    ///
    /// It counts when the table is made. [`Database::move_table`](crate::Database::move_table) changes it later, and
    /// [`Database::move_range`](crate::Database::move_range) for some of the rows. It is no part of the text of a
    /// schema, and two schemas that differ in it alone are equal.
    ///
    /// ```
    /// use lodestone_engine::{Schema, Type};
    ///
    /// let schema = Schema::new("notes").column("id", Type::U64).key(["id"]);
    /// assert_eq!(schema.part(), None);
    /// assert_eq!(schema.clone().in_part(1).part(), Some(1));
    /// assert_eq!(schema.clone().in_part(1), schema);
    /// ```
    #[must_use]
    pub fn in_part(self, part: u16) -> Self {
        Self { place: self.place.whole(Some(part)), ..self }
    }

    /// With rows that stay in DRAM once they were used, where the database has a cache with a bound
    /// ([`cache_bytes`](crate::DatabaseOptions)): those of the table, its indexes and its long values. They do not
    /// count as bytes of the cache. A thread reads all of them after each open.
    ///
    /// It counts when the table is made. [`Database::keep_table`](crate::Database::keep_table) changes it later. As
    /// with [`in_part`](Self::in_part), two schemas that differ in it alone are equal.
    ///
    /// ```
    /// use lodestone_engine::{Schema, Type};
    ///
    /// let schema = Schema::new("towns").column("id", Type::U64).key(["id"]);
    /// assert!(schema.clone().kept().is_kept() && !schema.is_kept());
    /// ```
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.place.is_kept = true;
        self
    }

    /// With rows in cells of two versions, side by side in persistent memory: a transaction that updates one row writes
    /// that row and nothing else, and one of several rows logs only where they are. So it is for small rows that change
    /// often, one by one: counters, balances, states. The rows stay in DRAM as well, and each open reads all of them.
    ///
    /// It counts when the table is made, and cannot be changed later. Rows are added by transactions:
    /// [`Database::load_table`](crate::Database::load_table) refuses such a table. Not with
    /// [`Durability::Epoch`](crate::Durability::Epoch). As with [`in_part`](Self::in_part), two schemas that differ in
    /// it alone are equal.
    ///
    /// ```
    /// use lodestone_engine::{Schema, Type};
    ///
    /// let schema = Schema::new("counters").column("id", Type::U64).column("count", Type::I64).key(["id"]);
    /// assert!(schema.clone().dual().is_dual() && !schema.is_dual());
    /// ```
    #[must_use]
    pub fn dual(mut self) -> Self {
        self.place.is_dual = true;
        self
    }

    /// With the place of `other`: its part, whether its rows stay in DRAM, whether they are in cells. Ranges of keys
    /// with parts of their own are among it if both have keys of the same types. For a table that is written again in
    /// another form.
    ///
    /// ```
    /// use lodestone_engine::{Schema, Type};
    ///
    /// let before = Schema::new("towns").column("id", Type::U64).key(["id"]).kept().in_part(1);
    /// let after = Schema::new("towns").column("name", Type::Text).key(["name"]).placed_as(&before);
    /// assert!(after.is_kept() && after.part() == Some(1));
    /// ```
    #[must_use]
    pub fn placed_as(self, other: &Self) -> Self {
        let mut place = other.place.clone();
        let kinds = |schema: &Self| schema.key_columns().map(|column| column.kind).collect::<Vec<_>>();
        if kinds(&self) != kinds(other) {
            place.ranges.clear();
        }
        Self { place, ..self }
    }

    /// Whether the rows are in cells: see [`dual`](Self::dual).
    #[must_use]
    pub fn is_dual(&self) -> bool {
        self.place.is_dual
    }

    /// Whether the rows stay in DRAM: see [`kept`](Self::kept).
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.place.is_kept
    }

    /// The part of the pool that the pages are in: see [`in_part`](Self::in_part).
    #[must_use]
    pub fn part(&self) -> Option<u16> {
        self.place.part
    }
}

/// The places of trees, as the catalog says. Trees that are anywhere are not among them.
#[derive(Debug, Default)]
pub struct Placements(RwLock<BTreeMap<u32, Place>>);

impl Placements {
    /// Looks at the place of a tree.
    fn look<R>(&self, tree: u32, look: impl FnOnce(&Place) -> R) -> Option<R> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&(tree & !PIECES)).map(look)
    }

    /// The part of a tree outside its ranges, if it has one.
    pub fn of(&self, tree: u32) -> Option<u16> {
        self.look(tree, |place| place.part)?
    }

    /// The part of the row of a tree with this key, if it has one.
    pub fn at(&self, tree: u32, key: &[u8]) -> Option<u16> {
        self.look(tree, |place| place.at(key))?
    }

    /// The place of a tree.
    pub fn place(&self, tree: u32) -> Place {
        self.look(tree, Place::clone).unwrap_or_default()
    }

    /// Whether keys of a tree have parts of their own.
    pub fn has_ranges(&self, tree: u32) -> bool {
        self.look(tree, |place| !place.ranges.is_empty()).unwrap_or(false)
    }

    /// Whether the rows of a tree stay in DRAM. Those in cells always do.
    pub fn is_kept(&self, tree: u32) -> bool {
        is_dual(tree) || self.look(tree, |place| place.is_kept).unwrap_or(false)
    }

    /// Sets the place of a table. The first of `trees` has its rows, and the others are indexes.
    pub fn set(&self, trees: &[u32], place: &Place) {
        let rows = trees.first().map(|tree| tree & !PIECES);
        for tree in trees.iter().map(|tree| tree & !PIECES) {
            self.set_tree(tree, if Some(tree) == rows { place.clone() } else { place.of_indexes() });
        }
    }

    /// Puts indexes to the table whose rows are in the tree `rows`.
    pub fn add_indexes(&self, indexes: &[u32], rows: u32) {
        let place = self.place(rows).of_indexes();
        indexes.iter().for_each(|tree| self.set_tree(*tree, place.clone()));
    }

    /// Sets the place of one tree, or takes it away.
    pub fn set_tree(&self, tree: u32, place: Place) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if place == Place::default() {
            all.remove(&tree)
        } else {
            all.insert(tree, place)
        };
    }

    /// Takes the places of trees away.
    pub fn forget(&self, trees: &[u32]) {
        self.set(trees, &Place::default());
    }
}

/// Where the pages of a table are: [`Database::placement`](crate::Database::placement).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePlacement {
    /// The part of the pool that new pages go to. `None`: where there is room.
    pub part: Option<u16>,
    /// The kernel's number of the node that this part is on, if it is known. Virtual nodes have numbers of their own.
    pub node: Option<u32>,
    /// Ranges of keys whose rows go to other parts, in order.
    pub ranges: Vec<RangePlacement>,
    /// Pages of the table, its indexes and its long values, by part, as the last checkpoint left them.
    pub pages: Vec<u64>,
    /// How many of them are not in the part that they should be in: that part was full, or a move did not end.
    pub pages_elsewhere: u64,
    /// Whether its rows stay in DRAM beside the cache: see [`Database::keep_table`](crate::Database::keep_table).
    pub is_kept: bool,
    /// Whether its rows are in cells: see [`Schema::dual`].
    pub is_dual: bool,
}

/// A range of keys with a part of its own: see [`Database::move_range`](crate::Database::move_range).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangePlacement {
    /// Its first key, or the first columns of it, as messages have keys. It ends where the next range begins.
    pub from: String,
    /// The part that its new pages go to. `None`: where there is room.
    pub part: Option<u16>,
    /// The number of the node that this part is on, if it is known.
    pub node: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against an array with a part for each of a few keys.
    #[test]
    fn ranges_are_those_of_a_plain_list() {
        let mut numbers = 0x2545_F491_4F6C_DD1D_u64;
        let mut number = |below: u64| {
            numbers ^= numbers << 13;
            numbers ^= numbers >> 7;
            numbers ^= numbers << 17;
            u8::try_from(numbers % below).expect("small")
        };
        for _ in 0..200 {
            let (mut place, mut plain) = (Place::default().whole(Some(9)), [Some(9_u16); 12]);
            for _ in 0..6 {
                let (low, length) = (number(12), number(5));
                let high = Some(low + 1 + length).filter(|high| *high < 12);
                let part = Some(u16::from(number(3))).filter(|part| *part > 0);
                place.set(vec![low], high.map(|high| vec![high]), part);
                plain[usize::from(low)..usize::from(high.unwrap_or(12))].fill(part);
                for (key, part) in (0..).zip(plain) {
                    assert_eq!((place.at(&[key]), place.at(&[key, 7])), (part, part), "key {key} of {place:?}");
                }
                let before = std::iter::once(place.part).chain(place.ranges.iter().map(|(_, part)| *part));
                assert!(before.zip(&place.ranges).all(|(before, (_, part))| before != *part), "{place:?}");
                let (mut bytes, mut back) = (Vec::new(), Place::default().whole(Some(9)));
                place.encode_ranges(&mut bytes);
                let is_back = back.decode_ranges(&mut &bytes[..]).is_some();
                assert_eq!((is_back, &back), (!place.ranges.is_empty(), &place));
            }
        }
    }

    #[test]
    fn bytes_without_order_are_refused() {
        let bytes = |keys: &[u8]| {
            let ranges = keys.iter().map(|key| (vec![*key], Some(1))).collect();
            let mut bytes = Vec::new();
            Place { ranges, ..Place::default() }.encode_ranges(&mut bytes);
            bytes
        };
        for (keys, is_good) in [(&[1, 2][..], true), (&[], false), (&[2, 1], false), (&[1, 1], false)] {
            let mut place = Place::default();
            assert_eq!(place.decode_ranges(&mut &bytes(keys)[..]).is_some(), is_good, "{keys:?}");
        }
        let bytes = bytes(&[1, 2]);
        for end in 0..bytes.len() {
            assert!(Place::default().decode_ranges(&mut &bytes[..end]).is_none(), "{end} bytes of it");
        }
    }
}
