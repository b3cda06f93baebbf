//! Modes and times of files.
//!
//! Landlock does not know chmod(2) and utimensat(2), and a filter of system calls cannot see which file a path leads to. So
//! these calls stop in the kernel and the supervisor makes them in the command's place (seccomp_unotify(2)), on files that lie
//! below a writable folder, and with the file it has opened itself: what the command changes meanwhile changes nothing.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmodat, utimensat};
use nix::sys::time::TimeSpec;

/// The longest path, with its end (PATH_MAX of <limits.h>).
const PATH_BYTES: usize = 4096;

#[cfg(target_arch = "x86_64")]
const CALLS: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_utimensat,
    libc::SYS_chmod,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const CALLS: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_utimensat,
];

/// Installs the filter in the calling thread and gives back the descriptor from which its calls are read.
#[allow(unsafe_code)]
pub(crate) fn listen() -> Result<OwnedFd, Errno> {
    let program = filter();
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::E2BIG)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program lives during the call, and the kernel copies it.
    unsafe {
        let descriptor = Errno::result(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        ))?;
        Ok(OwnedFd::from_raw_fd(
            i32::try_from(descriptor).map_err(|_| Errno::EOVERFLOW)?,
        ))
    }
}

/// Asks the supervisor about [`CALLS`] and allows the rest. The other architecture of this processor is not looked at: the
/// filters that come after this one end the process there.
fn filter() -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    // seccomp_data begins with the number of the call.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for call in CALLS {
        program.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: *call as u32,
        });
        program.push(statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_USER_NOTIF,
        ));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program
}

// The requests of <linux/seccomp.h>.
nix::ioctl_readwrite!(receive, b'!', 0, libc::seccomp_notif);
nix::ioctl_readwrite!(answer, b'!', 1, libc::seccomp_notif_resp);
nix::ioctl_write_ptr!(is_valid, b'!', 2, u64);

/// Answers one waiting call. `roots` are the writable folders, without links in their paths.
#[allow(unsafe_code)]
pub(crate) fn serve(listener: &OwnedFd, roots: &[PathBuf]) {
    // SAFETY: plain data, of which all bytes may be zero.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure that it is given.
    if unsafe { receive(listener.as_raw_fd(), &raw mut call) }.is_err() {
        return; // the caller is dead
    }
    let mut reply = libc::seccomp_notif_resp {
        id: call.id,
        val: 0,
        error: 0,
        flags: 0,
    };
    if let Err(errno) = Call::read(&call).and_then(|change| {
        change.apply(roots, || {
            // SAFETY: the id lives during the call. The process numbers that were used are those of the caller if it still waits.
            unsafe { is_valid(listener.as_raw_fd(), &raw const call.id) }.is_ok()
        })
    }) {
        reply.error = -(errno as i32);
    }
    // SAFETY: the structure lives during the call. It fails when the caller is dead.
    let _ = unsafe { answer(listener.as_raw_fd(), &raw mut reply) };
}

enum Change {
    Mode(Mode),
    /// Access and modification.
    Times([TimeSpec; 2]),
}

struct Call {
    file: File,
    change: Change,
}

