//! Several homes on one PostgreSQL database, each with all its programs: they share what they know and do, and what one of them leaves behind
//! when it is lost goes on at another.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ken_tests::bot_api::{BotApi, SECRET, TOKEN};
use ken_tests::provider::{Provider, Reply};
use ken_tests::{
    Answer, Browser, Builder, Client, Postgres, Stream, System, chromium, number, otlp, root, scripted_builder, until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::database_server::{Writer, home_on, is_ready, runs, stored, writers};

fn scripted_on(url: &str) -> System {
    scripted_builder().config(&format!("[store]\nurl = \"{url}\"\n")).start()
}

/// A host as `ken hosts list` shows it.
#[derive(Debug)]
pub(super) struct Seen {
    id: String,
    pub(super) state: String,
    has_duties: bool,
    here: bool,
}

pub(super) fn hosts(system: &System) -> Vec<Seen> {
    let host = |line: &str| {
        let host: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| host[name].as_str().unwrap().to_owned();
        let flag = |name: &str| host[name].as_bool().unwrap();
        Seen { id: text("id"), state: text("state"), has_duties: flag("has_duties"), here: flag("here") }
    };
    runs(system, &["hosts", "list", "--json"]).lines().map(host).collect()
}

pub(super) fn add(system: &System, title: &str) -> u16 {
    let mut client = Client::connect(system.address());
    client.request("POST", "/api/knowledge").json(&json!({"title": title, "content": "c"})).send().status
}

/// Sends a prompt to a session without waiting for its end. Returns the id of its submission.
pub(super) fn send(system: &System, session: &str, text: &str) -> String {
    let body = json!({"connector": "tui", "actorId": "a", "conversationId": "c", "text": text, "session": session});
    let mut client = system.client();
    let request = client.request("POST", "/api/chat/events").header("Prefer", "respond-async");
    request.json(&body).send().expect(202).text("/submissionId")
}

#[test]
fn two_homes_share_sessions_streams_and_knowledge() {
    let Some(server) = Postgres::start(&[]) else { return };
    let url = server.url(&server.database());
    let (first, second) = (home_on(&url), home_on(&url));
    until("both hosts are seen", || hosts(&first).iter().filter(|host| host.state == "active").count() == 2);
    assert_eq!(hosts(&second).iter().filter(|host| host.has_duties).count(), 1);
    assert_eq!([add(&first, "by the first"), add(&second, "by the second")], [201, 201]);
    for system in [&first, &second] {
        let known = runs(system, &["knowledge", "list", "--json"]);
        assert!(known.contains("by the first") && known.contains("by the second"), "{known}");
    }
    let session = first.session();
    first.say(&session, "what is 2+2").expect(200);
    second.say(&session, "what is 3+3").expect(200);
    let transcript =
        first.get(&format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c"));
    let text = String::from_utf8(transcript.body.clone()).unwrap();
    assert!(text.contains("2+2") && text.contains("3+3"), "{text}");
}

#[test]
fn a_reader_on_one_host_sees_at_once_what_is_written_on_the_other() {
    let Some(server) = Postgres::start(&[]) else { return };
    let url = server.url(&server.database());
    let (first, second) = (home_on(&url), home_on(&url));
    let mut client = first.client();
    client.request("PUT", "/streams/news").header("Content-Type", "application/json").send().expect(201);
    let mut reader: Stream = second.attach("/streams/news?offset=-1&live=sse");
    let mut times = Vec::new();
    for number in 0..200 {
        let begun = Instant::now();
        let append = client.request("POST", "/streams/news").header("Content-Type", "application/json");
        append.body(format!("[{number}]").as_bytes()).send();
        while reader.frame().expect("the stream goes on").data() != json!([number]) {}
        times.push(begun.elapsed());
    }
    times.sort();
    println!(
        "an event that is appended on one host reaches a reader on the other after {:?} (median), {:?} (longest), with the append itself",
        times[100], times[199]
    );
    assert!(times[100] < Duration::from_millis(500), "{:?}", times[100]);
}

/// A store stands still while others migrate the schema, and goes on: it writes nothing into tables that it does not know, on the connection
/// that it still has.
#[test]
fn a_store_that_stood_still_during_a_migration_does_not_write() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let sql = |sql: &str| server.sql(&database, &format!("SET search_path = ken; {sql}"));
    let mut first = home_on(&server.url(&database));
    let stands = Pid::from_raw(first.pid("store"));
    kill(stands, Signal::SIGSTOP).unwrap();
    // As before the last migration.
    sql("ALTER TABLE schedules DROP COLUMN stream; UPDATE schema_version SET version = version - 1");
    sql("UPDATE hosts SET renewed_at = renewed_at - 20000");
    let migrated = home_on(&server.url(&database));
    assert_eq!(add(&migrated, "t"), 201);
    let seen = sql("SELECT active, leads FROM hosts ORDER BY renewed_at");
    assert_eq!(seen, "0|0\n1|1", "the epoch of a silent host ends with the migration");
    // And now those of a newer ken.
    sql("UPDATE schema_version SET version = 99");
    kill(stands, Signal::SIGCONT).unwrap();
    until("it sees the newer tables", || {
        String::from_utf8(first.ken(&["status"]).stderr).unwrap().contains("has version 99")
    });
    assert_eq!(add(&first, "late"), 503);
    assert_eq!(sql("SELECT count(*) FROM knowledge WHERE title = 'late'"), "0");
    assert_eq!(sql("SELECT active, leads FROM hosts ORDER BY renewed_at"), seen);
    // A system that is started now is ready for a server that fits, and says that this one does not.
    assert_eq!(first.down(), Some(0));
    let started = first.ken(&["up", "-d", "--port", "0", "--cognitive-port", "0"]);
    let said = String::from_utf8(started.stderr).unwrap();
    assert!(started.status.success() && said.starts_with("ken: store: ") && said.contains("has version 99"), "{said}");
    assert!(first.ken(&["down"]).status.success());
}

/// Both gateways get the same request at the same time. `KEN_PAIRS=10000` is the long form.
#[test]
fn a_request_that_two_gateways_get_has_one_effect() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let url = server.url(&database);
    let (first, second) = (home_on(&url), home_on(&url));
    let pairs = number("KEN_PAIRS", 150);
    let post = |client: &mut Client, pair: u64| -> Answer {
        let body =
            json!({"connector": "tui", "actorId": "a", "conversationId": format!("c{pair}"), "text": "what is 2+2"});
        loop {
            let request = client.request("POST", "/api/chat/events").header("Prefer", "respond-async");
            let answer = request.header("Idempotency-Key", &format!("pair-{pair}")).json(&body).send();
            // The other gateway is at it.
            if answer.status != 409 {
                return answer;
            }
            sleep(Duration::from_millis(5));
        }
    };
    let mut clients = [&first, &second].map(|system| Client::connect(system.address()));
    for pair in 0..pairs {
        let [one, other] = &mut clients;
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| post(other, pair));
            (post(one, pair), other.join().unwrap())
        });
        for pointer in ["/submissionId", "/event/id", "/event/receivedAt", "/session/id", "/offset"] {
            assert_eq!(one.at(pointer), other.at(pointer), "pair {pair}");
            assert!(!one.at(pointer).is_null(), "{one:?}");
        }
    }
    let count =
        |table: &str| -> u64 { server.sql(&database, &format!("SELECT count(*) FROM ken.{table}")).parse().unwrap() };
    println!("{pairs} pairs of requests: {} events, {} turns", count("events"), count("submissions"));
    assert_eq!([count("events"), count("submissions")], [pairs; 2]);
}

