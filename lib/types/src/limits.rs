//! The limits of the wire and of the HTTP contract. The name or the comment gives the unit.

/// The maximum length of a line on the wire, including its LF (ken-wire(5)).
pub const WIRE_LINE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum number of open requests of a wire connection.
pub const WIRE_OPEN_REQUESTS: usize = 64;
/// The maximum number of connections to a wire socket.
pub const WIRE_CONNECTIONS: usize = 256;
/// The default deadline of a wire request, and the longest that a request may set.
pub const WIRE_DEADLINE_MS: u64 = 10_000;
pub const WIRE_DEADLINE_MAX_MS: u64 = 600_000;

/// The maximum nesting of a tool call's arguments. They are part of messages and events, which a line of the wire can
/// nest up to 64 levels deep.
pub const ARGUMENTS_DEPTH: usize = 48;
/// The maximum size of a prompt's text.
pub const PROMPT_BYTES: usize = 256 * 1024;
/// The maximum number of images of a prompt, and of base64 characters of each.
pub const IMAGES: usize = 8;
pub const IMAGE_CHARACTERS: usize = 14_680_064;
/// The maximum size of a blob, of a piece of it on the wire, and of all blobs of a store together.
pub const BLOB_BYTES: u64 = 16 * 1024 * 1024;
pub const PIECE_BYTES: usize = 1024 * 1024;
pub const BLOBS_BYTES: u64 = 1024 * 1024 * 1024;
/// The maximum size of an event in an agent's stream. Longer results are shortened, with a note.
pub const EVENT_BYTES: usize = 256 * 1024;
/// The maximum number of prompts that wait in one instance.
pub const WAITING_PROMPTS: u64 = 256;
/// The number of times that a submission is claimed before it fails.
pub const CLAIMS: u32 = 10;
/// The maximum time from the first claim of a submission to its end, not counting the time it waits for a decision.
pub const SUBMISSION_MS: i64 = 3_600_000;
/// The maximum number of running workflow runs, and of waiting ones.
pub const RUNS: u64 = 32;
pub const WAITING_RUNS: u64 = 1_000;
/// The maximum size of the payload of a run and of its result, each as JSON text.
pub const RUN_BYTES: usize = 1024 * 1024;
/// The maximum number of runs on a page.
pub const PAGE_RUNS: u32 = 1_000;
/// The maximum length of the id of a run whose changes of files can be shown and undone.
pub const FILES_RUN_BYTES: usize = 64;
/// How long a lease lasts if it is not renewed, and how often its holder renews it.
pub const LEASE_MS: i64 = 30_000;
pub const LEASE_RENEW_MS: u64 = 10_000;

/// The maximum size of a page of a stream. A page has at least one event, however large that is.
pub const PAGE_EVENTS: u32 = 100;
pub const PAGE_BYTES: usize = 1024 * 1024;
/// The maximum size of an append to a stream below `streams/`, and of the path of the stream.
pub const APPEND_BYTES: usize = 1024 * 1024;
pub const STREAM_PATH_BYTES: usize = 512;
pub const STREAM_PATH_SEGMENTS: usize = 8;
/// The maximum length of the id of a producer in bytes. PostgreSQL has no index over more than 2,704 bytes.
pub const PRODUCER_ID_BYTES: usize = 1_024;
/// The maximum time that a long poll waits.
pub const LONG_POLL_MS: u64 = 30_000;

/// The maximum length of an identity field or a free context field, in characters.
pub const IDENTITY_CHARACTERS: usize = 256;
/// The maximum length of an explicit session name, in characters.
pub const NAME_CHARACTERS: usize = 120;
/// The maximum length of an automatic title. A longer one is cut to this length, including `...` at its end.
pub const TITLE_CHARACTERS: usize = 80;
/// The maximum length of an instance id.
pub const INSTANCE_BYTES: usize = 1_024;

/// The maximum sizes of a knowledge entry.
pub const KNOWLEDGE_TITLE_CHARACTERS: usize = 200;
pub const KNOWLEDGE_CONTENT_BYTES: usize = 512 * 1024;
pub const KNOWLEDGE_TAGS: usize = 32;
pub const KNOWLEDGE_TAG_CHARACTERS: usize = 64;

/// The minimum time that system events are kept.
pub const SYSTEM_EVENTS_MS: i64 = 7 * 24 * 3_600_000;

/// How long the response to a request with an idempotency key is kept.
pub const KEY_MS: i64 = 24 * 3_600_000;
pub const KEY_CHARACTERS: usize = 255;
