//! Sealed packets: AES-128-GCM around any transport. Only members of a group read, make or change its packets.
//!
//! ```text
//! sealed packet   head 64, payload encrypted, tag 16
//!   flags         with bit 15
//!   counter       of the source in its life: 48 bits
//!   bytes 60..64  the source's life, in place of the CRC-32C
//! key             HKDF-SHA256(secret; "lodestone fabric", group 4, term 4, view 4), 16 bytes
//! nonce           source 2, life 4, counter 6
//! ```
//!
//! 1. *Keys.* A [`Secret`] of a group is given to each of its members by the keeper of the registry, for views from a
//!    number on ([`KeyRing::hand`]), or for one term and view ([`KeyRing::hand_exact`]). Who is removed does not get
//!    the next one. Each term and view has a key of its own,
//!    derived from the secret. The whole head is authenticated, so the fields that name the key are.
//! 2. *Nonce.* A life is the boot number of the source's pool: it never repeats. The counter rises with every packet.
//!    After 2^48 packets of a life the transport refuses to send.
//! 3. *Receive.* A packet without the flag, one whose key is unknown and one that does not verify are dropped, and
//!    counted. Such a packet costs at most one derivation and one pass over its bytes, and nothing of it stays: keys
//!    are kept only after a packet verified. Of each source the last 1024 counters are known, so that a packet counts
//!    once. A packet that is older than that, or of an older life, is dropped.
//!
//! Members of a group are trusted with it: a key of a group cannot tell them apart. After a restart a receiver does not
//! know what it had received. A packet of before that is repeated then is one that a network repeats late, which the
//! protocol withstands in any case.

mod keys;
mod window;

use std::collections::BTreeSet;
use std::time::Duration;

pub use keys::{KeyRing, Secret};

use crate::effect::Outgoing;
use crate::error::{Error, Result};
use crate::ids::{GroupId, NodeId, Term, ViewNumber};
use crate::packet::{PACKET_HEAD_BYTES, PACKET_SEALED, PacketFields, reseal_checksum};
use crate::transport::{Transport, TransportCounts};
use keys::{Cache, Nonce};
use window::Windows;

/// Bytes that sealing adds to a packet.
pub const SEAL_BYTES: usize = 16;
/// Packets of a life.
const COUNTER_MAX: u64 = 1 << 48;
/// Missing secrets that are noted at once.
const WANTED_MAX: usize = 16;

/// Counts of a sealed transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SealCounts {
    /// Packets that were sealed and sent.
    pub sealed: u64,
    /// Packets that verified, and were handed on.
    pub opened: u64,
    /// Packets without a seal.
    pub plain: u64,
    /// Packets of groups or views of which no secret was handed to this node.
    pub without_key: u64,
    /// Packets that did not verify.
    pub refused: u64,
    /// Packets that had been received before, or may have been.
    pub repeated: u64,
}

/// A transport whose packets are sealed.
///
/// ```
/// use lodestone_fabric::{
///     GroupId, KeyRing, Kind, NodeId, Outgoing, Packet, PacketHead, SealedTransport, Secret, SwitchNetwork, Target,
///     Transport, ViewNumber,
/// };
/// use std::time::Duration;
///
/// let keys = || {
///     let mut keys = KeyRing::default();
///     keys.hand(GroupId(1), ViewNumber(0), Secret::of([7; 32]));
///     keys
/// };
/// let [one, other] = SwitchNetwork::ports([(NodeId(1), true), (NodeId(2), true)]);
/// let mut one = SealedTransport::new(one, NodeId(1), 1, keys());
/// let mut other = SealedTransport::new(other, NodeId(2), 1, keys());
/// let packet = PacketHead::new(Kind::Beat, GroupId(1), NodeId(1)).packet([b"secret", &[]]);
/// one.send(&[Outgoing { target: Target::Node(NodeId(2)), bytes: packet.clone() }])?;
/// other.poll(Duration::ZERO, 8, &mut |bytes| {
///     assert_eq!(Packet::decode(bytes).unwrap().payload, b"secret");
///     Ok(())
/// })?;
/// assert_eq!(other.seal_counts().opened, 1);
/// # Ok::<(), lodestone_fabric::Error>(())
/// ```
#[derive(Debug)]
pub struct SealedTransport<T> {
    inner: T,
    node: NodeId,
    life: u32,
    counter: u64,
    keys: KeyRing,
    cache: Cache,
    windows: Windows,
    counts: SealCounts,
    sealed: Vec<Outgoing>,
    /// Groups, terms and views of packets whose secret is not known here.
    wanted: BTreeSet<(GroupId, Term, ViewNumber)>,
}

impl<T: Transport> SealedTransport<T> {
    /// Seals what `node` sends over `inner`. `life` never repeats for this node: it is the boot number of its pool. A
    /// node with two sealed transports needs two of them. With a life that repeats, nothing is secret any more.
    pub fn new(inner: T, node: NodeId, life: u32, keys: KeyRing) -> Self {
        Self {
            inner,
            node,
            life,
            counter: 0,
            keys,
            cache: Cache::default(),
            windows: Windows::default(),
            counts: SealCounts::default(),
            sealed: Vec::new(),
            wanted: BTreeSet::new(),
        }
    }

