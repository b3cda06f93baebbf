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
        elapsed_ms(self.start)
    }
}

/// The clock of the database server, because the clocks of the hosts that share it can differ. Until the server has answered, the wall clock
/// is that of this machine.
#[derive(Debug)]
pub struct ServerClock {
    start: Instant,
    /// What the server's clock showed at the start.
    start_ms: AtomicI64,
}

impl ServerClock {
    /// Sets the clock by the answer of the server, which has just come.
    pub(crate) fn set(&self, now: Timestamp) {
        self.start_ms.store(now.millis() - self.elapsed_ms(), Ordering::Relaxed);
    }
}

impl Default for ServerClock {
    fn default() -> ServerClock {
        ServerClock { start: Instant::now(), start_ms: AtomicI64::new(Timestamp::now().millis()) }
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.start_ms.load(Ordering::Relaxed) + self.elapsed_ms())
    }

    fn elapsed_ms(&self) -> i64 {
        elapsed_ms(self.start)
    }
}

fn elapsed_ms(start: Instant) -> i64 {
    i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX)
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
