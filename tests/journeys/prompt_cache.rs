//! A long conversation with tools, sources and notes: each request begins as the one before, so that the provider finds it in
//! its cache, and the person sees how much was found there.

use std::sync::Arc;

use ken_tests::prompt_cache::{Counted, PromptCache, anthropic_parts, openai_parts};
use ken_tests::provider::{Provider, ReceivedRequest, Reply};
use ken_tests::{Builder, System};
use serde_json::{Value, json};

const TURNS: usize = 20;
/// Prices in dollars for a million tokens that show in four digits what a few thousand tokens cost.
const PRICES: &str =
    "[[model]]\nname = \"*/m\"\nprice = { input = 100.0, output = 0.0, cache_read = 10.0, cache_write = 100.0 }\n";

#[derive(Clone, Copy, PartialEq)]
enum Format {
    OpenAi,
    Anthropic,
}

/// A model that writes a note in each second turn, gives a task to a worker in each fifth, and then answers. The
/// provider counts its input as one with a cache does.
fn noting(format: Format) -> Provider {
    let cache = Arc::new(PromptCache::default());
    Provider::answering(move |request| {
        let counted = match format {
            Format::OpenAi => cache.openai(request),
            Format::Anthropic => cache.anthropic(request),
        };
        let asked = last_prompt(request);
        let turn: usize =
            asked.split("turn ").nth(1).and_then(|rest| rest.split('.').next()?.parse().ok()).unwrap_or(0);
        let note = json!({"name": "progress", "text": format!("Turn {turn} is under way.")}).to_string();
        let task = json!({"agent": "research-worker", "prompt": "Say what you know."}).to_string();
        let is_over = has_results(request) || request.body["tools"].is_null();
        let call = match is_over || asked.contains("Say what you know.") {
            true => None,
            false if turn % 5 == 4 => Some(("task", task.as_str())),
            false if turn % 2 == 1 => Some(("note_write", note.as_str())),
            false => None,
        };
        let id = format!("call_{turn}");
        let calls: Vec<_> = call.iter().map(|(name, arguments)| (id.as_str(), *name, *arguments)).collect();
        let text = if calls.is_empty() { format!("Answer {turn} [1].") } else { String::new() };
        Reply::Stream(match format {
            Format::OpenAi => counted.openai(&[&text], &calls),
            Format::Anthropic => counted.anthropic(&[&text], &calls),
        })
    })
}

fn messages(request: &ReceivedRequest) -> &Vec<Value> {
    request.body["messages"].as_array().unwrap()
}

fn is_result(message: &Value) -> bool {
    let is_block = |block: &Value| block["type"] == "tool_result";
    message["role"] == "tool" || message["content"].as_array().is_some_and(|blocks| blocks.iter().any(is_block))
}

fn has_results(request: &ReceivedRequest) -> bool {
    messages(request).last().is_some_and(is_result)
}

/// The last text of the user, in either format. ken's own notes on an answer have the same role.
fn last_prompt(request: &ReceivedRequest) -> String {
    let of_user = |message: &&Value| message["role"] == "user" && !is_result(message);
    let mut texts = messages(request).iter().rev().filter(of_user).map(|message| message["content"].to_string());
    texts.find(|text| text.contains("(The time, as ken knows it")).unwrap()
}

fn start(provider: &Provider, format: Format) -> System {
    let (model, variable, address) = match format {
        Format::OpenAi => ("openai/m", "OPENAI_BASE_URL", format!("{}/v1", provider.url())),
        Format::Anthropic => ("anthropic/m", "ANTHROPIC_BASE_URL", provider.url()),
    };
    let system = Builder::default().env("KEN_MODEL", model).env(variable, &address).file("models.toml", PRICES).start();
    for number in 0..4 {
        let entry =
            json!({"title": format!("Valve {number}"), "content": format!("Valve {number} opens at {number}0 bar.")});
        system.post("/api/knowledge", &entry).expect(201);
    }
    system
}

/// Talks, and returns the session.
fn talk(system: &System) -> String {
    let session = system.session();
    for turn in 0..TURNS {
        // Each turn finds other sources.
        let text = format!("This is turn {turn}. At which pressure does valve {} open?", turn % 4);
        let answer = system.say(&session, &text).expect(200);
        assert!(answer.text("/result/text").starts_with(&format!("Answer {turn}")), "{}", answer.body_text());
    }
    session
}

/// The requests of the conversation itself, without those of its workers.
fn own_requests(provider: &Provider, parts: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    let received = provider.received();
    let own = received.iter().filter(|request| last_prompt(request).contains("This is turn"));
    own.map(|request| parts(&request.body)).collect()
}

