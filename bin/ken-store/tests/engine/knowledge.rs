//! Knowledge entries and the memory of past exchanges.

use ken_types::Code;
use ken_types::id::SessionId;
use ken_types::ops::store::*;

use crate::kit::*;

fn search(query: &str, actor: Option<&str>) -> Search {
    Search { query: query.into(), scope: actor.map(scope), limit: 5, vector: None, session: None }
}

async fn titles(kit: &Kit, query: &str, actor: Option<&str>) -> Vec<String> {
    let found = kit.read::<KnowledgeSearch>(search(query, actor)).await.unwrap().found;
    assert!(found.iter().all(|hit| hit.score > 0.0 && hit.score <= 1.0));
    assert!(found.is_sorted_by(|a, b| a.score >= b.score));
    found.into_iter().map(|hit| hit.entry.title).collect()
}

fn list(q: Option<&str>, limit: u32, after: Option<String>) -> ListKnowledge {
    ListKnowledge { q: q.map(str::to_owned), limit, after, actor_id: None, conversation_id: None, source: None }
}

#[tokio::test]
async fn the_same_entry_is_one_and_its_time_moves() {
    let kit = Kit::new();
    let first = kit.write::<KnowledgePut>(entry("Depot", "opens at nine")).await.unwrap();
    assert!(first.id.starts_with("kb-") && first.id.len() == 35);
    assert_eq!(
        (first.scope.as_str(), first.actor_id.as_str(), first.conversation_id.as_str()),
        ("global", "api", "default")
    );
    kit.clock.advance(50);
    let again = kit.write::<KnowledgePut>(entry("Depot", "opens at nine")).await.unwrap();
    assert_eq!((again.id.as_str(), again.created_at), (first.id.as_str(), first.created_at));
    assert!(again.updated_at > first.updated_at);
    let other = PutKnowledge {
        actor_id: Some("api".into()),
        conversation_id: Some("default".into()),
        ..entry("Depot", "opens at nine")
    };
    assert_ne!(kit.write::<KnowledgePut>(other).await.unwrap().id, first.id);
    assert_eq!(titles(&kit, "depot", None).await, ["Depot"]);
    assert_eq!(kit.read::<KnowledgeGet>(ById { id: first.id.clone() }).await.unwrap(), again);
    let by_id = ById { id: first.id };
    kit.write::<KnowledgeDelete>(by_id.clone()).await.unwrap();
    assert!(titles(&kit, "depot", None).await.is_empty());
    assert_eq!(kit.write::<KnowledgeDelete>(by_id.clone()).await.unwrap_err().code, Code::NotFound);
    assert_eq!(kit.read::<KnowledgeGet>(by_id).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn only_the_own_scope_finds_what_belongs_to_one() {
    let kit = Kit::new();
    let owned = |title: &str, actor: Option<&str>, conversation: Option<&str>| PutKnowledge {
        actor_id: actor.map(str::to_owned),
        conversation_id: conversation.map(str::to_owned),
        ..entry(title, "the depot key")
    };
    for (title, actor, conversation) in [
        ("everyone", None, None),
        ("of a", Some("a"), None),
        ("of the talk", None, Some("talk")),
        ("of both", Some("a"), Some("talk")),
        ("of b", Some("b"), None),
        ("elsewhere", Some("a"), Some("other")),
    ] {
        kit.write::<KnowledgePut>(owned(title, actor, conversation)).await.unwrap();
    }
    let sorted = |mut titles: Vec<String>| {
        titles.sort();
        titles
    };
    assert_eq!(titles(&kit, "key", None).await, ["everyone"]);
    assert_eq!(sorted(titles(&kit, "key", Some("a")).await), ["everyone", "of a", "of both", "of the talk"]);
    assert_eq!(sorted(titles(&kit, "key", Some("b")).await), ["everyone", "of b", "of the talk"]);
    assert_eq!(titles(&kit, "key", Some("c")).await.len(), 2);
    // The scope words are not found as words of the text.
    assert!(titles(&kit, "zqglobal", Some("a")).await.is_empty());
}

#[tokio::test]
async fn titles_and_tags_weigh_more_and_diacritics_do_not_matter() {
    let kit = Kit::new();
    for number in 0..20 {
        kit.write::<KnowledgePut>(entry(&format!("filler {number}"), "the weather is fine and the depot is far"))
            .await
            .unwrap();
    }
    kit.write::<KnowledgePut>(entry("Café hours", "opens at nine")).await.unwrap();
    kit.write::<KnowledgePut>(entry("Lunch", "some go to the cafe")).await.unwrap();
    assert_eq!(titles(&kit, "When does the CAFE open?", None).await[0], "Café hours");
    let tagged = PutKnowledge { tags: vec!["payroll".into()], ..entry("Money", "ask Ada") };
    kit.write::<KnowledgePut>(tagged).await.unwrap();
    assert_eq!(titles(&kit, "payroll", None).await, ["Money"]);
    for nothing in ["", "who are you", "?!\"*()^:{}", "qwertz", "AND OR NOT NEAR"] {
        assert!(titles(&kit, nothing, None).await.is_empty(), "{nothing:?}");
    }
}

#[tokio::test]
async fn lists_are_paged_newest_first_or_best_first() {
    let kit = Kit::new();
    for number in 0..12 {
        kit.write::<KnowledgePut>(entry(&format!("note {number:02}"), "about the depot")).await.unwrap();
    }
    for q in [None, Some("depot")] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = kit.read::<KnowledgeList>(list(q, 5, after)).await.unwrap();
            assert!(page.records.iter().all(|record| record.score.is_some() == q.is_some()));
            seen.extend(page.records.into_iter().map(|record| record.title));
            // It is the best match, so that it stands before all others.
            kit.write::<KnowledgePut>(entry(&format!("new depot {}", seen.len()), "depot")).await.unwrap();
            after = page.page.after;
            if after.is_none() {
                break;
            }
        }
        seen.retain(|title| title.starts_with("note"));
        if q.is_none() {
            assert!(seen.is_sorted_by(|a, b| a > b));
        }
        seen.sort();
        assert_eq!(seen, (0..12).map(|number| format!("note {number:02}")).collect::<Vec<_>>(), "{q:?}");
    }
    let cursor = kit.read::<KnowledgeList>(list(None, 1, None)).await.unwrap().page.after;
    let error = kit.read::<KnowledgeList>(list(Some("depot"), 1, cursor)).await.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some("?after")));
    let filtered = ListKnowledge { actor_id: Some("nobody".into()), ..list(None, 5, None) };
    assert!(kit.read::<KnowledgeList>(filtered).await.unwrap().records.is_empty());
}

