//! A generated small encoder like BERT, and a simple computation of its vectors in f64 that shares no code with the program.
#![allow(dead_code)] // no test file uses all of it

mod random;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use random::Random;

const WIDTH: usize = 12;
const HEADS: usize = 3;
const LAYERS: usize = 2;
const INNER: usize = 20;
const POSITIONS: usize = 16;
const EPSILON: f64 = 1e-12;
/// The vocabulary after the special tokens. Words in one group have the same meaning.
const WORDS: [&[&str]; 5] = [&["car", "automobile"], &["doctor", "physician"], &["harbour"], &["##s"], &["bread"]];
const SPECIAL: [&str; 4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];

/// A model directory.
pub(crate) struct Bert {
    temp: tempfile::TempDir,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// Whether the model uses the vector of the first token instead of the mean of all vectors.
    first_token: bool,
}

fn tokens() -> Vec<&'static str> {
    let words = WORDS.iter().flat_map(|alike| alike.iter().copied());
    SPECIAL.into_iter().chain(words).collect()
}

impl Bert {
    pub(crate) fn new(first_token: bool) -> Bert {
        let mut random = Random(7);
        let mut tensors = BTreeMap::new();
        for (name, shape) in shapes() {
            let count = shape.iter().product();
            let centre = f32::from(u8::from(name.ends_with("LayerNorm.weight")));
            let size = if name.contains("position") { 0.05 } else { 0.4 };
            let values = (0..count).map(|_| centre + size * random.next()).collect();
            tensors.insert(name, (shape, values));
        }
        let mut bert = Bert { temp: tempfile::tempdir().unwrap(), tensors, first_token };
        bert.make_alike();
        bert.write();
        bert
    }

    /// Gives words of the same meaning the same embedding.
    fn make_alike(&mut self) {
        let rows = &mut self.tensors.get_mut("embeddings.word_embeddings.weight").unwrap().1;
        let mut id = SPECIAL.len();
        for alike in WORDS {
            for other in 1..alike.len() {
                rows.copy_within(id * WIDTH..(id + 1) * WIDTH, (id + other) * WIDTH);
            }
            id += alike.len();
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.temp.path()
    }

    pub(crate) fn put(&self, name: &str, value: &Value) {
        let file = self.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, value.to_string()).unwrap();
    }

    pub(crate) fn config() -> Value {
        json!({"model_type": "bert", "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "intermediate_size": INNER, "max_position_embeddings": POSITIONS, "type_vocab_size": 2, "vocab_size": tokens().len(),
            "hidden_act": "gelu", "layer_norm_eps": EPSILON, "position_embedding_type": "absolute", "architectures": ["BertModel"]})
    }

