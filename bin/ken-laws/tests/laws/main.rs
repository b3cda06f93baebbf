//! Black-box tests of ken-laws. Each one runs the real binary.
#![allow(clippy::unwrap_used, clippy::panic)]

mod black_box;
mod evidence;
mod planted;
mod program;
mod properties;
mod readable;
mod set;
mod sources;
