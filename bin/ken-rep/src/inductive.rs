//! Induction: finds what many observations have in common.

use std::collections::BTreeMap;

use ken_text::{Word, is_negator, is_stop_word, words};
use ken_tool::{Error, Replied, Reply};
use serde::Serialize;

use crate::answer::{Found, Issue, Step};
use crate::clause;
use crate::document::{Document, Kind};
use crate::numbers::{format_count, rounded, wilson};
use crate::trend::{self, Trend};

/// The maximum number of terms that are examined in pairs. The best supported ones are used. The number of pairs grows
/// with its square.
const MAX_PAIRED_TERMS: usize = 24;

/// The maximum size of the observations that are cited by all generalisations together, in bytes, and likewise by all
/// trends. Without it, many long observations with the same words could fill the memory.
const MAX_CITED_BYTES: usize = 32 * 1024 * 1024;

/// A term, or a pair of terms, and the observations that contain it.
#[derive(Serialize)]
struct Generalisation<'t> {
    term: String,
    /// The second term of a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<String>,
    support: usize,
    total: usize,
    exceptions: Vec<&'t str>,
    confidence: f64,
    #[serde(skip)]
    supporters: Vec<usize>,
}

#[derive(Serialize)]
struct ExtraFields<'t> {
    generalisations: Vec<Generalisation<'t>>,
    trends: Vec<Trend>,
}

pub(crate) fn answer(document: &Document<'_>, reply: Reply<'_>) -> Result<Replied, Error> {
    let mut observations = document.facts.clone();
    observations.extend(document.observations.iter().cloned());
    if observations.is_empty() {
        return Err(Error::invalid("/observations", "induction needs observations (or facts)"));
    }
    let texts: Vec<&str> = observations.iter().map(AsRef::as_ref).collect();
    let mut generalisations = generalise(&texts);
    let mut trends = trend::find(&texts);
    let issues = [cut(&mut generalisations, &texts), cut_trends(&mut trends, &texts)];
    let mut chain: Vec<Step> = generalisations.iter().map(|found| found.step(&texts)).collect();
    chain.extend(trends.iter().map(|trend| trend.step(&texts)));
    let conclusions: Vec<String> = chain.iter().map(|step| step.conclusion.clone()).collect();
    let found = Found {
        confidence: chain.iter().map(|step| step.confidence).collect::<Vec<f64>>(),
        explanation: explanation(texts.len(), &generalisations, &trends),
        conclusions: &conclusions,
        chain: &chain,
        issues: issues.into_iter().flatten().collect(),
        more: ExtraFields { generalisations, trends },
    };
    Ok(reply.send(&found.answer(Kind::Inductive, &observations, document)))
}

/// Removes the least supported generalisations if they would exceed [`MAX_CITED_BYTES`]. Returns a warning if any were
/// removed.
fn cut(generalisations: &mut Vec<Generalisation<'_>>, texts: &[&str]) -> Option<Issue> {
    let sizes = generalisations.iter().map(|found| {
        let exceptions = found.exceptions.iter().map(|text| 2 * text.len());
        cited(&found.supporters, texts) + exceptions.sum::<usize>()
    });
    let fits = fitting(sizes);
    let issue = search_cut(fits, generalisations.len(), "generalisations");
    generalisations.truncate(fits);
    issue
}

/// Removes the last trends if they would exceed [`MAX_CITED_BYTES`]. Returns a warning if any were removed.
fn cut_trends(trends: &mut Vec<Trend>, texts: &[&str]) -> Option<Issue> {
    let fits = fitting(trends.iter().map(|trend| cited(trend.places(), texts)));
    let issue = search_cut(fits, trends.len(), "trends");
    trends.truncate(fits);
    issue
}

fn cited(places: &[usize], texts: &[&str]) -> usize {
    let size = |place: &usize| texts.get(*place).map_or(0, |text| text.len());
    places.iter().map(size).sum()
}

fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let mut cited = 0;
    let fits = |size: &usize| {
        cited += size;
        cited <= MAX_CITED_BYTES
    };
    sizes.take_while(fits).count()
}

