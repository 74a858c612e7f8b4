//! Types of rows: those that `CREATE TYPE .. AS` makes, those of tables, and those that a query makes without a name.
//!
//! A value is a [`crate::Datum::Record`] of its fields, in the order of the attributes. A definition is interned, as
//! that of an enumeration: it lives as long as the process, so a [`Type`] stays a plain value, and [`Composite::of`]
//! refuses more of them than memory should hold.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result, SqlState};
use crate::types::{Type, TypeInfo};

/// The number of the type of all rows without a named type, and that of its arrays.
const RECORD: (u32, u32) = (2249, 2287);

/// A field of a row.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// The modifier of its type, -1 without one.
    pub modifier: i32,
    /// Its number, from 1 on. It never changes, and that of a dropped attribute comes never again.
    pub number: i16,
    /// The number of the domain that its values are of. 0: none.
    pub domain: u32,
}

impl Attribute {
    /// Whether it is the same in every respect, also in the definition of its type.
    fn is_same(&self, other: &Self) -> bool {
        let own = (&self.name, self.modifier, self.number, self.domain);
        own == (&other.name, other.modifier, other.number, other.domain) && is_identical(self.ty, other.ty)
    }
}

/// Two types with the same number may be two versions of one definition.
fn is_identical(one: Type, two: Type) -> bool {
    match (one, two) {
        (Type::Composite(one), Type::Composite(two)) | (Type::CompositeArray(one), Type::CompositeArray(two)) => {
            std::ptr::eq(one.0, two.0)
        }
        (Type::Enum(one), Type::Enum(two)) | (Type::EnumArray(one), Type::EnumArray(two)) => {
            std::ptr::eq(one.definition(), two.definition())
        }
        _ => one == two,
    }
}

/// The definition of a type of rows.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Its number.
    pub oid: u32,
    /// That of its arrays.
    pub array_oid: u32,
    /// That of its relation: the table, or the entry of the type among the relations. 0: none.
    pub relation_oid: u32,
    /// Its name in the catalog.
    pub name: String,
    /// Its name in messages.
    pub display: String,
    /// In their order.
    pub attributes: Vec<Attribute>,
}

impl Definition {
    /// That of rows without a named type.
    #[must_use]
    pub fn anonymous(attributes: Vec<Attribute>) -> Self {
        let name = || "record".to_owned();
        Self { oid: RECORD.0, array_oid: RECORD.1, relation_oid: 0, name: name(), display: name(), attributes }
    }

    fn is_same(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.oid, one.array_oid, one.relation_oid, one.attributes.len());
        key(self) == key(other)
            && (&self.name, &self.display) == (&other.name, &other.display)
            && self.attributes.iter().zip(&other.attributes).all(|(one, two)| one.is_same(two))
    }

    /// The key by which the definitions that were seen are found.
    fn hash(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.oid.hash(&mut hasher);
        self.name.hash(&mut hasher);
        for attribute in &self.attributes {
            (&attribute.name, attribute.ty.oid(), attribute.modifier).hash(&mut hasher);
        }
        hasher.finish()
    }
}

#[derive(Debug)]
struct Interned {
    definition: Definition,
    /// How many rows are inside of each other, with itself.
    depth: usize,
    info: TypeInfo,
    array_info: TypeInfo,
}

/// A type of rows. Two with a name are equal if they have the same number, also if an attribute was added between.
#[derive(Clone, Copy)]
pub struct Composite(&'static Interned);

impl PartialEq for Composite {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0) || !self.is_anonymous() && self.oid() == other.oid()
    }
}

impl Eq for Composite {}

impl Hash for Composite {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.oid().hash(state);
    }
}

impl fmt::Debug for Composite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Composite").field(&self.0.definition.display).finish()
    }
}

/// The definitions that a process has seen.
struct Seen {
    by_hash: BTreeMap<u64, Vec<&'static Interned>>,
    /// How many attributes they have together, with two for each definition itself.
    attributes: usize,
}

/// Most attributes of all definitions that a process has seen, before it makes no more: about 200 MiB.
const ATTRIBUTES_MAX: usize = 2_000_000;

/// Most rows inside of each other: values are written and read by functions that call themselves.
const DEPTH_MAX: usize = 200;

/// Most attributes of one type, as in `PostgreSQL`.
pub const WIDTH_MAX: usize = 1_600;

static SEEN: Mutex<Seen> = Mutex::new(Seen { by_hash: BTreeMap::new(), attributes: 0 });

fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

impl Seen {
    /// The type of a definition, if there is room for it among `attributes_max` attributes.
    fn find_or_make(&mut self, definition: Definition, attributes_max: usize) -> Result<Composite> {
        let hash = definition.hash();
        let same = self.by_hash.get(&hash).into_iter().flatten();
        if let Some(found) = same.copied().find(|found| found.definition.is_same(&definition)) {
            return Ok(Composite(found));
        }
        let count = definition.attributes.len() + 2;
        if definition.attributes.len() > WIDTH_MAX {
            let message = format!("a row can have at most {WIDTH_MAX} columns");
            return Err(Error::new(SqlState::TOO_MANY_COLUMNS, message));
        }
        if depth_of(&definition) > DEPTH_MAX {
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded"));
        }
        if self.attributes.saturating_add(count) > attributes_max {
            let message = "the types of rows that this process has seen take too much memory";
            let error = Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
            return Err(error.hint("Restart the server: it forgets the old ones."));
        }
        let made = Box::leak(Box::new(interned(definition)));
        self.by_hash.entry(hash).or_default().push(made);
        self.attributes += count;
        Ok(Composite(made))
    }
}

