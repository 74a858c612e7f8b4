//! The fabric: one multicast send for all replicas.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod applylog;
mod assembly;
mod driver;
mod effect;
mod error;
mod ids;
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
mod sender;
mod terms;
mod transport;
mod view;

pub use applylog::{Applied, ApplyLog, Standing};
pub use driver::{Clock, MemberDriver, SenderDriver};
pub use effect::{Outbound, Outgoing, Target};
pub use error::{Error, Result};
pub use ids::{GroupId, Moment, NodeId, Sequence, Term, ViewNumber};
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
pub use sender::{Sender, SenderCounts, SenderEvent, SenderOptions, Submission};
pub use terms::{RUNS_MAX, Terms};
pub use transport::{Peers, SwitchNetwork, SwitchPort, Transport, TransportCounts, UdpOptions, UdpTransport};
pub use view::{MEMBERS_MAX, Member, Role, View};
