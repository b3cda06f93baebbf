//! GPT-2 text generation at nearly the memory bandwidth of the machine, and vectors of texts by BERT. See ken-textgen(1).

pub mod aliases;
pub mod attention;
pub mod cache;
pub mod check;
pub mod config;
pub mod embed;
pub mod generate;
pub mod load;
pub mod memory;
pub mod model;
pub mod plain;
pub mod product;
pub mod sample;
pub mod sidecar;
pub mod simd;
pub mod text;
pub mod threads;
pub mod vocabulary;
pub mod weights;
