//! The names and attributes that a mount keeps under leases, and the thread that hears of those that are taken back.

use std::sync::atomic::{AtomicU64, Ordering};

use lodestone_pmem::sync::{Mutex, lock};
use lodestone_registry::Channel;

use super::ask::{STANDING_PATIENCE, connect};
use super::calls::{Answer, Call, Value};
use super::client::Shared;
use crate::access::Caller;
use crate::attributes::is_recent_read;
use crate::bytes::{Reader, Writer};
use crate::cluster::machine::wire;
use crate::error::{Error, Refusal, Result};
use crate::lease::kept::{Begun, Granted, Kept};
use crate::lease::table::News;
use crate::lease::{keys, now};

/// Pause after a request that was not answered.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// The names and attributes that a mount keeps.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    kept: Mutex<Kept>,
    answered: AtomicU64,
    recalled: AtomicU64,
}

/// Whether this caller may look up every name, so that what one has found is true for another one.
const fn may_look_up(by: &Caller) -> bool {
    by.uid == 0
}

impl Keeping {
    /// The answer to a call, if it is kept.
    pub(super) fn find(&self, call: &Call) -> Option<Result<Value>> {
        let found = match call {
            Call::Attributes { ino } => {
                lock(&self.kept).attributes(now(), *ino).map(|file| Ok(Value::Attributes(file)))
            }
            Call::Lookup { by, parent, name } if may_look_up(by) => {
                let found = lock(&self.kept).lookup(now(), *parent, name);
                found.map(|file| file.map_or_else(|| Err(Refusal::NotFound.into()), |file| Ok(Value::Attributes(file))))
            }
            // The access time would stay as it is.
            Call::NoteRead { ino } => {
                let file = lock(&self.kept).attributes(now(), *ino);
                let is_recent = file.is_some_and(|file| is_recent_read(&file, crate::core::system_time()));
                is_recent.then_some(Ok(Value::Nothing))
            }
            _ => None,
        };
        if found.is_some() {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// A call is sent: what it changes is dropped, and given back by the call.
    pub(super) fn begin(&self, call: &Call, out: &mut Writer) -> Begun {
        let (files, names) = keys::dropped(call);
        let mut kept = lock(&self.kept);
        kept.give_back(&files, &names).write(out);
        kept.begin()
    }

    /// Keeps an answer, as far as it came with leases.
    pub(super) fn keep(&self, begun: Begun, granted: Granted, call: &Call, answer: &Answer) {
        let mut kept = lock(&self.kept);
        match (call, answer) {
            (Call::Attributes { .. }, Answer::Done(_, Value::Attributes(file))) => kept.keep_file(begun, granted, file),
            (Call::Lookup { parent, name, .. }, Answer::Done(_, Value::Attributes(file))) => {
                kept.keep_name(begun, granted, (*parent, name), Some(file));
            }
            (Call::Lookup { parent, name, .. }, Answer::Refused(Refusal::NotFound)) => {
                kept.keep_name(begun, granted, (*parent, name), None);
            }
            _ => {}
        }
    }

    /// Calls that were answered from what is kept, and recalls.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.answered.load(Ordering::Relaxed), self.recalled.load(Ordering::Relaxed))
    }
}

impl Shared {
    /// Asks the metadata node for news of leases, again and again. It answers when there is some, or after a while.
    pub(super) fn watch_leases(&self) {
        let Some(keeping) = &self.kept else { return };
        let mut channel: Option<(u16, Channel)> = None;
        while !self.stop.load(Ordering::Acquire) {
            let machine = self.present_machine();
            if machine == 0 || self.ask_for_news(keeping, machine, &mut channel).is_err() {
                channel = None;
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn ask_for_news(&self, keeping: &Keeping, machine: u16, kept: &mut Option<(u16, Channel)>) -> Result<()> {
        let mut channel = match kept.take() {
            Some((of, channel)) if of == machine => channel,
            _ => connect(&self.site(), &self.security, machine)?,
        };
        // The session goes on from here: whatever the answer takes.
        let (sent, (session, done)) = (now(), lock(&keeping.kept).session());
        let mut out = Writer::default();
        out.u8(wire::NEWS).u64(self.mount).u64(session).u64(done);
        channel.within(Some(STANDING_PATIENCE));
        let failed = |error| Error::Options(format!("machine {machine} does not answer: {error}"));
        channel.send(&out.0).map_err(failed)?;
        let bytes = channel.receive(wire::ANSWER_BYTES_MAX).map_err(failed)?;
        let mut from = Reader(&bytes);
        let news = match from.u8() {
            Some(0) => News::read(&mut from),
            _ => None,
        };
        let news = news.ok_or_else(|| Error::Options(format!("machine {machine} does not lead")))?;
        keeping.recalled.fetch_add(lodestone_width::to_u64(news.recalls.len()), Ordering::Relaxed);
        lock(&keeping.kept).tell(sent, session, &news);
        *kept = Some((machine, channel));
        Ok(())
    }
}
