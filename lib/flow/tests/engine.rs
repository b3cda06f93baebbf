//! Tests of the engine with correct and faulty tools, which are small scripts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(unreachable_pub)]
mod bench;

use std::time::{Duration, Instant};

use bench::{Bench, ECHO, failed, is_running, until_gone, value};
use ken_flow::{
    Data, Definition, Event, Kind, Observer, Outcome, Pending, Recorded, Request, Settings, Status, StepEnd, StepName,
};
use ken_types::{Code, Error};
use parking_lot::Mutex;
use serde_json::json;

#[test]
fn a_step_is_a_line_to_a_tool_and_a_line_back_and_the_process_is_kept() {
    let bench = Bench::new().tool("ECHO", ECHO);
    let workflow = bench.workflow(json!([{"step": "ECHO"}]));
    let outcome = bench.run(&workflow, json!({"a": [1, "x\ny"]}));
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!(value(&outcome)["results"], json!({"ECHO": {"got": {"a": [1, "x\ny"]}}}));
    bench.run(&workflow, json!({}));
    let state = bench.engine().state().pop().unwrap();
    assert_eq!((state.started, state.idle, state.at_work), (1, 1, 0));
    let script = bench.script("ECHO");
    drop(bench);
    assert!(until_gone(&script), "a process is left");
}

#[test]
fn a_tool_over_its_time_is_killed_with_what_it_started_and_the_next_request_works() {
    let script =
        r#"while IFS= read -r line; do case "$line" in *slow*) sleep 1000.0417;; esac; echo '{"ok":true}'; done"#;
    let bench = Bench::new().tool("SLEEPER", script);
    let workflow = bench.workflow(json!([{"step": "SLEEPER", "id": "nap", "timeout_ms": 150}]));
    let outcome = bench.run(&workflow, json!({"slow": 1}));
    let error = failed(&outcome);
    assert_eq!(error.code, Code::Deadline);
    assert_eq!(error.message, "step nap: no answer within 150 ms");
    assert!(until_gone("1000.0417"), "the sleep is left");
    let outcome = bench.run(&workflow, json!({}));
    assert_eq!(outcome.status, Status::Completed);
}

#[test]
fn the_deadline_of_a_request_ends_its_step() {
    let bench = Bench::new().tool("SLEEPER", "read -r line; sleep 1000.0418");
    let workflow = bench.workflow(json!([{"step": "SLEEPER"}]));
    let deadline = Some(Instant::now() + Duration::from_millis(100));
    let outcome = bench.request(&workflow, json!({}), Request { deadline, ..bench.engine().request() }).unwrap();
    assert_eq!(failed(&outcome).message, "step SLEEPER: the deadline of the request has passed");
    assert!(until_gone("1000.0418"));
}

#[test]
fn a_run_that_is_dropped_takes_its_tool_along() {
    let bench = Bench::new().tool("SLEEPER", "read -r line; sleep 1000.0419");
    let workflow = bench.workflow(json!([{"step": "SLEEPER"}]));
    let data = Data::read("{}").unwrap();
    let running = bench.engine().run(&workflow, &data, bench.engine().request());
    bench.runtime.block_on(async {
        tokio::select! {
            _ = running => panic!("it sleeps"),
            () = async { while !is_running("1000.0419") { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("it does not start"),
        }
    });
    assert!(until_gone("1000.0419"), "the tool is left");
    let state = bench.engine().state().pop().unwrap();
    assert_eq!((state.idle, state.at_work), (0, 0));
}

#[test]
fn a_tool_that_crashes_is_asked_again_once_and_then_its_last_words_are_the_error() {
    let script = r#"echo "$$" >> "$0.pids"; while IFS= read -r line; do
        case "$line" in *bad*) echo noise >&2; echo '{"error":{"code":"internal","message":"out of luck","at":""}}' >&2; exit 3;; esac
        echo '{"ok":true}'; done"#;
    let bench = Bench::new().tool("CRASHER", script);
    let workflow = bench.workflow(json!([{"step": "CRASHER"}]));
    let outcome = bench.run(&workflow, json!({"bad": 1}));
    let error = failed(&outcome);
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.ends_with("sh ended with status 3: out of luck"), "{error}");
    assert_eq!(bench.pids("CRASHER"), 2, "asked twice");
    let outcome = bench.run(&workflow, json!({}));
    assert_eq!(outcome.status, Status::Completed);
}

