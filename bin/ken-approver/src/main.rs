//! ken-approver: approvals for calls that need the consent of a person. It asks ken-tools what a call would do, stores
//! the request, and takes decisions. All state is in the store. See ken-approver(8), ken-approvals(7).

mod approver;
mod expiry;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_types::ops::approvals::{ApprovalsConsume, ApprovalsDecide, ApprovalsGet, ApprovalsPending, ApprovalsRequest};
use ken_wire::{Context, Pool, Table};

use crate::approver::Approver;

const PROGRAM: Program = Program {
    name: "ken-approver",
    version: env!("CARGO_PKG_VERSION"),
    about: "Ask people about what agents may do only with an approval",
    drain: Duration::from_secs(2),
};

fn main() -> ExitCode {
    ken_service::run(PROGRAM, start)
}

async fn start(start: &mut Start<NoOptions>) -> Result<(Table<Approver>, Arc<Approver>), Error> {
    let pool = |part: &str| Pool::new(start.places.socket(part));
    let approver = Arc::new(Approver::new(pool("store"), pool("tools"), start.config.approvals.clone())?);
    start.tasks.spawn(expiry::run(approver.clone(), start.stop.clone()));
    Ok((table(), approver))
}

fn table() -> Table<Approver> {
    Table::new(PROGRAM.part(), PROGRAM.version)
        .op::<ApprovalsRequest, _, _>(|approver: Arc<Approver>, call: Context<_>, args| async move {
            approver.request(args, call.time_left()).await
        })
        .op::<ApprovalsGet, _, _>(|approver: Arc<Approver>, call: Context<_>, args| async move {
            approver.store.call::<ApprovalsGet>(&args, call.time_left()).await
        })
        .op::<ApprovalsPending, _, _>(|approver: Arc<Approver>, call: Context<_>, args| async move {
            approver.store.call::<ApprovalsPending>(&args, call.time_left()).await
        })
        .op::<ApprovalsDecide, _, _>(|approver: Arc<Approver>, call: Context<_>, args| async move {
            approver.decide(args, call.time_left()).await
        })
        .op::<ApprovalsConsume, _, _>(|approver: Arc<Approver>, call: Context<_>, args| async move {
            approver.store.call::<ApprovalsConsume>(&args, call.time_left()).await
        })
}
