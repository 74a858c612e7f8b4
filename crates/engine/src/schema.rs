//! The columns of a table, its key and its indexes, and their bytes in the catalog.
//!
//! ```text
//! definition of a table: columns 2 (highest bit: a part follows; next: ranges do; next: kept), key columns 2,
//!                        part 2, ranges: number 2 { length 2, first key, part 2 (65535: none) },
//!                        columns { type 1, nullable 1, name length 2, name }, key { number 2 }, history (`history.rs`)
//! definition of an index: flags 1 (1: unique, 2: being built), columns { number 2 }
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use lodestone_width::exact_u16;

use crate::decimal::SCALE_MAX;
use crate::error::{Error, Result};
use crate::history::{History, Lifetime, VERSION_MAX};
use crate::key;
use crate::payload::Moved;
use crate::placement::Place;
use crate::value::{Row, Type, Value};

/// Most columns of a table.
pub const COLUMNS_MAX: usize = 1024;
/// Longest name of a table or column in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Longest default of a column that is added.
const DEFAULT_BYTES_MAX: usize = 2000;
/// In the flags of an index.
const UNIQUE: u8 = 1;
const BEING_BUILT: u8 = 2;
/// In the number of columns: the definition names a part of the pool.
const HAS_PART: u16 = 1 << 15;
/// And it names parts for ranges of keys.
const HAS_RANGES: u16 = 1 << 14;
/// And the rows stay in DRAM.
const IS_KEPT: u16 = 1 << 13;
const _: () = assert!(COLUMNS_MAX < 1 << 13, "the bits are not some of the number");

/// A column.
///
/// ```
/// use lodestone_engine::{Schema, Type};
///
/// let schema = Schema::new("notes").column("id", Type::U64).nullable("text", Type::Text).key(["id"]);
/// let text = &schema.columns()[1];
/// assert_eq!((text.name.as_str(), text.kind, text.nullable), ("text", Type::Text, true));
/// assert_eq!(text.to_string(), "text text null");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub kind: Type,
    /// Whether it may hold null.
    pub nullable: bool,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.name, self.kind, if self.nullable { " null" } else { "" })
    }
}

/// Reads the text that `Display` writes: a name, a type, and `null` if it may be null.
///
/// ```
/// use lodestone_engine::{Column, Type};
///
/// let column: Column = "note text null".parse()?;
/// assert_eq!(column, Column { name: "note".into(), kind: Type::Text, nullable: true });
/// assert!("note".parse::<Column>().is_err());
/// # Ok::<(), String>(())
/// ```
impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, kind, nullable) = match text.split_whitespace().collect::<Vec<_>>()[..] {
            [name, kind] => (name, kind, false),
            [name, kind, "null"] => (name, kind, true),
            _ => return Err(format!("`{}` is no `name type` or `name type null`", text.trim())),
        };
        let kind = kind.parse().map_err(|finding: String| format!("column `{name}`: {finding}"))?;
        Ok(Self { name: name.into(), kind, nullable })
    }
}

/// A second order of the rows of a table, by other columns than the key.
///
/// ```
/// use lodestone_engine::{Index, Schema};
///
/// let schema: Schema = "t (id u64, mail text null) key (id) unique by_mail (mail)".parse()?;
/// assert_eq!(schema.indexes(), [Index::unique("by_mail", ["mail"])]);
/// # Ok::<(), lodestone_engine::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name, which no other index of the table has.
    pub name: String,
    /// Names of its columns, in the order of their weight.
    pub columns: Vec<String>,
    /// Whether no two rows may have the same values in these columns. Rows with a null among them are exempt.
    pub is_unique: bool,
}

impl Index {
    /// An index that many rows may share an entry of.
    #[must_use]
    pub fn new<N: Into<String>>(name: impl Into<String>, columns: impl IntoIterator<Item = N>) -> Self {
        Self { name: name.into(), columns: columns.into_iter().map(Into::into).collect(), is_unique: false }
    }

    /// An index that refuses a second row with the same values. Nulls are never the same.
    #[must_use]
    pub fn unique<N: Into<String>>(name: impl Into<String>, columns: impl IntoIterator<Item = N>) -> Self {
        Self { is_unique: true, ..Self::new(name, columns) }
    }

