//! The gateway's HTTP client: requests that survive restarts, chat, sessions, and streams by long poll and SSE.
//!
//! Blocking, for programs that do one thing at a time. A [`Gateway`] repeats a request while nobody can say what became of
//! it, with the same `Idempotency-Key`, so that nothing is done twice. A stream is read on from the last offset after a
//! broken connection: nothing is lost and nothing comes twice.
//!
//! ```no_run
//! # use ken_client::{Endpoint, Gateway, chat::{Identity, Prompt}};
//! # fn main() -> Result<(), ken_types::Error> {
//! let mut gateway = Gateway::at(Endpoint::new("http://127.0.0.1:3940"))?;
//! let prompt = Prompt::new(Identity::local(), "Which hosts are down?");
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
mod live_text;
mod stream;

pub use endpoint::{Endpoint, Secret};
pub use events::Events;
pub use gateway::{Answer, Gateway, Method};
pub use live_text::LiveText;
pub use stream::{Page, Reader, is_json};
