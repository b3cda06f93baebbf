//! Approval requests: listing pending ones, and deciding them.

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::uri::encode_segment;
use serde_json::{Value, json};

use crate::chat::Identity;
use crate::gateway::{Gateway, Method};

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

impl Gateway {
    /// Returns the pending requests of an identity, oldest first.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn pending_approvals(&mut self, identity: &Identity) -> Result<Vec<Value>, Error> {
        let target = format!("/api/approvals/pending?{}", identity.query_of_scope());
        match self.get(&target)? {
            Value::Array(records) => Ok(records),
            _ => Err(Error::internal("the gateway's answer is no list of approvals")),
        }
    }

    /// Returns one request. If it was decided, this includes the decision.
    ///
    /// # Errors
    /// As [`Gateway::call`].
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

    /// Decides a request.
    ///
    /// # Errors
    /// As [`Gateway::call`]. `conflict` if the request was already decided or has expired, `invalid` at `/digest` if
    /// its approval needs the digest of the whole diff.
    pub fn decide(&mut self, request: &str, decision: &Decision) -> Result<Value, Error> {
        let mut body = json!({"decidedBy": decision.by, "approved": decision.approved});
        if let Some(fields) = body.as_object_mut() {
            if let Some(reason) = &decision.reason {
                fields.insert("reason".to_owned(), reason.as_str().into());
            }
            if decision.for_session {
                fields.insert("scope".to_owned(), "session".into());
            }
            if let Some(digest) = &decision.digest {
                fields.insert("digest".to_owned(), digest.as_str().into());
            }
        }
        let target = format!("/api/approvals/{}/decision", encode_segment(request));
        self.post(&target, &Mint::fresh()?.ulid(), &body)
    }
}
