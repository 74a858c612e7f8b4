//! One loop: a thread that serves many clients.
//!
//! A turn takes all clients that are ready, carries out their messages, and then sends all answers. So the commits of a
//! turn share a group of the log, and a client gets one write for all of its messages.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use crate::client::{Client, Socket};
use crate::listen::Listener;
use crate::panics;
use crate::protocol::{Host, Machine, Peer};
use crate::server::Shared;
use crate::worker::Job;

/// The token of the loop's own waker.
const WAKE: Token = Token(0);
/// The first token of a listener.
const FIRST_LISTENER: usize = 1;
/// The first token of a client.
const FIRST_CLIENT: usize = 64;
/// How often late clients are looked for.
const SWEEP: Duration = Duration::from_secs(1);
/// The same where a session has a timeout.
const TIMEOUT_SWEEP: Duration = Duration::from_millis(10);
/// How long the end of the server waits for statements that are cancelled.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How other threads reach a loop.
#[derive(Debug)]
pub struct Mailbox {
    waker: mio::Waker,
    /// Clients that can go on.
    ready: Mutex<Vec<usize>>,
    sockets: Mutex<Vec<(Socket, Peer, bool)>>,
    /// Clients that come back from a worker.
    returned: Mutex<Vec<(usize, Box<Client>)>>,
    is_woken: AtomicBool,
}

impl Mailbox {
    /// Wakes the loop, once for all reasons of a turn.
    pub fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // The loop is gone if this fails.
            drop(self.waker.wake());
        }
    }

    /// Hands a client to the loop. `must_encrypt`: it may not go on in plain text.
    pub fn send(&self, socket: Socket, peer: Peer, must_encrypt: bool) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push((socket, peer, must_encrypt));
        self.wake();
    }
}

impl Mailbox {
    /// A client comes back from a worker.
    pub fn give_back(&self, token: usize, client: Box<Client>) {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner).push((token, client));
        self.wake();
    }
}

/// Wakes one client of a loop.
struct ClientWaker {
    mailbox: Arc<Mailbox>,
    token: usize,
}

impl Wake for ClientWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mailbox.ready.lock().unwrap_or_else(PoisonError::into_inner).push(self.token);
        self.mailbox.wake();
    }
}

/// A loop.
pub struct Loop {
    poll: Poll,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    clients: HashMap<usize, Box<Client>>,
    /// Clients that workers serve, with what cancels their statements.
    away: HashMap<usize, Option<(i32, i32)>>,
    next: usize,
    buffer: Vec<u8>,
}

