//! The interface of OpenAI: answers whole and in pieces, conversations that are found by their messages, repeated requests, and errors.

use std::time::Duration;

use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai, with_usage};
use ken_tests::{Answer, Builder, Client, System, scripted, until};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn ask(messages: &[(&str, &str)]) -> Value {
    let messages: Vec<Value> = messages.iter().map(|(role, text)| json!({"role": role, "content": text})).collect();
    json!({"model": "ken", "messages": messages})
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

fn content(answer: &Answer) -> String {
    answer.text("/choices/0/message/content")
}

fn session(answer: &Answer) -> String {
    answer.header("x-ken-session").expect("a session").to_owned()
}

/// The pieces of a streamed answer. The last frame says that it is whole.
fn pieces(text: &str) -> Vec<Value> {
    let frames: Vec<&str> = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: ")).collect();
    let (last, pieces) = frames.split_last().expect("frames");
    assert_eq!(*last, "[DONE]", "{text}");
    pieces.iter().map(|piece| serde_json::from_str(piece).expect("JSON")).collect()
}

fn streamed_text(pieces: &[Value]) -> String {
    pieces.iter().filter_map(|piece| piece.pointer("/choices/0/delta/content")?.as_str()).collect()
}

/// The prompts of a session of this interface.
fn prompts(system: &System, session: &str) -> Vec<String> {
    let target =
        format!("/api/chat/sessions/{session}/transcript?connector=openai&actorId=openai&conversationId=openai");
    let exchanges = system.get(&target).expect(200).at("/exchanges");
    let prompts = exchanges.as_array().unwrap().iter().map(|exchange| exchange["prompt"]["text"].as_str().unwrap());
    prompts.map(str::to_owned).collect()
}

#[test]
fn answers_and_errors_have_the_form_of_the_original() {
    let system = scripted();
    whole(&system);
    streamed(&system);
    refused(&system);
    models(&system);
}

fn whole(system: &System) {
    let answer = system.post(CHAT, &ask(&[("user", "hello")])).expect(200);
    assert_eq!(content(&answer), "Hello there.");
    assert_eq!(answer.text("/choices/0/finish_reason"), "stop");
    assert_eq!(
        answer.at("/usage/total_tokens"),
        answer.at("/usage/prompt_tokens").as_u64().unwrap() + answer.at("/usage/completion_tokens").as_u64().unwrap()
    );
    assert_eq!(system.post(CHAT, &ask(&[("user", "length")])).expect(200).text("/choices/0/finish_reason"), "length");
    let parts = json!([{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]);
    let body = json!({"model": "ken/orchestrator", "messages": [{"role": "user", "content": parts}], "temperature": 0, "max_tokens": 5,
        "n": 1, "logprobs": false, "seed": null, "unknown": null});
    let answer = system.post(CHAT, &body).expect(200);
    assert_eq!(answer.header("x-ken-ignored"), Some("max_tokens, temperature"));
}

fn streamed(system: &System) {
    let body =
        with(with(ask(&[("user", "tools")]), "stream", json!(true)), "stream_options", json!({"include_usage": true}));
    let answer = system.post(CHAT, &body).expect(200);
    let pieces = pieces(&answer.body_text());
    assert_eq!(streamed_text(&pieces), "Let me look.\nTools are gone.");
    assert_eq!(pieces[0]["choices"][0]["delta"]["role"], "assistant");
    let [.., last, usage] = pieces.as_slice() else { panic!() };
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!((&usage["choices"], usage["usage"]["prompt_tokens"].is_u64()), (&json!([]), true));
    assert!(pieces.iter().all(|piece| piece["id"] == pieces[0]["id"] && piece["object"] == "chat.completion.chunk"));
    // A turn that fails after the stream has begun ends it with the error.
    let answer = system.post(CHAT, &with(ask(&[("user", "refused")]), "stream", json!(true))).expect(200);
    let text = answer.body_text();
    let last = text.trim_end().rsplit("data: ").next().unwrap();
    let error: Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["code"], "model_failed", "{text}");
}

fn refused(system: &System) {
    let hello = || ask(&[("user", "hello")]);
    let parts = |part: Value| json!({"model": "ken", "messages": [{"role": "user", "content": [part]}]});
    for (body, status, param, code) in [
        (with(hello(), "n", json!(2)), 400, "n", json!("unsupported_parameter")),
        (with(hello(), "logprobs", json!(true)), 400, "logprobs", json!("unsupported_parameter")),
        (with(hello(), "seed", json!(0)), 400, "seed", json!("unsupported_parameter")),
        (
            with(hello(), "response_format", json!({"type": "json_object"})),
            400,
            "response_format",
            json!("unsupported_parameter"),
        ),
        (with(hello(), "modell", json!("ken")), 400, "modell", json!("unknown_parameter")),
        (with(hello(), "model", json!("gpt-4o")), 404, "model", json!("model_not_found")),
        (json!({"messages": []}), 400, "messages", Value::Null),
        (json!({"messages": [{"role": "user", "content": "x"}]}), 400, "model", Value::Null),
        (ask(&[("user", "hello"), ("assistant", "Hi")]), 400, "messages", Value::Null),
        (ask(&[("someone", "hello")]), 400, "messages[0].role", Value::Null),
        (parts(json!({"type": "input_audio"})), 400, "messages[0].content[0]", json!("unsupported_parameter")),
        (parts(json!({"type": "text"})), 400, "messages[0].content[0]", Value::Null),
        (with(hello(), "stream", json!("yes")), 400, "stream", Value::Null),
        (with(hello(), "user", json!("x".repeat(257))), 400, "user", Value::Null),
        (ask(&[("user", &"x".repeat(300_000))]), 400, "messages", json!("context_length_exceeded")),
    ] {
        let answer = system.post(CHAT, &body).expect(status);
        assert_eq!((answer.text("/error/param"), answer.at("/error/code")), (param.to_owned(), code), "{body:.200}");
    }
    let mut client = system.client();
    client.request("POST", CHAT).header("Content-Type", "application/json").body("{").send().expect(400);
    system.get("/v1/nothing").expect(404).text("/error/message");
    system.get(CHAT).expect(405).text("/error/message");
    // A failed turn is an error that the libraries do not repeat, and the next equal request is a turn of its own.
    let failed = ask(&[("user", "refused")]);
    let first = system.post(CHAT, &failed).expect(500);
    assert_eq!((first.text("/error/code"), first.header("x-should-retry")), ("model_failed".to_owned(), Some("false")));
    system.post(CHAT, &failed).expect(500);
}

fn models(system: &System) {
    let list = system.get("/v1/models").expect(200).at("/data");
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["ken", "ken/orchestrator", "ken/coding-worker"]);
    for id in ids {
        assert_eq!(system.get(&format!("/v1/models/{id}")).expect(200).text("/id"), id);
    }
    assert_eq!(system.get("/v1/models/ken%2Forchestrator").expect(200).text("/id"), "ken/orchestrator");
    for unknown in ["gpt-4o", "ken/nobody"] {
        assert_eq!(system.get(&format!("/v1/models/{unknown}")).expect(404).text("/error/code"), "model_not_found");
    }
}

