//! Plans for people: a tree of nodes with their properties, in the shape that `PostgreSQL` gives it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lodestone_sql_types::op::{Arithmetic, Comparison};
use lodestone_sql_types::{Datum, Type, text};

use crate::catalog::TableDef;
use crate::parse::ast::{JoinKind, SetOperation};
use crate::plan::{Access, Action, Change, Expr, Join, KeyPart, Node, Plan, Scan};

/// The figures of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub rows: u64,
    pub loops: u64,
    pub time: Duration,
}

/// The figures of the nodes of a plan that runs, by their places in memory.
#[derive(Clone, Debug, Default)]
pub struct Stats(Arc<Mutex<HashMap<usize, Figures>>>);

/// The place of a node, which is its name while the plan is there.
fn place(node: &Node) -> usize {
    std::ptr::from_ref(node).addr()
}

impl Stats {
    /// Adds one run of a node.
    pub fn note(&self, node: &Node, rows: u64, time: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let figures = all.entry(place(node)).or_default();
        figures.rows += rows;
        figures.loops += 1;
        figures.time += time;
    }

    fn of(&self, node: &Node) -> Figures {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&place(node)).copied().unwrap_or_default()
    }
}

/// A node as it is shown.
#[derive(Debug, Default)]
pub struct Shown {
    kind: String,
    /// Names and values of its properties.
    properties: Vec<(&'static str, String)>,
    /// The rest of the first line.
    head: String,
    figures: Option<Figures>,
    inputs: Vec<Shown>,
}

impl Shown {
    fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), ..Self::default() }
    }

    fn over(kind: &str, input: Shown) -> Self {
        Self { inputs: vec![input], ..Self::new(kind) }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.properties.push((name, value.into()));
        self
    }

    fn maybe(self, name: &'static str, value: Option<String>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Lines of text.
    pub fn text(&self, depth: usize, lines: &mut Vec<String>, has_no_timing: bool) {
        let margin = if depth == 0 { String::new() } else { format!("{}->  ", " ".repeat(depth * 6 - 4)) };
        let mut line = format!("{margin}{}{}", self.kind, self.head);
        match self.figures {
            Some(Figures { loops: 0, .. }) => line += " (never executed)",
            Some(Figures { rows, loops, time }) => {
                let each = rows.checked_div(loops).unwrap_or(0);
                let millis = time.as_secs_f64() * 1000.0;
                let times = if has_no_timing { String::new() } else { format!("time={millis:.3} ") };
                let _ = write!(line, " (actual {times}rows={each} loops={loops})");
            }
            None => {}
        }
        lines.push(line);
        let inner = if depth == 0 { 2 } else { depth * 6 + 2 };
        for (name, value) in self.properties.iter().filter(|(name, _)| !HIDDEN.contains(name)) {
            lines.push(format!("{}{name}: {value}", " ".repeat(inner)));
        }
        self.inputs.iter().for_each(|input| input.text(depth + 1, lines, has_no_timing));
    }

    /// An object of JSON.
    pub fn json(&self, margin: usize, text: &mut String, has_no_timing: bool) {
        let space = " ".repeat(margin + 2);
        let _ = write!(text, "{{\n{space}\"Node Type\": {}", json_text(&self.kind));
        for (name, value) in &self.properties {
            let _ = write!(text, ",\n{space}{}: {}", json_text(name), json_text(value));
        }
        if let Some(Figures { rows, loops, time }) = self.figures {
            let each = rows.checked_div(loops).unwrap_or(0);
            if !has_no_timing {
                let _ = write!(text, ",\n{space}\"Actual Total Time\": {:.3}", time.as_secs_f64() * 1000.0);
            }
            let _ = write!(text, ",\n{space}\"Actual Rows\": {each},\n{space}\"Actual Loops\": {loops}");
        }
        if !self.inputs.is_empty() {
            let _ = write!(text, ",\n{space}\"Plans\": [");
            for (number, input) in self.inputs.iter().enumerate() {
                let _ = write!(text, "{}\n{space}  ", if number == 0 { "" } else { "," });
                input.json(margin + 4, text, has_no_timing);
            }
            let _ = write!(text, "\n{space}]");
        }
        let _ = write!(text, "\n{}}}", " ".repeat(margin));
    }
}

/// Properties that the first line of the text has.
const HIDDEN: &[&str] = &["Relation Name", "Schema", "Alias", "Index Name", "Join Type", "Operation", "Strategy"];

fn json_text(text: &str) -> String {
    let mut found = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => found += "\\\"",
            '\\' => found += "\\\\",
            '\n' => found += "\\n",
            letter if u32::from(letter) < 32 => {
                let _ = write!(found, "\\u{:04x}", u32::from(letter));
            }
            letter => found.push(letter),
        }
    }
    found + "\""
}

