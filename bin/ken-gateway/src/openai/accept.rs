//! Accepts a request as an event: the store finds its session, and the turn of an equal request whose answer has not arrived.

use std::sync::Arc;

use ken_chat::door::{Conversation, Prefix};
use ken_http::{Failure, Request};
use ken_types::id::{EventId, Mint, Origin, SubmissionId};
use ken_types::ops::store::{
    Accept, Accepted, Action, Answered, BySubmission, ChatAccept, Continuation, DeliveredEvent, DoorsDelivered,
    DoorsFind, DoorsNotice, FreshSession, InboundEvent, KeyState, Policy, SentNotice, Target,
};
use ken_types::{Code, Error};

use super::input::Input;
use super::turn::Turn;
use crate::app::Gateway;
use crate::idempotency::{KeyName, begin_for, caller_name, digest, keep_accepted, mint, release};
use crate::part::failed_change;
use crate::turn::standing;

/// The header with the session: an id, or `new`.
pub(super) const SESSION: &str = "x-ken-session";
/// Stands for a new session, whatever was said before.
const NEW: &str = "new";

/// A request that was accepted.
pub(super) struct Begun {
    pub(super) turn: Turn,
    /// The conversation, if its session is found by it.
    pub(super) conversation: Option<Conversation>,
    /// Whether the session is new, and older messages of the conversation are left out of it.
    pub(super) shortened: bool,
    /// Whether an earlier request with the same key has its answer.
    pub(super) is_replayed: bool,
}

/// What makes a request one event with its repetitions.
struct Identity {
    id: EventId,
    /// Whether the store completes the id.
    counted: bool,
    mint: Mint,
    /// What an earlier request with the same key has accepted.
    kept: Option<Accepted>,
}

/// Accepts a request. `previous` is the answer that it continues, if the caller names one.
pub(super) async fn accept(
    gateway: &Arc<Gateway>,
    request: &Request,
    body: &[u8],
    input: &Input,
    previous: Option<&SubmissionId>,
) -> Result<Begun, Failure> {
    let caller = caller_name(request);
    let Some(key) = KeyName::of(request)? else {
        let identity = of_equal(request, body, &caller)?;
        return begin(gateway, request, input, previous, identity, &caller).await.map(|(_, begun)| begun);
    };
    let identity = of_key(begin_for(gateway, key.name(), body).await?)?;
    let is_kept = identity.kept.is_some();
    match begin(gateway, request, input, previous, identity, &caller).await {
        Ok((_, begun)) if is_kept => {
            let is_replayed = has_ended(gateway, &begun.turn.submission.submission_id).await?;
            Ok(Begun { is_replayed, ..begun })
        }
        Ok((accepted, begun)) => {
            keep_accepted(gateway, key.name(), &accepted).await;
            Ok(begun)
        }
        Err(failure) => {
            release(gateway, key.name(), &failure).await;
            Err(failure)
        }
    }
}

async fn begin(
    gateway: &Arc<Gateway>,
    request: &Request,
    input: &Input,
    previous: Option<&SubmissionId>,
    identity: Identity,
    caller: &str,
) -> Result<(Accepted, Begun), Failure> {
    let Identity { id, counted, mut mint, kept } = identity;
    let answered = input.answered()?;
    if let (Some(answered), None) = (&answered, &kept) {
        check_open(gateway, answered).await?;
    }
    let after = previous.or_else(|| answered.as_ref().map(|answered| &answered.of));
    let conversation = input.conversation(caller);
    let (target, shortened) = target(request, input, &conversation, after.cloned(), &mut mint)?;
    // A session that is named may hold more than these messages, so they do not find it later.
    let is_found = previous.is_none() && matches!(target, Target::Continued(_));
    let args = Accept {
        event: InboundEvent {
            id,
            scope: input.scope.clone(),
            kind: "chat.message".to_owned(),
            text: input.prompt.clone(),
            received_at: mint.at(),
            context: input.context(Some(&conversation).filter(|_| is_found), previous, answered.as_ref()),
            raw: None,
            images: input.images.clone(),
        },
        target,
        action: Action::Prompt { submission_id: mint.submission(), policy: Policy::Queue },
        counted,
    };
    let accepted = match kept {
        Some(accepted) => Ok(accepted),
        None => gateway.store.change::<ChatAccept>(&args).await,
    };
    let accepted = accepted.map_err(|error| failed_change(error, "eventId", args.event.id.as_str()))?;
    let (turn, shortened) = begun(gateway, request, accepted.clone(), shortened).await?;
    let conversation = Some(conversation).filter(|_| is_found);
    Ok((accepted, Begun { turn, shortened, conversation, is_replayed: false }))
}

