//! The audit log of ken: JSON lines, each with the hash of the one before it (ken-audit(5)).
//!
//! [`Record`] is an event, [`Link`] the state of the chain. [`Trail`] appends records to files that rotate daily and are synced
//! before it returns; [`verify()`] follows the chain through files and names the first record that was changed. Both are
//! synchronous: a server needs a thread and a queue in front of them.

mod chain;
mod head;
mod record;
mod trail;
mod verify;

pub use chain::{Fault, Link};
pub use record::Record;
pub use trail::{FILE, KEPT, Trail, files};
pub use verify::{Bad, Verified, verify};