fn search_cut(shown: usize, found: usize, what: &str) -> Option<Issue> {
    (shown < found).then(|| Issue {
        kind: "search_cut",
        severity: "warning",
        at: "/observations".to_owned(),
        message: format!("only {shown} of {found} {what} are reported"),
        proofs: Vec::new(),
    })
}

fn explanation(observations: usize, generalisations: &[Generalisation<'_>], trends: &[Trend]) -> String {
    let from = format_count(observations, "observation");
    match (generalisations.len(), trends.len()) {
        (0, 0) if observations == 1 => format!("{from} is too few to generalise"),
        (0, 0) => format!("{from} have nothing in common that would generalise"),
        (some, 0) => format!("{} from {from}", format_count(some, "generalisation")),
        (some, trends) => {
            format!("{} and {} from {from}", format_count(some, "generalisation"), format_count(trends, "trend"))
        }
    }
}

impl<'t> Generalisation<'t> {
    fn of(term: String, with: Option<String>, supporters: Vec<usize>, cases: &[usize], texts: &[&'t str]) -> Self {
        let exceptions = cases.iter().filter(|case| supporters.binary_search(case).is_err());
        Generalisation {
            exceptions: exceptions.filter_map(|&case| texts.get(case).copied()).collect(),
            support: supporters.len(),
            total: cases.len(),
            confidence: rounded(wilson(supporters.len(), cases.len())),
            term,
            with,
            supporters,
        }
    }

    fn step(&self, texts: &[&str]) -> Step {
        let Generalisation { term, support, total, confidence, .. } = self;
        let conclusion = match &self.with {
            None => format!("\"{term}\" in {support} of {total} observations"),
            Some(with) => format!("\"{term}\" with \"{with}\" in {support} of {total} observations"),
        };
        let except = match self.exceptions.as_slice() {
            [] => "no exception".to_owned(),
            some => format!("not in: {}", some.join("; ")),
        };
        let supporters = self.supporters.iter().filter_map(|&place| texts.get(place));
        Step {
            kind: "generalisation",
            rule: None,
            premises: supporters.map(|&text| text.to_owned()).collect(),
            explanation: format!("{conclusion}; {except}; at least {confidence:.2} (Wilson, 95 %)"),
            conclusion,
            confidence: *confidence,
        }
    }
}

/// A content word or its negation.
struct Term {
    word: String,
    is_denied: bool,
    /// The observations that contain it, each with the position of its first occurrence there, counted over all of them.
    places: BTreeMap<usize, usize>,
}

impl Term {
    fn text(&self) -> String {
        if self.is_denied { format!("not {}", self.word) } else { self.word.clone() }
    }
}

/// Returns the terms that occur in at least half of the observations, and in at least two. The best supported come first,
/// and equally supported ones in the order in which they occur.
fn shared_terms(texts: &[&str]) -> Vec<Term> {
    // By their singular form and whether they are negated.
    let mut terms: BTreeMap<(String, bool), Term> = BTreeMap::new();
    let mut position = 0;
    for (place, text) in texts.iter().enumerate() {
        let words: Vec<Word<'_>> = words(text).collect();
        let negated = clause::negated(text, &words);
        for (word, is_denied) in words.iter().zip(negated).filter(|(word, _)| is_content(word.text)) {
            let shown = ken_text::fold(word.text).into_owned();
            let term = terms.entry((singular(&shown), is_denied)).or_insert_with(|| Term {
                word: shown,
                is_denied,
                places: BTreeMap::new(),
            });
            term.places.entry(place).or_insert(position);
            position += 1;
        }
    }
    let is_shared = |term: &Term| term.places.len() >= 2 && term.places.len() * 2 >= texts.len();
    let mut shared: Vec<Term> = terms.into_values().filter(is_shared).collect();
    shared.sort_by_key(|term| (usize::MAX - term.places.len(), term.places.values().next().copied()));
    shared
}

/// Returns whether a word is a content word: it is no stop word, negator, number or single letter.
fn is_content(word: &str) -> bool {
    let folded = ken_text::fold(word);
    let has_letters = folded.chars().filter(|char| char.is_alphabetic()).count() >= 2;
    let is_number = folded.starts_with(|char: char| char.is_ascii_digit());
    has_letters && !is_number && !is_negator(&folded) && !is_stop_word(&folded) && ken_text::expand(&folded).is_none()
}

/// Returns a simple singular form, so that "swans" and "swan", or "flies" and "fly", count as the same word.
fn singular(word: &str) -> String {
    match word {
        _ if word.len() < 4 || word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") => word.to_owned(),
        _ if word.ends_with("ies") => word.trim_end_matches("ies").to_owned() + "y",
        _ => word.strip_suffix('s').unwrap_or(word).to_owned(),
    }
}

fn generalise<'t>(texts: &[&'t str]) -> Vec<Generalisation<'t>> {
    let all: Vec<usize> = (0..texts.len()).collect();
    let shared = shared_terms(texts);
    let one = |term: &Term| Generalisation::of(term.text(), None, term.places.keys().copied().collect(), &all, texts);
    let mut found: Vec<Generalisation<'t>> = shared.iter().map(one).collect();
    let paired: Vec<&Term> = shared.iter().take(MAX_PAIRED_TERMS).collect();
    for term in &paired {
        for with in paired.iter().filter(|with| with.word != term.word) {
            found.extend(generalise_pair(texts, term, with));
        }
    }
    found
}

