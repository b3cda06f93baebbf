//! Limits on tokens and cost: the maximum use of a call is reserved before it and settled after it, even with parallel calls and
//! kills.

use std::process::{Child, Output, Stdio};

use ken_tests::provider::{Piece, Provider, Reply, refusal};
use ken_tests::{Builder, System, tui, until};
use serde_json::{Value, json};

/// An answer that reports this usage in tokens.
fn used(input: u64, output: u64) -> Vec<Piece> {
    let frame = |event: Value| Piece::Bytes(format!("data: {event}\n\n").into_bytes());
    vec![
        frame(json!({"choices": [{"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}]})),
        frame(json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}})),
        Piece::Bytes(b"data: [DONE]\n\n".to_vec()),
    ]
}

fn held_reply(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.insert(0, Piece::Silence);
    pieces
}

fn system(provider: &Provider, models: &str, budget: &str) -> System {
    Builder::default()
        .config(&format!("[model.budget]\n{budget}\n"))
        .env("KEN_MODEL", models)
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-canary\n")
        .file(
            "models.toml",
            "[[model]]\nname = \"openai/*\"\nwindow = 32000\noutput = 1000\nprice = { input = 1.0, output = 20.0 }\n",
        )
        .start()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A direct model call on behalf of a session, in a separate process.
fn call(system: &System, session: &str) -> Child {
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}], "timestamp": 0}]);
    system
        .command(&[
            "call",
            "model",
            "model.generate",
            "system=",
            "purpose=agent",
            &format!("session={session}"),
            &format!("messages={messages}"),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn spent(system: &System) -> Value {
    system.call("model", "model.budget", &[])["spent"]["day"].clone()
}

#[test]
fn an_exhausted_budget_refuses_the_turn_without_a_provider_call() {
    let provider = Provider::start(vec![Reply::Stream(used(9_000, 500))]);
    let system = system(&provider, "openai/m", "tokens_per_day = 10000");
    let session = system.session();
    system.say(&session, "First").expect(200);
    // The requested maximum length is the smaller of the model's own limit and the rest of the budget.
    assert_eq!(provider.received()[0].body["max_tokens"], 1_000);
    assert_eq!(spent(&system), json!({"tokens": 9_500, "cost": 0.019, "reserved_tokens": 0}));
    let failed = system.say(&session, "Second");
    let body = failed.expect(500).json();
    let words = "the budget of 10000 tokens per day does not cover this call: 9500 tokens are used, and it needs";
    assert_eq!(body["code"], "model_failed");
    assert!(body["error"].as_str().unwrap().contains(words), "{body}");
    assert_eq!(provider.received().len(), 1);
    let why = output_text(&system.ken(&["why", body["submissionId"].as_str().unwrap()]));
    assert!(why.starts_with("failed: It failed. budget: ") && why.contains(words), "{why}");
    let usage = output_text(&system.ken(&["usage"]));
    assert!(usage.contains(": 9500 of 10000 tokens used, 500 left\n"), "{usage}");
    let usage = output_text(&system.ken(&["usage", "--json"]));
    let last: Value = serde_json::from_str(usage.lines().last().unwrap()).unwrap();
    assert_eq!(last["budget"]["caps"]["tokens_per_day"], 10_000);
    let status = system.ken(&["status"]);
    let status = String::from_utf8_lossy(&status.stderr);
    assert!(status.contains("ken: model: the budget of 10000 tokens per day does not cover"), "{status}");
    let found = output_text(&system.ken(&["doctor"]));
    assert!(found.contains("over-budget: [model.budget]: the budget of 10000 tokens per day"), "{found}");
    // Without ken-model the budget is not shown, only the usage.
    assert!(system.ken(&["stop", "model", "--dependents"]).status.success());
    let usage = system.ken(&["usage"]);
    let (table, stderr) = (output_text(&usage), String::from_utf8_lossy(&usage.stderr));
    assert_eq!(usage.status.code(), Some(0), "{stderr}");
    assert!(table.contains("9000") && !table.contains("budget"), "{table}");
    assert!(stderr.starts_with("ken: the budget is not known: nobody listens on "), "{stderr}");
}

#[test]
fn the_cost_of_a_session_is_limited_and_a_model_without_a_price_takes_over() {
    let replies = [used(1_000, 10), used(1_000, 10), used(1_000, 500)];
    let provider = Provider::start(replies.map(Reply::Stream).to_vec());
    let system = system(&provider, "openai/m,rules", "cost_per_session = 0.015");
    let (first, second) = (system.session(), system.session());
    let model = |answer: Value| answer["result"]["model"]["provider"].as_str().unwrap().to_owned();
    assert_eq!(model(system.say(&first, "One").expect(200).json()), "openai");
    // 1,000 tokens at $1 and 10 tokens at $20 per million.
    let usage = output_text(&system.ken(&["usage", "--session", &first]));
    assert!(usage.contains("$0.0012 of $0.0150 used, $0.0138 left"), "{usage}");
    let limit = provider.received()[0].body["max_tokens"].as_u64().unwrap();
    assert!((64..1_000).contains(&limit), "{limit}");
    assert_eq!(model(system.say(&second, "Another").expect(200).json()), "openai");
    assert_eq!(model(system.say(&first, "Two").expect(200).json()), "openai");
    // $0.0124 is used. The rest does not cover a request with the shortest answer.
    let three = system.say(&first, "Three").expect(200).json();
    let text = three["result"]["text"].as_str().unwrap().to_owned();
    assert_eq!(model(three), "rules");
    assert!(text.contains("The budget covers no call of a language model just now (the budget of $0.0150"), "{text}");
    assert_eq!(provider.received().len(), 3);
}

#[test]
fn a_budget_that_is_used_up_is_reported_although_a_cheaper_model_answers() {
    let replies = [used(1_000, 700), used(1, 1), used(1_000, 10)];
    let provider = Provider::start(replies.map(Reply::Stream).to_vec());
    let system = Builder::default()
        .config("[model.budget]\ncost_per_session = 0.015\n")
        .env("KEN_MODEL", "openai/m,openai/free")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-canary\n")
        .file(
            "models.toml",
            "[[model]]\nname = \"openai/free\"\nwindow = 32000\noutput = 1000\n\n\
             [[model]]\nname = \"openai/*\"\nwindow = 32000\noutput = 1000\nprice = { input = 1.0, output = 20.0 }\n",
        )
        .start();
    let reported = || {
        let status = String::from_utf8_lossy(&system.ken(&["status"]).stderr).into_owned();
        let doctor = output_text(&system.ken(&["doctor"]));
        let is_told = |text: &str, by: &str| text.contains(&format!("{by}: the budget of $0.0150"));
        (is_told(&status, "ken: model"), is_told(&doctor, "over-budget: [model.budget]"))
    };
    let first = system.session();
    let asked = |number: usize| provider.received()[number].body["model"].clone();
    system.say(&first, "One").expect(200);
    assert_eq!((asked(0), reported()), (json!("m"), (false, false)));
    system.say(&first, "Two").expect(200);
    assert_eq!((asked(1), reported()), (json!("free"), (true, true)));
    // Another session has a budget of its own, so the model is called again.
    system.say(&system.session(), "Three").expect(200);
    assert_eq!(asked(2), json!("m"));
    until("the budget covers its calls", || reported() == (false, false));
}

#[test]
fn parallel_calls_never_reserve_the_same_tokens() {
    let replies = (0..8).map(|_| Reply::Stream(used(50, 950)));
    let provider = Provider::start(replies.collect());
    // Each call reserves the few tokens of its request and 1,000 tokens for the answer. The budget is enough for two calls, but
    // not for a third.
    let system = system(&provider, "openai/m", "tokens_per_day = 2050");
    let calls: Vec<Child> = (0..8).map(|number| call(&system, &format!("s{number}"))).collect();
    let ended: Vec<Output> = calls.into_iter().map(|call| call.wait_with_output().unwrap()).collect();
    let done = ended.iter().filter(|output| output.status.success()).count();
    for output in ended.iter().filter(|output| !output.status.success()) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("of 2050 tokens per day does not cover"), "{stderr}");
    }
    assert_eq!((done, provider.received().len()), (2, 2));
    assert_eq!(spent(&system)["tokens"], 2_000);
}

