//! Universally unique identifiers.

use std::fmt;
use std::str::FromStr;

/// A UUID: 16 bytes, in the order of its text.
///
/// ```
/// use lodestone_engine::Uuid;
///
/// let id: Uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8".parse()?;
/// assert_eq!(id, Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8));
/// assert_eq!(id.to_string(), "67e55044-10b1-426f-9247-bb680e5fe0c8");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid {
    bytes: [u8; 16],
}

impl Uuid {
    /// The UUID of these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self { bytes }
    }

    /// The UUID whose text has the digits of `number`.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self { bytes: number.to_be_bytes() }
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.bytes
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, byte) in self.bytes.iter().enumerate() {
            let hyphen = if matches!(number, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Reads hexadecimal digits, with the hyphens that `Display` writes or without any.
impl FromStr for Uuid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no UUID; write one like 67e55044-10b1-426f-9247-bb680e5fe0c8");
        let digits: String = text.split('-').collect();
        let is_digits = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let found =
            u128::from_str_radix(&digits, 16).ok().filter(|_| is_digits).map(Self::from_u128).ok_or_else(bad)?;
        let is_canonical = text.len() == 32 || text.eq_ignore_ascii_case(&found.to_string());
        if is_canonical { Ok(found) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_uuids_or_errors() {
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        for text in ["01234567-89AB-cdef-0123-456789abcdef", "0123456789abcdef0123456789abcdef"] {
            assert_eq!(text.parse(), Ok(id), "{text}");
        }
        for text in [
            "",
            "0123456789abcdef0123456789abcde",
            "+123456789abcdef0123456789abcdef",
            "0123456-789ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcdefa",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
