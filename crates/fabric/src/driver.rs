//! Drivers: cores on a transport and a clock.
//!
//! A member's loop: take all packets that are there, one fence for what they exposed, send what came out, do what is
//! due. A sender's step is the same; who calls it decides how long it waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::effect::Outbound;
use crate::error::Result;
use crate::ids::{GroupId, Moment, Sequence};
use crate::packet::Packet;
use crate::receiver::Receiver;
use crate::sender::{Sender, SenderEvent, Submission};
use crate::transport::Transport;
use crate::volume::{Payload, VolumeSender};

/// Packets that one fence covers at most.
const BATCH_PACKETS: usize = 128;
/// Longest wait of a driver.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// The clock of a node.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Default for Clock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock {
    /// Now.
    #[must_use]
    pub fn now(&self) -> Moment {
        // 1 second ahead, so that "long ago" is not before the beginning.
        Moment(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1_000_000_000))
    }

    /// How long until `moment`, at most [`WAIT_MAX`].
    fn until(&self, moment: Option<Moment>) -> Duration {
        moment.map_or(WAIT_MAX, |moment| Duration::from_nanos(moment.since(self.now())).min(WAIT_MAX))
    }
}

/// A member on a transport. For one thread.
#[derive(Debug)]
pub struct MemberDriver<T> {
    receiver: Receiver,
    transport: T,
    clock: Clock,
    out: Outbound,
    /// Batches that had packets.
    batches: u64,
    refused: u64,
}

impl<T: Transport> MemberDriver<T> {
    /// A member.
    pub fn new(receiver: Receiver, transport: T) -> Self {
        Self { receiver, transport, clock: Clock::default(), out: Outbound::default(), batches: 0, refused: 0 }
    }

    /// One batch: waits up to `wait` for it. Returns its packets.
    ///
    /// # Errors
    /// A device or a socket that failed.
    pub fn step(&mut self, wait: Duration) -> Result<usize> {
        let wait = wait.min(self.clock.until(self.receiver.wake_at()));
        let (receiver, out, clock, refused) = (&mut self.receiver, &mut self.out, self.clock, &mut self.refused);
        let count = self.transport.poll(wait, BATCH_PACKETS, &mut |bytes| match Packet::decode(bytes) {
            Ok(packet) => receiver.packet(clock.now(), &packet, out),
            Err(_) => {
                *refused += 1;
                Ok(())
            }
        })?;
        self.batches += u64::from(count > 0);
        self.receiver.tick(self.clock.now(), &mut self.out)?;
        self.transport.send(&self.out.packets)?;
        self.out.packets.clear();
        Ok(count)
    }

    /// The member.
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The transport.
    pub const fn transport(&self) -> &T {
        &self.transport
    }

    /// Batches that had packets.
    pub const fn batches(&self) -> u64 {
        self.batches
    }
}

/// The members of several groups that are on one node, on one transport. For one thread.
#[derive(Debug)]
pub struct NodeDriver<T> {
    receivers: BTreeMap<GroupId, Receiver>,
    transport: T,
    clock: Clock,
    out: Outbound,
}

impl<T: Transport> NodeDriver<T> {
    /// Members, each of a group of its own: of two for one group the last one stays.
    pub fn new(receivers: Vec<Receiver>, transport: T) -> Self {
        let receivers = receivers.into_iter().map(|receiver| (receiver.group(), receiver)).collect();
        Self { receivers, transport, clock: Clock::default(), out: Outbound::default() }
    }

    /// One batch for all of them: waits up to `wait` for it. Returns its packets.
    ///
    /// # Errors
    /// A device or a socket that failed.
    pub fn step(&mut self, wait: Duration) -> Result<usize> {
        let wake_at = self.receivers.values().filter_map(Receiver::wake_at).min();
        let wait = wait.min(self.clock.until(wake_at));
        let (receivers, out, clock) = (&mut self.receivers, &mut self.out, self.clock);
        let count = self.transport.poll(wait, BATCH_PACKETS, &mut |bytes| {
            let Ok(packet) = Packet::decode(bytes) else { return Ok(()) };
            receivers.get_mut(&packet.head.group).map_or(Ok(()), |receiver| receiver.packet(clock.now(), &packet, out))
        })?;
        for receiver in self.receivers.values_mut() {
            receiver.tick(self.clock.now(), &mut self.out)?;
        }
        self.transport.send(&self.out.packets)?;
        self.out.packets.clear();
        Ok(count)
    }

    /// The member of a group.
    pub fn receiver(&self, group: GroupId) -> Option<&Receiver> {
        self.receivers.get(&group)
    }

    /// The same, to say what it keeps.
    pub fn receiver_mut(&mut self, group: GroupId) -> Option<&mut Receiver> {
        self.receivers.get_mut(&group)
    }

    /// The time on the clock of its members.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The transport.
    pub const fn transport(&self) -> &T {
        &self.transport
    }
}

/// A sender on a transport. For one thread.
#[derive(Debug)]
pub struct SenderDriver<T> {
    sender: Sender,
    transport: T,
    clock: Clock,
    out: Outbound,
    acknowledged: Sequence,
}