impl Loop {
    pub fn new(shared: Arc<Shared>, mut listeners: Vec<Listener>) -> io::Result<Self> {
        let poll = Poll::new()?;
        for (number, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(FIRST_LISTENER + number))?;
        }
        let mailbox = Mailbox {
            waker: mio::Waker::new(poll.registry(), WAKE)?,
            ready: Mutex::default(),
            sockets: Mutex::default(),
            returned: Mutex::default(),
            is_woken: AtomicBool::new(false),
        };
        Ok(Self {
            poll,
            mailbox: Arc::new(mailbox),
            shared,
            listeners,
            clients: HashMap::new(),
            away: HashMap::new(),
            next: FIRST_CLIENT,
            buffer: Vec::new(),
        })
    }

    pub fn mailbox(&self) -> Arc<Mailbox> {
        self.mailbox.clone()
    }

    /// Serves until the server stops.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut touched = Vec::new();
        let mut swept = Instant::now();
        while !self.shared.is_stopping() {
            let sweep = if self.shared.database.uses_timeouts() { TIMEOUT_SWEEP } else { SWEEP };
            match self.poll.poll(&mut events, Some(sweep)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            touched.clear();
            for event in &events {
                let Token(token) = event.token();
                if token >= FIRST_CLIENT {
                    if event.is_read_closed() {
                        self.hang_up(token);
                    } else if event.is_readable()
                        && let Some(client) = self.clients.get_mut(&token)
                    {
                        client.note_readable();
                    }
                    touched.push(token);
                } else if token >= FIRST_LISTENER {
                    self.accept(token - FIRST_LISTENER);
                }
            }
            self.take_mail(&mut touched);
            touched.sort_unstable();
            touched.dedup();
            self.turn(&mut touched);
            if swept.elapsed() > sweep {
                swept = Instant::now();
                self.sweep(swept);
            }
        }
        self.stop();
        Ok(())
    }

    /// The other side of a client's socket is closed.
    fn hang_up(&mut self, token: usize) {
        if let Some(client) = self.clients.get_mut(&token) {
            client.note_hung_up();
        } else if let Some(Some((number, secret))) = self.away.get(&token) {
            // A worker looks at its socket only when it sends rows.
            self.shared.database.hang_up(*number, *secret);
        }
    }

    /// Looks for clients that are late.
    fn sweep(&mut self, now: Instant) {
        for client in self.clients.values_mut() {
            panics::serve(&self.shared, client, |client| {
                if client.is_late(now) {
                    client.end_late();
                }
                client.machine.look_at_clock(now);
            });
        }
        let all: Vec<usize> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|token| self.end_if_done(token));
    }

    /// Carries out the messages of all ready clients, then sends the answers.
    fn turn(&mut self, touched: &mut Vec<usize>) {
        while !touched.is_empty() {
            for token in touched.iter() {
                if let Some(client) = self.clients.get_mut(token) {
                    panics::serve(&self.shared, client, |client| client.read(&mut self.buffer));
                }
            }
            let away = touched.iter().filter(|token| self.clients.get(token).is_some_and(|c| c.machine.wants_worker()));
            for token in away.copied().collect::<Vec<_>>() {
                self.give_away(token);
            }
            let (clients, shared) = (&mut self.clients, &self.shared);
            touched.retain(|token| {
                let goes_on = clients.get_mut(token).is_some_and(|client| write(shared, client));
                if !goes_on && clients.get(token).is_some_and(|client| client.is_done()) {
                    Self::end(clients, &self.poll, shared, *token);
                }
                goes_on
            });
        }
    }

    /// Gives a client to a worker.
    fn give_away(&mut self, token: usize) {
        let Some(client) = self.clients.remove(&token) else { return };
        let key = client.machine.cancel_key();
        self.away.insert(token, key);
        if client.is_hung_up() {
            // The system has said so before, and says it once.
            key.into_iter().for_each(|(number, secret)| self.shared.database.hang_up(number, secret));
        }
        let (mailbox, shared) = (self.mailbox.clone(), self.shared.clone());
        self.shared.workers.give(Job { token, client, mailbox, shared });
    }

    fn end(clients: &mut HashMap<usize, Box<Client>>, poll: &Poll, shared: &Arc<Shared>, token: usize) {
        if let Some(mut client) = clients.remove(&token) {
            // The socket closes with the client in any case.
            drop(client.socket.deregister(poll.registry()));
            panics::end(shared, || {
                if let Some(connection) = client.machine.take_ending() {
                    shared.workers.end(connection, shared.clone());
                }
                drop(client);
            });
            shared.left();
        }
    }

    fn end_if_done(&mut self, token: usize) {
        if let Some(client) = self.clients.get_mut(&token) {
            write(&self.shared, client);
            if client.is_done() {
                Self::end(&mut self.clients, &self.poll, &self.shared, token);
            }
        }
    }

    fn take_mail(&mut self, touched: &mut Vec<usize>) {
        // Before the lists are taken: what comes after this wakes the loop again.
        self.mailbox.is_woken.store(false, Ordering::Release);
        touched.append(&mut self.mailbox.ready.lock().unwrap_or_else(PoisonError::into_inner));
        let sockets = std::mem::take(&mut *self.mailbox.sockets.lock().unwrap_or_else(PoisonError::into_inner));
        for (socket, peer, must_encrypt) in sockets {
            touched.extend(self.add(socket, peer, must_encrypt));
        }
        let returned = std::mem::take(&mut *self.mailbox.returned.lock().unwrap_or_else(PoisonError::into_inner));
        for (token, client) in returned {
            self.away.remove(&token);
            self.clients.insert(token, client);
            touched.push(token);
        }
    }

    /// A new client of this loop. `None`: its socket is gone already.
    fn add(&mut self, mut socket: Socket, peer: Peer, must_encrypt: bool) -> Option<usize> {
        let token = self.next;
        self.next += 1;
        if socket.register(self.poll.registry(), Token(token)).is_err() {
            self.shared.left();
            return None;
        }
        if self.shared.is_crowded() {
            self.end_oldest_unknown();
        }
        let waker = Waker::from(Arc::new(ClientWaker { mailbox: self.mailbox.clone(), token }));
        let host = Host {
            database: self.shared.database.clone(),
            name: self.shared.name.clone(),
            places: self.shared.places.clone(),
            has_workers: true,
            secret: self.shared.secret,
        };
        let mut machine = Machine::new(host, peer, waker);
        socket.address().into_iter().for_each(|address| machine.set_address(address));
        let acceptor = self.shared.acceptor.clone().filter(|_| socket.is_tcp());
        if acceptor.is_some() {
            machine.offer_encryption(must_encrypt);
        }
        self.clients.insert(token, Box::new(Client::new(socket, machine, acceptor)));
        Some(token)
    }

    /// Ends the peer that has said nothing for the longest time. Tokens are given in order.
    fn end_oldest_unknown(&mut self) {
        let unknown = self.clients.iter().filter(|(_, client)| !client.machine.is_open());
        if let Some(token) = unknown.map(|(token, _)| *token).min() {
            Self::end(&mut self.clients, &self.poll, &self.shared, token);
        }
    }

    fn accept(&mut self, number: usize) {
        let Some(listener) = self.listeners.get(number) else { return };
        // Edges: all clients that wait.
        while let Some((socket, peer, must_encrypt)) = listener.accept() {
            self.shared.hand_over(socket, peer, must_encrypt);
        }
    }

    fn stop(&mut self) {
        for (number, secret) in self.away.values().flatten() {
            self.shared.database.cancel(*number, *secret);
        }
        let began = Instant::now();
        while (!self.away.is_empty() || self.shared.workers.is_ending()) && began.elapsed() < STOP_LIMIT {
            std::thread::sleep(TIMEOUT_SWEEP);
            self.take_mail(&mut Vec::new());
        }
        for client in self.clients.values_mut() {
            panics::serve(&self.shared, client, |client| {
                client.machine.stop();
                client.write();
            });
        }
        let all: Vec<usize> = self.clients.keys().copied().collect();
        all.into_iter().for_each(|token| {
            let client = self.clients.remove(&token);
            panics::end(&self.shared, || drop(client));
        });
    }
}

/// Sends what may leave. Returns whether more can be read now.
fn write(shared: &Shared, client: &mut Client) -> bool {
    // After a panic there is an answer to send, or nothing.
    panics::serve(shared, client, Client::write).unwrap_or_else(|| {
        panics::serve(shared, client, Client::write);
        false
    })
}
