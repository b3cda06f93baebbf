//! The gateway's HTTP client: requests that survive restarts, chat, sessions, and streams by long poll and SSE.
//!
//! All calls block. A [`Gateway`] repeats a request while its outcome is unknown, with the same `Idempotency-Key`, so that
//! nothing is done twice. After a broken connection a stream is read from the last offset: no event is lost or
//! repeated.
//!
//! ```no_run
//! # use ken_client::{Endpoint, Gateway, chat::Prompt};
//! # fn main() -> Result<(), ken_types::Error> {
//! let mut gateway = Gateway::at(Endpoint::new("http://127.0.0.1:3940"))?;
//! let prompt = Prompt { text: "Which hosts are down?".into(), ..Prompt::default() };
//! let accepted = gateway.chat(&prompt)?;
//! if let Some(turn) = accepted.turn() {
//!     let mut events = gateway.events(&turn.stream, &turn.offset);
//!     while let Some(batch) = events.next(None)? {
//!         for event in batch { println!("{event}"); }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod approvals;
pub mod chat;
mod endpoint;
mod events;
mod gateway;
mod history;
pub mod interrupt;
pub mod lines;
pub mod piped;
mod stream;
mod system;
pub mod workspace;

pub use endpoint::{Endpoint, Secret};
pub use events::Events;
pub use gateway::{CompleteResponse, Gateway, Method, OpenResponse};
pub use history::History;
pub use ken_types::live_text::{LiveText, message_text, progress_line, source_lines};
pub use stream::{Page, Reader, is_json};
pub use system::{gateway_url, start_hint};
