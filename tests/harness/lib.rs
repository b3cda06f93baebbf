//! Whole systems for tests: `ken up` with a temporary home and free ports, and a client that shows every byte.
//!
//! Everything ends with the test: a [`System`] that is dropped kills its processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../doubles/bot_api.rs"]
pub mod bot_api;
mod browser;
mod chance;
mod cognitive;
#[path = "../doubles/connect_proxy.rs"]
pub mod connect_proxy;
mod contract;
mod disk;
mod events;
mod filter;
mod http;
mod keyboard;
mod mounts;
#[path = "../doubles/npm.rs"]
pub mod npm;
#[path = "../doubles/otlp.rs"]
pub mod otlp;
mod page;
#[path = "../doubles/pages.rs"]
pub mod pages;
mod port;
mod postgres;
#[path = "../doubles/prompt_cache.rs"]
pub mod prompt_cache;
#[path = "../doubles/provider.rs"]
pub mod provider;
mod relay;
mod skip;
mod sse;
mod system;
mod terminal;
#[path = "../doubles/tls.rs"]
pub mod tls;
#[path = "../doubles/wire_tap.rs"]
pub mod wire_tap;

pub use browser::{Browser, Tab, chromium};
pub use chance::{Random, number};
pub use cognitive::{Asker, KEY, chain, children_of, cognitive, limited_cognitive, private_kib, server_with};
pub use contract::Contract;
pub use disk::SmallDisk;
pub use events::kinds;
pub use filter::run_with_input;
pub use http::{Answer, Client, Exchange};
pub use keyboard::Terminal;
pub use mounts::in_own_mounts;
pub use page::{Example, Page, help_flags, root};
pub use port::free_port;
pub use postgres::{NO_POOLER, NO_POSTGRES, Pooler, Postgres};
pub use relay::{Cut, Relay};
pub use skip::skip;
pub use sse::{Frame, Stream};
pub use system::{Builder, System, binary, copy_program, scripted, scripted_builder, tui, until};
pub use terminal::on_terminal;
