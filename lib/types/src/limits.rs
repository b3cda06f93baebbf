//! The limits of the contract, each in one place. Units are in the name or the comment.

/// One line on a wire, its LF included (ken-wire(5)).
pub const WIRE_LINE_BYTES: usize = 4 * 1024 * 1024;
/// Open requests a wire connection.
pub const WIRE_OPEN_REQUESTS: usize = 64;
/// Connections a wire socket.
pub const WIRE_CONNECTIONS: usize = 256;
/// The deadline of a wire request that names none, and the longest it may name.
pub const WIRE_DEADLINE_MS: u64 = 10_000;
pub const WIRE_DEADLINE_MAX_MS: u64 = 600_000;

/// The text of a prompt.
pub const PROMPT_BYTES: usize = 256 * 1024;
/// A prompt's images, and the base64 characters of each.
pub const IMAGES: usize = 8;
pub const IMAGE_CHARACTERS: usize = 14_680_064;
/// A blob, one piece of it on the wire, and all blobs of a store.
pub const BLOB_BYTES: u64 = 16 * 1024 * 1024;
pub const PIECE_BYTES: usize = 1024 * 1024;
pub const BLOBS_BYTES: u64 = 1024 * 1024 * 1024;
/// One event of an agent's stream; longer results are cut and say so.
pub const EVENT_BYTES: usize = 256 * 1024;
/// Prompts that wait in one instance.
pub const WAITING_PROMPTS: u64 = 256;
/// Claims of one submission before it is given up.
pub const CLAIMS: u32 = 10;
/// From the first claim of a submission to its end, without the time spent waiting for a decision.
pub const SUBMISSION_MS: i64 = 3_600_000;
/// Runs of workflows at a time, and how many more may wait.
pub const RUNS: u64 = 32;
pub const WAITING_RUNS: u64 = 1_000;
/// The payload and the result of a run, each as JSON text.
pub const RUN_BYTES: usize = 1024 * 1024;
/// The longest page of runs.
pub const PAGE_RUNS: u32 = 1_000;
/// How long a holder may be silent, and how often it says that it lives.
pub const LEASE_MS: i64 = 30_000;
pub const LEASE_RENEW_MS: u64 = 10_000;

/// A page of a stream: at most so many events and bytes, and at least one event.
pub const PAGE_EVENTS: u32 = 100;
pub const PAGE_BYTES: usize = 1024 * 1024;
/// One append to a stream below `streams/`, in bytes; its path, in bytes and segments.
pub const APPEND_BYTES: usize = 1024 * 1024;
pub const STREAM_PATH_BYTES: usize = 512;
pub const STREAM_PATH_SEGMENTS: usize = 8;
/// The longest that one long poll waits.
pub const LONG_POLL_MS: u64 = 30_000;

/// Identity fields and free context fields, in characters.
pub const IDENTITY_CHARACTERS: usize = 256;
/// An explicit session name, in characters.
pub const NAME_CHARACTERS: usize = 120;
/// An automatic title; a longer one is cut to three less and `...`.
pub const TITLE_CHARACTERS: usize = 80;
/// An instance id.
pub const INSTANCE_BYTES: usize = 1_024;

/// A knowledge entry.
pub const KNOWLEDGE_TITLE_CHARACTERS: usize = 200;
pub const KNOWLEDGE_CONTENT_BYTES: usize = 512 * 1024;
pub const KNOWLEDGE_TAGS: usize = 32;
pub const KNOWLEDGE_TAG_CHARACTERS: usize = 64;

/// How long events of the system's own stream are kept at least.
pub const SYSTEM_EVENTS_MS: i64 = 7 * 24 * 3_600_000;

/// How long the answer to an idempotency key is kept.
pub const KEY_MS: i64 = 24 * 3_600_000;
pub const KEY_CHARACTERS: usize = 255;
