//! Words brought to a form in which `closes`, `closed` and `close` are one: lower case, without the commonest English
//! endings. Other languages keep their words; theirs match exactly.

/// Endings, longest first, and what takes their place.
const ENDINGS: [(&str, &str); 6] = [
    ("ies", "y"),
    ("ing", ""),
    ("ed", ""),
    ("es", ""),
    ("s", ""),
    ("e", ""),
];
/// An ending is only taken off when so much stays.
const SHORTEST: usize = 3;

/// The stem of a word, into a buffer that is used again.
pub(super) fn stem<'a>(word: &str, into: &'a mut String) -> &'a str {
    into.clear();
    let bare = word
        .strip_suffix("'s")
        .or_else(|| word.strip_suffix("’s"))
        .unwrap_or(word);
    if bare.is_ascii() {
        into.push_str(bare);
        into.make_ascii_lowercase();
    } else {
        into.extend(bare.chars().flat_map(char::to_lowercase));
    }
    let ending = ENDINGS
        .iter()
        .find(|(ending, _)| into.ends_with(ending) && into.len() - ending.len() >= SHORTEST);
    if let Some((ending, instead)) = ending {
        into.truncate(into.len() - ending.len());
        into.push_str(instead);
        if matches!(*ending, "ing" | "ed") {
            undouble(into);
        }
    }
    into
}

/// `runn` of `running` is `run`.
fn undouble(word: &mut String) {
    let mut last = word.chars().rev();
    let doubled =
        matches!((last.next(), last.next()), (Some(a), Some(b)) if a == b && !"aeiousl".contains(a));
    if doubled && word.len() > SHORTEST {
        word.pop();
    }
}

/// Whether two stems mean one thing: equal, or a long one that goes on a little (`deploy`, `deployment`).
pub(super) fn agree(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short == long || (short.len() >= 5 && long.len() - short.len() <= 4 && long.starts_with(short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_agree() {
        let of = |word: &str| stem(word, &mut String::new()).to_owned();
        for group in [
            &["close", "closes", "closed", "closing"][..],
            &["run", "runs", "running"],
            &["policy", "policies"],
            &["box", "boxes"],
            &["deploy", "deploys", "deployment"],
            &["Zürich", "zürich"],
        ] {
            for word in group {
                assert!(agree(&of(word), &of(group[0])), "{word}: {}", of(word));
            }
        }
        assert!(!agree(&of("port"), &of("report")));
        assert!(!agree(&of("car"), &of("carpet")));
    }
}
