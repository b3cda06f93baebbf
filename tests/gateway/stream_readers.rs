//! Readers that connect to streams and disconnect.

use ken_tests::{Builder, System, until};

/// The server cannot distinguish a closed connection from one whose client only closed its sending half, until it
/// writes to the connection.
#[test]
fn readers_that_disconnect_free_their_places_at_once() {
    let system = Builder::default().config("[limits]\nheld_connections = 8\n").start();
    let session = system.session();
    let target = format!("/agents/orchestrator/{session}?offset=-1&live=sse");
    for _ in 0..40 {
        until("there is a place", || attach(&system, &target));
    }
}

fn attach(system: &System, target: &str) -> bool {
    let mut client = system.client();
    client.request("GET", target).start();
    let (status, _) = client.head().expect("a head");
    assert!(status == 200 || status == 429, "{status}");
    status == 200 && !client.chunk().expect("a control frame").is_empty()
}
