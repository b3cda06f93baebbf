//! ken-web: web search and page fetch as filters. It reaches public addresses only, limits everything, and prints text
//! from the web as data. See ken-web(1).

mod address;
mod cache;
mod charset;
mod commands;
mod fetch;
mod http;
mod page_text;
mod plan;
mod rank;
mod research;
mod robots;
mod search;
mod source;
mod web;
mod words;

use std::process::ExitCode;

use ken_tool::Filter;

use crate::commands::{Fetch, Research, Search};

const ABOUT: &str = "Search the web and fetch pages; only public addresses are reached";

fn main() -> ExitCode {
    let words = words::to_json(std::env::args_os().skip(1).collect());
    match words.first().and_then(|word| word.to_str()) {
        Some("search") => ken_tool::subcommand_of::<Search>(words),
        Some("fetch") => ken_tool::subcommand_of::<Fetch>(words),
        Some("research") => ken_tool::subcommand_of::<Research>(words),
        // This program itself starts this command, for each page.
        Some(page_text::RENDER) => page_text::render_input(),
        _ => ken_tool::front(
            "ken-web",
            ABOUT,
            &[("search", Search::ABOUT), ("fetch", Fetch::ABOUT), ("research", Research::ABOUT)],
        ),
    }
}
