//! A deliberate mistake, so that the explorer's silence elsewhere means something.
//!
//! A value is stored, then a mark that says that the value counts. The value is flushed only *after* the mark was made
//! persistent. If power fails between the two, the mark is set and the value is missing.

use anyhow::Result;
use lodestone_crash::{Config, Explore, Failure, Violation};

use super::story::Story;

/// The explorer's result.
pub struct Caught {
    /// The violation, if there was one.
    pub violation: Option<Violation>,
    /// Crash states until it was found and shrunk.
    pub states: u64,
}

/// The program with the mistake.
const LISTING: &str = "\
memory.store(value, 42);
memory.store(valid, 1);
memory.persist(valid, 8);   // mistake: the value should be flushed and fenced before
memory.persist(value, 8);";

/// Offset of the mark from the value: another cache line.
const MARK_OFFSET: u64 = 64;

fn broken() -> Explore {
    Explore::new("demo-broken")
        .config(Config { nested_depth: 0, ..Config::default() })
        .op("publish 42", |pool| {
            let (value, memory) = (pool.heap_area(0).0, pool.memory());
            let valid = value.plus(MARK_OFFSET);
            memory.store(value, 42);
            memory.store(valid, 1);
            // The mistake: the mark that says that the value counts may overtake the value.
            memory.persist(valid, 8);
            // Too late: a reader of the mark may already have found no value.
            memory.persist(value, 8);
            Ok(())
        })
        .check(|pool, _| {
            let (value, memory) = (pool.heap_area(0).0, pool.memory());
            let (mark, found) = (memory.load(value.plus(MARK_OFFSET)), memory.load(value));
            Failure::unless(mark == 0 || found == 42, || format!("the mark is set, but the value is {found}, not 42"))
        })
}

/// Explores the broken program and shows the finding.
pub fn catch(story: &mut Story<'_>) -> Result<Caught> {
    story.say(
        "Would it notice a mistake? Here is one: a value and a mark that says that it counts, made persistent in the \
         wrong order. No test that does not cut the power at the right moment finds it.",
    )?;
    story.show(LISTING)?;
    let report = broken().run();
    let caught = Caught { states: report.states, violation: report.found.into_iter().next() };
    if let Some(violation) = &caught.violation {
        story.say(&format!("Found: {}. What power failure shows it:", violation.message))?;
        story.show(&violation.account)?;
    }
    story.data(&serde_json::json!({
        "event": "planted_mistake", "states": caught.states,
        "violation": caught.violation.as_ref().map(|violation| &violation.message),
    }))?;
    story.expect(caught.violation.is_some(), "the explorer catches the mistake that was made for it")?;
    Ok(caught)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mistake_is_caught_and_shrunk() {
        let violation = broken().run().expect_violation();
        assert!(violation.message.contains("the value is 0, not 42"), "{violation}");
    }
}
