//! The format of `secrets.env`: lines of `NAME=value`, where the value may be in single or double quotes, empty lines
//! and `#` comments.

/// A secret, and the number of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<'a> {
    pub name: &'a str,
    pub value: &'a str,
    pub line: usize,
}

/// Parses the lines. `Err` contains the number of a malformed line.
pub fn parse(text: &str) -> impl Iterator<Item = Result<Setting<'_>, usize>> {
    let lines = text.lines().map(str::trim).zip(1..);
    lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')).map(|(line, number)| {
        match line.split_once('=') {
            Some((name, value)) if is_name(name.trim()) && !value.contains('\0') => {
                Ok(Setting { name: name.trim(), value: unquote(value.trim()), line: number })
            }
            _ => Err(number),
        }
    })
}

/// Returns the value of a name. If several lines set it, the last one applies.
pub fn find<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let settings = parse(text).flatten().filter(|setting| setting.name == name);
    settings.last().map(|setting| setting.value)
}

/// Whether every shell accepts this text as the name of a variable.
pub fn is_name(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(word) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

fn unquote(value: &str) -> &str {
    let inside = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_quotes_and_comments() {
        let text = "# c\nA=1\n B = \"x y\" \nC='='\nD=\n\nA=2";
        let pairs: Vec<_> = parse(text).flatten().map(|one| (one.name, one.value)).collect();
        assert_eq!(pairs, [("A", "1"), ("B", "x y"), ("C", "="), ("D", ""), ("A", "2")]);
        assert_eq!((find(text, "A"), find(text, "E")), (Some("2"), None));
    }

    #[test]
    fn a_line_of_another_form_is_reported_by_its_number() {
        let wrong: Vec<usize> = parse("A=1\nsecret-value\n2X=3\nB=\0").filter_map(Result::err).collect();
        assert_eq!(wrong, [2, 3, 4]);
    }
}
