//! The connections that a machine takes: of other machines, of mounts elsewhere, of commands.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_fabric::{FLAG_BEGIN, NodeId, Sequence};
use lodestone_pmem::CopyOptions;
use lodestone_pmem::sync::lock;
use lodestone_registry::{Channel, Peer};

use super::{MachineHandle, Machinery, Shared, TextHandler, failed, wire};
use crate::bytes::{Reader, Writer};
use crate::cluster::link::Link;
use crate::cluster::remote::calls::{Answer, Call, Value};
use crate::cluster::remote::mounts::{Attach, carry_out, carry_out_for, opened};
use crate::cluster::remote::replays::{Left, Turn, made_of};
use crate::error::{Error, Refusal, Result};
use crate::lease::kept::{GivenBack, Granted};
use crate::requests::{Files, Tag};
use crate::volume::{Volume, tagged_operation};

/// Connections at a time.
const CONNECTIONS_MAX: usize = 512;
/// A connection without a request for so long is closed.
const IDLE_PATIENCE: Duration = Duration::from_secs(120);
/// Time for an answer to leave.
const SEND_PATIENCE: Duration = Duration::from_secs(20);
/// How long a call waits for the lease of a new metadata node.
const LEASE_WAIT: Duration = Duration::from_secs(5);
/// How long a call waits here for other nodes. Its mount makes it again then, as long as a program wants it.
pub(super) const CALL_WAIT: Duration = Duration::from_secs(2);
/// Bytes of a piece of an image.
const PIECE_BYTES: usize = 256 << 10;
/// Pause after a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listener of a machine.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(shared: &Arc<Shared>, texts: Option<TextHandler>) -> Result<Self> {
        let Some(machine) = &shared.machine else { return Err(Error::Gone) };
        let address = SocketAddr::V4(machine.site().address(machine.number)?);
        let failed = |error| Error::Options(format!("{address}: listening failed: {error}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        let serving = Arc::clone(shared);
        let work = move || take_connections(&serving, &listener, texts.as_ref());
        let thread = std::thread::Builder::new().name("fs-door".into()).spawn(work).map_err(failed)?;
        Ok(Self { shared: Arc::clone(shared), address, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // The thread waits for a connection: this is the last.
        _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(200));
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn take_connections(shared: &Arc<Shared>, listener: &TcpListener, texts: Option<&TextHandler>) {
    let count = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, from)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        if count.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            count.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!("{from}: there are {CONNECTIONS_MAX} connections already");
            continue;
        }
        let connection = Connection { shared: Arc::downgrade(shared), texts: texts.cloned() };
        let seat = Seat(Arc::clone(&count));
        let work = move || {
            let _seat = seat;
            if let Err(error) = connection.serve(stream) {
                tracing::debug!("{from}: {error}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("fs-connection".into()).spawn(work) {
            tracing::warn!("{from}: no thread for a connection could be started: {error}");
        }
    }
}

/// The place of a connection among [`CONNECTIONS_MAX`]. It is free again however the thread ends.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The thread of a connection. It does not keep the machine alive.
struct Connection {
    shared: Weak<Shared>,
    texts: Option<TextHandler>,
}

fn refuse(text: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::PermissionDenied, text.to_owned())
}

impl Connection {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let gone = || refuse("the machine ends");
        let (mut channel, peer) = {
            let shared = self.shared.upgrade().ok_or_else(gone)?;
            let machine = shared.machine.as_ref().ok_or_else(gone)?;
            let (mut channel, peer) = Channel::accept(&machine.security, stream)?;
            let hello = channel.receive(64)?;
            let refusal = wire::refused(&hello, machine.site().volume).or_else(|| refusal(peer));
            let answer = refusal.as_ref().map_or_else(|| vec![0], |text| [&[1], text.as_bytes()].concat());
            channel.send(&answer)?;
            if let Some(text) = refusal {
                tracing::warn!("a connection is refused: {text}");
                return Err(refuse(&text));
            }
            (channel, peer)
        };
        loop {
            channel.within(Some(IDLE_PATIENCE));
            let request = channel.receive(wire::REQUEST_BYTES_MAX)?;
            let shared =
                self.shared.upgrade().filter(|shared| !shared.stop.load(Ordering::Acquire)).ok_or_else(gone)?;
            channel.within(Some(SEND_PATIENCE));
            self.answer(&shared, &mut channel, peer, &request)?;
        }
    }

    fn answer(&self, shared: &Arc<Shared>, channel: &mut Channel, peer: Peer, request: &[u8]) -> std::io::Result<()> {
        let wrong = || std::io::Error::new(std::io::ErrorKind::InvalidData, "a request that makes no sense");
        let (kind, body) = request.split_first().ok_or_else(wrong)?;
        let mut from = Reader(body);
        match *kind {
            wire::STANDING => channel.send(&shared.own_standing().to_bytes()),
            wire::SITE => {
                let site = shared.machine.as_ref().map(Machinery::site).ok_or_else(wrong)?;
                channel.send(site.to_text().as_bytes())
            }
            wire::IMAGE => {
                let node = from.u32().and_then(|node| u16::try_from(node).ok()).ok_or_else(wrong)?;
                if !may_have_image(shared.machine.as_ref(), peer) {
                    return Err(refuse("only machines of the volume get an image"));
                }
                send_image(shared, channel, NodeId(node))
            }
            wire::TEXT => {
                let text = String::from_utf8_lossy(body).into_owned();
                self.answer_text(shared, channel, peer, &text)
            }
            wire::ATTACH => {
                let attach = Attach::read(&mut from).ok_or_else(wrong)?;
                channel.send(&shared.attach(&attach))
            }
            wire::DETACH => {
                let mount = from.u64().ok_or_else(wrong)?;
                shared.detach(mount);
                channel.send(&[0])
            }
            wire::SIGN => {
                let mount = from.u64().ok_or_else(wrong)?;
                channel.send(&[if shared.hear(mount) { 0 } else { 3 }])
            }
            wire::NEWS => {
                let mut number = || from.u64().ok_or_else(wrong);
                let (mount, session, done) = (number()?, number()?, number()?);
                let mut out = Writer::default();
                match shared.news(mount, session, done) {
                    Some(news) => news.write(out.u8(0)),
                    None => _ = out.u8(3),
                }
                channel.within(Some(SEND_PATIENCE));
                channel.send(&out.0)
            }
            wire::CALL | wire::LEASED_CALL => {
                let is_leased = *kind == wire::LEASED_CALL;
                let given = if is_leased { Some(GivenBack::read(&mut from).ok_or_else(wrong)?) } else { None };
                let mut number = || from.u64().ok_or_else(wrong);
                let tag = Tag::new(number()?, number()?, number()?).ok_or_else(wrong)?;
                let call = Call::read(&mut from).filter(|_| from.is_empty()).ok_or_else(wrong)?;
                let began = Instant::now();
                let (granted, answer) = shared.call(tag, &call, given.as_ref());
                shared.machine.iter().for_each(|machine| machine.calls.note(&call, began.elapsed()));
                let mut out = Writer::default();
                if is_leased {
                    granted.write(&mut out);
                }
                out.0.extend(answer.to_bytes());
                channel.within(Some(SEND_PATIENCE));
                channel.send(&out.0)
            }
            wire::AGAIN => {
                let mut number = || from.u64().ok_or_else(wrong);
                let files = [number()?, number()?];
                let tag = Tag::new(number()?, number()?, number()?).ok_or_else(wrong)?;
                let call =
                    Call::read(&mut from).filter(|call| from.is_empty() && call.is_change()).ok_or_else(wrong)?;
                let answer = shared.call_again(tag, &call, files);
                channel.within(Some(SEND_PATIENCE));
                channel.send(&answer.to_bytes())
            }
            _ => Err(wrong()),
        }
    }

    fn answer_text(&self, shared: &Arc<Shared>, channel: &mut Channel, peer: Peer, text: &str) -> std::io::Result<()> {
        let Some(texts) = &self.texts else { return Err(refuse("this machine answers no such requests")) };
        let mut outcome = Ok(());
        let may_change = matches!(peer, Peer::Operator | Peer::Anyone);
        let last = texts(&MachineHandle { shared: Arc::clone(shared), may_change }, text, &mut |more| {
            if outcome.is_ok() {
                channel.within(Some(SEND_PATIENCE));
                outcome = channel.send(&[&[1], more.as_bytes()].concat());
            }
        });
        outcome?;
        channel.within(Some(SEND_PATIENCE));
        channel.send(&[&[0], last.as_bytes()].concat())
    }
}

