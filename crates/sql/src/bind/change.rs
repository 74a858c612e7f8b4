//! INSERT, UPDATE and DELETE.

use std::sync::Arc;

use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::access::with_access;
use super::expr::Typed;
use super::family::Changed;
use super::scope::{Scope, ScopeColumn};
use super::view::{Kind, Target};
use crate::catalog::{IdentityKind, TableDef};
use crate::locks::Mode;
use crate::parse::ast::{
    self, Body, Conflict, ConflictTarget, Item, NOWHERE, Name, ObjectName, Overriding, Source, TableRef,
};
use crate::plan::{self, Access, Action, Change, Expr, Node, OutputColumn, Scan};

pub(super) type Bound = Result<(Action, Vec<OutputColumn>)>;

/// The columns that are set, with their values; `None` is DEFAULT.
pub(super) type Set = [(Name, Option<ast::Expr>)];

/// The parts of an INSERT.
pub(super) struct Insert<'i> {
    pub columns: &'i [Name],
    pub source: &'i Source,
    pub overriding: Option<Overriding>,
    pub conflict: Option<&'i Conflict>,
}

/// The rows that an INSERT may have: the columns that it names.
struct Targets {
    columns: Vec<usize>,
    /// Places of columns of a view that take no values, and why.
    refused: Vec<(usize, Error)>,
    is_named: bool,
    overriding: Option<Overriding>,
}

