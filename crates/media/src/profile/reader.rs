//! Reading a profile: every key by name, with kind and range.

use std::collections::BTreeSet;
use std::path::PathBuf;

use thiserror::Error;
use toml::{Table, Value};

use super::{
    Above, CpuCacheProfile, Curve, DeviceProfile, InstrumentProfile, MediaProfile, MixedProfile, ReadProfile,
    RemoteProfile, WriteProfile,
};

/// Why there is no profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No built-in profile has that name, and it does not look like a file.
    #[error(
        "there is no profile `{name}`: use one of {names}, or the path of a TOML file (`lodestone media show` prints one)"
    )]
    Unknown {
        /// The given name.
        name: String,
        /// The known names.
        names: String,
    },
    /// The file cannot be read.
    #[error("{path}: reading the profile failed: {source}; give a readable TOML file or a built-in name", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is far larger than a profile.
    #[error("{path}: {bytes} bytes are no profile (at most {bytes_max}); give the TOML file", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The largest length.
        bytes_max: u64,
    },
    /// The text is not TOML.
    #[error("{origin}: not valid TOML: {message}")]
    Syntax {
        /// The file.
        origin: String,
        /// Line, column and reason.
        message: String,
    },
    /// A key is missing, unknown or out of range.
    #[error("{origin}: key `{key}`: expected {expected}, found {found}")]
    Key {
        /// The file.
        origin: String,
        /// Section and key.
        key: String,
        /// The expected value.
        expected: String,
        /// The value found.
        found: String,
    },
}

type Result<T> = std::result::Result<T, ProfileError>;

/// Reads the profile in `text`.
pub(super) fn read(text: &str, origin: &str) -> Result<MediaProfile> {
    let root: Table = text.parse().map_err(|error: toml::de::Error| ProfileError::Syntax {
        origin: origin.to_owned(),
        message: error.to_string().trim_end().to_owned(),
    })?;
    let mut top = Section { origin, name: "", table: &root, taken: BTreeSet::new() };
    let profile = MediaProfile {
        name: top.text("name")?,
        description: top.text("description")?,
        source: top.text("source")?,
        cpu_cache: top.section("cpu_cache", cpu_cache)?,
        device: top.section("device", device)?,
        read: top.section("read", reads)?,
        write: top.section("write", writes)?,
        mixed: top.section("mixed", mixed)?,
        remote: top.section("remote", remote)?,
        instrument: top.section("instrument", instrument)?,
    };
    top.finish()?;
    Ok(profile)
}

fn cpu_cache(section: &mut Section<'_>) -> Result<CpuCacheProfile> {
    let bytes = section.whole("bytes", 0, 1 << 30)?;
    let ways = section.whole("ways", 1, 64)?;
    if !bytes.is_multiple_of(ways * 64) {
        return section.refuse("bytes", &format!("a multiple of {} (ways times 64)", ways * 64), &bytes.to_string());
    }
    Ok(CpuCacheProfile { bytes, ways, flush_keeps_line: section.flag("flush_keeps_line")? })
}

fn device(section: &mut Section<'_>) -> Result<DeviceProfile> {
    let block_bytes = section.whole("block_bytes", 64, 4096)?;
    if !block_bytes.is_power_of_two() {
        return section.refuse("block_bytes", "a power of two from 64 to 4096", &block_bytes.to_string());
    }
    let mut buffer = |key| {
        let bytes = section.whole(key, 0, 1 << 24)?;
        if bytes.is_multiple_of(block_bytes) {
            return Ok(bytes);
        }
        section.refuse(key, &format!("a multiple of block_bytes, {block_bytes}"), &bytes.to_string())
    };
    Ok(DeviceProfile {
        block_bytes,
        read_buffer_bytes: buffer("read_buffer_bytes")?,
        write_buffer_bytes: buffer("write_buffer_bytes")?,
    })
}

fn reads(section: &mut Section<'_>) -> Result<ReadProfile> {
    let bandwidth_fraction = section.curve("bandwidth_fraction", Above::Flat)?;
    let falls = bandwidth_fraction.points().windows(2).all(|pair| pair[0].1 >= pair[1].1);
    if !falls || bandwidth_fraction.points()[0].1 > 1.0 {
        let found = format!("{:?}", bandwidth_fraction.points());
        return section.refuse("bandwidth_fraction", "fractions of at most 1 that do not rise with the size", &found);
    }
    Ok(ReadProfile {
        random_latency_ns: section.curve("random_latency_ns", Above::Proportional)?,
        sequential_latency_ns: section.curve("sequential_latency_ns", Above::Proportional)?,
        buffered_latency_ns: section.number("buffered_latency_ns", 0.0, LATENCY_NS_MAX)?,
        bandwidth_bytes_per_second: section.number("bandwidth_bytes_per_second", BANDWIDTH_MIN, BANDWIDTH_MAX)?,
        bandwidth_fraction,
        latency_growth_per_thread: section.number("latency_growth_per_thread", 0.0, 100.0)?,
        threads_best: section.whole("threads_best", 1, 1 << 20)?,
        bandwidth_loss_per_thread: section.number("bandwidth_loss_per_thread", 0.0, 1.0)?,
    })
}

fn writes(section: &mut Section<'_>) -> Result<WriteProfile> {
    Ok(WriteProfile {
        random_latency_ns: section.curve("random_latency_ns", Above::Proportional)?,
        sequential_latency_ns: section.curve("sequential_latency_ns", Above::Proportional)?,
        bandwidth_bytes_per_second: section.number("bandwidth_bytes_per_second", BANDWIDTH_MIN, BANDWIDTH_MAX)?,
        latency_growth_per_thread: section.number("latency_growth_per_thread", 0.0, 100.0)?,
        threads_best: section.whole("threads_best", 1, 1 << 20)?,
        bandwidth_loss_per_thread: section.number("bandwidth_loss_per_thread", 0.0, 1.0)?,
        unfenced_bytes_max: section.whole("unfenced_bytes_max", 0, 1 << 40)?,
        torn_fraction: section.number("torn_fraction", 0.0, 1.0)?,
    })
}

