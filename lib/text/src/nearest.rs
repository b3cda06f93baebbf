//! Suggests a name for a misspelled one.

/// Returns the most similar name, ignoring case, if one is similar enough to be what was meant.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distances = names.into_iter().map(|name| (strsim::osa_distance(&word, &name.to_lowercase()), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1.max(word.chars().count() / 3)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let names = ["status", "start", "stop", "logs", "up"];
        for (word, meant) in [
            ("statsu", Some("status")),
            ("satus", Some("status")),
            ("log", Some("logs")),
            ("pu", Some("up")),
            ("frobnicate", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, names), meant, "{word}");
        }
    }
}
