//! Connections to the other keepers: a thread and a queue for each. Nothing waits for a keeper that is away.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::CONNECT_PATIENCE;
use super::line::{Line, Purpose, Security};
use crate::keepers::KeeperId;

/// Messages that wait for a keeper.
const QUEUE_MAX: usize = 256;
/// Pause before a connection is made again.
const AGAIN: Duration = Duration::from_millis(100);
/// Time for one message.
const SEND_PATIENCE: Duration = Duration::from_secs(2);

/// The connection to one keeper.
#[derive(Debug)]
pub(super) struct Link {
    queue: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
}

impl Link {
    pub(super) fn start(own: KeeperId, to: KeeperId, address: SocketAddr, security: Security) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name(format!("keeper-link-{}", to.0))
            .spawn(move || carry(own, to, address, &security, &messages))?;
        Ok(Self { queue, thread })
    }

    /// Queues a message. It is lost if the queue is full: Raft sends again.
    pub(super) fn send(&self, message: Vec<u8>) {
        _ = self.queue.try_send(message);
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        drop(self.queue);
        _ = self.thread.join();
    }
}

fn carry(own: KeeperId, to: KeeperId, address: SocketAddr, security: &Security, messages: &Receiver<Vec<u8>>) {
    let mut line: Option<Line> = None;
    let mut again = Instant::now();
    for message in messages {
        if line.is_none() && Instant::now() >= again {
            line = security.connect(to, address, CONNECT_PATIENCE).ok().and_then(|mut line| {
                line.greet(Purpose::Messages, own.0).ok()?;
                Some(line)
            });
            again = Instant::now() + AGAIN;
        }
        // Without a connection the message is lost.
        if let Some(found) = &mut line {
            found.within(Some(SEND_PATIENCE));
            if found.send(&message).is_err() {
                line = None;
            }
        }
    }
}
