//! The interface of OpenAI, for the programs that speak it: a translation of messages to prompts of a session, and of the events of a
//! turn to answers. Which session a caller means, and which turn a repeated request means, is decided in the store.

mod accept;
mod answer;
pub(crate) mod chat;
mod completions;
pub(crate) mod error;
mod input;
pub(crate) mod models;
mod params;
mod raw;
pub(crate) mod responses;
mod sending;
mod tools;
mod turn;