    fn read(text: &str) -> Result<Self, String> {
        let bad = || format!("`{}` is no `index NAME (COLUMN, ...)` or `unique NAME (COLUMN, ...)`", text.trim());
        let (head, columns) = text.trim().strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(bad)?;
        let columns = columns.split(',').map(str::trim);
        match head.split_whitespace().collect::<Vec<_>>()[..] {
            ["index", name] => Ok(Self::new(name, columns)),
            ["unique", name] => Ok(Self::unique(name, columns)),
            _ => Err(bad()),
        }
    }

    /// The bytes for the catalog.
    pub(crate) fn encode(&self, columns: &[usize], is_ready: bool) -> Vec<u8> {
        let unique = if self.is_unique { UNIQUE } else { 0 };
        let mut bytes = vec![if is_ready { unique } else { unique | BEING_BUILT }];
        columns.iter().for_each(|number| bytes.extend(exact_u16(*number).to_le_bytes()));
        bytes
    }

    /// The index `name` of `schema` from the bytes of the catalog, and whether it is ready. `None` for bytes that
    /// [`encode`](Self::encode) does not write.
    pub(crate) fn decode(schema: &Schema, name: &str, mut bytes: &[u8]) -> Option<(Self, bool)> {
        let flags = *bytes.split_off_first()?;
        if flags & !(UNIQUE | BEING_BUILT) != 0 {
            return None;
        }
        let mut columns = Vec::new();
        while !bytes.is_empty() {
            columns.push(schema.columns.get(usize::from(take_u16(&mut bytes)?))?.name.clone());
        }
        Some((Self { name: name.into(), columns, is_unique: flags & UNIQUE != 0 }, flags & BEING_BUILT == 0))
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_unique { "unique" } else { "index" };
        write!(f, "{kind} {} ({})", self.name, self.columns.join(", "))
    }
}

/// Reads the text that `Display` writes.
///
/// ```
/// use lodestone_engine::Index;
///
/// assert_eq!("unique by_mail (mail)".parse(), Ok(Index::unique("by_mail", ["mail"])));
/// assert!("by_mail (mail)".parse::<Index>().is_err());
/// ```
impl FromStr for Index {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text)
    }
}

/// A table's name, columns, key and indexes.
///
/// ```
/// use lodestone_engine::{Schema, Type};
///
/// let schema = Schema::new("accounts")
///     .column("id", Type::U64)
///     .column("owner", Type::Text)
///     .nullable("note", Type::Text)
///     .key(["id"])
///     .index("by_owner", ["owner"]);
/// let text = "accounts (id u64, owner text, note text null) key (id) index by_owner (owner)";
/// assert_eq!(schema.to_string(), text);
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    /// Names of the key's columns, in the order of the key.
    pub(crate) key: Vec<String>,
    pub(crate) indexes: Vec<Index>,
    /// The columns of earlier rows.
    pub(crate) history: History,
    /// The parts of the pool that the pages of table and indexes are in.
    pub(crate) place: Place,
}

/// Two schemas are equal when their names, columns, keys and indexes are, whatever columns their tables had before, and
/// wherever their pages are.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, columns, key, indexes, history: _, place: _ } = self;
        (name, columns, key, indexes) == (&other.name, &other.columns, &other.key, &other.indexes)
    }
}

impl Eq for Schema {}

