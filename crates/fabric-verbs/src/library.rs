//! `libibverbs.so.1`, opened at run time. It stays open until the program ends: its drivers start threads.

use std::ffi::{CString, c_void};
use std::sync::OnceLock;

use crate::abi::Functions;

const LIBRARY: &str = "libibverbs.so.1";

/// The functions of the library, or why there are none.
#[expect(unsafe_code, reason = "a library is opened at run time")]
pub fn functions() -> Result<Functions, String> {
    static FOUND: OnceLock<Result<Functions, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let name = CString::new(LIBRARY).map_err(|error| error.to_string())?;
        // SAFETY: `name` is a string of C. Initialisers of the library run, as for a linked one.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if library.is_null() {
            return Err(format!("{LIBRARY} does not open; install it (libibverbs1, ibverbs-providers)"));
        }
        let find = |symbol: &str| -> *mut c_void {
            let Ok(symbol) = CString::new(symbol) else { return std::ptr::null_mut() };
            // SAFETY: `library` is open, `symbol` is a string of C.
            unsafe { libc::dlsym(library, symbol.as_ptr()) }
        };
        // SAFETY: `find` looks into the library that is opened above.
        let found = unsafe { Functions::find(find) };
        found.ok_or_else(|| format!("{LIBRARY} lacks one of {:?}; install a newer one", Functions::NAMES))
    });
    found.clone()
}
