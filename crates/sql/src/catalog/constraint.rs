//! Constraints as the rows of the catalog have them: a number and a text.

use lodestone_sql_types::{Error, Result, SqlState};

use super::store::ConstraintBody;
use super::{Catalog, TableDef, full_name, object};
use crate::parse::ast::{KeyAction, ObjectName};

/// Bits of a condition.
const CHECK_NOT_LOCAL: i64 = 16;
const CHECK_NO_INHERIT: i64 = 32;
const CHECK_NOT_VALID: i64 = 64;

fn action_letter(action: KeyAction) -> &'static str {
    match action {
        KeyAction::NoAction => "n",
        KeyAction::Restrict => "r",
        KeyAction::Cascade => "c",
        KeyAction::SetNull => "s",
        KeyAction::SetDefault => "d",
    }
}

fn action_of(letter: &str) -> Option<KeyAction> {
    use KeyAction::{Cascade, NoAction, Restrict, SetDefault, SetNull};
    [NoAction, Restrict, Cascade, SetNull, SetDefault].into_iter().find(|action| action_letter(*action) == letter)
}

impl ConstraintBody {
    /// The number of its kind, and its text.
    pub(super) fn note(&self) -> (i64, String) {
        match self {
            Self::Check { text, is_local, no_inherit, is_valid } => {
                let local = if *is_local { 0 } else { CHECK_NOT_LOCAL };
                let local = local | if *is_valid { 0 } else { CHECK_NOT_VALID };
                (1 | local | if *no_inherit { CHECK_NO_INHERIT } else { 0 }, text.clone())
            }
            Self::Foreign {
                columns,
                parent,
                parent_columns,
                on_delete,
                on_update,
                is_full,
                is_deferrable,
                is_deferred,
                is_valid,
            } => {
                let flag = |is_set: bool, letter: &'static str| if is_set { letter } else { "" };
                let flags =
                    [flag(*is_full, "f"), flag(*is_deferrable, "e"), flag(*is_deferred, "d"), flag(!*is_valid, "v")];
                let flags = flags.concat();
                let (parent, count) = (parent.to_string(), columns.len().to_string());
                let head = [&parent, action_letter(*on_delete), action_letter(*on_update), &flags, &count];
                let names = columns.iter().chain(parent_columns).map(String::as_str);
                (2, object::join(&head.into_iter().chain(names).collect::<Vec<_>>()))
            }
        }
    }

    pub(super) fn of_note(kind: i64, text: &str) -> Option<Self> {
        if kind & 1 == 1 {
            let (is_local, no_inherit) = (kind & CHECK_NOT_LOCAL == 0, kind & CHECK_NO_INHERIT != 0);
            let is_valid = kind & CHECK_NOT_VALID == 0;
            return Some(Self::Check { text: text.to_owned(), is_local, no_inherit, is_valid });
        }
        let parts = object::split(text)?;
        let (head, names) = parts.split_at_checked(5)?;
        let count: usize = head[4].parse().ok()?;
        let (columns, parent_columns) = names.split_at_checked(count)?;
        Some(Self::Foreign {
            columns: columns.to_vec(),
            parent: head[0].parse().ok()?,
            parent_columns: parent_columns.to_vec(),
            on_delete: action_of(&head[1])?,
            on_update: action_of(&head[2])?,
            is_full: head[3].contains('f'),
            is_deferrable: head[3].contains('e'),
            is_deferred: head[3].contains('d'),
            is_valid: !head[3].contains('v'),
        })
    }
}

/// Name and number of a constraint, the number of the one of the partitioned table that it is a part of, and whether it
/// may be deferred.
type Timing<'t> = (&'t str, u32, Option<u32>, bool);

impl Catalog {
    /// The constraints of a table.
    fn timings<'t>(&'t self, table: &'t TableDef) -> impl Iterator<Item = Timing<'t>> {
        let key = (!table.key.is_empty()).then_some((table.key_name.as_str(), table.key_oid, None, false));
        let unique = table.indexes.iter().filter(|index| index.is_constraint);
        let unique = unique.map(|index| (index.name.as_str(), index.oid, index.parent, index.late.is_some()));
        let checks = table.checks.iter().map(|check| (check.name.as_str(), check.oid, None, false));
        let foreign = table.foreign_keys.iter().map(|key| {
            let above = crate::pgcatalog::foreign_parent(self, table, key);
            (key.name.as_str(), key.oid, above, key.is_deferrable)
        });
        key.into_iter().chain(unique).chain(checks).chain(foreign)
    }

    /// The numbers of the constraints of this name that may be deferred, and of their parts in partitions, for SET
    /// CONSTRAINTS. A name without a schema is looked up as that of a relation is; in one schema several tables may
    /// have it. `is_deferred`: one that cannot be deferred is refused.
    ///
    /// # Errors
    /// 42704; 42809; 3F000.
    pub fn deferrable_named(&self, name: &ObjectName, is_deferred: bool) -> Result<Vec<u32>> {
        if let Some(schema) = name.schema.as_deref().filter(|schema| !self.has_schema(self.own_schema(schema))) {
            let message = format!("schema \"{schema}\" does not exist");
            return Err(Error::new(SqlState::INVALID_SCHEMA_NAME, message).at(name.at));
        }
        let all = || self.tables.values().flat_map(|table| self.timings(table));
        let named = |full: String| -> Vec<(u32, bool)> {
            let is_it = |schema: &str, own: &str| own == name.name && full_name(schema, own) == full;
            let found = self.tables.values().flat_map(|table| {
                self.timings(table)
                    .filter(move |found| is_it(&table.schema, found.0))
                    .map(|(_, oid, _, can)| (oid, can))
            });
            found.collect()
        };
        let found = self.candidates(name.schema.as_deref(), &name.name).map(named).find(|found| !found.is_empty());
        let missing = || {
            let message = format!("constraint \"{}\" does not exist", name.name);
            Error::new(SqlState::UNDEFINED_OBJECT, message)
        };
        let found = found.ok_or_else(missing)?;
        if is_deferred && found.iter().any(|(_, can)| !can) {
            let message = format!("constraint \"{}\" is not deferrable", name.name);
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let mut numbers: Vec<u32> = found.into_iter().filter(|(_, can)| *can).map(|(oid, _)| oid).collect();
        loop {
            let is_part = |above: Option<u32>| above.is_some_and(|above| numbers.contains(&above));
            let parts = all().filter(|(_, oid, above, _)| is_part(*above) && !numbers.contains(oid));
            let parts: Vec<u32> = parts.map(|(_, oid, ..)| oid).collect();
            if parts.is_empty() {
                return Ok(numbers);
            }
            numbers.extend(parts);
        }
    }
}
