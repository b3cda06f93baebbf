//! Claims work from the store: turns (ken-agent) and runs of workflows (ken-cognitive).
//!
//! A holder starts one [`Claimer`] with a [`Worker`]. Its leases belong to its connection. If it is killed or stopped,
//! another holder claims the work that it did not finish. [`Run`] is a claimed run of a workflow: it contains what
//! earlier holders have recorded, and records the steps and the end of the run.

mod claiming;
mod leases;
mod patience;
mod run;

pub use claiming::{Claimer, Held, Worker};
pub use patience::call_until_answered;
pub use run::{Recorded, Run};
