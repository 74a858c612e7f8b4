//! Links the system's RocksDB, SQLite and libpmemobj (Debian: librocksdb-dev, libsqlite3-dev, libpmemobj-dev;
//! `setup.sh` installs them), and compiles the structures on libpmemobj, which are written in C. The sources of the
//! libraries are not compiled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=pmemobj/maps.c");
    println!("cargo::rerun-if-changed=pmemobj/maps.h");
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if let Ok(folder) = std::env::var("ROCKSDB_LIB_DIR") {
        println!("cargo::rustc-link-search=native={folder}");
    }
    // Variables that longjmp may have clobbered are not used after an aborted transaction.
    cc::Build::new().file("pmemobj/maps.c").opt_level(2).flag("-Wno-clobbered").compile("lodestone_peer_maps");
    println!("cargo::rustc-link-lib=dylib=rocksdb");
    println!("cargo::rustc-link-lib=dylib=pmemobj");
    println!("cargo::rustc-link-lib=dylib=sqlite3");
}
