//! The audit log of ken: JSON lines, each with the hash of the line before it (ken-audit(5)).
//!
//! [`Record`] is an event, and [`Link`] is the state of the chain. [`Trail`] appends records to files that rotate
//! daily, and returns when they are on the disk. [`verify()`] follows the chain through files and names the first
//! record that was changed. Both block the calling thread, so a server needs a thread and a queue in front of them.

mod chain;
mod head;
mod record;
mod trail;
mod verify;

pub use chain::{LineFault, Link};
pub use record::Record;
pub use trail::{FILE, MAX_OLD_FILES, Trail, files};
pub use verify::{BadRecord, Verified, verify};
