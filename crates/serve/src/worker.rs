//! Threads for messages that take long. Each serves one client at a time, and may wait for it.
//!
//! A client moves to a worker with its socket, and comes back to its loop when the message is carried out. So the loop
//! goes on with its other clients, and an answer of any length needs no memory: the worker waits until the client has
//! taken what was sent.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lodestone_sql::Connection;
use lodestone_sql_types::{Error, Result, SqlState};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::client::Client;
use crate::panics;
use crate::protocol::Stream;
use crate::server::{STACK_BYTES, Shared};
use crate::tls::Session;
use crate::turn::Mailbox;

/// How long a worker waits for a socket before it looks whether the server stops or the statement is cancelled.
const LOOK: Duration = Duration::from_millis(5);

/// A client that a loop has given away.
pub struct Job {
    pub token: usize,
    pub client: Box<Client>,
    /// The loop that it comes back to.
    pub mailbox: Arc<Mailbox>,
    pub shared: Arc<Shared>,
}

/// The work of a thread.
enum Task {
    Serve(Job),
    /// A connection that takes long to end.
    End(Box<Connection>, Arc<Shared>),
}

/// See the module.
#[derive(Default)]
pub struct Workers {
    queue: Mutex<VecDeque<Task>>,
    /// Connections that have not ended yet.
    ending: AtomicUsize,
    has_job: Condvar,
    threads: AtomicUsize,
    idle: AtomicUsize,
    is_stopping: AtomicBool,
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Workers {
    fn queue(&self) -> MutexGuard<'_, VecDeque<Task>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a client to a worker.
    pub fn give(self: &Arc<Self>, job: Job) {
        self.add(Task::Serve(job));
    }

    /// Ends a connection on a worker.
    pub fn end(self: &Arc<Self>, connection: Box<Connection>, shared: Arc<Shared>) {
        self.ending.fetch_add(1, Ordering::AcqRel);
        self.add(Task::End(connection, shared));
    }

    /// Whether connections have not ended yet.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire) > 0
    }

    fn add(self: &Arc<Self>, task: Task) {
        let mut queue = self.queue();
        queue.push_back(task);
        let needs_one = queue.len() > self.idle.load(Ordering::Relaxed);
        drop(queue);
        self.has_job.notify_one();
        // A client has one job at a time, so there are no more workers than clients. With fewer, clients that take
        // their rows slowly would hold up all others.
        if needs_one {
            self.threads.fetch_add(1, Ordering::Relaxed);
            let workers = self.clone();
            let builder = std::thread::Builder::new().name("serve-worker".into()).stack_size(STACK_BYTES);
            if builder.spawn(move || workers.run()).is_err() {
                // Another worker takes the client; without any the client waits until there is memory for one.
                self.threads.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends the workers when they have nothing to do. The loops cancel the statements that run.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let _queue = self.queue();
        self.has_job.notify_all();
    }

    fn run(&self) {
        while let Some(task) = self.next() {
            match task {
                Task::Serve(mut job) => {
                    panics::serve(&job.shared, &mut job.client, |client| client.serve_alone(&self.is_stopping));
                    job.mailbox.give_back(job.token, job.client);
                }
                Task::End(connection, shared) => {
                    panics::end(&shared, || drop(connection));
                    self.ending.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    fn next(&self) -> Option<Task> {
        let mut queue = self.queue();
        loop {
            if let Some(task) = queue.pop_front() {
                return Some(task);
            }
            if self.is_stopping.load(Ordering::Acquire) {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            queue = self.has_job.wait(queue).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Waits until the socket is ready, for a moment.
fn wait(socket: &impl AsFd, flags: PollFlags) {
    let time = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
    // After an error the next call on the socket says why.
    let _ = rustix::event::poll(&mut [PollFd::new(socket, flags)], Some(&time));
}

/// Waits until the socket has bytes, for a moment.
pub fn wait_readable(socket: &impl AsFd) {
    wait(socket, PollFlags::IN);
}

/// The way to a client while a worker carries out its statement.
pub struct Direct {
    socket: File,
    session: Option<Arc<Session>>,
}

impl Direct {
    /// `session`: the encryption of the socket.
    pub fn new(socket: OwnedFd, session: Option<Arc<Session>>) -> Self {
        Self { socket: socket.into(), session }
    }

    /// Sends some of the bytes.
    fn send_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => Ok(rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL)?),
            Some(session) => session.write(&mut self.socket, bytes),
        }
    }
}

impl Stream for Direct {
    fn send(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut sent = 0;
        let mut has_waited = false;
        while sent < bytes.len() {
            match self.send_some(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && has_waited => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    has_waited = true;
                    wait(&self.socket, PollFlags::OUT);
                }
                Err(error) => {
                    let message = format!("could not send data to client: {error}");
                    return Err(Error::new(SqlState::CONNECTION_FAILURE, message));
                }
            }
        }
        Ok(sent)
    }
}
