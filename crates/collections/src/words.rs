//! Objects made of words: the storage of nodes, pages and values.
//!
//! A collection is generic over keys and values, but an object of the transactional memory has one Rust type. So every
//! node is an object of a fixed number of words, and the collection interprets them. Small ones come in five sizes,
//! chosen so that a slot (header included) ends at the end of a line. [`lodestone_stm`] describes the slots of a cell.
//!
//! Invariant: a place keeps the size that it was allocated with. Code that stores its address also knows its size.

use lodestone_stm::{
    CheckedBy, FromBytes, Immutable, IntoBytes, KnownLayout, Layout, PmAddr, PmObject, PmPtr, Tx, TxResult, TypeVisitor,
};

/// An object of `N` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Words<const N: usize>(pub [u64; N]);

impl<const N: usize> PmObject for Words<N> {
    const NAME: &'static str = "lodestone.Words";
    const VERSION: u32 = 1;

    fn describe(layout: &mut Layout) {
        layout.field::<[u64; N]>("words", 0);
    }

    fn visit_field_types(_: &mut TypeVisitor<'_>) {}

    fn checked_by() -> &'static CheckedBy {
        static CHECKED_BY: CheckedBy = CheckedBy::new();
        &CHECKED_BY
    }
}

/// Sizes of small objects in words: with the slot's header they take 1, 2, 4, 8 and 16 lines, the version word
/// included.
pub const SIZES: [usize; 5] = [5, 13, 29, 61, 125];
/// Most words of a small object.
pub const WORDS_MAX: usize = SIZES[SIZES.len() - 1];

/// Runs `$body` with `$n` as the smallest size that holds `$len` words.
macro_rules! sized {
    ($len:expr, $n:ident => $body:expr) => {
        match $len {
            0..=5 => {
                const $n: usize = 5;
                $body
            }
            6..=13 => {
                const $n: usize = 13;
                $body
            }
            14..=29 => {
                const $n: usize = 29;
                $body
            }
            30..=61 => {
                const $n: usize = 61;
                $body
            }
            _ => {
                const $n: usize = 125;
                assert!($len <= $n, "a small object has at most 125 words");
                $body
            }
        }
    };
}

/// A new object that holds `words`.
///
/// # Panics
/// When there are more than [`WORDS_MAX`].
pub fn alloc(tx: &mut Tx<'_>, words: &[u64]) -> TxResult<PmAddr> {
    sized!(words.len(), N => {
        let mut object = Words([0; N]);
        object.0[..words.len()].copy_from_slice(words);
        Ok(tx.alloc(object)?.addr())
    })
}

/// Reads the object at `at` of `out.len()` words into `out`.
pub fn read(tx: &mut Tx<'_>, at: PmAddr, out: &mut [u64]) -> TxResult<()> {
    sized!(out.len(), N => {
        let object = tx.read(PmPtr::<Words<N>>::new(at))?;
        out.copy_from_slice(&object.0[..out.len()]);
        Ok(())
    })
}

/// A working copy of the object at `at` of `len` words.
pub fn write<'x>(tx: &'x mut Tx<'_>, at: PmAddr, len: usize) -> TxResult<&'x mut [u64]> {
    sized!(len, N => Ok(&mut tx.write(PmPtr::<Words<N>>::new(at))?.0[..len]))
}

/// Frees the object at `at` of `len` words.
pub fn free(tx: &mut Tx<'_>, at: PmAddr, len: usize) -> TxResult<()> {
    sized!(len, N => tx.free(PmPtr::<Words<N>>::new(at)))
}
