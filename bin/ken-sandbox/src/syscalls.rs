//! Which system calls the command may make: a seccomp filter.
//!
//! Landlock knows files, TCP ports and signals. The filter closes what it does not know: every socket that reaches beyond the
//! sandbox, namespaces, tracing, kernel interfaces with a record of escapes (io_uring, bpf, userfaultfd, keyrings), and
//! whatever a newer kernel adds. A call that is not listed fails with ENOSYS, as on an older kernel that does not have it.

use std::collections::BTreeMap;
use std::mem::offset_of;

use libc::{c_long, *};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use crate::cli::Sockets;
use crate::{metadata, network};

/// Calls that are allowed whatever their arguments are.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files. Landlock checks the paths, the supervisor changes modes and times (metadata.rs).
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_openat, SYS_close, SYS_close_range, SYS_lseek, SYS_fstat,
    SYS_newfstatat, SYS_statx, SYS_statfs, SYS_fstatfs, SYS_getdents64, SYS_faccessat, SYS_faccessat2,
    SYS_readlinkat, SYS_mkdirat, SYS_mknodat, SYS_unlinkat, SYS_symlinkat, SYS_linkat, SYS_renameat,
    SYS_renameat2, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_sync_file_range,
    SYS_syncfs, SYS_copy_file_range, SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice, SYS_fadvise64,
    SYS_readahead, SYS_flock, SYS_fcntl, SYS_dup, SYS_dup3, SYS_pipe2, SYS_chdir, SYS_fchdir, SYS_getcwd,
    SYS_umask, SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr, SYS_flistxattr,
    SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch, SYS_fchmod, SYS_fchmodat, SYS_fchmodat2,
    SYS_utimensat,
    // Memory.
    SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_msync, SYS_mincore, SYS_mlock,
    SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall, SYS_membarrier, SYS_memfd_create, SYS_pkey_alloc,
    SYS_pkey_free, SYS_pkey_mprotect, SYS_get_mempolicy, SYS_rseq,
    // Processes and threads; clone, prlimit64, setpriority and personality are below. Landlock checks signals.
    SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid, SYS_kill, SYS_tkill,
    SYS_tgkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_open, SYS_pidfd_send_signal, SYS_getpid,
    SYS_getppid, SYS_gettid, SYS_getpgid, SYS_setpgid, SYS_getsid, SYS_setsid, SYS_getuid, SYS_geteuid,
    SYS_getgid, SYS_getegid, SYS_getresuid, SYS_getresgid, SYS_getgroups, SYS_setuid, SYS_setgid,
    SYS_setreuid, SYS_setregid, SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_set_tid_address,
    SYS_set_robust_list, SYS_get_robust_list, SYS_prctl, SYS_getrlimit, SYS_setrlimit, SYS_getrusage,
    SYS_times, SYS_getpriority, SYS_sched_yield, SYS_sched_getaffinity, SYS_sched_getparam,
    SYS_sched_getscheduler, SYS_sched_getattr, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval, SYS_getcpu, SYS_capget, SYS_uname, SYS_sysinfo, SYS_getrandom,
    SYS_restart_syscall, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigpending, SYS_rt_sigsuspend,
    SYS_rt_sigtimedwait, SYS_rt_sigreturn, SYS_sigaltstack, SYS_signalfd4,
    // Waiting and time.
    SYS_futex, SYS_futex_waitv, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_epoll_pwait2, SYS_eventfd2, SYS_timerfd_create, SYS_timerfd_settime, SYS_timerfd_gettime,
    SYS_timer_create, SYS_timer_settime, SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_delete,
    SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_getitimer,
    SYS_setitimer,
    // What a socket pair needs; sockets themselves are below.
    SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_recvmmsg, SYS_sendmmsg, SYS_shutdown,
    SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt,
];

/// Older calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[c_long] = &[
    SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_mkdir, SYS_rmdir, SYS_unlink,
    SYS_symlink, SYS_link, SYS_rename, SYS_mknod, SYS_getdents, SYS_dup2, SYS_pipe, SYS_poll, SYS_select,
    SYS_epoll_create, SYS_epoll_wait, SYS_epoll_ctl_old, SYS_eventfd, SYS_signalfd, SYS_inotify_init,
    SYS_fork, SYS_vfork, SYS_getpgrp, SYS_pause, SYS_alarm, SYS_time, SYS_arch_prctl, SYS_chmod, SYS_utime,
    SYS_utimes, SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Refused with EPERM rather than ENOSYS: programs that try them report "Operation not permitted", which is what it is.
