//! A timeout that costs nothing but a look at the clock while nothing waits.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timeout. Its timer is set only when a wait begins, and moved only if it would fire too late, so that a busy connection only
/// reads the clock.
#[derive(Default)]
pub(crate) struct LazyTimeout {
    since: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl LazyTimeout {
    pub(crate) fn end(&mut self) {
        self.since = None;
    }

    /// Whether the wait, which begins with the first call, has lasted for `limit`. If not, the task is woken when it has.
    pub(crate) fn is_over(&mut self, limit: Duration, cx: &mut Context<'_>) -> bool {
        let now = Instant::now();
        let deadline = *self.since.get_or_insert(now) + limit;
        if now < deadline {
            self.wake_at(deadline, now, cx);
        }
        now >= deadline
    }

    fn wake_at(&mut self, deadline: Instant, now: Instant, cx: &mut Context<'_>) {
        let alarm = match &mut self.alarm {
            // The timer fires before the deadline, and then this function is called again.
            Some(alarm) if now < alarm.deadline() && alarm.deadline() <= deadline => return,
            Some(alarm) => {
                alarm.as_mut().reset(deadline);
                alarm
            }
            None => self.alarm.insert(Box::pin(sleep_until(deadline))),
        };
        if alarm.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }
}
