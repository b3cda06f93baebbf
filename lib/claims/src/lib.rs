//! Claims work from the store: turns (ken-agent) and runs of workflows (ken-cognitive).
//!
//! A holder starts one [`Claiming`] with a [`Worker`]. Its leases belong to its connection; what it does not finish,
//! because it was killed or stopped, is claimed by the next holder. [`Run`] is a claimed run: what an earlier holder
//! has recorded of it, and how this one records its steps and its end.

mod claiming;
mod leases;
mod patience;
mod run;

pub use claiming::{Claiming, Held, Worker};
pub use patience::patiently;
pub use run::{Recorded, Run};