#[test]
fn a_call_interrupted_by_a_kill_counts_as_reserved() {
    let provider = Provider::start(vec![Reply::Stream(held_reply(used(1, 1)))]);
    let system = system(&provider, "openai/m", "tokens_per_day = 1050");
    let mut cut = call(&system, "s");
    until("the provider is asked", || !provider.received().is_empty());
    let reserved = spent(&system);
    let tokens = reserved["tokens"].as_u64().unwrap();
    assert!(tokens > 1_000 && reserved["reserved_tokens"] == tokens, "{reserved}");
    system.kill("model");
    _ = cut.wait();
    system.kill("store");
    assert_eq!(spent(&system), reserved);
    let output = call(&system, "s").wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(75), "{stderr}");
    assert!(stderr.contains("calls under way have reserved the rest"), "{stderr}");
    assert!(output_text(&system.ken(&["usage"])).contains(&format!("{tokens} tokens of it reserved")));
}

#[test]
fn a_refused_call_costs_nothing_and_an_abandoned_one_what_was_received() {
    let mut begun = used(1, 1);
    begun.truncate(1);
    begun.push(Piece::UntilGone);
    let provider = Provider::start(vec![refusal(400, Vec::new(), "invalid_request_error", "no"), Reply::Stream(begun)]);
    let system = system(&provider, "openai/m", "tokens_per_session = 9000");
    assert!(!call(&system, "s").wait_with_output().unwrap().status.success());
    assert_eq!(spent(&system)["tokens"], 0);
    let mut left = call(&system, "s");
    until("the second call is under way", || provider.received().len() == 2);
    until("it has reserved", || spent(&system)["reserved_tokens"].as_u64().unwrap() > 1_000);
    left.kill().unwrap();
    _ = left.wait();
    until("it is settled", || spent(&system)["reserved_tokens"] == 0);
    let tokens = spent(&system)["tokens"].as_u64().unwrap();
    assert!((1..1_000).contains(&tokens), "{tokens}");
    // The usage of a prompt is counted for its session.
    provider.push(Reply::Stream(used(70, 7)));
    let answer = system.post("/api/chat/events", &tui(&[("text", json!("Hello"))])).expect(200).json();
    let id = answer["session"]["id"].as_str().unwrap();
    let usage = output_text(&system.ken(&["usage", "--session", id]));
    assert!(usage.contains(&format!("budget of {id}: 77 of 9000 tokens used, 8923 left")), "{usage}");
}

