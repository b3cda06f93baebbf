//! Runs of schedules: what follows a change is a change of its own, and concerns only the run.

use std::time::{Duration, Instant};

use ken_types::config::Retention;
use ken_types::event::Outcome;
use ken_types::limits::WAITING_PROMPTS;
use ken_types::ops::messenger::{Allow, MessengerAllow};
use ken_types::ops::schedules::*;
use ken_types::ops::store::*;
use ken_types::{Code, Offset};
use serde_json::json;

use crate::kit::*;

pub(crate) fn settings() -> Settings {
    Settings {
        kind: ScheduleKind::Every,
        schedule: "1h".into(),
        timezone: "UTC".into(),
        target_agent: "orchestrator".into(),
        max_attempts: 1,
        delete_after_run: false,
        missed: Missed::Skip,
        grace_ms: 60_000,
        overlap: Overlap::Skip,
        timeout_ms: 600_000,
        jitter_ms: 0,
        deliver_to: None,
        disable_after_failures: None,
    }
}

fn put_of(slug: &str, settings: Settings) -> PutSchedule {
    PutSchedule {
        id: format!("id-{slug}"),
        slug: slug.into(),
        owner: None,
        settings,
        prompt: "Report.".into(),
        payload: None,
        enabled: true,
        progress: Progress { anchor: 0, mark: 0, next: None },
        chat_is_configured: false,
        expect: None,
        turn: None,
    }
}

impl Kit {
    async fn schedule(&self, slug: &str, settings: Settings) -> Schedule {
        self.write::<SchedulesPut>(put_of(slug, settings)).await.unwrap()
    }

    async fn start_run(&self, slug: &str, run: &str) -> Result<ScheduleRun, ken_types::Error> {
        self.write::<SchedulesStart>(StartRun { slug: slug.into(), owner: None, run_id: run.into() }).await
    }

    async fn run(&self, slug: &str, run: &str) -> ScheduleRun {
        self.read::<SchedulesRunGet>(OneScheduleRun { slug: slug.into(), run_id: run.into() }).await.unwrap()
    }