    fn write(&self) {
        self.put("config.json", &Bert::config());
        let pooling = json!({"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": self.first_token,
            "pooling_mode_mean_tokens": !self.first_token, "pooling_mode_max_tokens": false});
        self.put("1_Pooling/config.json", &pooling);
        let vocabulary: Map<String, Value> =
            tokens().iter().zip(0..).map(|(token, id)| ((*token).to_owned(), json!(id))).collect();
        let added = SPECIAL.iter().zip(0..).map(|(token, id)| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                "special": true})
        });
        let special = |id: usize| json!({"id": SPECIAL[id], "ids": [id], "tokens": [SPECIAL[id]]});
        let token = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
        let tokenizer = json!({
            "version": "1.0",
            // Published models contain these settings. The program ignores them, because it encodes one text at a time without
            // padding and has its own limit.
            "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
            "padding": {"strategy": {"Fixed": 12}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0,
                "pad_token": "[PAD]"},
            "added_tokens": added.collect::<Vec<_>>(),
            "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                "lowercase": true},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [token("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, token("[SEP]")],
                "pair": [token("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, token("[SEP]"),
                    {"Sequence": {"id": "B", "type_id": 1}}, token("[SEP]")],
                "special_tokens": {"[CLS]": special(2), "[SEP]": special(3)}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": vocabulary},
        });
        self.put("tokenizer.json", &tokenizer);
        std::fs::write(self.path().join("model.safetensors"), self.safetensors()).unwrap();
    }

    fn safetensors(&self) -> Vec<u8> {
        let (mut header, mut data) = (Map::new(), Vec::new());
        for (name, (shape, values)) in &self.tensors {
            let start = data.len();
            data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            let about = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(name.clone(), about);
        }
        let header = Value::Object(header).to_string();
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
    }

    /// The vector of these tokens, each an index of [`tokens`].
    pub(crate) fn naive(&self, tokens: &[&str]) -> Vec<f64> {
        let get = |name: &str| -> Vec<f64> { self.tensors[name].1.iter().map(|value| f64::from(*value)).collect() };
        let linear = |x: &[f64], name: &str| -> Vec<f64> {
            let (weight, bias) = (get(&format!("{name}.weight")), get(&format!("{name}.bias")));
            (0..bias.len())
                .map(|row| {
                    (0..x.len()).map(|column| weight[row * x.len() + column] * x[column]).sum::<f64>() + bias[row]
                })
                .collect()
        };
        let norm = |x: &[f64], name: &str| -> Vec<f64> {
            let (scale, shift) = (get(&format!("{name}.weight")), get(&format!("{name}.bias")));
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / x.len() as f64;
            (0..x.len()).map(|i| (x[i] - mean) / (variance + EPSILON).sqrt() * scale[i] + shift[i]).collect()
        };
        let plus = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
        let row = |name: &str, i: usize| get(&format!("embeddings.{name}.weight"))[i * WIDTH..(i + 1) * WIDTH].to_vec();
        let mut xs: Vec<Vec<f64>> = tokens
            .iter()
            .enumerate()
            .map(|(position, token)| {
                let id = self::tokens().iter().position(|known| known == token).unwrap();
                let sum = plus(&row("word_embeddings", id), &row("position_embeddings", position));
                norm(&plus(&sum, &row("token_type_embeddings", 0)), "embeddings.LayerNorm")
            })
            .collect();
        let size = WIDTH / HEADS;
        for layer in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let all = |part: &str| -> Vec<Vec<f64>> { xs.iter().map(|x| linear(x, &name(part))).collect() };
            let (queries, keys) = (all("attention.self.query"), all("attention.self.key"));
            let values = all("attention.self.value");
            let next = (0..xs.len()).map(|i| {
                let mut seen = vec![0.0; WIDTH];
                for head in 0..HEADS {
                    let part = head * size..(head + 1) * size;
                    let score = |j: usize| {
                        let products = part.clone().map(|k| queries[i][k] * keys[j][k]);
                        (products.sum::<f64>() / (size as f64).sqrt()).exp()
                    };
                    let scores: Vec<f64> = (0..xs.len()).map(score).collect();
                    let total: f64 = scores.iter().sum();
                    for k in part {
                        seen[k] = (0..xs.len()).map(|j| scores[j] / total * values[j][k]).sum();
                    }
                }
                let out = linear(&seen, &name("attention.output.dense"));
                let x = norm(&plus(&out, &xs[i]), &name("attention.output.LayerNorm"));
                let inner = linear(&x, &name("intermediate.dense"));
                let inner: Vec<f64> =
                    inner.iter().map(|value| 0.5 * value * (1.0 + erf(value / std::f64::consts::SQRT_2))).collect();
                let thought = linear(&inner, &name("output.dense"));
                norm(&plus(&thought, &x), &name("output.LayerNorm"))
            });
            xs = next.collect();
        }
        let pooled: Vec<f64> = if self.first_token {
            xs[0].clone()
        } else {
            (0..WIDTH).map(|i| xs.iter().map(|x| x[i]).sum::<f64>() / xs.len() as f64).collect()
        };
        let length = pooled.iter().map(|value| value * value).sum::<f64>().sqrt();
        pooled.iter().map(|value| value / length).collect()
    }
}

/// The error function, from its series. The error is below 1e-12 for the small values that occur here.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn shapes() -> Vec<(String, Vec<usize>)> {
    let mut shapes = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![tokens().len(), WIDTH]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![POSITIONS, WIDTH]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, WIDTH]),
    ];
    let norm = |name: String| [(format!("{name}.weight"), vec![WIDTH]), (format!("{name}.bias"), vec![WIDTH])];
    shapes.extend(norm("embeddings.LayerNorm".to_owned()));
    for layer in 0..LAYERS {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        for (part, from, to) in [
            ("attention.self.query", WIDTH, WIDTH),
            ("attention.self.key", WIDTH, WIDTH),
            ("attention.self.value", WIDTH, WIDTH),
            ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", WIDTH, INNER),
            ("output.dense", INNER, WIDTH),
        ] {
            shapes.push((name(&format!("{part}.weight")), vec![to, from]));
            shapes.push((name(&format!("{part}.bias")), vec![to]));
        }
        shapes.extend(norm(name("attention.output.LayerNorm")));
        shapes.extend(norm(name("output.LayerNorm")));
    }
    shapes
}
