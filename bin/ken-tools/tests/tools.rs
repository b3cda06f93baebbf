//! Tests of ken-tools through its command line, with shell scripts as tools. The daemon runs the same code.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with descriptions of tools.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        // ken-tools searches for ken-sandbox in its own folder. Building this crate does not build it.
        let sandbox = Path::new(env!("CARGO_BIN_EXE_ken-tools")).with_file_name("ken-sandbox");
        assert!(sandbox.exists(), "build it first: cargo build -p ken-sandbox");
        Folder(tempfile::tempdir().unwrap())
    }

    /// Adds a tool that is a shell script, with fields in addition to the usual ones.
    fn tool(&self, name: &str, script: &str, fields: Value) -> &Folder {
        let mut entry = json!({"name": name, "description": "A tool.", "command": ["sh", "-c", script],
            "input": {"type": "object"}});
        entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.file(&format!("{name}.json"), &entry.to_string())
    }

    fn file(&self, name: &str, text: &str) -> &Folder {
        std::fs::write(self.path().join(name), text).unwrap();
        self
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, command: &str, words: &[&str]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ken-tools"));
        program.arg(command).args(words).env("KEN_ERRORS", "json");
        if command != "check" {
            program.arg("--dir").arg(self.path());
        }
        program.output().unwrap()
    }

    /// Calls a tool without arguments, with this environment variable set, and returns what it prints.
    fn call_with(&self, tool: &str, name: &str, value: &str) -> String {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ken-tools"));
        program.args(["call", tool, "--json", "{}", "--dir"]).arg(self.path()).env(name, value);
        String::from_utf8(program.output().unwrap().stdout).unwrap()
    }

    /// Returns the exit status and the text for the model.
    fn call(&self, name: &str, arguments: &str) -> (Option<i32>, String) {
        let output = self.run("call", &[name, "--json", arguments]);
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        let text = answer.pointer("/result/content/0/text").and_then(Value::as_str).unwrap();
        (output.status.code(), text.to_owned())
    }

    /// Returns the error of a call that must fail.
    fn refused(&self, words: &[&str]) -> Value {
        let output = self.run("call", words);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        serde_json::from_slice::<Value>(&output.stderr).unwrap()["error"].clone()
    }
}

