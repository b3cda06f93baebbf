//! The name of a stream.

use std::str::FromStr;

use ken_types::uri::encode_segment;

/// The part of a path after `/streams/`. Only what a valid request needs is checked here; the gateway checks the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let path = text.strip_prefix("/streams/").unwrap_or(text);
        let segments: Vec<&str> = path.split('/').collect();
        // HTTP clients and proxies remove `.` and `..` from a path.
        let is_wrong = |segment: &&str| matches!(*segment, "" | "." | "..");
        if segments.len() > 8 || segments.iter().any(is_wrong) {
            return Err(String::from("1 to 8 segments like logs/server, none of them empty"));
        }
        Ok(Name(path.to_owned()))
    }
}

impl Name {
    /// Returns the path for requests to the gateway, percent-encoded (RFC 3986).
    pub(crate) fn target(&self) -> String {
        let segments: Vec<String> = self.0.split('/').map(encode_segment).collect();
        format!("/streams/{}", segments.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (text, target) in [
            ("logs/x", "/streams/logs/x"),
            ("/streams/logs/x", "/streams/logs/x"),
            ("a b?c%/ü", "/streams/a%20b%3Fc%25/%C3%BC"),
        ] {
            assert_eq!(text.parse::<Name>().unwrap().target(), target);
        }
        for bad in ["", "/x", "x/", "a//b", "a/../b", "1/2/3/4/5/6/7/8/9"] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
