//! Byte strings: objects of any length up to a limit, written once.
//!
//! A byte string has one slot, since it never changes. To change the bytes, a transaction allocates another string,
//! frees this one and changes the pointer. [`PmBytes`] is the pointer. It holds the length and can be a field.

use lodestone_pmem::PmAddr;
use lodestone_width::{exact_u32, to_u64, to_usize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::commit::not_allocated;
use crate::context::Change;
use crate::error::{Error, TxResult};
use crate::object::PmField;
use crate::tx::Tx;
use lodestone_cells::{PAYLOAD_BYTES_MAX, Shape};

/// The place and the length of a byte string. It is a field of a persistent object. The default is the empty string,
/// which takes no room.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_stm::{PmBytes, pm_object};
///
/// #[pm_object]
/// struct Person {
///     name: PmBytes,
/// }
///
/// let person = stm.root::<Person>()?;
/// stm.update(|tx| {
///     let name = tx.alloc_bytes(b"Ada")?;
///     tx.write(person)?.name = name;
///     Ok(())
/// })?;
/// let name = stm.read(|tx| {
///     let name = tx.read(person)?.name;
///     tx.read_bytes(name)
/// })?;
/// assert_eq!(name, b"Ada");
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PmBytes {
    at: PmAddr,
    bytes: u64,
}

impl PmBytes {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it is the empty string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Address of its cell, null when it is empty.
    #[must_use]
    pub fn addr(&self) -> PmAddr {
        self.at
    }

    fn shape(&self) -> TxResult<Shape> {
        let bad = Error::BadPointer { at: self.at, finding: "a byte string of an impossible length" };
        if self.bytes > PAYLOAD_BYTES_MAX { Err(bad.into()) } else { Ok(Shape::single(exact_u32(self.bytes))) }
    }
}

impl PmField for PmBytes {
    fn layout() -> String {
        "bytes".into()
    }
}

impl Tx<'_> {
    /// A new byte string.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc); [`Error::TooLarge`] above 4 MiB.
    pub fn alloc_bytes(&mut self, bytes: &[u8]) -> TxResult<PmBytes> {
        self.changeable("an allocation")?;
        if bytes.is_empty() {
            return Ok(PmBytes::default());
        }
        if to_u64(bytes.len()) > PAYLOAD_BYTES_MAX {
            return Err(Error::TooLarge { bytes: to_u64(bytes.len()), limit_bytes: PAYLOAD_BYTES_MAX }.into());
        }
        let shape = Shape::single(exact_u32(bytes.len()));
        let number = self.alloc_cell(shape, exact_u32(bytes.len()).div_ceil(8))?;
        self.context.payload(number).as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        Ok(PmBytes { at: self.context.writes[number].at, bytes: to_u64(bytes.len()) })
    }

    /// The bytes of a byte string, in a new vector.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_bytes(&mut self, string: PmBytes) -> TxResult<Vec<u8>> {
        let mut out = Vec::new();
        self.read_bytes_into(string, &mut out)?;
        Ok(out)
    }

    /// As [`read_bytes`](Self::read_bytes), into a buffer whose content is replaced.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_bytes_into(&mut self, string: PmBytes, out: &mut Vec<u8>) -> TxResult<()> {
        out.clear();
        if string.is_empty() {
            return Ok(());
        }
        let shape = string.shape()?;
        let bytes = to_usize(string.bytes);
        if !self.context.writes.is_empty()
            && let Some(number) = self.context.find_write(string.at)
        {
            self.refuse_if_doomed()?;
            let entry = self.context.writes[number];
            if entry.change != Change::Alloc || entry.words != exact_u32(string.bytes).div_ceil(8) {
                return Err(not_allocated(string.at).into());
            }
            out.extend_from_slice(&self.context.payload(number).as_bytes()[..bytes]);
            return Ok(());
        }
        out.resize(bytes, 0);
        let words = exact_u32(string.bytes).div_ceil(8);
        if self.copy_bytes_at_once(string.at, shape, words, out) {
            return Ok(());
        }
        let read = self.read_slow(string.at, shape, words, out);
        if read.is_err() {
            out.clear();
        }
        read.map(|_| ())
    }

    /// Frees a byte string.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn free_bytes(&mut self, string: PmBytes) -> TxResult<()> {
        if string.is_empty() {
            return self.changeable("a free");
        }
        let shape = string.shape()?;
        self.free_cell(string.at, shape, exact_u32(string.bytes).div_ceil(8))
    }
}
