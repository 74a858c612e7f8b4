//! The events of the libraries as lines on standard error: `--log` and `--log-format`.
//!
//! The libraries emit events through `tracing` and install no subscriber. A program does, if the user asks for it.
//! `docs/engine.md` lists targets, names and fields.

use std::io;
use std::str::FromStr;

use clap::ValueEnum;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// The variable that is read where `--log` is not given.
const LOG_VARIABLE: &str = "LODESTONE_LOG";
/// The variable that is read where `--log-format` is not given.
const FORMAT_VARIABLE: &str = "LODESTONE_LOG_FORMAT";
/// Options with a value that may stand before the command.
const WITH_VALUE: [&str; 2] = ["--log", "--log-format"];

/// The targets of all events, without `lodestone::`.
const TARGETS: [&str; 10] = ["pool", "open", "round", "wait", "table", "index", "backup", "device", "damage", "serve"];

/// Arguments about events.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Print events of this level or above to standard error, for all targets or for each: `warn`,
    /// `info,lodestone::round=debug`. Levels: off, error, warn, info, debug, trace [default: $LODESTONE_LOG, or off]
    #[arg(long, global = true, value_name = "LEVEL|TARGET=LEVEL,..")]
    log: Option<Filter>,

    /// Form of the events [default: $LODESTONE_LOG_FORMAT, or text]
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<Format>,
}

/// Form of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line of text for each
    #[default]
    Text,
    /// A JSON object on a line for each
    Json,
}

/// The events that are printed.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut targets = Targets::new().with_default(LevelFilter::OFF);
        for directive in text.split(',').map(str::trim).filter(|directive| !directive.is_empty()) {
            targets = match directive.split_once('=') {
                None => targets.with_default(level(directive)?),
                Some((target, level_text)) => targets.with_target(known(target.trim())?, level(level_text.trim())?),
            };
        }
        Ok(Self(targets))
    }
}

fn level(text: &str) -> Result<LevelFilter, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(LevelFilter::OFF);
    }
    // Numbers are levels to the parser of `tracing`. They are not documented here.
    let level = Level::from_str(text).ok().filter(|_| text.chars().all(|letter| letter.is_ascii_alphabetic()));
    level.map(LevelFilter::from_level).ok_or_else(|| {
        format!("`{text}` is no level: use off, error, warn, info, debug or trace, alone or after `TARGET=`")
    })
}

fn known(target: &str) -> Result<String, String> {
    let name = target.strip_prefix("lodestone::");
    match name {
        Some(name) if TARGETS.contains(&name) => Ok(target.to_owned()),
        _ if target == "lodestone" => Ok(target.to_owned()),
        _ => {
            let names = TARGETS.map(|name| format!("lodestone::{name}")).join(", ");
            Err(format!("there is no target `{target}`: use lodestone, for all of them, or one of {names}"))
        }
    }
}

impl LogArgs {
    /// Prints events from now on, if the arguments or the environment ask for it.
    ///
    /// # Errors
    /// A variable of the environment that does not parse: a message.
    pub fn begin(&self) -> Result<(), String> {
        let filter = match &self.log {
            Some(filter) => Some(filter.clone()),
            None => variable(LOG_VARIABLE, Filter::from_str)?,
        };
        let Some(Filter(targets)) = filter else { return Ok(()) };
        let format = match self.log_format {
            Some(format) => format,
            None => variable(FORMAT_VARIABLE, |text| Format::from_str(text, true))?.unwrap_or_default(),
        };
        let layer = fmt::layer().with_writer(io::stderr).with_ansi(false);
        let outcome = match format {
            Format::Text => {
                tracing::subscriber::set_global_default(Registry::default().with(layer.with_filter(targets)))
            }
            Format::Json => {
                let layer = layer.json().flatten_event(true).with_current_span(false).with_span_list(false);
                tracing::subscriber::set_global_default(Registry::default().with(layer.with_filter(targets)))
            }
        };
        outcome.map_err(|error| error.to_string())
    }
}

/// The value of a variable of the environment. An empty one is none.
fn variable<T>(name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let text = text.to_string_lossy();
    parse(&text).map(Some).map_err(|finding| format!("{name}={text}: {finding}"))
}

/// The command among the `words` of a command line: the first one that is no option and no value of one.
pub fn command_word<'w>(words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enables(text: &str, target: &str, level: Level) -> bool {
        text.parse::<Filter>().expect(text).0.would_enable(target, &level)
    }

    #[test]
    fn levels_of_all_and_of_one_target() {
        assert!(enables("info", "lodestone::open", Level::INFO));
        assert!(!enables("info", "lodestone::open", Level::DEBUG));
        let both = "warn, lodestone::round=debug";
        assert!(enables(both, "lodestone::round", Level::DEBUG) && !enables(both, "lodestone::open", Level::INFO));
        assert!(enables("lodestone=trace", "lodestone::wait", Level::TRACE));
        assert!(!enables("off", "lodestone::device", Level::ERROR));
        assert!(enables("trace,lodestone::round=OFF", "lodestone::open", Level::TRACE));
        assert!(!enables("trace,lodestone::round=OFF", "lodestone::round", Level::ERROR));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("inof", "`inof` is no level"),
            ("3", "`3` is no level"),
            ("lodestone::round", "`lodestone::round` is no level"),
            ("lodestone::rounds=info", "there is no target `lodestone::rounds`"),
            ("round=info", "there is no target `round`"),
            ("lodestone::round=loud", "`loud` is no level"),
        ] {
            let finding = text.parse::<Filter>().expect_err(text);
            assert!(finding.contains(part), "{finding}");
        }
    }

    #[test]
    fn the_command_is_no_value_of_an_option() {
        assert_eq!(command_word(["--json", "--log", "debug", "bench", "index"]), Some("bench"));
        assert_eq!(command_word(["--log=debug", "--log-format", "json", "kv"]), Some("kv"));
        assert_eq!(command_word(["--log"]), None);
    }
}
