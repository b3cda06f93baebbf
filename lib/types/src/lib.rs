//! Every record and message of ken as plain serde types: ids, limits, the error table and the operations that the
//! parts call on each other. Nothing here does I/O; a type that parses has been checked.

pub mod error;
pub mod json;

pub use error::{Code, Error};
