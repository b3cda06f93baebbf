//! Builds the table, or the model of danger, from the training texts. The result has the same bytes on every run.

mod corpus;
mod measure;
mod network;
mod pack;
mod rank;
mod risk;
mod sample;
mod words;

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use ken_tool::{Answer, Code, Error, Filter, Need, Replied, Reply};
use serde::Serialize;

use corpus::Corpus;
use ken_esl::feature;
use ken_esl::scope::{Note, annotate, normalize_stretched};
use ken_esl::table::{SCORES, Sum, Table, WIDTH, row_of};
use ken_esl::token::{Token, Tokens};
use ken_esl::window::MAX_TOKENS;
use network::{Network, Settings};
use pack::Draft;
use sample::Sample;

/// The minimum number of training texts that contain a feature. A rarer feature depends more on these particular texts
/// than on feelings.
const MIN_TEXTS: u32 = 15;

/// The number of folds. The teacher of each fold judges the texts that it was not trained on. The student is trained on
/// the labels of people and of the teachers, which softens labels on which people disagree.
const FOLDS: usize = 5;

const TEACHER: Settings = Settings { seed: 1, epochs: 8, drop_features: 0.3, drop_inputs: 0.4 };

const STUDENT: Settings = Settings { seed: 2, epochs: 14, drop_features: 0.3, drop_inputs: 0.2 };

#[derive(clap::Args)]
pub(crate) struct Train {
    /// Folder with goemotions/{train,dev,labels}.* and polarity/*.tsv
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// File to write the table or the model to
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present_any = ["folds", "risk"],
        conflicts_with = "folds"
    )]
    out: Option<PathBuf>,
    /// Measure by cross-validation with N parts instead of writing a table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=20))]
    folds: Option<u8>,
    /// Train the model of danger to the writer on these messages instead: author, class and text, separated by tabs
    #[arg(long, value_name = "TSV", conflicts_with = "folds")]
    risk: Option<PathBuf>,
}

/// The figures that the training prints as JSON.
#[derive(Serialize)]
pub(crate) struct Report {
    texts: usize,
    features: usize,
    table_bytes: usize,
    dev: rank::DevScores,
    /// Pearson's r of the teachers' polarity, for each corpus, on texts that they were not trained on.
    held_out_polarity_r: Vec<(String, f32)>,
}

impl Filter for Train {
    const NAME: &'static str = "ken-train-esl";
    const ABOUT: &'static str = "Build the model's table from the training texts; the bytes are the same on every run";

    fn inline(&self) -> Option<&str> {
        None
    }

    fn need(&self) -> Need {
        Need::Nothing
    }

    /// Trains, writes the file, and reports the figures.
    fn run(&self, _: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let corpus = Corpus::read(&self.data)?;
        if let Some(folds) = self.folds {
            return Ok(reply.send(&measure::cross_validate(&corpus, usize::from(folds))?));
        }
        if let Some(messages) = &self.risk {
            let (file, report) = risk::make(messages, &corpus)?;
            if let Some(out) = &self.out {
                write(out, &file)?;
            }
            return Ok(reply.send(&report));
        }
        let (draft, report) = make(&corpus)?;
        if let Some(out) = &self.out {
            write(out, &draft.file())?;
        }
        Ok(reply.send(&report))
    }
}

impl Answer for Report {
    fn summary(&self, _verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        let dev = &self.dev;
        writeln!(to, "{} texts, {} features, {} bytes", self.texts, self.features, self.table_bytes)?;
        writeln!(to, "dev: 28 labels {}, 7 classes {}", dev.labels_f1, dev.families_f1)
    }
}

fn write(path: &PathBuf, bytes: &[u8]) -> Result<(), Error> {
    let written = std::fs::File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        Error::new(Code::Unavailable, message).at("--out")
    })
}

fn make(corpus: &Corpus) -> Result<(Draft, Report), Error> {
    let mut draft = Draft::new();
    words::put_all(&mut draft.parts.slots)?;
    let features = choose_features(&mut draft, corpus);
    let mut samples = corpus.samples(|text| rows(&draft.table(), text));
    let dev = corpus.dev_samples(|text| rows(&draft.table(), text));
    let held_out_polarity_r = teach(&mut samples, corpus);
    let student = Network::train(samples.iter(), &STUDENT);
    draft.put_network(&student);
    let scores: Vec<_> = dev.iter().map(|sample| table_scores(&draft.table(), sample)).collect();
    let (thresholds, dev) = rank::choose(&scores, &dev);
    draft.parts.thresholds = thresholds;
    let report = Report { texts: samples.len(), features, table_bytes: draft.file().len(), dev, held_out_polarity_r };
    Ok((draft, report))
}

/// Calls `feature` for every feature of a text.
fn each_feature(table: &Table, text: &str, mut feature: impl FnMut(u64)) {
    let mut tokens: Vec<Token> = Tokens::new(text).take(MAX_TOKENS).collect();
    tokens.iter_mut().for_each(|token| normalize_stretched(table, token));
    let mut notes: Vec<Note> = Vec::new();
    annotate(table, &tokens, &mut notes);
    for at in 0..tokens.len() {
        feature::of_token(&tokens, &notes, at, &mut feature);
    }
    feature::of_style(&tokens, &mut feature);
}

/// Adds the features that occur in enough texts to the draft's filter. Returns their number.
fn choose_features(draft: &mut Draft, corpus: &Corpus) -> usize {
    let mut texts_with: HashMap<u64, u32> = HashMap::new();
    let mut features = Vec::new();
    for text in corpus.texts() {
        features.clear();
        each_feature(&draft.table(), text, |feature| features.push(feature));
        features.sort_unstable();
        features.dedup();
        for feature in &features {
            *texts_with.entry(*feature).or_default() += 1;
        }
    }
    let enough = MIN_TEXTS.min(1 + corpus.texts().count() as u32 / 100); // lower for the small sample of a test
    texts_with.retain(|_, count| *count >= enough);
    texts_with.keys().for_each(|feature| draft.put_feature(*feature));
    texts_with.len()
}

/// Returns the rows of a text's known features.
fn rows(table: &Table, text: &str) -> Vec<u32> {
    let mut rows = Vec::new();
    each_feature(table, text, |feature| {
        if table.knows(feature) {
            rows.push(row_of(feature));
        }
    });
    rows
}

fn table_scores(table: &Table, sample: &Sample) -> [f32; SCORES] {
    let mut sum = Sum::ZERO;
    for rows in sample.rows.chunks(1024) {
        let mut part = [0; WIDTH];
        table.add(rows, &mut part);
        sum.add(&part, rows.len());
    }
    table.scores(&table.hidden(&sum))
}

/// Adds the teachers' judgement of texts that they were not trained on to the targets.
fn teach(samples: &mut [Sample], corpus: &Corpus) -> Vec<(String, f32)> {
    let mut opinions = vec![[0.0; SCORES]; samples.len()];
    for fold in 0..FOLDS {
        let seen = samples.iter().enumerate().filter(|(at, _)| at % FOLDS != fold);
        let settings = Settings { seed: TEACHER.seed + 100 * (fold as u64 + 1), ..TEACHER };
        let teacher = Network::train(seen.map(|(_, sample)| sample), &settings);
        let unseen = samples.iter().zip(&mut opinions).skip(fold).step_by(FOLDS);
        for (sample, opinion) in unseen {
            *opinion = teacher.probabilities(sample);
        }
    }
    let correlations = corpus.polarity_correlations(&opinions);
    for (sample, opinion) in samples.iter_mut().zip(&opinions) {
        sample.soften(opinion);
    }
    correlations
}
