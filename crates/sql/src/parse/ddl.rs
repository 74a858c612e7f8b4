//! Definitions of tables and indexes.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;
use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;

use super::ast::{ColumnDef, KeyDef, Statement};
use super::{Converter, refuse};

impl Converter<'_> {
    pub(super) fn create_table(&self, table: tree::CreateTable) -> Result<Statement> {
        let name = self.object(&table.name)?;
        // Everything that is not named here must be absent.
        let plain = CreateTableBuilder::new(table.name.clone())
            .if_not_exists(table.if_not_exists)
            .columns(table.columns.clone())
            .constraints(table.constraints.clone())
            .table_options(table.table_options.clone())
            .build();
        if tree::Statement::CreateTable(table.clone()) != tree::Statement::from(plain) {
            let what = match () {
                () if table.temporary => "CREATE TEMPORARY TABLE",
                () if table.unlogged => "CREATE UNLOGGED TABLE",
                () if table.query.is_some() => "CREATE TABLE AS",
                () if table.like.is_some() => "CREATE TABLE (LIKE ..)",
                () if table.partition_by.is_some() || table.partition_of.is_some() => "a partitioned table",
                () if table.inherits.is_some() => "INHERITS",
                () => "this form of CREATE TABLE",
            };
            return Err(refuse(what, name.at));
        }
        self.table_options(&table.table_options)?;
        let (mut columns, mut key, mut unique) = (Vec::new(), None, Vec::new());
        for column in table.columns {
            columns.push(self.column(&name.name, column, &mut key, &mut unique)?);
        }
        for constraint in table.constraints {
            match self.key(constraint)? {
                (found, true) => set_key(&mut key, found, &name.name)?,
                (found, false) => unique.push(found),
            }
        }
        Ok(Statement::CreateTable { name, if_not_exists: table.if_not_exists, columns, key, unique })
    }

    /// Storage parameters: `fillfactor` has no meaning here and harms nothing.
    fn table_options(&self, options: &tree::CreateTableOptions) -> Result<()> {
        let list = match options {
            tree::CreateTableOptions::None => return Ok(()),
            tree::CreateTableOptions::With(list) => list,
            _ => return Err(Error::unsupported("this option of CREATE TABLE")),
        };
        for option in list {
            match option {
                tree::SqlOption::KeyValue { key, .. }
                    if key.to_string().eq_ignore_ascii_case("fillfactor")
                        || key.to_string().to_ascii_lowercase().starts_with("autovacuum_") => {}
                other => return Err(Error::unsupported(format!("the storage parameter {other}"))),
            }
        }
        Ok(())
    }

    fn column(
        &self,
        table: &str,
        column: tree::ColumnDef,
        key: &mut Option<KeyDef>,
        unique: &mut Vec<KeyDef>,
    ) -> Result<ColumnDef> {
        let name = self.name(&column.name);
        let ty = super::ast::TypeName { at: name.at, ..self.type_name(&column.data_type)? };
        let mut found = ColumnDef { name, ty, not_null: false, default: None, default_text: None };
        for tree::ColumnOptionDef { name: constraint, option } in column.options {
            let own = || KeyDef { name: constraint.as_ref().map(super::expr::fold), columns: vec![found.name.clone()] };
            match option {
                tree::ColumnOption::Null => {}
                tree::ColumnOption::NotNull => found.not_null = true,
                tree::ColumnOption::Default(expr) => {
                    found.default_text = Some(expr.to_string());
                    found.default = Some(self.expr(expr)?);
                }
                tree::ColumnOption::PrimaryKey(constraint) => {
                    self.refuse_other(constraint.characteristics.is_some(), "a deferrable key")?;
                    set_key(key, own(), table)?;
                }
                tree::ColumnOption::Unique(constraint) => {
                    self.refuse_other(constraint.characteristics.is_some(), "a deferrable key")?;
                    unique.push(own());
                }
                tree::ColumnOption::ForeignKey(_) => return Err(refuse("a foreign key", found.name.at)),
                tree::ColumnOption::Check(_) => return Err(refuse("a CHECK constraint", found.name.at)),
                other => return Err(refuse(format!("the column option {other}"), found.name.at)),
            }
        }
        Ok(found)
    }

    /// A key, and whether it is the primary one.
    fn key(&self, constraint: tree::TableConstraint) -> Result<(KeyDef, bool)> {
        match constraint {
            tree::TableConstraint::PrimaryKey(tree::PrimaryKeyConstraint {
                name,
                index_name: None,
                index_type: None,
                columns,
                include,
                index_options,
                characteristics: None,
            }) if include.is_empty() && index_options.is_empty() => {
                Ok((KeyDef { name: name.as_ref().map(super::expr::fold), columns: self.index_columns(columns)? }, true))
            }
            tree::TableConstraint::Unique(tree::UniqueConstraint {
                name,
                index_name: None,
                index_type_display: _,
                index_type: None,
                columns,
                include,
                index_options,
                characteristics: None,
                nulls_distinct: tree::NullsDistinctOption::None | tree::NullsDistinctOption::Distinct,
            }) if include.is_empty() && index_options.is_empty() => Ok((
                KeyDef { name: name.as_ref().map(super::expr::fold), columns: self.index_columns(columns)? },
                false,
            )),
            tree::TableConstraint::ForeignKey(_) => Err(Error::unsupported("a foreign key")),
            tree::TableConstraint::Check(_) => Err(Error::unsupported("a CHECK constraint")),
            other => Err(Error::unsupported(format!("the constraint {other}"))),
        }
    }

    pub(super) fn create_index(&self, index: tree::CreateIndex) -> Result<Statement> {
        let tree::CreateIndex {
            name,
            table_name,
            using,
            columns,
            unique,
            concurrently: _,
            r#async,
            if_not_exists,
            include,
            nulls_distinct,
            with,
            predicate,
            index_options,
            alter_options,
        } = index;
        let table = self.object(&table_name)?;
        let is_btree = matches!(using, None | Some(tree::IndexType::BTree));
        self.refuse_other(!is_btree, "an index that is no btree")?;
        self.refuse_other(predicate.is_some(), "a partial index")?;
        self.refuse_other(!include.is_empty(), "an index with INCLUDE")?;
        let is_other = r#async || nulls_distinct == Some(false) || !with.is_empty();
        self.refuse_other(
            is_other || !index_options.is_empty() || !alter_options.is_empty(),
            "this form of CREATE INDEX",
        )?;
        let name = name.map(|name| self.single(&name)).transpose()?;
        Ok(Statement::CreateIndex {
            name,
            table,
            columns: self.index_columns(columns)?,
            is_unique: unique,
            if_not_exists,
        })
    }

    pub(super) fn alter_table(&self, table: tree::AlterTable) -> Result<Statement> {
        let tree::AlterTable {
            name,
            if_exists,
            only: _,
            mut operations,
            location,
            on_cluster,
            table_type,
            end_token: _,
        } = table;
        let table = self.object(&name)?;
        let is_other = if_exists || location.is_some() || on_cluster.is_some() || table_type.is_some();
        match (operations.pop(), operations.is_empty()) {
            (Some(tree::AlterTableOperation::AddConstraint { constraint, not_valid: false }), true) if !is_other => {
                let (key, is_primary) = self.key(constraint)?;
                Ok(Statement::AddKey { table, key, is_primary })
            }
            (Some(operation), true) => {
                let text = operation.to_string();
                let words: Vec<_> = text.split_whitespace().take(2).collect();
                Err(refuse(format!("ALTER TABLE .. {}", words.join(" ")), table.at))
            }
            _ => Err(refuse("this form of ALTER TABLE", table.at)),
        }
    }
}

fn set_key(key: &mut Option<KeyDef>, found: KeyDef, table: &str) -> Result<()> {
    if key.replace(found).is_some() {
        let message = format!("multiple primary keys for table \"{table}\" are not allowed");
        return Err(Error::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    Ok(())
}
