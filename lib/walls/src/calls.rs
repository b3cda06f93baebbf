//! Filters of system calls: the lists that the parts of ken and the commands in its sandbox share, and the program of the kernel
//! that is made of them.

use std::collections::BTreeMap;
use std::mem::offset_of;

use libc::{c_long, *};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

/// Calls of ordinary programs whose arguments do not matter.
#[rustfmt::skip]
pub const ALLOWED: &[c_long] = &[
    // Files. Landlock checks the paths, but not who changes modes and times: `ken-sandbox` makes these calls itself, and the parts do
    // not have them.
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
    // Processes and threads; clone and the calls of [`of_itself`] depend on their arguments. Landlock checks signals.
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
    // What a socket pair needs; sockets themselves are left to the caller.
    SYS_sendto, SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_recvmmsg, SYS_sendmmsg, SYS_shutdown,
    SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt,
];

/// Older calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub const ALLOWED_HERE: &[c_long] = &[
    SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_readlink, SYS_mkdir, SYS_rmdir, SYS_unlink,
    SYS_symlink, SYS_link, SYS_rename, SYS_mknod, SYS_getdents, SYS_dup2, SYS_pipe, SYS_poll, SYS_select,
    SYS_epoll_create, SYS_epoll_wait, SYS_epoll_ctl_old, SYS_eventfd, SYS_signalfd, SYS_inotify_init,
    SYS_fork, SYS_vfork, SYS_getpgrp, SYS_pause, SYS_alarm, SYS_time, SYS_arch_prctl, SYS_chmod, SYS_utime,
    SYS_utimes, SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
pub const ALLOWED_HERE: &[c_long] = &[];

/// Interfaces of the kernel with a record of escapes, and what changes the system or other processes. No process below ken needs
/// them. They are refused with EPERM rather than ENOSYS, because programs that try them then report "Operation not permitted",
/// which is what it is.
#[rustfmt::skip]
pub const INTERFACES: &[c_long] = &[
    SYS_ptrace, SYS_process_vm_writev, SYS_process_madvise, SYS_kcmp, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_add_key, SYS_request_key, SYS_keyctl,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_swapon,
    SYS_swapoff, SYS_acct, SYS_quotactl, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
    SYS_syslog, SYS_open_by_handle_at, SYS_fanotify_init, SYS_vhangup,
];

/// What `ken-sandbox` itself needs to set up namespaces and to supervise commands.
#[rustfmt::skip]
pub const NAMESPACES: &[c_long] = &[
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount,
    SYS_fsconfig, SYS_fspick, SYS_mount_setattr, SYS_unshare, SYS_setns, SYS_sethostname, SYS_setdomainname,
    SYS_process_vm_readv, SYS_pidfd_getfd,
];

/// The action for a call that is refused.
pub const REFUSE: u32 = SECCOMP_RET_ERRNO | EPERM as u32;
/// The action for a call that is not listed: it fails with ENOSYS, as on an older kernel that does not have it.
pub const UNKNOWN: SeccompAction = SeccompAction::Errno(ENOSYS as u32);

/// The instructions at the beginning of a program of seccompiler, which check the architecture. The number of the call is loaded
/// after them, but only where there are rules.
const PROLOGUE: usize = 3;

/// Calls that are allowed, or refused, only with certain arguments.
pub type Rules = Vec<(c_long, Vec<SeccompRule>)>;

/// Makes a program that begins with `first`, for which the number of the call is loaded. A call with rules for its arguments is decided by the program that seccompiler makes
/// of the rules. All others are decided by their number before that, in ranges, because the kernel converts, compiles and tries
/// out each instruction. `otherwise` is the action for the rest; where it is to allow, the rules say what is refused.
pub fn compile(
    first: BpfProgram,
    mut by_number: BTreeMap<c_long, u32>,
    rules: Rules,
    otherwise: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let rules: BTreeMap<_, _> = rules.into_iter().collect();
    by_number.retain(|call, _| !rules.contains_key(call));
    let refuse = SeccompAction::Errno(EPERM as u32);
    let matched = if otherwise == SeccompAction::Allow { refuse } else { SeccompAction::Allow };
    let mut program = BpfProgram::try_from(SeccompFilter::new(rules, otherwise, matched, arch)?)?;
    let number = statement(BPF_LD | BPF_W | BPF_ABS, offset_of!(seccomp_data, nr) as u32);
    let before = [number].into_iter().chain(first).chain(ranges(&by_number));
    program.splice(PROLOGUE..PROLOGUE, before);
    Ok(program)
}