#[test]
fn two_schedulers_make_one_record_for_each_slot() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let url = server.url(&database);
    let first = home_on(&url);
    // The clock of the second machine is an hour ahead.
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let clock = format!("{now}={}*1", now + 3_600_000);
    let second = Builder::default().config(&format!("[store]\nurl = \"{url}\"\n")).env("KEN_CLOCK", &clock).start();
    for (system, slug) in [(&first, "of-first"), (&second, "of-second")] {
        let body = json!({"slug": slug, "kind": "every", "schedule": "1s", "prompt": "Hello."});
        system.post("/api/schedules", &body).expect(201);
    }
    let count = |slug: &str| -> u64 {
        let sql = format!(
            "SELECT count(*) FROM ken.schedule_runs JOIN ken.schedules USING (schedule) WHERE slug = '{slug}' AND slot_at IS NOT NULL"
        );
        server.sql(&database, &sql).parse().unwrap()
    };
    until("both have fired for a while", || ["of-first", "of-second"].iter().all(|slug| count(slug) >= 8));
    for slug in ["of-first", "of-second"] {
        first.client().request("PATCH", &format!("/api/schedules/{slug}")).json(&json!({"enabled": false})).send();
        let slots = server.sql(
            &database,
            &format!("SELECT slot_at FROM ken.schedule_runs JOIN ken.schedules USING (schedule) WHERE slug = '{slug}' AND slot_at IS NOT NULL ORDER BY 1"),
        );
        let slots: Vec<i64> = slots.lines().map(|slot| slot.parse().unwrap()).collect();
        println!("{slug}: {} slots", slots.len());
        let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
        assert!(
            slots.last().is_some_and(|last| (now - last).abs() < 20_000),
            "the clock of the server does not count: {slots:?}"
        );
        assert!(slots.len() >= 6, "{slots:?}");
        assert!(slots.windows(2).all(|pair| pair[1] - pair[0] == 1_000), "one is missing or twice there: {slots:?}");
    }
}

