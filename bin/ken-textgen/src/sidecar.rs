//! The int8 file beside a model. It is made once from the f32 weights, and `--int8` reads it instead of them.
//!
//! It is a safetensors file. Linear layers and word embeddings become `[out, in]` rows of bytes (int8 plus 128), in groups of 64
//! with one f32 scale each; the other tensors are copied. The header contains the SHA-256 of the f32 weights, and their length and
//! modification time. These show that the weights have not changed, without reading half a gigabyte.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ken_types::{Code, Error};
use safetensors::Dtype;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::model::{linear_layers, own_head, prefix};
use crate::product::Engine;
use crate::simd::{Float, GROUP, quantise_group};
use crate::weights::{Identity, Slice, Weights};

const FORMAT: &str = "ken-int8-1";
const MODIFIED: &str = "weights_modified_ns";

/// Opens the int8 weights that belong to these f32 weights. If they do not exist, calls `progress` and makes them.
pub fn open_or_make(
    config: &Config,
    floats: &Weights,
    engine: &Arc<Engine>,
    progress: impl Fn(&str),
) -> Result<Weights, Error> {
    let places = places(floats);
    let mut hash = None;
    for path in &places {
        if let Ok(weights) = Weights::open(path)
            && belongs_to(&weights, floats, &mut hash)
        {
            return Ok(weights);
        }
    }
    progress("rounding the weights to int8, once");
    let hash = hash.unwrap_or_else(|| digest(floats.bytes()));
    let plan = plan(config, floats)?;
    let mut last = Error::unavailable("there is no place for the int8 file");
    for path in &places {
        match write(path, &plan, &header(&plan, floats.identity, &hash), engine) {
            Ok(()) => return Weights::open(path),
            Err(error) if error.code == Code::Unavailable => last = error,
            Err(error) => return Err(error), // an error in the weights, which would occur in any other place too
        }
    }
    Err(last.hint("int8 weights are kept beside the model or, where that is read-only, in the user's cache directory"))
}

/// The places for the file: beside the model, and in the cache directory under a name that depends on the model's path.
fn places(floats: &Weights) -> Vec<PathBuf> {
    let beside = floats.path().with_extension("int8.safetensors");
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let model = fs::canonicalize(floats.path()).unwrap_or_else(|_| floats.path().to_owned());
    let name = digest(model.as_os_str().as_encoded_bytes());
    let cached = cache.map(|cache| cache.join("ken/textgen").join(format!("{}.int8.safetensors", &name[..32])));
    [Some(beside), cached].into_iter().flatten().collect()
}

/// Whether the int8 file was made from these weights. Compares length and modification time, and the hash only if the time differs.
fn belongs_to(bytes: &Weights, floats: &Weights, hash: &mut Option<String>) -> bool {
    if bytes.note("form") != Some(FORMAT) {
        return false;
    }
    let Identity { length, modified_ns } = floats.identity;
    if bytes.note("weights_length") != Some(length.to_string().as_str()) {
        return false;
    }
    let (known, modified) = (bytes.note(MODIFIED).unwrap_or_default(), modified_ns.to_string());
    if known == modified {
        return true;
    }
    let belongs = bytes.note("weights_sha256") == Some(hash.get_or_insert_with(|| digest(floats.bytes())).as_str());
    if belongs && known.len() == modified.len() {
        // Where the file is read-only, the weights are hashed at every start.
        let _ = store_time(bytes, known, &modified);
    }
    belongs
}

/// Writes the time of the weights over another one in the header of the int8 file, so that a copy of a model is hashed once.
fn store_time(bytes: &Weights, known: &str, modified: &str) -> io::Result<()> {
    let note = |time: &str| format!("\"{MODIFIED}\":\"{time}\"").into_bytes();
    let place = bytes.bytes().windows(note(known).len()).position(|window| window == note(known));
    let place = place.ok_or(io::ErrorKind::NotFound)?;
    File::options().write(true).open(bytes.path())?.write_all_at(&note(modified), place as u64)
}

fn digest(bytes: &[u8]) -> String {
    ken_types::hex::encode(&Sha256::digest(bytes))
}

