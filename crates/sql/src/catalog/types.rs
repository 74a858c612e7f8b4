//! Types of the database: enumerations, domains and types of rows.
//!
//! A type is rows of `lodestone_sql` under a name of its own (`store.rs`), read as a [`TypeNote`]. From all notes come
//! the types: a domain knows the one that it is of, and its conditions are bound when it is read. Expressions have the
//! type below a domain, as the wire of `PostgreSQL` shows it: the domain is asked where a value becomes one.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestone_engine::Row;
use lodestone_sql_types::composite::{self, Attribute, Composite};
use lodestone_sql_types::enumeration::{Definition, Enumeration, Label};
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::object;
use super::store::{TYPE, oid_at};
use super::{Default, PUBLIC};

/// A type as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeNote {
    pub oid: u32,
    pub array_oid: u32,
    pub schema: String,
    pub name: String,
    pub body: TypeBody,
}

impl TypeNote {
    /// Its attributes, if it is a type of rows.
    pub fn composite(&self) -> Option<&CompositeNote> {
        if let TypeBody::Composite(composite) = &self.body { Some(composite) } else { None }
    }
}

/// The kind of a stored type.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeBody {
    Enum(Vec<Label>),
    Domain(DomainNote),
    Composite(CompositeNote),
}

/// A type of rows as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct CompositeNote {
    /// Its number among the relations.
    pub relation_oid: u32,
    /// The number of the next attribute: that of a dropped one comes never again, because rows keep values by number.
    pub next: i16,
    pub attributes: Vec<AttributeNote>,
}

/// A field of a type of rows as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct AttributeNote {
    pub name: String,
    pub number: i16,
    /// The number of its type, or of its domain.
    pub ty: u32,
    pub modifier: i32,
}

/// A domain as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainNote {
    /// The number of the type that it is of.
    pub base: u32,
    pub modifier: i32,
    pub not_null: bool,
    pub default: Option<String>,
    pub checks: Vec<DomainCheckNote>,
}

/// A condition of a domain as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainCheckNote {
    pub oid: u32,
    pub name: String,
    pub text: String,
    /// Whether the values that are there are known to fulfil it.
    pub is_valid: bool,
}

/// A type of the database.
#[derive(Clone, Debug)]
pub struct TypeDef {
    pub note: TypeNote,
    /// Its name with the schema, as the names of relations in the engine.
    pub full: String,
    pub ty: UserType,
}

/// The meaning of a name of a type: the type of its values, their modifier, and the domain that they are of.
#[derive(Clone, Debug)]
pub struct UserType {
    pub ty: Type,
    pub modifier: i32,
    pub domain: Option<Arc<Domain>>,
}

/// A domain.
#[derive(Clone, Debug)]
pub struct Domain {
    pub oid: u32,
    pub name: String,
    /// How many domains it is of, and itself.
    pub depth: usize,
    /// The domain that it is of.
    pub parent: Option<Arc<Domain>>,
    /// Whether it, or one that it is of, takes no nulls.
    pub not_null: bool,
    /// The value of a column that has none of its own.
    pub default: Option<Default>,
    /// Its own conditions, in the order of their names. The value is the only column of their row.
    pub checks: Vec<DomainCheck>,
}

/// A condition of a domain.
#[derive(Clone, Debug)]
pub struct DomainCheck {
    pub name: String,
    pub expr: crate::plan::Expr,
}

impl Domain {
    /// Whether it is the type with this number, or of it.
    pub fn is_of(&self, oid: u32) -> bool {
        self.oid == oid || self.parent.as_ref().is_some_and(|parent| parent.is_of(oid))
    }

    /// Its conditions and those of the domains that it is of, which come first.
    pub fn all_checks(&self) -> Vec<&DomainCheck> {
        let mut found = self.parent.as_ref().map_or_else(Vec::new, |parent| parent.all_checks());
        found.extend(&self.checks);
        found
    }
}

/// The tests of the fields of a row that are of domains, and of the rows in it.
#[derive(Clone, Debug)]
pub struct RowChecks {
    /// By the places of the fields.
    fields: Vec<(usize, FieldCheck)>,
}

#[derive(Clone, Debug)]
enum FieldCheck {
    Domain(Arc<Domain>),
    Row(Arc<RowChecks>),
}

impl RowChecks {
    /// Those of a type, or of the elements of its arrays. `None`: there are none.
    pub fn of(types: &Types, ty: Type) -> Option<Arc<Self>> {
        Self::within(types, ty, &mut BTreeMap::new())
    }

