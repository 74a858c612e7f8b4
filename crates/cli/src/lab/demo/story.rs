//! The output of the guided run: numbered steps, expectations, and whether they held.

use anyhow::Result;
use serde::Serialize;

use lodestone_cli::output::Output;

/// Steps of the run.
pub const STEPS: usize = 9;

/// Columns of a line of explanation.
const WIDTH: usize = 100;

/// One expectation that was tested.
#[derive(Clone, Debug, Serialize)]
pub struct Expectation {
    /// The statement that must hold.
    pub text: String,
    /// Whether it did.
    pub holds: bool,
}

/// The teller.
pub struct Story<'a> {
    output: &'a Output,
    step: usize,
    expectations: Vec<Expectation>,
}

impl<'a> Story<'a> {
    /// A new story, before its first step.
    pub fn new(output: &'a Output) -> Self {
        Self { output, step: 0, expectations: Vec::new() }
    }

    /// The output for results.
    pub fn output(&self) -> &'a Output {
        self.output
    }

    /// Begins the next step: a title and the reason for the step.
    pub fn step(&mut self, title: &str, why: &str) -> Result<()> {
        self.step += 1;
        if self.output.is_json() {
            return self.output.json(&serde_json::json!({ "event": "step", "step": self.step, "title": title }));
        }
        self.output.line(&format!("\n[{}/{STEPS}] {title}", self.step))?;
        self.say(why)
    }

    /// Prints an explanation.
    pub fn say(&self, text: &str) -> Result<()> {
        if self.output.is_json() {
            return Ok(());
        }
        for line in wrap(text, WIDTH - 6) {
            self.output.line(&format!("      {line}"))?;
        }
        Ok(())
    }

    /// Prints text and keeps its lines: a table, a listing.
    pub fn show(&self, text: &str) -> Result<()> {
        if self.output.is_json() {
            return Ok(());
        }
        text.lines().try_for_each(|line| self.output.line(&format!("      {line}")))
    }

    /// Prints the command that a user would type for the same.
    pub fn command(&self, text: &str) -> Result<()> {
        if self.output.is_json() { Ok(()) } else { self.output.line(&format!("      $ {text}")) }
    }

    /// Prints a result for machines.
    pub fn data<T: Serialize>(&self, value: &T) -> Result<()> {
        if self.output.is_json() { self.output.json(value) } else { Ok(()) }
    }

    /// Records whether an expectation held, and prints it.
    pub fn expect(&mut self, holds: bool, text: impl Into<String>) -> Result<()> {
        let text = text.into();
        let word = if holds { "ok" } else { "FAILED" };
        if self.output.is_json() {
            self.output.json(&serde_json::json!({ "event": "expectation", "text": text, "holds": holds }))?;
        } else {
            self.output.line(&format!("   {word:>6}  {text}").replace("       ok", "   ok"))?;
        }
        self.expectations.push(Expectation { text, holds });
        Ok(())
    }

    /// All expectations that were tested.
    pub fn expectations(&self) -> &[Expectation] {
        &self.expectations
    }

    /// Whether all of them held.
    pub fn holds(&self) -> bool {
        self.expectations.iter().all(|expectation| expectation.holds)
    }
}

/// Breaks `text` into lines of at most `width` characters at its spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.len() + 1 + word.len() <= width);
        match line {
            Some(line) => {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("incomprehensible", 4), ["incomprehensible"]);
    }

    #[test]
    fn one_failure_is_enough() -> Result<()> {
        let output = Output::new(true, true);
        let mut story = Story::new(&output);
        assert!(story.holds());
        story.expectations.push(Expectation { text: "two".into(), holds: false });
        assert!(!story.holds());
        Ok(())
    }
}