#[tokio::test]
async fn limits_of_an_entry() {
    let kit = Kit::new();
    let tags = |tags: Vec<String>| PutKnowledge { tags, ..entry("t", "c") };
    for (bad, code, place) in [
        (entry("", "c"), Code::Invalid, "/title"),
        (entry(&"t".repeat(201), "c"), Code::Invalid, "/title"),
        (entry("t", ""), Code::Invalid, "/content"),
        (entry("t", &"c".repeat(512 * 1024 + 1)), Code::TooLarge, "/content"),
        (tags(vec!["x".into(); 33]), Code::Invalid, "/tags"),
        (tags(vec!["x".repeat(65)]), Code::Invalid, "/tags/0"),
        (tags(vec!["x".into(), "x".repeat(65)]), Code::Invalid, "/tags/1"),
    ] {
        let error = kit.write::<KnowledgePut>(bad).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (code, Some(place)));
    }
    kit.write::<KnowledgePut>(entry(&"é".repeat(200), &"c".repeat(512 * 1024))).await.unwrap();
    kit.write::<KnowledgePut>(tags(vec!["é".repeat(64); 32])).await.unwrap();
}

#[tokio::test]
async fn reindexing_is_one_job_and_survives_a_restart() {
    let mut kit = Kit::new();
    for number in 0..120 {
        kit.write::<KnowledgePut>(entry(&format!("note {number}"), "about the depot")).await.unwrap();
    }
    // Damages the index: one entry is missing, and one is too many.
    kit.store = None;
    let key = if kit.is_remote() { "entry" } else { "rowid" };
    kit.execute(&format!("DELETE FROM knowledge_index WHERE {key} = 7; DELETE FROM knowledge WHERE entry = 9"));
    kit.open().unwrap();
    let job = kit.write::<KnowledgeReindex>(KeyedJob { id: "J1".into(), documents: false }).await.unwrap();
    assert_eq!((job.job_id.as_str(), job.status.as_str(), job.total), ("J1", "running", 119));
    let same = kit.write::<KnowledgeReindex>(KeyedJob { id: "J2".into(), documents: false }).await.unwrap();
    assert_eq!(same.job_id, "J1");
    kit.restart();
    let done = loop {
        kit.turn_clock(10).await;
        let job = kit.read::<KnowledgeJob>(ById { id: "J1".into() }).await.unwrap();
        if job.status != "running" {
            break job;
        }
    };
    assert_eq!((done.status.as_str(), done.done, done.total), ("ok", 119, 119));
    assert!(done.finished_at.is_some());
    let page = kit.read::<KnowledgeList>(list(Some("depot"), 100, None)).await.unwrap();
    assert_eq!((page.records.len(), page.page.has_more), (100, true));
    assert_eq!(kit.read::<KnowledgeList>(list(Some("depot"), 100, page.page.after)).await.unwrap().records.len(), 19);
    assert_eq!(
        kit.write::<KnowledgeReindex>(KeyedJob { id: "J1".into(), documents: false }).await.unwrap().status,
        "ok"
    );
    assert_eq!(
        kit.write::<KnowledgeReindex>(KeyedJob { id: "J3".into(), documents: false }).await.unwrap().job_id,
        "J3"
    );
    assert_eq!(kit.read::<KnowledgeJob>(ById { id: "J9".into() }).await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn a_word_that_every_exchange_holds_weighs_little_however_many_there_are() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.talk("tui-1", "s0", "Where is the blue onyx?", "Under the mat.").await;
    for number in 1..300 {
        let id = format!("s{number}");
        kit.talk("tui-1", &id, "Where is the blue key?", "Here.").await;
    }
    let found = kit.read::<MemorySearch>(search("blue onyx", Some("a"))).await.unwrap().found;
    assert_eq!((found[0].entry.id.as_str(), found[0].score), ("s0", 1.0));
    let common = found[1].score;
    assert!((0.10..0.12).contains(&common), "all 300 hold it: {common}");
    let alone = kit.read::<MemorySearch>(search("blue", Some("a"))).await.unwrap().found;
    assert_eq!(alone.len(), 5);
    assert!(alone.iter().all(|hit| hit.score == 1.0), "what has the only word has all of them, however common it is");
}

#[tokio::test]
async fn what_is_known_about_a_prompt_comes_with_the_history() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.talk("tui-1", "s1", "Where is the blue key?", "Under the mat.").await;
    let shed = entry("Keys", "The blue key opens the shed.");
    kit.write::<KnowledgePut>(shed).await.unwrap();
    let about = |search: Search| ReadHistory {
        after: None,
        instance: "tui-1".into(),
        before: sub("next"),
        limit: 5,
        search: Some(search),
    };
    let found = kit.read::<SubmissionsHistory>(about(search("blue key", Some("a")))).await.unwrap();
    assert_eq!((found.turns, found.known.len(), found.remembered.len()), (1, 1, 1));
    assert_eq!((found.known[0].score, found.remembered[0].score), (1.0, 1.0));
    let none = kit.read::<SubmissionsHistory>(about(search("red door", Some("a")))).await.unwrap();
    assert!(none.known.is_empty() && none.remembered.is_empty());
    let too_few = Search { limit: 0, ..search("blue key", None) };
    assert_eq!(kit.read::<SubmissionsHistory>(about(too_few)).await.unwrap_err().code, Code::Invalid);
}