impl Binder<'_> {
    /// The value of a column that the statement does not name.
    pub(super) fn default_of(&mut self, table: &TableDef, column: usize) -> Result<Expr> {
        let Some(default) = table.columns[column].effective_default() else { return Ok(Expr::Const(Datum::Null)) };
        let typed = self.expr(&default.expr, &Scope::default())?;
        self.assign(typed, table, column, NOWHERE)
    }

    /// Refuses a value for a column that takes none of the user.
    fn refuse_generated(&self, table: &TableDef, column: usize, verb: &str) -> Result<()> {
        let column = &table.columns[column];
        if column.is_generated {
            let message = match verb {
                "insert" => format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name),
                _ => format!("column \"{}\" can only be updated to DEFAULT", column.name),
            };
            return Err(Error::new(SqlState::GENERATED_ALWAYS, message)
                .detail(format!("Column \"{}\" is a generated column.", column.name)));
        }
        if column.identity != Some(IdentityKind::Always) {
            return Ok(());
        }
        let detail = format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name);
        Err(match verb {
            "insert" => Error::new(
                SqlState::GENERATED_ALWAYS,
                format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name),
            )
            .detail(detail)
            .hint("Use OVERRIDING SYSTEM VALUE to override."),
            _ => Error::new(
                SqlState::GENERATED_ALWAYS,
                format!("column \"{}\" can only be updated to DEFAULT", column.name),
            )
            .detail(detail),
        })
    }

    pub(super) fn insert(
        &mut self,
        name: &ObjectName,
        alias: Option<String>,
        parts: &Insert<'_>,
        returning: &[Item],
    ) -> Bound {
        let view = self.view_named(name);
        let view = view.map(|view| self.view_target(&view, Kind::Insert, false)).transpose()?;
        let table = match &view {
            Some(view) => view.table.clone(),
            None => self.table(name)?,
        };
        let targets = self.targets(&table, view.as_ref().map(|view| (view, name.name.as_str())), parts)?;
        let input = match parts.source {
            Source::Defaults => {
                let row = (0..table.columns.len()).map(|column| self.default_of(&table, column));
                Node::Values(vec![row.collect::<Result<_>>()?])
            }
            Source::Query(query) => match &query.body {
                Body::Values(rows)
                    if query.with.is_empty()
                        && query.order_by.is_empty()
                        && query.limit.is_none()
                        && query.offset.is_none() =>
                {
                    let rows = rows.iter().map(|row| self.inserted_row(&table, &targets, row, &Scope::default()));
                    Node::Values(rows.collect::<Result<_>>()?)
                }
                _ => self.inserted_query(&table, &targets, query)?,
            },
        };
        let shown = alias.unwrap_or_else(|| name.name.clone());
        let columns =
            view.as_ref().map_or_else(|| self.changed_columns(&table, &table, &shown), |view| view.called(&shown));
        let own = (name.name.as_str(), shown.as_str());
        let conflict =
            parts.conflict.map(|conflict| self.conflict(&table, own, view.as_ref(), conflict)).transpose()?;
        let (returned, output) = self.returning(columns, returning)?;
        let view = view.map(|view| Arc::new(view.rows));
        Ok((Action::Change(Change::Insert { table, input, conflict, view }, returned), output))
    }

    /// The columns of the table that the values of an INSERT are for, perhaps through a view.
    fn targets(&self, table: &TableDef, view: Option<(&Target, &str)>, parts: &Insert<'_>) -> Result<Targets> {
        let mut names: Vec<&str> = Vec::new();
        let mut columns = Vec::new();
        for column in parts.columns {
            let number = match view {
                Some((view, name)) => view.column((name, column)),
                None => self.column_of(table, column),
            };
            let number = match number {
                Err(error) if error.state() == SqlState::UNDEFINED_COLUMN => return Err(error),
                number => number,
            };
            if names.contains(&column.value.as_str()) {
                let message = format!("column \"{}\" specified more than once", column.value);
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).at(column.at));
            }
            names.push(&column.value);
            columns.push(number);
        }
        // A name that is there twice is told before a column that takes no values.
        let mut columns: Vec<usize> = columns.into_iter().collect::<Result<_>>()?;
        let is_named = !columns.is_empty();
        let mut refused = Vec::new();
        match view {
            Some((view, _)) if !is_named => {
                for (place, column) in view.takes().enumerate() {
                    refused.extend(column.as_ref().err().map(|error| (place, error.clone())));
                    columns.push(*column.as_ref().unwrap_or(&0));
                }
            }
            None if !is_named => columns = (0..table.columns.len()).collect(),
            _ => {}
        }
        if view.is_some() {
            // Two columns of the view are the same one of the table.
            for (place, column) in columns.iter().enumerate() {
                let is_refused = |place: &usize| refused.iter().any(|(other, _): &(usize, Error)| other == place);
                if !is_refused(&place) && (0..place).any(|other| columns[other] == *column && !is_refused(&other)) {
                    refused.push((place, twice(&table.columns[*column].name, NOWHERE)));
                }
            }
            refused.sort_by_key(|(place, _)| *place);
        }
        Ok(Targets { columns, refused, is_named, overriding: parts.overriding })
    }

    fn check_count(&self, given: usize, targets: &Targets, at: ast::Position) -> Result<()> {
        if let Some((_, error)) = targets.refused.first().filter(|(place, _)| *place < given) {
            return Err(error.clone());
        }
        let message = match () {
            () if given > targets.columns.len() => "INSERT has more expressions than target columns",
            () if given < targets.columns.len() && targets.is_named => {
                "INSERT has more target columns than expressions"
            }
            () => return Ok(()),
        };
        Err(Error::new(SqlState::SYNTAX_ERROR, message).at(at))
    }

    /// The row that MERGE adds for one of its source.
    pub(super) fn merged_row(&mut self, table: &TableDef, parts: &Insert<'_>, scope: &Scope<'_>) -> Result<Vec<Expr>> {
        let targets = self.targets(table, None, parts)?;
        match parts.source {
            Source::Query(query) => match &query.body {
                Body::Values(rows) => {
                    self.inserted_row(table, &targets, rows.first().map_or(&[], Vec::as_slice), scope)
                }
                _ => Err(Error::unsupported("INSERT of a query in MERGE")),
            },
            Source::Defaults => (0..table.columns.len()).map(|column| self.default_of(table, column)).collect(),
        }
    }

    fn inserted_row(
        &mut self,
        table: &TableDef,
        targets: &Targets,
        row: &[ast::Expr],
        scope: &Scope<'_>,
    ) -> Result<Vec<Expr>> {
        let at = row.last().map_or(NOWHERE, ast::Expr::at);
        self.check_count(row.len(), targets, at)?;
        let mut values = vec![None; table.columns.len()];
        for (expr, target) in row.iter().zip(&targets.columns) {
            if matches!(expr, ast::Expr::Column(names, _) if names[..] == ["default"]) {
                continue;
            }
            match (targets.overriding, table.columns[*target].identity) {
                _ if table.columns[*target].is_generated => self.refuse_generated(table, *target, "insert")?,
                (None, _) => self.refuse_generated(table, *target, "insert")?,
                (Some(Overriding::User), Some(_)) => continue,
                _ => {}
            }
            if matches!(expr, ast::Expr::Assigned { .. }) {
                values[*target] = Some(self.assigned_part(table, *target, expr, scope)?);
                continue;
            }
            let typed = self.expr(expr, scope)?;
            values[*target] = Some(self.assign(typed, table, *target, expr.at())?);
        }
        let value = |(column, value): (usize, Option<Expr>)| value.map_or_else(|| self.default_of(table, column), Ok);
        values.into_iter().enumerate().map(value).collect()
    }

    fn inserted_query(&mut self, table: &TableDef, targets: &Targets, query: &ast::Query) -> Result<Node> {
        self.untyped = Some((self.depth + 1, Vec::new()));
        let found = self.query(query, None);
        let untyped = self.untyped.take().map(|(_, untyped)| untyped).unwrap_or_default();
        let (node, columns) = found?;
        self.check_count(columns.len(), targets, NOWHERE)?;
        let mut values = vec![None; table.columns.len()];
        for (index, (column, target)) in columns.iter().zip(&targets.columns).enumerate() {
            match (targets.overriding, table.columns[*target].identity) {
                _ if table.columns[*target].is_generated => self.refuse_generated(table, *target, "insert")?,
                (None, _) => self.refuse_generated(table, *target, "insert")?,
                (Some(Overriding::User), Some(_)) => continue,
                _ => {}
            }
            let own = Expr::Column { depth: 0, index };
            let typed = if untyped.contains(&index) {
                // A literal is input of the column's type.
                let to = table.columns[*target].ty;
                Typed::new(Expr::Cast { expr: Box::new(own), from: Type::Text, to }, to)
            } else {
                Typed { expr: own, ty: column.ty, modifier: column.modifier }
            };
            values[*target] = Some(self.assign(typed, table, *target, NOWHERE)?);
        }
        let value = |(column, value): (usize, Option<Expr>)| value.map_or_else(|| self.default_of(table, column), Ok);
        let columns = values.into_iter().enumerate().map(value).collect::<Result<_>>()?;
        Ok(Node::Project { input: Box::new(node), columns })
    }

    /// `view`: the rows are those of a view. `relation`, `shown`: its name, and the one that it
    /// has in the statement.
    fn conflict(
        &mut self,
        table: &TableDef,
        (relation, shown): (&str, &str),
        view: Option<&Target>,
        conflict: &Conflict,
    ) -> Result<plan::Conflict> {
        let unmatched = || {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            Error::new(SqlState::INVALID_COLUMN_REFERENCE, message)
        };
        let key = match &conflict.target {
            ConflictTarget::Any => None,
            ConflictTarget::Columns(names) => {
                let mut columns = Vec::new();
                for name in names {
                    let message = format!("column \"{}\" does not exist", name.value);
                    let error = || Error::new(SqlState::UNDEFINED_COLUMN, message).at(name.at);
                    let column = match view {
                        Some(view) => {
                            view.find(&name.value).ok_or_else(error)?;
                            view.column((relation, name)).map_err(|_| unmatched())?
                        }
                        None => table.column(&name.value).ok_or_else(error)?,
                    };
                    if !columns.contains(&column) {
                        columns.push(column);
                    }
                }
                // One that is tested late is refused when there is a row.
                let late = table.late_over(&columns).map(Some);
                Some(late.or_else(|| table.unique_over(&columns)).ok_or_else(unmatched)?)
            }
            ConflictTarget::Constraint(name) => {
                let is_key = view.is_none() && !table.key.is_empty() && table.key_name == name.value;
                let indexes = if view.is_some() { &[][..] } else { &table.indexes };
                let index = indexes.iter().position(|index| index.name == name.value && index.is_key());
                let message = format!("constraint \"{}\" for table \"{relation}\" does not exist", name.value);
                Some(match (is_key, index) {
                    (true, _) => None,
                    (false, Some(index)) => Some(index),
                    _ => return Err(Error::new(SqlState::UNDEFINED_OBJECT, message).at(name.at)),
                })
            }
        };
        let Some((set, filter)) = &conflict.update else { return Ok(plan::Conflict { key, update: None }) };
        let columns =
            |shown: &str| view.map_or_else(|| self.changed_columns(table, table, shown), |view| view.called(shown));
        let (own, mut excluded) = (columns(shown), columns("excluded"));
        // A name without a table means the row that is there.
        excluded.iter_mut().for_each(|column| column.is_hidden = true);
        let plain = Scope { columns: own.into_iter().chain(excluded).collect(), parent: None };
        let of_table;
        let set = match view {
            Some(view) => {
                of_table = view.assignments(relation, set)?;
                &of_table
            }
            None => set,
        };
        let set = self.assigned(table, set, &plain)?;
        let filter = filter.as_ref().map(|filter| self.condition(filter, &plain, "WHERE")).transpose()?;
        let view = view.map(|view| Arc::new(view.rows.clone()));
        Ok(plan::Conflict { key, update: Some(plan::ConflictUpdate { set, filter, view }) })
    }

    /// As [`assigned`](Self::assigned). As in `PostgreSQL`, errors of the condition are told first, then those of
    /// RETURNING, of the values, and of columns that do not take them.
    pub(super) fn assigned_after(
        &mut self,
        table: &TableDef,
        set: &Set,
        scope: &Scope<'_>,
        (filter, returning): (Option<&ast::Expr>, &[Item]),
    ) -> Result<Vec<(usize, Expr)>> {
        self.assigned(table, set, scope).map_err(|error| {
            let values = set.iter().filter_map(|(_, value)| value.as_ref());
            let values: Vec<_> = values.filter(|value| !matches!(value, ast::Expr::Assigned { .. })).collect();
            let first = filter.and_then(|filter| self.condition(filter, scope, "WHERE").err());
            let first = first.or_else(|| self.returning(scope.columns.clone(), returning).err());
            first.or_else(|| values.into_iter().find_map(|value| self.expr(value, scope).err())).unwrap_or(error)
        })
    }

    /// The columns that are set, and their values over `scope`.
    pub(super) fn assigned(&mut self, table: &TableDef, set: &Set, scope: &Scope<'_>) -> Result<Vec<(usize, Expr)>> {
        let mut assigned: Vec<(usize, Expr)> = Vec::new();
        for (column, value) in set {
            let number = self.column_of(table, column)?;
            if assigned.iter().any(|(other, _)| *other == number) {
                return Err(twice(&column.value, column.at));
            }
            let value = match value {
                None => self.default_of(table, number)?,
                Some(expr @ ast::Expr::Assigned { .. }) => {
                    self.refuse_generated(table, number, "update")?;
                    self.assigned_part(table, number, expr, scope)?
                }
                Some(expr) => {
                    self.refuse_generated(table, number, "update")?;
                    let typed = self.expr(expr, scope)?;
                    self.assign(typed, table, number, expr.at())?
                }
            };
            assigned.push((number, value));
        }
        Ok(assigned)
    }

    /// The rows of a table that a condition selects.
    pub(super) fn target(
        &mut self,
        table: &Arc<TableDef>,
        filter: Option<&ast::Expr>,
        scope: &Scope<'_>,
        mode: Mode,
    ) -> Result<Scan> {
        let mut conditions = Vec::new();
        if let Some(filter) = filter {
            self.condition(filter, scope, "WHERE")?.conjuncts(&mut conditions);
        }
        Ok(with_access(table.clone(), conditions, Some(mode)))
    }

    /// The rows of a table with those of others, and the columns of all. `root`: the table that is named.
    pub(super) fn joined(
        &mut self,
        (root, table): (&TableDef, &Arc<TableDef>),
        shown: &str,
        from: &[TableRef],
    ) -> Result<(Node, Vec<ScopeColumn>)> {
        let mut columns = self.changed_columns(root, table, shown);
        if table.hidden.is_some() {
            columns.push(ScopeColumn {
                table: None,
                name: String::new(),
                ty: Type::Int8,
                modifier: -1,
                origin: None,
                is_hidden: true,
                is_outer: false,
                relation: None,
            });
        }
        let scan = Scan {
            table: table.clone(),
            access: Access::All,
            filter: None,
            locks: None,
            wait: crate::parse::ast::LockWait::Wait,
            is_read: false,
            shows_number: table.hidden.is_some(),
        };
        let target = (Node::Scan(Box::new(scan)), columns);
        self.tables_after(Some(target), from, None)
    }

    pub(super) fn update(
        &mut self,
        (name, shown): (&ObjectName, &str),
        set: &Set,
        from: &[TableRef],
        filter: Option<&ast::Expr>,
        returning: &[Item],
    ) -> Bound {
        if let Some(view) = self.view_named(name) {
            return self.change_view((&view, shown), Some(set), from, filter, returning);
        }
        let table = self.table(name)?;
        if self.has_heirs(name, &table) {
            return self.change_family(&table, shown, &Changed { set: Some(set), from, filter, returning });
        }
        if from.is_empty() {
            let scope = Scope { columns: self.changed_columns(&table, &table, shown), parent: None };
            let set = self.assigned_after(&table, set, &scope, (filter, returning))?;
            let scan = self.target(&table, filter, &scope, Mode::NoKeyUpdateRow)?;
            let (returned, output) = self.returning(scope.columns, returning)?;
            return Ok((Action::Change(Change::Update { scan, set }, returned), output));
        }
        let (node, columns) = self.joined((&table, &table), shown, from)?;
        let scope = Scope { columns, parent: None };
        let set = Some(self.assigned_after(&table, set, &scope, (filter, returning))?);
        self.change_joined(table, node, scope, set, filter, returning)
    }

    pub(super) fn delete(
        &mut self,
        (name, shown): (&ObjectName, &str),
        using: &[TableRef],
        filter: Option<&ast::Expr>,
        returning: &[Item],
    ) -> Bound {
        if let Some(view) = self.view_named(name) {
            return self.change_view((&view, shown), None, using, filter, returning);
        }
        let table = self.table(name)?;
        if self.has_heirs(name, &table) {
            return self.change_family(&table, shown, &Changed { set: None, from: using, filter, returning });
        }
        if using.is_empty() {
            let scope = Scope { columns: self.changed_columns(&table, &table, shown), parent: None };
            let scan = self.target(&table, filter, &scope, Mode::UpdateRow)?;
            let (returned, output) = self.returning(scope.columns, returning)?;
            return Ok((Action::Change(Change::Delete { scan }, returned), output));
        }
        let (node, columns) = self.joined((&table, &table), shown, using)?;
        self.change_joined(table, node, Scope { columns, parent: None }, None, filter, returning)
    }

    fn change_joined(
        &mut self,
        table: Arc<TableDef>,
        node: Node,
        scope: Scope<'_>,
        set: Option<Vec<(usize, Expr)>>,
        filter: Option<&ast::Expr>,
        returning: &[Item],
    ) -> Bound {
        let filter = filter.map(|filter| self.condition(filter, &scope, "WHERE")).transpose()?;
        let input = match filter.clone() {
            Some(filter) => self.filter(node, filter),
            None => node,
        };
        let (returned, output) = self.returning(scope.columns, returning)?;
        Ok((Action::Change(Change::Joined { table, input, filter, set, view: None }, returned), output))
    }

    pub(super) fn returning(
        &mut self,
        columns: Vec<ScopeColumn>,
        items: &[Item],
    ) -> Result<(Option<Vec<Expr>>, Vec<OutputColumn>)> {
        if items.is_empty() {
            return Ok((None, Vec::new()));
        }
        let mut columns = columns;
        if let Some(ScopeColumn { table: Some(shown), relation, .. }) = columns.first().cloned() {
            columns.extend(self.oid_column(&shown).map(|column| ScopeColumn { relation, ..column }));
        }
        let scope = Scope { columns, parent: None };
        let (exprs, columns) = self.returned(items, &scope)?;
        Ok((Some(exprs), columns))
    }
}

/// The error of a column that gets two values.
fn twice(column: &str, at: ast::Position) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, format!("multiple assignments to same column \"{column}\"")).at(at)
}
