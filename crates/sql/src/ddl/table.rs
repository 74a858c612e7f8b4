//! CREATE TABLE and CREATE INDEX.

use lodestone_engine::{Error as EngineError, Index, Reader, Schema, Table, TableIndex, Type as Kind, Value};
use lodestone_sql_types::{Error, Result, SqlState, Type, text};

use super::family::Descent;
use super::{Built, Definition, definition_error, exists, note_of, notice};
use crate::bind;
use crate::catalog::store::{self, ColumnNote, ConstraintBody, ConstraintNote, IndexNote, Note};
use crate::catalog::value::{is_ordered, kind_of};
use crate::catalog::{IdentityKind, LateKey, ROW_NUMBER, TableDef, building, full_name};
use crate::errors::from_engine;
use crate::locks::Mode;
use crate::parse::ast::{
    CheckDef, ColumnDef, ConstraintDef, Default, Expr, KeyDef, Literal, Name, ObjectName, Placing, SequenceOptions,
    TypeName,
};
use crate::run::{Outcome, stored_at, to_row};

/// The place of a column, for messages.
pub(super) const IN_KEY: &str = " named in key";

/// The columns of a table that is made, and its constraints.
type Parts<'d> = (&'d [ColumnDef], &'d [ConstraintDef]);

/// The integer type that a `serial` is.
fn serial_of(ty: &TypeName) -> Option<&'static str> {
    match ty.name.as_str() {
        "serial" | "serial4" => Some("int4"),
        "bigserial" | "serial8" => Some("int8"),
        "smallserial" | "serial2" => Some("int2"),
        _ => None,
    }
}

/// The text of a default as it is shown: a literal has its type.
pub(super) fn default_text(default: &Default, ty: Type) -> String {
    match &default.expr {
        // `character` without a length is that of one letter.
        Expr::Literal(Literal::Text(_), _) if ty == Type::Bpchar => format!("{}::bpchar", default.text),
        Expr::Literal(Literal::Text(_), _) => format!("{}::{ty}", default.text),
        _ => default.text.clone(),
    }
}

