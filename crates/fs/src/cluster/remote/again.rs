//! The way of a mount to the next metadata node: it attaches there, and has operations carried out again that were
//! answered and are lost.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestone_pmem::sync::lock;
use lodestone_registry::Channel;

use super::ask::connect;
use super::calls::{Answer, Call, Value};
use super::client::{ATTACH_PATIENCE, LOOKS, Leader, Number, Shared};
use super::mounts::Attach;
use super::replays::{Declared, Fate, Place};
use super::unstable::Pending;
use crate::bytes::{Reader, Writer};
use crate::cluster::machine::wire;
use crate::error::{Error, Result};
use crate::requests::Files;

/// Time for an operation to be carried out again: longer than the metadata node waits for other nodes.
const AGAIN_PATIENCE: Duration = Duration::from_secs(10);

impl Shared {
    /// Looks for a metadata node, attaches to it, and has it carry out what it lacks. Until then no call goes there,
    /// and no operation is answered.
    pub(super) fn find(&self) {
        let Some((machine, term)) = self.newest() else { return };
        let declared = lock(&self.state).unstable.declare();
        let fates = match self.attach(machine, term, &declared) {
            Ok((attached, fates)) if attached == term => fates,
            Ok(_) => return,
            Err(error) => {
                lock(&self.state).reason = error.to_string();
                return;
            }
        };
        let again = {
            let mut state = lock(&self.state);
            let (again, lost) = state.unstable.sort(term, &declared, &fates);
            state.lost += lodestone_width::to_u64(lost.len());
            drop(state);
            self.end_lost(&lost);
            again
        };
        if !again.is_empty() {
            match self.send_again(machine, term, &again) {
                Ok(true) => {
                    tracing::warn!("operations that a takeover had lost were carried out again: {}", again.len())
                }
                Ok(false) => return,
                Err(error) => {
                    lock(&self.state).reason = error.to_string();
                    return;
                }
            }
        }
        let mut state = lock(&self.state);
        (state.machine, state.term) = (machine, term);
        state.generation += 1;
        drop(state);
        self.takeovers.fetch_add(1, Ordering::AcqRel);
        tracing::info!("machine {machine} leads in term {term}");
        self.changed.notify_all();
    }

    /// Tells the metadata node of a term which files are open, and which operations may be lost. Its term, and their
    /// fates.
    fn attach(&self, machine: u16, wanted: u32, declared: &[Declared]) -> Result<(u32, Vec<Fate>)> {
        let mut channel = connect(&self.site(), &self.security, machine)?;
        let failed = |error| Error::Options(format!("machine {machine} does not answer: {error}"));
        let open: Vec<u64> = lock(&self.open).keys().copied().collect();
        let ino_floor = self.ino_floor.load(Ordering::Acquire);
        let mut out = Writer::default();
        out.u8(wire::ATTACH);
        let (locks, began) = (self.locks_to_tell(wanted), Instant::now());
        let attach = Attach { mount: self.mount, ino_floor, open, locks, declared: declared.to_vec() };
        attach.write(&mut out);
        channel.within(Some(ATTACH_PATIENCE));
        channel.send(&out.0).map_err(failed)?;
        let bytes = channel.receive(wire::ANSWER_BYTES_MAX).map_err(failed)?;
        let mut from = Reader(&bytes);
        match (from.u8(), from.u32(), from.u64()) {
            (Some(0), Some(term), Some(lease_ms)) => {
                self.lease_ms.store(lease_ms, Ordering::Release);
                if term == wanted {
                    lock(&self.held).known = Some((term, began));
                }
                self.lose_locks(&attach.locks, &mut from);
                let fates = declared.iter().map(|_| Fate::read(&mut from)).collect::<Option<Vec<Fate>>>();
                let wrong = || Error::Options(format!("machine {machine}: an answer that makes no sense"));
                Ok((term, fates.ok_or_else(wrong)?))
            }
            _ => Err(Error::Options(match Answer::from_bytes(&bytes) {
                Some(Answer::Failed(text)) => format!("machine {machine}: {text}"),
                _ => format!("machine {machine} does not lead"),
            })),
        }
    }

