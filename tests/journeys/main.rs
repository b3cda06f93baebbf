//! What a person does from end to end, one file for each journey of the first week.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod absent_standby;
mod approval;
mod bad_day;
mod console;
mod database_faults;
mod database_server;
mod first_model;
mod forget;
mod gate;
mod habits;
mod mcp_by_the_book;
mod my_repository;
mod phone;
mod pipe;
mod prompt_cache;
mod provider_dies;
mod several_hosts;
mod several_models;
mod several_users;
mod tomorrow_at_nine;
mod what_it_did;
