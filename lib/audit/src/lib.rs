//! The audit log of ken: JSON lines, each with the hash of the one before it (ken-audit(5)).
//!
//! [`Record`] is what happened, [`Link`] where the chain stands. [`Trail`] appends records to files that rotate by day
//! and are synced before it returns; [`verify()`] follows the chain through files and names the first record that is not
//! what was written. Both are synchronous; whoever serves many callers puts a thread and a queue in front.

mod chain;
mod head;
mod record;
mod trail;
mod verify;

pub use chain::{Fault, Link};
pub use record::Record;
pub use trail::{FILE, KEPT, Trail, files};
pub use verify::{Bad, Verified, verify};