impl Schema {
    /// A table called `name`, without columns.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        let (history, place) = (History::default(), Place::default());
        Self { name: name.into(), columns: Vec::new(), key: Vec::new(), indexes: Vec::new(), history, place }
    }

    /// With another column.
    #[must_use]
    pub fn column(self, name: impl Into<String>, kind: Type) -> Self {
        self.with(name.into(), kind, false)
    }

    /// With another column that may hold null.
    #[must_use]
    pub fn nullable(self, name: impl Into<String>, kind: Type) -> Self {
        self.with(name.into(), kind, true)
    }

    fn with(mut self, name: String, kind: Type, nullable: bool) -> Self {
        self.columns.push(Column { name, kind, nullable });
        self
    }

    /// With this key. Rows are in its order, and no two rows have the same.
    #[must_use]
    pub fn key<N: Into<String>>(mut self, columns: impl IntoIterator<Item = N>) -> Self {
        self.key = columns.into_iter().map(Into::into).collect();
        // Those of another table, whose keys mean something else.
        self.place = self.place.of_indexes();
        self
    }

    /// With an index over these columns. [`Table::index`](crate::Table::index) reads it.
    #[must_use]
    pub fn index<N: Into<String>>(self, name: impl Into<String>, columns: impl IntoIterator<Item = N>) -> Self {
        self.with_index(Index::new(name, columns))
    }

    /// With an index over these columns that refuses a second row with the same values. Nulls are never the same.
    #[must_use]
    pub fn unique<N: Into<String>>(self, name: impl Into<String>, columns: impl IntoIterator<Item = N>) -> Self {
        self.with_index(Index::unique(name, columns))
    }

    /// With another index.
    #[must_use]
    pub fn with_index(mut self, index: Index) -> Self {
        self.indexes.push(index);
        self
    }

    /// The indexes.
    #[must_use]
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// The key's columns, in the order of the key.
    pub fn key_columns(&self) -> impl Iterator<Item = &Column> {
        self.key.iter().filter_map(|name| self.columns.iter().find(|column| column.name == *name))
    }

    /// The name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of the column called `name`.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// The bytes for the catalog.
    pub(crate) fn encode(&self, layout: &Layout) -> Vec<u8> {
        let mut bytes = Vec::new();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let has_ranges = !self.place.ranges().is_empty();
        let flags = flag(self.place.part.is_some(), HAS_PART)
            | flag(has_ranges, HAS_RANGES)
            | flag(self.place.is_kept, IS_KEPT);
        bytes.extend((exact_u16(self.columns.len()) | flags).to_le_bytes());
        bytes.extend(exact_u16(layout.key.len()).to_le_bytes());
        self.place.part.iter().for_each(|part| bytes.extend(part.to_le_bytes()));
        if has_ranges {
            self.place.encode_ranges(&mut bytes);
        }
        for column in &self.columns {
            bytes.extend([column.kind.code(), u8::from(column.nullable)]);
            bytes.extend(exact_u16(column.name.len()).to_le_bytes());
            bytes.extend(column.name.as_bytes());
        }
        layout.key.iter().for_each(|number| bytes.extend(exact_u16(*number).to_le_bytes()));
        self.history.encode(&mut bytes);
        bytes
    }

    /// The table `name` from the bytes of the catalog. `None` for bytes that [`encode`](Self::encode) does not write.
    pub(crate) fn decode(name: &str, mut bytes: &[u8]) -> Option<Self> {
        let (columns, keys, place) = take_head(&mut bytes)?;
        let mut schema = Self { place, ..Self::new(name) };
        for _ in 0..columns {
            let kind = Type::from_code(*bytes.split_off_first()?)?;
            let nullable = take_bool(&mut bytes)?;
            let length = usize::from(take_u16(&mut bytes)?);
            let name = std::str::from_utf8(bytes.split_off(..length)?).ok()?;
            schema.columns.push(Column { name: name.to_owned(), kind, nullable });
        }
        for _ in 0..keys {
            let number = usize::from(take_u16(&mut bytes)?);
            schema.key.push(schema.columns.get(number)?.name.clone());
        }
        schema.history = History::decode(bytes, &schema.columns)?;
        schema.layout().is_ok().then_some(schema)
    }

    /// The parts of the pool that the bytes of the catalog name.
    pub(crate) fn decode_place(mut bytes: &[u8]) -> Option<Place> {
        Some(take_head(&mut bytes)?.2)
    }

    /// With another column. Rows that are there have `default` in it.
    ///
    /// # Errors
    /// [`Error::BadSchema`]; [`Error::WrongType`]; [`Error::TooLarge`].
    pub(crate) fn add_column(&mut self, column: &Column, default: &Value) -> Result<()> {
        let bad = |finding: String| Err(Error::BadSchema { table: self.name.clone(), finding });
        if self.history.version >= VERSION_MAX {
            return bad(format!("its columns have changed {VERSION_MAX} times; export the table and make it again"));
        }
        if *default == Value::Null && !column.nullable {
            return bad(format!(
                "its column `{column}` may not be null: it needs a default for the rows that are there"
            ));
        }
        let bytes = match default {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        if bytes > DEFAULT_BYTES_MAX {
            let (table, limit) = (self.name.clone(), DEFAULT_BYTES_MAX);
            return Err(Error::TooLarge { table, what: "default", bytes, limit });
        }
        self.history = self.history.with_column(&self.columns, column, default.clone());
        self.columns.push(column.clone());
        self.verify([(self.columns.len() - 1, default)].into_iter())
    }

    /// Without the column called `name`. Rows that are there keep its bytes until they are written again.
    ///
    /// # Errors
    /// [`Error::NoColumn`]; [`Error::BadSchema`] when key or indexes have it.
    pub(crate) fn drop_column(&mut self, name: &str) -> Result<()> {
        let number = self.must_have(name)?;
        let bad = |finding: String| Err(Error::BadSchema { table: self.name.clone(), finding });
        let names_it = |names: &[String]| names.iter().any(|column| column == name);
        if names_it(&self.key) {
            return bad(format!("its key has the column `{name}`, which cannot be dropped"));
        }
        if let Some(index) = self.indexes.iter().find(|index| names_it(&index.columns)) {
            return bad(format!("its index `{}` has the column `{name}`; drop the index first", index.name));
        }
        if self.history.version >= VERSION_MAX {
            return bad(format!("its columns have changed {VERSION_MAX} times; export the table and make it again"));
        }
        self.history = self.history.without_column(&self.columns, number);
        self.columns.remove(number);
        Ok(())
    }

    /// With another name for the column called `from`.
    ///
    /// # Errors
    /// [`Error::NoColumn`].
    pub(crate) fn rename_column(&mut self, from: &str, to: &str) -> Result<()> {
        let number = self.must_have(from)?;
        to.clone_into(&mut self.columns[number].name);
        let indexes = self.indexes.iter_mut().flat_map(|index| &mut index.columns);
        self.key.iter_mut().chain(indexes).filter(|name| *name == from).for_each(|name| to.clone_into(name));
        Ok(())
    }

    /// The number of the column called `name`.
    fn must_have(&self, name: &str) -> Result<usize> {
        self.number_of(name).ok_or_else(|| Error::NoColumn { table: self.name.clone(), column: name.into() })
    }

    /// Whether rows of `other` are rows of this one: all is equal but the indexes.
    pub(crate) fn has_rows_of(&self, other: &Self) -> bool {
        self.columns == other.columns && self.key == other.key && self.history == other.history
    }

    /// The first difference from `other`, in words. `None` if there is none.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        for number in 0..self.columns.len().max(other.columns.len()) {
            match (self.columns.get(number), other.columns.get(number)) {
                (Some(own), Some(there)) if own == there => {}
                (own, there) => {
                    let text = |column: Option<&Column>| column.map_or("missing".into(), |found| format!("`{found}`"));
                    return Some(format!("column {number} is {}, not {}", text(own), text(there)));
                }
            }
        }
        if self.key != other.key {
            return Some(format!("the key is ({}), not ({})", self.key.join(", "), other.key.join(", ")));
        }
        let missing = |of: &Self, from: &Self| {
            of.indexes.iter().find(|index| !from.indexes.contains(index)).map(|index| format!("`{index}`"))
        };
        match (missing(self, other), missing(other, self)) {
            (None, None) => None,
            (Some(own), None) => Some(format!("it has {own}")),
            (None, Some(there)) => Some(format!("it has no {there}")),
            (Some(own), Some(there)) => Some(format!("it has {own}, and no {there}")),
        }
    }

    /// The places of the columns in keys and payloads.
    ///
    /// # Errors
    /// [`Error::BadSchema`].
    pub(crate) fn layout(&self) -> Result<Layout> {
        let bad = |finding: String| Err(Error::BadSchema { table: self.name.clone(), finding });
        if !is_name(&self.name) {
            return bad(format!("its name has {} bytes; a name has 1 to {NAME_BYTES_MAX}", self.name.len()));
        }
        if self.columns.len() > COLUMNS_MAX {
            return bad(format!("it has {} columns; the limit is {COLUMNS_MAX}", self.columns.len()));
        }
        for (number, column) in self.columns.iter().enumerate() {
            if !is_name(&column.name) {
                return bad(format!(
                    "the name of column {number} has {} bytes; a name has 1 to {NAME_BYTES_MAX}",
                    column.name.len()
                ));
            }
            if matches!(column.kind, Type::Decimal(scale) if scale > SCALE_MAX) {
                return bad(format!("column `{column}`: the scale of a decimal is 0 to {SCALE_MAX}"));
            }
            if self.number_of(&column.name) != Some(number) {
                return bad(format!("two columns are called `{}`", column.name));
            }
        }
        if self.key.is_empty() {
            return bad("it has no key; name its columns with `key`".into());
        }
        let key = self.numbers("its key", &self.key)?;
        let indexes = self.indexes.iter().enumerate().map(|(number, index)| self.index_columns(number, index));
        let indexes = indexes.collect::<Result<_>>()?;
        Ok(Layout::new(self, key, indexes))
    }

    /// The columns of the index with this number.
    fn index_columns(&self, number: usize, index: &Index) -> Result<Vec<usize>> {
        let bad = |finding: String| Err(Error::BadSchema { table: self.name.clone(), finding });
        let Index { name, columns, .. } = index;
        if !is_name(name) {
            let bytes = name.len();
            return bad(format!("the name of index {number} has {bytes} bytes; a name has 1 to {NAME_BYTES_MAX}"));
        }
        if self.indexes.iter().position(|other| other.name == *name) != Some(number) {
            return bad(format!("two indexes are called `{name}`"));
        }
        if columns.is_empty() {
            return bad(format!("its index `{name}` has no columns"));
        }
        self.numbers(&format!("its index `{name}`"), columns)
    }

    /// The numbers of columns, each of which is named once by `whose`.
    fn numbers(&self, whose: &str, names: &[String]) -> Result<Vec<usize>> {
        let bad = |finding: String| Err(Error::BadSchema { table: self.name.clone(), finding });
        let mut numbers: Vec<usize> = Vec::new();
        for name in names {
            match self.number_of(name) {
                None => return bad(format!("{whose} names `{name}`, which is no column")),
                Some(number) if numbers.contains(&number) => return bad(format!("{whose} names `{name}` twice")),
                Some(number) => numbers.push(number),
            }
        }
        Ok(numbers)
    }

    /// Verifies type and null of each of `values`, which are for the columns with `numbers`.
    pub(crate) fn verify<'v>(&self, values: impl Iterator<Item = (usize, &'v Value)>) -> Result<()> {
        for (number, value) in values {
            let column = &self.columns[number];
            let fits = value.type_of().map_or(column.nullable, |kind| kind == column.kind);
            if !fits {
                return Err(Error::WrongType {
                    table: self.name.clone(),
                    column: column.to_string(),
                    found: value.type_of().map_or("null".into(), |kind| kind.to_string()),
                });
            }
        }
        Ok(())
    }

    /// Verifies a whole row.
    pub(crate) fn verify_row(&self, row: &[Value]) -> Result<()> {
        if row.len() != self.columns.len() {
            let (found, expected) = (row.len(), self.columns.len());
            return Err(Error::WrongLength { table: self.name.clone(), what: "row", found, expected });
        }
        self.verify(row.iter().enumerate())
    }

    /// The bytes of a key, or of its first columns when `is_prefix`.
    pub(crate) fn key_bytes(&self, layout: &Layout, values: &[Value], is_prefix: bool) -> Result<Vec<u8>> {
        let expected = layout.key.len();
        if values.len() > expected || values.len() < expected && !is_prefix {
            return Err(Error::WrongLength { table: self.name.clone(), what: "key", found: values.len(), expected });
        }
        self.verify(layout.key.iter().copied().zip(values))?;
        self.encode_key(layout.key.iter().copied().zip(values))
    }

    /// The bytes of the key of `row`, which is verified.
    pub(crate) fn key_of(&self, layout: &Layout, row: &[Value]) -> Result<Vec<u8>> {
        self.encode_key(layout.key.iter().map(|number| (*number, &row[*number])))
    }

    pub(crate) fn encode_key<'v>(&self, values: impl Iterator<Item = (usize, &'v Value)>) -> Result<Vec<u8>> {
        // Most keys are a number or two.
        let mut bytes = Vec::with_capacity(16);
        values.for_each(|(number, value)| key::encode(value, self.columns[number].nullable, &mut bytes));
        if bytes.len() > key::KEY_BYTES_MAX {
            let (bytes, limit) = (bytes.len(), key::KEY_BYTES_MAX);
            return Err(Error::TooLarge { table: self.name.clone(), what: "key", bytes, limit });
        }
        Ok(bytes)
    }

    /// The values of the columns with `numbers`, which `key` consists of, for messages.
    pub(crate) fn columns_text(&self, numbers: &[usize], key: &[u8]) -> String {
        let mut rest = key;
        let values = self.decode_columns(numbers, &mut rest);
        values.map_or_else(|| key.escape_ascii().to_string(), |row| row.to_string())
    }

    /// The first columns of the key, as many as `key` has, for messages.
    pub(crate) fn prefix_text(&self, layout: &Layout, key: &[u8]) -> String {
        let is_whole = |count: &usize| {
            let mut rest = key;
            self.decode_columns(&layout.key[..*count], &mut rest).is_some() && rest.is_empty()
        };
        let count = (1..=layout.key.len()).find(is_whole).unwrap_or(layout.key.len());
        self.columns_text(&layout.key[..count], key)
    }

    /// The values of the columns with `numbers` at the beginning of `key`, which begins after them then.
    pub(crate) fn decode_columns(&self, numbers: &[usize], key: &mut &[u8]) -> Option<Row> {
        let column = |number: &usize| {
            let column = &self.columns[*number];
            key::decode(key, column.kind, column.nullable)
        };
        numbers.iter().map(column).collect::<Option<Vec<_>>>().map(Row)
    }

    /// The row with this key and payload, and the columns that its pieces must be read for. `None` for bytes that this
    /// schema does not write.
    pub(crate) fn decode_row(&self, layout: &Layout, mut key: &[u8], payload: &[u8]) -> Option<(Row, Vec<Moved>)> {
        let mut row = vec![Value::Null; self.columns.len()];
        for &number in &layout.key {
            let column = &self.columns[number];
            row[number] = key::decode(&mut key, column.kind, column.nullable)?;
        }
        let moved = layout.decode(payload, &mut row)?;
        key.is_empty().then_some((Row(row), moved))
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<String> = self.columns.iter().map(ToString::to_string).collect();
        write!(f, "{} ({}) key ({})", self.name, columns.join(", "), self.key.join(", "))?;
        self.indexes.iter().try_for_each(|index| write!(f, " {index}"))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX
}

