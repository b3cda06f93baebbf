//! The messenger and the scheduler.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod messenger;
mod schedules;
