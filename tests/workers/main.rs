//! The workers and what they may do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod absent_servers;
mod approvals;
mod coding;
mod mcp;
mod research;
mod shown;
mod tools;
