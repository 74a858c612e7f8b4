//! The few functions of SQLite's C interface that a benchmark needs, as `sqlite3.h` of version 3.40 declares them.

use std::ffi::{c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};

/// Known only to SQLite.
#[repr(C)]
pub(super) struct Connection {
    bytes: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Known only to SQLite.
#[repr(C)]
pub(super) struct Statement {
    bytes: [u8; 0],
    marker: PhantomData<(*mut u8, PhantomPinned)>,
}

pub(super) const OK: c_int = 0;
pub(super) const BUSY: c_int = 5;
pub(super) const ROW: c_int = 100;
pub(super) const DONE: c_int = 101;
/// Open for reading and writing, made if missing, used by one thread at a time.
pub(super) const OPEN_FLAGS: c_int = 0x2 | 0x4 | 0x8000;

#[expect(unsafe_code, reason = "declarations of a C library")]
// SAFETY: the signatures are those of sqlite3.h. Callers keep the rules written there.
unsafe extern "C" {
    pub(super) fn sqlite3_open_v2(
        name: *const c_char,
        connection: *mut *mut Connection,
        flags: c_int,
        vfs: *const c_char,
    ) -> c_int;
    pub(super) fn sqlite3_close_v2(connection: *mut Connection) -> c_int;
    pub(super) fn sqlite3_errmsg(connection: *mut Connection) -> *const c_char;
    pub(super) fn sqlite3_busy_timeout(connection: *mut Connection, milliseconds: c_int) -> c_int;
    pub(super) fn sqlite3_exec(
        connection: *mut Connection,
        sql: *const c_char,
        callback: *const c_void,
        argument: *mut c_void,
        message: *mut *mut c_char,
    ) -> c_int;
    pub(super) fn sqlite3_prepare_v2(
        connection: *mut Connection,
        sql: *const c_char,
        bytes: c_int,
        statement: *mut *mut Statement,
        tail: *mut *const c_char,
    ) -> c_int;
    pub(super) fn sqlite3_finalize(statement: *mut Statement) -> c_int;
    pub(super) fn sqlite3_step(statement: *mut Statement) -> c_int;
    pub(super) fn sqlite3_reset(statement: *mut Statement) -> c_int;
    pub(super) fn sqlite3_bind_int64(statement: *mut Statement, place: c_int, value: i64) -> c_int;
    pub(super) fn sqlite3_bind_text(
        statement: *mut Statement,
        place: c_int,
        text: *const c_char,
        bytes: c_int,
        destructor: *const c_void,
    ) -> c_int;
    pub(super) fn sqlite3_bind_blob(
        statement: *mut Statement,
        place: c_int,
        blob: *const c_void,
        bytes: c_int,
        destructor: *const c_void,
    ) -> c_int;
    pub(super) fn sqlite3_column_int64(statement: *mut Statement, column: c_int) -> i64;
    pub(super) fn sqlite3_column_text(statement: *mut Statement, column: c_int) -> *const c_char;
    pub(super) fn sqlite3_column_blob(statement: *mut Statement, column: c_int) -> *const c_void;
    pub(super) fn sqlite3_column_bytes(statement: *mut Statement, column: c_int) -> c_int;
    pub(super) fn sqlite3_changes(connection: *mut Connection) -> c_int;
}