/// The first store is stopped and not killed: it does not know that its time is over.
#[test]
fn a_store_that_was_stopped_for_too_long_has_lost_its_leases() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let url = server.url(&database);
    let first = scripted_on(&url);
    let session = first.session();
    let submission = send(&first, &session, "hold");
    let holder = || {
        server.sql(&database, &format!("SELECT lease || ' ' || holder FROM ken.submissions WHERE id = '{submission}' AND open = 0 AND lease > 0"))
    };
    until("the turn runs on the first host", || !holder().is_empty());
    let before = holder();
    let second = scripted_on(&url);
    let store = first.pid("store");
    kill(Pid::from_raw(store), Signal::SIGSTOP).unwrap();
    let begun = Instant::now();
    until("the second host goes on with the turn", || !holder().is_empty() && holder() != before);
    let took = begun.elapsed();
    println!("taken over after {took:?}");
    assert!(took > Duration::from_secs(8) && took < Duration::from_secs(25), "{took:?}");
    until("the second host has the duties", || hosts(&second).iter().any(|host| host.here && host.has_duties));
    assert_eq!(add(&second, "by the second"), 201);
    let taken = holder();
    kill(Pid::from_raw(store), Signal::SIGCONT).unwrap();
    // Its agent still has the lease of the first claim, and writes with it.
    let lease = json!({"submission_id": submission, "number": 1});
    let events = json!([]);
    let append = |name: &str, more: &[String]| {
        let arguments = [format!("lease={lease}"), "first_index=0".to_owned(), format!("events={events}")];
        let arguments: Vec<&str> = arguments.iter().chain(more).map(String::as_str).collect();
        first.ken(&[&["call", "--timeout", "20s", "store", name], &arguments[..]].concat())
    };
    until("the first host works again", || is_ready(&first));
    for (name, more) in
        [("submissions.append", vec![]), ("submissions.settle", vec!["outcome=\"completed\"".to_owned()])]
    {
        let refused = append(name, &more);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains("is not the newest"), "{name}: {said}");
    }
    assert_eq!(holder(), taken, "the turn stays where it is");
    assert_eq!(add(&first, "by the first again"), 201);
    assert_eq!(hosts(&first).iter().filter(|host| host.state == "active").count(), 2);
    let titles = server.sql(&database, "SELECT title FROM ken.knowledge WHERE title LIKE 'by the%' ORDER BY entry");
    assert_eq!(titles, "by the second\nby the first again");
}

/// All processes of a home end at once while both are written to.
#[test]
fn nothing_is_lost_or_doubled_when_a_host_is_lost() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let url = server.url(&database);
    let (mut first, second) = (scripted_on(&url), scripted_on(&url));
    let writing = writers(&first);
    let others = ["x", "y", "z"].map(|name| Writer::start(&second, name));
    let session = first.session();
    let turns: Vec<String> = (0..3).map(|_| send(&first, &first.session(), "pause")).collect();
    let open = send(&first, &session, "hold");
    let holder =
        || server.sql(&database, &format!("SELECT holder FROM ken.submissions WHERE id = '{open}' AND open = 0"));
    // Mostly on the host that has taken it, but the other one may be faster.
    until("the turn runs", || !holder().is_empty());
    let other = hosts(&second).into_iter().find(|host| host.here).expect("the second host").id;
    sleep(Duration::from_secs(2));
    first.cut_power();
    let begun = Instant::now();
    let unsettled = |id: &str| {
        server.sql(&database, &format!("SELECT 1 FROM ken.submissions WHERE id = '{id}' AND live = 1")) == "1"
    };
    until("the turns of the lost host end", || !turns.iter().any(|turn| unsettled(turn)));
    until("the open turn goes on at the other host", || holder() == other);
    println!("the open turn went on after {:?}", begun.elapsed());
    sleep(Duration::from_millis(500));
    let written = writing.into_iter().chain(others).map(Writer::end);
    let acknowledged: Vec<String> = written.flat_map(|written| written.acknowledged).collect();
    let stored = stored(&second);
    let lost: Vec<_> = acknowledged.iter().filter(|number| !stored.contains_key(*number)).collect();
    let doubled: Vec<_> = stored.iter().filter(|(_, times)| **times > 1).collect();
    println!("1 host lost: {} acknowledged, {} lost, {} doubled", acknowledged.len(), lost.len(), doubled.len());
    assert!(acknowledged.len() > 100 && lost.is_empty() && doubled.is_empty(), "lost {lost:?}, doubled {doubled:?}");
    first.up();
    until("the lost host is back", || is_ready(&first));
    assert_eq!(add(&first, "again"), 201);
}

