//! Gives back the memory that an idle program does not need.
//!
//! Nearly all of it are pages of the program itself. The start runs through most of the program, and the kernel maps sixteen pages
//! wherever one is needed, so that a daemon that waits has several megabytes mapped of which it needs a few hundred kilobytes. Without
//! this, the kernel unmaps them only when memory is short everywhere.

use std::ffi::{c_int, c_void};

use nix::libc;
use nix::unistd::{SysconfVar, sysconf};

/// Returns freed memory to the kernel, and unmaps the pages of the program. Those that are needed again come from the page cache, which
/// takes some microseconds for sixteen of them.
#[allow(unsafe_code)]
pub fn trim() {
    // SAFETY: the function touches no memory that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
    // SAFETY: `unmap` follows the contract of dl_iterate_phdr(3) and ignores the pointer.
    unsafe {
        libc::dl_iterate_phdr(Some(unmap), std::ptr::null_mut());
    }
}

/// Unmaps what of the first object, the program, is never written. The result ends the iteration.
#[allow(unsafe_code)]
unsafe extern "C" fn unmap(object: *mut libc::dl_phdr_info, _size: usize, _data: *mut c_void) -> c_int {
    let Ok(Some(page)) = sysconf(SysconfVar::PAGE_SIZE) else {
        return 1;
    };
    // SAFETY: dl_iterate_phdr passes a valid object, whose headers stay as they are while it is loaded.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr, std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0) {
        let from = base + header.p_vaddr;
        let start = from - from % page.cast_unsigned();
        let length = from + header.p_memsz - start;
        // SAFETY: these pages are mapped from the file of the program, and nobody writes to them: the relocations of the program
        // are in segments that can be written. Whoever reads or runs one of them next gets the same content again.
        unsafe {
            libc::madvise(start as *mut c_void, length as usize, libc::MADV_DONTNEED);
        }
    }
    1
}
