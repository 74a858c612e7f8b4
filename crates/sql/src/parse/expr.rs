//! Expressions, and the names in them.

use lodestone_sql_types::{Error, Result, SqlState};
use sqlparser::ast::{self as tree, Spanned};

use super::ast::{Call, Expr, Literal, NOWHERE, Name, ObjectName, Position, Subscript, TypeName};
use super::standard::SYMMETRIC;
use super::{Converter, refuse, refuse_if};

/// Whether the words are unquoted: `PostgreSQL` folds those to lower case.
pub(super) fn fold(ident: &tree::Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

impl Converter<'_> {
    pub(super) fn place(&self, ident: &tree::Ident) -> Position {
        self.places.of(ident.span.start)
    }

    pub(super) fn name(&self, ident: &tree::Ident) -> Name {
        Name { value: fold(ident), at: self.place(ident) }
    }

    pub(super) fn at_of(&self, spanned: &impl Spanned) -> Position {
        self.places.of(spanned.span().start)
    }

    /// The parts of a name.
    fn parts(&self, name: &tree::ObjectName) -> Result<(Vec<String>, Position)> {
        let mut parts = Vec::new();
        let mut at = NOWHERE;
        for part in &name.0 {
            let tree::ObjectNamePart::Identifier(ident) = part else {
                return Err(Error::unsupported("a function as a name"));
            };
            if parts.is_empty() {
                at = self.place(ident);
            }
            parts.push(fold(ident));
        }
        Ok((parts, at))
    }

    pub(super) fn object(&self, name: &tree::ObjectName) -> Result<ObjectName> {
        let (mut parts, at) = self.parts(name)?;
        let last = parts.pop().unwrap_or_default();
        match parts.len() {
            0 => Ok(ObjectName { schema: None, name: last, at, is_only: false }),
            1 => Ok(ObjectName { schema: parts.pop(), name: last, at, is_only: false }),
            _ => Err(refuse("a name with a database", at)),
        }
    }

    /// The name of a table in a schema, and of its column.
    pub(super) fn table_column(&self, name: &tree::ObjectName) -> Result<(ObjectName, String)> {
        let (mut parts, at) = self.parts(name)?;
        match (parts.pop(), parts.pop(), parts.pop(), parts.is_empty()) {
            (Some(column), Some(name), Some(schema), true) => {
                Ok((ObjectName { schema: Some(schema), name, at, is_only: false }, column))
            }
            _ => Err(refuse("this name of a column", at)),
        }
    }

    /// Refuses a collation that does not compare bytes.
    pub(super) fn bytes_collation(&self, collation: &tree::ObjectName) -> Result<()> {
        let collation = self.object(collation)?;
        let is_bytes = matches!(collation.name.as_str(), "default" | "c" | "C" | "posix" | "POSIX" | "ucs_basic");
        if is_bytes { Ok(()) } else { Err(refuse(format!("the collation {}", collation.name), collation.at)) }
    }

    /// A name of one part.
    pub(super) fn single(&self, name: &tree::ObjectName) -> Result<Name> {
        let (mut parts, at) = self.parts(name)?;
        match (parts.pop(), parts.is_empty()) {
            (Some(value), true) => Ok(Name { value, at }),
            _ => Err(refuse("a qualified name here", at)),
        }
    }

    pub(super) fn boxed(&self, expr: tree::Expr) -> Result<Box<Expr>> {
        self.expr(expr).map(Box::new)
    }

    pub(super) fn exprs(&self, list: impl IntoIterator<Item = tree::Expr>) -> Result<Vec<Expr>> {
        list.into_iter().map(|expr| self.expr(expr)).collect()
    }

    /// An expression.
    pub(super) fn expr(&self, expr: tree::Expr) -> Result<Expr> {
        use tree::Expr as E;
        let at = match &expr {
            E::Value(value) => self.places.of(value.span.start),
            E::Identifier(ident) => self.place(ident),
            E::CompoundIdentifier(idents) => idents.first().map_or(NOWHERE, |ident| self.place(ident)),
            // Wide trees would be walked again and again.
            E::BinaryOp { .. } | E::Nested(_) => NOWHERE,
            other => self.at_of(other),
        };
        let is_null = |expr, negated| Ok(Expr::IsNull { expr: self.boxed(expr)?, negated });
        let truth = |expr, truth, negated| Ok(Expr::IsTruth { expr: self.boxed(expr)?, truth, negated });
        match expr {
            E::Identifier(ident) => Ok(match self.name(&ident) {
                // Keywords of the standard that are functions without parentheses.
                Name { value, at } if ident.quote_style.is_none() && PLAIN_FUNCTIONS.contains(&value.as_str()) => {
                    self.plain_call(value, at)
                }
                Name { value, at } => Expr::Column(vec![value], at),
            }),
            E::CompoundIdentifier(idents) => Ok(Expr::Column(idents.iter().map(fold).collect(), at)),
            E::CompoundFieldAccess { root, access_chain } => self.access(*root, access_chain, at),
            E::IsFalse(expr) => truth(*expr, Some(false), false),
            E::IsNotFalse(expr) => truth(*expr, Some(false), true),
            E::IsTrue(expr) => truth(*expr, Some(true), false),
            E::IsNotTrue(expr) => truth(*expr, Some(true), true),
            E::IsUnknown(expr) => truth(*expr, None, false),
            E::IsNotUnknown(expr) => truth(*expr, None, true),
            E::IsNull(expr) => is_null(*expr, false),
            E::IsNotNull(expr) => is_null(*expr, true),
            E::IsDistinctFrom(left, right) => self.distinct(*left, *right, false, at),
            E::IsNotDistinctFrom(left, right) => self.distinct(*left, *right, true, at),
            E::In { expr, target, negated, global: false } => self.in_target(*expr, target, negated, at),
            E::Between { expr, negated, low, high } => self.between((*expr, *low, *high), negated, at),
            E::BinaryOp { left, op, right } => self.binary(*left, &op, *right),
            E::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(*expr, *pattern, escape_char, (false, negated))
            }
            E::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(*expr, *pattern, escape_char, (true, negated))
            }
            E::AnyOp { left, compare_op, right, is_some: _ } => self.quantified(*left, &compare_op, *right, false),
            E::AllOp { left, compare_op, right } => self.quantified(*left, &compare_op, *right, true),
            E::UnaryOp { op: tree::UnaryOperator::Not, expr } => Ok(Expr::Not(self.boxed(*expr)?)),
            E::UnaryOp { op: tree::UnaryOperator::Plus, expr } => self.expr(*expr),
            E::UnaryOp { op: tree::UnaryOperator::Minus, expr } => match self.expr(*expr)? {
                Expr::Literal(Literal::Number(number), at) if !number.starts_with('-') => {
                    Ok(Expr::Literal(Literal::Number(format!("-{number}")), at))
                }
                expr => Ok(Expr::Negate(Box::new(expr), at)),
            },
            E::Cast { kind: tree::CastKind::Cast | tree::CastKind::DoubleColon, expr, data_type, format: None } => {
                Ok(Expr::Cast { expr: self.boxed(*expr)?, to: self.type_name(&data_type)?, is_input: false })
            }
            E::Nested(expr) => self.expr(*expr),
            E::Value(value) => self.literal(value.value, at),
            E::Function(function) => self.function(function, at),
            E::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                let branch = |when: tree::CaseWhen| Ok((self.expr(when.condition)?, self.expr(when.result)?));
                Ok(Expr::Case {
                    operand: operand.map(|operand| self.boxed(*operand)).transpose()?,
                    branches: conditions.into_iter().map(branch).collect::<Result<_>>()?,
                    otherwise: else_result.map(|result| self.boxed(*result)).transpose()?,
                })
            }
            E::Exists { subquery, negated } => {
                let exists = Expr::Exists(Box::new(self.query(*subquery)?));
                Ok(if negated { Expr::Not(Box::new(exists)) } else { exists })
            }
            E::Subquery(query) => Ok(Expr::Scalar(Box::new(self.query(*query)?), at)),
            E::Tuple(list) => Ok(Expr::Row(self.exprs(list)?, at)),
            E::Array(array) => Ok(Expr::Array(self.exprs(array.elem)?, at)),
            E::QualifiedWildcard(name, _) => {
                let (names, at) = self.parts(&name)?;
                let every = Name { value: super::ast::EVERY_FIELD.into(), at };
                Ok(Expr::Field(Box::new(Expr::Column(names, at)), every))
            }
            other => self.standard_call(other, at),
        }
    }

    /// Functions with a syntax of their own.
    fn standard_call(&self, expr: tree::Expr, at: Position) -> Result<Expr> {
        use tree::Expr as E;
        match expr {
            E::TypedString(tree::TypedString { data_type, value, uses_odbc_syntax: false }) => {
                let at = self.places.of(value.span.start);
                let expr = Box::new(self.literal(value.value, at)?);
                Ok(Expr::Cast { expr, to: self.type_name(&data_type)?, is_input: false })
            }
            E::Extract { field, syntax: _, expr } => {
                let field = Expr::Literal(Literal::Text(field.to_string().to_lowercase()), at);
                Ok(self.call("extract", vec![field, self.expr(*expr)?], at))
            }
            E::Ceil { expr, field: tree::CeilFloorKind::DateTimeField(tree::DateTimeField::NoDateTime) } => {
                Ok(self.call("ceil", vec![self.expr(*expr)?], at))
            }
            E::Floor { expr, field: tree::CeilFloorKind::DateTimeField(tree::DateTimeField::NoDateTime) } => {
                Ok(self.call("floor", vec![self.expr(*expr)?], at))
            }
            E::Position { expr, r#in } => Ok(self.call("position", vec![self.expr(*r#in)?, self.expr(*expr)?], at)),
            E::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                let one = || Box::new(tree::Expr::value(tree::Value::Number("1".into(), false)));
                let from = substring_from.unwrap_or_else(one);
                let rest = [Some(from), substring_for].into_iter().flatten().map(|expr| *expr);
                Ok(self.call("substring", self.exprs([*expr].into_iter().chain(rest))?, at))
            }
            E::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(tree::TrimWhereField::Both) => "btrim",
                    Some(tree::TrimWhereField::Leading) => "ltrim",
                    Some(tree::TrimWhereField::Trailing) => "rtrim",
                };
                let what = trim_what.map(|what| *what).into_iter().chain(trim_characters.into_iter().flatten());
                Ok(self.call(name, self.exprs([*expr].into_iter().chain(what))?, at))
            }
            E::Collate { expr, collation } => {
                self.bytes_collation(&collation)?;
                self.expr(*expr)
            }
            other => self.time_call(other, at),
        }
    }

    /// Spans of time, zones, and patterns of the standard.
    fn time_call(&self, expr: tree::Expr, at: Position) -> Result<Expr> {
        use tree::Expr as E;
        match expr {
            E::Interval(tree::Interval {
                value,
                leading_field,
                leading_precision: None,
                last_field,
                fractional_seconds_precision: None | Some(6),
            }) => {
                let fields = leading_field.iter().chain(&last_field).map(|field| field.to_string().to_lowercase());
                let fields: Vec<String> = fields.collect();
                let text = self.expr(*value)?;
                if fields.is_empty() {
                    let to = TypeName::plain("interval");
                    return Ok(Expr::Cast { expr: Box::new(text), to, is_input: false });
                }
                let fields = Expr::Literal(Literal::Text(fields.join(" to ")), at);
                Ok(self.call("interval_of_fields", vec![text, fields], at))
            }
            E::AtTimeZone { timestamp, time_zone } => {
                Ok(self.call("timezone", vec![self.expr(*time_zone)?, self.expr(*timestamp)?], at))
            }
            E::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut arguments = vec![self.expr(*pattern)?];
                if let Some(escape) = escape_char {
                    arguments.push(self.expr(*escape)?);
                }
                let right = Box::new(self.call("similar_to_escape", arguments, at));
                let op = if negated { "!~" } else { "~" };
                Ok(Expr::Binary { op: op.into(), left: self.boxed(*expr)?, right, at })
            }
            E::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let parts = [Some(expr), Some(overlay_what), Some(overlay_from), overlay_for];
                let list = parts.into_iter().flatten().map(|expr| *expr);
                Ok(self.call("overlay", self.exprs(list)?, at))
            }
            E::UnaryOp { op, expr } => {
                let name = match op {
                    tree::UnaryOperator::PGAbs => "abs",
                    tree::UnaryOperator::PGSquareRoot => "sqrt",
                    tree::UnaryOperator::PGCubeRoot => "cbrt",
                    tree::UnaryOperator::BitwiseNot => "bit_not",
                    other => return Err(refuse(format!("the operator {other}"), at)),
                };
                Ok(self.call(name, vec![self.expr(*expr)?], at))
            }
            E::IsNormalized { .. } => Err(refuse("IS NORMALIZED", at)),
            other => Err(refuse(format!("the expression {}", shorten(&other.to_string())), at)),
        }
    }

    fn call(&self, name: &str, arguments: Vec<Expr>, at: Position) -> Expr {
        let name = ObjectName { schema: None, name: name.into(), at, is_only: false };
        Expr::Call(Box::new(Call::plain(name, arguments)), at)
    }

    fn plain_call(&self, name: String, at: Position) -> Expr {
        self.call(&name, Vec::new(), at)
    }

    fn distinct(&self, left: tree::Expr, right: tree::Expr, negated: bool, at: Position) -> Result<Expr> {
        Ok(Expr::IsDistinct { left: self.boxed(left)?, right: self.boxed(right)?, negated, at })
    }

    fn between(&self, parts: (tree::Expr, tree::Expr, tree::Expr), negated: bool, at: Position) -> Result<Expr> {
        let (expr, high) = (self.boxed(parts.0)?, self.boxed(parts.2)?);
        let between = |expr, low, high| Expr::Between { expr, low, high, negated, at };
        let low = self.expr(parts.1)?;
        match low {
            // With its bounds in one order or the other.
            Expr::Call(mut call, _) if call.name.name == SYMMETRIC && call.arguments.len() == 1 => {
                let low = Box::new(call.arguments.remove(0));
                let one = Box::new(between(expr.clone(), low.clone(), high.clone()));
                let two = Box::new(between(expr, high, low));
                Ok(if negated { Expr::And(one, two) } else { Expr::Or(one, two) })
            }
            low => Ok(between(expr, Box::new(low), high)),
        }
    }

    fn in_target(&self, expr: tree::Expr, target: tree::InTarget, negated: bool, at: Position) -> Result<Expr> {
        let expr = self.boxed(expr)?;
        match target {
            tree::InTarget::List(list) => Ok(Expr::InList { expr, list: self.exprs(list)?, negated, at }),
            tree::InTarget::Subquery(query) => {
                Ok(Expr::InQuery { expr, query: Box::new(self.query(*query)?), negated, at })
            }
            _ => Err(refuse("this form of IN", at)),
        }
    }

    fn binary(&self, left: tree::Expr, op: &tree::BinaryOperator, right: tree::Expr) -> Result<Expr> {
        let (left, right) = (self.boxed(left)?, self.boxed(right)?);
        let at = left.at();
        let op = match op {
            tree::BinaryOperator::And => return Ok(Expr::And(left, right)),
            tree::BinaryOperator::Or => return Ok(Expr::Or(left, right)),
            tree::BinaryOperator::Overlaps => {
                let (Expr::Row(one, _), Expr::Row(two, _)) = (*left, *right) else {
                    return Err(refuse("OVERLAPS of anything but two pairs", at));
                };
                return Ok(self.call("overlaps", one.into_iter().chain(two).collect(), at));
            }
            op => operator_text(op).ok_or_else(|| refuse(format!("the operator {op}"), at))?,
        };
        let like = |ignores_case, negated| Expr::Like {
            expr: left.clone(),
            pattern: right.clone(),
            escape: None,
            ignores_case,
            negated,
        };
        Ok(match op.as_str() {
            "~~" => like(false, false),
            "!~~" => like(false, true),
            "~~*" => like(true, false),
            "!~~*" => like(true, true),
            _ => Expr::Binary { op, left, right, at },
        })
    }

    fn quantified(&self, left: tree::Expr, op: &tree::BinaryOperator, right: tree::Expr, is_all: bool) -> Result<Expr> {
        let (left, right) = (self.boxed(left)?, self.boxed(right)?);
        let at = left.at();
        let op = operator_text(op).ok_or_else(|| refuse(format!("the operator {op}"), at))?;
        Ok(match *right {
            Expr::Scalar(query, _) if op == "=" && !is_all => Expr::InQuery { expr: left, query, negated: false, at },
            Expr::Scalar(query, _) if op == "<>" && is_all => Expr::InQuery { expr: left, query, negated: true, at },
            Expr::Scalar(query, _) => Expr::Quantified { left, op, right: Box::new(Expr::ArrayOf(query)), is_all, at },
            right => Expr::Quantified { left, op, right: Box::new(right), is_all, at },
        })
    }

    fn like(
        &self,
        expr: tree::Expr,
        pattern: tree::Expr,
        escape: Option<Box<tree::Expr>>,
        (ignores_case, negated): (bool, bool),
    ) -> Result<Expr> {
        let escape = match escape.map(|escape| self.expr(*escape)).transpose()? {
            None => None,
            Some(Expr::Literal(Literal::Text(text), at)) => {
                let mut letters = text.chars();
                let first = letters.next();
                if letters.next().is_some() {
                    return Err(Error::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string").at(at));
                }
                Some(first)
            }
            Some(other) => return Err(refuse("an ESCAPE that is no literal", other.at())),
        };
        Ok(Expr::Like { expr: self.boxed(expr)?, pattern: self.boxed(pattern)?, escape, ignores_case, negated })
    }

    fn literal(&self, value: tree::Value, at: Position) -> Result<Expr> {
        use tree::Value as V;
        let literal = match value {
            V::Null => Literal::Null,
            V::Boolean(value) => Literal::Bool(value),
            V::Number(text, false) => Literal::Number(text.replace('_', "")),
            V::SingleQuotedString(text) | V::EscapedStringLiteral(text) | V::UnicodeStringLiteral(text) => {
                Literal::Text(text)
            }
            V::DollarQuotedString(text) => Literal::Text(text.value),
            V::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
                return match number {
                    Some(number @ 1..=65_535) => Ok(Expr::Parameter(number, at)),
                    _ => Err(Error::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}")).at(at)),
                };
            }
            other => return Err(refuse(format!("the literal {}", shorten(&other.to_string())), at)),
        };
        Ok(Expr::Literal(literal, at))
    }

    /// `a[1]`, `(a).b`.
    fn access(&self, root: tree::Expr, chain: Vec<tree::AccessExpr>, at: Position) -> Result<Expr> {
        let mut chain = chain.into_iter().peekable();
        let mut found = match root {
            // The column of a table, before its elements.
            tree::Expr::Identifier(table) => {
                let mut names = vec![fold(&table)];
                while let Some(tree::AccessExpr::Dot(tree::Expr::Identifier(name))) = chain.peek() {
                    names.push(fold(name));
                    chain.next();
                }
                if names.len() == 1 { self.expr(tree::Expr::Identifier(table))? } else { Expr::Column(names, at) }
            }
            root => self.expr(root)?,
        };
        while let Some(access) = chain.next() {
            found = match access {
                tree::AccessExpr::Subscript(first) => {
                    let mut list = vec![self.subscript(first, at)?];
                    while let Some(tree::AccessExpr::Subscript(_)) = chain.peek() {
                        if let Some(tree::AccessExpr::Subscript(next)) = chain.next() {
                            list.push(self.subscript(next, at)?);
                        }
                    }
                    match list.pop() {
                        Some(Subscript { low: None, high: Some(index), is_slice: false, field: None })
                            if list.is_empty() =>
                        {
                            Expr::Element(Box::new(found), Box::new(index), at)
                        }
                        last => {
                            list.extend(last);
                            Expr::Part { base: Box::new(found), list, at }
                        }
                    }
                }
                tree::AccessExpr::Dot(tree::Expr::Identifier(field)) => Expr::Field(Box::new(found), self.name(&field)),
                _ => return Err(refuse("this form of a field", at)),
            };
        }
        Ok(found)
    }

    fn subscript(&self, subscript: tree::Subscript, at: Position) -> Result<Subscript> {
        match subscript {
            tree::Subscript::Index { index } => Ok(Subscript { high: Some(self.expr(index)?), ..Subscript::default() }),
            tree::Subscript::Slice { lower_bound, upper_bound, stride: None } => {
                let bound = |bound: Option<tree::Expr>| bound.map(|expr| self.expr(expr)).transpose();
                let (low, high) = (bound(lower_bound)?, bound(upper_bound)?);
                Ok(Subscript { low, high, is_slice: true, field: None })
            }
            tree::Subscript::Slice { .. } => Err(refuse("a slice with a stride", at)),
        }
    }

    fn function(&self, function: tree::Function, at: Position) -> Result<Expr> {
        let tree::Function { name, uses_odbc_syntax, parameters, args, within_group, filter, null_treatment, over } =
            function;
        let name = self.object(&name)?;
        let at = if name.at.0 > 0 { name.at } else { at };
        let over = match over {
            None => None,
            Some(tree::WindowType::NamedWindow(name)) => Some(super::ast::Over {
                name: Some(fold(&name)),
                partition_by: Vec::new(),
                order_by: Vec::new(),
                frame: None,
                at,
            }),
            Some(tree::WindowType::WindowSpec(spec)) => Some(self.over(spec, at)?),
        };
        let is_other =
            uses_odbc_syntax || !matches!(parameters, tree::FunctionArguments::None) || null_treatment.is_some();
        if is_other || !within_group.is_empty() {
            return Err(refuse("this form of a function call", at));
        }
        let mut call = Call {
            name,
            arguments: Vec::new(),
            is_star: false,
            is_distinct: false,
            order_by: Vec::new(),
            filter: filter.map(|filter| self.boxed(*filter)).transpose()?,
            over,
        };
        let list = match args {
            tree::FunctionArguments::None => return Ok(Expr::Call(Box::new(call), at)),
            tree::FunctionArguments::Subquery(query) if call.name.name == "array" => {
                return Ok(Expr::ArrayOf(Box::new(self.query(*query)?)));
            }
            tree::FunctionArguments::Subquery(_) => return Err(refuse("a query as an argument", at)),
            tree::FunctionArguments::List(list) => list,
        };
        call.is_distinct = matches!(list.duplicate_treatment, Some(tree::DuplicateTreatment::Distinct));
        for clause in list.clauses {
            match clause {
                tree::FunctionArgumentClause::OrderBy(order) => call.order_by = self.orders(order)?,
                other => return Err(refuse(format!("the clause {other} of a function call"), at)),
            }
        }
        for argument in list.args {
            match argument {
                tree::FunctionArg::Unnamed(tree::FunctionArgExpr::Expr(expr)) => call.arguments.push(self.expr(expr)?),
                tree::FunctionArg::Unnamed(tree::FunctionArgExpr::Wildcard) => call.is_star = true,
                tree::FunctionArg::Unnamed(tree::FunctionArgExpr::QualifiedWildcard(name)) => {
                    let (names, at) = self.parts(&name)?;
                    let every = Name { value: super::ast::EVERY_FIELD.into(), at };
                    call.arguments.push(Expr::Field(Box::new(Expr::Column(names, at)), every));
                }
                other => return Err(refuse(format!("the argument {other}"), at)),
            }
        }
        if call.name.name == "row" && call.name.schema.is_none() && call.over.is_none() {
            return Ok(Expr::Row(call.arguments, at));
        }
        if let ("coalesce" | "nullif" | "greatest" | "least", None) = (call.name.name.as_str(), &call.name.schema) {
            refuse_if(call.is_distinct || call.filter.is_some(), "this form of a function call")?;
        }
        Ok(Expr::Call(Box::new(call), at))
    }

    /// A window.
    pub(super) fn over(&self, spec: tree::WindowSpec, at: Position) -> Result<super::ast::Over> {
        use super::ast::{Frame, FrameBound, FrameUnit, Over};
        let tree::WindowSpec { window_name, partition_by, order_by, window_frame } = spec;
        let (name, exclude) = super::rewrite::name_and_exclusion(window_name.as_ref().map(fold));
        let bound = |bound: tree::WindowFrameBound| -> Result<FrameBound> {
            Ok(match bound {
                tree::WindowFrameBound::CurrentRow => FrameBound::Current,
                tree::WindowFrameBound::Preceding(expr) => {
                    FrameBound::Preceding(expr.map(|expr| self.boxed(*expr)).transpose()?)
                }
                tree::WindowFrameBound::Following(expr) => {
                    FrameBound::Following(expr.map(|expr| self.boxed(*expr)).transpose()?)
                }
            })
        };
        let frame = match window_frame {
            None => None,
            Some(tree::WindowFrame { units, start_bound, end_bound }) => Some(Frame {
                unit: match units {
                    tree::WindowFrameUnits::Rows => FrameUnit::Rows,
                    tree::WindowFrameUnits::Range => FrameUnit::Range,
                    tree::WindowFrameUnits::Groups => FrameUnit::Groups,
                },
                from: bound(start_bound)?,
                to: end_bound.map_or(Ok(FrameBound::Current), bound)?,
                exclude,
            }),
        };
        Ok(Over { name, partition_by: self.exprs(partition_by)?, order_by: self.orders(order_by)?, frame, at })
    }

    /// The name of a type.
    pub(super) fn type_name(&self, found: &tree::DataType) -> Result<TypeName> {
        use tree::DataType as D;
        let of = |name: &str, modifiers: Vec<i64>| Ok(TypeName { modifiers, ..TypeName::plain(name) });
        let plain = |name: &str| of(name, Vec::new());
        let digits = |precision: Option<u64>| -> Vec<i64> {
            precision.map(|digits| i64::try_from(digits).unwrap_or(6)).into_iter().collect()
        };
        let length = |length: &Option<tree::CharacterLength>| match length {
            Some(tree::CharacterLength::IntegerLength { length, unit: None }) => {
                Ok(vec![i64::try_from(*length).unwrap_or(i64::MAX)])
            }
            None => Ok(Vec::new()),
            Some(other) => Err(Error::unsupported(format!("the length {other} of a type"))),
        };
        match found {
            D::Character(size) | D::Char(size) => {
                let size = length(size)?;
                of("bpchar", if size.is_empty() { vec![1] } else { size })
            }
            D::CharacterVarying(size) | D::CharVarying(size) | D::Varchar(size) => of("varchar", length(size)?),
            D::Numeric(info) | D::Decimal(info) | D::Dec(info) => match info {
                tree::ExactNumberInfo::None => plain("numeric"),
                tree::ExactNumberInfo::Precision(precision) => {
                    of("numeric", vec![i64::try_from(*precision).unwrap_or(i64::MAX), 0])
                }
                tree::ExactNumberInfo::PrecisionAndScale(precision, scale) => {
                    of("numeric", vec![i64::try_from(*precision).unwrap_or(i64::MAX), *scale])
                }
            },
            D::Int2(None) | D::SmallInt(None) => plain("int2"),
            D::Int(None) | D::Int4(None) | D::Integer(None) => plain("int4"),
            D::Int8(None) | D::BigInt(None) => plain("int8"),
            D::Float4 | D::Real => plain("float4"),
            D::Float8 | D::DoublePrecision | D::Float(tree::ExactNumberInfo::None) => plain("float8"),
            D::Bool | D::Boolean => plain("bool"),
            D::Date => plain("date"),
            D::JSON => plain("json"),
            D::JSONB => plain("jsonb"),
            D::Interval { fields: None, precision } => of("interval", digits(*precision)),
            D::Time(precision, tree::TimezoneInfo::None | tree::TimezoneInfo::WithoutTimeZone) => {
                of("time", digits(*precision))
            }
            D::Time(precision, _) => of("timetz", digits(*precision)),
            D::Timestamp(precision @ Some(_), tree::TimezoneInfo::None | tree::TimezoneInfo::WithoutTimeZone) => {
                of("timestamp", digits(*precision))
            }
            D::Timestamp(precision @ Some(_), _) => of("timestamptz", digits(*precision)),
            D::Float(tree::ExactNumberInfo::Precision(digits)) => match digits {
                1..=24 => plain("float4"),
                25..=53 => plain("float8"),
                _ => {
                    let message = if *digits == 0 {
                        "precision for type float must be at least 1 bit"
                    } else {
                        "precision for type float must be less than 54 bits"
                    };
                    Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
                }
            },
            D::Uuid => plain("uuid"),
            D::Timestamp(None, tree::TimezoneInfo::None | tree::TimezoneInfo::WithoutTimeZone) => plain("timestamp"),
            D::Timestamp(None, _) => plain("timestamptz"),
            D::Regclass => plain("regclass"),
            D::Text => plain("text"),
            D::Bytea => plain("bytea"),
            D::Custom(name, modifiers) if modifiers.is_empty() => {
                let ObjectName { schema, name, at, is_only: _ } = self.object(name)?;
                let schema = schema.filter(|schema| schema != "pg_catalog");
                Ok(TypeName { schema, name, modifiers: Vec::new(), is_array: false, at })
            }
            D::Array(
                tree::ArrayElemTypeDef::SquareBracket(element, _) | tree::ArrayElemTypeDef::Qualified(element, _),
            ) => Ok(TypeName { is_array: true, ..self.type_name(element)? }),
            other => Err(Error::unsupported(format!("the type {other}"))),
        }
    }
}

