//! A changed configuration.

use std::time::{Duration, Instant};

use serde_json::json;

use super::common::{Home, until};
use super::{alone, goal, ken, ms, time_until};

const KEPT: &str =
    "[part.kept]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nsockets = { wire = { unix = \"kept.sock\" } }\n";

fn with(more: &str) -> String {
    format!("{KEPT}{more}")
}

#[test]
fn goal_09_a_changed_file_is_in_force_as_a_whole_or_not_at_all() {
    let _alone = alone();
    let home = Home::new(&with(
        "[part.changed]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n[part.gone]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n\
         [part.reader]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nreads = [\"chat\"]\n",
    ));
    let kend = home.start();
    let pids = || ["kept", "changed", "reader"].map(|name| kend.part_pid(name));
    let before = pids();
    let bad = [
        "[part.kept]\nnonsense = 1\n",
        "[part.kept",
        "[part.kept]\ncommand = [\"no-such\"]\n",
        &with("[limits]\nrate_chat = \"x/minute\"\n"),
        &with("[model]\nuse = \"nope\"\n"),
    ];
    for text in bad {
        home.configure(text);
        let error = kend.call("kend.reload", json!({})).unwrap_err();
        assert_eq!(error["code"], "invalid", "{text}");
        assert!(error["message"].as_str().unwrap().contains("ken.toml:"), "{error}");
    }
    let status = kend.call("parts.status", json!({})).unwrap()["config"].clone();
    assert_eq!((&status["good"], status["errors"].as_array().unwrap().len()), (&json!(false), 1));
    let said = ken(&home, &["status"]).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("the last good configuration is in force"), "{said:?}");
    let unharmed = pids() == before;
    home.configure(&with(
        "stop_timeout_ms = 5000\n[part.changed]\ncommand = [\"PROBE\", \"status:new\", \"ready\", \"hang\"]\n\
         [part.reader]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nreads = [\"chat\"]\n\
         [part.fresh]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n[chat]\nwait_ms = 1\n",
    ));
    let begun = Instant::now();
    let done = kend.reload();
    kend.call("parts.wait_ready", json!({})).unwrap();
    let took = begun.elapsed();
    assert_eq!(
        done,
        json!({"added": ["fresh"], "removed": ["gone"], "restarted": ["changed", "reader"], "started": [], "stopped": [], "unchanged": ["kept"]})
    );
    until("the removed part is forgotten", || kend.call("parts.status", json!({"name": "gone"})).is_err());
    let after = pids();
    assert_eq!((kend.part("changed")["status_text"].as_str(), kend.state("fresh").as_str()), (Some("new"), "ready"));
    assert_eq!(kend.call("parts.status", json!({})).unwrap()["config"]["good"], true);
    let kept = after[0] == before[0];
    let figure = format!(
        "{} of {} bad files changed nothing: {unharmed}; a good one is in force, with all parts ready, after {:.0} ms; what is unchanged \
         keeps its pid: {kept}; a file that is written is read after {:.0} ms",
        bad.len(),
        bad.len(),
        ms(took),
        ms(seen())
    );
    let is_met = unharmed && kept && after[1] != before[1] && after[2] != before[2];
    goal(9, "reload", &figure, "all or nothing", is_met);
}

/// The time from the change of a file that kend watches until its part starts.
fn seen() -> Duration {
    let home = Home::new("");
    let text = home.read("ken.toml").replace("watch = false", "watch = true");
    std::fs::write(home.path("ken.toml"), &text).unwrap();
    let kend = home.start();
    home.configure("[part.a]\ncommand = [\"PROBE\", \"pid:DIR/a\", \"ready\", \"hang\"]\n");
    let took = time_until(|| !home.numbers("a").is_empty());
    assert!(kend.stop().status.success());
    took
}
