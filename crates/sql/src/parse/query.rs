//! Queries.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast as tree;

use super::ast::{
    Alias, Body, Call, Distinct, Expr, GroupBy, Item, JoinKind, JoinOn, LockWait, Order, Query, RowLock, Sampled,
    Select, SetOperation, TableRef, TypeName, With,
};
use super::expr::fold;
use super::{Converter, near, refuse, refuse_if};

impl Converter<'_> {
    pub(super) fn query(&self, query: tree::Query) -> Result<Query> {
        let tree::Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        let is_other =
            for_clause.is_some() || settings.is_some() || format_clause.is_some() || !pipe_operators.is_empty();
        refuse_if(is_other, "this form of a query")?;
        let (mut limit, mut offset, mut has_ties) = (None, None, false);
        match limit_clause {
            None => {}
            Some(tree::LimitClause::LimitOffset { limit: found, offset: skip, limit_by }) => {
                refuse_if(!limit_by.is_empty(), "LIMIT .. BY")?;
                limit = found.map(|expr| self.expr(expr)).transpose()?;
                offset = skip.map(|skip| self.expr(skip.value)).transpose()?;
            }
            Some(other) => return Err(Error::unsupported(format!("the clause{other}"))),
        }
        if let Some(tree::Fetch { with_ties, percent, quantity }) = fetch {
            refuse_if(percent, "FETCH of a percentage")?;
            has_ties = with_ties;
            let one = || tree::Expr::value(tree::Value::Number("1".into(), false));
            limit = Some(self.expr(quantity.unwrap_or_else(one))?);
        }
        if has_ties {
            let is_skipping = |lock: &tree::LockClause| lock.nonblock == Some(tree::NonBlock::SkipLocked);
            let message = match order_by {
                None => "WITH TIES cannot be specified without ORDER BY clause",
                Some(_) if locks.iter().any(is_skipping) => "SKIP LOCKED and WITH TIES options cannot be used together",
                Some(_) => "",
            };
            if !message.is_empty() {
                return Err(Error::new(SqlState::SYNTAX_ERROR, message));
            }
            refuse_if(!locks.is_empty(), "FOR UPDATE of rows WITH TIES")?;
        }
        let locks = locks.into_iter().map(|lock| self.row_lock(lock)).collect::<Result<_>>()?;
        Ok(Query {
            with: with.map(|with| self.with(with)).transpose()?.unwrap_or_default(),
            body: self.body(*body)?,
            order_by: order_by.map(|order| self.order_by(order)).transpose()?.unwrap_or_default(),
            limit,
            has_ties,
            offset,
            locks,
        })
    }

    fn row_lock(&self, lock: tree::LockClause) -> Result<RowLock> {
        let tree::LockClause { lock_type, of, nonblock } = lock;
        let wait = match nonblock {
            None => LockWait::Wait,
            Some(tree::NonBlock::Nowait) => LockWait::Refuse,
            Some(tree::NonBlock::SkipLocked) => LockWait::Skip,
        };
        let mut of = of.as_ref().map_or(&[][..], |name| &name.0[..]);
        let is_weak =
            matches!(of, [tree::ObjectNamePart::Identifier(ident), ..] if ident.value == super::rewrite::WEAK);
        if is_weak {
            of = &of[1..];
        }
        let strength = match (lock_type, is_weak) {
            (tree::LockType::Update, false) => "FOR UPDATE",
            (tree::LockType::Update, true) => "FOR NO KEY UPDATE",
            (tree::LockType::Share, false) => "FOR SHARE",
            (tree::LockType::Share, true) => "FOR KEY SHARE",
        };
        let of = match of {
            [] => None,
            [tree::ObjectNamePart::Identifier(ident)] => Some(self.name(ident)),
            _ => {
                let message = format!("{strength} must specify unqualified relation names");
                return Err(Error::new(SqlState::SYNTAX_ERROR, message));
            }
        };
        Ok(RowLock { of, wait, strength })
    }

    pub(super) fn with(&self, with: tree::With) -> Result<Vec<With>> {
        let is_recursive = with.recursive;
        let cte = |cte: tree::Cte| {
            refuse_if(
                cte.from.is_some() || !cte.alias.columns.iter().all(|c| c.data_type.is_none()),
                "this form of WITH",
            )?;
            let columns = cte.alias.columns.iter().map(|column| self.name(&column.name)).collect();
            let name = self.name(&cte.alias.name);
            if matches!(*cte.query.body, tree::SetExpr::Merge(_)) {
                let error = Error::new(SqlState::FEATURE_NOT_SUPPORTED, "MERGE not supported in WITH query");
                return Err(error.at(name.at));
            }
            if Self::is_change(&cte.query.body) {
                let change = Some(Box::new(self.query_or_change(*cte.query)?));
                return Ok(With { name, columns, query: Query::empty(), is_recursive: false, change, shared: None });
            }
            Ok(With { name, columns, query: self.query(*cte.query)?, is_recursive, change: None, shared: None })
        };
        with.cte_tables.into_iter().map(cte).collect()
    }

    fn order_by(&self, order: tree::OrderBy) -> Result<Vec<Order>> {
        match order {
            tree::OrderBy { kind: tree::OrderByKind::Expressions(list), interpolate: None } => self.orders(list),
            _ => Err(Error::unsupported("this form of ORDER BY")),
        }
    }

    pub(super) fn orders(&self, list: Vec<tree::OrderByExpr>) -> Result<Vec<Order>> {
        let order = |order: tree::OrderByExpr| {
            let tree::OrderByExpr { expr, options: tree::OrderByOptions { sort, nulls_first }, with_fill } = order;
            let is_descending = match sort {
                None | Some(tree::OrderBySort::Asc) => false,
                Some(tree::OrderBySort::Desc) => true,
                Some(_) => return Err(Error::unsupported("ORDER BY .. USING")),
            };
            refuse_if(with_fill.is_some(), "ORDER BY .. WITH FILL")?;
            Ok(Order { expr: self.expr(expr)?, is_descending, nulls_first })
        };
        list.into_iter().map(order).collect()
    }

    fn body(&self, body: tree::SetExpr) -> Result<Body> {
        match body {
            tree::SetExpr::Merge(tree::Statement::Merge(merge)) => {
                let token = merge.merge_token.0;
                Err(near(&token.token.to_string(), self.places.of(token.span.start)))
            }
            tree::SetExpr::Select(select) => self.select(*select).map(|select| Body::Select(Box::new(select))),
            tree::SetExpr::Query(query) => self.query(*query).map(|query| Body::Query(Box::new(query))),
            tree::SetExpr::Values(values) => {
                let rows = values.rows.into_iter().map(|row| self.exprs(row.content));
                Ok(Body::Values(rows.collect::<Result<_>>()?))
            }
            tree::SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let op = match op {
                    tree::SetOperator::Union => SetOperation::Union,
                    tree::SetOperator::Intersect => SetOperation::Intersect,
                    tree::SetOperator::Except => SetOperation::Except,
                    tree::SetOperator::Minus => return Err(Error::unsupported("MINUS")),
                };
                let is_all = match set_quantifier {
                    tree::SetQuantifier::All => true,
                    tree::SetQuantifier::None | tree::SetQuantifier::Distinct => false,
                    other => return Err(Error::unsupported(format!("the quantifier {other} of a set operation"))),
                };
                Ok(Body::Set { op, is_all, left: Box::new(self.body(*left)?), right: Box::new(self.body(*right)?) })
            }
            tree::SetExpr::Table(table) => {
                let tree::Table { table_name, schema_name } = *table;
                let name = table_name.ok_or_else(|| Error::unsupported("TABLE without a name"))?;
                let at = super::ast::NOWHERE;
                let name = super::ast::ObjectName {
                    schema: schema_name.as_ref().map(fold),
                    name: fold(&name),
                    at,
                    is_only: false,
                };
                let from = vec![TableRef::Table { name, alias: Alias::default() }];
                Ok(Body::Select(Box::new(Select {
                    distinct: Distinct::All,
                    items: vec![Item::Star(at)],
                    from,
                    filter: None,
                    group_by: GroupBy::default(),
                    having: None,
                    windows: Vec::new(),
                })))
            }
            _ => Err(Error::unsupported("a change of rows inside a query")),
        }
    }

    fn select(&self, select: tree::Select) -> Result<Select> {
        let tree::Select {
            select_token: _,
            optimizer_hints,
            distinct,
            select_modifiers,
            top,
            top_before_distinct: _,
            projection,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having,
            named_window,
            qualify,
            window_before_qualify: _,
            value_table_mode,
            flavor: _,
        } = select;
        if into.is_some() {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "SELECT ... INTO is not allowed here"));
        }
        let mut windows = Vec::new();
        for tree::NamedWindowDefinition(name, window) in named_window {
            let name = self.name(&name);
            let over = match window {
                tree::NamedWindowExpr::WindowSpec(spec) => self.over(spec, name.at)?,
                tree::NamedWindowExpr::NamedWindow(_) => return Err(refuse("this form of WINDOW", name.at)),
            };
            if windows.iter().any(|(other, _): &(super::ast::Name, _)| other.value == name.value) {
                let message = format!("window \"{}\" is already defined", name.value);
                return Err(Error::new(SqlState::WINDOWING_ERROR, message).at(name.at));
            }
            windows.push((name, over));
        }
        let is_other = !optimizer_hints.is_empty()
            || select_modifiers.is_some()
            || top.is_some()
            || exclude.is_some()
            || !lateral_views.is_empty()
            || prewhere.is_some()
            || !connect_by.is_empty()
            || !cluster_by.is_empty()
            || !distribute_by.is_empty()
            || !sort_by.is_empty()
            || qualify.is_some()
            || value_table_mode.is_some();
        refuse_if(is_other, "this form of SELECT")?;
        let group_by = self.group_by(group_by)?;
        let mut tables = Vec::new();
        for table in from {
            tables.push(self.joins(table)?);
        }
        Ok(Select {
            distinct: match distinct {
                None | Some(tree::Distinct::All) => Distinct::All,
                Some(tree::Distinct::Distinct) => Distinct::Rows,
                Some(tree::Distinct::On(list)) => Distinct::On(self.exprs(list)?),
            },
            items: self.items(projection)?,
            from: tables,
            filter: selection.map(|filter| self.expr(filter)).transpose()?,
            group_by,
            having: having.map(|having| self.expr(having)).transpose()?,
            windows,
        })
    }

    pub(super) fn items(&self, items: Vec<tree::SelectItem>) -> Result<Vec<Item>> {
        let plain = |options: &tree::WildcardAdditionalOptions| {
            let is_other = options.opt_ilike.is_some()
                || options.opt_exclude.is_some()
                || options.opt_except.is_some()
                || options.opt_replace.is_some()
                || options.opt_rename.is_some()
                || options.opt_alias.is_some();
            refuse_if(is_other, "a * with a clause")
        };
        let item = |item: tree::SelectItem| match item {
            tree::SelectItem::UnnamedExpr(expr) => Ok(Item::Expr(self.expr(expr)?, None)),
            tree::SelectItem::ExprWithAlias { expr, alias } => Ok(Item::Expr(self.expr(expr)?, Some(fold(&alias)))),
            tree::SelectItem::Wildcard(options) => {
                plain(&options)?;
                Ok(Item::Star(self.places.of(options.wildcard_token.0.span.start)))
            }
            tree::SelectItem::QualifiedWildcard(tree::SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                plain(&options)?;
                let name = self.object(&name)?;
                Ok(Item::TableStar(name.schema.into_iter().chain([name.name]).collect(), name.at))
            }
            other => Err(Error::unsupported(format!("the column {other}"))),
        };
        items.into_iter().map(item).collect()
    }

    pub(super) fn joins(&self, tables: tree::TableWithJoins) -> Result<TableRef> {
        let mut found = self.table(tables.relation)?;
        for tree::Join { relation, global, join_operator } in tables.joins {
            refuse_if(global, "GLOBAL JOIN")?;
            use tree::JoinOperator as J;
            let (kind, on) = match join_operator {
                J::Join(on) | J::Inner(on) | J::CrossJoin(on) => (JoinKind::Inner, on),
                J::Left(on) | J::LeftOuter(on) => (JoinKind::Left, on),
                J::Right(on) | J::RightOuter(on) => (JoinKind::Right, on),
                J::FullOuter(on) => (JoinKind::Full, on),
                _ => return Err(Error::unsupported("this form of JOIN")),
            };
            let on = match on {
                tree::JoinConstraint::None => JoinOn::Nothing,
                tree::JoinConstraint::Natural => JoinOn::Natural,
                tree::JoinConstraint::On(expr) => JoinOn::Expr(self.expr(expr)?),
                tree::JoinConstraint::Using(names) => {
                    JoinOn::Using(names.iter().map(|name| self.single(name)).collect::<Result<_>>()?)
                }
                tree::JoinConstraint::UsingAlias(..) => return Err(Error::unsupported("USING with an alias")),
            };
            found = TableRef::Join { kind, left: Box::new(found), right: Box::new(self.table(relation)?), on };
        }
        Ok(found)
    }

    fn alias(&self, alias: Option<tree::TableAlias>) -> Result<Alias> {
        let Some(tree::TableAlias { explicit: _, name, columns, at }) = alias else { return Ok(Alias::default()) };
        refuse_if(at.is_some() || columns.iter().any(|column| column.data_type.is_some()), "this form of an alias")?;
        Ok(Alias { name: Some(fold(&name)), columns: columns.iter().map(|column| fold(&column.name)).collect() })
    }

    fn table(&self, table: tree::TableFactor) -> Result<TableRef> {
        use tree::TableFactor as T;
        match table {
            T::Table {
                name,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_directives,
                inheritance,
            } => {
                let name = self.object(&name)?;
                let is_other = version.is_some()
                    || !partitions.is_empty()
                    || json_path.is_some()
                    || !with_hints.is_empty()
                    || !index_directives.is_empty();
                if is_other {
                    return Err(refuse("this form of a table in FROM", name.at));
                }
                let is_only = matches!(inheritance, Some(tree::TableInheritance::Only { .. }));
                let name = super::ast::ObjectName { is_only, ..name };
                let Some(arguments) = args else {
                    let table = TableRef::Table { name, alias: self.alias(alias)? };
                    return sample.map_or(Ok(table.clone()), |sample| self.sampled(table, sample));
                };
                refuse_if(sample.is_some(), "TABLESAMPLE of a function")?;
                refuse_if(arguments.settings.is_some(), "this form of a function in FROM")?;
                let call = self.table_call(name, arguments.args)?;
                if let Some(alias) = alias.as_ref().filter(|alias| has_types(alias)) {
                    refuse_if(with_ordinality, "WITH ORDINALITY with a column definition list")?;
                    return record_columns(call, alias);
                }
                Ok(TableRef::Function { call, has_ordinality: with_ordinality, alias: self.alias(alias)? })
            }
            T::Derived { lateral, subquery, alias, sample } => {
                refuse_if(sample.is_some(), "TABLESAMPLE")?;
                let (query, alias) = (Box::new(self.query(*subquery)?), self.alias(alias)?);
                Ok(TableRef::Query { query, is_lateral: lateral, alias })
            }
            T::Function { lateral: _, name, args, with_ordinality, alias } => {
                let call = self.table_call(self.object(&name)?, args)?;
                Ok(TableRef::Function { call, has_ordinality: with_ordinality, alias: self.alias(alias)? })
            }
            T::UNNEST { alias, array_exprs, with_offset: false, with_offset_alias: None, with_ordinality } => {
                let name = super::ast::ObjectName {
                    schema: None,
                    name: "unnest".into(),
                    at: super::ast::NOWHERE,
                    is_only: false,
                };
                let arguments = self.exprs(array_exprs)?;
                let call = Call::plain(name, arguments);
                Ok(TableRef::Function { call, has_ordinality: with_ordinality, alias: self.alias(alias)? })
            }
            T::NestedJoin { table_with_joins, alias: None } => self.joins(*table_with_joins),
            other => Err(Error::unsupported(format!("{other} in FROM"))),
        }
    }

    fn sampled(&self, table: TableRef, sample: tree::TableSampleKind) -> Result<TableRef> {
        let (tree::TableSampleKind::BeforeTableAlias(sample) | tree::TableSampleKind::AfterTableAlias(sample)) = sample;
        let tree::TableSample {
            modifier: tree::TableSampleModifier::TableSample,
            name,
            quantity,
            seed,
            bucket,
            offset,
        } = *sample
        else {
            return Err(Error::unsupported("SAMPLE"));
        };
        let is_known = matches!(name, Some(tree::TableSampleMethod::Bernoulli | tree::TableSampleMethod::System));
        let quantity = quantity.filter(|quantity| quantity.parenthesized && quantity.unit.is_none());
        let Some(quantity) = quantity.filter(|_| is_known && bucket.is_none() && offset.is_none()) else {
            return Err(Error::unsupported("this form of TABLESAMPLE"));
        };
        let repeat = match seed {
            Some(tree::TableSampleSeed { modifier: tree::TableSampleSeedModifier::Seed, .. }) => {
                return Err(Error::unsupported("SEED of TABLESAMPLE"));
            }
            Some(seed) => Some(self.expr(tree::Expr::Value(seed.value))?),
            None => None,
        };
        Ok(TableRef::Sample(Box::new(Sampled { table, percent: self.expr(quantity.value)?, repeat })))
    }

    fn table_call(&self, name: super::ast::ObjectName, arguments: Vec<tree::FunctionArg>) -> Result<Call> {
        let argument = |argument| match argument {
            tree::FunctionArg::Unnamed(tree::FunctionArgExpr::Expr(expr)) => self.expr(expr),
            other => Err(Error::unsupported(format!("the argument {other}"))),
        };
        let arguments: Vec<Expr> = arguments.into_iter().map(argument).collect::<Result<_>>()?;
        Ok(Call::plain(name, arguments))
    }
}