/// Gives a home the id of another one, as a copy of that home has it.
fn copy_home(from: &System, to: &System) {
    for name in ["host", "host.inode"] {
        let place = |system: &System| system.home().join("state/store").join(name);
        std::fs::copy(place(from), place(to)).unwrap();
    }
}

fn is_a_copy(home: &System) -> bool {
    String::from_utf8(home.ken(&["status"]).stderr).unwrap().contains("one home is a copy of the other")
}

/// Meanwhile each of them is written to. The copy is a home that has the id of the third host.
#[test]
fn of_three_hosts_one_is_lost_one_restarts_and_a_copy_of_one_is_refused() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let url = server.url(&database);
    let (first, mut second, mut third, mut copy) =
        (scripted_on(&url), scripted_on(&url), scripted_on(&url), scripted_on(&server.url(&server.database())));
    assert_eq!(copy.down(), Some(0));
    let active = || hosts(&first).iter().filter(|host| host.state == "active").count();
    until("all three are seen", || active() == 3);
    let writing = writers(&first);
    let others = [(&second, "x"), (&third, "y"), (&third, "z")].map(|(system, name)| Writer::start(system, name));
    let turns: Vec<String> = [&first, &second, &third]
        .iter()
        .flat_map(|system| (0..3).map(|_| send(system, &system.session(), "pause")))
        .collect();
    let open = send(&second, &second.session(), "hold");
    sleep(Duration::from_secs(2));
    second.cut_power();
    assert_eq!(third.down(), Some(0));
    third.up();
    let unsettled = |id: &String| {
        server.sql(&database, &format!("SELECT 1 FROM ken.submissions WHERE id = '{id}' AND live = 1")) == "1"
    };
    until("the turns of all hosts end", || !turns.iter().any(unsettled));
    until("the lost host is seen to be away", || active() == 2);
    let held = || {
        let sql = format!(
            "SELECT name FROM ken.submissions JOIN ken.hosts ON host = holder WHERE id = '{open}' AND open = 0 AND active = 1"
        );
        !server.sql(&database, &sql).is_empty()
    };
    until("the open turn goes on at another host", held);
    copy_home(&third, &copy);
    std::fs::copy(third.home().join("ken.toml"), copy.home().join("ken.toml")).unwrap();
    copy.up();
    until("the copy is refused", || is_a_copy(&copy));
    assert!(is_ready(&third) && add(&copy, "by the copy") == 503);
    let ids: BTreeSet<String> = hosts(&first).into_iter().map(|host| host.id).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(copy.down(), Some(0));
    second.up();
    until("all three are seen again", || active() == 3);
    sleep(Duration::from_millis(500));
    let written: Vec<Vec<String>> = writing.into_iter().chain(others).map(|writer| writer.end().acknowledged).collect();
    let counts: Vec<usize> = written.iter().map(Vec::len).collect();
    let stored = stored(&second);
    let lost: Vec<_> = written.iter().flatten().filter(|number| !stored.contains_key(*number)).collect();
    let doubled: Vec<_> = stored.iter().filter(|(_, times)| **times > 1).collect();
    println!("3 hosts: acknowledged {counts:?}, {} lost, {} doubled", lost.len(), doubled.len());
    assert!(counts.iter().all(|count| *count > 20) && lost.is_empty() && doubled.is_empty(), "{lost:?} {doubled:?}");
}

