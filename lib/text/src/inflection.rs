//! Words without their inflection, for comparing what two sentences say. The stems of [`crate::stem`] go further, for searching.

/// Appends the stem of a lower-case word to `to`: the form that its inflections share ("stops", "stopped", "stopping").
/// A light suffix stripper with a short table of irregular words. Stems are for comparing and need not be words.
pub fn push_stem(word: &str, to: &mut String) {
    let word = word.strip_suffix("'s").unwrap_or(word);
    if let Ok(index) = IRREGULAR.binary_search_by(|(form, _)| (*form).cmp(word)) {
        to.push_str(IRREGULAR.get(index).map_or(word, |(_, stem)| stem));
        return;
    }
    let start = to.len();
    to.push_str(word);
    if !word.is_ascii() || word.bytes().any(|byte| byte.is_ascii_digit()) {
        return;
    }
    let suffix = SUFFIXES
        .iter()
        .find(|(suffix, _)| word.len() >= suffix.len() + 3 && word.ends_with(suffix));
    match suffix {
        Some(("s", _)) if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") => {}
        Some((suffix, replacement)) => {
            to.truncate(to.len() - suffix.len());
            to.push_str(replacement);
            undouble(to, start);
        }
        None => {}
    }
    if to.len() - start > 3 && to.ends_with('e') {
        to.pop();
    }
}

/// "stopp" is "stop"; "fall", "pass" and "buzz" keep both letters.
fn undouble(to: &mut String, start: usize) {
    let bytes = to.as_bytes().get(start..).unwrap_or_default();
    if let [.., _, before, last] = bytes
        && before == last
        && !matches!(last, b'l' | b's' | b'z')
    {
        to.pop();
    }
}

/// The longest ones first, since the first that fits is taken.
const SUFFIXES: [(&str, &str); 10] = [
    ("sses", "ss"),
    ("edly", ""),
    ("ies", "y"),
    ("ing", ""),
    ("ers", "er"),
    ("ied", "y"),
    ("ed", ""),
    ("es", ""),
    ("ly", ""),
    ("s", ""),
];