/// One matrix to round, or one tensor to copy.
enum Source {
    /// `[in, out]`.
    Columns(Slice),
    /// `[out, in]`.
    Rows(Slice),
    Copy(Slice),
}

struct Entry {
    name: String,
    source: Source,
    inputs: usize,
    outputs: usize,
}

impl Entry {
    fn groups(&self) -> usize {
        self.inputs.div_ceil(GROUP)
    }

    fn is_copy(&self) -> bool {
        matches!(self.source, Source::Copy(_))
    }

    /// A group of one output's weights, padded with zeros.
    fn group(&self, output: usize, group: usize) -> [f32; GROUP] {
        let from = group * GROUP;
        let count = GROUP.min(self.inputs - from);
        let mut values = [0f32; GROUP];
        let (floats, step): (&[Float], usize) = match &self.source {
            Source::Columns(weights) => (&weights.floats()[from * self.outputs + output..], self.outputs),
            Source::Rows(weights) | Source::Copy(weights) => (&weights.floats()[output * self.inputs + from..], 1),
        };
        let floats = floats.iter().step_by(step).take(count);
        values.iter_mut().zip(floats).for_each(|(value, float)| *value = f32::from_le_bytes(*float));
        values
    }
}

/// The entries of the int8 file.
fn plan(config: &Config, floats: &Weights) -> Result<Vec<Entry>, Error> {
    let prefix = prefix(floats);
    let (width, words) = (config.n_embd, config.vocab_size);
    let mut plan = Vec::new();
    let mut rows = vec![format!("{prefix}wte.weight")];
    rows.extend(own_head(config, floats).map(str::to_owned));
    for name in rows {
        let source = Source::Rows(floats.tensor(&name, Dtype::F32, &[words, width])?);
        plan.push(Entry { name, source, inputs: width, outputs: words });
    }
    for layer in 0..config.n_layer {
        for (name, inputs, outputs) in linear_layers(config) {
            let name = format!("{prefix}h.{layer}.{name}.weight");
            let source = Source::Columns(floats.tensor(&name, Dtype::F32, &[inputs, outputs])?);
            plan.push(Entry { name, source, inputs, outputs });
        }
    }
    for (name, shape) in small_tensors(config) {
        let name = format!("{prefix}{name}");
        let source = Source::Copy(floats.tensor(&name, Dtype::F32, &shape)?);
        let (outputs, inputs) = if let [rows, columns] = shape[..] { (rows, columns) } else { (1, shape[0]) };
        plan.push(Entry { name, source, inputs, outputs });
    }
    Ok(plan)
}

fn small_tensors(config: &Config) -> Vec<(String, Vec<usize>)> {
    let width = config.n_embd;
    let mut list = vec![("wpe.weight".to_owned(), vec![config.n_positions, width])];
    let mut norm = |name: String| {
        list.push((format!("{name}.weight"), vec![width]));
        list.push((format!("{name}.bias"), vec![width]));
    };
    norm("ln_f".to_owned());
    for layer in 0..config.n_layer {
        norm(format!("h.{layer}.ln_1"));
        norm(format!("h.{layer}.ln_2"));
    }
    for layer in 0..config.n_layer {
        let layers = linear_layers(config);
        list.extend(layers.map(|(name, _, outputs)| (format!("h.{layer}.{name}.bias"), vec![outputs])));
    }
    list
}

/// The header, padded so that the rows of bytes begin at a cache line. The data is ordered: all bytes, then scales, then copies.
fn header(plan: &[Entry], identity: Identity, hash: &str) -> Vec<u8> {
    let mut fields = serde_json::Map::new();
    let note = json!({
        "form": FORMAT,
        "weights_sha256": hash,
        "weights_length": identity.length.to_string(),
        MODIFIED: identity.modified_ns.to_string(),
    });
    fields.insert("__metadata__".to_owned(), note);
    let mut offset = 0;
    let mut add = |name: &str, dtype: &str, shape: &[usize], size: usize| {
        let end = offset + size;
        fields.insert(name.to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}));
        offset = end;
    };
    for entry in plan.iter().filter(|entry| !entry.is_copy()) {
        let shape = [entry.outputs, entry.groups() * GROUP];
        add(&entry.name, "U8", &shape, shape[0] * shape[1]);
    }
    for entry in plan.iter().filter(|entry| !entry.is_copy()) {
        let shape = [entry.outputs, entry.groups()];
        add(&format!("{}.scales", entry.name), "F32", &shape, shape[0] * shape[1] * 4);
    }
    for entry in plan.iter().filter(|entry| entry.is_copy()) {
        let shape = if entry.outputs == 1 { vec![entry.inputs] } else { vec![entry.outputs, entry.inputs] };
        add(&entry.name, "F32", &shape, entry.outputs * entry.inputs * 4);
    }
    let mut header = serde_json::Value::Object(fields).to_string().into_bytes();
    header.resize((header.len() + 8).next_multiple_of(64) - 8, b' ');
    header
}

