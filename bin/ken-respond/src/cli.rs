use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use ken_tool::{Error, Filter, Replied, Reply};
use signal_hook::flag::register_conditional_default;
use signal_hook::low_level::emulate_default_handler;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use crate::draft::Drafter;
use crate::laws::Laws;
use crate::question::Question;
use crate::response::Response;

#[derive(Args)]
pub(crate) struct Respond {
    /// The prompt to answer
    #[arg(short, long, value_name = "TEXT")]
    text: Option<String>,
    /// Maximum number of drafts, 1 to 10
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=10))]
    rounds: u8,
    /// Strictness of ken-laws: lenient, moderate or strict
    #[arg(short, long, value_name = "STRICTNESS", default_value = "moderate", value_parser = ["lenient", "moderate", "strict"])]
    strictness: String,
    /// Known facts as a JSON object, which a draft must not contradict
    #[arg(short, long, value_name = "JSON")]
    context: Option<String>,
    /// File with sources, with which each draft is compared: a plain text, or a JSON list of texts or of objects with id and text
    #[arg(long, value_name = "FILE")]
    sources: Vec<PathBuf>,
    /// Model that judges each sentence of a draft by its passages of the sources, as with ken-laws
    #[arg(long, value_name = "PROVIDER/MODEL", requires = "sources")]
    judge: Option<String>,
    /// Time limit of one draft, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 120_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    timeout_ms: u64,
    /// Program that writes the drafts; all words that follow are its arguments
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    draft: Vec<String>,
    #[arg(skip)]
    opened: OnceCell<SharedState>,
}

/// State that all inputs share.
struct SharedState {
    drafter: Drafter,
    laws: Laws,
    /// Whether a signal ends the process at once, as it does while no response is worked on. The runtime never gives a signal back that
    /// it has caught, so it would be ignored then.
    ends_at_once: Arc<AtomicBool>,
    /// Declared last, so that it is dropped last: the other fields own child processes, which the runtime watches.
    runtime: Runtime,
}

impl Filter for Respond {
    const NAME: &'static str = "ken-respond";
    const ABOUT: &'static str = "Draft an answer, judge it by the five laws, and revise it until it passes";
    const AFTER_HELP: &'static str =
        "Exit status: 0 the response passed, 1 no draft passed, 2 an error. See ken-respond(1).";

    fn inline(&self) -> Option<&str> {
        self.text.as_deref()
    }

    fn run(&self, input: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let question = Question::read(input)?;
        let opened = self.opened()?;
        let rounds = usize::from(self.rounds);
        opened.ends_at_once.store(false, Ordering::Relaxed);
        let ended = opened.runtime.block_on(async {
            let responding = Response::to(&question, &opened.drafter, &opened.laws, rounds);
            tokio::select! {
                biased;
                signal = stop_signal() => Err(signal), // dropping the other future kills the draft and its children
                response = responding => Ok(response),
            }
        });
        opened.ends_at_once.store(true, Ordering::Relaxed);
        match ended {
            Ok(response) => Ok(reply.send(&response?)),
            Err(signal) => {
                _ = emulate_default_handler(signal.as_raw_value());
                Err(Error::cancelled("stopped by a signal before there was a response"))
            }
        }
    }
}

impl Respond {
    fn opened(&self) -> Result<&SharedState, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let ends_at_once = Arc::new(AtomicBool::new(true));
        for signal in STOPS {
            register_conditional_default(signal.as_raw_value(), ends_at_once.clone())
                .map_err(|error| Error::internal(format!("a signal cannot be caught: {error}")))?;
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let opened = SharedState {
            drafter: Drafter::of(&self.draft, Duration::from_millis(self.timeout_ms)),
            ends_at_once,
            laws: Laws::new(&self.strictness, self.context.as_deref(), &self.sources, self.judge.as_deref())?,
            runtime: runtime.map_err(|error| Error::internal(format!("no runtime: {error}")))?,
        };
        Ok(self.opened.get_or_init(|| opened))
    }
}

/// The signals that end the process.
const STOPS: [SignalKind; 3] = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];

/// Resolves when the process gets one of these. The caller can then stop the child processes before it ends.
async fn stop_signal() -> SignalKind {
    let signalled = async |kind| {
        match signal(kind) {
            Ok(mut signal) => _ = signal.recv().await,
            Err(_) => std::future::pending().await,
        }
        kind
    };
    let [interrupt, terminate, hangup] = STOPS.map(signalled);
    tokio::select! {
        kind = interrupt => kind,
        kind = terminate => kind,
        kind = hangup => kind,
    }
}
