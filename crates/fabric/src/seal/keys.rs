//! Secrets of groups, and the keys that are derived from them.

use std::collections::BTreeMap;
use std::fmt;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::SEAL_BYTES;
use crate::error::{Error, Result};
use crate::ids::{GroupId, NodeId, Term, ViewNumber};

/// Keys that are kept: of the terms and views of a while.
const KEYS_MAX: usize = 64;

/// A secret of a group. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret with these bytes, which were drawn at random.
    #[must_use]
    pub const fn of(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new secret.
    ///
    /// # Errors
    /// [`Error::Sealing`] if the system has no random numbers.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 32];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
            .map_err(|_| Error::Sealing { what: "the system has no random numbers" })?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The fields of a packet that name its key.
pub(crate) type KeyPlace = (GroupId, Term, ViewNumber);

/// The secrets that were handed to a node.
#[derive(Clone, Debug, Default)]
pub struct KeyRing {
    secrets: BTreeMap<(GroupId, ViewNumber), Secret>,
    /// Secrets of one term and view each.
    exact: BTreeMap<KeyPlace, Secret>,
    /// The oldest term and view of each group that are not retired.
    oldest: BTreeMap<GroupId, (Term, ViewNumber)>,
}

impl KeyRing {
    /// The secret of `group` for views from `from` on, until a later one. When a member is removed the others are
    /// handed a new one.
    pub fn hand(&mut self, group: GroupId, from: ViewNumber, secret: Secret) {
        self.secrets.insert((group, from), secret);
        self.forget_handed(group);
    }

    /// The secret of `group` for one term and one view, as keepers tell it to the members and the sender.
    pub fn hand_exact(&mut self, group: GroupId, term: Term, view: ViewNumber, secret: Secret) {
        if !self.is_retired((group, term, view)) {
            self.exact.insert((group, term, view), secret);
        }
    }

    /// Forgets secrets of `group` of terms before `term`, and of views before `view`: a node that was removed had some
    /// of them. From then on they are refused, also if they are handed again.
    pub fn retire(&mut self, group: GroupId, term: Term, view: ViewNumber) {
        self.exact.retain(|place, _| place.0 != group || (place.1 >= term && place.2 >= view));
        let oldest = self.oldest.entry(group).or_insert((term, view));
        *oldest = (oldest.0.max(term), oldest.1.max(view));
        self.forget_handed(group);
    }

    fn is_retired(&self, (group, term, view): KeyPlace) -> bool {
        self.oldest.get(&group).is_some_and(|oldest| term < oldest.0 || view < oldest.1)
    }

    /// Forgets the handed secrets that are of retired views alone. The newest one that was handed for the oldest view,
    /// or before it, still serves that view.
    fn forget_handed(&mut self, group: GroupId) {
        let Some((_, view)) = self.oldest.get(&group).copied() else { return };
        let serves = self.secrets.range((group, ViewNumber(0))..=(group, view)).next_back().map(|found| *found.0);
        self.secrets.retain(|place, _| place.0 != group || serves.is_none_or(|serves| *place >= serves));
    }

    fn secret(&self, (group, term, view): KeyPlace) -> Option<&Secret> {
        if self.is_retired((group, term, view)) {
            return None;
        }
        let shared = || self.secrets.range((group, ViewNumber(0))..=(group, view)).next_back().map(|found| found.1);
        self.exact.get(&(group, term, view)).or_else(shared)
    }

    fn derive(&self, place: KeyPlace) -> Option<Key> {
        let (group, term, view) = place;
        let secret = self.secret(place)?;
        let parts = [group.0.to_le_bytes(), term.0.to_le_bytes(), view.0.to_le_bytes()];
        let info: [&[u8]; 4] = [b"lodestone fabric", &parts[0], &parts[1], &parts[2]];
        let pseudorandom = Salt::new(HKDF_SHA256, &[]).extract(&secret.0);
        let key = UnboundKey::from(pseudorandom.expand(&info, &AES_128_GCM).ok()?);
        Some(Key(LessSafeKey::new(key)))
    }
}

/// Source, life and counter: never twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonce {
    pub(super) source: NodeId,
    pub(super) life: u32,
    pub(super) counter: u64,
}

/// A key of a term and a view.
#[derive(Clone)]
pub(super) struct Key(LessSafeKey);

