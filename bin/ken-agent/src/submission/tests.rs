//! Complete submissions in memory: the order of events in every kind of turn, and resuming after a crash at every
//! event.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ken_types::event::{Block, Body, Event, Failure, Message, Outcome, StopReason, ToolResult};
use ken_types::ops::agent::Record;
use ken_types::ops::model::{ToolSpec, Unusable};
use ken_types::ops::store::{Claim, EndReason, History, SettleSubmission, SubmissionKind};
use ken_types::ops::tools::Approval;
use ken_types::{Code, Error, Timestamp};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Agent;
use crate::ports::{Events, Grant, Pending, Policy, RequestedCall, ToolFacts, Tools};
use crate::share::Share;
use crate::testing::{Act, MemoryModel, MemoryStore, TestTools, claim, exchange, in_session, ports};
use crate::turn_state::TurnState;
use crate::worker::ModelWorkers;

/// A submission to be run from the start or resumed.
#[derive(Clone)]
struct Case {
    claim: Claim,
    model: MemoryModel,
    history: History,
}

/// The results of a run.
struct RunResult {
    events: Vec<Event>,
    settled: SettleSubmission,
    ran: Vec<String>,
    appends: usize,
}

impl Case {
    fn of(answers: Vec<Vec<Act>>) -> Case {
        Case { claim: claim("hello"), model: MemoryModel::new(answers), history: History::default() }
    }

    fn compact(answers: Vec<Vec<Act>>) -> Case {
        let mut case = Case::of(answers);
        case.claim.kind = SubmissionKind::Compact;
        case.history = history(2, "short");
        case
    }

    fn run(&self) -> RunResult {
        self.resume(&[], 1, None)
    }

    /// Resumes after these events, as the holder of a later claim.
    fn resume(&self, recorded: &[Event], attempt: u32, verdict: Option<EndReason>) -> RunResult {
        let store = MemoryStore::holding(recorded, self.history.clone());
        let mut claim = self.claim.clone();
        claim.attempt = attempt;
        claim.next_event_index = recorded.len() as u64;
        claim.last_timestamp = recorded.last().map(|event| event.place.timestamp);
        claim.verdict = verdict;
        self.run_with(store, claim, false)
    }

    /// Runs a claim until it ends. With `aborts`, it is aborted after half a second.
    fn run_with(&self, store: MemoryStore, claim: Claim, aborts: bool) -> RunResult {
        let tools = TestTools::default();
        let agent = Agent { store: store.clone(), model: self.model.clone(), ports: ports(&tools, &self.model) };
        let (abort, aborted) = watch::channel(false);
        paused().block_on(async {
            let run = agent.run(claim, aborted);
            let abort = async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                abort.send_replace(aborts);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = run => drop(ended.unwrap()),
                () = abort => {}
            }
        });
        let mut kept = store.kept.lock();
        let settled = kept.settled.take().expect("it is settled");
        let appends = kept.appends;
        drop(kept);
        let ran = tools.ran.lock().clone();
        let events = store.events();
        check(&events);
        self.replay(&events);
        RunResult { events, settled, ran, appends }
    }

    /// A submission that has ended must give the same events in a replay.
    fn replay(&self, events: &[Event]) {
        let agents = ["orchestrator", "research-worker", "coding-worker"];
        let tools = agents.map(|agent| (agent.to_owned(), TestTools::default().list(agent)));
        let case = crate::replay::Case {
            record: Record {
                claim: self.claim.clone(),
                history: self.history.clone(),
                tools: tools.into(),
                built_in: Vec::new(),
                context_window: 98_304,
                output_reserve: 8_192,
                images: 0,
            },
            events: events.to_vec(),
        };
        static SHARE: OnceLock<Arc<Share>> = OnceLock::new();
        let share = SHARE.get_or_init(|| Arc::new(Share::built_in()));
        let found = paused().block_on(crate::replay::difference(&case, share, false));
        assert_eq!(found.unwrap(), None, "{}", line(events));
    }
}

type TestAgent = Agent<MemoryStore, MemoryModel>;

/// An agent whose model gives these answers, and its store.
fn agent(answers: Vec<Vec<Act>>) -> (TestAgent, MemoryStore) {
    agent_with(answers, &TestTools::default())
}

fn agent_with(answers: Vec<Vec<Act>>, tools: &TestTools) -> (TestAgent, MemoryStore) {
    let (store, model) = (MemoryStore::default(), MemoryModel::new(answers));
    (Agent { store: store.clone(), ports: ports(tools, &model), model }, store)
}

/// Runs a claim until it ends. Returns how, and how long it took on the clock, which jumps.
fn run(agent: &TestAgent, claim: Claim) -> (Result<Outcome, Error>, Duration) {
    let (_abort, aborted) = watch::channel(false);
    paused().block_on(async {
        let started = Instant::now();
        let run = tokio::time::timeout(Duration::from_secs(86_400), agent.run(claim, aborted));
        (run.await.expect("it ends"), started.elapsed())
    })
}

/// Aborts a submission while the model or a tool hangs. Returns the events before the abort.
fn events_until_abort(agent: &TestAgent) -> String {
    let (abort, aborted) = watch::channel(false);
    paused().block_on(async {
        let watch = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let line = line(&agent.store.events());
            abort.send_replace(true);
            line
        };
        let (outcome, line) = tokio::join!(agent.run(claim("hello"), aborted), watch);
        assert_eq!(outcome.unwrap(), Outcome::Aborted);
        line
    })
}

/// Returns a runtime whose clock jumps forward when all tasks are waiting.
fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn history(exchanges: usize, text: &str) -> History {
    let exchange =
        |number: usize| exchange(&number.to_string(), &format!("{text} {number}?"), &format!("{text} {number}."));
    History { exchanges: (0..exchanges).map(exchange).collect(), turns: exchanges as u64, ..History::default() }
}

fn text(text: &str) -> Act {
    Act::Text(text.into())
}

fn call(id: &str, name: &str) -> Act {
    Act::Call { id: id.into(), name: name.into() }
}

