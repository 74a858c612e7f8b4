//! The rules that a message of another keeper keeps before the consensus core sees it.
//!
//! The core trusts its peers: it ends the process when a number is out of place. So every number that it uses as a
//! place of the log, adds to, or compares with what is committed is compared with the log first. A message that breaks
//! a rule is dropped. No keeper of this program sends one.

use lodestone_width::to_u64;
use raft::eraftpb::{Entry, Message, MessageType};
use raft::{Raft, StateRole};

use super::KeeperId;
use super::disk::Disk;
use crate::table::Table;

/// Terms and places are below this: the core adds to them without a look.
const NUMBER_MAX: u64 = 1 << 62;
/// A term is at most so far ahead of ours. One message must not use up all terms.
const TERMS_AHEAD_MAX: u64 = 1 << 32;

/// Whether a message for this keeper keeps the rules.
pub(super) fn may_step(raft: &Raft<Disk>, message: &Message) -> bool {
    let is_known = raft.store().keepers().contains(&KeeperId(message.from)) && message.from != raft.id;
    is_known && message.to == raft.id && has_possible_numbers(raft, message) && fits_its_kind(raft, message)
}

fn has_possible_numbers(raft: &Raft<Disk>, message: &Message) -> bool {
    let numbers = [message.log_term, message.index, message.commit, message.commit_term, message.reject_hint];
    let is_possible_term = message.term > 0 && message.term <= raft.term.saturating_add(TERMS_AHEAD_MAX);
    // Our keepers never ask for a table: the leader finds out who needs one.
    is_possible_term
        && message.term < NUMBER_MAX
        && numbers.iter().all(|number| *number < NUMBER_MAX)
        && message.request_snapshot == 0
}

fn fits_its_kind(raft: &Raft<Disk>, message: &Message) -> bool {
    let kind = message.get_msg_type();
    let has_table = !message.get_snapshot().is_empty();
    let last = raft.raft_log.last_index();
    let fits = match kind {
        // A leader tells no more as committed than this keeper confirmed.
        MessageType::MsgHeartbeat => message.commit <= last,
        MessageType::MsgAppend => may_append(raft, message),
        MessageType::MsgSnapshot => may_install(message),
        // A keeper confirms to its leader no more than that has.
        MessageType::MsgAppendResponse => {
            let leads = raft.state == StateRole::Leader && message.term == raft.term;
            message.reject || !leads || message.index <= last
        }
        _ => true,
    };
    fits && has_table == (kind == MessageType::MsgSnapshot)
        && (message.get_entries().is_empty() || kind == MessageType::MsgAppend)
}

/// Entries follow a place that the core compares, and change nothing that is committed.
fn may_append(raft: &Raft<Disk>, message: &Message) -> bool {
    let (entries, log) = (message.get_entries(), &raft.raft_log);
    let follow = entries
        .iter()
        .enumerate()
        .all(|(offset, entry)| message.index.checked_add(to_u64(offset) + 1) == Some(entry.index));
    // Term 0 is that of every place where no entry is: the core would find that it fits.
    let terms = std::iter::once(message.log_term).chain(entries.iter().map(Entry::get_term));
    let rise = message.log_term > 0 && terms.is_sorted_by(|one, next| one <= next);
    let are_known = terms_end(message) <= message.term;
    let conflict = entries.iter().find(|entry| !log.match_term(entry.index, entry.term));
    let keeps_committed = conflict.is_none_or(|entry| entry.index > log.committed);
    follow && rise && are_known && (keeps_committed || !log.match_term(message.index, message.log_term))
}

/// The term of the last entry, or of the place before.
fn terms_end(message: &Message) -> u64 {
    message.get_entries().last().map_or(message.log_term, Entry::get_term)
}

/// A table that can be read, after a place that a log can have.
fn may_install(message: &Message) -> bool {
    let (snapshot, meta) = (message.get_snapshot(), message.get_snapshot().get_metadata());
    let is_place = (1..NUMBER_MAX).contains(&meta.index) && (1..=message.term).contains(&meta.term);
    is_place && Table::from_bytes(&snapshot.data).is_some()
}
