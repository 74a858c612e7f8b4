//! The targets. Each says what it demands of every input.

mod cores;
mod decoders;
mod generate;
mod media;
mod sealed;

use crate::input::{Features, Input};

/// Something that takes hostile bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// The way it uses an input.
    pub about: &'static str,
    /// Takes an input, and says why what it saw is wrong.
    pub run: fn(&mut Input<'_>, &mut Features) -> Result<(), String>,
    /// The corpus that is checked in.
    pub corpus: &'static str,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! target {
    ($name:literal, $about:literal, $run:path) => {
        Target { name: $name, about: $about, run: $run, corpus: include_str!(concat!("../../corpus/", $name, ".txt")) }
    };
}

/// All targets.
pub const TARGETS: [Target; 8] = [
    target!("packet", "decodes packets and halves, and makes them again from what was decoded", decoders::packet),
    target!("record", "decodes records, their forms, merges and lists of payloads", decoders::record),
    target!("message", "decodes terms, views, gaps and calls, and calculates with terms", decoders::message),
    target!("sealed", "repeats, cuts, changes and forges sealed packets", sealed::sealed),
    target!("member", "brings a member hostile packets with right checksums", cores::member),
    target!("sender", "brings a sender of a group or a volume the same, in a takeover and after it", cores::sender),
    target!("registry", "opens a registry of hostile bytes with right checksums, and claims a term", media::registry),
    target!("log", "opens rings and logs of members of which bytes were changed, and goes on", media::log),
];

/// The target of a name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Fails with `reason` unless something holds.
fn demand(holds: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason()) }
}
