//! A person asks to be reminded: the model is told what time it is where the person is, and the schedule that it makes means that
//! time.

use jiff::ToSpan;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, System, until};
use serde_json::{Value, json};

const ZONE: &str = "Europe/Berlin";

fn start(provider: &Provider) -> System {
    Builder::default()
        .env("TZ", ZONE)
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=none\n")
        .start()
}

fn last_message(request: &ReceivedRequest) -> &Value {
    request.body["messages"].as_array().unwrap().last().unwrap()
}

fn prompt(request: &ReceivedRequest) -> &str {
    let messages = request.body["messages"].as_array().unwrap();
    messages.iter().rfind(|message| message["role"] == "user").unwrap()["content"].as_str().unwrap()
}

/// Reads the time as a model reads it: from the words in the last message of the user.
fn told(request: &ReceivedRequest) -> DateTime {
    let line = prompt(request).lines().next().unwrap();
    let words = line.strip_prefix("(The time, as ken knows it: ").unwrap_or_else(|| panic!("no time in {line}"));
    let (time, zone) = words.split_once(&format!(", {ZONE} (UTC+0")).unwrap_or_else(|| panic!("no zone in {line}"));
    assert!(zone == "1:00).)" || zone == "2:00).)", "{line}");
    DateTime::strptime("%A, %d %B %Y, %H:%M", time).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn call(name: &str, arguments: &Value) -> Reply {
    Reply::Stream(openai(&[], &[("call_1", name, &arguments.to_string())]))
}

/// Answers as a model that makes a reminder: from the time that it was told, without a word about the zone.
fn reminding() -> Provider {
    Provider::answering(|request| {
        let asked = request.prompt().as_str().unwrap().lines().next().unwrap().to_owned();
        if last_message(request)["role"] == "tool" {
            return Reply::Stream(openai(&["I will remind you."], &[]));
        }
        let reminder = |slug: &str, schedule: String| {
            call(
                "schedule_create",
                &json!({"slug": slug, "kind": "at", "schedule": schedule, "prompt": format!("Say: {slug}")}),
            )
        };
        match asked.as_str() {
            "Remind me tomorrow at 9 to call Ana." => {
                let tomorrow = told(request).date().tomorrow().unwrap();
                reminder("call-ana", format!("{tomorrow}T09:00"))
            }
            "Remind me at once." => {
                let soon = jiff::Timestamp::now().checked_add(2.seconds()).unwrap();
                reminder("at-once", soon.to_string())
            }
            other => Reply::Stream(openai(&[&format!("You said: {other}")], &[])),
        }
    })
}

#[test]
fn tomorrow_at_nine_is_nine_where_the_person_is() {
    let provider = reminding();
    let system = start(&provider);
    let session = system.session();
    system.say(&session, "Remind me tomorrow at 9 to call Ana.").expect(200);
    let received = provider.received();
    let now = jiff::Timestamp::now().to_zoned(TimeZone::get(ZONE).unwrap()).datetime();
    let told = told(&received[0]);
    let ago = told.until(now).unwrap().total(jiff::Unit::Second).unwrap();
    assert!((0.0..180.0).contains(&ago), "{told} was said at {now}");
    // What the person typed is still the end of the message.
    assert!(prompt(&received[0]).ends_with("\n\nRemind me tomorrow at 9 to call Ana."), "{}", prompt(&received[0]));
    let expected = told.date().tomorrow().unwrap().at(9, 0, 0, 0).in_tz(ZONE).unwrap().timestamp();
    let schedule = system.get("/api/schedules/call-ana").expect(200).at("/schedule");
    assert_eq!(schedule["timezone"], ZONE);
    assert_eq!(schedule["nextFireAt"], expected.as_millisecond());
}

/// A provider caches the beginning of a request only while it is the same, byte for byte. A message is sent again with its own time.
#[test]
fn each_message_has_the_time_of_its_receipt() {
    let provider = reminding();
    let system = start(&provider);
    let session = system.session();
    for text in ["One.", "Two.", "Three."] {
        system.say(&session, text).expect(200);
    }
    let received = provider.received();
    let messages = |turn: usize| received[turn].body["messages"].as_array().unwrap();
    for (turn, request) in received.iter().enumerate().take(3) {
        told(request);
        let texts: Vec<String> = messages(turn).iter().map(|message| message["content"].to_string()).collect();
        let with_time = texts.iter().filter(|text| text.contains("The time, as ken knows it")).count();
        assert_eq!(with_time, turn + 1, "{texts:?}");
    }
    let second = messages(1);
    assert_eq!(&messages(2)[..second.len()], &second[..]);
}

#[test]
fn a_reminder_comes_once_where_it_was_asked_for_and_can_be_read_afterwards() {
    let provider = reminding();
    let system = start(&provider);
    let session = system.session();
    system.say(&session, "Remind me at once.").expect(200);
    let transcript = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c");
    let reminders = || {
        let page = system.get(&transcript).expect(200).json();
        let texts = page["exchanges"].as_array().unwrap().iter().map(|one| one["assistant"]["text"].to_string());
        texts.filter(|text| text.contains("You said: Say: at-once")).count()
    };
    until("the reminder", || reminders() == 1);
    let shown = |arguments: &[&str]| String::from_utf8(system.ken(arguments).stdout).unwrap();
    assert!(!shown(&["schedule", "list"]).contains("at-once"));
    assert!(shown(&["schedule", "list", "--all"]).contains("at-once"));
    let runs = shown(&["schedule", "runs", "at-once"]);
    assert_eq!(runs.lines().filter(|line| line.contains("ok") || line.contains("done")).count(), 1, "{runs}");
    assert_eq!(reminders(), 1);
    // The runs of schedules do not flood the list of sessions.
    let listed = shown(&["sessions"]);
    assert!(listed.contains("Remind me at once.") && !listed.contains("schedule:"), "{listed}");
    assert_eq!(shown(&["sessions", "--all"]).matches("schedule:").count(), 1);
    // Who forgot the name sees the runs of all schedules, newest first, each with its schedule and how it ended.
    for slug in ["other", "runs"] {
        system
            .post("/api/schedules", &json!({"slug": slug, "kind": "every", "schedule": "1d", "prompt": "Hi."}))
            .expect(201);
        system.ken(&["schedule", "run", slug, "--wait"]);
    }
    let rows = |arguments: &[&str]| -> Vec<Vec<String>> {
        shown(arguments).lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    };
    let of = |rows: &[Vec<String>]| -> Vec<String> { rows.iter().map(|row| row[1].clone()).collect() };
    let all = rows(&["schedule", "runs"]);
    assert_eq!(of(&all), ["runs", "other", "at-once"]);
    assert!(all.iter().all(|row| row.contains(&"ok".to_owned())), "{all:?}");
    assert_eq!(of(&rows(&["schedule", "runs", "-n", "2"])), ["runs", "other"]);
    assert_eq!(of(&rows(&["schedule", "runs", "runs"])), ["runs"]);
    let first: Value = serde_json::from_str(shown(&["schedule", "runs", "--json"]).lines().next().unwrap()).unwrap();
    assert_eq!((&first["slug"], &first["runId"]), (&json!("runs"), &json!(all[0][0])));
    let page = system.get("/api/schedule-runs?limit=1").expect(200).json();
    let next = system.get(&format!("/api/schedule-runs?after={}", page["page"]["after"].as_str().unwrap())).expect(200);
    assert_eq!((&page["runs"][0]["slug"], next.json()["runs"].as_array().unwrap().len()), (&json!("runs"), 2));
}
