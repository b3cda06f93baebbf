//! kend's own log: JSON lines like every part's, in `kend.log`. What a person must see also goes to standard error.

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
    /// What happened.
    pub(crate) fn note(&mut self, part: Option<&str>, message: &str) {
        self.write("INFO", part, message);
    }

    /// What went wrong.
    pub(crate) fn warn(&mut self, part: Option<&str>, message: &str) {
        self.write("WARN", part, message);
        let name = part.map(|part| format!("{part} ")).unwrap_or_default();
        // In one piece: others write there too.
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
