//! Calls of a registry from a thread of its own, so that a sender never waits for it.
//!
//! A sender asks for calls as values (`Leader::take_calls`). They are made here one after the other. A call that finds
//! no room is dropped: the sender asks again after a while. So a slow registry delays takeovers, and never a write.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use lodestone_fabric::{Clock, Moment, Registry, RegistryAnswer, RegistryCall};

/// Calls that wait.
const CALLS_MAX: usize = 8;

/// A registry on a thread of its own. The thread ends after the call under way when this is dropped.
#[derive(Debug)]
pub struct RegistryThread {
    calls: SyncSender<(RegistryCall, Moment)>,
    answers: Receiver<lodestone_fabric::Result<RegistryAnswer>>,
}

impl RegistryThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn start(mut registry: Box<dyn Registry + Send>) -> std::io::Result<Self> {
        let (calls, asked) = sync_channel::<(RegistryCall, Moment)>(CALLS_MAX);
        // Each call has an answer, so there are never more.
        let (answer, answers) = sync_channel(2 * CALLS_MAX);
        let clock = Clock::default();
        std::thread::Builder::new().name("registry".to_owned()).spawn(move || {
            for (call, moment) in asked {
                if answer.send(call.make(&mut *registry, clock.now(), moment)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { calls, answers })
    }

    /// Asks for a call, which was wanted at a moment of the sender's clock. Never waits. `false`: there is no room, and
    /// the sender has to ask again.
    #[must_use]
    pub fn call(&self, call: RegistryCall, asked: Moment) -> bool {
        !matches!(self.calls.try_send((call, asked)), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }

    /// The answers since the last look, for `Leader::answered`. An error is worth a line in the log: the sender asks
    /// again by itself.
    pub fn answers(&self) -> Vec<lodestone_fabric::Result<RegistryAnswer>> {
        self.answers.try_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use lodestone_fabric::{GroupId, Lease, NodeId, Result, Swap, Term, View, VolumeState};

    use super::*;

    /// A registry that answers when it is let.
    struct Slow(Receiver<()>, Sender<()>);

    impl Registry for Slow {
        fn state(&self) -> Result<VolumeState> {
            self.1.send(()).unwrap();
            self.0.recv().unwrap();
            Ok(VolumeState::default())
        }

        fn claim(&mut self, _: NodeId, _: Term) -> Result<Swap> {
            unreachable!()
        }

        fn change(&mut self, _: Term, _: u64, _: GroupId, _: &View) -> Result<Swap> {
            unreachable!()
        }

        fn renew(&mut self, _: Moment, _: Term) -> Result<Lease> {
            unreachable!()
        }
    }

    #[test]
    fn a_registry_that_does_not_answer_is_not_waited_for() {
        let ((let_it, allowed), (began, begins)) = (channel(), channel());
        let thread = RegistryThread::start(Box::new(Slow(allowed, began))).unwrap();
        assert!(thread.call(RegistryCall::State, Moment(1)));
        begins.recv().unwrap();
        // It is in a call that does not end. More of them wait, and then there is no room.
        let taken = (0..100).filter(|_| thread.call(RegistryCall::State, Moment(2))).count();
        assert_eq!(taken, CALLS_MAX);
        assert!(thread.answers().is_empty());
        (0..=taken).for_each(|_| let_it.send(()).unwrap());
        let mut answers = Vec::new();
        while answers.len() <= taken {
            answers.extend(thread.answers());
            std::thread::yield_now();
        }
        assert!(answers.iter().all(|answer| matches!(answer, Ok(RegistryAnswer::State(_)))));
    }
}
