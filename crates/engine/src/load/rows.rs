//! Rows as bytes in one block of memory: a load has millions of them, and two blocks for each would cost more than the
//! rest.

use lodestone_pages::row_bytes;
use lodestone_width::exact_u32;

/// A row among the bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    key_bytes: u32,
    payload_bytes: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct RowBuffer {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl RowBuffer {
    pub fn push(&mut self, key: &[u8], payload: &[u8]) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
        self.places.push(Place { at, key_bytes: exact_u32(key.len()), payload_bytes: exact_u32(payload.len()) });
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<Place>()
    }

    pub fn key(&self, number: usize) -> &[u8] {
        self.key_at(self.places[number])
    }

    /// The key of the last row.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.places.last().map(|place| self.key_at(*place))
    }

    fn key_at(&self, place: Place) -> &[u8] {
        &self.bytes[place.at..place.at + lodestone_width::to_usize(place.key_bytes)]
    }

    /// Key and payload of a row.
    pub fn row(&self, number: usize) -> (&[u8], &[u8]) {
        let place = self.places[number];
        let end = lodestone_width::to_usize(place.key_bytes + place.payload_bytes);
        self.bytes[place.at..place.at + end].split_at(lodestone_width::to_usize(place.key_bytes))
    }

    /// All rows from number `from` on.
    pub fn rows(&self, from: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        (from..self.len()).map(|number| self.row(number))
    }

    /// The bytes of each row in an image, from number `from` on.
    pub fn lengths(&self, from: usize) -> impl Iterator<Item = usize> {
        self.rows(from).map(|(key, payload)| row_bytes(key, payload))
    }

    /// Sorts the rows by their keys.
    pub fn sort(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.sort_unstable_by(|one, other| self.key_at(*one).cmp(self.key_at(*other)));
        self.places = places;
    }

    /// A key that two rows have, which are sorted.
    pub fn duplicate(&self) -> Option<&[u8]> {
        let pairs = self.places.windows(2);
        pairs
            .map(|pair| (self.key_at(pair[0]), self.key_at(pair[1])))
            .find(|(one, other)| one == other)
            .map(|(key, _)| key)
    }

    /// Forgets the first `count` rows, which were added first.
    pub fn forget(&mut self, count: usize) {
        let from = self.places.get(count).map_or(self.bytes.len(), |place| place.at);
        self.bytes.drain(..from);
        self.places.drain(..count);
        self.places.iter_mut().for_each(|place| place.at -= from);
    }

    /// Forgets all rows, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }
}
