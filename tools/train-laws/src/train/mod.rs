//! Fits the model of support by sources to summaries that people have judged. Every run produces the same bytes.

mod data;
mod fit;
mod measure;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use ken_tool::{Answer, Code, Error, Filter, Need, Replied, Reply};
use serde::Serialize;

use measure::Row;

#[derive(clap::Args)]
pub(crate) struct Train {
    /// Folder with support/*.jsonl, goemotions/train.tsv and polarity/*.tsv
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Folder where model.txt and rarity.txt are written; without it nothing is written
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The figures that the training prints.
#[derive(Serialize)]
pub(crate) struct Report {
    /// The correlations over documents, one row per corpus.
    corpora: Vec<Row>,
    /// Whether `rarity.txt` differs from the compiled-in one. If so, the trainer must be rebuilt and run again.
    rarity_changed: bool,
}

impl Filter for Train {
    const NAME: &'static str = "ken-train-laws";
    const ABOUT: &'static str = "Fit the model of support by sources and measure it on documents that it has not seen";

    fn inline(&self) -> Option<&str> {
        None
    }

    fn need(&self) -> Need {
        Need::Nothing
    }

    fn run(&self, _: &str, reply: Reply<'_>) -> Result<Replied, Error> {
        let corpora = data::read(&self.data)?;
        let rarity = data::rarity(&self.data, &corpora)?;
        let rows = measure::cross_validate(&corpora);
        if let Some(out) = &self.out {
            let model = fit::fit(&corpora.iter().flat_map(|corpus| &corpus.documents).collect::<Vec<_>>());
            write(&out.join("model.txt"), &format!("{MODEL_HEAD}{model}"))?;
            write(&out.join("rarity.txt"), &rarity)?;
        }
        Ok(reply.send(&Report {
            corpora: rows,
            rarity_changed: rarity != include_str!("../../../../share/support/rarity.txt"),
        }))
    }
}

const MODEL_HEAD: &str = "# Weights of the features of ken-laws(7), for a text that copies its source and for one that rewrites it.\n\
    # Made by `ken-train-laws --data DIR --out share/support`.\n";

impl Answer for Report {
    fn summary(&self, _verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for row in &self.corpora {
            writeln!(
                to,
                "{}: {} documents, r {} on unseen ones; word overlap {}, trigram overlap {}",
                row.corpus, row.documents, row.unseen, row.word_overlap, row.trigram_overlap
            )?;
        }
        Ok(())
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        Error::new(Code::Unavailable, message).at("--out")
    })
}
