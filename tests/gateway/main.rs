//! ken-gateway over HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod abuse;
mod access;
mod agent_streams;
mod agents;
mod chat;
mod console;
mod durable_streams;
mod event_reader;
mod idempotency;
mod knowledge;
mod mcp_server;
mod openai;
mod openapi;
mod proxy;
mod requests;
mod runs;
mod sessions;
mod stream_readers;
mod system_events;
mod telemetry;
mod transcript;