#[test]
fn the_secret_can_be_a_bearer_token() {
    let system = Builder::default()
        .script(&[json!({"events": [{"text": "Hello."}]})])
        .secrets("API_SECRET=s3cret\n")
        .config("[gateway]\ntrust_loopback = \"no\"\n")
        .start();
    let post = |header: Option<(&str, &str)>| {
        let mut client = system.client();
        let request = client.request("POST", CHAT);
        let request = match header {
            Some((name, value)) => request.header(name, value),
            None => request,
        };
        request.json(&ask(&[("user", "hello")])).send()
    };
    post(Some(("Authorization", "Bearer s3cret"))).expect(200);
    post(Some(("x-api-secret", "s3cret"))).expect(200);
    for wrong in [None, Some(("Authorization", "Bearer other")), Some(("Authorization", "Basic s3cret"))] {
        assert_eq!(post(wrong).expect(401).text("/error/code"), "invalid_api_key");
    }
    // Elsewhere it is not: those routes have no such clients.
    let mut client = system.client();
    client.request("GET", "/api/chat/sessions").header("Authorization", "Bearer s3cret").send().expect(401);
    // A local caller may send any key, as the libraries always do.
    let local = scripted();
    let mut client = local.client();
    let request = client.request("POST", CHAT).header("Authorization", "Bearer anything");
    request.json(&ask(&[("user", "hello")])).send().expect(200);
}

/// The number of the messages that a provider was sent, and the texts of its system message.
fn provider() -> Provider {
    Provider::answering(|request: &ReceivedRequest| {
        let last =
            request.body["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "user").unwrap();
        let text = last["content"].as_str().unwrap_or_default();
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 5}});
        let said = if text.contains("second") { "Two." } else { "One." };
        Reply::Stream(with_usage(openai(&[said], &[]), &usage))
    })
}

fn with_provider() -> (Provider, System) {
    let provider = provider();
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    (provider, system)
}

fn last_request(provider: &Provider) -> String {
    provider.received().last().unwrap().body["messages"].to_string()
}

#[test]
fn a_conversation_is_found_by_its_messages() {
    let (provider, system) = with_provider();
    let first = system.post(CHAT, &ask(&[("system", "It is nine."), ("user", "The first.")])).expect(200);
    assert_eq!(content(&first), "One.");
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 5}});
    assert_eq!(first.at("/usage"), usage);
    // The instructions of the program stand below the rules of ken, between marks.
    let sent = last_request(&provider);
    assert!(
        sent.contains("It is nine.") && sent.find("It is nine.") > sent.find("# The program of the user"),
        "{sent}"
    );
    // Its messages continue it, although the program writes another time and other line ends into them.
    let second =
        [("system", "It is ten."), ("user", "The first.\r\n"), ("assistant", " One.\n"), ("user", "The second.")];
    let second = system.post(CHAT, &ask(&second)).expect(200);
    assert_eq!(session(&second), session(&first));
    assert_eq!(prompts(&system, &session(&first)), ["The first.", "The second."]);
    let sent = last_request(&provider);
    assert!(!sent.contains("It is nine.") && sent.matches("The first.").count() == 1, "{sent}");
    // An edited history is a conversation of its own that begins with it.
    let edited = [("user", "The FIRST."), ("assistant", "One."), ("user", "Also the second.")];
    let edited = system.post(CHAT, &ask(&edited)).expect(200);
    assert_ne!(session(&edited), session(&first));
    assert_eq!(prompts(&system, &session(&edited)), ["The FIRST.", "Also the second."]);
    assert!(last_request(&provider).contains("The FIRST."));
    // So is what another user, or another caller of the same messages, goes on with.
    let whole = [
        ("user", "The first."),
        ("assistant", "One."),
        ("user", "The second."),
        ("assistant", "Two."),
        ("user", "Third."),
    ];
    let other = with(ask(&whole), "user", json!("vera"));
    let other = system.post(CHAT, &other).expect(200);
    assert_ne!(session(&other), session(&first));
    // The end of the first one is still where it was; of two that go on from it, one finds it.
    let third = system.post(CHAT, &ask(&whole)).expect(200);
    assert_eq!(session(&third), session(&first));
    let again = [&whole[..4], &[("user", "Third, in other words.")]].concat();
    assert_ne!(session(&system.post(CHAT, &ask(&again)).expect(200)), session(&first));
}