#[test]
fn a_crash_that_does_not_come_again_is_not_seen() {
    let script = r#"while IFS= read -r line; do
        if [ ! -e "$0.once" ]; then : > "$0.once"; exit 1; fi; echo '{"ok":true}'; done"#;
    let bench = Bench::new().tool("ONCE", script);
    let workflow = bench.workflow(json!([{"step": "ONCE"}]));
    assert_eq!(bench.run(&workflow, json!({})).status, Status::Completed);
    assert_eq!(bench.engine().state().pop().unwrap().crashed, 1);
}

#[test]
fn a_process_that_died_idle_is_replaced_without_a_word() {
    let bench = Bench::new().tool("ONE", r#"IFS= read -r line; echo '{"ok":true}'"#);
    let workflow = bench.workflow(json!([{"step": "ONE"}]));
    for _ in 0..3 {
        assert_eq!(bench.run(&workflow, json!({})).status, Status::Completed);
        assert!(until_gone(&bench.script("ONE")));
    }
}

/// A script that answers with the number of its request, followed by `tag`, in which `TAG` stands for the tag of the
/// line. It executes `after` after each answer.
fn counter(tag: &str, after: &str) -> String {
    let tag = tag.replace("TAG", r#"${line#"${line%????????????}"}"#);
    format!(
        r#"while IFS= read -r line; do n=${{line##*:}}; n=${{n%%\}}*}}; printf '{{"n":%s}}%s\n' "$n" "{tag}"; {after}; done"#
    )
}

#[test]
fn what_a_tool_writes_twice_or_late_reaches_nobody() {
    for tag in ["TAG", ""] {
        for after in [
            r#"printf '{"n":-1}\n'"#,               // at once
            r#"printf '{"n":-1}\t          \t\n'"#, // with some tag
            r#"sleep 0.02; printf '{"n":-1}\n'"#,   // when the next line is there already
            r#"printf '{"n":-'; sleep 0.02; printf '1}\n'"#,
        ] {
            let bench = Bench::new().tool("DOUBLE", &counter(tag, after));
            let workflow = bench.workflow(json!([{"step": "DOUBLE"}]));
            for n in 0..20 {
                let outcome = bench.run(&workflow, json!({"n": n}));
                let result = &value(&outcome)["results"]["DOUBLE"];
                assert_eq!(*result, json!({"n": n}), "{tag} {after}: {outcome:?}");
            }
        }
    }
}

#[test]
fn a_tool_that_knows_no_tags_has_one_line_in_its_life() {
    let bench = Bench::new().tool("TAGS", &counter("TAG", ":")).tool("NONE", &counter("", ":"));
    let workflow = bench.workflow(json!([{"step": "TAGS"}, {"step": "NONE"}]));
    for n in 0..5 {
        bench.run(&workflow, json!({"n": n}));
    }
    let started: Vec<u64> = bench.engine().state().iter().map(|tool| tool.started).collect();
    assert!(started.ends_with(&[1, 5]), "{started:?}");
}

#[test]
fn answers_that_are_none() {
    let bench = Bench::new()
        .tool("GARBAGE", "read -r line; echo 'no json at all'")
        .tool("BYTES", r"read -r line; printf '\377\376\n'")
        .tool("HUGE", "read -r line; yes '\"' | tr -d '\\n'")
        .tool("SILENT", "read -r line; exit 0")
        .tool("CLOSED", "exec >&-; sleep 1000.0420")
        .tool(
            "ERROR",
            r#"while read -r line; do echo '{"error":{"code":"invalid","message":"no rules","at":"/rules"}}'; done"#,
        );
    for (tool, code, words) in [
        ("GARBAGE", Code::Internal, "is not JSON"),
        ("BYTES", Code::Internal, "is not UTF-8"),
        ("HUGE", Code::TooLarge, "is longer than"),
        ("SILENT", Code::Unavailable, "ended with status 0 without an error message"),
        ("CLOSED", Code::Unavailable, "closed its output"),
        ("ERROR", Code::Invalid, "no rules"),
    ] {
        let workflow = bench.workflow(json!([{"step": tool}]));
        let outcome = bench.run(&workflow, json!({}));
        let error = failed(&outcome);
        assert_eq!(error.code, code, "{tool}: {error}");
        assert!(
            error.message.starts_with(&format!("step {tool}: ")) && error.message.contains(words),
            "{tool}: {error}"
        );
        assert_eq!(value(&outcome)["governance_summary"]["quality_scores"][tool], 0.0);
    }
    let error = bench.run(&bench.workflow(json!([{"step": "ERROR"}])), json!({}));
    assert_eq!(failed(&error).at.as_deref(), Some("/rules"));
    let idle: usize = bench.engine().state().iter().map(|tool| tool.idle).sum();
    assert_eq!(idle, 0, "none of these is used again");
    assert!(until_gone("1000.0420") && until_gone(&bench.script("HUGE")));
}

#[test]
fn a_flood_on_standard_error_stops_nobody() {
    let script = r#"while IFS= read -r line; do yes flood | head -c 3000000 >&2; echo '{"ok":true}'; done"#;
    let bench = Bench::new().tool("FLOOD", script);
    let workflow = bench.workflow(json!([{"step": "FLOOD"}]));
    for _ in 0..2 {
        assert_eq!(bench.run(&workflow, json!({})).status, Status::Completed);
    }
}

#[test]
fn a_line_longer_than_a_pipe_gets_through() {
    let bench = Bench::new().tool("ECHO", ECHO);
    let workflow = bench.workflow(json!([{"step": "ECHO"}]));
    let data = json!({"a": "long ".repeat(40_000)});
    let outcome = bench.run(&workflow, data.clone());
    assert_eq!(value(&outcome)["results"]["ECHO"]["got"], data);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let bench = Bench::new().protocol("LOST", Kind::Other, "/nowhere/ken-lost", &[]);
    assert!(!bench.engine().state().pop().unwrap().is_there);
    let outcome = bench.run(&bench.workflow(json!([{"step": "LOST"}])), json!({}));
    let error = failed(&outcome);
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.message.contains("/nowhere/ken-lost"), "{error}");
}

#[test]
fn tools_are_given_the_variables_of_the_list_and_no_others() {
    let script = r#"read -r line; printf '{"path":%s,"secret":"%s"}\n' "${#PATH}" "$CARGO_MANIFEST_DIR""#;
    let bench = Bench::new().tool("ENV", script);
    let outcome = bench.run(&bench.workflow(json!([{"step": "ENV"}])), json!({}));
    let result = &value(&outcome)["results"]["ENV"];
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(result["secret"], "");
    assert!(result["path"].as_u64().unwrap() > 0);
}

#[test]
fn parallel_steps_overlap_as_far_as_they_may() {
    // Checks up to `tries` times whether `want` processes run at the same time, and writes `want` if so, otherwise 1.
    let script = r#"read -r line; want=${line##*want\":}; want=${want%%[!0-9]*}; tries=${line##*tries\":}; tries=${tries%%[!0-9]*}
        mkdir -p "$0.at"; : > "$0.at/$$"; seen=1
        while [ "$tries" -gt 0 ] && [ ! -e "$0.all" ]; do
            [ "$(ls "$0.at" | wc -l)" -ge "$want" ] && : > "$0.all"; tries=$((tries-1)); sleep 0.02; done
        [ -e "$0.all" ] && seen=$want; rm "$0.at/$$"; echo "{\"seen\":$seen}""#;
    let steps: Vec<_> = (0..4).map(|n| json!({"step": "WORK", "id": format!("w{n}")})).collect();
    for (max, want, tries) in [(1, 2, 3), (4, 4, 500)] {
        let bench = Bench::new().tool("WORK", script);
        let workflow = bench.workflow(json!([{ "parallel": steps }]));
        let settings = Settings { max_parallel: max, ..Settings::default() };
        let request = Request { settings: &settings, ..bench.engine().request() };
        let outcome = bench.request(&workflow, json!({"tries": tries, "want": want}), request).unwrap();
        let seen: Vec<&str> = outcome.results.iter().filter_map(|(_, answer)| answer.field("seen")).collect();
        let expected = if max == 1 { "1" } else { "4" };
        assert_eq!(seen, [expected; 4], "{outcome:?}");
    }
}

#[test]
fn conditions_templates_and_loops() {
    let bench = Bench::new().tool("ECHO", ECHO);
    let workflow = bench.workflow(json!([
        {"step": "ECHO", "id": "first", "input": {"n": "{{/data/n}}", "words": "n is {{/data/n}}, list\n{{/data/list}}", "gone": "{{/data/none|}}", "all": ["{{/data/none|}}", true]}},
        {"step": "ECHO", "id": "skipped", "when": {"exists": "/data/none"}},
        {"loop": 3, "steps": [
            {"step": "ECHO", "id": "again", "input": {"last": "{{/results/again/got|/results/first/got/n}}"},
             "when": {"all": [{"compare": ["/results/first/got/n", ">", 4]}, {"not": {"equals": ["/data/n", 6]}}]}}
        ]},
        {"step": "ECHO", "id": "unfilled", "input": "{{/results/skipped}}"},
        {"step": "ECHO", "id": "after"}
    ]));
    let outcome = bench.run(&workflow, json!({"n": 5.0, "list": ["a", "b"]}));
    let results = &value(&outcome)["results"];
    assert_eq!(results["first"]["got"], json!({"n": 5.0, "words": "n is 5.0, list\n- a\n- b", "all": [true]}));
    assert_eq!(results["again"]["got"], json!({"last": {"last": {"last": 5.0}}}));
    assert_eq!(results.get("skipped"), None);
    assert_eq!(failed(&outcome).message, "step unfilled: {{/results/skipped}} has no value");
    assert_eq!(results.get("after"), None, "what follows a failed step does not run");
    let six = bench.run(&workflow, json!({"n": 6, "list": []}));
    assert_eq!(value(&six)["results"].get("again"), None);
}

#[test]
fn branches_do_not_see_each_other_and_the_last_of_the_file_is_the_newest() {
    let late = r#"read -r line; case "$line" in *late*) sleep 0.3;; esac; echo "{\"rules\":[$line]}""#;
    let bench = Bench::new().tool_of("REP", Kind::Rep, late).tool_of("VVP", Kind::Vvp, ECHO);
    let workflow = bench.workflow(json!([
        {"parallel": [
            {"step": "REP", "id": "r1", "input": "late"},
            {"step": "REP", "id": "r2", "input": "soon"},
            {"loop": 1, "steps": [
                {"step": "REP", "id": "wait", "input": "late too"},
                {"step": "VVP", "id": "inside", "input": {"soon": "{{/results/r2|}}", "own": "{{/results/wait/rules/0}}"}}
            ]}
        ]},
        {"parallel": [{"step": "VVP", "id": "after"}]}
    ]));
    let outcome = bench.run(&workflow, json!({}));
    let results = &value(&outcome)["results"];
    assert_eq!(results["inside"]["got"], json!({"own": "late too"}), "{outcome:?}");
    assert_eq!(results["after"]["got"], json!({"rules": ["late too"]}), "{outcome:?}");
    let workflow = bench.workflow(json!([
        {"parallel": [{"step": "REP", "id": "r1", "input": "late"}, {"step": "REP", "id": "r2", "input": "soon"}]},
        {"step": "VVP", "id": "after"}
    ]));
    let outcome = bench.run(&workflow, json!({}));
    assert_eq!(value(&outcome)["results"]["after"]["got"], json!({"rules": ["soon"]}), "{outcome:?}");
}

#[test]
fn planted_results_are_refused() {
    let bench = Bench::new().tool("ECHO", ECHO);
    let workflow = bench.workflow(json!([{"step": "ECHO", "id": "mine"}]));
    for name in ["mine", "ECHO", "results", "governance", "governance_summary"] {
        let error = bench.request(&workflow, json!({ name: {} }), bench.engine().request()).unwrap_err();
        assert_eq!((error.code, error.at), (Code::Invalid, Some(format!("/{name}"))));
    }
    assert_eq!(bench.engine().state().pop().unwrap().started, 0);
}

/// An observer that records its calls, returns `supplies` as recorded results, and fails at the first call that begins
/// with `refuses`.
#[derive(Default)]
struct RecordingObserver {
    lines: Mutex<Vec<String>>,
    supplies: Vec<(StepName, Recorded)>,
    refuses: Option<&'static str>,
}

impl RecordingObserver {
    fn note(&self, line: String) -> Result<(), Error> {
        let is_refused = self.refuses.is_some_and(|start| line.starts_with(start));
        self.lines.lock().push(line);
        if is_refused { Err(Error::unavailable("the disk is full")) } else { Ok(()) }
    }

    fn log(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

impl Observer for RecordingObserver {
    fn recorded(&self, name: &StepName) -> Option<Recorded> {
        let found = self.supplies.iter().find(|(known, _)| known == name);
        found.map(|(_, result)| result.clone())
    }

    fn begun<'a>(&'a self, name: &'a StepName) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move { self.note(format!("begun {} {}", name.id, name.turn)) })
    }

    fn ended<'a>(&'a self, step: &'a StepEnd<'a>) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move { self.note(format!("ended {} {} {}", step.name.id, step.name.turn, step.result.is_ok())) })
    }

    fn event<'a>(&'a self, event: &'a Event) -> Pending<'a, Result<(), Error>> {
        Box::pin(async move { self.note(event.name().to_owned()) })
    }
}

