//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

mod budget;
mod fields;
mod long_scan;
mod opacity;
mod own_errors;
mod refusals;
mod threads;
mod transactions;
mod waiting;
