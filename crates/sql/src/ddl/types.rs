//! Types and domains: CREATE, ALTER, DROP, and the objects that need them.

use std::collections::BTreeSet;
use std::sync::Arc;

use lodestone_sql_types::enumeration::{Enumeration, Label, STEP};
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::table::unused;
use super::{Definition, notice};
use crate::bind;
use crate::catalog::store;
use crate::catalog::types::{
    AttributeNote, DomainCheckNote, DomainNote, TypeBody, TypeDef, TypeNote, check_depth, shown_name,
};
use crate::catalog::{Catalog, TableDef, full_name};
use crate::locks::Mode;
use crate::parse::ast::{AlterType, CheckDef, Default, DomainDef, LabelPlace, NOWHERE, Name, ObjectName};
use crate::run::{Env, Outcome};

/// Most labels of a new type: their numbers have the [`STEP`] between them.
const LABELS_MAX: usize = 50_000;
const _: () = assert!(STEP.checked_mul(50_001).is_some(), "the last label has a number");

/// Longest label in bytes.
const LABEL_BYTES_MAX: usize = 63;

fn exists(name: &str) -> Error {
    Error::new(SqlState::DUPLICATE_OBJECT, format!("type \"{name}\" already exists"))
}

fn no_constraint(name: &str, domain: &str) -> Error {
    let message = format!("constraint \"{name}\" of domain \"{domain}\" does not exist");
    Error::new(SqlState::UNDEFINED_OBJECT, message)
}

fn check_label(label: &str) -> Result<()> {
    if label.len() <= LABEL_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(SqlState::INVALID_NAME, format!("invalid enum label \"{label}\""))
        .detail("Labels must be 63 bytes or less."))
}

/// A type that is changed: its labels.
fn labels_of(note: &mut TypeNote) -> Result<&mut Vec<Label>> {
    match &mut note.body {
        TypeBody::Enum(labels) => Ok(labels),
        _ => Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("{} is not an enum", note.name))),
    }
}

/// A type that is changed: its domain.
fn domain_of(note: &mut TypeNote) -> Result<&mut DomainNote> {
    match &mut note.body {
        TypeBody::Domain(domain) => Ok(domain),
        _ => Err(Error::new(SqlState::WRONG_OBJECT_TYPE, format!("{} is not a domain", note.name))),
    }
}

/// An object that needs a type.
pub(super) enum Dependent {
    Column(Arc<TableDef>, usize),
    Check(Arc<TableDef>, String),
    DefaultOf(Arc<TableDef>, usize),
    Domain(Arc<TypeDef>),
    /// A field of a type of rows.
    Attribute(Arc<TypeDef>, String),
    /// A condition of a domain.
    DomainCheck(Arc<TypeDef>, String),
    View(String),
}

