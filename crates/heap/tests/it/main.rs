//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

mod budget;
mod claim;
mod damage;
mod growth;
mod hostile;
mod model;
mod placement;
mod threads;
