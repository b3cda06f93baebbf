//! Several models: providers with names of their own, each with its address, key, headers and options; a model for each session; the
//! same names for the filter, the judge and the commands; and a mistake in a table is named with its place.

use std::process::Command;

use ken_tests::provider::{Provider, ReceivedRequest, Reply, anthropic, openai, refusal};
use ken_tests::{Builder, System, binary};
use serde_json::json;

const CANARY: &str = "sk-canary-77ab";

fn box_of_models() -> Provider {
    Provider::answering(|request: &ReceivedRequest| {
        if request.method == "GET" {
            let list = json!({"data": [{"id": "qwen3"}, {"id": "llama"}]});
            return Reply::Status(200, vec![("content-type", "application/json".to_owned())], list.to_string());
        }
        match request.body["model"].as_str() {
            Some("qwen3") => Reply::Stream(openai(&["I am qwen3."], &[])),
            Some("llama") => Reply::Stream(openai(&["I am llama."], &[])),
            _ => refusal(404, vec![], "model_not_found", "no such model"),
        }
    })
}

fn start(first: &Provider, second: &Provider) -> System {
    let config = format!(
        "[model]\nuse = \"box/qwen3,rules\"\n\
         [model.provider.box]\nbase_url = \"{}/v1/\"\nkey = \"BOX_KEY\"\nmodels = [\"qwen3\", \"llama\"]\n\
         headers = {{ x-team = \"secret:TEAM\", x-plain = \"visible-value\" }}\n\
         options = {{ temperature = 0.25, top_p = 0.5, seed = 7, reasoning_effort = \"low\", max_tokens = 321 }}\n\
         [model.provider.other]\nkind = \"anthropic\"\nbase_url = \"{}\"\nkey = \"OTHER_KEY\"\nmodels = [\"opus\"]\n",
        first.url(),
        second.url()
    );
    let secrets = format!("BOX_KEY={CANARY}\nTEAM=canary-team\nOTHER_KEY=other-key-1\n");
    Builder::default().config(&config).secrets(&secrets).start()
}

fn done(system: &System, words: &[&str]) -> String {
    let output = system.ken(words);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn each_provider_has_its_key_headers_and_options() {
    let (first, second) = (box_of_models(), Provider::answering(|_| Reply::Stream(anthropic(&["I am opus."], &[]))));
    let system = start(&first, &second);
    assert_eq!(done(&system, &["chat", "Who are you?"]), "I am qwen3.\n");
    let request = first.received().pop().unwrap();
    assert_eq!(request.path, "/v1/chat/completions");
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {CANARY}")));
    assert_eq!((request.header("x-team"), request.header("x-plain")), (Some("canary-team"), Some("visible-value")));
    let body = &request.body;
    assert_eq!((&body["temperature"], &body["top_p"], &body["seed"]), (&json!(0.25), &json!(0.5), &json!(7)));
    assert_eq!((&body["reasoning_effort"], &body["max_tokens"]), (&json!("low"), &json!(321)));
    // A model that is in no list is chosen for one message, and for a session.
    assert_eq!(done(&system, &["chat", "-m", "other/opus", "Who are you?"]), "I am opus.\n");
    let request = second.received().pop().unwrap();
    assert_eq!((request.path.as_str(), request.header("x-api-key")), ("/v1/messages", Some("other-key-1")));
    assert_eq!(request.header("x-team"), None);
    let session = system.session();
    system.say(&session, "/model box/llama").expect(200);
    assert_eq!(system.say(&session, "Who are you?").expect(200).text("/result/text"), "I am llama.");
    // The keys are in no other part, and in no output.
    for part in ["gateway", "agent", "tools", "store"] {
        let pid = system.pid(part);
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(!String::from_utf8_lossy(&environment).contains(CANARY), "{part}");
    }
    let shown = done(&system, &["config", "show"]);
    for secret in [CANARY, "canary-team", "visible-value"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("secret:TEAM"), "{shown}");
}

#[test]
fn the_filter_and_the_commands_use_the_same_configuration() {
    let (first, second) = (box_of_models(), Provider::answering(|_| Reply::Stream(anthropic(&["I am opus."], &[]))));
    let system = start(&first, &second);
    let filter = |words: &[&str]| {
        let output = Command::new(binary("ken-model")).args(words).env("KEN_HOME", system.home()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, text, _) = filter(&["-t", "Who are you?", "--format", "summary"]);
    assert_eq!((status, text.as_str()), (Some(0), "I am qwen3.\n"));
    let (status, text, _) = filter(&["--model", "other/opus", "-t", "Who are you?", "--format", "summary"]);
    assert_eq!((status, text.as_str()), (Some(0), "I am opus.\n"));
    let (_, listed, _) = filter(&["list"]);
    assert!(listed.contains("box/qwen3\nbox/llama\n"), "{listed}");
    let (status, _, error) = filter(&["try", "box/qwen4"]);
    assert!(
        status != Some(0) && error.contains("no such model") && error.contains("did you mean `box/qwen3`?"),
        "{error}"
    );
    let (status, _, error) = filter(&["try", "bxo/qwen3"]);
    assert!(status == Some(2) && error.contains("there is no model provider `bxo`"), "{error}");
}

/// An evaluation can name any model. That there is none does not make the system look degraded.
#[test]
fn a_model_that_is_in_no_list_and_does_not_exist_concerns_no_other_call() {
    let (first, second) = (box_of_models(), Provider::start(Vec::new()));
    let system = start(&first, &second);
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": "Hi"}], "timestamp": 0}]);
    let call = ["call", "model", "model.generate", "system=", "purpose=agent", "model=box/none", "unlisted=true"];
    let output = system.ken(&[&call[..], &[&format!("messages={messages}")]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such model"), "{output:?}");
    assert_eq!(system.get("/ready").expect(200).json(), json!({"ok": true}));
    assert_eq!(done(&system, &["chat", "Who are you?"]), "I am qwen3.\n");
}

#[test]
fn a_mistake_in_a_table_is_named_with_its_line() {
    for (table, wanted) in [
        ("[model.provider.box]\nkey = \"BOX_KEY\"\n", "model.provider.box: the provider `box` has no address"),
        (
            "[model.provider.box]\nbase_url = \"http://127.0.0.1:1/v1/chat/completions\"\n",
            "model.provider.box.base_url: it ends in /chat/completions",
        ),
        ("[model.provider.box]\nbase_url = \"http://127.0.0.1:1/v1\"\noptoins = {}\n", "did you mean `options`?"),
        (
            "[model.provider.box]\nbase_url = \"http://a/v1\"\n[model.provider.box]\nbase_url = \"http://b/v1\"\n",
            "duplicate",
        ),
        (
            "[model.provider.box]\nbase_url = \"http://a/v1\"\nkey = \"sk-canary-77ab\"\n",
            "model.provider.box.key: this is not the name",
        ),
        (
            "[model]\nuse = \"bxo/m\"\n[model.provider.box]\nbase_url = \"http://a/v1\"\n",
            "there is no model provider `bxo`",
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("ken.toml"), table).unwrap();
        let output = Command::new(binary("kend")).arg("--check").arg("--home").arg(home.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains(wanted), "{table}: {text}");
        assert!(text.contains("ken.toml:") && !text.contains(CANARY), "{text}");
    }
}