/// The plan as it is shown. `stats`: the figures of its run.
pub fn describe(plan: &Plan, stats: Option<&Stats>) -> Shown {
    match &plan.action {
        Action::Select(node) => node_of(node, stats),
        Action::Change(change, _) => change_of(change, stats),
        _ => Shown::new("Utility"),
    }
}

fn change_of(change: &Change, stats: Option<&Stats>) -> Shown {
    let modify = |verb: &str, table: &TableDef, input: Shown| {
        let mut shown = Shown::over("ModifyTable", input)
            .with("Operation", verb)
            .with("Schema", table.schema.clone())
            .with("Relation Name", table.name.clone());
        shown.kind = verb.to_owned();
        shown.head = format!(" on {}", table.name);
        shown
    };
    match change {
        Change::Insert { table, input, conflict, .. } => {
            let resolution = conflict
                .as_ref()
                .map(|conflict| if conflict.update.is_some() { "UPDATE".to_owned() } else { "NOTHING".to_owned() });
            modify("Insert", table, node_of(input, stats)).maybe("Conflict Resolution", resolution)
        }
        Change::Update { scan, .. } => modify("Update", &scan.table, scan_of(scan)),
        Change::Delete { scan } => modify("Delete", &scan.table, scan_of(scan)),
        Change::Family { root, parts, is_update } => {
            let scan = |part: &crate::plan::FamilyPart| change_of(&part.change, stats).inputs;
            let inputs = parts.iter().flat_map(scan).collect();
            let rows = Shown { inputs, ..Shown::new("Append") };
            modify(if *is_update { "Update" } else { "Delete" }, root, rows)
        }
        Change::Merge(merge) => modify("Merge", &merge.table, node_of(&merge.input, stats)),
        Change::Joined { table, input, set, .. } => {
            modify(if set.is_some() { "Update" } else { "Delete" }, table, node_of(input, stats))
        }
    }
}

fn node_of(node: &Node, stats: Option<&Stats>) -> Shown {
    let inner = |input: &Node| node_of(input, stats);
    let mut shown = match node {
        // A projection is a part of the node below it.
        Node::Project { input, .. } => return inner(input),
        Node::Values(rows) if rows.len() == 1 => Shown::new("Result"),
        Node::Values(_) => {
            let mut shown = Shown::new("Values Scan");
            shown.head = " on \"*VALUES*\"".into();
            shown
        }
        Node::Scan(scan) => scan_of(scan),
        Node::Virtual { table, filter } => {
            let names: Vec<String> = table.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
            let mut shown = Shown::new("Seq Scan").with("Relation Name", table.name);
            shown.head = format!(" on {}", table.name);
            shown.maybe("Filter", filter.as_ref().map(|filter| expr_text(filter, &names)))
        }
        Node::Function { function, .. } => {
            let mut shown = Shown::new("Function Scan");
            shown.head = format!(" on {}", set_name(*function));
            shown
        }
        Node::Join(join) => join_of(join, stats),
        Node::Filter { input, filter } => inner(input).with("Filter", expr_text(filter, &[])),
        Node::Gate { input, filter } => {
            Shown::over("Result", inner(input)).with("One-Time Filter", expr_text(filter, &[]))
        }
        Node::Hashed(hashed) => {
            let pairs = hashed.keys.iter();
            let pairs = pairs.map(|(one, two)| format!("{} = {}", expr_text(one, &[]), expr_text(two, &[])));
            let shown = Shown::over("Memoize", inner(&hashed.input));
            let shown = shown.with("Cache Key", format!("({})", pairs.collect::<Vec<_>>().join(") AND (")));
            let shown = shown.maybe("One-Time Filter", hashed.before.as_ref().map(|before| expr_text(before, &[])));
            shown.maybe("Filter", hashed.rest.as_ref().map(|rest| expr_text(rest, &[])))
        }
        Node::Aggregate { input, keys, .. } => {
            let mut shown = Shown::over("Aggregate", inner(input));
            let keys: Vec<String> = keys.iter().map(|key| expr_text(key, &[])).collect();
            if keys.is_empty() {
                return finished(shown.with("Strategy", "Plain"), node, stats);
            }
            shown.kind = "HashAggregate".into();
            shown.with("Strategy", "Hashed").with("Group Key", keys.join(", "))
        }
        Node::Sort { input, keys } => {
            let key = |key: &crate::plan::SortKey| {
                format!("{}{}", expr_text(&key.expr, &[]), if key.is_descending { " DESC" } else { "" })
            };
            Shown::over("Sort", inner(input)).with("Sort Key", keys.iter().map(key).collect::<Vec<_>>().join(", "))
        }
        Node::Append(members) => {
            Shown { inputs: members.iter().map(|member| inner(&member.node)).collect(), ..Shown::new("Append") }
        }
        Node::Sample { input, percent, repeat } => {
            let mut shown = inner(input);
            let table = shown.head.clone();
            shown.kind = "Sample Scan".into();
            shown.head = table;
            let repeat = repeat.as_ref().map(|repeat| format!(" REPEATABLE ({})", expr_text(repeat, &[])));
            let sampling = format!("bernoulli ({}){}", expr_text(percent, &[]), repeat.unwrap_or_default());
            shown.with("Sampling", sampling)
        }
        Node::LockRows(node) => Shown::over("LockRows", inner(&node.input)),
        Node::Limit { input, .. } => Shown::over("Limit", inner(input)),
        Node::Distinct { input, .. } => Shown::over("Unique", inner(input)),
        Node::Set { op, is_all, left, right } => {
            let kind = match (op, is_all) {
                (SetOperation::Union, true) => "Append",
                (SetOperation::Union, false) => "HashAggregate",
                (SetOperation::Intersect, _) => "HashSetOp Intersect",
                (SetOperation::Except, _) => "HashSetOp Except",
            };
            Shown { inputs: vec![inner(left), inner(right)], ..Shown::new(kind) }
        }
        Node::Window { input, .. } => Shown::over("WindowAgg", inner(input)),
        Node::ProjectSet { input, .. } => Shown::over("ProjectSet", inner(input)),
        Node::Recursive { first, step, .. } => {
            Shown { inputs: vec![inner(first), inner(step)], ..Shown::new("Recursive Union") }
        }
        Node::Shared { input, .. } => Shown::over("CTE Scan", inner(input)),
        Node::Work { .. } => Shown::new("WorkTable Scan"),
    };
    shown.figures = stats.map(|stats| stats.of(node));
    shown
}

