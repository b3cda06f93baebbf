//! Ctrl+C while a program follows a turn.

use std::cell::Cell;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ken_types::Error;
use signal_hook::consts::SIGINT;
use signal_hook::flag::{register, register_conditional_default};
use signal_hook::low_level::emulate_default_handler;

/// Ends the program by SIGINT, as if it had not been caught. A shell takes an exit status, also one of 130, as a sign that the program has
/// used the key for itself, as an editor does, and goes on with its loop or script.
pub fn end() -> ExitCode {
    _ = emulate_default_handler(SIGINT);
    // This is what a shell reports for that end.
    ExitCode::from(130)
}

/// Whether Ctrl+C ends the program. It does until a prompt is sent; then the first one is for the turn, and the second one ends
/// the program.
#[derive(Debug)]
pub struct Interrupt {
    ends: Arc<AtomicBool>,
    was_for_turn: Cell<bool>,
}

impl Interrupt {
    /// Catches Ctrl+C from now on.
    ///
    /// # Errors
    /// `internal` if the signal cannot be caught.
    pub fn catch() -> Result<Interrupt, Error> {
        let ends = Arc::new(AtomicBool::new(true));
        let failed = |error: io::Error| Error::internal(format!("Ctrl+C cannot be caught: {error}"));
        // In this order, so that one signal does not both set the flag and act on it.
        register_conditional_default(SIGINT, Arc::clone(&ends)).map_err(failed)?;
        register(SIGINT, Arc::clone(&ends)).map_err(failed)?;
        Ok(Interrupt { ends, was_for_turn: Cell::new(false) })
    }

    /// From now on, the next Ctrl+C is for the turn.
    pub fn turn_begins(&self) {
        self.ends.store(false, Ordering::Relaxed);
    }

    /// From now on, Ctrl+C ends the program. One that nobody has taken was for the turn, too.
    pub fn turn_ends(&self) {
        _ = self.take();
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Whether Ctrl+C was pressed during the turn, for another thread.
    pub fn pressed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ends)
    }

    /// Returns true once after Ctrl+C was pressed during the turn.
    pub fn take(&self) -> bool {
        self.ends.load(Ordering::Relaxed) && !self.was_for_turn.replace(true)
    }

    /// Whether Ctrl+C was for the turn.
    pub fn was_for_turn(&self) -> bool {
        self.was_for_turn.get()
    }
}
