//! The pages and what they show.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod examples;
mod manual_pages;
mod prose;
