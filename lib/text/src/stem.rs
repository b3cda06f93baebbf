//! Stems of English words. All inflections of a word have the same stem. Words of other languages are not changed, so
//! they match only exactly.

/// Appends the stem of a lower-case word to `to`, such as "stop" for "stops", "stopped" and "stopping", and "rise" for
/// "rose". Suffixes are removed, and a short table contains irregular words. Stems are only meant for comparisons, and
/// need not be words.
pub fn push_stem(word: &str, to: &mut String) {
    let word = word.strip_suffix("'s").unwrap_or(word);
    match irregular(word) {
        Some(stem) => to.push_str(stem),
        None => push_regular_stem(word, to),
    }
}

fn push_regular_stem(word: &str, to: &mut String) {
    let start = to.len();
    to.push_str(word);
    if !word.is_ascii() || word.bytes().any(|byte| byte.is_ascii_digit()) {
        return;
    }
    let fits = |ending: &str| word.len() >= ending.len() + MIN_STEM && word.ends_with(ending);
    let inflected = word.ends_with(LAST_LETTERS);
    match ENDINGS.iter().find(|(ending, _)| inflected && fits(ending)) {
        Some(("s", _)) if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") => {}
        Some((ending, instead)) => {
            to.truncate(to.len() - ending.len());
            to.push_str(instead);
            if matches!(*ending, "ing" | "ed" | "edly") {
                undouble(to, start);
            }
        }
        None => {}
    }
    drop_final_e(to, start);
}

/// Returns the stem of a word in any case for searches: that of [`push_stem`] without the ending of a person or thing
/// that acts, so that "owner" matches "owns" and "filter" matches "filters". `into` is a buffer, which the caller can
/// reuse.
pub fn stem<'a>(word: &str, into: &'a mut String) -> &'a str {
    into.clear();
    push_stem_of_agent(&word.replace('’', "'").to_lowercase(), into);
    into
}

fn push_stem_of_agent(word: &str, to: &mut String) {
    let start = to.len();
    push_stem(word, to);
    drop_final_e(to, start);
    if to.len() - start >= MIN_STEM + 2 && to.ends_with("er") {
        to.truncate(to.len() - 2);
        undouble(to, start);
    }
}

/// Appends the stem under which an index contains a lower-case word: [`stem`] without the endings of nouns that are
/// derived from verbs, so that "deploys" finds "deployment" and "validate" finds "validation".
pub fn push_index_stem(word: &str, to: &mut String) {
    let start = to.len();
    push_stem_of_agent(word, to);
    for endings in [&["ment", "ion"][..], &["at"]] {
        let fits = |ending: &&&str| to.len() - start >= ending.len() + MIN_NOUN_STEM && to.ends_with(**ending);
        if let Some(ending) = endings.iter().find(fits) {
            to.truncate(to.len() - ending.len());
            drop_final_e(to, start);
        }
    }
}

/// Returns the stems under which an index may contain a lower-case word, that of the word itself first. For a noun that
/// consists of a verb and a particle (`backup`), that of the verb follows. For a verb before a `particle` (`backed`,
/// `up`), that of the noun follows.
pub fn index_stems(word: &str, particle: Option<&str>) -> Vec<String> {
    let of = |word: &str| {
        let mut stem = String::new();
        push_index_stem(word, &mut stem);
        stem
    };
    let stem = of(word);
    let noun = particle.map(|particle| [&stem, particle].concat());
    let mut stems = vec![stem];
    for more in verb_of(word).map(of).into_iter().chain(noun) {
        if !stems.contains(&more) {
            stems.push(more);
        }
    }
    stems
}

/// The minimum length of a stem in bytes. An ending is not removed if fewer bytes would remain.
const MIN_STEM: usize = 3;
/// The minimum number of bytes that must remain without the ending of a noun, so that "station" and "version" are kept.
const MIN_NOUN_STEM: usize = 5;

