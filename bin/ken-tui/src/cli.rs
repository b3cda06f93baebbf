//! The options of the command line.

use std::path::PathBuf;

use clap::Parser;

/// Talk to the agent in the terminal.
#[derive(Debug, Parser)]
#[command(name = "ken-tui", version, about, after_help = "See ken-tui(1).")]
pub(crate) struct Cli {
    /// Ask one question, print the answer, and end; standard input stands before the question, or is the question
    #[arg(long, value_name = "TEXT", num_args = 0..=1, default_missing_value = "")]
    pub(crate) print: Option<String>,

    /// With --print or a pipe: print the events of the turn, one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,

    /// Continue a session, by its id, a piece of it, its name, or `last`; for an unknown one the screen begins a fresh session and says so
    #[arg(long, value_name = "ID|NAME", alias = "resume", conflicts_with = "resume")]
    pub(crate) session: Option<String>,

    /// Continue the session that was used last
    #[arg(short = 'c', long = "continue")]
    pub(crate) resume: bool,

    /// Folder in which a new session works [default: the trusted folder around the current one]
    #[arg(short = 'w', long, value_name = "DIR", conflicts_with_all = ["session", "resume"])]
    pub(crate) workspace: Option<PathBuf>,

    /// Print plain lines instead of drawing a screen, for screen readers and logs
    #[arg(long, conflicts_with = "print")]
    pub(crate) plain: bool,

    /// Do not start the system when it does not run
    #[arg(long)]
    pub(crate) no_start: bool,

    /// Address of another gateway than that of this system: http://HOST:PORT [default: KEN_BASE_URL]
    #[arg(long, value_name = "URL", alias = "base-url")]
    pub(crate) url: Option<String>,

    /// File, mode 0600, that holds the gateway's API_SECRET [default: KEN_API_SECRET, else that of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Folder of the system [default: KEN_HOME, else the user's own folders]
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,

    /// Highlight code blocks (used by the client itself)
    #[arg(long, hide = true)]
    pub(crate) colour_code: bool,
}
