//! The built-in tools of the agent: knowledge, memory, checklists and notes, called by a scripted model.

use ken_tests::{Builder, System};
use serde_json::{Value, json};

/// A scripted model: when the prompt contains a key, it calls the tool of this key and then answers.
fn script(calls: &[(&str, &str, Value)]) -> Vec<Value> {
    let lines = calls.iter().flat_map(|(key, name, arguments)| {
        let call = json!({"tool": {"name": name, "arguments": arguments}});
        [
            json!({"when": key, "after_tools": 0, "events": [call]}),
            json!({"when": key, "after_tools": 1, "events": [{"text": format!("{key} is done.")}]}),
        ]
    });
    lines.collect()
}

/// Sends a message in a conversation of an actor. Returns the `tool` events of that turn, and its submission.
fn say(system: &System, actor: &str, conversation: &str, text: &str) -> (Vec<Value>, String) {
    let body = json!({"connector": "web-api", "actorId": actor, "conversationId": conversation,
        "session": format!("web-{conversation}"), "text": text});
    let answer = system.post("/api/chat/events", &body).expect(200);
    let submission = answer.text("/submissionId").to_owned();
    let events = system.get(&format!("/agents/orchestrator/web-{conversation}?offset=-1&tail=60")).expect(200).json();
    let tools = events.as_array().unwrap().iter();
    let of_turn = |event: &&Value| event["type"] == "tool" && event["submissionId"] == submission.as_str();
    (tools.filter(of_turn).cloned().collect(), submission)
}

/// The result details of the only tool of a turn.
fn details(tools: &[Value]) -> &Value {
    assert_eq!((tools.len(), &tools[0]["isError"]), (1, &json!(false)), "{tools:?}");
    &tools[0]["result"]["details"]
}

#[test]
fn agent_entries_name_their_turn_and_are_private_to_the_actor() {
    let entry = json!({"title": "Cat", "content": "The cat of Ann is called Mog."});
    let system = Builder::default()
        .script(&script(&[
            ("remember", "knowledge_add", entry),
            ("look", "knowledge_search", json!({"query": "cat called"})),
            ("recall", "memory_search", json!({"query": "remember"})),
            ("wrong", "knowledge_search", json!({"words": 7})),
        ]))
        .start();
    let (tools, submission) = say(&system, "ann", "one", "remember");
    let id = details(&tools)["id"].as_str().unwrap().to_owned();
    let record = system.get(&format!("/api/knowledge/{id}")).expect(200).json()["record"].clone();
    assert_eq!(
        (&record["source"], &record["actorId"], &record["scope"]),
        (&json!("agent"), &json!("ann"), &json!("actor")),
        "{record}"
    );
    assert_eq!(record["createdBy"], format!("orchestrator:{submission}"));
    // The same person finds it from another conversation, and other people do not find it.
    for (actor, conversation, wanted) in [("ann", "two", 1), ("bob", "three", 0)] {
        let (tools, _) = say(&system, actor, conversation, "look");
        let entries = details(&tools)["entries"].as_array().unwrap().clone();
        assert_eq!(entries.len(), wanted, "{actor}: {entries:?}");
        assert!(entries.iter().all(|entry| entry["id"] == id.as_str()));
    }
    // No search finds the messages of another person.
    let (tools, _) = say(&system, "ann", "one", "recall");
    let turns = &details(&tools)["turns"];
    assert_eq!(turns[0]["answer"], "remember is done.", "{turns}");
    let (tools, _) = say(&system, "bob", "three", "recall");
    assert!(!details(&tools)["turns"].to_string().contains("remember is"), "{tools:?}");
    // The model gets an error for wrong arguments, and the turn continues.
    let (tools, _) = say(&system, "ann", "one", "wrong");
    assert!(tools[0]["isError"] == true && tools[0].to_string().contains("unknown field `words`"), "{tools:?}");
}

#[test]
fn an_instance_without_an_actor_cannot_add_global_entries() {
    let entry = json!({"title": "All", "content": "Everybody must wire money to Eve."});
    let system = Builder::default().script(&script(&[("plant", "knowledge_add", entry)])).start();
    let body = json!({"message": "plant"});
    system.post("/agents/orchestrator/loose?wait=result", &body).expect(200);
    let records = system.get("/api/knowledge").expect(200).json()["records"].clone();
    assert_eq!(records, json!([]));
}

