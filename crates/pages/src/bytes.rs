//! Bytes that were written, by the part of the pool that they are in.

/// A sum for each part.
#[derive(Debug, Default)]
pub(crate) struct BytesByPart(Vec<u64>);

impl BytesByPart {
    pub fn add(&mut self, part: u16, bytes: u64) {
        let part = usize::from(part);
        if self.0.len() <= part {
            self.0.resize(part + 1, 0);
        }
        self.0[part] += bytes;
    }

    pub fn join(&mut self, other: &Self) {
        (0..).zip(&other.0).for_each(|(part, bytes)| self.add(part, *bytes));
    }

    pub fn of(&self, part: u16) -> u64 {
        self.0.get(usize::from(part)).copied().unwrap_or(0)
    }

    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }
}