/// The host with the duties sends the traces of all. Each names the host on which the work was done.
#[test]
fn traces_name_the_host_that_has_done_the_work() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let collector = Provider::start(vec![Reply::Status(200, Vec::new(), "{}".to_owned())]);
    let config = format!("[store]\nurl = \"{}\"\n[telemetry]\notlp = \"{}\"\n", server.url(&database), collector.url());
    let [first, second] = [(); 2].map(|()| Builder::default().config(&config).start());
    until("the export has begun", || first.call("store", "telemetry.ended", &[])["since"].is_string());
    for system in [&first, &second, &first, &second] {
        let session = system.session();
        system.say(&session, "what is 2+2").expect(200);
    }
    let attribute = |of: &Value, name: &str| -> Option<String> {
        let attributes = of["attributes"].as_array().unwrap();
        let found = attributes.iter().find(|attribute| attribute["key"] == name)?;
        found["value"]["stringValue"].as_str().map(str::to_owned)
    };
    // The id of each turn, the id and the name of its host.
    let traced = || -> BTreeSet<String> {
        let received = collector.received();
        let resources = received.iter().flat_map(otlp::resources);
        let of = |resource: Value| {
            let [id, name] = ["service.instance.id", "host.name"]
                .map(|name| attribute(&resource["resource"], name).expect("a host"));
            let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap().clone();
            let turns: Vec<String> = spans.iter().filter_map(|span| attribute(span, "ken.run.id")).collect();
            turns.into_iter().map(move |turn| format!("{turn}|{id}|{name}"))
        };
        resources.flat_map(of).collect()
    };
    until("all traces have come", || traced().len() >= 4);
    let sql = "SELECT id, holder, name FROM ken.submissions JOIN ken.hosts ON host = holder";
    assert_eq!(traced(), server.sql(&database, sql).lines().map(str::to_owned).collect());
    let hosts: BTreeSet<String> =
        traced().iter().filter_map(|line| line.split('|').nth(1).map(str::to_owned)).collect();
    println!("4 turns of {} hosts", hosts.len());
    assert_eq!(hosts.len(), 2, "{hosts:?}");
}

/// The session works in a folder of the first host.
#[test]
fn who_waits_for_a_host_is_told_so() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let url = server.url(&database);
    let (mut first, second) = (scripted_on(&url), scripted_on(&url));
    let folder = tempfile::tempdir().unwrap();
    runs(&first, &["workspace", "trust", folder.path().to_str().unwrap()]);
    // As the console does.
    let of = |name: &str, value: Value| {
        let mut body = json!({"connector": "tui", "actorId": "local-tui", "conversationId": "local-tui"});
        body[name] = value;
        body
    };
    let session = first.post("/api/chat/sessions", &of("workspace", json!(folder.path()))).expect(201);
    let session = session.text("/session/id");
    let say = |system: &System| {
        let mut body = of("session", json!(session));
        body["text"] = json!("hello");
        let mut client = system.client();
        let request = client.request("POST", "/api/chat/events").header("Prefer", "respond-async");
        request.json(&body).send().expect(202).text("/submissionId")
    };
    let done = say(&first);
    let state = |id: &str| server.sql(&database, &format!("SELECT state FROM ken.submissions WHERE id = '{id}'"));
    until("the first turn ends", || state(&done) == "completed");
    // What the turn has changed is known on its host alone.
    let name = server.sql(&database, "SELECT DISTINCT name FROM ken.hosts");
    let said = |system: &System, words: &[&str]| String::from_utf8(system.ken(words).stderr).unwrap();
    for run in [&done[..], &done[done.len() - 8..]] {
        let elsewhere = said(&second, &["undo", run]);
        assert!(elsewhere.contains(&format!("{done} worked on the host {name}")), "{elsewhere}");
        assert!(said(&first, &["diff", run]).contains("the journal has no changes of a run"));
    }
    assert!(runs(&second, &["why", &done]).contains(&format!("host      {name}")));
    assert!(!runs(&first, &["why", &done]).contains("host  "));
    first.cut_power();
    let turns = [(); 2].map(|()| say(&second));
    let status = || String::from_utf8(second.ken(&["status"]).stderr).unwrap();
    until("the status says so", || status().contains("2 turns wait for the host "));
    let seen = server.sql(
        &database,
        "SELECT name, to_char(to_timestamp(renewed_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') FROM ken.hosts ORDER BY renewed_at LIMIT 1",
    );
    let (name, at) = seen.split_once('|').unwrap();
    assert!(status().contains(&format!("wait for the host {name}, last seen at {at}")), "{}", status());
    let waits = format!("the host {name}, which is away; it was last seen at {at}");
    let why = second.get(&format!("/api/why/{}", turns[0])).expect(200).text("/cause");
    assert!(why.contains(&waits), "{why}");
    assert!(runs(&second, &["why", &turns[0]]).contains(at));
    assert!(runs(&second, &["hosts", "list", "--json"]).contains("\"waiting\":2"));
    if let Some(program) = chromium() {
        let browser = Browser::open(&program);
        let tab = browser.tab(1280, 800, false);
        tab.open(&format!("{}/#/chat/{session}", second.url()));
        tab.sees(&waits);
        tab.picture(&root().join("target/console/waits-for-a-host.png"));
    }
    first.up();
    until("the turns end when the host is back", || turns.iter().all(|turn| state(turn) == "completed"));
    assert!(!status().contains("wait for the host"));
}