#[tokio::test]
async fn what_was_said_in_an_archived_session_is_not_remembered() {
    let kit = Kit::new();
    for session in ["tui-1", "tui-2"] {
        kit.session(session, "a").await;
        kit.talk(session, &format!("of-{session}"), "Where is the blue key?", "Under the mat.").await;
    }
    let remembered = || async {
        let found = kit.read::<MemorySearch>(search("blue key", Some("a"))).await.unwrap().found;
        found.iter().map(|found| found.entry.instance.clone()).collect::<Vec<_>>()
    };
    assert_eq!(remembered().await.len(), 2);
    let first = OwnedSession { scope: Some(scope("a")), id: SessionId("tui-1".into()) };
    kit.write::<SessionsArchive>(first).await.unwrap();
    assert_eq!(remembered().await, ["tui-2"]);
    // A prompt brings the session back, and what was said in it.
    kit.talk("tui-1", "again", "Where is the red key?", "In the shed.").await;
    assert_eq!(remembered().await.len(), 3);
}

#[tokio::test]
async fn memory_is_of_the_same_scope_and_of_what_was_settled() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.session("tui-2", "a").await;
    kit.session("tui-3", "b").await;
    kit.talk("tui-1", "s1", "Where is the blue key?", "Under the mat.").await;
    let recall = |query: &str, actor: Option<&str>| {
        let args = search(query, actor);
        async { kit.read::<MemorySearch>(args).await.unwrap().found }
    };
    let found = recall("what about the blue key", Some("a")).await;
    assert_eq!(found.len(), 1);
    let past = &found[0].entry;
    assert_eq!((past.id.as_str(), past.instance.as_str()), ("s1", "tui-1"));
    assert_eq!((past.prompt.as_str(), past.answer.as_str()), ("Where is the blue key?", "Under the mat."));
    assert!(found[0].score > 0.9);
    assert_eq!(recall("mat", Some("a")).await.len(), 1);
    assert!(recall("blue key", Some("b")).await.is_empty());
    assert!(recall("blue key", None).await.is_empty());
    // The current prompt and internal prompts are not found.
    kit.prompt_with("tui-2", "s2", "Where is the red key?", Policy::Queue).await;
    let claim = kit.claim_one(1).await;
    assert!(recall("red", Some("a")).await.is_empty());
    kit.finish(&claim.lease, 0, "In the drawer.").await.unwrap();
    assert_eq!(recall("red", Some("a")).await.len(), 1);
    let mut preflight = kit.accept_of("a", "green report", Target::Selector("tui-2".into()), queued("s3"));
    preflight.event.context = Some(serde_json::json!({"workflow": "tui.startup-preflight"}));
    kit.write::<ChatAccept>(preflight).await.unwrap();
    let claim = kit.claim_one(1).await;
    kit.finish(&claim.lease, 0, "Hello, green.").await.unwrap();
    assert!(recall("green", Some("a")).await.is_empty());
}