/// Sorted by form; a test holds it so.
#[rustfmt::skip]
const IRREGULAR: [(&str, &str); IRREGULARS] = [
    ("a", "a"), ("am", "be"), ("america", "america"), ("american", "america"),
    ("americans", "america"), ("an", "a"), ("anything", "anything"), ("are", "be"),
    ("be", "be"), ("became", "become"), ("become", "become"), ("becomes", "become"),
    ("becoming", "become"), ("bed", "bed"), ("beds", "bed"), ("been", "be"),
    ("began", "begin"), ("begin", "begin"), ("begins", "begin"), ("begun", "begin"),
    ("being", "be"), ("bled", "bleed"), ("bleed", "bleed"), ("bleeds", "bleed"),
    ("bought", "buy"), ("break", "break"), ("breaking", "break"), ("breaks", "break"),
    ("bring", "bring"), ("brings", "bring"), ("britain", "uk"), ("british", "uk"),
    ("broke", "break"), ("broken", "break"), ("brought", "bring"), ("build", "build"),
    ("builds", "build"), ("built", "build"), ("buy", "buy"), ("buys", "buy"),
    ("came", "come"), ("can", "can"), ("child", "child"), ("children", "child"),
    ("china", "china"), ("chinese", "china"), ("choose", "choose"), ("chooses", "choose"),
    ("choosing", "choose"), ("chose", "choose"), ("chosen", "choose"), ("come", "come"),
    ("comes", "come"), ("coming", "come"), ("could", "can"), ("did", "do"),
    ("die", "die"), ("died", "die"), ("dies", "die"), ("do", "do"),
    ("does", "do"), ("doing", "do"), ("done", "do"), ("drive", "drive"),
    ("driven", "drive"), ("drives", "drive"), ("driving", "drive"), ("drove", "drive"),
    ("during", "during"), ("dying", "die"), ("early", "early"), ("england", "england"),
    ("english", "england"), ("evening", "evening"), ("evenings", "evening"), ("everything", "everything"),
    ("fall", "fall"), ("fallen", "fall"), ("falls", "fall"), ("families", "family"),
    ("family", "family"), ("feel", "feel"), ("feels", "feel"), ("feet", "foot"),
    ("fell", "fall"), ("felt", "feel"), ("fight", "fight"), ("fights", "fight"),
    ("find", "find"), ("finds", "find"), ("foot", "foot"), ("forget", "forget"),
    ("forgets", "forget"), ("forgot", "forget"), ("forgotten", "forget"), ("fought", "fight"),
    ("found", "find"), ("france", "france"), ("french", "france"), ("gave", "give"),
    ("german", "germany"), ("germans", "germany"), ("germany", "germany"), ("get", "get"),
    ("gets", "get"), ("getting", "get"), ("give", "give"), ("given", "give"),
    ("gives", "give"), ("giving", "give"), ("go", "go"), ("goes", "go"),
    ("going", "go"), ("gone", "go"), ("got", "get"), ("gotten", "get"),
    ("grew", "grow"), ("grow", "grow"), ("grown", "grow"), ("grows", "grow"),
    ("had", "have"), ("has", "have"), ("have", "have"), ("having", "have"),
    ("held", "hold"), ("his", "his"), ("hold", "hold"), ("holds", "hold"),
    ("hundred", "hundred"), ("hundreds", "hundred"), ("ireland", "ireland"), ("irish", "ireland"),
    ("is", "be"), ("italian", "italy"), ("italy", "italy"), ("its", "its"),
    ("japan", "japan"), ("japanese", "japan"), ("july", "july"), ("keep", "keep"),
    ("keeps", "keep"), ("kept", "keep"), ("king", "king"), ("kings", "king"),
    ("knew", "know"), ("know", "know"), ("known", "know"), ("knows", "know"),
    ("lead", "lead"), ("leads", "lead"), ("leave", "leave"), ("leaves", "leave"),
    ("leaving", "leave"), ("led", "lead"), ("left", "leave"), ("lend", "lend"),
    ("lends", "lend"), ("lent", "lend"), ("lose", "lose"), ("loses", "lose"),
    ("losing", "lose"), ("lost", "lose"), ("made", "make"), ("make", "make"),
    ("makes", "make"), ("making", "make"), ("man", "man"), ("may", "may"),
    ("mean", "mean"), ("means", "mean"), ("meant", "mean"), ("meet", "meet"),
    ("meets", "meet"), ("men", "man"), ("met", "meet"), ("might", "may"),
    ("morning", "morning"), ("mornings", "morning"), ("need", "need"), ("needed", "need"),
    ("needs", "need"), ("news", "news"), ("nothing", "nothing"), ("only", "only"),
    ("paid", "pay"), ("pay", "pay"), ("pays", "pay"), ("people", "person"),
    ("person", "person"), ("ran", "run"), ("rang", "ring"), ("red", "red"),
    ("ring", "ring"), ("rings", "ring"), ("rise", "rise"), ("risen", "rise"),
    ("rises", "rise"), ("rising", "rise"), ("rose", "rise"), ("run", "run"),
    ("rung", "ring"), ("runs", "run"), ("russia", "russia"), ("russian", "russia"),
    ("russians", "russia"), ("said", "say"), ("sank", "sink"), ("sat", "sit"),
    ("saw", "see"), ("say", "say"), ("saying", "say"), ("says", "say"),
    ("scotland", "scotland"), ("scots", "scotland"), ("scottish", "scotland"), ("see", "see"),
    ("seen", "see"), ("sees", "see"), ("sell", "sell"), ("sells", "sell"),
    ("send", "send"), ("sends", "send"), ("sent", "send"), ("series", "series"),
    ("show", "show"), ("showed", "show"), ("shown", "show"), ("shows", "show"),
    ("shrank", "shrink"), ("shrink", "shrink"), ("shrinks", "shrink"), ("shrunk", "shrink"),
    ("sink", "sink"), ("sinks", "sink"), ("sit", "sit"), ("sits", "sit"),
    ("sold", "sell"), ("something", "something"), ("spain", "spain"), ("spanish", "spain"),
    ("speak", "speak"), ("speaking", "speak"), ("speaks", "speak"), ("species", "species"),
    ("speed", "speed"), ("speeds", "speed"), ("spend", "spend"), ("spends", "spend"),
    ("spent", "spend"), ("spoke", "speak"), ("spoken", "speak"), ("spring", "spring"),
    ("stand", "stand"), ("stands", "stand"), ("steal", "steal"), ("steals", "steal"),
    ("stole", "steal"), ("stolen", "steal"), ("stood", "stand"), ("strike", "strike"),
    ("strikes", "strike"), ("striking", "strike"), ("string", "string"), ("strings", "string"),
    ("struck", "strike"), ("sunk", "sink"), ("swam", "swim"), ("swim", "swim"),
    ("swims", "swim"), ("swum", "swim"), ("take", "take"), ("taken", "take"),
    ("takes", "take"), ("taking", "take"), ("taught", "teach"), ("teach", "teach"),
    ("teaches", "teach"), ("tell", "tell"), ("tells", "tell"), ("thing", "thing"),
    ("things", "thing"), ("think", "think"), ("thinks", "think"), ("this", "this"),
    ("thought", "think"), ("threw", "throw"), ("throw", "throw"), ("thrown", "throw"),
    ("throws", "throw"), ("told", "tell"), ("took", "take"), ("turkey", "turkey"),
    ("turkish", "turkey"), ("uk", "uk"), ("use", "use"), ("used", "use"),
    ("uses", "use"), ("using", "use"), ("wales", "wales"), ("was", "be"),
    ("wear", "wear"), ("wears", "wear"), ("welsh", "wales"), ("went", "go"),
    ("were", "be"), ("will", "will"), ("win", "win"), ("wins", "win"),
    ("woman", "woman"), ("women", "woman"), ("won", "win"), ("wore", "wear"),
    ("worn", "wear"), ("would", "will"), ("write", "write"), ("writes", "write"),
    ("writing", "write"), ("written", "write"), ("wrote", "write"),
];
const IRREGULARS: usize = 319;

#[cfg(test)]
mod tests {
    use super::*;

    fn stem(word: &str) -> String {
        let mut stem = String::new();
        push_stem(word, &mut stem);
        stem
    }

    #[test]
    fn inflections_share_a_stem() {
        for forms in [
            &["stop", "stops", "stopped", "stopping"][..],
            &["cache", "caches", "cached", "caching"],
            &["pass", "passes", "passed", "passing"],
            &["city", "cities", "city's"],
            &["rise", "rose", "risen", "rising"],
            &["evict", "evicts", "evicted", "evicting"],
        ] {
            assert!(forms.iter().all(|form| stem(form) == stem(forms[0])), "{forms:?}");
        }
        assert_ne!(stem("bus"), stem("bu"));
        assert_eq!(stem("größe"), "größe");
        assert_eq!(stem("3.5"), "3.5");
    }

    #[test]
    fn irregular_words_are_sorted() {
        assert!(IRREGULAR.is_sorted_by(|a, b| a.0 < b.0));
    }
}
