//! Settings of the C library's allocator. Both functions do nothing unless the C library is glibc.

#![allow(unsafe_code)] // two calls of the C library

/// Makes the allocator grow in a few large steps and keep freed memory. Each step waits for the thread that maps the weights,
/// and without this setting the logits of every token would need new pages.
pub fn configure_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the calls take no pointers and lock the allocator themselves.
    unsafe {
        const STEP: libc::c_int = 64 << 20;
        libc::mallopt(libc::M_TOP_PAD, STEP);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * STEP);
        libc::mallopt(libc::M_MMAP_THRESHOLD, STEP);
    }
}

/// Returns freed memory to the system, which glibc would otherwise keep.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: as above.
    unsafe {
        libc::malloc_trim(0);
    }
}