/// Whether the columns have types: the function gives rows of no type of its own.
fn has_types(alias: &tree::TableAlias) -> bool {
    alias.columns.iter().any(|column| column.data_type.is_some())
}

/// `json_to_record(x) AS r (a int, b text)` is a query of the members of `x`.
fn record_columns(mut call: Call, alias: &tree::TableAlias) -> Result<TableRef> {
    let name = call.name.name.clone();
    let is_set = name.ends_with("_to_recordset");
    if !matches!(name.as_str(), "json_to_record" | "jsonb_to_record" | "json_to_recordset" | "jsonb_to_recordset") {
        let message = "a column definition list is only allowed for functions returning \"record\"";
        return Err(Error::new(SqlState::SYNTAX_ERROR, message).at(call.name.at));
    }
    let [_] = &call.arguments[..] else {
        return Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("no function {name} has these arguments")));
    };
    let mut columns = Vec::new();
    for column in &alias.columns {
        let Some(ty) = &column.data_type else {
            return Err(Error::new(SqlState::SYNTAX_ERROR, format!("the column {} has no type", column.name)));
        };
        let key = fold(&column.name).replace('\'', "''");
        // Each element of a set must be an object.
        let object = if is_set { format!("lodestone_json_checked(v, '{name}', 2)") } else { "v".into() };
        let member = |function: &str| format!("{function}({object}, '{key}')");
        let text = member("json_object_field_text");
        let value = match ty {
            // The null of JSON is a null.
            tree::DataType::JSON | tree::DataType::JSONB => {
                format!("CASE WHEN {text} IS NOT NULL THEN {} END", member("json_object_field"))
            }
            tree::DataType::Array(_) => member("lodestone_json_list"),
            _ => text,
        };
        columns.push(format!("CAST({value} AS {ty}) AS {}", quoted(&fold(&column.name))));
    }
    let source = match (is_set, name.starts_with("jsonb")) {
        (false, _) => format!("lodestone_json_checked(null, '{name}', 0)"),
        (true, false) => format!("json_array_elements(lodestone_json_checked(null, '{name}', 1))"),
        (true, true) => format!("jsonb_array_elements(lodestone_json_checked(null, '{name}', 1))"),
    };
    let mut query = super::parse_query(&format!("SELECT {} FROM {source} AS v", columns.join(", ")))?;
    inputs(&mut query);
    let wanted = if name.starts_with("jsonb") { "jsonb" } else { "json" };
    if let (Some(place), Some(value)) = (checked_argument(&mut query), call.arguments.pop()) {
        *place = Expr::Cast { expr: Box::new(value), to: TypeName::plain(wanted), is_input: false };
    }
    let alias = Alias { name: Some(fold(&alias.name)), columns: Vec::new() };
    Ok(TableRef::Query { query: Box::new(query), is_lateral: true, alias })
}

/// The casts in the list of a query are input of their types.
fn inputs(query: &mut Query) {
    let Body::Select(select) = &mut query.body else { return };
    for item in &mut select.items {
        if let Item::Expr(Expr::Cast { is_input, .. }, _) = item {
            *is_input = true;
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The place of the value in the query of a record.
fn checked_argument(query: &mut Query) -> Option<&mut Expr> {
    let Body::Select(select) = &mut query.body else { return None };
    let [TableRef::Function { call, .. }] = &mut select.from[..] else { return None };
    if call.name.name.ends_with("_checked") {
        return call.arguments.first_mut();
    }
    match call.arguments.first_mut()? {
        Expr::Call(inner, _) => inner.arguments.first_mut(),
        _ => None,
    }
}
