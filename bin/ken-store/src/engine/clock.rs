//! The clocks of the engine: that of the system, and one that tests advance.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use ken_types::Timestamp;

/// The source of time.
pub trait Clock: Send + Sync {
    /// Returns the wall-clock time, which is stored in records.
    fn now(&self) -> Timestamp;

    /// Returns the time since a fixed instant in milliseconds. It never goes back. Leases are measured with it.
    fn elapsed_ms(&self) -> i64;
}

/// The system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// A clock that only advances when a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    ms: AtomicI64,
}

impl ManualClock {
    pub fn at(start: Timestamp) -> ManualClock {
        ManualClock { ms: AtomicI64::new(start.millis()) }
    }

    pub fn advance(&self, ms: i64) {
        self.ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.elapsed_ms())
    }

    fn elapsed_ms(&self) -> i64 {
        self.ms.load(Ordering::SeqCst)
    }
}
