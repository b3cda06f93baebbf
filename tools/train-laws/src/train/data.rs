//! The training texts.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use ken_support::{FEATURES, Kind, RARITY_LEVELS, features, stems, support};
use ken_tool::{Error, unreadable};
use serde::Deserialize;

/// Summaries from one origin.
pub(crate) struct Corpus {
    pub(crate) name: &'static str,
    pub(crate) documents: Vec<Document>,
}

/// A source with its summary.
pub(crate) struct Document {
    pub(crate) source: String,
    pub(crate) text: String,
    pub(crate) sentences: Vec<Sentence>,
    /// Whether its summary was assembled from pieces of the source.
    pub(crate) copies: bool,
}

pub(crate) struct Sentence {
    pub(crate) features: [f64; FEATURES],
    /// The share of readers who say that the source supports it.
    pub(crate) supported: f64,
    /// Whether a rule finds that the source contradicts it.
    pub(crate) contradicted: bool,
}

#[derive(Deserialize)]
struct Line {
    source: String,
    sentences: Vec<Judged>,
}

#[derive(Deserialize)]
struct Judged {
    sentence: String,
    supported: f64,
}

/// The corpora, and whether their summaries copy: those of `cnndm` were made by a system that copies, those of `xsum`
/// by one that rewrites.
const CORPORA: [(&str, bool); 2] = [("cnndm", true), ("xsum", false)];

pub(crate) fn read(folder: &Path) -> Result<Vec<Corpus>, Error> {
    let read_one = |(name, copies): (&'static str, bool)| {
        let path = folder.join("support").join(format!("{name}.jsonl"));
        let documents = text_of(&path)?
            .lines()
            .map(|line| document(line, copies).ok_or_else(|| malformed(&path)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Corpus { name, documents })
    };
    CORPORA.into_iter().map(read_one).collect()
}

fn document(line: &str, copies: bool) -> Option<Document> {
    let line: Line = serde_json::from_str(line).ok()?;
    let measured = line.sentences.iter().map(|judged| {
        // People judged single sentences, which are not always split as `ken_text` splits them.
        let sources = [line.source.as_str()];
        let all = features(&judged.sentence, &sources);
        let mean = |at: usize| all.iter().filter_map(|each| each.get(at)).sum::<f64>() / all.len().max(1) as f64;
        let found = support(&judged.sentence, &sources).sentences;
        let mut findings = found.iter().flat_map(|sentence| &sentence.findings);
        Sentence {
            features: std::array::from_fn(mean),
            supported: judged.supported,
            contradicted: findings.any(|finding| finding.kind == Kind::Contradicted),
        }
    });
    Some(Document {
        sentences: measured.collect(),
        text: line.sentences.iter().map(|judged| judged.sentence.as_str()).collect::<Vec<_>>().join(" "),
        source: line.source,
        copies,
    })
}

/// A stem that occurs in fewer texts than this is treated like a stem that occurs in none.
const FEWEST: u32 = 12;

/// The lines of `rarity.txt`, the rarity of words: a stem that occurs in N of T texts weighs log(T / N) / log(T).
pub(crate) fn rarity(folder: &Path, corpora: &[Corpus]) -> Result<String, Error> {
    let mut count = Count::default();
    for (path, column) in [("goemotions/train.tsv", 0), ("polarity/amazon.tsv", 1), ("polarity/movie.tsv", 1)] {
        for line in text_of(&folder.join(path))?.lines() {
            count.add(line.split('\t').nth(column).unwrap_or_default());
        }
    }
    for document in corpora.iter().flat_map(|corpus| &corpus.documents) {
        ken_text::sentences(&document.source).for_each(|sentence| count.add(sentence.text));
    }
    let mut levels: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    let texts = f64::from(count.texts).ln();
    for (stem, number) in count.with.iter().filter(|(_, number)| **number >= FEWEST) {
        let rarity = (texts - f64::from(*number).ln()) / texts;
        let level = (rarity * f64::from(RARITY_LEVELS)).round() as u32;
        levels.entry(level).or_default().push(stem);
    }
    let mut text =
        "# How rare words are, in sixteenths: a level a line, with its stems. A word that is not here weighs 16.\n"
            .to_owned();
    for (level, mut stems) in levels {
        stems.sort_unstable();
        text.push_str(&format!("{level} {}\n", stems.join(" ")));
    }
    Ok(text)
}

/// The number of texts in which each stem occurs.
#[derive(Default)]
struct Count {
    texts: u32,
    with: HashMap<String, u32>,
}

impl Count {
    fn add(&mut self, text: &str) {
        self.texts += 1;
        let mut all = Vec::new();
        stems(text, |stem| all.push(stem.to_owned()));
        all.sort_unstable();
        all.dedup();
        for stem in all.into_iter().filter(|stem| !stem.starts_with('#')) {
            *self.with.entry(stem).or_default() += 1;
        }
    }
}

fn text_of(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| unreadable(path, &error).at("--data"))
}

fn malformed(path: &Path) -> Error {
    Error::invalid("--data", format!("{} is not in the expected form", path.display()))
}
