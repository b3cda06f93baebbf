//! The state of the client. `update` applies a message to it and returns the effects to carry out. Nothing here does
//! I/O.

pub(crate) mod approval;
pub(crate) mod block;
pub(crate) mod completion;
pub(crate) mod events;
mod keys;
pub(crate) mod list;
mod pages;
pub(crate) mod transcript;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ken_approval::Kind::{Fact, Risk};
use ken_approval::Request;
use ken_client::chat::{Prompt, Session};
use ken_client::piped::fence_for;
use ken_types::id::Mint;
use ken_types::{Code, Error};
use ratatui::style::Style;
use ratatui_textarea::{CursorMove, TextArea, WrapMode};
use serde_json::Value;

use crate::message::{Attachment, Call, Content, Effect, Message, Preflight, SILENCE_TIMEOUT, Selector};
use approval::Dialog;
use block::{Block, Kind, one_line};
use completion::Completion;
use events::{text, text_at};
use list::{List, Row};
use transcript::{Exchange, Status, Transcript};

/// The workflow name of the first prompt in a new session, by which transcripts omit it.
pub(crate) const PREFLIGHT: &str = "tui.startup-preflight";
const PREFLIGHT_REPORT: &str = "Preflight report:";
const EDITOR_UNDO: usize = 200;
/// The maximum length of a request in its row, in bytes.
const MAX_ROW_BYTES: usize = 16 * 1024;

/// Whether the gateway responds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Connection {
    Starting,
    Connected,
    /// Why a request is being repeated.
    Lost(String),
}

/// A window or row over the conversation that receives the keys.
#[derive(Debug, Default)]
pub(crate) enum Overlay {
    #[default]
    None,
    Palette(List),
    Sessions(List),
    Completion(Completion),
    Search(String),
    Approval(Box<Dialog>),
    /// The path of a file to attach, while it is being typed.
    Attach(String),
    /// The index of the first visible line.
    Help(usize),
}

/// A message that has not been sent yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) text: String,
    pub(crate) attachments: Vec<Attachment>,
    /// The number of the newest command that had no answer yet when it was queued; 0 if there was none.
    after: u64,
}

impl Draft {
    pub(crate) fn new(text: String) -> Draft {
        Draft::with(text, Vec::new())
    }

    pub(crate) fn with(text: String, attachments: Vec<Attachment>) -> Draft {
        Draft { text, attachments, after: 0 }
    }
}

/// The usage of the turns since the session was opened.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Usage {
    pub(crate) model: String,
    pub(crate) context: Option<u64>,
    pub(crate) capacity: Option<u64>,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cost: Option<f64>,
    pub(crate) turns: u64,
}

#[derive(Debug)]
struct InFlight {
    id: u64,
    session: String,
    draft: Draft,
    is_command: bool,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) session: Option<Session>,
    epoch: u64,
    /// Whether the stream is being followed, so that prompts can be sent.
    attached: bool,
    pub(crate) transcript: Transcript,
    pub(crate) editor: TextArea<'static>,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) queue: VecDeque<Draft>,
    /// Whether queued messages are held back until Enter is pressed, as after a cancelled turn.
    pub(crate) held: bool,
    /// Messages that were queued in sessions that have been left since, each with the id of its session.
    left: VecDeque<(String, Draft)>,
    /// Commands that were typed before there was a session, and what was typed after them.
    early: Vec<Draft>,
    in_flight: Vec<InFlight>,
    next_id: u64,
    pub(crate) overlay: Overlay,
    pub(crate) connection: Connection,
    pub(crate) usage: Usage,
    pub(crate) approvals: Vec<Request>,
    /// The parts that are not ready; `None` if this has not been requested yet.
    pub(crate) parts: Option<Vec<String>>,
    pub(crate) degraded: Vec<String>,
    pub(crate) plan: Vec<(bool, String)>,
    pub(crate) pane: bool,
    /// The first visible line of the pane while it replaces the conversation on a narrow screen.
    pub(crate) pane_top: Option<usize>,
    /// A line that disappears at the next key.
    pub(crate) notice: Option<String>,
    older: Option<String>,
    loading_older: bool,
    search_again: Option<String>,
    history: Vec<String>,
    /// The index of the history entry in the editor, and the draft that it replaced.
    browsing: Option<(usize, Draft)>,
    pub(crate) focused: bool,
    pub(crate) now: Instant,
    last_event_at: Instant,
    asked_parts: Option<Instant>,
    cancelling: bool,
    armed: bool,
    preflight: Vec<String>,
    /// That the session was deleted, which is told in the one that takes its place.
    deletion: Option<Error>,
    /// Why the client must end. It is printed after leaving the alternate screen.
    pub(crate) fatal: Option<String>,
    effects: Vec<Effect>,
}

