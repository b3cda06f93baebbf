//! Checks every request (key, role and rate limits) and records its metrics.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ken_http::{Failure, Quota, Request, Response, caller_of};

use crate::admission::Need;
use crate::app::Cognitive;
use crate::keys::Owner;
use crate::limits::{Group, Payer};

/// What a route requires.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    /// The name of the route in metrics.
    pub(crate) route: &'static str,
    pub(crate) need: Need,
    pub(crate) group: Option<Group>,
}

#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// `None` if no key was required.
    pub(crate) owner: Option<Owner>,
}

impl Caller {
    pub(crate) fn user_id(&self) -> &str {
        self.owner.as_ref().map_or("", |owner| &owner.user_id)
    }
}

/// Checks a request and passes it to the handler of its route.
pub(crate) async fn pass<F, W>(
    app: Arc<Cognitive>,
    request: Request,
    gate: Access,
    function: F,
) -> Result<Response, Failure>
where
    F: FnOnce(Arc<Cognitive>, Caller, Request) -> W,
    W: Future<Output = Result<Response, Failure>>,
{
    let begun = Instant::now();
    let _open = app.metrics.open();
    let done = guarded(&app, request, gate, function).await;
    let status = match &done {
        Ok(response) => response.status(),
        Err(failure) => failure.status_code(),
    };
    app.metrics.request(gate.route, status, begun.elapsed());
    done
}

async fn guarded<F, W>(app: &Arc<Cognitive>, request: Request, gate: Access, function: F) -> Result<Response, Failure>
where
    F: FnOnce(Arc<Cognitive>, Caller, Request) -> W,
    W: Future<Output = Result<Response, Failure>>,
{
    let owner = app.admit(&request, gate.need).await?;
    let Some(group) = gate.group else {
        return function(app.clone(), Caller { owner }, request).await;
    };
    let taken = app.limits.take(group, payer(&owner, request.peer()));
    let quota = taken.map_err(|refusal| {
        app.metrics.limited(refusal.name);
        refusal.into_failure()
    })?;
    let done = function(app.clone(), Caller { owner }, request).await;
    quota.iter().flat_map(Quota::headers).fold(done, |done, (name, value)| match done {
        Ok(response) => Ok(response.header(name, value)),
        Err(failure) => Err(failure.header(name, value)),
    })
}

/// A caller without a key is its address, or its network of 64 bits: one host may have all of that.
fn payer(owner: &Option<Owner>, peer: IpAddr) -> Payer {
    owner.as_ref().map_or(Payer::Address(caller_of(peer)), |owner| Payer::Key(owner.digest))
}
