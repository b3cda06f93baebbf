//! The training data: labelled comments and rated sentences.

use std::path::Path;

use ken_tool::unreadable;
use ken_types::Error;

use super::sample::Sample;
use ken_esl::emotion::{EMOTIONS, LABELS};
use ken_esl::table::{POLARITY, SCORES};

/// A comment, and the numbers of its labels.
pub(crate) type Labelled = (String, Vec<usize>);

/// A sentence, and its mean rating from -4 to 4.
type Rated = (String, f32);

#[derive(Clone)]
pub(crate) struct Corpus {
    train: Vec<Labelled>,
    dev: Vec<Labelled>,
    /// Corpora of rated sentences, by name.
    rated: Vec<(String, Vec<Rated>)>,
}

impl Corpus {
    pub(crate) fn read(folder: &Path) -> Result<Corpus, Error> {
        let comments = folder.join("goemotions");
        check_labels(&comments.join("labels.txt"))?;
        Ok(Corpus {
            train: read_rows(&comments.join("train.tsv"), labelled)?,
            dev: read_rows(&comments.join("dev.tsv"), labelled)?,
            rated: read_rated(&folder.join("polarity"))?,
        })
    }

    /// Divides the labelled comments into `folds` parts. Returns the corpus without part `fold`,
    /// and that part.
    pub(crate) fn without(&self, fold: usize, folds: usize) -> (Corpus, Vec<Labelled>) {
        let part = |inside: bool| {
            let rows = self.train.iter().enumerate();
            let rows = rows.filter(move |(at, _)| (at % folds == fold) == inside);
            rows.map(|(_, row)| row.clone()).collect()
        };
        let learnt = Corpus { train: part(false), ..self.clone() };
        (learnt, part(true))
    }

    pub(crate) fn labelled(&self) -> impl Iterator<Item = &Labelled> {
        self.train.iter()
    }

    pub(crate) fn dev_texts(&self) -> impl Iterator<Item = &str> {
        self.dev.iter().map(|(text, _)| text.as_str())
    }

    /// Returns all training texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        let rated = self.rated.iter().flat_map(|(_, rows)| rows.iter().map(|(text, _)| text.as_str()));
        self.train.iter().map(|(text, _)| text.as_str()).chain(rated)
    }

    /// Returns the training samples, in the order of [`Corpus::texts`].
    pub(crate) fn samples(&self, rows: impl Fn(&str) -> Vec<u32>) -> Vec<Sample> {
        let labelled = self.train.iter().map(|(text, labels)| Sample::labelled(rows(text), labels));
        let rated = self.rated.iter().flat_map(|(_, list)| list);
        labelled.chain(rated.map(|(text, rating)| Sample::rated(rows(text), *rating))).collect()
    }

    pub(crate) fn dev_samples(&self, rows: impl Fn(&str) -> Vec<u32>) -> Vec<Sample> {
        self.dev.iter().map(|(text, labels)| Sample::labelled(rows(text), labels)).collect()
    }

    /// Returns Pearson's r between the polarity in `opinions` and the ratings, for each corpus.
    pub(crate) fn polarity_correlations(&self, opinions: &[[f32; SCORES]]) -> Vec<(String, f32)> {
        let mut rest = opinions.iter().skip(self.train.len());
        let correlate = |(name, rows): &(String, Vec<Rated>)| {
            let pairs = rows.iter().zip(rest.by_ref());
            let pairs: Vec<_> = pairs.map(|((_, rating), opinion)| (*rating, opinion[POLARITY])).collect();
            (name.clone(), correlation(&pairs))
        };
        self.rated.iter().map(correlate).collect()
    }
}

/// Returns Pearson's r, rounded to three digits.
fn correlation(pairs: &[(f32, f32)]) -> f32 {
    let count = pairs.len().max(1) as f64;
    let mean = |of: fn(&(f32, f32)) -> f32| pairs.iter().map(|pair| f64::from(of(pair))).sum::<f64>() / count;
    let (mean_a, mean_b) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let (mut both, mut a2, mut b2) = (0.0, 0.0, 0.0);
    for (a, b) in pairs {
        let (a, b) = (f64::from(*a) - mean_a, f64::from(*b) - mean_b);
        both += a * b;
        a2 += a * a;
        b2 += b * b;
    }
    let r = if a2 * b2 > 0.0 { both / (a2 * b2).sqrt() } else { 0.0 };
    (r * 1000.0).round() as f32 / 1000.0
}

fn check_labels(path: &Path) -> Result<(), Error> {
    let text = read(path)?;
    let expected = EMOTIONS.iter().take(LABELS).map(|emotion| emotion.name);
    if text.lines().map(str::trim).ne(expected) {
        return Err(Error::invalid("--data", format!("{}: not the 28 labels of GoEmotions", path.display())));
    }
    Ok(())
}

/// Reads every .tsv file of a folder. Returns the sentences by the name of the file.
fn read_rated(folder: &Path) -> Result<Vec<(String, Vec<Rated>)>, Error> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error).at("--data"))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "tsv"));
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, read_rows(path, rated)?))
    };
    paths.iter().map(read).collect()
}

fn read_rows<T>(path: &Path, row: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
    rows_of("--data", path, row)
}

/// Returns the rows of the file that a command-line option names. Errors name the option.
pub(super) fn rows_of<T>(option: &str, path: &Path, row: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Error> {
    let text = read(path).map_err(|error| error.at(option))?;
    let rows = text.lines().enumerate().map(|(number, line)| {
        row(line).ok_or_else(|| {
            let place = format!("{}:{}", path.display(), number + 1);
            Error::invalid(option, format!("{place}: not a row of this corpus"))
        })
    });
    rows.collect()
}

/// `text, tab, label numbers with commas, tab, id`
fn labelled(line: &str) -> Option<Labelled> {
    let mut fields = line.split('\t');
    let (text, labels) = (fields.next()?, fields.next()?);
    let labels: Option<Vec<usize>> = labels.split(',').map(|label| label.parse().ok()).collect();
    let labels = labels.filter(|labels| labels.iter().all(|label| *label < LABELS))?;
    Some((text.to_owned(), labels))
}

/// `rating, tab, text`
fn rated(line: &str) -> Option<Rated> {
    let (rating, text) = line.split_once('\t')?;
    let rating: f32 = rating.parse().ok()?;
    (-4.0..=4.0).contains(&rating).then(|| (text.to_owned(), rating))
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, &error).at("--data"))
}
