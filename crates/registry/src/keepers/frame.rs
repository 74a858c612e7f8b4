//! Messages between keepers, in frames of our own: no byte of a network reaches the parser of `raft`.
//!
//! ```text
//! frame     crc 4 of the rest, salted by the registry's name, then
//!           kind 1, reject 1, to 8, from 8, term 8, log term 8, index 8, commit 8, commit term 8, reject hint 8,
//!           requested snapshot 8, context (bytes 4), entries 4, {index 8, term 8, command (bytes 4)},
//!           snapshot 1, [index 8, term 8, table (bytes 4)]
//! ```
//!
//! A frame is refused if its checksum, a count or a kind is wrong. The rules that `raft` would end the process for are
//! checked by the core (`core.rs`) before a message reaches it.

use lodestone_width::exact_u32;
use raft::eraftpb::{Entry, EntryType, Message, MessageType, Snapshot};

use super::KeeperId;
use super::disk::membership;
use crate::table::{COMMAND_BYTES_MAX, TABLE_BYTES_MAX};
use crate::wire::{Reader, Writer};

/// Kinds of messages that keepers send each other, each at the number of its place. Others are never accepted.
const KINDS: [MessageType; 9] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];
const CONTEXT_BYTES_MAX: usize = 64;

/// The bytes of a message; `None` if keepers do not send such.
pub(super) fn encode(salt: u64, message: &Message) -> Option<Vec<u8>> {
    let kind = KINDS.iter().position(|kind| *kind == message.get_msg_type())?;
    let mut out = Writer::default();
    out.u32(0).u8(lodestone_width::exact_u8(kind)).u8(u8::from(message.reject));
    for value in [
        message.to,
        message.from,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
        message.request_snapshot,
    ] {
        out.u64(value);
    }
    out.bytes(&message.context).u32(exact_u32(message.entries.len()));
    for entry in message.get_entries() {
        if entry.get_entry_type() != EntryType::EntryNormal {
            return None;
        }
        out.u64(entry.index).u64(entry.term).bytes(&entry.data);
    }
    let snapshot = message.get_snapshot();
    out.u8(u8::from(!snapshot.is_empty()));
    if !snapshot.is_empty() {
        let meta = snapshot.get_metadata();
        out.u64(meta.index).u64(meta.term).bytes(&snapshot.data);
    }
    let crc = checksum(salt, &out.0[4..]);
    out.0[..4].copy_from_slice(&crc.to_le_bytes());
    Some(out.0)
}

fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

/// The message with these bytes, among `keepers`; `None` if it is none.
pub(super) fn decode(salt: u64, keepers: &[KeeperId], bytes: &[u8]) -> Option<Message> {
    let mut from = Reader(bytes);
    let crc = from.u32()?;
    (checksum(salt, from.0) == crc).then_some(())?;
    let mut message = Message::default();
    message.set_msg_type(*KINDS.get(usize::from(from.u8()?))?);
    message.reject = from.u8()? == 1;
    (message.to, message.from, message.term) = (from.u64()?, from.u64()?, from.u64()?);
    (message.log_term, message.index) = (from.u64()?, from.u64()?);
    (message.commit, message.commit_term) = (from.u64()?, from.u64()?);
    (message.reject_hint, message.request_snapshot) = (from.u64()?, from.u64()?);
    message.context = from.bytes(CONTEXT_BYTES_MAX)?.to_vec().into();
    let mut entries = Vec::new();
    for _ in 0..from.count(20)? {
        let mut entry = Entry { index: from.u64()?, term: from.u64()?, ..Entry::default() };
        entry.data = from.bytes(COMMAND_BYTES_MAX)?.to_vec().into();
        entries.push(entry);
    }
    message.set_entries(entries.into());
    if from.u8()? == 1 {
        let mut snapshot = Snapshot::default();
        let meta = snapshot.mut_metadata();
        (meta.index, meta.term) = (from.u64()?, from.u64()?);
        meta.set_conf_state(membership(keepers));
        snapshot.data = from.bytes(2 * TABLE_BYTES_MAX)?.to_vec().into();
        message.set_snapshot(snapshot);
    }
    from.end()?;
    Some(message)
}