fn watched(bench: &Bench, workflow: &Definition, settings: &Settings, scribe: &RecordingObserver) -> Outcome {
    bench.request(workflow, json!({"x": 1}), Request { deadline: None, settings, observer: scribe }).unwrap()
}

#[test]
fn an_observer_gets_each_step_and_a_recorded_step_is_not_run_again() {
    let bench = Bench::new().tool("ECHO", ECHO);
    let workflow = bench.workflow(json!([
        {"step": "ECHO", "id": "a"},
        {"loop": 2, "steps": [{"step": "ECHO", "id": "b", "input": {"n": "{{/results/a/got}}"}}]}
    ]));
    let scribe = RecordingObserver::default();
    let whole = watched(&bench, &workflow, bench.engine().settings(), &scribe);
    let log = ["begun a 1", "ended a 1 true", "begun b 1", "ended b 1 true", "begun b 2", "ended b 2 true"];
    assert_eq!(scribe.log(), log);
    // After a crash, the results of the first two steps have been recorded.
    let name = |id: &str, turn| StepName { id: id.to_owned(), turn };
    let scribe = RecordingObserver {
        supplies: vec![
            (name("a", 1), ken_flow::recorded(r#"{"got":{"x":1}}"#.to_owned())),
            (name("b", 1), ken_flow::recorded("{}".to_owned())),
        ],
        ..RecordingObserver::default()
    };
    let resumed = watched(&bench, &workflow, bench.engine().settings(), &scribe);
    assert_eq!(scribe.log(), ["begun b 2", "ended b 2 true"]);
    assert_eq!(value(&resumed)["results"], value(&whole)["results"]);
}

#[test]
fn what_the_observer_cannot_write_down_does_not_happen() {
    let bench = Bench::new().tool("ECHO", ECHO);
    let workflow = bench.workflow(json!([{"step": "ECHO", "id": "a"}, {"step": "ECHO", "id": "b"}]));
    let scribe = RecordingObserver { refuses: Some("begun b"), ..RecordingObserver::default() };
    let outcome = watched(&bench, &workflow, bench.engine().settings(), &scribe);
    assert_eq!(failed(&outcome).message, "the disk is full");
    assert_eq!(scribe.log(), ["begun a 1", "ended a 1 true", "begun b 1"]);
}

/// States a fact and also denies it, unless its input contains the issues.
const CONTRADICTS_ITSELF: &str = r#"while IFS= read -r line; do case "$line" in
    *issues*learns*|*learns*issues*) echo '{"facts":["it is so"],"conclusions":["all is well"],"validation":{"is_valid":true,"confidence_score":1.0}}';;
    *) echo '{"facts":["it is so"],"conclusions":["it is not so"],"validation":{"is_valid":true,"confidence_score":1.0}}';; esac; done"#;

