//! Changes of rows, and which statements there are.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;

use super::ast::{
    Alias, Body, Conflict, ConflictTarget, Distinct, GroupBy, Item, Name, ObjectKind, ObjectName, Overriding, Position,
    Query, Select, Source, Statement, TableAs, TableRef,
};
use super::{Converter, refuse, refuse_if};

/// A column and its value; `None` for DEFAULT.
type Assignment = (Name, Option<super::ast::Expr>);

/// Column and subscripts of a name that stands for a part. `None`: it is a plain one.
fn part_of(name: &Name) -> Result<Option<(String, Vec<super::ast::Subscript>)>> {
    let Some((own, text)) = name.value.split_once(super::rewrite::PART_MARK) else { return Ok(None) };
    let mut list = Vec::new();
    let found = super::parse_expr(&format!("(a){text}")).map_err(|error| error.at(name.at))?;
    steps_of(found, &mut list).ok_or_else(|| refuse("this target of an assignment", name.at))?;
    Ok(Some((own.to_owned(), list)))
}

/// The steps from a value to its part. `None`: it is something else.
fn steps_of(expr: super::ast::Expr, found: &mut Vec<super::ast::Subscript>) -> Option<()> {
    use super::ast::{EVERY_FIELD, Expr, Subscript};
    match expr {
        Expr::Column(..) => {}
        Expr::Element(base, index, _) => {
            steps_of(*base, found)?;
            found.push(Subscript { high: Some(*index), ..Subscript::default() });
        }
        Expr::Part { base, list, .. } => {
            steps_of(*base, found)?;
            found.extend(list);
        }
        Expr::Field(base, name) if name.value != EVERY_FIELD => {
            steps_of(*base, found)?;
            found.push(Subscript { field: Some(name), ..Subscript::default() });
        }
        _ => return None,
    }
    Some(())
}

