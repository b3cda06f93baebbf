//! The limits of a listener, in bytes, counts and time.

use std::time::Duration;

/// The limits of one listener. [`Limits::default`] is the contract; tests shorten the times.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Maximum number of open connections (1 024). Above it, the one that has been idle for longest is closed in favour of a new
    /// one; if all have a request in progress, the new one gets 429. One in eight is reserved for callers with few connections.
    pub connections: usize,
    /// Of these, how many may be held by streams, long polls and waiting prompts (512).
    pub long_responses: usize,
    /// Request line and headers of one request, in bytes (16 KiB).
    pub head_bytes: usize,
    /// Header lines of one request (100, hyper's own limit, so not more).
    pub head_lines: usize,
    /// From the first byte of a request to the end of its headers (10 s).
    pub head_time: Duration,
    /// The longest pause inside a body (10 s).
    pub body_pause: Duration,
    /// The minimum rate at which a body must arrive, in bytes per second (1 KiB/s), measured over `body_rate_time`.
    pub body_rate: u64,
    /// How long a body may be slower than `body_rate` (60 s).
    pub body_rate_time: Duration,
    /// Memory for request bodies of more than 16 KiB, of all connections together, in bytes (64 MiB). One caller may
    /// have a quarter of it. Above that a request gets 429.
    pub body_memory: u64,
    /// How long a connection may be idle between requests, and before the first (60 s).
    pub idle: Duration,
    /// How long a reader may leave bytes unread (60 s).
    pub stalled_reader: Duration,
    /// How long bytes that arrive after the last response are discarded, so that closing does not destroy the response (2 s).
    pub linger: Duration,
    /// From the signal to stop to the end of the last connection (10 s).
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1_024,
            long_responses: 512,
            head_bytes: 16 << 10,
            head_lines: 100,
            head_time: Duration::from_secs(10),
            body_pause: Duration::from_secs(10),
            body_rate: 1 << 10,
            body_rate_time: Duration::from_secs(60),
            body_memory: 64 << 20,
            idle: Duration::from_secs(60),
            stalled_reader: Duration::from_secs(60),
            linger: Duration::from_secs(2),
            drain: Duration::from_secs(10),
        }
    }
}
