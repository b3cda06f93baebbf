//! A minimal tool for the black-box tests. It counts words, and its answer is negative unless the input contains the
//! word "yes".

use std::fmt;
use std::process::ExitCode;

use ken_tool::{Answer, Error, Filter, Need, Replied, Reply, Verdict};

#[derive(clap::Args)]
struct Count {
    /// The text
    #[arg(short, long)]
    text: Option<String>,
    /// Words to count, in place of an input
    #[arg(long, num_args = 1..)]
    words: Vec<String>,
    /// Count each word this many times
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u8,
    /// A blank input will do
    #[arg(long)]
    optional: bool,
}

#[derive(serde::Serialize)]
struct Answered {
    words: usize,
    yes: bool,
}

impl Answer for Answered {
    fn verdict(&self) -> Verdict {
        self.yes.into()
    }

    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "{} words", self.words)?;
        if verbose { writeln!(to, "yes: {}", self.yes) } else { Ok(()) }
    }
}

impl Filter for Count {
    const NAME: &'static str = "ken-count";
    const ABOUT: &'static str = "Count words";
    const AFTER_HELP: &'static str = "Exit status: 0 with a yes, 1 without, 2 on an error.";

    fn inline(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn need(&self) -> Need {
        match (self.words.is_empty(), self.optional) {
            (false, _) => Need::Nothing,
            (true, true) => Need::Optional,
            (true, false) => Need::Input,
        }
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        if input.contains("boom") {
            return Err(Error::invalid("/0", "boom"));
        }
        let words: Vec<&str> = input.split_whitespace().chain(self.words.iter().map(String::as_str)).collect();
        Ok(reply.send(&Answered { words: words.len() * usize::from(self.repeat), yes: words.contains(&"yes") }))
    }
}

fn main() -> ExitCode {
    ken_tool::main::<Count>()
}