fn types(events: &[Event]) -> Vec<String> {
    let name = |event: &Event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

fn line(events: &[Event]) -> String {
    types(events).join(" ")
}

const PLAIN: &str = "operation_start agent_start message_start message_end turn_start message_start text_delta text_delta message_end turn_messages \
                     turn agent_end operation idle submission_settled";

#[test]
fn the_events_of_a_plain_prompt_are_in_order() {
    let ended = Case::of(vec![vec![text("Hello "), text("there.")]]).run();
    assert_eq!(line(&ended.events), PLAIN);
    assert_eq!(ended.settled.outcome, Outcome::Completed);
    let result = ended.settled.result.clone().unwrap();
    assert_eq!((result.text.as_str(), result.usage.total_tokens), ("Hello there.", 12));
    assert_eq!(ended.settled.context_usage.clone().unwrap()["usedTokens"], 12);
    assert_eq!(ended.appends, 1, "a quick turn is written with its end");
    assert_eq!((&ended.events[2].place.turn_id, ended.events[2].place.operation_id.is_some()), (&None, true));
    let start = &ended.events[4].place;
    assert!(start.operation_id.as_ref().unwrap().starts_with("op_"));
    assert!(start.turn_id.as_ref().unwrap().starts_with("turn_"));
    let idle = &ended.events[13].place;
    assert_eq!((&idle.operation_id, &idle.turn_id), (&None, &None));
}

#[test]
fn the_first_events_are_recorded_while_the_model_thinks() {
    let types = events_until_abort(&agent(vec![vec![Act::Hang]]).0);
    assert_eq!(types, "operation_start agent_start message_start message_end turn_start message_start");
}

/// Runs only calls whose start is recorded.
struct RecordedRun(MemoryStore, TestTools);

impl Tools for RecordedRun {
    fn list(&self, agent: &str) -> Vec<ToolSpec> {
        self.1.list(agent)
    }

    fn call(&self, requested: RequestedCall, grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        let id = &requested.call.id;
        let is_start =
            |event: &Event| matches!(&event.body, Body::ToolStart { tool_call_id, .. } if tool_call_id == id);
        if self.0.events().iter().any(is_start) {
            self.1.call(requested, grant)
        } else {
            Box::pin(std::future::ready(Err("it is not recorded".to_owned())))
        }
    }
}

/// Stores a request for each call and approves it.
struct AllRequested;

impl Policy for AllRequested {
    fn check(&self, requested: RequestedCall, events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        Box::pin(async move {
            let put = json!({
                "id": format!("apr_{}", requested.call.id), "submissionId": "s", "callId": requested.call.key(),
                "toolCallId": requested.call.id, "requestedBy": requested.caller.agent, "tool": requested.call.name,
                "preview": {"approval": "ask"}, "expiresInMs": 1_000,
            });
            let stored = events.request(serde_json::from_value(put).unwrap()).await;
            stored.map(|stored| Some(stored.request_id)).map_err(|error| error.message)
        })
    }
}

/// Runs a turn with two calls. Each runs only if its start is recorded. Returns the events and the number of writes.
fn two_recorded_calls(policy: Option<Arc<dyn Policy>>) -> (Vec<Event>, usize) {
    let tools = TestTools::default();
    let (mut agent, store) = agent(vec![vec![call("c1", "fine"), call("c2", "again")], vec![text("Done.")]]);
    agent.ports.tools = Arc::new(RecordedRun(store.clone(), tools.clone()));
    agent.ports.policy = policy.unwrap_or(agent.ports.policy);
    run(&agent, claim("hello")).0.unwrap();
    let mut ran = tools.ran.lock().clone();
    ran.sort();
    assert_eq!(ran, ["c1", "c2"]);
    let appends = store.kept.lock().appends;
    (store.events(), appends)
}

#[test]
fn a_tool_runs_when_its_start_is_recorded() {
    two_recorded_calls(None);
}

/// The start of a call and the request for its approval are one write, and the events have no gap.
#[test]
fn a_request_is_stored_with_the_start_of_its_call() {
    let (events, appends) = two_recorded_calls(Some(Arc::new(AllRequested)));
    let events = line(&events);
    assert!(events.contains("tool_start tool_start approval_requested approval_requested tool tool"), "{events}");
    assert!(appends <= 4, "{appends} writes: two requests, the results, the end");
}

/// Approves each call, and says afterwards that its grant was not used.
struct NeverUsed;

impl Policy for NeverUsed {
    fn check(&self, _requested: RequestedCall, _events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        Box::pin(std::future::ready(Ok(Some("apr_1".to_owned()))))
    }

    fn is_unused(&self, _grant: &Grant) -> Pending<'static, bool> {
        Box::pin(std::future::ready(true))
    }
}

/// A call that failed before it used its grant is made again, a few times. One that has succeeded is not, whatever became
/// of its grant: ken-tools needs none if nobody has to be asked any more.
#[test]
fn a_call_is_made_again_only_if_it_failed_and_its_grant_is_unused() {
    for (tool, times) in [("fine", 1), ("broken", 5)] {
        let tools = TestTools::default();
        let (mut agent, _) = agent_with(vec![vec![call("c1", tool)], vec![text("Done.")]], &tools);
        agent.ports.policy = Arc::new(NeverUsed);
        run(&agent, claim("hello")).0.unwrap();
        assert_eq!(*tools.ran.lock(), vec!["c1"; times], "{tool}");
    }
}

/// A ken-model that cannot be reached.
fn gone() -> MemoryModel {
    MemoryModel { absences: Arc::new(Mutex::new(u32::MAX)), ..MemoryModel::new(Vec::new()) }
}

/// The policy of a process that begins to stop at this time.
struct Stopping(Instant);

