//! Sessions that are deleted for good.

use ken_store::clock::Clock;
use ken_store::ops;
use ken_store::tables::sqlite::Sqlite;
use ken_types::config::Retention;
use ken_types::ops::ids::{FindIds, IdKind, IdsFind, MAX_FOUND};
use ken_types::ops::store::*;
use ken_types::{Code, Offset};

use crate::kit::*;

const WORD: &str = "zyzzogeton";
const ANSWER: &str = "quoxapith";

fn of(id: &str) -> OwnedSession {
    OwnedSession { scope: None, id: ken_types::id::SessionId(id.into()) }
}

async fn put(kit: &Kit, title: &str, content: &str, turn: Option<&str>) {
    let args = PutKnowledge {
        actor_id: Some("a".into()),
        source: "agent".into(),
        created_by: "agent".into(),
        turn: turn.map(sub),
        ..entry(title, content)
    };
    kit.write::<KnowledgePut>(args).await.unwrap();
}

/// Runs the background work that is left.
async fn settle(kit: &Kit) {
    for _ in 0..400 {
        kit.turn_clock(150).await;
    }
}

/// Fills pages before, between and after the texts that are deleted.
async fn noise(kit: &Kit, from: usize, to: usize) {
    for number in from..to {
        let id = format!("tui-n{number}");
        kit.session(&id, "a").await;
        let text = format!("noise {number} {}", "lorem ipsum ".repeat(number % 40));
        kit.talk(&id, &format!("n{number}"), &text, &format!("answer {text}")).await;
        put(kit, &format!("note {number}"), &text, Some(&format!("n{number}"))).await;
    }
}

async fn secret(kit: &Kit) {
    kit.session("tui-x", "a").await;
    for number in 0..12 {
        let long = "padding ".repeat(number * 50);
        kit.talk(
            "tui-x",
            &format!("x{number}"),
            &format!("{long} {WORD}{number}"),
            &format!("{ANSWER}{number} {long}"),
        )
        .await;
        put(kit, &format!("{WORD} {number}"), &format!("{long}{ANSWER}"), Some(&format!("x{number}"))).await;
        noise(kit, 100 + number * 3, 103 + number * 3).await;
    }
    let rename = kit.accept_of(
        "a",
        &format!("/rename {WORD}"),
        Target::Selector("tui-x".into()),
        Action::Name { name: WORD.into() },
    );
    kit.write::<ChatAccept>(rename).await.unwrap();
}

async fn found(kit: &Kit, query: &str) -> usize {
    let args = Search { query: query.into(), scope: Some(scope("a")), limit: 5, vector: None, session: None };
    let memory = kit.read::<MemorySearch>(args.clone()).await.unwrap().found.len();
    memory + kit.read::<KnowledgeSearch>(args).await.unwrap().found.len()
}

#[tokio::test]
async fn nothing_of_it_is_left_in_any_file() {
    let mut kit = Kit::new();
    noise(&kit, 0, 60).await;
    secret(&kit).await;
    noise(&kit, 200, 260).await;
    assert!(found(&kit, WORD).await > 0 && kit.holds(WORD) && kit.holds(ANSWER));
    kit.write::<SessionsPurge>(of("tui-x")).await.unwrap();
    assert_eq!(found(&kit, WORD).await, 0);
    // Nor is it shown beside an id while its rows are still there.
    let kinds = vec![IdKind::Turn, IdKind::Approval, IdKind::Knowledge, IdKind::Event];
    let shown = kit.read::<IdsFind>(FindIds { word: None, kinds, limit: MAX_FOUND }).await.unwrap().ids;
    let labels: Vec<_> = shown.into_iter().filter_map(|found| found.label).collect();
    assert!(labels.len() > 10 && labels.iter().all(|label| !label.contains(WORD)), "{labels:?}");
    let gone = |error: ken_types::Error| assert_eq!(error.code, Code::Gone, "{error}");
    gone(kit.page("tui-x", Offset::Start).await.unwrap_err());
    gone(kit.write::<SessionsPurge>(of("tui-x")).await.unwrap_err());
    gone(kit.write::<SessionsArchive>(of("tui-x")).await.unwrap_err());
    let again = CreateSession { scope: scope("a"), fresh: fresh("tui-x") };
    gone(kit.write::<SessionsCreate>(again).await.unwrap_err());
    let prompt = kit.accept_of("a", "again", Target::SelectorOrNew(fresh("tui-x")), Action::Find);
    gone(kit.write::<ChatAccept>(prompt).await.unwrap_err());
    settle(&kit).await;
    kit.restart();
    assert!(!kit.holds(WORD), "the prompt");
    assert!(!kit.holds(ANSWER), "the answer");
    assert!(found(&kit, "noise 250").await > 0);
    gone(kit.page("tui-x", Offset::Start).await.unwrap_err());
}

