//! The opening of a collection: by a root of its name, or by a pointer that the user keeps. The types of its items are
//! compared.
//!
//! The kind of collection is the type of the header object, which the root compares. The types of keys and values are a
//! text in the header (the *signature*). It is written when the collection is first opened or made.

use lodestone_stm::{Error, PmBytes, PmObject, PmPtr, Result, Stm, Tx, TxResult};

/// A header object of a collection: all zero is an empty collection without a signature.
pub trait Header: PmObject {
    fn signature(&self) -> PmBytes;
    fn signature_mut(&mut self) -> &mut PmBytes;
}

/// The parts that all collections have alike: the signature in the header object, and a handle that is copied.
macro_rules! collection {
    ($name:ident<$($item:ident),+>, $header:ident) => {
        impl $crate::root::Header for $header {
            fn signature(&self) -> PmBytes {
                self.signature
            }

            fn signature_mut(&mut self) -> &mut PmBytes {
                &mut self.signature
            }
        }

        impl<$($item),+> Clone for $name<$($item),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($item),+> Copy for $name<$($item),+> {}

        impl<$($item),+> std::fmt::Debug for $name<$($item),+> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.header.addr()).finish()
            }
        }

        impl<$($item),+> $name<$($item),+> {
            /// Its header.
            #[must_use]
            pub fn header(&self) -> PmPtr<$header> {
                self.header
            }
        }
    };
}

/// A collection whose handle is the pointer to its header: how it is opened, and how it goes.
macro_rules! handle {
    ($name:ident<$($item:ident: $bound:ident),+>, $header:ident, $what:literal) => {
        impl<$($item: $bound),+> $name<$($item),+> {
            #[doc = concat!("The ", $what, " with the root `name`. It is made when there is none.")]
            ///
            /// # Errors
            /// As [`Stm::update`]. [`Error::RootType`](lodestone_stm::Error::RootType) when the root is something else,
            #[doc = concat!("or a ", $what, " of other types.")]
            pub fn open(stm: &Stm, name: &str) -> Result<Self> {
                Ok(Self::new(root::open(stm, name, &Self::signature())?))
            }

            #[doc = concat!("The ", $what, " with this header.")]
            ///
            /// # Errors
            /// As [`open`](Self::open).
            pub fn at(tx: &mut Tx<'_>, header: PmPtr<$header>) -> TxResult<Self> {
                root::check(tx, header, &Self::signature())?;
                Ok(Self::new(header))
            }

            fn new(header: PmPtr<$header>) -> Self {
                Self { header, kind: PhantomData }
            }

            #[doc = concat!("Frees everything in it, and the header. Not for a ", $what, " that was opened by name:")]
            /// its root would point to nothing.
            ///
            /// # Errors
            /// As [`Tx::free`].
            pub fn destroy(self, tx: &mut Tx<'_>) -> TxResult<()> {
                tx.nested(|tx| {
                    self.clear(tx)?;
                    root::destroy(tx, self.header)
                })
            }
        }
    };
}

pub(crate) use {collection, handle};

/// Opens the header named `name`, which is made when there is none. `signature` describes the program's types.
pub fn open<H: Header>(stm: &Stm, name: &str, signature: &str) -> Result<PmPtr<H>> {
    let header = stm.root_named::<H>(name)?;
    let found = stm.read(|tx| {
        let found = tx.read(header)?.signature();
        tx.read_bytes(found)
    })?;
    if found.is_empty() {
        stm.update(|tx| sign(tx, header, signature))?;
        return Ok(header);
    }
    compare(name, &found, signature)?;
    Ok(header)
}

/// Writes the signature unless there is one.
fn sign<H: Header>(tx: &mut Tx<'_>, header: PmPtr<H>, signature: &str) -> TxResult<()> {
    let found = tx.read(header)?.signature();
    if !found.is_empty() {
        return Ok(compare("", &tx.read_bytes(found)?, signature)?);
    }
    let text = tx.alloc_bytes(signature.as_bytes())?;
    *tx.write(header)?.signature_mut() = text;
    Ok(())
}

/// Makes a header that no object points to yet.
pub fn create<H: Header>(tx: &mut Tx<'_>, mut header: H, signature: &str) -> TxResult<PmPtr<H>> {
    // The change happens whole or not at all, even if the caller swallows its error. So do all changes of collections.
    tx.nested(|tx| {
        *header.signature_mut() = tx.alloc_bytes(signature.as_bytes())?;
        tx.alloc(header)
    })
}

/// Compares the signature of the header at `header`.
pub fn check<H: Header>(tx: &mut Tx<'_>, header: PmPtr<H>, signature: &str) -> TxResult<()> {
    let found = tx.read(header)?.signature();
    let found = tx.read_bytes(found)?;
    Ok(compare("", &found, signature)?)
}

/// Frees signature and header.
pub fn destroy<H: Header>(tx: &mut Tx<'_>, header: PmPtr<H>) -> TxResult<()> {
    let signature = tx.read(header)?.signature();
    tx.free_bytes(signature)?;
    tx.free(header)
}

fn compare(name: &str, found: &[u8], signature: &str) -> Result<()> {
    if found == signature.as_bytes() {
        return Ok(());
    }
    let found = String::from_utf8_lossy(found).into_owned();
    Err(Error::RootType { root: name.into(), found, expected: signature.into() })
}