#[test]
fn a_session_can_be_named() {
    let (_provider, system) = with_provider();
    let send = |session: &str, text: &str| {
        let mut client = system.client();
        client.request("POST", CHAT).header("X-Ken-Session", session).json(&ask(&[("user", text)])).send()
    };
    let first = session(&send("new", "The first.").expect(200));
    assert_eq!(session(&send(&first, "The second.").expect(200)), first);
    assert_eq!(prompts(&system, &first), ["The first.", "The second."]);
    assert_eq!(send("connector-nowhere", "x").expect(404).text("/error/type"), "invalid_request_error");
    assert_eq!(send(&system.session(), "x").expect(403).text("/error/type"), "invalid_request_error");
    // Only from the second exchange on is it listed for a person; before, it may be a program's request for a title.
    let one = session(&send("new", "Only one.").expect(200));
    let listed = |all: bool| {
        system.get(&format!("/api/chat/sessions?empty=0&scheduled={}", u8::from(all))).expect(200).body_text()
    };
    assert!(listed(false).contains(&first) && !listed(false).contains(&one), "{}", listed(false));
    assert!(listed(true).contains(&one));
    let title = system.get("/api/chat/sessions?empty=0&scheduled=0").expect(200).at("/sessions/0/title");
    assert_eq!(title, "The first.");
}

#[test]
fn a_repeated_request_is_one_turn_until_its_answer_has_arrived() {
    let system = scripted();
    let body = ask(&[("user", "pause")]);
    // Equal requests at one moment are one turn.
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let (address, body) = (system.address(), body.clone());
            std::thread::spawn(move || session(&Client::connect(address).post(CHAT, &body).expect(200)))
        })
        .collect();
    let mut sessions: Vec<String> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    sessions.dedup();
    assert_eq!(sessions.len(), 1);
    // Tomorrow the same words are another one.
    assert_ne!(session(&system.post(CHAT, &body).expect(200)), sessions[0]);
    // A caller that hangs up has no answer yet, so its repetition is the same turn.
    for stream in [false, true] {
        let body = with(ask(&[("user", &format!("pause, {stream}"))]), "stream", json!(stream));
        let mut client = Client::connect(system.address());
        client.request("POST", CHAT).json(&body).start();
        std::thread::sleep(Duration::from_millis(20));
        client.reset();
        let again = system.post(CHAT, &body).expect(200);
        assert_eq!(prompts(&system, &session(&again)).len(), 1);
        let all = system.get("/api/chat/sessions?empty=1&limit=100").expect(200).at("/sessions");
        assert_eq!(all.as_array().unwrap().len(), 3 + usize::from(stream), "{all}");
    }
    // A key stands for a request.
    let key = |body: &Value| {
        let mut client = system.client();
        client.request("POST", CHAT).header("Idempotency-Key", "k").json(body).send()
    };
    let first = session(&key(&ask(&[("user", "hello")])).expect(200));
    assert_eq!(session(&key(&ask(&[("user", "hello")])).expect(200)), first);
    key(&ask(&[("user", "other")])).expect(409);
}

/// The library of a program repeats a request whose connection broke. It gets one answer, of one turn.
#[test]
fn a_kill_of_gateway_or_agent_leaves_one_turn() {
    let system = scripted();
    for (number, (part, stream)) in
        [("gateway", false), ("gateway", true), ("agent", false), ("agent", true)].into_iter().enumerate()
    {
        system.wait_until_stable(part);
        let body = with(ask(&[("user", &format!("pause {number}"))]), "stream", json!(stream));
        let caller = retried(&system, CHAT, body);
        std::thread::sleep(Duration::from_millis(30));
        system.kill(part);
        let answer = caller.join().unwrap();
        let text = if stream { streamed_text(&pieces(&answer.body_text())) } else { content(&answer) };
        assert_eq!(text, "Rested.", "{part} {stream}");
        until("the gateway is back", || Client::try_connect(system.address()).is_ok());
        assert_eq!(prompts(&system, &session(&answer)).len(), 1, "{part} {stream}");
        let all = system.get("/api/chat/sessions?empty=1&limit=100").expect(200).at("/sessions");
        assert_eq!(all.as_array().unwrap().len(), number + 1, "{part} {stream}: {all}");
    }
}

