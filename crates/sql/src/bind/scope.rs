//! The columns that names can mean.
//!
//! A table of a schema that has no other name in the query is meant by `table.column`, and by `schema.table.column`.
//! So two tables of one name from two schemas can be beside each other, and the short form is ambiguous then.

use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState, Type};

use crate::parse::ast::Position;

/// The table, view or query of WITH that the columns of a scope are from.
#[derive(Debug, PartialEq, Eq)]
pub struct Relation {
    /// None: it is a query of WITH.
    pub schema: Option<String>,
    pub name: String,
    /// It has another name in the query.
    pub is_aliased: bool,
    /// Its name alone means it.
    pub is_visible: bool,
}

impl Relation {
    /// Whether it can be beside a relation of the same name from another schema.
    fn is_plain(&self) -> bool {
        !self.is_aliased && self.schema.is_some()
    }
}

/// A column of a scope.
#[derive(Clone, Debug)]
pub struct ScopeColumn {
    /// The name of its table, or of what stands for it.
    pub table: Option<String>,
    pub name: String,
    pub ty: Type,
    pub modifier: i32,
    /// Table and column that it is taken from.
    pub origin: Option<(u32, i16)>,
    /// The value of the column, where it is not the column with its number: of a join with USING.
    pub is_hidden: bool,
    /// Its table is on the side of an outer join that may have no row.
    pub is_outer: bool,
    /// Where it is from, if that has a name in the database.
    pub relation: Option<Arc<Relation>>,
}

impl ScopeColumn {
    /// Whether its table is meant by a name, perhaps with a schema.
    pub fn is_of(&self, schema: Option<&str>, table: &str) -> bool {
        let in_schema = |schema: &str| match &self.relation {
            Some(relation) => relation.is_plain() && relation.schema.as_deref() == Some(schema),
            // A table whose definition has an expression over its columns.
            None => self.origin.is_some(),
        };
        self.table.as_deref() == Some(table) && schema.is_none_or(in_schema)
    }

    /// Whether both are columns of one table of the query. They are of tables with the same name.
    fn is_beside(&self, other: &Self) -> bool {
        match (&self.relation, &other.relation) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
            (one, two) => one.is_none() && two.is_none(),
        }
    }

    /// Whether its table cannot be in one FROM with that of the other column.
    pub fn collides(&self, other: &Self) -> bool {
        let is_plain = |column: &Self| column.relation.as_ref().is_some_and(|relation| relation.is_plain());
        self.table.is_some()
            && self.table == other.table
            && (self.is_beside(other) || !is_plain(self) || !is_plain(other))
    }
}

/// Schema and table of a name.
pub type TableName<'n> = (Option<&'n str>, &'n str);

/// The columns of the row at hand, and the scope around it.
#[derive(Clone, Debug, Default)]
pub struct Scope<'p> {
    pub columns: Vec<ScopeColumn>,
    pub parent: Option<&'p Scope<'p>>,
}

impl<'p> Scope<'p> {
    /// A scope without columns inside another one.
    pub fn inside(parent: Option<&'p Scope<'p>>) -> Self {
        Self { columns: Vec::new(), parent }
    }

    /// How many scopes there are, with those around it.
    pub fn depth(&self) -> usize {
        1 + self.parent.map_or(0, Self::depth)
    }

    /// The column that `names` mean: its depth and number.
    pub fn find(&self, names: &[String], at: Position) -> Result<(usize, usize, &ScopeColumn)> {
        let (table, name) = match names {
            [name] => (None, name),
            [table, name] => (Some((None, table.as_str())), name),
            [schema, table, name] => (Some((Some(schema.as_str()), table.as_str())), name),
            _ => return Err(Error::unsupported("a name of more parts").at(at)),
        };
        let mut scope = Some(self);
        let mut depth = 0;
        let mut is_table = false;
        while let Some(this) = scope {
            if let Some(table) = table {
                this.refuse_several(table, at)?;
            }
            let fits = |column: &&ScopeColumn| {
                column.name == *name
                    && match table {
                        Some((schema, table)) => column.is_of(schema, table),
                        // No user can give a column this name.
                        None => !column.is_hidden || name == "tableoid",
                    }
            };
            let mut found = this.columns.iter().enumerate().filter(|(_, column)| fits(column));
            if let Some((index, column)) = found.next() {
                if found.next().is_some() {
                    let message = format!("column reference \"{name}\" is ambiguous");
                    return Err(Error::new(SqlState::AMBIGUOUS_COLUMN, message).at(at));
                }
                return Ok((depth, index, column));
            }
            is_table |= table.is_some_and(|table| this.has_table(table));
            scope = this.parent;
            depth += 1;
        }
        Err(match table {
            Some(table) if !is_table => self.no_table(table, at),
            Some((_, table)) => {
                Error::new(SqlState::UNDEFINED_COLUMN, format!("column {table}.{name} does not exist")).at(at)
            }
            None => Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")).at(at),
        })
    }

    /// Whether a table of the row at hand has this name.
    pub fn has_table(&self, (schema, table): TableName<'_>) -> bool {
        self.columns.iter().any(|column| column.is_of(schema, table))
    }

    /// Whether several tables of the row at hand have the name.
    pub fn has_several(&self, (schema, table): TableName<'_>) -> bool {
        let mut all = self.columns.iter().filter(|column| column.is_of(schema, table));
        all.next().is_some_and(|first| all.any(|column| !column.is_beside(first)))
    }

    /// Refuses a name that several tables of the row at hand have.
    ///
    /// # Errors
    /// 42P09.
    pub fn refuse_several(&self, table: TableName<'_>, at: Position) -> Result<()> {
        if !self.has_several(table) {
            return Ok(());
        }
        let message = format!("table reference \"{}\" is ambiguous", table.1);
        Err(Error::new(SqlState::AMBIGUOUS_ALIAS, message).at(at))
    }

    /// The error of a name that no table has.
    pub fn no_table(&self, (schema, table): TableName<'_>, at: Position) -> Error {
        let is_meant = |relation: &Relation| {
            relation.name == table
                && match schema {
                    Some(schema) => relation.schema.as_deref() == Some(schema),
                    None => relation.is_visible,
                }
        };
        let mut scope = Some(self);
        while let Some(this) = scope {
            for column in &this.columns {
                let shown = column.table.as_deref().filter(|shown| *shown != table);
                if column.relation.as_ref().is_some_and(|relation| is_meant(relation)) {
                    let error = invalid_reference(table, at);
                    return match shown {
                        Some(shown) => {
                            error.hint(format!("Perhaps you meant to reference the table alias \"{shown}\"."))
                        }
                        None => error.hint(not_from_here(table)),
                    };
                }
                if column.table.as_deref() == Some(table) {
                    return invalid_reference(table, at).hint(not_from_here(table));
                }
            }
            scope = this.parent;
        }
        Error::new(SqlState::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{table}\"")).at(at)
    }
}

/// The error of a name of a table that is there, and cannot be used at its place.
pub fn invalid_reference(table: &str, at: Position) -> Error {
    let message = format!("invalid reference to FROM-clause entry for table \"{table}\"");
    Error::new(SqlState::UNDEFINED_TABLE, message).at(at)
}

/// The hint of [`invalid_reference`] where no other name is meant.
pub fn not_from_here(table: &str) -> String {
    format!("There is an entry for table \"{table}\", but it cannot be referenced from this part of the query.")
}