/// Removes one letter of a final double letter: "stopp" becomes "stop". "fall", "pass" and "see" are kept.
fn undouble(to: &mut String, start: usize) {
    let bytes = to.as_bytes().get(start..).unwrap_or_default();
    if let [_, .., before, last] = bytes
        && before == last
        && bytes.len() > MIN_STEM
        && !b"aeioulsz".contains(last)
    {
        to.pop();
    }
}

/// Removes a final "e": "close" becomes "clos", like "closing", and "agree" becomes "agr", like "agreed".
fn drop_final_e(to: &mut String, start: usize) {
    while to.len() - start > MIN_STEM && to.ends_with('e') {
        to.pop();
    }
}

/// Returns the stem of a word that is in the table. The table is only searched if it has a form with the same first and last
/// letter, which is fast for words that are not in it.
fn irregular(word: &str) -> Option<&'static str> {
    let letter = |byte: &u8| byte.checked_sub(b'a').filter(|letter| *letter < 26);
    let (first, last) = (letter(word.as_bytes().first()?)?, letter(word.as_bytes().last()?)?);
    if LASTS.get(usize::from(first))? >> last & 1 == 0 {
        return None;
    }
    let place = IRREGULAR.binary_search_by_key(&word, |(form, _)| form).ok()?;
    IRREGULAR.get(place).map(|(_, stem)| *stem)
}

/// For each letter, the last letters of the forms that begin with it, as bits.
static LASTS: [u32; 26] = {
    let (mut lasts, mut index) = ([0; 26], 0);
    while index < IRREGULAR.len() {
        let form = IRREGULAR[index].0.as_bytes();
        lasts[(form[0] - b'a') as usize] |= 1 << (form[form.len() - 1] - b'a');
        index += 1;
    }
    lasts
};

/// The last letters of all [`ENDINGS`]. Most words are excluded by them.
const LAST_LETTERS: [char; 4] = ['s', 'y', 'g', 'd'];