impl Call {
    /// Opens the file that a call is about, as its caller would find it, without following it into anything but a path.
    fn read(call: &libc::seccomp_notif) -> Result<Call, Errno> {
        let caller = Caller(call.pid);
        let argument = |at: usize| call.data.args.get(at).copied().unwrap_or_default();
        let (mode, here) = (|at| Change::Mode(mode(argument(at))), libc::AT_FDCWD as u64);
        let (file, change) = match i64::from(call.data.nr) {
            libc::SYS_fchmod => (caller.descriptor(argument(0))?, mode(1)),
            libc::SYS_fchmodat => (caller.path(argument(0), argument(1), 0)?, mode(2)),
            libc::SYS_fchmodat2 => (caller.path(argument(0), argument(1), argument(3))?, mode(2)),
            libc::SYS_utimensat => {
                let file = match argument(1) {
                    0 => caller.descriptor(argument(0))?,
                    path => caller.path(argument(0), path, argument(3))?,
                };
                (file, Change::Times(caller.times(argument(2), 1)?))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (caller.path(here, argument(0), 0)?, mode(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => (
                caller.path(here, argument(0), 0)?,
                Change::Times(caller.seconds(argument(1))?),
            ),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => (
                caller.path(here, argument(0), 0)?,
                Change::Times(caller.times(argument(1), 1_000)?),
            ),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => (
                caller.path(argument(0), argument(1), 0)?,
                Change::Times(caller.times(argument(2), 1_000)?),
            ),
            _ => return Err(Errno::ENOSYS),
        };
        Ok(Call { file, change })
    }

    fn apply(self, roots: &[PathBuf], still_waits: impl FnOnce() -> bool) -> Result<(), Errno> {
        let descriptor = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let place = std::fs::read_link(&descriptor).map_err(errno)?;
        if !roots.iter().any(|root| place.starts_with(root)) {
            return Err(Errno::EPERM);
        }
        if !still_waits() {
            return Err(Errno::ESRCH);
        }
        let descriptor = Path::new(&descriptor);
        match self.change {
            Change::Mode(mode) => fchmodat(
                nix::fcntl::AT_FDCWD,
                descriptor,
                mode,
                FchmodatFlags::FollowSymlink,
            ),
            Change::Times([access, modification]) => utimensat(
                nix::fcntl::AT_FDCWD,
                descriptor,
                &access,
                &modification,
                UtimensatFlags::FollowSymlink,
            ),
        }
    }
}

/// Without the bits that would let a file run with its owner's rights.
fn mode(argument: u64) -> Mode {
    Mode::from_bits_truncate((argument & 0o1777) as libc::mode_t)
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// The process that made the call, which stands still.
struct Caller(u32);

impl Caller {
    fn descriptor(&self, number: u64) -> Result<File, Errno> {
        self.open(&format!("fd/{}", number as u32), true)
    }

    /// The file at a path; relative to a directory of the caller.
    fn path(&self, directory: u64, address: u64, flags: u64) -> Result<File, Errno> {
        let path = self.text(address)?;
        let flags = flags as libc::c_int;
        if path.as_os_str().is_empty() {
            return match flags & libc::AT_EMPTY_PATH {
                0 => Err(Errno::ENOENT),
                _ => self.descriptor(directory),
            };
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        if let Ok(own) = path.strip_prefix("/proc/self") {
            // `self` would be the supervisor.
            return self.open(&own.to_string_lossy(), follow);
        }
        let from = match directory as libc::c_int {
            _ if path.is_absolute() => "root".to_owned(),
            libc::AT_FDCWD => "cwd".to_owned(),
            number => format!("fd/{number}"),
        };
        let relative: PathBuf = path
            .components()
            .filter(|part| *part != Component::RootDir)
            .collect();
        self.open(
            &format!("{from}/{}", relative.to_str().ok_or(Errno::EILSEQ)?),
            follow,
        )
    }

    fn open(&self, below: &str, follow: bool) -> Result<File, Errno> {
        let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        flags.set(OFlag::O_NOFOLLOW, !follow);
        let path = format!("/proc/{}/{below}", self.0);
        Ok(File::from(open(path.as_str(), flags, Mode::empty())?))
    }

    fn memory(&self, address: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let memory = File::open(format!("/proc/{}/mem", self.0)).map_err(errno)?;
        memory.read_at(bytes, address).map_err(|_| Errno::EFAULT)
    }

    fn text(&self, address: u64) -> Result<PathBuf, Errno> {
        let mut bytes = vec![0; PATH_BYTES];
        // A page at a time: the text may end just before memory that cannot be read.
        let first = PATH_BYTES - (address as usize % PATH_BYTES);
        let (head, tail) = bytes.split_at_mut(first);
        let mut count = self.memory(address, head)?;
        if !head.contains(&0) && count == first {
            count += self.memory(address + first as u64, tail).unwrap_or_default();
        }
        bytes.truncate(count);
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Errno::ENAMETOOLONG)?;
        bytes.truncate(end);
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    fn words<const N: usize>(&self, address: u64) -> Result<[i64; N], Errno> {
        let mut bytes = vec![0; N * 8];
        if self.memory(address, &mut bytes)? != bytes.len() {
            return Err(Errno::EFAULT);
        }
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = i64::from_ne_bytes(bytes.try_into().map_err(|_| Errno::EFAULT)?);
        }
        Ok(words)
    }

    /// Two times, of seconds and a fraction that counts `unit` nanoseconds; none is now.
    fn times(&self, address: u64, unit: i64) -> Result<[TimeSpec; 2], Errno> {
        if address == 0 {
            return Ok([TimeSpec::UTIME_NOW; 2]);
        }
        let [access, access_part, modification, modification_part] = self.words(address)?;
        let part = |part: i64| part.checked_mul(unit).ok_or(Errno::EINVAL);
        Ok([
            TimeSpec::new(access, part(access_part)?),
            TimeSpec::new(modification, part(modification_part)?),
        ])
    }

    #[cfg(target_arch = "x86_64")]
    fn seconds(&self, address: u64) -> Result<[TimeSpec; 2], Errno> {
        if address == 0 {
            return Ok([TimeSpec::UTIME_NOW; 2]);
        }
        let [access, modification] = self.words(address)?;
        Ok([TimeSpec::new(access, 0), TimeSpec::new(modification, 0)])
    }
}