/// A part of a request of the chat completions API. What ken has found for this turn is the end of a message there, and a part of its own
/// here.
fn split(part: String) -> Vec<String> {
    match part.split_once("\\n\\nken has found this for the message above.") {
        Some((sent, found)) => {
            let end = found.rsplit_once('.').unwrap().1;
            vec![format!("{sent}{end}"), found.to_owned()]
        }
        None => vec![part],
    }
}

/// Fails unless each request begins as the one before: with the same tools and messages, byte for byte, within a turn up to the
/// end, and from turn to turn up to what the person has written.
#[track_caller]
fn begins_alike(requests: &[Vec<String>]) {
    assert!(requests.len() > TURNS, "{}", requests.len());
    let prompt = |parts: &[String]| parts.iter().rposition(|part| part.contains("(The time, as ken knows it")).unwrap();
    for (number, pair) in requests.windows(2).enumerate() {
        let [one, next] = pair else { unreachable!() };
        let repeated = if prompt(one) == prompt(next) { one.len() } else { prompt(one) + 1 };
        assert_eq!(one[..repeated], next[..repeated], "after request {number}");
    }
}

/// The words of a column in the lines of a table, by the name in its head.
fn column(table: &str, name: &str) -> Vec<String> {
    let mut lines = table.lines();
    let place =
        lines.next().unwrap().split_whitespace().position(|head| head == name).unwrap_or_else(|| panic!("{table}"));
    lines.map(|line| line.split_whitespace().nth(place).unwrap_or_default().to_owned()).collect()
}

/// Fails unless `ken usage`, `ken show` and the summaries say what the provider has counted.
#[track_caller]
fn is_shown(system: &System, counted: &[Counted]) {
    let all: usize = counted.iter().map(|one| one.all).sum();
    let cached: usize = counted.iter().map(|one| one.cached).sum();
    assert!(cached * 10 > all * 8, "of {all} tokens, {cached} were cached");
    let shown = |arguments: &[&str]| String::from_utf8(system.ken(arguments).stdout).unwrap();
    let usage = shown(&["usage"]);
    assert_eq!(column(&usage, "INPUT"), [all.to_string()], "{usage}");
    assert_eq!(column(&usage, "CACHED"), [cached.to_string()], "{usage}");
    let cost = (all - cached) as f64 * 100.0 / 1e6 + cached as f64 * 10.0 / 1e6;
    assert_eq!(column(&usage, "COST"), [format!("${cost:.4}")], "{usage}");
    let last = counted.last().unwrap();
    let page = shown(&["show", "last"]);
    assert!(page.contains(&format!("{} tokens in ({} cached)", last.all, last.cached)), "{page}");
    let group: Value = serde_json::from_str(shown(&["usage", "--json"]).trim()).unwrap();
    assert_eq!(group["cacheRead"], cached);
}

/// Counts the requests again with a new cache, as the provider has counted them.
fn counted(provider: &Provider, count: impl Fn(&PromptCache, &ReceivedRequest) -> Counted) -> Vec<Counted> {
    let cache = PromptCache::default();
    provider.received().iter().map(|request| count(&cache, request)).collect()
}

#[test]
fn twenty_turns_begin_alike_for_openai() {
    let provider = noting(Format::OpenAi);
    let system = start(&provider, Format::OpenAi);
    talk(&system);
    begins_alike(&own_requests(&provider, |body| openai_parts(body).into_iter().flat_map(split).collect()));
    is_shown(&system, &counted(&provider, PromptCache::openai));
    let tools = provider.received()[0].body["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn twenty_turns_begin_alike_for_anthropic() {
    let provider = noting(Format::Anthropic);
    let system = start(&provider, Format::Anthropic);
    let session = talk(&system);
    let texts = |body: &Value| anthropic_parts(body).into_iter().map(|(text, _)| text).collect();
    begins_alike(&own_requests(&provider, texts));
    is_shown(&system, &counted(&provider, PromptCache::anthropic));
    // A summary takes the place of the history, and is then itself what the next requests begin with.
    system.say(&session, "/compact").expect(200);
    for turn in 20..23 {
        system.say(&session, &format!("This is turn {turn}. And now?")).expect(200);
    }
    let received = provider.received();
    let first = received.iter().find(|request| last_prompt(request).contains("This is turn 20")).unwrap();
    let first = anthropic_parts(&first.body);
    let is_summary = |(text, _): &(String, bool)| text.contains("a summary of what is no longer shown");
    let summary = first.iter().position(is_summary).unwrap_or_else(|| panic!("{first:#?}"));
    let last = anthropic_parts(&received.last().unwrap().body);
    let until_prompt = |parts: &[(String, bool)]| -> Vec<String> {
        parts[..=summary + 1].iter().map(|(text, _)| text.clone()).collect()
    };
    assert_eq!(until_prompt(&first), until_prompt(&last));
}
