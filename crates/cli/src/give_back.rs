//! Memory that is free goes back to the system at once.
//!
//! Mimalloc keeps pages of memory that are free for some seconds, and looks at them only when it frees others. So a
//! database that does not change keeps what its open needed. To give a page back is a call of the system, and the next
//! use of the memory another one.

#![expect(unsafe_code, reason = "a function of mimalloc for which its crate has no safe one")]

use std::ffi::{c_int, c_long};

// The functions are in it.
use mimalloc as _;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// `mi_option_purge_delay` of mimalloc 3: so many milliseconds after it is free, memory goes back.
const PURGE_DELAY: c_int = 15;

/// Sets that, unless the variable `MIMALLOC_PURGE_DELAY` says another time.
pub(crate) fn at_once() {
    // SAFETY: the function may be called at any moment, by any thread. An option that the allocator does not know is
    // ignored, and one that the environment sets stays.
    unsafe { mi_option_set_default(PURGE_DELAY, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    /// Milliseconds until free memory goes back.
    fn delay_ms() -> i64 {
        // SAFETY: the function only reads.
        unsafe { mi_option_get(PURGE_DELAY) }
    }

    #[global_allocator]
    static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

    #[test]
    fn the_number_of_the_option_is_that_of_the_delay() {
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
            // The environment has set it, and it stays.
            return;
        }
        assert_eq!(delay_ms(), 1000, "the delay of mimalloc 3, if nothing sets another one");
        at_once();
        assert_eq!(delay_ms(), 0);
    }
}
