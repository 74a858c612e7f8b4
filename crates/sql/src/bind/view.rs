//! Views as targets of changes.
//!
//! A view of one table whose rows are rows of that table takes changes, which are changes of the table. `PostgreSQL`
//! calls it automatically updatable; its table may be a view of the same kind.
//!
//! The row at hand of such a change is wider than that of its table: the columns of the table, its hidden number if it
//! has one, then the columns of each view, the innermost first. Only those of the view that the statement names have
//! names. So conditions, values and RETURNING are bound over one row, whatever the views compute.

use std::ops::Range;
use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState, Type};

use super::change::{Bound, Set};
use super::from::{columns_of, renamed};
use super::query::Shown;
use super::scope::{Relation, Scope, ScopeColumn};
use super::window::Extras;
use super::{Binder, access, aggregate, family};
use crate::catalog::{Catalog, CheckOption, TableDef, ViewDef};
use crate::parse::ast::{self, Alias, Body, Distinct, Item, Literal, Name, ObjectName, Query, Select, TableRef};
use crate::plan::{Action, Change, Expr, Node, Scan, ViewRows};

/// Why a view takes no changes, as `PostgreSQL` tells it.
type Reason = &'static str;

const NO_COLUMNS: Reason = "Views that have no updatable columns are not automatically updatable.";
const NOT_SINGLE: Reason = "Views that do not select from a single table or view are not automatically updatable.";

/// The change of a view.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Update,
    Delete,
}

impl Kind {
    fn verb(self) -> &'static str {
        match self {
            Self::Insert => "insert into",
            Self::Update => "update",
            Self::Delete => "delete from",
        }
    }

    /// The error of a view that does not take the change.
    fn refusal(self, view: &ViewDef, why: Reason) -> Error {
        let message = format!("cannot {} view \"{}\"", self.verb(), view.name);
        let (doing, event) = match self {
            Self::Insert => ("inserting into", "INSERT"),
            Self::Update => ("updating", "UPDATE"),
            Self::Delete => ("deleting from", "DELETE"),
        };
        let hint = format!(
            "To enable {doing} the view, provide an INSTEAD OF {event} trigger or an unconditional ON {event} DO \
             INSTEAD rule."
        );
        Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).detail(why).hint(hint)
    }
}

/// A view whose rows are to be changed.
pub(super) struct Target {
    pub table: Arc<TableDef>,
    /// The columns of the row at hand.
    pub columns: Vec<ScopeColumn>,
    /// Of each column of the row the column of the table that it is, or why it takes no values.
    base: Vec<Result<usize>>,
    /// Where the columns that have names are.
    visible: Range<usize>,
    pub rows: ViewRows,
    /// Schema and name of the table or of the last view.
    relation: (String, String),
    /// Where the columns of each view begin among those of all views.
    levels: Vec<usize>,
    /// The conditions of the views.
    filters: Vec<Expr>,
    is_only: bool,
}

impl Target {
    /// The columns that have names, as what they take.
    pub fn takes(&self) -> impl Iterator<Item = &Result<usize>> {
        self.base[self.visible.clone()].iter()
    }