impl Model {
    /// Returns the initial state and the first effects.
    pub(crate) fn new(selector: Selector, now: Instant) -> (Model, Vec<Effect>) {
        let model = Model {
            session: None,
            epoch: 0,
            attached: false,
            transcript: Transcript::default(),
            editor: editor(""),
            attachments: Vec::new(),
            queue: VecDeque::new(),
            early: Vec::new(),
            held: false,
            left: VecDeque::new(),
            in_flight: Vec::new(),
            next_id: 0,
            overlay: Overlay::None,
            connection: Connection::Starting,
            usage: Usage::default(),
            approvals: Vec::new(),
            parts: None,
            degraded: Vec::new(),
            plan: Vec::new(),
            pane: false,
            pane_top: None,
            notice: None,
            older: None,
            loading_older: false,
            search_again: None,
            history: Vec::new(),
            browsing: None,
            focused: true,
            now,
            last_event_at: now,
            asked_parts: None,
            cancelling: false,
            armed: false,
            preflight: Vec::new(),
            deletion: None,
            fatal: None,
            effects: Vec::new(),
        };
        (model, vec![Effect::Log("start"), Effect::Open(selector), Effect::LoadHistory])
    }

    /// Applies a message. Returns the effects to carry out.
    pub(crate) fn update(&mut self, message: Message, now: Instant) -> Vec<Effect> {
        self.now = now;
        match message {
            Message::Terminal(event) => self.input(event),
            Message::Wheel(lines) => self.wheel(lines),
            Message::Resized => self.effects.push(Effect::Log("resize")),
            Message::Preflight(row) => self.preflight_row(row),
            Message::Opened(Ok(session)) => self.opened(session, None),
            Message::Opened(Err(error)) if self.session.is_some() => self.notice = Some(sentence(&error)),
            Message::Opened(Err(error)) => {
                self.fatal = Some(sentence(&error));
                self.effects.push(Effect::Quit(1));
            }
            Message::Stream { epoch, events } if epoch == self.epoch => self.stream(&events),
            Message::StreamEnded { epoch, error } if epoch == self.epoch => {
                self.problem(&error);
                if error.code == Code::Gone {
                    self.forget_deleted(error, self.session_id());
                }
            }
            Message::Page { epoch, older, page } if epoch == self.epoch => self.page(older, page),
            Message::Stream { .. } | Message::StreamEnded { .. } | Message::Page { .. } => {}
            Message::Sent { id, answer } => self.sent(id, answer),
            Message::Trouble(reason) => {
                if self.connection == Connection::Connected {
                    self.effects.push(Effect::Log("connection.lost"));
                }
                self.connection = Connection::Lost(one_line(&reason));
            }
            Message::Sessions(answer) => self.sessions(answer),
            Message::Approvals(records) => {
                let id = self.session.as_ref().map(|session| session.id.clone());
                let of_session = |request: &Request| request.session.is_none() || request.session == id;
                for request in records.iter().filter_map(Request::of).filter(of_session) {
                    self.store_request(request);
                }
            }
            Message::Approval(request) => self.whole_request(*request),
            Message::Decided { request, answer } => self.decided(&request, answer),
            Message::Readiness(readiness) => {
                self.parts = Some(readiness.waiting);
                self.degraded = readiness.degraded;
            }
            Message::Failed { what, error } => self.notice = Some(format!("{what}: {}", sentence(&error))),
            Message::Edited(Some(text)) => self.set_editor(keys::pasted(&text).trim_end_matches('\n')),
            Message::Edited(None) => self.notice = Some("the editor changed nothing".to_owned()),
            Message::Files { paths, cut } => self.files_listed(paths, cut),
            Message::Attached(Ok(attachment)) => self.attachments.push(attachment),
            Message::Attached(Err(error)) => self.notice = Some(sentence(&error)),
            Message::History(entries) => self.history = entries,
            Message::Coloured => self.transcript.draw_colours(),
            Message::Tick => self.tick(),
        }
        std::mem::take(&mut self.effects)
    }