/// Reads the text that `Display` writes. Names are words without blanks, commas and parentheses.
///
/// ```
/// use lodestone_engine::Schema;
///
/// let text = "accounts (id u64, owner text, note text null) key (id) index by_owner (owner, id)";
/// let schema: Schema = text.parse()?;
/// assert_eq!(schema.to_string(), text);
/// # Ok::<(), lodestone_engine::Error>(())
/// ```
impl FromStr for Schema {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once('(').unwrap_or((text, ""));
        let name = name.trim();
        let bad = |finding: &str| Error::BadSchema { table: name.into(), finding: finding.into() };
        let (columns, rest) = split_columns(rest).ok_or_else(|| bad("its columns are not in parentheses"))?;
        let rest = rest.trim().strip_prefix("key").map(str::trim_start).unwrap_or_default();
        let key = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let (key, mut rest) = key.ok_or_else(|| bad("after its columns there is no `key (...)`"))?;
        let mut schema = Self::new(name);
        for column in columns.split(',') {
            schema.columns.push(column.parse().map_err(|finding: String| bad(&finding))?);
        }
        schema = schema.key(key.split(',').map(str::trim));
        while !rest.trim().is_empty() {
            let end = rest.find(')').map_or(rest.len(), |end| end + 1);
            let (index, others) = rest.split_at(end);
            schema = schema.with_index(Index::read(index).map_err(|finding| bad(&finding))?);
            rest = others;
        }
        schema.layout()?;
        Ok(schema)
    }
}

