//! Logs: JSON lines on standard error. `kend` stores and rotates them.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging. `KEN_LOG` sets the level, which is `info` if the variable is unset or not the name of a level.
pub(crate) fn start() {
    let level = std::env::var("KEN_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(LevelFilter::INFO);
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .finish();
    // At `info`, rmcp would log text that MCP servers send.
    let filter = Targets::new().with_default(level).with_target("rmcp", level.min(LevelFilter::WARN));
    // This fails only in tests that start several daemons in one process; the first subscriber remains.
    _ = subscriber.with(filter).try_init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!(at = place, "defect: {}", panic_text(panic));
    }));
}

fn panic_text<'a>(panic: &'a std::panic::PanicHookInfo<'_>) -> &'a str {
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic")
}
