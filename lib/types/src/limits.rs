//! The limits of the wire and of the HTTP contract. The unit is in the name or in the comment.

/// The longest line on a wire, including its LF (ken-wire(5)).
pub const WIRE_LINE_BYTES: usize = 4 * 1024 * 1024;
/// The open requests of one wire connection.
pub const WIRE_OPEN_REQUESTS: usize = 64;
/// The connections to one wire socket.
pub const WIRE_CONNECTIONS: usize = 256;
/// The default deadline of a wire request, and the longest that it may ask for.
pub const WIRE_DEADLINE_MS: u64 = 10_000;
pub const WIRE_DEADLINE_MAX_MS: u64 = 600_000;

/// The longest text of a prompt.
pub const PROMPT_BYTES: usize = 256 * 1024;
/// The number of images of a prompt, and the base64 characters of each.
pub const IMAGES: usize = 8;
pub const IMAGE_CHARACTERS: usize = 14_680_064;
/// The largest blob, the largest piece of it on the wire, and the size of all blobs of a store.
pub const BLOB_BYTES: u64 = 16 * 1024 * 1024;
pub const PIECE_BYTES: usize = 1024 * 1024;
pub const BLOBS_BYTES: u64 = 1024 * 1024 * 1024;
/// The largest event of an agent's stream. Longer results are cut and say so.
pub const EVENT_BYTES: usize = 256 * 1024;
/// The prompts that may wait in one instance.
pub const WAITING_PROMPTS: u64 = 256;
/// The number of times that a submission is claimed before it fails.
pub const CLAIMS: u32 = 10;
/// The longest time from the first claim of a submission to its end, not counting the time it waits for a decision.
pub const SUBMISSION_MS: i64 = 3_600_000;
/// The number of workflow runs at a time, and how many more may wait.
pub const RUNS: u64 = 32;
pub const WAITING_RUNS: u64 = 1_000;
/// The payload and the result of a run, each as JSON text.
pub const RUN_BYTES: usize = 1024 * 1024;
/// The longest page of runs.
pub const PAGE_RUNS: u32 = 1_000;
/// How long a lease lasts without renewal, and how often its holder renews it.
pub const LEASE_MS: i64 = 30_000;
pub const LEASE_RENEW_MS: u64 = 10_000;

/// The largest page of a stream. A page has at least one event, however large.
pub const PAGE_EVENTS: u32 = 100;
pub const PAGE_BYTES: usize = 1024 * 1024;
/// The largest append to a stream below `streams/`, and the longest path of such a stream.
pub const APPEND_BYTES: usize = 1024 * 1024;
pub const STREAM_PATH_BYTES: usize = 512;
pub const STREAM_PATH_SEGMENTS: usize = 8;
/// The longest time that a long poll waits.
pub const LONG_POLL_MS: u64 = 30_000;

/// The longest identity field or free context field, in characters.
pub const IDENTITY_CHARACTERS: usize = 256;
/// The longest explicit session name, in characters.
pub const NAME_CHARACTERS: usize = 120;
/// The longest automatic title. A longer one is cut to three characters less, followed by `...`.
pub const TITLE_CHARACTERS: usize = 80;
/// The longest instance id.
pub const INSTANCE_BYTES: usize = 1_024;

/// The limits of a knowledge entry.
pub const KNOWLEDGE_TITLE_CHARACTERS: usize = 200;
pub const KNOWLEDGE_CONTENT_BYTES: usize = 512 * 1024;
pub const KNOWLEDGE_TAGS: usize = 32;
pub const KNOWLEDGE_TAG_CHARACTERS: usize = 64;

/// How long system events are kept at least.
pub const SYSTEM_EVENTS_MS: i64 = 7 * 24 * 3_600_000;

/// How long the response of an idempotency key is kept.
pub const KEY_MS: i64 = 24 * 3_600_000;
pub const KEY_CHARACTERS: usize = 255;