/// Extended attributes are not on this list: after ENOSYS `cp -p` goes on without them, after EPERM it fails.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    SYS_ptrace, SYS_process_vm_readv,
    SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd, SYS_kcmp, SYS_mount, SYS_umount2,
    SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_fsconfig,
    SYS_fspick, SYS_mount_setattr, SYS_unshare, SYS_setns, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_add_key, SYS_request_key, SYS_keyctl,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff,
    SYS_acct, SYS_quotactl, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
    SYS_sethostname, SYS_setdomainname, SYS_syslog, SYS_open_by_handle_at, SYS_name_to_handle_at, SYS_fchown,
    SYS_fchownat, SYS_capset, SYS_ioprio_set, SYS_migrate_pages, SYS_move_pages, SYS_mbind, SYS_set_mempolicy,
    SYS_fanotify_init, SYS_vhangup,
];

/// Calls for sockets that name an address of this side, or wait for the other one. Nothing that runs in the sandbox serves
/// others, so with a network that has others most of them are refused.
const LOCAL: &[c_long] = &[SYS_bind, SYS_connect, SYS_listen, SYS_accept, SYS_accept4];

/// Calls that make a file, with the places of the flags, if there are any, and of the mode among the arguments. openat2 hides
/// them behind a pointer, so it stays unknown, and callers fall back to openat.
#[cfg(target_arch = "x86_64")]
const SET_ID: [(c_long, Option<usize>, usize); 5] = [
    (SYS_open, Some(1), 2),
    (SYS_openat, Some(2), 3),
    (SYS_creat, None, 1),
    (SYS_mknod, None, 1),
    (SYS_mknodat, None, 2),
];
#[cfg(not(target_arch = "x86_64"))]
const SET_ID: [(c_long, Option<usize>, usize); 2] = [(SYS_openat, Some(2), 3), (SYS_mknodat, None, 2)];

/// All namespaces that clone(2) can make. `CLONE_NEWTIME` is not among its flags.
const NAMESPACES: u64 =
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET) as u64;

/// The action for calls of [`REFUSED`].
const REFUSE: u32 = SECCOMP_RET_ERRNO | EPERM as u32;
/// The instructions at the beginning of a program of seccompiler: three check the architecture, one loads the number of the call.
const PROLOGUE: usize = 4;

/// The filter. It does not allow seccomp(2): a command that could add a listener of its own could answer in the supervisor's
/// place. A call with rules for its arguments is decided by the program that seccompiler makes of the rules. All others are
/// decided by their number before that, in ranges, because the kernel converts, compiles and tries out each instruction.
pub(crate) fn filter(sockets: Sockets) -> Result<BpfProgram, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    program(sockets, arch).map_err(|error| error.to_string())
}

fn program(sockets: Sockets, arch: TargetArch) -> Result<BpfProgram, seccompiler::BackendError> {
    let rules: BTreeMap<_, _> = with_arguments(sockets)?.into_iter().collect();
    let mut by_number = by_number(sockets);
    by_number.retain(|call, _| !rules.contains_key(call));
    let unknown = SeccompAction::Errno(ENOSYS as u32);
    let rules = SeccompFilter::new(rules, unknown, SeccompAction::Allow, arch)?;
    let mut program = BpfProgram::try_from(rules)?;
    let mut first: BpfProgram = SET_ID.into_iter().flat_map(without_set_id).collect();
    if sockets.are_supervised() {
        first.extend(unaddressed_send());
    }
    first.extend(ranges(&by_number));
    program.splice(PROLOGUE..PROLOGUE, first);
    Ok(program)
}

/// The actions for calls whose arguments do not matter.
fn by_number(sockets: Sockets) -> BTreeMap<c_long, u32> {
    let notified = if sockets.are_supervised() { network::CALLS } else { &[] };
    let refused: &[c_long] = match sockets {
        Sockets::None => &[SYS_socket, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4],
        Sockets::Loopback => &[],
        Sockets::Named => &[SYS_bind, SYS_sendmmsg, SYS_listen, SYS_accept, SYS_accept4],
        Sockets::Public => &[SYS_sendmmsg, SYS_listen, SYS_accept, SYS_accept4],
    };
    // A later list decides about a call that is in several.
    let lists = [
        (ALLOWED, SECCOMP_RET_ALLOW),
        (ALLOWED_HERE, SECCOMP_RET_ALLOW),
        (LOCAL, SECCOMP_RET_ALLOW),
        (metadata::CALLS, SECCOMP_RET_USER_NOTIF),
        (notified, SECCOMP_RET_USER_NOTIF),
        (REFUSED, REFUSE),
        (refused, REFUSE),
    ];
    let each = lists.into_iter().flat_map(|(calls, action)| calls.iter().map(move |call| (*call, action)));
    each.collect()
}