/// Writes to a temporary file and renames it, so that the final name never refers to an incomplete file.
fn write(path: &Path, plan: &[Entry], header: &[u8], engine: &Engine) -> Result<(), Error> {
    let cannot = |error: io::Error| Error::new(Code::Unavailable, format!("cannot write {}: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| folder.ends_with("textgen")) {
        fs::create_dir_all(folder).map_err(cannot)?;
    }
    let temporary = TemporaryFile(path.with_extension(format!("tmp.{}", std::process::id())));
    let file = File::create(&temporary.0).map_err(cannot)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    let length = (header.len() as u64).to_le_bytes();
    writer.write_all(&length).and_then(|()| writer.write_all(header)).map_err(cannot)?;
    let mut all_scales = Vec::new();
    for entry in plan.iter().filter(|entry| !entry.is_copy()) {
        let (bytes, scales) = round(entry, engine)?;
        writer.write_all(&bytes).map_err(cannot)?;
        all_scales.push(scales);
    }
    let scales = all_scales.iter().flatten().flat_map(|scale| scale.to_le_bytes());
    let scales: Vec<u8> = scales.collect();
    writer.write_all(&scales).map_err(cannot)?;
    for entry in plan {
        if let Source::Copy(values) = &entry.source {
            check_finite(&entry.name, values.floats())?;
            writer.write_all(values.bytes()).map_err(cannot)?;
        }
    }
    let file = writer.into_inner().map_err(|error| cannot(error.into_error()))?;
    file.sync_all().and_then(|()| fs::rename(&temporary.0, path)).map_err(cannot)
}

/// A file that is removed when this is dropped, unless it was renamed.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // does not exist after the rename
    }
}

/// The rows of bytes and their scales, output by output.
fn round(entry: &Entry, engine: &Engine) -> Result<(Vec<u8>, Vec<f32>), Error> {
    const ROWS: usize = 64;
    let groups = entry.groups();
    let mut bytes = vec![0u8; entry.outputs * groups * GROUP];
    let mut scales = vec![0f32; entry.outputs * groups];
    let parts = bytes.chunks_mut(ROWS * groups * GROUP).zip(scales.chunks_mut(ROWS * groups));
    engine.threads.each(parts, |index, (bytes, scales)| {
        // One group after the other over all rows of the part, so that neighbouring columns are read while they are in the cache.
        for group in 0..groups {
            let bytes = bytes.chunks_exact_mut(groups * GROUP);
            let rows = bytes.zip(scales.chunks_exact_mut(groups));
            for (row, (bytes, scales)) in rows.enumerate() {
                let (values, scale) = quantise_group(&entry.group(index * ROWS + row, group));
                let into = &mut bytes[group * GROUP..][..GROUP];
                into.iter_mut().zip(values).for_each(|(byte, value)| *byte = (value as u8).wrapping_add(128));
                scales[group] = scale;
            }
        }
    });
    if scales.iter().all(|scale| scale.is_finite()) { Ok((bytes, scales)) } else { Err(not_finite(&entry.name)) }
}

fn check_finite(name: &str, values: &[Float]) -> Result<(), Error> {
    if values.iter().all(|value| f32::from_le_bytes(*value).is_finite()) { Ok(()) } else { Err(not_finite(name)) }
}

fn not_finite(name: &str) -> Error {
    Error::invalid(name, format!("{name} holds a value that is not a finite number"))
        .hint("the weights are damaged; download them again")
}
