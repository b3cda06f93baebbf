use std::time::{Duration, Instant};

use ken_approval::Request;
use ken_client::chat::{Prompt, Session};
use ken_types::{Code, Error};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;
use ratatui_textarea::{Input, Key};
use serde_json::{Value, json};

use super::view;
use crate::input::Event;
use crate::message::{Call, Effect, Message, Readiness, Selector};
use crate::model::{Model, Overlay};

/// A state with helpers that send it messages and read the screen.
struct Client {
    model: Model,
    now: Instant,
    effects: Vec<Effect>,
}

impl Client {
    fn new() -> Client {
        let now = Instant::now();
        let (model, effects) = Model::new(Selector::Fresh(None), now);
        Client { model, now, effects }
    }

    /// Returns a client with an open session that has one exchange.
    fn opened() -> Client {
        let mut client = Client::new();
        let name = Some("nightly".to_owned());
        let session = Session { name, ..session("tui-2027-02-03T04-05-06-789Z-0f3c9a1e", false) };
        client.update(Message::Opened(Ok(session)));
        let page = json!({"exchanges": [{"submissionId": "s1", "status": "completed",
            "prompt": {"text": "Do the tests pass?"},
            "activities": [{"id": "s1:operation:1", "kind": "operation", "name": "prompt", "status": "completed"},
                {"id": "s1:tool:c1", "kind": "tool", "name": "run_tests", "status": "completed", "durationMs": 1710}],
            "assistant": {"text": "Two **fail**:\n\n| test | why |\n|---|---|\n| chat | 日本語 |\n\n```rust\nlet x = 1;\n```"}}],
            "stream": {"nextOffset": "0000000000000000_0000000000000021"}, "page": {"before": "Q2x"}});
        client.update(Message::Page { epoch: 1, older: false, page: Ok(page) });
        client
    }

    fn update(&mut self, message: Message) {
        let effects = self.model.update(message, self.now);
        self.effects.extend(effects);
    }

    fn events(&mut self, events: &[Value]) {
        self.update(Message::Stream { epoch: 1, events: events.to_vec() });
    }

    fn type_text(&mut self, text: &str) {
        text.chars().for_each(|c| self.key(Key::Char(c)));
    }

    fn key(&mut self, key: Key) {
        self.press(Input { key, ..Input::default() });
    }

    fn control(&mut self, letter: char) {
        self.press(Input { key: Key::Char(letter), ctrl: true, ..Input::default() });
    }

    fn press(&mut self, input: Input) {
        self.update(Message::Terminal(Event::Key(input)));
    }

    fn type_line(&mut self, text: &str) {
        self.type_text(text);
        self.key(Key::Enter);
    }

    /// Sends a line. The gateway accepts it.
    fn send_line(&mut self, text: &str, submission: &str) {
        self.type_line(text);
        let (id, _) = self.sent().last().unwrap();
        let answer = json!({"submissionId": submission,
            "contextUsage": {"usedTokens": 24_576, "capacityTokens": 98_304, "modelSpecifier": "openai/gpt-x"}});
        self.update(Message::Sent { id, answer: Ok(answer) });
    }

    fn draw(&mut self, columns: u16, rows: u16) -> (Vec<String>, Option<Position>) {
        let area = Rect::new(0, 0, columns, rows);
        let mut buffer = Buffer::empty(area);
        let cursor = view(&mut self.model, area, &mut buffer);
        let line = |y| {
            let mut skip = 0;
            let mut line = String::new();
            for x in 0..columns {
                let symbol = buffer[(x, y)].symbol();
                if skip == 0 {
                    line.push_str(symbol);
                }
                skip = std::cmp::max(skip, crate::wrap::width(symbol)).saturating_sub(1);
            }
            line.trim_end().to_owned()
        };
        ((0..rows).map(line).collect(), cursor)
    }

    fn sees(&mut self, text: &str) -> bool {
        self.draw(100, 40).0.join("\n").contains(text)
    }

    fn count(&self, is_meant: fn(&Effect) -> bool) -> usize {
        self.effects.iter().filter(|effect| is_meant(effect)).count()
    }

    /// The messages that were sent, with their numbers.
    fn sent(&self) -> impl Iterator<Item = (u64, &Prompt)> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Call(Call::Send { id, prompt }) => Some((*id, prompt.as_ref())),
            _ => None,
        })
    }

    fn sends(&self) -> Vec<&str> {
        self.sent().map(|(_, prompt)| prompt.text.as_str()).collect()
    }

    fn decisions(&self) -> usize {
        self.count(|effect| matches!(effect, Effect::Call(Call::Decide { .. })))
    }
}

fn session(id: &str, created: bool) -> Session {
    Session { id: id.to_owned(), name: None, created, workspace: None }
}

fn event(kind: &str, fields: Value) -> Value {
    let mut event = json!({"type": kind, "submissionId": "s2", "session": "default"});
    for (name, value) in fields.as_object().unwrap() {
        event[name] = value.clone();
    }
    event
}

fn delta(text: &str) -> Value {
    event("text_delta", json!({"text": text}))
}

