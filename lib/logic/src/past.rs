//! The past tense of English verbs, for the affirmative form of "did not pay".

/// Returns the simple past of a verb in its base form.
pub(crate) fn past(verb: &str) -> String {
    if let Ok(at) = IRREGULAR.binary_search_by_key(&verb, |(base, _)| base) {
        return IRREGULAR.get(at).map_or(verb, |(_, past)| past).to_owned();
    }
    let letters: Vec<char> = verb.chars().collect();
    let is_vowel = |letter: &char| "aeiou".contains(*letter);
    match letters.as_slice() {
        [.., 'e'] => format!("{verb}d"),
        [.., before, 'y'] if !is_vowel(before) => format!("{}ied", verb.trim_end_matches('y')),
        // One short syllable doubles its final consonant: "stop", "stopped".
        [start @ .., vowel, last]
            if is_vowel(vowel) && !is_vowel(last) && !"wxy".contains(*last) && !start.iter().any(is_vowel) =>
        {
            format!("{verb}{last}ed")
        }
        _ => format!("{verb}ed"),
    }
}

/// Returns whether a word is the simple past of an irregular verb, and not also its base form.
pub(crate) fn is_irregular_past(word: &str) -> bool {
    IRREGULAR.iter().any(|(base, past)| *past == word && base != past)
}

/// Irregular verbs in their base form, sorted, each with its simple past.
const IRREGULAR: [(&str, &str); 99] = [
    ("be", "was"),
    ("become", "became"),
    ("begin", "began"),
    ("bend", "bent"),
    ("bet", "bet"),
    ("bite", "bit"),
    ("bleed", "bled"),
    ("blow", "blew"),
    ("break", "broke"),
    ("bring", "brought"),
    ("build", "built"),
    ("burst", "burst"),
    ("buy", "bought"),
    ("catch", "caught"),
    ("choose", "chose"),
    ("come", "came"),
    ("cost", "cost"),
    ("cut", "cut"),
    ("deal", "dealt"),
    ("dig", "dug"),
    ("do", "did"),
    ("draw", "drew"),
    ("drink", "drank"),
    ("drive", "drove"),
    ("eat", "ate"),
    ("fall", "fell"),
    ("feed", "fed"),
    ("feel", "felt"),
    ("fight", "fought"),
    ("find", "found"),
    ("fly", "flew"),
    ("forget", "forgot"),
    ("forgive", "forgave"),
    ("freeze", "froze"),
    ("get", "got"),
    ("give", "gave"),
    ("go", "went"),
    ("grow", "grew"),
    ("hang", "hung"),
    ("have", "had"),
    ("hear", "heard"),
    ("hide", "hid"),
    ("hit", "hit"),
    ("hold", "held"),
    ("hurt", "hurt"),
    ("keep", "kept"),
    ("know", "knew"),
    ("lay", "laid"),
    ("lead", "led"),
    ("leave", "left"),
    ("lend", "lent"),
    ("let", "let"),
    ("lie", "lay"),
    ("lose", "lost"),
    ("make", "made"),
    ("mean", "meant"),
    ("meet", "met"),
    ("pay", "paid"),
    ("put", "put"),
    ("read", "read"),
    ("reset", "reset"),
    ("ride", "rode"),
    ("ring", "rang"),
    ("rise", "rose"),
    ("run", "ran"),
    ("say", "said"),
    ("see", "saw"),
    ("seek", "sought"),
    ("sell", "sold"),
    ("send", "sent"),
    ("set", "set"),
    ("shake", "shook"),
    ("shoot", "shot"),
    ("show", "showed"),
    ("shut", "shut"),
    ("sing", "sang"),
    ("sink", "sank"),
    ("sit", "sat"),
    ("sleep", "slept"),
    ("speak", "spoke"),
    ("spend", "spent"),
    ("split", "split"),
    ("spread", "spread"),
    ("stand", "stood"),
    ("steal", "stole"),
    ("stick", "stuck"),
    ("strike", "struck"),
    ("swear", "swore"),
    ("swim", "swam"),
    ("take", "took"),
    ("teach", "taught"),
    ("tell", "told"),
    ("think", "thought"),
    ("throw", "threw"),
    ("understand", "understood"),
    ("wake", "woke"),
    ("wear", "wore"),
    ("win", "won"),
    ("write", "wrote"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn irregular_verbs_are_sorted() {
        assert!(IRREGULAR.is_sorted_by_key(|(base, _)| base));
    }

    #[test]
    fn the_past_of_verbs() {
        for (base, expected) in [
            ("pay", "paid"),
            ("go", "went"),
            ("stop", "stopped"),
            ("carry", "carried"),
            ("play", "played"),
            ("move", "moved"),
            ("start", "started"),
            ("fix", "fixed"),
            ("need", "needed"),
            ("allow", "allowed"),
        ] {
            assert_eq!(past(base), expected);
        }
    }
}
