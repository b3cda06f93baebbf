//! Trains the model of `ken_esl::risk` on written messages, and measures it on authors whose messages it was not trained
//! on.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use ken_tool::{Answer, Error};
use serde::Serialize;

use super::corpus::{Corpus, rows_of};
use super::network::Random;
use ken_esl::math::exp;
use ken_esl::risk::{ELEVATED, MAGIC, MIN_FEATURES, Model, classified, each_feature};

/// The number of comments that are used as additional harmless texts. Each has a low weight, because there are many
/// more of them than messages.
const COMMENTS: usize = 16_000;
const COMMENT_WEIGHT: f64 = 0.15;

/// The minimum number of texts that contain a feature.
const MIN_TEXTS: u32 = 3;
/// Features with a smaller weight are left out.
const MIN_WEIGHT: f64 = 0.2;

const EPOCHS: usize = 12;
/// The learning rate of AdaGrad.
const RATE: f64 = 0.3;
/// How strongly weights are pulled towards zero.
const DECAY: f64 = 40.0;
const SEED: u64 = 3;

/// The number of comments in a letter, which makes about 190 words.
const LETTER: usize = 14;

/// The words of each class; a word has one class.
static CLASSES: &str = include_str!("../../../../share/esl/risk.txt");

/// A message, its author, and whether it is about harming oneself.
struct Message {
    author: String,
    is_danger: bool,
    /// Whether it is an ordinary message. Other harmless messages were written to sound like danger.
    is_everyday: bool,
    text: String,
}

/// The hashes of the features of a text, without duplicates.
type Features = Vec<u32>;

struct Sample {
    features: Features,
    is_danger: bool,
    weight: f64,
}

/// The number of texts, and the number of these that are classified as danger.
#[derive(Clone, Copy, Default, Serialize)]
pub(crate) struct Classified {
    texts: usize,
    taken: usize,
}

/// The classification of texts that the model was not trained on.
#[derive(Clone, Default, Serialize)]
pub(crate) struct Judged {
    author: String,
    danger: Classified,
    harmless: Classified,
    everyday: Classified,
    /// Comments of the dev split, which are not in the training data.
    comments: Classified,
    /// The messages of danger, each among [`LETTER`] such comments, and the same number of letters without a message.
    danger_in_letters: Classified,
    harmless_letters: Classified,
    /// The scores of the messages of danger and of the everyday messages.
    #[serde(skip)]
    scores: [Vec<f32>; 2],
}

#[derive(Serialize)]
pub(crate) struct RiskReport {
    messages: usize,
    comments: usize,
    features: usize,
    model_bytes: usize,
    /// The messages of each author, classified by a model that was trained without this author, and the totals.
    left_out: Vec<Judged>,
    /// The share of everyday messages that reach a score, and the share of messages of danger that do, each judged by the
    /// model that was trained without its author.
    curve: Vec<(f64, f64)>,
}

/// Trains the model, and measures it by leaving out one author after the other. Returns the file of the model that is
/// trained on all authors.
pub(crate) fn make(messages: &Path, corpus: &Corpus) -> Result<(Vec<u8>, RiskReport), Error> {
    let messages = rows_of("--risk", messages, message)?;
    let classes = Classes::new();
    let messages: Vec<(Message, Sample)> = messages
        .into_iter()
        .map(|message| {
            let sample =
                Sample { features: classes.features(&message.text), is_danger: message.is_danger, weight: 1.0 };
            (message, sample)
        })
        .collect();
    let comment = |text| Sample { features: classes.features(text), is_danger: false, weight: COMMENT_WEIGHT };
    let comments: Vec<Sample> = corpus.labelled().take(COMMENTS).map(|(text, _)| comment(text)).collect();
    let train = |left_out: &str| {
        let kept = messages.iter().filter(|(message, _)| message.author != left_out);
        train(kept.map(|(_, sample)| sample).chain(&comments).collect(), &classes)
    };
    let authors: BTreeSet<&str> = messages.iter().map(|(message, _)| message.author.as_str()).collect();
    let mut left_out: Vec<Judged> = authors
        .iter()
        .map(|author| {
            let own = messages.iter().map(|(message, _)| message).filter(|message| message.author == *author);
            judge(&Model::read(&train(author)), author, own, corpus)
        })
        .collect();
    let all = sum(&left_out);
    let curve = curve(&all.scores);
    left_out.push(all);
    let file = train("");
    let report = RiskReport {
        messages: messages.len(),
        comments: comments.len(),
        features: Model::read(&file).features(),
        model_bytes: file.len(),
        left_out,
        curve,
    };
    Ok((file, report))
}

