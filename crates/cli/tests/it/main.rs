//! The tests of the public interface, one module for each topic. One program, as each is compiled and linked anew.

mod bench;
mod bench_index;
mod common;
mod crash;
mod db;
mod db_damaged;
mod db_restore;
mod db_top;
mod emulation;
mod fabric;
mod fs_loss;
mod fs_machines;
mod fs_mount;
mod fs_nodes;
mod help;
mod import;
mod kill;
mod kv;
mod kv_index;
mod log;
mod media;
mod media_fit;
mod media_page;
mod media_probe;
mod numa;
mod output_files;
mod pool;
#[path = "../../../fs/tests/volumes/ports.rs"]
mod ports;
mod readers;
mod sql;
mod stm;
mod txn;