/// Puts the calls of each list together with its action. A later list decides about a call that is in several.
pub fn by_number(lists: &[(&[c_long], u32)]) -> BTreeMap<c_long, u32> {
    let each = lists.iter().flat_map(|(calls, action)| calls.iter().map(move |call| (*call, *action)));
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

/// An instruction without a jump.
pub fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Skips `jt` instructions if the comparison of the loaded value with `value` holds, else `jf`.
pub fn jump(comparison: u32, value: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { jt, jf, ..statement(BPF_JMP | comparison | BPF_K, value) }
}

/// Ends with an action.
pub fn end(action: u32) -> sock_filter {
    statement(BPF_RET | BPF_K, action)
}

/// The rules for calls that a process may make only for itself, and for what it may do with a terminal.
pub fn of_itself() -> Result<Rules, BackendError> {
    use SeccompCmpOp::{Eq, Ne};
    let is = |argument, value: i64| condition(argument, Eq, value as u64);
    Ok(vec![
        // No characters typed into somebody's terminal.
        (SYS_ioctl, vec![rule([condition(1, Ne, TIOCSTI)?, condition(1, Ne, TIOCLINUX)?])?]),
        // Only for the calling process: with these a command could starve other processes of the same user.
        (SYS_prlimit64, vec![rule([is(0, 0)?])?]),
        (SYS_setpriority, vec![rule([is(0, 0)?, is(1, 0)?])?]),
        (SYS_sched_setaffinity, vec![rule([is(0, 0)?])?]),
        (SYS_sched_setscheduler, vec![rule([is(0, 0)?])?]),
        (SYS_sched_setparam, vec![rule([is(0, 0)?])?]),
        (SYS_sched_setattr, vec![rule([is(0, 0)?])?]),
        // Only to set the usual execution domain, and to ask for the current one.
        (SYS_personality, vec![rule([is(0, 0)?])?, rule([is(0, 0xffff_ffff)?])?]),
    ])
}

/// All conditions must hold.
pub fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

/// A condition about the lower half of an argument, counted from 0.
pub fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    /// What the kernel would do with a call: the action of the program, as in seccomp(2). `None` if it runs to its end.
    fn action(program: &[sock_filter], number: u32, first_argument: u64) -> Option<u32> {
        let arch = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
        let mut data = [0u32; 16];
        (data[0], data[1]) = (number, arch);
        (data[4], data[5]) = (first_argument as u32, (first_argument >> 32) as u32);
        let (mut at, mut loaded) = (0, number);
        while let Some(step) = program.get(at) {
            let jump = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
            at += 1 + match u32::from(step.code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => {
                    loaded = data[step.k as usize / 4];
                    0
                }
                code if code == BPF_JMP | BPF_JEQ | BPF_K => jump(loaded == step.k),
                code if code == BPF_JMP | BPF_JGE | BPF_K => jump(loaded >= step.k),
                code if code == BPF_JMP | BPF_JGT | BPF_K => jump(loaded > step.k),
                code if code == BPF_JMP | BPF_JA => step.k as usize,
                code if code == BPF_RET | BPF_K => return Some(step.k),
                code => panic!("{code:#x}"),
            };
        }
        None
    }

    #[test]
    fn each_number_has_its_own_action_and_neighbours_share_a_comparison() {
        let (first, other) = (SECCOMP_RET_ALLOW, REFUSE);
        let listed = [(1, first), (2, first), (3, first), (5, first), (6, other), (7, other), (9, first)];
        let program = ranges(&listed.into_iter().collect());
        for number in 0..12 {
            let expected = listed.iter().find(|(call, _)| *call == c_long::from(number)).map(|(_, action)| *action);
            assert_eq!(action(&program, number, 0), expected, "{number}");
        }
        // Two ranges and two numbers alone.
        assert_eq!(program.len(), 2 * 3 + 2 * 2);
    }

    #[test]
    fn a_call_with_rules_is_decided_by_its_arguments_even_if_it_is_listed_too() {
        let unknown = u32::from(UNKNOWN);
        let rules = || vec![(39, vec![rule([condition(0, SeccompCmpOp::Eq, 1).unwrap()]).unwrap()])];
        let listed = by_number(&[(&[38, 39, 40], REFUSE), (&[38, 39], SECCOMP_RET_ALLOW)]);
        let program = compile(BpfProgram::new(), listed, rules(), UNKNOWN).unwrap();
        for (call, argument, expected) in [
            (38, 1, SECCOMP_RET_ALLOW),
            (39, 1, SECCOMP_RET_ALLOW),
            (39, 2, unknown),
            (40, 1, REFUSE),
            (41, 1, unknown),
        ] {
            assert_eq!(action(&program, call, argument), Some(expected), "{call} {argument}");
        }
    }
}
