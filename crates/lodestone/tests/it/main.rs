//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

mod damaged_pool;
mod doubtful_records;
mod engine_page;
mod one_error;
mod one_pool;
mod other_versions;
mod own_structure;