/// The text before the parenthesis that ends it, and after that. Types may have parentheses of their own.
fn split_columns(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_u32;
    let end = text.find(|found| {
        match found {
            '(' => depth += 1,
            ')' if depth == 0 => return true,
            ')' => depth -= 1,
            _ => {}
        }
        false
    })?;
    Some((&text[..end], &text[end + 1..]))
}

/// The places of the columns. `payload` says what is where.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Numbers of the key's columns.
    pub key: Vec<usize>,
    /// The version of the schema.
    pub version: u16,
    /// The rows of this version.
    pub form: RowForm,
    /// By version from 1 on: rows that were written before the columns changed. Most versions have none by now.
    earlier: Vec<OnceLock<RowForm>>,
    /// All columns outside the key that the table ever had, if they have changed.
    columns: Vec<(PayloadColumn, Lifetime)>,
    /// Numbers of the columns of each index.
    pub indexes: Vec<Vec<usize>>,
}

/// A column outside the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadColumn {
    /// Its number in the schema. `None`: it was dropped.
    pub number: Option<usize>,
    /// Its number among all columns that the table ever had.
    pub id: usize,
    pub kind: Type,
    pub nullable: bool,
}

/// The rows of a version.
#[derive(Clone, Debug)]
pub(crate) struct RowForm {
    /// Their columns outside the key: those of fixed length, then the others.
    pub columns: Vec<PayloadColumn>,
    /// The values of the columns that were added later, by number.
    pub defaults: Vec<(usize, Arc<Value>)>,
}

