//! The fabric: one multicast send for all replicas, which have it durably, and senders that follow each other by terms
//! (paper 5, the network half).
//!
//! A *group* has one sender and two or three members (up to 32). The sender gives each record its place in the group.
//! The record travels by one packet for each fragment, however many members there are. Members apply records in order,
//! make them durable by one fence for a batch, and report how far they are. A record is **acknowledged** when a quorum
//! has it durably. It is **stable** when it is acknowledged and every member has it. The sender keeps what is not
//! stable: its log is its send buffer.
//!
//! Who sends, and who is a member, is in a small [`Registry`]. Data never passes through it.
//!
//! ```text
//! leader    claims a term, holds the lease, asks the registry            registry   terms, members, leases
//! sender    places, sends, acknowledges; takes over; changes members     ring       its records (an Outbox)
//! receiver  places early, exposes in order, fences, reports              applylog   what it applied; pages
//! record, packet, message: bytes                                          log        the circular log below both
//! transport: switch, udp, unicast, tcp                                       driver     cores on a clock and a socket
//! ```
//!
//! [`Leader`], [`Sender`] and [`Receiver`] are synchronous state machines: one action goes in, effects come out. They
//! have no clock, socket or thread. The same code runs on a network and in the simulated cluster of
//! `lodestone-fabric-sim`, which crashes its nodes in the middle of a store.
//!
//! *Rules that hold it together.* Each is planted as a bug there and found:
//!
//! 1. A promise, a cut and a view are durable before they are told, in one line of the member's log.
//! 2. Nothing is acknowledged in a term before its own first record is. A record of an earlier term that a quorum has
//!    may still lose to the log of a term in between.
//! 3. A page is used again only when the record that freed it is stable, at members that join too. The record that uses
//!    it names the one that freed it, so a member checks that once more.
//! 4. While a change of members is undecided, a record needs the quorum of both views.
//! 5. A new sender acknowledges nothing until the lease of the former one is over: that one may still serve reads.
//! 6. A member that was away joins anew, and its reports of before do not count.
//!
//! `docs/fabric.md` has the protocol step by step, and says which faults are assumed.
//!
//! ```
//! use lodestone_fabric::{
//!     ApplyLog, FLAG_INLINE, MemberDriver, NodeId, PageArea, Receiver, ReceiverOptions, Ring, Sender, SenderDriver,
//!     SenderOptions, Sequence, Submission, SwitchNetwork, Term, View,
//! };
//! use lodestone_pmem::{Memory, PmAddr};
//! use std::time::Duration;
//!
//! // One member and a sender in one process. Each has a range of a pool; here the memory of the process stands in.
//! let (at, range) = (PmAddr::new(0, 4096), 64 << 10);
//! let memory = Memory::anonymous(1 << 20)?;
//! let log = ApplyLog::create(&memory, at, range, 7)?;
//! let pages = PageArea::open(&memory, at.plus(range), range, 256, 64)?;
//! let options = ReceiverOptions { node: NodeId(1), salt: 7, ..ReceiverOptions::default() };
//! let [port, own] = SwitchNetwork::ports([(NodeId(1), true), (NodeId(9), false)]);
//! let mut member = MemberDriver::new(Receiver::new(options, log, pages), port);
//!
//! let ring = Ring::create(&Memory::anonymous(1 << 20)?, at, range, 7)?;
//! let options = SenderOptions { node: NodeId(9), salt: 7, ..SenderOptions::default() };
//! let mut sender = SenderDriver::new(Sender::new(options, ring), own);
//! sender.with(|sender, now, out| {
//!     sender.take_over(now, Term(1), View::of(&[NodeId(1)]), out);
//!     Ok(())
//! })?;
//! while sender.acknowledged() < Sequence(1) {
//!     member.step(Duration::ZERO)?;
//!     sender.step(Duration::ZERO)?;
//! }
//! let written = sender.submit(&Submission { flags: FLAG_INLINE, ..Submission::default() }, b"hello".to_vec())?;
//! while sender.acknowledged() < written {
//!     member.step(Duration::ZERO)?;
//!     sender.step(Duration::from_micros(100))?;
//! }
//! assert_eq!(member.receiver().log().entry(written).unwrap().kept, b"hello");
//! # Ok::<(), lodestone_fabric::Error>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod applylog;
mod assembly;
mod driver;
mod effect;
mod error;
mod ids;
mod journal;
mod leader;
mod log;
mod message;
mod outbox;
mod packet;
mod pages;
mod reads;
mod receiver;
mod record;
mod registry;
mod reuse;
mod ring;
mod seal;
mod sender;
mod terms;
mod transport;
mod view;
mod volume;

pub use applylog::{Applied, ApplyLog, Standing};
pub use driver::{Clock, MemberDriver, NodeDriver, SenderDriver, VolumeDriver};
pub use effect::{Outbound, Outgoing, Target};
pub use error::{Error, Result};
pub use ids::{GroupId, Moment, NodeId, Sequence, Term, ViewNumber};
pub use journal::{Journal, JournalKind};
pub use leader::{Leader, RegistryAnswer, RegistryCall, Wish};
pub use message::{Call, Missing, Mode, NACK_WORDS_MAX, ViewMessage};
pub use outbox::Outbox;
pub use packet::*;
pub use pages::PageArea;
pub use reads::Reads;
pub use receiver::{Receiver, ReceiverCounts, ReceiverOptions, WINDOW_RECORDS};
pub use record::*;
pub use registry::{LEASE_NS, Lease, LocalRegistry, Registry, Swap, VolumeState};
pub use reuse::PageStock;
pub use ring::Ring;
pub use seal::{KeyRing, SEAL_BYTES, SealCounts, SealedTransport, Secret};
pub use sender::{Sender, SenderCounts, SenderEvent, SenderOptions, Submission};
pub use terms::{RUNS_MAX, Terms};
pub use transport::{
    HalvesCounts, HalvesTransport, Peers, SwitchNetwork, SwitchPort, TcpTransport, Transport, TransportCounts,
    UdpOptions, UdpTransport, halves, halves_payload_bytes,
};
pub use view::{MEMBERS_MAX, Member, Role, View};
pub use volume::{OPERATIONS, Payload, VolumeSender};