fn finished(mut shown: Shown, node: &Node, stats: Option<&Stats>) -> Shown {
    shown.figures = stats.map(|stats| stats.of(node));
    shown
}

fn set_name(function: crate::plan::SetFunction) -> &'static str {
    use crate::plan::SetFunction as F;
    match function {
        F::GenerateSeries | F::GenerateMoments(_) => "generate_series",
        F::RegexMatches => "regexp_matches",
        F::RegexSplit => "regexp_split_to_table",
        F::StringToTable => "string_to_table",
        F::JsonEach { .. } => "json_each",
        F::JsonElements { .. } => "json_array_elements",
        F::JsonKeys => "json_object_keys",
        F::JsonRows(_) => "json_populate_recordset",
        F::Unnest => "unnest",
        F::GenerateSubscripts => "generate_subscripts",
        F::One => "function",
    }
}

fn join_of(join: &Join, stats: Option<&Stats>) -> Shown {
    let kind = if join.hash.is_empty() { "Nested Loop" } else { "Hash Join" };
    let (word, name) = match join.kind {
        JoinKind::Inner => ("", "Inner"),
        JoinKind::Left => ("Left", "Left"),
        JoinKind::Right => ("Right", "Right"),
        JoinKind::Full => ("Full", "Full"),
    };
    let text = match (kind, word) {
        (kind, "") => kind.to_owned(),
        ("Hash Join", word) => format!("Hash {word} Join"),
        (kind, word) => format!("{kind} {word} Join"),
    };
    let inputs = vec![node_of(&join.left, stats), node_of(&join.right, stats)];
    let mut shown = Shown { inputs, ..Shown::new(&text) }.with("Join Type", name);
    if !join.hash.is_empty() {
        let pairs = join.hash.iter().map(|(one, two)| format!("{} = {}", expr_text(one, &[]), expr_text(two, &[])));
        shown = shown.with("Hash Cond", format!("({})", pairs.collect::<Vec<_>>().join(") AND (")));
    }
    shown.maybe("Join Filter", join.on.as_ref().map(|on| expr_text(on, &[])))
}

fn scan_of(scan: &Scan) -> Shown {
    let table = &*scan.table;
    let names: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
    let part =
        |column: usize, op: &str, part: &KeyPart| format!("({} {op} {})", names[column], expr_text(&part.expr, &[]));
    let found = |index: &str, condition: Vec<String>| {
        let mut shown = Shown::new("Index Scan").with("Index Name", index.to_owned());
        shown.head = format!(" using {index} on {}", table.name);
        let condition = if let [one] = &condition[..] { one.clone() } else { format!("({})", condition.join(" AND ")) };
        shown.with("Index Cond", condition)
    };
    let shown = match &scan.access {
        Access::All => {
            let mut shown = Shown::new("Seq Scan");
            shown.head = format!(" on {}", table.name);
            shown
        }
        Access::Key(parts) => {
            let condition = table.key.iter().zip(parts).map(|(column, key)| part(*column, "=", key));
            found(&table.key_name, condition.collect())
        }
        Access::Range { index, equal, low, high } => {
            let (name, columns) = match index {
                None => (&table.key_name, &table.key),
                Some(index) => (&table.indexes[*index].name, &table.indexes[*index].columns),
            };
            let mut condition: Vec<String> =
                columns.iter().zip(equal).map(|(column, key)| part(*column, "=", key)).collect();
            if let Some(column) = columns.get(equal.len()) {
                let limit = |(key, is_inclusive): &(KeyPart, bool), op: &str| {
                    part(*column, &format!("{op}{}", if *is_inclusive { "=" } else { "" }), key)
                };
                condition.extend(low.as_ref().map(|low| limit(low, ">")));
                condition.extend(high.as_ref().map(|high| limit(high, "<")));
            }
            found(name, condition)
        }
    };
    let shown = shown.with("Schema", table.schema.clone()).with("Relation Name", table.name.clone());
    shown.maybe("Filter", scan.filter.as_ref().map(|filter| expr_text(filter, &names)))
}