/// Ends with the action for numbers that have one, and goes on after these instructions for the others.
fn ranges(by_number: &BTreeMap<c_long, u32>) -> BpfProgram {
    let mut ranges: Vec<(u32, u32, u32)> = Vec::new();
    for (&call, &action) in by_number {
        let call = call as u32;
        match ranges.last_mut() {
            Some((_, last, same)) if *same == action && *last + 1 == call => *last = call,
            _ => ranges.push((call, call, action)),
        }
    }
    let mut program = BpfProgram::new();
    for (first, last, action) in ranges {
        if first == last {
            program.push(jump(BPF_JEQ, first, 0, 1))
        } else {
            program.extend([jump(BPF_JGE, last + 1, 2, 0), jump(BPF_JGE, first, 0, 1)])
        }
        program.push(end(action));
    }
    program
}

/// Allows sendto(2) without an address, which is send(2): it reaches only where the socket is connected already, as write(2)
/// does. With an address the supervisor is asked. The pointer to the address is compared in two halves.
fn unaddressed_send() -> [sock_filter; 7] {
    let address = offset_of!(seccomp_data, args) + 4 * size_of::<u64>();
    let load = |offset: usize| statement(BPF_LD | BPF_W | BPF_ABS, offset as u32);
    [
        jump(BPF_JEQ, SYS_sendto as u32, 0, 6),
        load(address),
        jump(BPF_JEQ, 0, 0, 3),
        load(address + size_of::<u32>()),
        jump(BPF_JEQ, 0, 0, 1),
        end(SECCOMP_RET_ALLOW),
        end(SECCOMP_RET_USER_NOTIF),
    ]
}

/// Refuses to make a file with the set-user-ID or set-group-ID bit, and goes on after these instructions otherwise. Without
/// `O_CREAT` the argument for the mode means nothing.
fn without_set_id((call, flags, mode): (c_long, Option<usize>, usize)) -> BpfProgram {
    // The lower half of an argument: modes and flags have 32 bits.
    let half = if cfg!(target_endian = "big") { size_of::<u32>() } else { 0 };
    let place = |argument: usize| offset_of!(seccomp_data, args) + argument * size_of::<u64>() + half;
    let load = |offset: usize| statement(BPF_LD | BPF_W | BPF_ABS, offset as u32);
    // O_TMPFILE without O_DIRECTORY, which is one of its bits.
    let makes = (O_CREAT | O_TMPFILE & !O_DIRECTORY).cast_unsigned();
    let mut checks = vec![load(place(mode)), jump(BPF_JSET, S_ISUID | S_ISGID, 0, 0)];
    if let Some(flags) = flags {
        checks.extend([load(place(flags)), jump(BPF_JSET, makes, 0, 0)]);
    }
    checks.push(end(REFUSE));
    // What does not hold leads to the number of the call, which is loaded again for what follows.
    let count = checks.len();
    for (at, check) in
        checks.iter_mut().enumerate().filter(|(_, check)| u32::from(check.code) == BPF_JMP | BPF_JSET | BPF_K)
    {
        check.jf = (count - at - 1) as u8;
    }
    let mut program = vec![jump(BPF_JEQ, call as u32, 0, count as u8)];
    program.extend(checks);
    program.push(load(offset_of!(seccomp_data, nr)));
    program
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `jt` instructions if the comparison of the loaded value with `value` holds, else `jf`.
fn jump(comparison: u32, value: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { jt, jf, ..statement(BPF_JMP | comparison | BPF_K, value) }
}

fn end(action: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, action)
}

type Rules = Vec<(c_long, Vec<SeccompRule>)>;