#[tokio::test]
async fn a_restart_in_the_middle_continues() {
    let mut kit = Kit::new();
    secret(&kit).await;
    let damaged = kit.dir.path().join("ken.db-wal.damaged-17");
    std::fs::write(&damaged, WORD).unwrap();
    kit.write::<SessionsPurge>(of("tui-x")).await.unwrap();
    for _ in 0..6 {
        kit.turn_clock(10).await;
        kit.restart();
    }
    settle(&kit).await;
    kit.restart();
    assert!(!kit.holds(WORD) && !kit.holds(ANSWER));
}

#[tokio::test]
async fn a_session_that_is_deleted_during_the_pass_for_another_is_not_left_either() {
    let mut kit = Kit::new();
    noise(&kit, 0, 60).await;
    kit.session("tui-y", "a").await;
    kit.talk("tui-y", "y1", "first", "first").await;
    secret(&kit).await;
    kit.write::<SessionsPurge>(of("tui-y")).await.unwrap();
    // Its rows are deleted and its pass has begun, but there is more than one slice of pages.
    for _ in 0..6 {
        kit.turn_clock(150).await;
    }
    kit.write::<SessionsPurge>(of("tui-x")).await.unwrap();
    settle(&kit).await;
    kit.restart();
    assert!(!kit.holds(WORD) && !kit.holds(ANSWER));
}

#[tokio::test]
async fn a_running_turn_is_stopped_first_and_one_that_does_not_stop_is_ended() {
    let mut kit = Kit::new();
    kit.session("tui-x", "a").await;
    kit.prompt_with("tui-x", "x1", WORD, Policy::Queue).await;
    kit.prompt_with("tui-x", "x2", WORD, Policy::Queue).await;
    let claim = kit.claim_one(1).await;
    kit.write::<SessionsPurge>(of("tui-x")).await.unwrap();
    let aborts = kit.claims(1, 0).await.aborts;
    assert_eq!(aborts, std::slice::from_ref(&claim.lease));
    kit.turn_clock(1_000).await;
    // It may still write its last events.
    kit.add_events(&claim.lease, 0, vec![text_delta("x1", 0, ANSWER)]).await.unwrap();
    kit.clock.advance(20_000);
    settle(&kit).await;
    let late = kit.finish(&claim.lease, 1, ANSWER).await.unwrap_err();
    assert!(matches!(late.code, Code::NotFound | Code::Conflict), "{late}");
    kit.restart();
    assert!(!kit.holds(WORD) && !kit.holds(ANSWER));
}