    /// Has operations carried out again, in order. `false`: another metadata node leads meanwhile.
    fn send_again(&self, machine: u16, term: u32, again: &[Place]) -> Result<bool> {
        let mut channel = connect(&self.site(), &self.security, machine)?;
        for (at, place) in again.iter().enumerate() {
            // It may be lost with an earlier one.
            let Some(pending) = lock(&self.state).unstable.get(*place).cloned() else { continue };
            let answer = loop {
                if self.stop.load(Ordering::Acquire) || self.has_another(machine, term) {
                    return Ok(false);
                }
                match self.one_again(machine, &mut channel, &pending)? {
                    Answer::NotYet(text) => {
                        lock(&self.state).reason = text;
                        std::thread::sleep(LOOKS.1);
                    }
                    Answer::Elsewhere(_) | Answer::NotAttached => return Ok(false),
                    answer => break answer,
                }
            };
            let mut state = lock(&self.state);
            state.unstable.take(*place);
            match answer {
                Answer::Done(0, _) => {
                    // There is nothing left to change, so nothing can be lost.
                    drop(state);
                    self.end_requests(&[pending.request]);
                }
                Answer::Done(operation, _) => {
                    self.came_back.fetch_add(1, Ordering::AcqRel);
                    state.unstable.keep((term, operation), Pending { since: term, ..pending });
                }
                _ => {
                    let mut lost = state.unstable.spoil(&pending, &again[at + 1..]);
                    lost.push(pending.request);
                    state.lost += lodestone_width::to_u64(lost.len());
                    drop(state);
                    self.end_lost(&lost);
                }
            }
        }
        Ok(true)
    }

    fn one_again(&self, machine: u16, channel: &mut Channel, pending: &Pending) -> Result<Answer> {
        let failed = |error| Error::Options(format!("machine {machine} does not answer: {error}"));
        let mut out = Writer::default();
        let floor = lock(&self.numbers).floor();
        out.u8(wire::AGAIN).u64(pending.files[0]).u64(pending.files[1]);
        out.u64(self.mount).u64(pending.request).u64(floor);
        pending.call.write(&mut out);
        channel.within(Some(AGAIN_PATIENCE));
        channel.send(&out.0).map_err(failed)?;
        let bytes = channel.receive(wire::ANSWER_BYTES_MAX).map_err(failed)?;
        let wrong = || Error::Options(format!("machine {machine}: an answer that makes no sense"));
        Answer::from_bytes(&bytes).ok_or_else(wrong)
    }

    fn end_lost(&self, requests: &[u64]) {
        if !requests.is_empty() {
            tracing::warn!("{} operations were answered, not synced, and are lost by a takeover", requests.len());
            self.end_requests(requests);
        }
    }

    /// These requests are not sent again.
    pub(super) fn end_requests(&self, requests: &[u64]) {
        let mut numbers = lock(&self.numbers);
        requests.iter().for_each(|request| numbers.end(*request));
        drop(numbers);
        self.fewer_wait.notify_all();
    }

    /// Keeps an operation that was answered until it is stable. `false`: its metadata node does not lead any more, and
    /// the next one was not told of it.
    pub(super) fn keep_until_stable(
        &self,
        leader: Leader,
        call: &Call,
        number: &mut Number<'_>,
        operation: u64,
        value: &Value,
    ) -> bool {
        let mut state = lock(&self.state);
        if state.machine == 0 || state.term != leader.term {
            return false;
        }
        if operation == 0 {
            // It had nothing to change.
            return true;
        }
        let files = match (call, value) {
            (Call::Make { .. }, Value::Attributes(file)) => [file.ino, 0],
            (_, Value::Files(files)) => *files,
            _ => Files::default(),
        };
        let mut call = call.clone();
        if let (Call::Make { pins: pins @ true, .. }, [made, _]) = (&mut call, files) {
            // The next metadata node is told which files are open, this one too: it is noted before the list is made.
            *lock(&self.open).entry(made).or_default() += 1;
            *pins = false;
        }
        let place = (leader.term, operation);
        let pending = Pending { request: number.request, order: place, since: leader.term, call, files };
        state.unstable.keep(place, pending);
        number.is_kept = true;
        true
    }

    /// The operations of a term up to a place are stable.
    pub(super) fn settle(&self, term: u32, place: Option<Place>) {
        let Some(place) = place.filter(|place| place.0 == term) else { return };
        let stable = lock(&self.state).unstable.settle(place);
        if !stable.is_empty() {
            self.end_requests(&stable);
        }
    }

    /// New files get higher numbers than those that were told.
    pub(super) fn note_number(&self, value: &Value) {
        if let Value::Attributes(file) = value {
            self.ino_floor.fetch_max(file.ino + 1, Ordering::AcqRel);
        }
    }
}
