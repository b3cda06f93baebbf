//! Handles keys and pasted text.

use ratatui_textarea::{CursorMove, Input, Key};

use super::approval::{Dialog, denial};
use super::block::Kind;
use super::list::{List, Row};
use super::{Draft, Model, Overlay};
use crate::input::Event;
use crate::message::{Call, Effect, Selector};

/// The commands of the palette, each with its name, key and description.
const PALETTE: [(&str, &str, &str); 13] = [
    ("approval", "F2", "Decide the pending approval"),
    ("sessions", "/sessions", "Choose another session"),
    ("new", "/new", "Begin a new session"),
    ("copy", "Alt+C", "Copy the last answer"),
    ("copy-code", "Alt+K", "Copy the last piece of code"),
    ("attach", "Alt+A", "Attach a file"),
    ("search", "Ctrl+F", "Search the conversation"),
    ("unfold", "Ctrl+O", "Unfold or fold outputs and thinking"),
    ("pane", "Ctrl+S", "Show or hide plan, usage and parts"),
    ("editor", "Ctrl+G", "Write in the editor of the environment"),
    ("compact", "/compact", "Compact the history"),
    ("help", "F1", "Keys and commands"),
    ("exit", "Ctrl+D", "Leave"),
];

impl Model {
    pub(super) fn input(&mut self, event: Event) {
        match event {
            Event::Key(key) => self.key(&key),
            Event::Paste(text) => self.paste(&text),
            Event::Focus(focused) => self.focused = focused,
        }
    }

    /// Inserts pasted text where the person is typing. It is never sent automatically.
    fn paste(&mut self, text: &str) {
        let text = pasted(text);
        self.effects.push(Effect::Log("input.paste"));
        self.close_completion();
        match &mut self.overlay {
            Overlay::None => _ = self.editor.insert_str(&text),
            Overlay::Attach(path) => path.push_str(text.trim()),
            Overlay::Search(wanted) => wanted.push_str(text.lines().next().unwrap_or_default()),
            // The other overlays ignore pasted text, because it could otherwise trigger a decision.
            _ => {}
        }
    }

    fn key(&mut self, key: &Input) {
        self.notice = None;
        if *key == control('c') {
            self.close_completion();
            return self.interrupt();
        }
        self.armed = false;
        if *key == control('z') {
            return self.effects.push(Effect::Suspend);
        }
        if *key == control('l') {
            return self.effects.push(Effect::Repaint);
        }
        match std::mem::take(&mut self.overlay) {
            Overlay::None => self.conversation_key(key),
            Overlay::Palette(list) => self.palette_key(list, key),
            Overlay::Sessions(list) => self.sessions_key(list, key),
            Overlay::Completion(open) => self.completion_key(open, key),
            Overlay::Search(wanted) => self.search_key(wanted, key),
            Overlay::Approval(dialog) => self.approval_key(dialog, key),
            Overlay::Attach(path) => self.attach_key(path, key),
            Overlay::Help(scroll) => self.help_key(scroll, key),
        }
    }

    /// Scrolls with the mouse wheel. An open overlay receives arrow keys instead.
    pub(super) fn wheel(&mut self, lines: i64) {
        match self.overlay {
            Overlay::Palette(_)
            | Overlay::Sessions(_)
            | Overlay::Completion(_)
            | Overlay::Approval(_)
            | Overlay::Help(_) => {
                let arrow = Input { key: if lines < 0 { Key::Up } else { Key::Down }, ..Input::default() };
                (0..lines.unsigned_abs()).for_each(|_| self.key(&arrow));
            }
            _ => self.scroll(lines),
        }
    }

    /// Handles Ctrl+C: it cancels the running turn, or else clears the draft. Pressed again, it ends the program.
    fn interrupt(&mut self) {
        if self.armed {
            return self.quit();
        }
        self.armed = true;
        self.overlay = Overlay::None;
        if self.cancel() {
            self.notice = Some("cancelling · Ctrl+C again leaves".to_owned());
            return;
        }
        let draft = self.draft_text();
        if draft.trim().is_empty() {
            self.notice = Some("Ctrl+C again leaves".to_owned());
            return;
        }
        self.remember(&draft);
        self.set_editor("");
        self.notice = Some("the draft is in the history (Up) · Ctrl+C again leaves".to_owned());
    }

