//! Finds the name that a user probably meant, for "did you mean" hints.

/// Returns the most similar name, ignoring case; `None` if none is similar enough.
pub(crate) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distances = names.into_iter().map(|name| (strsim::osa_distance(&word, &name.to_lowercase()), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1.max(word.chars().count() / 3)).then_some(name)
}
