//! The operations that the parts call on each other, as types: what goes in, what comes back, under which name.
//!
//! Caller and callee share these, so a call that compiles fits. Arguments and replies are `snake_case`, as the
//! envelope of ken-wire(5) is; records that the HTTP contract shows (sessions, events, knowledge) keep its
//! `camelCase`. Arguments refuse unknown fields; replies may grow.
//!
//! Every operation here may be repeated after a lost connection: reads by nature, writes because the caller mints the
//! ids (or the content does) and the store answers an id that it knows as it did the first time.

pub mod blobs;
pub mod call;
pub mod cognitive;
pub mod kend;
pub mod model;
pub mod runs;
pub mod service;
pub mod store;
pub mod streams;
pub mod tools;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One operation of one part.
pub trait Op: 'static {
    /// `noun.verb`, unique within its part.
    const NAME: &'static str;
    type Args: Serialize + DeserializeOwned + Send + 'static;
    /// The final line's `ok`.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// What is streamed before the final line; [`NoItem`] for most.
    type Item: Serialize + DeserializeOwned + Send + 'static;
}

/// The item of an operation that streams nothing: no value of it exists.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub enum NoItem {}

/// The arguments of an operation that takes none, and the reply of one that tells nothing: `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Declares operations: `Name, "noun.verb": Args => Reply;` or `… => Reply, items Item;`.
#[macro_export]
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident, $text:literal: $args:ty => $reply:ty $(, items $item:ty)?;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub enum $name {}

            impl $crate::ops::Op for $name {
                const NAME: &'static str = $text;
                type Args = $args;
                type Reply = $reply;
                type Item = $crate::operations!(@item $($item)?);
            }
        )+
    };
    (@item) => { $crate::ops::NoItem };
    (@item $item:ty) => { $item };
}
