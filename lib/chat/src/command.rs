//! Slash commands: parsing, and the list of commands.

/// A command as the user typed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command<'a> {
    pub name: CommandName<'a>,
    /// The text after the name, trimmed. Can be empty.
    pub rest: &'a str,
}

/// The name of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandName<'a> {
    New,
    Clear,
    Resume,
    Rename,
    Model,
    Compact,
    Session,
    Help,
    Unknown(&'a str),
}

/// All commands: name, arguments, and a description.
pub const COMMANDS: [(&str, &str, &str); 8] = [
    ("new", "[name]", "start a fresh session; the old one stays"),
    ("clear", "[name]", "the same as /new"),
    ("resume", "<id or name>", "go back to a session"),
    ("rename", "<name>", "name this session"),
    ("model", "[provider/model | default]", "have one model answer in this session, or tell which does"),
    ("compact", "", "summarise the history to make room"),
    ("session", "", "tell which session this is"),
    ("help", "", "list the commands"),
];

impl<'a> Command<'a> {
    /// Parses `/name` or `/name rest`, where the name is `[a-z][a-z0-9_-]*` in upper or lower case. Returns `None`
    /// for any other text, which is a prompt.
    pub fn parse(text: &'a str) -> Option<Command<'a>> {
        let text = text.trim().strip_prefix('/')?;
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let first = name.bytes().next()?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let fits = first.is_ascii_alphabetic() && name.bytes().all(allowed);
        fits.then(|| Command { name: CommandName::of(name), rest: rest.trim() })
    }
}

impl<'a> CommandName<'a> {
    fn of(name: &'a str) -> CommandName<'a> {
        match name.to_ascii_lowercase().as_str() {
            "new" => CommandName::New,
            "clear" => CommandName::Clear,
            "resume" => CommandName::Resume,
            "rename" => CommandName::Rename,
            "model" => CommandName::Model,
            "compact" => CommandName::Compact,
            "session" => CommandName::Session,
            "help" => CommandName::Help,
            _ => CommandName::Unknown(name),
        }
    }

    /// Returns the name in lower case, without the slash.
    pub fn text(&self) -> String {
        match self {
            CommandName::New => "new".to_owned(),
            CommandName::Clear => "clear".to_owned(),
            CommandName::Resume => "resume".to_owned(),
            CommandName::Rename => "rename".to_owned(),
            CommandName::Model => "model".to_owned(),
            CommandName::Compact => "compact".to_owned(),
            CommandName::Session => "session".to_owned(),
            CommandName::Help => "help".to_owned(),
            CommandName::Unknown(name) => name.to_ascii_lowercase(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_a_command() {
        let command = Command::parse("  /Rename  My name \n").unwrap();
        assert_eq!(command, Command { name: CommandName::Rename, rest: "My name" });
        assert_eq!(Command::parse("/new").unwrap().rest, "");
        assert_eq!(Command::parse("/new\tx").unwrap().rest, "x");
        assert_eq!(Command::parse("/no-such_1").unwrap().name, CommandName::Unknown("no-such_1"));
    }

    #[test]
    fn what_does_not_fit_is_a_prompt() {
        for text in ["/1x", "/a/b", "//x", "/", "/ new", "new", "", "/é", "/a.b", "a /new"] {
            assert_eq!(Command::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_listed_command_is_known() {
        for (name, _, _) in COMMANDS {
            assert_eq!(CommandName::of(name).text(), name);
            assert!(!matches!(CommandName::of(name), CommandName::Unknown(_)));
        }
    }
}
