//! Scopes, names and lists of sessions, and the archive.

use ken_types::Code;
use ken_types::id::SessionId;
use ken_types::ops::store::*;

use crate::kit::*;

fn resume(actor: &str, selector: &str) -> ResumeSession {
    ResumeSession { scope: scope(actor), selector: selector.into(), fresh: None }
}

fn listed(actor: &str, limit: u32, after: Option<String>) -> ListSessions {
    let scope = Some(scope(actor));
    ListSessions { scope, archived: false, empty: true, scheduled: false, q: None, text: None, limit, after }
}

fn owned(id: &str, actor: &str) -> OwnedSession {
    OwnedSession { scope: Some(scope(actor)), id: SessionId(id.into()) }
}

async fn name(kit: &Kit, session: &str, name: &str) -> Accepted {
    let action = Action::Name { name: name.into() };
    let accept = kit.accept_of("a", "/rename", Target::Selector(session.into()), action);
    kit.write::<ChatAccept>(accept).await.unwrap()
}

fn ids(page: &SessionPage) -> Vec<&str> {
    page.sessions.iter().map(|session| session.session_id.as_str()).collect()
}

#[tokio::test]
async fn creating_twice_is_creating_once_and_another_scope_is_forbidden() {
    let kit = Kit::new();
    let first = kit.session("tui-1", "a").await;
    assert!(first.created && first.title.is_none());
    assert_eq!(kit.session("tui-1", "a").await, first);
    let foreign = CreateSession { scope: scope("b"), fresh: fresh("tui-1") };
    assert_eq!(kit.write::<SessionsCreate>(foreign).await.unwrap_err().code, Code::Forbidden);
    // Its stream exists and is empty.
    let page = kit.page("tui-1", ken_types::Offset::Now).await.unwrap();
    assert_eq!((page.end, page.entries.len()), (0, 0));
}

#[tokio::test]
async fn an_absent_thread_is_a_scope_of_its_own() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let threaded = Scope { thread_id: Some(String::new()), ..scope("a") };
    let args = ResumeSession { scope: threaded, ..resume("a", "tui-1") };
    assert_eq!(kit.write::<SessionsResume>(args).await.unwrap_err().code, Code::Forbidden);
}

#[tokio::test]
async fn resume_finds_ids_then_names_and_says_what_is_wrong() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.session("tui-2", "a").await;
    kit.session("tui-3", "b").await;
    let error = |selector| {
        let args = resume("a", selector);
        async { kit.write::<SessionsResume>(args).await.unwrap_err().code }
    };
    assert_eq!(error("tui-3").await, Code::Forbidden);
    assert_eq!(error("tui-9").await, Code::NotFound);
    assert_eq!(error("  ").await, Code::Invalid);
    let named = name(&kit, "tui-1", "  Nightly ").await;
    assert_eq!(named.session.unwrap().title.as_deref(), Some("Nightly"));
    let found = kit.write::<SessionsResume>(resume("a", "Nightly")).await.unwrap();
    assert_eq!((found.id.as_str(), found.created), ("tui-1", false));
    assert_eq!(error("nightly").await, Code::NotFound);
    name(&kit, "tui-2", "Nightly").await;
    assert_eq!(error("Nightly").await, Code::Conflict);
    // A session with this id is preferred to one with this name.
    name(&kit, "tui-2", "tui-1").await;
    assert_eq!(kit.write::<SessionsResume>(resume("a", "tui-1")).await.unwrap().id.as_str(), "tui-1");
    // Names of another scope are not found.
    assert_eq!(kit.write::<SessionsResume>(resume("b", "Nightly")).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn a_resume_that_misses_makes_one_and_its_repeat_says_the_same() {
    let kit = Kit::new();
    let args = ResumeSession { fresh: Some(fresh("tui-7")), ..resume("a", "gone") };
    let made = kit.write::<SessionsResume>(args.clone()).await.unwrap();
    assert!(made.created);
    assert_eq!(kit.write::<SessionsResume>(args).await.unwrap(), made);
}

#[tokio::test]
async fn bad_names_change_nothing() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    for bad in ["", "  ", "a\nb", &"x".repeat(121)] {
        let action = Action::Name { name: bad.into() };
        let accept = kit.accept_of("a", "/rename", Target::Selector("tui-1".into()), action);
        let error = kit.write::<ChatAccept>(accept).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some("/action/name/name")), "{bad:?}");
    }
    let page = kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap();
    assert_eq!(page.sessions[0].display_name, None);
}

