//! Identities of pools and parts: 16 random bytes from the kernel, printed as RFC 9562 version 4.

use std::fmt;
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};

/// Identity of a pool (shared by all its parts) or of one part.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.pool");
/// # let options = PoolOptions { domain: DomainChoice::Process, size_bytes: 16 << 20, ..PoolOptions::default() };
/// let first = Pool::create(&path, &options)?.info().set_uuid;
/// let again = Pool::open(&path, &options)?.info().set_uuid;
/// assert_eq!(first, again, "the identity stays");
/// # Ok::<(), lodestone_pmem::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Uuid(pub(crate) [u8; 16]);

impl Uuid {
    /// A fresh identity from the kernel's random source.
    pub(crate) fn random(path: &Path) -> Result<Self> {
        let mut bytes = [0_u8; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
                .map_err(|e| Error::io(path, "asking the kernel for random bytes", "try again", e))?;
        }
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        Ok(Self(bytes))
    }

    /// The 16 bytes as they are on the medium.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_differ_and_print_in_the_usual_form() -> Result<()> {
        let (first, second) = (Uuid::random(Path::new("x"))?, Uuid::random(Path::new("x"))?);
        assert_ne!(first, second);
        let text = first.to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(text.as_bytes()[14], b'4');
        assert_eq!(Uuid([0xAB; 16]).to_string(), "abababab-abab-abab-abab-abababababab");
        Ok(())
    }
}