impl RowForm {
    fn new(columns: &[(PayloadColumn, Lifetime)], version: u16) -> Self {
        let there = columns.iter().filter(|(_, lifetime)| lifetime.is_in(version)).map(|(column, _)| *column);
        let (fixed, others): (Vec<_>, Vec<_>) = there.partition(|column| column.kind.fixed_bytes().is_some());
        let later = columns.iter().filter(|(_, lifetime)| lifetime.added > version);
        let defaults = later.filter_map(|(column, lifetime)| Some((column.number?, lifetime.default.clone())));
        Self { columns: fixed.into_iter().chain(others).collect(), defaults: defaults.collect() }
    }
}

impl Layout {
    fn new(schema: &Schema, key: Vec<usize>, indexes: Vec<Vec<usize>>) -> Self {
        let (version, all) = (schema.history.version, schema.history.all(&schema.columns));
        // A key keeps its columns, so each number of it belongs to a column that is there.
        let mut columns = Vec::new();
        let mut numbers = 0..;
        for (id, lifetime) in all.into_iter().enumerate() {
            let number = if lifetime.dropped == 0 { numbers.next() } else { None };
            if !number.is_some_and(|number| key.contains(&number)) {
                let Lifetime { kind, nullable, .. } = lifetime;
                columns.push((PayloadColumn { number, id, kind, nullable }, lifetime));
            }
        }
        let form = RowForm::new(&columns, version);
        let earlier = std::iter::repeat_with(OnceLock::new).take(usize::from(version - 1)).collect();
        Self { key, version, form, earlier, columns, indexes }
    }

