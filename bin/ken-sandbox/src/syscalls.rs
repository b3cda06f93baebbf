//! Which system calls the command may make: seccomp filters.
//!
//! Landlock knows files, TCP ports and signals. The filters close what it does not know: every socket that reaches beyond the
//! sandbox, namespaces, tracing, kernel interfaces with a record of escapes (io_uring, bpf, userfaultfd, keyrings), and
//! whatever a newer kernel adds. A call that is not listed fails with ENOSYS, as on an older kernel that does not have it.

use std::collections::BTreeMap;

use libc::{c_long, *};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::cli::{Refusal, Sockets};

/// Calls that are allowed whatever their arguments are.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files. Landlock checks the paths, the supervisor changes modes and times (metadata.rs).
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_preadv, SYS_pwritev,
    SYS_preadv2, SYS_pwritev2, SYS_openat, SYS_openat2, SYS_close, SYS_close_range, SYS_lseek, SYS_fstat,
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

/// Refused in any case: nothing that runs in the sandbox serves others.
const SERVE: &[c_long] = &[SYS_listen, SYS_accept, SYS_accept4];
/// Refused unless addresses may be reached, which the supervisor then checks (network.rs).
const REACH: &[c_long] = &[SYS_socket, SYS_connect];

/// All namespaces that clone(2) can make. `CLONE_NEWTIME` is not among its flags.
const NAMESPACES: u64 = (CLONE_NEWNS
    | CLONE_NEWCGROUP
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWNET) as u64;

/// The filters, in the order in which they are to be installed. The list of allowed calls comes last, because it does not
/// hold seccomp(2): a command that could add a listener of its own could answer in the supervisor's place. It holds the
/// refused calls, so that their EPERM is not hidden by its ENOSYS.
pub(crate) fn filters(sockets: Sockets) -> Result<[BpfProgram; 2], Refusal> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(refused)?;
    let mut refusals = [REFUSED, SERVE].concat();
    match sockets {
        Sockets::None => refusals.extend(REACH.iter().chain(&[SYS_bind])),
        Sockets::Named => refusals.extend([SYS_bind, SYS_sendmmsg]),
        Sockets::Public => refusals.push(SYS_sendmmsg),
    }
    let known = [ALLOWED, ALLOWED_HERE, REFUSED, SERVE, REACH, &[SYS_bind]].concat();
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> = without_arguments(known);
    for (call, rules) in with_arguments(sockets != Sockets::None).map_err(refused)? {
        allowed.insert(call, rules);
    }
    Ok([
        compile(
            without_arguments(refusals),
            SeccompAction::Allow,
            SeccompAction::Errno(EPERM as u32),
            arch,
        )?,
        compile(
            allowed,
            SeccompAction::Errno(ENOSYS as u32),
            SeccompAction::Allow,
            arch,
        )?,
    ])
}

fn without_arguments(calls: Vec<c_long>) -> BTreeMap<i64, Vec<SeccompRule>> {
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    mismatch: SeccompAction,
    matched: SeccompAction,
    arch: TargetArch,
) -> Result<BpfProgram, Refusal> {
    let filter = SeccompFilter::new(rules, mismatch, matched, arch).map_err(refused)?;
    BpfProgram::try_from(filter).map_err(refused)
}

fn refused(error: impl std::fmt::Display) -> Refusal {
    Refusal::step("the filter of system calls", error)
}

type Rules = Vec<(c_long, Vec<SeccompRule>)>;

/// Calls that are allowed only with certain arguments.
fn with_arguments(has_sockets: bool) -> Result<Rules, seccompiler::BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let is = |argument, value: i64| condition(argument, Eq, value as u64);
    let mut rules = vec![
        // No namespace. clone3 hides its flags behind a pointer, so it stays unknown, and callers fall back to clone.
        (SYS_clone, vec![rule([condition(0, MaskedEq(NAMESPACES), 0)?])?]),
        // No characters typed into somebody's terminal.
        (
            SYS_ioctl,
            vec![rule([condition(1, Ne, TIOCSTI)?, condition(1, Ne, TIOCLINUX)?])?],
        ),
        // A pair of connected sockets, but not of datagrams: those can be sent to any address, also to one in the file system.
        (
            SYS_socketpair,
            vec![
                rule([
                    is(0, AF_UNIX.into())?,
                    condition(1, MaskedEq(0xf), SOCK_STREAM as u64)?,
                ])?,
                rule([
                    is(0, AF_UNIX.into())?,
                    condition(1, MaskedEq(0xf), SOCK_SEQPACKET as u64)?,
                ])?,
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
        (
            SYS_personality,
            vec![rule([is(0, 0)?])?, rule([is(0, 0xffff_ffff)?])?],
        ),
    ];
    if has_sockets {
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

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}