    /// `seen`: those of types that were met before. A type may be in another one many times.
    fn within(types: &Types, ty: Type, seen: &mut BTreeMap<u32, Option<Arc<Self>>>) -> Option<Arc<Self>> {
        let ty = ty.element().unwrap_or(ty);
        let attributes = ty.attributes()?;
        if let Some(found) = seen.get(&ty.oid()).filter(|_| !ty.is_record()) {
            return found.clone();
        }
        let mut fields = Vec::new();
        for (place, attribute) in attributes.iter().enumerate() {
            let domain = (attribute.domain != 0).then(|| of_oid(types, attribute.domain)?.domain).flatten();
            let inner = Self::within(types, attribute.ty, seen);
            fields.extend(inner.map(|checks| (place, FieldCheck::Row(checks))));
            fields.extend(domain.map(|domain| (place, FieldCheck::Domain(domain))));
        }
        let found = (!fields.is_empty()).then(|| Arc::new(Self { fields }));
        seen.insert(ty.oid(), found.clone());
        found
    }

    /// Gives each value of a domain in a row, or in an array of rows, to `test`.
    ///
    /// # Errors
    /// Those of `test`.
    pub fn each<E>(
        &self,
        value: &Datum,
        test: &mut dyn FnMut(&Domain, &Datum) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Datum::Record(values) = value else {
            return match value {
                Datum::Array(_) | Datum::Shaped(_) => {
                    lodestone_sql_types::array::values(value).iter().try_for_each(|value| self.each(value, test))
                }
                _ => Ok(()),
            };
        };
        for (place, check) in &self.fields {
            let value = values.get(*place).unwrap_or(&Datum::Null);
            match check {
                FieldCheck::Domain(domain) => test(domain, value)?,
                FieldCheck::Row(checks) => checks.each(value, test)?,
            }
        }
        Ok(())
    }
}

/// Most domains that one is of, and itself.
const DEPTH_MAX: usize = 32;

/// All types of the database, by their names with schemas.
pub type Types = BTreeMap<String, Arc<TypeDef>>;

/// The name of a type in messages.
pub fn shown_name(schema: &str, name: &str) -> String {
    let quote = lodestone_sql_types::func::quote_ident;
    if schema == PUBLIC { quote(name) } else { format!("{}.{}", quote(schema), quote(name)) }
}

/// The type with this number: of the system, of the database, or of arrays of one of these.
pub fn of_oid(types: &Types, oid: u32) -> Option<UserType> {
    if let Some(ty) = Type::of_oid(oid) {
        return Some(UserType { ty, modifier: -1, domain: None });
    }
    types.values().find_map(|found| match found.ty.ty {
        _ if found.note.oid == oid => Some(found.ty.clone()),
        ty if found.note.array_oid == oid && found.ty.domain.is_none() => {
            ty.array().map(|ty| UserType { ty, modifier: -1, domain: None })
        }
        _ => None,
    })
}

/// The types of all notes, by their names with schemas.
///
/// # Errors
/// Those of a condition that can no longer be read; XX001 for a domain of a type that is not there, or of itself, or of
/// too many others.
pub fn read(notes: BTreeMap<String, TypeNote>) -> Result<Types> {
    let mut types = Types::new();
    let mut rest: Vec<(String, TypeNote)> = notes.into_iter().collect();
    // A domain comes after the type that it is of.
    loop {
        let (before, mut failed) = (rest.len(), None);
        let mut waiting = Vec::new();
        for (full, note) in rest {
            match user_type(&types, &note) {
                Ok(ty) => drop(types.insert(full.clone(), Arc::new(TypeDef { note, full, ty }))),
                // Perhaps a type that it names is read later.
                Err(error) => {
                    failed.get_or_insert(error);
                    waiting.push((full, note));
                }
            }
        }
        match failed {
            None => return Ok(types),
            Some(error) if waiting.len() == before => return Err(error),
            Some(_) => rest = waiting,
        }
    }
}

/// The type of rows of a note.
fn row_type(types: &Types, note: &TypeNote, composite: &CompositeNote, display: String) -> Result<Composite> {
    let attribute = |one: &AttributeNote| {
        let what = || format!("attribute \"{}\" of type \"{display}\"", one.name);
        let found = of_oid(types, one.ty).ok_or_else(|| super::store::no_type(&what(), one.ty))?;
        let domain = found.domain.as_ref().map_or(0, |domain| domain.oid);
        let modifier = if domain == 0 { one.modifier } else { found.modifier };
        Ok(Attribute { name: one.name.clone(), ty: found.ty, modifier, number: one.number, domain })
    };
    Composite::of(composite::Definition {
        oid: note.oid,
        array_oid: note.array_oid,
        relation_oid: composite.relation_oid,
        name: note.name.clone(),
        attributes: composite.attributes.iter().map(attribute).collect::<Result<_>>()?,
        display,
    })
}

