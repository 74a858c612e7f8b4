//! Relations that the engine does not have: views and sequences.

use lodestone_sql_types::Type;

use crate::parse::ast::Query;

/// A view.
#[derive(Clone, Debug)]
pub struct ViewDef {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    pub full: String,
    /// Names, types and modifiers.
    pub columns: Vec<(String, Type, i32)>,
    pub text: String,
    pub query: Query,
    /// The schemas in which the names of the query are looked up.
    pub path: Vec<String>,
    /// Options with their values, in the order in which they were written.
    pub options: Vec<(String, String)>,
}

/// The views whose conditions a new row must fulfil.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOption {
    /// The view itself.
    Local,
    /// The view, and all views below it.
    Cascaded,
}

impl ViewDef {
    /// WITH CHECK OPTION.
    pub fn check_option(&self) -> Option<CheckOption> {
        let (_, value) = self.options.iter().find(|(name, _)| name == "check_option")?;
        Some(if value == "local" { CheckOption::Local } else { CheckOption::Cascaded })
    }
}

/// A sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceDef {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    pub full: String,
    /// The number of its state. A restart takes another one, so it is part of its transaction.
    pub state: i64,
    pub ty: Type,
    pub start: i64,
    pub increment: i64,
    pub minimum: i64,
    pub maximum: i64,
    pub cache: i64,
    pub is_cycle: bool,
    /// Name in the engine of the table that owns it, and the column.
    pub owner: Option<(String, String)>,
    /// It belongs to an identity column.
    pub is_identity: bool,
}

/// Texts as one: each with its length before it.
pub fn join(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("{}:{part}", part.len())).collect()
}

/// The texts of [`join`]. `None`: it is no such text.
pub fn split(mut text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (length, rest) = text.split_once(':')?;
        let length: usize = length.parse().ok()?;
        parts.push(rest.get(..length)?.to_owned());
        text = rest.get(length..)?;
    }
    Some(parts)
}

impl SequenceDef {
    /// Its properties as a text of the catalog.
    pub fn note(&self) -> String {
        let (table, column) = self.owner.clone().unwrap_or_default();
        join(&[
            self.ty.info().name,
            &self.start.to_string(),
            &self.increment.to_string(),
            &self.minimum.to_string(),
            &self.maximum.to_string(),
            &self.cache.to_string(),
            if self.is_cycle { "cycle" } else { "" },
            &table,
            &column,
            if self.is_identity { "identity" } else { "" },
        ])
    }

    /// The sequence of a text of the catalog.
    pub fn of_note(full: &str, (schema, name): (&str, &str), (oid, state): (u32, i64), note: &str) -> Option<Self> {
        let parts = split(note)?;
        let [ty, start, increment, minimum, maximum, cache, cycle, table, column, identity] = &parts[..] else {
            return None;
        };
        Some(Self {
            oid,
            schema: schema.to_owned(),
            name: name.to_owned(),
            full: full.to_owned(),
            state,
            ty: Type::named(ty)?,
            start: start.parse().ok()?,
            increment: increment.parse().ok()?,
            minimum: minimum.parse().ok()?,
            maximum: maximum.parse().ok()?,
            cache: cache.parse().ok()?,
            is_cycle: cycle == "cycle",
            owner: (!table.is_empty()).then(|| (table.clone(), column.clone())),
            is_identity: identity == "identity",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{join, split};

    #[test]
    fn texts_come_back() {
        for parts in [&[][..], &[""], &["a", "", "b:c", "12:\n"]] {
            assert_eq!(split(&join(parts)).expect("its own text"), parts);
        }
        assert_eq!(split("3:ab"), None);
        assert_eq!(split("x"), None);
    }
}