#[tokio::test]
async fn the_title_is_the_first_visible_prompt() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let mut preflight = kit.accept_of("a", "preflight report", Target::Selector("tui-1".into()), queued("s0"));
    preflight.event.context = Some(serde_json::json!({"workflow": "tui.startup-preflight"}));
    kit.write::<ChatAccept>(preflight).await.unwrap();
    kit.prompt_with("tui-1", "s1", "Do  the\ntests pass?", Policy::Queue).await;
    kit.prompt_with("tui-1", "s2", "And now?", Policy::Queue).await;
    let page = kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap();
    assert_eq!(page.sessions[0].title.as_deref(), Some("Do the tests pass?"));
}

#[tokio::test]
async fn updated_at_moves_on_use_and_not_on_reading() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.turn_clock(10).await;
    kit.session("tui-2", "a").await;
    let order = || async { ids(&kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap()).join(" ") };
    assert_eq!(order().await, "tui-2 tui-1");
    kit.turn_clock(10).await;
    let transcript = ReadTranscript { scope: scope("a"), id: SessionId("tui-1".into()), limit: 5, before: None };
    kit.read::<SessionsTranscript>(transcript).await.unwrap();
    assert_eq!(order().await, "tui-2 tui-1");
    kit.prompt("tui-1", "s1").await;
    assert_eq!(order().await, "tui-1 tui-2");
    kit.turn_clock(10).await;
    kit.write::<SessionsResume>(resume("a", "tui-2")).await.unwrap();
    assert_eq!(order().await, "tui-2 tui-1");
    kit.turn_clock(10).await;
    name(&kit, "tui-1", "x").await;
    assert_eq!(order().await, "tui-1 tui-2");
    // If the clock goes back, the time of the last use does not.
    kit.clock.advance(-1_000);
    kit.write::<SessionsResume>(resume("a", "tui-1")).await.unwrap();
    assert_eq!(order().await, "tui-1 tui-2");
}

#[tokio::test]
async fn archived_sessions_leave_lists_and_names_and_come_back_by_id() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    name(&kit, "tui-1", "Nightly").await;
    kit.prompt("tui-1", "s1").await;
    let busy = kit.write::<SessionsArchive>(owned("tui-1", "a")).await.unwrap_err();
    assert_eq!(busy.code, Code::Conflict);
    let claim = kit.claim_one(1).await;
    assert_eq!(kit.write::<SessionsArchive>(owned("tui-1", "a")).await.unwrap_err().code, Code::Conflict);
    kit.finish(&claim.lease, 0, "done").await.unwrap();
    for _ in 0..2 {
        kit.write::<SessionsArchive>(owned("tui-1", "a")).await.unwrap();
    }
    assert_eq!(kit.write::<SessionsArchive>(owned("tui-1", "b")).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(kit.write::<SessionsArchive>(owned("tui-9", "a")).await.unwrap_err().code, Code::NotFound);
    assert!(kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap().sessions.is_empty());
    let archived = ListSessions { archived: true, ..listed("a", 10, None) };
    let page = kit.read::<SessionsList>(archived).await.unwrap();
    assert!(page.sessions[0].archived_at.is_some());
    assert_eq!(kit.write::<SessionsResume>(resume("a", "Nightly")).await.unwrap_err().code, Code::NotFound);
    kit.write::<SessionsResume>(resume("a", "tui-1")).await.unwrap();
    assert_eq!(ids(&kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap()), ["tui-1"]);
}

#[tokio::test]
async fn pages_are_complete_and_disjoint_while_sessions_are_made() {
    let kit = Kit::new();
    for number in 0..25 {
        kit.session(&format!("tui-{number:02}"), "a").await;
        kit.session(&format!("other-{number:02}"), "b").await;
        kit.turn_clock(number % 2).await;
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = kit.read::<SessionsList>(listed("a", 4, after)).await.unwrap();
        seen.extend(page.sessions.iter().map(|session| session.session_id.0.clone()));
        assert_eq!(page.page.has_more, page.page.after.is_some());
        kit.turn_clock(1).await;
        kit.session(&format!("new-{}", seen.len()), "a").await;
        after = page.page.after;
        if after.is_none() {
            break;
        }
    }
    let wanted: Vec<String> = (0..25).rev().map(|number| format!("tui-{number:02}")).collect();
    assert_eq!(seen, wanted);
    let all = ListSessions { scope: None, ..listed("a", 100, None) };
    assert!(kit.read::<SessionsList>(all).await.unwrap().sessions.len() >= 50);
}

