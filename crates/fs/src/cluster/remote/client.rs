//! The client of a volume whose metadata node is elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lodestone_pmem::sync::{Condvar, Mutex, MutexGuard, lock};
use lodestone_registry::{Channel, ChannelEnd, Security};
use lodestone_width::exact_u32;

use super::ask::{CALL_PATIENCE, STANDING_PATIENCE, ask_machine, connect, description, standing};
use super::calls::{Answer, Call, READ_BYTES_MAX, Value};
use super::held::Held;
use super::keeping::Keeping;
use super::unstable::Unstable;
use crate::access::Caller;
use crate::attributes::{Changes, ExtraMode, Room};
use crate::bytes::{Reader, Writer};
use crate::cluster::machine::site::Site;
use crate::cluster::machine::wire;
use crate::content::{Allocation, SeekTo};
use crate::error::{Error, Result};
use crate::folders::FolderEntry;
use crate::inode::Attributes;
use crate::lease::kept::Granted;
use crate::names::{NewFile, RenameMode};
use crate::patience::Wait;
use crate::requests::Numbers;

/// Time for a metadata node to take a mount in.
pub(super) const ATTACH_PATIENCE: Duration = Duration::from_secs(3);
/// Pause between two looks at a machine, and when none leads.
pub(super) const LOOKS: (Duration, Duration) = (Duration::from_millis(150), Duration::from_millis(30));
/// A standing that is older says nothing.
const FRESH: Duration = Duration::from_secs(1);
/// Signs in the lease of a mount: the metadata node hears of one that does nothing.
const SIGNS: u32 = 6;
/// Most bytes of a write in one call: one operation.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// How to use a volume elsewhere.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// How long an operation waits for the volume to go on, unless its thread has a [`Patience`](crate::Patience).
    pub patience: Duration,
    /// Whether names and attributes are kept under leases: they are as true as those that the metadata node tells, and
    /// cost no call.
    pub keeps: bool,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(120), keeps: false }
    }
}

/// The metadata node that calls go to.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Its machine; 0: none is known.
    pub(super) machine: u16,
    pub(super) term: u32,
    /// Rises whenever another one is looked for.
    pub(super) generation: u64,
    /// Connections that no call uses now.
    free: Vec<Channel>,
    /// All of this generation.
    ends: Vec<ChannelEnd>,
    /// Operations that were answered and may be lost.
    pub(super) unstable: Unstable,
    /// Those that are lost; told by the next sync.
    pub(super) lost: u64,
    /// Why the last look found none.
    pub(super) reason: String,
}

pub(super) struct Shared {
    site: Mutex<Arc<Site>>,
    pub(super) security: Security,
    pub(super) options: RemoteOptions,
    pub(super) mount: u64,
    /// Requests that wait for an answer, or may be lost still.
    pub(super) numbers: Mutex<Numbers>,
    pub(super) fewer_wait: Condvar,
    pub(super) state: Mutex<State>,
    /// The last word of each machine, and its time. Before the state, if both are locked.
    standings: Mutex<wire::Standings>,
    pub(super) changed: Condvar,
    /// Files that are open, and how often.
    pub(super) open: Mutex<HashMap<u64, u64>>,
    pub(super) held: Mutex<Held>,
    /// Names and attributes that are kept under leases, if any are.
    pub(super) kept: Option<Keeping>,
    /// The lease of the mount, in milliseconds.
    pub(super) lease_ms: AtomicU64,
    pub(super) ino_floor: AtomicU64,
    pub(super) takeovers: AtomicU64,
    /// Operations that takeovers had lost, and that were carried out again.
    pub(super) came_back: AtomicU64,
    pub(super) stop: AtomicBool,
}

/// A volume whose metadata node is on one of several machines. It has the operations of a
/// [`Volume`](crate::Volume) by number, with the same meaning.
#[derive(Clone)]
pub struct RemoteVolume {
    pub(super) shared: Arc<Shared>,
    _watching: Arc<Watching>,
}