    /// The rows of `version`, if there was one.
    pub(crate) fn form_of(&self, version: u16) -> Option<&RowForm> {
        if version == self.version {
            return Some(&self.form);
        }
        let form = self.earlier.get(usize::from(version.checked_sub(1)?))?;
        Some(form.get_or_init(|| RowForm::new(&self.columns, version)))
    }

    /// Whether a column that the table has or had may be in pieces.
    pub(crate) fn has_variable(&self) -> bool {
        self.columns.iter().any(|(column, _)| column.kind.fixed_bytes().is_none())
    }
}

/// The numbers of columns and key columns of a definition, and where its pages are.
fn take_head(bytes: &mut &[u8]) -> Option<(u16, u16, Place)> {
    let (columns, keys) = (take_u16(bytes)?, take_u16(bytes)?);
    let mut place = Place::default().kept(columns & IS_KEPT != 0);
    if columns & HAS_PART != 0 {
        place.part = Some(take_u16(bytes)?);
    }
    if columns & HAS_RANGES != 0 {
        place.decode_ranges(bytes)?;
    }
    Some((columns & !(HAS_PART | HAS_RANGES | IS_KEPT), keys, place))
}

pub(crate) fn take_bool(bytes: &mut &[u8]) -> Option<bool> {
    match bytes.split_off_first()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

pub(crate) fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u16::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let schema = Schema::new("t").column("a", Type::Text).nullable("b", Type::I64).column("c", Type::Decimal(38));
        schema.column("e", Type::I16).column("f", Type::Decimal(0)).nullable("g", Type::Uuid).key(["b", "a"])
    }

    #[test]
    fn definitions_come_back() -> Result<()> {
        let mut in_ranges = schema().in_part(3);
        in_ranges.place.set(vec![7], Some(vec![9]), None);
        for schema in [schema(), schema().in_part(3), schema().kept(), in_ranges.clone(), in_ranges.kept()] {
            let bytes = schema.encode(&schema.layout()?);
            let found = Schema::decode("t", &bytes).expect("its own bytes");
            assert_eq!((&found, &found.place), (&schema, &schema.place));
            assert_eq!(Schema::decode_place(&bytes).as_ref(), Some(&schema.place));
            for end in 0..bytes.len() {
                assert_eq!(Schema::decode("t", &bytes[..end]), None, "{end} bytes of it");
            }
        }
        Ok(())
    }

    #[test]
    fn a_difference_names_the_column() {
        assert_eq!(schema().difference(&schema()), None);
        let other = Schema::new("t").column("a", Type::Text).column("b", Type::I64).key(["a"]);
        assert_eq!(schema().difference(&other).as_deref(), Some("column 1 is `b i64 null`, not `b i64`"));
        let other = schema().key(["a"]);
        assert_eq!(schema().difference(&other).as_deref(), Some("the key is (b, a), not (a)"));
        assert!(schema().difference(&schema().column("d", Type::Bool)).is_some_and(|text| text.contains("missing")));
    }

    #[test]
    fn texts_are_schemas_or_errors_that_say_why() {
        let text = schema().to_string();
        assert_eq!(text.parse::<Schema>().expect("its own text"), schema());
        let text = "t (a i64, b text null) key (a) index i (b, a) unique j (b)";
        assert_eq!(text.parse::<Schema>().expect("with indexes").to_string(), text);
        let blanks = " t( a text ,b i64  null,c decimal(38),e i16 ,f decimal(0),g uuid null)key( b,a ) ";
        assert_eq!(blanks.parse::<Schema>().expect("blanks"), schema());
        for (text, finding) in [
            ("", "not in parentheses"),
            ("t (a i64", "not in parentheses"),
            ("t (a i64)", "no `key"),
            ("t (a i64) key a", "no `key"),
            ("t (a) key (a)", "`a` is no"),
            ("t (a u32) key (a)", "`u32` is no type"),
            ("t (a decimal) key (a)", "`decimal` is no type"),
            ("t (a decimal(39)) key (a)", "the scale of a decimal is 0 to 38"),
            ("t (a decimal(2) key (a)", "not in parentheses"),
            ("t (a i64 nil) key (a)", "`a i64 nil` is no"),
            ("t (a i64) key (b)", "`b`, which is no column"),
            ("t (a i64) key (a) index", "`index` is no `index NAME"),
            ("t (a i64) key (a) index i (b)", "`i` names `b`, which is no column"),
            ("t (a i64) key (a) index i (a) unique i (a)", "two indexes are called `i`"),
            ("t (a i64) key (a) unique i (a, a)", "names `a` twice"),
            ("t (a i64) key (a) unique i (a", "is no `index NAME"),
            ("(a i64) key (a)", "its name has 0 bytes"),
        ] {
            let error = text.parse::<Schema>().expect_err(text).to_string();
            assert!(error.contains(finding), "{text}: {error}");
        }
    }

    #[test]
    fn schemas_without_sense_are_refused() {
        let long = "x".repeat(129);
        let bad = [
            Schema::new("").column("a", Type::Bool).key(["a"]),
            Schema::new("t").column("a", Type::Bool),
            Schema::new("t").column("a", Type::Bool).key(["b"]),
            Schema::new("t").column("a", Type::Bool).key(["a", "a"]),
            Schema::new("t").column("a", Type::Bool).column("a", Type::Bool).key(["a"]),
            Schema::new("t").column(long, Type::Bool).key(["a"]),
            Schema::new("t").column("a", Type::Decimal(39)).key(["a"]),
        ];
        for schema in bad {
            assert!(matches!(schema.layout(), Err(Error::BadSchema { .. })), "{schema}");
        }
    }
}