fn governed(requires_coherence: bool) -> Settings {
    let mut settings = Settings::default();
    settings.governance.requires_coherence = requires_coherence;
    settings
}

#[test]
fn results_that_do_not_agree_are_tried_again_with_the_issues_and_then_abort() {
    let bench = Bench::new().tool_of("REP", Kind::Rep, CONTRADICTS_ITSELF);
    let learns = bench.workflow(json!([{"step": "REP", "input": {"learns": 1, "issues": "{{/issues|}}"}}]));
    let scribe = RecordingObserver::default();
    let outcome = watched(&bench, &learns, &governed(true), &scribe);
    assert_eq!(outcome.status, Status::Completed, "{outcome:?}");
    assert!(outcome.governance_summary.is_coherent);
    assert_eq!(outcome.governance_summary.actions, ["retried REP with 1 issue found"]);

    let stubborn = bench.workflow(json!([{"step": "REP"}]));
    let scribe = RecordingObserver::default();
    let outcome = watched(&bench, &stubborn, &governed(true), &scribe);
    assert_eq!(outcome.status, Status::Aborted);
    let error = outcome.error.as_ref().unwrap();
    assert!(error.message.contains("REP says \"it is so\", but REP says \"it is not so\""), "{error}");
    assert!(outcome.results.get("REP").is_some(), "partial results are kept");
    let events: Vec<String> =
        scribe.log().into_iter().filter(|line| !line.contains(' ') && !line.contains("quality")).collect();
    assert_eq!(
        events,
        [
            "governance_incoherence_detected",
            "recovery_decision",
            "governance_incoherence_detected",
            "recovery_decision",
            "governance_abort"
        ]
    );
}