/// Returns the generalisation that observations with `term` also contain `with`; `None` if most do not. `with` must
/// come later in the first observation with both, because a subject comes before its predicate.
fn generalise_pair<'t>(texts: &[&'t str], term: &Term, with: &Term) -> Option<Generalisation<'t>> {
    let cases: Vec<usize> = term.places.keys().copied().collect();
    let both: Vec<usize> = cases.iter().copied().filter(|place| with.places.contains_key(place)).collect();
    let first = both.first()?;
    let in_order = term.places.get(first) < with.places.get(first);
    let mostly = both.len() >= 2 && both.len() * 2 > cases.len();
    (in_order && mostly).then(|| Generalisation::of(term.text(), Some(with.text()), both, &cases, texts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conclusions(texts: &[&str]) -> Vec<String> {
        generalise(texts).iter().map(|found| found.step(texts).conclusion).collect()
    }

    #[test]
    fn shared_words_generalise_and_stop_words_do_not() {
        assert_eq!(conclusions(&["swans fly", "swans swim", "swans walk"]), ["\"swans\" in 3 of 3 observations"]);
        assert_eq!(conclusions(&["the cat is on the mat", "the dog is in the house"]), [""; 0]);
    }

    /// The order is that of the words in the text, also where a word has another form there or stands in another word.
    #[test]
    fn a_pair_is_named_in_the_order_of_the_text() {
        for (texts, wanted) in [
            (["swans rest", "white swan", "white swan"], "\"white\" with \"swans\" in 2 of 2 observations"),
            (["white swan", "white swan", "swans rest"], "\"white\" with \"swan\" in 2 of 2 observations"),
            (
                ["bluebells are blue", "blue sky", "bluebells are blue"],
                "\"bluebells\" with \"blue\" in 2 of 2 observations",
            ),
            (["weekend in the end", "weekend in the end", "rain"], "\"weekend\" with \"end\" in 2 of 2 observations"),
            (["end of the weekend", "end of the weekend", "rain"], "\"end\" with \"weekend\" in 2 of 2 observations"),
        ] {
            let pairs = conclusions(&texts).into_iter().filter(|one| one.contains("with")).collect::<Vec<_>>();
            assert_eq!(pairs, [wanted], "{texts:?}");
        }
    }

    #[test]
    fn a_denial_is_an_exception() {
        let found = generalise(&["swan A is white", "swan B is white", "swan C is not white"]);
        let white = found.iter().find(|found| found.term == "white").unwrap();
        assert_eq!((white.support, white.total), (2, 3));
        assert_eq!(white.exceptions, ["swan C is not white"]);
        let pair = found.iter().find(|found| found.with.is_some()).unwrap();
        assert_eq!((pair.term.as_str(), pair.with.as_deref()), ("swan", Some("white")));
    }
}