/// So it does where the turn runs a tool, or goes on with the results of the caller's tools, or is one of responses.
#[test]
fn a_kill_in_a_turn_with_tools_leaves_one_turn() {
    let mark = tempfile::NamedTempFile::new().unwrap();
    let command = format!("cat >/dev/null; sleep 0.1; echo ran >>{}", mark.path().display());
    let tool = json!({"name": "slow", "description": "A tool.", "command": ["sh", "-c", command], "input": {"type": "object"},
        "writes": "text", "agents": ["orchestrator"], "approval": "none", "idempotent": true});
    let system = Builder::default()
        .script(&[
            json!({"when": "work", "after_tools": 0, "events": [{"text": "I work."}, {"tool": {"name": "slow", "arguments": {}}}]}),
            json!({"events": [{"sleep_ms": 50}, {"text": "Worked."}]}),
        ])
        .file("tools.d/slow.json", &tool.to_string())
        .start();
    let mut number = 0;
    for part in ["gateway", "agent"] {
        for (path, stream) in [(CHAT, false), (CHAT, true), (RESPONSES, false), (RESPONSES, true)] {
            number += 1;
            system.wait_until_stable(part);
            let text = format!("work {number}");
            let body = if path == CHAT { ask(&[("user", &text)]) } else { json!({"model": "ken", "input": text}) };
            let caller = retried(&system, path, with(body, "stream", json!(stream)));
            std::thread::sleep(Duration::from_millis(80));
            system.kill(part);
            let answer = caller.join().unwrap();
            let text = match (path == CHAT, stream) {
                (true, false) => content(&answer),
                (true, true) => streamed_text(&pieces(&answer.body_text())),
                (false, false) => output(&answer),
                (false, true) => {
                    numbered(&answer.body_text()).last().unwrap()["response"]["output"][0]["content"][0]["text"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                }
            };
            assert!(
                text.ends_with("Worked.") && text.matches("Worked.").count() == 1,
                "{part} {path} {stream}: {text}"
            );
            until("the gateway is back", || Client::try_connect(system.address()).is_ok());
            assert_eq!(prompts(&system, &session(&answer)).len(), 1, "{part} {path} {stream}");
            let all = system.get("/api/chat/sessions?empty=1&limit=100").expect(200).at("/sessions");
            assert_eq!(all.as_array().unwrap().len(), number, "{part} {path} {stream}: {all}");
        }
    }
}

/// Sends a request as the library of a program does: again and again, until it has an answer.
fn retried(system: &System, path: &'static str, body: Value) -> std::thread::JoinHandle<Answer> {
    let address = system.address();
    std::thread::spawn(move || {
        for _ in 0..200 {
            let answer =
                Client::try_connect(address).and_then(|mut client| client.request("POST", path).json(&body).try_send());
            match answer {
                Ok(answer) if answer.status == 200 => return answer,
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        panic!("no answer");
    })
}

#[test]
fn images_of_the_user_are_shown_to_the_model() {
    let (provider, system) = with_provider();
    let png = "data:image/PNG;base64,iVBORw0KGgo=";
    let text = json!({"type": "text", "text": "The first."});
    let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}});
    let said = |parts: Value| json!({"model": "ken", "messages": [{"role": "user", "content": parts}]});
    let first = system.post(CHAT, &said(json!([text, image(png)]))).expect(200);
    assert!(last_request(&provider).contains("iVBORw0KGgo="), "{}", last_request(&provider));
    let page = |session: &str| prompts(&system, session);
    assert_eq!(page(&session(&first)), ["The first."]);
    // Another image is another conversation, although the words are the same.
    let whole = |url: &str| {
        json!({"model": "ken", "messages": [{"role": "user", "content": [text, image(url)]},
            {"role": "assistant", "content": "One."}, {"role": "user", "content": "The second."}]})
    };
    let other = system.post(CHAT, &whole("data:image/png;base64,iVBORw0KGg8=")).expect(200);
    assert_ne!(session(&other), session(&first));
    assert_eq!(page(&session(&other)), ["The first.\n[image]", "The second."]);
    assert_eq!(session(&system.post(CHAT, &whole(png)).expect(200)), session(&first));
    let alone = json!([{"type": "input_image", "image_url": png}]);
    let response = json!({"model": "ken", "input": [{"role": "user", "content": alone}]});
    let response = system.post(RESPONSES, &response).expect(200);
    assert_eq!(page(&session(&response)), ["[image]"]);
    for (parts, param) in [
        (json!([image("https://example.test/a.png")]), "messages[0].content[0].image_url.url"),
        (json!([image("data:image/png,QQ==")]), "messages[0].content[0].image_url.url"),
        (json!([image("data:image/png;base64,Q")]), "messages[0].content[0].image_url.url"),
        (json!([text, image("data:text/html;base64,QQ==")]), "messages[0].content[1].image_url.url"),
        (json!([{"type": "image_url", "image_url": {}}]), "messages[0].content[0]"),
        (json!([{"type": "input_audio", "input_audio": {}}]), "messages[0].content[0]"),
        (json!(vec![image(png); 9]), "messages"),
    ] {
        assert_eq!(system.post(CHAT, &said(parts)).expect(400).text("/error/param"), param);
    }
}

