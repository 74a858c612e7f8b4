//! Numbers and bytes of messages, little-endian. Nothing that arrives is trusted: a reader returns `None` at the end.

use lodestone_width::{exact_u32, to_u64, to_usize};

/// Appends numbers and bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    /// Bytes with their length before them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(exact_u32(bytes.len())).raw(bytes)
    }
}

/// Takes them off the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes with their length before them, if that is at most `most`.
    pub(crate) fn bytes(&mut self, most: usize) -> Option<&'b [u8]> {
        let length = to_usize(self.u32()?);
        if length > most {
            return None;
        }
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    /// A count of things of at least `least` bytes each. More than the rest can hold is refused before it allocates.
    pub(crate) fn count(&mut self, least: usize) -> Option<usize> {
        let count = to_usize(self.u32()?);
        (to_u64(count).saturating_mul(to_u64(least)) <= to_u64(self.0.len())).then_some(count)
    }

    /// The end: whatever follows is an error.
    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