    /// Returns after what time the screen changes without a message, if it does.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        self.is_busy().then_some(Duration::from_secs(1))
    }

    fn tick(&mut self) {
        let silent = self.now.saturating_duration_since(self.last_event_at) >= SILENCE_TIMEOUT;
        let asked_recently =
            self.asked_parts.is_some_and(|asked| self.now.saturating_duration_since(asked) < SILENCE_TIMEOUT);
        if self.is_busy() && silent && !asked_recently && self.approvals.is_empty() {
            self.asked_parts = Some(self.now);
            self.effects.push(Effect::Call(Call::Parts));
        }
    }

    /// Whether a turn is running or waiting.
    pub(crate) fn is_busy(&self) -> bool {
        self.open_exchange().is_some()
    }

    /// Returns the oldest exchange that has not ended, usually the running turn.
    pub(crate) fn open_exchange(&self) -> Option<&Exchange> {
        let newest = self.transcript.iter().rev().take(300);
        let mut open = newest.filter(|exchange| exchange.is_open());
        let last = open.next()?;
        Some(open.last().unwrap_or(last))
    }

    pub(crate) fn draft_text(&self) -> String {
        self.editor.lines().join("\n")
    }

    fn set_editor(&mut self, text: &str) {
        self.editor = editor(text);
    }

    fn preflight_row(&mut self, row: Preflight) {
        let state = if row.is_problem { block::State::Failed } else { block::State::Done };
        let block = Block::activity(&row.text, &format!("preflight:{}", self.preflight.len()), state);
        self.preflight.push(row.text);
        match self.transcript.last_mut() {
            Some(last) if last.submission.is_none() => last.blocks.push(block),
            _ => self.add(block),
        }
    }

    /// Shows a session: a new one from its start, any other from its newest page. `command` is the number of the command
    /// that led to it.
    fn opened(&mut self, session: Session, command: Option<u64>) {
        self.leave(&session.id, command);
        self.connection = Connection::Connected;
        let is_first = self.session.is_none();
        self.epoch += 1;
        self.attached = false;
        self.older = None;
        self.loading_older = false;
        self.approvals.clear();
        self.plan.clear();
        let capacity = self.usage.capacity;
        self.usage = Usage { capacity, model: std::mem::take(&mut self.usage.model), ..Usage::default() };
        let (id, created) = (session.id.clone(), session.created);
        self.session = Some(session);
        if is_first {
            self.effects.push(Effect::ForgetDeleted);
        } else {
            self.transcript = self.transcript.fresh();
        }
        if let Some(error) = self.deletion.take() {
            self.problem(&error);
            self.note("This is a new session.");
        }
        // The start-up report of a fresh session has asked already.
        if !(is_first && created) {
            self.effects.push(Effect::Call(Call::Parts));
        }
        if created {
            self.effects.push(Effect::Log("session.fresh"));
            self.attach("-1");
            if is_first {
                self.preflight_row(Preflight::fact(format!("session {id}")));
                self.greet();
            }
        } else {
            self.effects.push(Effect::Log("session.resumed"));
            self.fetch_page(None);
        }
    }

    /// Leaves the session for another one. What was queued in it is still sent to it; what was queued behind the command
    /// that opens the other session belongs to that one.
    fn leave(&mut self, other: &str, command: Option<u64>) {
        let Some(left) = self.session.as_ref().map(|session| session.id.clone()).filter(|id| id != other) else {
            return;
        };
        let queue = std::mem::take(&mut self.queue);
        let is_of_other = |draft: &Draft| command.is_some_and(|command| draft.after >= command);
        let (next, own): (VecDeque<_>, VecDeque<_>) = queue.into_iter().partition(is_of_other);
        self.queue = next;
        if std::mem::take(&mut self.held) && !own.is_empty() {
            own.iter().for_each(|draft| self.remember(&draft.text));
            self.notice = Some("what was held back in the other session is in the history".to_owned());
            return;
        }
        self.left.extend(own.into_iter().map(|draft| (left.clone(), draft)));
    }

    fn attach(&mut self, offset: &str) {
        let Some(session) = &self.session else { return };
        self.effects.push(Effect::Attach { epoch: self.epoch, session: session.id.clone(), offset: offset.to_owned() });
        self.attached = true;
        self.send_queued();
        for draft in std::mem::take(&mut self.early) {
            self.take_up(draft);
        }
    }

    fn greet(&mut self) {
        let draft = Draft::new(greeting(&self.preflight));
        self.send(draft, Some(PREFLIGHT));
    }

    /// Runs a command at once. Any other message is sent now, or queued while a turn is running.
    fn submit(&mut self, draft: Draft) {
        if draft.text.trim().is_empty() && draft.attachments.is_empty() {
            self.held = false;
            return self.send_queued();
        }
        self.remember(&draft.text);
        self.transcript.show_end();
        self.take_up(draft);
    }

    fn take_up(&mut self, mut draft: Draft) {
        if let Some((name, rest)) = command(&draft.text) {
            self.effects.push(Effect::Log("input.command"));
            return self.run_command(&name, &rest, draft);
        }
        if !self.early.is_empty() {
            return self.early.push(draft);
        }
        self.effects.push(Effect::Log("input.prompt"));
        self.held = false;
        let commands = self.in_flight.iter().filter(|sent| sent.is_command);
        draft.after = commands.map(|sent| sent.id).max().unwrap_or_default();
        self.queue.push_back(draft);
        self.send_queued();
    }

    /// Removes from the history what was typed in a session that was deleted for good. If it is the one on the screen, what
    /// was queued goes with it, and a new one takes its place: the deleted one takes no prompt, and its turn has no end.
    fn forget_deleted(&mut self, error: Error, session: String) {
        let is_shown = session == self.session_id();
        self.effects.push(Effect::Forget { session });
        self.effects.push(Effect::LoadHistory);
        // The stream and each prompt on its way report the deletion.
        if is_shown && std::mem::take(&mut self.attached) {
            let folder = self.session.as_ref().and_then(|session| session.workspace.as_ref().map(Into::into));
            self.queue.clear();
            self.held = false;
            self.deletion = Some(error);
            self.effects.push(Effect::Open(Selector::Fresh(folder)));
        }
    }

    fn remember(&mut self, text: &str) {
        if !text.trim().is_empty() && self.history.last().map(String::as_str) != Some(text) {
            self.history.push(text.to_owned());
            let (text, session) = (text.to_owned(), self.session_id());
            self.effects.push(Effect::Remember { text, session });
        }
        self.browsing = None;
    }

    /// Sends the first queued message if no turn or request is in progress. Messages of sessions that were left come before,
    /// one by one, so that they keep their order; the gateway lets them wait for the turns of their sessions.
    fn send_queued(&mut self) {
        if self.in_flight.is_empty()
            && let Some((session, draft)) = self.left.pop_front()
        {
            let id = self.next_id();
            return self.post(id, session, draft, None, false);
        }
        if !self.attached || self.held || self.is_busy() || !self.in_flight.is_empty() {
            return;
        }
        if let Some(draft) = self.queue.pop_front() {
            self.send(draft, None);
        }
    }

    fn send(&mut self, draft: Draft, workflow: Option<&str>) {
        let id = self.next_id();
        let mut exchange = Exchange { since: Some(self.now), ..Exchange::new(None, Status::Waiting) };
        let mut prompt = match workflow {
            // The prompt for the greeting is not shown.
            Some(_) => Block::new(Kind::Hidden, ""),
            None => Block::new(Kind::Prompt, &shown_text(&draft)),
        };
        prompt.id = prompt_id(id);
        exchange.blocks.push(prompt);
        self.transcript.push(exchange);
        self.last_event_at = self.now;
        self.post(id, self.session_id(), draft, workflow, false);
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn session_id(&self) -> String {
        self.session.as_ref().map(|session| session.id.clone()).unwrap_or_default()
    }

    fn post(&mut self, id: u64, session: String, draft: Draft, workflow: Option<&str>, is_command: bool) {
        let key = match Mint::fresh() {
            Ok(mut mint) => mint.ulid(),
            Err(error) => return self.problem(&error),
        };
        let images = draft.attachments.iter().filter_map(|attachment| match &attachment.content {
            Content::Image(image) => Some(image.clone()),
            Content::Text(_) => None,
        });
        let prompt = Prompt {
            text: full_text(&draft),
            session: Some(session.clone()),
            images: images.collect(),
            workflow: workflow.map(str::to_owned),
            key: Some(key),
            ..Prompt::default()
        };
        self.effects.push(Effect::Call(Call::Send { id, prompt: Box::new(prompt) }));
        self.in_flight.push(InFlight { id, session, draft, is_command });
    }

    /// Runs a command of the client, or sends it to the gateway.
    fn run_command(&mut self, name: &str, rest: &str, mut draft: Draft) {
        // Attachments stay for the next prompt, because a command takes none.
        self.attachments = std::mem::take(&mut draft.attachments);
        match name {
            "exit" | "quit" => self.quit(),
            "help" => self.overlay = Overlay::Help(0),
            "session" => {
                let text = match &self.session {
                    Some(session) => match &session.name {
                        Some(name) => format!("This is the session {}, named {name}.", session.id),
                        None => format!("This is the session {}.", session.id),
                    },
                    None => "There is no session yet.".to_owned(),
                };
                self.note(&text);
            }
            "sessions" => self.open_sessions(),
            "attach" if rest.is_empty() => self.overlay = Overlay::Attach(String::new()),
            "attach" => self.effects.push(Effect::ReadFile(rest.to_owned())),
            _ if !self.attached => {
                self.notice = Some(format!("/{name} runs as soon as the session is there"));
                self.early.push(draft);
            }
            _ => {
                let id = self.next_id();
                self.post(id, self.session_id(), draft, None, true);
            }
        }
    }

    fn open_sessions(&mut self) {
        self.overlay = Overlay::Sessions(List::new("Sessions", Vec::new()));
        self.effects.push(Effect::Call(Call::Sessions { after: None }));
    }

    fn sent(&mut self, id: u64, answer: Result<Value, Error>) {
        let Some(at) = self.in_flight.iter().position(|sent| sent.id == id) else {
            return;
        };
        let sent = self.in_flight.remove(at);
        let is_left = !sent.is_command && sent.session != self.session_id();
        match answer {
            Ok(_) if is_left => self.connection = Connection::Connected,
            Ok(body) => {
                self.connection = Connection::Connected;
                self.take_context(&body);
                if sent.is_command {
                    self.command_done(id, &body)
                } else {
                    self.transcript.adopt(&prompt_id(id), text(&body, "submissionId"));
                    if !self.is_busy() {
                        // The turn ended before the reply to the request arrived.
                        self.notify("ken: the answer is there");
                    }
                }
            }
            Err(error) => {
                if !is_left && !sent.is_command {
                    // The text is returned to the editor.
                    self.transcript.remove(&prompt_id(id));
                    self.restore_draft(sent.draft);
                } else if is_left && error.code != Code::Gone {
                    self.remember(&sent.draft.text);
                }
                self.problem(&error);
                if error.code == Code::Gone {
                    self.forget_deleted(error, sent.session);
                }
            }
        }
        self.send_queued();
    }

    fn restore_draft(&mut self, draft: Draft) {
        if draft.text.starts_with(PREFLIGHT_REPORT) {
            return;
        }
        if self.draft_text().trim().is_empty() {
            self.set_editor(&draft.text);
            self.attachments.extend(draft.attachments);
        } else {
            self.queue.push_front(draft);
            self.held = true;
        }
    }

    fn command_done(&mut self, command: u64, body: &Value) {
        if let Some(named) = Session::of(body) {
            match &mut self.session {
                Some(session) if session.id == named.id => session.name = named.name.or_else(|| session.name.take()),
                _ => self.opened(named, Some(command)),
            }
        }
        if let Some(text) = body.pointer("/result/text").and_then(Value::as_str) {
            self.note(text);
        }
    }

    /// Updates the usage of the model's context if a reply reports it.
    fn take_context(&mut self, body: &Value) {
        let number = |name: &str| body.pointer("/contextUsage")?.get(name)?.as_u64();
        self.usage.capacity = number("capacityTokens").or(self.usage.capacity);
        self.usage.context = number("usedTokens").or(self.usage.context);
        let model = text_at(body, "/contextUsage/modelSpecifier");
        if !model.is_empty() {
            self.usage.model = one_line(model);
        }
    }

    fn sessions(&mut self, answer: Result<Value, Error>) {
        let Overlay::Sessions(list) = &mut self.overlay else {
            return;
        };
        let page = match answer {
            Ok(page) => page,
            Err(error) => {
                self.overlay = Overlay::None;
                self.notice = Some(sentence(&error));
                return;
            }
        };
        let row = |session: &Value| Row {
            value: one_line(text(session, "sessionId")),
            text: one_line(name_of(session).unwrap_or("(nothing said)")),
            remark: text(session, "updatedAt").get(..16).unwrap_or_default().replace('T', " "),
        };
        let sessions = page.get("sessions").and_then(Value::as_array);
        list.add(sessions.into_iter().flatten().map(row).collect());
        list.more = Some(text_at(&page, "/page/after").to_owned()).filter(|after| !after.is_empty());
    }

    /// Stores a request that was fetched by its id, and shows it in its row and in the open dialog.
    fn whole_request(&mut self, request: Request) {
        let id = self.session.as_ref().map(|session| &session.id);
        if request.session.is_some() && request.session.as_ref() != id {
            return;
        }
        if let Some(block) = self.transcript.block_mut(&request.id) {
            if request.is_pending() && block.state != block::State::Waiting {
                // It was decided while this answer was on its way.
                return;
            }
            block.name = format!("approval: {}", request.summary);
            block.detail = request.end().unwrap_or_else(|| format!("{} risk · F2 decides", request.risk));
            block.set_text(&below_name(&request));
        }
        if let Overlay::Approval(dialog) = &mut self.overlay
            && dialog.request.id == request.id
        {
            dialog.load(request.clone());
        }
        self.store_request(request);
    }

    /// Stores the current state of a request for approval.
    fn store_request(&mut self, request: Request) {
        if !request.is_pending() {
            self.approvals.retain(|known| known.id != request.id);
        } else if let Some(known) = self.approvals.iter_mut().find(|known| known.id == request.id) {
            // A list may hold less of a request than is known already, and the event of a request holds least.
            if known.is_cut {
                *known = request;
            }
        } else {
            self.approvals.push(request);
        }
    }

    fn decided(&mut self, request: &str, answer: Result<Value, Error>) {
        match answer {
            Ok(_) => self.approvals.retain(|known| known.id != request),
            Err(error) => {
                self.notice = Some(sentence(&error));
                // Somebody else has decided the request, or it has expired.
                if matches!(error.code, Code::Conflict | Code::NotFound) {
                    self.approvals.retain(|known| known.id != request);
                }
            }
        }
    }

    fn scroll(&mut self, lines: i64) {
        if let Some(top) = &mut self.pane_top {
            *top = top.saturating_add_signed(isize::try_from(lines).unwrap_or(0));
            return;
        }
        self.transcript.scroll(lines);
        // Older exchanges are loaded before the first one is reached.
        if lines < 0 && self.transcript.is_near_beginning() {
            self.load_older();
        }
    }

    fn load_older(&mut self) {
        if !self.loading_older && self.session.is_some() && self.older.is_some() {
            self.loading_older = true;
            self.fetch_page(self.older.clone());
        }
    }

    /// Requests the newest page of the session, or the one before a cursor.
    fn fetch_page(&mut self, before: Option<String>) {
        if let Some(session) = &self.session {
            let (epoch, session) = (self.epoch, session.id.clone());
            self.effects.push(Effect::Call(Call::Page { epoch, session, before }));
        }
    }

    fn search(&mut self, wanted: &str, up: bool) {
        self.notice = None;
        if wanted.is_empty() || self.transcript.search(wanted, up) {
            return;
        }
        let notice = match up && self.older.is_some() {
            true => {
                self.search_again = Some(wanted.to_owned());
                self.load_older();
                "searching the older messages"
            }
            false if up => "not found further up",
            false => "not found further down",
        };
        self.notice = Some(notice.to_owned());
    }

    /// Adds a message of the client to the conversation.
    fn note(&mut self, text: &str) {
        self.add(Block::new(Kind::Note, text));
    }

    fn problem(&mut self, error: &Error) {
        self.add(Block::new(Kind::Problem, &sentence(error)));
    }

    fn add(&mut self, block: Block) {
        let mut exchange = Exchange::new(None, Status::Completed);
        exchange.blocks.push(block);
        self.transcript.push(exchange);
    }

    fn cancel(&mut self) -> bool {
        let Some(session) = self.session.as_ref().map(|session| session.id.clone()) else {
            return false;
        };
        if !self.is_busy() || self.cancelling {
            return false;
        }
        self.effects.push(Effect::Call(Call::Cancel { session }));
        self.effects.push(Effect::Log("input.cancel"));
        self.cancelling = true;
        self.held = !self.queue.is_empty();
        true
    }

    /// Ends the client. Unsent messages are saved in the history.
    pub(crate) fn quit(&mut self) {
        let draft = self.draft_text();
        let left = std::mem::take(&mut self.left).into_iter().map(|(_, draft)| draft);
        let queued = left.chain(std::mem::take(&mut self.queue));
        for text in queued.map(|draft| draft.text).chain([draft]) {
            self.remember(&text);
        }
        self.effects.push(Effect::Quit(0));
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}

/// Returns what the row of a request shows below its name: where, why, risk, and the action or the diff; only these once it
/// is decided. The dialog shows all of a long one.
fn below_name(request: &Request) -> String {
    let mut shown = String::new();
    let is_shown = |line: &ken_approval::Line| request.is_pending() || !matches!(line.kind, Fact | Risk);
    for line in request.lines().into_iter().skip(1).filter(is_shown) {
        if shown.len() + line.text.len() > MAX_ROW_BYTES {
            return shown + "… F2 shows the rest";
        }
        shown += &line.text;
        shown.push('\n');
    }
    shown
}

/// Returns the name of a session in a list: the one that a person gave it, or else its title.
pub(crate) fn name_of(session: &Value) -> Option<&str> {
    let names = ["displayName", "title"].map(|name| text(session, name));
    names.into_iter().find(|name| !name.is_empty())
}

fn editor(text: &str) -> TextArea<'static> {
    let mut editor = TextArea::new(text.split('\n').map(str::to_owned).collect());
    editor.set_wrap_mode(WrapMode::WordOrGlyph);
    editor.set_cursor_line_style(Style::new());
    // The terminal's own cursor is shown instead, because input methods open at its position.
    editor.set_cursor_style(Style::new());
    editor.set_max_histories(EDITOR_UNDO);
    editor.set_tab_length(4);
    editor.move_cursor(CursorMove::Bottom);
    editor.move_cursor(CursorMove::End);
    editor
}