/// A platform that is asked by two at a time refuses one of them.
#[test]
fn one_host_asks_the_messaging_platform_and_another_one_goes_on_when_it_is_lost() {
    let Some(server) = Postgres::start(&[]) else { return };
    let url = server.url(&server.database());
    let platform = BotApi::start();
    let home = || {
        scripted_builder()
            .config(&format!("[store]\nurl = \"{url}\"\n"))
            .secrets(&format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n"))
            .env("MESSENGER_API_BASE_URL", &platform.url())
            .env("MESSENGER_APPROVED_USER_IDS", "7")
            .env("MESSENGER_MODE", "poll")
            .start()
    };
    let (mut first, second) = (home(), home());
    let polls =
        |system: &System| system.get("/api/connectors/messenger/health").expect(200).at("/pollerRunning") == true;
    let say = |id: u64| {
        platform.push(json!({"update_id": id, "message": {"message_id": id + 1_000, "date": 1, "text": "hello",
            "from": {"id": 7, "is_bot": false, "first_name": "Ada"}, "chat": {"id": 7, "type": "private"}}}));
    };
    until("the first host asks", || polls(&first));
    (1..=10).for_each(say);
    until("all are answered", || platform.texts(7).len() >= 10);
    assert!(!polls(&second));
    first.cut_power();
    (11..=15).for_each(say);
    until("the second host answers", || platform.texts(7).len() >= 15);
    sleep(Duration::from_secs(1));
    assert_eq!(platform.texts(7).len(), 15, "an answer came twice");
    assert!(polls(&second));
}

#[test]
fn hosts_are_listed_and_forgotten_and_a_copy_of_a_home_is_named() {
    let Some(server) = Postgres::start(&[]) else { return };
    let url = server.url(&server.database());
    let (mut first, mut second) = (home_on(&url), home_on(&url));
    until("the second host is seen", || hosts(&first).len() == 2);
    let seen = hosts(&first);
    assert!(seen.iter().all(|host| host.state == "active"), "{seen:?}");
    assert_eq!(
        seen.iter().map(|host| (host.has_duties, host.here)).collect::<BTreeSet<_>>(),
        [(true, true), (false, false)].into()
    );
    let other = seen.iter().find(|host| !host.here).unwrap().id.clone();
    assert!(runs(&second, &["status", "--hosts"]).contains(&other));
    let refused = first.ken(&["hosts", "rm", &other]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("it is active"));
    assert!(!first.ken(&["hosts", "rm", "nobody"]).status.success());
    // A host that ends says so, and need not be silent first.
    for _ in 0..2 {
        assert_eq!(second.down(), Some(0));
        assert!(hosts(&first).iter().any(|host| host.id == other && host.state == "away"), "{:?}", hosts(&first));
        second.up();
        until("it is back", || hosts(&first).iter().all(|host| host.state == "active"));
    }
    assert_eq!(second.down(), Some(0));
    assert_eq!(runs(&first, &["hosts", "rm", &other[..8]]).trim(), other);
    assert_eq!(hosts(&first).len(), 1);
    copy_home(&first, &second);
    second.up();
    until("the copy is refused", || is_a_copy(&second));
    assert!(is_ready(&first));
    // It is a home like any other once the first one is gone.
    assert_eq!(first.down(), Some(0));
    until("the copy works", || is_ready(&second));
    second.kill("store");
    until("it works again", || is_ready(&second));
}