#[tokio::test]
async fn a_cursor_of_another_list_and_a_bad_limit_are_invalid() {
    let mut kit = Kit::new();
    for number in 0..3 {
        kit.session(&format!("tui-{number}"), "a").await;
    }
    let cursor = kit.read::<SessionsList>(listed("a", 1, None)).await.unwrap().page.after;
    for other in [
        listed("b", 1, cursor.clone()),
        ListSessions { scope: None, ..listed("a", 1, cursor.clone()) },
        ListSessions { archived: true, ..listed("a", 1, cursor.clone()) },
        listed("a", 1, Some("nonsense".into())),
    ] {
        let error = kit.read::<SessionsList>(other).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some("?after")));
    }
    for limit in [0, 101] {
        assert_eq!(kit.read::<SessionsList>(listed("a", limit, None)).await.unwrap_err().code, Code::Invalid);
    }
    kit.restart();
    assert_eq!(kit.read::<SessionsList>(listed("a", 1, cursor)).await.unwrap().sessions.len(), 1);
}

#[tokio::test]
async fn refused_events_are_kept_and_repeat_their_refusal() {
    let kit = Kit::new();
    kit.session("tui-1", "b").await;
    for (selector, code) in [("tui-9", Code::NotFound), ("tui-1", Code::Forbidden)] {
        let accept = kit.accept_of("a", "hello", Target::Selector(selector.into()), queued("s1"));
        let first = kit.write::<ChatAccept>(accept.clone()).await.unwrap();
        assert_eq!(first.refused.as_ref().map(|error| error.code), Some(code));
        assert!(first.session.is_none() && first.submission.is_none());
        // It is refused even though it would be accepted now.
        kit.session("tui-9", "a").await;
        let again = kit.write::<ChatAccept>(accept).await.unwrap();
        assert_eq!(again.refused, first.refused);
    }
    assert!(kit.claims(1, 8).await.claims.is_empty());
}

#[tokio::test]
async fn an_event_known_answers_as_before_and_does_nothing_twice() {
    let kit = Kit::new();
    let accept = kit.accept_of("a", "hello", Target::Fresh(fresh("tui-1")), queued("s1"));
    let first = kit.write::<ChatAccept>(accept.clone()).await.unwrap();
    assert!(first.session.as_ref().unwrap().created);
    kit.claims(1, 8).await;
    let again = kit.write::<ChatAccept>(accept).await.unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), serde_json::to_value(&first).unwrap());
    assert!(kit.claims(1, 8).await.claims.is_empty());
}

#[tokio::test]
async fn targets_choose_the_session_that_they_say() {
    let kit = Kit::new();
    let find = |target| {
        let accept = kit.accept_of("a", "/session", target, Action::Find);
        async { kit.write::<ChatAccept>(accept).await.unwrap() }
    };
    assert!(find(Target::None).await.session.is_none());
    let named = find(Target::SelectorOrNew(fresh("web-mine"))).await.session.unwrap();
    assert_eq!((named.id.as_str(), named.created), ("web-mine", true));
    let again = find(Target::SelectorOrNew(fresh("web-mine"))).await.session.unwrap();
    assert_eq!((again.id.as_str(), again.created), ("web-mine", false));
    kit.turn_clock(5).await;
    let active = find(Target::Active(fresh("connector-1"))).await.session.unwrap();
    assert_eq!((active.id.as_str(), active.created), ("web-mine", false));
    kit.write::<SessionsArchive>(owned("web-mine", "a")).await.unwrap();
    let active = find(Target::Active(fresh("connector-1"))).await.session.unwrap();
    assert_eq!((active.id.as_str(), active.created), ("connector-1", true));
    // An instance that got a prompt before it was a session becomes a session and keeps its stream.
    kit.write::<SubmissionsAdmit>(admit_of("web-raw", "raw")).await.unwrap();
    let claim = kit.claim_one(1).await;
    kit.finish(&claim.lease, 0, "hello").await.unwrap();
    assert!(find(Target::SelectorOrNew(fresh("web-raw"))).await.session.unwrap().created);
    assert_eq!(kit.log("web-raw").await.len(), 2);
}

