//! Model providers over the network: the real ken-model, as a filter and in whole systems, against scripted providers of
//! both wire formats on loopback.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ken_tests::connect_proxy::ConnectProxy;
use ken_tests::provider::{Piece, Provider, ReceivedRequest, Reply, anthropic, openai, refusal};
use ken_tests::tls::Tls;
use ken_tests::{Builder, System, binary, in_own_mounts, tui, until};
use serde_json::{Value, json};

const KEY: &str = "sk-canary-5f2d";

fn stream(pieces: Vec<Piece>) -> Reply {
    Reply::Stream(pieces)
}

/// A command that runs ken-model as a filter, with this provider for both wire formats.
fn filter(provider: &Provider, models: &str, words: &[&str]) -> Command {
    let mut command = Command::new(binary("ken-model"));
    command.env_clear().env("KEN_ERRORS", "json").args(words);
    command
        .env("KEN_MODEL", models)
        .env("OPENAI_BASE_URL", format!("{}/v1", provider.url()))
        .env("ANTHROPIC_BASE_URL", provider.url())
        .env("OPENAI_API_KEY", KEY)
        .env("ANTHROPIC_API_KEY", KEY);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().unwrap();
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// The answer of a filter that succeeds.
fn answer(provider: &Provider, models: &str, input: &str) -> Value {
    let output = run(filter(provider, models, &[]), input);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The error of a filter that fails with nothing on standard output.
fn error(provider: &Provider, models: &str, input: &str) -> Value {
    let output = run(filter(provider, models, &[]), input);
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains(KEY), "{stderr}");
    serde_json::from_str::<Value>(&stderr).unwrap()["error"].clone()
}

#[test]
fn an_answer_of_chat_completions() {
    let reply = stream(openai(&["Grüße, ", "🦀."], &[("c1", "sum", "{\"x\": 1}"), ("c2", "now", "")]));
    let provider = Provider::start(vec![reply]);
    let got = answer(&provider, "openai/gpt-4o-mini", "Hello");
    assert_eq!(got["text"], "Grüße, 🦀.");
    assert_eq!(got["model"], json!({"provider": "openai", "id": "gpt-4o-mini"}));
    assert_eq!(got["stopReason"], "toolUse");
    let call = |id: &str, name: &str, arguments: Value| json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments});
    assert_eq!(got["toolCalls"], json!([call("c1", "sum", json!({"x": 1})), call("c2", "now", json!({}))]));
    assert_eq!((&got["usage"]["input"], &got["usage"]["output"]), (&json!(9), &json!(4)));
    // $0.15 and $0.60 per million.
    let cost = got["usage"]["cost"]["total"].as_f64().unwrap();
    assert!((cost - (9.0 * 0.15 + 4.0 * 0.6) / 1e6).abs() < 1e-12, "{cost}");
    let request: ReceivedRequest = provider.received().remove(0);
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(request.header("accept"), Some("text/event-stream"));
    assert_eq!(request.header("accept-encoding"), None);
    assert_eq!(request.body["model"], "gpt-4o-mini");
    assert_eq!(request.body["messages"][1], json!({"role": "user", "content": "Hello"}));
}

#[test]
fn an_answer_of_anthropic_messages() {
    let reply = stream(anthropic(&["Grüße, ", "🦀."], &[("c1", "sum", "{\"x\": 1}")]));
    let provider = Provider::start(vec![reply]);
    let got = answer(&provider, "anthropic/claude-sonnet-4-5", "Hello");
    assert_eq!((&got["text"], &got["stopReason"]), (&json!("Grüße, 🦀."), &json!("toolUse")));
    assert_eq!(got["toolCalls"][0]["arguments"], json!({"x": 1}));
    assert_eq!((&got["usage"]["input"], &got["usage"]["output"]), (&json!(9), &json!(4)));
    let request: ReceivedRequest = provider.received().remove(0);
    assert_eq!(request.path, "/v1/messages");
    assert_eq!(request.header("x-api-key"), Some(KEY));
    assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(request.body["max_tokens"], 16_384);
}

#[test]
fn an_image_is_sent_in_each_format() {
    let provider = Provider::start(vec![stream(openai(&["A dot."], &[])), stream(anthropic(&["A dot."], &[]))]);
    let image = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="});
    let content = json!([{"type": "text", "text": "What is it?"}, image]);
    let request = json!({"messages": [{"role": "user", "content": content}]}).to_string();
    for models in ["openai/m", "anthropic/m"] {
        assert_eq!(answer(&provider, models, &request)["text"], "A dot.");
    }
    let sent = |number: usize, place: &str| provider.received()[number].body.pointer(place).cloned().unwrap();
    assert_eq!(sent(0, "/messages/1/content/1/image_url/url"), "data:image/png;base64,iVBORw0KGgo=");
    assert_eq!(
        sent(1, "/messages/0/content/1/source"),
        json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="})
    );
}

