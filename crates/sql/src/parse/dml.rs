//! Changes of rows, and which statements there are.

use lodestone_sql_types::{Error, Result};
use sqlparser::ast as tree;

use super::ast::{Name, ObjectName, Source, Statement, TableRef};
use super::{Converter, refuse, refuse_if};

impl Converter<'_> {
    /// A statement.
    pub(super) fn statement(&self, statement: tree::Statement) -> Result<Statement> {
        use tree::Statement as S;
        match statement {
            S::Query(query) => self.query(*query).map(Statement::Query),
            S::Insert(insert) => self.insert(insert),
            S::Update(update) => self.update(update),
            S::Delete(delete) => self.delete(delete),
            S::CreateTable(table) => self.create_table(table),
            S::CreateIndex(index) => self.create_index(index),
            S::AlterTable(table) => self.alter_table(table),
            S::Drop {
                object_type,
                if_exists,
                names,
                cascade: _,
                restrict: _,
                purge: false,
                temporary: false,
                table: None,
            } => {
                let is_index = match object_type {
                    tree::ObjectType::Table => false,
                    tree::ObjectType::Index => true,
                    other => return Err(Error::unsupported(format!("DROP {other}"))),
                };
                let names = names.iter().map(|name| self.object(name)).collect::<Result<_>>()?;
                Ok(Statement::Drop { is_index, names, if_exists })
            }
            other => {
                let text = other.to_string();
                let words: Vec<_> = text.split_whitespace().take(2).collect();
                Err(Error::unsupported(format!("the statement {}", words.join(" "))))
            }
        }
    }

    fn insert(&self, insert: tree::Insert) -> Result<Statement> {
        let tree::Insert {
            insert_token: _,
            optimizer_hints,
            or,
            ignore,
            into: _,
            table,
            table_alias,
            columns,
            by_name,
            overwrite,
            source,
            assignments,
            partitioned,
            after_columns,
            overriding,
            has_table_keyword,
            on,
            returning,
            output,
            replace_into,
            priority,
            insert_alias,
            settings,
            format_clause,
            multi_table_insert_type,
            multi_table_into_clauses,
            multi_table_when_clauses,
            multi_table_else_clause,
        } = insert;
        let tree::TableObject::TableName(table) = table else { return Err(Error::unsupported("INSERT into a query")) };
        let table = self.object(&table)?;
        let is_other = !optimizer_hints.is_empty()
            || or.is_some()
            || ignore
            || by_name
            || overwrite
            || !assignments.is_empty()
            || partitioned.is_some()
            || !after_columns.is_empty()
            || overriding.is_some()
            || has_table_keyword
            || output.is_some()
            || replace_into
            || priority.is_some()
            || insert_alias.is_some()
            || settings.is_some()
            || format_clause.is_some()
            || multi_table_insert_type.is_some()
            || !multi_table_into_clauses.is_empty()
            || !multi_table_when_clauses.is_empty()
            || multi_table_else_clause.is_some()
            || table_alias.is_some();
        if is_other {
            return Err(refuse("this form of INSERT", table.at));
        }
        let skips_duplicates = match on {
            None => false,
            Some(tree::OnInsert::OnConflict(tree::OnConflict {
                conflict_target: None,
                action: tree::OnConflictAction::DoNothing,
            })) => true,
            Some(_) => return Err(refuse("ON CONFLICT with a target, or with DO UPDATE", table.at)),
        };
        let source = match source {
            None => Source::Defaults,
            Some(query) => Source::Query(Box::new(self.query(*query)?)),
        };
        let columns = columns.iter().map(|column| self.single(column)).collect::<Result<_>>()?;
        let returning = self.items(returning.unwrap_or_default())?;
        Ok(Statement::Insert { table, columns, source, skips_duplicates, returning })
    }

    /// The one table of a change.
    fn target(&self, tables: tree::TableWithJoins, what: &str) -> Result<(ObjectName, Option<String>)> {
        match self.joins(tables)? {
            TableRef::Table { name, alias } if alias.columns.is_empty() => Ok((name, alias.name)),
            _ => Err(Error::unsupported(format!("{what} of a join or query"))),
        }
    }

    fn update(&self, update: tree::Update) -> Result<Statement> {
        let tree::Update {
            update_token: _,
            optimizer_hints,
            table,
            on_cluster,
            assignments,
            from,
            selection,
            returning,
            output,
            or,
            order_by,
            limit,
            settings,
        } = update;
        let (table, alias) = self.target(table, "UPDATE")?;
        if from.is_some() {
            return Err(refuse("UPDATE .. FROM", table.at));
        }
        let is_other = !optimizer_hints.is_empty() || on_cluster.is_some() || output.is_some() || or.is_some();
        if is_other || !order_by.is_empty() || limit.is_some() || settings.is_some() {
            return Err(refuse("this form of UPDATE", table.at));
        }
        let assignment = |assignment: tree::Assignment| match assignment.target {
            tree::AssignmentTarget::ColumnName(name) => Ok((self.single(&name)?, self.assigned(assignment.value)?)),
            tree::AssignmentTarget::Tuple(_) => Err(refuse("SET of several columns at once", table.at)),
        };
        let set = assignments.into_iter().map(assignment).collect::<Result<_>>()?;
        let filter = selection.map(|filter| self.expr(filter)).transpose()?;
        let returning = self.items(returning.unwrap_or_default())?;
        Ok(Statement::Update { table, alias, set, filter, returning })
    }

    /// The value of an assignment; `None` for DEFAULT.
    fn assigned(&self, value: tree::Expr) -> Result<Option<super::ast::Expr>> {
        match &value {
            tree::Expr::Identifier(ident) if is_default(ident) => Ok(None),
            _ => self.expr(value).map(Some),
        }
    }

    fn delete(&self, delete: tree::Delete) -> Result<Statement> {
        let tree::Delete {
            delete_token: _,
            optimizer_hints,
            tables,
            from,
            on_cluster,
            using,
            selection,
            returning,
            output,
            order_by,
            limit,
            settings,
        } = delete;
        let (tree::FromTable::WithFromKeyword(mut list) | tree::FromTable::WithoutKeyword(mut list)) = from;
        let (Some(target), true) = (list.pop(), list.is_empty()) else {
            return Err(Error::unsupported("DELETE of several tables"));
        };
        let (table, alias) = self.target(target, "DELETE")?;
        if using.is_some() {
            return Err(refuse("DELETE .. USING", table.at));
        }
        let is_other = !optimizer_hints.is_empty() || !tables.is_empty() || on_cluster.is_some() || output.is_some();
        if is_other || !order_by.is_empty() || limit.is_some() || settings.is_some() {
            return Err(refuse("this form of DELETE", table.at));
        }
        let filter = selection.map(|filter| self.expr(filter)).transpose()?;
        let returning = self.items(returning.unwrap_or_default())?;
        Ok(Statement::Delete { table, alias, filter, returning })
    }

    /// The columns of an index or key, which are plain names.
    pub(super) fn index_columns(&self, columns: Vec<tree::IndexColumn>) -> Result<Vec<Name>> {
        let column = |column: tree::IndexColumn| {
            let tree::IndexColumn { column: tree::OrderByExpr { expr, options, with_fill }, operator_class } = column;
            let is_plain = operator_class.is_none() && with_fill.is_none() && options.nulls_first.is_none();
            let is_ascending = matches!(options.sort, None | Some(tree::OrderBySort::Asc));
            match expr {
                tree::Expr::Identifier(ident) if is_plain && is_ascending => Ok(self.name(&ident)),
                _ => {
                    Err(Error::unsupported("an index on an expression, in descending order or with an operator class"))
                }
            }
        };
        columns.into_iter().map(column).collect()
    }

    pub(super) fn refuse_other(&self, is_other: bool, what: &str) -> Result<()> {
        refuse_if(is_other, what)
    }
}

/// Whether the word is DEFAULT in the place of a value.
pub(super) fn is_default(ident: &tree::Ident) -> bool {
    ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default")
}