/// The names of the steps that were executed, with their turns.
fn executed(scribe: &RecordingObserver) -> Vec<String> {
    let log = scribe.log().into_iter();
    log.filter_map(|line| line.strip_prefix("begun ").map(str::to_owned)).collect()
}

/// Tools that disagree: `SAYS` states a fact, `LEARNS` denies it unless its input contains the issues, and `DENIES` always
/// denies it.
fn disagreeing() -> Bench {
    const SAYS: &str = r#"while read -r line; do echo '{"facts":["it is so"],"validation":{"is_valid":true}}'; done"#;
    const LEARNS: &str = r#"while read -r line; do case "$line" in
        *issues*) echo '{"facts":["all is well"],"validation":{"is_valid":true}}';;
        *) echo '{"facts":["it is not so"],"validation":{"is_valid":true}}';; esac; done"#;
    const DENIES: &str =
        r#"while read -r line; do echo '{"facts":["it is not so"],"validation":{"is_valid":true}}'; done"#;
    Bench::new()
        .tool_of("SAYS", Kind::Rep, SAYS)
        .tool_of("LEARNS", Kind::Rep, LEARNS)
        .tool_of("DENIES", Kind::Rep, DENIES)
        .tool("ECHO", ECHO)
}

#[test]
fn only_the_step_that_brings_an_issue_in_runs_once_more() {
    let bench = disagreeing();
    let run = |items: serde_json::Value| {
        let scribe = RecordingObserver::default();
        let outcome = watched(&bench, &bench.workflow(items), &governed(true), &scribe);
        (outcome, executed(&scribe))
    };
    let (outcome, steps) = run(json!([
        {"step": "SAYS"}, {"step": "ECHO", "id": "before"}, {"step": "LEARNS"}, {"step": "ECHO", "id": "after"}
    ]));
    assert_eq!((outcome.status, outcome.error), (Status::Completed, None));
    assert_eq!(steps, ["SAYS 1", "before 1", "LEARNS 1", "LEARNS 2", "after 1"]);
    assert!(outcome.governance_summary.is_coherent);

    // In parallel, neither step sees the result of the other. The second one in the file is the one that is
    // repeated.
    let (outcome, steps) = run(json!([
        {"parallel": [{"step": "SAYS"}, {"step": "LEARNS"}]}, {"step": "ECHO", "id": "after"}
    ]));
    assert_eq!((outcome.status, outcome.error), (Status::Completed, None));
    assert_eq!(steps.iter().filter(|step| *step == "LEARNS 2").count(), 1);
    assert_eq!(steps.len(), 4, "{steps:?}");

    // A run that is aborted keeps its results so far, and the following steps do not run.
    let (outcome, steps) = run(json!([{"step": "SAYS"}, {"step": "DENIES"}, {"step": "ECHO", "id": "after"}]));
    assert_eq!(outcome.status, Status::Aborted);
    assert_eq!(steps, ["SAYS 1", "DENIES 1", "DENIES 2"]);
    assert!(outcome.results.get("SAYS").is_some() && outcome.results.get("DENIES").is_some());
    assert!(!outcome.governance_summary.is_coherent);
    assert_eq!(
        outcome.governance_summary.actions,
        ["retried DENIES with 1 issue found", "aborted: after one retry the results of DENIES still disagree"]
    );
}

