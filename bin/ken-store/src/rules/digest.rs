//! Digests of lists of optional texts, which are used as ids.

use ken_types::id::{Mint, SubmissionId};
use ken_types::{Timestamp, hex};
use sha2::{Digest, Sha256};

/// Returns the first `bytes` bytes (at most 32) of the SHA-256 of all parts, in hexadecimal. The hash covers the presence and the length of
/// each part, so that different lists have different digests.
pub(crate) fn of(parts: &[Option<&str>], bytes: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let text = part.unwrap_or_default();
        hash.update([u8::from(part.is_some())]);
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let digest = hash.finalize();
    hex::encode(digest.get(..bytes).unwrap_or(&digest))
}

/// Returns the id of a submission that the store makes itself, from something that no other one has.
pub(crate) fn submission_id(of: &str) -> SubmissionId {
    let digest = <[u8; 32]>::from(Sha256::digest(of));
    let mut seed = [0; 16];
    seed.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    Mint::of(Timestamp::default(), &seed).submission()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::of;

    /// Databases contain such digests as ids, so equal entries must always get the same one.
    #[test]
    fn a_name_stays_what_it_was() {
        let content = "The site is deployed on Tuesdays at 14:00 UTC.";
        let parts = [None, None, Some("Deploy window"), Some(content)];
        assert_eq!(of(&parts, 16), "d50105e459105fc7af7936952b3b8ab4");
    }

    #[test]
    fn no_two_lists_run_together() {
        let lists: [&[Option<&str>]; 5] = [
            &[Some("ab"), Some("c")],
            &[Some("a"), Some("bc")],
            &[Some("abc"), None],
            &[Some("abc"), Some("")],
            &[Some("abc")],
        ];
        let names: std::collections::BTreeSet<String> = lists.iter().map(|parts| of(parts, 32)).collect();
        assert_eq!(names.len(), lists.len());
        assert_eq!(names.first().unwrap().len(), 64);
    }
}