#[tokio::test]
async fn lists_leave_out_what_has_neither_a_prompt_nor_a_name_and_search_the_rest() {
    let kit = Kit::new();
    for id in ["tui-1", "tui-2", "tui-3"] {
        kit.session(id, "a").await;
        kit.turn_clock(1).await;
    }
    let prompted = |q: Option<&str>| ListSessions { empty: false, q: q.map(str::to_owned), ..listed("a", 10, None) };
    let found = async |q: Option<&str>| ids(&kit.read::<SessionsList>(prompted(q)).await.unwrap()).join(" ");
    assert_eq!(found(None).await, "");
    kit.prompt_with("tui-1", "s1", "Does the Öl-Pumpe run?", Policy::Queue).await;
    kit.prompt_with("tui-2", "s2", "What of the pump house?", Policy::Queue).await;
    name(&kit, "tui-2", "Nightly").await;
    assert_eq!(found(None).await, "tui-2 tui-1");
    for (q, expected) in [
        ("PUMP", "tui-2 tui-1"),
        ("öl RUN", "tui-1"),
        ("night pump", "tui-2"),
        ("tui-1", "tui-1"),
        ("pump absent", ""),
        (" ", "tui-2 tui-1"),
    ] {
        assert_eq!(found(Some(q)).await, expected, "{q:?}");
    }
    // A cursor continues the list of found sessions, and is not accepted for another list.
    let first = ListSessions { limit: 1, ..prompted(Some("pump")) };
    let page = kit.read::<SessionsList>(first.clone()).await.unwrap();
    assert_eq!(ids(&page), ["tui-2"]);
    let after = page.page.after;
    let next = ListSessions { after: after.clone(), ..first };
    assert_eq!(ids(&kit.read::<SessionsList>(next).await.unwrap()), ["tui-1"]);
    let other = ListSessions { after, ..prompted(None) };
    assert_eq!(kit.read::<SessionsList>(other).await.unwrap_err().code, Code::Invalid);
    assert!(!kit.write::<SessionsResume>(resume("a", "tui-3")).await.unwrap().created);
    name(&kit, "tui-3", "Named only").await;
    assert_eq!(found(Some("named")).await, "tui-3");
}

fn with_text(text: &str) -> ListSessions {
    ListSessions { empty: false, text: Some(text.into()), ..listed("a", 10, None) }
}

#[tokio::test]
async fn sessions_are_found_by_what_was_said_in_them() {
    let kit = Kit::new();
    for (id, actor) in [("tui-1", "a"), ("tui-2", "a"), ("tui-3", "b"), ("tui-4", "a"), ("tui-5", "a")] {
        kit.session(id, actor).await;
    }
    let said = "It is high at noon. The <b>harbours</b>\nare full then. Nothing else is known.";
    kit.talk("tui-1", "s1", "When is the tide?", said).await;
    kit.talk("tui-1", "s2", "And tomorrow?", "One hour later.").await;
    kit.turn_clock(1).await;
    kit.talk("tui-2", "s3", "Which harbour is open?", "The old one.").await;
    let by_another = kit.accept_of("b", "My harbour?", Target::Selector("tui-3".into()), queued("s4"));
    kit.write::<ChatAccept>(by_another).await.unwrap();
    let claim = kit.claim_one(1).await;
    kit.finish(&claim.lease, 0, "No.").await.unwrap();
    kit.talk("tui-4", "s5", "A harbour in the archive", "No.").await;
    kit.talk("tui-5", "s6", "The last harbour", "Gone.").await;
    kit.write::<SessionsArchive>(owned("tui-4", "a")).await.unwrap();
    kit.write::<SessionsPurge>(owned("tui-5", "a")).await.unwrap();
    let found = async |args: ListSessions| ids(&kit.read::<SessionsList>(args).await.unwrap()).join(" ");
    for (text, expected) in [
        ("harbour", "tui-2 tui-1"),
        ("Harbours tides", "tui-1"),
        ("harbour tomorrow", ""),
        ("lighthouse", ""),
        ("...", ""),
        (" ", "tui-2 tui-1"),
    ] {
        assert_eq!(found(with_text(text)).await, expected, "{text:?}");
    }
    assert_eq!(found(ListSessions { archived: true, ..with_text("harbour") }).await, "tui-4");
    assert_eq!(found(ListSessions { scope: None, ..with_text("harbour") }).await, "tui-3 tui-2 tui-1");
    assert_eq!(found(ListSessions { q: Some("tide".into()), ..with_text("harbour") }).await, "tui-1");
    assert_eq!(found(ListSessions { scope: Some(scope("nobody")), ..with_text("harbour") }).await, "");
    let page = kit.read::<SessionsList>(ListSessions { limit: 1, ..with_text("harbour") }).await.unwrap();
    let next = ListSessions { after: page.page.after.clone(), limit: 1, ..with_text("harbour") };
    let next = kit.read::<SessionsList>(next).await.unwrap();
    assert_eq!((ids(&page), ids(&next), next.page.has_more), (vec!["tui-2"], vec!["tui-1"], false));
    let turn = next.sessions[0].found.as_ref().unwrap();
    assert_eq!((turn.submission_id.as_str(), turn.passage.as_str()), ("s1", "The <b>harbours</b> are full then."));
    let other = ListSessions { after: page.page.after, ..with_text("harbours") };
    assert_eq!(kit.read::<SessionsList>(other).await.unwrap_err().code, Code::Invalid);
    // What a list shows of them is not what a search shows.
    assert!(kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap().sessions[0].found.is_none());
}

