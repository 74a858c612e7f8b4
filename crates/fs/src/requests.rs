//! Requests of mounts in other processes: each change is carried out once, also when its answer was lost.
//!
//! 1. A mount numbers its requests. The operation of a request has the number of the mount and that of the request in
//!    the log, and the *floor* of the mount: below it every request has its answer, and is not sent again.
//! 2. Each node with metadata remembers the requests of a mount from its floor on, each with its operation. It takes
//!    them from the log with the operations, and its image has them in the same transaction.
//! 3. A request that is remembered, or is below the floor, is not carried out again.
//! 4. An image whose requests make no sense is not used, nor one that has a request which the log has after it: it is
//!    an error that names the mount. Who guesses carries a request out twice, or never.
//!
//! So whichever node leads, and also when all of them were restarted, it knows what was carried out before. Memory is
//! bounded: a mount has at most [`REQUESTS_MAX`] requests from its floor on, and of mounts that did nothing for long
//! the oldest is forgotten.
//!
//! ```text
//! body of an operation with bit 15 in its code   the body as without it, then mount 8, request 8
//!                with bits 15 and 14             the same, then the floor 8
//! value of a mount in the image                  floor 8, then for each request: request 8, operation 8
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::bytes::{Reader, Writer};
use lodestone_fabric::Sequence;

/// The bits of an operation's code that say that a tag follows its body, and that the floor is in it.
const TAGGED: u16 = 0x8000;
const FLOORED: u16 = 0x4000;
const TAG_BYTES: usize = 16;
const FLOOR_BYTES: usize = 8;
/// Most requests of a mount from its floor on: it waits for answers before it sends more.
pub(crate) const REQUESTS_MAX: u64 = 2048;
/// Mounts that are remembered.
const MOUNTS_MAX: usize = 1024;

/// The files that are told with the answer of an operation: the one that it made, or those that its names led to; 0 for
/// none.
pub(crate) type Files = [u64; 2];

/// A request of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) mount: u64,
    pub(crate) request: u64,
    /// All requests of the mount below it have their answers.
    pub(crate) floor: u64,
}

impl Tag {
    /// A tag whose numbers are possible.
    pub(crate) fn new(mount: u64, request: u64, floor: u64) -> Option<Self> {
        (floor <= request && request - floor < REQUESTS_MAX).then_some(Self { mount, request, floor })
    }

    /// Adds the tag to an operation's code and body.
    pub(crate) fn mark(self, code: &mut u16, body: &mut Vec<u8>) {
        let mut out = Writer(std::mem::take(body));
        out.u64(self.mount).u64(self.request).u64(self.floor);
        *body = out.0;
        *code |= TAGGED | FLOORED;
    }

    /// Takes the tag off an operation's code and body, if it has one. `None`: the bytes are none.
    pub(crate) fn split(code: u16, body: &[u8]) -> Option<(u16, &[u8], Option<Self>)> {
        if code & TAGGED == 0 {
            return Some((code, body, None));
        }
        let bytes = TAG_BYTES + if code & FLOORED == 0 { 0 } else { FLOOR_BYTES };
        let (body, tag) = body.split_at_checked(body.len().checked_sub(bytes)?)?;
        let mut from = Reader(tag);
        let (mount, request) = (from.u64()?, from.u64()?);
        // Operations of former programs have none: then only the newest requests are remembered.
        let floor = if code & FLOORED == 0 { request.saturating_sub(REQUESTS_MAX - 1) } else { from.u64()? };
        Some((code & !(TAGGED | FLOORED), body, Some(Self::new(mount, request, floor)?)))
    }
}

/// The requests of a mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfMount {
    floor: u64,
    /// Those that were carried out, each with its operation.
    done: BTreeMap<u64, Sequence>,
}

impl OfMount {
    fn newest(&self) -> Sequence {
        self.done.values().copied().max().unwrap_or_default()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u64(self.floor);
        self.done.iter().for_each(|(request, operation)| _ = out.u64(*request).u64(operation.0));
        out.0
    }

    /// The requests in an image that has the operations up to `applied`.
    fn from_bytes(bytes: &[u8], applied: Sequence) -> Option<Self> {
        let mut from = Reader(bytes);
        let mut found = Self { floor: from.u64()?, done: BTreeMap::new() };
        while !from.is_empty() {
            let (request, operation) = (from.u64()?, Sequence(from.u64()?));
            let is_new = found.done.last_key_value().is_none_or(|(last, _)| *last < request);
            (is_new && request >= found.floor && request - found.floor < REQUESTS_MAX).then_some(())?;
            (Sequence(1)..=applied).contains(&operation).then_some(())?;
            found.done.insert(request, operation);
        }
        // The request that was noted last is at the floor or above it.
        (!found.done.is_empty()).then_some(found)
    }
}

/// The requests that were carried out.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    mounts: HashMap<u64, OfMount>,
    /// Mounts whose requests the image lacks.
    dirty: BTreeSet<u64>,
}