impl Converter<'_> {
    /// A statement.
    pub(super) fn statement(&self, statement: tree::Statement) -> Result<Statement> {
        use tree::Statement as S;
        match statement {
            S::Query(query) => self.query_or_change(*query),
            S::Insert(insert) => self.insert(insert),
            S::Update(update) => self.update(update),
            S::Delete(delete) => self.delete(delete),
            S::CreateTable(table) => self.create_table(table),
            S::CreateIndex(index) => self.create_index(index),
            S::AlterTable(table) => self.alter_table(table),
            S::CreateSequence { temporary, if_not_exists, name, sequence_options } => {
                let name = super::table::in_schema(self.object(&name)?, temporary)?;
                let (name, options) = (name, self.sequence_options(sequence_options)?);
                Ok(Statement::CreateSequence { name, if_not_exists, options })
            }
            S::CreateSchema {
                schema_name: tree::SchemaName::Simple(name),
                or_replace: false,
                if_not_exists,
                with: None,
                options: None,
                default_collate_spec: None,
                clone: None,
            } => Ok(Statement::CreateSchema { name: self.single(&name)?, if_not_exists, elements: Vec::new() }),
            S::CreateView(view) => self.create_view(view),
            S::CreateType { name, representation: Some(tree::UserDefinedTypeRepresentation::Enum { labels }) } => {
                let labels = labels.into_iter().map(|label| label.value).collect();
                Ok(Statement::CreateEnum { name: self.object(&name)?, labels })
            }
            S::Drop {
                object_type,
                if_exists,
                names,
                cascade,
                restrict: _,
                purge: false,
                temporary: false,
                table: None,
            } => {
                let kind = match object_type {
                    tree::ObjectType::Table => ObjectKind::Table,
                    tree::ObjectType::Index => ObjectKind::Index,
                    tree::ObjectType::View => ObjectKind::View,
                    tree::ObjectType::Sequence => ObjectKind::Sequence,
                    tree::ObjectType::Schema => ObjectKind::Schema,
                    tree::ObjectType::Type => ObjectKind::Type,
                    other => return Err(Error::unsupported(format!("DROP {other}"))),
                };
                let names = names.iter().map(|name| self.object(name)).collect::<Result<_>>()?;
                Ok(Statement::Drop { kind, names, if_exists, is_cascade: cascade })
            }
            other => {
                let text = other.to_string();
                let words: Vec<_> = text.split_whitespace().take(2).collect();
                Err(Error::unsupported(format!("the statement {}", words.join(" "))))
            }
        }
    }

    /// Whether a body is a change of rows.
    pub(super) fn is_change(body: &tree::SetExpr) -> bool {
        matches!(body, tree::SetExpr::Insert(_) | tree::SetExpr::Update(_) | tree::SetExpr::Delete(_))
    }

    /// A query, or a change with queries before it.
    pub(super) fn query_or_change(&self, mut query: tree::Query) -> Result<Statement> {
        if !Self::is_change(&query.body) {
            let into = match &mut *query.body {
                tree::SetExpr::Select(select) => select.into.take(),
                _ => None,
            };
            let query = self.query(query)?;
            let Some(into) = into else { return Ok(Statement::Query(query)) };
            return self.select_into(into, query);
        }
        let found = query.with.take().map(|with| self.with(with)).transpose()?.unwrap_or_default();
        let body = *query.body;
        let (tree::SetExpr::Insert(change) | tree::SetExpr::Update(change) | tree::SetExpr::Delete(change)) = body
        else {
            return Err(Error::unsupported("this form of WITH"));
        };
        let mut change = self.statement(change)?;
        match &mut change {
            Statement::Insert { with, .. } | Statement::Update { with, .. } | Statement::Delete { with, .. } => {
                *with = found;
            }
            _ => return Err(Error::unsupported("this form of WITH")),
        }
        Ok(change)
    }

    fn select_into(&self, into: tree::SelectInto, query: super::ast::Query) -> Result<Statement> {
        let tree::SelectInto { temporary, unlogged: _, table: _, targets } = into;
        let [tree::Expr::Identifier(_) | tree::Expr::CompoundIdentifier(_)] = &targets[..] else {
            return Err(Error::unsupported("SELECT INTO of several names"));
        };
        let name = super::table::in_schema(self.object(&name_of(&targets[0]))?, temporary)?;
        let table = TableAs {
            name,
            if_not_exists: false,
            columns: Vec::new(),
            with_data: true,
            is_into: true,
            on_commit: None,
            placing: Default::default(),
        };
        Ok(Statement::CreateTableAs { table, query: Box::new(query) })
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
            || multi_table_else_clause.is_some();
        if is_other {
            return Err(refuse("this form of INSERT", table.at));
        }
        let conflict = on.map(|on| self.conflict(on, table.at)).transpose()?;
        let overriding = overriding.map(|overriding| match overriding {
            tree::InsertOverriding::System => Overriding::System,
            tree::InsertOverriding::User => Overriding::User,
        });
        let source = match source {
            None => Source::Defaults,
            Some(query) => Source::Query(Box::new(self.query(*query)?)),
        };
        let columns = columns.iter().map(|column| self.single(column)).collect::<Result<_>>()?;
        let (columns, source) = self.whole_columns(columns, source)?;
        let returning = self.items(returning.unwrap_or_default())?;
        let alias = table_alias.as_ref().map(|alias| super::expr::fold(&alias.alias));
        let with = Vec::new();
        Ok(Statement::Insert { table, columns, alias, source, overriding, conflict, returning, with })
    }

    fn conflict(&self, on: tree::OnInsert, at: Position) -> Result<Conflict> {
        let tree::OnInsert::OnConflict(tree::OnConflict { conflict_target, action }) = on else {
            return Err(refuse("ON DUPLICATE KEY", at));
        };
        let target = match conflict_target {
            None => ConflictTarget::Any,
            // No index has a predicate, and one without it fulfils every predicate.
            Some(tree::ConflictTarget::Columns { columns, predicate: _ }) => {
                ConflictTarget::Columns(columns.iter().map(|column| self.name(column)).collect())
            }
            Some(tree::ConflictTarget::OnConstraint(name)) => ConflictTarget::Constraint(self.single(&name)?),
        };
        let update = match action {
            tree::OnConflictAction::DoNothing => None,
            tree::OnConflictAction::DoUpdate(tree::DoUpdate { assignments, selection }) => {
                let set = self.assignments(assignments, at)?;
                Some((set, selection.map(|filter| self.expr(filter)).transpose()?))
            }
        };
        if update.is_some() && target == ConflictTarget::Any {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message)
                .hint("For example, ON CONFLICT (column_name).")
                .at(at));
        }
        Ok(Conflict { target, update })
    }

    /// The columns that are set, with their values.
    pub(super) fn assignments(&self, assignments: Vec<tree::Assignment>, at: Position) -> Result<Vec<Assignment>> {
        let mut found = Vec::new();
        for tree::Assignment { target, value } in assignments {
            match (target, value) {
                (tree::AssignmentTarget::ColumnName(name), value) => {
                    let (name, value) = (self.single(&name)?, self.assigned(value)?);
                    self.assign(&mut found, name, value)?;
                }
                (tree::AssignmentTarget::Tuple(names), tree::Expr::Tuple(values)) if names.len() == values.len() => {
                    for (name, value) in names.iter().zip(values) {
                        let (name, value) = (self.single(name)?, self.assigned(value)?);
                        self.assign(&mut found, name, value)?;
                    }
                }
                (tree::AssignmentTarget::Tuple(names), tree::Expr::Subquery(query)) => {
                    let query = self.query(*query)?;
                    for (place, name) in names.iter().enumerate() {
                        let value = column_of_query(&query, (place, names.len()), at)?;
                        self.assign(&mut found, self.single(name)?, Some(value))?;
                    }
                }
                (tree::AssignmentTarget::Tuple(names), value) => match self.expr(value)? {
                    super::ast::Expr::Row(values, _) if values.len() == names.len() => {
                        for (name, value) in names.iter().zip(values) {
                            self.assign(&mut found, self.single(name)?, Some(value))?;
                        }
                    }
                    super::ast::Expr::Row(..) => return Err(other_count(at)),
                    _ => {
                        let message =
                            "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression";
                        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
                    }
                },
            }
        }
        Ok(found)
    }

    /// Adds an assignment. Those to parts of one column are one assignment.
    fn assign(&self, found: &mut Vec<Assignment>, name: Name, value: Option<super::ast::Expr>) -> Result<()> {
        let Some((own, list)) = part_of(&name)? else {
            found.push((name, value));
            return Ok(());
        };
        let at = name.at;
        let Some(value) = value else { return Err(refuse("DEFAULT for a part of an array", at)) };
        let is_part = |other: &&mut Assignment| {
            other.0.value == own && matches!(other.1, Some(super::ast::Expr::Assigned { .. }))
        };
        let made = |base| Some(super::ast::Expr::Assigned { base, list, value: Box::new(value), at });
        match found.iter_mut().find(is_part) {
            Some((_, place)) => *place = made(place.take().map(Box::new)),
            None => found.push((Name { value: own, at }, made(None))),
        }
        Ok(())
    }

    /// The columns and the row of an INSERT of MERGE.
    pub(super) fn inserted(&self, columns: Vec<Name>, row: Vec<tree::Expr>) -> Result<(Vec<Name>, Source)> {
        let body = Body::Values(vec![self.exprs(row)?]);
        self.whole_columns(columns, Source::Query(Box::new(Query { body, ..Query::empty() })))
    }

    /// The columns of an INSERT, and its rows with the parts of one column as one value.
    fn whole_columns(&self, columns: Vec<Name>, source: Source) -> Result<(Vec<Name>, Source)> {
        use super::ast::{Body, Expr, Literal};
        if !columns.iter().any(|name| name.value.contains(super::rewrite::PART_MARK)) {
            return Ok((columns, source));
        }
        let at = columns.first().map_or(super::ast::NOWHERE, |name| name.at);
        let refused = || refuse("a part of an array among the columns of an INSERT from a query", at);
        let Source::Query(mut query) = source else { return Err(refused()) };
        let Body::Values(rows) = &mut query.body else { return Err(refused()) };
        // Here, and not where the names are bound: the parts of one column are one value there.
        let count = rows.first().map_or(0, Vec::len);
        let wrong = match () {
            () if rows.iter().any(|row| row.len() != count) => Some("VALUES lists must all be the same length"),
            () if count > columns.len() => Some("INSERT has more expressions than target columns"),
            () if count < columns.len() => Some("INSERT has more target columns than expressions"),
            () => None,
        };
        if let Some(message) = wrong {
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(at));
        }
        let mut names = Vec::new();
        for row in rows {
            let mut found: Vec<Assignment> = Vec::new();
            for (name, value) in columns.iter().zip(std::mem::take(row)) {
                self.assign(&mut found, name.clone(), Some(value))?;
            }
            names = found.iter().map(|(name, _)| name.clone()).collect();
            // There is no value before: the innermost part is one of a null.
            for (_, value) in &mut found {
                let mut part = value.as_mut();
                while let Some(Expr::Assigned { base, at, .. }) = part {
                    part = Some(base.get_or_insert_with(|| Box::new(Expr::Literal(Literal::Null, *at))));
                }
            }
            *row = found.into_iter().filter_map(|(_, value)| value).collect();
        }
        Ok((names, Source::Query(query)))
    }

    fn create_view(&self, view: tree::CreateView) -> Result<Statement> {
        let name = super::table::in_schema(self.object(&view.name)?, view.temporary)?;
        let is_other = view.or_alter
            || view.secure
            || view.if_not_exists
            || !matches!(view.options, tree::CreateTableOptions::None | tree::CreateTableOptions::With(_))
            || !view.cluster_by.is_empty()
            || view.comment.is_some()
            || view.with_no_schema_binding
            || view.copy_grants
            || view.to.is_some()
            || view.params.is_some();
        self.refuse_other(view.materialized, "a materialized view")?;
        self.refuse_other(is_other, "this form of CREATE VIEW")?;
        let column = |column: &tree::ViewColumnDef| match column {
            tree::ViewColumnDef { name, data_type: None, options: None } => Ok(self.name(name)),
            _ => Err(refuse("this column of a view", name.at)),
        };
        let columns = view.columns.iter().map(column).collect::<Result<_>>()?;
        let options = super::view::options(&view.options)?;
        let text = super::standard::written(super::names::lowered(&view.query.to_string()));
        let query = Box::new(self.query(*view.query)?);
        Ok(Statement::CreateView { name, columns, or_replace: view.or_replace, query, text, options })
    }

    /// The one table of a change.
    pub(super) fn target(&self, tables: tree::TableWithJoins, what: &str) -> Result<(ObjectName, Option<String>)> {
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
        let from = match from {
            None => Vec::new(),
            Some(tree::UpdateTableFromKind::AfterSet(list)) => {
                list.into_iter().map(|table| self.joins(table)).collect::<Result<_>>()?
            }
            Some(_) => return Err(refuse("FROM before SET", table.at)),
        };
        let is_other = !optimizer_hints.is_empty() || on_cluster.is_some() || output.is_some() || or.is_some();
        if is_other || !order_by.is_empty() || limit.is_some() || settings.is_some() {
            return Err(refuse("this form of UPDATE", table.at));
        }
        let set = self.assignments(assignments, table.at)?;
        let filter = selection.map(|filter| self.expr(filter)).transpose()?;
        let returning = self.items(returning.unwrap_or_default())?;
        Ok(Statement::Update { table, alias, set, from, filter, returning, with: Vec::new() })
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
        let using = using.unwrap_or_default().into_iter().map(|table| self.joins(table)).collect::<Result<_>>()?;
        let is_other = !optimizer_hints.is_empty() || !tables.is_empty() || on_cluster.is_some() || output.is_some();
        if is_other || !order_by.is_empty() || limit.is_some() || settings.is_some() {
            return Err(refuse("this form of DELETE", table.at));
        }
        let filter = selection.map(|filter| self.expr(filter)).transpose()?;
        let returning = self.items(returning.unwrap_or_default())?;
        Ok(Statement::Delete { table, alias, using, filter, returning, with: Vec::new() })
    }

    /// The columns of an index or key, which are plain names.
    pub(super) fn index_columns(&self, columns: Vec<tree::IndexColumn>) -> Result<Vec<Name>> {
        let column = |column: tree::IndexColumn| {
            let tree::IndexColumn { column: tree::OrderByExpr { expr, options, with_fill }, operator_class } = column;
            if let Some(class) = operator_class.as_ref().filter(|class| !is_usual_class(class)) {
                return Err(Error::unsupported(format!("an index with the operator class {class}")));
            }
            match (expr, options.sort) {
                (tree::Expr::Identifier(ident), None | Some(tree::OrderBySort::Asc | tree::OrderBySort::Desc))
                    if with_fill.is_none() =>
                {
                    Ok(self.name(&ident))
                }
                _ => Err(Error::unsupported("an index on an expression")),
            }
        };
        columns.into_iter().map(column).collect()
    }

    pub(super) fn refuse_other(&self, is_other: bool, what: &str) -> Result<()> {
        refuse_if(is_other, what)
    }
}

