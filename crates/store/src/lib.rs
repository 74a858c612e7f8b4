//! The one owner of the content of a pool: its heap, and objects with names.
//!
//! - [`Store`] opens the heap of a pool and the catalog in it. Maps, indexes and transactional memories are objects in
//!   a store.
//! - [`Object`] is an opened object: its place, and the claim that excludes a second owner.
//! - [`Kind`] describes a type of object. Each kind registers once. Checks, drops and tools ask the registry.
//!
//! Why one owner: a heap keeps in DRAM which blocks are free. A second heap on the same pool would allocate the same
//! blocks again, and each would destroy the other's data. The same holds for two openings of one index.
//!
//! Why names are in a separate catalog and not in the pool's header: there can be any number of them, and a name can be
//! dropped together with its object. An object and its name are created in one action, so nothing leaks between them.
//!
//! Cost: creating and renaming take one action of the heap. A drop takes two actions for every 61 blocks of the object.
//! An open reads two lines for every seven names, and each name's entry.
//!
//! Files: `layout` (bytes), `catalog` (names in DRAM), `store` (opening), `names` (create, open, rename), `discard`
//! (drop), `object` (claims), `kind` (the registry), `examine` (check and repair), `salvage` (repair that accepts
//! loss), `adopt` (objects whose names are lost).

#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod adopt;
mod catalog;
mod discard;
mod error;
mod examine;
mod kind;
mod layout;
mod names;
mod object;
mod salvage;
mod store;

pub use adopt::Adopted;
pub use discard::Force;
pub use error::{Error, Result, committed};
pub use examine::{Examined, Finding, StoreReport, severity_name};
pub use kind::{
    Acknowledge, Contents, Flaw, KeyForm, Kind, KindCode, KindError, Kinds, Lost, LostKeys, Member, Records,
    Registered, VisitLost, VisitRecord,
};
pub use layout::NAME_BYTES_MAX;
pub use object::{InUse, Object};
pub use salvage::{Foreseen, LossReport, REPAIR_NAME, Rebuilt, Unrepaired};
pub use store::{Named, Store, StoreOptions, StoreRecovery};