    /// The number of a column of the view.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.columns[self.visible.clone()].iter().position(|column| column.name == name)
    }

    /// The column of the table that a column of the view is.
    ///
    /// # Errors
    /// 42703; 0A000 for a column that takes no values.
    pub fn column(&self, (view, name): (&str, &Name)) -> Result<usize> {
        let missing = || {
            let message = format!("column \"{}\" of relation \"{view}\" does not exist", name.value);
            Error::new(SqlState::UNDEFINED_COLUMN, message).at(name.at)
        };
        let place = self.find(&name.value).ok_or_else(missing)?;
        self.base[self.visible.start + place].clone()
    }

    /// The columns under the name that the view has in the statement.
    pub fn called(&self, shown: &str) -> Vec<ScopeColumn> {
        let mut columns = self.columns.clone();
        let relation = Relation {
            schema: Some(self.relation.0.clone()),
            name: self.relation.1.clone(),
            is_aliased: self.relation.1 != shown,
            is_visible: true,
        };
        let relation = Some(Arc::new(relation));
        for column in &mut columns[self.visible.clone()] {
            column.table = Some(shown.to_owned());
            column.relation = relation.clone();
        }
        columns
    }

    /// The assignments as those to columns of the table. A view has no defaults, so DEFAULT is a null, as in
    /// `PostgreSQL`.
    pub fn assignments(&self, view: &str, set: &Set) -> Result<Vec<(Name, Option<ast::Expr>)>> {
        let assignment = |(name, value): &(Name, Option<ast::Expr>)| {
            let column = self.column((view, name))?;
            let name = Name { value: self.table.columns[column].name.clone(), at: name.at };
            let value = value.clone().unwrap_or(ast::Expr::Literal(Literal::Null, name.at));
            Ok((name, Some(value)))
        };
        set.iter().map(assignment).collect()
    }

    /// The expression with columns of the table, where columns of a view are nothing else.
    fn resolved(&self, mut expr: Expr) -> Expr {
        expr.walk_mut(&mut |part| {
            if let Expr::Column { depth: 0, index } = part
                && let Some(Ok(column)) = self.base.get(*index)
            {
                *index = *column;
            }
        });
        expr
    }

    /// The rows at hand that fulfil the conditions. Those over the table alone choose its rows.
    fn rows(&self, conditions: Vec<Expr>) -> Node {
        let own = self.table.columns.len() + usize::from(self.table.hidden.is_some());
        let is_inside = |condition: &Expr| {
            let is_own = condition.column_range().is_none_or(|(_, most)| most < own);
            is_own && !condition.has_subquery() && !condition.is_volatile()
        };
        let (inside, rest): (Vec<Expr>, Vec<Expr>) = conditions.into_iter().partition(is_inside);
        let scan = Scan { shows_number: self.table.hidden.is_some(), ..family::all_rows(self.table.clone()) };
        let mut node = access::push(Node::Scan(Box::new(scan)), inside);
        let mut done = own;
        // A column may name those of the views below it, so each view is a projection of its own.
        let ends = self.levels.iter().skip(1).copied().chain([self.rows.columns.len()]);
        for (start, end) in self.levels.iter().zip(ends) {
            let level = &self.rows.columns[*start..end];
            let columns = (0..done).map(|index| Expr::Column { depth: 0, index }).chain(level.iter().cloned());
            node = Node::Project { input: Box::new(node), columns: columns.collect() };
            done += level.len();
        }
        match Expr::all(rest) {
            Some(filter) => Node::Filter { input: Box::new(node), filter },
            None => node,
        }
    }
}

/// The one table of a view that takes changes. Its columns are not looked at.
fn single_table(query: &Query) -> std::result::Result<(&Select, &ObjectName, &Alias), Reason> {
    let select = match &query.body {
        Body::Select(select) => select,
        Body::Set { .. } => {
            return Err("Views containing UNION, INTERSECT, or EXCEPT are not automatically updatable.");
        }
        Body::Query(inner) => {
            let found = single_table(inner)?;
            return around(query).map_or(Ok(found), Err);
        }
        Body::Values(_) => return Err(NOT_SINGLE),
    };
    let has_aggregate = select.items.iter().any(|item| match item {
        Item::Expr(expr, _) => aggregate::has_aggregate(expr),
        _ => false,
    });
    let why = match () {
        () if select.distinct != Distinct::All => Some("Views containing DISTINCT are not automatically updatable."),
        () if !select.group_by.is_empty() => Some("Views containing GROUP BY are not automatically updatable."),
        () if select.having.is_some() => Some("Views containing HAVING are not automatically updatable."),
        () => around(query),
    };
    match (why, &select.from[..]) {
        (Some(why), _) => Err(why),
        (None, _) if has_aggregate => Err("Views that return aggregate functions are not automatically updatable."),
        (None, [TableRef::Table { name, alias }]) => Ok((select, name, alias)),
        (None, [TableRef::Sample(_)]) => Err("Views containing TABLESAMPLE are not automatically updatable."),
        (None, _) => Err(NOT_SINGLE),
    }
}

/// The clause around a SELECT for which its rows are not those of the table.
fn around(query: &Query) -> Option<Reason> {
    match () {
        () if !query.with.is_empty() => Some("Views containing WITH are not automatically updatable."),
        () if query.limit.is_some() || query.offset.is_some() => {
            Some("Views containing LIMIT or OFFSET are not automatically updatable.")
        }
        () => None,
    }
}

/// The changes that a relation takes, as `pg_relation_is_updatable` counts them (4 UPDATE, 8 INSERT, 16 DELETE), and
/// which columns take values.
pub fn events(catalog: &Catalog, view: &ViewDef) -> (i32, Vec<bool>) {
    let mut binder = Binder::new(catalog);
    // A view without updatable columns takes DELETE.
    match binder.view_target(view, Kind::Delete, false) {
        Ok(target) => {
            let columns: Vec<bool> = target.takes().map(Result::is_ok).collect();
            (if columns.contains(&true) { 28 } else { 16 }, columns)
        }
        Err(error) if error.state() == SqlState::INSUFFICIENT_PRIVILEGE => (28, vec![true; view.columns.len()]),
        Err(_) => (0, vec![false; view.columns.len()]),
    }
}