impl Definition<'_> {
    /// The name of a type that is made. `Err`: another one has it.
    pub(super) fn new_type_name(&mut self, name: &ObjectName) -> Outcome<(String, String)> {
        let schema = self.schema_of_new(name)?;
        let full = full_name(&schema, &name.name);
        self.lock_name(&store::type_key(&full))?;
        let is_system = schema == crate::catalog::PUBLIC && Type::named(&name.name).is_some();
        let has_relation = self.catalog.tables.contains_key(&full) || self.catalog.views.contains_key(&full);
        if is_system || has_relation || self.catalog.types.contains_key(&full) {
            return Err(exists(&name.name).at(name.at).into());
        }
        Ok((schema, full))
    }

    /// Reads all types again, and everything that may be of one.
    fn refresh_types(&mut self, full: &str) -> Result<()> {
        let names: Vec<String> = self.catalog.names_with_types().chain([store::type_key(full)]).collect();
        self.catalog = Arc::new(self.catalog.changed(self.engine(), self.tx, &names)?);
        self.session.catalog = self.catalog.clone();
        Ok(())
    }

    pub(super) fn write_type(&mut self, full: &str, note: &TypeNote) -> Outcome<()> {
        self.writer()?.write_type(full, note)?;
        self.refresh_types(full)?;
        Ok(())
    }

    pub(super) fn create_enum(&mut self, name: &ObjectName, labels: &[String]) -> Outcome<()> {
        let (schema, full) = self.new_type_name(name)?;
        if labels.len() > LABELS_MAX {
            let message = format!("an enum has at most {LABELS_MAX} labels when it is made");
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).at(name.at).into());
        }
        Enumeration::check_room(labels.len())?;
        let mut seen = BTreeSet::new();
        for label in labels {
            check_label(label)?;
            if !seen.insert(label) {
                let message = "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"";
                return Err(Error::new(SqlState::UNIQUE_VIOLATION, message).into());
            }
        }
        let oids = store::take_oids(self.engine(), labels.len() + 2)?;
        let made = labels.iter().zip(&oids[2..]).zip(1..);
        let labels = made.map(|((name, oid), place)| Label { number: place * STEP, oid: *oid, name: name.clone() });
        let body = TypeBody::Enum(labels.collect());
        let note = TypeNote { oid: oids[0], array_oid: oids[1], schema, name: name.name.clone(), body };
        self.write_type(&full, &note)
    }

    pub(super) fn create_domain(&mut self, name: &ObjectName, domain: &DomainDef) -> Outcome<()> {
        let (schema, full) = self.new_type_name(name)?;
        let base = bind::user_type(&self.catalog, &domain.ty)?;
        let is_pseudo = base.ty.is_record() || matches!(base.ty, Type::Void | Type::Unknown);
        if is_pseudo || crate::catalog::value::kind_of(base.ty, base.modifier).is_none() {
            let message = format!("\"{}\" is not a valid base type for a domain", domain.ty.name);
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).at(domain.ty.at).into());
        }
        check_depth(base.domain.as_ref().map_or(1, |parent| parent.depth + 1), &name.name)?;
        let oids = store::take_oids(self.engine(), 2)?;
        let inherited = base.domain.as_ref().and_then(|parent| parent.default.as_ref());
        let mut own = DomainNote {
            base: base.domain.as_ref().map_or_else(|| base.ty.oid(), |parent| parent.oid),
            modifier: if base.domain.is_some() { -1 } else { base.modifier },
            not_null: domain.not_null == Some(true),
            default: inherited.map(|default| default.text.clone()),
            checks: Vec::new(),
        };
        if let Some(default) = &domain.default {
            self.check_domain_default(default, (base.ty, base.modifier))?;
            own.default = Some(default.text.clone());
        }
        for check in &domain.checks {
            self.add_domain_check(&mut own, &name.name, check, true)?;
        }
        let (name, body) = (name.name.clone(), TypeBody::Domain(own));
        self.write_type(&full, &TypeNote { oid: oids[0], array_oid: oids[1], schema, name, body })
    }

    fn check_domain_default(&self, default: &Default, of: (Type, i32)) -> Result<()> {
        let column = crate::catalog::ColumnDef::of_value("value".into(), of);
        bind::default_expr(&self.catalog, &column, &default.expr).map(drop)
    }

    /// Adds a condition to a domain that is made or changed.
    fn add_domain_check(&self, domain: &mut DomainNote, name: &str, check: &CheckDef, is_valid: bool) -> Result<()> {
        let base = crate::catalog::types::of_oid(&self.catalog.types, domain.base);
        if let Some(base) = base {
            let modifier = if domain.modifier >= 0 { domain.modifier } else { base.modifier };
            bind::domain_check(&self.catalog.types, (base.ty, modifier), &check.check.expr)?;
        }
        let taken = |name: &str| domain.checks.iter().any(|other| other.name == name);
        let own = match &check.name {
            Some(own) if taken(own) => {
                let message = format!("constraint \"{own}\" for domain \"{name}\" already exists");
                return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
            }
            Some(own) => own.clone(),
            None => unused(format!("{name}_check"), taken),
        };
        let oid = store::take_oids(self.engine(), 1)?[0];
        domain.checks.push(DomainCheckNote { oid, name: own, text: check.check.text.clone(), is_valid });
        Ok(())
    }

    pub(super) fn alter_type(&mut self, name: &ObjectName, is_domain: bool, action: &AlterType) -> Outcome<()> {
        if let AlterType::Owner(owner) = action {
            // As in PostgreSQL, the role is looked for first.
            self.check_owner(owner.as_ref())?;
        }
        if let Some(found) = self.catalog.type_def(name) {
            let key = store::type_key(&found.full);
            self.lock_name(&key)?;
        }
        let Some(found) = self.catalog.type_def(name).cloned() else {
            if matches!(action, AlterType::Attributes(_) | AlterType::RenameAttribute { .. }) {
                let message = format!("relation \"{}\" does not exist", shown(name));
                return Err(Error::new(SqlState::UNDEFINED_TABLE, message).into());
            }
            let message = format!("type \"{}\" does not exist", shown(name));
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, message).at(name.at).into());
        };
        let mut note = found.note.clone();
        if is_domain {
            domain_of(&mut note)?;
        }
        match action {
            AlterType::Owner(_) => return Ok(()),
            AlterType::Rename(to) => return self.rename_type(&found, to),
            AlterType::AddValue { label, if_not_exists, place } => {
                if !self.add_label(&mut note, label, *if_not_exists, place)? {
                    return Ok(());
                }
            }
            AlterType::RenameValue { from, to } => rename_label(&mut note, from, to)?,
            AlterType::Attributes(changes) => return self.change_attributes(&found, note, changes),
            AlterType::RenameAttribute { from, to } => return self.rename_attribute(&found, note, from, to),
            other => self.alter_domain(&found, &mut note, other)?,
        }
        self.write_type(&found.full, &note)
    }

    /// Adds a label. `false`: it is there, and that is no error.
    fn add_label(
        &mut self,
        note: &mut TypeNote,
        label: &str,
        if_not_exists: bool,
        place: &LabelPlace,
    ) -> Outcome<bool> {
        check_label(label)?;
        let oid = store::take_oids(self.engine(), 1)?[0];
        let labels = labels_of(note)?;
        Enumeration::check_room(labels.len() + 1)?;
        if labels.iter().any(|other| other.name == label) {
            let text = format!("enum label \"{label}\" already exists");
            if if_not_exists {
                self.notices.push(notice(format!("{text}, skipping")));
                return Ok(false);
            }
            return Err(Error::new(SqlState::DUPLICATE_OBJECT, text).into());
        }
        let find = |name: &String| {
            let error = || {
                let message = format!("\"{name}\" is not an existing enum label");
                Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
            };
            labels.iter().position(|other| other.name == *name).ok_or_else(error)
        };
        let place = match place {
            LabelPlace::Last => labels.len(),
            LabelPlace::Before(other) => find(other)?,
            LabelPlace::After(other) => find(other)? + 1,
        };
        let before = place.checked_sub(1).and_then(|place| labels.get(place)).map(|label| label.number);
        let after = labels.get(place).map(|label| label.number);
        let number = match (before, after) {
            (None, None) => Some(STEP),
            (Some(before), None) => before.checked_add(STEP),
            (None, Some(after)) => after.checked_sub(STEP),
            (Some(before), Some(after)) => {
                Some(before.midpoint(after)).filter(|number| before < *number && *number < after)
            }
        };
        let number = number.ok_or_else(|| {
            let message = format!("there is no room for the enum label \"{label}\" between its neighbors");
            Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).hint("Create another type, and convert the columns.")
        })?;
        labels.insert(place, Label { number, oid, name: label.to_owned() });
        Ok(true)
    }

    fn rename_type(&mut self, found: &TypeDef, to: &Name) -> Outcome<()> {
        let schema = Some(found.note.schema.clone());
        let (schema, full) =
            self.new_type_name(&ObjectName { schema, name: to.value.clone(), at: to.at, is_only: false })?;
        self.refuse_texts_of(found)?;
        let note = TypeNote { schema, name: to.value.clone(), ..found.note.clone() };
        self.writer()?.remove(&store::type_key(&found.full))?;
        self.write_type(&full, &note)
    }

    /// Refuses a change of the name of a type that views and conditions name: they are kept as texts.
    fn refuse_texts_of(&self, found: &TypeDef) -> Result<()> {
        let is_text = |dependent: &Dependent| {
            !matches!(dependent, Dependent::Column(..) | Dependent::Domain(_) | Dependent::Attribute(..))
        };
        match self.dependents(found).iter().find(|dependent| is_text(dependent)) {
            Some(_) => Err(Error::unsupported("RENAME of a type that a view, a default or a condition names")),
            None => Ok(()),
        }
    }

    fn alter_domain(&mut self, found: &TypeDef, note: &mut TypeNote, action: &AlterType) -> Outcome<()> {
        let name = note.name.clone();
        let domain = domain_of(note)?;
        match action {
            AlterType::SetDefault(default) => {
                if let Some(default) = default {
                    self.check_domain_default(default, (found.ty.ty, found.ty.modifier))?;
                }
                domain.default = default.as_ref().map(|default| default.text.clone());
            }
            AlterType::SetNotNull(is_set) => {
                if *is_set && !domain.not_null {
                    self.test_values(found, "contains null values", SqlState::NOT_NULL_VIOLATION, None)?;
                }
                domain.not_null = *is_set;
            }
            AlterType::AddCheck { check, is_valid } => {
                self.add_domain_check(domain, &name, check, *is_valid)?;
                if *is_valid && let Some(added) = domain.checks.last() {
                    self.test_check(found, added)?;
                }
            }
            AlterType::Validate(constraint) => {
                let check = domain.checks.iter_mut().find(|check| check.name == *constraint);
                let check = check.ok_or_else(|| no_constraint(constraint, &name))?;
                self.test_check(found, check)?;
                check.is_valid = true;
            }
            AlterType::RenameConstraint { from, to } => {
                if domain.checks.iter().any(|check| check.name == *to) {
                    let message = format!("constraint \"{to}\" for domain \"{name}\" already exists");
                    return Err(Error::new(SqlState::DUPLICATE_OBJECT, message).into());
                }
                let check = domain.checks.iter_mut().find(|check| check.name == *from);
                check.ok_or_else(|| no_constraint(from, &name))?.name.clone_from(to);
            }
            AlterType::DropConstraint { name: constraint, if_exists } => {
                let count = domain.checks.len();
                domain.checks.retain(|check| check.name != *constraint);
                if domain.checks.len() == count {
                    if !if_exists {
                        return Err(no_constraint(constraint, &name).into());
                    }
                    let text = format!("constraint \"{constraint}\" of domain \"{name}\" does not exist, skipping");
                    self.notices.push(notice(text));
                }
            }
            _ => return Err(Error::unsupported("this form of ALTER TYPE").into()),
        }
        Ok(())
    }

    fn test_check(&mut self, found: &TypeDef, check: &DomainCheckNote) -> Outcome<()> {
        let expr = crate::parse::parse_expr(&check.text)?;
        let expr = bind::domain_check(&self.catalog.types, (found.ty.ty, found.ty.modifier), &expr)?;
        let what = "contains values that violate the new constraint";
        self.test_values(found, what, SqlState::CHECK_VIOLATION, Some(&expr))
    }

    /// Tests all values of a domain that are stored. No condition: that none is null.
    fn test_values(
        &mut self,
        found: &TypeDef,
        what: &str,
        state: SqlState,
        expr: Option<&crate::plan::Expr>,
    ) -> Outcome<()> {
        self.claim_type(found)?;
        let tables: Vec<Arc<TableDef>> = self.catalog.tables.values().cloned().collect();
        // Values inside of rows are not looked at.
        self.refuse_used(found)?;
        for table in tables {
            let of = |place: &usize| {
                table.columns[*place].domain.as_ref().is_some_and(|domain| domain.is_of(found.note.oid))
            };
            let columns: Vec<usize> = (0..table.columns.len()).filter(of).collect();
            if columns.is_empty() {
                continue;
            }
            // Changes that are being made are waited for, and others wait.
            self.lock_table(table.oid, Mode::Share)?;
            self.each_row(&table, |row| {
                for column in &columns {
                    let value = &row[*column];
                    let is_right = match expr {
                        None => !value.is_null(),
                        Some(expr) => {
                            let env = Env { row: std::slice::from_ref(value), outer: None };
                            self.with_run(|run| run.eval(expr, &env))? != Datum::Bool(false)
                        }
                    };
                    if !is_right {
                        let (name, table) = (&table.columns[*column].name, &table.name);
                        let message = format!("column \"{name}\" of table \"{table}\" {what}");
                        return Err(Error::new(state, message).table(table).column(name).into());
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The objects that need a type.
    pub(super) fn dependents(&self, found: &TypeDef) -> Vec<Dependent> {
        let oid = found.note.oid;
        let mut dependents = Vec::new();
        let mut without = (*self.catalog).clone();
        without.types.retain(|_, other| other.note.oid != oid);
        for other in self.catalog.types.values().filter(|other| other.note.oid != oid) {
            if let TypeBody::Composite(composite) = &other.note.body {
                let is_own = |one: &&AttributeNote| one.ty == oid || one.ty == found.note.array_oid;
                let own = composite.attributes.iter().filter(is_own);
                dependents.extend(own.map(|one| Dependent::Attribute(other.clone(), one.name.clone())));
            }
            let TypeBody::Domain(domain) = &other.note.body else { continue };
            if domain.base == oid || domain.base == found.note.array_oid {
                dependents.push(Dependent::Domain(other.clone()));
                continue;
            }
            let needs = |check: &&DomainCheckNote| {
                let value = (other.ty.ty, other.ty.modifier);
                let expr = crate::parse::parse_expr(&check.text);
                expr.and_then(|expr| bind::domain_check(&without.types, value, &expr)).is_err()
            };
            let checks = domain.checks.iter().filter(needs);
            dependents.extend(checks.map(|check| Dependent::DomainCheck(other.clone(), check.name.clone())));
        }
        for table in self.catalog.tables.values() {
            dependents.extend(dependents_in(table, found, &without));
        }
        for view in self.catalog.views.values() {
            let has_column = view.columns.iter().any(|(_, ty, _)| is_of(*ty, found));
            let statement = crate::parse::ast::Statement::Query(view.query.clone());
            let without = without.with_path(view.path.clone());
            let within = self.catalog.with_path(view.path.clone());
            let needs =
                || bind::bind(&without, statement.clone(), &[]).is_err() && bind::bind(&within, statement, &[]).is_ok();
            if has_column || needs() {
                dependents.push(Dependent::View(view.full.clone()));
            }
        }
        dependents
    }

    fn shown_dependent(&self, dependent: &Dependent) -> String {
        match dependent {
            Dependent::Column(table, place) => format!("column {} of table {}", table.columns[*place].name, table.name),
            Dependent::DefaultOf(table, place) => {
                format!("default value for column {} of table {}", table.columns[*place].name, table.name)
            }
            Dependent::Check(table, name) => format!("constraint {name} on table {}", table.name),
            Dependent::Domain(domain) => format!("type {}", domain.note.name),
            Dependent::Attribute(of, name) => format!("column {name} of composite type {}", of.note.name),
            Dependent::DomainCheck(_, name) => format!("constraint {name}"),
            Dependent::View(full) => {
                format!("view {}", self.catalog.views.get(full).map_or(full.as_str(), |view| &view.name))
            }
        }
    }

    /// Reads everything again for a definition after which values of the type, or some of them, are not allowed. So
    /// it sees all users of the type, and one that is made at the same time and this definition cannot both commit.
    fn claim_type(&mut self, found: &TypeDef) -> Result<()> {
        self.writer()?.note_gone_type(found.note.oid)?;
        self.catalog = Arc::new(self.catalog.claimed(self.engine(), self.tx)?);
        self.session.catalog = self.catalog.clone();
        Ok(())
    }

    /// Drops a type, and with CASCADE what needs it.
    pub(super) fn drop_type(&mut self, full: &str, is_cascade: bool) -> Outcome<()> {
        let Some(found) = self.catalog.types.get(full).cloned() else { return Ok(()) };
        self.claim_type(&found)?;
        let name = shown_name(&found.note.schema, &found.note.name);
        let dependents = self.dependents(&found);
        let texts: Vec<String> = dependents.iter().map(|dependent| self.shown_dependent(dependent)).collect();
        if !is_cascade && !texts.is_empty() {
            let details: Vec<String> = texts.iter().map(|text| format!("{text} depends on type {name}")).collect();
            let message = format!("cannot drop type {name} because other objects depend on it");
            return Err(Error::new(SqlState::DEPENDENT_OBJECTS, message)
                .detail(details.join("\n"))
                .hint("Use DROP ... CASCADE to drop the dependent objects too.")
                .into());
        }
        for (dependent, text) in dependents.iter().zip(texts) {
            self.notices.push(notice(format!("drop cascades to {text}")));
            self.drop_dependent(dependent)?;
        }
        self.writer()?.remove(&store::type_key(full))?;
        self.refresh_types(full)?;
        Ok(())
    }

    fn drop_dependent(&mut self, dependent: &Dependent) -> Outcome<()> {
        match dependent {
            Dependent::Column(table, place) => {
                let name = Name { value: table.columns[*place].name.clone(), at: NOWHERE };
                // It went with a column that it was computed from.
                if !self.table_now(&table.full)?.columns.iter().any(|column| column.name == name.value) {
                    return Ok(());
                }
                self.drop_column(&table.full, &name, (true, true))
            }
            Dependent::DefaultOf(table, place) => {
                let name = Name { value: table.columns[*place].name.clone(), at: NOWHERE };
                self.set_default(&table.full, &name, None)
            }
            Dependent::Check(table, name) => {
                let name = Name { value: name.clone(), at: NOWHERE };
                self.drop_constraint(&table.full, &name, (true, true))
            }
            Dependent::Domain(domain) => self.drop_type(&domain.full, true),
            Dependent::Attribute(of, name) => {
                let Some(of) = self.catalog.types.get(&of.full).cloned() else { return Ok(()) };
                let mut note = of.note.clone();
                if let TypeBody::Composite(composite) = &mut note.body {
                    composite.attributes.retain(|one| one.name != *name);
                }
                self.write_type(&of.full, &note)
            }
            Dependent::DomainCheck(domain, name) => {
                // Another condition of it may have gone before.
                let Some(domain) = self.catalog.types.get(&domain.full).cloned() else { return Ok(()) };
                let mut note = domain.note.clone();
                domain_of(&mut note)?.checks.retain(|check| check.name != *name);
                self.write_type(&domain.full, &note)
            }
            Dependent::View(full) => {
                self.lock_name(full)?;
                if self.catalog.views.contains_key(full) { self.drop_view(full) } else { Ok(()) }
            }
        }
    }
}

/// The parts of a table that need a type. `without`: the catalog that does not have it.
fn dependents_in(table: &Arc<TableDef>, found: &TypeDef, without: &Catalog) -> Vec<Dependent> {
    let mut dependents = Vec::new();
    for (place, column) in table.columns.iter().enumerate() {
        let is_own = column
            .domain
            .as_ref()
            .map_or_else(|| of_users(column.ty) && is_of(column.ty, found), |domain| domain.oid == found.note.oid);
        let default = column.default.as_ref();
        if is_own {
            dependents.push(Dependent::Column(table.clone(), place));
        } else if column.is_generated {
            let columns = (&table.columns[..], place);
            let is_free = default
                .is_none_or(|default| bind::generation(&without.types, &table.name, columns, &default.expr).is_ok());
            dependents.extend((!is_free).then(|| Dependent::Column(table.clone(), place)));
        } else if default.is_some_and(|default| bind::default_expr(without, column, &default.expr).is_err()) {
            dependents.push(Dependent::DefaultOf(table.clone(), place));
        }
    }
    for check in &table.checks {
        let needs = crate::parse::parse_expr(&check.text)
            .and_then(|expr| bind::check_in(&without.types, &table.name, &table.columns, &expr));
        if needs.is_err() {
            dependents.push(Dependent::Check(table.clone(), check.name.clone()));
        }
    }
    dependents
}

fn rename_label(note: &mut TypeNote, from: &str, to: &str) -> Result<()> {
    check_label(to)?;
    let labels = labels_of(note)?;
    Enumeration::check_room(labels.len())?;
    let Some(place) = labels.iter().position(|label| label.name == from) else {
        let message = format!("\"{from}\" is not an existing enum label");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    };
    if labels.iter().any(|label| label.name == to) {
        return Err(Error::new(SqlState::DUPLICATE_OBJECT, format!("enum label \"{to}\" already exists")));
    }
    to.clone_into(&mut labels[place].name);
    Ok(())
}

/// Whether it is a type of the database.
fn of_users(ty: Type) -> bool {
    matches!(ty, Type::Enum(_) | Type::EnumArray(_) | Type::Composite(_) | Type::CompositeArray(_))
}

/// Whether a type of values is the one that was found, or of its arrays.
fn is_of(ty: Type, found: &TypeDef) -> bool {
    found.ty.domain.is_none() && [found.note.oid, found.note.array_oid].contains(&ty.oid())
}

fn shown(name: &ObjectName) -> String {
    name.schema.as_ref().map_or_else(|| name.name.clone(), |schema| format!("{schema}.{}", name.name))
}