impl<T: Transport> SenderDriver<T> {
    /// A sender, which has been told to [take over](Sender::take_over) or will be, by [`with`](Self::with).
    pub fn new(sender: Sender, transport: T) -> Self {
        Self { sender, transport, clock: Clock::default(), out: Outbound::default(), acknowledged: Sequence(0) }
    }

    /// Does something with the core, and sends what comes out.
    ///
    /// # Errors
    /// Those of `action`, and a socket that failed.
    pub fn with<R>(&mut self, action: impl FnOnce(&mut Sender, Moment, &mut Outbound) -> Result<R>) -> Result<R> {
        let done = action(&mut self.sender, self.clock.now(), &mut self.out)?;
        self.transport.send(&self.out.packets)?;
        self.out.packets.clear();
        Ok(done)
    }

    /// Submits a record and sends it: it travels while the ring is fenced.
    ///
    /// # Errors
    /// Those of [`Sender::submit`]; a socket that failed.
    pub fn submit(&mut self, submission: &Submission, body: Vec<u8>) -> Result<Sequence> {
        let sequence = self.with(|sender, now, out| {
            let sequence = sender.submit(submission, body)?;
            sender.pump(now, out);
            Ok(sequence)
        })?;
        self.sender.fence()?;
        Ok(sequence)
    }

    /// Takes in what arrived, waiting up to `wait`, and does what is due. Returns packets.
    ///
    /// # Errors
    /// A damaged ring, or a socket that failed.
    pub fn step(&mut self, wait: Duration) -> Result<usize> {
        let wait = wait.min(self.clock.until(self.sender.wake_at()));
        let (sender, out, clock) = (&mut self.sender, &mut self.out, self.clock);
        let count = self.transport.poll(wait, BATCH_PACKETS, &mut |bytes| match Packet::decode(bytes) {
            Ok(packet) => sender.packet(clock.now(), &packet, out),
            Err(_) => Ok(()),
        })?;
        self.with(|sender, now, out| sender.tick(now, out))?;
        for event in self.sender.take_events() {
            if let SenderEvent::Acknowledged(sequence) = event {
                self.acknowledged = sequence;
            }
        }
        Ok(count)
    }

    /// Everything up to here is durable at a quorum.
    pub const fn acknowledged(&self) -> Sequence {
        self.acknowledged
    }

    /// The core.
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The transport.
    pub const fn transport(&self) -> &T {
        &self.transport
    }
}

/// The sender of a volume on a transport that reaches all its groups. For one thread.
#[derive(Debug)]
pub struct VolumeDriver<T> {
    volume: VolumeSender,
    transport: T,
    clock: Clock,
    out: Outbound,
    events: Vec<(GroupId, SenderEvent)>,
}

impl<T: Transport> VolumeDriver<T> {
    /// A sender, which is told to [take over](VolumeSender::take_over) by [`with`](Self::with).
    pub fn new(volume: VolumeSender, transport: T) -> Self {
        Self { volume, transport, clock: Clock::default(), out: Outbound::default(), events: Vec::new() }
    }

    /// Does something with the core, and sends what comes out.
    ///
    /// # Errors
    /// Those of `action`, and a socket that failed.
    pub fn with<R>(&mut self, action: impl FnOnce(&mut VolumeSender, Moment, &mut Outbound) -> Result<R>) -> Result<R> {
        let done = action(&mut self.volume, self.clock.now(), &mut self.out)?;
        self.transport.send(&self.out.packets)?;
        self.out.packets.clear();
        Ok(done)
    }

    /// Submits an operation with its payloads and sends them: they travel while the rings are fenced.
    ///
    /// # Errors
    /// Those of [`VolumeSender::submit`]; a socket that failed.
    pub fn submit(&mut self, operation: &Submission, body: &[u8], payloads: Vec<Payload>) -> Result<Sequence> {
        let number = self.with(|volume, now, out| {
            let number = volume.submit(operation, body, payloads)?;
            volume.pump(now, out);
            Ok(number)
        })?;
        self.volume.fence()?;
        Ok(number)
    }

    /// Takes in what arrived, waiting up to `wait`, and does what is due. Returns packets.
    ///
    /// # Errors
    /// A damaged ring, or a socket that failed.
    pub fn step(&mut self, wait: Duration) -> Result<usize> {
        let wait = wait.min(self.clock.until(self.volume.wake_at()));
        let (volume, out, clock) = (&mut self.volume, &mut self.out, self.clock);
        let count = self.transport.poll(wait, BATCH_PACKETS, &mut |bytes| match Packet::decode(bytes) {
            Ok(packet) => volume.packet(clock.now(), &packet, out),
            Err(_) => Ok(()),
        })?;
        self.with(|volume, now, out| volume.tick(now, out))?;
        self.events.extend(self.volume.take_events());
        Ok(count)
    }

    /// Events since the last call, each with its group.
    pub fn take_events(&mut self) -> Vec<(GroupId, SenderEvent)> {
        std::mem::take(&mut self.events)
    }

    /// Every operation up to here is durable at a quorum of each group.
    pub const fn acknowledged(&self) -> Sequence {
        self.volume.acknowledged()
    }

    /// The core.
    pub const fn volume(&self) -> &VolumeSender {
        &self.volume
    }

    /// The transport.
    pub const fn transport(&self) -> &T {
        &self.transport
    }
}