#[test]
fn vectors_count_against_the_daily_budget() {
    let vector =
        json!({"data": [{"index": 0, "embedding": [1.0, 0.5]}], "usage": {"prompt_tokens": 950, "total_tokens": 950}});
    let json_type = vec![("content-type", "application/json".to_owned())];
    let provider = Provider::start(vec![Reply::Status(200, json_type, vector.to_string())]);
    let system = Builder::default()
        .config("[model.budget]\ntokens_per_day = 1000\n")
        .env("KEN_EMBED", "openai/text-embedding-3-small")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-canary\n")
        .start();
    // About 130 tokens by the estimate.
    let entry = |word: &str| json!({"title": word, "content": format!("{word} ").repeat(80)});
    system.post("/api/knowledge", &entry("tank")).expect(201);
    until("its vector is paid for", || {
        spent(&system) == json!({"tokens": 950, "cost": 0.000019, "reserved_tokens": 0})
    });
    system.post("/api/knowledge", &entry("pump")).expect(201);
    until("the next one is refused", || {
        let status = system.ken(&["status"]);
        let status = String::from_utf8_lossy(&status.stderr).into_owned();
        status.contains("agent: entries get no vectors: the budget of 1000 tokens per day does not cover this call")
    });
    assert_eq!((provider.received().len(), spent(&system)["tokens"].as_u64()), (1, Some(950)));
}
