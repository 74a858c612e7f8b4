//! Requests of mounts in other processes: each change is carried out once, also when its answer was lost.
//!
//! A mount numbers its requests. The operation of a request has the number of the mount and that of the request in the
//! log. Each node with metadata remembers those of the newest operations. So the next metadata node knows whether a
//! request that is sent again was carried out by the former one.
//!
//! ```text
//! body of an operation with bit 15 in its code   the body as without it, then mount 8, request 8
//! ```

use std::collections::{HashMap, VecDeque};

use lodestone_fabric::Sequence;

use crate::bytes::{Reader, Writer};

/// The bit of an operation's code that says that a tag follows its body.
pub(crate) const TAGGED: u16 = 0x8000;
const TAG_BYTES: usize = 16;
/// Requests that are remembered. Each mount has at most a few dozen under way.
const REMEMBERED_MAX: usize = 1 << 14;

/// A request of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tag {
    pub(crate) mount: u64,
    pub(crate) request: u64,
}

impl Tag {
    /// Adds the tag to an operation's code and body.
    pub(crate) fn mark(self, code: &mut u16, body: &mut Vec<u8>) {
        let mut out = Writer(std::mem::take(body));
        out.u64(self.mount).u64(self.request);
        *body = out.0;
        *code |= TAGGED;
    }

    /// Takes the tag off an operation's code and body, if it has one. `None`: the bytes are none.
    pub(crate) fn split(code: u16, body: &[u8]) -> Option<(u16, &[u8], Option<Self>)> {
        if code & TAGGED == 0 {
            return Some((code, body, None));
        }
        let (body, tag) = body.split_at_checked(body.len().checked_sub(TAG_BYTES)?)?;
        let mut from = Reader(tag);
        let tag = Self { mount: from.u64()?, request: from.u64()? };
        Some((code & !TAGGED, body, Some(tag)))
    }
}

/// The requests of the newest operations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests {
    order: VecDeque<Tag>,
    /// Each with its operation.
    known: HashMap<Tag, Sequence>,
}

impl Requests {
    /// Remembers a request. The oldest one is forgotten for it.
    pub(crate) fn note(&mut self, tag: Option<Tag>, operation: Sequence) {
        let Some(tag) = tag.filter(|tag| !self.known.contains_key(tag)) else { return };
        self.known.insert(tag, operation);
        self.order.push_back(tag);
        if self.order.len() > REMEMBERED_MAX {
            self.order.pop_front().iter().for_each(|oldest| _ = self.known.remove(oldest));
        }
    }

    /// Remembers those that another node of the process knows, too.
    pub(crate) fn add_all(&mut self, others: &Self) {
        for tag in &others.order {
            self.note(Some(*tag), others.operation(*tag).unwrap_or_default());
        }
    }

    /// Whether the request was carried out.
    pub(crate) fn has(&self, tag: Tag) -> bool {
        self.known.contains_key(&tag)
    }

    /// The operation that carried the request out.
    pub(crate) fn operation(&self, tag: Tag) -> Option<Sequence> {
        self.known.get(&tag).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_comes_back_and_operations_without_one_are_as_before() {
        let tag = Tag { mount: 7, request: u64::MAX };
        let (mut code, mut body) = (3, b"body".to_vec());
        assert_eq!(Tag::split(code, &body), Some((3, &b"body"[..], None)));
        tag.mark(&mut code, &mut body);
        assert_eq!(Tag::split(code, &body), Some((3, &b"body"[..], Some(tag))));
        assert_eq!(Tag::split(TAGGED, &body[..15]), None, "too few bytes");
    }

    #[test]
    fn the_newest_requests_are_remembered_and_no_more() {
        let mut requests = Requests::default();
        let tag = |request| Tag { mount: 1, request };
        for request in 0..=to_u64(REMEMBERED_MAX) {
            requests.note(Some(tag(request)), Sequence(request));
            requests.note(Some(tag(request)), Sequence(0));
        }
        assert!(!requests.has(tag(0)) && requests.has(tag(1)) && requests.has(tag(to_u64(REMEMBERED_MAX))));
        assert_eq!((requests.order.len(), requests.operation(tag(7))), (REMEMBERED_MAX, Some(Sequence(7))));
    }

    fn to_u64(number: usize) -> u64 {
        lodestone_width::to_u64(number)
    }
}
