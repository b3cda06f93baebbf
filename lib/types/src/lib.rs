//! Every record and message of ken as plain serde types: ids, limits, error codes, and the operations that the parts
//! call on each other. Only [`share`] does I/O: it looks for folders; [`clock`] reads the environment. A parsed value is always valid.

pub mod address;
pub mod clock;
pub mod config;
pub mod control_group;
pub mod engine;
pub mod error;
pub mod event;
pub mod fence;
pub mod hex;
pub mod id;
pub mod json;
pub mod limits;
pub mod live_text;
pub mod octets;
pub mod offset;
pub mod ops;
pub mod places;
pub mod providers;
pub mod proxy;
pub mod rate;
pub mod rule;
pub mod secrets;
pub mod share;
pub mod sse;
pub mod time;
pub mod uri;

pub use engine::{Engine, VectorModel};
pub use error::{Code, Error, Outcome};
pub use octets::Octets;
pub use offset::Offset;
pub use rate::Rate;
pub use time::Timestamp;
