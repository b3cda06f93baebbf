//! What happens to a message that came in, from any connector. The text is a prompt or a command; either way the
//! event is stored first, and the session is found or made in the same transaction. Commands never reach a model.

mod command;
mod ingress;
mod name;

pub use command::{COMMANDS, Command, CommandName};
pub use ingress::{Connector, Done, Inbound, Ingress, Received, Reply};
pub use name::check_name;