/// Returns the first prompt of a new session: the start-up report and a request for a greeting.
pub(crate) fn greeting(rows: &[String]) -> String {
    let report = rows.join("\n");
    format!("{PREFLIGHT_REPORT}\n{report}\nUse the built-in greeting skill.")
}

fn prompt_id(id: u64) -> String {
    format!("prompt:{id}")
}

/// Returns a prompt as it is shown in the conversation.
fn shown_text(draft: &Draft) -> String {
    let mut text = draft.text.clone();
    for attachment in &draft.attachments {
        text.push_str(&format!("\n[{}]", attachment.name));
    }
    text.trim_start_matches('\n').to_owned()
}

/// Returns the prompt together with its attached texts.
fn full_text(draft: &Draft) -> String {
    let mut text = draft.text.clone();
    for attachment in &draft.attachments {
        if let Content::Text(content) = &attachment.content {
            let fence = fence_for(content);
            let (name, content) = (&attachment.name, content.trim_end());
            text.push_str(&format!("\n\n{name}:\n{fence}\n{content}\n{fence}"));
        }
    }
    text
}

/// Splits `/name rest` into name and rest, by the same rules as the gateway.
fn command(text: &str) -> Option<(String, String)> {
    let text = text.trim().strip_prefix('/')?;
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let name = name.to_lowercase();
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    (begins && name.chars().all(is_plain)).then(|| (name, rest.trim().to_owned()))
}

/// Formats an error as a sentence for a person.
pub(crate) fn sentence(error: &Error) -> String {
    let message = one_line(&error.message);
    match &error.hint {
        Some(hint) => format!("{message} ({})", one_line(hint)),
        None => message,
    }
}
