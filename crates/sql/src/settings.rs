//! Settings of a session.
//!
//! A setting that changes how text is read or written has the values that are built, and every other one is
//! refused. One that tunes another server (`work_mem`, `enable_seqscan`) is kept and shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_sql_types::style::{self, Style};
use lodestone_sql_types::zone::Zone;
use lodestone_sql_types::{Error, Result, SqlState};

use crate::catalog::{Catalog, PUBLIC};

/// The version that clients read. Their queries of the catalog depend on it.
pub const SERVER_VERSION: &str = concat!("15.0 (Lodestone ", env!("CARGO_PKG_VERSION"), ")");

/// The values that a setting takes.
#[derive(Clone, Copy)]
enum Rule {
    /// Any.
    Kept,
    /// A time, which is kept in milliseconds.
    Time,
    /// One of these.
    Only(&'static [&'static str]),
    /// One that says how values are read and written.
    Style,
    /// None.
    Fixed,
}

struct Setting {
    name: &'static str,
    default: &'static str,
    rule: Rule,
    /// The name in messages to the client, which is told of each change.
    report: Option<&'static str>,
}

const fn kept(name: &'static str, default: &'static str) -> Setting {
    Setting { name, default, rule: Rule::Kept, report: None }
}

const fn only(name: &'static str, default: &'static str, values: &'static [&'static str]) -> Setting {
    Setting { name, default, rule: Rule::Only(values), report: None }
}

const fn time(name: &'static str) -> Setting {
    Setting { name, default: "0", rule: Rule::Time, report: None }
}

const fn fixed(name: &'static str, default: &'static str) -> Setting {
    Setting { name, default, rule: Rule::Fixed, report: None }
}

impl Setting {
    const fn reported(self, name: &'static str) -> Self {
        Self { report: Some(name), ..self }
    }
}

const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];
const ON: &[&str] = &["on"];
const OFF: &[&str] = &["off"];
const ON_OFF: &[&str] = &["on", "off"];

const SETTINGS: &[Setting] = &[
    kept("application_name", "").reported("application_name"),
    only("backslash_quote", "safe_encoding", &["safe_encoding"]),
    only("bytea_output", "hex", &["hex", "escape"]),
    kept("check_function_bodies", "on"),
    only("client_encoding", "UTF8", &["utf8", "utf-8", "unicode"]).reported("client_encoding"),
    kept("client_min_messages", "notice"),
    kept("cursor_tuple_fraction", "0.1"),
    Setting { name: "datestyle", default: "ISO, MDY", rule: Rule::Style, report: Some("DateStyle") },
    kept("deadlock_timeout", "1s"),
    kept("default_table_access_method", "heap"),
    kept("default_tablespace", ""),
    only("default_transaction_isolation", "serializable", LEVELS),
    only("default_transaction_read_only", "off", ON_OFF).reported("default_transaction_read_only"),
    only("default_transaction_deferrable", "off", OFF),
    kept("effective_cache_size", "4GB"),
    kept("escape_string_warning", "on"),
    kept("hash_mem_multiplier", "2"),
    kept("min_parallel_index_scan_size", "512kB"),
    kept("min_parallel_table_scan_size", "8MB"),
    kept("max_parallel_workers", "8"),
    kept("plan_cache_mode", "auto"),
    kept("constraint_exclusion", "partition"),
    kept("synchronize_seqscans", "on"),
    kept("temp_buffers", "8MB"),
    kept("random_page_cost", "4"),
    kept("seq_page_cost", "1"),
    Setting { name: "extra_float_digits", default: "1", rule: Rule::Style, report: None },
    fixed("in_hot_standby", "off").reported("in_hot_standby"),
    fixed("integer_datetimes", "on").reported("integer_datetimes"),
    time("idle_in_transaction_session_timeout"),
    only("intervalstyle", "postgres", &["postgres", "postgres_verbose", "sql_standard", "iso_8601"])
        .reported("IntervalStyle"),
    fixed("is_superuser", "on").reported("is_superuser"),
    kept("jit", "off"),
    fixed("lc_collate", "C"),
    fixed("lc_ctype", "C"),
    kept("lc_messages", "C"),
    kept("lc_monetary", "C"),
    kept("lc_numeric", "C"),
    kept("lc_time", "C"),
    time("lock_timeout"),
    only(crate::ddl::DEFAULT_PLACEMENT, "paged", crate::catalog::place::Placement::NAMES),
    kept("log_min_duration_statement", "-1"),
    kept("maintenance_work_mem", "64MB"),
    fixed("max_identifier_length", "63"),
    fixed("max_index_keys", "32"),
    kept("max_parallel_workers_per_gather", "0"),
    only("row_security", "on", ON_OFF),
    kept("search_path", "\"$user\", public"),
    fixed("server_encoding", "UTF8").reported("server_encoding"),
    fixed("server_version", SERVER_VERSION).reported("server_version"),
    fixed("server_version_num", "150000"),
    fixed("session_authorization", "").reported("session_authorization"),
    only("standard_conforming_strings", "on", ON).reported("standard_conforming_strings"),
    time("statement_timeout"),
    only("synchronous_commit", "on", ON),
    Setting { name: "timezone", default: "UTC", rule: Rule::Style, report: Some("TimeZone") },
    only("transaction_isolation", "serializable", LEVELS),
    only("transaction_deferrable", "off", ON_OFF),
    only("transaction_read_only", "off", ON_OFF),
    kept("work_mem", "16MB"),
    only("xmloption", "content", &["content"]),
];

