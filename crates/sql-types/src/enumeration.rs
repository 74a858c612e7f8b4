//! Types of the database whose values are a list of labels.
//!
//! A value is the number of its label. The numbers are in the order of the labels, with room between them, and never
//! change: rows keep them. A definition is interned: it lives as long as the process, so a [`Type`] stays a plain
//! value. So a client that makes and drops types for ever would take all memory: the statements that make definitions
//! ask [`Enumeration::check_room`] first.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result, SqlState};
use crate::types::{Type, TypeInfo};

/// The distance of the numbers of labels that were made together.
pub const STEP: i64 = 1 << 47;

/// A label of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The number that values have.
    pub number: i64,
    /// Its number in the catalog.
    pub oid: u32,
    /// Its text.
    pub name: String,
}

/// The definition of an enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its number.
    pub oid: u32,
    /// That of its arrays.
    pub array_oid: u32,
    /// Its name in the catalog.
    pub name: String,
    /// Its name in messages.
    pub display: String,
    /// In their order.
    pub labels: Vec<Label>,
}

#[derive(Debug)]
struct Interned {
    definition: Definition,
    info: TypeInfo,
    array_info: TypeInfo,
}

/// An enumeration. Two are equal if they have the same number, also if a label was added between.
#[derive(Clone, Copy)]
pub struct Enumeration(&'static Interned);

impl PartialEq for Enumeration {
    fn eq(&self, other: &Self) -> bool {
        self.0.definition.oid == other.0.definition.oid
    }
}

impl Eq for Enumeration {}

impl Hash for Enumeration {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.definition.oid.hash(state);
    }
}

impl fmt::Debug for Enumeration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Enumeration").field(&self.0.definition.name).finish()
    }
}

/// The definitions that a process has seen.
struct Seen {
    /// By their numbers.
    by_oid: BTreeMap<u32, Vec<&'static Interned>>,
    /// How many labels they have together, with one for each definition itself.
    labels: usize,
}

/// Most labels of all definitions that a process has seen, before it makes no more: about 200 MiB.
const LABELS_MAX: usize = if cfg!(test) { 1_000 } else { 2_000_000 };

static SEEN: Mutex<Seen> = Mutex::new(Seen { by_oid: BTreeMap::new(), labels: 0 });

fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

impl Enumeration {
    /// The enumeration of a definition.
    ///
    /// ```
    /// use lodestone_sql_types::enumeration::{Definition, Enumeration, Label, STEP};
    /// use lodestone_sql_types::{Datum, Type, text};
    ///
    /// let label = |number: i64, name: &str| Label { number: number * STEP, oid: 20_000, name: name.into() };
    /// let labels = vec![label(1, "sad"), label(2, "ok")];
    /// let definition = Definition { oid: 16_400, array_oid: 16_401, name: "mood".into(), display: "mood".into(), labels };
    /// let mood = Type::Enum(Enumeration::of(definition));
    /// assert_eq!(text::decode(mood, "ok")?, Datum::Int(2 * STEP));
    /// assert_eq!(text::encode(mood, &Datum::Int(STEP)), "sad");
    /// # Ok::<(), lodestone_sql_types::Error>(())
    /// ```
    #[must_use]
    pub fn of(definition: Definition) -> Self {
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let count = definition.labels.len() + 1;
        let same_oid = seen.by_oid.entry(definition.oid).or_default();
        if let Some(found) = same_oid.iter().find(|found| found.definition == definition) {
            return Self(found);
        }
        let info = |oid: u32, name: &str, display: &str, len, category| TypeInfo {
            ty: Type::Unknown,
            oid,
            name: leaked(name.to_owned()),
            display: leaked(display.to_owned()),
            len,
            category,
            element: None,
            array: None,
        };
        let (name, display) = (definition.name.clone(), definition.display.clone());
        let made: &'static Interned = Box::leak(Box::new(Interned {
            info: info(definition.oid, &name, &display, 4, 'E'),
            array_info: info(definition.array_oid, &format!("_{name}"), &format!("{display}[]"), -1, 'A'),
            definition,
        }));
        same_oid.push(made);
        seen.labels += count;
        Self(made)
    }

    /// Refuses a new definition with so many labels, if those that the process has seen take too much memory.
    ///
    /// ```
    /// use lodestone_sql_types::enumeration::Enumeration;
    ///
    /// assert!(Enumeration::check_room(3).is_ok());
    /// assert!(Enumeration::check_room(1 << 40).is_err());
    /// ```
    ///
    /// # Errors
    /// 54000.
    pub fn check_room(labels: usize) -> Result<()> {
        let seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner).labels;
        if seen.saturating_add(labels) <= LABELS_MAX {
            return Ok(());
        }
        let message = "the definitions of enums that this process has seen take too much memory";
        Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).hint("Restart the server: it forgets the old ones."))
    }

    /// Its definition.
    #[must_use]
    pub fn definition(&self) -> &'static Definition {
        &self.0.definition
    }

    pub(crate) fn info(self) -> &'static TypeInfo {
        &self.0.info
    }

    pub(crate) fn array_info(self) -> &'static TypeInfo {
        &self.0.array_info
    }

    /// The text of a value; empty for a number that no label has.
    #[must_use]
    pub fn label(self, number: i64) -> &'static str {
        let found = self.0.definition.labels.iter().find(|label| label.number == number);
        found.map_or("", |label| &label.name)
    }

    /// The number of a label.
    ///
    /// # Errors
    /// 22P02 for another text.
    pub fn number(self, text: &str) -> Result<i64> {
        let found = self.0.definition.labels.iter().find(|label| label.name == text);
        found.map(|label| label.number).ok_or_else(|| {
            let message = format!("invalid input value for enum {}: \"{text}\"", self.0.definition.display);
            Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_that_come_for_ever_are_refused() {
        let label = |number: i64| Label { number, oid: 1, name: format!("{number}") };
        let definition = |oid: u32| Definition {
            oid,
            array_oid: oid + 1,
            name: "endless".into(),
            display: "endless".into(),
            labels: vec![label(1), label(2)],
        };
        let refused = (20_000..30_000).step_by(2).find(|oid| {
            let is_full = Enumeration::check_room(2).is_err();
            // The same one again takes nothing.
            (0..2).for_each(|_| _ = Enumeration::of(definition(*oid)));
            is_full
        });
        assert!(refused.is_some_and(|oid| (20_600..=20_668).contains(&oid)), "{refused:?}");
        assert_eq!(Enumeration::check_room(2).map_err(|error| error.state()), Err(SqlState::PROGRAM_LIMIT_EXCEEDED));
    }
}
