//! Completes what begins with `/` at the beginning of a message, a command, and with `@` at the beginning of a word, a file that is
//! attached. What is typed stays a part of the message if nothing matches it, and after Esc.

use ratatui_textarea::{Input, Key};

use super::keys::{Choice, is_typed, list_key};
use super::list::{List, Row};
use super::{Draft, Model, Overlay};
use crate::message::Effect;

/// The commands: name, arguments, description.
pub(super) const COMMANDS: [(&str, &str, &str); 11] = [
    ("help", "", "keys and commands"),
    ("new", "[name]", "begin a new session; the old one stays"),
    ("sessions", "", "choose another session"),
    ("resume", "<id or name>", "go back to a session"),
    ("rename", "<name>", "name this session"),
    ("model", "[provider/model | default]", "the model of this session"),
    ("compact", "", "summarise the history to make room"),
    ("session", "", "tell which session this is"),
    ("attach", "<file>", "attach a file to the next prompt"),
    ("clear", "[name]", "the same as /new"),
    ("exit", "", "leave"),
];

/// The maximum number of files that are offered at a time.
const MAX_OFFERED: usize = 200;

/// A list of what may be meant.
#[derive(Debug)]
pub(crate) struct Completion {
    /// `/` or `@`.
    pub(crate) sign: char,
    pub(crate) list: List,
    all: Vec<Row>,
    /// Whether the files are still being listed.
    is_loading: bool,
}

impl Completion {
    fn of_commands() -> Completion {
        let row = |(name, arguments, text): &(&str, &str, &str)| Row {
            value: (*name).to_owned(),
            text: format!("/{name} {arguments}"),
            remark: (*text).to_owned(),
        };
        Completion { is_loading: false, ..Completion::new('/', "Commands", COMMANDS.iter().map(row).collect()) }
    }

    fn new(sign: char, title: &'static str, all: Vec<Row>) -> Completion {
        let mut completion = Completion { sign, list: List::new(title, Vec::new()), all, is_loading: true };
        completion.narrow(String::new());
        completion
    }

    /// Offers what fits a text: commands that begin with it, or files that contain it. First are those whose name begins with
    /// it, and of them the ones in the fewest folders.
    fn narrow(&mut self, typed: String) {
        let wanted = typed.to_lowercase();
        let rank = |row: &Row| {
            let value = row.value.to_lowercase();
            let name = value.rsplit('/').next().unwrap_or_default();
            match (self.sign, name.starts_with(&wanted), value.contains(&wanted)) {
                (_, true, _) => Some((0, value.matches('/').count())),
                ('@', _, true) => Some((1, value.len())),
                _ => None,
            }
        };
        let mut rows: Vec<_> = self.all.iter().filter_map(|row| Some((rank(row)?, row))).collect();
        rows.sort_by_key(|(rank, _)| *rank);
        let rows = rows.into_iter().take(MAX_OFFERED).map(|(_, row)| row.clone()).collect();
        self.list = List::new(self.list.title, rows);
        self.list.filter = typed;
    }

    /// Whether what has been typed is none of what is offered.
    fn fits_nothing(&self) -> bool {
        !self.is_loading && !self.list.filter.is_empty() && self.list.chosen().is_none()
    }

    /// What has been typed, with the sign.
    fn text(&self) -> String {
        format!("{}{}", self.sign, self.list.filter)
    }
}

impl Model {
    /// Opens the list for a sign that was typed where it means something.
    pub(super) fn completes(&mut self, key: &Input) -> bool {
        let before = self.editor.lines().get(self.editor.cursor().0).map(|line| line.chars());
        let before = before.and_then(|mut chars| self.editor.cursor().1.checked_sub(1).and_then(|at| chars.nth(at)));
        match key.key {
            Key::Char('/') if is_typed(key) && self.editor.is_empty() => {
                self.overlay = Overlay::Completion(Completion::of_commands());
            }
            Key::Char('@') if is_typed(key) && before.is_none_or(char::is_whitespace) => {
                self.effects.push(Effect::ListFiles);
                self.overlay = Overlay::Completion(Completion::new('@', "Files", Vec::new()));
            }
            _ => return false,
        }
        true
    }

