//! How a browser comes in without the secret: codes, which `ken open` shows, and tokens, for which the console trades a code.
//! Both hold the time of their end and an authentication code, so that the gateway keeps neither of them, a restart
//! changes nothing, and another key ends all of them.

use std::path::Path;

use ken_service::hmac_sha256;
use ken_trusted::Others;
use ken_types::id::random;
use ken_types::{Error, Timestamp, hex};
use sha2::{Digest, Sha256};

/// How long a code is valid, in milliseconds: a person follows the link at once.
const CODE_MS: i64 = 60_000;
/// How long a token is valid, in milliseconds: a working day.
const TOKEN_MS: i64 = 12 * 60 * 60 * 1_000;
const KEY_BYTES: usize = 32;
/// The file of the key, where no secret is configured.
const KEY_FILE: &str = "gateway/console.key";

/// The key of all codes and tokens.
pub(crate) struct LinkKey([u8; KEY_BYTES]);

impl LinkKey {
    /// Derives the key from the secret, so that a new secret ends all tokens. Without a secret it is in a file below the
    /// state directory, which is made if it is missing.
    pub(crate) fn new(secret: Option<&str>, state: &Path) -> Result<LinkKey, Error> {
        if let Some(secret) = secret.map(str::trim).filter(|secret| !secret.is_empty()) {
            return Ok(LinkKey(hmac_sha256(secret.as_bytes(), b"the key of the console")));
        }
        let path = state.join(KEY_FILE);
        let at = |error: Error| Error { at: Some(path.display().to_string()), ..error };
        let found = ken_trusted::find(&path, Others::Nothing, KEY_BYTES as u64).map_err(at)?;
        if let Some(key) = found.and_then(|bytes| bytes.try_into().ok()) {
            return Ok(LinkKey(key));
        }
        let key = random::<KEY_BYTES>()?;
        ken_trusted::replace(&path, &key, Others::Nothing)?;
        Ok(LinkKey(key))
    }

    /// Makes a code, and says when it ends.
    pub(crate) fn code(&self, now: Timestamp) -> Result<(String, Timestamp), Error> {
        let (end, nonce) = (now.plus_millis(CODE_MS), hex::encode(&random::<16>()?));
        Ok((format!("{:x}.{nonce}.{}", end.millis(), self.tag("code", end.millis(), &nonce)), end))
    }

    /// Whether a text is a code that has not ended.
    pub(crate) fn is_code(&self, text: &str, now: Timestamp) -> bool {
        let Some((end, rest)) = text.split_once('.') else { return false };
        let Some((nonce, tag)) = rest.split_once('.') else { return false };
        self.holds("code", end, nonce, tag, now)
    }

    /// Makes a token for the pages of one host, and says when it ends.
    pub(crate) fn token(&self, host: &str, now: Timestamp) -> (String, Timestamp) {
        let end = now.plus_millis(TOKEN_MS);
        (format!("{:x}.{}", end.millis(), self.tag("token", end.millis(), host)), end)
    }

    /// Whether a text is a token for the pages of this host that has not ended.
    pub(crate) fn is_token(&self, text: &str, host: &str, now: Timestamp) -> bool {
        text.split_once('.').is_some_and(|(end, tag)| self.holds("token", end, host, tag, now))
    }

    /// Returns a mark that shows later that this process, or one with the same key, has made a text of this kind.
    pub(crate) fn mark(&self, kind: &str, text: &str) -> String {
        self.tag(kind, 0, text)
    }

    /// Whether a text of this kind has the mark that belongs to it.
    pub(crate) fn is_mark(&self, kind: &str, text: &str, mark: &str) -> bool {
        same(mark, &self.mark(kind, text))
    }

    fn holds(&self, kind: &str, end: &str, about: &str, tag: &str, now: Timestamp) -> bool {
        // `from_str_radix` also takes a sign, zeros in front and capitals. A code that could be written in two ways would work twice.
        let end = i64::from_str_radix(end, 16).ok().filter(|time| format!("{time:x}") == end);
        end.is_some_and(|end| end > now.millis() && same(tag, &self.tag(kind, end, about)))
    }

    fn tag(&self, kind: &str, end: i64, about: &str) -> String {
        hex::encode(&hmac_sha256(&self.0, format!("{kind} {end:x} {about}").as_bytes()))
    }
}

/// Compares digests, so that the time tells nothing about the text that was expected.
fn same(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &str) -> LinkKey {
        LinkKey::new(Some(secret), Path::new("/nowhere")).unwrap()
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_code_ends_after_a_minute_and_is_of_its_key() {
        let (code, end) = key("a").code(at(1_000)).unwrap();
        assert_eq!(end, at(61_000));
        for (now, holds) in [(1_000, true), (60_999, true), (61_000, false), (i64::MAX, false)] {
            assert_eq!(key("a").is_code(&code, at(now)), holds, "{now}");
        }
        assert!(!key("b").is_code(&code, at(1_000)));
        assert_ne!(code, key("a").code(at(1_000)).unwrap().0);
    }

    #[test]
    fn a_token_is_for_one_host() {
        let (token, end) = key("a").token("localhost:3940", at(0));
        assert_eq!(end, at(TOKEN_MS));
        assert!(key("a").is_token(&token, "localhost:3940", at(TOKEN_MS - 1)));
        assert!(!key("a").is_token(&token, "localhost:3940", at(TOKEN_MS)));
        assert!(!key("a").is_token(&token, "evil.test:3940", at(0)));
        assert!(!key("b").is_token(&token, "localhost:3940", at(0)));
        assert!(!key("a").is_code(&token, at(0)), "a token is no code");
    }

    #[test]
    fn changed_texts_are_refused() {
        let key = key("a");
        let (code, _) = key.code(at(0)).unwrap();
        let capital = code.replacen(&format!("{CODE_MS:x}"), &format!("{CODE_MS:X}"), 1);
        assert_ne!(capital, code);
        let longer = code.replacen(&format!("{CODE_MS:x}"), "fffffff", 1);
        for text in [
            "",
            ".",
            "..",
            "x",
            &code[1..],
            &format!("+{code}"),
            &format!("0{code}"),
            &format!("{code}0"),
            &longer,
            &capital,
        ] {
            assert!(!key.is_code(text, at(0)), "{text}");
        }
        for text in ["", ".", "ffffffff.", "-1.x"] {
            assert!(!key.is_token(text, "localhost", at(0)), "{text}");
        }
    }

    #[test]
    fn without_a_secret_the_key_is_in_a_private_file_and_stays() {
        let state = tempfile::tempdir().unwrap();
        let new = |secret| LinkKey::new(secret, state.path()).unwrap().0;
        let made = new(None);
        assert_eq!(new(Some(" ")), made);
        let path = state.path().join(KEY_FILE);
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "cut").unwrap();
        assert_ne!(new(None), made, "a file that a crash has cut is made again");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        assert!(LinkKey::new(None, state.path()).is_err());
    }
}