    /// Waits until a run has this status. What follows a change comes after its answer.
    async fn until_run_is(&self, slug: &str, run: &str, status: RunState) -> ScheduleRun {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found = self.run(slug, run).await;
            if found.status == status {
                return found;
            }
            assert!(Instant::now() < until, "{found:?} is not {status:?}");
            self.tick().await;
        }
    }

    /// Claims the only submission that there is, and ends it.
    async fn end_turn(&self, outcome: Outcome) {
        let claim = self.claim_one(1).await;
        let settle = Kit::settle_of(&claim.lease, claim.next_event_index, outcome, "done");
        self.write::<SubmissionsSettle>(settle).await.unwrap();
    }

    /// Fills the queue of the session that a run is going to have.
    async fn fill_session_of(&self, run: &ScheduleRun) {
        for number in 0..WAITING_PROMPTS {
            let admit = admit_of(&run.session_id, &format!("fill-{}-{number}", run.run_id));
            self.write::<SubmissionsAdmit>(admit).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_run_that_is_refused_ends_as_error_and_refuses_nobody_else() {
    let kit = Kit::new();
    kit.schedule("s", settings()).await;
    for run in ["r1", "r2", "r3"] {
        kit.start_run("s", run).await.unwrap();
    }
    kit.until_run_is("s", "r1", RunState::Admitted).await;
    kit.fill_session_of(&kit.run("s", "r2").await).await;
    let first = kit.claim_one(1).await;
    // The agent ends the first run. That the second one cannot be admitted then is not its concern.
    kit.finish(&first.lease, 0, "done").await.unwrap();
    let refused = kit.until_run_is("s", "r2", RunState::Error).await;
    assert!(refused.error.unwrap().contains("prompts wait"), "{:?}", kit.run("s", "r2").await);
    assert_eq!(kit.until_run_is("s", "r1", RunState::Ok).await.result_text.as_deref(), Some("done"));
    // The third one is next.
    kit.until_run_is("s", "r3", RunState::Admitted).await;
}

#[tokio::test]
async fn what_a_run_needs_next_is_found_after_a_kill() {
    let mut kit = Kit::new();
    kit.schedule("s", settings()).await;
    for run in ["r1", "r2"] {
        kit.start_run("s", run).await.unwrap();
    }
    kit.until_run_is("s", "r1", RunState::Admitted).await;
    kit.store = None;
    // As if the store had been killed after the submission of the first run had settled.
    kit.execute("UPDATE submissions SET state = 'completed', open = 0");
    kit.open().unwrap();
    kit.until_run_is("s", "r1", RunState::Ok).await;
    kit.until_run_is("s", "r2", RunState::Admitted).await;
}

#[tokio::test]
async fn manual_runs_that_wait_are_limited() {
    let kit = Kit::new();
    kit.schedule("s", settings()).await;
    kit.start_run("s", "first").await.unwrap();
    kit.until_run_is("s", "first", RunState::Admitted).await;
    for number in 0..WAITING_PROMPTS {
        kit.start_run("s", &format!("r{number}")).await.unwrap();
    }
    let error = kit.start_run("s", "more").await.unwrap_err();
    assert!(error.code == Code::Busy && error.retry_after_ms.is_some(), "{error:?}");
    // The same call again is not a further run.
    kit.start_run("s", "r7").await.unwrap();
    kit.end_turn(Outcome::Completed).await;
    kit.until_run_is("s", "first", RunState::Ok).await;
    kit.until_run_is("s", "r0", RunState::Admitted).await;
    kit.start_run("s", "more").await.unwrap();
}

#[tokio::test]
async fn only_failures_in_a_row_pause_a_schedule() {
    let kit = Kit::new();
    kit.schedule("s", Settings { disable_after_failures: Some(2), ..settings() }).await;
    let enabled = async || {
        let of = OfSchedule { slug: "s".into(), id: None, owner: None };
        kit.read::<SchedulesGet>(of).await.unwrap().enabled
    };
    let (ok, error) = ((Outcome::Completed, RunState::Ok), (Outcome::Failed, RunState::Error));
    for (number, (outcome, status)) in [error, ok, error, ok, error].into_iter().enumerate() {
        let run = format!("r{number}");
        kit.start_run("s", &run).await.unwrap();
        kit.until_run_is("s", &run, RunState::Admitted).await;
        kit.end_turn(outcome).await;
        kit.until_run_is("s", &run, status).await;
        assert!(enabled().await, "paused after run {number}");
    }
    kit.start_run("s", "last").await.unwrap();
    kit.until_run_is("s", "last", RunState::Admitted).await;
    kit.end_turn(Outcome::Failed).await;
    kit.until_run_is("s", "last", RunState::Error).await;
    assert!(!enabled().await, "two failures in a row do not pause it");
}

/// By default runs are kept for 30 days after their end, and conversations of people for ever.
#[tokio::test]
async fn old_runs_are_deleted_with_their_conversations() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.schedule("s", settings()).await;
    let end_run = async |run: &str| {
        kit.start_run("s", run).await.unwrap();
        kit.until_run_is("s", run, RunState::Admitted).await;
        kit.end_turn(Outcome::Completed).await;
        kit.until_run_is("s", run, RunState::Ok).await
    };
    let find = |run: &str| kit.read::<SchedulesRunGet>(OneScheduleRun { slug: "s".into(), run_id: run.into() });
    kit.set_retention(Retention::default()).await.unwrap();
    let old = end_run("old").await;
    kit.turn_days(29).await;
    let new = end_run("new").await;
    assert!(find("old").await.is_ok(), "it is 29 days old");
    kit.turn_days(2).await;
    let until = Instant::now() + Duration::from_secs(20);
    while find("old").await.is_ok() {
        assert!(Instant::now() < until, "it is 31 days old");
        kit.turn_clock(150).await;
    }
    assert!(find("new").await.is_ok());
    assert!(kit.page(old.session_id.as_str(), Offset::Start).await.is_err_and(|error| error.code == Code::Gone));
    assert!(kit.page(new.session_id.as_str(), Offset::Start).await.is_ok());
    assert!(kit.page("tui-1", Offset::Start).await.is_ok());
}

/// The conversation of a run goes by the limit of runs: whether its record is still there or not, and whatever the limit of sessions is. One
/// that a person has deleted stops nothing.
#[tokio::test]
async fn conversations_of_runs_are_deleted_whatever_became_of_their_records() {
    let mut kit = Kit::new();
    kit.session("tui-1", "a").await;
    let end_run = async |kit: &Kit, slug: &str, run: &str| {
        kit.start_run(slug, run).await.unwrap();
        kit.until_run_is(slug, run, RunState::Admitted).await;
        kit.end_turn(Outcome::Completed).await;
        kit.until_run_is(slug, run, RunState::Ok).await
    };
    for slug in ["kept", "deleted", "orphan"] {
        kit.schedule(slug, settings()).await;
    }
    let by_hand = end_run(&kit, "kept", "by-hand").await;
    let old = [
        end_run(&kit, "kept", "old").await,
        end_run(&kit, "deleted", "of-deleted").await,
        end_run(&kit, "orphan", "without-record").await,
    ];
    kit.start_run("kept", "running").await.unwrap();
    let running = kit.until_run_is("kept", "running", RunState::Admitted).await;
    kit.write::<SchedulesDelete>(OfSchedule { slug: "deleted".into(), id: None, owner: None }).await.unwrap();
    kit.store = None;
    kit.execute("DELETE FROM schedule_runs WHERE id = 'without-record'");
    kit.open().unwrap();
    let purge = OwnedSession { scope: None, id: ken_types::id::SessionId(by_hand.session_id.clone()) };
    kit.write::<SessionsPurge>(purge).await.unwrap();
    let retention = serde_json::from_str::<Retention>(r#"{"sessions": 7}"#).unwrap();
    kit.set_retention(retention).await.unwrap();
    let is_gone = async |kit: &Kit, id: &str| kit.page(id, Offset::Start).await.is_err_and(|e| e.code == Code::Gone);
    // What is to be deleted takes as many slices of background work as it needs; then some more. If the clock was set while a slice ran, the
    // next one comes ten minutes later.
    let turn_until_gone = async |kit: &Kit, id: &str| {
        for number in 0..500 {
            if is_gone(kit, id).await {
                break;
            }
            kit.turn_clock(if number % 50 == 49 { 600_000 } else { 150 }).await;
        }
        for _ in 0..10 {
            kit.turn_clock(150).await;
        }
        is_gone(kit, id).await
    };
    kit.turn_days(29).await;
    assert!(turn_until_gone(&kit, "tui-1").await, "the limit of sessions is 7 days");
    for run in &old {
        assert!(!is_gone(&kit, &run.session_id).await, "{} is 29 days old", run.run_id);
    }
    let deleted = OneScheduleRun { slug: "deleted".into(), run_id: "of-deleted".into() };
    assert_eq!(kit.read::<SchedulesRunGet>(deleted).await.unwrap_err().code, Code::NotFound, "the record is gone");
    kit.turn_days(2).await;
    for run in &old {
        assert!(turn_until_gone(&kit, &run.session_id).await, "{} is 31 days old", run.run_id);
    }
    for number in 0..200 {
        if kit.count("purges") == 0 {
            break;
        }
        kit.turn_clock(if number % 50 == 49 { 600_000 } else { 150 }).await;
    }
    assert!(!is_gone(&kit, &running.session_id).await, "the run is not over");
    for run in ["by-hand", "old"] {
        let of = OneScheduleRun { slug: "kept".into(), run_id: run.into() };
        assert_eq!(kit.read::<SchedulesRunGet>(of).await.unwrap_err().code, Code::NotFound, "the record of {run}");
    }
    assert_eq!(kit.count("purges"), 0, "what was deleted is not removed");
    assert!(kit.stats().get("background_failure").is_none());
}

#[tokio::test]
async fn a_schedule_that_is_stored_disabled_never_fires() {
    let kit = Kit::new();
    let progress = Progress { anchor: 0, mark: 0, next: Some(NextSlot { slot: 1, fire: 1 }) };
    let put = |enabled, expect| PutSchedule { enabled, expect, progress, ..put_of("s", settings()) };
    let advanced = async || {
        let advance =
            Advance { now: 10, fires: Vec::new(), timed_out: Vec::new(), due_until: Some(10), clock_set_back: false };
        kit.write::<SchedulesAdvance>(advance).await.unwrap()
    };
    for (enabled, expect) in [(false, None), (true, Some(1)), (false, Some(2))] {
        let stored = kit.write::<SchedulesPut>(put(enabled, expect)).await.unwrap();
        assert_eq!(stored.next_fire_at.is_some(), enabled, "{stored:?}");
        let advanced = advanced().await;
        assert_eq!((advanced.due.len(), advanced.next_fire.is_some()), (usize::from(enabled), enabled));
    }
}

/// A schedule that is not to run again stays readable with its runs, and its slug is free.
#[tokio::test]
async fn a_schedule_that_has_ended_is_removed_after_thirty_days() {
    let kit = Kit::new();
    let once = Settings { kind: ScheduleKind::At, delete_after_run: true, ..settings() };
    let first = kit.schedule("s", once.clone()).await;
    let slot = Slot { at: 1, run_id: "slot".into(), fate: SlotOutcome::Run };
    let fire = Fire {
        id: first.id.clone(),
        generation: 1,
        mark: 0,
        slots: vec![slot],
        progress: Progress { anchor: 0, mark: 1, next: None },
        overlap: Overlap::Skip,
        timeout_ms: 600_000,
    };
    let advance = Advance { now: 10, fires: vec![fire], timed_out: Vec::new(), due_until: None, clock_set_back: false };
    kit.write::<SchedulesAdvance>(advance).await.unwrap();
    // Runs by hand that wait when it ends are skipped, and do not count as its last status.
    kit.start_run("s", "waiting").await.unwrap();
    kit.until_run_is("s", "slot", RunState::Admitted).await;
    kit.end_turn(Outcome::Completed).await;
    kit.until_run_is("s", "slot", RunState::Ok).await;
    assert_eq!(kit.run("s", "waiting").await.status, RunState::Skipped);
    let get = async |id: Option<&str>| {
        let of = OfSchedule { slug: "s".into(), id: id.map(str::to_owned), owner: None };
        kit.read::<SchedulesGet>(of).await
    };
    let ended = get(None).await.unwrap();
    assert_eq!((ended.enabled, ended.next_fire_at, ended.last_run_status), (false, None, Some(RunState::Ok)));
    assert!(ended.ended_at.is_some());
    assert_eq!(kit.start_run("s", "more").await.unwrap_err().code, Code::Conflict);
    let put = PutSchedule { id: "id-second".into(), ..put_of("s", once) };
    // A caller that has read the schedule before its end does not revive it.
    let late = PutSchedule { expect: Some(1), ..put.clone() };
    assert_eq!(kit.write::<SchedulesPut>(late).await.unwrap_err().code, Code::Conflict);
    kit.write::<SchedulesPut>(put).await.unwrap();
    assert_eq!(get(None).await.unwrap().id, "id-second");
    assert_eq!(get(Some(&first.id)).await.unwrap(), ended);
    kit.turn_clock(29 * DAY_MS).await;
    kit.tick().await;
    assert_eq!(get(Some(&first.id)).await.unwrap(), ended);
    kit.turn_clock(2 * DAY_MS).await;
    let until = Instant::now() + Duration::from_secs(20);
    while get(Some(&first.id)).await.is_ok() {
        assert!(Instant::now() < until, "it is still there");
        kit.tick().await;
    }
    assert_eq!(get(None).await.unwrap().id, "id-second");
    let run = OneScheduleRun { slug: "s".into(), run_id: "slot".into() };
    assert_eq!(kit.read::<SchedulesRunGet>(run).await.unwrap_err().code, Code::NotFound);
}

/// Every admitted user can have the results of a schedule, not only the first one.
#[tokio::test]
async fn the_second_user_can_be_told_the_results() {
    let kit = Kit::new();
    let told = |chat: &str| {
        let to = ToChat { connector: "messenger".into(), chat_id: chat.into(), thread_id: None };
        Settings { deliver_to: Some(DeliverTo::Chat(to)), ..settings() }
    };
    for user in ["5", "6"] {
        let allow = Allow { user_id: user.into(), chat_id: user.into() };
        kit.write::<MessengerAllow>(allow).await.unwrap();
    }
    for user in ["5", "6"] {
        kit.schedule(user, told(user)).await;
    }
}

#[tokio::test]
async fn there_are_so_many_schedules_and_each_can_be_replaced() {
    let mut kit = Kit::new();
    kit.schedule("s", settings()).await;
    kit.store = None;
    // Copies of the first one are faster than as many calls.
    let mut copies = "BEGIN; CREATE TEMP TABLE copy AS SELECT * FROM schedules;".to_owned();
    for number in 2..SCHEDULES {
        let next = format!("UPDATE copy SET schedule = {}, id = 'id-s{number}', slug = 's{number}';", 1000 + number);
        copies += &format!("{next} INSERT INTO schedules SELECT * FROM copy;");
    }
    kit.execute(&(copies + "COMMIT"));
    kit.open().unwrap();
    kit.schedule("last", settings()).await;
    let error = kit.write::<SchedulesPut>(put_of("more", settings())).await.unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error:?}");
    let replaced = PutSchedule { expect: Some(1), ..put_of("last", settings()) };
    kit.write::<SchedulesPut>(replaced).await.unwrap();
    kit.write::<SchedulesDelete>(OfSchedule { slug: "s7".into(), id: None, owner: None }).await.unwrap();
    kit.schedule("more", settings()).await;
}

/// A run is repeated after a passing failure of the provider, unless it has called a tool before, which may have had an effect.
#[tokio::test]
async fn a_run_that_has_called_a_tool_is_not_repeated() {
    let turn = |name: &str| ("turn", json!({"error": {"name": name, "message": "x"}}));
    let tool = || ("tool_start", json!({"toolName": "t", "toolCallId": "c", "args": {}}));
    for (events, expected) in [
        (vec![turn("busy")], RunState::Queued),
        (vec![turn("invalid"), turn("busy")], RunState::Queued),
        (vec![turn("busy"), turn("invalid")], RunState::Error),
        (vec![tool(), turn("busy")], RunState::Error),
        (vec![turn("busy"), tool(), turn("busy")], RunState::Error),
    ] {
        let kit = Kit::new();
        kit.schedule("s", Settings { max_attempts: 2, ..settings() }).await;
        kit.start_run("s", "r").await.unwrap();
        kit.until_run_is("s", "r", RunState::Admitted).await;
        let claim = kit.claim_one(1).await;
        let id = claim.lease.submission_id.as_str();
        let written = events.iter().zip(0..).map(|((kind, fields), index)| event(id, index, kind, fields.clone()));
        kit.add_events(&claim.lease, 0, written.collect()).await.unwrap();
        let settle = Kit::settle_of(&claim.lease, events.len() as u64, Outcome::Failed, "");
        kit.write::<SubmissionsSettle>(settle).await.unwrap();
        kit.until_run_is("s", "r", expected).await;
    }
}

/// What an agent has ordered in a session ends with it, together with the conversations of its runs; what a person has ordered, and what
/// is told elsewhere, goes on. Retention does not delete a session in which something is ordered.
#[tokio::test]
async fn the_schedules_that_an_agent_made_in_a_session_end_with_it() {
    const SECRET: &str = "zyzzogeton";
    let mut kit = Kit::new();
    for (id, turn) in [("tui-x", "x"), ("tui-y", "y"), ("tui-z", "z")] {
        kit.session(id, "a").await;
        kit.talk(id, turn, "hello", "done").await;
    }
    let here = |id: &str| Some(DeliverTo::Session(ToSession { session: id.into() }));
    let chat = ToChat { connector: "messenger".into(), chat_id: "7".into(), thread_id: None };
    let put = |slug: &str, turn: Option<&str>, deliver_to| PutSchedule {
        owner: turn.map(|_| scope("a")),
        turn: turn.map(sub),
        chat_is_configured: true,
        prompt: format!("{SECRET} of {slug}."),
        ..put_of(slug, Settings { deliver_to, ..settings() })
    };
    for new in [
        put("told", Some("x"), here("tui-x")),
        put("silent", Some("x"), None),
        put("taken", Some("x"), here("tui-x")),
        put("moved", Some("x"), here("tui-x")),
        put("chat", Some("x"), Some(DeliverTo::Chat(chat))),
        put("person", None, here("tui-x")),
        put("other", Some("y"), here("tui-y")),
        put("ended", Some("z"), None),
    ] {
        kit.write::<SchedulesPut>(new).await.unwrap();
    }
    // A person has given one another prompt, and has another one told elsewhere.
    for changed in [
        PutSchedule { prompt: "Mine.".into(), expect: Some(1), ..put("taken", None, here("tui-x")) },
        PutSchedule { expect: Some(1), ..put("moved", None, here("tui-y")) },
    ] {
        kit.write::<SchedulesPut>(changed).await.unwrap();
    }
    let exists = async |kit: &Kit, slug: &str| {
        kit.read::<SchedulesGet>(OfSchedule { slug: slug.into(), id: None, owner: None }).await.is_ok()
    };
    let is_gone = async |kit: &Kit, id: &str| kit.page(id, Offset::Start).await.is_err_and(|e| e.code == Code::Gone);
    // More conversations than one slice takes.
    let mut runs = Vec::new();
    for number in 0..18 {
        let run = format!("r{number}");
        kit.start_run("told", &run).await.unwrap();
        kit.until_run_is("told", &run, RunState::Admitted).await;
        kit.end_turn(Outcome::Completed).await;
        let ended = kit.until_run_is("told", &run, RunState::Ok).await;
        assert_eq!(ended.delivery, Delivery::Sent);
        runs.push(ended.session_id);
    }
    kit.start_run("told", "running").await.unwrap();
    runs.push(kit.until_run_is("told", "running", RunState::Admitted).await.session_id);
    let purge = |id: &str| OwnedSession { scope: None, id: ken_types::id::SessionId(id.into()) };
    kit.write::<SessionsPurge>(purge("tui-x")).await.unwrap();
    for (slug, stays) in [
        ("told", false),
        ("silent", false),
        ("taken", true),
        ("moved", true),
        ("chat", true),
        ("person", true),
        ("other", true),
    ] {
        assert_eq!(exists(&kit, slug).await, stays, "{slug}");
    }
    for number in 0..2_000 {
        if kit.count("purges") == 0 {
            break;
        }
        kit.turn_clock(if number % 50 == 49 { 600_000 } else { 150 }).await;
    }
    for id in &runs {
        assert!(is_gone(&kit, id).await, "{id}");
    }
    kit.restart();
    assert!(!kit.holds(&format!("{SECRET} of told")) && !kit.holds(&format!("{SECRET} of silent")));
    assert!(kit.holds(&format!("{SECRET} of moved")));
    // The second session is another one, and a run that is to be told in a session that is gone fails.
    kit.start_run("person", "late").await.unwrap();
    kit.until_run_is("person", "late", RunState::Admitted).await;
    kit.end_turn(Outcome::Completed).await;
    let late = kit.until_run_is("person", "late", RunState::Error).await;
    assert_eq!((late.delivery, late.error.unwrap().contains("tui-x was deleted")), (Delivery::Failed, true));
    let ended = OfSchedule { slug: "ended".into(), id: None, owner: None };
    kit.write::<SchedulesDelete>(ended).await.unwrap();
    kit.set_retention(serde_json::from_str(r#"{"sessions": 7}"#).unwrap()).await.unwrap();
    kit.turn_days(8).await;
    // As above: a slice may have been put off by ten minutes.
    for number in 0..500 {
        if is_gone(&kit, "tui-z").await {
            break;
        }
        kit.turn_clock(if number % 50 == 49 { 600_000 } else { 150 }).await;
    }
    assert!(is_gone(&kit, "tui-z").await, "what was ordered there has ended");
    assert!(!is_gone(&kit, "tui-y").await && exists(&kit, "other").await, "something is ordered there");
    kit.write::<SessionsPurge>(purge("tui-y")).await.unwrap();
    assert!(!exists(&kit, "other").await && exists(&kit, "chat").await);
    assert!(kit.stats().get("background_failure").is_none());
}