    fn conversation_key(&mut self, key: &Input) {
        let (control, alt, shift) = (key.ctrl, key.alt, key.shift);
        let page = i64::from(self.transcript.rows.saturating_sub(2).max(1));
        match key.key {
            Key::Enter if alt || shift || control => self.editor.insert_newline(),
            Key::Char('j') if control => self.editor.insert_newline(),
            Key::Enter => {
                let draft = Draft::with(self.draft_text(), std::mem::take(&mut self.attachments));
                self.set_editor("");
                self.submit(draft);
            }
            Key::Esc => self.escape(),
            Key::PageUp => self.scroll(-page),
            Key::PageDown => self.scroll(page),
            Key::Up if shift => self.scroll(-1),
            Key::Down if shift => self.scroll(1),
            Key::Home if control => {
                self.transcript.show_beginning();
                self.load_older();
            }
            Key::End if control => self.transcript.show_end(),
            Key::F(1) => self.overlay = Overlay::Help(0),
            Key::F(2) => self.run("approval"),
            Key::Char('p') if control => self.open_palette(),
            Key::Char('f') if control => self.run("search"),
            Key::Char('o') if control => self.run("unfold"),
            Key::Char('s') if control => self.run("pane"),
            Key::Char('g') if control => self.run("editor"),
            Key::Char('c') if alt => self.run("copy"),
            Key::Char('k') if alt => self.run("copy-code"),
            Key::Char('a') if alt => self.run("attach"),
            Key::Char('d') if control && self.editor.is_empty() => self.quit(),
            Key::Char('u') if control => _ = self.editor.delete_line_by_head(),
            Key::Char('_' | '/' | '7') if control => _ = self.editor.undo(),
            Key::Char('_' | '/') if alt => _ = self.editor.redo(),
            Key::Up if self.is_at_top() => self.earlier(),
            Key::Down if self.is_at_bottom() => self.later(),
            Key::Backspace if self.editor.is_empty() && !self.attachments.is_empty() => _ = self.attachments.pop(),
            _ if self.completes(key) => {}
            _ => {
                if self.editor.input(key.clone()) {
                    self.browsing = None;
                }
            }
        }
    }

    fn escape(&mut self) {
        if self.cancel() {
            self.notice = Some("cancelling".to_owned());
        } else if !self.transcript.follows() {
            self.transcript.show_end();
        }
    }

    fn is_at_top(&self) -> bool {
        self.editor.cursor().0 == 0
            && (self.browsing.is_some() || self.editor.cursor().1 == 0 || self.editor.is_empty())
    }

    fn is_at_bottom(&self) -> bool {
        self.browsing.is_some() && self.editor.cursor().0 + 1 >= self.editor.lines().len()
    }

    /// Handles Up: moves the last queued message back into the editor, or else goes to the previous entry of the
    /// history.
    fn earlier(&mut self) {
        if self.editor.is_empty()
            && self.browsing.is_none()
            && let Some(draft) = self.queue.pop_back()
        {
            self.set_editor(&draft.text);
            self.attachments.extend(draft.attachments);
            return;
        }
        let (at, draft) = match self.browsing.take() {
            Some(browsing) => browsing,
            None => (self.history.len(), Draft::new(self.draft_text())),
        };
        let at = at.saturating_sub(1);
        if let Some(text) = self.history.get(at).cloned() {
            self.set_editor(&text);
            self.editor.move_cursor(CursorMove::Top);
            self.browsing = Some((at, draft));
        }
    }

    fn later(&mut self) {
        let Some((at, draft)) = self.browsing.take() else {
            return;
        };
        match self.history.get(at + 1).cloned() {
            Some(text) => {
                self.set_editor(&text);
                self.browsing = Some((at + 1, draft));
            }
            None => self.set_editor(&draft.text),
        }
    }

    fn open_palette(&mut self) {
        let row = |(value, key, text): &(&str, &str, &str)| Row {
            value: (*value).to_owned(),
            text: (*text).to_owned(),
            remark: (*key).to_owned(),
        };
        self.overlay = Overlay::Palette(List::new("Commands", PALETTE.iter().map(row).collect()));
    }

    fn run(&mut self, command: &str) {
        match command {
            "approval" => match self.approvals.first().cloned() {
                Some(request) => {
                    self.effects.push(Effect::Call(Call::Approval { request: request.id.clone() }));
                    self.overlay = Overlay::Approval(Box::new(Dialog::new(request)));
                }
                None => self.notice = Some("no approval is pending".to_owned()),
            },
            "copy" => {
                let last = self.transcript.last_of(|block| block.kind == Kind::Answer);
                let text = last.map(|block| block.text().to_owned());
                self.copy(text);
            }
            "copy-code" => {
                let last = self.transcript.last_of(|block| !block.code().is_empty());
                let text = last.and_then(|block| block.code().last().cloned());
                self.copy(text);
            }
            "attach" => self.overlay = Overlay::Attach(String::new()),
            "search" => self.overlay = Overlay::Search(String::new()),
            "unfold" => self.transcript.unfolded = !self.transcript.unfolded,
            "pane" => {
                self.pane = !self.pane;
                if self.pane {
                    self.effects.push(Effect::Call(Call::Parts));
                    self.effects.push(Effect::Call(Call::Approvals));
                }
            }
            "editor" => self.effects.push(Effect::Edit(self.draft_text())),
            "help" => self.overlay = Overlay::Help(0),
            "exit" => self.quit(),
            "sessions" => self.open_sessions(),
            command => self.submit(Draft::new(format!("/{command}"))),
        }
    }

    fn copy(&mut self, text: Option<String>) {
        match text {
            Some(text) => {
                let count = text.chars().count();
                self.notice = Some(format!("{count} characters were offered to the terminal's clipboard"));
                self.effects.push(Effect::Copy(text));
            }
            None => self.notice = Some("there is nothing to copy".to_owned()),
        }
    }

