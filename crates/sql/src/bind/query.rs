//! Queries: the order of their parts.
//!
//! FROM, WHERE, groups, HAVING, columns, DISTINCT, ORDER BY, LIMIT. Columns of an order that are not shown are computed
//! beside the others and taken away at the end.

use lodestone_sql_types::cast::Context;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::aggregate::{Grouping, SET_KEYS_MAX, has_aggregate};
use super::expr::Typed;
use super::scope::{Scope, ScopeColumn};
use super::window::Extras;
use super::{Binder, DEPTH_MAX};
use crate::parse::ast::{self, Body, Distinct, GroupBy, Item, NOWHERE, Order, Query, Select};
use crate::plan::{Expr, Node, OutputColumn, SortKey};

/// A column of a query that is being bound.
pub(super) struct Shown {
    pub typed: Typed,
    name: String,
    origin: Option<(u32, i16)>,
    /// The expression as it was written, to find it in GROUP BY and ORDER BY.
    written: Option<ast::Expr>,
}

impl Binder<'_> {
    /// Binds a query inside `parent`.
    pub fn query(&mut self, query: &Query, parent: Option<&Scope<'_>>) -> Result<(Node, Vec<OutputColumn>)> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded"));
        }
        let grouping = self.grouping.take();
        let extras = self.extras.take();
        let numbered = std::mem::take(&mut self.numbered);
        if query.with.iter().any(|with| with.change.is_some() && !self.has_kept(&with.name.value)) {
            let message = "WITH clause containing a data-modifying statement must be at the top level";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let level = self.with.len();
        self.with_depths.insert(level, parent.map_or(0, Scope::depth));
        let with = self.numbered_with(query);
        self.with.push(with);
        let found = self.query_inside(query, parent);
        self.with.pop();
        self.with_depths.remove(&level);
        self.grouping = grouping;
        self.extras = extras;
        self.numbered = numbered;
        self.depth -= 1;
        found
    }

    fn query_inside(&mut self, query: &Query, parent: Option<&Scope<'_>>) -> Result<(Node, Vec<OutputColumn>)> {
        let (node, columns) = match &query.body {
            Body::Select(select) => self.select(select, query, parent)?,
            Body::Query(inner) => {
                let (node, columns) = self.query(inner, parent)?;
                self.sort_output(node, columns, &query.order_by)?
            }
            body => {
                let (node, columns) = self.body(body, parent)?;
                self.sort_output(node, columns, &query.order_by)?
            }
        };
        if let Some(lock) = query.locks.first() {
            match &query.body {
                Body::Select(_) => {}
                Body::Set { .. } => return Err(super::locking::not_allowed(lock, "UNION/INTERSECT/EXCEPT")),
                _ => return Err(Error::unsupported(format!("{} of this query", lock.strength))),
            }
        }
        let node = self.limit(node, query, parent)?;
        Ok((node, columns))
    }

    fn body(&mut self, body: &Body, parent: Option<&Scope<'_>>) -> Result<(Node, Vec<OutputColumn>)> {
        match body {
            Body::Select(_) => {
                let query = Query {
                    with: Vec::new(),
                    body: body.clone(),
                    order_by: Vec::new(),
                    limit: None,
                    has_ties: false,
                    offset: None,
                    locks: Vec::new(),
                };
                self.query(&query, parent)
            }
            Body::Query(query) => self.query(query, parent),
            Body::Values(rows) => self.values(rows, parent),
            Body::Set { op, is_all, left, right } => {
                let ((left, one), (right, two)) = (self.body(left, parent)?, self.body(right, parent)?);
                if one.len() != two.len() {
                    let name = match op {
                        ast::SetOperation::Union => "UNION",
                        ast::SetOperation::Intersect => "INTERSECT",
                        ast::SetOperation::Except => "EXCEPT",
                    };
                    let message = format!("each {name} query must have the same number of columns");
                    return Err(Error::new(SqlState::SYNTAX_ERROR, message));
                }
                let (mut casts_left, mut casts_right, mut columns) = (Vec::new(), Vec::new(), Vec::new());
                for (index, (one, two)) in one.into_iter().zip(two).enumerate() {
                    let of = |ty| Typed::new(Expr::Column { depth: 0, index }, ty);
                    let (mut list, ty) = self.unify(vec![of(one.ty), of(two.ty)], "UNION", NOWHERE)?;
                    casts_right.extend(list.pop());
                    casts_left.extend(list.pop());
                    columns.push(OutputColumn { ty, modifier: -1, origin: None, ..one });
                }
                let cast = |input, columns| Box::new(Node::Project { input: Box::new(input), columns });
                let (left, right) = (cast(left, casts_left), cast(right, casts_right));
                Ok((Node::Set { op: *op, is_all: *is_all, left, right }, columns))
            }
        }
    }

    fn values(&mut self, rows: &[Vec<ast::Expr>], parent: Option<&Scope<'_>>) -> Result<(Node, Vec<OutputColumn>)> {
        let scope = Scope::inside(parent);
        let width = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != width) {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        let mut bound = vec![Vec::new(); rows.len()];
        let mut columns = Vec::new();
        for number in 0..width {
            let column = rows.iter().map(|row| self.expr(&row[number], &scope)).collect::<Result<Vec<_>>>()?;
            let (list, ty) = self.unify(column, "VALUES", NOWHERE)?;
            bound.iter_mut().zip(list).for_each(|(row, expr)| row.push(expr));
            columns.push(OutputColumn { name: format!("column{}", number + 1), ty, modifier: -1, origin: None });
        }
        Ok((Node::Values(bound), columns))
    }

    /// The order of a query whose columns are all that can be named.
    fn sort_output(
        &mut self,
        node: Node,
        columns: Vec<OutputColumn>,
        order: &[Order],
    ) -> Result<(Node, Vec<OutputColumn>)> {
        if order.is_empty() {
            return Ok((node, columns));
        }
        let column = |column: &OutputColumn| ScopeColumn {
            table: None,
            name: column.name.clone(),
            ty: column.ty,
            modifier: column.modifier,
            origin: None,
            is_hidden: false,
            is_outer: false,
            relation: None,
        };
        let scope = Scope { columns: columns.iter().map(column).collect(), parent: None };
        let mut keys = Vec::new();
        for order in order {
            let typed = match ordinal(&order.expr, columns.len(), "ORDER BY")? {
                Some(index) => Typed::new(Expr::Column { depth: 0, index }, columns[index].ty),
                None => self.expr(&order.expr, &scope)?,
            };
            keys.push(sort_key(typed, order));
        }
        Ok((Node::Sort { input: Box::new(node), keys }, columns))
    }

    /// Columns of an order inside an aggregate.
    pub fn sort_keys(&mut self, order: &[Order], scope: &Scope<'_>) -> Result<Vec<SortKey>> {
        order.iter().map(|order| self.expr(&order.expr, scope).map(|typed| sort_key(typed, order))).collect()
    }

    /// The expressions of LIMIT and OFFSET.
    pub(super) fn limits(&mut self, query: &Query, parent: Option<&Scope<'_>>) -> Result<(Option<Expr>, Option<Expr>)> {
        let scope = Scope::inside(parent);
        let mut count = |expr: &Option<ast::Expr>| -> Result<Option<Expr>> {
            let Some(expr) = expr else { return Ok(None) };
            // LIMIT ALL is no limit.
            if matches!(expr, ast::Expr::Column(names, _) if names[..] == ["all"]) {
                return Ok(None);
            }
            let typed = self.expr(expr, &scope)?;
            self.coerce(typed, Type::Int8, Context::Assignment, expr.at()).map(|typed| Some(typed.expr))
        };
        Ok((count(&query.limit)?, count(&query.offset)?))
    }

    fn limit(&mut self, node: Node, query: &Query, parent: Option<&Scope<'_>>) -> Result<Node> {
        if query.has_ties && matches!(query.body, Body::Select(_)) {
            // It was limited where its order was known.
            return Ok(node);
        }
        let (limit, offset) = self.limits(query, parent)?;
        if limit.is_none() && offset.is_none() {
            return Ok(node);
        }
        let ties = match &node {
            Node::Sort { keys, .. } if query.has_ties => keys.clone(),
            _ => Vec::new(),
        };
        Ok(Node::Limit { input: Box::new(node), limit, offset, ties })
    }

    fn select(
        &mut self,
        select: &Select,
        query: &Query,
        parent: Option<&Scope<'_>>,
    ) -> Result<(Node, Vec<OutputColumn>)> {
        let locked = self.locked_tables(query, select)?;
        let scan_locks = Self::scan_locks(query, select, &locked);
        if !scan_locks {
            self.refuse_locked_heirs(query, &locked)?;
            self.show_numbers(&locked);
        }
        let (mut node, columns) = self.from(&select.from, parent)?;
        self.numbered.clear();
        let scope = Scope { columns, parent };
        if let Some(filter) = &select.filter {
            if has_aggregate(filter) {
                let message = "aggregate functions are not allowed in WHERE";
                return Err(Error::new(SqlState::GROUPING_ERROR, message).at(filter.at()));
            }
            let filter = self.condition(filter, &scope, "WHERE");
            // An error of the columns is told before one of the condition.
            let filter = filter.map_err(|error| self.error_of_items(select, &scope).unwrap_or(error))?;
            node = super::order::filtered(node, filter);
        }
        if let (true, Some(locked)) = (scan_locks, locked.first()) {
            node = super::access::lock(node, locked.mode, locked.wait)?;
        }
        let is_grouped = !select.group_by.is_empty()
            || select.having.is_some()
            || select.items.iter().any(|item| matches!(item, Item::Expr(expr, _) if has_aggregate(expr)))
            || query.order_by.iter().any(|order| has_aggregate(&order.expr));
        if is_grouped {
            return self.grouped_select(select, query, node, scope);
        }
        self.extras = Some(Extras::new(select.windows.clone()));
        let shown = self.items(&select.items, &scope)?;
        if !scan_locks && !locked.is_empty() {
            let keys = self.keys_below(query, &shown, &scope)?;
            node = self.lock_rows(node, locked, query, keys, &scope)?;
        }
        let (mut finished, columns) = self.finish(select, query, Node::Values(Vec::new()), shown, &scope)?;
        self.refuse_locked_extras(query)?;
        match self.extras.take() {
            Some(extras) => extras.put_into(&mut finished, node, scope.columns.len()),
            None => return Err(Error::new(SqlState::INTERNAL_ERROR, "the windows of a query are lost")),
        }
        Ok((finished, columns))
    }

    /// The first error of the columns, if there is one.
    fn error_of_items(&mut self, select: &Select, scope: &Scope<'_>) -> Option<Error> {
        let found = select.items.iter().find_map(|item| {
            self.extras = Some(Extras::new(select.windows.clone()));
            match item {
                Item::Expr(expr, _) if has_aggregate(expr) => self.error_of_aggregate(select, item, scope),
                _ => self.items(std::slice::from_ref(item), scope).err(),
            }
        });
        self.extras = None;
        found
    }

    /// The error of a column with an aggregate. Whether it fits the groups is looked at later.
    fn error_of_aggregate(&mut self, select: &Select, item: &Item, scope: &Scope<'_>) -> Option<Error> {
        let select = Select {
            items: vec![item.clone()],
            filter: None,
            group_by: GroupBy::default(),
            having: None,
            ..select.clone()
        };
        let bound = self.grouped_select(&select, &Query::empty(), Node::Values(Vec::new()), scope.clone());
        bound.err().filter(|error| error.state() != SqlState::GROUPING_ERROR)
    }

    /// The columns, their order, and what of them is distinct.
    fn finish(
        &mut self,
        select: &Select,
        query: &Query,
        node: Node,
        shown: Vec<Shown>,
        scope: &Scope<'_>,
    ) -> Result<(Node, Vec<OutputColumn>)> {
        let width = shown.len();
        let (mut exprs, mut keys) = (Vec::new(), Vec::new());
        let mut columns = Vec::new();
        let mut hidden: Vec<Expr> = Vec::new();
        for order in &query.order_by {
            let typed = match self.shown_column(&order.expr, &shown)? {
                Some(index) => Typed::new(Expr::Column { depth: 0, index }, shown[index].typed.ty),
                None if select.distinct == Distinct::Rows => {
                    let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                    return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(order.expr.at()));
                }
                None => {
                    let typed = self.expr(&order.expr, scope)?;
                    hidden.push(typed.expr);
                    Typed::new(Expr::Column { depth: 0, index: width + hidden.len() - 1 }, typed.ty)
                }
            };
            keys.push(sort_key(typed, order));
        }
        let mut on = Vec::new();
        if let Distinct::On(list) = &select.distinct {
            for expr in list {
                let index = match self.shown_column(expr, &shown)? {
                    Some(index) => index,
                    None => {
                        hidden.push(self.expr(expr, scope)?.expr);
                        width + hidden.len() - 1
                    }
                };
                on.push(Expr::Column { depth: 0, index });
            }
        }
        for (number, Shown { typed, name, origin, .. }) in shown.into_iter().enumerate() {
            if let (Type::Unknown, Expr::Const(_), Some((depth, found))) = (typed.ty, &typed.expr, &mut self.untyped)
                && *depth == self.depth
            {
                found.push(number);
            }
            let typed = self.known(typed);
            columns.push(OutputColumn { name, ty: typed.ty, modifier: typed.modifier, origin });
            exprs.push(typed.expr);
        }
        let is_wider = !hidden.is_empty();
        exprs.extend(hidden);
        let mut node = Node::Project { input: Box::new(node), columns: exprs };
        let boxed = |node| Box::new(node);
        if select.distinct == Distinct::Rows {
            node = Node::Distinct { input: boxed(node), on: Vec::new() };
        }
        let ties = if query.has_ties { keys.clone() } else { Vec::new() };
        if !keys.is_empty() {
            node = Node::Sort { input: boxed(node), keys };
        }
        if !on.is_empty() {
            node = Node::Distinct { input: boxed(node), on };
        }
        if !ties.is_empty() {
            let (limit, offset) = self.limits(query, scope.parent)?;
            node = Node::Limit { input: boxed(node), limit, offset, ties };
        }
        if is_wider {
            // The hidden columns end after the limit as well as before it.
            let columns = (0..width).map(|index| Expr::Column { depth: 0, index }).collect();
            node = Node::Project { input: boxed(node), columns };
        }
        Ok((node, columns))
    }

    /// The order of the rows before their columns are computed, if it decides which of them are taken.
    fn keys_below(&mut self, query: &Query, shown: &[Shown], scope: &Scope<'_>) -> Result<Vec<SortKey>> {
        if query.limit.is_none() && query.offset.is_none() {
            return Ok(Vec::new());
        }
        let key = |order: &Order| {
            let typed = match self.shown_column(&order.expr, shown)? {
                Some(index) => shown[index].typed.clone(),
                None => self.expr(&order.expr, scope)?,
            };
            Ok(sort_key(typed, order))
        };
        query.order_by.iter().map(key).collect()
    }

    /// The shown column that an expression of ORDER BY or GROUP BY means.
    fn shown_column(&self, expr: &ast::Expr, shown: &[Shown]) -> Result<Option<usize>> {
        if let Some(index) = ordinal(expr, shown.len(), "ORDER BY")? {
            return Ok(Some(index));
        }
        if let ast::Expr::Column(names, at) = expr
            && let [name] = &names[..]
        {
            let mut found = shown.iter().enumerate().filter(|(_, shown)| shown.name == *name);
            if let Some((index, first)) = found.next() {
                if found.any(|(_, other)| other.written != first.written) {
                    let message = format!("ORDER BY \"{name}\" is ambiguous");
                    return Err(Error::new(SqlState::AMBIGUOUS_COLUMN, message).at(*at));
                }
                return Ok(Some(index));
            }
        }
        Ok(shown.iter().position(|shown| shown.written.as_ref() == Some(expr)))
    }

    pub(super) fn items(&mut self, items: &[Item], scope: &Scope<'_>) -> Result<Vec<Shown>> {
        let mut shown = Vec::new();
        for item in items {
            match item {
                Item::Star(at) => {
                    if scope.columns.is_empty() {
                        return Err(Error::new(SqlState::SYNTAX_ERROR, super::NO_TABLES).at(*at));
                    }
                    self.note_star(*at, star(scope, |column| !column.is_hidden));
                    shown.extend(star(scope, |column| !column.is_hidden));
                }
                Item::TableStar(names, at) => {
                    let (schema, table) = match &names[..] {
                        [.., schema, table] => (Some(self.catalog.own_schema(schema)), table.as_str()),
                        [table] => (None, table.as_str()),
                        [] => (None, ""),
                    };
                    scope.refuse_several((schema, table), *at)?;
                    if !scope.has_table((schema, table)) {
                        return Err(scope.no_table((schema, table), *at));
                    }
                    let shows = |column: &ScopeColumn| column.is_of(schema, table) && column.name != "tableoid";
                    self.note_star(*at, star(scope, shows));
                    shown.extend(star(scope, shows));
                }
                Item::Expr(ast::Expr::Field(base, name), None) if name.value == ast::EVERY_FIELD => {
                    let fields = self.every_field(base, name.at, scope)?;
                    let field = |(name, typed): (String, Typed)| Shown { typed, name, origin: None, written: None };
                    shown.extend(fields.into_iter().map(field));
                }
                Item::Expr(expr, alias) => {
                    let typed = self.expr(expr, scope)?;
                    let origin = match typed.expr {
                        Expr::Column { depth: 0, index } => scope.columns.get(index).and_then(|column| column.origin),
                        _ => None,
                    };
                    let name = alias.clone().unwrap_or_else(|| name_of(expr));
                    shown.push(Shown { typed, name, origin, written: Some(expr.clone()) });
                }
            }
        }
        Ok(shown)
    }

    /// Notes the columns that a `*` stands for.
    fn note_star(&mut self, at: ast::Position, columns: impl Iterator<Item = Shown>) {
        let Some(stars) = &mut self.stars else { return };
        let names = columns.map(|shown| match shown.written {
            Some(ast::Expr::Column(names, _)) => names,
            _ => vec![shown.name],
        });
        stars.entry(at.0).or_insert_with(|| names.collect());
    }

    /// The columns that RETURNING shows of the rows of `scope`.
    pub fn returned(&mut self, items: &[Item], scope: &Scope<'_>) -> Result<(Vec<Expr>, Vec<OutputColumn>)> {
        if let [Item::Star(at)] = items
            && scope.columns.is_empty()
        {
            let message = "RETURNING must have at least one column";
            return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(*at));
        }
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        for Shown { typed, name, origin, .. } in self.items(items, scope)? {
            let typed = self.known(typed);
            columns.push(OutputColumn { name, ty: typed.ty, modifier: typed.modifier, origin });
            exprs.push(typed.expr);
        }
        Ok((exprs, columns))
    }

    fn grouped_select(
        &mut self,
        select: &Select,
        query: &Query,
        node: Node,
        scope: Scope<'_>,
    ) -> Result<(Node, Vec<OutputColumn>)> {
        let mut keys = Vec::new();
        for expr in &select.group_by.keys {
            // The columns of FROM are before the names of the answer, but numbers mean the answer.
            let is_column = matches!(expr, ast::Expr::Column(names, at) if scope.find(names, *at).is_ok());
            let meant = match ordinal(expr, select.items.len(), "GROUP BY")? {
                Some(index) => select.items.get(index),
                None if is_column => None,
                None => select.items.iter().find(|item| match (item, expr) {
                    (Item::Expr(_, Some(alias)), ast::Expr::Column(names, _)) => names[..] == [alias.clone()],
                    _ => false,
                }),
            };
            let expr = match meant {
                Some(Item::Expr(expr, _)) => expr,
                Some(_) => return Err(Error::unsupported("GROUP BY with the number of a *")),
                None => expr,
            };
            let typed = self.expr(expr, &scope)?;
            let typed = self.known(typed);
            keys.push((expr.clone(), typed));
        }
        let sets = one_number_each(&select.group_by.sets, &keys);
        if !sets.is_empty() {
            if keys.len() > SET_KEYS_MAX {
                return Err(Error::unsupported(format!("GROUPING SETS of more than {SET_KEYS_MAX} expressions")));
            }
            // No expression of a user is like this one.
            let name = ast::Expr::Column(vec!["\0set".to_owned()], NOWHERE);
            keys.push((name, Typed::new(Expr::Const(Datum::Int(0)), Type::Int8)));
        }
        let key_exprs: Vec<Expr> = keys.iter().map(|(_, typed)| typed.expr.clone()).collect();
        // Subqueries over the groups see the keys that are columns.
        let columns = keys.iter().map(|(_, typed)| match typed.expr {
            Expr::Column { depth: 0, index } => scope.columns[index].clone(),
            _ => ScopeColumn {
                table: None,
                name: String::new(),
                ty: typed.ty,
                modifier: -1,
                origin: None,
                is_hidden: true,
                is_outer: false,
                relation: None,
            },
        });
        let groups = Scope { columns: columns.collect(), parent: scope.parent };
        let has_sets = !sets.is_empty();
        self.grouping = Some(Grouping { has_sets, ..Grouping::new(scope.columns, keys) });
        let having = select.having.as_ref().map(|having| self.condition(having, &groups, "HAVING")).transpose()?;
        self.extras = Some(Extras::new(select.windows.clone()));
        let shown = self.items(&select.items, &groups)?;
        // The order may have aggregates of its own, so the calls are complete only after it.
        let placeholder = Node::Values(Vec::new());
        let (mut finished, columns) = self.finish(select, query, placeholder, shown, &groups)?;
        let calls = self.grouping.take().map(|grouping| grouping.calls).unwrap_or_default();
        let extras = self.extras.take();
        let width = calls.len() + key_exprs.len();
        let mut node = Node::Aggregate { input: Box::new(node), keys: key_exprs, calls, sets };
        if let Some(filter) = having {
            node = Node::Filter { input: Box::new(node), filter };
        }
        match extras {
            Some(extras) => extras.put_into(&mut finished, node, width),
            None => return Err(Error::new(SqlState::INTERNAL_ERROR, "the windows of a query are lost")),
        }
        Ok((finished, columns))
    }
}