/// Calls that are allowed only with certain arguments.
fn with_arguments(sockets: Sockets) -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let is = |argument, value: i64| condition(argument, Eq, value as u64);
    let mut rules = vec![
        // No namespace. clone3 hides its flags behind a pointer, so it stays unknown, and callers fall back to clone.
        (SYS_clone, vec![rule([condition(0, MaskedEq(NAMESPACES), 0)?])?]),
        // No characters typed into somebody's terminal.
        (SYS_ioctl, vec![rule([condition(1, Ne, TIOCSTI)?, condition(1, Ne, TIOCLINUX)?])?]),
        // A pair of connected sockets, but not of datagrams: those can be sent to any address, also to one in the file system.
        (
            SYS_socketpair,
            vec![
                rule([is(0, AF_UNIX.into())?, condition(1, MaskedEq(0xf), SOCK_STREAM as u64)?])?,
                rule([is(0, AF_UNIX.into())?, condition(1, MaskedEq(0xf), SOCK_SEQPACKET as u64)?])?,
            ],
        ),
        // Only for the calling process: with these a command could starve other processes of the same user.
        (SYS_prlimit64, vec![rule([is(0, 0)?])?]),
        (SYS_setpriority, vec![rule([is(0, 0)?, is(1, 0)?])?]),
        (SYS_sched_setaffinity, vec![rule([is(0, 0)?])?]),
        (SYS_sched_setscheduler, vec![rule([is(0, 0)?])?]),
        (SYS_sched_setparam, vec![rule([is(0, 0)?])?]),
        (SYS_sched_setattr, vec![rule([is(0, 0)?])?]),
        // Only to set the usual execution domain, and to ask for the current one.
        (SYS_personality, vec![rule([is(0, 0)?])?, rule([is(0, 0xffff_ffff)?])?]),
    ];
    if sockets != Sockets::None {
        // TCP and UDP only: other protocols take addresses in ways that are not checked.
        let mut sockets = Vec::new();
        for family in [AF_INET, AF_INET6] {
            for (kind, protocol) in [(SOCK_STREAM, IPPROTO_TCP), (SOCK_DGRAM, IPPROTO_UDP)] {
                for protocol in [0, protocol] {
                    let kind = condition(1, MaskedEq(0xf), kind as u64)?;
                    sockets.push(rule([is(0, family.into())?, kind, is(2, protocol.into())?])?);
                }
            }
        }
        rules.push((SYS_socket, sockets));
    }
    if sockets.are_supervised() {
        // No route by way of another address: source routes, routing headers, and flow labels, which carry the same options.
        let level_is = |level: i32| is(1, level.into());
        let other = |argument: u8, value: i32| condition(argument, Ne, value as u64);
        let options = [
            rule([other(1, IPPROTO_IP)?, other(1, IPPROTO_IPV6)?])?,
            rule([level_is(IPPROTO_IP)?, other(2, IP_OPTIONS)?])?,
            rule([
                level_is(IPPROTO_IPV6)?,
                other(2, IPV6_RTHDR)?,
                other(2, IPV6_2292PKTOPTIONS)?,
                other(2, IPV6_FLOWLABEL_MGR)?,
            ])?,
        ];
        rules.push((SYS_setsockopt, options.into()));
    }
    Ok(rules)
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(conditions.into())
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

    use super::*;

    /// The action for a call that is not listed.
    const UNKNOWN: u32 = SECCOMP_RET_ERRNO | ENOSYS as u32;
    /// No rule allows these, but where it names only what is refused.
    const REFUSED_ARGUMENTS: [u64; 6] = [0x7777_7777; 6];

    /// What the kernel does with a program (Documentation/networking/filter.rst), as far as filters here use it.
    fn run(program: &[sock_filter], arch: u32, call: c_long, arguments: [u64; 6]) -> u32 {
        let mut data = vec![0; size_of::<seccomp_data>()];
        data[..4].copy_from_slice(&(call as u32).to_ne_bytes());
        data[4..8].copy_from_slice(&arch.to_ne_bytes());
        for (place, argument) in data[16..].chunks_exact_mut(8).zip(arguments) {
            place.copy_from_slice(&argument.to_ne_bytes());
        }
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            at += 1;
            let holds = match u32::from(code) & !BPF_JMP {
                BPF_JEQ => value == k,
                BPF_JGE => value >= k,
                BPF_JGT => value > k,
                BPF_JSET => value & k != 0,
                _ => false,
            };
            match u32::from(code) {
                code if code == BPF_RET | BPF_K => return k,
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    let place = k as usize;
                    value = u32::from_ne_bytes(data[place..place + 4].try_into().unwrap());
                }
                code if code == BPF_ALU | BPF_AND | BPF_K => value &= k,
                code if code == BPF_JMP | BPF_JA => at += k as usize,
                code if code & 7 == BPF_JMP => at += usize::from(if holds { jt } else { jf }),
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn each_call_has_the_action_of_its_list() {
        // The constants of <linux/audit.h>.
        let arch = match std::env::consts::ARCH {
            "x86_64" => 0xc000_003e,
            "aarch64" => 0xc000_00b7,
            other => panic!("{other}"),
        };
        for sockets in [Sockets::None, Sockets::Loopback, Sockets::Named, Sockets::Public] {
            let program = filter(sockets).unwrap();
            let with_arguments: Vec<c_long> = with_arguments(sockets).unwrap().iter().map(|(call, _)| *call).collect();
            let notified =
                |call| metadata::CALLS.contains(&call) || sockets.are_supervised() && network::CALLS.contains(&call);
            for call in 0..600 {
                let by_sockets = match sockets {
                    Sockets::None => call == SYS_socket || LOCAL.contains(&call),
                    Sockets::Loopback => false,
                    Sockets::Named => call == SYS_sendmmsg || LOCAL.contains(&call) && call != SYS_connect,
                    Sockets::Public => {
                        call == SYS_sendmmsg || LOCAL.contains(&call) && ![SYS_connect, SYS_bind].contains(&call)
                    }
                };
                let makes_files = SET_ID.iter().any(|(makes, ..)| *makes == call);
                let refused = by_sockets || REFUSED.contains(&call);
                let allowed = ALLOWED.contains(&call) || ALLOWED_HERE.contains(&call) || LOCAL.contains(&call);
                let action = match call {
                    call if with_arguments.contains(&call) => UNKNOWN,
                    _ if refused || makes_files => REFUSE,
                    call if notified(call) => SECCOMP_RET_USER_NOTIF,
                    _ if allowed => SECCOMP_RET_ALLOW,
                    _ => UNKNOWN,
                };
                let arguments = if makes_files {
                    [!0; 6]
                } else if call == SYS_ioctl {
                    [0, TIOCSTI, 0, 0, 0, 0]
                } else if call == SYS_setsockopt {
                    [0, IPPROTO_IP as u64, IP_OPTIONS as u64, 0, 0, 0]
                } else {
                    REFUSED_ARGUMENTS
                };
                assert_eq!(run(&program, arch, call, arguments), action, "call {call} with {sockets:?}");
                // The numbers of x32, and another architecture.
                assert_eq!(run(&program, arch, call | 0x4000_0000, arguments), UNKNOWN);
                assert_eq!(run(&program, arch ^ 1, call, arguments), SECCOMP_RET_KILL_PROCESS);
            }
            // The kernel tries each of them for each number of a call.
            assert!(program.len() < 500, "{} instructions", program.len());
        }
        let program = filter(Sockets::Named).unwrap();
        let sent = |address| run(&program, arch, SYS_sendto, [3, 1, 1, 0, address, 16]);
        assert_eq!(sent(0), SECCOMP_RET_ALLOW);
        for address in [1, 1 << 32, u64::MAX] {
            assert_eq!(sent(address), SECCOMP_RET_USER_NOTIF);
        }
        let allowed = |call, arguments| run(&program, arch, call, arguments) == SECCOMP_RET_ALLOW;
        assert!(allowed(SYS_socket, [AF_INET as u64, SOCK_STREAM as u64, 0, 0, 0, 0]));
        assert!(allowed(SYS_clone, [SIGCHLD as u64, 0, 0, 0, 0, 0]));
        assert!(!allowed(SYS_clone, [CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]));
        assert!(allowed(SYS_ioctl, [0, TCGETS, 0, 0, 0, 0]));
        for typed in [TIOCSTI, TIOCLINUX] {
            assert!(!allowed(SYS_ioctl, [0, typed, 0, 0, 0, 0]));
            // The kernel takes the lower half of the argument.
            assert!(!allowed(SYS_ioctl, [0, typed | 1 << 32, 0, 0, 0, 0]));
        }
        for made in [0o4755, 0o2755, 0o6000] {
            assert!(!allowed(SYS_openat, [0, 0, O_CREAT as u64, made, 0, 0]));
            assert!(!allowed(SYS_openat, [0, 0, O_TMPFILE as u64, made, 0, 0]));
            assert!(allowed(SYS_openat, [0, 0, O_DIRECTORY as u64, made, 0, 0]));
            assert!(!allowed(SYS_mknodat, [0, 0, made | S_IFREG as u64, 0, 0, 0]));
        }
        assert!(allowed(SYS_openat, [0, 0, O_CREAT as u64, 0o1777, 0, 0]));
        assert_eq!(run(&program, arch, SYS_openat2, [0; 6]), UNKNOWN);
    }
}
