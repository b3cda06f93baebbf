//! Stems of English words, so that `closes`, `closed` and `close` count as one. Other languages keep their words, which
//! then match exactly.

use std::collections::HashSet;

/// Endings, longest first, and what takes their place.
const ENDINGS: [(&str, &str); 7] = [
    ("ies", "y"),
    ("ied", "y"),
    ("ing", ""),
    ("ed", ""),
    ("es", ""),
    ("s", ""),
    ("e", ""),
];
/// A stem has at least this many bytes; an ending that would leave less stays.
const SHORTEST: usize = 3;
/// Particles that a verb is written together with as a noun: `backed up` and `backup`, `rolled out` and `rollout`.
const PARTICLES: [&str; 4] = ["up", "down", "out", "off"];

/// The stem of a word, in a buffer that the caller uses again. Lower case, without a possessive `'s`.
pub fn stem<'a>(word: &str, into: &'a mut String) -> &'a str {
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
    let fits = |word: &str, ending: &str| word.ends_with(ending) && word.len() - ending.len() >= SHORTEST;
    let ending = ENDINGS.iter().find(|(ending, _)| fits(into, ending));
    if let Some((ending, instead)) = ending {
        into.truncate(into.len() - ending.len());
        into.push_str(instead);
        if matches!(*ending, "ing" | "ed") {
            undouble(into);
        }
    }
    // Whoever owns is an owner, and what filters is a filter, filtered or not.
    if fits(into, "er") {
        into.truncate(into.len() - 2);
        undouble(into);
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

/// Whether two stems mean the same: equal, or a long one that goes on a little (`deploy`, `deployment`).
pub fn same_stem(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short == long || (short.len() >= 5 && long.len() - short.len() <= 4 && long.starts_with(short))
}

/// The verb in a noun that is written with its particle: `back` of `backup`.
pub fn verb_of(word: &str) -> Option<&str> {
    let verb = PARTICLES
        .iter()
        .find_map(|particle| word.strip_suffix(particle))?;
    (verb.len() >= SHORTEST).then_some(verb)
}

/// Whether a word may be the second half of a verb, as `up` in `backed up`.
pub fn is_particle(word: &str) -> bool {
    PARTICLES.contains(&word)
}

/// The forms in which a word may stand in an index that keeps words as they are written: the word itself first, then the
/// usual forms of its stem and, of a verb that `particle` follows, the nouns made of both. At most 40. Not all of them are
/// words; those that are not find nothing.
pub fn forms(word: &str, particle: Option<&str>) -> Vec<String> {
    let mut forms = vec![word.to_lowercase()];
    let mut buffer = String::new();
    add_forms(stem(word, &mut buffer), &mut forms);
    if let Some(verb) = verb_of(word) {
        add_forms(stem(verb, &mut String::new()), &mut forms);
    }
    if let Some(particle) = particle {
        forms.extend(["", "s"].map(|plural| [&buffer, particle, plural].concat()));
    }
    let mut seen = HashSet::new();
    forms.retain(|form| seen.insert(form.clone()));
    forms
}

fn add_forms(stem: &str, forms: &mut Vec<String>) {
    let is_word = stem.len() >= SHORTEST && stem.chars().all(char::is_alphabetic);
    if !is_word {
        return;
    }
    for ending in ["", "e", "s", "es", "ed", "ing", "er", "ers"] {
        forms.push([stem, ending].concat());
    }
    if stem.len() >= 5 {
        for ending in ["ment", "ion", "ions", "ation"] {
            forms.push([stem, ending].concat());
        }
    }
    match stem.chars().next_back() {
        Some('y') => {
            let root = stem.strip_suffix('y').unwrap_or_default();
            forms.extend(["ies", "ied"].map(|ending| [root, ending].concat()));
        }
        Some(last) if last.is_ascii() && !"aeiouwx".contains(last) => {
            let double = |ending: &str| format!("{stem}{last}{ending}");
            forms.extend(["ed", "ing", "er", "ers"].map(double));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: &str) -> String {
        stem(word, &mut String::new()).to_owned()
    }

    #[test]
    fn forms_of_a_word_have_the_same_stem() {
        for group in [
            &["close", "closes", "closed", "closing"][..],
            &["run", "runs", "running", "runner"],
            &["policy", "policies"],
            &["carry", "carries", "carried"],
            &["box", "boxes"],
            &["own", "owned", "owner", "owners"],
            &["back", "backs", "backed"],
            &["server", "servers", "serve"],
            &["deploy", "deploys", "deployment"],
            &["Zürich", "zürich"],
        ] {
            for word in group {
                assert!(same_stem(&of(word), &of(group[0])), "{word}: {}", of(word));
            }
        }
        assert!(!same_stem(&of("port"), &of("report")));
        assert!(!same_stem(&of("car"), &of("carpet")));
    }

    #[test]
    fn the_forms_of_a_word_hold_those_that_people_write() {
        for (word, particle, wanted) in [
            ("owned", None, &["owned", "own", "owner", "owns"][..]),
            ("backed", Some("up"), &["backed", "backup", "backups", "back"]),
            ("backup", None, &["backup", "backups", "backed", "back"]),
            ("policies", None, &["policies", "policy"]),
            ("running", None, &["running", "run", "runner", "runs"]),
            ("web23", None, &["web23"]),
        ] {
            let forms = forms(word, particle);
            for form in wanted {
                assert!(forms.iter().any(|one| one == form), "{word}: {form} in {forms:?}");
            }
            assert_eq!(forms[0], word);
            assert!(forms.len() <= 40);
        }
    }
}