/// A branch of a parallel group does not judge what is judged when the group has ended, and a run has one retry in all.
#[test]
fn a_run_has_one_retry_and_one_abort() {
    let bench = disagreeing();
    let both = json!({"loop": 1, "steps": [{"step": "SAYS"}, {"step": "DENIES"}]});
    let nested = json!({"parallel": [{"parallel": [both.clone(), {"step": "ECHO", "id": "c"}]}, {"step": "ECHO"}]});
    for (items, expected) in [
        (json!([{"parallel": [both, {"step": "ECHO"}]}]), "DENIES 2"),
        (json!([nested]), "DENIES 2"),
        (json!([{"step": "SAYS"}, {"step": "LEARNS"}, {"step": "DENIES"}]), "DENIES 1"),
    ] {
        let scribe = RecordingObserver::default();
        let outcome = watched(&bench, &bench.workflow(items), &governed(true), &scribe);
        assert_eq!(outcome.status, Status::Aborted);
        assert_eq!(executed(&scribe).last().map(String::as_str), Some(expected));
        let count = |event: &str| scribe.log().iter().filter(|line| *line == event).count();
        assert_eq!((count("recovery_decision"), count("governance_abort")), (2, 1), "{:?}", scribe.log());
        assert_eq!(outcome.governance_summary.actions.len(), 2, "{:?}", outcome.governance_summary.actions);
    }
}