impl Requests {
    /// Remembers a request.
    pub(crate) fn note(&mut self, tag: Option<Tag>, operation: Sequence) {
        let Some(tag) = tag else { return };
        if !self.mounts.contains_key(&tag.mount) && self.mounts.len() >= MOUNTS_MAX {
            self.forget_oldest();
        }
        let mount = self.mounts.entry(tag.mount).or_default();
        if tag.floor > mount.floor {
            mount.floor = tag.floor;
            mount.done = mount.done.split_off(&tag.floor);
        }
        if tag.request >= mount.floor {
            mount.done.entry(tag.request).or_insert(operation);
        }
        self.dirty.insert(tag.mount);
    }

    fn forget_oldest(&mut self) {
        let oldest = self.mounts.iter().min_by_key(|(_, mount)| mount.newest()).map(|(mount, _)| *mount);
        if let Some(mount) = oldest {
            self.mounts.remove(&mount);
            self.dirty.insert(mount);
        }
    }

    /// Whether the request was carried out.
    pub(crate) fn has(&self, tag: Tag) -> bool {
        let found = |mount: &OfMount| tag.request < mount.floor || mount.done.contains_key(&tag.request);
        self.mounts.get(&tag.mount).is_some_and(found)
    }

    /// The operation that carried the request out, if it is remembered.
    pub(crate) fn operation(&self, tag: Tag) -> Option<Sequence> {
        self.mounts.get(&tag.mount)?.done.get(&tag.request).copied()
    }

    /// Whether the requests of a mount are known, if it had any: one that did nothing for long may be forgotten.
    pub(crate) fn remembers(&self, mount: u64) -> bool {
        self.mounts.contains_key(&mount) || self.mounts.len() < MOUNTS_MAX
    }

    /// Takes the requests of all mounts from an image that has the operations up to `applied`.
    ///
    /// # Errors
    /// Requests that make no sense: then it is not known which were carried out.
    pub(crate) fn load(found: &[(u64, Vec<u8>)], applied: Sequence) -> Result<Self, String> {
        if found.len() > MOUNTS_MAX {
            return Err(format!("it has the requests of {} mounts, more than {MOUNTS_MAX}", found.len()));
        }
        let (mut requests, mut operations) = (Self::default(), Vec::new());
        for (mount, bytes) in found {
            let wrong = || format!("the requests of mount {mount:016x} make no sense");
            let of_mount = OfMount::from_bytes(bytes, applied).ok_or_else(wrong)?;
            operations.extend(of_mount.done.iter().map(|(request, operation)| (*operation, *mount, *request)));
            requests.mounts.insert(*mount, of_mount);
        }
        operations.sort_unstable();
        let twice = operations.windows(2).find(|pair| pair[0].0 == pair[1].0);
        twice.map_or(Ok(requests), |pair| {
            let (operation, [one, other]) = (pair[0].0.0, [0, 1].map(|at| (pair[at].2, pair[at].1)));
            Err(format!(
                "operation {operation} cannot be request {} of mount {:016x} and request {} of mount {:016x}",
                one.0, one.1, other.0, other.1
            ))
        })
    }

    /// Takes out everything that the image lacks: the value of each mount, or none.
    pub(crate) fn take_dirty(&mut self) -> Vec<(u64, Option<Vec<u8>>)> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|mount| (mount, self.mounts.get(&mount).map(OfMount::to_bytes))).collect()
    }

    /// The image lacks the requests of these mounts after all.
    pub(crate) fn dirty_again(&mut self, mounts: impl Iterator<Item = u64>) {
        self.dirty.extend(mounts);
    }

    /// Mounts, their floors, and the requests that are remembered.
    #[cfg(any(test, feature = "oracle"))]
    pub(crate) fn known(&self) -> BTreeMap<u64, (u64, Vec<u64>)> {
        let known = |mount: &OfMount| (mount.floor, mount.done.keys().copied().collect());
        self.mounts.iter().map(|(number, mount)| (*number, known(mount))).collect()
    }
}

/// The numbers of a mount's requests: which of them wait for an answer.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: u64,
    waiting: BTreeSet<u64>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { next: 1, waiting: BTreeSet::new() }
    }
}

impl Numbers {
    /// All requests below it have their answers, and are not sent again.
    pub(crate) fn floor(&self) -> u64 {
        self.waiting.first().copied().unwrap_or(self.next)
    }

    /// A number for a request, and the floor. `None`: too many wait for an answer.
    pub(crate) fn begin(&mut self) -> Option<(u64, u64)> {
        if self.next - self.floor() >= REQUESTS_MAX {
            return None;
        }
        self.waiting.insert(self.next);
        self.next += 1;
        Some((self.next - 1, self.floor()))
    }

    /// The request has its answer, which is not lost, or is not sent again.
    pub(crate) fn end(&mut self, request: u64) {
        self.waiting.remove(&request);
    }
}

#[cfg(test)]
mod tests {
    use lodestone_width::to_u64;

    use super::*;

    fn tag(request: u64, floor: u64) -> Tag {
        Tag { mount: 7, request, floor }
    }