/// Beginnings of names whose settings tune the planner of another server.
const KEPT_PREFIXES: &[&str] =
    &["enable_", "cpu_", "parallel_", "geqo", "jit_", "log_", "vacuum_", "from_collapse", "join_collapse"];

/// The names of all settings, as they are shown.
pub fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| shown_name(setting.name))
}

fn shown_name(name: &str) -> &str {
    match name {
        "timezone" => "TimeZone",
        "datestyle" => "DateStyle",
        "intervalstyle" => "IntervalStyle",
        name => name,
    }
}

/// Settings that say how values are read and written.
const STYLES: &[&str] = &["bytea_output", "datestyle", "extra_float_digits", "intervalstyle", "timezone"];

fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The settings of a session: those that were changed.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    user: String,
    changed: BTreeMap<String, String>,
    /// Those that the session began with.
    first: BTreeMap<String, String>,
    /// Values before changes of this transaction.
    before: Vec<(String, Option<String>, bool)>,
    /// A number that no other state of settings has.
    generation: u64,
    /// How values are read and written.
    style: Arc<Style>,
}

/// The last number of a state of settings in this process.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

fn next_generation() -> u64 {
    GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1
}

/// A setting whose change the client is told of.
pub type Report = (&'static str, String);

impl Settings {
    /// Those of a new session.
    pub fn new(user: &str, isolation: &str) -> Self {
        let changed: BTreeMap<_, _> = [("default_transaction_isolation".to_owned(), isolation.to_owned())].into();
        let first = changed.clone();
        let style = Arc::default();
        Self { user: user.to_owned(), changed, first, before: Vec::new(), generation: next_generation(), style }
    }

    /// The values at hand are those that RESET returns to: the session begins with them.
    pub fn keep(&mut self) {
        self.first.clone_from(&self.changed);
    }

    /// A number that changes with every change of a setting.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How values are read and written.
    pub fn style(&self) -> &Arc<Style> {
        &self.style
    }

    /// Makes the style that the settings say, if one of them has changed.
    fn follow_style(&mut self, name: &str) {
        if !STYLES.contains(&name) {
            return;
        }
        let value = |name: &str| self.get(name).unwrap_or_default();
        let (date, order) = style::parse_dates(&value("datestyle"), Default::default()).unwrap_or_default();
        let new = Style {
            order,
            date,
            span: style::parse_spans(&value("intervalstyle")).unwrap_or_default(),
            float_digits: value("extra_float_digits").parse().unwrap_or(1),
            escapes_bytes: value("bytea_output") == "escape",
            zone: Zone::of_setting(&value("timezone")).unwrap_or_default(),
        };
        self.style = Arc::new(new);
    }

    /// The value of a setting.
    ///
    /// # Errors
    /// 42704 if there is none of that name.
    pub fn get(&self, name: &str) -> Result<String> {
        let name = name.to_ascii_lowercase();
        if let Some(value) = self.changed.get(&name) {
            return Ok(value.clone());
        }
        match (name.as_str(), find(&name)) {
            ("session_authorization", _) => Ok(self.user.clone()),
            ("transaction_isolation", _) => self.get("default_transaction_isolation"),
            ("transaction_read_only", _) => self.get("default_transaction_read_only"),
            (_, Some(setting)) => Ok(setting.default.to_owned()),
            _ => {
                Err(Error::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\"")))
            }
        }
    }

    /// The schemas of `catalog` that names without one are looked up in.
    pub fn path(&self, catalog: &Catalog, user: &str) -> Vec<String> {
        let is_schema = |name: &String| catalog.has_schema(name);
        let Some(text) = self.changed.get("search_path") else {
            return [user.to_owned(), PUBLIC.to_owned()].into_iter().filter(is_schema).collect();
        };
        let name = |part: &str| {
            let part = part.trim();
            let plain = part.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            match plain.map_or_else(|| part.to_lowercase(), str::to_owned) {
                own if own == "$user" => user.to_owned(),
                other => other,
            }
        };
        text.split(',').map(name).filter(is_schema).collect()
    }

    /// Changes a setting; `None`: to its default. Returns what the client must be told.
    ///
    /// # Errors
    /// 42704 for an unknown one; 22023 or 0A000 for a value that is not built; 55P02 for one that never changes.
    pub fn set(&mut self, name: &str, value: Option<&str>, is_local: bool) -> Result<Option<Report>> {
        let name = name.to_ascii_lowercase();
        let (rule, report) = match find(&name) {
            Some(setting) => (setting.rule, setting.report),
            None if name.contains('.') || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) => {
                (Rule::Kept, None)
            }
            None => self.get(&name).map(|_| (Rule::Kept, None))?,
        };
        if let Some(value) = value {
            check(&name, value, rule)?;
        }
        let value = value.filter(|value| !value.eq_ignore_ascii_case("default"));
        let value = value.map(|value| self.written(&name, value)).transpose()?;
        let value = value.or_else(|| self.first.get(&name).cloned());
        let before = match &value {
            Some(value) => self.changed.insert(name.clone(), value.clone()),
            None => self.changed.remove(&name),
        };
        self.before.push((name.clone(), before, is_local));
        self.generation = next_generation();
        self.follow_style(&name);
        report.map(|report| Ok((report, self.get(&name)?))).transpose()
    }

    /// The value as it is shown.
    ///
    /// # Errors
    /// 22023 for one that makes no sense.
    fn written(&self, name: &str, value: &str) -> Result<String> {
        let found = match name {
            "datestyle" => {
                let before = style::parse_dates(&self.get(name)?, Default::default()).unwrap_or_default();
                style::parse_dates(value, before).map(style::dates_text)
            }
            "timezone" => Zone::of_setting(value).map(|zone| zone.name().to_owned()),
            "extra_float_digits" => {
                return match value.parse::<i64>() {
                    Ok(-15..=3) => Ok(value.to_owned()),
                    Ok(_) => {
                        let message = format!("{value} is outside the valid range for parameter \"{name}\" (-15 .. 3)");
                        Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
                    }
                    Err(_) => Err(invalid(name, value)),
                };
            }
            _ => return Ok(written(name, value)),
        };
        found.ok_or_else(|| invalid(name, value))
    }

    /// Takes back all changes. Returns what the client must be told.
    ///
    /// # Errors
    /// None of the settings that can be changed has one.
    pub fn reset_all(&mut self) -> Result<Vec<Report>> {
        let kept = ["transaction_isolation", "transaction_read_only", "session_authorization"];
        let names: BTreeSet<String> = self.changed.keys().chain(self.first.keys()).cloned().collect();
        let names = names.into_iter().filter(|name| !kept.contains(&name.as_str()));
        let mut reports = Vec::new();
        for name in names {
            reports.extend(self.set(&name, None, false)?);
        }
        Ok(reports)
    }

    /// Ends a transaction. Its changes stay if it `is_committed`, but for the local ones. Returns what the client must
    /// be told.
    pub fn end(&mut self, is_committed: bool) -> Vec<Report> {
        let mut reports = Vec::new();
        if self.before.is_empty() {
            return reports;
        }
        self.generation = next_generation();
        for (name, before, is_local) in std::mem::take(&mut self.before).into_iter().rev() {
            if is_committed && !is_local {
                continue;
            }
            match before {
                Some(value) => drop(self.changed.insert(name.clone(), value)),
                None => drop(self.changed.remove(&name)),
            }
            self.follow_style(&name);
            let report = find(&name).and_then(|setting| setting.report);
            reports.extend(report.and_then(|report| Some((report, self.get(&name).ok()?))));
        }
        reports
    }

    /// The milliseconds of a setting that is a time; 0: there is no limit.
    pub fn millis(&self, name: &str) -> u64 {
        self.get(name).ok().and_then(|value| millis(&value)).unwrap_or(0)
    }

    /// Whether one of the times is limited.
    pub fn has_timeouts(&self) -> bool {
        let times = SETTINGS.iter().filter(|setting| matches!(setting.rule, Rule::Time));
        times.map(|setting| self.millis(setting.name)).any(|millis| millis > 0)
    }

    /// All settings that a new client is told of.
    pub fn reports(&self) -> impl Iterator<Item = Report> {
        let reported = SETTINGS.iter().filter_map(|setting| Some((setting.name, setting.report?)));
        reported.filter_map(|(name, report)| Some((report, self.get(name).ok()?)))
    }

    /// All settings with their values.
    pub fn all(&self) -> impl Iterator<Item = (String, String)> {
        SETTINGS.iter().filter_map(|setting| Some((setting.name.to_owned(), self.get(setting.name).ok()?)))
    }
}

