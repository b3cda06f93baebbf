//! Attempts to get out of the sandbox, as an ordinary user and, when the tests run as root, as root too.

mod common;

use common::{ATTEMPTS, World, users};

#[test]
fn nothing_gets_out() {
    for user in users() {
        let world = World::new(user);
        let mut escaped = Vec::new();
        for attempt in ATTEMPTS {
            let output = world.probe(attempt);
            match output.status.code() {
                Some(1) => {}
                // A child that was killed for trying is as good.
                Some(159) => {}
                _ => escaped.push(format!("{attempt}: {output:?}")),
            }
            world.check(attempt);
        }
        assert!(escaped.is_empty(), "as {user:?}:\n{}", escaped.join("\n"));
    }
}

/// The same attempts succeed without the sandbox, but for those that need rights this machine does not give: so it is the
/// sandbox that refuses them, not the test.
#[test]
fn many_of_them_work_outside() {
    let mut worked = 0;
    for attempt in ATTEMPTS {
        let world = World::new(None);
        if common::HARMFUL.contains(attempt) {
            continue;
        }
        worked += usize::from(world.probe_unconfined(attempt).status.code() == Some(0));
    }
    assert!(worked >= 25, "only {worked} attempts do anything at all");
}