/// At each point of the deletion of two sessions, one with a turn that does not stop, nothing of them is in a copy, and the others are.
#[tokio::test]
async fn a_copy_has_nothing_of_what_is_being_deleted() {
    let mut kit = Kit::new();
    if kit.is_remote() {
        return; // its own tools copy a server
    }
    noise(&kit, 0, 60).await;
    kit.session("tui-y", "a").await;
    kit.talk("tui-y", "y1", WORD, ANSWER).await;
    secret(&kit).await;
    noise(&kit, 200, 260).await;
    kit.prompt_with("tui-y", "y2", WORD, Policy::Queue).await;
    let claim = kit.claim_one(1).await;
    kit.add_events(&claim.lease, 0, vec![text_delta("y2", 0, ANSWER)]).await.unwrap();
    let exchanges = kit.count("exchanges");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    let one = |file: &std::path::Path, sql: &str| -> String {
        rusqlite::Connection::open(file).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let phase = "SELECT iif(EXISTS (SELECT 1 FROM purges), 'rows',
                            coalesce((SELECT value ->> '$.phase' FROM facts WHERE name = 'purges.pass'), 'none'))";
    for id in ["tui-y", "tui-x"] {
        kit.write::<SessionsPurge>(of(id)).await.unwrap();
    }
    let mut phases = vec![one(&kit.file(), phase)];
    while phases.last().is_some_and(|phase| phase != "none") {
        assert!(phases.len() < 1_000, "the deletion never ends");
        let now = kit.clock.now();
        Sqlite::copy(&kit.file(), &copy, |tables| ops::delete_from_copy(tables, now)).unwrap();
        Sqlite::check(&copy, true).unwrap();
        let bytes = std::fs::read(&copy).unwrap();
        for word in [WORD, ANSWER] {
            let holds = bytes.windows(word.len()).any(|part| part == word.as_bytes());
            assert!(!holds, "{word} in a copy that was made after {phases:?}");
        }
        assert_eq!(one(&copy, phase), "none");
        let left: i64 = one(&copy, "SELECT CAST(count(*) AS TEXT) FROM exchanges").parse().unwrap();
        assert_eq!(left, exchanges - 13, "{phases:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left beside the copy");
        std::fs::remove_file(&copy).unwrap();
        kit.turn_clock(1_000).await;
        phases.push(one(&kit.file(), phase));
    }
    assert!(phases.iter().filter(|phase| *phase == "rows").count() > 1, "{phases:?}");
    // How far the pass is between two steps depends on the speed of the machine.
    kit.store = None;
    let pass = r#"{"phase":"keys","reached":0,"again":true}"#;
    kit.execute(&format!("INSERT INTO facts (name, value) VALUES ('purges.pass', '{pass}')"));
    Sqlite::copy(&kit.file(), &copy, |tables| ops::delete_from_copy(tables, kit.clock.now())).unwrap();
    assert_eq!([&kit.file(), &copy].map(|file| one(file, phase)), ["keys", "none"]);
}

