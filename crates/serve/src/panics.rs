//! A panic ends one client, or the server, and never leaves a server that goes on with half of a change.
//!
//! Each step of a client runs under [`serve`]. A panic in it is a mistake of this program. Its client is told of an
//! error without details (FATAL XX000) and leaves; an event has the place and the statement. What may a panic leave?
//!
//! | what | after the panic |
//! | --- | --- |
//! | the buffers and the phase of the client, its connection | no other client has them, and they end with it |
//! | an answer that was being written | its bytes up to the last whole message stay: see `Out::take_back_broken` |
//! | the transaction | dropped by the unwinding or by `Connection::give_up`: its changes are in it alone until its commit |
//! | its locks on rows and tables | `Connection::give_up` releases them; temporary tables are dropped as at any end |
//! | a table of the process that its thread had locked | it may be half changed, and its mutex says so: the server stops |
//! | the engine | if the panic began in the engine, a latch may be half changed: the server stops |
//!
//! The engine cleans up after a panic in a commit, and poisons itself where the log may have a record of it. But a leaf
//! in the middle of a change makes its readers wait for ever, and no flag says so. So the place of the panic decides: a
//! panic that began above the engine began between two calls of it, or in an iterator or a waker that it calls without
//! latches. Any other place counts as one in the engine, also one that is not known.
//!
//! A server that stops poisons the database first: nothing is committed any more, and nothing is written at its end.
//! The next start recovers, as after SIGKILL.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use tracing::{Level, event};

use crate::client::Client;
use crate::server::Shared;

/// Longest part of a statement in an event.
const TEXT_LETTERS_MAX: usize = 1000;

/// Crates of others that the floors above the engine use and the engine does not.
const OTHERS_ABOVE: [&str; 7] =
    ["sqlparser", "regex-lite", "num-bigint", "num-integer", "num-traits", "pgwire", "rustls"];
/// Folders of the crates above the engine.
const FOLDERS_ABOVE: [&str; 3] = ["sql", "sql-types", "serve"];

/// A panic that was caught.
#[derive(Debug, Default)]
pub struct Caught {
    /// File and line.
    place: Option<(String, u32)>,
    what: String,
    /// The message of the client that was being carried out, and those after it.
    message: Vec<u8>,
}

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
    static CAUGHT: RefCell<Caught> = RefCell::default();
}

/// Notes the places of panics from now on.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            note(info);
            former(info);
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    if !IS_GUARDED.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    let place = info.location().map(|place| (place.file().to_owned(), place.line()));
    let payload = info.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let what = text.unwrap_or("a panic without a text").to_owned();
    // A panic inside of a panic hook ends the process, so nothing here may panic.
    let _ = CAUGHT.try_with(|caught| {
        if let Ok(mut caught) = caught.try_borrow_mut() {
            (caught.place, caught.what) = (place, what);
        }
    });
}

/// A message that is being carried out. If a panic ends that, the event has its text.
pub struct AtHand {
    pub input: Vec<u8>,
    /// Bytes that were carried out.
    pub done: usize,
}

impl Drop for AtHand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            keep(self.input.get(self.done..).unwrap_or_default());
        }
    }
}

/// Keeps the message for the event.
fn keep(message: &[u8]) {
    let _ = CAUGHT.try_with(|caught| {
        if let Ok(mut caught) = caught.try_borrow_mut() {
            caught.message = message.to_vec();
        }
    });
}

/// Runs `step`, and catches its panic.
pub fn guard<R>(step: impl FnOnce() -> R) -> Result<R, Caught> {
    let before = IS_GUARDED.replace(true);
    // A state that the step has changed is used again only by `Client::fail`, which the module's table is about.
    let outcome = catch_unwind(AssertUnwindSafe(step));
    IS_GUARDED.set(before);
    outcome.map_err(|payload| {
        // Its destructor is foreign code, which may panic. A few bytes are lost.
        std::mem::forget(payload);
        CAUGHT.take()
    })
}

