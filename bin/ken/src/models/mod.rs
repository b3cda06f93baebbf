//! The models of the system, as a person sets them up: `ken model add`, `ken model use` and `ken setup` write ken.toml and
//! secrets.env, and try what they have written.

pub(crate) mod change;
pub(crate) mod command;
pub(crate) mod config_file;
pub(crate) mod running;
pub(crate) mod secret_file;
pub(crate) mod setup;
pub(crate) mod trial;