/// Functions that are called without parentheses.
const PLAIN_FUNCTIONS: &[&str] = &[
    "current_time",
    "current_timestamp",
    "localtime",
    "current_date",
    "localtimestamp",
    "current_user",
    "session_user",
    "user",
    "current_role",
    "current_catalog",
    "current_schema",
];

/// The beginning of a text, for messages.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

/// The operator as it is written.
fn operator_text(op: &tree::BinaryOperator) -> Option<String> {
    use tree::BinaryOperator as B;
    Some(match op {
        B::Plus | B::Minus | B::Multiply | B::Divide | B::Modulo | B::StringConcat => op.to_string(),
        B::Gt | B::Lt | B::GtEq | B::LtEq | B::Eq | B::NotEq => op.to_string(),
        B::BitwiseOr | B::BitwiseAnd => op.to_string(),
        B::PGBitwiseXor => "#".into(),
        B::PGBitwiseShiftLeft => "<<".into(),
        B::PGBitwiseShiftRight => ">>".into(),
        B::PGExp => "^".into(),
        B::PGRegexMatch => "~".into(),
        B::PGRegexIMatch => "~*".into(),
        B::PGRegexNotMatch => "!~".into(),
        B::PGRegexNotIMatch => "!~*".into(),
        B::PGLikeMatch => "~~".into(),
        B::PGILikeMatch => "~~*".into(),
        B::PGNotLikeMatch => "!~~".into(),
        B::PGNotILikeMatch => "!~~*".into(),
        B::PGStartsWith
        | B::PGOverlap
        | B::Arrow
        | B::LongArrow
        | B::HashArrow
        | B::HashLongArrow
        | B::AtArrow
        | B::ArrowAt
        | B::HashMinus
        | B::Question
        | B::QuestionAnd
        | B::QuestionPipe => op.to_string(),
        B::PGCustomBinaryOperator(parts) => {
            let (last, schema) = parts.split_last()?;
            let is_known = schema.is_empty() || schema == ["pg_catalog"];
            return is_known.then(|| last.clone());
        }
        _ => return None,
    })
}
