//! Handles messages from all connectors. A message is a prompt or a command. For both, the event is stored and the
//! session is found or created in one transaction. Commands never reach a model.

mod command;
pub mod door;
mod ingress;
mod name;

pub use command::{COMMANDS, CommandName};
pub use ingress::{
    Connector, Effect, FORWARDED, Inbound, Ingress, Prepared, QUOTED, QUOTED_ID, Received, Reply, chosen_model,
};
