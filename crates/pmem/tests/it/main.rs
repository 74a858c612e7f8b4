//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

mod forged;
mod hostile;
mod pool_copies;
mod pool_journal;
mod pool_lives;
mod pool_nodes;
mod pool_repairs;