#[test]
fn a_call_gives_arguments_and_takes_the_answer() {
    let folder = Folder::new();
    folder.tool("echo", "cat", json!({"output": {"type": "object", "required": ["n"]}}));
    assert_eq!(folder.call("echo", r#"{"n": 7}"#), (Some(0), r#"{"n":7}"#.to_owned()));
    let output = folder.run("call", &["echo", "--json", r#"{"n":7}"#]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["result"]["details"], json!({"n": 7}));
    folder.tool("say", "echo hello", json!({"writes": "text"}));
    assert_eq!(folder.call("say", "{}"), (Some(0), "hello".to_owned()));
}

#[test]
fn errors_of_a_tool_are_reported() {
    let folder = Folder::new();
    folder
        .tool("prose", "echo not json", json!({}))
        .tool("silent", "true", json!({}))
        .tool("failing", "echo 'no such host' >&2; exit 3", json!({}))
        .tool("other", "echo '{\"m\":1}'", json!({"output": {"type": "object", "required": ["n"]}}))
        .tool("flood", "yes | head -c 20000000", json!({"writes": "text"}))
        .tool("torrent", "yes 1 | head -c 5000000", json!({}))
        .tool("long", "head -c 100000 /dev/zero | tr '\\0' x", json!({"writes": "text"}))
        .tool("endless", "sleep 1000", json!({"timeout_ms": 300}))
        .tool("binary", "printf '\\377'", json!({"writes": "text"}))
        .tool("own124", "echo 'timed out inside' >&2; exit 124", json!({}));
    for (tool, expected) in [
        ("prose", "The tool prose did not write JSON"),
        ("silent", "The tool silent wrote nothing."),
        ("failing", "The tool failing ended with status 3: no such host"),
        ("other", "is not as its description says"),
        ("flood", "The tool flood wrote more than 16777216 bytes."),
        ("torrent", "The tool torrent wrote more than 4194304 bytes."),
        ("endless", "The tool endless did not end within 0.3 s."),
        ("binary", "not UTF-8"),
        ("own124", "The tool own124 ended with status 124: timed out inside"),
    ] {
        let (status, text) = folder.call(tool, "{}");
        assert!(status == Some(1) && text.contains(expected), "{tool}: {status:?} {text}");
    }
    let (status, text) = folder.call("long", "{}");
    assert!(
        status == Some(0)
            && text.len() < 33_000
            && text.contains("\n[cut: bytes 24576 to 91808 of 100000 are left out here.]\nxx"),
        "{status:?}"
    );
}

/// The tool has done its work already, so its result is never lost.
#[test]
fn nul_in_a_result_or_an_error_is_visible() {
    let folder = Folder::new();
    folder
        .tool("text", "printf '\\000a\\000'", json!({"writes": "text"}))
        .tool("value", r#"printf '{"a\\u0000":["b\\u0000","\\\\u0000"]}'"#, json!({}))
        .tool("shown", r#"printf '{"out":"b\\u0000"}'"#, json!({"shows": "/out"}))
        .tool("failing", "printf 'no\\000' >&2; exit 3", json!({}))
        .tool("saying", r#"printf '{"error":{"message":"no\\u0000"}}' >&2; exit 3"#, json!({}));
    for (tool, status, expected) in [
        ("text", 0, "␀a␀"),
        ("value", 0, r#"{"a␀":["b␀","\\u0000"]}"#),
        ("shown", 0, "b␀"),
        ("failing", 1, "The tool failing ended with status 3: no␀"),
        ("saying", 1, "The tool saying ended with status 3: no␀"),
    ] {
        assert_eq!(folder.call(tool, "{}"), (Some(status), expected.to_owned()), "{tool}");
    }
}

/// A tool that is a program of ken writes its error as JSON, so the agent reads the message and the hint without the name of the
/// program.
#[test]
fn a_tool_is_asked_for_errors_as_json() {
    let folder = Folder::new();
    let words = json!(["ken-tools", "call", "none", "--json", "{}", "--dir", "/usr"]);
    folder.tool("confined", "", json!({"command": words, "touch": {"read": [env!("CARGO_BIN_EXE_ken-tools")]}}));
    folder.tool("own", "", json!({"command": words, "sandbox": "own"}));
    for tool in ["confined", "own"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ken-tools"));
        program.args(["call", tool, "--json", "{}", "--dir"]).arg(folder.path()).env_remove("KEN_ERRORS");
        let text = String::from_utf8(program.output().unwrap().stdout).unwrap();
        assert!(text.contains("status 2: there is no tool `none`; `ken-tools list`"), "{text}");
    }
}

#[test]
fn arguments_are_checked_before_anything_runs() {
    let folder = Folder::new();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    folder.tool("count", "cat", json!({"input": schema, "agents": ["orchestrator"]}));
    let error = folder.refused(&["count", "--json", r#"{"n":"seven"}"#]);
    assert_eq!((&error["code"], &error["at"]), (&json!("invalid"), &json!("/arguments/n")), "{error}");
    assert_eq!(folder.refused(&["count", "--json", "{}"])["at"], "/arguments");
    assert_eq!(folder.refused(&["none", "--json", "{}"])["code"], "not_found");
    let other = folder.refused(&["count", "--json", r#"{"n":1}"#, "--agent", "coding-worker"]);
    assert_eq!(other["code"], "forbidden");
}

#[test]
fn a_tool_reaches_only_what_it_names() {
    let folder = Folder::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("note"), "for some eyes").unwrap();
    let note = outside.path().join("note").display().to_string();
    let script = format!("cat '{note}'; echo \"$SECRET\"");
    folder.tool("blind", &script, json!({"writes": "text", "ok_status": [0, 1]}));
    let (_, text) = folder.call("blind", "{}");
    assert_eq!(text, "");
    folder.tool("seeing", &script, json!({"writes": "text", "touch": {"read": [outside.path()]}}));
    let (_, text) = folder.call("seeing", "{}");
    assert_eq!(text, "for some eyes");
}

#[test]
fn mistakes_in_a_description_are_named() {
    let folder = Folder::new();
    let entry = json!({"name": "x", "description": "x", "command": ["true"], "input": {"type": "object"}});
    let with = |name: &str, value: Value| {
        let mut entry = entry.clone();
        entry[name] = value;
        entry
    };
    let mut networked = with("touch", json!({"network": true}));
    networked["agents"] = json!(["orchestrator"]);
    let wrong = [
        (json!({"name": "b"}), "/description"),
        (with("name", json!("C")), "/name"),
        (with("command", json!([])), "/command"),
        (with("input", json!({"type": "string"})), "/input/type"),
        (with("input", json!({"type": "object", "required": 7})), "/input"),
        (with("timeout", json!(1)), "/timeout"),
        (with("touch", json!({"read": ["x"]})), "/touch/read"),
        (networked, "/agents"),
        (with("approval", json!("preview")), "/preview"),
        (with("preview", json!(["true"])), "/preview"),
        (with("needs", json!(["KEN_NOWHERE"])), "/needs"),
    ];
    let wrong = wrong.map(|(entry, at)| (entry.to_string(), at));
    for (number, (text, at)) in wrong.into_iter().chain([("{".to_owned(), "")]).enumerate() {
        let name = format!("{number}.json");
        let path = folder.file(&name, &text).path().join(name);
        let output = folder.run("check", &[path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{text}: {output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = &found["problems"][0]["error"];
        assert_eq!(error["at"].as_str().unwrap_or_default(), at, "{text}: {error}");
    }
    let output = folder.run("list", &[]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["problems"].as_array().unwrap().len(), 12);
}

#[test]
fn a_tool_whose_settings_are_missing_is_listed_with_them() {
    let folder = Folder::new();
    let needs =
        json!({"env": ["KEN_TEST_ONE"], "secrets": ["KEN_TEST_TWO"], "needs": ["KEN_TEST_ONE", "KEN_TEST_TWO"]});
    folder.tool("eager", "true", needs).tool("modest", "true", json!({}));
    let missing = |settings: &[(&str, &str)]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ken-tools"));
        let output =
            program.args(["list", "--dir"]).arg(folder.path()).envs(settings.iter().copied()).output().unwrap();
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let tools = listed["tools"].as_array().unwrap().iter();
        tools.filter(|tool| tool.get("missing").is_some()).map(|tool| tool["missing"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(missing(&[]), [json!(["KEN_TEST_ONE", "KEN_TEST_TWO"])]);
    assert_eq!(missing(&[("KEN_TEST_ONE", "")]), [json!(["KEN_TEST_ONE", "KEN_TEST_TWO"])]);
    for name in ["KEN_TEST_ONE", "KEN_TEST_TWO"] {
        assert!(missing(&[(name, "x")]).is_empty(), "{name}");
    }
}

#[test]
fn a_description_that_others_can_change_is_refused() {
    let folder = Folder::new();
    let path = folder.tool("open", "true", json!({})).path().join("open.json");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let output = folder.run("check", &[path.to_str().unwrap()]);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output_text.contains("has mode 0666, others can change it") && output_text.contains("chmod go-w"),
        "{output_text}"
    );
    let fifo = folder.path().join("fifo.json");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let begun = Instant::now();
    let output = folder.run("check", &[fifo.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("is not a regular file"), "{output:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Returns the fields of a description whose preview command is a shell script that prints `fields`.
fn preview(fields: &str) -> Value {
    let print = format!("cat >/dev/null; printf '%s' '{fields}'");
    json!({"approval": "preview", "preview": ["sh", "-c", print]})
}

impl Folder {
    fn preview(&self, name: &str, arguments: &str) -> (Option<i32>, Value) {
        let output = self.run("preview", &[name, "--json", arguments]);
        let output_text = serde_json::from_slice(&output.stdout);
        let output_text = output_text.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code(), output_text)
    }
}

#[test]
fn a_preview_says_what_a_call_would_do_and_who_has_to_approve_it() {
    let folder = Folder::new();
    let mark = "0".repeat(64);
    folder
        .tool("free", "echo 1", json!({"approval": "none"}))
        .tool("asking", "echo 1", json!({}))
        .tool("previewed", "echo 1", preview(&format!(
            r#"{{"approval":"ask","actionType":"file.edit","summary":"Edit a","risk":"low","diff":"-a\n+b\n","fingerprint":"{mark}"}}"#
        )))
        .tool("reading", "echo 1", preview(r#"{"approval":"none"}"#))
        .tool("refusing", "echo 1", preview(r#"{"approval":"deny","reason":"It lies outside."}"#))
        .tool("unmarked", "echo 1", preview(r#"{"approval":"ask"}"#))
        .tool("mute", "echo 1", preview(""));
    for (tool, status, approval, action, reason) in [
        ("free", 0, "none", "tool.call", ""),
        ("asking", 0, "ask", "tool.call", ""),
        ("previewed", 0, "ask", "file.edit", ""),
        ("reading", 0, "none", "tool.call", ""),
        ("refusing", 1, "deny", "tool.call", "It lies outside."),
        ("unmarked", 1, "deny", "tool.call", "The preview of the tool unmarked has no fingerprint."),
        ("mute", 1, "deny", "tool.call", "The preview of the tool mute is not one:"),
    ] {
        let (code, output) = folder.preview(tool, r#"{"n":1}"#);
        let given_reason = output["reason"].as_str().unwrap_or_default();
        assert_eq!(
            (code, &output["approval"], &output["actionType"]),
            (Some(status), &json!(approval), &json!(action)),
            "{tool}: {output}"
        );
        assert!(given_reason.starts_with(reason), "{tool}: {output}");
        assert_eq!(output["action"]["arguments"], json!({"n": 1}), "{tool}: {output}");
        assert_eq!(output["fingerprint"].as_str().map(str::len), Some(64));
    }
    assert_eq!(folder.preview("previewed", "{}").1["diff"], "-a\n+b\n");
}

#[test]
fn a_fingerprint_is_of_one_call() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    std::fs::write(&file, "a").unwrap();
    let script =
        format!(r#"printf '{{"approval":"ask","fingerprint":"%s"}}' $(sha256sum < '{}' | cut -c1-64)"#, file.display());
    let entry = |script: &str| json!({"approval": "preview", "preview": ["sh", "-c", script], "touch": {"write": [folder.path()]}});
    folder.tool("edit", "echo 1", entry(&script));
    let mark = |arguments: &str| folder.preview("edit", arguments).1["fingerprint"].clone();
    let first = mark(r#"{"a":1,"b":2}"#);
    assert_eq!(mark(r#"{"b":2,"a":1}"#), first);
    assert_ne!(mark(r#"{"a":1,"b":3}"#), first);
    std::fs::write(&file, "b").unwrap();
    assert_ne!(mark(r#"{"a":1,"b":2}"#), first);
    std::fs::write(&file, "a").unwrap();
    assert_eq!(mark(r#"{"a":1,"b":2}"#), first);
    folder.tool("edit", "echo 2", entry(&script));
    assert_ne!(mark(r#"{"a":1,"b":2}"#), first, "another program is another call");
}

#[test]
fn a_preview_can_change_nothing() {
    let folder = Folder::new();
    let file = folder.path().join("file");
    let script = format!("echo x > '{}'; echo '{{\"approval\":\"none\"}}'", file.display());
    let entry = json!({"approval": "preview", "preview": ["sh", "-c", script], "writes": "text",
        "touch": {"write": [folder.path()]}});
    folder.tool("writing", &script, entry);
    let (_, said) = folder.preview("writing", "{}");
    assert!(said["approval"] == "none" && !file.exists(), "{said}");
    assert_eq!(folder.call("writing", "{}").0, Some(0));
    assert!(file.exists());
}

/// At a shell the whole diff is printed. What nobody could be shown whole is denied.
#[test]
fn what_cannot_be_shown_whole_is_denied() {
    let folder = Folder::new();
    let script = |bytes: usize| {
        format!(
            r#"printf '{{"approval":"ask","fingerprint":"%064d","diff":"' 0; head -c {bytes} /dev/zero | tr '\0' x; printf '"}}'"#
        )
    };
    for (bytes, code) in [(16 * 1024 * 1024, 0), (16 * 1024 * 1024 + 1, 1)] {
        folder.tool("long", "echo 1", json!({"approval": "preview", "preview": ["sh", "-c", script(bytes)]}));
        let (status, said) = folder.preview("long", "{}");
        assert_eq!(status, Some(code), "{bytes}: {}", said["reason"]);
        let shown = said["diff"].as_str().unwrap_or_default().len();
        assert_eq!(shown, if code == 0 { bytes } else { 0 });
    }
    folder.tool("asking", "echo 1", json!({}));
    folder.tool("free", "echo 1", json!({"approval": "none"}));
    let arguments = json!({"text": "y".repeat(70_000)}).to_string();
    let (status, said) = folder.preview("asking", &arguments);
    assert!(status == Some(1) && said["reason"].as_str().unwrap().contains("can be shown 65536"), "{said}");
    let (status, said) = folder.preview("free", &arguments);
    assert_eq!((status, &said["approval"]), (Some(0), &json!("none")));
}

/// Two readers of one document could read two calls.
#[test]
fn arguments_with_a_repeated_name_are_refused() {
    let folder = Folder::new();
    folder.tool("asking", "echo 1", json!({}));
    for arguments in [r#"{"a":1,"a":2}"#, r#"{"in":{"a":1,"b":2,"a":1}}"#] {
        let error = folder.refused(&["asking", "--json", arguments]);
        assert!(error["message"].as_str().unwrap().contains("duplicate key `a`"), "{error}");
    }
}

/// The tools of the installation need only their descriptions to work.
#[test]
fn the_shipped_tools_answer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../share/tools.d");
    let run = |words: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_ken-tools")).args(words).arg("--dir").arg(&folder).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, listed) = run(&["list", "--agent", "orchestrator"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(status, Some(0));
    assert_eq!(listed.get("problems"), None);
    assert_eq!(listed["tools"].as_array().unwrap().len(), 4);
    let programs = Path::new(env!("CARGO_BIN_EXE_ken-tools")).parent().unwrap();
    for (program, tool, arguments, shown) in [
        ("ken-rep", "reason", r#"{"facts":["a"],"rules":[[["a"],"b"]]}"#, "conclusions"),
        ("ken-vvp", "verify_rules", r#"{"rules":[[["a"],"b"]]}"#, "validation_status"),
        ("ken-esl", "read_emotion", r#"{"user_input":"I am so happy!"}"#, "joy"),
        ("ken-laws", "judge_text", r#"{"text":"The build takes 5 minutes."}"#, "pass_fail_status"),
    ] {
        assert!(programs.join(program).exists(), "build it first: cargo build -p {program}");
        let (status, answer) = run(&["call", tool, "--json", arguments]);
        assert!(status == Some(0) && answer.contains(shown), "{tool}: {answer}");
    }
}

#[test]
fn a_tool_is_given_its_secrets_through_a_descriptor_and_no_other_has_them() {
    let folder = Folder::new();
    // A shell can only name descriptors of one digit, so the memory file is read through /proc.
    let script = "cat /proc/self/fd/$KEN_SECRETS_FD | tr '\\0' '\\n'; env";
    let fields = json!({"approval": "none", "writes": "text", "secrets": ["CANARY", "MISSING"]});
    folder.tool("keyed", script, fields);
    let fields = json!({"approval": "none", "writes": "text"});
    folder.tool("other", "env; ls /proc/self/fd", fields);
    let call = |name: &str| folder.call_with(name, "CANARY", "canary-value");
    let keyed = call("keyed");
    assert_eq!(keyed.matches("CANARY=canary-value").count(), 1, "{keyed}");
    assert!(!keyed.contains("MISSING"), "{keyed}");
    let other = call("other");
    assert!(!other.contains("canary-value") && !other.contains("KEN_SECRETS_FD"), "{other}");
}

#[test]
fn the_model_gets_the_field_that_a_description_shows() {
    let folder = Folder::new();
    let script = r#"echo '{"context": "for the model", "more": 7}'"#;
    folder.tool("told", script, json!({"approval": "none", "shows": "/context"}));
    folder.tool("absent", script, json!({"approval": "none", "shows": "/nothing"}));
    assert_eq!(folder.call("told", "{}"), (Some(0), "for the model".to_owned()));
    assert_eq!(folder.call("absent", "{}").1, r#"{"context":"for the model","more":7}"#);
}

#[test]
fn a_tool_may_have_folders_below_the_state_directory() {
    let folder = Folder::new();
    let state = tempfile::tempdir().unwrap();
    let script = "echo kept > \"$KEN_STATE_DIR/web/cache/x\" && echo done; echo no > \"$KEN_STATE_DIR/y\"; true";
    let fields = json!({"approval": "none", "writes": "text", "touch": {"state": ["web/cache"]}});
    folder.tool("caching", script, fields);
    let output = folder.call_with("caching", "KEN_STATE_DIR", state.path().to_str().unwrap());
    assert!(output.contains("done"), "{output}");
    assert_eq!(std::fs::read_to_string(state.path().join("web/cache/x")).unwrap(), "kept\n");
    assert!(!state.path().join("y").exists());
    for wrong in ["/etc", "../x", "a/../b"] {
        folder.tool("wrong", "true", json!({"touch": {"state": [wrong]}}));
        let output = folder.run("list", &[]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("/touch/state"), "{wrong}: {output:?}");
    }
}
