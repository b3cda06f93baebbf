//! What the kernel does not let a process do: Landlock for files, TCP ports and signals, seccomp for system calls.
//!
//! `kend` and `lib/service` set the walls of each part (kend(8), "The walls of a part"): kend restricts the files before the
//! program runs, because the program itself is not trusted with that, and the part restricts its system calls before it reads
//! anything, because executing the program needs calls that the part must not have. `ken-sandbox` and `ken-coder` build the
//! walls around commands from the same pieces.

pub mod calls;
pub mod files;
pub mod kernel;
pub mod part;