/// The sets with the first number of each key: one may have been written in several ways.
fn one_number_each(sets: &[Vec<usize>], keys: &[(ast::Expr, Typed)]) -> Vec<Vec<usize>> {
    let is_same = |(one, first): &(ast::Expr, Typed), (two, second): &(ast::Expr, Typed)| {
        let place = |typed: &Typed| match typed.expr {
            Expr::Column { depth, index } => Some((depth, index)),
            _ => None,
        };
        one == two || place(first).is_some_and(|found| place(second) == Some(found))
    };
    let first = |number: &usize| keys.iter().position(|key| is_same(key, &keys[*number])).unwrap_or(*number);
    sets.iter().map(|set| set.iter().map(first).collect()).collect()
}

fn star<'s>(scope: &'s Scope<'_>, shows: impl Fn(&ScopeColumn) -> bool + 's) -> impl Iterator<Item = Shown> + 's {
    let columns = scope.columns.iter().enumerate().filter(move |(_, column)| shows(column));
    let mut tables: Vec<&str> = scope.columns.iter().filter_map(|column| column.table.as_deref()).collect();
    tables.dedup();
    let several: Vec<&str> = tables.into_iter().filter(|table| scope.has_several((None, table))).collect();
    columns.map(move |(index, column)| Shown {
        typed: Typed { expr: Expr::Column { depth: 0, index }, ty: column.ty, modifier: column.modifier },
        name: column.name.clone(),
        origin: column.origin,
        written: column.table.as_ref().map(|table| {
            // The name of the table alone may mean another one as well.
            let schema = column.relation.as_ref().filter(|_| several.contains(&table.as_str()));
            let schema = schema.and_then(|relation| relation.schema.clone());
            ast::Expr::Column(schema.into_iter().chain([table.clone(), column.name.clone()]).collect(), NOWHERE)
        }),
    })
}

