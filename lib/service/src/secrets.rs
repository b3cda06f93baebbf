//! Secrets that kend passes. They are in a sealed memory file behind the descriptor `KEN_SECRETS_FD` and not in the
//! environment, because every child process inherits the environment and /proc shows it. Each entry is `NAME=value`
//! followed by a NUL byte.

use std::collections::HashMap;
use std::sync::OnceLock;

use ken_types::Error;
use serde_json::Value;

use crate::descriptor;

const VARIABLE: &str = "KEN_SECRETS_FD";
/// The maximum size of the memory file. kend passes less than this.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

static PASSED: OnceLock<HashMap<String, String>> = OnceLock::new();
static FORMS: OnceLock<RedactedTexts> = OnceLock::new();

/// Returns the secret of this name. It is the one that kend has passed to this process, or else the environment
/// variable of this name, for programs that are started manually. An empty value counts as absent. Passed secrets are
/// read once, when the daemon starts.
pub fn secret(name: &str) -> Option<String> {
    let passed = PASSED.get().and_then(|passed| passed.get(name).cloned());
    passed.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
}

/// The minimum length of a secret that is redacted, in bytes. Shorter values, such as `test`, also occur in unrelated texts.
const MIN_REDACTED: usize = 8;
const REDACTED: &str = "[redacted]";

/// Returns the text with `[redacted]` in place of each secret of at least 8 bytes that kend has passed to this process.
/// Secrets are found verbatim and as JSON strings escape them. For JSON that is already parsed, use [`redacted_value`],
/// which finds a secret no matter how it was escaped.
pub fn redacted(text: String) -> String {
    forms().redacted(text)
}

/// Returns the value with `[redacted]` in place of each secret in its strings and field names. Numbers are not changed.
pub fn redacted_value(value: Value) -> Value {
    forms().redacted_value(value)
}

/// Returns the length of the longest text that is redacted, in bytes. A caller that cuts a text needs this many bytes
/// beyond the cut to recognise a secret that lies across it.
pub fn longest_secret() -> usize {
    forms().longest()
}

/// Returns about the first `max` bytes of a text with secrets redacted. The end contains no part of a secret. `kept`
/// is the beginning of the text: `max` plus [`longest_secret`] bytes, or the whole text if it is shorter.
pub fn redacted_head(kept: &[u8], max: usize) -> String {
    forms().head(kept, max)
}

/// Returns about the last `max` bytes of a text with secrets redacted. The beginning contains no part of a secret.
/// `kept` is the end of the text: `max` plus [`longest_secret`] bytes, or the whole text if it is shorter.
pub fn redacted_tail(kept: &[u8], max: usize) -> String {
    forms().tail(kept, max)
}

fn forms() -> &'static RedactedTexts {
    static NONE: RedactedTexts = RedactedTexts(Vec::new());
    FORMS.get().unwrap_or(&NONE)
}

/// The texts that are redacted: each secret verbatim, and as a JSON string escapes it, with and without `\/`. They are
/// sorted from longest to shortest, because one can be a part of another.
struct RedactedTexts(Vec<String>);

impl RedactedTexts {
    fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> RedactedTexts {
        let forms = secrets.filter(|secret| secret.len() >= MIN_REDACTED).flat_map(|secret| {
            let quoted = Value::from(secret).to_string();
            let quoted = quoted.get(1..quoted.len() - 1).unwrap_or(secret).to_owned();
            [secret.to_owned(), quoted.replace('/', "\\/"), quoted]
        });
        let mut forms: Vec<String> = forms.collect();
        forms.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        forms.dedup();
        RedactedTexts(forms)
    }

    fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    fn redacted(&self, mut text: String) -> String {
        for form in &self.0 {
            if text.contains(form) {
                text = text.replace(form, REDACTED);
            }
        }
        text
    }

    fn redacted_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redacted(text)),
            Value::Array(values) => values.into_iter().map(|value| self.redacted_value(value)).collect(),
            Value::Object(fields) => {
                let redacted = |(name, value)| (self.redacted(name), self.redacted_value(value));
                fields.into_iter().map(redacted).collect()
            }
            other => other,
        }
    }

    fn head(&self, kept: &[u8], max: usize) -> String {
        let mut text = self.redacted(String::from_utf8_lossy(kept).into_owned());
        if kept.len() > max {
            // The last bytes may be the beginning of a secret that is cut off. Because redacting can shorten the text,
            // such bytes can even lie before `max`.
            let mut end = text.len().saturating_sub(self.longest()).min(max);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        text
    }

    fn tail(&self, kept: &[u8], max: usize) -> String {
        let mut text = self.redacted(String::from_utf8_lossy(kept).into_owned());
        if kept.len() > max {
            let mut start = text.len().saturating_sub(max).max(self.longest()).min(text.len());
            while !text.is_char_boundary(start) {
                start += 1;
            }
            text.drain(..start);
        }
        text
    }
}