/// `author, tab, class, tab, text`
fn message(line: &str) -> Option<Message> {
    let mut fields = line.splitn(3, '\t');
    let (author, class, text) = (fields.next()?, fields.next()?, fields.next()?);
    let is_known = !author.is_empty() && ["danger", "harmless", "everyday"].contains(&class);
    let (is_danger, is_everyday) = (class == "danger", class == "everyday");
    is_known.then(|| Message { author: author.to_owned(), is_danger, is_everyday, text: text.to_owned() })
}

/// The number of the class of each word that has one, by the hash of its entry.
struct Classes(HashMap<u32, i8>);

impl Classes {
    fn new() -> Classes {
        let lines = CLASSES.lines().filter_map(|line| line.split_once(": ").filter(|_| !line.starts_with('#')));
        let words = lines.zip(0..).flat_map(|((_, words), number)| words.split(' ').map(move |word| (word, number)));
        Classes(words.map(|(word, number)| (classified(word), number)).collect())
    }

    /// Returns the hashes of the features of a text, without duplicates.
    fn features(&self, text: &str) -> Features {
        let mut features = Vec::new();
        each_feature(text, |word| self.0.get(&word).copied(), |feature, _, _| features.push(feature));
        features.sort_unstable();
        features.dedup();
        features
    }
}

/// Trains a model on these texts, and returns its file.
fn train(samples: Vec<&Sample>, classes: &Classes) -> Vec<u8> {
    let mut learner = Learner::new(samples);
    let mut order: Vec<usize> = (0..learner.samples.len()).collect();
    let mut chance = Random(SEED);
    for _ in 0..EPOCHS {
        chance.shuffle(&mut order);
        order.iter().for_each(|at| learner.learn(*at));
    }
    learner.file(classes)
}

/// A parameter and the sum of its squared gradients.
#[derive(Clone, Copy)]
struct Parameter {
    value: f64,
    squares: f64,
}

impl Parameter {
    const ZERO: Parameter = Parameter { value: 0.0, squares: 1e-8 };

    /// One step of AdaGrad.
    fn step(&mut self, gradient: f64) {
        self.squares += gradient * gradient;
        self.value -= RATE * gradient / self.squares.sqrt();
    }
}

struct Learner<'a> {
    samples: Vec<&'a Sample>,
    /// The hashes of the features that occur in enough texts, sorted.
    known: Vec<u32>,
    /// The indexes into `known` of the features of each sample.
    rows: Vec<Vec<usize>>,
    weights: Vec<Parameter>,
    bias: Parameter,
}

impl<'a> Learner<'a> {
    fn new(samples: Vec<&'a Sample>) -> Learner<'a> {
        let mut texts_with: HashMap<u32, u32> = HashMap::new();
        for feature in samples.iter().flat_map(|sample| &sample.features) {
            *texts_with.entry(*feature).or_default() += 1;
        }
        let mut known: Vec<u32> =
            texts_with.into_iter().filter_map(|(feature, texts)| (texts >= MIN_TEXTS).then_some(feature)).collect();
        known.sort_unstable();
        let row = |sample: &&Sample| {
            let places = sample.features.iter();
            places.filter_map(|feature| known.binary_search(feature).ok()).collect()
        };
        Learner {
            rows: samples.iter().map(row).collect(),
            weights: vec![Parameter::ZERO; known.len()],
            bias: Parameter::ZERO,
            known,
            samples,
        }
    }

    fn learn(&mut self, at: usize) {
        let (Some(sample), Some(row)) = (self.samples.get(at), self.rows.get(at)) else {
            return;
        };
        let scale = 1.0 / (row.len().max(MIN_FEATURES) as f64).sqrt();
        let sum: f64 = row.iter().map(|place| self.weights[*place].value).sum();
        let guess = 1.0 / (1.0 + f64::from(exp(-(self.bias.value + sum * scale) as f32)));
        let error = sample.weight * (guess - f64::from(u8::from(sample.is_danger)));
        let decay = DECAY / self.samples.len() as f64;
        for place in row {
            let weight = &mut self.weights[*place];
            weight.step(error * scale + decay * weight.value);
        }
        self.bias.step(error);
    }

    fn file(&self, classes: &Classes) -> Vec<u8> {
        let mut kept: Vec<(u32, f64)> =
            self.known.iter().copied().zip(self.weights.iter().map(|weight| weight.value)).collect();
        kept.retain(|(_, weight)| weight.abs() >= MIN_WEIGHT);
        let largest = kept.iter().map(|(_, weight)| weight.abs()).fold(MIN_WEIGHT, f64::max);
        let unit = largest / f64::from(i8::MAX);
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&(self.bias.value as f32).to_le_bytes());
        file.extend_from_slice(&(unit as f32).to_le_bytes());
        let weights = kept.into_iter().map(|(feature, weight)| (feature, (weight / unit).round() as i8));
        let mut entries: Vec<(u32, i8)> =
            weights.chain(classes.0.iter().map(|(word, class)| (*word, *class))).collect();
        entries.sort_unstable();
        for (hash, value) in entries {
            file.extend_from_slice(&hash.to_le_bytes());
            file.extend_from_slice(&value.to_le_bytes());
        }
        file
    }
}

