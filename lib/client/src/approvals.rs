//! Approval requests: listing pending ones, deciding them, and asking for decisions in a client that prints lines.

mod question;

use ken_approval::Request;
use ken_types::uri::{encode_query, encode_segment};
use ken_types::{Error, hex};
use nix::unistd::{User, geteuid};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::chat::{local, query};
use crate::gateway::{Gateway, Method};

pub use question::{Asking, Questions};

/// The decision of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub approved: bool,
    /// The name of the person who decides, 1 to 120 characters.
    pub by: String,
    /// The reason for the decision, at most 2 000 characters.
    pub reason: Option<String>,
    /// Whether the same action may run again in the session.
    pub for_session: bool,
    /// The digest of the whole diff. A request with `metadata.whole` can be approved only with it.
    pub digest: Option<String>,
}

/// Returns the name of the user who runs this program, or `uid N` if the user has no name. It is recorded with a
/// decision.
pub fn user() -> String {
    let uid = geteuid();
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => format!("uid {uid}"),
    }
}

impl Gateway {
    /// Returns the pending requests of the person at the terminal, oldest first.
    pub fn pending_approvals(&mut self) -> Result<Vec<Value>, Error> {
        let target = format!("/api/approvals/pending?{}", query(&local()));
        match self.get(&target)? {
            Value::Array(records) => Ok(records),
            _ => Err(Error::internal("the gateway's answer is no list of approvals")),
        }
    }

    /// Returns the pending requests of a session, oldest first, at most 100.
    pub fn pending_in_session(&mut self, session: &str) -> Result<Vec<Value>, Error> {
        let target = format!("/api/approvals?status=pending&limit=100&session={}", encode_query(session));
        match self.get(&target)?.get_mut("approvals").map(Value::take) {
            Some(Value::Array(mut records)) => {
                records.reverse();
                Ok(records)
            }
            _ => Err(Error::internal("the gateway's answer has no list of approvals")),
        }
    }

    /// Returns one request. If it was decided, this includes the decision.
    pub fn approval(&mut self, request: &str) -> Result<Value, Error> {
        self.get(&format!("/api/approvals/{}", encode_segment(request)))
    }

    /// Returns the whole diff of a request, of which the request itself holds only the beginning if it has
    /// `metadata.whole`. At most 16 MiB.
    ///
    /// # Errors
    /// As [`Gateway::call`]. `not_found` if the request has no diff, `internal` if the gateway's answer is not text.
    pub fn diff(&mut self, request: &str) -> Result<String, Error> {
        let target = format!("/api/approvals/{}/diff", encode_segment(request));
        let answer = self.call(&Method::GET, &target, &[], &[])?;
        String::from_utf8(answer.body).map_err(|_| Error::internal("the diff that the gateway returned is not text"))
    }

    /// Returns one request with all of its diff, as a person reads it. Its digest is that of the text that arrived, so
    /// that an approval with it is one of exactly this text.
    pub fn whole_request(&mut self, id: &str) -> Result<Request, Error> {
        let record = self.approval(id)?;
        self.with_whole_diff(&record)
    }

    /// Returns the request of a record that [`Gateway::approval`] has returned, as [`Gateway::whole_request`] does.
    pub fn with_whole_diff(&mut self, record: &Value) -> Result<Request, Error> {
        let request = Request::of(record);
        let mut request = request.ok_or_else(|| Error::internal("the gateway's answer is no request"))?;
        if request.digest.is_some() {
            let diff = self.diff(&request.id)?;
            request.set_diff(&diff, hex::encode(&Sha256::digest(&diff)));
        }
        Ok(request)
    }

    /// Decides a request.
    ///
    /// # Errors
    /// As [`Gateway::call`]. `conflict` if the request was already decided or has expired, `invalid` at `/digest` if
    /// its approval needs the digest of the whole diff.
    pub fn decide(&mut self, request: &str, decision: &Decision) -> Result<Value, Error> {
        let mut body = json!({"decidedBy": decision.by, "approved": decision.approved});
        if let Some(reason) = &decision.reason {
            body["reason"] = reason.as_str().into();
        }
        if decision.for_session {
            body["scope"] = "session".into();
        }
        if let Some(digest) = &decision.digest {
            body["digest"] = digest.as_str().into();
        }
        let target = format!("/api/approvals/{}/decision", encode_segment(request));
        self.post(&target, &body)
    }
}
