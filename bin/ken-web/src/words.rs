//! What a person types without JSON: `ken-web search tide tables`, `ken-web https://example.org/`.

use std::ffi::OsString;
use std::path::Path;

use serde_json::json;

/// Returns a command line with words in place of a JSON input as the one with that input; its answer is text unless it names
/// a format. Any other command line is returned as it is: one that names an input, or a file that exists.
pub(crate) fn to_json(mut words: Vec<OsString>) -> Vec<OsString> {
    let is_address = |word: &str| ["http://", "https://"].iter().any(|scheme| word.starts_with(scheme));
    if words.first().and_then(|word| word.to_str()).is_some_and(is_address) {
        words.insert(0, "fetch".into());
    }
    converted(&words).unwrap_or(words)
}

fn converted(words: &[OsString]) -> Option<Vec<OsString>> {
    let (command, rest) = words.split_first()?;
    let field = match command.to_str()? {
        "search" => "query",
        "fetch" => "url",
        "research" => "question",
        _ => return None,
    };
    let (mut said, mut flags, mut has_format) = (Vec::new(), Vec::new(), false);
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        let text = word.to_str()?;
        match text {
            "-v" | "--verbose" => flags.push(word.clone()),
            "--format" => flags.extend([word.clone(), rest.next()?.clone()]),
            _ if text.starts_with("--format=") => flags.push(word.clone()),
            // Any other flag, also `-` alone, is about the input.
            _ if text.starts_with('-') => return None,
            _ => said.push(text),
        }
        has_format |= text.starts_with("--format");
    }
    let is_file = |word: &&str| word.ends_with(".json") || Path::new(word).exists();
    if said.is_empty() || said.iter().any(is_file) {
        return None;
    }
    if !has_format {
        flags.extend(["--format".into(), "summary".into()]);
    }
    let input = json!({ field: said.join(" ") }).to_string();
    Some([vec![command.clone(), "--json".into(), input.into()], flags].concat())
}

#[cfg(test)]
mod tests {
    use super::to_json;

    fn converted(line: &str) -> String {
        let words = to_json(line.split(' ').map(Into::into).collect());
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_become_an_input() {
        for (line, wanted) in [
            ("search tide tables", r#"search --json {"query":"tide tables"} --format summary"#),
            ("https://a.org/ -v", r#"fetch --json {"url":"https://a.org/"} -v --format summary"#),
            ("fetch http://a.org --format compact", r#"fetch --json {"url":"http://a.org"} --format compact"#),
            (
                "research --format=json when is \"low\" tide?",
                r#"research --json {"question":"when is \"low\" tide?"} --format=json"#,
            ),
        ] {
            assert_eq!(converted(line), wanted);
        }
        for line in [
            "search", "search -", "search query.json", "search src", "search -f x tide", "search --lines", "--help",
            "tide",
        ] {
            assert_eq!(converted(line), line);
        }
    }
}