/// However many sessions there are, a search reads those that contain its words, and of them no more than the newest turns.
#[tokio::test]
async fn a_search_for_text_in_a_large_home_reads_no_more_than_in_a_small_one() {
    let quickest = async |kit: &Kit, text: &str| {
        let mut quickest = std::time::Duration::MAX;
        for _ in 0..20 {
            let begun = std::time::Instant::now();
            assert_eq!(kit.read::<SessionsList>(with_text(text)).await.unwrap().sessions.len(), 1);
            quickest = quickest.min(begun.elapsed());
        }
        quickest
    };
    let mut kit = Kit::new();
    // The index of the other database is filled in another way.
    if kit.remote.is_some() {
        return;
    }
    kit.session("tui-1", "a").await;
    kit.talk("tui-1", "s1", "Which harbour?", "The old lighthouse.").await;
    let small = quickest(&kit, "lighthouse").await;
    kit.store = None;
    let numbers = "WITH RECURSIVE n (n) AS (VALUES (100) UNION ALL SELECT n + 1 FROM n WHERE n < 30099)";
    let copied = |table: &str, columns: &str, values: &str, row: &str| {
        format!("INSERT INTO {table} ({columns}) {numbers} SELECT {values} FROM n, {table} AS t WHERE t.{row} = 1;")
    };
    let one = "(SELECT stream FROM sessions LIMIT 1)";
    let streams = format!(
        "INSERT INTO streams (stream, name, kind, content_type, created_at) {numbers} SELECT n, name || n, kind, content_type, created_at FROM n, streams WHERE stream = {one};"
    );
    let sessions = format!(
        "INSERT INTO sessions (stream, id, scope, origin, title, created_at, updated_at) {numbers} SELECT n, id || n, scope, origin, title, created_at, updated_at FROM n, sessions WHERE stream = {one};"
    );
    let index = format!(
        "INSERT INTO memory_index (rowid, scope, prompt, answer) {numbers} SELECT n, 'zq', 'which harbour', 'no' || n FROM n;"
    );
    let events = "n, id || n, scope, kind, text, received_at, answer";
    let submissions = "n, id || n, n, n, kind, hidden, state, live, open, place, recorded_from";
    let all = [
        streams,
        sessions,
        copied("events", "event, id, scope, kind, text, received_at, answer", events, "event"),
        copied(
            "submissions",
            "submission, id, stream, event, kind, hidden, state, live, open, place, recorded_from",
            submissions,
            "submission",
        ),
        copied(
            "exchanges",
            "submission, stream, turn, answer, ended_at, settled_at",
            "n, n, turn, 'no', ended_at, settled_at",
            "submission",
        ),
        index,
    ];
    kit.execute(&all.concat());
    kit.open().unwrap();
    let large = quickest(&kit, "lighthouse").await;
    assert!(
        large < 10 * small + std::time::Duration::from_millis(2),
        "{large:?} among 30,001 sessions, {small:?} alone"
    );
    // A page ends after so many sessions, however few have the name.
    let (mut after, mut pages) = (None, 0);
    loop {
        let q = Some("absent".to_owned());
        let args = ListSessions { q, empty: false, after: after.clone(), ..listed("a", 10, None) };
        let page = kit.read::<SessionsList>(args).await.unwrap();
        assert!(page.sessions.is_empty() && page.page.has_more == page.page.after.is_some());
        (after, pages) = (page.page.after, pages + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, 7);
    // A word that is everywhere finds the newest; their number is known, so that paging ends.
    let (mut after, mut count) = (None, 0);
    loop {
        let args = ListSessions { limit: 100, after: after.clone(), ..with_text("harbour") };
        let page = kit.read::<SessionsList>(args).await.unwrap();
        count += page.sessions.len();
        after = page.page.after;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(count, 5_000);
}

/// Returns the sessions whose turns about harbours a session remembers, and the titles of the knowledge that it uses.
async fn remembered(kit: &Kit, session: &str) -> (Vec<String>, Vec<String>) {
    let search = Search { query: "harbour".into(), scope: Some(scope("a")), limit: 9, vector: None, session: None };
    let args =
        ReadHistory { instance: session.into(), before: sub("none"), limit: 9, after: None, search: Some(search) };
    let history = kit.read::<SubmissionsHistory>(args).await.unwrap();
    let mut sessions: Vec<String> = history.remembered.into_iter().map(|found| found.entry.instance).collect();
    sessions.sort();
    let mut known: Vec<String> = history.known.into_iter().map(|found| found.entry.title).collect();
    known.sort();
    (sessions, known)
}

async fn learn(kit: &Kit, title: &str, source: &str, turn: Option<&str>) -> Result<KnowledgeRecord, ken_types::Error> {
    let args = PutKnowledge {
        actor_id: Some("a".into()),
        source: source.into(),
        created_by: turn.map_or_else(|| "test".into(), |turn| format!("orchestrator:{turn}")),
        turn: turn.map(sub),
        ..entry(title, "A harbour.")
    };
    kit.write::<KnowledgePut>(args).await
}

#[tokio::test]
async fn a_session_remembers_what_its_memory_allows() {
    let mut kit = Kit::new();
    let modes =
        [("tui-1", None), ("tui-2", Some(Memory::On)), ("tui-3", Some(Memory::Session)), ("tui-4", Some(Memory::Off))];
    for (number, (id, memory)) in modes.into_iter().enumerate() {
        let fresh = FreshSession { memory, ..fresh(id) };
        kit.write::<SessionsCreate>(CreateSession { scope: scope("a"), fresh }).await.unwrap();
        kit.talk(id, &format!("s{number}"), "Which harbour?", "The old harbour.").await;
    }
    learn(&kit, "By a person", "api", None).await.unwrap();
    let learnt = learn(&kit, "By an agent", "agent", Some("s0")).await.unwrap();
    assert_eq!((learnt.session_id.as_deref(), learnt.submission_id), (Some("tui-1"), Some(sub("s0"))));
    assert_eq!(learn(&kit, "By another", "agent", Some("s2")).await.unwrap_err().code, Code::Forbidden);
    let all = |sessions: &[&str], known: &[&str]| {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        (owned(sessions), owned(known))
    };
    let both = ["By a person", "By an agent"];
    assert_eq!(remembered(&kit, "tui-1").await, all(&["tui-1", "tui-2"], &both));
    assert_eq!(remembered(&kit, "tui-2").await, all(&["tui-1", "tui-2"], &both));
    assert_eq!(remembered(&kit, "tui-3").await, all(&["tui-3"], &["By a person"]));
    assert_eq!(remembered(&kit, "tui-4").await, all(&[], &["By a person"]));
    // The default of the configuration counts where nothing else is set, also after a restart.
    kit.set_memory(Memory::Session).await.unwrap();
    kit.restart();
    assert_eq!(remembered(&kit, "tui-1").await, all(&["tui-1"], &["By a person"]));
    assert_eq!(remembered(&kit, "tui-2").await, all(&["tui-2"], &["By a person"]));
    let id = SessionId("tui-1".into());
    let update = UpdateSession { scope: None, id, display_name: None, memory: Some(Memory::On), model: None };
    let record = kit.write::<SessionsUpdate>(update).await.unwrap();
    assert_eq!(record.memory, Some(Memory::On));
    assert_eq!(remembered(&kit, "tui-2").await, all(&["tui-1", "tui-2"], &both));
    // What an agent wrote before its session was closed to others is not given to them either.
    let id = SessionId("tui-1".into());
    let update = UpdateSession { scope: None, id, display_name: None, memory: Some(Memory::Session), model: None };
    kit.write::<SessionsUpdate>(update).await.unwrap();
    assert_eq!(remembered(&kit, "tui-2").await, all(&["tui-2"], &["By a person"]));
}

/// Turns and entries that may not be found take no places, however many there are and however well they match.
#[tokio::test]
async fn what_is_not_given_to_others_hides_nothing() {
    let kit = Kit::new();
    let say = async |id: &str, memory: Option<Memory>, text: &str| {
        let fresh = FreshSession { memory, ..fresh(id) };
        kit.write::<SessionsCreate>(CreateSession { scope: scope("a"), fresh }).await.unwrap();
        kit.talk(id, &format!("of-{id}"), text, "The old harbour.").await;
    };
    say("tui-live", Some(Memory::On), "Which harbour?").await;
    learn(&kit, "By a person", "api", None).await.unwrap();
    learn(&kit, "By an agent", "agent", Some("of-tui-live")).await.unwrap();
    for number in 0..40 {
        let [archived, closed] = ["archived", "closed"].map(|name| format!("tui-{name}-{number}"));
        say(&archived, None, "Which harbour? The old harbour?").await;
        kit.write::<SessionsArchive>(OwnedSession { scope: None, id: SessionId(archived) }).await.unwrap();
        say(&closed, None, "Which harbour? The old harbour?").await;
        learn(&kit, &format!("Old harbour {number}"), "agent", Some(&format!("of-{closed}"))).await.unwrap();
        let id = SessionId(closed);
        let update = UpdateSession { scope: None, id, display_name: None, memory: Some(Memory::Session), model: None };
        kit.write::<SessionsUpdate>(update).await.unwrap();
    }
    let (sessions, known) = remembered(&kit, "tui-live").await;
    assert_eq!(
        (sessions, known),
        (vec!["tui-live".to_owned()], vec!["By a person".to_owned(), "By an agent".to_owned()])
    );
    let (sessions, known) = remembered(&kit, "tui-closed-0").await;
    assert_eq!((sessions, known), (vec!["tui-closed-0".to_owned()], vec!["By a person".to_owned()]));
}

fn fork(before: &str, id: &str) -> ForkSession {
    ForkSession { scope: None, id: SessionId("tui-1".into()), before: sub(before), fork: SessionId(id.into()) }
}

async fn said(kit: &Kit, session: &str) -> Vec<String> {
    let args = ReadTranscript { scope: scope("a"), id: SessionId(session.into()), limit: 50, before: None };
    let page: serde_json::Value =
        serde_json::from_str(kit.read::<SessionsTranscript>(args).await.unwrap().get()).unwrap();
    let texts = page["exchanges"].as_array().unwrap().iter();
    texts.map(|one| format!("{} {}", one["prompt"]["text"].as_str().unwrap(), one["assistant"]["text"])).collect()
}

#[tokio::test]
async fn a_fork_has_the_history_before_a_message_and_goes_its_own_way() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    for number in 1..=3 {
        kit.talk("tui-1", &format!("s{number}"), &format!("q{number}"), &format!("a{number}")).await;
    }
    let made = kit.write::<SessionsFork>(fork("s3", "tui-2")).await.unwrap();
    assert_eq!((made.id.as_str(), made.created), ("tui-2", true));
    // A repeated request finds what the first one has made.
    assert_eq!(kit.write::<SessionsFork>(fork("s3", "tui-2")).await.unwrap(), made);
    assert_eq!(said(&kit, "tui-2").await, ["q1 \"a1\"", "q2 \"a2\""]);
    kit.talk("tui-2", "s4", "q4", "a4").await;
    assert_eq!(said(&kit, "tui-2").await, ["q1 \"a1\"", "q2 \"a2\"", "q4 \"a4\""]);
    assert_eq!(said(&kit, "tui-1").await, ["q1 \"a1\"", "q2 \"a2\"", "q3 \"a3\""], "the old one stays");
    // The model is shown the same.
    kit.prompt("tui-2", "s5").await;
    let history = ReadHistory { instance: "tui-2".into(), before: sub("s5"), limit: 50, after: None, search: None };
    let history = kit.read::<SubmissionsHistory>(history).await.unwrap();
    let answers: Vec<&str> = history.exchanges.iter().map(|past| past.answer.as_str()).collect();
    assert_eq!((answers, history.turns), (vec!["a1", "a2", "a4"], 3));
    // What is copied was done once.
    let list = ken_types::ops::telemetry::ListSummaries { connector: None, kind: None, limit: 50, after: None };
    let runs = kit.read::<ken_types::ops::telemetry::TelemetryList>(list).await.unwrap().runs;
    assert_eq!(runs.len(), 5);
    // The first message has nothing before it.
    kit.write::<SessionsFork>(fork("s1", "tui-3")).await.unwrap();
    assert!(said(&kit, "tui-3").await.is_empty());
    let listed = kit.read::<SessionsList>(listed("a", 50, None)).await.unwrap().sessions;
    let titles: Vec<_> = listed.iter().map(|one| (one.session_id.as_str(), one.title.as_deref())).collect();
    assert!(titles.contains(&("tui-2", Some("q1"))) && titles.contains(&("tui-3", None)), "{titles:?}");
    // Deleting the old one for good leaves the new one whole.
    kit.write::<SessionsPurge>(owned("tui-1", "a")).await.unwrap();
    for _ in 0..100 {
        kit.turn_clock(1_000).await;
    }
    assert_eq!(said(&kit, "tui-2").await[..3], ["q1 \"a1\"", "q2 \"a2\"", "q4 \"a4\""]);
}

#[tokio::test]
async fn what_cannot_be_forked_says_why() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.session("tui-9", "a").await;
    kit.talk("tui-9", "s9", "q", "a").await;
    for before in ["nothing", "s9"] {
        let error = kit.write::<SessionsFork>(fork(before, "tui-2")).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (Code::NotFound, Some("/before")), "{before}");
    }
    let foreign = ForkSession { scope: Some(scope("b")), ..fork("s9", "tui-2") };
    assert_eq!(kit.write::<SessionsFork>(foreign).await.unwrap_err().code, Code::Forbidden);
    let chat = Scope { connector: "messenger".into(), ..scope("c") };
    let fresh = CreateSession { scope: chat, fresh: fresh("connector-1") };
    kit.write::<SessionsCreate>(fresh).await.unwrap();
    let messenger = ForkSession { id: SessionId("connector-1".into()), ..fork("s9", "tui-2") };
    let error = kit.write::<SessionsFork>(messenger).await.unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert!(error.hint.unwrap().contains("the console"), "{}", error.message);
}