    /// Takes the files of the folder. `cut` says that there are more.
    pub(super) fn files_listed(&mut self, paths: Vec<String>, cut: bool) {
        if let Overlay::Completion(open) = &mut self.overlay
            && open.sign == '@'
        {
            let row = |path: String| Row { value: path.clone(), text: path, remark: String::new() };
            open.all = paths.into_iter().map(row).collect();
            open.is_loading = false;
            if cut {
                open.list.title = "The first files · /attach takes any other";
            }
            let typed = std::mem::take(&mut open.list.filter);
            open.narrow(typed);
            if open.fits_nothing() {
                self.close_completion();
            }
        }
    }

    /// Closes the list. What was typed stays a part of the message.
    pub(super) fn close_completion(&mut self) {
        if let Overlay::Completion(open) = &self.overlay {
            let typed = open.text();
            self.overlay = Overlay::None;
            self.insert(&typed);
        }
    }

    pub(super) fn completion_key(&mut self, mut open: Completion, key: &Input) {
        let typed = open.list.filter.clone();
        match key.key {
            Key::Enter | Key::Tab if open.sign == '/' && open.list.chosen().is_some() => {
                return self.complete_command(&open, key.key == Key::Enter);
            }
            Key::Enter | Key::Tab => {
                if let Some(path) = open.list.chosen() {
                    self.insert(&format!("{path} "));
                    return self.effects.push(Effect::ReadFile(path));
                }
            }
            Key::Backspace if typed.is_empty() => return,
            Key::Char(c) if is_typed(key) => {
                open.narrow(format!("{typed}{c}"));
                if c.is_whitespace() || open.fits_nothing() {
                    return self.insert(&open.text());
                }
            }
            Key::Backspace => {
                let shorter = typed.chars().count().saturating_sub(1);
                open.narrow(typed.chars().take(shorter).collect());
            }
            _ => {
                if matches!(list_key(&mut open.list, key), Choice::Closed) {
                    return self.insert(&open.text());
                }
            }
        }
        self.overlay = Overlay::Completion(open);
    }

    fn insert(&mut self, text: &str) {
        self.editor.insert_str(text);
        self.browsing = None;
    }

    /// Runs the chosen command, or leaves it in the editor for its arguments.
    fn complete_command(&mut self, open: &Completion, runs: bool) {
        let Some(name) = open.list.chosen() else {
            return;
        };
        // Whoever types a whole name means that command, also if it is the beginning of another one.
        let is_whole = COMMANDS.iter().any(|(name, ..)| *name == open.list.filter);
        let name = if is_whole && runs { open.list.filter.clone() } else { name };
        let has_arguments = COMMANDS.iter().any(|(known, arguments, _)| *known == name && !arguments.is_empty());
        if runs && (is_whole || !has_arguments) {
            let attachments = std::mem::take(&mut self.attachments);
            return self.submit(Draft::with(format!("/{name}"), attachments));
        }
        let blank = if has_arguments { " " } else { "" };
        self.set_editor(&format!("/{name}{blank}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_gateway_is_offered() {
        for (_, name, arguments, _) in ken_chat::COMMANDS {
            assert!(
                COMMANDS.iter().any(|(known, given, _)| (*known, *given) == (name, arguments)),
                "{name} {arguments}"
            );
        }
    }

    fn offered(completion: &mut Completion, typed: &str) -> Vec<String> {
        completion.narrow(typed.to_owned());
        completion.list.matching().into_iter().map(|row| row.value.clone()).collect()
    }

    #[test]
    fn commands_are_offered_by_their_beginning_and_files_by_any_part() {
        let mut commands = Completion::of_commands();
        assert_eq!(offered(&mut commands, "").len(), COMMANDS.len());
        assert_eq!(offered(&mut commands, "se"), ["sessions", "session"]);
        assert!(offered(&mut commands, "etc").is_empty());
        let row = |path: &str| Row { value: path.to_owned(), text: path.to_owned(), remark: String::new() };
        let paths = ["docs/main/long/path.md", "lib/domain.rs", "src/Main.rs"];
        let mut files = Completion::new('@', "Files", paths.map(row).to_vec());
        assert_eq!(offered(&mut files, "main"), ["src/Main.rs", "lib/domain.rs", "docs/main/long/path.md"]);
        assert!(offered(&mut files, "nothing").is_empty());
        let paths = ["__pycache__/price.cpython-311.pyc", "price.py", "test_price.py"];
        let mut files = Completion::new('@', "Files", paths.map(row).to_vec());
        assert_eq!(offered(&mut files, "pri"), ["price.py", "__pycache__/price.cpython-311.pyc", "test_price.py"]);
    }
}
