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

use crate::{Error, json};

/// An operation of a part, declared with [`operations!`](crate::operations). Its functions are compiled once, in the crate that declares
/// it. If they were generic, each program would compile the conversions of all operations that it calls or answers. They are behind
/// the feature `wire`, because they take longer to compile than the rest of this crate, and programs without an asynchronous client or server
/// do not use them.
pub trait Op: 'static {
    /// The name, `noun.verb`, unique within its part.
    const NAME: &'static str;
    type Args: Serialize + DeserializeOwned + Send + 'static;
    /// The value of `ok` in the final line.
    type Reply: Serialize + DeserializeOwned + Send + 'static;
    /// The items streamed before the final line; [`NoItem`] for most operations.
    type Item: Serialize + DeserializeOwned + Send + 'static;

    /// Appends the arguments as JSON.
    #[cfg(feature = "wire")]
    fn write_args(args: &Self::Args, to: &mut Vec<u8>) -> Json<()>;
    /// Parses arguments. An error names the field as a JSON pointer below `/args`.
    #[cfg(feature = "wire")]
    fn read_args(text: &str) -> Result<Self::Args, Error>;
    #[cfg(feature = "wire")]
    fn write_reply(reply: &Self::Reply, to: &mut Vec<u8>) -> Json<()>;
    #[cfg(feature = "wire")]
    fn read_reply(text: &str) -> Json<Self::Reply>;
    #[cfg(feature = "wire")]
    fn write_item(item: &Self::Item, to: &mut Vec<u8>) -> Json<()>;
    #[cfg(feature = "wire")]
    fn read_item(text: &str) -> Json<Self::Item>;
}

/// The result of a conversion from or to JSON.
pub type Json<T> = serde_json::Result<T>;

/// Appends a value as JSON.
pub fn write(value: &impl Serialize, to: &mut Vec<u8>) -> Json<()> {
    serde_json::to_writer(to, value)
}

/// Parses a value.
pub fn read<T: DeserializeOwned>(text: &str) -> Json<T> {
    serde_json::from_str(text)
}

/// Parses arguments. An error names the field as a JSON pointer below `/args`.
pub fn read_args<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    // The slower parser knows the place of an error.
    read(text).or_else(|_| {
        let parsed = json::parse(text.as_bytes(), json::MAX_DEPTH).and_then(json::from_value);
        parsed.map_err(|error| Error { at: Some(format!("/args{}", error.at.unwrap_or_default())), ..error })
    })
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

                $crate::conversions!();
            }
        )+
    };
    (@item) => { $crate::ops::NoItem };
    (@item $item:ty) => { $item };
}

/// The functions of [`Op`]. A macro, because the feature is that of this crate, wherever operations are declared.
#[cfg(feature = "wire")]
#[doc(hidden)]
#[macro_export]
macro_rules! conversions {
    () => {
        fn write_args(args: &Self::Args, to: &mut Vec<u8>) -> $crate::ops::Json<()> {
            $crate::ops::write(args, to)
        }

        fn read_args(text: &str) -> Result<Self::Args, $crate::Error> {
            $crate::ops::read_args(text)
        }

        fn write_reply(reply: &Self::Reply, to: &mut Vec<u8>) -> $crate::ops::Json<()> {
            $crate::ops::write(reply, to)
        }

        fn read_reply(text: &str) -> $crate::ops::Json<Self::Reply> {
            $crate::ops::read(text)
        }

        fn write_item(item: &Self::Item, to: &mut Vec<u8>) -> $crate::ops::Json<()> {
            $crate::ops::write(item, to)
        }

        fn read_item(text: &str) -> $crate::ops::Json<Self::Item> {
            $crate::ops::read(text)
        }
    };
}

#[cfg(not(feature = "wire"))]
#[doc(hidden)]
#[macro_export]
macro_rules! conversions {
    () => {};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_argument_is_named() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Args {
            #[allow(dead_code)]
            limit: u32,
        }
        assert!(read_args::<Args>(r#"{"limit":1}"#).is_ok());
        for (text, at) in
            [("{}", "/args/limit"), (r#"{"limit":"a"}"#, "/args/limit"), (r#"{"limit":1,"x":2}"#, "/args/x")]
        {
            assert_eq!(read_args::<Args>(text).unwrap_err().at.as_deref(), Some(at), "{text}");
        }
    }
}
