//! Work from the store, for whoever can do some of it: turns (ken-agent) and runs of workflows (ken-cognitive).
//!
//! A holder starts one [`Claiming`] with a [`Worker`]. Whatever it claims belongs to its connection; what it does not
//! end, because it was killed or stopped, is claimed by the next one. [`Run`] is a claimed run: what an earlier holder
//! has recorded of it, and how this one records its steps and its end.

mod claiming;
mod leases;
mod patience;
mod run;

pub use claiming::{Claiming, Held, Worker};
pub use patience::patiently;
pub use run::{Recorded, Run};
