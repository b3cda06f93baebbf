//! The wall clock: reads the time, and sleeps until a given time without polling.

use std::io;
use std::os::fd::OwnedFd;

use ken_types::clock::next_look;
use ken_types::{Error, Timestamp};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// The wall clock, and a kernel timer that follows it. The timer also works if the clock is set or the machine is
/// suspended.
#[derive(Debug)]
pub(crate) struct WallClock {
    timer: AsyncFd<OwnedFd>,
}

impl WallClock {
    /// Opens the timer. Must be called inside the async runtime.
    pub(crate) fn new() -> Result<WallClock, Error> {
        let no_timer = |error: io::Error| Error::internal(format!("no timer: {error}"));
        let timer = timerfd_create(TimerfdClockId::Realtime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(|errno| no_timer(errno.into()))?;
        #[expect(deprecated, reason = "the new constructor is unsafe, and an owned descriptor needs none of its care")]
        let timer = AsyncFd::new(timer).map_err(no_timer)?;
        Ok(WallClock { timer })
    }

    pub(crate) fn now(&self) -> i64 {
        Timestamp::now().millis()
    }

    /// Resolves when the clock reaches `at`, in milliseconds since the epoch, or when the clock is set; without a time,
    /// only when the clock is set.
    pub(crate) async fn reach(&self, at: Option<i64>) -> io::Result<()> {
        const NEVER_MS: i64 = 253_402_300_799_000; // the year 9999
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
