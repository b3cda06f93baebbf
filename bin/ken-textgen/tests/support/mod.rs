//! Generates small models: one with random weights, and one that generates a text chosen by the test.
#![allow(dead_code)] // no test file uses all of it

mod random;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use random::Random;

/// The contents of a model directory. [`Folder::write`] writes its files.
pub(crate) struct Folder {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) config: Value,
    pub(crate) tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    pub(crate) tokens: Vec<String>,
}

pub(crate) const EMBD: usize = 40;
pub(crate) const HEADS: usize = 4;
pub(crate) const LAYERS: usize = 2;
pub(crate) const POSITIONS: usize = 24;
pub(crate) const INNER: usize = 72;
pub(crate) const WORDS: usize = 61;
pub(crate) const END: &str = "<|endoftext|>";

impl Folder {
    /// A model with random weights. Most of its sizes are no multiples of a vector's or a group's length. The tokens
    /// are `<|endoftext|>`, letters, digits, punctuation, and letters with a blank before them.
    pub(crate) fn random() -> Folder {
        let letters = ('a'..='z').chain('A'..='G').chain('0'..='9').map(String::from);
        let words = ["Ġ", "Ċ", ".", ",", "!", "?"].map(str::to_owned);
        let pairs = "abcdefghijk".chars().map(|c| format!("Ġ{c}"));
        let tokens: Vec<String> = std::iter::once(END.to_owned()).chain(letters).chain(words).chain(pairs).collect();
        assert_eq!(tokens.len(), WORDS);
        let mut folder = Folder::new(
            tokens,
            json!({"n_embd": EMBD, "n_head": HEADS, "n_layer": LAYERS,
            "n_positions": POSITIONS, "n_inner": INNER, "vocab_size": WORDS, "eos_token_id": 0}),
        );
        let mut random = Random(42);
        for (name, shape) in shapes(EMBD, LAYERS, POSITIONS, INNER, WORDS) {
            let count = shape.iter().product();
            let centre = if name.contains("ln_") && name.ends_with("weight") { 1.0 } else { 0.0 };
            let values = (0..count).map(|_| centre + 0.3 * random.next()).collect();
            folder.tensors.insert(format!("transformer.{name}"), (shape, values));
        }
        folder.write();
        folder
    }

    /// A model that continues a prompt with the tokens that follow the prompt's last token in this list, and ends after
    /// the last one. Tokens are given as bytes; "a" should be among the first, so that a prompt can end with it.
    pub(crate) fn script(tokens: &[&[u8]]) -> Folder {
        let count = tokens.len() + 1;
        let names = tokens.iter().map(|bytes| characters(bytes)).chain([END.to_owned()]).collect();
        let mut folder = Folder::new(
            names,
            json!({"n_embd": count, "n_head": 1, "n_layer": 1, "n_positions": 32,
            "n_inner": 4, "vocab_size": count, "eos_token_id": count - 1, "tie_word_embeddings": false}),
        );
        for (name, shape) in shapes(count, 1, 32, 4, count) {
            let size = shape.iter().product();
            let value = if name == "ln_f.weight" { 1.0 } else { 0.0 };
            folder.tensors.insert(name, (shape, vec![value; size]));
        }
        // The embeddings of the tokens are orthogonal, and the output head selects the token after the last one.
        let unit = |row: usize, column: usize| if row == column { 1.0 } else { 0.0 };
        let table = |shift: usize| (0..count * count).map(|i| unit((i / count + shift) % count, i % count)).collect();
        folder.tensors.insert("wte.weight".to_owned(), (vec![count, count], table(0)));
        folder.tensors.insert("lm_head.weight".to_owned(), (vec![count, count], table(count - 1)));
        folder.write();
        folder
    }

    fn new(tokens: Vec<String>, config: Value) -> Folder {
        Folder { temp: tempfile::tempdir().unwrap(), config, tensors: BTreeMap::new(), tokens }
    }

    pub(crate) fn path(&self) -> &Path {
        self.temp.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes all files.
    pub(crate) fn write(&self) {
        std::fs::write(self.file("config.json"), self.config.to_string()).unwrap();
        let vocab: serde_json::Map<_, _> = self.tokens.iter().zip(0..).map(|(t, id)| (t.clone(), json!(id))).collect();
        std::fs::write(self.file("vocab.json"), Value::Object(vocab).to_string()).unwrap();
        let pairs = self.tokens.iter().filter(|token| token.chars().count() == 2 && token.starts_with('Ġ'));
        let merges: String = pairs.map(|token| format!("Ġ {}\n", &token["Ġ".len()..])).collect();
        std::fs::write(self.file("merges.txt"), format!("#version: 0.2\n{merges}")).unwrap();
        std::fs::write(self.file("model.safetensors"), self.safetensors()).unwrap();
    }

    pub(crate) fn safetensors(&self) -> Vec<u8> {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, (shape, values)) in &self.tensors {
            let start = data.len();
            data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
        }
        let header = Value::Object(header).to_string();
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
    }

