//! The columns that names can mean.

use lodestone_sql_types::{Error, Result, SqlState, Type};

use crate::parse::ast::Position;

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
}

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
            [table, name] => (Some(table), name),
            [_, table, name] => (Some(table), name),
            _ => return Err(Error::unsupported("a name of more parts").at(at)),
        };
        let mut scope = Some(self);
        let mut depth = 0;
        let mut is_table = false;
        while let Some(this) = scope {
            let fits = |column: &&ScopeColumn| {
                column.name == *name
                    && match table {
                        Some(table) => column.table.as_ref() == Some(table),
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
            is_table |=
                table.is_some_and(|table| this.columns.iter().any(|column| column.table.as_ref() == Some(table)));
            scope = this.parent;
            depth += 1;
        }
        Err(match table {
            Some(table) if !is_table => {
                Error::new(SqlState::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{table}\""))
            }
            Some(table) => Error::new(SqlState::UNDEFINED_COLUMN, format!("column {table}.{name} does not exist")),
            None => Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")),
        }
        .at(at))
    }

    /// Whether a table of the row at hand has this name.
    pub fn has_table(&self, table: &str) -> bool {
        self.columns.iter().any(|column| column.table.as_deref() == Some(table))
    }
}