/// A model itself is there only if the configuration says so, and then without anything of ken.
#[test]
fn a_model_itself_answers_where_it_is_allowed() {
    let (_closed, system) = with_provider();
    let raw = |said: &[(&str, &str)]| with(ask(said), "model", json!("openai/m"));
    assert_eq!(system.post(CHAT, &raw(&[("user", "hi")])).expect(404).text("/error/code"), "model_not_found");
    let provider = Provider::answering(|request: &ReceivedRequest| {
        let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13});
        let is_offered = request.body["tools"].to_string().contains("\"weather\"");
        let calls: &[(&str, &str, &str)] = if is_offered { &[("c1", "weather", "{\"city\": \"Rome\"}")] } else { &[] };
        Reply::Stream(with_usage(openai(&["One."], calls), &usage))
    });
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .config("[doors]\nraw_models = true\n")
        .start();
    let said = [("system", "Be brief."), ("user", "The first."), ("assistant", "Yes?"), ("user", "The second.")];
    let body = with(with(raw(&said), "temperature", json!(0.5)), "top_p", json!(1));
    let whole = system.post(CHAT, &body).expect(200);
    assert_eq!((content(&whole).as_str(), whole.at("/usage/total_tokens")), ("One.", json!(13)));
    assert_eq!(whole.header("x-ken-ignored"), Some("top_p"));
    let sent = provider.received().last().unwrap().body.clone();
    let texts: Vec<&str> =
        sent["messages"].as_array().unwrap().iter().filter_map(|one| one["content"].as_str()).collect();
    assert_eq!((texts, &sent["temperature"]), (vec!["Be brief.", "The first.", "Yes?", "The second."], &json!(0.5)));
    let streamed = system.post(CHAT, &with(body.clone(), "stream", json!(true))).expect(200).body_text();
    assert_eq!(streamed_text(&pieces(&streamed)), "One.");
    let tools = with(raw(&[("user", "Weather?")]), "tools", weather_tool(true));
    let called = system.post(CHAT, &tools).expect(200);
    let call = called.at("/choices/0/message/tool_calls/0");
    assert_eq!(
        (&call["function"]["name"], called.text("/choices/0/finish_reason").as_str()),
        (&json!("weather"), "tool_calls")
    );
    let mut answered = tools.clone();
    answered["messages"].as_array_mut().unwrap().extend([
        called.at("/choices/0/message"),
        json!({"role": "tool", "tool_call_id": call["id"], "content": "18 degrees"}),
    ]);
    system.post(CHAT, &answered).expect(200);
    let sent = last_request(&provider);
    assert!(sent.contains("18 degrees") && sent.contains("Rome"), "{sent}");
    // Nothing of it is kept, and the agents are what they were.
    assert_eq!(system.get("/api/chat/sessions?limit=100").expect(200).at("/sessions"), json!([]));
    let models = system.get("/v1/models").expect(200).body_text();
    assert!(models.contains("\"openai/m\"") && models.contains("\"ken\""), "{models}");
    system.get("/v1/models/openai/m").expect(200);
    // A name of the program's own can begin as the names do that an agent is told.
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let choice = json!({"type": "function", "function": {"name": "client__x"}});
    let named = with(body.clone(), "tools", json!([function("x"), function("client__x")]));
    system.post(CHAT, &named).expect(200);
    let sent = provider.received().last().unwrap().body["tools"].clone();
    assert_eq!((&sent[0]["function"]["name"], &sent[1]["function"]["name"]), (&json!("x"), &json!("client__x")));
    system.post(CHAT, &with(named, "tool_choice", choice)).expect(200);
    assert!(last_request(&provider).contains("Answer with a call of the tool client__x."));
    for (name, value) in [
        ("max_tokens", json!(-1)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!("100")),
        ("max_completion_tokens", json!(1.5)),
        ("temperature", json!("hot")),
        ("temperature", json!(2.1)),
        ("temperature", json!(-0.1)),
    ] {
        let refused = system.post(CHAT, &with(body.clone(), name, value.clone())).expect(400);
        assert_eq!(refused.text("/error/param"), name, "{value}");
    }
    for (name, value) in [("max_tokens", json!(1)), ("temperature", json!(2)), ("temperature", Value::Null)] {
        system.post(CHAT, &with(body.clone(), name, value.clone())).expect(200);
        let sent = provider.received().last().unwrap().body.clone();
        assert_eq!(sent[name].as_f64(), value.as_f64(), "{name}: {sent}");
    }
    let other = with(body.clone(), "model", json!("openai/other"));
    assert_eq!(system.post(CHAT, &other).expect(404).text("/error/code"), "model_not_found");
    let twice = with(body, "n", json!(2));
    assert_eq!(system.post(CHAT, &twice).expect(400).text("/error/param"), "n");
    assert_eq!(content(&system.post(CHAT, &ask(&[("user", "hi")])).expect(200)), "One.");
}

const RESPONSES: &str = "/v1/responses";

fn output(answer: &Answer) -> String {
    answer.text("/output/0/content/0/text")
}

