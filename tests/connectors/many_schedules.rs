//! Creates many schedules, and measures the resources of a process; for the tests and the benchmarks.

use std::time::Duration;

use ken_tests::System;
use ken_types::ops::schedules::{Progress, PutSchedule, SchedulesPut, Settings};
use ken_wire::Connection;

/// Copies the schedule s0 under other names, directly in the database, because this would take a minute over HTTP.
///
/// `change` can modify the settings and the progress of each copy. Its first argument is the number of the copy.
pub(crate) fn fill(
    system: &System,
    numbers: std::ops::Range<usize>,
    change: impl Fn(usize, &mut Settings, &mut Progress),
) {
    let state = system.call("store", "schedules.state", &["slug=s0"]);
    let settings: Settings = serde_json::from_value(state["schedule"].clone()).unwrap();
    let progress: Progress = serde_json::from_value(state["progress"].clone()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let time = Duration::from_secs(60);
        let deadline = tokio::time::Instant::now() + time;
        let store = Connection::open(&system.socket("store"), deadline).await.unwrap();
        let store = std::sync::Arc::new(store);
        let mut waiting = tokio::task::JoinSet::new();
        for number in numbers {
            let (mut settings, mut progress) = (settings.clone(), progress);
            change(number, &mut settings, &mut progress);
            let put = PutSchedule {
                id: format!("01K2{number:022}"),
                slug: format!("s{number}"),
                owner: None,
                settings,
                prompt: "p".to_owned(),
                payload: None,
                enabled: true,
                progress,
                chat_is_configured: false,
                expect: None,
                turn: None,
            };
            if waiting.len() == 64 {
                waiting.join_next().await.unwrap().unwrap();
            }
            let store = store.clone();
            waiting.spawn(async move { store.call::<SchedulesPut>(&put, time).await.map(drop).unwrap() });
        }
        while let Some(done) = waiting.join_next().await {
            done.unwrap();
        }
    });
}

/// CPU time that a process has used, in clock ticks.
pub(crate) fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap().split(' ');
    let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    fields[10] + fields[11]
}
