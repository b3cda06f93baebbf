//! Settings of the C library's allocator. Both functions do nothing unless the C library is glibc.

#![allow(unsafe_code)] // two calls of the C library

/// Takes memory from the system in few large steps: each step waits for the thread that maps the weights meanwhile, and
/// logits that come and go with every token would each time be new pages.
pub fn take_large_steps() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the calls take no pointers and lock the allocator themselves.
    unsafe {
        const STEP: libc::c_int = 64 << 20;
        libc::mallopt(libc::M_TOP_PAD, STEP);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 2 * STEP);
        libc::mallopt(libc::M_MMAP_THRESHOLD, STEP);
    }
}

/// Hands what was freed back to the system; glibc would keep it for later.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: as above.
    unsafe {
        libc::malloc_trim(0);
    }
}