/// The time limit of a step begins when the step has its place; the wait for the place has its own limit.
#[test]
fn the_wait_for_a_place_and_the_time_of_a_step_are_limited_apart() {
    let slow = Bench::new().tool("SLOW", "while read -r line; do sleep 3; echo '{}'; done");
    let two = json!([{"parallel": [{"step": "SLOW", "id": "a"}, {"step": "SLOW", "id": "b"}]}]);
    let run = |queue: u64| {
        let settings = Settings {
            timeout: Duration::from_secs(5),
            queue_timeout: Duration::from_millis(queue),
            max_parallel: 1,
            ..Settings::default()
        };
        watched(&slow, &slow.workflow(two.clone()), &settings, &RecordingObserver::default())
    };
    // The second step needs 6 s from the start of the run, and 3 s from the moment at which it has its place.
    assert_eq!(run(30_000).status, Status::Completed);
    let late = run(100);
    let message = &failed(&late).message;
    assert!(message.contains("no place among the steps that run in parallel within 100 ms"), "{message}");
}

#[test]
fn without_the_need_to_agree_there_is_a_warning_and_without_governance_nothing() {
    let bench = Bench::new().tool_of("REP", Kind::Rep, CONTRADICTS_ITSELF);
    let workflow = bench.workflow(json!([{"step": "REP"}]));
    let outcome = watched(&bench, &workflow, &governed(false), &RecordingObserver::default());
    assert_eq!(outcome.status, Status::Completed);
    let summary = &outcome.governance_summary;
    assert!(!summary.is_coherent);
    assert_eq!((summary.warnings.len(), summary.actions.len()), (2, 0), "{summary:?}");
    let mut off = governed(true);
    off.governance.is_enabled = false;
    let outcome = watched(&bench, &workflow, &off, &RecordingObserver::default());
    assert_eq!(
        value(&outcome)["governance_summary"],
        json!({"quality_scores": {}, "is_coherent": true, "coherence": null, "warnings": [], "actions": []})
    );
}

#[test]
fn low_quality_is_an_event() {
    let bench = Bench::new().tool_of("ESL", Kind::Esl, "read -r line; echo '{}'");
    let scribe = RecordingObserver::default();
    let workflow = bench.workflow(json!([{"step": "ESL", "input": {"user_input": "x"}}]));
    let outcome = watched(&bench, &workflow, bench.engine().settings(), &scribe);
    assert_eq!(outcome.governance_summary.quality_scores, [("ESL".to_owned(), 0.0)]);
    assert_eq!(scribe.log().last().unwrap(), "governance_low_quality");
}

#[test]
fn side_by_side_every_request_gets_its_own_answer() {
    let bench = Bench::new().tool("ECHO", ECHO);
    let engine = bench.engine();
    let workflow = bench.workflow(json!([
        {"step": "ECHO", "id": "a"},
        {"parallel": [{"step": "ECHO", "id": "b"}, {"step": "ECHO", "id": "c", "input": "{{/results/a}}"}]}
    ]));
    let client = async |n: usize| {
        for round in 0..10 {
            let got = json!({"client": n, "round": round, "text": "x".repeat(n * 200)});
            let data = Data::from_value(&got).unwrap();
            let outcome = value(&engine.run(&workflow, &data, engine.request()).await.unwrap());
            let got = json!({"got": got});
            assert_eq!(outcome["results"], json!({"a": got, "b": got, "c": {"got": got}}), "{outcome}");
        }
    };
    bench.runtime.block_on(futures_util::future::join_all((0..32).map(client)));
    let state = bench.engine().state().pop().unwrap();
    assert!(state.idle <= 16 && state.at_work == 0, "{state:?}");
}