/// Reads and closes the inherited descriptor, if there is one. Call this once, at the start; [`crate::run`] does so.
pub fn inherit() -> Result<(), Error> {
    let Some(text) = descriptor::text(VARIABLE, MAX_FILE_BYTES)? else { return Ok(()) };
    let passed = PASSED.get_or_init(|| parse(&text));
    FORMS.get_or_init(|| RedactedTexts::of(passed.values().map(String::as_str)));
    Ok(())
}

fn parse(text: &str) -> HashMap<String, String> {
    let entries = text.split('\0').filter_map(|entry| entry.split_once('='));
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(secrets: &[&'static str]) -> RedactedTexts {
        RedactedTexts::of(secrets.iter().copied())
    }

    #[test]
    fn secrets_are_taken_out_of_a_text() {
        let forms = forms(&["number-1", "with\"and\\", "of/paths", "test", ""]);
        let text = r#"number-1, {"x":"with\"and\\"}, with"and\, of\/paths, test"#;
        let redacted = r#"[redacted], {"x":"[redacted]"}, [redacted], [redacted], test"#;
        assert_eq!(forms.redacted(text.to_owned()), redacted);
    }

    #[test]
    fn a_secret_is_taken_out_from_this_length_on() {
        for (length, is_redacted) in [(MIN_REDACTED - 1, false), (MIN_REDACTED, true)] {
            let secret: &'static str = &"planted-secret"[..length];
            assert_eq!(
                forms(&["another-secret", secret]).redacted(secret.to_owned()) == REDACTED,
                is_redacted,
                "{secret}"
            );
        }
    }

    #[test]
    fn a_secret_that_is_a_part_of_another_leaves_nothing_of_it() {
        for secrets in [["planted-1", "planted-1-and-more"], ["planted-1-and-more", "planted-1"]] {
            let text = "planted-1-and-more planted-1".to_owned();
            assert_eq!(forms(&secrets).redacted(text), "[redacted] [redacted]");
        }
    }

    #[test]
    fn however_json_writes_a_secret_it_is_taken_out_and_numbers_stay() {
        let forms = forms(&["a/b&c-é-1", "123456789"]);
        let text = r#"{"a\/b\u0026c-\u00e9-1":[{"x":"it is \u0061/b&c-é-1."},"{\"x\":\"a\/b&c-é-1\"}"],"id":123456789,"key":"123456789"}"#;
        let value = serde_json::from_str(text).unwrap();
        let redacted =
            r#"{"[redacted]":[{"x":"it is [redacted]."},"{\"x\":\"[redacted]\"}"],"id":123456789,"key":"[redacted]"}"#;
        assert_eq!(forms.redacted_value(value).to_string(), redacted);
    }

    #[test]
    fn no_part_of_a_secret_is_left_at_a_cut() {
        let secret = "planted-secret-1";
        let forms = forms(&[secret]);
        let max = 64;
        // Some of the texts contain further secrets, which make the text shorter when they are redacted.
        for before in (0..max).flat_map(|count| [".".repeat(count), format!("{}{secret}{secret}", ".".repeat(count))]) {
            let text = format!("{before}{secret}{}", ".".repeat(max));
            let kept = &text.as_bytes()[..text.len().min(max + forms.longest())];
            let head = forms.head(kept, max);
            assert!(head.len() <= max && !head.replace(REDACTED, "").contains("pla"), "{head}");
            let text = format!("{}{secret}{before}", ".".repeat(max));
            let kept = &text.as_bytes()[text.len().saturating_sub(max + forms.longest())..];
            let tail = forms.tail(kept, max);
            assert!(tail.len() <= max && !tail.replace(REDACTED, "").contains("t-1"), "{tail}");
        }
        assert_eq!((forms.head(b"short", 5), forms.tail(b"short", 5)), ("short".to_owned(), "short".to_owned()));
        let none = RedactedTexts(Vec::new());
        assert_eq!((none.head("aé".as_bytes(), 2), none.tail("éa".as_bytes(), 2)), ("a".to_owned(), "a".to_owned()));
    }

    #[test]
    fn a_value_may_contain_anything_except_nul() {
        let found = parse("A=1\0B=x=y\nz\0C=\0");
        let value = |name: &str| found.get(name).map(String::as_str);
        assert_eq!([value("A"), value("B"), value("C")], [Some("1"), Some("x=y\nz"), Some("")]);
        assert_eq!(found.len(), 3);
    }
}
