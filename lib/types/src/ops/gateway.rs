//! The operations of `ken-gateway` on its own socket. Everything else it does over HTTP.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::Timestamp;

crate::operations! {
    /// Returns a code with which a browser comes in without the secret, once. Whoever may use this socket is the user who
    /// runs ken, or root.
    ConsoleCode, "console.code": Nothing => LinkCode;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCode {
    /// It stands behind `#link=` in the address of the console.
    pub code: String,
    pub expires_at: Timestamp,
    /// `[gateway] public_url`, if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
}
