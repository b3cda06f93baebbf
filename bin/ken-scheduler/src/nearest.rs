//! Did you mean?

/// The name that was probably meant: the most similar one, ignoring case, if it is similar enough.
pub(crate) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distances = names.into_iter().map(|name| (strsim::osa_distance(&word, &name.to_lowercase()), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1.max(word.chars().count() / 3)).then_some(name)
}
