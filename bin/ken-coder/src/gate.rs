//! The question whether a call may go on. ken-tools asks no preview of its own before it starts this program: the
//! program says itself what it is about to do, while it holds the lock of the journal. So what a person approved is
//! compared with the files as they will be used, and nobody can change them between the comparison and the change.

use std::io::Write;

use ken_types::Error;
use serde::Serialize;

use crate::policy::{Approval, Permit};
use crate::preview::Preview;
use crate::settings::Settings;

/// What ken-tools needs of a preview, as one line.
#[derive(Serialize)]
struct Question<'a> {
    approval: Approval,
    reason: &'a str,
    fingerprint: &'a str,
}

/// Asks whether this call may go on. Fails with `forbidden` if a rule denies it, with `conflict` if it was not let go on.
pub(crate) fn pass(settings: &Settings, preview: &Preview) -> Result<Permit, Error> {
    if preview.approval == Approval::Deny {
        return Err(Error::forbidden(preview.reason.clone()));
    }
    if !settings.has_gate {
        return Ok(Permit::Person);
    }
    let Preview { approval, reason, fingerprint, .. } = preview;
    ask(&Question { approval: *approval, reason, fingerprint })?;
    Ok(if *approval == Approval::Ask { Permit::Person } else { Permit::Rule })
}

/// Sends the question on standard output, which is a socket of ken-tools, and waits there for the answer: one byte, or
/// the end if the call must not go on.
fn ask(question: &Question<'_>) -> Result<(), Error> {
    let failed = |why: &dyn std::fmt::Display| Error::unavailable(format!("ken-tools cannot be asked: {why}"));
    let mut line = serde_json::to_vec(question).map_err(|error| failed(&error))?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).map_err(|error| failed(&error))?;
    loop {
        match rustix::io::read(&out, &mut [0_u8; 1]) {
            Ok(0) => return Err(Error::conflict("the call was not let go on; nothing was done")),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed(&errno)),
        }
    }
}
