//! Fuzzers: inputs of any bytes for everything that decodes what came from a network or a medium, and for the cores
//! that receive it.
//!
//! 1. A [`Target`] reads its input as a list of decisions ([`Input`]): which packet, which fields, which damage. So
//!    most inputs get past the checksums, and a change of one byte of the input changes one decision.
//! 2. It demands what holds for all inputs: decoders are inverse to encoders, nothing is taken twice, memory and
//!    answers are bounded. A panic is a failure, too.
//! 3. It says what it saw ([`Features`]): refusals by kind, counts by size. An input that shows something new joins the
//!    corpus, and further inputs are made of it ([`mutate`]). No instrumented build is needed.
//! 4. An input that does not end is printed, and ends the run ([`stuck`]).
//! 5. A failing input is made as short as possible ([`shortest`]) and printed with the command that shows it again.
//!
//! `cargo xtask fuzz NAME --seconds N` runs a target. The tests run the corpora that are checked in (`corpus/`), and a
//! number of new inputs each.

mod corpus;
mod input;
mod mutation;
mod run;
mod targets;

pub use corpus::{Corpus, hex, unhex};
pub use input::{Features, Input};
pub use mutation::mutate;
pub use run::{Failure, Progress, Run, fails, processor_time, shortest, stuck};
pub use targets::{TARGETS, Target, target};