fn mixed(section: &mut Section<'_>) -> Result<MixedProfile> {
    Ok(MixedProfile {
        read_fraction_min: section.number("read_fraction_min", 0.01, 1.0)?,
        write_fraction_min: section.number("write_fraction_min", 0.01, 1.0)?,
        threads_half: section.number("threads_half", 0.001, 1e6)?,
    })
}

fn remote(section: &mut Section<'_>) -> Result<RemoteProfile> {
    Ok(RemoteProfile {
        read_factor: section.number("read_factor", 1.0, 1000.0)?,
        write_factor: section.number("write_factor", 1.0, 1000.0)?,
    })
}

fn instrument(section: &mut Section<'_>) -> Result<InstrumentProfile> {
    // The only key that may be left out: no measuring program had such a cost on this medium.
    let cached_read_ns = match section.table.contains_key("cached_read_ns") {
        true => Some(section.curve("cached_read_ns", Above::Flat)?),
        false => None,
    };
    Ok(InstrumentProfile { cached_read_ns, engine_write_ns: section.number("engine_write_ns", 0.0, LATENCY_NS_MAX)? })
}

/// A second: no access takes longer.
const LATENCY_NS_MAX: f64 = 1e9;
const BANDWIDTH_MIN: f64 = 1e3;
const BANDWIDTH_MAX: f64 = 1e15;

/// A table of the file whose keys are taken one by one.
struct Section<'a> {
    origin: &'a str,
    name: &'static str,
    table: &'a Table,
    taken: BTreeSet<&'static str>,
}

impl Section<'_> {
    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn refuse<T>(&self, key: &str, expected: &str, found: &str) -> Result<T> {
        let (origin, expected, found) = (self.origin.to_owned(), expected.to_owned(), found.to_owned());
        Err(ProfileError::Key { origin, key: self.path(key), expected, found })
    }

    fn take(&mut self, key: &'static str, expected: &str) -> Result<&Value> {
        self.taken.insert(key);
        match self.table.get(key) {
            Some(value) => Ok(value),
            None => self.refuse(key, expected, "nothing"),
        }
    }

    fn text(&mut self, key: &'static str) -> Result<String> {
        match self.take(key, "a text")? {
            Value::String(text) if !text.is_empty() && text.len() <= 4096 => Ok(text.clone()),
            other => {
                let found = shown(other);
                self.refuse(key, "a text of 1 to 4096 bytes", &found)
            }
        }
    }

    /// The value of `key`, as `convert` understands it.
    fn read<T>(&mut self, key: &'static str, expected: &str, convert: impl FnOnce(&Value) -> Option<T>) -> Result<T> {
        let value = self.take(key, expected)?;
        match convert(value) {
            Some(converted) => Ok(converted),
            None => {
                let found = shown(value);
                self.refuse(key, expected, &found)
            }
        }
    }

    fn flag(&mut self, key: &'static str) -> Result<bool> {
        self.read(key, "true or false", Value::as_bool)
    }

    fn number(&mut self, key: &'static str, min: f64, max: f64) -> Result<f64> {
        let fits = |number: &f64| (min..=max).contains(number);
        self.read(key, &format!("a number from {min} to {max}"), |value| as_number(value).filter(fits))
    }

    fn whole(&mut self, key: &'static str, min: u64, max: u64) -> Result<u64> {
        self.read(key, &format!("a whole number from {min} to {max}"), |value| {
            u64::try_from(value.as_integer()?).ok().filter(|whole| (min..=max).contains(whole))
        })
    }

    fn curve(&mut self, key: &'static str, above: Above) -> Result<Curve> {
        self.read(key, "pairs [bytes, value], bytes ascending from 1, values positive", |value| {
            let points = value.as_array()?.iter().map(as_point).collect::<Option<Vec<_>>>()?;
            let fits = points.len() <= 1000 && points.iter().all(|(_, value)| *value <= LATENCY_NS_MAX);
            fits.then(|| Curve::new(points, above))?
        })
    }

    fn section<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Section<'_>) -> Result<T>) -> Result<T> {
        let origin = self.origin;
        match self.take(name, &format!("a section [{name}]"))? {
            Value::Table(table) => {
                let mut section = Section { origin, name, table, taken: BTreeSet::new() };
                let value = read(&mut section)?;
                section.finish()?;
                Ok(value)
            }
            other => {
                let found = shown(other);
                self.refuse(name, &format!("a section [{name}]"), &found)
            }
        }
    }

    /// Refuses keys that were not taken.
    fn finish(self) -> Result<()> {
        match self.table.keys().find(|key| !self.taken.contains(key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let known: Vec<&str> = self.taken.iter().copied().collect();
                self.refuse(key, &format!("one of the keys {}", known.join(", ")), "an unknown key")
            }
        }
    }
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Integer(whole) => Some(*whole as f64),
        _ => None,
    }
}

fn as_point(value: &Value) -> Option<(u64, f64)> {
    match value.as_array()?.as_slice() {
        [size, value] => Some((u64::try_from(size.as_integer()?).ok()?, as_number(value)?)),
        _ => None,
    }
}

/// A value as the file has it, cut short.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 120 { text } else { text.chars().take(117).chain("...".chars()).collect() }
}
