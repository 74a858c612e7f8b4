//! Calls of functions: which one is meant.

use lodestone_sql_types::cast::{Context, context};
use lodestone_sql_types::func::{self, Argument, Function, Shape};
use lodestone_sql_types::op::Comparison;
use lodestone_sql_types::{Datum, Error, Result, SqlState, Type};

use super::Binder;
use super::aggregate::is_aggregate;
use super::expr::Typed;
use super::scope::Scope;
use crate::parse::ast::{self, Call, NOWHERE, Position};
use crate::parse::rewrite::VARIADIC;
use crate::plan::Expr;

impl Binder<'_> {
    pub(super) fn call(&mut self, call: &Call, at: Position, scope: &Scope<'_>) -> Result<Typed> {
        let name = call.name.name.as_str();
        let is_of_standard = |schema: &str| schema == "information_schema" && name == "_pg_expandarray";
        if call.name.schema.as_deref().is_some_and(|schema| schema != "pg_catalog" && !is_of_standard(schema)) {
            return Err(undefined(name, &[], at));
        }
        if let Some(over) = &call.over {
            return self.window_call(call, over, at, scope);
        }
        if super::window::is_window(name) {
            let message = format!("window function {name} requires an OVER clause");
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        if let Some(found) = self.set_in_list(call, at, scope)? {
            return Ok(found);
        }
        if name == "grouping" {
            return Err(super::aggregate::no_grouping(at));
        }
        if is_aggregate(name) {
            let message = match self.place {
                "here" => format!("aggregate functions are not allowed here: {name}"),
                place => format!("aggregate functions are not allowed {place}"),
            };
            return Err(Error::new(SqlState::GROUPING_ERROR, message).at(at));
        }
        if call.is_star || call.is_distinct || !call.order_by.is_empty() || call.filter.is_some() {
            if !is_known(name, call.arguments.len()) {
                let arguments = call.arguments.iter().map(|expr| Ok(self.expr(expr, scope)?.ty));
                return Err(undefined(name, &arguments.collect::<Result<Vec<_>>>()?, at));
            }
            let what = match () {
                () if call.is_star => format!("{name}(*)"),
                () if call.is_distinct => "DISTINCT".to_owned(),
                () if !call.order_by.is_empty() => "ORDER BY".to_owned(),
                () => "FILTER".to_owned(),
            };
            let message = format!("{what} specified, but {name} is not an aggregate function");
            return Err(Error::new(SqlState::WRONG_OBJECT_TYPE, message).at(at));
        }
        if let Some((ast::Expr::Call(last, _), first)) = call.arguments.split_last()
            && last.name.name == VARIADIC
        {
            return self.variadic(name, (first, &last.arguments), at, scope);
        }
        let arguments = call.arguments.iter().map(|expr| self.expr(expr, scope)).collect::<Result<Vec<_>>>()?;
        match (name, arguments.len()) {
            ("coalesce", 1..) => {
                let (list, ty) = self.unify(arguments, "COALESCE", at)?;
                Ok(Typed::new(Expr::Coalesce(list), ty))
            }
            ("greatest" | "least", 1..) => {
                let (list, ty) = self.unify(arguments, &name.to_uppercase(), at)?;
                Ok(Typed::new(Expr::Extreme { ty, list, is_greatest: name == "greatest" }, ty))
            }
            ("nullif", 2) => self.nullif(arguments, at),
            ("pg_typeof", 1) => {
                let ty = arguments[0].ty;
                Ok(Typed::new(Expr::Const(Datum::Text(ty.to_string())), Type::Text))
            }
            ("json_populate_record" | "jsonb_populate_record", 2) => {
                let domain = arguments.first().and_then(|base| match &base.expr {
                    Expr::Domain { domain, .. } => Some(domain.clone()),
                    _ => None,
                });
                let (base, json, ty) = self.populated(name, arguments, at)?;
                let made = Expr::Populate(ty, Box::new(base.expr), Box::new(json.expr));
                let made = self.with_checks(Typed::new(made, ty));
                Ok(match domain {
                    Some(domain) => Typed { expr: Expr::Domain { expr: Box::new(made.expr), domain }, ..made },
                    None => made,
                })
            }
            ("overlaps", 4) => self.overlaps(arguments, at),
            ("enum_first" | "enum_last", 1) | ("enum_range", 1 | 2) => self.enum_call(name, arguments, at),
            ("array_to_string", 2 | 3) if matches!(arguments[0].ty, Type::EnumArray(_)) => {
                let mut arguments = arguments;
                let array = std::mem::replace(&mut arguments[0], Typed::new(Expr::Const(Datum::Null), Type::Unknown));
                arguments[0] = self.coerce(array, Type::TextArray, Context::Explicit, at)?;
                self.named(name, arguments, at)
            }
            _ if name.starts_with("json") || name.starts_with("to_json") || name.ends_with("_to_json") => {
                match self.json_call(name, &arguments, at)? {
                    Some(found) => Ok(found),
                    None => self.named(name, arguments, at),
                }
            }
            _ => self.named(name, arguments, at),
        }
    }

    /// `f(a, VARIADIC array)`: the elements of the array are the last arguments.
    fn variadic(
        &mut self,
        name: &str,
        (first, array): (&[ast::Expr], &[ast::Expr]),
        at: Position,
        scope: &Scope<'_>,
    ) -> Result<Typed> {
        let is_json =
            matches!(name, "json_build_array" | "jsonb_build_array" | "json_build_object" | "jsonb_build_object");
        if !is_json && !matches!(name, "concat" | "concat_ws" | "format") {
            return Err(Error::unsupported(format!("VARIADIC of the function {name}")).at(at));
        }
        // The array stands for all of the arguments of any number.
        let fixed = usize::from(matches!(name, "concat_ws" | "format"));
        let [array] = array else { return Err(Error::new(SqlState::SYNTAX_ERROR, "syntax error at VARIADIC").at(at)) };
        let array = self.expr(array, scope)?;
        // An untyped null is a null array.
        let is_null = matches!(array.expr, Expr::Const(Datum::Null));
        let array = if is_null && array.ty == Type::Unknown { Typed { ty: Type::TextArray, ..array } } else { array };
        let Some(element) = array.ty.element() else {
            return Err(super::mismatch("VARIADIC argument must be an array".into(), at));
        };
        let mut arguments = first.iter().map(|expr| self.expr(expr, scope)).collect::<Result<Vec<_>>>()?;
        if arguments.len() != fixed {
            let types: Vec<Type> = arguments.iter().map(|typed| typed.ty).chain([array.ty]).collect();
            return Err(undefined(name, &types, at));
        }
        let value = Typed::new(Expr::Column { depth: 0, index: 0 }, element);
        let each = match is_json {
            true => self.as_json(value),
            false => self.written(value, at)?,
        };
        // The place of the elements, among arguments of the types that they have.
        let place = Typed::new(Expr::Const(Datum::Null), each.ty);
        arguments.push(place);
        let found = self.named(name, arguments, at)?;
        let Expr::Call(function, mut list) = found.expr else { return Err(undefined(name, &[array.ty], at)) };
        list.pop();
        list.push(Expr::Spread(Box::new(array.expr), std::sync::Arc::new(each.expr)));
        Ok(Typed { expr: Expr::Call(function, list), ..found })
    }

    fn nullif(&mut self, arguments: Vec<Typed>, at: Position) -> Result<Typed> {
        let mut arguments = arguments.into_iter();
        let (Some(one), Some(two)) = (arguments.next(), arguments.next()) else {
            return Err(undefined("nullif", &[], at));
        };
        let (left, right, ty) = self.meet(one.clone(), two, "=", at)?;
        // A value without a type has that of the other one: `nullif(null, 1)` is a number.
        let one = if one.ty == Type::Unknown { left.clone() } else { one };
        let equal = Expr::Compare(Comparison::Equal, ty, Box::new(left.expr), Box::new(right.expr));
        let branches = vec![(equal, Expr::Const(Datum::Null))];
        Ok(Typed { expr: Expr::Case { branches, otherwise: Box::new(one.expr) }, ..one })
    }

    /// The labels of an enumeration: which one, the types of the arguments say.
    fn enum_call(&mut self, name: &str, arguments: Vec<Typed>, at: Position) -> Result<Typed> {
        let types: Vec<Type> = arguments.iter().map(|typed| typed.ty).collect();
        let found = types.iter().find_map(|ty| if let Type::Enum(found) = ty { Some(*found) } else { None });
        let Some(found) = found else {
            if types.iter().all(|ty| *ty == Type::Unknown) {
                let message = "could not determine polymorphic type because input has type unknown";
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message).at(at));
            }
            return Err(undefined(name, &types, at));
        };
        let (ty, labels) = (Type::Enum(found), &found.definition().labels);
        let one = |label: Option<&lodestone_sql_types::enumeration::Label>| {
            Expr::Const(label.map_or(Datum::Null, |label| Datum::Int(label.number)))
        };
        match name {
            "enum_first" => return Ok(Typed::new(one(labels.first()), ty)),
            "enum_last" => return Ok(Typed::new(one(labels.last()), ty)),
            _ => {}
        }
        let all = Datum::Array(labels.iter().map(|label| Datum::Int(label.number)).collect());
        let all = Typed::new(Expr::Const(all), Type::EnumArray(found));
        if arguments.len() == 1 {
            return Ok(all);
        }
        let mut list = vec![all];
        for typed in arguments {
            list.push(self.coerce(typed, ty, Context::Implicit, at)?);
        }
        self.named("lodestone_enum_range", list, at)
    }

    /// The call of the function that fits these arguments best.
    pub(super) fn named(&mut self, name: &str, arguments: Vec<Typed>, at: Position) -> Result<Typed> {
        let types: Vec<Type> = arguments.iter().map(|typed| typed.ty).collect();
        let candidates = func::all().filter(|function| function.name == name);
        let best = candidates.filter_map(|function| Some((score(function, &types)?, function)));
        // The first of the best: the table has the common types first.
        let best = best.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let Some((_, function)) = best else {
            // `float8(x)` is a cast, as PostgreSQL has functions of the names of types.
            return match (&arguments[..], Type::named(name)) {
                ([value], Some(ty)) if is_cast(value.ty, ty) => self.coerce(value.clone(), ty, Context::Explicit, at),
                _ => Err(undefined(name, &types, at)),
            };
        };
        let mut list = Vec::new();
        for (number, typed) in arguments.into_iter().enumerate() {
            let typed = match function.arguments.get(number) {
                Some(Argument::Of(ty)) => self.coerce(typed, *ty, Context::Assignment, at)?,
                Some(_) => self.known(typed),
                None => {
                    let typed = self.known(typed);
                    self.written(typed, at)?
                }
            };
            list.push(typed.expr);
        }
        let list = self.one_element_type(function, list, &types)?;
        let ty = match function.shape {
            Shape::Fixed => function.result,
            Shape::Like(number) => {
                types.get(number).copied().filter(|ty| *ty != Type::Unknown).unwrap_or(Type::TextArray)
            }
            Shape::ElementOf(number) => types.get(number).and_then(|ty| ty.element()).unwrap_or(Type::Text),
        };
        Ok(Typed::new(Expr::Call(function, list), ty))
    }

    /// The text that a type writes. A cast of a truth value to a text has another one: `true`.
    fn written(&mut self, typed: Typed, at: Position) -> Result<Typed> {
        let typed = match typed.ty {
            Type::Bool => self.coerce(typed, Type::Name, Context::Assignment, at)?,
            _ => typed,
        };
        self.coerce(typed, Type::Text, Context::Assignment, at)
    }

    /// The element that is looked for has the type of the array's elements.
    fn one_element_type(&mut self, function: &Function, mut list: Vec<Expr>, types: &[Type]) -> Result<Vec<Expr>> {
        let arrays = function.arguments.iter().zip(types).filter(|(argument, _)| **argument == Argument::AnyArray);
        let Some(element) = arrays.filter_map(|(_, ty)| ty.element()).next() else { return Ok(list) };
        for (number, argument) in function.arguments.iter().enumerate().filter(|(_, a)| **a == Argument::Any) {
            let _ = argument;
            let Some(place) = list.get_mut(number) else { continue };
            let own = if types[number] == Type::Unknown { Type::Text } else { types[number] };
            let typed = Typed::new(std::mem::replace(place, Expr::Const(Datum::Null)), own);
            *place = self.coerce(typed, element, Context::Explicit, NOWHERE)?.expr;
        }
        Ok(list)
    }

    /// Two pairs of moments, of which the second of a pair may be a span.
    fn overlaps(&mut self, arguments: Vec<Typed>, at: Position) -> Result<Typed> {
        let mut list: Vec<Typed> = Vec::new();
        for typed in arguments {
            let is_end = list.len() % 2 == 1;
            let start = list.last().cloned().filter(|_| is_end && typed.ty == Type::Interval);
            list.push(match start {
                Some(start) => match self.temporal(lodestone_sql_types::op::Arithmetic::Add, (start, typed), at)? {
                    Ok(end) => end,
                    Err(_) => return Err(undefined("overlaps", &[], at)),
                },
                None => typed,
            });
        }
        self.named("overlaps", list, at)
    }
}