impl Definition<'_> {
    pub(super) fn create_table(
        &mut self,
        name: &ObjectName,
        if_not_exists: bool,
        parts: Parts<'_>,
        (descent, placing): (&Descent, &Placing),
    ) -> Outcome<()> {
        let (columns, constraints) = parts;
        let schema = self.schema_of_new(name)?;
        let full = full_name(&schema, &name.name);
        if schema == crate::catalog::PUBLIC && name.name.contains('.') {
            return Err(Error::unsupported("a point in the name of a table").at(name.at).into());
        }
        self.lock_name(&full)?;
        if self.catalog.oid_of(&full).is_some() || store::is_own(&full) {
            if if_not_exists {
                self.notices.push(notice(format!("relation \"{}\" already exists, skipping", name.name)));
                return Ok(());
            }
            return Err(exists(&name.name).into());
        }
        let mut keys = constraints.iter().filter_map(|constraint| match constraint {
            ConstraintDef::Primary(key) => Some(key),
            _ => None,
        });
        let primary = keys.next();
        // One that is tested late is no key for the engine, but an index.
        let key = primary.filter(|key| key.deferrable.is_none());
        if keys.next().is_some() {
            let message = format!("multiple primary keys for table \"{}\" are not allowed", name.name);
            return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message).at(name.at).into());
        }
        let mut notes: Vec<ColumnNote> = Vec::new();
        for column in columns {
            if notes.iter().any(|other| other.name == column.name.value) {
                let message = format!("column \"{}\" specified more than once", column.name.value);
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).at(column.name.at).into());
            }
            let is_key = primary.is_some_and(|key| key.columns.iter().any(|other| other.value == column.name.value));
            let mut note = self.column_note((&schema, &name.name), column)?;
            note.not_null |= is_key;
            notes.push(note);
        }
        for (column, parsed) in columns.iter().enumerate() {
            if let Some(generated) = &parsed.generated {
                self.check_generated(&name.name, &notes, column, &generated.expr)?;
            }
        }
        let oids = store::take_oids(self.engine(), 2)?;
        let not_null: Vec<bool> = notes.iter().map(|note| note.not_null).collect();
        let mut engine = schema_of(&full, &notes, &not_null, key.map(|key| &key.columns[..]))?;
        self.lock_tablespace(placing)?;
        let is_temporary = schema.starts_with(crate::connection::TEMPORARY_PREFIX);
        let wanted = self.place_of_new(placing, (descent.partition_by.is_some(), is_temporary))?;
        engine = wanted.apply(engine);
        self.verify_place(&wanted, &engine)?;
        let key_name = self.name_of_key((&schema, &name.name), key)?;
        let key_included = key.map(|key| included_names(&key.included, &notes, IN_KEY)).transpose()?;
        let mut note = Note {
            oid: oids[0],
            key_oid: oids[1],
            key_name,
            key_included: key_included.unwrap_or_default(),
            columns: notes,
            indexes: Vec::new(),
            constraints: Vec::new(),
            partition_by: None,
            parents: Vec::new(),
            tablespace: wanted.tablespace,
        };
        engine = self.note_key_indexes((&schema, &name.name), engine, &mut note, constraints)?;
        for constraint in constraints {
            if let ConstraintDef::Check(check) = constraint {
                self.check_note(&name.name, &mut note, check)?;
            }
        }
        self.note_descent(&name.name, &mut note, descent)?;
        self.refuse_short_keys(&name.name, &note, constraints)?;
        // Foreign keys may name the table itself, so they come when it is there.
        self.engine().create_table_in(self.tx, &engine).map_err(definition_error)?;
        self.writer()?.write(&full, &engine, &note)?;
        self.refresh(&[&full])?;
        // Only this transaction sees the table, so no index of it is built beside it.
        self.is_alone = false;
        self.finish_table(&full, constraints, descent)
    }

    /// The indexes of the keys of a new table, in its properties and for the engine.
    fn note_key_indexes(
        &self,
        (schema, table): (&str, &str),
        mut engine: Schema,
        note: &mut Note,
        constraints: &[ConstraintDef],
    ) -> Result<Schema> {
        for constraint in constraints {
            let is_primary = matches!(constraint, ConstraintDef::Primary(_));
            if let ConstraintDef::Unique(key) | ConstraintDef::Primary(key @ KeyDef { deferrable: Some(_), .. }) =
                constraint
            {
                let late = key.deferrable.map(|is_deferred| LateKey { is_deferred, is_primary });
                let names = column_names(&key.columns, &note.columns, IN_KEY)?;
                if note.indexes.iter().any(|index| key.name.as_ref() == Some(&index.name)) {
                    return Err(exists(key.name.as_deref().unwrap_or_default()));
                }
                let included = included_names(&key.included, &note.columns, IN_KEY)?;
                let index = match &key.name {
                    Some(index) => index.clone(),
                    None => {
                        let first = match is_primary {
                            true => format!("{}_pkey", table),
                            false => name_of_index((table, "key"), &names, &included),
                        };
                        let is_taken = |index: &str| {
                            let is_own = note.indexes.iter().any(|own| own.name == index);
                            is_own || self.catalog.oid_of(&full_name(schema, index)).is_some()
                        };
                        unused(first, is_taken)
                    }
                };
                engine = engine.with_index(match late {
                    None => Index::unique(&index, names),
                    Some(_) => Index::new(&index, names),
                });
                let oid = store::take_oids(self.engine(), 1)?[0];
                note.indexes.push(IndexNote { oid, name: index, is_constraint: true, late, parent: None, included });
            }
        }
        Ok(engine)
    }

    /// The name of the primary key of a new table.
    fn name_of_key(&self, (schema, table): (&str, &str), key: Option<&KeyDef>) -> Result<String> {
        match key.and_then(|key| key.name.clone()) {
            Some(name) if self.catalog.oid_of(&full_name(schema, &name)).is_some() => Err(exists(&name)),
            Some(name) => Ok(name),
            None => Ok(self.free_name(schema, format!("{table}_pkey"))),
        }
    }

    fn refuse_short_keys(&self, table: &str, note: &Note, constraints: &[ConstraintDef]) -> Result<()> {
        for constraint in constraints {
            let (key, what) = match constraint {
                ConstraintDef::Primary(key) => (key, "PRIMARY KEY"),
                ConstraintDef::Unique(key) => (key, "UNIQUE"),
                _ => continue,
            };
            let names: Vec<String> = key.columns.iter().map(|column| column.value.clone()).collect();
            self.refuse_short_key(table, (note, &names), what)?;
        }
        Ok(())
    }

    /// Foreign keys, and what a partition has from its table.
    fn finish_table(&mut self, full: &str, constraints: &[ConstraintDef], descent: &Descent) -> Outcome<()> {
        for constraint in constraints {
            if let ConstraintDef::Foreign(foreign) = constraint {
                self.add_foreign(full, foreign, true)?;
            }
        }
        match &descent.partitioned {
            Some(above) => self.complete_partition(full, above),
            None => Ok(()),
        }
    }

    /// The properties of a column of the table, whose sequence is made.
    pub(super) fn column_note(&mut self, table: (&str, &str), column: &ColumnDef) -> Outcome<ColumnNote> {
        let (schema, name) = table;
        let serial = serial_of(&column.ty).filter(|_| column.ty.schema.is_none() && !column.ty.is_array);
        let ty = match serial {
            Some(name) => TypeName { name: name.into(), ..column.ty.clone() },
            None => column.ty.clone(),
        };
        let bind::UserType { ty, modifier, domain } = bind::user_type(&self.catalog, &ty)?;
        if kind_of(ty, modifier).is_none() {
            return Err(no_kind(&column.name.value, ty).at(column.name.at).into());
        }
        let mut note = ColumnNote {
            name: column.name.value.clone(),
            ty,
            modifier,
            default: None,
            not_null: column.not_null,
            identity: None,
            domain,
            is_generated: column.generated.is_some(),
            is_local: true,
        };
        if let Some(generated) = &column.generated {
            refuse_beside_generated(column, serial.is_some(), name)?;
            // The other columns are known later.
            note.default = Some(generated.text.clone());
            return Ok(note);
        }
        let sequence = match (&column.identity, serial) {
            (Some(identity), None) => {
                if column.default.is_some() {
                    let message = format!(
                        "both default and identity specified for column \"{}\" of table \"{name}\"",
                        column.name.value
                    );
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(column.name.at).into());
                }
                note.identity = Some(if identity.is_always { IdentityKind::Always } else { IdentityKind::ByDefault });
                Some(identity.options.clone())
            }
            (None, Some(_)) => {
                if column.default.is_some() {
                    let message = format!(
                        "multiple default values specified for column \"{}\" of table \"{name}\"",
                        column.name.value
                    );
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(column.name.at).into());
                }
                Some(SequenceOptions::default())
            }
            (Some(_), Some(_)) => {
                let message = "both default and identity specified for a column";
                return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(column.name.at).into());
            }
            (None, None) => None,
        };
        if let Some(options) = sequence {
            note.not_null = true;
            note.default = Some(self.make_owned_sequence((schema, name), &note, &options)?);
        } else if let Some(default) = &column.default {
            self.check_default(default, &note)?;
            note.default = Some(self.catalog.qualified(&default_text(default, ty)));
        }
        Ok(note)
    }

    /// A column that is computed is an expression of the other ones.
    pub(super) fn check_generated(
        &self,
        table: &str,
        notes: &[ColumnNote],
        column: usize,
        expr: &Expr,
    ) -> Result<crate::plan::Expr> {
        let columns: Vec<_> = notes.iter().map(column_of).collect();
        bind::generation(&self.catalog.types, table, (&columns, column), expr)
    }

    /// A default is an expression without columns and parameters.
    pub(super) fn check_default(&self, default: &Default, note: &ColumnNote) -> Result<()> {
        crate::bind::default_expr(&self.catalog, &column_of(note), &default.expr).map(drop)
    }

    /// Adds a CHECK to the properties of a table.
    pub(super) fn check_note(&self, table: &str, note: &mut Note, check: &CheckDef) -> Result<()> {
        let columns: Vec<_> = note.columns.iter().map(column_of).collect();
        let expr = crate::bind::check_in(&self.catalog.types, table, &columns, &check.check.expr)?;
        let mut used: Vec<usize> = Vec::new();
        expr.walk(&mut |part| {
            if let crate::plan::Expr::Column { depth: 0, index } = part
                && !used.contains(index)
            {
                used.push(*index);
            }
        });
        let taken = |name: &str| {
            note.constraints.iter().any(|other| other.name == name)
                || note.indexes.iter().any(|other| other.name == name)
        };
        let name = match &check.name {
            Some(name) if taken(name) => {
                let message = format!("constraint \"{name}\" for relation \"{table}\" already exists");
                return Err(Error::new(SqlState::DUPLICATE_OBJECT, message));
            }
            Some(name) => name.clone(),
            None => {
                let first = match used[..] {
                    [one] => format!("{table}_{}_check", note.columns[one].name),
                    _ => format!("{table}_check"),
                };
                unused(first, taken)
            }
        };
        let oid = store::take_oids(self.engine(), 1)?[0];
        let body = ConstraintBody::Check {
            text: check.check.text.clone(),
            is_local: true,
            no_inherit: check.no_inherit,
            is_valid: true,
        };
        note.constraints.push(ConstraintNote { oid, name, body });
        Ok(())
    }

    pub(super) fn create_index(
        &mut self,
        name: Option<&Name>,
        table: &ObjectName,
        (columns, included): (&[Name], &[Name]),
        (is_unique, if_not_exists): (bool, bool),
    ) -> Outcome<()> {
        // Others go on to change rows while it is built.
        let found = self.find(table, Mode::ShareUpdateExclusive)?;
        let names = column_names(columns, &note_of(&found).columns, "")?;
        let included = included_names(included, &note_of(&found).columns, "")?;
        let name = match name {
            Some(name) => name.value.clone(),
            None => self.free_name(&found.schema, name_of_index((&found.name, "idx"), &names, &included)),
        };
        if self.catalog.oid_of(&full_name(&found.schema, &name)).is_some() {
            if if_not_exists {
                self.notices.push(notice(format!("relation \"{name}\" already exists, skipping")));
                return Ok(());
            }
            return Err(exists(&name).into());
        }
        if is_unique {
            self.refuse_short_key(&found.name, (&note_of(&found), &names), "UNIQUE")?;
        }
        let is_constraint = false;
        let index = NewIndex { name: name.clone(), columns: names, included, is_unique, is_constraint, late: None };
        self.add_index(&found, index)?;
        if table.is_only { Ok(()) } else { self.named_index_below(&found.full, &name) }
    }

    /// The parts of an index in the partitions of its table.
    fn named_index_below(&mut self, full: &str, name: &str) -> Outcome<()> {
        let index = self.table_now(full)?.indexes.iter().find(|index| index.name == name).map(|index| index.oid);
        index.map_or(Ok(()), |index| self.index_below(full, index))
    }

    /// Adds an index with the entries of all rows. Alone it is built while other transactions go on.
    pub(super) fn add_index(&mut self, table: &TableDef, index: NewIndex) -> Outcome<()> {
        let NewIndex { name, columns, included, is_unique, is_constraint, late } = index;
        let mut note = note_of(table);
        let oid = store::take_oids(self.engine(), 1)?[0];
        note.indexes.push(IndexNote { oid, name: name.clone(), is_constraint, late, parent: None, included });
        let index = if is_unique { Index::unique(&name, columns) } else { Index::new(&name, columns) };
        let outcome = if self.is_alone {
            let now = self.engine().table(&table.full).map_err(from_engine)?;
            if now.schema().indexes().iter().any(|other| other.name == name) {
                // Of the library, made since the catalog was read.
                return Err(exists(&name).into());
            }
            building::note(self.engine(), (&table.full, &name), oid)?;
            self.built.push(Built { table: table.full.clone(), index: name.clone(), oid });
            self.writer()?.end_building(&table.full, oid)?;
            self.engine().create_index(&table.full, &index)
        } else {
            self.engine().create_index_in(self.tx, &table.full, &index)
        };
        if self.is_alone && matches!(outcome, Err(EngineError::IndexExists { .. })) {
            // It is another one's, and is not dropped with this definition.
            self.built.pop();
            building::forget(self.engine(), &table.full, oid)?;
        }
        let engine = match outcome {
            Ok(engine) => engine,
            Err(EngineError::Duplicate { key, .. }) => {
                let message = format!("could not create unique index \"{name}\"");
                let names: Vec<_> = index.columns.iter().map(String::as_str).collect();
                let key = key.trim_start_matches('(').trim_end_matches(')');
                return Err(Error::new(SqlState::UNIQUE_VIOLATION, message)
                    .detail(format!("Key ({})=({key}) is duplicated.", names.join(", ")))
                    .table(&table.name)
                    .constraint(name)
                    .into());
            }
            Err(error) => return Err(from_engine(error).into()),
        };
        if late.is_some() {
            self.refuse_duplicates(table, &engine, &name)?;
        }
        self.writer()?.write(&table.full, engine.schema(), &note)?;
        self.refresh(&[&table.full])?;
        Ok(())
    }

    /// Refuses rows that are there twice by the columns of an index, which the engine does not keep unique.
    fn refuse_duplicates(&self, table: &TableDef, engine: &Table, name: &str) -> Outcome<()> {
        if self.is_alone {
            // It was built beside this transaction, which has changed no rows. Its lock keeps others out.
            let snapshot = self.engine().snapshot().map_err(from_engine)?;
            return refuse_duplicates_in(table, &engine.index(name).map_err(from_engine)?, &snapshot);
        }
        self.tx.serialize().map_err(from_engine)?;
        refuse_duplicates_in(table, &engine.index(name).map_err(from_engine)?, self.tx)
    }

    /// `is_only`: its partitions get parts of it later.
    pub(super) fn add_unique(&mut self, table: &TableDef, key: &KeyDef, is_only: bool) -> Outcome<()> {
        let late = key.deferrable.map(|is_deferred| LateKey { is_deferred, is_primary: false });
        let names = column_names(&key.columns, &note_of(table).columns, IN_KEY)?;
        let included = included_names(&key.included, &note_of(table).columns, IN_KEY)?;
        let name = match &key.name {
            Some(name) => name.clone(),
            None => self.free_name(&table.schema, name_of_index((&table.name, "key"), &names, &included)),
        };
        if self.catalog.oid_of(&full_name(&table.schema, &name)).is_some() {
            return Err(exists(&name).into());
        }
        self.refuse_short_key(&table.name, (&note_of(table), &names), "UNIQUE")?;
        let (is_unique, is_constraint) = (late.is_none(), true);
        let index = NewIndex { name: name.clone(), columns: names, included, is_unique, is_constraint, late };
        self.add_index(table, index)?;
        if is_only { Ok(()) } else { self.named_index_below(&table.full, &name) }
    }
}

