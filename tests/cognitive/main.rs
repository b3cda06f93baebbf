//! ken-cognitive over HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cognitive_isolation;
mod cognitive_server;