#[tokio::test]
async fn a_fork_of_a_large_session_has_its_newest_exchanges() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let text = "x".repeat(200 << 10);
    for number in 0..50 {
        kit.talk("tui-1", &format!("s{number}"), &text, &format!("a{number}")).await;
    }
    kit.prompt("tui-1", "last").await;
    // A summary of the oldest turns, one of which had read a page.
    kit.execute("UPDATE submissions SET outside = '[\"web\"]' WHERE id = 's3'");
    kit.execute("UPDATE instances SET summary = 'of four', summary_after = 4");
    kit.write::<SessionsFork>(fork("last", "tui-2")).await.unwrap();
    let copied = said(&kit, "tui-2").await;
    kit.prompt("tui-2", "next").await;
    let history = ReadHistory { instance: "tui-2".into(), before: sub("next"), limit: 1, after: None, search: None };
    let history = kit.read::<SubmissionsHistory>(history).await.unwrap();
    assert_eq!((history.summary.as_deref(), history.outside.contains("web")), (Some("of four"), true));
    // Each is there twice: as a prompt, and in the exchange that transcripts show.
    assert_eq!(copied.len(), 40);
    assert!(copied[0].ends_with("\"a10\"") && copied[39].ends_with("\"a49\""));
}

/// A minute is no wrong clock. What is further ahead is brought back at the start, in the order in which it was used, also in the archive.
#[tokio::test]
async fn sessions_that_were_used_while_the_clock_was_ahead_are_brought_back() {
    const AHEAD_MS: i64 = 36_500 * DAY_MS;
    let mut kit = Kit::new();
    for id in ["tui-a", "tui-b", "tui-c", "tui-d"] {
        kit.session(id, "a").await;
    }
    name(&kit, "tui-b", "b").await;
    kit.restart_later(AHEAD_MS);
    for id in ["tui-c", "tui-b", "tui-a"] {
        kit.clock.advance(1_000);
        kit.write::<SessionsResume>(resume("a", id)).await.unwrap();
    }
    kit.write::<SessionsArchive>(owned("tui-c", "a")).await.unwrap();
    kit.restart_later(-AHEAD_MS);
    kit.tick().await;
    let page = kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap();
    assert_eq!(ids(&page), ["tui-a", "tui-b", "tui-d"]);
    let now = at(START).plus_millis(3_000);
    assert!(page.sessions.iter().all(|session| session.updated_at <= now), "{page:?}");
    let archived = ListSessions { archived: true, ..listed("a", 10, None) };
    let page = kit.read::<SessionsList>(archived).await.unwrap();
    assert!(ids(&page) == ["tui-c"] && page.sessions[0].updated_at <= now, "{page:?}");
    kit.clock.advance(1_000);
    kit.write::<SessionsResume>(resume("a", "tui-d")).await.unwrap();
    assert_eq!(ids(&kit.read::<SessionsList>(listed("a", 10, None)).await.unwrap()), ["tui-d", "tui-a", "tui-b"]);
    for (ahead, is_brought_back) in [(60_000, false), (60_001, true)] {
        let used = at(START).plus_millis(4_000 + ahead);
        kit.restart_later(ahead);
        kit.write::<SessionsResume>(resume("a", "tui-d")).await.unwrap();
        kit.restart_later(-ahead);
        kit.tick().await;
        let page = kit.read::<SessionsList>(listed("a", 1, None)).await.unwrap();
        assert_eq!(page.sessions[0].updated_at < used, is_brought_back, "{ahead} ms ahead: {page:?}");
    }
}
