//! A request for an approval, and the events that the holder of its turn records with it, in one transaction.

use ken_types::Error;
use ken_types::event::{Event, VERSION};
use ken_types::ops::approvals::{Approval, ApprovalsPut, PutApproval, Status, TurnOfRequest};
use serde_json::value::to_raw_value;

use crate::engine::change::Change;
use crate::ops::{Write, approvals, turns};
use crate::rules::{self, check, record};
use crate::tables::Tables;

impl Write for ApprovalsPut {
    fn check(args: &PutApproval) -> Result<(), Error> {
        rules::approvals::check_put(args)?;
        let Some(turn) = &args.turn else { return Ok(()) };
        if turn.append.lease.submission_id != args.submission_id {
            return Err(Error::invalid("/turn/append/lease", "the events belong to another submission"));
        }
        check::events(&turn.append.events)
    }

    fn run(tables: &dyn Tables, args: &PutApproval, change: &mut Change) -> Result<Approval, Error> {
        let Some(turn) = &args.turn else {
            return approvals::put(tables, args, change);
        };
        let found = approvals::submission(tables, &args.submission_id)?;
        // The reply to the first attempt was lost. What the call would do may have changed since; then its grant does not fit.
        if let Some(stored) = tables.approval(&args.id)?.filter(|stored| stored.submission == found.key) {
            return Ok(stored.record);
        }
        // The events come first, because a request depends on the outside text that they name.
        turns::append(tables, &turn.append, change)?;
        let stored = approvals::put(tables, args, change)?;
        if stored.request_id == args.id && stored.status == Status::Pending {
            report(tables, turn, &stored, change)?;
        }
        Ok(stored)
    }
}

/// Adds the event of a request to the stream of its turn.
fn report(tables: &dyn Tables, turn: &TurnOfRequest, stored: &Approval, change: &mut Change) -> Result<(), Error> {
    let found = turns::submission_of_lease(tables, &turn.append.lease)?;
    let event = Event { v: VERSION, body: stored.requested(turn.worker.clone()), place: turn.place.clone() };
    let event = to_raw_value(&event).map_err(record::defect)?;
    let mut log = tables.log_by_key(found.stream)?;
    turns::add_events(tables, &found, &mut log, turn.place.event_index, &[event], change)
}