/// Whether the turn of a repeated request had ended before. An answer that was deleted by its id is not given again.
async fn has_ended(gateway: &Gateway, id: &SubmissionId) -> Result<bool, Failure> {
    let found = gateway.store.call::<DoorsFind>(&BySubmission { submission_id: id.clone() }).await;
    found.map_err(|error| match error.code {
        Code::NotFound => Failure::from(Error::gone("the answer to the request with this idempotency key was deleted")),
        _ => error.into(),
    })?;
    Ok(standing(gateway, id).await?.state.is_settled())
}

/// Checks that results are there for exactly the calls with which a turn ended.
async fn check_open(gateway: &Gateway, answered: &Answered) -> Result<(), Failure> {
    let wrong = |message: &str| Failure::from(Error::invalid("/messages", message));
    let found = standing(gateway, &answered.of).await.map_err(|error| match error.code {
        Code::NotFound | Code::Gone => wrong("the answer whose calls these results are for is not there any more"),
        _ => error.into(),
    })?;
    let calls = found.result.map(|result| result.calls).unwrap_or_default();
    let mut open: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    let mut given: Vec<&str> = answered.results.iter().map(|result| result.id.as_str()).collect();
    open.sort_unstable();
    given.sort_unstable();
    if open == given { Ok(()) } else { Err(wrong("the results are not those of all calls of the answer, each once")) }
}

async fn begun(
    gateway: &Arc<Gateway>,
    request: &Request,
    accepted: Accepted,
    shortened: bool,
) -> Result<(Turn, bool), Failure> {
    if let Some(refused) = accepted.refused {
        // The next equal request is another one, because the reason may have gone by then.
        delivered(gateway, &accepted.event_id).await;
        return Err(refused.into());
    }
    let (Some(session), Some(submission)) = (accepted.session, accepted.submission) else {
        return Err(Error::internal("the store accepted a prompt and named no submission").into());
    };
    let shortened = shortened && session.created;
    let (event, at) = (accepted.event_id, accepted.received_at);
    let turn = Turn::new(gateway.clone(), request, event, at, session.id, submission, accepted.owed);
    Ok((turn, shortened))
}

/// All ids come from the key, so that a request that the store has refused has other ones with the next attempt.
fn of_key(state: KeyState) -> Result<Identity, Error> {
    let mut mint = mint(&state)?;
    let defect = |_| Error::internal("what an idempotency key keeps is no accepted message");
    let kept = state.answer.map(|kept| serde_json::from_str(&kept.body).map_err(defect)).transpose()?;
    Ok(Identity { id: EventId(mint.prefixed("openai-key:")), counted: false, mint, kept })
}

/// Without a key, equal requests are the same event until the answer has arrived.
fn of_equal(request: &Request, body: &[u8], caller: &str) -> Result<Identity, Error> {
    let session = request.header(SESSION).unwrap_or_default();
    let parts = [caller.as_bytes(), request.path().as_bytes(), session.as_bytes(), body];
    let id = EventId(format!("openai:{}", digest(&parts)));
    Ok(Identity { id, counted: true, mint: Mint::fresh()?, kept: None })
}

/// Returns the session that the request is for, and whether a new one would lack older messages.
fn target(
    request: &Request,
    input: &Input,
    conversation: &Conversation,
    after: Option<SubmissionId>,
    mint: &mut Mint,
) -> Result<(Target, bool), Error> {
    let origin = Origin::Connector;
    let fresh = FreshSession::new(mint.session(origin), origin);
    let (imported, shortened) = input.imported();
    let named = request.header(SESSION).map(str::trim);
    let tip = match named {
        Some("") => return Err(Error::invalid(SESSION, "the id of the session is blank")),
        Some(NEW) => None,
        Some(id) => return Ok((Target::Selector(id.to_owned()), false)),
        None => conversation.before.as_ref().map(|before| before.as_str().to_owned()),
    };
    Ok((Target::Continued(Continuation { tip, after, fresh, imported }), shortened))
}

/// Notes that a notice is sent in place of the answer of a turn, with the digest of the conversation after it, or that it was sent.
pub(super) async fn noticed(gateway: &Gateway, submission: &SubmissionId, tip: Option<Prefix>) -> Result<(), Failure> {
    let args = SentNotice { submission_id: submission.clone(), tip: tip.map(|tip| tip.as_str().to_owned()) };
    gateway.store.change::<DoorsNotice>(&args).await?;
    Ok(())
}

/// Notes that the answer to an event was sent to its end. If the store does not learn it, an equal request gets the same answer.
pub(super) async fn delivered(gateway: &Gateway, id: &EventId) {
    let args = DeliveredEvent { id: id.clone() };
    if let Err(error) = gateway.store.change::<DoorsDelivered>(&args).await {
        tracing::warn!("a repetition of {id} will get the same answer: {error}");
    }
}