/// An index that is not there yet.
pub(super) struct NewIndex {
    pub name: String,
    pub columns: Vec<String>,
    pub included: Vec<String>,
    pub is_unique: bool,
    pub is_constraint: bool,
    pub late: Option<LateKey>,
}

pub(super) fn refuse_duplicates_in(table: &TableDef, index: &TableIndex, reader: &impl Reader) -> Outcome<()> {
    let columns: Vec<usize> = index.index().columns.iter().filter_map(|name| table.column(name)).collect();
    let mut before: Option<Vec<Value>> = None;
    for row in index.range(reader, ..).map_err(from_engine)? {
        let row = row.map_err(from_engine)?;
        let values: Vec<Value> = columns.iter().map(|column| stored_at(table, &row, *column)).collect();
        if !values.contains(&Value::Null) && before.as_ref() == Some(&values) {
            let row = to_row(table, row)?;
            let names: Vec<_> = columns.iter().map(|column| table.columns[*column].name.as_str()).collect();
            let shown = columns.iter().map(|column| text::encode(table.columns[*column].ty, &row[*column]));
            let (names, shown) = (names.join(", "), shown.collect::<Vec<_>>().join(", "));
            let name = &index.index().name;
            return Err(Error::new(SqlState::UNIQUE_VIOLATION, format!("could not create unique index \"{name}\""))
                .detail(format!("Key ({names})=({shown}) is duplicated."))
                .table(&table.name)
                .constraint(name.clone())
                .into());
        }
        before = Some(values);
    }
    Ok(())
}