impl Policy for Stopping {
    fn stopping(&self) -> Pending<'static, ()> {
        Box::pin(tokio::time::sleep_until(self.0))
    }

    fn check(&self, _requested: RequestedCall, _events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Runs a turn until it ends or is left to the next process. With `stops`, this process begins to stop after a second.
fn end_of(mut agent: TestAgent, stops: bool) -> Result<Outcome, Code> {
    let (_abort, aborted) = watch::channel(false);
    paused().block_on(async {
        if stops {
            agent.ports.policy = Arc::new(Stopping(Instant::now() + Duration::from_secs(1)));
        }
        agent.run(claim("hello"), aborted).await.map_err(|error| error.code)
    })
}

/// While kend stops, it does not restart a ken-model that has ended. The next process can reach one.
#[test]
fn a_turn_without_a_model_part_fails_but_not_in_a_process_that_stops() {
    for (stops, expected) in [(false, Ok(Outcome::Failed)), (true, Err(Code::Cancelled))] {
        let (agent, store) = agent(Vec::new());
        assert_eq!(end_of(Agent { model: gone(), ..agent }, stops), expected);
        assert_eq!(store.kept.lock().settled.is_none(), stops);
    }
}

/// The same holds for the task of a worker.
#[test]
fn a_task_without_a_model_part_fails_but_not_in_a_process_that_stops() {
    let call = Act::Call { id: "c1".into(), name: "task".into() };
    for (stops, expected) in [(false, Ok(Outcome::Completed)), (true, Err(Code::Cancelled))] {
        let (mut agent, store) = agent(vec![vec![call.clone()], vec![text("Done.")]]);
        agent.ports.workers = Arc::new(ModelWorkers { model: gone() });
        assert_eq!(end_of(agent, stops), expected);
        let events = store.events();
        assert!(events.iter().any(|event| matches!(event.body, Body::TaskStart { .. })));
        assert_eq!(events.iter().any(|event| matches!(event.body, Body::Task { .. })), !stops, "{events:?}");
    }
}

/// The store is not asked for 0 past exchanges.
#[test]
fn a_turn_without_a_usable_model_fails_with_the_reason_of_each() {
    for (models, others, requested, expected) in [
        (&[][..], &[][..], None, "no model is configured: test/one: KEY is not set; "),
        (&[], &[], Some("test/one"), "no model is configured: test/one: KEY is not set; "),
        (&[], &["test/two"], None, "no model is configured: test/one: KEY is not set; "),
        (&[], &["test/two"], Some("test/two"), ""),
        (&["test/three"], &[], None, ""),
    ] {
        let (mut agent, store) = agent(vec![vec![text("Yes.")]]);
        agent.model.models = models.iter().map(|name| (*name).to_owned()).collect();
        agent.model.others = others.iter().map(|name| (*name).to_owned()).collect();
        agent.model.unusable = vec![Unusable { model: "test/one".to_owned(), why: "KEY is not set".to_owned() }];
        let claim = Claim { model: requested.map(str::to_owned), ..claim("hello") };
        let (outcome, _) = run(&agent, claim);
        let settled = store.kept.lock().settled.clone().unwrap();
        let said = settled.error.map(|error| error.message).unwrap_or_default();
        assert_eq!(
            (outcome.unwrap() == Outcome::Completed, said.is_empty()),
            (expected.is_empty(), expected.is_empty())
        );
        assert!(said.starts_with(expected), "{said}");
    }
}

#[test]
fn thinking_stands_before_the_text_and_closed() {
    let ended = Case::of(vec![vec![Act::Think("a".into()), Act::Think("b".into()), text("Yes.")]]).run();
    assert!(
        line(&ended.events)
            .contains("message_start thinking_start thinking_delta thinking_delta thinking_end text_delta message_end")
    );
}

#[test]
fn tools_of_one_turn_run_together_and_a_failing_one_does_not_end_it() {
    let calls = vec![text("Let me see."), call("c1", "fine"), call("c2", "broken"), call("c3", "nonesuch")];
    let ended = Case::of(vec![calls, vec![text("Done.")]]).run();
    let wanted = "operation_start agent_start message_start message_end turn_start message_start text_delta message_end tool_start tool_start \
                  tool_start tool tool tool message_start message_end message_start message_end message_start message_end \
                  turn_messages turn turn_start message_start text_delta message_end turn_messages turn agent_end operation \
                  idle submission_settled";
    assert_eq!(line(&ended.events), wanted);
    assert_eq!(ended.ran, ["c1", "c2"]);
    let failed = ended.events.iter().filter(|event| matches!(&event.body, Body::Tool { is_error: true, .. })).count();
    assert_eq!(failed, 2);
    assert_eq!(ended.settled.outcome, Outcome::Completed);
    assert_eq!(ended.settled.result.clone().unwrap().text, "Done.");
}

#[test]
fn the_events_of_a_task_are_within_its_call() {
    let ended = Case::of(vec![vec![call("c1", "task")], vec![text("Done.")]]).run();
    assert!(
        line(&ended.events).contains(
            "tool_start task_start operation_start agent_start turn_start message_start message_end message_start message_end \
             tool_start tool message_start message_end turn_messages turn turn_start message_start text_delta text_delta \
             message_end turn_messages turn agent_end operation task tool message_start"
        ),
        "{}",
        line(&ended.events)
    );
    let of_worker = ended.events.iter().filter(|event| event.place.parent_session.is_some());
    for event in of_worker {
        let place = &event.place;
        assert_eq!(place.session, "task:default:c1");
        assert_eq!(place.task_id.as_deref(), Some("c1"));
        assert!(place.operation_id.as_ref().unwrap().starts_with("op_"));
    }
    // The worker's usage is included.
    assert_eq!(ended.settled.result.unwrap().usage.total_tokens, 4 * 12);
}

#[test]
fn what_a_worker_does_is_readable_while_it_does_it() {
    let (agent, store) = agent(vec![vec![call("hang", "task")]]);
    let types = events_until_abort(&agent);
    let wanted = "task_start operation_start agent_start turn_start message_start message_end message_start";
    assert!(types.ends_with(wanted), "{types}");
    // The abort closes the worker's open events, inner ones first.
    let events = store.events();
    check(&events);
    assert!(
        line(&events).contains(
            "turn_start message_start message_end message_start message_end turn_messages turn agent_end operation task tool"
        ),
        "{}",
        line(&events)
    );
}

#[test]
fn an_overloaded_model_is_tried_four_times_and_each_try_is_a_turn() {
    let case = Case::of(vec![vec![text("Hm"), Act::Fail(Error::busy("overloaded", 1))]]);
    let ended = case.run();
    let turn = "turn_start message_start text_delta message_end turn_messages turn ";
    let wanted = format!(
        "operation_start agent_start message_start message_end {}agent_end operation idle submission_settled",
        turn.repeat(4)
    );
    assert_eq!(line(&ended.events), wanted);
    assert_eq!(ended.settled.outcome, Outcome::Failed);
    assert_eq!(ended.settled.error.clone().unwrap().name, "provider");
}

/// The jitter shortens only the pauses that ken chooses, not those that a provider requests.
#[test]
fn a_provider_is_left_alone_for_as_long_as_it_asks() {
    let (agent, store) = agent(vec![vec![Act::Fail(Error::busy("later", 30_000))]]);
    let (outcome, time) = run(&agent, claim("hello"));
    assert_eq!((outcome.unwrap(), time.as_secs()), (Outcome::Failed, 3 * 30));
    check(&store.events());
}

#[test]
fn a_wrong_key_goes_to_each_next_model_at_once() {
    let mut case = Case::of(vec![vec![Act::Fail(Error::new(Code::Unauthenticated, "wrong key"))]]);
    case.model.models = vec!["test/one".into(), "test/two".into(), "test/three".into()];
    let ended = case.run();
    let models: Vec<_> = case.model.requests.lock().iter().map(|request| request.model.clone().unwrap()).collect();
    assert_eq!(models, ["test/one", "test/two", "test/three"]);
    assert_eq!(ended.settled.outcome, Outcome::Failed);
}

#[test]
fn a_model_part_that_dies_is_asked_for_the_rest_and_no_reader_notices() {
    let case = Case::of(vec![vec![text("Hello "), Act::Die, text("there.")]]);
    *case.model.deaths.lock() = 1;
    let ended = case.run();
    assert_eq!(line(&ended.events), PLAIN);
    assert_eq!(case.model.requests.lock()[1].prefix, "Hello ");
    assert_eq!(ended.settled.result.clone().unwrap().text, "Hello there.");
}

/// Thoughts and tool calls cannot be continued. Therefore the call fails, and the next attempt is a new turn.
#[test]
fn a_model_part_that_dies_after_more_than_text_is_not_asked_for_the_rest() {
    for acts in
        [vec![Act::Think("hm".into()), Act::Die, text("Yes.")], vec![call("c1", "fine"), Act::Die, text("Yes.")]]
    {
        let case = Case::of(vec![acts, vec![text("Done.")]]);
        *case.model.deaths.lock() = 1;
        let ended = case.run();
        let turns = types(&ended.events).iter().filter(|name| *name == "turn_start").count();
        assert!(turns >= 2, "{}", line(&ended.events));
        let requests = case.model.requests.lock();
        assert!(requests.iter().all(|request| request.prefix.is_empty()), "{requests:?}");
        let failed = ended.events.iter().find_map(|event| match &event.body {
            Body::Turn { error, .. } => error.clone(),
            _ => None,
        });
        assert_eq!(failed.unwrap().name, "unavailable");
        assert!(ended.ran.len() <= 1, "a call of a cut answer was run: {:?}", ended.ran);
        assert_eq!(ended.settled.outcome, Outcome::Completed);
    }
}

#[test]
fn a_history_above_the_window_is_cut_when_it_cannot_be_compacted() {
    let mut case = Case::of(vec![vec![text("Hello.")], vec![Act::Fail(Error::invalid("", "bad"))]]);
    case.history = history(60, &"long ".repeat(2_000));
    let ended = case.run();
    assert!(line(&ended.events).contains("compaction_start turn_start turn compaction turn_start message_start"));
    assert_eq!(ended.settled.outcome, Outcome::Completed);
    let usable = 98_304 - 8_192;
    for request in case.model.requests.lock().iter() {
        let texts = request.messages.iter().map(|message| ken_types::event::estimated_tokens(&message.text()));
        let tokens = texts.sum::<u64>() + ken_types::event::estimated_tokens(&request.system);
        assert!(tokens > usable / 2 && tokens <= usable, "{tokens} of {usable}");
    }
}

/// The model counts more tokens than the estimate.
#[test]
fn a_context_that_the_model_finds_too_long_is_compacted_and_sent_again() {
    let too_long = || Act::Fail(Error::too_large("the context is longer than the window"));
    let mut case = Case::of(vec![]);
    case.history = history(4, "short");
    // The model refuses the prompt as long as the request contains the history.
    case.model.answers = Arc::new(vec![vec![text("Hello.")], vec![text("A summary.")]]);
    case.model.refuses_history = true;
    let ended = case.run();
    let shown = line(&ended.events);
    assert!(
        shown.starts_with(
            "operation_start agent_start message_start message_end turn_start message_start message_end turn_messages turn compaction_start \
             turn_start turn compaction turn_start message_start"
        ),
        "{shown}"
    );
    assert_eq!(ended.settled.outcome, Outcome::Completed);
    assert_eq!(ended.settled.summary.as_deref(), Some("A summary."));
    check_every_cut(&case);
    // Without a history there is nothing to compact. The submission fails, and the model is not called again and again.
    let ended = Case::of(vec![vec![too_long()]]).run();
    assert_eq!(ended.settled.outcome, Outcome::Failed);
    assert!(!line(&ended.events).contains("compaction"));
}

#[test]
fn a_failure_names_the_model_and_a_refused_key_is_not_configured() {
    let error = |code| Act::Fail(Error::new(code, "no"));
    for (code, name) in [(Code::Invalid, "provider"), (Code::Unauthenticated, "model_not_configured")] {
        let ended = Case::of(vec![vec![error(code)]]).run();
        let cause = ended.settled.error.unwrap();
        assert_eq!((cause.name.as_str(), cause.message.as_str()), (name, "The model test/one failed: no"));
    }
}

#[test]
fn a_model_that_never_stops_calling_tools_is_stopped() {
    let again = |turn: usize| vec![call(&format!("c{turn}"), "again")];
    let ended = Case::of((0..200).map(again).collect()).run();
    assert_eq!(ended.settled.outcome, Outcome::Failed);
    let message = "The model called tools in 64 turns and gave no answer.";
    assert_eq!(ended.settled.error.unwrap(), Failure::new("loop", message));
    assert_eq!(ended.ran.len(), crate::turn_state::MAX_TURNS as usize);
}

/// The limits end a turn that has no answer. An answer at the last call that they allow counts.
#[test]
fn an_answer_in_the_last_turn_counts() {
    let max = crate::turn_state::MAX_TURNS as usize;
    for (turns, outcome) in [(max - 1, Outcome::Completed), (max, Outcome::Failed)] {
        let again = |turn: usize| vec![call(&format!("c{turn}"), &format!("again{turn}"))];
        let ended = Case::of((0..turns).map(again).chain([vec![text("At last.")]]).collect()).run();
        assert_eq!(ended.settled.outcome, outcome, "after {turns} turns with tools");
    }
}

#[test]
fn a_model_that_repeats_itself_gets_a_note_and_is_then_stopped() {
    let again = |turn: usize| vec![call(&format!("same{turn}"), "again")];
    let ended = Case::of((0..200).map(again).collect()).run();
    assert_eq!(ended.settled.outcome, Outcome::Failed);
    let message = "The model asked 5 times in a row for the same calls.";
    assert_eq!(ended.settled.error.unwrap(), Failure::new("loop", message));
    let results = ended.events.iter().filter_map(|event| match &event.body {
        Body::Tool { result, .. } => Some(serde_json::to_string(result).unwrap()),
        _ => None,
    });
    let has_note: Vec<bool> = results.map(|result| result.contains("times in a row")).collect();
    assert_eq!(has_note, [false, false, true, true, true]);
    assert_eq!(ended.ran.len(), 4, "the fifth is not run");
    // A different call in between resets the count.
    let mut answers: Vec<Vec<Act>> = (0..4).map(again).collect();
    answers.push(vec![call("c1", "fine")]);
    answers.extend((4..8).map(again));
    answers.push(vec![text("Done.")]);
    assert_eq!(Case::of(answers).run().settled.outcome, Outcome::Completed);
}

#[test]
fn a_hundred_calls_at_once_are_all_answered() {
    let calls = (0..100).map(|number| call(&format!("c{number}"), "fine")).collect();
    let ended = Case::of(vec![calls, vec![text("Done.")]]).run();
    assert_eq!((ended.ran.len(), ended.settled.outcome), (100, Outcome::Completed));
}

/// The clock jumps to the limit. If the limit has no effect, it jumps further, and the test fails.
#[test]
fn a_submission_ends_at_its_time_limit() {
    let (agent, store) = agent(vec![vec![text("Half"), Act::Hang]]);
    let (outcome, time) = run(&agent, claim("hello"));
    assert_eq!((outcome.unwrap(), time.as_secs()), (Outcome::Failed, 3_600));
    let settled = store.kept.lock().settled.take().unwrap();
    assert_eq!(settled.error.unwrap().name, "timeout");
}

async fn ask(events: &Events, request_id: &str) {
    events
        .send(Body::ApprovalRequested {
            request_id: request_id.to_owned(),
            action_type: "shell.execute".into(),
            risk: "high".into(),
            expires_at: Timestamp::from_millis(0),
            worker: None,
        })
        .await;
}

/// Waits two hours for an approval of each call, then allows it.
struct SlowApproval;

impl Policy for SlowApproval {
    fn check(&self, requested: RequestedCall, events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        let request_id = format!("apr_{}", requested.call.id);
        Box::pin(async move {
            ask(&events, &request_id).await;
            tokio::time::sleep(Duration::from_secs(7_200)).await;
            let status = "approved".into();
            events.send(Body::ApprovalDecided { request_id, status, decided_by: None, worker: None }).await;
            Ok(None)
        })
    }
}

#[test]
fn waiting_for_an_approval_is_no_running_time() {
    for (answers, outcome) in [
        (vec![vec![call("c1", "fine")], vec![text("Done.")]], Outcome::Completed),
        // While one waits, another one is asked for.
        (vec![vec![call("c1", "fine"), call("c2", "fine")], vec![text("Done.")]], Outcome::Completed),
        // After the decision, the limit of one hour applies again.
        (vec![vec![call("c1", "slow")]], Outcome::Failed),
    ] {
        let (mut agent, store) = agent(answers);
        agent.ports.policy = Arc::new(SlowApproval);
        let (ended, time) = run(&agent, claim("hello"));
        let hours = if outcome == Outcome::Completed { 2 } else { 3 };
        assert_eq!((ended.unwrap(), time.as_secs() / 3_600), (outcome, hours));
        check(&store.events());
    }
}

/// Requests an approval that is then lost.
struct LostApproval;

impl Policy for LostApproval {
    fn check(&self, requested: RequestedCall, events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        if requested.caller.depth > 0 {
            return Box::pin(std::future::ready(Ok(None)));
        }
        Box::pin(async move {
            ask(&events, "apr_lost").await;
            Err("nobody can be asked for the approval now".to_owned())
        })
    }
}

#[test]
fn an_approval_for_which_no_call_waits_does_not_stop_the_clock() {
    check_lost_approval(vec![call("c1", "fine")]);
    // Nor does it when a worker is at work meanwhile.
    check_lost_approval(vec![call("c1", "fine"), call("do", "task")]);
}

fn check_lost_approval(calls: Vec<Act>) {
    let (mut agent, store) = agent(vec![calls, vec![Act::Hang]]);
    agent.ports.policy = Arc::new(LostApproval);
    let (outcome, time) = run(&agent, claim("hello"));
    assert_eq!((outcome.unwrap(), time.as_secs()), (Outcome::Failed, 3_600));
    let events = store.events();
    let decided = |event: &Event| matches!(&event.body, Body::ApprovalDecided { status, .. } if status == "cancelled");
    assert_eq!(events.iter().filter(|event| decided(event)).count(), 1);
    check(&events);
}

#[test]
fn a_compaction_shows_no_message_and_leaves_a_summary() {
    let ended = Case::compact(vec![vec![], vec![text("A summary.")]]).run();
    let wanted = "operation_start compaction_start turn_start turn compaction operation idle submission_settled";
    assert_eq!(line(&ended.events), wanted);
    assert_eq!(ended.settled.summary.as_deref(), Some("A summary."));
    let budget = ended.settled.result.clone().unwrap().context_budget.unwrap();
    assert_eq!((&budget["compactions"], &budget["turns"]), (&1.into(), &2.into()));
}

#[test]
fn with_nothing_to_compact_no_model_is_asked() {
    let mut case = Case::compact(vec![]);
    case.history = History::default();
    let ended = case.run();
    let wanted = "operation_start compaction_start compaction operation idle submission_settled";
    assert_eq!(line(&ended.events), wanted);
    assert_eq!((ended.settled.outcome, ended.settled.summary), (Outcome::Completed, None));
    assert!(case.model.requests.lock().is_empty() && ended.settled.context_usage.is_none());
}

#[test]
fn a_full_window_is_compacted_before_the_prompt() {
    let mut case = Case::of(vec![vec![text("Hello.")]]);
    case.history = history(60, &"long ".repeat(500));
    // The request for the summary ends with an answer of the history, so the model's next answer is the summary.
    case.model.answers = std::sync::Arc::new(vec![vec![text("Hello.")], vec![text("A summary.")]]);
    let ended = case.run();
    assert!(
        line(&ended.events).starts_with(
            "operation_start agent_start message_start message_end compaction_start turn_start turn compaction turn_start message_start"
        ),
        "{}",
        line(&ended.events)
    );
    let requests = case.model.requests.lock();
    let [earlier, _] = &requests[1].messages[..] else { panic!("{:?}", requests[1].messages) };
    assert!(earlier.text().contains("\nA summary.\n") && requests[1].sources.is_empty(), "{}", earlier.text());
    assert_eq!(ended.settled.summary.as_deref(), Some("A summary."));
}

#[test]
fn with_nobody_to_ask_it_fails_and_is_closed() {
    let wanted = "operation_start agent_start message_start message_end agent_end operation idle submission_settled";
    for (mut case, wanted) in [
        (Case::of(vec![]), wanted),
        (Case::compact(vec![]), "operation_start compaction_start compaction operation idle submission_settled"),
    ] {
        case.model.models.clear();
        let ended = case.run();
        assert_eq!(line(&ended.events), wanted);
        assert_eq!(ended.settled.outcome, Outcome::Failed);
        assert_eq!(ended.settled.error.unwrap().name, "model_not_configured");
    }
}

#[test]
fn a_lost_lease_stops_the_writing() {
    let (agent, store) = agent(vec![vec![text("Hello.")]]);
    store.kept.lock().lease_lost = true;
    let error = run(&agent, claim("hello")).0.unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert!(store.events().is_empty());
}

/// Tools whose list takes long to load.
struct SlowList;

impl Tools for SlowList {
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(600)))
    }

    fn list(&self, _agent: &str) -> Vec<ToolSpec> {
        Vec::new()
    }

    fn call(&self, _requested: RequestedCall, _grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn the_time_of_a_turn_runs_from_its_claim() {
    for attempt in [1, 2] {
        let (mut agent, store) = agent(vec![vec![Act::Hang]]);
        agent.ports.tools = Arc::new(SlowList);
        let (_, took) = run(&agent, Claim { attempt, time_left_ms: 1_000, ..claim("hello") });
        assert_eq!(store.kept.lock().settled.clone().unwrap().error.unwrap().name, "timeout");
        assert!((1_000..1_100).contains(&took.as_millis()), "{attempt}: {took:?}");
    }
}

/// Aborts while the model hangs or a tool runs, and after the time limit.
#[test]
fn an_abort_closes_everything_and_keeps_the_partial_text() {
    for (answers, stop) in [
        (vec![vec![Act::Think("hm".into()), text("Half"), Act::Hang]], StopReason::Aborted),
        (vec![vec![text("Half"), call("c1", "slow"), call("c2", "fine")]], StopReason::ToolUse),
    ] {
        let case = Case::of(answers);
        for name in ["aborted", "timeout"] {
            let mut claim = case.claim.clone();
            if name == "timeout" {
                claim.time_left_ms = 1_000;
            }
            let ended = case.run_with(MemoryStore::default(), claim, name == "aborted");
            assert_eq!(ended.settled.error.clone().unwrap().name, name);
            assert_eq!(ended.settled.result.clone().unwrap().text, "Half");
            let stops = ended.events.iter().filter_map(|event| match &event.body {
                Body::Turn { stop_reason, .. } => Some(*stop_reason),
                _ => None,
            });
            let stop = match (stop, name) {
                (StopReason::Aborted, "timeout") => StopReason::Interrupted,
                (stop, _) => stop,
            };
            assert_eq!(stops.collect::<Vec<_>>(), [stop]);
        }
    }
}

#[test]
fn the_prompt_stands_before_the_first_turn_and_only_if_a_person_sent_it() {
    let prompts = |claim: Claim| {
        let case = Case { claim, ..Case::of(vec![vec![text("Hello.")]]) };
        let ended = case.run();
        let of = |event: &Event| match &event.body {
            Body::MessageEnd { message: message @ (Message::User { .. } | Message::Signal { .. }) } => {
                Some(serde_json::to_value(message).unwrap())
            }
            _ => None,
        };
        ended.events.iter().filter_map(of).collect::<Vec<_>>()
    };
    let mut sent = claim("hello");
    sent.images =
        vec![serde_json::from_value(json!({"type": "image", "data": "AAAA", "mimeType": "image/png"})).unwrap()];
    let shown = &prompts(sent)[..];
    assert_eq!(shown[0]["role"], "user");
    let image = json!({"type": "image", "data": "[image data omitted from event]", "mimeType": "image/png"});
    assert_eq!(shown[0]["content"], json!([{"type": "text", "text": "hello"}, image]));
    assert_eq!(shown.len(), 1);
    let mut scheduled = claim("hello");
    scheduled.context = Some(json!({"schedule": {"slug": "s"}}));
    assert_eq!(prompts(scheduled)[0]["role"], "signal");
    let mut hidden = claim("hello");
    hidden.context = Some(json!({"workflow": "tui.startup-preflight"}));
    assert!(prompts(hidden).is_empty());
}

/// Earlier versions wrote no prompt, and the thoughts of a message behind its text.
#[test]
fn a_record_of_an_earlier_version_is_replayed() {
    let case = Case::of(vec![
        vec![Act::Think("hm".into()), text("See."), call("c1", "fine")],
        vec![Act::Think("so".into()), text("Done.")],
    ]);
    let mut events = case.run().events;
    events.retain(|event| !serde_json::to_string(event).unwrap().contains(r#""role":"user""#));
    let behind = |content: &mut Vec<Block>| content.sort_by_key(|block| !matches!(block, Block::Text { .. }));
    for (index, event) in events.iter_mut().enumerate() {
        event.place.event_index = index as u64;
        match &mut event.body {
            Body::MessageEnd { message: Message::Assistant { content, .. } }
            | Body::TurnMessages { message: Message::Assistant { content, .. }, .. }
            | Body::Turn { output: content, .. } => behind(content),
            Body::AgentEnd { messages } => {
                for message in messages {
                    if let Message::Assistant { content, .. } = message {
                        behind(content);
                    }
                }
            }
            _ => {}
        }
    }
    assert!(line(&events).starts_with("operation_start agent_start turn_start message_start thinking_start"));
    case.replay(&events);
}

#[test]
fn an_empty_answer_is_asked_for_once_more_and_is_then_a_failure() {
    // The double gives the same answer to the same request. An empty answer is not part of the next one.
    let silent = Case::of(vec![vec![Act::Think("hm".into()), text(" \n")], vec![text("Not asked.")]]);
    let ended = silent.run();
    let turn = "turn_start message_start thinking_start thinking_delta thinking_end text_delta message_end turn_messages turn ";
    let wanted = format!(
        "operation_start agent_start message_start message_end {}agent_end operation idle submission_settled",
        turn.repeat(2)
    );
    assert_eq!(line(&ended.events), wanted);
    let error = ended.settled.error.unwrap();
    let message = "The model test/one gave an empty answer twice.";
    assert_eq!((error.name.as_str(), error.message.as_str()), ("empty_answer", message));
    assert!(ended.settled.result.is_none());
    let used = ended.events.iter().filter_map(|event| match &event.body {
        Body::Operation { usage, .. } => *usage,
        _ => None,
    });
    assert_eq!(used.map(|usage| usage.total_tokens).sum::<u64>(), 24, "what it has cost counts nevertheless");
    check_every_cut(&silent);
}

#[test]
fn a_submission_that_is_aborted_before_it_begins_has_an_idle() {
    let ended = Case::of(vec![]).resume(&[], 1, Some(EndReason::Abort));
    assert_eq!(line(&ended.events), "idle submission_settled");
}

/// Stops a complete run after every event but the last, resumes it, and stops that run, too. The log must remain valid
/// and the end must be the same.
fn check_every_cut(case: &Case) {
    let whole = case.run();
    for cut in 0..whole.events.len() {
        let recorded = &whole.events[..cut];
        let ended = case.resume(recorded, 2, None);
        check_resumed(&whole, recorded, &ended);
        for again in [cut + 1, cut + (ended.events.len() - cut) / 2] {
            if again < ended.events.len() {
                let recorded = &ended.events[..again];
                check_resumed(&whole, recorded, &case.resume(recorded, 3, None));
            }
        }
        for verdict in [EndReason::Abort, EndReason::RetryExhausted, EndReason::Timeout] {
            let closed = case.resume(recorded, 2, Some(verdict));
            assert!(closed.ran.is_empty(), "a closed submission ran a tool");
        }
    }
}

fn check_resumed(whole: &RunResult, recorded: &[Event], left: &RunResult) {
    assert_eq!(left.events[..recorded.len()], *recorded);
    let interrupted = left.events.iter().any(|event| matches!(&event.body, Body::Tool { interrupted: true, .. }));
    assert_eq!(left.settled.outcome, whole.settled.outcome);
    if !interrupted && whole.settled.outcome == Outcome::Completed {
        let text = |left: &RunResult| left.settled.result.clone().unwrap().text;
        assert_eq!(text(left), text(whole));
    }
    for event in recorded {
        // A call that is recorded as done must not be run again.
        if let Body::Tool { tool_call_id, .. } = &event.body {
            let id = in_session(&event.place.session, tool_call_id);
            assert!(!left.ran.contains(&id), "{id} ran twice");
        }
        if let Body::ToolStart { tool_call_id, tool_name, .. } = &event.body {
            let id = in_session(&event.place.session, tool_call_id);
            assert!(tool_name == "again" || !left.ran.contains(&id), "{id} may have run twice");
        }
    }
    if recorded.iter().any(|event| matches!(event.body, Body::OperationStart { .. })) {
        let resumed = &left.events[recorded.len()].body;
        assert!(matches!(resumed, Body::SubmissionResumed { .. }), "{resumed:?}");
    }
}

#[test]
fn every_kind_of_turn_resumes_after_a_crash_at_every_event() {
    for case in [
        Case::of(vec![vec![text("Hello "), text("there.")]]),
        Case::of(vec![vec![Act::Think("hm".into()), text("Yes.")]]),
        Case::of(vec![
            vec![text("See."), call("c1", "fine"), call("c2", "broken"), call("c3", "again")],
            vec![text("Done.")],
        ]),
        Case::of(vec![vec![call("c1", "task")], vec![text("Done.")]]),
        Case::of(vec![vec![call("deep", "task"), call("c2", "task")], vec![text("Done.")]]),
        Case::of(vec![vec![text("Hm"), Act::Fail(Error::busy("overloaded", 1))]]),
        Case::of(vec![vec![Act::Fail(Error::invalid("", "bad"))]]),
        Case::compact(vec![vec![], vec![text("A summary.")]]),
        Case::compact(vec![vec![], vec![Act::Fail(Error::unavailable("away"))]]),
    ] {
        check_every_cut(&case);
    }
}

/// Checks the rules for every log: the markers and the nesting of ken-stream(5).
fn check(events: &[Event]) {
    let shown = line(events);
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.place.event_index, index as u64, "{shown}");
    }
    assert!(events.windows(2).all(|pair| pair[0].place.timestamp <= pair[1].place.timestamp));
    let settled = types(events).iter().filter(|name| *name == "submission_settled").count();
    assert_eq!(settled, 1, "{shown}");
    assert!(matches!(events.last().unwrap().body, Body::SubmissionSettled { .. }), "{shown}");
    let mut of_workers: HashMap<String, Vec<Event>> = HashMap::new();
    let mut own = Vec::new();
    for event in events {
        match event.place.parent_session {
            None => own.push(event.clone()),
            Some(_) => of_workers.entry(event.place.session.clone()).or_default().push(event.clone()),
        }
    }
    for events in of_workers.values().chain([&own]) {
        check_starts_and_ends(events);
        check_messages(events);
    }
}

/// Every start has exactly one end after it, nothing ends without a start, and outer spans end after inner ones.
fn check_starts_and_ends(events: &[Event]) {
    let shown = line(events);
    let mut open: Vec<String> = Vec::new();
    let mut tools: HashMap<&str, u32> = HashMap::new();
    for event in events {
        let ends = |open: &mut Vec<String>, name: &str| assert_eq!(open.pop().as_deref(), Some(name), "{shown}");
        match &event.body {
            Body::OperationStart { .. } => open.push("operation".into()),
            Body::AgentStart => open.push("agent".into()),
            Body::CompactionStart { .. } => open.push("compaction".into()),
            Body::TurnStart { .. } => open.push("turn".into()),
            Body::MessageStart { .. } => open.push("message".into()),
            Body::ThinkingStart => open.push("thinking".into()),
            Body::ThinkingEnd { .. } => ends(&mut open, "thinking"),
            Body::MessageEnd { .. } => ends(&mut open, "message"),
            Body::Turn { .. } => ends(&mut open, "turn"),
            Body::Compaction { .. } => ends(&mut open, "compaction"),
            Body::AgentEnd { .. } => ends(&mut open, "agent"),
            Body::Operation { .. } => ends(&mut open, "operation"),
            Body::TextDelta { .. } => assert_eq!(open.last().map(String::as_str), Some("message"), "{shown}"),
            Body::ThinkingDelta { .. } => {
                assert_eq!(open.last().map(String::as_str), Some("thinking"), "{shown}")
            }
            Body::ToolStart { tool_call_id, .. } => {
                assert_eq!(tools.insert(tool_call_id, 1), None, "{shown}")
            }
            Body::Tool { tool_call_id, .. } => {
                assert_eq!(tools.insert(tool_call_id, 0), Some(1), "{shown}");
            }
            Body::TaskStart { .. } => *tools.entry("task").or_default() += 1,
            Body::Task { .. } => *tools.get_mut("task").unwrap() -= 1,
            Body::TurnMessages { .. } => {
                assert!(tools.values().all(|open| *open == 0), "{shown}");
                assert_eq!(open.last().map(String::as_str), Some("turn"), "{shown}");
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "still open: {open:?} in {shown}");
    assert!(tools.values().all(|open| *open == 0), "a tool has no end: {shown}");
}

/// The text of a message is the sum of its deltas. There is one final answer at most, and no turn after it.
fn check_messages(events: &[Event]) {
    let shown = line(events);
    let (mut streamed, mut finals) = (String::new(), 0);
    for event in events {
        match &event.body {
            Body::MessageStart { message: Message::Assistant { content, .. } } => {
                assert!(content.is_empty());
                streamed.clear();
            }
            Body::TextDelta { text } => streamed.push_str(text),
            Body::MessageEnd { message: message @ Message::Assistant { stop_reason, .. } } => {
                assert_eq!(message.text(), streamed, "{shown}");
                finals += u32::from(stop_reason.is_some_and(StopReason::is_final));
            }
            Body::TurnStart { .. } => assert_eq!(finals, 0, "asked after the answer: {shown}"),
            _ => {}
        }
    }
    assert!(finals <= 1, "{shown}");
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => "[a-zé🦀 ]{1,12}".prop_map(Act::Text),
        1 => "[a-z ]{1,8}".prop_map(Act::Think),
    ]
}

fn answers() -> impl Strategy<Value = Vec<Vec<Act>>> {
    let tools = prop::sample::select(vec!["fine", "again", "broken", "nonesuch", "task"]);
    let with_calls = (prop::collection::vec(act(), 0..4), prop::collection::vec(tools, 1..4));
    let last = (prop::collection::vec(act(), 0..4), prop::option::weighted(0.2, Just("fails")));
    (prop::collection::vec(with_calls, 0..3), last).prop_map(|(turns, (mut last, fails))| {
        let mut answers = Vec::new();
        for (turn, (mut acts, names)) in turns.into_iter().enumerate() {
            let calls = names.into_iter().enumerate();
            acts.extend(calls.map(|(index, name)| call(&format!("c{turn}_{index}"), name)));
            answers.push(acts);
        }
        if fails.is_some() {
            last.push(Act::Fail(Error::new(Code::Forbidden, "no")));
        }
        answers.push(last);
        answers
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_turn_resumes_after_a_crash_at_any_event(answers in answers()) {
        check_every_cut(&Case::of(answers));
    }
}

/// What may be made again after a crash: all combinations of what is known of the call.
#[test]
fn which_interrupted_calls_may_be_made_again() {
    for name in [crate::names::TASK, "push"] {
        for is_idempotent in [false, true] {
            for approval in [None, Some(Approval::None), Some(Approval::Ask), Some(Approval::Preview)] {
                for is_requested in [false, true] {
                    let call = crate::turn_state::Call {
                        id: "c1".to_owned(),
                        ..crate::turn_state::Call::internal(name, json!({}))
                    };
                    let other = "other/c1".to_owned();
                    let known = [Some(other), is_requested.then(|| call.key())].into_iter().flatten().collect();
                    let tool = ToolFacts { is_idempotent, approval, ..ToolFacts::default() };
                    let may = super::may_run_again(&call, &tool, &known);
                    let asks = approval == Some(Approval::Ask);
                    let about = format!("{name} {is_idempotent} {approval:?} {is_requested}");
                    assert_eq!(may, name == "task" || is_idempotent || is_requested || asks, "{about}");
                    let by_preview = super::is_asked_by_preview(&call, &tool, &known);
                    assert_eq!(by_preview, approval == Some(Approval::Preview) && !is_requested, "{about}");
                }
            }
        }
    }
}

/// The strongest use of each entry is recorded, and only of entries that the turn was given.
#[test]
fn how_an_answer_used_its_sources() {
    let source = |number: u32, id: &str| {
        serde_json::from_value(json!({"number": number, "id": id, "title": "t", "score": 0.5})).unwrap()
    };
    let given = [source(1, "kb-1"), source(2, "kb-2"), source(3, "kb-3"), source(4, "doc-4")];
    let found = |id: &str, number: u32| json!({"number": number, "id": id, "title": "t", "score": 0.5, "text": "x"});
    let result = |is_error: bool, entries: serde_json::Value| Message::ToolResult {
        tool_call_id: "c".to_owned(),
        tool_name: "knowledge_search".to_owned(),
        content: Vec::new(),
        details: json!({"entries": entries}),
        is_error,
        timestamp: 0,
    };
    let mut state = TurnState::default();
    state.text = "As [1] says, and kb-6, and [4].".to_owned();
    state.messages = vec![
        result(false, json!([found("kb-3", 3), found("kb-5", 5), found("kb-6", 6)])),
        result(true, json!([found("kb-7", 7)])),
        // The search found the entry kb-1 again, with a number that the answer does not cite.
        result(false, json!([found("kb-1", 9)])),
    ];
    use ken_types::ops::documents::Used::{Cited, Found, Given};
    let used = super::used(&given, &state);
    let used: Vec<_> = used.iter().map(|(id, how)| (id.as_str(), *how)).collect();
    let wanted = [("kb-1", Cited), ("kb-2", Given), ("kb-3", Found), ("kb-5", Found), ("kb-6", Cited)];
    assert_eq!(used, wanted);
}

/// The clock may have been set back since. Readers of a stream rely on the order of its timestamps.
#[test]
fn no_event_is_earlier_than_the_last_of_its_stream() {
    let case = Case::of(vec![vec![text("Hello.")]]);
    let last = Timestamp::from_millis(4_102_444_800_000);
    let claim = Claim { last_timestamp: Some(last), ..case.claim.clone() };
    let ended = case.run_with(MemoryStore::default(), claim, false);
    assert!(ended.events.iter().all(|event| event.place.timestamp >= last), "{:?}", ended.events[0].place.timestamp);
}

/// The stream of a session also has the events of earlier submissions.
#[test]
fn a_submission_goes_on_behind_the_events_of_others() {
    let mut earlier = Case::of(vec![vec![text("One.")]]);
    earlier.claim.lease.submission_id = ken_types::id::SubmissionId("other".into());
    let events = earlier.run().events;
    let (mut agent, _) = agent(vec![vec![text("Two.")]]);
    agent.store = MemoryStore::holding(&events, History::default());
    let claim = Claim { next_event_index: events.len() as u64, ..claim("hello") };
    assert_eq!(run(&agent, claim).0.unwrap(), Outcome::Completed);
    assert!(agent.store.events().iter().map(|event| event.place.event_index).eq(0..2 * events.len() as u64));
}

/// Each agent knows the newest event of its own and of those below it, wherever the clock was set meanwhile.
#[test]
fn the_time_of_an_agent_is_that_of_its_newest_event() {
    let mut events = Case::of(vec![vec![call("do", "task")], vec![text("Done.")]]).run().events;
    let mut state = TurnState::default();
    let mut of_worker = 0;
    for (index, event) in events.iter_mut().enumerate() {
        let at = Timestamp::from_millis(1_000 * (index as i64 + 1));
        event.place.timestamp = at;
        state.apply(event);
        assert_eq!(state.last_timestamp, at, "{index}");
        event.place.timestamp = Timestamp::from_millis(1);
        if event.place.session != "default" {
            let tasks = || state.turn.iter().flat_map(|turn| &turn.calls).filter_map(|call| call.task.as_ref());
            assert_eq!(tasks().map(|task| task.worker.last_timestamp).max(), Some(at), "{index}");
            of_worker += 1;
        }
    }
    assert!(of_worker > 5);
    state.apply(&events[0]);
    assert_eq!(state.last_timestamp, Timestamp::from_millis(1_000 * events.len() as i64));
}

/// Only of these it is not known after a crash whether they took effect.
#[test]
fn the_calls_that_have_begun_and_not_ended_are_known() {
    let events = Case::of(vec![vec![call("c1", "fine"), call("c2", "broken")], vec![text("Done.")]]).run().events;
    let mut state = TurnState::default();
    let mut counts = Vec::new();
    for event in &events {
        state.apply(event);
        let running = state.running("orchestrator");
        if let Body::Tool { tool_call_id, .. } = &event.body {
            assert!(running.iter().all(|(agent, call)| *agent == "orchestrator" && call.id != *tool_call_id));
        }
        counts.push(running.len());
    }
    counts.dedup();
    assert_eq!(counts, [0, 1, 2, 1, 0]);
}

/// The program through which the user writes makes the calls of its own tools. All others are made here.
#[test]
fn a_program_makes_the_calls_of_its_own_tools_and_no_others() {
    use ken_types::ops::store::{PROGRAM_TOOL, PROGRAM_TOOLS};
    let name = |name: &str| format!("{PROGRAM_TOOL}{name}");
    let tool = json!({"name": name("open"), "description": "", "parameters": {}});
    let calls = vec![call("c1", "fine"), call("c2", &name("open")), call("c3", &name("other"))];
    let mut case = Case::of(vec![calls, vec![text("Not asked.")]]);
    case.claim.context = Some(json!({PROGRAM_TOOLS: [tool]}));
    let ended = case.run();
    assert_eq!((ended.ran, ended.settled.outcome), (vec!["c1".to_owned()], Outcome::Completed));
    let calls = ended.settled.result.unwrap().calls;
    assert_eq!(calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect::<Vec<_>>(), [("c2", "open")]);
}