#[tokio::test]
async fn memory_of_one_connector_is_not_found_through_another() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.talk("tui-1", "s1", "Where is the blue key?", "Under the mat.").await;
    let through = async |connector: &str| {
        let mut args = search("blue key", Some("a"));
        args.scope = args.scope.map(|scope| Scope { connector: connector.into(), ..scope });
        kit.read::<MemorySearch>(args).await.unwrap().found.len()
    };
    assert_eq!(through("tui").await, 1);
    assert_eq!(through("messenger").await, 0);
}

/// Stores a settled exchange of an actor in a conversation of a connector, in a session of its own.
async fn exchange(kit: &Kit, connector: &str, actor: &str, conversation: &str, text: &str) {
    let session = format!("tui-{connector}-{actor}-{conversation}");
    let scope = talker(connector, actor, conversation);
    let fresh = fresh(&session);
    let create = CreateSession { scope: scope.clone(), fresh };
    kit.write::<SessionsCreate>(create).await.unwrap();
    let action = queued(&format!("{session}-{text}"));
    let mut accept = kit.accept_of(actor, text, Target::Selector(session), action);
    accept.event.scope = scope;
    kit.write::<ChatAccept>(accept).await.unwrap();
    let claim = kit.claim_one(1).await;
    kit.finish(&claim.lease, 0, "Noted.").await.unwrap();
}

fn talker(connector: &str, actor: &str, conversation: &str) -> Scope {
    Scope { connector: connector.into(), actor_id: actor.into(), conversation_id: conversation.into(), thread_id: None }
}

async fn recalled(kit: &Kit, connector: &str, actor: &str, conversation: &str) -> Vec<String> {
    let search = Search { scope: Some(talker(connector, actor, conversation)), limit: 50, ..search("harbour", None) };
    let found = kit.read::<MemorySearch>(search).await.unwrap().found;
    let mut prompts: Vec<String> = found.into_iter().map(|one| one.entry.prompt).collect();
    prompts.sort();
    prompts
}

#[tokio::test]
async fn a_chat_of_a_platform_is_a_group_before_anybody_else_has_written() {
    let kit = Kit::new();
    exchange(&kit, "messenger", "7", "7", "my harbour").await;
    exchange(&kit, "messenger", "7", "-100", "our harbour").await;
    assert_eq!(recalled(&kit, "messenger", "7", "7").await, ["my harbour"]);
    assert_eq!(recalled(&kit, "messenger", "7", "-100").await, ["our harbour"]);
    exchange(&kit, "web-api", "7", "-100", "that harbour").await;
    exchange(&kit, "web-api", "7", "7", "this harbour").await;
    for conversation in ["7", "-100"] {
        let found = recalled(&kit, "web-api", "7", conversation).await;
        assert_eq!(found, ["that harbour", "this harbour"]);
    }
}

#[tokio::test]
async fn the_newest_fifty_conversations_are_searched_and_always_the_own_one() {
    let kit = Kit::new();
    for number in 0..60 {
        let conversation = format!("c{number:03}");
        exchange(&kit, "web-api", "a", &conversation, &format!("harbour {conversation}")).await;
    }
    let found = recalled(&kit, "web-api", "a", "c059").await;
    assert_eq!(found.len(), 50);
    let search = |conversation: &str| Search {
        scope: Some(talker("web-api", "a", conversation)),
        limit: 5,
        ..search("c000", None)
    };
    let old = kit.read::<MemorySearch>(search("c059")).await.unwrap().found;
    assert!(old.is_empty());
    let own = kit.read::<MemorySearch>(search("c000")).await.unwrap().found;
    assert_eq!(own[0].entry.prompt, "harbour c000");
}
