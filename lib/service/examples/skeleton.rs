//! A minimal daemon, which the tests of the skeleton start. It has one operation, which takes five seconds.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_service::{NoOptions, Program, run};
use ken_types::ops::Nothing;
use ken_wire::{Daemon, Table};

struct Probe;

impl Daemon for Probe {}

ken_types::operations! {
    Sleep, "probe.sleep": Nothing => Nothing;
}

fn main() -> ExitCode {
    let program = Program {
        name: "ken-probe",
        version: env!("CARGO_PKG_VERSION"),
        about: "Answers what every part answers",
        drain: Duration::from_millis(100),
    };
    run::<NoOptions, _, _>(program, async |_| {
        let table = Table::new("probe", program.version).op::<Sleep, _, _>(|_, _, _| async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(Nothing {})
        });
        Ok((table, Arc::new(Probe)))
    })
}