    #[test]
    fn a_tag_comes_back_and_operations_without_one_are_as_before() {
        let tag = Tag { mount: 7, request: u64::MAX, floor: u64::MAX - 9 };
        let (mut code, mut body) = (3, b"body".to_vec());
        assert_eq!(Tag::split(code, &body), Some((3, &b"body"[..], None)));
        tag.mark(&mut code, &mut body);
        assert_eq!(Tag::split(code, &body), Some((3, &b"body"[..], Some(tag))));
        assert_eq!(Tag::split(code, &body[..23]), None, "too few bytes");
        let former = [b"body".to_vec(), 7_u64.to_le_bytes().to_vec(), 5000_u64.to_le_bytes().to_vec()].concat();
        let found = Tag { mount: 7, request: 5000, floor: 2953 };
        assert_eq!(Tag::split(TAGGED | 3, &former), Some((3, &b"body"[..], Some(found))), "of a former program");
        let last = [7_u64, u64::MAX].map(u64::to_le_bytes).concat();
        assert_eq!(Tag::split(TAGGED, &last).and_then(|(_, _, tag)| Some(tag?.request)), Some(u64::MAX));
        let above = [1_u64, 2, 3].map(u64::to_le_bytes).concat();
        assert_eq!(Tag::split(TAGGED | FLOORED, &above), None, "a floor above the request");
    }

    #[test]
    fn requests_are_remembered_from_the_floor_on() {
        let mut requests = Requests::default();
        requests.note(Some(tag(1, 1)), Sequence(10));
        requests.note(Some(tag(3, 1)), Sequence(11));
        requests.note(Some(tag(3, 1)), Sequence(12));
        assert!(requests.has(tag(1, 1)) && !requests.has(tag(2, 1)) && requests.has(tag(3, 1)));
        assert_eq!(requests.operation(tag(3, 1)), Some(Sequence(11)), "the first that carried it out");
        requests.note(Some(tag(5, 3)), Sequence(13));
        assert!(requests.has(tag(2, 1)), "below the floor: it has its answer");
        assert!(requests.has(tag(3, 1)) && !requests.has(tag(4, 3)) && requests.operation(tag(1, 1)).is_none());
        assert_eq!(requests.known(), BTreeMap::from([(7, (3, vec![3, 5]))]));
        // A late request with an older floor.
        requests.note(Some(tag(4, 1)), Sequence(14));
        assert_eq!(requests.known(), BTreeMap::from([(7, (3, vec![3, 4, 5]))]));
    }

    #[test]
    fn the_image_has_them_and_other_bytes_are_none() {
        let mut requests = Requests::default();
        requests.note(Some(tag(4, 2)), Sequence(10));
        requests.note(Some(tag(6, 2)), Sequence(11));
        let dirty = requests.take_dirty();
        assert!(requests.take_dirty().is_empty(), "the image has them");
        requests.dirty_again([7].into_iter());
        assert_eq!(requests.take_dirty(), dirty, "the batch was not written");
        let [(7, Some(bytes))] = dirty.as_slice() else { panic!("one mount: {dirty:?}") };
        let loaded = Requests::load(&[(7, bytes.clone())], Sequence(11)).expect("requests");
        assert_eq!((loaded.known(), loaded.operation(tag(6, 2))), (requests.known(), Some(Sequence(11))));
        for cut in 0..bytes.len() {
            let is_whole = cut > 8 && (cut - 8).is_multiple_of(16);
            assert_eq!(OfMount::from_bytes(&bytes[..cut], Sequence(11)).is_some(), is_whole, "{cut}");
        }
    }

    #[test]
    fn of_many_mounts_the_one_that_did_nothing_for_longest_is_forgotten() {
        let mut requests = Requests::default();
        for mount in 0..=to_u64(MOUNTS_MAX) {
            requests.note(Some(Tag { mount, request: 1, floor: 1 }), Sequence(if mount == 0 { 5000 } else { mount }));
        }
        let has = |mount| requests.has(Tag { mount, request: 1, floor: 1 });
        assert!(has(0) && !has(1) && has(2) && has(to_u64(MOUNTS_MAX)));
        assert_eq!(requests.mounts.len(), MOUNTS_MAX);
        let mut found: Vec<(u64, Vec<u8>)> =
            requests.take_dirty().into_iter().filter_map(|(mount, bytes)| Some((mount, bytes?))).collect();
        assert_eq!(Requests::load(&found, Sequence(5000)).expect("requests").known(), requests.known());
        found.push((5000, found[0].1.clone()));
        assert!(Requests::load(&found, Sequence(5000)).expect_err("too many").contains("1025 mounts"));
    }

    #[test]
    fn a_mount_does_not_run_far_ahead_of_its_floor() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.begin(), Some((1, 1)));
        for request in 2..=REQUESTS_MAX {
            assert_eq!(numbers.begin(), Some((request, 1)));
            numbers.end(request);
        }
        assert_eq!(numbers.begin(), None, "the first still waits");
        numbers.end(1);
        assert_eq!(numbers.begin(), Some((REQUESTS_MAX + 1, REQUESTS_MAX + 1)));
        assert_eq!(Tag::new(7, REQUESTS_MAX, 0), None, "too far");
    }
}
