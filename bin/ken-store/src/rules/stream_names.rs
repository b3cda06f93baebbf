//! The names of streams.

/// Precedes an instance in the name of its stream.
pub(crate) const AGENT: &str = "agents/orchestrator/";
/// Precedes the id of a run in the name of its stream.
pub(crate) const RUN: &str = "runs/";
/// Precedes the path of a stream of another program.
pub(crate) const PUBLIC: &str = "streams/";
/// The name of the system's own stream.
pub(crate) const SYSTEM: &str = "system";
/// The maximum number of entries of a stream.
pub(crate) const MAX_ENTRIES: u64 = (1 << 32) - 1;

pub(crate) fn of_instance(instance: &str) -> String {
    [AGENT, instance].concat()
}

pub(crate) fn of_run(id: &str) -> String {
    [RUN, id].concat()
}

/// Returns the instance or the id of the run to which this stream belongs.
pub(crate) fn instance(stream: &str) -> &str {
    let instance = stream.strip_prefix(AGENT).or_else(|| stream.strip_prefix(RUN));
    instance.unwrap_or(stream)
}

/// Returns whether this is the instance of a run of a schedule.
pub(crate) fn is_scheduled(instance: &str) -> bool {
    instance.starts_with("schedule:")
}