/// An answer is accepted even if the provider does not stream it.
#[test]
fn an_answer_that_is_not_streamed() {
    let body = json!({"choices": [{"message": {"role": "assistant", "content": "Whole."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    let headers = vec![("content-type", "application/json".to_owned())];
    let provider = Provider::start(vec![Reply::Status(200, headers, body.to_string())]);
    assert_eq!(answer(&provider, "openai/m", "Hello")["text"], "Whole.");
    let body = json!({"type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "Whole."},
            {"type": "tool_use", "id": "c1", "name": "now", "input": {"zone": "UTC"}}],
        "usage": {"input_tokens": 3, "output_tokens": 1}});
    let headers = vec![("content-type", "application/json".to_owned())];
    let provider = Provider::start(vec![Reply::Status(200, headers, body.to_string())]);
    let got = answer(&provider, "anthropic/m", "Hello");
    assert_eq!((&got["text"], &got["stopReason"]), (&json!("Whole."), &json!("toolUse")));
    assert_eq!(got["toolCalls"][0]["arguments"], json!({"zone": "UTC"}));
    assert_eq!((&got["usage"]["input"], &got["usage"]["output"]), (&json!(3), &json!(1)));
}

#[test]
fn each_failure_has_its_code_and_names_the_model() {
    for (status, code, words, wanted) in [
        (400, "", "bad", "invalid"),
        (400, "context_length_exceeded", "too long", "too_large"),
        (401, "invalid_api_key", "Incorrect API key provided: sk-canary-5f2d", "unauthenticated"),
        (403, "", "no", "forbidden"),
        (404, "model_not_found", "no such model", "not_found"),
        (429, "", "slow down", "busy"),
        (429, "insufficient_quota", "pay", "forbidden"),
        (500, "", "oops", "unavailable"),
        (529, "", "busy", "busy"),
    ] {
        let provider = Provider::start(vec![refusal(status, Vec::new(), code, words)]);
        let error = error(&provider, "openai/m", "Hello");
        assert_eq!(error["code"], wanted, "{status}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("openai/m answered {status}")), "{message}");
        assert_eq!(provider.received().len(), 1, "a filter asks once");
    }
    for (location, to) in [("https://ken:canary@login.example/sso?key=canary", "login.example"), ("/v1/", "127.0.0.1:")]
    {
        let provider =
            Provider::start(vec![Reply::Status(302, vec![("location", location.to_owned())], String::new())]);
        let error = error(&provider, "openai/m", "Hello");
        let (message, hint) = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
        assert_eq!(error["code"], "not_found", "{error}");
        assert!(message.contains(&format!("openai/m answered 302, a redirect to {to}")), "{message}");
        assert!(hint.contains("is base_url right?") && !error.to_string().contains("canary"), "{error}");
    }
    // The provider has been dropped, so nothing listens at its address.
    let address = Provider::start(Vec::new()).url();
    let mut command = filter(&Provider::start(Vec::new()), "openai/m", &[]);
    command.env("OPENAI_BASE_URL", &address);
    let output = run(command, "Hello");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot reach 127.0.0.1:"));
}

#[test]
fn the_next_model_of_the_list_answers_when_one_fails() {
    let provider = Provider::start(vec![refusal(503, Vec::new(), "", "down"), stream(anthropic(&["Here."], &[]))]);
    let got = answer(&provider, "openai/m,anthropic/n,rules", "Hello");
    assert_eq!((&got["text"], &got["model"]["provider"]), (&json!("Here."), &json!("anthropic")));
    assert_eq!(got["failed"][0]["model"], "openai/m");
}

#[test]
fn a_stream_that_ends_early_breaks_or_stalls_is_an_error() {
    for whole in [openai(&["Half ", "of it."], &[]), anthropic(&["Half ", "of it."], &[])] {
        let is_openai = whole.len() == 6;
        let models = if is_openai { "openai/m" } else { "anthropic/m" };
        // Cut before the final event of either format.
        let half = whole[..3].to_vec();
        for (end, words) in [
            (vec![], "ended before the answer was complete"),
            (vec![Piece::Break], "broke"),
            (vec![Piece::Silence], "sent nothing for too long"),
        ] {
            let provider = Provider::start(vec![stream([half.clone(), end].concat())]);
            let mut command = filter(&provider, models, &[]);
            command.env("KEN_MODEL_TIMEOUT_MS", "600");
            let output = run(command, "Hello");
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{stderr}");
            assert!(stderr.contains("\"unavailable\"") && stderr.contains(words), "{stderr}");
        }
    }
}

/// Some servers keep the connection open after the last event.
#[test]
fn an_answer_is_complete_with_its_last_event() {
    for (models, whole) in [("openai/m", openai(&["Whole."], &[])), ("anthropic/m", anthropic(&["Whole."], &[]))] {
        for end in [Piece::Silence, Piece::UntilGone] {
            let provider = Provider::start(vec![stream([whole.clone(), vec![end]].concat())]);
            let started = Instant::now();
            assert_eq!(answer(&provider, models, "Hello")["text"], "Whole.");
            assert!(started.elapsed() < Duration::from_secs(60), "it was waited for");
        }
    }
}

#[test]
fn odd_token_counts_break_no_answer() {
    let huge = u64::MAX;
    for (counts, input, output) in [
        // Without valid counts, the usage is estimated.
        (json!({"prompt_tokens": null, "completion_tokens": null}), None, None),
        (json!({"prompt_tokens": -1, "completion_tokens": 1.5}), None, None),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": null}}),
            Some(9),
            Some(4),
        ),
        (json!({"prompt_tokens": huge, "completion_tokens": huge}), Some(1_000_000_000), Some(1_000_000_000)),
    ] {
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]});
        let usage = json!({"choices": null, "usage": counts});
        let text = format!("data: {chunk}\n\ndata: {usage}\n\ndata: [DONE]\n\n");
        let provider = Provider::start(vec![stream(vec![Piece::Bytes(text.into_bytes())])]);
        let got = answer(&provider, "openai/m", "Hello");
        assert_eq!(got["text"], "Yes.", "{counts}");
        let count = |name: &str| got["usage"][name].as_u64().unwrap();
        match (input, output) {
            (Some(input), Some(output)) => assert_eq!((count("input"), count("output")), (input, output)),
            _ => assert!((1..100).contains(&count("input")) && count("output") == 1, "{got}"),
        }
    }
}

/// Without prices, a limit on the cost would have no effect.
#[test]
fn a_price_table_that_cannot_be_used_is_an_error() {
    let provider = Provider::start(Vec::new());
    let home = tempfile::tempdir().unwrap();
    let table = home.path().join("models.toml");
    let refused = || {
        let places = [("KEN_CONFIG", home.path().join("ken.toml")), ("KEN_HOME", home.path().to_owned())];
        let errors = places.map(|(variable, path)| {
            [&[][..], &["check"], &["try", "openai/m"]].map(|words| {
                let mut command = filter(&provider, "openai/m", words);
                command.env(variable, &path);
                let output = run(command, "Hello");
                assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
                String::from_utf8(output.stderr).unwrap()
            })
        });
        let [error, others @ ..] = errors.as_flattened() else { unreachable!() };
        assert!(others.iter().all(|other| other == error), "{errors:?}");
        error.clone()
    };
    std::fs::create_dir(&table).unwrap();
    let error = refused();
    assert!(error.contains("models.toml") && error.contains("cannot be read"), "{error}");
    std::fs::remove_dir(&table).unwrap();
    for (text, wanted) in [
        ("[[model]]\nname = \"openai/*\"\nprice = { input = -1.0 }\n", "price.input is 0 to 1000000"),
        ("[[model]]\nname = \"openai/*\"\nwindow = 0\n", "window is 1 to"),
        ("[[model]]\nname = \"openai/*\"\nprise = 1\n", "models.toml:3"),
    ] {
        std::fs::write(&table, text).unwrap();
        let error = refused();
        assert!(error.contains(wanted), "{error}");
    }
    std::fs::remove_file(&table).unwrap();
    let check = |key: &str| {
        let mut command = filter(&provider, "openrouter/m,rules", &["check"]);
        command.env("KEN_HOME", home.path()).env("OPENROUTER_API_KEY", key);
        let output = run(command, "");
        let [shown, noted] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), shown, noted.contains("openrouter/m: OPENROUTER_API_KEY is not set"))
    };
    assert_eq!(check("k"), (Some(0), "openrouter/m\nrules/rules-1\n".to_owned(), false));
    assert_eq!(check(""), (Some(1), "rules/rules-1\n".to_owned(), true));
    assert_eq!(provider.received().len(), 0);
}