    fn palette_key(&mut self, mut list: List, key: &Input) {
        match list_key(&mut list, key) {
            Choice::Open => self.overlay = Overlay::Palette(list),
            Choice::Chosen(command) => self.run(&command),
            Choice::Closed => {}
        }
    }

    fn sessions_key(&mut self, mut list: List, key: &Input) {
        match list_key(&mut list, key) {
            Choice::Open => {
                let is_at_end = list.selected() + 1 >= list.matching().len();
                if let Some(after) = list.more.take_if(|_| is_at_end) {
                    self.effects.push(Effect::Call(Call::Sessions { after: Some(after) }));
                }
                self.overlay = Overlay::Sessions(list);
            }
            Choice::Chosen(session) => {
                if self.session.as_ref().is_none_or(|open| open.id != session) {
                    self.effects.push(Effect::Open(Selector::Named(session)));
                }
            }
            Choice::Closed => {}
        }
    }

    fn search_key(&mut self, mut wanted: String, key: &Input) {
        match key.key {
            Key::Esc => return,
            Key::Enter | Key::Up => self.search(&wanted, true),
            Key::Down => self.search(&wanted, false),
            Key::PageUp => self.scroll(-10),
            Key::PageDown => self.scroll(10),
            _ => type_into(&mut wanted, key),
        }
        self.overlay = Overlay::Search(wanted);
    }

    fn attach_key(&mut self, mut path: String, key: &Input) {
        match key.key {
            Key::Esc => return,
            Key::Enter => return self.effects.push(Effect::ReadFile(path)),
            _ => type_into(&mut path, key),
        }
        self.overlay = Overlay::Attach(path);
    }

    /// Handles keys of the help: arrows scroll, any other key closes it.
    fn help_key(&mut self, scroll: usize, key: &Input) {
        if let Some(scroll) = scrolled(scroll, key, 10) {
            self.overlay = Overlay::Help(scroll);
        }
    }

    /// Handles keys of the approval dialog. Keys can decide a request only here, after a person has opened the dialog.
    fn approval_key(&mut self, mut dialog: Box<Dialog>, key: &Input) {
        if dialog.outcome.is_some() {
            return;
        }
        let request = dialog.request.id.clone();
        if let Some(reason) = &mut dialog.reason {
            match key.key {
                Key::Esc => dialog.reason = None,
                Key::Enter => {
                    let decision = denial(dialog.reason.take());
                    return self.effects.push(Effect::Call(Call::Decide { request, decision }));
                }
                _ => type_into(reason, key),
            }
            self.overlay = Overlay::Approval(dialog);
            return;
        }
        match key.key {
            Key::Esc => return,
            Key::Char(letter @ ('a' | 's')) if is_typed(key) && dialog.may_approve(letter == 's') => {
                let decision = dialog.approval(letter == 's');
                return self.effects.push(Effect::Call(Call::Decide { request, decision }));
            }
            Key::Char('d') if is_typed(key) => dialog.reason = Some(String::new()),
            // A page is what is on the screen, so that no line is passed over.
            _ => dialog.scroll = scrolled(dialog.scroll, key, dialog.page.max(1)).unwrap_or(dialog.scroll),
        }
        self.overlay = Overlay::Approval(dialog);
    }
}

pub(super) enum Choice {
    Open,
    Chosen(String),
    Closed,
}

pub(super) fn list_key(list: &mut List, key: &Input) -> Choice {
    match key.key {
        Key::Esc => return Choice::Closed,
        Key::Enter => {
            if let Some(value) = list.chosen() {
                return Choice::Chosen(value);
            }
        }
        Key::Up => list.move_by(-1),
        Key::Down | Key::Tab => list.move_by(1),
        Key::PageUp => list.move_by(-10),
        Key::PageDown => list.move_by(10),
        Key::Backspace => list.erase(),
        Key::Char(c) if is_typed(key) => list.type_char(c),
        _ => {}
    }
    Choice::Open
}

/// Returns a text from elsewhere as it can stand in the input: with line feeds, and without other control characters.
pub(super) fn pasted(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    ken_text::for_terminal(&text).into_owned()
}

/// Returns the first visible line of a window after a scrolling key, or `None` for any other key. `page` is a number of lines.
fn scrolled(top: usize, key: &Input, page: usize) -> Option<usize> {
    Some(match key.key {
        Key::Up => top.saturating_sub(1),
        Key::Down => top.saturating_add(1),
        Key::PageUp => top.saturating_sub(page),
        Key::PageDown => top.saturating_add(page),
        Key::Home => 0,
        // The view goes back to the last line.
        Key::End => usize::MAX,
        _ => return None,
    })
}

/// Applies a key to a one-line text: appends a character or deletes the last one.
fn type_into(text: &mut String, key: &Input) {
    match key.key {
        Key::Backspace => _ = text.pop(),
        Key::Char(c) if is_typed(key) => text.push(c),
        _ => {}
    }
}

/// Whether a key types a character rather than being a command.
pub(super) fn is_typed(key: &Input) -> bool {
    !key.ctrl && !key.alt
}

fn control(letter: char) -> Input {
    Input { key: Key::Char(letter), ctrl: true, alt: false, shift: false }
}