fn judge<'a>(model: &Model, author: &str, own: impl Iterator<Item = &'a Message>, corpus: &Corpus) -> Judged {
    let mut judged = Judged { author: author.to_owned(), ..Judged::default() };
    let comments: Vec<&str> = corpus.dev_texts().collect();
    let mut letters = comments.chunks(LETTER).cycle();
    for message in own {
        let [danger, everyday] = &mut judged.scores;
        if message.is_danger {
            danger.push(judged.danger.count(model, &message.text));
            let (before, after) = letters.next().unwrap_or_default().split_at_checked(LETTER / 2).unwrap_or_default();
            let letter = [before, &[&message.text], after].concat().join("\n");
            judged.danger_in_letters.count(model, &letter);
        } else if message.is_everyday {
            everyday.push(judged.everyday.count(model, &message.text));
        } else {
            judged.harmless.count(model, &message.text);
        }
    }
    for letter in comments.chunks(LETTER) {
        for text in letter {
            judged.comments.count(model, text);
        }
        judged.harmless_letters.count(model, &letter.join("\n"));
    }
    judged
}

impl Classified {
    /// Counts a text, and returns its score.
    fn count(&mut self, model: &Model, text: &str) -> f32 {
        let score = model.assess(text).score;
        self.texts += 1;
        self.taken += usize::from(score >= ELEVATED);
        score
    }

    fn add(self, other: Classified) -> Classified {
        Classified { texts: self.texts + other.texts, taken: self.taken + other.taken }
    }
}

fn sum(all: &[Judged]) -> Judged {
    let none = Judged { author: "all".to_owned(), ..Judged::default() };
    all.iter().fold(none, |sum, one| Judged {
        author: sum.author,
        danger: sum.danger.add(one.danger),
        harmless: sum.harmless.add(one.harmless),
        everyday: sum.everyday.add(one.everyday),
        comments: sum.comments.add(one.comments),
        danger_in_letters: sum.danger_in_letters.add(one.danger_in_letters),
        harmless_letters: sum.harmless_letters.add(one.harmless_letters),
        scores: [0, 1].map(|kind| [&*sum.scores[kind], &one.scores[kind]].concat()),
    })
}

/// Returns the recall at some shares of false alarms.
fn curve([danger, everyday]: &[Vec<f32>; 2]) -> Vec<(f64, f64)> {
    const SHARES: [f64; 5] = [0.005, 0.01, 0.02, 0.05, 0.1];
    let mut alarms = everyday.clone();
    alarms.sort_unstable_by(|a, b| b.total_cmp(a));
    let recall = |share: f64| {
        let limit = alarms.get((share * alarms.len() as f64) as usize).copied().unwrap_or(0.0);
        let seen = danger.iter().filter(|score| **score > limit).count();
        seen as f64 / danger.len().max(1) as f64
    };
    SHARES.map(|share| (share, recall(share))).to_vec()
}

impl Answer for RiskReport {
    fn summary(&self, _verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(
            to,
            "{} messages, {} comments, {} features, {} bytes",
            self.messages, self.comments, self.features, self.model_bytes
        )?;
        writeln!(to, "each author judged by a model trained without that author; the share taken for danger, of")?;
        let head = ["danger", "harmless", "everyday", "comments", "danger in letters", "harmless letters"];
        writeln!(to, "  {:<8}{}", "author", head.map(|name| format!("{name:>18}")).concat())?;
        for judged in &self.left_out {
            let short = [judged.danger, judged.harmless, judged.everyday, judged.comments];
            let row = short.into_iter().chain([judged.danger_in_letters, judged.harmless_letters]);
            let share = |Classified { texts, taken }| format!("{:>18.3}", taken as f64 / usize::max(texts, 1) as f64);
            writeln!(to, "  {:<8}{}", judged.author, row.map(share).collect::<String>())?;
        }
        for (share, recall) in &self.curve {
            writeln!(to, "  recall {recall:.3} at {share} false alarms on everyday messages")?;
        }
        Ok(())
    }
}
