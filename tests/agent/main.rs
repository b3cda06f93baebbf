//! ken-agent and ken-model: turns, tools, providers, budgets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::duplicate_mod)]

mod agent_tools;
mod agent_turns;
mod agent_workers;
mod bad_answers;
mod budget;
mod dialects;
mod documents;
mod first_answer;
mod governing_rules;
mod local_model;
mod outputs;
mod outside;
mod providers;
mod replay;
mod skills;
mod telemetry_export;
mod turn_kills;