/// Whether a type has a function that makes its values of those of the other type.
fn is_cast(from: Type, to: Type) -> bool {
    let is_plain = |ty: Type| ty.element().is_none() && !ty.is_row() && !matches!(ty, Type::Unknown | Type::Void);
    is_plain(from) && is_plain(to) && context(from, to).is_some()
}

/// Whether there is a function of this name with so many arguments, also one that is no row of the table of functions.
fn is_known(name: &str, count: usize) -> bool {
    let is_special = matches!(name, "coalesce" | "greatest" | "least" | "nullif" | "pg_typeof");
    let fits = |function: &Function| function.is_variadic || function.arguments.len() == count;
    is_special || Type::named(name).is_some() || func::all().any(|function| function.name == name && fits(function))
}

/// How well the function fits. `None`: not at all.
fn score(function: &Function, types: &[Type]) -> Option<u32> {
    let is_count =
        types.len() == function.arguments.len() || function.is_variadic && types.len() >= function.arguments.len();
    if !is_count {
        return None;
    }
    let mut score = 0;
    for (argument, ty) in function.arguments.iter().zip(types) {
        score += match argument {
            Argument::Of(wanted) if wanted == ty => 100,
            Argument::Of(Type::Text) if *ty == Type::Unknown => 20,
            // The preferred type of moments.
            Argument::Of(Type::Timestamptz) if *ty == Type::Unknown => 11,
            Argument::Of(Type::Timestamptz) if *ty == Type::Date => 12,
            // The preferred type of numbers.
            Argument::Of(Type::Float8) if *ty == Type::Unknown => 15,
            Argument::Of(Type::Float8) if ty.is_number() => 12,
            Argument::Of(wanted) if context(*ty, *wanted) == Some(Context::Implicit) => 10,
            Argument::Any => 5,
            Argument::AnyArray if ty.element().is_some() => 5,
            _ => return None,
        };
    }
    Some(score)
}

/// The error of a function that is not there.
pub(super) fn undefined(name: &str, types: &[Type], at: Position) -> Error {
    let types: Vec<String> = types.iter().map(Type::to_string).collect();
    Error::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({}) does not exist", types.join(", ")))
        .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
        .at(at)
}