fn message_end(text: &str) -> Value {
    let message = json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
    event("message_end", json!({"message": message}))
}

fn settled(outcome: &str) -> Value {
    event("submission_settled", json!({"outcome": outcome}))
}

/// Returns a client during a turn with thinking, a tool, an approval, streamed text, a queue and a draft.
fn busy() -> Client {
    let mut client = Client::opened();
    client.send_line("Mend them", "s2");
    client.events(&[
        event("operation_start", json!({"operationKind": "prompt"})),
        event("thinking_start", json!({})),
        event("thinking_delta", json!({"delta": "The first test waits for a port."})),
        event("thinking_end", json!({"content": "The first test waits for a port."})),
        event("tool_start", json!({"toolName": "shell", "toolCallId": "c2", "args": {"command": "cargo test"}})),
        event(
            "tool",
            json!({"toolName": "shell", "toolCallId": "c2", "isError": true, "durationMs": 12_400,
            "result": {"content": [{"type": "text", "text": "1\n2\n3\n4\n5\n6"}]}}),
        ),
        event("tool_start", json!({"toolName": "edit", "toolCallId": "c3", "args": {"path": "src/main.rs"}})),
        event("approval_requested", json!({"requestId": "apr_1", "actionType": "file.edit", "risk": "medium"})),
        delta("I change **one** li"),
    ]);
    client.update(Message::Approval(record()));
    client.type_line("and then deploy");
    client.type_text("a draft");
    client.now += Duration::from_secs(75);
    client.update(Message::Tick);
    client
}

fn record() -> Box<Request> {
    let record = json!({"request": {"id": "apr_1", "actionType": "file.edit", "summary": "Edit src/main.rs", "risk": "medium",
        "target": "repos/site", "reason": "The port is fixed.", "expiresAt": "2027-02-03T04:20:06.789Z",
        "metadata": {"tool": "edit_file", "action": {"argv": ["apply", "-"], "cwd": "/work"}, "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-port 1\n+port 0"}},
        "status": "pending", "requestId": "apr_1"});
    Box::new(Request::of(&record).unwrap())
}

/// Compares with the screens beside this file. KEN_SCREENS=write writes them again.
#[track_caller]
fn is_screen(client: &mut Client, name: &str, columns: u16, rows: u16) {
    let (lines, _) = client.draw(columns, rows);
    let shown = lines.join("\n") + "\n";
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/view/screens/{name}-{columns}x{rows}.txt"));
    if std::env::var("KEN_SCREENS").is_ok_and(|value| value == "write") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &shown).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown == expected, "{name} {columns}x{rows} is\n{shown}\nand not\n{expected}");
}

const SIZES: [(u16, u16); 3] = [(80, 24), (200, 60), (40, 12)];

#[test]
fn screens() {
    type Opening = fn(&mut Client);
    let opened: [(&str, Opening); 4] = [
        ("pane", |client| client.control('s')),
        ("approval", |client| {
            client.key(Key::F(2));
            client.update(Message::Approval(record()));
        }),
        ("palette", |client| client.control('p')),
        ("help", |client| client.key(Key::F(1))),
    ];
    for (columns, rows) in SIZES {
        is_screen(&mut Client::new(), "start", columns, rows);
        is_screen(&mut Client::opened(), "resumed", columns, rows);
        is_screen(&mut busy(), "busy", columns, rows);
        for (name, open) in opened {
            let mut client = busy();
            open(&mut client);
            is_screen(&mut client, name, columns, rows);
        }
    }
}

/// Content that does not fit on a small screen can be scrolled to, and the keys for a decision are always visible.
#[test]
fn windows_on_a_small_screen_are_read_whole() {
    let mut client = busy();
    client.key(Key::F(1));
    let first = client.draw(40, 12).0.join("\n");
    assert!(first.contains("Enter") && !first.contains("@ "), "{first}");
    client.update(Message::Wheel(100));
    let last = client.draw(40, 12).0.join("\n");
    assert!(last.contains("@ "), "{last}");
    client.key(Key::Esc);
    assert!(!client.draw(40, 12).0.join("\n").contains("Help"));

    client.key(Key::F(2));
    client.update(Message::Approval(record()));
    let top = client.draw(40, 12).0.join("\n");
    for text in ["↓ more", "a approve once", "s for the session", "d deny", "Esc later"] {
        assert!(top.contains(text), "{text}: {top}");
    }
    client.update(Message::Wheel(100));
    let end = client.draw(40, 12).0.join("\n");
    assert!(end.contains("+port 0") && end.contains("d deny") && !end.contains("more"), "{end}");
    // Of a long reason, the end with the cursor is shown.
    client.key(Key::Char('d'));
    client.type_text("a reason that is longer than the row, to its last word");
    let (lines, cursor) = client.draw(40, 12);
    let at = cursor.unwrap();
    let row = &lines[usize::from(at.y)];
    assert!(row.contains("deny, because: ") && row.contains("last word"), "{row}");
    assert!(at.x < 39, "{at}");
    client.key(Key::Esc);
    client.key(Key::Esc);

    client.control('s');
    let top = client.draw(40, 12).0.join("\n");
    assert!(top.contains("↓ more") && !top.contains("Session"), "{top}");
    client.key(Key::PageDown);
    client.draw(40, 12);
    client.key(Key::PageDown);
    let end = client.draw(40, 12).0.join("\n");
    assert!(end.contains("Session") && end.contains("nightly") && !end.contains("↓ more"), "{end}");
    // On a wide screen the whole pane is shown beside the conversation, and the keys scroll the conversation.
    assert!(client.draw(200, 60).0.join("\n").contains("Session"));
    client.key(Key::PageUp);
    client.control('s');
    assert!(!client.draw(40, 12).0.join("\n").contains("Session"));
}