/// The thread that looks after the machines, with one more for each of them, and that which hears of leases.
struct Watching {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for RemoteVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteVolume").field("volume", &self.id()).finish_non_exhaustive()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        self.threads.drain(..).for_each(|thread| _ = thread.join());
        self.shared.say_goodbye();
    }
}

impl RemoteVolume {
    /// Opens the volume: waits for a metadata node.
    ///
    /// # Errors
    /// No machine leads within the patience; a machine that refuses, with its reason.
    pub fn connect(site: &Site, security: Security, options: &RemoteOptions) -> Result<Self> {
        let draw = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), crate::core::system_time());
        let shared = Arc::new(Shared {
            site: Mutex::new(Arc::new(site.clone())),
            security,
            options: options.clone(),
            mount: draw(),
            numbers: Mutex::default(),
            fewer_wait: Condvar::new(),
            state: Mutex::default(),
            standings: Mutex::default(),
            changed: Condvar::new(),
            open: Mutex::default(),
            held: Mutex::default(),
            kept: options.keeps.then(Keeping::default),
            lease_ms: AtomicU64::new(10_000),
            ino_floor: AtomicU64::new(0),
            takeovers: AtomicU64::new(0),
            came_back: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let of = Arc::clone(&shared);
        let failed = |error| Error::Options(format!("no thread for the volume could be started: {error}"));
        let thread = std::thread::Builder::new().name("fs-remote".into()).spawn(move || watch(&of)).map_err(failed)?;
        let mut watching = Watching { shared: Arc::clone(&shared), threads: vec![thread] };
        if options.keeps {
            let of = Arc::clone(&shared);
            let work = move || of.watch_leases();
            watching.threads.push(std::thread::Builder::new().name("fs-leases".into()).spawn(work).map_err(failed)?);
        }
        let volume = Self { _watching: Arc::new(watching), shared };
        volume.shared.leader(&mut Wait::begin(options.patience))?;
        Ok(volume)
    }

    /// The machine with the present metadata node, its term, and how often another one took over since the open.
    #[must_use]
    pub fn leader(&self) -> (u16, u32, u64) {
        let state = lock(&self.shared.state);
        (state.machine, state.term, self.shared.takeovers.load(Ordering::Acquire).saturating_sub(1))
    }

    /// Calls that were answered from what is kept under leases, and leases that were taken back.
    #[must_use]
    pub fn kept(&self) -> (u64, u64) {
        self.shared.kept.as_ref().map_or((0, 0), Keeping::counts)
    }

    /// Operations of this mount that takeovers had lost, and that were carried out again.
    #[must_use]
    pub fn came_back(&self) -> u64 {
        self.shared.came_back.load(Ordering::Acquire)
    }

    /// Number of the volume.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.site().volume
    }

    /// The newest description of the volume that is known: its machines come and go.
    #[must_use]
    pub fn site(&self) -> Site {
        self.shared.site().as_ref().clone()
    }

    /// Asks the machine that leads something that the program there knows. `progress` is told all answers but the last.
    ///
    /// # Errors
    /// No machine leads; a connection that ends.
    pub fn ask_program(&self, text: &str, progress: &mut dyn FnMut(&str)) -> Result<String> {
        let machine = self.shared.leader(&mut Wait::begin(self.shared.options.patience))?.machine;
        ask_machine(&self.shared.site(), &self.shared.security, machine, text, progress)
    }
}

/// The metadata node of a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leader {
    machine: u16,
    pub(super) term: u32,
    generation: u64,
}

/// The number of a request, until it is given up, or has its answer and is not sent again.
pub(super) struct Number<'s> {
    shared: &'s Shared,
    pub(super) request: u64,
    floor: u64,
    /// Whether the answer may be lost still.
    pub(super) is_kept: bool,
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.shared.end_requests(&[self.request]);
        }
    }
}

/// How one attempt ended.
enum Attempt {
    Answered(Granted, Answer),
    /// The connection ended: it may have been carried out, and another one has to be found.
    Broken,
}

