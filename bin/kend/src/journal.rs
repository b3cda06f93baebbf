//! kend's own log: JSON lines in `kend.log`, as every part writes them. Warnings also go to standard error.

use std::io::Write;

use ken_types::Timestamp;
use serde::Serialize;

use crate::logs::Rotating;

pub(crate) struct Journal {
    pub(crate) out: Rotating,
}

#[derive(Serialize)]
struct Record<'a> {
    timestamp: Timestamp,
    level: &'static str,
    target: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<&'a str>,
    message: &'a str,
}

impl Journal {
    /// Logs an event.
    pub(crate) fn note(&mut self, part: Option<&str>, message: &str) {
        self.write("INFO", part, message);
    }

    /// Logs a warning, and prints it on standard error.
    pub(crate) fn warn(&mut self, part: Option<&str>, message: &str) {
        self.write("WARN", part, message);
        let name = part.map(|part| format!("{part} ")).unwrap_or_default();
        // In a single write: other processes may write there too.
        let _ = std::io::stderr().write_all(format!("kend: {name}{message}\n").as_bytes());
    }

    fn write(&mut self, level: &'static str, part: Option<&str>, message: &str) {
        let record = Record {
            timestamp: Timestamp::now(),
            level,
            target: "kend",
            part,
            message,
        };
        if let Ok(mut line) = serde_json::to_vec(&record) {
            line.push(b'\n');
            self.out.write(&line);
        }
    }
}