#[test]
fn the_wheel_moves_in_a_list_and_the_search_says_what_it_does_not_find() {
    let mut client = Client::opened();
    client.control('p');
    client.update(Message::Wheel(2));
    client.key(Key::Enter);
    assert_eq!(client.sends(), ["/new"], "the third command");
    client.control('f');
    client.type_line("nowhere");
    assert!(client.sees("searching the older messages"));
    client.update(Message::Page { epoch: 1, older: true, page: Ok(json!({"exchanges": [], "page": {}})) });
    assert!(client.sees("not found further up"));
    client.key(Key::Down);
    assert!(client.sees("not found further down"));
    client.key(Key::Backspace);
    assert!(client.sees("Enter up"));
}

#[test]
fn a_message_that_comes_back_from_the_queue_keeps_what_is_attached_already() {
    let file = |name: &str| {
        Message::Attached(Ok(crate::message::Attachment {
            name: name.to_owned(),
            content: crate::message::Content::Text("text".to_owned()),
        }))
    };
    let mut client = busy();
    client.control('u');
    client.update(file("new.txt"));
    client.key(Key::Up);
    assert!(client.sees("› and then deploy"));
    assert!(client.sees("[new.txt]"));
}

/// Somebody types faster than the session opens.
#[test]
fn commands_and_messages_that_are_typed_before_the_session_is_there_go_to_it_in_their_order() {
    let mut client = Client::new();
    for line in ["first", "/new", "second"] {
        client.type_line(line);
        assert_eq!(client.sees("/new runs as soon as the session is there"), line == "/new");
    }
    assert!(client.sends().is_empty());
    client.update(Message::Opened(Ok(session("one", true))));
    let sent = |client: &Client| {
        let own = client.sent().filter(|(_, prompt)| prompt.workflow.is_none());
        let shown = |prompt: &Prompt| format!("{}: {}", prompt.session.as_ref().unwrap(), prompt.text);
        own.map(|(id, prompt)| (id, shown(prompt))).collect::<Vec<_>>()
    };
    let before = sent(&client);
    let texts: Vec<&str> = before.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["one: first", "one: /new"]);
    let accepted = json!({"submissionId": "s9"});
    client.update(Message::Sent { id: before[0].0, answer: Ok(accepted) });
    let opened = json!({"session": {"id": "two", "created": true}, "result": {"command": "new", "text": "Started session two."}});
    client.update(Message::Sent { id: before[1].0, answer: Ok(opened) });
    let greetings = client.sent().filter(|(_, prompt)| prompt.workflow.is_some());
    for id in greetings.map(|(id, _)| id).collect::<Vec<_>>() {
        client.update(Message::Sent { id, answer: Ok(json!({"submissionId": "s0"})) });
    }
    assert_eq!(sent(&client).last().map(|(_, text)| text.as_str()), Some("two: second"));
}

#[test]
fn every_size_can_be_drawn_and_the_cursor_is_on_the_screen() {
    let mut client = busy();
    for columns in 1..60 {
        for rows in 1..20 {
            let (_, cursor) = client.draw(columns, rows);
            assert!(cursor.is_none_or(|at| at.x < columns && at.y < rows), "{columns}x{rows}: {cursor:?}");
        }
    }
}