#[tokio::test]
async fn an_idempotency_key_of_it_is_gone_and_those_of_others_are_not() {
    let kit = Kit::new();
    for id in ["tui-x", "tui-xy", "a"] {
        kit.session(id, "a").await;
    }
    let begin = |key: &str| BeginKey { key: key.into(), body: "b".into(), seed: "s".into(), at: at(START) };
    let finish = |key: &str, body: String| FinishKey {
        key: key.into(),
        end: KeyEnd::Answered(KeptAnswer { status: 200, body, headers: Vec::new() }),
    };
    for (key, body) in [
        ("k1", r#"{"session":{"id":"tui-x"},"text":"zyzzogeton"}"#),
        ("k2", r#"{"streamUrl":"http://127.0.0.1:1/agents/orchestrator/tui-x","result":"quoxapith"}"#),
        ("k3", r#"{"session":{"id":"tui-xy"}}"#),
        ("k4", r#"{"a":"a tui-x"}"#),
    ] {
        kit.write::<KeysBegin>(begin(key)).await.unwrap();
        kit.write::<KeysFinish>(finish(key, body.to_owned())).await.unwrap();
    }
    kit.write::<KeysBegin>(begin("late")).await.unwrap();
    kit.write::<SessionsPurge>(of("tui-x")).await.unwrap();
    kit.write::<SessionsPurge>(of("a")).await.unwrap();
    kit.write::<KeysFinish>(finish("late", r#"{"session":{"id":"tui-x"}}"#.to_owned())).await.unwrap();
    for key in ["k1", "k2", "late"] {
        assert_eq!(kit.write::<KeysBegin>(begin(key)).await.unwrap_err().code, Code::Gone, "{key}");
    }
    for key in ["k3", "k4"] {
        assert!(kit.write::<KeysBegin>(begin(key)).await.unwrap().answer.is_some(), "{key}");
    }
}

#[tokio::test]
async fn sessions_are_deleted_when_they_are_older_than_the_configuration_allows() {
    let kit = Kit::new();
    for id in ["tui-1", "tui-2", "tui-3"] {
        kit.session(id, "a").await;
        kit.talk(id, &format!("of-{id}"), WORD, ANSWER).await;
    }
    kit.write::<SessionsArchive>(of("tui-2")).await.unwrap();
    let retention = |text: &str| serde_json::from_str::<Retention>(text).unwrap();
    let is_gone = async |id: &str| kit.page(id, Offset::Start).await.is_err_and(|error| error.code == Code::Gone);
    kit.set_retention(Retention::default()).await.unwrap();
    kit.turn_days(20).await;
    kit.prompt_with("tui-3", "later", "again", Policy::Queue).await;
    kit.turn_days(15).await;
    settle(&kit).await;
    assert!(!is_gone("tui-1").await, "by default they are kept for ever");
    kit.set_retention(retention(r#"{"sessions": 30}"#)).await.unwrap();
    settle(&kit).await;
    assert!(is_gone("tui-1").await && is_gone("tui-2").await && !is_gone("tui-3").await);
    kit.turn_days(31).await;
    settle(&kit).await;
    assert!(is_gone("tui-3").await, "there is a round every day");
    // The deletion for good begins at once, not with the next change. A thread truncates the log, and it does not go by the clock of tests.
    for _ in 0..500 {
        if !kit.holds(WORD) && !kit.holds(ANSWER) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        kit.turn_clock(1_000).await;
    }
    panic!("what was deleted is still in the files");
}

/// The answers that name the sessions are removed by one pass for all of them.
#[tokio::test]
async fn what_was_answered_about_sessions_goes_with_them() {
    let mut kit = Kit::new();
    for number in 0..20 {
        let id = format!("tui-{number}");
        kit.session(&id, "a").await;
        let rename = Action::Name { name: format!("{WORD}{number}") };
        kit.write::<ChatAccept>(kit.accept_of("a", "/rename", Target::Selector(id), rename)).await.unwrap();
    }
    kit.session("tui-new", "a").await;
    kit.turn_clock(31 * DAY_MS).await;
    let late =
        BeginKey { key: "late".into(), body: "b".into(), seed: "s".into(), at: at(START).plus_millis(31 * DAY_MS) };
    kit.write::<KeysBegin>(late.clone()).await.unwrap();
    let answer =
        KeptAnswer { status: 200, body: format!(r#"{{"id":"tui-7","text":"{ANSWER}"}}"#), headers: Vec::new() };
    kit.write::<KeysFinish>(FinishKey { key: "late".into(), end: KeyEnd::Answered(answer) }).await.unwrap();
    kit.prompt_with("tui-new", "n", "again", Policy::Queue).await;
    assert!(kit.holds(WORD) && kit.holds(ANSWER));
    kit.set_retention(serde_json::from_str(r#"{"sessions": 30}"#).unwrap()).await.unwrap();
    settle(&kit).await;
    kit.restart();
    assert!(!kit.holds(WORD) && !kit.holds(ANSWER));
    assert_eq!(kit.write::<KeysBegin>(late).await.unwrap_err().code, Code::Gone);
    kit.page("tui-new", Offset::Start).await.unwrap();
}

/// One slice hands over sixteen sessions.
#[tokio::test]
async fn a_round_of_several_slices_deletes_all_that_is_old() {
    let kit = Kit::new();
    let ids: Vec<String> = (0..33).map(|number| format!("tui-{number}")).collect();
    for id in &ids {
        kit.session(id, "a").await;
    }
    kit.turn_clock(31 * DAY_MS).await;
    kit.session("tui-new", "a").await;
    kit.set_retention(serde_json::from_str(r#"{"sessions": 30}"#).unwrap()).await.unwrap();
    settle(&kit).await;
    for id in &ids {
        let error = kit.page(id, Offset::Start).await.unwrap_err();
        assert_eq!(error.code, Code::Gone, "{id}");
    }
}

/// There is no other clock to compare with. So what a wrong one can delete is limited, at its first round and at the next, and when it is
/// right again, rounds go on.
#[tokio::test]
async fn a_clock_that_is_wrong_for_a_moment_deletes_what_would_be_deleted_a_day_later() {
    const CENTURY_MS: i64 = 36_500 * DAY_MS;
    let mut kit = Kit::new();
    let there = async |kit: &Kit| {
        let mut there = Vec::new();
        for id in ["tui-0", "tui-1", "tui-2", "tui-3"] {
            match kit.page(id, Offset::Start).await {
                Ok(_) => there.push(id),
                Err(error) => assert_eq!(error.code, Code::Gone, "{id}"),
            }
        }
        there
    };
    kit.set_retention(serde_json::from_str(r#"{"sessions": 30}"#).unwrap()).await.unwrap();
    kit.turn_clock(DAY_MS / 2).await;
    for day in 0..4 {
        kit.session(&format!("tui-{day}"), "a").await;
        kit.turn_days(1).await;
    }
    // The last round goes by the start plus 30 days. What is 29 and a half days old is there.
    kit.turn_days(26).await;
    settle(&kit).await;
    assert_eq!(there(&kit).await, ["tui-0", "tui-1", "tui-2", "tui-3"]);
    kit.restart_later(CENTURY_MS);
    settle(&kit).await;
    assert_eq!(there(&kit).await, ["tui-1", "tui-2", "tui-3"], "although there are many slices meanwhile");
    // Nor do other settings, and a start, bring more than another day.
    kit.set_retention(serde_json::from_str(r#"{"sessions": 30, "schedule_runs": 7}"#).unwrap()).await.unwrap();
    settle(&kit).await;
    kit.restart();
    settle(&kit).await;
    assert_eq!(there(&kit).await, ["tui-2", "tui-3"]);
    kit.restart_later(-CENTURY_MS);
    settle(&kit).await;
    kit.turn_clock(600_000).await;
    settle(&kit).await;
    assert_eq!(there(&kit).await, ["tui-2", "tui-3"]);
    for left in [&["tui-3"][..], &[]] {
        for _ in 0..2 {
            kit.turn_clock(DAY_MS / 2).await;
            settle(&kit).await;
        }
        kit.turn_days(1).await;
        settle(&kit).await;
        assert_eq!(there(&kit).await, left);
    }
}

/// Each kind of background work is a change of its own.
#[tokio::test]
async fn work_that_fails_stops_no_other_and_is_reported() {
    let mut kit = Kit::new();
    secret(&kit).await;
    kit.store = None;
    // Two kinds that cannot read what they have noted: one of the deletions, and one of the others.
    kit.execute("DELETE FROM facts WHERE name IN ('indexes.round', 'retention', 'retention.at')");
    kit.execute("INSERT INTO facts (name, value) VALUES ('indexes.round', 'x'), ('retention', 'x')");
    kit.open().unwrap();
    kit.write::<SessionsPurge>(of("tui-x")).await.unwrap();
    settle(&kit).await;
    let failing = kit.stats()["background_failure"].as_str().unwrap().to_owned();
    for kind in ["merging the indexes: ", "[retention] allows: "] {
        assert!(failing.contains(kind), "{failing}");
    }
    assert_eq!(failing.split("; ").count(), 2, "{failing}");
    // It is tried again, and no longer reported when it succeeds.
    kit.set_retention(Retention::default()).await.unwrap();
    // If the clock was set while a slice ran, the next one comes ten minutes later.
    for _ in 0..2 {
        kit.turn_clock(11 * 60_000).await;
        settle(&kit).await;
    }
    let failing = kit.stats()["background_failure"].as_str().unwrap().to_owned();
    assert!(failing.contains("indexes") && !failing.contains("retention"), "{failing}");
    kit.restart();
    assert!(!kit.holds(WORD) && !kit.holds(ANSWER));
}

/// A refusal is stored as the answer, but nothing of what was refused, because it belongs to no session.
#[tokio::test]
async fn the_text_of_a_refused_message_is_not_stored() {
    let mut kit = Kit::new();
    kit.session("tui-x", "a").await;
    kit.prompt_with("tui-x", "x1", "first", Policy::Queue).await;
    let action = Action::Prompt { submission_id: sub("x2"), policy: Policy::Reject };
    let mut refused = kit.accept_of("a", WORD, Target::Selector("tui-x".into()), action);
    refused.event.raw = Some(format!("raw {WORD}"));
    refused.event.context = Some(serde_json::json!({"quoted": {"text": WORD}}));
    let answer = kit.write::<ChatAccept>(refused.clone()).await.unwrap();
    assert!(answer.refused.is_some());
    assert_eq!(
        kit.write::<ChatAccept>(refused).await.unwrap().refused,
        answer.refused,
        "a repeat gets the same answer"
    );
    kit.restart();
    assert!(!kit.holds(WORD));
}

/// What the agent wrote in several sessions stays until the last of them is deleted, and what a person wrote too stays for ever.
#[tokio::test]
async fn knowledge_that_was_written_twice_goes_with_the_last_session_that_wrote_it() {
    let kit = Kit::new();
    for id in ["tui-1", "tui-2"] {
        kit.session(id, "a").await;
        kit.talk(id, &format!("of-{id}"), "hello", "hello").await;
    }
    put(&kit, "Depot", "opens at nine", Some("of-tui-1")).await;
    put(&kit, "Depot", "opens at nine", Some("of-tui-2")).await;
    for title in ["First", "Second"] {
        put(&kit, title, "by a person too", Some("of-tui-1")).await;
    }
    let by_person = |title: &str| PutKnowledge { actor_id: Some("a".into()), ..entry(title, "by a person too") };
    kit.write::<KnowledgePut>(by_person("First")).await.unwrap();
    let third = kit.write::<KnowledgePut>(by_person("Third")).await.unwrap();
    put(&kit, "Third", "by a person too", Some("of-tui-1")).await;
    let after = async |id: &str| {
        kit.write::<SessionsPurge>(of(id)).await.unwrap();
        let list =
            ListKnowledge { q: None, limit: 50, after: None, actor_id: None, conversation_id: None, source: None };
        let page = kit.read::<KnowledgeList>(list.clone()).await.unwrap();
        settle(&kit).await;
        assert_eq!(kit.read::<KnowledgeList>(list).await.unwrap().records, page.records, "it is gone at once");
        page.records
    };
    let titles = |records: &[KnowledgeRecord]| records.iter().map(|entry| entry.title.clone()).collect::<Vec<_>>();
    let left = after("tui-1").await;
    assert_eq!(titles(&left), ["Third", "First", "Depot"]);
    assert_eq!(
        (left[0].id.as_str(), left[0].source.as_str(), left[0].session_id.as_deref()),
        (third.id.as_str(), "api", None)
    );
    assert_eq!((left[1].source.as_str(), left[1].session_id.as_deref()), ("api", None));
    assert_eq!(left[2].session_id.as_deref(), Some("tui-2"));
    assert_eq!(titles(&after("tui-2").await), ["Third", "First"]);
}

/// A search looks into each segment of an index, so there must not be many. The merge takes several slices, and ends although others talk.
#[tokio::test]
async fn once_a_day_the_indexes_are_merged_while_people_talk() {
    let kit = Kit::new();
    if kit.is_remote() {
        return; // the server itself keeps its indexes
    }
    kit.session("tui-1", "a").await;
    let words = |number: usize| (0..1_500).map(|word| format!("w{number}x{word} ")).collect::<String>();
    let segments = || kit.count("(SELECT DISTINCT segid FROM memory_index_idx)");
    let round = || -> String {
        let file = rusqlite::Connection::open(kit.file()).unwrap();
        let sql = "SELECT coalesce(max(value), '') FROM facts WHERE name = 'indexes.round'";
        file.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    for day in 0..2 {
        for number in 0..60 {
            kit.talk("tui-1", &format!("d{day}m{number}"), &words(number), "answer").await;
        }
        let (before, last) = (segments(), round());
        kit.turn_clock(DAY_MS).await;
        let mut slices = 0;
        while round() == last || round().contains("false") {
            assert!(slices < 100, "day {day}: the merge never ends");
            kit.talk("tui-1", &format!("d{day}s{slices}"), "again", "answer").await;
            kit.turn_clock(150).await;
            slices += 1;
        }
        assert!(
            slices > 1 && segments() < before,
            "day {day}: {slices} slices, {before} segments, then {}",
            segments()
        );
    }
    let search = Search { query: "w59x3".into(), scope: Some(scope("a")), limit: 5, vector: None, session: None };
    assert_eq!(kit.read::<MemorySearch>(search).await.unwrap().found.len(), 2);
}