/// An expression as text. Columns without a name are shown by their numbers.
fn expr_text(expr: &Expr, names: &[String]) -> String {
    let inner = |expr: &Expr| expr_text(expr, names);
    let list = |list: &[Expr]| list.iter().map(inner).collect::<Vec<_>>().join(", ");
    match expr {
        Expr::Const(Datum::Null) => "NULL".into(),
        Expr::Const(Datum::Int(value)) => value.to_string(),
        Expr::Const(Datum::Bool(value)) => value.to_string(),
        Expr::Const(Datum::Numeric(value)) => value.to_string(),
        Expr::Const(Datum::Text(value)) => format!("'{}'::text", value.replace('\'', "''")),
        Expr::Const(value) => format!("'{}'", text::encode(Type::Text, value)),
        Expr::Column { depth: 0, index } => match names.get(*index) {
            Some(name) => name.clone(),
            None => format!("column{}", index + 1),
        },
        Expr::Column { index, .. } => format!("outer{}", index + 1),
        Expr::Param(number) => format!("${}", number + 1),
        Expr::Compare(op, _, one, two) => {
            let op = match op {
                Comparison::Equal => "=",
                Comparison::NotEqual => "<>",
                Comparison::Less => "<",
                Comparison::LessOrEqual => "<=",
                Comparison::Greater => ">",
                Comparison::GreaterOrEqual => ">=",
            };
            format!("({} {op} {})", inner(one), inner(two))
        }
        Expr::Arithmetic(op, _, one, two) => {
            let op = match op {
                Arithmetic::Add => "+",
                Arithmetic::Subtract => "-",
                Arithmetic::Multiply => "*",
                Arithmetic::Divide => "/",
                Arithmetic::Remainder => "%",
                Arithmetic::BitAnd => "&",
                Arithmetic::BitOr => "|",
                Arithmetic::BitXor => "#",
                Arithmetic::ShiftLeft => "<<",
                Arithmetic::ShiftRight => ">>",
            };
            format!("({} {op} {})", inner(one), inner(two))
        }
        Expr::And(one, two) => format!("({} AND {})", inner(one), inner(two)),
        Expr::Or(one, two) => format!("({} OR {})", inner(one), inner(two)),
        Expr::Not(one) => format!("(NOT {})", inner(one)),
        Expr::Negate(_, one) => format!("(- {})", inner(one)),
        Expr::Concat(one, two) => format!("({} || {})", inner(one), inner(two)),
        Expr::IsNull(one) => format!("({} IS NULL)", inner(one)),
        Expr::Like { expr, pattern, .. } => format!("({} ~~ {})", inner(expr), inner(pattern)),
        Expr::Regex { expr, pattern, .. } => format!("({} ~ {})", inner(expr), inner(pattern)),
        Expr::In(_, one, list) => {
            format!("({} = ANY ({{{}}}))", inner(one), list.iter().map(inner).collect::<Vec<_>>().join(","))
        }
        Expr::Cast { expr, to, .. } => format!("({})::{to}", inner(expr)),
        Expr::Fit { expr, .. } | Expr::RelationOid(expr) => inner(expr),
        Expr::ToJson(_, expr) => format!("to_json({})", inner(expr)),
        Expr::Call(function, arguments) => format!("{}({})", function.name, list(arguments)),
        Expr::Coalesce(arguments) => format!("COALESCE({})", list(arguments)),
        Expr::Array(arguments) => format!("ARRAY[{}]", list(arguments)),
        Expr::Record(arguments) => format!("ROW({})", list(arguments)),
        Expr::Field(one, number) => format!("({}).f{}", inner(one), number + 1),
        Expr::Scalar(_) | Expr::ArrayOf(_) => "(SubPlan)".into(),
        Expr::Exists(_) => "EXISTS(SubPlan)".into(),
        Expr::InQuery(_, one, _) => format!("({} IN (SubPlan))", inner(one)),
        _ => "(..)".into(),
    }
}
