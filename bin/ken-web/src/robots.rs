//! robots.txt as defined in RFC 9309: rules for an agent, of which the longest one that matches a path decides.

use serde::{Deserialize, Serialize};

/// The product token of ken in robots.txt.
const AGENT: &str = "ken";
/// The maximum number of rules that are kept. At most 500 KiB of a file are read.
const MAX_RULES: usize = 2_000;
/// The maximum number of `*` in a pattern, because each costs another pass over the path.
const MAX_STARS: usize = 16;

/// The rules for ken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Robots {
    /// Pairs of a pattern and whether it allows or forbids.
    rules: Vec<(String, bool)>,
    /// Whether these are not rules of the server, because its file cannot be fetched.
    #[serde(skip)]
    is_closed: bool,
}

impl Robots {
    /// Reads the groups that name ken, or else those for `*`. Lines that are not rules are skipped.
    pub(crate) fn parse(text: &str) -> Robots {
        let (mut own, mut others) = (None, Vec::new());
        let (mut for_own, mut for_others, mut in_rules) = (false, false, false);
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for line in text.split(['\n', '\r']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((field, value)) = line.split_once(':') else {
                continue;
            };
            let (field, value) = (field.trim().to_ascii_lowercase(), value.trim());
            match field.as_str() {
                "user-agent" => {
                    if in_rules {
                        (for_own, for_others, in_rules) = (false, false, false);
                    }
                    for_own |= value.eq_ignore_ascii_case(AGENT);
                    for_others |= value == "*";
                    if for_own {
                        own.get_or_insert_with(Vec::new);
                    }
                }
                "allow" | "disallow" => {
                    in_rules = true;
                    let rule = (one_form(value), field == "allow");
                    // An empty pattern matches nothing.
                    if value.is_empty() {
                    } else if let Some(own) = own.as_mut().filter(|own| for_own && own.len() < MAX_RULES) {
                        own.push(rule);
                    } else if for_others && others.len() < MAX_RULES {
                        others.push(rule);
                    }
                }
                _ => {}
            }
        }
        Robots { rules: own.unwrap_or(others), is_closed: false }
    }

    /// Returns rules that forbid everything, for a server whose robots.txt cannot be fetched.
    pub(crate) fn closed() -> Robots {
        Robots { rules: vec![("/".to_owned(), false)], is_closed: true }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether a path with its query can be fetched. Of two rules of equal length, the one that allows takes
    /// precedence.
    pub(crate) fn allows(&self, path: &str) -> bool {
        let path = one_form(path);
        let matching = self.rules.iter().filter(|(pattern, _)| matches(pattern, &path));
        let decides = matching.max_by_key(|(pattern, allows)| (pattern.len(), *allows));
        decides.is_none_or(|(_, allows)| *allows)
    }
}

/// Returns a path or pattern in the form in which two of them are compared: a character is itself, whether it was escaped or not. One that
/// separates parts of a path, or means something in a pattern, stays escaped (RFC 9309, 2.2.2).
fn one_form(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let digits = after.get(..2).filter(|digits| first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let escaped = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match escaped {
            Some(byte) => {
                rest = after.get(2..).unwrap_or_default();
                if b"%/?#*$".contains(&byte) {
                    bytes.extend(format!("%{byte:02X}").bytes());
                } else {
                    bytes.push(byte);
                }
            }
            None => bytes.push(first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a pattern matches a path. `*` matches any characters, and `$` at the end matches the end of the path.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, to_the_end) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut pieces = pattern.splitn(MAX_STARS, '*');
    let Some(mut rest) = pieces.next().and_then(|first| path.strip_prefix(first)) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else {
        return !to_the_end || rest.is_empty();
    };
    for piece in middle {
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    if to_the_end { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_whether_it_is_escaped_or_not() {
        let robots = Robots::parse(
            "\u{feff}User-agent: *\rDisallow: /zürich\rDisallow: /a%7eb\rDisallow: /c%2Fd\rDisallow: /e%2a\r",
        );
        for (path, allowed) in [
            ("/z%C3%BCrich", false),
            ("/a~b", false),
            ("/a%7Eb", false),
            ("/c%2fd", false),
            ("/c/d", true),
            ("/e%2A", false),
            ("/ex", true),
            ("/x%", true),
            ("/x%zz", true),
        ] {
            assert_eq!(robots.allows(path), allowed, "{path}");
        }
    }

    #[test]
    fn the_longest_rule_decides_and_an_own_group_replaces_the_one_for_all() {
        let text = "User-agent: *\nDisallow: /private # all of it\nAllow: /private/open\nDisallow: /*.pdf$\nDisallow:\n\n\
                    User-agent: other\nUser-agent: Ken\nDisallow: /for-ken\n";
        let ours = Robots::parse(text);
        assert!(!ours.allows("/for-ken/x") && ours.allows("/private"));
        let all = Robots::parse(&text.replace("Ken", "else"));
        assert!(all.allows("/") && !all.allows("/private") && all.allows("/private/open/door"));
        assert!(!all.allows("/a/b.pdf") && all.allows("/a/b.pdf?x") && all.allows("/for-ken"));
        assert!(!Robots::closed().allows("/") && Robots::parse("<html>nothing</html>").allows("/"));
    }

    #[test]
    fn the_number_of_rules_is_bounded() {
        for agent in [AGENT, "*"] {
            let rule = |number| format!("disallow: /{number:04}\n");
            let robots =
                Robots::parse(&format!("user-agent: {agent}\n{}", (1..=MAX_RULES + 1).map(rule).collect::<String>()));
            assert_eq!(robots.rules.len(), MAX_RULES);
            assert!(!robots.allows("/2000") && robots.allows("/2001"), "{agent}");
        }
    }

    #[test]
    fn a_pattern_of_stars_takes_no_time() {
        let robots = Robots::parse(&format!("user-agent: *\ndisallow: /{}x$", "*a".repeat(100_000)));
        assert!(robots.allows(&format!("/{}", "a".repeat(100_000))));
    }
}
