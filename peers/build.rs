//! Links the system's RocksDB (Debian: librocksdb-dev); nothing is compiled from its sources.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if let Ok(folder) = std::env::var("ROCKSDB_LIB_DIR") {
        println!("cargo::rustc-link-search=native={folder}");
    }
    println!("cargo::rustc-link-lib=dylib=rocksdb");
}