/// Endings and their replacements. The first one that fits is used, so longer ones come before shorter ones.
const ENDINGS: [(&str, &str); 10] = [
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

/// Particles that form a noun with a verb, as in `backup` from `back up` and `rollout` from `roll out`.
const PARTICLES: [&str; 4] = ["up", "down", "out", "off"];

/// Returns whether two stems match: they are equal, or one is a slightly longer form of the other (`deploy`,
/// `deployment`).
pub fn same_stem(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short == long || (short.len() >= 5 && long.len() - short.len() <= 4 && long.starts_with(short))
}

/// Returns the verb in a noun that consists of a verb and a particle, such as `back` in `backup`.
pub fn verb_of(word: &str) -> Option<&str> {
    let verb = PARTICLES.iter().find_map(|particle| word.strip_suffix(particle))?;
    (verb.len() >= MIN_STEM).then_some(verb)
}

/// Returns whether a word can be the particle of a verb, as `up` is in `backed up`.
pub fn is_particle(word: &str) -> bool {
    PARTICLES.contains(&word)
}

/// Words whose stem does not follow from their ending: irregular forms, and words that only look like inflected ones. A test checks
/// that they are sorted and needed.
#[rustfmt::skip]
static IRREGULAR: [(&str, &str); 201] = [
    ("am", "be"), ("american", "america"), ("americans", "america"), ("an", "a"),
    ("anomaly", "anomaly"), ("anything", "anything"), ("apply", "apply"), ("are", "be"),
    ("assembly", "assembly"), ("became", "become"), ("become", "become"), ("becomes", "become"),
    ("becoming", "become"), ("been", "be"), ("began", "begin"), ("begun", "begin"),
    ("being", "be"), ("belly", "belly"), ("bled", "bleed"), ("bleed", "bleed"),
    ("bought", "buy"), ("britain", "uk"), ("british", "uk"), ("broke", "break"),
    ("broken", "break"), ("brought", "bring"), ("built", "build"), ("bully", "bully"),
    ("butterfly", "butterfly"), ("came", "come"), ("children", "child"), ("chinese", "china"),
    ("choose", "choose"), ("chooses", "choose"), ("choosing", "choose"), ("chose", "choose"),
    ("chosen", "choose"), ("come", "come"), ("comes", "come"), ("coming", "come"),
    ("comply", "comply"), ("could", "can"), ("daily", "daily"), ("did", "do"),
    ("died", "die"), ("does", "do"), ("doing", "do"), ("done", "do"),
    ("drive", "drive"), ("driven", "drive"), ("drives", "drive"), ("driving", "drive"),
    ("drove", "drive"), ("during", "during"), ("dying", "die"), ("early", "early"),
    ("english", "england"), ("evening", "evening"), ("everything", "everything"), ("fallen", "fall"),
    ("family", "family"), ("feet", "foot"), ("fell", "fall"), ("felt", "feel"),
    ("folly", "folly"), ("forgot", "forget"), ("forgotten", "forget"), ("fought", "fight"),
    ("found", "find"), ("france", "france"), ("french", "france"), ("gave", "give"),
    ("german", "germany"), ("germans", "germany"), ("give", "give"), ("given", "give"),
    ("gives", "give"), ("giving", "give"), ("goes", "go"), ("going", "go"),
    ("gone", "go"), ("got", "get"), ("gotten", "get"), ("grew", "grow"),
    ("grown", "grow"), ("had", "have"), ("has", "have"), ("have", "have"),
    ("having", "have"), ("held", "hold"), ("holly", "holly"), ("hundred", "hundred"),
    ("imply", "imply"), ("irish", "ireland"), ("is", "be"), ("italian", "italy"),
    ("italy", "italy"), ("japanese", "japan"), ("jelly", "jelly"), ("kept", "keep"),
    ("knew", "know"), ("known", "know"), ("leave", "leave"), ("leaves", "leave"),
    ("leaving", "leave"), ("led", "lead"), ("left", "leave"), ("lent", "lend"),
    ("lose", "lose"), ("loses", "lose"), ("losing", "lose"), ("lost", "lose"),
    ("made", "make"), ("make", "make"), ("makes", "make"), ("making", "make"),
    ("meant", "mean"), ("men", "man"), ("met", "meet"), ("might", "may"),
    ("monopoly", "monopoly"), ("morning", "morning"), ("multiply", "multiply"), ("news", "news"),
    ("nothing", "nothing"), ("paid", "pay"), ("people", "person"), ("rally", "rally"),
    ("ran", "run"), ("rang", "ring"), ("reply", "reply"), ("rise", "rise"),
    ("risen", "rise"), ("rises", "rise"), ("rising", "rise"), ("rose", "rise"),
    ("rung", "ring"), ("russian", "russia"), ("russians", "russia"), ("said", "say"),
    ("sank", "sink"), ("sat", "sit"), ("saw", "see"), ("scots", "scotland"),
    ("scottish", "scotland"), ("seen", "see"), ("sent", "send"), ("series", "series"),
    ("shown", "show"), ("shrank", "shrink"), ("shrunk", "shrink"), ("sold", "sell"),
    ("something", "something"), ("spanish", "spain"), ("species", "species"), ("speed", "speed"),
    ("spent", "spend"), ("spoke", "speak"), ("spoken", "speak"), ("spring", "spring"),
    ("stole", "steal"), ("stolen", "steal"), ("stood", "stand"), ("strike", "strike"),
    ("strikes", "strike"), ("striking", "strike"), ("string", "string"), ("struck", "strike"),
    ("sunk", "sink"), ("supply", "supply"), ("swam", "swim"), ("swum", "swim"),
    ("take", "take"), ("taken", "take"), ("takes", "take"), ("taking", "take"),
    ("tally", "tally"), ("taught", "teach"), ("thought", "think"), ("threw", "throw"),
    ("thrown", "throw"), ("told", "tell"), ("took", "take"), ("turkish", "turkey"),
    ("used", "use"), ("using", "use"), ("wales", "wales"), ("was", "be"),
    ("welsh", "wales"), ("went", "go"), ("were", "be"), ("women", "woman"),
    ("won", "win"), ("wore", "wear"), ("worn", "wear"), ("would", "will"),
    ("write", "write"), ("writes", "write"), ("writing", "write"), ("written", "write"),
    ("wrote", "write"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(word: &str) -> String {
        stem(word, &mut String::new()).to_owned()
    }

    #[test]
    fn all_endings_have_one_of_the_last_letters() {
        assert!(ENDINGS.iter().all(|(ending, _)| ending.ends_with(LAST_LETTERS)));
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
            &["supply", "supplies", "supplied"],
            &["reply", "replies", "replied"],
            &["agree", "agrees", "agreed", "agreeing"],
            &["fee", "fees"],
            &["leave", "leaves", "left"],
            &["owner", "owner's", "owner’s"],
        ] {
            for word in group {
                assert!(same_stem(&of(word), &of(group[0])), "{word}: {}", of(word));
            }
        }
        assert!(!same_stem(&of("port"), &of("report")));
        assert!(!same_stem(&of("car"), &of("carpet")));
    }

    #[test]
    fn an_index_finds_a_word_by_its_inflections_and_by_the_nouns_made_from_it() {
        let finds = |(word, particle): (&str, Option<&str>), indexed: &str| {
            let mut stem = String::new();
            push_index_stem(indexed, &mut stem);
            index_stems(word, particle).contains(&stem)
        };
        for (word, others) in [
            (("owned", None), &["own", "owned", "owner", "owners", "owns"][..]),
            (("backed", Some("up")), &["backed", "backup", "backups", "back", "backing"]),
            (("backup", None), &["backup", "backups", "backed", "back"]),
            (("policies", None), &["policies", "policy"]),
            (("running", None), &["running", "run", "ran", "runner", "runs"]),
            (("deploy", None), &["deploys", "deployed", "deployment", "deployments"]),
            (("deployments", None), &["deploy", "deploying", "deployment"]),
            (("validate", None), &["validates", "validation", "valid"]),
            (("installation", None), &["install", "installed", "installations"]),
            (("configured", None), &["configure", "configuration"]),
            (("management", None), &["manage", "manager", "managed"]),
            (("connects", None), &["connection", "connections", "connected"]),
            (("bought", None), &["buy", "bought"]),
            (("web23", None), &["web23"]),
            (("größe", None), &["größe"]),
        ] {
            for other in others {
                assert!(finds(word, other), "{word:?}: {other} in {:?}", index_stems(word.0, word.1));
            }
        }
        for (word, other) in [("port", "report"), ("state", "station"), ("verse", "version"), ("document", "docu")] {
            assert!(!finds((word, None), other), "{word}: {other}");
        }
    }

    #[test]
    fn inflections_share_a_stem() {
        let inflected = |word: &str| {
            let mut stem = String::new();
            push_stem(word, &mut stem);
            stem
        };
        for forms in [
            &["stop", "stops", "stopped", "stopping"][..],
            &["cache", "caches", "cached", "caching"],
            &["pass", "passes", "passed", "passing"],
            &["city", "cities", "city's"],
            &["rise", "rose", "risen", "rising"],
            &["evict", "evicts", "evicted", "evicting"],
            &["tree", "trees"],
            &["guarantee", "guarantees", "guaranteed"],
        ] {
            assert!(forms.iter().all(|form| inflected(form) == inflected(forms[0])), "{forms:?}");
        }
        assert_ne!(inflected("bus"), inflected("bu"));
        assert_ne!(inflected("owner"), inflected("own"));
        assert_eq!(inflected("größe"), "größe");
        assert_eq!(inflected("3.5"), "3.5");
    }

    #[test]
    fn irregular_words_are_sorted_and_needed() {
        assert!(IRREGULAR.is_sorted_by(|a, b| a.0 < b.0));
        for (form, stem) in IRREGULAR {
            let mut regular = String::new();
            push_regular_stem(form, &mut regular);
            assert_ne!(regular, stem, "{form}");
        }
    }
}