/// Carries out a step of a client. `None`: it panicked, and the client is told and leaves.
pub fn serve<R>(shared: &Shared, client: &mut Client, step: impl FnOnce(&mut Client) -> R) -> Option<R> {
    match guard(|| step(client)) {
        Ok(found) => Some(found),
        Err(caught) => {
            let text = guard(|| client.machine.text_at_hand(&caught.message)).unwrap_or_default();
            report(shared, &caught, &text);
            if let Err(again) = guard(|| client.fail()) {
                // Its locks may not be free, and its transaction may not have ended.
                report(shared, &again, "the end of the connection");
                shared.fail();
            }
            None
        }
    }
}

/// Ends something of a client that is gone, such as its connection.
pub fn end(shared: &Shared, end: impl FnOnce()) {
    if let Err(caught) = guard(end) {
        report(shared, &caught, "the end of the connection");
    }
}

/// Tells the operator, and stops the server if what others share may be half changed.
fn report(shared: &Shared, caught: &Caught, text: &str) {
    let Caught { place, what, .. } = caught;
    let (file, line) = place.as_ref().map_or(("a place that is not known", 0), |(file, line)| (file.as_str(), *line));
    let goes_on = is_above_engine(file) && shared.database.is_whole();
    let statement: String = text.chars().take(TEXT_LETTERS_MAX).collect();
    event!(
        name: "panic",
        target: "lodestone::serve",
        Level::ERROR,
        path = %shared.database.engine().pool().path().display(),
        file,
        line,
        what = what.as_str(),
        statement = statement.as_str(),
        goes_on,
        "a panic has ended a connection"
    );
    if !goes_on {
        shared.fail();
    }
}

/// Whether a panic at this place began between two calls of the engine.
fn is_above_engine(file: &str) -> bool {
    let parts: Vec<&str> = file.split(['/', '\\']).collect();
    let Some(folder) = parts.iter().rposition(|part| *part == "src").and_then(|place| parts.get(place.checked_sub(1)?))
    else {
        return false;
    };
    // A crate from a registry has its version after its name.
    let name = match folder.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => name,
        _ => folder,
    };
    match name.strip_prefix("lodestone-") {
        Some(own) => FOLDERS_ABOVE.contains(&own),
        None => FOLDERS_ABOVE.contains(&name) || OTHERS_ABOVE.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_above_the_engine_let_the_server_go_on() {
        for file in [
            "crates/sql/src/run/mod.rs",
            "crates/sql-types/src/numeric/math.rs",
            file!(),
            "/home/ann/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/sqlparser-0.63.0/src/parser/mod.rs",
            "/home/ann/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lodestone-sql-0.1.0/src/lib.rs",
            r"crates\serve\src\turn.rs",
        ] {
            assert!(is_above_engine(file), "{file}");
        }
        for file in [
            "crates/engine/src/leaf.rs",
            "/sql/crates/engine/src/leaf.rs",
            "/home/ann/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/arc-swap-1.7.1/src/lib.rs",
            "/home/ann/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/lodestone-engine-0.1.0/src/leaf.rs",
            "/rustc/17067e9ac6d7e7b1d3f0e1b2/library/alloc/src/raw_vec/mod.rs",
            "a place that is not known",
            "src/main.rs",
            "",
        ] {
            assert!(!is_above_engine(file), "{file}");
        }
    }

    #[test]
    fn a_panic_is_caught_with_its_place_and_message() {
        install();
        let caught = guard(|| {
            let _at_hand = AtHand { input: b"done rest".to_vec(), done: 5 };
            let list = [1, 2];
            let _ = list[std::hint::black_box(2)];
        });
        let caught = caught.expect_err("a panic");
        assert!(is_above_engine(&caught.place.as_ref().expect("a place").0), "{caught:?}");
        assert!(caught.what.contains("index out of bounds"), "{caught:?}");
        assert_eq!(caught.message, b"rest");
        assert_eq!(guard(|| 7).ok(), Some(7));
    }
}
