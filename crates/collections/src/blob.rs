//! Byte strings of any length.
//!
//! Up to [`CHUNK_BYTES`] a blob is one byte string of the transactional memory. Longer ones are cut into chunks, and
//! the blob points to a byte string that is the table of the chunks. A blob is written once. Replace it to change it.
//!
//! Cost: one object written for each chunk, and one for the table. The transaction still makes one fence.

use lodestone_pmem::LINE_BYTES;
use lodestone_stm::{FromBytes, Immutable, IntoBytes, KnownLayout, PmBytes, PmField, Tx, TxResult};
use lodestone_width::to_u64;
use zerocopy::FromZeros;

use crate::damaged;

/// Bytes of a chunk: its cell, slot headers included, takes exactly 64 KiB.
pub const CHUNK_BYTES: usize = (64 << 10) - 64;

/// Bytes of an entry of the table of chunks.
const ENTRY_BYTES: u64 = to_u64(size_of::<PmBytes>());

/// A byte string of any length, as a field of a persistent object. The default is the empty string, which takes no
/// room.
///
/// ```
/// # use lodestone_pmem::{DomainChoice, PoolOptions};
/// # use lodestone_store::Store;
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
/// # let store = Store::create(folder.path().join("a.pool"), &options)?;
/// # use lodestone_stm::Stm;
/// # let stm = Stm::open(&store)?;
/// use lodestone_collections::PmBlob;
/// use lodestone_stm::pm_object;
///
/// #[pm_object]
/// struct Page {
///     text: PmBlob,
/// }
///
/// let page = stm.root::<Page>()?;
/// stm.update(|tx| {
///     let text = PmBlob::store(tx, &[7; 100_000])?;
///     let old = std::mem::replace(&mut tx.write(page)?.text, text);
///     old.free(tx)
/// })?;
/// let text = stm.read(|tx| Ok(tx.read(page)?.text))?;
/// assert_eq!(stm.read(|tx| text.load(tx))?.len(), 100_000);
/// # Ok::<(), lodestone_stm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PmBlob {
    /// The bytes, or the table of chunks.
    content: PmBytes,
    /// Length of the blob.
    bytes: u64,
}

impl PmField for PmBlob {
    fn layout() -> String {
        "blob".into()
    }
}

impl PmBlob {
    /// A new blob.
    ///
    /// # Errors
    /// As [`Tx::alloc_bytes`]. Too large above 16 GiB.
    pub fn store(tx: &mut Tx<'_>, bytes: &[u8]) -> TxResult<Self> {
        if bytes.len() <= CHUNK_BYTES {
            return Ok(Self { content: tx.alloc_bytes(bytes)?, bytes: to_u64(bytes.len()) });
        }
        tx.nested(|tx| {
            let table: Vec<PmBytes> =
                bytes.chunks(CHUNK_BYTES).map(|chunk| tx.alloc_bytes(chunk)).collect::<TxResult<_>>()?;
            Ok(Self { content: tx.alloc_bytes(table.as_bytes())?, bytes: to_u64(bytes.len()) })
        })
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it is the empty blob.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The place of its first object. Length and address together determine the blob.
    pub(crate) fn content_addr(&self) -> lodestone_stm::PmAddr {
        self.content.addr()
    }

    /// An error when its parts contradict each other, or it is longer than the pool.
    fn compare(&self, tx: &Tx<'_>) -> TxResult<()> {
        let content = if self.is_cut() { self.bytes.div_ceil(to_u64(CHUNK_BYTES)) * ENTRY_BYTES } else { self.bytes };
        if self.content.len() != content || self.bytes / LINE_BYTES > tx.objects_max() {
            return Err(damaged(self.content.addr(), "a byte string of an impossible length"));
        }
        Ok(())
    }

    /// Number of its objects.
    pub(crate) fn objects(&self, tx: &Tx<'_>) -> TxResult<u64> {
        self.compare(tx)?;
        Ok(self.count())
    }

    fn count(&self) -> u64 {
        if self.is_cut() { 1 + self.bytes.div_ceil(to_u64(CHUNK_BYTES)) } else { u64::from(!self.is_empty()) }
    }

    fn is_cut(&self) -> bool {
        self.bytes > to_u64(CHUNK_BYTES)
    }

    fn chunks(&self, tx: &mut Tx<'_>) -> TxResult<Vec<PmBytes>> {
        let bytes = tx.read_bytes(self.content)?;
        let mut table = vec![PmBytes::new_zeroed(); bytes.len() / size_of::<PmBytes>()];
        table.as_mut_slice().as_mut_bytes().copy_from_slice(&bytes[..bytes.len() / 16 * 16]);
        let mut rest = self.bytes;
        for chunk in &table {
            if chunk.len() != rest.min(to_u64(CHUNK_BYTES)) {
                return Err(damaged(self.content.addr(), "a chunk of a byte string of an impossible length"));
            }
            rest -= chunk.len();
        }
        Ok(table)
    }

    /// All its bytes.
    ///
    /// # Errors
    /// As [`Tx::read_bytes`].
    pub fn load(&self, tx: &mut Tx<'_>) -> TxResult<Vec<u8>> {
        self.compare(tx)?;
        if !self.is_cut() {
            return tx.read_bytes(self.content);
        }
        let (mut all, mut chunk) = (Vec::new(), Vec::new());
        for part in self.chunks(tx)? {
            tx.read_bytes_into(part, &mut chunk)?;
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    /// Frees it.
    ///
    /// # Errors
    /// As [`Tx::free_bytes`].
    pub fn free(self, tx: &mut Tx<'_>) -> TxResult<()> {
        tx.nested(|tx| {
            self.compare(tx)?;
            if self.is_cut() {
                for part in self.chunks(tx)? {
                    tx.free_bytes(part)?;
                }
            }
            tx.free_bytes(self.content)
        })
    }
}
