//! Which system calls the command may make: a seccomp filter.
//!
//! Landlock knows files, TCP ports and signals. The filter closes what it does not know: every socket that reaches beyond the
//! sandbox, namespaces, tracing, kernel interfaces with a record of escapes (io_uring, bpf, userfaultfd, keyrings), and
//! whatever a newer kernel adds. A call that is not listed fails with ENOSYS, as on an older kernel that does not have it.

use std::collections::BTreeMap;
use std::mem::offset_of;

use ken_walls::calls::{self, ALLOWED, ALLOWED_HERE, REFUSE, Rules, condition, end, jump, rule, statement};
use libc::{c_long, *};
use seccompiler::{BackendError, BpfProgram, SeccompCmpOp, sock_filter};

use crate::cli::Sockets;
use crate::{metadata, network};

/// Besides [`calls::INTERFACES`] and [`calls::NAMESPACES`]. Extended attributes are not on this list: after ENOSYS `cp -p` goes on
/// without them, after EPERM it fails.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    SYS_name_to_handle_at, SYS_fchown, SYS_fchownat, SYS_capset, SYS_ioprio_set, SYS_migrate_pages, SYS_move_pages,
    SYS_mbind, SYS_set_mempolicy,
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

/// The filter. It does not allow seccomp(2): a command that could add a listener of its own could answer in the supervisor's
/// place.
pub(crate) fn filter(sockets: Sockets) -> Result<BpfProgram, BackendError> {
    let mut first: BpfProgram = SET_ID.into_iter().flat_map(without_set_id).collect();
    if sockets.are_supervised() {
        first.extend(unaddressed_send());
    }
    calls::compile(first, actions(sockets), with_arguments(sockets)?, calls::UNKNOWN)
}

/// The actions for calls whose arguments do not matter.
fn actions(sockets: Sockets) -> BTreeMap<c_long, u32> {
    let notified = if sockets.are_supervised() { network::CALLS } else { &[] };
    let refused: &[c_long] = match sockets {
        Sockets::None => &[SYS_socket, SYS_connect, SYS_bind, SYS_listen, SYS_accept, SYS_accept4],
        Sockets::Loopback => &[],
        Sockets::Named => &[SYS_bind, SYS_sendmmsg, SYS_listen, SYS_accept, SYS_accept4],
        Sockets::Public => &[SYS_sendmmsg, SYS_listen, SYS_accept, SYS_accept4],
    };
    calls::by_number(&[
        (ALLOWED, SECCOMP_RET_ALLOW),
        (ALLOWED_HERE, SECCOMP_RET_ALLOW),
        (LOCAL, SECCOMP_RET_ALLOW),
        (metadata::CALLS, SECCOMP_RET_USER_NOTIF),
        (notified, SECCOMP_RET_USER_NOTIF),
        (calls::INTERFACES, REFUSE),
        (calls::NAMESPACES, REFUSE),
        (REFUSED, REFUSE),
        (refused, REFUSE),
    ])
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
    // What does not hold leads to the number of the call, which is loaded again for what follows. For all that does not jump,
    // this field means nothing.
    let count = checks.len();
    for (at, check) in checks.iter_mut().enumerate() {
        check.jf = (count - at - 1) as u8;
    }
    let mut program = vec![jump(BPF_JEQ, call as u32, 0, count as u8)];
    program.extend(checks);
    program.push(load(offset_of!(seccomp_data, nr)));
    program
}

/// Calls that are allowed only with certain arguments.
fn with_arguments(sockets: Sockets) -> Result<Rules, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let is = |argument, value: i64| condition(argument, Eq, value as u64);
    let mut rules = calls::of_itself()?;
    rules.extend([
        // No namespace. clone3 hides its flags behind a pointer, so it stays unknown, and callers fall back to clone.
        (SYS_clone, vec![rule([condition(0, MaskedEq(NAMESPACES), 0)?])?]),
        // A pair of connected sockets, but not of datagrams: those can be sent to any address, also to one in the file system.
        (
            SYS_socketpair,
            vec![
                rule([is(0, AF_UNIX.into())?, condition(1, MaskedEq(0xf), SOCK_STREAM as u64)?])?,
                rule([is(0, AF_UNIX.into())?, condition(1, MaskedEq(0xf), SOCK_SEQPACKET as u64)?])?,
            ],
        ),
    ]);
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
                let refused = by_sockets
                    || [REFUSED, calls::INTERFACES, calls::NAMESPACES].iter().any(|list| list.contains(&call));
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