/// The name of an index that has none of its own.
pub(super) fn name_of_index((table, suffix): (&str, &str), columns: &[String], included: &[String]) -> String {
    let columns = crate::catalog::index_column_names(columns.iter().chain(included).map(String::as_str));
    format!("{table}_{}_{suffix}", columns.join("_"))
}

/// The names of the columns of INCLUDE. They may be of any type and come twice, as they are no part of the key.
pub(super) fn included_names(columns: &[Name], notes: &[ColumnNote], place: &str) -> Result<Vec<String>> {
    let name = |column: &Name| {
        if notes.iter().any(|note| note.name == column.value) {
            return Ok(column.value.clone());
        }
        let message = format!("column \"{}\"{place} does not exist", column.value);
        Err(Error::new(SqlState::UNDEFINED_COLUMN, message).at(column.at))
    };
    columns.iter().map(name).collect()
}

/// The column as expressions see it.
pub(super) fn column_of(note: &ColumnNote) -> crate::catalog::ColumnDef {
    crate::catalog::ColumnDef {
        name: note.name.clone(),
        ty: note.ty,
        modifier: note.modifier,
        not_null: note.not_null,
        kind: kind_of(note.ty, note.modifier).unwrap_or(Kind::Text),
        default: None,
        identity: note.identity,
        domain: note.domain.clone(),
        is_generated: note.is_generated,
        is_local: note.is_local,
    }
}

