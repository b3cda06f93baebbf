//! Gives back the memory that an idle daemon does not need.
//!
//! Nearly all of it are pages of the program itself. The start runs through most of the program, and the kernel maps sixteen pages
//! wherever one is needed, so that a daemon that waits has several megabytes mapped of which it needs a few hundred kilobytes. Without
//! this, the kernel unmaps them only when memory is short everywhere.

use std::ffi::{c_int, c_void};
use std::time::Duration;

use nix::libc;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{SysconfVar, sysconf};

/// The time between the start and the first look. It is later than what a daemon still does right after it is ready, and later than
/// what it does in whole intervals from then on.
const FIRST_LOOK: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(30);
/// A daemon that has computed for longer than this since the last look is in use. Its timers alone take a tenth of that.
const IDLE: Duration = Duration::from_millis(20);

/// Gives memory back after the start, and then whenever the daemon has been idle. Never returns.
pub(crate) async fn stay_small() -> ! {
    tokio::time::sleep(FIRST_LOOK).await;
    let mut before = None;
    loop {
        let now = processor_time();
        if before.is_none_or(|before| now.saturating_sub(before) < IDLE) {
            give_back();
        }
        before = Some(now);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What all threads of this process have computed so far.
fn processor_time() -> Duration {
    let microseconds = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or_default();
    let used = getrusage(UsageWho::RUSAGE_SELF);
    used.map_or(Duration::MAX, |used| {
        Duration::from_micros(microseconds(used.user_time()) + microseconds(used.system_time()))
    })
}

/// Returns freed memory to the kernel, and unmaps the pages of the program. Those that are needed again come from the page cache.
#[allow(unsafe_code)]
fn give_back() {
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