#[test]
fn events_are_written_as_they_arrive() {
    let lines = |output: &Output| -> Vec<Value> {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let kinds = |lines: &[Value]| -> Vec<String> {
        lines.iter().map(|line| line["type"].as_str().unwrap().to_owned()).collect()
    };
    // The first model refuses the request, and the next one answers it.
    let provider = Provider::start(vec![
        refusal(404, Vec::new(), "model_not_found", "no such model"),
        stream(anthropic(&["Half ", "of it."], &[("c1", "now", "{\"zone\": \"UTC\"}")])),
    ]);
    let request = json!({"messages": [{"role": "user", "content": "Hello"}]}).to_string();
    let output = run(filter(&provider, "openai/m,anthropic/n", &["events"]), &request);
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    let got = lines(&output);
    assert_eq!(kinds(&got), ["start", "start", "text", "text", "tool_call", "end"]);
    assert_eq!((&got[1]["provider"], &got[2]["delta"]), (&json!("anthropic"), &json!("Half ")));
    assert_eq!(got[4]["arguments"], json!({"zone": "UTC"}));
    assert_eq!((&got[5]["stop_reason"], &got[5]["usage"]["input"]), (&json!("toolUse"), &json!(9)));
    // An answer that was cut off has no end event, and no other model is called.
    let half = openai(&["Half "], &[])[..2].to_vec();
    let provider = Provider::start(vec![stream(half)]);
    let output = run(filter(&provider, "openai/m,rules", &["events"]), "Hello");
    assert_eq!(output.status.code(), Some(75));
    assert_eq!(kinds(&lines(&output)), ["start", "text"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("ended before the answer was complete"), "{stderr}");
    // Each event is written before the next one arrives.
    let begun = openai(&["Half "], &[])[..2].to_vec();
    let provider = Provider::start(vec![stream([begun, vec![Piece::UntilGone]].concat())]);
    let mut child = filter(&provider, "openai/m", &["events"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Hello").unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("Half ") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut reader, &mut line).unwrap(), 0, "it has ended");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    until("the provider sees that nobody listens", || provider.is_gone());
    // If the reader closes the pipe, the call is cancelled and no other model is called.
    let late = vec![Piece::Pause(Duration::from_millis(200)), openai(&[" of it."], &[])[1].clone(), Piece::UntilGone];
    let begun = openai(&["Half "], &[])[..2].to_vec();
    let provider = Provider::start(vec![stream([begun, late].concat())]);
    let mut child = filter(&provider, "openai/m,rules", &["events"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Hello").unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(141), &b""[..]));
    until("the provider sees that nobody listens", || provider.is_gone());
}

/// Runs the example of a turn in ken-model(8): a model, jq and ken-tools in a shell.
#[test]
fn a_whole_turn_is_composed_in_a_shell() {
    let page = std::fs::read_to_string(ken_tests::root().join("man/man8/ken-model.8")).unwrap();
    let block = page.split(".Bd -literal").find(|block| block.contains("ken-tools list")).unwrap();
    let lines = block.lines().skip(1).take_while(|line| *line != ".Ed");
    let script = lines.collect::<Vec<_>>().join("\n").replace("\\e", "\\").replace("\\(aq", "'");
    let arguments = json!({"facts": ["Socrates is a man"], "rules": [[["?x is a man"], "?x is mortal"]]}).to_string();
    let calls = [("c1", "reason", arguments.as_str()), ("c2", "reason", "{\"facts\": [], \"rules\": []}")];
    for (models, replies) in [
        ("openai/m", [openai(&["Let me see."], &calls), openai(&["He is mortal."], &[])]),
        ("anthropic/m", [anthropic(&["Let me see."], &calls), anthropic(&["He is mortal."], &[])]),
    ] {
        let provider = Provider::start(replies.map(stream).to_vec());
        let folder = tempfile::tempdir().unwrap();
        let programs = binary("ken-model").parent().unwrap().to_owned();
        let output = Command::new("bash")
            .args(["-c", &format!("set -e -o pipefail\n{script}")])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("KEN_MODEL", models)
            .env("OPENAI_BASE_URL", format!("{}/v1", provider.url()))
            .env("ANTHROPIC_BASE_URL", provider.url())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()),
            (Some(0), "He is mortal.\n"),
            "{stderr}"
        );
        let requests = provider.received();
        assert_eq!(requests.len(), 2);
        assert!(requests[0].body["tools"].to_string().contains("\"reason\""));
        // Both calls have their results, and the results are real.
        let second = requests[1].body["messages"].to_string();
        assert!(second.contains("c1") && second.contains("c2"), "{second}");
        assert!(second.contains("Socrates is mortal"), "{second}");
    }
}

#[test]
fn list_and_try() {
    let models = json!({"data": [{"id": "m-1"}, {"id": "m-2"}]}).to_string();
    let list = || Reply::Status(200, vec![("content-type", "application/json".into())], models.clone());
    let provider = Provider::start(vec![list(), list()]);
    let output = run(filter(&provider, "script,rules", &["list"]), "");
    assert_eq!(output.status.code(), Some(2), "the engine script needs its file");
    let provider = Provider::start(vec![list(), list()]);
    let output = run(filter(&provider, "rules", &["list"]), "");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, "openai/m-1\nopenai/m-2\nanthropic/m-1\nanthropic/m-2\nrules/rules-1\n");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    assert_eq!(provider.received()[1].header("x-api-key"), Some(KEY));

    // `--model` replaces KEN_MODEL, for the filter and for `events`.
    for words in [&["--model", "anthropic/m,rules"][..], &["events", "-m", "anthropic/m,rules"]] {
        let provider = Provider::start(vec![stream(anthropic(&["Hi."], &[]))]);
        let output = run(filter(&provider, "openai/m", words), "Hello");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && shown.contains("\"anthropic\""), "{words:?}: {shown}");
        assert_eq!(provider.received()[0].path, "/v1/messages");
    }
    for words in [&["--model", "nope/m"][..], &["events", "--model", "nope/m"]] {
        let output = run(filter(&provider, "rules", words), "Hello");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
        assert!(stderr.contains("there is no model provider `nope`") && stderr.contains("\"--model\""), "{stderr}");
    }
    let provider = Provider::start(vec![stream(openai(&["ready"], &[]))]);
    let output = run(filter(&provider, "rules", &["try", "openai/gpt-4o", "--json"]), "");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&shown["model"], &shown["text"]), (&json!("openai/gpt-4o"), &json!("ready")));
    assert!(shown["totalMs"].is_u64() && shown["usage"]["cost"]["total"].as_f64().unwrap() > 0.0, "{shown}");
    // The price of the model is not known, and control characters in its answer are not sent to the terminal.
    let provider = Provider::start(vec![stream(openai(&["re\u{1b}[31mady"], &[]))]);
    let output = run(filter(&provider, "rules", &["try", "openai/unknown-model"]), "");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("no price is known") && !shown.contains('\u{1b}'), "{shown}");
    // If one provider refuses the request, its error is printed, and the models of the others are listed.
    let provider = Provider::start(vec![
        refusal(401, Vec::new(), "invalid_api_key", &format!("wrong key {KEY}")),
        Reply::Status(200, Vec::new(), json!({"data": [{"id": "m\u{1b}[31m"}]}).to_string()),
    ]);
    let output = run(filter(&provider, "rules", &["list"]), "");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(shown, "anthropic/m\u{241b}[31m\nrules/rules-1\n");
    assert!(stderr.starts_with("ken-model: openai: openai answered 401: wrong key [redacted]"), "{stderr}");
    let provider = Provider::start(vec![refusal(401, Vec::new(), "invalid_api_key", "wrong key")]);
    let output = run(filter(&provider, "rules", &["try", "openai/gpt-4o"]), "");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
    assert!(stderr.contains("openai/gpt-4o answered 401: wrong key"), "{stderr}");
}

