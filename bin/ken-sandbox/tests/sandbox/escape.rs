//! Attempts to get out of the sandbox, as an ordinary user and, when the tests run as root, as root too.

use crate::common::{ATTEMPTS, Kernel, LOOPBACK, World, users};

#[test]
fn nothing_gets_out() {
    all_are_refused(Kernel::This);
}

/// Landlock alone keeps signals inside, and no socket of the Internet can be had.
#[test]
fn nothing_gets_out_without_namespaces() {
    all_are_refused(Kernel::WithoutNamespaces);
}

/// What Landlock lacked in its first version is held by namespaces: truncation, signals, abstract sockets, ports.
#[test]
fn nothing_gets_out_on_an_old_kernel() {
    all_are_refused(Kernel::Landlock(1));
}

fn all_are_refused(kernel: Kernel) {
    for user in users() {
        let world = World::on(kernel, user);
        let mut escaped = Vec::new();
        for attempt in ATTEMPTS {
            let output = world.probe(attempt);
            let is_alone = kernel != Kernel::WithoutNamespaces && LOOPBACK.contains(attempt);
            match output.status.code() {
                Some(1) => {}
                // A child that was killed for trying is as good.
                Some(159) => {}
                // A socket that reaches nobody.
                Some(0) if is_alone && !world.was_reached() => {}
                _ => escaped.push(format!("{attempt}: {output:?}")),
            }
            world.check(attempt);
        }
        assert!(escaped.is_empty(), "as {user:?} with {kernel:?}:\n{}", escaped.join("\n"));
    }
}

/// Where something is missing for which there is no other wall, nothing is run.
#[test]
fn an_old_kernel_without_namespaces_runs_nothing() {
    for (version, missing) in [("1", "signals"), ("2", "signals"), ("5", "signals")] {
        let world = World::on(Kernel::WithoutNamespaces, None);
        let mut command = world.sandbox(&[], &["touch", "it-ran"]);
        let output = command.env("KEN_LANDLOCK_VERSION", version).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(missing) && error.contains("namespace"), "{error}");
        assert!(!world.inside().join("it-ran").exists());
    }
}

/// The same attempts succeed without the sandbox, but for those that need rights this machine does not give: so it is the
/// sandbox that refuses them, not the test.
#[test]
fn many_of_them_work_outside() {
    let mut worked = 0;
    for attempt in ATTEMPTS {
        let world = World::new(None);
        if crate::common::HARMFUL.contains(attempt) {
            continue;
        }
        worked += usize::from(world.probe_unconfined(attempt).status.code() == Some(0));
    }
    assert!(worked >= 25, "only {worked} attempts do anything at all");
}
