//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

mod common;
mod counts;
mod equivalence;
mod mistakes;
mod pool;
mod pool_check;