/// The type of a note.
fn user_type(types: &Types, note: &TypeNote) -> Result<UserType> {
    let display = shown_name(&note.schema, &note.name);
    let domain = match &note.body {
        TypeBody::Enum(labels) => {
            let (oid, array_oid, name) = (note.oid, note.array_oid, note.name.clone());
            let definition = Definition { oid, array_oid, name, display, labels: labels.clone() };
            return Ok(UserType { ty: Type::Enum(Enumeration::of(definition)), modifier: -1, domain: None });
        }
        TypeBody::Composite(composite) => {
            let ty = row_type(types, note, composite, display)?;
            return Ok(UserType { ty: Type::Composite(ty), modifier: -1, domain: None });
        }
        TypeBody::Domain(domain) => domain,
    };
    let what = || format!("type \"{display}\"");
    let base = of_oid(types, domain.base).ok_or_else(|| super::store::no_type(&what(), domain.base))?;
    let depth = base.domain.as_ref().map_or(1, |parent| parent.depth + 1);
    check_depth(depth, &display)?;
    let modifier = if domain.modifier >= 0 { domain.modifier } else { base.modifier };
    let mut checks = Vec::new();
    for check in &domain.checks {
        let expr = crate::bind::domain_check(types, (base.ty, modifier), &crate::parse::parse_expr(&check.text)?)?;
        checks.push(DomainCheck { name: check.name.clone(), expr });
    }
    checks.sort_by(|one, two| one.name.cmp(&two.name));
    let default = domain.default.as_ref().and_then(|text| {
        let expr = crate::parse::parse_expr(text).ok()?;
        Some(Default { text: text.clone(), expr })
    });
    let made = Domain {
        oid: note.oid,
        name: display,
        depth,
        not_null: domain.not_null || base.domain.as_ref().is_some_and(|parent| parent.not_null),
        default,
        parent: base.domain,
        checks,
    };
    Ok(UserType { ty: base.ty, modifier, domain: Some(Arc::new(made)) })
}

/// Refuses a domain of a domain of a domain and so on: a value is tested by all of them.
///
/// # Errors
/// 54000.
pub fn check_depth(depth: usize, name: &str) -> Result<()> {
    if depth <= DEPTH_MAX {
        return Ok(());
    }
    let message = format!("the domain {name} is of more than {DEPTH_MAX} domains");
    Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
}

/// The type of its rows in the catalog. `None`: they cannot be read.
pub(super) fn note_of(rows: &[Row], (schema, name): (String, String)) -> Option<TypeNote> {
    let head = rows.iter().find(|row| row[1].as_u64() == Some(TYPE))?;
    let parts = object::split(head[5].as_text()?)?;
    let is_part = |row: &&Row| row[1].as_u64() != Some(TYPE);
    let body = match parts.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["enum"] => {
            let label = |row: &Row| {
                let (number, name) = (row[3].as_i64()?, row[2].as_text()?.to_owned());
                Some(Label { number, oid: oid_at(row, 4)?, name })
            };
            TypeBody::Enum(rows.iter().filter(is_part).map(label).collect::<Option<_>>()?)
        }
        ["composite", relation, next] => {
            let attribute = |row: &Row| {
                Some(AttributeNote {
                    name: row[2].as_text()?.to_owned(),
                    number: row[1].as_u64()?.try_into().ok()?,
                    ty: oid_at(row, 3)?,
                    modifier: row[4].as_i64()?.try_into().ok()?,
                })
            };
            TypeBody::Composite(CompositeNote {
                relation_oid: relation.parse().ok()?,
                next: next.parse().ok()?,
                attributes: rows.iter().filter(is_part).map(attribute).collect::<Option<_>>()?,
            })
        }
        ["domain", base, modifier, flag, ref default @ ..] => {
            let check = |row: &Row| {
                let (name, text) = (row[2].as_text()?.to_owned(), row[5].as_text()?.to_owned());
                Some(DomainCheckNote { oid: oid_at(row, 3)?, name, text, is_valid: row[4].as_i64()? == 1 })
            };
            TypeBody::Domain(DomainNote {
                base: base.parse().ok()?,
                modifier: modifier.parse().ok()?,
                not_null: flag == "n",
                default: default.first().map(|text| (*text).to_owned()),
                checks: rows.iter().filter(is_part).map(check).collect::<Option<_>>()?,
            })
        }
        _ => return None,
    };
    Some(TypeNote { oid: oid_at(head, 3)?, array_oid: oid_at(head, 4)?, schema, name, body })
}