/// The name that an expression is.
/// The error of an assignment of another number of values.
fn other_count(at: Position) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, "number of columns does not match number of values").at(at)
}

/// One column of the row of a query, as a query.
fn column_of_query(query: &Query, (place, count): (usize, usize), at: Position) -> Result<super::ast::Expr> {
    let width = match &query.body {
        Body::Select(select) if select.items.iter().all(|item| matches!(item, Item::Expr(..))) => select.items.len(),
        Body::Values(rows) => rows.first().map_or(0, Vec::len),
        _ => return Err(refuse("SET of several columns to a query of this form", at)),
    };
    if width != count {
        return Err(other_count(at));
    }
    let name = |place: usize| format!("column{}", place + 1);
    let columns = (0..count).map(name).collect();
    let alias = Alias { name: Some("\0set".into()), columns };
    let from = vec![TableRef::Query { query: Box::new(query.clone()), is_lateral: false, alias }];
    let items = vec![Item::Expr(super::ast::Expr::Column(vec!["\0set".into(), name(place)], at), None)];
    let select = Select {
        distinct: Distinct::All,
        items,
        from,
        filter: None,
        group_by: GroupBy::default(),
        having: None,
        windows: Vec::new(),
    };
    let body = Body::Select(Box::new(select));
    Ok(super::ast::Expr::Scalar(Box::new(Query { body, ..Query::empty() }), at))
}

fn name_of(expr: &tree::Expr) -> tree::ObjectName {
    let idents = match expr {
        tree::Expr::Identifier(ident) => vec![ident.clone()],
        tree::Expr::CompoundIdentifier(idents) => idents.clone(),
        _ => Vec::new(),
    };
    tree::ObjectName(idents.into_iter().map(tree::ObjectNamePart::Identifier).collect())
}

/// Whether entries of the operator class have the order that all indexes have: texts are compared as bytes.
fn is_usual_class(class: &tree::ObjectName) -> bool {
    let name = class.to_string().to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    name.strip_suffix("_pattern_ops").is_some_and(|ty| matches!(ty, "text" | "varchar" | "bpchar"))
        || name.strip_suffix("_ops").is_some_and(|ty| {
            let types =
                ["text", "varchar", "bpchar", "int2", "int4", "int8", "uuid", "date", "timestamp", "timestamptz"];
            types.contains(&ty) || matches!(ty, "numeric" | "bool" | "bytea" | "float8" | "time")
        })
}

/// Whether the word is DEFAULT in the place of a value.
pub(super) fn is_default(ident: &tree::Ident) -> bool {
    ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default")
}
