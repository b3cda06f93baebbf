//! MCP servers that say nothing when they start. The module is the first by name, so that its test, which waits for half a minute, begins
//! before those that need the processor.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::mcp::{configure, entry, start};

#[test]
fn the_list_of_servers_is_there_in_time_and_says_what_each_does() {
    let system = start(&[]);
    let before = |what: &str| {
        let mut entry = entry(&system, &json!({}));
        entry["env"] = json!({ "BEFORE": what });
        entry
    };
    configure(
        &system,
        &json!({"noisy": before("noise"), "mute1": before("silence"), "mute2": before("silence"), "mute3": before("silence")}),
    );
    let begun = Instant::now();
    let servers = system.ken(&["tools", "servers", "--format", "summary"]);
    let took = begun.elapsed();
    let printed = String::from_utf8(servers.stdout).unwrap();
    // A server may take 30 s to start. They start together.
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(printed.contains("noisy: new, 24 tools\n"), "{printed}");
    for name in ["mute1", "mute2", "mute3"] {
        let wanted =
            format!("{name}: down (it did not name its tools within 30 s)\n  | this is \u{241b}[31mall that I say\n");
        assert!(printed.contains(&wanted), "{printed}");
    }
}
