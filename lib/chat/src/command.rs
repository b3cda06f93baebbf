//! Slash commands: parsing, and the list of commands.

/// A command as the user typed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Command<'a> {
    /// The name, without the slash.
    pub(crate) name: &'a str,
    /// `None` if there is no such command.
    pub(crate) known: Option<CommandName>,
    /// The text after the name, trimmed. Can be empty.
    pub(crate) rest: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandName {
    New,
    Clear,
    Resume,
    Rename,
    Model,
    Compact,
    Session,
    Help,
}

/// All commands: name, arguments, and a description.
pub const COMMANDS: [(CommandName, &str, &str, &str); 8] = [
    (CommandName::New, "new", "[name]", "start a fresh session; the old one stays"),
    (CommandName::Clear, "clear", "[name]", "the same as /new"),
    (CommandName::Resume, "resume", "<id or name>", "go back to a session"),
    (CommandName::Rename, "rename", "<name>", "name this session"),
    (
        CommandName::Model,
        "model",
        "[provider/model | default]",
        "have one model answer in this session, or tell which does",
    ),
    (CommandName::Compact, "compact", "", "summarise the history to make room"),
    (CommandName::Session, "session", "", "tell which session this is"),
    (CommandName::Help, "help", "", "list the commands"),
];

impl<'a> Command<'a> {
    /// Parses `/name` or `/name rest`, where the name is `[a-z][a-z0-9_-]*` in upper or lower case. Returns `None`
    /// for any other text, which is a prompt.
    pub(crate) fn parse(text: &'a str) -> Option<Command<'a>> {
        let text = text.trim().strip_prefix('/')?;
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let first = name.bytes().next()?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let fits = first.is_ascii_alphabetic() && name.bytes().all(allowed);
        let known = COMMANDS.iter().find(|(_, known, ..)| known.eq_ignore_ascii_case(name)).map(|(known, ..)| *known);
        fits.then(|| Command { name, known, rest: rest.trim() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_a_command() {
        let command = Command::parse("  /Rename  My name \n").unwrap();
        assert_eq!(command, Command { name: "Rename", known: Some(CommandName::Rename), rest: "My name" });
        assert_eq!(Command::parse("/new").unwrap().rest, "");
        assert_eq!(Command::parse("/new\tx").unwrap().rest, "x");
        assert_eq!(Command::parse("/no-such_1").unwrap(), Command { name: "no-such_1", known: None, rest: "" });
    }

    #[test]
    fn what_does_not_fit_is_a_prompt() {
        for text in ["/1x", "/a/b", "//x", "/", "/ new", "new", "", "/é", "/a.b", "a /new"] {
            assert_eq!(Command::parse(text), None, "{text}");
        }
    }
}