/// Refuses a value of another kind for a column that is computed.
fn refuse_beside_generated(column: &ColumnDef, is_serial: bool, table: &str) -> Result<()> {
    let what = match () {
        () if column.default.is_some() || is_serial => "default",
        () if column.identity.is_some() => "identity",
        () => return Ok(()),
    };
    let name = &column.name.value;
    let message = format!("both {what} and generation expression specified for column \"{name}\" of table \"{table}\"");
    Err(Error::new(SqlState::SYNTAX_ERROR, message).at(column.name.at))
}

/// A name that is not taken, from a first one.
pub(super) fn unused(first: String, taken: impl Fn(&str) -> bool) -> String {
    let first = super::shortened(first);
    if !taken(&first) {
        return first;
    }
    (1_u32..).map(|number| format!("{first}{number}")).find(|name| !taken(name)).unwrap_or(first)
}

/// The names of columns that are there.
pub(super) fn column_names(columns: &[Name], notes: &[ColumnNote], place: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for column in columns {
        let Some(found) = notes.iter().find(|note| note.name == column.value) else {
            let message = format!("column \"{}\"{place} does not exist", column.value);
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).at(column.at));
        };
        if found.ty == Type::Numeric && !is_ordered(found.ty, found.modifier) {
            return Err(Error::unsupported("a key or index on a numeric without precision")
                .at(column.at)
                .hint("Use numeric(p, s) with at most 38 digits."));
        }
        if !is_ordered(found.ty, found.modifier) {
            return Err(Error::unsupported(format!("a key or index on the type {}", found.ty)).at(column.at));
        }
        if names.contains(&column.value) {
            let message = format!("column \"{}\" appears twice in a key", column.value);
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).at(column.at));
        }
        names.push(column.value.clone());
    }
    Ok(names)
}

/// The engine's table: with a hidden number of each row if there is no key.
pub(super) fn schema_of(table: &str, notes: &[ColumnNote], not_null: &[bool], key: Option<&[Name]>) -> Result<Schema> {
    let mut schema = Schema::new(table);
    for (note, not_null) in notes.iter().zip(not_null) {
        let Some(kind) = kind_of(note.ty, note.modifier) else {
            return Err(Error::unsupported(format!("a column of type {}", note.ty)));
        };
        schema = if *not_null { schema.column(&note.name, kind) } else { schema.nullable(&note.name, kind) };
    }
    match key {
        Some(key) => Ok(schema.key(column_names(key, notes, IN_KEY)?)),
        None => Ok(schema.column(ROW_NUMBER, Kind::U64).key([ROW_NUMBER])),
    }
}

/// The error of a column of a type whose values are not kept.
pub(super) fn no_kind(name: &str, ty: Type) -> Error {
    if !ty.is_record() && !matches!(ty, Type::Void | Type::Unknown) {
        return Error::unsupported(format!("a column of type {ty}"));
    }
    Error::new(SqlState::INVALID_TABLE_DEFINITION, format!("column \"{name}\" has pseudo-type {ty}"))
}