fn invalid(name: &str, value: &str) -> Error {
    // The others are named as they are written.
    let name = if name == "intervalstyle" { name } else { shown_name(name) };
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn check(name: &str, value: &str, rule: Rule) -> Result<()> {
    // Letters and digits count in the name of an encoding: clients write 'utf-8' in quotes, too.
    let letters: String;
    let value = match name {
        "client_encoding" => {
            letters = value.chars().filter(char::is_ascii_alphanumeric).collect();
            &letters
        }
        _ => value,
    };
    let is_level = name.ends_with("transaction_isolation");
    match rule {
        Rule::Kept | Rule::Style => Ok(()),
        Rule::Time if millis(value).is_some() || value.eq_ignore_ascii_case("default") => Ok(()),
        Rule::Time => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
        .hint("Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".")),
        Rule::Fixed => {
            Err(Error::new(SqlState::CANT_CHANGE_RUNTIME_PARAM, format!("parameter \"{name}\" cannot be changed")))
        }
        Rule::Only(_) if value.eq_ignore_ascii_case("default") => Ok(()),
        Rule::Only(values) if values.contains(&switch(values, value).as_str()) => Ok(()),
        Rule::Only(_) if is_level => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
        .hint("Available values: serializable, repeatable read, read committed, read uncommitted.")),
        Rule::Only(values) if name == crate::ddl::DEFAULT_PLACEMENT => {
            Err(invalid(name, value).hint(format!("Available values: {}.", values.join(", "))))
        }
        Rule::Only(_) if STYLES.contains(&name) => Err(invalid(name, value)),
        Rule::Only(values) => Err(Error::unsupported(format!("the value \"{value}\" of the parameter \"{name}\""))
            .hint(format!("Available values: {}.", values.join(", ")))),
    }
}

/// The value in lower case; words for on and off as these.
fn switch(values: &[&str], value: &str) -> String {
    let value = value.to_ascii_lowercase();
    let is_switch = values.iter().any(|value| matches!(*value, "on" | "off"));
    match value.as_str() {
        "true" | "yes" | "1" if is_switch => "on".into(),
        "false" | "no" | "0" if is_switch => "off".into(),
        _ => value,
    }
}

/// The milliseconds of a time, which has a unit or is in milliseconds.
fn millis(value: &str) -> Option<u64> {
    let value = value.trim();
    let end = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..end].parse().ok()?;
    let found = match value[end..].trim() {
        "us" => number.div_ceil(1000),
        "" | "ms" => number,
        "s" => number.checked_mul(1000)?,
        "min" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        "d" => number.checked_mul(86_400_000)?,
        _ => return None,
    };
    (found <= 2_147_483_647).then_some(found)
}

/// Milliseconds in the largest unit that has no fraction, as they are shown.
fn shown_millis(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let found = UNITS.iter().find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit));
    match found {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None if millis == 0 => "0".into(),
        None => format!("{millis}ms"),
    }
}

/// The value as it is shown.
fn written(name: &str, value: &str) -> String {
    match name {
        "client_encoding" => "UTF8".into(),
        _ => match find(name).map(|setting| setting.rule) {
            Some(Rule::Only(values)) => switch(values, value),
            Some(Rule::Time) => millis(value).map_or_else(|| value.to_owned(), shown_millis),
            _ => value.to_owned(),
        },
    }
}
