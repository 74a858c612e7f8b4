//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

mod fit;
mod verify;
