//! Scopes as single words of a full-text index, so that a search only examines rows that its caller is allowed to find.
//!
//! Each word begins with `zq` and a letter for its kind, followed by 16 hexadecimal digits of a digest.

use ken_types::hex;
use ken_types::ops::store::Scope;
use sha2::{Digest, Sha256};

/// The word for entries that everyone can find.
const GLOBAL: &str = "zqglobal";

fn word(kind: char, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    format!("zq{kind}{}", hex::encode(digest.get(..8).unwrap_or_default()))
}

/// Returns the scope word of a knowledge entry.
pub(crate) fn of_entry(actor: Option<&str>, conversation: Option<&str>) -> String {
    match (actor, conversation) {
        (None, None) => GLOBAL.to_owned(),
        (Some(actor), None) => word('a', &[actor]),
        (None, Some(conversation)) => word('c', &[conversation]),
        (Some(actor), Some(conversation)) => word('b', &[actor, conversation]),
    }
}

/// Returns the scope words of all knowledge entries that a scope can find.
pub(crate) fn visible_to(scope: Option<&Scope>) -> Vec<String> {
    let mut words = vec![GLOBAL.to_owned()];
    if let Some(Scope { actor_id, conversation_id, .. }) = scope {
        words.push(of_entry(Some(actor_id), None));
        words.push(of_entry(None, Some(conversation_id)));
        words.push(of_entry(Some(actor_id), Some(conversation_id)));
    }
    words
}

/// Returns the scope word of past exchanges. It does not depend on the thread, so all threads of a conversation share their memory.
pub(crate) fn of_memory(connector: &str, actor: &str, conversation: &str) -> String {
    word('m', &[connector, actor, conversation])
}