    pub(crate) fn tensor(&self, name: &str) -> &[f32] {
        &self.tensors[&format!("transformer.{name}")].1
    }
}

/// GPT-2's tensors, by name and shape.
fn shapes(embd: usize, layers: usize, positions: usize, inner: usize, words: usize) -> Vec<(String, Vec<usize>)> {
    let mut list = vec![("wte.weight".to_owned(), vec![words, embd]), ("wpe.weight".to_owned(), vec![positions, embd])];
    for layer in 0..layers {
        for norm in ["ln_1", "ln_2"] {
            list.push((format!("h.{layer}.{norm}.weight"), vec![embd]));
            list.push((format!("h.{layer}.{norm}.bias"), vec![embd]));
        }
        let linear = [
            ("attn.c_attn", embd, 3 * embd),
            ("attn.c_proj", embd, embd),
            ("mlp.c_fc", embd, inner),
            ("mlp.c_proj", inner, embd),
        ];
        for (name, from, to) in linear {
            list.push((format!("h.{layer}.{name}.weight"), vec![from, to]));
            list.push((format!("h.{layer}.{name}.bias"), vec![to]));
        }
    }
    list.push(("ln_f.weight".to_owned(), vec![embd]));
    list.push(("ln_f.bias".to_owned(), vec![embd]));
    list
}

/// The characters that represent these bytes in byte-level BPE.
fn characters(bytes: &[u8]) -> String {
    let visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let hidden: Vec<u8> = (0..=255).filter(|byte| !visible(byte)).collect();
    let character = |byte: &u8| match hidden.iter().position(|other| other == byte) {
        Some(place) => char::from_u32(0x100 + place as u32).unwrap(),
        None => char::from(*byte),
    };
    bytes.iter().map(character).collect()
}

/// The logits after each token, by a simple computation in f64 that has no cache and no batches, and shares no code
/// with the program.
pub(crate) fn naive(folder: &Folder, tokens: &[u32]) -> Vec<Vec<f64>> {
    let get = |name: &str| folder.tensor(name).iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
    let linear = |x: &[f64], name: &str| -> Vec<f64> {
        let (weight, bias) = (get(&format!("{name}.weight")), get(&format!("{name}.bias")));
        let column = |c: usize| (0..x.len()).map(|r| x[r] * weight[r * bias.len() + c]).sum::<f64>() + bias[c];
        (0..bias.len()).map(column).collect()
    };
    let norm = |x: &[f64], name: &str| -> Vec<f64> {
        let (scale, shift) = (get(&format!("{name}.weight")), get(&format!("{name}.bias")));
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / x.len() as f64;
        (0..x.len()).map(|i| (x[i] - mean) / (variance + 1e-5).sqrt() * scale[i] + shift[i]).collect()
    };
    let plus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<f64>>();
    let (words, places) = (get("wte.weight"), get("wpe.weight"));
    let row = |table: &[f64], i: usize| table[i * EMBD..(i + 1) * EMBD].to_vec();
    let mut xs: Vec<Vec<f64>> =
        tokens.iter().enumerate().map(|(i, t)| plus(&row(&words, *t as usize), &row(&places, i))).collect();
    for layer in 0..LAYERS {
        let rows: Vec<Vec<f64>> = xs
            .iter()
            .map(|x| linear(&norm(x, &format!("h.{layer}.ln_1")), &format!("h.{layer}.attn.c_attn")))
            .collect();
        let size = EMBD / HEADS;
        for (i, x) in xs.iter_mut().enumerate() {
            let mut seen = vec![0.0; EMBD];
            for head in 0..HEADS {
                let at = |part: usize, position: usize, k: usize| rows[position][part * EMBD + head * size + k];
                let dot = |p: usize| (0..size).map(|k| at(0, i, k) * at(1, p, k)).sum::<f64>() / (size as f64).sqrt();
                let weights: Vec<f64> = (0..=i).map(|p| dot(p).exp()).collect();
                let total: f64 = weights.iter().sum();
                for k in 0..size {
                    seen[head * size + k] = (0..=i).map(|p| weights[p] / total * at(2, p, k)).sum();
                }
            }
            *x = plus(x, &linear(&seen, &format!("h.{layer}.attn.c_proj")));
            let mut inner = linear(&norm(x, &format!("h.{layer}.ln_2")), &format!("h.{layer}.mlp.c_fc"));
            for v in &mut inner {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (*v + 0.044715 * v.powi(3));
                *v = 0.5 * *v * (1.0 + u.tanh());
            }
            *x = plus(x, &linear(&inner, &format!("h.{layer}.mlp.c_proj")));
        }
    }
    let logits = |x: &Vec<f64>| {
        let x = norm(x, "ln_f");
        words.chunks(EMBD).map(|word| word.iter().zip(&x).map(|(w, x)| w * x).sum()).collect()
    };
    xs.iter().map(logits).collect()
}
