//! The functions of `pmemobj/maps.h`.

use std::ffi::{c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};

/// Known only to the C side.
#[repr(C)]
pub(crate) struct Pool {
    bytes: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

pub(crate) type Visit = extern "C" fn(*mut c_void, u64, u64);

#[expect(unsafe_code, reason = "declarations of our own C file")]
// SAFETY: the signatures are those of pmemobj/maps.h. Each call may come from any thread (the C side locks), except
// create, close and visit, which run alone.
unsafe extern "C" {
    pub(crate) fn peer_create(path: *const c_char, bytes: u64, buckets: u64) -> *mut Pool;
    pub(crate) fn peer_close(pool: *mut Pool);
    pub(crate) fn peer_error() -> *const c_char;
    pub(crate) fn peer_hash_get(pool: *mut Pool, key: u64, value: *mut u64) -> c_int;
    pub(crate) fn peer_hash_insert(pool: *mut Pool, key: u64, value: u64) -> c_int;
    pub(crate) fn peer_hash_remove(pool: *mut Pool, key: u64) -> c_int;
    pub(crate) fn peer_hash_visit(pool: *mut Pool, visit: Visit, context: *mut c_void);
    pub(crate) fn peer_tree_get(pool: *mut Pool, key: u64, value: *mut u64) -> c_int;
    pub(crate) fn peer_tree_insert(pool: *mut Pool, key: u64, value: u64) -> c_int;
    pub(crate) fn peer_tree_remove(pool: *mut Pool, key: u64) -> c_int;
    pub(crate) fn peer_tree_visit(pool: *mut Pool, visit: Visit, context: *mut c_void);
    pub(crate) fn peer_list_get(pool: *mut Pool, key: u64, value: *mut u64) -> c_int;
    pub(crate) fn peer_list_insert(pool: *mut Pool, key: u64, value: u64) -> c_int;
    pub(crate) fn peer_list_remove(pool: *mut Pool, key: u64) -> c_int;
    pub(crate) fn peer_list_visit(pool: *mut Pool, visit: Visit, context: *mut c_void);
    pub(crate) fn peer_btree_get(pool: *mut Pool, key: u64, value: *mut u64) -> c_int;
    pub(crate) fn peer_btree_insert(pool: *mut Pool, key: u64, value: u64) -> c_int;
    pub(crate) fn peer_btree_remove(pool: *mut Pool, key: u64) -> c_int;
    pub(crate) fn peer_btree_visit(pool: *mut Pool, visit: Visit, context: *mut c_void);
    pub(crate) fn peer_record_read(pool: *mut Pool, key: u64, value: *mut u8, capacity: u64) -> i64;
    pub(crate) fn peer_record_put(pool: *mut Pool, key: u64, value: *const u8, length: u64) -> c_int;
    pub(crate) fn peer_record_remove(pool: *mut Pool, key: u64) -> c_int;
    pub(crate) fn peer_record_scan(pool: *mut Pool, start: u64, count: u64, sum: *mut u8) -> u64;
}