/// Why somebody is refused at all.
fn refusal(peer: Peer) -> Option<String> {
    match peer {
        Peer::Node(_) | Peer::Operator | Peer::Anyone => None,
        Peer::Unknown => Some("it has no certificate; join with a token first".into()),
        peer => Some(format!("{peer:?} has no business here")),
    }
}

fn others_come_back() -> Answer {
    Answer::NotYet("operations of another mount, which a takeover lost, come back first".into())
}

/// Whether no other mount has changed the volume after the metadata node of the term `since`, in the operations that
/// the takeover has left. The log has the last operation of each term in it; without it nothing is known, unless no
/// other one led in between.
fn is_unchanged_since(link: &Link, mount: u64, since: u32) -> bool {
    let (first, base, _) = link.adopted();
    for number in (first.0 + 1..=base.0).rev().map(Sequence) {
        let Ok(Some((head, body))) = link.operation(number) else { break };
        if head.term.0 <= since {
            return true;
        }
        let is_own = || tagged_operation(&head, &body).is_ok_and(|(_, tag)| tag.is_some_and(|tag| tag.mount == mount));
        if !head.has(FLAG_BEGIN) && !is_own() {
            return false;
        }
    }
    link.term() == since.saturating_add(1)
}

fn may_have_image(machine: Option<&Machinery>, peer: Peer) -> bool {
    match peer {
        Peer::Anyone => true,
        Peer::Node(node) => machine.is_some_and(|machine| machine.site().machines.contains_key(&node.0)),
        _ => false,
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Sends an image with everything up to now: a copy of the volume's file.
fn send_image(shared: &Shared, channel: &mut Channel, node: NodeId) -> std::io::Result<()> {
    let path = shared.places.folder.join(format!("image-for-{}.tmp", node.0));
    let made = shared.leading_here().and_then(|(volume, _)| {
        volume.write_image()?;
        let options = CopyOptions { overwrite: true, ..CopyOptions::default() };
        volume.store().pool().backup(&path, &options)?;
        File::open(&path).map_err(|error| failed("reading the copy", &path, &error))
    });
    let sent = match made {
        Ok(file) => send_file(channel, &file),
        Err(error) => channel.send(&[&[2], error.to_string().as_bytes()].concat()),
    };
    // A kill leaves it; the next copy replaces it.
    _ = std::fs::remove_file(&path);
    sent
}

fn send_file(channel: &mut Channel, file: &File) -> std::io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    channel.within(Some(SEND_PATIENCE));
    channel.send(&[&[3], &file.metadata()?.len().to_le_bytes()[..]].concat())?;
    loop {
        let count = file.read_at(&mut buffer, at)?;
        channel.within(Some(SEND_PATIENCE));
        let mut out = Writer::default();
        if count == 0 {
            out.u8(1).u64(at);
            return channel.send(&out.0);
        }
        // Most of it was never written.
        if !is_zero(&buffer[..count]) {
            out.u8(0).u64(at);
            out.0.extend(&buffer[..count]);
            channel.send(&out.0)?;
        }
        at += lodestone_width::to_u64(count);
    }
}

impl Shared {
    /// Takes a mount in.
    fn attach(&self, attach: &Attach) -> Vec<u8> {
        let Ok((volume, link)) = self.leading_here() else {
            return Answer::Elsewhere(self.leading_machine()).to_bytes();
        };
        let Some(machine) = &self.machine else { return Answer::NotAttached.to_bytes() };
        let term = link.term();
        let (mount, base) = (attach.mount, link.adopted().1);
        let remembers = volume.remembers(mount);
        let left = Left {
            base: base.0,
            operation_of: &|request| volume.operation_of(Tag { mount, request, floor: request }),
            is_unchanged_since: &|since| remembers && is_unchanged_since(&link, mount, since),
        };
        let (lost, fates) = {
            let mut mounts = lock(&machine.mounts);
            let mounts = mounts.in_term(term);
            (mounts.attach(&volume, attach), mounts.declare(attach, &left))
        };
        let mut out = Writer::default();
        let lease_ms = u64::try_from(machine.mount_lease.as_millis()).unwrap_or(u64::MAX);
        out.u8(0).u32(term).u64(lease_ms).u32(lodestone_width::exact_u32(lost.len()));
        lost.iter().for_each(|place| _ = out.u32(*place));
        fates.iter().for_each(|fate| fate.write(&mut out));
        out.0
    }

    /// Carries an operation out again that was answered before a takeover lost it.
    fn call_again(&self, tag: Tag, call: &Call, files: Files) -> Answer {
        let elsewhere = || Answer::Elsewhere(self.leading_machine());
        let Ok((volume, link)) = self.leading_here() else { return elsewhere() };
        let Some(machine) = &self.machine else { return Answer::NotAttached };
        if !lock(&machine.mounts).in_term(link.term()).hear(tag.mount) {
            return Answer::NotAttached;
        }
        if link.wait_lease(LEASE_WAIT).is_err() {
            return elsewhere();
        }
        let ended = |is_done| {
            let made = made_of(call, files);
            lock(&machine.mounts).in_term(link.term()).replays.ended(tag.mount, tag.request, is_done, made);
        };
        if let Some(operation) = volume.operation_of(tag) {
            // Its answer was lost once more.
            ended(true);
            return Answer::Done(operation, Value::Nothing);
        }
        let adopted = volume.adopted_ino();
        let turn = lock(&machine.mounts).in_term(link.term()).replays.turn(tag, call, adopted, Instant::now());
        match turn {
            Turn::Now => {}
            Turn::Later => return others_come_back(),
            Turn::Lost => {
                ended(false);
                return Answer::Refused(Refusal::Stale);
            }
        }
        let handle = volume.for_request_again(tag, files);
        let carry = || machine.patience.during(|| false, || carry_out_for(&handle, call));
        match self.carry_out_leased(machine, (&volume, &*link), (tag.mount, None), call, carry).1 {
            Ok(answer) if link.may_read() => {
                if !matches!(answer, Answer::NotYet(_)) {
                    ended(matches!(answer, Answer::Done(..)));
                }
                answer
            }
            _ => elsewhere(),
        }
    }

    /// Whether a mount that is there is known.
    fn hear(&self, mount: u64) -> bool {
        let (Ok((_, link)), Some(machine)) = (self.leading_here(), &self.machine) else { return false };
        lock(&machine.mounts).in_term(link.term()).hear(mount)
    }

    fn detach(&self, mount: u64) {
        if let (Ok((volume, link)), Some(machine)) = (self.leading_here(), &self.machine) {
            lock(&machine.mounts).in_term(link.term()).detach(&volume, mount);
            machine.leases(link.term()).iter().for_each(|leases| leases.forget(mount));
        }
    }

    /// Carries a call of a mount out. The answer is true as long as this node holds the lease. `given`: the mount keeps
    /// what it is told under leases.
    fn call(&self, tag: Tag, call: &Call, given: Option<&GivenBack>) -> (Granted, Answer) {
        let elsewhere = || (Granted::default(), Answer::Elsewhere(self.leading_machine()));
        let not_attached = || (Granted::default(), Answer::NotAttached);
        let Ok((volume, link)) = self.leading_here() else { return elsewhere() };
        let Some(machine) = &self.machine else { return not_attached() };
        {
            let mut mounts = lock(&machine.mounts);
            let mounts = mounts.in_term(link.term());
            if !mounts.hear(tag.mount) {
                return not_attached();
            }
            // Others may wait to change the files that it takes names from.
            let found = if mounts.replays.is_needed() { volume.files_at(&call.names()) } else { Files::default() };
            if !mounts.replays.may_call(tag.mount, call, found, Instant::now()) {
                return (Granted::default(), others_come_back());
            }
        }
        if link.wait_lease(LEASE_WAIT).is_err() {
            return elsewhere();
        }
        let place = (&volume, &*link);
        let carry = || machine.patience.during(|| false, || self.carry_out(machine, place, tag, call));
        let carried = self.carry_out_leased(machine, place, (tag.mount, given), call, carry);
        if let (_, Ok(Answer::Done(_, value))) = &carried {
            let may = lock(&machine.mounts).in_term(link.term()).replays.may_answer(tag.mount, value, Instant::now());
            if !may && !call.is_change() {
                return (Granted::default(), others_come_back());
            }
        }
        match carried {
            // No other node has answered otherwise meanwhile.
            (granted, Ok(answer)) if link.may_read() || matches!(call, Call::Sync) => (granted, answer),
            _ => elsewhere(),
        }
    }

    fn carry_out(
        &self,
        machine: &Machinery,
        (volume, link): (&Volume, &Link),
        tag: Tag,
        call: &Call,
    ) -> Result<Answer> {
        let answer = match call {
            Call::Pin { ino } => {
                lock(&machine.mounts).in_term(link.term()).open(volume, tag.mount, *ino, false);
                Answer::Done(0, Value::Nothing)
            }
            Call::Unpin { ino } => {
                lock(&machine.mounts).in_term(link.term()).close(volume, tag.mount, *ino);
                Answer::Done(0, Value::Nothing)
            }
            Call::Lock { ino, serial, lock: wanted, how } => {
                let mut mounts = lock(&machine.mounts);
                let outcome =
                    mounts.in_term(link.term()).lock((tag.mount, machine.mount_lease), *serial, *ino, *wanted, *how);
                Answer::Done(0, Value::Number(outcome.code()))
            }
            Call::FindLock { ino, lock: wanted } => {
                let mut mounts = lock(&machine.mounts);
                Answer::Done(0, Value::Lock(mounts.in_term(link.term()).find_lock(tag.mount, *ino, wanted)))
            }
            call => carry_out(volume, Some(tag), call)?,
        };
        if let Some(ino) = opened(call, &answer) {
            lock(&machine.mounts).in_term(link.term()).open(volume, tag.mount, ino, true);
        }
        Ok(answer)
    }
}