/// A system that calls this provider in both formats.
fn system(provider: &Provider, models: &str) -> System {
    Builder::default()
        .env("KEN_MODEL", models)
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("ANTHROPIC_BASE_URL", &provider.url())
        .secrets(&format!("OPENAI_API_KEY={KEY}\nANTHROPIC_API_KEY={KEY}\n"))
        .start()
}

fn kinds(system: &System, session: &str) -> Vec<String> {
    let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
    let events = events.as_array().unwrap().iter();
    events.map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_turn_over_each_format_with_a_tool_call() {
    for (models, replies) in [
        (
            "openai/m",
            vec![
                stream(openai(&["Let me see. "], &[("c1", "nonesuch", "{\"x\":")])),
                stream(openai(&["No such ", "tool."], &[])),
            ],
        ),
        (
            "anthropic/m",
            vec![
                stream(anthropic(&["Let me see. "], &[("c1", "nonesuch", "{}")])),
                stream(anthropic(&["No such ", "tool."], &[])),
            ],
        ),
    ] {
        let provider = Provider::start(replies);
        let system = system(&provider, models);
        let session = system.session();
        let answer = system.say(&session, "Hello").expect(200);
        assert_eq!(answer.text("/result/text"), "No such tool.");
        assert_eq!(answer.at("/result/usage/input"), 18);
        let requests = provider.received();
        assert!(requests[0].body["messages"].to_string().contains("Hello"));
        // The call and its result are sent together, whatever the outcome of the call.
        let second = requests[1].body["messages"].to_string();
        assert!(second.contains("nonesuch") && second.contains("c1"), "{second}");
        assert!(
            second.contains("There is no tool") || second.contains("its arguments cannot be used: malformed JSON"),
            "{second}"
        );
        canary(&system);
    }
}

/// Checks that the key is in no file of the system.
fn canary(system: &System) {
    let output = Command::new("grep").args(["-rl", KEY]).arg(system.home()).output().unwrap();
    let files = String::from_utf8_lossy(&output.stdout).into_owned();
    let secrets = system.home().join("secrets.env");
    assert_eq!(files.trim(), secrets.display().to_string());
}

#[test]
fn a_refused_key_is_a_model_that_is_not_configured() {
    let provider =
        Provider::start(vec![refusal(401, Vec::new(), "invalid_api_key", &format!("Incorrect API key: {KEY}"))]);
    let system = system(&provider, "openai/m");
    let session = system.session();
    // The first turn was accepted before the key was refused, so it fails.
    let failed = system.say(&session, "Hello").expect(500).json();
    assert_eq!(failed["code"], "model_failed");
    let text = failed.to_string();
    assert!(text.contains("The model openai/m failed") && !text.contains(KEY), "{text}");
    // From then on no prompt is accepted, and every caller gets the reason.
    let why = "openai/m: the provider refused the key";
    until("the gateway knows", || system.get("/ready").status == 503);
    let ready = system.get("/ready").expect(503).json();
    assert_eq!(ready["waiting"], json!(["model"]));
    assert!(ready["error"].as_str().unwrap().contains(why), "{ready}");
    let refused = system.say(&session, "Hello").expect(503).json();
    assert!(refused["error"].as_str().unwrap().contains(why), "{refused}");
    let prompt = system.post("/agents/orchestrator/x", &json!({"message": "Hello"})).expect(503).json();
    assert_eq!(prompt["error"]["type"], "model_not_configured");
    assert_eq!(provider.received().len(), 1);
    let status = system.ken(&["status"]);
    let shown = String::from_utf8_lossy(&status.stdout).into_owned() + &String::from_utf8_lossy(&status.stderr);
    assert!(shown.contains(why), "{shown}");
    let state = system.call("model", "model.info", &[]);
    assert_eq!(state["models"], json!([]));
    assert_eq!(state["unusable"][0]["why"], "the provider refused the key");
    canary(&system);
}

/// The library of the system waits 5 seconds for the first name server, and asks it several times.
#[test]
fn a_name_server_that_does_not_answer_is_waited_for_for_a_short_time() {
    let own = "mount -t tmpfs none /run; echo nameserver 127.9.8.7 > /run/resolv.conf; mount --bind /run/resolv.conf /etc/resolv.conf";
    if !in_own_mounts("providers::a_name_server_that_does_not_answer_is_waited_for_for_a_short_time", own) {
        return;
    }
    let _silent = std::net::UdpSocket::bind("127.9.8.7:53").unwrap();
    let mut command = Command::new(binary("ken-model"));
    command.env_clear().env("KEN_ERRORS", "json").env("KEN_MODEL", "openai/m").env("OPENAI_API_KEY", KEY);
    command.env("OPENAI_BASE_URL", "http://models.test/v1").stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let output = run(command, "Hello");
    let (took, said) = (begun.elapsed(), String::from_utf8(output.stderr).unwrap());
    assert!(said.contains("the address of models.test was not found within 6 s: no name server answers"), "{said}");
    assert!((Duration::from_secs(6)..Duration::from_secs(9)).contains(&took), "{took:?}");
}

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

/// Its password is in no argument, environment or log.
#[test]
fn a_proxy_leads_to_a_provider_for_the_system_and_for_commands() {
    const PASSWORD: &str = "proxy-canary-88";
    let provider = Provider::answering(|_| stream(openai(&["Through it."], &[])));
    let proxy = ConnectProxy::to(port_of(&provider.url()), "ada:proxy-canary-88");
    let with = |password: &str| format!("http://ada:{password}@{}", proxy.address());
    let command = |variable: &str, value: &str, url: &str| {
        let mut command = filter(&provider, "openai/m", &[]);
        command.env("OPENAI_BASE_URL", url).env(variable, value);
        run(command, "Hello")
    };
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        let output = command(variable, &with(PASSWORD), "http://models.test/v1");
        assert!(String::from_utf8_lossy(&output.stdout).contains("Through it."), "{variable}: {output:?}");
    }
    assert_eq!(proxy.hosts(), ["models.test:80"; 3]);
    let refused = command("HTTP_PROXY", &with("wrong-password"), "http://models.test/v1");
    let said = String::from_utf8(refused.stderr).unwrap();
    let named = format!("cannot reach models.test through the proxy {}: ", proxy.address());
    assert!(said.contains(&named) && said.contains("407") && !said.contains("wrong-password"), "{said}");
    // What is on this machine is reached without one, and so is what is named.
    let local = command("ALL_PROXY", &with(PASSWORD), &format!("{}/v1", provider.url()));
    assert!(String::from_utf8_lossy(&local.stdout).contains("Through it."), "{local:?}");
    assert_eq!(proxy.hosts().len(), 3);

    let secrets = format!("OPENAI_API_KEY={KEY}\nHTTP_PROXY={}\nNO_PROXY=other.test\n", with(PASSWORD));
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m,other/m")
        .env("OPENAI_BASE_URL", "http://models.test/v1")
        .config("[model.provider.other]\nbase_url = \"http://other.test/v1\"\nmodels = [\"m\"]\nkey = \"\"\n")
        .secrets(&secrets)
        .start();
    let session = system.session();
    for count in 4..=5 {
        assert_eq!(system.say(&session, "Hello").expect(200).at("/result/text"), "Through it.");
        assert!(proxy.hosts().len() >= 4 && proxy.hosts().len() <= count, "{:?}", proxy.hosts());
    }
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            let text = std::fs::read(process.path().join(file)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains(PASSWORD), "{process:?} {file}");
        }
    }
    let found = Command::new("grep").args(["-rlE", PASSWORD]).arg(system.home().join("state")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

/// No encoding is asked for, so that nothing has to be unpacked.
#[test]
fn a_compressed_answer_is_named() {
    for coding in ["gzip", "br"] {
        let headers = vec![("content-type", "text/event-stream".to_owned()), ("content-encoding", coding.to_owned())];
        let provider = Provider::start(vec![Reply::Status(200, headers, "\u{1f}".to_owned())]);
        let message = error(&provider, "openai/m", "Hello")["message"].to_string();
        assert!(message.contains("sent a compressed answer, which was not asked for"), "{message}");
    }
    let headers = vec![("content-type", "application/json".to_owned()), ("content-encoding", "Identity".to_owned())];
    let body = json!({"choices": [{"message": {"role": "assistant", "content": "Whole."}, "finish_reason": "stop"}]});
    let provider = Provider::start(vec![Reply::Status(200, headers, body.to_string())]);
    assert_eq!(answer(&provider, "openai/m", "Hello")["text"], "Whole.");
}

#[test]
fn a_missing_key_is_reported_and_the_next_model_answers() {
    let system = Builder::default().env("KEN_MODEL", "openai/gpt-4o,rules").start();
    let state = system.call("model", "model.info", &[]);
    assert_eq!(state["models"], json!(["rules/rules-1"]));
    assert_eq!(state["unusable"], json!([{"model": "openai/gpt-4o", "why": "OPENAI_API_KEY is not set"}]));
    let session = system.session();
    let answer = system.say(&session, "Who are you?").expect(200);
    assert_eq!(answer.at("/result/model/provider"), "rules");
}

#[test]
fn a_prompt_that_waits_while_the_key_is_refused_fails_with_the_reason() {
    let provider = Provider::answering(|_| {
        std::thread::sleep(Duration::from_secs(2));
        refusal(401, Vec::new(), "invalid_api_key", "Incorrect API key")
    });
    let system = system(&provider, "openai/m");
    let session = system.session();
    let failed = std::thread::scope(|scope| {
        let prompts = [0, 500, 1_000].map(|pause| {
            std::thread::sleep(Duration::from_millis(pause / 2));
            scope.spawn(|| system.say(&session, "Hello").expect(500).json().to_string())
        });
        prompts.map(|prompt| prompt.join().unwrap())
    });
    assert!(failed[0].contains("The model openai/m failed"), "{failed:?}");
    let why = "no model is configured: openai/m: the provider refused the key";
    assert!(failed[1].contains(why) && failed[2].contains(why), "{failed:?}");
    assert_eq!(provider.received().len(), 1);
}

#[test]
fn a_context_that_is_too_long_is_compacted() {
    let long =
        || refusal(400, Vec::new(), "context_length_exceeded", "This model's maximum context length is 9 tokens.");
    let provider = Provider::start(vec![
        stream(openai(&["First."], &[])),
        long(),
        stream(openai(&["They said hello."], &[])),
        stream(openai(&["Second."], &[])),
    ]);
    let system = system(&provider, "openai/m");
    let session = system.session();
    system.say(&session, "Hello").expect(200);
    let answer = system.say(&session, "And now?").expect(200);
    assert_eq!(answer.text("/result/text"), "Second.");
    let last = provider.received()[3].body["messages"].to_string();
    assert!(last.contains("They said hello.") && !last.contains("First."), "{last}");
    let kinds = kinds(&system, &session);
    assert!(kinds.contains(&"compaction_start".to_owned()), "{kinds:?}");
}

/// A request that is too long is not sent, because a server could truncate it and answer only a part.
#[test]
fn a_request_that_is_longer_than_the_known_window_is_not_sent() {
    let provider = Provider::answering(|request| {
        let is_compaction = request.body["messages"][0].to_string().contains("Sum up the conversation");
        stream(openai(&[if is_compaction { "Summed up." } else { "Yes." }], &[]))
    });
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .file("models.toml", "[[model]]\nname = \"openai/m\"\nwindow = 12000\noutput = 500\n")
        .start();
    let session = system.session();
    let long = "a long story ".repeat(12_000);
    let failed = system.say(&session, &long).expect(500).json();
    assert_eq!(failed["code"], "model_failed");
    let error = failed["error"].as_str().unwrap();
    assert!(
        error.contains("openai/m: the request has about") && error.contains("the context window has 12000"),
        "{error}"
    );
    assert_eq!(provider.received().len(), 0);
    // A prompt that fits is answered. A history that does not fit is omitted or summarised.
    for _ in 0..6 {
        let answer = system.say(&session, &"a short story ".repeat(1_000)).expect(200);
        assert_eq!(answer.text("/result/text"), "Yes.");
    }
    let sizes = provider.received().iter().map(|request| request.body.to_string().len()).max().unwrap();
    assert!(sizes < 12_000 * 5, "{sizes}");
    assert!(kinds(&system, &session).contains(&"compaction".to_owned()));
    // If the window is not known, the request is sent.
    let output = run(filter(&provider, "openai/unknown", &[]), &"word ".repeat(200_000));
    assert_eq!(output.status.code(), Some(0));
}

/// The estimated length of a request leaves out thoughts that are not sent. Thoughts are sent back only to the provider
/// that signed them.
#[test]
fn a_request_is_as_long_as_what_is_sent_of_it() {
    let provider = Provider::answering(|request| {
        if request.path.ends_with("/messages") {
            stream(anthropic(&["Yes."], &[]))
        } else {
            stream(openai(&["Yes."], &[]))
        }
    });
    let home = tempfile::tempdir().unwrap();
    let table = "[[model]]\nname = \"*\"\nwindow = 1000\noutput = 500\n";
    std::fs::write(home.path().join("models.toml"), table).unwrap();
    let status = |model: &str, thought: &Value, text: usize| {
        let answer = json!([thought, {"type": "toolCall", "id": "a", "name": "t", "arguments": {}}]);
        let request = json!({"messages": [
            {"role": "user", "content": "x".repeat(text)},
            {"role": "assistant", "api": "anthropic-messages", "content": answer},
            {"role": "toolResult", "toolCallId": "a", "toolName": "t", "content": "done"},
        ]});
        let mut command = filter(&provider, model, &[]);
        command.env("KEN_CONFIG", home.path().join("ken.toml"));
        run(command, &request.to_string()).status.code()
    };
    let thinking = "I think. ".repeat(5_000);
    let plain = json!({"type": "thinking", "thinking": thinking});
    let signed = json!({"type": "thinking", "thinking": thinking, "opaque": "sig"});
    for (model, thought) in
        [("openai/m", &plain), ("openai/m", &signed), ("anthropic/m", &plain), ("anthropic/m", &signed)]
    {
        assert_eq!(status(model, thought, 11_900), Some(0), "{model} {}", thought["opaque"]);
        assert_eq!(status(model, thought, 12_100), Some(2), "{model} {}", thought["opaque"]);
    }
    assert_eq!(provider.received().len(), 4);
}

#[test]
fn a_turn_outlives_a_stall_and_moves_along_the_list() {
    let half = openai(&["Half of "], &[])[..2].to_vec();
    let provider = Provider::start(vec![
        stream([half, vec![Piece::Silence]].concat()),
        // Another model is left, so nobody waits for this one.
        stream(anthropic(&["Here."], &[])),
    ]);
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m,anthropic/n,rules")
        .env("KEN_MODEL_TIMEOUT_MS", "400")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("ANTHROPIC_BASE_URL", &provider.url())
        .start();
    let session = system.session();
    let answer = system.say(&session, "Hello").expect(200);
    assert_eq!(answer.text("/result/text"), "Here.");
    assert_eq!(answer.at("/result/model"), json!({"provider": "anthropic", "id": "n"}));
    let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
    let turns = events.as_array().unwrap().iter().filter(|event| event["type"] == "turn");
    let turns: Vec<(String, bool)> =
        turns.map(|turn| (turn["provider"].as_str().unwrap().to_owned(), turn["isError"] == true)).collect();
    let turn = |provider: &str, failed| (provider.to_owned(), failed);
    assert_eq!(turns, [turn("openai", true), turn("anthropic", false)]);
    assert!(events.to_string().contains("sent nothing for too long"), "{events}");
}

#[test]
fn retry_after_of_a_provider_is_obeyed() {
    let later = vec![("retry-after", "4".to_owned())];
    let provider = Provider::start(vec![refusal(429, later, "", "slow down"), stream(openai(&["Now."], &[]))]);
    let system = system(&provider, "openai/m");
    let session = system.session();
    let started = Instant::now();
    let answer = system.say(&session, "Hello").expect(200);
    assert_eq!(answer.text("/result/text"), "Now.");
    // The pause is four seconds, less at most a quarter. Without the header it would be at most two seconds.
    assert!(started.elapsed() >= Duration::from_millis(3_000), "{:?}", started.elapsed());
}

#[test]
fn retry_after_may_be_a_date() {
    for (date, ms) in [
        ("Sun, 06 Nov 1994 08:49:37 GMT", json!(0)),
        ("Fri, 31 Dec 2100 23:59:59 GMT", json!(86_400_000)),
        ("Friday, 31-Dec-60 23:59:59 GMT", json!(86_400_000)),
        ("Fri, 31 Dec 2100", Value::Null),
    ] {
        let later = vec![("retry-after", date.to_owned())];
        let provider = Provider::start(vec![refusal(429, later, "", "slow down")]);
        let error = error(&provider, "openai/m", "Hello");
        assert_eq!((&error["code"], &error["retry_after_ms"]), (&json!("busy"), &ms), "{date}: {error}");
    }
}

#[test]
fn an_abort_closes_the_call_to_the_provider() {
    let begun = openai(&["Half"], &[])[..2].to_vec();
    let provider = Provider::start(vec![stream([begun, vec![Piece::UntilGone]].concat())]);
    let system = system(&provider, "openai/m");
    let session = system.session();
    let body = tui(&[("text", json!("Hello")), ("session", json!(session))]);
    let mut client = ken_tests::Client::connect(system.address());
    let waiting = std::thread::spawn(move || client.post("/api/chat/events", &body));
    until("the answer has begun", || kinds(&system, &session).contains(&"text_delta".to_owned()));
    let started = Instant::now();
    system.post(&format!("/agents/orchestrator/{session}/abort"), &json!({})).expect(200);
    assert_eq!(waiting.join().unwrap().status, 499);
    until("the provider sees that nobody listens", || provider.is_gone());
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_provider_behind_tls_is_trusted_only_by_its_root() {
    let says = || stream(openai(&["Hello from behind the lock."], &[]));
    let provider = Provider::start(vec![says(), says()]);
    let tls = Tls::before(&provider);
    let behind = |url: &str, trusted: Option<&Path>| {
        let mut command = filter(&provider, "openai/m", &[]);
        command.env("OPENAI_BASE_URL", format!("{url}/v1"));
        command.envs(trusted.map(|file| ("SSL_CERT_FILE", file)));
        run(command, "Hello")
    };
    let trusted = Tls::trusted();
    let refused = |output: Output| {
        assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let error: Value = serde_json::from_str(&stderr).unwrap();
        error["error"]["message"].as_str().unwrap().to_owned()
    };
    // The certificate is not signed by one of Mozilla's roots, and it is not valid for a host name.
    let unknown = refused(behind(&tls.url(), None));
    assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    let other = refused(behind(&format!("https://localhost:{}", tls.port()), Some(&trusted)));
    assert!(other.contains("not valid for name \"localhost\""), "{other}");
    // A file without a root certificate.
    let empty = behind(&tls.url(), Some(Path::new("/dev/null")));
    let stderr = String::from_utf8(empty.stderr).unwrap();
    assert!(stderr.contains("SSL_CERT_FILE") && stderr.contains("no certificate"), "{stderr}");
    assert_eq!(provider.received().len(), 0, "the key goes to nobody who is not trusted");
    let output = behind(&tls.url(), Some(&trusted));
    let got: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(got["text"], "Hello from behind the lock.");
    // The same in a whole system.
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", tls.url()))
        .env("SSL_CERT_FILE", &trusted.display().to_string())
        .secrets(&format!("OPENAI_API_KEY={KEY}\n"))
        .start();
    let answer = system.say(&system.session(), "Hello").expect(200);
    assert_eq!(answer.text("/result/text"), "Hello from behind the lock.");
}

/// Text, thoughts and arguments share one limit of 4 MiB, whatever the provider. A text is cut off; a call is not.
#[test]
fn an_answer_has_at_most_four_mebibytes() {
    const LIMIT: usize = 4 * 1024 * 1024;
    let piece = "x".repeat(64 * 1024);
    let data = |event: Value| Piece::Bytes(format!("data: {event}\n\n").into_bytes());
    let delta = |delta: Value| data(json!({"choices": [{"index": 0, "delta": delta}]}));
    let block =
        |index: usize, delta: Value| data(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    let tool = json!({"type": "tool_use", "id": "c", "name": "sum", "input": {}});
    let begin = data(json!({"type": "content_block_start", "index": 0, "content_block": tool}));
    let arguments = |text: &str| {
        delta(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "sum", "arguments": text}}]}))
    };
    // The arguments never end; the caller leaves when the limit is reached.
    let endless = |first: Vec<Piece>, more: &Piece| {
        first.into_iter().chain(std::iter::repeat_n(more.clone(), 200)).chain([Piece::UntilGone]).collect::<Vec<_>>()
    };
    let more = arguments(&piece);
    let half = delta(json!({"content": "y".repeat(LIMIT / 2)}));
    for (models, pieces) in [
        ("openai/m", endless(vec![arguments("{\"a\":\"")], &more)),
        ("openai/m", endless(vec![half.clone(), arguments("{\"a\":\"")], &more)),
        ("anthropic/m", endless(vec![begin], &block(0, json!({"type": "input_json_delta", "partial_json": piece})))),
    ] {
        let provider = Provider::start(vec![stream(pieces)]);
        let error = error(&provider, models, "Hello");
        assert!(error["message"].as_str().unwrap().contains("4 MiB"), "{models}: {error}");
        assert_eq!(error["code"], "invalid", "{models}: {error}");
    }
    for thought in [false, true] {
        let name = if thought { "reasoning_content" } else { "content" };
        let pieces = endless(vec![half.clone()], &delta(json!({name: piece})));
        let answered = answer(&Provider::start(vec![stream(pieces)]), "openai/m", "Hello");
        assert_eq!(answered["stopReason"], "length");
        let length = answered["text"].as_str().unwrap().len();
        assert!(length <= LIMIT && (thought || length > LIMIT - 128 * 1024), "{length}");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = |event: Value| {
        let file = folder.path().join("script.jsonl");
        std::fs::write(&file, json!({"events": [event]}).to_string()).unwrap();
        let mut command = filter(&Provider::start(Vec::new()), "script", &[]);
        command.env("KEN_SCRIPT", file);
        run(command, "Hello")
    };
    let output = script(json!({"text": "z".repeat(LIMIT + 1)}));
    let answered: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answered["stopReason"], "length");
    assert!(answered["text"].as_str().unwrap().len() <= LIMIT);
    let output = script(json!({"tool": {"name": "sum", "arguments": {"text": "z".repeat(LIMIT)}}}));
    assert!(String::from_utf8_lossy(&output.stderr).contains("4 MiB"), "{:?}", output.status);
}

