//! The wall clock: reads the time, and sleeps until a given time without polling.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};

use ken_types::clock::next_look;
use ken_types::{Error, Timestamp};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The wall clock, and a kernel timer that follows it. If the store is on a server, the clock that counts is that of the server: the hosts
/// that share it need not agree about the time. The timer also works if the clock is set or the machine is
/// suspended.
#[derive(Debug)]
pub(crate) struct WallClock {
    timer: AsyncFd<OwnedFd>,
    /// How far the clock that counts is ahead of that of the system, in milliseconds.
    ahead: AtomicI64,
}

/// The smallest difference that matters, in milliseconds. Smaller ones come from the time that a call takes.
const MIN_DIFFERENCE_MS: i64 = 250;

impl WallClock {
    /// Opens the timer. Must be called inside the async runtime.
    pub(crate) fn new() -> Result<WallClock, Error> {
        let no_timer = |error: io::Error| Error::internal(format!("no timer: {error}"));
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|errno| no_timer(errno.into()))?;
        #[expect(deprecated, reason = "the new constructor is unsafe, and an owned descriptor needs none of its care")]
        let timer = AsyncFd::new(timer).map_err(no_timer)?;
        Ok(WallClock { timer, ahead: AtomicI64::new(0) })
    }

    pub(crate) fn now(&self) -> i64 {
        self.at(Timestamp::now().millis())
    }

    /// Returns what the clock has shown at a time of the system's clock.
    pub(crate) fn at(&self, system: i64) -> i64 {
        system + self.ahead.load(Ordering::Relaxed)
    }

    /// Follows the clock of a server, which has shown `now` when that of the system has shown `here`. Returns whether this sets the clock.
    pub(crate) fn follow(&self, now: i64, here: i64) -> bool {
        let ahead = if (now - here).abs() < MIN_DIFFERENCE_MS { 0 } else { now - here };
        let is_set = (ahead - self.ahead.load(Ordering::Relaxed)).abs() >= MIN_DIFFERENCE_MS;
        if is_set {
            self.ahead.store(ahead, Ordering::Relaxed);
        }
        is_set
    }

    /// Resolves when the clock reaches `at`, in milliseconds since the epoch, or when the clock is set; without a time,
    /// only when the clock is set.
    pub(crate) async fn reach(&self, at: Option<i64>) -> io::Result<()> {
        const NEVER_MS: i64 = 253_402_300_799_000; // the year 9999
        let at = at.map(|at| at - self.ahead.load(Ordering::Relaxed));
        let at = at.map_or(NEVER_MS, |at| next_look(at, Timestamp::of_system().millis())).clamp(1, NEVER_MS);
        let spec = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec { tv_sec: at / 1_000, tv_nsec: at % 1_000 * 1_000_000 },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&self.timer, flags, &spec)?;
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            let read = |timer: &AsyncFd<OwnedFd>| rustix::io::read(timer, &mut expirations).map_err(io::Error::from);
            match ready.try_io(read) {
                Ok(Ok(_)) => return Ok(()),
                // The clock was set.
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error()) => {
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }
}
