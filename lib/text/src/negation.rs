use crate::{Word, expand};

/// The maximum number of words that one negator can negate. Longer scopes are rare in English.
pub const MAX_SCOPE: usize = 8;

/// Returns whether a word in any case negates the words after it: `not`, `never`, `no`, `neither`, `nor`, `without` and
/// others, and words that end in "n't".
pub fn is_negator(word: &str) -> bool {
    let known = NEGATORS.iter().any(|negator| negator.eq_ignore_ascii_case(word));
    known || expand(word).is_some_and(|contraction| contraction.second == "not")
}

/// Returns whether a word introduces a contrast to the words before it, and so ends a negation: "not angry, *just*
/// disappointed".
pub fn is_contrast(word: &str) -> bool {
    CONTRASTS.iter().any(|contrast| contrast.eq_ignore_ascii_case(word))
}

/// Returns for each word whether it is negated. A word is negated if it follows a negator in the same clause, at most
/// [`MAX_SCOPE`] words later. A clause ends at punctuation between two words and at a contrast. The negator itself is
/// not negated, and two negations in one clause cancel each other. `words` must be consecutive words of `text`.
pub fn negated(text: &str, words: &[Word<'_>]) -> Vec<bool> {
    let mut scope = Scope { left: 0, negative: false };
    let mut end_of_last = words.first().map_or(0, |word| word.span.start);
    let mut flags = Vec::with_capacity(words.len());
    for word in words {
        let between = text.get(end_of_last..word.span.start).unwrap_or_default();
        flags.push(scope.step(word.text, between));
        end_of_last = word.span.end;
    }
    flags
}

struct Scope {
    /// The number of further words that are in the scope.
    left: usize,
    negative: bool,
}

impl Scope {
    /// Returns whether `word` is in the scope. `between` is the text between the previous word and `word`.
    fn step(&mut self, word: &str, between: &str) -> bool {
        if is_contrast(word) || between.chars().any(ends_clause) {
            self.left = 0;
        }
        if is_negator(word) {
            // "nor" continues the negation of "neither"; any other negator within a negation cancels it.
            let again = self.left > 0 && self.negative && !word.eq_ignore_ascii_case("nor");
            *self = Scope { left: MAX_SCOPE, negative: !again };
            return false;
        }
        let held = self.left > 0 && self.negative;
        self.left = self.left.saturating_sub(1);
        held
    }
}

fn ends_clause(char: char) -> bool {
    matches!(char, '.' | ',' | ';' | ':' | '!' | '?' | '…' | '(' | ')' | '"' | '“' | '”' | '—' | '–' | '\n')
}

const NEGATORS: [&str; 14] = [
    "not", "no", "never", "neither", "nor", "none", "nobody", "nothing", "nowhere", "without", "hardly", "barely",
    "scarcely", "lacks",
];

const CONTRASTS: [&str; 10] =
    ["but", "however", "just", "yet", "though", "although", "rather", "instead", "nevertheless", "only"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    fn negated_words(text: &str) -> Vec<&str> {
        let words: Vec<Word<'_>> = words(text).collect();
        let flags = negated(text, &words);
        words.iter().zip(flags).filter(|(_, flag)| *flag).map(|(word, _)| word.text).collect()
    }

    #[test]
    fn scope_ends_with_the_clause() {
        assert_eq!(negated_words("I don’t feel happy."), ["feel", "happy"]);
        assert_eq!(negated_words("I'm not angry, just disappointed"), ["angry"]);
        assert_eq!(negated_words("not angry but sad"), ["angry"]);
        assert_eq!(negated_words("I am neither happy nor sad"), ["happy", "sad"]);
        assert_eq!(negated_words("No problem, thanks!"), ["problem"]);
        assert_eq!(negated_words("happy and glad"), [""; 0]);
    }

    #[test]
    fn two_negations_cancel() {
        assert_eq!(negated_words("it is not without charm"), [""; 0]);
    }

    #[test]
    fn scope_is_bounded() {
        let text = "not a b c d e f g h i j";
        assert_eq!(negated_words(text).len(), MAX_SCOPE);
    }
}
