//! The source of the lexicon, `share/esl/lexicon.txt`, and the inflection of its words.

use ken_types::{Code, Error};

use ken_esl::lexicon::{Class, Entry, SLOTS, Slot, key, longer, put};
use ken_esl::token::Tokens;

static SOURCE: &str = include_str!("../../../../share/esl/lexicon.txt");

/// Adds every word and phrase of the lexicon to the table.
pub(crate) fn put_all(slots: &mut [Slot; SLOTS]) -> Result<(), Error> {
    for (number, line) in SOURCE.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        put_line(slots, line).ok_or_else(|| {
            let message = format!("lexicon.txt:{}: no class, no valence, or no room", number + 1);
            Error::new(Code::Internal, message)
        })?;
    }
    Ok(())
}

/// `class valence: words`
fn put_line(slots: &mut [Slot; SLOTS], line: &str) -> Option<()> {
    let (head, words) = line.split_once(": ")?;
    let (class, valence) = head.split_once(' ')?;
    let entry = Entry { class: Class::from_name(class)?, valence: valence.parse().ok()?, starts_phrase: false };
    for word in words.split_whitespace() {
        for form in inflected(word) {
            put_phrase(slots, &form.replace('_', " "), entry)?;
        }
    }
    Some(())
}

/// Adds a word or phrase, and marks the first word of a phrase.
fn put_phrase(slots: &mut [Slot; SLOTS], phrase: &str, entry: Entry) -> Option<()> {
    let mut keys = Tokens::new(phrase).map(|token| key(&token));
    let first = keys.next()?;
    let mut whole = first;
    let mut is_phrase = false;
    for next in keys {
        whole = longer(whole, next);
        is_phrase = true;
    }
    if is_phrase {
        let start = Entry { class: Class::Start, valence: 0.0, starts_phrase: true };
        put(slots, first, start).then_some(())?;
    }
    put(slots, whole, entry).then_some(())
}

/// Returns the forms of a word. `~` marks a verb, `+` an adjective.
fn inflected(word: &str) -> Vec<String> {
    if let Some(stem) = word.strip_suffix('+') {
        return vec![stem.to_owned(), adverb(stem)];
    }
    let Some(stem) = word.strip_suffix('~') else {
        return vec![word.to_owned()];
    };
    let silent = stem.strip_suffix('e').unwrap_or(stem);
    let past = match stem.strip_suffix('y') {
        Some(short) if !short.ends_with(['a', 'e', 'o']) => format!("{short}ied"),
        _ => format!("{silent}ed"),
    };
    let third = match stem.strip_suffix('y') {
        Some(short) if !short.ends_with(['a', 'e', 'o']) => format!("{short}ies"),
        _ if stem.ends_with(['s', 'x']) || stem.ends_with("sh") || stem.ends_with("ch") => {
            format!("{stem}es")
        }
        _ => format!("{stem}s"),
    };
    vec![stem.to_owned(), third, past, format!("{silent}ing")]
}

fn adverb(stem: &str) -> String {
    if let Some(short) = stem.strip_suffix('y') {
        format!("{short}ily")
    } else if let Some(short) = stem.strip_suffix("le") {
        format!("{short}ly")
    } else if stem.ends_with("ic") {
        format!("{stem}ally")
    } else {
        format!("{stem}ly")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_esl::lexicon::find;

    #[test]
    fn words_are_inflected() {
        assert_eq!(inflected("envy~"), ["envy", "envies", "envied", "envying"]);
        assert_eq!(inflected("hope~"), ["hope", "hopes", "hoped", "hoping"]);
        assert_eq!(inflected("enjoy~"), ["enjoy", "enjoys", "enjoyed", "enjoying"]);
        assert_eq!(inflected("happy+"), ["happy", "happily"]);
        assert_eq!(inflected("terrible+"), ["terrible", "terribly"]);
        assert_eq!(inflected(":)"), [":)"]);
    }

    #[test]
    fn the_whole_lexicon_fits() {
        let mut slots = [Slot::EMPTY; SLOTS];
        put_all(&mut slots).unwrap();
        let entry = |text| find(&slots, key(&Tokens::new(text).next().unwrap())).unwrap();
        assert!(matches!(entry("happily").class, Class::Emotion(17)));
        assert!(entry("thank").starts_phrase);
        assert_eq!(entry("not").class, Class::Negator);
        assert_eq!(entry("but").class, Class::Contrast);
    }
}
