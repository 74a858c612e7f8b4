//! Numbers and byte strings, one after the other: the form of operations and of rows of the image.

use lodestone_width::{exact_u32, to_usize};

/// Appends values.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A number in one byte if it is below 128, else in up to ten.
    pub(crate) fn small(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(lodestone_width::low_u8(value) | 0x80);
            value >>= 7;
        }
        self.u8(lodestone_width::low_u8(value))
    }

    /// Length and bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.small(u64::from(exact_u32(bytes.len())));
        self.0.extend(bytes);
        self
    }
}

/// Takes values off the front. `None` when the bytes end too early.
#[derive(Debug)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|bytes| bytes[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn small(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = u64::from(self.u8()?);
            let part = byte & 0x7F;
            // Beyond 64 bits nothing is taken: each number has one form.
            if part.leading_zeros() < shift || (byte == 0 && shift > 0) {
                return None;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn bytes(&mut self) -> Option<&'b [u8]> {
        let count = self.small()?;
        if count > u64::from(u32::MAX) {
            return None;
        }
        self.take(to_usize(count))
    }

    /// Whether all was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_each_has_one_form() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut writer = Writer::default();
            writer.small(value);
            assert_eq!(Reader(&writer.0).small(), Some(value));
        }
        assert_eq!(Reader(&[0x80, 0]).small(), None, "a longer form of zero");
        assert_eq!(Reader(&[0xFF; 10]).small(), None, "more than 64 bits");
        assert_eq!(Reader(&[5, 1]).bytes(), None, "too few bytes");
    }
}