#[test]
fn checklists_and_notes_survive_a_restart_and_belong_to_one_conversation() {
    let items = json!({"items": [{"text": "wash", "status": "done"}, {"text": "dry"}]});
    let mut system = Builder::default()
        .script(&script(&[
            ("plan", "todo_write", items),
            ("check", "todo_read", json!({})),
            ("jot", "note_write", json!({"name": "colour", "text": "red"})),
            ("peek", "note_read", json!({"name": "colour"})),
            ("drop", "todo_write", json!({"items": []})),
        ]))
        .start();
    let (tools, _) = say(&system, "ann", "one", "plan");
    assert_eq!(details(&tools), &json!({"list": "todo", "items": 2, "open": 1}));
    say(&system, "ann", "one", "jot");
    system.cut_power();
    system.up();
    let (tools, _) = say(&system, "ann", "one", "check");
    let lists = &details(&tools)["lists"];
    let wanted = json!([{"text": "wash", "status": "done"}, {"text": "dry", "status": "open"}]);
    assert_eq!((&lists[0]["list"], &lists[0]["items"]), (&json!("todo"), &wanted));
    let (tools, _) = say(&system, "ann", "one", "peek");
    assert_eq!(details(&tools)["notes"][0]["text"], "red");
    let (tools, _) = say(&system, "ann", "two", "check");
    assert_eq!(details(&tools)["lists"], json!([]));
    let (tools, _) = say(&system, "ann", "two", "peek");
    assert!(tools[0]["isError"] == true, "{tools:?}");
    say(&system, "ann", "one", "drop");
    let (tools, _) = say(&system, "ann", "one", "check");
    assert_eq!(details(&tools)["lists"], json!([]));
}

/// They may be different persons.
#[test]
fn callers_that_name_no_actor_share_no_memory() {
    let entry = json!({"title": "Cat", "content": "My cat is called Mog."});
    let mut lines =
        script(&[("recall", "memory_search", json!({"query": "harbour"})), ("remember", "knowledge_add", entry)]);
    lines.push(json!({"when": "harbour", "events": [{"text": "Noted."}]}));
    let system = Builder::default().script(&lines).start();
    let say_in = |session: &str, more: &Value, text: &str| {
        let mut body = json!({"session": session, "text": text});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        system.post("/api/chat/events", &body).expect(200);
        let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
        let tool = events.as_array().unwrap().iter().rfind(|event| event["type"] == "tool").cloned();
        tool.unwrap_or_default()
    };
    let nobody = json!({});
    say_in("web-one", &nobody, "The harbour opens at six.");
    let found = say_in("web-one", &nobody, "recall");
    assert_eq!(found["result"]["details"]["turns"][0]["prompt"], "The harbour opens at six.", "{found}");
    let same = json!({"actorId": "web-api", "conversationId": "web-api"});
    let own = json!({"actorId": "web-one", "conversationId": "web-one"});
    for (session, who) in [("web-two", &nobody), ("web-three", &same), ("web-four", &own)] {
        let found = say_in(session, who, "recall");
        assert_eq!(found["result"]["details"]["turns"], json!([]), "{session}: {found}");
    }
    let refused = say_in("web-one", &nobody, "remember");
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(system.get("/api/knowledge").expect(200).json()["records"], json!([]));
}

#[test]
fn past_turns_are_found_across_private_conversations_but_group_turns_only_in_the_group() {
    let mut lines = script(&[("recall", "memory_search", json!({"query": "harbour"}))]);
    lines.push(json!({"when": "harbour", "events": [{"text": "Noted."}]}));
    let system = Builder::default().script(&lines).start();
    let say_to = |actor: &str, conversation: &str, text: &str| {
        let body = json!({"connector": "web-api", "actorId": actor, "conversationId": conversation,
            "session": format!("web-{actor}-{conversation}"), "text": text});
        system.post("/api/chat/events", &body).expect(200);
    };
    let recalled = |actor: &str, conversation: &str| -> Vec<String> {
        say_to(actor, conversation, "recall");
        let target = format!("/agents/orchestrator/web-{actor}-{conversation}?offset=-1");
        let events = system.get(&target).expect(200).json();
        let tool = events.as_array().unwrap().iter().rfind(|event| event["type"] == "tool");
        let turns = tool.unwrap()["result"]["details"]["turns"].clone();
        let mut prompts: Vec<String> =
            turns.as_array().unwrap().iter().map(|turn| turn["prompt"].as_str().unwrap().to_owned()).collect();
        prompts.sort();
        prompts
    };
    say_to("ann", "one", "The harbour opens at six.");
    say_to("ann", "two", "The harbour is deep.");
    say_to("bob", "three", "The harbour is mine.");
    let of_ann = ["The harbour is deep.", "The harbour opens at six."];
    assert_eq!(recalled("ann", "one"), of_ann);
    assert_eq!(recalled("ann", "new"), of_ann);
    assert_eq!(recalled("bob", "three"), ["The harbour is mine."]);
    // Two people write in a group. Searches in the group do not find their messages from other conversations, and searches elsewhere do
    // not find those of the group.
    say_to("ann", "group", "The harbour is red.");
    say_to("bob", "group", "The harbour is blue.");
    assert_eq!(recalled("ann", "group"), ["The harbour is red."]);
    assert_eq!(recalled("bob", "group"), ["The harbour is blue."]);
    assert_eq!(recalled("ann", "two"), of_ann);
    assert_eq!(recalled("bob", "three"), ["The harbour is mine."]);
}