/// The events of a streamed answer of `/v1/responses`. Their numbers have no gap.
fn numbered(text: &str) -> Vec<Value> {
    let frames = text.split("\n\n").filter_map(|frame| frame.split_once("\ndata: "));
    let events: Vec<Value> = frames.map(|(_, data)| serde_json::from_str(data).expect("JSON")).collect();
    let first = events.first().expect("events")["sequence_number"].as_u64().unwrap();
    for (number, event) in (first..).zip(&events) {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    events
}

#[test]
fn an_answer_of_responses_is_read_continued_and_deleted_by_its_id() {
    let (provider, system) = with_provider();
    let ask = |input: &str, more: &[(&str, Value)]| {
        let body = more
            .iter()
            .fold(json!({"model": "ken", "input": input}), |body, (name, value)| with(body, name, value.clone()));
        system.post(RESPONSES, &body)
    };
    let first = ask("The first.", &[("instructions", json!("Be short.")), ("temperature", json!(1))]).expect(200);
    assert_eq!((output(&first), first.text("/status")), ("One.".to_owned(), "completed".to_owned()));
    assert_eq!(first.header("x-ken-ignored"), Some("temperature"));
    assert_eq!(first.at("/usage/input_tokens_details/cached_tokens"), 5);
    assert!(last_request(&provider).contains("Be short."));
    let id = first.text("/id");
    assert_eq!(system.get(&format!("{RESPONSES}/{id}")).expect(200).json(), first.json());
    // It goes on by the id, and not by the instructions of an earlier request.
    let second = ask("The second.", &[("previous_response_id", json!(id))]).expect(200);
    assert_eq!((session(&second), second.text("/previous_response_id")), (session(&first), id.clone()));
    assert!(last_request(&provider).contains("The first.") && !last_request(&provider).contains("Be short."));
    // From an answer in the middle, another conversation goes on that begins with what was said up to it.
    let branch = ask("The other second.", &[("previous_response_id", json!(id))]).expect(200);
    assert_ne!(session(&branch), session(&first));
    assert_eq!(prompts(&system, &session(&branch)), ["The first.", "The other second."]);
    // Messages find their session here too.
    let alone =
        system.post(RESPONSES, &json!({"model": "ken", "input": [{"role": "user", "content": "Alone."}]})).expect(200);
    let items = json!([{"role": "user", "content": "Alone."}, {"type": "message", "role": "assistant", "content":
        [{"type": "output_text", "text": "One."}]}, {"role": "user", "content": [{"type": "input_text", "text": "Together."}]}]);
    let third = system.post(RESPONSES, &json!({"model": "ken", "input": items})).expect(200);
    assert_eq!(session(&third), session(&alone));
    assert_eq!(prompts(&system, &session(&third)), ["Alone.", "Together."]);
    let deleted = system.delete(&format!("{RESPONSES}/{}", branch.text("/id"))).expect(200);
    assert_eq!(deleted.at("/deleted"), true);
    system.get(&format!("{RESPONSES}/{}", branch.text("/id"))).expect(404);
    // It was the only one of its session.
    let all = system.get("/api/chat/sessions?empty=1&limit=100").expect(200).body_text();
    assert!(!all.contains(&session(&branch)) && all.contains(&session(&first)), "{all}");
    system.delete(&format!("{RESPONSES}/{id}")).expect(200);
    assert_eq!(prompts(&system, &session(&first)).len(), 2);
    for (more, param, code) in [
        (("previous_response_id", json!(id)), "previous_response_id", "previous_response_not_found"),
        (("previous_response_id", json!("resp_1")), "previous_response_id", "previous_response_not_found"),
        (("conversation", json!("c")), "conversation", "unsupported_parameter"),
        (("inputs", json!("c")), "inputs", "unknown_parameter"),
        (("text", json!({"format": {"type": "json_object"}})), "text.format", "unsupported_parameter"),
    ] {
        let refused = ask("Hello.", &[more]).expect(400);
        assert_eq!((refused.text("/error/param"), refused.text("/error/code")), (param.to_owned(), code.to_owned()));
    }
    system.post(RESPONSES, &json!({"model": "ken", "input": [{"type": "image_generation_call"}]})).expect(400);
}

#[test]
fn a_streamed_answer_of_responses_can_be_read_again_from_any_event() {
    let system = scripted();
    let answer = system.post(RESPONSES, &json!({"model": "ken", "input": "tools", "stream": true})).expect(200);
    let events = numbered(&answer.body_text());
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let (begin, end) = (
        ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"],
        ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"],
    );
    assert_eq!((&kinds[..4], &kinds[kinds.len() - 4..]), (&begin[..], &end[..]));
    let text: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(text, "Let me look.\nTools are gone.");
    let last = &events.last().unwrap()["response"];
    assert_eq!((&last["output"][0]["content"][0]["text"], &last["status"]), (&json!(text), &json!("completed")));
    let id = last["id"].as_str().unwrap();
    for after in 0..events.len() - 1 {
        let target = format!("{RESPONSES}/{id}?stream=true&starting_after={after}");
        assert_eq!(numbered(&system.get(&target).expect(200).body_text()), events[after + 1..]);
    }
    system.get(&format!("{RESPONSES}/{id}?stream=true&starting_after=x")).expect(400);
    // A failed turn is told as the failed answer.
    let answer = system.post(RESPONSES, &json!({"model": "ken", "input": "refused", "stream": true})).expect(200);
    let failed = numbered(&answer.body_text()).pop().unwrap();
    assert_eq!(
        (failed["type"].as_str(), failed["response"]["status"].as_str()),
        (Some("response.failed"), Some("failed"))
    );
    let id = failed["response"]["id"].as_str().unwrap();
    assert_eq!(system.get(&format!("{RESPONSES}/{id}")).expect(200).text("/error/code"), "server_error");
    assert_eq!(
        system
            .post(RESPONSES, &json!({"model": "ken", "input": "length"}))
            .expect(200)
            .text("/incomplete_details/reason"),
        "max_output_tokens"
    );
}

#[test]
fn an_answer_of_responses_in_the_background_is_cancelled() {
    let system = scripted();
    let begun = system.post(RESPONSES, &json!({"model": "ken", "input": "hold", "background": true})).expect(200);
    assert_eq!(begun.text("/status"), "in_progress");
    let target = format!("{RESPONSES}/{}", begun.text("/id"));
    until("the turn runs", || system.get(&target).expect(200).text("/status") == "in_progress");
    let cancelled = system.post(&format!("{target}/cancel"), &json!({})).expect(200);
    assert_eq!(cancelled.text("/status"), "cancelled");
    assert_eq!(system.get(&target).expect(200).text("/status"), "cancelled");
    system.get(&format!("{RESPONSES}/resp_{}", "0".repeat(32))).expect(404);
}

/// A model that asks for the weather in two cities, and says what it was told.
fn weather() -> (Provider, System) {
    let provider = Provider::answering(|request: &ReceivedRequest| {
        let messages = request.body["messages"].as_array().unwrap();
        let results = messages.iter().filter(|message| message["role"] == "tool");
        let results: Vec<&str> = results.filter_map(|message| message["content"].as_str()).collect();
        let offered = request.body["tools"].to_string().contains("client__weather");
        Reply::Stream(match results.as_slice() {
            [] if offered => openai(
                &["I look."],
                &[
                    ("c1", "client__weather", "{\"city\": \"Paris\"}"),
                    ("c2", "client__weather", "{\"city\": \"Rome\"}"),
                ],
            ),
            [] => openai(&["As I said."], &[]),
            results => openai(&[&results.join(" and ")], &[]),
        })
    });
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    (provider, system)
}

fn weather_tool(is_nested: bool) -> Value {
    let function = json!({"name": "weather", "description": "The weather.", "parameters": {"type": "object",
        "properties": {"city": {"type": "string"}}}});
    if is_nested {
        json!([{"type": "function", "function": function}])
    } else {
        json!([with(function, "type", json!("function"))])
    }
}

#[test]
fn a_program_runs_its_own_tools() {
    let (provider, system) = weather();
    let tools = weather_tool(true);
    let mut body = with(ask(&[("user", "Which weather?")]), "tools", tools.clone());
    let first = system.post(CHAT, &body).expect(200);
    assert_eq!(
        (content(&first), first.text("/choices/0/finish_reason")),
        ("I look.".to_owned(), "tool_calls".to_owned())
    );
    let message = first.at("/choices/0/message");
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!((&calls[0]["function"]["name"], calls.len()), (&json!("weather"), 2));
    let arguments: Value = serde_json::from_str(calls[1]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"city": "Rome"}));
    let result = |call: &Value, text: &str| json!({"role": "tool", "tool_call_id": call["id"], "content": text});
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    let asked = messages.clone();
    // All calls are answered, each once.
    for results in [vec![], vec![result(&calls[0], "18")], vec![result(&calls[0], "18"), result(&calls[0], "18")]] {
        let messages = asked.iter().cloned().chain(results).collect::<Vec<_>>();
        assert_eq!(
            system.post(CHAT, &with(body.clone(), "messages", json!(messages))).expect(400).text("/error/param"),
            "messages"
        );
    }
    let answered: Vec<Value> =
        asked.iter().cloned().chain([result(&calls[1], "21"), result(&calls[0], "18")]).collect();
    let second = system.post(CHAT, &with(body.clone(), "messages", json!(answered))).expect(200);
    assert_eq!((content(&second), session(&second)), ("18 and 21".to_owned(), session(&first)));
    // The model sees its calls and their results as such, and nothing twice.
    let sent = provider.received().last().unwrap().body["messages"].clone();
    let sent: Vec<&Value> = sent.as_array().unwrap().iter().filter(|message| message["role"] != "system").collect();
    let roles: Vec<&str> = sent.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool"], "{sent:?}");
    assert_eq!(
        (&sent[1]["tool_calls"][0]["id"], &sent[2]["tool_call_id"], &sent[2]["content"]),
        (&json!("c1"), &json!("c1"), &json!("18"))
    );
    // The conversation goes on.
    let last: Vec<Value> = answered
        .iter()
        .cloned()
        .chain([second.at("/choices/0/message"), json!({"role": "user", "content": "Again?"})])
        .collect();
    let third = system.post(CHAT, &json!({"model": "ken", "messages": last})).expect(200);
    assert_eq!((content(&third), session(&third)), ("As I said.".to_owned(), session(&first)));
    // In pieces, too.
    let streamed = with(with(ask(&[("user", "Which weather now?")]), "tools", tools), "stream", json!(true));
    let pieces = pieces(&system.post(CHAT, &streamed).expect(200).body_text());
    let calls: Vec<&Value> = pieces.iter().filter_map(|piece| piece.pointer("/choices/0/delta/tool_calls/0")).collect();
    assert_eq!((calls.len(), &calls[1]["index"], &calls[1]["function"]["name"]), (2, &json!(1), &json!("weather")));
    assert_eq!(pieces.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn an_answer_of_responses_goes_on_with_the_results_of_tools() {
    let (_provider, system) = weather();
    let body = json!({"model": "ken", "input": "Which weather?", "tools": weather_tool(false)});
    let first = system.post(RESPONSES, &body).expect(200);
    let items = first.at("/output");
    let calls: Vec<&Value> = items.as_array().unwrap().iter().filter(|item| item["type"] == "function_call").collect();
    assert_eq!((calls.len(), &calls[0]["name"], first.text("/status").as_str()), (2, &json!("weather"), "completed"));
    let result =
        |call: &Value, text: &str| json!({"type": "function_call_output", "call_id": call["call_id"], "output": text});
    let results = [result(calls[0], "18"), result(calls[1], "21")];
    let one = json!({"model": "ken", "input": results[..1], "previous_response_id": first.text("/id")});
    system.post(RESPONSES, &one).expect(400);
    let next = with(body.clone(), "previous_response_id", json!(first.text("/id")));
    let next = system.post(RESPONSES, &with(next, "input", json!(results))).expect(200);
    assert_eq!((output(&next), session(&next)), ("18 and 21".to_owned(), session(&first)));
    // So does one that sends everything itself.
    let whole: Vec<Value> = [json!({"role": "user", "content": "Which weather?"})]
        .into_iter()
        .chain(items.as_array().unwrap().clone())
        .chain(results)
        .collect();
    let again = system.post(RESPONSES, &with(body.clone(), "input", json!(whole))).expect(200);
    assert_eq!(output(&again), "18 and 21");
    let events = numbered(
        &system.post(RESPONSES, &with(with(body, "stream", json!(true)), "user", json!("u"))).expect(200).body_text(),
    );
    let done: Vec<&Value> =
        events.iter().filter(|event| event["type"] == "response.function_call_arguments.done").collect();
    assert_eq!((done.len(), &done[0]["output_index"], &done[1]["output_index"]), (2, &json!(1), &json!(2)));
    assert_eq!(events.last().unwrap()["response"]["output"].as_array().unwrap().len(), 3);
}

/// A system whose tool `gated` needs an approval, and whose callers wait for it for a moment.
fn gated() -> System {
    let call = json!({"tool": {"name": "gated", "arguments": {}}});
    let system = Builder::default()
        .script(&[
            json!({"when": "gate", "after_tools": 1, "events": [{"text": "Done."}]}),
            json!({"when": "gate", "events": [{"text": "I ask."}, call]}),
            json!({"events": [{"text": "Hello there."}]}),
        ])
        .config("[doors]\nwait_ms = 300\n")
        .start();
    std::fs::create_dir_all(system.home().join("tools.d")).unwrap();
    let entry = json!({"name": "gated", "description": "A tool.", "command": ["echo", "did it"], "input": {"type": "object"},
        "writes": "text", "agents": ["orchestrator"], "approval": "ask"});
    std::fs::write(system.home().join("tools.d/gated.json"), entry.to_string()).unwrap();
    until("the tool is listed", || system.call("tools", "tools.list", &[]).to_string().contains("gated"));
    system
}

/// Waits for a request, and decides it.
fn decide(system: &System, approved: bool) -> String {
    let mut found = String::new();
    until("a decision is asked for", || {
        let pending = system.get("/api/approvals/pending").expect(200).json();
        found = pending[0]["requestId"].as_str().unwrap_or_default().to_owned();
        !found.is_empty()
    });
    let decision = json!({"decidedBy": "a test", "approved": approved});
    system.post(&format!("/api/approvals/{found}/decision"), &decision).expect(200);
    found
}

#[test]
fn a_turn_that_waits_for_a_decision_is_told_and_its_answer_is_owed() {
    let system = gated();
    let mut said = vec![("user", "gate it".to_owned())];
    let send = |said: &[(&str, String)]| {
        let said: Vec<(&str, &str)> = said.iter().map(|(role, text)| (*role, text.as_str())).collect();
        system.post(CHAT, &ask(&said)).expect(200)
    };
    let notice = send(&said);
    assert!(content(&notice).contains("ken waits for a decision on apr_"), "{}", notice.body_text());
    assert_eq!(notice.text("/choices/0/finish_reason"), "stop");
    // What a client writes is no decision. The next answer waits too, and its caller is told again.
    said.extend([("assistant", content(&notice)), ("user", "I approve. Yes.".to_owned())]);
    let again = send(&said);
    assert!(content(&again).contains("apr_") && session(&again) == session(&notice), "{}", again.body_text());
    let request = decide(&system, true);
    assert!(content(&notice).contains(&request));
    said.extend([("assistant", content(&again)), ("user", "hello".to_owned())]);
    let paid = send(&said);
    assert_eq!(
        (content(&paid), session(&paid)),
        ("Done.\n\nHello there.\n\nHello there.".to_owned(), session(&notice))
    );
    said.extend([("assistant", content(&paid)), ("user", "hello again".to_owned())]);
    let last = send(&said);
    assert_eq!((content(&last), session(&last)), ("Hello there.".to_owned(), session(&notice)));
    assert_eq!(prompts(&system, &session(&notice)), ["gate it", "I approve. Yes.", "hello", "hello again"]);
}

#[test]
fn a_stream_and_a_response_wait_for_a_decision_in_their_own_way() {
    let system = gated();
    let address = system.address();
    let body = with(ask(&[("user", "gate the stream")]), "stream", json!(true));
    let caller = std::thread::spawn(move || Client::connect(address).post(CHAT, &body).expect(200));
    let request = decide(&system, true);
    let answer = caller.join().unwrap();
    let text = streamed_text(&pieces(&answer.body_text()));
    assert!(
        text.starts_with("I ask.\n\n*ken waits for a decision") && text.contains(&request) && text.ends_with("Done."),
        "{text}"
    );
    let next =
        system.post(CHAT, &ask(&[("user", "gate the stream"), ("assistant", &text), ("user", "hello")])).expect(200);
    assert_eq!(session(&next), session(&answer));
    let begun = system.post(RESPONSES, &json!({"model": "ken", "input": "gate the response"})).expect(200);
    assert_eq!(begun.text("/status"), "in_progress");
    decide(&system, false);
    let target = format!("{RESPONSES}/{}", begun.text("/id"));
    until("the answer is there", || system.get(&target).expect(200).text("/status") == "completed");
    assert_eq!(output(&system.get(&target).expect(200)), "Done.");
}

#[test]
fn what_is_owed_is_paid_by_the_next_response_too() {
    let system = gated();
    let notice = system.post(CHAT, &ask(&[("user", "gate it")])).expect(200);
    assert!(content(&notice).contains("ken waits for a decision"), "{}", notice.body_text());
    let said = |stream: bool, text: &str, before: &[Value]| {
        let said: Vec<Value> = before.iter().cloned().chain([json!({"role": "user", "content": text})]).collect();
        json!({"model": "ken", "input": said, "stream": stream})
    };
    let mut before =
        vec![json!({"role": "user", "content": "gate it"}), json!({"role": "assistant", "content": content(&notice)})];
    let waits = system.post(RESPONSES, &said(false, "hello", &before)).expect(200);
    assert_eq!((waits.text("/status"), session(&waits)), ("in_progress".to_owned(), session(&notice)));
    decide(&system, true);
    let target = format!("{RESPONSES}/{}", waits.text("/id"));
    until("the answer is there", || system.get(&target).expect(200).text("/status") == "completed");
    let paid = "Done.\n\nHello there.";
    assert_eq!(output(&system.get(&target).expect(200)), paid);
    // Whoever reads its events gets the same, and goes on with it.
    let events = numbered(&system.get(&format!("{target}?stream=true")).expect(200).body_text());
    assert_eq!(events.last().unwrap()["response"]["output"][0]["content"][0]["text"], paid);
    before.extend([json!({"role": "user", "content": "hello"}), json!({"role": "assistant", "content": paid})]);
    let next = system.post(RESPONSES, &said(false, "hello again", &before)).expect(200);
    assert_eq!((output(&next), session(&next)), ("Hello there.".to_owned(), session(&notice)));
}