/// Refuses WITH CHECK OPTION of a view that takes no changes itself. The views below it are not looked at.
///
/// # Errors
/// 0A000.
pub fn refuse_check_option(catalog: &Catalog, view: &ViewDef) -> Result<()> {
    let catalog = catalog.with_path(view.path.clone());
    let mut binder = Binder::new(&catalog);
    let reason = match single_table(&view.query) {
        Err(why) => Some(why),
        Ok((select, name, _)) => {
            let (_, columns) = binder.from(&select.from, None)?;
            let full = catalog.resolve(name.schema.as_deref(), &name.name).unwrap_or_default();
            match binder.columns_shown(select, &Scope { columns, parent: None })? {
                _ if catalog.sequences.contains_key(&full) => Some(NOT_SINGLE),
                Err(why) => Some(why),
                Ok(shown) if !shown.iter().any(is_plain) => Some(NO_COLUMNS),
                Ok(_) => None,
            }
        }
    };
    let Some(why) = reason else { return Ok(()) };
    let message = "WITH CHECK OPTION is supported only on automatically updatable views";
    Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).hint(why))
}

impl Binder<'_> {
    /// The view that a statement names.
    pub(super) fn view_named(&self, name: &ObjectName) -> Option<Arc<ViewDef>> {
        let full = self.catalog.resolve(name.schema.as_deref(), &name.name)?;
        self.catalog.views.get(&full).cloned()
    }

    /// The columns that a view shows of its one table.
    fn columns_shown(&mut self, select: &Select, scope: &Scope<'_>) -> Result<std::result::Result<Vec<Shown>, Reason>> {
        self.extras = Some(Extras::new(select.windows.clone()));
        let shown = self.items(&select.items, scope);
        let extras = self.extras.take();
        let shown = shown?;
        Ok(match extras.as_ref().and_then(Extras::lock_obstacle) {
            Some("window functions") => Err("Views that return window functions are not automatically updatable."),
            Some(_) => Err("Views that return set-returning functions are not automatically updatable."),
            None => Ok(shown),
        })
    }

    /// The rows of a view, to change them. `is_cascaded`: a view above it tests new rows by its condition too.
    ///
    /// # Errors
    /// 55000 for a view that does not take the change.
    pub(super) fn view_target(&mut self, view: &ViewDef, kind: Kind, is_cascaded: bool) -> Result<Target> {
        let (select, name, alias) = single_table(&view.query).map_err(|why| kind.refusal(view, why))?;
        self.depth += 1;
        if self.depth > super::DEPTH_MAX {
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded"));
        }
        let catalog = self.catalog.with_path(view.path.clone());
        let mut inner = Binder { depth: self.depth, work_count: self.work_count, ..Binder::new(&catalog) };
        let is_cascaded = is_cascaded || view.check_option() == Some(CheckOption::Cascaded);
        let below = inner.target_below(view, (name, alias), kind, is_cascaded);
        let found = below.and_then(|below| inner.view_over(view, select, below, (kind, is_cascaded)));
        self.work_count = inner.work_count;
        self.depth -= 1;
        found
    }

    /// The table or view of a view, under its name there.
    fn target_below(
        &mut self,
        view: &ViewDef,
        (name, alias): (&ObjectName, &Alias),
        kind: Kind,
        is_cascaded: bool,
    ) -> Result<Target> {
        let shown = alias.name.as_ref().unwrap_or(&name.name);
        let mut target = match self.view_named(name) {
            Some(below) => self.view_target(&below, kind, is_cascaded)?,
            None => {
                let full = self.catalog.resolve(name.schema.as_deref(), &name.name).unwrap_or_default();
                if self.catalog.sequences.contains_key(&full) {
                    return Err(kind.refusal(view, NOT_SINGLE));
                }
                self.table_target(self.table(name)?, name.is_only)
            }
        };
        target.columns = target.called(shown);
        let visible = renamed(target.columns[target.visible.clone()].to_vec(), alias)?;
        target.columns.splice(target.visible.clone(), visible);
        Ok(target)
    }

    fn table_target(&self, table: Arc<TableDef>, is_only: bool) -> Target {
        let mut columns = columns_of(&table, "");
        let mut base: Vec<Result<usize>> = (0..columns.len()).map(Ok).collect();
        let visible = 0..columns.len();
        if table.hidden.is_some() {
            columns.push(hidden(Type::Int8));
            base.push(Err(Error::new(SqlState::INTERNAL_ERROR, "the number of a row is no column")));
        }
        let rows = ViewRows::default();
        let relation = (table.schema.clone(), table.name.clone());
        Target { table, columns, base, visible, rows, relation, levels: Vec::new(), filters: Vec::new(), is_only }
    }

    /// A view over the rows below it.
    fn view_over(
        &mut self,
        view: &ViewDef,
        select: &Select,
        mut target: Target,
        (kind, is_cascaded): (Kind, bool),
    ) -> Result<Target> {
        let scope = Scope { columns: target.columns.clone(), parent: None };
        let shown = self.columns_shown(select, &scope)?.map_err(|why| kind.refusal(view, why))?;
        if shown.len() != view.columns.len() {
            let message = format!("the view \"{}\" has other columns than when it was made", view.name);
            return Err(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message));
        }
        if let Some(filter) = &select.filter {
            let filter = target.resolved(self.condition(filter, &scope, "WHERE")?);
            if kind != Kind::Delete && (is_cascaded || view.check_option().is_some()) {
                target.rows.checks.push((view.name.clone(), filter.clone()));
            }
            filter.conjuncts(&mut target.filters);
        }
        for column in &mut target.columns {
            *column = hidden(column.ty);
        }
        let (start, first) = (target.columns.len(), target.rows.columns.len());
        let takes_values = shown.iter().any(is_plain);
        for ((shown, (name, ty, modifier)), number) in shown.into_iter().zip(&view.columns).zip(1..) {
            let base = match &shown.typed.expr {
                Expr::Column { depth: 0, index } => target.base[*index].clone(),
                _ => {
                    let why = "View columns that are not columns of their base relation are not updatable.";
                    let message = format!("cannot {} column \"{name}\" of view \"{}\"", kind.verb(), view.name);
                    Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).detail(why))
                }
            };
            target.base.push(base);
            let value = self.known(shown.typed).expr;
            target.rows.columns.push(target.resolved(value));
            target.columns.push(ScopeColumn {
                table: Some(view.name.clone()),
                name: name.clone(),
                modifier: *modifier,
                origin: Some((view.oid, number)),
                is_hidden: false,
                ..hidden(*ty)
            });
        }
        target.levels.push(first);
        target.visible = start..target.columns.len();
        target.relation = (view.schema.clone(), view.name.clone());
        if kind != Kind::Delete && !takes_values {
            return Err(kind.refusal(view, NO_COLUMNS));
        }
        Ok(target)
    }

    /// UPDATE or DELETE of a view.
    pub(super) fn change_view(
        &mut self,
        (view, shown): (&ViewDef, &str),
        set: Option<&Set>,
        from: &[TableRef],
        filter: Option<&ast::Expr>,
        returning: &[Item],
    ) -> Bound {
        let kind = if set.is_some() { Kind::Update } else { Kind::Delete };
        let target = self.view_target(view, kind, false)?;
        let table = target.table.clone();
        if !target.is_only && (table.partition_by.is_some() || !self.catalog.heirs(table.oid).is_empty()) {
            let what = if set.is_some() { "UPDATE" } else { "DELETE" };
            return Err(Error::unsupported(format!("{what} of a view of a table with others below it")));
        }
        let set = set.map(|set| target.assignments(&view.name, set)).transpose()?;
        let (node, columns) = match from {
            [] => (None, target.called(shown)),
            _ => {
                let own = (target.rows(target.filters.clone()), target.called(shown));
                let (node, columns) = self.tables_after(Some(own), from, None)?;
                (Some(node), columns)
            }
        };
        let scope = Scope { columns, parent: None };
        let set = set.map(|set| self.assigned_after(&table, &set, &scope, (filter, returning))).transpose()?;
        let mut conditions = Vec::new();
        if let Some(filter) = filter {
            target.resolved(self.condition(filter, &scope, "WHERE")?).conjuncts(&mut conditions);
        }
        let all: Vec<Expr> = target.filters.iter().cloned().chain(conditions.clone()).collect();
        let filter = Expr::all(all.clone());
        let input = match node {
            Some(node) => access::push(node, conditions),
            None => target.rows(all),
        };
        let (returned, output) = self.returning(scope.columns, returning)?;
        let view = Some(Arc::new(target.rows));
        Ok((Action::Change(Change::Joined { table, input, filter, set, view }, returned), output))
    }
}

/// Whether a column is one of the relation below. It counts also if a view there takes no values for it.
fn is_plain(shown: &Shown) -> bool {
    matches!(shown.typed.expr, Expr::Column { depth: 0, .. })
}

/// A column that no name means.
fn hidden(ty: Type) -> ScopeColumn {
    ScopeColumn {
        table: None,
        name: String::new(),
        ty,
        modifier: -1,
        origin: None,
        is_hidden: true,
        is_outer: false,
        relation: None,
    }
}
