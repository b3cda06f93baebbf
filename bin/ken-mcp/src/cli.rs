//! The options of the command line.

use std::path::PathBuf;

use clap::Parser;

/// Offer ken's tools, knowledge and skills to another agent, by the Model Context Protocol over standard input and output.
#[derive(Debug, Parser)]
#[command(name = "ken-mcp", version, about, after_help = "See ken-mcp(1).")]
pub(crate) struct Cli {
    /// The person or program that asks, whose memory and knowledge are used [default: nobody's]
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,

    /// The conversation of that person or program [default: one for all]
    #[arg(long, value_name = "NAME", requires = "actor")]
    pub(crate) conversation: Option<String>,

    /// Address of another gateway than that of this system: http://HOST:PORT [default: KEN_BASE_URL]
    #[arg(long, value_name = "URL", alias = "base-url")]
    pub(crate) url: Option<String>,

    /// File, mode 0600, that holds the gateway's API_SECRET [default: KEN_API_SECRET, else that of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,

    /// Folder of the system [default: KEN_HOME, else the user's own folders]
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
}
