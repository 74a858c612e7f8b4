//! How long memory that is free stays with the process.
#![expect(unsafe_code, reason = "a function of mimalloc for which its crate has no safe one")]

use std::ffi::{c_int, c_long};

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// `mi_option_purge_delay` of mimalloc 3.
const PURGE_DELAY: c_int = 15;
/// That of mimalloc itself.
const DEFAULT_MS: c_long = 1000;

/// Lodestone's programs give it back at once, so its runs do. The other engines have the delay of the allocator.
/// `MIMALLOC_PURGE_DELAY` sets one for all.
pub(crate) fn stays(is_lodestone: bool) {
    // SAFETY: the function may be called at any moment, by any thread. An option that the environment sets stays.
    unsafe { mi_option_set_default(PURGE_DELAY, if is_lodestone { 0 } else { DEFAULT_MS }) };
}
