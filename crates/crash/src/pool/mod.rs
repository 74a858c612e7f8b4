//! The targets of the pool layer: creation, boot number and clean mark, roots, growth.

mod boot;
mod create;
mod grow;
mod roots;

pub use boot::PoolBoot;
pub use create::PoolCreate;
pub use grow::PoolGrow;
pub use roots::PoolRoots;

use crate::target::Target;

/// The targets of the pool layer. Crates above add their own.
#[must_use]
pub fn pool_targets() -> Vec<Box<dyn Target>> {
    vec![Box::new(PoolCreate::default()), Box::new(PoolBoot), Box::new(PoolRoots), Box::new(PoolGrow)]
}
