//! The text that names one crash: target, profile, operations, mutation, planted bug, and the crash at each level.
//!
//! `target~profile~operations~mutation~planted~crashes`, for example `pool-roots~adr~0.2~-~-~k41.1080=0+k9`. This run
//! has the operations 0 and 2 of the script. It crashes before event 41: line 0x1080 (part and offset, hexadecimal)
//! takes its option 0, and every other line keeps everything. Recovery crashes before its event 9, with nothing lost.
//! The token needs no quoting in a shell.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use lodestone_pmem::{LineAddr, PmAddr};

use crate::config::Profile;
use crate::event::{CallKind, SiteKey};
use crate::mutation::{Change, Mutation};
use crate::target::Failure;

/// One crash: its position, and the stores that survived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Index of the first event that did not happen.
    pub at: usize,
    /// The surviving part of the earlier events.
    pub kept: Kept,
}

/// The stores that survived a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// ADR: option of each line. Lines that are not named keep everything.
    Lines(BTreeMap<LineAddr, usize>),
    /// eADR: everything.
    Everything,
    /// Block: this many of the flushed lines, from the first.
    Flushes(usize),
}

/// Everything needed to see one violation again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Name of the target.
    pub target: String,
    /// Profile.
    pub profile: Profile,
    /// Operations of the script.
    pub ops: Vec<usize>,
    /// Mutation of the code, if any.
    pub mutation: Option<Mutation>,
    /// Planted bug, if any.
    pub planted: Option<String>,
    /// The crash of the run, then of each recovery. Empty: the run fails without a crash.
    pub crashes: Vec<Crash>,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kept {
            Kept::Everything => write!(f, "e{}", self.at),
            Kept::Flushes(count) => write!(f, "b{}.{count}", self.at),
            Kept::Lines(lines) => {
                write!(f, "k{}", self.at)?;
                lines.iter().try_for_each(|(line, option)| write!(f, ".{:x}={option}", line.start().to_raw()))
            }
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops: Vec<_> = self.ops.iter().map(usize::to_string).collect();
        write!(f, "{}~{}~{}~", self.target, self.profile, ops.join("."))?;
        match &self.mutation {
            Some(mutation) => write!(f, "{}:{}:{}", mutation.change, mutation.call, mutation.site)?,
            None => f.write_str("-")?,
        }
        let crashes: Vec<_> = self.crashes.iter().map(Crash::to_string).collect();
        write!(f, "~{}~{}", self.planted.as_deref().unwrap_or("-"), crashes.join("+"))
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|_| Failure::new(format!("`{text}` in the token is no number; copy the whole token")))
}

impl FromStr for Crash {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let mut parts = text.get(1..).unwrap_or_default().split('.');
        let at = number(parts.next().unwrap_or_default())?;
        let kept = match text.as_bytes().first() {
            Some(b'e') => Kept::Everything,
            Some(b'b') => Kept::Flushes(number(parts.next().unwrap_or_default())?),
            Some(b'k') => Kept::Lines(parts.map(line_option).collect::<Result<_, _>>()?),
            _ => return Err(Failure::new(format!("`{text}` in the token is no crash; copy the whole token"))),
        };
        Ok(Self { at, kept })
    }
}

fn line_option(text: &str) -> Result<(LineAddr, usize), Failure> {
    let bad = || Failure::new(format!("`{text}` in the token is no line and option; copy the whole token"));
    let (line, option) = text.split_once('=').ok_or_else(bad)?;
    let raw = u64::from_str_radix(line, 16).map_err(|_| bad())?;
    Ok((PmAddr::from_raw(raw).line(), number(option)?))
}

fn mutation(text: &str) -> Result<Option<Mutation>, Failure> {
    let bad = || Failure::new(format!("`{text}` in the token is no mutation; copy the whole token"));
    if text == "-" {
        return Ok(None);
    }
    let (change, rest) = text.split_once(':').ok_or_else(bad)?;
    let (call, rest) = rest.split_once(':').ok_or_else(bad)?;
    let mut site = rest.rsplitn(3, ':');
    let (column, line, file) = (site.next(), site.next(), site.next().ok_or_else(bad)?);
    let change = [Change::Drop, Change::Late, Change::Early].into_iter().find(|c| c.to_string() == change);
    let call = [CallKind::Flush, CallKind::Fence, CallKind::Stream].into_iter().find(|c| c.to_string() == call);
    Ok(Some(Mutation {
        call: call.ok_or_else(bad)?,
        change: change.ok_or_else(bad)?,
        site: SiteKey {
            file: file.to_owned(),
            line: number(line.unwrap_or_default())?,
            column: number(column.unwrap_or_default())?,
        },
    }))
}

impl FromStr for Token {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let fields: Vec<_> = text.split('~').collect();
        let [target, profile, ops, mutated, planted, crashes] = fields[..] else {
            return Err(Failure::new("a token has six fields, separated by `~`; copy the whole token"));
        };
        let list = |text: &str, separator: char| {
            text.split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        Ok(Self {
            target: target.to_owned(),
            profile: profile.parse()?,
            ops: list(ops, '.').iter().map(|op| number(op)).collect::<Result<_, _>>()?,
            mutation: mutation(mutated)?,
            planted: (planted != "-").then(|| planted.to_owned()),
            crashes: list(crashes, '+').iter().map(|crash| crash.parse()).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() -> Result<(), Failure> {
        for text in [
            "pool-roots~adr~0.2~-~-~k41.1080=0.10c0=3+k9",
            "a~eadr~~drop:flush:crates/x/src/y.rs:12:7~bug~e5",
            "a~block~1~-~-~b5.3",
            "a~adr~1~-~-~",
        ] {
            let token: Token = text.parse()?;
            assert_eq!(token.to_string(), text);
        }
        for text in ["", "a~b", "a~adr~x~-~-~", "a~adr~0~-~-~z4", "a~adr~0~-~-~k4.zz=1"] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
        Ok(())
    }
}