impl Key {
    /// Encrypts the payload, and returns the tag over it and the head.
    pub(super) fn seal(&self, nonce: Nonce, head: &[u8], payload: &mut [u8]) -> Option<[u8; SEAL_BYTES]> {
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce.bytes());
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(head), payload).ok()?;
        tag.as_ref().try_into().ok()
    }

    /// Decrypts payload and tag in place. Whether head and payload are as they were sealed.
    pub(super) fn open(&self, nonce: Nonce, head: &[u8], payload: &mut [u8]) -> bool {
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce.bytes());
        self.0.open_in_place(nonce, Aad::from(head), payload).is_ok()
    }
}

/// Keys that were derived.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<KeyPlace, Key>);

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} keys)", self.0.len())
    }
}

impl Cache {
    /// Forgets keys as [`KeyRing::retire`] forgets secrets.
    pub(super) fn retire(&mut self, group: GroupId, term: Term, view: ViewNumber) {
        self.0.retain(|place, _| place.0 != group || (place.1 >= term && place.2 >= view));
    }

    /// The key of a packet to send.
    pub(super) fn key(&mut self, ring: &KeyRing, place: KeyPlace) -> Option<Key> {
        let key = self.look(ring, place)?;
        self.keep(place, key.clone());
        Some(key)
    }

    /// The key of a packet that may be anybody's: nothing is kept.
    pub(super) fn look(&self, ring: &KeyRing, place: KeyPlace) -> Option<Key> {
        self.0.get(&place).cloned().or_else(|| ring.derive(place))
    }

    /// Keeps a key that verified a packet. The oldest terms go first.
    pub(super) fn keep(&mut self, place: KeyPlace, key: Key) {
        if self.0.contains_key(&place) {
            return;
        }
        if self.0.len() >= KEYS_MAX {
            let oldest = self.0.keys().min_by_key(|place| (place.1, place.2)).copied();
            oldest.iter().for_each(|oldest| {
                self.0.remove(oldest);
            });
        }
        self.0.insert(place, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(1);

    fn secret(keys: &KeyRing, view: u32) -> Option<&Secret> {
        keys.secret((GROUP, Term(1), ViewNumber(view)))
    }

    #[test]
    fn handed_secrets_of_retired_views_are_forgotten() {
        let (first, second, other) = (Secret::of([1; 32]), Secret::of([2; 32]), Secret::of([3; 32]));
        let mut keys = KeyRing::default();
        keys.hand(GROUP, ViewNumber(0), first.clone());
        keys.hand(GROUP, ViewNumber(5), second.clone());
        keys.hand(GroupId(2), ViewNumber(0), other.clone());
        assert_eq!((secret(&keys, 4), secret(&keys, 6)), (Some(&first), Some(&second)));

        keys.retire(GROUP, Term(1), ViewNumber(7));
        assert!(!keys.secrets.contains_key(&(GROUP, ViewNumber(0))), "it was of retired views alone");
        assert_eq!((secret(&keys, 4), secret(&keys, 6)), (None, None), "retired");
        assert_eq!((secret(&keys, 7), secret(&keys, 8)), (Some(&second), Some(&second)), "handed before, still in use");
        assert_eq!(keys.secret((GROUP, Term(0), ViewNumber(8))), None, "a term before");
        assert_eq!(keys.secret((GroupId(2), Term(0), ViewNumber(0))), Some(&other), "another group keeps its own");
    }

    #[test]
    fn retired_secrets_are_refused_when_they_are_handed_again() {
        let (first, second) = (Secret::of([1; 32]), Secret::of([2; 32]));
        let mut keys = KeyRing::default();
        keys.hand(GROUP, ViewNumber(5), second.clone());
        keys.retire(GROUP, Term(1), ViewNumber(7));
        keys.retire(GROUP, Term(0), ViewNumber(0));
        keys.hand(GROUP, ViewNumber(0), first.clone());
        keys.hand_exact(GROUP, Term(1), ViewNumber(6), first);
        assert_eq!((secret(&keys, 4), secret(&keys, 6), secret(&keys, 7)), (None, None, Some(&second)));
        assert_eq!((keys.secrets.len(), keys.exact.len()), (1, 0), "nothing old is kept");
    }
}