/// The column that a number in ORDER BY or GROUP BY means.
fn ordinal(expr: &ast::Expr, width: usize, clause: &str) -> Result<Option<usize>> {
    let ast::Expr::Literal(ast::Literal::Number(number), at) = expr else { return Ok(None) };
    let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).filter(|place| *place < width);
    let error = || {
        let message = format!("{clause} position {number} is not in select list");
        Error::new(SqlState::INVALID_COLUMN_REFERENCE, message).at(*at)
    };
    place.map(Some).ok_or_else(error)
}

fn sort_key(typed: Typed, order: &Order) -> SortKey {
    let nulls_first = order.nulls_first.unwrap_or(order.is_descending);
    SortKey { expr: typed.expr, ty: typed.ty, is_descending: order.is_descending, nulls_first }
}

/// The name of a column that has none.
fn name_of(expr: &ast::Expr) -> String {
    match expr {
        ast::Expr::Column(names, _) => names.last().cloned().unwrap_or_default(),
        ast::Expr::Call(call, _) => call.name.name.clone(),
        ast::Expr::Cast { expr, to, .. } => match name_of(expr) {
            name if name == "?column?" => to.name.clone(),
            name => name,
        },
        ast::Expr::Field(_, name) if name.value != ast::EVERY_FIELD => name.value.clone(),
        ast::Expr::Element(base, ..) | ast::Expr::Part { base, .. } => name_of(base),
        ast::Expr::Case { otherwise, .. } => match otherwise.as_deref().map(name_of) {
            Some(name) if name != "?column?" => name,
            _ => "case".into(),
        },
        ast::Expr::Exists(_) => "exists".into(),
        ast::Expr::ArrayOf(_) | ast::Expr::Array(..) => "array".into(),
        ast::Expr::Row(..) => "row".into(),
        ast::Expr::Scalar(query, _) => match &query.body {
            Body::Select(select) => match &select.items[..] {
                [Item::Expr(_, Some(alias))] => alias.clone(),
                [Item::Expr(expr, None)] => name_of(expr),
                _ => "?column?".into(),
            },
            _ => "?column?".into(),
        },
        ast::Expr::Literal(ast::Literal::Bool(_), _) => "bool".into(),
        _ => "?column?".into(),
    }
}