#[test]
fn control_c_cancels_first_and_a_draft_can_be_found_again() {
    let mut client = busy();
    let control_c = |client: &mut Client| client.control('c');
    let quits = |client: &Client| client.count(|effect| matches!(effect, Effect::Quit(0))) > 0;
    control_c(&mut client);
    let cancels = client.count(|effect| matches!(effect, Effect::Call(Call::Cancel { .. })));
    assert!(!quits(&client) && cancels > 0);
    client.events(&[settled("aborted")]);
    client.type_text(" more");
    control_c(&mut client);
    assert_eq!(client.model.draft_text(), "");
    client.key(Key::Char('x'));
    control_c(&mut client);
    assert!(!quits(&client), "another key came between");
    control_c(&mut client);
    assert!(quits(&client));
    let remembered: Vec<&String> = client
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Remember { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(remembered, ["Mend them", "and then deploy", "a draft more", "x", "and then deploy"]);
}

#[test]
fn no_typed_key_and_no_paste_decides_before_the_dialog_is_open() {
    let mut client = busy();
    client.type_text("a s d");
    client.update(Message::Terminal(Event::Paste("a\na\n".to_owned())));
    assert_eq!(client.decisions(), 0);
    client.key(Key::F(2));
    client.update(Message::Terminal(Event::Paste("a".to_owned())));
    client.key(Key::Enter);
    assert_eq!(client.decisions(), 0);
    client.type_line("das it is");
    let decision = client.effects.iter().find_map(|effect| match effect {
        Effect::Call(Call::Decide { request, decision }) => {
            Some((request.as_str(), decision.approved, decision.reason.as_deref()))
        }
        _ => None,
    });
    assert_eq!(decision, Some(("apr_1", false, Some("as it is"))));
    client.events(&[event("approval_decided", json!({"requestId": "apr_1", "status": "denied"}))]);
    assert!(client.model.approvals.is_empty() && client.sees("✗ approval: Edit src/main.rs"));
}

/// The row of a request is there before the request itself.
#[test]
fn a_request_is_opened_as_soon_as_its_row_is_there() {
    let mut client = Client::opened();
    client.send_line("Mend them", "s2");
    let asked = |id: &str| json!({"requestId": id, "actionType": "file.edit", "risk": "medium"});
    client.events(&[event("approval_requested", asked("apr_1")), event("approval_requested", asked("apr_2"))]);
    assert!(client.sees("F2 decides"));
    client.key(Key::F(2));
    client.type_text("as");
    assert!(client.decisions() == 0 && client.sees("is being loaded"));
    client.update(Message::Approval(record()));
    assert!(client.sees("+port 0") && client.sees("a approve once"));
    client.type_text("a");
    assert_eq!(client.decisions(), 1);
    // What is decided before it has been read is no request any more, and the other one still is.
    for (id, left) in [("apr_2", 1), ("apr_1", 0)] {
        client.events(&[event("approval_decided", json!({"requestId": id, "status": "denied", "decidedBy": "ada"}))]);
        client.update(Message::Approval(record()));
        assert_eq!(client.model.approvals.len(), left, "{id}");
    }
}

/// The list of requests omits long diffs, and an answer that arrives late must not open a decided request again.
#[test]
fn only_what_is_here_as_a_whole_can_be_approved() {
    let mut client = busy();
    client.key(Key::F(2));
    client.type_text("as");
    assert!(client.decisions() == 0 && client.sees("is being loaded") && !client.sees("a approve once"));
    client.update(Message::Approval(record()));
    assert!(client.sees("a approve once"));
    client.type_text("a");
    assert_eq!(client.decisions(), 1);
    client.events(&[event(
        "approval_decided",
        json!({"requestId": "apr_1", "status": "approved", "decidedBy": "ada\u{202e}"}),
    )]);
    assert!(client.sees("approved by ada<U+202E>"));
    client.update(Message::Approval(record()));
    assert!(client.model.approvals.is_empty() && client.sees("approved by ada"));
}

/// A request is approved only where it can be read, also after the window has become smaller.
/// A key that was meant for the dialog decides nothing any more, and does not go into the draft or send it.
#[test]
fn a_request_that_was_decided_elsewhere_stays_until_a_key_closes_it() {
    let sent = |client: &Client| client.count(|effect| matches!(effect, Effect::Call(Call::Send { .. })));
    for first in ["", "dno"] {
        let mut client = busy();
        let before = sent(&client);
        client.type_text("my draft");
        client.key(Key::F(2));
        client.update(Message::Approval(record()));
        client.type_text(first);
        let fields = json!({"requestId": "apr_1", "status": "denied", "decidedBy": "ada"});
        client.events(&[event("approval_decided", fields)]);
        assert!(client.sees("the request was denied by ada · any key closes"), "{first}");
        client.key(Key::Enter);
        assert!(!client.sees("any key closes") && client.sees("my draft"), "{first}");
        assert_eq!((sent(&client), client.decisions()), (before, 0), "{first}");
        client.type_text(" goes on");
        assert!(client.sees("my draft goes on"), "{first}");
    }
}

#[test]
fn what_the_screen_has_no_room_for_cannot_be_approved() {
    for (columns, rows, is_readable) in
        [(1, 1, false), (20, 4, false), (15, 20, false), (16, 5, true), (80, 5, true), (30, 6, true), (100, 40, true)]
    {
        let mut client = busy();
        client.key(Key::F(2));
        client.update(Message::Approval(record()));
        assert!(client.sees("a approve once"));
        let screen = client.draw(columns, rows).0.join("\n");
        let has_request = screen.contains("Edit") && screen.contains("a approve");
        assert_eq!(has_request, is_readable, "{columns}x{rows}: {screen}");
        client.type_text("a");
        assert_eq!(client.decisions(), usize::from(is_readable), "{columns}x{rows}: {screen}");
        if !is_readable {
            assert!(client.sees("a approve once"));
            client.draw(columns, rows);
            client.type_text("d");
            client.key(Key::Enter);
            assert_eq!(client.decisions(), 1, "{columns}x{rows}");
        }
    }
}

/// A cluster of letters that is wider than the window is not drawn.
#[test]
fn a_letter_that_is_wider_than_the_window_cannot_be_approved() {
    let mut client = busy();
    client.key(Key::F(2));
    let mut wide = record();
    wide.summary = format!("Edit {}", "\u{1100}".repeat(40));
    client.update(Message::Approval(wide));
    for (columns, decisions) in [(80, 0), (100, 1)] {
        let screen = client.draw(columns, 24).0.join("\n");
        assert_eq!(screen.contains("too small a window"), decisions == 0, "{screen}");
        client.type_text("a");
        assert_eq!(client.decisions(), decisions, "{screen}");
    }
}

#[test]
fn a_page_of_a_request_passes_over_no_line() {
    for rows in 5..12 {
        let mut client = busy();
        client.key(Key::F(2));
        client.update(Message::Approval(record()));
        let mut shown = String::new();
        for _ in 0..40 {
            shown.push_str(&client.draw(40, rows).0.join("\n"));
            client.key(Key::PageDown);
        }
        let Overlay::Approval(dialog) = &client.model.overlay else { panic!("{shown}") };
        let lines = &dialog.drawn.as_ref().unwrap().lines;
        assert!(lines.len() > 8);
        for line in lines.iter().map(Line::to_string) {
            assert!(shown.contains(line.trim()), "{rows}: {line:?}");
        }
    }
}

/// A part of the diff is missing for good, or all of a long one has arrived.
#[test]
fn the_keys_of_the_dialog_say_what_can_be_decided() {
    for (is_cut, digest, sees, not) in [
        (true, None, "cannot be shown", "a approve"),
        (false, Some("d"), "a approve once · d deny", "for the session"),
        (false, None, "s for the session", "cannot be shown"),
    ] {
        let mut client = busy();
        client.key(Key::F(2));
        let mut request = record();
        (request.is_cut, request.digest) = (is_cut, digest.map(str::to_owned));
        client.update(Message::Approval(request));
        assert!(client.sees(sees) && !client.sees(not), "{sees}");
        client.type_text("s");
        assert_eq!(client.decisions(), usize::from(!is_cut && digest.is_none()), "{sees}");
    }
}

/// Earlier versions recorded the approval of a worker as an event of the worker.
#[test]
fn an_approval_in_an_old_stream_is_shown() {
    let mut client = busy();
    let fields = json!({"requestId": "apr_9", "actionType": "git.push", "risk": "high", "parentSession": "default",
        "session": "task:default:t1"});
    client.events(&[event("approval_requested", fields)]);
    assert!(client.sees("approval: git.push"));
    assert_eq!(
        client.count(|effect| matches!(effect, Effect::Call(Call::Approval { request }) if request == "apr_9")),
        1
    );
}

#[test]
fn a_notification_comes_only_while_nobody_looks() {
    let mut client = busy();
    let notifications = |client: &Client| client.count(|effect| matches!(effect, Effect::Notify(_)));
    assert_eq!(notifications(&client), 0);
    client.update(Message::Terminal(Event::Focus(false)));
    client.events(&[event(
        "approval_requested",
        json!({"requestId": "apr_2", "actionType": "git.push", "risk": "high"}),
    )]);
    assert_eq!(notifications(&client), 1);
    // The end of a turn may arrive before the reply to its request. The person is still notified exactly once.
    let mut quick = Client::opened();
    quick.update(Message::Terminal(Event::Focus(false)));
    quick.type_line("quick");
    quick.events(&[event("operation_start", json!({})), settled("completed")]);
    assert_eq!(notifications(&quick), 0);
    quick.update(Message::Sent { id: 1, answer: Ok(json!({"submissionId": "s2"})) });
    assert_eq!(notifications(&quick), 1);
}

#[test]
fn a_prompt_that_is_refused_comes_back() {
    let mut client = Client::opened();
    client.type_line("hello");
    let refused = ken_types::Error::new(ken_types::Code::Conflict, "the session is archived");
    client.update(Message::Sent { id: 1, answer: Err(refused) });
    assert_eq!(client.model.draft_text(), "hello");
    assert!(client.sees("! the session is archived") && !client.sees("› hello\n\n"));
}

/// The text of a prompt comes back only where it was written. A command is answered wherever one is by then.
#[test]
fn the_answer_to_a_command_is_shown_in_the_next_session_too() {
    for leaves in [false, true] {
        let mut client = Client::opened();
        client.type_line("/compact");
        client.type_line("/rename x");
        if leaves {
            client.update(Message::Opened(Ok(session("tui-other", false))));
        }
        let answer = json!({"result": {"text": "Twelve turns became a summary."}});
        client.update(Message::Sent { id: 1, answer: Ok(answer) });
        client.update(Message::Sent { id: 2, answer: Err(Error::new(Code::Conflict, "a turn is running")) });
        assert!(client.sees("Twelve turns became a summary.") && client.sees("! a turn is running"), "{leaves}");
        assert_eq!(client.model.draft_text(), "", "a command is in the history, and is not typed again");
    }
}

#[test]
fn events_that_come_before_the_answer_to_the_request_stand_below_the_prompt() {
    let mut client = Client::opened();
    client.type_line("quick");
    client.events(&[event("operation_start", json!({})), delta("An answer.")]);
    client.update(Message::Sent { id: 1, answer: Ok(json!({"submissionId": "s2"})) });
    client.events(&[delta(" All."), message_end("An answer. All."), settled("completed")]);
    let lines = client.draw(60, 30).0.join("\n");
    assert!(lines.contains("› quick\n\nAn answer. All.\n"), "{lines}");
    assert_eq!(lines.matches("An answer").count(), 1);
    assert!(!client.model.is_busy());
}

#[test]
fn an_interrupted_message_that_goes_on_is_shown_once() {
    let resumed = || event("submission_resumed", json!({}));
    for (interrupted, whole) in [
        // The agent stores the end of an interrupted message after it has started again.
        (vec![delta("One, "), resumed(), message_end("One, ")], "One, two."),
        (vec![delta("One."), resumed(), message_end("One.")], "One."),
        (vec![delta("One, "), resumed(), message_end("One, "), resumed(), message_end("One, two")], "One, two."),
        (vec![delta("One, "), message_end("One, "), resumed()], "One, two."),
    ] {
        let mut client = Client::opened();
        client.send_line("tell", "s2");
        client.events(&interrupted);
        let lines = client.draw(60, 40).0.join("\n");
        assert_eq!(lines.matches("One").count(), 1, "{lines}");
        client.events(&[delta(whole), message_end(whole), settled("completed")]);
        let lines = client.draw(60, 40).0.join("\n");
        assert!(lines.matches("One").count() == 1 && lines.contains(whole), "{lines}");
        assert!(client.sees("resumed after an interruption"), "{lines}");
    }
}

#[test]
fn an_interrupted_thought_that_is_thought_again_is_shown_once() {
    let resumed = || event("submission_resumed", json!({}));
    let thinks = |words: &str| event("thinking_delta", json!({ "delta": words }));
    let end = |words: &str| event("thinking_end", json!({ "content": words }));
    for interrupted in [
        // The agent stores the end of an interrupted thought after it has started again.
        vec![thinks("I have to"), resumed(), end("I have to")],
        vec![thinks("I have"), resumed(), end("I have"), thinks("I have to"), resumed(), end("I have to")],
        vec![thinks("I have to"), resumed(), end("I have to"), thinks("I have to"), resumed(), end("I have to")],
        vec![thinks("I have to"), end("I have to"), resumed()],
        vec![thinks("I have to"), end("I have to"), delta("One, "), resumed(), message_end("One, ")],
        vec![delta("One, "), thinks("I have to"), resumed(), end("I have to"), message_end("One, ")],
    ] {
        let mut client = Client::opened();
        client.send_line("tell", "s2");
        client.events(&interrupted);
        let lines = client.draw(60, 40).0.join("\n");
        assert_eq!(lines.matches("I have").count(), 1, "{lines}");
        client.events(&[thinks("I have to "), thinks("count."), end("I have to count.")]);
        client.events(&[delta("One, two."), message_end("One, two."), settled("completed")]);
        let lines = client.draw(60, 40).0.join("\n");
        assert!(lines.matches("I have").count() == 1 && lines.contains("I have to count."), "{lines}");
        assert!(lines.matches("One").count() == 1 && lines.contains("One, two."), "{lines}");
    }
    // Thoughts before and after a call are two.
    let mut client = Client::opened();
    client.send_line("tell", "s2");
    let call = |kind: &str| event(kind, json!({"toolName": "count", "toolCallId": "c1"}));
    client.events(&[
        thinks("So"),
        end("So"),
        call("tool_start"),
        call("tool"),
        thinks("So"),
        end("So"),
        settled("completed"),
    ]);
    let lines = client.draw(60, 40).0.join("\n");
    assert_eq!(lines.matches("So").count(), 2, "{lines}");
}

#[test]
fn a_prompt_is_shown_once_whether_the_stream_has_it_or_not() {
    let prompt = |kind: &str| {
        let message = json!({"role": "user", "content": [{"type": "text", "text": "Mend them"}]});
        event(kind, json!({"message": message}))
    };
    for before in [Vec::new(), vec![prompt("message_start"), prompt("message_end")]] {
        let mut client = Client::opened();
        client.send_line("Mend them", "s2");
        client.events(&before);
        client.events(&[delta("Done."), message_end("Done."), settled("completed")]);
        let lines = client.draw(60, 40).0.join("\n");
        assert_eq!(lines.matches("Mend them").count(), 1, "{lines}");
        assert!(lines.contains("› Mend them\n\nDone."), "{lines}");
    }
}

#[test]
fn thoughts_stand_before_the_text_of_their_message() {
    let thought = json!({"type": "thinking", "thinking": "A second thought."});
    let text = json!({"type": "text", "text": "Quokkas sleep."});
    // Streams of earlier versions have the thoughts behind the text.
    for content in [[thought.clone(), text.clone()], [text, thought]] {
        let mut client = Client::opened();
        client.send_line("tell", "s2");
        client.events(&[
            event("thinking_start", json!({})),
            event("thinking_end", json!({"content": "A first thought."})),
            delta("Quokkas "),
            event("thinking_start", json!({})),
            event("thinking_delta", json!({"delta": "A second "})),
        ]);
        let order = |client: &mut Client, words: [&str; 3]| {
            let lines = client.draw(60, 40).0.join("\n");
            let places = words.map(|word| lines.find(word).unwrap_or_else(|| panic!("{word}: {lines}")));
            assert!(places.is_sorted(), "{lines}");
            assert!(words.iter().all(|word| lines.matches(word).count() == 1), "{lines}");
        };
        order(&mut client, ["A first", "A second", "Quokkas"]);
        client.events(&[
            event("thinking_end", json!({"content": "A second thought."})),
            delta("sleep."),
            event("message_end", json!({"message": {"role": "assistant", "content": content}})),
            settled("completed"),
        ]);
        order(&mut client, ["A first thought.", "A second thought.", "Quokkas sleep."]);
    }
}

#[test]
fn a_failed_turn_of_the_history_says_why() {
    let mut client = Client::opened();
    let exchange = |id: &str, error: Value| json!({"submissionId": id, "status": "failed", "prompt": {"text": "Go"}, "error": error});
    let why = json!({"code": "empty_answer", "message": "The model gave an empty answer twice."});
    // Exchanges of earlier versions have no reason.
    let page = json!({"exchanges": [exchange("e1", why), exchange("e2", Value::Null)], "page": {}});
    client.update(Message::Page { epoch: 1, older: true, page: Ok(page) });
    assert!(client.sees("The model gave an empty answer twice.") && client.sees("the turn failed"));
}

#[test]
fn a_worker_shows_what_it_does_beside_its_task() {
    let mut client = Client::opened();
    client.send_line("research", "s2");
    client.events(&[
        event("tool_start", json!({"toolName": "task", "toolCallId": "c1", "args": {}})),
        event("task_start", json!({"taskId": "t1", "agent": "research-worker", "prompt": "Find it"})),
        event(
            "tool_start",
            json!({"toolName": "web_research", "parentSession": "default", "session": "task:default:t1"}),
        ),
        event("text_delta", json!({"text": "hidden", "parentSession": "default", "session": "task:default:t1"})),
    ]);
    assert!(client.sees("• research-worker  web_research") && !client.sees("hidden"));
    client.events(&[event(
        "task",
        json!({"taskId": "t1", "agent": "research-worker", "isError": false, "durationMs": 61_000, "result": "Found."}),
    )]);
    assert!(client.sees("✓ research-worker  1:01 min") && client.sees("  Found."));
    // The end of the call has the result as the agent is shown it, between marks.
    let marked = json!({"content": [{"type": "text", "text": "--- begin 3031 Found."}]});
    client
        .events(&[event("tool", json!({"toolName": "task", "toolCallId": "t1", "isError": false, "result": marked}))]);
    assert!(client.sees("  Found.") && !client.sees("--- begin"));
}

#[test]
fn a_prompt_of_another_client_is_fetched() {
    let mut client = Client::opened();
    client.effects.clear();
    client.events(&[event("operation_start", json!({})), delta("To somebody else.")]);
    assert!(client.count(|effect| matches!(effect, Effect::Call(Call::Page { before: None, .. }))) > 0);
    let page =
        json!({"exchanges": [{"submissionId": "s2", "status": "running", "prompt": {"text": "From elsewhere"}}]});
    client.update(Message::Page { epoch: 1, older: false, page: Ok(page) });
    let lines = client.draw(60, 40).0.join("\n");
    assert!(lines.contains("› From elsewhere\n\nTo somebody else."), "{lines}");
}

#[test]
fn what_comes_for_a_session_that_was_left_is_dropped() {
    let mut client = Client::opened();
    client.update(Message::Stream { epoch: 0, events: vec![delta("stale")] });
    assert!(!client.sees("stale"));
}

#[test]
fn a_session_that_is_deleted_makes_room_for_a_new_one() {
    let mut client = Client::opened();
    client.send_line("hello", "s2");
    client.type_line("queued");
    client.type_line("/rename x");
    let gone = || Error::new(Code::Gone, "the session was deleted for good");
    client.update(Message::StreamEnded { epoch: 1, error: gone() });
    client.update(Message::Sent { id: 2, answer: Err(gone()) });
    let opens = |client: &Client| client.count(|effect| matches!(effect, Effect::Open(Selector::Fresh(_))));
    assert_eq!(opens(&client), 2, "one at the start, one now");
    client.update(Message::Opened(Ok(session("tui-new", true))));
    let lines = client.draw(60, 20).0.join("\n");
    assert!(lines.contains("! the session was deleted for good"), "{lines}");
    assert!(!lines.contains("tests pass") && !lines.contains("queued"), "{lines}");
    client.type_line("after");
    assert_eq!(client.sent().filter(|(_, prompt)| prompt.session.as_deref() == Some("tui-new")).count(), 1);
}

#[test]
fn a_silent_turn_asks_which_part_is_missing() {
    let mut client = Client::opened();
    let asks = |client: &Client| client.count(|effect| matches!(effect, Effect::Call(Call::Parts)));
    let before = asks(&client);
    client.send_line("hello", "s2");
    client.update(Message::Tick);
    assert_eq!(asks(&client), before);
    client.now += Duration::from_secs(3);
    client.update(Message::Tick);
    assert_eq!(asks(&client), before + 1);
    client.update(Message::Readiness(Readiness { waiting: vec!["model".to_owned()], degraded: Vec::new() }));
    assert!(client.sees("waiting for model 0:03"));
}

#[test]
fn a_provider_that_is_down_is_named_until_it_answers_again() {
    let mut client = Client::opened();
    let degraded = vec!["first: it refuses connections (since 14:02)".to_owned()];
    client.update(Message::Readiness(Readiness { waiting: Vec::new(), degraded }));
    assert!(client.sees("down: first: it refuses connections (since 14:02)"));
    client.update(Message::Readiness(Readiness::default()));
    assert!(!client.sees("down: "));
}

#[test]
fn older_pages_come_when_the_beginning_is_passed() {
    let mut client = Client::opened();
    client.draw(60, 10);
    client.key(Key::PageUp);
    client.key(Key::PageUp);
    let top = client.draw(60, 10).0[0].clone();
    let page_requests = client.count(|effect| matches!(effect, Effect::Call(Call::Page { before: Some(_), .. })));
    assert_eq!((page_requests, top.as_str()), (1, "› Do the tests pass?"));
    let page = json!({"exchanges": [{"submissionId": "s0", "status": "completed", "prompt": {"text": "Earlier"}, "assistant": {"text": "Yes."}}]});
    client.update(Message::Page { epoch: 1, older: true, page: Ok(page) });
    assert_eq!(client.draw(60, 10).0[1], "› Do the tests pass?", "only the blank line before it is new");
    client.key(Key::PageUp);
    assert_eq!(client.draw(60, 10).0[0], "› Earlier");
}

#[test]
fn attachments_go_with_the_prompt() {
    let mut client = Client::opened();
    let content = crate::message::Content::Text("let x = 1;\n".to_owned());
    client.update(Message::Attached(Ok(crate::message::Attachment { name: "a.rs".to_owned(), content })));
    assert!(client.sees("[a.rs]"));
    client.type_line("look");
    assert_eq!(client.sends(), ["look\n\na.rs:\n```\nlet x = 1;\n```"]);
    assert!(client.sees("› look\n  [a.rs]"));
}

fn is_open(client: &Client) -> bool {
    matches!(client.model.overlay, crate::model::Overlay::Completion(_))
}

#[test]
fn a_slash_offers_commands_and_what_is_none_stays_text() {
    let mut client = Client::opened();
    client.key(Key::Char('/'));
    assert!(client.sees("/model [provider/model | default]"));
    client.type_text("mo");
    client.key(Key::Tab);
    assert!(!is_open(&client));
    client.type_text("openai/m");
    assert_eq!(client.model.draft_text(), "/model openai/m");
    client.control('u');
    // A path is no command, and Esc keeps what was typed.
    client.type_text("/etc/hosts is wrong");
    assert!(!is_open(&client));
    assert_eq!(client.model.draft_text(), "/etc/hosts is wrong");
    client.control('u');
    client.type_text("/ne");
    client.key(Key::Esc);
    assert_eq!(client.model.draft_text(), "/ne");
    client.control('u');
    // A whole name is that command, also if another one begins with it.
    client.type_line("/session");
    assert!(client.sees("This is the session"));
    client.key(Key::Char('/'));
    client.key(Key::Backspace);
    assert!(!is_open(&client) && client.model.draft_text().is_empty());
}

#[test]
fn an_at_sign_offers_files_and_attaches_the_chosen_one() {
    let mut client = Client::opened();
    client.type_text("a@b.example and @ma");
    assert!(is_open(&client));
    client.update(Message::Files { paths: vec!["README.md".to_owned(), "src/main.rs".to_owned()], cut: true });
    assert!(client.sees("src/main.rs") && client.sees("The first files"));
    client.key(Key::Enter);
    assert_eq!(client.count(|effect| matches!(effect, Effect::ReadFile(path) if path == "src/main.rs")), 1);
    assert_eq!(client.model.draft_text(), "a@b.example and src/main.rs ");
    // What names no file stays text.
    client.key(Key::Char('@'));
    client.update(Message::Files { paths: vec!["README.md".to_owned()], cut: false });
    client.type_text("vera: hello");
    assert_eq!(client.model.draft_text(), "a@b.example and src/main.rs @vera: hello");
    // Also when the files come after it was typed.
    client.type_text(" @vera");
    assert!(is_open(&client));
    client.update(Message::Files { paths: vec!["README.md".to_owned()], cut: false });
    assert!(!is_open(&client) && client.model.draft_text().ends_with("hello @vera"));
}