/// Looks after the metadata node, and sees to it that a thread looks at each machine.
fn watch(shared: &Arc<Shared>) {
    let mut watching = BTreeMap::<u16, JoinHandle<()>>::new();
    while !shared.stop.load(Ordering::Acquire) {
        watching.retain(|_, thread| !thread.is_finished());
        for machine in shared.site().machines.keys().copied() {
            if watching.contains_key(&machine) {
                continue;
            }
            let of = Arc::clone(shared);
            let work = move || of.watch_machine(machine);
            match std::thread::Builder::new().name(format!("fs-remote-{machine}")).spawn(work) {
                Ok(thread) => _ = watching.insert(machine, thread),
                Err(error) => lock(&shared.state).reason = format!("no thread could be started: {error}"),
            }
        }
        shared.look();
    }
    watching.into_values().for_each(|thread| _ = thread.join());
}

impl Shared {
    pub(super) fn site(&self) -> Arc<Site> {
        Arc::clone(&lock(&self.site))
    }

    /// The machine with the present metadata node; 0: none is known.
    pub(super) fn present_machine(&self) -> u16 {
        lock(&self.state).machine
    }

    /// The present metadata node. Waits for one.
    fn leader(&self, wait: &mut Wait) -> Result<Leader> {
        let mut state = lock(&self.state);
        loop {
            if state.machine != 0 {
                let State { machine, term, generation, .. } = *state;
                return Ok(Leader { machine, term, generation });
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(Error::Gone);
            }
            if !wait.goes_on(&|| state.reason.clone())? {
                return Err(Error::NoLeader { reason: state.reason.clone() });
            }
            state = self.changed.wait_timeout(state, LOOKS.0).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The metadata node of that generation does not answer.
    fn lose(&self, generation: u64) {
        let mut state = lock(&self.state);
        if state.generation == generation {
            Self::forget(&mut state);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends all connections: who waits for an answer sends the request to the next one.
    fn forget(state: &mut MutexGuard<'_, State>) {
        state.machine = 0;
        state.generation += 1;
        state.free.clear();
        state.ends.drain(..).for_each(|end| end.end());
    }

    /// Asks a machine again and again how it stands. One that does not answer delays no other one.
    fn watch_machine(&self, machine: u16) {
        let (mut channel, mut said) = (None, Instant::now());
        while !self.stop.load(Ordering::Acquire) && self.site().machines.contains_key(&machine) {
            let found = self.standing_of(machine, &mut channel).map_err(|error| error.to_string());
            if let Ok(found) = &found {
                self.settle(found.term, Some((found.term, found.acknowledged)));
            }
            lock(&self.standings).insert(machine, (Instant::now(), found));
            self.changed.notify_all();
            if said.elapsed() >= Duration::from_millis(self.lease_ms.load(Ordering::Acquire)) / SIGNS {
                said = Instant::now();
                self.give_sign(machine, &mut channel);
            }
            let pause = if lock(&self.state).machine == 0 { LOOKS.1 } else { LOOKS.0 };
            std::thread::sleep(pause);
        }
        lock(&self.standings).remove(&machine);
    }

    /// Tells the machine that this mount is there, if it is the one with the metadata node. It forgets silent ones.
    fn give_sign(&self, machine: u16, channel: &mut Option<Channel>) {
        let (generation, term) = {
            let state = lock(&self.state);
            if state.machine != machine {
                return;
            }
            (state.generation, state.term)
        };
        let Some(mut open) = channel.take() else { return };
        let mut out = Writer::default();
        out.u8(wire::SIGN).u64(self.mount);
        open.within(Some(STANDING_PATIENCE));
        let began = Instant::now();
        match open.send(&out.0).and_then(|()| open.receive(wire::ANSWER_BYTES_MAX)).as_deref() {
            Ok([0]) => {
                *channel = Some(open);
                let mut held = lock(&self.held);
                // Another one may know the mount since then.
                held.known = held.known.map(|known| if known.0 == term { (term, began.max(known.1)) } else { known });
            }
            // It has forgotten this mount: it is told again which files are open.
            Ok(_) => self.lose(generation),
            Err(_) => {}
        }
    }

    fn standing_of(&self, machine: u16, channel: &mut Option<Channel>) -> Result<wire::Standing> {
        let mut open = match channel.take() {
            Some(open) => open,
            None => connect(&self.site(), &self.security, machine)?,
        };
        let failed = |error| Error::Options(format!("machine {machine} does not answer: {error}"));
        let found = standing(&mut open).map_err(failed)?;
        if found.revision > self.site().revision {
            let new = description(&mut open).map_err(failed)?;
            let mut site = lock(&self.site);
            if new.volume == site.volume && new.revision > site.revision {
                *site = Arc::new(new);
            }
        }
        *channel = Some(open);
        Ok(found)
    }

    /// Looks for a metadata node, and for another one when a newer one leads or the present one says that it does not.
    /// Nothing here waits for the present one: it may have stopped.
    fn look(&self) {
        let (machine, generation, term) = {
            let state = lock(&self.state);
            (state.machine, state.generation, state.term)
        };
        if machine == 0 {
            self.find();
        } else if self.has_another(machine, term) {
            self.lose(generation);
        }
        let state = lock(&self.state);
        drop(self.changed.wait_timeout(state, LOOKS.1));
    }

    /// Whether the machine does not lead any more. One that is slow for a moment does, as long as no newer one leads.
    pub(super) fn has_another(&self, machine: u16, term: u32) -> bool {
        let says_so = {
            let standings = lock(&self.standings);
            matches!(standings.get(&machine), Some((at, Ok(found))) if at.elapsed() < FRESH && found.term != term)
        };
        says_so || self.newest().is_some_and(|(_, newest)| newest > term)
    }

    /// The machine with the newest term, of those that have answered a moment ago.
    pub(super) fn newest(&self) -> Option<(u16, u32)> {
        let (mut newest, mut reasons) = (None, Vec::new());
        for (machine, (at, found)) in &*lock(&self.standings) {
            match found {
                Ok(found) if at.elapsed() < FRESH && found.term > newest.map_or(0, |(_, term)| term) => {
                    newest = Some((*machine, found.term));
                }
                Ok(_) => reasons.push(format!("machine {machine} does not lead")),
                Err(error) => reasons.push(error.clone()),
            }
        }
        lock(&self.state).reason = reasons.join("; ");
        newest
    }

    fn say_goodbye(&self) {
        let machine = lock(&self.state).machine;
        if machine == 0 {
            return;
        }
        if let Ok(mut channel) = connect(&self.site(), &self.security, machine) {
            let mut out = Writer::default();
            out.u8(wire::DETACH).u64(self.mount);
            // Otherwise it is forgotten after a while.
            _ = channel.send(&out.0).and_then(|()| channel.receive(wire::ANSWER_BYTES_MAX));
        }
    }

    /// Has a call carried out: once, by whatever machine leads.
    fn call(&self, call: &Call) -> Result<Value> {
        if let Some(found) = self.kept.as_ref().and_then(|kept| kept.find(call)) {
            return found;
        }
        let mut wait = Wait::begin(self.options.patience);
        let mut number = if call.is_change() { Some(self.number(&mut wait)?) } else { None };
        let (request, floor) = number.as_ref().map_or((0, 0), |number| (number.request, number.floor));
        let mut out = Writer::default();
        loop {
            let leader = self.leader(&mut wait)?;
            let newest = lock(&self.state).unstable.newest();
            out.0.clear();
            // Of the files that it changes nothing is kept from before it is sent.
            let begun = self.kept.as_ref().map(|kept| kept.begin(call, out.u8(wire::LEASED_CALL)));
            if begun.is_none() {
                out.u8(wire::CALL);
            }
            out.u64(self.mount).u64(request).u64(floor);
            call.write(&mut out);
            let (granted, answer) = match self.attempt(leader, &out.0) {
                Attempt::Answered(granted, answer) => (granted, answer),
                Attempt::Broken => {
                    self.lose(leader.generation);
                    continue;
                }
            };
            if let (Some(kept), Some(begun)) = (&self.kept, begun) {
                kept.keep(begun, granted, call, &answer);
            }
            match answer {
                Answer::Done(operation, value) => {
                    self.note_number(&value);
                    if let Some(number) = &mut number
                        && !self.keep_until_stable(leader, call, number, operation, &value)
                    {
                        // The next metadata node may not have it, and was not told of it: it is asked again.
                        continue;
                    }
                    if matches!(call, Call::Sync) {
                        self.settle(leader.term, newest);
                    }
                    return Ok(value);
                }
                Answer::Refused(refusal) => return Err(refusal.into()),
                Answer::Failed(text) => return Err(Error::Remote(text)),
                Answer::NotYet(text) if wait.goes_on(&|| text.clone())? => std::thread::sleep(LOOKS.1),
                Answer::NotYet(text) => return Err(Error::NotYet(text)),
                Answer::Elsewhere(_) | Answer::NotAttached => self.lose(leader.generation),
            }
        }
    }

    /// A number for a request. Waits as long as too many others wait for their answers.
    fn number(&self, wait: &mut Wait) -> Result<Number<'_>> {
        if lock(&self.state).unstable.is_full() {
            self.call(&Call::Sync)?;
        }
        let mut numbers = lock(&self.numbers);
        loop {
            if let Some((request, floor)) = numbers.begin() {
                return Ok(Number { shared: self, request, floor, is_kept: false });
            }
            drop(numbers);
            // Those that were answered and are stable are not sent again.
            if !lock(&self.state).unstable.is_empty() {
                self.call(&Call::Sync)?;
            }
            numbers = lock(&self.numbers);
            let reason = || "too many earlier calls wait for an answer".to_owned();
            if !wait.goes_on(&reason)? {
                return Err(Error::NoLeader { reason: reason() });
            }
            numbers = self.fewer_wait.wait_timeout(numbers, LOOKS.0).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn attempt(&self, leader: Leader, request: &[u8]) -> Attempt {
        let Some(mut channel) = self.channel(leader) else { return Attempt::Broken };
        channel.within(Some(CALL_PATIENCE));
        let answer = channel.send(request).and_then(|()| channel.receive(wire::ANSWER_BYTES_MAX));
        let Ok(bytes) = answer else { return Attempt::Broken };
        let mut from = Reader(&bytes);
        let granted = if self.kept.is_some() { Granted::read(&mut from) } else { Some(Granted::default()) };
        let (Some(granted), Some(answer)) = (granted, Answer::from_bytes(from.0)) else { return Attempt::Broken };
        let mut state = lock(&self.state);
        if state.generation == leader.generation {
            state.free.push(channel);
        }
        Attempt::Answered(granted, answer)
    }

    /// A connection to the metadata node that no other call uses.
    fn channel(&self, leader: Leader) -> Option<Channel> {
        {
            let mut state = lock(&self.state);
            if state.generation != leader.generation {
                return None;
            }
            if let Some(channel) = state.free.pop() {
                return Some(channel);
            }
        }
        let mut channel = connect(&self.site(), &self.security, leader.machine).ok()?;
        let end = channel.another_end().ok()?;
        let mut state = lock(&self.state);
        if state.generation != leader.generation {
            return None;
        }
        state.ends.push(end);
        Some(channel)
    }
}

pub(super) fn unexpected(value: &Value) -> Error {
    Error::Remote(format!("an answer that does not fit: {value:?}"))
}

/// Takes a value of one kind out of an answer.
macro_rules! value {
    ($outcome:expr, $kind:ident) => {
        match $outcome? {
            Value::$kind(value) => Ok(value),
            other => Err(unexpected(&other)),
        }
    };
}
pub(super) use value;

#[expect(clippy::missing_errors_doc, reason = "each is the operation of `Volume` with that name")]
impl RemoteVolume {
    pub(super) fn call(&self, call: &Call) -> Result<Value> {
        self.shared.call(call)
    }

    /// As [`Volume::lookup`](crate::Volume::lookup).
    pub fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<Attributes> {
        value!(self.call(&Call::Lookup { by: caller.clone(), parent, name: name.to_vec() }), Attributes)
    }

    /// As [`Volume::attributes`](crate::Volume::attributes).
    pub fn attributes(&self, ino: u64) -> Result<Attributes> {
        value!(self.call(&Call::Attributes { ino }), Attributes)
    }

    /// As [`Volume::truncate`](crate::Volume::truncate).
    pub fn truncate(&self, caller: &Caller, ino: u64, size: u64) -> Result<Attributes> {
        value!(self.call(&Call::Truncate { by: caller.clone(), ino, size }), Attributes)
    }

    /// As [`Volume::set_attributes`](crate::Volume::set_attributes).
    pub fn set_attributes(&self, caller: &Caller, ino: u64, changes: &Changes) -> Result<Attributes> {
        value!(self.call(&Call::Set { by: caller.clone(), ino, changes: *changes }), Attributes)
    }

    /// As [`Volume::read_link`](crate::Volume::read_link).
    pub fn read_link(&self, ino: u64) -> Result<Vec<u8>> {
        value!(self.call(&Call::ReadLink { ino }), Bytes)
    }

    /// As [`Volume::make_file`](crate::Volume::make_file).
    pub fn make_file(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new: &NewFile<'_>,
        pin: bool,
    ) -> Result<Attributes> {
        let (mode, target) = (new.kind.mode_bits() | (new.permissions & 0o7777), new.target.to_vec());
        let (by, name, device) = (caller.clone(), name.to_vec(), new.device);
        value!(self.call(&Call::Make { by, parent, name, mode, device, target, pins: pin }), Attributes)
    }

    /// As [`Volume::link`](crate::Volume::link).
    pub fn link(&self, caller: &Caller, ino: u64, parent: u64, name: &[u8]) -> Result<Attributes> {
        value!(self.call(&Call::Link { by: caller.clone(), ino, parent, name: name.to_vec() }), Attributes)
    }

    /// As [`Volume::unlink`](crate::Volume::unlink).
    pub fn unlink(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.call(&Call::Remove { by: caller.clone(), parent, name: name.to_vec(), is_folder: false }).map(drop)
    }

    /// As [`Volume::remove_folder`](crate::Volume::remove_folder).
    pub fn remove_folder(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.call(&Call::Remove { by: caller.clone(), parent, name: name.to_vec(), is_folder: true }).map(drop)
    }

    /// As [`Volume::rename`](crate::Volume::rename).
    pub fn rename(&self, caller: &Caller, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Result<()> {
        let owned = |(ino, name): (u64, &[u8])| (ino, name.to_vec());
        self.call(&Call::Rename { by: caller.clone(), from: owned(from), to: owned(to), mode }).map(drop)
    }

    /// As [`Volume::pin`](crate::Volume::pin).
    pub fn pin(&self, ino: u64) -> Result<()> {
        // Noted first: a node that takes over now is told of it.
        let count = {
            let mut open = lock(&self.shared.open);
            let count = open.entry(ino).or_default();
            *count += 1;
            *count
        };
        if count > 1 { Ok(()) } else { self.call(&Call::Pin { ino }).map(drop) }
    }

    /// As [`Volume::unpin`](crate::Volume::unpin).
    pub fn unpin(&self, ino: u64, count: u64) -> Result<()> {
        {
            let mut open = lock(&self.shared.open);
            let left = open.get(&ino).map_or(0, |open| open.saturating_sub(count));
            if left > 0 {
                open.insert(ino, left);
                return Ok(());
            }
            open.remove(&ino);
        }
        lock(&self.shared.held).lost.remove(&ino);
        self.call(&Call::Unpin { ino }).map(drop)
    }

    /// As [`Volume::read`](crate::Volume::read).
    pub fn read(&self, ino: u64, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            let wanted = (out.len() - done).min(lodestone_width::to_usize(READ_BYTES_MAX));
            let at = offset.saturating_add(lodestone_width::to_u64(done));
            let bytes: Vec<u8> = value!(self.call(&Call::Read { ino, offset: at, count: exact_u32(wanted) }), Bytes)?;
            let count = bytes.len().min(wanted);
            out[done..done + count].copy_from_slice(&bytes[..count]);
            done += count;
            if count < wanted {
                break;
            }
        }
        Ok(done)
    }

    /// As [`Volume::note_read`](crate::Volume::note_read).
    pub fn note_read(&self, ino: u64) -> Result<()> {
        self.call(&Call::NoteRead { ino }).map(drop)
    }

    /// As [`Volume::write`](crate::Volume::write); of up to 256 KiB all or, after a takeover, nothing.
    pub fn write(&self, caller: &Caller, ino: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.shared.check_locks(ino)?;
        let mut at = offset;
        for piece in bytes.chunks(WRITE_BYTES_MAX) {
            self.call(&Call::Write { by: caller.clone(), ino, offset: at, bytes: piece.to_vec() })?;
            at = at.saturating_add(lodestone_width::to_u64(piece.len()));
        }
        Ok(())
    }

    /// As [`Volume::append`](crate::Volume::append), without the offset; up to 256 KiB are together.
    pub fn append(&self, caller: &Caller, ino: u64, bytes: &[u8]) -> Result<()> {
        self.shared.check_locks(ino)?;
        for piece in bytes.chunks(WRITE_BYTES_MAX) {
            self.call(&Call::Append { by: caller.clone(), ino, bytes: piece.to_vec() })?;
        }
        Ok(())
    }

    /// As [`Volume::sync`](crate::Volume::sync). Operations that a takeover has lost are told once.
    pub fn sync(&self) -> Result<()> {
        self.call(&Call::Sync)?;
        match std::mem::take(&mut lock(&self.shared.state).lost) {
            0 => Ok(()),
            count => Err(Error::Lost { count }),
        }
    }

    /// As [`Volume::read_folder`](crate::Volume::read_folder).
    pub fn read_folder(&self, caller: &Caller, ino: u64, cookie: u64, count: usize) -> Result<Vec<FolderEntry>> {
        let count = exact_u32(count);
        value!(self.call(&Call::ReadFolder { by: caller.clone(), ino, cookie, count }), Entries)
    }

    /// As [`Volume::read_folder_plus`](crate::Volume::read_folder_plus).
    pub fn read_folder_plus(
        &self,
        caller: &Caller,
        ino: u64,
        cookie: u64,
        count: usize,
    ) -> Result<Vec<(FolderEntry, Attributes)>> {
        let count = exact_u32(count);
        value!(self.call(&Call::ReadFolderPlus { by: caller.clone(), ino, cookie, count }), EntriesPlus)
    }

    /// As [`Volume::room`](crate::Volume::room).
    pub fn room(&self) -> Result<Room> {
        value!(self.call(&Call::Room), Room)
    }

    /// As [`Volume::set_extra`](crate::Volume::set_extra).
    pub fn set_extra(&self, caller: &Caller, ino: u64, name: &[u8], value: &[u8], mode: ExtraMode) -> Result<()> {
        let (by, name, value) = (caller.clone(), name.to_vec(), value.to_vec());
        self.call(&Call::SetExtra { by, ino, name, value, mode }).map(drop)
    }

    /// As [`Volume::extra`](crate::Volume::extra).
    pub fn extra(&self, caller: &Caller, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
        value!(self.call(&Call::Extra { by: caller.clone(), ino, name: name.to_vec() }), Bytes)
    }

    /// As [`Volume::extra_names`](crate::Volume::extra_names).
    pub fn extra_names(&self, caller: &Caller, ino: u64) -> Result<Vec<Vec<u8>>> {
        value!(self.call(&Call::ExtraNames { by: caller.clone(), ino }), Names)
    }

    /// As [`Volume::remove_extra`](crate::Volume::remove_extra).
    pub fn remove_extra(&self, caller: &Caller, ino: u64, name: &[u8]) -> Result<()> {
        self.call(&Call::RemoveExtra { by: caller.clone(), ino, name: name.to_vec() }).map(drop)
    }

    /// As [`Volume::allocate`](crate::Volume::allocate).
    pub fn allocate(&self, caller: &Caller, ino: u64, offset: u64, length: u64, what: Allocation) -> Result<()> {
        self.call(&Call::Allocate { by: caller.clone(), ino, offset, length, what }).map(drop)
    }

    /// As [`Volume::seek`](crate::Volume::seek).
    pub fn seek(&self, ino: u64, offset: u64, to: SeekTo) -> Result<u64> {
        value!(self.call(&Call::Seek { ino, offset, to }), Number)
    }
}
