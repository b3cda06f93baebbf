//! The operations that the parts call on each other, as types: name, arguments and reply.
//!
//! Caller and callee share these types, so they cannot disagree. Arguments and replies are in `snake_case`, like the
//! envelope of ken-wire(5). Records that the HTTP contract shows (sessions, events, knowledge) keep its `camelCase`. An
//! unknown field in arguments is an error; replies may get further fields in later versions.
//!
//! Every operation may be repeated after a lost connection. Read operations change nothing. For write operations, the
//! ids are created by the caller or follow from the content, and the store repeats its first reply for an id that it
//! knows.
//!
//! The first sentence of the comment on an operation says what the operation does or returns. Codes such as `conflict`
//! are those of its errors.

pub mod agent;
pub mod approvals;
pub mod blobs;
pub mod budget;
pub mod call;
pub mod cognitive;
pub mod documents;
pub mod gateway;
pub mod hosts;
pub mod ids;
pub mod kend;
pub mod messenger;
pub mod model;
pub mod outbox;
pub mod rules;
pub mod runs;
pub mod schedules;
pub mod service;
pub mod store;
pub mod streams;
pub mod telemetry;
pub mod texts;
pub mod tools;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An operation of a part.
pub trait Op: 'static {
    /// The name, `noun.verb`, unique within its part.
    const NAME: &'static str;
    type Args: Serialize + DeserializeOwned + Send + 'static;
    /// The value of `ok` in the final line.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// The items streamed before the final line; [`NoItem`] for most operations.
    type Item: Serialize + DeserializeOwned + Send + 'static;
}

/// The item type of operations that stream no items. It has no values.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum NoItem {}

/// The position of a page in its list. `after` is the cursor of the next page, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    pub limit: u32,
    pub has_more: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// The usual number of entries of a list.
fn fifty() -> u32 {
    50
}

/// Empty arguments or an empty reply: `{}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Declares an enum whose variants have names: `Variant = "name",`. The names are used in JSON, in the store and in
/// output for people.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* pub enum $type:ident { $($(#[$of_variant:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $type {
            $($(#[$of_variant])* #[serde(rename = $name)] $variant,)+
        }

        impl $type {
            pub const ALL: &[$type] = &[$($type::$variant),+];

            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }

            pub fn named(name: &str) -> Option<$type> {
                $type::ALL.iter().copied().find(|value| value.name() == name)
            }
        }
    };
}