impl Composite {
    /// The type of a definition.
    ///
    /// ```
    /// use lodestone_sql_types::composite::{Attribute, Composite, Definition};
    /// use lodestone_sql_types::{Datum, Type, text};
    ///
    /// let attribute = |name: &str, ty, number| Attribute { name: name.into(), ty, modifier: -1, number, domain: 0 };
    /// let attributes = vec![attribute("a", Type::Int4, 1), attribute("b", Type::Text, 2)];
    /// let named = Definition { oid: 16_400, name: "pair".into(), ..Definition::anonymous(attributes) };
    /// let pair = Type::Composite(Composite::of(named)?);
    /// let value = text::decode(pair, "(1,\"x, y\")")?;
    /// assert_eq!(value, Datum::Record(vec![Datum::Int(1), Datum::from("x, y")]));
    /// assert_eq!(text::encode(pair, &value), "(1,\"x, y\")");
    /// # Ok::<(), lodestone_sql_types::Error>(())
    /// ```
    ///
    /// # Errors
    /// 54000 if the process has seen too many definitions; 54001 for rows that are too deep; 54011 for too many
    /// attributes.
    pub fn of(definition: Definition) -> Result<Self> {
        SEEN.lock().unwrap_or_else(PoisonError::into_inner).find_or_make(definition, ATTRIBUTES_MAX)
    }

    /// The type of a row whose fields have these types, under the names `f1`, `f2` and so on.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn of_fields(types: impl IntoIterator<Item = (Type, i32)>) -> Result<Self> {
        let field = |((ty, modifier), number): ((Type, i32), i16)| Attribute {
            name: format!("f{number}"),
            ty,
            modifier,
            number,
            domain: 0,
        };
        Self::of(Definition::anonymous(types.into_iter().zip(1..).map(field).collect()))
    }

    /// Its definition.
    #[must_use]
    pub fn definition(self) -> &'static Definition {
        &self.0.definition
    }

    /// Its fields.
    #[must_use]
    pub fn attributes(self) -> &'static [Attribute] {
        &self.0.definition.attributes
    }

    /// Whether it has no name: two of them are equal if their fields are.
    #[must_use]
    pub fn is_anonymous(self) -> bool {
        self.oid() == RECORD.0
    }

    fn oid(self) -> u32 {
        self.0.definition.oid
    }

    pub(crate) fn info(self) -> &'static TypeInfo {
        &self.0.info
    }

    pub(crate) fn array_info(self) -> &'static TypeInfo {
        &self.0.array_info
    }
}

/// How many rows of a type are inside of each other, with itself.
fn depth_of(definition: &Definition) -> usize {
    let of = |attribute: &Attribute| match attribute.ty.element().unwrap_or(attribute.ty) {
        Type::Composite(inner) => inner.0.depth,
        _ => 0,
    };
    1 + definition.attributes.iter().map(of).max().unwrap_or(0)
}

fn interned(definition: Definition) -> Interned {
    let category = if definition.oid == RECORD.0 { 'P' } else { 'C' };
    let info = |oid: u32, name: String, display: String, category| TypeInfo {
        ty: Type::Unknown,
        oid,
        name: leaked(name),
        display: leaked(display),
        len: -1,
        category,
        element: None,
        array: None,
    };
    let (name, display) = (definition.name.clone(), definition.display.clone());
    let array_category = if category == 'P' { 'P' } else { 'A' };
    Interned {
        array_info: info(definition.array_oid, format!("_{name}"), format!("{display}[]"), array_category),
        info: info(definition.oid, name, display, category),
        depth: depth_of(&definition),
        definition,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_that_come_for_ever_are_refused() {
        let definition = |oid: u32| Definition {
            oid,
            array_oid: oid + 1,
            relation_oid: oid + 2,
            name: "endless".into(),
            display: "endless".into(),
            attributes: vec![Attribute { name: "a".into(), ty: Type::Int4, modifier: -1, number: 1, domain: 0 }],
        };
        // Its own: those of the process are needed by other tests.
        let mut seen = Seen { by_hash: BTreeMap::new(), attributes: 0 };
        let mut of = |oid: u32| seen.find_or_make(definition(oid), 3_000).map_err(|error| error.state());
        let refused = (20_000..30_000).find(|oid| {
            let outcome = of(*oid);
            // The same one again takes nothing.
            assert_eq!(outcome.is_ok(), of(*oid).is_ok());
            outcome.is_err()
        });
        assert_eq!((refused, of(30_000)), (Some(21_000), Err(SqlState::PROGRAM_LIMIT_EXCEEDED)));
        assert!(of(20_000).is_ok());
    }

    #[test]
    fn a_type_of_a_field_that_has_changed_makes_another_definition() -> Result<()> {
        let inner = |fields: &[&str]| -> Result<Type> {
            let attribute = |(name, number): (&&str, i16)| Attribute {
                name: (*name).into(),
                ty: Type::Int4,
                modifier: -1,
                number,
                domain: 0,
            };
            let attributes = fields.iter().zip(1..).map(attribute).collect();
            let (name, display) = ("inner".to_owned(), "inner".to_owned());
            let definition =
                Definition { oid: 19_000, array_oid: 19_001, relation_oid: 19_002, name, display, attributes };
            Composite::of(definition).map(Type::Composite)
        };
        let (before, after) = (inner(&["a"])?, inner(&["a", "b"])?);
        assert_eq!(before, after);
        let (one, two) = (Composite::of_fields([(before, -1)])?, Composite::of_fields([(after, -1)])?);
        assert!(!std::ptr::eq(one.0, two.0));
        assert!(matches!(two.attributes()[0].ty, Type::Composite(found) if found.attributes().len() == 2));
        Ok(())
    }
}
