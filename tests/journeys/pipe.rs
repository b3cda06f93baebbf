//! `cat error.log | ken chat "what is wrong here?"`: what a person sends from a shell, and what is refused.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ken_tests::provider::{Provider, Reply, openai};
use ken_tests::{Builder, System, binary};
use serde_json::Value;

fn system(provider: &Provider) -> System {
    Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=k\n")
        .start()
}

/// Runs a line as a person types it, in the home of the system.
fn shell(system: &System, line: &str) -> Output {
    let programs = binary("ken").parent().unwrap().display().to_string();
    let mut shell = Command::new("sh");
    shell.env_clear().env("PATH", format!("{programs}:/usr/bin:/bin")).env("KEN_HOME", system.home());
    shell.args(["-c", line]).current_dir(system.home()).stdin(Stdio::null()).output().unwrap()
}

/// What the person has sent in the newest request to the model.
fn sent(provider: &Provider) -> Value {
    provider.received().last().unwrap().prompt()
}

#[test]
fn what_stands_in_the_pipe_is_sent_before_the_question() {
    let provider = Provider::answering(|_| Reply::Stream(openai(&["The disk is full."], &[])));
    let system = system(&provider);
    std::fs::write(system.home().join("error.log"), "ENOSPC\n```\n").unwrap();
    let fenced = "stdin:\n\n````\nENOSPC\n```\n````\n\nwhat is wrong here?";
    for line in [
        "cat error.log | ken chat 'what is wrong here?'",
        "ken chat 'what is wrong here?' < error.log",
        "cat error.log | ken chat -f - 'what is wrong here?'",
        "cat error.log | ken tui --print 'what is wrong here?'",
    ] {
        let output = shell(&system, line);
        assert_eq!(
            (output.status.code(), &*output.stdout),
            (Some(0), &b"The disk is full.\n"[..]),
            "{line}: {output:?}"
        );
        assert!(sent(&provider).as_str().unwrap().contains(fenced), "{line}: {}", sent(&provider));
    }
    // Without a question, standard input is the message; a template takes it as its input.
    for line in ["echo hello | ken chat", "echo hello | ken chat -"] {
        assert_eq!(shell(&system, line).status.code(), Some(0), "{line}");
        assert_eq!(sent(&provider).as_str().unwrap().trim_end(), "hello", "{line}");
    }
    assert_eq!(shell(&system, "echo '-a' | ken chat -t review").status.code(), Some(0));
    let review = sent(&provider);
    assert!(review.as_str().unwrap().starts_with("Review the following"), "{review}");
    assert!(review.as_str().unwrap().trim_end().ends_with("-a"), "{review}");
    let picture = shell(&system, r"printf '\211PNG\r\n\032\nrest' | ken chat -a - 'What is it?'");
    assert_eq!(picture.status.code(), Some(0), "{picture:?}");
    assert!(sent(&provider).to_string().contains("data:image/png;base64,iVBORw0KGgpyZXN0"));
}

#[test]
fn without_a_pipe_nothing_is_read() {
    let provider = Provider::answering(|_| Reply::Stream(openai(&["Yes."], &[])));
    let system = system(&provider);
    for line in
        ["ken chat ready? < /dev/null", "ken chat ready? <&-", ": | ken chat ready?", "ken chat ready? < /dev/zero"]
    {
        let output = shell(&system, line);
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"Yes.\n"[..]), "{line}: {output:?}");
        assert_eq!(sent(&provider), "ready?", "{line}");
    }
}

/// A person reads sentences, in a pipe too; a program asks for JSON.
#[test]
fn errors_are_sentences_unless_json_is_asked_for() {
    let provider = Provider::start(Vec::new());
    let system = system(&provider);
    for (line, begin) in [
        ("ken chat --colour hello", "error: unexpected argument '--colour' found\n"),
        ("ken show nothing", "ken: "),
        ("ken undo nothing", "ken: "),
        ("ken lawz --json '{}'", "ken: there is no command `lawz`"),
        ("ken laws --lies", "ken-laws: unexpected argument '--lies' found (at --lies); "),
        ("ken laws --json '{\"text\":7}'", "ken-laws: "),
        ("ken model try rules/x", "ken-model: "),
        ("ken tui --session nothing --print hello", "ken-tui: "),
        ("ken sandbox", "ken-sandbox: "),
    ] {
        let output = shell(&system, line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{line}: {output:?}");
        assert!(stderr.starts_with(begin) && !stderr.contains("\"code\""), "{line}: {stderr}");
        let asked = shell(&system, &format!("KEN_ERRORS=json {line}"));
        assert_eq!(asked.status.code(), output.status.code(), "{line}");
        is_json(&asked, line);
    }
    for line in [
        "ken chat --colour --json hello",
        "ken show nothing --json",
        "ken undo nothing --json",
        "ken model list --x --json",
    ] {
        is_json(&shell(&system, line), line);
    }
}

#[track_caller]
fn is_json(output: &Output, line: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    let error: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{line}: {text}"));
    assert!(error["error"]["code"].is_string() && error["error"]["message"].is_string(), "{line}: {text}");
}

#[test]
fn what_cannot_be_sent_is_refused_before_anything_is_sent() {
    let provider = Provider::start(Vec::new());
    let system = system(&provider);
    let begun = Instant::now();
    for (line, status, named) in [
        ("head -c 300000 /dev/zero | tr '\\0' x | ken chat why", 2, "standard input has 300000 bytes, at most 262144"),
        ("yes | ken chat why", 2, "standard input has more than "),
        ("yes | ken tui --print why", 2, "standard input has more than "),
        ("printf 'a\\0b' | ken chat why", 2, "standard input is not text: byte 1 is NUL"),
        ("printf '\\377' | ken chat why", 2, "`-a -` sends a PNG"),
        ("echo x | ken chat -f - -a - why", 2, "can be read only once"),
        ("sleep 5 | ken chat --wait 1s why", 75, "`< /dev/null` sends the message without it"),
    ] {
        let output = shell(&system, &format!("({line})"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{line}: {stderr}");
        assert!(stderr.contains(named), "{line}: {stderr}");
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(provider.received().len(), 0);
}
