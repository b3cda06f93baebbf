//! The sources that a text is compared with.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ken_support::{Kind, Support};
use ken_tool::{Error, MAX_DEPTH, MAX_INPUT};
use serde_json::Value;

use crate::judge::is_english;

#[derive(Clone)]
pub(crate) struct Source {
    /// Its `id`, its index among the sources, or its file.
    pub(crate) id: String,
    text: String,
}

impl Source {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// How many bytes of a source are examined to detect its language.
const SAMPLE: usize = 16 * 1024;

/// Why support that is required could not be judged without a source.
const MISSING: &str =
    "not judged: support is required, but there is no source; give one with --sources or the field sources";

const FOREIGN: &str = "not judged: support by sources needs an English text and English sources";

/// Reads the field `sources` of a document: a text, or a list of texts and of objects with `text` and perhaps `id`.
pub(crate) fn read(value: &Value, at: &str) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    match value {
        Value::Null => return Ok(sources),
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                sources.push(read_one(item, place, &format!("{at}/{place}"))?);
            }
        }
        item => sources.push(read_one(item, 0, at)?),
    }
    check(sources, at)
}

fn read_one(item: &Value, place: usize, at: &str) -> Result<Source, Error> {
    let (id, text) = match item {
        Value::Object(fields) => (fields.get("id"), fields.get("text")),
        item => (None, Some(item)),
    };
    let Some(Value::String(text)) = text else {
        return Err(Error::invalid(at, "a source is a text, or an object with a text and an id"));
    };
    let id = match id {
        None | Some(Value::Null) => place.to_string(),
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        Some(_) => {
            return Err(Error::invalid(format!("{at}/id"), "the id of a source is a text or a number"));
        }
    };
    Ok(Source { id, text: text.clone() })
}

/// Reads a file: a JSON list as [`read`] takes it, or one plain text.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Source>, Error> {
    const FLAG: &str = "--sources";
    let shown = path.display();
    let mut bytes = Vec::new();
    let opened = File::open(path);
    let bytes_read = opened.and_then(|file| file.take(MAX_INPUT as u64 + 1).read_to_end(&mut bytes));
    bytes_read.map_err(|error| ken_tool::unreadable(path, &error).at(FLAG))?;
    if bytes.len() > MAX_INPUT {
        return Err(Error::too_large(format!("{shown} is larger than {MAX_INPUT} bytes")).at(FLAG));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        Error::invalid(FLAG, format!("{shown} is not UTF-8 at byte {byte}"))
    })?;
    if text.trim_start().starts_with('[') {
        let value = ken_types::json::parse(text.trim().as_bytes(), MAX_DEPTH).map_err(|error| error.at(FLAG))?;
        return read(&value, FLAG);
    }
    let id = shown.to_string();
    check(vec![Source { id, text }], FLAG)
}

fn check(sources: Vec<Source>, at: &str) -> Result<Vec<Source>, Error> {
    if sources.iter().all(|source| source.text.trim().is_empty()) {
        return Err(Error::invalid(at, "the sources contain no text"));
    }
    if sources.iter().any(|source| source.text.contains('\0')) {
        return Err(Error::invalid(at, "a source contains a NUL and is not text"));
    }
    Ok(sources)
}

/// How a text was compared with its sources.
pub(crate) struct Compared {
    pub(crate) support: Option<Support>,
    /// Why not all of the text could be compared.
    pub(crate) missing: Option<&'static str>,
}

impl Compared {
    /// Whether a source is about the same thing as a sentence, and it is not known whether it says the same.
    pub(crate) fn leaves_open(&self) -> bool {
        let mut findings = self.support.iter().flat_map(|support| &support.sentences).flat_map(|each| &each.findings);
        findings.any(|finding| finding.kind == Kind::Uncarried)
    }
}

/// Compares the text with the sources, one of which must be given if support is required.
pub(crate) fn compare(text: &str, sources: &[Source], is_required: bool) -> Compared {
    if sources.is_empty() {
        return Compared { support: None, missing: is_required.then_some(MISSING) };
    }
    let texts: Vec<&str> = sources.iter().map(|source| source.text.as_str()).collect();
    let readable = |text: &&str| is_english(ken_text::head(text, SAMPLE));
    let comparable = |text: &&str| ken_support::has_records(text) || readable(text);
    if texts.iter().any(comparable) && readable(&text) {
        Compared { support: Some(ken_support::support(text, &texts)), missing: None }
    } else {
        Compared { support: None, missing: Some(FOREIGN) }
    }
}