    /// Secrets that packets needed since the last call and that are not known: of packets to send, or of received ones
    /// that anybody may have made. The caller asks the keepers for some of them, not more often than now and then.
    pub fn take_wanted(&mut self) -> Vec<(GroupId, Term, ViewNumber)> {
        std::mem::take(&mut self.wanted).into_iter().collect()
    }

    /// Forgets secrets and keys of `group` of terms before `term`, and of views before `view`, and refuses them from
    /// then on.
    pub fn retire(&mut self, group: GroupId, term: Term, view: ViewNumber) {
        self.keys.retire(group, term, view);
        self.cache.retire(group, term, view);
    }

    /// The secrets, to hand a new one.
    pub const fn keys(&mut self) -> &mut KeyRing {
        &mut self.keys
    }

    /// The transport inside.
    pub const fn inner(&self) -> &T {
        &self.inner
    }

    /// The transport inside, to tell it addresses.
    pub const fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// The transport inside, without seals.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Counts of packets by their fate.
    pub const fn seal_counts(&self) -> SealCounts {
        self.counts
    }

    /// The packet, sealed; `None` if no secret of its group is known here.
    fn seal(&mut self, outgoing: &Outgoing) -> Result<Option<Outgoing>> {
        let mut bytes = outgoing.bytes.clone();
        let Some(fields) = PacketFields::of(&bytes) else { return Ok(None) };
        if self.counter >= COUNTER_MAX {
            return Err(Error::Sealing { what: "all numbers of packets of this life are used; restart the node" });
        }
        self.counter += 1;
        let Some(key) = self.cache.key(&self.keys, fields.key_place()) else {
            self.counts.without_key += 1;
            want(&mut self.wanted, fields.key_place());
            return Ok(None);
        };
        PacketFields::mark_sealed(&mut bytes, self.counter, self.life);
        let nonce = Nonce { source: self.node, life: self.life, counter: self.counter };
        let (head, payload) = bytes.split_at_mut(PACKET_HEAD_BYTES);
        let tag = key.seal(nonce, head, payload).ok_or(Error::Sealing { what: "the cipher refused a packet" })?;
        bytes.extend(tag);
        self.counts.sealed += 1;
        Ok(Some(Outgoing { target: outgoing.target, bytes }))
    }
}

/// Notes a secret that is missing. Only some: what arrives may be anybody's.
fn want(wanted: &mut BTreeSet<(GroupId, Term, ViewNumber)>, place: (GroupId, Term, ViewNumber)) {
    if wanted.len() < WANTED_MAX {
        wanted.insert(place);
    }
}

/// The fate of a received packet.
enum Fate {
    Opened,
    Plain,
    WithoutKey((GroupId, Term, ViewNumber)),
    Refused,
    Repeated,
}

/// Opens the packet in `bytes` in place, as one without a seal; it has the seal's bytes less then.
fn open(bytes: &mut Vec<u8>, keys: &KeyRing, cache: &mut Cache, windows: &mut Windows) -> Fate {
    let Some(fields) = PacketFields::of(bytes).filter(|fields| fields.flags & PACKET_SEALED != 0) else {
        return Fate::Plain;
    };
    if bytes.len() < PACKET_HEAD_BYTES + SEAL_BYTES {
        return Fate::Refused;
    }
    let nonce = Nonce { source: fields.source, life: fields.last_word, counter: fields.counter };
    if windows.is_old(nonce) {
        return Fate::Repeated;
    }
    let Some(key) = cache.look(keys, fields.key_place()) else { return Fate::WithoutKey(fields.key_place()) };
    let (head, payload) = bytes.split_at_mut(PACKET_HEAD_BYTES);
    if !key.open(nonce, head, payload) {
        return Fate::Refused;
    }
    cache.keep(fields.key_place(), key);
    windows.note(nonce);
    bytes.truncate(bytes.len() - SEAL_BYTES);
    PacketFields::unmark(bytes);
    reseal_checksum(bytes);
    Fate::Opened
}

impl<T: Transport> Transport for SealedTransport<T> {
    fn send(&mut self, packets: &[Outgoing]) -> Result<()> {
        self.sealed.clear();
        for outgoing in packets {
            if let Some(sealed) = self.seal(outgoing)? {
                self.sealed.push(sealed);
            }
        }
        self.inner.send(&self.sealed)
    }

    fn poll(&mut self, wait: Duration, most: usize, receive: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        let (keys, cache, windows, counts) = (&self.keys, &mut self.cache, &mut self.windows, &mut self.counts);
        let wanted = &mut self.wanted;
        let mut opened = Vec::new();
        self.inner.poll(wait, most, &mut |bytes| {
            opened.clear();
            opened.extend(bytes);
            match open(&mut opened, keys, cache, windows) {
                Fate::Opened => {
                    counts.opened += 1;
                    return receive(&opened);
                }
                Fate::Plain => counts.plain += 1,
                Fate::WithoutKey(place) => {
                    counts.without_key += 1;
                    want(wanted, place);
                }
                Fate::Refused => counts.refused += 1,
                Fate::Repeated => counts.repeated += 1,
            }
            Ok(())
        })
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

impl Nonce {
    /// The twelve bytes.
    fn bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..2].copy_from_slice(&self.source.0.to_le_bytes());
        bytes[2..6].copy_from_slice(&self.life.to_le_bytes());
        bytes[6..].copy_from_slice(&self.counter.to_le_bytes()[..6]);
        bytes
    }
}
