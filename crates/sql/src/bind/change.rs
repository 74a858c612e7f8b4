//! INSERT, UPDATE and DELETE.

use lodestone_sql_types::{Datum, Error, Result, SqlState};

use super::Binder;
use super::access::with_access;
use super::expr::Typed;
use super::from::columns_of;
use super::scope::Scope;
use crate::catalog::TableDef;
use crate::parse::ast::{self, Body, Item, NOWHERE, Name, ObjectName, Source};
use crate::plan::{Action, Change, Expr, Node, OutputColumn, Scan};

type Bound = Result<(Action, Vec<OutputColumn>)>;

impl Binder<'_> {
    /// The value of a column that the statement does not name.
    pub(super) fn default_of(&mut self, table: &TableDef, column: usize) -> Result<Expr> {
        let Some(default) = &table.columns[column].default else { return Ok(Expr::Const(Datum::Null)) };
        let typed = self.expr(&default.expr, &Scope::default())?;
        self.assign(typed, table, column, NOWHERE)
    }

    pub(super) fn insert(
        &mut self,
        name: &ObjectName,
        columns: &[Name],
        source: &Source,
        skips_duplicates: bool,
        returning: &[Item],
    ) -> Bound {
        let table = self.table(name)?;
        let mut targets = Vec::new();
        for column in columns {
            let number = self.column_of(&table, column)?;
            if targets.contains(&number) {
                let message = format!("column \"{}\" specified more than once", column.value);
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message).at(column.at));
            }
            targets.push(number);
        }
        if columns.is_empty() {
            targets = (0..table.columns.len()).collect();
        }
        let input = match source {
            Source::Defaults => {
                let row = (0..table.columns.len()).map(|column| self.default_of(&table, column));
                Node::Values(vec![row.collect::<Result<_>>()?])
            }
            Source::Query(query) => match &query.body {
                Body::Values(rows) if query.order_by.is_empty() && query.limit.is_none() && query.offset.is_none() => {
                    let rows = rows.iter().map(|row| self.inserted_row(&table, &targets, !columns.is_empty(), row));
                    Node::Values(rows.collect::<Result<_>>()?)
                }
                _ => self.inserted_query(&table, &targets, !columns.is_empty(), query)?,
            },
        };
        let (returned, output) = self.returning(&table, &table.name, returning)?;
        Ok((Action::Change(Change::Insert { table, input, skips_duplicates }, returned), output))
    }

    fn check_count(&self, given: usize, targets: usize, is_named: bool, at: ast::Position) -> Result<()> {
        let message = match () {
            () if given > targets => "INSERT has more expressions than target columns",
            () if given < targets && is_named => "INSERT has more target columns than expressions",
            () => return Ok(()),
        };
        Err(Error::new(SqlState::SYNTAX_ERROR, message).at(at))
    }

    fn inserted_row(
        &mut self,
        table: &TableDef,
        targets: &[usize],
        is_named: bool,
        row: &[ast::Expr],
    ) -> Result<Vec<Expr>> {
        let at = row.last().map_or(NOWHERE, ast::Expr::at);
        self.check_count(row.len(), targets.len(), is_named, at)?;
        let mut values = vec![None; table.columns.len()];
        for (expr, target) in row.iter().zip(targets) {
            if matches!(expr, ast::Expr::Column(names, _) if names[..] == ["default"]) {
                continue;
            }
            let typed = self.expr(expr, &Scope::default())?;
            values[*target] = Some(self.assign(typed, table, *target, expr.at())?);
        }
        let value = |(column, value): (usize, Option<Expr>)| value.map_or_else(|| self.default_of(table, column), Ok);
        values.into_iter().enumerate().map(value).collect()
    }

    fn inserted_query(
        &mut self,
        table: &TableDef,
        targets: &[usize],
        is_named: bool,
        query: &ast::Query,
    ) -> Result<Node> {
        let (node, columns) = self.query(query, None)?;
        self.check_count(columns.len(), targets.len(), is_named, NOWHERE)?;
        let mut values = vec![None; table.columns.len()];
        for (index, (column, target)) in columns.iter().zip(targets).enumerate() {
            let typed = Typed { expr: Expr::Column { depth: 0, index }, ty: column.ty, modifier: column.modifier };
            values[*target] = Some(self.assign(typed, table, *target, NOWHERE)?);
        }
        let value = |(column, value): (usize, Option<Expr>)| value.map_or_else(|| self.default_of(table, column), Ok);
        let columns = values.into_iter().enumerate().map(value).collect::<Result<_>>()?;
        Ok(Node::Project { input: Box::new(node), columns })
    }

    /// The rows of a table that a condition selects.
    fn target(
        &mut self,
        table: &std::sync::Arc<TableDef>,
        filter: Option<&ast::Expr>,
        scope: &Scope<'_>,
    ) -> Result<Scan> {
        let mut conditions = Vec::new();
        if let Some(filter) = filter {
            self.condition(filter, scope, "WHERE")?.conjuncts(&mut conditions);
        }
        Ok(with_access(table.clone(), conditions, true))
    }

    pub(super) fn update(
        &mut self,
        name: &ObjectName,
        alias: Option<String>,
        set: &[(Name, Option<ast::Expr>)],
        filter: Option<&ast::Expr>,
        returning: &[Item],
    ) -> Bound {
        let table = self.table(name)?;
        let shown = alias.unwrap_or_else(|| name.name.clone());
        let scope = Scope { columns: columns_of(&table, &shown), parent: None };
        let mut assigned: Vec<(usize, Expr)> = Vec::new();
        for (column, value) in set {
            let number = self.column_of(&table, column)?;
            if assigned.iter().any(|(other, _)| *other == number) {
                let message = format!("multiple assignments to same column \"{}\"", column.value);
                return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(column.at));
            }
            let value = match value {
                None => self.default_of(&table, number)?,
                Some(expr) => {
                    let typed = self.expr(expr, &scope)?;
                    self.assign(typed, &table, number, expr.at())?
                }
            };
            assigned.push((number, value));
        }
        let scan = self.target(&table, filter, &scope)?;
        let (returned, output) = self.returning(&table, &shown, returning)?;
        Ok((Action::Change(Change::Update { scan, set: assigned }, returned), output))
    }

    pub(super) fn delete(
        &mut self,
        name: &ObjectName,
        alias: Option<String>,
        filter: Option<&ast::Expr>,
        returning: &[Item],
    ) -> Bound {
        let table = self.table(name)?;
        let shown = alias.unwrap_or_else(|| name.name.clone());
        let scope = Scope { columns: columns_of(&table, &shown), parent: None };
        let scan = self.target(&table, filter, &scope)?;
        let (returned, output) = self.returning(&table, &shown, returning)?;
        Ok((Action::Change(Change::Delete { scan }, returned), output))
    }

    fn returning(
        &mut self,
        table: &TableDef,
        shown: &str,
        items: &[Item],
    ) -> Result<(Option<Vec<Expr>>, Vec<OutputColumn>)> {
        if items.is_empty() {
            return Ok((None, Vec::new()));
        }
        let scope = Scope { columns: columns_of(table, shown), parent: None };
        let (exprs, columns) = self.returned(items, &scope)?;
        Ok((Some(exprs), columns))
    }
}
