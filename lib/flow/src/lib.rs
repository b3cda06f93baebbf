//! Workflows over protocol tools; see ken-workflow(1) and ken-workflow(5).
//!
//! A [`Definition`] is a checked workflow, from a file of a [`Catalog`] or from names of protocols. An [`Engine`] runs it over
//! [`Data`]: each step sends one line to a tool and receives one line. The tool is a co-process, which is started when it is
//! needed and kept for later requests. Governance rates the result of each step and checks whether the results agree. An
//! [`Observer`] is informed of each step, and can replay results that were recorded before a crash.
//!
//! ```no_run
//! # async fn example() -> Result<(), ken_types::Error> {
//! use ken_flow::{Data, Engine, Protocols, Settings, Catalog};
//!
//! let protocols = Protocols::shipped();
//! let catalog = Catalog::usual(protocols.clone());
//! let engine = Engine::new(protocols, Settings::default());
//! let workflow = catalog.find("StandardReasoningWorkflow")?;
//! let data = Data::read(r#"{"user_input": "I am glad.", "facts": ["a"], "rules": [[["a"], "b"]]}"#)?;
//! let outcome = engine.run(&workflow, &data, engine.request()).await?;
//! println!("{}", serde_json::to_string(&outcome).unwrap_or_default());
//! # Ok(())
//! # }
//! ```

mod answer;
mod catalog;
mod coherence;
mod condition;
mod data;
mod definition;
mod engine;
mod governance;
mod input;
mod model;
mod node;
mod observer;
mod once;
mod outcome;
mod pool;
mod process;
mod progress;
mod protocol;
mod quality;
mod reference;
mod schema;
mod scope;
mod settings;
mod template;
mod tense;
mod tool;

pub use answer::Answer;
pub use catalog::{Catalog, load, load_named};
pub use data::Data;
pub use definition::{
    Definition, MAX_FILE_BYTES, MAX_ITEMS, MAX_NESTING, MAX_ROUNDS, MAX_STEPS, MAX_TIMEOUT_MS, Mode, Step,
};
pub use engine::{Engine, Request, recorded};
pub use observer::{Decision, Event, NoObserver, Observer, Pending, Recorded, StepEnd, StepName};
pub use once::{Limits, run_once};
pub use outcome::{Check, Coherence, Outcome, Results, Status, Summary};
pub use pool::{ENVIRONMENT, ToolState};
pub use process::MAX_ANSWER;
pub use protocol::{Kind, Protocol, Protocols};
pub use settings::{Governance, Settings};
pub use tool::Tool;
