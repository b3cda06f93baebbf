//! Paths and queries, which are first split and then percent-decoded once.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use ken_types::Error;
use ken_types::uri::decode;

/// The part before the next `/`, and the rest after that slash.
pub(crate) fn first_segment(path: &str) -> (&str, Option<&str>) {
    let slash = path.bytes().position(|byte| byte == b'/');
    match slash.and_then(|slash| Some((path.get(..slash)?, path.get(slash + 1..)?))) {
        Some((segment, rest)) => (segment, Some(rest)),
        None => (path, None),
    }
}

/// The query of a request. Unknown parameters are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads `a=1&b=2`; a name without `=` has the empty value. Malformed escapes are `invalid`.
    pub fn parse(text: &str) -> Result<Query, Error> {
        let parameters = text.split('&').filter(|pair| !pair.is_empty());
        parameters.map(parameter).collect::<Result<_, _>>().map(Query)
    }

    /// Whether the parameter is present, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// The value of a parameter that may be given once; twice is `invalid` at `?name`.
    pub fn one(&self, name: &str) -> Result<Option<&str>, Error> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(Error::invalid(format!("?{name}"), format!("{name} is given twice"))),
            (value, None) => Ok(value),
        }
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.0.iter().filter(move |(key, _)| key == name);
        values.map(|(_, value)| value.as_str())
    }

    /// A decimal number within a range, or `default` if the parameter is absent.
    pub fn number(&self, name: &str, range: RangeInclusive<u64>, default: u64) -> Result<u64, Error> {
        let Some(text) = self.one(name)? else {
            return Ok(default);
        };
        let number = text.parse().ok().filter(|number| !text.starts_with('+') && range.contains(number));
        number.ok_or_else(|| {
            let (low, high) = range.into_inner();
            Error::invalid(format!("?{name}"), format!("{name} is a number from {low} to {high}"))
        })
    }
}

fn parameter(pair: &str) -> Result<(String, String), Error> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let text = |part: &str| decode(&part.replace('+', " ")).map(Cow::into_owned);
    let malformed = || Error::invalid(format!("?{name}"), "malformed percent-encoding in the query");
    Ok((text(name).ok_or_else(malformed)?, text(value).ok_or_else(malformed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let query = Query::parse("a=1&b=x+y%26&c&&a=2&n=050&d=-5&e=%2b5").unwrap();
        assert_eq!(query.one("b"), Ok(Some("x y&")));
        assert_eq!((query.one("c"), query.one("z")), (Ok(Some("")), Ok(None)));
        assert_eq!(query.one("a").unwrap_err().at.as_deref(), Some("?a"));
        assert_eq!(query.number("n", 1..=100, 7), Ok(50));
        assert_eq!(query.number("z", 1..=100, 7), Ok(7));
        for name in ["a", "b", "c", "d", "e"] {
            let error = query.number(name, 1..=100, 7).unwrap_err();
            assert_eq!(error.at, Some(format!("?{name}")));
        }
        assert_eq!(query.number("n", 1..=49, 7).unwrap_err().at.as_deref(), Some("?n"));
        assert_eq!(Query::parse("&a=1&&b&"), Query::parse("a=1&b="));
        assert!(Query::parse("a=%zz").is_err());
    }
}