/// Servers keep what they have computed for the beginning of a request. What a turn has found changes with each turn, so it stands
/// in the last message of the user.
#[test]
fn what_a_turn_has_found_stands_in_its_last_message_and_the_beginning_stays_the_same() {
    let provider = Provider::answering(|_| Reply::Stream(openai(&["Noted."], &[])));
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    let topics = ["quokka", "wombat", "heron"];
    for topic in topics {
        let entry = json!({"title": topic, "content": format!("The {topic} sleeps in cellar {}.", topic.len())});
        system.post("/api/knowledge", &entry).expect(201);
    }
    let session = system.session();
    for topic in topics {
        system.say(&session, &format!("Where does the {topic} sleep?")).expect(200);
    }
    let received = provider.received();
    let of_prompts: Vec<&Value> = received
        .iter()
        .map(|request| &request.body)
        .filter(|body| {
            let last = body["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
            last.contains("sleep?")
        })
        .collect();
    let messages = |body: &Value| body["messages"].as_array().unwrap().clone();
    let (mut tools, mut systems) = (Vec::new(), Vec::new());
    for (body, topic) in of_prompts.iter().zip(topics) {
        let (last, before) = messages(body).split_last().map(|(last, before)| (last.clone(), before.to_vec())).unwrap();
        let found = format!("The {topic} sleeps in cellar");
        assert!(last["role"] == "user" && last.to_string().contains(&found), "{last}");
        assert!(before.iter().all(|message| !message.to_string().contains(&found)), "{before:?}");
        assert_eq!(before[0]["role"], "system");
        tools.push(body["tools"].to_string());
        systems.push(before[0].to_string());
    }
    assert_eq!(tools.len(), 3);
    assert!(!tools[0].is_empty() && tools.iter().all(|text| *text == tools[0]), "{tools:?}");
    assert!(systems.iter().all(|text| *text == systems[0]), "{systems:?}");
}
